//! Both ends of a veth pair: frames sent at one end are received at the other, and state changes are seen.

use std::io;
use std::sync::{Arc, mpsc};

use base::{DropReason, MacAddr};
use netdev::{Netdev, Rx, Tx};
use netdev_linux::{Linux, System};
use packet::{Batch, Packet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::net::{Net, run, up};

/// Waits for the next frame.
fn next_frame(rx: &mut dyn Rx) -> Packet {
    let mut batch = Batch::new();
    while rx.recv_batch(&mut batch, 1).expect("receive") == 0 {
        let fd = rx.poll_fd().expect("descriptor");
        let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], Some(&limit)).expect("poll");
        assert_eq!(ready, 1, "no frame came");
    }
    batch.remove(0)
}

/// A frame with a local experimental EtherType (0x88b5) and ascending bytes.
fn frame(len: usize) -> Vec<u8> {
    let mut frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5][..]].concat();
    frame.extend((frame.len()..len).map(|n| n as u8));
    frame
}

fn tagged(tags: &[[u8; 4]], len: usize) -> Vec<u8> {
    let mut out = frame(len);
    for tag in tags.iter().rev() {
        out.splice(12..12, *tag);
    }
    out
}

struct Pair {
    net: Net,
    linux: Linux,
    a: Arc<System>,
    b: Arc<System>,
    tx: Box<dyn Tx>,
    rx: Box<dyn Rx>,
}

fn pair() -> Pair {
    let mut net = Net::new();
    let (a, b) = net.veth("a", "b");
    let linux = Linux::new().expect("netlink");
    let (a, b) = (linux.open_system(&a).expect("a"), linux.open_system(&b).expect("b"));
    let (tx, rx) = (a.open_tx().expect("tx"), b.open_rx(0).expect("rx"));
    Pair { net, linux, a, b, tx, rx }
}

#[test]
fn frames_pass_byte_for_byte() {
    let mut pair = pair();
    run(&format!("ip link set {} mtu 9000", pair.a.name()));
    run(&format!("ip link set {} mtu 9000", pair.b.name()));
    // Shorter and longer than a ring slot, with tags that the kernel strips on the way.
    let frames = [
        frame(14),
        frame(60),
        frame(1514),
        tagged(&[[0x81, 0, 0x20, 10]], 1514),
        tagged(&[[0x88, 0xa8, 0, 1], [0x81, 0, 0, 2]], 60),
        tagged(&[[0x81, 0, 0x0f, 0xff]], 9014),
        frame(9014),
        frame(61),
    ];
    for sent in &frames {
        let report = pair.tx.send_batch(&mut vec![Packet::from_slice(sent)]);
        assert_eq!((report.sent, report.n_dropped()), (1, 0), "{} bytes", sent.len());
        assert_eq!(next_frame(&mut *pair.rx).data(), sent);
    }
    let report = pair.tx.send_batch(&mut frames.iter().map(|f| Packet::from_slice(f)).collect());
    assert_eq!(report.sent, frames.len() as u64);
    for sent in &frames {
        assert_eq!(next_frame(&mut *pair.rx).data(), sent);
    }
    assert_eq!(pair.b.stats().rx_packets, Some(2 * frames.len() as u64));
    assert_eq!(pair.b.stats().rx_errors, Some(0));
}

#[test]
fn sent_frames_are_not_received() {
    let mut pair = pair();
    let mut own = pair.a.open_rx(0).expect("rx");
    pair.tx.send_batch(&mut vec![Packet::from_slice(&frame(60))]);
    next_frame(&mut *pair.rx);
    assert_eq!(own.recv_batch(&mut Batch::new(), 32).expect("receive"), 0);
}

#[test]
fn frames_that_cannot_be_sent_have_a_reason() {
    let mut pair = pair();
    let report = pair.tx.send_batch(&mut vec![
        Packet::from_slice(&frame(60)),
        Packet::from_slice(&frame(1515)),
        Packet::from_slice(&frame(61)),
    ]);
    assert_eq!((report.sent, &report.dropped[..]), (2, &[(DropReason::TooBig, 1)][..]));
    pair.a.set_up(false).expect("down");
    let report = pair.tx.send_batch(&mut vec![Packet::from_slice(&frame(60)); 3]);
    assert_eq!((report.sent, &report.dropped[..]), (0, &[(DropReason::PortDown, 3)][..]));
    pair.a.set_up(true).expect("up");
    // The socket still reports that the device was down, which must not cost a frame.
    assert_eq!(pair.tx.send_batch(&mut vec![Packet::from_slice(&frame(60)); 3]).sent, 3);
    run(&format!("ip link del {}", pair.a.name()));
    let report = pair.tx.send_batch(&mut vec![Packet::from_slice(&frame(60)); 3]);
    assert_eq!((report.sent, &report.dropped[..]), (0, &[(DropReason::NoPort, 3)][..]));
}

