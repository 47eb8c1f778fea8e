//! Frames and output of Open vSwitch 4.0.0, and single steps.

use super::*;
use crate::select::{Candidate, select};
use crate::show;
use base::rng::Rng;
use proptest::prelude::*;

/// Sent by Open vSwitch 4.0.0 on port 1 of an active bond of two: at first, then to a partner.
const FIRST: &str =
    "0180c2000002aa55aa550001880901010114fffeaa66aa6600000001ffff0001bf0000000214000000000000000000000000000002";
const TO_PARTNER: &str =
    "0180c2000002aa55aa550001880901010114fffeaa66aa6600000001ffff00013f0000000214fffeaa66aa6600010003ffff0003bf";

/// A whole frame from its beginning up to the partner's state.
fn whole(beginning: &str) -> Vec<u8> {
    bytes(&format!("{beginning}0000000310{}", "00".repeat(66)))
}

/// The information of a partner on its port `number`.
fn partner(number: u16) -> Info {
    Info {
        system_priority: 65534,
        system: MacAddr([0xaa, 0x66, 0xaa, 0x66, 0, 1]),
        key: 3,
        port_priority: 65535,
        port: number,
        state: State(0x3f),
    }
}

fn frame_of(actor: Info) -> Vec<u8> {
    Pdu { actor, partner: Info::default() }.frame(MacAddr::from_u64(9))
}

#[test]
fn frames_equal_those_of_open_vswitch() {
    let mut lacp = machine(bond(Mode::Active, Timeout::Fast, [1, 2]), Millis(0));
    assert_eq!(lacp.next_deadline(), Some(Millis(0)));
    let sent = frames(lacp.poll(Millis(0)));
    assert_eq!((sent.len(), &sent[0]), (2, &(port(1), whole(FIRST))));
    lacp.input(port(1), &frame_of(Info { state: State(0xbf), ..partner(3) }), Millis(10));
    assert_eq!(frames(lacp.poll(Millis(10)))[0], (port(1), whole(TO_PARTNER)));
    assert!(lacp.next_deadline().is_some_and(|deadline| Millis(10) < deadline && deadline <= Millis(1000)));
}

#[test]
fn output_equals_that_of_open_vswitch() {
    let mut one = bond(Mode::Active, Timeout::Slow, [5]);
    one.system_priority = 65535;
    let mut lacp = machine(one, Millis(0));
    lacp.poll(Millis(0));
    lacp.input(port(5), &frame_of(Info { state: State(0xbf), ..partner(3) }), Millis(1));
    lacp.poll(Millis(1));
    let other = |whose: &str, system: &str, numbers: [u32; 4], state: &str| {
        let [system_priority, port_id, port_priority, key] = numbers;
        format!(
            "\n  {whose} sys_id: {system}\n  {whose} sys_priority: {system_priority}\n  {whose} port_id: {port_id}\n  \
             {whose} port_priority: {port_priority}\n  {whose} key: {key}\n  {whose} state:{state}\n"
        )
    };
    let head = "---- bond0 ----\n  status: active negotiated\n  sys_id: aa:66:aa:66:00:00\n  sys_priority: 65535\n  \
                aggregation key: 5\n  lacp_time: slow\n\nmember: p5: current attached\n  port_id: 5\n  port_priority: 65535\n  \
                may_enable: true\n";
    let actor = " activity synchronized collecting distributing";
    let flags = " activity timeout aggregation synchronized collecting distributing expired";
    let shown = [
        head,
        &other("actor", "aa:66:aa:66:00:00", [65535, 5, 65535, 5], actor),
        &other("partner", "aa:66:aa:66:00:01", [65534, 3, 65535, 3], flags),
    ];
    assert_eq!(show::show(&lacp.status()), shown.concat());
    assert_eq!(
        show::statistics(&lacp.status()),
        "---- bond0 statistics ----\n\nmember: p5:\n  TX PDUs: 2\n  RX PDUs: 1\n  RX Bad PDUs: 0\n  \
         RX Marker Request PDUs: 0\n  Link Expired: 0\n  Link Defaulted: 0\n  Carrier Status Changed: 0\n"
    );
    lacp.poll(Millis(200_000));
    lacp.poll(Millis(300_000));
    assert!(show::show(&lacp.status()).ends_with("\n  partner state:\n"));
}

