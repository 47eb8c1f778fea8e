//! A switch on a datapath without threads, in virtual time, with in-memory wires; and OpenFlow connections
//! whose other end is the test.

mod asynchronous;
mod bonds;
mod bundles;
mod changes;
mod connections;
mod control;
mod dependencies;
mod dumps;
mod errors;
mod export;
mod flow_mods;
mod ipfix;
mod local_samples;
mod long_changes;
mod meters;
mod monitors;
mod multicast;
mod ports;
mod protocols;
mod revalidation;
mod runs;
mod several_threads;
mod snapshots;
mod spanning_tree;
mod statistics;
mod tables;
mod tlv;

use crate::conn::peer::{Outgoing, Peer};
use crate::conn::remote::{PeerKind, Remote, Settings};
use crate::{BundleSpec, Identity, Ofproto, PortSpec, ServiceConfig, Switch};
use base::{Clock, MacAddr, PortNo};
use datapath::{Config, Datapath};
use flow::{Field, Match};
use netdev::memory::{self, Memory};
use netdev::{Netdev, Rx, Tx};
use openflow::flow_mod::{FlowMod, FlowModCommand};
use openflow::message::{Form, Message, decode, encode};
use openflow::multipart::{StatsReply, StatsRequest};
use openflow::versions::Versions;
use openflow::{Action, OfpError, Version};
use packet::Packet;
use parking_lot::Mutex;
use std::sync::Arc;
use xlate::{PortOut, VlanMode};

/// The far end of a port's wire.
struct Wire {
    near: Arc<Memory>,
    rx: Mutex<Box<dyn Rx>>,
    tx: Mutex<Box<dyn Tx>>,
}

/// A switch, its datapath, and its wires by name.
struct Lab {
    clock: Clock,
    switch: Arc<Switch>,
    dp: Arc<Datapath>,
    wires: Vec<(String, Wire)>,
}

impl Drop for Lab {
    /// Switch and datapath reference each other: one reference has to be dropped, or the descriptors of all ports stay open.
    fn drop(&mut self) {
        self.dp.shutdown();
    }
}

impl Lab {
    fn new() -> Self {
        let clock = Clock::stopped();
        let switch = Switch::new(clock.clone());
        let config = Config { threads: 0, ..Config::default() };
        let dp = Arc::new(Datapath::new(config, clock.clone()).expect("no thread to start"));
        dp.set_handler(switch.clone());
        switch.attach(dp.clone(), "dummy@ovs-dummy".to_owned());
        Self { clock, switch, dp, wires: Vec::new() }
    }

    /// A bridge with ports 1 to `n`, named after it, with wires.
    fn bridge(&mut self, name: &str, n: u32) -> Arc<Ofproto> {
        let bridge = self.switch.add_bridge(name);
        bridge.set_identity(Identity { datapath_id: 0x77, ..Identity::default() });
        let specs = (1..=n).map(|no| self.port(&format!("{name}-{no}"), PortNo(no))).collect();
        set_ports(&bridge, specs);
        bridge
    }

    fn port(&mut self, name: &str, no: PortNo) -> PortSpec {
        let (near, far) = memory::pair(name, &format!("far-{name}")).expect("descriptors");
        let out = self.dp.port_add(near.clone(), None).expect("opens");
        let wire = Wire {
            near: near.clone(),
            rx: Mutex::new(far.open_rx(0).expect("opens")),
            tx: Mutex::new(far.open_tx().expect("opens")),
        };
        self.wires.push((name.to_owned(), wire));
        let mac = near.mac();
        PortSpec { no, name: name.to_owned(), out: PortOut::Device(out), device: Some(near), tunnel: None, mac }
    }

    fn wire(&self, name: &str) -> &Wire {
        &self.wires.iter().find(|(n, _)| n == name).expect("a wire of this name").1
    }

    /// Sends frames into a port after all changes have been handled, and lets the datapath process them.
    fn send(&self, port: &str, frames: &[Vec<u8>]) {
        self.switch.pass(crate::Extent::Changes);
        self.send_at_once(port, frames);
    }

    /// Sends frames into a port and lets the datapath process them.
    fn send_at_once(&self, port: &str, frames: &[Vec<u8>]) {
        let mut batch = frames.iter().map(|f| Packet::from_slice(f)).collect();
        self.wire(port).tx.lock().send_batch(&mut batch);
        self.dp.run_until_idle(1000);
    }

    /// The packets sent by a port since the last call.
    fn received(&self, port: &str) -> Vec<Packet> {
        let mut all = Vec::new();
        while self.wire(port).rx.lock().recv_batch(&mut all, 1000).expect("a wire") > 0 {}
        all
    }
}

fn set_ports(bridge: &Ofproto, specs: Vec<PortSpec>) {
    let bundles = specs.iter().map(bundle).collect();
    bridge.set_ports(specs, bundles);
}

fn bundle(spec: &PortSpec) -> BundleSpec {
    BundleSpec {
        name: spec.name.clone(),
        ports: vec![spec.no],
        mode: VlanMode::Trunk,
        tag: 0,
        trunks: Vec::new(),
        cvlans: Vec::new(),
        priority_tags: xlate::model::PriorityTags::Never,
        protected: false,
        multicast: Default::default(),
    }
}

