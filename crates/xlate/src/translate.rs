//! The pipeline: enter a bridge, look up tables, carry out what the rules say.
//!
//! [`Xlate`] is the state of one translation. Its parts: the key as the packet would look now (`key`), the key as the
//! datapath has it after the actions emitted so far (`base`), what was read, what was written but not yet emitted
//! (`pending`, see [`crate::commit`]), and the output.

use crate::bits::Value;
use crate::commit::Pending;
use crate::freeze::{Freeze, Unseen};
use crate::learn::FinTimeout;
use crate::model::{Bridge, BridgeId, Network};
use crate::pipeline::Frame;
use crate::tables::View;
use crate::trace::{Kind, Tracer};
use crate::verdict::{Dependency, Effect, Trace, TranslationError, Verdict, Written, WrittenWord};
use base::{DpPort, DropReason, PortNo};
use dpif::DpAction;
use flow::{Field, FlowKey, Reads, layout};
use openflow::{Action, Nat};
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// Steps at most that could be without end, nested in each other: look-ups in the same table or an earlier one, groups,
/// patch ports (ovs-actions(7), "Recursion too deep").
pub const MAX_DEPTH: u32 = 64;
/// Look-ups at most, in one translation; buckets of groups count as well.
pub const MAX_RESUBMITS: u32 = 4096;
/// Values on the stack at most.
pub const MAX_STACK: usize = 4096;
/// Size of the datapath actions at most, in bytes as Open vSwitch counts them.
pub const MAX_ACTION_BYTES: usize = 1 << 16;
/// Actions carried out at most.
pub const MAX_STEPS: u32 = 1 << 18;
/// Actions in an action set at most.
pub(crate) const MAX_SET: usize = 1024;
/// Copies of the packet at most that are worked on inside of each other: what bounds the stack of the thread.
pub(crate) const MAX_COPIES: u32 = 96;

/// Words that it tells to be written, mostly.
const WORDS_WRITTEN_LIKELY: usize = 8;
/// Look-ups in a translation, mostly.
const LOOKUPS_LIKELY: usize = 16;

/// Where a translation begins.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a> {
    /// In table 0.
    Tables,
    /// With these actions (packet-out), as of `table` if they resubmit.
    Actions(&'a [Action]),
}

/// Translates a packet that came in on a datapath port. `key` holds the datapath's port number as ingress port.
/// One that comes back goes on where it was left.
pub fn translate(net: &Network, key: &FlowKey, trace: bool) -> Verdict {
    if key.get(Field::RecircId) != 0 {
        return crate::freeze::resume(net, key, trace);
    }
    let dp_port = DpPort(key.in_port().0);
    match net.ports.get(&dp_port).and_then(|(id, port)| net.bridges.get(id).map(|b| (b, *port))) {
        Some((bridge, port)) => translate_key(net, bridge, (key, port), Start::Tables, trace),
        None => nowhere(key, TranslationError::Port, trace),
    }
}

/// The verdict on a packet that no bridge takes.
pub(crate) fn nowhere(key: &FlowKey, error: TranslationError, trace: bool) -> Verdict {
    let mut reads = Reads::new();
    reads.note(layout::PORTS, u64::MAX);
    Verdict {
        actions: Vec::new(),
        reads: reads.take_order(),
        effects: Vec::new(),
        dependencies: Vec::new(),
        written: Vec::new(),
        error: Some(error),
        drop: Some(error.drop_reason()),
        trace: trace.then(|| Box::new(Trace { nodes: Vec::new(), final_key: key.clone(), forks: Vec::new() })),
    }
}

/// Translates a packet in `bridge`. `key` holds the bridge's port number as ingress port. One that comes back goes on where
/// it was left.
pub fn translate_from(net: &Network, bridge: &Bridge, key: &FlowKey, start: Start<'_>, trace: bool) -> Verdict {
    if key.get(Field::RecircId) != 0 {
        return crate::freeze::resume(net, key, trace);
    }
    translate_key(net, bridge, (key, key.in_port()), start, trace)
}

