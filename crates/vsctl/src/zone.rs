//! Conntrack zones of datapaths (timeout policies and limits), and the capabilities of datapaths.

use std::collections::BTreeMap;

use ovsdb::{Atom, Datum, Uuid};

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

/// Reads an integer as C's `strtoll` does with base 0: behind spaces, with a sign, hexadecimal after `0x`, octal after
/// `0`, and with anything behind it. `None` without a digit.
fn leading_integer(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (radix, digits) = match hex.filter(|hex| hex.starts_with(|c: char| c.is_ascii_hexdigit())) {
        Some(hex) => (16, hex),
        None if digits.starts_with('0') => (8, digits),
        None => (10, digits),
    };
    let mut digits = digits.chars().map_while(|c| c.to_digit(radix)).peekable();
    digits.peek()?;
    Some(digits.fold(0i64, |number, digit| number.saturating_mul(radix.into()).saturating_add(sign * i64::from(digit))))
}

/// The number in `zone=NUMBER`. The database knows its range.
fn zone_id(text: &str) -> Result<i64, Failure> {
    let id = text.strip_prefix("zone=").and_then(leading_integer);
    id.ok_or_else(|| Failure::fatal(format!("invalid zone argument, {text}")))
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
        context.txn.forget_row("CT_Zone", row);
    }
}

/// The policy and the timeout in `POLICY=SECONDS`. A timeout without a number is 0. The database knows the policies.
fn timeout(argument: &str) -> Result<(&str, i64), Failure> {
    const SEPARATORS: [char; 5] = [',', ' ', '\t', '\r', '\n'];
    let text = argument.trim_start_matches(SEPARATORS);
    if text.is_empty() {
        return Err(Failure::fatal(format!("invalid timeout policy, {argument}")));
    }
    let end = text.find(|c: char| matches!(c, '=' | ':' | '(') || SEPARATORS.contains(&c)).unwrap_or(text.len());
    let (policy, rest) = text.split_at(end);
    let seconds = rest.strip_prefix(['=', ':', '(']).unwrap_or_default().trim_start();
    let (sign, digits) = match seconds.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, seconds.strip_prefix('+').unwrap_or(seconds)),
    };
    let digits = digits.chars().map_while(|c| c.to_digit(10));
    let number = digits.fold(0i64, |number, digit| number.saturating_mul(10).saturating_add(sign * i64::from(digit)));
    // Open vSwitch reads an int.
    Ok((policy, i64::from(number as i32)))
}

/// A policy with these timeouts: zones share equal ones.
fn policy_with(context: &mut Context<'_>, timeouts: &Datum) -> Uuid {
    let rows = context.txn.rows("CT_Timeout_Policy");
    let is_equal = |row: &Uuid| context.txn.datum("CT_Timeout_Policy", *row, "timeouts") == Some(timeouts);
    rows.into_iter().find(is_equal).unwrap_or_else(|| {
        let policy = context.txn.insert_row("CT_Timeout_Policy");
        context.txn.set_datum("CT_Timeout_Policy", policy, "timeouts", timeouts.clone());
        policy
    })
}

pub(crate) fn add_timeout_policy(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let zone = zone_id(command.arg(1))?;
    let datapath = datapath_must_exist(context, command.arg(0))?;
    let old = zone_row(context, datapath, zone);
    let has_policy = old.is_some_and(|row| !context.txn.uuids("CT_Zone", row, "timeout_policy").is_empty());
    if has_policy && !command.has("--may-exist") {
        return Err(Failure::fatal(format!("zone id {zone} already has a policy")));
    }
    let mut timeouts = BTreeMap::new();
    for argument in command.args_from(2) {
        let (policy, seconds) = timeout(argument)?;
        timeouts.entry(policy).or_insert(seconds);
    }
    let row = make_zone(context, datapath, zone);
    let policy = policy_with(context, &Datum::map(timeouts));
    context.txn.set_datum("CT_Zone", row, "timeout_policy", policy);
    Ok(())
}

