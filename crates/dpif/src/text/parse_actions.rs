//! Parses the text of datapath actions, as in `dpctl/add-flow`: everything that [`super::format_actions`] writes,
//! except for controller actions, whose text is incomplete.

use super::parse::{MPLS_PARTS, Masks, Reader, closing, number, pairs};
use crate::action::{DpAction, DpActions, HashKind, PushNsh};
use crate::meter::MeterId;
use crate::{BondId, Defragment, TunnelPop, TunnelPush};
use base::{DpPort, DropReason, MacAddr};
use flow::Field;
use flow::extract::ethertype;
use packet::wire::NshRepr;
use std::sync::Arc;
use tunnel::header::{Push, Template};

/// Parts of a service instance tag (IEEE 802.1ah), each with its lowest bit and its width.
const PBB_PARTS: [(&str, u32, u32); 4] = [("isid", 0, 24), ("uca", 27, 1), ("dei", 28, 1), ("pcp", 29, 3)];

/// Maximum nesting depth of actions.
const DEPTH_MAX: usize = 8;

/// The text from the invalid action to the end.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("syntax error at {0}")]
pub struct ActionsError(pub String);

/// Parses a list of actions separated by commas or blanks. `port` looks up a port by name.
pub fn parse_actions(text: &str, port: &dyn Fn(&str) -> Option<DpPort>) -> Result<Vec<DpAction>, ActionsError> {
    list(text, port, 0)
}

fn list(text: &str, port: &dyn Fn(&str) -> Option<DpPort>, depth: usize) -> Result<Vec<DpAction>, ActionsError> {
    let mut actions = Vec::new();
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches([',', ' ', '\t', '\r', '\n']);
        if rest.is_empty() {
            return Ok(actions);
        }
        let wrong = || ActionsError(rest.to_owned());
        let end = rest.find([',', '(', ' ', '\t', '\r', '\n']).unwrap_or(rest.len());
        let (name, tail) = rest.split_at(end);
        let (body, after) = match tail.strip_prefix('(') {
            Some(inside) => {
                let end = closing(inside).ok_or_else(wrong)?;
                (Some(&inside[..end]), &inside[end + 1..])
            }
            None => (None, tail),
        };
        match (name, body) {
            ("set", Some(inside)) => actions.extend(set(inside, port).ok_or_else(wrong)?),
            ("clone" | "check_pkt_len" | "sample", Some(inside)) => {
                if depth >= DEPTH_MAX {
                    return Err(wrong());
                }
                let inner = |text: &str| Ok(list(text, port, depth + 1)?.into());
                actions.push(nesting(name, inside, &inner)?.ok_or_else(wrong)?);
            }
            _ => actions.push(one(name, body, port).ok_or_else(wrong)?),
        }
        rest = after;
    }
}

/// Parses an action with nested lists of actions, which `inner` parses; `None` if its syntax is invalid.
fn nesting(
    name: &str,
    body: &str,
    inner: &dyn Fn(&str) -> Result<DpActions, ActionsError>,
) -> Result<Option<DpAction>, ActionsError> {
    let head = |key| body.trim_start().strip_prefix(key).and_then(|rest| rest.split_once(','));
    Ok(match name {
        "clone" => Some(DpAction::Clone(inner(body)?)),
        "check_pkt_len" => {
            let Some((size, rest)) = head("size=") else { return Ok(None) };
            let Some(size) = number(size).and_then(|size| u16::try_from(size).ok()) else { return Ok(None) };
            let Some((greater, rest)) = parenthesised("gt(", rest) else { return Ok(None) };
            let Some((lesser, "")) = parenthesised("le(", rest.trim_start_matches(',')) else { return Ok(None) };
            Some(DpAction::CheckPktLen { size, greater: inner(greater)?, lesser: inner(lesser)? })
        }
        "sample" => {
            let Some((percent, rest)) = head("sample=") else { return Ok(None) };
            let Some(probability) = percent.strip_suffix('%').and_then(probability) else { return Ok(None) };
            let Some((actions, "")) = parenthesised("actions(", rest) else { return Ok(None) };
            Some(DpAction::Sample { probability, actions: inner(actions)? })
        }
        _ => None,
    })
}

