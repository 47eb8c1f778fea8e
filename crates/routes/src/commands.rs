//! The arguments, replies and errors of `ovs/route/*` and `tnl/neigh/*`, as Open vSwitch 4.0.0 has them.
//!
//! The caller checks the number of arguments ([`USAGES`]) and writes `OK` where a function returns nothing.

use std::net::IpAddr;

use crate::neighbours::{AGING_MAX_S, Neighbours};
use crate::prefix::{Prefix, parse_masked, width};
use crate::router::{Query, Router, UserRoute};
use crate::rules::{From, Rule, TABLE_MAIN, table_named};
use crate::table::{RouteRow, Shown};

/// The commands: name, usage, least and greatest number of arguments.
pub const USAGES: [(&str, &str, usize, usize); 16] = [
    ("ovs/route/add", "ip/plen dev [gw] [pkt_mark=mark] [src=src_ip] [table=id]", 2, 6),
    ("ovs/route/del", "ip/plen [pkt_mark=mark] [table=id]", 1, 3),
    ("ovs/route/lookup", "ip_addr [pkt_mark=mark] [src=src_ip]", 1, 3),
    ("ovs/route/rule/add", "[-6] [not] from=all|ip/plen [prio=num] table=local|main|default|id", 2, 5),
    ("ovs/route/rule/del", "[-6] [not] from=all|ip/plen [prio=num] table=local|main|default|id", 2, 5),
    ("ovs/route/rule/show", "[-6]", 0, 1),
    ("ovs/route/show", "[table=all|id]", 0, 1),
    ("tnl/arp/aging", "[SECS]", 0, 1),
    ("tnl/arp/flush", "", 0, 0),
    ("tnl/arp/set", "BRIDGE IP MAC", 3, 3),
    ("tnl/arp/show", "", 0, 0),
    ("tnl/neigh/aging", "[SECS]", 0, 1),
    ("tnl/neigh/flush", "", 0, 0),
    ("tnl/neigh/retrans_time", "[MSECS]", 0, 1),
    ("tnl/neigh/set", "BRIDGE IP MAC", 3, 3),
    ("tnl/neigh/show", "", 0, 0),
];

/// Why a command fails; the text is the reply.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum CommandError {
    #[error("Invalid 'ip/plen' parameter")]
    Prefix,
    #[error("Invalid pkt_mark, IP gateway or src_ip")]
    RouteOption,
    #[error("Invalid table format")]
    Table,
    #[error("Error while inserting route.")]
    NoSource,
    #[error("Invalid parameters")]
    DeletePrefix,
    #[error("Invalid pkt_mark or table")]
    DeleteOption,
    #[error("Table {0} not found")]
    DeleteTable(String),
    #[error("Not found")]
    NotFound,
    #[error("Invalid pkt_mark or src")]
    LookupOption,
    #[error("Table '{0}' not found")]
    NoTable(String),
    #[error("Invalid 'from' parameter")]
    From,
    #[error("Invalid from=ip/plen")]
    FromPrefix,
    #[error("Not enough arguments")]
    Missing,
    #[error("Invalid 'table' format")]
    RuleTable,
    #[error("Failed to delete router rule: -2 (Unknown error -2)")]
    NoRule,
    #[error("bad IP address")]
    NeighbourAddress,
    #[error("bad MAC address")]
    NeighbourMac,
    #[error("bad aging value")]
    Aging,
    #[error("aging value cannot be less than retrans_time")]
    AgingTooShort,
    #[error("bad retrans_time value")]
    RetransTime,
    #[error("retrans_time value cannot be greater than aging")]
    RetransTimeTooLong,
}

/// The decimal number that a text begins with, of 32 bits as C's conversions wrap it.
fn number(text: &str) -> Option<u32> {
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
    let digits = &digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())];
    if digits.is_empty() {
        return None;
    }
    let value = digits.bytes().fold(0u32, |n, digit| n.wrapping_mul(10).wrapping_add(u32::from(digit - b'0')));
    Some(if negative { value.wrapping_neg() } else { value })
}

/// An address, written in the family.
fn address(text: &str, ipv4: bool) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().filter(|address| address.is_ipv4() == ipv4)
}

