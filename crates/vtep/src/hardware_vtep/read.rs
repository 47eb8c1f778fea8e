//! Reads the configuration of a physical switch, and what was reported of it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use base::MacAddr;
use ovsdb_client::Replica;
use ovsdb_client::schemas::vtep::{
    LogicalRouter, LogicalSwitch as LogicalTable, McastMacsLocal, McastMacsRemote, PhysicalLocator, PhysicalPort,
    PhysicalSwitch, UcastMacsLocal, UcastMacsRemote, logical_binding_stats, logical_router, logical_switch,
    mcast_macs_local, mcast_macs_remote, physical_locator, physical_locator_set, physical_port, physical_switch,
    tunnel, ucast_macs_local, ucast_macs_remote,
};
use ovsdb_client::typed::{self, Enumeration, Ref, Row};

use super::Unusable;
use crate::model::{
    BfdSettings, Binding, Counters, Fault, Locator, LogicalSwitch, Pairs, Problem, Replication, Report, Stray,
    TunnelReport, UNKNOWN_DST, Vtep,
};

/// The largest VXLAN network identifier (RFC 7348 section 5).
const VNI_MAX: i64 = 0xff_ffff;

/// The contents of the database that concern one physical switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) vtep: Vtep,
    /// The present report.
    pub(crate) report: Report,
    /// Parts of the configuration without effect.
    pub(crate) problems: BTreeSet<Problem>,
}

/// Reads what concerns the physical switch `name`.
pub(crate) fn read(db: &Replica, name: &str) -> Result<Contents, Unusable> {
    let row = db.all(PhysicalSwitch).find(|row| row.get(physical_switch::NAME) == name);
    let row = row.ok_or_else(|| Unusable::Missing(name.to_owned()))?;
    let ips = row.get(physical_switch::TUNNEL_IPS);
    let ip = ips.first().filter(|ip| ips.len() == 1 && !ip.is_empty()).ok_or(Unusable::TunnelIps)?;
    let tunnel_ip = ip.parse().map_err(|_| Unusable::TunnelIp(ip.to_owned()))?;
    let mut reader = Reader { db, name, row, tunnel_ip, problems: BTreeSet::new() };
    let vtep = reader.vtep();
    let report = reader.report();
    reader.find_unsupported(&vtep);
    Ok(Contents { vtep, report, problems: reader.problems })
}

struct Reader<'a> {
    db: &'a Replica,
    name: &'a str,
    row: Row<'a, PhysicalSwitch>,
    tunnel_ip: Ipv4Addr,
    problems: BTreeSet<Problem>,
}

