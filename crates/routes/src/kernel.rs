//! A replica of the kernel's links, addresses, routes and rules, and the routes that follow from them.
//!
//! The replica is fed with [`KernelChange`]s in the order of the kernel's notifications. These do not tell all: the
//! kernel removes routes silently when a link goes down, and joins IPv6 routes to one. Where a change does not fit to
//! the replica, or may have silent consequences, [`Step::Dump`] asks for a fresh dump.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use crate::prefix::Prefix;
use crate::rules::Rule;
use crate::table::{Entry, Hop, Origin};

/// Whether the kernel uses a next hop.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum HopState {
    /// It does.
    Usable,
    /// The link has no carrier: chosen only if the route has no usable next hop.
    NoCarrier,
    /// The link is down.
    Dead,
}

/// A next hop of a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextHop {
    /// The index of the output device.
    pub ifindex: u32,
    /// The router, unless destinations are on the link. Its family may differ from the route's (RFC 5549).
    pub gateway: Option<IpAddr>,
    /// Whether it is used.
    pub state: HopState,
    /// Its weight beside the route's other next hops, from 1 to 256.
    pub weight: u32,
}

/// A unicast or local route of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KernelRoute {
    /// The number of its table.
    pub table: u32,
    /// The destinations.
    pub prefix: Prefix,
    /// The type of service that it is limited to, or 0.
    pub tos: u8,
    /// The metric: the smallest is used.
    pub metric: u32,
    /// The destination is an address of this host.
    pub local: bool,
    /// The preferred source address.
    pub source: Option<IpAddr>,
    /// The next hops, at least one.
    pub hops: Vec<NextHop>,
}

/// How a new route enters the kernel's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// Beside the others.
    Added,
    /// Instead of the one with the same prefix, type of service and metric.
    Replaced,
}

/// A change in the kernel, or an item of a dump.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KernelChange {
    /// A link is there.
    Link {
        /// Its index.
        ifindex: u32,
        /// Its name.
        name: String,
        /// Whether it is enabled.
        up: bool,
        /// Whether it has a carrier.
        carrier: bool,
    },
    /// A link is gone.
    LinkGone {
        /// Its index.
        ifindex: u32,
    },
    /// A device has an address.
    Address {
        /// The device.
        ifindex: u32,
        /// The address.
        address: IpAddr,
        /// The length of the prefix that is on the link.
        len: u8,
    },
    /// A device has lost an address.
    AddressGone {
        /// The device.
        ifindex: u32,
        /// The address.
        address: IpAddr,
        /// The length of the prefix that is on the link.
        len: u8,
    },
    /// A route.
    Route(KernelRoute, Placement),
    /// A route is gone.
    RouteGone(KernelRoute),
    /// A change of routes whose effect only a dump shows: one that is not used has replaced another.
    Unclear,
    /// A rule.
    Rule(Rule),
    /// A rule is gone.
    RuleGone(Rule),
}

/// Whether the replica follows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Step {
    /// The replica agrees with the kernel.
    Followed,
    /// Only a fresh dump shows the kernel's state.
    Dump,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Link {
    name: Arc<str>,
    up: bool,
    carrier: bool,
}

/// Chooses the source address of packets over a device, given the route's destination and gateway: the first of the
/// device's addresses of whose prefix the destination is part, or else the gateway. `wanted` must be such an address, if
/// given.
pub(crate) fn source_for(
    addresses: &[(IpAddr, u8)],
    destination: IpAddr,
    gateway: Option<IpAddr>,
    wanted: Option<IpAddr>,
) -> Option<IpAddr> {
    let on_link_of = |target: IpAddr| {
        let on_link = |(address, len): &&(IpAddr, u8)| Prefix::new(*address, *len).is_some_and(|p| p.contains(target));
        let mut found = addresses.iter().filter(on_link).map(|(address, _)| *address);
        found.find(|address| wanted.is_none_or(|wanted| wanted == *address))
    };
    on_link_of(destination).or_else(|| on_link_of(gateway?))
}

/// The replica.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kernel {
    links: HashMap<u32, Link>,
    addresses: HashMap<u32, Vec<(IpAddr, u8)>>,
    routes: BTreeMap<(u32, Prefix), Vec<KernelRoute>>,
    rules: Vec<Rule>,
}

