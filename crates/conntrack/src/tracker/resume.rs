//! Packets of known connections in their most frequent form, without all that other packets need: TCP in the window and
//! UDP, over IPv4, of a connection without a helper.
//!
//! [`Tracker::resume`] either does exactly what [`Tracker::track`] would do with a packet that has no connection in the
//! zone yet, or changes nothing.

use base::{Millis, mix};
use packet::metadata::Connection;
use packet::wire::Head;
use packet::{Checksum, Packet};

use super::Tracker;
use super::slots::SlotCache;
use super::track::{Role, describe, translation};
use crate::action::{Action, Commit, state};
use crate::conn::Ends;
use crate::key::{Direction, Key, ipproto};
use crate::nat::rewrite;
use crate::parse;
use crate::proto::Update;
use crate::proto::tcp::Segment;
use crate::table::{ConnGuard, Found};

/// A packet whose headers and checksums are valid: TCP or UDP over IPv4 without options. Actions keep it valid.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain {
    ends: Ends,
    /// The zone of the last action.
    pub(super) zone: u16,
    proto: u8,
    /// Whether [`Tracker::resume`] has found no connection.
    has_none: bool,
    /// Offset of its IPv4 header.
    l3: u16,
    /// Its header, if it is a packet of TCP.
    pub(super) segment: Segment,
    hint: Hint,
    /// A hash of its ends and the first zone, for the thread's [`SlotCache`].
    cached_as: u64,
    /// The hash of its key in a zone, once it is known.
    hash: Option<(u16, u64)>,
}

/// Where the connection of a packet in the zone of the next action most likely is.
#[derive(Clone, Copy, Debug, Default)]
struct Hint {
    /// A slot of the table and 1; 0 for nowhere.
    slot: u32,
    direction: Direction,
    from: Source,
}

/// Where a hint is from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Source {
    /// The thread's cache: the last packet with these ends had the slot and the direction.
    #[default]
    Cache,
    /// The last packet behind the connection of another zone.
    Before,
    /// The index of the table, which knows no direction.
    Index,
}

/// Factors of hashes for [`SlotCache`]: digits of pi.
const CACHE_FACTORS: [u64; 2] = [0x082e_fa98_ec4e_6c89, 0x4528_21e6_38d0_1377];

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
    pub fn key(&self) -> Key {
        self.ends.key(self.zone, self.proto)
    }

    /// Its protocol.
    #[inline]
    pub fn proto(&self) -> u8 {
        self.proto
    }

    /// Returns true if [`Tracker::resume`] has found no connection of the packet in a zone.
    #[inline]
    pub fn has_none(&self) -> bool {
        self.has_none
    }

    /// Remembers where the packet has found its connection in the first zone.
    #[inline]
    pub fn remember(&self, resumed: Known, cache: &mut SlotCache) {
        cache.set(self.cached_as, resumed.slot, resumed.direction);
    }

    /// Its segment with options, if it is a packet of TCP.
    pub(super) fn segment_of(&self, frame: &[u8]) -> Option<Segment> {
        let rest = frame.get(usize::from(self.l3)..)?;
        let total = u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]);
        Segment::read(rest.get(parse::IPV4_HEADER_MIN..total.into())?)
    }
}

