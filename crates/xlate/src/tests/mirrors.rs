//! Mirrors: cases, and random networks of bridges against a naive twin that follows each copy.

use super::regions::pick;
use super::wire::{Wire, execute};
use super::*;
use base::rng::Rng;
use model::{PriorityTags, VlanSet};
use std::collections::BTreeSet;

/// A mirror of all packets to a port.
fn to_port(port: u32) -> Mirror {
    Mirror {
        select_all: true,
        select_src: Vec::new(),
        select_dst: Vec::new(),
        select_vlan: None,
        filter: None,
        out: MirrorOut::Port(format!("p{port}").into()),
        snaplen: None,
        counters: Arc::default(),
    }
}

/// The first bridge of [`network`] with these mirrors, whose ports are trunks.
fn mirrored(actions: &[Action], mirrors: Vec<Mirror>) -> Network {
    let mut net = network_and_peer(&[(0, Match::ANY, 0, actions.to_vec())], &[]);
    let bridge = net.bridges.get_mut(&0).and_then(Arc::get_mut).expect("nobody else has it");
    edit_bundles(bridge, |bundles| bundles.iter_mut().for_each(|bundle| bundle.mode = VlanMode::Trunk));
    bridge.mirrors = Some(Arc::new(Mirrors::new(mirrors.into_iter().map(Some).collect())));
    net
}

/// A TCP packet on port 1 with this VLAN tag, if it is not 0.
fn tcp(tci: u16) -> FlowKey {
    let mut key = FlowKey::ZERO;
    key.set(Field::EthType, 0x800);
    key.set(Field::IpProto, 6);
    key.set(Field::TcpDst, 80);
    key.set(Field::EthDst, 0x0200_0000_0009);
    key.set_in_port(PortNo(1));
    if tci != 0 {
        key.set_vlan(0, 0x8100, 0x1000 | tci);
    }
    key
}

fn out(port: u32) -> DpAction {
    DpAction::Output(DpPort(port))
}

fn counted(verdict: &Verdict) -> usize {
    verdict.effects.iter().filter(|effect| matches!(effect, Effect::Mirror(_))).count()
}

#[test]
fn a_packet_is_mirrored_once_and_again_after_a_change() {
    let verdict = |actions: &[Action]| translate(&mirrored(actions, vec![to_port(4)]), &tcp(0), false);
    let plain = verdict(&[output(PortNo(2)), output(PortNo(2))]);
    assert_eq!((plain.actions.clone(), counted(&plain)), (vec![out(4), out(2), out(2)], 1));
    let changed = verdict(&[Action::SetEthSrc(PEER_SRC), output(PortNo(2)), output(PortNo(2))]);
    let set = DpAction::Set { field: Field::EthSrc, value: PEER_SRC.to_u64().into(), mask: 0xffff_ffff_ffff };
    assert_eq!((changed.actions.clone(), counted(&changed)), (vec![out(4), set, out(2), out(4), out(2)], 2));
    assert_eq!(verdict(&[]).actions, [out(4)]);
    // Open vSwitch counts all fields of tunnels but one.
    for (field, again) in [(Field::TunErspanIdx, true), (Field::TunErspanDir, false), (Field::Metadata, false)] {
        let set = Action::SetField { field, value: 1, mask: 1 };
        assert_eq!(
            counted(&verdict(&[output(PortNo(2)), set, output(PortNo(2))])),
            1 + usize::from(again),
            "{field:?}"
        );
    }
}

#[test]
fn a_mirror_between_trunks_reads_no_more_than_the_packet_without_it() {
    let without = translate(&mirrored(&[output(PortNo(2))], vec![]), &tcp(5), false);
    let with = translate(&mirrored(&[output(PortNo(2))], vec![to_port(4)]), &tcp(5), false);
    assert_eq!((with.mask(), with.actions), (without.mask(), vec![out(4), out(2)]));
}

