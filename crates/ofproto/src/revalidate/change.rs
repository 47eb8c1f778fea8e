//! What can change under a remembered verdict.

use base::{DpPort, MacAddr};
use std::sync::Arc;
use xlate::{BridgeId, Rule};

/// Something that translations look at has changed. Whoever changes it does so first and tells of it after
/// ([`crate::Switch::changed`]).
#[derive(Clone, Debug)]
pub enum Change {
    /// A flow table, by one rule.
    Rule {
        /// Bridge of the table.
        bridge: BridgeId,
        /// The table.
        table: u8,
        /// The rule.
        rule: Arc<Rule>,
        /// What became of it.
        what: RuleChange,
    },
    /// A flow table, by more rules than are told of one by one.
    Table {
        /// Its bridge.
        bridge: BridgeId,
        /// Which.
        table: u8,
        /// Whether a rule is gone.
        loosened: bool,
    },
    /// Where an address is: it was learned, moved or was forgotten.
    Mac {
        /// Bridge that knows.
        bridge: BridgeId,
        /// VLAN.
        vlan: u16,
        /// Address.
        mac: MacAddr,
    },
    /// A group came, went or is another.
    Group {
        /// Its bridge.
        bridge: BridgeId,
        /// Its number.
        group: u32,
    },
    /// A meter came, went or is another.
    Meter {
        /// Its bridge.
        bridge: BridgeId,
        /// Its number.
        meter: u32,
    },
    /// What protocols let a port do, where a protocol that decides is enabled.
    PortState(DpPort),
    /// Anything else of a bridge: its ports, its settings, many of its addresses at once.
    Bridge(BridgeId),
    /// Anything at all.
    Everything,
}

/// What became of a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RuleChange {
    /// It is new: no rule of this match and priority was there before.
    Added,
    /// It is gone.
    Removed,
    /// It has taken the place of one of the same match and priority.
    Replaced,
}
