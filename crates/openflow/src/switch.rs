//! Small messages between a switch and its controllers: HELLO, features, configuration and error reports (OpenFlow 1.3
//! sections 7.5.1, 7.3.1, 7.3.2, 7.5.4).

use crate::Version::{self, V10, V13};
pub use crate::asynchronous::AsyncConfig;
pub use crate::role::{Role, RoleMsg};

use crate::error::{ErrorNumber, OfpError};
use crate::multipart::list;
use crate::port::PortDesc;
use crate::versions::Versions;
use crate::wire::{Reader, Result, Writer};

/// The versions that the sender supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The set.
    pub versions: Versions,
}

const VERSION_BITMAP: u16 = 1;

impl Hello {
    pub(crate) fn decode(header_version: u8, r: &mut Reader<'_>) -> Self {
        Self::elements(header_version, r.rest()).0
    }

    /// Returns true if all elements of a HELLO with this body are well-formed. The decoder skips malformed ones: HELLO must
    /// work between any two versions.
    pub(crate) fn is_understood(body: &[u8]) -> bool {
        Self::elements(1, body).1
    }

    fn elements(header_version: u8, body: &[u8]) -> (Self, bool) {
        let mut r = Reader::new(body);
        let mut hello = Self { versions: Versions::up_to(header_version) };
        let mut understood = true;
        while !r.is_empty() {
            let Some((ty, mut value)) = Self::element(&mut r) else { return (hello, false) };
            // A bitmap consists of whole words. Bit 0 stands for the number 0, which is no version.
            let whole = value.len().is_multiple_of(4);
            match value.u32().map(|bits| Versions(bits & !1)) {
                Ok(versions) if ty == VERSION_BITMAP && whole && versions.0 != 0 => hello.versions = versions,
                _ => understood = false,
            }
        }
        (hello, understood)
    }

    /// Takes an element with its padding off the front of `r`.
    fn element<'a>(r: &mut Reader<'a>) -> Option<(u16, Reader<'a>)> {
        let (ty, len) = (r.u16().ok()?, usize::from(r.u16().ok()?));
        let value = r.sub(len.checked_sub(4)?).ok()?;
        r.skip(len.wrapping_neg() % 8).ok()?;
        Some((ty, value))
    }

    pub(crate) fn encode(self, header_version: Version, out: &mut Writer) {
        // The header suffices if the set has no gaps.
        if self.versions != Versions::up_to(header_version.wire()) {
            let start = out.len();
            out.put_u16(VERSION_BITMAP);
            out.put_u16(0);
            out.put_u32(self.versions.0);
            out.set_len16(start + 2, start);
            out.pad8(start);
        }
    }
}

/// The number of bytes that a report can quote of a message: without the headers of an experimenter error.
const QUOTED_MAX: usize = 65_535 - 20;

/// An error report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ErrorReport {
    /// The error; numbers without a name are kept.
    pub error: ReportedError,
    /// The start of the offending message (for HELLO_FAILED: text).
    pub data: Vec<u8>,
}

/// The error of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReportedError {
    /// A known error.
    Known(OfpError),
    /// An unknown error, by its number.
    Unknown(ErrorNumber),
}

impl ErrorReport {
    /// Returns a report of `error` that quotes as much of the offending message as fits, like Open vSwitch.
    pub fn on(error: OfpError, offending: &[u8]) -> Self {
        let quoted = offending.get(..QUOTED_MAX).unwrap_or(offending);
        Self { error: ReportedError::Known(error), data: quoted.to_vec() }
    }

    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        let body = r.rest();
        let (number, used) = ErrorNumber::decode(body).ok_or(OfpError::BrcBadLen)?;
        let error = OfpError::from_number(version, number).map_or(ReportedError::Unknown(number), ReportedError::Known);
        Ok(Self { error, data: body.get(used..).unwrap_or_default().to_vec() })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        let number = match self.error {
            // For an error without a number in this version, Nicira has an error that all versions can carry.
            ReportedError::Known(e) => e.number(version).or(OfpError::NxbrcUnencodableError.number(version)),
            ReportedError::Unknown(number) => Some(number),
        };
        out.put(&number.map(|n| n.encode(version)).unwrap_or_default());
        out.put(&self.data);
    }
}

/// Bits of [`Features::capabilities`], in the numbering of OpenFlow 1.3, with one more for 1.0.
pub mod capability {
    /// Flow statistics.
    pub const FLOW_STATS: u32 = 1 << 0;
    /// Table statistics.
    pub const TABLE_STATS: u32 = 1 << 1;
    /// Port statistics.
    pub const PORT_STATS: u32 = 1 << 2;
    /// Group statistics (OpenFlow 1.1).
    pub const GROUP_STATS: u32 = 1 << 3;
    /// Can reassemble IP fragments.
    pub const IP_REASM: u32 = 1 << 5;
    /// Queue statistics.
    pub const QUEUE_STATS: u32 = 1 << 6;
    /// Matches IP addresses in ARP (OpenFlow 1.0 and 1.1).
    pub const ARP_MATCH_IP: u32 = 1 << 7;
    /// Blocks looping ports itself (OpenFlow 1.2).
    pub const PORT_BLOCKED: u32 = 1 << 8;
    /// Bundles (OpenFlow 1.4).
    pub const BUNDLES: u32 = 1 << 9;
    /// Flow monitoring (OpenFlow 1.4).
    pub const FLOW_MONITORING: u32 = 1 << 10;
    /// 802.1D spanning tree (OpenFlow 1.0, there in the place of GROUP_STATS).
    pub const STP: u32 = 1 << 31;
}