/// Translates a packet with this key, but for the ingress port, that came in on this port of the bridge.
fn translate_key(
    net: &Network,
    bridge: &Bridge,
    (key, in_port): (&FlowKey, PortNo),
    start: Start<'_>,
    trace: bool,
) -> Verdict {
    base::coverage!(xlate_actions);
    Xlate::work(net, bridge, key, trace, |x| {
        x.key.set_in_port(in_port);
        x.base.set_in_port(in_port);
        x.sample_ingress();
        x.in_bridge(bridge, start);
        x.dhcp_to_local();
    })
}

/// The state of one translation.
pub(crate) struct Xlate<'a> {
    pub(crate) net: &'a Network,
    pub(crate) bridge: &'a Bridge,
    /// The tables of `bridge` as they are to this translation.
    pub(crate) view: Arc<View>,
    /// The same of all bridges so far.
    views: SmallVec<[(BridgeId, Arc<View>); 2]>,
    /// The packet as it would be now.
    pub(crate) key: FlowKey,
    /// The packet as the datapath has it after `actions`.
    pub(crate) base: FlowKey,
    pub(crate) reads: Reads,
    pub(crate) pending: Pending,
    pub(crate) actions: Vec<DpAction>,
    /// Size of all actions so far, nested ones included.
    pub(crate) action_bytes: usize,
    pub(crate) effects: Vec<Effect>,
    pub(crate) fin_timeouts: Vec<FinTimeout>,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) tracer: Tracer,
    /// What `pop_queue` gives back.
    pub(crate) first_priority: u32,
    pub(crate) table: u8,
    /// Which of the effects tells of the rule whose actions are carried out.
    pub(crate) rule: Option<usize>,
    pub(crate) rule_cookie: u64,
    /// The rule is a table-miss rule: priority 0, matches all (OpenFlow 1.3 section 5.4).
    pub(crate) rule_is_miss: bool,
    pub(crate) action_set: Vec<Action>,
    pub(crate) stack: Vec<Value>,
    /// See [`MAX_DEPTH`].
    pub(crate) depth: u32,
    /// Rules and buckets inside of which this is.
    pub(crate) level: u32,
    /// Lists inside of each other, each with those that it leads to, in this bridge.
    pub(crate) runs: u32,
    /// See [`MAX_COPIES`].
    pub(crate) copies: u32,
    resubmits: u32,
    steps: u32,
    /// What an action asked to be carried out next, before what stands behind it.
    pub(crate) next: Option<Frame<'static>>,
    /// The packet has to come back after the action in work.
    pub(crate) freeze: Option<Freeze>,
    /// The packet's key has its hash.
    pub(crate) hashed: bool,
    /// What was popped that nobody has looked behind.
    pub(crate) unseen: Unseen,
    /// The connection tracker has seen the packet, and its key tells so; `None` if that is for the key to say.
    pub(crate) tracked: Option<bool>,
    /// It may have translated addresses and ports that the packet has in the datapath.
    pub(crate) translated: bool,
    /// The translation that the `ct` in work asks for.
    pub(crate) nat: Option<Box<Nat>>,
    /// The next look-up is by the original direction of the packet's connection.
    pub(crate) by_connection: bool,
    /// What was written to the key until now, as dependencies tell it; `None` if that has to be told anew.
    pub(crate) written: Option<Written>,
    /// What was written until any of the look-ups.
    pub(crate) all_written: Vec<WrittenWord>,
    /// An `exit` or an error: nothing more is done in this bridge.
    pub(crate) exit: bool,
    /// The list of actions in work is over, not those that it was reached from by a resubmit.
    pub(crate) stop_list: bool,
    /// The action set is carried out.
    pub(crate) in_action_set: bool,
    /// A group's bucket is.
    pub(crate) in_group: bool,
    pub(crate) error: Option<TranslationError>,
    pub(crate) drop: Option<DropReason>,
    pub(crate) initial_actions_seen: bool,
    /// Collectors are told of the packet somewhere.
    pub(crate) observed: bool,
}

