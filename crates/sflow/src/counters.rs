//! Counter samples: the counters of a port or of the switch (section 5.3 of the specification; "sFlow OpenFlow
//! Structures", "sFlow LAG Port Statistics", "sFlow Host Structures", and the counters of Open vSwitch's datapath).

use crate::xdr::Writer;

/// The formats of counter records (enterprise 0).
mod format {
    pub(super) const INTERFACE: u32 = 1;
    pub(super) const ETHERNET: u32 = 2;
    pub(super) const LACP: u32 = 7;
    pub(super) const OPENFLOW_PORT: u32 = 1004;
    pub(super) const PORT_NAME: u32 = 1005;
    pub(super) const APP_RESOURCES: u32 = 2203;
    pub(super) const DATAPATH: u32 = 2207;
}

/// Maximum number of bytes of a port's name.
const NAME_MAX: usize = 255;
/// Number of counters of Ethernet (RFC 3635) in a record that the switch does not know: collisions, errors of the MAC and of
/// symbols.
const UNKNOWN_ETHERNET_COUNTERS: usize = 11;
/// `ifType` of Ethernet (RFC 2863).
const ETHERNET_TYPE: u32 = 6;

/// The direction of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Duplex {
    /// Not known.
    #[default]
    Unknown = 0,
    /// Both directions at once.
    Full = 1,
    /// One direction at a time.
    Half = 2,
}

/// Generic counters of an interface (RFC 2233). `None` stands for an unknown value.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interface {
    /// Its index.
    pub index: u32,
    /// Bits a second.
    pub speed: u64,
    /// The direction of its link.
    pub duplex: Duplex,
    /// Whether it is configured to be up.
    pub admin_up: bool,
    /// Whether it has a link.
    pub link_up: bool,
    /// Bytes received.
    pub in_octets: Option<u64>,
    /// Packets received.
    pub in_packets: Option<u64>,
    /// Of these, multicast packets.
    pub in_multicast: Option<u64>,
    /// Received packets that were dropped.
    pub in_discards: Option<u64>,
    /// Received packets with errors.
    pub in_errors: Option<u64>,
    /// Bytes sent.
    pub out_octets: Option<u64>,
    /// Packets sent.
    pub out_packets: Option<u64>,
    /// Packets that were dropped instead of being sent.
    pub out_discards: Option<u64>,
    /// Packets that could not be sent because of errors.
    pub out_errors: Option<u64>,
}

/// Counters of Ethernet (RFC 3635). `None` stands for an unknown value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ethernet {
    /// Frames received with an alignment error.
    pub alignment_errors: Option<u64>,
    /// Frames received with a wrong frame check sequence.
    pub fcs_errors: Option<u64>,
}

/// Counters and state of a port in a link aggregation group (IEEE 802.1AX).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lacp {
    /// System id of the actor.
    pub actor: [u8; 6],
    /// System id of the partner.
    pub partner: [u8; 6],
    /// Number of the aggregator that the port is attached to.
    pub aggregator: u32,
    /// States of the port: administrative and operational state of the actor, then of the partner.
    pub states: [u8; 4],
    /// Frames of slow protocols received, malformed ones included.
    pub rx_pdus: u32,
    /// Frames received that were malformed.
    pub rx_illegal: u32,
    /// LACPDUs sent.
    pub tx_pdus: u32,
}

/// Resources of the process (sFlow Application Structures).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AppResources {
    /// Milliseconds of processor time in user mode.
    pub user_ms: u32,
    /// Milliseconds of processor time in the kernel.
    pub system_ms: u32,
    /// Bytes of memory in use.
    pub memory_used: u64,
}

/// Counters of a datapath. `None` stands for an unknown value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Datapath {
    /// Packets that found a cached flow.
    pub hit: u64,
    /// Packets that found none.
    pub missed: u64,
    /// Packets that were dropped instead of being translated.
    pub lost: u64,
    /// Masks visited for all packets.
    pub mask_hit: Option<u64>,
    /// Cached flows.
    pub flows: u32,
    /// Masks of cached flows.
    pub masks: Option<u32>,
}

