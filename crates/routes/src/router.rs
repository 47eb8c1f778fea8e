//! The router: tables and rules, lookups, and the answers that translations depend on.
//!
//! [`Router::resolve`] keeps each answer as long as a translation holds its [`Dependency`]. A change of a route asks
//! again for the destinations in its prefix only, and makes stale the answers that differ, and no others.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use base::Millis;

use crate::dependency::Dependency;
use crate::kernel::{Concerned, Kernel, KernelChange, Step, source_for};
use crate::prefix::{Prefix, width};
use crate::rules::{Rule, Rules, TABLE_LOCAL, TABLE_MAIN};
use crate::table::{Entry, Origin, RouteRow, Shown, Tables};

/// Answers kept at most; further ones become stale with any change.
const ANSWERS_MAX: usize = 1 << 17;

/// What a lookup asks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Query {
    /// The destination address.
    pub destination: IpAddr,
    /// The packet mark: routes hold for one mark only.
    pub mark: u32,
    /// The source address, if it is given. It must be an address of this host.
    pub source: Option<IpAddr>,
}

impl Query {
    /// Asks for a destination, without a mark or a source.
    pub fn to(destination: IpAddr) -> Self {
        Self { destination, mark: 0, source: None }
    }
}

/// The way to a destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// The output device: the name of a bridge or of another device.
    pub device: Arc<str>,
    /// The next hop, unless that is the destination itself.
    pub gateway: Option<IpAddr>,
    /// The source address of packets: the given one, or the route's.
    pub source: IpAddr,
    /// The destination is an address of this host.
    pub local: bool,
}

impl Route {
    /// The address whose neighbour entry packets need.
    pub fn next_hop(&self, destination: IpAddr) -> IpAddr {
        self.gateway.unwrap_or(destination)
    }
}

/// The result of a lookup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lookup {
    /// The route, if there is one.
    pub route: Option<Route>,
    /// How many leading bits of the destination decided the route and its next hop, in the tables as they are. The mark
    /// and the source of the query are decisive in all their bits.
    pub destination_bits: u8,
}

/// A route that a command adds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserRoute {
    /// The number of its table.
    pub table: u32,
    /// The destinations.
    pub prefix: Prefix,
    /// The packet mark for which it holds.
    pub mark: u32,
    /// The output device.
    pub device: String,
    /// The next hop, unless destinations are on the link.
    pub gateway: Option<IpAddr>,
    /// The source address, which must be one of the device whose prefix has the destination or the gateway.
    pub source: Option<IpAddr>,
}

/// Why a route cannot be added: the device has no fitting source address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no source address")]
pub struct NoSource;

#[derive(Debug)]
struct Answer {
    route: Option<Route>,
    dependency: Dependency,
}

/// Routes, rules and addresses, with lookups.
#[derive(Debug)]
pub struct Router {
    tables: Tables,
    rules: Rules,
    kernel: Kernel,
    /// Addresses of devices that the kernel does not know.
    devices: HashMap<String, Vec<(IpAddr, u8)>>,
    answers: BTreeMap<Query, Answer>,
    /// When to look for answers without a holder: at this number.
    sweep_at: usize,
    /// The dependency of answers beyond the limit.
    any: Dependency,
    stale: Stale,
}

/// The answers that have become stale.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Stale {
    /// The queries.
    pub queries: Vec<Query>,
    /// Besides, each answer beyond the number that the router keeps, whichever query it is to.
    pub beyond: bool,
}

impl Default for Router {
    fn default() -> Self {
        Self {
            tables: Tables::default(),
            rules: Rules::default(),
            kernel: Kernel::default(),
            devices: HashMap::new(),
            answers: BTreeMap::new(),
            sweep_at: 64,
            any: Dependency::new(Millis(0)),
            stale: Stale::default(),
        }
    }
}

