//! Bridge and port identifiers, priority vectors and timer values (IEEE 802.1D-2004 clauses 9.2 and 17.6).
//!
//! Invariant: of two identifiers or vectors, the lesser one is the better one.

use base::MacAddr;
use std::fmt;

/// A bridge identifier: a priority of 16 bits (with RSTP, 4 bits and a system id extension) above a MAC address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BridgeId(u64);

impl BridgeId {
    /// The identifier of a priority and an address.
    pub fn new(priority: u16, address: MacAddr) -> Self {
        Self(u64::from(priority) << 48 | address.to_u64())
    }

    /// The upper 16 bits.
    pub fn priority(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// The lower 48 bits.
    pub fn address(self) -> MacAddr {
        MacAddr::from_u64(self.0 & 0xffff_ffff_ffff)
    }

    /// As it is on the wire.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.to_be_bytes()
    }

    /// From the wire.
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        Self(u64::from_be_bytes(bytes))
    }

    /// As columns of RSTP show it: priority, system id extension and address, `8.000.aa55aa550000`.
    pub fn rstp_text(self) -> String {
        let priority = self.priority();
        format!("{:x}.{:03x}.{:012x}", priority >> 12, priority & 0xfff, self.address().to_u64())
    }
}

/// As columns of STP show it: priority and address, `8000.aa55aa550000`.
impl fmt::Display for BridgeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}.{:012x}", self.priority(), self.address().to_u64())
    }
}

impl fmt::Debug for BridgeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A port identifier. In STP its upper 8 bits are the priority and its lower 8 bits the number; in RSTP these are
/// 4 and 12 bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PortId(pub u16);

impl PortId {
    /// Of STP (IEEE 802.1D-1998 8.5.5.1).
    pub fn stp(priority: u8, number: u16) -> Self {
        Self(u16::from(priority) << 8 | number & 0xff)
    }

    /// Of RSTP (IEEE 802.1D-2004 17.19.19): the lower 4 bits of the priority are ignored.
    pub fn rstp(priority: u8, number: u16) -> Self {
        Self(u16::from(priority & 0xf0) << 8 | number & 0xfff)
    }
}

/// A priority vector: the quality of information about the spanning tree (IEEE 802.1D-2004 17.5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Vector {
    /// The root bridge.
    pub root: BridgeId,
    /// The cost of the path to it.
    pub cost: u32,
    /// The designated bridge.
    pub bridge: BridgeId,
    /// The designated port.
    pub port: PortId,
}

/// 1 second in the units of BPDUs.
pub const SECOND: u16 = 256;

/// Timer values as BPDUs carry them, in units of 1/256 s.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Times {
    /// Time since the root sent the information.
    pub message_age: u16,
    /// Time for which the information is valid.
    pub max_age: u16,
    /// Interval of BPDUs.
    pub hello_time: u16,
    /// Delay of the transitions to learning and to forwarding.
    pub forward_delay: u16,
}

impl Times {
    /// The times of a root, in seconds.
    pub fn of_root(hello_s: u8, max_age_s: u8, forward_delay_s: u8) -> Self {
        let units = |seconds: u8| u16::from(seconds) * SECOND;
        Self {
            message_age: 0,
            max_age: units(max_age_s),
            hello_time: units(hello_s),
            forward_delay: units(forward_delay_s),
        }
    }
}

/// Converts units of 1/256 s to milliseconds.
pub fn to_ms(time: u16) -> u64 {
    u64::from(time) * 1000 / u64::from(SECOND)
}

/// Converts milliseconds to units of 1/256 s.
pub fn from_ms(ms: u64) -> u16 {
    u16::try_from(ms.saturating_mul(u64::from(SECOND)) / 1000).unwrap_or(u16::MAX)
}
