//! The kernel's network namespace: opens its devices and monitors changes of links. A tap of this process that is moved
//! to another namespace, as container hosts do, is followed there.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use netdev::{Changes, NetdevError};
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::fstat;

use crate::abilities::FeatureQuery;
use crate::ethtool::Ethtool;
use crate::explain::Needed;
use crate::link::{Heard, Link, Location};
use crate::netlink::{Event, LinkInfo, Monitor, Netlink, Which};
use crate::worker::Worker;
use crate::{Internal, System, sys};

/// The niceness of the thread that follows the kernel, relative to other threads.
const NICENESS: i32 = -20;

/// The kernel's devices. A process needs one; its thread waits for link changes.
#[derive(Debug)]
pub struct Linux {
    shared: Arc<HostState>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The host state that devices share.
#[derive(Debug)]
pub(crate) struct HostState {
    pub(crate) netlink: Netlink,
    pub(crate) ethtool: Ethtool,
    pub(crate) oracle: FeatureQuery,
    links: Mutex<HashMap<u32, Vec<Weak<Link>>>>,
    /// The namespace of the sockets; `None` if /proc is not available.
    namespace: Option<OwnedFd>,
    changes: Changes,
    stop: AtomicBool,
    wake: OwnedFd,
    /// The thread that creates rings for receive queues.
    pub(crate) worker: Arc<Worker>,
}

impl Linux {
    /// Opens the netlink sockets in the network namespace of the calling thread, and starts the thread that monitors
    /// links.
    pub fn new() -> io::Result<Self> {
        let monitor = Monitor::open()?;
        let shared = Arc::new(HostState {
            netlink: Netlink::open()?,
            ethtool: Ethtool::open()?,
            oracle: FeatureQuery::open(),
            links: Mutex::default(),
            namespace: std::fs::File::open("/proc/thread-self/ns/net").ok().map(OwnedFd::from),
            changes: Changes::default(),
            stop: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            worker: Arc::default(),
        });
        let worker = shared.clone();
        let thread = std::thread::Builder::new().name("links".to_owned()).spawn(move || worker.watch(&monitor))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Opens an existing Ethernet device of any driver and puts it in promiscuous mode.
    pub fn open_system(&self, name: &str) -> Result<Arc<System>, NetdevError> {
        System::open(self.shared.clone(), name)
            .map(Arc::new)
            .map_err(|e| NetdevError::Open { name: name.to_owned(), source: Needed::NetRaw.explain(e) })
    }

    /// Opens an Ethernet device without changing it, for ports that do not receive over packet sockets. They set
    /// promiscuous mode last, once all else has succeeded. (Each change of that mode is a link change, after which
    /// failed ports are retried.)
    pub fn open_link(&self, name: &str) -> Result<Arc<System>, NetdevError> {
        System::open_link(self.shared.clone(), name)
            .map(Arc::new)
            .map_err(|source| NetdevError::Open { name: name.to_owned(), source })
    }

    /// Creates a tap device, which exists until this is dropped.
    pub fn open_internal(&self, name: &str) -> Result<Arc<Internal>, NetdevError> {
        Internal::open(self.shared.clone(), name)
            .map(Arc::new)
            .map_err(|e| NetdevError::Open { name: name.to_owned(), source: Needed::NetAdmin.explain(e) })
    }

    /// The number of changes of any link of the host, so that a port that could not be opened can be retried.
    pub fn changes(&self) -> &Changes {
        &self.shared.changes
    }

    /// Describes a link by name. `ENODEV` if there is none.
    pub fn link(&self, name: &str) -> io::Result<LinkInfo> {
        self.shared.netlink.link(Which::Name(name))
    }
}

impl Drop for Linux {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        let _ = rustix::io::write(&self.shared.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.lock().take() {
            let _ = thread.join();
        }
        self.shared.worker.end();
    }
}

impl HostState {
    /// Registers a link with the monitor.
    pub(crate) fn register(&self, info: LinkInfo, tap: Option<&Arc<OwnedFd>>) -> Arc<Link> {
        let ifindex = info.ifindex;
        let link = Arc::new(Link::new(info, tap.map(Arc::downgrade)));
        self.links.lock().entry(ifindex).or_default().push(Arc::downgrade(&link));
        // The device may have changed or disappeared since `info` was read.
        self.refresh(&link);
        link
    }

