//! sFlow and NetFlow over real sockets, with the time of a stopped clock.

use super::*;
use crate::{Extent, NetflowSettings, SflowSettings};
use std::net::UdpSocket;
use std::time::Duration;

fn collector() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    socket
}

fn received(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 2048];
    let len = socket.recv(&mut buffer).expect("a datagram");
    buffer[..len].to_vec()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// A UDP packet over IPv4.
fn udp(src_port: u16) -> Vec<u8> {
    let mut frame = vec![
        2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
    ];
    frame.extend(src_port.to_be_bytes());
    frame.extend([0, 9, 0, 26, 0, 0]);
    frame.resize(60, 0);
    frame
}

fn sflow(socket: &UdpSocket, sampling: u32) -> SflowSettings {
    SflowSettings {
        targets: [socket.local_addr().expect("bound")].into(),
        agent: [10, 0, 0, 9].into(),
        sampling,
        header_bytes: 16,
        polling_secs: 0,
        explicit_drops: false,
    }
}

fn netflow(socket: &UdpSocket, active_timeout_secs: Option<u32>) -> NetflowSettings {
    NetflowSettings {
        targets: [socket.local_addr().expect("bound")].into(),
        engine_type: Some(1),
        engine_id: None,
        active_timeout_secs,
        add_id_to_interface: false,
    }
}

#[test]
fn sampled_packets_are_sent_once_a_second() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let c = Client::new(&br, PeerKind::Controller, Version::V13);
    c.flow_mod(add(in_port(1), 5, vec![output(2)]));
    let socket = collector();
    br.set_sflow(Some(sflow(&socket, 1)));
    lab.send("br-1", &[udp(1), udp(2), udp(2)]);
    assert_eq!(lab.received("br-2").len(), 3);
    while br.sflow_stats().is_some_and(|(_, [samples, _])| samples < 3) {
        std::thread::yield_now();
    }
    lab.clock.warp(1000);
    let datagram = received(&socket);
    // Version, agent, sub-agent, sequence number, time, samples.
    let head: Vec<u32> = (0..7).map(|at| word(&datagram, 4 * at)).collect();
    assert_eq!(head, [5, 1, 0x0a00_0009, 0, 1, 1000, 3]);
    let (counters, samples) = br.sflow_stats().expect("an agent");
    assert_eq!((counters.sent, counters.send_errors, counters.lost, samples), (1, 0, 0, [3, 0]));
    // A second bridge has another number; one without an agent gives its number back.
    let other = lab.bridge("other", 1);
    other.set_sflow(Some(sflow(&socket, 1)));
    assert_eq!(other.sflow.load().as_ref().map(|agent| agent.sub_agent()), Some(1));
    br.set_sflow(None);
    assert!(br.sflow_stats().is_none());
    br.set_sflow(Some(sflow(&socket, 0)));
    assert_eq!(br.sflow.load().as_ref().map(|agent| agent.sub_agent()), Some(0));
    // Nothing is sampled.
    lab.send("br-1", &[udp(1)]);
    assert_eq!(lab.received("br-2").len(), 1);
    assert_eq!(br.sflow_stats().map(|(_, samples)| samples), Some([0, 0]));
}

/// Packets, bytes and first port of the records in packets, and their sequence numbers.
fn records(datagrams: &[Vec<u8>]) -> Vec<(u32, u32, u16, u16)> {
    let mut all = Vec::new();
    for datagram in datagrams {
        assert_eq!(word(datagram, 16) as usize, all.len());
        assert_eq!(datagram[20], 1);
        for record in datagram[24..].chunks(48) {
            let port = |at: usize| u16::from_be_bytes([record[at], record[at + 1]]);
            all.push((word(record, 16), word(record, 20), port(14), port(32)));
        }
    }
    all
}

#[test]
fn each_packet_counts_once_for_netflow() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    let c = Client::new(&br, PeerKind::Controller, Version::V13);
    c.flow_mod(add(in_port(1), 5, vec![output(2)]));
    let socket = collector();
    br.set_netflow(Some(netflow(&socket, None)));
    lab.send("br-1", &[udp(1), udp(1), udp(2)]);
    lab.send("br-1", &[udp(1), udp(1)]);
    lab.switch.pass(Extent::Round);
    lab.send("br-1", &[udp(1)]);
    // The output changes: what was counted before leaves by the old one.
    c.flow_mod(add(in_port(1), 5, vec![output(3)]));
    lab.send("br-1", &[udp(1), udp(2)]);
    // Its statistics are pushed with its end.
    lab.clock.warp(20_000);
    lab.switch.pass(Extent::Round);
    let mut found = Vec::new();
    while records(&found).len() < 4 {
        found.push(received(&socket));
    }
    let mut found = records(&found);
    found.sort_unstable_by_key(|(_, _, output, port)| (*port, *output));
    assert_eq!(found, [(5, 300, 2, 1), (1, 60, 3, 1), (1, 60, 2, 2), (1, 60, 3, 2)]);
    let (_, stats) = br.netflow_stats().expect("an exporter");
    assert_eq!((stats.flows, stats.records, stats.evicted), (0, 4, 0));
}

#[test]
fn a_removed_exporter_exports_what_it_has() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let socket = collector();
    br.set_netflow(Some(netflow(&socket, Some(5))));
    lab.send("br-1", &[udp(1)]);
    // Changed settings keep the flows.
    br.set_netflow(Some(netflow(&socket, Some(7))));
    br.set_netflow(None);
    assert_eq!(records(&[received(&socket)]), [(1, 60, 65533, 1)]);
    lab.send("br-1", &[udp(1)]);
    assert!(br.netflow_stats().is_none());
}
