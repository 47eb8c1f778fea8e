//! The kernel of this network namespace: opening its devices, and hearing of their changes. A tap of ours that somebody moves
//! to another namespace, as hosts in containers have it, is followed there.

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

use crate::abilities::Oracle;
use crate::ethtool::Ethtool;
use crate::explain::Needed;
use crate::link::{Link, Place};
use crate::netlink::{Event, LinkInfo, Monitor, Netlink, Which};
use crate::workshop::Workshop;
use crate::{Internal, System, sys};

/// The kernel's devices. One is enough for a process; its thread waits for link changes.
#[derive(Debug)]
pub struct Linux {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What devices keep of the host.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) netlink: Netlink,
    pub(crate) ethtool: Ethtool,
    pub(crate) oracle: Oracle,
    links: Mutex<HashMap<u32, Vec<Weak<Link>>>>,
    /// The namespace that the sockets are in, if there is a /proc to tell.
    namespace: Option<OwnedFd>,
    changes: Changes,
    stop: AtomicBool,
    wake: OwnedFd,
    /// Where receive queues have their rings made.
    pub(crate) workshop: Arc<Workshop>,
}

impl Linux {
    /// Opens the sockets to the kernel, in the network namespace of the calling thread, and starts the thread that
    /// hears of link changes.
    pub fn new() -> io::Result<Self> {
        let monitor = Monitor::open()?;
        let shared = Arc::new(Shared {
            netlink: Netlink::open()?,
            ethtool: Ethtool::open()?,
            oracle: Oracle::open(),
            links: Mutex::default(),
            namespace: std::fs::File::open("/proc/thread-self/ns/net").ok().map(OwnedFd::from),
            changes: Changes::default(),
            stop: AtomicBool::new(false),
            wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            workshop: Arc::default(),
        });
        let worker = shared.clone();
        let thread = std::thread::Builder::new().name("links".to_owned()).spawn(move || worker.watch(&monitor))?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Opens an Ethernet device that the kernel has, of any driver, and puts it in promiscuous mode.
    pub fn open_system(&self, name: &str) -> Result<Arc<System>, NetdevError> {
        System::open(self.shared.clone(), name)
            .map(Arc::new)
            .map_err(|e| NetdevError::Open { name: name.to_owned(), source: Needed::NetRaw.explain(e) })
    }

    /// Opens an Ethernet device and leaves it as it is: for ports that receive by other means than packet sockets, and
    /// put it in promiscuous mode once all else worked. (Each change of the mode is a link change that has ports tried
    /// again.)
    pub fn open_link(&self, name: &str) -> Result<Arc<System>, NetdevError> {
        System::open_link(self.shared.clone(), name)
            .map(Arc::new)
            .map_err(|source| NetdevError::Open { name: name.to_owned(), source })
    }

    /// Makes a tap device, which lasts until it is dropped.
    pub fn open_internal(&self, name: &str) -> Result<Arc<Internal>, NetdevError> {
        Internal::open(self.shared.clone(), name)
            .map(Arc::new)
            .map_err(|e| NetdevError::Open { name: name.to_owned(), source: Needed::NetAdmin.explain(e) })
    }

    /// Moves on when any link of the host appears, changes or goes, so that a port which could not be opened can be
    /// tried again.
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
        self.shared.workshop.end();
    }
}

impl Shared {
    /// Makes a link known to the monitor.
    pub(crate) fn register(&self, info: LinkInfo, tap: Option<&Arc<OwnedFd>>) -> Arc<Link> {
        let ifindex = info.ifindex;
        let link = Arc::new(Link::new(info, tap.map(Arc::downgrade)));
        self.links.lock().entry(ifindex).or_default().push(Arc::downgrade(&link));
        // It may have changed or gone since it was looked at.
        self.refresh(&link);
        link
    }

