//! The pipeline: enters a bridge, looks up tables, executes the rules' actions.
//!
//! [`Xlate`] is the state of one translation; [`crate::state`] has its parts, and [`crate::scope`] saves and restores them.

use crate::commit::Pending;
use crate::freeze::Unseen;
use crate::mirror::Mirroring;
use crate::model::{Bridge, BridgeId, Network, PortConfig};
use crate::monitor::Outputs;
use crate::scope::Saved;
use crate::state::{Control, Output, Packet, Position, TYPICAL_LOOKUPS, Usage, WORDS_TYPICAL_WRITTEN};
use crate::tables::View;
use crate::trace::{Node, NodeKind, Tracer, Tracing};
use crate::verdict::{Dependency, Trace, TranslationError, Verdict};
use base::{DpPort, DropReason, MacAddr, PortNo};
use dpif::DpAction;
use flow::extract::ethertype;
use flow::{Field, FlowKey, Reads, layout};
use openflow::Action;
use protocols::Ports;
use smallvec::{SmallVec, smallvec};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Maximum nesting of steps that may recurse: look-ups in the same table or an earlier one, groups, patch ports
/// (ovs-actions(7), "Recursion too deep").
pub const MAX_DEPTH: u32 = 64;
/// Maximum number of look-ups, groups' buckets and patch ports in a translation.
pub const MAX_RESUBMITS: u32 = 4096;
/// Maximum number of values on the stack.
pub const MAX_STACK: usize = 4096;
/// Size of the datapath actions, in bytes as Open vSwitch counts them, at which the next table, group or patch port ends the
/// translation. Its actions up to there remain.
pub const MAX_ACTION_BYTES: usize = 1 << 16;
/// The same limit within a list of actions. (Open vSwitch has none, but a list of floods is long.)
pub const MAX_LIST_BYTES: usize = 1 << 20;
/// Maximum number of executed actions.
pub const MAX_STEPS: u32 = 1 << 18;
/// Maximum number of actions in an action set.
pub(crate) const MAX_SET: usize = 1024;
/// Maximum number of nested scopes, which bounds the use of the thread's stack.
pub(crate) const MAX_SCOPES: u32 = 96;

/// The start of a translation.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a> {
    /// In table 0.
    Tables,
    /// With these actions (packet-out); a resubmit from them starts at `table`.
    Actions(&'a [Action]),
    /// With the output of a protocol's frame to this port, whatever protocols permit there.
    Protocol(PortNo),
}

/// Translates a packet that came in on a datapath port. `key` holds the datapath's port number as ingress port.
/// A recirculated packet resumes where it was frozen.
pub fn translate(net: &Network, key: &FlowKey, trace: impl Into<Tracing>) -> Verdict {
    let trace = trace.into();
    if key.get(Field::RecircId) != 0 {
        return crate::freeze::resume(net, key, trace);
    }
    let dp_port = DpPort(key.in_port().0);
    if net.tunnels.has(dp_port) {
        return crate::tunnel::receive(net, dp_port, key, trace);
    }
    match net.ports.get(&dp_port).and_then(|(id, port)| net.bridges.get(id).map(|b| (b, *port))) {
        Some((bridge, port)) => translate_key(net, bridge, (key, port), Start::Tables, trace, |_| true),
        None => drop_verdict(key, TranslationError::Port, trace),
    }
}

/// Reads whether an IP packet is a fragment.
fn note_fragment(key: &FlowKey, reads: &mut Reads) {
    if [ethertype::IPV4, ethertype::IPV6].contains(&key.eth_type()) {
        let frag = FlowKey::mask_of(Field::IpFrag).0[layout::IP_MISC];
        reads.note_initial(layout::IP_MISC, frag);
    }
}

/// The verdict that drops a packet before it enters a bridge.
pub(crate) fn drop_verdict(key: &FlowKey, error: TranslationError, trace: Tracing) -> Verdict {
    let mut reads = Reads::new();
    reads.note(layout::PORTS, u64::MAX);
    if error == TranslationError::Recirculation {
        reads.note_field(Field::EthType);
        note_fragment(key, &mut reads);
    }
    Verdict {
        actions: Vec::new(),
        reads: reads.take_order(),
        effects: Vec::new(),
        dependencies: Vec::new(),
        written: Vec::new(),
        error: Some(error),
        slow: false,
        drop: Some(error.drop_reason()),
        trace: (trace != Tracing::Off)
            .then(|| Box::new(Trace { nodes: Vec::new(), final_key: key.clone(), forks: Vec::new() })),
    }
}