#[test]
fn a_selected_vlan_and_a_filter_are_read_as_far_as_they_decide() {
    let vlan = Mirror { select_vlan: Some(Arc::new([5].into_iter().collect())), ..to_port(4) };
    let verdict = translate(&mirrored(&[output(PortNo(2))], vec![vlan]), &tcp(0x2005), false);
    assert_eq!((verdict.mask().vlan_tci(), verdict.actions), (0x1fff, vec![out(4), out(2)]));
    let filter = flow::text::parse_exact_match("tcp,tcp_dst=81", &flow::text::NoNames).expect("a filter");
    let mirror = Mirror { filter: Some(Box::new(filter)), ..to_port(4) };
    let net = mirrored(&[output(PortNo(2))], vec![mirror]);
    let mut key = tcp(0);
    let verdict = translate(&net, &key, false);
    assert_eq!((verdict.mask().get(Field::TcpDst), verdict.actions), (0xffff, vec![out(2)]));
    key.set(Field::IpProto, 17);
    let verdict = translate(&net, &key, false);
    assert_eq!((verdict.mask().get(Field::TcpDst), verdict.mask().get(Field::IpProto)), (0, 0xff));
    key.set(Field::IpProto, 6);
    key.set(Field::TcpDst, 81);
    assert_eq!(translate(&net, &key, false).actions, [out(4), out(2)]);
}

#[test]
fn a_mirror_to_a_vlan_reads_the_beginning_of_the_destination() {
    let mirror = Mirror { out: MirrorOut::Vlan(9), ..to_port(4) };
    let net = mirrored(&[], vec![mirror]);
    let of = |dst: u128| {
        let mut key = tcp(0);
        key.set(Field::EthDst, dst);
        let verdict = translate(&net, &key, false);
        (verdict.mask().get(Field::EthDst), verdict.actions.len())
    };
    assert_eq!(of(0x0200_0000_0009), (0xff00_0000_0000, 4));
    assert_eq!(of(0x0180_c200_0010), (0xffff_ffff_ffff, 4));
    assert_eq!(of(0x0180_c200_000e), (0xffff_ffff_ffff, 0));
    assert_eq!(of(0x0180_c300_000e), (0xffff_ff00_0000, 4));
}

#[test]
fn an_output_port_is_reserved() {
    let net = mirrored(&[output(PortNo::NORMAL)], vec![to_port(4)]);
    let mut key = tcp(0);
    assert_eq!(translate(&net, &key, false).actions[..2], [out(4), out(2)]);
    key.set_in_port(PortNo(4));
    let verdict = translate(&net, &key, false);
    assert_eq!((verdict.actions, verdict.drop), (vec![], Some(base::DropReason::MirrorPort)));
    let lookups = |effect: &Effect| matches!(effect, Effect::Lookup { rule: Some(_), .. });
    assert_eq!(verdict.effects.iter().filter(|effect| lookups(effect)).count(), 1);
}

#[test]
fn copies_are_shortened_in_front_of_devices() {
    let mirror = |snaplen| Mirror { snaplen: Some(snaplen), ..to_port(4) };
    let actions = |snaplen| translate(&mirrored(&[output(PortNo(2))], vec![mirror(snaplen)]), &tcp(0), false).actions;
    assert_eq!(actions(100), [DpAction::Trunc(100), out(4), out(2)]);
    assert_eq!(actions(u16::MAX), [out(4), out(2)]);
    let patch = Mirror { snaplen: Some(100), ..to_port(3) };
    assert_eq!(translate(&mirrored(&[output(PortNo(2))], vec![patch]), &tcp(0), false).actions, [out(2)]);
}

#[test]
fn both_branches_of_a_length_are_mirrored() {
    let dst = Subfield { field: Field::Reg1, offset: 0, n_bits: 1 };
    let mut mirror = Mirror { select_all: false, ..to_port(4) };
    mirror.select_dst.push("p2".into());
    let net = mirrored(&[Action::CheckPktLarger { len: 100, dst }, output(PortNo(2))], vec![mirror]);
    match &translate(&net, &tcp(0), false).actions[..] {
        [DpAction::CheckPktLen { greater, lesser, .. }] => {
            assert_eq!((&greater[..], &lesser[..]), (&[out(2), out(4)][..], &[out(2), out(4)][..]));
        }
        other => panic!("{other:?}"),
    }
}

/// A port: the device of this number, or the bridge and port at the other end of a patch.
#[derive(Clone, Copy)]
enum End {
    Device(u32),
    Patch(u32, u32),
}

/// Bridges whose tables flood every packet. Port `n` of a bridge is the `n`th of its list, from 1.
struct Flooding {
    ports: Vec<Vec<End>>,
    mirrors: Vec<Vec<Mirror>>,
}

