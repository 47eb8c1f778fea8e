//! A switch's replies as JSON (`--format json`), with the content of the text output. Matches, actions and port names
//! are strings in the syntax of flows; unknown values are null.

use crate::error::{Result, fatal};
use crate::names::Names;
use crate::options::{Context, Format};
use crate::switch::Out;
use base::PortNo;
use flow::text::{NoNames, PortNames, format_port, match_to_string};
use openflow::flow_msg::FlowStats;
use openflow::group::{BucketStats, GroupDesc, GroupFeatures, GroupStats};
use openflow::ipfix::IpfixStats;
use openflow::meter::{Band, BandKind, MeterConfig, MeterStats, flag};
use openflow::multipart::{AggregateStats, StatsReply};
use openflow::port::{PortDesc, PortStats};
use openflow::queue::{QueueConfig, QueueStats};
use openflow::switch::{Features, SwitchConfig};
use openflow::table::{ActionFeatures, FieldSet, FlowFeatures, TableDesc, TableFeatures, TableStats, table_config};
use openflow::tlv::{TlvMap, TlvTableReply};
use openflow::{Bucket, Message, Version, actions_to_string};
use serde_json::{Value, json};

/// Prints a document.
pub fn put(c: &Context, value: &Value) {
    let text = if c.format == Format::PrettyJson { cli::json::pretty(value) } else { cli::json::compact(value) };
    Out::default().put(&format!("{text}\n"));
}

/// Determines how ports and tables are named.
struct Naming<'a> {
    ports: &'a dyn PortNames,
    version: Version,
}

/// A reply, or a part of one, as JSON. Fails if the reply has no JSON form.
pub fn of(message: &Message, version: Version, names: Option<&Names>) -> Result<Value> {
    let ports: &dyn PortNames = names.map_or(&NoNames, |names| names);
    let naming = Naming { ports, version };
    let n = &naming;
    Ok(match message {
        Message::FeaturesReply(features) => switch_features(features),
        Message::GetConfigReply(config) => switch_config(config),
        Message::StatsReply { body, .. } => match body {
            StatsReply::Desc(desc) => json!({
                "manufacturer": desc.manufacturer,
                "hardware": desc.hardware,
                "software": desc.software,
                "serial_number": desc.serial_number,
                "datapath": desc.datapath,
            }),
            StatsReply::Flow(flows) | StatsReply::NxFlow(flows) => flows.iter().map(|f| n.flow(f)).collect(),
            StatsReply::Aggregate(sums) | StatsReply::NxAggregate(sums) => sums_of_flows(sums),
            StatsReply::Table(tables) => tables.iter().map(table_stats).collect(),
            StatsReply::Port(ports) => ports.iter().map(|p| n.port_stats(p)).collect(),
            StatsReply::PortDesc(ports) => ports.iter().map(port_desc).collect(),
            StatsReply::Queue(queues) => queues.iter().map(|q| n.queue(q)).collect(),
            StatsReply::Group(groups) => groups.iter().map(group_stats).collect(),
            StatsReply::GroupDesc(groups) => groups.iter().map(|g| n.group(g)).collect(),
            StatsReply::GroupFeatures(features) => group_features(features),
            StatsReply::Meter(meters) => meters.iter().map(meter_stats).collect(),
            StatsReply::MeterConfig(meters) => meters.iter().map(meter).collect(),
            StatsReply::MeterFeatures(features) => json!({
                "max_meters": features.max_meters,
                "max_bands": features.max_bands,
                "max_color": features.max_color,
                "band_types": features.band_types,
                "capabilities": features.capabilities,
            }),
            StatsReply::TableDesc(tables) => tables.iter().map(table_desc).collect(),
            StatsReply::TableFeatures(tables) => tables.iter().map(table_features).collect(),
            StatsReply::QueueDesc(queues) => queues.iter().map(|q| n.queue_config(q)).collect(),
            StatsReply::IpfixBridge(stats) => ipfix(stats),
            StatsReply::IpfixFlow(sets) => sets.iter().map(ipfix).collect(),
            // No command requests these.
            StatsReply::FlowCounts(_)
            | StatsReply::FlowMonitor(_)
            | StatsReply::ControllerStatus(_)
            | StatsReply::BundleFeatures(_) => return Err(no_form()),
        },
        Message::QueueGetConfigReply(reply) => reply.queues.iter().map(|q| n.queue_config(q)).collect(),
        Message::TlvTableReply(reply) => tlv_table(reply),
        Message::Error(_) => return Err(fatal("the switch answered with an error; leave --format out to see it")),
        _ => return Err(no_form()),
    })
}

