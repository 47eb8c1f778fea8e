//! Port numbers: OpenFlow's, in the 32-bit numbering of OpenFlow 1.1 and later, and the datapath's own.

use std::fmt;

/// An OpenFlow port number in the 32-bit numbering of OpenFlow 1.1+ (1.3 section 7.2.1). The switch uses 1 to 0xfeff
/// for real ports, the range of OpenFlow 1.0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct PortNo(pub u32);

/// A port of a bridge, whether or not the datapath has a port of its own for it: tunnels and patch ports are included.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct BridgePort {
    /// The number of the bridge, unique for the life of the process.
    pub bridge: u32,
    /// The port's number in it.
    pub port: PortNo,
}

impl fmt::Display for BridgePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.bridge, self.port)
    }
}

impl PortNo {
    /// No port: the `in_port` of a packet without an ingress port.
    pub const NONE: Self = Self::ANY;
    /// One more than the largest number of a real port (`OFPP_MAX` of OpenFlow 1.0).
    pub const MAX: Self = Self(0xff00);
    /// The action set holds no output (`OFPP_UNSET`, OpenFlow 1.5).
    pub const UNSET: Self = Self(0xffff_fff7);
    /// The ingress port of the packet.
    pub const IN_PORT: Self = Self(0xffff_fff8);
    /// Through the flow tables, from the first.
    pub const TABLE: Self = Self(0xffff_fff9);
    /// As a plain learning switch would.
    pub const NORMAL: Self = Self(0xffff_fffa);
    /// All ports that take part in flooding, except the ingress port.
    pub const FLOOD: Self = Self(0xffff_fffb);
    /// All ports except the ingress port.
    pub const ALL: Self = Self(0xffff_fffc);
    /// To the controllers.
    pub const CONTROLLER: Self = Self(0xffff_fffd);
    /// The bridge's own port.
    pub const LOCAL: Self = Self(0xffff_fffe);
    /// Any port, in requests (`OFPP_ANY`; `OFPP_NONE` of OpenFlow 1.0).
    pub const ANY: Self = Self(0xffff_ffff);

    /// The 16-bit number of OpenFlow 1.0. Numbers that have none become `OFPP_NONE`.
    pub fn to_of10(self) -> u16 {
        if self.0 < 0xff00 || self.0 >= 0xffff_ff00 { self.0 as u16 } else { 0xffff }
    }

    /// From the 16-bit number of OpenFlow 1.0.
    pub fn from_of10(n: u16) -> Self {
        if n < 0xff00 { Self(n.into()) } else { Self(0xffff_0000 | u32::from(n)) }
    }

    /// From a 32-bit number on the wire; `None` for the range 0xff00 to 0xfffffeff, which has no 16-bit counterpart.
    pub fn from_of11(n: u32) -> Option<Self> {
        (!(0xff00..0xffff_ff00).contains(&n)).then_some(Self(n))
    }

    /// Whether this is the number of a real port: 1 to 0xfeff, or LOCAL.
    pub fn is_real(self) -> bool {
        (1..0xff00).contains(&self.0) || self == Self::LOCAL
    }

    /// The reserved name, as `LOCAL`, if it has one.
    pub fn reserved_name(self) -> Option<&'static str> {
        RESERVED.iter().find(|(port, _)| *port == self).map(|(_, name)| *name)
    }

    /// The reserved port of this name, in any case, with or without `OFPP_` in front.
    pub fn from_reserved_name(name: &str) -> Option<Self> {
        let name = name.get(..5).filter(|p| p.eq_ignore_ascii_case("OFPP_")).map_or(name, |_| &name[5..]);
        RESERVED.iter().find(|(_, n)| n.eq_ignore_ascii_case(name)).map(|(port, _)| *port)
    }
}

const RESERVED: [(PortNo, &str); 10] = [
    (PortNo::UNSET, "UNSET"),
    (PortNo::IN_PORT, "IN_PORT"),
    (PortNo::TABLE, "TABLE"),
    (PortNo::NORMAL, "NORMAL"),
    (PortNo::FLOOD, "FLOOD"),
    (PortNo::ALL, "ALL"),
    (PortNo::CONTROLLER, "CONTROLLER"),
    (PortNo::LOCAL, "LOCAL"),
    (PortNo::ANY, "ANY"),
    (PortNo::ANY, "NONE"),
];

impl fmt::Display for PortNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.reserved_name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Debug for PortNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A port's number in the datapath: one numbering for all bridges, assigned by the datapath.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct DpPort(pub u32);

impl DpPort {
    /// No port.
    pub const NONE: Self = Self(u32::MAX);
}

impl fmt::Display for DpPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_numberings() {
        assert_eq!(PortNo::LOCAL.to_of10(), 0xfffe);
        assert_eq!(PortNo::from_of10(0xfffe), PortNo::LOCAL);
        assert_eq!(PortNo::from_of10(7), PortNo(7));
        assert_eq!(PortNo(0x1_0000).to_of10(), 0xffff);
        assert_eq!(PortNo::from_of11(0xff00), None);
        assert_eq!(PortNo::from_reserved_name("ofpp_local"), Some(PortNo::LOCAL));
        assert_eq!(PortNo::from_reserved_name("none"), Some(PortNo::ANY));
        assert_eq!(PortNo(3).to_string(), "3");
    }
}
