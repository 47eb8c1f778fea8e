//! Which tuple a new connection is translated to.
//!
//! The address of a range depends on a hash, and stays the same while ports are tried. Ports are tried upwards from a first
//! one, with a few fresh starts at random if the range is large, so that the work is bounded by [`MAX_ATTEMPTS`].

use base::mix::chain;
use base::rng::Rng;

use crate::action::{Nat, NatKind};
use crate::key::{Key, ipproto};

/// How many ports are tried from the first one on. Each fresh start tries half as many as the one before.
const FIRST_ATTEMPTS: u32 = 128;
/// A round of fewer attempts is the last one.
const LAST_ATTEMPTS: u32 = 16;
/// How often [`select`] calls its predicate at most: for a range of destination ports, then for source ports.
pub const MAX_ATTEMPTS: usize = 2 * 2 * FIRST_ATTEMPTS as usize;

/// Separates the hash of a port from that of the address.
const PORT_SEED: u64 = 0x9216_d5d9_8979_fb1b;
/// The seed of persistent addresses, which must not change from one run, or version, to the next.
const PERSISTENT_SEED: u64 = 0xd131_0ba6_98df_b5ac;
/// Factors of the hash of persistent addresses.
const PERSISTENT_FACTORS: [u64; 3] = [0x2ffd_72db_d01a_dfb7, 0xb8e1_afed_6a26_7e97, 0xba7c_9045_f12c_7f99];

/// Calls `free` with the key of the reply direction for each translation that the action allows, in the order in which they
/// are tried, until it returns true. Returns that key, or `None` if all of them are taken; not all of a large range are
/// tried. The direction [`Nat::kind`] is translated even if the key equals that of a connection without translation.
///
/// Without a kind, the only candidate is the key without translation.
///
/// Without [`Nat::random`], a hash of the connection selects the first port of a range. `seed` should be random for each
/// tracker. `rng` selects ports with [`Nat::random`], and where the search continues in large ranges.
pub fn select(nat: &Nat, original: &Key, seed: u64, rng: &mut Rng, free: &mut dyn FnMut(&Key) -> bool) -> Option<Key> {
    let mut search = Search { leaves_as: *original, rng, free };
    let Some(kind) = nat.kind else { return search.candidate() };
    if let Some(address) = select_address(nat, original, seed) {
        match kind {
            NatKind::Src => search.leaves_as.src = address,
            NatKind::Dst => search.leaves_as.dst = address,
        }
    }
    if !has_ports(original) {
        return search.candidate();
    }
    let Some((low, high)) = nat.ports else {
        return search.walk(Field::Src, Ports::ephemeral(original.src_port), original.src_port);
    };
    let ports = Ports { low, high: high.max(low) };
    let first = if nat.random { ports.at(search.rng.next_u64()) } else { ports.at(original.hash(seed ^ PORT_SEED)) };
    match kind {
        NatKind::Src => search.walk(Field::Src, ports, first),
        NatKind::Dst => search.walk(Field::Dst, ports, first).or_else(|| {
            // Several sources can share the destination, if their source ports differ.
            search.set(Field::Dst, first);
            search.walk(Field::Src, Ports::ephemeral(original.src_port), original.src_port)
        }),
    }
}

/// The address of the range for a connection; `None` for its own one: without a range, with the unspecified address, and
/// with a range of the other family.
fn select_address(nat: &Nat, original: &Key, seed: u64) -> Option<[u64; 2]> {
    let (low, high, is_v6) = nat.addresses?;
    if low == [0, 0] || is_v6 != original.is_v6 {
        return None;
    }
    let number = |halves: [u64; 2]| u128::from(halves[0]) << 64 | u128::from(halves[1]);
    let span = number(high).saturating_sub(number(low));
    if span == 0 {
        return Some(low);
    }
    let hash = if nat.persistent { persistent_hash(original) } else { original.hash(seed) };
    let offset = match u64::try_from(span) {
        Ok(span) => (u128::from(hash) * (u128::from(span) + 1)) >> 64,
        Err(_) => {
            let wide = u128::from(hash) << 64 | u128::from(chain(hash, PORT_SEED, PERSISTENT_FACTORS[0]));
            span.checked_add(1).map_or(wide, |size| wide % size)
        }
    };
    let address = number(low) + offset;
    Some([(address >> 64) as u64, address as u64])
}

