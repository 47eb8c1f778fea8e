//! In-memory ports: the two ends of a wire, a port that discards frames, and a port that replays frames. The last two
//! are the interface types `null` and `replay`, for measurements of the datapath alone.

mod playback;

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{DropReason, MacAddr};
use packet::{Batch, Offload, Packet};
use parking_lot::Mutex;

use crate::change::Changes;
use crate::device::{Netdev, NetdevError, Options, Rx, SendReport, Tx};
use crate::pcap::{self, PcapError};
use crate::pool;
use crate::queue::FrameQueue;
use crate::status::{LinkStatus, NetdevStats};
use playback::{Pace, Playback, Renumber};

/// Maximum number of frames on a wire; more are dropped at the sender.
const WIRE_LEN_MAX: usize = 4096;
const ETH_HEADER_LEN: usize = 14;
/// Maximum number of receive queues of a port of a row.
const N_RXQ_MAX: usize = 64;

/// A port in memory.
#[derive(Debug)]
pub struct Memory {
    name: String,
    kind: &'static str,
    config: Mutex<Config>,
    changes: Changes,
    /// Counters of each handle, open or closed. A new handle reuses the counters of a closed one.
    counters: Mutex<Vec<Arc<Counters>>>,
    source: Source,
    /// The queue that sent frames go to; `None` discards them.
    sink: Option<Arc<FrameQueue>>,
    /// Number of receive queues. A wire has one queue.
    n_rxq: usize,
    /// The frames that each queue of a replay port plays.
    share: Share,
    /// How each queue plays them.
    playback: Playback,
    /// The options that a port of a row was opened with.
    options: Option<Options>,
}

#[derive(Debug)]
struct Config {
    mac: MacAddr,
    mtu: u32,
    up: bool,
}

/// Counters of one handle, written by its owner alone, on cache lines of their own.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Counters {
    rx_packets: AtomicU64,
    rx_bytes: AtomicU64,
    tx_packets: AtomicU64,
    tx_bytes: AtomicU64,
    tx_dropped: AtomicU64,
}

/// The frames that a receive queue of a replay port plays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Share {
    /// Each queue plays all frames.
    #[default]
    All,
    /// The queues divide the frames evenly: each frame belongs to one queue, as with a device that hashes flows.
    Divided,
}

impl Share {
    /// The part of `len` frames that queue `queue` of `n_rxq` plays.
    fn of(self, queue: usize, n_rxq: usize, len: usize) -> Range<usize> {
        match self {
            Self::All => 0..len,
            Self::Divided => len * queue / n_rxq..len * (queue + 1) / n_rxq,
        }
    }
}

#[derive(Clone, Debug)]
enum Source {
    Wire(Arc<FrameQueue>),
    Frames { frames: Arc<Recording>, times: u64 },
}

/// Length of a cache line in bytes.
const LINE: usize = 64;

/// Frames to replay. They are stored contiguously and aligned to cache lines, so that a short frame takes one line and
/// the hardware prefetcher works.
#[derive(Debug, Default)]
struct Recording {
    bytes: Vec<u8>,
    places: Vec<Range<usize>>,
    /// The length of the longest frame.
    longest: usize,
    /// Offload flags of each frame; empty if no frame has any.
    offloads: Vec<Offload>,
}

impl Recording {
    fn new<'a>(frames: impl Iterator<Item = (&'a [u8], Offload)> + Clone) -> Self {
        let size = frames.clone().map(|(frame, _)| frame.len().next_multiple_of(LINE)).sum::<usize>();
        let mut recording = Self { bytes: Vec::with_capacity(size + LINE), ..Self::default() };
        let mut start = recording.bytes.as_ptr().align_offset(LINE).min(LINE);
        for (frame, offload) in frames {
            recording.bytes.resize(start, 0);
            recording.bytes.extend_from_slice(frame);
            recording.places.push(start..start + frame.len());
            recording.longest = recording.longest.max(frame.len());
            recording.offloads.push(offload);
            start += frame.len().next_multiple_of(LINE);
        }
        if recording.offloads.iter().all(|offload| *offload == Offload::default()) {
            recording.offloads = Vec::new();
        }
        recording
    }

    /// Appends copies of up to `max` of the frames at the indices `at`. Returns their number and their total bytes.
    fn play(&self, at: Range<usize>, max: usize, out: &mut Batch) -> (usize, usize) {
        let before = out.len();
        let places = self.places.get(at.clone()).map_or(&[][..], |left| &left[..left.len().min(max)]);
        let frames = places.iter().map(|place| self.bytes.get(place.clone()).unwrap_or_default());
        let bytes = pool::fill_all(frames, self.longest, out);
        if let Some(offloads) = self.offloads.get(at) {
            out[before..].iter_mut().zip(offloads).for_each(|(packet, offload)| packet.offload = *offload);
        }
        (places.len(), bytes)
    }
}

