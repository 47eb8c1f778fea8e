//! Dummy devices: injection, capture files, and sockets between them.

use super::*;
use rustix::event::{PollFd, PollFlags, poll};
use std::sync::mpsc;

fn options(pairs: &[(&str, &str)]) -> Options {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

fn args(words: &[&str]) -> Vec<String> {
    words.iter().map(|s| (*s).to_owned()).collect()
}

fn no_flow(text: &str, _len: Option<usize>) -> Result<Packet, String> {
    Err(format!("syntax error at {text}"))
}

/// Waits for one frame, without a timeout.
fn next_frame(rx: &mut dyn Rx) -> Packet {
    let mut batch = Batch::new();
    while rx.recv_batch(&mut batch, 1).expect("receive") == 0 {
        let fd = rx.poll_fd().expect("descriptor");
        poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::IN)], None).expect("poll");
    }
    batch.remove(0)
}

#[test]
fn addresses_are_sequential_and_names_unique() {
    let registry = Registry::new();
    let p0 = registry.open("p0", "dummy").expect("p0");
    let p1 = registry.open("p1", "internal").expect("p1");
    assert_eq!(p0.mac().to_string(), "aa:55:aa:55:00:00");
    assert_eq!(p1.mac().to_string(), "aa:55:aa:55:00:01");
    assert_eq!((p1.kind(), p1.mtu(), p1.status().admin_up), ("internal", Some(1500), true));
    let again = registry.open("p0", "dummy").expect_err("exists");
    assert_eq!(again.to_string(), "could not open network device p0 (File exists)");
    drop(p0);
    assert!(registry.find("p0").is_none());
    assert!(registry.open("p0", "dummy").is_ok());
}

#[test]
fn closed_devices_leave_the_registry() {
    let registry = Registry::new();
    let open = |n: usize| registry.open(&format!("p{n}"), "dummy").expect("opens");
    let names = Arc::clone(&registry.devices);
    let n_names = || names.lock().len();
    let mut devices: Vec<_> = (0..100).map(open).collect();
    assert_eq!(n_names(), 100);
    devices.truncate(10);
    assert_eq!((n_names(), registry.devices().len()), (10, 10));
    registry.open("p1", "dummy").expect_err("exists");
    devices.extend((50..60).map(open));
    drop(registry.find("p3"));
    assert_eq!((n_names(), registry.devices().len()), (20, 20));
    drop(devices);
    assert_eq!(n_names(), 0);
}

#[test]
fn receive_command() {
    let registry = Registry::new();
    let p1 = registry.open("p1", "dummy").expect("p1");
    let mut rx = p1.open_rx(0).expect("queue");
    let hex = "50540000000750540000000508004500";
    let run = |words: &[&str]| registry.command_receive(&args(words), &no_flow);
    assert_eq!(run(&["nope", hex]), Err("no such dummy netdev".to_owned()));
    assert_eq!(run(&["p1", "zzz"]), Err("syntax error at zzz".to_owned()));
    assert_eq!(run(&["p1", "5054"]), Err("syntax error at 5054".to_owned()));
    assert_eq!(run(&["p1", &hex[1..]]), Err(format!("syntax error at {}", &hex[1..])));
    for len in ["abc", "59"] {
        assert_eq!(run(&["p1", "in_port(1)", "--len", len]), Err("too small packet len".to_owned()));
    }
    assert_eq!(run(&["p1", "--qid", "1", hex]), Err("bad rx queue id.".to_owned()));
    assert_eq!(run(&["p1", "--qid", "x", hex, hex]), Ok(String::new()));
    let mut batch = Batch::new();
    assert_eq!(rx.recv_batch(&mut batch, 32).expect("receive"), 2);
    assert_eq!(batch[0].data()[..3], [0x50, 0x54, 0]);
    let stats = p1.stats();
    assert_eq!((stats.rx_packets, stats.rx_bytes, stats.rx_dropped), (Some(2), Some(32), None));
    let composed = |_: &str, len: Option<usize>| Ok(Packet::from_slice(&vec![7; len.unwrap_or(20)]));
    registry.command_receive(&args(&["p1", "in_port(1)", "--len", "60", "in_port(1)"]), &composed).expect("composed");
    assert_eq!([(); 2].map(|()| next_frame(&mut *rx).len()), [60, 20]);
}

