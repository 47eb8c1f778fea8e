//! The state of a batch on the shortcut.

use std::collections::VecDeque;

use base::{DpPort, PortNo};
use conntrack::Tracker;
use conntrack::tracker::{PacketKind, Plain, SlotCache};
use flow::compact::{Compact, extract_compact};
use flow::plain::{tagged_head, untagged_head};
use flow::{PlainKey, WideKey};
use netdev::pool;
use packet::buf::BATCH_MAX;
use packet::{Batch, Packet};

use super::End;

/// What a batch adds to a megaflow of a later pass, and the packets for which that is the last one.
#[derive(Debug, Default)]
pub(super) struct Taken {
    pub(super) list: List,
    pub(super) n: u64,
    pub(super) bytes: u64,
    pub(super) tcp_flags: u16,
    pub(super) packets: Batch,
}

/// The list of actions of a megaflow: its position among the hints, whether the first action is executed already, and whether
/// the packets took a guess.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct List(usize);

impl List {
    const BEGUN: usize = 1;
    const GUESSED: usize = 2;

    /// The list of the megaflow at a position.
    #[inline]
    pub(super) fn of(hint: usize) -> Self {
        Self(hint << 2)
    }

    /// The list without its first action.
    #[inline]
    pub(super) fn begun(self) -> Self {
        Self(self.0 | Self::BEGUN)
    }

    /// The position of the megaflow.
    #[inline]
    pub(super) fn hint(self) -> usize {
        self.0 >> 2
    }

    /// Whether the first action is executed already.
    #[inline]
    pub(super) fn is_begun(self) -> bool {
        self.0 & Self::BEGUN != 0
    }
}

/// What a batch adds to megaflows of later passes.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The first `used` of them have a megaflow.
    taken: Vec<Taken>,
    used: usize,
    /// The last one of them that a packet took.
    last: usize,
    /// The connections and directions of packets of the batch that have left the shortcut; no handle stands for all packets
    /// without a connection.
    pub(super) late: Vec<(u64, bool)>,
    /// The memos that connections and directions get after the batch, as a guess was right.
    pub(super) guessed: Vec<((u64, bool), u32)>,
    /// All packets of the batch that wait for another look-up are in `late`.
    pub(super) keeps_order: bool,
}

/// The state of a batch on the shortcut, kept for its memory.
#[derive(Debug, Default)]
pub(crate) struct Passage {
    pub(super) tally: Tally,
    /// The packets that are plain.
    pub(super) plain: Box<[Prepared; BATCH_MAX]>,
    /// Where packets found their connections.
    pub(super) slots: SlotCache,
    /// Packets that leave the shortcut, and packets that did not take it.
    pub(super) left: Left,
    pub(super) stays: Batch,
}

/// Packets that leave the shortcut, to be looked up again.
#[derive(Debug, Default)]
pub(super) struct Left {
    packets: Batch,
    /// Runs of packets that leave together: their recirculation id, and their number.
    runs: VecDeque<(u32, usize)>,
    /// The first run, after the others have gone on without it.
    first: Batch,
}

impl Left {
    /// Adds a packet that is looked up with a recirculation id.
    pub(super) fn push(&mut self, id: u32, packet: Packet) {
        let passes = self.packets.last().map(|last| last.passes);
        match self.runs.back_mut() {
            Some((of_run, n)) if *of_run == id && passes == Some(packet.passes) => *n += 1,
            _ => self.runs.push_back((id, 1)),
        }
        self.packets.push(packet);
    }

    /// Takes the first packets that leave together, with their recirculation id.
    pub(super) fn pop_first(&mut self) -> Option<(u32, &mut Batch)> {
        let (id, n) = self.runs.pop_front()?;
        if n == self.packets.len() {
            return Some((id, &mut self.packets));
        }
        self.first.clear();
        self.first.extend(self.packets.drain(..n));
        Some((id, &mut self.first))
    }
}

/// A plain packet.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    pub(super) plain: Plain,
    /// The length of the frame.
    pub(super) bytes: u64,
    pub(super) tcp_flags: u16,
    /// Whether the frame has no VLAN tag.
    pub(super) is_untagged: bool,
}

