//! Datapath flows as text. This file formats actions in Open vSwitch's syntax:
//! `set(eth(dst=...)),push_vlan(vid=7,pcp=0),2`; `key` formats keys with their masks, and `parse` parses keys.

mod ct;
mod key;
mod normalise;
mod parse;
mod parse_actions;
mod psample;
mod tunnel;

pub use key::{Detail, format_key, key_to_string, packet_key_to_string};
pub use normalise::{NormaliseError, normalise, parsed_actions};
pub use parse::{KeyError, parse_flow, parse_key, parse_key_of_flow, parse_key_of_packet, parse_uuid, split_ufid};
pub use parse_actions::{ActionsError, parse_actions};

use crate::action::{Collectors, DpAction, HashKind, Observe, PushNsh, SamplePoint};
use crate::{Defragment, TunnelPop, TunnelPush};
use base::DpPort;
use flow::extract::ethertype;
use flow::{Field, FlowKey};
use key::Header;
use packet::wire::NshRepr;
use std::fmt::Write;

/// Formats `actions` for a packet of Ethernet type `eth_type`, which determines the header of fields like `ttl`. `name`
/// returns the name to print for a port, or `None` for its number.
pub fn format_actions(actions: &[DpAction], eth_type: u16, name: &dyn Fn(DpPort) -> Option<String>) -> String {
    let mut out = String::new();
    write_list(actions, eth_type, name, &mut out);
    if out.is_empty() { "drop".into() } else { out }
}

fn write_list(actions: &[DpAction], eth_type: u16, name: &dyn Fn(DpPort) -> Option<String>, out: &mut String) {
    let mut rest = actions;
    let mut eth_type = eth_type;
    while let Some(first) = rest.first() {
        if !out.is_empty() && !out.ends_with('(') {
            out.push(',');
        }
        let mut used = 1;
        let _ = match first {
            DpAction::Output(port) => write!(out, "{}", port_text(*port, name)),
            DpAction::LbOutput(bond) => write!(out, "lb_output({})", bond.0),
            DpAction::Trunc(len) => write!(out, "trunc({len})"),
            DpAction::PopVlan => write!(out, "pop_vlan"),
            DpAction::PushMpls { ethertype, lse } => {
                eth_type = *ethertype;
                write!(out, "push_mpls({},eth_type=0x{ethertype:x})", key::mpls_entry(*lse, None))
            }
            DpAction::PopMpls { ethertype } => {
                eth_type = *ethertype;
                write!(out, "pop_mpls(eth_type=0x{ethertype:x})")
            }
            DpAction::PushPbb { tci } => {
                eth_type = ethertype::PBB;
                write_push_pbb(*tci, out)
            }
            DpAction::PopPbb => write!(out, "pop_pbb"),
            DpAction::AddMpls { ethertype, lse } => {
                eth_type = *ethertype;
                write!(out, "add_mpls({},eth_type=0x{ethertype:x})", key::mpls_entry(*lse, None))
            }
            DpAction::CopyTtl { outwards } => write!(out, "copy_ttl_{}", if *outwards { "out" } else { "in" }),
            DpAction::PushEth { dst, src } => write!(out, "push_eth(src={src},dst={dst})"),
            DpAction::PopEth => write!(out, "pop_eth"),
            DpAction::PushNsh(what) => write_push_nsh(what, out),
            DpAction::PopNsh => write!(out, "pop_nsh()"),
            DpAction::TunnelPush(push) => write_tunnel_push(push, name, out),
            DpAction::Defragment(what) => write_defragment(what, name, out),
            DpAction::TunnelPop(what) => write_tunnel_pop(*what, name, out),
            DpAction::PushVlan { tpid, tci } => {
                let tpid = if *tpid == 0x8100 { String::new() } else { format!("tpid=0x{tpid:04x},") };
                write!(out, "push_vlan({tpid}vid={},pcp={})", tci & 0xfff, tci >> 13)
            }
            DpAction::Controller(c) => write!(
                out,
                "userspace(pid=0,controller(reason={},dont_send={},continuation={},recirc_id={},rule_cookie={},\
                 controller_id={},max_len={}))",
                c.reason,
                u8::from(c.dont_send),
                u8::from(c.pauses),
                c.recirc_id,
                key::hex(c.cookie.into()),
                c.controller_id,
                c.max_len
            ),
            DpAction::Observe(what) => write_observe(what, out),
            DpAction::Psample(what) => psample::write_psample(what, out),
            DpAction::Punt(punt) => write!(out, "userspace(pid=0,slow_path({}))", punt.protocol),
            DpAction::Held => write!(out, "held"),
            DpAction::SlowPath => write!(out, "userspace(pid=0,slow_path(action))"),
            DpAction::Hash(HashKind::L4, basis) => write!(out, "hash(l4({basis}))"),
            DpAction::Hash(HashKind::SymmetricL4, basis) => write!(out, "hash(sym_l4({basis}))"),
            DpAction::Ct(ct) => ct::write_ct(ct, out),
            DpAction::CtClear => write!(out, "ct_clear"),
            DpAction::Recirc(id) => write!(out, "recirc({})", key::hex((*id).into())),
            DpAction::Clone(inner) => write_nested("clone(", inner, eth_type, name, out),
            DpAction::CheckPktLen { size, greater, lesser } => {
                let _ = write!(out, "check_pkt_len(size={size},");
                let _ = write_nested("gt(", greater, eth_type, name, out);
                let _ = write_nested(",le(", lesser, eth_type, name, out);
                write!(out, ")")
            }
            DpAction::Sample { probability, actions } => {
                let percent = f64::from(*probability) * 100.0 / f64::from(u32::MAX);
                let _ = write!(out, "sample(sample={percent:.1}%,");
                let _ = write_nested("actions(", actions, eth_type, name, out);
                write!(out, ")")
            }
            DpAction::Meter(id) => write!(out, "meter({})", id.0),
            DpAction::Drop(_) => write!(out, "drop"),
            DpAction::Set { field, .. } => {
                let header = header_of(*field, eth_type);
                used = rest
                    .iter()
                    .take_while(|a| matches!(a, DpAction::Set { field, .. } if header_of(*field, eth_type) == header))
                    .count();
                write_set(&rest[..used], header, out)
            }
        };
        rest = &rest[used..];
    }
}

