//! One packet and its connection.
//!
//! The state of a packet is an argument of its own, so that a datapath can follow a packet through several actions without
//! writing its metadata in between.

use std::num::NonZeroU64;
use std::sync::atomic::Ordering;

use base::{Millis, coverage};
use packet::Packet;
use packet::metadata::Connection;

use super::{Known, Tracker};
use crate::action::{Action, Commit, state};
use crate::alg::assist::{self, Assisted, Context};
use crate::alg::expect::Expectation;
use crate::conn::Conn;
use crate::key::{Direction, Key};
use crate::nat::rewrite;
use crate::parse::{self, Parsed, Refusal};
use crate::proto::Update;
use crate::table::{ConnGuard, Found, Handle};

/// Bits of the state that say which addresses were translated.
pub(super) const TRANSLATED: u32 = state::SNAT | state::DNAT;

/// The result of an action on one packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// The packet was looked up, and belongs to a connection in the table, which has this memo for the packet's direction
    /// ([`Conn::memos`]).
    Tracked(u32),
    /// It has a state, but was not looked up, or found no connection.
    Untracked,
    /// It is a fragment, and has not changed: [`Tracker::track_all`] collects it.
    Fragment,
}

/// The direction of a packet in its connection.
#[derive(Clone, Copy)]
pub(super) struct Role {
    pub(super) direction: Direction,
    /// An ICMP error about the connection.
    pub(super) is_error: bool,
}

impl Role {
    #[inline]
    fn of(connection: &Connection) -> Self {
        let direction = if connection.is_reply { Direction::Reply } else { Direction::Original };
        Self { direction, is_error: connection.is_error }
    }
}

impl Tracker {
    /// Executes the action on a packet with this state.
    #[inline]
    pub fn track(&self, packet: &mut Packet, connection: &mut Connection, action: &Action, now: Millis) -> Step {
        if self.track_again(packet, connection, action) {
            return Step::Untracked;
        }
        match parse::parse(packet, action.zone) {
            Ok(parsed) => match self.track_parsed(packet, connection, action, &parsed, now) {
                Some(memo) => Step::Tracked(memo),
                None => Step::Untracked,
            },
            Err(Refusal::Fragment(_) | Refusal::FragmentChecksum) => Step::Fragment,
            Err(refusal) => {
                refuse(connection, action.zone, refusal);
                Step::Untracked
            }
        }
    }

    /// Executes the action on a packet whose connection in this zone an earlier action found. Returns false if there is none.
    #[inline]
    fn track_again(&self, packet: &mut Packet, connection: &mut Connection, action: &Action) -> bool {
        match NonZeroU64::new(connection.handle) {
            Some(handle) if connection.is_current => self.track_known(packet, connection, action, Handle(handle)),
            _ => false,
        }
    }

    #[cold]
    fn track_known(&self, packet: &mut Packet, connection: &mut Connection, action: &Action, handle: Handle) -> bool {
        if action.commit == Some(Commit::Force) || action.helper.is_some() {
            return false;
        }
        let Some(mut conn) = self.table.get(handle).filter(|conn| conn.original.zone == action.zone) else {
            return false;
        };
        if action.nat.is_some() {
            let is_translated = connection.state & TRANSLATED != 0 && connection.zone == action.zone;
            if conn.translated.any() && !is_translated {
                match parse::parse(packet, action.zone) {
                    Ok(parsed) => {
                        let bits = translate(packet, &parsed, &conn, Role::of(connection));
                        connection.state = connection.state & !TRANSLATED | bits;
                    }
                    // Its datagram is translated as a whole.
                    Err(Refusal::Fragment(_)) => return false,
                    Err(_) => {}
                }
            }
            connection.is_current = false;
        }
        connection.zone = action.zone;
        mark(connection, action, &mut conn);
        true
    }

