//! Any bytes as a frame for connection tracking: its key is that of key extraction, and a datapath that knows the headers
//! gets the same result.
#![no_main]

use base::PortNo;
use conntrack::key::ipproto;
use conntrack::parse::{Parsed, Refusal, parse, parse_known};
use flow::{Field, FlowKey, extract};
use fuzz::Input;
use packet::{Checksum, Packet};

const ZONE: u16 = 7;

fuzz::target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let mut packet = Packet::from_slice(input.frame());
    packet.offload.checksum = [Checksum::Unknown, Checksum::Good][input.below(2)];
    let (key, layers) = extract(packet.data(), PortNo(1));
    let result = parse(&packet, ZONE);
    match result {
        Ok(parsed) => agrees(&parsed, &key),
        Err(Refusal::Fragment(fragment)) => {
            assert!(fragment.l3 <= fragment.header && fragment.header < fragment.payload);
            assert!(fragment.payload <= fragment.end && fragment.end <= packet.len());
            assert!(key.get(Field::IpFrag) != 0);
        }
        Err(_) => {}
    }
    if let (0x800, 0, Some(l3), Some(l4)) = (key.eth_type(), key.get(Field::IpFrag), layers.l3, layers.l4)
        && l4 == l3 + 20
        && let Some(ports) = ports(&key)
    {
        let (src, dst) = (key.get(Field::Ipv4Src) as u32, key.get(Field::Ipv4Dst) as u32);
        let proto = key.get(Field::IpProto) as u8;
        assert_eq!(parse_known(&packet, ZONE, l3.into(), src, dst, proto, ports), result);
    }
});

/// The ports of a flow key, as [`parse_known`] takes them; `None` if the protocol has ports, but no complete header.
fn ports(key: &FlowKey) -> Option<u32> {
    let (src, dst) = match key.get(Field::IpProto) as u8 {
        ipproto::TCP => (Field::TcpSrc, Field::TcpDst),
        ipproto::UDP => (Field::UdpSrc, Field::UdpDst),
        ipproto::SCTP => (Field::SctpSrc, Field::SctpDst),
        _ => return Some(0),
    };
    let ports = key.get(src) as u32 & 0xffff;
    Some(ports << 16 | key.get(dst) as u32 & 0xffff).filter(|ports| *ports != 0)
}

/// Compares the key of a packet with its flow key.
fn agrees(parsed: &Parsed, flow: &FlowKey) {
    let Parsed { key, l3, l4, end, embedded } = *parsed;
    assert!(l3 < l4 && l4 <= end);
    if let Some(embedded) = embedded {
        assert!(l4 < embedded.l3 && embedded.l3 < embedded.l4 && embedded.l4 <= end);
        return;
    }
    let (src, dst) = if key.is_v6 { (Field::Ipv6Src, Field::Ipv6Dst) } else { (Field::Ipv4Src, Field::Ipv4Dst) };
    let number = |half: [u64; 2]| u128::from(half[0]) << 64 | u128::from(half[1]);
    assert_eq!((number(key.src), number(key.dst)), (flow.get(src), flow.get(dst)));
    assert_eq!(u128::from(key.proto), flow.get(Field::IpProto));
    if key.is_icmp() {
        let kind = if key.is_v6 { Field::Icmpv6Type } else { Field::Icmpv4Type };
        assert_eq!(u128::from(key.dst_port >> 8), flow.get(kind));
    } else {
        assert_eq!(Some(u32::from(key.src_port) << 16 | u32::from(key.dst_port)), ports(flow).or(Some(0)));
    }
}