/// Statistics of IPFIX exporters.
fn ipfix(stats: &IpfixStats) -> Value {
    json!({
        "collector_set_id": stats.collector_set_id,
        "flows": stats.flows,
        "current_flows": stats.current_flows,
        "packets": stats.packets,
        "ipv4_packets": stats.ipv4,
        "ipv6_packets": stats.ipv6,
        "errors": stats.errors,
        "ipv4_errors": stats.ipv4_errors,
        "ipv6_errors": stats.ipv6_errors,
        "messages": stats.sent,
        "message_errors": stats.send_errors,
    })
}

/// The error of commands without JSON output.
pub fn no_form() -> crate::error::Exit {
    fatal("this command has no output as JSON")
}

/// Concatenates lists; of other values the last one wins.
pub fn append(whole: &mut Option<Value>, part: Value) {
    match (whole, part) {
        (Some(Value::Array(whole)), Value::Array(part)) => whole.extend(part),
        (whole, part) => *whole = Some(part),
    }
}

/// A counter; all ones mean unknown.
fn count(n: u64) -> Value {
    if n == u64::MAX { Value::Null } else { n.into() }
}

/// Seconds.
fn seconds((sec, nsec): (u32, u32)) -> Value {
    if sec == u32::MAX { Value::Null } else { (f64::from(sec) + f64::from(nsec) / 1e9).into() }
}

impl Naming<'_> {
    fn port_name(&self, port: PortNo) -> String {
        let mut out = String::new();
        format_port(port, self.ports, &mut out);
        out
    }

    /// One flow.
    fn flow(&self, f: &FlowStats) -> Value {
        json!({
            "table": f.table_id,
            "priority": f.priority,
            "match": match_to_string(&f.matching, self.ports),
            "actions": actions_to_string(&f.actions, self.ports, self.version),
            "cookie": f.cookie,
            "duration": seconds((f.duration_sec, f.duration_nsec)),
            "n_packets": count(f.packet_count),
            "n_bytes": count(f.byte_count),
            "idle_timeout": f.idle_timeout,
            "hard_timeout": f.hard_timeout,
            "importance": f.importance,
            "idle_age": f.idle_age,
            "hard_age": f.hard_age,
            "send_flow_rem": f.flags.send_flow_rem,
        })
    }

    fn port_stats(&self, p: &PortStats) -> Value {
        let mut value = json!({
            "port": self.port_name(p.port_no),
            "rx_packets": count(p.rx_packets),
            "tx_packets": count(p.tx_packets),
            "rx_bytes": count(p.rx_bytes),
            "tx_bytes": count(p.tx_bytes),
            "rx_dropped": count(p.rx_dropped),
            "tx_dropped": count(p.tx_dropped),
            "rx_errors": count(p.rx_errors),
            "tx_errors": count(p.tx_errors),
            "rx_frame_err": count(p.rx_frame_err),
            "rx_over_err": count(p.rx_over_err),
            "rx_crc_err": count(p.rx_crc_err),
            "collisions": count(p.collisions),
            "duration": p.duration.map(seconds),
        });
        if let (Value::Object(members), false) = (&mut value, p.custom.is_empty()) {
            let custom = p.custom.iter().map(|(name, n)| (name.clone(), count(*n))).collect::<serde_json::Map<_, _>>();
            members.insert("custom".into(), custom.into());
        }
        value
    }

    fn queue(&self, q: &QueueStats) -> Value {
        json!({
            "port": self.port_name(q.port_no),
            "queue": q.queue_id,
            "tx_bytes": count(q.tx_bytes),
            "tx_packets": count(q.tx_packets),
            "tx_errors": count(q.tx_errors),
            "duration": q.duration.map(seconds),
        })
    }

    /// Rates are in tenths of a percent.
    fn queue_config(&self, q: &QueueConfig) -> Value {
        json!({
            "port": self.port_name(q.port_no),
            "queue": q.queue_id,
            "min_rate": q.min_rate,
            "max_rate": q.max_rate,
        })
    }

    fn group(&self, g: &GroupDesc) -> Value {
        let bucket = |b: &Bucket| {
            json!({
                "bucket_id": b.bucket_id,
                "weight": b.weight,
                "watch_port": if b.watch_port == PortNo::ANY { Value::Null } else { self.port_name(b.watch_port).into() },
                "watch_group": if b.watch_group == u32::MAX { Value::Null } else { b.watch_group.into() },
                "actions": actions_to_string(&b.actions, self.ports, self.version),
            })
        };
        json!({
            "group_id": g.group_id,
            "type": g.kind.name(),
            "buckets": g.buckets.iter().map(bucket).collect::<Vec<_>>(),
        })
    }
}

