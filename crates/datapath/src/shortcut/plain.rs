//! Plain packets on the shortcut: those of TCP and UDP over IPv4, whose connections are resumed without metadata.

use base::PortNo;
use conntrack::Action;
use conntrack::action::state;
use conntrack::tracker::{Plain, Resumed, SlotCache, is_resumable};
use dpif::DpAction;
use flow::compact::extract_plain_into;
use flow::{FramePattern, PlainKey};
use packet::Packet;
use packet::metadata::Connection;

use super::hints::{Hint, Opening};
use super::passage::{List, Prepared, Tally};
use super::{Checked, End, Follower};

/// Megaflows of memos that a batch keeps at hand: a power of two.
pub(super) const RECENT: usize = 8;

/// A megaflow that packets of a batch may take in passes with a recirculation id.
#[derive(Clone, Copy)]
pub(super) struct Recent<'a> {
    memo: u32,
    id: u32,
    /// Its position among the hints.
    at: usize,
    hint: &'a Hint,
    /// Its list in the tally, once a packet has taken it.
    list: Option<u32>,
    /// Its match in the bytes of untagged frames, if frames of this batch that have them, and a connection with the right fields,
    /// take it.
    frame: Option<&'a FramePattern>,
}

/// The action of a list, and the recirculation id behind it, if plain packets can resume their connections there.
#[inline]
pub(super) fn resumable(actions: &[DpAction]) -> Option<(&Action, u32)> {
    match actions {
        [DpAction::Ct(ct), DpAction::Recirc(id)] if is_resumable(ct) => Some((ct, *id)),
        _ => None,
    }
}

impl<'a> Follower<'a> {
    /// Takes a plain packet as far as memos lead. Its list `actions` is resumable, with this action and recirculation id.
    #[inline(never)]
    pub(super) fn follow_plain(
        &self,
        packet: &mut Packet,
        prepared: &mut Prepared,
        first: (&Action, u32),
        actions: &[DpAction],
        (tally, slots): (&mut Tally, &mut SlotCache),
    ) -> End {
        let ((mut ct, mut id), mut actions) = (first, actions);
        let mut before = None;
        loop {
            let Some(resumed) = self.shared.tracker.resume(packet, &mut prepared.plain, ct, self.now) else {
                if prepared.plain.has_none() {
                    return self.follow_new(packet, prepared, (ct, id), actions, tally);
                }
                // An action that sees no earlier one of its zone needs no state of other zones.
                return self.follow_from(packet, Connection::default(), actions, tally);
            };
            let Some(recent) = self.next_plain(packet, &resumed, (ct, id), prepared, tally) else {
                let (connection, way, memo) = (resumed.connection(ct), resumed.way(), resumed.memo());
                drop(resumed);
                if memo == 0 {
                    return self.follow_from(packet, connection, &actions[1..], tally);
                }
                tally.late.push(way);
                packet.metadata_mut().connection = connection;
                return End::Recirculates(id);
            };
            packet.passes += 1;
            packet.tags = 0;
            match recent.list {
                Some(list) => tally.count_at(list, prepared.bytes, prepared.tcp_flags),
                None => self.count_first(recent, prepared, tally),
            }
            let flow = &recent.hint.flow;
            let next = if flow.is_tracking { resumable(&flow.actions) } else { None };
            let is_last = !flow.is_tracking;
            if is_last && flow.uses_metadata {
                packet.recirc_id = id;
                packet.metadata_mut().connection = Connection { awaits_lookup: false, ..resumed.connection(ct) };
            }
            // Another action in the same zone needs the state of this one.
            let Some(next) = next.filter(|(next, _)| next.zone != ct.zone) else {
                let connection = if is_last { None } else { Some(resumed.connection(ct)) };
                self.release(resumed, before, &prepared.plain, slots);
                return match connection {
                    Some(connection) => self.follow_from(packet, connection, &flow.actions, tally),
                    None => tally.end(),
                };
            };
            let way = resumed.way();
            self.release(resumed, before, &prepared.plain, slots);
            before = Some(way);
            (ct, id) = next;
            actions = &flow.actions;
        }
    }

