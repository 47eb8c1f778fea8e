//! Mirrors of a bridge.
//!
//! A mirror that cannot be used is left out, and logged as Open vSwitch logs it. The others have numbers, in whose order
//! packets are sent to them: a new mirror has the first number that is free, and keeps it and its counters while it can be used.

use crate::feature::{Feature, Report};
use crate::levels::{BridgeLevel, BridgeReport, BridgeRows, BridgeTarget};
use crate::reader::Reader;
use base::PortNo;
use flow::extract::ethertype;
use flow::text::{PortNames, parse_exact_match};
use flow::{Field, Match};
use ovsdb_client::schemas::vswitch::{Mirror as MirrorRow, Port, bridge, mirror, port};
use ovsdb_client::typed::{AnyColumn, Ref, Row};
use ovsdb_client::{Transaction, columns};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xlate::mirror::MAX_MIRRORS;
use xlate::model::VlanSet;
use xlate::{Counters, Mirror, MirrorOut};

/// The mirrors of a bridge.
#[derive(Debug, Default)]
pub struct Mirrors {
    slots: Vec<Option<Slot>>,
}

/// A number that a mirror has.
#[derive(Clone, Debug)]
struct Slot {
    row: Ref<MirrorRow>,
    counters: Arc<Counters>,
}

/// The settings of all mirrors.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct MirrorsSpec {
    mirrors: Vec<MirrorSpec>,
    complaints: Vec<Complaint>,
}

/// The settings of a mirror.
#[derive(Clone, PartialEq, Debug)]
struct MirrorSpec {
    row: Ref<MirrorRow>,
    /// The bridge and the mirror, for the log.
    what: String,
    name: String,
    select_all: bool,
    select_src: Vec<Arc<str>>,
    select_dst: Vec<Arc<str>>,
    select_vlan: Vec<u16>,
    filter: Option<Box<Match>>,
    out: MirrorOut,
    snaplen: Option<u16>,
}

/// A line of the log.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Complaint {
    /// Of the module for mirrors.
    Mirror(String),
    /// A warning of the module for bridges.
    Bridge(String),
    /// An error of the module for bridges.
    BridgeError(String),
}

impl Complaint {
    fn log(&self) {
        match self {
            Self::Mirror(text) => tracing::warn!(target: "ofproto_dpif_mirror", "{text}"),
            Self::Bridge(text) => tracing::warn!(target: "bridge", "{text}"),
            Self::BridgeError(text) => tracing::error!(target: "bridge", "{text}"),
        }
    }
}

impl Feature for Mirrors {
    type Level = BridgeLevel;
    type Spec = MirrorsSpec;
    const NAME: &'static str = "mirrors";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        bridge { NAME, MIRRORS, PORTS }
        mirror {
            NAME, SELECT_ALL, SELECT_SRC_PORT, SELECT_DST_PORT, SELECT_VLAN, FILTER, OUTPUT_PORT, OUTPUT_VLAN, SNAPLEN
        }
        port { NAME }
    };
    const REPORTS: &'static [AnyColumn] = &columns! { mirror { STATISTICS } };

    fn read(reader: &Reader<'_>, rows: BridgeRows<'_>) -> MirrorsSpec {
        let mut spec = MirrorsSpec::default();
        let mirrors = rows.bridge.get(bridge::MIRRORS);
        if mirrors.is_empty() {
            return spec;
        }
        let ports: BTreeSet<Ref<Port>> = rows.bridge.get(bridge::PORTS).into_iter().collect();
        for row in mirrors.into_iter().filter_map(|row| reader.find(row)) {
            let what = format!("{}: mirror {}", rows.what(), row.get(mirror::NAME));
            let mut of = OneMirror { reader, ports: &ports, what, complaints: &mut spec.complaints };
            spec.mirrors.extend(of.read(row));
        }
        spec
    }

    fn apply(&mut self, spec: &MirrorsSpec, target: &mut BridgeTarget<'_>) {
        let mut complaints = spec.complaints.clone();
        let wanted: BTreeMap<_, _> = spec.mirrors.iter().map(|mirror| (mirror.row, mirror)).collect();
        self.slots.resize(MAX_MIRRORS, None);
        for slot in &mut self.slots {
            *slot = slot.take().filter(|slot| wanted.contains_key(&slot.row));
        }
        for mirror in &spec.mirrors {
            if self.slots.iter().flatten().any(|slot| slot.row == mirror.row) {
                continue;
            }
            match self.slots.iter_mut().find(|slot| slot.is_none()) {
                Some(free) => *free = Some(Slot { row: mirror.row, counters: Arc::default() }),
                None => {
                    let text = format!("maximum of {MAX_MIRRORS} port mirrors reached, cannot create {}", mirror.name);
                    complaints.push(Complaint::Mirror(text));
                    complaints.push(Complaint::BridgeError(format!("{} configuration is invalid", mirror.what)));
                }
            }
        }
        complaints.iter().for_each(Complaint::log);
        let of_slot = |slot: &Option<Slot>| {
            let slot = slot.as_ref()?;
            wanted.get(&slot.row).map(|spec| spec.mirror(&slot.counters))
        };
        let mirrors = (!wanted.is_empty()).then(|| xlate::Mirrors::new(self.slots.iter().map(of_slot).collect()));
        target.running.ofproto.set_mirrors(mirrors);
    }

    fn report(&self, _: BridgeReport<'_>, what: Report, txn: &mut Transaction<'_>) {
        if what != Report::Statistics {
            return;
        }
        for Slot { row, counters } in self.slots.iter().flatten() {
            if txn.contains(*row) {
                let counts = [("tx_packets", counters.packets()), ("tx_bytes", counters.bytes())];
                let counts: BTreeMap<String, i64> =
                    counts.into_iter().map(|(name, count)| (name.to_owned(), count as i64)).collect();
                txn.set(*row, mirror::STATISTICS, counts);
            }
        }
    }
}