impl<'a> Xlate<'a> {
    /// The verdict on a packet in `bridge`, when `work` is done. (The state is large, and stays in one place.)
    pub(crate) fn work(
        net: &'a Network,
        bridge: &'a Bridge,
        key: &FlowKey,
        trace: bool,
        work: impl FnOnce(&mut Self),
    ) -> Verdict {
        let mut x = Self::new(net, bridge, key, trace);
        // Registers, metadata and `conj_id` are no part of a packet: what they start with is given, and looking at them
        // reads nothing.
        x.reads.write_words(layout::GIVEN);
        x.reads.write_field(Field::ConjId);
        // Which bridge this is depends on the port, or on what was left; and how headers are read on the Ethernet type.
        x.reads.note(layout::PORTS, u64::MAX);
        x.reads.note_field(Field::EthType);
        work(&mut x);
        x.finish()
    }

    #[inline(always)]
    fn new(net: &'a Network, bridge: &'a Bridge, key: &FlowKey, trace: bool) -> Self {
        let view = bridge.tables.view();
        // None that has just come in has one; whoever asks about a packet may say what it is to be.
        let key_is_hashed = key.get(Field::DpHash) != 0;
        Self {
            net,
            bridge,
            view: Arc::clone(&view),
            views: smallvec![(bridge.id, view)],
            first_priority: key.get(Field::SkbPriority) as u32,
            base: key.clone(),
            key: key.clone(),
            reads: Reads::new(),
            pending: Pending::default(),
            actions: Vec::new(),
            action_bytes: 0,
            effects: Vec::with_capacity(LOOKUPS_LIKELY),
            fin_timeouts: Vec::new(),
            dependencies: Vec::with_capacity(LOOKUPS_LIKELY),
            tracer: Tracer::new(trace),
            table: 0,
            rule: None,
            rule_cookie: u64::MAX,
            rule_is_miss: false,
            action_set: Vec::new(),
            stack: Vec::new(),
            depth: 0,
            level: 0,
            runs: 0,
            copies: 0,
            resubmits: 0,
            steps: 0,
            next: None,
            freeze: None,
            hashed: key_is_hashed,
            unseen: Unseen::Nothing,
            tracked: None,
            translated: false,
            nat: None,
            by_connection: false,
            written: None,
            all_written: Vec::with_capacity(WORDS_WRITTEN_LIKELY),
            exit: false,
            stop_list: false,
            in_action_set: false,
            in_group: false,
            error: None,
            drop: None,
            initial_actions_seen: false,
            observed: false,
        }
    }

    /// The verdict, when all is done: nothing of it stays here.
    fn finish(&mut self) -> Verdict {
        trim(&mut self.actions);
        self.end_connections();
        self.tell_fate();
        if let Some(error) = self.error {
            self.actions.clear();
            self.drop = Some(error.drop_reason());
        } else if self.actions.is_empty() {
            self.drop = Some(self.drop.unwrap_or(DropReason::Action));
        } else {
            self.drop = None;
        }
        let (nodes, forks) = std::mem::take(&mut self.tracer).finish();
        let trace = nodes.map(|nodes| Box::new(Trace { nodes, final_key: self.key.clone(), forks }));
        Verdict {
            actions: std::mem::take(&mut self.actions),
            reads: self.reads.take_order(),
            effects: std::mem::take(&mut self.effects),
            dependencies: std::mem::take(&mut self.dependencies),
            written: std::mem::take(&mut self.all_written),
            error: self.error,
            drop: self.drop,
            trace,
        }
    }

