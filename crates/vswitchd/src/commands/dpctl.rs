//! `dpctl/`: datapaths by themselves, those of bridges and those made by hand. Commands of `dpctl_ports` make and change
//! them, and commands of `dpctl_flows` change their flows.

use super::{port_name, show};
use crate::devices::{Devices, Dp};
use crate::event_log::{flags_text, stats_text};
use crate::standalone::DatapathError;
use dpif::text::{Detail, format_actions, format_key};
use dpif::{DpFlowEntry, DpFlowStats};
use flow::Match;
use flow::text::MatchError;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};
use vlog::{RateLimit, warn_rl};

/// Limit on warnings about types that do not exist.
static REFUSED: RateLimit = RateLimit::new(10, 10);

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    show(commands, devices, ("dpctl/dump-dps", "", 0..=0), |d, _, format| {
        let names = d.all_datapaths().into_iter().map(|dp| dp.full_name());
        Ok(match format {
            OutputFormat::Text => names.map(|n| n + "\n").collect::<String>().into(),
            OutputFormat::Json => names.map(Value::from).collect::<Value>().into(),
        })
    });
    commands.register_list("dpctl/list-commands", "dpctl/");
    show(commands, devices, ("dpctl/show", "[-s] [dp...]", 0..=usize::MAX), show_datapaths);
    let usage = "[-m] [--names] [dp] [filter=..] [type=..] [pmd=..]";
    show(commands, devices, ("dpctl/dump-flows", usage, 0..=6), dump_flows);
    show(commands, devices, ("dpctl/get-flow", "[dp] ufid", 1..=5), get_flow);
    show(commands, devices, ("dpctl/cache-get-size", "[dp]", 0..=1), |d, args, format| {
        if let Some(option) = args.first().filter(|arg| arg.starts_with('-')) {
            return Err(format!("Unrecognized option {option}"));
        }
        // No cache of a userspace datapath has a size that can be set: each grows with the flows.
        let names = cached(d, args.first())?.into_iter().map(|dp| dp.full_name());
        Ok(match format {
            OutputFormat::Text => names.map(|name| name + ":\n").collect::<String>().into(),
            OutputFormat::Json => Value::from(names.map(|name| (name, json!({}))).collect::<Map<_, _>>()).into(),
        })
    });
    show(commands, devices, ("dpctl/cache-set-size", "dp cache <size>", 3..=3), |d, args, _| {
        if let Some(option) = args.first().filter(|arg| arg.starts_with('-')) {
            return Err(format!("Unrecognized option {option}"));
        }
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|digit| digit.is_ascii_digit());
        if args.last().is_none_or(|size| !is_number(size.strip_prefix('-').unwrap_or(size))) {
            return Err("ovs-vswitchd: size is malformed (Invalid argument)".to_owned());
        }
        cached(d, args.first())?;
        Err("ovs-vswitchd: Setting caches not supported (Operation not supported)".to_owned())
    });
    show(commands, devices, ("dpctl/normalize-actions", "actions", 2..=usize::MAX), |_, args, _| {
        if let Some(option) = split_options(args).0.first() {
            return Err(format!("Unrecognized option {option}"));
        }
        let mut out = String::new();
        match dpif::text::normalise(&args[0], &args[1], &args[2..], &mut out) {
            Ok(()) => Ok(out.into()),
            Err(error) => Err(format!("{out}ovs-vswitchd: {error}")),
        }
    });
    show(commands, devices, ("dpctl/parse-actions", "actions", 1..=usize::MAX), |_, args, _| {
        if let Some(option) = split_options(args).0.first() {
            return Err(format!("Unrecognized option {option}"));
        }
        let texts = args.iter().map(|actions| Ok(dpif::text::parsed_actions(actions)? + "\n"));
        let texts: Result<String, dpif::text::NormaliseError> = texts.collect();
        Ok(texts.map_err(|e| format!("ovs-vswitchd: {e}"))?.into())
    });
}

/// The options in front of a command's words, and the words. After a word, nothing is an option.
pub(super) fn split_options(args: &[String]) -> (&[String], &[String]) {
    args.split_at(args.iter().take_while(|arg| arg.starts_with('-') && arg.len() > 1).count())
}