    /// Executes the action on a packet that has a key. Returns the memo of its connection, if it has one in the table.
    #[inline]
    fn track_parsed(
        &self,
        packet: &mut Packet,
        connection: &mut Connection,
        action: &Action,
        parsed: &Parsed,
        now: Millis,
    ) -> Option<u32> {
        // An insertion fails if the connection has begun since.
        if action.commit.is_some()
            && action.nat.is_none()
            && is_absent(connection, action.zone)
            && parsed.embedded.is_none()
            && let expected = self.expectations.find(&parsed.key)
            && let Ok(memo) = self.try_begin(packet, connection, action, parsed, expected.as_ref(), now)
        {
            return memo;
        }
        // Another zone begins anew.
        let state = if connection.zone == action.zone { connection.state & !state::TRK } else { 0 };
        let found = if state & TRANSLATED == 0 {
            self.table.find(&parsed.key, self.table.hash(&parsed.key), now)
        } else {
            self.find_translated(connection, action, &parsed.key, now)
        };
        let Some(mut found) = found else {
            return self.track_unknown(packet, connection, action, parsed, now);
        };
        if let Some(memo) = self.apply(packet, connection, action, parsed, &mut found, state, now) {
            return Some(memo);
        }
        let key = arrived_as(&found.guard, found.direction, &parsed.key);
        self.end(found.guard, now);
        self.track_unknown(packet, connection, action, &Parsed { key, ..*parsed }, now)
    }

    /// Executes the action on a packet that belongs to a connection. Returns its memo; `None` if the packet, which has only lost
    /// shifts of its acknowledgements, begins another connection.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "one packet, its state, and the connection")]
    pub(super) fn apply(
        &self,
        packet: &mut Packet,
        connection: &mut Connection,
        action: &Action,
        parsed: &Parsed,
        Found { guard, direction }: &mut Found<'_>,
        state: u32,
        now: Millis,
    ) -> Option<u32> {
        let role = Role { direction: *direction, is_error: parsed.embedded.is_some() };
        if guard.shifts().is_some() && action.nat.is_some() {
            unshift(packet, parsed, guard, *direction);
        }
        if action.commit == Some(Commit::Force) && *direction == Direction::Reply {
            return None;
        }
        let state = self.update(packet, parsed, guard, role, state, now)?;
        Some(self.conclude(packet, connection, action, parsed, guard, role, state, now))
    }

    /// Executes the action on a packet that belongs to no connection.
    #[cold]
    fn track_unknown(
        &self,
        packet: &mut Packet,
        connection: &mut Connection,
        action: &Action,
        parsed: &Parsed,
        now: Millis,
    ) -> Option<u32> {
        if parsed.embedded.is_some() {
            // An error is about a known connection.
            write(connection, action.zone, state::INV, &parsed.key, None);
            return None;
        }
        self.begin(packet, connection, action, parsed, now)
    }

