//! One bridge with RSTP.

use super::*;

fn rapid(bpdu: &Bpdu) -> Config {
    match bpdu {
        Bpdu::Rapid(config) => *config,
        other => panic!("{other:?} is no RST BPDU"),
    }
}

/// A BPDU of a designated port of the root.
fn designated(flags: Flags) -> Bpdu {
    Bpdu::Rapid(of_root(1, 0x8001, flags.with_role(Role::Designated)))
}

#[test]
fn a_port_without_a_neighbour_becomes_an_edge_port() {
    let mut bench = Bench::new(bridge(rstp(5), 1));
    let first = sent(&bench.pass(0), 1);
    assert_eq!(first.len(), 1);
    assert!(rapid(&first[0]).flags.contains(Flags::PROPOSAL));
    bench.pass(2999);
    assert_eq!(bench.state(1), State::Discarding);
    bench.pass(1);
    assert_eq!((bench.state(1), bench.role(1)), (State::Forwarding, Role::Designated));
}

#[test]
fn a_port_with_admin_edge_forwards_at_once() {
    let mut settings = bridge(rstp(5), 2);
    settings.ports.get_mut(&PortNo(1)).unwrap().admin_edge = true;
    let mut bench = Bench::new(settings);
    let effects = bench.poll();
    assert_eq!(bench.state(1), State::Forwarding);
    assert!(!has_flushes(&effects));
    // A bridge is there after all.
    bench.input(1, designated(Flags::PROPOSAL));
    assert_eq!(bench.role(1), Role::Root);
}

#[test]
fn without_auto_edge_a_port_waits_for_two_forward_delays() {
    let mut settings = bridge(rstp(5), 1);
    settings.ports.get_mut(&PortNo(1)).unwrap().auto_edge = false;
    let mut bench = Bench::new(settings);
    bench.poll();
    // It sends RST BPDUs, so that the delay from learning to forwarding is the hello time (17.20.6).
    bench.pass(20_000);
    assert_eq!(bench.state(1), State::Learning);
    bench.pass(2000);
    assert_eq!(bench.state(1), State::Forwarding);
}

#[test]
fn a_proposal_is_agreed_to_after_the_other_ports_discard() {
    let mut bench = Bench::new(bridge(rstp(5), 2));
    // Port 2 has a bridge behind it that agrees.
    bench.input(1, designated(Flags::default()));
    bench.input(2, Bpdu::Rapid(inferior_to_root(Flags::AGREEMENT)));
    bench.pass(5000);
    assert_eq!((bench.role(1), bench.state(2)), (Role::Root, State::Forwarding));
    // The path to the root becomes worse, so that the agreement is no longer valid.
    let mut worse = of_root(1, 0x8001, Flags::PROPOSAL.with_role(Role::Designated));
    worse.vector.cost = 5000;
    let effects = bench.input(1, Bpdu::Rapid(worse));
    let discards = Effect::State { port: port(2), state: State::Discarding };
    let discarded = effects.iter().position(|effect| *effect == discards).unwrap();
    let is_agreement = |effect: &Effect| match effect {
        Effect::Send { port: by, frame } if *by == port(1) => {
            rapid(&Bpdu::parse(frame).unwrap()).flags.contains(Flags::AGREEMENT)
        }
        _ => false,
    };
    let agreed = effects.iter().position(is_agreement).unwrap();
    assert!(discarded < agreed);
    assert_eq!((bench.role(1), bench.state(1)), (Role::Root, State::Forwarding));
    assert!(rapid(&sent(&effects, 2)[0]).flags.contains(Flags::PROPOSAL), "it proposes in turn");
    // The bridge behind port 2 agrees.
    let mut agreement = inferior_to_root(Flags::AGREEMENT);
    agreement.vector.cost = 9000;
    bench.input(2, Bpdu::Rapid(agreement));
    assert_eq!(bench.state(2), State::Forwarding);
}

/// A BPDU of the root port of a bridge behind the bridge 5, before and after that one has heard of the root 1.
fn inferior(flags: Flags) -> Config {
    let mut config = of_root(1, 0x8001, flags.with_role(Role::Root));
    config.vector = Vector {
        root: BridgeId::new(0x8000, MacAddr::from_u64(5)),
        cost: 2000,
        bridge: BridgeId::new(0x8000, MacAddr::from_u64(7)),
        port: PortId(0x8001),
    };
    config
}

