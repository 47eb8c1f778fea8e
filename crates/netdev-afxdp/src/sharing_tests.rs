//! Several sockets on one umem, with a simulated kernel: the ownership of frames while packets are received on one
//! socket, kept, dropped here or on another thread, and sent on another socket, and while sockets are opened and
//! closed.
//!
//! The naive twin records the owner of each frame. An owner seen anywhere must have received the frame from a
//! previous owner that could pass it there.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};

use packet::{Batch, Packet};
use proptest::prelude::*;

use crate::arena::Arena;
use crate::memory::{ConsumerRing, Descriptor, FRAME_LEN, Putting, RingKind, frame_of};
use crate::receive::{MOVED_LEN_MIN, Receiver};
use crate::send::{Sender, Setup};
use crate::tests::{OFFSETS, SLOTS, file, frame, some};

const PORTS: usize = 3;
/// Frames of a seat: more than the rings hold, so that some are free while all ports are open.
const FRAMES: u32 = 3 * SLOTS;

/// The owner of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Holder {
    /// No owner, or a completion ring that the socket may read.
    Free,
    /// The kernel, of this port: to receive, received, to send.
    Filling(usize),
    Received(usize),
    Sending(usize),
    /// A packet.
    Packet,
}

/// A socket, and the kernel's side of it.
struct Port {
    file: OwnedFd,
    receiver: Receiver,
    sender: Sender,
    rx: Putting<Descriptor>,
    fill: ConsumerRing<u64>,
    tx: ConsumerRing<Descriptor>,
    done: Putting<u64>,
    /// Entries of `fill` and `tx` that were seen.
    seen: (u32, u32),
    /// Frames that arrived and were not received; frames to be sent, in order.
    arrived: VecDeque<Vec<u8>>,
    sent: VecDeque<Vec<u8>>,
    /// Taken from the transmit ring, and not completed.
    under_way: VecDeque<u64>,
}

