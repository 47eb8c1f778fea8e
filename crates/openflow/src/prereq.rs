//! Which fields a match makes meaningful: the prerequisites of ovs-fields(7), judged by a match's values, where what is not
//! matched counts as zero.

use flow::{Field, Match, Prereq};

const ETH_IPV4: u128 = 0x0800;
const ETH_ARP: u128 = 0x0806;
const ETH_RARP: u128 = 0x8035;
const ETH_IPV6: u128 = 0x86dd;
const ETH_MPLS: u128 = 0x8847;
const ETH_MPLS_MCAST: u128 = 0x8848;
const ETH_NSH: u128 = 0x894f;

/// Whether `matching` satisfies what `field` presupposes.
pub fn satisfied(field: Field, matching: &Match) -> bool {
    let get = |f: Field| matching.key().get(f);
    let eth_type = get(Field::EthType);
    let ip = eth_type == ETH_IPV4 || eth_type == ETH_IPV6;
    let l4 = |proto: u128| ip && get(Field::IpProto) == proto && get(Field::IpFrag) & 2 == 0;
    let icmpv6 = eth_type == ETH_IPV6 && get(Field::IpProto) == 58 && get(Field::IpFrag) & 2 == 0;
    let nd = |types: &[u128]| icmpv6 && get(Field::Icmpv6Code) == 0 && types.contains(&get(Field::Icmpv6Type));
    match field.info().prereq {
        Prereq::None => true,
        Prereq::Ethernet => get(Field::PacketType) == 0,
        Prereq::Arp => eth_type == ETH_ARP || eth_type == ETH_RARP,
        Prereq::VlanVid => matching.key().vlan_tci() & 0x1000 != 0,
        Prereq::Ipv4 => eth_type == ETH_IPV4,
        Prereq::Ipv6 => eth_type == ETH_IPV6,
        Prereq::Ip => ip,
        Prereq::Mpls => eth_type == ETH_MPLS || eth_type == ETH_MPLS_MCAST,
        Prereq::Tcp => l4(6),
        Prereq::Udp => l4(17),
        Prereq::Sctp => l4(132),
        Prereq::Icmpv4 => eth_type == ETH_IPV4 && get(Field::IpProto) == 1,
        Prereq::Icmpv6 => eth_type == ETH_IPV6 && get(Field::IpProto) == 58,
        Prereq::Nd => nd(&[135, 136]),
        Prereq::NdSolicit => nd(&[135]),
        Prereq::NdAdvert => nd(&[136]),
        Prereq::Nsh => eth_type == ETH_NSH,
        Prereq::Ct => connection_tracked(field, matching, eth_type),
    }
}

/// Whether the connection's original direction is known: a tracked connection that is not invalid, of the family that the
/// field is for.
fn connection_tracked(field: Field, matching: &Match, eth_type: u128) -> bool {
    const NEW_EST_REL_RPL: u128 = 0x0f;
    const INVALID: u128 = 0x10;
    const TRACKED: u128 = 0x20;
    let (value, mask) = matching.get(Field::CtState);
    let tracked = value & mask & NEW_EST_REL_RPL != 0
        || value & mask & TRACKED != 0 && mask & INVALID != 0 && value & INVALID == 0;
    tracked
        && match field {
            Field::CtNwSrc | Field::CtNwDst => eth_type == ETH_IPV4,
            Field::CtIpv6Src | Field::CtIpv6Dst => eth_type == ETH_IPV6,
            _ => true,
        }
}