/// The verdict of Open vSwitch 4.0.0 on these frames.
#[test]
fn malformed_frames_are_counted_and_change_nothing() {
    let good = frame_of(partner(1));
    let with = |at: usize, byte: u8| {
        let mut frame = good.clone();
        frame[at] = byte;
        frame
    };
    let tagged = |tag: [u8; 4]| [&good[..12], &tag, &good[12..]].concat();
    // Good, bad or marker PDUs.
    for (what, frame, expected) in [
        ("a LACPDU", good.clone(), (1, 0, 0)),
        ("bytes behind it", [&good[..], b"abcd"].concat(), (1, 0, 0)),
        ("another version", with(15, 2), (1, 0, 0)),
        ("another collector TLV", with(56, 4), (1, 0, 0)),
        ("another destination", with(5, 9), (1, 0, 0)),
        ("a VLAN tag", tagged([0x81, 0, 0, 5]), (1, 0, 0)),
        ("cut off", good[..good.len() - 1].to_vec(), (0, 1, 0)),
        ("no payload", good[..14].to_vec(), (0, 1, 0)),
        ("another actor type", with(16, 2), (0, 1, 0)),
        ("another actor length", with(17, 19), (0, 1, 0)),
        ("another partner type", with(36, 1), (0, 1, 0)),
        ("another partner length", with(37, 21), (0, 1, 0)),
        ("another subtype", with(14, 3), (0, 1, 0)),
        ("a marker PDU", with(14, 2), (0, 0, 1)),
        ("a marker PDU cut off", with(14, 2)[..100].to_vec(), (0, 1, 0)),
        ("no frame", Vec::new(), (0, 1, 0)),
    ] {
        let mut lacp = machine(bond(Mode::Passive, Timeout::Slow, [1]), Millis(0));
        lacp.poll(Millis(0));
        lacp.input(port(1), &frame, Millis(1));
        let lines = lacp.poll(Millis(1)).into_iter().filter(|effect| matches!(effect, Effect::Log { .. })).count();
        let Statistics { rx, rx_bad, rx_marker, .. } = lacp.status().remove(0).members[0].statistics;
        let has_partner = lacp.has_partner(port(1)).unwrap();
        assert_eq!((u64::from(has_partner), rx_bad, rx_marker), expected, "{what}");
        assert_eq!((rx, lines as u64), (1, rx_bad + rx_marker), "{what}");
    }
}

#[test]
fn a_flood_is_answered_once_a_turn() {
    let mut lacp = machine(bond(Mode::Active, Timeout::Slow, [1, 2]), Millis(0));
    lacp.poll(Millis(0));
    let mut sent = 0;
    for turn in 0..100 {
        for n in 0..32 {
            lacp.input(port(1), &frame_of(Info { port: n, ..partner(1) }), Millis(turn));
            lacp.input(port(9), &frame_of(partner(1)), Millis(turn));
        }
        sent += frames(lacp.poll(Millis(turn))).len();
    }
    assert!(sent <= 201, "{sent}");
    assert_eq!(lacp.status().remove(0).members[0].statistics.rx, 3200);
}

#[test]
fn a_member_without_carrier_is_silent_and_deaf() {
    let mut down = bond(Mode::Active, Timeout::Fast, [1]);
    down.members.get_mut(&port(1)).unwrap().carrier.up = false;
    let mut lacp = machine(down, Millis(0));
    assert_eq!(frames(lacp.poll(Millis(0))), []);
    lacp.input(port(1), &frame_of(partner(1)), Millis(1));
    let line = "p1: carrier state is DOWN, dropping received LACP PDU.".to_owned();
    assert_eq!(lacp.poll(Millis(1)), [Effect::Log { level: LogLevel::Info, line }]);
    assert_eq!(lacp.may_enable(port(1)), Some(false));
    lacp.carrier(port(1), Carrier { up: true, resets: 1 }, Millis(2000));
    assert_eq!(frames(lacp.poll(Millis(2000))).len(), 1);
    lacp.input(port(1), &frame_of(partner(1)), Millis(2001));
    assert!(lacp.poll(Millis(2001)).contains(&Effect::MayEnable { port: port(1), may_enable: true }));
    lacp.carrier(port(1), Carrier { up: false, resets: 2 }, Millis(2002));
    assert!(lacp.poll(Millis(2002)).contains(&Effect::MayEnable { port: port(1), may_enable: false }));
    assert_eq!(frames(lacp.poll(Millis(4000))), []);
    let status = lacp.status().remove(0).members.remove(0);
    assert_eq!(lacp.member_status(status.port), Some(status.clone()));
    assert_eq!(lacp.member_status(port(99)), None);
    assert_eq!((status.statistics.carrier_changed, status.statistics.rx, status.currency), (2, 2, Currency::Expired));
}

