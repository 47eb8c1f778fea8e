//! Protocols on ports: punted frames, blocked ports, and the dependencies of translations.

use super::*;
use base::rng::Rng;
use base::{BridgePort, DropReason};
use dpif::Punt;
use protocols::{Accepts, PortState, Protocol};
use std::collections::{BTreeMap, BTreeSet};

/// A protocol that decides about ports.
const DECIDING: Protocol = Protocol::new(15).unwrap();
const ALL: PortState = PortState { learning: true, forwarding: true, live: true };
const LEARNING: PortState = PortState { forwarding: false, ..ALL };
const BLOCKED: PortState = PortState { learning: false, ..LEARNING };

/// Enables the protocol on some ports of both bridges.
pub(super) fn enable(rng: &mut Rng, net: &Network) {
    net.overlay
        .enable(DECIDING, &all_ports(net).map(|port| (port, Accepts::ALL)).filter(|_| rng.below(2) == 0).collect());
}

/// The ports of all bridges, in a fixed order: devices, tunnels and patch ports.
fn all_ports(net: &Network) -> impl Iterator<Item = BridgePort> {
    let bridges: BTreeMap<_, _> = net.bridges.iter().collect();
    let of = |(id, bridge): (&BridgeId, &Arc<Bridge>)| -> Vec<BridgePort> {
        let ports: BTreeSet<PortNo> = bridge.ports.keys().copied().filter(|no| *no != PortNo::LOCAL).collect();
        ports.into_iter().map(|port| BridgePort { bridge: *id, port }).collect()
    };
    bridges.into_iter().flat_map(of).collect::<Vec<_>>().into_iter()
}

/// Makes the protocol decide at random about the ports that `selected` accepts, where it is enabled.
pub(super) fn decide(rng: &mut Rng, net: &Network, selected: impl Fn(BridgePort) -> bool) {
    let ports = all_ports(net);
    let mut flag = || rng.below(3) > 0;
    let states: Vec<_> = ports
        .filter(|port| selected(*port))
        .map(|port| (port, PortState { learning: flag(), forwarding: flag(), live: flag() }))
        .collect();
    net.overlay.set_state(DECIDING, &states);
}

/// A port of the first bridge, which has the number of its device; those of the second are past ten.
fn at(no: u32) -> BridgePort {
    BridgePort { bridge: u32::from(no > 10), port: PortNo(no) }
}

fn on(ports: &[u32]) -> BTreeMap<BridgePort, Accepts> {
    ports.iter().map(|no| (at(*no), Accepts::ALL)).collect()
}

fn set(ports: &[u32]) -> BTreeSet<BridgePort> {
    ports.iter().map(|no| at(*no)).collect()
}

fn punt(protocol: Protocol, no: u32) -> DpAction {
    DpAction::Punt(Punt { protocol, port: at(no) })
}

/// A frame of this type that came in on a datapath port.
fn frame(port: u32, eth_type: u16) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(port));
    key.set(Field::EthType, eth_type.into());
    key.set(Field::EthDst, 0x0180_c200_000e);
    key.set(Field::EthSrc, 0x0200_0000_0077);
    key
}

fn everywhere() -> Network {
    network(&[(0, Match::ANY, 1, vec![output(PortNo::ALL)])])
}

fn states(verdict: &Verdict) -> BTreeSet<BridgePort> {
    let port = |d: &Dependency| if let Dependency::PortState(port) = d { Some(*port) } else { None };
    verdict.dependencies.iter().filter_map(port).collect()
}

#[test]
fn a_frame_of_an_enabled_protocol_goes_to_it_and_nowhere_else() {
    let net = observed(everywhere(), Ipfix { ingress: Some(u32::MAX), ..Ipfix::default() });
    let normal = translate(&net, &frame(1, 0x88cc), false);
    assert!(normal.actions.contains(&DpAction::Output(DpPort(2))));
    net.overlay.enable(Protocol::LLDP, &on(&[1]));
    let punted = translate(&net, &frame(1, 0x88cc), true);
    // The frame is neither sampled nor looked up, and only the port and the type are read.
    assert_eq!((&punted.actions[..], punted.effects.len()), (&[punt(Protocol::LLDP, 1)][..], 0));
    assert_eq!(punted.dependencies, [Dependency::Bridge(0)]);
    let mut mask = flow::FlowKey::mask_of(Field::EthType);
    mask.0[layout::PORTS] = u64::MAX;
    assert!(punted.mask().0 == mask.0, "{:?}", punted.mask());
    // Other types, and other ports, are not punted.
    for key in [frame(1, 0x0806), frame(2, 0x88cc)] {
        assert!(!translate(&net, &key, false).actions.contains(&punt(Protocol::LLDP, 1)));
    }
    // A port that receives nothing else punts too.
    let mut net = net;
    let bridge = Arc::get_mut(net.bridges.get_mut(&0).unwrap()).unwrap();
    let mut port = bridge.ports[&PortNo(1)].clone();
    port.config.no_recv = true;
    bridge.ports.insert(PortNo(1), port);
    assert_eq!(translate(&net, &frame(1, 0x88cc), false).actions, [punt(Protocol::LLDP, 1)]);
}

