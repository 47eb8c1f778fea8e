//! Queues and shaping of what leaves an interface (Port:qos with its rows of the tables QoS and Queue), and policing of what
//! comes in (Interface:ingress_policing_rate and the columns beside it).

use crate::feature::{Event, Feature};
use crate::interface::Behind;
use crate::levels::{InterfaceLevel, InterfaceRows, InterfaceTarget};
use crate::reader::{Config, Reader, owned};
use netdev::qos::spec::QUEUES_MAX;
use netdev::qos::{Policing, QosSpec};
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::{self as db, interface, port, qos, queue};
use ovsdb_client::typed::{AnyColumn, Column, Row};
use std::collections::BTreeMap;

/// Keys of other_config that are numbers.
const NUMBERS: &[&str] = &[
    "max-rate", "min-rate", "burst", "priority", "cir", "cbs", "eir", "ebs", "perturb", "quantum", "latency", "limit",
    "loss", "jitter", "target", "interval", "flows",
];

/// Port:qos.
#[derive(Debug, Default)]
pub struct Qos;

/// What rows say of the queues of a port.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct QueueSettings {
    /// Type and rates; `None` without QoS.
    pub spec: Option<QosSpec>,
    /// The DSCP of packets by queue (Queue:dscp).
    pub marks: BTreeMap<u32, u8>,
}

impl Feature for Qos {
    type Level = InterfaceLevel;
    type Spec = QueueSettings;
    const NAME: &'static str = "qos";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        interface { NAME }
        port { NAME, QOS }
        qos { TYPE, OTHER_CONFIG, QUEUES }
        queue { DSCP, OTHER_CONFIG }
    };
    const FOLLOWS: &'static [Event] = &[Event::Device];

    fn read(reader: &Reader<'_>, rows: InterfaceRows<'_>) -> QueueSettings {
        let port = reader.find(rows.port);
        let row = port.and_then(|port| reader.find(port.get(port::QOS)?));
        let Some(row) = row.filter(|row| !row.get(qos::TYPE).is_empty()) else { return QueueSettings::default() };
        read_qos(reader, &rows.what(), row)
    }

    fn apply(&mut self, settings: &QueueSettings, target: &mut InterfaceTarget<'_>) {
        let spec = settings.spec.as_ref();
        let error = match &target.running.state {
            Ok(Behind::Device(attached)) => attached.set_qos(spec).err().map(|error| error.to_string()),
            Ok(behind) => spec.map(|spec| not_here(behind, &format!("QoS type {}", spec.kind))),
            Err(_) => None,
        };
        target.running.complain("qos", error);
    }
}

fn read_qos(reader: &Reader<'_>, what: &str, row: Row<'_, db::QoS>) -> QueueSettings {
    let kind = row.get(qos::TYPE).to_owned();
    let config = numbers(reader, &format!("{what}: QoS"), row.get(qos::OTHER_CONFIG));
    let (mut queues, mut marks) = (BTreeMap::new(), BTreeMap::new());
    for (id, queue) in row.get(qos::QUEUES) {
        let Some((id, queue)) = u32::try_from(id).ok().zip(reader.find(queue)) else { continue };
        let what = format!("{what}: queue {id}");
        if id >= QUEUES_MAX && ["linux-htb", "linux-hfsc"].contains(&kind.as_str()) {
            reader.warn(format!("{what}: {kind} has no queues from {QUEUES_MAX} on"));
            continue;
        }
        queues.insert(id, numbers(reader, &what, queue.get(queue::OTHER_CONFIG)));
        if let Some(dscp) = queue.get(queue::DSCP).and_then(|dscp| u8::try_from(dscp).ok()) {
            marks.insert(id, dscp);
        }
    }
    QueueSettings { spec: Some(QosSpec { kind, config, queues }), marks }
}

/// A copy of other_config. Numbers that are none are left out, with a warning: their defaults hold.
fn numbers(reader: &Reader<'_>, what: &str, config: Config<'_>) -> BTreeMap<String, String> {
    let mut config = owned(config);
    config.retain(|key, text| {
        let is_wrong = NUMBERS.contains(&key.as_str()) && text.parse::<u64>().is_err();
        if is_wrong {
            reader.warn(format!("{what}: other_config:{key} is \"{text}\", which is not a number"));
        }
        !is_wrong
    });
    config
}

/// The text about a setting that an interface without a device of its own cannot have.
fn not_here(behind: &Behind, what: &str) -> String {
    match behind {
        Behind::Device(attached) => format!("{}: {what} is not supported", attached.device().name()),
        Behind::Tunnel(tunnel) => format!("{}: {what} is not supported by tunnels", tunnel.device().name()),
        Behind::Patch(peer, _) => format!("patch port to {peer}: {what} is not supported by patch ports"),
    }
}

/// Interface:ingress_policing_*.
#[derive(Debug, Default)]
pub struct IngressPolicing;

impl Feature for IngressPolicing {
    type Level = InterfaceLevel;
    type Spec = Policing;
    const NAME: &'static str = "ingress-policing";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        interface {
            NAME, INGRESS_POLICING_RATE, INGRESS_POLICING_BURST, INGRESS_POLICING_KPKTS_RATE,
            INGRESS_POLICING_KPKTS_BURST,
        }
    };
    const FOLLOWS: &'static [Event] = &[Event::Device];

    fn read(_: &Reader<'_>, rows: InterfaceRows<'_>) -> Policing {
        let number = |column: Column<db::Interface, i64>| u64::try_from(rows.interface.get(column)).unwrap_or(0);
        Policing {
            rate_kbps: number(interface::INGRESS_POLICING_RATE),
            burst_kb: number(interface::INGRESS_POLICING_BURST),
            rate_kpps: number(interface::INGRESS_POLICING_KPKTS_RATE),
            burst_kpkts: number(interface::INGRESS_POLICING_KPKTS_BURST),
        }
    }

    fn apply(&mut self, policing: &Policing, target: &mut InterfaceTarget<'_>) {
        let error = match &target.running.state {
            Ok(Behind::Device(attached)) => attached.set_policing(policing).err().map(|error| error.to_string()),
            Ok(behind) => policing.is_limit().then(|| not_here(behind, "ingress policing")),
            Err(_) => None,
        };
        target.running.complain("ingress_policing_rate", error);
    }
}
