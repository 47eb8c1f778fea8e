//! Prints tables: statistics and features, abbreviated if they equal those of the table before.

use super::Style;
use super::config::{action_names, known_actions};
use super::table_config::miss;
use crate::Version::{self, V10, V11, V12, V14, V15};
use crate::table::{
    ActionFeatures, FIELDS11, FieldSet, FlowFeatures, TableAbilities, TableFeatures, TableStats, fields12,
    table_config as tc,
};
use flow::Field;
use std::fmt::Write;

/// Prints tables one by one; [`TableFormatter::finish`] prints how many at the end equalled the one before.
#[derive(Debug, Default)]
pub struct TableFormatter {
    previous: Option<(TableFeatures, Option<TableStats>)>,
    ditto: Option<(u8, u8)>,
    /// The table before had a name and nothing else of its own; no blank line follows it.
    named_ditto: bool,
}

/// Appends all of `features`, with `stats` of the same tables if there are any.
pub fn tables(features: &[TableFeatures], stats: &[TableStats], style: Style<'_>, out: &mut String) {
    let mut formatter = TableFormatter::default();
    for (i, f) in features.iter().enumerate() {
        formatter.table(f, stats.get(i), style, out);
    }
    formatter.finish(out);
}

/// Converts the statistics of OpenFlow 1.0 to table features.
pub(super) fn features_of_stats(version: Version, s: &TableStats) -> TableFeatures {
    const WILDCARDS: [(u32, &[Field]); 10] = [
        (1 << 0, &[Field::InPort]),
        (1 << 1, &[Field::VlanVid]),
        (1 << 2, &[Field::EthSrc]),
        (1 << 3, &[Field::EthDst]),
        (1 << 4, &[Field::EthType]),
        (1 << 5, &[Field::IpProto]),
        (1 << 6, &[Field::TcpSrc]),
        (1 << 7, &[Field::TcpDst]),
        (1 << 20, &[Field::VlanPcp]),
        (1 << 21, &[Field::IpDscpShifted]),
    ];
    let mut t = TableFeatures { table_id: s.table_id, name: s.name.clone(), ..TableFeatures::default() };
    if version == V10 {
        t.max_entries = s.max_entries;
        for (bit, fields) in WILDCARDS {
            if s.wildcards & bit != 0 {
                for f in fields {
                    t.wildcard.insert(*f);
                }
            }
        }
        for (shift, field) in [(8, Field::Ipv4Src), (14, Field::Ipv4Dst)] {
            if s.wildcards >> shift & 0x3f != 0 {
                t.wildcard.insert(field);
            }
        }
        t.matching = t.wildcard;
    }
    if let Some(abilities) = &s.abilities {
        t.max_entries = s.max_entries;
        features_of_abilities(version, abilities, &mut t);
    }
    t
}

/// Converts fields in the numbering of OpenFlow 1.1's match.
fn of_bits11(bits: u64) -> FieldSet {
    FIELDS11.iter().filter(|(bit, _)| bits >> bit & 1 != 0).flat_map(|(_, fields)| fields.iter().copied()).collect()
}

/// Converts fields in the numbering of OXM.
fn of_bits12(bits: u64) -> FieldSet {
    fields12().filter(|(bit, _)| bits >> bit & 1 != 0).map(|(_, field)| field).collect()
}

fn features_of_abilities(version: Version, a: &TableAbilities, t: &mut TableFeatures) {
    let fields = if version == V11 { of_bits11 } else { of_bits12 };
    (t.metadata_match, t.metadata_write, t.config) = (a.metadata_match, a.metadata_write, a.config);
    t.nonmiss = FlowFeatures {
        // Meters came with OpenFlow 1.3, and the other bits are no instructions.
        instructions: a.instructions & 0x3e,
        next_tables: [0; 4],
        write: ActionFeatures { actions: a.write_actions, set_fields: of_bits12(a.write_set_fields) },
        apply: ActionFeatures { actions: a.apply_actions, set_fields: of_bits12(a.apply_set_fields) },
    };
    if version == V11 {
        // Open vSwitch prints the fields of write_actions for both.
        t.nonmiss.apply = t.nonmiss.write;
    }
    t.miss = t.nonmiss.clone();
    // A field that can be wildcarded can be matched.
    (t.matching, t.wildcard) = (fields(a.matching | a.wildcards), fields(a.wildcards));
}

