//! Connections: packet-ins, roles, negotiation, malformed messages, ports.

use super::*;
use crate::conn::passive::CONNECTIONS_MAX;
use crate::conn::rconn::Rconn;
use crate::conn::service::Service;
use crate::conn::serving::serve;
use openflow::PacketInReason;
use openflow::action::ControllerAction;
use openflow::packet::{PacketInFormat, PacketOut};
use openflow::switch::{FragHandling, Hello, Role, RoleMsg, SwitchConfig};
use proptest::prelude::*;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

pub(super) fn packet_ins(messages: Vec<Message>) -> Vec<openflow::packet::PacketIn> {
    let of = |m| match m {
        Message::PacketIn(_, p) => *p,
        other => panic!("{other:?}"),
    };
    messages.into_iter().map(of).collect()
}

pub(super) fn controller(max_len: u16) -> Action {
    Action::Output { port: PortNo::CONTROLLER, max_len }
}

pub(super) fn monitor(client: &Client, miss_send_len: u16) {
    let config = SwitchConfig { frag: FragHandling::Normal, invalid_ttl_to_controller: None, miss_send_len };
    assert!(client.send(&Message::SetConfig(config)).is_empty());
}

#[test]
fn packet_ins_by_version_format_and_id() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let (old, new) =
        (Client::new(&br, PeerKind::Controller, Version::V10), Client::new(&br, PeerKind::Controller, Version::V13));
    let silent = Client::new(&br, PeerKind::Service, Version::V13);
    // A table-miss flow; before OpenFlow 1.3, a flow like any other.
    br.flow_mod(&FlowMod { new_cookie: 7, ..add(Match::ANY, 0, vec![controller(20)]) }).expect("adds");
    lab.send("br-1", &[frame(1, 2)]);
    let (o, n) = (packet_ins(old.waiting()), packet_ins(new.waiting()));
    assert_eq!((o[0].reason, n[0].reason, n[0].cookie), (PacketInReason::Action, PacketInReason::NoMatch, 7));
    assert_eq!((n[0].data.len(), n[0].total_len, n[0].metadata.key().in_port()), (60, 60, PortNo(1)));
    // Without a flow, the packet goes to controllers of versions in which that is the default on a miss.
    br.flow_mod(&command(FlowModCommand::Delete, Match::ANY)).expect("deletes");
    lab.send("br-2", &[frame(1, 2)]);
    let (o, n) = (packet_ins(old.waiting()), packet_ins(new.waiting()));
    assert_eq!((o[0].reason, n[0].reason, n[0].cookie), (PacketInReason::NoMatch, PacketInReason::NoMatch, 0));
    // By id, with userdata in the newest format.
    let action = ControllerAction { controller_id: 5, userdata: vec![1, 2], ..ControllerAction::default() };
    br.flow_mod(&add(Match::ANY, 1, vec![Action::Controller(Box::new(action))])).expect("adds");
    lab.send("br-1", &[frame(1, 2)]);
    assert!(old.waiting().is_empty() && new.waiting().is_empty());
    assert!(old.send(&Message::SetControllerId(5)).is_empty());
    assert!(old.send(&Message::SetPacketInFormat(PacketInFormat::Nxt2)).is_empty());
    lab.send("br-1", &[frame(1, 2)]);
    assert_eq!(packet_ins(old.waiting())[0].userdata, [1, 2]);
    assert!(new.waiting().is_empty() && silent.waiting().is_empty());
}

#[test]
fn a_monitor_that_asks_for_packets_gets_misses() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let client = Client::new(&br, PeerKind::Service, Version::V10);
    lab.send("br-1", &[frame(1, 2)]);
    assert!(client.waiting().is_empty());
    monitor(&client, 65534);
    lab.send("br-1", &[frame(1, 2)]);
    assert_eq!(packet_ins(client.waiting())[0].reason, PacketInReason::NoMatch);
    monitor(&client, 0);
    lab.send("br-1", &[frame(1, 2)]);
    assert!(client.waiting().is_empty());
}

