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

/// Where transport ports stand in word [`layout::TP`], and types and codes of ICMP.
const PORTS: u64 = 0xffff_ffff << 32;

/// What a look-up did not get to see.
pub(crate) struct Hidden {
    ports: u64,
    written: FlowMask,
    list: Option<Written>,
}

impl Xlate<'_> {
    /// Whether it is a fragment. IP packets are read for that.
    fn is_fragment(&mut self) -> bool {
        if ![ethertype::IPV4, ethertype::IPV6].contains(&self.key.eth_type()) {
            return false;
        }
        self.reads.note_field(Field::IpFrag);
        self.key.get(Field::IpFrag) as u8 & FRAG_ANY != 0
    }

    /// Whether the packet is dropped instead of being looked up in this table.
    pub(crate) fn drops_fragment(&mut self, table: u8) -> bool {
        if self.bridge.fragments != FragHandling::Drop || !self.is_fragment() {
            return false;
        }
        self.effects.push(Effect::Lookup { bridge: self.bridge.id, table, rule: None });
        self.tracer.enter(Kind::Table, || {
            format!("{table:2}. Packets are IP fragments and the fragment handling mode is \"drop\".")
        });
        self.tracer.note(Kind::Action, || "drop".into());
        self.tracer.leave();
        self.note_drop(DropReason::Fragment);
        true
    }

    /// Hides the ports of a fragment from a look-up in a table that looks at ports. What it returns is for
    /// [`Xlate::show_ports`].
    pub(crate) fn hide_ports(&mut self, rules: &Classifier<Rule>) -> Option<Hidden> {
        if self.bridge.fragments != FragHandling::Normal || !rules.looks_at_ports() || !self.is_fragment() {
            return None;
        }
        let (ports, written) = (self.key.0[layout::TP] & PORTS, self.reads.written().clone());
        self.key.0[layout::TP] &= !PORTS;
        let mut mask = FlowMask::ZERO;
        mask.0[layout::TP] = PORTS;
        self.reads.write_mask(&mask);
        Some(Hidden { ports, written, list: self.written.take() })
    }

    /// Shows them again.
    pub(crate) fn show_ports(&mut self, hidden: Hidden) {
        self.key.0[layout::TP] |= hidden.ports;
        self.reads.restore_written(hidden.written);
        self.written = hidden.list;
    }
}
