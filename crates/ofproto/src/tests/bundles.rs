//! Bundles: atomicity, order, and errors.

use super::*;
use crate::flow_table::Criteria;
use openflow::bundle::{BundleAdd, BundleControl, BundleStep, flag};
use openflow::group::{GroupCommand, GroupMod};
use openflow::switch::ReportedError;

const FLAGS: u16 = flag::ATOMIC | flag::ORDERED;

struct Bundles {
    lab: Lab,
    bridge: Arc<Ofproto>,
    client: Client,
}

impl Bundles {
    fn new() -> Self {
        let mut lab = Lab::new();
        let bridge = lab.bridge("br", 3);
        let client = Client::new(&bridge, PeerKind::Service, Version::V13);
        Self { lab, bridge, client }
    }

    fn control(&self, bundle_id: u32, step: BundleStep, flags: u16) -> Vec<Message> {
        let control = BundleControl { bundle_id, ty: step.wire(false), flags };
        self.client.send(&Message::BundleControl(control))
    }

    /// Takes a step of bundle 5, whose only answer is the reply.
    fn step(&self, step: BundleStep) {
        let done = BundleControl { bundle_id: 5, ty: step.wire(true), flags: 0 };
        assert_eq!(self.control(5, step, FLAGS), [Message::BundleControl(done)]);
    }

    fn add(&self, bundle_id: u32, message: Message) -> Vec<Message> {
        self.client.send(&Message::BundleAdd(Box::new(BundleAdd { bundle_id, flags: FLAGS, message })))
    }

    fn flow(&self, fm: FlowMod) {
        assert_eq!(self.add(5, Message::FlowMod(Form::Standard, Box::new(fm))), []);
    }

    /// The priorities of the flows.
    fn flows(&self) -> Vec<u16> {
        let mut priorities: Vec<u16> =
            self.bridge.collect(&Criteria::any()).iter().map(|r| r.openflow_priority()).collect();
        priorities.sort_unstable();
        priorities
    }
}

fn errors(messages: Vec<Message>) -> Vec<OfpError> {
    let of = |message| match message {
        Message::Error(openflow::switch::ErrorReport { error: ReportedError::Known(error), .. }) => error,
        other => panic!("{other:?}"),
    };
    messages.into_iter().map(of).collect()
}

#[test]
fn a_bundle_is_applied_as_a_whole() {
    let b = Bundles::new();
    b.bridge.flow_mod(&add(Match::ANY, 1, vec![output(2)])).expect("adds");
    b.step(BundleStep::Open);
    let group = GroupMod::new(GroupCommand::Add, 7);
    assert_eq!(b.add(5, Message::GroupMod(group)), []);
    b.flow(command(FlowModCommand::Delete, Match::ANY));
    b.flow(add(Match::ANY, 9, vec![Action::Group(7)]));
    b.flow(add(Match::ANY, 3, vec![output(3)]));
    b.step(BundleStep::Close);
    assert_eq!(b.flows(), [1]);
    b.step(BundleStep::Commit);
    assert_eq!(b.flows(), [3, 9]);
    // The commit removed the bundle.
    assert_eq!(errors(b.control(5, BundleStep::Commit, FLAGS)), [OfpError::BfcBadId]);
}

#[test]
fn a_failing_message_undoes_the_bundle() {
    let b = Bundles::new();
    b.bridge.flow_mod(&add(Match::ANY, 1, vec![output(2)])).expect("adds");
    b.flow(command(FlowModCommand::Delete, Match::ANY));
    b.flow(add(Match::ANY, 9, vec![output(1)]));
    b.flow(add(Match::ANY, 8, vec![Action::Group(7)]));
    b.flow(add(Match::ANY, 7, vec![output(1)]));
    let sent = errors(b.control(5, BundleStep::Commit, FLAGS));
    assert_eq!(sent, [OfpError::BacBadOutGroup, OfpError::BfcMsgFailed]);
    assert_eq!(b.flows(), [1]);
    assert_eq!(errors(b.control(5, BundleStep::Discard, FLAGS)), [OfpError::BfcBadId]);
}

