//! The microflow cache: which megaflow the packets of one exact key take (NSDI'15, section 6). Each packet thread has one
//! of its own, of fixed size, and nobody else looks into it.
//!
//! It is a hint only. An entry remembers the hash of a whole key, and names the megaflow that was found for it. Before
//! that is an answer it has to cover the key that is asked about, be installed still, and be of the current generation;
//! if not, the index is asked, and the next entry takes the place. Nothing has to be told to the cache when flows
//! change, and keys whose hashes collide cost time, not truth.
//!
//! A key has one set of places, which share a line of memory; a new entry takes one that is free or, by chance, any.
//! Whether a key gets in at all is a matter of chance too, one in so many, so that a few large flows are not pushed out
//! by many small ones.
//!
//! The cache is consulted only while it pays ([`Judge`]): whether it does depends on what it has and on what a walk of
//! the index costs, so that both ways are measured now and then.

use base::mix::fold;
use std::sync::Arc;

use base::rng::Rng;
use flow::{WORDS, Words, layout};

use crate::input::Key;
use crate::megaflow::Megaflow;

/// Entries, as many as Open vSwitch's cache has.
const ENTRIES: usize = 8192;
/// Entries of a set.
const WAYS: usize = 4;
/// One in how many keys gets in, unless configured otherwise (other_config:emc-insert-inv-prob).
pub(crate) const INVERSE_PROBABILITY: u32 = 100;
/// One in how many keys gets in at most while the cache is not consulted, so that filling it costs next to nothing.
const RESTING_INVERSE_PROBABILITY: u32 = 64;
/// Sets that [`Exact::sweep`] looks at.
const SWEEP: usize = 8;

const ETH_TYPE_IPV4: u16 = 0x0800;

/// A line of memory.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Set {
    hashes: [u64; WAYS],
    flows: [Option<Arc<Megaflow>>; WAYS],
}

/// A cache; see the module's text.
#[derive(Debug)]
pub(crate) struct Exact {
    /// None until the first entry; else a power of two.
    sets: Vec<Set>,
    n_sets: usize,
    seeds: [u64; 3],
    swept: usize,
}

impl Exact {
    /// An empty cache. Its places are chosen by a secret, so that no sender can aim at one.
    pub(crate) fn new() -> Self {
        Self::with_sets(ENTRIES / WAYS)
    }

    /// `n_sets` is a power of two.
    fn with_sets(n_sets: usize) -> Self {
        let mut rng = Rng::from_entropy();
        Self { sets: Vec::new(), n_sets, seeds: std::array::from_fn(|_| rng.next_u64()), swept: 0 }
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.sets = Vec::new();
    }

    /// The hash of all words of a key that a packet fresh from a port can have.
    #[inline]
    pub(crate) fn hash(&self, key: &impl Words) -> u64 {
        let [a, b, c] = self.seeds;
        let w = |word| key.word(word);
        let l2 = fold(w(layout::ETH_DST) ^ a, w(layout::ETH_SRC) ^ b);
        let ip = fold(w(layout::IPV4) ^ b, w(layout::TP) ^ c);
        let rest = fold(w(layout::IP_MISC) ^ c, w(layout::VLAN) ^ a);
        let hash = fold(l2 ^ ip.rotate_left(21) ^ rest.rotate_left(42), w(layout::PORTS) ^ b);
        let plain = w(layout::ETH_DST) as u16 == ETH_TYPE_IPV4 && w(layout::L4_MISC) == 0;
        if plain { hash } else { self.hash_more(key, hash) }
    }

    /// The hash of a packet's key, of either kind.
    #[inline]
    pub(crate) fn hash_of(&self, key: Key<'_>) -> u64 {
        match key {
            Key::Plain(key) => self.hash(key),
            Key::Any(key) => self.hash(key),
        }
    }

    /// Adds the words that TCP and UDP over IPv4 do not have.
    fn hash_more(&self, key: &impl Words, hash: u64) -> u64 {
        let words = [layout::MPLS01..layout::IPV4, layout::IPV6_SRC..layout::IP_MISC, layout::ARP_SHA..layout::TP];
        let words = words.into_iter().flatten().chain(layout::ND_TARGET..WORDS);
        words.fold(hash, |hash, word| fold(hash ^ self.seeds[0], key.word(word) ^ self.seeds[2]).wrapping_add(hash))
    }