#[test]
fn a_controller_that_does_not_read_loses_packets_not_memory() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let c = Client::new(&br, PeerKind::Controller, Version::V13);
    br.flow_mod(&add(Match::ANY, 0, vec![controller(u16::MAX)])).expect("adds");
    let mut big = frame(1, 2);
    big.resize(1500, 0);
    for _ in 0..40 {
        lab.send("br-1", &vec![big.clone(); 100]);
    }
    let queued = c.peer.queued();
    assert!(queued < crate::conn::peer::QUEUE_BYTES_MAX + 2000, "{queued}");
    assert_eq!(c.waiting().len() as u64 + br.connections().packet_ins_lost(), 4000);
}

/// The message to a former primary controller.
pub(super) fn demotion(generation_id: Option<u64>) -> Message {
    use openflow::role::{RoleReason, RoleStatus};
    Message::RoleStatus(RoleStatus { role: Role::Secondary, reason: RoleReason::PrimaryRequest, generation_id })
}

#[test]
fn roles() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let (a, b) =
        (Client::new(&br, PeerKind::Controller, Version::V13), Client::new(&br, PeerKind::Controller, Version::V13));
    let ask = |c: &Client, role, generation_id| {
        c.send(&Message::RoleRequest(Form::Standard, RoleMsg { role, generation_id }))
    };
    let role = |messages: Vec<Message>| match &messages[..] {
        [Message::RoleReply(_, reply)] => (reply.role, reply.generation_id),
        other => panic!("{other:?}"),
    };
    assert_eq!(role(ask(&a, Role::Primary, Some(5))), (Role::Primary, Some(5)));
    assert_eq!(role(ask(&b, Role::Primary, Some(6))), (Role::Primary, Some(6)));
    assert_eq!(a.waiting(), [demotion(Some(6))]);
    assert_eq!(role(ask(&a, Role::NoChange, None)).0, Role::Secondary);
    assert_eq!(error_of(&ask(&a, Role::Primary, Some(5))), Some(OfpError::RrfcStale));
    assert_eq!(error_of(&a.flow_mod(add(Match::ANY, 1, vec![]))), Some(OfpError::BrcIsSecondary));
    // Secondary controllers receive port status messages only.
    br.flow_mod(&add(Match::ANY, 0, vec![controller(100)])).expect("adds");
    lab.send("br-1", &[frame(1, 2)]);
    assert_eq!((a.waiting().len(), b.waiting().len()), (0, 1));
    br.send_port_changes(&[crate::bridge::PortChange::Modified(br.port(PortNo(1)).expect("there"))]);
    assert_eq!((a.waiting().len(), b.waiting().len()), (1, 1));
}

proptest! {
    /// Compares with a model of the roles.
    #[test]
    fn there_is_one_primary_of_the_latest_generation(
        requests in prop::collection::vec((0usize..3, 0usize..4, prop::option::of(0u64..6), any::<bool>()), 1..30)
    ) {
        let mut lab = Lab::new();
        let br = lab.bridge("br", 1);
        let clients = [(); 3].map(|()| Client::new(&br, PeerKind::Controller, Version::V13));
        let (mut roles, mut latest) = ([Role::Equal; 3], None::<u64>);
        for (client, role, id, around) in requests {
            let role = [Role::NoChange, Role::Equal, Role::Primary, Role::Secondary][role];
            // Generation ids wrap around; the last one means none.
            let id = id.map(|id| if around { (2 * id).wrapping_sub(6) } else { 2 * id });
            let counts = matches!(role, Role::Primary | Role::Secondary);
            let stale = counts && id.zip(latest).is_some_and(|(id, latest)| (id.wrapping_sub(latest) as i64) < 0);
            let replies = clients[client].send(&Message::RoleRequest(Form::Standard, RoleMsg { role, generation_id: id }));
            if stale {
                prop_assert_eq!(error_of(&replies), Some(OfpError::RrfcStale));
            } else {
                if counts {
                    latest = id.or(latest);
                }
                if role == Role::Primary {
                    for (other, of_other) in roles.iter_mut().enumerate().filter(|(_, role)| **role == Role::Primary) {
                        *of_other = Role::Secondary;
                        if other != client {
                            prop_assert_eq!(clients[other].waiting(), [demotion(latest)]);
                        }
                    }
                }
                if role != Role::NoChange {
                    roles[client] = role;
                }
                let reply = RoleMsg { role: roles[client], generation_id: latest };
                prop_assert_eq!(replies, [Message::RoleReply(Form::Standard, reply)]);
            }
            for (client, role) in clients.iter().zip(roles) {
                prop_assert_eq!(client.peer.role(), role);
                let refused = error_of(&client.flow_mod(add(Match::ANY, 1, vec![]))) == Some(OfpError::BrcIsSecondary);
                prop_assert_eq!(refused, role == Role::Secondary);
            }
        }
    }
}

