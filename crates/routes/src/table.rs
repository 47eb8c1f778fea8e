//! Routing tables: which routes contain an address, and which of them is chosen.
//!
//! Within a table, the longest prefix wins among the routes of one origin; a route added by a command counts as 32 bits
//! longer than the others, as in Open vSwitch; among equals, the longer prefix. A route holds for one packet mark only.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::prefix::{Prefix, width};
use crate::rules::{TABLE_DEFAULT, TABLE_LOCAL, TABLE_MAIN};
use crate::trie::Trie;

/// Where a route comes from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Origin {
    /// The kernel's tables.
    Kernel,
    /// The addresses of a device that the kernel does not know.
    Device,
    /// A command.
    User,
}

/// A route as tables hold it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// The packet mark for which it holds.
    pub mark: u32,
    /// Where it comes from.
    pub origin: Origin,
    /// The output device: the name of a bridge or of another device.
    pub device: Arc<str>,
    /// The next hop, unless that is the destination itself.
    pub gateway: Option<IpAddr>,
    /// The source address of packets.
    pub source: IpAddr,
    /// The destination is an address of this host.
    pub local: bool,
    /// All next hops, the first of which is the one above, if there are several.
    pub hops: Vec<Hop>,
}

/// One of several next hops.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hop {
    /// The output device.
    pub device: Arc<str>,
    /// The router, unless destinations are on the link.
    pub gateway: Option<IpAddr>,
    /// The source address of packets.
    pub source: IpAddr,
    /// Its share of the destinations, in proportion to the others' weights; from 1 to 256.
    pub weight: u32,
}

impl Entry {
    /// The next hop of packets with this hash, by weight (the hash threshold of RFC 2992): device, router and source address.
    pub fn hop(&self, hash: u32) -> (&Arc<str>, Option<IpAddr>, IpAddr) {
        let weights: u64 = self.hops.iter().map(|hop| u64::from(hop.weight)).sum();
        let at = (u64::from(hash) * weights) >> 32;
        let mut end = 0;
        let mut hops = self.hops.iter();
        let chosen = hops.find(|hop| {
            end += u64::from(hop.weight);
            at < end
        });
        match chosen {
            Some(hop) => (&hop.device, hop.gateway, hop.source),
            None => (&self.device, self.gateway, self.source),
        }
    }
}

/// The rank of a route among all that contain an address.
fn rank(len: u8, origin: Origin) -> u16 {
    u16::from(len) + if origin == Origin::User { 32 } else { 0 }
}

#[derive(Clone, Debug)]
struct Slot {
    entry: Entry,
    /// The order of insertion, in which routes are shown.
    serial: u64,
}

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    trie: Trie<Vec<Slot>>,
    serial: u64,
}

impl Table {
    /// The chosen route for an address and mark, and how many bits of the address decided it.
    pub fn lookup(&self, address: IpAddr, mark: u32) -> (Option<&Entry>, u8) {
        let mut best: Option<((u16, u8, Origin), &Entry)> = None;
        let consulted = self.trie.walk(address, |len, slots| {
            for Slot { entry, .. } in slots.iter().filter(|slot| slot.entry.mark == mark) {
                let rank = (rank(len, entry.origin), len, entry.origin);
                if best.as_ref().is_none_or(|(other, _)| rank >= *other) {
                    best = Some((rank, entry));
                }
            }
        });
        (best.map(|(_, entry)| entry), consulted)
    }

    /// The entry of one prefix, mark and origin.
    pub fn get(&self, prefix: Prefix, mark: u32, origin: Origin) -> Option<&Entry> {
        let slots = self.trie.get(prefix)?;
        slots.iter().map(|slot| &slot.entry).find(|entry| entry.mark == mark && entry.origin == origin)
    }

    /// Adds an entry, in place of one with the same prefix, mark and origin. Returns whether the table differs.
    pub(crate) fn insert(&mut self, prefix: Prefix, entry: Entry) -> bool {
        self.serial += 1;
        let serial = self.serial;
        let Some(slots) = self.trie.get_mut(prefix) else {
            self.trie.insert(prefix, vec![Slot { entry, serial }]);
            return true;
        };
        match slots.iter_mut().find(|slot| slot.entry.mark == entry.mark && slot.entry.origin == entry.origin) {
            Some(slot) if slot.entry == entry => return false,
            Some(slot) => slot.entry = entry,
            None => slots.push(Slot { entry, serial }),
        }
        true
    }

    /// Removes an entry. Returns whether there was one.
    pub(crate) fn remove(&mut self, prefix: Prefix, mark: u32, origin: Origin) -> bool {
        let Some(slots) = self.trie.get_mut(prefix) else { return false };
        let before = slots.len();
        slots.retain(|slot| slot.entry.mark != mark || slot.entry.origin != origin);
        let (removed, empty) = (slots.len() < before, slots.is_empty());
        if empty {
            self.trie.remove(prefix);
        }
        removed
    }

    /// The prefixes with an entry of this origin for which `wanted` is true, with the entries' marks.
    pub(crate) fn matching(&self, origin: Origin, wanted: impl Fn(&Entry) -> bool) -> Vec<(Prefix, u32)> {
        let entries = self.trie.iter().flat_map(|(prefix, slots)| slots.iter().map(move |slot| (prefix, &slot.entry)));
        let wanted = entries.filter(|(_, entry)| entry.origin == origin && wanted(entry));
        wanted.map(|(prefix, entry)| (prefix, entry.mark)).collect()
    }

