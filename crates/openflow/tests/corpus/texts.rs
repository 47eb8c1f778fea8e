//! Flows, groups and meters as text: any field of ovs-fields(7) and any action of ovs-actions(7), with arguments in every
//! form.

use crate::make::Gen;
use flow::field::{FIELDS, FieldInfo, Format};
use flow::{Field, Loc, Maskable, Prereq};
use std::fmt::Write;
use std::sync::LazyLock;

/// A protocol stack, which determines the packet's fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stack {
    pub(crate) text: &'static str,
    pub(crate) prereqs: &'static [Prereq],
}

const STACKS: &[Stack] = &[
    Stack { text: "", prereqs: &[] },
    Stack { text: "dl_type=0x1234", prereqs: &[] },
    Stack { text: "ip", prereqs: &[Prereq::Ipv4, Prereq::Ip] },
    Stack { text: "ipv6", prereqs: &[Prereq::Ipv6, Prereq::Ip] },
    Stack { text: "arp", prereqs: &[Prereq::Arp] },
    Stack { text: "rarp", prereqs: &[Prereq::Arp] },
    Stack { text: "tcp", prereqs: &[Prereq::Ipv4, Prereq::Ip, Prereq::Tcp] },
    Stack { text: "tcp", prereqs: &[Prereq::Ipv4, Prereq::Ip, Prereq::Tcp] },
    Stack { text: "tcp6", prereqs: &[Prereq::Ipv6, Prereq::Ip, Prereq::Tcp] },
    Stack { text: "udp", prereqs: &[Prereq::Ipv4, Prereq::Ip, Prereq::Udp] },
    Stack { text: "udp6", prereqs: &[Prereq::Ipv6, Prereq::Ip, Prereq::Udp] },
    Stack { text: "sctp", prereqs: &[Prereq::Ipv4, Prereq::Ip, Prereq::Sctp] },
    Stack { text: "sctp6", prereqs: &[Prereq::Ipv6, Prereq::Ip, Prereq::Sctp] },
    Stack { text: "icmp", prereqs: &[Prereq::Ipv4, Prereq::Ip, Prereq::Icmpv4] },
    Stack { text: "icmp6", prereqs: &[Prereq::Ipv6, Prereq::Ip, Prereq::Icmpv6] },
    Stack { text: "ip,nw_proto=2", prereqs: &[Prereq::Ipv4, Prereq::Ip] },
    Stack { text: "icmp6,icmpv6_type=135,icmpv6_code=0", prereqs: &[Prereq::Ipv6, Prereq::Nd, Prereq::NdSolicit] },
    Stack { text: "icmp6,icmp_type=136,icmp_code=0", prereqs: &[Prereq::Ipv6, Prereq::Nd, Prereq::NdAdvert] },
    Stack { text: "mpls", prereqs: &[Prereq::Mpls] },
    Stack { text: "mplsm", prereqs: &[Prereq::Mpls] },
    Stack { text: "dl_type=0x894f", prereqs: &[Prereq::Nsh] },
    Stack { text: "ct_state=+trk,ip,ct_nw_proto=6", prereqs: &[Prereq::Ipv4, Prereq::Ct] },
    Stack { text: "ct_state=+trk-inv,ipv6,ct_nw_proto=17", prereqs: &[Prereq::Ipv6, Prereq::Ct] },
    Stack { text: "packet_type=(0,0)", prereqs: &[] },
    Stack { text: "packet_type=(1,0x800)", prereqs: &[Prereq::Ipv4, Prereq::Ip] },
    Stack { text: "packet_type=(1,0x894f)", prereqs: &[Prereq::Nsh] },
];

fn number(g: &mut Gen, bits: u32) -> u128 {
    let all = u128::MAX >> (128 - bits.min(128));
    match g.below(6) {
        0 => 0,
        1 => all,
        2 => 1 << g.below(u64::from(bits.min(128))),
        3 => u128::from(g.below(16)) & all,
        _ => (u128::from(g.u64()) << 64 | u128::from(g.u64())) & all,
    }
}

fn written(g: &mut Gen, n: u128) -> String {
    if n < 1 << 63 && g.once_in(2) { n.to_string() } else { format!("{n:#x}") }
}

fn ipv4(n: u32) -> String {
    std::net::Ipv4Addr::from(n).to_string()
}

