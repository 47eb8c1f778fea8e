//! The userspace datapath: ports, packet threads, the cache of verdicts, and the execution of actions.
//!
//! A packet's way, one file a step, top to bottom:
//!
//! - [`poll`]: the loop of a packet thread; [`thread`]: what a thread owns and one round of its work;
//! - [`pmd`]: the packet threads begin, end and get their queues; [`assign`]: which one gets which; [`history`], by what
//!   queues cost lately; [`stats`]: what threads have done;
//! - [`forward`]: a batch from its keys to its actions; [`group`]: what of it belongs together;
//! - [`worklist`]: what of it comes back, to be looked up once more;
//! - [`last_flow`]: whole batches of one flow, by their bytes, without keys;
//! - [`input`]: a batch of frames becomes keys;
//! - [`microflow`]: the microflow cache, a hint which megaflow an exact key takes;
//! - [`flows`], [`megaflow`]: the index of cached flows, in two copies, which packet threads read without a lock;
//! - [`offload`]: flows that an accelerator below has, so that their packets do not come here;
//! - [`upcall`]: what no flow covers goes up through a bounded queue of its port, to threads that ask the
//!   [`dpif::UpcallHandler`];
//! - [`execute`]: actions on packets, those of the same verdict together;
//! - [`meter`]: token buckets that packets may be sent through;
//! - [`output`]: per-port transmit batches; [`tx`]: the transmit queues of a port.
//!
//! Locks taken while packets flow: a meter's, once a batch that is sent through it; the accelerator's, once for a flow that
//! is offered to it. Packet threads read the flows, the list of ports and the handler through published snapshots and write
//! no cache line that they share. Every received packet leaves through a device, goes up, or is counted by its
//! [`base::DropReason`].

pub mod assign;
mod backend;
mod datapath;
mod execute;
mod flows;
mod forward;
mod group;
mod history;
mod input;
mod lane;
mod last_flow;
pub mod megaflow;
mod meter;
mod microflow;
mod offload;
mod output;
mod pmd;
mod poll;
pub mod port;
mod shared;
mod thread;
mod tx;
mod upcall;
mod worklist;

pub use megaflow::IndexKind;

pub use datapath::{Config, Datapath};
pub use offload::OFFERED_PACKETS;