/// Bits of the instructions that have names.
const INSTRUCTIONS_KNOWN: u32 = 0x7e;

/// The features without instructions and actions that have no name, which are not compared either.
fn known(f: &TableFeatures, version: Version) -> TableFeatures {
    let mut f = f.clone();
    for flows in [&mut f.nonmiss, &mut f.miss] {
        flows.instructions &= INSTRUCTIONS_KNOWN;
        for actions in [&mut flows.write.actions, &mut flows.apply.actions] {
            *actions = known_actions(version, *actions);
        }
    }
    f
}

/// The features of a table's flows in the form for the comparison with the table before: limited to next tables after
/// `table_id`, as the others differ for each table.
fn comparable(f: &FlowFeatures, table_id: u8) -> FlowFeatures {
    let mut f = f.clone();
    for t in 0..=table_id {
        f.next_tables[usize::from(t / 64)] &= !(1 << (t % 64));
    }
    f
}

/// Returns true if the flows of `b` have the features of those of `a`, the table before.
fn same_flows(a: &TableFeatures, b: &TableFeatures) -> bool {
    let same = |a, b: &FlowFeatures, id| comparable(a, id) == comparable(b, id);
    same(&a.nonmiss, &b.nonmiss, b.table_id) && same(&a.miss, &b.miss, b.table_id)
}

/// Like Open vSwitch, does not compare which fields can be wildcarded or masked.
fn same_features(a: &TableFeatures, b: &TableFeatures) -> bool {
    let key = |t: &TableFeatures| (t.metadata_match, t.metadata_write, t.config, t.max_entries, t.matching);
    key(a) == key(b) && same_flows(a, b)
}

impl TableFormatter {
    /// Appends a table.
    pub fn table(&mut self, f: &TableFeatures, stats: Option<&TableStats>, style: Style<'_>, out: &mut String) {
        let f = &known(f, style.version);
        let same = self.previous.as_ref().is_some_and(|(p, _)| same_features(p, f));
        let same_stats = match (&self.previous, stats) {
            (Some((_, Some(a))), Some(b)) => {
                (a.active_count, a.lookup_count, a.matched_count) == (b.active_count, b.lookup_count, b.matched_count)
            }
            (Some((_, None)), None) => true,
            _ => false,
        };
        if same && same_stats && f.name.is_empty() {
            self.ditto = Some((self.ditto.map_or(f.table_id, |(first, _)| first), f.table_id));
            return;
        }
        self.flush(out);
        out.push_str(if std::mem::take(&mut self.named_ditto) { "" } else { "\n" });
        if self.previous.is_none() {
            command(f.command, out);
        }
        put!(out, "  table {}", f.table_id);
        if !f.name.is_empty() {
            put!(out, " (\"{}\")", f.name);
        }
        if same && same_stats {
            out.push_str(": ditto\n");
            self.named_ditto = true;
            return;
        }
        out.push_str(":\n");
        if let Some(s) = stats {
            put!(out, "    active={}, lookup={}, matched={}\n", s.active_count, s.lookup_count, s.matched_count);
        }
        // OpenFlow 1.3 and later report features in another message.
        if stats.is_some() && *f == (TableFeatures { table_id: f.table_id, ..TableFeatures::default() }) {
            self.previous = Some((f.clone(), stats.cloned()));
            return;
        }
        let empty = f.max_entries == 0 && f.matching.is_empty() && f.nonmiss == FlowFeatures::default();
        if same && !empty {
            out.push_str("    (same features)\n");
        } else {
            table_features(f, self.previous.as_ref().map(|(p, _)| p), style, out);
        }
        self.previous = Some((f.clone(), stats.cloned()));
    }

