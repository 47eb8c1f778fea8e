//! Random choice of packets: which of a stream of packets an action applies to, each with the same probability and
//! independently of the others.
//!
//! A [`Sampler`] draws how many packets it skips before the next chosen one (a geometric distribution), instead of a
//! number for each packet: a batch without a chosen packet costs one subtraction. As the distribution has no memory,
//! all flows with the same probability share one gap, and a gap may be forgotten and drawn anew.

use base::rng::Rng;
use smallvec::SmallVec;

/// Number of probabilities whose gaps are kept; a further one replaces another.
const KEPT: usize = 4;

/// The packets still to be skipped for a probability.
#[derive(Clone, Copy, Debug)]
struct Gap {
    probability: u32,
    left: u64,
}

/// Chooses packets of one thread.
#[derive(Debug)]
pub(crate) struct Sampler {
    rng: Rng,
    gaps: SmallVec<[Gap; KEPT]>,
    /// The gap that a new one replaces next.
    oldest: usize,
}

impl Sampler {
    pub(crate) fn new(rng: Rng) -> Self {
        Self { rng, gaps: SmallVec::new(), oldest: 0 }
    }

    /// Returns the positions of the chosen packets among the next `n`, in order, each chosen with a probability of
    /// `probability` / 2^32, or 1 for the maximum.
    #[inline]
    pub(crate) fn choose(&mut self, probability: u32, n: usize) -> SmallVec<[u32; 8]> {
        let mut chosen = SmallVec::new();
        let at = self.gaps.iter().position(|gap| gap.probability == probability);
        let at = at.unwrap_or_else(|| self.add(probability));
        let Some(gap) = self.gaps.get_mut(at) else { return chosen };
        let mut rest = n as u64;
        while gap.left < rest {
            rest -= gap.left + 1;
            chosen.push((n as u64 - rest - 1) as u32);
            gap.left = draw(&mut self.rng, probability);
        }
        gap.left -= rest;
        chosen
    }

    #[cold]
    fn add(&mut self, probability: u32) -> usize {
        let gap = Gap { probability, left: draw(&mut self.rng, probability) };
        if self.gaps.len() < KEPT {
            self.gaps.push(gap);
            return self.gaps.len() - 1;
        }
        self.oldest = (self.oldest + 1) % KEPT;
        self.gaps[self.oldest] = gap;
        self.oldest
    }
}

/// Draws the number of packets before the next chosen one.
fn draw(rng: &mut Rng, probability: u32) -> u64 {
    match probability {
        0 => u64::MAX,
        u32::MAX => 0,
        _ => {
            // A number in (0, 1]: 53 random bits, plus one.
            let uniform = ((rng.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
            let skip = -f64::from(probability) / 4_294_967_296.0;
            (uniform.ln() / skip.ln_1p()) as u64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of chosen packets of so many, in batches of these sizes in turn.
    fn count(sampler: &mut Sampler, probability: u32, total: usize, sizes: &[usize]) -> usize {
        let (mut left, mut chosen) = (total, 0);
        for size in sizes.iter().cycle() {
            let n = (*size).min(left);
            let positions = sampler.choose(probability, n);
            assert!(positions.is_sorted() && positions.iter().all(|at| (*at as usize) < n));
            chosen += positions.len();
            left -= n;
            if left == 0 {
                return chosen;
            }
        }
        chosen
    }

    #[test]
    fn none_and_all_are_certain() {
        let mut sampler = Sampler::new(Rng::seeded(1));
        assert_eq!(count(&mut sampler, 0, 100_000, &[32, 1]), 0);
        assert_eq!(count(&mut sampler, u32::MAX, 1000, &[32, 1]), 1000);
        assert_eq!(sampler.choose(u32::MAX, 3).as_slice(), &[0, 1, 2]);
        assert!(sampler.choose(1 << 31, 0).is_empty());
    }

    /// Within five standard deviations of the expected number, with any sizes of batches, also of several probabilities in turn.
    #[test]
    fn each_packet_is_chosen_with_its_probability() {
        let total = 200_000;
        for (seed, sizes) in [(2, &[1][..]), (3, &[32]), (4, &[1, 32, 5, 0])] {
            let mut sampler = Sampler::new(Rng::seeded(seed));
            let ways = [2_u32, 3, 10, 400, 1000, 5];
            for n in ways.iter().chain(&ways) {
                let p = 1.0 / f64::from(*n);
                let chosen = count(&mut sampler, u32::MAX / n, total, sizes) as f64;
                let mean = p * total as f64;
                assert!((chosen - mean).abs() < 5.0 * (mean * (1.0 - p)).sqrt(), "1 in {n}: {chosen}");
            }
            assert_eq!(sampler.gaps.len(), KEPT);
        }
    }

    /// Pairs of neighbours are chosen as often as independent packets are.
    #[test]
    fn choices_are_independent() {
        let mut sampler = Sampler::new(Rng::seeded(5));
        let (mut pairs, mut before) = (0, false);
        for _ in 0..200_000 {
            let is_chosen = !sampler.choose(u32::MAX / 4, 1).is_empty();
            pairs += u32::from(before && is_chosen);
            before = is_chosen;
        }
        assert!(pairs.abs_diff(12_500) < 600, "{pairs}");
    }
}
