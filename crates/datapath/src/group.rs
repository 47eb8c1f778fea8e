//! Groups the packets of a batch: by flow, to count them together, and by actions, to execute them together.

use std::sync::Arc;

use base::{DpPort, Millis};
use dpif::{DpAction, DpActions};
use flow::{Words, layout};
use packet::Batch;
use packet::buf::BATCH_MAX;
use smallvec::SmallVec;

use crate::megaflow::{Counter, Found, Megaflow};

/// The packet is a miss and has no list.
const NONE: u8 = u8::MAX;
/// Number of lists that an equal one is searched among; further flows run their actions separately.
const LISTS_COMPARED: usize = 8;

const PROTO_TCP: u64 = 6;
const ETH_TYPE_IPV4: u64 = 0x0800;
const ETH_TYPE_IPV6: u64 = 0x86dd;

/// The contribution of a packet to its flow's statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Adds {
    /// Bytes.
    pub(crate) len: u32,
    pub(crate) tcp_flags: u16,
}

impl Adds {
    /// The contribution of a packet of `len` bytes with this key. Flags are those of TCP.
    #[inline]
    pub(crate) fn of(len: usize, key: &impl Words) -> Self {
        let eth_type = key.word(layout::ETH_DST) & 0xffff;
        let tcp = key.word(layout::IP_MISC) & 0xff == PROTO_TCP && matches!(eth_type, ETH_TYPE_IPV4 | ETH_TYPE_IPV6);
        let flags = (key.word(layout::TP) >> 16) as u16 & 0xfff;
        Self { len: len as u32, tcp_flags: if tcp { flags } else { 0 } }
    }
}

/// Consecutive packets of the same flow.
struct Run<'a> {
    flow: &'a Arc<Megaflow>,
    /// The number of their list of actions.
    list: u8,
    packets: u64,
    bytes: u64,
    tcp_flags: u16,
}

/// See the module documentation.
pub(crate) struct Groups<'a> {
    /// A flow of each list of actions.
    lists: [Found<'a>; BATCH_MAX],
    /// See [`identity`].
    identities: [u64; LISTS_COMPARED],
    n_lists: usize,
    /// The list of each packet.
    list_of: [u8; BATCH_MAX],
    /// Number of runs of consecutive packets of the same flow.
    runs: usize,
    misses: bool,
}

