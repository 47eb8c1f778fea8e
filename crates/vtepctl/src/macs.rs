//! The commands for MAC addresses: the tunnels behind which those of a logical switch are.
//!
//! Each table exists twice, for addresses that the switch has learned (local) and for those that the controller knows
//! (remote), with the same commands for both. A unicast address is at one locator, a multicast address at a set of
//! them; sets are never changed but replaced, as in the database.

use ovsdb::{Datum, Uuid};
use ovsdb_client::Transaction;

use crate::{Command, Context, Done, Needs, Output, physical};

/// The default encapsulation.
pub(crate) const DEFAULT_ENCAPSULATION: &str = "vxlan_over_ipv4";

/// The local or remote tables.
struct Side {
    unicast: &'static str,
    multicast: &'static str,
    /// In titles of lists.
    name: &'static str,
}

const LOCAL: Side = Side { unicast: "Ucast_Macs_Local", multicast: "Mcast_Macs_Local", name: "local" };
const REMOTE: Side = Side { unicast: "Ucast_Macs_Remote", multicast: "Mcast_Macs_Remote", name: "remote" };

/// The commands of one side.
macro_rules! side {
    ($name:ident, $side:expr, $doc:literal) => {
        #[doc = $doc]
        pub(crate) mod $name {
            use crate::{Command, Context, Done, Needs, Output};

            pub(crate) fn needs(needs: &mut Needs<'_>, command: &Command) -> Done {
                super::needs(&$side, needs, command)
            }

            pub(crate) fn add_unicast(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
                super::add_unicast(&$side, context, command)
            }

            pub(crate) fn del_unicast(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
                super::del_unicast(&$side, context, command)
            }

            pub(crate) fn add_multicast(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
                super::add_multicast(&$side, context, command)
            }

            pub(crate) fn del_multicast(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
                super::del_multicast(&$side, context, command)
            }

            pub(crate) fn clear(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
                super::clear(&$side, context, command)
            }

            pub(crate) fn list(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
                super::list(&$side, context, command, output)
            }
        }
    };
}

side!(local, super::LOCAL, "Addresses that the switch has learned.");
side!(remote, super::REMOTE, "Addresses that the controller knows.");

fn needs(side: &Side, needs: &mut Needs<'_>, command: &Command) -> Done {
    physical::needs(needs, command)?;
    needs.columns(side.unicast, &["MAC", "logical_switch", "locator"]);
    needs.columns(side.multicast, &["MAC", "logical_switch", "locator_set"]);
    needs.columns("Physical_Locator_Set", &["locators"]);
    needs.columns("Physical_Locator", &["encapsulation_type", "dst_ip"]);
    Ok(())
}

/// The rows about addresses of a logical switch.
fn rows(txn: &Transaction<'_>, table: &str, switch: Uuid) -> Vec<Uuid> {
    let is_of = |row: &Uuid| txn.uuids(table, *row, "logical_switch").first() == Some(&switch);
    txn.rows(table).into_iter().filter(is_of).collect()
}

/// The row about one address of a logical switch.
fn row(txn: &Transaction<'_>, table: &str, switch: Uuid, mac: &str) -> Option<Uuid> {
    rows(txn, table, switch).into_iter().find(|row| txn.string(table, *row, "MAC") == mac)
}

/// The encapsulation and the address that end a command.
fn place(command: &Command) -> (&str, &str) {
    match command.arg_opt(3) {
        Some(ip) => (command.arg(2), ip),
        None => (DEFAULT_ENCAPSULATION, command.arg(2)),
    }
}

fn find_locator(txn: &Transaction<'_>, (encapsulation, ip): (&str, &str)) -> Option<Uuid> {
    let is_it = |row: &Uuid| {
        txn.string("Physical_Locator", *row, "encapsulation_type") == encapsulation
            && txn.string("Physical_Locator", *row, "dst_ip") == ip
    };
    txn.rows("Physical_Locator").into_iter().find(is_it)
}

fn locator(txn: &mut Transaction<'_>, place: (&str, &str)) -> Uuid {
    find_locator(txn, place).unwrap_or_else(|| {
        let row = txn.insert_row("Physical_Locator");
        txn.set_datum("Physical_Locator", row, "encapsulation_type", place.0);
        txn.set_datum("Physical_Locator", row, "dst_ip", place.1);
        row
    })
}

fn insert(txn: &mut Transaction<'_>, table: &str, switch: Uuid, mac: &str) -> Uuid {
    let row = txn.insert_row(table);
    txn.set_datum(table, row, "MAC", mac);
    txn.set_datum(table, row, "logical_switch", switch);
    row
}