impl MirrorSpec {
    fn mirror(&self, counters: &Arc<Counters>) -> Mirror {
        let vlans = &self.select_vlan;
        Mirror {
            select_all: self.select_all,
            select_src: self.select_src.clone(),
            select_dst: self.select_dst.clone(),
            select_vlan: (!vlans.is_empty()).then(|| Arc::new(vlans.iter().copied().collect::<VlanSet>())),
            filter: self.filter.clone(),
            out: self.out.clone(),
            snaplen: self.snaplen,
            counters: Arc::clone(counters),
        }
    }
}

/// Reads one mirror.
struct OneMirror<'a> {
    reader: &'a Reader<'a>,
    /// The ports of the bridge.
    ports: &'a BTreeSet<Ref<Port>>,
    what: String,
    complaints: &'a mut Vec<Complaint>,
}

impl OneMirror<'_> {
    fn error(&mut self, text: &str) {
        self.complaints.push(Complaint::BridgeError(format!("{}{text}", self.what)));
    }

    /// Returns the settings of a mirror; `None` if it cannot be used.
    fn read(&mut self, row: Row<'_, MirrorRow>) -> Option<MirrorSpec> {
        let out = self.output(row)?;
        // As in Open vSwitch, it does not matter which ports are listed as well.
        let select_all = row.get(mirror::SELECT_ALL);
        let mut selected = |ports: Vec<Ref<Port>>| if select_all { Vec::new() } else { self.selected(ports) };
        let select_src = selected(row.get(mirror::SELECT_SRC_PORT).into_iter().collect());
        let select_dst = selected(row.get(mirror::SELECT_DST_PORT).into_iter().collect());
        let filter = self.filter(row.get(mirror::FILTER).unwrap_or("")).ok()?;
        Some(MirrorSpec {
            row: row.reference(),
            what: self.what.clone(),
            name: row.get(mirror::NAME).to_owned(),
            select_all,
            select_src,
            select_dst,
            select_vlan: row.get(mirror::SELECT_VLAN).into_iter().filter_map(|vlan| u16::try_from(vlan).ok()).collect(),
            filter,
            out,
            snaplen: row.get(mirror::SNAPLEN).and_then(|len| u16::try_from(len).ok()),
        })
    }

    fn output(&mut self, row: Row<'_, MirrorRow>) -> Option<MirrorOut> {
        let vlan = row.get(mirror::OUTPUT_VLAN).and_then(|vlan| u16::try_from(vlan).ok());
        let Some(port) = row.get(mirror::OUTPUT_PORT) else {
            if vlan.is_none() {
                self.error(" does not specify output; ignoring");
            }
            return vlan.map(MirrorOut::Vlan);
        };
        let Some(name) = self.name_of(port).filter(|_| self.ports.contains(&port)) else {
            self.error(" outputs to port not on bridge");
            return None;
        };
        if vlan.is_some() {
            self.error(" specifies both output port and output vlan; ignoring output vlan");
        }
        Some(MirrorOut::Port(name))
    }

    fn name_of(&self, port: Ref<Port>) -> Option<Arc<str>> {
        self.reader.find(port).map(|row| Arc::from(row.get(port::NAME)))
    }

    /// The names of those of the ports that are in the bridge.
    fn selected(&mut self, ports: Vec<Ref<Port>>) -> Vec<Arc<str>> {
        let mut names = Vec::with_capacity(ports.len());
        for port in ports {
            let Some(name) = self.name_of(port) else { continue };
            if self.ports.contains(&port) {
                names.push(name);
            } else {
                let text = format!("{} cannot match on nonexistent port {name}", self.what);
                self.complaints.push(Complaint::Bridge(text));
            }
        }
        names
    }

    /// Parses a filter. `Ok(None)` if it is empty, an error that is logged if it is wrong.
    fn filter(&mut self, text: &str) -> Result<Option<Box<Match>>, ()> {
        if text.is_empty() {
            return Ok(None);
        }
        let why = match parse_exact_match(text, &AnyPort) {
            Ok(filter) if filter.get(Field::InPortOxm).1 == 0 => return Ok(Some(Box::new(of_vlan_protocol(filter)))),
            Ok(_) => "filter is invalid due to in_port field.".to_owned(),
            Err(error) => format!("filter is invalid: {text}: {error}"),
        };
        self.complaints.push(Complaint::Mirror(why));
        self.error(" configuration is invalid");
        Err(())
    }
}

/// Returns a filter on a VLAN tag with the protocol of the tag: the text cannot give another one than IEEE 802.1Q's.
fn of_vlan_protocol(filter: Match) -> Match {
    const PRESENT: u16 = 0x1000;
    let (mut key, mut mask) = (filter.key().clone(), filter.mask().clone());
    let (tci, tci_mask) = (key.vlan_tci(), mask.vlan_tci());
    if tci & PRESENT == 0 {
        return filter;
    }
    key.set_vlan(0, ethertype::VLAN, tci);
    mask.set_vlan(0, u16::MAX, tci_mask);
    Match::new(&key, mask)
}

/// Knows a port of any name: a filter with a port is wrong, whichever that is.
struct AnyPort;

impl PortNames for AnyPort {
    fn number(&self, _: &str) -> Option<PortNo> {
        Some(PortNo(1))
    }

    fn name(&self, _: PortNo) -> Option<String> {
        None
    }
}