fn pairs(read: typed::Pairs<'_, String, String>) -> Pairs {
    read.iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

impl<'a> Reader<'a> {
    fn problem(&mut self, fault: Fault, text: String) {
        self.problems.insert(Problem { text, fault });
    }

    /// The ports by name: of several with the same name, the first one.
    fn ports(&self) -> BTreeMap<&'a str, Row<'a, PhysicalPort>> {
        let mut found = BTreeMap::new();
        for port in self.row.get(physical_switch::PORTS).iter().filter_map(|port| self.db.find(port)) {
            found.entry(port.get(physical_port::NAME)).or_insert(port);
        }
        found
    }

    fn logical_name(&self, row: Ref<LogicalTable>) -> Option<&'a str> {
        self.db.find(row).map(|row| row.get(logical_switch::NAME))
    }

    /// The address of a locator, whatever it is.
    fn address(&self, row: Ref<PhysicalLocator>) -> &'a str {
        self.db.find(row).map(|row| row.get(physical_locator::DST_IP)).unwrap_or_default()
    }

    /// A locator that tunnels can lead to. `purpose` names the row that refers to it, for the problem and its fault if it cannot.
    fn locator(&mut self, row: Ref<PhysicalLocator>, fault: Fault, purpose: impl Fn() -> String) -> Option<Locator> {
        let locator = self.db.find(row)?;
        let ip = locator.get(physical_locator::DST_IP);
        let encapsulation = locator.get(physical_locator::ENCAPSULATION_TYPE);
        let key = locator.get(physical_locator::TUNNEL_KEY);
        let problem = match (ip.parse(), key.map(vni)) {
            _ if encapsulation.is_err() => {
                format!("unsupported encapsulation {}", physical_locator::EncapsulationType::name_of(encapsulation))
            }
            (Err(_), _) => "not an IPv4 address".to_owned(),
            (_, Some(None)) => format!("tunnel key {} is not in the range 0 to {VNI_MAX}", key.unwrap_or_default()),
            (Ok(ip), key) => return Some(Locator { ip, key: key.flatten() }),
        };
        self.problem(fault, format!("{}: locator \"{ip}\": {problem}", purpose()));
        None
    }

    fn vtep(&mut self) -> Vtep {
        let mut vtep = Vtep {
            name: self.name.to_owned(),
            tunnel_ip: self.tunnel_ip,
            bindings: BTreeMap::new(),
            logical: BTreeMap::new(),
            bfd: BTreeMap::new(),
        };
        for (port, row) in self.ports() {
            for (vlan, logical) in row.get(physical_port::VLAN_BINDINGS) {
                if let (Ok(vlan), Some(logical)) = (vlan.try_into(), self.logical_name(logical)) {
                    vtep.bindings.insert(Binding { vlan, port: port.to_owned() }, logical.to_owned());
                }
            }
        }
        for row in self.db.all(LogicalTable) {
            let name = row.get(logical_switch::NAME);
            let key = row.get(logical_switch::TUNNEL_KEY);
            let tunnel_key = key.and_then(vni);
            if let (Some(key), None) = (key, tunnel_key) {
                let text = format!("logical switch {name}: tunnel key {key} is not in the range 0 to {VNI_MAX}");
                self.problem(fault(&vtep, name), text);
            }
            let replication = match row.get(logical_switch::REPLICATION_MODE) {
                Some(Ok(logical_switch::ReplicationMode::SourceNode)) => Replication::SourceNode,
                None | Some(Ok(logical_switch::ReplicationMode::ServiceNode)) => Replication::ServiceNode,
                Some(Err(other)) => {
                    let text = format!("logical switch {name}: unsupported replication mode {other}");
                    self.problem(fault(&vtep, name), text);
                    Replication::ServiceNode
                }
            };
            let logical = LogicalSwitch { tunnel_key, replication, ..LogicalSwitch::default() };
            vtep.logical.insert(name.to_owned(), logical);
        }
        self.read_remote(&mut vtep);
        for row in self.row.get(physical_switch::TUNNELS).iter().filter_map(|row| self.db.find(row)) {
            if let Ok(remote) = self.address(row.get(tunnel::REMOTE)).parse() {
                vtep.bfd.entry(remote).or_insert_with(|| BfdSettings {
                    params: pairs(row.get(tunnel::BFD_PARAMS)),
                    remote: pairs(row.get(tunnel::BFD_CONFIG_REMOTE)),
                });
            }
        }
        vtep
    }

    /// Reads the addresses that the controller has reported.
    fn read_remote(&mut self, vtep: &mut Vtep) {
        let db = self.db;
        for row in db.all(UcastMacsRemote) {
            let Some(name) = self.logical_name(row.get(ucast_macs_remote::LOGICAL_SWITCH)) else { continue };
            let mac = row.get(ucast_macs_remote::MAC);
            let what = || format!("logical switch {name}: remote address {mac}");
            match mac.parse::<MacAddr>() {
                Ok(mac) if !mac.is_multicast() => {
                    let locator = self.locator(row.get(ucast_macs_remote::LOCATOR), fault(vtep, name), what);
                    if let (Some(logical), Some(locator)) = (vtep.logical.get_mut(name), locator) {
                        logical.unicast.insert(mac, locator);
                    }
                }
                _ => self.problem(fault(vtep, name), format!("{} is not a unicast address", what())),
            }
        }
        for row in db.all(McastMacsRemote) {
            let Some(name) = self.logical_name(row.get(mcast_macs_remote::LOGICAL_SWITCH)) else { continue };
            let mac = row.get(mcast_macs_remote::MAC);
            let what = || format!("logical switch {name}: remote address {mac}");
            let group = mac.parse::<MacAddr>().ok().filter(|mac| mac.is_multicast());
            if mac != UNKNOWN_DST && group.is_none() {
                self.problem(fault(vtep, name), format!("{} is not a multicast address", what()));
                continue;
            }
            let Some(set) = db.find(row.get(mcast_macs_remote::LOCATOR_SET)) else { continue };
            let locators = set.get(physical_locator_set::LOCATORS).iter();
            let locators: Vec<_> =
                locators.filter_map(|locator| self.locator(locator, fault(vtep, name), what)).collect();
            let Some(logical) = vtep.logical.get_mut(name) else { continue };
            match group {
                Some(group) => logical.groups.entry(group).or_default().extend(locators),
                None => logical.unknown.extend(locators),
            }
        }
    }

    /// The tunnel endpoints of other physical switches in this database, whose rows are not ours.
    fn endpoints_of_others(&self) -> BTreeSet<&'a str> {
        let others = self.db.all(PhysicalSwitch).filter(|row| row.uuid() != self.row.uuid());
        others.flat_map(|row| row.get(physical_switch::TUNNEL_IPS).iter()).collect()
    }

    /// Returns true if a locator is the switch's own, as this program writes it.
    fn is_own(&self, row: Ref<PhysicalLocator>) -> bool {
        self.address(row).parse() == Ok(self.tunnel_ip)
            && self.db.find(row).is_some_and(|row| row.get(physical_locator::TUNNEL_KEY).is_none())
    }

    fn report(&self) -> Report {
        let description = self.row.get(physical_switch::DESCRIPTION).to_owned();
        let faults = self.row.get(physical_switch::SWITCH_FAULT_STATUS).iter().map(str::to_owned).collect();
        let mut report = Report { description, faults, ..Report::default() };
        self.report_ports(&mut report);
        self.report_addresses(&mut report);
        for row in self.row.get(physical_switch::TUNNELS).iter().filter_map(|row| self.db.find(row)) {
            let remote: Result<Ipv4Addr, _> = self.address(row.get(tunnel::REMOTE)).parse();
            match remote {
                Ok(remote) if self.is_own(row.get(tunnel::LOCAL)) && !report.tunnels.contains_key(&remote) => {
                    let mut local = pairs(row.get(tunnel::BFD_CONFIG_LOCAL));
                    local.retain(|key, _| matches!(key.as_str(), "bfd_dst_ip" | "bfd_dst_mac"));
                    let status = pairs(row.get(tunnel::BFD_STATUS));
                    report.tunnels.insert(remote, TunnelReport { status, local });
                }
                _ => {
                    report.strays.insert(Stray::Tunnel(row.uuid()));
                }
            }
        }
        report
    }

    fn report_ports(&self, report: &mut Report) {
        for (port, row) in self.ports() {
            report.ports.insert(port.to_owned());
            let faults = row.get(physical_port::PORT_FAULT_STATUS);
            if !faults.is_empty() {
                report.port_faults.insert(port.to_owned(), faults.iter().map(str::to_owned).collect());
            }
            for (vlan, stats) in row.get(physical_port::VLAN_STATS) {
                let (Ok(vlan), Some(stats)) = (vlan.try_into(), self.db.find(stats)) else { continue };
                let counters = Counters {
                    packets_from_local: stats.get(logical_binding_stats::PACKETS_FROM_LOCAL),
                    bytes_from_local: stats.get(logical_binding_stats::BYTES_FROM_LOCAL),
                    packets_to_local: stats.get(logical_binding_stats::PACKETS_TO_LOCAL),
                    bytes_to_local: stats.get(logical_binding_stats::BYTES_TO_LOCAL),
                };
                report.counters.insert(Binding { vlan, port: port.to_owned() }, counters);
            }
        }
    }

    fn report_addresses(&self, report: &mut Report) {
        let others = self.endpoints_of_others();
        for row in self.db.all(UcastMacsLocal) {
            let locator = row.get(ucast_macs_local::LOCATOR);
            if others.contains(self.address(locator)) {
                continue;
            }
            let name = self.logical_name(row.get(ucast_macs_local::LOGICAL_SWITCH));
            let mac = row.get(ucast_macs_local::MAC).parse();
            let is_kept = match (name, mac) {
                (Some(name), Ok(mac)) if self.is_own(locator) => report.unicast.insert((name.to_owned(), mac)),
                _ => false,
            };
            if !is_kept {
                report.strays.insert(Stray::Unicast(row.uuid()));
            }
        }
        for row in self.db.all(McastMacsLocal) {
            let set = self.db.find(row.get(mcast_macs_local::LOCATOR_SET));
            let locators = || set.into_iter().flat_map(|set| set.get(physical_locator_set::LOCATORS).iter());
            if locators().any(|locator| others.contains(self.address(locator))) {
                continue;
            }
            let is_ours = row.get(mcast_macs_local::MAC) == UNKNOWN_DST
                && locators().count() == 1
                && locators().all(|locator| self.is_own(locator));
            let is_kept = match self.logical_name(row.get(mcast_macs_local::LOGICAL_SWITCH)) {
                Some(name) if is_ours => report.unknown.insert(name.to_owned()),
                _ => false,
            };
            if !is_kept {
                report.strays.insert(Stray::Multicast(row.uuid()));
            }
        }
    }

    /// Reports tables and columns that this program does not support.
    fn find_unsupported(&mut self, vtep: &Vtep) {
        for (port, row) in self.ports() {
            if !row.get(physical_port::ACL_BINDINGS).is_empty() {
                let text = format!("physical port {port}: access control lists are not supported");
                self.problem(Fault::acl_binding(port), text);
            }
        }
        for row in self.db.all(LogicalRouter) {
            let mut bound = row.get(logical_router::SWITCH_BINDING).iter();
            let is_here = bound.any(|(_, logical)| self.logical_name(logical).is_some_and(|name| is_bound(vtep, name)));
            let fault = if is_here { Fault::ROUTER } else { Fault::Unreported };
            self.problem(fault, format!("logical router {} is not supported", row.get(logical_router::NAME)));
        }
    }
}

/// A VXLAN network identifier, if the number is in its range.
fn vni(key: i64) -> Option<u32> {
    u32::try_from(key).ok().filter(|_| key <= VNI_MAX)
}

/// Returns true if a port of the physical switch is bound to the logical switch.
fn is_bound(vtep: &Vtep, logical: &str) -> bool {
    vtep.bindings.values().any(|bound| bound == logical)
}

/// The fault of a problem of a logical switch.
fn fault(vtep: &Vtep, logical: &str) -> Fault {
    if is_bound(vtep, logical) { Fault::SWITCH } else { Fault::Unreported }
}