#[test]
fn a_packet_out_is_not_punted() {
    let net = everywhere();
    net.overlay.enable(Protocol::LLDP, &on(&[1]));
    let mut key = frame(1, 0x88cc);
    key.set_in_port(PortNo(1));
    let verdict = translate_from(&net, &net.bridges[&0], &key, Start::Actions(&[output(PortNo(2))]), false);
    assert_eq!(verdict.actions, [DpAction::Output(DpPort(2))]);
}

#[test]
fn ports_with_lldp_share_translations_with_others() {
    let (plain, with) = (everywhere(), everywhere());
    with.overlay.enable(Protocol::LLDP, &on(&[1, 2, 4, 11]));
    for port in [1, 2, 4] {
        let [plain, with] = [&plain, &with].map(|net| translate(net, &frame(port, 0x0800), false));
        assert_eq!((&plain.reads, &plain.actions), (&with.reads, &with.actions));
        assert_eq!(states(&with), set(&[]));
    }
}

#[test]
fn a_translation_depends_on_the_ports_it_asks_about() {
    let net = everywhere();
    net.overlay.enable(DECIDING, &on(&[2, 4, 12]));
    // The translation depends on the ports of the flood, including those behind the patch port, if the protocol is enabled
    // there.
    assert_eq!(states(&translate(&net, &frame(1, 0x0800), false)), set(&[2, 4]));
    let one = network(&[(0, Match::ANY, 1, vec![output(PortNo(2))])]);
    one.overlay.enable(DECIDING, &on(&[2, 4, 12]));
    assert_eq!(states(&translate(&one, &frame(1, 0x0800), false)), set(&[2]));
    // The state of the ingress port counts too.
    assert_eq!(states(&translate(&one, &frame(4, 0x0800), false)), set(&[2, 4]));
}

#[test]
fn a_port_that_does_not_forward_sends_nothing() {
    let net = everywhere();
    net.overlay.enable(DECIDING, &on(&[2]));
    net.overlay.set_state(DECIDING, &[(at(2), LEARNING)]);
    let sent = translate(&net, &frame(1, 0x0800), false).actions;
    assert!(!sent.contains(&DpAction::Output(DpPort(2))) && sent.contains(&DpAction::Output(DpPort(4))));
    let one = network(&[(0, Match::ANY, 1, vec![output(PortNo(2))])]);
    one.overlay.enable(DECIDING, &on(&[2]));
    one.overlay.set_state(DECIDING, &[(at(2), BLOCKED)]);
    assert_eq!(translate(&one, &frame(1, 0x0800), false).drop, Some(DropReason::PortBlocked));
}

#[test]
fn a_port_receives_what_its_state_allows() {
    let net = network(&[(0, Match::ANY, 1, vec![output(PortNo::NORMAL)])]);
    net.overlay.enable(DECIDING, &on(&[1]));
    let key = {
        let mut key = frame(1, 0x0800);
        key.set(Field::EthDst, 0x0200_0000_0099);
        key
    };
    let outcome = |state| {
        net.overlay.set_state(DECIDING, &[(at(1), state)]);
        let verdict = translate(&net, &key, false);
        let learns = verdict.effects.iter().any(|e| matches!(e, Effect::LearnMac { bridge: 0, .. }));
        assert_eq!(states(&verdict), set(&[1]));
        (verdict.actions.is_empty(), learns, verdict.drop)
    };
    assert_eq!(outcome(ALL), (false, true, None));
    assert_eq!(outcome(LEARNING), (true, true, Some(DropReason::PortBlocked)));
    assert_eq!(outcome(BLOCKED), (true, false, Some(DropReason::PortBlocked)));
    assert_eq!(outcome(PortState { learning: false, ..ALL }), (false, false, None));
}

#[test]
fn a_group_watches_what_protocols_say() {
    let kind = openflow::GroupKind::FastFailover;
    let bucket =
        |port| openflow::Bucket { watch_port: port, actions: [output(port)].into(), ..openflow::Bucket::new(kind) };
    let group = Group {
        id: 1,
        kind,
        buckets: [PortNo(2), PortNo(4)].map(|port| GroupBucket::new(bucket(port))).into(),
        properties: openflow::group::GroupProperties::default(),
        created: Millis(0),
        counters: Arc::default(),
        spread: crate::groups::Spread::default(),
    };
    let net = network_with(&[(0, Match::ANY, 1, vec![Action::Group(1)])], vec![group], &[]);
    net.overlay.enable(DECIDING, &on(&[2, 4]));
    let sent = |live| {
        net.overlay.set_state(DECIDING, &[(at(2), PortState { live, ..ALL })]);
        let verdict = translate(&net, &frame(1, 0x0800), false);
        assert!(states(&verdict).contains(&at(2)));
        verdict.actions
    };
    assert_eq!(sent(true), [DpAction::Output(DpPort(2))]);
    assert_eq!(sent(false), [DpAction::Output(DpPort(4))]);
}

