//! Plain packets on the shortcut: those of TCP and UDP over IPv4, whose connections are resumed without metadata.

use std::sync::Arc;

use conntrack::tracker::{Resumed, is_resumable};
use conntrack::{Action, Key};
use dpif::DpAction;
use flow::Brief;
use packet::Packet;
use packet::metadata::Connection;

use super::passage::{Prepared, Tally};
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
        tally: &mut Tally,
    ) -> End {
        let ((mut ct, mut id), mut actions) = (first, actions);
        let mut before = None;
        loop {
            let Some(resumed) = self.shared.tracker.resume(packet, &mut prepared.plain, ct, self.now) else {
                // An action that sees no earlier one of its zone needs no state of other zones.
                return self.follow_from(packet, Connection::default(), actions, tally);
            };
            if resumed.is_translated {
                let Key { src, dst, src_port, dst_port, .. } = prepared.plain.key();
                let ports = u32::from(*src_port) << 16 | u32::from(*dst_port);
                prepared.key.set_ends(src[1] as u32, dst[1] as u32, ports);
            }
            let Some((hint, flow)) = self.next_plain(packet, &resumed, (ct, id), prepared, tally) else {
                tally.late.push(resumed.way());
                packet.metadata_mut().connection = resumed.connection(ct);
                return End::Recirculates(id);
            };
            packet.passes += 1;
            packet.tags = 0;
            tally.count(hint, prepared.bytes, prepared.key.tcp_flags());
            let next = if flow.is_tracking { resumable(&flow.actions) } else { None };
            let is_last = !flow.is_tracking;
            if is_last && flow.uses_metadata {
                packet.recirc_id = id;
                packet.metadata_mut().connection = Connection { awaits_lookup: false, ..resumed.connection(ct) };
            }
            // Another action in the same zone needs the state of this one.
            let Some(next) = next.filter(|(next, _)| next.zone != ct.zone) else {
                let connection = if is_last { None } else { Some(resumed.connection(ct)) };
                self.release(resumed, before);
                return match connection {
                    Some(connection) => self.follow_from(packet, connection, &flow.actions, tally),
                    None => End::Takes,
                };
            };
            let way = resumed.way();
            self.release(resumed, before);
            before = Some(way);
            (ct, id) = next;
            actions = &flow.actions;
        }
    }

    /// Unlocks the connection of a packet. Lets the connection of its previous pass remember where this one is, unless it
    /// knows.
    #[inline(always)]
    fn release(&self, resumed: Resumed<'_>, before: Option<(u64, bool)>) {
        let (slot, is_expected) = (resumed.slot(), resumed.is_expected);
        drop(resumed);
        if let Some(before) = before
            && !is_expected
        {
            self.shared.tracker.set_next(before, slot);
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