#[test]
fn reconfiguration_keeps_partners() {
    let now = Millis(0);
    let mut lacp = machine(bond(Mode::Active, Timeout::Slow, [1, 2]), now);
    lacp.poll(now);
    for number in [1, 2] {
        lacp.input(port(number), &frame_of(partner(number as u16)), now);
    }
    lacp.poll(now);
    // The same again, a further member, and another bond: those with a partner keep it.
    let three = bond(Mode::Active, Timeout::Slow, [1, 2, 3]);
    let other = bond(Mode::Passive, Timeout::Slow, [7, 8]);
    lacp.configure(Settings { bonds: [((1, "bond0".into()), three), ((1, "b".into()), other)].into() }, now);
    lacp.poll(now);
    let enabled = |lacp: &Lacp| [1, 2, 3, 7].map(|number| lacp.may_enable(port(number)));
    assert_eq!(enabled(&lacp), [Some(true), Some(true), Some(false), Some(false)]);
    assert_eq!(lacp.status().iter().map(|bond| &bond.name[..]).collect::<Vec<_>>(), ["bond0", "b"]);
    // The key is that of the first member, until it leaves.
    lacp.remove(port(1));
    lacp.poll(now);
    assert_eq!((lacp.status()[0].key, enabled(&lacp)[..2].to_vec()), (2, vec![None, Some(true)]));
    lacp.configure(Settings::default(), now);
    assert_eq!((lacp.poll(now), lacp.next_deadline(), lacp.status()), (vec![], None, vec![]));
}

#[test]
fn effects_report_changes_only() {
    let now = Millis(0);
    let mut lacp = machine(bond(Mode::Active, Timeout::Slow, [1]), now);
    let negotiation = |negotiation| Effect::Negotiation { bridge: 1, bond: "bond0".into(), negotiation };
    let reports = |effects: Vec<Effect>| {
        effects.into_iter().filter(|effect| !matches!(effect, Effect::Send { .. })).collect::<Vec<_>>()
    };
    let may_enable = |may_enable| Effect::MayEnable { port: port(1), may_enable };
    assert_eq!(reports(lacp.poll(now)), [negotiation(Negotiation::Negotiated), may_enable(false), Effect::Status]);
    lacp.input(port(1), &frame_of(partner(1)), now);
    assert_eq!(reports(lacp.poll(now)), [may_enable(true), Effect::Status]);
    lacp.input(port(1), &frame_of(partner(1)), now);
    assert_eq!(reports(lacp.poll(now)), []);
    assert_eq!(reports(lacp.poll(Millis(90_000))), [may_enable(false), Effect::Status]);
    assert_eq!(reports(lacp.poll(Millis(93_000))), [negotiation(Negotiation::Configured), Effect::Status]);
}

/// The decision as Open vSwitch's documentation and behaviour have it, by comparison of each member with each other.
fn naive(candidates: &[Candidate], system: MacAddr, fallback: Fallback) -> Vec<bool> {
    let usable = |n: usize| candidates[n].partner.system != system && candidates[n].currency != Currency::Defaulted;
    let works = |n: usize| candidates[n].attached && candidates[n].currency == Currency::Current;
    let key = |n: usize| {
        let Candidate { actor, partner, attached, .. } = candidates[n];
        let by_actor = actor.system_priority < partner.system_priority
            || actor.system_priority == partner.system_priority && actor.system.0 < partner.system.0;
        let of = if by_actor { actor } else { partner };
        (of.system_priority, of.system.0, of.port_priority, of.port, !attached, n)
    };
    let all = 0..candidates.len();
    let beats_all = |n: usize, eligible: &dyn Fn(usize) -> bool| {
        eligible(n) && all.clone().all(|m| m == n || !eligible(m) || key(n) < key(m))
    };
    let lead = all.clone().find(|n| beats_all(*n, &works)).or_else(|| all.clone().find(|n| beats_all(*n, &usable)));
    let same = |n: usize, lead: usize| {
        let (a, b) = (candidates[n].partner, candidates[lead].partner);
        usable(n) && a.system == b.system && a.key == b.key
    };
    let attached = |n: usize| match lead {
        Some(lead) => same(n, lead),
        None => candidates[n].partner.system != system && fallback == Fallback::ActiveBackup,
    };
    all.clone().map(attached).collect()
}

