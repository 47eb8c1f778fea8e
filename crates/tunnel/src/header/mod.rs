//! Headers of all tunnel types: removed from received packets, and pushed onto packets that a tunnel sends.
//!
//! - [`pop`]: [`Pop`], how packets of a port are decapsulated; [`parse`], which only reads bytes; [`Pop::pop`], which
//!   changes a packet.
//! - [`push`]: [`Push`], the outer headers of a flow as values.
//! - [`template`]: [`Template`], the bytes of a [`Push`] and the fields that each packet sets in them.
//! - [`text`]: both as text of datapath actions, in the format of Open vSwitch.
//! - One file for each encapsulation: its fields, its bytes, and how it is read.
//!
//! Invariants: no input panics; a parsed packet's inner range lies in the frame.

pub mod bareudp;
pub mod erspan;
pub mod geneve;
pub mod gre;
pub mod gtpu;
pub mod malformed;
mod outer;
pub mod pop;
pub mod push;
pub mod srv6;
pub mod template;
pub mod text;
pub mod vxlan;

pub use malformed::Malformed;
pub use outer::Addresses;
pub use pop::{Cache, Inner, Parsed, Pop, is_erspan, parse};
pub use push::{Encapsulation, Invalid, OuterIp, Push, Udp};
pub use template::{Context, Dropped, PortRange, Refused, Template};

pub(crate) const ETH_IPV4: u16 = 0x0800;
pub(crate) const ETH_IPV6: u16 = 0x86dd;
pub(crate) const ETH_MPLS: u16 = 0x8847;
pub(crate) const ETH_MPLS_MULTICAST: u16 = 0x8848;
pub(crate) const ETH_TRANSPARENT: u16 = 0x6558;
pub(crate) const ETH_NSH: u16 = 0x894f;
pub(crate) const PROTO_IPIP: u8 = 4;
pub(crate) const PROTO_UDP: u8 = 17;
pub(crate) const PROTO_IPV6: u8 = 41;
pub(crate) const PROTO_ROUTING: u8 = 43;
pub(crate) const PROTO_GRE: u8 = 47;

/// The Ethernet type of an IP packet, by the version in its first byte.
pub(crate) fn ip_type(packet: &[u8]) -> Option<u16> {
    match packet.first()? >> 4 {
        4 => Some(ETH_IPV4),
        6 => Some(ETH_IPV6),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
