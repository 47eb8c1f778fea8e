//! Connections that begin.

use std::sync::atomic::Ordering;

use base::rng::Rng;
use base::{Millis, coverage};
use packet::Packet;
use packet::metadata::Connection;
use vlog::{RateLimit, warn_rl};

use super::Tracker;
use super::track::{Role, write};
use crate::action::{Action, Helper, Nat, NatKind, Translated, state};
use crate::alg::expect::Expectation;
use crate::conn::Conn;
use crate::key::{Direction, Key, ipproto};
use crate::nat::select;
use crate::parse::Parsed;
use crate::proto::Protocol;
use crate::table::{ConnGuard, Refused};

/// How often a tuple is chosen again if another thread takes it at the same time.
const ATTEMPTS: usize = 8;
/// Limit on messages about exhausted translations.
static EXHAUSTED: RateLimit = RateLimit::new(1, 5);

impl Tracker {
    /// Executes the action on a packet that belongs to no connection. Returns the memo of the connection that it has begun.
    pub(super) fn begin(
        &self,
        packet: &mut Packet,
        connection: &mut Connection,
        action: &Action,
        parsed: &Parsed,
        now: Millis,
    ) -> Option<u32> {
        let expected = self.expectations.find(&parsed.key);
        let l4 = packet.data().get(parsed.l4..parsed.end).unwrap_or(&[]);
        let key = &parsed.key;
        let Some(protocol) = Protocol::begin(key.proto, key.is_icmp(), l4) else {
            write(connection, action.zone, state::INV, key, expected.as_ref());
            return None;
        };
        let state = if expected.is_some() { state::NEW | state::REL } else { state::NEW };
        let committed = match action.commit {
            Some(_) => self.commit(key, protocol, action, expected.as_ref(), now),
            None => None,
        };
        let Some(mut conn) = committed else {
            write(connection, action.zone, state, key, expected.as_ref());
            return None;
        };
        let role = Role { direction: Direction::Original, is_error: false };
        Some(self.conclude(packet, connection, action, parsed, &mut conn, role, state, now))
    }

    /// Adds a connection to the table, if there is room for it.
    fn commit(
        &self,
        key: &Key,
        protocol: Protocol,
        action: &Action,
        expected: Option<&Expectation>,
        now: Millis,
    ) -> Option<ConnGuard<'_>> {
        let Ok(limited_by) = self.limits.admit(key.zone) else {
            coverage!(conntrack_zone_full);
            return None;
        };
        let policy = action.timeout.as_deref().and_then(|name| self.policies.lookup(name)).unwrap_or_default();
        let seconds = self.policies.seconds(policy, protocol.timeout());
        let expires = now.after(u64::from(seconds) * 1000);
        let mut conn = Conn {
            keys: [*key, key.reversed()],
            protocol,
            label: expected.map_or(0, |expected| expected.label),
            mark: expected.map_or(0, |expected| expected.mark),
            translated: Translated::default(),
            helper: action.helper.filter(|helper| serves(*helper, key)),
            policy,
            parent: expected.map(|expected| Box::new(expected.parent)),
            shifts: None,
            memos: [0; 2],
            limited_by,
        };
        let max = self.connections_max.load(Ordering::Relaxed);
        let mut has_evicted = false;
        for _ in 0..ATTEMPTS {
            if let Some(nat) = &action.nat
                && !self.choose(&mut conn, nat, expected, now)
            {
                coverage!(conntrack_nat_exhausted);
                warn_rl!(
                    &EXHAUSTED,
                    target: "conntrack",
                    "Unable to NAT due to tuple space exhaustion - if DoS attack, use firewalling and/or zone partitioning."
                );
                return None;
            }
            match self.table.insert_locked(conn, expires, now, max, &mut |handle, old| self.ended(handle, &old)) {
                Ok(guard) => return Some(guard),
                Err((Refused::Full, back)) => {
                    conn = back;
                    // If there is no room after that, the maximum was lowered, or other threads took it.
                    if has_evicted || !self.make_room(now) {
                        coverage!(conntrack_full);
                        return None;
                    }
                    has_evicted = true;
                }
                Err((Refused::Taken(_), back)) if action.nat.is_some() => conn = back,
                Err((Refused::Taken(_), _)) => return None,
            }
        }
        None
    }

    /// Removes a connection that is not established from a full table. Returns false if none is found.
    fn make_room(&self, now: Millis) -> bool {
        let Some((handle, conn)) = self.table.evict(now) else { return false };
        coverage!(conntrack_evicted);
        self.ended(handle, &conn);
        true
    }

    /// Chooses the translation of a connection. Returns false if all are taken.
    fn choose(&self, conn: &mut Conn, nat: &Nat, expected: Option<&Expectation>, now: Millis) -> bool {
        let original = conn.keys[0];
        if let Some(expected) = expected {
            conn.keys[1] = expected.translation(&original);
            conn.translated = expected.translated();
            return true;
        }
        let Some(kind) = nat.kind else { return true };
        let mut rng = Rng::seeded(self.seed ^ self.choices.fetch_add(1, Ordering::Relaxed).rotate_left(32));
        let mut free = |reply: &Key| self.table.find(reply, self.table.hash(reply), now).is_none();
        let Some(reply) = select::select(nat, &original, self.seed, &mut rng, &mut free) else { return false };
        conn.keys[1] = reply;
        conn.translated = Translated { src: kind == NatKind::Src, dst: kind == NatKind::Dst };
        true
    }
}

/// Returns true if a helper reads the packets of a connection.
fn serves(helper: Helper, key: &Key) -> bool {
    match helper {
        Helper::Ftp => key.proto == ipproto::TCP,
        Helper::Tftp => key.proto == ipproto::UDP,
    }
}
