//! Flows, their traffic, and the records that describe them.

use base::Millis;
use std::net::Ipv4Addr;

/// Bytes of a record.
pub const BYTES: usize = 48;
/// Bits of a port's number that remain if the engine's id is part of it.
const PORT_BITS: u32 = 9;

/// A flow of IPv4 packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Flow {
    /// OpenFlow port that it comes from.
    pub input: u16,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// IP protocol.
    pub protocol: u8,
    /// Type of service, without the two bits of ECN.
    pub tos: u8,
    /// Source port, 0 without one.
    pub src_port: u16,
    /// Destination port; for ICMP type * 256 + code; 0 without one.
    pub dst_port: u16,
}

/// The destination of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Output {
    /// One OpenFlow port.
    Port(u16),
    /// All ports of a VLAN.
    Flood,
    /// Several ports.
    Several,
    /// No port.
    Dropped,
}

impl Output {
    /// The number of the output interface.
    pub fn number(self) -> u16 {
        match self {
            Self::Port(port) => port,
            Self::Flood => u16::MAX,
            Self::Several => u16::MAX - 1,
            Self::Dropped => u16::MAX - 2,
        }
    }
}

/// Counted packets of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Traffic {
    /// Packets.
    pub packets: u64,
    /// Bytes of their frames.
    pub bytes: u64,
    /// Flags of TCP, combined with OR.
    pub tcp_flags: u8,
    /// Time of the first packet, or the last one before which it came.
    pub first: Millis,
    /// Time of the last packet.
    pub last: Millis,
}

impl Traffic {
    /// Adds later packets.
    pub(crate) fn add(&mut self, other: &Self) {
        self.packets = self.packets.saturating_add(other.packets);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.tcp_flags |= other.tcp_flags;
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
    }

    /// Parts whose counters fit into records.
    pub(crate) fn parts(self) -> impl Iterator<Item = (u32, u32)> {
        let n = self.packets.max(self.bytes).div_ceil(u64::from(u32::MAX)).max(1);
        // The first parts take what is left over by the division.
        let part = move |total: u64, i: u64| (total / n + u64::from(i < total % n)) as u32;
        (0..n).map(move |i| (part(self.packets, i), part(self.bytes, i)))
    }
}

/// How records state interfaces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Interfaces {
    /// By the number of the OpenFlow port.
    Ports,
    /// With the lower seven bits of this engine id as the upper bits.
    Engine(u8),
}

impl Interfaces {
    fn number(self, port: u16) -> u16 {
        match self {
            Self::Ports => port,
            Self::Engine(id) => u16::from(id & 0x7f) << PORT_BITS | port & ((1 << PORT_BITS) - 1),
        }
    }
}

/// Appends a record with these counters. `started` is the time that uptimes are relative to.
pub(crate) fn write(
    flow: &Flow,
    output: Output,
    traffic: &Traffic,
    (packets, bytes): (u32, u32),
    (interfaces, started): (Interfaces, Millis),
    out: &mut Vec<u8>,
) {
    let uptime = |at: Millis| (at.since(started) as u32).to_be_bytes();
    out.extend(flow.src.octets());
    out.extend(flow.dst.octets());
    // The next hop.
    out.extend([0; 4]);
    out.extend(interfaces.number(flow.input).to_be_bytes());
    out.extend(interfaces.number(output.number()).to_be_bytes());
    out.extend(packets.to_be_bytes());
    out.extend(bytes.to_be_bytes());
    out.extend(uptime(traffic.first));
    out.extend(uptime(traffic.last));
    out.extend(flow.src_port.to_be_bytes());
    out.extend(flow.dst_port.to_be_bytes());
    out.extend([0, traffic.tcp_flags, flow.protocol, flow.tos]);
    // Autonomous systems and masks of source and destination, padding.
    out.extend([0; 8]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_may_contain_the_engine() {
        assert_eq!(Interfaces::Ports.number(65533), 65533);
        assert_eq!(Interfaces::Engine(130).number(1), 1025);
        assert_eq!(Interfaces::Engine(130).number(Output::Dropped.number()), 1533);
        assert_eq!(Interfaces::Engine(255).number(Output::Flood.number()), 65535);
    }

    #[test]
    fn large_counters_are_split() {
        let parts = |packets, bytes| {
            let traffic = Traffic { packets, bytes, tcp_flags: 0, first: Millis(0), last: Millis(0) };
            traffic.parts().collect::<Vec<_>>()
        };
        let max = u64::from(u32::MAX);
        assert_eq!(parts(2, 100), [(2, 100)]);
        assert_eq!(parts(1, max), [(1, u32::MAX)]);
        assert_eq!(parts(3, max + 1), [(2, 1 << 31), (1, 1 << 31)]);
        let many = parts(max * 5, max * 300 + 7);
        assert_eq!(many.len(), 301);
        let (packets, bytes) = many.iter().fold((0, 0), |(p, b), (q, c)| (p + u64::from(*q), b + u64::from(*c)));
        assert_eq!((packets, bytes), (max * 5, max * 300 + 7));
    }
}
