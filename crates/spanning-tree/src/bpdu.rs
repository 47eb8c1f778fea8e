//! BPDUs in Ethernet frames with an LLC header (IEEE 802.1D-2004 clause 9).
//!
//! Invariants: [`Bpdu::parse`] accepts any bytes without a panic; a BPDU that it returns survives writing and parsing.

use crate::id::{BridgeId, PortId, Times, Vector};
use crate::status::Role;
use base::MacAddr;

/// The address that BPDUs are sent to (IEEE 802.1D-2004 table 7-10).
pub const BRIDGE_GROUP: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0x00, 0x00, 0x00]);
/// DSAP, SSAP and control of BPDUs (IEEE 802.1D-2004 7.12.3).
const LLC: [u8; 3] = [0x42, 0x42, 0x03];
/// The greatest value of the length field of an IEEE 802.3 frame.
const LENGTH_MAX: usize = 1500;

const TYPE_CONFIG: u8 = 0x00;
const TYPE_RAPID: u8 = 0x02;
const TYPE_TOPOLOGY_CHANGE: u8 = 0x80;

const CONFIG_LEN: usize = 35;
const RAPID_LEN: usize = 36;
const TOPOLOGY_CHANGE_LEN: usize = 4;

/// The flags of a BPDU (IEEE 802.1D-2004 9.3.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// Topology change.
    pub const TOPOLOGY_CHANGE: Self = Self(0x01);
    /// Proposal.
    pub const PROPOSAL: Self = Self(0x02);
    /// Learning.
    pub const LEARNING: Self = Self(0x10);
    /// Forwarding.
    pub const FORWARDING: Self = Self(0x20);
    /// Agreement.
    pub const AGREEMENT: Self = Self(0x40);
    /// Topology change acknowledgment.
    pub const ACKNOWLEDGMENT: Self = Self(0x80);
    /// The flags of a configuration BPDU.
    const OF_CONFIG: u8 = 0x81;

    /// Returns true if all flags of `other` are set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags, with those of `other` if `is_set`.
    #[must_use]
    pub fn with(self, other: Self, is_set: bool) -> Self {
        if is_set { Self(self.0 | other.0) } else { self }
    }

    /// The flags with the role of the sending port.
    #[must_use]
    pub fn with_role(self, role: Role) -> Self {
        let bits = match role {
            Role::Alternate | Role::Backup => 1,
            Role::Root => 2,
            Role::Designated => 3,
            Role::Disabled => 0,
        };
        Self(self.0 & !0x0c | bits << 2)
    }

    /// The role of the sending port; `Disabled` if it is unknown. A sender does not distinguish alternate and backup ports.
    pub fn role(self) -> Role {
        match self.0 >> 2 & 3 {
            1 => Role::Alternate,
            2 => Role::Root,
            3 => Role::Designated,
            _ => Role::Disabled,
        }
    }
}

/// The contents of a configuration or RST BPDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Config {
    /// Flags; of a configuration BPDU only the topology change flag and its acknowledgment.
    pub flags: Flags,
    /// The priority vector of the sending port.
    pub vector: Vector,
    /// Timer values.
    pub times: Times,
}

/// A BPDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bpdu {
    /// Configuration BPDU (9.3.1).
    Config(Config),
    /// Topology change notification BPDU (9.3.2).
    TopologyChange,
    /// Rapid spanning tree BPDU (9.3.3).
    Rapid(Config),
}

/// Why a frame is no valid BPDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// The frame has another destination, or no LLC header of BPDUs.
    #[error("not a BPDU")]
    NotBpdu,
    /// The protocol identifier is not 0.
    #[error("BPDU of protocol {0:#06x}")]
    Protocol(u16),
    /// The BPDU is shorter than its type requires.
    #[error("BPDU is cut off")]
    Truncated,
    /// The type is unknown, or does not go with the version.
    #[error("BPDU of unexpected type {0}")]
    Type(u8),
    /// A configuration BPDU is as old as its maximum age, or older.
    #[error("BPDU has expired")]
    Expired,
}

impl Bpdu {
    /// Parses the frame of a BPDU, and validates it (IEEE 802.1D-2004 9.3.4).
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        let (header, behind) = frame.split_at_checked(14).ok_or(Malformed::NotBpdu)?;
        let length = usize::from(u16::from_be_bytes([header[12], header[13]]));
        if header[..6] != BRIDGE_GROUP.0 || length > LENGTH_MAX {
            return Err(Malformed::NotBpdu);
        }
        let payload = behind.get(..length).ok_or(Malformed::Truncated)?;
        let bpdu = payload.strip_prefix(&LLC).ok_or(Malformed::NotBpdu)?;
        let &[p0, p1, version, kind, ..] = bpdu else { return Err(Malformed::Truncated) };
        if (p0, p1) != (0, 0) {
            return Err(Malformed::Protocol(u16::from_be_bytes([p0, p1])));
        }
        match kind {
            TYPE_TOPOLOGY_CHANGE => Ok(Self::TopologyChange),
            TYPE_CONFIG => {
                let mut config = Config::parse(bpdu.first_chunk().ok_or(Malformed::Truncated)?);
                config.flags.0 &= Flags::OF_CONFIG;
                if config.times.message_age >= config.times.max_age {
                    return Err(Malformed::Expired);
                }
                Ok(Self::Config(config))
            }
            TYPE_RAPID if version >= 2 => {
                let bytes: &[u8; RAPID_LEN] = bpdu.first_chunk().ok_or(Malformed::Truncated)?;
                let (config, _) = bytes.split_first_chunk().ok_or(Malformed::Truncated)?;
                Ok(Self::Rapid(Config::parse(config)))
            }
            _ => Err(Malformed::Type(kind)),
        }
    }

    /// The frame, without padding and frame check sequence.
    pub fn write(&self, source: MacAddr) -> Vec<u8> {
        let (version, kind, length) = match self {
            Self::Config(_) => (0, TYPE_CONFIG, CONFIG_LEN),
            Self::TopologyChange => (0, TYPE_TOPOLOGY_CHANGE, TOPOLOGY_CHANGE_LEN),
            Self::Rapid(_) => (2, TYPE_RAPID, RAPID_LEN),
        };
        let mut out = [&BRIDGE_GROUP.0[..], &source.0].concat();
        out.extend(((LLC.len() + length) as u16).to_be_bytes());
        out.extend(LLC);
        out.extend([0, 0, version, kind]);
        if let Self::Config(config) | Self::Rapid(config) = self {
            config.write(&mut out);
        }
        if let Self::Rapid(_) = self {
            // Version 1 length.
            out.push(0);
        }
        out
    }
}

impl Config {
    fn parse(bytes: &[u8; CONFIG_LEN]) -> Self {
        let two = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let eight = |at: usize| BridgeId::from_bytes(std::array::from_fn(|n| bytes[at + n]));
        Self {
            flags: Flags(bytes[4]),
            vector: Vector {
                root: eight(5),
                cost: u32::from(two(13)) << 16 | u32::from(two(15)),
                bridge: eight(17),
                port: PortId(two(25)),
            },
            times: Times { message_age: two(27), max_age: two(29), hello_time: two(31), forward_delay: two(33) },
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let Vector { root, cost, bridge, port } = self.vector;
        out.push(self.flags.0);
        out.extend(root.to_bytes());
        out.extend(cost.to_be_bytes());
        out.extend(bridge.to_bytes());
        let Times { message_age, max_age, hello_time, forward_delay } = self.times;
        for field in [port.0, message_age, max_age, hello_time, forward_delay] {
            out.extend(field.to_be_bytes());
        }
    }
}