#[test]
fn packets_and_ports_come_after_the_tables() {
    use openflow::packet::PacketOut;
    use openflow::port::{PortMod, config};
    let b = Bundles::new();
    let out = PacketOut {
        buffer_id: None,
        in_port: PortNo::CONTROLLER,
        metadata: Match::ANY,
        actions: vec![Action::Output { port: PortNo::TABLE, max_len: 0 }],
        data: frame(1, 2),
    };
    assert_eq!(b.add(5, Message::PacketOut(out)), []);
    b.flow(add(Match::ANY, 9, vec![output(2)]));
    let mac = b.bridge.port(PortNo(1)).expect("there").spec.mac;
    let port = PortMod { port_no: PortNo(1), hw_addr: mac, config: config::NO_FWD, mask: config::NO_FWD, advertise: 0 };
    assert_eq!(b.add(5, Message::PortMod(port.clone())), []);
    b.step(BundleStep::Commit);
    assert!(b.bridge.port(PortNo(1)).expect("there").config.no_fwd);
    assert_eq!(b.lab.received("br-2").len(), 1);
    // A port that does not exist is an error before anything is applied.
    b.flow(add(Match::ANY, 4, vec![output(2)]));
    assert_eq!(b.add(5, Message::PortMod(PortMod { port_no: PortNo(77), ..port })), []);
    let sent = errors(b.control(5, BundleStep::Commit, FLAGS));
    assert_eq!(sent, [OfpError::PmfcBadPort, OfpError::BfcMsgFailed]);
    assert_eq!(b.flows(), [9]);
}

#[test]
fn errors_about_a_bundle_remove_it() {
    let b = Bundles::new();
    let flow = || Message::FlowMod(Form::Standard, Box::new(add(Match::ANY, 1, vec![])));
    assert_eq!(errors(b.control(5, BundleStep::Close, FLAGS)), [OfpError::BfcBadId]);
    assert_eq!(errors(b.control(5, BundleStep::Open, 4)), [OfpError::BfcBadFlags]);
    b.step(BundleStep::Open);
    // An error about the bundle removes it.
    assert_eq!(errors(b.control(5, BundleStep::Open, FLAGS)), [OfpError::BfcBadId]);
    b.step(BundleStep::Open);
    assert_eq!(errors(b.control(5, BundleStep::Close, flag::ATOMIC)), [OfpError::BfcBadFlags]);
    b.step(BundleStep::Open);
    b.step(BundleStep::Close);
    assert_eq!(errors(b.add(5, flow())), [OfpError::BfcBundleClosed]);
    b.step(BundleStep::Open);
    assert_eq!(errors(b.control(5, BundleStep::Commit, 0)), [OfpError::BfcBadFlags]);
    b.step(BundleStep::Open);
    b.step(BundleStep::Discard);
    let reply = BundleControl { bundle_id: 5, ty: BundleStep::Open.wire(true), flags: FLAGS };
    assert_eq!(errors(b.client.send(&Message::BundleControl(reply))), [OfpError::BfcBadType]);
    assert_eq!(errors(b.add(5, Message::BarrierRequest)), [OfpError::BfcMsgUnsup]);
    // An error of a message is sent at once, and the bundle continues without the message.
    b.flow(add(Match::ANY, 2, vec![]));
    let bad = add(Match::ANY, 1, vec![Action::SetIpTtl(1)]);
    let sent = errors(b.add(5, Message::FlowMod(Form::Standard, Box::new(bad))));
    assert_eq!(sent, [OfpError::BacMatchInconsistent]);
    b.step(BundleStep::Commit);
    assert_eq!(b.flows(), [2]);
}

/// Errors in the bytes of an addition are sent; the bundle keeps its messages. (No case here is an unknown message, a lack of
/// permission, a conflict or a bundle in progress; the tests above and those of the state machine have the others.)
#[test]
fn errors_of_an_addition_keep_the_bundle() {
    let b = Bundles::new();
    b.flow(add(Match::ANY, 1, vec![]));
    let inner = |version, kind, len: u8, xid| vec![version, kind, 0, len, 0, 0, 0, xid];
    for (inner, error) in [
        (inner(4, 14, 4, 9), OfpError::BfcMsgBadLen),
        (inner(4, 14, 200, 9), OfpError::BfcMsgBadLen),
        (vec![4, 14, 0, 4], OfpError::BfcMsgBadLen),
        (inner(4, 14, 8, 7), OfpError::BfcMsgBadXid),
        (inner(4, 20, 8, 9), OfpError::BfcMsgUnsup),
        (inner(4, 18, 8, 9), OfpError::BfcMsgUnsup),
        (inner(4, 77, 8, 9), OfpError::BfcMsgUnsup),
        (inner(4, 14, 8, 9), OfpError::BfcMsgUnsup),
        // OpenFlow 1.3 has no number for a wrong version.
        (inner(5, 14, 8, 9), OfpError::NxbrcUnencodableError),
    ] {
        let mut bytes = vec![4, 4, 0, 24 + inner.len() as u8, 0, 0, 0, 9];
        bytes.extend([0x4f, 0x4e, 0x46, 0, 0, 0, 8, 0xfd, 0, 0, 0, 5, 0, 0, 0, 3]);
        bytes.extend(&inner);
        assert_eq!(errors(b.client.bytes(&bytes)), [error], "{inner:?}");
    }
    let flow = Message::FlowMod(Form::Standard, Box::new(add(Match::ANY, 2, vec![])));
    let flow = BundleAdd { bundle_id: 5, flags: FLAGS, message: flow };
    let mut bytes = encode(Version::V13, 9, &Message::BundleAdd(Box::new(flow)));
    // The table number for all tables, and the reserved table.
    for (table, error) in [(255, OfpError::FmfcBadTableId), (254, OfpError::BrcEperm)] {
        bytes[48] = table;
        assert_eq!(errors(b.client.bytes(&bytes)), [error]);
    }
    b.step(BundleStep::Commit);
    assert_eq!(b.flows(), [1]);
}