/// Two ports connected by a wire, which keeps offload flags. Fails if the process has no descriptor left.
pub fn pair(a: &str, b: &str) -> io::Result<(Arc<Memory>, Arc<Memory>)> {
    let (to_a, to_b) = (Arc::new(FrameQueue::new(WIRE_LEN_MAX)?), Arc::new(FrameQueue::new(WIRE_LEN_MAX)?));
    let end = |name, from: &Arc<FrameQueue>, to: &Arc<FrameQueue>| {
        Arc::new(Memory::new(name, "memory", Source::Wire(from.clone()), Some(to.clone())))
    };
    Ok((end(a, &to_a, &to_b), end(b, &to_b, &to_a)))
}

/// A port that receives nothing and discards sent frames.
pub fn null(name: &str) -> io::Result<Arc<Memory>> {
    Ok(Arc::new(Memory::new(name, "null", Source::Wire(Arc::new(FrameQueue::new(0)?)), None)))
}

/// A port that receives `frames` in order, `times` times, at any rate, and discards sent frames. Each receive handle
/// starts from the beginning.
pub fn replay(name: &str, frames: &[Packet], times: u64) -> Arc<Memory> {
    play(name, Recording::new(frames.iter().map(|frame| (frame.data(), frame.offload))), times)
}

fn play(name: &str, frames: Recording, times: u64) -> Arc<Memory> {
    let times = if frames.places.is_empty() { 0 } else { times };
    Arc::new(Memory::new(name, "replay", Source::Frames { frames: Arc::new(frames), times }, None))
}

/// Like [`replay`], with the frames of a capture file.
pub fn replay_pcap(name: &str, path: impl AsRef<Path>, times: u64) -> Result<Arc<Memory>, PcapError> {
    let records = pcap::Reader::open(path)?.collect::<Result<Vec<_>, _>>()?;
    let frames = Recording::new(records.iter().map(|record| (&record.frame[..], Offload::default())));
    Ok(play(name, frames, times))
}

/// Opens a port of interface type `null` or `replay`. `pcap` names the capture file to load for `replay`, `times` is
/// how often each queue plays its frames (for ever by default), and `n_rxq` is the number of queues (1 by default or if
/// 0). Each queue plays all frames, or, if `rxq-share` is `divided`, an equal part of its own. `rate` and
/// `new-addresses` are those of [`Playback`].
pub fn open(name: &str, kind: &str, options: &Options) -> Result<Arc<Memory>, NetdevError> {
    let bad = |option, problem: String| NetdevError::Option { name: name.to_owned(), option, problem };
    let mut port = match kind {
        "null" => null(name).map_err(|source| NetdevError::Open { name: name.to_owned(), source })?,
        "replay" => {
            let path = options.get("pcap").ok_or_else(|| bad("pcap", "is needed: a capture file".to_owned()))?;
            let times = match options.get("times") {
                None => u64::MAX,
                Some(text) => text.parse().map_err(|_| bad("times", format!("'{text}' is not a number of times")))?,
            };
            replay_pcap(name, path, times).map_err(|e| bad("pcap", format!("{path}: {e}")))?
        }
        _ => return Err(bad("type", format!("'{kind}' is neither null nor replay"))),
    };
    let n_rxq = match options.get("n_rxq").map(|text| (text, text.parse::<usize>())) {
        None | Some((_, Ok(0))) => 1,
        Some((_, Ok(n))) if n <= N_RXQ_MAX => n,
        Some((text, _)) => return Err(bad("n_rxq", format!("'{text}' is not a number up to {N_RXQ_MAX}"))),
    };
    let share = match options.get("rxq-share").map(String::as_str) {
        None | Some("all") => Share::All,
        Some("divided") => Share::Divided,
        Some(text) => return Err(bad("rxq-share", format!("'{text}' is neither all nor divided"))),
    };
    let playback = Playback::from_options(options).map_err(|(option, problem)| bad(option, problem))?;
    if let Some(port) = Arc::get_mut(&mut port) {
        (port.n_rxq, port.share, port.playback) = (n_rxq, share, playback);
        port.options = Some(options.clone());
    }
    Ok(port)
}

