//! Tests of parsing and formatting matches, and of the error messages.

use super::*;
use crate::extract::extract;
use crate::{Field, FlowKey, Match};

/// Parses, normalizes and formats.
fn canonical(text: &str) -> Result<String, String> {
    let mut m = parse_match(text, &NoNames).map_err(|e| e.to_string())?;
    m.normalize(&NoNames);
    Ok(match_to_string(&m, &NoNames))
}

fn ok(text: &str, expected: &str) {
    assert_eq!(canonical(text).as_deref(), Ok(expected), "{text}");
}

fn err(text: &str, expected: &str) {
    assert_eq!(canonical(text), Err(expected.to_string()), "{text}");
}

#[test]
fn protocols_and_ports() {
    ok("tcp,in_port=1,nw_src=10.0.0.0/8,tp_dst=80", "tcp,in_port=1,nw_src=10.0.0.0/8,tp_dst=80");
    ok("ip,nw_proto=6,tp_src=5", "tcp,tp_src=5");
    ok("tcp,udp", "udp");
    ok("udp,udp_src=0x10/0xfff0", "udp,tp_src=0x10/0xfff0");
    ok("sctp6,tp_dst=0/1", "sctp6,tp_dst=0x0/0x1");
    ok("arp,nw_proto=3", "arp,arp_op=3");
    ok("arp,arp_op=300", "arp,arp_op=44");
    ok("nw_src=1.2.3.4,arp", "arp,arp_spa=1.2.3.4");
    ok("in_port=65534", "in_port=LOCAL");
    ok("in_port=flood", "in_port=FLOOD");
    ok("in_port=65280", "in_port=65280");
    ok("in_port=none", "in_port=ANY");
    ok("eth,tcp", "tcp");
    ok("recirc_id=3,tcp", "recirc_id=0x3,eth,tcp");
    ok("packet_type=(1,0x800),nw_src=1.1.1.1", "packet_type=(1,0x800),nw_src=1.1.1.1");
}

#[test]
fn vlans() {
    for (text, expected) in [
        ("dl_vlan=0xffff", "vlan_tci=0x0000"),
        ("dl_vlan=5,dl_vlan_pcp=3", "dl_vlan=5,dl_vlan_pcp=3"),
        ("dl_vlan=4096", "dl_vlan=0"),
        ("dl_vlan=5,dl_vlan=6", "dl_vlan=6"),
        ("dl_vlan_pcp=3,dl_vlan=6", "dl_vlan=6,dl_vlan_pcp=3"),
        ("dl_vlan_pcp=8", "dl_vlan_pcp=0"),
        ("vlan_vid=0x1000/0x1000", "vlan_tci=0x1000/0x1000"),
        ("vlan_vid=0x1000/0x1000,vlan_pcp=3", "dl_vlan_pcp=3"),
        ("vlan_vid=5", "vlan_tci=0x0005/0x1fff"),
        ("vlan_vid=0x1005", "dl_vlan=5"),
        ("vlan_tci=0x1005", "dl_vlan=5,dl_vlan_pcp=0"),
        ("vlan_tci=0/0xfff", "vlan_tci=0x0000/0x0fff"),
        ("vlan_tci=0x1000/0xefff", "vlan_tci=0x0000/0xefff"),
        ("dl_vlan=0xffff,dl_vlan_pcp=3", "dl_vlan=0,dl_vlan_pcp=3"),
    ] {
        ok(text, expected);
    }
}

