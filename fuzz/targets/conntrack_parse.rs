//! Any bytes as a frame for connection tracking: its key is that of key extraction, and a datapath that knows the headers
//! gets the same result.
#![no_main]

use std::sync::LazyLock;

use base::{Millis, PortNo};
use conntrack::action::state;
use conntrack::key::ipproto;
use conntrack::parse::{Parsed, Refusal, parse};
use conntrack::tracker::{PacketKind, Plain};
use conntrack::{Action, Tracker};
use flow::plain::{tagged_head, untagged_head};
use flow::{Field, FlowKey, extract};
use fuzz::Input;
use packet::metadata::Connection;
use packet::{Checksum, Packet};

const ZONE: u16 = 7;

static TRACKER: LazyLock<Tracker> = LazyLock::new(|| Tracker::new(1));

fuzz::target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let mut packet = Packet::from_slice(input.frame());
    packet.offload.checksum = [Checksum::Unknown, Checksum::Good][input.below(2)];
    let (key, _) = extract(packet.data(), PortNo(1));
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
    let head = untagged_head(packet.data()).or_else(|| tagged_head(packet.data()));
    if let Some((head, tcp_flags)) = head {
        assert_eq!(
            u64::from(tcp_flags),
            if head.proto() == ipproto::TCP { key.get(Field::TcpFlags) as u64 } else { 0 }
        );
        let (mut plain, checksum) = (Plain::default(), packet.offload.checksum);
        if TRACKER.prepare(&head, checksum, ZONE, &mut plain) == PacketKind::Other {
            assert!(result.is_err());
            return;
        }
        assert_eq!(Ok(plain.key()), result.map(|parsed| parsed.key));
        // It has a state as from the general way.
        let (action, mut connection) = (Action { zone: ZONE, ..Action::default() }, Connection::default());
        let begins = TRACKER.may_begin(packet.data(), &mut plain, &action);
        TRACKER.track(&mut packet, &mut connection, &action, Millis(0));
        assert_eq!(
            begins.then(|| TRACKER.state_of_new(&plain)),
            Some(connection).filter(|of| of.state & state::NEW != 0)
        );
    }
});

/// The ports of a flow key, source first; `None` if the protocol has ports, but no complete header.
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
