//! Any Ethernet device of the kernel, over packet sockets (packet(7)).
//!
//! A device has one receive queue, which uses a ring under load (`elastic`). With several queues (`options:n_rxq`),
//! each is a socket with a ring, and the kernel assigns each flow to one of them by a hash of addresses and ports,
//! which preserves the order of each flow.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::MacAddr;
use netdev::qos::DeviceQos;
use netdev::{Changes, KernelPath, LinkStatus, Netdev, NetdevError, NetdevStats, Options, Rx, Tx};
use parking_lot::Mutex;

use crate::abilities::{self, Abilities};
use crate::elastic::ElasticRx;
use crate::explain::Needed;
use crate::host::HostState;
use crate::link::Link;
use crate::netlink::{Change, Which};
use crate::qos::KernelQos;
use crate::receive::{Receivers, RingRx};
use crate::sys;
use crate::transmit::PacketTx;

/// Receive queues at most.
const N_RXQ_MAX: usize = 64;
const ARPHRD_ETHER: u16 = 1;

/// A device of the kernel.
#[derive(Debug)]
pub struct System {
    host: Arc<HostState>,
    link: Arc<Link>,
    /// Keeps the device in promiscuous mode while it is set.
    promisc: Mutex<Option<OwnedFd>>,
    queues: Mutex<Queues>,
    receivers: Arc<Receivers>,
    qos: KernelQos,
}

/// The configured receive queues.
#[derive(Debug)]
struct Queues {
    n: usize,
    /// Whether queues were opened; their number is then fixed.
    opened: bool,
    /// The fanout group of several queues.
    fanout: Option<u16>,
}

impl KernelPath for System {
    fn ifindex(&self) -> u32 {
        self.link.ifindex()
    }

    fn set_filter(&self, program: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.receivers.set_filter(program)
    }
}

impl System {
    pub(crate) fn open(host: Arc<HostState>, name: &str) -> io::Result<Self> {
        let system = Self::open_link(host, name)?;
        system.join_promisc(true)?;
        Ok(system)
    }

    pub(crate) fn open_link(host: Arc<HostState>, name: &str) -> io::Result<Self> {
        let info = host.netlink.link(Which::Name(name))?;
        if info.link_type != ARPHRD_ETHER {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let link = host.register(info, None);
        let queues = Mutex::new(Queues { n: 1, opened: false, fanout: None });
        let qos = KernelQos::new(Arc::clone(&host), Arc::clone(&link));
        Ok(Self { host, link, promisc: Mutex::default(), queues, receivers: Arc::default(), qos })
    }

    fn join_promisc(&self, on: bool) -> io::Result<()> {
        let mut promisc = self.promisc.lock();
        if !on {
            *promisc = None;
        } else if promisc.is_none() {
            let control = sys::packet_socket()?;
            sys::packet_join_promisc(control.as_fd(), self.link.ifindex())?;
            *promisc = Some(control);
        }
        Ok(())
    }

    /// Opens the only receive queue of the device.
    pub(crate) fn elastic_rx(&self) -> io::Result<ElasticRx> {
        ElasticRx::new(self.link.clone(), self.receivers.clone(), self.host.worker.clone())
    }

    /// The interface index.
    pub fn ifindex(&self) -> u32 {
        self.link.ifindex()
    }

    /// Whether the administrator has enabled the device, as last reported by the kernel. Costs no system call.
    pub fn is_up(&self) -> bool {
        self.link.is_up()
    }

    /// The type of a virtual device, as `veth`.
    pub fn virtual_kind(&self) -> Option<String> {
        self.link.last()?.kind
    }

    /// Current number of receive queues of the device; `None` if its driver does not report it.
    pub fn rx_channels(&self) -> Option<u32> {
        self.host.ethtool.rx_channels(self.link.name()).ok().filter(|n| *n > 0)
    }

    /// XDP features of the driver; `None` if the kernel does not report them.
    pub fn abilities(&self) -> Option<Abilities> {
        self.host.oracle.abilities(self.link.ifindex())
    }

    /// Whether the device strips VLAN tags from received frames and reports them separately.
    pub fn strips_tags(&self) -> bool {
        self.host.ethtool.strips_tags(self.link.name()).unwrap_or(false)
    }

    fn set(&self, change: Change, operation: impl FnOnce() -> String) -> Result<(), NetdevError> {
        set(&self.host, &self.link, change, operation)
    }
}

/// Changes a link and updates its cached state at once.
pub(crate) fn set(
    host: &HostState,
    link: &Link,
    change: Change,
    operation: impl FnOnce() -> String,
) -> Result<(), NetdevError> {
    let result = if link.is_gone() {
        Err(io::Error::from_raw_os_error(libc::ENODEV))
    } else if link.location().namespace.is_some() {
        // A device in another namespace is not configured from here; Open vSwitch returns the same error.
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    } else {
        host.netlink.set(link.ifindex(), change)
    };
    host.refresh(link);
    result.map_err(|e| {
        let source = Needed::NetAdmin.explain(e);
        NetdevError::Operation { name: link.name().to_owned(), operation: operation(), source }
    })
}

/// Keys in the Interface row's status: the kind of I/O, and the reason for it.
pub const IO: [&str; 2] = ["io", "io-reason"];

/// What a frame's virtio-net header asks of the kernel.
const LEFT_TO_KERNEL: [&str; 3] = ["tx_tcp_csum_offload", "tx_tcp_seg_offload", "tx_udp_csum_offload"];

/// The state of a link, with information about its driver.
pub(crate) fn status(host: &HostState, link: &Link) -> LinkStatus {
    let Some(info) = host.refresh(link) else {
        return LinkStatus { link_resets: link.link_resets(), ..LinkStatus::default() };
    };
    let settings = host.ethtool.settings(link.name()).unwrap_or_default();
    let mut details = BTreeMap::new();
    if let Ok(driver) = host.ethtool.driver(link.name()) {
        if let Some(peer) = info.peer_ifindex.filter(|_| driver.name == "veth") {
            details.insert("peer_ifindex".to_owned(), peer.to_string());
        }
        details.insert("driver_name".to_owned(), driver.name);
        details.insert("driver_version".to_owned(), driver.version);
        details.insert("firmware_version".to_owned(), driver.firmware);
    }
    LinkStatus {
        admin_up: info.admin_up(),
        carrier: info.carrier(),
        link_resets: link.link_resets(),
        speed: settings.speed,
        duplex: settings.duplex,
        ifindex: Some(info.ifindex),
        features: settings.features,
        details,
    }
}

impl Netdev for System {
    fn name(&self) -> &str {
        self.link.name()
    }

