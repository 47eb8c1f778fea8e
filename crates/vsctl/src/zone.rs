//! Conntrack zones of datapaths (timeout policies and limits), and what datapaths can do.

use ovsdb::Datum;
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::{
    self as db, CtZone, Datapath, ct_timeout_policy, ct_zone, datapath, open_vswitch,
};
use ovsdb_client::typed::{Enumeration as _, Ref, Table as _};

use crate::bridge::delete_if_new;
use crate::command::Command;
use crate::context::{Context, Failure, Output};
use crate::needs::Needs;

type Done = Result<(), Failure>;

pub(crate) fn needs(needs: &mut Needs<'_>, _: &Command) -> Done {
    needs.columns(&columns! {
        open_vswitch { DATAPATHS }
        datapath { CT_ZONES, CT_ZONE_DEFAULT_LIMIT }
        ct_zone { TIMEOUT_POLICY, LIMIT }
        ct_timeout_policy { TIMEOUTS }
    });
    Ok(())
}

pub(crate) fn capability_needs(needs: &mut Needs<'_>, _: &Command) -> Done {
    needs.columns(&columns! { open_vswitch { DATAPATHS } datapath { CAPABILITIES } });
    Ok(())
}

fn find_datapath(context: &mut Context<'_>, name: &str) -> Option<Ref<Datapath>> {
    let root = context.root();
    context.txn.get(root, open_vswitch::DATAPATHS).get(name)
}

fn datapath_must_exist(context: &mut Context<'_>, name: &str) -> Result<Ref<Datapath>, Failure> {
    find_datapath(context, name).ok_or_else(|| Failure::fatal(format!("datapath {name} does not exist")))
}

/// The number in `zone=NUMBER`.
fn zone_id(text: &str) -> Result<i64, Failure> {
    let id = text.strip_prefix("zone=").and_then(|id| id.parse().ok());
    id.ok_or_else(|| Failure::fatal(format!("{text}: expected zone=ZONE_ID")))
}

fn zone_row(context: &Context<'_>, datapath: Ref<Datapath>, zone: i64) -> Option<Ref<CtZone>> {
    context.txn.get(datapath, datapath::CT_ZONES).get(zone)
}

/// The zone's row, made if it is missing.
fn make_zone(context: &mut Context<'_>, datapath: Ref<Datapath>, zone: i64) -> Ref<CtZone> {
    zone_row(context, datapath, zone).unwrap_or_else(|| {
        let row = context.txn.insert(CtZone).reference();
        context.txn.add(datapath, datapath::CT_ZONES, [(zone, row)]);
        row
    })
}

/// Removes a zone about which nothing is configured any more.
fn drop_empty_zone(context: &mut Context<'_>, datapath: Ref<Datapath>, zone: i64, row: Ref<CtZone>) {
    let txn = &mut context.txn;
    if txn.get(row, ct_zone::TIMEOUT_POLICY).is_none() && txn.get(row, ct_zone::LIMIT).is_none() {
        txn.remove(datapath, datapath::CT_ZONES, [zone]);
        delete_if_new(txn, row);
    }
}

pub(crate) fn add_timeout_policy(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let datapath = datapath_must_exist(context, command.arg(0))?;
    let zone = zone_id(command.arg(1))?;
    let old = zone_row(context, datapath, zone);
    let has_policy = old.is_some_and(|row| context.txn.get(row, ct_zone::TIMEOUT_POLICY).is_some());
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
    // Which policies there are the server's schema knows, and its words say so.
    let policy = context.txn.insert(db::CtTimeoutPolicy).reference();
    let column = ct_timeout_policy::TIMEOUTS.name();
    context.txn.set_datum(db::CtTimeoutPolicy::NAME, policy.uuid(), column, Datum::map(timeouts));
    context.txn.set(row, ct_zone::TIMEOUT_POLICY, Some(policy));
    Ok(())
}

