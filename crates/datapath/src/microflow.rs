//! The microflow cache: which megaflow the packets of one exact key take (NSDI'15, section 6). Each packet thread owns one, of
//! fixed size.
//!
//! An entry is a hint: it stores the hash of a whole key and the megaflow that the index found for it. A hit counts only if
//! the megaflow covers the key at hand, is still installed, and belongs to the current generation; otherwise the index is
//! consulted, and the next insertion overwrites the entry. So nothing notifies the cache when flows change, and colliding
//! hashes cost time but never give a wrong answer.
//!
//! The cache is set associative. The ways of a set share a cache line; a new entry takes a free way or a random one. A key is
//! inserted with a configurable probability, so that many short flows do not evict a few large ones.
//!
//! [`CachePolicy`] measures now and then whether consulting the cache is faster than walking the index, and bypasses the cache
//! where it is not.

use base::mix::fold;
use std::sync::Arc;

use base::rng::Rng;
use flow::{TrackedKey, TunneledKey, WORDS, WideKey, Words, layout};

use crate::input::Key;
use crate::megaflow::Megaflow;

/// Entries, as many as Open vSwitch's cache has.
const ENTRIES: usize = 8192;
/// Entries of a set.
const WAYS: usize = 4;
/// The inverse probability of insertion, unless configured otherwise (other_config:emc-insert-inv-prob).
pub(crate) const INVERSE_PROBABILITY: u32 = 100;
/// The least inverse probability of insertion while the cache is bypassed, so that filling it costs next to nothing.
const BYPASSED_INVERSE_PROBABILITY: u32 = 64;
/// Sets that [`MicroflowCache::sweep`] inspects.
const SWEEP: usize = 8;

/// The words of connections and tunnels that vary most.
const METADATA: [usize; 5] = [layout::TUN_ID, layout::TUN_IPV4, layout::SKB_PKT, layout::CONJ_CTMARK, layout::CT];

const ETH_TYPE_IPV4: u16 = 0x0800;

/// One cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Set {
    hashes: [u64; WAYS],
    flows: [Option<Arc<Megaflow>>; WAYS],
}

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct MicroflowCache {
    /// Empty until the first insertion, then a power of two.
    sets: Vec<Set>,
    n_sets: usize,
    seeds: [u64; 3],
    swept: usize,
}

impl MicroflowCache {
    /// Returns an empty cache. Secret seeds choose the sets, so that no sender can aim at one.
    pub(crate) fn new() -> Self {
        Self::with_sets(ENTRIES / WAYS)
    }

    /// `n_sets` is a power of two.
    fn with_sets(n_sets: usize) -> Self {
        let mut rng = Rng::from_entropy();
        Self { sets: Vec::new(), n_sets, seeds: std::array::from_fn(|_| rng.next_u64()), swept: 0 }
    }

    /// Removes all entries.
    pub(crate) fn clear(&mut self) {
        self.sets = Vec::new();
    }

    /// Hashes all words of a key that a received packet can have, and the words that vary most between recirculated packets.
    #[inline]
    pub(crate) fn hash(&self, key: &impl Words) -> u64 {
        let [a, b, c] = self.seeds;
        let w = |word| key.word(word);
        let l2 = fold(w(layout::ETH_DST) ^ a, w(layout::ETH_SRC) ^ b);
        let ip = fold(w(layout::IPV4) ^ b, w(layout::TP) ^ c);
        let rest = fold(w(layout::IP_MISC) ^ c, w(layout::VLAN) ^ a);
        // The word of the hash is zero in its lower half, that of the port in most of its upper one.
        let pass = w(layout::PORTS) ^ w(layout::DPHASH_ACTSET).rotate_left(16);
        let hash = fold(l2 ^ ip.rotate_left(21) ^ rest.rotate_left(42), pass ^ b);
        let plain = w(layout::ETH_DST) as u16 == ETH_TYPE_IPV4 && w(layout::L4_MISC) == 0 && w(layout::CT) == 0;
        if plain { hash } else { self.hash_more(key, hash) }
    }

