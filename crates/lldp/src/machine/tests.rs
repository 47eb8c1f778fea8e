//! The machine against a second copy of itself over a link that loses, repeats and reorders frames, against a naive
//! twin, and against the frames and output of Open vSwitch 4.0.0.

use super::*;
use base::PortNo;
use base::rng::Rng;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

const P1: BridgePort = BridgePort { bridge: 1, port: PortNo(1) };
const P2: BridgePort = BridgePort { bridge: 1, port: PortNo(2) };

fn settings(name: &str, mac: u64) -> PortSettings {
    PortSettings {
        name: name.into(),
        mac: MacAddr::from_u64(mac),
        system_description: "openvswitch 4.0.0".into(),
        ..PortSettings::default()
    }
}

fn one_port(port: BridgePort, settings: PortSettings) -> Settings {
    Settings { ports: [(port, settings)].into() }
}

fn machine(port: BridgePort, settings: PortSettings, now: Millis) -> Lldp {
    let mut lldp = Lldp::new();
    lldp.configure(one_port(port, settings), now);
    lldp
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()).collect()
}

fn frames(effects: Vec<Effect>) -> Vec<Vec<u8>> {
    effects.into_iter().filter_map(|e| if let Effect::Send { frame, .. } = e { Some(frame) } else { None }).collect()
}

fn changes(effects: &[Effect]) -> Vec<Change> {
    effects.iter().filter_map(|e| if let Effect::Neighbour { change, .. } = e { Some(*change) } else { None }).collect()
}

/// An LLDPDU of a neighbour.
fn pdu(chassis: &[u8], ttl_s: u16) -> Pdu {
    Pdu { chassis_id: [&[7], chassis].concat(), port_id: b"\x05eth9".to_vec(), ttl_s, ..Pdu::default() }
}

fn frame(pdu: &Pdu) -> Vec<u8> {
    pdu.write(MacAddr::from_u64(9)).0
}

fn with_answers(answers: &[(u8, u16, u32)]) -> Pdu {
    let answer = |&(status, vlan, isid): &(u8, u16, u32)| Assignment { status: AssignmentStatus(status), vlan, isid };
    Pdu {
        element: Some(Element { kind: 2, ..Element::default() }),
        assignments: answers.iter().map(answer).collect(),
        ..pdu(b"server", 120)
    }
}

#[test]
fn frames_equal_those_of_open_vswitch() {
    // Sent by Open vSwitch 4.0.0 on a dummy port.
    const ZEROS: &str = "0000000000000000000000000000000000000000000000000000000000000000";
    let sent = format!(
        "0180c200000eaa55aa55000188cc020704aa55aa5500010403057031060200780a04737973300c116f70656e7673776974636820342e302e\
         300e0400040004fe3200040d0b{ZEROS}38000000aa55aa55000100000000fe2e00040d0c{ZEROS}00c8000064019000012c0000"
    );
    let mappings = Arc::new([(100, 200), (300, 400)].into());
    let settings = PortSettings { system_name: "sys0".into(), mappings, ..settings("p1", 0xaa55_aa55_0001) };
    let mut lldp = machine(P1, settings, Millis(0));
    assert_eq!(lldp.next_deadline(), Some(Millis(TRANSMIT_INTERVAL_MS)));
    assert_eq!(lldp.poll(Millis(4999)), []);
    assert_eq!(frames(lldp.poll(Millis(5000))), [bytes(&sent)]);
    assert_eq!(lldp.next_deadline(), Some(Millis(10_000)));
}

#[test]
fn an_empty_system_name_is_not_announced() {
    let mut lldp = machine(P1, settings("p1", 1), Millis(0));
    let sent = frames(lldp.poll(Millis(5000)));
    let (parsed, unrecognized) = Pdu::parse(&sent[0]).unwrap();
    assert_eq!((parsed.system_name, unrecognized), (None, 0));
    assert_eq!(parsed.system_description.as_deref(), Some(&b"openvswitch 4.0.0"[..]));
}

