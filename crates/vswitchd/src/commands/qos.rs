//! `qos/`: queues of ports and their counters.

use super::{Shown, all_bridges, show};
use crate::devices::Devices;
use netdev::qos::{QosReport, USERSPACE_TYPES};
use ofproto::{OfPort, Ofproto};
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};
use xlate::PortOut;

/// Registers the commands. Open vSwitch has their text in JSON, too.
pub(crate) fn register(commands: &Commands, devices: &Arc<Devices>) {
    show(commands, devices, ("qos/show-types", "interface", 1..=1), |devices, args, _: OutputFormat| {
        let (_, port) = find(devices, args)?;
        Ok(Shown::Text(types(&port)))
    });
    show(commands, devices, ("qos/show", "interface", 1..=1), |devices, args, _: OutputFormat| {
        let (bridge, port) = find(devices, args)?;
        let name = &port.spec.name;
        Ok(Shown::Text(match bridge.qos(&port) {
            Some(report) => text(name, &report),
            None => format!("QoS not configured on {name}\n"),
        }))
    });
}

fn find(devices: &Devices, args: &[String]) -> Result<(Arc<Ofproto>, OfPort), String> {
    let name = args.first().map_or("", String::as_str);
    let on = |bridge: Arc<Ofproto>| bridge.port_named(name).map(|port| (bridge, port));
    all_bridges(devices).into_iter().find_map(on).ok_or_else(|| "no such interface".to_owned())
}

fn types(port: &OfPort) -> String {
    let types = match (&port.spec.device, port.spec.out) {
        (Some(device), PortOut::Device(_)) => device.kernel_qos().map_or(USERSPACE_TYPES, |kernel| kernel.types()),
        _ => &[],
    };
    if types.is_empty() {
        return format!("No QoS types supported for interface: {}\n", port.spec.name);
    }
    types.iter().map(|kind| format!("QoS type: {kind}\n")).collect()
}

fn text(name: &str, report: &QosReport) -> String {
    let mut out = format!("QoS: {name} {}\n", report.kind);
    let all = |out: &mut String, indent: &str, config: &[(&str, u64)]| {
        for (key, value) in config {
            out.push_str(&format!("{indent}{key}: {value}\n"));
        }
    };
    all(&mut out, "", &report.config);
    for (id, queue) in &report.queues {
        match id {
            0 => out.push_str("\nDefault:\n"),
            id => out.push_str(&format!("\nQueue {id}:\n")),
        }
        all(&mut out, "  ", &queue.config);
        if let Some(c) = queue.counters {
            let counters = [("tx_packets", c.tx_packets), ("tx_bytes", c.tx_bytes), ("tx_errors", c.tx_errors)];
            all(&mut out, "  ", &counters);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use netdev::qos::{QueueCounters, QueueReport};

    #[test]
    fn queues_are_shown_as_in_open_vswitch() {
        let counters = Some(QueueCounters { tx_packets: 2, tx_bytes: 176, tx_errors: 1 });
        let queue = |config| QueueReport { config, counters, ..QueueReport::default() };
        let queues =
            [(0, queue(vec![("burst", 12_512)])), (7, QueueReport { counters: None, ..queue(vec![("a", 1)]) })];
        let report =
            QosReport { kind: "linux-htb".into(), config: vec![("max-rate", 5)], queues: queues.into_iter().collect() };
        assert_eq!(
            text("p1", &report),
            "QoS: p1 linux-htb\nmax-rate: 5\n\nDefault:\n  burst: 12512\n  tx_packets: 2\n  tx_bytes: 176\n  tx_errors: 1\n\
             \nQueue 7:\n  a: 1\n"
        );
    }
}
