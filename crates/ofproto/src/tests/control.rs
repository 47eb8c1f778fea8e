//! The control of a bridge in virtual time: fail-open, rates and queues of packet-ins, snoopers, settings.

use super::*;
use crate::bridge::PortChange;
use crate::conn::inband::InBand;
use crate::conn::peer::UNSOLICITED_BYTES_MAX;
use crate::conn::rconn::Rconn;
use crate::conn::service::Service;
use crate::conn::serving::serve;
use crate::{PacketInStats, RateLimit};
use flow::text::NoNames;
use openflow::asynchronous::{AsyncConfig, AsyncForm};
use openflow::packet::PacketIn;
use openflow::role::{Role, RoleMsg};
use openflow::switch::Hello;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinHandle;

fn controller_flow(bridge: &Ofproto) {
    let action = Action::Output { port: PortNo::CONTROLLER, max_len: u16::MAX };
    bridge.flow_mod(&add(Match::ANY, 1, vec![action])).expect("adds");
}

fn packet_ins(messages: Vec<Message>) -> Vec<PacketIn> {
    let of = |m| match m {
        Message::PacketIn(_, packet_in) => Some(*packet_in),
        _ => None,
    };
    messages.into_iter().filter_map(of).collect()
}

pub(super) fn shown(bridge: &Ofproto) -> String {
    crate::show::dump_flows(bridge, &NoNames)
}

pub(super) fn remote(bridge: &Ofproto, settings: Settings) -> Arc<Remote> {
    let remote = Remote::new(service(PeerKind::Controller, &[Version::V10], settings), bridge.now());
    bridge.connections().add_remote(Arc::clone(&remote));
    remote
}

#[test]
fn fail_open_forwards_without_a_controller() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let remote = remote(&br, Settings { probe_ms: 1000, ..Settings::default() });
    let admin = Client::new(&br, PeerKind::Service, Version::V10);
    admin.flow_mod(add(in_port(1), 7, vec![]));
    br.set_fail_open(true);
    let after = |ms| {
        lab.clock.warp(ms);
        lab.switch.housekeeping();
    };
    let forwards = || {
        lab.send("br-1", &[frame(1, 2)]);
        !lab.received("br-2").is_empty()
    };
    after(2999);
    assert!(!forwards());
    // Three probes without an answer: only the hidden flow that forwards remains.
    after(1);
    assert!(forwards());
    assert_eq!(admin.counts(), []);
    assert!(shown(&br).contains("priority=15790320,actions=NORMAL\n"));
    admin.flow_mod(add(in_port(1), 7, vec![]));
    assert!(forwards());
    // A controller that is connected is probed, and its other messages do not count as an answer.
    let controller = Client::of(&br, Arc::clone(&remote), Version::V10);
    after(2000);
    let asked = packet_ins(controller.waiting());
    assert_eq!((asked.len(), asked[0].data.len(), asked[0].metadata.key().in_port()), (1, 42, PortNo::LOCAL));
    controller.send(&Message::FeaturesRequest);
    controller.send(&Message::EchoRequest(vec![]));
    assert!(forwards());
    // Its answer removes the flow at once, and flows added meanwhile stay.
    controller.send(&Message::BarrierRequest);
    assert!(!forwards());
    assert_eq!(admin.counts(), [(7, 1, 60)]);
    assert!(!shown(&br).contains("15790320"));
    // While connected it may be silent for long. After a disconnection, three probe intervals since its last message suffice.
    after(60_000);
    assert!(!forwards());
    br.connections().remove(&controller.peer);
    after(0);
    assert!(forwards());
    br.set_fail_open(false);
    assert!(!shown(&br).contains("15790320"));
}

#[test]
fn a_connected_controller_may_be_silent() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let remote = remote(&br, Settings { probe_ms: 0, ..Settings::default() });
    br.set_fail_open(true);
    assert!(shown(&br).contains("15790320"));
    let controller = Client::of(&br, remote, Version::V10);
    controller.send(&Message::EchoRequest(vec![]));
    lab.clock.warp(29_999);
    controller.send(&Message::EchoRequest(vec![]));
    assert!(shown(&br).contains("15790320"));
    lab.clock.warp(1);
    controller.send(&Message::EchoRequest(vec![]));
    assert!(!shown(&br).contains("15790320"));
}

