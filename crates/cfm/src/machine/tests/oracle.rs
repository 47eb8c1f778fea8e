//! Sequences of CCMs that were sent to Open vSwitch 4.0.0, with the answers it gave.

use super::*;

#[test]
fn output_with_and_without_remote_points() {
    let mut driven = Driven::new(PointSettings { extended: true, ..settings("d0", 1) });
    driven.receive(|_| {});
    driven.cfm.force(P1, Some(true), START);
    assert_eq!(
        show::points([&driven.status()], driven.now),
        "---- d0 ----\nMPID 1: extended fault_override\n  fault: override\n  average health: undefined\n  opstate: up\n  \
         remote_opstate: up\n  interval: 1000ms\n  next CCM tx: 1000ms\n  next fault check: 3500ms\nRemote MPID 2\n  \
         recv since check: true\n  opstate: up\n"
    );
    let driven = Driven::new(settings("d1", 2));
    assert_eq!(
        show::points([&driven.status()], driven.now),
        "---- d1 ----\nMPID 2:\n  average health: undefined\n  opstate: up\n  remote_opstate: up\n  \
         interval: 1000ms\n  next CCM tx: 1000ms\n  next fault check: 3500ms\n"
    );
}

#[test]
fn faults_and_health_over_time() {
    let mut driven = Driven::new(settings("d0", 1));
    driven.wait(6000);
    assert_eq!((driven.faults(), driven.status().statistics.flaps), ("recv".into(), 1));
    driven.keep_up(31, |_| {});
    let status = driven.status();
    assert_eq!((driven.faults(), status.health, status.statistics.flaps), (String::new(), Some(90), 2));
    driven.keep_up(5, |ccm| ccm.rdi = true);
    assert_eq!((driven.faults(), driven.status().health), ("rdi".into(), Some(90)));
    driven.keep_up(5, |_| {});
    assert_eq!((driven.faults(), driven.status().health), (String::new(), Some(76)));
    driven.take_lines();
    driven.keep_up(5, |ccm| ccm.interval_code = 5);
    assert_eq!((driven.faults(), driven.status().statistics.flaps), (String::new(), 4));
    assert_eq!(driven.take_lines(), ["d0: received a CCM with an unexpected interval (5) from RMP 2"; 5]);
    driven.keep_up(5, |_| {});
    driven.take_lines();
    driven.keep_up(5, |ccm| ccm.mpid = 1);
    assert_eq!((driven.faults(), driven.status().remote_mpids), ("loopback".into(), vec![1, 2]));
    let loops = driven.take_lines();
    assert_eq!(loops.iter().filter(|line| *line == "d0: received CCM with local MPID 1").count(), 4);
    driven.keep_up(5, |_| {});
    assert_eq!((driven.faults(), driven.status().health), (String::new(), None));
    let expected = [
        "d0: (mpid 2) detected sequence numbers which indicate possible connectivity problems (previous 51) (current 57)",
        "d0: Received no CCM from RMP 1 in the last 5500ms",
        "d0: CFM faults changed from [loopback] to [].",
    ];
    assert_eq!(driven.take_lines(), expected);
}

#[test]
fn another_association_is_a_fault() {
    let mut driven = Driven::new(settings("d0", 1));
    driven.keep_up(7, |_| {});
    driven.take_lines();
    let mut frame = Ccm {
        rdi: false,
        interval_code: 4,
        sequence: 1,
        mpid: 2,
        extended_interval_ms: 0,
        extended_mpid: 0,
        is_down: false,
    }
    .frame(MacAddr::from_u64(0x0a00_0000_0001), DESTINATION, 0);
    frame[30] = b'x';
    for _ in 0..5 {
        driven.input(&frame);
        driven.wait(1000);
    }
    assert_eq!(driven.faults(), "recv maid");
    let lines = driven.take_lines();
    assert_eq!(lines[0], "d0: Received unexpected remote MAID from MAC 0a:00:00:00:00:01");
    assert!(lines.contains(&"d0: CFM faults changed from [] to [recv maid].".to_owned()), "{lines:?}");
    driven.keep_up(10, |_| {});
    assert_eq!(driven.faults(), "");
}

#[test]
fn one_ccm_with_the_local_identifier_is_no_loop_yet() {
    let mut driven = Driven::new(settings("d0", 1));
    driven.receive(|ccm| ccm.mpid = 1);
    driven.wait(3500);
    assert_eq!((driven.faults(), driven.status().remote_mpids), (String::new(), vec![1]));
    driven.receive(|ccm| ccm.mpid = 1);
    driven.wait(3500);
    assert_eq!(driven.faults(), "loopback");
    driven.wait(3500);
    assert_eq!((driven.faults(), driven.status().statistics.flaps), ("recv".into(), 1));
}

#[test]
fn a_forced_fault_is_no_flap_and_no_defect() {
    let mut driven = Driven::new(settings("d0", 1));
    driven.keep_up(4, |_| {});
    let now = driven.now;
    driven.cfm.force(P1, Some(true), now);
    driven.poll();
    driven.take_sent();
    driven.keep_up(2, |_| {});
    assert_eq!((driven.faults(), driven.status().statistics.flaps), ("override".into(), 0));
    assert!(driven.take_sent().iter().all(|ccm| !ccm.rdi));
    driven.cfm.force(P1, Some(false), now);
    driven.wait(10_000);
    assert_eq!((driven.faults(), driven.status().statistics.flaps), (String::new(), 1));
    let now = driven.now;
    driven.cfm.force(P1, None, now);
    assert_eq!(driven.faults(), "recv");
}

#[test]
fn a_new_interval_begins_at_once() {
    let mut driven = Driven::new(PointSettings { extended: true, ..settings("d0", 1) });
    driven.wait(300);
    driven.take_sent();
    driven.change(|settings| settings.interval_ms = 500);
    let sent = driven.take_sent();
    assert_eq!((sent.len(), sent[0].interval_code, sent[0].extended_interval_ms), (1, 0, 500));
    let status = driven.status();
    assert_eq!((status.next_ccm.since(driven.now), status.next_check.since(driven.now)), (500, 1750));
    driven.take_lines();
    driven.receive(|ccm| (ccm.interval_code, ccm.extended_interval_ms) = (0, 400));
    assert_eq!(driven.take_lines(), ["d0: received a CCM with an unexpected extended interval (400ms) from RMP 2"]);
    driven.change(|settings| settings.vlan = CcmVlan::Fixed(5));
    assert!(driven.take_sent().is_empty());
}