fn port_text(port: DpPort, name: &dyn Fn(DpPort) -> Option<String>) -> String {
    name(port).unwrap_or_else(|| port.to_string())
}

fn write_tunnel_push(push: &TunnelPush, name: &dyn Fn(DpPort) -> Option<String>, out: &mut String) -> std::fmt::Result {
    write!(out, "tnl_push(tnl_port({}),", port_text(push.port, name))?;
    push.template.headers().format_header(out);
    write!(out, ",out_port({}))", port_text(push.out_port, name))
}

fn write_tunnel_pop(what: TunnelPop, name: &dyn Fn(DpPort) -> Option<String>, out: &mut String) -> std::fmt::Result {
    write!(out, "tnl_pop({}", port_text(what.port, name))?;
    if let Some(erspan) = what.erspan {
        write!(out, ",erspan({})", port_text(erspan, name))?;
    }
    out.write_char(')')
}

fn write_defragment(what: &Defragment, name: &dyn Fn(DpPort) -> Option<String>, out: &mut String) -> std::fmt::Result {
    out.push_str("tnl_defrag(");
    for (udp, pop) in &what.tunnels {
        if let Some(udp) = udp {
            write!(out, "udp({udp},")?;
        }
        write_tunnel_pop(*pop, name, out)?;
        out.push_str(if udp.is_some() { ")," } else { "," });
    }
    write!(out, "out_port({}))", port_text(what.otherwise, name))
}