#[test]
fn packet_ins_are_held_to_their_rate() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let limit = Some(RateLimit { rate: 100, burst: 5 });
    let c = Client::with(
        &br,
        PeerKind::Controller,
        Version::V10,
        Settings { packet_in_limit: limit, ..Settings::default() },
    );
    let from = |c: &Client| packet_ins(c.waiting()).iter().map(|p| p.metadata.key().in_port().0).collect::<Vec<_>>();
    let stats =
        |c: &Client| c.peer.limits.stats().expect("limited").map(|s| (s.bypassed, s.queued, s.dropped, s.backlog));
    controller_flow(&br);
    for port in ["br-1", "br-2"] {
        (0..8).for_each(|_| lab.send(port, &[frame(1, 2)]));
    }
    assert_eq!(from(&c), [1; 5]);
    assert_eq!(stats(&c)[1], (5, 11, 6, 5));
    assert_eq!(c.peer.limits.ready_at(), Some(lab.clock.now().after(10)));
    lab.clock.warp(20);
    assert_eq!(c.peer.release_packet_ins(lab.clock.now()), 0);
    assert_eq!(from(&c), [1, 2]);
    // Misses have a token bucket of their own.
    br.flow_mod(&command(FlowModCommand::Delete, Match::ANY)).expect("deletes");
    lab.send("br-1", &[frame(1, 2)]);
    assert_eq!((from(&c), stats(&c)[0]), (vec![1], (1, 0, 0, 0)));
    // Without the limit, the queued packet-ins are sent.
    c.peer.remote.set_settings(Settings::default());
    assert_eq!(c.peer.release_packet_ins(lab.clock.now()), 0);
    assert_eq!((from(&c).len(), c.peer.limits.stats()), (3, None::<[PacketInStats; 2]>));
    assert_eq!(br.connections().packet_ins_lost(), 0);
    // If the connection has no room for them, each of them is lost.
    c.peer.remote.set_settings(Settings { packet_in_limit: limit, packet_in_queue: 0, ..Settings::default() });
    controller_flow(&br);
    (0..10).for_each(|_| lab.send("br-1", &[frame(1, 2)]));
    assert_eq!((from(&c).len(), stats(&c)[1]), (5, (5, 5, 0, 5)));
    c.outgoing.lock().set_stalled(true);
    c.peer.remote.set_settings(Settings { packet_in_queue: 0, ..Settings::default() });
    lab.send("br-1", &[frame(1, 2)]);
    assert_eq!((from(&c).len(), br.connections().packet_ins_lost()), (0, 6));
}

#[test]
fn an_unread_connection_has_a_short_queue() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let c =
        Client::with(&br, PeerKind::Controller, Version::V10, Settings { packet_in_queue: 7, ..Settings::default() });
    controller_flow(&br);
    c.outgoing.lock().set_stalled(true);
    (0..20).for_each(|_| lab.send("br-1", &[frame(1, 2)]));
    assert_eq!(br.connections().packet_ins_lost(), 13);
    // Replies share the queue; a connection that is read has its queue for bursts.
    assert_eq!(c.send(&Message::EchoRequest(vec![])).len(), 8);
    c.outgoing.lock().set_stalled(false);
    lab.send("br-1", &vec![frame(1, 2); 20]);
    assert_eq!(packet_ins(c.waiting()).len(), 20);
}

#[test]
fn without_asynchronous_messages_a_controller_sets_its_filter() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let quiet = Settings { asynchronous: false, ..Settings::default() };
    let c = Client::with(&br, PeerKind::Controller, Version::V10, quiet);
    controller_flow(&br);
    let port = |up| {
        lab.wire("br-1").near.set_up(up).expect("can");
        br.send_port_changes(&[PortChange::Modified(br.port(PortNo(1)).expect("there"))]);
    };
    lab.send("br-1", &[frame(1, 2)]);
    port(false);
    port(true);
    assert!(c.waiting().is_empty());
    let masks = AsyncConfig { packet_in: [2, 0], ..AsyncConfig::default() };
    assert!(c.send(&Message::SetAsync(AsyncForm::Nicira, masks.into())).is_empty());
    lab.send("br-1", &[frame(1, 2)]);
    port(false);
    port(true);
    assert_eq!(packet_ins(c.waiting()).len(), 1);
}

