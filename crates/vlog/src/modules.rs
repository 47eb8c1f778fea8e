//! The modules and their levels.
//!
//! A module exists from the start if it is well known, and else from the first time a call site or a program names it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

use parking_lot::RwLock;

use crate::level::{Destination, Level};

/// Module names that scripts pass to `-v` and `vlog/set` for any version of the switch: those of Open
/// vSwitch's daemons, and ours.
const WELL_KNOWN: &[&str] = &[
    "backtrace",
    "bfd",
    "bond",
    "bridge",
    "bundle",
    "bundles",
    "cfm",
    "classifier",
    "collectors",
    "command_line",
    "connmgr",
    "conntrack",
    "conntrack_tp",
    "cooperative_multitasking",
    "coverage",
    "ct_dpif",
    "daemon",
    "daemon_unix",
    "datapath",
    "dns_resolve",
    "dp_packet_gso",
    "dpctl",
    "dpdk",
    "dpif",
    "dpif_netdev",
    "dpif_netdev_dpcls",
    "dpif_netlink",
    "dpif_netlink_rtnl",
    "dpif_offload",
    "dpif_offload_dummy",
    "dpif_offload_tc",
    "dpif_offload_tc_netdev",
    "entropy",
    "fail_open",
    "fatal_signal",
    "flow",
    "hmap",
    "in_band",
    "ipf",
    "ipfix",
    "jsonrpc",
    "lacp",
    "lldp",
    "lldpd",
    "lldpd_structs",
    "lockfile",
    "mac_learning",
    "memory",
    "meta_flow",
    "native_tnl",
    "netdev",
    "netdev_afxdp",
    "netdev_dummy",
    "netdev_linux",
    "netdev_vport",
    "netflow",
    "netlink",
    "netlink_conntrack",
    "netlink_notifier",
    "netlink_socket",
    "nx_match",
    "odp_execute",
    "odp_util",
    "ofp_actions",
    "ofp_bundle",
    "ofp_connection",
    "ofp_ct",
    "ofp_errors",
    "ofp_flow",
    "ofp_group",
    "ofp_match",
    "ofp_meter",
    "ofp_monitor",
    "ofp_msgs",
    "ofp_packet",
    "ofp_port",
    "ofp_protocol",
    "ofp_queue",
    "ofp_table",
    "ofp_util",
    "ofproto",
    "ofproto_dpif",
    "ofproto_dpif_mirror",
    "ofproto_dpif_monitor",
    "ofproto_dpif_rid",
    "ofproto_dpif_upcall",
    "ofproto_dpif_xlate",
    "ofproto_xlate_cache",
    "ovs_lldp",
    "ovs_numa",
    "ovs_rcu",
    "ovs_replay",
    "ovs_router",
    "ovs_thread",
    "ovsdb_client",
    "ovsdb_cs",
    "ovsdb_error",
    "ovsdb_file",
    "ovsdb_idl",
    "ovsdb_jsonrpc_server",
    "ovsdb_log",
    "ovsdb_monitor",
    "ovsdb_server",
    "ox_stat",
    "pcap",
    "pmd_perf",
    "poll_loop",
    "process",
    "rconn",
    "reconnect",
    "route_table",
    "rstp",
    "rstp_sm",
    "sflow",
    "sha1",
    "signals",
    "socket_util",
    "socket_util_unix",
    "storage",
    "stp",
    "stream",
    "stream_fd",
    "stream_replay",
    "stream_ssl",
    "stream_tcp",
    "stream_unix",
    "svec",
    "system_stats",
    "tc",
    "timeval",
    "transaction",
    "tunnel",
    "unixctl",
    "userspace_tso",
    "util",
    "uuid",
    "vconn",
    "vconn_stream",
    "vlog",
    "vsctl",
    "vswitchd",
    "xlate",
];

/// The level of every destination at the start.
const DEFAULT_LEVEL: Level = Level::Info;