    /// Hashes all words of a key with IPv6 addresses or MPLS labels. (The whole key of the same packet has another hash, which
    /// is harmless: the key of a packet always has the same form.)
    #[inline]
    fn hash_wide(&self, key: &WideKey) -> u64 {
        let [a, b, c] = self.seeds;
        let w = |word| key.word(word);
        let l2 = fold(w(layout::ETH_DST) ^ a, w(layout::ETH_SRC) ^ b);
        let src = fold(w(layout::IPV6_SRC) ^ b, w(layout::IPV6_SRC + 1) ^ c);
        let dst = fold(w(layout::IPV6_DST) ^ c, w(layout::IPV6_DST + 1) ^ a);
        let rest = fold(w(layout::IP_MISC) ^ a, w(layout::TP) ^ c);
        let pass = w(layout::PORTS) ^ w(layout::DPHASH_ACTSET).rotate_left(16);
        let tag = fold(pass ^ b, w(layout::VLAN) ^ w(layout::MPLS01).rotate_left(8) ^ a);
        fold(l2 ^ src.rotate_left(13) ^ dst.rotate_left(26), rest ^ tag.rotate_left(39))
    }

    /// Hashes the words of a tracked packet's key that vary most.
    #[inline]
    fn hash_tracked(&self, key: &TrackedKey) -> u64 {
        let [a, b, c] = self.seeds;
        let w = |word| key.word(word);
        let l2 = fold(w(layout::ETH_DST) ^ a, w(layout::ETH_SRC) ^ b);
        let ip = fold(w(layout::IPV4) ^ w(layout::IPV6_SRC + 1) ^ b, w(layout::TP) ^ w(layout::IPV6_DST + 1) ^ c);
        let rest = fold(w(layout::IP_MISC) ^ c, w(layout::VLAN) ^ a);
        let label = fold(w(layout::CT_LABEL) ^ c, w(layout::CT_LABEL + 1) ^ b);
        let ct = fold(w(layout::CT) ^ a, w(layout::CONJ_CTMARK) ^ label ^ c);
        let pass = w(layout::PORTS) ^ w(layout::DPHASH_ACTSET).rotate_left(16);
        fold(l2 ^ ip.rotate_left(21) ^ rest.rotate_left(42), pass ^ ct ^ b)
    }

    /// Hashes the words that vary most of the key of a packet that came out of a tunnel.
    #[inline]
    fn hash_tunneled(&self, key: &TunneledKey) -> u64 {
        let [a, b, c] = self.seeds;
        let w = |word| key.word(word);
        let l2 = fold(w(layout::ETH_DST) ^ a, w(layout::ETH_SRC) ^ b);
        let ip = fold(w(layout::IPV4) ^ w(layout::IPV6_SRC + 1) ^ b, w(layout::TP) ^ w(layout::IPV6_DST + 1) ^ c);
        let rest = fold(w(layout::IP_MISC) ^ c, w(layout::VLAN) ^ a);
        let outer = fold(w(layout::TUN_IPV6_SRC + 1) ^ w(layout::TUN_IPV4) ^ c, w(layout::TUN_ID) ^ b);
        let pass = w(layout::PORTS) ^ w(layout::DPHASH_ACTSET).rotate_left(16);
        fold(l2 ^ ip.rotate_left(21) ^ rest.rotate_left(42), pass ^ outer ^ b)
    }

    /// Hashes the key of a packet.
    #[inline]
    pub(crate) fn hash_of(&self, key: Key<'_>) -> u64 {
        match key {
            Key::Plain(key) => self.hash(key),
            Key::Wide(key) => self.hash_wide(key),
            Key::Tracked(key) => self.hash_tracked(key),
            Key::Tunneled(key) => self.hash_tunneled(key),
            Key::Any(key) => self.hash(key),
        }
    }

    /// Adds the words that TCP and UDP over IPv4 do not have.
    fn hash_more(&self, key: &impl Words, hash: u64) -> u64 {
        let words = [layout::MPLS01..layout::IPV4, layout::IPV6_SRC..layout::IP_MISC, layout::ARP_SHA..layout::TP];
        let words = words.into_iter().flatten().chain(layout::ND_TARGET..WORDS).chain(METADATA);
        words.fold(hash, |hash, word| fold(hash ^ self.seeds[0], key.word(word) ^ self.seeds[2]).wrapping_add(hash))
    }