fn ipv6(g: &mut Gen) -> String {
    let addresses =
        ["::", "::1", "fe80::1", "2001:db8::5", "1:2:3:4:5:6:7:8", "ff02::1:ff00:0", "::ffff:1.2.3.4", "a:b::c:0:0:d"];
    g.of(&addresses).to_owned()
}

fn mac(g: &mut Gen) -> String {
    let list = ["00:11:22:33:44:55", "01:00:00:00:00:00", "ff:ff:ff:ff:ff:ff", "0:1:2:a:B:0c", "00:00:00:00:00:00"];
    g.of(&list).to_owned()
}

pub(crate) fn port(g: &mut Gen) -> String {
    let names = ["LOCAL", "in_port", "NORMAL", "FLOOD", "ALL", "CONTROLLER", "65534", "0xfffffffe", "NONE", "ANY"];
    if g.once_in(6) { g.of(&names).to_owned() } else { (1 + g.below(9)).to_string() }
}

/// A value of a field, without a mask.
fn value(g: &mut Gen, f: &FieldInfo) -> String {
    match f.format {
        Format::Mac => mac(g),
        Format::Ipv4 => ipv4(number(g, 32) as u32),
        Format::Ipv6 => ipv6(g),
        Format::OfPort | Format::OfPort32 => port(g),
        Format::Frag => g.of(&["no", "yes", "first", "later", "not_later", "not_first"]).to_owned(),
        Format::TunFlags => g.of(&["oam", "+oam", "-oam", "0", "1", "0/0"]).to_owned(),
        Format::TcpFlags => g
            .of(&[
                "+syn-ack",
                "syn",
                "+fin+rst",
                "0x012/0xfff",
                "-urg",
                "ack|psh",
                "3",
                "0",
                "+syn+ece-cwr+ns",
                "0xfff",
            ])
            .to_owned(),
        Format::CtState => g
            .of(&["+trk", "+trk+new-est", "-trk", "+trk+rel+rpl-inv", "+trk+snat-dnat", "trk|new", "0/0x1", "0x21"])
            .to_owned(),
        Format::PacketType => g.of(&["(0,0)", "(1,0x800)", "(1,2048)", "(1,0x894f)", "(2,5)"]).to_owned(),
        Format::Decimal | Format::Hex => {
            let bits = u32::from(f.n_bits).min(128);
            let n = number(g, bits);
            let n = match f.id {
                Field::IpDscpShifted => n & 0xfc,
                Field::VlanVid | Field::DlVlan => n & 0xfff,
                Field::ArpOp => n & 0xff,
                _ => n,
            };
            written(g, n)
        }
    }
}

/// A mask for such a value, or nothing.
fn mask(g: &mut Gen, f: &FieldInfo) -> String {
    if f.maskable == Maskable::None || g.below(3) > 0 {
        return String::new();
    }
    let bits = u32::from(f.n_bits).min(128);
    match f.format {
        Format::Mac => format!("/{}", mac(g)),
        Format::Ipv4 if g.once_in(2) => format!("/{}", g.below(33)),
        Format::Ipv4 => format!("/{}", ipv4(number(g, 32) as u32)),
        Format::Ipv6 if g.once_in(2) => format!("/{}", g.below(129)),
        Format::Ipv6 => format!("/{}", g.of(&["ffff::", "::ffff", "ffff:ffff::", "f0f0::1"])),
        Format::Decimal | Format::Hex => format!("/{:#x}", number(g, bits)),
        _ => String::new(),
    }
}

/// Skips most of the tunnel option fields, which are all similar.
fn is_of_interest(g: &mut Gen, f: &FieldInfo) -> bool {
    // Open vSwitch misprints the last ones.
    let wrong =
        (Field::TunErspanVer..=Field::TunGtpuMsgtype).contains(&f.id) || (Field::NshC1..=Field::NshC4).contains(&f.id);
    let narrow = f.loc == Loc::TunMetadata(0) || f.loc == Loc::TunMetadata(63) || wrong;
    let register = (Field::Reg0..Field::EthSrc).contains(&f.id);
    match f.loc {
        Loc::TunMetadata(_) if !narrow => false,
        _ => !(register || narrow) || g.once_in(8),
    }
}

