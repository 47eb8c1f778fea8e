//! Prints meters.

use super::bit_names;
use crate::meter::{
    Band, BandKind, METER_ALL, METER_CONTROLLER, METER_MAX, METER_SLOWPATH, MeterCommand, MeterConfig, MeterFeatures,
    MeterMod, MeterStats, flag,
};
use std::fmt::Write;

/// Appends `meter=1`, with `between` as the separator.
pub(super) fn meter_id(id: u32, between: char, out: &mut String) {
    put!(out, "meter{between}");
    match id {
        METER_ALL => out.push_str("all"),
        METER_SLOWPATH => out.push_str("slowpath"),
        METER_CONTROLLER => out.push_str("controller"),
        0..=METER_MAX => put!(out, "{id}"),
        _ => out.push_str("unknown"),
    }
}

const FLAGS: [(u32, &str); 4] = [
    (flag::KBPS as u32, "kbps"),
    (flag::PKTPS as u32, "pktps"),
    (flag::BURST as u32, "burst"),
    (flag::STATS as u32, "stats"),
];

fn config(meter: &MeterConfig, out: &mut String) {
    meter_id(meter.meter_id, '=', out);
    out.push(' ');
    for (bit, name) in FLAGS {
        if u32::from(meter.flags) & bit != 0 {
            put!(out, "{name} ");
        }
    }
    let unknown = meter.flags & !(flag::KBPS | flag::PKTPS | flag::BURST | flag::STATS);
    if unknown != 0 {
        put!(out, "flags:0x{unknown:x} ");
    }
    out.push_str("bands=");
    for band in &meter.bands {
        self::band(band, meter.flags, out);
    }
    out.push('\n');
}

fn band(band: &Band, flags: u16, out: &mut String) {
    let name = if band.kind == BandKind::Drop { "drop" } else { "dscp_remark" };
    put!(out, "\ntype={name} rate={}", band.rate);
    if flags & flag::BURST != 0 {
        put!(out, " burst_size={}", band.burst_size);
    }
    if let BandKind::DscpRemark { prec_level } = band.kind {
        put!(out, " prec_level={prec_level}");
    }
}

pub(super) fn meter_mod(m: &MeterMod, out: &mut String) {
    out.push_str(match m.command {
        MeterCommand::Add => " ADD ",
        MeterCommand::Modify => " MOD ",
        MeterCommand::Delete => " DEL ",
    });
    config(&m.meter, out);
}

pub(super) fn meter_configs(all: &[MeterConfig], out: &mut String) {
    for meter in all {
        out.push('\n');
        config(meter, out);
    }
}

pub(super) fn meter_stats(all: &[MeterStats], out: &mut String) {
    for meter in all {
        out.push('\n');
        meter_id(meter.meter_id, ':', out);
        put!(out, " flow_count:{}", meter.flow_count);
        put!(out, " packet_in_count:{} byte_in_count:{}", meter.packet_in_count, meter.byte_in_count);
        out.push_str(" duration:");
        super::duration(meter.duration_sec, meter.duration_nsec, out);
        out.push_str("s bands:\n");
        for (i, (packets, bytes)) in meter.bands.iter().enumerate() {
            put!(out, "{i}: packet_count:{packets} byte_count:{bytes}\n");
        }
    }
}

pub(super) fn meter_features(f: &MeterFeatures, out: &mut String) {
    put!(out, "\nmax_meter:{} max_bands:{} max_color:{}\n", f.max_meters, f.max_bands, f.max_color);
    out.push_str("band_types: ");
    bit_names(f.band_types, &[(1 << 1, "drop"), (1 << 2, "dscp_remark")], out);
    out.push_str("\ncapabilities: ");
    bit_names(f.capabilities, &FLAGS, out);
    out.push('\n');
    if let Some(features) = f.features {
        out.push_str("features: ");
        bit_names(features, &[(1, "action_set"), (2, "any_position"), (4, "multi_list")], out);
        out.push('\n');
    }
}
