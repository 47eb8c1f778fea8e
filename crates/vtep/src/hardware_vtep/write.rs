//! Changes the report about a physical switch.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use base::MacAddr;
use ovsdb_client::Transaction;
use ovsdb_client::schemas::vtep::{
    LogicalBindingStats, LogicalSwitch, McastMacsLocal, PhysicalLocator, PhysicalLocatorSet, PhysicalPort,
    PhysicalSwitch, Tunnel, UcastMacsLocal, logical_binding_stats, logical_switch, mcast_macs_local, physical_locator,
    physical_locator_set, physical_port, physical_switch, tunnel, ucast_macs_local,
};
use ovsdb_client::typed::Ref;

use crate::changes::VtepChange;
use crate::model::{Binding, Counters, Stray, TunnelReport, UNKNOWN_DST};

/// Makes changes of the report about the physical switch `name`, whose tunnels end at `tunnel_ip`.
pub(crate) fn write(txn: &mut Transaction<'_>, name: &str, tunnel_ip: Ipv4Addr, changes: &[VtepChange]) {
    let found = txn.all(PhysicalSwitch).into_iter().find(|row| txn.get(*row, physical_switch::NAME) == name);
    let Some(switch) = found else { return };
    let logical = txn.all(LogicalSwitch).into_iter();
    let logical = logical.map(|row| (txn.get(row, logical_switch::NAME).to_owned(), row)).collect();
    let mut writer = Writer { txn, switch, tunnel_ip, logical, own: None, unicast: BTreeMap::new() };
    if changes.iter().any(|change| matches!(change, VtepChange::RemoveUnicast(..))) {
        writer.index_unicast();
    }
    changes.iter().for_each(|change| writer.write(change));
}

/// Rows of Ucast_Macs_Local by logical switch and address.
type Unicast = BTreeMap<(Ref<LogicalSwitch>, MacAddr), Vec<Ref<UcastMacsLocal>>>;

struct Writer<'t, 'idl> {
    txn: &'t mut Transaction<'idl>,
    switch: Ref<PhysicalSwitch>,
    tunnel_ip: Ipv4Addr,
    /// Logical switches by name.
    logical: BTreeMap<String, Ref<LogicalSwitch>>,
    /// The locator of the switch itself, once it is needed.
    own: Option<Ref<PhysicalLocator>>,
    /// The rows at that locator, if some are to be removed.
    unicast: Unicast,
}

impl Writer<'_, '_> {
    fn index_unicast(&mut self) {
        for row in self.txn.all(UcastMacsLocal) {
            let mac = self.txn.get(row, ucast_macs_local::MAC).parse();
            if let (Ok(mac), true) = (mac, self.is_own(self.txn.get(row, ucast_macs_local::LOCATOR))) {
                let logical = self.txn.get(row, ucast_macs_local::LOGICAL_SWITCH);
                self.unicast.entry((logical, mac)).or_default().push(row);
            }
        }
    }

    fn write(&mut self, change: &VtepChange) {
        match change {
            VtepChange::Describe(text) => self.txn.set(self.switch, physical_switch::DESCRIPTION, text),
            VtepChange::AddPort(name) => {
                let port = self.txn.insert(PhysicalPort).set(physical_port::NAME, name).reference();
                self.txn.add(self.switch, physical_switch::PORTS, [port]);
            }
            VtepChange::RemovePort(name) => {
                let ports = self.ports(name);
                self.txn.remove(self.switch, physical_switch::PORTS, ports);
            }
            VtepChange::AddUnicast(logical, mac) => {
                let Some(logical) = self.logical(logical) else { return };
                let locator = self.own_locator();
                self.txn
                    .insert(UcastMacsLocal)
                    .set(ucast_macs_local::MAC, mac.to_string())
                    .set(ucast_macs_local::LOGICAL_SWITCH, logical)
                    .set(ucast_macs_local::LOCATOR, locator);
            }
            VtepChange::RemoveUnicast(logical, mac) => {
                let Some(logical) = self.logical(logical) else { return };
                let rows = self.unicast.remove(&(logical, *mac)).unwrap_or_default();
                rows.into_iter().for_each(|row| self.txn.delete(row));
            }
            VtepChange::AddUnknown(logical) => {
                let Some(logical) = self.logical(logical) else { return };
                let locator = self.own_locator();
                let set =
                    self.txn.insert(PhysicalLocatorSet).set(physical_locator_set::LOCATORS, [locator]).reference();
                self.txn
                    .insert(McastMacsLocal)
                    .set(mcast_macs_local::MAC, UNKNOWN_DST)
                    .set(mcast_macs_local::LOGICAL_SWITCH, logical)
                    .set(mcast_macs_local::LOCATOR_SET, set);
            }
            VtepChange::RemoveUnknown(logical) => {
                let logical = self.logical(logical);
                let is_it = |row: &Ref<McastMacsLocal>| {
                    let set = self.txn.get(*row, mcast_macs_local::LOCATOR_SET);
                    self.txn.get(*row, mcast_macs_local::MAC) == UNKNOWN_DST
                        && Some(self.txn.get(*row, mcast_macs_local::LOGICAL_SWITCH)) == logical
                        && self.txn.get(set, physical_locator_set::LOCATORS).iter().all(|locator| self.is_own(locator))
                };
                let rows: Vec<_> = self.txn.all(McastMacsLocal).into_iter().filter(is_it).collect();
                rows.into_iter().for_each(|row| self.txn.delete(row));
            }
            VtepChange::SetTunnel(remote, report) => self.set_tunnel(*remote, report),
            VtepChange::RemoveTunnel(remote) => {
                if let Some(row) = self.tunnel(*remote) {
                    self.txn.remove(self.switch, physical_switch::TUNNELS, [row]);
                }
            }
            VtepChange::SetFaults(faults) => self.txn.set(self.switch, physical_switch::SWITCH_FAULT_STATUS, faults),
            VtepChange::SetPortFaults(port, faults) => {
                if let Some(row) = self.ports(port).first() {
                    self.txn.set(*row, physical_port::PORT_FAULT_STATUS, faults);
                }
            }
            VtepChange::SetCounters(binding, counters) => self.set_counters(binding, *counters),
            VtepChange::RemoveCounters(binding) => {
                if let Some(port) = self.ports(&binding.port).first() {
                    self.txn.remove(*port, physical_port::VLAN_STATS, [binding.vlan]);
                }
            }
            VtepChange::RemoveStray(Stray::Unicast(row)) => self.txn.delete(Ref::<UcastMacsLocal>::new(*row)),
            VtepChange::RemoveStray(Stray::Multicast(row)) => self.txn.delete(Ref::<McastMacsLocal>::new(*row)),
            VtepChange::RemoveStray(Stray::Tunnel(row)) => {
                self.txn.remove(self.switch, physical_switch::TUNNELS, [Ref::<Tunnel>::new(*row)]);
            }
        }
    }