/// Lookups.
impl Router {
    /// Looks a destination up: the first table of a selecting rule that has a route decides. A given source must be a
    /// local address for the mark.
    pub fn lookup(&self, query: &Query) -> Lookup {
        let (destination, full) = (query.destination, width(query.destination));
        let none = |destination_bits| Lookup { route: None, destination_bits };
        let local = |source| self.tables.get(TABLE_LOCAL).and_then(|table| table.lookup(source, query.mark).0);
        let source = query.source.filter(|source| !source.is_unspecified());
        if let Some(source) = source
            && (source.is_ipv4() != destination.is_ipv4() || !local(source).is_some_and(|entry| entry.local))
        {
            return none(0);
        }
        let mut consulted = 0;
        for table in self.rules.tables(source) {
            let Some(table) = self.tables.get(table) else { continue };
            let (found, bits) = table.lookup(destination, query.mark);
            consulted = consulted.max(bits);
            if let Some(entry) = found {
                let (device, gateway, own) = entry.hop(flow_hash(destination, source));
                let is_per_destination = gateway.is_none() || !entry.hops.is_empty();
                let destination_bits = if is_per_destination { full } else { consulted };
                let (device, source) = (Arc::clone(device), source.unwrap_or(own));
                let route = Route { device, gateway, source, local: entry.local };
                return Lookup { route: Some(route), destination_bits };
            }
        }
        none(consulted)
    }

    /// The kept answer to a query, if a translation has asked it before. Needs no exclusive access.
    pub fn known(&self, query: &Query) -> Option<(Option<&Route>, Dependency)> {
        let answer = self.answers.get(query)?;
        Some((answer.route.as_ref(), answer.dependency.clone()))
    }

    /// The route to a destination for a translation, with the handle that becomes stale when the route to this very
    /// destination changes. A header that a cached flow pushes holds the destination, so such a flow matches it in all
    /// bits.
    pub fn resolve(&mut self, query: Query) -> (Option<Route>, Dependency) {
        if let Some((route, dependency)) = self.known(&query) {
            return (route.cloned(), dependency);
        }
        let route = self.lookup(&query).route;
        if self.answers.len() >= self.sweep_at {
            self.answers.retain(|_, answer| answer.dependency.is_held());
            self.sweep_at = (self.answers.len() * 2).clamp(64, ANSWERS_MAX);
        }
        if self.answers.len() >= ANSWERS_MAX {
            return (route, self.any.clone());
        }
        let dependency = Dependency::new(Millis(0));
        self.answers.insert(query, Answer { route: route.clone(), dependency: dependency.clone() });
        (route, dependency)
    }

    /// Asks the given queries again, and makes stale the answers that differ.
    fn ask_again(&mut self, queries: BTreeSet<Query>) {
        for query in queries {
            let Some(answer) = self.answers.get(&query) else { continue };
            let held = answer.dependency.is_held();
            if held && self.lookup(&query).route == answer.route {
                continue;
            }
            answer.dependency.invalidate();
            self.answers.remove(&query);
            self.stale.queries.push(query);
        }
    }

    /// The answers that have become stale since the last call. The caller takes them after each change.
    pub fn take_stale(&mut self) -> Stale {
        std::mem::take(&mut self.stale)
    }

    /// Reconsiders the answers that changes of these routes may concern.
    fn reconsider(&mut self, changed: &[(u32, Prefix)]) {
        if changed.is_empty() {
            return;
        }
        self.renew_any();
        let mut queries = BTreeSet::new();
        for (table, prefix) in changed {
            queries.extend(self.answers.range(destinations(*prefix)).map(|(query, _)| *query));
            if *table == TABLE_LOCAL {
                // Whether a given source is local.
                let of_source = |query: &&Query| query.source.is_some_and(|source| prefix.contains(source));
                queries.extend(self.answers.keys().filter(of_source));
            }
        }
        self.ask_again(queries);
    }

    fn reconsider_all(&mut self) {
        self.renew_any();
        let queries = self.answers.keys().copied().collect();
        self.ask_again(queries);
    }

    fn renew_any(&mut self) {
        if self.any.is_held() {
            self.any.invalidate();
            self.stale.beyond = true;
            self.any = Dependency::new(Millis(0));
        }
    }
}

