//! Look-ups and lists of actions.
//!
//! Lists that a `resubmit` or `goto_table` leads to are kept on a stack of this module's, not on the thread's: there may
//! be thousands of them inside of each other.

use crate::freeze::{Freeze, FrozenList, Place, Unseen};
use crate::model::{Rule, TableMiss};
use crate::trace::Kind;
use crate::translate::Xlate;
use crate::verdict::{Dependency, Effect, Lookup, Written, WrittenWord};
use base::PortNo;
use classifier::Classifier;
use flow::{OptionTable, layout};
use openflow::{Action, ControllerAction, PacketInReason};
use std::sync::Arc;

/// The ingress port in word [`layout::PORTS`].
const IN_PORT: u64 = 0xffff_ffff << 32;

/// The last table that a miss goes on to: the one after it is the switch's own.
const LAST_TABLE: u8 = 253;

/// Lists inside of each other, mostly.
const TYPICAL_FRAMES: usize = 12;

/// A list of actions in work.
#[derive(Clone)]
pub(crate) struct Frame<'l> {
    list: List<'l>,
    next: usize,
}

#[derive(Clone)]
enum List<'l> {
    Given(&'l [Action]),
    /// A rule's, with the state to return to at its end, and the index of the rule's [`Effect::Lookup`].
    Rule(Arc<Rule>, Back, usize),
    /// What is left of one from before the packet came back.
    Frozen(Arc<[Action]>, Option<Back>),
}

#[derive(Clone, Copy)]
struct Back {
    place: Place,
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

    /// What is left of it, to be carried out as of `place`.
    pub(crate) fn frozen(&self, place: Place) -> FrozenList {
        let (actions, of_rule) = match &self.list {
            List::Given(list) => ((*list).into(), false),
            List::Rule(rule, ..) => (Arc::clone(&rule.actions), true),
            List::Frozen(list, back) => (Arc::clone(list), back.is_some()),
        };
        FrozenList { actions, next: self.next, place, of_rule }
    }
}