#[test]
fn flags_and_fragments() {
    ok("ct_state=+trk-new,ip", "ct_state=-new+trk,ip");
    ok("ct_state=trk|new", "ct_state=new|trk");
    ok("ct_state=0x21/0x21", "ct_state=+new+trk");
    ok("ct_state=0", "ct_state=0");
    ok("ct_state=", "");
    ok("tcp,tcp_flags=+[200]", "tcp,tcp_flags=+[200]");
    ok("tcp,tcp_flags=0/0x100", "tcp,tcp_flags=-ns");
    ok("tun_flags=oam", "tun_flags=+oam");
    ok("tun_flags=0", "tun_flags=-oam");
    ok("ip,ip_frag=not_later", "ip,nw_frag=not_later");
    // Parts of the field have other names than the whole; a later fragment without bit 0 has none.
    for (bits, name) in [
        ("[0]=0", "no"),
        ("[0]=1", "yes"),
        ("[1]=0", "not_later"),
        ("[1]=1", "later"),
        ("[0..1]=0", "no"),
        ("[0..1]=1", "first"),
        ("[0..1]=2", "<error>"),
        ("[]=3", "later"),
    ] {
        ok(&format!("ip,nw_frag{bits}"), &format!("ip,nw_frag={name}"));
    }
    err("ct_state=+foo", "foo: unknown ct_state flag(s)");
    err("ct_state=+trk|new", "trk|new: unknown ct_state flag(s)");
    err("ct_state=+trk+trk", "trk: Each ct_state flag can be specified only once");
    err("tcp,tcp_flags=0x1000", "0x1000: unknown TCP flag(s)");
    err("tun_flags=2", "2: unknown tunnel flag(s)");
}

#[test]
fn errors() {
    for (text, expected) in [
        ("nosuch=3", "unknown keyword nosuch"),
        ("igmp", "field igmp missing value"),
        ("nw_src", "0/0: invalid IP address"),
        ("nw_src=1.2.3.4/33", "1.2.3.4/33: IPv4 network prefix bits not between 0 and 32, inclusive"),
        ("ipv6_src=::1/129", "::1/129: IPv6 network prefix bits not between 0 and 128, inclusive"),
        ("dl_src=foo", "foo: invalid Ethernet address"),
        ("dl_type=0x10000", "0x10000: value too large for 2-byte field eth_type"),
        ("dl_type=0800", "0800: bad syntax for eth_type value"),
        ("reg0=-1", "-1: value too large for 4-byte field reg0"),
        ("reg0=1/x", "1/x: bad syntax for reg0 mask"),
        ("reg0=5/-1", "5/-1: mask too large for 4-byte field reg0"),
        ("dl_vlan=5/5", "5/5: invalid mask for field dl_vlan"),
        ("in_port=foo", "foo: invalid or unknown port for in_port"),
        ("packet_type=5", "5: bad syntax for packet type missing '('"),
        ("packet_type=(0,0", "0: bad syntax for packet type missing ')'"),
        ("packet_type=(0", "0: bad syntax for packet type missing ','"),
        ("packet_type=(0 ,0)", "0 ,0): bad syntax for packet type missing ','"),
        ("packet_type=(x,0)", "x,0): bad syntax for packet type ns"),
        ("packet_type=(0,0x10000)", "0x10000): bad syntax for packet type ns_type"),
        ("ipv6_label=0x100000", "0x100000 is not a valid value for field ipv6_label"),
        ("reg0[0..3]=16", "reg0[0..3]: value 0x10 does not fit into 4 bits"),
        ("reg0[5..3]=1", "reg0[5..3]: starting bit 5 is after ending bit 3"),
        ("reg0[33]=1", "reg0[33]: starting bit 33 is not valid because field is only 32 bits wide"),
        ("nosuch[]=1", "nosuch[]: unknown field `nosuch'"),
        ("NXM_NX_REG0=1", "unknown keyword NXM_NX_REG0"),
    ] {
        err(text, expected);
    }
}

#[test]
fn bits_of_fields() {
    ok("reg0[0..3]=5", "reg0=0x5/0xf");
    ok("NXM_NX_REG0[4..7]=5", "reg0=0x50/0xf0");
    ok("reg0[0..3]=5,reg0[8]=1", "reg0=0x105/0x10f");
    ok("xreg0=5/0xff00000000", "reg0=0/0xff");
    ok("tcp,NXM_OF_TCP_SRC[]=80", "tcp,tp_src=80");
}