    /// Looks at a link again. Returns what it is now, if it is still there.
    pub(crate) fn refresh(&self, link: &Link) -> Option<LinkInfo> {
        if link.is_gone() {
            return None;
        }
        let Place { namespace, ifindex } = link.place();
        match self.netlink.link_in(namespace, Which::Index(ifindex)) {
            Ok(info) => {
                self.heard(link, &info);
                link.last().map(|last| if last.name == info.name { info } else { last })
            }
            Err(e) => {
                // A namespace that ended has no number any more.
                if e.raw_os_error() != Some(libc::ENODEV) && namespace.is_none() {
                    return None;
                }
                self.missed(link);
                link.last()
            }
        }
    }

    /// What the kernel says of the device at a link's place.
    fn heard(&self, link: &Link, info: &LinkInfo) {
        // A tap that is moved is renamed after that: another name may be no news any more.
        if link.tap().is_some() && link.last().is_some_and(|last| last.name != info.name) {
            self.missed(link);
        } else {
            link.update(info);
        }
    }

    /// The device is not where or what it was: it is gone, unless it is a tap of ours that was moved to another namespace.
    fn missed(&self, link: &Link) {
        match link.tap().and_then(|tap| self.find(&tap)) {
            Some((place, info)) => {
                let is_this = |one: &&Weak<Link>| std::ptr::eq(one.as_ptr(), link);
                let mut links = self.links.lock();
                if !links.get(&place.ifindex).is_some_and(|list| list.iter().any(|one| is_this(&one))) {
                    let this = links.values().flatten().find(is_this).cloned();
                    links.entry(place.ifindex).or_default().extend(this);
                }
                drop(links);
                link.moved(place, &info);
            }
            None => link.set_gone(),
        }
    }

    /// Where a tap's device is, and what it is there.
    fn find(&self, tap: &OwnedFd) -> Option<(Place, LinkInfo)> {
        let namespace = sys::tap_namespace(tap.as_fd()).ok()?;
        let identity = |fd: &OwnedFd| fstat(fd).map(|file| (file.st_dev, file.st_ino)).ok();
        let id = if identity(&namespace)? == identity(self.namespace.as_ref()?)? {
            None
        } else {
            // The kernel numbers the namespace when it moves a device there.
            Some(self.netlink.namespace_id(namespace.as_fd()).ok()??)
        };
        let name = sys::tap_name(tap.as_fd()).ok()?;
        let info = self.netlink.link_in(id, Which::Name(&name)).ok()?;
        Some((Place { namespace: id, ifindex: info.ifindex }, info))
    }

    fn watch(&self, monitor: &Monitor) {
        while !self.stop.load(Ordering::Acquire) {
            let fd = monitor.fd();
            let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN), PollFd::new(&self.wake, PollFlags::IN)];
            let _ = poll(&mut fds, None);
            match monitor.events() {
                Ok((namespace, events)) => {
                    for event in &events {
                        self.take(namespace, event);
                    }
                    // Ports are opened in our namespace only.
                    if !events.is_empty() && namespace.is_none() {
                        self.changes.notify();
                    }
                }
                Err(e) => {
                    // Some were lost (or the socket is broken): look at every link again.
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
        let at = |info: &LinkInfo| self.live(Some(Place { namespace, ifindex: info.ifindex }));
        match event {
            Event::Link(info) => at(info).iter().for_each(|link| self.heard(link, info)),
            Event::Gone(info) => at(info).iter().for_each(|link| self.missed(link)),
            Event::Answer { .. } | Event::Namespace(_) => {}
        }
    }

    /// The links at a place, or all; forgets those that nobody holds any more.
    fn live(&self, place: Option<Place>) -> Vec<Arc<Link>> {
        let mut links = self.links.lock();
        links.retain(|_, list| {
            list.retain(|link| link.strong_count() > 0);
            !list.is_empty()
        });
        // One that was moved stands under its old number, too.
        let chosen: Vec<_> = match place {
            Some(place) => links.get(&place.ifindex).into_iter().flatten().collect(),
            None => links.values().flatten().collect(),
        };
        let at = |link: &Arc<Link>| place.is_none_or(|place| link.place() == place);
        chosen.into_iter().filter_map(Weak::upgrade).filter(at).collect()
    }
}