#[test]
fn admin_state_command() {
    let registry = Registry::new();
    let p1 = registry.open("p1", "dummy").expect("p1");
    let p2 = registry.open("p2", "dummy").expect("p2");
    let run = |words: &[&str]| registry.command_set_admin_state(&args(words));
    assert_eq!(run(&["p1", "blah"]), Err("Invalid Admin State".to_owned()));
    assert_eq!(run(&["nope", "up"]), Err("Unknown Dummy Interface".to_owned()));
    assert_eq!(run(&["p1", "down"]), Ok("OK".to_owned()));
    assert_eq!((p1.status().admin_up, p1.status().carrier, p2.status().admin_up), (false, false, true));
    assert_eq!((p1.change_seq(), p2.change_seq()), (1, 0));
    assert_eq!(run(&["up"]), Ok("OK".to_owned()));
    assert!(p1.status().carrier);
}

#[test]
fn sent_frames_go_to_the_capture_file() {
    let dir = tempfile::tempdir().expect("directory");
    let path = |name: &str| dir.path().join(name).to_str().expect("text").to_owned();
    let registry = Registry::new();
    let p1 = registry.open("p1", "dummy").expect("p1");
    p1.set_options(&options(&[("tx_pcap", &path("tx")), ("rxq_pcap", &path("rx"))])).expect("options");
    let mut tx = p1.open_tx().expect("tx");
    let mut batch = vec![
        Packet::from_slice(&[1; 60]),
        Packet::from_slice(&[2; 1515]),
        Packet::from_slice(&[3; 13]),
        Packet::from_slice(&[4; 1514]),
    ];
    let report = tx.send_batch(&mut batch);
    assert!(batch.is_empty());
    assert_eq!((report.sent, report.sent_bytes), (2, 1574));
    assert_eq!(report.dropped, [(DropReason::TooBig, 1), (DropReason::Malformed, 1)]);
    assert!(p1.receive(Packet::from_slice(&[5; 60]), 0));
    // One file for both directions. Unchanged options keep their files open.
    let both = options(&[("pcap", &path("both"))]);
    p1.set_options(&both).expect("options");
    p1.set_options(&both).expect("options");
    tx.send_batch(&mut vec![Packet::from_slice(&[6; 60])]);
    assert!(p1.receive(Packet::from_slice(&[7; 60]), 0));
    let frames = |name: &str| -> Vec<u8> {
        crate::pcap::Reader::open(path(name)).expect("open").map(|r| r.expect("record").frame[0]).collect()
    };
    assert_eq!((frames("tx"), frames("rx"), frames("both")), (vec![1, 4], vec![5], vec![6, 7]));
    let unwritable = options(&[("pcap", "/nonexistent/x")]);
    p1.set_options(&unwritable).expect("only logged");
    assert_eq!(tx.send_batch(&mut vec![Packet::from_slice(&[6; 60])]).sent, 1);
}

#[test]
fn offload_work_is_done_before_frames_leave() {
    let registry = Registry::new();
    let p1 = registry.open("p1", "dummy").expect("p1");
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("tx").to_str().expect("text").to_owned();
    p1.set_options(&options(&[("tx_pcap", &path)])).expect("options");
    let mut good = Packet::from_slice(&[0; 60]);
    good.offload.checksum = packet::Checksum::Partial { start: 34, offset: 16 };
    let mut bad = good.clone();
    bad.offload.checksum = packet::Checksum::Partial { start: 60, offset: 16 };
    let report = p1.open_tx().expect("tx").send_batch(&mut vec![good, bad]);
    assert_eq!((report.sent, &report.dropped[..]), (1, &[(DropReason::OutputError, 1)][..]));
    let frames: Vec<_> = crate::pcap::Reader::open(path).expect("open").map(|r| r.expect("record").frame).collect();
    assert_eq!(frames.len(), 1);
    assert_eq!(frames[0][48..54], [0, 0, 0xff, 0xff, 0, 0]);
}

#[test]
fn a_full_queue_drops_and_counts() {
    let registry = Registry::new();
    let p1 = registry.open("p1", "dummy-pmd").expect("p1");
    p1.set_options(&options(&[("n_rxq", "2")])).expect("options");
    assert_eq!(p1.n_rxq(), 2);
    for _ in 0..QUEUE_LEN_MAX + 3 {
        assert!(p1.receive(Packet::from_slice(&[0; 60]), 1));
    }
    assert!(!p1.receive(Packet::from_slice(&[0; 60]), 2));
    assert_eq!(p1.stats().rx_dropped, Some(3));
    p1.open_rx(1).expect("queue").drain().expect("drain");
    assert!(p1.open_rx(2).is_err());
    let error = p1.set_options(&options(&[("n_rxq", "65")])).expect_err("too many");
    assert_eq!(error.to_string(), "p1: option n_rxq: \"65\" is not a number up to 64");
    for one in [options(&[("n_rxq", "0")]), options(&[])] {
        p1.set_options(&options(&[("n_rxq", "2"), ("numa_id", "1")])).expect("options");
        assert_eq!((p1.n_rxq(), p1.numa_id()), (2, Some(1)));
        p1.set_options(&one).expect("options");
        assert_eq!((p1.n_rxq(), p1.numa_id()), (1, Some(0)));
    }
    assert_eq!(registry.open("p2", "dummy").expect("p2").numa_id(), None);
}

