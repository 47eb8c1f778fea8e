//! Prints flushes of connections, and IPFIX exporters.

use super::counter;
use crate::ct_flush::{CtFlush, Direction, address_to_string};
use crate::ipfix::IpfixStats;
use std::fmt::Write;

pub(super) fn ct_flush(f: &CtFlush, out: &mut String) {
    put!(out, " zone={} '", f.zone.unwrap_or(0));
    direction(f, &f.original, out);
    put!(out, ",ct_nw_proto={}' '", f.ip_proto);
    direction(f, &f.reply, out);
    out.push('\'');
}

fn direction(f: &CtFlush, d: &Direction, out: &mut String) {
    let family = if f.is_ipv4 == Some(true) { "nw" } else { "ipv6" };
    put!(out, "ct_{family}_src={},ct_{family}_dst={},", address_to_string(d.src), address_to_string(d.dst));
    let [code, kind] = d.dst_port.to_be_bytes();
    if f.is_icmp() {
        put!(out, "icmp_id={},icmp_type={kind},icmp_code={code}", d.src_port);
    } else {
        put!(out, "ct_tp_src={},ct_tp_dst={}", d.src_port, d.dst_port);
    }
}

pub(super) fn ipfix_bridge(s: &IpfixStats, out: &mut String) {
    out.push_str("\n  bridge ipfix: ");
    ipfix(s, "                ", out);
}

pub(super) fn ipfix_flows(all: &[IpfixStats], out: &mut String) {
    put!(out, " {} ids\n", all.len());
    for s in all {
        put!(out, "  id {:>3}: ", s.collector_set_id);
        ipfix(s, "          ", out);
    }
}

fn ipfix(s: &IpfixStats, indent: &str, out: &mut String) {
    let mut line = |items: &[(&str, u64)]| {
        for (i, (name, n)) in items.iter().enumerate() {
            put!(out, "{}{name}=", if i > 0 { ", " } else { "" });
            counter(*n, out);
        }
        out.push('\n');
    };
    line(&[
        ("flows", s.flows),
        ("current flows", s.current_flows),
        ("sampled pkts", s.packets),
        ("ipv4 ok", s.ipv4),
        ("ipv6 ok", s.ipv6),
        ("tx pkts", s.sent),
    ]);
    let first = format!("{indent}pkts errs");
    line(&[(&first, s.errors), ("ipv4 errs", s.ipv4_errors), ("ipv6 errs", s.ipv6_errors), ("tx errs", s.send_errors)]);
}