    /// The megaflow that packets of this key and hash take, if it is known.
    #[inline]
    pub(crate) fn get(&self, key: &impl Words, hash: u64, generation: u64) -> Option<&Arc<Megaflow>> {
        let set = self.sets.get(self.place(hash))?;
        let way = set.hashes.iter().position(|h| *h == hash)?;
        set.flows[way].as_ref().filter(|f| f.generation == generation && !f.is_gone() && covers(f, key))
    }

    /// Takes note that a packet whose key has this hash takes `flow`. `chance` decides which other entry has to go.
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

    /// Lets go of flows that are not installed any more, in a part of the cache, so that their memory is not held for
    /// ever. To be called now and then.
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

    /// The upper half, as the lower one finds places in tables of the index.
    fn place(&self, hash: u64) -> usize {
        (hash >> 32) as usize & (self.n_sets - 1)
    }

    /// Bytes of an entry.
    pub(crate) const fn entry_bytes() -> usize {
        size_of::<Set>() / WAYS
    }
}

/// Whether all that a flow's computation read is the same in `key`: a flow holds for all such keys, and an index may make
/// it as wide as that at any time ([`dpif::DpFlow::reads`]), though at this moment it may match fewer.
fn covers(flow: &Megaflow, key: &impl Words) -> bool {
    flow.reads.iter().all(|step| (flow.key.word(step.word()) ^ key.word(step.word())) & step.bits() == 0)
}

/// What chance decides: apart from the cache, whose answers are in use when it is asked.
#[derive(Debug)]
pub(crate) struct Chance {
    rng: Rng,
    /// 0 for never.
    inverse_probability: u32,
    /// Packets until one gets in.
    skip: usize,
}

impl Chance {
    /// Chance that nobody can foresee.
    pub(crate) fn new() -> Self {
        Self { rng: Rng::from_entropy(), inverse_probability: INVERSE_PROBABILITY, skip: 0 }
    }

    /// Lets in one in so many from now on, 0 for none. Returns whether that is a change.
    pub(crate) fn set_inverse_probability(&mut self, n: u32) -> bool {
        if self.inverse_probability == n {
            return false;
        }
        (self.inverse_probability, self.skip) = (n, 0);
        true
    }

    /// Whether nothing gets in: then there is nothing to be consulted either.
    pub(crate) fn is_never(&self) -> bool {
        self.inverse_probability == 0
    }

    /// The next of `n` packets to get in, from number `at` on, which moves behind it.
    #[inline]
    pub(crate) fn next_of(&mut self, n: usize, at: &mut usize, consulted: bool) -> Option<usize> {
        let left = n - *at;
        if self.skip >= left || self.is_never() {
            self.skip = self.skip.saturating_sub(left);
            return None;
        }
        let one_in = self.inverse_probability.max(if consulted { 1 } else { RESTING_INVERSE_PROBABILITY });
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

/// Decides whether the cache is consulted. Time goes in windows of packets: in the first of a period look-ups do without
/// the cache, in the second they consult it first, and for the rest they go the way that took less time. The cache has
/// to be better by a sixteenth.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    window: usize,
    /// Packets of this window so far.
    packets: u64,
    /// What they cost, in 1/16 ns, and the cheapest batch's cost of a packet, if there was one.
    spent: u64,
    least: Option<u64>,
    /// What a packet cost in the first two windows.
    costs: [u64; 2],
    pays: bool,
}

impl Judge {
    /// Packets.
    const WINDOW: u64 = 4096;
    /// Windows.
    const PERIOD: usize = 32;

    /// Whether the next batch is to consult the cache.
    pub(crate) fn consults(&self) -> bool {
        match self.window {
            0 => false,
            1 => true,
            _ => self.pays,
        }
    }

    /// Whether the next batch's time is wanted.
    pub(crate) fn is_measuring(&self) -> bool {
        self.window < self.costs.len()
    }

    /// Takes note of a batch of `packets` packets, and of the nanoseconds that its look-ups took, if they are wanted.
    /// Returns whether a window ends.
    pub(crate) fn count(&mut self, packets: usize, ns: u64) -> bool {
        let packets = packets as u64;
        self.packets += packets;
        if self.is_measuring() && packets > 0 {
            let cost = ns * 16 / packets;
            let least = self.least.map_or(cost, |least| least.min(cost));
            self.least = Some(least);
            // What took much longer was most likely interrupted.
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
        }
        (self.packets, self.spent, self.least) = (0, 0, None);
        self.window = (self.window + 1) % Self::PERIOD;
        true
    }
}

#[cfg(test)]
mod tests;