fn any_candidate(rng: &mut Rng) -> Candidate {
    let mut pick = |n: u64| rng.next_u64() % n;
    let currency = [Currency::Current, Currency::Current, Currency::Expired, Currency::Defaulted][pick(4) as usize];
    let info = |system: u64, numbers: [u64; 4]| {
        let [system_priority, key, port_priority, port] = numbers.map(|n| n as u16);
        let system = MacAddr::from_u64(system);
        Info { system_priority, system, key, port_priority, port, state: State(0x3f) }
    };
    let actor = info(2, [1, 1, pick(2), pick(8)]);
    let partner = info(1 + pick(3), [pick(3), pick(2), pick(2), pick(4)]);
    let partner = if currency == Currency::Defaulted { Info::default() } else { partner };
    Candidate { currency, attached: pick(2) == 0, actor, partner }
}

tally::proptest! {
    /// The selection equals the naive twin's, and attached members have one partner.
    #[test]
    fn selection_agrees_with_a_naive_twin(seed: u64, members in 0usize..6, falls_back: bool) {
        let mut rng = Rng::seeded(seed);
        let candidates: Vec<_> = (0..members).map(|_| any_candidate(&mut rng)).collect();
        let (system, fallback) = (MacAddr::from_u64(2), if falls_back { Fallback::ActiveBackup } else { Fallback::Off });
        let selection = select(&candidates, system, fallback);
        prop_assert_eq!(&selection.attached, &naive(&candidates, system, fallback));
        let mut attached = candidates.iter().zip(&selection.attached).filter(|(_, attached)| **attached);
        if let Some((first, _)) = attached.next() {
            let group = |candidate: &Candidate| (candidate.partner.system, candidate.partner.key);
            prop_assert!(attached.all(|(other, _)| group(other) == group(first)));
        }
        for n in selection.loopbacks {
            prop_assert!(!selection.attached[n] && candidates[n].partner.system == system);
        }
    }

    /// A written PDU is read back.
    #[test]
    fn a_pdu_survives_the_wire(seed: u64) {
        let mut rng = Rng::seeded(seed);
        let mut info = || Info {
            system_priority: rng.next_u64() as u16,
            system: MacAddr::from_u64(rng.next_u64() >> 16),
            key: rng.next_u64() as u16,
            port_priority: rng.next_u64() as u16,
            port: rng.next_u64() as u16,
            state: State(rng.next_u64() as u8),
        };
        let pdu = Pdu { actor: info(), partner: info() };
        prop_assert_eq!(SlowFrame::parse(&pdu.frame(MacAddr::from_u64(9))), Ok(SlowFrame::Lacp(pdu)));
    }

    /// No bytes make the machine panic, and bytes that are no LACPDU change nothing but counters.
    #[test]
    fn any_bytes(mut bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0usize..130, byte: u8, valid: bool) {
        if valid {
            bytes = frame_of(partner(1));
            if let Some(place) = bytes.get_mut(at) {
                *place = byte;
            }
        }
        let mut lacp = machine(bond(Mode::Active, Timeout::Slow, [1, 2]), Millis(0));
        lacp.poll(Millis(0));
        let before = lacp.status().remove(0).members;
        lacp.input(port(1), &bytes, Millis(1));
        lacp.poll(Millis(1));
        let after = lacp.status().remove(0).members;
        if SlowFrame::parse(&bytes).is_err() {
            prop_assert_eq!(after[0].statistics.rx_bad, 1);
            prop_assert_eq!((after[0].partner, after[0].currency), (before[0].partner, before[0].currency));
            prop_assert_eq!(&after[1], &before[1]);
        }
    }
}