    /// Returns the megaflow that packets of this key and hash take, if the cache knows it.
    #[inline]
    pub(crate) fn get(&self, key: &impl Words, hash: u64, generation: u64) -> Option<&Arc<Megaflow>> {
        let set = self.sets.get(self.place(hash))?;
        let way = set.hashes.iter().position(|h| *h == hash)?;
        set.flows[way].as_ref().filter(|f| f.generation == generation && !f.is_gone() && covers(f, key))
    }

    /// Returns true if an entry says that a packet whose key has this hash takes `flow`.
    pub(crate) fn knows(&self, hash: u64, flow: &Arc<Megaflow>) -> bool {
        let known = |set: &Set| {
            let mut entries = set.hashes.iter().zip(&set.flows);
            entries.any(|(h, f)| *h == hash && f.as_ref().is_some_and(|f| Arc::ptr_eq(f, flow)))
        };
        self.sets.get(self.place(hash)).is_some_and(known)
    }

    /// Inserts that a packet whose key has this hash takes `flow`. `chance` selects the entry to be evicted from a full set.
    pub(crate) fn insert(&mut self, hash: u64, flow: &Arc<Megaflow>, chance: &mut Chance) {
        if self.sets.is_empty() {
            self.sets.resize_with(self.n_sets, Set::default);
        }
        let place = self.place(hash);
        let Some(set) = self.sets.get_mut(place) else { return };
        let known = set.hashes.iter().zip(&set.flows).position(|(h, f)| *h == hash && f.is_some());
        let free = || set.flows.iter().position(|f| f.as_ref().is_none_or(|f| f.is_gone()));
        let way = known.or_else(free).unwrap_or_else(|| chance.below(WAYS as u64) as usize);
        set.hashes[way] = hash;
        set.flows[way] = Some(Arc::clone(flow));
    }

    /// Drops references to removed flows in a part of the cache, so that their memory is freed eventually. The caller repeats
    /// this from time to time.
    pub(crate) fn sweep(&mut self) {
        for _ in 0..SWEEP.min(self.sets.len()) {
            self.swept = (self.swept + 1) % self.sets.len();
            let Set { hashes, flows } = &mut self.sets[self.swept];
            for (hash, flow) in hashes.iter_mut().zip(flows) {
                if flow.as_ref().is_some_and(|f| f.is_gone()) {
                    (*hash, *flow) = (0, None);
                }
            }
        }
    }

    /// Returns the set of a hash. The index uses the lower half of the hash.
    fn place(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.n_sets - 1)
    }

    /// Returns the size of an entry in bytes.
    pub(crate) const fn entry_bytes() -> usize {
        size_of::<Set>() / WAYS
    }
}

/// Returns true if `key` has the same value as the flow's packet in every bit that translation read. The flow holds for all
/// such keys, and the index may widen it to them at any time ([`dpif::DpFlow::reads`]), though it may match fewer now.
fn covers(flow: &Megaflow, key: &impl Words) -> bool {
    flow.reads.iter().all(|step| (flow.key.word(step.word()) ^ key.word(step.word())) & step.bits() == 0)
}

/// The random decisions of a cache. They are apart from it because a batch borrows the cache's answers meanwhile.
#[derive(Debug)]
pub(crate) struct Chance {
    rng: Rng,
    /// 0: no key is inserted.
    inverse_probability: u32,
    /// Packets to pass over before the next insertion.
    skip: usize,
}

impl Chance {
    /// Seeds from the system's entropy.
    pub(crate) fn new() -> Self {
        Self { rng: Rng::from_entropy(), inverse_probability: INVERSE_PROBABILITY, skip: 0 }
    }

    /// Sets the inverse probability of insertion, 0 for none. Returns true if it changed.
    pub(crate) fn set_inverse_probability(&mut self, n: u32) -> bool {
        if self.inverse_probability == n {
            return false;
        }
        (self.inverse_probability, self.skip) = (n, 0);
        true
    }

