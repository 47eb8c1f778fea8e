//! Random texts of matches, valid and damaged.

use base::rng::Rng;
use std::net::{Ipv4Addr, Ipv6Addr};

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

fn one_in(rng: &mut Rng, n: u64) -> bool {
    rng.below(n) == 0
}

/// A number of at most `bits` bits, often a small one.
fn bits(rng: &mut Rng, bits: u32) -> u128 {
    let n = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
    let width = if one_in(rng, 2) { bits } else { 1 + rng.below(bits.into()) as u32 };
    if width >= 128 { n } else { n & ((1 << width) - 1) }
}

fn number(rng: &mut Rng, width: u32) -> String {
    let n = bits(rng, width);
    if n > u128::from(u64::MAX) || one_in(rng, 2) { format!("{n:#x}") } else { n.to_string() }
}

/// A number, often with a mask.
fn masked(rng: &mut Rng, width: u32) -> String {
    let value = number(rng, width);
    match rng.below(6) {
        0 | 1 => format!("{value}/{:#x}", bits(rng, width)),
        2 if width < 64 => format!("{value}/{}", (1u64 << width) - 1),
        _ => value,
    }
}

fn mac(rng: &mut Rng) -> String {
    let address = |rng: &mut Rng| base::MacAddr::from_u64(bits(rng, 48) as u64).to_string();
    let value = address(rng);
    if one_in(rng, 3) { format!("{value}/{}", address(rng)) } else { value }
}

fn ipv4(rng: &mut Rng) -> String {
    let value = Ipv4Addr::from(bits(rng, 32) as u32);
    match rng.below(5) {
        0 => format!("{value}/{}", Ipv4Addr::from(bits(rng, 32) as u32)),
        1 | 2 => format!("{value}/{}", rng.below(33)),
        _ => value.to_string(),
    }
}

fn ipv6(rng: &mut Rng) -> String {
    let address = |rng: &mut Rng| {
        let mut groups: [u16; 8] = std::array::from_fn(|_| if one_in(rng, 2) { 0 } else { rng.next_u64() as u16 });
        if one_in(rng, 6) {
            groups[..5].fill(0);
        }
        Ipv6Addr::from(groups)
    };
    let value = address(rng);
    match rng.below(5) {
        // `ovs-ofctl` parses a mask that begins with a digit as a prefix length.
        0 => format!("{value}/{}", Ipv6Addr::from(u128::from(address(rng)) | 0xf << 124)),
        1 | 2 => format!("{value}/{}", rng.below(129)),
        _ => value.to_string(),
    }
}

fn flags(rng: &mut Rng, names: &[&str]) -> String {
    let mut out = String::new();
    match rng.below(4) {
        0 => {
            for name in names.iter().filter(|_| rng.below(2) == 0) {
                if !out.is_empty() {
                    out.push('|');
                }
                out.push_str(name);
            }
            if out.is_empty() { "0".into() } else { out }
        }
        1 => masked(rng, names.len() as u32),
        _ => {
            let first = rng.below(names.len() as u64) as usize;
            for (i, name) in names.iter().enumerate() {
                if i == first || one_in(rng, 3) {
                    out.push(pick(rng, &['+', '-']));
                    out.push_str(name);
                }
            }
            out
        }
    }
}

const CT: [&str; 8] = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];
const TCP: [&str; 12] = ["fin", "syn", "rst", "psh", "ack", "urg", "ece", "cwr", "ns", "[200]", "[400]", "[800]"];

fn port(rng: &mut Rng) -> String {
    match rng.below(6) {
        0 => pick(rng, &["LOCAL", "local", "IN_PORT", "controller", "none", "ANY", "Flood"]).into(),
        1 => pick(rng, &["65534", "65280", "4294967294", "0", "0065"]).into(),
        _ => rng.below(0xff00).to_string(),
    }
}

