//! Multicast snooping (RFC 4541): a switch learns from the messages of hosts and routers which of its ports want which
//! multicast groups. Without I/O: the time is an argument.
//!
//! - [`message`]: a message as the table needs it, and the reasons why a frame has none;
//! - [`igmp`]: IGMP versions 1 to 3 (RFC 1112, 2236, 3376);
//! - [`mld`]: MLD versions 1 and 2 (RFC 2710, 3810);
//! - [`table`]: [`Table`], the members of each group by VLAN, and the ports that lead to multicast routers;
//! - [`show`]: the text of `mdb/show`.
//!
//! Messages teach what they teach Open vSwitch 4.0.0: a leave takes effect at once, sources are not distinguished, and a
//! router is forgotten 180 seconds after its last query.
//!
//! Invariants: any bytes are a message or an error; a message with a wrong checksum is an error; the table has no more
//! groups than configured, and a group no more members than the bridge has bundles.

pub mod igmp;
pub mod message;
pub mod mld;
pub mod show;
pub mod table;

pub use message::{Malformed, Membership, Message, Record, Version};
pub use table::{Change, Counters, Flooding, GroupKey, Settings, Source, Table};