/// Translates a packet in `bridge`. `key` holds the bridge's port number as ingress port. A recirculated packet
/// resumes where it was frozen.
pub fn translate_from(
    net: &Network,
    bridge: &Bridge,
    key: &FlowKey,
    start: Start<'_>,
    trace: impl Into<Tracing>,
) -> Verdict {
    let trace = trace.into();
    if key.get(Field::RecircId) != 0 {
        let mut verdict = crate::freeze::resume(net, key, trace);
        if let Some(trace) = verdict.trace.as_mut().filter(|trace| trace.nodes.is_empty()) {
            trace.nodes = no_recirculation(bridge, key.get(Field::RecircId));
        }
        return verdict;
    }
    if matches!(start, Start::Tables)
        && let Some(verdict) = crate::tunnel::receive_at(net, bridge, key, trace)
    {
        return verdict;
    }
    translate_key(net, bridge, (key, key.in_port()), start, trace, |_| true)
}

/// The trace of a packet with an unknown number of recirculation.
#[cold]
fn no_recirculation(bridge: &Bridge, id: u128) -> Vec<Node> {
    let text = format!("Recirculation context not found for ID {id:x}");
    let error = Node { kind: NodeKind::Error, text, subs: Vec::new() };
    vec![Node { kind: NodeKind::Bridge, text: format!("bridge(\"{}\")", bridge.name), subs: vec![error] }]
}

/// Translates a packet with this key, apart from the ingress port, that arrived on this port of the bridge. `begin` is called first,
/// and returns false if it drops the packet.
pub(crate) fn translate_key<'a>(
    net: &'a Network,
    bridge: &'a Bridge,
    (key, in_port): (&FlowKey, PortNo),
    start: Start<'_>,
    trace: Tracing,
    begin: impl FnOnce(&mut Xlate<'a>) -> bool,
) -> Verdict {
    base::coverage!(xlate_actions);
    Xlate::work(net, bridge, key, trace, |x| {
        x.packet.key.set_in_port(in_port);
        x.packet.base.set_in_port(in_port);
        if !begin(x) || matches!(start, Start::Tables) && !x.admit(bridge, in_port) {
            return;
        }
        let monitored = x.begin_monitoring(bridge, in_port);
        x.sample_ingress();
        x.mirroring.at_ingress = bridge.mirrors.is_some() && matches!(start, Start::Tables);
        x.process_in_bridge(bridge, start);
        x.dhcp_to_local();
        if matches!(start, Start::Tables) {
            x.restrict(bridge, in_port);
        }
        x.end_monitoring(bridge, monitored);
    })
}

/// The state of one translation.
pub(crate) struct Xlate<'a> {
    pub(crate) net: &'a Network,
    /// The decisions of protocols about ports, as of the beginning.
    pub(crate) overlay: Arc<Ports>,
    /// The decisions of bonds, as of the first use.
    pub(crate) bonds: Option<Arc<bond::view::Views>>,
    /// The views of the tables of all bridges that the packet has entered.
    views: SmallVec<[(BridgeId, Arc<View>); 2]>,
    pub(crate) packet: Packet,
    /// The outer destination that the packet was received with, if it came from a tunnel.
    pub(crate) received_at: Option<IpAddr>,
    pub(crate) pos: Position<'a>,
    pub(crate) out: Output,
    pub(crate) control: Control,
    pub(crate) usage: Usage,
    pub(crate) mirroring: Mirroring,
    /// The packets that the open scopes restore, outermost first, followed by spare memory.
    pub(crate) saved: Vec<Saved>,
    pub(crate) tracer: Tracer,
}

impl<'a> Xlate<'a> {
    /// Returns the verdict on a packet in `bridge` after `work`. (The state is large, and stays in one place.)
    pub(crate) fn work(
        net: &'a Network,
        bridge: &'a Bridge,
        key: &FlowKey,
        trace: Tracing,
        work: impl FnOnce(&mut Self),
    ) -> Verdict {
        let mut x = Self::new(net, bridge, key, trace);
        // Registers, metadata, `conj_id` and `actset_output` are not part of a packet: their initial values are fixed, so that
        // using them reads nothing.
        x.out.reads.write_words(layout::REGS_AND_METADATA);
        x.out.reads.write_field(Field::ConjId);
        x.set_actset_output(PortNo::UNSET);
        // The bridge depends on the port or the frozen state, and the parsing of headers on the Ethernet type.
        x.out.reads.note(layout::PORTS, u64::MAX);
        x.out.reads.note_field(Field::EthType);
        work(&mut x);
        // As in Open vSwitch, a megaflow is for fragments or for whole packets. Its last bits to be read are these, so that they
        // add no node to the path of a look-up in the datapath unless fragments arrive.
        note_fragment(key, &mut x.out.reads);
        x.finish()
    }