/// The actions to run on packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Todo<'a> {
    /// The most frequent case: output to one port.
    Output(DpPort),
    /// A list of actions, borrowed from a flow while the reader of the flows is held, or from [`Held`]. Its reference count is on a
    /// cache line that all threads read.
    Run(&'a [DpAction]),
    /// The list of a flow that sends packets through the tracker to another look-up: they may take the shortcut
    /// ([`crate::shortcut`]).
    Track(&'a [DpAction]),
}

/// Lists that a thread holds so that they stay after the reader of the flows is dropped. They are kept from batch to batch: taking a
/// list writes its reference count, which all threads that take it share.
#[derive(Debug, Default)]
pub(crate) struct Held(Vec<DpActions>);

impl Held {
    /// Lists that are kept for the next batch, at most: they are searched, and an unused one keeps its memory.
    const MAX: usize = 8;

    /// Begins a batch.
    fn begin(&mut self) {
        if self.0.len() > Self::MAX {
            self.0.clear();
        }
    }

    /// Holds a list, and returns its place.
    fn hold(&mut self, list: &DpActions) -> usize {
        self.0.iter().position(|held| Arc::ptr_eq(held, list)).unwrap_or_else(|| {
            self.0.push(Arc::clone(list));
            self.0.len() - 1
        })
    }
}

impl<'a> Todo<'a> {
    /// The actions of a flow.
    #[inline]
    pub(crate) fn of(flow: &'a Megaflow) -> Self {
        match flow.output {
            Some(port) => Self::Output(port),
            None if flow.is_tracking => Self::Track(&flow.actions),
            None => Self::Run(&flow.actions),
        }
    }
}

impl<'a> Groups<'a> {
    /// Groups the packets of a batch by the flows found for them. Counts them for their flows, with `adds` for each
    /// packet, as counter `by`.
    #[inline]
    pub(crate) fn count(found: &[Found<'a>], adds: &[Adds], by: Counter, now: Millis) -> Self {
        // Touches all flows first, so that their cache misses overlap.
        std::hint::black_box(found.iter().flatten().fold(0, |touched, flow| touched ^ flow.touch()));
        let mut groups = Self {
            lists: [None; BATCH_MAX],
            identities: [0; LISTS_COMPARED],
            n_lists: 0,
            list_of: [NONE; BATCH_MAX],
            runs: 0,
            misses: false,
        };
        let mut run: Option<Run<'a>> = None;
        for ((flow, adds), list_of) in found.iter().zip(adds).zip(0..BATCH_MAX) {
            let Some(flow) = *flow else {
                groups.misses = true;
                continue;
            };
            let (bytes, tcp_flags) = (u64::from(adds.len), adds.tcp_flags);
            if let Some(run) = &mut run
                && Arc::ptr_eq(run.flow, flow)
            {
                run.packets += 1;
                run.bytes += bytes;
                run.tcp_flags |= tcp_flags;
                groups.list_of[list_of] = run.list;
                continue;
            }
            let list = groups.list(flow, identity(flow));
            groups.list_of[list_of] = list;
            groups.runs += 1;
            if let Some(done) = run.replace(Run { flow, list, packets: 1, bytes, tcp_flags }) {
                done.flow.count(by, done.packets, done.bytes, done.tcp_flags, now);
            }
        }
        if let Some(done) = run {
            done.flow.count(by, done.packets, done.bytes, done.tcp_flags, now);
        }
        groups
    }

    /// Returns the flow that all packets take, if there is exactly one.
    pub(crate) fn only(&self) -> Found<'a> {
        self.lists[0].filter(|_| self.runs == 1 && !self.misses)
    }

    /// Returns true if all packets run through the same list of actions, in the order of the batch.
    pub(crate) fn is_one_list(&self) -> bool {
        self.n_lists == 1 && !self.misses
    }

    /// The headers that each packet gets before all of them leave by one port, if the packets take several lists that each do just
    /// this: running each list on its own would cost far more. In the order of the packets.
    #[inline]
    pub(crate) fn encapsulations(&self, n: usize) -> Option<(Encapsulations<'a>, DpPort)> {
        if self.n_lists < 2 || self.misses {
            return None;
        }
        let to = self.lists[0]?.encapsulation.as_ref()?.to;
        // Reads all headers first, so that their cache misses overlap.
        let mut touched = 0;
        for flow in self.flows() {
            touched ^= flow.encapsulation.as_ref().filter(|own| own.to == to)?.headers.touch();
        }
        std::hint::black_box(touched);
        let of_packet = |list: &u8| self.lists.get(usize::from(*list)).copied().flatten().map(|flow| &**flow);
        Some((self.list_of[..n].iter().filter_map(of_packet).collect(), to))
    }

    /// The positions of the first `n` packets that take a list.
    pub(crate) fn positions(&self, list: usize, n: usize) -> impl Iterator<Item = usize> {
        (0..n).filter(move |at| usize::from(self.list_of[*at]) == list)
    }

    /// Returns the list of a flow's actions.
    #[inline(always)]
    fn list(&mut self, flow: &'a Arc<Megaflow>, identity: u64) -> u8 {
        // Compares with all identities: a search that stops at the equal one ends in a mispredicted branch if flows take several
        // lists in turn.
        let compared = self.identities[..self.n_lists.min(LISTS_COMPARED)].iter().zip(0..);
        let equal = compared.fold(0, |equal, (other, at)| equal | u32::from(*other == identity) << at);
        let list = if equal == 0 { self.n_lists } else { equal.trailing_zeros() as usize };
        if equal == 0 {
            self.lists[list] = Some(flow);
            if let Some(place) = self.identities.get_mut(list) {
                *place = identity;
            }
            self.n_lists += 1;
        }
        list as u8
    }

    /// Moves the packets of a batch to the batches of their lists, which are empty, or to the misses. Packets keep
    /// their order.
    #[inline]
    pub(crate) fn sort(&self, batch: &mut Batch, lists: &mut Vec<Batch>, misses: &mut Batch) {
        if lists.len() < self.n_lists {
            lists.resize_with(self.n_lists, Batch::new);
        }
        match lists.first_mut() {
            Some(only) if self.is_one_list() => std::mem::swap(batch, only),
            _ => {
                for (packet, list) in batch.drain(..).zip(self.list_of) {
                    match lists.get_mut(usize::from(list)) {
                        Some(list) => list.push(packet),
                        None => misses.push(packet),
                    }
                }
            }
        }
    }

    /// The actions for each list, in order of first use.
    #[inline]
    pub(crate) fn todo(&self) -> SmallVec<[Todo<'a>; 4]> {
        self.flows().map(|flow| Todo::of(flow)).collect()
    }

    /// Returns true if some actions contain upcalls: then the reader must be dropped first, and [`Groups::todo_held`]
    /// gives the actions.
    #[inline]
    pub(crate) fn calls_above(&self) -> bool {
        self.flows().any(|flow| flow.calls_above)
    }

    /// As [`Groups::todo`], but valid after the reader is dropped.
    pub(crate) fn todo_held<'h>(&self, held: &'h mut Held) -> SmallVec<[Todo<'h>; 4]> {
        held.begin();
        let places: SmallVec<[usize; BATCH_MAX]> = self.flows().map(|flow| held.hold(&flow.actions)).collect();
        let held = &held.0;
        let of = |(flow, at): (&Arc<Megaflow>, usize)| match flow.output {
            Some(port) => Todo::Output(port),
            None => Todo::Run(&held[at]),
        };
        self.flows().zip(places).map(of).collect()
    }

    /// Returns a flow of each list.
    fn flows(&self) -> impl Iterator<Item = &'a Arc<Megaflow>> {
        self.lists.iter().take(self.n_lists).copied().flatten()
    }
}