/// Refuses more than `most` words.
pub(super) fn at_most(command: &str, words: &[String], most: usize) -> Result<(), String> {
    if words.len() > most {
        return Err(format!("\"{command}\" command takes at most {most} arguments"));
    }
    Ok(())
}

/// The datapath of that name, or all, for the commands about caches.
fn cached(devices: &Devices, name: Option<&String>) -> Result<Vec<Dp>, String> {
    match name {
        Some(name) => {
            let found = find(devices, name);
            Ok(vec![found.map_err(|error| format!("ovs-vswitchd: Opening datapath {name} failed ({error})"))?])
        }
        None => Ok(devices.all_datapaths()),
    }
}

/// Type and name of `[type@]name`. Both are `system` where they are missing.
fn parse_name(text: &str) -> (&str, &str) {
    match text.split_once('@') {
        Some((kind, name)) => (or_system(kind), or_system(name)),
        None => ("system", text),
    }
}

fn or_system(word: &str) -> &str {
    if word.is_empty() { "system" } else { word }
}

/// The datapath that `[type@]name` names.
pub(super) fn find(devices: &Devices, text: &str) -> Result<Dp, DatapathError> {
    let (kind, name) = parse_name(text);
    devices.find_datapath(kind, name).inspect_err(|error| log_unknown(kind, name, error))
}

/// Makes the datapath that `[type@]name` names.
pub(super) fn make(devices: &Devices, text: &str) -> Result<Dp, DatapathError> {
    let (kind, name) = parse_name(text);
    devices.add_datapath(kind, name).inspect_err(|error| log_unknown(kind, name, error))
}

fn log_unknown(kind: &str, name: &str, error: &DatapathError) {
    if *error == DatapathError::UnknownType {
        warn_rl!(&REFUSED, target: "dpif", "could not create datapath {name} of unknown type {kind}");
    }
}

/// Whether there is a datapath of that name.
pub(super) fn exists(devices: &Devices, text: &str) -> bool {
    let (kind, name) = parse_name(text);
    devices.find_datapath(kind, name).is_ok()
}

/// The datapath of that name, or the only one.
pub(super) fn selected(devices: &Devices, name: Option<&str>) -> Result<Dp, String> {
    let missing = "ovs-vswitchd: datapath not found (Invalid argument)";
    if let Some(name) = name {
        let (kind, name) = parse_name(name);
        return devices.find_datapath(kind, name).map_err(|_| missing.to_owned());
    }
    let mut all = devices.all_datapaths();
    match all.len() {
        1 => Ok(all.remove(0)),
        0 => Err(format!("ovs-vswitchd: no datapaths exist\n{missing}")),
        _ => Err(format!("ovs-vswitchd: multiple datapaths, specify one\n{missing}")),
    }
}

fn show_datapaths(devices: &Devices, args: &[String], format: OutputFormat) -> Result<super::Shown, String> {
    let mut statistics = false;
    let (options, wanted) = split_options(args);
    for option in options {
        match option.as_str() {
            "-s" | "--statistics" => statistics = true,
            option => return Err(format!("Unrecognized option {option}")),
        }
    }
    let mut datapaths = if wanted.is_empty() { devices.all_datapaths() } else { Vec::new() };
    let mut out = String::new();
    let show = |dp: &Dp, out: &mut String| {
        if format == OutputFormat::Text {
            datapath_text(dp, statistics, out);
        }
    };
    datapaths.iter().for_each(|dp| show(dp, &mut out));
    let mut is_missing = false;
    for name in wanted {
        match find(devices, name) {
            Ok(found) => {
                show(&found, &mut out);
                datapaths.push(found);
            }
            Err(error) => {
                is_missing = true;
                let _ = writeln!(out, "ovs-vswitchd: opening datapath {name} failed ({error})");
            }
        }
    }
    if is_missing {
        return Err(out.trim_end().to_owned());
    }
    Ok(match format {
        OutputFormat::Text => out.into(),
        OutputFormat::Json => {
            let all: Map<_, _> = datapaths.iter().map(|dp| (dp.full_name(), datapath_json(dp))).collect();
            Value::from(all).into()
        }
    })
}

/// Packets that a port dropped, coming in and going out.
fn dropped(stats: &dpif::PortStats) -> (u64, u64) {
    let sum = |drops: &[(base::DropReason, u64)]| drops.iter().map(|(_, n)| n).sum();
    (sum(&stats.rx_drops), sum(&stats.tx_drops))
}