/// A frame of 60 bytes between two stations.
fn frame(src: u8, dst: u8) -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, dst]);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 0, src]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

fn output(port: u32) -> Action {
    Action::Output { port: PortNo(port), max_len: 0 }
}

fn normal() -> Action {
    Action::Output { port: PortNo::NORMAL, max_len: 0 }
}

fn in_port(port: u32) -> Match {
    let mut m = Match::ANY;
    m.set(Field::InPortOxm, port.into());
    m
}

/// An addition to table 0.
fn add(matching: Match, priority: u16, actions: Vec<Action>) -> FlowMod {
    FlowMod { table_id: Some(0), matching, priority, actions, ..FlowMod::new(FlowModCommand::Add) }
}

fn command(command: FlowModCommand, matching: Match) -> FlowMod {
    FlowMod { matching, ..FlowMod::new(command) }
}

/// A configuration without a target.
fn service(kind: PeerKind, versions: &[Version], settings: Settings) -> ServiceConfig {
    ServiceConfig { target: "test".into(), kind, versions: Versions::of(versions), dscp: 0, settings }
}

/// Handles a message completely.
fn handle(bridge: &Ofproto, peer: &Peer, bytes: &[u8]) {
    let mut packets = Vec::new();
    bridge.handle(peer, bytes, &mut packets);
    bridge.execute(&mut packets);
    while bridge.finish_some(peer) {}
}

/// A connection: a call passes a message to it, replies wait in its queue.
struct Client {
    bridge: Arc<Ofproto>,
    version: Version,
    peer: Arc<Peer>,
    outgoing: Mutex<Outgoing>,
}

impl Client {
    fn new(bridge: &Arc<Ofproto>, kind: PeerKind, version: Version) -> Self {
        Self::with(bridge, kind, version, Settings::default())
    }

    fn with(bridge: &Arc<Ofproto>, kind: PeerKind, version: Version, settings: Settings) -> Self {
        let remote = Remote::new(service(kind, &[version], settings), bridge.now());
        bridge.connections().add_remote(Arc::clone(&remote));
        Self::of(bridge, remote, version)
    }

    /// A connection to this remote.
    fn of(bridge: &Arc<Ofproto>, remote: Arc<Remote>, version: Version) -> Self {
        let (peer, outgoing) = Peer::new(remote, "unix#0".into(), bridge.now(), Arc::default());
        peer.agree_on(version);
        bridge.connections().add(Arc::clone(&peer));
        bridge.update_miss_to_controller();
        Self { bridge: Arc::clone(bridge), version, peer, outgoing: Mutex::new(outgoing) }
    }

    fn bytes(&self, bytes: &[u8]) -> Vec<Message> {
        handle(&self.bridge, &self.peer, bytes);
        self.waiting()
    }

    /// Sends a message and returns the messages in the connection's queue.
    fn send(&self, message: &Message) -> Vec<Message> {
        self.bytes(&encode(self.version, 9, message))
    }

    fn waiting(&self) -> Vec<Message> {
        let mut all = Vec::new();
        let mut outgoing = self.outgoing.lock();
        while let Some(bytes) = outgoing.try_next() {
            outgoing.sent(bytes.len());
            let (version, _, message) = decode(&bytes).expect("what a switch sends can be decoded");
            assert_eq!(version, self.version);
            all.push(message);
        }
        all
    }

    fn flow_mod(&self, fm: FlowMod) -> Vec<Message> {
        self.send(&Message::FlowMod(Form::Standard, Box::new(fm)))
    }

    fn ask(&self, body: StatsRequest) -> StatsReply {
        let mut whole = openflow::multipart::Reassembly::new(64 << 20);
        handle(&self.bridge, &self.peer, &encode(self.version, 9, &Message::StatsRequest { more: false, body }));
        let mut outgoing = self.outgoing.lock();
        while let Some(bytes) = outgoing.try_next() {
            outgoing.sent(bytes.len());
            match decode(&bytes).expect("decodes").2 {
                Message::StatsReply { more, body } => {
                    if let Some(reply) = whole.push(body, more, bytes.len()).expect("parts of one kind") {
                        return reply;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        panic!("no answer")
    }

    /// Priority, packets and bytes of all flows, by priority.
    fn counts(&self) -> Vec<(u16, u64, u64)> {
        let StatsReply::Flow(flows) = self.ask(StatsRequest::Flow(Default::default())) else { panic!("flows") };
        let mut counts: Vec<_> = flows.iter().map(|f| (f.priority, f.packet_count, f.byte_count)).collect();
        counts.sort_unstable();
        counts
    }
}

/// The error in the messages, if they are a single error.
fn error_of(messages: &[Message]) -> Option<OfpError> {
    match messages {
        [] => None,
        [Message::Error(report)] => match report.error {
            openflow::switch::ReportedError::Known(error) => Some(error),
            openflow::switch::ReportedError::Unknown(number) => panic!("{number:?}"),
        },
        other => panic!("{other:?}"),
    }
}

const MAC_A: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
