//! Templates (RFC 7011 section 3.4): the information elements of each type of record, in order.
//!
//! The id of a template encodes the type: Ethernet header, network and transport protocol, whether the packet was in a
//! tunnel, and whether the egress port is known.

/// The first template id (RFC 7011 section 3.4.1).
const ID_MIN: u16 = 256;
/// The options template's number.
pub const EXPORTER_STATS: u16 = 462;
/// The enterprise (VMware) whose elements describe tunnels and virtual observation points.
pub const ENTERPRISE: u32 = 6876;
/// The length of an element of variable length (RFC 7011 section 7).
pub const VARIABLE: u16 = u16::MAX;
/// The bit of an element's id that marks a following enterprise number.
const ENTERPRISE_BIT: u16 = 0x8000;
/// Set ids (RFC 7011 section 3.3.2).
pub(crate) const SET_TEMPLATES: u16 = 2;
pub(crate) const SET_OPTIONS: u16 = 3;

/// The Ethernet header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum L2 {
    /// Without a VLAN tag.
    Plain,
    /// With one.
    Vlan,
}

/// The network protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum L3 {
    /// No known network protocol.
    Other,
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// The transport protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum L4 {
    /// No known transport protocol.
    Other,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
    /// ICMP, or ICMPv6 over IPv6.
    Icmp,
}

/// The type of records that a template describes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Shape {
    /// The Ethernet header.
    pub l2: L2,
    /// The network protocol.
    pub l3: L3,
    /// The transport protocol; [`L4::Other`] without a network protocol.
    pub l4: L4,
    /// Whether the packet was in a tunnel.
    pub tunnel: bool,
    /// Whether records contain the egress port.
    pub egress: bool,
}

/// An information element (RFC 7012, IANA's registry) and its length in records in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Element {
    /// Its id, in the registry or within the enterprise.
    pub id: u16,
    /// Its length, or [`VARIABLE`].
    pub len: u16,
    /// Whether it belongs to the enterprise.
    pub enterprise: bool,
}

const fn iana(id: u16, len: u16) -> Element {
    Element { id, len, enterprise: false }
}

const fn own(id: u16, len: u16) -> Element {
    Element { id, len, enterprise: true }
}

/// Observation point, direction, Ethernet addresses, type and header length; index, type, name and description of the
/// ingress port.
const COMMON: &[Element] = &[
    iana(138, 4),
    iana(61, 1),
    iana(56, 6),
    iana(80, 6),
    iana(256, 2),
    iana(240, 1),
    iana(10, 4),
    iana(368, 4),
    iana(82, VARIABLE),
    iana(83, VARIABLE),
];
/// Index, type, name and description of the egress port.
const EGRESS: &[Element] = &[iana(14, 4), iana(369, 4), iana(82, VARIABLE), iana(83, VARIABLE)];
/// VLAN id, twice, and priority.
const VLAN: &[Element] = &[iana(58, 2), iana(243, 2), iana(244, 1)];
/// IP version, time to live, protocol, DSCP, precedence, class of service.
const IP: &[Element] = &[iana(60, 1), iana(192, 1), iana(4, 1), iana(195, 1), iana(196, 1), iana(5, 1)];
/// Addresses.
const IPV4: &[Element] = &[iana(8, 4), iana(12, 4)];
/// Addresses and flow label.
const IPV6: &[Element] = &[iana(27, 16), iana(28, 16), iana(31, 4)];
const PORTS: &[Element] = &[iana(7, 2), iana(11, 2)];
/// Type and code.
const ICMPV4: &[Element] = &[iana(176, 1), iana(177, 1)];
const ICMPV6: &[Element] = &[iana(178, 1), iana(179, 1)];
/// Addresses, protocol and ports of the outer headers; kind and key of the tunnel.
const TUNNEL: &[Element] =
    &[own(893, 4), own(894, 4), own(895, 1), own(896, 2), own(897, 2), own(891, 1), own(892, VARIABLE)];
const VIRTUAL_OBS_ID: &[Element] = &[own(898, VARIABLE)];
/// Start and end relative to the export; dropped packets and packets, of the flow and total; ingress unicast, multicast
/// and broadcast, egress unicast and broadcast; multicast sent, of the flow and total; frame bytes, of the flow and
/// total; reason of the flow's end.
const COUNTS: &[Element] = &[
    iana(158, 4),
    iana(159, 4),
    iana(133, 8),
    iana(135, 8),
    iana(2, 8),
    iana(86, 8),
    iana(354, 8),
    iana(355, 8),
    iana(356, 8),
    iana(357, 8),
    iana(358, 8),
    iana(19, 8),
    iana(174, 8),
    iana(352, 8),
    iana(353, 8),
    iana(136, 1),
];
/// IP bytes: dropped, all, sums of squares, each of the flow and total; minimum and maximum; multicast.
const IP_COUNTS: &[Element] = &[
    iana(132, 8),
    iana(134, 8),
    iana(1, 8),
    iana(85, 8),
    iana(198, 8),
    iana(199, 8),
    iana(25, 8),
    iana(26, 8),
    iana(20, 8),
    iana(175, 8),
];
/// Total packets with ACK, FIN, PSH, RST, SYN, URG.
const TCP_COUNTS: &[Element] = &[iana(222, 8), iana(219, 8), iana(221, 8), iana(220, 8), iana(218, 8), iana(223, 8)];

