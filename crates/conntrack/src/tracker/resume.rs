//! Packets of known connections in their most frequent form, without all that other packets need: TCP in the window and
//! UDP, over IPv4, of a connection without a helper.
//!
//! [`Tracker::resume`] either does exactly what [`Tracker::track`] would do with a packet that has no connection in the
//! zone yet, or changes nothing.

use base::Millis;
use packet::metadata::Connection;
use packet::wire::Head;
use packet::{Checksum, Packet};

use super::Tracker;
use super::slots::SlotCache;
use super::track::{Role, describe, translation};
use crate::action::{Action, Commit, state};
use crate::key::{Direction, Key, ipproto};
use crate::nat::rewrite;
use crate::parse;
use crate::proto::Update;
use crate::proto::tcp::Segment;
use crate::table::{ConnGuard, Found};

/// A packet whose headers and checksums are valid: TCP or UDP over IPv4 without options. Actions keep it valid.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain {
    /// Its key, in the zone of the last action.
    pub(super) key: Key,
    /// The hash of the key in the first zone.
    hash: u64,
    /// The slot of the table that its connection in the zone of the next action is most likely in.
    slot: Option<u32>,
    /// Its header, if it is a packet of TCP.
    pub(super) segment: Segment,
    /// Offset of its IPv4 header.
    l3: u16,
    /// The zone of the key that `hash` belongs to; [`NO_ZONE`] after a translation.
    hashed_zone: u32,
    /// Whether [`Tracker::resume`] has found no connection.
    has_none: bool,
}

/// No zone.
const NO_ZONE: u32 = u32::MAX;

/// What a frame is for the tracker.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketKind {
    /// A packet that needs [`Tracker::track`]. Its place in the table may be known all the same.
    Other = 0,
    /// A packet that [`Tracker::resume`] accepts.
    Plain = 1,
    /// A SYN, which may begin a connection ([`Tracker::may_begin`]).
    Syn = 2,
}

impl Plain {
    /// Its key, in the zone of the last action.
    #[inline]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Returns true if [`Tracker::resume`] has found no connection of the packet in a zone.
    #[inline]
    pub fn has_none(&self) -> bool {
        self.has_none
    }

    /// Remembers the slot in which the packet found its connection in the first zone.
    #[cold]
    pub fn remember(&self, slot: u32, cache: &mut SlotCache) {
        cache.set(self.hash, slot);
    }

    /// Its segment with options, if it is a packet of TCP.
    pub(super) fn segment_of(&self, frame: &[u8]) -> Option<Segment> {
        let rest = frame.get(usize::from(self.l3)..)?;
        let total = u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]);
        Segment::read(rest.get(parse::IPV4_HEADER_MIN..total.into())?)
    }
}

/// A packet's connection, which is locked meanwhile, and the state of the packet.
#[derive(Debug)]
pub struct Resumed<'a> {
    conn: ConnGuard<'a>,
    state: u32,
    direction: Direction,
    /// Whether the action has translated the packet: [`Plain::key`] is another one.
    pub is_translated: bool,
    /// Whether the packet found its connection where earlier ones like it had found theirs.
    pub is_expected: bool,
}

impl<'a> Resumed<'a> {
    /// The packet that has begun a connection.
    pub(super) fn opened(conn: ConnGuard<'a>) -> Self {
        let (state, direction) = (state::NEW | state::TRK, Direction::Original);
        Self { conn, state, direction, is_translated: false, is_expected: false }
    }

    /// The memo of the packet's direction.
    #[inline]
    pub fn memo(&self) -> u32 {
        self.conn.memos[self.direction.index()]
    }

    /// Bits of `ct_state`.
    #[inline]
    pub fn state(&self) -> u32 {
        self.state
    }

    /// Mark of the connection.
    #[inline]
    pub fn mark(&self) -> u32 {
        self.conn.mark
    }

    /// Label of the connection.
    #[inline]
    pub fn label(&self) -> u128 {
        self.conn.label.into()
    }

    /// The handle of the connection, and whether the packet belongs to its reply direction.
    #[inline]
    pub fn way(&self) -> (u64, bool) {
        (self.conn.handle().0.get(), self.direction == Direction::Reply)
    }

    /// The slot of the connection.
    #[inline]
    pub fn slot(&self) -> u32 {
        self.conn.slot()
    }

    /// The packet's state as a whole.
    #[inline]
    pub fn connection(&self, action: &Action) -> Connection {
        let mut connection = Connection::default();
        let role = Role { direction: self.direction, is_error: false };
        (connection.mark, connection.label) = (self.conn.mark, self.conn.label.into());
        describe(&mut connection, &self.conn, role, self.state, action);
        connection
    }
}

