//! Removes fields from a match whose prerequisites it does not contain.

use crate::extract::{ethertype, ipproto};
use crate::field::{Field, Prereq};
use crate::key::{FlowKey, FlowMask};
use crate::matches::Match;
use crate::text::{PortNames, match_to_string};

/// The Ethernet type of a match, from its Ethernet type or from a packet type of the Ethernet type namespace; 0 if it
/// matches neither.
pub(crate) fn effective_eth_type(key: &FlowKey, mask: &FlowMask) -> u16 {
    let packet_type = key.get(Field::PacketType);
    if mask.get(Field::PacketType) != 0 && packet_type >> 16 == 1 {
        packet_type as u16
    } else if mask.eth_type() == 0xffff {
        key.eth_type()
    } else {
        0
    }
}

/// A match before and after [`Match::normalize`], in text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Normalized {
    /// Before.
    pub pre: String,
    /// After.
    pub post: String,
}

impl Normalized {
    /// The three lines of the log message, in order.
    pub fn lines(&self) -> [String; 3] {
        [
            "normalization changed ofp_match, details:".into(),
            format!(" pre: {}", self.pre),
            format!("post: {}", self.post),
        ]
    }
}

impl Match {
    /// The Ethernet type of the match; 0 if it has none.
    pub fn eth_type(&self) -> u16 {
        effective_eth_type(self.key(), self.mask())
    }

    /// The IP protocol of the match, if it matches IP and a protocol.
    pub fn ip_proto(&self) -> Option<u8> {
        let ip = matches!(self.eth_type(), ethertype::IPV4 | ethertype::IPV6);
        (ip && self.mask().ip_proto() == 0xff).then(|| self.key().ip_proto())
    }

    /// Whether the match contains the prerequisite `prereq`.
    pub fn meets(&self, prereq: Prereq) -> bool {
        let eth_type = self.eth_type();
        let v4 = eth_type == ethertype::IPV4;
        let v6 = eth_type == ethertype::IPV6;
        let is_proto = |proto| self.ip_proto() == Some(proto);
        // Only a match on later fragments excludes ports. Types and codes of ICMP remain, as in Open vSwitch.
        let not_later = || self.key().get(Field::IpFrag) & self.mask().get(Field::IpFrag) & 2 == 0;
        let nd = |kind| {
            is_proto(ipproto::ICMPV6)
                && v6
                && self.is_exactly(Field::Icmpv6Type, kind)
                && matches!(self.get(Field::Icmpv6Code), (0, _))
        };
        let ethernet = || {
            let (packet_type, mask) = self.get(Field::PacketType);
            mask == 0 || packet_type == 0
        };
        match prereq {
            Prereq::None => true,
            Prereq::Ethernet => ethernet(),
            Prereq::Arp => matches!(eth_type, ethertype::ARP | ethertype::RARP),
            Prereq::VlanVid => ethernet() && self.key().vlan_tci() & self.mask().vlan_tci() & 0x1000 != 0,
            Prereq::Ipv4 => v4,
            Prereq::Ipv6 => v6,
            Prereq::Ip => v4 || v6,
            Prereq::Mpls => matches!(eth_type, ethertype::MPLS | ethertype::MPLS_MCAST),
            Prereq::Tcp => is_proto(ipproto::TCP) && not_later(),
            Prereq::Udp => is_proto(ipproto::UDP) && not_later(),
            Prereq::Sctp => is_proto(ipproto::SCTP) && not_later(),
            Prereq::Icmpv4 => v4 && is_proto(ipproto::ICMP),
            Prereq::Icmpv6 => v6 && is_proto(ipproto::ICMPV6),
            Prereq::Nd => nd(135) || nd(136),
            Prereq::NdSolicit => nd(135),
            Prereq::NdAdvert => nd(136),
            Prereq::Nsh => eth_type == ethertype::NSH,
            Prereq::Pbb => eth_type == ethertype::PBB,
            Prereq::Ct => self.key().get(Field::CtState) & self.mask().get(Field::CtState) & 0x20 != 0,
        }
    }

