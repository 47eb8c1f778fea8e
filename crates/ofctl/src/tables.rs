//! Commands that change tables.

use crate::error::{Result, fatal};
use crate::options::Context;
use crate::switch::{Target, fail_on_errors, is_error, open_in, stats, table_names, transact_noreply};
use crate::vconn::{Vconn, io_error, next_xid};
use flow::text::parse_table;
use openflow::Message;
use openflow::Version::{self, V11, V12, V13, V14, V15};
use openflow::message::{Options, encode};
use openflow::multipart::{StatsReply, StatsRequest};
use openflow::table::{TableDesc, TableFeatures, TableMod, TableProperties, Vacancy, table_config};
use openflow::versions::Versions;

/// All tables.
const ALL: u8 = 0xff;
/// The last table that is visible to controllers.
const LAST: u8 = 253;
/// `OFPTFC_MODIFY` (OpenFlow 1.5 section 7.3.5.18.2).
const MODIFY: u8 = 1;
/// The longest message.
const MESSAGE_LEN_MAX: usize = 0xffff;

/// A change of a table's configuration.
enum Setting {
    /// The behaviour on a table miss (OpenFlow 1.1 section A.3.3, `ofp_table_config`).
    Miss(u32),
    Eviction(bool),
    Vacancy(Option<Vacancy>),
    Name(String),
}

impl Setting {
    fn parse(text: &str, table: u8) -> Result<Self> {
        Ok(match text {
            "controller" => Self::Miss(0),
            "continue" => Self::Miss(1),
            "drop" => Self::Miss(2),
            "evict" => Self::Eviction(true),
            "noevict" => Self::Eviction(false),
            "novacancy" => Self::Vacancy(None),
            _ => match (text.strip_prefix("vacancy:"), text.strip_prefix("name:")) {
                (Some(range), _) => Self::Vacancy(Some(vacancy(range)?)),
                _ if text.is_empty() || text == "vacancy" => Self::Vacancy(Some(vacancy("")?)),
                (_, Some(name)) if table != ALL => Self::Name(name.to_owned()),
                _ => return Err(fatal(format!("invalid table_mod setting {text}"))),
            },
        })
    }

    /// The versions that support it.
    fn versions(&self) -> &'static [Version] {
        match self {
            Self::Miss(_) => &[V11, V12],
            Self::Eviction(_) | Self::Vacancy(_) => &[V14, V15],
            Self::Name(_) => &[V13, V14, V15],
        }
    }
}

/// Changes a table.
pub fn mod_table(c: &Context, a: &[String]) -> Result {
    let table = table_number(c, a)?;
    let setting = Setting::parse(&a[2], table)?;
    let versions = Versions(c.versions.0 & Versions::of(setting.versions()).0);
    if versions.0 == 0 {
        let names: Vec<_> = setting.versions().iter().map(|v| v.name()).collect();
        let names = names.join(", ");
        return Err(fatal(format!("table_mod '{}' requires one of the OpenFlow versions {names}", a[2])));
    }
    let mut conn = open_in(c, versions, &a[0], Target::Mgmt)?;
    match setting {
        Setting::Miss(config) => {
            let message =
                Message::TableMod(TableMod { table_id: table, config, properties: TableProperties::default() });
            transact_noreply(c, &mut conn, &message, Options::default())
        }
        Setting::Name(name) => name_table(c, conn, table, name),
        setting if table == ALL => {
            for table in 0..=LAST {
                if !configure_table(c, &mut conn, table, &setting)? {
                    break;
                }
            }
            Ok(())
        }
        setting => {
            if configure_table(c, &mut conn, table, &setting)? {
                return Ok(());
            }
            let change = change_of(table, &setting, &TableDesc::default());
            transact_noreply(c, &mut conn, &Message::TableMod(change), Options::default())
        }
    }
}