#[test]
fn output_equals_that_of_open_vswitch() {
    let mappings = Arc::new([(100, 200), (101, 201), (102, 202)].into());
    let mut lldp = machine(P1, PortSettings { mappings, ..settings("p3", 1) }, Millis(0));
    let mut server = with_answers(&[(2, 200, 100), (3, 201, 101), (2, 300, 500)]);
    server.chassis_id = vec![4, 2, 0, 0, 0, 0, 1];
    server.element.as_mut().unwrap().system_id =
        SystemId { mac: MacAddr::from_u64(0x0a0b_0c0d_0e0f), connection: 7, smlt: 0x3ff, mlt: [0x30, 0x40] };
    lldp.input(P1, &frame(&server), Millis(1));
    // No auto-attach element: not in the list.
    lldp.input(P1, &frame(&pdu(b"plain", 120)), Millis(2));
    assert_eq!(
        show::status(&lldp.status()),
        "LLDP: p3\n  Auto Attach Primary Server Id: 02:00:00:00:00:01\n  \
         Auto Attach Primary Server Descr: <None>\n  \
         Auto Attach Primary Server System Id: 0a:0b:0c:0d:0e:0f:07:00:ff:03:30:40\n"
    );
    assert_eq!(
        show::mappings(&lldp.status()),
        "LLDP: p3\nI-SID    VLAN Source      Status  \n-------- ---- ----------- --------\n\
         100      200  Switch      Active     \n101      201  Switch      Reject (Generic)\n\
         102      202  Switch      Pending    \n"
    );
    assert_eq!(
        show::statistics(&lldp.status()),
        "Statistics: p3\n  tx cnt: 0\n  rx cnt: 2\n  rx discarded cnt: 0\n  rx unrecognized cnt: 0\n  ageout cnt: 0\n  \
         insert cnt: 2\n  delete cnt: 0\n  drop cnt: 0\n"
    );
}

#[test]
fn a_description_from_the_wire_cannot_control_a_terminal() {
    let mut lldp = machine(P1, settings("p1", 1), Millis(0));
    let text = b"a\x1b[2Jb\nc\xff".to_vec();
    lldp.input(P1, &frame(&Pdu { system_description: Some(text), ..with_answers(&[]) }), Millis(1));
    let shown = show::status(&lldp.status());
    assert!(shown.contains("Descr: a?[2Jb?c\u{fffd}\n"), "{shown}");
}

#[test]
fn the_neighbour_heard_last_decides_about_a_mapping() {
    let mappings = Arc::new([(100, 200)].into());
    let mut lldp = machine(P1, PortSettings { mappings, ..settings("p1", 1) }, Millis(0));
    let status = |lldp: &Lldp| lldp.status()[0].mappings[0].status.map(AssignmentStatus::name);
    lldp.input(P1, &frame(&with_answers(&[(2, 200, 100)])), Millis(1));
    assert_eq!(status(&lldp), Some("Active"));
    let other = Pdu { chassis_id: b"\x07other".to_vec(), ttl_s: 1, ..with_answers(&[(6, 200, 100)]) };
    lldp.input(P1, &frame(&other), Millis(2));
    assert_eq!(status(&lldp), Some("Reject (Invalid)"));
    lldp.poll(Millis(1002));
    assert_eq!(status(&lldp), Some("Active"));
    // An answer about another VLAN is none about this one.
    lldp.input(P1, &frame(&with_answers(&[(2, 201, 100)])), Millis(1003));
    assert_eq!(status(&lldp), None);
}

