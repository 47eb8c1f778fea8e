//! Ports: descriptions, status, modification and statistics (OpenFlow 1.0 section 5.2.1; 1.3 and 1.4 sections 7.2.1,
//! 7.3.4.3, 7.3.5.6, 7.4.3).

mod stats;

pub use stats::{PortStats, Rfc2819};

use crate::OfpError;
use crate::Version::{self, V10, V14};
use crate::nxm::Unknown;
use crate::property;
use crate::wire::{Reader, Result, Writer};
use base::{MacAddr, PortNo};

/// Bits of a port's configuration, the same in all versions that have them.
pub mod config {
    /// Administratively down.
    pub const PORT_DOWN: u32 = 1 << 0;
    /// No spanning tree (OpenFlow 1.0).
    pub const NO_STP: u32 = 1 << 1;
    /// Drop received packets.
    pub const NO_RECV: u32 = 1 << 2;
    /// Drop received 802.1D packets (OpenFlow 1.0).
    pub const NO_RECV_STP: u32 = 1 << 3;
    /// Exclude from flooding (OpenFlow 1.0).
    pub const NO_FLOOD: u32 = 1 << 4;
    /// Drop packets to send.
    pub const NO_FWD: u32 = 1 << 5;
    /// Send no packet-ins for received packets.
    pub const NO_PACKET_IN: u32 = 1 << 6;
}

/// Bits of a port's state.
pub mod state {
    /// No link.
    pub const LINK_DOWN: u32 = 1 << 0;
    /// Blocked by a protocol such as spanning tree (OpenFlow 1.1).
    pub const BLOCKED: u32 = 1 << 1;
    /// Usable in fast failover (OpenFlow 1.1).
    pub const LIVE: u32 = 1 << 2;
    /// Spanning tree: learning (OpenFlow 1.0; the state takes two bits, and zeros mean listening).
    pub const STP_LEARN: u32 = 1 << 8;
    /// Spanning tree: forwarding.
    pub const STP_FORWARD: u32 = 2 << 8;
    /// Spanning tree: not part of the tree.
    pub const STP_BLOCK: u32 = 3 << 8;
    /// The bits of the spanning tree state.
    pub const STP_MASK: u32 = 3 << 8;
}

/// Link modes, in the numbering of OpenFlow 1.1.
pub mod features {
    /// Speeds in bits per second, by the number of the bit; half duplex first for the slow ones.
    pub const SPEEDS: [(u32, u64); 10] = [
        (0, 10_000_000),
        (1, 10_000_000),
        (2, 100_000_000),
        (3, 100_000_000),
        (4, 1_000_000_000),
        (5, 1_000_000_000),
        (6, 10_000_000_000),
        (7, 40_000_000_000),
        (8, 100_000_000_000),
        (9, 1_000_000_000_000),
    ];
    /// Another rate.
    pub const OTHER: u32 = 1 << 10;
    /// Copper.
    pub const COPPER: u32 = 1 << 11;
    /// Fiber.
    pub const FIBER: u32 = 1 << 12;
    /// Auto-negotiation.
    pub const AUTONEG: u32 = 1 << 13;
    /// Pause.
    pub const PAUSE: u32 = 1 << 14;
    /// Asymmetric pause.
    pub const PAUSE_ASYM: u32 = 1 << 15;

    /// Returns the fastest of the modes, in bits per second, or `default` if there is none.
    pub fn bps(modes: u32, default: u64) -> u64 {
        SPEEDS.iter().rev().find(|(bit, _)| modes & 1 << bit != 0).map_or(default, |(_, bps)| *bps)
    }

    /// Converts from OpenFlow 1.0, which lacks the rates above 10 Gb/s.
    pub(crate) fn from_of10(modes: u32) -> u32 {
        modes & 0x7f | (modes & 0xf80) << 4
    }

    /// Converts to OpenFlow 1.0, leaving out modes that it lacks.
    pub(crate) fn to_of10(modes: u32) -> u32 {
        modes & 0x7f | modes >> 4 & 0xf80
    }
}

const CONFIG10: u32 = 0x7f;
const CONFIG11: u32 = config::PORT_DOWN | config::NO_RECV | config::NO_FWD | config::NO_PACKET_IN;
const STATE10: u32 = state::LINK_DOWN | state::STP_MASK;
const STATE11: u32 = state::LINK_DOWN | state::BLOCKED | state::LIVE;

fn known_state(version: Version) -> u32 {
    if version == V10 { STATE10 } else { STATE11 }
}