/// The table with this number or name, [`ALL`] for all.
fn table_number(c: &Context, a: &[String]) -> Result<u8> {
    let names = if c.accept_names() { table_names(c, &a[0])? } else { Default::default() };
    if a[1].eq_ignore_ascii_case("all") {
        return Ok(ALL);
    }
    parse_table(&a[1], &names).ok_or_else(|| fatal(format!("unknown table \"{}\"", a[1])))
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

/// Changes the configuration of a table (OpenFlow 1.4 section 7.3.4.4). Returns whether the table exists.
fn configure_table(c: &Context, conn: &mut Vconn, table: u8, setting: &Setting) -> Result<bool> {
    let StatsReply::TableDesc(all) = stats(conn, StatsRequest::TableDesc)? else { return Ok(false) };
    let Some(current) = all.iter().find(|t| t.table_id == table) else { return Ok(false) };
    let change = change_of(table, setting, current);
    transact_noreply(c, conn, &Message::TableMod(change), Options::default())?;
    Ok(true)
}

/// The message that changes a table; other properties keep their current values.
fn change_of(table_id: u8, setting: &Setting, current: &TableDesc) -> TableMod {
    use table_config::{EVICTION, VACANCY_EVENTS};
    let mut table = TableMod { table_id, config: current.config, properties: TableProperties::default() };
    let set = |config: &mut u32, bit: u32, on: bool| *config = if on { *config | bit } else { *config & !bit };
    match setting {
        Setting::Eviction(on) => {
            set(&mut table.config, EVICTION, *on);
            table.properties.vacancy = current.properties.vacancy.map(|vacancy| Vacancy { current: 0, ..vacancy });
        }
        Setting::Vacancy(vacancy) => {
            set(&mut table.config, VACANCY_EVENTS, vacancy.is_some());
            let eviction_flags = current.properties.eviction_flags;
            table.properties = TableProperties { vacancy: *vacancy, eviction_flags };
        }
        Setting::Miss(_) | Setting::Name(_) => {}
    }
    table
}

/// Sets a table's name in its features (OpenFlow 1.3 section 7.3.5.5): with those of all tables, or from OpenFlow 1.5
/// on in a request for this table alone.
fn name_table(c: &Context, mut conn: Vconn, table: u8, name: String) -> Result {
    let StatsReply::TableFeatures(mut tables) = stats(&mut conn, StatsRequest::TableFeatures(vec![]))? else {
        return Ok(());
    };
    let there = tables.iter_mut().find(|t| t.table_id == table);
    let named = there.ok_or_else(|| fatal(format!("switch does not have table {table}")))?;
    named.name = name;
    let requests = if conn.version >= V15 {
        let &mut TableFeatures { table_id, metadata_match, metadata_write, max_entries, .. } = named;
        let name = named.name.clone();
        let renamed = TableFeatures {
            table_id,
            name,
            metadata_match,
            metadata_write,
            max_entries,
            command: MODIFY,
            ..TableFeatures::default()
        };
        vec![vec![renamed]]
    } else {
        in_messages(tables, conn.version)
    };
    let (xid, last) = (next_xid(), requests.len() - 1);
    for (at, tables) in requests.into_iter().enumerate() {
        let body = StatsRequest::TableFeatures(tables);
        let request = encode(conn.version, xid, &Message::StatsRequest { more: at < last, body });
        conn.send(&request).map_err(|e| io_error(&e))?;
    }
    let reply = conn.answer(xid)?;
    if is_error(&reply) { fail_on_errors(c, &[reply]) } else { Ok(()) }
}

/// Splits a list into parts that each fit into a message.
fn in_messages(tables: Vec<TableFeatures>, version: Version) -> Vec<Vec<TableFeatures>> {
    let bytes = |tables: Vec<TableFeatures>| {
        let body = StatsRequest::TableFeatures(tables);
        encode(version, 0, &Message::StatsRequest { more: false, body }).len()
    };
    let empty = bytes(Vec::new());
    let (mut parts, mut len) = (vec![Vec::new()], empty);
    for table in tables {
        let more = bytes(vec![table.clone()]) - empty;
        if len + more > MESSAGE_LEN_MAX {
            parts.push(Vec::new());
            len = empty;
        }
        len += more;
        parts.last_mut().expect("one at least").push(table);
    }
    parts
}
