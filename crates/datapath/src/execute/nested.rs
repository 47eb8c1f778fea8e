//! Nested lists of actions: for copies of the packets, for some of them by length, or for some of them at random.

use base::DropReason;
use dpif::DpAction;
use netdev::pool;
use packet::segment::longest_frame;
use packet::{Batch, Packet};

use super::{Executor, Fate, Level};

/// Maximum nesting depth of lists; packets for deeper ones are dropped.
const DEPTH_MAX: usize = 16;

impl Executor<'_> {
    /// Runs copies of the packets, or the packets themselves if this is their last use, through a list nested in that
    /// of `level`.
    pub(super) fn nested(
        &mut self,
        packets: &mut Batch,
        actions: &[DpAction],
        level: Level,
        fate: Fate,
        last: bool,
    ) -> Fate {
        if last {
            return self.descend(packets, actions, level, fate);
        }
        let mut copies = packets.iter().map(pool::copy).collect();
        self.descend(&mut copies, actions, Level { whole: false, ..level }, fate)
    }

    /// Runs the packets through a list nested in that of `level`, and leaves none.
    fn descend(&mut self, packets: &mut Batch, actions: &[DpAction], level: Level, fate: Fate) -> Fate {
        let fate = if level.depth >= DEPTH_MAX {
            self.work.failed = Some(DropReason::TranslationError);
            self.shared.count_drop(self.from, DropReason::TranslationError, packets.len() as u64);
            Fate::Settled
        } else {
            self.steps(packets, actions, Level { depth: level.depth + 1, ..level }, fate)
        };
        pool::recycle_all(packets);
        fate
    }

    /// Runs packets longer than `size` through the first list and the others through the second, as
    /// [`Executor::nested`] does.
    pub(super) fn by_length(
        &mut self,
        packets: &mut Batch,
        size: usize,
        [greater, lesser]: [&[DpAction]; 2],
        level: Level,
        fate: Fate,
        last: bool,
    ) -> Fate {
        let lists = [greater, lesser];
        let parts = split_batch(packets, lists, last, |p| longest_frame(p) > size);
        self.parts(parts, lists, level, fate, last)
    }

    /// Runs a random sample of the packets through a list, as [`Executor::nested`] does.
    pub(super) fn by_chance(
        &mut self,
        packets: &mut Batch,
        probability: u32,
        actions: &[DpAction],
        level: Level,
        fate: Fate,
        last: bool,
    ) -> Fate {
        let chosen = self.outputs.sampler.choose(probability, packets.len());
        if chosen.is_empty() && !last {
            return fate;
        }
        let (mut chosen, mut at) = (chosen.into_iter().peekable(), 0);
        let lists = [actions, &[]];
        let parts = split_batch(packets, lists, last, |_| {
            at += 1;
            chosen.next_if_eq(&(at - 1)).is_some()
        });
        let outer = std::mem::replace(&mut self.probability, probability);
        let fate = self.parts(parts, lists, level, fate, last);
        self.probability = outer;
        fate
    }

    /// Runs each part of a batch through its list. The batch counts as sent if one of its parts was sent, except
    /// where these lists come last.
    fn parts(&mut self, parts: [Batch; 2], lists: [&[DpAction]; 2], level: Level, fate: Fate, last: bool) -> Fate {
        let level = Level { whole: level.whole && last, ..level };
        let mut settled = fate;
        for (mut part, actions) in parts.into_iter().zip(lists) {
            if !part.is_empty() && self.descend(&mut part, actions, level, fate) == Fate::Settled {
                settled = Fate::Settled;
            }
        }
        settled
    }
}

/// Splits packets into those for which `is_first` returns true and the others, for two lists. If this is not their
/// last use, the parts are copies, and the part for an empty list is empty.
fn split_batch(
    packets: &mut Batch,
    lists: [&[DpAction]; 2],
    last: bool,
    mut is_first: impl FnMut(&Packet) -> bool,
) -> [Batch; 2] {
    let mut parts = [Batch::new(), Batch::new()];
    let mut place = |packet: &Packet| usize::from(!is_first(packet));
    if last {
        for packet in packets.drain(..) {
            parts[place(&packet)].push(packet);
        }
    } else {
        for packet in packets.iter() {
            let at = place(packet);
            if !lists[at].is_empty() {
                parts[at].push(pool::copy(packet));
            }
        }
    }
    parts
}