fn inferior_to_root(flags: Flags) -> Config {
    let mut config = inferior(flags);
    config.vector.root = BridgeId::new(0, MacAddr::from_u64(1));
    config.vector.cost = 4000;
    config
}

#[test]
fn an_agreement_counts_only_on_a_point_to_point_link() {
    let mut settings = bridge(rstp(5), 1);
    settings.ports.get_mut(&PortNo(1)).unwrap().point_to_point = false;
    let mut bench = Bench::new(settings);
    bench.pass(1000);
    bench.input(1, Bpdu::Rapid(inferior(Flags::AGREEMENT)));
    bench.pass(1000);
    assert_eq!(bench.state(1), State::Discarding);
}

#[test]
fn an_alternate_port_replaces_the_root_port_at_once_and_takes_its_addresses() {
    let mut bench = Bench::new(bridge(rstp(5), 3));
    bench.input(1, designated(Flags::default()));
    let mut second = of_root(1, 0x8002, Flags::default().with_role(Role::Designated));
    second.vector.bridge = BridgeId::new(0x4000, MacAddr::from_u64(2));
    second.vector.cost = 100;
    bench.input(2, Bpdu::Rapid(second));
    for _ in 0..10 {
        bench.pass(2000);
        bench.input(1, designated(Flags::default()));
        bench.input(2, Bpdu::Rapid(second));
    }
    assert_eq!((bench.role(1), bench.role(2)), (Role::Root, Role::Alternate));
    assert_eq!((bench.state(1), bench.state(2)), (State::Forwarding, State::Discarding));
    let effects = bench.configure(|bridge| bridge.ports.get_mut(&PortNo(1)).unwrap().is_up = false);
    assert_eq!((bench.role(2), bench.state(2)), (Role::Root, State::Forwarding));
    let moved = effects.iter().position(|e| *e == Effect::Move { from: port(1), to: port(2) }).unwrap();
    let flushed = effects.iter().position(|e| *e == Effect::Flush(port(1))).unwrap();
    assert!(moved < flushed);
    assert!(!effects.contains(&Effect::Flush(port(2))));
}

#[test]
fn information_expires_after_three_hello_times() {
    let mut bench = Bench::new(bridge(rstp(5), 1));
    bench.input(1, designated(Flags::default()));
    bench.pass(5999);
    assert_eq!(bench.role(1), Role::Root);
    bench.pass(1);
    assert_eq!(bench.role(1), Role::Designated);
}

#[test]
fn a_neighbour_with_stp_gets_configuration_bpdus_until_the_migration_is_tested() {
    let mut bench = Bench::new(bridge(rstp(5), 1));
    bench.pass(4000);
    let mut worse = of_root(9, 0x8001, Flags::default());
    worse.vector.root = BridgeId::new(0x9000, MacAddr::from_u64(9));
    worse.vector.bridge = worse.vector.root;
    let hear = |bench: &mut Bench| [bench.input(1, Bpdu::Config(worse)), bench.pass(2000)].concat();
    for _ in 0..4 {
        hear(&mut bench);
    }
    let effects = hear(&mut bench);
    assert!(sent(&effects, 1).iter().all(|bpdu| matches!(bpdu, Bpdu::Config(_))), "{effects:?}");
    let effects = bench.configure(|bridge| bridge.ports.get_mut(&PortNo(1)).unwrap().mcheck = true);
    let effects = [effects, bench.pass(2500)].concat();
    assert!(sent(&effects, 1).iter().all(|bpdu| matches!(bpdu, Bpdu::Rapid(_))), "{effects:?}");
    assert!(!sent(&effects, 1).is_empty());
}

#[test]
fn version_0_sends_the_bpdus_of_stp_and_is_not_rapid() {
    let Flavour::Rstp(parameters) = rstp(5) else { panic!() };
    let parameters = RstpSettings { version: crate::settings::Version::StpCompatible, ..parameters };
    let mut bench = Bench::new(bridge(Flavour::Rstp(parameters), 1));
    let effects = bench.pass(29_000);
    assert!(sent(&effects, 1).iter().all(|bpdu| matches!(bpdu, Bpdu::Config(_))));
    assert_eq!(bench.state(1), State::Learning);
    // MaxAge, which a disabled port waits for, and the forward delay.
    bench.pass(6000);
    assert_eq!(bench.state(1), State::Forwarding);
}

