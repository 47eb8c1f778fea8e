//! A receiver on a veth device that moves to a ring and back on request.

use std::sync::atomic::{AtomicBool, AtomicU32};

use netdev::{Netdev, Tx};
use packet::Packet;

use super::*;
use crate::{Linux, System};

#[path = "../../tests/kernel/net.rs"]
#[expect(dead_code, reason = "the tests of whole devices use the rest")]
mod net;

use net::{Net, run, up};

/// Two devices that carry only the test's frames, and the guard that removes them.
type Veth = (Net, [String; 2]);

fn veth() -> Veth {
    let mut net = Net::new();
    let (a, b) = net.veth("a", "b");
    for end in [&a, &b] {
        run(&format!("ip link set {end} mtu 9000"));
    }
    (net, [a, b])
}

fn open(veth: &Veth) -> (Linux, Arc<System>, Arc<System>) {
    let linux = Linux::new().expect("netlink");
    let [a, b] = veth.1.each_ref().map(|name| linux.open_system(name).expect("device"));
    (linux, a, b)
}

fn frame(number: u32, len: usize) -> Packet {
    let mut bytes = vec![0x55; len];
    bytes[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    bytes[14..18].copy_from_slice(&number.to_be_bytes());
    Packet::from_slice(&bytes)
}

fn number(packet: &Packet) -> u32 {
    u32::from_be_bytes(*packet.data()[14..].first_chunk().expect("a number"))
}

fn send(tx: &mut dyn Tx, packets: impl Iterator<Item = Packet>) -> u64 {
    tx.send_batch(&mut packets.collect()).sent
}

/// Requests a ring, or returns it.
fn toggle_ring(rx: &mut ElasticRx) {
    match std::mem::replace(&mut rx.phase, Phase::Socket) {
        Phase::Socket => rx.want(),
        Phase::Ring(ring) => {
            rx.phase = Phase::Shrinking(ring);
            rx.go(Step::Unwanted);
        }
        other => panic!("not settled: {other:?}"),
    }
}

fn is_settled(rx: &ElasticRx) -> bool {
    matches!(rx.phase, Phase::Ring(_)) || matches!(rx.phase, Phase::Socket) && rx.exchange.step() == Step::None
}

/// Receives until a change is complete; appends the frames to `out`.
fn settle(rx: &mut ElasticRx, out: &mut Batch) {
    while !is_settled(rx) {
        rx.recv_batch(out, BATCH_MAX).expect("receive");
        std::thread::yield_now();
    }
}

#[test]
fn frames_keep_their_order_through_all_changes() {
    let veth = veth();
    let (_linux, a, b) = open(&veth);
    let mut rx = b.elastic_rx().expect("rx");
    let (read, stop) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicBool::new(false)));
    let (n_read, until, mut tx) = (read.clone(), stop.clone(), a.open_tx().expect("tx"));
    let sender = std::thread::spawn(move || {
        let mut sent = 0;
        while !until.load(Ordering::Relaxed) {
            // Frames that the kernel has not delivered yet fill the sender's socket buffer, 208 KiB by default.
            if sent - n_read.load(Ordering::Relaxed) > 100 {
                std::thread::yield_now();
                continue;
            }
            // Batches of all sizes; some frames are too long for a slot.
            let n = sent % 33 + 1;
            let len = |number| if number % 50 == 7 { 6000 } else { 60 };
            let number = sent;
            assert_eq!(send(&mut *tx, (number..number + n).map(|number| frame(number, len(number)))), u64::from(n));
            sent += n;
        }
        sent
    });
    let (mut next, mut turns, mut since, mut max) = (0, 0, 0, 1);
    let mut batch = Batch::new();
    while turns < 9 {
        assert!(!sender.is_finished(), "the sender failed");
        max = max % BATCH_MAX + 1;
        rx.recv_batch(&mut batch, max).expect("receive");
        for packet in batch.drain(..) {
            assert_eq!(number(&packet), next, "in {:?}", rx.phase);
            assert!(packet.data()[18..].iter().all(|byte| *byte == 0x55));
            next += 1;
        }
        read.store(next, Ordering::Relaxed);
        if is_settled(&rx) && next > since + 3000 {
            (turns, since) = (turns + 1, next);
            toggle_ring(&mut rx);
        }
    }
    stop.store(true, Ordering::Relaxed);
    let sent = sender.join().expect("sender");
    settle(&mut rx, &mut batch);
    while rx.recv_batch(&mut batch, BATCH_MAX).expect("receive") > 0 {}
    assert_eq!(batch.iter().map(number).collect::<Vec<_>>(), (next..sent).collect::<Vec<_>>());
    assert_eq!((b.stats().rx_dropped, b.stats().rx_errors), (Some(0), Some(0)));
    tally::report!("{sent} frames in order through {turns} changes");
}

#[test]
fn overflows_of_socket_and_ring_are_counted_and_kept() {
    let veth = veth();
    let (_linux, a, b) = open(&veth);
    let (mut rx, mut tx) = (b.elastic_rx().expect("rx"), a.open_tx().expect("tx"));
    let (mut sent, mut batch) = (0, Batch::new());
    for n in [60_000, 5_000, 60_000, 5_000] {
        for _ in 0..n / 50 {
            sent += send(&mut *tx, (0..50).map(|number| frame(number, 60)));
        }
        let before = batch.len();
        // Only the ring can report its last drops, and it is about to be closed.
        toggle_ring(&mut rx);
        settle(&mut rx, &mut batch);
        while rx.recv_batch(&mut batch, BATCH_MAX).expect("receive") > 0 {}
        assert!(batch.len() - before < n, "nothing was dropped");
    }
    assert_eq!(b.stats().rx_dropped, Some(sent - batch.len() as u64));
    assert_eq!(b.stats().rx_dropped, Some(sent - batch.len() as u64));
}

#[test]
fn no_frame_is_lost_or_duplicated_after_a_device_was_down() {
    let veth = veth();
    let (_net, [above, below]) = &veth;
    run(&format!("ip link set {below} down"));
    let (_linux, a, b) = open(&veth);
    let (mut rx, mut tx) = (b.elastic_rx().expect("rx"), a.open_tx().expect("tx"));
    let mut batch = Batch::new();
    for turns in 0..4 {
        up(above, below);
        assert_eq!(send(&mut *tx, (0..5).map(|number| frame(number, 60))), 5);
        while batch.len() < 5 {
            rx.recv_batch(&mut batch, BATCH_MAX).expect("receive");
        }
        assert_eq!(batch.drain(..).map(|packet| number(&packet)).collect::<Vec<_>>(), [0, 1, 2, 3, 4], "{turns}");
        // The device may also disappear, with and without a ring.
        toggle_ring(&mut rx);
        settle(&mut rx, &mut batch);
        run(&format!("ip link set {below} down"));
        assert_eq!(rx.recv_batch(&mut batch, BATCH_MAX).expect("receive"), 0);
    }
}

#[test]
fn a_deleted_device_is_reported_in_every_phase() {
    for turns in 0..2 {
        let veth = veth();
        let (_linux, _a, b) = open(&veth);
        let mut rx = b.elastic_rx().expect("rx");
        for _ in 0..turns {
            toggle_ring(&mut rx);
            settle(&mut rx, &mut Batch::new());
        }
        drop(veth);
        let error = loop {
            if let Err(error) = rx.recv_batch(&mut Batch::new(), BATCH_MAX) {
                break error;
            }
        };
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }
}
