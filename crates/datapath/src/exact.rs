//! The microflow cache: which megaflow the packets of one exact key take (NSDI'15, section 6). Each packet thread has one
//! of its own, of fixed size, and nobody else looks into it.
//!
//! It is a hint only. An entry names the megaflow that was found for its key; one that has left the index since, or
//! is of another generation, is no answer, and the next one takes its place. Nothing has to be told to the cache when
//! flows change.
//!
//! A key has two places, by its hash; a new entry takes one that is free or, by chance, one of the two. Whether a key
//! gets in at all is a matter of chance too, one in so many, so that a few large flows are not pushed out by many small
//! ones.
//!
//! The cache is consulted only while it pays. Of each [`WINDOW`] of packets it is counted how many it had; if they were
//! too few, it is passed over for some windows, then tried for one.

use std::sync::Arc;

use base::rng::Rng;
use flow::{FlowKey, layout};

use crate::megaflow::Megaflow;

/// Entries, a power of two, as many as Open vSwitch's cache has.
const ENTRIES: usize = 8192;
/// One in how many keys gets in, unless configured otherwise (other_config:emc-insert-inv-prob).
pub(crate) const INVERSE_PROBABILITY: u32 = 100;
/// Packets after which it is judged whether the cache pays.
const WINDOW: u32 = 4096;
/// What it must have of a window, at least: a hit saves a walk of the index, a miss costs a comparison.
const HITS_MIN: u32 = WINDOW / 4;
/// Windows that are passed over after one that did not pay.
const REST: u32 = 15;
/// Words of a key that packets fresh from a port differ in, beside the ingress port: headers.
const HEADERS: usize = layout::WORDS - layout::ETH_DST;

#[derive(Debug)]
struct Entry {
    /// 0 for an entry that is free.
    hash: u64,
    in_port: u32,
    headers: [u64; HEADERS],
    flow: Option<Arc<Megaflow>>,
}

/// A cache; see the module's text.
#[derive(Debug)]
pub(crate) struct Exact {
    entries: Vec<Entry>,
    seed: [u64; 2],
    inverse_probability: u32,
    /// Packets and hits of this window, and windows to be passed over.
    asked: u32,
    hits: u32,
    rest: u32,
}

/// What chance decides: apart from the cache, whose answers are in use when it is asked.
#[derive(Debug)]
pub(crate) struct Chance {
    rng: Rng,
}

impl Chance {
    /// Chance that nobody can foresee.
    pub(crate) fn new() -> Self {
        Self { rng: Rng::from_entropy() }
    }

    /// True once in `n` times.
    pub(crate) fn one_in(&mut self, n: u32) -> bool {
        n <= 1 || self.rng.below(n.into()) == 0
    }
}

impl Exact {
    /// An empty cache. Its places are chosen by a secret, so that no sender can aim at one.
    pub(crate) fn new() -> Self {
        let mut rng = Rng::from_entropy();
        let seed = [rng.next_u64() | 1, rng.next_u64() | 1];
        Self { entries: Vec::new(), seed, inverse_probability: INVERSE_PROBABILITY, asked: 0, hits: 0, rest: 0 }
    }

    /// Lets in one in so many keys from now on, 0 for none: then the cache is not consulted either.
    pub(crate) fn set_inverse_probability(&mut self, n: u32) {
        if self.inverse_probability != n {
            self.inverse_probability = n;
            self.rest = 0;
            self.entries = Vec::new();
        }
    }

    /// Whether the next `n` packets, a batch, are worth asking about.
    pub(crate) fn pays(&mut self, n: u32) -> bool {
        if self.inverse_probability == 0 {
            return false;
        }
        self.asked += n;
        if self.asked >= WINDOW {
            let paid = self.hits >= HITS_MIN;
            (self.asked, self.hits) = (0, 0);
            self.rest = if self.rest > 0 {
                self.rest - 1
            } else if paid {
                0
            } else {
                REST
            };
        }
        self.rest == 0
    }

    /// One in how many keys is to get in.
    pub(crate) fn inverse_probability(&self) -> u32 {
        self.inverse_probability
    }

    /// The hash of a key. Never 0.
    pub(crate) fn hash(&self, key: &FlowKey) -> u64 {
        let (pairs, last) = key.0[layout::ETH_DST..].as_chunks::<2>();
        let (mut a, mut b) = (self.seed[0] ^ key.0[layout::PORTS], self.seed[1]);
        for [x, y] in pairs {
            a = fold(a ^ x, self.seed[1] ^ y);
            std::mem::swap(&mut a, &mut b);
        }
        let rest = last.first().copied().unwrap_or(0);
        fold(a ^ rest, b ^ 0x9e37_79b9_7f4a_7c15) | 1
    }

    /// The megaflow that a packet of this key and hash took, if it is still there in this generation.
    pub(crate) fn get(&self, key: &FlowKey, hash: u64, generation: u64) -> Option<&Arc<Megaflow>> {
        if self.entries.is_empty() {
            return None;
        }
        let place = self.places(hash).into_iter().find(|place| self.entries[*place].is(key, hash))?;
        self.entries[place].flow.as_ref().filter(|flow| !flow.is_gone() && flow.generation == generation)
    }

