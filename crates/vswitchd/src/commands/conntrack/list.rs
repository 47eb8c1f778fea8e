//! Connections, expectations, and their numbers.

use super::super::{Shown, show, show_blocking};
use super::{answer, open, options};
use crate::devices::Devices;
use conntrack::Key;
use conntrack::key::ipproto;
use conntrack::proto::tcp::PeerInfo;
use conntrack::view::{Detail, ExpectationView, View, protocol_name};
use openflow::ct_flush::{leading_u16, leading_u32};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    show_blocking(commands, devices, ("dpctl/dump-conntrack", "[-m] [-s] [dp] [zone=N]", 0..=4), dump);
    show_blocking(commands, devices, ("dpctl/dump-conntrack-exp", "[dp] [zone=N]", 0..=2), dump_expectations);
    show_blocking(commands, devices, ("dpctl/ct-stats-show", "[dp] [zone=N]", 0..=3), show_statistics);
    show_blocking(commands, devices, ("dpctl/ct-bkts", "[dp] [gt=N]", 0..=2), show_buckets);
    show(commands, devices, ("dpctl/ct-get-nconns", "[dp]", 0..=1), |d, args, format| {
        let n = open(d, options(args)?.1, 1)?.0.dpif.n_connections();
        Ok(answer(format, || format!("{n}\n"), || n.into()))
    });
}

/// The zone of the last word, if it is `zone=N`, and the other words.
fn split_zone(words: &[String]) -> (Option<u16>, &[String]) {
    let zone = words.split_last().and_then(|(last, rest)| Some((leading_u16(last.strip_prefix("zone=")?)?, rest)));
    zone.map_or((None, words), |(zone, rest)| (Some(zone), rest))
}

fn dump(devices: &Devices, args: &[String], format: OutputFormat) -> Result<Shown, String> {
    let (options, words) = options(args)?;
    let (zone, words) = split_zone(words);
    let (dp, _) = open(devices, words, 1)?;
    let detail = Detail { more: options.more, statistics: options.statistics };
    Ok(match format {
        OutputFormat::Text => {
            let mut text = String::new();
            // Writing to a String cannot fail.
            dp.dpif.connections(zone, &mut |view| _ = writeln!(text, "{}", view.line(detail)));
            text.into()
        }
        OutputFormat::Json => {
            let mut list = Vec::new();
            dp.dpif.connections(zone, &mut |view| list.push(view_json(view)));
            Value::from(list).into()
        }
    })
}

fn dump_expectations(devices: &Devices, args: &[String], format: OutputFormat) -> Result<Shown, String> {
    let (zone, words) = split_zone(options(args)?.1);
    let (dp, _) = open(devices, words, 1)?;
    Ok(match format {
        OutputFormat::Text => {
            let mut text = String::new();
            dp.dpif.expectations(zone, &mut |view| _ = writeln!(text, "{view}"));
            text.into()
        }
        OutputFormat::Json => {
            let mut list = Vec::new();
            dp.dpif.expectations(zone, &mut |view| list.push(expectation_json(view)));
            Value::from(list).into()
        }
    })
}

fn tuple_json(key: &Key) -> Value {
    let (src, dst) = (key.src_ip().to_string(), key.dst_ip().to_string());
    if key.is_icmp() {
        let (kind, code) = (key.dst_port >> 8, key.dst_port & 0xff);
        json!({"src": src, "dst": dst, "id": key.src_port, "type": kind, "code": code})
    } else {
        json!({"src": src, "dst": dst, "sport": key.src_port, "dport": key.dst_port})
    }
}

fn view_json(view: &View) -> Value {
    let mut object = json!({
        "protocol": protocol_name(view.original.proto),
        "zone": view.original.zone,
        "original": tuple_json(&view.original),
        "reply": tuple_json(&view.reply),
        "mark": view.mark,
        "labels": format!("{:#x}", view.label),
        "timeout": view.timeout_s,
    });
    if let Some(tcp) = &view.tcp {
        let peer = |peer: &PeerInfo| {
            json!({
                "state": peer.state,
                "window_scale": peer.window_scale,
                "be_liberal": peer.is_liberal,
            })
        };
        object["tcp"] = json!({"state": tcp.connection, "original": peer(&tcp.original), "reply": peer(&tcp.reply)});
    }
    if let Some(helper) = view.helper {
        object["helper"] = helper.into();
    }
    if let Some(parent) = &view.parent {
        object["parent"] = tuple_json(parent);
    }
    object
}