impl Memory {
    fn new(name: &str, kind: &'static str, source: Source, sink: Option<Arc<FrameQueue>>) -> Self {
        use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
        // A name gives the same address in every run.
        let seed = BuildHasherDefault::<DefaultHasher>::default().hash_one(name);
        let config = Config { mac: MacAddr::local_from(seed), mtu: 1500, up: true };
        Self {
            name: name.to_owned(),
            kind,
            config: Mutex::new(config),
            changes: Changes::default(),
            counters: Mutex::default(),
            source,
            sink,
            n_rxq: 1,
            share: Share::All,
            playback: Playback::default(),
            options: None,
        }
    }

    /// Counters for a handle.
    fn counters(&self) -> Arc<Counters> {
        let mut all = self.counters.lock();
        let free = all.iter().find(|counters| Arc::strong_count(counters) == 1).cloned();
        free.unwrap_or_else(|| {
            let new = Arc::new(Counters::default());
            all.push(Arc::clone(&new));
            new
        })
    }

    fn change(&self, change: impl FnOnce(&mut Config)) -> Result<(), NetdevError> {
        change(&mut self.config.lock());
        self.changes.notify();
        Ok(())
    }
}

impl Netdev for Memory {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        self.kind
    }

    fn set_options(&self, options: &Options) -> Result<(), NetdevError> {
        if self.options.as_ref().is_some_and(|made_from| made_from != options) {
            let problem = "a port in memory stays what it was made from".to_owned();
            return Err(NetdevError::Option { name: self.name.clone(), option: "options", problem });
        }
        Ok(())
    }

    fn n_rxq(&self) -> usize {
        self.n_rxq
    }

    fn open_rx(&self, queue: usize) -> Result<Box<dyn Rx>, NetdevError> {
        if queue >= self.n_rxq {
            return Err(NetdevError::NoQueue { name: self.name.clone(), queue, n_rxq: self.n_rxq });
        }
        let counters = self.counters();
        Ok(match self.source.clone() {
            Source::Wire(queue) => Box::new(WireRx { queue, counters }),
            Source::Frames { frames, times } => {
                let part = self.share.of(queue, self.n_rxq, frames.places.len());
                // A queue may have no frames, if there are fewer frames than queues.
                let times = if part.is_empty() { 0 } else { times };
                let Playback { rate, new_addresses } = self.playback;
                let (pace, renumber) = (rate.map(Pace::new), new_addresses.then(Renumber::default));
                Box::new(ReplayRx { frames, times, at: part.start, part, pace, renumber, counters })
            }
        })
    }

    fn open_tx(&self) -> Result<Box<dyn Tx>, NetdevError> {
        Ok(Box::new(MemoryTx { sink: self.sink.clone(), counters: self.counters() }))
    }

    fn mac(&self) -> MacAddr {
        self.config.lock().mac
    }

    fn set_mac(&self, mac: MacAddr) -> Result<(), NetdevError> {
        self.change(|config| config.mac = mac)
    }

    fn mtu(&self) -> Option<u32> {
        Some(self.config.lock().mtu)
    }

    fn set_mtu(&self, mtu: u32) -> Result<(), NetdevError> {
        self.change(|config| config.mtu = mtu)
    }

    fn set_up(&self, up: bool) -> Result<(), NetdevError> {
        self.change(|config| config.up = up)
    }

    fn status(&self) -> LinkStatus {
        let up = self.config.lock().up;
        LinkStatus { admin_up: up, carrier: up, ..LinkStatus::default() }
    }

    fn stats(&self) -> NetdevStats {
        let all = self.counters.lock();
        let sum =
            |counter: fn(&Counters) -> &AtomicU64| Some(all.iter().map(|of| counter(of).load(Ordering::Relaxed)).sum());
        NetdevStats {
            rx_packets: sum(|c| &c.rx_packets),
            rx_bytes: sum(|c| &c.rx_bytes),
            tx_packets: sum(|c| &c.tx_packets),
            tx_bytes: sum(|c| &c.tx_bytes),
            tx_dropped: sum(|c| &c.tx_dropped),
            ..NetdevStats::default()
        }
    }

    fn changes(&self) -> &Changes {
        &self.changes
    }
}

