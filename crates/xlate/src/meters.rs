//! Meters as translations see them (OpenFlow 1.3 section 5.7): with the ids that the datapath has for them.

use crate::numbered::Numbered;
use crate::trace::NodeKind;
use crate::translate::Xlate;
use crate::verdict::Dependency;
use base::Millis;
use dpif::{DpAction, MeterId};
use openflow::meter::{METER_CONTROLLER, MeterConfig};

/// A meter. It is immutable: a modification replaces it by another one with the same datapath meter.
#[derive(Debug)]
pub struct Meter {
    /// The controller's configuration, with its number.
    pub config: MeterConfig,
    /// The datapath's id of the meter.
    pub datapath_id: MeterId,
    /// When it was added.
    pub created: Millis,
}

/// The meters of a bridge.
pub type Meters = Numbered<Meter>;

impl Xlate<'_> {
    /// Executes the `meter` instruction. Packets that the meter drops do not reach the actions after it.
    pub(crate) fn meter(&mut self, id: u32) {
        match self.find_meter(id) {
            Some(datapath_id) => {
                self.commit();
                self.emit(DpAction::Meter(datapath_id));
            }
            None => self.tracer.note(NodeKind::Warning, || format!("there is no meter {id}")),
        }
    }

    /// Returns the meter for packets to controllers: the one that the action names, or else the controller meter.
    pub(crate) fn controller_meter(&mut self, id: Option<u32>) -> Option<MeterId> {
        id.and_then(|id| self.find_meter(id)).or_else(|| self.find_meter(METER_CONTROLLER))
    }

    fn find_meter(&mut self, meter: u32) -> Option<MeterId> {
        let dependency = Dependency::Meter { bridge: self.pos.bridge.id, meter };
        if !self.out.dependencies.contains(&dependency) {
            self.out.dependencies.push(dependency);
        }
        self.view().meters.get(meter).map(|meter| meter.datapath_id)
    }
}