fn datapath_text(dp: &Dp, statistics: bool, out: &mut String) {
    let stats = dp.dpif.stats();
    let _ = writeln!(out, "{}:", dp.full_name());
    let _ = writeln!(out, "  lookups: hit:{} missed:{} lost:{}", stats.hit, stats.missed, stats.lost);
    let _ = writeln!(out, "  flows: {}", stats.flows);
    for port in dp.dpif.ports() {
        let _ = write!(out, "  port {}: {}", port.number, port.device.name());
        // As Open vSwitch does: `system` is the default type and is not printed.
        let _ = match port.device.kind() {
            "system" => writeln!(out),
            _ => {
                let mut kind = super::datapath::kind_of_device(&*port.device);
                kind.settings.extend(dp.tunnel_ports.settings(port.device.name()));
                writeln!(out, " ({kind})")
            }
        };
        if statistics {
            let s = &port.stats;
            let (rx_dropped, tx_dropped) = dropped(s);
            let _ = writeln!(out, "    RX packets:{} errors:? dropped:{rx_dropped} overruns:? frame:?", s.rx_packets);
            let _ = writeln!(out, "    TX packets:{} errors:? dropped:{tx_dropped} aborted:? carrier:?", s.tx_packets);
            let _ = writeln!(out, "    collisions:?");
            let _ = writeln!(
                out,
                "    RX bytes:{}{}  TX bytes:{}{}",
                s.rx_bytes,
                short(s.rx_bytes),
                s.tx_bytes,
                short(s.tx_bytes)
            );
            let _ = writeln!(out, "    UPCALL packets:? errors:?");
        }
    }
}

/// A number of bytes in a larger unit, in parentheses, from one KiB on.
fn short(bytes: u64) -> String {
    let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(shift, _)| bytes >> shift > 0);
    unit.map_or_else(String::new, |(shift, unit)| format!(" ({:.1} {unit})", bytes as f64 / (1u64 << shift) as f64))
}

fn datapath_json(dp: &Dp) -> Value {
    let stats = dp.dpif.stats();
    let port = |port: dpif::PortInfo| {
        let (rx_dropped, tx_dropped) = dropped(&port.stats);
        json!({
            "port_no": port.number.0,
            "name": port.device.name(),
            "type": port.device.kind(),
            "rx_packets": port.stats.rx_packets,
            "rx_bytes": port.stats.rx_bytes,
            "rx_dropped": rx_dropped,
            "tx_packets": port.stats.tx_packets,
            "tx_bytes": port.stats.tx_bytes,
            "tx_dropped": tx_dropped,
        })
    };
    json!({
        "lookups": {"hit": stats.hit, "missed": stats.missed, "lost": stats.lost},
        "flows": stats.flows,
        "ports": dp.dpif.ports().into_iter().map(port).collect::<Value>(),
    })
}

/// How flows are written.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FlowFormat {
    /// All fields and the flow's id.
    pub(super) more: bool,
    /// Names of ports.
    pub(super) names: Option<bool>,
    /// With the name of the layer that forwards its packets, as Open vSwitch has them.
    pub(super) thread: bool,
}

impl FlowFormat {
    /// Takes an option, if it is one.
    pub(super) fn accept(&mut self, option: &str) -> bool {
        match option {
            "-m" | "--more" => self.more = true,
            "--names" => self.names = Some(true),
            "--no-names" => self.names = Some(false),
            _ => return false,
        }
        true
    }
}

struct FlowTexts {
    key: String,
    flags: String,
    actions: String,
}

fn flow_texts(dp: &Dp, entry: &DpFlowEntry, how: FlowFormat) -> FlowTexts {
    // With more details, ports have names, too.
    let names = how.names.unwrap_or(how.more);
    let name = |port| names.then(|| port_name(dp, port)).flatten();
    let mut key = String::new();
    let detail = if how.more { Detail::All } else { Detail::Matched };
    format_key((&entry.key, &entry.mask), detail, &dp.dpif.tunnel_options(), &name, &mut key);
    let actions = format_actions(&entry.actions, entry.key.eth_type(), &name);
    FlowTexts { key, flags: flags_text(&entry.stats), actions }
}

