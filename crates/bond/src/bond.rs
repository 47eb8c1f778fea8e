//! One bond: the delays of its members' links, the active member, the owners of buckets.
//!
//! Invariants: after [`Bond::run`], the active member is enabled, and there is one if any member is enabled; a bucket's owner
//! is enabled.

use crate::BUCKETS;
use crate::rebalance::rebalance;
use crate::settings::{Detection, LacpStatus, Link, MemberSettings, Mode, Settings};
use crate::view::{Balance, Loads, Table, View};
use base::{BridgePort, MacAddr, Millis, PortNo};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A member.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) name: Arc<str>,
    pub(crate) mac: MacAddr,
    /// The link as it was last reported.
    pub(crate) link: Link,
    /// The carrier as the bond has detected it.
    carrier: bool,
    pub(crate) enabled: bool,
    /// When the member is enabled or disabled, if its link is in the other state.
    pub(crate) delay: Option<Millis>,
}

impl Member {
    fn new(settings: MemberSettings) -> Self {
        let MemberSettings { name, mac, link } = settings;
        let enabled = link.carrier && link.may_enable;
        Self { name, mac, link, carrier: link.carrier, enabled, delay: None }
    }

    /// Returns true if the link is up and no protocol objects to the member.
    pub(crate) fn is_up(&self) -> bool {
        self.carrier && self.link.may_enable
    }
}

/// A set of source addresses, or of hashes, that use the same member.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bucket {
    pub(crate) owner: Option<BridgePort>,
    /// Bytes, of which each attempt to rebalance halves the old ones.
    pub(crate) load: u64,
}

/// The results of a run.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) log: Vec<String>,
    /// Neighbouring switches are to learn where addresses are now.
    pub(crate) announce: bool,
}

/// A bond.
#[derive(Debug)]
pub(crate) struct Bond {
    pub(crate) name: Arc<str>,
    /// Its number among the bonds that balance; 0 for others.
    pub(crate) number: u32,
    pub(crate) settings: Settings,
    pub(crate) lacp: LacpStatus,
    pub(crate) members: BTreeMap<BridgePort, Member>,
    pub(crate) active: Option<BridgePort>,
    pub(crate) buckets: Box<[Bucket; BUCKETS]>,
    pub(crate) next_rebalance: Option<Millis>,
    next_sample: Option<Millis>,
    loads: Arc<Loads>,
    /// Something has changed since the last run.
    pub(crate) dirty: bool,
}

