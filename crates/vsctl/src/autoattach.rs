//! The Auto-Attach commands: I-SID to VLAN mappings of a bridge.

use ovsdb::{Atom, Datum, Uuid};

use crate::{Command, Context, Done, Failure, Needs, Output};

pub(crate) fn needs(needs: &mut Needs<'_>, command: &Command) -> Done {
    crate::bridge::needs(needs, command)?;
    needs.columns("Bridge", &["auto_attach"]);
    needs.columns("AutoAttach", &["mappings"]);
    Ok(())
}

/// The row of a bridge, or of the parent of a fake one.
fn bridge(context: &mut Context<'_>, name: &str) -> Result<Uuid, Failure> {
    Ok(context.model().bridge(name)?.row)
}

fn number(text: &str) -> Result<i64, Failure> {
    text.parse().map_err(|_| Failure::fatal(format!("Invalid argument {text}")))
}

fn auto_attach(context: &Context<'_>, bridge: Uuid) -> Option<Uuid> {
    context.txn.uuids("Bridge", bridge, "auto_attach").first().copied()
}

pub(crate) fn add(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (isid, vlan) = (number(command.arg(1))?, number(command.arg(2))?);
    let bridge = bridge(context, command.arg(0))?;
    let row = auto_attach(context, bridge).unwrap_or_else(|| {
        let row = context.txn.insert_row("AutoAttach");
        context.txn.set_datum("Bridge", bridge, "auto_attach", row);
        row
    });
    context.txn.add_elements("AutoAttach", row, "mappings", &Datum::map([(isid, vlan)]));
    Ok(())
}

pub(crate) fn del(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (isid, vlan) = (number(command.arg(1))?, number(command.arg(2))?);
    let bridge = bridge(context, command.arg(0))?;
    let Some(row) = auto_attach(context, bridge) else { return Ok(()) };
    let mapped = context.txn.datum("AutoAttach", row, "mappings").and_then(|map| map.get(&Atom::Integer(isid)));
    if mapped == Some(&Atom::Integer(vlan)) {
        context.txn.verify_column("AutoAttach", row, "mappings");
        context.txn.remove_elements("AutoAttach", row, "mappings", &Datum::scalar(isid));
    }
    Ok(())
}

pub(crate) fn get(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    let bridge = bridge(context, command.arg(0))?;
    let Some(row) = auto_attach(context, bridge) else { return Ok(()) };
    let mappings = context.txn.datum("AutoAttach", row, "mappings");
    for (isid, vlan) in mappings.into_iter().flat_map(Datum::pairs) {
        if let (Some(isid), Some(vlan)) = (isid.as_integer(), vlan.as_integer()) {
            output.line(format!("{isid} {vlan}"));
        }
    }
    Ok(())
}
