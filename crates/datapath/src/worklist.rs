//! The worklist: recirculated batches that wait for another look-up on behalf of a received batch.
//!
//! Batches are taken depth first: all packets that a batch recirculates are processed before the next batch. So the
//! number of waiting packets is bounded by the number of passes times the number of copies that one list of actions
//! makes, not by its power. In addition, packets, bytes and the work for one received batch are limited; a packet
//! beyond a limit is dropped and counted.
//!
//! Invariants: no batch is empty, none is longer than [`BATCH_MAX`], and its packets have one ingress port; `packets` and `bytes`
//! are the sums over all batches.

use base::{DpPort, DropReason};
use netdev::pool;
use packet::buf::BATCH_MAX;
use packet::{Batch, Packet};
use tunnel::header::{Cache, Hit};

/// Maximum number of recirculations of a packet (as in Open vSwitch's userspace datapath since version 3.4).
pub(crate) const PASSES_MAX: u8 = 8;
/// Maximum number of waiting packets.
const PACKETS_MAX: usize = 16_384;
/// Maximum number of bytes of waiting packets.
const BYTES_MAX: usize = 64 << 20;
/// Maximum number of recirculations for each received packet: as many as a translation may look up tables.
const WORK_MAX: usize = 4096;

/// A batch that waits.
#[derive(Debug)]
struct Waiting {
    in_port: DpPort,
    batch: Batch,
    /// Its packets left tunnels and have no metadata yet; their outer headers are in [`Worklist::hits`].
    is_known: bool,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Worklist {
    /// The last batch is the next one.
    stack: Vec<Waiting>,
    /// The index of the first batch that the current batch recirculated, in the order of recirculation.
    mark: usize,
    packets: usize,
    bytes: usize,
    /// The number of recirculations left.
    work: usize,
    /// Empty batches, kept for their memory.
    spare: Vec<Batch>,
    /// The outer headers that packets had lately.
    pub(crate) tunnels: Cache,
    /// The outer headers of the packets of the one batch that is known, if there is one.
    hits: [Hit; BATCH_MAX],
    has_known: bool,
    /// The batch that was taken last is known.
    is_known: bool,
    /// The last reason for which a packet was dropped, unless an action demanded the drop.
    pub(crate) failed: Option<DropReason>,
}

impl Worklist {
    /// Begins the work for `n` received packets. The worklist is empty.
    #[inline]
    pub(crate) fn begin(&mut self, n: usize) {
        self.work = n * WORK_MAX;
        self.failed = None;
    }

    /// Returns true if no packet waits.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.stack.is_empty()
    }

    /// Returns true if the packet, or a copy of it, may recirculate.
    pub(crate) fn admits(&self, packet: &Packet) -> bool {
        packet.passes < PASSES_MAX
            && self.work > 0
            && self.packets < PACKETS_MAX
            && self.bytes + packet.len() <= BYTES_MAX
    }

    /// Takes a packet that [`Worklist::admits`], for a look-up with an ingress port and `recirc_id`.
    pub(crate) fn push(&mut self, mut packet: Packet, (in_port, recirc_id): (DpPort, u32)) {
        packet.recirc_id = recirc_id;
        packet.passes += 1;
        packet.tags = 0;
        self.work -= 1;
        self.packets += 1;
        self.bytes += packet.len();
        if !self.continues(in_port, packet.passes) {
            let batch = self.spare.pop().unwrap_or_default();
            self.stack.push(Waiting { in_port, batch, is_known: false });
        }
        if let Some(Waiting { batch, .. }) = self.stack.last_mut() {
            batch.push(packet);
        }
    }

    /// Returns true if a packet that has recirculated so often joins the last batch. Batches contain packets of equal passes:
    /// those of one connection would change their order if one of them were ahead of the others.
    fn continues(&self, in_port: DpPort, passes: u8) -> bool {
        let last = if self.stack.len() > self.mark { self.stack.last() } else { None };
        last.is_some_and(|Waiting { in_port: of_batch, batch, is_known }| {
            let is_open = *of_batch == in_port && batch.len() < BATCH_MAX && !is_known;
            is_open && batch.last().is_some_and(|last| last.passes == passes)
        })
    }

