//! Lists of actions within a list: on copies of the packets, of all or of some, by length or by chance.

use base::DropReason;
use dpif::DpAction;
use netdev::pool;
use packet::segment::longest_frame;
use packet::{Batch, Packet};

use super::{Executor, Fate, Level};

/// Lists may stand in lists this deep; packets for deeper ones are dropped.
const DEPTH_MAX: usize = 16;

impl Executor<'_> {
    /// Runs copies of the packets, or themselves if this is their last use, through a list within that of `level`.
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

    /// Runs the packets through a list within that of `level`, and leaves none.
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

    /// Runs packets that are longer than `size` through one list, and the others through the other, as
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
        let parts = parted(packets, lists, last, |p| longest_frame(p) > size);
        self.parts(parts, lists, level, fate, last)
    }

    /// Runs packets that chance chooses through a list, as [`Executor::nested`] does.
    pub(super) fn by_chance(
        &mut self,
        packets: &mut Batch,
        probability: u32,
        actions: &[DpAction],
        level: Level,
        fate: Fate,
        last: bool,
    ) -> Fate {
        let rng = &mut self.outputs.rng;
        // A number below the probability, or equal to its greatest value, which stands for certainty.
        let certain = u64::from(probability == u32::MAX);
        let lists = [actions, &[]];
        let parts = parted(packets, lists, last, |_| rng.next_u64() >> 32 < u64::from(probability) + certain);
        self.parts(parts, lists, level, fate, last)
    }

    /// Runs the parts of a batch, each through its list. If nothing but one of the parts was sent, all of it counts as
    /// sent, but where these lists come last.
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

/// The packets for which `is_first` holds and the others, for two lists. If this is not their last use, copies of them,
/// and none for a list that does nothing.
fn parted(
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
