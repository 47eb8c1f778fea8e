//! Look-ups and lists of actions.
//!
//! A stack of this module, not the thread's stack, holds the lists that a `resubmit` or `goto_table` leads to: thousands of
//! them may be nested.

use crate::freeze::{Freeze, FrozenList, ListContext, Unseen};
use crate::model::{Rule, TableMiss};
use crate::trace::NodeKind;
use crate::translate::Xlate;
use crate::verdict::{Dependency, Effect, Lookup, Written, WrittenWord};
use base::PortNo;
use classifier::Classifier;
use flow::text::PortNames;
use flow::{OptionTable, layout};
use openflow::{Action, ControllerAction, PacketInReason};
use std::sync::Arc;

/// The ingress port in word [`layout::PORTS`].
const IN_PORT: u64 = 0xffff_ffff << 32;

/// The last table whose misses may continue in the next one: the table after that is the switch's own.
const LAST_TABLE: u8 = 253;

/// The priority of flows without one in the text of flows, which leaves it out.
const DEFAULT_PRIORITY: u32 = 0x8000;

/// Typical number of nested lists.
const TYPICAL_FRAMES: usize = 12;

/// A list of actions in execution.
#[derive(Clone)]
pub(crate) struct Frame<'l> {
    list: List<'l>,
    next: usize,
}

#[derive(Clone)]
enum List<'l> {
    Given(&'l [Action]),
    /// A rule's list, with the state to restore at its end, and the index of the rule's [`Effect::Lookup`].
    Rule(Arc<Rule>, ReturnState, usize),
    /// The remaining part of a list that was frozen.
    Frozen(Arc<[Action]>, Option<ReturnState>),
}

#[derive(Clone, Copy)]
struct ReturnState {
    context: ListContext,
    rule: Option<usize>,
}

impl Frame<'_> {
    fn action(&self) -> Option<&Action> {
        match &self.list {
            List::Given(list) => list.get(self.next),
            List::Rule(rule, ..) => rule.actions.get(self.next),
            List::Frozen(list, _) => list.get(self.next),
        }
    }

    /// Returns true if no action is left. (Notes do nothing.)
    pub(crate) fn is_done(&self) -> bool {
        let list = match &self.list {
            List::Given(list) => list,
            List::Rule(rule, ..) => &rule.actions[..],
            List::Frozen(list, _) => &list[..],
        };
        list.iter().skip(self.next).all(|action| matches!(action, Action::Note(_)))
    }

    /// Returns its remaining part, to be executed in the context `context`.
    pub(crate) fn frozen(&self, context: ListContext) -> FrozenList {
        let (actions, is_rule) = match &self.list {
            List::Given(list) => ((*list).into(), false),
            List::Rule(rule, ..) => (Arc::clone(&rule.actions), true),
            List::Frozen(list, back) => (Arc::clone(list), back.is_some()),
        };
        FrozenList { actions, next: self.next, context, is_rule }
    }
}

