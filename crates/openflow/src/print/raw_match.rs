//! Prints matches of flow mods as they are on the wire, for high verbosity: the fields of OpenFlow 1.0 with `*` for
//! wildcards, and Nicira's entries by name.

use super::Style;
use crate::Version;
use crate::nxm;
use crate::of_match::of10;
use crate::types::{Head, MessageKind};
use crate::wire::{Reader, Result};
use base::PortNo;
use flow::extract::{ethertype, ipproto};
use std::fmt::Write;
use std::net::Ipv4Addr;

/// Bytes of Nicira's flow mod before the length of its match, and from there to the match.
const BEFORE_LENGTH: usize = 24;
const PAD: usize = 6;

/// Returns the match of a flow mod in one of the older formats; `None` for other messages.
pub(super) fn raw_match(head: &Head<'_>, style: Style<'_>) -> Option<String> {
    let mut body = head.body.clone();
    match head.row.kind {
        MessageKind::FlowMod if head.version == Version::V10 => of10_fields(&mut body, style).ok(),
        MessageKind::NxFlowMod => entries(&mut body).ok(),
        _ => None,
    }
}

fn entries(r: &mut Reader<'_>) -> Result<String> {
    r.skip(BEFORE_LENGTH)?;
    let length = usize::from(r.u16()?);
    r.skip(PAD)?;
    Ok(nxm::entries_to_string(r.bytes(length)?))
}

/// The protocol's name, and whether it implies the IP protocol.
fn protocol(eth_type: u16, ip_proto: Option<u8>) -> Option<(&'static str, bool)> {
    Some(match (eth_type, ip_proto) {
        (ethertype::IPV4, Some(ipproto::ICMP)) => ("icmp", true),
        (ethertype::IPV4, Some(ipproto::TCP)) => ("tcp", true),
        (ethertype::IPV4, Some(ipproto::UDP)) => ("udp", true),
        (ethertype::IPV4, Some(ipproto::SCTP)) => ("sctp", true),
        (ethertype::IPV4, _) => ("ip", false),
        (ethertype::ARP, _) => ("arp", false),
        (ethertype::RARP, _) => ("rarp", false),
        (ethertype::MPLS, _) => ("mpls", false),
        (ethertype::MPLS_MCAST, _) => ("mplsm", false),
        _ => return None,
    })
}

fn of10_fields(r: &mut Reader<'_>, style: Style<'_>) -> Result<String> {
    let wildcards = r.u32()?;
    let in_port = r.u16()?;
    let (dl_src, dl_dst) = (r.mac()?, r.mac()?);
    let (dl_vlan, dl_vlan_pcp) = (r.u16()?, r.u8()?);
    r.skip(1)?;
    let dl_type = r.u16()?;
    let (nw_tos, nw_proto) = (r.u8()?, r.u8()?);
    r.skip(2)?;
    let (nw_src, nw_dst) = (Ipv4Addr::from(r.u32()?), Ipv4Addr::from(r.u32()?));
    let (tp_src, tp_dst) = (r.u16()?, r.u16()?);

    let is_wild = |bit: u32| wildcards & bit != 0;
    let mut out = String::new();
    let mut field = |name: &str, bit: u32, value: &dyn std::fmt::Display| {
        if is_wild(bit) {
            put!(out, "{name}=*,");
        } else {
            put!(out, "{name}={value},");
        }
    };
    let exact_proto = (!is_wild(of10::NW_PROTO)).then_some(nw_proto);
    let name = (!is_wild(of10::DL_TYPE)).then(|| protocol(dl_type, exact_proto)).flatten();
    let port = {
        let mut port = String::new();
        style.port(PortNo::from_of10(in_port), &mut port);
        port
    };
    field("in_port", of10::IN_PORT, &port);
    field("dl_vlan", of10::DL_VLAN, &dl_vlan);
    field("dl_vlan_pcp", of10::DL_VLAN_PCP, &dl_vlan_pcp);
    field("dl_src", of10::DL_SRC, &dl_src);
    field("dl_dst", of10::DL_DST, &dl_dst);
    if name.is_none() {
        field("dl_type", of10::DL_TYPE, &format!("0x{dl_type:04x}"));
    }
    for (name, address, shift) in [("nw_src", nw_src, of10::NW_SRC_SHIFT), ("nw_dst", nw_dst, of10::NW_DST_SHIFT)] {
        match wildcards >> shift & 0x3f {
            0 => field(name, 0, &address),
            bits @ 1..32 => field(name, 0, &format!("{address}/{}", 32 - bits)),
            _ => field(name, u32::MAX, &address),
        }
    }
    if !name.is_some_and(|(_, implied)| implied) {
        let is_arp = matches!(dl_type, ethertype::ARP | ethertype::RARP);
        field(if is_arp { "arp_op" } else { "nw_proto" }, of10::NW_PROTO, &nw_proto);
    }
    field("nw_tos", of10::NW_TOS, &nw_tos);
    let (src, dst) = if nw_proto == ipproto::ICMP { ("icmp_type", "icmp_code") } else { ("tp_src", "tp_dst") };
    field(src, of10::TP_SRC, &tp_src);
    field(dst, of10::TP_DST, &tp_dst);
    out.pop();
    Ok(name.map_or(String::new(), |(name, _)| format!("{name},")) + &out)
}