fn expectation_json(view: &ExpectationView) -> Value {
    json!({
        "protocol": protocol_name(view.key.proto),
        "zone": view.key.zone,
        "original": tuple_json(&view.key),
        "mark": view.mark,
        "labels": format!("{:#x}", view.label),
        "parent": tuple_json(&view.parent),
    })
}

/// Numbers of connections by protocol, and those of TCP by state.
#[derive(Debug, Default)]
struct Counts {
    total: u64,
    by_protocol: BTreeMap<u8, u64>,
    tcp: BTreeMap<&'static str, u64>,
}

/// The protocols with lines of their own, in their order.
const PROTOCOLS: [(u8, &str); 7] = [
    (ipproto::TCP, "TCP"),
    (ipproto::UDP, "UDP"),
    (136, "UDPLITE"),
    (ipproto::SCTP, "SCTP"),
    (ipproto::ICMP, "ICMP"),
    (33, "DCCP"),
    (2, "IGMP"),
];

/// The states of TCP, in their order.
const TCP_STATES: [&str; 11] = [
    "CLOSED",
    "LISTEN",
    "SYN_SENT",
    "SYN_RECV",
    "ESTABLISHED",
    "CLOSE_WAIT",
    "FIN_WAIT_1",
    "CLOSING",
    "LAST_ACK",
    "FIN_WAIT_2",
    "TIME_WAIT",
];

impl Counts {
    fn add(&mut self, view: &View) {
        self.total += 1;
        *self.by_protocol.entry(view.original.proto).or_default() += 1;
        if let Some(tcp) = &view.tcp {
            *self.tcp.entry(tcp.connection).or_default() += 1;
        }
    }

    fn text(&self, has_states: bool) -> String {
        let mut text = format!("Connections Stats:\n    Total: {}\n", self.total);
        let mut line = |name: &str, n: u64| {
            if n > 0 {
                // Writing to a String cannot fail.
                let _ = writeln!(text, "  {name}: {n}");
            }
            if n > 0 && has_states && name == "TCP" {
                text.push_str("    Conn per TCP states:\n");
                for (state, n) in TCP_STATES.iter().filter_map(|state| Some((state, self.tcp.get(state)?))) {
                    let _ = writeln!(text, "\t  [{state}]={n}");
                }
            }
        };
        for (proto, name) in PROTOCOLS {
            line(name, self.by_protocol.get(&proto).copied().unwrap_or_default());
        }
        // As in Open vSwitch, ICMPv6 counts in the total only.
        let is_other = |proto: u8| proto != ipproto::ICMPV6 && PROTOCOLS.iter().all(|(known, _)| *known != proto);
        line("Other", self.by_protocol.iter().filter(|(proto, _)| is_other(**proto)).map(|(_, n)| n).sum());
        text
    }

    fn json(&self) -> Value {
        let protocols: Map<String, Value> =
            self.by_protocol.iter().map(|(proto, n)| (protocol_name(*proto).into_owned(), (*n).into())).collect();
        json!({"total": self.total, "protocols": protocols, "tcp-states": self.tcp})
    }
}

fn show_statistics(devices: &Devices, args: &[String], format: OutputFormat) -> Result<Shown, String> {
    let (options, mut words) = options(args)?;
    let (mut zone, mut has_states) = (None, options.more);
    // These words come last, in any order.
    while let Some((last, rest)) = words.split_last() {
        match split_zone(words).0 {
            Some(given) => zone = Some(given),
            None if last.starts_with("verbose") => has_states = true,
            None => break,
        }
        words = rest;
    }
    let (dp, _) = open(devices, words, 1)?;
    let mut counts = Counts::default();
    dp.dpif.connections(zone, &mut |view| counts.add(view));
    Ok(answer(format, || counts.text(has_states), || counts.json()))
}

fn show_buckets(devices: &Devices, args: &[String], format: OutputFormat) -> Result<Shown, String> {
    let words = options(args)?.1;
    let above = words.split_last().and_then(|(last, rest)| Some((leading_u32(last.strip_prefix("gt=")?)?, rest)));
    let (above, words) = above.map_or((0, words), |(above, rest)| (above, rest));
    let (dp, _) = open(devices, words, 1)?;
    let n = dp.dpif.n_connections();
    Ok(answer(format, || buckets_text(n, above.into()), || json!({"buckets": 1, "connections": n})))
}

