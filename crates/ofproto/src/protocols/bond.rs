//! Bonds: settings, the states of members that other protocols decide, commands, and what follows from decisions.
//!
//! Bonds receive no frames. Their machine publishes its decisions for translation; what follows from a change, the invalidation
//! of flows and learning frames, happens here, still in the machine's turn of the engine.
//!
//! The tables of bonds that the datapath balances ([`lb_output`]) are installed before decisions that use them are published, and
//! removed when no flow uses them any more.

mod lb_output;

use crate::revalidate::{Change, Extent};
use crate::switch::Switch;
use base::{BridgePort, DpPort, MacAddr, Millis, PortNo};
use bond::{Bonds, CommandError, LacpStatus, Link, Published, Settings, Status, View, learning_frame};
use lb_output::Installed;
use parking_lot::Mutex;
use protocols::{Effect, Engine, Frame, Machine, Overlay, Protocol};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use xlate::{Bundle, VlanMode};

/// The bonds of a switch.
#[derive(Debug)]
pub(crate) struct HostedBonds {
    machine: Arc<Mutex<BondMachine>>,
    settings: Mutex<BTreeMap<Arc<str>, Settings>>,
    /// The members that LACP does not allow to be enabled.
    refused: Mutex<BTreeSet<BridgePort>>,
    /// The state of LACP, also for bonds that do not exist yet.
    lacp: Mutex<BTreeMap<Arc<str>, LacpStatus>>,
}

/// The machine, and the switch that its decisions concern.
#[derive(Debug)]
struct BondMachine {
    bonds: Bonds,
    switch: Weak<Switch>,
    installed: Installed,
}

impl BondMachine {
    /// Installs tables in the datapath that differ from the installed ones.
    fn reinstall(&mut self, switch: &Switch) {
        self.installed.install(switch, &self.bonds);
        self.installed.retire(switch);
    }

    /// Processes what is due, installs the tables in the datapath, and publishes the decisions.
    fn run(&mut self, switch: &Switch, now: Millis) -> Vec<bond::Effect> {
        self.installed.collect_loads(switch, &self.bonds);
        let effects = self.bonds.run(now);
        self.installed.install(switch, &self.bonds);
        self.bonds.publish();
        effects
    }
}

impl HostedBonds {
    /// Registers a machine without bonds.
    pub(crate) fn new(engine: &Engine, switch: Weak<Switch>) -> Self {
        let machine = BondMachine { bonds: Bonds::new(), switch, installed: Installed::default() };
        let machine = Arc::new(Mutex::new(machine));
        let shared: Arc<Mutex<BondMachine>> = Arc::clone(&machine);
        engine.register(Protocol::BOND, shared);
        Self { machine, settings: Mutex::default(), refused: Mutex::default(), lacp: Mutex::default() }
    }

    /// The decisions of bonds, for translation.
    pub(crate) fn published(&self) -> Arc<Published> {
        Arc::clone(self.machine.lock().bonds.published())
    }

    /// Takes over the state of LACP.
    fn follow_lacp(&self) {
        let names: Vec<Arc<str>> = self.settings.lock().keys().cloned().collect();
        let lacp = self.lacp.lock();
        let mut machine = self.machine.lock();
        for name in names {
            machine.bonds.set_lacp(&name, lacp.get(&name).copied().unwrap_or_default());
        }
    }

    /// Returns true if neither LACP nor another protocol objects to a member.
    fn may_enable(&self, overlay: &Overlay, port: BridgePort) -> bool {
        let is_live = overlay.load().get(&port).is_none_or(|entry| entry.state.live);
        is_live && !self.refused.lock().contains(&port)
    }
}

impl Machine for BondMachine {
    fn input(&mut self, _: &Frame, _: Millis) {}