#[test]
fn packet_outs_are_executed_together_before_other_messages() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let c = Client::new(&br, PeerKind::Service, Version::V13);
    let bytes = |message: &Message| encode(Version::V13, 9, message);
    let out = |n, to| {
        let (buffer_id, in_port, metadata) = (None, PortNo::CONTROLLER, flow::Match::ANY);
        let (actions, data) = (vec![output(to)], frame(n, 9));
        bytes(&Message::PacketOut(PacketOut { buffer_id, in_port, metadata, actions, data }))
    };
    let mut packets = Vec::new();
    for (n, to) in [(1, 2), (2, 1), (3, 2), (4, 77)] {
        br.handle(&c.peer, &out(n, to), &mut packets);
    }
    assert_eq!((packets.len(), lab.received("br-1").len(), lab.received("br-2").len()), (4, 0, 0));
    br.handle(&c.peer, &bytes(&Message::BarrierRequest), &mut packets);
    let sent = |port| lab.received(port).iter().map(|p| p.data()[11]).collect::<Vec<_>>();
    assert_eq!((packets.len(), sent("br-1"), sent("br-2")), (0, vec![2], vec![1, 3]));
    while br.finish_some(&c.peer) {}
    assert_eq!(c.waiting(), [Message::BarrierReply]);
}

#[test]
fn packet_outs_have_an_ingress_port() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    let c = Client::new(&br, PeerKind::Service, Version::V13);
    br.flow_mod(&add(in_port(1), 1, vec![output(3)])).expect("adds");
    let out = |in_port, action| {
        let error = error_of(&c.send(&Message::PacketOut(PacketOut {
            buffer_id: None,
            in_port,
            metadata: flow::Match::ANY,
            actions: vec![action],
            data: frame(1, 2),
        })));
        let counts = ["br-1", "br-2", "br-3"].map(|p| lab.received(p).len());
        (error, counts)
    };
    let to = |port| Action::Output { port, max_len: 0 };
    assert_eq!(out(PortNo::CONTROLLER, output(2)), (None, [0, 1, 0]));
    assert_eq!(out(PortNo::NONE, to(PortNo::FLOOD)), (None, [1, 1, 1]));
    assert_eq!(out(PortNo(1), to(PortNo::FLOOD)), (None, [0, 1, 1]));
    assert_eq!(out(PortNo(1), output(1)), (None, [0, 0, 0]));
    assert_eq!(out(PortNo(1), to(PortNo::IN_PORT)), (None, [1, 0, 0]));
    assert_eq!(out(PortNo(1), to(PortNo::TABLE)), (None, [0, 0, 1]));
    assert_eq!(out(PortNo(2), to(PortNo::TABLE)), (None, [0, 0, 0]));
    assert_eq!(out(PortNo::FLOOD, output(1)).0, Some(OfpError::BrcBadPort));
    assert_eq!(c.counts(), [(1, 1, 60)]);
}

