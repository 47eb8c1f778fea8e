//! Hosts in namespaces that communicate through a forwarding loop: frames with partial checksums and merged segments
//! arrive intact.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use netdev::{Netdev, Rx, Tx, software};
use netdev_linux::Linux;
use packet::{Batch, Checksum, Packet};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};

use crate::net::{Net, run};
use crate::python::Python;

/// Statistics of a forwarding loop.
#[derive(Default, Debug)]
struct Seen {
    frames: u64,
    partial: u64,
    gso: u64,
    tagged: u64,
    len_max: usize,
    dropped: u64,
    ethertypes: BTreeSet<[u8; 2]>,
}

impl Seen {
    fn look(&mut self, packet: &Packet) {
        self.frames += 1;
        self.partial += u64::from(matches!(packet.offload.checksum, Checksum::Partial { .. }));
        self.gso += u64::from(packet.offload.gso.is_some());
        self.len_max = self.len_max.max(packet.len());
        if let Some(Ok(ethertype)) = packet.data().get(12..14).map(<[u8; 2]>::try_from) {
            self.tagged += u64::from(ethertype == [0x81, 0]);
            self.ethertypes.insert(ethertype);
        }
    }
}

/// One direction of a loop: a receive queue, an edit, and a tx queue.
struct Way {
    rx: Box<dyn Rx>,
    edit: fn(&mut Batch),
    tx: Box<dyn Tx>,
}

impl Way {
    fn new(from: &dyn Netdev, edit: fn(&mut Batch), to: &dyn Netdev) -> Self {
        Self { rx: from.open_rx(0).expect("rx"), edit, tx: to.open_tx().expect("tx") }
    }
}

/// A thread that moves frames until it is stopped.
struct Forwarder {
    stop: Arc<OwnedFd>,
    thread: JoinHandle<Seen>,
}

impl Forwarder {
    /// Moves frames between two ports.
    fn between(a: &dyn Netdev, b: &dyn Netdev) -> Self {
        Self::start(vec![Way::new(a, |_| {}, b), Way::new(b, |_| {}, a)])
    }

    fn start(mut ways: Vec<Way>) -> Self {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC).expect("eventfd"));
        let stop_event = stop.clone();
        let thread = std::thread::spawn(move || {
            let mut seen = Seen::default();
            while !forward(&mut ways, &stop_event, &mut seen) {}
            seen
        });
        Self { stop, thread }
    }

    fn stop(self) -> Seen {
        rustix::io::write(&self.stop, &1u64.to_ne_bytes()).expect("write");
        self.thread.join().expect("forwarder")
    }
}

/// Moves waiting frames, then sleeps until more arrive. Returns whether the loop is to end.
fn forward(ways: &mut [Way], stop: &OwnedFd, seen: &mut Seen) -> bool {
    let mut batch = Batch::new();
    let mut moved = 0;
    for way in &mut *ways {
        moved += way.rx.recv_batch(&mut batch, 32).expect("receive");
        for packet in &batch {
            seen.look(packet);
        }
        (way.edit)(&mut batch);
        seen.dropped += way.tx.send_batch(&mut batch).n_dropped();
    }
    if moved > 0 {
        return false;
    }
    let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
    fds.extend(ways.iter().filter_map(|way| Some(PollFd::from_borrowed_fd(way.rx.poll_fd()?, PollFlags::IN))));
    poll(&mut fds, None).expect("poll");
    !fds[0].revents().is_empty()
}

/// Receives a stream on a port and prints its length and digest.
fn server(port: u16) -> String {
    format!(
        "
import socket, hashlib
s = socket.create_server(('', {port}))
print('ready', flush=True)
c, _ = s.accept()
h, n = hashlib.sha256(), 0
while True:
    b = c.recv(1 << 20)
    if not b: break
    h.update(b); n += len(b)
print(n, h.hexdigest(), flush=True)
"
    )
}

/// Sends a stream of `len` pseudo-random bytes and prints its length and digest.
fn client(address: &str, port: u16, len: usize) -> String {
    format!(
        "
import socket, hashlib, random
data = random.Random(7).randbytes({len})
c = socket.create_connection(('{address}', {port}), 20)
c.sendall(data)
c.close()
print(len(data), hashlib.sha256(data).hexdigest(), flush=True)
"
    )
}

const STREAM_LEN: usize = 20 << 20;

fn push_tag(batch: &mut Batch) {
    for packet in batch {
        packet.insert(12, 4).copy_from_slice(&[0x81, 0, 0x20, 10]);
    }
}

fn pop_tag(batch: &mut Batch) {
    for packet in batch {
        assert_eq!(packet.data()[12..16], [0x81, 0, 0x20, 10]);
        assert!(packet.remove(12, 4));
    }
}

fn segment(batch: &mut Batch) {
    let mut finished = Batch::new();
    batch.drain(..).for_each(|packet| software::finish(packet, &mut finished).expect("marks of the kernel"));
    *batch = finished;
}

