//! `dpctl/add-flow` and its relatives: datapath flows put, changed and taken away by hand (ovs-dpctl(8)).

use super::dpctl::{at_most, exists, flow_stats_text, selected, split_options};
use super::{act, port_number, show_blocking};
use crate::devices::{Devices, Dp};
use dpif::text::{KeyError, parse_actions, parse_flow, split_ufid};
use dpif::{DpAction, DpFlow, DpFlowEntry};
use flow::{FlowKey, FlowMask};
use std::sync::Arc;
use unixctl::Commands;

/// How a command changes a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Change {
    Add,
    Modify,
    Delete,
}

/// Options before the words.
#[derive(Clone, Copy, Debug, Default)]
struct Options {
    statistics: bool,
    clear: bool,
    may_create: bool,
}

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    act(commands, devices, ("dpctl/add-flow", "[dp] flow actions", 2..=6), |d, a| one(d, Change::Add, a));
    act(commands, devices, ("dpctl/mod-flow", "[dp] flow actions", 2..=6), |d, a| one(d, Change::Modify, a));
    act(commands, devices, ("dpctl/del-flow", "[dp] flow", 1..=6), |d, a| one(d, Change::Delete, a));
    act(commands, devices, ("dpctl/add-flows", "[dp] file", 1..=6), |d, a| file(d, Change::Add, a));
    act(commands, devices, ("dpctl/mod-flows", "[dp] file", 1..=6), |d, a| file(d, Change::Modify, a));
    show_blocking(commands, devices, ("dpctl/del-flows", "[dp] [file]", 0..=6), |d, args, _| {
        let (options, words) = parse_options(args, "dpctl/del-flows", 2)?;
        let done = match words[..] {
            [] => purge(d, None),
            [name] if exists(d, name) => purge(d, Some(name)),
            _ => lines(d, Change::Delete, options, &words),
        };
        done.map(Into::into)
    });
}

fn purge(devices: &Devices, name: Option<&str>) -> Result<String, String> {
    let dp = selected(devices, name)?;
    dp.switch.purge();
    for entry in dp.dpif.flow_dump() {
        // One that is gone meanwhile is gone.
        let _ = dp.dpif.flow_del(entry.id);
    }
    Ok(String::new())
}

/// The options and the words, of which the command takes at most `most`.
fn parse_options<'a>(args: &'a [String], command: &str, most: usize) -> Result<(Options, Vec<&'a str>), String> {
    let mut options = Options::default();
    let (given, words) = split_options(args);
    for option in given {
        match option.as_str() {
            "-s" | "--statistics" => options.statistics = true,
            "--clear" => options.clear = true,
            "--may-create" => options.may_create = true,
            option => return Err(format!("Unrecognized option {option}")),
        }
    }
    at_most(command, words, most)?;
    Ok((options, words.iter().map(String::as_str).collect()))
}

fn one(devices: &Devices, change: Change, args: &[String]) -> Result<String, String> {
    let (command, most) = match change {
        Change::Add => ("dpctl/add-flow", 3),
        Change::Modify => ("dpctl/mod-flow", 3),
        Change::Delete => ("dpctl/del-flow", 2),
    };
    let (options, words) = parse_options(args, command, most)?;
    let (name, flow, actions) = match (change, &words[..]) {
        (Change::Delete, [flow]) => (None, *flow, ""),
        (Change::Delete, [name, flow]) => (Some(*name), *flow, ""),
        (Change::Add | Change::Modify, [flow, actions]) => (None, *flow, *actions),
        (Change::Add | Change::Modify, [name, flow, actions]) => (Some(*name), *flow, *actions),
        _ => return Err("ovs-vswitchd: a flow, and but for del-flow its actions, are to be given".to_owned()),
    };
    apply(devices, &selected(devices, name)?, change, options, flow, actions)
}

fn file(devices: &Devices, change: Change, args: &[String]) -> Result<String, String> {
    let command = if change == Change::Add { "dpctl/add-flows" } else { "dpctl/mod-flows" };
    let (options, words) = parse_options(args, command, 2)?;
    lines(devices, change, options, &words)
}

/// Each line of a file: `[add|modify|delete] flow [actions]`, with blanks between. Stops at the first that fails.
fn lines(devices: &Devices, change: Change, options: Options, words: &[&str]) -> Result<String, String> {
    let (name, path) = match words {
        [path] => (None, *path),
        // As in Open vSwitch, a word that is no datapath means nothing here.
        [name, path] => (Some(*name).filter(|name| exists(devices, name)), *path),
        _ => return Err("ovs-vswitchd: a file is to be given".to_owned()),
    };
    let dp = selected(devices, name)?;
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        // As in Open vSwitch, no error for scripts.
        Err(e) => {
            return Ok(format!("ovs-vswitchd: Opening file \"{path}\" failed ({})\n", netdev::device::errno_text(&e)));
        }
    };
    let mut out = String::new();
    for (n, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (change, line) = match line.split_once(char::is_whitespace) {
            Some(("add", rest)) => (Change::Add, rest.trim()),
            Some(("modify", rest)) => (Change::Modify, rest.trim()),
            Some(("delete", rest)) => (Change::Delete, rest.trim()),
            _ => (change, line),
        };
        let (flow, actions) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if actions.is_empty() && change != Change::Delete {
            return Err(format!("ovs-vswitchd: {path}:{}: no actions", n + 1));
        }
        let done = apply(devices, &dp, change, options, flow, actions.trim());
        out += &done.map_err(|e| format!("{e} ({path}:{})", n + 1))?;
    }
    Ok(out)
}