fn known_config(version: Version) -> u32 {
    if version == V10 { CONFIG10 } else { CONFIG11 }
}

/// A port's description.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PortDesc {
    /// Number.
    pub port_no: PortNo,
    /// Ethernet address.
    pub hw_addr: MacAddr,
    /// Name; at most 15 bytes are sent.
    pub name: String,
    /// Bits of [`config`].
    pub config: u32,
    /// Bits of [`state`].
    pub state: u32,
    /// Current link modes, bits of [`features`].
    pub curr: u32,
    /// Advertised modes.
    pub advertised: u32,
    /// Supported modes.
    pub supported: u32,
    /// Modes that the link partner advertises.
    pub peer: u32,
    /// Current speed in kb/s. (OpenFlow 1.0 has only the mode in `curr`.)
    pub curr_speed: u32,
    /// Highest speed in kb/s.
    pub max_speed: u32,
}

/// The property of Ethernet ports (`OFPPDPT_ETHERNET`, `OFPPMPT_ETHERNET`).
const ETHERNET: u16 = 0;
/// Bytes of a port from OpenFlow 1.4 on, without properties.
const LEN14: usize = 40;

impl PortDesc {
    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        if version >= V14 {
            return Self::decode14(r);
        }
        let v10 = version == V10;
        let mut port = Self { port_no: read_port(version, r)?, ..Self::default() };
        r.skip(if v10 { 0 } else { 4 })?;
        port.hw_addr = r.mac()?;
        r.skip(if v10 { 0 } else { 2 })?;
        port.read_name_and_state(version, r)?;
        if v10 {
            for modes in port.modes() {
                *modes = features::from_of10(r.u32()?);
            }
            let kbps = |modes| u32::try_from(features::bps(modes, 0) / 1000).unwrap_or(u32::MAX);
            (port.curr_speed, port.max_speed) = (kbps(port.curr), kbps(port.supported));
        } else {
            port.read_ethernet(r)?;
        }
        Ok(port)
    }

    /// Reads a port from OpenFlow 1.4 on, which has a length and a property for Ethernet (section 7.2.1).
    fn decode14(r: &mut Reader<'_>) -> Result<Self> {
        let mut head = r.clone();
        head.skip(4)?;
        let len = usize::from(head.u16()?);
        let mut r = r.sub(Some(len).filter(|len| *len >= LEN14).ok_or(OfpError::BrcBadLen)?)?;
        // The length is checked before the number.
        let mut port = Self { port_no: r.port11()?, ..Self::default() };
        r.skip(4)?;
        port.hw_addr = r.mac()?;
        r.skip(2)?;
        port.read_name_and_state(V14, &mut r)?;
        property::each(&mut r, |p| match p.ty {
            ETHERNET => p.read(|r| {
                r.skip(4)?;
                port.read_ethernet(r)?;
                r.finish()
            }),
            _ => p.unknown(Unknown::Skip),
        })?;
        Ok(port)
    }

    fn read_name_and_state(&mut self, version: Version, r: &mut Reader<'_>) -> Result<()> {
        self.name = r.string(16)?;
        self.config = r.u32()? & known_config(version);
        self.state = r.u32()? & known_state(version);
        Ok(())
    }

    fn modes(&mut self) -> [&mut u32; 4] {
        [&mut self.curr, &mut self.advertised, &mut self.supported, &mut self.peer]
    }

    fn read_ethernet(&mut self, r: &mut Reader<'_>) -> Result<()> {
        for modes in self.modes() {
            *modes = r.u32()? & 0xffff;
        }
        (self.curr_speed, self.max_speed) = (r.u32()?, r.u32()?);
        Ok(())
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        let start = out.len();
        put_port(out, version, self.port_no);
        out.zeros(if version == V10 { 0 } else { 4 });
        out.put(&self.hw_addr.0);
        out.zeros(if version == V10 { 0 } else { 2 });
        out.put_str(&self.name, 16);
        out.put_u32(self.config & known_config(version));
        out.put_u32(self.state & known_state(version));
        if version == V10 {
            for modes in [self.curr, self.advertised, self.supported, self.peer] {
                out.put_u32(features::to_of10(modes));
            }
        } else if version < V14 {
            self.put_ethernet(out);
        } else {
            property::put(out, ETHERNET, |out| {
                out.zeros(4);
                self.put_ethernet(out);
            });
            out.set_len16(start + 4, start);
        }
    }

    fn put_ethernet(&self, out: &mut Writer) {
        for n in [self.curr, self.advertised, self.supported, self.peer, self.curr_speed, self.max_speed] {
            out.put_u32(n);
        }
    }
}