/// As in Open vSwitch, all connections of a userspace datapath are in one bucket. A bucket with at most `above` shows a dot.
fn buckets_text(n: u64, above: u64) -> String {
    let mut text = format!("Total Buckets: 1\nCurrent Connections: {n}\n\n");
    if n > 0 {
        let line = format!("+{:-<11}+{:-<41}+\n", "", "");
        let shown = if n > above { n.to_string() } else { ".".to_owned() };
        text += &format!("{line}|  Buckets  |         Connections per Buckets         |\n{line}");
        text += &format!("{:>4}..{:>3}   | {shown:>5}\n\n", 0, 7);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    use conntrack::view::TcpStates;

    fn view(proto: u8, state: Option<&'static str>) -> View {
        let original = Key { src: [0, 1], dst: [0, 2], src_port: 5, dst_port: 0x0800, zone: 3, proto, is_v6: false };
        let peer = |state| PeerInfo { state, window_scale: None, is_liberal: false };
        let tcp = state.map(|state| TcpStates { connection: state, original: peer(state), reply: peer("CLOSED") });
        let reply = original.reversed();
        View { original, reply, timeout_s: 9, mark: 7, label: 0x77, tcp, helper: None, parent: None }
    }

    #[test]
    fn statistics_by_protocol_and_state() {
        let mut counts = Counts::default();
        assert_eq!(counts.text(true), "Connections Stats:\n    Total: 0\n");
        let all = [(6, Some("TIME_WAIT")), (6, Some("SYN_SENT")), (17, None), (1, None), (58, None), (47, None)];
        all.into_iter().chain([(255, None)]).for_each(|(proto, state)| counts.add(&view(proto, state)));
        let rest = "  UDP: 1\n  ICMP: 1\n  Other: 2\n";
        assert_eq!(counts.text(false), format!("Connections Stats:\n    Total: 7\n  TCP: 2\n{rest}"));
        let states = "    Conn per TCP states:\n\t  [SYN_SENT]=1\n\t  [TIME_WAIT]=1\n";
        assert_eq!(counts.text(true), format!("Connections Stats:\n    Total: 7\n  TCP: 2\n{states}{rest}"));
        let json = counts.json();
        assert_eq!(
            (&json["total"], &json["protocols"]["icmpv6"], &json["protocols"]["47"]),
            (&7.into(), &1.into(), &1.into())
        );
        assert_eq!(json["tcp-states"], json!({"SYN_SENT": 1, "TIME_WAIT": 1}));
    }

    #[test]
    fn all_connections_are_in_one_bucket() {
        assert_eq!(buckets_text(0, 0), "Total Buckets: 1\nCurrent Connections: 0\n\n");
        let shown = buckets_text(6, 5);
        assert!(shown.ends_with("-+\n   0..  7   |     6\n\n"), "{shown}");
        assert!(shown.contains("+-----------+-----------------------------------------+\n|  Buckets  |"), "{shown}");
        assert!(buckets_text(6, 6).ends_with("   0..  7   |     .\n\n"));
    }

    #[test]
    fn connections_as_json() {
        let tcp = view_json(&view(6, Some("SYN_SENT")));
        assert_eq!((&tcp["protocol"], &tcp["zone"], &tcp["labels"]), (&"tcp".into(), &3.into(), &"0x77".into()));
        assert_eq!(tcp["reply"], json!({"src": "0.0.0.2", "dst": "0.0.0.1", "sport": 2048, "dport": 5}));
        assert_eq!(tcp["tcp"]["state"], "SYN_SENT");
        let echo = view_json(&view(1, None));
        assert_eq!(echo["original"], json!({"src": "0.0.0.1", "dst": "0.0.0.2", "id": 5, "type": 8, "code": 0}));
        assert_eq!(echo.get("tcp"), None);
    }

    #[test]
    fn zones_come_last() {
        let split = |words: &[&str]| {
            let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
            let (zone, rest) = split_zone(&words);
            (zone, rest.len())
        };
        assert_eq!((split(&["d", "zone=1x"]), split(&["zone=-1"])), ((Some(1), 1), (Some(65535), 0)));
        assert_eq!((split(&["zone=1", "d"]), split(&["zone=x"]), split(&[])), ((None, 2), (None, 1), (None, 0)));
    }
}