    /// The rows that commands show: groups of one length, counted in bits of an IPv6 address, in order of the highest
    /// rank in each, older rows first.
    fn rows(&self, table: u32) -> Vec<RouteRow> {
        let long = |prefix: Prefix| prefix.len() + (128 - width(prefix.address()));
        let mut groups: BTreeMap<u8, (u16, Vec<(u64, RouteRow)>)> = BTreeMap::new();
        for (prefix, slots) in self.trie.iter() {
            for slot in slots {
                let (best, rows) = groups.entry(long(prefix)).or_default();
                *best = (*best).max(rank(long(prefix), slot.entry.origin));
                rows.push((slot.serial, RouteRow { table, prefix, entry: slot.entry.clone() }));
            }
        }
        let mut groups: Vec<_> = groups.into_values().rev().collect();
        groups.sort_by_key(|(best, _)| std::cmp::Reverse(*best));
        groups.iter_mut().for_each(|(_, rows)| rows.sort_by_key(|(serial, _)| *serial));
        groups.into_iter().flat_map(|(_, rows)| rows.into_iter().map(|(_, row)| row)).collect()
    }
}

/// A row of `ovs/route/show`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteRow {
    /// The number of its table.
    pub table: u32,
    /// The destinations.
    pub prefix: Prefix,
    /// The route.
    pub entry: Entry,
}

impl RouteRow {
    /// The object that `ovs/route/show` prints as JSON.
    pub fn to_json(&self) -> Value {
        let hop = |device: &str, gateway: Option<IpAddr>| {
            let mut hop = Map::from_iter([("dev".to_owned(), json!(device))]);
            hop.extend(gateway.map(|gateway| ("gateway".to_owned(), json!(gateway.to_string()))));
            hop
        };
        let hops = match &self.entry.hops[..] {
            [] => vec![hop(&self.entry.device, self.entry.gateway)],
            several => several.iter().map(|one| hop(&one.device, one.gateway)).collect(),
        };
        let mut row = json!({"dst": self.prefix.address().to_string(), "local": self.entry.local});
        if self.entry.mark != 0 {
            row["mark"] = json!(self.entry.mark);
        }
        row["nexthops"] = json!(hops);
        row["prefix"] = json!(self.prefix.len());
        row["prefsrc"] = json!(self.entry.source.to_string());
        row["table"] = json!(self.table);
        row["user"] = json!(self.entry.origin == Origin::User);
        row
    }
}

impl RouteRow {
    /// A row for each next hop.
    fn by_hop(&self) -> Vec<RouteRow> {
        if self.entry.hops.is_empty() {
            return vec![self.clone()];
        }
        let of_hop = |Hop { device, gateway, source, .. }: &Hop| {
            let (device, gateway, source) = (Arc::clone(device), *gateway, *source);
            RouteRow { entry: Entry { device, gateway, source, hops: Vec::new(), ..self.entry }, ..*self }
        };
        self.entry.hops.iter().map(of_hop).collect()
    }
}

impl fmt::Display for RouteRow {
    /// A line of `ovs/route/show`, without the table.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let entry = &self.entry;
        f.write_str(if entry.origin == Origin::User { "User: " } else { "Cached: " })?;
        write!(f, "{}", self.prefix)?;
        if entry.mark != 0 {
            write!(f, " MARK {}", entry.mark)?;
        }
        write!(f, " dev {}", entry.device)?;
        if let Some(gateway) = entry.gateway {
            write!(f, " GW {gateway}")?;
        }
        write!(f, " SRC {}{}", entry.source, if entry.local { " local" } else { "" })
    }
}

/// Which tables `ovs/route/show` shows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shown {
    /// Local, main and default.
    Standard,
    /// All.
    All,
    /// One.
    One(u32),
}

/// The standard tables, as shown.
const STANDARD: [u32; 3] = [TABLE_LOCAL, TABLE_MAIN, TABLE_DEFAULT];

/// The tables by number.
#[derive(Clone, Debug)]
pub struct Tables(BTreeMap<u32, Table>);

impl Default for Tables {
    fn default() -> Self {
        Self(BTreeMap::from([(TABLE_LOCAL, Table::default()), (TABLE_MAIN, Table::default())]))
    }
}

impl Tables {
    /// A table, if it exists.
    pub fn get(&self, table: u32) -> Option<&Table> {
        self.0.get(&table)
    }

    pub(crate) fn get_mut(&mut self, table: u32) -> &mut Table {
        self.0.entry(table).or_default()
    }

    pub(crate) fn existing_mut(&mut self, table: u32) -> Option<&mut Table> {
        self.0.get_mut(&table)
    }

    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.0.keys().copied().collect()
    }

    /// The rows to show. `None` if there is no such table.
    pub(crate) fn rows(&self, which: Shown) -> Option<Vec<RouteRow>> {
        let others = self.0.keys().copied().filter(|table| !STANDARD.contains(table));
        let numbers = match which {
            Shown::Standard => STANDARD.to_vec(),
            Shown::All => STANDARD.into_iter().chain(others).collect(),
            Shown::One(table) => vec![self.0.contains_key(&table).then_some(table)?],
        };
        let existing = numbers.into_iter().filter_map(|number| Some((number, self.0.get(&number)?)));
        Some(existing.flat_map(|(number, table)| table.rows(number)).collect())
    }
}

/// The text of `ovs/route/show`, with a line for each of several next hops.
pub fn rows_to_text(which: Shown, rows: &[RouteRow]) -> String {
    let mut out = match which {
        Shown::One(table) if !STANDARD.contains(&table) => format!("Route Table #{table}:\n"),
        Shown::All => String::new(),
        _ => "Route Table:\n".to_owned(),
    };
    for row in rows.iter().flat_map(RouteRow::by_hop) {
        let _ = match which {
            Shown::All if !STANDARD.contains(&row.table) => writeln!(out, "{row} table {}", row.table),
            _ => writeln!(out, "{row}"),
        };
    }
    out
}
