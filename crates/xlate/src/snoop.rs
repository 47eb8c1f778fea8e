//! Neighbours of tunnels, learned from ARP (RFC 826) and neighbour discovery (RFC 4861) that reach a bridge's own port.
//!
//! A packet to an address of the bridge may add an entry; others may only change the entry that there is. The fields that were read
//! are in the megaflow's mask, and each packet of the flow teaches again ([`Effect::Snoop`]). Packets of tunnels teach nothing, as
//! anybody can send them.

use crate::translate::Xlate;
use crate::underlay::Underlay;
use crate::verdict::Effect;
use base::MacAddr;
use flow::{Field, Prereq};
use routes::Learning;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// Operations of ARP.
const ARP_REQUEST: u128 = 1;
const ARP_REPLY: u128 = 2;
/// ICMPv6 types of neighbour discovery.
const SOLICITATION: u128 = 135;
const ADVERTISEMENT: u128 = 136;
/// The override flag among the reserved bits of an advertisement (RFC 4861 section 4.4).
const OVERRIDE: u128 = 0x2000_0000;
/// The hop limit that shows that no router has forwarded a packet (RFC 4861 section 7.1).
const ON_LINK: u128 = 255;
/// The multicast address of all nodes on a link (RFC 4291 section 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

impl Xlate<'_> {
    /// Learns the sender of an ARP packet: anyone that asks for an address of the bridge, answers to one, or announces itself, and
    /// another address of a known one.
    pub(crate) fn snoop_arp(&mut self, underlay: &dyn Underlay) {
        let op = self.read_bits(Field::ArpOp, 0xffff);
        if op != ARP_REQUEST && op != ARP_REPLY {
            return;
        }
        let (sender, target) = (self.read_bits(Field::ArpSpa, u128::MAX), self.read_bits(Field::ArpTpa, u128::MAX));
        let address = |ip: u128| IpAddr::V4(Ipv4Addr::from(ip as u32));
        let is_meant = sender == target || self.is_own_address(underlay, address(target));
        let mac = self.read_bits(Field::ArpSha, u128::MAX) as u64;
        self.snoop(address(sender), mac, if is_meant { Learning::Any } else { Learning::Existing });
    }

    /// Learns the sender of a solicitation for an address of the bridge (RFC 4861 section 7.2.3), and the target of an advertisement
    /// (section 7.2.5).
    pub(crate) fn snoop_discovery(&mut self, underlay: &dyn Underlay) {
        if !self.has(Prereq::Icmpv6) {
            return;
        }
        let icmp_type = self.read_bits(Field::Icmpv6Type, 0xff);
        if icmp_type != SOLICITATION && icmp_type != ADVERTISEMENT
            || self.read_bits(Field::Icmpv6Code, 0xff) != 0
            || self.read_bits(Field::IpTtl, 0xff) != ON_LINK
        {
            return;
        }
        if icmp_type == SOLICITATION { self.snoop_solicitation(underlay) } else { self.snoop_advertisement(underlay) }
    }

    fn snoop_solicitation(&mut self, underlay: &dyn Underlay) {
        let mac = self.read_bits(Field::NdSll, u128::MAX) as u64;
        if mac == 0 {
            return;
        }
        let target = Ipv6Addr::from(self.read_bits(Field::NdTarget, u128::MAX));
        let sender = Ipv6Addr::from(self.read_bits(Field::Ipv6Src, u128::MAX));
        if self.is_own_address(underlay, target.into()) {
            self.snoop(sender.into(), mac, Learning::Any);
        }
    }

    fn snoop_advertisement(&mut self, underlay: &dyn Underlay) {
        let mac = self.read_bits(Field::NdTll, u128::MAX) as u64;
        if mac == 0 {
            return;
        }
        let dst = Ipv6Addr::from(self.read_bits(Field::Ipv6Dst, u128::MAX));
        let is_override = self.read_bits(Field::NdReserved, OVERRIDE) != 0;
        let learning = match (dst == ALL_NODES, is_override) {
            // An unsolicited one (RFC 4861 section 7.2.6).
            (true, true) => Learning::Existing,
            (true, false) => return,
            (false, _) if !self.is_own_address(underlay, dst.into()) => return,
            (false, true) => Learning::Any,
            (false, false) => Learning::Unknown,
        };
        let target = Ipv6Addr::from(self.read_bits(Field::NdTarget, u128::MAX));
        self.snoop(target.into(), mac, learning);
    }

    /// Reports a neighbour, unless the addresses cannot be those of one: an unspecified sender only probes (RFC 5227).
    fn snoop(&mut self, ip: IpAddr, mac: u64, learning: Learning) {
        let mac = MacAddr::from_u64(mac);
        if ip.is_unspecified() || ip.is_multicast() || mac.is_zero() || mac.is_multicast() {
            return;
        }
        let bridge = Arc::clone(&self.pos.bridge.name);
        self.out.effects.push(Effect::Snoop { bridge, ip, mac, learning });
    }
}
