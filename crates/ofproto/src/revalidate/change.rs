//! Changes that can invalidate megaflows.

use base::{BridgePort, MacAddr};
use std::net::IpAddr;
use std::sync::Arc;
use xlate::{BridgeId, Rule};

/// A change of the input of translations. The change is made first and reported afterwards
/// ([`crate::Switch::changed`]).
#[derive(Clone, Debug)]
pub enum Change {
    /// One rule of a flow table changed.
    Rule {
        /// Bridge of the table.
        bridge: BridgeId,
        /// The table.
        table: u8,
        /// The rule.
        rule: Arc<Rule>,
        /// The change.
        what: RuleChange,
    },
    /// More rules of a flow table changed than are reported one by one.
    Table {
        /// Its bridge.
        bridge: BridgeId,
        /// The table.
        table: u8,
        /// True if a rule was removed.
        loosened: bool,
    },
    /// An address was learned, moved or was removed from the MAC table.
    Mac {
        /// The bridge of the MAC table.
        bridge: BridgeId,
        /// VLAN.
        vlan: u16,
        /// Address.
        mac: MacAddr,
    },
    /// The members of a multicast group.
    MulticastGroup {
        /// The bridge.
        bridge: BridgeId,
        /// VLAN.
        vlan: u16,
        /// Address of the group.
        group: IpAddr,
    },
    /// The ports of a VLAN that lead to multicast routers.
    MulticastRouters {
        /// The bridge.
        bridge: BridgeId,
        /// VLAN.
        vlan: u16,
    },
    /// A group was added, changed or deleted.
    Group {
        /// Its bridge.
        bridge: BridgeId,
        /// Its number.
        group: u32,
    },
    /// A meter was added, changed or deleted.
    Meter {
        /// Its bridge.
        bridge: BridgeId,
        /// Its number.
        meter: u32,
    },
    /// A part of the decisions of the bond of this name.
    Bond(Arc<str>, bond::Part),
    /// The state that protocols give a port, where a protocol that decides is enabled.
    PortState(BridgePort),
    /// The tunnel ports of the bridges, or what the host receives for them.
    Tunnels,
    /// The route to this address.
    Route(IpAddr),
    /// The Ethernet address of this neighbour.
    Neighbour(IpAddr),
    /// Any other change of a bridge: its ports, its settings, many of its addresses at once.
    Bridge(BridgeId),
    /// Any change.
    Everything,
}

/// A change of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleChange {
    /// It was added, and replaced no rule of the same match and priority.
    Added,
    /// It was removed.
    Removed,
    /// It replaced a rule of the same match and priority.
    Replaced,
}
