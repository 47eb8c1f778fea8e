//! Sequences of packets that were sent to Open vSwitch 4.0.0, with the answers it gave.

use super::*;

/// Local and remote state and diagnostics.
fn states(driven: &Driven) -> (State, u8, State, u8) {
    let status = driven.status();
    (status.state, status.diagnostic.0, status.remote.state, status.remote.diagnostic.0)
}

#[test]
fn output_of_a_new_session() {
    let driven = Driven::new(settings("d0"));
    let status = driven.status();
    assert_eq!(
        show::sessions([&status], driven.now).replace(&format!("{:#x}", status.discriminator), "0x2a96d274"),
        format!(
            "---- d0 ----\n  Forwarding: false\n  Detect Multiplier: 3\n  Concatenated Path Down: false\n  \
             TX Interval: Approx 1000ms\n  RX Interval: Approx 1000ms\n  Detect Time: now -1000000ms\n  \
             Next TX Time: now +{}ms\n  Last TX Time: now +0ms\n\n  Local Flags: none\n  Local Session State: down\n  \
             Local Diagnostic: No Diagnostic\n  Local Discriminator: 0x2a96d274\n  Local Minimum TX Interval: 1000ms\n  \
             Local Minimum RX Interval: 1000ms\n\n  Remote Flags: none\n  Remote Session State: down\n  \
             Remote Diagnostic: No Diagnostic\n  Remote Discriminator: 0x0\n  Remote Minimum TX Interval: 0ms\n  \
             Remote Minimum RX Interval: 1ms\n  Remote Detect Multiplier: 0\n",
            status.next_tx.since(driven.now)
        )
    );
    let pairs = show::column(&status).map(|(key, value)| format!("{key}={value}"));
    let expected = [
        "diagnostic=No Diagnostic",
        "flap_count=0",
        "forwarding=false",
        "remote_diagnostic=No Diagnostic",
        "remote_state=down",
        "state=down",
    ];
    assert_eq!(pairs, expected);
}

#[test]
fn log_of_a_session() {
    let mut driven = Driven::new(settings("d0"));
    driven.receive(|control| (control.state, control.your_discriminator) = (State::Down, 0));
    driven.receive(|control| control.state = State::Init);
    driven.wait(10_000);
    driven.receive(|control| control.state = State::Init);
    driven.receive(|control| (control.state, control.diagnostic) = (State::Down, Diagnostic::EXPIRED));
    let change = |from: &str, to: &str| {
        let [from, to] = [from, to].map(|text| {
            let (state, diagnostic) = text.split_once(' ').unwrap();
            format!("(bfd.SessionState: {state}, bfd.LocalDiag: \"{diagnostic}\")")
        });
        format!("d0: BFD state change: {from} -> {to}")
    };
    let expected = [
        change("admin_down No Diagnostic", "down No Diagnostic"),
        "Interface d0 remote mult value 0 changed to 3".to_owned(),
        "d0: New remote min_rx.".to_owned(),
        change("down No Diagnostic", "init No Diagnostic"),
        change("init No Diagnostic", "up No Diagnostic"),
        change("up No Diagnostic", "down Control Detection Time Expired"),
        "d0: New remote min_rx.".to_owned(),
        change("down Control Detection Time Expired", "up Control Detection Time Expired"),
        change("up Control Detection Time Expired", "down Neighbor Signaled Session Down"),
        "d0: Remote signaled STATE_DOWN.".to_owned(),
    ];
    assert_eq!(driven.take_lines(), expected);
}

