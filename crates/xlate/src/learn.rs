//! Actions that change flows: `learn` and `fin_timeout` (ovs-actions(7)).

use crate::bits::{is_option, match_option, set_option};
use crate::trace::NodeKind;
use crate::translate::Xlate;
use crate::verdict::{Dependency, Effect, Learned};
use base::PortNo;
use flow::Prereq;
use openflow::{Action, FlowMod, FlowModCommand, Learn, LearnDst, LearnSrc};
use std::sync::Arc;

/// FIN and RST of TCP.
const FIN_OR_RST: u128 = 5;

/// A `fin_timeout` action that was executed.
pub(crate) struct FinTimeout {
    /// Index of the [`Effect::Lookup`] of the rule.
    lookup: usize,
    idle_timeout: u16,
    hard_timeout: u16,
}

impl Xlate<'_> {
    /// Executes the `learn` action: the learned flow becomes an effect. The packet itself does not match it.
    pub(crate) fn learn(&mut self, learn: &Learn) {
        let flow = self.learned_flow(learn);
        self.tracer.enter(NodeKind::Learned, || crate::text::learned(&flow));
        if learn.limit != 0 {
            // Once there is room again, the next packet is to be learned at once, not when packets are counted.
            let (bridge, table) = (self.pos.bridge.id, learn.table);
            self.out.dependencies.push(Dependency::Removals { bridge, table });
        }
        if learn.result_dst.is_some() || self.tracer.is_on() {
            let success = learn.limit == 0 || self.is_learnable(learn, &flow);
            if let Some(dst) = learn.result_dst {
                self.write_subfield(dst, success.into());
                self.note_bits(dst);
            }
            if !success {
                self.tracer.note(NodeKind::Detail, || "Limit exceeded, learn failed".into());
            }
        }
        self.tracer.leave();
        let learned = Learned { bridge: self.pos.bridge.id, flow, limit: learn.limit };
        self.out.effects.push(Effect::Learn(Arc::new(learned)));
    }

    /// Returns true if the limit allows the flow to be learned.
    fn is_learnable(&mut self, learn: &Learn, flow: &FlowMod) -> bool {
        let Some(table) = self.pos.bridge.tables.get(usize::from(learn.table)) else { return false };
        self.out.dependencies.push(Dependency::Table { bridge: self.pos.bridge.id, table: learn.table });
        table.rules.find(&flow.matching, flow.priority.into(), self.view().version).is_some()
            || table.n_with_cookie(learn.cookie) < u64::from(learn.limit)
    }

    /// Builds the learned flow from the current packet.
    fn learned_flow(&mut self, learn: &Learn) -> FlowMod {
        let mut flow = FlowMod {
            table_id: Some(learn.table),
            priority: learn.priority,
            new_cookie: learn.cookie,
            modify_cookie: true,
            idle_timeout: learn.idle_timeout,
            hard_timeout: learn.hard_timeout,
            ..FlowMod::new(FlowModCommand::ModifyStrict)
        };
        flow.flags.send_flow_rem = learn.send_flow_rem;
        let (idle_timeout, hard_timeout) = (learn.fin_idle_timeout, learn.fin_hard_timeout);
        if idle_timeout != 0 || hard_timeout != 0 {
            flow.actions.push(Action::FinTimeout { idle_timeout, hard_timeout });
        }
        for spec in &learn.specs {
            let value = match spec.src {
                LearnSrc::Field(src) => self.read_bits_of(src),
                LearnSrc::Immediate(value) => (value & spec.immediate_mask()).into(),
            };
            if let LearnDst::Match(dst) | LearnDst::Load(dst) = spec.dst
                && is_option(dst.field)
            {
                match (spec.dst, self.option(dst.field)) {
                    (LearnDst::Match(_), Some(placed)) => match_option(&mut flow.matching, placed, dst, &value),
                    (_, placed) => flow.actions.extend(placed.and_then(|_| set_option(dst, &value))),
                }
                continue;
            }
            // All other fields fit this.
            let value = value.low();
            match spec.dst {
                LearnDst::Match(dst) => {
                    let (old, mask) = flow.matching.get(dst.field);
                    let new = value.checked_shl(dst.offset.into()).unwrap_or(0) & dst.mask();
                    flow.matching.set_masked(dst.field, old & !dst.mask() | new, mask | dst.mask());
                }
                LearnDst::Load(dst) => flow.actions.push(Action::RegLoad { dst, value }),
                LearnDst::Output => {
                    // As in Open vSwitch, the value is an OpenFlow 1.0 port number, whatever the width of the field.
                    let port = u16::try_from(value).map(PortNo::from_of10);
                    let sendable = |p: &PortNo| {
                        p.is_real()
                            || *p == PortNo(0)
                            || [PortNo::IN_PORT, PortNo::FLOOD, PortNo::LOCAL, PortNo::ALL].contains(p)
                    };
                    flow.actions.extend(port.ok().filter(sendable).map(|port| Action::Output { port, max_len: 0 }));
                }
            }
        }
        flow
    }

    /// Executes the `fin_timeout` action.
    pub(crate) fn fin_timeout(&mut self, idle_timeout: u16, hard_timeout: u16) {
        if !self.has(Prereq::Tcp) || self.read_bits(flow::Field::TcpFlags, FIN_OR_RST) == 0 {
            return;
        }
        if let Some(lookup) = self.pos.rule {
            self.out.fin_timeouts.push(FinTimeout { lookup, idle_timeout, hard_timeout });
        }
    }

    /// Adds the effects of `fin_timeout` actions, when all look-ups have their rules.
    pub(crate) fn end_connections(&mut self) {
        for FinTimeout { lookup, idle_timeout, hard_timeout } in std::mem::take(&mut self.out.fin_timeouts) {
            if let Some(Effect::Lookup { bridge, rule: Some(rule), .. }) = self.out.effects.get(lookup).cloned() {
                self.out.effects.push(Effect::FinTimeout { bridge, rule, idle_timeout, hard_timeout });
            }
        }
    }
}