    /// Takes a plain packet that has no connection in the zone of the next action through this action and, if it begins a
    /// connection, further.
    #[inline(never)]
    pub(super) fn follow_new(
        &self,
        packet: &mut Packet,
        prepared: &mut Prepared,
        (ct, id): (&Action, u32),
        actions: &[DpAction],
        tally: &mut Tally,
    ) -> End {
        let tracker = &self.shared.tracker;
        let may_begin = tracker.may_begin(packet.data(), &mut prepared.plain, ct);
        let guess = if may_begin { self.next_new(packet, (ct, id), prepared, tally) } else { None };
        let opened = guess.and_then(|(_, hint)| self.open(hint, &prepared.plain, ct.zone));
        if opened.is_none() && !(may_begin && tracker.is_absent(&prepared.plain, self.now)) {
            return self.follow_from(packet, Connection::default(), actions, tally);
        }
        let Some((at, Hint { flow, opening, .. })) = guess else {
            tally.late.push((0, false));
            packet.metadata_mut().connection = tracker.state_of_new(&prepared.plain);
            return End::Recirculates(id);
        };
        packet.passes += 1;
        packet.tags = 0;
        let (list, tcp_flags) = (List::of(at), prepared.tcp_flags);
        if let (Some(opened), [DpAction::Ct(commit), rest @ ..]) = (opened, &*flow.actions) {
            if *opening == Opening::Ends {
                tally.count_last(list.begun(), prepared.bytes, tcp_flags);
                return tally.end();
            }
            tally.count(list, prepared.bytes, tcp_flags);
            let connection = opened.connection(commit);
            drop(opened);
            return self.follow_after(packet, connection, rest, true, tally);
        }
        if flow.is_tracking {
            tally.count(list, prepared.bytes, tcp_flags);
            return self.follow_after(packet, tracker.state_of_new(&prepared.plain), &flow.actions, true, tally);
        }
        tally.count_last(list, prepared.bytes, tcp_flags);
        if flow.uses_metadata {
            packet.recirc_id = id;
            packet.metadata_mut().connection = tracker.state_of_new(&prepared.plain);
        }
        tally.end()
    }