impl Flooding {
    /// A tree of bridges, perhaps with a patch from a bridge to itself that only mirrors use.
    fn new(rng: &mut Rng) -> Self {
        let n = 1 + rng.below(4) as u32;
        let mut ports: Vec<Vec<End>> = (0..n).map(|b| vec![End::Device(10 * b + 1), End::Device(10 * b + 2)]).collect();
        for b in 1..n {
            let to = rng.below(b.into()) as u32;
            let (here, there) = (ports[b as usize].len() as u32 + 1, ports[to as usize].len() as u32 + 1);
            ports[b as usize].push(End::Patch(to, there));
            ports[to as usize].push(End::Patch(b, here));
        }
        let mirror = |rng: &mut Rng, n_ports: usize| {
            let port = |rng: &mut Rng| -> Arc<str> { format!("p{}", 1 + rng.below(n_ports as u64)).into() };
            let out = if rng.below(3) == 0 { MirrorOut::Vlan(pick(rng, &[5, 9])) } else { MirrorOut::Port(port(rng)) };
            let select_vlan = pick(rng, &[None, None, Some(5), Some(0)]);
            Mirror {
                select_all: rng.below(2) == 0,
                select_src: vec![port(rng)],
                select_dst: vec![port(rng)],
                select_vlan: select_vlan.map(|vlan| Arc::new([vlan].into_iter().collect::<VlanSet>())),
                out,
                snaplen: (rng.below(5) == 0).then_some(64),
                ..to_port(1)
            }
        };
        let mirrors = ports.iter().map(|ports| (0..rng.below(3)).map(|_| mirror(rng, ports.len())).collect()).collect();
        Self { ports, mirrors }
    }

    fn network(&self) -> Network {
        let mut net = network(&[]);
        let like = Arc::clone(&net.bridges[&0]);
        net.bridges.clear();
        net.ports = ChunkedMap::default();
        for (b, ports) in (0..).zip(&self.ports) {
            let tables = new_tables();
            add_rule(&tables, 0, &Match::ANY, 0, &[output(PortNo::NORMAL)]);
            let port = |(no, end): (u32, &End)| {
                let out = match *end {
                    End::Device(n) => PortOut::Device(DpPort(n)),
                    End::Patch(bridge, port) => PortOut::Patch(bridge, PortNo(port)),
                };
                let (no, name) = (PortNo(no), format!("p{no}").into());
                let config = PortConfig::default();
                (
                    no,
                    Port {
                        no,
                        name,
                        out,
                        config,
                        live: true,
                        mac: MacAddr::ZERO,
                        ifindex: 0,
                        tunnel: None,
                        bundle: None,
                    },
                )
            };
            for (no, end) in (1..).zip(ports) {
                if let End::Device(n) = end {
                    net.ports.insert(DpPort(*n), (b, PortNo(no)));
                }
            }
            let mirrors = self.mirrors[b as usize].iter().cloned().map(Some).collect();
            let mut bridge = Bridge {
                id: b,
                name: format!("br{b}").into(),
                ports: (1..).zip(ports).map(port).collect(),
                bundles: Default::default(),
                tables,
                macs: Arc::default(),
                misses: Default::default(),
                options: like.options.clone(),
                ipfix: None,
                local: None,
                mirrors: Some(Arc::new(Mirrors::new(mirrors))),
                flood_vlans: None,
                snooping: None,
                queue_marks: Arc::clone(&like.queue_marks),
                ..*like
            };
            bridge.set_bundles((1..=ports.len() as u32).map(|n| Bundle {
                name: format!("p{n}").into(),
                ports: vec![PortNo(n)],
                mode: VlanMode::Trunk,
                tag: 0,
                trunks: None,
                cvlans: None,
                priority_tags: PriorityTags::Never,
                protected: false,
                floodable: true,
                multicast: Default::default(),
            }));
            net.bridges.insert(b, Arc::new(bridge));
        }
        net
    }
}

/// A frame in the twin.
#[derive(Clone)]
struct Frame {
    bridge: u32,
    in_port: u32,
    /// 0 for no tag.
    vlan: u16,
    /// The mirrors of this bridge that it went to.
    sent: BTreeSet<usize>,
    /// The mirrors, by bridge, that it is a copy of.
    copy_of: Vec<(u32, usize)>,
    is_short: bool,
}

/// The twin: follows each copy by itself.
struct Follower<'a> {
    net: &'a Flooding,
    out: Vec<(u32, u16)>,
    selected: usize,
    steps: u32,
}