impl Port {
    fn open(arena: &'static Arena, slots: u32) -> Self {
        let file = file();
        let fd = file.as_fd();
        let putting = "a ring";
        let receiver = Receiver::new(
            arena,
            ConsumerRing::new(fd, RingKind::Rx, OFFSETS, slots).expect(putting),
            Putting::new(fd, RingKind::Fill, OFFSETS, slots).expect(putting),
        );
        let sender = Sender::new(
            arena,
            Putting::new(fd, RingKind::Tx, OFFSETS, slots).expect(putting),
            ConsumerRing::new(fd, RingKind::Completion, OFFSETS, slots).expect(putting),
            Setup { zero_copy: true, pieces: true, need_wakeup: true },
        );
        let rx = Putting::new(fd, RingKind::Rx, OFFSETS, slots).expect(putting);
        let fill = ConsumerRing::new(fd, RingKind::Fill, OFFSETS, slots).expect(putting);
        let tx = ConsumerRing::new(fd, RingKind::Tx, OFFSETS, slots).expect(putting);
        let done = Putting::new(fd, RingKind::Completion, OFFSETS, slots).expect(putting);
        let (arrived, sent, under_way) = Default::default();
        Self { file, receiver, sender, rx, fill, tx, done, seen: (0, 0), arrived, sent, under_way }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// A frame of this number of bytes arrives at a port.
    Arrive(usize, usize),
    /// The process receives this number there.
    Receive(usize, usize),
    /// The process sends this number of its packets through a port; before, their front grows or shrinks by this
    /// number of bytes.
    Send(usize, usize, isize),
    /// We drop the oldest packets, here or on another thread.
    Drop(usize, bool),
    /// The kernel takes this number of frames to be sent, and completes this number.
    Transmit(usize, usize, usize),
    CloseOrOpen(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let port = 0..PORTS;
    let step = prop_oneof![
        12 => (port.clone(), 14usize..1700).prop_map(|(port, len)| Step::Arrive(port, len)),
        6 => (port.clone(), 0usize..12).prop_map(|(port, n)| Step::Receive(port, n)),
        6 => (port.clone(), 0usize..12, -12isize..=300).prop_map(|(port, n, by)| Step::Send(port, n, by)),
        2 => (0usize..6, any::<bool>()).prop_map(|(n, elsewhere)| Step::Drop(n, elsewhere)),
        6 => (port.clone(), 0usize..12, 0usize..12).prop_map(|(port, takes, ends)| Step::Transmit(port, takes, ends)),
        1 => port.prop_map(Step::CloseOrOpen),
    ];
    prop::collection::vec(step, 1..some(120))
}

struct World {
    arena: &'static Arena,
    ports: [Option<Port>; PORTS],
    holders: Vec<Holder>,
    /// The packets of the process, with their expected contents.
    packets: VecDeque<(Packet, Vec<u8>)>,
    number: usize,
    moved: usize,
}

impl World {
    fn new() -> Self {
        let arena = Arena::new(PORTS as u32, FRAMES).expect("memory");
        let holders = vec![Holder::Free; arena.umem.frames() as usize];
        let ports = std::array::from_fn(|_| Some(Port::open(arena, SLOTS)));
        Self { arena, ports, holders, packets: VecDeque::new(), number: 0, moved: 0 }
    }

    /// The frame that a packet lies in.
    fn frame_of(&self, packet: &Packet) -> Option<usize> {
        let memory = packet.lent()?;
        Some((memory.as_ptr() as usize - self.arena.umem.place().0 as usize) / FRAME_LEN)
    }

    fn move_frame(&mut self, frame: u32, from: &[Holder], to: Holder) -> Result<(), TestCaseError> {
        let holder = &mut self.holders[frame as usize];
        prop_assert!(from.contains(holder), "frame {frame} of {holder:?} is {to:?}");
        *holder = to;
        Ok(())
    }

    /// Checks the entries put into rings, and the contents of all packets.
    fn refresh(&mut self) -> Result<(), TestCaseError> {
        for at in 0..PORTS {
            let Some(port) = &mut self.ports[at] else { continue };
            port.fill.refresh();
            port.tx.refresh();
            let fill: Vec<_> = (port.seen.0..).map_while(|n| port.fill.peek(n)).collect();
            let tx: Vec<_> = (port.seen.1..).map_while(|n| port.tx.peek(n)).collect();
            port.seen.0 += fill.len() as u32;
            port.seen.1 += tx.len() as u32;
            for address in fill {
                self.move_frame(frame_of(address), &[Holder::Free], Holder::Filling(at))?;
            }
            for descriptor in tx {
                let from = [Holder::Free, Holder::Packet];
                self.move_frame(frame_of(descriptor.address), &from, Holder::Sending(at))?;
            }
        }
        for (packet, bytes) in &self.packets {
            prop_assert_eq!(packet.data(), &bytes[..]);
        }
        Ok(())
    }

    fn arrive(&mut self, at: usize, len: usize) -> Result<(), TestCaseError> {
        let Some(port) = &mut self.ports[at] else { return Ok(()) };
        port.rx.refresh();
        let (Some(address), true) = (port.fill.peek(0), port.rx.free_slots() > 0) else { return Ok(()) };
        port.fill.advance(1);
        port.fill.release();
        port.seen.0 -= 1;
        self.number += 1;
        let bytes = frame(self.number, len);
        let address = address + 256;
        // SAFETY: the frame was in the fill ring, so the kernel that is played has it alone.
        unsafe { self.arena.umem.write(address, &bytes) };
        port.rx.put(Descriptor { address, len: len as u32, options: 0 });
        port.rx.publish();
        port.arrived.push_back(bytes);
        self.move_frame(frame_of(address), &[Holder::Filling(at)], Holder::Received(at))
    }

    fn receive(&mut self, at: usize, n: usize) -> Result<(), TestCaseError> {
        let Some(port) = &mut self.ports[at] else { return Ok(()) };
        // The frames at the head of the ring, as the kernel put them there.
        let before = self.holders.iter().filter(|h| **h == Holder::Received(at)).count();
        let mut batch = Batch::new();
        prop_assert_eq!(port.receiver.receive(&mut batch, n), n.min(before));
        prop_assert_eq!(port.receiver.bad, 0);
        for packet in batch {
            let bytes =
                self.ports[at].as_mut().and_then(|port| port.arrived.pop_front()).expect("no more than arrived");
            prop_assert_eq!(packet.data(), &bytes[..]);
            if let Some(frame) = self.frame_of(&packet) {
                prop_assert!(bytes.len() >= MOVED_LEN_MIN);
                self.move_frame(frame as u32, &[Holder::Received(at)], Holder::Packet)?;
                self.moved += 1;
            }
            self.packets.push_back((packet, bytes));
        }
        // Frames that were copied out are free, and may be in the fill ring already: the rest of this port's arrivals tells
        // which ones they were.
        let left = self.ports[at].as_ref().map_or(0, |port| port.arrived.len());
        let mut received: Vec<_> =
            (0..self.holders.len()).filter(|n| self.holders[*n] == Holder::Received(at)).collect();
        let waiting = self.waiting(at);
        received.retain(|frame| !waiting.contains(frame));
        prop_assert_eq!(waiting.len(), left);
        received.into_iter().for_each(|frame| self.holders[frame] = Holder::Free);
        Ok(())
    }

    /// Frames in the receive ring: those that a new consumer finds.
    fn waiting(&self, at: usize) -> Vec<usize> {
        let Some(port) = &self.ports[at] else { return Vec::new() };
        let mut ring =
            ConsumerRing::<Descriptor>::new(port.file.as_fd(), RingKind::Rx, OFFSETS, SLOTS).expect("a ring");
        ring.refresh();
        (0..).map_while(|n| ring.peek(n)).map(|descriptor| frame_of(descriptor.address) as usize).collect()
    }

    fn send(&mut self, at: usize, n: usize, by: isize) -> Result<(), TestCaseError> {
        if self.ports[at].is_none() {
            return Ok(());
        }
        let (mut batch, mut expected, mut frames) = (Batch::new(), Vec::new(), Vec::new());
        for (mut packet, mut bytes) in self.packets.drain(..n.min(self.packets.len())) {
            if by < 0 && bytes.len() > 30 {
                packet.remove(0, by.unsigned_abs());
                bytes.drain(..by.unsigned_abs());
            } else if by > 0 {
                packet.insert(0, by as usize).fill(9);
                bytes.splice(0..0, vec![9; by as usize]);
            }
            batch.push(packet);
            expected.push(bytes);
        }
        for packet in &batch {
            frames.extend(self.frame_of(packet));
        }
        // Packets that outgrew their frame have returned it to the pool, as have packets dropped because a ring was
        // full.
        for frame in 0..self.holders.len() {
            let kept = frames.contains(&frame) || self.packets.iter().any(|(p, _)| self.frame_of(p) == Some(frame));
            if self.holders[frame] == Holder::Packet && !kept {
                self.holders[frame] = Holder::Free;
            }
        }
        let Some(port) = &mut self.ports[at] else { return Ok(()) };
        let report = port.sender.send(port.file.as_fd(), &mut batch);
        prop_assert!(batch.is_empty() && port.sender.bad == 0);
        prop_assert_eq!(report.sent + report.n_dropped(), expected.len() as u64);
        port.sent.extend(expected);
        self.refresh()?;
        for frame in frames {
            if self.holders[frame] == Holder::Packet {
                self.holders[frame] = Holder::Free;
            }
        }
        Ok(())
    }

    fn drop_packets(&mut self, n: usize, elsewhere: bool) {
        let gone: Vec<_> = self.packets.drain(..n.min(self.packets.len())).map(|(packet, _)| packet).collect();
        for packet in &gone {
            if let Some(frame) = self.frame_of(packet) {
                self.holders[frame] = Holder::Free;
            }
        }
        if elsewhere {
            std::thread::spawn(move || netdev::pool::recycle_all(&mut { gone })).join().expect("it ends");
        }
    }

    fn transmit(&mut self, at: usize, takes: usize, ends: usize) -> Result<(), TestCaseError> {
        let Some(port) = &mut self.ports[at] else { return Ok(()) };
        for _ in 0..takes {
            let Some(descriptor) = port.tx.peek(0) else { break };
            prop_assert!(!descriptor.is_continued());
            // SAFETY: the frame is in the transmit ring, so it is not written.
            let bytes = unsafe { self.arena.umem.read(descriptor.address, descriptor.len) }.expect("inside of a frame");
            // In order; frames in between were dropped.
            let nth = port.sent.iter().position(|sent| sent == bytes);
            prop_assert!(nth.is_some(), "{} bytes that were not sent", bytes.len());
            port.sent.drain(..=nth.unwrap_or(0));
            port.tx.advance(1);
            port.tx.release();
            port.seen.1 -= 1;
            port.under_way.push_back(descriptor.address);
        }
        let mut ended = Vec::new();
        port.done.refresh();
        for address in port.under_way.drain(..ends.min(port.under_way.len()).min(port.done.free_slots() as usize)) {
            port.done.put(address);
            ended.push(frame_of(address));
        }
        port.done.publish();
        ended.into_iter().try_for_each(|frame| self.move_frame(frame, &[Holder::Sending(at)], Holder::Free))
    }

    fn close_or_open(&mut self, at: usize) {
        let Some(mut port) = self.ports[at].take() else {
            self.ports[at] = Some(Port::open(self.arena, SLOTS));
            return;
        };
        let lent = [port.receiver.lending.take_all(), port.sender.lending.take_all()];
        drop(port);
        lent.into_iter().for_each(|frames| self.arena.give_last(frames));
        for holder in &mut self.holders {
            if matches!(holder, Holder::Filling(p) | Holder::Received(p) | Holder::Sending(p) if *p == at) {
                *holder = Holder::Free;
            }
        }
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Arrive(at, len) => self.arrive(at, len)?,
            Step::Receive(at, n) => self.receive(at, n)?,
            Step::Send(at, n, by) => self.send(at, n, by)?,
            Step::Drop(n, elsewhere) => self.drop_packets(n, elsewhere),
            Step::Transmit(at, takes, ends) => self.transmit(at, takes, ends)?,
            Step::CloseOrOpen(at) => self.close_or_open(at),
        }
        self.refresh()
    }

    /// Closes all; all frames are free then, each once.
    fn end(mut self) -> Result<(), TestCaseError> {
        self.drop_packets(usize::MAX, false);
        for at in 0..PORTS {
            if self.ports[at].is_some() {
                self.close_or_open(at);
            }
        }
        let mut free: Vec<_> = self.arena.with_cache(|cache| std::iter::from_fn(|| cache.take()).collect());
        free.sort();
        let numbers: Vec<_> = free.iter().map(|frame| frame.number()).collect();
        prop_assert_eq!(numbers, (0..self.arena.umem.frames()).collect::<Vec<_>>());
        Ok(())
    }
}

tally::proptest! {
    #[test]
    fn a_frame_is_in_one_place_and_none_is_lost(steps in steps()) {
        let mut world = World::new();
        world.refresh()?;
        steps.into_iter().try_for_each(|step| world.step(step))?;
        world.end()?;
    }
}

#[test]
fn kept_packets_do_not_starve_the_ring() {
    let mut world = World::new();
    for _ in 0..some(50) {
        for _ in 0..SLOTS {
            world.refresh().expect("right");
            world.arrive(0, 1000).expect("right");
        }
        world.receive(0, usize::MAX).expect("right");
    }
    // All that arrived was received, though nothing was dropped; the first of them lie in their frames.
    assert_eq!(world.packets.len(), some(50) * SLOTS as usize);
    assert!(world.moved > 0 && world.moved < (PORTS as u32 * FRAMES) as usize);
    world.end().expect("right");
}

/// The cost of receiving a frame and sending it, without the kernel's part: nanoseconds, moved and copied. `cargo
/// test --release -p netdev-afxdp --lib -- --nocapture cost` runs enough turns to measure it; other builds only run
/// both ways.
#[test]
#[cfg_attr(miri, ignore = "a measurement")]
fn cost_of_moving_and_of_copying() {
    const SLOTS: u32 = 2048;
    const BATCH: usize = 32;
    let turns = if cfg!(debug_assertions) { 80 } else { 40_000 };
    let arena = Arena::new(2, 2 * SLOTS).expect("memory");
    let mut ports = [Port::open(arena, SLOTS), Port::open(arena, SLOTS)];
    let bytes = [5; 1600];
    let mut batch = Batch::new();
    for len in [64, 128, 256, 512, 1024, 1514] {
        let mut best = [f64::MAX; 2];
        for turn in 0..turns {
            // Some batches of one way, then of the other.
            let way = turn / (turns / 40) % 2;
            let [one, two] = &mut ports;
            one.receiver.moved_len_min = [0, usize::MAX][way];
            one.fill.refresh();
            one.rx.refresh();
            for _ in 0..BATCH {
                let address = one.fill.peek(0).expect("frames enough") + 256;
                one.fill.advance(1);
                // SAFETY: the frame was in the fill ring, so the kernel that is played has it alone.
                unsafe { arena.umem.write(address, &bytes[..len]) };
                one.rx.put(Descriptor { address, len: len as u32, options: 0 });
            }
            one.rx.publish();
            one.fill.release();
            let began = std::time::Instant::now();
            one.receiver.receive(&mut batch, BATCH);
            let report = two.sender.send(two.file.as_fd(), &mut batch);
            best[way] = best[way].min(began.elapsed().as_nanos() as f64 / BATCH as f64);
            assert_eq!(report.sent, BATCH as u64);
            two.tx.refresh();
            two.done.refresh();
            while let Some(descriptor) = two.tx.peek(0) {
                two.tx.advance(1);
                two.done.put(descriptor.address);
            }
            two.tx.release();
            two.done.publish();
        }
        println!("{len} bytes: moved {:.1} ns, copied {:.1} ns", best[0], best[1]);
    }
}