/// The fields that Open vSwitch has too.
static SHARED: LazyLock<Vec<&FieldInfo>> = LazyLock::new(|| {
    let ours = |f: &FieldInfo| matches!(f.id, Field::PbbIsid | Field::PbbUca | Field::Ipv6Exthdr);
    FIELDS.iter().filter(|f| !ours(f)).collect()
});

/// A field of packets with this stack.
fn field(g: &mut Gen, stack: Stack) -> &'static FieldInfo {
    let special = stack.prereqs.len();
    loop {
        let f = SHARED[g.below(SHARED.len() as u64) as usize];
        let fits = match f.prereq {
            Prereq::None | Prereq::Ethernet | Prereq::VlanVid => special == 0 || g.once_in(3),
            p => stack.prereqs.contains(&p),
        };
        // A connection has addresses of one family.
        let other = if stack.prereqs.contains(&Prereq::Ipv4) { "ct_ipv6_" } else { "ct_nw_" };
        let fits = fits && (f.prereq != Prereq::Ct || f.id == Field::CtNwProto || !f.name.starts_with(other));
        if fits && is_of_interest(g, f) && !matches!(f.id, Field::PacketType | Field::SkbPriority) {
            return f;
        }
    }
}

fn field_match(g: &mut Gen, stack: Stack) -> String {
    let f = field(g, stack);
    let name = if !f.alias.is_empty() && g.once_in(3) { f.alias } else { f.name };
    if let Some(nxm) = f.nxm.first().filter(|_| g.once_in(15) && f.maskable == Maskable::Full && f.n_bits < 65) {
        let first = g.below(f.n_bits.into());
        let n = 1 + g.below(u64::from(f.n_bits) - first);
        let value = number(g, n as u32);
        return format!("{}[{first}..{}]={value:#x}", if g.once_in(2) { nxm.name } else { name }, first + n - 1);
    }
    // Fields that are prerequisites of others keep the stack's value.
    if matches!(f.id, Field::EthType | Field::IpProto | Field::Icmpv6Type | Field::Icmpv6Code | Field::CtNwProto)
        && !stack.prereqs.is_empty()
    {
        return "metadata=5".to_owned();
    }
    if let Loc::TunMetadata(_) = f.loc {
        let (value, with) = (g.below(0x1_0000), g.once_in(3));
        return if with { format!("{name}={:#x}/0xffff", value & 0xffff) } else { format!("{name}={value:#x}") };
    }
    let value = value(g, f);
    let mask = if value.contains('/') { String::new() } else { mask(g, f) };
    format!("{name}={value}{mask}")
}

const OLD_FIELDS: &[&str] = &[
    "in_port=1",
    "in_port=LOCAL",
    "dl_vlan=5",
    "dl_vlan=0xffff",
    "dl_vlan=5,dl_vlan_pcp=3",
    "dl_vlan_pcp=2",
    "dl_src=00:01:02:03:04:05",
    "dl_dst=01:00:00:00:00:00/01:00:00:00:00:00",
    "nw_src=10.0.0.0/8",
    "nw_dst=1.2.3.4",
    "nw_tos=12",
    "nw_proto=6",
    "nw_proto=89",
    "tp_src=80",
    "tp_dst=0x50",
    "icmp_type=8,icmp_code=0",
    "tp_src=80/0xfff0",
    "vlan_tci=0x1005/0x1fff",
    "vlan_tci=0",
    "vlan_tci=0x1000/0x1000",
    "vlan_vid=5",
    "vlan_vid=0x1005",
    "vlan_pcp=3",
    "dl_vlan=0",
    "nw_src=1.2.3.4/255.0.255.0",
    "eth",
    "in_port=0xfff8",
    "tun_id=5/7",
    "vlan_tci=0x3123/0xffff",
];

pub(crate) fn matching(g: &mut Gen) -> (String, Stack) {
    let stack = g.of(STACKS);
    let mut parts = Vec::new();
    if !stack.text.is_empty() {
        parts.push(stack.text.to_owned());
    }
    for _ in 0..g.of(&[0, 0, 1, 1, 2, 2, 3, 5]) {
        let part = if g.once_in(4) { g.of(OLD_FIELDS).to_owned() } else { field_match(g, stack) };
        parts.push(part);
    }
    (parts.join(","), stack)
}