/// The hash of a flow by which one of several next hops is chosen: of the addresses, as Linux does by default
/// (`fib_multipath_hash_policy`). Tunnels with one remote address keep to one next hop.
fn flow_hash(destination: IpAddr, source: Option<IpAddr>) -> u32 {
    let bits = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => u128::from(ip.to_bits()),
        IpAddr::V6(ip) => ip.to_bits(),
    };
    let words = [destination].into_iter().chain(source).map(bits).flat_map(|bits| [bits as u64, (bits >> 64) as u64]);
    // The finalizer of SplitMix64, for each word.
    let mix = |hash: u64, word: u64| {
        let mut hash = (hash ^ word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        hash ^ (hash >> 31)
    };
    (words.fold(0, mix) >> 32) as u32
}

/// The queries with a destination in a prefix.
fn destinations(prefix: Prefix) -> RangeInclusive<Query> {
    let first = Query { destination: prefix.address(), mark: 0, source: None };
    let last = IpAddr::V6(std::net::Ipv6Addr::from_bits(u128::MAX));
    first..=Query { destination: prefix.last(), mark: u32::MAX, source: Some(last) }
}

/// Routes and rules of commands.
impl Router {
    /// Adds a route, in place of another with the same table, prefix and mark. Chooses the source address: the first of
    /// the device whose prefix has the destination, or else the gateway.
    pub fn add_route(&mut self, route: UserRoute) -> Result<(), NoSource> {
        let addresses = self.addresses(&route.device);
        let source = source_for(&addresses, route.prefix.address(), route.gateway, route.source).ok_or(NoSource)?;
        let UserRoute { table, prefix, mark, device, gateway, .. } = route;
        let entry = Entry {
            mark,
            origin: Origin::User,
            device: device.into(),
            gateway,
            source,
            local: false,
            hops: Vec::new(),
        };
        if self.tables.get_mut(table).insert(prefix, entry) {
            self.reconsider(&[(table, prefix)]);
        }
        Ok(())
    }

    /// Removes a route that a command has added. Returns whether there was one.
    pub fn remove_route(&mut self, table: u32, prefix: Prefix, mark: u32) -> bool {
        let removed = self.tables.existing_mut(table).is_some_and(|t| t.remove(prefix, mark, Origin::User));
        if removed {
            self.reconsider(&[(table, prefix)]);
        }
        removed
    }

    /// Whether a table exists: those of all routes there ever were, and local and main.
    pub fn has_table(&self, table: u32) -> bool {
        self.tables.get(table).is_some()
    }

    /// Adds a rule. A priority of 0 stands for the highest free one below the highest used one.
    pub fn add_rule(&mut self, rule: Rule) {
        let priority = if rule.priority == 0 { self.rules.next_priority() } else { rule.priority };
        self.rules.insert(Rule { priority, user: true, ..rule });
        self.reconsider_all();
    }

    /// Removes the first equal rule that a command has added, of any priority if that is 0. Returns whether there was
    /// one.
    pub fn remove_rule(&mut self, rule: &Rule) -> bool {
        let removed = self.rules.remove(rule);
        if removed {
            self.reconsider_all();
        }
        removed
    }

    /// The rules, in order.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    /// The rows of `ovs/route/show`. `None` if there is no such table.
    pub fn rows(&self, which: Shown) -> Option<Vec<RouteRow>> {
        self.tables.rows(which)
    }
}

/// The kernel's state, and addresses of other devices.
impl Router {
    /// Applies a change of the kernel. [`Step::Dump`] asks for [`Self::replace_kernel`].
    pub fn apply(&mut self, change: KernelChange) -> Step {
        let (step, concerned) = self.kernel.apply(change);
        match concerned {
            Concerned::Nothing => {}
            Concerned::Rules => self.renew_rules(),
            Concerned::Route(table, prefix) => self.derive([(table, prefix)]),
            Concerned::Device(ifindex) => self.derive(self.kernel.keys_of_device(ifindex)),
        }
        step
    }

