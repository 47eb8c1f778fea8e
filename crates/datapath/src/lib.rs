//! The userspace datapath: ports, packet threads, the flow cache, and the execution of actions.
//!
//! The path of a packet, one file for each step, top to bottom:
//!
//! - [`poll`]: the loop of a packet thread; [`thread`]: the state of a thread and one round of its work;
//! - [`pmd`]: packet threads start, end and get receive queues; [`assign`]: the assignment of queues to threads;
//!   [`history`]: the recent cost of queues;
//! - [`forward`]: a batch from its keys to its actions; [`group`]: grouping its packets by flow and by actions;
//! - [`worklist`]: recirculated packets that wait for another look-up;
//! - [`last_flow`]: the last-flow cache, which matches whole batches of one flow by their bytes, without keys;
//! - [`input`]: extracts keys from a batch of frames;
//! - [`microflow`]: the microflow cache, a hint from an exact key to a megaflow;
//! - [`flows`], [`megaflow`]: the index of cached flows, in two copies, which packet threads read without a lock;
//! - [`offload`]: flows that an accelerator forwards below the datapath, so that their packets bypass it;
//! - [`upcall`]: misses go through bounded queues of their ports to threads that call the [`dpif::UpcallHandler`];
//! - [`execute`]: actions on packets, run together for packets with the same verdict;
//! - [`meter`]: token buckets for the meter action;
//! - [`bonds`]: the tables by which `lb_output` chooses members of bonds;
//! - [`output`]: per-port transmit batches; [`tx`]: the transmit queues of a port.
//!
//! The fast path takes two kinds of locks: that of a meter, once for each batch sent through it, and that of the
//! accelerator, once for each flow offered to it. Packet threads read the flows, the port table and the handler
//! through published snapshots, and write no cache line that they share. Every received packet leaves through a
//! device, goes to an upcall, or is counted by its [`base::DropReason`].

pub mod assign;
mod backend;
mod bonds;
mod connections;
mod datapath;
mod execute;
mod flows;
mod forward;
mod group;
mod hints;
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
mod rounds;
mod shared;
mod shortcut;
mod thread;
mod tunnel_hints;
mod tx;
mod upcall;
mod worklist;

pub use megaflow::IndexKind;

pub use datapath::{Config, Datapath};
pub use offload::OFFERED_PACKETS;
