//! Connections that begin.

use std::sync::atomic::Ordering;

use base::rng::Rng;
use base::{Millis, coverage};
use packet::Packet;
use packet::metadata::Connection;
use vlog::{RateLimit, warn_rl};

use super::Tracker;
use super::track::{Role, TRANSLATED, write};
use crate::action::{Action, Helper, Nat, NatKind, Translated, state};
use crate::alg::expect::Expectation;
use crate::conn::{Conn, Related};
use crate::key::{Direction, Key, ipproto};
use crate::limits::Permit;
use crate::nat::select;
use crate::parse::Parsed;
use crate::proto::Protocol;
use crate::table::{ConnGuard, Refused, Terms};
use crate::timeout::PolicyId;

/// A connection that is about to be stored.
struct Opening<'a> {
    key: &'a Key,
    protocol: Protocol,
    action: &'a Action,
    expected: Option<&'a Expectation>,
    policy: PolicyId,
    terms: Terms,
}

/// Why a connection is not stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unstored {
    /// Another connection has one of its keys.
    Taken,
    /// The table is full.
    Full,
    /// The zone is full.
    ZoneFull,
    /// All translations are taken.
    Exhausted,
}

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
        self.try_begin(packet, connection, action, parsed, expected.as_ref(), now).unwrap_or_else(|unstored| {
            // A packet on another thread may have begun the connection since this one was looked up, and have its tuples and its
            // place in the zone. (One that an earlier action has translated was not looked up by this key.)
            let is_translated = connection.state & TRANSLATED != 0 && connection.zone == action.zone;
            let known =
                (!is_translated).then(|| self.table.find(&parsed.key, self.table.hash(&parsed.key), now)).flatten();
            let applied =
                known.and_then(|mut known| self.apply(packet, connection, action, parsed, &mut known, 0, now));
            if applied.is_some() {
                return applied;
            }
            match unstored {
                Unstored::Taken => {}
                Unstored::Full => coverage!(conntrack_full),
                Unstored::ZoneFull => coverage!(conntrack_zone_full),
                Unstored::Exhausted => exhausted(),
            }
            // The parent may have given way meanwhile.
            let state = if expected.is_some() { state::NEW | state::REL } else { state::NEW };
            write(connection, action.zone, state, &parsed.key, expected.as_ref());
            None
        })
    }

    /// As [`Self::begin`], for a packet with this expectation, but changes nothing if the connection is not stored.
    pub(super) fn try_begin(
        &self,
        packet: &mut Packet,
        connection: &mut Connection,
        action: &Action,
        parsed: &Parsed,
        expected: Option<&Expectation>,
        now: Millis,
    ) -> Result<Option<u32>, Unstored> {
        let l4 = packet.data().get(parsed.l4..parsed.end).unwrap_or(&[]);
        let key = &parsed.key;
        let Some(protocol) = Protocol::begin(key.proto, key.is_icmp(), l4) else {
            write(connection, action.zone, state::INV, key, expected);
            return Ok(None);
        };
        let state = if expected.is_some() { state::NEW | state::REL } else { state::NEW };
        if action.commit.is_none() {
            write(connection, action.zone, state, key, expected);
            return Ok(None);
        }
        let mut conn = self.commit(key, self.table.hash(key), protocol, action, expected, now)?;
        let role = Role { direction: Direction::Original, is_error: false };
        Ok(Some(self.conclude(packet, connection, action, parsed, &mut conn, role, state, now)))
    }

    /// Adds a connection to the table. `hash` is that of its key.
    pub(super) fn commit(
        &self,
        key: &Key,
        hash: u64,
        protocol: Protocol,
        action: &Action,
        expected: Option<&Expectation>,
        now: Millis,
    ) -> Result<ConnGuard<'_>, Unstored> {
        let mut limited_by = self.limits.admit(key.zone).map_err(|_| Unstored::ZoneFull)?;
        let policy = action.timeout.as_deref().and_then(|name| self.policies.lookup(name)).unwrap_or_default();
        let seconds = self.policies.seconds(policy, protocol.timeout());
        let expires = now.after(u64::from(seconds) * 1000);
        let terms = Terms { expires, now, max: self.connections_max.load(Ordering::Relaxed) };
        let opening = Opening { key, protocol, action, expected, policy, terms };
        let Some(nat) = &action.nat else {
            // Both directions have the same hash.
            let translated = if key.is_icmp() { Translated::default() } else { Translated::mirrored() };
            return self.store(&opening, &key.reversed(), [hash; 2], translated, &mut limited_by);
        };
        for _ in 0..ATTEMPTS {
            let chosen = self.choose(key, nat, expected, now);
            let (reply, translated) = chosen.ok_or(Unstored::Exhausted)?;
            let hashes = [hash, self.table.hash(&reply)];
            match self.store(&opening, &reply, hashes, translated, &mut limited_by) {
                // Another thread took the tuple.
                Err(Unstored::Taken) => {}
                stored => return stored,
            }
        }
        Err(Unstored::Taken)
    }

    /// Stores a connection. Its keys are references, as the compiler otherwise shifts their words into place with hundreds of
    /// instructions.
    #[inline(never)]
    fn store(
        &self,
        opening: &Opening<'_>,
        reply: &Key,
        hashes: [u64; 2],
        translated: Translated,
        limited_by: &mut Option<Permit>,
    ) -> Result<ConnGuard<'_>, Unstored> {
        let Opening { key, protocol, action, expected, policy, terms } = opening;
        let related =
            expected.map(|expected| Box::new(Related { parent: Some(expected.parent), ..Related::default() }));
        let make = || {
            let mut conn = Conn {
                original: **key,
                reply: *reply,
                protocol: *protocol,
                label: expected.map_or(0, |expected| expected.label).into(),
                mark: expected.map_or(0, |expected| expected.mark),
                translated,
                helper: action.helper.filter(|helper| serves(*helper, key)),
                policy: *policy,
                related,
                memos: [0; 2],
                next: [0; 2],
                limited_by: limited_by.take(),
            };
            if !translated.is_mirrored() {
                conn.compare_keys();
            }
            conn
        };
        let removed = &mut |handle, old: &Conn| self.ended(handle, old);
        let inserted = self.table.insert_with([key, reply], hashes, terms, make, removed);
        inserted.map_err(|refused| match refused {
            Refused::Full => Unstored::Full,
            Refused::Taken(_) => Unstored::Taken,
        })
    }

    /// Chooses the translation of a connection that begins with this key: the key of its reply direction, and which addresses
    /// differ. `None` if all are taken.
    fn choose(
        &self,
        original: &Key,
        nat: &Nat,
        expected: Option<&Expectation>,
        now: Millis,
    ) -> Option<(Key, Translated)> {
        if let Some(expected) = expected {
            return Some((expected.translation(original), expected.translated()));
        }
        let Some(kind) = nat.kind else { return Some((original.reversed(), Translated::default())) };
        let mut rng = Rng::seeded(self.seed ^ self.choices.fetch_add(1, Ordering::Relaxed).rotate_left(32));
        let mut free = |reply: &Key| self.table.find(reply, self.table.hash(reply), now).is_none();
        let reply = select::select(nat, original, self.seed, &mut rng, &mut free)?;
        Some((reply, Translated::new(kind == NatKind::Src, kind == NatKind::Dst)))
    }
}

/// Reports a connection that is not stored, as all of its translations are taken.
#[cold]
fn exhausted() {
    coverage!(conntrack_nat_exhausted);
    warn_rl!(
        &EXHAUSTED,
        target: "conntrack",
        "Unable to NAT due to tuple space exhaustion - if DoS attack, use firewalling and/or zone partitioning."
    );
}

/// Returns true if a helper reads the packets of a connection.
fn serves(helper: Helper, key: &Key) -> bool {
    match helper {
        Helper::Ftp => key.proto == ipproto::TCP,
        Helper::Tftp => key.proto == ipproto::UDP,
    }
}
