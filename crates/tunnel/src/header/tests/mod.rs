//! Tests of all encapsulations: against Open vSwitch, a naive twin, and broken packets.

mod arbitrary;
mod frames;
mod known;
mod mutations;
mod offload;
mod texts;
mod twin;
mod whole;

use super::bareudp::Payload;
use super::push::{Encapsulation, Push};
use super::{Context, Pop, PortRange, Refused, Template};
use packet::Packet;
use std::sync::atomic::AtomicU32;

/// The bytes of hexadecimal digits.
fn hex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a digit") as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// How a port that pushes these headers pops them.
fn pop_of(push: &Push) -> Pop {
    match &push.tunnel {
        Encapsulation::Vxlan(..) => Pop::Vxlan { group_policy: true },
        Encapsulation::Geneve(..) => Pop::Geneve,
        Encapsulation::Gre(_) => Pop::Gre,
        Encapsulation::Erspan(_) => Pop::Erspan,
        Encapsulation::Gtpu(..) => Pop::Gtpu,
        Encapsulation::Srv6(_) => Pop::Srv6,
        Encapsulation::Bareudp(_) => Pop::Bareudp(Payload::Ip),
    }
}

/// A packet of the given type.
fn packet(bytes: &[u8], l3_type: Option<u16>) -> Packet {
    let mut packet = Packet::from_slice(bytes);
    packet.l3_type = l3_type;
    packet
}

/// Pushes onto a packet of a flow with hash 0.
fn push(headers: &Push, packet: &mut Packet) -> Result<(), Refused> {
    let template = Template::new(headers.clone()).expect("valid headers");
    let zero = AtomicU32::new(0);
    let context = Context { ports: PortRange::default(), sequence: &zero, identification: &zero, erspan_timestamp: 0 };
    template.push(packet, 0, &context)
}
