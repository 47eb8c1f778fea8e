//! Commands about groups.

use crate::bundles;
use crate::error::{Result, fatal};
use crate::flow_text::{lines, read_file};
use crate::names::Names;
use crate::options::Context;
use crate::switch::{Target, accepted_names, dump_stats, open, open_for_flow_mods, transact_noreply};
use crate::vconn::next_xid;
use openflow::group::GROUP_ALL;
use openflow::message::{Options, encode_with};
use openflow::multipart::StatsRequest;
use openflow::{GroupCommand as Cmd, Message, ParsedGroup, Protocols, Version, parse_group, parse_group_line};

/// Sends changes one by one, each with a barrier, and stops at the first error.
fn send(c: &Context, switch: &str, groups: Vec<ParsedGroup>) -> Result {
    let usable = groups.iter().fold(Protocols::ANY, |set, g| set & g.usable);
    let (mut conn, _) = open_for_flow_mods(c, switch, usable)?;
    let mut kept = Vec::new();
    for group in groups {
        let command = group.group_mod.command;
        if command.is_of_buckets() && (Version::V11..Version::V15).contains(&conn.version) {
            let name = if command == Cmd::InsertBucket { "insert-bucket" } else { "remove-bucket" };
            return Err(fatal(format!("{name} needs OpenFlow 1.5 or later ('-O OpenFlow15')")));
        }
        let message = Message::GroupMod(group.group_mod);
        if c.bundle {
            kept.push(encode_with(conn.version, next_xid(), &message, Options::default()));
        } else {
            transact_noreply(c, &mut conn, &message, Options::default())?;
        }
    }
    if c.bundle { bundles::transact(c, &mut conn, &kept) } else { Ok(()) }
}

/// Changes groups as an argument describes; `-` reads a file with one group per line.
fn change(c: &Context, a: &[String], command: Cmd) -> Result {
    let text = a.get(1).map(String::as_str);
    if text == Some("-") {
        return change_by_file(c, &a[0], "-", command);
    }
    let names = accepted_names(c, &a[0])?;
    // Deleting without an argument deletes all groups.
    let text = text.unwrap_or(if command == Cmd::Delete { "group_id=all" } else { "" });
    let group = parse_group(text, command, &names).map_err(fatal)?;
    send(c, &a[0], vec![group])
}

/// Changes groups as a file describes; when adding groups, lines may name other commands.
fn change_by_file(c: &Context, switch: &str, file: &str, command: Cmd) -> Result {
    let names = accepted_names(c, switch)?;
    let parse = |line: &str, names: &Names| match command {
        Cmd::Add => parse_group_line(line, names),
        _ => parse_group(line, command, names),
    };
    let text = read_file(file)?;
    let groups: Result<Vec<ParsedGroup>> =
        lines(&text).map(|(n, line)| parse(line, &names).map_err(|e| fatal(format!("{file}:{n}: {e}")))).collect();
    send(c, switch, groups?)
}

/// Adds a group.
pub fn add_group(c: &Context, a: &[String]) -> Result {
    change(c, a, Cmd::Add)
}

/// Adds the groups of a file.
pub fn add_groups(c: &Context, a: &[String]) -> Result {
    change_by_file(c, &a[0], &a[1], Cmd::Add)
}

/// Changes a group, or adds it with `--may-create`.
pub fn mod_group(c: &Context, a: &[String]) -> Result {
    change(c, a, if c.may_create { Cmd::AddOrModify } else { Cmd::Modify })
}

/// Deletes groups.
pub fn del_groups(c: &Context, a: &[String]) -> Result {
    change(c, a, Cmd::Delete)
}

/// Inserts buckets into a group.
pub fn insert_buckets(c: &Context, a: &[String]) -> Result {
    change(c, a, Cmd::InsertBucket)
}

/// Removes buckets from a group.
pub fn remove_buckets(c: &Context, a: &[String]) -> Result {
    change(c, a, Cmd::RemoveBucket)
}

/// Descriptions of groups.
pub fn dump_groups(c: &Context, a: &[String]) -> Result {
    let mut conn = open(c, &a[0], Target::Mgmt)?;
    let id = match a.get(1) {
        Some(text) => group_id(text),
        None => GROUP_ALL,
    };
    dump_stats(c, &a[0], &mut conn, StatsRequest::GroupDesc(id))
}

/// Parses a group id. An invalid one is logged and means all groups.
fn group_id(text: &str) -> u32 {
    match text.to_ascii_lowercase().as_str() {
        "all" => GROUP_ALL,
        "any" => openflow::group::GROUP_ANY,
        _ => text.parse().unwrap_or_else(|_| {
            tracing::warn!(target: "ofp_group", "{text} is not a valid group ID.  (Valid group IDs are 32-bit \
                nonnegative integers or the keywords ANY or ALL.)");
            GROUP_ALL
        }),
    }
}

/// Counters of groups.
pub fn dump_group_stats(c: &Context, a: &[String]) -> Result {
    let names = accepted_names(c, &a[0])?;
    let id = match a.get(1) {
        Some(text) => parse_group(text, Cmd::Delete, &names).map_err(fatal)?.group_mod.group_id,
        None => GROUP_ALL,
    };
    let mut conn = open(c, &a[0], Target::Mgmt)?;
    // The reply contains no names.
    let c = &Context { names: Some(false), ..c.clone() };
    dump_stats(c, &a[0], &mut conn, StatsRequest::Group(id))
}

/// Prints the limits and capabilities of groups.
pub fn dump_group_features(c: &Context, a: &[String]) -> Result {
    let mut conn = open(c, &a[0], Target::Mgmt)?;
    dump_stats(c, &a[0], &mut conn, StatsRequest::GroupFeatures)
}
