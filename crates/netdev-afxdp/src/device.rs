//! [`AfXdp`]: a kernel device as a port, with the sockets on its queues.
//!
//! Link state, address, MTU and the driver's counters are those of the device, over netlink and ethtool
//! ([`netdev_linux::System`]). The sockets are opened together, with the first rx or tx queue, and closed together,
//! when the last of these is dropped; the device itself holds only a weak reference. So a removed port has released
//! the queues even if a caller still holds the device.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use base::{DropReason, MacAddr};
use netdev::device::Options;
use netdev::{Changes, LinkStatus, Netdev, NetdevError, NetdevStats, Rx, SendReport, Tx, pool};
use netdev_linux::{Linux, System};
use packet::Batch;
use parking_lot::Mutex;

use crate::arena::{Movers, Reservation, UmemMode};
use crate::config::{Config, Mode};
use crate::explain::{Failure, Step};
use crate::memory::FRAME_LEN;
use crate::program::{Attached, Program};
use crate::socket::{FRAMES, Socket, SocketAddress};
use crate::{partial_checksum, send};

/// Capacity of a umem in sockets, or twice the queues of a device with many: 32 MiB.
const UMEM_SOCKETS: u32 = 4;

/// Sockets, and the reservation of their frames.
#[derive(Debug)]
struct OpenedSockets {
    sockets: Vec<Socket>,
    reservation: Reservation,
    /// Why they do not share a umem with existing ones.
    alone: Option<String>,
}

/// A device that receives and sends frames over AF_XDP sockets.
#[derive(Debug)]
pub struct AfXdp {
    system: Arc<System>,
    config: Config,
    sockets: Mutex<Weak<Sockets>>,
    /// Number of tx queues opened so far.
    lanes: AtomicUsize,
}

/// The program and the sockets of a device. Fields are dropped in their order: the program is detached first.
#[derive(Debug)]
struct Sockets {
    _program: Attached,
    opened: OpenedSockets,
    mode: Mode,
    /// Why better modes were not used.
    refused: Vec<String>,
    /// Whether frames are checked for partial checksums.
    local: bool,
    system: Arc<System>,
}

impl AfXdp {
    /// Opens the device `name` with `options`. The sockets are opened with the first queue.
    pub fn open(linux: &Linux, name: &str, options: &Options) -> Result<Arc<Self>, NetdevError> {
        let config = Config::read(name, options)?;
        let system = linux.open_link(name)?;
        if let Some(channels) = system.rx_channels()
            && config.queues().end > channels
        {
            let option = if config.start_queue == 0 { "n_rxq" } else { "start-qid" };
            let std::ops::Range { start, end } = config.queues();
            let last = end - 1;
            let problem = format!(
                "queues {start} to {last} are asked for, the device has {channels} receive queues (ethtool -L)"
            );
            return Err(NetdevError::Option { name: name.to_owned(), option, problem });
        }
        let (sockets, lanes) = (Mutex::default(), AtomicUsize::new(0));
        Ok(Arc::new(Self { system, config, sockets, lanes }))
    }

    /// The sockets, opened if they are not.
    fn sockets(&self) -> Result<Arc<Sockets>, NetdevError> {
        let mut held = self.sockets.lock();
        if let Some(sockets) = held.upgrade() {
            return Ok(sockets);
        }
        let failed = |text: String| NetdevError::Open { name: self.name().to_owned(), source: io::Error::other(text) };
        let opened = Arc::new(Sockets::open(&self.system, &self.config).map_err(failed)?);
        // Last, because it causes a link event, upon which failed ports are tried again.
        self.system.set_promisc(true)?;
        for refused in &opened.refused {
            tracing::info!(target: "netdev_afxdp", "{}: {refused}", self.name());
        }
        tracing::info!(target: "netdev_afxdp", "{}: {} XDP mode will be in use", self.name(), opened.mode);
        let served = self.config.queues();
        if let Some(channels) = self.system.rx_channels().filter(|n| served.len() < *n as usize) {
            tracing::warn!(
                target: "netdev_afxdp",
                "{}: {} of {channels} receive queues are served (n_rxq); frames of the others go to the kernel",
                self.name(),
                served.len(),
            );
        }
        if !opened.local && self.system.strips_tags() {
            tracing::warn!(
                target: "netdev_afxdp",
                "{}: takes VLAN tags out of received frames, and AF_XDP does not have them then (ethtool -K {} rxvlan off)",
                self.name(),
                self.name(),
            );
        }
        *held = Arc::downgrade(&opened);
        Ok(opened)
    }
}

