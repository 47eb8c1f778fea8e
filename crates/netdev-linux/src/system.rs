//! Any Ethernet device of the kernel, over packet sockets (packet(7)).
//!
//! Each receive queue is a socket. Of several (`options:n_rxq`) the kernel gives each flow's frames to one, by a hash of
//! addresses and ports, so that they keep their order.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use base::MacAddr;
use netdev::{Changes, KernelPath, LinkStatus, Netdev, NetdevError, NetdevStats, Options, Rx, Tx, pool};
use packet::{Batch, Packet, buf::HEADROOM};
use parking_lot::Mutex;

use crate::abilities::{self, Abilities};
use crate::explain::Needed;
use crate::host::Shared;
use crate::link::Link;
use crate::netlink::{Change, Which};
use crate::ring::{self, Place, Ring};
use crate::transmit::PacketTx;
use crate::{sys, vnet};

/// Frames that wait in the ring at most; 4 MiB of kernel memory a port.
const RING_SLOTS: usize = 2048;
/// Bytes of frames too large for the ring that wait at most.
const RECEIVE_BUFFER_LEN: i32 = 16 << 20;
/// A queue that is found empty so many times in a row is asked for the socket's error, which would keep its descriptor
/// readable; a thread that polls without sleeping pays for it only this often.
const IDLE_CHECK: u32 = 64;
/// Receive queues at most.
const N_RXQ_MAX: usize = 64;
const ARPHRD_ETHER: u16 = 1;
const VLAN_TAG_LEN: usize = 4;
const MACS_LEN: usize = 12;

/// A device of the kernel.
#[derive(Debug)]
pub struct System {
    host: Arc<Shared>,
    link: Arc<Link>,
    /// Holds the device in promiscuous mode while it is there.
    promisc: Mutex<Option<OwnedFd>>,
    queues: Mutex<Queues>,
    receivers: Receivers,
}

/// The receive queues that are asked for.
#[derive(Debug)]
struct Queues {
    n: usize,
    /// Some were opened: there can be no others then.
    opened: bool,
    /// What they share frames in, if they are several.
    fanout: Option<u16>,
}

/// The receive sockets that were opened, to ask them for their drops. Asking sets the kernel's counter to 0.
#[derive(Debug, Default)]
struct Receivers {
    sockets: Mutex<Vec<Receiver>>,
    dropped: AtomicU64,
    /// The program that decides what they get, if not all. Taken before `sockets`.
    filter: Mutex<Option<OwnedFd>>,
}

#[derive(Debug)]
struct Receiver {
    socket: Weak<OwnedFd>,
    /// It shares frames with others.
    shares: bool,
}

impl Receivers {
    fn drops(&self) -> u64 {
        let mut sockets = self.sockets.lock();
        sockets.retain(|receiver| receiver.socket.strong_count() > 0);
        for socket in sockets.iter().filter_map(|receiver| receiver.socket.upgrade()) {
            self.dropped.fetch_add(sys::packet_drops(socket.as_fd()).unwrap_or(0), Ordering::Relaxed);
        }
        self.dropped.load(Ordering::Relaxed)
    }

    fn add(&self, receiver: Receiver) -> io::Result<()> {
        let filter = self.filter.lock();
        if let Some(program) = &*filter {
            receiver.filter(Some(program.as_fd()))?;
        }
        self.sockets.lock().push(receiver);
        Ok(())
    }

    fn set_filter(&self, program: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut filter = self.filter.lock();
        let kept = program.map(|program| program.try_clone_to_owned()).transpose()?;
        let sockets = self.sockets.lock();
        let done = sockets.iter().try_for_each(|receiver| receiver.filter(program));
        if done.is_err() {
            // Some have it: none keeps it.
            sockets.iter().for_each(|receiver| drop(receiver.filter(None)));
        }
        *filter = if done.is_ok() { kept } else { None };
        done
    }
}