#[test]
fn an_error_has_the_version_of_its_message() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let c = Client::new(&br, PeerKind::Service, Version::V10);
    let raw = |bytes: &[u8]| {
        handle(&br, &c.peer, bytes);
        let mut outgoing = c.outgoing.lock();
        let all: Vec<Vec<u8>> = std::iter::from_fn(|| outgoing.try_next()).collect();
        outgoing.sent(all.iter().map(Vec::len).sum());
        all
    };
    // The header, type and code of each error, and the message that it quotes.
    let bad_version =
        |version, request: &[u8]| vec![[&[version, 1, 0, 20, 0, 0, 0, 7, 0, 1, 0, 0][..], request].concat()];
    for version in 2..=6 {
        let request = [version, 5, 0, 8, 0, 0, 0, 7];
        assert_eq!(raw(&request), bad_version(version, &request));
    }
    // An unknown version is answered in the oldest one, whatever the message is.
    for request in [[9, 5, 0, 8, 0, 0, 0, 7], [0, 5, 0, 8, 0, 0, 0, 7], [0, 2, 0, 8, 0, 0, 0, 7]] {
        assert_eq!(raw(&request), bad_version(1, &request));
    }
    // An unknown type is one of another version in the first place.
    let unknown = [4, 99, 0, 8, 0, 0, 0, 7];
    assert_eq!(raw(&unknown), bad_version(4, &unknown));
    // HELLOs come at the beginning only; probes are answered in any version.
    assert_eq!(raw(&[2, 0, 0, 8, 0, 0, 0, 7]), [[2, 1, 0, 20, 0, 0, 0, 7, 0, 1, 0, 1, 2, 0, 0, 8, 0, 0, 0, 7]]);
    assert_eq!(raw(&[1, 0, 0, 8, 0, 0, 0, 7]), [[1, 1, 0, 20, 0, 0, 0, 7, 0, 1, 0, 1, 1, 0, 0, 8, 0, 0, 0, 7]]);
    assert_eq!(raw(&[2, 2, 0, 10, 0, 0, 0, 7, 8, 9]), [[2, 3, 0, 10, 0, 0, 0, 7, 8, 9]]);
    assert_eq!(raw(&[9, 2, 0, 8, 0, 0, 0, 7]), [[9, 3, 0, 8, 0, 0, 0, 7]]);
    assert!(raw(&[9, 3, 0, 8, 0, 0, 0, 7]).is_empty());
}

#[test]
fn malformed_messages_get_errors_and_the_connection_continues() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let c = Client::new(&br, PeerKind::Service, Version::V13);
    let error = |bytes: &[u8]| error_of(&c.bytes(bytes));
    assert_eq!(error(&[4, 99, 0, 8, 0, 0, 0, 1]), Some(OfpError::BrcBadType));
    assert_eq!(error(&[4, 14, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]), Some(OfpError::BrcBadLen));
    let stats = Message::StatsRequest { more: true, body: StatsRequest::Desc };
    assert_eq!(error(&encode(Version::V13, 1, &stats)), Some(OfpError::BrcMultipartBufferOverflow));
    assert!(matches!(&c.send(&Message::BarrierRequest)[..], [Message::BarrierReply]));
    assert!(matches!(&c.send(&Message::EchoRequest(vec![7]))[..], [Message::EchoReply(d)] if d == &[7]));
}

pub(super) fn listening(versions: &[Version]) -> ServiceConfig {
    service(PeerKind::Service, versions, Settings { probe_ms: 0, ..Settings::default() })
}

/// Serves a connection with this configuration.
pub(super) async fn serve_one(
    bridge: &Arc<Ofproto>,
    config: &ServiceConfig,
    stream: tokio::io::DuplexStream,
) -> std::io::Result<()> {
    let remote = Remote::new(config.clone(), bridge.now());
    let rconn = Mutex::new(Rconn::new());
    rconn.lock().connected(bridge.now());
    serve(bridge, &remote, "unix#0".into(), &rconn, stream, |_| ()).await.map(|_| ())
}