/// Adds to a counter that only this handle writes.
fn add(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

impl Counters {
    fn received(&self, packets: usize, bytes: usize) {
        add(&self.rx_packets, packets as u64);
        add(&self.rx_bytes, bytes as u64);
    }
}

struct WireRx {
    queue: Arc<FrameQueue>,
    counters: Arc<Counters>,
}

impl Rx for WireRx {
    fn recv_batch(&mut self, out: &mut Batch, max: usize) -> io::Result<usize> {
        let before = out.len();
        let n = self.queue.pop(out, max);
        self.counters.received(n, out[before..].iter().map(Packet::len).sum());
        Ok(n)
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queue.fd())
    }

    fn drain(&mut self) -> io::Result<()> {
        self.queue.clear();
        Ok(())
    }
}

struct ReplayRx {
    frames: Arc<Recording>,
    times: u64,
    /// The indices of the queue's frames.
    part: Range<usize>,
    /// The index of the next frame.
    at: usize,
    pace: Option<Pace>,
    renumber: Option<Renumber>,
    counters: Arc<Counters>,
}

impl Rx for ReplayRx {
    fn recv_batch(&mut self, out: &mut Batch, max: usize) -> io::Result<usize> {
        let (mut received, mut bytes) = (0, 0);
        let max = self.pace.as_mut().map_or(max, |pace| pace.take(max));
        while received < max && self.times > 0 {
            let first = out.len();
            let (n, of_them) = self.frames.play(self.at..self.part.end, max - received, out);
            (received, bytes) = (received + n, bytes + of_them);
            if let Some(renumber) = &self.renumber {
                out[first..].iter_mut().for_each(|packet| renumber.apply(packet.data_mut()));
            }
            self.at += n;
            if self.at >= self.part.end {
                (self.at, self.times) = (self.part.start, self.times - 1);
                self.renumber.iter_mut().for_each(Renumber::next_time);
            }
        }
        self.counters.received(received, bytes);
        Ok(received)
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn drain(&mut self) -> io::Result<()> {
        self.times = 0;
        Ok(())
    }
}

struct MemoryTx {
    sink: Option<Arc<FrameQueue>>,
    counters: Arc<Counters>,
}

impl Tx for MemoryTx {
    fn send_batch(&mut self, batch: &mut Batch) -> SendReport {
        let mut report = SendReport::default();
        if self.sink.is_none() {
            let (mut shortest, mut bytes) = (usize::MAX, 0);
            for len in batch.iter().map(Packet::len) {
                (shortest, bytes) = (shortest.min(len), bytes + len);
            }
            if shortest >= ETH_HEADER_LEN {
                (report.sent, report.sent_bytes) = (batch.len() as u64, bytes as u64);
                pool::recycle_all(batch);
            }
        }
        for packet in batch.drain(..) {
            let len = packet.len();
            if len < ETH_HEADER_LEN {
                report.count_dropped(DropReason::Malformed, 1);
                pool::recycle(packet);
                continue;
            }
            let refused = match &self.sink {
                Some(queue) => queue.push(packet).err(),
                None => {
                    pool::recycle(packet);
                    None
                }
            };
            match refused {
                None => report.count_sent(len),
                Some(packet) => {
                    report.count_dropped(DropReason::OutputQueueFull, 1);
                    pool::recycle(packet);
                }
            }
        }
        add(&self.counters.tx_packets, report.sent);
        add(&self.counters.tx_bytes, report.sent_bytes);
        add(&self.counters.tx_dropped, report.n_dropped());
        report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wire_carries_frames_and_offload_flags() {
        let (a, b) = pair("a", "b").expect("pair");
        let mut sent = Packet::from_slice(&[1; 60]);
        sent.offload.checksum = packet::Checksum::Partial { start: 34, offset: 16 };
        let mut tx = a.open_tx().expect("tx");
        let report = tx.send_batch(&mut vec![sent.clone(), Packet::from_slice(&[1; 13])]);
        assert_eq!((report.sent, report.n_dropped()), (1, 1));
        let (mut rx, mut received) = (b.open_rx(0).expect("rx"), Batch::new());
        assert_eq!(rx.recv_batch(&mut received, 32).expect("receive"), 1);
        assert_eq!(received, [sent]);
        assert_eq!((a.stats().tx_packets, b.stats().rx_bytes, b.stats().tx_packets), (Some(1), Some(60), Some(0)));
        assert_ne!(a.mac(), b.mac());
        assert!(b.open_rx(1).is_err());
    }

    #[test]
    fn a_full_wire_drops() {
        let (a, _b) = pair("a", "b").expect("pair");
        let report = a.open_tx().expect("tx").send_batch(&mut vec![Packet::from_slice(&[1; 60]); WIRE_LEN_MAX + 2]);
        assert_eq!(report.dropped, [(DropReason::OutputQueueFull, 2)]);
        assert_eq!(a.stats().tx_dropped, Some(2));
    }

    #[test]
    fn replay_plays_the_given_number_of_times() {
        let port = replay("r", &[Packet::from_slice(&[1; 60]), Packet::from_slice(&[2; 61])], 3);
        let (mut rx, mut out) = (port.open_rx(0).expect("rx"), Batch::new());
        assert_eq!(rx.recv_batch(&mut out, 5).expect("receive"), 5);
        assert_eq!(rx.recv_batch(&mut out, 5).expect("receive"), 1);
        assert_eq!(rx.recv_batch(&mut out, 5).expect("receive"), 0);
        assert_eq!(out.iter().map(Packet::len).collect::<Vec<_>>(), [60, 61, 60, 61, 60, 61]);
        assert_eq!(replay("r", &[], 3).open_rx(0).expect("rx").recv_batch(&mut out, 1).expect("receive"), 0);
    }

    #[test]
    fn frames_of_all_lengths_are_played_with_their_offload_flags() {
        let mut frames: Vec<Packet> =
            (0..200u8).map(|n| Packet::from_slice(&vec![n; usize::from(n) * usize::from(n) % 5000])).collect();
        for marked in [false, true] {
            if marked {
                frames[7].offload.checksum = packet::Checksum::Partial { start: 34, offset: 16 };
            }
            let port = replay("r", &frames, 2);
            let (mut rx, mut out) = (port.open_rx(0).expect("rx"), Batch::new());
            while rx.recv_batch(&mut out, 33).expect("receive") > 0 {}
            assert_eq!((&out[..200], &out[200..]), (&frames[..], &frames[..]));
            let bytes: usize = out.iter().map(Packet::len).sum();
            assert_eq!((port.stats().rx_packets, port.stats().rx_bytes), (Some(400), Some(bytes as u64)));
            pool::recycle_all(&mut out);
        }
    }

    #[test]
    fn null_discards_frames() {
        let port = null("n").expect("port");
        assert_eq!(port.open_tx().expect("tx").send_batch(&mut vec![Packet::from_slice(&[1; 60]); 3]).sent, 3);
        assert_eq!(port.open_rx(0).expect("rx").recv_batch(&mut Batch::new(), 1).expect("receive"), 0);
    }

    #[test]
    fn a_capture_file_is_played() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("x.pcap");
        pcap::Writer::append(&path).expect("open").write(&[3; 60]).expect("write");
        let port = replay_pcap("r", &path, 1).expect("port");
        let mut out = Batch::new();
        port.open_rx(0).expect("rx").recv_batch(&mut out, 9).expect("receive");
        assert_eq!(out, [Packet::from_slice(&[3; 60])]);
        assert!(replay_pcap("r", dir.path().join("none"), 1).is_err());
    }

