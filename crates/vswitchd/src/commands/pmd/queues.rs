//! `dpif-netdev/pmd-rxq-show`: which packet thread asks which receive queues.

use super::{Header, Request, is_asked, named};
use crate::devices::Devices;
use serde_json::{Value, json};
use std::fmt::Write;

/// What a packet thread asks, in Open vSwitch's layout. How much of its time a queue takes is not measured.
pub(super) fn text(devices: &Devices, request: &Request<'_>) -> Result<String, String> {
    let datapaths = named(devices, request.dp)?;
    let mut out = "Displaying last 60 seconds pmd usage %\n".to_owned();
    for (kind, dp) in &datapaths {
        let ports = dp.datapath.ports();
        let header = Header { kind, several: datapaths.len() > 1 };
        for thread in (0..dp.datapath.thread_stats().len()).filter(|n| is_asked(request, *n)) {
            let _ = writeln!(out, "{}\n  isolated : false", header.text(thread));
            for (name, index, queue) in queues(&ports, thread) {
                let enabled = if queue.enabled { "(enabled) " } else { "(disabled)" };
                let _ = writeln!(out, "  port: {name:16}  queue-id: {index:2} {enabled}  pmd usage: NOT AVAIL");
            }
            out.push_str("  overhead: NOT AVAIL\n");
        }
    }
    Ok(out)
}

/// The same in JSON.
pub(super) fn json(devices: &Devices, request: &Request<'_>) -> Result<Value, String> {
    let mut threads = Vec::new();
    for (kind, dp) in named(devices, request.dp)? {
        let ports = dp.datapath.ports();
        for thread in (0..dp.datapath.thread_stats().len()).filter(|n| is_asked(request, *n)) {
            let queue = |(port, index, queue): (&str, usize, datapath::QueueInfo)| json!({"port": port, "queue_id": index, "enabled": queue.enabled});
            threads.push(json!({
                "datapath": super::dp_name(&kind),
                "core_id": thread,
                "queues": queues(&ports, thread).map(queue).collect::<Value>(),
            }));
        }
    }
    Ok(threads.into())
}

/// The queues of `thread`: port, index, and what else is known.
fn queues(ports: &[datapath::PortInfo], thread: usize) -> impl Iterator<Item = (&str, usize, datapath::QueueInfo)> {
    let of = |port: &datapath::PortInfo| port.queues.clone().into_iter().enumerate();
    let all = ports.iter().flat_map(move |port| of(port).map(|(index, queue)| (port.device.name(), index, queue)));
    all.filter(move |(.., queue)| queue.thread == thread)
}