const L3_ALL: [L3; 3] = [L3::Other, L3::Ipv4, L3::Ipv6];
const L4_ALL: [L4; 5] = [L4::Other, L4::Tcp, L4::Udp, L4::Sctp, L4::Icmp];

impl Shape {
    /// All types, by their ids.
    pub fn all() -> impl Iterator<Item = Self> {
        [L2::Plain, L2::Vlan].into_iter().flat_map(|l2| {
            L3_ALL.into_iter().flat_map(move |l3| {
                let l4s = if l3 == L3::Other { &L4_ALL[..1] } else { &L4_ALL[..] };
                l4s.iter().flat_map(move |l4| {
                    [(false, false), (false, true), (true, false), (true, true)].map(|(tunnel, egress)| Self {
                        l2,
                        l3,
                        l4: *l4,
                        tunnel,
                        egress,
                    })
                })
            })
        })
    }

    /// The template's number.
    pub fn id(self) -> u16 {
        let (l2, l3, l4) = (self.l2 as u16, self.l3 as u16, self.l4 as u16);
        ID_MIN + (((l2 * 3 + l3) * 5 + l4) * 2 + u16::from(self.tunnel)) * 2 + u16::from(self.egress)
    }

    /// The elements of the flow key, in order.
    pub(crate) fn key_elements(self, virtual_obs_id: bool) -> impl Iterator<Item = Element> {
        let none: &[Element] = &[];
        let l4 = match (self.l3, self.l4) {
            (L3::Other, _) | (_, L4::Other) => none,
            (L3::Ipv4, L4::Icmp) => ICMPV4,
            (L3::Ipv6, L4::Icmp) => ICMPV6,
            _ => PORTS,
        };
        let (ip, addresses) = match self.l3 {
            L3::Other => (none, none),
            L3::Ipv4 => (IP, IPV4),
            L3::Ipv6 => (IP, IPV6),
        };
        [
            COMMON,
            if self.egress { EGRESS } else { none },
            if self.l2 == L2::Vlan { VLAN } else { none },
            ip,
            addresses,
            l4,
            if self.tunnel { TUNNEL } else { none },
            if virtual_obs_id { VIRTUAL_OBS_ID } else { none },
        ]
        .into_iter()
        .flatten()
        .copied()
    }

    /// The elements of times and counters, in order.
    fn count_elements(self) -> impl Iterator<Item = Element> {
        let none: &[Element] = &[];
        let ip = if self.l3 == L3::Other { none } else { IP_COUNTS };
        let tcp = if self.l4 == L4::Tcp { TCP_COUNTS } else { none };
        [COUNTS, ip, tcp].into_iter().flatten().copied()
    }

    /// All elements, in order.
    pub fn elements(self, virtual_obs_id: bool) -> impl Iterator<Item = Element> {
        self.key_elements(virtual_obs_id).chain(self.count_elements())
    }

    /// The template record.
    pub(crate) fn record(self, virtual_obs_id: bool) -> Vec<u8> {
        let elements: Vec<Element> = self.elements(virtual_obs_id).collect();
        let mut out = Vec::with_capacity(4 + 8 * elements.len());
        out.extend(self.id().to_be_bytes());
        out.extend((elements.len() as u16).to_be_bytes());
        elements.iter().for_each(|element| element.write(&mut out));
        out
    }
}

impl Element {
    fn write(self, out: &mut Vec<u8>) {
        out.extend((self.id | if self.enterprise { ENTERPRISE_BIT } else { 0 }).to_be_bytes());
        out.extend(self.len.to_be_bytes());
        if self.enterprise {
            out.extend(ENTERPRISE.to_be_bytes());
        }
    }
}

/// The options template record (RFC 7011 section 3.4.2.2): for each exporter, the messages that could not be sent.
pub(crate) fn options_record() -> Vec<u8> {
    let (exporter, not_sent) = (iana(144, 4), iana(167, 8));
    let mut out = Vec::new();
    out.extend(EXPORTER_STATS.to_be_bytes());
    out.extend(2_u16.to_be_bytes());
    // The first element is the scope.
    out.extend(1_u16.to_be_bytes());
    exporter.write(&mut out);
    not_sent.write(&mut out);
    out
}
