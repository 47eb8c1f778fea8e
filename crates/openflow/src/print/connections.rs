//! Prints flushes of connections, also for the log, and IPFIX exporters.

use super::counter;
use crate::ct_flush::{CtFlush, Direction, address_to_string};
use crate::ipfix::IpfixStats;
use std::fmt::{self, Write};

pub(super) fn ct_flush(f: &CtFlush, out: &mut String) {
    put!(out, " zone={}", f.zone.unwrap_or(0));
    masked("mark", (f.mark.0.into(), f.mark.1.into()), u32::MAX.into(), out);
    masked("labels", f.labels, u128::MAX, out);
    out.push_str(" '");
    direction(f, &f.original, out);
    put!(out, ",ct_nw_proto={}' '", f.ip_proto);
    direction(f, &f.reply, out);
    out.push('\'');
}

impl fmt::Display for CtFlush {
    /// Names the connections as Open vSwitch's log does: `<all>`, those of a zone, or all conditions.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_any = |direction| direction == Direction::default();
        let has_zone_only = self.ip_proto == 0
            && (self.mark.1, self.labels.1, self.is_ipv4) == (0, 0, None)
            && is_any(self.original)
            && is_any(self.reply);
        match self.zone {
            None if has_zone_only => f.write_str("<all>"),
            Some(zone) if has_zone_only => write!(f, "zone {zone}"),
            _ => {
                let mut text = String::new();
                ct_flush(self, &mut text);
                f.write_str(text.trim_start())
            }
        }
    }
}

/// Appends ` name=VALUE/MASK`, without the mask if it equals `exact`; nothing if there is no mask.
fn masked(name: &str, (value, mask): (u128, u128), exact: u128, out: &mut String) {
    let hex = |n: u128| if n == 0 { "0".to_owned() } else { format!("{n:#x}") };
    if mask != 0 {
        put!(out, " {name}={}", hex(value));
        if mask != exact {
            put!(out, "/{}", hex(mask));
        }
    }
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

#[cfg(test)]
mod tests {
    use crate::ct_flush::CtFlush;
    use crate::print::{Style, print};

    /// The texts are those of Open vSwitch's log after `dpctl/flush-conntrack` with these words.
    #[test]
    fn the_log_of_a_flush_names_all_connections_a_zone_or_conditions() {
        let any = "'ct_ipv6_src=::,ct_ipv6_dst=::,ct_tp_src=0,ct_tp_dst=0,ct_nw_proto=0' \
                   'ct_ipv6_src=::,ct_ipv6_dst=::,ct_tp_src=0,ct_tp_dst=0'";
        for (words, text) in [
            ("", "<all>"),
            ("mark=0/0", "<all>"),
            ("zone=0", "zone 0"),
            ("zone=65535", "zone 65535"),
            ("mark=0", &format!("zone=0 mark=0 {any}")),
            ("zone=5 mark=1/1 labels=2", &format!("zone=5 mark=0x1/0x1 labels=0x2 {any}")),
            (
                "ct_nw_proto=47",
                "zone=0 'ct_ipv6_src=::,ct_ipv6_dst=::,ct_tp_src=0,ct_tp_dst=0,ct_nw_proto=47' \
                 'ct_ipv6_src=::,ct_ipv6_dst=::,ct_tp_src=0,ct_tp_dst=0'",
            ),
            (
                "ct_nw_src=10.0.0.1 ct_nw_dst=10.0.0.2",
                "zone=0 'ct_nw_src=10.0.0.1,ct_nw_dst=::,ct_tp_src=0,ct_tp_dst=0,ct_nw_proto=0' \
                 'ct_nw_src=::,ct_nw_dst=10.0.0.2,ct_tp_src=0,ct_tp_dst=0'",
            ),
            (
                "zone=5 ct_nw_src=10.0.0.1,ct_nw_proto=1,icmp_type=8,icmp_code=0,icmp_id=77",
                "zone=5 'ct_nw_src=10.0.0.1,ct_nw_dst=::,icmp_id=77,icmp_type=8,icmp_code=0,ct_nw_proto=1' \
                 'ct_nw_src=::,ct_nw_dst=::,icmp_id=0,icmp_type=0,icmp_code=0'",
            ),
        ] {
            let words: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
            assert_eq!(CtFlush::parse(&words).map(|flush| flush.to_string()).as_deref(), Ok(text), "{words:?}");
        }
    }

    #[test]
    fn flushes_show_mark_and_labels() {
        for (properties, text) in [
            (
                "0002000800050000 0003000800000019 00040008000000ff 00050014 00000000000000000000000000000007 00000000",
                "zone=5 mark=0x19/0xff labels=0x7",
            ),
            ("0004000800000007", "zone=0 mark=0/0x7"),
            (
                "00050014 00000000000000000000000000000005 00000000 00060014 00000000000000000000000000000002 00000000",
                "zone=0 labels=0x5/0x2",
            ),
            ("", "zone=0"),
        ] {
            let digits: Vec<u8> = properties.bytes().filter(u8::is_ascii_hexdigit).collect();
            let value = |d: u8| char::from(d).to_digit(16).expect("a digit") as u8;
            let mut bytes = vec![1, 4, 0, 24 + digits.len() as u8 / 2, 0, 0, 0, 2, 0, 0, 0x23, 0x20, 0, 0, 0, 32];
            bytes.extend([0; 8]);
            bytes.extend(digits.chunks(2).map(|pair| value(pair[0]) << 4 | value(pair[1])));
            let any = "'ct_ipv6_src=::,ct_ipv6_dst=::,ct_tp_src=0,ct_tp_dst=0,ct_nw_proto=0' \
                       'ct_ipv6_src=::,ct_ipv6_dst=::,ct_tp_src=0,ct_tp_dst=0'";
            assert_eq!(print(&bytes, Style::plain(2)), format!("NXT_CT_FLUSH (xid=0x2): {text} {any}\n"));
        }
    }
}
