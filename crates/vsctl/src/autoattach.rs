//! The Auto-Attach commands: I-SID to VLAN mappings of a bridge.

use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::{self as db, autoattach, bridge};
use ovsdb_client::typed::Ref;

use crate::command::Command;
use crate::context::{Context, Failure, Output};
use crate::needs::Needs;

type Done = Result<(), Failure>;

pub(crate) fn needs(needs: &mut Needs<'_>, command: &Command) -> Done {
    crate::bridge::needs(needs, command)?;
    needs.columns(&columns! { bridge { AUTO_ATTACH } autoattach { MAPPINGS } });
    Ok(())
}

/// The row of a bridge, or of the parent of a fake one.
fn bridge(context: &mut Context<'_>, name: &str) -> Result<Ref<db::Bridge>, Failure> {
    Ok(context.model().bridge(name)?.row)
}

fn number(text: &str) -> Result<i64, Failure> {
    text.parse().map_err(|_| Failure::fatal(format!("Invalid argument {text}")))
}

fn auto_attach(context: &Context<'_>, bridge: Ref<db::Bridge>) -> Option<Ref<db::AutoAttach>> {
    context.txn.get(bridge, bridge::AUTO_ATTACH)
}

pub(crate) fn add(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (isid, vlan) = (number(command.arg(1))?, number(command.arg(2))?);
    let bridge = bridge(context, command.arg(0))?;
    let row = auto_attach(context, bridge).unwrap_or_else(|| {
        let row = context.txn.insert(db::AutoAttach).reference();
        context.txn.set(bridge, bridge::AUTO_ATTACH, Some(row));
        row
    });
    context.txn.add(row, autoattach::MAPPINGS, [(isid, vlan)]);
    Ok(())
}

pub(crate) fn del(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (isid, vlan) = (number(command.arg(1))?, number(command.arg(2))?);
    let bridge = bridge(context, command.arg(0))?;
    let Some(row) = auto_attach(context, bridge) else { return Ok(()) };
    if context.txn.get(row, autoattach::MAPPINGS).get(isid) == Some(vlan) {
        context.txn.verify(row, autoattach::MAPPINGS);
        context.txn.remove(row, autoattach::MAPPINGS, [isid]);
    }
    Ok(())
}

pub(crate) fn get(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    let bridge = bridge(context, command.arg(0))?;
    let Some(row) = auto_attach(context, bridge) else { return Ok(()) };
    for (isid, vlan) in context.txn.get(row, autoattach::MAPPINGS) {
        output.line(format!("{isid} {vlan}"));
    }
    Ok(())
}