    fn kind(&self) -> &'static str {
        "system"
    }

    fn set_options(&self, options: &Options) -> Result<(), NetdevError> {
        let refused = |problem| NetdevError::Option { name: self.name().to_owned(), option: "n_rxq", problem };
        let text = options.get("n_rxq").map_or("1", String::as_str);
        let n = match text.parse::<usize>() {
            Ok(n) if n <= N_RXQ_MAX => n.max(1),
            _ => return Err(refused(format!("'{text}' is not a number up to {N_RXQ_MAX}"))),
        };
        let mut queues = self.queues.lock();
        if queues.opened && queues.n != n {
            return Err(refused(format!("the device was opened with {}", queues.n)));
        }
        queues.n = n;
        Ok(())
    }

    fn n_rxq(&self) -> usize {
        self.queues.lock().n
    }

    fn open_rx(&self, queue: usize) -> Result<Box<dyn Rx>, NetdevError> {
        let mut queues = self.queues.lock();
        if queue >= queues.n {
            return Err(NetdevError::NoQueue { name: self.name().to_owned(), queue, n_rxq: queues.n });
        }
        queues.opened = true;
        let failed = |e| NetdevError::Open { name: self.name().to_owned(), source: Needed::NetRaw.explain(e) };
        if queues.n == 1 {
            return Ok(Box::new(self.elastic_rx().map_err(failed)?));
        }
        let rx = RingRx::sharing(self.link.clone(), &self.receivers, &mut queues.fanout).map_err(failed)?;
        Ok(Box::new(rx))
    }

    fn open_tx(&self) -> Result<Box<dyn Tx>, NetdevError> {
        match PacketTx::new(&self.link) {
            Ok(tx) => Ok(Box::new(tx)),
            Err(e) => Err(NetdevError::Open { name: self.name().to_owned(), source: Needed::NetRaw.explain(e) }),
        }
    }

    fn mac(&self) -> MacAddr {
        self.link.last().map(|info| info.mac).unwrap_or_default()
    }

    fn set_mac(&self, mac: MacAddr) -> Result<(), NetdevError> {
        self.set(Change::Mac(mac), || format!("set Ethernet address to {mac}"))
    }

    fn mtu(&self) -> Option<u32> {
        self.link.last().and_then(|info| info.mtu)
    }

    fn set_mtu(&self, mtu: u32) -> Result<(), NetdevError> {
        self.set(Change::Mtu(mtu), || format!("set MTU to {mtu}"))
    }

    fn set_up(&self, up: bool) -> Result<(), NetdevError> {
        self.set(Change::Up(up), || format!("bring the device {}", if up { "up" } else { "down" }))
    }

    fn set_promisc(&self, on: bool) -> Result<(), NetdevError> {
        self.join_promisc(on).map_err(|source| {
            let operation = format!("set promiscuous mode {}", if on { "on" } else { "off" });
            NetdevError::Operation { name: self.name().to_owned(), operation, source }
        })
    }

    fn is_present(&self) -> bool {
        !self.link.is_gone()
    }

    fn kernel_path(&self) -> Option<&dyn KernelPath> {
        Some(self)
    }

    fn status(&self) -> LinkStatus {
        let mut status = status(&self.host, &self.link);
        let abilities = self.abilities();
        let mut set = |key: &str, value: String| status.details.insert(key.to_owned(), value);
        abilities.iter().flat_map(|abilities| abilities.details()).for_each(|(key, value)| drop(set(key, value)));
        let choice = abilities::choose(abilities);
        for (key, value) in IO.iter().zip([choice.io, choice.reason]) {
            set(key, value.to_owned());
        }
        status.details.extend(netdev::offloads(&LEFT_TO_KERNEL));
        status
    }

    fn has_carrier(&self) -> bool {
        self.link.has_carrier()
    }

    fn stats(&self) -> NetdevStats {
        let mut stats = self.host.refresh(&self.link).map(|info| info.stats).unwrap_or_default();
        let add = |counter: &mut Option<u64>, n: u64| *counter = counter.map(|old| old + n);
        add(&mut stats.rx_dropped, self.receivers.drops() + self.link.rx_dropped.load(Ordering::Relaxed));
        add(&mut stats.rx_errors, self.link.rx_errors.load(Ordering::Relaxed));
        stats
    }

    fn kernel_qos(&self) -> Option<&dyn DeviceQos> {
        Some(&self.qos)
    }

    fn changes(&self) -> &Changes {
        &self.link.changes
    }
}