/// The compact key of a packet, which all passes share until a translation changes the packet.
#[derive(Default)]
pub(super) struct CompactKey {
    /// `None` if the key is not extracted, or no longer true.
    pub(super) form: Option<Compact>,
    pub(super) plain: PlainKey,
    pub(super) wide: WideKey,
}

impl CompactKey {
    /// Extracts the key, if it is not known, and sets recirculation id and hash of this pass. `None` if it has no compact form.
    #[inline]
    pub(super) fn of_pass(&mut self, packet: &Packet, in_port: DpPort, recirc_id: u32) -> Option<Compact> {
        if self.form.is_none() {
            self.form = extract_compact(packet.data(), PortNo(in_port.0), &mut self.plain, &mut self.wide);
        }
        match self.form? {
            Compact::Plain => self.plain = self.plain.with_recirculation(recirc_id, packet.dp_hash),
            Compact::Wide => self.wide = self.wide.with_recirculation(recirc_id, packet.dp_hash),
        }
        self.form
    }
}

impl Prepared {
    /// Becomes the form of a packet, if it is plain, valid, and has no metadata.
    #[inline(always)]
    pub(super) fn prepare(&mut self, packet: &Packet, zone: u16, tracker: &Tracker) -> PacketKind {
        if packet.l3_type.is_some() || packet.metadata().is_some() {
            return PacketKind::Other;
        }
        let frame = packet.data();
        let untagged = untagged_head(frame);
        self.is_untagged = untagged.is_some();
        let Some((head, tcp_flags)) = untagged.or_else(|| tagged_head(frame)) else { return PacketKind::Other };
        (self.bytes, self.tcp_flags) = (frame.len() as u64, tcp_flags);
        tracker.prepare(&head, packet.offload.checksum, zone, &mut self.plain)
    }
}

impl Passage {
    /// Begins a batch.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.tally.late.clear();
        self.tally.keeps_order = true;
    }

    /// Drops the packets of a batch that was not finished.
    pub(crate) fn give_up(&mut self) {
        let taken = self.tally.taken.iter_mut().map(|taken| &mut taken.packets);
        let Left { packets, runs, first } = &mut self.left;
        runs.clear();
        taken.chain([packets, first, &mut self.stays]).for_each(pool::recycle_all);
    }
}

impl Tally {
    /// Begins a list of actions.
    pub(super) fn begin_list(&mut self) {
        (self.used, self.last) = (0, 0);
    }

    /// The megaflows that packets took.
    pub(super) fn taken(&mut self) -> &mut [Taken] {
        &mut self.taken[..self.used]
    }

    /// The position among the hints of a list's megaflow.
    pub(super) fn hint_of(&self, list: u32) -> usize {
        self.taken[list as usize].list.hint()
    }

    /// The list that was counted last.
    #[inline(always)]
    pub(super) fn last(&self) -> u32 {
        self.last as u32
    }

    /// The end of a packet for which the list counted last is the last one.
    #[inline(always)]
    pub(super) fn end(&self) -> End {
        End::Takes(self.last())
    }

    /// Counts a packet for a list of the batch, which [`Self::last`] then is.
    #[inline(always)]
    pub(super) fn count_at(&mut self, list: u32, bytes: u64, tcp_flags: u16) {
        self.last = list as usize;
        self.add(bytes, tcp_flags);
    }

    /// Adds a packet to those that take a list.
    #[inline]
    pub(super) fn push(&mut self, list: u32, packet: Packet) {
        self.taken[list as usize].packets.push(packet);
    }

    /// Moves all packets to a list, which has none yet.
    #[inline]
    pub(super) fn push_all(&mut self, list: u32, packets: &mut Batch) {
        std::mem::swap(&mut self.taken[list as usize].packets, packets);
    }

    /// Counts a packet for a list, which [`Self::last`] then is.
    #[inline(always)]
    pub(super) fn count(&mut self, list: List, bytes: u64, tcp_flags: u16) {
        if self.last >= self.used || self.taken[self.last].list != list {
            self.turn_to(list);
        }
        self.add(bytes, tcp_flags);
    }

