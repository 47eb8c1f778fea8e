//! Bonds: which frames enter by a member, the member by which a frame leaves, and the dependencies of translations.

use super::*;
use ::bond::{Bonds, LacpStatus, Link, MemberSettings, Mode, Part, Settings};
use base::BridgePort;
use base::rng::Rng;
use dpif::BondId;

/// The bond's name, which is that of the bundle of port 1.
const NAME: &str = "p1";
const BOTH: [Link; 2] = [Link::UP; 2];

/// A machine with a bond of the first bridge's ports 1 and 2.
fn machine(mode: Mode, lacp: LacpStatus, links: [Link; 2], basis: u32) -> Bonds {
    let mut bonds = Bonds::new();
    configure(&mut bonds, mode, lacp, links, basis);
    bonds
}

fn configure(bonds: &mut Bonds, mode: Mode, lacp: LacpStatus, links: [Link; 2], basis: u32) {
    let settings = Settings { mode, hash_basis: basis, ..Settings::default() };
    set(bonds, settings, lacp, links);
    bonds.poll(Millis(1));
}

/// Sets the bond, whose decisions the next poll publishes.
fn set(bonds: &mut Bonds, settings: Settings, lacp: LacpStatus, links: [Link; 2]) {
    let member = |(n, link): (u32, Link)| {
        let at = BridgePort { bridge: 0, port: PortNo(n) };
        (at, MemberSettings { name: format!("p{n}").into(), mac: MacAddr::ZERO, link })
    };
    let members = (1..).zip(links).map(member).collect();
    bonds.configure([(NAME.into(), Settings { members, ..settings })].into(), Millis(1));
    bonds.set_lacp(NAME, lacp);
}

/// A machine with a random bond.
pub(super) fn random(rng: &mut Rng) -> Bonds {
    let mut bonds = Bonds::new();
    change(&mut bonds, rng);
    bonds.publish();
    bonds
}

/// Gives the bond other decisions, which are not published yet. Returns the parts that have changed.
pub(super) fn change(bonds: &mut Bonds, rng: &mut Rng) -> Vec<Part> {
    let (mode, lacp) = match rng.below(8) {
        0 => (Mode::ActiveBackup, LacpStatus::Disabled),
        1 | 2 => (Mode::BalanceSlb, LacpStatus::Disabled),
        3 => (Mode::BalanceSlb, LacpStatus::Negotiated),
        4..7 => (Mode::BalanceTcp, LacpStatus::Negotiated),
        _ => (Mode::BalanceTcp, LacpStatus::Disabled),
    };
    let links = [0, 1].map(|_| if rng.below(5) == 0 { Link::DOWN } else { Link::UP });
    let lb_output = rng.below(2) == 0;
    set(bonds, Settings { mode, hash_basis: rng.below(3) as u32, lb_output, ..Settings::default() }, lacp, links);
    let effects = bonds.run(Millis(1));
    let parts = |effect| if let ::bond::Effect::Changed { parts, .. } = effect { parts } else { Vec::new() };
    effects.into_iter().flat_map(parts).collect()
}

/// Makes ports 1 and 2 a bond, whose bundle is as that of port 1 was.
pub(super) fn join(bundles: &mut Vec<Bundle>) {
    bundles.retain(|bundle| bundle.ports != [PortNo(2)]);
    bundles.iter_mut().filter(|bundle| *bundle.name == *NAME).for_each(|bundle| bundle.ports.push(PortNo(2)));
}

/// The bond in a network where all packets are forwarded by NORMAL. Port 4 is in VLAN 5, like the others.
fn normal(bonds: &Bonds) -> Network {
    let mut net = network(&[(0, Match::ANY, 1, vec![output(PortNo::NORMAL)])]);
    net.bonds = Arc::clone(bonds.published());
    let bridge = net.bridges.get_mut(&0).and_then(Arc::get_mut).expect("nobody else has it");
    let mut bundles: Vec<Bundle> = bridge.bundles.values().map(|bundle| (**bundle).clone()).collect();
    join(&mut bundles);
    bundles.iter_mut().for_each(|bundle| bundle.floodable = *bundle.name != *"p3");
    bridge.set_bundles(bundles);
    net
}

fn frame(port: u32, src: u64, dst: u64) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set_in_port(PortNo(port));
    key.set(Field::EthSrc, src.into());
    key.set(Field::EthDst, dst.into());
    key.set(Field::EthType, 0x88b5);
    key.set(Field::VlanTci, if port == 4 { 0 } else { 0x1005 });
    key
}

const A: u64 = 0x0200_0000_00aa;
const B: u64 = 0x0200_0000_00bb;
const ALL: u64 = 0xffff_ffff_ffff;

fn is_output(verdict: &Verdict, port: u32) -> bool {
    verdict.actions.contains(&DpAction::Output(DpPort(port)))
}

