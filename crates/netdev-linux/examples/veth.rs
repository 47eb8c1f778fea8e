//! Moves frames through kernel devices as fast as possible, to measure the ports alone.
//!
//! `veth forward A B` moves frames between two devices until it is killed; `veth send A B SECONDS` sends 60-byte frames
//! out of A and counts the frames that another thread receives on B; `veth through A B C D SECONDS` also forwards from
//! B to C in between. `veth blast A BYTES SECONDS` only sends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use netdev::{Netdev, Rx, Tx};
use netdev_linux::Linux;
use packet::{Batch, Packet};
use rustix::event::{PollFd, PollFlags, poll};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let linux = Linux::new().expect("netlink");
    let open = |name: &str| linux.open_system(name).expect("device");
    match words[..] {
        ["forward", a, b] => forward(&*open(a), &*open(b), &AtomicBool::new(false)),
        ["blast", a, len, seconds] => {
            let mut frame = vec![2; len.parse().expect("bytes")];
            frame[12..14].copy_from_slice(&[0x88, 0xb5]);
            let (mut tx, mut sent) = (open(a).open_tx().expect("tx"), 0);
            let start = Instant::now();
            while start.elapsed() < Duration::from_secs(seconds.parse().expect("seconds")) {
                sent += send(&mut *tx, &mut (0..32).map(|_| netdev::pool::filled(&frame)).collect());
            }
            println!("{} ns of CPU a frame to send", cpu_ns() / sent);
        }
        ["send", a, b, seconds] => measure(&*open(a), &*open(b), seconds.parse().expect("seconds")),
        ["through", a, b, c, d, seconds] => {
            let (b, c) = (open(b), open(c));
            let stop = Arc::new(AtomicBool::new(false));
            let stop_flag = stop.clone();
            let thread = std::thread::spawn(move || forward(&*b, &*c, &stop_flag));
            measure(&*open(a), &*open(d), seconds.parse().expect("seconds"));
            stop.store(true, Ordering::Relaxed);
            thread.join().expect("forwarder");
        }
        _ => eprintln!("usage: veth forward A B | blast A BYTES SECONDS | send A B SECONDS | through A B C D SECONDS"),
    }
}

fn forward(a: &dyn Netdev, b: &dyn Netdev, stop: &AtomicBool) {
    let way = |from: &dyn Netdev, to: &dyn Netdev| (from.open_rx(0).expect("rx"), to.open_tx().expect("tx"));
    let mut ways = [way(a, b), way(b, a)];
    let mut batch = Batch::new();
    while !stop.load(Ordering::Relaxed) {
        let mut moved = 0;
        for (rx, tx) in &mut ways {
            moved += rx.recv_batch(&mut batch, 32).expect("receive");
            tx.send_batch(&mut batch);
        }
        if moved == 0 {
            wait(ways.iter().map(|(rx, _)| &**rx));
        }
    }
}

/// Sleeps until a queue has frames, at most a tenth of a second.
fn wait<'a>(queues: impl Iterator<Item = &'a dyn Rx>) {
    let mut fds: Vec<_> =
        queues.filter_map(|rx| Some(PollFd::from_borrowed_fd(rx.poll_fd()?, PollFlags::IN))).collect();
    let limit = rustix::event::Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
    let _ = poll(&mut fds, Some(&limit));
}

fn measure(from: &dyn Netdev, to: &dyn Netdev, seconds: u64) {
    let stop = Arc::new(AtomicBool::new(false));
    let received = Arc::new(AtomicU64::new(0));
    let mut rx = to.open_rx(0).expect("rx");
    let (stop_flag, count) = (stop.clone(), received.clone());
    let thread = std::thread::spawn(move || {
        let mut batch = Batch::new();
        while !stop_flag.load(Ordering::Relaxed) {
            match rx.recv_batch(&mut batch, 32).expect("receive") {
                0 => wait(std::iter::once(&*rx)),
                n => drop(count.fetch_add(n as u64, Ordering::Relaxed)),
            }
            netdev::pool::recycle_all(&mut batch);
        }
        cpu_ns()
    });
    let mut tx = from.open_tx().expect("tx");
    let mut frame = [0x55; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5]);
    let (start, mut sent, mut batch) = (Instant::now(), 0, Batch::new());
    while start.elapsed() < Duration::from_secs(seconds) {
        batch.extend((0..32).map(|_| netdev::pool::filled(&frame)));
        sent += send(&mut *tx, &mut batch);
    }
    let elapsed = start.elapsed().as_secs_f64() * 1000.0;
    stop.store(true, Ordering::Relaxed);
    let receiver_ns = thread.join().expect("receiver");
    let received = received.load(Ordering::Relaxed);
    println!("sent {:.0} kpps, received {:.0} kpps", sent as f64 / elapsed, received as f64 / elapsed);
    println!("{} ns of CPU a frame to send, {} to receive", cpu_ns() / sent.max(1), receiver_ns / received.max(1));
}

/// CPU time of this thread so far in nanoseconds, including the kernel's work on its behalf.
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn send(tx: &mut dyn Tx, batch: &mut Vec<Packet>) -> u64 {
    tx.send_batch(batch).sent
}
