//! Asynchronous messages of connections, and the configuration that selects them.

use super::connections::{controller, demotion, monitor, packet_ins};
use super::*;
use openflow::PacketInReason;
use openflow::switch::{FragHandling, Role, RoleMsg, SwitchConfig};

#[test]
fn a_demoted_primary_is_notified_whatever_it_asked_for() {
    use openflow::asynchronous::{AsyncConfig, AsyncForm};
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let primary = |c: &Client, generation_id| {
        let role = RoleMsg { role: Role::Primary, generation_id: Some(generation_id) };
        c.send(&Message::RoleRequest(Form::Standard, role))
    };
    // Connections of programs receive no other messages without a request.
    let [a, b] = [(PeerKind::Controller, Version::V14), (PeerKind::Service, Version::V13)]
        .map(|(kind, version)| Client::new(&br, kind, version));
    assert!(a.send(&Message::SetAsync(AsyncForm::Standard, AsyncConfig::default().into())).is_empty());
    assert_eq!(primary(&a, 1).len(), 1);
    // A repeated request is no demotion.
    assert_eq!(primary(&a, 2).len(), 1);
    assert_eq!(primary(&b, 3).len(), 1);
    assert_eq!(a.waiting(), [demotion(Some(3))]);
    assert_eq!(primary(&a, 4).len(), 1);
    assert_eq!(b.waiting(), [demotion(Some(4))]);
    // OpenFlow 1.2 has roles, but no such message.
    let old = Client::new(&br, PeerKind::Controller, Version::V12);
    assert_eq!(primary(&old, 5).len(), 1);
    assert_eq!(a.waiting(), [demotion(Some(5))]);
    assert_eq!(primary(&a, 6).len(), 1);
    assert!(old.waiting().is_empty());
}

#[test]
fn setting_asynchronous_masks_opens_a_service_connection() {
    use openflow::asynchronous::{AsyncConfig, AsyncForm};
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let all = AsyncConfig { packet_in: [7, 0], ..AsyncConfig::default() };
    let missed = |c: &Client| match &c.send(&Message::GetConfigRequest)[..] {
        [Message::GetConfigReply(config)] => config.miss_send_len,
        other => panic!("{other:?}"),
    };
    for form in [AsyncForm::Standard, AsyncForm::Nicira, AsyncForm::Nicira2] {
        let c = Client::new(&br, PeerKind::Service, Version::V13);
        br.flow_mod(&add(Match::ANY, 1, vec![controller(100)])).expect("adds");
        lab.send("br-1", &[frame(1, 2)]);
        assert!(c.waiting().is_empty());
        assert!(c.send(&Message::SetAsync(form, all.into())).is_empty());
        assert_eq!(missed(&c), 128);
        lab.send("br-1", &[frame(1, 2)]);
        assert_eq!(packet_ins(c.waiting()).len(), 1);
        // A length that it has chosen stays.
        monitor(&c, 9);
        assert!(c.send(&Message::SetAsync(form, all.into())).is_empty());
        assert_eq!(missed(&c), 9);
        monitor(&c, 0);
        lab.send("br-1", &[frame(1, 2)]);
        assert!(c.waiting().is_empty());
    }
    // A controller's messages do not depend on the length.
    let c = Client::new(&br, PeerKind::Controller, Version::V13);
    monitor(&c, 0);
    assert!(c.send(&Message::SetAsync(AsyncForm::Standard, all.into())).is_empty());
    assert_eq!(missed(&c), 0);
    // In a version where packets without a flow go to controllers, they do so from then on.
    br.flow_mod(&command(FlowModCommand::Delete, Match::ANY)).expect("deletes");
    let c = Client::new(&br, PeerKind::Service, Version::V10);
    assert!(c.send(&Message::SetAsync(AsyncForm::Nicira, all.into())).is_empty());
    lab.send("br-1", &[frame(1, 2)]);
    assert_eq!(packet_ins(c.waiting()).len(), 1);
}

