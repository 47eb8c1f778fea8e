//! Conntrack zones of datapaths (timeout policies and limits), and the capabilities of datapaths.

use ovsdb::{Atom, Datum, Uuid};

use dbctl::manager::delete_if_new;

use crate::{Command, Context, Done, Failure, Needs, Output};

pub(crate) fn needs(needs: &mut Needs<'_>, _: &Command) -> Done {
    needs.columns("Open_vSwitch", &["datapaths"]);
    needs.columns("Datapath", &["ct_zones", "ct_zone_default_limit"]);
    needs.columns("CT_Zone", &["timeout_policy", "limit"]);
    needs.columns("CT_Timeout_Policy", &["timeouts"]);
    Ok(())
}

pub(crate) fn capability_needs(needs: &mut Needs<'_>, _: &Command) -> Done {
    needs.columns("Open_vSwitch", &["datapaths"]);
    needs.columns("Datapath", &["capabilities"]);
    Ok(())
}

fn datapath(context: &mut Context<'_>, name: &str) -> Option<Uuid> {
    let root = context.root();
    context.txn.datum("Open_vSwitch", root, "datapaths")?.get(&Atom::from(name))?.as_uuid()
}

fn datapath_must_exist(context: &mut Context<'_>, name: &str) -> Result<Uuid, Failure> {
    datapath(context, name).ok_or_else(|| Failure::fatal(format!("datapath {name} does not exist")))
}

/// The number in `zone=NUMBER`.
fn zone_id(text: &str) -> Result<i64, Failure> {
    let id = text.strip_prefix("zone=").and_then(|id| id.parse().ok());
    id.ok_or_else(|| Failure::fatal(format!("{text}: expected zone=ZONE_ID")))
}

fn zone_row(context: &Context<'_>, datapath: Uuid, zone: i64) -> Option<Uuid> {
    context.txn.datum("Datapath", datapath, "ct_zones")?.get(&Atom::Integer(zone))?.as_uuid()
}

/// The zone's row, created if it is missing.
fn make_zone(context: &mut Context<'_>, datapath: Uuid, zone: i64) -> Uuid {
    zone_row(context, datapath, zone).unwrap_or_else(|| {
        let row = context.txn.insert_row("CT_Zone");
        context.txn.add_elements("Datapath", datapath, "ct_zones", &Datum::map([(zone, row)]));
        row
    })
}

/// Removes a zone without any remaining setting.
fn drop_empty_zone(context: &mut Context<'_>, datapath: Uuid, zone: i64, row: Uuid) {
    let is_empty = |column: &str| context.txn.datum("CT_Zone", row, column).is_none_or(Datum::is_empty);
    if is_empty("timeout_policy") && is_empty("limit") {
        context.txn.remove_elements("Datapath", datapath, "ct_zones", &Datum::scalar(zone));
        delete_if_new(&mut context.txn, "CT_Zone", row);
    }
}

pub(crate) fn add_timeout_policy(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let datapath = datapath_must_exist(context, command.arg(0))?;
    let zone = zone_id(command.arg(1))?;
    let old = zone_row(context, datapath, zone);
    let has_policy = old.is_some_and(|row| !context.txn.uuids("CT_Zone", row, "timeout_policy").is_empty());
    if has_policy && !command.has("--may-exist") {
        return Err(Failure::fatal(format!("zone id {zone} already exists")));
    }
    let mut timeouts = Vec::new();
    for policy in command.args_from(2) {
        let parsed = policy.split_once('=').and_then(|(key, value)| Some((key, value.parse::<i64>().ok()?)));
        let (key, value) = parsed.ok_or_else(|| Failure::fatal(format!("{policy}: expected POLICY=SECONDS")))?;
        timeouts.push((key, value));
    }
    let row = make_zone(context, datapath, zone);
    let policy = context.txn.insert_row("CT_Timeout_Policy");
    context.txn.set_datum("CT_Timeout_Policy", policy, "timeouts", Datum::map(timeouts));
    context.txn.set_datum("CT_Zone", row, "timeout_policy", policy);
    Ok(())
}

pub(crate) fn del_timeout_policy(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let datapath = datapath_must_exist(context, command.arg(0))?;
    let zone = zone_id(command.arg(1))?;
    let row = zone_row(context, datapath, zone);
    let row = row.filter(|row| !context.txn.uuids("CT_Zone", *row, "timeout_policy").is_empty());
    let Some(row) = row else {
        let missing = Failure::fatal(format!("zone id {zone} does not exist"));
        return if command.has("--if-exists") { Ok(()) } else { Err(missing) };
    };
    context.txn.set_datum("CT_Zone", row, "timeout_policy", Datum::empty());
    drop_empty_zone(context, datapath, zone, row);
    Ok(())
}