    fn poll(&mut self, now: Millis, effects: &mut Vec<Effect>) {
        let Some(switch) = self.switch.upgrade() else { return };
        let mut is_changed = false;
        for effect in self.run(&switch, now) {
            match effect {
                bond::Effect::Log(line) => effects.push(Effect::Log(line)),
                bond::Effect::Changed { bond, parts } => {
                    parts.iter().for_each(|part| switch.changed(Change::Bond(Arc::clone(&bond), *part)));
                    effects.push(Effect::Status);
                    is_changed = true;
                }
                bond::Effect::Announce { bond } => {
                    let views = self.bonds.published().load();
                    if let Some(view) = views.get(&bond) {
                        announce(&switch, &bond, view, effects);
                    }
                }
            }
        }
        self.installed.retire(&switch);
        if is_changed {
            // Until the pass, flows lead to members that may have failed.
            switch.hurry_changes();
        }
    }

    fn next_deadline(&self) -> Option<Millis> {
        self.bonds.next_deadline()
    }
}

/// Sends a learning frame by a bond for each address that its bridge has learned elsewhere.
fn announce(switch: &Switch, name: &Arc<str>, view: &View, effects: &mut Vec<Effect>) {
    let net = switch.network();
    let Some(bridge) = net.bridges.values().find(|bridge| bridge.bundles.contains_key(name)) else { return };
    let Some(bundle) = bridge.bundles.get(name) else { return };
    let elsewhere: Vec<(u16, MacAddr)> = {
        let macs = bridge.macs.read();
        let is_elsewhere = |port: PortNo| !bundle.ports.contains(&port);
        macs.iter().filter(|(_, _, entry)| is_elsewhere(entry.port)).map(|(vlan, mac, _)| (vlan, mac)).collect()
    };
    for (vlan, mac) in elsewhere {
        let Some(tag) = tag_for(bundle, vlan) else { continue };
        let Some(member) = view.member_for(mac, tag) else { continue };
        let port = BridgePort { bridge: bridge.id, port: member };
        effects.push(Effect::Send { port, frame: tagged(learning_frame(mac), tag) });
    }
}

/// Returns the VLAN of the tag with which frames of `vlan` leave by a bundle, 0 without a tag; `None` if they do not leave.
fn tag_for(bundle: &Bundle, vlan: u16) -> Option<u16> {
    bundle.carries(vlan).then_some(match bundle.mode {
        VlanMode::Access | VlanMode::Dot1qTunnel { .. } => 0,
        VlanMode::NativeUntagged if vlan == bundle.tag => 0,
        VlanMode::NativeUntagged | VlanMode::NativeTagged | VlanMode::Trunk => vlan,
    })
}

/// Returns the frame with a tag behind its addresses, unless the VLAN is 0.
fn tagged(mut frame: Vec<u8>, vlan: u16) -> Vec<u8> {
    if vlan != 0 && frame.len() >= 12 {
        let [high, low] = vlan.to_be_bytes();
        frame.splice(12..12, [0x81, 0x00, high, low]);
    }
    frame
}

impl Switch {
    /// Makes these the bonds of the switch, by the names of their bundles. The engine's thread has to run
    /// ([`Switch::start_protocols`]).
    pub fn configure_bonds(&self, mut settings: BTreeMap<Arc<str>, Settings>) {
        let hosted = &self.protocols.bonds;
        let overlay = self.protocols.engine.overlay();
        self.restrict_lb_output(&mut settings);
        for (port, member) in settings.values_mut().flat_map(|settings| &mut settings.members) {
            member.link.may_enable = hosted.may_enable(overlay, *port);
        }
        {
            let mut current = hosted.settings.lock();
            if *current == settings {
                // Members may have other numbers in the datapath.
                return hosted.machine.lock().reinstall(self);
            }
            current.clone_from(&settings);
            self.with_bonds(|bonds| bonds.configure(settings, self.clock().now()));
        }
        hosted.follow_lacp();
        self.bonds_changed();
    }

    /// Clears the setting `lb_output` of bonds that get it while the datapath does not balance bonds. Bonds that have it keep it.
    fn restrict_lb_output(&self, settings: &mut BTreeMap<Arc<str>, Settings>) {
        if self.features.uses_lb_output() {
            return;
        }
        let current = self.protocols.bonds.settings.lock();
        for (name, settings) in settings.iter_mut().filter(|(_, settings)| settings.uses_lb_output()) {
            if !current.get(name).is_some_and(Settings::uses_lb_output) {
                tracing::warn!(target: "bond", "{name}: Datapath does not support 'lb_output' action, disabled.");
                settings.lb_output = false;
            }
        }
    }

