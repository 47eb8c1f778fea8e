//! The kernel's routes, rules, addresses and links of one network namespace, over rtnetlink(7).
//!
//! [`Follower`] dumps them and receives their changes as values for crate `routes`; [`parse`] reads the messages. The
//! kernel drops changes that do not fit into the socket's buffer, and reports that; the follower then dumps anew.

mod follower;
pub mod parse;

pub use follower::{Follower, Update};