#[test]
fn a_snooper_listens_to_one_controller() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let snooper = || {
        let remote = Remote::new(service(PeerKind::Snoop, &[Version::V13], Settings::default()), br.now());
        let (peer, outgoing) = Peer::new(remote, "unix#0".into(), br.now(), Arc::default());
        br.connections().add(peer).then_some(outgoing)
    };
    // There is no controller to snoop on.
    Client::new(&br, PeerKind::Service, Version::V13);
    assert!(snooper().is_none());
    let clients: Vec<_> = (0..3).map(|_| Client::new(&br, PeerKind::Controller, Version::V13)).collect();
    let become_ = |client: &Client, role| {
        client.send(&Message::RoleRequest(Form::Standard, RoleMsg { role, generation_id: Some(1) }));
    };
    become_(&clients[0], Role::Secondary);
    become_(&clients[2], Role::Secondary);
    let mut at_equal = snooper().expect("controllers are there");
    become_(&clients[0], Role::Primary);
    let mut at_primary = snooper().expect("controllers are there");
    // The roles make no difference.
    become_(&clients[2], Role::Primary);
    for (n, client) in clients.iter().enumerate() {
        client.send(&Message::EchoRequest(vec![n as u8]));
    }
    let heard = |outgoing: &mut Outgoing| {
        let echo = |bytes: Vec<u8>| match decode(&bytes).expect("whole messages").2 {
            Message::EchoRequest(data) => data.first().copied(),
            _ => None,
        };
        std::iter::from_fn(|| outgoing.try_next()).filter_map(echo).collect::<Vec<u8>>()
    };
    assert_eq!((heard(&mut at_primary), heard(&mut at_equal)), (vec![0], vec![1]));
}

#[test]
fn in_band_control_traffic_bypasses_the_tables() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let mut in_band = InBand {
        local: MAC_A,
        remotes: ["10.0.0.9:6653".parse().expect("an address")].into(),
        next_hops: Default::default(),
        queue: None,
    };
    let mut frame = frame(1, 2);
    frame[12..14].copy_from_slice(&[8, 6]);
    frame[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
    frame[28..32].copy_from_slice(&[10, 0, 0, 9]);
    let passes = || {
        lab.send("br-1", &[frame.clone()]);
        !lab.received("br-2").is_empty()
    };
    br.flow_mod(&add(Match::ANY, u16::MAX, vec![])).expect("adds");
    assert!(!passes());
    br.set_in_band(Some(&in_band));
    assert!(passes());
    assert_eq!(shown(&br).matches("actions=NORMAL").count(), 7);
    in_band.remotes.clear();
    br.set_in_band(Some(&in_band));
    // The frame has the local port's own address, but without remotes nothing passes.
    assert!(!passes());
    assert_eq!(br.n_flows(), 1);
}

/// A connection with a task that serves it.
struct Served {
    end: DuplexStream,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Served {
    async fn new(bridge: &Arc<Ofproto>, settings: Settings) -> Self {
        let (end, theirs) = tokio::io::duplex(1 << 20);
        let (remote, bridge) = (remote(bridge, settings), Arc::clone(bridge));
        let rconn = Mutex::new(Rconn::new());
        rconn.lock().connecting(bridge.now());
        let serving =
            tokio::spawn(
                async move { serve(&bridge, &remote, "unix#0".into(), &rconn, theirs, |_| ()).await.map(|_| ()) },
            );
        let mut served = Self { end, serving };
        let hello = Message::Hello(Hello { versions: Versions::of(&[Version::V10]) });
        served.end.write_all(&encode(Version::V10, 0, &hello)).await.expect("room");
        assert!(matches!(served.next().await, Message::Hello(_)));
        // A reply shows that the version is negotiated.
        served.end.write_all(&encode(Version::V10, 0, &Message::BarrierRequest)).await.expect("room");
        assert!(matches!(served.next().await, Message::BarrierReply));
        served
    }

    async fn next(&mut self) -> Message {
        let mut message = vec![0; 8];
        self.end.read_exact(&mut message).await.expect("a message");
        message.resize(u16::from_be_bytes([message[2], message[3]]).into(), 0);
        self.end.read_exact(&mut message[8..]).await.expect("the rest of it");
        decode(&message).expect("decodes").2
    }
}

#[tokio::test]
async fn a_silent_connection_is_probed_and_given_up() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let mut served = Served::new(&br, Settings { probe_ms: 1, ..Settings::default() }).await;
    lab.clock.warp(1);
    assert!(matches!(served.next().await, Message::EchoRequest(_)));
    // An answer restarts the probe interval.
    served.end.write_all(&encode(Version::V10, 0, &Message::EchoReply(vec![]))).await.expect("room");
    served.end.write_all(&encode(Version::V10, 0, &Message::BarrierRequest)).await.expect("room");
    assert!(matches!(served.next().await, Message::BarrierReply));
    lab.clock.warp(1);
    assert!(matches!(served.next().await, Message::EchoRequest(_)));
    lab.clock.warp(1);
    assert_eq!(served.serving.await.expect("no panic").expect_err("is over").to_string(), "Connection timed out");
    assert!(br.connections().all().is_empty());
}