impl Xlate<'_> {
    /// Carries out `actions` in order, until an `exit`.
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

    /// Carries out the last list of `frames`, then the lists that it was reached from.
    pub(crate) fn run_all(&mut self, mut frames: Vec<Frame<'_>>) {
        while let Some(frame) = frames.last_mut() {
            let over = std::mem::take(&mut self.control.stop_list) || self.control.exit;
            match frame.action().filter(|_| !over) {
                Some(action) => {
                    let mut check = None;
                    if self.must_recirculate_before(action) {
                        return self.freeze(Freeze::Look, frames);
                    }
                    if self.count_step() {
                        if self.tracer.is_on() {
                            let text = self.shown_action(action);
                            self.tracer.note(Kind::Action, || text);
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

    /// Carries out what was left of lists inside of each other.
    pub(crate) fn run_frozen(&mut self, lists: &[FrozenList]) {
        let mut frames = Vec::with_capacity(TYPICAL_FRAMES.max(lists.len()));
        for FrozenList { actions, next, place, of_rule } in lists {
            let back = of_rule.then(|| Back { place: self.place(), rule: None });
            self.pos.level += u32::from(*of_rule);
            self.set_place(*place);
            frames.push(Frame { list: List::Frozen(Arc::clone(actions), back), next: *next });
        }
        self.pos.runs += 1;
        self.run_all(frames);
        self.pos.runs -= 1;
    }

    pub(crate) fn place(&self) -> Place {
        Place {
            table: self.pos.table,
            depth: self.pos.depth,
            cookie: self.pos.rule_cookie,
            is_miss: self.pos.rule_is_miss,
        }
    }

    pub(crate) fn set_place(&mut self, place: Place) {
        (self.pos.table, self.pos.depth) = (place.table, place.depth);
        (self.pos.rule_cookie, self.pos.rule_is_miss) = (place.cookie, place.is_miss);
    }

    /// The look-up that a packet's way through a bridge begins with.
    pub(crate) fn first_lookup(&mut self) {
        if self.packet.unseen != Unseen::Nothing {
            // As one that a controller sends there.
            return self.do_actions(&[Action::Output { port: PortNo::TABLE, max_len: 0 }]);
        }
        self.begin_in(0);
    }

    /// The same in another table, where a packet goes on that comes back.
    pub(crate) fn begin_in(&mut self, table: u8) {
        self.pos.table = table;
        let depth = self.pos.depth;
        if self.count_resubmit()
            && let Some(frame) = self.look_up(table, None, true, depth)
        {
            self.run(frame);
        }
    }

    /// Has the packet looked up in `table` next, as if it had come in on `in_port` if that is given. `pipeline` says that
    /// this is the pipeline's own step (`goto_table`, or to the tables from a packet-out), after which a miss is a table
    /// miss; a resubmit that finds nothing does nothing.
    pub(crate) fn resubmit(&mut self, table: u8, in_port: Option<PortNo>, pipeline: bool) {
        if self.count_resubmit() {
            let depth = self.pos.depth;
            // What only leads to later tables comes to an end by itself.
            self.pos.depth += u32::from(table <= self.pos.table);
            self.control.next = self.look_up(table, in_port, pipeline, depth);
        }
    }

    /// Looks up, and returns the rule's actions. `depth` is the depth to return to after them.
    fn look_up(&mut self, table: u8, in_port: Option<PortNo>, pipeline: bool, depth: u32) -> Option<Frame<'static>> {
        let old_table = std::mem::replace(&mut self.pos.table, table);
        if self.drops_fragment(table) {
            (self.pos.table, self.pos.depth) = (old_table, depth);
            return None;
        }
        let rule = loop {
            let rule = self.find_rule_as(self.pos.table, in_port);
            // Where misses go on to the next table, that stands for this one.
            if rule.is_some()
                || !pipeline
                || self.pos.bridge.misses.get(&self.pos.table) != Some(&TableMiss::Continue)
                || self.pos.table >= LAST_TABLE
            {
                break rule;
            }
            self.tracer.enter(Kind::Table, || format!("{:2}. No match.", self.pos.table));
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
        let place = Place { table: old_table, depth, ..self.place() };
        let back = Back { place, rule: self.pos.rule.replace(effect) };
        self.pos.rule_cookie = rule.cookie;
        self.pos.rule_is_miss = rule.priority == 0 && rule.minimatch.values().is_empty();
        let options = &self.pos.bridge.options;
        self.tracer.enter(Kind::Table, || rule_header(&rule, options));
        self.pos.level += 1;
        if rule.actions.is_empty() {
            self.tracer.note(Kind::Action, || "drop".into());
        }
        Some(Frame { list: List::Rule(rule, back, effect), next: 0 })
    }

    /// Looks up as if the packet had come in on `in_port`, if that is given.
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

    /// After the last of a list's actions that is carried out.
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
        let Place { table, depth, cookie, is_miss } = back.place;
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
        // The rule is put there when its actions are carried out.
        let bridge = self.pos.bridge.id;
        self.out.effects.push(Effect::Lookup { bridge, table, rule: None });
        let found = rule.as_ref().filter(|r| !r.matches_conj_id()).map(|r| r.priority);
        self.out.dependencies.push(Dependency::Lookup(Lookup { bridge, table, found, written }));
        rule
    }

    /// The same by the original direction of the packet's connection.
    #[cold]
    fn find_by_connection(&mut self, table: u8) -> Option<Arc<Rule>> {
        let rules = self.pos.bridge.tables.get(usize::from(table)).map(|t| &t.rules);
        let rule = rules.and_then(|rules| self.as_connection(|x| x.look_up_in(rules)).1);
        let bridge = self.pos.bridge.id;
        self.out.effects.push(Effect::Lookup { bridge, table, rule: None });
        // What a rule there must not contradict is not where the packet has it.
        self.out.dependencies.push(Dependency::Table { bridge, table });
        rule
    }

    /// What was written until the look-up, and what that finds.
    #[inline(always)]
    fn look_up_in(&mut self, rules: &Classifier<Rule>) -> (Written, Option<Arc<Rule>>) {
        loop {
            let looked_at_ports = rules.looks_at_ports();
            if looked_at_ports && self.hides_ports() {
                return self.look_up_without_ports(rules);
            }
            let found = self.look_up_as_is(rules);
            // The first rule that looks at ports may have come meanwhile.
            if looked_at_ports || !rules.looks_at_ports() {
                return found;
            }
        }
    }

    #[inline(always)]
    pub(crate) fn look_up_as_is(&mut self, rules: &Classifier<Rule>) -> (Written, Option<Arc<Rule>>) {
        // Before the look-up, which reads and writes nothing of the key.
        let written = self.written_now();
        let version = self.view().version;
        let rule = if self.is_l3() {
            self.find_l3(rules)
        } else {
            rules.lookup(&self.packet.key, version, &mut self.out.reads)
        };
        (written, rule)
    }

    /// What of the key is not the packet's any more; see [`Lookup::written`].
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

    /// Puts the words that are written now behind those of `list`. The ingress port is the bridge's, not the packet's: it
    /// counts as written.
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
        self.tracer.enter(Kind::Table, || format!("{table:2}. No match."));
        let no_packet_in = self.pos.bridge.ports.get(&self.packet.key.in_port()).is_some_and(|p| p.config.no_packet_in);
        let to_controller = self
            .pos
            .bridge
            .misses
            .get(&table)
            .map_or(self.pos.bridge.miss_to_controller, |miss| *miss == TableMiss::Controller);
        if pipeline && to_controller && !no_packet_in {
            self.tracer.note(Kind::Action, || "controller (table miss)".into());
            let old = (std::mem::replace(&mut self.pos.rule_is_miss, false), std::mem::take(&mut self.pos.rule_cookie));
            let reason = PacketInReason::NoMatch;
            self.send_to_controller(&ControllerAction { reason, ..ControllerAction::default() });
            (self.pos.rule_is_miss, self.pos.rule_cookie) = old;
        } else {
            self.tracer.note(Kind::Action, || "drop".into());
        }
        self.tracer.leave();
    }
}

fn rule_header(rule: &Rule, options: &OptionTable) -> String {
    let mut text = format!("{:2}. ", rule.table);
    let mut matching = rule.minimatch.expand();
    for placed in options.iter() {
        matching.option_at(placed).into_iter().for_each(|option| _ = matching.set_option(option));
    }
    let m = crate::text::flow_match(&matching);
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