#[test]
fn normalization() {
    let mut m = parse_match("arp,nw_tos=4", &NoNames).expect("valid");
    let n = m.normalize(&NoNames).expect("changed");
    assert_eq!((n.pre.as_str(), n.post.as_str()), ("arp,nw_tos=4", "arp"));
    assert_eq!(m.normalize(&NoNames), None);
    // No message names fields that no format of a flow carries without their prerequisites.
    for (text, change, left) in [
        ("arp,nw_frag=later", None, "arp"),
        ("udp,tcp_flags=+ack", None, "udp"),
        ("arp,nw_ttl=5,nw_frag=yes", Some(("arp,nw_ttl=5,nw_frag=yes", "arp,nw_frag=yes")), "arp"),
    ] {
        let mut m = parse_match(text, &NoNames).expect("valid");
        let found = m.normalize(&NoNames);
        assert_eq!(found.as_ref().map(|n| (n.pre.as_str(), n.post.as_str())), change, "{text}");
        assert_eq!(match_to_string(&m, &NoNames), left, "{text}");
    }
    assert_eq!(canonical("icmp6,icmp_type=135,nd_target=::1").as_deref(), Ok("icmp6,icmp_type=135,nd_target=::1"));
}

fn exact(text: &str) -> Result<String, String> {
    parse_exact(text, &NoNames).map(|k| flow_key_to_string(&k, &NoNames)).map_err(|e| e.to_string())
}

#[test]
fn keys_from_text() {
    const MACS: &str = "dl_src=00:00:00:00:00:00,dl_dst=00:00:00:00:00:00";
    const IP: &str = "nw_tos=0,nw_ecn=0,nw_ttl=0,nw_frag=no";
    for (text, expected) in [
        ("in_port=1,dl_vlan=5", format!("in_port=1,dl_vlan=5,dl_vlan_pcp=0,vlan_tci1=0x0000,{MACS},dl_type=0x0000")),
        ("in_port=1,vlan_tci=5", format!("in_port=1,vlan_tci=0x0005,vlan_tci1=0x0000,{MACS},dl_type=0x0000")),
        ("in_port=LOCAL,actset_output=3", format!("in_port=LOCAL,vlan_tci=0x0000,{MACS},dl_type=0x0000")),
        (
            "tcp",
            format!(
                "tcp,in_port=ANY,vlan_tci=0x0000,{MACS},nw_src=0.0.0.0,nw_dst=0.0.0.0,{IP},tp_src=0,tp_dst=0,tcp_flags=0"
            ),
        ),
        (
            "conj_id=5,recirc_id=3,dp_hash=7,in_port=1",
            format!("recirc_id=0x3,dp_hash=0x7,eth,in_port=1,vlan_tci=0x0000,{MACS},dl_type=0x0000"),
        ),
        (
            "in_port=1,tun_tos=16,tun_dst=1.1.1.1",
            format!(
                "tun_src=0.0.0.0,tun_dst=1.1.1.1,tun_ipv6_src=::,tun_ipv6_dst=::,tun_gbp_id=0,tun_gbp_flags=0,tun_tos=10,\
                 tun_ttl=0,tun_erspan_ver=0,gtpu_flags=0,gtpu_msgtype=0,tun_flags=0,in_port=1,vlan_tci=0x0000,{MACS},\
                 dl_type=0x0000"
            ),
        ),
    ] {
        assert_eq!(exact(text), Ok(expected), "{text}");
    }
    for (text, expected) in [
        ("in_port=1,foo=3", "unknown field foo"),
        ("in_port=1,eth", "unknown field eth"),
        ("tcp,udp", "Ethernet type set multiple times"),
        ("reg0=1,reg0=2", "field reg0 set multiple times"),
        ("nw_src=1.2.3.4", "prerequisites not met for setting nw_src"),
        ("icmp6,icmp_type=135", "prerequisites not met for setting icmp_type"),
        ("tcp,tp_dst=80/0xff", "bad value for tp_dst (80/0xff: wildcards not allowed here)"),
        ("udp,nw_frag=yes", "bad value for nw_frag (yes: wildcards not allowed here)"),
        ("ct_state=+trk", "bad value for ct_state (+trk: wildcards not allowed here)"),
        ("reg0", "bad value for reg0 (: bad syntax for reg0 value)"),
        ("in_port=zz", "bad value for in_port (zz: invalid or unknown port for in_port)"),
    ] {
        assert_eq!(exact(text), Err(expected.to_string()), "{text}");
    }
}