fn metadata(rng: &mut Rng) -> String {
    match rng.below(20) {
        0..=4 => format!("in_port={}", port(rng)),
        5 => format!("reg{}={}", rng.below(32), masked(rng, 32)),
        6 => format!("xreg{}={}", rng.below(16), masked(rng, 64)),
        7 => format!("xxreg{}={}", rng.below(8), masked(rng, 128)),
        8 => {
            let (a, n) = (rng.below(32), rng.below(32));
            let (lo, hi) = (a.min(n), a.max(n));
            format!("reg{}[{lo}..{hi}]={}", rng.below(32), number(rng, (hi - lo + 1) as u32))
        }
        9 => format!("metadata={}", masked(rng, 64)),
        10 => format!("pkt_mark={}", masked(rng, 32)),
        11 => format!("ct_mark={}", masked(rng, 32)),
        12 => format!("ct_label={}", masked(rng, 128)),
        13 => format!("ct_zone={}", number(rng, 16)),
        14 => format!("ct_state={}", flags(rng, &CT)),
        15 => format!("{}={}", pick(rng, &["tun_id", "tunnel_id"]), masked(rng, 64)),
        16 => format!("{}={}", pick(rng, &["tun_src", "tun_dst"]), ipv4(rng)),
        17 => format!("{}={}", pick(rng, &["tun_ipv6_src", "tun_ipv6_dst"]), ipv6(rng)),
        18 => match rng.below(5) {
            0 => format!("tun_gbp_id={}", masked(rng, 16)),
            1 => format!("tun_gbp_flags={}", masked(rng, 8)),
            2 => format!("tun_flags={}", flags(rng, &["oam"])),
            3 => format!("tun_erspan_ver=1,tun_erspan_idx={}", 1 + rng.below(0xf_ffff)),
            _ => "tun_flags=0/1".into(),
        },
        _ => match rng.below(4) {
            1 => format!("dp_hash={}", masked(rng, 32)),
            2 => format!("conj_id={}", number(rng, 32)),
            3 => format!("actset_output={}", port(rng)),
            _ => format!("tun_gtpu_flags={},tun_gtpu_msgtype={}", 1 + rng.below(255), 1 + rng.below(255)),
        },
    }
}

fn ethernet(rng: &mut Rng) -> String {
    match rng.below(10) {
        0 | 1 => format!("{}={}", pick(rng, &["dl_src", "eth_src"]), mac(rng)),
        2 | 3 => format!("{}={}", pick(rng, &["dl_dst", "eth_dst"]), mac(rng)),
        4 => format!("dl_vlan={}", pick(rng, &["0", "5", "0xfff", "0xffff", "4095", "100"])),
        5 => format!("dl_vlan={},dl_vlan_pcp={}", number(rng, 12), number(rng, 3)),
        6 => format!("{}={}", pick(rng, &["dl_vlan_pcp", "vlan_pcp"]), number(rng, 3)),
        7 => format!("vlan_tci={}", masked(rng, 16)),
        _ => format!("vlan_vid={}", masked(rng, 13)),
    }
}

/// A protocol and some of its fields.
fn protocol(rng: &mut Rng, out: &mut Vec<String>) {
    let name = pick(
        rng,
        &[
            "ip",
            "arp",
            "rarp",
            "icmp",
            "tcp",
            "udp",
            "sctp",
            "ipv6",
            "icmp6",
            "tcp6",
            "udp6",
            "sctp6",
            "mpls",
            "mplsm",
            "nsh",
            "other",
            "ip,nw_proto",
            "ipv6,nw_proto",
            "eth",
        ],
    );
    out.push(match name {
        "nsh" => "dl_type=0x894f".into(),
        "other" => format!("{}={}", pick(rng, &["dl_type", "eth_type"]), number(rng, 16)),
        "ip,nw_proto" => format!("dl_type=0x0800,nw_proto={}", number(rng, 8)),
        "ipv6,nw_proto" => format!("dl_type=0x86dd,ip_proto={}", number(rng, 8)),
        name => name.into(),
    });
    let n = rng.below(5);
    for _ in 0..n {
        let field = match name {
            "arp" | "rarp" => arp(rng),
            "mpls" | "mplsm" => mpls(rng),
            "nsh" => nsh(rng),
            "other" | "eth" => return,
            _ => ip(rng, name),
        };
        out.push(field);
    }
}

fn arp(rng: &mut Rng) -> String {
    match rng.below(6) {
        0 => format!("arp_op={}", number(rng, 8)),
        1 => format!("arp_spa={}", ipv4(rng)),
        2 => format!("arp_tpa={}", ipv4(rng)),
        3 => format!("arp_sha={}", mac(rng)),
        4 => format!("arp_tha={}", mac(rng)),
        _ => format!("nw_src={}", ipv4(rng)),
    }
}

fn mpls(rng: &mut Rng) -> String {
    match rng.below(4) {
        0 => format!("mpls_label={}", number(rng, 20)),
        1 => format!("mpls_tc={}", number(rng, 3)),
        2 => format!("mpls_ttl={}", number(rng, 8)),
        _ => format!("mpls_bos={}", number(rng, 1)),
    }
}

