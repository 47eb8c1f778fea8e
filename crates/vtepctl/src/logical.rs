//! The commands for logical switches and logical routers.

use ovsdb::Uuid;

use crate::{Command, Context, Done, Failure, Needs, Output, physical};

/// The places where packets to several receivers are replicated.
pub(crate) const MODES: &[&str] = &["service_node", "source_node"];

/// The tables and columns of names.
pub(crate) fn needs(needs: &mut Needs<'_>, command: &Command) -> Done {
    physical::needs(needs, command)
}

pub(crate) fn mode_needs(needs: &mut Needs<'_>, command: &Command) -> Done {
    self::needs(needs, command)?;
    needs.columns("Logical_Switch", &["replication_mode"]);
    Ok(())
}

/// Inserts a row with a name into a table, unless it `exists`; `None` if that is allowed.
fn add(
    context: &mut Context<'_>,
    command: &Command,
    table: &str,
    what: &str,
    exists: bool,
) -> Result<Option<Uuid>, Failure> {
    let name = command.arg(0);
    if exists && command.has("--may-exist") {
        return Ok(None);
    }
    if exists {
        return Err(Failure::fatal(format!("cannot create {what} {name} because it already exists")));
    }
    let row = context.txn.insert_row(table);
    context.txn.set_datum(table, row, "name", name);
    Ok(Some(row))
}

/// Deletes a row if it is found; returns whether it was.
fn del(context: &mut Context<'_>, command: &Command, table: &str, row: Result<Uuid, Failure>) -> Result<bool, Failure> {
    match row {
        Ok(row) => context.txn.delete_row(table, row),
        Err(_) if command.has("--if-exists") => return Ok(false),
        Err(error) => return Err(error),
    }
    Ok(true)
}

pub(crate) fn add_switch(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let exists = context.model().logical.contains_key(command.arg(0));
    if let Some(row) = add(context, command, "Logical_Switch", "logical switch", exists)? {
        context.model().logical.insert(command.arg(0).to_owned(), row);
    }
    Ok(())
}

pub(crate) fn del_switch(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let row = context.model().logical(command.arg(0));
    if del(context, command, "Logical_Switch", row)? {
        context.model().logical.remove(command.arg(0));
    }
    Ok(())
}

pub(crate) fn list_switches(context: &mut Context<'_>, _: &Command, output: &mut Output) -> Done {
    context.model().logical.keys().for_each(|name| output.line(name));
    Ok(())
}

pub(crate) fn switch_exists(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    if context.model().logical.contains_key(command.arg(0)) { Ok(()) } else { Err(Failure::Exit(2)) }
}

pub(crate) fn set_mode(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let (row, mode) = (model.logical(command.arg(0))?, command.arg(1));
    if !MODES.contains(&mode) {
        return Err(Failure::fatal("Replication mode must be 'service_node' or 'source_node'"));
    }
    txn.set_datum("Logical_Switch", row, "replication_mode", mode);
    Ok(())
}

pub(crate) fn get_mode(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    let (txn, model) = context.txn_and_model();
    let row = model.logical(command.arg(0))?;
    txn.verify_column("Logical_Switch", row, "replication_mode");
    // Scripts know this text for a switch without a mode.
    output.line(match txn.string("Logical_Switch", row, "replication_mode") {
        "" => "(null)",
        mode => mode,
    });
    Ok(())
}

pub(crate) fn add_router(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let exists = context.model().routers.contains_key(command.arg(0));
    if let Some(row) = add(context, command, "Logical_Router", "logical router", exists)? {
        context.model().routers.insert(command.arg(0).to_owned(), row);
    }
    Ok(())
}

pub(crate) fn del_router(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let row = context.model().router(command.arg(0));
    if del(context, command, "Logical_Router", row)? {
        context.model().routers.remove(command.arg(0));
    }
    Ok(())
}

pub(crate) fn list_routers(context: &mut Context<'_>, _: &Command, output: &mut Output) -> Done {
    context.model().routers.keys().for_each(|name| output.line(name));
    Ok(())
}

pub(crate) fn router_exists(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    if context.model().routers.contains_key(command.arg(0)) { Ok(()) } else { Err(Failure::Exit(2)) }
}