    #[inline(always)]
    fn new(net: &'a Network, bridge: &'a Bridge, key: &FlowKey, trace: Tracing) -> Self {
        Self {
            net,
            overlay: net.overlay.load(),
            bonds: None,
            views: smallvec![(bridge.id, bridge.tables.view())],
            packet: Packet {
                key: key.clone(),
                base: key.clone(),
                pending: Pending::default(),
                // A packet from a port has no hash; a trace may begin with a packet that has one.
                hashed: key.get(Field::DpHash) != 0,
                unseen: Unseen::Nothing,
                tracked: None,
                translated: false,
                written: None,
                first_priority: key.get(Field::SkbPriority) as u32,
            },
            received_at: crate::tunnel::received_at(key),
            pos: Position::new(bridge),
            out: Output {
                reads: Reads::new(),
                actions: Vec::new(),
                effects: Vec::with_capacity(TYPICAL_LOOKUPS),
                learned: HashMap::new(),
                fin_timeouts: Vec::new(),
                dependencies: Vec::with_capacity(TYPICAL_LOOKUPS),
                all_written: Vec::with_capacity(WORDS_TYPICAL_WRITTEN),
                drop: None,
                observed: false,
                explicit_drops: false,
                slow: false,
                outputs: Outputs::default(),
            },
            control: Control::default(),
            usage: Usage::default(),
            mirroring: Mirroring::default(),
            saved: Vec::new(),
            tracer: Tracer::new(trace),
        }
    }

    /// Returns the verdict, moving everything out of the state.
    fn finish(&mut self) -> Verdict {
        trim(&mut self.out.actions);
        unwrap_last(&mut self.out.actions);
        self.end_connections();
        self.drop_sampled();
        self.mark_forwarded();
        if let Some(error) = self.control.error {
            self.out.actions.clear();
            self.out.drop = Some(error.drop_reason());
        } else if self.out.actions.is_empty() {
            self.out.drop = Some(self.out.drop.unwrap_or(DropReason::Action));
        } else {
            self.out.drop = None;
        }
        let (nodes, forks) = std::mem::replace(&mut self.tracer, Tracer::new(Tracing::Off)).finish();
        let trace = nodes.map(|nodes| {
            let mut final_key = self.packet.key.clone();
            if final_key.get(Field::ActsetOutput) == PortNo::UNSET.0.into() {
                final_key.set(Field::ActsetOutput, 0);
            }
            Box::new(Trace { nodes, final_key, forks })
        });
        Verdict {
            actions: std::mem::take(&mut self.out.actions),
            reads: self.out.reads.take_order(),
            effects: std::mem::take(&mut self.out.effects),
            dependencies: std::mem::take(&mut self.out.dependencies),
            written: std::mem::take(&mut self.out.all_written),
            error: self.control.error,
            slow: self.out.slow && self.control.error.is_none(),
            drop: self.out.drop,
            trace,
        }
    }

    /// Processes the packet in `bridge`, from its ingress port on.
    pub(crate) fn process_in_bridge(&mut self, bridge: &'a Bridge, start: Start<'_>) {
        self.pos.bridge = bridge;
        self.pos.view = self.view_of(bridge);
        self.pos.table = 0;
        self.out.dependencies.push(Dependency::Bridge(bridge.id));
        self.tracer.enter(NodeKind::Bridge, || format!("bridge(\"{}\")", bridge.name));
        let in_port = self.packet.key.in_port();
        let config = bridge.ports.get(&in_port).map(|p| p.config);
        match start {
            Start::Tables if config.is_some_and(|c| self.is_refused(c)) => {
                self.tracer.note(NodeKind::Warning, || "port is configured not to receive".into());
                self.out.drop = Some(DropReason::PortDown);
            }
            Start::Tables => self.first_lookup(),
            Start::Actions(actions) => {
                self.pos.packet_out = true;
                if self.mirror_ingress() {
                    self.do_actions(actions);
                }
            }
            Start::Protocol(port) => self.output_of_protocol(port),
        }
        self.do_action_set();
        self.tracer.leave();
    }

    /// Returns true if a port with this configuration does not receive the packet.
    fn is_refused(&mut self, config: PortConfig) -> bool {
        if config.down || config.no_recv == config.no_recv_stp {
            return config.down || config.no_recv;
        }
        if self.is_stp() { config.no_recv_stp } else { config.no_recv }
    }