fn nsh(rng: &mut Rng) -> String {
    match rng.below(7) {
        0 => format!("nsh_flags={}", masked(rng, 8)),
        1 => format!("nsh_ttl={}", number(rng, 6)),
        2 => format!("nsh_mdtype=1,nsh_c{}={}", 1 + rng.below(4), masked(rng, 32)),
        3 => format!("nsh_np={}", number(rng, 8)),
        4 => format!("{}={}", pick(rng, &["nsh_spi", "nsp"]), number(rng, 24)),
        5 => format!("{}={}", pick(rng, &["nsh_si", "nsi"]), number(rng, 8)),
        _ => "nsh_mdtype=1".into(),
    }
}

fn ip(rng: &mut Rng, name: &str) -> String {
    let v6 = name.contains('6');
    match rng.below(9) {
        0 if v6 => format!("ipv6_src={}", ipv6(rng)),
        1 if v6 => format!("ipv6_dst={}", ipv6(rng)),
        2 if v6 => format!("ipv6_label={}", masked(rng, 20)),
        0 | 2 => format!("{}={}", pick(rng, &["nw_src", "ip_src"]), ipv4(rng)),
        1 => format!("{}={}", pick(rng, &["nw_dst", "ip_dst"]), ipv4(rng)),
        3 => match rng.below(3) {
            0 => format!("nw_tos={}", number(rng, 8)),
            1 => format!("ip_dscp={}", number(rng, 6)),
            _ => format!("{}={}", pick(rng, &["nw_ecn", "ip_ecn"]), number(rng, 2)),
        },
        4 => format!("nw_ttl={}", number(rng, 8)),
        5 => format!(
            "{}={}",
            pick(rng, &["ip_frag", "nw_frag"]),
            pick(rng, &["no", "yes", "first", "later", "not_later"])
        ),
        _ => transport(rng, name),
    }
}

fn transport(rng: &mut Rng, name: &str) -> String {
    match name.trim_end_matches('6') {
        "tcp" if one_in(rng, 3) => format!("tcp_flags={}", flags(rng, &TCP)),
        proto @ ("tcp" | "udp" | "sctp") => {
            let prefix = if one_in(rng, 2) { "tp" } else { proto };
            format!("{prefix}_{}={}", pick(rng, &["src", "dst"]), masked(rng, 16))
        }
        "icmp" if name == "icmp" => format!("icmp_{}={}", pick(rng, &["type", "code"]), number(rng, 8)),
        "icmp" => match rng.below(4) {
            0 => format!("icmp_{}={}", pick(rng, &["type", "code"]), number(rng, 8)),
            1 => format!("icmp_type=135,icmp_code=0,nd_target={},nd_sll={}", ipv6(rng), mac(rng)),
            2 => format!("icmp_type=136,icmp_code=0,nd_target={},nd_tll={}", ipv6(rng), mac(rng)),
            _ => format!("icmp_type=136,nd_reserved={},nd_options_type={}", number(rng, 32), 1 + rng.below(2)),
        },
        _ => format!("nw_ttl={}", number(rng, 8)),
    }
}

/// A valid match, though some of its fields may lack their prerequisites.
pub fn valid(rng: &mut Rng) -> String {
    let mut parts = Vec::new();
    if !one_in(rng, 6) {
        protocol(rng, &mut parts);
    }
    for _ in 0..rng.below(4) {
        let part = metadata(rng);
        parts.push(part);
    }
    for _ in 0..rng.below(3) {
        let part = ethernet(rng);
        parts.push(part);
    }
    if one_in(rng, 8) {
        let part = match rng.below(3) {
            0 => arp(rng),
            1 => ip(rng, "udp"),
            _ => ip(rng, "ipv6"),
        };
        parts.push(part);
    }
    if one_in(rng, 4) && parts.len() > 1 {
        let at = rng.below(parts.len() as u64) as usize;
        parts.swap(0, at);
    }
    if parts.is_empty() {
        parts.push("in_port=1".into());
    }
    parts.join(pick(rng, &[",", ",", ",", ", ", " "]))
}

/// A valid match with some of its characters changed.
pub fn damaged(rng: &mut Rng) -> String {
    let mut text: Vec<char> = valid(rng).chars().collect();
    for _ in 0..=rng.below(3) {
        let at = rng.below(text.len() as u64) as usize;
        let c = pick(rng, &['/', '=', '0', '9', 'x', 'f', ':', '.', '-', '+', '|', '*', '[', ']', 'z', '1']);
        match rng.below(3) {
            0 => text[at] = c,
            1 => text.insert(at, c),
            _ if text.len() > 1 => {
                text.remove(at);
            }
            _ => {}
        }
    }
    // A text that begins like an option would not be parsed as a flow.
    text.into_iter().collect::<String>().trim_start_matches('-').into()
}