impl Bond {
    /// A bond without members.
    pub(crate) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            number: 0,
            settings: Settings::default(),
            lacp: LacpStatus::default(),
            members: BTreeMap::new(),
            active: None,
            buckets: Box::new([Bucket::default(); BUCKETS]),
            next_rebalance: None,
            next_sample: None,
            loads: Arc::default(),
            dirty: true,
        }
    }

    /// Makes `settings` the current ones. Members that are in both the old and the new keep their states.
    pub(crate) fn configure(&mut self, settings: Settings, now: Millis, out: &mut Outcome) {
        let before = std::mem::replace(&mut self.settings, settings);
        for (port, member) in self.members.extract_if(.., |port, _| !self.settings.members.contains_key(port)) {
            if member.enabled {
                out.log.push(format!("member {}: disabled", member.name));
            }
            if self.active == Some(port) {
                self.active = None;
            }
        }
        for (port, new) in &self.settings.members {
            match self.members.get_mut(port) {
                Some(member) => {
                    (member.name, member.mac, member.link) = (Arc::clone(&new.name), new.mac, new.link);
                }
                None => {
                    let member = Member::new(new.clone());
                    if member.enabled {
                        out.log.push(format!("member {}: enabled", member.name));
                    }
                    self.members.insert(*port, member);
                }
            }
        }
        if before.detection != self.settings.detection || self.next_sample.is_none() {
            self.next_sample = match self.settings.detection {
                Detection::Carrier => None,
                Detection::Miimon(interval) => Some(now.after(interval.max(1))),
            };
        }
        self.restart_rebalancing(&before, now);
        self.dirty = true;
    }

    /// Starts a new interval, and forgets loads whose hashes are other ones now.
    fn restart_rebalancing(&mut self, before: &Settings, now: Millis) {
        let hashes = |settings: &Settings| (settings.mode, settings.hash_basis);
        let members = |settings: &Settings| settings.members.keys().copied().collect::<Vec<_>>();
        let rest = |settings: &Settings| (settings.rebalance_interval(), settings.lacp_fallback, members(settings));
        if hashes(before) != hashes(&self.settings) {
            (0..BUCKETS).for_each(|bucket| _ = self.loads.take(bucket));
            self.buckets.iter_mut().for_each(|bucket| bucket.load = 0);
        } else if rest(before) == rest(&self.settings) {
            return;
        }
        self.next_rebalance = self.settings.rebalance_interval().map(|interval| now.after(interval));
    }

    /// How the bond balances now.
    pub(crate) fn balance(&self) -> Balance {
        match (self.lacp, self.settings.mode) {
            (LacpStatus::Configured, _) if self.settings.lacp_fallback => Balance::ActiveBackup,
            (LacpStatus::Configured, _) | (LacpStatus::Disabled, Mode::BalanceTcp) => Balance::Blocked,
            (_, Mode::ActiveBackup) => Balance::ActiveBackup,
            (_, Mode::BalanceSlb) => Balance::Slb,
            (LacpStatus::Negotiated, Mode::BalanceTcp) => Balance::Tcp,
        }
    }

    /// Brings members, the active member and buckets up to date, and rebalances if it is time to.
    pub(crate) fn run(&mut self, now: Millis, out: &mut Outcome) {
        self.dirty = false;
        self.sample(now);
        let before: Vec<bool> = self.members.values().map(|member| member.enabled).collect();
        let ports: Vec<BridgePort> = self.members.keys().copied().collect();
        ports.iter().for_each(|port| self.follow_link(*port, now, out));
        self.select_active(now, out);
        let changed = || self.members.values().zip(&before).filter(|(member, before)| member.enabled != **before);
        let (gained, lost) =
            (changed().any(|(member, _)| member.enabled), changed().any(|(member, _)| !member.enabled));
        if lost {
            self.announce(out);
        }
        self.assign_buckets();
        if gained {
            self.spread_idle_buckets();
        }
        if self.next_rebalance.is_some_and(|due| due <= now) {
            self.rebalance(out);
            self.next_rebalance = self.settings.rebalance_interval().map(|interval| now.after(interval));
        }
    }

    /// Takes over the carriers, at the intervals of `miimon` if that is configured.
    fn sample(&mut self, now: Millis) {
        if self.next_sample.is_some_and(|due| due > now) {
            return;
        }
        self.members.values_mut().for_each(|member| member.carrier = member.link.carrier);
        self.next_sample = match self.settings.detection {
            Detection::Carrier => None,
            Detection::Miimon(interval) => Some(now.after(interval.max(1))),
        };
    }

    /// Starts, ends or carries out the delayed change of a member whose link has another state than the member.
    fn follow_link(&mut self, port: BridgePort, now: Millis, out: &mut Outcome) {
        let Some(member) = self.members.get_mut(&port) else { return };
        let (name, up) = (&member.name, member.is_up());
        let word = |up| if up { "up" } else { "down" };
        let enabled = |on| if on { "enabled" } else { "disabled" };
        match member.delay {
            Some(_) if up == member.enabled => {
                member.delay = None;
                out.log.push(format!("member {name}: link state {}", word(up)));
                out.log.push(format!("member {name}: will not be {}", enabled(!up)));
            }
            None if up != member.enabled => {
                let delay = match self.lacp {
                    LacpStatus::Negotiated => 0,
                    _ if up => self.settings.updelay_ms,
                    _ => self.settings.downdelay_ms,
                };
                member.delay = Some(now.after(delay));
                out.log.push(format!("member {name}: link state {}", word(up)));
                if delay > 0 {
                    let (what, link) = (enabled(up), word(up));
                    out.log.push(format!("member {name}: will be {what} if it stays {link} for {delay} ms"));
                }
            }
            _ => {}
        }
        if member.delay.is_some_and(|due| due <= now) {
            self.enable(port, up, out);
        }
    }

    /// Enables or disables a member, without a delay.
    pub(crate) fn enable(&mut self, port: BridgePort, enabled: bool, out: &mut Outcome) {
        let Some(member) = self.members.get_mut(&port) else { return };
        member.delay = None;
        if member.enabled != enabled {
            member.enabled = enabled;
            out.log.push(format!("member {}: {}", member.name, if enabled { "enabled" } else { "disabled" }));
        }
        self.dirty = true;
    }

    /// Selects another active member if the present one is not enabled, or is not the primary one.
    fn select_active(&mut self, now: Millis, out: &mut Outcome) {
        let enabled = |port: &BridgePort| self.members.get(port).is_some_and(|member| member.enabled);
        let current = self.active.filter(enabled);
        if let Some(best) = self.primary().or(current).or_else(|| self.first_enabled()) {
            return self.activate(best, String::new(), out);
        }
        // The member whose updelay ends first does not wait for its end.
        let waiting = self.members.iter().filter(|(_, member)| member.is_up());
        let waiting = waiting.filter_map(|(port, member)| Some((member.delay?, *port))).min();
        if let Some((due, port)) = waiting {
            let rest = due.since(now);
            let why = format!(", skipping remaining {rest} ms updelay (since no member was enabled)");
            self.activate(port, why, out);
            return self.enable(port, true, out);
        }
        if self.active.take().is_some() {
            out.log.push(format!("bond {}: all members disabled", self.name));
        }
    }

    /// The primary member, if it is enabled and the mode has one.
    fn primary(&self) -> Option<BridgePort> {
        let primary = self.settings.primary().filter(|_| self.balance() == Balance::ActiveBackup)?;
        let is_primary = |member: &Member| member.name == *primary && member.enabled;
        self.members.iter().find(|(_, member)| is_primary(member)).map(|(port, _)| *port)
    }

    fn first_enabled(&self) -> Option<BridgePort> {
        let enabled = self.members.iter().filter(|(_, member)| member.enabled);
        enabled.min_by_key(|(_, member)| Arc::clone(&member.name)).map(|(port, _)| *port)
    }

    /// Makes a member the active one.
    pub(crate) fn activate(&mut self, port: BridgePort, why: String, out: &mut Outcome) {
        if self.active == Some(port) {
            return;
        }
        self.active = Some(port);
        self.dirty = true;
        let name = self.members.get(&port).map_or("", |member| &member.name);
        out.log.push(format!("bond {}: active member is now {name}{why}", self.name));
        self.announce(out);
    }

    /// Asks for learning frames, unless LACP lets the neighbour distribute its frames itself.
    fn announce(&self, out: &mut Outcome) {
        let may = match (self.lacp, self.balance()) {
            (LacpStatus::Negotiated, _) | (_, Balance::Blocked) => false,
            (LacpStatus::Disabled | LacpStatus::Configured, _) => self.active.is_some(),
        };
        out.announce |= may;
    }

    /// Gives the buckets of disabled members to enabled ones.
    fn assign_buckets(&mut self) {
        self.collect_loads();
        let enabled: Vec<BridgePort> =
            self.members.iter().filter(|(_, member)| member.enabled).map(|(port, _)| *port).collect();
        let mut counts: BTreeMap<BridgePort, usize> = enabled.iter().map(|port| (*port, 0)).collect();
        for bucket in self.buckets.iter_mut() {
            match bucket.owner.and_then(|owner| counts.get_mut(&owner)) {
                Some(count) => *count += 1,
                None => bucket.owner = None,
            }
        }
        for bucket in self.buckets.iter_mut().filter(|bucket| bucket.owner.is_none()) {
            let Some((port, count)) = counts.iter_mut().min_by_key(|(_, count)| **count) else { return };
            bucket.owner = Some(*port);
            *count += 1;
        }
    }

    /// Moves buckets without load to members that have less than their share, which reorders no packets.
    fn spread_idle_buckets(&mut self) {
        let mut counts: BTreeMap<BridgePort, usize> =
            self.members.iter().filter(|(_, member)| member.enabled).map(|(port, _)| (*port, 0)).collect();
        let owners = self.buckets.iter().filter_map(|bucket| bucket.owner);
        owners.for_each(|owner| _ = counts.entry(owner).and_modify(|count| *count += 1));
        let share = BUCKETS / counts.len().max(1);
        for bucket in self.buckets.iter_mut().filter(|bucket| bucket.load == 0) {
            let Some((poorest, fewest)) = counts.iter().min_by_key(|(_, count)| **count) else { return };
            let (poorest, fewest) = (*poorest, *fewest);
            let Some(count) = bucket.owner.and_then(|owner| counts.get_mut(&owner)) else { continue };
            if fewest >= share || *count <= share {
                continue;
            }
            *count -= 1;
            bucket.owner = Some(poorest);
            counts.entry(poorest).and_modify(|count| *count += 1);
        }
    }

    /// Adds the bytes that were sent since the last time to the loads of buckets.
    pub(crate) fn collect_loads(&mut self) {
        for (i, bucket) in self.buckets.iter_mut().enumerate() {
            bucket.load = bucket.load.saturating_add(self.loads.take(i));
        }
    }

    /// Moves buckets from members with much load to members with little, then halves the loads.
    fn rebalance(&mut self, out: &mut Outcome) {
        let ports: Vec<BridgePort> =
            self.members.iter().filter(|(_, member)| member.enabled).map(|(port, _)| *port).collect();
        let index = |bucket: &Bucket| ports.iter().position(|port| Some(*port) == bucket.owner);
        let mut owners = self.buckets.each_ref().map(index);
        let loads = self.buckets.each_ref().map(|bucket| bucket.load);
        if matches!(self.balance(), Balance::Slb | Balance::Tcp) && rebalance(&mut owners, &loads, ports.len()) {
            for (bucket, owner) in self.buckets.iter_mut().zip(owners) {
                bucket.owner = owner.and_then(|owner| ports.get(owner)).copied();
            }
            let load = |port: &BridgePort| {
                let of = self.buckets.iter().filter(|bucket| bucket.owner == Some(*port));
                of.map(|bucket| bucket.load).sum::<u64>() / 1024
            };
            let mut carrying: Vec<_> = ports.iter().map(|port| (&self.members[port].name, load(port))).collect();
            carrying.sort();
            let carrying: Vec<String> = carrying.iter().map(|(name, load)| format!("{name}:{load}kB")).collect();
            out.log.push(format!("bond {}: rebalanced (now carrying: {})", self.name, carrying.join(" and ")));
        }
        self.buckets.iter_mut().for_each(|bucket| bucket.load /= 2);
    }

    /// When [`Bond::run`] has work next.
    pub(crate) fn deadline(&self) -> Option<Millis> {
        if self.dirty {
            return Some(Millis(0));
        }
        let delays = self.members.values().filter_map(|member| member.delay);
        delays.chain(self.next_rebalance).chain(self.next_sample).min()
    }

    /// The table by which the datapath balances, if it does.
    pub(crate) fn table(&self) -> Option<Table> {
        self.settings.uses_lb_output().then(|| Table {
            id: self.number,
            hash_basis: self.settings.hash_basis,
            buckets: Box::new(self.buckets.each_ref().map(|bucket| bucket.owner)),
            loads: Arc::clone(&self.loads),
        })
    }

    /// The decisions for translation.
    pub(crate) fn view(&self) -> View {
        let balance = self.balance();
        let enabled: Vec<PortNo> =
            self.members.iter().filter(|(_, member)| member.enabled).map(|(port, _)| port.port).collect();
        // Only bonds that balance publish their buckets, so that others do not change with them.
        let owners = match balance {
            Balance::Slb | Balance::Tcp => self.buckets.each_ref().map(|bucket| bucket.owner.map(|owner| owner.port)),
            Balance::Blocked | Balance::ActiveBackup => [None; BUCKETS],
        };
        View {
            balance,
            negotiated: self.lacp == LacpStatus::Negotiated,
            hash_basis: self.settings.hash_basis,
            active: self.active.map(|port| port.port),
            enabled,
            all_members_active: self.settings.all_members_active,
            buckets: Box::new(owners),
            lb_output: self.settings.uses_lb_output().then_some(self.number),
            loads: Arc::clone(&self.loads),
        }
    }
}