/// The text between `title` with its parenthesis and the closing one, and the rest.
fn parenthesised<'a>(title: &str, text: &'a str) -> Option<(&'a str, &'a str)> {
    let inside = text.trim_start().strip_prefix(title)?;
    let end = closing(inside)?;
    Some((&inside[..end], inside[end + 1..].trim()))
}

/// Parses a percentage as a fraction of [`u32::MAX`].
fn probability(percent: &str) -> Option<u32> {
    let plain = percent.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let percent = plain.then(|| percent.parse::<f64>().ok())?.filter(|p| *p <= 100.0)?;
    Some((percent / 100.0 * f64::from(u32::MAX)).round() as u32)
}

fn one(name: &str, body: Option<&str>, port: &dyn Fn(&str) -> Option<DpPort>) -> Option<DpAction> {
    match (name, body) {
        ("tnl_pop", Some(body)) => tunnel_pop(body, port).map(DpAction::TunnelPop),
        ("tnl_defrag", Some(body)) => defragment(body, port),
        ("tnl_push", Some(body)) => {
            let (tunnel, rest) = parenthesised("tnl_port(", body)?;
            let (push, rest) = Push::parse_header(rest.trim_start_matches(',')).ok()?;
            let (out, "") = parenthesised("out_port(", rest.trim_start_matches(','))? else { return None };
            let template = Template::new(push).ok()?;
            let (port, out_port) = (named_port(tunnel, port)?, named_port(out, port)?);
            Some(DpAction::TunnelPush(Arc::new(TunnelPush { port, out_port, template, in_key: None })))
        }
        ("drop", None) => Some(DpAction::Drop(DropReason::Action)),
        ("pop_vlan", None) => Some(DpAction::PopVlan),
        ("trunc", Some(body)) => number(body).and_then(|len| u32::try_from(len).ok()).map(DpAction::Trunc),
        ("ct", body) => super::ct::parse_ct(body.unwrap_or("")).map(|ct| DpAction::Ct(Arc::new(ct))),
        ("ct_clear", None) => Some(DpAction::CtClear),
        ("meter", Some(body)) => {
            number(body).and_then(|id| u32::try_from(id).ok()).map(|id| DpAction::Meter(MeterId(id)))
        }
        ("psample", Some(body)) => super::psample::parse_psample(body).map(DpAction::Psample),
        ("lb_output", Some(body)) => unsigned(body).map(|id| DpAction::LbOutput(BondId(id))),
        ("recirc", Some(body)) => {
            number(body).and_then(|id| u32::try_from(id).ok()).filter(|id| *id != 0).map(DpAction::Recirc)
        }
        ("hash", Some(body)) => {
            let (kind, basis) = body.trim().strip_suffix(')')?.split_once('(')?;
            let kind = match kind {
                "l4" => HashKind::L4,
                "sym_l4" => HashKind::SymmetricL4,
                _ => return None,
            };
            Some(DpAction::Hash(kind, u32::try_from(number(basis)?).ok()?))
        }
        ("push_vlan", Some(body)) => {
            let (mut tpid, mut tci) = (ethertype::VLAN, 0x1000);
            pairs(body, |name, value| {
                let value = number(value)?;
                match name {
                    "tpid" if value == u128::from(ethertype::VLAN) || value == u128::from(ethertype::QINQ) => {
                        tpid = value as u16;
                    }
                    "vid" if value <= 0xfff => tci |= value as u16,
                    "pcp" if value <= 7 => tci |= (value as u16) << 13,
                    "cfi" if value == 1 => {}
                    _ => return None,
                }
                Some(())
            })?;
            Some(DpAction::PushVlan { tpid, tci })
        }
        ("push_eth", Some(body)) => {
            let (mut dst, mut src) = (None, None);
            pairs(body, |name, value| {
                let place = match name {
                    "dst" => &mut dst,
                    "src" => &mut src,
                    _ => return None,
                };
                *place = Some(value.parse::<MacAddr>().ok()?);
                Some(())
            })?;
            Some(DpAction::PushEth { dst: dst?, src: src? })
        }
        ("copy_ttl_out", None) => Some(DpAction::CopyTtl { outwards: true }),
        ("copy_ttl_in", None) => Some(DpAction::CopyTtl { outwards: false }),
        ("pop_eth", None) => Some(DpAction::PopEth),
        ("push_nsh", Some(body)) => push_nsh(body),
        ("pop_nsh", Some("")) => Some(DpAction::PopNsh),
        ("push_pbb", Some(body)) => {
            let mut tci = 0;
            pairs(body, |name, value| {
                let (_, shift, width) = PBB_PARTS.iter().find(|(known, ..)| *known == name)?;
                let value = number(value).filter(|value| *value < 1 << width)?;
                tci |= (value as u32) << shift;
                Some(())
            })?;
            Some(DpAction::PushPbb { tci })
        }
        ("pop_pbb", None) => Some(DpAction::PopPbb),
        ("push_mpls" | "add_mpls", Some(body)) => {
            let (mut lse, mut ethertype) = (0, ethertype::MPLS);
            pairs(body, |name, value| {
                let value = number(value)?;
                match name {
                    "eth_type" => {
                        ethertype = u16::try_from(value).ok().filter(|t| is_mpls(*t))?;
                        return Some(());
                    }
                    _ => lse |= mpls_part(name, value)?,
                }
                Some(())
            })?;
            Some(if name == "add_mpls" {
                DpAction::AddMpls { ethertype, lse }
            } else {
                DpAction::PushMpls { ethertype, lse }
            })
        }
        ("pop_mpls", Some(body)) => {
            let ethertype = u16::try_from(number(body.trim().strip_prefix("eth_type=")?)?).ok()?;
            Some(DpAction::PopMpls { ethertype })
        }
        (_, Some(_)) => None,
        (name, None) => named_port(name, port).map(DpAction::Output),
    }
}

