//! The bonds of a switch.

use crate::bond::{Bond, Member, Outcome};
use crate::settings::{LacpStatus, Link, Mode, Settings};
use crate::view::{Part, Published, Table, View, Views};
use base::{BridgePort, MacAddr, Millis};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An effect for the caller to carry out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// The decisions of a bond have changed: translations that depend on these parts are invalid. They are published already.
    Changed {
        /// The bond.
        bond: Arc<str>,
        /// The parts that have changed, at least one.
        parts: Vec<Part>,
    },
    /// Send a [learning frame](crate::learning_frame) for each address that the bridge has learned on ports outside of the
    /// bond, in its VLAN, by the member that [`View::member_for`] returns.
    Announce {
        /// The bond.
        bond: Arc<str>,
    },
    /// Write a line to the log.
    Log(String),
}

/// The state of a bond for the database.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Status {
    /// The bond.
    pub name: Arc<str>,
    /// How it is configured to distribute frames.
    pub mode: Mode,
    /// The state of LACP.
    pub lacp: LacpStatus,
    /// The bond's id in the datapath, if the datapath balances it.
    pub lb_output: Option<u32>,
    /// The active member and its address.
    pub active: Option<(BridgePort, MacAddr)>,
    /// The name of the active member.
    pub active_name: Option<Arc<str>>,
    /// The members, by number.
    pub members: Vec<MemberStatus>,
}

/// The state of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    /// The port.
    pub port: BridgePort,
    /// Interface name.
    pub name: Arc<str>,
    /// Address of the interface.
    pub mac: MacAddr,
    /// The bond uses the member.
    pub enabled: bool,
    /// Its link is up, and no protocol objects to it.
    pub may_enable: bool,
    /// The bytes of its buckets that have a load.
    pub loads: Vec<(u8, u64)>,
}

/// The bonds of a switch, by name: the names of a database's ports are unique.
#[derive(Debug, Default)]
pub struct Bonds {
    pub(crate) bonds: BTreeMap<Arc<str>, Bond>,
    views: BTreeMap<Arc<str>, Arc<View>>,
    published: Arc<Published>,
    /// The views differ from the published ones.
    unpublished: bool,
    /// The last number that a bond got.
    last_number: u32,
    effects: Vec<Effect>,
}

impl Bonds {
    /// A machine without bonds.
    pub fn new() -> Self {
        Self::default()
    }

    /// The decisions of all bonds, as of the last poll.
    pub fn published(&self) -> &Arc<Published> {
        &self.published
    }

    /// Makes these the bonds. Existing ones keep their states as far as the settings allow. The next poll
    /// publishes the decisions of new ones.
    pub fn configure(&mut self, settings: BTreeMap<Arc<str>, Settings>, now: Millis) {
        let mut out = Outcome::default();
        for (name, bond) in self.bonds.extract_if(.., |name, _| !settings.contains_key(name)) {
            let enabled = bond.members.values().filter(|member| member.enabled);
            out.log.extend(enabled.map(|member| format!("member {}: disabled", member.name)));
            if bond.active.is_some() {
                out.log.push(format!("bond {name}: all members disabled"));
            }
            self.effects.push(Effect::Changed { bond: Arc::clone(&name), parts: Part::ALL.to_vec() });
            self.views.remove(&name);
            self.unpublished = true;
        }
        for (name, settings) in settings {
            let bond = self.bonds.entry(Arc::clone(&name)).or_insert_with(|| Bond::new(name));
            if !self.views.contains_key(&bond.name) || bond.settings != settings {
                bond.configure(settings, now, &mut out);
            }
        }
        self.number();
        self.effects.extend(out.log.into_iter().map(Effect::Log));
    }

    /// Gives a number to each bond that the datapath balances; bonds keep theirs. The number of a removed bond stays unused for
    /// long, because the datapath may still have its table.
    fn number(&mut self) {
        let balances = |bond: &Bond| bond.settings.mode != Mode::ActiveBackup;
        self.bonds.values_mut().filter(|bond| !balances(bond)).for_each(|bond| bond.number = 0);
        let mut used: Vec<u32> = self.bonds.values().map(|bond| bond.number).collect();
        for bond in self.bonds.values_mut().filter(|bond| balances(bond) && bond.number == 0) {
            let following = (self.last_number..u32::MAX).map(|last| last + 1).chain(1..=self.last_number);
            self.last_number = following.into_iter().find(|number| !used.contains(number)).unwrap_or(u32::MAX);
            bond.number = self.last_number;
            used.push(bond.number);
        }
    }