impl Sockets {
    /// Opens sockets and program in the first mode that works; an error is a line for each mode that did not.
    fn open(system: &Arc<System>, config: &Config) -> Result<Self, String> {
        let mut refused = Vec::new();
        // Sockets that copy serve with the program in the driver and in the kernel.
        let mut copying = None;
        for mode in config.modes() {
            let opened = match copying.take() {
                Some(group) => Ok(group),
                None => OpenedSockets::open(system, config, *mode),
            };
            let opened = opened.and_then(|group| match attach(system, config, *mode, &group.sockets) {
                Ok(program) => Ok((program, group)),
                Err(failure) => {
                    copying = (*mode != Mode::NativeWithZerocopy).then_some(group);
                    Err(failure)
                }
            });
            match opened {
                Ok((program, group)) => {
                    let local = system.virtual_kind().as_deref() == Some("veth");
                    let system = Arc::clone(system);
                    return Ok(Self { _program: program, opened: group, mode: *mode, refused, local, system });
                }
                Err(failure) if failure.is_of_mode() => refused.push(failure.text()),
                Err(failure) => return Err(failure.text()),
            }
        }
        Err(refused.join("; "))
    }

    /// Returns true if the device's own drop counters include drops of the sockets, as those of a veth driver do.
    /// Other drivers count these elsewhere or not at all.
    fn counts_drops(&self) -> bool {
        self.local && self.mode != Mode::Generic
    }

    /// The socket for the `nth` tx queue.
    fn lane(&self, nth: usize) -> usize {
        nth % self.opened.sockets.len()
    }
}

impl OpenedSockets {
    /// Opens sockets on all queues: in a shared umem if the kernel permits, or else in one of their own, with
    /// capacity for others if there is enough memory.
    fn open(system: &System, config: &Config, mode: Mode) -> Result<Self, Failure> {
        let n = config.n_rxq;
        let movers = match mode {
            Mode::Native | Mode::Generic => Movers::Kernel,
            Mode::NativeWithZerocopy => match system.abilities().and_then(|abilities| abilities.zc_max_segs) {
                Some(segments) => Movers::Drivers(segments),
                None => Movers::Driver(system.ifindex()),
            },
        };
        let umem_mode = UmemMode { movers, need_wakeup: config.need_wakeup };
        let at = |reservation: Reservation, alone: Option<String>| -> Result<Self, Failure> {
            let (ifindex, device, need_wakeup) = (system.ifindex(), system.name(), config.need_wakeup);
            let place = |queue| SocketAddress { device, ifindex, queue, mode, need_wakeup };
            let sockets = config.queues().map(|queue| Socket::open(place(queue), reservation.arena));
            let sockets = sockets.collect::<Result<_, Failure>>()?;
            Ok(Self { sockets, reservation, alone })
        };
        let mut alone = None;
        if let Some(reservation) = Reservation::join(umem_mode, n) {
            match at(reservation, None) {
                Ok(group) => return Ok(group),
                Err(failure) => alone = Some(failure.text()),
            }
        }
        for all in [UMEM_SOCKETS.max(2 * n), n] {
            let found = Reservation::found(umem_mode, n, all, FRAMES);
            let len = u64::from(all * FRAMES) * FRAME_LEN as u64;
            let opened =
                found.map_err(|error| Failure { step: Step::Umem(len), error }).and_then(|s| at(s, alone.clone()));
            match opened {
                Err(Failure { step: Step::Umem(_), .. }) if all > n => {
                    alone = Some(format!("no memory of {} KiB for several", len / 1024));
                }
                opened => return opened,
            }
        }
        unreachable!("the last one returns")
    }
}