/// What a flow has done until now.
pub(super) fn flow_stats_text(dp: &Dp, stats: &DpFlowStats) -> String {
    stats_text(stats, dp.switch.clock().now())
}

/// A flow as a line of a dump, without the end of the line.
pub(super) fn flow_line(devices: &Devices, dp: &Dp, entry: &DpFlowEntry, how: FlowFormat) -> String {
    let FlowTexts { key, actions, .. } = flow_texts(dp, entry, how);
    let comma = if how.thread { "," } else { "" };
    let id = if how.more { format!("ufid:{}{comma} ", devices.ufids.text(entry.id)) } else { String::new() };
    let kind = match (how.more && how.thread, entry.offloaded) {
        (false, _) => "",
        (true, false) => ", dp:ovs",
        (true, true) => ", offloaded:yes, dp:tc",
    };
    let stats = flow_stats_text(dp, &entry.stats);
    format!("{id}{key}, {stats}{kind}, actions:{actions}")
}

/// A flow as an object.
pub(super) fn flow_json(devices: &Devices, dp: &Dp, entry: &DpFlowEntry, how: FlowFormat) -> Value {
    let FlowTexts { key, flags, actions, .. } = flow_texts(dp, entry, how);
    let used = entry.stats.used.map(|used| dp.switch.clock().now().since(used));
    json!({
        "ufid": devices.ufids.text(entry.id),
        "flow": key,
        "packets": entry.stats.packets,
        "bytes": entry.stats.bytes,
        "used-ms-ago": used,
        "tcp-flags": flags,
        "actions": actions,
        "offloaded": entry.offloaded,
    })
}

fn dump_flows(devices: &Devices, args: &[String], format: OutputFormat) -> Result<super::Shown, String> {
    let mut how = FlowFormat { thread: true, ..FlowFormat::default() };
    let (options, words) = split_options(args);
    if let Some(option) = options.iter().find(|option| !how.accept(option)) {
        return Err(format!("Unrecognized option {option}"));
    }
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    // Each kind of word counts once, behind the datapath.
    let (mut filter, mut kinds, mut thread) = (None, None, None);
    while let Some(word) = words.last() {
        if let (None, Some(text)) = (&filter, word.strip_prefix("filter=")) {
            let parsed = flow::text::parse_match(text, &flow::text::NoNames);
            let error = |e: MatchError| match e {
                MatchError::MissingValue(key) | MatchError::UnknownKeyword(key) => format!("unknown field {key}"),
                e => e.to_string(),
            };
            let failed = |e| format!("ovs-vswitchd: Failed to parse filter ({text}: {})", error(e));
            filter = Some(parsed.map_err(failed)?);
        } else if let (None, Some(text)) = (kinds, word.strip_prefix("type=")) {
            kinds = Some(Kinds::parse(text)?);
        } else if let (None, Some(text)) = (thread, word.strip_prefix("pmd=")) {
            // All packet threads share the cached flows.
            thread = Some(text.parse::<u32>().map_err(|_| String::new())?);
        } else {
            break;
        }
        words.pop();
    }
    let kinds = kinds.unwrap_or(Kinds { here: true, below: true });
    // As in Open vSwitch, words that are no datapath mean nothing if there are several.
    let name = words.first().filter(|name| words.len() == 1 || exists(devices, name)).copied();
    let mut lines = Vec::new();
    let mut objects = Vec::new();
    let dp = selected(devices, name)?;
    let mut entries = dp.dpif.flow_dump();
    entries.retain(|entry| kinds.has(entry) && filter.as_ref().is_none_or(|f| within(&dp, entry, f)));
    // Scripts that read dumps of Open vSwitch's kernel datapath, such as ovs-dpctl-top, expect flows alone.
    if dp.kind != "system" && !entries.is_empty() {
        lines.push("flow-dump from the main thread:".to_owned());
    }
    match format {
        OutputFormat::Text => lines.extend(entries.iter().map(|e| flow_line(devices, &dp, e, how))),
        OutputFormat::Json => objects.extend(entries.iter().map(|e| flow_json(devices, &dp, e, how))),
    }
    Ok(match format {
        OutputFormat::Text => lines.join("\n").into(),
        OutputFormat::Json => Value::from(objects).into(),
    })
}