impl Xlate<'_> {
    /// Executes `actions` in order, until an `exit`.
    pub(crate) fn do_actions(&mut self, actions: &[Action]) {
        self.run(Frame { list: List::Given(actions), next: 0 });
    }

    fn run(&mut self, first: Frame<'_>) {
        let mut frames = Vec::with_capacity(TYPICAL_FRAMES);
        frames.push(first);
        self.pos.runs += 1;
        self.run_all(frames);
        self.pos.runs -= 1;
    }

    /// Executes the last list of `frames`, then the lists that led to it.
    pub(crate) fn run_all(&mut self, mut frames: Vec<Frame<'_>>) {
        while let Some(frame) = frames.last_mut() {
            let over = std::mem::take(&mut self.control.stop_list) || self.control.exit;
            match frame.action().filter(|_| !over) {
                Some(action) => {
                    let mut check = None;
                    if self.must_recirculate_before(action) {
                        return self.freeze(Freeze::Parse, frames);
                    }
                    if self.count_step() {
                        if self.tracer.is_on() {
                            self.trace_action(action, matches!(frame.list, List::Frozen(..)));
                        }
                        match action {
                            Action::CheckPktLarger { len, dst } => check = Some((*len, *dst)),
                            action => self.do_action(action),
                        }
                    }
                    if self.control.freeze.is_some()
                        && let Some(freeze) = self.control.freeze.take()
                    {
                        frame.next += usize::from(!freeze.repeats());
                        return self.freeze(freeze, frames);
                    }
                    frame.next += 1;
                    if let Some((len, dst)) = check
                        && self.count_resubmit()
                    {
                        return self.fork(len, dst, frames);
                    }
                }
                None => {
                    if let Some(frame) = frames.pop() {
                        self.leave(frame);
                    }
                }
            }
            if self.control.next.is_some()
                && let Some(next) = self.control.next.take()
            {
                frames.push(next);
            }
        }
    }

    /// Adds an action to the trace: of a list that is restored, or of another one.
    #[cold]
    fn trace_action(&mut self, action: &Action, is_restored: bool) {
        if is_restored {
            return self.trace_restored(action);
        }
        let text = self.traced_action(action);
        self.tracer.note(NodeKind::Action, || text);
    }

    /// Executes the frozen parts of nested lists.
    pub(crate) fn run_frozen(&mut self, lists: &[FrozenList]) {
        let mut frames = Vec::with_capacity(TYPICAL_FRAMES.max(lists.len()));
        for FrozenList { actions, next, context, is_rule } in lists {
            let back = is_rule.then(|| ReturnState { context: self.list_context(), rule: None });
            self.pos.level += u32::from(*is_rule);
            self.set_list_context(*context);
            frames.push(Frame { list: List::Frozen(Arc::clone(actions), back), next: *next });
        }
        self.pos.runs += 1;
        self.run_all(frames);
        self.pos.runs -= 1;
    }

    pub(crate) fn list_context(&self) -> ListContext {
        ListContext {
            table: self.pos.table,
            depth: self.pos.depth,
            cookie: self.pos.rule_cookie,
            is_miss: self.pos.rule_is_miss,
        }
    }

    pub(crate) fn set_list_context(&mut self, context: ListContext) {
        (self.pos.table, self.pos.depth) = (context.table, context.depth);
        (self.pos.rule_cookie, self.pos.rule_is_miss) = (context.cookie, context.is_miss);
    }

    /// Makes the first look-up of a packet in a bridge.
    pub(crate) fn first_lookup(&mut self) {
        if self.packet.unseen != Unseen::Nothing {
            // As for a packet-out to the tables.
            return self.do_actions(&[Action::Output { port: PortNo::TABLE, max_len: 0 }]);
        }
        self.begin_in(0);
    }

    /// Makes the first look-up in another table, where a recirculated packet resumes.
    pub(crate) fn begin_in(&mut self, table: u8) {
        self.pos.table = table;
        let depth = self.pos.depth;
        if self.count_resubmit()
            && let Some(frame) = self.look_up(table, None, true, depth)
        {
            self.run(frame);
        }
    }

    /// Counts a packet that is dropped for the flow that it would take, as Open vSwitch does.
    pub(crate) fn count_hit(&mut self) {
        if let Some(found) = self.find_rule_as(0, None)
            && let Some(Effect::Lookup { rule, .. }) = self.out.effects.last_mut()
        {
            *rule = Some(found);
        }
    }

    /// Looks the packet up in `table` next, with ingress port `in_port` if that is given. `pipeline` marks the pipeline's own
    /// steps (`goto_table`, or a packet-out to the tables), whose misses are table misses; a resubmit without a match does
    /// nothing.
    pub(crate) fn resubmit(&mut self, table: u8, in_port: Option<PortNo>, pipeline: bool) {
        if self.count_resubmit() {
            let depth = self.pos.depth;
            // A chain that only leads to later tables ends by itself.
            self.pos.depth += u32::from(table <= self.pos.table);
            self.control.next = self.look_up(table, in_port, pipeline, depth);
        }
    }

    /// Looks up, and returns the rule's actions. `depth` is the depth to restore after them.
    fn look_up(&mut self, table: u8, in_port: Option<PortNo>, pipeline: bool, depth: u32) -> Option<Frame<'static>> {
        let old_table = std::mem::replace(&mut self.pos.table, table);
        if self.drops_fragment(table) {
            (self.pos.table, self.pos.depth) = (old_table, depth);
            return None;
        }
        let rule = loop {
            let rule = self.find_rule_as(self.pos.table, in_port);
            // If misses continue in the next table, the result of that table counts for this one.
            if rule.is_some()
                || !pipeline
                || self.pos.bridge.misses.get(&self.pos.table) != Some(&TableMiss::Continue)
                || self.pos.table >= LAST_TABLE
            {
                break rule;
            }
            self.tracer.enter(NodeKind::Table, || format!("{:2}. No match.", self.pos.table));
            self.tracer.leave();
            self.pos.table += 1;
        };
        // The last effect is this look-up.
        let Some(rule) = rule else {
            self.miss(self.pos.table, pipeline);
            (self.pos.table, self.pos.depth) = (old_table, depth);
            return None;
        };
        let effect = self.out.effects.len() - 1;
        let context = ListContext { table: old_table, depth, ..self.list_context() };
        let back = ReturnState { context, rule: self.pos.rule.replace(effect) };
        self.pos.rule_cookie = rule.cookie;
        self.pos.rule_is_miss = rule.priority == 0 && rule.minimatch.values().is_empty();
        let (options, names) = (&self.pos.bridge.options, self.trace_names());
        self.tracer.enter(NodeKind::Table, || rule_header(&rule, options, &names));
        self.pos.level += 1;
        if self.tracer.is_on() && !self.control.by_connection {
            self.trace_conjunction(in_port);
        }
        let is_empty = rule.actions.is_empty();
        let frame = Frame { list: List::Rule(rule, back, effect), next: 0 };
        if self.mirroring.at_ingress && !self.mirror_ingress() {
            self.leave(frame);
            return None;
        }
        if is_empty {
            self.tracer.note(NodeKind::Action, || "drop".into());
        }
        Some(frame)
    }

    /// Adds the flows to the trace whose conjunctive match led to the rule that was looked up in the current table.
    #[cold]
    fn trace_conjunction(&mut self, in_port: Option<PortNo>) {
        let Some(table) = self.pos.bridge.tables.get(usize::from(self.pos.table)) else { return };
        let mut key = self.packet.key.clone();
        in_port.into_iter().for_each(|port| key.set_in_port(port));
        let names = self.trace_names();
        for rule in table.rules.conjunctive(&key, self.view().version) {
            let text = || {
                let priority = (rule.priority != DEFAULT_PRIORITY).then(|| format!("priority={}", rule.priority));
                let matching = Some(match_of(&rule, &self.pos.bridge.options, &names)).filter(|text| !text.is_empty());
                format!("conj. {}", priority.into_iter().chain(matching).collect::<Vec<_>>().join(","))
            };
            self.tracer.note(NodeKind::Detail, text);
        }
    }

    /// Looks up with ingress port `in_port`, if that is given.
    #[inline]
    fn find_rule_as(&mut self, table: u8, in_port: Option<PortNo>) -> Option<Arc<Rule>> {
        let before = in_port.map(|port| {
            let before = (self.packet.key.in_port(), self.packet.written.take());
            self.packet.key.set_in_port(port);
            before
        });
        let rule = if self.control.by_connection { self.find_by_connection(table) } else { self.find_rule(table) };
        if let Some((port, written)) = before {
            self.packet.key.set_in_port(port);
            self.packet.written = written;
        }
        rule
    }

    /// Restores the state after the last executed action of a list.
    #[inline]
    pub(crate) fn leave(&mut self, frame: Frame<'_>) {
        let back = match frame.list {
            List::Given(_) | List::Frozen(_, None) => return,
            List::Frozen(_, Some(back)) => back,
            List::Rule(used, back, effect) => {
                if let Some(Effect::Lookup { rule, .. }) = self.out.effects.get_mut(effect) {
                    *rule = Some(used);
                }
                self.tracer.leave();
                back
            }
        };
        self.pos.level -= 1;
        let ListContext { table, depth, cookie, is_miss } = back.context;
        (self.pos.table, self.pos.depth, self.pos.rule, self.pos.rule_is_miss) = (table, depth, back.rule, is_miss);
        if self.pos.level > 0 || self.pos.packet_out {
            // The action set has the cookie of the pipeline's first rule.
            self.pos.rule_cookie = cookie;
        }
    }

    #[inline]
    fn find_rule(&mut self, table: u8) -> Option<Arc<Rule>> {
        let (written, rule) = match self.pos.bridge.tables.get(usize::from(table)) {
            Some(table) => self.look_up_in(&table.rules),
            None => (self.written_now(), None),
        };
        // The rule is added to the effect when its actions are executed.
        let bridge = self.pos.bridge.id;
        self.out.effects.push(Effect::Lookup { bridge, table, rule: None });
        let found = rule.as_ref().filter(|r| !r.matches_conj_id()).map(|r| r.priority);
        self.out.dependencies.push(Dependency::Lookup(Lookup { bridge, table, found, written }));
        rule
    }

    /// Looks up by the original direction of the packet's connection.
    #[cold]
    fn find_by_connection(&mut self, table: u8) -> Option<Arc<Rule>> {
        let rules = self.pos.bridge.tables.get(usize::from(table)).map(|t| &t.rules);
        let rule = rules.and_then(|rules| self.with_original_direction(|x| x.look_up_in(rules)).1);
        let bridge = self.pos.bridge.id;
        self.out.effects.push(Effect::Lookup { bridge, table, rule: None });
        // The comparison with rules would need the exchanged fields, so that the look-up depends on the whole table.
        self.out.dependencies.push(Dependency::Table { bridge, table });
        rule
    }

    /// Looks up, and returns the words written before the look-up, and the rule found.
    #[inline(always)]
    fn look_up_in(&mut self, rules: &Classifier<Rule>) -> (Written, Option<Arc<Rule>>) {
        loop {
            let looked_at_ports = rules.looks_at_ports();
            if looked_at_ports && self.hides_ports() {
                return self.look_up_without_ports(rules);
            }
            let found = self.look_up_as_is(rules);
            // The first rule on ports may have been added meanwhile.
            if looked_at_ports || !rules.looks_at_ports() {
                return found;
            }
        }
    }

    #[inline(always)]
    pub(crate) fn look_up_as_is(&mut self, rules: &Classifier<Rule>) -> (Written, Option<Arc<Rule>>) {
        // Taken before the look-up, which does not change the key.
        let written = self.written_now();
        let version = self.view().version;
        let rule = if self.is_l3() {
            self.find_l3(rules)
        } else {
            rules.lookup(&self.packet.key, version, &mut self.out.reads)
        };
        (written, rule)
    }

    /// Returns the words of the key that were written; see [`Lookup::written`].
    #[inline(always)]
    fn written_now(&mut self) -> Written {
        match self.packet.written {
            Some(written) => {
                debug_assert_eq!(written.of(&self.out.all_written), self.words_written(Vec::new()));
                written
            }
            None => self.record_written(),
        }
    }

    fn record_written(&mut self) -> Written {
        let begin = self.out.all_written.len();
        let all = std::mem::take(&mut self.out.all_written);
        self.out.all_written = self.words_written(all);
        let written = Written::since(begin, &self.out.all_written);
        self.packet.written = Some(written);
        written
    }

    /// Appends the words written so far to `list`. The ingress port belongs to the bridge, not to the packet, and counts as
    /// written.
    fn words_written(&self, mut list: Vec<WrittenWord>) -> Vec<WrittenWord> {
        let zero =
            layout::REGS_AND_METADATA.fold(0, |zero, word| zero | u64::from(self.packet.key.0[word] == 0) << word);
        let mut left = self.out.reads.written_map() & !u128::from(zero) | 1 << layout::PORTS;
        while left != 0 {
            let word = left.trailing_zeros() as usize;
            left &= left - 1;
            let bits = self.out.reads.written().0[word] | if word == layout::PORTS { IN_PORT } else { 0 };
            let value = self.packet.key.0[word] & bits;
            if value != 0 || !layout::REGS_AND_METADATA.contains(&word) {
                list.push((word as u8, bits, value));
            }
        }
        list
    }

    fn miss(&mut self, table: u8, pipeline: bool) {
        let no_packet_in = self.pos.bridge.ports.get(&self.packet.key.in_port()).is_some_and(|p| p.config.no_packet_in);
        let to_controller =
            self.pos.bridge.misses.get(&table).map_or(self.pos.bridge.miss_to_controller, |miss| match miss {
                TableMiss::Controller => true,
                TableMiss::Drop => false,
                // No table is left to continue in: as in Open vSwitch, controllers decide.
                TableMiss::Continue => table >= LAST_TABLE,
            });
        let sends = pipeline && to_controller && !no_packet_in;
        let called_for = if sends { ", and a \"packet-in\" is called for" } else { "" };
        self.tracer.enter(NodeKind::Table, || format!("{table:2}. No match{called_for}."));
        if self.mirroring.at_ingress && !self.mirror_ingress() {
            return self.tracer.leave();
        }
        if sends {
            self.tracer.note(NodeKind::Action, || "controller(reason=)".into());
            let old = (std::mem::replace(&mut self.pos.rule_is_miss, false), std::mem::take(&mut self.pos.rule_cookie));
            let reason = PacketInReason::NoMatch;
            self.send_to_controller(&ControllerAction { reason, ..ControllerAction::default() });
            (self.pos.rule_is_miss, self.pos.rule_cookie) = old;
        } else {
            self.tracer.note(NodeKind::Action, || "drop".into());
        }
        self.tracer.leave();
    }
}

/// Formats a rule's match, with its tunnel options.
fn match_of(rule: &Rule, options: &OptionTable, names: &dyn PortNames) -> String {
    let mut matching = rule.minimatch.expand();
    for placed in options.iter() {
        matching.option_at(placed).into_iter().for_each(|option| _ = matching.set_option(option));
    }
    crate::text::flow_match(&matching, names)
}

fn rule_header(rule: &Rule, options: &OptionTable, names: &dyn PortNames) -> String {
    let mut text = format!("{:2}. ", rule.table);
    let m = match_of(rule, options, names);
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
