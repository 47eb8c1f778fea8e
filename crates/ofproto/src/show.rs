//! Texts and JSON of the show commands about bridges.

use crate::bridge::Ofproto;
use crate::switch::Switch;
use base::PortNo;
use flow::text::{NoNames, PortNames, format_port};
use std::fmt::Write;
use std::sync::atomic::Ordering;
use xlate::{PortOut, Rule};

/// `fdb/show`: learned addresses, least recently used first.
pub fn fdb_show(bridge: &Ofproto) -> String {
    let now = bridge.now();
    let mut out = String::from(" port  VLAN  MAC                Age\n");
    for (vlan, mac, entry) in bridge.macs().read().iter() {
        let mut port = String::new();
        format_port(entry.port, &NoNames, &mut port);
        let _ = writeln!(out, "{port:>5}  {vlan:4}  {mac}  {:3}", now.since(entry.used) / 1000);
    }
    out
}

/// `fdb/stats-show`.
pub fn fdb_stats_show(bridge: &Ofproto) -> String {
    let macs = bridge.macs().read();
    let c = macs.counters();
    format!(
        "Statistics for bridge \"{}\":\n  Current/maximum MAC entries in the table: {}/{}\n  Current static MAC entries in the \
         table : 0\n  Total number of learned MAC entries     : {}\n  Total number of expired MAC entries     : {}\n  \
         Total number of evicted MAC entries     : {}\n  Total number of port moved MAC entries  : {}\n",
        bridge.name(),
        macs.len(),
        macs.max_entries(),
        c.learned,
        c.expired,
        c.evicted,
        c.moved
    )
}

/// `dpif/show`: the datapath's hits and misses, and the bridges with their ports. `kind` names the type of a port, as
/// `dummy` or `patch: peer=p1`. A datapath without bridges is not shown: to its users it is not there.
pub fn dpif_show(switch: &Switch, dp_name: &str, kind: &dyn Fn(&str) -> String) -> String {
    let mut bridges = switch.bridges();
    if bridges.is_empty() {
        return String::new();
    }
    let stats = switch.dpif().map(|d| d.stats()).unwrap_or_default();
    let mut out = format!("{dp_name}: hit:{} missed:{}\n", stats.hit, stats.missed);
    bridges.sort_by(|a, b| a.name().cmp(b.name()));
    for bridge in bridges {
        let _ = writeln!(out, "  {}:", bridge.name());
        let mut ports = bridge.ports();
        ports.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
        for port in ports {
            let dp = match port.spec.out {
                PortOut::Device(dp) => dp.to_string(),
                PortOut::Patch(..) | PortOut::Nowhere => "none".into(),
            };
            let name = &port.spec.name;
            let _ = writeln!(out, "    {name} {}/{dp}: ({})", port.spec.no.to_of10(), kind(name));
        }
    }
    out
}

/// `bridge/dump-flows`: all flows of a bridge, table by table.
pub fn dump_flows(bridge: &Ofproto, ports: &dyn PortNames) -> String {
    let mut out = String::new();
    let now = bridge.now();
    for table in bridge.tables() {
        let mut rules: Vec<_> = table.rules.read().iter().cloned().collect();
        rules.sort_by_key(|r| std::cmp::Reverse(r.priority));
        for rule in rules {
            dump_rule(&rule, now, ports, &mut out);
        }
    }
    out
}

fn dump_rule(rule: &Rule, now: base::Millis, ports: &dyn PortNames, out: &mut String) {
    if rule.table != 0 {
        let _ = write!(out, "table_id={}, ", rule.table);
    }
    let _ = write!(
        out,
        "duration={}s, n_packets={}, n_bytes={}, ",
        now.since(rule.created) / 1000,
        rule.stats.packets.load(Ordering::Relaxed),
        rule.stats.bytes.load(Ordering::Relaxed)
    );
    if rule.priority != 0x8000 {
        let _ = write!(out, "priority={},", rule.priority);
    }
    flow::text::format_match(&rule.minimatch.expand(), ports, out);
    out.push_str(",actions=");
    out.push_str(&openflow::actions_to_string(&rule.actions, ports, openflow::Version::V15));
    out.push('\n');
}

/// A port number as users write it.
pub fn port_text(no: PortNo) -> String {
    let mut out = String::new();
    format_port(no, &NoNames, &mut out);
    out
}