#[test]
fn values_of_actions() {
    let value = |field: Field, text: &str| {
        let (value, mask) = parse_value(field, text, &NoNames).map_err(|e| e.to_string())?;
        let mut out = String::new();
        format_value(field, value, mask, &NoNames, &mut out);
        Ok::<_, String>((out, field.info().is_valid(value)))
    };
    for (field, text, expected, valid) in [
        (Field::TcpDst, "5", "5", true),
        (Field::Reg0, "0", "0", true),
        (Field::Metadata, "5", "0x5", true),
        (Field::VlanVid, "0x1005", "4101", true),
        (Field::InPort, "local", "LOCAL", true),
        (Field::TunFlags, "oam", "oam", true),
        (Field::MplsLabel, "0x100000", "1048576", false),
        (Field::DlVlan, "4096", "4096", false),
        (Field::IpEcn, "5", "5", false),
        (Field::IpDscpShifted, "3", "3", false),
        (Field::ArpOp, "300", "300", false),
        (Field::TunErspanDir, "5", "5", true),
        (Field::PacketType, "(1,0x800)", "(1,0x800)", true),
        (Field::EthSrc, "1:2:3:4:5:6/ff:0:0:0:0:0", "01:00:00:00:00:00/ff:00:00:00:00:00", true),
    ] {
        assert_eq!(value(field, text), Ok((expected.to_string(), valid)), "{field} {text}");
    }
}

struct Names;

impl PortNames for Names {
    fn number(&self, name: &str) -> Option<PortNo> {
        (name == "p 1").then_some(PortNo(1)).or((name == "eth0").then_some(PortNo(2)))
    }

    fn name(&self, port: PortNo) -> Option<String> {
        match port.0 {
            1 => Some("p 1".into()),
            2 => Some("eth0".into()),
            _ => None,
        }
    }
}

#[test]
fn port_names() {
    let m = parse_match("in_port=\"p 1\"", &Names).expect("valid");
    assert_eq!(match_to_string(&m, &Names), "in_port=\"p 1\"");
    let m = parse_match("in_port=eth0,tcp", &Names).expect("valid");
    assert_eq!(match_to_string(&m, &Names), "tcp,in_port=eth0");
    assert_eq!(match_to_string(&m, &NoNames), "tcp,in_port=2");
    assert_eq!(match_fields(&m, &Names), [("tcp".into(), String::new()), ("in_port".into(), "eth0".into())]);
}

#[test]
fn keys_and_megaflows() {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0];
    frame.extend([0x45, 0, 0, 28, 0, 1, 0, 0, 64, 1, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 8, 0, 0, 0, 0, 0, 0, 0]);
    let (key, _) = extract(&frame, PortNo(1));
    assert_eq!(
        flow_key_to_string(&key, &NoNames),
        "icmp,in_port=1,vlan_tci=0x0000,dl_src=02:00:00:00:00:02,dl_dst=02:00:00:00:00:01,nw_src=10.0.0.1,\
         nw_dst=10.0.0.2,nw_tos=0,nw_ecn=0,nw_ttl=64,nw_frag=no,icmp_type=8,icmp_code=0"
    );
    let m = parse_match("ip,in_port=1,nw_frag=no", &NoNames).expect("valid");
    assert_eq!(megaflow_to_string(&m, &NoNames), "recirc_id=0,eth,ip,in_port=1,nw_frag=no");
    assert_eq!(match_to_string(&Match::ANY, &NoNames), "");
}

