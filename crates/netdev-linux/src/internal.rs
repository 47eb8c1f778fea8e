//! Tap devices of this process: the local port of a bridge, and other ports of type `internal`.
//!
//! A system call moves one frame, with a virtio-net header. Frames that the host sends out of the device are received
//! here, so the kernel's counters are swapped. The device remains the same port when an administrator moves it to
//! another network namespace and renames it there.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{DropReason, MacAddr};
use netdev::{Changes, LinkStatus, Netdev, NetdevError, NetdevStats, Rx, SendReport, Tx, pool, software};
use packet::segment::make_udp_partial;
use packet::{Batch, Packet};

use crate::host::HostState;
use crate::link::Link;
use crate::netlink::{Change, Which};
use crate::{sys, system, vnet};

/// Maximum length of a frame from a tap: 64 KiB of IP packet, its Ethernet header and tags, and a margin.
const FRAME_LEN_MAX: usize = 65536 + 256;

/// A tap device, which exists until this and its queues are dropped.
#[derive(Debug)]
pub struct Internal {
    host: Arc<HostState>,
    link: Arc<Link>,
    tap: Arc<OwnedFd>,
}

impl Internal {
    pub(crate) fn open(host: Arc<HostState>, name: &str) -> io::Result<Self> {
        let tap = sys::tap_open(name)?;
        sys::tap_set_offload(tap.as_fd())?;
        let info = host.netlink.link(Which::Name(name))?;
        let tap = Arc::new(tap);
        let link = host.register(info, Some(&tap));
        Ok(Self { host, link, tap })
    }

    fn set(&self, change: Change, operation: impl FnOnce() -> String) -> Result<(), NetdevError> {
        system::set(&self.host, &self.link, change, operation)
    }
}

impl Netdev for Internal {
    fn name(&self) -> &str {
        self.link.name()
    }

    fn kind(&self) -> &'static str {
        "internal"
    }

    fn open_rx(&self, queue: usize) -> Result<Box<dyn Rx>, NetdevError> {
        if queue > 0 {
            return Err(NetdevError::NoQueue { name: self.name().to_owned(), queue, n_rxq: 1 });
        }
        let buffer = vec![0; vnet::LEN + FRAME_LEN_MAX];
        Ok(Box::new(TapRx { tap: self.tap.clone(), link: self.link.clone(), buffer }))
    }

    fn open_tx(&self) -> Result<Box<dyn Tx>, NetdevError> {
        Ok(Box::new(TapTx { tap: self.tap.clone(), link: self.link.clone(), down: None }))
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

    fn is_present(&self) -> bool {
        !self.link.is_gone()
    }

    fn status(&self) -> LinkStatus {
        system::status(&self.host, &self.link)
    }

    fn has_carrier(&self) -> bool {
        self.link.has_carrier()
    }

    fn stats(&self) -> NetdevStats {
        let host = self.host.refresh(&self.link).map(|info| info.stats).unwrap_or_default();
        let errors = self.link.rx_errors.load(Ordering::Relaxed);
        NetdevStats {
            rx_packets: host.tx_packets,
            rx_bytes: host.tx_bytes,
            rx_dropped: host.tx_dropped,
            rx_errors: host.tx_errors.map(|n| n + errors),
            tx_packets: host.rx_packets,
            tx_bytes: host.rx_bytes,
            tx_dropped: host.rx_dropped,
            tx_errors: host.rx_errors,
            multicast: host.multicast,
            collisions: host.collisions,
            // A tap has no receiver in which these could happen.
            rx_frame_errors: Some(0),
            rx_over_errors: Some(0),
            rx_crc_errors: Some(0),
            rx_missed_errors: Some(0),
            ..NetdevStats::default()
        }
    }

    fn changes(&self) -> &Changes {
        &self.link.changes
    }
}

struct TapRx {
    tap: Arc<OwnedFd>,
    link: Arc<Link>,
    buffer: Vec<u8>,
}