/// A field that actions may write, or a part of one.
fn subfield(g: &mut Gen, stack: Stack, writable: bool, most: u64) -> (String, u64) {
    loop {
        let f =
            if g.once_in(2) { Field::reg(g.below(32) as usize).expect("there are 32").info() } else { field(g, stack) };
        let prereq_ok = f.prereq == Prereq::None || stack.prereqs.contains(&f.prereq);
        if !prereq_ok || writable && !f.writable || matches!(f.loc, Loc::TunMetadata(_)) || f.nxm.is_empty() {
            continue;
        }
        let name = if g.once_in(3) { f.nxm[g.below(f.nxm.len() as u64) as usize].name } else { f.name };
        let bits = u64::from(f.n_bits);
        return match g.below(3) {
            0 if bits <= most => (format!("{name}[]"), bits),
            1 if bits <= most => (name.to_owned(), bits),
            _ => {
                let first = g.below(bits);
                let n = 1 + g.below((bits - first).min(most));
                let text =
                    if n == 1 { format!("{name}[{first}]") } else { format!("{name}[{first}..{}]", first + n - 1) };
                (text, n)
            }
        };
    }
}

/// A part of a register with exactly so many bits.
fn register_part(g: &mut Gen, bits: u64) -> String {
    let (name, width) = match bits {
        0..=32 => (format!("reg{}", g.below(16)), 32),
        33..=64 => (format!("xreg{}", g.below(8)), 64),
        _ => (format!("xxreg{}", g.below(4)), 128),
    };
    let first = g.below(width - bits + 1);
    format!("{name}[{first}..{}]", first + bits - 1)
}

fn controller(g: &mut Gen) -> String {
    let keys = [
        "max_len=100",
        "max_len=65535",
        "id=5",
        "reason=no_match",
        "reason=action",
        "reason=invalid_ttl",
        "reason=group",
        "reason=action_set",
        "reason=packet_out",
        "userdata=01.02.03",
        "userdata=ff",
        "pause",
        "meter_id=3",
    ];
    let n = g.below(4);
    let args: Vec<&str> = (0..n).map(|_| g.of(&keys)).collect();
    match g.below(4) {
        0 => "controller".to_owned(),
        1 => format!("CONTROLLER:{}", g.u16()),
        _ => format!("controller({})", args.join(",")),
    }
}

fn learn(g: &mut Gen) -> String {
    let settings = [
        "table=3",
        "idle_timeout=5",
        "hard_timeout=6",
        "priority=7",
        "cookie=0x12",
        "send_flow_rem",
        "delete_learned",
        "fin_idle_timeout=3",
        "fin_hard_timeout=4",
        "limit=5",
        "limit=5,result_dst=reg0[1]",
    ];
    let specs = [
        "NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]",
        "eth_type=0x800,NXM_OF_IP_SRC[]=NXM_OF_IP_DST[]",
        "in_port",
        "NXM_OF_VLAN_TCI[0..11]",
        "reg0[0..5]=reg1[6..11]",
        "reg2=0x5",
        "metadata=3",
        "eth_src=1:2:3:4:5:6",
        "load:NXM_OF_IN_PORT[]->NXM_NX_REG0[0..15]",
        "load:0x11->reg3[0..7]",
        "load:reg1->reg2",
        "output:NXM_OF_IN_PORT[]",
        "output:reg0[0..15]",
        "eth_type=0x800,nw_proto=6,tcp_src=80",
        "in_port=LOCAL",
        "xxreg0=0x112222333344445555",
        "reg4=5/5",
        "eth_type=0x86dd,ipv6_src=fe80::1",
        "dl_type=0x806,arp_op=2,arp_tpa=1.2.3.4",
        "load:0->reg4",
        "ct_mark=5",
        "vlan_vid=3",
        "tun_id=0x123",
        "pkt_mark=7",
        "load:0x1->eth_dst[40]",
    ];
    let mut args: Vec<&str> = Vec::new();
    for _ in 0..g.below(4) {
        args.push(g.of(&settings));
    }
    for _ in 0..g.below(4) {
        args.push(g.of(&specs));
    }
    format!("learn({})", args.join(","))
}

