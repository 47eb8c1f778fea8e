//! Routes and neighbours for the outer packets of tunnels: what translations ask, the commands change, and packets teach.
//!
//! A translation asks under a lock that is held for one look-up. Answers that it got are remembered with their handles: after each
//! change, those that have become stale are reported to the switches, which translate the flows that rest on them anew. Requests for
//! the addresses of neighbours wait until the control thread sends them ([`HostUnderlay::take_requests`]).

use base::{Clock, MacAddr};
use ofproto::{Change, Switch};
use parking_lot::Mutex;
use routes::neighbours::Found;
use routes::{Dependency, Neighbours, Query, Router};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use tokio::sync::Notify;
use xlate::{Resolve, Route, Underlay};

/// Requests that wait at most; more are dropped, and sent when packets ask again.
const REQUESTS_MAX: usize = 1024;

/// See the module documentation.
#[derive(Debug)]
pub struct HostUnderlay {
    clock: Clock,
    router: Mutex<Router>,
    neighbours: Mutex<Neighbours>,
    asked: Mutex<Asked>,
    switches: Mutex<Vec<Weak<Switch>>>,
    requests: Mutex<Vec<Request>>,
    /// Notified when requests wait.
    pub has_requests: Notify,
}

/// What translations have asked, with the handles of the answers.
#[derive(Debug, Default)]
struct Asked {
    routes: HashMap<Query, Dependency>,
    neighbours: HashMap<(Arc<str>, IpAddr), Dependency>,
}

/// A frame that asks for the address of a neighbour, and the bridge whose own port sends it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The bridge, by name.
    pub bridge: Arc<str>,
    /// The frame.
    pub frame: Vec<u8>,
}

impl HostUnderlay {
    /// No routes and no neighbours.
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            router: Mutex::default(),
            neighbours: Mutex::default(),
            asked: Mutex::default(),
            switches: Mutex::default(),
            requests: Mutex::default(),
            has_requests: Notify::new(),
        }
    }

    /// Has a switch ask here.
    pub fn serve(self: &Arc<Self>, switch: &Arc<Switch>) {
        switch.network().tunnels.set_underlay(Arc::clone(self) as Arc<dyn Underlay>);
        self.switches.lock().push(Arc::downgrade(switch));
    }

    /// Forgets the neighbours at a bridge.
    pub fn remove_bridge(&self, name: &str) {
        self.with_neighbours(|neighbours| neighbours.remove_bridge(name));
    }

    /// Reads or changes routes and addresses.
    pub fn with_router<R>(&self, work: impl FnOnce(&mut Router) -> R) -> R {
        let result = work(&mut self.router.lock());
        self.report_stale();
        result
    }

    /// Reads or changes neighbours.
    pub fn with_neighbours<R>(&self, work: impl FnOnce(&mut Neighbours) -> R) -> R {
        let result = work(&mut self.neighbours.lock());
        self.report_stale();
        result
    }

    /// Removes neighbours that have expired.
    pub fn run(&self) {
        let now = self.clock.now();
        self.with_neighbours(|neighbours| neighbours.run(now));
    }

    /// The requests that wait.
    pub fn take_requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.requests.lock())
    }

    /// Reports answers that hold no more.
    fn report_stale(&self) {
        let mut changes = Vec::new();
        {
            let mut asked = self.asked.lock();
            asked.routes.retain(|query, answer| {
                let holds = answer.is_current();
                if !holds {
                    changes.push(Change::Route(query.destination));
                }
                holds
            });
            asked.neighbours.retain(|(_, ip), answer| {
                let holds = answer.is_current();
                if !holds {
                    changes.push(Change::Neighbour(*ip));
                }
                holds
            });
        }
        self.report(&changes);
    }

    fn report(&self, changes: &[Change]) {
        if changes.is_empty() {
            return;
        }
        for switch in self.switches.lock().iter().filter_map(Weak::upgrade) {
            changes.iter().for_each(|change| switch.changed(change.clone()));
        }
    }
}

impl Underlay for HostUnderlay {
    fn route(&self, dst: IpAddr, src: Option<IpAddr>, mark: u32) -> Option<Route> {
        let query = Query { destination: dst, mark, source: src };
        let (found, answer) = self.router.lock().resolve(query);
        self.asked.lock().routes.insert(query, answer);
        let routes::Route { device, gateway, source, local: _ } = found?;
        Some(Route { bridge: device, src: source, gateway })
    }

    fn neighbour(&self, bridge: &str, ip: IpAddr) -> Option<MacAddr> {
        let (mac, answer) = self.neighbours.lock().known(bridge, ip, self.clock.now())?;
        self.asked.lock().neighbours.insert((bridge.into(), ip), answer);
        Some(mac)
    }

    fn resolve(&self, neighbour: &Resolve) {
        let Resolve { bridge, ip, src, mac } = neighbour;
        let found = self.neighbours.lock().resolve(bridge, *ip, self.clock.now());
        let Found::Pending { send_request, dependency } = found else { return };
        self.asked.lock().neighbours.insert((Arc::clone(bridge), *ip), dependency);
        if send_request && let Some(frame) = routes::request(*mac, *src, *ip) {
            let mut requests = self.requests.lock();
            if requests.len() < REQUESTS_MAX {
                requests.push(Request { bridge: Arc::clone(bridge), frame });
                self.has_requests.notify_one();
            }
        }
    }

    fn used(&self, bridge: &str, ip: IpAddr) {
        _ = self.neighbours.lock().known(bridge, ip, self.clock.now());
    }

    fn learn(&self, bridge: &str, ip: IpAddr, mac: MacAddr) {
        let now = self.clock.now();
        self.with_neighbours(|neighbours| neighbours.learn(bridge, ip, mac, now));
    }

    fn is_local(&self, bridge: &str, ip: IpAddr) -> bool {
        self.router.lock().has_address(bridge, ip)
    }
}
