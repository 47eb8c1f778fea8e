//! Log levels by module and destination, and the log line format of Open vSwitch, behind the `tracing` macros.
//!
//! An event's target is its module: `tracing::info!(target: "bridge", "...")`. Each module has a level for each of the
//! three [`Destination`]s; each destination has a pattern ([`pattern`]). [`init`] makes the process's [`Log`] and
//! installs it; the control commands `vlog/*` are its methods, and so are the options in [`OPTIONS`].
//!
//! | tracing | here |
//! |---|---|
//! | [`emer!`](crate::emer) | `EMER` |
//! | `error!` | `ERR` |
//! | `warn!` | `WARN` |
//! | `info!` | `INFO` |
//! | `debug!` | `DBG` |
//! | `trace!` | never logged |
//!
//! A call site that no destination enables costs one load of a static: `tracing` caches the answer until a level
//! changes. Messages that a peer can cause at will go through a [`RateLimit`].

mod captured;
pub mod layer;
pub mod level;
pub mod log;
mod modules;
pub mod options;
pub mod pattern;
pub mod rate;
mod sink;
mod spec;

pub use captured::Captured;
pub use layer::{init, log};
pub use level::{Destination, Level};
pub use log::{Log, strip_os_error};
pub use options::OPTIONS;
pub use rate::{Admission, RateLimit};

#[doc(hidden)]
pub use tracing as __tracing;

/// Logs a message of the level `EMER`, which announces that the process aborts: `emer!(target: "util", "...")`.
#[macro_export]
macro_rules! emer {
    (target: $target:expr, $($message:tt)+) => {
        $crate::__tracing::error!(target: $target, emer = true, $($message)+)
    };
}
