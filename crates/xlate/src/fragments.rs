//! IP fragments in look-ups, by the switch's configuration (`ovs-ofctl set-frags`): dropped, or looked up with transport ports of
//! zero, as later fragments have none, or looked up unchanged.
//!
//! Ports that a look-up takes for zero count as written during the look-up: it does not read them, and the search for rules that
//! it could find takes them as zero.

use crate::model::Rule;
use crate::trace::NodeKind;
use crate::translate::Xlate;
use crate::verdict::{Effect, Written};
use base::DropReason;
use classifier::Classifier;
use flow::extract::{FRAG_ANY, ethertype};
use flow::{Field, FlowMask, layout};
use openflow::switch::FragHandling;
use std::sync::Arc;

/// The bits of transport ports in word [`layout::TP`], and of ICMP types and codes.
const PORTS: u64 = 0xffff_ffff << 32;

impl Xlate<'_> {
    /// Returns true if the packet is a fragment, and reads that of IP packets.
    #[inline]
    fn is_fragment(&mut self) -> bool {
        if ![ethertype::IPV4, ethertype::IPV6].contains(&self.packet.key.eth_type()) {
            return false;
        }
        self.out.reads.note_field(Field::IpFrag);
        self.packet.key.get(Field::IpFrag) as u8 & FRAG_ANY != 0
    }

    /// Returns true if the packet is dropped instead of being looked up in this table.
    pub(crate) fn drops_fragment(&mut self, table: u8) -> bool {
        if self.pos.bridge.fragments != FragHandling::Drop || !self.is_fragment() {
            return false;
        }
        self.out.effects.push(Effect::Lookup { bridge: self.pos.bridge.id, table, rule: None });
        self.tracer.enter(NodeKind::Table, || {
            format!("{table:2}. Packets are IP fragments and the fragment handling mode is \"drop\".")
        });
        if !self.mirroring.at_ingress || self.mirror_ingress() {
            self.tracer.note(NodeKind::Action, || "drop".into());
        }
        self.tracer.leave();
        self.note_drop(DropReason::Fragment);
        true
    }

    /// Returns true if look-ups in tables with rules on ports take this packet's ports for zero.
    #[inline]
    pub(crate) fn hides_ports(&mut self) -> bool {
        self.pos.bridge.fragments == FragHandling::Normal && self.is_fragment()
    }

    /// Looks up with transport ports of zero.
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