fn exchange(passive: &str, active: &str) {
    let registry = Registry::new();
    let a = registry.open("a", "dummy").expect("a");
    let b = registry.open("b", "dummy").expect("b");
    a.set_options(&options(&[("pstream", passive)])).expect("listen");
    b.set_options(&options(&[("stream", active)])).expect("connect");
    let (mut rx_a, mut rx_b) = (a.open_rx(0).expect("rx"), b.open_rx(0).expect("rx"));
    let (mut tx_a, mut tx_b) = (a.open_tx().expect("tx"), b.open_tx().expect("tx"));
    while b.connected() != Some(true) {
        std::thread::yield_now();
    }
    tx_b.send_batch(&mut vec![Packet::from_slice(&[1; 60]), Packet::from_slice(&[2; 1514])]);
    assert_eq!(next_frame(&mut *rx_a).data(), [1; 60]);
    assert_eq!(next_frame(&mut *rx_a).data(), [2; 1514]);
    // The received frame proves that the passive side has accepted its peer.
    tx_a.send_batch(&mut vec![Packet::from_slice(&[3; 60])]);
    assert_eq!(next_frame(&mut *rx_b).data(), [3; 60]);
    let state = |words: &[&str]| registry.command_conn_state(&args(words)).expect("state");
    assert_eq!(state(&[]), "b: connected\n");
    assert_eq!((state(&["a"]), state(&["x"])), ("a: unknown\n".to_owned(), "x: unknown\n".to_owned()));
    // The active side notices that the peer is gone; the listener can be opened again at the same address.
    a.set_options(&options(&[])).expect("close");
    while b.connected() != Some(false) {
        std::thread::yield_now();
    }
    a.set_options(&options(&[("pstream", passive)])).expect("listen again");
}

#[test]
fn frames_between_dummies_over_a_unix_socket() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("s").to_str().expect("text").to_owned();
    exchange(&format!("punix:{path}"), &format!("unix:{path}"));
}

#[test]
fn frames_between_dummies_over_tcp() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").expect("bind").local_addr().expect("address").port();
    exchange(&format!("ptcp:{port}:127.0.0.1"), &format!("tcp:127.0.0.1:{port}"));
}

#[test]
fn a_short_frame_ends_the_connection() {
    use std::io::{Read, Write};
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().join("s");
    let registry = Registry::new();
    let a = registry.open("a", "dummy").expect("a");
    a.set_options(&options(&[("pstream", &format!("punix:{}", path.display()))])).expect("listen");
    let mut rx = a.open_rx(0).expect("rx");
    let mut peer = std::os::unix::net::UnixStream::connect(&path).expect("connect");
    // A frame in two pieces, then a length of 4.
    peer.write_all(&[&[0, 60][..], &[9; 20]].concat()).expect("write");
    peer.write_all(&[&[9; 40][..], &[0, 4, 1, 2, 3, 4]].concat()).expect("write");
    assert_eq!(next_frame(&mut *rx).data(), [9; 60]);
    assert_eq!(peer.read(&mut [0; 10]).unwrap_or(0), 0);
}

#[test]
fn listeners_are_called_for_changes() {
    let registry = Registry::new();
    let p1 = registry.open("p1", "dummy").expect("p1");
    let (sender, heard) = mpsc::channel();
    p1.changes().subscribe(Arc::new(move || sender.send(()).expect("send")));
    p1.set_mtu(9000).expect("mtu");
    p1.set_mtu(9000).expect("mtu");
    p1.set_mac(MacAddr([2, 0, 0, 0, 0, 9])).expect("mac");
    assert_eq!((heard.try_iter().count(), p1.change_seq(), p1.mtu()), (2, 2, Some(9000)));
}

#[test]
fn a_registry_does_not_grow_with_closed_devices() {
    let registry = Registry::new();
    let kept = registry.open("kept", "dummy").expect("opens");
    for n in 0..100 {
        drop(registry.open(&format!("p{n}"), "dummy").expect("opens"));
        drop(registry.open("again", "dummy").expect("the last one is closed"));
    }
    assert!(registry.devices.lock().len() < 6);
    assert!(registry.open("kept", "dummy").is_err());
    assert_eq!(registry.devices().len(), 1);
    drop(kept);
}