pub(crate) fn del_timeout_policy(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let datapath = datapath_must_exist(context, command.arg(0))?;
    let zone = zone_id(command.arg(1))?;
    let row = zone_row(context, datapath, zone);
    let row = row.filter(|row| context.txn.get(*row, ct_zone::TIMEOUT_POLICY).is_some());
    let Some(row) = row else {
        let missing = Failure::fatal(format!("zone id {zone} does not exist"));
        return if command.has("--if-exists") { Ok(()) } else { Err(missing) };
    };
    context.txn.clear(row, ct_zone::TIMEOUT_POLICY);
    drop_empty_zone(context, datapath, zone, row);
    Ok(())
}

pub(crate) fn list_timeout_policies(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    let name = command.arg(0);
    let Some(datapath) = find_datapath(context, name) else {
        return Err(Failure::fatal(format!("datapath: {name} record not found")));
    };
    for (zone, row) in context.txn.get(datapath, datapath::CT_ZONES) {
        let Some(policy) = context.txn.get(row, ct_zone::TIMEOUT_POLICY) else { continue };
        let timeouts = context.txn.get(policy, ct_timeout_policy::TIMEOUTS).into_iter();
        let name = ct_timeout_policy::TimeoutsKey::name_of;
        let text: Vec<String> = timeouts.map(|(key, value)| format!("{}={value}", name(key))).collect();
        output.line(format!("Zone:{zone}, Timeout Policies: {}", text.join(" ")));
    }
    Ok(())
}

/// What a limit is about.
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
    let known = context.schema.table(CtZone::NAME).is_some_and(|table| table.column(ct_zone::LIMIT.name()).is_some());
    if known { Ok(()) } else { Err(Failure::fatal("the database's schema is too old for conntrack zone limits")) }
}

pub(crate) fn set_limit(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    check_limits(context)?;
    let datapath = datapath_must_exist(context, command.arg(0))?;
    let text = command.arg(2);
    let limit = text.parse::<u32>();
    let limit = i64::from(limit.map_err(|_| Failure::fatal(format!("{text}: limit is not between 0 and 4294967295")))?);
    match limited(command.arg(1))? {
        Limited::Default => context.txn.set(datapath, datapath::CT_ZONE_DEFAULT_LIMIT, Some(limit)),
        Limited::Zone(zone) => {
            let row = make_zone(context, datapath, zone);
            context.txn.set(row, ct_zone::LIMIT, Some(limit));
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
            if context.txn.get(datapath, datapath::CT_ZONE_DEFAULT_LIMIT).is_none() {
                return missing(format!("datapath {}", command.arg(0)));
            }
            context.txn.clear(datapath, datapath::CT_ZONE_DEFAULT_LIMIT);
        }
        Limited::Zone(zone) => {
            let row = zone_row(context, datapath, zone);
            let Some(row) = row.filter(|row| context.txn.get(*row, ct_zone::LIMIT).is_some()) else {
                return missing(format!("zone {zone}"));
            };
            context.txn.clear(row, ct_zone::LIMIT);
            drop_empty_zone(context, datapath, zone, row);
        }
    }
    Ok(())
}

pub(crate) fn list_limits(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    check_limits(context)?;
    let datapath = datapath_must_exist(context, command.arg(0))?;
    if let Some(limit) = context.txn.get(datapath, datapath::CT_ZONE_DEFAULT_LIMIT) {
        output.line(format!("Default, Limit: {limit}"));
    }
    for (zone, row) in context.txn.get(datapath, datapath::CT_ZONES) {
        if let Some(limit) = context.txn.get(row, ct_zone::LIMIT) {
            output.line(format!("Zone: {zone}, Limit: {limit}"));
        }
    }
    Ok(())
}

pub(crate) fn list_capabilities(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    let name = command.arg(0);
    let Some(datapath) = find_datapath(context, name) else {
        return Err(Failure::fatal(format!("datapath \"{name}\" record not found")));
    };
    let capabilities = context.txn.get(datapath, datapath::CAPABILITIES).into_iter();
    let text: Vec<String> = capabilities.map(|(key, value)| format!("{key}={value}")).collect();
    output.line(text.join(" "));
    Ok(())
}