    /// The ports of the switch with this name.
    fn ports(&self, name: &str) -> Vec<Ref<PhysicalPort>> {
        let ports = self.txn.get(self.switch, physical_switch::PORTS).iter();
        ports.filter(|row| self.txn.get(*row, physical_port::NAME) == name).collect()
    }

    fn logical(&self, name: &str) -> Option<Ref<LogicalSwitch>> {
        self.logical.get(name).copied()
    }

    /// Returns true if the locator is this address, for any logical switch.
    fn is_locator(&self, row: Ref<PhysicalLocator>, ip: Ipv4Addr) -> bool {
        self.txn.get(row, physical_locator::DST_IP).parse() == Ok(ip)
            && self.txn.get(row, physical_locator::TUNNEL_KEY).is_none()
    }

    fn is_own(&self, row: Ref<PhysicalLocator>) -> bool {
        self.is_locator(row, self.tunnel_ip)
    }

    /// The locator of an address, which is added if it is missing.
    fn locator(&mut self, ip: Ipv4Addr) -> Ref<PhysicalLocator> {
        let found = self.txn.all(PhysicalLocator).into_iter().find(|row| self.is_locator(*row, ip));
        found.unwrap_or_else(|| {
            self.txn
                .insert(PhysicalLocator)
                .set(physical_locator::ENCAPSULATION_TYPE, physical_locator::EncapsulationType::VxlanOverIpv4)
                .set(physical_locator::DST_IP, ip.to_string())
                .reference()
        })
    }

    /// The locator of the switch itself.
    fn own_locator(&mut self) -> Ref<PhysicalLocator> {
        let own = self.own.unwrap_or_else(|| self.locator(self.tunnel_ip));
        self.own = Some(own);
        own
    }

    /// The tunnel to a remote endpoint.
    fn tunnel(&self, remote: Ipv4Addr) -> Option<Ref<Tunnel>> {
        self.txn.get(self.switch, physical_switch::TUNNELS).iter().find(|row| {
            self.is_own(self.txn.get(*row, tunnel::LOCAL))
                && self.txn.get(self.txn.get(*row, tunnel::REMOTE), physical_locator::DST_IP).parse() == Ok(remote)
        })
    }

    fn set_tunnel(&mut self, remote: Ipv4Addr, report: &TunnelReport) {
        let row = self.tunnel(remote).unwrap_or_else(|| {
            let (local, remote) = (self.own_locator(), self.locator(remote));
            let row = self.txn.insert(Tunnel).set(tunnel::LOCAL, local).set(tunnel::REMOTE, remote).reference();
            self.txn.add(self.switch, physical_switch::TUNNELS, [row]);
            row
        });
        self.txn.set(row, tunnel::BFD_STATUS, &report.status);
        self.txn.add(row, tunnel::BFD_CONFIG_LOCAL, &report.local);
    }

    fn set_counters(&mut self, binding: &Binding, counters: Counters) {
        let Some(port) = self.ports(&binding.port).first().copied() else { return };
        let row = self.txn.get(port, physical_port::VLAN_STATS).get(binding.vlan);
        let row = row.unwrap_or_else(|| {
            let row = self.txn.insert(LogicalBindingStats).reference();
            self.txn.add(port, physical_port::VLAN_STATS, [(binding.vlan, row)]);
            row
        });
        self.txn.set(row, logical_binding_stats::PACKETS_FROM_LOCAL, counters.packets_from_local);
        self.txn.set(row, logical_binding_stats::BYTES_FROM_LOCAL, counters.bytes_from_local);
        self.txn.set(row, logical_binding_stats::PACKETS_TO_LOCAL, counters.packets_to_local);
        self.txn.set(row, logical_binding_stats::BYTES_TO_LOCAL, counters.bytes_to_local);
    }
}