    /// Carries out what follows from a change of bonds.
    fn bonds_changed(&self) {
        self.protocols.engine.poll(Protocol::BOND);
    }

    /// Reports the state of LACP on bonds, and the members that it does not allow to be enabled. Bonds that are not listed have
    /// no LACP. The engine carries out what follows in its next turn.
    pub fn set_bonds_lacp(&self, bonds: &BTreeMap<Arc<str>, LacpStatus>, refused: BTreeSet<BridgePort>) {
        let hosted = &self.protocols.bonds;
        let before = std::mem::replace(&mut *hosted.refused.lock(), refused.clone());
        hosted.lacp.lock().clone_from(bonds);
        hosted.follow_lacp();
        self.follow_members(before.union(&refused).copied());
        self.protocols.engine.changed(Protocol::BOND);
    }

    /// Takes over whether other protocols allow these ports to be enabled as members.
    fn follow_members(&self, ports: impl Iterator<Item = BridgePort>) {
        let hosted = &self.protocols.bonds;
        let mut settings = hosted.settings.lock();
        for port in ports {
            let may_enable = hosted.may_enable(self.protocols.engine.overlay(), port);
            for member in settings.values_mut().filter_map(|settings| settings.members.get_mut(&port)) {
                member.link.may_enable = may_enable;
                hosted.machine.lock().bonds.set_link(port, Link { may_enable, ..member.link });
            }
        }
    }

    /// The same after a change of the overlay.
    pub(crate) fn members_changed(&self, ports: &BTreeSet<BridgePort>) {
        self.follow_members(ports.iter().copied());
        self.protocols.engine.changed(Protocol::BOND);
    }

    /// Takes over at once whether the link of a datapath port has a carrier, if the port is a member, and translates the flows
    /// again that depend on the bond. The thread that receives the kernel's reports calls this without holding a lock: a failover then does
    /// not wait until a busy processor runs the control thread or the revalidator.
    pub fn member_link_changed(&self, port: DpPort, carrier: bool) {
        let Some((bridge, port)) = self.network().ports.get(&port).copied() else { return };
        let at = BridgePort { bridge, port };
        let hosted = &self.protocols.bonds;
        let mut is_changed = false;
        let mut settings = hosted.settings.lock();
        for member in settings.values_mut().filter_map(|settings| settings.members.get_mut(&at)) {
            if member.link.carrier != carrier {
                member.link.carrier = carrier;
                hosted.machine.lock().bonds.set_link(at, member.link);
                is_changed = true;
            }
        }
        drop(settings);
        if is_changed {
            self.bonds_changed();
            self.pass(Extent::Changes);
        }
    }

    /// Calls a function with the bonds, for their status.
    pub fn with_bonds<T>(&self, call: impl FnOnce(&mut Bonds) -> T) -> T {
        let machine = &mut *self.protocols.bonds.machine.lock();
        machine.installed.collect_loads(self, &machine.bonds);
        call(&mut machine.bonds)
    }

    /// Changes the bonds by a command, and carries out what follows.
    ///
    /// # Errors
    ///
    /// The command's error, in the words of Open vSwitch.
    pub fn command_bonds(
        &self,
        command: impl FnOnce(&mut Bonds) -> Result<&'static str, CommandError>,
    ) -> Result<&'static str, CommandError> {
        let done = self.with_bonds(command)?;
        self.bonds_changed();
        Ok(done)
    }

    /// Returns the state of bonds, by name.
    pub fn bond_status(&self) -> Vec<Status> {
        self.with_bonds(|bonds| bonds.status())
    }
}

#[cfg(test)]
mod tests {
    use super::tagged;

    #[test]
    fn a_tag_stands_behind_the_addresses() {
        let frame: Vec<u8> = (0..16).collect();
        assert_eq!(tagged(frame.clone(), 0), frame);
        assert_eq!(tagged(frame, 0x107)[10..20], [10, 11, 0x81, 0, 1, 7, 12, 13, 14, 15]);
    }
}