fn add_unicast(side: &Side, context: &mut Context<'_>, command: &Command) -> Done {
    let (txn, model) = context.txn_and_model();
    let (switch, mac) = (model.logical(command.arg(0))?, command.arg(1));
    let locator = locator(txn, place(command));
    let row = row(txn, side.unicast, switch, mac).unwrap_or_else(|| insert(txn, side.unicast, switch, mac));
    txn.set_datum(side.unicast, row, "locator", locator);
    Ok(())
}

fn del_unicast(side: &Side, context: &mut Context<'_>, command: &Command) -> Done {
    let (txn, model) = context.txn_and_model();
    let switch = model.logical(command.arg(0))?;
    if let Some(row) = row(txn, side.unicast, switch, command.arg(1)) {
        txn.delete_row(side.unicast, row);
    }
    Ok(())
}

/// The locators of the row of a multicast address.
fn locators(txn: &Transaction<'_>, table: &str, row: Uuid) -> Vec<Uuid> {
    let sets = txn.uuids(table, row, "locator_set");
    sets.first().map(|set| txn.uuids("Physical_Locator_Set", *set, "locators")).unwrap_or_default()
}

/// Gives the row of a multicast address a new set.
fn replace_set(txn: &mut Transaction<'_>, table: &str, row: Uuid, locators: Vec<Uuid>) {
    for old in txn.uuids(table, row, "locator_set") {
        txn.forget_row("Physical_Locator_Set", old);
    }
    let set = txn.insert_row("Physical_Locator_Set");
    txn.set_datum("Physical_Locator_Set", set, "locators", Datum::set(locators));
    txn.set_datum(table, row, "locator_set", set);
}

fn add_multicast(side: &Side, context: &mut Context<'_>, command: &Command) -> Done {
    let (txn, model) = context.txn_and_model();
    let (switch, mac) = (model.logical(command.arg(0))?, command.arg(1));
    let locator = locator(txn, place(command));
    let row = row(txn, side.multicast, switch, mac).unwrap_or_else(|| insert(txn, side.multicast, switch, mac));
    let mut locators = locators(txn, side.multicast, row);
    if !locators.contains(&locator) {
        locators.push(locator);
        replace_set(txn, side.multicast, row, locators);
    }
    Ok(())
}

fn del_multicast(side: &Side, context: &mut Context<'_>, command: &Command) -> Done {
    let (txn, model) = context.txn_and_model();
    let switch = model.logical(command.arg(0))?;
    let Some(row) = row(txn, side.multicast, switch, command.arg(1)) else { return Ok(()) };
    let Some(locator) = find_locator(txn, place(command)) else { return Ok(()) };
    let mut locators = locators(txn, side.multicast, row);
    let Some(at) = locators.iter().position(|one| *one == locator) else { return Ok(()) };
    locators.remove(at);
    if locators.is_empty() {
        txn.delete_row(side.multicast, row);
    } else {
        replace_set(txn, side.multicast, row, locators);
    }
    Ok(())
}

fn clear(side: &Side, context: &mut Context<'_>, command: &Command) -> Done {
    let (txn, model) = context.txn_and_model();
    let switch = model.logical(command.arg(0))?;
    for table in [side.unicast, side.multicast] {
        for row in rows(txn, table, switch) {
            txn.delete_row(table, row);
        }
    }
    Ok(())
}

fn list(side: &Side, context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let switch = model.logical(command.arg(0))?;
    let line = |mac: &str, locator: Uuid| {
        let encapsulation = txn.string("Physical_Locator", locator, "encapsulation_type");
        format!("  {mac} -> {encapsulation}/{}", txn.string("Physical_Locator", locator, "dst_ip"))
    };
    let lines = |table: &str, locators: &dyn Fn(Uuid) -> Vec<Uuid>| {
        let mut lines = Vec::new();
        for row in rows(txn, table, switch) {
            lines.extend(locators(row).into_iter().map(|locator| line(txn.string(table, row, "MAC"), locator)));
        }
        lines.sort_unstable();
        lines
    };
    let unicast = lines(side.unicast, &|row| txn.uuids(side.unicast, row, "locator"));
    let multicast = lines(side.multicast, &|row| locators(txn, side.multicast, row));
    for (kind, lines) in [("ucast", unicast), ("mcast", multicast)] {
        output.line(format!("{kind}-mac-{}", side.name));
        lines.iter().for_each(|line| output.line(line));
        output.line("");
    }
    Ok(())
}
