//! The pass of packets that left tunnels whose outer headers the thread knows: those that the hints of their tunnels cover
//! ([`crate::tunnel_hints`]) run through the actions of their megaflows without a look-up.

use packet::buf::BATCH_MAX;
use tunnel::header::Hit;

use super::Forwarder;
use crate::execute::{Context, Executor};
use crate::group::{Adds, Groups};
use crate::megaflow::Found;
use crate::shared::counter_of;
use crate::shortcut::Follower;

impl Forwarder {
    /// Takes the packets of the batch that hints cover through their actions. The others stay, with metadata, for a look-up.
    pub(super) fn pass_known(&mut self, context: Context<'_>, hits: &[Hit; BATCH_MAX]) {
        let shared = context.shared;
        let n = self.batch.len();
        self.unsettled = n;
        let reader = shared.flows.reader();
        self.tunnel_hints.begin(shared, reader.generation());
        let cache = &self.work.tunnels;
        let mut found: [Found<'_>; BATCH_MAX] = [None; BATCH_MAX];
        let mut adds = [Adds::default(); BATCH_MAX];
        let mut covered = 0;
        for (i, (packet, hit)) in self.batch.iter_mut().zip(hits).enumerate() {
            let of_hint = self.tunnel_hints.flow(cache, *hit, context.in_port, packet.data());
            if let Some((flow, tcp_flags)) = of_hint {
                found[i] = Some(flow);
                adds[i] = Adds { len: packet.len() as u32, tcp_flags };
                covered += 1;
            }
            if of_hint.is_none_or(|(flow, _)| flow.uses_metadata) {
                cache.attach(packet, *hit);
            }
        }
        self.rest_hits.clear();
        if covered < n {
            let mut at = 0;
            for (i, packet) in std::mem::take(&mut self.batch).into_iter().enumerate() {
                if found[i].is_some() {
                    (found[at], adds[at]) = (found[i], adds[i]);
                    at += 1;
                    self.batch.push(packet);
                } else {
                    self.rest_hits.push(hits[i]);
                    self.rest.push(packet);
                }
            }
        }
        if covered > 0 {
            let found = &found[..covered];
            let groups = Groups::count(found, &adds, counter_of(self.lane), self.now);
            if shared.flows.offload.is_on() {
                shared.flows.offload.offer(found);
            }
            let Self { outputs, work, lists, misses, passage, unsettled, .. } = self;
            let mut exec = Executor::new(context, outputs, work);
            if let Some((pushes, to)) = groups.encapsulations(covered) {
                exec.encapsulate(&mut self.batch, &pushes, to);
                *unsettled -= covered;
            } else {
                groups.sort(&mut self.batch, lists, misses);
                let follower = Follower::new(context, &reader, &self.hints, self.lane);
                passage.begin();
                for (todo, packets) in groups.todo().iter().zip(lists) {
                    let n = packets.len();
                    exec.any_l3 = false;
                    follower.run(&mut exec, passage, packets, todo);
                    *unsettled -= n;
                }
            }
        }
        drop(reader);
        let counters = &shared.lanes[self.lane];
        self.count(&counters.hit, covered);
        self.count(&counters.probes, covered);
        std::mem::swap(&mut self.batch, &mut self.rest);
    }
}
