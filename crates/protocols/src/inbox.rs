//! Inboxes: bounded queues of frames for the engine, one for each protocol.
//!
//! The ports share a queue evenly. The engine takes one frame of each port in turn. A full queue makes room for a frame of a
//! port with few waiting frames by dropping the newest frame of the port with most: so a port loses a frame only if the
//! others have no more waiting than it has, and a flood on one port crowds out no other.
//!
//! Invariants: a queue has at most [`CAPACITY`] frames of at most [`FRAME_MAX`] bytes, and has state only for ports with
//! frames in it; frames of a port keep their order; every rejected or displaced frame is counted.

use crate::number::Protocol;
use base::{BridgePort, DpPort};
use parking_lot::{Condvar, Mutex};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// Capacity of a queue in frames.
pub const CAPACITY: usize = 256;
/// Bytes of a frame at most.
pub const FRAME_MAX: usize = 9216;

/// The way in of a punted frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source {
    /// The port that received it.
    pub port: BridgePort,
    /// The datapath's port, through which a tunnel's frame came, too. Its drops are counted there.
    pub device: DpPort,
}

/// A frame that was punted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Its way in.
    pub source: Source,
    /// Its bytes, from the Ethernet header on.
    pub bytes: Vec<u8>,
}

/// The reason why a frame was rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// No machine runs for this protocol.
    NoProtocol,
    /// The queue is full, and no other port has many more frames in it.
    Full,
    /// The frame is longer than [`FRAME_MAX`].
    TooBig,
}

/// Counters of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InboxStats {
    /// Frames accepted.
    pub accepted: u64,
    /// Frames rejected because the queue was full.
    pub full: u64,
    /// Accepted frames dropped later, for a frame of another port.
    pub displaced: u64,
    /// Frames rejected because they were too long.
    pub too_big: u64,
    /// Frames that wait now.
    pub waiting: usize,
}

#[derive(Debug, Default)]
struct Queue {
    open: bool,
    frames: Frames,
    stats: InboxStats,
}

/// Frames by port.
#[derive(Debug, Default)]
struct Frames {
    /// The ports that have frames, each with its frames, oldest first.
    ports: BTreeMap<BridgePort, VecDeque<Frame>>,
    /// The same ports, the one whose turn is next in front.
    turns: VecDeque<BridgePort>,
    /// The same ports, by number of frames.
    by_len: BTreeSet<(usize, BridgePort)>,
    len: usize,
}

impl Frames {
    /// Adds a frame. If the queue is full, drops the newest frame of the port with most frames, the new frame included.
    /// Returns the device of the dropped frame; it is of the same port unless another one has at least two frames more.
    fn push(&mut self, source: Source, bytes: &[u8]) -> Result<Option<DpPort>, Refused> {
        let port = source.port;
        let own = self.ports.get(&port).map_or(0, VecDeque::len);
        let is_full = self.len >= CAPACITY;
        let displaced = self.by_len.last().filter(|(most, _)| is_full && *most > own + 1).map(|(_, other)| *other);
        if is_full && displaced.is_none() {
            return Err(Refused::Full);
        }
        let lost = displaced.and_then(|other| self.change(other, VecDeque::pop_back));
        self.change(port, |frames| frames.push_back(Frame { source, bytes: bytes.to_vec() }));
        if own == 0 {
            self.turns.push_back(port);
        }
        Ok(lost.map(|frame| frame.source.device))
    }

    /// Takes the next frame in turn.
    fn pop(&mut self) -> Option<Frame> {
        let port = self.turns.pop_front()?;
        let frame = self.change(port, VecDeque::pop_front)?;
        if self.ports.contains_key(&port) {
            self.turns.push_back(port);
        }
        Some(frame)
    }

    /// Changes the frames of a port, and updates what depends on their number.
    fn change<R>(&mut self, port: BridgePort, change: impl FnOnce(&mut VecDeque<Frame>) -> R) -> R {
        let frames = self.ports.entry(port).or_default();
        let before = frames.len();
        let result = change(frames);
        let after = frames.len();
        if after == 0 {
            self.ports.remove(&port);
        }
        self.by_len.remove(&(before, port));
        if after > 0 {
            self.by_len.insert((after, port));
        }
        self.len = self.len - before + after;
        result
    }
}

