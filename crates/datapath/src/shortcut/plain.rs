//! Plain packets on the shortcut: those of TCP and UDP over IPv4, whose connections are resumed without metadata.

use std::sync::Arc;

use conntrack::action::state;
use conntrack::tracker::{Plain, Resumed, SlotCache, is_resumable};
use conntrack::{Action, Key};
use dpif::DpAction;
use flow::Brief;
use packet::Packet;
use packet::metadata::Connection;

use super::hints::{Hint, Opening};
use super::passage::{List, Prepared, Tally};
use super::{Checked, End, Follower};
use crate::megaflow::Megaflow;

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
    #[inline(always)]
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
            if resumed.is_translated {
                let Key { src, dst, src_port, dst_port, .. } = prepared.plain.key();
                let ports = u32::from(*src_port) << 16 | u32::from(*dst_port);
                prepared.key.set_ends(src[1] as u32, dst[1] as u32, ports);
            }
            let Some((hint, flow)) = self.next_plain(packet, &resumed, (ct, id), prepared, tally) else {
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
            tally.count(List::of(hint), prepared.bytes, prepared.key.tcp_flags());
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
                    None => End::Takes,
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
        let (list, tcp_flags) = (List::of(at), prepared.key.tcp_flags());
        if let (Some(opened), [DpAction::Ct(commit), rest @ ..]) = (opened, &*flow.actions) {
            if *opening == Opening::Ends {
                tally.count_last(list.begun(), prepared.bytes, tcp_flags);
                return End::Takes;
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
        End::Takes
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
        Prepared { plain, key, .. }: &Prepared,
        tally: &Tally,
    ) -> Option<(usize, &'a Hint)> {
        let state = state::NEW | state::TRK;
        let memo = self.hints.guess(id, state, ct.zone);
        let (at, hint) = self.usable(packet, memo, || (0, false), tally)?;
        let covers = if hint.bits.is_brief() && self.check_every == 0 {
            let brief = Brief::new(state, ct.zone, plain.key().proto, 0, 0);
            hint.bits.covers_brief(key, (id, packet.dp_hash), &brief)
        } else {
            let (key, connection) =
                (key.with_recirculation(id, packet.dp_hash), self.shared.tracker.state_of_new(plain));
            let is_right = || self.check_every == 0 || self.check(&hint.flow, Checked::Plain(&key), &connection);
            hint.bits.covers_plain(&key, &connection) && is_right()
        };
        covers.then_some((at, hint))
    }

    /// Unlocks the connection of a packet. Remembers where it is, unless that was known: for the first zone on this thread, for
    /// others beside the connection of the zone before.
    #[inline(always)]
    fn release(&self, resumed: Resumed<'_>, before: Option<(u64, bool)>, plain: &Plain, slots: &mut SlotCache) {
        let (slot, is_expected) = (resumed.slot(), resumed.is_expected);
        drop(resumed);
        if !is_expected {
            match before {
                Some(before) => self.shared.tracker.set_next(before, slot),
                None => plain.remember(slot, slots),
            }
        }
    }

    /// The megaflow of the memo of a plain packet's connection, and its position among the hints, if the packet takes it in
    /// the pass of its key.
    #[inline(always)]
    fn next_plain(
        &self,
        packet: &Packet,
        resumed: &Resumed<'_>,
        (ct, id): (&Action, u32),
        Prepared { plain, key, .. }: &Prepared,
        tally: &Tally,
    ) -> Option<(usize, &'a Arc<Megaflow>)> {
        let (at, hint) = self.usable(packet, resumed.memo(), || resumed.way(), tally)?;
        let covers = if hint.bits.is_brief() {
            let proto = plain.key().proto;
            let brief = Brief::new(resumed.state(), ct.zone, proto, resumed.mark(), resumed.label());
            hint.bits.covers_brief(key, (id, packet.dp_hash), &brief)
        } else {
            hint.bits.covers_plain(&key.with_recirculation(id, packet.dp_hash), &resumed.connection(ct))
        };
        if !covers {
            return None;
        }
        if self.check_every != 0 {
            let key = key.with_recirculation(id, packet.dp_hash);
            if !self.check(&hint.flow, Checked::Plain(&key), &resumed.connection(ct)) {
                return None;
            }
        }
        Some((at, &hint.flow))
    }
}
