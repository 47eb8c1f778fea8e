//! Routes and neighbours for the outer packets of tunnels: what translations ask, the commands change, and packets teach.
//!
//! A translation asks under a lock that is held for one look-up. Answers that it got are remembered with their handles: after each
//! change, those that have become stale are reported to the switches, which translate the flows that rest on them anew. Requests for
//! the addresses of neighbours wait until the control thread sends them ([`HostUnderlay::take_requests`]).

use base::{Clock, MacAddr};
use netdev_linux::routes::{Follower, Update};
use ofproto::{Change, Switch};
use parking_lot::Mutex;
use routes::neighbours::Found;
use routes::{Dependency, Neighbours, Query, Router, Step};
use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use xlate::{Resolve, Route, Underlay};

/// Requests that wait at most; more are dropped, and sent when packets ask again.
const REQUESTS_MAX: usize = 1024;

/// Answers of each type that are remembered at most.
const ANSWERS_MAX: usize = 65_536;

/// How long the kernel's routes are not followed after a failure.
const FOLLOW_AGAIN: Duration = Duration::from_secs(1);

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

    /// Follows the routes, rules and addresses of the kernel, for ever.
    pub async fn follow_kernel(self: Arc<Self>) {
        loop {
            let Err(error) = self.try_to_follow().await;
            tracing::warn!(target: "netlink_notifier", "could not follow the kernel's routes: {error}");
            tokio::time::sleep(FOLLOW_AGAIN).await;
        }
    }

    async fn try_to_follow(self: &Arc<Self>) -> io::Result<Infallible> {
        let mut follower = Follower::open()?;
        // The lint concerns descriptors that other code may close: this one has a single owner.
        #[expect(deprecated)]
        let readable = AsyncFd::with_interest(follower.fd().try_clone_to_owned()?, Interest::READABLE)?;
        let mut needs_dump = true;
        loop {
            // Dumps of many routes take long: other tasks do not wait for them.
            let this = Arc::clone(self);
            let work = move || this.catch_up(&mut follower, needs_dump).map(|()| follower);
            follower = tokio::task::spawn_blocking(work).await.map_err(io::Error::other)??;
            needs_dump = false;
            readable.readable().await?.clear_ready();
        }
    }

    /// Takes what waits, until nothing does.
    fn catch_up(&self, kernel: &mut Follower, mut needs_dump: bool) -> io::Result<()> {
        loop {
            if needs_dump {
                let dump = kernel.dump()?;
                self.with_router(|router| router.replace_kernel(dump));
            }
            needs_dump = match kernel.read()? {
                Update::Lost => true,
                Update::Changes(changes) if changes.is_empty() => return Ok(()),
                Update::Changes(changes) => self.with_router(|router| {
                    changes.into_iter().fold(false, |dump, change| dump | (router.apply(change) == Step::Dump))
                }),
            };
        }
    }

    /// The requests that wait.
    pub fn take_requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.requests.lock())
    }

    /// Remembers an answer as long as it holds. Of very many, all are reported as if they did not, so that those in use
    /// are asked for again.
    fn note_route(&self, query: Query, answer: Dependency) {
        let mut asked = self.asked.lock();
        let all = if asked.routes.len() < ANSWERS_MAX { HashMap::new() } else { std::mem::take(&mut asked.routes) };
        asked.routes.insert(query, answer);
        drop(asked);
        self.report(&all.keys().map(|query| Change::Route(query.destination)).collect::<Vec<_>>());
    }

    /// The same for a neighbour.
    fn note_neighbour(&self, neighbour: (Arc<str>, IpAddr), answer: Dependency) {
        let mut asked = self.asked.lock();
        let all =
            if asked.neighbours.len() < ANSWERS_MAX { HashMap::new() } else { std::mem::take(&mut asked.neighbours) };
        asked.neighbours.insert(neighbour, answer);
        drop(asked);
        self.report(&all.keys().map(|(_, ip)| Change::Neighbour(*ip)).collect::<Vec<_>>());
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
        self.note_route(query, answer);
        let routes::Route { device, gateway, source, local: _ } = found?;
        Some(Route { bridge: device, src: source, gateway })
    }

    fn neighbour(&self, bridge: &str, ip: IpAddr) -> Option<MacAddr> {
        let (mac, answer) = self.neighbours.lock().known(bridge, ip, self.clock.now())?;
        self.note_neighbour((bridge.into(), ip), answer);
        Some(mac)
    }

    fn resolve(&self, neighbour: &Resolve) {
        let Resolve { bridge, ip, src, mac } = neighbour;
        let found = self.neighbours.lock().resolve(bridge, *ip, self.clock.now());
        let Found::Pending { send_request, dependency } = found else { return };
        self.note_neighbour((Arc::clone(bridge), *ip), dependency);
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
        let mut router = self.router.lock();
        // The flow of a packet to the address is translated anew when the address comes or goes.
        let query = Query::to(ip);
        let (_, answer) = router.resolve(query);
        let is_local = router.has_address(bridge, ip);
        drop(router);
        self.note_route(query, answer);
        is_local
    }
}
