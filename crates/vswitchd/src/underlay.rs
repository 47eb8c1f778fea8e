//! Routes and neighbours for the outer packets of tunnels: what translations ask, the commands change, and packets teach.
//!
//! A translation asks under a lock that is held for one look-up. Answers about routes are remembered with their handles, so that the
//! router can report which of them a change makes stale. Such answers, and neighbours whose address changes, are reported to the switches,
//! which translate the flows that rest on them anew. Requests for
//! the addresses of neighbours wait until the control thread sends them ([`HostUnderlay::take_requests`]).

use base::{Clock, MacAddr, Millis};
use netdev_linux::routes::{Follower, Update};
use ofproto::{Change, Switch};
use parking_lot::Mutex;
use routes::neighbours::Found;
use routes::{Dependency, Learning, Neighbours, Query, Router, Stale, Step};
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

/// Answers about routes that are remembered at most.
const ANSWERS_MAX: usize = 65_536;

/// How long the kernel's routes are not followed after a failure.
const FOLLOW_AGAIN: Duration = Duration::from_secs(1);

/// See the module documentation.
#[derive(Debug)]
pub struct HostUnderlay {
    clock: Clock,
    router: Mutex<Router>,
    neighbours: Mutex<Neighbours>,
    /// What translations have asked about routes, with the handles that keep the answers.
    asked: Mutex<HashMap<Query, Dependency>>,
    switches: Mutex<Vec<Weak<Switch>>>,
    requests: Mutex<Vec<Request>>,
    /// Notified when requests wait, and when a neighbour has become known.
    pub has_requests: Notify,
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

    /// Becomes the source of routes and neighbours for the translations of a switch.
    pub fn serve(self: &Arc<Self>, switch: &Arc<Switch>) {
        switch.network().tunnels.set_underlay(Arc::clone(self) as Arc<dyn Underlay>);
        self.switches.lock().push(Arc::downgrade(switch));
    }

    /// Forgets the neighbours at a bridge.
    pub fn remove_bridge(&self, name: &str) {
        let now = self.clock.now();
        self.with_neighbours(|neighbours| neighbours.remove_bridge(name, now));
    }

    /// Reads or changes routes and addresses.
    pub fn with_router<R>(&self, work: impl FnOnce(&mut Router) -> R) -> R {
        let (result, stale) = {
            let mut router = self.router.lock();
            (work(&mut router), router.take_stale())
        };
        if stale != Stale::default() {
            self.report_routes(&stale);
        }
        result
    }

    /// Reads or changes neighbours.
    pub fn with_neighbours<R>(&self, work: impl FnOnce(&mut Neighbours) -> R) -> R {
        let (result, changed) = {
            let mut neighbours = self.neighbours.lock();
            (work(&mut neighbours), neighbours.take_changed())
        };
        if !changed.is_empty() {
            self.report(&changed.into_iter().map(Change::Neighbour).collect::<Vec<_>>());
            // Packets may have waited for them.
            self.has_requests.notify_one();
        }
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

    /// Applies the kernel's reports until none is left to read.
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
        // Another translation may have noted a newer answer, and the change has been reported.
        if !answer.is_current() {
            return;
        }
        let all = if asked.len() < ANSWERS_MAX { HashMap::new() } else { std::mem::take(&mut *asked) };
        asked.insert(query, answer);
        drop(asked);
        self.report(&all.keys().map(|query| Change::Route(query.destination)).collect::<Vec<_>>());
    }

    /// Reports answers about routes that hold no more.
    fn report_routes(&self, stale: &Stale) {
        let mut changes = Vec::new();
        let mut asked = self.asked.lock();
        for query in &stale.queries {
            if asked.get(query).is_some_and(|answer| !answer.is_current()) {
                asked.remove(query);
            }
            changes.push(Change::Route(query.destination));
        }
        if stale.beyond {
            asked.retain(|query, answer| {
                let holds = answer.is_current();
                if !holds {
                    changes.push(Change::Route(query.destination));
                }
                holds
            });
        }
        drop(asked);
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
        Some(self.neighbours.lock().known(bridge, ip, self.clock.now())?.0)
    }

    fn is_asked(&self, bridge: &str, ip: IpAddr) -> bool {
        self.neighbours.lock().is_asked(bridge, ip, self.clock.now())
    }

    fn resolve(&self, neighbour: &Resolve) {
        let Resolve { bridge, ip, src, mac } = neighbour;
        let now = self.clock.now();
        let send_request = match self.with_neighbours(|neighbours| neighbours.resolve(bridge, *ip, now)) {
            Found::Pending { send_request, .. } => send_request,
            // It has become known since the translation asked.
            Found::Known(..) => {
                self.has_requests.notify_one();
                return self.report(&[Change::Neighbour(*ip)]);
            }
            Found::Full => false,
        };
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

    fn learn(&self, bridge: &str, ip: IpAddr, mac: MacAddr, learning: Learning, at: Millis) {
        self.with_neighbours(|neighbours| neighbours.learn_from_packet(bridge, ip, mac, learning, at));
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