/// Parses a decimal number with an optional sign, modulo 2^32, as the C language's `%u` does.
fn unsigned(text: &str) -> Option<u32> {
    let text = text.trim_start();
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
        return None;
    }
    let magnitude = digits.parse::<u64>().unwrap_or(u64::MAX) as u32;
    Some(if is_negative { magnitude.wrapping_neg() } else { magnitude })
}

/// Parses `3` or `3,erspan(4)`.
fn tunnel_pop(body: &str, port: &dyn Fn(&str) -> Option<DpPort>) -> Option<TunnelPop> {
    let Some((main, rest)) = body.split_once(',') else { return named_port(body, port).map(TunnelPop::of) };
    let (erspan, "") = parenthesised("erspan(", rest)? else { return None };
    Some(TunnelPop { port: named_port(main, port)?, erspan: Some(named_port(erspan, port)?) })
}

/// Parses `udp(4789,tnl_pop(1)),tnl_pop(2),out_port(3)`.
fn defragment(mut body: &str, port: &dyn Fn(&str) -> Option<DpPort>) -> Option<DpAction> {
    let mut tunnels = Vec::new();
    loop {
        if let Some((of_udp, rest)) = parenthesised("udp(", body) {
            let (udp, tunnel) = of_udp.split_once(',')?;
            let (tunnel, "") = parenthesised("tnl_pop(", tunnel)? else { return None };
            tunnels.push((Some(u16::try_from(number(udp)?).ok()?), tunnel_pop(tunnel, port)?));
            body = rest;
        } else if let Some((tunnel, rest)) = parenthesised("tnl_pop(", body) {
            tunnels.push((None, tunnel_pop(tunnel, port)?));
            body = rest;
        } else {
            break;
        }
        body = body.strip_prefix(',')?;
    }
    let (out, "") = parenthesised("out_port(", body)? else { return None };
    let otherwise = named_port(out, port)?;
    (!tunnels.is_empty()).then(|| DpAction::Defragment(Arc::new(Defragment { tunnels, otherwise })))
}

/// A port by its number or name.
fn named_port(text: &str, port: &dyn Fn(&str) -> Option<DpPort>) -> Option<DpPort> {
    let number = number(text).and_then(|n| u32::try_from(n).ok()).map(DpPort);
    number.or_else(|| port(text))
}

