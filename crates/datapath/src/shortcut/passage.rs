//! The state of a batch on the shortcut.

use base::{DpPort, PortNo};
use conntrack::tracker::Plain;
use flow::compact::{Compact, extract_compact, extract_plain_into};
use flow::{PlainKey, WideKey};
use netdev::pool;
use packet::buf::BATCH_MAX;
use packet::{Batch, Packet};

use crate::shared::SharedState;

/// What a batch adds to a megaflow of a later pass, and the packets for which that is the last one.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// The position of the megaflow among the hints.
    pub(super) hint: usize,
    pub(super) n: u64,
    pub(super) bytes: u64,
    pub(super) tcp_flags: u16,
    pub(super) packets: Batch,
}

/// What a batch adds to megaflows of later passes.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// The first `used` of them have a megaflow.
    taken: Vec<Taken>,
    used: usize,
    /// The last one of them that a packet took.
    last: usize,
    /// The connections and directions of packets of the batch that have left the shortcut.
    pub(super) late: Vec<(u64, bool)>,
    /// All packets of the batch that wait for another look-up are in `late`.
    pub(super) keeps_order: bool,
}

/// The state of a batch on the shortcut, kept for its memory.
#[derive(Debug, Default)]
pub(crate) struct Passage {
    pub(super) tally: Tally,
    /// The packets that are plain, and their keys.
    pub(super) plain: Box<[Prepared; BATCH_MAX]>,
    /// Packets that leave the shortcut together, and packets that did not take it.
    pub(super) left: Batch,
    pub(super) stays: Batch,
}

/// A plain packet.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    pub(super) plain: Plain,
    pub(super) key: PlainKey,
    /// The length of the frame.
    pub(super) bytes: u64,
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
    /// Becomes the form of a packet. Returns false if the packet is not plain, is invalid, or has metadata.
    #[inline(always)]
    pub(super) fn prepare(&mut self, packet: &Packet, in_port: DpPort, zone: u16, shared: &SharedState) -> bool {
        if packet.l3_type.is_some() || packet.metadata().is_some() {
            return false;
        }
        let frame = packet.data();
        if !extract_plain_into(frame, PortNo(in_port.0), &mut self.key) {
            return false;
        }
        self.bytes = frame.len() as u64;
        let checksum = packet.offload.checksum;
        self.key.head().is_some_and(|head| shared.tracker.prepare(frame, &head, checksum, zone, &mut self.plain))
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
        taken.chain([&mut self.left, &mut self.stays]).for_each(pool::recycle_all);
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

    /// Adds a packet to those for which the megaflow counted last is the last one.
    #[inline]
    pub(super) fn push(&mut self, packet: Packet) {
        self.taken[self.last].packets.push(packet);
    }

    /// Counts a packet for a megaflow, which `last` then names.
    #[inline(always)]
    pub(super) fn count(&mut self, hint: usize, bytes: u64, tcp_flags: u16) {
        if self.last >= self.used || self.taken[self.last].hint != hint {
            self.turn_to(hint);
        }
        let taken = &mut self.taken[self.last];
        taken.n += 1;
        taken.bytes += bytes;
        taken.tcp_flags |= tcp_flags;
    }

    #[inline(never)]
    fn turn_to(&mut self, hint: usize) {
        let known = self.taken[..self.used].iter().position(|taken| taken.hint == hint);
        self.last = known.unwrap_or(self.used);
        if known.is_none() {
            if self.used == self.taken.len() {
                self.taken.push(Taken::default());
            }
            let taken = &mut self.taken[self.used];
            (taken.hint, taken.n, taken.bytes, taken.tcp_flags) = (hint, 0, 0, 0);
            self.used += 1;
        }
    }
}