#[test]
fn drops_of_a_full_queue_are_counted() {
    let mut pair = pair();
    let n = 60_000;
    for _ in 0..n / 50 {
        let report = pair.tx.send_batch(&mut vec![Packet::from_slice(&frame(60)); 50]);
        assert_eq!(report.sent, 50);
    }
    let mut batch = Batch::new();
    while pair.rx.recv_batch(&mut batch, 32).expect("receive") > 0 {}
    assert!(batch.len() >= 2000, "{}", batch.len());
    let stats = pair.b.stats();
    assert_eq!(stats.rx_dropped, Some(n - batch.len() as u64));
    // Reading again gives the same value.
    assert_eq!(pair.b.stats().rx_dropped, stats.rx_dropped);
}

#[test]
fn state_is_set_and_seen() {
    let pair = pair();
    let (sender, heard) = mpsc::channel();
    pair.b.changes().subscribe(Arc::new(move || sender.send(()).expect("send")));
    let status = pair.b.status();
    assert!(status.admin_up && status.carrier && status.link_resets == 0);
    assert_eq!(status.details.get("driver_name").map(String::as_str), Some("veth"));
    assert_eq!((status.speed, status.duplex), (Some(10_000_000_000), Some(netdev::Duplex::Full)));
    let mac = MacAddr([2, 0, 0, 0, 0, 0x77]);
    pair.b.set_mac(mac).expect("mac");
    pair.b.set_mtu(1400).expect("mtu");
    assert_eq!((pair.b.mac(), pair.b.mtu()), (mac, Some(1400)));
    heard.recv().expect("mac heard");
    heard.recv().expect("mtu heard");
    assert!(pair.b.change_seq() >= 2);
    let error = pair.b.set_mtu(1).expect_err("too small");
    assert_eq!(error.to_string(), format!("{}: could not set MTU to 1 (Invalid argument)", pair.b.name()));
    // When the other end goes down, the carrier is lost, and only the monitor reports it.
    let before = pair.b.change_seq();
    run(&format!("ip link set {} down", pair.a.name()));
    while pair.b.change_seq() == before {
        heard.recv().expect("carrier heard");
    }
    let status = pair.b.status();
    assert!(status.admin_up && !status.carrier && status.link_resets == 1, "{status:?}");
}

#[test]
fn a_deleted_or_renamed_device_is_an_error() {
    let mut pair = pair();
    let (sender, heard) = mpsc::channel();
    pair.b.changes().subscribe(Arc::new(move || {
        let _ = sender.send(());
    }));
    run(&format!("ip link set {} down", pair.b.name()));
    run(&format!("ip link set {} name {}", pair.b.name(), pair.net.name("c")));
    while pair.b.is_present() {
        heard.recv().expect("heard");
    }
    let error = pair.rx.recv_batch(&mut Batch::new(), 1).expect_err("renamed");
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::NODEV.raw_os_error()));
    let error = pair.b.set_mtu(1400).expect_err("renamed");
    assert_eq!(error.to_string(), format!("{}: could not set MTU to 1400 (No such device)", pair.b.name()));
    assert_eq!(pair.b.status().ifindex, None);

    let mut rx = pair.a.open_rx(0).expect("rx");
    run(&format!("ip link del {}", pair.a.name()));
    let mut result = Ok(0);
    while result.is_ok() {
        assert!(pair.a.change_seq() < 100);
        result = rx.recv_batch(&mut Batch::new(), 1);
        std::thread::yield_now();
    }
    assert!(!pair.a.is_present());
    let name = pair.net.name("zz");
    let error = pair.linux.open_system(&name).expect_err("missing");
    assert_eq!(error.to_string(), format!("could not open network device {name} (No such device)"));
    assert!(pair.linux.open_system("lo").is_err(), "not an Ethernet device");
}