/// The flow of each packet; all have headers to be pushed.
pub(crate) type Encapsulations<'a> = SmallVec<[&'a Megaflow; BATCH_MAX]>;

/// A number that is equal for flows that are known to have equal actions, without a comparison of long lists.
#[inline]
fn identity(flow: &Megaflow) -> u64 {
    // Lists are no odd addresses.
    let odd = |kind: u64, value: u64| value << 8 | kind << 1 | 1;
    if let Some(port) = flow.output {
        return odd(0, port.0.into());
    }
    match &*flow.actions {
        [DpAction::Drop(reason)] => odd(1, *reason as u64),
        [] => odd(2, 0),
        list => list.as_ptr().addr() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::DropReason;
    use base::rng::Rng;
    use dpif::{DpFlow, FlowId};
    use flow::FlowKey;
    use packet::Packet;

    fn flow(id: u64, actions: DpActions) -> Arc<Megaflow> {
        Arc::new(Megaflow::new(FlowId(id), DpFlow::by_hand(&FlowKey::ZERO, &FlowKey::ZERO, actions, 0)))
    }

    /// Flows with few different lists, or with a list for each flow.
    fn flows(rng: &mut Rng) -> Vec<Arc<Megaflow>> {
        let shared: DpActions = [DpAction::PopVlan, DpAction::Output(DpPort(9))].into();
        let lists = rng.below(2) == 0;
        let mut actions = |id: u32| match rng.below(5) {
            _ if lists => [DpAction::Trunc(id), DpAction::Output(DpPort(1))].into(),
            0 => shared.clone(),
            1 => [].into(),
            2 => [DpAction::Drop(DropReason::Action)].into(),
            port => [DpAction::Output(DpPort(port as u32))].into(),
        };
        (0..40).map(|id| flow(id.into(), actions(id))).collect()
    }

    #[test]
    fn a_batch_is_grouped_like_single_packets() {
        let mut rng = Rng::seeded(3);
        let batches = 2000u64;
        for round in 0..batches {
            let flows = flows(&mut rng);
            let (n, kinds) = (1 + rng.below(BATCH_MAX as u64) as usize, [1, 3, 12, 45][round as usize % 4]);
            let found: Vec<Found<'_>> = (0..n).map(|_| flows.get(rng.below(kinds) as usize)).collect();
            let mut batch: Batch = (0..n).map(|i| Packet::from_slice(&vec![i as u8; 20 + i])).collect();
            let adds: Vec<Adds> = (0..n).map(|i| Adds { len: 20 + i as u32, tcp_flags: 1 << (i % 12) }).collect();

            let found = &found;
            let groups = Groups::count(found, &adds, None, Millis(7));
            for flow in &flows {
                let of = || (0..n).filter(|i| found[*i].is_some_and(|f| f.id == flow.id)).map(|i| adds[i]);
                let (stats, packets) = (flow.stats(), of().count() as u64);
                assert_eq!((stats.packets, stats.bytes), (packets, of().map(|a| u64::from(a.len)).sum()));
                assert_eq!(stats.tcp_flags, of().fold(0, |flags, a| flags | a.tcp_flags));
                assert_eq!(stats.used, (packets > 0).then_some(Millis(7)));
            }

            let all_take = |flow: &Arc<Megaflow>| found.iter().all(|f| f.is_some_and(|f| Arc::ptr_eq(f, flow)));
            assert_eq!(groups.only().map(|f| f.id), flows.iter().find(|f| all_take(f)).map(|f| f.id));

            let (mut lists, mut misses) = (vec![Batch::new(); rng.below(3) as usize], Batch::new());
            groups.sort(&mut batch, &mut lists, &mut misses);
            assert!(batch.is_empty());
            let number = |p: &Packet| usize::from(p.data()[0]);
            assert!(misses.iter().map(number).eq((0..n).filter(|i| found[*i].is_none())));
            let mut n_listed = 0;
            for (todo, packets) in groups.todo().into_iter().zip(&lists) {
                let actions: DpActions = match todo {
                    Todo::Output(port) => [DpAction::Output(port)].into(),
                    Todo::Run(actions) | Todo::Track(actions) => actions.into(),
                };
                assert!(packets.iter().is_sorted_by_key(number));
                for packet in packets {
                    assert_eq!(found[number(packet)].map(|f| &f.actions), Some(&actions));
                    n_listed += 1;
                }
            }
            assert_eq!(n_listed + misses.len(), n);
        }
        tally::report!("{batches} batches");
    }

    #[test]
    fn held_lists_are_those_of_the_flows() {
        let (mut rng, mut held) = (Rng::seeded(4), Held::default());
        let observed = |id: u32| -> DpActions { [DpAction::SlowPath, DpAction::Output(DpPort(id))].into() };
        let lists: Vec<DpActions> = (0..12).map(observed).collect();
        let flows: Vec<_> = lists.iter().map(|list| flow(1, Arc::clone(list))).collect();
        for kinds in [1, 3, 12].repeat(50) {
            let found: Vec<Found<'_>> = (0..BATCH_MAX).map(|_| flows.get(rng.below(kinds) as usize)).collect();
            let groups = Groups::count(&found, &[Adds::default(); BATCH_MAX], None, Millis(7));
            assert!(groups.calls_above());
            let todo = groups.todo_held(&mut held);
            assert!(todo.iter().zip(groups.flows()).all(|(todo, flow)| *todo == Todo::Run(&flow.actions)));
            drop(todo);
            assert!(held.0.len() <= Held::MAX + BATCH_MAX);
        }
        // A flow's list and the flow itself, and one more reference while the list is held.
        drop(held);
        assert!(lists.iter().all(|list| Arc::strong_count(list) == 2));
    }

    #[test]
    fn tcp_flags_equal_those_of_the_key() {
        let mut key = FlowKey::ZERO;
        key.set(flow::Field::EthType, 0x86dd);
        key.set(flow::Field::IpProto, 6);
        key.set(flow::Field::TcpFlags, 0xabc);
        key.set(flow::Field::TcpSrc, 0xffff);
        assert_eq!(Adds::of(60, &key), Adds { len: 60, tcp_flags: 0xabc });
        key.set(flow::Field::IpProto, 17);
        assert_eq!(Adds::of(61, &key), Adds { len: 61, tcp_flags: 0 });
        key.set(flow::Field::IpProto, 6);
        key.set(flow::Field::EthType, 0x0806);
        assert_eq!(Adds::of(60, &key).tcp_flags, 0);
    }
}
