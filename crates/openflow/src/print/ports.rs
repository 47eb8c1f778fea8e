//! Prints ports and queues.

use super::{Style, bit_names, counter, duration};
use crate::port::{PortDesc, PortMod, PortReason, PortStats, PortStatus, config as pc, features as pf, state as ps};
use crate::queue::{QUEUE_ALL, QueueConfig, QueueGetConfigReply, QueueStats, QueueStatsRequest};
use base::PortNo;
use std::fmt::Write;

const CONFIG: [(u32, &str); 7] = [
    (pc::PORT_DOWN, "PORT_DOWN"),
    (pc::NO_STP, "NO_STP"),
    (pc::NO_RECV, "NO_RECV"),
    (pc::NO_RECV_STP, "NO_RECV_STP"),
    (pc::NO_FLOOD, "NO_FLOOD"),
    (pc::NO_FWD, "NO_FWD"),
    (pc::NO_PACKET_IN, "NO_PACKET_IN"),
];

const STATE: [(u32, &str); 3] = [(ps::LINK_DOWN, "LINK_DOWN"), (ps::BLOCKED, "BLOCKED"), (ps::LIVE, "LIVE")];

const FEATURES: [(u32, &str); 16] = [
    (1 << 0, "10MB-HD"),
    (1 << 1, "10MB-FD"),
    (1 << 2, "100MB-HD"),
    (1 << 3, "100MB-FD"),
    (1 << 4, "1GB-HD"),
    (1 << 5, "1GB-FD"),
    (1 << 6, "10GB-FD"),
    (1 << 7, "40GB-FD"),
    (1 << 8, "100GB-FD"),
    (1 << 9, "1TB-FD"),
    (pf::OTHER, "OTHER"),
    (pf::COPPER, "COPPER"),
    (pf::FIBER, "FIBER"),
    (pf::AUTONEG, "AUTO_NEG"),
    (pf::PAUSE, "AUTO_PAUSE"),
    (pf::PAUSE_ASYM, "AUTO_PAUSE_ASYM"),
];

/// Appends a port's description, over several lines.
pub fn port_desc(p: &PortDesc, _style: Style<'_>, out: &mut String) {
    // Up to the first character that is not printable, and at most as many as fit the field.
    let name: String = p.name.chars().take_while(|c| matches!(c, ' '..='~')).take(15).collect();
    out.push(' ');
    flow::text::format_port(p.port_no, &flow::NoNames, out);
    put!(out, "({name}): addr:{}\n     config:     ", p.hw_addr);
    bit_names(p.config, &CONFIG, out);
    out.push_str("\n     state:      ");
    let tree = p.state & ps::STP_MASK;
    if tree != 0 {
        // The two bits of the spanning tree state are one name, without a blank after it.
        out.push_str(match tree {
            ps::STP_LEARN => "STP_LEARN",
            ps::STP_FORWARD => "STP_FORWARD",
            _ => "STP_BLOCK",
        });
        if p.state != tree {
            bit_names(p.state & !ps::STP_MASK, &STATE, out);
        }
    } else {
        bit_names(p.state, &STATE, out);
    }
    out.push('\n');
    for (name, modes) in
        [("current", p.curr), ("advertised", p.advertised), ("supported", p.supported), ("peer", p.peer)]
    {
        if modes != 0 {
            put!(out, "     {:<12}", format!("{name}:"));
            bit_names(modes, &FEATURES, out);
            out.push('\n');
        }
    }
    put!(out, "     speed: {} Mbps now, {} Mbps max\n", p.curr_speed / 1000, p.max_speed / 1000);
}

/// Appends the descriptions, by port number.
pub(super) fn port_descs(all: &[PortDesc], style: Style<'_>, out: &mut String) {
    let mut sorted: Vec<_> = all.iter().collect();
    sorted.sort_by_key(|p| p.port_no);
    for p in sorted {
        port_desc(p, style, out);
    }
}

pub(super) fn port_status(s: &PortStatus, style: Style<'_>, out: &mut String) {
    out.push_str(match s.reason {
        PortReason::Add => " ADD:",
        PortReason::Delete => " DEL:",
        PortReason::Modify => " MOD:",
    });
    port_desc(&s.desc, style, out);
}

pub(super) fn port_mod(m: &PortMod, style: Style<'_>, out: &mut String) {
    out.push_str(" port: ");
    style.port(m.port_no, out);
    put!(out, ": addr:{}\n     config: ", m.hw_addr);
    bit_names(m.config, &CONFIG, out);
    out.push_str("\n     mask:   ");
    bit_names(m.mask, &CONFIG, out);
    out.push_str("\n     advertise: ");
    if m.advertise == 0 {
        out.push_str("UNCHANGED");
    } else {
        bit_names(m.advertise, &FEATURES, out);
    }
    out.push('\n');
}

