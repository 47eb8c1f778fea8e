//! Comparison of sets of flows from switches and files: `replace-flows` and `diff-flows`.

use crate::error::{Exit, Result, fatal};
use crate::flow_change::Sender;
use crate::flow_dump::{all_flows, requests};
use crate::flow_text::{lines, normalize, read_flow_set};
use crate::names::Names;
use crate::options::Context;
use crate::switch::{
    Out, Target, accepted_names_ports_first, open, open_for_flow_mods, set_protocol_for_dump, shown_names, style,
};
use flow::{FlowKey, Match, TunOption};
use foldhash::fast::RandomState;
use openflow::flow_msg::FlowStats;
use openflow::print::flow_difference;
use openflow::{Action, FlowFlags, FlowMod, FlowModCommand as Cmd, Protocols, parse_flow};
use std::collections::HashMap;
use std::path::Path;

/// The identity of a flow: table, priority and match.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Id {
    table: u8,
    priority: u16,
    matching: Compact,
}

/// A match without its zero words, as there may be very many.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Compact {
    /// Indexes, masks and values of its words, in order.
    words: Box<[(u8, u64, u64)]>,
    options: Vec<TunOption>,
}

impl Compact {
    fn new(mut m: Match) -> Self {
        let words = (0..).zip(m.mask().0.iter().zip(&m.key().0)).filter(|(_, (mask, _))| **mask != 0);
        let words = words.map(|(place, (mask, value))| (place, *mask, *value)).collect();
        Self { words, options: m.take_options().into_iter().map(TunOption::in_words).collect() }
    }

    fn expand(&self) -> Match {
        let (mut key, mut all) = (FlowKey::ZERO, FlowKey::ZERO);
        for (place, mask, value) in &self.words {
            (all.0[usize::from(*place)], key.0[usize::from(*place)]) = (*mask, *value);
        }
        let mut m = Match::new(&key, all);
        for option in &self.options {
            m.set_option(option.clone());
        }
        m
    }
}

/// The properties of a flow beside its identity.
#[derive(Clone, PartialEq, Eq)]
struct Version {
    cookie: u64,
    idle_timeout: u16,
    hard_timeout: u16,
    importance: u16,
    flags: FlowFlags,
    actions: Vec<Action>,
}

/// Flows of two sources.
#[derive(Default)]
struct Set(HashMap<Id, Entry, RandomState>);

/// What the sources have of a flow.
#[derive(Default)]
struct Entry {
    /// Number of entries added before it.
    number: usize,
    sides: Sides,
}

/// A flow's versions in the first and the second source.
type Sides = [Option<Version>; 2];

impl Set {
    fn put(&mut self, id: Id, side: usize, version: Version) {
        let number = self.0.len();
        let entry = self.0.entry(id).or_insert_with(|| Entry { number, ..Entry::default() });
        entry.sides[side] = Some(version);
    }

    /// Sorted by table and priority, then by order of addition.
    fn sorted(&self) -> Vec<(&Id, &Sides)> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(id, e)| (id.table, u16::MAX - id.priority, e.number));
        all.into_iter().map(|(id, e)| (id, &e.sides)).collect()
    }

    /// The flows of each table, in order of addition.
    fn by_table(&self) -> Vec<Vec<(&Id, &Sides)>> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|(id, e)| (id.table, e.number));
        let tables = all.chunk_by(|a, b| a.0.table == b.0.table);
        tables.map(|table| table.iter().map(|(id, e)| (*id, &e.sides)).collect()).collect()
    }
}

fn read_flow_file(file: &str, side: usize, names: &Names, set: &mut Set) -> Result<Protocols> {
    let mut usable = Protocols::ANY;
    for (n, line) in lines(&read_flow_set(file)?) {
        let mut parsed = parse_flow(line, Cmd::Add, names).map_err(|e| fatal(format!("{file}:{n}: {e}")))?;
        normalize(&mut parsed);
        usable = usable & parsed.usable;
        let fm = parsed.flow_mod;
        let mut flags = fm.flags;
        // These flags affect adding a flow, and are no property of it.
        flags.check_overlap = false;
        flags.reset_counts = false;
        let id = Id { table: fm.table_id.unwrap_or(0), priority: fm.priority, matching: Compact::new(fm.matching) };
        let version = Version {
            cookie: fm.new_cookie,
            idle_timeout: fm.idle_timeout,
            hard_timeout: fm.hard_timeout,
            importance: fm.importance,
            flags,
            actions: fm.actions,
        };
        set.put(id, side, version);
    }
    Ok(usable)
}

fn take_flow(f: FlowStats, side: usize, set: &mut Set) {
    let id = Id { table: f.table_id, priority: f.priority, matching: Compact::new(f.matching) };
    let mut flags = f.flags;
    flags.reset_counts = false;
    flags.check_overlap = false;
    let version = Version {
        cookie: f.cookie,
        idle_timeout: f.idle_timeout,
        hard_timeout: f.hard_timeout,
        importance: f.importance,
        flags,
        actions: f.actions,
    };
    set.put(id, side, version);
}

fn flow_mod(id: &Id, v: Option<&Version>, command: Cmd) -> FlowMod {
    let mut fm = FlowMod::new(command);
    fm.table_id = Some(id.table);
    fm.priority = id.priority;
    fm.matching = id.matching.expand();
    if let Some(v) = v {
        fm.new_cookie = v.cookie;
        fm.idle_timeout = v.idle_timeout;
        fm.hard_timeout = v.hard_timeout;
        fm.importance = v.importance;
        fm.flags = v.flags;
        fm.actions.clone_from(&v.actions);
    }
    fm
}