    fn flush(&mut self, out: &mut String) {
        let Some((a, b)) = self.ditto.take() else { return };
        out.push_str(if std::mem::take(&mut self.named_ditto) { "" } else { "\n" });
        if a == b {
            put!(out, "  table {a}: ditto\n");
        } else {
            put!(out, "  tables {a}...{b}: ditto\n");
        }
    }

    /// Ends the list.
    pub fn finish(mut self, out: &mut String) {
        self.flush(out);
    }
}

/// Appends the command of an OpenFlow 1.5 request, unless it replaces the tables.
fn command(command: u8, out: &mut String) {
    match command {
        0 => {}
        1 => out.push_str("  command: modify\n"),
        2 => out.push_str("  command: enable\n"),
        3 => out.push_str("  command: disable\n"),
        n => put!(out, "  command: {n}\n"),
    }
}

fn table_features(f: &TableFeatures, previous: Option<&TableFeatures>, style: Style<'_>, out: &mut String) {
    if f.metadata_match != 0 || f.metadata_write != 0 {
        put!(out, "    metadata: match={} write={}\n", hex(f.metadata_match), hex(f.metadata_write));
    }
    match style.version {
        V11 | V12 => put!(out, "    config={}\n", miss(f.config)),
        V14 | V15 => {
            let supported = |bit| if f.config & bit != 0 { "supported" } else { "not supported" };
            put!(out, "    eviction: {}\n", supported(tc::EVICTION));
            put!(out, "    vacancy events: {}\n", supported(tc::VACANCY_EVENTS));
        }
        _ => {}
    }
    if f.max_entries != 0 {
        put!(out, "    max_entries={}\n", f.max_entries);
    }
    let none = FlowFeatures::default();
    if f.nonmiss == none && f.miss == none {
    } else if previous.is_some_and(|p| same_flows(p, f)) {
        out.push_str("    (same instructions)\n");
    } else {
        let prev = previous.map(|p| &p.nonmiss);
        if f.nonmiss == f.miss {
            out.push_str("    instructions (table miss and others):\n");
            flow_features(&f.nonmiss, prev, style, out);
        } else {
            out.push_str("    instructions (other than table miss):\n");
            flow_features(&f.nonmiss, prev, style, out);
            out.push_str("    instructions (table miss):\n");
            flow_features(&f.miss, previous.map(|p| &p.miss), style, out);
        }
    }
    if f.matching.is_empty() {
        return;
    }
    if previous.is_some_and(|p| p.matching == f.matching) {
        out.push_str("    (same matching)\n");
        return;
    }
    out.push_str("    matching:\n");
    // Before OpenFlow 1.3, tables do not report which fields accept a mask.
    let masks = style.version >= Version::V13;
    let wild = |i: &flow::FieldInfo| f.wildcard.contains(i.id);
    let any_mask = |i: &flow::FieldInfo| masks && f.maskable.contains(i.id);
    let groups: [(&str, Vec<&str>); 3] = [
        ("arbitrary mask", names(&f.matching, |i| wild(i) && any_mask(i))),
        ("exact match or wildcard", names(&f.matching, |i| wild(i) && !any_mask(i))),
        ("must exact match", names(&f.matching, |i| !wild(i))),
    ];
    for (title, list) in groups.iter().filter(|(_, l)| !l.is_empty()) {
        put!(out, "      {title}: {}\n", squeeze(list).join(" "));
    }
}