/// Loads the program for sockets and attaches it.
fn attach(system: &System, config: &Config, mode: Mode, sockets: &[Socket]) -> Result<Attached, Failure> {
    let load = |error| Failure { step: Step::Load, error };
    let program = Program::load(config.queues().end).map_err(load)?;
    for socket in sockets {
        program.set_socket(socket.queue, socket).map_err(load)?;
    }
    program.attach(system.ifindex(), mode).map_err(|(_, error)| Failure { step: Step::Attach(mode), error })
}

impl Netdev for AfXdp {
    fn name(&self) -> &str {
        self.system.name()
    }

    fn kind(&self) -> &'static str {
        "afxdp"
    }

    /// Refuses options that differ from those at opening: the port must be opened again.
    fn set_options(&self, options: &Options) -> Result<(), NetdevError> {
        if Config::read(self.name(), options)? == self.config {
            return Ok(());
        }
        let operation = "change options of open AF_XDP sockets";
        Err(NetdevError::Unsupported { name: self.name().to_owned(), kind: self.kind(), operation })
    }

    fn n_rxq(&self) -> usize {
        self.config.n_rxq as usize
    }

    fn is_pmd(&self) -> bool {
        true
    }

    fn open_rx(&self, queue: usize) -> Result<Box<dyn Rx>, NetdevError> {
        let n_rxq = self.n_rxq();
        if queue >= n_rxq {
            return Err(NetdevError::NoQueue { name: self.name().to_owned(), queue, n_rxq });
        }
        Ok(Box::new(Queue { sockets: self.sockets()?, index: queue }))
    }

    fn open_tx(&self) -> Result<Box<dyn Tx>, NetdevError> {
        let sockets = self.sockets()?;
        let index = sockets.lane(self.lanes.fetch_add(1, Ordering::Relaxed));
        Ok(Box::new(Queue { sockets, index }))
    }

    fn mac(&self) -> MacAddr {
        self.system.mac()
    }

    fn set_mac(&self, mac: MacAddr) -> Result<(), NetdevError> {
        self.system.set_mac(mac)
    }

    fn mtu(&self) -> Option<u32> {
        self.system.mtu()
    }

    fn set_mtu(&self, mtu: u32) -> Result<(), NetdevError> {
        self.system.set_mtu(mtu)
    }

    fn set_up(&self, up: bool) -> Result<(), NetdevError> {
        self.system.set_up(up)
    }

    fn set_promisc(&self, on: bool) -> Result<(), NetdevError> {
        self.system.set_promisc(on)
    }

    fn is_present(&self) -> bool {
        self.system.is_present()
    }

    fn has_carrier(&self) -> bool {
        self.system.has_carrier()
    }

    fn status(&self) -> LinkStatus {
        let mut status = self.system.status();
        let mut set = |key: &str, value: String| status.details.insert(key.to_owned(), value);
        for (key, value) in netdev_linux::IO.iter().zip(["AF_XDP sockets", "type=afxdp asks for them"]) {
            set(key, value.to_owned());
        }
        netdev::offloads(&[]).for_each(|(key, value)| drop(set(&key, value)));
        set("n_rxq", self.config.n_rxq.to_string());
        set("start-qid", self.config.start_queue.to_string());
        set("use-need-wakeup", self.config.need_wakeup.to_string());
        set("xdp-mode", self.config.mode_name().to_owned());
        if let Some(sockets) = self.sockets.lock().upgrade() {
            set("xdp-mode-in-use", sockets.mode.name().to_owned());
            if !sockets.refused.is_empty() {
                set("xdp-mode-refused", sockets.refused.join("; "));
            }
            let others = sockets.opened.reservation.arena.others(self.name());
            set("umem-shared-with", if others.is_empty() { "none".to_owned() } else { others.join(" ") });
            if let Some(why) = &sockets.opened.alone {
                set("umem-alone", why.clone());
            }
        }
        status
    }

    fn stats(&self) -> NetdevStats {
        let mut stats = self.system.stats();
        let sockets = self.sockets.lock().upgrade();
        for socket in sockets.iter().flat_map(|sockets| &sockets.opened.sockets) {
            add_statistics(&mut stats, socket, sockets.iter().any(|sockets| sockets.counts_drops()));
        }
        stats
    }

    fn changes(&self) -> &Changes {
        self.system.changes()
    }
}