impl Rx for TapRx {
    fn recv_batch(&mut self, out: &mut Batch, max: usize) -> io::Result<usize> {
        let mut n = 0;
        while n < max {
            let len = match rustix::io::read(&self.tap, &mut self.buffer[..]) {
                Ok(len) => len,
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => break,
                // Keep the frames read so far: the next call returns the error again.
                Err(_) if n > 0 => break,
                // The tap is detached: the device, or the namespace that it was moved to, was deleted, and no other
                // notification reports the latter.
                Err(rustix::io::Errno::BADFD) => {
                    self.link.set_gone();
                    return Err(io::Error::from_raw_os_error(libc::ENODEV));
                }
                Err(e) => return Err(e.into()),
            };
            let read = self.buffer.get(..len).and_then(|read| read.split_first_chunk());
            let Some((offload, frame)) = read.and_then(|(header, frame)| Some((vnet::parse(*header)?, frame))) else {
                self.link.rx_errors.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            let mut packet = pool::filled(frame);
            packet.offload = offload;
            out.push(packet);
            n += 1;
        }
        Ok(n)
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.tap.as_fd())
    }

    fn drain(&mut self) -> io::Result<()> {
        while rustix::io::read(&self.tap, &mut self.buffer[..]).is_ok_and(|n| n > 0) {}
        Ok(())
    }
}

struct TapTx {
    tap: Arc<OwnedFd>,
    link: Arc<Link>,
    down: Option<Down>,
}

/// The device was down at the last attempt to send.
#[derive(Clone, Copy, Debug)]
struct Down {
    /// As of this change.
    seq: u64,
    /// Frames dropped since then without an attempt.
    untried: u32,
}

/// Number of frames dropped without an attempt after which one is tried, even without a link change: link notifications
/// may be lost.
const UNTRIED_MAX: u32 = 1024;

impl TapTx {
    /// Whether the device is known to be down, which saves a system call per frame: a bridge also floods to its own
    /// device when the host does not use it. Counts `n` frames as dropped without an attempt.
    fn is_down(&mut self, n: usize) -> bool {
        let seq = self.link.changes.seq();
        self.down = self.down.filter(|down| down.seq == seq && down.untried < UNTRIED_MAX);
        match &mut self.down {
            Some(down) => {
                down.untried += n as u32;
                true
            }
            None => false,
        }
    }

    fn send(&mut self, packet: &Packet, report: &mut SendReport) {
        // Read before the attempt, so that no later change is missed.
        let seq = self.link.changes.seq();
        let header = vnet::emit(packet);
        let buffers = [io::IoSlice::new(&header), io::IoSlice::new(packet.data())];
        let result = loop {
            match rustix::io::writev(&self.tap, &buffers) {
                Err(rustix::io::Errno::INTR) => {}
                result => break result,
            }
        };
        match result {
            Ok(_) => report.count_sent(packet.len()),
            // The error of a tap whose device is down.
            Err(rustix::io::Errno::IO) => {
                self.down = Some(Down { seq, untried: 0 });
                report.count_dropped(DropReason::PortDown, 1);
            }
            Err(rustix::io::Errno::BADFD) => report.count_dropped(DropReason::NoPort, 1),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::NOBUFS) => {
                report.count_dropped(DropReason::OutputQueueFull, 1);
            }
            Err(_) => self.send_finished(packet, report),
        }
    }

    /// Sends a frame that the kernel refused, after doing its offload work in software.
    fn send_finished(&mut self, refused: &Packet, report: &mut SendReport) {
        let mut finished = Batch::new();
        if software::is_finished(refused) || software::finish(refused.clone(), &mut finished).is_err() {
            report.count_dropped(DropReason::OutputError, 1);
            return;
        }
        // These frames have no offload flags, so this does not recurse again.
        for packet in &finished {
            self.send(packet, report);
        }
        pool::recycle_all(&mut finished);
    }
}

impl Tx for TapTx {
    fn refuses(&mut self, n: usize) -> Option<DropReason> {
        self.is_down(n).then_some(DropReason::PortDown)
    }

    fn send_batch(&mut self, batch: &mut Batch) -> SendReport {
        let mut report = SendReport::default();
        let n = batch.len();
        for (i, packet) in batch.iter_mut().enumerate() {
            let left = n - i;
            if self.is_down(left) {
                report.count_dropped(DropReason::PortDown, left as u64);
                break;
            }
            make_udp_partial(packet);
            self.send(packet, &mut report);
        }
        pool::recycle_all(batch);
        report
    }
}
