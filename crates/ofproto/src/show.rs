//! Text and JSON of the show commands for bridges.

use crate::bridge::Ofproto;
use crate::dump_order::DumpOrder;
use crate::flow_table::Criteria;
use crate::switch::Switch;
use base::PortNo;
use flow::Match;
use flow::text::{NoNames, PortNames, format_port};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use xlate::mac::MacEntry;
use xlate::{PortOut, Rule};

/// Copies the learned addresses out of their table: packets wait while its lock is held.
fn learned(bridge: &Ofproto) -> Vec<(u16, base::MacAddr, MacEntry)> {
    bridge.macs().read().iter().collect()
}

/// A line of `fdb/show`: port, VLAN, address and age.
fn fdb_line(now: base::Millis, (vlan, mac, entry): (u16, base::MacAddr, MacEntry)) -> String {
    let mut port = String::new();
    format_port(entry.port, &NoNames, &mut port);
    let age = if entry.is_static { "static".to_owned() } else { format!("{:3}", now.since(entry.used) / 1000) };
    format!("{port:>5}  {vlan:4}  {mac}  {age}")
}

/// Formats `fdb/show` of one bridge: its addresses, least recently used first.
pub fn fdb_show(bridge: &Ofproto) -> String {
    let now = bridge.now();
    let lines = learned(bridge).into_iter().map(|entry| fdb_line(now, entry) + "\n");
    [" Port  VLAN  MAC                Age\n".to_owned()].into_iter().chain(lines).collect()
}

/// Formats `fdb/show` of several bridges: each has its name in front of its first address, or on a line of its own.
pub fn fdb_show_all(bridges: &[Arc<Ofproto>]) -> String {
    let title = "Bridge";
    let width = bridges.iter().map(|bridge| bridge.name().len()).chain([title.len()]).max().unwrap_or_default();
    let mut out = format!(" {title:width$}  Port  VLAN  MAC                Age\n");
    for bridge in bridges {
        let (now, entries) = (bridge.now(), learned(bridge));
        if entries.is_empty() {
            let _ = writeln!(out, " {}", bridge.name());
        }
        for (at, entry) in entries.into_iter().enumerate() {
            let name = if at == 0 { bridge.name() } else { "" };
            let _ = writeln!(out, " {name:width$} {}", fdb_line(now, entry));
        }
    }
    out
}

/// Returns `fdb/show` as an object: lists of addresses by bridge. A static address has no age.
pub fn fdb_json(bridges: &[Arc<Ofproto>]) -> Value {
    let of_bridge = |bridge: &Arc<Ofproto>| {
        let now = bridge.now();
        let entry = |(vlan, mac, entry): (u16, base::MacAddr, MacEntry)| {
            let mut object = json!({ "port": entry.port.to_of10(), "vlan": vlan, "mac": mac.to_string() });
            if entry.is_static {
                object["static"] = true.into();
            } else {
                object["age"] = (now.since(entry.used) / 1000).into();
            }
            object
        };
        (bridge.name().to_owned(), learned(bridge).into_iter().map(entry).collect::<Value>())
    };
    bridges.iter().map(of_bridge).collect::<Map<_, _>>().into()
}

/// Returns [`fdb_stats_show`] as an object.
pub fn fdb_stats_json(bridge: &Ofproto) -> Value {
    let macs = bridge.macs().read();
    let c = macs.counters();
    json!({
        "bridge": bridge.name(),
        "current": macs.len(),
        "maximum": macs.max_entries(),
        "static": macs.n_static(),
        "learned": c.learned,
        "expired": c.expired,
        "evicted": c.evicted,
        "moved": c.moved,
    })
}

