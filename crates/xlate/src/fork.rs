//! `check_pkt_larger`: all that comes after it, once for packets that are longer and once for the others (ovs-actions(7)).
//!
//! How long a packet is is not in its flow's key: packets of one flow have all lengths. So the rest of the pipeline is
//! translated for both answers, and the datapath chooses by the packet.

use crate::pipeline::Frame;
use crate::translate::{Xlate, trim};
use dpif::{DpAction, DpActions};
use openflow::Subfield;

/// Bytes of a VLAN tag, which do not count.
const TAG_LEN: u16 = 4;

impl Xlate<'_> {
    /// Goes on with `frames` twice: with 1 in `dst` for packets of more than `len` bytes, and with 0 for the others.
    pub(crate) fn fork(&mut self, len: u16, dst: Subfield, frames: Vec<Frame<'_>>) {
        self.commit();
        let size = if self.has_vlan() { len.saturating_add(TAG_LEN) } else { len };
        let other = frames.clone();
        let greater = self.branch(dst, 1, frames);
        let lesser = self.branch(dst, 0, other);
        self.emit(DpAction::CheckPktLen { size, greater, lesser });
        if self.runs == 1 {
            // Both have carried it out.
            self.action_set.clear();
        }
    }

    /// What becomes of packets with this answer. Nothing of it stays but what cannot be taken back, as what was read.
    fn branch(&mut self, dst: Subfield, answer: u128, frames: Vec<Frame<'_>>) -> DpActions {
        let before = Box::new((self.key.clone(), self.base.clone(), self.reads.written().clone()));
        let (stack, set) = (self.stack.clone(), self.action_set.clone());
        let state = (self.written, self.rule, self.rule_cookie, self.rule_is_miss);
        let connection = (self.tracked, self.translated);
        let place = (self.table, self.depth, self.level, self.unseen);
        let outer = std::mem::take(&mut self.actions);
        self.copies += 1;
        let open = self.tracer.depth();
        self.write_subfield(dst, answer);
        self.run_all(frames);
        if self.runs == 1 && !self.in_action_set {
            self.do_action_set();
        }
        self.copies -= 1;
        self.tracer.reopen(open);
        let mut actions = std::mem::replace(&mut self.actions, outer);
        trim(&mut actions);
        self.pending = crate::commit::Pending::default();
        let written;
        (self.key, self.base, written) = *before;
        self.reads.restore_written(written);
        (self.stack, self.action_set) = (stack, set);
        (self.written, self.rule, self.rule_cookie, self.rule_is_miss) = state;
        (self.table, self.depth, self.level, self.unseen) = place;
        (self.tracked, self.translated) = connection;
        // An exit ends what came after it in its own branch.
        self.exit = self.error.is_some();
        actions.into()
    }
}
