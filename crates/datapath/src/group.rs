//! Which packets of a batch take the same flow, to be counted together, and which of them the same actions, to be
//! executed together.

use std::sync::Arc;

use base::DpPort;
use dpif::{DpAction, DpActions};
use flow::{FlowKey, layout};
use packet::buf::BATCH_MAX;
use packet::{Batch, Packet};
use smallvec::SmallVec;

use crate::megaflow::{Found, Megaflow};

/// Neither a group nor a list: the packet is a miss.
const NONE: u8 = u8::MAX;
/// Places in which a flow's group is looked for, more than a batch has packets.
const PLACES: usize = 2 * BATCH_MAX;
/// Lists among which an equal one is looked for: beyond that, actions of different flows run apart from each other.
const LISTS_COMPARED: usize = 8;

const PROTO_TCP: u8 = 6;

/// See the module's text.
pub(crate) struct Groups<'a> {
    flows: [Found<'a>; BATCH_MAX],
    n: usize,
    /// The group of each packet.
    of: [u8; BATCH_MAX],
    lists: [Option<&'a DpActions>; BATCH_MAX],
    n_lists: usize,
    /// The list of each group.
    list_of: [u8; BATCH_MAX],
    misses: bool,
}

/// What is to be done with packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Todo {
    /// The most frequent: they leave by a port.
    Output(DpPort),
    /// They run through a list of actions.
    Run(DpActions),
}

/// What a group of packets adds to its flow's statistics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Total {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) tcp_flags: u16,
}