fn sums_of_flows(sums: &AggregateStats) -> Value {
    json!({
        "packet_count": count(sums.packet_count),
        "byte_count": count(sums.byte_count),
        "flow_count": sums.flow_count,
    })
}

fn table_stats(t: &TableStats) -> Value {
    json!({
        "table": t.table_id,
        "name": if t.name.is_empty() { Value::Null } else { t.name.as_str().into() },
        "active": t.active_count,
        "lookup": count(t.lookup_count),
        "matched": count(t.matched_count),
    })
}

fn port_desc(p: &PortDesc) -> Value {
    json!({
        "port": p.port_no.0,
        "name": p.name,
        "addr": p.hw_addr.to_string(),
        "config": p.config,
        "state": p.state,
        "curr_speed": p.curr_speed,
        "max_speed": p.max_speed,
    })
}

fn group_stats(g: &GroupStats) -> Value {
    let bucket = |b: &BucketStats| json!({ "packet_count": count(b.packet_count), "byte_count": count(b.byte_count) });
    json!({
        "group_id": g.group_id,
        "ref_count": g.ref_count,
        "packet_count": count(g.packet_count),
        "byte_count": count(g.byte_count),
        "duration": seconds((g.duration_sec, g.duration_nsec)),
        "buckets": g.buckets.iter().map(bucket).collect::<Vec<_>>(),
    })
}

fn group_features(f: &GroupFeatures) -> Value {
    let kinds = ["all", "select", "indirect", "fast_failover"];
    let of = |(i, name): (usize, &str)| {
        let value = json!({ "max_groups": f.max_groups.get(i), "actions": f.actions.get(i) });
        (f.types & 1 << i != 0).then(|| (name.to_owned(), value))
    };
    let types: serde_json::Map<_, _> = kinds.into_iter().enumerate().filter_map(of).collect();
    json!({ "capabilities": f.capabilities, "types": types })
}

/// Rates are in kilobits or packets per second, bursts in kilobits or packets.
fn meter(m: &MeterConfig) -> Value {
    let band = |band: &Band| {
        let (kind, prec_level) = match band.kind {
            BandKind::Drop => ("drop", None),
            BandKind::DscpRemark { prec_level } => ("dscp_remark", Some(prec_level)),
        };
        let burst = (m.flags & flag::BURST != 0).then_some(band.burst_size);
        json!({ "type": kind, "prec_level": prec_level, "rate": band.rate, "burst_size": burst })
    };
    json!({
        "meter_id": m.meter_id,
        "unit": if m.flags & flag::PKTPS == 0 { "kbps" } else { "pktps" },
        "stats": m.flags & flag::STATS != 0,
        "bands": m.bands.iter().map(band).collect::<Vec<_>>(),
    })
}

