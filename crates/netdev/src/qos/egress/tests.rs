//! Stages of a port in virtual time.

use super::*;
use crate::dummy::Registry;

const SECOND: u64 = 1_000_000_000;

fn spec(kind: &str, config: &[(&str, &str)], queues: &[(u32, &[(&str, &str)])]) -> QosSpec {
    let options = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    QosSpec {
        kind: kind.to_owned(),
        config: options(config),
        queues: queues.iter().map(|(id, config)| (*id, options(config))).collect(),
    }
}

/// The state with a stage, without a thread.
fn state(spec: &QosSpec) -> State {
    let device = Registry::new().open("p1", "dummy").unwrap();
    let mut state = State::default();
    state.stage = stage(spec, &*device, &mut state, 0).unwrap();
    state.spec = Some(spec.clone());
    state
}

fn frames(n: usize, len: usize, queue: u32) -> Batch {
    let mut packet = Packet::from_slice(&vec![0; len]);
    packet.metadata_mut().skb_priority = queue;
    vec![packet; n]
}

#[test]
fn an_egress_policer_counts_bytes_behind_the_ethernet_header() {
    let mut state = state(&spec("egress-policer", &[("cir", "1000"), ("cbs", "4600")], &[]));
    let mut batch = frames(110, 60, 0);
    let report = state.send(0, &mut batch);
    assert_eq!((batch.len(), report.dropped), (100, vec![(DropReason::EgressPolicing, 10)]));
    let mut batch = frames(110, 60, 7);
    assert_eq!((state.send(SECOND, &mut batch).n_dropped(), batch.len()), (89, 21));
    let report = state.report().unwrap();
    assert_eq!((report.kind.as_str(), report.config), ("egress-policer", vec![("cir", 1000), ("cbs", 4600)]));
    assert!(report.queues.is_empty());
}

#[test]
fn a_two_rate_policer_has_a_marker_for_each_queue_and_one_for_the_port() {
    let first: &[(&str, &str)] = &[("cir", "460"), ("cbs", "460"), ("eir", "460"), ("ebs", "460")];
    let port = [("cir", "920"), ("cbs", "920"), ("eir", "230"), ("ebs", "230")];
    let mut state = state(&spec("trtcm-policer", &port, &[(1, first)]));
    // The queue marks 10 green, 10 yellow; the port passes the green ones by its committed rate, and 5 yellow ones.
    let mut batch = frames(40, 60, 1);
    assert_eq!((state.send(0, &mut batch).n_dropped(), batch.len()), (25, 15));
    // Queue 0 has the port's rates; 10 of the committed rate remain.
    let mut batch = frames(40, 60, 9);
    assert_eq!((state.send(0, &mut batch).n_dropped(), batch.len()), (30, 10));
    let report = state.report().unwrap();
    let counters = |id| report.queues[&id].counters.unwrap();
    assert_eq!(counters(1), QueueCounters { tx_packets: 15, tx_bytes: 900, tx_errors: 25 });
    assert_eq!(counters(0), QueueCounters { tx_packets: 10, tx_bytes: 600, tx_errors: 30 });
}

#[test]
fn a_shaper_delays_and_drops_what_its_queue_cannot_hold() {
    // 1,000 bytes per second, a burst of 1,564 bytes.
    let mut state = state(&spec("linux-htb", &[("max-rate", "16000")], &[(5, &[("min-rate", "16000")])]));
    let mut batch = frames(1010, 500, 5);
    let report = state.send(0, &mut batch);
    assert_eq!((report.sent, report.sent_bytes, batch.len()), (1000, 500_000, 0));
    assert_eq!(report.dropped, [(DropReason::ShaperQueueFull, 10)]);
    assert_eq!(state.next(0, &mut batch), Next::Send);
    assert_eq!(batch.len(), 4, "three within the burst, and one that overdraws it");
    batch.clear();
    let Next::Wait(Some(at)) = state.next(0, &mut batch) else { panic!() };
    assert!((1..SECOND).contains(&at));
    assert_eq!((state.next(at, &mut batch), batch.len()), (Next::Send, 1));
    let report = state.report().unwrap();
    let expected = QueueCounters { tx_packets: 5, tx_bytes: 2500, tx_errors: 10 };
    assert_eq!(report.queues[&5].counters, Some(expected));
    assert_eq!(report.queues[&0].counters, Some(QueueCounters::default()));
}

#[test]
fn packets_of_a_shaper_survive_a_change_and_leave_at_its_end() {
    let mut state = state(&spec("linux-htb", &[("max-rate", "16000")], &[(5, &[])]));
    state.send(0, &mut frames(20, 500, 5));
    let device = Registry::new().open("p1", "dummy").unwrap();
    let other = spec("linux-htb", &[("max-rate", "32000")], &[]);
    let new = stage(&other, &*device, &mut state, 0).unwrap();
    let Stage::Htb(old) = std::mem::replace(&mut state.stage, new) else { panic!() };
    state.inherit(*old);
    let Stage::Htb(old) = std::mem::take(&mut state.stage) else { panic!() };
    assert_eq!(old.shaper.stats().map(|(id, stats)| (id, stats.backlog)).collect::<Vec<_>>(), [(0, 20)]);
    state.inherit(*old);
    let mut batch = Batch::new();
    assert_eq!((state.next(0, &mut batch), batch.len()), (Next::Send, 20));
    batch.clear();
    assert_eq!(state.next(0, &mut batch), Next::End);
}

#[test]
fn settings_that_are_missing_or_unknown_are_named() {
    let device = Registry::new().open("p1", "dummy").unwrap();
    let egress = Egress::default();
    let text = |spec: &QosSpec| egress.set(Some(spec), &*device).unwrap_err().to_string();
    assert_eq!(
        text(&spec("egress-policer", &[("cir", "5")], &[])),
        "p1: QoS type egress-policer needs other_config:cbs, a number from 1"
    );
    assert_eq!(text(&spec("linux-sfq", &[], &[])), "p1: QoS type linux-sfq is not supported by ports of type dummy");
    assert!(!egress.is_active() && egress.report().is_none());
    assert!(egress.set(Some(&spec("linux-noop", &[], &[])), &*device).is_ok());
    assert!(!egress.is_active());
}