pub(crate) fn del_timeout_policy(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    let zone = zone_id(command.arg(1))?;
    let datapath = datapath_must_exist(context, command.arg(0))?;
    let row = zone_row(context, datapath, zone);
    let row = row.filter(|row| !context.txn.uuids("CT_Zone", *row, "timeout_policy").is_empty());
    let Some(row) = row else {
        let missing = Failure::fatal(format!("zone id {zone} does not have a policy"));
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
        let Some(policy) = context.txn.uuids("CT_Zone", row, "timeout_policy").first().copied() else {
            output.line(format!("Zone:{zone}, Timeout Policies: system default"));
            continue;
        };
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
    let id = leading_integer(text).ok_or_else(|| Failure::fatal(format!("invalid zone id, {text}")))?;
    Ok(Limited::Zone(id))
}

/// The columns for limits came with schema 8.5.
fn check_limits(context: &Context<'_>) -> Done {
    let known = context.schema.table("CT_Zone").is_some_and(|table| table.column("limit").is_some());
    if known { Ok(()) } else { Err(Failure::fatal("the database's schema is too old for conntrack zone limits")) }
}

pub(crate) fn set_limit(context: &mut Context<'_>, command: &Command, _: &mut Output) -> Done {
    check_limits(context)?;
    let limited = limited(command.arg(1))?;
    if let Limited::Zone(zone) = limited
        && u16::try_from(zone).is_err()
    {
        return Err(Failure::fatal(format!("zone_id ({zone}) out of range")));
    }
    let text = command.arg(2);
    let limit = leading_integer(text).ok_or_else(|| Failure::fatal(format!("invalid limit, {text}")))?;
    if u32::try_from(limit).is_err() {
        return Err(Failure::fatal(format!("limit ({limit}) out of range")));
    }
    let datapath = datapath_must_exist(context, command.arg(0))?;
    match limited {
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
    let limited = limited(command.arg(1))?;
    let datapath = datapath_must_exist(context, command.arg(0))?;
    let missing = |what: String| {
        let failure = Failure::fatal(format!("{what} does not have a limit"));
        if command.has("--if-exists") { Ok(()) } else { Err(failure) }
    };
    match limited {
        Limited::Default => {
            if context.txn.integer("Datapath", datapath, "ct_zone_default_limit").is_none() {
                return missing(format!("datapath {}", command.arg(0)));
            }
            context.txn.set_datum("Datapath", datapath, "ct_zone_default_limit", Datum::empty());
        }
        Limited::Zone(zone) => {
            let row = zone_row(context, datapath, zone);
            let Some(row) = row.filter(|row| context.txn.integer("CT_Zone", *row, "limit").is_some()) else {
                return missing(format!("zone_id {zone}"));
            };
            context.txn.set_datum("CT_Zone", row, "limit", Datum::empty());
            drop_empty_zone(context, datapath, zone, row);
        }
    }
    Ok(())
}

pub(crate) fn list_limits(context: &mut Context<'_>, command: &Command, output: &mut Output) -> Done {
    check_limits(context)?;
    let name = command.arg(0);
    let Some(datapath) = datapath(context, name) else {
        return Err(Failure::fatal(format!("datapath: {name} record not found")));
    };
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_like_strtoll() {
        for (text, expected) in [
            ("7", Some(7)),
            (" 7", Some(7)),
            ("+7", Some(7)),
            ("-7", Some(-7)),
            ("7y", Some(7)),
            ("0x10", Some(16)),
            ("0xg", Some(0)),
            ("010", Some(8)),
            ("0b11", Some(0)),
            ("99999999999999999999", Some(i64::MAX)),
            ("-99999999999999999999", Some(i64::MIN)),
            ("", None),
            ("-", None),
            ("x", None),
        ] {
            assert_eq!(leading_integer(text), expected, "{text}");
        }
    }

    #[test]
    fn timeouts_without_a_number_are_zero() {
        for (text, expected) in [
            ("icmp_first=1", ("icmp_first", 1)),
            ("icmp_first:7", ("icmp_first", 7)),
            ("icmp_first(8)", ("icmp_first", 8)),
            ("icmp_first=3x,icmp_reply=4", ("icmp_first", 3)),
            (" icmp_first = 9", ("icmp_first", 0)),
            ("icmp_first", ("icmp_first", 0)),
            ("icmp_first=-1", ("icmp_first", -1)),
            ("icmp_first=99999999999", ("icmp_first", 1_215_752_191)),
            ("=1", ("", 1)),
        ] {
            assert_eq!(timeout(text).unwrap(), expected, "{text}");
        }
        assert!(timeout("").is_err());
    }

    tally::proptest! {
        /// No input makes the parsers panic.
        #[test]
        fn parsers_survive_anything(text in "[ -~é]{0,24}") {
            let _ = (leading_integer(&text), timeout(&text).is_ok());
        }
    }
}
