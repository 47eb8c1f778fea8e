//! Samples for collectors on this host: which packets, with which probability, and how long.

mod common;

use base::{DpPort, DropReason};
use common::{TestHandler, numbered_frame, out, stepped, two_ports};
use dpif::{Cookie, DpAction, Dpif, Psample};
use packet::{Gso, GsoKind, Packet};

fn psample(group: u32) -> DpAction {
    DpAction::Psample(Psample { group, cookie: Cookie::of_observation(1, group) })
}

fn sample(probability: u32, actions: &[DpAction]) -> DpAction {
    DpAction::Sample { probability, actions: actions.into() }
}

#[test]
fn samples_have_the_probability_of_the_innermost_choice() {
    let dp = stepped();
    let (_, b) = two_ports(&dp);
    let handler = TestHandler::always(vec![]);
    dp.set_handler(handler.clone());
    let through = |packet: Packet, actions: &[DpAction]| {
        dp.execute(DpPort(1), packet, &actions.into()).expect("executed");
        std::mem::take(&mut *handler.sampled.lock())
    };
    let frame = || Packet::from_slice(&numbered_frame(1, 100));
    let nearly = u32::MAX - 1;
    let actions = [
        psample(1),
        sample(nearly, &[psample(2), DpAction::Clone([psample(3)].into()), sample(u32::MAX, &[psample(4)])]),
        psample(5),
        out(2),
    ];
    let shown: Vec<_> = through(frame(), &actions).into_iter().map(|(what, p, len)| (what.group, p, len)).collect();
    let expected = [(1, u32::MAX), (2, nearly), (3, nearly), (4, u32::MAX), (5, u32::MAX)];
    assert_eq!(shown, expected.map(|(group, p)| (group, p, 100)));
    assert_eq!(b.sent().iter().map(Packet::len).collect::<Vec<_>>(), [100]);
    // A sample resets a pending truncation, as an output does.
    let sampled = through(frame(), &[DpAction::Trunc(20), psample(1), psample(2), out(2)]);
    assert_eq!(sampled.iter().map(|(_, _, len)| *len).collect::<Vec<_>>(), [20, 100]);
    assert_eq!(b.sent().iter().map(Packet::len).collect::<Vec<_>>(), [100]);
    // A GSO packet is one sample.
    let mut large = Packet::from_slice(&numbered_frame(1, 2500));
    large.offload.gso = Some(Gso { kind: GsoKind::TcpV4, size: 1000, ecn: false });
    assert_eq!(through(large, &[psample(1), DpAction::Drop(DropReason::Action)])[0].2, 2500);
    // A sample is no output.
    assert_eq!(through(frame(), &[psample(1)]).len(), 1);
    assert_eq!(dp.drops(), [(DropReason::Action, 2)]);
}