pub(super) fn port_stats(all: &[PortStats], style: Style<'_>, out: &mut String) {
    put!(out, " {} ports\n", all.len());
    for s in all {
        let mut item = |name: &str, n: u64, last: bool| {
            out.push_str(name);
            counter(n, out);
            out.push_str(if last { "\n" } else { ", " });
        };
        let mut port = String::new();
        style.port(s.port_no, &mut port);
        // Numbers of one digit are aligned with those of two, even if the port is printed by name.
        let blank = if s.port_no.0 < 10 { " " } else { "" };
        item(&format!("  port {blank}{port}: rx pkts="), s.rx_packets, false);
        item("bytes=", s.rx_bytes, false);
        item("drop=", s.rx_dropped, false);
        item("errs=", s.rx_errors, false);
        item("frame=", s.rx_frame_err, false);
        item("over=", s.rx_over_err, false);
        item("crc=", s.rx_crc_err, true);
        item("           tx pkts=", s.tx_packets, false);
        item("bytes=", s.tx_bytes, false);
        item("drop=", s.tx_dropped, false);
        item("errs=", s.tx_errors, false);
        item("coll=", s.collisions, true);
        if let Some((sec, nsec)) = s.duration.filter(|(sec, _)| *sec != u32::MAX) {
            out.push_str("           duration=");
            duration(sec, nsec, out);
            out.push_str("s\n");
        }
        if let Some(counters) = &s.rfc2819 {
            rfc2819("rx", &counters.rx(), out);
            rfc2819("tx", &counters.tx(), out);
        }
        custom_counters(&s.custom, out);
    }
}

/// Appends the known counters of a direction on one line.
fn rfc2819(direction: &str, counters: &[(&str, u64)], out: &mut String) {
    let known: Vec<_> = counters.iter().filter(|(_, n)| *n != u64::MAX).collect();
    if known.is_empty() {
        return;
    }
    put!(out, "           {direction} rfc2819 ");
    for (name, n) in known {
        put!(out, "{name}={n}, ");
    }
    out.push('\n');
}

fn custom_counters(counters: &[(String, u64)], out: &mut String) {
    if counters.is_empty() {
        return;
    }
    out.push_str("           CUSTOM Statistics");
    for (i, (name, n)) in counters.iter().enumerate().filter(|(_, (name, _))| !name.is_empty()) {
        out.push_str(if i % 3 == 0 { "\n                      " } else { " " });
        put!(out, "{name}={n},");
    }
    out.push('\n');
}

fn queue_id(id: u32, out: &mut String) {
    if id == QUEUE_ALL {
        out.push_str("ALL");
    } else {
        put!(out, "{id}");
    }
}

pub(super) fn queue_stats_request(q: &QueueStatsRequest, style: Style<'_>, out: &mut String) {
    out.push_str(" port=");
    style.port(q.port_no, out);
    out.push_str(" queue=");
    queue_id(q.queue_id, out);
}

pub(super) fn queue_stats(all: &[QueueStats], style: Style<'_>, out: &mut String) {
    put!(out, " {} queues\n", all.len());
    for q in all {
        out.push_str("  port ");
        style.port(q.port_no, out);
        out.push_str(" queue ");
        queue_id(q.queue_id, out);
        for (name, n) in [(": bytes=", q.tx_bytes), (", pkts=", q.tx_packets), (", errors=", q.tx_errors)] {
            out.push_str(name);
            counter(n, out);
        }
        out.push_str(", duration=");
        match q.duration.filter(|(sec, _)| *sec != u32::MAX) {
            Some((sec, nsec)) => {
                duration(sec, nsec, out);
                out.push('s');
            }
            None => out.push('?'),
        }
        out.push('\n');
    }
}

/// Appends queues by port and number, with a line for each port before its queues.
pub(super) fn queue_configs(queues: &[QueueConfig], style: Style<'_>, out: &mut String) {
    let mut queues: Vec<_> = queues.iter().collect();
    queues.sort_by_key(|q| (q.port_no, q.queue_id));
    out.push_str(if queues.is_empty() { "" } else { " " });
    // Port 0 does not exist, so it has no line.
    let mut port_no = PortNo(0);
    for q in queues {
        if port_no != q.port_no {
            out.push_str("port=");
            port_no = q.port_no;
            style.port(q.port_no, out);
            out.push('\n');
        }
        put!(out, "queue {}:", q.queue_id);
        for (name, rate) in [(" min_rate:", q.min_rate), (" max_rate:", q.max_rate)] {
            match rate {
                None | Some(u16::MAX) => {}
                Some(r) if r <= 1000 => put!(out, "{name}{}.{}%", r / 10, r % 10),
                Some(_) => put!(out, "{name}(disabled)"),
            }
        }
        out.push('\n');
    }
}

/// Appends the queues of a reply before OpenFlow 1.4, below the port of the request.
pub(super) fn queue_config(reply: &QueueGetConfigReply, style: Style<'_>, out: &mut String) {
    let queues: Vec<_> = reply.queues.iter().map(|q| QueueConfig { port_no: reply.port_no, ..q.clone() }).collect();
    queue_configs(&queues, style, out);
}

pub(super) fn queue_desc_request(q: &QueueStatsRequest, style: Style<'_>, out: &mut String) {
    out.push_str(" port=");
    style.port(q.port_no, out);
    if q.queue_id != QUEUE_ALL {
        put!(out, " queue={}", q.queue_id);
    }
}