impl Receiver {
    /// Has a program decide what the socket gets, or all come in that is not sent by the host.
    fn filter(&self, program: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let Some(socket) = self.socket.upgrade() else { return Ok(()) };
        match program {
            Some(program) => {
                sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_BPF, program.as_raw_fd())
            }
            None if self.shares => sys::attach_filter(socket.as_fd(), &INCOMING),
            None => match sys::set_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_DETACH_FILTER, 0) {
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => Ok(()),
                done => done,
            },
        }
    }
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
    pub(crate) fn open(host: Arc<Shared>, name: &str) -> io::Result<Self> {
        let system = Self::open_link(host, name)?;
        system.join_promisc(true)?;
        Ok(system)
    }

    pub(crate) fn open_link(host: Arc<Shared>, name: &str) -> io::Result<Self> {
        let info = host.netlink.link(Which::Name(name))?;
        if info.link_type != ARPHRD_ETHER {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let link = host.register(info, None);
        let queues = Mutex::new(Queues { n: 1, opened: false, fanout: None });
        Ok(Self { host, link, promisc: Mutex::default(), queues, receivers: Receivers::default() })
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

    /// The kernel's number of the device.
    pub fn ifindex(&self) -> u32 {
        self.link.ifindex()
    }

    /// Whether the administrator has the device switched on, as the kernel last told. Costs no system call.
    pub fn is_up(&self) -> bool {
        self.link.is_up()
    }

    /// The kind of a virtual device, as `veth`.
    pub fn virtual_kind(&self) -> Option<String> {
        self.link.last()?.kind
    }

    /// Receive queues of the device now; `None` if its driver does not tell.
    pub fn rx_channels(&self) -> Option<u32> {
        self.host.ethtool.rx_channels(self.link.name()).ok().filter(|n| *n > 0)
    }

    /// What the driver can do with XDP; `None` if the kernel does not tell.
    pub fn abilities(&self) -> Option<Abilities> {
        self.host.oracle.abilities(self.link.ifindex())
    }

    /// Whether the device takes VLAN tags out of frames that it receives, to tell them beside the frame.
    pub fn strips_tags(&self) -> bool {
        self.host.ethtool.strips_tags(self.link.name()).unwrap_or(false)
    }

    fn set(&self, change: Change, operation: impl FnOnce() -> String) -> Result<(), NetdevError> {
        set(&self.host, &self.link, change, operation)
    }
}

/// Changes a link and hears of it at once.
pub(crate) fn set(
    host: &Shared,
    link: &Link,
    change: Change,
    operation: impl FnOnce() -> String,
) -> Result<(), NetdevError> {
    let result = if link.is_gone() {
        Err(io::Error::from_raw_os_error(libc::ENODEV))
    } else if link.place().namespace.is_some() {
        // It is somebody else's to set there; Open vSwitch says the same.
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

/// What the Interface row's status says of how frames come and go: the way, and why it is this one.
pub const IO: [&str; 2] = ["io", "io-reason"];

/// The state of a link, with what its driver says.
pub(crate) fn status(host: &Shared, link: &Link) -> LinkStatus {
    let Some(info) = host.refresh(link) else {
        return LinkStatus { link_resets: link.link_resets(), ..LinkStatus::default() };
    };
    let settings = host.ethtool.settings(link.name()).unwrap_or_default();
    let mut details = BTreeMap::new();
    if let Ok(driver) = host.ethtool.driver(link.name()) {
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
        let rx = PacketRx::new(self.link.clone(), &mut queues).map_err(failed)?;
        let receiver = Receiver { socket: Arc::downgrade(&rx.socket), shares: queues.n > 1 };
        drop(queues);
        self.receivers.add(receiver).map_err(failed)?;
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
        status
    }

    fn stats(&self) -> NetdevStats {
        let mut stats = self.host.refresh(&self.link).map(|info| info.stats).unwrap_or_default();
        let add = |counter: &mut Option<u64>, n: u64| *counter = counter.map(|old| old + n);
        add(&mut stats.rx_dropped, self.receivers.drops() + self.link.rx_dropped.load(Ordering::Relaxed));
        add(&mut stats.rx_errors, self.link.rx_errors.load(Ordering::Relaxed));
        stats
    }

    fn changes(&self) -> &Changes {
        &self.link.changes
    }
}

/// A receive ring on a device.
struct PacketRx {
    ring: Ring,
    socket: Arc<OwnedFd>,
    link: Arc<Link>,
    /// Calls in a row that found nothing.
    idle: u32,
}

const fn instruction(code: u32, k: u32, jt: u8, jf: u8) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

/// Takes no frame.
const NOTHING: [libc::sock_filter; 1] = [instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0)];
/// Takes frames whole but those that the host sends.
const INCOMING: [libc::sock_filter; 4] = [
    instruction(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, (libc::SKF_AD_OFF + libc::SKF_AD_PKTTYPE) as u32, 0, 0),
    instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::PACKET_OUTGOING as u32, 0, 1),
    instruction(libc::BPF_RET | libc::BPF_K, 0, 0, 0),
    instruction(libc::BPF_RET | libc::BPF_K, u32::MAX, 0, 0),
];

impl PacketRx {
    fn new(link: Arc<Link>, queues: &mut Queues) -> io::Result<Self> {
        let socket = ring::marked_socket()?;
        let fd = socket.as_fd();
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        // Any threshold but 0: frames too large for a slot are queued at the socket.
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_COPY_THRESH, 1)?;
        let _ = sys::set_option(fd, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER_LEN);
        let ring = Ring::new(fd, RING_SLOTS)?;
        if queues.n > 1 {
            // Until it shares the frames with the others it would get all of them once more.
            sys::attach_filter(fd, &NOTHING)?;
        }
        sys::packet_bind(fd, link.ifindex(), libc::ETH_P_ALL as u16)?;
        if queues.n > 1 {
            queues.fanout = Some(sys::packet_fanout(fd, queues.fanout)?);
            // Where sockets share frames, some kernels give them those that the host sends, whatever they asked for.
            sys::attach_filter(fd, &INCOMING)?;
        }
        Ok(Self { ring, socket: Arc::new(socket), link, idle: 0 })
    }

    /// The next frame: `None` if none waits, an inner `None` for one that cannot be had, which is counted.
    fn next(&mut self) -> Option<Option<Packet>> {
        let slot = self.ring.next()?;
        let (len, vlan) = (slot.len, slot.vlan);
        let packet = match slot.place {
            Place::Ring(header, frame) => vnet::parse(header).map(|offload| {
                let mut packet = pool::filled(frame);
                packet.offload = offload;
                packet
            }),
            Place::Socket => read_large(self.socket.as_fd(), len),
            Place::Lost => {
                self.ring.release();
                self.link.rx_dropped.fetch_add(1, Ordering::Relaxed);
                return Some(None);
            }
        };
        self.ring.release();
        if packet.is_none() {
            self.link.rx_errors.fetch_add(1, Ordering::Relaxed);
        }
        Some(packet.map(|mut packet| {
            if let Some((protocol, control)) = vlan {
                put_tag_back(&mut packet, protocol, control);
            }
            packet
        }))
    }

    /// Nothing waits: is there an error that keeps the descriptor readable, and is the device still there?
    fn check(&mut self) -> io::Result<()> {
        self.idle += 1;
        if self.idle == 2 || self.idle > IDLE_CHECK {
            self.idle = 2;
            // "Network is down" while the administrator has it down is no failure.
            sys::take_error(self.socket.as_fd())?;
        }
        if self.link.is_gone() { Err(io::Error::from_raw_os_error(libc::ENODEV)) } else { Ok(()) }
    }
}