    /// Removes fields that are invalid under the match's Ethernet type and IP protocol, as Open vSwitch does with flows
    /// of users, and limits types and codes of ICMP to the bytes that they have on the wire. Returns the text of the warning
    /// if the match changed.
    pub fn normalize(&mut self, ports: &dyn PortNames) -> Option<Normalized> {
        let mut before = None;
        let proto = (self.eth_type(), self.ip_proto());
        if matches!(proto, (ethertype::IPV4, Some(ipproto::ICMP)) | (ethertype::IPV6, Some(ipproto::ICMPV6))) {
            before = Some(Box::new(self.clone()));
            self.narrow_to_byte(Field::Icmpv4Type);
            self.narrow_to_byte(Field::Icmpv4Code);
        }
        self.remove_meaningless(before, ports)
    }

    /// Removes the same fields from a match of a message, whose types and codes of ICMP stay as wide as they are.
    pub fn keep_meaningful(&mut self, ports: &dyn PortNames) -> Option<Normalized> {
        self.remove_meaningless(None, ports)
    }

    /// Removes the fields. `before`: the match before earlier changes.
    fn remove_meaningless(&mut self, mut before: Option<Box<Self>>, ports: &dyn PortNames) -> Option<Normalized> {
        let eth_type = self.eth_type();
        let (v4, v6) = (eth_type == ethertype::IPV4, eth_type == ethertype::IPV6);
        let arp = matches!(eth_type, ethertype::ARP | ethertype::RARP);
        let mpls = matches!(eth_type, ethertype::MPLS | ethertype::MPLS_MCAST);
        let proto = self.ip_proto();
        let ports_known = matches!(proto, Some(ipproto::TCP | ipproto::UDP | ipproto::SCTP))
            || (v4 && proto == Some(ipproto::ICMP))
            || (v6 && proto == Some(ipproto::ICMPV6));
        let (solicit, advert) = (self.meets(Prereq::NdSolicit), self.meets(Prereq::NdAdvert));
        let ether = self.meets(Prereq::Ethernet);
        self.keep(ether, &[Field::EthSrc, Field::EthDst, Field::EthType, Field::VlanTci], &mut before);
        self.keep(v4 || arp, &[Field::Ipv4Src, Field::Ipv4Dst], &mut before);
        self.keep(ports_known, &[Field::TcpSrc, Field::TcpDst], &mut before);
        self.keep(v4 || v6 || arp, &[Field::IpProto], &mut before);
        self.keep(v4 || v6, &[Field::IpDscp, Field::IpEcn, Field::IpTtl], &mut before);
        self.keep(v6, &[Field::Ipv6Src, Field::Ipv6Dst, Field::Ipv6Label, Field::Ipv6Exthdr], &mut before);
        self.keep(arp || solicit, &[Field::ArpSha], &mut before);
        self.keep(arp || advert, &[Field::ArpTha], &mut before);
        self.keep(solicit || advert, &[Field::NdTarget], &mut before);
        self.keep(mpls, &[Field::MplsLabel, Field::MplsTc, Field::MplsBos, Field::MplsTtl], &mut before);
        self.keep(self.meets(Prereq::Pbb), &[Field::PbbIsid, Field::PbbUca], &mut before);
        let change = before
            .filter(|before| *self != **before)
            .map(|before| Normalized { pre: match_to_string(&before, ports), post: match_to_string(self, ports) });
        // No message names these: the peer leaves them in the match, and no format carries them.
        let quiet = &mut None;
        self.keep(proto == Some(ipproto::TCP) || solicit || advert, &[Field::TcpFlags], quiet);
        self.keep(v4 || v6, &[Field::IpFrag], quiet);
        self.keep(solicit || advert, &[Field::NdReserved], quiet);
        change
    }

    /// Limits an ICMP type or code given as a 16-bit port to its low byte, which is all that is on the wire, and drops
    /// its mask.
    fn narrow_to_byte(&mut self, field: Field) {
        let (value, mask) = self.get(field);
        self.set_masked(field, value, if mask == 0 { 0 } else { 0xff });
    }

    /// Removes `fields` unless `yes`. Before the first change, stores the match in `before`.
    fn keep(&mut self, yes: bool, fields: &[Field], before: &mut Option<Box<Self>>) {
        for field in fields.iter().filter(|_| !yes) {
            if self.mask().get(*field) != 0 {
                before.get_or_insert_with(|| Box::new(self.clone()));
                self.clear(*field);
            }
        }
    }
}
