//! Commands that change ports and tables.

use crate::error::{Result, fatal};
use crate::options::Context;
use crate::switch::{Target, open, port_descs, transact_noreply};
use base::PortNo;
use flow::text::{NoNames, parse_port};
use openflow::message::Options;
use openflow::port::config as pc;
use openflow::port::{PortDesc, PortMod};
use openflow::{Message, Version};

/// The bits that an action changes, and whether it clears them.
fn action(name: &str) -> Option<(u32, bool)> {
    Some(match name {
        "up" => (pc::PORT_DOWN, false),
        "down" => (pc::PORT_DOWN, true),
        "stp" => (pc::NO_STP, false),
        "no-stp" => (pc::NO_STP, true),
        "receive" => (pc::NO_RECV, false),
        "no-receive" => (pc::NO_RECV, true),
        "receive-stp" => (pc::NO_RECV_STP, false),
        "no-receive-stp" => (pc::NO_RECV_STP, true),
        "flood" => (pc::NO_FLOOD, false),
        "no-flood" => (pc::NO_FLOOD, true),
        "forward" => (pc::NO_FWD, false),
        "no-forward" => (pc::NO_FWD, true),
        "packet-in" => (pc::NO_PACKET_IN, false),
        "no-packet-in" => (pc::NO_PACKET_IN, true),
        _ => return None,
    })
}

/// Changes a port.
pub fn mod_port(c: &Context, a: &[String]) -> Result {
    let (switch, name, act) = (&a[0], &a[1], &a[2]);
    let port = find_port(c, switch, name)?;
    let (mask, set) = action(act).ok_or_else(|| fatal(format!("unknown mod-port command '{act}'")))?;
    let request = PortMod {
        port_no: port.port_no,
        hw_addr: port.hw_addr,
        config: if set { mask } else { 0 },
        mask,
        advertise: 0,
    };
    let mut conn = open(c, switch, Target::Mgmt)?;
    transact_noreply(c, &mut conn, &Message::PortMod(request), Options::default())
}

fn find_port(c: &Context, switch: &str, name: &str) -> Result<PortDesc> {
    let mut conn = open(c, switch, Target::Mgmt)?;
    let number = parse_port(name, &NoNames);
    let named = |p: &PortDesc| c.accept_names() && p.name == name.trim_matches('"');
    let found = port_descs(&mut conn)?.into_iter().find(|p| number.map_or_else(|| named(p), |n| p.port_no == n));
    found.filter(|p| p.port_no != PortNo::ANY).ok_or_else(|| fatal(format!("{switch}: couldn't find port `{name}'")))
}

/// Changes a table. Nothing that a setting changes is in the versions that this program speaks.
pub fn mod_table(c: &Context, a: &[String]) -> Result {
    let versions = match a[2].as_str() {
        "drop" | "continue" | "controller" => "OpenFlow11, OpenFlow12",
        "evict" | "noevict" | "novacancy" => "OpenFlow14, OpenFlow15",
        s if s.starts_with("vacancy:") => "OpenFlow14, OpenFlow15",
        s if s.starts_with("name:") => return name_table(c, a),
        other => return Err(fatal(format!("invalid table_mod setting {other}"))),
    };
    let setting = a[2].split(':').next().unwrap_or_default();
    Err(fatal(format!("table_mod '{setting}' requires one of the OpenFlow versions {versions}")))
}

/// A table's name is changed by its features (OpenFlow 1.3).
fn name_table(c: &Context, a: &[String]) -> Result {
    use openflow::multipart::{StatsReply, StatsRequest};
    let mut conn = open(c, &a[0], Target::Mgmt)?;
    if conn.version < Version::V13 {
        return Err(fatal("table_mod 'name' requires one of the OpenFlow versions OpenFlow13, OpenFlow14, OpenFlow15"));
    }
    let StatsReply::TableFeatures(tables) = crate::switch::stats(&mut conn, StatsRequest::TableFeatures(vec![]))?
    else {
        return Ok(());
    };
    let table = a[1].parse::<u8>().ok().or_else(|| tables.iter().find(|t| t.name == a[1]).map(|t| t.table_id));
    let table = table.ok_or_else(|| fatal(format!("unknown table \"{}\"", a[1])))?;
    let mut features = tables
        .into_iter()
        .find(|t| t.table_id == table)
        .ok_or_else(|| fatal(format!("{}: table {table} does not exist", a[0])))?;
    a[2]["name:".len()..].clone_into(&mut features.name);
    let body = StatsRequest::TableFeatures(vec![features]);
    let reply = conn.transact(&Message::StatsRequest { more: false, body })?;
    if crate::switch::is_error(&reply) { crate::switch::fail_on_errors(c, &[reply]) } else { Ok(()) }
}