/// Writes a nested list of actions; an empty list is written as a drop.
fn write_nested(
    title: &str,
    actions: &[DpAction],
    eth_type: u16,
    name: &dyn Fn(DpPort) -> Option<String>,
    out: &mut String,
) -> std::fmt::Result {
    out.push_str(title);
    if actions.is_empty() {
        out.push_str("drop");
    }
    write_list(actions, eth_type, name, out);
    out.write_char(')')
}

fn write_push_pbb(tci: u32, out: &mut String) -> std::fmt::Result {
    let (pcp, dei, uca, isid) = (tci >> 29, tci >> 28 & 1, tci >> 27 & 1, tci & 0xff_ffff);
    write!(out, "push_pbb(isid={},uca={uca},pcp={pcp},dei={dei})", key::hex(isid.into()))
}

fn write_observe(what: &Observe, out: &mut String) -> std::fmt::Result {
    // The text of a missing port is the number of no port.
    let port = what.output.map_or(u32::MAX, |port| port.0);
    out.write_str("userspace(pid=0,")?;
    match &what.collectors {
        Collectors::Bridge => write!(out, "ipfix(output_port={port})")?,
        Collectors::Sflow(way) => {
            let (vid, pcp) = (way.vlan_tci & 0xfff, way.vlan_tci >> 13);
            return write!(out, "sFlow(vid={vid},pcp={pcp},output={}),actions)", way.output);
        }
        Collectors::Set(flow) => {
            let way = match flow.direction {
                None => "",
                Some(SamplePoint::Ingress) => ",ingress",
                Some(SamplePoint::Egress) => ",egress",
            };
            write!(
                out,
                "flow_sample(probability={},collector_set_id={},obs_domain_id={},obs_point_id={},output_port={port}{way})",
                flow.probability, flow.set, flow.domain, flow.point
            )?;
        }
    }
    if what.tunnel.is_some_and(|tunnel| tunnel.with_headers) {
        write!(out, ",tunnel_out_port={port}")?;
    }
    out.write_char(')')
}

fn write_push_nsh(what: &PushNsh, out: &mut String) -> std::fmt::Result {
    let NshRepr { flags, ttl, np, path, mdtype, context } = what.header;
    write!(out, "push_nsh(flags={flags},ttl={ttl},mdtype={mdtype},np={np},spi=0x{:x},si={}", path >> 8, path & 0xff)?;
    if mdtype == 1 {
        for (n, word) in context.iter().enumerate() {
            write!(out, ",c{}=0x{word:x}", n + 1)?;
        }
    } else if !what.tlvs.is_empty() {
        out.push_str(",md2=0x");
        what.tlvs.iter().try_for_each(|byte| write!(out, "{byte:02x}"))?;
    }
    out.write_char(')')
}

/// The header that contains a field.
fn header_of(field: Field, eth_type: u16) -> Header {
    match field {
        Field::EthSrc | Field::EthDst => Header::Ethernet,
        Field::VlanTci | Field::DlVlan | Field::VlanVid | Field::DlVlanPcp | Field::VlanPcp => Header::Vlan,
        Field::MplsLabel | Field::MplsTc | Field::MplsBos | Field::MplsTtl => Header::Mpls,
        Field::PbbIsid | Field::PbbUca => Header::Pbb,
        Field::Ipv4Src | Field::Ipv4Dst => Header::Ipv4,
        Field::Ipv6Src | Field::Ipv6Dst | Field::Ipv6Label => Header::Ipv6,
        Field::IpDscp | Field::IpDscpShifted | Field::IpEcn | Field::IpTtl if eth_type == ethertype::IPV6 => {
            Header::Ipv6
        }
        Field::IpDscp | Field::IpDscpShifted | Field::IpEcn | Field::IpTtl => Header::Ipv4,
        Field::TcpSrc | Field::TcpDst => Header::Tcp,
        Field::UdpSrc | Field::UdpDst => Header::Udp,
        Field::SctpSrc | Field::SctpDst => Header::Sctp,
        Field::Icmpv4Type | Field::Icmpv4Code => Header::Icmp,
        Field::Icmpv6Type | Field::Icmpv6Code => Header::Icmpv6,
        Field::NdTarget | Field::NdSll | Field::NdTll => Header::Nd,
        Field::NdReserved | Field::NdOptionsType => Header::NdExt,
        Field::ArpOp | Field::ArpSpa | Field::ArpTpa | Field::ArpSha | Field::ArpTha => Header::Arp,
        Field::NshFlags | Field::NshTtl | Field::NshSpi | Field::NshSi => Header::Nsh,
        Field::NshC1 | Field::NshC2 | Field::NshC3 | Field::NshC4 => Header::Nsh,
        Field::SkbPriority => Header::SkbPriority,
        Field::PktMark => Header::SkbMark,
        _ => Header::Other(field),
    }
}

