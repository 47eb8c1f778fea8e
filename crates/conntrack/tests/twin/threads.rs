//! Several threads with connections in common.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use base::Millis;
use base::rng::Rng;
use conntrack::{Action, Commit, Nat, NatKind, Tracker, state};
use packet::Batch;

use super::named::{commit, flow4, syn, udp};
use super::packets::{Flow, TCP, UDP};

const THREADS: u64 = 4;
const STEPS: u64 = 10_000;
const MAX: u64 = 40;

fn action(rng: &mut Rng) -> Action {
    let mut action = commit(rng.below(2) as u16);
    match rng.below(8) {
        0 => action.commit = None,
        1 => action.commit = Some(Commit::Force),
        2 => action.mark = Some((rng.below(9) as u32, u32::MAX)),
        3 | 4 => {
            let address = [0, 0x0a00_0010 | rng.below(2)];
            let kind = Some(if rng.below(2) == 0 { NatKind::Src } else { NatKind::Dst });
            action.nat = Some(Nat { kind, addresses: Some((address, address, false)), ..Nat::default() });
        }
        _ => {}
    }
    action
}

fn work(tracker: &Tracker, seed: u64, time: &AtomicU64) -> u64 {
    let mut rng = Rng::seeded(seed);
    let mut known = 0;
    for _ in 0..STEPS {
        let now = Millis(time.fetch_add(rng.below(30), Ordering::Relaxed));
        match rng.below(200) {
            0 => {
                let mark = rng.below(9) as u32;
                tracker.flush(&mut |conn| conn.mark == mark);
            }
            1 => {
                tracker.sweep(now);
            }
            2 => {
                tracker.limits().set(1, 5 + rng.below(10) as u32);
            }
            3 => {
                tracker.visit(0, now, &mut |conn| assert_eq!(conn.original.zone, conn.reply.zone));
            }
            _ => {
                let host = |rng: &mut Rng| u128::from(1 + rng.below(3));
                let proto = if rng.below(2) == 0 { UDP } else { TCP };
                let (src, dst) = (host(&mut rng), host(&mut rng));
                let flow = flow4(proto, src, dst, 1000 + rng.below(3) as u16, 1000 + rng.below(3) as u16);
                let packets = (0..=rng.below(3)).map(|_| if proto == UDP { udp(&flow) } else { syn(&flow) });
                let mut batch: Batch = packets.collect();
                tracker.track_all(&mut batch, &action(&mut rng), 1, now);
                // Again, as after recirculation.
                tracker.track_all(&mut batch, &action(&mut rng), 1, now);
                for packet in &batch {
                    let connection = &packet.metadata().expect("tracked").connection;
                    assert_ne!(connection.state & state::TRK, 0);
                    known += u64::from(connection.handle != 0);
                }
            }
        }
    }
    known
}

#[test]
fn threads_agree_on_the_connections() {
    let tracker = Tracker::new(1);
    tracker.set_connections_max(MAX);
    tracker.limits().set(1, 8);
    let time = AtomicU64::new(1000);
    let known: u64 = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..THREADS)
            .map(|seed| {
                scope.spawn({
                    let (tracker, time) = (&tracker, &time);
                    move || work(tracker, seed, time)
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().expect("no thread panics")).sum()
    });
    let (mut keys, mut count, mut counted) = (HashSet::new(), 0, 0);
    tracker.flush(&mut |conn| {
        count += 1;
        counted += u32::from(conn.limited_by.is_some() && conn.original.zone == 1);
        // A host that sends to its own port has one key for both directions.
        for key in conn.keys().iter().take(if conn.original == conn.reply { 1 } else { 2 }) {
            assert!(keys.insert(*key), "two connections have {:?}", Flow::of(key));
        }
        false
    });
    assert!((1..=MAX).contains(&count));
    assert_eq!(tracker.connections(), count);
    assert_eq!(tracker.limits().zone(1).count, counted);
    assert_eq!(tracker.flush(&mut |_| true), count);
    assert_eq!((tracker.connections(), tracker.limits().zone(1).count), (0, 0));
    tally::report!("{THREADS} threads, {STEPS} steps each, {known} packets with a connection");
}