#[test]
fn an_idle_bundle_is_forgotten() {
    let b = Bundles::new();
    b.step(BundleStep::Open);
    b.lab.clock.warp(9_999);
    b.lab.switch.housekeeping();
    b.flow(add(Match::ANY, 1, vec![]));
    b.lab.clock.warp(9_999);
    b.lab.switch.housekeeping();
    assert_eq!(b.client.waiting(), []);
    b.lab.clock.warp(1);
    b.lab.switch.housekeeping();
    assert_eq!(errors(b.client.waiting()), [OfpError::BfcTimeout]);
    assert_eq!(errors(b.control(5, BundleStep::Commit, FLAGS)), [OfpError::BfcBadId]);
}

#[test]
fn meters_are_added_with_the_flows_that_need_them_or_not_at_all() {
    use openflow::meter::{Band, BandKind, METER_ALL, MeterConfig, flag};
    use openflow::{MeterCommand, MeterMod};
    let b = Bundles::new();
    let meter = |command, meter_id, rate| {
        let bands = vec![Band { kind: BandKind::Drop, rate, burst_size: 0 }];
        Message::MeterMod(MeterMod { command, meter: MeterConfig { meter_id, flags: flag::PKTPS, bands } })
    };
    let meters = || {
        let StatsReply::MeterConfig(all) = b.client.ask(StatsRequest::MeterConfig(METER_ALL)) else { panic!("meters") };
        all.iter().map(|m| (m.meter_id, m.bands[0].rate)).collect::<Vec<_>>()
    };
    assert_eq!(b.add(5, meter(MeterCommand::Add, 1, 2)), []);
    b.flow(add(in_port(1), 9, vec![Action::Meter(1), output(2)]));
    b.step(BundleStep::Commit);
    assert_eq!((meters(), b.flows()), (vec![(1, 2)], vec![9]));
    let passed = |n: usize| {
        b.lab.send("br-1", &vec![frame(1, 2); n]);
        b.lab.received("br-2").len()
    };
    assert_eq!(passed(5), 2);
    // A failed change leaves the meter unchanged, in the datapath too.
    assert_eq!(b.add(5, meter(MeterCommand::Modify, 1, 4)), []);
    assert_eq!(b.add(5, meter(MeterCommand::Add, 2, 7)), []);
    assert_eq!(b.add(5, meter(MeterCommand::Add, 2, 7)), []);
    assert_eq!(errors(b.control(5, BundleStep::Commit, FLAGS)), [OfpError::MmfcMeterExists, OfpError::BfcMsgFailed]);
    assert_eq!(meters(), [(1, 2)]);
    b.lab.clock.warp(60_000);
    assert_eq!(passed(5), 2);
    // The number is free again, in the datapath too.
    assert_eq!(b.add(5, Message::MeterMod(MeterMod::delete(METER_ALL))), []);
    assert_eq!(b.add(5, meter(MeterCommand::Add, 2, 7)), []);
    b.step(BundleStep::Commit);
    assert_eq!((meters(), b.flows()), (vec![(2, 7)], vec![]));
}

#[test]
fn the_bundles_of_a_connection_end_with_it() {
    let b = Bundles::new();
    b.flow(add(Match::ANY, 1, vec![]));
    b.bridge.connections().remove(&b.client.peer);
    let again = Client::new(&b.bridge, PeerKind::Service, Version::V13);
    let commit = BundleControl { bundle_id: 5, ty: BundleStep::Commit.wire(false), flags: FLAGS };
    assert_eq!(errors(again.send(&Message::BundleControl(commit))), [OfpError::BfcBadId]);
    assert!(b.flows().is_empty());
}
