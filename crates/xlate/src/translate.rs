//! The pipeline: enter a bridge, look up tables, carry out what the rules say.
//!
//! [`Xlate`] is the state of one translation. Its parts: the key as the packet would look now (`key`), the key as the
//! datapath has it after the actions emitted so far (`base`), what was read, what was written but not yet emitted
//! (`pending`, see [`crate::commit`]), and the output.

use crate::commit::Pending;
use crate::model::{Bridge, BridgeId, Network, Rule};
use crate::trace::{Kind, Tracer};
use crate::verdict::{Dependency, Effect, Lookup, TranslationError, Verdict};
use base::{DpPort, DropReason, PortNo};
use dpif::DpAction;
use flow::{Field, FlowKey, Reads, layout};
use openflow::{Action, PacketInReason};
use std::sync::Arc;

/// Nested look-ups at most.
pub const MAX_DEPTH: u32 = 64;
/// Look-ups at most, in one translation.
pub const MAX_RESUBMITS: u32 = 4096;
/// Values on the stack at most.
pub const MAX_STACK: usize = 4096;
/// Datapath actions at most, nested ones included.
pub const MAX_ACTIONS: usize = 4096;

/// Where a translation begins.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a> {
    /// In table 0.
    Tables,
    /// With these actions (packet-out), as of `table` if they resubmit.
    Actions(&'a [Action]),
}

/// Translates a packet that came in on a datapath port. `key` holds the datapath's port number as ingress port.
pub fn translate(net: &Network, key: &FlowKey, trace: bool) -> Verdict {
    let dp_port = DpPort(key.in_port().0);
    match net.ports.get(&dp_port).and_then(|(id, port)| net.bridges.get(id).map(|b| (b, *port))) {
        Some((bridge, port)) => {
            let mut key = key.clone();
            key.set_in_port(port);
            translate_from(net, bridge, &key, Start::Tables, trace)
        }
        None => {
            let mut reads = Reads::new();
            reads.note_field(Field::InPortOxm);
            Verdict {
                actions: Vec::new(),
                reads,
                effects: Vec::new(),
                dependencies: Vec::new(),
                error: Some(TranslationError::Port),
                drop: Some(DropReason::NoPort),
                final_key: key.clone(),
                trace: Vec::new(),
            }
        }
    }
}

/// Translates a packet in `bridge`. `key` holds the bridge's port number as ingress port.
pub fn translate_from(net: &Network, bridge: &Bridge, key: &FlowKey, start: Start<'_>, trace: bool) -> Verdict {
    base::coverage!(xlate_actions);
    let mut x = Xlate::new(net, bridge, key, trace);
    // Registers and metadata are no part of a packet: what they start with is given, and looking at them reads nothing.
    let mut given = FlowKey::ZERO;
    given.0[layout::REGS..layout::TUN_ID].fill(u64::MAX);
    x.reads.write_mask(&given);
    // Which bridge this is depends on the port, and how headers are read on the Ethernet type.
    x.reads.note_field(Field::InPortOxm);
    x.reads.note_field(Field::EthType);
    x.in_bridge(bridge, start);
    x.finish()
}

/// The state of one translation.
pub(crate) struct Xlate<'a> {
    pub(crate) net: &'a Network,
    pub(crate) bridge: &'a Bridge,
    /// The packet as it would be now.
    pub(crate) key: FlowKey,
    /// The packet as the datapath has it after `actions`.
    pub(crate) base: FlowKey,
    pub(crate) reads: Reads,
    pub(crate) pending: Pending,
    pub(crate) actions: Vec<DpAction>,
    pub(crate) n_actions: usize,
    pub(crate) effects: Vec<Effect>,
    pub(crate) dependencies: Vec<Dependency>,
    pub(crate) tracer: Tracer,
    pub(crate) table: u8,
    pub(crate) rule_cookie: u64,
    /// The rule is a table-miss rule: priority 0, matches all (OpenFlow 1.3 section 5.4).
    pub(crate) rule_is_miss: bool,
    pub(crate) action_set: Vec<Action>,
    pub(crate) stack: Vec<u128>,
    pub(crate) depth: u32,
    resubmits: u32,
    /// An `exit` or an error: nothing more is done in this bridge.
    pub(crate) exit: bool,
    /// The list of actions in work is over, not those that it was reached from by a resubmit.
    pub(crate) stop_list: bool,
    /// The action set is carried out.
    pub(crate) in_action_set: bool,
    pub(crate) error: Option<TranslationError>,
    pub(crate) drop: Option<DropReason>,
    initial_actions_seen: bool,
}

