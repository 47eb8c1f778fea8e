//! Messages that random draws rarely contain: experimenter properties of each length, tables that differ in few
//! properties, tunnel options as on the wire, updates of monitors without a match, and the cases of rare exceptions.

use crate::make::{cat, hex, message, padded, property};
use Version::{V10, V12, V13, V14, V15};
use openflow::Version;
use openflow::types::WireNumber;

/// The messages, with kind and version.
pub(crate) fn messages() -> Vec<(&'static str, Version, Vec<u8>, bool)> {
    let mut all = Vec::new();
    // Experimenter properties of table features, of each length and type.
    let required: Vec<u8> = [0, 2, 4, 6, 8, 10, 12, 14].into_iter().flat_map(|ty| property(ty, &[])).collect();
    for (version, vendor, subtype) in [(V13, 0, 0), (V14, 0x2320, 0), (V14, 0x4f4e_4600, 1), (V15, 7, 1), (V15, 7, 2)] {
        for (ty, rest) in [(0xffff, 0), (0xffff, 1), (0xffff, 4), (0xffff, 8), (0xfffe, 0), (0xfffe, 8)] {
            let body = cat(&[&u32::to_be_bytes(vendor), &u32::to_be_bytes(subtype), &vec![1; rest]]);
            let table = features_of(1, 1, &cat(&[&required, &property(ty, &body)]));
            all.push(("table features", version, message(version, 5, WireNumber::Reply(12), false, &table)));
        }
        let table = features_of(1, 1, &cat(&[&required, &property(0xfffe, &[1, 2])]));
        all.push(("table features", version, message(version, 5, WireNumber::Request(12), false, &table)));
    }
    // Tables with equal fields that differ in masks, in wildcards, or in other features.
    let (exact, masked): ([u8; 8], [u8; 8]) = ([0x80, 0, 6, 6, 0x80, 0, 8, 6], [0x80, 0, 7, 12, 0x80, 0, 8, 6]);
    let fields = |matching: &[u8], wildcards: &[u8]| {
        let others: Vec<u8> = [0, 2, 4, 6, 12, 14].into_iter().flat_map(|ty| property(ty, &[])).collect();
        cat(&[&others, &property(8, matching), &property(10, wildcards)])
    };
    let choices = [fields(&exact, &exact), fields(&masked, &exact), fields(&exact, &[]), fields(&masked, &exact[..4])];
    for first in &choices {
        for second in &choices {
            for metadata in [1, 2] {
                let tables = cat(&[&features_of(1, 1, first), &features_of(2, metadata, second)]);
                all.push(("table features", V14, message(V14, 5, WireNumber::Reply(12), false, &tables)));
            }
        }
    }
    // Tunnel options in a match that is printed as it is on the wire.
    for entry in [
        &[0, 1, 0xce, 2, 0x8f, 0xf0][..],
        &[0, 1, 0xcf, 4, 0x8f, 0xf0, 0xff, 0xff],
        &[0, 1, 0x50, 4, 1, 2, 3, 4],
        &[0, 1, 0x50, 0],
    ] {
        let length = u16::try_from(entry.len()).expect("it is short");
        let head = cat(&[&[0; 8], &[0; 6], &[0, 9], &[0xff; 4], &[0xff; 2], &[0; 2], &length.to_be_bytes(), &[0; 6]]);
        let body = cat(&[&head, &padded(entry.to_vec())]);
        for version in [V10, V13] {
            all.push(("NX flow mod", version, message(version, 5, WireNumber::Nicira(13), false, &body)));
        }
    }
    // Updates without a match before others.
    for version in [V14, V15] {
        let update = |event: u8| cat(&[&[0, 32, 0, event, 7, 0], &[0; 18], &[0, 1, 0, 4, 0, 0, 0, 0]]);
        let body = cat(&[&update(1), &update(3)]);
        all.push(("flow monitor reply", version, message(version, 5, WireNumber::Reply(16), false, &body)));
    }
    // Errors that quote a message of a version that does not exist, and settings that Open vSwitch does not know.
    let quoted = cat(&[&[0, 1, 0, 1], &[0x10, 2, 0, 8, 0, 0, 0, 1]]);
    all.push(("error", V13, message(V13, 5, WireNumber::Type(1), false, &quoted)));
    for flags in [7u32, 8, u32::MAX] {
        let body = cat(&[&[1, 0, 0, 0, 0, 0, 0, 4], &property(2, &flags.to_be_bytes())]);
        all.push(("table mod", V14, message(V14, 5, WireNumber::Type(17), false, &body)));
    }
    // Matches on the extension headers of IPv6, and on ipv6_label with mask bits beyond its 20.
    let ipv6 = [0x80, 0, 0xa, 2, 0x86, 0xdd];
    let exthdr = oxm_match(&cat(&[&ipv6, &[0x80, 0, 0x4e, 2, 0, 1]]));
    let head = cat(&[&[0xff; 4], &[0, 0, 0, 1], &[0; 8]]);
    all.push(("packet in", V13, message(V13, 5, WireNumber::Type(10), false, &cat(&[&head, &exthdr, &[0; 2]]))));
    let label = oxm_match(&cat(&[&ipv6, &[0x80, 0, 0x39, 8, 0, 0, 0, 0x45, 0xff, 0xf0, 0, 0xff]]));
    let head = cat(&[&[0; 22], &[0, 9], &[0xff; 12], &[0; 4]]);
    all.push(("flow mod", V13, message(V13, 5, WireNumber::Type(14), false, &cat(&[&head, &label]))));
    // resubmit(1,,ct), and a set_field whose mask is all of ipv6_label, but not of its bytes.
    let resubmit = [0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 44, 0, 1, 0xff, 0, 0, 0];
    all.push((
        "packet out",
        V10,
        message(V10, 5, WireNumber::Type(13), false, &cat(&[&[0xff; 4], &[0, 1, 0, 16], &resubmit])),
    ));
    let set_field = [0, 25, 0, 16, 0x80, 0, 0x39, 8, 0, 0, 0, 5, 0, 0xf, 0xff, 0xff];
    let head = cat(&[&[0xff; 4], &[0, 16, 0, 0], &oxm_match(&[0x80, 0, 0, 4, 0, 0, 0, 1])]);
    all.push(("packet out", V15, message(V15, 5, WireNumber::Type(13), false, &cat(&[&head, &set_field]))));
    all.extend(of_other_seeds());
    all.extend(additions());
    // The queues of reserved ports.
    for port in [0xfffeu16, 0xffff, 0xfff8] {
        let body = cat(&[&port.to_be_bytes(), &[0; 2]]);
        all.push(("queue config request", V10, message(V10, 5, WireNumber::Type(20), false, &body)));
    }
    // None of them is damaged.
    all.into_iter().map(|(kind, version, m)| (kind, version, m, false)).collect()
}