/// A hash of zone, protocol and source address, so that a source keeps its address after a restart.
fn persistent_hash(original: &Key) -> u64 {
    let [high, low] = original.src;
    let context = u64::from(original.zone) << 16 | u64::from(original.proto) << 8 | u64::from(original.is_v6);
    [context, high, low]
        .iter()
        .zip(PERSISTENT_FACTORS)
        .fold(PERSISTENT_SEED, |hash, (&word, factor)| chain(hash, word, factor))
}

/// Whether the protocol has ports, or an identifier, that can be replaced.
fn has_ports(key: &Key) -> bool {
    key.is_icmp() || matches!(key.proto, ipproto::TCP | ipproto::UDP | ipproto::SCTP)
}

/// An inclusive range of ports.
#[derive(Clone, Copy, Debug)]
struct Ports {
    low: u16,
    high: u16,
}

impl Ports {
    /// The ports that may replace a port: privileged ports are replaced by privileged ones.
    fn ephemeral(port: u16) -> Self {
        match port {
            0..=511 => Self { low: 1, high: 511 },
            512..=1023 => Self { low: 600, high: 1023 },
            1024.. => Self { low: 1024, high: u16::MAX },
        }
    }

    fn size(self) -> u32 {
        u32::from(self.high - self.low) + 1
    }

    /// The port for a random number.
    fn at(self, random: u64) -> u16 {
        self.low + ((u128::from(random) * u128::from(self.size())) >> 64) as u16
    }

    /// The port after this one. The first port of the range follows its last one, and ports outside of it.
    fn after(self, port: u16) -> u16 {
        if (self.low..self.high).contains(&port) { port + 1 } else { self.low }
    }

    /// The size of the range, and one more for a first port outside of it.
    fn candidates(self, first: u16) -> u32 {
        self.size() + u32::from(!(self.low..=self.high).contains(&first))
    }
}

/// The port that a walk replaces. ICMP has one identifier, in the source port.
#[derive(Clone, Copy)]
enum Field {
    Src,
    Dst,
}

/// A search for a free tuple.
struct Search<'a> {
    /// The tuple of translated packets of the original direction.
    leaves_as: Key,
    rng: &'a mut Rng,
    free: &'a mut dyn FnMut(&Key) -> bool,
}

impl Search<'_> {
    /// The reply to the tuple, if it is free.
    fn candidate(&mut self) -> Option<Key> {
        let reply = self.leaves_as.reversed();
        (self.free)(&reply).then_some(reply)
    }

    fn set(&mut self, field: Field, port: u16) {
        match field {
            Field::Dst if !self.leaves_as.is_icmp() => self.leaves_as.dst_port = port,
            _ => self.leaves_as.src_port = port,
        }
    }

    /// Tries ports upwards from the first one.
    fn walk(&mut self, field: Field, ports: Ports, first: u16) -> Option<Key> {
        let (mut port, mut attempts) = (first, FIRST_ATTEMPTS);
        let candidates = ports.candidates(first);
        loop {
            for _ in 0..attempts.min(candidates) {
                self.set(field, port);
                if let Some(reply) = self.candidate() {
                    return Some(reply);
                }
                port = ports.after(port);
            }
            if attempts >= candidates || attempts < LAST_ATTEMPTS {
                return None;
            }
            attempts /= 2;
            port = ports.at(self.rng.next_u64());
        }
    }
}

#[cfg(test)]
mod tests;