fn ct(g: &mut Gen, stack: Stack) -> String {
    let nats = [
        "nat",
        "nat(src=10.0.0.1)",
        "nat(src=10.0.0.1-10.0.0.9:5-10,hash)",
        "nat(dst=1.2.3.4:80,random)",
        "nat(src=10.0.0.1,persistent)",
        "nat(dst=10.0.0.1-10.0.0.2,persistent,hash)",
        "nat(src=[fe80::1]:80-90)",
        "nat(dst=fe80::1-fe80::9)",
        "nat(src)",
        "nat(src,random)",
        "nat(dst=[fe80::1]-[fe80::2]:5)",
    ];
    let mut args: Vec<String> = Vec::new();
    let committed = g.once_in(2);
    if committed {
        args.push("commit".into());
        if g.once_in(3) {
            args.push("force".into());
        }
    }
    if g.once_in(2) {
        args.push(g.of(&["table=0", "table=5", "table=254"]).into());
    }
    match g.below(4) {
        0 => args.push(format!("zone={}", g.u16())),
        1 => args.push(format!("zone={}", register_part(g, 16))),
        2 => args.push(format!("zone={}", g.of(&["5", "NXM_NX_REG0[0..15]", "reg3[16..31]"]))),
        _ => {}
    }
    if g.once_in(3) && stack.prereqs.contains(&Prereq::Ip) {
        args.push(g.of(&nats).into());
    }
    if committed && g.once_in(2) {
        let sets = [
            "set_field:1->ct_mark",
            "set_field:1/3->ct_mark",
            "load:5->ct_label[0..7]",
            "set_field:0x5->ct_label",
            "move:reg0[]->ct_mark[]",
            "move:xxreg0[]->ct_label[]",
            "set_field:0x1/0xf->ct_label",
            "load:1->NXM_NX_CT_MARK[3]",
        ];
        let n = 1 + g.below(2);
        args.push(format!("exec({})", (0..n).map(|_| g.of(&sets)).collect::<Vec<_>>().join(",")));
    }
    if g.once_in(8) {
        args.push(g.of(&["alg=ftp", "alg=tftp"]).into());
    }
    format!("ct({})", args.join(","))
}

const HASHES: &[&str] =
    &["eth_src", "symmetric_l4", "symmetric_l3l4", "symmetric_l3l4+udp", "nw_src", "nw_dst", "symmetric_l3"];

fn multipath(g: &mut Gen) -> String {
    let algorithm = g.of(&["modulo_n", "hash_threshold", "hrw", "iter_hash"]);
    let links = 1 + g.below(60);
    format!("multipath({},{},{algorithm},{links},{},{})", g.of(HASHES), g.u16(), g.below(9), register_part(g, 16))
}

fn bundle(g: &mut Gen) -> String {
    let members: Vec<String> = (0..=g.below(4)).map(|_| (1 + g.below(9)).to_string()).collect();
    let (fields, basis, algorithm) = (g.of(HASHES), g.u16(), g.of(&["active_backup", "hrw"]));
    let word = g.of(&["members", "slaves"]);
    if g.once_in(2) {
        format!("bundle({fields},{basis},{algorithm},ofport,{word}:{})", members.join(","))
    } else {
        let dst = register_part(g, 16);
        format!("bundle_load({fields},{basis},{algorithm},ofport,{dst},{word}:{})", members.join(","))
    }
}

fn sample(g: &mut Gen) -> String {
    let mut args = vec![format!("probability={}", 1 + g.below(65535))];
    for key in ["collector_set_id", "obs_domain_id", "obs_point_id"] {
        match g.below(4) {
            0 | 1 => args.push(format!("{key}={}", g.u32())),
            2 if key != "collector_set_id" => args.push(format!("{key}=reg{}[0..{}]", g.below(16), g.below(32))),
            _ => {}
        }
    }
    if g.once_in(3) {
        args.push(format!("sampling_port={}", 1 + g.below(5)));
        if g.once_in(2) {
            args.push(g.of(&["ingress", "egress"]).into());
        }
    }
    format!("sample({})", args.join(","))
}

