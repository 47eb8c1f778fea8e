//! BFD (RFC 5880) in asynchronous mode over single IPv4 hops (RFC 5881), as a state machine without I/O.
//!
//! - [`packet`]: control packets, and the Ethernet frames around them;
//! - [`settings`]: the settings of a session, read from key-value pairs;
//! - [`session`]: the state machine of one session;
//! - [`machine`]: [`Bfd`], the sessions of many ports, with a timer wheel;
//! - [`show`]: the text of `bfd/show`, and the pairs of a status column.
//!
//! The caller hands in frames, counters of received packets and the time, carries out the effects that [`Bfd::poll`]
//! returns, and polls again at [`Bfd::next_deadline`]. Frames, timings and texts are those of Open vSwitch 4.0.0.
//! Authentication, echo and demand mode are absent, as there.
//!
//! Invariants: a malformed packet changes nothing but counters; the cost of a poll is proportional to the sessions that
//! are due; discriminators are unique and never 0.

pub mod machine;
pub mod packet;
pub mod session;
pub mod settings;
pub mod show;

pub use machine::Bfd;
pub use packet::{Control, Diagnostic, Flags, State};
pub use protocols::Effect;
pub use session::{SessionStatus, Statistics};
pub use settings::SessionSettings;