/// `ovs/route/add ip/plen dev [gw] [pkt_mark=mark] [src=src_ip] [table=id]`.
pub fn route_add(router: &mut Router, args: &[&str]) -> Result<(), CommandError> {
    let [prefix, device, options @ ..] = args else { return Err(CommandError::RouteOption) };
    let prefix: Prefix = prefix.parse().map_err(|_| CommandError::Prefix)?;
    let ipv4 = prefix.address().is_ipv4();
    let device = (*device).to_owned();
    let mut route = UserRoute { table: TABLE_MAIN, prefix, mark: 0, device, gateway: None, source: None };
    for option in options {
        if let Some(mark) = option.strip_prefix("pkt_mark=").and_then(number) {
            route.mark = mark;
        } else if let Some(table) = option.strip_prefix("table=") {
            route.table = number(table).ok_or(CommandError::Table)?;
        } else if let Some(source) = option.strip_prefix("src=") {
            let source = address(source, ipv4).ok_or(CommandError::RouteOption)?;
            route.source = Some(source).filter(|source| !source.is_unspecified());
        } else {
            route.gateway = Some(address(option, ipv4).ok_or(CommandError::RouteOption)?);
        }
    }
    router.add_route(route).map_err(|_| CommandError::NoSource)
}

/// `ovs/route/del ip/plen [pkt_mark=mark] [table=id]`.
pub fn route_del(router: &mut Router, args: &[&str]) -> Result<(), CommandError> {
    let [prefix, options @ ..] = args else { return Err(CommandError::DeletePrefix) };
    let prefix: Prefix = prefix.parse().map_err(|_| CommandError::DeletePrefix)?;
    let (mut mark, mut table) = (0, TABLE_MAIN);
    for option in options {
        if let Some(number) = option.strip_prefix("pkt_mark=").and_then(number) {
            mark = number;
        } else if let Some(text) = option.strip_prefix("table=") {
            table = number(text).ok_or(CommandError::Table)?;
            if !router.has_table(table) {
                return Err(CommandError::DeleteTable((*option).to_owned()));
            }
        } else {
            return Err(CommandError::DeleteOption);
        }
    }
    if router.remove_route(table, prefix, mark) { Ok(()) } else { Err(CommandError::NotFound) }
}

/// `ovs/route/lookup ip_addr [pkt_mark=mark] [src=src_ip]`.
pub fn route_lookup(router: &Router, args: &[&str]) -> Result<String, CommandError> {
    let [destination, options @ ..] = args else { return Err(CommandError::Prefix) };
    // A prefix must be one address.
    let (destination, len) = parse_masked(destination).map_err(|_| CommandError::Prefix)?;
    if len != width(destination) {
        return Err(CommandError::Prefix);
    }
    let mut query = Query::to(destination.to_canonical());
    for option in options {
        if let Some(mark) = option.strip_prefix("pkt_mark=").and_then(number) {
            query.mark = mark;
        } else {
            let source = option.strip_prefix("src=").and_then(|source| address(source, destination.is_ipv4()));
            query.source = Some(source.ok_or(CommandError::LookupOption)?.to_canonical());
        }
    }
    let route = router.lookup(&query).route.ok_or(CommandError::NotFound)?;
    let gateway = route.gateway.map_or_else(|| "::".to_owned(), |gateway| gateway.to_string());
    Ok(format!("src {}\ngateway {gateway}\ndev {}\n", route.source, route.device))
}

/// `ovs/route/show [table=all|id]`: the rows, for [`crate::rows_to_text`] or JSON.
pub fn route_show(router: &Router, args: &[&str]) -> Result<(Shown, Vec<RouteRow>), CommandError> {
    let which = match args {
        [] => Shown::Standard,
        [arg, ..] => match arg.strip_prefix("table=").ok_or(CommandError::Table)? {
            "all" => Shown::All,
            table => match number(table).ok_or(CommandError::Table)? {
                0 => Shown::Standard,
                table => Shown::One(table),
            },
        },
    };
    let rows = router.rows(which).ok_or_else(|| CommandError::NoTable(args.concat()))?;
    Ok((which, rows))
}