/// The bytes that a connection sends in reply to `bytes`, until it ends or waits for more.
pub(super) async fn talk(bridge: &Arc<Ofproto>, config: &ServiceConfig, bytes: &[u8], until: usize) -> Vec<u8> {
    let (mut ours, theirs) = tokio::io::duplex(1 << 20);
    ours.write_all(bytes).await.expect("room");
    let mut answer = Vec::new();
    let read = async { while answer.len() < until && ours.read_buf(&mut answer).await.expect("reads") > 0 {} };
    // The service may end first, with its output still to be read.
    let mut serving = Box::pin(serve_one(bridge, config, theirs));
    let mut read = Box::pin(read);
    tokio::select! {
        _ = &mut serving => {
            drop(serving);
            read.as_mut().await;
        }
        () = &mut read => {}
    }
    drop(read);
    answer
}

#[tokio::test]
async fn negotiation() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let hello = |v| encode(v, 1, &Message::Hello(Hello { versions: Versions::up_to(v.wire()) }));
    let config = listening(&[Version::V10, Version::V13]);
    // A HELLO of 1.0 and a barrier: our HELLO has the newest version, the reply the common one.
    let mut bytes = hello(Version::V10);
    bytes.extend(encode(Version::V10, 2, &Message::BarrierRequest));
    let answer = talk(&br, &config, &bytes, 24).await;
    assert_eq!((answer[0], answer[1]), (4, 0));
    assert_eq!(answer[answer.len() - 8..], [1, 19, 0, 8, 0, 0, 0, 2]);
    // Without a common version: an error, and the connection ends.
    let answer = talk(&br, &listening(&[Version::V13]), &hello(Version::V10), usize::MAX).await;
    assert_eq!(answer[17], 1);
    // Without a HELLO, or with malformed bytes: the connection ends.
    for bytes in [encode(Version::V13, 1, &Message::BarrierRequest), vec![4, 0, 0, 3, 0, 0, 0, 0]] {
        talk(&br, &config, &bytes, usize::MAX).await;
    }
    assert!(br.connections().all().is_empty());
}

#[tokio::test]
async fn requests_wait_for_the_replies_to_earlier_ones() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    for n in 0..2000u32 {
        let mut m = Match::ANY;
        m.set(Field::EthDst, n.into());
        br.flow_mod(&add(m, 1, vec![output(1)])).expect("adds");
    }
    let mut bytes = encode(Version::V10, 1, &Message::Hello(Hello { versions: Versions::of(&[Version::V10]) }));
    for xid in 0..500 {
        let body = StatsRequest::Flow(Default::default());
        bytes.extend(encode(Version::V10, xid, &Message::StatsRequest { more: false, body }));
    }
    let (mut ours, theirs) = tokio::io::duplex(1 << 16);
    let (config, bridge) = (listening(&[Version::V10]), Arc::clone(&br));
    let serving = tokio::spawn(async move { serve_one(&bridge, &config, theirs).await });
    ours.write_all(&bytes).await.expect("taken");
    let queued = || br.connections().all().iter().map(|p| p.queued()).collect::<Vec<_>>();
    // Another thread collects the flows, so that this loop ends.
    while queued().first().is_none_or(|queued| *queued < 100_000) {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    let queued = queued();
    assert!(queued[0] < 2 * crate::conn::peer::QUEUE_BYTES_MAX, "{queued:?}");
    serving.abort();
}