#[test]
fn protocols_receive_the_frames_that_they_accept() {
    let to = |last: u8| Some(MacAddr([1, 0x80, 0xc2, 0, 0, last]));
    let cases = [
        (Protocol::CFM, 0x8902, 0x0180_c200_0030, Accepts { destination: to(0x30), ..Accepts::ALL }),
        (Protocol::LACP, 0x8809, 0x0180_c200_0002, Accepts::ALL),
        (Protocol::STP, flow::extract::DL_TYPE_NONE, 0x0180_c200_0000, Accepts::ALL),
    ];
    for (protocol, eth_type, dst, accepts) in cases {
        let net = everywhere();
        net.overlay.enable(protocol, &[(at(1), accepts)].into());
        let mut key = frame(1, eth_type);
        key.set(Field::EthDst, dst);
        assert_eq!(translate(&net, &key, false).actions, [punt(protocol, 1)]);
        // Of another type, on another port.
        let others = [frame(1, 0x9000), frame(2, eth_type)];
        assert!(others.iter().all(|key| !translate(&net, key, false).actions.contains(&punt(protocol, 1))));
        if protocol != Protocol::LACP {
            key.set(Field::EthDst, dst + 1);
            assert!(!translate(&net, &key, false).actions.contains(&punt(protocol, 1)));
        }
    }
}

#[test]
fn bfd_is_recognised_by_its_port_and_where_asked_for_by_the_tunnel_key() {
    let net = everywhere();
    net.overlay.enable(Protocol::BFD, &[(at(1), Accepts { without_key: true, ..Accepts::ALL })].into());
    let mut key = frame(1, 0x0800);
    key.set(Field::IpProto, 17);
    key.set(Field::UdpDst, 3784);
    let actions = |key: &FlowKey| translate(&net, key, false).actions;
    assert_eq!(actions(&key), [punt(Protocol::BFD, 1)]);
    for (field, value) in [(Field::UdpDst, 3785), (Field::TunId, 5), (Field::IpProto, 6)] {
        let mut other = key.clone();
        other.set(field, value);
        assert!(!actions(&other).contains(&punt(Protocol::BFD, 1)), "{field:?}");
    }
    // The destination counts where it was configured, and only then.
    assert_eq!(translate(&net, &key, false).mask().get(Field::Ipv4Dst), 0);
    let ip_destination = Some(std::net::Ipv4Addr::new(1, 2, 3, 4));
    net.overlay.enable(Protocol::BFD, &[(at(1), Accepts { ip_destination, ..Accepts::ALL })].into());
    assert!(!translate(&net, &key, false).actions.contains(&punt(Protocol::BFD, 1)));
    let mut to = key.clone();
    to.set(Field::Ipv4Dst, 0x0102_0304);
    assert_eq!(translate(&net, &to, false).actions, [punt(Protocol::BFD, 1)]);
    // Other IP packets read no more than they have to.
    let mut tcp = frame(1, 0x0800);
    tcp.set(Field::IpProto, 6);
    let mask = translate(&net, &tcp, false).mask();
    assert_eq!((mask.get(Field::UdpDst), mask.get(Field::TunId)), (0, 0));
}

#[test]
fn protocols_run_behind_patch_ports() {
    let net = everywhere();
    let (near, patch) = net.bridges[&0].ports.iter().find(|(_, port)| matches!(port.out, PortOut::Patch(..))).unwrap();
    let PortOut::Patch(bridge, port) = patch.out else { unreachable!() };
    let peer = BridgePort { bridge, port };
    net.overlay.enable(Protocol::LLDP, &[(peer, Accepts::ALL)].into());
    let at_peer = DpAction::Punt(Punt { protocol: Protocol::LLDP, port: peer });
    assert!(translate(&net, &frame(1, 0x88cc), false).actions.contains(&at_peer));
    // The frame of a protocol leaves through the near side although a protocol blocks it there.
    net.overlay.enable(DECIDING, &[(BridgePort { bridge: 0, port: *near }, Accepts::ALL)].into());
    net.overlay.set_state(DECIDING, &[(BridgePort { bridge: 0, port: *near }, BLOCKED)]);
    assert!(!translate(&net, &frame(1, 0x88cc), false).actions.contains(&at_peer));
    let mut key = frame(1, 0x88cc);
    key.set_in_port(PortNo::NONE);
    let sent = translate_from(&net, &net.bridges[&0], &key, Start::Protocol(*near), false);
    assert_eq!(sent.actions, std::slice::from_ref(&at_peer));
    // A far side that only learns forwards nothing.
    net.overlay.enable(DECIDING, &[(peer, Accepts::ALL)].into());
    net.overlay.set_state(DECIDING, &[(peer, LEARNING)]);
    let verdict = translate(&net, &frame(1, 0x0800), false);
    assert!(states(&verdict).contains(&peer));
    let behind: Vec<_> = net.bridges[&bridge].ports.values().map(|port| port.out).collect();
    assert!(verdict.actions.iter().all(|action| match action {
        DpAction::Output(device) => !behind.contains(&PortOut::Device(*device)),
        _ => true,
    }));
}