    #[test]
    fn ports_of_rows() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("x.pcap");
        pcap::Writer::append(&path).expect("open").write(&[3; 60]).expect("write");
        let options = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let file = path.to_str().expect("path");
        let twice: Options = options(&[("pcap", file), ("times", "2")]);
        let port = open("r", "replay", &twice).expect("port");
        let mut out = Batch::new();
        port.open_rx(0).expect("rx").recv_batch(&mut out, 9).expect("receive");
        assert_eq!(out.len(), 2);
        assert!(port.set_options(&twice).is_ok() && port.set_options(&options(&[("pcap", file)])).is_err());
        let refused = |kind, pairs: &[(&str, &str)]| open("r", kind, &options(pairs)).expect_err("refused").to_string();
        assert_eq!(refused("replay", &[]), "r: option pcap: is needed: a capture file");
        assert_eq!(
            refused("replay", &[("pcap", file), ("times", "x")]),
            "r: option times: 'x' is not a number of times"
        );
        assert!(refused("replay", &[("pcap", "/nowhere")]).starts_with("r: option pcap: /nowhere: "));
        assert!(open("n", "null", &Options::new()).is_ok());
        // Each queue plays all frames.
        let two = open("r", "replay", &options(&[("pcap", file), ("times", "2"), ("n_rxq", "2")])).expect("port");
        for queue in 0..2 {
            out = Batch::new();
            two.open_rx(queue).expect("rx").recv_batch(&mut out, 9).expect("receive");
            assert_eq!(out.len(), 2);
        }
        assert!(two.n_rxq() == 2 && two.open_rx(2).is_err());
        assert_eq!(open("n", "null", &options(&[("n_rxq", "0")])).expect("port").n_rxq(), 1);
        assert_eq!(refused("null", &[("n_rxq", "65")]), "r: option n_rxq: '65' is not a number up to 64");
    }

