//! Tests of all encapsulations: against Open vSwitch, a naive twin, and broken packets.

mod frames;
mod mutations;
mod offload;
mod texts;
mod twin;

use super::bareudp::Payload;
use super::{Context, Pop, PortRange, Template};
use packet::Packet;
use std::sync::atomic::AtomicU32;

/// The bytes of hexadecimal digits.
fn hex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a digit") as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// Every configuration of a port.
const POPS: [Pop; 9] = [
    Pop::Vxlan { group_policy: false },
    Pop::Vxlan { group_policy: true },
    Pop::Geneve,
    Pop::Gre,
    Pop::Erspan,
    Pop::Gtpu,
    Pop::Srv6,
    Pop::Bareudp(Payload::Ip),
    Pop::Bareudp(Payload::Mpls),
];

/// A packet of the given type.
fn packet(bytes: &[u8], l3_type: Option<u16>) -> Packet {
    let mut packet = Packet::from_slice(bytes);
    packet.l3_type = l3_type;
    packet
}

/// Pushes onto a packet of a flow with hash 0.
fn push(template: &Template, packet: &mut Packet) {
    let context = Context { ports: PortRange::default(), sequence: &AtomicU32::new(0), erspan_timestamp: 0 };
    template.push(packet, 0, &context).expect("a packet that fits");
}