impl<'a> Xlate<'a> {
    fn new(net: &'a Network, bridge: &'a Bridge, key: &FlowKey, trace: bool) -> Self {
        Self {
            net,
            bridge,
            key: key.clone(),
            base: key.clone(),
            reads: Reads::new(),
            pending: Pending::default(),
            actions: Vec::new(),
            n_actions: 0,
            effects: Vec::new(),
            dependencies: Vec::new(),
            tracer: Tracer::new(trace),
            table: 0,
            rule_cookie: u64::MAX,
            rule_is_miss: false,
            action_set: Vec::new(),
            stack: Vec::new(),
            depth: 0,
            resubmits: 0,
            exit: false,
            stop_list: false,
            in_action_set: false,
            error: None,
            drop: None,
            initial_actions_seen: false,
        }
    }

    fn finish(mut self) -> Verdict {
        trim(&mut self.actions);
        if self.error.is_some() {
            self.actions.clear();
            self.drop = Some(DropReason::TranslationError);
        } else if self.actions.is_empty() {
            self.drop = Some(self.drop.unwrap_or(DropReason::Action));
        } else {
            self.drop = None;
        }
        Verdict {
            actions: self.actions,
            reads: self.reads,
            effects: self.effects,
            dependencies: self.dependencies,
            error: self.error,
            drop: self.drop,
            final_key: self.key,
            trace: self.tracer.finish(),
        }
    }

    /// Processes the packet in `bridge`, from its ingress port on. The caller restores what it needs afterwards.
    pub(crate) fn in_bridge(&mut self, bridge: &'a Bridge, start: Start<'_>) {
        self.bridge = bridge;
        self.table = 0;
        self.dependencies.push(Dependency::Bridge(bridge.id));
        self.tracer.enter(Kind::Bridge, || format!("bridge(\"{}\")", bridge.name));
        let in_port = self.key.in_port();
        let config = bridge.ports.get(&in_port).map(|p| p.config);
        match start {
            Start::Tables if config.is_some_and(|c| c.no_recv || c.down) => {
                self.tracer.note(Kind::Warning, || "port is configured not to receive".into());
                self.drop = Some(DropReason::PortDown);
            }
            Start::Tables => self.lookup(0, None, true),
            Start::Actions(actions) => {
                self.initial_actions_seen = true;
                self.do_actions(actions);
            }
        }
        if !self.action_set.is_empty() && self.error.is_none() && !self.exit {
            // It is told of behind what the last table did.
            self.tracer.reenter();
            self.tracer.enter(Kind::Table, || "--. Executing action set:".into());
            let set = std::mem::take(&mut self.action_set);
            self.in_action_set = true;
            self.do_actions(&crate::action::set_in_order(&set));
            self.in_action_set = false;
            self.tracer.leave();
            self.tracer.leave();
        }
        self.tracer.leave();
    }

    /// Gives the translation up.
    pub(crate) fn fail(&mut self, error: TranslationError) {
        self.tracer.note(Kind::Error, || error.to_string());
        self.error = Some(error);
        self.exit = true;
    }

    /// Looks the packet up in `table`, as if it had come in on `in_port` if that is given, and carries out what is
    /// found. `pipeline` says that this is the pipeline's own step (the first table or `goto_table`), after which a
    /// miss is a table miss; a resubmit that finds nothing does nothing.
    pub(crate) fn lookup(&mut self, table: u8, in_port: Option<PortNo>, pipeline: bool) {
        if self.depth >= MAX_DEPTH {
            return self.fail(TranslationError::Depth);
        }
        if self.resubmits >= MAX_RESUBMITS {
            return self.fail(TranslationError::Resubmits);
        }
        if self.n_actions > MAX_ACTIONS {
            return self.fail(TranslationError::Actions);
        }
        self.resubmits += 1;
        let (old_table, old_port) = (self.table, self.key.in_port());
        self.table = table;
        if let Some(port) = in_port {
            self.key.set_in_port(port);
        }
        let rule = self.find_rule(table);
        if in_port.is_some() {
            self.key.set_in_port(old_port);
        }
        match rule {
            Some(rule) => self.follow(&rule),
            None => self.miss(table, pipeline),
        }
        self.table = old_table;
    }

