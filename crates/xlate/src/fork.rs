//! `check_pkt_larger`: translates the rest of the pipeline once for longer packets and once for the others (ovs-actions(7)).
//!
//! The length of a packet is not in its key: packets of one flow differ in it. The rest of the pipeline is therefore
//! translated for both results, and the datapath chooses for each packet.

use crate::pipeline::Frame;
use crate::scope::Scope;
use crate::translate::{Xlate, unwrap_last};
use dpif::{DpAction, DpActions};
use openflow::Subfield;

/// Bytes of a VLAN tag, which the comparison does not count.
const TAG_LEN: u16 = 4;

impl Xlate<'_> {
    /// Continues with `frames` twice: with 1 in `dst` for packets of more than `len` bytes, and with 0 for the others.
    pub(crate) fn fork(&mut self, len: u16, dst: Subfield, frames: Vec<Frame<'_>>) {
        self.commit();
        let size = if self.has_vlan() { len.saturating_add(TAG_LEN) } else { len };
        let other = frames.clone();
        let greater = self.branch(dst, 1, frames);
        let lesser = self.branch(dst, 0, other);
        self.emit(DpAction::CheckPktLen { size, greater, lesser });
        if self.pos.runs == 1 {
            // Both branches have executed it.
            self.pos.action_set.clear();
        }
    }

    /// Returns the datapath actions for packets with this result.
    fn branch(&mut self, dst: Subfield, answer: u128, frames: Vec<Frame<'_>>) -> DpActions {
        let sent = self.mirroring.mirrored.sent;
        let mut actions = self.scoped(Scope::Branch, |x| {
            let open = x.tracer.depth();
            x.write_subfield(dst, answer);
            x.run_all(frames);
            if x.pos.runs == 1 && !x.pos.in_action_set {
                x.do_action_set();
            }
            x.tracer.reopen(open);
        });
        self.mirroring.mirrored.sent = sent;
        // Nothing comes behind a branch.
        unwrap_last(&mut actions);
        actions.into()
    }
}