impl Follower<'_> {
    fn is_reserved(&self, bridge: u32, port: u32) -> bool {
        let name: Arc<str> = format!("p{port}").into();
        self.net.mirrors[bridge as usize].iter().any(|mirror| mirror.out == MirrorOut::Port(Arc::clone(&name)))
    }

    fn n_ports(&self, bridge: u32) -> u32 {
        self.net.ports[bridge as usize].len() as u32
    }

    fn flood(&mut self, frame: &mut Frame) {
        for port in 1..=self.n_ports(frame.bridge) {
            if port != frame.in_port && !self.is_reserved(frame.bridge, port) {
                self.output(frame, port);
            }
        }
    }

    fn output(&mut self, frame: &mut Frame, port: u32) {
        self.steps += 1;
        match self.net.ports[frame.bridge as usize][port as usize - 1] {
            End::Device(n) => {
                self.out.push((n, frame.vlan));
                self.mirror(frame, port, |mirror| &mirror.select_dst);
            }
            End::Patch(..) if frame.is_short => {}
            End::Patch(bridge, in_port) => {
                let mut there = Frame { bridge, in_port, sent: BTreeSet::new(), is_short: false, ..frame.clone() };
                if !self.is_reserved(bridge, in_port) {
                    self.flood(&mut there);
                }
            }
        }
    }

    fn mirror(&mut self, frame: &mut Frame, port: u32, selects: fn(&Mirror) -> &[Arc<str>]) {
        let mirrors = &self.net.mirrors[frame.bridge as usize];
        for (n, mirror) in mirrors.iter().enumerate() {
            let name: Arc<str> = format!("p{port}").into();
            if !(mirror.select_all || selects(mirror).contains(&name))
                || frame.sent.contains(&n)
                || frame.copy_of.contains(&(frame.bridge, n))
                || mirror.select_vlan.as_ref().is_some_and(|vlans| !vlans.contains(frame.vlan))
            {
                continue;
            }
            self.selected += 1;
            let duplicates: Vec<usize> = (0..mirrors.len()).filter(|i| mirrors[*i].out == mirror.out).collect();
            frame.sent.extend(&duplicates);
            let mut copy = frame.clone();
            copy.copy_of.extend(duplicates.iter().map(|n| (frame.bridge, *n)));
            copy.is_short = mirror.snaplen.is_some();
            match &mirror.out {
                MirrorOut::Port(name) => {
                    let port = name.trim_start_matches('p').parse().expect("a number");
                    self.output(&mut copy, port);
                }
                MirrorOut::Vlan(vlan) if *vlan != frame.vlan => {
                    copy.vlan = *vlan;
                    for port in 1..=self.n_ports(frame.bridge) {
                        if !self.is_reserved(frame.bridge, port) {
                            self.output(&mut copy, port);
                        }
                    }
                }
                MirrorOut::Vlan(_) => {}
            }
            // Copies count for the packet that they were made of.
            frame.sent.extend(&copy.sent);
        }
    }
}

tally::proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases() / 4))]

    /// Each copy leaves once, and none is copied again by a mirror that it comes from, whatever patch ports it crosses.
    #[test]
    fn copies_in_random_networks_are_those_of_the_twin(seed: u64) {
        let rng = &mut Rng::seeded(seed);
        let world = Flooding::new(rng);
        let net = world.network();
        let bridge = rng.below(world.ports.len() as u64) as u32;
        let (in_port, vlan) = (1 + rng.below(2) as u32, pick(rng, &[0, 0, 5, 7]));
        let mut frame =
            Frame { bridge, in_port, vlan, sent: BTreeSet::new(), copy_of: Vec::new(), is_short: false };
        let mut twin = Follower { net: &world, out: Vec::new(), selected: 0, steps: 0 };
        if !twin.is_reserved(bridge, in_port) {
            twin.mirror(&mut frame, in_port, |mirror| &mirror.select_src);
            twin.flood(&mut frame);
        }
        let mut key = tcp(vlan);
        key.set(Field::EthDst, 0x0300_0000_0001);
        key.set_in_port(PortNo(10 * bridge + in_port));
        let verdict = translate(&net, &key, false);
        // Few mirrors of few bridges stay far below the limits.
        prop_assert_eq!(verdict.error, None);
        let mut got = Vec::new();
        execute(Some(&net), &verdict.actions, &mut Wire::new(&key), &mut got);
        let got: Vec<(u32, u16)> =
            got.iter().map(|(port, tags, ..)| (*port, tags.first().map_or(0, |(_, tci)| tci & 0xfff))).collect();
        prop_assert_eq!(got, twin.out);
        prop_assert_eq!(counted(&verdict), twin.selected);
        prop_assert!(twin.steps < 2000, "{}", twin.steps);
    }
}
