//! IP fragments in look-ups, as the switch's configuration has it (`ovs-ofctl set-frags`): dropped, or with transport ports that
//! count as zero, as the later ones have none, or as they are.
//!
//! What a look-up takes for zero counts as written while it lasts: it is not read, and whoever asks which rules could be found
//! is told that it is zero.

use crate::model::Rule;
use crate::trace::Kind;
use crate::translate::Xlate;
use crate::verdict::{Effect, Written};
use base::DropReason;
use classifier::Classifier;
use flow::extract::{FRAG_ANY, ethertype};
use flow::{Field, FlowMask, layout};
use openflow::switch::FragHandling;
use std::sync::Arc;

/// Where transport ports stand in word [`layout::TP`], and types and codes of ICMP.
const PORTS: u64 = 0xffff_ffff << 32;

impl Xlate<'_> {
    /// Whether it is a fragment. IP packets are read for that.
    #[inline]
    fn is_fragment(&mut self) -> bool {
        if ![ethertype::IPV4, ethertype::IPV6].contains(&self.packet.key.eth_type()) {
            return false;
        }
        self.out.reads.note_field(Field::IpFrag);
        self.packet.key.get(Field::IpFrag) as u8 & FRAG_ANY != 0
    }

    /// Whether the packet is dropped instead of being looked up in this table.
    pub(crate) fn drops_fragment(&mut self, table: u8) -> bool {
        if self.pos.bridge.fragments != FragHandling::Drop || !self.is_fragment() {
            return false;
        }
        self.out.effects.push(Effect::Lookup { bridge: self.pos.bridge.id, table, rule: None });
        self.tracer.enter(Kind::Table, || {
            format!("{table:2}. Packets are IP fragments and the fragment handling mode is \"drop\".")
        });
        self.tracer.note(Kind::Action, || "drop".into());
        self.tracer.leave();
        self.note_drop(DropReason::Fragment);
        true
    }

    /// Whether look-ups in tables that look at ports do not get to see those of this packet.
    #[inline]
    pub(crate) fn hides_ports(&mut self) -> bool {
        self.pos.bridge.fragments == FragHandling::Normal && self.is_fragment()
    }

    /// A look-up that takes transport ports for zero.
    #[cold]
    pub(crate) fn look_up_without_ports(&mut self, rules: &Classifier<Rule>) -> (Written, Option<Arc<Rule>>) {
        let (ports, written, list) =
            (self.packet.key.0[layout::TP] & PORTS, self.out.reads.written().clone(), self.packet.written.take());
        self.packet.key.0[layout::TP] &= !PORTS;
        let mut mask = FlowMask::ZERO;
        mask.0[layout::TP] = PORTS;
        self.out.reads.write_mask(&mask);
        let found = self.look_up_as_is(rules);
        self.packet.key.0[layout::TP] |= ports;
        self.out.reads.restore_written(written);
        self.packet.written = list;
        found
    }
}
