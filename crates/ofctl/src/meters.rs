//! Commands about meters.

use crate::error::{Result, fatal};
use crate::options::Context;
use crate::switch::{dump_stats, open_for_flow_mods, transact_noreply};
use crate::vconn::Vconn;
use openflow::message::Options;
use openflow::meter::{METER_ALL, parse_meter, parse_meter_id};
use openflow::multipart::StatsRequest;
use openflow::{Message, MeterCommand, MeterMod, Protocols};

/// Opens a connection in a version that supports meters.
fn open(c: &Context, switch: &str) -> Result<Vconn> {
    open_for_flow_mods(c, switch, Protocols::OF13_UP).map(|(conn, _)| conn)
}

fn change(c: &Context, switch: &str, meter_mod: MeterMod) -> Result {
    let mut conn = open(c, switch)?;
    transact_noreply(c, &mut conn, &Message::MeterMod(meter_mod), Options::default())
}

/// Adds a meter.
pub fn add_meter(c: &Context, a: &[String]) -> Result {
    change(c, &a[0], parse_meter(&a[1], MeterCommand::Add).map_err(fatal)?.meter_mod)
}

/// Replaces the bands of a meter.
pub fn mod_meter(c: &Context, a: &[String]) -> Result {
    change(c, &a[0], parse_meter(&a[1], MeterCommand::Modify).map_err(fatal)?.meter_mod)
}

/// Deletes a meter, or all.
pub fn del_meters(c: &Context, a: &[String]) -> Result {
    change(c, &a[0], MeterMod::delete(which(a)?))
}

/// Meters.
pub fn dump_meters(c: &Context, a: &[String]) -> Result {
    dump(c, a, StatsRequest::MeterConfig(which(a)?))
}

/// Counters of meters.
pub fn meter_stats(c: &Context, a: &[String]) -> Result {
    dump(c, a, StatsRequest::Meter(which(a)?))
}

/// Prints the limits and capabilities of meters.
pub fn meter_features(c: &Context, a: &[String]) -> Result {
    dump(c, a, StatsRequest::MeterFeatures)
}

fn dump(c: &Context, a: &[String], request: StatsRequest) -> Result {
    let mut conn = open(c, &a[0])?;
    dump_stats(c, &a[0], &mut conn, request)
}

/// The meter in the second argument; all if there is none.
fn which(a: &[String]) -> Result<u32> {
    match a.get(1).map(String::as_str) {
        None | Some("all") => Ok(METER_ALL),
        Some(text) => parse_meter_id(text).map_err(fatal),
    }
}