/// The features of a switch.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Features {
    /// Datapath id.
    pub datapath_id: u64,
    /// The number of packets that it buffers for controllers.
    pub n_buffers: u32,
    /// The number of flow tables.
    pub n_tables: u8,
    /// The number of this connection among those of the controller, 0 for the main one (OpenFlow 1.3).
    pub auxiliary_id: u8,
    /// Bits of [`capability`].
    pub capabilities: u32,
    /// A bit for each action type of OpenFlow 1.0 (in that version only).
    pub actions: u32,
    /// The ports (in OpenFlow 1.0 to 1.2; later by port description statistics).
    pub ports: Vec<PortDesc>,
}

impl Features {
    fn known(version: Version) -> u32 {
        use capability as c;
        let base = c::FLOW_STATS | c::TABLE_STATS | c::PORT_STATS | c::IP_REASM | c::QUEUE_STATS;
        match version {
            V10 => base | c::STP | c::ARP_MATCH_IP,
            Version::V11 => base | c::GROUP_STATS | c::ARP_MATCH_IP,
            Version::V12 | V13 => base | c::GROUP_STATS | c::PORT_BLOCKED,
            _ => base | c::GROUP_STATS | c::PORT_BLOCKED | c::BUNDLES | c::FLOW_MONITORING,
        }
    }

    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        let (datapath_id, n_buffers, n_tables, auxiliary_id) = (r.u64()?, r.u32()?, r.u8()?, r.u8()?);
        r.skip(2)?;
        // OpenFlow 1.0 uses the bit of another capability for it.
        let mut caps = r.u32()? & !capability::STP;
        if version == V10 && caps & capability::GROUP_STATS != 0 {
            caps |= capability::STP;
        }
        let actions = r.u32()?;
        let ports = if version < V13 { list(r, |r| PortDesc::decode(version, r))? } else { Vec::new() };
        r.finish()?;
        Ok(Self {
            datapath_id,
            n_buffers,
            n_tables,
            auxiliary_id: if version < V13 { 0 } else { auxiliary_id },
            capabilities: caps & Self::known(version),
            actions: if version == V10 { actions } else { 0 },
            ports,
        })
    }

    /// Appends the reply to the header in `out`.
    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        out.put_u64(self.datapath_id);
        out.put_u32(self.n_buffers);
        out.put_u8(self.n_tables);
        out.put_u8(if version < V13 { 0 } else { self.auxiliary_id });
        out.zeros(2);
        let mut caps = self.capabilities & Self::known(version);
        if caps & capability::STP != 0 {
            caps = caps & !capability::STP | capability::GROUP_STATS;
        }
        out.put_u32(caps);
        out.put_u32(if version == V10 { self.actions } else { 0 });
        if version < V13 {
            // The ports that fit: later versions have their descriptions in a multipart reply for this reason.
            for port in &self.ports {
                let before = out.len();
                port.encode(version, out);
                if u16::try_from(out.len()).is_err() {
                    return out.rewind(before);
                }
            }
        }
    }
}

/// The treatment of IP fragments.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[repr(u8)]
pub enum FragHandling {
    /// Process like other packets, with zero ports.
    #[default]
    Normal = 0,
    /// Drop them.
    Drop = 1,
    /// Reassemble them.
    Reassemble = 2,
    /// Process like other packets, with the ports of first fragments (Nicira's extension).
    NxMatch = 3,
}

/// A switch's configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SwitchConfig {
    /// The treatment of IP fragments.
    pub frag: FragHandling,
    /// Send packets with an expired TTL to the controllers (OpenFlow 1.1 and 1.2, and Open vSwitch in 1.0). `None` in
    /// versions without this flag.
    pub invalid_ttl_to_controller: Option<bool>,
    /// The number of bytes that a packet-in has of a packet that no flow matched.
    pub miss_send_len: u16,
}

const INVALID_TTL: u16 = 1 << 2;

impl SwitchConfig {
    /// Reads a request to set the configuration.
    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        let known = 3 | if version < V13 { INVALID_TTL } else { 0 };
        if r.clone().u16()? & !known != 0 {
            return Err(OfpError::ScfcBadFlags);
        }
        Self::decode_reply(version, r)
    }

    /// Reads the configuration of a reply; skips unknown flags.
    pub(crate) fn decode_reply(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        let (flags, miss_send_len) = (r.u16()?, r.u16()?);
        r.finish()?;
        let frag = match flags & 3 {
            0 => FragHandling::Normal,
            1 => FragHandling::Drop,
            2 => FragHandling::Reassemble,
            _ => FragHandling::NxMatch,
        };
        let invalid_ttl_to_controller = (version < V13).then_some(flags & INVALID_TTL != 0);
        Ok(Self { frag, invalid_ttl_to_controller, miss_send_len })
    }

    pub(crate) fn encode(self, version: Version, out: &mut Writer) {
        let ttl = version < V13 && self.invalid_ttl_to_controller == Some(true);
        out.put_u16(u16::from(self.frag as u8) | if ttl { INVALID_TTL } else { 0 });
        out.put_u16(self.miss_send_len);
    }
}