/// Formats `fdb/stats-show`.
pub fn fdb_stats_show(bridge: &Ofproto) -> String {
    let macs = bridge.macs().read();
    let c = macs.counters();
    format!(
        "Statistics for bridge \"{}\":\n  Current/maximum MAC entries in the table: {}/{}\n  Current static MAC entries in the \
         table : {}\n  Total number of learned MAC entries     : {}\n  Total number of expired MAC entries     : {}\n  \
         Total number of evicted MAC entries     : {}\n  Total number of port moved MAC entries  : {}\n",
        bridge.name(),
        macs.len(),
        macs.max_entries(),
        macs.n_static(),
        c.learned,
        c.expired,
        c.evicted,
        c.moved
    )
}

/// The type of a port, and the settings that commands show with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortKind {
    /// As `dummy`.
    pub kind: String,
    /// As `peer` and `p1`.
    pub settings: Vec<(&'static str, String)>,
}

impl PortKind {
    /// A type without settings.
    pub fn plain(kind: &str) -> Self {
        Self { kind: kind.to_owned(), settings: Vec::new() }
    }
}

impl std::fmt::Display for PortKind {
    /// As `dummy`, or `patch: peer=p1`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.kind)?;
        let mut before = ": ";
        for (name, value) in &self.settings {
            write!(f, "{before}{name}={value}")?;
            before = ", ";
        }
        Ok(())
    }
}

/// Formats `dpif/show`: the datapath's hits and misses, and the bridges with their ports. `kind` returns the type of a port. A
/// datapath without bridges is not shown, as it does not exist for users.
pub fn dpif_show(switch: &Switch, dp_name: &str, kind: &dyn Fn(&str) -> PortKind) -> String {
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
                PortOut::Device(dp) | PortOut::Tunnel(dp) => dp.to_string(),
                PortOut::Patch(..) | PortOut::Nowhere => "none".into(),
            };
            let name = &port.spec.name;
            let _ = writeln!(out, "    {name} {}/{dp}: ({})", port.spec.no.to_of10(), kind(name));
        }
    }
    out
}

/// Returns [`dpif_show`] as an object: bridges and their ports by name, and statistics. Numbers are strings, as in
/// Open vSwitch.
pub fn dpif_json(switch: &Switch, kind: &dyn Fn(&str) -> PortKind) -> Value {
    let stats = switch.dpif().map(|d| d.stats()).unwrap_or_default();
    let mut bridges = Map::new();
    for bridge in switch.bridges() {
        let mut ports = Map::new();
        for port in bridge.ports() {
            let PortKind { kind, settings } = kind(&port.spec.name);
            let dp = match port.spec.out {
                PortOut::Device(dp) | PortOut::Tunnel(dp) => dp.to_string(),
                PortOut::Patch(..) | PortOut::Nowhere => "none".to_owned(),
            };
            let mut members = json!({"ofport": port.spec.no.to_of10().to_string(), "port_no": dp, "type": kind});
            if !settings.is_empty() {
                let settings = settings.into_iter().map(|(name, value)| (name.to_owned(), value.into()));
                members["config"] = settings.collect::<Map<_, _>>().into();
            }
            ports.insert(port.spec.name.clone(), members);
        }
        ports.sort_keys();
        bridges.insert(bridge.name().to_owned(), ports.into());
    }
    bridges.sort_keys();
    json!({"bridges": bridges, "stats": {"hit": stats.hit.to_string(), "missed": stats.missed.to_string()}})
}

/// Formats `bridge/dump-flows`: all flows of a bridge, table by table.
pub fn dump_flows(bridge: &Ofproto, ports: &dyn PortNames) -> String {
    let mut out = String::new();
    let now = bridge.now();
    each_rule(bridge, |rule| dump_rule((rule, &bridge.match_of(rule)), now, ports, &mut out));
    out
}