#[test]
fn a_neighbour_expires_after_its_time_to_live() {
    let mut lldp = machine(P1, settings("p1", 1), Millis(0));
    lldp.input(P1, &frame(&pdu(b"a", 2)), Millis(100));
    assert_eq!(lldp.next_deadline(), Some(Millis(0)), "the effect waits");
    assert_eq!(changes(&lldp.poll(Millis(100))), [Change::New]);
    assert_eq!(lldp.next_deadline(), Some(Millis(2100)));
    // The same again prolongs, something else is a change.
    lldp.input(P1, &frame(&pdu(b"a", 2)), Millis(1000));
    assert_eq!(lldp.poll(Millis(2999)), []);
    lldp.input(P1, &frame(&Pdu { system_name: Some(b"n".into()), ..pdu(b"a", 2) }), Millis(2999));
    assert_eq!(changes(&lldp.poll(Millis(4998))), [Change::Updated]);
    assert_eq!(changes(&lldp.poll(Millis(4999))), [Change::Expired]);
    let status = &lldp.status()[0];
    assert_eq!((status.neighbours.len(), status.statistics.ageout, status.statistics.insert), (0, 1, 1));
}

#[test]
fn changes_of_neighbours_are_logged() {
    let mut lldp = machine(P1, settings("p1", 1), Millis(0));
    lldp.input(P1, &frame(&pdu(b"a", 2)), Millis(1));
    let mut effects = Vec::new();
    protocols::Machine::poll(&mut lldp, Millis(2001), &mut effects);
    let lines = ["new neighbour", "neighbour has expired:"].map(|what| format!("p1: {what} chassis a, port eth9"));
    assert_eq!(effects, lines.map(protocols::Effect::Log));
}

#[test]
fn a_time_to_live_of_zero_withdraws_a_neighbour() {
    let mut lldp = machine(P1, settings("p1", 1), Millis(0));
    lldp.input(P1, &frame(&pdu(b"a", 120)), Millis(1));
    lldp.input(P1, &frame(&pdu(b"b", 0)), Millis(2));
    lldp.input(P1, &frame(&pdu(b"a", 0)), Millis(3));
    assert_eq!(changes(&lldp.poll(Millis(3))), [Change::New, Change::Left]);
    let status = &lldp.status()[0];
    assert_eq!((status.neighbours.len(), status.statistics.delete), (0, 1));
}

#[test]
fn a_flood_of_neighbours_displaces_none() {
    let mut lldp = machine(P1, settings("p1", 1), Millis(0));
    for n in 0..NEIGHBOURS_MAX as u32 + 10 {
        lldp.input(P1, &frame(&pdu(&n.to_be_bytes(), 120)), Millis(1));
    }
    // Known ones are still refreshed.
    lldp.input(P1, &frame(&pdu(&0u32.to_be_bytes(), 200)), Millis(2));
    let status = &lldp.status()[0];
    assert_eq!((status.neighbours.len(), status.statistics.drop), (NEIGHBOURS_MAX, 10));
    assert_eq!(status.neighbours.last().unwrap().pdu.ttl_s, 200);
}

#[test]
fn mappings_beyond_a_frame_are_counted() {
    let mappings: BTreeMap<u32, u16> = (0..1000).map(|n| (n, n as u16)).collect();
    let mut lldp = machine(P1, PortSettings { mappings: Arc::new(mappings), ..settings("p1", 1) }, Millis(0));
    let sent = frames(lldp.poll(Millis(5000))).remove(0);
    assert!(sent.len() <= 1514 && sent.len() > 1514 - 5, "{}", sent.len());
    let (parsed, unrecognized) = Pdu::parse(&sent).unwrap();
    let unannounced = lldp.status()[0].unannounced;
    assert_eq!((parsed.assignments.len() + unannounced, unrecognized), (1000, 0));
    assert!(parsed.assignments.iter().enumerate().all(|(n, a)| (a.isid, a.vlan) == (n as u32, n as u16)));
}

