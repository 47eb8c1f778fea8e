//! Bits of a tunnel's flags ([`packet::metadata::Tunnel::flags`]). Only [`OAM`] is visible in the field `tun_flags`.

/// A control packet (RFC 8926 section 3.4).
pub const OAM: u16 = 1;
/// The outer IPv4 header forbids fragmentation.
pub const DONT_FRAGMENT: u16 = 2;
/// The outer headers have a checksum, of UDP or GRE.
pub const CHECKSUM: u16 = 4;
/// The tunnel header has a key.
pub const KEY: u16 = 8;
