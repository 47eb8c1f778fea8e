//! `upcall/` and `revalidator/`: what goes up, which flows come of it, and the passes over them.

use super::{dp_name, show, show_blocking};
use crate::devices::{Devices, Dp};
use ofproto::Extent;
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use unixctl::{Commands, OutputFormat};

/// An operation on each datapath.
type ToEach = fn(&Dp);

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    show(commands, devices, ("upcall/show", "", 0..=0), |d, _, format| {
        Ok(match format {
            OutputFormat::Text => {
                let terse = d.terse_dumps.load(Relaxed);
                d.datapaths().iter().map(|(kind, dp)| text(&dp_name(kind), dp, terse)).collect::<String>().into()
            }
            OutputFormat::Json => {
                let terse = d.terse_dumps.load(Relaxed);
                let all: Map<_, _> = d.datapaths().iter().map(|(kind, dp)| (dp_name(kind), json(dp, terse))).collect();
                Value::from(all).into()
            }
        })
    });
    for (name, on, done) in [
        ("upcall/disable-megaflows", false, "megaflows disabled"),
        ("upcall/enable-megaflows", true, "megaflows enabled"),
    ] {
        show_blocking(commands, devices, (name, "", 0..=0), move |d, _, _| {
            d.datapaths().iter().for_each(|(_, dp)| dp.switch.set_megaflows(on));
            Ok(done.to_owned().into())
        });
    }
    // A datapath in this process has no dumps that could be terse: `upcall/show` shows the choice.
    for (name, on, done) in [
        ("upcall/disable-ufid", false, "Datapath dumping tersely using UFID disabled"),
        ("upcall/enable-ufid", true, "Datapath dumping tersely using UFID enabled for supported datapaths"),
    ] {
        show(commands, devices, (name, "", 0..=0), move |d, _, _| {
            d.terse_dumps.store(on, Relaxed);
            Ok(done.to_owned().into())
        });
    }
    show(commands, devices, ("upcall/set-flow-limit", "flow-limit-number", 1..=1), |d, args, format| {
        let text = args.first().map_or("", |a| a);
        let limit = u64::from(cli::leading_integer(text, 10) as u32);
        for (_, dp) in d.datapaths() {
            dp.switch.set_flow_limit(limit);
        }
        Ok(match format {
            OutputFormat::Text => format!("set flow_limit to {limit}").into(),
            OutputFormat::Json => json!({"flow_limit": limit}).into(),
        })
    });
    let commands_to_each: [(&str, ToEach); 4] = [
        ("revalidator/purge", |dp| dp.switch.purge()),
        ("revalidator/wait", |dp| {
            dp.dpif.settle();
            _ = dp.switch.revalidate();
        }),
        ("revalidator/pause", |dp| dp.switch.pause_revalidators()),
        ("revalidator/resume", |dp| dp.switch.resume_revalidators()),
    ];
    for (name, what) in commands_to_each {
        show_blocking(commands, devices, (name, "", 0..=0), move |d, _, format| {
            d.datapaths().iter().for_each(|(_, dp)| what(dp));
            Ok(match format {
                OutputFormat::Text => String::new().into(),
                OutputFormat::Json => brief(d).into(),
            })
        });
    }
    show_blocking(commands, devices, ("revalidator/check", "", 0..=0), |d, _, format| {
        let fixed_up: usize = d.datapaths().iter().map(|(_, dp)| dp.switch.pass(Extent::Full).fixed_up).sum();
        Ok(match format {
            OutputFormat::Text => format!("{fixed_up} flows were wrong").into(),
            OutputFormat::Json => json!({"wrong": fixed_up, "datapaths": brief(d)}).into(),
        })
    });
}

/// The state of each datapath's revalidator after a command.
fn brief(devices: &Devices) -> Value {
    let one = |(kind, dp): &(String, Dp)| {
        let s = dp.switch.revalidator_status();
        (dp_name(kind), json!({"flows": s.flows, "paused": s.paused}))
    };
    devices.datapaths().iter().map(one).collect::<Map<_, _>>().into()
}