#[tokio::test]
async fn packet_ins_wait_for_the_clock_and_connections_end_on_request() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let limit = Some(RateLimit { rate: 1000, burst: 2 });
    let mut served = Served::new(&br, Settings { packet_in_limit: limit, probe_ms: 0, ..Settings::default() }).await;
    controller_flow(&br);
    (0..4).for_each(|_| lab.send("br-1", &[frame(1, 2)]));
    for n in 0..4 {
        if n >= 2 {
            lab.clock.warp(1);
        }
        assert!(matches!(served.next().await, Message::PacketIn(..)));
    }
    br.connections().reconnect();
    assert!(served.serving.await.expect("no panic").is_ok());
}

#[tokio::test]
async fn a_connection_needs_a_hello() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let (_end, theirs) = tokio::io::duplex(1 << 20);
    let settings = Settings { probe_ms: 1000, ..Settings::default() };
    let (remote, bridge) = (remote(&br, settings), Arc::clone(&br));
    remote.rconn.lock().connecting(br.now());
    br.set_fail_open(true);
    let rconn = Arc::clone(&remote.rconn);
    lab.clock.warp(3000);
    let serving =
        tokio::spawn(async move { serve(&bridge, &remote, "unix#0".into(), &remote.rconn, theirs, |_| ()).await });
    while br.connections().all().is_empty() {
        tokio::task::yield_now().await;
    }
    lab.switch.housekeeping();
    assert!(shown(&br).contains("15790320"));
    assert_eq!(rconn.lock().state().name(), "CONNECTING");
    lab.clock.warp(2000);
    assert_eq!(serving.await.expect("no panic").expect_err("is over").to_string(), "Connection timed out");
}

#[test]
fn dhcp_replies_reach_the_local_port() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let mut specs: Vec<_> = br.ports().into_iter().map(|port| port.spec).collect();
    specs.push(lab.port("local", PortNo::LOCAL));
    set_ports(&br, specs);
    let reply = |source: u16, destination: u16| {
        let mut m = Match::ANY;
        let fields =
            [(Field::EthType, 0x800), (Field::IpProto, 17), (Field::IpTtl, 64), (Field::EthDst, 0xffff_ffff_ffff)];
        fields.into_iter().for_each(|(field, value)| m.set(field, value));
        m.set(Field::UdpSrc, source.into());
        m.set(Field::UdpDst, destination.into());
        flow::compose::compose(m.key(), &[0; 300])
    };
    let reaches = |frame: Vec<u8>| {
        lab.send("br-1", &[frame]);
        [lab.received("local").len(), lab.received("br-2").len()]
    };
    assert_eq!(reaches(reply(67, 68)), [0, 0]);
    br.set_dhcp_to_local(true);
    assert_eq!(reaches(reply(67, 68)), [1, 0]);
    assert_eq!([reaches(reply(68, 67)), reaches(reply(67, 69))], [[0, 0]; 2]);
    // In addition to its other outputs, and once.
    br.flow_mod(&add(Match::ANY, 1, vec![output(2)])).expect("adds");
    assert_eq!(reaches(reply(67, 68)), [1, 1]);
    br.flow_mod(&add(Match::ANY, 1, vec![output(2), Action::Output { port: PortNo::LOCAL, max_len: 0 }]))
        .expect("adds");
    assert_eq!(reaches(reply(67, 68)), [1, 1]);
}

#[tokio::test]
async fn an_unread_connection_is_closed() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let mut served = Served::new(&br, Settings { probe_ms: 0, ..Settings::default() }).await;
    let peer = br.connections().all().pop().expect("connected");
    (0..2000).for_each(|_| peer.notify(&Message::EchoRequest(vec![0; 60_000])));
    let queued = peer.queued();
    assert!((UNSOLICITED_BYTES_MAX..UNSOLICITED_BYTES_MAX + 60_008).contains(&queued), "{queued}");
    let mut received = Vec::new();
    served.end.read_to_end(&mut received).await.expect("an end");
    assert_eq!(received.len(), queued);
    assert!(served.serving.await.expect("no panic").is_ok());
    assert_eq!(peer.queued(), 0);
}

#[test]
fn mass_errors_do_not_fill_the_log() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let client = Client::new(&br, PeerKind::Controller, Version::V13);
    let log = vlog::Captured::new(&["connmgr"], vlog::Level::Info);
    log.during(|| {
        (0..1000).for_each(|_| assert!(error_of(&client.send(&Message::BarrierReply)).is_some()));
    });
    let logged = log.take().len();
    // The limit is shared by the process: other tests may have used it up.
    assert!(logged < 50, "{logged}");
}

