//! `autoattach/`: neighbours, mappings and counters of the ports with LLDP. A bridge limits the output to its ports.

use super::{find_bridge, show};
use crate::devices::Devices;
use lldp::{PortStatus, show as text};
use serde_json::{Map, Value, json};
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

/// Makes text of the state of ports.
type Text = fn(&[PortStatus]) -> String;
/// Makes JSON of the state of a port.
type Json = fn(&PortStatus) -> Value;

/// Registers the commands.
pub(crate) fn register(commands: &Commands, devices: &Arc<Devices>) {
    let all: [(&str, Text, Json); 3] = [
        ("autoattach/status", text::status, neighbours),
        ("autoattach/show-isid", text::mappings, mappings),
        ("autoattach/statistics", text::statistics, statistics),
    ];
    for (name, text, json) in all {
        show(commands, devices, (name, "[bridge]", 0..=1), move |devices, args, format| {
            let ports = ports(devices, args.first().map(String::as_str))?;
            Ok(match format {
                OutputFormat::Text => text(&ports).into(),
                OutputFormat::Json => {
                    Value::from(ports.iter().map(|port| (port.name.clone(), json(port))).collect::<Map<_, _>>()).into()
                }
            })
        });
    }
}

/// The ports with LLDP, of a bridge or of all, by name. No port is on an unknown bridge.
fn ports(devices: &Devices, bridge: Option<&str>) -> Result<Vec<PortStatus>, String> {
    let bridge = match bridge.map(|name| find_bridge(devices, name)) {
        Some(None) => return Ok(Vec::new()),
        found => found.flatten(),
    };
    let mut all = Vec::new();
    for (_, dp) in devices.datapaths() {
        let of_bridge = |port: &PortStatus| {
            bridge.as_ref().is_none_or(|bridge| {
                dp.switch.bridge(port.port.bridge).is_some_and(|other| Arc::ptr_eq(&other, bridge))
            })
        };
        all.extend(dp.switch.lldp_status().into_iter().filter(of_bridge));
    }
    all.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(all)
}

fn neighbours(port: &PortStatus) -> Value {
    let neighbour = |neighbour: &lldp::Neighbour| {
        let pdu = &neighbour.pdu;
        let text = |text: &Option<Vec<u8>>| text.as_ref().map(|text| String::from_utf8_lossy(text).into_owned());
        json!({
            "chassis_id": text::chassis(&pdu.chassis_id),
            "port_id": text::port(&pdu.port_id),
            "ttl": pdu.ttl_s,
            "system_name": text(&pdu.system_name),
            "system_description": text(&pdu.system_description),
            "element": pdu.element.as_ref().map(|element| json!({
                "type": element.kind,
                "management_vlan": element.management_vlan,
                "system_id": text::system_id(&element.system_id),
            })),
        })
    };
    port.neighbours.iter().map(neighbour).collect()
}

fn mappings(port: &PortStatus) -> Value {
    let mapping = |mapping: &lldp::MappingStatus| {
        let status = mapping.status.map_or("Pending", |status| status.name());
        json!({"isid": mapping.isid, "vlan": mapping.vlan, "status": status})
    };
    json!({"mappings": port.mappings.iter().map(mapping).collect::<Vec<_>>(), "unannounced": port.unannounced})
}

fn statistics(port: &PortStatus) -> Value {
    let s = &port.statistics;
    json!({
        "tx": s.tx, "rx": s.rx, "rx_discarded": s.rx_discarded, "rx_unrecognized": s.rx_unrecognized,
        "ageout": s.ageout, "insert": s.insert, "delete": s.delete, "drop": s.drop,
    })
}