#[test]
fn refused_packets_change_nothing() {
    let mut driven = Driven::up(settings("d0"));
    driven.take_lines();
    let before = driven.status();
    let is = before.discriminator;
    type Change = fn(&mut Control, u32);
    let changes: [(&str, Change); 4] = [
        ("Incorrect your_disc.", |control, is| control.your_discriminator = is ^ 1),
        ("Null your_disc.", |control, _| control.your_discriminator = 0),
        ("Null your_disc.", |control, _| (control.your_discriminator, control.state) = (0, State::Init)),
        ("Zero multiplier.", |control, _| control.multiplier = 0),
    ];
    for (line, change) in changes {
        driven.receive(|control| change(control, is));
        assert_eq!(driven.take_lines(), [format!("d0: {line}")]);
    }
    let mut short = frame(&driven.control());
    // The lengths of UDP and IP.
    (short[39], short[17]) = (8 + 20, 20 + 8 + 20);
    driven.input(&short);
    let expected = ["d0: Received too-short BFD control message (only 20 bytes long, at least 24 required)."];
    assert_eq!(driven.take_lines(), expected);
    let after = driven.status();
    assert_eq!((after.statistics.rx, after.statistics.rx_refused), (before.statistics.rx + 5, 5));
    assert_eq!(SessionStatus { statistics: before.statistics, ..after }, before);
}

#[test]
fn states_follow_the_remote_system() {
    use State::*;
    let mut driven = Driven::up(settings("d0"));
    let mut step = |state: State, diagnostic: u8| {
        driven.receive(|control| (control.state, control.diagnostic) = (state, Diagnostic(diagnostic)));
        states(&driven)
    };
    assert_eq!(step(AdminDown, 7), (Down, 3, Down, 0));
    assert_eq!(step(AdminDown, 7), (Down, 3, AdminDown, 7));
    assert_eq!(step(Up, 0), (Down, 3, Up, 0));
    assert_eq!(step(Down, 1), (Init, 3, Down, 1));
    assert_eq!(step(Down, 1), (Init, 3, Down, 1));
    assert_eq!(step(AdminDown, 7), (Down, 3, Down, 0));
    assert_eq!(step(Init, 0), (Up, 3, Init, 0));
    assert_eq!(step(Down, 1), (Down, 3, Down, 0));
    assert_eq!(step(Down, 1), (Init, 3, Down, 1));
    assert_eq!(step(Up, 1), (Up, 3, Up, 1));
}

#[test]
fn diagnostics_of_the_remote_system_decide_about_forwarding() {
    let mut driven = Driven::up(settings("d0"));
    let mut flaps = Vec::new();
    for diagnostic in [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 31] {
        driven.receive(|control| control.diagnostic = Diagnostic(diagnostic));
        flaps.push((driven.status().forwarding, driven.status().statistics.flaps));
    }
    let expected = [
        (true, 1),
        (true, 1),
        (true, 1),
        (true, 1),
        (true, 1),
        (false, 2),
        (false, 2),
        (true, 3),
        (false, 4),
        (true, 5),
        (true, 5),
    ];
    assert_eq!(flaps, expected);
}

#[test]
fn a_concatenated_path_that_is_down_is_announced() {
    let mut driven = Driven::up(settings("d0"));
    driven.change(|settings| settings.cpath_down = true);
    assert_eq!(driven.status().diagnostic, Diagnostic::CONCATENATED_PATH_DOWN);
    driven.take_sent();
    driven.wait(1000);
    assert_eq!(driven.take_sent()[0].diagnostic, Diagnostic::CONCATENATED_PATH_DOWN);
    driven.wait(5000);
    assert_eq!(states(&driven), (State::Down, 6, State::Down, 0));
    driven.change(|settings| settings.cpath_down = false);
    assert_eq!(driven.status().diagnostic, Diagnostic::NONE);
}

#[test]
fn intervals_follow_the_remote_system() {
    let mut driven = Driven::up(SessionSettings { min_rx_ms: 1000, ..settings("d0") });
    driven.receive(|control| control.required_min_rx_us = 0);
    assert_eq!((driven.status().tx_interval_ms, driven.status().remote.min_rx_ms), (100, 1));
    driven.receive(|control| {
        (control.required_min_rx_us, control.desired_min_tx_us, control.multiplier) =
            (4_294_967_000, 4_294_967_000, 255);
    });
    let status = driven.status();
    assert_eq!((status.tx_interval_ms, status.rx_interval_ms), (4_294_967, 4_294_967));
    assert_eq!(status.detection.since(driven.now), 1_095_216_585);
    assert!((3_221_226..=4_294_967).contains(&status.next_tx.since(status.last_tx)));
}
