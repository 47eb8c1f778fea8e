//! Packets that left tunnels and that hints cover ([`crate::tunnel_hints`]): they run through the actions of their megaflows without
//! a look-up. The other packets of their batch are looked up afterwards. Packets of a megaflow keep their order, as either all of
//! them are covered or none is, but for different forms of frames.

use packet::buf::BATCH_MAX;
use packet::{Batch, Packet};
use smallvec::SmallVec;
use tunnel::header::Hit;

use super::Forwarder;
use crate::execute::{Context, Executor};
use crate::group::{Adds, Groups, Todo};
use crate::megaflow::Found;
use crate::shared::counter_of;
use crate::shortcut::{Follower, Passage};

/// The packets of a batch that hints cover.
struct Covered<'a> {
    found: [Found<'a>; BATCH_MAX],
    adds: [Adds; BATCH_MAX],
    /// The outer headers that they had.
    hits: [Hit; BATCH_MAX],
    /// Bitmap of their positions.
    bits: u32,
}

impl<'a> Covered<'a> {
    fn new(hits: &[Hit; BATCH_MAX]) -> Self {
        Self { found: [None; BATCH_MAX], adds: [Adds::default(); BATCH_MAX], hits: *hits, bits: 0 }
    }

    fn len(&self) -> usize {
        self.bits.count_ones() as usize
    }

    fn put(&mut self, i: usize, flow: Found<'a>, adds: Adds) {
        if let (Some(place), Some(of_packet)) = (self.found.get_mut(i), self.adds.get_mut(i)) {
            (*place, *of_packet) = (flow, adds);
            self.bits |= 1 << i;
        }
    }

    /// Leaves the covered packets in `batch` and hands the others over.
    fn part(&mut self, batch: &mut Batch, mut other: impl FnMut(usize, Packet)) {
        let mut at = 0;
        for (i, packet) in std::mem::take(batch).into_iter().enumerate() {
            if self.bits >> i & 1 != 0 {
                (self.found[at], self.adds[at], self.hits[at]) = (self.found[i], self.adds[i], self.hits[i]);
                at += 1;
                batch.push(packet);
            } else {
                other(i, packet);
            }
        }
    }
}

impl Forwarder {
    /// Takes packets that left tunnels whose outer headers the thread knows, and that hints cover, through their actions. The others
    /// stay in the batch, with metadata, for a look-up.
    pub(super) fn pass_known(&mut self, context: Context<'_>, hits: &[Hit; BATCH_MAX]) {
        let shared = context.shared;
        let n = self.batch.len();
        self.unsettled = n;
        let reader = shared.flows.reader();
        self.tunnel_hints.begin(shared, reader.generation());
        let cache = &self.work.tunnels;
        let follower = Follower::new(context, &reader, &self.hints, self.lane).of_tunnel();
        let mut covered = Covered::new(hits);
        for (i, (packet, hit)) in self.batch.iter_mut().zip(hits).enumerate() {
            let of_hint = self.tunnel_hints.flow(cache, *hit, context.in_port, packet.data());
            if let Some((flow, tcp_flags)) = of_hint {
                covered.put(i, Some(flow), Adds { len: packet.len() as u32, tcp_flags });
            }
            // The follower itself adds tunnels to the metadata of tracked packets, where something needs them.
            if of_hint.is_none_or(|(flow, _)| flow.uses_metadata && !(flow.is_tracking && follower.is_of_tunnel())) {
                cache.attach(packet, *hit);
            }
        }
        self.rest_hits.clear();
        let taken = covered.len();
        if taken < n {
            let (rest, rest_hits) = (&mut self.rest, &mut self.rest_hits);
            covered.part(&mut self.batch, |i, packet| {
                rest_hits.push(hits[i]);
                rest.push(packet);
            });
        }
        if taken > 0 {
            let found = &covered.found[..taken];
            let groups = Groups::count(found, &covered.adds, counter_of(self.lane), self.now);
            let Self { batch, outputs, work, lists, misses, passage, unsettled, .. } = self;
            run(
                Executor::new(context, outputs, work),
                (batch, lists, misses),
                (found, &covered.hits),
                &groups,
                (&follower, passage),
                unsettled,
            );
        }
        drop(reader);
        let counters = &shared.lanes[self.lane];
        self.count(&counters.hit, taken);
        self.count(&counters.probes, taken);
        std::mem::swap(&mut self.batch, &mut self.rest);
    }
}

/// Runs packets with these megaflows through their actions. The packets of `batch` leave it; `lists` and `misses` are empty before and
/// after.
fn run(
    mut exec: Executor<'_>,
    (batch, lists, misses): (&mut Batch, &mut Vec<Batch>, &mut Batch),
    (found, hits): (&[Found<'_>], &[Hit; BATCH_MAX]),
    groups: &Groups<'_>,
    (follower, passage): (&Follower<'_>, &mut Passage),
    unsettled: &mut usize,
) {
    exec.offer(found);
    if let Some((flows, to)) = groups.encapsulations(found.len()) {
        exec.encapsulate(batch, &flows, to);
        *unsettled -= found.len();
        return;
    }
    groups.sort(batch, lists, misses);
    passage.begin();
    for (list, (todo, packets)) in groups.todo().iter().zip(lists).enumerate() {
        let n = packets.len();
        exec.any_l3 = false;
        let without_tunnel = matches!(todo, Todo::Track(_)) && follower.is_of_tunnel();
        let of_list: SmallVec<[Hit; BATCH_MAX]> = if without_tunnel {
            groups.positions(list, found.len()).map(|at| hits[at]).collect()
        } else {
            SmallVec::new()
        };
        follower.run(&mut exec, passage, packets, todo, &of_list);
        *unsettled -= n;
    }
}