/// The queues of all protocols.
#[derive(Debug, Default)]
pub(crate) struct Inboxes {
    queues: [Mutex<Queue>; Protocol::COUNT],
    /// Whether the engine has been woken and not yet run.
    woken: Mutex<bool>,
    wake: Condvar,
}

impl Inboxes {
    /// Takes in frames for `protocol` from now on.
    pub(crate) fn open(&self, protocol: Protocol) {
        self.queues[protocol.index()].lock().open = true;
    }

    /// Queues a frame. Returns the device of another port whose newest frame was dropped for it, if any.
    pub(crate) fn push(&self, protocol: Protocol, source: Source, bytes: &[u8]) -> Result<Option<DpPort>, Refused> {
        let mut queue = self.queues[protocol.index()].lock();
        let Queue { open, frames, stats } = &mut *queue;
        if !*open {
            return Err(Refused::NoProtocol);
        }
        if bytes.len() > FRAME_MAX {
            stats.too_big += 1;
            return Err(Refused::TooBig);
        }
        let loser = frames.push(source, bytes).inspect_err(|_| stats.full += 1)?;
        stats.displaced += u64::from(loser.is_some());
        stats.accepted += 1;
        drop(queue);
        self.wake();
        Ok(loser)
    }

    /// Takes up to `n` frames, one of each port in turn; also returns whether others are left.
    pub(crate) fn take(&self, protocol: Protocol, n: usize) -> (Vec<Frame>, bool) {
        let mut queue = self.queues[protocol.index()].lock();
        let taken = (0..n).map_while(|_| queue.frames.pop()).collect();
        (taken, queue.frames.len > 0)
    }

    pub(crate) fn stats(&self, protocol: Protocol) -> InboxStats {
        let queue = self.queues[protocol.index()].lock();
        InboxStats { waiting: queue.frames.len, ..queue.stats }
    }

    /// Ends a wait of the engine, or the next one if it does not wait.
    pub(crate) fn wake(&self) {
        let mut woken = self.woken.lock();
        if !std::mem::replace(&mut *woken, true) {
            self.wake.notify_one();
        }
    }