fn names(set: &FieldSet, keep: impl Fn(&'static flow::FieldInfo) -> bool) -> Vec<&'static str> {
    set.iter().filter(|i| keep(i)).map(|i| i.name).collect()
}

fn hex(n: u64) -> String {
    if n == 0 { "0".into() } else { format!("{n:#x}") }
}

fn flow_features(f: &FlowFeatures, previous: Option<&FlowFeatures>, style: Style<'_>, out: &mut String) {
    const INSTRUCTIONS: [(u32, &str); 6] = [
        (6, "meter"),
        (4, "apply_actions"),
        (5, "clear_actions"),
        (3, "write_actions"),
        (2, "write_metadata"),
        (1, "goto_table"),
    ];
    if f.next_tables != [0; 4] {
        put!(out, "      next tables: {}\n", ranges(&f.next_tables));
    }
    let list: Vec<&str> =
        INSTRUCTIONS.iter().filter(|(bit, _)| f.instructions & 1 << bit != 0).map(|(_, n)| *n).collect();
    if f.instructions != 0 && previous.is_some_and(|p| p.instructions == f.instructions) {
        out.push_str("      (same instructions)\n");
    } else if !list.is_empty() {
        put!(out, "      instructions: {}\n", list.join(" "));
    }
    if (f.write, f.apply) == <(ActionFeatures, ActionFeatures)>::default() {
        return;
    }
    // Open vSwitch recognises equal actions only if some field can be set.
    let sets = !f.write.set_fields.is_empty() || !f.apply.set_fields.is_empty();
    if sets && previous.is_some_and(|p| (p.write, p.apply) == (f.write, f.apply)) {
        out.push_str("      (same actions)\n");
    } else if f.write == f.apply {
        out.push_str("      Write-Actions and Apply-Actions features:\n");
        action_features(&f.write, style, out);
    } else {
        out.push_str("      Write-Actions features:\n");
        action_features(&f.write, style, out);
        out.push_str("      Apply-Actions features:\n");
        action_features(&f.apply, style, out);
    }
}

fn action_features(f: &ActionFeatures, style: Style<'_>, out: &mut String) {
    let list = action_names(style.version, f.actions);
    if !list.is_empty() {
        put!(out, "        actions: {}\n", list.join(" "));
    }
    if !f.set_fields.is_empty() {
        put!(out, "        supported on Set-Field: {}\n", squeeze(&names(&f.set_fields, |_| true)).join(" "));
    }
}

/// Formats as `1-5,7`.
fn ranges(bits: &[u64; 4]) -> String {
    let mut list: Vec<(u8, u8)> = Vec::new();
    for t in 0..=255u8 {
        if bits[usize::from(t / 64)] & 1 << (t % 64) == 0 {
            continue;
        }
        match list.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(t) => *last = t,
            _ => list.push((t, t)),
        }
    }
    let text = |(a, b): &(u8, u8)| if a == b { a.to_string() } else { format!("{a}-{b}") };
    list.iter().map(text).collect::<Vec<_>>().join(",")
}

/// Abbreviates names with a common prefix: `eth_{src,dst}`, `reg0...reg15`.
fn squeeze(names: &[&str]) -> Vec<String> {
    let mut list = Vec::new();
    let mut i = 0;
    while i < names.len() {
        let run = number_run(&names[i..]);
        if run > 2 {
            list.push(format!("{}...{}", names[i], names[i + run - 1]));
            i += run;
            continue;
        }
        let prefix = names[i].find('_').map_or("", |at| &names[i][..=at]);
        let n = names[i..].iter().take_while(|n| !prefix.is_empty() && n.starts_with(prefix)).count();
        if n > 1 {
            let rest: Vec<&str> = names[i..i + n].iter().map(|n| &n[prefix.len()..]).collect();
            list.push(format!("{prefix}{{{}}}", squeeze(&rest).join(",")));
            i += n;
        } else {
            list.push(names[i].to_owned());
            i += 1;
        }
    }
    list
}

/// Returns how many names, from the first on, are the same word with consecutive numbers after it.
fn number_run(names: &[&str]) -> usize {
    let split = |n: &str| {
        let at = n.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        n[at..].parse::<u32>().ok().map(|number| (n[..at].to_owned(), number))
    };
    let Some((word, first)) = names.first().and_then(|n| split(n)) else { return 0 };
    (0u32..).zip(names).take_while(|(i, n)| split(n) == Some((word.clone(), first.saturating_add(*i)))).count()
}
