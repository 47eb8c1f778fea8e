//! One bridge with STP.

use super::*;

fn config(bpdu: &Bpdu) -> Config {
    match bpdu {
        Bpdu::Config(config) => *config,
        other => panic!("{other:?} is no configuration BPDU"),
    }
}

fn hello(address: u64, port: u16) -> Bpdu {
    Bpdu::Config(of_root(address, port, Flags::default()))
}

#[test]
fn a_port_listens_and_learns_for_a_forward_delay_each() {
    let mut bench = Bench::new(bridge(stp(5), 1));
    bench.poll();
    assert_eq!((bench.state(1), bench.role(1)), (State::Listening, Role::Designated));
    bench.pass(14_999);
    assert_eq!(bench.state(1), State::Listening);
    bench.pass(1);
    assert_eq!(bench.state(1), State::Learning);
    bench.pass(15_000);
    assert_eq!(bench.state(1), State::Forwarding);
    assert_eq!(bench.port(1).state_since, Millis(30_000));
}

#[test]
fn the_root_sends_bpdus_at_hello_times() {
    let mut bench = Bench::new(bridge(stp(5), 1));
    let sent = sent(&bench.pass(20_000), 1);
    assert_eq!(sent.len(), 10);
    assert_eq!(bench.port(1).statistics.tx, 10);
    let status = bench.machine.status().remove(0);
    assert_eq!((status.root_port, status.root), (None, status.id));
}

#[test]
fn a_better_bridge_becomes_the_root_and_its_bpdus_are_relayed() {
    let mut bench = Bench::new(bridge(stp(5), 2));
    bench.pass(35_000);
    let relayed = sent(&bench.input(1, hello(1, 0x8001)), 2);
    let relayed = config(relayed.last().unwrap());
    assert_eq!((relayed.vector.cost, relayed.times.message_age), (2, 256));
    assert_eq!((bench.role(1), bench.role(2)), (Role::Root, Role::Designated));
    assert_eq!((bench.state(1), bench.state(2)), (State::Forwarding, State::Forwarding));
    // A second path to the root: its port blocks at once.
    bench.input(2, hello(1, 0x8002));
    assert_eq!((bench.role(2), bench.state(2)), (Role::Alternate, State::Blocking));
}

#[test]
fn information_expires_after_the_maximum_age() {
    let mut bench = Bench::new(bridge(stp(5), 2));
    bench.pass(1000);
    bench.input(1, hello(1, 0x8001));
    bench.pass(19_999);
    assert_eq!(bench.role(1), Role::Root);
    bench.pass(1);
    assert_eq!(bench.role(1), Role::Designated);
    assert_eq!(bench.machine.status()[0].root_path_cost, 0);
}

#[test]
fn the_age_of_information_counts_against_the_maximum_age() {
    let mut bench = Bench::new(bridge(stp(5), 2));
    let mut old = of_root(1, 0x8001, Flags::default());
    old.times.message_age = 18 * 256;
    let relayed = bench.input(1, Bpdu::Config(old));
    assert_eq!(config(&sent(&relayed, 2)[0]).times.message_age, 19 * 256);
    bench.pass(2000);
    assert_eq!(bench.role(1), Role::Designated);
    old.times.message_age = 19 * 256;
    assert_eq!(sent(&bench.input(1, Bpdu::Config(old)), 2), [], "too old to be relayed");
}

#[test]
fn an_inferior_bpdu_is_answered_within_the_hold_time() {
    let mut bench = Bench::new(bridge(stp(5), 1));
    bench.pass(1000);
    let mut worse = of_root(9, 0x8001, Flags::default());
    worse.vector.root = BridgeId::new(0x9000, MacAddr::from_u64(9));
    worse.vector.bridge = worse.vector.root;
    assert_eq!(sent(&bench.input(1, Bpdu::Config(worse)), 1).len(), 1);
    assert_eq!(sent(&bench.input(1, Bpdu::Config(worse)), 1).len(), 0);
    assert_eq!(sent(&bench.pass(1000), 1).len(), 1, "the pending one");
}

#[test]
fn a_topology_change_reaches_the_root_and_is_acknowledged() {
    let mut bench = Bench::new(bridge(stp(5), 3));
    bench.input(1, hello(1, 0x8001));
    for _ in 0..20 {
        bench.pass(2000);
        bench.input(1, hello(1, 0x8001));
    }
    // It has notified the root since its ports forward.
    assert_eq!(sent(&bench.pass(2000), 1), [Bpdu::TopologyChange]);
    bench.input(1, Bpdu::Config(of_root(1, 0x8001, Flags::ACKNOWLEDGMENT)));
    assert_eq!(sent(&bench.pass(4000), 1), []);
    // A neighbour below reports a change.
    let effects = bench.input(2, Bpdu::TopologyChange);
    assert_eq!(sent(&effects, 1), [Bpdu::TopologyChange]);
    let effects = [effects, bench.pass(1000)].concat();
    assert!(config(&sent(&effects, 2)[0]).flags.contains(Flags::ACKNOWLEDGMENT));
    assert!(effects.contains(&Effect::Log("br0: detected topology change.".into())));
    // The root spreads the change, and addresses are forgotten.
    bench.pass(2000);
    let effects = bench.input(1, Bpdu::Config(of_root(1, 0x8001, Flags(0x81))));
    assert!(effects.contains(&Effect::FlushBridge(BRIDGE)));
    let effects = [effects, bench.pass(1000)].concat();
    assert!(config(sent(&effects, 2).last().unwrap()).flags.contains(Flags::TOPOLOGY_CHANGE));
}