    #[test]
    fn queues_that_divide_the_frames_play_each_frame_once() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("x.pcap");
        let mut writer = pcap::Writer::append(&path).expect("open");
        (0..5).for_each(|n| writer.write(&[n; 60]).expect("write"));
        drop(writer);
        let received = |n_rxq: usize, share: &str| -> Result<Vec<Vec<u8>>, NetdevError> {
            let pairs = [("pcap", path.to_str().expect("path")), ("times", "2"), ("rxq-share", share)];
            let mut options: Options = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            options.insert("n_rxq".to_owned(), n_rxq.to_string());
            let port = open("r", "replay", &options)?;
            let of_queue = |queue| {
                let mut out = Batch::new();
                let n = port.open_rx(queue)?.recv_batch(&mut out, 32).expect("receive");
                assert_eq!(n, out.len());
                Ok(out.iter().map(|frame| frame.data()[0]).collect())
            };
            (0..n_rxq).map(of_queue).collect()
        };
        assert_eq!(received(1, "divided").expect("port"), [[0, 1, 2, 3, 4, 0, 1, 2, 3, 4]]);
        assert_eq!(received(2, "divided").expect("port"), [&[0, 1, 0, 1][..], &[2, 3, 4, 2, 3, 4]]);
        assert_eq!(received(2, "all").expect("port"), [[0, 1, 2, 3, 4, 0, 1, 2, 3, 4]; 2]);
        let many = received(8, "divided").expect("port");
        assert_eq!(many.iter().filter(|of_queue| of_queue.is_empty()).count(), 3);
        assert_eq!(many.iter().flatten().copied().collect::<Vec<_>>(), [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]);
        let refused = received(2, "some").expect_err("refused").to_string();
        assert_eq!(refused, "r: option rxq-share: 'some' is neither all nor divided");
    }
}