/// Which derived routes a change concerns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Concerned {
    /// None.
    Nothing,
    /// The rules.
    Rules,
    /// The routes of a table with one prefix.
    Route(u32, Prefix),
    /// The routes over a device.
    Device(u32),
}

impl Kernel {
    /// The state that a dump describes.
    pub(crate) fn of_dump(dump: impl IntoIterator<Item = KernelChange>) -> Self {
        let mut kernel = Self::default();
        for item in dump {
            match item {
                // A dump lists each of the routes that notifications would call ambiguous.
                KernelChange::Route(route, _) => {
                    kernel.routes.entry((route.table, route.prefix)).or_default().push(route);
                }
                other => drop(kernel.apply(other)),
            }
        }
        kernel
    }

    /// Applies a change.
    pub(crate) fn apply(&mut self, change: KernelChange) -> (Step, Concerned) {
        match change {
            KernelChange::Link { ifindex, name, up, carrier } => {
                let link = Link { name: name.into(), up, carrier };
                let earlier = self.links.insert(ifindex, link.clone());
                match earlier {
                    Some(earlier) if earlier == link => (Step::Followed, Concerned::Nothing),
                    // The kernel does not report the routes that it removes or that become dead.
                    Some(earlier) if (earlier.up, earlier.carrier) != (up, carrier) => {
                        (Step::Dump, Concerned::Device(ifindex))
                    }
                    _ => (Step::Followed, Concerned::Device(ifindex)),
                }
            }
            KernelChange::LinkGone { ifindex } => {
                self.addresses.remove(&ifindex);
                let known = self.links.remove(&ifindex).is_some();
                (if known { Step::Dump } else { Step::Followed }, Concerned::Device(ifindex))
            }
            KernelChange::Address { ifindex, address, len } => {
                let addresses = self.addresses.entry(ifindex).or_default();
                if addresses.contains(&(address, len)) {
                    return (Step::Followed, Concerned::Nothing);
                }
                // The kernel's order of a device's addresses decides about source addresses, and shows in dumps only.
                let first = !addresses.iter().any(|(other, _)| other.is_ipv4() == address.is_ipv4());
                addresses.push((address, len));
                (if first { Step::Followed } else { Step::Dump }, Concerned::Device(ifindex))
            }
            KernelChange::AddressGone { ifindex, address, len } => {
                let Some(addresses) = self.addresses.get_mut(&ifindex) else {
                    return (Step::Followed, Concerned::Nothing);
                };
                addresses.retain(|other| *other != (address, len));
                // Routes with this source address vanish silently.
                (Step::Dump, Concerned::Device(ifindex))
            }
            KernelChange::Unclear => (Step::Dump, Concerned::Nothing),
            KernelChange::Route(route, placement) => self.add_route(route, placement),
            KernelChange::RouteGone(route) => self.remove_route(&route),
            KernelChange::Rule(rule) => {
                self.rules.push(rule);
                (Step::Followed, Concerned::Rules)
            }
            KernelChange::RuleGone(rule) => match self.rules.iter().position(|other| *other == rule) {
                Some(at) => {
                    self.rules.remove(at);
                    (Step::Followed, Concerned::Rules)
                }
                None => (Step::Dump, Concerned::Nothing),
            },
        }
    }

    fn add_route(&mut self, route: KernelRoute, placement: Placement) -> (Step, Concerned) {
        let key = (route.table, route.prefix);
        let routes = self.routes.entry(key).or_default();
        let same = |other: &KernelRoute| other.tos == route.tos && other.metric == route.metric;
        let known = routes.iter().position(same);
        let step = match (known, placement) {
            (Some(at), Placement::Replaced) if route.prefix.address().is_ipv4() => {
                routes[at] = route;
                Step::Followed
            }
            (None, Placement::Added) => {
                routes.push(route);
                Step::Followed
            }
            // IPv6 routes of one metric may have been joined; the place among equals is unknown; a replaced route may be
            // of another metric.
            _ => {
                routes.push(route);
                Step::Dump
            }
        };
        (step, Concerned::Route(key.0, key.1))
    }