#[test]
fn reconfiguration_keeps_neighbours() {
    let mut lldp = machine(P1, settings("p1", 1), Millis(0));
    lldp.input(P1, &frame(&pdu(b"a", 120)), Millis(1));
    lldp.poll(Millis(4000));
    let both = [(P1, PortSettings { system_name: "new".into(), ..settings("p1", 1) }), (P2, settings("p2", 2))];
    lldp.configure(Settings { ports: both.into() }, Millis(4000));
    assert_eq!(lldp.status()[0].neighbours.len(), 1);
    let sent = frames(lldp.poll(Millis(5000)));
    assert_eq!(Pdu::parse(&sent[0]).unwrap().0.system_name.as_deref(), Some(&b"new"[..]));
    assert_eq!((sent.len(), lldp.next_deadline()), (1, Some(Millis(9000))));
    lldp.configure(Settings::default(), Millis(6000));
    assert_eq!(frames(lldp.poll(Millis(6000))).len(), 2);
    lldp.input(P1, &frame(&pdu(b"a", 120)), Millis(6001));
    assert_eq!((lldp.poll(Millis(1 << 40)), lldp.next_deadline(), lldp.status()), (vec![], None, vec![]));
}

/// The verdict of Open vSwitch 4.0.0 on these frames: accepted with this number of unrecognized TLVs, or discarded.
#[test]
fn malformed_frames_are_counted_and_change_nothing() {
    let head = "0180c200000e02000000000188cc";
    let (chassis, port, ttl) = ("02070402000000 0001", "04050565746839", "06020078");
    let ok = format!("{chassis}{port}{ttl}");
    let long = format!("03010700{}", "61".repeat(0x100 - 1));
    for (what, tlvs, expected) in [
        ("complete", format!("{ok}0000"), Some(0)),
        ("no end TLV", ok.clone(), Some(0)),
        ("padding behind the end", format!("{ok}0000ffff"), Some(0)),
        ("unknown TLV", format!("{ok}12036162630000"), Some(1)),
        ("unknown organization", format!("{ok}fe070001020361 62630000"), Some(1)),
        ("longest chassis id", format!("030007{}{port}{ttl}", "61".repeat(255)), Some(0)),
        ("short organization", format!("{ok}fe0200010000"), None),
        ("wrong order", format!("{port}{chassis}{ttl}0000"), None),
        ("no time to live", format!("{chassis}{port}0000"), None),
        ("two times to live", format!("{ok}{ttl}0000"), None),
        ("TLV beyond the frame", format!("{ok}0bff00"), None),
        ("short chassis id", format!("020104{port}{ttl}0000"), None),
        ("chassis id too long", format!("{long}6161{port}{ttl}0000"), None),
        ("short element", format!("{ok}fe1800040d0b{}0000", "00".repeat(20)), None),
        ("half an assignment", format!("{ok}fe2700040d0c{}0000", "00".repeat(35)), None),
        ("nothing", String::new(), None),
    ] {
        let mut lldp = machine(P1, settings("p1", 1), Millis(0));
        lldp.input(P1, &bytes(&format!("{head}{tlvs}").replace(' ', "")), Millis(1));
        let status = &lldp.status()[0];
        let neighbours = usize::from(expected.is_some());
        assert_eq!((status.neighbours.len(), lldp.effects.len()), (neighbours, neighbours), "{what}");
        let expected = expected.map_or((1, 0), |unrecognized| (0, unrecognized));
        assert_eq!((status.statistics.rx_discarded, status.statistics.rx_unrecognized), expected, "{what}");
    }
}

#[test]
fn vlan_tags_are_skipped() {
    let plain = frame(&pdu(b"a", 120));
    let tagged = [&plain[..12], &[0x88, 0xa8, 0, 1, 0x81, 0, 0, 5], &plain[12..]].concat();
    assert_eq!(Pdu::parse(&tagged), Pdu::parse(&plain));
    assert_eq!(Pdu::parse(&tagged[..18]), Err(crate::Malformed::NotLldp));
}

/// The shutdown LLDPDUs among effects, with their ports and senders.
fn shutdowns(effects: Vec<Effect>) -> Vec<(BridgePort, Vec<u8>, Vec<u8>)> {
    let shutdown = |effect| {
        let Effect::Send { port, frame } = effect else { return None };
        let (pdu, _) = Pdu::parse(&frame).unwrap();
        (pdu.ttl_s == 0).then_some((port, pdu.chassis_id, pdu.port_id))
    };
    effects.into_iter().filter_map(shutdown).collect()
}