#[test]
fn the_flag_for_expired_hop_counts_is_a_bit_of_the_masks() {
    use openflow::asynchronous::{AsyncConfig, AsyncForm};
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let c = Client::new(&br, PeerKind::Controller, Version::V12);
    let set = |on| {
        let invalid_ttl_to_controller = Some(on);
        let config = SwitchConfig { frag: FragHandling::Normal, invalid_ttl_to_controller, miss_send_len: 128 };
        assert!(c.send(&Message::SetConfig(config)).is_empty());
    };
    let flag = || match &c.send(&Message::GetConfigRequest)[..] {
        [Message::GetConfigReply(config)] => config.invalid_ttl_to_controller,
        other => panic!("{other:?}"),
    };
    let wants = || c.peer.wants(|a| a.packet_in, PacketInReason::InvalidTtl.number().into());
    assert_eq!((flag(), wants()), (Some(false), false));
    set(true);
    assert_eq!((flag(), wants()), (Some(true), true));
    // Not for secondary controllers.
    let role = |role| c.send(&Message::RoleRequest(Form::Standard, RoleMsg { role, generation_id: Some(1) })).len();
    assert_eq!(role(Role::Secondary), 1);
    assert_eq!((flag(), wants()), (Some(true), false));
    assert_eq!(role(Role::Equal), 1);
    // Masks that come later replace it, and it changes them.
    assert!(c.send(&Message::SetAsync(AsyncForm::Nicira, AsyncConfig::default().into())).is_empty());
    assert_eq!((flag(), wants()), (Some(false), false));
    set(true);
    assert_eq!((flag(), wants()), (Some(true), true));
    set(false);
    let masks = AsyncConfig { packet_in: [4, 0], ..AsyncConfig::default() };
    assert!(c.send(&Message::SetAsync(AsyncForm::Nicira, masks.into())).is_empty());
    assert_eq!((flag(), wants()), (Some(true), true));
    // It concerns packet-ins only: the same bit is a reason of removed flows, too.
    let fm = FlowMod {
        flags: openflow::flow_mod::FlowFlags { send_flow_rem: true, ..Default::default() },
        ..add(Match::ANY, 1, vec![])
    };
    br.flow_mod(&fm).expect("adds");
    assert!(c.flow_mod(command(FlowModCommand::Delete, Match::ANY)).is_empty());
}

#[test]
fn changes_of_groups_and_meters_are_forwarded_on_request() {
    use openflow::asynchronous::{AsyncConfig, AsyncForm};
    use openflow::group::{Bucket, GroupKind};
    use openflow::meter::{Band, BandKind, MeterConfig, flag};
    use openflow::request_forward::ForwardedRequest;
    use openflow::{GroupCommand, GroupMod, MeterCommand, MeterMod};
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let versions = [Version::V10, Version::V13, Version::V14];
    let clients = versions.map(|version| Client::new(&br, PeerKind::Controller, version));
    let deaf = Client::new(&br, PeerKind::Controller, Version::V14);
    let all = AsyncConfig { request_forward: [3, 3], ..AsyncConfig::default() };
    for client in &clients {
        let form = if client.version < Version::V14 { AsyncForm::Nicira2 } else { AsyncForm::Standard };
        assert!(client.send(&Message::SetAsync(form, all.into())).is_empty());
    }
    let [v10, v13, v14] = &clients;
    let forwarded = |client: &Client| match &client.waiting()[..] {
        [] => None,
        [Message::RequestForward(forward)] => {
            assert_eq!(forward.xid, 9);
            Some(forward.request.clone())
        }
        other => panic!("{other:?}"),
    };
    let bucket = |port, bucket_id| Bucket {
        bucket_id,
        actions: vec![Action::Output { port: PortNo(port), max_len: 0 }].into(),
        ..Bucket::new(GroupKind::All)
    };
    let added = GroupMod { buckets: vec![bucket(1, 0)], ..GroupMod::new(GroupCommand::Add, 5) };
    assert!(v13.send(&Message::GroupMod(added.clone())).is_empty(), "the requester is not notified");
    assert!(deaf.waiting().is_empty());
    let want = Some(ForwardedRequest::Group(added.clone()));
    assert_eq!([forwarded(v10), forwarded(v14)], [want.clone(), want]);
    // A failed request is not forwarded.
    assert_eq!(error_of(&v13.send(&Message::GroupMod(added.clone()))), Some(OfpError::GmfcGroupExists));
    // The forwarded request has either the addition or the modification that took place.
    let either = GroupMod { command: GroupCommand::AddOrModify, ..added.clone() };
    assert!(v14.send(&Message::GroupMod(either)).is_empty());
    let modified = GroupMod { command: GroupCommand::Modify, ..added.clone() };
    let want = Some(ForwardedRequest::Group(modified.clone()));
    assert_eq!([forwarded(v10), forwarded(v13)], [want.clone(), want]);
    // Versions without bucket commands receive the whole group.
    let buckets = vec![bucket(1, 1)];
    let inserted = GroupMod { command: GroupCommand::InsertBucket, buckets, ..added.clone() };
    let inserted = GroupMod { command_bucket_id: openflow::group::BUCKET_LAST, ..inserted };
    assert!(v10.send(&Message::GroupMod(inserted)).is_empty());
    let whole = GroupMod { buckets: vec![bucket(1, 0), bucket(1, 1)], ..modified };
    let want = Some(ForwardedRequest::Group(whole));
    assert_eq!([forwarded(v13), forwarded(v14)], [want.clone(), want]);
    // Meter mods go to versions that have meters.
    let bands = vec![Band { kind: BandKind::Drop, rate: 1, burst_size: 0 }];
    let meter = MeterMod { command: MeterCommand::Add, meter: MeterConfig { meter_id: 1, flags: flag::PKTPS, bands } };
    assert!(v14.send(&Message::MeterMod(meter.clone())).is_empty());
    assert_eq!([forwarded(v10), forwarded(v13)], [None, Some(ForwardedRequest::Meter(meter))]);
}