pub(crate) fn put_port(out: &mut Writer, version: Version, port: PortNo) {
    if version == V10 {
        out.put_u16(port.to_of10());
    } else {
        out.put_u32(port.0);
    }
}

pub(crate) fn read_port(version: Version, r: &mut Reader<'_>) -> Result<PortNo> {
    if version == V10 { r.port10() } else { r.port11() }
}

/// A change of a port (`ofp_port_reason`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PortReason {
    /// The port was added.
    Add = 0,
    /// The port was removed.
    Delete = 1,
    /// The port's attributes changed.
    Modify = 2,
}

/// A port was added, removed or changed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortStatus {
    /// The change.
    pub reason: PortReason,
    /// The port's description, after the change or before its removal.
    pub desc: PortDesc,
}

impl PortStatus {
    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        let reason = match r.u8()? {
            0 => PortReason::Add,
            1 => PortReason::Delete,
            2 => PortReason::Modify,
            _ => return Err(OfpError::NxbrcBadReason),
        };
        r.skip(7)?;
        let desc = PortDesc::decode(version, r)?;
        // No known field follows.
        r.rest();
        Ok(Self { reason, desc })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        out.put_u8(self.reason as u8);
        out.zeros(7);
        self.desc.encode(version, out);
    }
}

/// A request to change a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortMod {
    /// The port.
    pub port_no: PortNo,
    /// The port's Ethernet address, as a safeguard.
    pub hw_addr: MacAddr,
    /// New values of the bits in `mask`.
    pub config: u32,
    /// Bits of [`config`] to change.
    pub mask: u32,
    /// Modes to advertise, 0 to leave them as they are.
    pub advertise: u32,
}

impl PortMod {
    /// `unknown`: the treatment of unknown properties.
    pub(crate) fn decode(version: Version, unknown: Unknown, r: &mut Reader<'_>) -> Result<Self> {
        let v10 = version == V10;
        let port_no = read_port(version, r)?;
        r.skip(if v10 { 0 } else { 4 })?;
        let hw_addr = r.mac()?;
        r.skip(if v10 { 0 } else { 2 })?;
        let (config, mask) = (r.u32()?, r.u32()? & known_config(version));
        let config = config & mask;
        let advertise = match version {
            V10 => features::from_of10(r.u32()?),
            _ if version < V14 => r.u32()? & 0xffff,
            _ => Self::read_advertise(unknown, r)?,
        };
        r.skip(if version < V14 { 4 } else { 0 })?;
        Ok(Self { port_no, hw_addr, config, mask, advertise })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        let v10 = version == V10;
        put_port(out, version, self.port_no);
        out.zeros(if v10 { 0 } else { 4 });
        out.put(&self.hw_addr.0);
        out.zeros(if v10 { 0 } else { 2 });
        out.put_u32(self.config & known_config(version));
        out.put_u32(self.mask & known_config(version));
        match version {
            V10 => out.put_u32(features::to_of10(self.advertise)),
            _ if version < V14 => out.put_u32(self.advertise),
            _ if self.advertise != 0 => property::put_u32(out, ETHERNET, self.advertise),
            _ => {}
        }
        out.zeros(if version < V14 { 4 } else { 0 });
    }

    /// Reads the modes to advertise, which are a property from OpenFlow 1.4 on (section 7.3.4.3).
    fn read_advertise(unknown: Unknown, r: &mut Reader<'_>) -> Result<u32> {
        let mut advertise = 0;
        property::each(r, |p| {
            match p.ty {
                ETHERNET => advertise = p.u32()? & 0xffff,
                _ => p.unknown(unknown)?,
            }
            Ok(())
        })?;
        Ok(advertise)
    }
}

/// Reads a duration: all ones in both words if it is unknown.
pub(crate) fn read_duration(r: &mut Reader<'_>) -> Result<Option<(u32, u32)>> {
    let d = (r.u32()?, r.u32()?);
    Ok((d != (u32::MAX, u32::MAX)).then_some(d))
}

pub(crate) fn put_duration(out: &mut Writer, duration: Option<(u32, u32)>) {
    let (sec, nsec) = duration.unwrap_or((u32::MAX, u32::MAX));
    out.put_u32(sec);
    out.put_u32(nsec);
}