#[test]
fn a_device_that_is_down_does_not_keep_its_descriptor_readable() -> io::Result<()> {
    let mut pair = pair();
    run(&format!("ip link set {} down", pair.b.name()));
    let mut batch = Batch::new();
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let mut polls = 0;
    while poll(&mut [PollFd::from_borrowed_fd(pair.rx.poll_fd().expect("fd"), PollFlags::IN)], Some(&now))? > 0 {
        assert_eq!(pair.rx.recv_batch(&mut batch, 1)?, 0);
        polls += 1;
        assert!(polls < 100, "still readable");
    }
    up(pair.a.name(), pair.b.name());
    pair.tx.send_batch(&mut vec![Packet::from_slice(&frame(60))]);
    assert_eq!(next_frame(&mut *pair.rx).data(), frame(60));
    Ok(())
}

/// A UDP packet of the flow with this source port, containing `number`.
fn datagram(port: u16, number: u8) -> Vec<u8> {
    let mut frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..]].concat();
    frame.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend(port.to_be_bytes());
    frame.extend([0, 9, 0, 26, 0, 0, number]);
    frame.resize(60, 0);
    frame
}

#[test]
fn several_queues_share_flows_and_keep_their_order() {
    const FLOWS: u16 = 64;
    const FRAMES: u8 = 10;
    let mut net = Net::new();
    let (a, b) = net.veth("a", "b");
    let linux = Linux::new().expect("netlink");
    let (a, b) = (linux.open_system(&a).expect("a"), linux.open_system(&b).expect("b"));
    let options = |n: &str| [("n_rxq".to_owned(), n.to_owned())].into();
    let refused = a.set_options(&options("65")).expect_err("too many");
    assert!(refused.to_string().ends_with("option n_rxq: '65' is not a number up to 64"), "{refused}");
    a.set_options(&options("3")).expect("options");
    assert_eq!(a.n_rxq(), 3);
    let mut queues: Vec<_> = (0..3).map(|queue| a.open_rx(queue).expect("rx")).collect();
    assert!(a.open_rx(3).is_err());
    // The number of open queues is fixed.
    assert!(a.set_options(&options("3")).is_ok() && a.set_options(&options("2")).is_err());
    let (mut own, mut other) = (a.open_tx().expect("tx"), b.open_tx().expect("tx"));
    for number in 0..FRAMES {
        let packets = |port: u16| Packet::from_slice(&datagram(port, number));
        let report = other.send_batch(&mut (1000..1000 + FLOWS).map(packets).collect());
        assert_eq!(report.sent, u64::from(FLOWS));
        // Frames that the device sends are not received.
        assert_eq!(own.send_batch(&mut vec![Packet::from_slice(&datagram(7, number))]).sent, 1);
    }
    let total = usize::from(FLOWS) * usize::from(FRAMES);
    let mut received: Vec<Batch> = queues.iter().map(|_| Batch::new()).collect();
    while received.iter().map(Vec::len).sum::<usize>() < total {
        let limit = Timespec { tv_sec: 20, tv_nsec: 0 };
        let mut fds: Vec<_> = queues
            .iter()
            .map(|rx| PollFd::from_borrowed_fd(rx.poll_fd().expect("descriptor"), PollFlags::IN))
            .collect();
        assert!(poll(&mut fds, Some(&limit)).expect("poll") > 0, "frames are missing");
        drop(fds);
        for (rx, batch) in queues.iter_mut().zip(&mut received) {
            rx.recv_batch(batch, 32).expect("receive");
        }
    }
    let mut seen = std::collections::BTreeMap::new();
    for (queue, batch) in received.iter().enumerate() {
        assert!(!batch.is_empty(), "queue {queue} has no flow");
        for packet in batch {
            let data = packet.data();
            let port = u16::from_be_bytes([data[34], data[35]]);
            let (of, next) = seen.entry(port).or_insert((queue, 0));
            assert_eq!((*of, *next), (queue, data[42]), "flow {port}");
            *next += 1;
        }
    }
    assert_eq!(seen.len(), usize::from(FLOWS));
    assert_eq!(queues[0].recv_batch(&mut Batch::new(), 32).expect("receive"), 0);
}