/// Where a connection is, and the direction of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    pub(super) slot: u32,
    direction: Direction,
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

    /// Where the connection is.
    #[inline]
    pub fn known(&self) -> Known {
        Known { slot: self.conn.slot(), direction: self.direction }
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
    /// Checks a packet whose headers the datapath has read as [`parse::parse`] does, and makes `plain` its own. `checksum` is
    /// in the packet's offload flags, and `zone` that of the first action.
    #[inline(always)]
    pub fn prepare(&self, head: &Head<'_>, checksum: Checksum, zone: u16, plain: &mut Plain) -> PacketKind {
        (plain.hash, plain.hint, plain.has_none) = (None, Hint::default(), false);
        let ports = head.ports();
        let (src_port, dst_port) = (ports >> 16, ports as u16);
        if parse::check_known(head, checksum).is_err() || src_port == 0 || dst_port == 0 {
            return PacketKind::Other;
        }
        plain.ends = Ends { src: head.src(), dst: head.dst(), ports: ports.rotate_left(16) };
        (plain.zone, plain.proto, plain.l3) = (zone, head.proto(), head.l3 as u16);
        plain.cached_as = self.cache_hash(plain);
        if head.proto() != ipproto::TCP || plain.segment.read_plain(head.l4) {
            PacketKind::Plain
        } else {
            PacketKind::Syn
        }
    }

    /// A hash of the ends and the zone of a packet. The two directions of a connection have different ones.
    #[inline(always)]
    fn cache_hash(&self, plain: &Plain) -> u64 {
        let Ends { src, dst, ports } = plain.ends;
        let addresses = u64::from(src) << 32 | u64::from(dst);
        let rest = u64::from(ports) | u64::from(plain.zone) << 32 | u64::from(plain.proto) << 48;
        mix::fold((addresses ^ self.seed).wrapping_mul(CACHE_FACTORS[0]) ^ rest, CACHE_FACTORS[1])
    }

    /// The hash of a packet's key.
    #[inline]
    pub(super) fn hash_of(&self, plain: &Plain) -> u64 {
        match plain.hash {
            Some((zone, hash)) if zone == plain.zone => hash,
            _ => self.table.hash(&plain.key()),
        }
    }

    /// Returns true if the connection of a packet is most likely where an earlier packet with its ends has found it, and begins to
    /// read its memory.
    #[inline(always)]
    pub fn recall(&self, plain: &mut Plain, cache: &SlotCache) -> bool {
        let Some((slot, direction)) = cache.get(plain.cached_as) else { return false };
        plain.hint = Hint { slot: slot.wrapping_add(1), direction, from: Source::Cache };
        self.table.prefetch_slot(slot);
        true
    }

    /// Begins to read the memory that [`Self::locate`] will need for a packet.
    #[inline(always)]
    pub fn prefetch(&self, plain: &mut Plain) {
        let hash = self.hash_of(plain);
        plain.hash = Some((plain.zone, hash));
        self.table.prefetch(hash);
    }

    /// Looks up where the connection of a packet most likely is, and begins to read its memory.
    #[inline(always)]
    pub fn locate(&self, plain: &mut Plain) {
        let hash = self.hash_of(plain);
        plain.hash = Some((plain.zone, hash));
        if let Some(slot) = self.table.candidate(hash) {
            plain.hint = Hint { slot: slot.wrapping_add(1), direction: Direction::Original, from: Source::Index };
            self.table.prefetch_slot(slot);
        }
    }

    /// The connection that a packet belongs to in its zone, locked, the direction, and whether it is where it was expected.
    #[inline(always)]
    fn look_up(&self, plain: &mut Plain, now: Millis) -> Option<(ConnGuard<'_>, Direction, bool)> {
        let Hint { slot, direction, from } = plain.hint;
        if from != Source::Index
            && let Some(slot) = slot.checked_sub(1)
            && let Some(guard) = self.table.check_ends((slot, direction), &plain.ends, (plain.zone, plain.proto), now)
        {
            return Some((guard, direction, true));
        }
        self.look_up_any(plain, now)
    }

    /// The same for a packet whose hint is not right, or knows no direction.
    #[inline(never)]
    fn look_up_any(&self, plain: &mut Plain, now: Millis) -> Option<(ConnGuard<'_>, Direction, bool)> {
        if let (Some(slot), Source::Before | Source::Index) = (plain.hint.slot.checked_sub(1), plain.hint.from)
            && let Some(Found { guard, direction }) = self.table.check(slot, &plain.key(), now)
        {
            return Some((guard, direction, plain.hint.from == Source::Before));
        }
        let found = self.table.find(&plain.key(), self.hash_of(plain), now);
        plain.has_none = found.is_none();
        found.map(|Found { guard, direction }| (guard, direction, false))
    }

    /// Executes an action that [`is_resumable`] on a packet without a connection in its zone. `None` if the packet needs
    /// [`Tracker::track`]; then nothing has changed.
    #[inline(always)]
    pub fn resume(&self, packet: &mut Packet, plain: &mut Plain, action: &Action, now: Millis) -> Option<Resumed<'_>> {
        plain.zone = action.zone;
        let (mut conn, direction, is_expected) = self.look_up(plain, now)?;
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
            plain.ends = Ends::of(conn.key(direction.reversed())).reversed();
            plain.hash = None;
            rewrite::translate_plain(packet, plain.l3.into(), plain.proto, &plain.key());
            state |= translation(&conn, direction);
        }
        plain.hint = Hint { slot: conn.next[direction.index()], direction, from: Source::Before };
        Some(Resumed { conn, state, direction, is_translated, is_expected })
    }
}