/// Writes the fields that consecutive set actions change in a header, in the syntax of a key.
fn write_set(sets: &[DpAction], header: Header, out: &mut String) -> std::fmt::Result {
    let (mut value, mut bits) = (FlowKey::ZERO, FlowKey::ZERO);
    for set in sets {
        if let DpAction::Set { field, value: new, mask } = set {
            value.set(*field, value.get(*field) & !mask | new & mask);
            bits.add_mask(*field, *mask);
        }
    }
    out.push_str("set(");
    key::format_header(header, &value, &bits, out);
    out.write_char(')')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{SampledFlow, TunnelOutput};
    use base::PortNo;
    use flow::{ReceivedOptions, layout};
    use proptest::prelude::*;

    fn no_name(_: DpPort) -> Option<String> {
        None
    }

    fn format_key(
        key: &FlowKey,
        mask: &FlowKey,
        detail: Detail,
        name: &dyn Fn(DpPort) -> Option<String>,
        out: &mut String,
    ) {
        super::format_key((key, mask), detail, &ReceivedOptions::default(), name, out);
    }

    fn packet_key_to_string(key: &FlowKey) -> String {
        super::packet_key_to_string(key, &ReceivedOptions::default())
    }

    fn parse_flow(text: &str, port: &dyn Fn(&str) -> Option<DpPort>) -> Result<(FlowKey, flow::FlowMask), KeyError> {
        super::parse_flow(text, &ReceivedOptions::default(), port)
    }

    fn parse(text: &str) -> Result<FlowKey, KeyError> {
        parse_key(text, &|_| None)
    }

    /// Keys that are formatted unchanged under a full mask.
    const KEYS: &[&str] = &[
        "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0800),\
         ipv4(src=10.0.0.1,dst=10.0.0.2,proto=6,tos=0x20,ttl=64,frag=no),tcp(src=1,dst=2),tcp_flags(-fin+syn-rst-psh-ack-urg-ece-cwr-ns-[200]-[400]-[800])",
        "recirc_id(0),in_port(4),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x8100),\
         vlan(vid=5,pcp=1),encap(eth_type(0x0806),arp(sip=1.1.1.1,tip=2.2.2.2,op=1,sha=02:00:00:00:00:01,tha=00:00:00:00:00:00))",
        "recirc_id(0),in_port(4),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:03,dst=02:00:00:00:00:01),eth_type(0x86dd),\
         ipv6(src=fe80::1,dst=fe80::2,label=0,proto=58,tclass=0,hlimit=255,frag=no),icmpv6(type=135,code=0),\
         nd(target=fe80::2,sll=02:00:00:00:00:03,tll=00:00:00:00:00:00)",
        "recirc_id(0),in_port(4),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:03,dst=02:00:00:00:00:01),eth_type(0x88a8),\
         vlan(vid=7,pcp=0),encap(eth_type(0x8100),vlan(vid=8,pcp=3),encap(eth_type(0x1234)))",
        "recirc_id(0),in_port(4),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:03,dst=02:00:00:00:00:01),eth_type(0x8847),\
         mpls(label=5,tc=2,ttl=64,bos=1)",
        "recirc_id(0),in_port(4),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:03,dst=02:00:00:00:00:01),eth_type(0x894f),\
         nsh(flags=0,ttl=5,mdtype=1,np=3,spi=0x5,si=255,c1=0x1,c2=0x0,c3=0x0,c4=0x0)",
        "recirc_id(0),in_port(4),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:03,dst=02:00:00:00:00:01),eth_type(0x88a8),\
         vlan(vid=5,pcp=0),encap(eth_type(0x88e7),pbb(isid=0x123456,uca=1))",
        "recirc_id(0),in_port(4),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:03,dst=02:00:00:00:00:01),eth_type(0x86dd),\
         ipv6(src=fe80::1,dst=fe80::2,label=0,proto=59,tclass=0,hlimit=255,frag=no,exthdr=0x45)",
    ];

    #[test]
    fn keys_round_trip() {
        for text in KEYS {
            let positive = text.replace("-fin+syn-rst-psh-ack-urg-ece-cwr-ns-[200]-[400]-[800]", "syn");
            let key = parse(&positive).unwrap();
            assert_eq!(key_to_string(&key, &no_name), *text);
        }
    }

    #[test]
    fn keys_of_packets_have_all_metadata_and_flags_by_name() {
        let metadata = |port| {
            format!(
                "recirc_id(0),dp_hash(0),skb_priority(0),in_port({port}),skb_mark(0),ct_state(0),ct_zone(0),ct_mark(0),\
                 ct_label(0),packet_type(ns=0,id=0),"
            )
        };
        for (text, port) in KEYS.iter().zip([1, 4, 4, 4, 4, 4, 4, 4]) {
            let positive = text.replace("-fin+syn-rst-psh-ack-urg-ece-cwr-ns-[200]-[400]-[800]", "syn");
            let headers = positive.split_once("packet_type(ns=0,id=0),").unwrap().1;
            assert_eq!(packet_key_to_string(&parse(&positive).unwrap()), metadata(port) + headers);
            let other = positive.replace("tcp_flags(syn)", "tcp_flags(syn|ack)");
            assert!(packet_key_to_string(&parse(&other).unwrap()).ends_with(other.split_once("eth(").unwrap().1));
        }
    }

    #[test]
    fn only_matched_fields_are_written() {
        let key = parse(
            "in_port(1),eth(src=02:00:00:00:00:01,dst=02:00:00:00:00:02),eth_type(0x0800),\
             ipv4(src=10.0.0.0,proto=17,tos=0x20,frag=no),udp(dst=80)",
        )
        .unwrap();
        let mut mask = FlowKey::ZERO;
        for (field, bits) in [
            (Field::EthType, 0xffff),
            (Field::Ipv4Src, 0xffff_ff00),
            (Field::IpProto, 0xff),
            (Field::IpDscp, 0x3f),
            (Field::IpFrag, 3),
            (Field::UdpDst, 0xfff0),
        ] {
            mask.add_mask(field, bits);
        }
        let mut out = String::new();
        format_key(&key, &mask, Detail::Matched, &|_| Some("p1".to_owned()), &mut out);
        assert_eq!(
            out,
            "recirc_id(0),in_port(p1),packet_type(ns=0,id=0),eth_type(0x0800),\
             ipv4(src=10.0.0.0/255.255.255.0,proto=17,tos=0x20/0xfc,frag=no),udp(dst=80/0xfff0)"
        );
        out.clear();
        format_key(&key, &FlowKey::ZERO, Detail::All, &no_name, &mut out);
        assert_eq!(
            out,
            "recirc_id(0),dp_hash(0/0),skb_priority(0/0),in_port(1),skb_mark(0/0),ct_state(0/0),ct_zone(0/0),ct_mark(0/0),\
             ct_label(0/0),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:01/00:00:00:00:00:00,dst=02:00:00:00:00:02/00:00:00:00:00:00),\
             eth_type(0x0800/0x0000),ipv4(src=10.0.0.0/0.0.0.0,dst=0.0.0.0/0.0.0.0,proto=17/0,tos=0x20/0,ttl=0/0,frag=no),\
             udp(src=0/0,dst=80/0)"
        );
    }

    #[test]
    fn flows_with_masks() {
        for text in [
            "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth(src=02:00:00:00:00:00/ff:ff:ff:00:00:00),eth_type(0x0800),\
             ipv4(dst=10.0.0.0/255.0.0.0,tos=0x20/0xfc,frag=no)",
            "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x8100),vlan(vid=5,pcp=7/0x0),encap(eth_type(0x0800),\
             ipv4(src=10.0.0.2/255.255.255.252,proto=6,frag=no),tcp_flags(+syn-ack))",
            "recirc_id(0),in_port(1),packet_type(ns=0,id=0),eth_type(0x8847),mpls(label=5/0xfffff,tc=3/0,ttl=64/0x0,bos=0/0,\
             label=6/0x0,tc=3/0,ttl=63/0x0,bos=1/0)",
            "recirc_id(0),in_port(2),ct_mark(0x1/0xf),packet_type(ns=0,id=0),eth_type(0x86dd),ipv6(src=fe80::/ffff::,frag=no)",
            "recirc_id(0),in_port(2),packet_type(ns=0,id=0),eth_type(0x86dd),ipv6(frag=no,exthdr=0)",
            "recirc_id(0),in_port(2),packet_type(ns=0,id=0),eth_type(0x86dd),ipv6(frag=no,exthdr=0x4/0x1f4)",
            "recirc_id(0),in_port(2),packet_type(ns=0,id=0),eth_type(0x88e7),pbb(isid=0x100/0xff00)",
        ] {
            let (key, mask) = parse_flow(text, &|_| None).unwrap();
            let mut out = String::new();
            format_key(&key, &mask, Detail::Matched, &no_name, &mut out);
            assert_eq!(out, text);
        }
        let (key, mask) = parse_flow("in_port(1),eth(),eth_type(0x0806),arp()", &|_| None).unwrap();
        assert_eq!((key.in_port().0, key.eth_type(), mask.eth_type()), (1, 0x806, 0xffff));
        assert!(mask.get(Field::EthSrc) == 0 && mask.get(Field::ArpSpa) == 0);
        assert_eq!(
            parse_flow("ipv4(tos=1/256)", &|_| None).unwrap_err().to_string(),
            "syntax error at ipv4(tos=1/256)"
        );
        assert!(parse("ipv4(tos=1/255)").is_err());
    }

    /// As `dpctl/dump-flows -m` prints flows, and reads them back.
    #[test]
    fn flows_with_all_fields() {
        let metadata = "recirc_id(0),dp_hash(0/0),skb_priority(0/0),in_port(1),skb_mark(0/0),ct_state(0/0),ct_zone(0/0),\
                        ct_mark(0/0),ct_label(0/0),packet_type(ns=0,id=0),\
                        eth(src=02:00:00:00:00:05/00:00:00:00:00:00,dst=02:00:00:00:00:07/00:00:00:00:00:00)";
        for headers in [
            "eth_type(0x0800),ipv4(src=10.0.0.2/0.0.0.0,dst=10.0.0.1/0.0.0.0,proto=1/0,tos=0/0,ttl=64/0,frag=no),\
             icmp(type=8/0,code=0/0)",
            "eth_type(0x0800),ipv4(src=10.0.0.2/0.0.0.0,dst=10.0.0.1/0.0.0.0,proto=6,tos=0x4/0,ttl=64/0,frag=first),\
             tcp(src=8/0xff,dst=9/0),tcp_flags(0/0)",
            "eth_type(0x86dd),ipv6(src=fe80::1/::,dst=fe80::2/::,label=0x5/0,proto=58,tclass=0x3/0,hlimit=255/0,frag=no),\
             icmpv6(type=135/0,code=0/0),nd(target=fe80::2/::,sll=02:00:00:00:00:05/00:00:00:00:00:00,\
             tll=00:00:00:00:00:00/00:00:00:00:00:00)",
            "eth_type(0x8847),mpls(label=5/0x0,tc=3/0,ttl=64/0x0,bos=1/0)",
            "eth_type(0x0806),arp(sip=1.1.1.1/0.0.0.0,tip=2.2.2.2/0.0.0.0,op=1/0,sha=02:00:00:00:00:05/00:00:00:00:00:00,\
             tha=00:00:00:00:00:00/00:00:00:00:00:00)",
        ] {
            let text = format!("{metadata},{headers}");
            let (key, mask) = parse_flow(&text, &|_| None).unwrap();
            let mut out = String::new();
            format_key(&key, &mask, Detail::All, &no_name, &mut out);
            assert_eq!(out, text);
            // Traces skip the UUID and the masks.
            let traced = parse_key_of_flow(&format!("ufid:12345678-9abc-def0-1234-56789abcdef0, {text}"), &|_| None);
            assert_eq!(traced, Ok(key));
        }
        // An Ethernet type without addresses is that of an L3 packet, unless the packet type is given.
        for (text, packet_type, eth_type) in [
            ("in_port(1),eth_type(0x1234)", 0x11234, 0x1234),
            ("in_port(1),eth_type(0x8100),vlan(vid=5,pcp=0),encap(eth_type(0x0800))", 0x18100, 0x8100),
            ("in_port(1),packet_type(ns=1,id=0x800),eth_type(0x0800)", 0x10800, 0x800),
            ("in_port(1),packet_type(ns=0,id=0),eth_type(0x0800)", 0, 0x800),
            ("in_port(1),eth(),eth_type(0x0800)", 0, 0x800),
            ("in_port(1)", 0, 0x5ff),
        ] {
            let key = parse_key_of_packet(text, &ReceivedOptions::default(), &|_| None).unwrap();
            assert_eq!(
                (key.get(Field::PacketType), key.eth_type(), key.vlan_tci()),
                (packet_type, eth_type, 0),
                "{text}"
            );
        }
        let ufid = "ufid:12345678-9abc-def0-1234-56789abcdef0 in_port(1)";
        assert_eq!(split_ufid(ufid), Some((0x1234_5678_9abc_def0_1234_5678_9abc_def0, "in_port(1)")));
        assert_eq!(split_ufid("ufid:12345678-9abc-def0-1234-56789abcdex0"), None);
        assert_eq!(split_ufid("in_port(1)"), None);
    }

    #[test]
    fn sampling_actions() {
        let through = |collectors, output: Option<u32>, tunnel| {
            let what = Observe { bridge: 1, collectors, output: output.map(DpPort), tunnel, forwarded: true };
            format_actions(&[DpAction::Observe(what.into())], 0, &|_| Some("p".into()))
        };
        let text = |collectors, output| through(collectors, output, None);
        let flow = |direction| {
            Collectors::Set(SampledFlow { probability: 5, set: 4_294_967_295, domain: 2, point: 3, direction })
        };
        assert_eq!(text(Collectors::Bridge, None), "userspace(pid=0,ipfix(output_port=4294967295))");
        assert_eq!(text(Collectors::Bridge, Some(2)), "userspace(pid=0,ipfix(output_port=2))");
        let plain = "userspace(pid=0,flow_sample(probability=5,collector_set_id=4294967295,obs_domain_id=2,obs_point_id=3,\
                     output_port=";
        assert_eq!(text(flow(None), Some(7)), format!("{plain}7))"));
        assert_eq!(text(flow(Some(SamplePoint::Ingress)), None), format!("{plain}4294967295,ingress))"));
        assert_eq!(text(flow(Some(SamplePoint::Egress)), Some(7)), format!("{plain}7,egress))"));
        let sflow = |vlan_tci, output| {
            let way = crate::action::SampledWay { vlan_tci, output, ..Default::default() };
            text(Collectors::Sflow(way.into()), None)
        };
        assert_eq!(sflow(0x7005, 1003), "userspace(pid=0,sFlow(vid=5,pcp=3,output=1003),actions)");
        assert_eq!(sflow(0, 0x4000_0100), "userspace(pid=0,sFlow(vid=0,pcp=0,output=1073742080),actions)");
        let tunnel = |with_headers| Some(TunnelOutput { port: PortNo(3), with_headers });
        assert_eq!(through(flow(None), Some(7), tunnel(false)), format!("{plain}7))"));
        assert_eq!(through(flow(None), Some(7), tunnel(true)), format!("{plain}7),tunnel_out_port=7)"));
        let egress = through(flow(Some(SamplePoint::Egress)), Some(7), tunnel(true));
        assert_eq!(egress, format!("{plain}7,egress),tunnel_out_port=7)"));
    }

    #[test]
    fn errors_name_the_offending_part() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(error("in_port(1),eth(src=02:00:00:00:00:04),bogus(1)"), "syntax error at bogus(1)");
        assert_eq!(error("xx"), "syntax error at xx");
        assert_eq!(error("in_port(1"), "syntax error at in_port(1");
        assert_eq!(error("in_port(nobody)"), "syntax error at in_port(nobody)");
        assert_eq!(error("ipv4(tos=256)"), "syntax error at ipv4(tos=256)");
        assert_eq!(error("recirc_id(1),recirc_id(2)"), "syntax error at recirc_id(2)");
        assert_eq!(parse("in_port(1),eth()").unwrap().eth_type(), 0x5ff);
        assert_eq!(
            error("in_port(1),eth_type(0x05ff)"),
            "invalid Ethertype 1535 in flow key; the flow key in error is: in_port(1),eth_type(0x05ff)"
        );
        assert_eq!(parse_key("in_port(p9)", &|n| (n == "p9").then_some(DpPort(9))).unwrap().in_port().0, 9);
    }

    tally::proptest! {
        #[test]
        fn no_text_panics(text in "(in_port|eth|vlan|encap|mpls|ipv4|nd|tcp_flags|set|clone|push_vlan|trunc|,|=|/|src|label|0x|[0-9()+-]|.){0,20}") {
            let _ = parse(&text);
            let _ = parse_flow(&text, &|_| None);
            let _ = parse_actions(&text, &|_| None);
        }

        #[test]
        fn any_key_and_mask_is_formatted(words in proptest::collection::vec(any::<u64>(), layout::WORDS), masks in proptest::collection::vec(any::<u64>(), layout::WORDS)) {
            let (mut key, mut mask) = (FlowKey::ZERO, FlowKey::ZERO);
            key.0.copy_from_slice(&words);
            mask.0.copy_from_slice(&masks);
            for detail in [Detail::Matched, Detail::All] {
                let mut out = String::new();
                format_key(&key, &mask, detail, &no_name, &mut out);
                prop_assert_eq!(out.matches('(').count(), out.matches(')').count(), "{}", out);
            }
        }
    }

    #[test]
    fn syntax() {
        let set = |field, value, mask| DpAction::Set { field, value, mask };
        let actions = [
            set(Field::EthDst, 9, 0xffff_ffff_ffff),
            set(Field::EthSrc, 0x10, 0xf0),
            set(Field::IpTtl, 63, 0xff),
            DpAction::PushVlan { tpid: 0x8100, tci: 0x2007 },
            DpAction::Output(DpPort(2)),
            DpAction::Clone([DpAction::PopVlan, DpAction::Output(DpPort(1))].into()),
        ];
        let text = format_actions(&actions, 0x800, &|p| (p == DpPort(1)).then(|| "eth0".into()));
        assert_eq!(
            text,
            "set(eth(src=00:00:00:00:00:10/00:00:00:00:00:f0,dst=00:00:00:00:00:09)),set(ipv4(ttl=63)),\
             push_vlan(vid=7,pcp=1),2,clone(pop_vlan,eth0)"
        );
        assert_eq!(format_actions(&[], 0, &|_| None), "drop");
    }
}
