//! LACPDUs (IEEE 802.1AX-2020 clause 6.4.2): parsed from frames, and written to them.
//!
//! A frame is accepted as by Open vSwitch 4.0.0: the version number, the collector TLV, the destination address and bytes
//! behind the PDU do not matter, and VLAN tags are skipped.

use base::MacAddr;
use std::fmt;

/// The Ethernet type of slow protocols (IEEE 802.3-2018 57A.4).
pub const ETHERTYPE: u16 = 0x8809;
/// The destination address of slow protocols.
pub const SLOW_PROTOCOLS: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 2]);
/// Bytes of a LACPDU, with its subtype and without the Ethernet header.
pub const PDU_LEN: usize = 110;

/// Subtype of LACP.
const LACP: u8 = 1;
/// Subtype of the marker protocol.
const MARKER: u8 = 2;
const VERSION: u8 = 1;
/// Type and length of the actor, partner and collector TLVs.
const ACTOR: [u8; 2] = [1, 20];
const PARTNER: [u8; 2] = [2, 20];
const COLLECTOR: [u8; 2] = [3, 16];
/// Bytes of a TLV's header and of the information in an actor or partner TLV, and of the reserved bytes behind it.
const TLV_LEN: usize = 20;
const INFO_LEN: usize = 15;

/// Why a frame is neither a LACPDU nor a marker PDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// The Ethernet type is not that of slow protocols.
    #[error("not a frame of a slow protocol")]
    NotSlow,
    /// The frame ends before the PDU does.
    #[error("the PDU is cut off")]
    Truncated,
    /// The subtype is that of another protocol.
    #[error("slow protocol of subtype {0}")]
    Subtype(u8),
    /// The actor or the partner TLV has another type or length.
    #[error("a TLV of type {0} and length {1} is out of place")]
    Tlv(u8, u8),
}

/// The state flags of an actor or partner (IEEE 802.1AX-2020 6.4.2.3).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct State(pub u8);

impl State {
    /// No flags.
    pub const EMPTY: Self = Self(0);
    /// Sends LACPDUs unsolicited.
    pub const ACTIVITY: Self = Self(1);
    /// Wants to receive LACPDUs every second: the short timeout.
    pub const TIMEOUT: Self = Self(1 << 1);
    /// Can aggregate this link with others.
    pub const AGGREGATION: Self = Self(1 << 2);
    /// Has the link in the right aggregate.
    pub const SYNCHRONIZED: Self = Self(1 << 3);
    /// Accepts frames from the link.
    pub const COLLECTING: Self = Self(1 << 4);
    /// Sends frames to the link.
    pub const DISTRIBUTING: Self = Self(1 << 5);
    /// Uses default information about its partner.
    pub const DEFAULTED: Self = Self(1 << 6);
    /// Has heard nothing of its partner for too long.
    pub const EXPIRED: Self = Self(1 << 7);

    /// The flags' names in the output of Open vSwitch, by bit.
    const NAMES: [&str; 8] =
        ["activity", "timeout", "aggregation", "synchronized", "collecting", "distributing", "defaulted", "expired"];

    /// Returns true if all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the flags that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Names of the flags that are set, by bit.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        Self::NAMES.into_iter().enumerate().filter(move |(bit, _)| self.0 & 1 << bit != 0).map(|(_, name)| name)
    }
}

/// The flags' names, with a space between them.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names().collect::<Vec<_>>().join(" "))
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "State({self})")
    }
}

/// An actor's or partner's information about a link. Values order as IEEE 802.1AX compares priorities: fields in this
/// order, numerically, the lowest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Info {
    /// System priority; lower values are better.
    pub system_priority: u16,
    /// System identifier.
    pub system: MacAddr,
    /// Operational key: the links of a system with the same key can be aggregated.
    pub key: u16,
    /// Port priority; lower values are better.
    pub port_priority: u16,
    /// Port number.
    pub port: u16,
    /// State flags.
    pub state: State,
}