#[test]
fn a_shutdown_pdu_has_the_mandatory_tlvs_alone() {
    let mut lldp = machine(P1, settings("p1", 0xaa55_aa55_0000), Millis(0));
    lldp.remove(P1);
    let expected = "0180c200000eaa55aa55000088cc020704aa55aa550000040305703106020000 0000".replace(' ', "");
    assert_eq!(frames(lldp.poll(Millis(0))), [bytes(&expected)]);
}

#[test]
fn ports_withdraw_what_they_announced() {
    let mut now = Millis(1000);
    let mut lldp = Lldp::new();
    let two = Settings { ports: [(P1, settings("a", 1)), (P2, settings("b", 2))].into() };
    lldp.configure(two.clone(), now);
    assert_eq!(shutdowns(lldp.poll(now)), []);
    // Changed contents do not change the identity.
    let other = PortSettings { system_name: "name".into(), ..settings("a", 1) };
    lldp.configure(Settings { ports: [(P1, other), (P2, settings("b", 2))].into() }, now);
    assert_eq!((shutdowns(lldp.poll(now)), lldp.next_deadline()), (vec![], Some(now.after(TRANSMIT_INTERVAL_MS))));
    let of = |port: BridgePort, name: &str, mac: u8| {
        (port, vec![CHASSIS_MAC, 0, 0, 0, 0, 0, mac], [&[PORT_NAME], name.as_bytes()].concat())
    };
    // LLDP is disabled on a port, with its last frame due at once.
    lldp.configure(one_port(P1, settings("a", 1)), now);
    assert_eq!(lldp.next_deadline(), Some(Millis(0)));
    assert_eq!(shutdowns(lldp.poll(now)), [of(P2, "b", 2)]);
    // The old identity ends before the new one is announced; the port keeps its neighbours.
    lldp.input(P1, &frame(&pdu(b"x", 120)), now);
    lldp.poll(now);
    lldp.configure(one_port(P1, settings("a", 7)), now);
    lldp.configure(one_port(P1, settings("c", 7)), now);
    assert_eq!(shutdowns(lldp.poll(now)), [of(P1, "a", 1), of(P1, "a", 7)]);
    let status = &lldp.status()[0];
    assert_eq!((status.neighbours.len(), status.statistics.tx), (1, 2));
    // A port is removed, and nothing of it is left.
    now = now.after(TRANSMIT_INTERVAL_MS);
    lldp.remove(P2);
    lldp.remove(P1);
    assert_eq!((shutdowns(lldp.poll(now)), lldp.next_deadline()), (vec![of(P1, "c", 7)], None));
    lldp.configure(Settings::default(), now);
    assert_eq!((lldp.poll(now), lldp.status()), (vec![], vec![]));
}

/// A frame in transit: its arrival time, a unique number, its receiver, and its bytes.
type Sent = (Millis, u64, usize, Vec<u8>);

/// A link between two machines, which loses, duplicates and reorders frames.
struct Link {
    rng: Rng,
    up: bool,
    delay_max_ms: u64,
    lost_percent: u64,
    under_way: BinaryHeap<Reverse<Sent>>,
    order: u64,
}

impl Link {
    fn send(&mut self, to: usize, frame: Vec<u8>, now: Millis) {
        let copies = if self.rng.below(10) == 0 { 2 } else { 1 };
        for _ in 0..copies {
            if !self.up || self.rng.below(100) < self.lost_percent {
                continue;
            }
            self.order += 1;
            let arrival = now.after(self.rng.below(self.delay_max_ms + 1));
            self.under_way.push(Reverse((arrival, self.order, to, frame.clone())));
        }
    }