    /// Reads a link again. Returns its current state if it still exists.
    pub(crate) fn refresh(&self, link: &Link) -> Option<LinkInfo> {
        if link.is_gone() {
            return None;
        }
        let Location { namespace, ifindex } = link.location();
        match self.netlink.link_in(namespace, Which::Index(ifindex)) {
            Ok(info) => {
                self.heard(link, &info, Heard::Asked);
                link.last().map(|last| if last.name == info.name { info } else { last })
            }
            Err(e) => {
                // A namespace that ended has no id any more.
                if e.raw_os_error() != Some(libc::ENODEV) && namespace.is_none() {
                    return None;
                }
                self.missed(link);
                link.last()
            }
        }
    }

    /// Handles the state that the kernel reports for the device at a link's location.
    fn heard(&self, link: &Link, info: &LinkInfo, heard: Heard) {
        // A moved tap may be renamed afterwards, so a different name may belong to the new location.
        if link.tap().is_some() && link.last().is_some_and(|last| last.name != info.name) {
            self.missed(link);
        } else {
            link.update(info, heard);
        }
    }

    /// The device is missing or changed: it is gone, unless it is a tap of this process that was moved to another
    /// namespace.
    fn missed(&self, link: &Link) {
        match link.tap().and_then(|tap| self.find(&tap)) {
            Some((location, info)) => {
                let is_this = |one: &&Weak<Link>| std::ptr::eq(one.as_ptr(), link);
                let mut links = self.links.lock();
                if !links.get(&location.ifindex).is_some_and(|list| list.iter().any(|one| is_this(&one))) {
                    let this = links.values().flatten().find(is_this).cloned();
                    links.entry(location.ifindex).or_default().extend(this);
                }
                drop(links);
                link.moved(location, &info);
            }
            None => link.set_gone(),
        }
    }

    /// The current location and state of a tap's device.
    fn find(&self, tap: &OwnedFd) -> Option<(Location, LinkInfo)> {
        let namespace = sys::tap_namespace(tap.as_fd()).ok()?;
        let identity = |fd: &OwnedFd| fstat(fd).map(|file| (file.st_dev, file.st_ino)).ok();
        let id = if identity(&namespace)? == identity(self.namespace.as_ref()?)? {
            None
        } else {
            // The kernel assigns the namespace an id when it moves a device there.
            Some(self.netlink.namespace_id(namespace.as_fd()).ok()??)
        };
        let name = sys::tap_name(tap.as_fd()).ok()?;
        let info = self.netlink.link_in(id, Which::Name(&name)).ok()?;
        Some((Location { namespace: id, ifindex: info.ifindex }, info))
    }

    fn watch(&self, monitor: &Monitor) {
        // Traffic is lost until a change has been followed, which takes little time. Without the privilege, the thread has its turn later.
        let _ = rustix::process::nice(NICENESS);
        while !self.stop.load(Ordering::Acquire) {
            let fd = monitor.fd();
            let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN), PollFd::new(&self.wake, PollFlags::IN)];
            let _ = poll(&mut fds, None);
            match monitor.events() {
                Ok((namespace, events)) => {
                    for event in &events {
                        self.take(namespace, event);
                    }
                    // Ports are only opened in this process's namespace.
                    if !events.is_empty() && namespace.is_none() {
                        self.changes.notify();
                    }
                }
                Err(e) => {
                    // Notifications were lost (or the socket is broken): read every link again.
                    tracing::debug!(target: "netlink", "link changes lost: {e}");
                    for link in self.live(None) {
                        self.refresh(&link);
                    }
                    self.changes.notify();
                }
            }
        }
    }

    fn take(&self, namespace: Option<i32>, event: &Event) {
        let at = |info: &LinkInfo| self.live(Some(Location { namespace, ifindex: info.ifindex }));
        match event {
            Event::Link(info) => at(info).iter().for_each(|link| self.heard(link, info, Heard::Reported)),
            Event::Gone(info) => at(info).iter().for_each(|link| self.missed(link)),
            Event::Answer { .. } | Event::Namespace(_) => {}
        }
    }

    /// The links at a location, or all; forgets links that were dropped.
    fn live(&self, location: Option<Location>) -> Vec<Arc<Link>> {
        let mut links = self.links.lock();
        links.retain(|_, list| {
            list.retain(|link| link.strong_count() > 0);
            !list.is_empty()
        });
        // A moved link is also registered under its old index.
        let chosen: Vec<_> = match location {
            Some(location) => links.get(&location.ifindex).into_iter().flatten().collect(),
            None => links.values().flatten().collect(),
        };
        let at = |link: &Arc<Link>| location.is_none_or(|location| link.location() == location);
        chosen.into_iter().filter_map(Weak::upgrade).filter(at).collect()
    }
}
