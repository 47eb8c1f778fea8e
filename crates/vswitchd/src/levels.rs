//! The objects that have settings: switch, bridges, ports and interfaces, with the features of each.

use crate::confinement::Confinement;
use crate::devices::Devices;
use crate::feature::{Level, Setting, setting};
use crate::features::{
    self, address, bond, capabilities, controllers, flood_vlans, flow_restore, flow_tables, forward_bpdu, identity,
    in_band, ipfix, lacp, link, lldp, local_sampling, mac_table, mirrors, mtu, multicast, netflow, qos, queues, sflow,
    spanning_tree, statistics, timeout_policies, tuning, unsupported, versions, vlan, zone_limits,
};
use crate::interface::RunningInterface;
use crate::own_tls::OwnTls;
use crate::protocol_settings::Marks;
use crate::running::RunningBridge;
use base::MacAddr;
use ovsdb_client::schemas::vswitch::{self as db, bridge, interface, port};
use ovsdb_client::typed::{AnyColumn, Ref, Row};
use std::sync::{Arc, OnceLock};

/// Settings of the whole switch: the row of the table Open_vSwitch.
#[derive(Debug)]
pub struct SwitchLevel;

/// Settings of a bridge.
#[derive(Debug)]
pub struct BridgeLevel;

/// Settings of a port.
#[derive(Debug)]
pub struct PortLevel;

/// Settings of an interface.
#[derive(Debug)]
pub struct InterfaceLevel;

/// The rows for features of a bridge.
#[derive(Clone, Copy, Debug)]
pub struct BridgeRows<'a> {
    /// The switch.
    pub root: Row<'a, db::OpenVSwitch>,
    /// The bridge.
    pub bridge: Row<'a, db::Bridge>,
}

/// The row for features of a port.
#[derive(Clone, Copy, Debug)]
pub struct PortRows<'a> {
    /// The port.
    pub port: Row<'a, db::Port>,
}

/// The rows for features of an interface.
#[derive(Clone, Copy, Debug)]
pub struct InterfaceRows<'a> {
    /// The bridge.
    pub bridge: Row<'a, db::Bridge>,
    /// The port, to be read by reference; zero if there is no row.
    pub port: Ref<db::Port>,
    /// The interface.
    pub interface: Row<'a, db::Interface>,
}

impl BridgeRows<'_> {
    /// How warnings name the bridge.
    pub fn what(self) -> String {
        format!("bridge {}", self.bridge.get(bridge::NAME))
    }
}

impl PortRows<'_> {
    /// How warnings name the port.
    pub fn what(self) -> String {
        format!("port {}", self.port.get(port::NAME))
    }
}

impl<'a> InterfaceRows<'a> {
    /// How warnings name the interface.
    pub fn what(self) -> String {
        format!("interface {}", self.interface.get(interface::NAME))
    }

    /// Whether it is the local interface of its bridge.
    pub fn is_local(self) -> bool {
        self.interface.get(interface::NAME) == self.bridge.get(bridge::NAME)
    }

    /// The type: `system` for the empty string, `internal` for the local interface.
    pub fn kind(self) -> &'a str {
        match self.interface.get(interface::TYPE) {
            _ if self.is_local() => "internal",
            "" => "system",
            other => other,
        }
    }
}

/// Work that waits for threads, and is done outside of the control thread.
pub type Job = Box<dyn FnOnce() + Send>;

/// What features of the switch are applied to.
#[derive(Debug)]
pub struct SwitchTarget<'a> {
    /// All datapaths.
    pub devices: &'a Devices,
    /// TLS of the connection to the database.
    pub own_tls: &'a mut OwnTls,
    /// TLS as the command line has it.
    pub command_line: &'a tls::Config,
    /// Work for a thread that may wait.
    pub jobs: Jobs,
}

/// Work for a thread that may wait, in order.
#[derive(Default)]
pub struct Jobs(pub Vec<Job>);

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} jobs", self.0.len())
    }
}

/// What features of a bridge are applied to.
#[derive(Debug)]
pub struct BridgeTarget<'a> {
    /// The bridge.
    pub running: &'a mut RunningBridge,
    /// Its address.
    pub mac: MacAddr,
    /// The sockets that it may have.
    pub confinement: &'a Confinement,
    /// Whether protocols are enabled on the bridge as a whole.
    pub protocols: Marks,
}

