//! Measures the table of connections: time and memory for each connection. Arguments are numbers of connections.

use std::hint::black_box;
use std::time::Instant;

use base::Millis;
use base::rng::Rng;
use conntrack::action::Translated;
use conntrack::conn::Label;
use conntrack::proto::{Protocol, datagram::Datagram};
use conntrack::table::{Table, Terms};
use conntrack::timeout::PolicyId;
use conntrack::{Conn, Key};

const NOW: Millis = Millis(1000);
const NEVER: Millis = Millis(1 << 50);
/// Packets of a batch.
const BATCH: usize = 32;

fn conn(key: Key) -> Conn {
    Conn {
        original: key,
        reply: key.reversed(),
        protocol: Protocol::Datagram(Datagram::begin()),
        label: Label::default(),
        mark: 0,
        translated: Translated::default(),
        helper: None,
        policy: PolicyId::default(),
        related: None,
        memos: [0; 2],
        next: [0; 2],
        limited_by: None,
    }
}

fn key(n: u64) -> Key {
    let (src, dst) = ([0, 0x0a00_0000 + (n >> 16)], [0, 0x0b00_0001]);
    Key { src, dst, src_port: n as u16, dst_port: 53, zone: 0, proto: 17, is_v6: false }
}

/// Prints nanoseconds for each of `n` operations.
fn report(what: &str, n: u64, run: impl FnOnce()) {
    let start = Instant::now();
    run();
    let elapsed = start.elapsed();
    println!("{what:42} {:8.1} ns  ({:.1} ms)", elapsed.as_nanos() as f64 / n as f64, elapsed.as_secs_f64() * 1e3);
}

/// Prints the nanoseconds for each packet of the fastest of some rounds.
fn report_best(what: &str, packets: &[(Key, u64)], run: impl Fn(&[(Key, u64)])) {
    let rounds = ((8 << 20) / packets.len()).min(500);
    let best = (0..rounds).map(|_| {
        let start = Instant::now();
        run(packets);
        start.elapsed()
    });
    println!("{what:42} {:8.1} ns", best.min().unwrap_or_default().as_nanos() as f64 / packets.len() as f64);
}

fn terms(max: u64) -> Terms {
    Terms { expires: NEVER, now: NOW, max }
}

fn measure(count: u64) {
    println!("{count} connections");
    let table = Table::new(42);
    report("insert", count, || {
        for n in 0..count {
            table.insert(conn(key(n)), &terms(u64::MAX), &mut |_, _| {}).expect("the keys differ");
        }
    });
    println!("{:42} {:8.1} bytes", "memory for each connection", table.bytes() as f64 / count as f64);
    // Packets of connections in random order, a fourth of them of the reply direction.
    let mut rng = Rng::seeded(7);
    let packets: Vec<(Key, u64)> = (0..1 << 20)
        .map(|n| {
            let key = key(rng.below(count));
            let key = if n % 4 == 0 { key.reversed() } else { key };
            (key, table.hash(&key))
        })
        .collect();
    let packets = if count <= 1000 { &packets[..4096] } else { &packets[..] };
    report_best("hash", packets, |packets| {
        for (key, _) in packets {
            black_box(table.hash(key));
        }
    });
    let find = |packets: &[(Key, u64)]| {
        for (key, hash) in packets {
            let found = table.find(key, *hash, NOW).expect("the connection is there");
            black_box(found.guard.mark);
        }
    };
    report_best("find", packets, find);
    let prefetch = |packets: &[(Key, u64)]| {
        packets.iter().for_each(|(_, hash)| table.prefetch(*hash));
        for (_, hash) in packets {
            if let Some(slot) = table.candidate(*hash) {
                table.prefetch_slot(slot);
            }
        }
    };
    report_best("prefetch", packets, |packets| packets.chunks(BATCH).for_each(prefetch));
    report_best("prefetch, find, by batches", packets, |packets| {
        for batch in packets.chunks(BATCH) {
            prefetch(batch);
            find(batch);
        }
    });
    let elsewhere = |(key, _): &(Key, u64)| Key { zone: 1, ..*key };
    let absent: Vec<_> = packets.iter().map(elsewhere).map(|key| (key, table.hash(&key))).collect();
    report_best("find an absent key", &absent, |packets| {
        for (key, hash) in packets {
            black_box(table.find(key, *hash, NOW).is_some());
        }
    });
    let mut cursor = 0;
    report("sweep without expired connections", count, || while !table.sweep(&mut cursor, 256, NOW, &mut |_, _| {}) {});
    let floods = count.max(100_000);
    report("insert and evict in a full table (flood)", floods, || {
        for n in 0..floods {
            table.insert(conn(key(count + n)), &terms(count), &mut |_, _| {}).expect("none is assured");
        }
    });
    println!("{:42} {:8.1} bytes", "memory for each connection afterwards", table.bytes() as f64 / count as f64);
    let mut handles = Vec::new();
    table.visit(0, usize::MAX, &mut |guard| handles.push(guard.handle()));
    for n in (1..handles.len()).rev() {
        handles.swap(n, rng.below(n as u64 + 1) as usize);
    }
    let half = handles.len() / 2;
    report("remove, in random order", half as u64, || {
        for handle in &handles[..half] {
            table.remove(*handle).expect("the connection is there");
        }
    });
    for n in 0..half as u64 {
        table.insert(conn(key((1 << 31) + n)), &terms(u64::MAX), &mut |_, _| {}).expect("the keys differ");
    }
    let mut removed = 0;
    report("flush", count, || table.clear(&mut |_, _| removed += 1));
    assert_eq!((removed, table.len()), (count, 0));
}

fn main() {
    println!("a connection has {} bytes", size_of::<Conn>());
    let counts: Vec<u64> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    for count in if counts.is_empty() { vec![1000, 100_000, 1_000_000] } else { counts } {
        measure(count);
    }
}