/// Parses a header; parts that are not given have Open vSwitch's defaults.
fn push_nsh(body: &str) -> Option<DpAction> {
    let mut header = NshRepr { ttl: 63, mdtype: 1, np: 3, path: 0xff, ..NshRepr::default() };
    let mut tlvs = Vec::new();
    pairs(body, |name, value| {
        if name == "md2" {
            tlvs = hex_bytes(value.strip_prefix("0x")?)?;
            return Some(());
        }
        let value = u32::try_from(number(value)?).ok()?;
        let at_most = |max: u8| u8::try_from(value).ok().filter(|v| *v <= max);
        match name {
            "flags" => header.flags = at_most(3)?,
            "ttl" => header.ttl = at_most(63)?,
            "mdtype" => header.mdtype = at_most(2).filter(|kind| *kind > 0)?,
            "np" => header.np = at_most(u8::MAX)?,
            "spi" if value < 1 << 24 => header.path = value << 8 | header.path & 0xff,
            "si" => header.path = header.path & !0xff | u32::from(at_most(u8::MAX)?),
            "c1" => header.context[0] = value,
            "c2" => header.context[1] = value,
            "c3" => header.context[2] = value,
            "c4" => header.context[3] = value,
            _ => return None,
        }
        Some(())
    })?;
    let fits = if header.mdtype == 1 { tlvs.is_empty() } else { header.context == [0; 4] };
    (fits && tlvs.len() <= NshRepr::METADATA_MAX).then(|| DpAction::PushNsh(Arc::new(PushNsh { header, tlvs })))
}

/// Parses pairs of digits, padded with zeros to a multiple of 4 bytes.
fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let digit = |b: &u8| char::from(*b).to_digit(16);
    let pairs = text.as_bytes().chunks(2);
    let byte = |pair: &[u8]| Some((digit(pair.first()?)? << 4 | digit(pair.get(1)?)?) as u8);
    let mut bytes: Vec<u8> = pairs.map(byte).collect::<Option<_>>()?;
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    Some(bytes)
}

fn is_mpls(ethertype: u16) -> bool {
    matches!(ethertype, ethertype::MPLS | ethertype::MPLS_MCAST)
}

/// A part of a label stack entry, shifted to its position.
fn mpls_part(name: &str, value: u128) -> Option<u32> {
    let (_, shift, width) = MPLS_PARTS.iter().find(|(known, ..)| *known == name)?;
    (value < 1 << width).then_some((value as u32) << shift)
}

/// The fields of a header that can be set.
fn fields_of(header: &str) -> Option<&'static [Field]> {
    Some(match header {
        "eth" => &[Field::EthDst, Field::EthSrc],
        "ipv4" => &[Field::Ipv4Src, Field::Ipv4Dst, Field::IpDscp, Field::IpEcn, Field::IpTtl],
        "ipv6" => &[Field::Ipv6Src, Field::Ipv6Dst, Field::Ipv6Label, Field::IpDscp, Field::IpEcn, Field::IpTtl],
        "tcp" => &[Field::TcpSrc, Field::TcpDst],
        "udp" => &[Field::UdpSrc, Field::UdpDst],
        "sctp" => &[Field::SctpSrc, Field::SctpDst],
        "icmp" => &[Field::Icmpv4Type, Field::Icmpv4Code],
        "icmpv6" => &[Field::Icmpv6Type, Field::Icmpv6Code],
        "arp" => &[Field::ArpOp, Field::ArpSpa, Field::ArpTpa, Field::ArpSha, Field::ArpTha],
        "nd_ext" => &[Field::NdReserved, Field::NdOptionsType],
        "nd" => &[Field::NdTarget, Field::NdSll, Field::NdTll],
        "mpls" => &[Field::MplsLabel, Field::MplsTc, Field::MplsBos, Field::MplsTtl],
        "pbb" => &[Field::PbbIsid, Field::PbbUca],
        "vlan" => &[Field::VlanTci],
        "nsh" => &crate::SETTABLE_IN_NSH,
        "skb_priority" => &[Field::SkbPriority],
        "skb_mark" => &[Field::PktMark],
        _ => return None,
    })
}

