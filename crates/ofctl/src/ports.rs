//! Commands that change ports and tables.

use crate::error::{Result, fatal};
use crate::options::Context;
use crate::switch::{Target, open, port_descs, transact_noreply};
use crate::vconn::Vconn;
use base::PortNo;
use flow::text::{NoNames, parse_port};
use openflow::message::Options;
use openflow::port::config as pc;
use openflow::port::{PortDesc, PortMod};
use openflow::table::{TableMod, TableProperties, Vacancy, table_config};
use openflow::versions::Versions;
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

/// Changes a table.
pub fn mod_table(c: &Context, a: &[String]) -> Result {
    use table_config::{EVICTION, VACANCY_EVENTS};
    match a[2].as_str() {
        "drop" => configure_miss(c, a, 2),
        "continue" => configure_miss(c, a, 1),
        "controller" => configure_miss(c, a, 0),
        "evict" => configure_table(c, a, |t| t.config |= EVICTION),
        "noevict" => configure_table(c, a, |t| t.config &= !EVICTION),
        "novacancy" => configure_table(c, a, |t| t.config &= !VACANCY_EVENTS),
        s if s.starts_with("name:") => name_table(c, a),
        s => match s.strip_prefix("vacancy:") {
            Some(range) => {
                let vacancy = vacancy(range)?;
                configure_table(c, a, |t| {
                    t.config |= VACANCY_EVENTS;
                    t.properties.vacancy = Some(vacancy);
                })
            }
            None => Err(fatal(format!("invalid table_mod setting {s}"))),
        },
    }
}

/// `DOWN,UP`, in percent.
fn vacancy(range: &str) -> Result<Vacancy> {
    let percent = |text: &str, what: &str| match text.parse::<u8>() {
        Ok(n @ 0..=100) => Ok(n),
        _ => Err(fatal(format!("Invalid vacancy {what} value \"{text}\""))),
    };
    let mut words = range.split([',', '-', ' ']).filter(|word| !word.is_empty());
    let down = percent(words.next().ok_or_else(|| fatal("Vacancy down value missing"))?, "down")?;
    let up = percent(words.next().ok_or_else(|| fatal("Vacancy up value missing"))?, "up")?;
    if up < down {
        return Err(fatal("Invalid vacancy range, vacancy up should be greater than vacancy down (OFPBPC_BAD_VALUE)"));
    }
    Ok(Vacancy { down, up, current: 0 })
}

/// The number of a table, 255 for all.
fn table_number(text: &str) -> Result<u8> {
    match text {
        "all" | "ALL" => Ok(0xff),
        text => text.parse().map_err(|_| fatal(format!("unknown table \"{text}\""))),
    }
}

/// A connection of one of these versions, which a setting needs.
fn open_for_setting(c: &Context, a: &[String], versions: &[Version]) -> Result<Vconn> {
    let needs = || {
        let setting = a[2].split(':').next().unwrap_or_default();
        let names: Vec<_> = versions.iter().map(|v| v.name()).collect();
        fatal(format!("table_mod '{setting}' requires one of the OpenFlow versions {}", names.join(", ")))
    };
    if c.versions.0 & Versions::of(versions).0 == 0 {
        return Err(needs());
    }
    let conn = open(c, &a[0], Target::Mgmt)?;
    if versions.contains(&conn.version) { Ok(conn) } else { Err(needs()) }
}

/// What a miss does (OpenFlow 1.1 section A.3.3, `ofp_table_config`).
fn configure_miss(c: &Context, a: &[String], config: u32) -> Result {
    let table_id = table_number(&a[1])?;
    let mut conn = open_for_setting(c, a, &[Version::V11, Version::V12])?;
    let message = Message::TableMod(TableMod { table_id, config, properties: TableProperties::default() });
    transact_noreply(c, &mut conn, &message, Options::default())
}

/// Changes the configuration that a table has (OpenFlow 1.4 section 7.3.4.4).
fn configure_table(c: &Context, a: &[String], change: impl FnOnce(&mut TableMod)) -> Result {
    use openflow::multipart::{StatsReply, StatsRequest};
    let table_id = table_number(&a[1])?;
    let mut conn = open_for_setting(c, a, &[Version::V14, Version::V15])?;
    let StatsReply::TableDesc(all) = crate::switch::stats(&mut conn, StatsRequest::TableDesc)? else {
        return Ok(());
    };
    let config = all.iter().find(|t| t.table_id == table_id).map_or(0, |t| t.config);
    let mut table = TableMod { table_id, config, properties: TableProperties::default() };
    change(&mut table);
    transact_noreply(c, &mut conn, &Message::TableMod(table), Options::default())
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