/// What features of a port ask for.
#[derive(Clone, Debug, Default)]
pub struct PortTarget {
    /// Whether protocols are enabled on it.
    pub protocols: Marks,
    /// The bundle of the port is to be published.
    pub is_bundle_changed: bool,
    /// The address of the port that counts for the bridge's address may be another one.
    pub is_address_changed: bool,
}

/// What features of an interface are applied to.
#[derive(Debug)]
pub struct InterfaceTarget<'a> {
    /// The interface.
    pub running: &'a mut RunningInterface,
    /// Whether protocols are enabled on it.
    pub protocols: Marks,
}

/// What features of the switch report on.
#[derive(Clone, Copy, Debug)]
pub struct SwitchReport<'a> {
    /// Its row.
    pub row: Ref<db::OpenVSwitch>,
    /// Datapaths and types.
    pub devices: &'a Devices,
    /// Whether versions of the system are reported, see [`Options`](crate::run::Options).
    pub host_versions: bool,
}

/// What features of a bridge report on.
#[derive(Clone, Copy, Debug)]
pub struct BridgeReport<'a> {
    /// Its row.
    pub row: Ref<db::Bridge>,
    /// The bridge.
    pub running: &'a RunningBridge,
}

/// What features of a port report on.
#[derive(Clone, Copy, Debug)]
pub struct PortReport<'a> {
    /// Its row.
    pub row: Ref<db::Port>,
    /// Its name.
    pub name: &'a str,
    /// Names of its interfaces, sorted.
    pub interfaces: &'a [String],
    /// Its bridge.
    pub bridge: &'a RunningBridge,
}

/// What features of an interface report on.
#[derive(Clone, Copy, Debug)]
pub struct InterfaceReport<'a> {
    /// Its row.
    pub row: Ref<db::Interface>,
    /// The interface.
    pub running: &'a RunningInterface,
    /// Its bridge.
    pub bridge: &'a RunningBridge,
}

macro_rules! level {
    ($level:ident, $rows:ty, $target:ty, $reported:ty, [$($feature:ty),* $(,)?]) => {
        impl Level for $level {
            type Rows<'a> = $rows;
            type Target<'a> = $target;
            type Reported<'a> = $reported;

            fn features() -> Vec<Box<dyn Setting<Self>>> {
                vec![$(setting::<$feature>()),*]
            }

            fn columns() -> Arc<[AnyColumn]> {
                static COLUMNS: OnceLock<Arc<[AnyColumn]>> = OnceLock::new();
                let all = || Self::features().iter().flat_map(|setting| setting.columns()).copied().collect();
                Arc::clone(COLUMNS.get_or_init(all))
            }
        }
    };
}

level!(
    SwitchLevel,
    Row<'a, db::OpenVSwitch>,
    SwitchTarget<'a>,
    SwitchReport<'a>,
    [
        unsupported::OfSwitch,
        flow_restore::FlowRestore,
        versions::Versions,
        tuning::TuningFeature,
        features::tls::Tls,
        statistics::Interval,
        capabilities::DatapathCapabilities,
        zone_limits::ZoneLimits,
        timeout_policies::TimeoutPolicies,
    ]
);
level!(
    BridgeLevel,
    BridgeRows<'a>,
    BridgeTarget<'a>,
    BridgeReport<'a>,
    [
        identity::Identity,
        forward_bpdu::ForwardBpdu,
        flow_tables::FlowTables,
        mac_table::MacTable,
        multicast::Multicast,
        spanning_tree::SpanningTree,
        flood_vlans::FloodVlans,
        mirrors::Mirrors,
        ipfix::Ipfix,
        local_sampling::LocalSampling,
        sflow::Sflow,
        netflow::Netflow,
        controllers::Controllers,
        in_band::InBand,
    ]
);
level!(
    PortLevel,
    PortRows<'a>,
    PortTarget,
    PortReport<'a>,
    [vlan::Vlan, address::PortAddress, spanning_tree::SpanningTreePort, bond::Bond, lacp::Lacp,]
);
level!(
    InterfaceLevel,
    InterfaceRows<'a>,
    InterfaceTarget<'a>,
    InterfaceReport<'a>,
    [
        address::InterfaceAddress,
        mtu::Mtu,
        queues::Queues,
        qos::Qos,
        qos::IngressPolicing,
        lldp::Lldp,
        lacp::Member,
        features::bfd::Bfd,
        features::cfm::Cfm,
        link::Link,
        statistics::Counters,
    ]
);