    fn remove_route(&mut self, route: &KernelRoute) -> (Step, Concerned) {
        let key = (route.table, route.prefix);
        // The state of the next hops may have changed since.
        let same_hop = |a: &NextHop, b: &NextHop| (a.ifindex, a.gateway) == (b.ifindex, b.gateway);
        let same = |other: &KernelRoute| {
            (other.tos, other.metric, other.local, other.source) == (route.tos, route.metric, route.local, route.source)
                && other.hops.len() == route.hops.len()
                && other.hops.iter().zip(&route.hops).all(|(a, b)| same_hop(a, b))
        };
        let Some(routes) = self.routes.get_mut(&key) else { return (Step::Dump, Concerned::Nothing) };
        let Some(at) = routes.iter().position(same) else { return (Step::Dump, Concerned::Nothing) };
        routes.remove(at);
        if routes.is_empty() {
            self.routes.remove(&key);
        }
        (Step::Followed, Concerned::Route(key.0, key.1))
    }

    /// The prefixes, with their tables, that have routes.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (u32, Prefix)> {
        self.routes.keys().copied()
    }

    /// The prefixes, with their tables, that have a route over a device.
    pub(crate) fn keys_of_device(&self, ifindex: u32) -> Vec<(u32, Prefix)> {
        let over = |route: &KernelRoute| route.hops.iter().any(|hop| hop.ifindex == ifindex);
        self.routes.iter().filter(|(_, routes)| routes.iter().any(over)).map(|(key, _)| *key).collect()
    }

    /// The route to use among those of a table with one prefix: that of the smallest metric that has a next hop which is
    /// not dead and a source address, with all such next hops of the best state.
    pub(crate) fn chosen(&self, (table, prefix): (u32, Prefix)) -> Option<Entry> {
        let mut routes: Vec<&KernelRoute> = self.routes.get(&(table, prefix))?.iter().collect();
        routes.sort_by_key(|route| (route.tos, route.metric));
        routes.into_iter().find_map(|route| {
            [HopState::Usable, HopState::NoCarrier].into_iter().find_map(|state| self.entry(route, state))
        })
    }

    /// The entry for a route, with its next hops of one state; `None` if it has none.
    fn entry(&self, route: &KernelRoute, state: HopState) -> Option<Entry> {
        let of_state = route.hops.iter().filter(|hop| hop.state == state);
        let mut hops: Vec<Hop> = of_state.filter_map(|hop| self.hop(route, hop)).collect();
        let Hop { device, gateway, source, .. } = hops.first()?.clone();
        if hops.len() == 1 {
            hops.clear();
        }
        Some(Entry { mark: 0, origin: Origin::Kernel, device, gateway, source, local: route.local, hops })
    }

    fn hop(&self, route: &KernelRoute, hop: &NextHop) -> Option<Hop> {
        let link = self.links.get(&hop.ifindex)?;
        if !(link.up || route.local) {
            return None;
        }
        let addresses = self.addresses.get(&hop.ifindex).map_or(&[][..], Vec::as_slice);
        let destination = route.prefix.address();
        let source = match hop.gateway {
            // No subnet tells which address fits to a router of the other family.
            Some(gateway) if gateway.is_ipv4() != destination.is_ipv4() => {
                let mut usable = addresses.iter().map(|(a, _)| *a).filter(|a| a.is_ipv4() == destination.is_ipv4());
                usable.find(|address| route.source.is_none_or(|wanted| wanted == *address))
            }
            gateway => source_for(addresses, destination, gateway, route.source),
        };
        let (device, gateway) = (Arc::clone(&link.name), hop.gateway);
        Some(Hop { device, gateway, source: source?, weight: hop.weight })
    }

    /// The kernel's rules.
    pub(crate) fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// The index of the device with a name.
    fn ifindex(&self, device: &str) -> Option<u32> {
        self.links.iter().find(|(_, link)| &*link.name == device).map(|(ifindex, _)| *ifindex)
    }

    /// The addresses of a device.
    pub(crate) fn addresses(&self, device: &str) -> &[(IpAddr, u8)] {
        self.ifindex(device).and_then(|ifindex| self.addresses.get(&ifindex)).map_or(&[], Vec::as_slice)
    }

    /// Whether a device has a carrier.
    pub(crate) fn carrier(&self, device: &str) -> Option<bool> {
        self.links.get(&self.ifindex(device)?).map(|link| link.carrier)
    }
}
