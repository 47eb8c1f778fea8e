//! Networks of bridges: after a time that the standard bounds, frames reach each bridge by one path.

use super::network::{LOSSY, Network, PERFECT, Quality};
use super::*;
use base::rng::Rng;

/// How STP converges at most: information expires, then ports listen and learn (IEEE 802.1D-1998 table 8-3), with the
/// time in which BPDUs pass through the network.
const STP_MS: u64 = 20_000 + 2 * 15_000 + 10_000;
/// How long RSTP may take in a network without losses: three hello times until information expires, and as much again.
const RSTP_MS: u64 = 12_000;
/// Seeds of a test; each is a network.
const SEEDS: std::ops::Range<u64> = 0..4;

/// Bridges with different addresses in random order.
fn flavours(count: u64, rng: &mut Rng, flavour: impl Fn(u64, &mut Rng) -> Flavour) -> Vec<Flavour> {
    let mut addresses: Vec<u64> = (1..=count).collect();
    for n in (1..addresses.len()).rev() {
        addresses.swap(n, rng.below(n as u64 + 1) as usize);
    }
    addresses.into_iter().map(|address| flavour(address, rng)).collect()
}

fn random(seed: u64, flavour: impl Fn(u64, &mut Rng) -> Flavour) -> Network {
    let mut rng = Rng::seeded(seed);
    let count = 2 + rng.below(19);
    let flavours = flavours(count, &mut rng, flavour);
    let further = rng.below(count);
    Network::random(&flavours, further, seed)
}

/// The bridge with the least address.
fn best(network: &Network) -> usize {
    let root = network.root();
    let is_root = |machine: &SpanningTree| machine.status()[0].id == root;
    network.machines.iter().position(is_root).unwrap()
}

fn converges(network: &mut Network, ms: u64) {
    let start = network.now;
    network.run(ms);
    network.assert_spanning();
    network.root();
    // Nothing changes any more.
    let changed = network.changed;
    network.run(60_000);
    assert_eq!(network.changed, changed, "converged {} ms after the change", changed.since(start));
    network.assert_spanning();
}

#[test]
fn stp_spans_random_networks_without_loops_at_any_time() {
    for seed in SEEDS {
        let mut network = random(seed, |address, _| stp(address));
        network.no_loops = true;
        network.configure();
        converges(&mut network, STP_MS);
    }
}

#[test]
fn rstp_spans_random_networks_without_loops_at_any_time() {
    for seed in SEEDS {
        let mut network = random(seed, |address, _| rstp(address));
        network.no_loops = true;
        network.configure();
        converges(&mut network, RSTP_MS);
    }
}

#[test]
fn bridges_with_stp_and_with_rstp_span_networks_together() {
    for seed in SEEDS {
        let mut network = random(seed, |address, rng| if rng.below(2) == 0 { stp(address) } else { rstp(address) });
        network.configure();
        converges(&mut network, 2 * STP_MS);
    }
}

#[test]
fn a_new_root_is_found_when_the_root_falls_silent() {
    for seed in SEEDS {
        let is_rapid = seed % 2 == 0;
        let mut network = random(seed, |address, _| if is_rapid { rstp(address) } else { stp(address) });
        let ms = if is_rapid { RSTP_MS } else { STP_MS };
        network.configure();
        converges(&mut network, ms);
        let root = best(&network);
        network.kill(root);
        network.run(2 * STP_MS);
        network.assert_spanning();
    }
}

#[test]
fn rstp_replaces_links_that_fail_without_a_loop() {
    for seed in SEEDS {
        let mut network = random(seed, |address, _| rstp(address));
        network.configure();
        converges(&mut network, RSTP_MS);
        for _ in 0..4 {
            let link = network.rng.below(network.link_count() as u64) as usize;
            network.set_link(link, false);
            network.run(RSTP_MS);
            network.assert_spanning();
            network.set_link(link, true);
            network.run(RSTP_MS);
            network.assert_spanning();
        }
    }
}

#[test]
fn a_ring_with_rstp_heals_within_a_second_when_a_link_fails() {
    let flavours: Vec<_> = (1..=8).map(rstp).collect();
    let mut network = Network::new(&flavours, 1);
    let links: Vec<_> = (0..8).map(|n| network.link(n, (n + 1) % 8)).collect();
    network.no_loops = true;
    network.configure();
    converges(&mut network, RSTP_MS);
    let frames = network.frames;
    network.set_link(links[0], false);
    network.run(1000);
    network.assert_spanning();
    assert!(network.changed.since(Millis(0)) > 0 && network.frames > frames);
    assert!(network.flushes > 0);
}

#[test]
fn networks_converge_although_links_lose_repeat_and_reorder_frames() {
    for seed in SEEDS {
        let is_rapid = seed % 2 == 0;
        let mut network = random(seed, |address, _| if is_rapid { rstp(address) } else { stp(address) });
        network.quality = LOSSY;
        network.configure();
        network.run(2 * STP_MS);
        // A network that loses frames may change at any time. It is stable when it stops to do so.
        network.quality = PERFECT;
        converges(&mut network, if is_rapid { RSTP_MS } else { STP_MS });
    }
}

#[test]
fn slow_links_delay_convergence_but_do_not_prevent_it() {
    for seed in SEEDS {
        let mut network = random(seed, |address, _| rstp(address));
        network.quality = Quality { lost: 0, repeated: 0, delay: (200, 800) };
        network.configure();
        converges(&mut network, 3 * RSTP_MS);
    }
}

#[test]
fn the_best_bridge_that_joins_becomes_the_root() {
    for seed in SEEDS {
        let mut network = random(seed, |address, _| rstp(address));
        let first = network.settings.iter().position(|bridge| bridge.flavour == rstp(1)).unwrap();
        for link in network.links_of(first) {
            network.set_link(link, false);
        }
        network.configure();
        network.run(RSTP_MS);
        network.assert_spanning();
        for link in network.links_of(first) {
            network.set_link(link, true);
        }
        converges(&mut network, RSTP_MS);
        assert_eq!(network.root().address(), MacAddr::from_u64(1));
    }
}

#[test]
fn ports_send_no_more_than_hello_bpdus_once_the_network_is_stable() {
    let mut network = random(3, |address, _| rstp(address));
    network.configure();
    network.run(60_000);
    let before = network.frames;
    network.run(60_000);
    let ports: usize = network.settings.iter().map(|bridge| bridge.ports.len()).sum();
    assert!(network.frames - before <= ports as u64 * 31);
}