#[test]
fn a_port_sends_no_more_bpdus_than_the_transmit_hold_count() {
    let mut bench = Bench::new(bridge(rstp(5), 1));
    let mut count = 0;
    for n in 0..1000u64 {
        bench.now = Millis(n);
        let flags = if n % 2 == 0 { Flags::PROPOSAL } else { Flags::default() };
        let mut config = of_root(1, 0x8001, flags.with_role(Role::Designated));
        config.vector.cost = n as u32 % 7;
        count += sent(&bench.input(1, Bpdu::Rapid(config)), 1).len();
    }
    assert!(count <= 7, "{count}");
}

#[test]
fn a_topology_change_flushes_the_other_ports() {
    let mut bench = Bench::new(bridge(rstp(5), 3));
    // Port 3 stays an edge port.
    bench.input(1, designated(Flags::default()));
    bench.input(2, Bpdu::Rapid(inferior_to_root(Flags::AGREEMENT)));
    for _ in 0..6 {
        bench.pass(2000);
        bench.input(1, designated(Flags::default()));
        bench.input(2, Bpdu::Rapid(inferior_to_root(Flags::AGREEMENT)));
    }
    assert_eq!([1, 2, 3].map(|n| bench.state(n)), [State::Forwarding; 3]);
    let effects = bench.input(1, designated(Flags::TOPOLOGY_CHANGE));
    assert!(effects.contains(&Effect::Flush(port(2))));
    assert!(!effects.contains(&Effect::Flush(port(1))) && !effects.contains(&Effect::Flush(port(3))));
    let relayed = sent(&effects, 2);
    assert!(rapid(&relayed[0]).flags.contains(Flags::TOPOLOGY_CHANGE));
    assert!(bench.machine.notify_topology_change(BRIDGE, bench.now));
    assert!(has_flushes(&bench.poll()));
}

#[test]
fn a_dispute_makes_a_designated_port_discard() {
    let mut bench = Bench::new(bridge(rstp(5), 1));
    bench.input(1, Bpdu::Rapid(inferior(Flags::AGREEMENT)));
    bench.pass(1000);
    assert_eq!(bench.state(1), State::Forwarding);
    // The neighbour does not hear this bridge, and believes that it is designated itself.
    let mut config = inferior(Flags::default());
    config.flags = Flags(Flags::LEARNING.0 | Flags::FORWARDING.0).with_role(Role::Designated);
    config.vector.root = BridgeId::new(0x8000, MacAddr::from_u64(7));
    let effects = bench.input(1, Bpdu::Rapid(config));
    assert!(effects.contains(&Effect::State { port: port(1), state: State::Discarding }));
}

#[test]
fn invalid_parameters_keep_the_current_ones() {
    let mut bench = Bench::new(bridge(rstp(5), 1));
    let mut times = |max_age_s, forward_delay_s| {
        bench.configure(|bridge| {
            let Flavour::Rstp(parameters) = &mut bridge.flavour else { panic!() };
            (parameters.max_age_s, parameters.forward_delay_s) = (max_age_s, forward_delay_s);
        });
        let times = bench.machine.status()[0].own_times;
        (times.max_age / 256, times.forward_delay / 256)
    };
    assert_eq!(times(5, 15), (20, 15));
    assert_eq!(times(41, 15), (20, 15));
    assert_eq!(times(40, 4), (20, 15));
    assert_eq!(times(6, 30), (6, 30));
    assert_eq!(times(6, 31), (6, 30));
    assert_eq!(times(40, 21), (40, 21), "both fit together");
}

#[test]
fn a_priority_out_of_range_keeps_the_current_one() {
    let mut bench = Bench::new(bridge(rstp(5), 1));
    let mut id = |priority| {
        bench.configure(|bridge| bridge.ports.get_mut(&PortNo(1)).unwrap().priority = priority);
        bench.port(1).id.0
    };
    assert_eq!([255, 17, 240, 241, 0].map(&mut id), [0x8001, 0x1001, 0xf001, 0xf001, 0x0001]);
}

#[test]
fn a_second_port_on_the_same_lan_is_a_backup_port() {
    let mut bench = Bench::new(bridge(rstp(5), 2));
    let first = sent(&bench.poll(), 1)[0];
    bench.input(2, first);
    assert_eq!((bench.role(1), bench.role(2)), (Role::Designated, Role::Backup));
    assert_eq!(bench.state(2), State::Discarding);
    bench.pass(6000);
    assert_eq!(bench.role(2), Role::Designated);
}