/// A record of a counter sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Counter {
    /// Generic counters of an interface.
    Interface(Interface),
    /// Counters of Ethernet.
    Ethernet(Ethernet),
    /// Link aggregation.
    Lacp(Lacp),
    /// The OpenFlow port: datapath id and port number.
    OpenFlowPort {
        /// Datapath id of the bridge.
        dpid: u64,
        /// Number of the port.
        port: u32,
    },
    /// Name of the port.
    PortName(String),
    /// Resources of the process.
    AppResources(AppResources),
    /// Counters of the datapath.
    Datapath(Datapath),
}

impl Counter {
    pub(crate) fn write(&self, out: &mut Writer) {
        match self {
            Self::Interface(interface) => out.record(format::INTERFACE, |out| interface.write(out)),
            Self::Ethernet(ethernet) => out.record(format::ETHERNET, |out| {
                out.word(word_of(ethernet.alignment_errors));
                out.word(word_of(ethernet.fcs_errors));
                (0..UNKNOWN_ETHERNET_COUNTERS).for_each(|_| out.word(u32::MAX));
            }),
            Self::Lacp(lacp) => out.record(format::LACP, |out| lacp.write(out)),
            Self::OpenFlowPort { dpid, port } => out.record(format::OPENFLOW_PORT, |out| {
                out.hyper(*dpid);
                out.word(*port);
            }),
            Self::PortName(name) => out.record(format::PORT_NAME, |out| {
                let bytes = name.as_bytes();
                out.opaque(&bytes[..bytes.len().min(NAME_MAX)]);
            }),
            Self::AppResources(app) => out.record(format::APP_RESOURCES, |out| {
                out.word(app.user_ms);
                out.word(app.system_ms);
                out.hyper(app.memory_used);
                // Limit of memory, open and possible files and connections: undefined.
                out.hyper(0);
                (0..4).for_each(|_| out.word(0));
            }),
            Self::Datapath(datapath) => out.record(format::DATAPATH, |out| {
                out.word(datapath.hit as u32);
                out.word(datapath.missed as u32);
                out.word(datapath.lost as u32);
                out.word(word_of(datapath.mask_hit));
                out.word(datapath.flows);
                out.word(datapath.masks.unwrap_or(u32::MAX));
            }),
        }
    }
}

/// The lower half of a counter, as 32-bit counters wrap; all ones if it is unknown.
fn word_of(counter: Option<u64>) -> u32 {
    counter.map_or(u32::MAX, |counter| counter as u32)
}

impl Interface {
    fn write(&self, out: &mut Writer) {
        out.word(self.index);
        out.word(ETHERNET_TYPE);
        out.hyper(self.speed);
        out.word(self.duplex as u32);
        out.word(u32::from(self.admin_up) | u32::from(self.link_up) << 1);
        out.hyper(self.in_octets.unwrap_or(u64::MAX));
        out.word(word_of(self.in_packets));
        out.word(word_of(self.in_multicast));
        // Broadcast packets.
        out.word(u32::MAX);
        out.word(word_of(self.in_discards));
        out.word(word_of(self.in_errors));
        // Packets of unknown protocols.
        out.word(u32::MAX);
        out.hyper(self.out_octets.unwrap_or(u64::MAX));
        out.word(word_of(self.out_packets));
        // Multicast and broadcast packets.
        out.word(u32::MAX);
        out.word(u32::MAX);
        out.word(word_of(self.out_discards));
        out.word(word_of(self.out_errors));
        // The interface is not in promiscuous mode.
        out.word(0);
    }
}

impl Lacp {
    fn write(&self, out: &mut Writer) {
        out.fixed(&self.actor);
        out.fixed(&self.partner);
        out.word(self.aggregator);
        out.fixed(&self.states);
        let unknown = u32::MAX;
        // Received: LACPDUs, markers, responses to markers, unknown, illegal; sent: LACPDUs, markers, responses.
        [self.rx_pdus, unknown, unknown, unknown, self.rx_illegal, self.tx_pdus, unknown, unknown]
            .iter()
            .for_each(|count| out.word(*count));
    }
}