    fn find_rule(&mut self, table: u8) -> Option<Arc<Rule>> {
        let rule = self
            .bridge
            .tables
            .get(usize::from(table))
            .and_then(|t| t.rules.lookup(&self.key, classifier::LATEST, &mut self.reads));
        self.effects.push(Effect::Lookup { bridge: self.bridge.id, table, matched: rule.is_some() });
        self.dependencies.push(Dependency::Lookup(Lookup {
            bridge: self.bridge.id,
            table,
            found: rule.as_ref().map(|r| r.priority),
            written: self.written(),
        }));
        rule
    }

    /// What of the key is not the packet's any more: word, bits, values. The ingress port is the bridge's, not the
    /// packet's: it counts as written.
    fn written(&self) -> Box<[(u8, u64, u64)]> {
        let in_port = FlowKey::mask_of(Field::InPortOxm);
        let bits = self.reads.written().0.iter().zip(&in_port.0).map(|(w, p)| w | p);
        let words = bits.enumerate().filter(|(_, bits)| *bits != 0);
        words.map(|(word, bits)| (word as u8, bits, self.key.0[word] & bits)).collect()
    }

    fn follow(&mut self, rule: &Arc<Rule>) {
        let old = (self.rule_cookie, self.rule_is_miss);
        self.rule_cookie = rule.cookie;
        self.rule_is_miss = rule.priority == 0 && rule.minimatch.values().is_empty();
        self.effects.push(Effect::Rule(Arc::clone(rule)));
        self.tracer.enter(Kind::Table, || rule_header(rule));
        self.depth += 1;
        if rule.actions.is_empty() {
            self.tracer.note(Kind::Action, || "drop".into());
        }
        self.do_actions(&rule.actions);
        self.depth -= 1;
        self.tracer.leave();
        if self.depth == 0 && !self.initial_actions_seen {
            // The action set is carried out in the name of the pipeline's first rule.
            self.rule_is_miss = old.1;
        } else {
            (self.rule_cookie, self.rule_is_miss) = old;
        }
    }

    fn miss(&mut self, table: u8, pipeline: bool) {
        self.tracer.enter(Kind::Table, || format!("{table:2}. No match."));
        let no_packet_in = self.bridge.ports.get(&self.key.in_port()).is_some_and(|p| p.config.no_packet_in);
        if pipeline && self.bridge.miss_to_controller && !no_packet_in {
            self.tracer.note(Kind::Action, || "controller (table miss)".into());
            let old = (std::mem::replace(&mut self.rule_is_miss, false), std::mem::take(&mut self.rule_cookie));
            self.send_to_controller(u16::MAX, 0, PacketInReason::NoMatch, &[]);
            (self.rule_is_miss, self.rule_cookie) = old;
        } else {
            self.tracer.note(Kind::Action, || "drop".into());
        }
        self.tracer.leave();
    }

    /// Whether a packet-out's actions are carried out, not a flow's.
    pub(crate) fn is_packet_out(&self) -> bool {
        self.initial_actions_seen && self.depth == 0
    }
}

/// Takes changes of the packet off the end of `actions`: nobody gets to see them.
pub(crate) fn trim(actions: &mut Vec<DpAction>) {
    let sends = |a: &DpAction| {
        matches!(a, DpAction::Output(_) | DpAction::Controller(_) | DpAction::Clone(_) | DpAction::Drop(_))
    };
    actions.truncate(actions.iter().rposition(sends).map_or(0, |last| last + 1));
}

/// The bridge of this number, if it is (still) there.
pub(crate) fn bridge_of(net: &Network, id: BridgeId) -> Option<&Bridge> {
    net.bridges.get(&id).map(Arc::as_ref)
}

fn rule_header(rule: &Rule) -> String {
    let mut text = format!("{:2}. ", rule.table);
    let m = crate::text::flow_match(&rule.minimatch.expand());
    if !m.is_empty() {
        text += &m;
        text += ", ";
    }
    text += &format!("priority {}", rule.priority);
    if rule.cookie != 0 {
        text += &format!(", cookie {:#x}", rule.cookie);
    }
    text
}