/// The arguments of `ovs/route/rule/add` and `del`.
fn rule(mut args: &[&str]) -> Result<Rule, CommandError> {
    let mut take = |word: &str| match args {
        [first, rest @ ..] if *first == word => {
            args = rest;
            true
        }
        _ => false,
    };
    let (ipv4, invert) = (!take("-6"), take("not"));
    let [from, rest @ ..] = args else { return Err(CommandError::Missing) };
    let from = match from.strip_prefix("from=").ok_or(CommandError::From)? {
        "all" => From::All { ipv4 },
        text => {
            let (address, len) = parse_masked(text).map_err(|_| CommandError::FromPrefix)?;
            From::prefix(address, len)
        }
    };
    let [next, after @ ..] = rest else { return Err(CommandError::Missing) };
    let (priority, rest) = match next.strip_prefix("prio=").and_then(number) {
        Some(priority) => (priority, after),
        None => (0, rest),
    };
    let [table, ..] = rest else { return Err(CommandError::Missing) };
    let table = table.strip_prefix("table=").and_then(|table| table_named(table).or_else(|| number(table)));
    Ok(Rule { priority, from, invert, table: table.ok_or(CommandError::RuleTable)?, user: true })
}

/// `ovs/route/rule/add [-6] [not] from=all|ip/plen [prio=num] table=local|main|default|id`.
pub fn rule_add(router: &mut Router, args: &[&str]) -> Result<(), CommandError> {
    router.add_rule(rule(args)?);
    Ok(())
}

/// `ovs/route/rule/del`, with the arguments of `add`.
pub fn rule_del(router: &mut Router, args: &[&str]) -> Result<(), CommandError> {
    if router.remove_rule(&rule(args)?) { Ok(()) } else { Err(CommandError::NoRule) }
}

/// `ovs/route/rule/show [-6]`: the rules of a family, each a line or a JSON object.
pub fn rule_show(router: &Router, args: &[&str]) -> Vec<Rule> {
    let ipv4 = args.first() != Some(&"-6");
    router.rules().filter(|rule| rule.is_ipv4() == ipv4).copied().collect()
}

/// `tnl/neigh/set BRIDGE IP MAC`.
pub fn neigh_set(neighbours: &mut Neighbours, args: &[&str], now: base::Millis) -> Result<(), CommandError> {
    let [bridge, address, mac] = args else { return Err(CommandError::NeighbourAddress) };
    let address = address.parse::<IpAddr>().map_err(|_| CommandError::NeighbourAddress)?;
    let mac = mac.parse().map_err(|_| CommandError::NeighbourMac)?;
    neighbours.learn(bridge, address.to_canonical(), mac, now);
    Ok(())
}

/// `tnl/neigh/aging [SECS]`: the value, or `None` once it is set.
pub fn neigh_aging(
    neighbours: &mut Neighbours,
    args: &[&str],
    now: base::Millis,
) -> Result<Option<String>, CommandError> {
    let Some(text) = args.first() else { return Ok(Some(format!("{}", neighbours.aging_ms() / 1000))) };
    let seconds = leading(text).filter(|seconds| (1..=AGING_MAX_S).contains(seconds)).ok_or(CommandError::Aging)?;
    let set = neighbours.set_aging_ms(seconds * 1000, now);
    if set { Ok(None) } else { Err(CommandError::AgingTooShort) }
}

/// `tnl/neigh/retrans_time [MSECS]`: the value, or `None` once it is set.
pub fn neigh_retrans_time(neighbours: &mut Neighbours, args: &[&str]) -> Result<Option<String>, CommandError> {
    let Some(text) = args.first() else { return Ok(Some(format!("{}", neighbours.retrans_ms()))) };
    let ms = leading(text).ok_or(CommandError::RetransTime)?;
    let set = neighbours.set_retrans_ms(ms);
    if set { Ok(None) } else { Err(CommandError::RetransTimeTooLong) }
}

/// The number that a text begins with.
fn leading(text: &str) -> Option<u64> {
    text[..text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len())].parse().ok()
}

#[cfg(test)]
#[path = "commands_tests.rs"]
mod tests;
