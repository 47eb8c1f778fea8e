//! Packets that arrive in fragments.

use std::sync::atomic::Ordering;

use base::{Millis, coverage};
use packet::{Batch, Packet};

use super::Tracker;
use super::track::{Step, refuse};
use crate::action::Action;
use crate::fragments::{Datagram, Fragments, Taken};
use crate::parse::{self, Refusal};

impl Tracker {
    /// Hands the fragments of a batch to the reassembly, and executes the action on the datagrams that are complete: their
    /// fragments join the batch at its end. `which` has the positions of the fragments that the action was not executed on.
    /// Returns the number of fragments that were dropped because their datagram stayed incomplete.
    #[cold]
    pub(super) fn track_fragments(
        &self,
        packets: &mut Batch,
        which: &[usize],
        action: &Action,
        in_port: u32,
        now: Millis,
    ) -> usize {
        let mut fragments = self.fragments.lock();
        let mut complete: Vec<Datagram> = Vec::new();
        let reassembles = fragments.is_enabled();
        let mut verified = 0;
        let mut positions = 0..;
        let mut is_meant = || positions.next().is_some_and(|position| which.binary_search(&position).is_ok());
        packets.retain_mut(|packet| {
            if !is_meant() {
                return true;
            }
            let at = match parse::parse(packet, action.zone) {
                Err(Refusal::Fragment(at)) => {
                    verified += u64::from(!at.is_v6);
                    at
                }
                Err(Refusal::FragmentChecksum) => {
                    verified += 1;
                    let refusal = if reassembles { Refusal::FragmentChecksum } else { Refusal::L3Checksum };
                    refuse(&mut packet.metadata_mut().connection, action.zone, refusal);
                    return true;
                }
                _ => return true,
            };
            match fragments.take(std::mem::take(packet), &at, action.zone, in_port, now) {
                Taken::Held => false,
                Taken::Pass(back, _) => {
                    coverage!(conntrack_fragment_refused);
                    *packet = back;
                    refuse(&mut packet.metadata_mut().connection, action.zone, Refusal::Fragment(at));
                    true
                }
                Taken::Complete(datagram) => {
                    complete.push(datagram);
                    false
                }
            }
        });
        if reassembles && verified > 0 {
            coverage!(ipf_l3csum_checked, verified);
        }
        let mut dropped = Vec::new();
        fragments.expire(now, &mut dropped);
        self.update_fragments_due(&fragments);
        drop(fragments);
        for mut datagram in complete {
            self.track_whole(&mut datagram.whole, action, now);
            datagram.divide(packets);
        }
        dropped.len()
    }

    fn track_whole(&self, whole: &mut Packet, action: &Action, now: Millis) {
        let mut connection = std::mem::take(&mut whole.metadata_mut().connection);
        // A payload that begins with another fragment header.
        if self.track(whole, &mut connection, action, now) == Step::Fragment {
            refuse(&mut connection, action.zone, Refusal::Malformed);
        }
        whole.metadata_mut().connection = connection;
    }

    /// Drops fragments whose datagrams stayed incomplete for long, if too few packets came. Returns their number.
    pub(super) fn sweep_fragments(&self, now: Millis) -> usize {
        if !self.has_expired_fragments(now) {
            return 0;
        }
        let mut fragments = self.fragments.lock();
        let mut dropped = Vec::new();
        fragments.sweep(now, &mut dropped);
        self.update_fragments_due(&fragments);
        dropped.len()
    }

    /// Reads or changes settings and state of the reassembly.
    pub fn with_fragments<R>(&self, use_it: impl FnOnce(&mut Fragments) -> R) -> R {
        let mut fragments = self.fragments.lock();
        let result = use_it(&mut fragments);
        self.update_fragments_due(&fragments);
        result
    }

    fn update_fragments_due(&self, fragments: &Fragments) {
        let due = fragments.deadline().map_or(u64::MAX, |deadline| deadline.0.saturating_add(1));
        self.fragments_due.store(due, Ordering::Relaxed);
    }
}
