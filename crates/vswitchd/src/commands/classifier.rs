//! `classifier/show` and `classifier/set`: how a bridge's flow tables are searched, and with which optimisations.
//!
//! The optimisations change what a look-up costs and how wide the megaflows become, never what is found: they can be
//! switched off to see what each is worth.

use super::{find_bridge, show};
use crate::devices::Devices;
use classifier::Options;
use ofproto::Ofproto;
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

/// The optimisations by name.
type Switch = (&'static str, fn(&mut Options) -> &mut bool);
const SWITCHES: [Switch; 5] = [
    ("priority-sorting", |o| &mut o.priority_sorting),
    ("stages", |o| &mut o.stages),
    ("prefix-tries", |o| &mut o.prefix_tries),
    ("ports-trie", |o| &mut o.ports_trie),
    ("partitions", |o| &mut o.partitions),
];

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    show(commands, devices, ("classifier/show", "bridge", 1..=1), |d, args, format| {
        let bridge = named(d, args.first())?;
        Ok(match format {
            OutputFormat::Text => text(&bridge).into(),
            OutputFormat::Json => json(&bridge).into(),
        })
    });
    super::act(commands, devices, ("classifier/set", "bridge optimisation on|off", 3..=3), |d, args| {
        let bridge = named(d, args.first())?;
        let [_, name, value] = args else { return Err("an optimisation, and on or off".to_owned()) };
        let on = match value.as_str() {
            "on" => true,
            "off" => false,
            _ => return Err(format!("'{value}' is neither on nor off")),
        };
        let names = || SWITCHES.map(|(name, _)| name).join(", ");
        let wanted: Vec<&Switch> = SWITCHES.iter().filter(|(known, _)| name == known || name == "all").collect();
        if wanted.is_empty() {
            return Err(format!("no optimisation '{name}': there are {} and all", names()));
        }
        for table in bridge.tables().iter() {
            let mut options = table.rules.options();
            wanted.iter().for_each(|(_, of)| *of(&mut options) = on);
            table.rules.set_options(options);
        }
        // Cached results stay right, but their masks may be wider or narrower than those of new lookups.
        bridge.lookups_changed();
        Ok(String::new())
    });
}

fn named(devices: &Devices, name: Option<&String>) -> Result<Arc<Ofproto>, String> {
    name.and_then(|name| find_bridge(devices, name)).ok_or_else(|| "no such bridge".to_owned())
}

fn text(bridge: &Ofproto) -> String {
    let mut out = String::new();
    let mut options = bridge.tables().first().map(|t| t.rules.options()).unwrap_or_default();
    for (name, of) in SWITCHES {
        let _ = writeln!(out, "{name}: {}", if *of(&mut options) { "on" } else { "off" });
    }
    for (i, table) in bridge.tables().iter().enumerate().filter(|(_, table)| !table.rules.is_empty()) {
        let prefixes: Vec<&str> = table.rules.prefixes().iter().map(|field| field.name()).collect();
        let (rules, masks) = (table.rules.len(), table.rules.n_masks());
        let _ = writeln!(out, "table {i}: {rules} rules, {masks} masks, prefixes {}", prefixes.join(","));
    }
    out
}

fn json(bridge: &Ofproto) -> Value {
    let mut options = bridge.tables().first().map(|t| t.rules.options()).unwrap_or_default();
    let optimisations: serde_json::Map<String, Value> =
        SWITCHES.iter().map(|(name, of)| ((*name).to_owned(), (*of(&mut options)).into())).collect();
    let tables = bridge.tables().iter().enumerate().filter(|(_, table)| !table.rules.is_empty());
    let table = |(i, table): (usize, &xlate::Table)| {
        let prefixes: Vec<&str> = table.rules.prefixes().iter().map(|field| field.name()).collect();
        json!({"table": i, "rules": table.rules.len(), "masks": table.rules.n_masks(), "prefixes": prefixes})
    };
    json!({"optimisations": optimisations, "tables": tables.map(table).collect::<Value>()})
}