/// Replaces a switch's flows by those of a file.
pub fn replace_flows(c: &Context, a: &[String]) -> Result {
    let names = accepted_names_ports_first(c, &a[0])?;
    let mut set = Set::default();
    let usable = read_flow_file(&a[1], 0, &names, &mut set)?;
    // Requests name tables in all formats, so formats that only lack it in modifications are usable for dumps.
    let usable = requests(usable);
    let (mut conn, _) = open_for_flow_mods(c, &a[0], usable)?;
    let protocol = set_protocol_for_dump(c, &mut conn, usable)?;
    all_flows(&mut conn, protocol, |f| take_flow(f, 1, &mut set))?;
    // Modifications of flows in other tables than 0 need the table id extension.
    let mut protocol = protocol;
    if set.0.keys().any(|id| id.table != 0) {
        let want = match protocol {
            Protocols::OF10_STD => Protocols::OF10_STD_TID,
            Protocols::OF10_NXM => Protocols::OF10_NXM_TID,
            p => p,
        };
        if !crate::switch::set_protocol(&mut conn, &mut protocol, want)? {
            return Err(fatal("switch does not support flow modifications that name their table"));
        }
    }
    let mut sender = Sender::new(c, conn, protocol);
    // The deletions of a table go first, to free space in it.
    for table in set.by_table() {
        for (id, _) in table.iter().filter(|(_, sides)| sides[0].is_none()) {
            sender.send(&flow_mod(id, None, Cmd::DeleteStrict))?;
        }
        for (id, sides) in table {
            if sides[0].is_some() && (c.readd || sides[0] != sides[1]) {
                sender.send(&flow_mod(id, sides[0].as_ref(), Cmd::Add))?;
            }
        }
    }
    sender.finish()
}

/// Whether an argument names a file.
fn is_file(source: &str) -> bool {
    source.starts_with(['/', '.']) || (!source.contains(':') && Path::new(source).is_file())
}

/// Prints the differences between two sources of flows; exit code 2 if there are any.
pub fn diff_flows(c: &Context, a: &[String]) -> Result {
    let mut set = Set::default();
    let switch = a.iter().find(|s| !is_file(s));
    let mut names = Names::default();
    if let (Some(switch), true) = (switch, a.iter().any(|s| is_file(s) && file_needs_names(s))) {
        names = accepted_names_ports_first(c, switch)?;
    }
    for (side, source) in a.iter().enumerate().take(2) {
        if is_file(source) {
            read_flow_file(source, side, &names, &mut set)?;
        } else {
            let mut conn = open(c, source, Target::Mgmt)?;
            let protocol = set_protocol_for_dump(c, &mut conn, Protocols::ANY)?;
            all_flows(&mut conn, protocol, |f| take_flow(f, side, &mut set))?;
        }
    }
    let shown = match switch {
        Some(s) => shown_names(c, s)?,
        None => None,
    };
    let mut out = Out::default();
    let mut differ = false;
    for (id, sides) in set.sorted().into_iter().filter(|(_, sides)| sides[0] != sides[1]) {
        differ = true;
        for (sign, version) in ['-', '+'].into_iter().zip(sides) {
            if let Some(v) = version {
                let mut line = String::from(sign);
                flow_difference(&as_stats(id, v), style(c, shown.as_ref(), 0), &mut line);
                line.push('\n');
                out.put(&c.paint(line));
            }
        }
    }
    out.flush();
    if differ { Err(Exit::Code(2)) } else { Ok(()) }
}

/// Whether a file may contain port names; only then are names requested from the switch.
fn file_needs_names(file: &str) -> bool {
    std::fs::metadata(file).is_ok_and(|m| m.len() > 0)
}

fn as_stats(id: &Id, v: &Version) -> FlowStats {
    FlowStats {
        priority: id.priority,
        cookie: v.cookie,
        idle_timeout: v.idle_timeout,
        hard_timeout: v.hard_timeout,
        importance: v.importance,
        flags: v.flags,
        actions: v.actions.clone(),
        ..FlowStats::blank(id.table, id.matching.expand())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::text::{NoNames, match_to_string, parse_match};

    #[test]
    fn partial_masks_of_tunnel_options_are_shown() {
        let compact = |text: &str| Compact::new(parse_match(text, &NoNames).expect(text));
        for text in ["tun_metadata1=0xef/0xff", "tun_metadata1=0xef", "tun_metadata0=0x10/0xf0", "tun_metadata0"] {
            assert_eq!(match_to_string(&compact(text).expand(), &NoNames), text);
        }
        // A mask of whole words is none.
        assert!(compact("tun_metadata1=3/0xffffffffffffffff") == compact("tun_metadata1=3"));
        assert!(compact("tun_metadata1=0xef/0xff") != compact("tun_metadata1=0xef"));
    }
    #[test]
    fn tables_come_one_after_the_other_and_their_flows_in_order() {
        let mut set = Set::default();
        for (n, table) in (0..).zip([1, 0, 1, 0, 2]) {
            let matching = Compact::new(Match::ANY);
            let version = Version {
                cookie: 0,
                idle_timeout: 0,
                hard_timeout: 0,
                importance: 0,
                flags: FlowFlags::default(),
                actions: Vec::new(),
            };
            set.put(Id { table, priority: n, matching }, 0, version);
        }
        let order: Vec<Vec<u16>> =
            set.by_table().iter().map(|t| t.iter().map(|(id, _)| id.priority).collect()).collect();
        assert_eq!(order, [vec![1, 3], vec![0, 2], vec![4]]);
    }
}