    /// Processes the packet in `bridge`, from its ingress port on. The caller restores what it needs afterwards.
    pub(crate) fn in_bridge(&mut self, bridge: &'a Bridge, start: Start<'_>) {
        self.bridge = bridge;
        self.view = self.view_of(bridge);
        self.table = 0;
        let runs = std::mem::take(&mut self.runs);
        self.dependencies.push(Dependency::Bridge(bridge.id));
        self.tracer.enter(Kind::Bridge, || format!("bridge(\"{}\")", bridge.name));
        let in_port = self.key.in_port();
        let config = bridge.ports.get(&in_port).map(|p| p.config);
        match start {
            Start::Tables if config.is_some_and(|c| c.no_recv || c.down) => {
                self.tracer.note(Kind::Warning, || "port is configured not to receive".into());
                self.drop = Some(DropReason::PortDown);
            }
            Start::Tables => self.first_lookup(),
            Start::Actions(actions) => {
                self.initial_actions_seen = true;
                self.do_actions(actions);
            }
        }
        self.do_action_set();
        self.runs = runs;
        self.tracer.leave();
    }

    /// Carries out the action set, at the end of a bridge's pipeline. Nothing is left in it.
    pub(crate) fn do_action_set(&mut self) {
        if self.action_set.is_empty() || self.error.is_some() || self.exit {
            return;
        }
        // It is told of behind what the last table did.
        self.tracer.reenter();
        self.execute_set();
        self.tracer.leave();
    }

    /// The same at the end of a copy's way.
    pub(crate) fn execute_set(&mut self) {
        if self.action_set.is_empty() || self.error.is_some() || self.exit {
            return;
        }
        self.tracer.enter(Kind::Table, || "--. Executing action set:".into());
        let set = std::mem::take(&mut self.action_set);
        self.in_action_set = true;
        self.do_actions(&crate::action::set_in_order(&set));
        self.in_action_set = false;
        self.tracer.leave();
    }

    /// Gives the translation up.
    pub(crate) fn fail(&mut self, error: TranslationError) {
        self.tracer.note(Kind::Error, || error.to_string());
        self.error = Some(error);
        self.exit = true;
    }

    /// The tables of `bridge`, in the version that they had when the packet came there first.
    fn view_of(&mut self, bridge: &Bridge) -> Arc<View> {
        if let Some((_, view)) = self.views.iter().find(|(id, _)| *id == bridge.id) {
            return Arc::clone(view);
        }
        let view = bridge.tables.view();
        self.views.push((bridge.id, Arc::clone(&view)));
        view
    }

    /// Gives the translation up if it has used up what it may. Whether it has.
    pub(crate) fn is_over_limits(&mut self) -> bool {
        if self.error.is_some() {
            return true;
        }
        let over = if self.depth >= MAX_DEPTH || self.copies >= MAX_COPIES {
            TranslationError::Depth
        } else if self.resubmits >= MAX_RESUBMITS {
            TranslationError::Resubmits
        } else if self.action_bytes > MAX_ACTION_BYTES {
            TranslationError::Actions
        } else {
            return false;
        };
        self.fail(over);
        true
    }

    /// Counts a look-up or what costs as much, and gives the translation up if it may not have another.
    pub(crate) fn count_resubmit(&mut self) -> bool {
        let ok = !self.is_over_limits();
        self.resubmits += 1;
        ok
    }

    /// Counts an action, and gives the translation up if it may not have another.
    pub(crate) fn count_step(&mut self) -> bool {
        self.steps += 1;
        if self.steps > MAX_STEPS {
            self.fail(TranslationError::Steps);
        } else if self.action_bytes > MAX_ACTION_BYTES {
            self.fail(TranslationError::Actions);
        }
        self.error.is_none()
    }

    /// Whether a packet-out's actions are carried out, not a flow's.
    pub(crate) fn is_packet_out(&self) -> bool {
        self.initial_actions_seen && self.level == 0
    }
}

/// Takes changes of the packet off the end of `actions`: nobody gets to see them.
pub(crate) fn trim(actions: &mut Vec<DpAction>) {
    actions.truncate(actions.iter().rposition(|a| !a.is_preparation()).map_or(0, |last| last + 1));
}

/// The bridge of this number, if it is (still) there.
pub(crate) fn bridge_of(net: &Network, id: BridgeId) -> Option<&Bridge> {
    net.bridges.get(&id).map(Arc::as_ref)
}