impl Rx for PacketRx {
    fn recv_batch(&mut self, out: &mut Batch, max: usize) -> io::Result<usize> {
        let mut n = 0;
        while n < max {
            match self.next() {
                Some(Some(packet)) => {
                    out.push(packet);
                    n += 1;
                }
                Some(None) => {}
                None => break,
            }
        }
        if n == 0 {
            self.check()?;
        } else {
            self.idle = 0;
        }
        Ok(n)
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn drain(&mut self) -> io::Result<()> {
        while let Some(packet) = self.next() {
            packet.into_iter().for_each(pool::recycle);
        }
        Ok(())
    }
}

/// Reads a frame of `len` bytes from the socket's queue.
fn read_large(socket: BorrowedFd<'_>, len: usize) -> Option<Packet> {
    // The virtio-net header goes to the end of the headroom, the frame behind it: one system call, no copy.
    let before = HEADROOM - vnet::LEN;
    let mut bytes = pool::buffer(HEADROOM + len);
    bytes.resize(before, 0);
    // A pending error is told first, and the frame stays.
    for _ in 0..3 {
        if rustix::io::read(socket, rustix::buffer::spare_capacity(&mut bytes)).is_ok() {
            break;
        }
    }
    if bytes.len() != HEADROOM + len {
        return None;
    }
    let header = *bytes.get(before..)?.first_chunk()?;
    let mut packet = Packet::from_vec(bytes, HEADROOM).ok()?;
    packet.offload = vnet::parse(header)?;
    Some(packet)
}

/// Inserts the VLAN tag that the kernel took out of the frame.
fn put_tag_back(packet: &mut Packet, protocol: u16, control: u16) {
    if packet.len() >= MACS_LEN {
        let [p0, p1] = protocol.to_be_bytes();
        let [c0, c1] = control.to_be_bytes();
        packet.insert(MACS_LEN, VLAN_TAG_LEN).copy_from_slice(&[p0, p1, c0, c1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::Checksum;

    #[test]
    fn a_tag_put_back_moves_the_marks() {
        let mut packet = Packet::from_slice(&[7; 60]);
        packet.offload.checksum = Checksum::Partial { start: 34, offset: 16 };
        put_tag_back(&mut packet, 0x88a8, 0x2064);
        assert_eq!(packet.data()[11..17], [7, 0x88, 0xa8, 0x20, 0x64, 7]);
        assert_eq!(packet.offload.checksum, Checksum::Partial { start: 38, offset: 16 });
    }
}
