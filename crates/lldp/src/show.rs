//! The output of `autoattach/status`, `autoattach/show-isid` and `autoattach/statistics`, in the format of Open
//! vSwitch 4.0.0.

use crate::machine::{Neighbour, PortStatus};
use crate::pdu::{CHASSIS_MAC, PORT_MAC, PORT_NAME, SystemId};
use std::fmt::Write;

/// The reply to `autoattach/status`: the neighbours of each port that are auto-attach elements.
pub fn status(ports: &[PortStatus]) -> String {
    let mut out = String::new();
    for port in ports {
        writeln!(out, "LLDP: {}", port.name).expect("strings take everything");
        port.neighbours.iter().for_each(|neighbour| element(neighbour, &mut out));
    }
    out
}

fn element(neighbour: &Neighbour, out: &mut String) {
    let Some(element) = &neighbour.pdu.element else { return };
    let description = match &neighbour.pdu.system_description {
        Some(text) => printable(text),
        None => "<None>".to_owned(),
    };
    let chassis = neighbour.pdu.chassis_id.get(1..).unwrap_or_default();
    for (name, value) in [("Id", hex(chassis)), ("Descr", description), ("System Id", system_id(&element.system_id))] {
        writeln!(out, "  Auto Attach Primary Server {name}: {value}").expect("strings take everything");
    }
}

/// Text from a neighbour, fit for a terminal.
fn printable(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// A chassis identifier (IEEE 802.1AB-2016 8.5.2): a MAC address or a name as such, others as their subtype and bytes.
pub fn chassis(id: &[u8]) -> String {
    match id {
        [CHASSIS_MAC, mac @ ..] if mac.len() == 6 => hex(mac),
        [1..=3 | 6 | 7, name @ ..] => printable(name),
        _ => other(id),
    }
}

/// A port identifier (IEEE 802.1AB-2016 8.5.3), likewise.
pub fn port(id: &[u8]) -> String {
    match id {
        [PORT_MAC, mac @ ..] if mac.len() == 6 => hex(mac),
        [1 | 2 | PORT_NAME | 7, name @ ..] => printable(name),
        _ => other(id),
    }
}

fn other(id: &[u8]) -> String {
    id.split_first().map_or_else(String::new, |(subtype, value)| format!("{subtype}/{}", hex(value)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

/// Twelve bytes: Open vSwitch prints the id as it is in memory, with padding, and with the smaller byte first.
pub fn system_id(id: &SystemId) -> String {
    let [smlt0, smlt1] = id.smlt.to_le_bytes();
    hex(&[&id.mac.0[..], &[id.connection, 0, smlt0, smlt1], &id.mlt].concat())
}

/// The reply to `autoattach/show-isid`: the mappings of each port.
pub fn mappings(ports: &[PortStatus]) -> String {
    let mut out = String::new();
    for port in ports {
        writeln!(out, "LLDP: {}", port.name).expect("strings take everything");
        out.push_str("I-SID    VLAN Source      Status  \n");
        out.push_str("-------- ---- ----------- --------\n");
        for mapping in &port.mappings {
            let status = mapping.status.map_or("Pending", |status| status.name());
            writeln!(out, "{:<8} {:<4} {:<11} {status:<11}", mapping.isid, mapping.vlan, "Switch")
                .expect("strings take everything");
        }
    }
    out
}

/// The reply to `autoattach/statistics`.
pub fn statistics(ports: &[PortStatus]) -> String {
    let mut out = String::new();
    for port in ports {
        writeln!(out, "Statistics: {}", port.name).expect("strings take everything");
        let s = &port.statistics;
        for (name, count) in [
            ("tx", s.tx),
            ("rx", s.rx),
            ("rx discarded", s.rx_discarded),
            ("rx unrecognized", s.rx_unrecognized),
            ("ageout", s.ageout),
            ("insert", s.insert),
            ("delete", s.delete),
            ("drop", s.drop),
        ] {
            writeln!(out, "  {name} cnt: {count}").expect("strings take everything");
        }
    }
    out
}