fn encap(g: &mut Gen) -> String {
    g.of(&[
        "encap(ethernet)",
        "encap(nsh)",
        "encap(nsh())",
        "encap(nsh(md_type=1))",
        "encap(nsh(md_type=2))",
        "encap(mpls)",
        "encap(mpls_mc)",
        "encap(nsh(md_type=2,tlv(0x1000,10,0x12345678)))",
        "encap(nsh(md_type=2,tlv(0x1000,10,0x12345678),tlv(0x2000,20,0xfedcba9876543210)))",
        "decap",
        "decap()",
        "decap(packet_type(ns=1,type=0x894f))",
        "decap(packet_type(ns=0,type=0))",
        "decap(packet_type(ns=0,type=0xfffe))",
    ])
    .to_owned()
}

fn set_field(g: &mut Gen, stack: Stack) -> String {
    loop {
        let f = field(g, stack);
        if !f.writable
            || !(f.prereq == Prereq::None || f.prereq == Prereq::Ethernet || stack.prereqs.contains(&f.prereq))
        {
            continue;
        }
        let name = if !f.alias.is_empty() && g.once_in(3) { f.alias } else { f.name };
        let value = if let Loc::TunMetadata(_) = f.loc { format!("{:#x}", g.below(1 << 16)) } else { value(g, f) };
        let mask = if value.contains('/') || matches!(f.loc, Loc::TunMetadata(_)) { String::new() } else { mask(g, f) };
        return format!("set_field:{value}{mask}->{name}");
    }
}

fn load(g: &mut Gen, stack: Stack) -> String {
    let (dst, bits) = subfield(g, stack, true, 64);
    let n = number(g, bits as u32);
    format!("load:{}->{dst}", written(g, n))
}

fn transport(stack: Stack) -> bool {
    [Prereq::Tcp, Prereq::Udp, Prereq::Sctp].iter().any(|p| stack.prereqs.contains(p))
}

/// An action that needs a header of the stack, if the stack has it.
fn of_stack(g: &mut Gen, stack: Stack) -> Option<String> {
    let has = |p: Prereq| stack.prereqs.contains(&p);
    Some(match g.below(7) {
        0 if has(Prereq::Ip) => g.of(&["mod_nw_tos:12", "mod_nw_ecn:2", "mod_nw_ttl:9"]).to_owned(),
        1 if has(Prereq::Ip) => g.of(&["dec_ttl", "dec_ttl(1,2,3)", "dec_ttl()"]).to_owned(),
        2 if has(Prereq::Ipv4) => g.of(&["mod_nw_src:1.2.3.4", "mod_nw_dst:255.255.255.255"]).to_owned(),
        3 if transport(stack) => g.of(&["mod_tp_src:80", "mod_tp_dst:0xffff"]).to_owned(),
        4 if has(Prereq::Tcp) => g
            .of(&["fin_timeout()", "fin_timeout(idle_timeout=5)", "fin_timeout(idle_timeout=5,hard_timeout=6)"])
            .to_owned(),
        5 if has(Prereq::Mpls) => g
            .of(&[
                "set_mpls_label(5)",
                "set_mpls_tc:3",
                "set_mpls_ttl(9)",
                "dec_mpls_ttl",
                "pop_mpls:0x800",
                "pop_mpls:0x8847",
            ])
            .to_owned(),
        6 if has(Prereq::Nsh) => "dec_nsh_ttl".to_owned(),
        _ => return None,
    })
}

fn plain(g: &mut Gen) -> String {
    let list = [
        "drop",
        "normal",
        "flood",
        "all",
        "local",
        "in_port",
        "exit",
        "strip_vlan",
        "pop_vlan",
        "push_vlan:0x8100",
        "push_vlan:0x88a8",
        "push_mpls:0x8847",
        "push_mpls:0x8848",
        "set_queue:5",
        "pop_queue",
        "ct_clear",
        "table",
        "none",
        "mod_vlan_vid:5",
        "mod_vlan_pcp:3",
        "mod_dl_src:01:02:03:04:05:06",
        "mod_dl_dst:01:02:03:04:05:06",
        "set_tunnel:5",
        "set_tunnel64:5",
        "set_tunnel:0x123456789",
        "note:01.02",
        "note:",
        "note:01.02.03.04.05.06.07",
        "enqueue:1:2",
        "enqueue(2,5)",
        "enqueue:LOCAL:3",
        "delete_field:tun_metadata0",
        "delete_field:tun_metadata63",
        "unroll_xlate",
    ];
    g.of(&list).to_owned()
}

