//! Routes, policy rules and neighbours for the outer headers of tunnels. No I/O, time is an argument.
//!
//! - [`prefix`]: IP prefixes. [`trie`]: the longest of them that contains an address.
//! - [`table`] and [`rules`]: routing tables and the rules that select them.
//! - [`kernel`]: a replica of the kernel's state, fed with the changes that `netdev-linux` reads from netlink.
//! - [`router`]: lookups over all of these, with their answers kept for translations.
//! - [`neighbours`]: Ethernet addresses of next hops; [`request`](mod@request): the frames that ask for them.
//! - [`dependency`]: handles by which a translation learns that an answer has changed.
//! - [`commands`]: `ovs/route/*` and `tnl/neigh/*`.

pub mod commands;
pub mod dependency;
pub mod kernel;
pub mod neighbours;
pub mod prefix;
pub mod request;
pub mod router;
pub mod rules;
pub mod table;
pub mod trie;

pub use dependency::Dependency;
pub use kernel::{HopState, KernelChange, KernelRoute, NextHop, Placement, Step};
pub use neighbours::{Found, Learning, NeighbourRow, Neighbours, neighbours_to_text};
pub use prefix::Prefix;
pub use request::request;
pub use router::{Lookup, NoSource, Query, Route, Router, Stale, UserRoute};
pub use rules::{From, Rule};
pub use table::{Origin, RouteRow, Shown, rows_to_text};