fn meter_stats(m: &MeterStats) -> Value {
    let band = |(packets, bytes): &(u64, u64)| json!({ "packet_count": count(*packets), "byte_count": count(*bytes) });
    json!({
        "meter_id": m.meter_id,
        "flow_count": m.flow_count,
        "packet_in_count": count(m.packet_in_count),
        "byte_in_count": count(m.byte_in_count),
        "duration": seconds((m.duration_sec, m.duration_nsec)),
        "bands": m.bands.iter().map(band).collect::<Vec<_>>(),
    })
}

fn table_desc(t: &TableDesc) -> Value {
    let vacancy = t.properties.vacancy.map(|v| json!({ "down": v.down, "up": v.up, "current": v.current }));
    json!({
        "table": t.table_id,
        "eviction": t.config & table_config::EVICTION != 0,
        "eviction_flags": t.properties.eviction_flags,
        "vacancy_events": t.config & table_config::VACANCY_EVENTS != 0,
        "vacancy": vacancy,
    })
}

fn table_features(t: &TableFeatures) -> Value {
    let names = |set: &FieldSet| set.iter().map(|field| field.name).collect::<Vec<_>>();
    let actions = |a: &ActionFeatures| json!({ "actions": a.actions, "set_fields": names(&a.set_fields) });
    let flows = |f: &FlowFeatures| {
        let bit = |table: &u8| f.next_tables[usize::from(table / 64)] & 1 << (table % 64) != 0;
        json!({
            "instructions": f.instructions,
            "next_tables": (0..=u8::MAX).filter(bit).collect::<Vec<_>>(),
            "write": actions(&f.write),
            "apply": actions(&f.apply),
        })
    };
    json!({
        "table": t.table_id,
        "name": t.name,
        "metadata_match": t.metadata_match,
        "metadata_write": t.metadata_write,
        "config": t.config,
        "max_entries": t.max_entries,
        "flows": flows(&t.nonmiss),
        "miss": flows(&t.miss),
        "matching": names(&t.matching),
        "wildcards": names(&t.wildcard),
    })
}

fn tlv_table(reply: &TlvTableReply) -> Value {
    let map = |m: &TlvMap| json!({ "field": format!("tun_metadata{}", m.index), "class": m.class, "type": m.ty, "len": m.len });
    json!({
        "max_option_space": reply.max_option_space,
        "max_fields": reply.max_fields,
        "maps": reply.maps.iter().map(map).collect::<Vec<_>>(),
    })
}

fn switch_config(config: &SwitchConfig) -> Value {
    json!({
        "frags": openflow::print::frag_name(config.frag),
        "miss_send_len": config.miss_send_len,
        "invalid_ttl_to_controller": config.invalid_ttl_to_controller,
    })
}

fn switch_features(f: &Features) -> Value {
    json!({
        "dpid": format!("{:016x}", f.datapath_id),
        "n_tables": f.n_tables,
        "n_buffers": f.n_buffers,
        "auxiliary_id": f.auxiliary_id,
        "capabilities": f.capabilities,
        "ports": f.ports.iter().map(port_desc).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_are_null() {
        let reply =
            Message::StatsReply { more: false, body: StatsReply::Port(vec![PortStats::unknown(PortNo::LOCAL)]) };
        let value = of(&reply, Version::V10, None).expect("there is a form");
        assert_eq!((&value[0]["port"], &value[0]["rx_packets"]), (&json!("LOCAL"), &Value::Null));
        let mut whole = None;
        append(&mut whole, value.clone());
        append(&mut whole, value);
        assert_eq!(whole.and_then(|v| v.as_array().map(Vec::len)), Some(2));
        let bands = vec![Band { kind: BandKind::Drop, rate: 7, burst_size: 9 }];
        let meters = vec![MeterConfig { meter_id: 1, flags: flag::PKTPS, bands }];
        let reply = Message::StatsReply { more: false, body: StatsReply::MeterConfig(meters) };
        let value = of(&reply, Version::V13, None).expect("there is a form");
        assert_eq!((&value[0]["unit"], &value[0]["bands"][0]["burst_size"]), (&json!("pktps"), &Value::Null));
        assert!(of(&Message::BarrierReply, Version::V10, None).is_err());
    }
}