/// Returns [`dump_flows`] as a list of objects.
pub fn dump_flows_json(bridge: &Ofproto, ports: &dyn PortNames) -> Value {
    let now = bridge.now();
    let mut out = Vec::new();
    each_rule(bridge, |rule| {
        let mut text = String::new();
        flow::text::format_match(&bridge.match_of(rule), ports, &mut text);
        out.push(json!({
            "table": rule.table,
            "priority": rule.priority,
            "cookie": rule.cookie,
            "duration": now.since(rule.created) / 1000,
            "n_packets": rule.stats().packets.load(Ordering::Relaxed),
            "n_bytes": rule.stats().bytes.load(Ordering::Relaxed),
            "match": text,
            "actions": openflow::actions_to_string(&rule.actions, ports, openflow::Version::V15),
        }));
    });
    out.into()
}

/// Formats `ofproto/detrace`: the rules that a cached flow was made from, a line each.
pub fn detrace(rules: &[std::sync::Arc<Rule>], ports: &dyn PortNames) -> String {
    let mut out = String::new();
    for rule in rules {
        let _ = write!(out, "cookie={:#x}, ", rule.cookie);
        describe_rule((rule, &rule.minimatch.expand()), "", ports, &mut out);
    }
    out
}

/// Returns [`detrace`] as a list of objects.
pub fn detrace_json(rules: &[std::sync::Arc<Rule>], ports: &dyn PortNames) -> Value {
    let object = |rule: &std::sync::Arc<Rule>| {
        let mut text = String::new();
        flow::text::format_match(&rule.minimatch.expand(), ports, &mut text);
        json!({
            "table": rule.table,
            "priority": rule.priority,
            "cookie": rule.cookie,
            "n_packets": rule.stats().packets.load(Ordering::Relaxed),
            "n_bytes": rule.stats().bytes.load(Ordering::Relaxed),
            "match": text,
            "actions": openflow::actions_to_string(&rule.actions, ports, openflow::Version::V15),
        })
    };
    rules.iter().map(object).collect()
}

/// Visits rules, hidden ones included, in the order of flow dumps.
fn each_rule(bridge: &Ofproto, mut each: impl FnMut(&Rule)) {
    let view = bridge.tables().view();
    let mut order = DumpOrder::default();
    order.begin(bridge, &Criteria::any());
    let rules = bridge.tables().iter().flat_map(|table| table.rules.rules(view.version)).collect();
    order.sort(rules, None).for_each(|(_, rule)| each(&rule));
}

fn dump_rule((rule, matching): (&Rule, &Match), now: base::Millis, ports: &dyn PortNames, out: &mut String) {
    describe_rule((rule, matching), &format!("duration={}s, ", now.since(rule.created) / 1000), ports, out);
}

/// Formats a rule with this match as a line, with `duration` after its table.
fn describe_rule((rule, matching): (&Rule, &Match), duration: &str, ports: &dyn PortNames, out: &mut String) {
    if rule.table != 0 {
        let _ = write!(out, "table_id={}, ", rule.table);
    }
    let _ = write!(
        out,
        "{duration}n_packets={}, n_bytes={}, ",
        rule.stats().packets.load(Ordering::Relaxed),
        rule.stats().bytes.load(Ordering::Relaxed)
    );
    let matching = flow::text::match_to_string(matching, ports);
    if rule.priority != 0x8000 {
        let _ = write!(out, "priority={}", rule.priority);
        out.push_str(if matching.is_empty() { "" } else { "," });
    }
    out.push_str(&matching);
    out.push_str(",actions=");
    out.push_str(&openflow::actions_to_string(&rule.actions, ports, openflow::Version::V15));
    out.push('\n');
}

/// Formats a port number in the form of commands.
pub fn port_text(no: PortNo) -> String {
    let mut out = String::new();
    format_port(no, &NoNames, &mut out);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_followed_by_its_settings() {
        assert_eq!(PortKind::plain("dummy").to_string(), "dummy");
        let settings = vec![("n_rxq", "5".to_owned()), ("numa_id", "0".to_owned())];
        let kind = PortKind { settings, ..PortKind::plain("dummy-pmd") };
        assert_eq!(kind.to_string(), "dummy-pmd: n_rxq=5, numa_id=0");
    }
}