impl Info {
    fn parse(bytes: &[u8; INFO_LEN]) -> Self {
        let [p0, p1, m0, m1, m2, m3, m4, m5, k0, k1, q0, q1, n0, n1, state] = *bytes;
        Self {
            system_priority: u16::from_be_bytes([p0, p1]),
            system: MacAddr([m0, m1, m2, m3, m4, m5]),
            key: u16::from_be_bytes([k0, k1]),
            port_priority: u16::from_be_bytes([q0, q1]),
            port: u16::from_be_bytes([n0, n1]),
            state: State(state),
        }
    }

    fn write(&self, to: &mut Vec<u8>) {
        to.extend(self.system_priority.to_be_bytes());
        to.extend(self.system.0);
        to.extend(self.key.to_be_bytes());
        to.extend(self.port_priority.to_be_bytes());
        to.extend(self.port.to_be_bytes());
        to.push(self.state.0);
    }
}

/// A LACPDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Pdu {
    /// The sender.
    pub actor: Info,
    /// The receiver, as the sender knows it.
    pub partner: Info,
}

/// A well-formed frame of a slow protocol that members of bonds handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlowFrame {
    /// A LACPDU.
    Lacp(Pdu),
    /// A PDU of the marker protocol (IEEE 802.1AX-2020 6.5).
    Marker,
}

impl SlowFrame {
    /// Parses a frame, which begins with its Ethernet header; VLAN tags are skipped.
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        let pdu: &[u8; PDU_LEN] =
            payload(frame).ok_or(Malformed::NotSlow)?.first_chunk().ok_or(Malformed::Truncated)?;
        match pdu[0] {
            LACP => Pdu::parse(pdu).map(Self::Lacp),
            MARKER => Ok(Self::Marker),
            subtype => Err(Malformed::Subtype(subtype)),
        }
    }
}

impl Pdu {
    fn parse(pdu: &[u8; PDU_LEN]) -> Result<Self, Malformed> {
        let (_, tlvs) = pdu.split_at(2);
        Ok(Self { actor: tlv(tlvs, ACTOR)?, partner: tlv(&tlvs[TLV_LEN..], PARTNER)? })
    }

    /// Encodes the frame, from the address `source`.
    pub fn frame(&self, source: MacAddr) -> Vec<u8> {
        let header = 14;
        let mut frame = Vec::with_capacity(header + PDU_LEN);
        frame.extend(SLOW_PROTOCOLS.0);
        frame.extend(source.0);
        frame.extend(ETHERTYPE.to_be_bytes());
        frame.extend([LACP, VERSION]);
        for (kind, info) in [(ACTOR, &self.actor), (PARTNER, &self.partner)] {
            frame.extend(kind);
            info.write(&mut frame);
            frame.extend([0; TLV_LEN - ACTOR.len() - INFO_LEN]);
        }
        frame.extend(COLLECTOR);
        // The collector's maximum delay is 0; the terminator TLV and the reserved bytes are zeros, too.
        frame.resize(header + PDU_LEN, 0);
        frame
    }
}

/// Parses the actor or partner TLV at the beginning of `bytes`.
fn tlv(bytes: &[u8], expected: [u8; 2]) -> Result<Info, Malformed> {
    let (&[kind, len], value) = bytes.split_first_chunk().ok_or(Malformed::Truncated)?;
    if [kind, len] != expected {
        return Err(Malformed::Tlv(kind, len));
    }
    Ok(Info::parse(value.first_chunk().ok_or(Malformed::Truncated)?))
}

/// The payload behind the Ethernet header and VLAN tags of a frame of a slow protocol.
fn payload(frame: &[u8]) -> Option<&[u8]> {
    let mut rest = frame.get(12..)?;
    loop {
        let (ethertype, behind) = rest.split_first_chunk()?;
        match u16::from_be_bytes(*ethertype) {
            ETHERTYPE => return Some(behind),
            0x8100 | 0x88a8 => rest = behind.get(2..)?,
            _ => return None,
        }
    }
}