fn depends_on_bond(verdict: &Verdict) -> bool {
    verdict.dependencies.iter().any(|dependency| matches!(dependency, Dependency::Bond(name, _) if **name == *NAME))
}

fn learn(net: &Network, mac: u64, port: u32) {
    net.bridges[&0].macs.write().learn(5, MacAddr::from_u64(mac), PortNo(port), Millis(1));
}

#[test]
fn the_active_member_alone_forwards() {
    let mut bonds = machine(Mode::ActiveBackup, LacpStatus::Disabled, BOTH, 0);
    let net = normal(&bonds);
    let out = translate(&net, &frame(4, A, B), false);
    assert!(is_output(&out, 1) && !is_output(&out, 2) && depends_on_bond(&out));
    let (active, backup) = (translate(&net, &frame(1, A, B), false), translate(&net, &frame(2, A, B), false));
    assert!(is_output(&active, 4) && !is_output(&active, 2), "{active:?}");
    assert!(backup.actions.is_empty() && depends_on_bond(&backup));
    // A frame does not return by another member of its bond.
    learn(&net, B, 1);
    assert!(translate(&net, &frame(1, A, B), false).actions.is_empty());
    configure(&mut bonds, Mode::ActiveBackup, LacpStatus::Disabled, [Link::DOWN, Link::UP], 0);
    let out = translate(&net, &frame(4, A, B), false);
    assert_eq!(out.actions.last(), Some(&DpAction::Output(DpPort(2))));
    configure(&mut bonds, Mode::ActiveBackup, LacpStatus::Disabled, [Link::DOWN; 2], 0);
    assert!(translate(&net, &frame(4, A, B), false).actions.is_empty());
}

#[test]
fn addresses_on_members_are_the_bonds() {
    let net = normal(&machine(Mode::BalanceTcp, LacpStatus::Negotiated, BOTH, 0));
    for port in [1, 2] {
        let verdict = translate(&net, &frame(port, A, B), false);
        let at_first = |e: &Effect| matches!(e, Effect::LearnMac { port, .. } if *port == PortNo(1));
        assert!(verdict.effects.iter().any(at_first), "{port}: {:?}", verdict.effects);
    }
}

#[test]
fn slb_bonds_drop_frames_that_came_back() {
    let net = normal(&machine(Mode::BalanceSlb, LacpStatus::Disabled, BOTH, 0));
    learn(&net, A, 4);
    assert!(translate(&net, &frame(2, A, B), false).actions.is_empty());
    assert!(is_output(&translate(&net, &frame(2, 0x0200_0000_00cc, B), false), 4));
    let arp = |port, op: u16, target: u128| {
        let mut key = frame(port, A, ALL);
        key.set(Field::EthType, 0x0806);
        key.set(Field::ArpOp, op.into());
        key.set(Field::ArpSpa, 7);
        key.set(Field::ArpTpa, target);
        key
    };
    // Unless the address announces its new place.
    for (op, target, enters) in [(1, 7, true), (1, 8, false), (2, 8, true), (3, 7, false)] {
        assert_eq!(is_output(&translate(&net, &arp(1, op, target), false), 4), enters, "{op} {target}");
    }
    // The announcement may be the bridge's own frame: for a while, a bond does not believe it.
    let sent = translate(&net, &arp(4, 1, 7), false);
    let lock = Effect::LockMac { bridge: 0, vlan: 5, mac: MacAddr::from_u64(A) };
    assert!(sent.effects.contains(&lock));
    let macs = &net.bridges[&0].macs;
    assert!(macs.write().lock(5, MacAddr::from_u64(A), Millis(100)));
    assert!(translate(&net, &arp(1, 1, 7), false).actions.is_empty());
    assert_eq!(macs.write().unlock(Millis(5099)), []);
    assert_eq!(macs.write().unlock(Millis(5100)), [(5, MacAddr::from_u64(A))]);
    assert!(is_output(&translate(&net, &arp(1, 1, 7), false), 4));
}

#[test]
fn slb_bonds_choose_by_source_and_vlan_and_count_bytes() {
    let bonds = machine(Mode::BalanceSlb, LacpStatus::Disabled, BOTH, 9);
    let net = normal(&bonds);
    let view = Arc::clone(&bonds.published().load()[NAME]);
    let mut members = std::collections::BTreeSet::new();
    for src in A..A + 16 {
        let out = translate(&net, &frame(4, src, B), false);
        let member = view.member_for(MacAddr::from_u64(src), 5).expect("a member").0;
        assert!(is_output(&out, member) && !is_output(&out, 3 - member));
        let bucket = view.source_bucket(MacAddr::from_u64(src), 5);
        assert!(out.effects.contains(&Effect::BondLoad { loads: Arc::clone(view.loads()), bucket }));
        members.insert(member);
    }
    assert_eq!(members.len(), 2);
}

