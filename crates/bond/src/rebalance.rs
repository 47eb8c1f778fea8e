//! The choice of buckets to move from members with much load to members with little.
//!
//! A member hands over the set of buckets that it finds by taking its largest bucket first, then each next one that still
//! fits into half of the difference to the other member. So a move never makes the receiver the busier of the two, each
//! move lowers the sum of the squares of the loads, and the procedure ends. It ends where no pair of members has a bucket
//! to move: a second run with proportional loads moves nothing.

use crate::BUCKETS;

/// Differences of less than this many bytes, or of less than a 32nd of the smaller load, are left as they are: moving a
/// bucket may reorder packets.
const DIFFERENCE_MIN: u64 = 100_000;

/// Moves buckets between members. `owners` has the index of each bucket's member, less than `n_members`; others have no
/// part in it. Returns true if a bucket was moved.
pub fn rebalance(owners: &mut [Option<usize>; BUCKETS], loads: &[u64; BUCKETS], n_members: usize) -> bool {
    let mut totals = vec![0u64; n_members];
    for (owner, load) in owners.iter().zip(loads) {
        if let Some(total) = owner.and_then(|owner| totals.get_mut(owner)) {
            *total = total.saturating_add(*load);
        }
    }
    // Largest first; among equal ones, the smallest number first.
    let mut by_load: Vec<usize> = (0..BUCKETS).filter(|bucket| loads[*bucket] > 0).collect();
    by_load.sort_by_key(|bucket| (std::cmp::Reverse(loads[*bucket]), *bucket));
    let mut moved = false;
    while let Some((bucket_set, from, to)) = next_move(owners, loads, &totals, &by_load) {
        for bucket in bucket_set {
            owners[bucket] = Some(to);
            totals[from] -= loads[bucket];
            totals[to] += loads[bucket];
        }
        moved = true;
    }
    moved
}

/// Returns the next set of buckets to move, with its present and its new member.
fn next_move(
    owners: &[Option<usize>; BUCKETS],
    loads: &[u64; BUCKETS],
    totals: &[u64],
    by_load: &[usize],
) -> Option<(Vec<usize>, usize, usize)> {
    let mut order: Vec<usize> = (0..totals.len()).collect();
    order.sort_by_key(|member| (totals[*member], *member));
    for from in order.iter().rev().copied() {
        for to in order.iter().copied() {
            let difference = totals[from].saturating_sub(totals[to]);
            if difference < DIFFERENCE_MIN.max(totals[to] >> 5) {
                break;
            }
            let mut room = difference / 2;
            let mut fits = |bucket: &usize| {
                let fits = owners[*bucket] == Some(from) && loads[*bucket] <= room;
                room -= if fits { loads[*bucket] } else { 0 };
                fits
            };
            let set: Vec<usize> = by_load.iter().copied().filter(|bucket| fits(bucket)).collect();
            if !set.is_empty() {
                return Some((set, from, to));
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;
    use proptest::prelude::*;

    fn buckets(of: &[(usize, u64, usize)]) -> ([Option<usize>; BUCKETS], [u64; BUCKETS]) {
        let (mut owners, mut loads) = ([None; BUCKETS], [0; BUCKETS]);
        for (bucket, kilobytes, owner) in of {
            (owners[*bucket], loads[*bucket]) = (Some(*owner), kilobytes * 1024);
        }
        (owners, loads)
    }

    /// The loads and the result of a run of Open vSwitch 4.0.0.
    #[test]
    fn equals_open_vswitch() {
        let (mut owners, loads) = buckets(&[
            (86, 527, 0),
            (120, 644, 1),
            (46, 117, 2),
            (60, 468, 2),
            (93, 234, 2),
            (144, 58, 2),
            (158, 410, 2),
            (184, 585, 2),
            (215, 351, 2),
            (218, 293, 2),
            (220, 175, 2),
        ]);
        assert!(rebalance(&mut owners, &loads, 3));
        let of = |member| (0..BUCKETS).filter(|bucket| owners[*bucket] == Some(member)).collect::<Vec<_>>();
        assert_eq!([of(0), of(1), of(2)], [vec![60, 86, 184], vec![120, 144, 158], vec![46, 93, 215, 218, 220]]);
    }

    #[test]
    fn one_heavy_bucket_stays() {
        let (mut owners, loads) = buckets(&[(1, 10_000, 0), (2, 0, 1)]);
        assert!(!rebalance(&mut owners, &loads, 2));
    }

    tally::proptest! {
        /// A second run moves nothing, whatever the scale of the loads; nothing is lost; no member becomes busier than the
        /// busiest was; the difference that remains between two members is small, or smaller than each bucket twice.
        #[test]
        fn ends_where_nothing_is_left_to_move(seed: u64, n_members in 1usize..6, scale in 1u32..24) {
            let mut random = Rng::seeded(seed);
            let mut owners = std::array::from_fn(|_| Some(random.below(n_members as u64) as usize));
            let loads: [u64; BUCKETS] = std::array::from_fn(|_| {
                let shift = random.below(scale.into());
                if random.below(4) == 0 { random.below(1 << shift) } else { 0 }
            });
            let totals = |owners: &[Option<usize>; BUCKETS]| {
                let mut totals = vec![0u64; n_members];
                owners.iter().zip(&loads).for_each(|(owner, load)| totals[owner.unwrap()] += load);
                totals
            };
            let before = totals(&owners);
            rebalance(&mut owners, &loads, n_members);
            let after = totals(&owners);
            prop_assert_eq!(before.iter().sum::<u64>(), after.iter().sum::<u64>());
            prop_assert!(after.iter().max() <= before.iter().max());
            prop_assert!(after.iter().min() >= before.iter().min());
            for decay in [0, 1, 5] {
                let later = loads.map(|load| load >> decay);
                let mut again = owners;
                let moved = rebalance(&mut again, &later, n_members);
                // A shift rounds down, so that the proportions differ a little.
                prop_assert!(!moved || decay > 0);
            }
            for from in 0..n_members {
                for to in 0..n_members {
                    let difference = after[from].saturating_sub(after[to]);
                    let of_from = (0..BUCKETS).filter(|b| owners[*b] == Some(from) && loads[*b] > 0);
                    let smallest = of_from.map(|b| loads[b]).min();
                    let is_small = difference < DIFFERENCE_MIN.max(after[to] >> 5);
                    prop_assert!(is_small || smallest.is_none_or(|smallest| smallest * 2 > difference));
                }
            }
        }
    }
}