type Chosen = (&'static str, Version, Vec<u8>);

/// Messages in which other seeds than the default one found differences, one for each of their causes.
fn of_other_seeds() -> Vec<Chosen> {
    let mut all = Vec::new();
    // Times beyond 16 bits, and an entry with the reserved bit, in the statistics of OpenFlow 1.5.
    for stats in ["0000001080020208 2000003600000000", "0000001080020b08 000000000000012a"] {
        let flow =
            cat(&[&hex("0038 0000 00 00 0008 0000 0000 0000 0000"), &[0; 8], &oxm_match(&[]), &hex(stats), &[0; 8]]);
        let flow = cat(&[&[0, flow.len() as u8 - 8], &flow[2..flow.len() - 8]]);
        all.push(("flow reply", V15, message(V15, 5, WireNumber::Reply(1), false, &flow)));
    }
    // A name without an end, and actions without a name in one of two lists.
    let required: Vec<u8> = [0, 2, 8, 10, 12, 14].into_iter().flat_map(|ty| property(ty, &[])).collect();
    let unnamed = cat(&[&required, &property(4, &[0, 0, 0, 4]), &property(6, &[0, 0, 0, 4, 0, 15, 0, 4])]);
    let mut table = features_of(1, 1, &unnamed);
    table[8..40].fill(b'n');
    all.push(("table features", V13, message(V13, 5, WireNumber::Reply(12), false, &table)));
    // Bitmaps of versions that are not whole words.
    for len in [13, 14, 15] {
        let body = cat(&[&[0, 1, 0, len], &[0, 0, 0, 0x4e], &[0; 8]]);
        all.push(("hello", V13, message(V13, 5, WireNumber::Type(0), false, &body)));
    }
    // Both forms of experimenter errors.
    for version in Version::ALL {
        for body in
            ["b0c20000 00002320 00060000", "b0c20000 00000000 00060000", "ffff0006 00002320", "ffff0005 00000000"]
        {
            all.push(("error", version, message(version, 5, WireNumber::Type(1), false, &hex(body))));
        }
    }
    // A mask in a selection method's field, and two buckets with one identifier before a malformed one.
    for field in [
        "80001904 00000000",
        "80001908 000000ff 000000ff",
        "80001904 00010000",
        "00013d10 0000000000000000 0000000000000000",
    ] {
        let method = cat(&[&hex("0000154d 00000001 00000000"), b"hash", &[0; 12], &[0; 8], &hex(field)]);
        let group = cat(&[&hex("0000 01 00 00000001 0000 000000000000"), &property(0xffff, &method)]);
        let group = cat(&[&(group.len() as u16).to_be_bytes(), &group[2..]]);
        all.push(("group desc reply", V15, message(V15, 5, WireNumber::Reply(7), false, &group)));
    }
    let bucket = |actions: &str| {
        let actions = hex(actions);
        cat(&[&[0, 8 + actions.len() as u8, 0, actions.len() as u8, 0, 0, 0, 1], &actions])
    };
    let buckets = cat(&[&bucket(""), &bucket(""), &bucket("ffff0010 00002320 0030 000000000000")]);
    let group =
        cat(&[&[0, 16 + buckets.len() as u8], &hex("01 00 00000001"), &[0, buckets.len() as u8], &[0; 6], &buckets]);
    all.push(("group desc reply", V15, message(V15, 5, WireNumber::Reply(7), false, &group)));
    // Loads into tunnel options, and values of learn with bits beyond the destination's.
    for action in [
        "ffff0018 00002320 0007 001f 00018000 0000000000000000",
        "ffff0018 00002320 0007 0107 00018004 0000000000000003",
        "ffff0030 00002320 0010 0000 0000 8000 0000000000000000 0000 00 00 0000 0000 2801 0044 00000406 0028 000000000000",
    ] {
        let action = hex(action);
        let body = cat(&[&[0xff; 4], &[0, 1, 0, action.len() as u8], &action]);
        all.push(("packet out", V10, message(V10, 5, WireNumber::Type(13), false, &body)));
    }
    // Masks of set_field with bits beyond the field's, and of an odd length.
    for entry in [
        "80002b04 0000 7e00",
        "80002b04 0001 00ff",
        "80001302 0005",
        "80003908 0000000500ffffff",
        "80000d05 1005 1fff 00",
    ] {
        let set_field = property(25, &hex(entry));
        let len = set_field.len() as u8;
        let set_field = cat(&[&[0, 25, 0, len], &set_field[4..]]);
        let head = cat(&[&[0xff; 4], &[0, len, 0, 0], &oxm_match(&[0x80, 0, 0, 4, 0, 0, 0, 1])]);
        all.push(("packet out", V15, message(V15, 5, WireNumber::Type(13), false, &cat(&[&head, &set_field]))));
    }
    // ICMP in later fragments, all or more than the bits of tcp_flags, and masked entries of odd lengths.
    for entries in [
        "80000a020800 0001340103 8000140101 8000260108",
        "80000a0286dd 0001340103 800014013a 80003a0187 80003c0100",
        "80000a020800 0001340103 8000140106 80001a020008",
        "80000a020800 8000140106 00014504 0012 0fff",
        "80000a020800 8000140106 00014504 0012 2fff",
        "80000d05 1005 1fff 00",
        "00015105 0f00 0fff 00",
    ] {
        let head = cat(&[&[0; 22], &[0, 9], &[0xff; 12], &[0; 4]]);
        let body = cat(&[&head, &oxm_match(&hex(entries))]);
        all.push(("flow mod", V13, message(V13, 5, WireNumber::Type(14), false, &body)));
    }
    // A truncated queue with a reserved port, and an error behind an entry that ends with a colon.
    all.push(("queue desc reply", V14, message(V14, 5, WireNumber::Reply(15), false, &hex("474460454cbd7875"))));
    let ipv6 = oxm_match(&hex("80000a0286dd 80003410 00000000000000000000000000000000"));
    let update = cat(&[&[0, 24 + ipv6.len() as u8, 0, 1, 1, 0], &[0; 18], &ipv6, &[0, 8, 0, 9, 0, 0, 0, 0]]);
    all.push(("flow monitor reply", V14, message(V14, 5, WireNumber::Reply(16), false, &update)));
    // Lengths of group statistics that are not those of whole buckets.
    for (len, rest) in [(0x50, 0), (0x51, 0), (0x38, 40), (0x48, 40), (0x27, 0)] {
        let group = cat(&[&[0, len, 0, 0, 0, 0, 0, 7], &[1; 64], &[0; 8]]);
        let next = cat(&[&[0, 40, 0, 0], &[2; 36]]);
        let body = cat(&[&group, &next[..rest]]);
        all.push(("group reply", V13, message(V13, 5, WireNumber::Reply(6), false, &body)));
    }
    // A queue with a truncated property, which is not read.
    let queue = cat(&[&hex("0038 000000000000 00000001 00000002"), &[0; 24], &[0xff; 8], &hex("ffff 0014 00002320")]);
    all.push(("queue reply", V14, message(V14, 5, WireNumber::Reply(5), false, &queue)));
    // Labels of other lengths than 16 bytes.
    for len in [12, 16, 20] {
        let body = cat(&[&[6, 0, 0, 0, 0, 0, 0, 0], &property(5, &vec![1; len])]);
        all.push(("NX flush", V13, message(V13, 5, WireNumber::Nicira(32), false, &body)));
    }
    // bundle_load with reserved bytes, and with an algorithm that does not exist.
    for start in
        ["0001 0002 0005 00000002 0002 03cf 00011604 20000000", "0009 0002 0005 00000002 0002 03cf 00011604 00000000"]
    {
        let bundle = hex(&format!("ffff0028 00002320 000d {start} 0009 0009 00000000"));
        let body = cat(&[&[0xff; 4], &[0, 1, 0, bundle.len() as u8], &bundle]);
        all.push(("packet out", V10, message(V10, 5, WireNumber::Type(13), false, &body)));
    }
    // A packet longer than its stated length, and a masked tunnel option of one byte.
    let packet = cat(&[&property(0, &[1, 2, 3, 4]), &property(1, &[0, 0, 0, 3])]);
    all.push(("NX packet in 2", V14, message(V14, 5, WireNumber::Nicira(30), false, &packet)));
    let head = cat(&[&[0; 8], &[0; 6], &[0, 9], &[0xff; 4], &[0xff; 2], &[0; 2], &[0, 5], &[0; 6]]);
    let body = cat(&[&head, &hex("0001770101 000000")]);
    all.push(("NX flow mod", V13, message(V13, 5, WireNumber::Nicira(13), false, &body)));
    // The value of a tunnel option of NSH with zeros at its front.
    let encap = hex("ffff0020 00002320 002e 0000 0001894f 0004 02 08 1000 0a 04 00195678 00000000");
    let body = cat(&[&[0xff; 8], &[0, encap.len() as u8], &[0; 6], &encap]);
    all.push(("packet out", V13, message(V13, 5, WireNumber::Type(13), false, &body)));
    all
}

/// Messages of OpenFlow 1.5 that only Flowstone has, which are exceptions.
fn additions() -> Vec<Chosen> {
    let mut all = Vec::new();
    for number in [17, 18, 19] {
        all.push(("unknown", V15, message(V15, 5, WireNumber::Request(number), false, &[])));
        all.push(("unknown", V15, message(V15, 5, WireNumber::Reply(number), false, &[0; 16])));
    }
    all.push(("unknown", V15, message(V15, 5, WireNumber::Reply(11), false, &[1; 24])));
    all.push(("async", V15, message(V15, 5, WireNumber::Type(27), false, &property(12, &[0, 0, 0, 1]))));
    all.push(("unknown", V15, message(V15, 5, WireNumber::Type(35), false, &[])));
    all.push(("unknown", V12, message(V12, 5, WireNumber::Nicira(31), false, &[])));
    all
}

/// Flows as text in which other seeds than the default one found differences.
pub(crate) const TEXTS: &[&str] = &[
    "tcp,tcp_flags=0x012/0xfff,actions=drop",
    "tcp,tcp_flags[0..11]=0x2,actions=drop",
    "tcp,tcp_flags=syn|ack,actions=drop",
    "icmp6,icmp_type=135,icmp_code=0,nd_options_type=255,nw_proto=6,actions=drop",
    "icmp,nw_frag=later,icmp_type=8,actions=drop",
    "vlan_tci=13,vlan_vid[0..4]=0,actions=drop",
    "dl_vlan=5,vlan_vid[6..7]=2,actions=drop",
    "ipv6,ct_state=+inv,actions=ct(commit)",
    "ipv6,ct_state=+inv,actions=ct(table=1)",
    "ipv6,actions=set_field:0x5/0xfffff->ipv6_label",
    "actions=load:0->tun_metadata24[0..31]",
    "dl_src=0:1:0x10000:a:B:0c,actions=mod_dl_dst:-1:02:03:04:05:0x10006>",
    "table=-0,actions=drop",
    "priority=-0,importance=+5,actions=drop",
    "actions=move:reg8[4294967296..31]->reg9[],push:reg3[-4294967295]",
    "actions=move:reg8[2147483648]->reg9[0]",
    "reg0[65536]=1,actions=drop",
    "actions=controller(userdata=256.02,userdata=01.02)",
    "tun_flags=4294967296,actions=drop",
    "ct_state=0trk,actions=drop",
    "ct_state=1|est|0x20,actions=drop",
    "ct_state=0/0xx1,actions=drop",
    "icmp,actions=ct(commit,nat(dst=1.",
    "icmp,actions=ct(commit,nat(src=1.-2.))",
    "icmp,actions=ct(commit,nat(src=1.2.3.4.5))",
    "icmp,actions=ct(commit,nat(src=1.2.3.400:70000-70001))",
    "icmp,actions=ct(commit,nat(src=[fe80::1)",
    "icmp,actions=ct(commit,nat(src=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa))",
    "ipv6,ipv6_dst=::/4294967300,actions=drop",
    "ipv6,ipv6_dst=::/169:ffff::,actions=drop",
    "ipv6,ipv6_dst=::/20:ffff::,actions=drop",
    "packet_type=(1,0x8 00),actions=drop",
    "packet_type=(1,0x894f ),actions=drop",
    "packet_type=(1 ,0x894f),actions=drop",
    "packet_type=(0,-0),actions=drop",
    "actions=encap(nsh(md_type=2,tlv(0x0x10000,10,0x12345678)))",
    "actions=encap(nsh(md_type=2,tlv(0x1000,-1,0x00195678)))",
    "packet_type=(1,0x),actions=drop",
    "packet_type=(0x,0),actions=drop",
    "packet_type=(1,0x-94f),actions=drop",
    "actions=conjunction(1,-255/21)",
    "actions=conjunction(+5,-1/21)",
    "actions=conjunction(1,+1/++2)",
    "actions=controller(reason,max_len=3)",
    "actions=multipath(eth_src,1,hrw,4,0,reg0[] x)",
    "actions=multipath(eth_src,1,hrw,4,0,reg0[ 4..9])",
    "actions=multipath(eth_src,1,hrw,4,0,reg0[],set_field:1->reg1",
    "actions=check_pkt_larger(100->reg2[1])",
    "actions=check_pkt_larger:100->reg2[1]",
    "actions=check_pkt_larger(70000)->reg2[1]",
    "actions=check_pkt_larger(x)->foo",
    "actions=check_pkt_larger((5))->reg0[1]",
    "actions=check_pkt_larger(5)->reg2[(1],7,x",
    "actions=check_pkt_larger(5)->reg0[0]->reg1[0]",
    "actions=clone(output:1,ct(commit,zone=1200x1234))",
];

/// A match of OpenFlow 1.2 and later with these entries.
fn oxm_match(entries: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + entries.len()).expect("they are short");
    padded(cat(&[&[0, 1], &length.to_be_bytes(), entries]))
}

/// The features of a table with these properties.
fn features_of(table: u8, metadata_match: u64, properties: &[u8]) -> Vec<u8> {
    let length = u16::try_from(64 + properties.len()).expect("they are short");
    let numbers = cat(&[&metadata_match.to_be_bytes(), &[0; 8], &[0; 4], &[0, 0, 0, 5]]);
    cat(&[&length.to_be_bytes(), &[table, 0, 0, 0, 0, 0], b"t", &[0; 31], &numbers, properties])
}