/// Adds the losses of a socket, except for drops that are `counted` already. The first three names are Open
/// vSwitch's.
fn add_statistics(stats: &mut NetdevStats, socket: &Socket, counted: bool) {
    let Ok(kernel) = socket.statistics() else { return };
    let rx_bad = socket.receiver.lock().bad;
    let sender = socket.sender.lock();
    let (tx_bad, tx_moved) = (sender.bad, sender.moved);
    drop(sender);
    let ring_full = kernel.rx_ring_full.unwrap_or(0);
    let add = |counter: &mut Option<u64>, n: u64| *counter = Some(counter.unwrap_or(0) + n);
    add(&mut stats.rx_dropped, if counted { 0 } else { kernel.rx_dropped + ring_full });
    add(&mut stats.rx_errors, kernel.rx_invalid_descs + rx_bad);
    add(&mut stats.tx_errors, kernel.tx_invalid_descs + tx_bad);
    let columns = [
        ("rx_dropped", kernel.rx_dropped),
        ("rx_invalid_descs", kernel.rx_invalid_descs),
        ("tx_invalid_descs", kernel.tx_invalid_descs),
        ("rx_ring_full", ring_full),
        ("rx_fill_ring_empty_descs", kernel.rx_fill_ring_empty_descs.unwrap_or(0)),
        ("tx_ring_empty_descs", kernel.tx_ring_empty_descs.unwrap_or(0)),
        ("rx_bad_descs", rx_bad),
        ("tx_bad_completions", tx_bad),
        ("tx_moved", tx_moved),
    ];
    stats.custom.extend(columns.map(|(name, n)| (format!("xsk_queue_{}_{name}", socket.queue), n)));
}

/// An rx or tx queue over one of the sockets.
struct Queue {
    sockets: Arc<Sockets>,
    index: usize,
}

impl Queue {
    fn socket(&self) -> &Socket {
        &self.sockets.opened.sockets[self.index]
    }
}

impl Rx for Queue {
    fn recv_batch(&mut self, out: &mut Batch, max: usize) -> io::Result<usize> {
        let socket = self.socket();
        let before = out.len();
        let mut receiver = socket.receiver.lock();
        let n = receiver.receive(out, max);
        if receiver.needs_wakeup() {
            send::wake_receiver(socket.as_fd());
        }
        drop(receiver);
        if n == 0 {
            if socket.leftover.load(Ordering::Relaxed)
                && let Some(mut sender) = socket.sender.try_lock()
            {
                sender.kick(socket.as_fd());
                socket.leftover.store(sender.is_waiting(), Ordering::Relaxed);
            }
            if !self.sockets.system.is_present() {
                return Err(io::Error::from_raw_os_error(libc::ENODEV));
            }
        } else if self.sockets.local {
            out[before..].iter_mut().for_each(partial_checksum::flag);
        }
        Ok(n)
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket().as_fd())
    }

    fn drain(&mut self) -> io::Result<()> {
        let mut batch = Batch::new();
        let socket = self.socket();
        while socket.receiver.lock().receive(&mut batch, packet::buf::BATCH_MAX) > 0 {
            pool::recycle_all(&mut batch);
        }
        Ok(())
    }
}

impl Tx for Queue {
    fn send_batch(&mut self, batch: &mut Batch) -> SendReport {
        let socket = self.socket();
        let system = &self.sockets.system;
        let mut sender = socket.sender.lock();
        if !system.is_present() {
            return sender.refuse(batch, DropReason::NoPort);
        }
        if !system.is_up() {
            return sender.refuse(batch, DropReason::PortDown);
        }
        let report = sender.send(socket.as_fd(), batch);
        socket.leftover.store(sender.is_waiting(), Ordering::Relaxed);
        report
    }
}