/// The installed flow with exactly this match.
fn find(dp: &Dp, key: &FlowKey, mask: &FlowMask) -> Option<DpFlowEntry> {
    let same = |e: &DpFlowEntry| e.mask == *mask && e.key.eq_masked(key, mask);
    dp.dpif.flow_dump().into_iter().find(same)
}

/// Returns true if a list of actions sends samples to collectors on this host.
fn samples_locally(actions: &[DpAction]) -> bool {
    let one =
        |action: &DpAction| matches!(action, DpAction::Psample(_)) || action.nested().any(|list| samples_locally(list));
    actions.iter().any(one)
}

fn apply(
    devices: &Devices,
    dp: &Dp,
    change: Change,
    options: Options,
    flow: &str,
    actions: &str,
) -> Result<String, String> {
    let number = |name: &str| port_number(dp, name);
    let invalid = |what: &str| format!("ovs-vswitchd: parsing {what} (Invalid argument)");
    let (ufid, flow) = split_ufid(flow).map_or((None, flow), |(ufid, rest)| (Some(ufid), rest));
    let parsed = parse_flow(flow, &dp.dpif.tunnel_options(), &number).map_err(|e| match change {
        Change::Add | Change::Modify if matches!(e, KeyError::NoTtl(_)) => {
            "ovs-vswitchd: updating flow table (Invalid argument)".to_owned()
        }
        Change::Delete => format!("ovs-vswitchd: {e} (Invalid argument)"),
        Change::Add | Change::Modify => invalid(&format!("flow key ({e})")),
    });
    let (key, mask) = parsed?;
    let is_new = change == Change::Add || (change == Change::Modify && options.may_create);
    if is_new && key.in_port().0 == base::DpPort::NONE.0 {
        tracing::error!(target: "dpif_netdev", "failed to put[create] flow: in_port is not an exact match");
        return Err("ovs-vswitchd: updating flow table (Invalid argument)".to_owned());
    }
    let old = match ufid {
        Some(ufid) => {
            let by_ufid = devices.ufids.flow(ufid).and_then(|id| dp.dpif.flow_get(id));
            by_ufid.or_else(|| find(dp, &key, &mask).filter(|_| change == Change::Add))
        }
        None => find(dp, &key, &mask),
    };
    let missing = |doing: &str| format!("ovs-vswitchd: {doing} (No such file or directory)");
    let statistics = |entry: &DpFlowEntry| {
        if options.statistics { format!("{}\n", flow_stats_text(dp, &entry.stats)) } else { String::new() }
    };
    if change == Change::Delete {
        let hint = if ufid.is_none() { "\nPerhaps you need to specify a UFID?" } else { "" };
        let mut old = old.ok_or_else(|| missing("deleting flow") + hint)?;
        old.stats = dp.dpif.flow_del(old.id).map_err(|_| missing("deleting flow"))?;
        return Ok(statistics(&old));
    }
    let actions: dpif::DpActions = parse_actions(actions, &number).map_err(|_| invalid("actions"))?.into();
    if samples_locally(&actions) && !dp.switch.has_local_collectors() {
        tracing::error!(target: "dpif_netdev", "failed to put flow: action psample is not supported by this datapath");
        return Err("ovs-vswitchd: updating flow table (Invalid argument)".to_owned());
    }
    let id = match (change, &old) {
        (Change::Add, Some(_)) => return Err("ovs-vswitchd: updating flow table (File exists)".to_owned()),
        (Change::Modify, None) if !options.may_create => return Err(missing("updating flow table")),
        (Change::Modify, Some(old)) if !options.clear => old.id,
        (_, Some(old)) => {
            let _ = dp.dpif.flow_del(old.id);
            dp.switch.new_flow_id()
        }
        (_, None) => dp.switch.new_flow_id(),
    };
    let generation = dp.switch.generation();
    let flow = DpFlow::by_hand(&key, &mask, actions, generation);
    dp.dpif.flow_put(id, flow).map_err(|e| format!("ovs-vswitchd: updating flow table ({e})"))?;
    if let Some(ufid) = ufid {
        devices.ufids.give(id, ufid, |id| devices.all_datapaths().iter().any(|dp| dp.dpif.flow_get(id).is_some()));
    }
    Ok(old.as_ref().map(statistics).unwrap_or_default())
}
