//! The state of bonds and their members as others see it.

use super::{BondSettings, Negotiation};
use crate::pdu::Info;
use crate::select::Currency;
use base::BridgePort;

/// Counters of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// LACPDUs sent.
    pub tx: u64,
    /// Frames of slow protocols received, malformed ones and marker PDUs included.
    pub rx: u64,
    /// Malformed frames received.
    pub rx_bad: u64,
    /// Marker PDUs received.
    pub rx_marker: u64,
    /// How often information about the partner has expired.
    pub expired: u64,
    /// How often the partner was given up.
    pub defaulted: u64,
    /// How often the carrier has changed.
    pub carrier_changed: u64,
}

/// The state of a bond.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BondStatus {
    /// The number of its bridge.
    pub bridge: u32,
    /// Its name.
    pub name: String,
    /// Its settings, with those of its members.
    pub settings: BondSettings,
    /// Whether it has a partner.
    pub negotiation: Negotiation,
    /// The operational key of its members.
    pub key: u16,
    /// Its members, by the names of their interfaces.
    pub members: Vec<MemberStatus>,
}

/// The state of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    /// The port.
    pub port: BridgePort,
    /// Interface name.
    pub name: String,
    /// How current the information about its partner is.
    pub currency: Currency,
    /// Whether it belongs to the aggregate.
    pub attached: bool,
    /// Whether it may carry traffic.
    pub may_enable: bool,
    /// The operational key of its bond.
    pub key: u16,
    /// Its own information.
    pub actor: Info,
    /// Its partner's.
    pub partner: Info,
    /// Counters.
    pub statistics: Statistics,
}