    /// Returns true if the packet is an 802.1D frame: 802.2 without SNAP, to the bridge group address.
    fn is_stp(&mut self) -> bool {
        self.out.reads.note_field(Field::EthType);
        if self.packet.key.get(Field::EthType) != u128::from(flow::extract::DL_TYPE_NONE) {
            return false;
        }
        self.out.reads.note_field(Field::EthDst);
        MacAddr::from_u64(self.packet.key.get(Field::EthDst) as u64) == MacAddr::STP
    }

    /// Executes the action set at the end of a bridge's pipeline, and empties it.
    pub(crate) fn do_action_set(&mut self) {
        if self.pos.action_set.is_empty() || self.control.error.is_some() || self.control.exit {
            return;
        }
        // The trace shows it after the last table's actions.
        self.tracer.reenter();
        self.execute_set();
        self.tracer.leave();
    }

    /// Executes the action set at the end of a clone.
    pub(crate) fn execute_set(&mut self) {
        if self.pos.action_set.is_empty() || self.control.error.is_some() || self.control.exit {
            return;
        }
        self.tracer.enter(NodeKind::Table, || "--. Executing action set:".into());
        let set = std::mem::take(&mut self.pos.action_set);
        self.pos.in_action_set = true;
        self.do_actions(&crate::action::set_in_order(&set));
        self.pos.in_action_set = false;
        self.tracer.leave();
    }

    /// Ends the translation with an error.
    pub(crate) fn fail(&mut self, error: TranslationError) {
        self.tracer.note(NodeKind::Error, || error.to_string());
        self.control.error = Some(error);
        self.control.exit = true;
    }

    /// The tables of the current bridge, in their version when the packet first entered it.
    pub(crate) fn view(&self) -> &View {
        &self.views[self.pos.view].1
    }

    /// Returns the index of the view of the tables of `bridge`, taking the view when the packet first enters it.
    fn view_of(&mut self, bridge: &Bridge) -> usize {
        self.views.iter().position(|(id, _)| *id == bridge.id).unwrap_or_else(|| {
            self.views.push((bridge.id, bridge.tables.view()));
            self.views.len() - 1
        })
    }

    /// Returns true, and ends the translation, if it has reached a limit.
    pub(crate) fn is_over_limits(&mut self) -> bool {
        if self.control.error.is_some() {
            return true;
        }
        let over = if self.pos.depth >= MAX_DEPTH || self.usage.scopes >= MAX_SCOPES {
            TranslationError::Depth
        } else if self.usage.resubmits >= MAX_RESUBMITS {
            TranslationError::Resubmits
        } else if self.usage.action_bytes > MAX_ACTION_BYTES {
            self.stop();
            return true;
        } else {
            return false;
        };
        self.fail(over);
        true
    }

    /// Counts a look-up or an equally expensive step. Returns false, and ends the translation, if a limit is reached.
    pub(crate) fn count_resubmit(&mut self) -> bool {
        let ok = !self.is_over_limits();
        self.usage.resubmits += 1;
        ok
    }

    /// Counts an action. Returns false, and ends the translation, if a limit is reached.
    pub(crate) fn count_step(&mut self) -> bool {
        self.usage.steps += 1;
        if self.usage.steps > MAX_STEPS {
            self.fail(TranslationError::Steps);
        } else if self.usage.action_bytes > MAX_LIST_BYTES {
            self.stop();
        }
        !self.control.exit
    }

    /// Ends the translation at the limit of datapath actions. The actions before the limit are executed.
    fn stop(&mut self) {
        self.tracer
            .note(NodeKind::Error, || format!("resubmits yielded over {} kB of actions", MAX_ACTION_BYTES / 1024));
        self.control.exit = true;
    }
}

/// Removes changes of the packet from the end of `actions`, which no later action uses.
pub(crate) fn trim(actions: &mut Vec<DpAction>) {
    actions.truncate(actions.iter().rposition(|a| !a.is_preparation()).map_or(0, |last| last + 1));
}

/// Has the packet itself take the actions that a copy would take at the end of `actions`.
pub(crate) fn unwrap_last(actions: &mut Vec<DpAction>) {
    while let Some(DpAction::Clone(_)) = actions.last()
        && let Some(DpAction::Clone(inner)) = actions.pop()
    {
        actions.extend_from_slice(&inner);
    }
}

/// Returns the bridge with this number, if it exists.
pub(crate) fn bridge_of(net: &Network, id: BridgeId) -> Option<&Bridge> {
    net.bridges.get(&id).map(Arc::as_ref)
}