#[cfg(test)]
mod tests {
    use crate::message::{Form, Message, Options, encode_with};
    use crate::print::{Style, print};
    use crate::{FlowModCommand, Version, parse_flow};
    use flow::NoNames;

    /// The line for a flow in this form of OpenFlow 1.0, after the header.
    fn line(text: &str, form: Form) -> String {
        let flow = parse_flow(text, FlowModCommand::Add, &NoNames).expect(text);
        let message = Message::FlowMod(form, Box::new(flow.flow_mod));
        let bytes = encode_with(Version::V10, 1, &message, Options::default());
        let text = print(&bytes, Style::plain(3));
        text.split_once("ADD ").map_or("", |(_, line)| line.trim_end()).to_owned()
    }

    #[test]
    fn matches_of_openflow_10_show_their_wildcards() {
        for (text, shown) in [
            (
                "actions=drop",
                "in_port=*,dl_vlan=*,dl_vlan_pcp=*,dl_src=*,dl_dst=*,dl_type=*,nw_src=*,nw_dst=*,nw_proto=*,nw_tos=*,\
                 tp_src=*,tp_dst=* actions=drop",
            ),
            (
                "priority=7,tcp,tp_src=80,nw_dst=1.2.3.4,actions=1",
                "tcp,in_port=*,dl_vlan=*,dl_vlan_pcp=*,dl_src=*,dl_dst=*,nw_src=*,nw_dst=1.2.3.4,nw_tos=*,tp_src=80,\
                 tp_dst=* pri:7 actions=output:1",
            ),
            (
                "in_port=LOCAL,dl_vlan=5,dl_vlan_pcp=3,ip,nw_src=10.0.0.0/8,nw_tos=32,actions=1",
                "ip,in_port=LOCAL,dl_vlan=5,dl_vlan_pcp=3,dl_src=*,dl_dst=*,nw_src=10.0.0.0/8,nw_dst=*,nw_proto=*,\
                 nw_tos=32,tp_src=*,tp_dst=* actions=output:1",
            ),
            (
                "dl_vlan=0xffff,dl_type=0x1234,actions=drop",
                "in_port=*,dl_vlan=65535,dl_vlan_pcp=0,dl_src=*,dl_dst=*,dl_type=0x1234,nw_src=*,nw_dst=*,nw_proto=*,\
                 nw_tos=*,tp_src=*,tp_dst=* actions=drop",
            ),
            (
                "arp,arp_op=2,actions=drop",
                "arp,in_port=*,dl_vlan=*,dl_vlan_pcp=*,dl_src=*,dl_dst=*,nw_src=*,nw_dst=*,arp_op=2,nw_tos=*,tp_src=*,\
                 tp_dst=* actions=drop",
            ),
            (
                "icmp,icmp_type=8,actions=drop",
                "icmp,in_port=*,dl_vlan=*,dl_vlan_pcp=*,dl_src=*,dl_dst=*,nw_src=*,nw_dst=*,nw_tos=*,icmp_type=8,\
                 icmp_code=* actions=drop",
            ),
        ] {
            assert_eq!(line(text, Form::Standard), shown, "{text}");
        }
    }

    #[test]
    fn matches_of_nicira_show_their_entries() {
        for (text, shown) in [
            ("actions=drop", "<any> actions=drop"),
            (
                "tcp,idle_timeout=5,priority=60000,actions=1",
                "NXM_OF_ETH_TYPE(0800), NXM_OF_IP_PROTO(06) idle:5 pri:60000 actions=output:1",
            ),
            (
                "ip,nw_dst=1.2.3.4/31,cookie=9,actions=drop",
                "NXM_OF_ETH_TYPE(0800), NXM_OF_IP_DST_W(01020304/fffffffe) cookie:0x9 actions=drop",
            ),
        ] {
            assert_eq!(line(text, Form::Nicira), shown, "{text}");
        }
    }
}
