//! Frames that Open vSwitch's dummy datapath sent and received, with its texts.

use super::super::pop::{Inner, Pop, parse};
use super::super::push::{Encapsulation, Push};
use super::super::template::{Context, PortRange, Template};
use super::super::{Cache, Malformed, geneve, srv6::FlowLabel};
use super::{hex, packet, pop_of};
use crate::flags;
use packet::Packet;
use packet::metadata::Tunnel;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::atomic::AtomicU32;

/// The columns of a line.
fn words<const N: usize>(line: &'static str) -> [&'static str; N] {
    let mut words = line.split(' ');
    std::array::from_fn(|_| words.next().expect("a word for each column"))
}

/// The packet type in a table.
fn l3_type(word: &str) -> Option<u16> {
    u16::from_str_radix(word, 16).ok()
}

#[test]
fn headers_are_pushed_as_in_open_vswitch() {
    let mut n = 0;
    for [name, ethertype, text, frame] in include_str!("pushed.txt").lines().skip(1).map(words) {
        let (headers, rest) = Push::parse_header(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(rest, "", "{name}");
        let mut written = String::new();
        headers.format_header(&mut written);
        assert_eq!(written, text, "{name}");

        let frame = hex(frame);
        let template = Template::new(headers.clone()).expect("valid headers");
        let l4 = if headers.ip.is_v6() { 54 } else { 34 };
        let word = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| frame[at + i]));
        // Open vSwitch's hash of the flow and its clock, as far as the frame shows them.
        let port = (word(l4) >> 16) as u16;
        let hash = match &headers.tunnel {
            Encapsulation::Srv6(srv6) if srv6.flow_label == FlowLabel::Compute => word(14) & 0xf_ffff,
            _ => 0,
        };
        let zero = AtomicU32::new(0);
        let context = Context {
            ports: PortRange::new(port, port).expect("a range"),
            sequence: &zero,
            identification: &zero,
            erspan_timestamp: word(l4 + 12),
        };
        let (inner, l3) = (&frame[template.header_len()..], l3_type(ethertype));
        // With much headroom, a little, and none.
        let mut little = Packet::from_vec([&[9; 60][..], inner].concat(), 60).expect("a packet");
        let mut none = Packet::from_vec(inner.to_vec(), 0).expect("a packet");
        (little.l3_type, none.l3_type) = (l3, l3);
        for mut packet in [packet(inner, l3), little, none] {
            context.sequence.store(0, std::sync::atomic::Ordering::Relaxed);
            template.push(&mut packet, hash, &context).expect("a packet that fits");
            assert_eq!((packet.data(), packet.l3_type), (&frame[..], None), "{name}");

            let popped = pop_of(&headers).pop(&mut packet, &mut Cache::new());
            if matches!(&headers.tunnel, Encapsulation::Srv6(srv6) if srv6.segments.len() > 1) {
                assert_eq!(popped, Err(Malformed::SegmentsLeft), "{name}");
                continue;
            }
            assert_eq!((popped, packet.data(), packet.l3_type), (Ok(()), inner, l3), "{name}");
        }
        n += 1;
    }
    tally::report!("{n} frames of Open vSwitch pushed and popped");
}

/// A tunnel as the datapath of Open vSwitch prints it.
fn tunnel_text(tunnel: &Tunnel, has_options: bool) -> String {
    let mut out = String::from("tunnel(");
    let mut put = |text: String| out.push_str(&(text + ","));
    if tunnel.flags & flags::KEY != 0 {
        put(format!("tun_id={:#x}", tunnel.key));
    }
    let prefix = if matches!(tunnel.src, IpAddr::V6(_)) { "ipv6_" } else { "" };
    put(format!("{prefix}src={},{prefix}dst={}", tunnel.src, tunnel.dst));
    if tunnel.tos != 0 {
        put(format!("tos={:#x}", tunnel.tos));
    }
    put(format!("ttl={}", tunnel.ttl));
    if tunnel.dst_port != 0 {
        put(format!("tp_src={},tp_dst={}", tunnel.src_port, tunnel.dst_port));
    }
    if has_options {
        let mut options = String::new();
        for option in geneve::options(&tunnel.options).flatten() {
            let number = option.value.iter().fold(0u128, |n, byte| n << 8 | u128::from(*byte));
            let (class, kind, len) = (option.class, option.kind, option.value.len());
            let number = if number == 0 { "0".to_owned() } else { format!("{number:#x}") };
            write!(options, "{{class={class:#x},type={kind:#x},len={len},{number}}}").expect("memory");
        }
        put(format!("geneve({options})"));
    }
    let erspan = |shift: u32, mask: u64| tunnel.erspan >> shift & mask;
    match erspan(24, 0xff) {
        0 => {}
        1 => put(format!("erspan(ver=1,idx={:#x})", erspan(32, 0xffff_ffff))),
        version => put(format!("erspan(ver={version},dir={},hwid={:#x})", erspan(16, 0xff), erspan(8, 0xff))),
    }
    if tunnel.gtpu != 0 {
        put(format!("gtpu(flags={:#x},msgtype={})", tunnel.gtpu >> 56, tunnel.gtpu >> 48 & 0xff));
    }
    let names = [(1, "oam"), (2, "df"), (4, "csum"), (8, "key")];
    let set: Vec<&str> = names.iter().filter(|(bit, _)| tunnel.flags & bit != 0).map(|(_, name)| *name).collect();
    write!(out, "flags({}))", if set.is_empty() { "0".to_owned() } else { set.join("|") }).expect("memory");
    out
}

#[test]
fn headers_are_popped_as_in_open_vswitch() {
    let (mut n, mut different, mut wrong) = (0, 0, Vec::new());
    let file = include_str!("received.txt");
    // A line with a difference follows its row.
    let followers = file.lines().skip(1).chain([""]);
    for (line, follower) in file.lines().zip(followers).filter(|(line, _)| !line.starts_with(['#', '>'])) {
        let [kind, name, expected, inner, frame] = words(line);
        let pop = match kind {
            "vxlan" => Pop::Vxlan { group_policy: false },
            "vxlan-gbp" => Pop::Vxlan { group_policy: true },
            "geneve" => Pop::Geneve,
            "gre" => Pop::Gre,
            "erspan" => Pop::Erspan,
            "gtpu" => Pop::Gtpu,
            "srv6" => Pop::Srv6,
            _ => panic!("{kind}"),
        };
        let frame = hex(frame);
        let found = match parse(pop, &frame, None, false) {
            Err(reason) => format!("drop - {reason}"),
            Ok(parsed) => {
                let inner = match parsed.inner {
                    Inner::Ethernet => "eth".to_owned(),
                    Inner::L3(ethertype) => format!("{ethertype:#x}"),
                    Inner::Control => "control".to_owned(),
                };
                let tail = frame.len() - parsed.end;
                let tail = if tail > 0 { format!(" trims {tail}") } else { String::new() };
                format!("{} {inner}{tail}", tunnel_text(&parsed.tunnel(), pop == Pop::Geneve))
            }
        };
        let expected = format!("{expected} {inner}");
        let agrees = found == expected || expected == "drop -" && found.starts_with("drop -");
        let difference = follower.strip_prefix("> ");
        if difference.map_or(agrees, |ours| ours == found && !agrees) {
            different += usize::from(!agrees);
        } else {
            wrong.push(format!("{kind} {name}:\n  OVS  {expected}\n  ours {found}"));
        }
        n += 1;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    tally::report!("{n} received frames compared with Open vSwitch, {} of them treated otherwise", different);
}