fn set(text: &str, port: &dyn Fn(&str) -> Option<DpPort>) -> Option<Vec<DpAction>> {
    let (header, _) = text.split_once('(')?;
    let fields = fields_of(header.trim())?;
    let mut reader = Reader::new(port, Masks::Some);
    reader.behind_a_tag();
    reader.headers(text, 0, &mut Vec::new()).ok()?;
    let mut actions = Vec::new();
    for field in fields {
        // The presence of a tag cannot be set.
        let settable = if *field == Field::VlanTci { 0xefff } else { u128::MAX };
        let mask = reader.mask.get(*field) & settable;
        if mask != 0 {
            actions.push(DpAction::Set { field: *field, value: reader.key.get(*field) & mask, mask });
        }
    }
    (!actions.is_empty()).then_some(actions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::format_actions;

    fn parse(text: &str) -> Result<Vec<DpAction>, ActionsError> {
        parse_actions(text, &|name| (name == "eth0").then_some(DpPort(1)))
    }

    #[test]
    fn actions_round_trip() {
        for text in [
            "set(eth(src=00:00:00:00:00:10/00:00:00:00:00:f0,dst=00:00:00:00:00:09)),set(ipv4(ttl=63)),push_vlan(vid=7,pcp=1),2,\
             clone(pop_vlan,3)",
            "push_vlan(tpid=0x88a8,vid=1,pcp=0),trunc(64),4",
            "set(ipv4(src=10.0.0.0/255.0.0.0,dst=1.2.3.4)),set(udp(dst=53)),5",
            "set(ipv4(tos=0x20/0xfc)),set(skb_priority(0x5)),set(skb_mark(0)),set(vlan(vid=9)),1",
            "set(ipv4(tos=0x21)),set(vlan(pcp=3)),pop_vlan,set(vlan(vid=9,pcp=2)),1",
            "set(icmpv6(type=135)),set(nd_ext(nd_reserved=0x5,nd_options_type=1)),set(nd(target=fe80::1,tll=00:00:00:00:00:05)),1",
            "set(icmp(type=3,code=1)),set(sctp(src=2)),set(arp(sip=1.2.3.4,op=2,tha=00:00:00:00:00:01)),1",
            "push_mpls(label=5,tc=0,ttl=64,bos=1,eth_type=0x8847),push_mpls(label=6,tc=7,ttl=3,bos=0,eth_type=0x8848),2,\
             pop_mpls(eth_type=0x8847),3,pop_mpls(eth_type=0x800),set(ipv4(ttl=4)),1",
            "set(mpls(label=7,tc=1,ttl=3,bos=0)),1",
            "tnl_defrag(udp(4789,tnl_pop(4789)),udp(6081,tnl_pop(3)),out_port(1))",
            "tnl_defrag(tnl_pop(3,erspan(4)),out_port(1)),tnl_pop(2),tnl_pop(3,erspan(4))",
            "set(mpls(label=7/0xfffff,tc=0/0,ttl=0/0x0,bos=0/0)),1",
            "set(mpls(label=7/0xff,tc=0/0,ttl=9/0xff,bos=1/1)),1",
            "check_pkt_len(size=200,gt(set(eth(src=00:00:00:00:00:01)),1),le(check_pkt_len(size=0,gt(2),le(drop)))),3",
            "sample(sample=50.0%,actions(trunc(64),1)),sample(sample=0.1%,actions(clone(push_vlan(vid=5,pcp=0),2))),2",
            "pop_eth,push_eth(src=00:00:00:00:00:01,dst=00:00:00:00:00:02),1",
            "add_mpls(label=5,tc=0,ttl=64,bos=1,eth_type=0x8847),pop_mpls(eth_type=0x6558),1",
            "push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x123,si=255,c1=0x1,c2=0x2,c3=0x0,c4=0x5),pop_nsh(),1",
            "push_nsh(flags=3,ttl=0,mdtype=2,np=1,spi=0x0,si=2,md2=0x10000104aabbccdd),1",
            "set(nsh(flags=2,ttl=4,spi=0x7,si=6)),set(ipv4(ttl=1)),set(nsh(c2=0x6/0x0000000f)),1",
            "push_pbb(isid=0x123456,uca=1,pcp=7,dei=1),set(pbb(isid=0x5/0xff,uca=0)),1,pop_pbb,push_pbb(isid=0,uca=0,pcp=0,dei=0),1",
            "meter(0),meter(4294967295),1",
            "lb_output(1),2,pop_vlan,lb_output(4294967295)",
            "sample(sample=100.0%,actions(1)),clone(drop)",
            "ct,recirc(0x1),ct_clear,clone(ct(commit),1),ct(zone=65535),ct(nat)",
            "drop",
        ] {
            let actions = parse(text).unwrap();
            assert_eq!(format_actions(&actions, 0x800, &|_| None), text);
        }
        let v6 = "set(ipv6(dst=fe80::1,tclass=0x20/0xfc,hlimit=3)),1";
        assert_eq!(format_actions(&parse(v6).unwrap(), 0x86dd, &|_| None), v6);
        assert_eq!(parse("eth0 2").unwrap(), [DpAction::Output(DpPort(1)), DpAction::Output(DpPort(2))]);
        assert_eq!(parse("").unwrap(), []);
        let bond = |id| vec![DpAction::LbOutput(BondId(id))];
        for (text, id) in [("lb_output( 1)", 1), ("lb_output(4294967296)", 0), ("lb_output(-1)", u32::MAX)] {
            assert_eq!(parse(text).unwrap(), bond(id), "{text}");
        }
    }

    #[test]
    fn errors_name_the_offending_part() {
        let error = |text: &str| parse(text).unwrap_err().to_string();
        assert_eq!(error("1,eth9,2"), "syntax error at eth9,2");
        assert_eq!(error("set(eth())"), "syntax error at set(eth())");
        assert_eq!(error("set(ct(1))"), "syntax error at set(ct(1))");
        assert_eq!(error("trunc(x)"), "syntax error at trunc(x)");
        for wrong in [
            "push_eth(src=00:00:00:00:00:01)",
            "push_nsh(flags=4)",
            "push_nsh(mdtype=2,c1=1)",
            "push_nsh(mdtype=2,md2=0x1)",
            "push_nsh(spi=16777216)",
            "pop_nsh",
            "recirc(0)",
            "recirc(4294967296)",
            "hash(l4)",
            "hash(l5(0))",
            "hash(l4(4294967296))",
            "meter(4294967296)",
            "meter()",
            "meter",
            "lb_output",
            "lb_output()",
            "lb_output(x)",
            "lb_output(0x10)",
            "lb_output(1x)",
            "lb_output(1 )",
            "check_pkt_len(size=65536,gt(1),le(2))",
            "check_pkt_len(size=1,gt(1))",
            "check_pkt_len(size=1,le(1),gt(2))",
            "check_pkt_len(size=1,gt(1),le(2),3)",
            "sample(sample=101%,actions(1))",
            "sample(sample=1e1%,actions(1))",
            "sample(sample=inf%,actions(1))",
            "sample(sample=50,actions(1))",
            "sample(sample=50%)",
            "push_mpls(label=1048576,tc=0,ttl=0,bos=1,eth_type=0x8847)",
            "push_mpls(label=1,bos=2)",
            "push_mpls(label=1,eth_type=0x800)",
            "pop_mpls",
            "push_pbb",
            "push_pbb(isid=16777216)",
            "push_pbb(pcp=8)",
            "pop_pbb()",
            "pop_mpls(0x800)",
            "pop_mpls(eth_type=0x10000)",
        ] {
            assert_eq!(error(wrong), format!("syntax error at {wrong}"));
        }
        assert_eq!(error("clone(1"), "syntax error at clone(1");
        assert_eq!(error("userspace(pid=0)"), "syntax error at userspace(pid=0)");
        let defaults = parse("push_nsh(),push_nsh(mdtype=2,md2=0x010203040506)").unwrap();
        assert_eq!(
            format_actions(&defaults, 0, &|_| None),
            "push_nsh(flags=0,ttl=63,mdtype=1,np=3,spi=0x0,si=255,c1=0x0,c2=0x0,c3=0x0,c4=0x0),\
             push_nsh(flags=0,ttl=63,mdtype=2,np=3,spi=0x0,si=255,md2=0x0102030405060000)"
        );
        assert_eq!(error("sample(sample=5%,actions(1,eth9))"), "syntax error at eth9");
        assert_eq!(
            parse("check_pkt_len(size=65535,gt(),le())").unwrap(),
            [DpAction::CheckPktLen { size: 65535, greater: [].into(), lesser: [].into() }]
        );
        assert_eq!(
            parse("sample(sample=100%,actions())").unwrap(),
            [DpAction::Sample { probability: u32::MAX, actions: [].into() }]
        );
        assert!(parse(&("clone(".repeat(500) + &")".repeat(500))).is_err());
    }
}