    #[inline(never)]
    fn turn_to(&mut self, list: List) {
        match self.taken[..self.used].iter().position(|taken| taken.list == list) {
            Some(known) => self.last = known,
            None => self.append(list),
        }
    }

    /// The same for the last list of a packet that took a guess. Other packets of its connection may have taken any other list
    /// before, so that this one comes after them all.
    #[inline]
    pub(super) fn count_last(&mut self, list: List, bytes: u64, tcp_flags: u16) {
        let list = List(list.0 | List::GUESSED);
        self.last = self.used.wrapping_sub(1);
        if self.taken[..self.used].last().is_none_or(|last| last.list != list) {
            self.append(list);
        }
        self.add(bytes, tcp_flags);
    }

    fn append(&mut self, list: List) {
        if self.used == self.taken.len() {
            self.taken.push(Taken::default());
        }
        let taken = &mut self.taken[self.used];
        (taken.list, taken.n, taken.bytes, taken.tcp_flags) = (list, 0, 0, 0);
        self.last = self.used;
        self.used += 1;
    }

    #[inline(always)]
    fn add(&mut self, bytes: u64, tcp_flags: u16) {
        let taken = &mut self.taken[self.last];
        taken.n += 1;
        taken.bytes += bytes;
        taken.tcp_flags |= tcp_flags;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u8) -> Packet {
        Packet::from_slice(&[number; 60])
    }

    fn numbers(packets: &Batch) -> Vec<u8> {
        packets.iter().map(|packet| packet.data()[0]).collect()
    }

    #[test]
    fn packets_that_took_a_guess_come_after_all_others() {
        let mut tally = Tally::default();
        for _ in 0..2 {
            tally.begin_list();
            let lists = [(1, false), (1, true), (1, false), (2, true), (1, true), (1, true), (2, false), (2, true)];
            for (number, (hint, is_guess)) in (0..).zip(lists) {
                if is_guess {
                    tally.count_last(List::of(hint), 100, 1 << number);
                } else {
                    tally.count(List::of(hint), 100, 1 << number);
                }
                tally.push(tally.last(), packet(number));
            }
            let taken: Vec<_> = tally
                .taken()
                .iter_mut()
                .map(|taken| {
                    let seen = (taken.list.hint(), numbers(&taken.packets), taken.n, taken.bytes, taken.tcp_flags);
                    taken.packets.clear();
                    seen
                })
                .collect();
            let expected = [
                (1, vec![0, 2], 2, 200, 0b101),
                (1, vec![1], 1, 100, 0b10),
                (2, vec![3], 1, 100, 0b1000),
                (1, vec![4, 5], 2, 200, 0b11_0000),
                (2, vec![6], 1, 100, 0b100_0000),
                (2, vec![7], 1, 100, 0b1000_0000),
            ];
            assert_eq!(taken, expected);
        }
    }

    #[test]
    fn a_list_without_its_first_action_is_another_one() {
        let list = List::of(7);
        assert_eq!((list.hint(), list.begun().hint()), (7, 7));
        assert_eq!((list.is_begun(), list.begun().is_begun()), (false, true));
        let mut tally = Tally::default();
        tally.begin_list();
        for list in [list, list.begun(), list] {
            tally.count(list, 1, 0);
        }
        assert_eq!(tally.taken().iter().map(|taken| taken.n).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn packets_leave_in_order_with_those_of_their_look_up() {
        let mut left = Left::default();
        for _ in 0..2 {
            for (number, (id, passes)) in (0..).zip([(5, 1), (5, 1), (5, 2), (6, 2), (5, 2), (5, 2)]) {
                let mut packet = packet(number);
                packet.passes = passes;
                left.push(id, packet);
            }
            let mut runs = Vec::new();
            while let Some((id, packets)) = left.pop_first() {
                runs.push((id, numbers(packets)));
                packets.clear();
            }
            assert_eq!(runs, [(5, vec![0, 1]), (5, vec![2]), (6, vec![3]), (5, vec![4, 5])]);
        }
    }
}