/// The path between two hosts.
#[derive(Clone, Copy, PartialEq)]
enum Between {
    /// Nothing.
    Wire,
    /// A wire with tagged frames.
    TaggedWire,
    /// Checksums and segmentation in software.
    Software,
}

/// Sends a TCP stream from one host to the other through the loop.
fn tcp_between_hosts(mtu: u32, between: Between) -> Seen {
    let mut net = Net::new();
    let (ns_a, port_a) = net.host("A", "198.18.1.1/24", mtu);
    let (ns_b, port_b) = net.host("B", "198.18.1.2/24", mtu);
    let linux = Linux::new().expect("netlink");
    let (a, b) = (linux.open_system(&port_a).expect("a"), linux.open_system(&port_b).expect("b"));
    let forwarder = match between {
        Between::Wire => Forwarder::between(&*a, &*b),
        Between::Software => Forwarder::start(vec![Way::new(&*a, segment, &*b), Way::new(&*b, segment, &*a)]),
        Between::TaggedWire => {
            let (x, y) = net.veth("x", "y");
            let (x, y) = (linux.open_system(&x).expect("x"), linux.open_system(&y).expect("y"));
            let there = [Way::new(&*a, push_tag, &*x), Way::new(&*y, pop_tag, &*b)];
            let back = [Way::new(&*b, push_tag, &*y), Way::new(&*x, pop_tag, &*a)];
            Forwarder::start(there.into_iter().chain(back).collect())
        }
    };
    let mut server = Python::start(&ns_b, &server(5000));
    assert_eq!(server.line(), "ready");
    let client = Python::start(&ns_a, &client("198.18.1.2", 5000, STREAM_LEN));
    let received = server.line();
    let sent = client.finish();
    assert_eq!((received.as_str(), server.finish().as_str()), (sent.as_str(), ""));
    forwarder.stop()
}

#[test]
fn tcp_with_checksums_and_segments_in_software() {
    let seen = tcp_between_hosts(1500, Between::Software);
    assert!(seen.gso > 0 && seen.dropped == 0, "{seen:?}");
}

#[test]
fn tcp_at_mtu_1500() {
    let seen = tcp_between_hosts(1500, Between::Wire);
    assert!(seen.gso > 0 && seen.len_max > 1514, "no merged segments: {seen:?}");
    assert!(seen.partial >= seen.gso && seen.dropped == 0, "{seen:?}");
}

#[test]
fn tcp_at_mtu_9000() {
    let seen = tcp_between_hosts(9000, Between::Wire);
    assert!(seen.gso > 0 && seen.len_max > 9014, "no merged segments: {seen:?}");
}

#[test]
fn tcp_tagged() {
    let seen = tcp_between_hosts(1500, Between::TaggedWire);
    assert!(seen.tagged > 0 && seen.gso > 0 && seen.len_max > 1518, "{seen:?}");
    assert!(seen.ethertypes.contains(&[0x81, 0]), "{seen:?}");
}

#[test]
fn udp_with_a_partial_checksum() {
    let mut net = Net::new();
    let (ns_a, port_a) = net.host("A", "198.18.1.1/24", 1500);
    let (ns_b, port_b) = net.host("B", "198.18.1.2/24", 1500);
    let linux = Linux::new().expect("netlink");
    let (a, b) = (linux.open_system(&port_a).expect("a"), linux.open_system(&port_b).expect("b"));
    let forwarder = Forwarder::between(&*a, &*b);
    let mut receiver = Python::start(
        &ns_b,
        "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(('', 5001))
print('ready', flush=True)
for _ in range(3): print(s.recv(9999).decode(), flush=True)
",
    );
    assert_eq!(receiver.line(), "ready");
    let sender = Python::start(
        &ns_a,
        "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for word in 'one', 'two', 'x' * 1400: s.sendto(word.encode(), ('198.18.1.2', 5001))
",
    );
    assert_eq!(receiver.finish(), format!("one\ntwo\n{}", "x".repeat(1400)));
    sender.finish();
    let seen = forwarder.stop();
    assert!(seen.partial >= 3 && seen.dropped == 0, "{seen:?}");
}