    /// Reports the state of a port's link; ignored if the port is not a member.
    pub fn set_link(&mut self, port: BridgePort, link: Link) {
        for bond in self.bonds.values_mut() {
            if let Some(member) = bond.members.get_mut(&port).filter(|member| member.link != link) {
                member.link = link;
                bond.dirty = true;
                bond.settings.members.entry(port).and_modify(|settings| settings.link = link);
            }
        }
    }

    /// Reports the status of LACP on a bond; ignored if there is no such bond.
    pub fn set_lacp(&mut self, bond: &str, status: LacpStatus) {
        if let Some(bond) = self.bonds.get_mut(bond).filter(|bond| bond.lacp != status) {
            bond.lacp = status;
            bond.dirty = true;
        }
    }

    /// Processes changes and expired timers, publishes new decisions, and returns effects for the caller to carry out.
    pub fn poll(&mut self, now: Millis) -> Vec<Effect> {
        let effects = self.run(now);
        self.publish();
        effects
    }

    /// The first half of [`Bonds::poll`]: makes decisions. The caller installs their tables in the datapath ([`Bonds::tables`])
    /// before it calls the second half, [`Bonds::publish`].
    pub fn run(&mut self, now: Millis) -> Vec<Effect> {
        let mut effects = std::mem::take(&mut self.effects);
        let mut announced = Vec::new();
        for bond in self.bonds.values_mut().filter(|bond| bond.deadline().is_some_and(|due| due <= now)) {
            let mut out = Outcome::default();
            // What an expired delay changes may concern other members, and does not at the third time.
            for _ in 0..3 {
                bond.run(now, &mut out);
                if !bond.dirty {
                    break;
                }
            }
            effects.extend(out.log.into_iter().map(Effect::Log));
            let view = bond.view();
            let parts = match self.views.get(&bond.name) {
                Some(before) => view.changes_since(before),
                None => Part::ALL.to_vec(),
            };
            if !parts.is_empty() {
                self.views.insert(Arc::clone(&bond.name), Arc::new(view));
                effects.push(Effect::Changed { bond: Arc::clone(&bond.name), parts });
                self.unpublished = true;
            }
            if out.announce {
                announced.push(Effect::Announce { bond: Arc::clone(&bond.name) });
            }
        }
        effects.extend(announced);
        effects
    }

    /// Publishes new decisions, of which [`Bonds::run`] has returned the effects.
    pub fn publish(&mut self) {
        if std::mem::take(&mut self.unpublished) {
            let views: Views = self.views.iter().map(|(name, view)| (Arc::clone(name), Arc::clone(view))).collect();
            self.published.store(views);
        }
    }

    /// The tables by which the datapath balances. [`Bonds::poll`] may change them, and every change of settings.
    pub fn tables(&self) -> impl Iterator<Item = Table> + '_ {
        self.bonds.values().filter_map(Bond::table)
    }

    /// The time at which [`Bonds::poll`] has work next, if any; pending changes are due at once.
    pub fn next_deadline(&self) -> Option<Millis> {
        if !self.effects.is_empty() {
            return Some(Millis(0));
        }
        self.bonds.values().filter_map(Bond::deadline).min()
    }

    /// The state of all bonds, by name.
    pub fn status(&self) -> Vec<Status> {
        let status = |bond: &Bond| Status {
            name: Arc::clone(&bond.name),
            mode: bond.settings.mode,
            lacp: bond.lacp,
            lb_output: bond.settings.uses_lb_output().then_some(bond.number),
            active: bond.active.and_then(|port| Some((port, bond.members.get(&port)?.mac))),
            active_name: bond.active.and_then(|port| Some(Arc::clone(&bond.members.get(&port)?.name))),
            members: bond.members.iter().map(|(port, member)| member_status(bond, *port, member)).collect(),
        };
        self.bonds.values().map(status).collect()
    }
}

fn member_status(bond: &Bond, port: BridgePort, member: &Member) -> MemberStatus {
    let of_member = (0..=u8::MAX).zip(bond.buckets.iter()).filter(|(_, bucket)| bucket.owner == Some(port));
    MemberStatus {
        port,
        name: Arc::clone(&member.name),
        mac: member.mac,
        enabled: member.enabled,
        may_enable: member.is_up(),
        loads: of_member.map(|(hash, bucket)| (hash, bucket.load)).filter(|(_, load)| *load > 0).collect(),
    }
}

impl Bonds {
    /// Adds effects for the next poll.
    pub(crate) fn add_effects(&mut self, log: Vec<String>, announce: Option<Effect>) {
        self.effects.extend(log.into_iter().map(Effect::Log).chain(announce));
    }
}