#[test]
fn tcp_bonds_choose_by_the_datapaths_hash_while_other_outputs_go_on() {
    let bonds = machine(Mode::BalanceTcp, LacpStatus::Negotiated, BOTH, 3);
    let net = normal(&bonds);
    let out = translate(&net, &frame(4, A, ALL), false);
    let at = out.actions.iter().position(|action| *action == DpAction::Hash(HashKind::L4, 3)).expect("a hash");
    let DpAction::Recirc(id) = out.actions[at + 1] else { panic!("{:?}", out.actions) };
    assert!(depends_on_bond(&out));
    let view = Arc::clone(&bonds.published().load()[NAME]);
    let mut members = std::collections::BTreeSet::new();
    for hash in 0..64u32 {
        let mut key = frame(4, A, ALL);
        key.set(Field::RecircId, id.into());
        key.set(Field::DpHash, (hash | 0xabcd_ef00).into());
        let again = translate(&net, &key, false);
        let member = view.member(hash as u8).expect("a member").0;
        assert_eq!(again.actions, [DpAction::Output(DpPort(member))]);
        assert_eq!(again.mask().get(Field::DpHash), 0xff);
        assert_eq!(again.mask().get(Field::EthSrc), 0, "only the hash decides");
        assert!(depends_on_bond(&again));
        members.insert(member);
    }
    assert_eq!(members.len(), 2);
}

#[test]
fn packets_beside_the_bond_do_not_depend_on_it() {
    let net = normal(&machine(Mode::BalanceSlb, LacpStatus::Disabled, BOTH, 0));
    learn(&net, B, 3);
    assert!(!depends_on_bond(&translate(&net, &frame(4, A, B), false)));
    // Outputs by number, and floods by number, are not the bond's either.
    let mut all = network(&[(0, Match::ANY, 1, vec![output(PortNo::ALL)])]);
    all.bonds = Arc::clone(&net.bonds);
    let out = translate(&all, &frame(4, A, B), false);
    assert!(is_output(&out, 1) && is_output(&out, 2) && !depends_on_bond(&out));
}

/// A machine with a bond that the datapath balances.
fn balanced(links: [Link; 2]) -> Bonds {
    let mut bonds = Bonds::new();
    let settings = Settings { mode: Mode::BalanceTcp, lb_output: true, ..Settings::default() };
    set(&mut bonds, settings, LacpStatus::Negotiated, links);
    bonds.poll(Millis(1));
    bonds
}

/// The parts of the bond's decisions that a verdict depends on.
fn parts(verdict: &Verdict) -> Vec<Part> {
    let part = |dependency: &Dependency| if let Dependency::Bond(_, part) = dependency { Some(*part) } else { None };
    verdict.dependencies.iter().filter_map(part).collect()
}

#[test]
fn the_datapath_chooses_if_it_has_a_table() {
    let mut bonds = balanced(BOTH);
    let net = normal(&bonds);
    let out = translate(&net, &frame(4, A, ALL), false);
    let lb_output = DpAction::LbOutput(BondId(1));
    assert!(out.actions.contains(&lb_output), "{:?}", out.actions);
    assert!(!out.actions.iter().any(|action| matches!(action, DpAction::Hash(..) | DpAction::Recirc(_))));
    assert_eq!(parts(&out), [Part::Choice], "not on the members of buckets");
    // Without a member, or without a partner, nothing is sent.
    set(
        &mut bonds,
        Settings { mode: Mode::BalanceTcp, lb_output: true, ..Settings::default() },
        LacpStatus::Negotiated,
        [Link::DOWN; 2],
    );
    bonds.poll(Millis(1));
    assert!(!translate(&net, &frame(4, A, ALL), false).actions.contains(&lb_output));
    // The setting has no effect in other modes.
    let settings = Settings { mode: Mode::BalanceSlb, lb_output: true, ..Settings::default() };
    set(&mut bonds, settings, LacpStatus::Negotiated, BOTH);
    bonds.poll(Millis(1));
    let out = translate(&net, &frame(4, A, ALL), false);
    assert!(is_output(&out, 1) || is_output(&out, 2));
    assert_eq!(parts(&out), [Part::Choice, Part::Buckets]);
}

#[test]
fn packets_recirculate_if_the_member_matters() {
    let bonds = balanced(BOTH);
    let recirculates = |change: &dyn Fn(&mut Bridge)| {
        let mut net = normal(&bonds);
        change(net.bridges.get_mut(&0).and_then(Arc::get_mut).expect("nobody else has it"));
        let out = translate(&net, &frame(4, A, ALL), false);
        out.actions.iter().any(|action| matches!(action, DpAction::Recirc(_)))
    };
    assert!(!recirculates(&|_| {}));
    assert!(recirculates(&|bridge| bridge.queue_marks = Arc::new([(PortNo(2), [(1, 46)].into())].into())));
    assert!(recirculates(&|bridge| {
        let mut port = bridge.ports.get(&PortNo(2)).expect("the port").clone();
        port.config.no_fwd = true;
        bridge.ports.insert(PortNo(2), port);
    }));
}