    /// Takes note of `n` hits.
    pub(crate) fn count_hits(&mut self, n: u32) {
        self.hits += n;
    }

    /// Takes note that a packet of this key takes `flow`. `chance` decides which of two other entries has to go.
    pub(crate) fn insert(&mut self, key: &FlowKey, hash: u64, flow: &Arc<Megaflow>, chance: &mut Chance) {
        if self.entries.is_empty() {
            let free = || Entry { hash: 0, in_port: 0, headers: [0; HEADERS], flow: None };
            self.entries = std::iter::repeat_with(free).take(ENTRIES).collect();
        }
        let places = self.places(hash);
        let known = places.into_iter().find(|place| self.entries[*place].is(key, hash));
        let free = || places.into_iter().find(|place| self.entries[*place].flow.is_none());
        let place = known.or_else(free).unwrap_or(places[(chance.rng.next_u64() & 1) as usize]);
        let entry = &mut self.entries[place];
        entry.hash = hash;
        entry.in_port = key.in_port().0;
        entry.headers.copy_from_slice(&key.0[layout::ETH_DST..]);
        entry.flow = Some(Arc::clone(flow));
    }

    fn places(&self, hash: u64) -> [usize; 2] {
        let mask = self.entries.len() - 1;
        [hash as usize >> 1 & mask, (hash >> 32) as usize & mask]
    }

    /// Bytes of an entry.
    pub(crate) const fn entry_bytes() -> usize {
        size_of::<Entry>()
    }
}

impl Entry {
    fn is(&self, key: &FlowKey, hash: u64) -> bool {
        self.hash == hash && self.in_port == key.in_port().0 && self.headers[..] == key.0[layout::ETH_DST..]
    }
}

/// Both halves of a product, folded into one.
fn fold(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::PortNo;
    use dpif::{DpFlow, FlowId};
    use flow::Field;

    fn key(n: u64) -> FlowKey {
        let mut key = FlowKey::ZERO;
        key.set_in_port(PortNo((n % 3) as u32));
        key.set(Field::EthDst, n.into());
        key.set(Field::TcpDst, (n >> 3).into());
        key
    }

    fn megaflow(id: u64, generation: u64) -> Arc<Megaflow> {
        let flow = DpFlow { key: key(id), mask: FlowKey::ZERO, reads: Arc::new([]), actions: Arc::new([]), generation };
        Arc::new(Megaflow::new(FlowId(id), flow))
    }

    fn id(cache: &Exact, n: u64, generation: u64) -> Option<u64> {
        let hash = cache.hash(&key(n));
        cache.get(&key(n), hash, generation).map(|flow| flow.id.0)
    }

    fn put(cache: &mut Exact, n: u64, flow: &Arc<Megaflow>) {
        let hash = cache.hash(&key(n));
        cache.insert(&key(n), hash, flow, &mut Chance::new());
    }

    #[test]
    fn what_left_or_is_old_is_no_answer() {
        let mut cache = Exact::new();
        cache.set_inverse_probability(1);
        let (a, b) = (megaflow(1, 5), megaflow(2, 5));
        put(&mut cache, 1, &a);
        put(&mut cache, 2, &b);
        assert_eq!((id(&cache, 1, 5), id(&cache, 2, 5), id(&cache, 3, 5)), (Some(1), Some(2), None));
        a.set_gone();
        assert_eq!((id(&cache, 1, 5), id(&cache, 2, 5), id(&cache, 2, 6)), (None, Some(2), None));
        let c = megaflow(3, 5);
        put(&mut cache, 1, &c);
        assert_eq!((id(&cache, 1, 5), Arc::strong_count(&a)), (Some(3), 1));
    }

    #[test]
    fn answers_are_those_of_a_map_of_any_size() {
        let mut cache = Exact::new();
        let mut rng = Rng::seeded(7);
        let flows: Vec<_> = (0..50).map(|n| megaflow(n, 0)).collect();
        let mut naive = std::collections::HashMap::new();
        let mut hits = 0;
        for _ in 0..200_000 {
            let n = rng.below(30_000);
            if let Some(found) = id(&cache, n, 0) {
                assert_eq!(naive.get(&n), Some(&found));
                hits += 1;
            }
            let flow = &flows[(n % 50) as usize];
            put(&mut cache, n, flow);
            naive.insert(n, flow.id.0);
        }
        assert!(hits > 10_000, "{hits} hits");
    }

    #[test]
    fn a_cache_that_does_not_pay_rests() {
        let mut cache = Exact::new();
        assert!(cache.pays(32));
        let asked = (0..WINDOW / 32 * (REST + 1) * 4).filter(|_| cache.pays(32)).count() as u32 * 32;
        assert!(asked > WINDOW && asked < WINDOW * 7, "{asked}");
        cache.set_inverse_probability(0);
        assert!(!cache.pays(32));
        assert!(Exact::entry_bytes() <= 192);
    }
}