    /// Takes all of `packets` as one batch, for a look-up with an ingress port and `recirc_id`, and leaves none. Returns false, and takes
    /// none, if the list admits only some of them or they continue a batch: [`Worklist::push`] takes them one by one.
    pub(crate) fn push_batch(&mut self, packets: &mut Batch, (in_port, recirc_id): (DpPort, u32)) -> bool {
        let n = packets.len();
        let continues = packets.first().is_some_and(|packet| self.continues(in_port, packet.passes + 1));
        if continues || n == 0 || n > BATCH_MAX || n > self.work || self.packets + n > PACKETS_MAX {
            return false;
        }
        let most = packets.iter().map(|packet| packet.passes).max().unwrap_or(0);
        let bytes = packets.iter().map(|packet| packet.len()).sum::<usize>();
        if most >= PASSES_MAX || self.bytes + bytes > BYTES_MAX {
            return false;
        }
        for packet in packets.iter_mut() {
            let parts = &mut **packet;
            parts.recirc_id = recirc_id;
            parts.passes += 1;
            parts.tags = 0;
        }
        self.work -= n;
        self.packets += n;
        self.bytes += bytes;
        let batch = std::mem::replace(packets, self.spare.pop().unwrap_or_default());
        self.stack.push(Waiting { in_port, batch, is_known: false });
        true
    }

    /// The same for packets that left tunnels and have no metadata yet, with their outer headers. At most one such batch
    /// waits.
    pub(crate) fn push_known(&mut self, packets: &mut Batch, in_port: DpPort, hits: &[Hit; BATCH_MAX]) -> bool {
        if self.has_known || !self.push_batch(packets, (in_port, 0)) {
            return false;
        }
        if let Some(last) = self.stack.last_mut() {
            last.is_known = true;
        }
        (self.hits, self.has_known) = (*hits, true);
        self.tunnels.hold(true);
        true
    }

    /// Whether a known batch waits.
    #[inline]
    pub(crate) fn has_known(&self) -> bool {
        self.has_known
    }

    /// The outer headers of the packets of the batch that was taken last, if it is a known one. They stay valid until
    /// [`Worklist::release_hits`].
    #[inline]
    pub(crate) fn take_hits(&mut self) -> Option<[Hit; BATCH_MAX]> {
        std::mem::take(&mut self.is_known).then_some(self.hits)
    }

    /// Ends the use of the outer headers of the batch that was taken last.
    #[inline]
    pub(crate) fn release_hits(&mut self) {
        self.tunnels.hold(self.has_known);
    }