    /// Waits for [`Inboxes::wake`], for `timeout` at most.
    pub(crate) fn wait(&self, timeout: Duration) {
        let mut woken = self.woken.lock();
        if !*woken {
            self.wake.wait_for(&mut woken, timeout);
        }
        *woken = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::PortNo;
    use proptest::prelude::*;

    const LLDP: Protocol = Protocol::LLDP;

    fn inboxes() -> Inboxes {
        let inboxes = Inboxes::default();
        inboxes.open(LLDP);
        inboxes
    }

    fn by(no: u32) -> Source {
        Source { port: BridgePort { bridge: 1, port: PortNo(no) }, device: DpPort(no) }
    }

    fn ports_of(frames: &[Frame]) -> Vec<u32> {
        frames.iter().map(|frame| frame.source.port.port.0).collect()
    }

    #[test]
    fn a_flood_on_one_port_crowds_out_no_other() {
        let inboxes = inboxes();
        for _ in 0..10 {
            (0..2 * CAPACITY).for_each(|_| _ = inboxes.push(LLDP, by(1), b"flood"));
            // Ten frames of other ports are accepted; each displaces a frame of the flood.
            for other in 2..12 {
                assert_eq!(inboxes.push(LLDP, by(other), b"quiet"), Ok(Some(DpPort(1))));
            }
            let (taken, more) = inboxes.take(LLDP, 11);
            let mut ports = ports_of(&taken);
            ports.sort_unstable();
            assert_eq!((ports, more), ((1..12).collect(), true), "one frame of each port in turn");
        }
        let InboxStats { accepted, full, displaced, waiting, .. } = inboxes.stats(LLDP);
        assert_eq!((accepted + full, displaced), (10 * (2 * CAPACITY as u64 + 10), 100));
        assert_eq!((waiting as u64, waiting), (accepted - displaced - 110, CAPACITY - 11));
    }

    #[test]
    fn flooding_ports_share_the_queue_evenly() {
        let inboxes = inboxes();
        (0..CAPACITY).for_each(|_| _ = inboxes.push(LLDP, by(1), b"first"));
        (0..CAPACITY).for_each(|_| _ = inboxes.push(LLDP, by(2), b"second"));
        let (taken, _) = inboxes.take(LLDP, CAPACITY);
        let of_first = taken.iter().filter(|frame| frame.source == by(1)).count();
        assert_eq!((taken.len(), of_first), (CAPACITY, CAPACITY / 2));
    }

    #[test]
    fn memory_is_bounded_for_any_number_of_ports() {
        let inboxes = inboxes();
        let accepted = (0..10_000).filter(|n| inboxes.push(LLDP, by(*n), b"one each").is_ok()).count();
        assert_eq!((accepted, inboxes.stats(LLDP).full), (CAPACITY, 10_000 - CAPACITY as u64));
        inboxes.take(LLDP, CAPACITY);
        let queue = inboxes.queues[LLDP.index()].lock();
        let Frames { ports, turns, by_len, len } = &queue.frames;
        assert_eq!((ports.len(), turns.len(), by_len.len(), *len), (0, 0, 0, 0));
    }

    /// Ports of the property.
    const PORTS: u32 = 5;

    /// A naive queue: one list of all frames, each the port and the number of a frame.
    #[derive(Default)]
    struct Naive {
        frames: Vec<(u32, u32)>,
        /// The ports in the order of their last turn, or of their first frame since they had none.
        turns: Vec<u32>,
    }

    impl Naive {
        fn count(&self, port: u32) -> usize {
            self.frames.iter().filter(|(of, _)| *of == port).count()
        }

        fn push(&mut self, port: u32, number: u32) -> Option<u32> {
            let mut loser = None;
            self.frames.push((port, number));
            if self.frames.len() > CAPACITY {
                // The port with most frames; of several, the new frame's own, or the one of the highest number.
                let most = (1..=PORTS).max_by_key(|of| (self.count(*of), *of == port, *of)).expect("there are ports");
                let last = self.frames.iter().rposition(|(of, _)| *of == most).expect("it has some");
                self.frames.remove(last);
                loser = Some(most);
            }
            if loser != Some(port) && !self.turns.contains(&port) {
                self.turns.push(port);
            }
            loser
        }

        fn pop(&mut self) -> Option<(u32, u32)> {
            if self.turns.is_empty() {
                return None;
            }
            let port = self.turns.remove(0);
            let first = self.frames.iter().position(|(of, _)| *of == port).expect("it has a turn");
            let frame = self.frames.remove(first);
            if self.count(port) > 0 {
                self.turns.push(port);
            }
            Some(frame)
        }
    }

    tally::proptest! {
        /// The queue agrees with one list of all frames, of which the new frame is one: the port with most loses.
        #[test]
        fn a_queue_agrees_with_a_naive_twin(
            steps in prop::collection::vec((1..=PORTS, 0usize..200, 0usize..60), 1..20)
        ) {
            let (inboxes, mut twin, mut number) = (inboxes(), Naive::default(), 0u32);
            let (mut refused, mut displaced) = (0, 0);
            for (port, pushed, taken) in steps {
                for _ in 0..pushed {
                    number += 1;
                    let expected = match twin.push(port, number) {
                        Some(loser) if loser == port => Err(Refused::Full),
                        loser => Ok(loser.map(DpPort)),
                    };
                    refused += u64::from(expected.is_err());
                    displaced += u64::from(matches!(expected, Ok(Some(_))));
                    prop_assert_eq!(inboxes.push(LLDP, by(port), &number.to_be_bytes()), expected);
                }
                let (frames, more) = inboxes.take(LLDP, taken);
                let expected: Vec<_> = (0..taken).map_while(|_| twin.pop()).collect();
                let number = |frame: &Frame| u32::from_be_bytes(*frame.bytes.first_chunk().expect("four bytes"));
                let frames: Vec<_> = frames.iter().map(|frame| (frame.source.port.port.0, number(frame))).collect();
                prop_assert_eq!((frames, more), (expected, !twin.frames.is_empty()));
                let stats = inboxes.stats(LLDP);
                prop_assert_eq!((stats.waiting, stats.full, stats.displaced), (twin.frames.len(), refused, displaced));
                prop_assert!(stats.waiting <= CAPACITY);
            }
        }
    }
}
