//! Bonds: ports of several interfaces, as a state machine without I/O.
//!
//! - [`hash`]: the hash of a source address and VLAN that selects a bucket;
//! - [`settings`]: the configuration of a bond and the state of its members' links;
//! - [`machine`]: [`Bonds`], which enables and disables members, selects the active one and rebalances; `bond`: one of
//!   them; [`rebalance`]: the choice of buckets to move; [`commands`]: changes by an operator;
//! - [`view`]: [`View`], the published decisions of one bond, by which translation admits frames and chooses a member;
//! - [`learning`]: frames that teach the neighbouring switch where addresses are after a failover;
//! - [`show`]: the text of `bond/list` and `bond/show`.
//!
//! The caller passes the links' states, the status of LACP and the time, calls [`Bonds::poll`] at
//! [`Bonds::next_deadline`] and after each change, and carries out the returned effects. Modes, delays, log lines and
//! commands are those of Open vSwitch 4.0.0.
//!
//! Invariants: a bond has at most one active member, which is enabled; if any member is enabled, one is active; a bucket
//! belongs to an enabled member if there is one, and to none otherwise; a bond that does not forward names no member.

mod bond;
pub mod commands;
pub mod hash;
pub mod learning;
pub mod machine;
pub mod rebalance;
pub mod settings;
pub mod show;
pub mod view;

pub use commands::CommandError;
pub use hash::{bucket_of, source_hash};
pub use learning::{is_gratuitous_arp, learning_frame};
pub use machine::{Bonds, Effect, Status};
pub use settings::{Detection, LacpStatus, Link, MemberSettings, Mode, Settings};
pub use view::{Admission, Choice, Loads, Part, Published, Table, View};

/// The number of buckets over which a bond balances.
pub const BUCKETS: usize = 256;

#[cfg(test)]
mod tests;
