//! Limits of the number of connections in zones.

use super::super::{act, show};
use super::{answer, invalid, not_permitted, open, options};
use crate::devices::Devices;
use crate::features::zone_limits;
use dpif::connections::ZoneLimit;
use openflow::ct_flush::{leading_u16, whole_number};
use serde_json::{Value, json};
use std::sync::Arc;
use unixctl::Commands;

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    let usage = "[dp] [default=L] [zone=N,limit=L]...";
    act(commands, devices, ("dpctl/ct-set-limits", usage, 1..=usize::MAX), |d, args| {
        let (dp, words) = open(d, options(args)?.1, usize::MAX)?;
        let (default, limits) = parse_limits(words).map_err(invalid)?;
        if dp.dpif.has_protected_zone_limits() {
            let problem = "the zone limits are set via database, use 'ovs-vsctl set-zone-limit <...>' instead.";
            return Err(not_permitted(problem));
        }
        if let Some(limit) = default {
            zone_limits::set_default(&*dp.dpif, limit);
        }
        limits.into_iter().for_each(|(zone, limit)| zone_limits::set(&*dp.dpif, zone, limit));
        Ok(String::new())
    });
    let usage = "[dp] [default] [zone=N1[,N2]...]";
    act(commands, devices, ("dpctl/ct-del-limits", usage, 1..=3), |d, args| {
        let (dp, words) = open(d, options(args)?.1, 3)?;
        let (first, mut rest) = words.split_first().ok_or_else(|| invalid("too few arguments"))?;
        let has_default = first == "default";
        if !has_default {
            rest = words;
        }
        let zones = match rest.first() {
            Some(text) => parse_zones(text).map_err(invalid)?,
            None => Vec::new(),
        };
        if dp.dpif.has_protected_zone_limits() {
            let problem = "the zone limits are set via database, use 'ovs-vsctl del-zone-limit <...>' instead.";
            return Err(not_permitted(problem));
        }
        if has_default {
            dp.dpif.set_default_zone_limit(0);
        }
        zones.into_iter().for_each(|zone| zone_limits::delete(&*dp.dpif, zone));
        Ok(String::new())
    });
    show(commands, devices, ("dpctl/ct-get-limits", "[dp] [zone=N1[,N2]...]", 0..=2), |d, args, format| {
        let (dp, words) = open(d, options(args)?.1, 2)?;
        let zones = words.first().map(|text| parse_zones(text)).transpose().map_err(invalid)?;
        let default = dp.dpif.default_zone_limit();
        let limits = match zones {
            Some(zones) => zones.into_iter().map(|zone| dp.dpif.zone_limit(zone)).collect(),
            None => dp.dpif.zone_limits(),
        };
        Ok(answer(format, || text(default, &limits), || limits_json(default, &limits)))
    });
}

/// The default limit, and limits with their zones.
type Limits = (Option<u32>, Vec<(u16, u32)>);

/// Parses `[default=L] [zone=N,limit=L]...`, of which at least one word must be there.
fn parse_limits(words: &[String]) -> Result<Limits, String> {
    let (first, mut rest) = words.split_first().ok_or("too few arguments")?;
    let default = match first.strip_prefix("default=") {
        Some(text) => Some(whole_number(text, u32::MAX.into()).ok_or("invalid default limit")? as u32),
        None => {
            rest = words;
            None
        }
    };
    Ok((default, rest.iter().map(|text| parse_limit(text)).collect::<Result<_, _>>()?))
}

/// Parses `zone=N,limit=L`.
fn parse_limit(text: &str) -> Result<(u16, u32), String> {
    let (mut zone, mut limit) = (None, None);
    let mut rest = text;
    while let Some((key, value)) = flow::text::next_key_value(&mut rest) {
        let value = value.filter(|value| !value.is_empty()).ok_or_else(|| format!("field {key} missing value"))?;
        let number = |max: u64| whole_number(value, max).ok_or_else(|| format!("failed to parse field {key}"));
        match key {
            "zone" => zone = Some(number(u16::MAX.into())? as u16),
            "limit" => limit = Some(number(u32::MAX.into())? as u32),
            _ => return Err(format!("invalid zone limit field: {key}")),
        }
    }
    zone.zip(limit).ok_or_else(|| "failed to parse zone limit".to_owned())
}

/// Parses `zone=N1,N2,...`. As in Open vSwitch, only the digits in front and the low bits of a number count.
fn parse_zones(text: &str) -> Result<Vec<u16>, String> {
    let list = text.strip_prefix("zone=").ok_or_else(|| format!("invalid argument {text}"))?;
    let zones = list.split(',').filter(|zone| !zone.is_empty());
    zones.map(|zone| leading_u16(zone).ok_or_else(|| "invalid zone".to_owned())).collect()
}

fn text(default: u32, limits: &[ZoneLimit]) -> String {
    let line = |of: &ZoneLimit| format!("zone={},limit={},count={}\n", of.zone, of.limit, of.count);
    format!("default limit={default}\n") + &limits.iter().map(line).collect::<String>()
}

fn limits_json(default: u32, limits: &[ZoneLimit]) -> Value {
    let zone = |of: &ZoneLimit| json!({"zone": of.zone, "limit": of.limit, "count": of.count});
    json!({"default": default, "zones": limits.iter().map(zone).collect::<Value>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<Limits, String> {
        parse_limits(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn limits_of_zones() {
        assert_eq!(parsed(&["default=5"]), Ok((Some(5), vec![])));
        assert_eq!(
            parsed(&["default=0x10", "zone=1,limit=3", "limit=+4,zone=010", "zone(4)limit(6)", "zone:5 limit:7"]),
            Ok((Some(16), vec![(1, 3), (8, 4), (4, 6), (5, 7)]))
        );
        assert_eq!(parsed(&["zone=1,limit=2,zone=3"]), Ok((None, vec![(3, 2)])));
        for (words, error) in [
            (&[][..], "too few arguments"),
            (&[""], "failed to parse zone limit"),
            (&["zone=3"], "failed to parse zone limit"),
            (&["zone=3,limit="], "field limit missing value"),
            (&["zone=3,limit=4294967296"], "failed to parse field limit"),
            (&["zone=65536,limit=1"], "failed to parse field zone"),
            (&["zone=8,foo=9"], "invalid zone limit field: foo"),
            (&["zone=8,limit=9", "default=1"], "invalid zone limit field: default"),
            (&["default="], "invalid default limit"),
            (&["default=5x"], "invalid default limit"),
            (&["default=-1"], "invalid default limit"),
        ] {
            assert_eq!(parsed(words), Err(error.to_owned()), "{words:?}");
        }
    }

    #[test]
    fn lists_of_zones() {
        assert_eq!(parse_zones("zone=1,,70000,3x,-1"), Ok(vec![1, 4464, 3, 65535]));
        assert_eq!(parse_zones("zone="), Ok(vec![]));
        assert_eq!(parse_zones("zone=1,x"), Err("invalid zone".to_owned()));
        assert_eq!(parse_zones("x"), Err("invalid argument x".to_owned()));
    }

    #[test]
    fn shown_limits() {
        let limits = [ZoneLimit { zone: 1, limit: 3, count: 2 }];
        assert_eq!(text(7, &limits), "default limit=7\nzone=1,limit=3,count=2\n");
        assert_eq!(limits_json(7, &limits)["zones"][0]["count"], 2);
    }
}
