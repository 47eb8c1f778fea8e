//! Many sessions on one machine.

use super::*;
use protocols::PortMachine as _;

/// Sessions at 100 ms, two of which are the ends of a link each. Runs for some virtual seconds; returns the machine, the
/// number of frames and the number of polls.
fn run(sessions: u32, seconds: u64) -> (Bfd, u64, u64) {
    let fast = SessionSettings { min_rx_ms: 100, min_tx_ms: 100, ..settings("p") };
    let mut bfd = Bfd::new(5, START);
    bfd.configure((0..sessions).map(|n| (port(n), fast.clone())).collect(), START);
    let (mut now, mut frames, mut polls) = (START, 0, 0);
    let end = START.after(seconds * 1000);
    while let Some(next) = bfd.next_deadline().filter(|next| *next <= end) {
        now = now.max(next);
        polls += 1;
        for effect in bfd.poll(now) {
            let Effect::Send { port: from, frame, .. } = effect else { continue };
            frames += 1;
            bfd.input(port(from.port.0 ^ 1), &frame, now);
        }
    }
    (bfd, frames, polls)
}

/// The virtual seconds are few by default; `BFD_SECONDS=600` runs ten minutes.
#[test]
fn a_thousand_sessions_stay_up() {
    let seconds = std::env::var("BFD_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4);
    let (bfd, frames, polls) = run(1000, seconds);
    for (port, status) in bfd.statuses() {
        assert_eq!((status.state, status.statistics.flaps), (State::Up, 1), "{port}");
    }
    // Packets each 75 to 100 ms, after a start of two seconds.
    assert!(frames <= 1000 * (seconds * 1000 / 75 + 1) && frames >= 1000 * (seconds - 2) * 10, "{frames}");
    // At most one poll a millisecond for timers, and one for the frames of that millisecond.
    assert!(polls <= 2 * (seconds * 1000 + 1), "{polls}");
    tally::report!("1000 sessions, {seconds} s, {frames} frames, {polls} polls");
}

#[test]
fn a_poll_visits_due_sessions_only() {
    let (mut bfd, ..) = run(200, 3);
    let mut now = START.after(3000);
    for _ in 0..50 {
        now = now.after(1);
        let due: Vec<_> =
            bfd.ports.iter().filter(|(_, session)| session.deadline() <= now).map(|(port, _)| port).collect();
        let sent: Vec<_> = bfd
            .poll(now)
            .into_iter()
            .filter_map(|effect| if let Effect::Send { port, .. } = effect { Some(port) } else { None })
            .collect();
        assert!(sent.len() <= due.len() && due.len() < 20, "{} of {}", sent.len(), due.len());
        for port in sent {
            assert!(due.contains(&port));
        }
        assert!(bfd.next_deadline().is_some_and(|next| next > now));
    }
}