#[test]
fn icmp_types_of_megaflows_have_masks_of_8_bits() {
    let megaflow = |text: &str, mask: &[(Field, u128)]| {
        let mut m = parse_match(text, &NoNames).expect("valid");
        let mut whole = m.mask().clone();
        mask.iter().for_each(|(field, bits)| whole.add_mask(*field, *bits));
        m = Match::new(m.key(), whole);
        megaflow_to_string(&m, &NoNames)
    };
    assert_eq!(megaflow("icmp,icmp_type=8", &[]), "recirc_id=0,eth,icmp,icmp_type=0x8/0xff");
    // Look-ups that compare ports read bits above the type, which are always zero.
    let ports = [(Field::TcpSrc, 0xffff), (Field::TcpDst, 0xfff0)];
    assert_eq!(megaflow("icmp,icmp_type=8", &ports), "recirc_id=0,eth,icmp,icmp_type=0x8/0xff,icmp_code=0x0/0xf0");
    assert_eq!(megaflow("icmp6", &[(Field::TcpSrc, 0xff00)]), "recirc_id=0,eth,icmp6");
    assert_eq!(
        megaflow("icmp6,icmp_type=135,icmp_code=0", &[]),
        "recirc_id=0,eth,icmp6,icmp_type=0x87/0xff,icmp_code=0x0/0xff"
    );
    // Flows name them in decimal, and ports keep 16 bits.
    let m = parse_match("icmp,icmp_type=8", &NoNames).expect("valid");
    assert_eq!(match_to_string(&m, &NoNames), "icmp,icmp_type=8");
    assert_eq!(megaflow("tcp,tp_src=8", &[]), "recirc_id=0,eth,tcp,tp_src=8");
    // Absent tags are left out.
    assert_eq!(megaflow("tcp,vlan_tci=0", &[]), "recirc_id=0,eth,tcp");
}

#[test]
fn packets_have_a_key_of_their_tunnel_if_its_flag_is_set() {
    let id_of = |key: &FlowKey| {
        let text = flow_key_to_string(key, &NoNames);
        text.split(',').find(|part| part.starts_with("tun_id=")).map(str::to_owned)
    };
    let mut key = parse_exact("in_port=1,tun_id=5,tun_dst=1.2.3.4", &NoNames).expect("a flow");
    assert_eq!(id_of(&key), None);
    key.set(Field::TunFlags, super::flags::TUNNEL_KEY);
    assert_eq!(id_of(&key).as_deref(), Some("tun_id=0x5"));
    // A packet that comes from no tunnel may have one set.
    let key = parse_exact("in_port=1,tun_id=5", &NoNames).expect("a flow");
    assert_eq!(id_of(&key).as_deref(), Some("tun_id=0x5"));
}

#[test]
fn a_tag_in_an_exact_flow_is_an_8021q_tag() {
    let key = |text| parse_exact(text, &NoNames).expect("a flow");
    assert_eq!(key("dl_vlan=5,dl_vlan_pcp=3").vlan(0), (0x8100, 0x7005));
    assert_eq!(key("vlan_tci=0").vlan(0), (0, 0));
}

#[test]
fn packets_without_an_ethernet_header() {
    let key = parse_exact("in_port=1,packet_type=(1,0x800),nw_src=1.2.3.4", &NoNames).expect("valid");
    assert_eq!(key.eth_type(), 0x800);
    assert_eq!(
        flow_key_to_string(&key, &NoNames),
        "packet_type=(1,0x800),in_port=1,nw_src=1.2.3.4,nw_dst=0.0.0.0,nw_proto=0,nw_tos=0,nw_ecn=0,nw_ttl=0,nw_frag=no"
    );
}

#[test]
fn names_are_quoted_unless_made_of_letters_and_digits() {
    for (name, written) in [
        ("abc", "abc"),
        ("A9", "A9"),
        ("any", "any"),
        ("a_b", "\"a_b\""),
        ("_x", "\"_x\""),
        ("br-int", "\"br-int\""),
        ("x.y", "\"x.y\""),
        ("9p", "\"9p\""),
        ("\u{e9}", "\"\u{e9}\""),
        ("a\"b", "\"a\\\"b\""),
        ("a\\b", "\"a\\\\b\""),
        ("a\u{1}b", "\"a\\u0001b\""),
        ("", "\"\""),
    ] {
        assert_eq!(quoted_if_needed(name), written);
    }
}