#[test]
fn controllers_receive_the_status_of_others() {
    use openflow::asynchronous::{AsyncConfig, AsyncForm};
    use openflow::bundle_features::{BundleFeatures, BundleFeaturesRequest, flag};
    use openflow::controller_status::{ControllerReason, ControllerStatus};
    use openflow::role::{Role, RoleMsg};
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let [a, b] = [1, 2].map(|_| Client::new(&br, PeerKind::Controller, Version::V15));
    let status = |short_id, role, reason| {
        let uri = Some(a.peer.remote.target.clone().into_bytes());
        ControllerStatus { short_id, role, reason, is_up: true, uri }
    };
    let role = |c: &Client, role| {
        c.send(&Message::RoleRequest(Form::Standard, RoleMsg { role, generation_id: Some(1) }));
    };
    // Controllers that did not ask are not notified.
    role(&b, Role::Primary);
    assert!(a.waiting().is_empty());
    let mut asynchronous = AsyncConfig {
        controller_status: [0x7f, 1 << ControllerReason::Role as u32],
        ..a.peer.state.lock().asynchronous
    };
    asynchronous.role_status = [0, 0];
    assert_eq!(error_of(&a.send(&Message::SetAsync(AsyncForm::Standard, asynchronous.into()))), None);
    match &a.send(&Message::GetAsyncRequest)[..] {
        [Message::GetAsyncReply(change)] => assert_eq!(*change, asynchronous.into()),
        other => panic!("{other:?}"),
    }
    b.send(&Message::SetControllerId(7));
    let message = |s| Message::ControllerStatus(Box::new(s));
    assert_eq!(a.waiting(), [message(status(7, Role::Primary, ControllerReason::ShortId))]);
    let asked = a.ask(StatsRequest::ControllerStatus);
    let all = [(0, Role::Equal), (7, Role::Primary)].map(|(id, role)| status(id, role, ControllerReason::Request));
    assert_eq!(asked, StatsReply::ControllerStatus(all.to_vec()));
    // The new primary receives its reply.
    role(&a, Role::Primary);
    assert_eq!(b.waiting(), [demotion(Some(1))]);
    // As a secondary controller, it asked for role changes only.
    role(&b, Role::Primary);
    let changes =
        [(0, Role::Secondary), (7, Role::Primary)].map(|(id, role)| message(status(id, role, ControllerReason::Role)));
    let [to_secondary, to_primary] = changes;
    assert_eq!(a.waiting(), [demotion(Some(1)), to_secondary, to_primary]);
    b.send(&Message::SetControllerId(8));
    assert!(a.waiting().is_empty());
    let features = |flags| {
        a.send(&Message::StatsRequest {
            more: false,
            body: StatsRequest::BundleFeatures(BundleFeaturesRequest { flags, time: None }),
        })
    };
    assert_eq!(
        features(flag::TIMESTAMP),
        [Message::StatsReply {
            more: false,
            body: StatsReply::BundleFeatures(BundleFeatures { capabilities: 3, time: None })
        }]
    );
    assert_eq!(error_of(&features(flag::TIME_SET_SCHED)), Some(OfpError::BrcMultipartBadSched));
    // Earlier versions lack the messages of OpenFlow 1.5.
    let older = Client::new(&br, PeerKind::Controller, Version::V14);
    let mut bytes =
        openflow::message::encode(Version::V15, 1, &Message::SetAsync(AsyncForm::Standard, asynchronous.into()));
    bytes[0] = Version::V14 as u8;
    assert_eq!(error_of(&older.bytes(&bytes)), Some(OfpError::AcfcUnsupported));
}