fn text(name: &str, dp: &Dp, terse_dumps: bool) -> String {
    let s = dp.switch.revalidator_status();
    let mut out = format!("{name}:\n");
    let _ = writeln!(
        out,
        "  flows         : (current {}) (avg {}) (max {}) (limit {})",
        s.flows, s.average, s.maximum, s.limit
    );
    let _ = writeln!(out, "  dump duration : {}ms", s.dump_duration_ms);
    let _ = writeln!(out, "  ufid enabled : {terse_dumps}");
    if s.paused {
        let _ = writeln!(out, "  paused");
    }
    if !s.megaflows {
        let _ = writeln!(out, "  megaflows disabled");
    }
    out.push('\n');
    for (i, keys) in s.keys.iter().enumerate() {
        let _ = writeln!(out, "  {i}: (keys {keys})");
    }
    let _ = writeln!(
        out,
        "\n  passes        : {} of statistics, {} over all flows, which found {} wrong",
        s.rounds, s.full_passes, s.fixed_up
    );
    let _ = writeln!(
        out,
        "  after changes : {} translated again, {} changed, {} removed, {} widened",
        s.translated, s.changed, s.removed, s.widened
    );
    let _ = writeln!(out, "  self-checks   : {}, {} failed", s.self_checks, s.self_check_failed);
    let upcalls = dp.dpif.upcall_stats();
    for (port, p) in &upcalls.ports {
        let name = super::port_name(dp, *port).unwrap_or_else(|| port.to_string());
        let _ = writeln!(
            out,
            "  port {name}: {} queued, {} served, {} waiting (max {}), {} dropped",
            p.queued, p.served, p.waiting, p.waiting_max, p.dropped
        );
    }
    let handlers = upcalls.handlers.iter().enumerate().map(|(i, h)| (format!("handler {i}"), h));
    for (who, h) in handlers.chain([("packet threads".to_owned(), &upcalls.here)]) {
        let _ = writeln!(
            out,
            "  {who}: {} packets in {} batches, busy for {} us, {} panics",
            h.packets,
            h.batches,
            h.busy_ns / 1000,
            h.panics
        );
    }
    out
}

fn json(dp: &Dp, terse_dumps: bool) -> Value {
    let s = dp.switch.revalidator_status();
    let upcalls = dp.dpif.upcall_stats();
    let port = |(port, p): &(base::DpPort, dpif::PortUpcalls)| {
        json!({
            "port_no": port.0,
            "name": super::port_name(dp, *port),
            "queued": p.queued,
            "served": p.served,
            "waiting": p.waiting,
            "waiting_max": p.waiting_max,
            "dropped": p.dropped,
        })
    };
    let handler = |h: &dpif::HandlerStats| json!({"packets": h.packets, "batches": h.batches, "busy_ns": h.busy_ns, "panics": h.panics});
    json!({
        "flows": {"current": s.flows, "avg": s.average, "max": s.maximum, "limit": s.limit},
        "dump_duration_ms": s.dump_duration_ms,
        "ufid": terse_dumps,
        "paused": s.paused,
        "megaflows": s.megaflows,
        "keys": s.keys,
        "passes": {"statistics": s.rounds, "full": s.full_passes, "fixed_up": s.fixed_up},
        "changes": {"translated": s.translated, "changed": s.changed, "removed": s.removed, "widened": s.widened},
        "self_checks": {"made": s.self_checks, "failed": s.self_check_failed},
        "memory": {"dependency_sets": s.shared_translations, "bytes": dp.switch.remembered_bytes()},
        "ports": upcalls.ports.iter().map(port).collect::<Value>(),
        "handlers": upcalls.handlers.iter().map(handler).collect::<Value>(),
        "packet_threads": handler(&upcalls.here),
    })
}