#[test]
fn tcp_between_a_tap_and_a_veth() {
    let mut net = Net::new();
    let (ns, port) = net.host("A", "198.18.3.2/24", 1500);
    let linux = Linux::new().expect("netlink");
    let name = net.name("t");
    let tap = linux.open_internal(&name).expect("tap");
    crate::net::no_ipv6(&name);
    let mac = base::MacAddr([2, 0, 0, 0, 1, 1]);
    tap.set_mac(mac).expect("mac");
    tap.set_mtu(1500).expect("mtu");
    tap.set_up(true).expect("up");
    run(&format!("ip address add 198.18.3.1/24 dev {name}"));
    assert_eq!((tap.mac(), tap.mtu(), tap.status().admin_up, tap.kind()), (mac, Some(1500), true, "internal"));
    let veth = linux.open_system(&port).expect("veth");
    let forwarder = Forwarder::between(&*tap, &*veth);

    let mut server = Python::start(&ns, &server(5000));
    assert_eq!(server.line(), "ready");
    let mut stream = std::net::TcpStream::connect("198.18.3.2:5000").expect("connect");
    stream.write_all(&vec![7; 5 << 20]).expect("write");
    drop(stream);
    assert!(server.finish().starts_with("5242880 "));

    // And the other way.
    let listener = std::net::TcpListener::bind("198.18.3.1:0").expect("bind");
    let port = listener.local_addr().expect("address").port();
    let client = Python::start(&ns, &client("198.18.3.1", port, 5 << 20));
    let (mut stream, _) = listener.accept().expect("accept");
    let mut received = Vec::new();
    stream.read_to_end(&mut received).expect("read");
    assert_eq!(received.len(), 5 << 20);
    client.finish();

    let seen = forwarder.stop();
    assert!(seen.gso > 0 && seen.partial > 0 && seen.len_max > 1514 && seen.dropped == 0, "{seen:?}");
    let stats = tap.stats();
    assert!(stats.rx_bytes > Some(5 << 20) && stats.tx_bytes > Some(5 << 20), "{stats:?}");
    drop(tap);
    // A child process that another test has just started has all descriptors until it runs its program.
    let is_gone = || {
        linux.link(&name).is_err() || {
            std::thread::sleep(Duration::from_millis(10));
            false
        }
    };
    assert!((0..500).any(|_| is_gone()), "the device ends with its owner");
}

#[test]
fn a_deleted_or_disabled_tap_is_reported() {
    let net = Net::new();
    let linux = Linux::new().expect("netlink");
    let name = net.name("t");
    let tap = linux.open_internal(&name).expect("tap");
    let (mut tx, mut rx) = (tap.open_tx().expect("tx"), tap.open_rx(0).expect("rx"));
    let report = tx.send_batch(&mut vec![Packet::from_slice(&[2; 60])]);
    assert_eq!(report.dropped, [(base::DropReason::PortDown, 1)]);
    // Without a link change, no further attempt is made; frames are counted all the same.
    for n in [1, 32] {
        let report = tx.send_batch(&mut vec![Packet::from_slice(&[2; 60]); n]);
        assert_eq!(report.dropped, [(base::DropReason::PortDown, n as u64)]);
    }
    tap.set_up(true).expect("up");
    let sent = (0..1000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(5));
        tx.send_batch(&mut vec![Packet::from_slice(&[2; 60])]).sent == 1
    });
    assert!(sent, "it is up");
    run(&format!("ip link del {name}"));
    assert!(rx.recv_batch(&mut Batch::new(), 1).is_err());
    let report = tx.send_batch(&mut vec![Packet::from_slice(&[2; 60])]);
    assert_eq!(report.dropped, [(base::DropReason::NoPort, 1)]);
    assert_eq!(tap.status().ifindex, None);
    assert!(!tap.is_present());
    let error = linux.open_internal("a-name-longer-than-sixteen").expect_err("too long");
    assert!(error.to_string().ends_with("(Invalid argument)"), "{error}");
}

#[test]
fn a_tap_moved_to_another_namespace_stays_the_same_port() {
    let mut net = Net::new();
    let linux = Linux::new().expect("netlink");
    let namespace = net.namespace("n");
    let name = net.name("t");
    let tap = linux.open_internal(&name).expect("tap");
    let (mut tx, mut rx) = (tap.open_tx().expect("tx"), tap.open_rx(0).expect("rx"));
    run(&format!("ip link set {name} netns {namespace} name eth0"));
    run(&format!("ip -n {namespace} link set eth0 mtu 1400 up"));
    let until = |what: &str, check: &mut dyn FnMut() -> bool| {
        let seen = (0..2000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(5));
            check()
        });
        assert!(seen, "{what}");
    };
    until("its news are heard", &mut || tap.mtu() == Some(1400));
    assert!(tap.is_present() && tap.status().admin_up && linux.link(&name).is_err());
    until("frames pass", &mut || tx.send_batch(&mut vec![Packet::from_slice(&[2; 60])]).sent == 1);
    assert!(tap.stats().tx_packets > Some(0), "counters of the other namespace");
    let error = tap.set_mtu(1300).expect_err("it is not ours to set");
    assert!(error.to_string().ends_with("(Operation not supported)"), "{error}");
    // And back, under a new index.
    run(&format!("ip -n {namespace} link set eth0 netns {} name {name}", std::process::id()));
    until("it is back", &mut || linux.link(&name).is_ok());
    run(&format!("ip link set {name} mtu 1200"));
    until("its news are heard", &mut || tap.mtu() == Some(1200));
    run(&format!("ip link set {name} netns {namespace}"));
    until("it is away", &mut || linux.link(&name).is_err());
    assert!(tap.is_present());
    drop(net);
    until("it ends with the namespace", &mut || rx.recv_batch(&mut Batch::new(), 1).is_err() && !tap.is_present());
}