#[test]
fn applied_flow_mods_are_counted_in_the_log() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let client = Client::new(&br, PeerKind::Controller, Version::V14);
    let send = |fm: FlowMod| client.send(&Message::FlowMod(Form::Standard, Box::new(fm)));
    let group = vec![Action::Group(7)];
    assert!(send(add(Match::ANY, 1, vec![])).is_empty());
    assert!(error_of(&send(add(Match::ANY, 2, group.clone()))).is_some());
    assert!(send(command(FlowModCommand::ModifyStrict, Match::ANY)).is_empty());
    let of = |fm| Message::FlowMod(Form::Standard, Box::new(fm));
    for last in [vec![], group] {
        let messages =
            [add(Match::ANY, 3, vec![]), command(FlowModCommand::Delete, Match::ANY), add(Match::ANY, 4, last)];
        super::long_changes::bundle_of(messages.into_iter().map(of))
            .iter()
            .for_each(|message| _ = client.send(message));
    }
    let log = vlog::Captured::new(&["connmgr"], vlog::Level::Info);
    let logged = |ms| {
        lab.clock.warp(ms);
        log.during(|| lab.switch.housekeeping());
        log.take()
    };
    assert_eq!(logged(9_999), [""; 0]);
    assert_eq!(logged(1), ["br<->unix#0: 5 flow_mods 10 s ago (3 adds, 1 deletes, 1 modifications)"]);
    assert_eq!(logged(100_000), [""; 0]);
}

#[tokio::test]
async fn the_database_shows_why_a_connection_ended() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let directory = tempfile::tempdir().expect("a folder");
    let path = directory.path().join("controller");
    let listener = tokio::net::UnixListener::bind(&path).expect("listens");
    let config = ServiceConfig {
        target: format!("unix:{}", path.display()),
        ..service(PeerKind::Controller, &[Version::V10], Settings::default())
    };
    let running = Service::start(&br, config).expect("starts");
    let hello = encode(Version::V10, 1, &Message::Hello(Hello { versions: Versions::of(&[Version::V10]) }));
    let stranger = encode(Version::V14, 1, &Message::Hello(Hello { versions: Versions::of(&[Version::V14]) }));
    let barrier = encode(Version::V10, 2, &Message::BarrierRequest);
    let too_short = [1, 2, 0, 3, 0, 0, 0, 0].to_vec();
    let cases = [
        (vec![&hello, &barrier], Some("End of file")),
        (vec![&hello, &barrier, &too_short], Some("Protocol error")),
        (vec![&barrier], Some("Protocol error")),
        (vec![&stranger], Some("Protocol error")),
    ];
    for (messages, error) in cases {
        let (mut end, _) = listener.accept().await.expect("it connects");
        for message in messages {
            end.write_all(message).await.expect("room");
        }
        end.shutdown().await.expect("is there");
        end.read_to_end(&mut Vec::new()).await.expect("an end");
        drop(end);
        while running.status().rconn.state().name() != "BACKOFF" {
            tokio::task::yield_now().await;
        }
        assert_eq!(running.status().rconn.last_error.as_deref(), error);
        lab.clock.warp(8000);
    }
    // A requested end is no error.
    let (mut end, _) = listener.accept().await.expect("it connects");
    end.write_all(&hello).await.expect("room");
    while !running.status().rconn.is_connected() {
        tokio::task::yield_now().await;
    }
    br.connections().reconnect();
    end.read_to_end(&mut Vec::new()).await.expect("an end");
    while running.status().rconn.state().name() != "BACKOFF" {
        tokio::task::yield_now().await;
    }
    assert_eq!(running.status().rconn.last_error, None);
}

#[test]
fn unread_controller_status_messages_are_bounded() {
    use openflow::asynchronous::{AsyncConfig, AsyncForm};
    let mut lab = Lab::new();
    let br = lab.bridge("br", 1);
    let [reader, idle] = [1, 2].map(|_| Client::new(&br, PeerKind::Controller, Version::V15));
    let asynchronous = AsyncConfig { controller_status: [0x7f; 2], ..reader.peer.state.lock().asynchronous };
    for client in [&reader, &idle] {
        assert!(client.send(&Message::SetAsync(AsyncForm::Standard, asynchronous.into())).is_empty());
    }
    let short = Client::new(&br, PeerKind::Controller, Version::V15);
    while idle.peer.queued() < UNSOLICITED_BYTES_MAX {
        idle.peer.notify(&Message::EchoRequest(vec![0; 60_000]));
    }
    let queued = idle.peer.queued();
    (1..=1000).for_each(|id| _ = short.send(&Message::SetControllerId(id)));
    assert_eq!((idle.peer.queued(), reader.waiting().len()), (queued, 1000));
}