    /// Stores the connection of a packet that may begin one, if a megaflow begins with a commit in the zone.
    #[inline]
    fn open(&self, hint: &Hint, plain: &Plain, zone: u16) -> Option<Resumed<'a>> {
        match (hint.opening, &*hint.flow.actions) {
            (Opening::Ends | Opening::Recirculates, [DpAction::Ct(commit), ..]) if commit.zone == zone => {
                self.shared.tracker.open(plain, commit, self.now)
            }
            _ => None,
        }
    }

    /// The megaflow that a packet that begins a connection takes, with its position among the hints, if the last one like it is
    /// right.
    #[inline]
    fn next_new(
        &self,
        packet: &Packet,
        (ct, id): (&Action, u32),
        prepared: &Prepared,
        tally: &Tally,
    ) -> Option<(usize, &'a Hint)> {
        let state = state::NEW | state::TRK;
        let recent = self.recent(self.hints.guess(id, state, ct.zone), id)?;
        let fields = (state, ct.zone, prepared.plain.proto());
        let whole = || self.shared.tracker.state_of_new(&prepared.plain);
        let covers = Self::may_take(packet, || (0, false), tally)
            && self.covers(packet, prepared, (recent, id), fields, || (0, 0), whole);
        covers.then_some((recent.at, recent.hint))
    }

    /// Unlocks the connection of a packet. Remembers where it is, unless that was known: for the first zone on this thread, for
    /// others beside the connection of the zone before.
    #[inline(always)]
    fn release(&self, resumed: Resumed<'_>, before: Option<(u64, bool)>, plain: &Plain, slots: &mut SlotCache) {
        let (known, is_expected) = (resumed.known(), resumed.is_expected);
        drop(resumed);
        if !is_expected {
            match before {
                Some(before) => self.shared.tracker.set_next(before, known),
                None => plain.remember(known, slots),
            }
        }
    }

    /// The megaflow of the memo of a plain packet's connection, if the packet takes it in a pass with this recirculation id.
    #[inline(always)]
    fn next_plain(
        &self,
        packet: &Packet,
        resumed: &Resumed<'_>,
        (ct, id): (&Action, u32),
        prepared: &Prepared,
        tally: &Tally,
    ) -> Option<Recent<'a>> {
        let recent = self.recent(resumed.memo(), id)?;
        let fields = (resumed.state(), ct.zone, prepared.plain.proto());
        let marks = || (resumed.mark(), resumed.label());
        let covers = Self::may_take(packet, || resumed.way(), tally)
            && self.covers(packet, prepared, (recent, id), fields, marks, || resumed.connection(ct));
        covers.then_some(recent)
    }

    /// Returns true if a megaflow covers a plain packet in a pass with a recirculation id and with a connection of these fields,
    /// mark and label, and as a whole.
    #[inline(always)]
    fn covers(
        &self,
        packet: &Packet,
        prepared: &Prepared,
        (recent, id): (Recent<'_>, u32),
        (state, zone, proto): (u32, u16, u8),
        marks: impl FnOnce() -> (u32, u128),
        connection: impl FnOnce() -> Connection,
    ) -> bool {
        match (recent.frame, packet.data().first_chunk()) {
            (Some(pattern), Some(frame)) if prepared.is_untagged => {
                pattern.covers(frame) && recent.hint.bits.covers_fields(state, zone, proto, marks)
            }
            _ => self.covers_key(packet, recent.hint, id, &connection()),
        }
    }

    /// The same by the key of the packet.
    #[inline(never)]
    fn covers_key(&self, packet: &Packet, hint: &Hint, id: u32, connection: &Connection) -> bool {
        let mut key = PlainKey::default();
        if !extract_plain_into(packet.data(), PortNo(self.in_port.0), &mut key) {
            return false;
        }
        let key = key.with_recirculation(id, packet.dp_hash);
        let is_right = || self.check_every == 0 || self.check(&hint.flow, Checked::Plain(&key), connection);
        hint.bits.covers_plain(&key, connection) && is_right()
    }

    /// The megaflow of a memo for passes with a recirculation id, if it may be used at all.
    #[inline(always)]
    fn recent(&self, memo: u32, id: u32) -> Option<Recent<'a>> {
        let cell = &self.recent[memo as usize % RECENT];
        match cell.get() {
            Some(recent) if (recent.memo, recent.id) == (memo, id) => Some(recent),
            _ => {
                let recent = self.find_recent(memo, id)?;
                cell.set(Some(recent));
                Some(recent)
            }
        }
    }

    /// Counts the first packet of the batch that takes a megaflow at hand.
    #[inline(never)]
    fn count_first(&self, mut recent: Recent<'a>, prepared: &Prepared, tally: &mut Tally) {
        tally.count(List::of(recent.at), prepared.bytes, prepared.tcp_flags);
        recent.list = Some(tally.last());
        self.recent[recent.memo as usize % RECENT].set(Some(recent));
    }

    #[inline(never)]
    fn find_recent(&self, memo: u32, id: u32) -> Option<Recent<'a>> {
        let (at, hint) = self.current(memo)?;
        let is_direct =
            self.check_every == 0 && !hint.bits.reads_hash() && hint.bits.covers_pass(PortNo(self.in_port.0), id, 0);
        Some(Recent { memo, id, at, hint, list: None, frame: hint.bits.frame().filter(|_| is_direct) })
    }
}