/// One module.
#[derive(Debug)]
pub(crate) struct Module {
    levels: [AtomicU8; 3],
    honor_rate_limits: AtomicBool,
}

impl Module {
    fn new(levels: [Level; 3]) -> Self {
        Self { levels: levels.map(|level| AtomicU8::new(level as u8)), honor_rate_limits: AtomicBool::new(true) }
    }

    pub(crate) fn level(&self, destination: Destination) -> Level {
        Level::from_u8(self.levels[destination.index()].load(Relaxed))
    }

    fn set_level(&self, destination: Destination, level: Level) {
        self.levels[destination.index()].store(level as u8, Relaxed);
    }
}

/// All modules. Levels set for all modules also apply to modules created later.
#[derive(Debug)]
pub(crate) struct Modules {
    table: RwLock<BTreeMap<String, Arc<Module>>>,
    defaults: Module,
}

impl Modules {
    pub(crate) fn new() -> Self {
        let modules = Self { table: RwLock::default(), defaults: Module::new([DEFAULT_LEVEL; 3]) };
        for name in WELL_KNOWN {
            modules.obtain(name);
        }
        modules
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.table.read().contains_key(name)
    }

    /// Returns the module of that name, creating it if needed.
    pub(crate) fn obtain(&self, name: &str) -> Arc<Module> {
        if let Some(module) = self.table.read().get(name) {
            return Arc::clone(module);
        }
        let mut table = self.table.write();
        Arc::clone(table.entry(name.to_owned()).or_insert_with(|| {
            let mut levels = [DEFAULT_LEVEL; 3];
            for destination in Destination::ALL {
                levels[destination.index()] = self.defaults.level(destination);
            }
            let module = Module::new(levels);
            module.honor_rate_limits.store(self.defaults.honor_rate_limits.load(Relaxed), Relaxed);
            Arc::new(module)
        }))
    }

    /// Runs `change` on the module of that name, or on all modules and the defaults.
    fn change(&self, name: Option<&str>, change: impl Fn(&Module)) {
        if let Some(name) = name {
            change(&self.obtain(name));
            return;
        }
        change(&self.defaults);
        self.table.read().values().for_each(|module| change(module));
    }

    pub(crate) fn set_level(&self, name: Option<&str>, destination: Option<Destination>, level: Level) {
        self.change(name, |module| match destination {
            Some(destination) => module.set_level(destination, level),
            None => Destination::ALL.into_iter().for_each(|destination| module.set_level(destination, level)),
        });
    }

    pub(crate) fn set_honor_rate_limits(&self, name: Option<&str>, honor: bool) {
        self.change(name, |module| module.honor_rate_limits.store(honor, Relaxed));
    }

    pub(crate) fn honors_rate_limits(&self, name: &str) -> bool {
        self.table.read().get(name).is_none_or(|module| module.honor_rate_limits.load(Relaxed))
    }

    /// The least severe level that any module has for one of `destinations`.
    pub(crate) fn most_verbose(&self, destinations: &[Destination]) -> Level {
        let table = self.table.read();
        let modules = table.values().map(AsRef::as_ref).chain([&self.defaults]);
        modules
            .flat_map(|module| destinations.iter().map(|destination| module.level(*destination)))
            .max()
            .unwrap_or(Level::Off)
    }

    /// `vlog/list`.
    pub(crate) fn list(&self) -> String {
        let mut out =
            "                 console    syslog    file\n                 -------    ------    ------\n".to_owned();
        for (name, module) in self.table.read().iter() {
            out.push_str(&format!(
                "{name:<16}  {:>4}       {:>4}       {:>4}",
                module.level(Destination::Console).name(),
                module.level(Destination::Syslog).name(),
                module.level(Destination::File).name()
            ));
            if !module.honor_rate_limits.load(Relaxed) {
                out.push_str("    (rate limiting disabled)");
            }
            out.push('\n');
        }
        out
    }
}