    /// Runs both machines until `end`; polls each at its own deadlines, and never otherwise.
    fn run(&mut self, ends: &mut [Lldp; 2], now: &mut Millis, end: Millis) -> Vec<(usize, Change)> {
        let mut seen = Vec::new();
        loop {
            let arrival = self.under_way.peek().map(|next| next.0.0);
            let due = ends.iter().filter_map(Lldp::next_deadline).min();
            let Some(next) = arrival.into_iter().chain(due).min().filter(|next| *next <= end) else { break };
            *now = (*now).max(next);
            if arrival == Some(next) && due.is_none_or(|due| due > next) {
                let (_, _, to, frame) = self.under_way.pop().unwrap().0;
                ends[to].input(P1, &frame, *now);
                continue;
            }
            for (n, machine) in ends.iter_mut().enumerate() {
                for effect in machine.poll(*now) {
                    match effect {
                        Effect::Send { frame, .. } => self.send(1 - n, frame, *now),
                        Effect::Neighbour { change, .. } => seen.push((n, change)),
                    }
                }
                assert!(machine.next_deadline().is_none_or(|next| next > *now), "a poll leaves nothing that is due");
            }
        }
        *now = end;
        seen
    }
}

tally::proptest! {
    /// Over a bad link both ends discover each other and keep their neighbour; when it is cut both remove it within a
    /// time to live.
    #[test]
    fn two_machines_over_a_bad_link(seed: u64, delay_max_ms in 0u64..20_000, lost_percent in 0u64..60, is_good: bool) {
        let (delay_max_ms, lost_percent) = if is_good { (0, 0) } else { (delay_max_ms, lost_percent) };
        let mut now = Millis(1_000_000);
        let rng = Rng::seeded(seed);
        let mut link = Link { rng, up: true, delay_max_ms, lost_percent, under_way: BinaryHeap::new(), order: 0 };
        let mut ends = [machine(P1, settings("a", 1), now), machine(P1, settings("b", 2), now)];
        let end = now.after(600_000);
        let seen = link.run(&mut ends, &mut now, end);
        // With 24 LLDPDUs in a time to live, hardly ever are all of them lost.
        prop_assert_eq!(seen.iter().filter(|(_, change)| *change == Change::New).count(), 2);
        prop_assert_eq!(seen.len(), 2);
        for (n, name) in [(0, &b"\x05b"[..]), (1, b"\x05a")] {
            let status = &ends[n].status()[0];
            prop_assert_eq!(&status.neighbours[0].pdu.port_id, name);
            prop_assert_eq!((status.neighbours.len(), status.statistics.tx), (1, 120));
            prop_assert_eq!(status.statistics.rx_discarded + status.statistics.rx_unrecognized, 0);
        }
        // One end is disabled and enabled again: the other forgets it, unless frames were lost or overtook each other.
        if (delay_max_ms, lost_percent) == (0, 0) {
            ends[0].configure(Settings::default(), now);
            let end = now.after(1000);
            prop_assert_eq!(link.run(&mut ends, &mut now, end), [(1, Change::Left)]);
            ends[0].configure(one_port(P1, settings("a", 1)), now);
            let end = now.after(60_000);
            prop_assert_eq!(link.run(&mut ends, &mut now, end).len(), 2);
        }
        link.up = false;
        let end = now.after(delay_max_ms + u64::from(TTL_S) * 1000);
        let mut seen = link.run(&mut ends, &mut now, end);
        seen.sort_by_key(|(n, _)| *n);
        prop_assert_eq!(seen, [(0, Change::Expired), (1, Change::Expired)]);
    }

    /// The neighbours equal those of a naive twin that examines every frame ever received.
    #[test]
    fn neighbours_agree_with_a_naive_twin(
        steps in prop::collection::vec((0u64..3000, 0u8..6, 0u16..8, any::<bool>()), 1..80)
    ) {
        let (mut lldp, mut now) = (machine(P1, settings("p1", 1), Millis(0)), Millis(0));
        let mut heard: Vec<(Millis, u8, u16)> = Vec::new();
        for (ms, chassis, ttl_s, broken) in steps {
            now = now.after(ms);
            let mut frame = frame(&pdu(&[chassis], ttl_s));
            if broken {
                frame.truncate(frame.len() - 9);
            } else {
                heard.push((now, chassis, ttl_s));
            }
            lldp.poll(now);
            lldp.input(P1, &frame, now);
            let last = |chassis| heard.iter().rev().find(|(_, of, _)| *of == chassis);
            let valid = |chassis: &u8| last(*chassis).is_some_and(|(at, _, ttl)| now < at.after(u64::from(*ttl) * 1000));
            let expected: BTreeSet<u8> = (0..6).filter(valid).collect();
            let known = lldp.status()[0].neighbours.iter().map(|n| n.pdu.chassis_id[1]).collect::<BTreeSet<_>>();
            prop_assert_eq!(known, expected);
        }
    }

    /// A written PDU is read back, but for assignments that do not fit.
    #[test]
    fn a_pdu_survives_the_wire(
        chassis_id in prop::collection::vec(any::<u8>(), 2..=256),
        port_id in prop::collection::vec(any::<u8>(), 2..=256),
        ttl_s: u16,
        name in prop::option::of(prop::collection::vec(any::<u8>(), 0..=255)),
        element in prop::option::of((0u8..64, 0u8..64, 0u16..4096, 0u64..1 << 48, 0u8..8, 0u16..1024, any::<[u8; 2]>())),
        assignments in prop::collection::vec((0u8..16, 0u16..4096, 0u32..1 << 24), 0..400),
    ) {
        let element = element.map(|(kind, state, management_vlan, mac, connection, smlt, mlt)| Element {
            kind, state, management_vlan,
            system_id: SystemId { mac: MacAddr::from_u64(mac), connection, smlt, mlt },
        });
        let assignments = assignments.into_iter()
            .map(|(status, vlan, isid)| Assignment { status: AssignmentStatus(status), vlan, isid }).collect();
        let pdu = Pdu { chassis_id, port_id, ttl_s, system_name: name.clone(), system_description: name, element, assignments };
        let (frame, left_out) = pdu.write(MacAddr::from_u64(1));
        prop_assert!(frame.len() <= crate::pdu::FRAME_MAX);
        let (parsed, unrecognized) = Pdu::parse(&frame).unwrap();
        let kept = pdu.assignments.len() - left_out;
        prop_assert_eq!((&parsed.assignments[..], unrecognized), (&pdu.assignments[..kept], 0));
        prop_assert_eq!(Pdu { assignments: vec![], ..parsed }, Pdu { assignments: vec![], ..pdu });
    }

    /// No bytes make the machine panic, and bytes that are no LLDPDU change no neighbour.
    #[test]
    fn any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..200, byte: u8, valid: bool) {
        if valid {
            bytes = frame(&with_answers(&[(2, 200, 100)]));
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        let mut lldp = machine(P1, settings("p1", 1), Millis(0));
        lldp.input(P1, &frame(&pdu(b"a", 120)), Millis(0));
        lldp.input(P1, &bytes, Millis(1));
        let status = &lldp.status()[0];
        let discarded = Pdu::parse(&bytes).is_err();
        prop_assert_eq!(status.statistics.rx_discarded, u64::from(discarded));
        prop_assert!(!discarded || status.neighbours.len() == 1);
    }
}

#[test]
fn identifiers_are_formatted_by_subtype() {
    let chassis = [&b"\x04\x02\0\0\0\0\x01"[..], b"\x07name", b"\x05\x01\x0a\0\0\x01", b""].map(show::chassis);
    assert_eq!(chassis, ["02:00:00:00:00:01", "name", "5/01:0a:00:00:01", ""]);
    let port = [&b"\x03\x02\0\0\0\0\x01"[..], b"\x05eth\x1b", b"\x04\x01\x0a\0\0\x01"].map(show::port);
    assert_eq!(port, ["02:00:00:00:00:01", "eth?", "4/01:0a:00:00:01"]);
}