    /// Returns the number of packets that wait.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.packets
    }

    /// Returns the length of the first batch that the current batch recirculated.
    pub(crate) fn next_len(&self) -> usize {
        self.stack.get(self.mark).map_or(0, |waiting| waiting.batch.len())
    }

    /// Ends the current batch: the batches that it recirculated are next, in their order.
    pub(crate) fn settle(&mut self) {
        self.stack[self.mark..].reverse();
        self.mark = self.stack.len();
    }

    /// Takes the next batch in exchange for an empty one, and returns its ingress port. `None` if there is no batch.
    pub(crate) fn pop(&mut self, batch: &mut Batch) -> Option<DpPort> {
        let Waiting { in_port, batch: next, is_known } = self.stack.pop()?;
        self.is_known = is_known;
        self.has_known &= !is_known;
        self.mark = self.stack.len();
        self.packets -= next.len();
        self.bytes -= next.iter().map(|packet| packet.len()).sum::<usize>();
        self.spare.push(std::mem::replace(batch, next));
        Some(in_port)
    }

    /// Drops all batches. Returns the number of packets that waited.
    pub(crate) fn clear(&mut self) -> usize {
        self.stack.iter_mut().for_each(|waiting| pool::recycle_all(&mut waiting.batch));
        self.stack.clear();
        (self.has_known, self.is_known) = (false, false);
        self.tunnels.hold(false);
        (self.mark, self.bytes) = (0, 0);
        std::mem::take(&mut self.packets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;

    fn packet(n: u64) -> Packet {
        Packet::from_slice(&n.to_be_bytes())
    }

    fn number(packet: &Packet) -> u64 {
        u64::from_be_bytes(packet.data().try_into().expect("8 bytes"))
    }

    /// The order of a naive recursion: everything that a batch recirculates precedes the next batch.
    #[test]
    fn recirculated_packets_run_depth_first_and_in_order() {
        let mut rng = Rng::seeded(5);
        for _ in 0..300 {
            let (mut list, mut twin) = (Worklist::default(), Vec::<u64>::new());
            let (mut batch, mut next, mut done) = (Batch::new(), 0, 0);
            list.begin(1000);
            loop {
                let n = if next < 2000 { rng.below(90) } else { 0 };
                let new: Vec<u64> = (next..next + n).collect();
                next += n;
                // Some come as a batch, others one by one.
                let mut together: Batch = new.iter().map(|n| packet(*n)).collect();
                if rng.below(2) == 0 {
                    let before = list.stack.len();
                    let begins = before == list.mark || list.stack[before - 1].batch.len() >= BATCH_MAX;
                    let fits = begins && (1..=BATCH_MAX).contains(&together.len());
                    assert_eq!(list.push_batch(&mut together, (DpPort(3), 7)), fits);
                    assert_eq!(
                        (together.is_empty(), list.stack.len()),
                        (fits || new.is_empty(), before + usize::from(fits))
                    );
                }
                together.drain(..).for_each(|packet| list.push(packet, (DpPort(3), 7)));
                assert_eq!(list.next_len(), list.stack.get(list.mark).map_or(0, |waiting| waiting.batch.len()));
                list.settle();
                twin.splice(0..0, new);
                assert_eq!((list.packets, list.bytes), (twin.len(), 8 * twin.len()));
                batch.clear();
                let Some(in_port) = list.pop(&mut batch) else { break };
                assert_eq!(in_port, DpPort(3));
                assert!((1..=BATCH_MAX).contains(&batch.len()));
                assert!(batch.iter().all(|p| (p.recirc_id, p.passes) == (7, 1)));
                done += batch.len() as u64;
                assert!(batch.iter().map(number).eq(twin.drain(..batch.len())));
            }
            assert!(twin.is_empty() && list.is_empty() && done == next);
        }
    }

    #[test]
    fn batches_have_one_ingress_port() {
        let mut list = Worklist::default();
        list.begin(10);
        for (n, port) in [(0, 1), (1, 1), (2, 2), (3, 1)] {
            list.push(packet(n), (DpPort(port), 0));
        }
        list.settle();
        let mut batch = Batch::new();
        let mut seen = Vec::new();
        while let Some(port) = list.pop(&mut batch) {
            seen.push((port.0, batch.drain(..).map(|packet| number(&packet)).collect::<Vec<_>>()));
        }
        assert_eq!(seen, [(1, vec![0, 1]), (2, vec![2]), (1, vec![3])]);
    }

    #[test]
    fn packets_passes_and_work_are_bounded() {
        let mut list = Worklist::default();
        list.begin(1);
        let mut old = packet(1);
        old.passes = PASSES_MAX;
        assert!(!list.admits(&old) && list.admits(&packet(1)));
        let mut n = 0;
        while list.admits(&packet(1)) {
            list.push(packet(1), (DpPort(3), 1));
            n += 1;
        }
        assert_eq!((n, list.clear(), list.packets), (WORK_MAX, WORK_MAX, 0));
        list.begin(1000);
        while list.admits(&packet(1)) {
            list.push(packet(1), (DpPort(3), 1));
        }
        assert_eq!(list.clear(), PACKETS_MAX);
        let large = Packet::from_slice(&vec![0; 1 << 20]);
        while list.admits(&large) {
            list.push(Packet::from_slice(large.data()), (DpPort(3), 1));
        }
        assert_eq!(list.clear(), 64);
    }
}