/// Any action that may stand among others.
pub(crate) fn action(g: &mut Gen, stack: Stack, depth: u64) -> String {
    match g.below(30) {
        0..=2 => format!("output:{}", port(g)),
        3 => port(g),
        4 => format!("output:{}", subfield(g, stack, false, 32).0),
        5 => format!("output(port={},max_len={})", 1 + g.below(9), 14 + g.below(1000)),
        6 => controller(g),
        7 => format!("group:{}", g.u16()),
        8..=10 => set_field(g, stack),
        11 | 12 => load(g, stack),
        13 => {
            let (src, bits) = subfield(g, stack, false, 128);
            format!("move:{src}->{}", register_part(g, bits))
        }
        14 => {
            let (dst, bits) = subfield(g, stack, true, 128);
            format!("move:{}->{dst}", register_part(g, bits))
        }
        15 => format!("push:{}", subfield(g, stack, false, 128).0),
        16 => format!("pop:{}", subfield(g, stack, true, 128).0),
        17 => {
            let (port, table) = (port(g), g.u8());
            let list = [
                format!("resubmit:{port}"),
                format!("resubmit({port},{table})"),
                format!("resubmit(,{table})"),
                format!("resubmit(,{table},ct)"),
                format!("resubmit({port},,ct)"),
            ];
            g.of(&list)
        }
        18 => learn(g),
        19 => ct(g, stack),
        20 => multipath(g),
        21 => bundle(g),
        22 => sample(g),
        23 => encap(g),
        24 if depth > 0 => format!("clone({})", list(g, stack, depth - 1)),
        25 => format!("check_pkt_larger({})->{}", g.u16(), register_part(g, 1)),
        26 | 27 => of_stack(g, stack).unwrap_or_else(|| "output:1".to_owned()),
        _ => plain(g),
    }
}

fn list(g: &mut Gen, stack: Stack, depth: u64) -> String {
    let n = 1 + g.below(3);
    (0..n).map(|_| action(g, stack, depth)).collect::<Vec<_>>().join(",")
}

fn instructions(g: &mut Gen, stack: Stack) -> String {
    let mut all = Vec::new();
    if g.once_in(4) {
        all.push(format!("meter:{}", g.u16()));
    }
    if g.once_in(2) {
        all.push(list(g, stack, 1));
    }
    if g.once_in(3) {
        all.push("clear_actions".to_owned());
    }
    if g.once_in(3) {
        all.push(format!("write_actions({})", list(g, stack, 0)));
    }
    if g.once_in(3) {
        all.push(g.of(&["write_metadata:5", "write_metadata:0x1/0xf", "write_metadata:0xffffffffffffffff"]).to_owned());
    }
    if g.once_in(3) {
        all.push(format!("goto_table:{}", 250 + g.below(5)));
    }
    if all.is_empty() { "drop".to_owned() } else { all.join(",") }
}

pub(crate) fn actions(g: &mut Gen, stack: Stack) -> String {
    match g.below(12) {
        0 => "drop".to_owned(),
        1 => instructions(g, stack),
        2 if g.once_in(2) => {
            let n = 2 + g.below(63);
            format!("conjunction({},{}/{n})", g.u32(), 1 + g.below(n))
        }
        _ => list(g, stack, 2),
    }
}

fn settings(g: &mut Gen) -> String {
    let list = [
        "priority=5",
        "priority=0",
        "priority=65535",
        "table=3",
        "table=254",
        "table=0",
        "cookie=0x1234",
        "cookie=0xffffffffffffffff",
        "cookie=5",
        "idle_timeout=5",
        "hard_timeout=65535",
        "importance=7",
        "send_flow_rem",
        "check_overlap",
        "reset_counts",
        "no_packet_counts",
        "no_byte_counts",
        "importance=0",
    ];
    let n = g.of(&[0, 0, 1, 1, 2, 3]);
    (0..n).map(|_| g.of(&list)).collect::<Vec<_>>().join(",")
}

/// A flow as the argument of `parse-flow`.
pub(crate) fn flow(g: &mut Gen) -> String {
    let settings = settings(g);
    let (matching, stack) = matching(g);
    let mut out = String::new();
    for part in [settings, matching] {
        if !part.is_empty() {
            let _ = write!(out, "{part},");
        }
    }
    let _ = write!(out, "actions={}", actions(g, stack));
    out
}
