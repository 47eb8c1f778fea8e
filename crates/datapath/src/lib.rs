//! The userspace datapath: ports, packet threads, the cache of verdicts, and the execution of actions.
//!
//! A packet's way, one file a step, top to bottom:
//!
//! - [`poll`]: the loop of a packet thread; [`thread`]: what a thread owns and one round of its work;
//! - [`crew`]: the packet threads begin, end and get their queues; [`assign`]: which one gets which; [`history`], by what
//!   queues cost lately; [`stats`]: what threads have done;
//! - [`forward`]: a batch from its keys to its actions; [`group`]: what of it belongs together;
//! - [`usual`]: whole batches of one flow, by their bytes, without keys;
//! - [`input`]: a batch of frames becomes keys;
//! - [`exact`]: the microflow cache, a hint which megaflow an exact key takes;
//! - [`flows`], [`megaflow`]: the index of cached verdicts behind its lock;
//! - [`offload`]: flows that an accelerator below has, so that their packets do not come here;
//! - [`upcall`]: what no flow covers goes up through a bounded queue of its port, to threads that ask the
//!   [`dpif::UpcallHandler`];
//! - [`execute`]: actions on packets, those of the same verdict together;
//! - [`meter`]: token buckets that packets may be sent through;
//! - [`output`]: per-port transmit batches.
//!
//! Which locks this takes while packets flow: the flows' lock, shared, once a batch (writers hold it for one change); a
//! meter's lock, once a batch that is sent through it; the accelerator's, once for a flow that is offered to it. The list
//! of ports and the handler are read through published
//! snapshots. Every packet that comes in leaves through a device, goes up, or is counted by its
//! [`base::DropReason`].

pub mod assign;
mod crew;
mod datapath;
mod exact;
mod execute;
mod flows;
mod forward;
mod group;
mod history;
mod input;
pub mod megaflow;
mod meter;
mod offload;
mod output;
mod poll;
pub mod port;
mod shared;
mod stats;
mod thread;
mod upcall;
mod usual;

pub use megaflow::IndexKind;

pub use crew::{Balance, Cpu, QueueUsage, ThreadConfig, ThreadInfo, Usage};
pub use datapath::{Config, Datapath};
pub use history::{INTERVAL_SECS, INTERVALS};
pub use offload::{OFFERED_PACKETS, OffloadInfo, Unfit};
pub use port::{PortInfo, PortStats, QueueInfo};
pub use stats::ThreadStats;
pub use upcall::{HandlerStats, PortUpcalls, UpcallStats};
