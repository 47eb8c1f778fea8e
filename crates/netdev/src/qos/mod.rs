//! Quality of service of ports: queues and shaping of packets that leave, policing of packets that come in.
//!
//! A device of the kernel may have disciplines of its own ([`DeviceQos`]). All other ports get theirs from [`PortQos`],
//! which a datapath has for each port: it shapes and polices in userspace, and costs a load for each batch while nothing is
//! configured.
//!
//! - [`spec`]: what rows of the tables QoS and Queue ask for, with the defaults of `linux-htb`;
//! - [`egress`]: the types of userspace: `linux-htb`, `egress-policer`, `trtcm-policer`;
//! - [`ingress`]: ingress policing.

pub mod egress;
pub mod ingress;
pub mod spec;

pub use ingress::Policing;
pub use spec::{HtbClass, HtbSettings, QosReport, QosSpec, QueueCounters, QueueReport};

use crate::device::{Netdev, SendReport};
use crate::software;
use egress::Egress;
use ingress::Ingress;
use packet::Batch;

/// Types of QoS that userspace offers on any port.
pub const USERSPACE_TYPES: &[&str] = &["trtcm-policer", "egress-policer", "linux-noop", "linux-htb"];

/// Why QoS could not be set up. Each message is one line.
#[derive(thiserror::Error, Debug)]
pub enum QosError {
    /// The port has no such type.
    #[error("{port}: QoS type {kind} is not supported by ports of type {port_type}")]
    UnknownType {
        /// The port.
        port: String,
        /// The type of QoS.
        kind: String,
        /// The type of port.
        port_type: &'static str,
    },
    /// A required setting is missing or wrong.
    #[error("{port}: QoS type {kind} needs other_config:{key}, a number from 1")]
    Missing {
        /// The port.
        port: String,
        /// The type of QoS.
        kind: String,
        /// The key of other_config.
        key: &'static str,
    },
    /// The kernel refused, in the words of Open vSwitch.
    #[error("{port}: Failed to install new qdisc: {problem}")]
    Refused {
        /// The device.
        port: String,
        /// The reason, which names the discipline if the kernel lacks it.
        problem: String,
    },
    /// No thread or transmit queue for the shaper.
    #[error("{port}: the shaper cannot start: {problem}")]
    NoShaper {
        /// The port.
        port: String,
        /// The reason.
        problem: String,
    },
}

/// QoS that the kernel has for a device.
pub trait DeviceQos {
    /// The types, in the order in which commands list them.
    fn types(&self) -> &'static [&'static str];

    /// Sets up QoS, or removes it with `None`. The same again changes nothing.
    fn set(&self, spec: Option<&QosSpec>) -> Result<(), QosError>;

    /// The current configuration, with counters.
    fn report(&self) -> Option<QosReport>;
}

/// QoS of a datapath's port in userspace.
#[derive(Debug, Default)]
pub struct PortQos {
    egress: Egress,
    ingress: Ingress,
}

impl PortQos {
    /// Whether packets that leave go through [`PortQos::send`].
    #[inline]
    pub fn is_shaping(&self) -> bool {
        self.egress.is_active()
    }

    /// Whether packets that come in go through [`PortQos::police`].
    #[inline]
    pub fn is_policing(&self) -> bool {
        self.ingress.is_active()
    }

    /// Sets up one of [`USERSPACE_TYPES`] for a device, or removes it with `None`. The same again changes nothing.
    pub fn set(&self, spec: Option<&QosSpec>, device: &dyn Netdev) -> Result<(), QosError> {
        self.egress.set(spec, device)
    }

    /// Sets up ingress policing.
    pub fn set_policing(&self, policing: &Policing) {
        self.ingress.set(policing);
    }

    /// The current configuration, with counters.
    pub fn report(&self) -> Option<QosReport> {
        self.egress.report()
    }

    /// Takes packets that are to leave: what remains in `batch` is to be sent at once. The report counts packets that the
    /// shaper will send as sent, and those that it dropped, also earlier.
    pub fn send(&self, batch: &mut Batch) -> SendReport {
        self.egress.send(batch)
    }

    /// Removes the packets of `batch` that exceed the policing rates, and returns how many.
    pub fn police(&self, batch: &mut Batch) -> u64 {
        self.ingress.police(batch)
    }
}

/// Segments the packets that stand for several frames, so that a policer judges each frame.
fn segment_large(batch: &mut Batch) {
    if batch.iter().all(|packet| packet.offload.gso.is_none()) {
        return;
    }
    for packet in std::mem::take(batch) {
        if packet.offload.gso.is_none() {
            batch.push(packet);
        } else if let Err(packet) = software::finish(packet, batch) {
            batch.push(packet);
        }
    }
}