    /// Finds the connection of a packet that an earlier action has translated.
    #[cold]
    fn find_translated(&self, connection: &Connection, action: &Action, key: &Key, now: Millis) -> Option<Found<'_>> {
        // The packet after its translation is the opposite of what arrives from the other end.
        let opposite = key.reversed();
        if let Some(mut found) = self.table.find(&opposite, self.table.hash(&opposite), now) {
            found.direction = found.direction.reversed();
            return Some(found);
        }
        coverage!(conntrack_lookup_natted_miss);
        // An action without translation finds it by its original direction.
        let original = connection.original.filter(|_| action.nat.is_none())?;
        let key = key.with_original(&original)?;
        self.table.find(&key, self.table.hash(&key), now)
    }

    /// Applies a packet to its connection. Returns the packet's state, or `None` if it begins another connection.
    #[inline]
    fn update(
        &self,
        packet: &Packet,
        parsed: &Parsed,
        conn: &mut ConnGuard<'_>,
        role: Role,
        mut state: u32,
        now: Millis,
    ) -> Option<u32> {
        let is_reply = if role.direction == Direction::Reply { state::RPL } else { 0 };
        if role.is_error {
            return Some(state | state::REL | is_reply);
        }
        if conn.parent().is_some() {
            state |= state::REL;
        }
        let l4 = packet.data().get(parsed.l4..parsed.end).unwrap_or(&[]);
        let update = conn.protocol.update(role.direction, l4, self.checks_sequence.load(Ordering::Relaxed));
        match update {
            Update::Valid | Update::Lax => state = (state | state::EST | is_reply) & !state::NEW,
            Update::StillNew => state |= state::NEW,
            Update::Invalid => return Some(state::INV),
            Update::Restart => return None,
        }
        if update == Update::Lax {
            return Some(state);
        }
        let seconds = self.policies.seconds(conn.policy, conn.protocol.timeout());
        let is_assured = update == Update::Valid && conn.protocol.is_assured();
        conn.renew(now.after(u64::from(seconds) * 1000), is_assured);
        Some(state)
    }

    /// Translates the packet of a connection, and writes its state. Returns the memo.
    #[inline]
    #[expect(clippy::too_many_arguments, reason = "known and new connections end here")]
    pub(super) fn conclude(
        &self,
        packet: &mut Packet,
        connection: &mut Connection,
        action: &Action,
        parsed: &Parsed,
        conn: &mut ConnGuard<'_>,
        role: Role,
        mut state: u32,
        now: Millis,
    ) -> u32 {
        (connection.mark, connection.label) = (conn.mark, conn.label.into());
        if action.mark.is_some() || action.label.is_some() {
            mark(connection, action, conn);
        }
        // Expected connections inherit the new mark and label.
        if conn.helper.is_some() && state & state::INV == 0 {
            state |= self.assist(packet, action, parsed, conn, role, now);
        }
        if action.nat.is_some() && conn.translated.any() && state & TRANSLATED == 0 {
            state |= translate(packet, parsed, conn, role);
        }
        describe(connection, conn, role, state | state::TRK, action);
        conn.memos[role.direction.index()]
    }

    /// Hands a packet to the helper of its connection. Returns the state of a packet that the helper finds invalid.
    #[cold]
    fn assist(
        &self,
        packet: &mut Packet,
        action: &Action,
        parsed: &Parsed,
        conn: &mut ConnGuard<'_>,
        role: Role,
        now: Millis,
    ) -> u32 {
        let context = Context { expectations: &self.expectations, translates: action.nat.is_some(), now };
        let handle = conn.handle();
        match assist::assist(packet, parsed, conn, handle, role.direction, &context) {
            Assisted::Valid => 0,
            Assisted::Invalid => state::INV,
        }
    }

    /// Remembers the way of packets of this connection and direction: [`Step::Tracked`] then has this memo.
    pub fn set_memo(&self, (handle, is_reply): (u64, bool), memo: u32) {
        let Some(handle) = NonZeroU64::new(handle) else { return };
        if let Some(mut conn) = self.table.get(Handle(handle)) {
            conn.memos[usize::from(is_reply)] = memo;
        }
    }

    /// Remembers the slot in which packets like this one found their next connection.
    #[cold]
    pub fn set_next(&self, (handle, is_reply): (u64, bool), known: Known) {
        let Some(handle) = NonZeroU64::new(handle) else { return };
        if let Some(mut conn) = self.table.get(Handle(handle)) {
            conn.next[usize::from(is_reply)] = known.slot.wrapping_add(1);
        }
    }

    /// Ends a connection whose place another one may take. As one that has expired, it counts for the limits until it is
    /// removed.
    #[cold]
    fn end(&self, mut conn: ConnGuard<'_>, now: Millis) {
        conn.expire(now);
        self.ended(conn.handle(), &conn);
    }

    /// Undoes what else depends on a connection that has ended.
    pub(super) fn ended(&self, handle: Handle, conn: &Conn) {
        if conn.helper.is_some() {
            self.expectations.remove_all_of(handle);
        }
    }
}

/// Returns true if an earlier action has found no connection of the packet in the zone.
#[inline]
pub(super) fn is_absent(connection: &Connection, zone: u16) -> bool {
    connection.state & !state::REL == state::TRK | state::NEW && connection.zone == zone && connection.handle == 0
}