    /// Returns true if no key is ever inserted, so that the cache need not be consulted.
    pub(crate) fn is_never(&self) -> bool {
        self.inverse_probability == 0
    }

    /// Selects the next of `n` packets to be inserted, from number `at` on, and moves `at` behind it.
    #[inline]
    pub(crate) fn next_of(&mut self, n: usize, at: &mut usize, consulted: bool) -> Option<usize> {
        let left = n - *at;
        if self.skip >= left || self.is_never() {
            self.skip = self.skip.saturating_sub(left);
            return None;
        }
        let one_in = self.inverse_probability.max(if consulted { 1 } else { BYPASSED_INVERSE_PROBABILITY });
        let chosen = *at + self.skip;
        *at = chosen + 1;
        // From 0 to twice the mean.
        self.skip = self.below(u64::from(one_in) * 2 - 1) as usize;
        Some(chosen)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.rng.below(n)
    }
}

/// Decides whether look-ups consult the cache. Packets are counted in windows: look-ups bypass the cache in the first window of
/// a period and consult it in the second, and the faster way serves the rest of the period. The cache must win by a sixteenth.
/// While it does not, each period is twice as long as the one before, up to a limit, because a measurement consults a cache
/// that does not pay. Keys are then inserted only in the last windows before the next measurement.
#[derive(Debug)]
pub(crate) struct CachePolicy {
    window: usize,
    /// Windows of this period.
    period: usize,
    /// Packets of this window so far.
    packets: u64,
    /// The time of their look-ups in 1/16 ns.
    spent: u64,
    /// The time a packet of the cheapest batch so far, in 1/16 ns.
    least: Option<u64>,
    /// The time a packet in the first two windows, in 1/16 ns.
    costs: [u64; 2],
    pays: bool,
}

impl Default for CachePolicy {
    fn default() -> Self {
        Self { window: 0, period: Self::PERIOD, packets: 0, spent: 0, least: None, costs: [0; 2], pays: false }
    }
}

impl CachePolicy {
    /// Packets of a window.
    const WINDOW: u64 = 4096;
    /// Windows of a period, unless the cache has not paid lately.
    const PERIOD: usize = 32;
    /// Windows of the longest period: two million packets.
    const PERIOD_MAX: usize = 512;
    /// Windows before a measurement in which keys are inserted: with the default probability, some five thousand keys.
    const FILLING: usize = 128;

    /// Returns true if the next batch consults the cache.
    pub(crate) fn consults(&self) -> bool {
        match self.window {
            0 => false,
            1 => true,
            _ => self.pays,
        }
    }

    /// Returns true if keys of the next batch may be inserted.
    pub(crate) fn fills(&self) -> bool {
        self.pays || self.is_measuring() || self.window + Self::FILLING >= self.period
    }

    /// Returns true if the time of the next batch is to be measured.
    pub(crate) fn is_measuring(&self) -> bool {
        self.window < self.costs.len()
    }

    /// Counts a batch of `packets` packets whose look-ups took `ns` nanoseconds (ignored unless measured). Returns true at the
    /// end of a window.
    pub(crate) fn count(&mut self, packets: usize, ns: u64) -> bool {
        let packets = packets as u64;
        self.packets += packets;
        if self.is_measuring() && packets > 0 {
            let cost = ns * 16 / packets;
            let least = self.least.map_or(cost, |least| least.min(cost));
            self.least = Some(least);
            // A batch that took much longer was most likely interrupted.
            self.spent += cost.min(least * 8) * packets;
        }
        if self.packets < Self::WINDOW {
            return false;
        }
        if let Some(cost) = self.costs.get_mut(self.window) {
            *cost = self.spent / self.packets;
        }
        if self.window == 1 {
            self.pays = self.costs[1] * 16 < self.costs[0] * 15;
            self.period = if self.pays { Self::PERIOD } else { (self.period * 2).min(Self::PERIOD_MAX) };
        }
        (self.packets, self.spent, self.least) = (0, 0, None);
        self.window = (self.window + 1) % self.period;
        true
    }
}

#[cfg(test)]
mod tests;