#[tokio::test]
async fn an_unread_dump_holds_no_flows() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let flow = |n: u32, priority| {
        let mut m = Match::ANY;
        m.set(Field::EthDst, n.into());
        add(m, priority, vec![output(1)])
    };
    for n in 0..20_000 {
        br.flow_mod(&flow(n, 1)).expect("adds");
    }
    let mut rules = br.collect(&crate::flow_table::Criteria::any());
    rules.sort_unstable_by_key(|rule| rule.versions.added());
    let kept: Vec<_> = rules.iter().map(Arc::downgrade).collect();
    drop(rules);
    let (mut ours, theirs) = tokio::io::duplex(1 << 12);
    let (config, bridge) = (listening(&[Version::V10]), Arc::clone(&br));
    let serving = tokio::spawn(async move { serve_one(&bridge, &config, theirs).await });
    let mut request = encode(Version::V10, 1, &Message::Hello(Hello { versions: Versions::of(&[Version::V10]) }));
    let body = StatsRequest::Flow(Default::default());
    request.extend(encode(Version::V10, 2, &Message::StatsRequest { more: false, body }));
    ours.write_all(&request).await.expect("taken");
    while br.connections().all().first().is_none_or(|peer| peer.queued() < 512 << 10) {
        tokio::task::yield_now().await;
    }
    // The last thousand are removed while the dump waits for its reader, and the dump holds none of them.
    for n in 19_000..20_000 {
        br.flow_mod(&FlowMod { priority: 1, ..command(FlowModCommand::DeleteStrict, flow(n, 1).matching) })
            .expect("deletes");
        br.flow_mod(&flow(n, 2)).expect("adds another");
    }
    while kept[19_000..].iter().any(|rule| rule.strong_count() > 0) {
        br.tidy(lab.clock.now());
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    // Once it is read again, the other flows follow, each once, without flows added later.
    let mut seen = vec![0; 20_000];
    loop {
        let mut message = vec![0; 8];
        ours.read_exact(&mut message).await.expect("a message");
        message.resize(u16::from_be_bytes([message[2], message[3]]).into(), 0);
        ours.read_exact(&mut message[8..]).await.expect("the rest of it");
        let Message::StatsReply { more, body: StatsReply::Flow(flows) } = decode(&message).expect("decodes").2 else {
            continue;
        };
        for flow in flows {
            assert_eq!(flow.priority, 1);
            seen[flow.matching.key().get(Field::EthDst) as usize] += 1;
        }
        if !more {
            break;
        }
    }
    assert!(seen[..19_000].iter().all(|n| *n == 1) && seen[19_000..].iter().all(|n| *n == 0));
    serving.abort();
}

#[tokio::test]
async fn bad_targets_are_named() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let start =
        |target: &str| Service::start(&br, ServiceConfig { target: target.into(), ..listening(&[Version::V10]) });
    for bad in ["nonsense", "foo:bar", "pssl:0:127.0.0.1", "ptcp:x"] {
        assert!(start(bad).expect_err("is bad").contains(bad), "{bad}");
    }
}

#[tokio::test]
async fn silent_connections_give_way_and_excess_ones_are_refused() {
    use tokio::net::UnixStream;
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let directory = tempfile::tempdir().expect("a folder");
    let path = directory.path().join("socket");
    let target = format!("punix:{}", path.display());
    let listener = Service::start(&br, ServiceConfig { target, ..listening(&[Version::V13]) }).expect("listens");
    let connect = async || UnixStream::connect(&path).await.expect("listens");
    let speak = async |end: &mut UnixStream| {
        let hello = encode(Version::V13, 1, &Message::Hello(Hello { versions: Versions::of(&[Version::V13]) }));
        end.write_all(&hello).await.expect("room");
        end.write_all(&encode(Version::V13, 2, &Message::EchoRequest(vec![]))).await.expect("room");
        let mut answer = [0; 24];
        end.read_exact(&mut answer).await.is_ok_and(|_| answer[17] == 3)
    };
    // The switch's own HELLO, and then the end of the connection.
    let ended = async |end: &mut UnixStream| end.read_to_end(&mut Vec::new()).await.is_ok_and(|n| n <= 16);
    let mut silent = connect().await;
    let mut speaking = Vec::new();
    for _ in 1..CONNECTIONS_MAX {
        let mut end = connect().await;
        assert!(speak(&mut end).await);
        speaking.push(end);
    }
    // The only room left is that of a connection that has sent nothing.
    let mut last = connect().await;
    assert!(speak(&mut last).await);
    assert!(ended(&mut silent).await);
    let mut refused = connect().await;
    assert!(ended(&mut refused).await);
    // A connection that ends makes room.
    drop(last);
    while br.connections().all().len() == CONNECTIONS_MAX {
        tokio::task::yield_now().await;
    }
    assert!(speak(&mut connect().await).await);
    drop(listener);
    assert!(ended(&mut speaking[0]).await);
}