/// The key that a packet of a connection had before an earlier action translated it, which has given it this key: a
/// connection that replaces the known one begins with the packet as it arrived.
#[cold]
fn arrived_as(conn: &Conn, direction: Direction, key: &Key) -> Key {
    if conn.leaves_as(direction) == *key { *conn.key(direction) } else { *key }
}

/// Shifts the acknowledgements of a packet back.
#[cold]
fn unshift(packet: &mut Packet, parsed: &Parsed, conn: &Conn, direction: Direction) {
    if let Some(shifts) = conn.shifts() {
        assist::unshift(packet, parsed, shifts, direction);
    }
}

/// Writes the state of a packet of a connection, except for its mark and label.
#[inline]
pub(super) fn describe(connection: &mut Connection, conn: &ConnGuard<'_>, role: Role, state: u32, action: &Action) {
    connection.state = state;
    connection.zone = action.zone;
    connection.handle = conn.handle().0.get();
    // A translated packet has another key.
    connection.is_current = action.nat.is_none();
    connection.awaits_lookup = true;
    connection.is_reply = role.direction == Direction::Reply;
    connection.is_error = role.is_error;
    let original = conn.parent().map_or(&conn.original, |parent| &parent.key);
    connection.original = Some(original.tuple());
}

/// Gives a packet that cannot be tracked the state of an invalid one.
#[cold]
pub(super) fn refuse(connection: &mut Connection, zone: u16, refusal: Refusal) {
    match refusal {
        Refusal::L3Checksum => coverage!(conntrack_l3csum_err),
        Refusal::FragmentChecksum => coverage!(ipf_l3csum_err),
        Refusal::L4Checksum => coverage!(conntrack_l4csum_err),
        Refusal::Malformed | Refusal::Fragment(_) => coverage!(conntrack_malformed),
    }
    *connection = Connection { state: state::TRK | state::INV, zone, ..Connection::default() };
}

/// Writes the state of a packet without a connection in the table.
pub(super) fn write(connection: &mut Connection, zone: u16, state: u32, key: &Key, expected: Option<&Expectation>) {
    let (mark, label) = expected.map_or((0, 0), |expected| (expected.mark, expected.label));
    let original = Some(expected.map_or(key, |expected| &expected.parent.key).tuple());
    *connection = Connection { state: state | state::TRK, zone, mark, label, original, ..Connection::default() };
}

/// Translates a packet of a direction, and returns the bits of the state that say what was translated.
#[inline(never)]
pub(super) fn translate(packet: &mut Packet, parsed: &Parsed, conn: &Conn, role: Role) -> u32 {
    let to = conn.leaves_as(role.direction);
    if role.is_error {
        rewrite::translate_error(packet, parsed, &to);
    } else {
        // A connection that replaces another may begin with a packet that has been translated for the other one, and leaves
        // the address alone that it does not translate itself.
        rewrite::translate(packet, parsed, &to, conn.translated.of(role.direction));
    }
    translation(conn, role.direction)
}

/// The bits of the state that say which addresses a translation has changed in packets of a direction.
#[inline]
pub(super) fn translation(conn: &Conn, direction: Direction) -> u32 {
    let translated = conn.translated.of(direction);
    (u32::from(translated.src()) * state::SNAT) | (u32::from(translated.dst()) * state::DNAT)
}

/// Sets mark and label of a packet and of its connection.
pub(super) fn mark(connection: &mut Connection, action: &Action, conn: &mut Conn) {
    // An expected connection keeps those of its parent.
    if conn.parent().is_some() {
        return;
    }
    if let Some((value, mask)) = action.mark {
        connection.mark = value | connection.mark & !mask;
        conn.mark = connection.mark;
    }
    if let Some((value, mask)) = action.label {
        connection.label = value | connection.label & !mask;
        conn.label = connection.label.into();
    }
}