/// Which flows are shown.
#[derive(Clone, Copy, Debug)]
struct Kinds {
    /// Flows whose packets all reach userspace.
    here: bool,
    /// Flows that an accelerator forwards.
    below: bool,
}

impl Kinds {
    /// Reads a list of types as ovs-dpctl(8) has them.
    fn parse(list: &str) -> Result<Self, String> {
        let mut kinds = Self { here: false, below: false };
        for kind in list.split(',') {
            let (here, below) = match kind {
                "all" => (true, true),
                "ovs" | "non-offloaded" => (true, false),
                "tc" | "offloaded" => (false, true),
                "dpdk" | "partially-offloaded" => (false, false),
                _ => return Err(format!("ovs-vswitchd: Failed to parse type ({list}) (Invalid argument)")),
            };
            kinds.here |= here;
            kinds.below |= below;
        }
        Ok(kinds)
    }

    fn has(self, entry: &DpFlowEntry) -> bool {
        if entry.offloaded { self.below } else { self.here }
    }
}

/// Whether a flow could be used by packets that `filter` matches. Ports in a filter are OpenFlow's.
fn within(dp: &Dp, entry: &DpFlowEntry, filter: &Match) -> bool {
    let mut key = entry.key.clone();
    if let Some((_, no)) = dp.switch.port_of(base::DpPort(key.in_port().0)) {
        key.set_in_port(no);
    }
    let words = filter.key().0.iter().zip(filter.mask().0.iter()).zip(key.0.iter().zip(entry.mask.0.iter()));
    words.into_iter().all(|((want, wanted), (has, matched))| (want ^ has) & wanted & matched == 0)
}

fn get_flow(devices: &Devices, args: &[String], format: OutputFormat) -> Result<super::Shown, String> {
    let mut how = FlowFormat { thread: true, ..FlowFormat::default() };
    let (options, words) = split_options(args);
    for option in options {
        if !how.accept(option) && !matches!(option.as_str(), "-s" | "--statistics") {
            return Err(format!("Unrecognized option {option}"));
        }
    }
    at_most("dpctl/get-flow", words, 2)?;
    let (name, id) = match words {
        [name, id] => (Some(name.as_str()), id),
        [id] => (None, id),
        _ => return Err("ovs-vswitchd: parsing flow ufid".to_owned()),
    };
    let dp = selected(devices, name)?;
    // As in Open vSwitch, no error for scripts.
    let Some(id) = id.starts_with("ufid:").then(|| devices.ufids.parse(id)).flatten() else {
        return Ok("ovs-vswitchd: parsing flow ufid\n".to_owned().into());
    };
    let entry = id.and_then(|id| dp.dpif.flow_get(id));
    let entry = entry.ok_or("ovs-vswitchd: getting flow (No such file or directory)")?;
    Ok(match format {
        OutputFormat::Text => flow_line(devices, &dp, &entry, how).into(),
        OutputFormat::Json => flow_json(devices, &dp, &entry, how).into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_datapaths() {
        assert_eq!(parse_name("netdev@d"), ("netdev", "d"));
        assert_eq!(parse_name("d"), ("system", "d"));
        assert_eq!((parse_name("@d"), parse_name("dummy@")), (("system", "d"), ("dummy", "system")));
        assert_eq!(parse_name(""), ("system", ""));
    }

    #[test]
    fn types_of_flows() {
        let parsed = |text| Kinds::parse(text).map(|kinds| (kinds.here, kinds.below));
        assert_eq!(parsed("all"), Ok((true, true)));
        assert_eq!(parsed("tc,ovs"), Ok((true, true)));
        assert_eq!(parsed("offloaded"), Ok((false, true)));
        assert_eq!(parsed("non-offloaded"), Ok((true, false)));
        assert_eq!(parsed("dpdk"), Ok((false, false)));
        assert_eq!(parsed("x").unwrap_err(), "ovs-vswitchd: Failed to parse type (x) (Invalid argument)");
    }

    #[test]
    fn sizes() {
        assert_eq!((short(0), short(1023), short(1536)), (String::new(), String::new(), " (1.5 KiB)".to_owned()));
        assert_eq!(short(5 << 40), " (5.0 TiB)");
    }
}
