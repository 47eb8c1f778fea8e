//! Reports of packets to collectors, over real sockets, and the exporters' statistics in OpenFlow.

use super::*;
use crate::{BridgeSampling, ExporterSettings, IpfixSettings};
use openflow::action::{Sample, SampleDirection, SampleForm};
use openflow::ipfix::IpfixStats;
use std::net::UdpSocket;
use std::time::Duration;

/// The length of a message before the first record.
const FIRST: usize = 20;

/// A collector, and exporter settings with its address.
fn collector() -> (UdpSocket, ExporterSettings) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    let targets = [socket.local_addr().expect("bound")].into();
    (socket, ExporterSettings { targets, ..ExporterSettings::default() })
}

/// Receives messages, and returns their lengths and domains.
fn received(socket: &UdpSocket, count: usize) -> Vec<(usize, u32)> {
    let mut buffer = [0; 2048];
    let mut message = || {
        let len = socket.recv(&mut buffer).expect("a message");
        (len, u32::from_be_bytes(buffer[12..16].try_into().expect("four bytes")))
    };
    (0..count).map(|_| message()).collect()
}

pub(super) fn sample(set: u32, probability: u16) -> Action {
    Action::Sample(Box::new(Sample {
        form: SampleForm::Plain,
        probability,
        collector_set_id: set,
        obs_domain_id: 7.into(),
        obs_point_id: 9.into(),
        sampling_port: PortNo::NONE,
        direction: SampleDirection::Default,
    }))
}

pub(super) fn refused(c: &Client, body: StatsRequest) -> Option<OfpError> {
    error_of(&c.send(&Message::StatsRequest { more: false, body }))
}

fn flow_stats(c: &Client) -> Vec<IpfixStats> {
    let StatsReply::IpfixFlow(all) = c.ask(StatsRequest::IpfixFlow) else { panic!("statistics of exporters") };
    all
}

#[test]
fn sampled_flows_are_reported_to_collectors() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let c = Client::new(&br, PeerKind::Controller, Version::V13);
    for body in [StatsRequest::IpfixFlow, StatsRequest::IpfixBridge] {
        assert_eq!(refused(&c, body), Some(OfpError::NxstNotConfigured));
    }
    let (socket, exporter) = collector();
    c.flow_mod(add(in_port(1), 5, vec![sample(3, u16::MAX), sample(4, u16::MAX), output(2)]));
    // Without an exporter, packets are forwarded as usual.
    lab.send("br-1", &[frame(1, 2)]);
    br.set_ipfix(IpfixSettings { sets: [(3, exporter.clone())].into(), ..IpfixSettings::default() });
    lab.send("br-1", &[frame(1, 2), frame(3, 2)]);
    assert_eq!(lab.received("br-2").len(), 3);
    assert_eq!(received(&socket, FIRST + 2)[FIRST..].iter().map(|m| m.1).collect::<Vec<_>>(), [7, 7]);
    assert_eq!(refused(&c, StatsRequest::IpfixBridge), Some(OfpError::NxstNotConfigured));
    let [stats] = flow_stats(&c)[..] else { panic!("one exporter") };
    assert_eq!((stats.collector_set_id, stats.flows, stats.packets, stats.errors), (3, 2, 2, 0));
    // The unchanged exporter continues, and there is a new one now.
    br.set_ipfix(IpfixSettings { sets: [(3, exporter.clone()), (4, exporter)].into(), ..IpfixSettings::default() });
    lab.send("br-1", &[frame(1, 2)]);
    let messages = received(&socket, 1 + FIRST + 1);
    assert_eq!(messages.iter().filter(|m| m.0 < 200 && m.1 == 7).count(), 2);
    assert_eq!(flow_stats(&c).iter().map(|s| (s.collector_set_id, s.packets)).collect::<Vec<_>>(), [(3, 3), (4, 1)]);
    br.set_ipfix(IpfixSettings::default());
    assert_eq!(refused(&c, StatsRequest::IpfixFlow), Some(OfpError::NxstNotConfigured));
    lab.send("br-1", &[frame(1, 2)]);
    assert_eq!(lab.received("br-2").len(), 2);
}

#[test]
fn bridge_sampling_reports_all_packets_and_flushes_its_cache() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let c = Client::new(&br, PeerKind::Controller, Version::V13);
    c.flow_mod(add(in_port(1), 5, vec![output(2)]));
    let (socket, exporter) = collector();
    let exporter = ExporterSettings { active_timeout_secs: 4200, flows_max: 10, ..exporter };
    let bridge = BridgeSampling { exporter, sampling: 1, domain: 5, point: 6, ingress: true, egress: true };
    br.set_ipfix(IpfixSettings { bridge: Some(bridge), ..IpfixSettings::default() });
    lab.send("br-1", &[frame(1, 2), frame(1, 2), frame(1, 2)]);
    assert_eq!(lab.received("br-2").len(), 3);
    assert_eq!(refused(&c, StatsRequest::IpfixFlow), Some(OfpError::NxstNotConfigured));
    assert!(matches!(c.ask(StatsRequest::IpfixBridge), StatsReply::IpfixBridge(_)));
    // One flow in and one out are cached when the bridge is removed.
    lab.switch.del_bridge(br.id());
    assert_eq!(received(&socket, FIRST + 2)[FIRST..].iter().map(|m| m.1).collect::<Vec<_>>(), [5, 5]);
}