impl<'a> Groups<'a> {
    /// Of a batch's packets, by what was found for them.
    #[inline]
    pub(crate) fn of(found: &[Found<'a>]) -> Self {
        let mut groups = Self {
            flows: [None; BATCH_MAX],
            n: 0,
            of: [NONE; BATCH_MAX],
            lists: [None; BATCH_MAX],
            n_lists: 0,
            list_of: [NONE; BATCH_MAX],
            misses: false,
        };
        let mut places = [NONE; PLACES];
        if let Some(Some(first)) = found.first()
            && found.iter().all(|f| f.is_some_and(|f| Arc::ptr_eq(f, first)))
        {
            groups.of = [groups.add(first); BATCH_MAX];
            return groups;
        }
        for (i, flow) in found.iter().copied().enumerate().take(BATCH_MAX) {
            let Some(flow) = flow else {
                groups.misses = true;
                continue;
            };
            // Megaflows are apart from each other by more than their smallest bits.
            let mut place = Arc::as_ptr(flow).addr() / 64 % PLACES;
            while places[place] != NONE
                && !groups.flows[usize::from(places[place])].is_some_and(|other| Arc::ptr_eq(other, flow))
            {
                place = (place + 1) % PLACES;
            }
            if places[place] == NONE {
                places[place] = groups.add(flow);
            }
            groups.of[i] = places[place];
        }
        groups
    }

    /// A new group.
    #[inline]
    fn add(&mut self, flow: &'a Arc<Megaflow>) -> u8 {
        let group = self.n;
        self.flows[group] = Some(flow);
        self.n += 1;
        let compared = &self.lists[..self.n_lists.min(LISTS_COMPARED)];
        let list = compared.iter().position(|list| list.is_some_and(|list| same(list, &flow.actions)));
        let list = list.unwrap_or(self.n_lists);
        if list == self.n_lists {
            self.lists[list] = Some(&flow.actions);
            self.n_lists += 1;
        }
        self.list_of[group] = list as u8;
        group as u8
    }

    /// Moves a batch's packets to those of their lists of actions, which are empty, or to the misses. Packets keep their
    /// order.
    #[inline]
    pub(crate) fn sort(&self, batch: &mut Batch, lists: &mut Vec<Batch>, misses: &mut Batch) {
        if lists.len() < self.n_lists {
            lists.resize_with(self.n_lists, Batch::new);
        }
        match lists.first_mut() {
            Some(only) if self.n_lists == 1 && !self.misses => std::mem::swap(batch, only),
            _ => {
                for (packet, group) in batch.drain(..).zip(self.of) {
                    match self.list_of.get(usize::from(group)) {
                        Some(list) => lists[usize::from(*list)].push(packet),
                        None => misses.push(packet),
                    }
                }
            }
        }
    }

    /// What each flow's packets are together.
    #[inline]
    pub(crate) fn totals(&self, batch: &Batch, keys: &[FlowKey]) -> impl Iterator<Item = (&'a Arc<Megaflow>, Total)> {
        let mut totals = [Total::default(); BATCH_MAX];
        for ((packet, key), group) in batch.iter().zip(keys).zip(self.of) {
            if let Some(total) = totals.get_mut(usize::from(group)) {
                total.add(packet, key);
            }
        }
        self.flows.into_iter().take(self.n).flatten().zip(totals)
    }

    /// What is to be done with the packets of each list, in the order in which they are first needed, to be kept when
    /// the flows are let go.
    #[inline]
    pub(crate) fn todo(&self) -> SmallVec<[Todo; 4]> {
        let todo = |actions: &DpActions| match &**actions {
            [DpAction::Output(port)] => Todo::Output(*port),
            _ => Todo::Run(Arc::clone(actions)),
        };
        self.lists.iter().take(self.n_lists).flatten().map(|actions| todo(actions)).collect()
    }
}

/// Whether two lists of actions are known to do the same at a glance.
#[inline]
fn same(a: &[DpAction], b: &[DpAction]) -> bool {
    match (a, b) {
        ([DpAction::Output(a)], [DpAction::Output(b)]) => a == b,
        ([DpAction::Drop(a)], [DpAction::Drop(b)]) => a == b,
        ([], []) => true,
        _ => std::ptr::eq(a, b),
    }
}

impl Total {
    #[inline]
    pub(crate) fn add(&mut self, packet: &Packet, key: &FlowKey) {
        self.packets += 1;
        self.bytes += packet.len() as u64;
        self.tcp_flags |= tcp_flags(key);
    }
}

/// The TCP flags of a packet by its key; none if it is no TCP.
#[inline]
fn tcp_flags(key: &FlowKey) -> u16 {
    let ip = matches!(key.eth_type(), 0x0800 | 0x86dd);
    if ip && key.ip_proto() == PROTO_TCP { (key.0[layout::TP] >> 16) as u16 & 0xfff } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::DropReason;
    use base::rng::Rng;
    use dpif::{DpFlow, FlowId};

    fn flow(id: u64, actions: DpActions) -> Arc<Megaflow> {
        Arc::new(Megaflow::new(FlowId(id), DpFlow::by_hand(&FlowKey::ZERO, &FlowKey::ZERO, actions, 0)))
    }

    /// Flows with few different lists, or each with its own.
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
    fn batches_are_parted_as_one_by_one() {
        let mut rng = Rng::seeded(3);
        let batches = 2000u64;
        for round in 0..batches {
            let flows = flows(&mut rng);
            let (n, kinds) = (1 + rng.below(BATCH_MAX as u64) as usize, [1, 3, 12, 45][round as usize % 4]);
            let found: Vec<Found<'_>> = (0..n).map(|_| flows.get(rng.below(kinds) as usize)).collect();
            let mut batch: Batch = (0..n).map(|i| Packet::from_slice(&vec![i as u8; 20 + i])).collect();
            let keys = vec![FlowKey::ZERO; n];

            let groups = Groups::of(&found);
            let totals: Vec<_> = groups.totals(&batch, &keys).map(|(f, total)| (f.id, total)).collect();
            let found = &found;
            let of = |id| (0..n).filter(move |i| found[*i].is_some_and(|f| f.id == id));
            let mut seen: Vec<FlowId> = Vec::new();
            let ids = (0..n).filter_map(|i| found[i].map(|f| f.id));
            ids.for_each(|id| seen.extend((!seen.contains(&id)).then_some(id)));
            let naive = |id: &FlowId| {
                let bytes = of(*id).map(|i| 20 + i as u64).sum();
                (*id, Total { packets: of(*id).count() as u64, bytes, tcp_flags: 0 })
            };
            assert_eq!(totals, seen.iter().map(naive).collect::<Vec<_>>());

            let (mut lists, mut misses) = (vec![Batch::new(); rng.below(3) as usize], Batch::new());
            groups.sort(&mut batch, &mut lists, &mut misses);
            assert!(batch.is_empty());
            let number = |p: &Packet| usize::from(p.data()[0]);
            assert!(misses.iter().map(number).eq((0..n).filter(|i| found[*i].is_none())));
            let mut n_listed = 0;
            for (todo, packets) in groups.todo().into_iter().zip(&lists) {
                let actions = match todo {
                    Todo::Output(port) => [DpAction::Output(port)].into(),
                    Todo::Run(actions) => actions,
                };
                assert!(packets.iter().is_sorted_by_key(number));
                for packet in packets {
                    assert_eq!(found[number(packet)].map(|f| &f.actions), Some(&actions));
                    n_listed += 1;
                }
            }
            assert_eq!(n_listed + misses.len(), n);
            assert!(groups.n_lists <= groups.n);
        }
        tally::report!("{batches} batches");
    }

    #[test]
    fn flags_are_those_of_the_field() {
        let mut key = FlowKey::ZERO;
        key.set(flow::Field::EthType, 0x86dd);
        key.set(flow::Field::IpProto, 6);
        key.set(flow::Field::TcpFlags, 0xabc);
        key.set(flow::Field::TcpSrc, 0xffff);
        let mut total = Total::default();
        total.add(&Packet::from_slice(&[0; 60]), &key);
        assert_eq!(total, Total { packets: 1, bytes: 60, tcp_flags: 0xabc });
        key.set(flow::Field::IpProto, 17);
        total.add(&Packet::from_slice(&[0; 60]), &key);
        assert_eq!(total, Total { packets: 2, bytes: 120, tcp_flags: 0xabc });
    }
}