#[test]
fn the_root_signals_a_topology_change_for_maximum_age_and_forward_delay() {
    let mut bench = Bench::new(bridge(stp(5), 1));
    bench.pass(40_000);
    bench.pass(60_000);
    assert!(bench.machine.notify_topology_change(BRIDGE, bench.now));
    assert!(bench.poll().contains(&Effect::FlushBridge(BRIDGE)));
    let effects = bench.pass(34_999);
    assert!(sent(&effects, 1).iter().all(|bpdu| config(bpdu).flags.contains(Flags::TOPOLOGY_CHANGE)));
    assert!(has_flushes(&effects), "again after the forward delay");
    let effects = bench.pass(10_000);
    assert!(!config(sent(&effects, 1).last().unwrap()).flags.contains(Flags::TOPOLOGY_CHANGE));
    assert!(!has_flushes(&bench.pass(100_000)));
}

#[test]
fn a_port_that_goes_down_is_disabled_and_one_that_comes_up_listens() {
    let mut bench = Bench::new(bridge(stp(5), 2));
    bench.pass(40_000);
    let effects = bench.configure(|bridge| bridge.ports.get_mut(&PortNo(1)).unwrap().is_up = false);
    assert!(effects.contains(&Effect::State { port: port(1), state: State::Disabled }));
    assert_eq!((bench.state(1), bench.role(1)), (State::Disabled, Role::Disabled));
    assert_eq!(sent(&bench.pass(10_000), 1), []);
    bench.input(1, hello(1, 0x8001));
    assert_eq!(bench.role(1), Role::Disabled, "a disabled port takes no BPDUs");
    bench.configure(|bridge| bridge.ports.get_mut(&PortNo(1)).unwrap().is_up = true);
    assert_eq!(bench.state(1), State::Listening);
}

#[test]
fn priority_and_cost_decide_about_the_root_port() {
    let mut bench = Bench::new(bridge(stp(5), 2));
    bench.input(1, hello(1, 0x8001));
    bench.input(2, hello(1, 0x8002));
    assert_eq!((bench.role(1), bench.role(2)), (Role::Root, Role::Alternate));
    bench.configure(|bridge| bridge.ports.get_mut(&PortNo(1)).unwrap().path_cost = 3);
    assert_eq!((bench.role(1), bench.role(2)), (Role::Alternate, Role::Root));
    bench.configure(|bridge| {
        let Flavour::Stp(parameters) = &mut bridge.flavour else { panic!() };
        parameters.priority = 0;
        parameters.address = MacAddr::from_u64(0);
    });
    assert_eq!((bench.role(1), bench.role(2)), (Role::Designated, Role::Designated));
    assert_eq!(bench.machine.status()[0].root_port, None);
}

#[test]
fn times_are_kept_within_the_ranges_and_relations_of_the_standard() {
    let times = |hello_time_s, max_age_s, forward_delay_s| {
        StpSettings { hello_time_s, max_age_s, forward_delay_s, ..StpSettings::new(MacAddr::default()) }.times_s()
    };
    assert_eq!(times(2, 20, 15), (2, 20, 15));
    // Maximum ages and forward delays are those of Open vSwitch 4.0.0.
    assert_eq!(times(2, 40, 15), (2, 40, 21));
    assert_eq!(times(2, 20, 4), (2, 20, 11));
    assert_eq!(times(1, 6, 99), (1, 6, 30));
    assert_eq!(times(1, 0, 0), (1, 6, 4));
    assert_eq!(times(77, 6, 4), (10, 22, 12));
}

#[test]
fn ports_that_no_longer_take_part_are_released_and_others_start_anew() {
    let mut bench = Bench::new(bridge(stp(5), 2));
    bench.pass(40_000);
    let effects = bench.configure(|bridge| _ = bridge.ports.remove(&PortNo(1)));
    assert!(effects.contains(&Effect::Release(port(1))) && effects.contains(&Effect::Status));
    assert_eq!(bench.state(2), State::Forwarding);
    let effects = bench.configure(|bridge| bridge.flavour = rstp(5));
    assert!(effects.contains(&Effect::State { port: port(2), state: State::Discarding }));
    bench.machine.configure(Settings::default(), bench.now);
    assert_eq!(bench.poll(), [Effect::Release(port(2)), Effect::Status]);
    assert_eq!((bench.machine.next_deadline(), bench.machine.status().len()), (None, 0));
}

#[test]
fn the_status_changes_with_roles_and_states_but_not_with_bpdus() {
    let mut bench = Bench::new(bridge(stp(5), 1));
    let effects = bench.pass(60_000);
    assert_eq!(effects.iter().filter(|effect| **effect == Effect::Status).count(), 3);
    assert!(bench.input(1, hello(1, 0x8001)).contains(&Effect::Status));
    assert!(!bench.input(1, hello(1, 0x8001)).contains(&Effect::Status));
}

#[test]
fn a_flush_of_the_bridge_concerns_all_of_its_ports() {
    let mut bench = Bench::new(bridge(stp(5), 1));
    bench.pass(40_000);
    bench.pass(60_000);
    bench.machine.notify_topology_change(BRIDGE, bench.now);
    let mut effects = Vec::new();
    protocols::Machine::poll(&mut bench.machine, bench.now, &mut effects);
    let flush = protocols::Effect::Flush;
    assert!(effects.contains(&flush(port(1))) && effects.contains(&flush(port(PortNo::LOCAL.0))));
}
