//! `stp/` and `rstp/`: the state of spanning tree protocols, and topology changes by hand.

use super::{Shown, act, show};
use crate::devices::Devices;
use serde_json::{Map, Value, json};
use spanning_tree::id::{Times, to_ms};
use spanning_tree::status::Protocol;
use spanning_tree::{BridgeId, BridgeStatus, PortStatus, show as text};
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

/// Registers the commands.
pub(crate) fn register(commands: &Commands, devices: &Arc<Devices>) {
    for (protocol, tcn, name) in [(Protocol::Stp, "stp/tcn", "stp/show"), (Protocol::Rstp, "rstp/tcn", "rstp/show")] {
        show(commands, devices, (name, "[bridge]", 0..=1), move |devices, args, format| {
            let bridges = bridges(devices, protocol, args.first())?;
            let bridges = bridges.iter().map(|(status, _)| status);
            Ok(match format {
                OutputFormat::Text => Shown::Text(bridges.map(text::bridge).collect()),
                OutputFormat::Json => {
                    let all: Map<_, _> = bridges.map(|status| (status.name.clone(), bridge_json(status))).collect();
                    Shown::Json(all.into())
                }
            })
        });
        act(commands, devices, (tcn, "[bridge]", 0..=1), move |devices, args| {
            for (status, dp) in bridges(devices, protocol, args.first())? {
                dp.switch.notify_topology_change(status.bridge);
            }
            Ok("OK".to_owned())
        });
    }
}

/// The bridges with a protocol, by name: all of them, or the named one.
fn bridges(
    devices: &Devices,
    protocol: Protocol,
    name: Option<&String>,
) -> Result<Vec<(BridgeStatus, crate::devices::Dp)>, String> {
    let mut all = Vec::new();
    for (_, dp) in devices.datapaths() {
        all.extend(dp.switch.spanning_tree_status().into_iter().map(|status| (status, dp.clone())));
    }
    all.retain(|(status, _)| status.protocol == protocol && name.is_none_or(|name| *name == status.name));
    if name.is_some() && all.is_empty() {
        return Err(match protocol {
            Protocol::Stp => "no such stp object".to_owned(),
            Protocol::Rstp => "No such RSTP object".to_owned(),
        });
    }
    all.sort_by(|(a, _), (b, _)| a.name.cmp(&b.name));
    Ok(all)
}

fn identity(id: BridgeId, times: Times) -> Value {
    json!({
        "priority": id.priority(),
        "system_id": id.address().to_string(),
        "hello_time": to_ms(times.hello_time) / 1000,
        "max_age": to_ms(times.max_age) / 1000,
        "forward_delay": to_ms(times.forward_delay) / 1000,
    })
}

fn bridge_json(status: &BridgeStatus) -> Value {
    let port = |port: &PortStatus| (port.name.clone(), port_json(status.protocol, port));
    json!({
        "root": identity(status.root, status.root_times),
        "bridge": identity(status.id, status.own_times),
        "is_root": status.root_port.is_none(),
        "root_port": status.root_port().map(|port| port.name.clone()),
        "root_path_cost": status.root_path_cost,
        "ports": status.ports.iter().map(port).collect::<Map<_, _>>(),
    })
}

fn port_json(protocol: Protocol, port: &PortStatus) -> Value {
    let (priority, number) = port.number(protocol);
    let (role, state) = match protocol {
        Protocol::Stp => (port.role.stp_name(), port.state.stp_name()),
        Protocol::Rstp => (port.role.rstp_name(), port.state.rstp_name()),
    };
    let designated = &port.designated_bridge;
    json!({
        "priority": priority,
        "number": number,
        "role": role,
        "state": state,
        "path_cost": port.path_cost,
        "designated_bridge": designated.to_string(),
        "designated_port": port.designated_port.0,
        "designated_cost": port.designated_cost,
        "tx": port.statistics.tx,
        "rx": port.statistics.rx,
        "error": port.statistics.error,
    })
}