/// Returns true if [`Tracker::resume`] may execute the action.
pub fn is_resumable(action: &Action) -> bool {
    action.commit != Some(Commit::Force) && action.helper.is_none() && action.mark.is_none() && action.label.is_none()
}

impl Tracker {
    /// Checks a frame whose headers the datapath has read as [`parse::parse`] does, and makes `plain` its own. `checksum` is
    /// in the packet's offload flags, and `zone` that of the first action.
    #[inline(always)]
    pub fn prepare(&self, frame: &[u8], head: &Head, checksum: Checksum, zone: u16, plain: &mut Plain) -> PacketKind {
        let Ok(l4) = parse::check_known(frame, head, checksum) else { return PacketKind::Other };
        let Head { l3, src, dst, proto, ports } = *head;
        let (src_port, dst_port) = ((ports >> 16) as u16, ports as u16);
        plain.key = Key { src: [0, src.into()], dst: [0, dst.into()], src_port, dst_port, zone, proto, is_v6: false };
        plain.hash = self.table.hash(&plain.key);
        (plain.l3, plain.hashed_zone, plain.has_none) = (l3 as u16, zone.into(), false);
        if src_port == 0 || dst_port == 0 {
            PacketKind::Other
        } else if proto != ipproto::TCP || plain.segment.read_plain(l4) {
            PacketKind::Plain
        } else {
            PacketKind::Syn
        }
    }

    /// The connection of a packet.
    #[inline]
    fn find_plain(&self, plain: &mut Plain, now: Millis) -> Option<Found<'_>> {
        let found = self.table.find(&plain.key, self.hash_of(plain), now);
        plain.has_none = found.is_none();
        found
    }

    /// The hash of a packet's key.
    #[inline]
    pub(super) fn hash_of(&self, plain: &Plain) -> u64 {
        if u32::from(plain.key.zone) == plain.hashed_zone { plain.hash } else { self.table.hash(&plain.key) }
    }

    /// Returns true if the connection of a packet is most likely where earlier packets have found it, and begins to read its memory.
    #[inline(always)]
    pub fn recall(&self, plain: &mut Plain, cache: &SlotCache) -> bool {
        plain.slot = cache.get(plain.hash);
        if let Some(slot) = plain.slot {
            self.table.prefetch_slot(slot);
        }
        plain.slot.is_some()
    }

    /// Begins to read the memory that [`Self::locate`] will need for a packet.
    #[inline(always)]
    pub fn prefetch(&self, plain: &Plain) {
        self.table.prefetch(plain.hash);
    }

    /// Looks up where the connection of a packet most likely is, and begins to read its memory.
    #[inline(always)]
    pub fn locate(&self, plain: &mut Plain, cache: &mut SlotCache) {
        plain.slot = self.table.candidate(plain.hash);
        if let Some(slot) = plain.slot {
            self.table.prefetch_slot(slot);
            cache.set(plain.hash, slot);
        }
    }

    /// Executes an action that [`is_resumable`] on a packet without a connection in its zone. `None` if the packet needs
    /// [`Tracker::track`]; then nothing has changed.
    #[inline(always)]
    pub fn resume(&self, packet: &mut Packet, plain: &mut Plain, action: &Action, now: Millis) -> Option<Resumed<'_>> {
        plain.key.zone = action.zone;
        let expected = plain.slot.and_then(|slot| self.table.check(slot, &plain.key, now));
        let is_expected = expected.is_some();
        let Found { guard: mut conn, direction } = match expected {
            Some(found) => found,
            None => self.find_plain(plain, now)?,
        };
        if !conn.is_simple() {
            return None;
        }
        let (update, timeout) = conn.protocol.advance(direction, &plain.segment)?;
        let is_valid = update == Update::Valid;
        let seconds = self.policies.seconds(conn.policy, timeout);
        conn.renew(now.after(u64::from(seconds) * 1000), is_valid);
        let is_reply = if direction == Direction::Reply { state::RPL } else { 0 };
        let mut state = if is_valid { state::EST | state::TRK | is_reply } else { state::NEW | state::TRK };
        let is_translated = action.nat.is_some() && conn.translated.any();
        if is_translated {
            // The same as `leaves_as`, field by field: a key that is still being stored is slow to copy.
            let other = conn.key(direction.reversed());
            (plain.key.src, plain.key.dst) = (other.dst, other.src);
            (plain.key.src_port, plain.key.dst_port) = (other.dst_port, other.src_port);
            plain.hashed_zone = NO_ZONE;
            rewrite::translate_plain(packet, plain.l3.into(), plain.key.proto, &plain.key);
            state |= translation(&conn, direction);
        }
        plain.slot = conn.next[direction.index()].checked_sub(1);
        Some(Resumed { conn, state, direction, is_translated, is_expected })
    }
}