pub(crate) fn list_timeout_policies(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    let name = command.arg(0);
    let Some(datapath) = datapath(context, name) else {
        return Err(Failure::fatal(format!("datapath: {name} record not found")));
    };
    let zones = context.txn.datum("Datapath", datapath, "ct_zones");
    for (zone, row) in zones.into_iter().flat_map(Datum::pairs) {
        let (Some(zone), Some(row)) = (zone.as_integer(), row.as_uuid()) else { continue };
        let Some(policy) = context.txn.uuids("CT_Zone", row, "timeout_policy").first().copied() else { continue };
        let timeouts = context.txn.datum("CT_Timeout_Policy", policy, "timeouts");
        let text: Vec<String> = timeouts
            .into_iter()
            .flat_map(Datum::pairs)
            .map(|(key, value)| format!("{}={}", key.as_str().unwrap_or_default(), value.as_integer().unwrap_or(0)))
            .collect();
        output.line(format!("Zone:{zone}, Timeout Policies: {}", text.join(" ")));
    }
    Ok(())
}

/// The zones of a limit.
enum Limited {
    /// All zones without a limit of their own.
    Default,
    Zone(i64),
}

fn limited(text: &str) -> Result<Limited, Failure> {
    if text == "default" {
        return Ok(Limited::Default);
    }
    let id = text.strip_prefix("zone=").unwrap_or(text).parse::<u16>();
    id.map(|id| Limited::Zone(id.into())).map_err(|_| {
        Failure::fatal(format!("{text}: expected zone=ZONE_ID, with a zone between 0 and 65535, or default"))
    })
}

/// The columns for limits came with schema 8.5.
fn check_limits(context: &Context<'_>) -> Done {
    let known = context.schema.table("CT_Zone").is_some_and(|table| table.column("limit").is_some());
    if known { Ok(()) } else { Err(Failure::fatal("the database's schema is too old for conntrack zone limits")) }
}

pub(crate) fn set_limit(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    check_limits(context)?;
    let datapath = datapath_must_exist(context, command.arg(0))?;
    let text = command.arg(2);
    let limit = text.parse::<u32>();
    let limit = i64::from(limit.map_err(|_| Failure::fatal(format!("{text}: limit is not between 0 and 4294967295")))?);
    match limited(command.arg(1))? {
        Limited::Default => context.txn.set_datum("Datapath", datapath, "ct_zone_default_limit", limit),
        Limited::Zone(zone) => {
            let row = make_zone(context, datapath, zone);
            context.txn.set_datum("CT_Zone", row, "limit", limit);
        }
    }
    Ok(())
}

pub(crate) fn del_limit(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    check_limits(context)?;
    let datapath = datapath_must_exist(context, command.arg(0))?;
    let missing = |what: String| {
        let failure = Failure::fatal(format!("{what} does not have a limit"));
        if command.has("--if-exists") { Ok(()) } else { Err(failure) }
    };
    match limited(command.arg(1))? {
        Limited::Default => {
            if context.txn.integer("Datapath", datapath, "ct_zone_default_limit").is_none() {
                return missing(format!("datapath {}", command.arg(0)));
            }
            context.txn.set_datum("Datapath", datapath, "ct_zone_default_limit", Datum::empty());
        }
        Limited::Zone(zone) => {
            let row = zone_row(context, datapath, zone);
            let Some(row) = row.filter(|row| context.txn.integer("CT_Zone", *row, "limit").is_some()) else {
                return missing(format!("zone {zone}"));
            };
            context.txn.set_datum("CT_Zone", row, "limit", Datum::empty());
            drop_empty_zone(context, datapath, zone, row);
        }
    }
    Ok(())
}

pub(crate) fn list_limits(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    check_limits(context)?;
    let datapath = datapath_must_exist(context, command.arg(0))?;
    if let Some(limit) = context.txn.integer("Datapath", datapath, "ct_zone_default_limit") {
        output.line(format!("Default, Limit: {limit}"));
    }
    let zones = context.txn.datum("Datapath", datapath, "ct_zones");
    for (zone, row) in zones.into_iter().flat_map(Datum::pairs) {
        let (Some(zone), Some(row)) = (zone.as_integer(), row.as_uuid()) else { continue };
        if let Some(limit) = context.txn.integer("CT_Zone", row, "limit") {
            output.line(format!("Zone: {zone}, Limit: {limit}"));
        }
    }
    Ok(())
}

pub(crate) fn list_capabilities(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    let name = command.arg(0);
    let Some(datapath) = datapath(context, name) else {
        return Err(Failure::fatal(format!("datapath \"{name}\" record not found")));
    };
    let capabilities = context.txn.datum("Datapath", datapath, "capabilities");
    let text: Vec<String> = capabilities
        .into_iter()
        .flat_map(Datum::pairs)
        .map(|(key, value)| format!("{}={}", key.as_str().unwrap_or_default(), value.as_str().unwrap_or_default()))
        .collect();
    output.line(text.join(" "));
    Ok(())
}
