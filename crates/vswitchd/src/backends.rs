//! The one place that knows implementations of datapaths: everything else holds an `Arc<dyn Dpif>`.

use crate::types::DatapathClass;
use base::Clock;
use datapath::{Config, Datapath};
use dpif::{Dpif, DpifError};
use std::sync::Arc;

/// Makes a datapath of this class, without ports. Fails if its threads cannot be started.
pub(crate) fn open(class: DatapathClass, clock: &Clock) -> Result<Arc<dyn Dpif>, DpifError> {
    match class {
        // A dummy differs in the devices of its ports and in their numbers, not in how it forwards.
        DatapathClass::Userspace | DatapathClass::Dummy => {
            Ok(Arc::new(Datapath::new(Config::default(), clock.clone())?))
        }
    }
}