    /// Replaces the kernel's state by a dump. Only what differs concerns translations.
    pub fn replace_kernel(&mut self, dump: impl IntoIterator<Item = KernelChange>) {
        let old = std::mem::replace(&mut self.kernel, Kernel::of_dump(dump));
        self.renew_rules();
        let keys: BTreeSet<_> = old.keys().chain(self.kernel.keys()).collect();
        self.derive(keys);
    }

    fn renew_rules(&mut self) {
        let before = self.rules.kernel_tables();
        if !self.rules.replace_kernel(self.kernel.rules()) {
            return;
        }
        let changed: BTreeSet<_> = before.symmetric_difference(&self.rules.kernel_tables()).copied().collect();
        let concerned = |(table, prefix): &(u32, Prefix)| changed.contains(&(*table, prefix.address().is_ipv4()));
        let keys: Vec<_> = self.kernel.keys().filter(concerned).collect();
        self.derive(keys);
        self.reconsider_all();
    }

    /// Brings the tables' entries of these prefixes in step with the replica. As in Open vSwitch, the kernel's routes are
    /// in use only in tables that its own rules of the family refer to.
    fn derive(&mut self, keys: impl IntoIterator<Item = (u32, Prefix)>) {
        let mut changed = Vec::new();
        let used = self.rules.kernel_tables();
        for (table, prefix) in keys {
            let used = used.contains(&(table, prefix.address().is_ipv4()));
            let differs = match self.kernel.chosen((table, prefix)).filter(|_| used) {
                Some(entry) => self.tables.get_mut(table).insert(prefix, entry),
                None => self.tables.existing_mut(table).is_some_and(|t| t.remove(prefix, 0, Origin::Kernel)),
            };
            changed.extend(differs.then_some((table, prefix)));
        }
        self.reconsider(&changed);
    }

    /// Sets the addresses of a device that the kernel does not know, each with the length of the prefix on its link. They
    /// give local routes, and routes to the prefixes.
    pub fn set_device_addresses(&mut self, device: &str, addresses: &[(IpAddr, u8)]) {
        let mut changed = Vec::new();
        let own = |entry: &Entry| &*entry.device == device;
        let mut wanted = Vec::new();
        for (address, len) in addresses {
            let Some(prefix) = Prefix::new(*address, *len) else { continue };
            let entry = |local| {
                let (device, source) = (device.into(), *address);
                Entry { mark: 0, origin: Origin::Device, device, gateway: None, source, local, hops: Vec::new() }
            };
            wanted.push((TABLE_LOCAL, Prefix::host(*address), entry(true)));
            wanted.push((TABLE_MAIN, prefix, entry(false)));
        }
        for number in self.tables.numbers() {
            let table = self.tables.get_mut(number);
            for (prefix, mark) in table.matching(Origin::Device, own) {
                if !wanted.iter().any(|(table, other, _)| (*table, *other) == (number, prefix)) {
                    table.remove(prefix, mark, Origin::Device);
                    changed.push((number, prefix));
                }
            }
        }
        for (table, prefix, entry) in wanted {
            if self.tables.get_mut(table).insert(prefix, entry) {
                changed.push((table, prefix));
            }
        }
        match addresses {
            [] => drop(self.devices.remove(device)),
            _ => drop(self.devices.insert(device.to_owned(), addresses.to_vec())),
        }
        self.reconsider(&changed);
    }

    /// The addresses of a device, each with the length of the prefix on its link.
    pub fn addresses(&self, device: &str) -> Vec<(IpAddr, u8)> {
        let others = self.devices.get(device).map_or(&[][..], Vec::as_slice);
        self.kernel.addresses(device).iter().chain(others).copied().collect()
    }

    /// Whether an address is one of a device.
    pub fn has_address(&self, device: &str, address: IpAddr) -> bool {
        let others = self.devices.get(device).map_or(&[][..], Vec::as_slice);
        self.kernel.addresses(device).iter().chain(others).any(|(other, _)| *other == address)
    }

    /// Whether a device of the kernel has a carrier.
    pub fn carrier(&self, device: &str) -> Option<bool> {
        self.kernel.carrier(device)
    }
}

#[cfg(test)]
#[path = "router_tests.rs"]
mod tests;
