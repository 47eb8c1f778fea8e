//! `dpif/`: datapaths as bridges see them.

use super::dpctl::{FlowFormat, flow_line};
use super::{all_bridges, dp_name, find_bridge, show};
use crate::devices::Devices;
use ofproto::features::Set;
use ofproto::show::PortKind;
use ofproto::{Switch, show as texts};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    show(commands, devices, ("dpif/show", "", 0..=0), |d, _, format| Ok(dpif_show(d, format)));
    show(commands, devices, ("dpif/dump-dps", "", 0..=0), |d, _, format| {
        let kind = |bridge: &str| d.datapaths().into_iter().find(|(_, dp)| dp.switch.bridge_named(bridge).is_some());
        let names = all_bridges(d).into_iter().filter_map(|b| Some(format!("{}@{}", kind(b.name())?.0, b.name())));
        Ok(match format {
            OutputFormat::Text => names.map(|n| n + "\n").collect::<String>().into(),
            OutputFormat::Json => names.map(Value::from).collect::<Value>().into(),
        })
    });
    show(commands, devices, ("dpif/show-dp-features", "bridge", 1..=1), |d, args, format| {
        let (text, json) = switch_of(d, args)?.show_features();
        Ok(in_format(format, text, json))
    });

    show(
        commands,
        devices,
        ("dpif/set-dp-features", "[--force] bridge [feature [value]]", 1..=4),
        |d, args, format| {
            let (forced, args) = match args {
                [first, rest @ ..] if first == "--force" => (true, rest),
                all => (false, all),
            };
            let switch = switch_of(d, args)?;
            let answer = match args {
                [_, feature, value, ..] => match switch.set_feature(feature, value, forced) {
                    Set::Done => (String::new(), Value::Null),
                    Set::Refused(why) => (format!("{why}\n"), json!({"error": why})),
                },
                [_, rest @ ..] => {
                    let unknown =
                        || ("Unexpected support field\n".to_owned(), json!({"error": "Unexpected support field"}));
                    switch.list_features(rest.first().map(String::as_str)).unwrap_or_else(unknown)
                }
                [] => (String::new(), Value::Null),
            };
            Ok(in_format(format, answer.0, answer.1))
        },
    );
    show(commands, devices, ("dpif/dump-flows", "[-m] [--names | --no-names] bridge", 1..=4), dump_flows);
}

/// The datapath of the bridge that the arguments begin with.
fn switch_of(devices: &Devices, args: &[String]) -> Result<Arc<Switch>, String> {
    let bridge = args.first().and_then(|name| find_bridge(devices, name)).ok_or("no such bridge")?;
    bridge.switch().ok_or_else(|| "bridge is being removed".to_owned())
}

fn in_format(format: OutputFormat, text: String, json: Value) -> super::Shown {
    match format {
        OutputFormat::Text => text.into(),
        OutputFormat::Json => json.into(),
    }
}

fn dpif_show(devices: &Devices, format: OutputFormat) -> super::Shown {
    // A datapath that no bridge is on is not there for Open vSwitch.
    let datapaths = devices.datapaths().into_iter().filter(|(_, dp)| !dp.switch.bridges().is_empty());
    match format {
        OutputFormat::Text => datapaths
            .map(|(kind, dp)| texts::dpif_show(&dp.switch, &dp_name(&kind), &|name| kind_of(&dp.switch, name)))
            .collect::<String>()
            .into(),
        OutputFormat::Json => {
            let all: Map<_, _> = datapaths
                .map(|(kind, dp)| (dp_name(&kind), texts::dpif_json(&dp.switch, &|name| kind_of(&dp.switch, name))))
                .collect();
            Value::from(all).into()
        }
    }
}

/// A port's type and settings, as `dpif/show` puts them in parentheses.
fn kind_of(switch: &Switch, name: &str) -> PortKind {
    let Some(port) = switch.bridges().into_iter().find_map(|b| b.port_named(name)) else {
        return PortKind::plain("unknown");
    };
    if let Some(config) = &port.spec.tunnel {
        return PortKind { settings: config.options(), ..PortKind::plain(config.tunnel_type.name()) };
    }
    match (&port.spec.device, port.spec.out) {
        (Some(device), _) => kind_of_device(&**device),
        (None, xlate::PortOut::Patch(bridge, no)) => {
            let peer = switch.bridge(bridge).and_then(|b| b.port(no));
            let peer = peer.map(|p| ("peer", p.spec.name.clone()));
            PortKind { settings: peer.into_iter().collect(), ..PortKind::plain("patch") }
        }
        (None, _) => PortKind::plain("patch"),
    }
}

/// A device's type and settings.
pub(super) fn kind_of_device(device: &dyn netdev::Netdev) -> PortKind {
    let mut kind = PortKind::plain(device.kind());
    if device.kind() == "dummy-pmd" {
        // A dummy sends through one queue.
        kind.settings = vec![
            ("n_rxq", device.n_rxq().to_string()),
            ("n_txq", "1".to_owned()),
            ("numa_id", device.numa_id().unwrap_or(0).to_string()),
        ];
    }
    kind
}

fn dump_flows(devices: &Devices, args: &[String], format: OutputFormat) -> Result<super::Shown, String> {
    let mut how = FlowFormat::default();
    let mut bridges = Vec::new();
    for arg in args {
        if !how.accept(arg) {
            bridges.push(arg);
        }
    }
    // The last word is the bridge, whatever stands before it.
    let name = bridges.pop().ok_or("no such bridge")?;
    let bridge = find_bridge(devices, name).ok_or("no such bridge")?;
    let (_, dp) = devices
        .datapaths()
        .into_iter()
        .find(|(_, dp)| dp.switch.bridge(bridge.id()).is_some_and(|b| Arc::ptr_eq(&b, &bridge)))
        .ok_or("no such bridge")?;
    let entries = dp.dpif.flow_dump().into_iter().filter(|entry| {
        let port = base::DpPort(entry.key.in_port().0);
        dp.switch.port_of(port).is_some_and(|(id, _)| id == bridge.id())
    });
    Ok(match format {
        OutputFormat::Text => entries
            .map(|e| flow_line(devices, &dp, &e, FlowFormat { thread: false, ..how }) + "\n")
            .collect::<String>()
            .into(),
        OutputFormat::Json => entries.map(|e| super::dpctl::flow_json(devices, &dp, &e, how)).collect::<Value>().into(),
    })
}
