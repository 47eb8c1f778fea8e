//! The whole tracker from the outside: beside a naive twin on random packets, in named cases, and with several threads.

mod frames;
mod helper;
mod model;
mod named;

mod packets;
mod scenario;
mod tcp;
mod threads;

mod world;

/// What the policy `short` sets, in seconds.
const SHORT: [(&str, u64); 4] = [("icmp_first", 3), ("udp_first", 5), ("udp_single", 7), ("udp_multiple", 9)];

use base::rng::Rng;
use world::{Kinds, World};

#[test]
fn random_packets_agree_with_a_naive_twin() {
    let (worlds, steps) = (120, 1000);
    let mut kinds = Kinds::default();
    for seed in 0..worlds {
        let mut world = World::new(seed);
        (0..steps).for_each(|_| world.step());
        kinds.add(&world);
    }
    kinds.assert_all_occur();
    tally::report!("{} steps; {kinds}", worlds * steps);
}

tally::proptest! {
    #![proptest_config(proptest::test_runner::Config::with_cases(64))]

    #[test]
    fn any_packets_agree_with_a_naive_twin(seed: u64, steps in 1..800u32) {
        let mut world = World::new(Rng::seeded(seed).next_u64());
        (0..steps).for_each(|_| world.step());
    }
}
