//! Flows that an accelerator ([`netdev::accelerate`]) forwards below the datapath, so that their packets bypass it.
//!
//! A packet thread offers a flow after some packets, while it counts them and holds the flows for the batch; a thread that
//! removes the flow waits until they are released, and then takes the flow back. Offering a flow does not wait for other
//! threads: if the state is locked, the flow is offered with later packets. A flow is accepted if it only outputs packets
//! from one port of the accelerator to another, with at most one VLAN tag pushed or popped, and if plain packets can match
//! it. Otherwise the refusal is counted by reason. A refused flow is offered again only after a change that may make a
//! difference (a new *epoch*).
//!
//! The accelerator matches the reads of the flow's translation, not the narrowed mask of the index: the flow is valid for
//! all packets that agree in these reads ([`dpif::DpFlow::reads`]).
//!
//! Invariants: an offloaded flow is installed and of the current generation, except between its removal from the index and
//! [`Offload::take_back`], and both of its ports are accelerated. The accelerator counts its packets until the counts are
//! fetched and added to the flow's own counters. So a flow's counters never count a packet twice, and are complete after it
//! was taken back. Of two flows with the same id, the later one is only accepted after the earlier one was taken back.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use base::{Clock, DpPort, Millis};
use dpif::{DpAction, FlowId};
use dpif::{OffloadInfo, Unfit};
use flow::extract::ethertype;
use flow::layout::{CT, ETH_DST, ETH_SRC, IP_MISC, IPV4, IPV6_DST, IPV6_SRC, PORTS, TP, VLAN};
use hashbrown::HashMap;
use netdev::accelerate::{AcceleratedPort, Accelerator, Common, Forwarded, Handle, Network, Refusal, Tag, Verdict};
use parking_lot::{Mutex, MutexGuard};

use crate::megaflow::{Found, Megaflow};
use crate::port::Port;

/// Packets after which a flow is offered. Adding and removing one costs two microseconds in the kernel, less than two
/// packets in userspace; but capacity is limited, and flows of short connections would use it up.
pub const OFFERED_PACKETS: u64 = 16;

/// Flows whose counts are fetched without releasing the lock.
const FLOWS_AT_ONCE: usize = 64;

/// The bits of a plain packet's key that can vary, for each word in the order of a [`Verdict`]'s.
const IPV4_WORDS: [(usize, u64); Network::Ipv4.words()] =
    [(ETH_DST, !0xffff), (ETH_SRC, !0), (IP_MISC, 0xff_ffff), (TP, PORTS_AND_FLAGS), (IPV4, !0)];
const IPV6_WORDS: [(usize, u64); Network::Ipv6.words()] = [
    (ETH_DST, !0xffff),
    (ETH_SRC, !0),
    (IP_MISC, 0xf_ffff_00ff_ffff),
    (TP, PORTS_AND_FLAGS),
    (IPV6_SRC, !0),
    (IPV6_SRC + 1, !0),
    (IPV6_DST, !0),
    (IPV6_DST + 1, !0),
];
const PORTS_AND_FLAGS: u64 = 0xffff_ffff_0fff_0000;

/// The bit in the word of the Ethernet source that marks a VLAN tag as present.
const TAGGED: u64 = 0x1000;
/// The index of that word in a [`Common`].
const SOURCE: usize = 1;
/// Bytes of a tag.
const TAG_BYTES: u64 = 4;
/// The word [`VLAN`] of a packet with a tag.
const TAG_PROTOCOL: u64 = 0x8100 << 48;

/// See the module's text.
#[derive(Debug)]
pub(crate) struct Offload {
    /// Whether there is an accelerator.
    on: AtomicBool,
    /// Advances when refused flows may be accepted.
    epoch: AtomicU32,
    clock: Clock,
    state: Mutex<Option<State>>,
}

#[derive(Debug)]
struct State {
    accelerator: Arc<dyn Accelerator>,
    ports: BTreeMap<DpPort, (Arc<Port>, Result<AcceleratedPort, String>)>,
    flows: HashMap<FlowId, OffloadedFlow>,
    generation: u64,
    /// Whether flows were refused because a limit was reached.
    is_full: bool,
    taken: u64,
    forwarded: (u64, u64),
    refused: BTreeMap<Unfit, u64>,
}

/// An offloaded flow.
#[derive(Debug)]
struct OffloadedFlow {
    flow: Arc<Megaflow>,
    handle: Handle,
    from: DpPort,
    to: DpPort,
    tag: Tag,
    /// The counts fetched so far.
    known: Forwarded,
}

impl Offload {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { on: AtomicBool::new(false), epoch: AtomicU32::new(1), clock, state: Mutex::default() }
    }

    /// Whether there is an accelerator.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Sets the accelerator and its ports, or removes it with `None`; takes back the flows of the old one.
    pub(crate) fn set(&self, accelerator: Option<Arc<dyn Accelerator>>, ports: &mut dyn Iterator<Item = Arc<Port>>) {
        let mut state = self.state.lock();
        if let Some(mut old) = state.take() {
            old.take_back_where(self.clock.now(), |_| true);
            self.on.store(false, Ordering::Relaxed);
            let added = old.ports.values().filter_map(|(_, port)| port.as_ref().ok());
            added.for_each(|port| old.accelerator.port_del(*port));
        }
        let Some(accelerator) = accelerator else { return };
        let mut new = State {
            accelerator,
            ports: BTreeMap::new(),
            flows: HashMap::new(),
            generation: 0,
            is_full: false,
            taken: 0,
            forwarded: (0, 0),
            refused: BTreeMap::new(),
        };
        ports.for_each(|port| new.port_add(port));
        *state = Some(new);
        self.on.store(true, Ordering::Relaxed);
        self.move_on();
    }

    /// The state, if there is an accelerator.
    pub(crate) fn info(&self) -> Option<OffloadInfo> {
        self.refresh();
        self.state.lock().as_ref().map(|state| OffloadInfo {
            kind: state.accelerator.kind(),
            capacity: state.accelerator.capacity(),
            ports: state.ports.iter().map(|(n, (_, port))| (*n, port.clone().map(drop))).collect(),
            taken: state.taken,
            forwarded: state.forwarded,
            refused: state.refused.clone(),
        })
    }

    /// The accelerator's type, or the reason why it does not support the port.
    pub(crate) fn port(&self, number: DpPort) -> Option<Result<&'static str, String>> {
        let state = self.state.lock();
        let state = state.as_ref()?;
        let (_, added) = state.ports.get(&number)?;
        Some(added.clone().map(|_| state.accelerator.kind()))
    }

    /// Adds a port.
    pub(crate) fn port_add(&self, port: &Arc<Port>) {
        if let Some(state) = &mut *self.state.lock() {
            state.port_add(Arc::clone(port));
        }
        self.move_on();
    }

    /// Removes a port. When this returns, no packet is forwarded from or to it.
    pub(crate) fn port_del(&self, number: DpPort) {
        let mut state = self.state.lock();
        let Some(state) = &mut *state else { return };
        state.take_back_where(self.clock.now(), |offloaded| offloaded.from == number || offloaded.to == number);
        if let Some((_, Ok(port))) = state.ports.remove(&number) {
            state.accelerator.port_del(port);
        }
    }

    /// Takes back flows of other generations.
    pub(crate) fn set_generation(&self, generation: u64) {
        if let Some(state) = &mut *self.state.lock() {
            state.generation = state.generation.max(generation);
            let current = state.generation;
            state.take_back_where(self.clock.now(), |offloaded| offloaded.flow.generation != current);
        }
    }

    /// Offers flows whose packets were just counted. All of them are current and held by the caller.
    pub(crate) fn offer(&self, found: &[Found<'_>]) {
        let epoch = self.epoch.load(Ordering::Relaxed);
        for flow in found.iter().flatten() {
            let is_new = flow.offered.load(Ordering::Relaxed) != epoch;
            if is_new
                && flow.packets_in_userspace() >= OFFERED_PACKETS
                && flow.offered.swap(epoch, Ordering::Relaxed) != epoch
            {
                self.offer_one(flow);
            }
        }
    }

    #[cold]
    fn offer_one(&self, flow: &Arc<Megaflow>) {
        let later = || flow.offered.store(0, Ordering::Relaxed);
        let Some(mut state) = self.state.try_lock() else { return later() };
        let Some(state) = &mut *state else { return };
        if state.flows.get(&flow.id).is_some_and(|offloaded| !Arc::ptr_eq(&offloaded.flow, flow)) {
            return later();
        }
        state.generation = state.generation.max(flow.generation);
        if flow.generation != state.generation || flow.offloaded.load(Ordering::Relaxed) {
            return;
        }
        match state.take(flow) {
            Ok(()) => state.taken += 1,
            Err(unfit) => {
                state.is_full |= matches!(unfit, Unfit::Refused(Refusal::Full | Refusal::TooManyMasks));
                *state.refused.entry(unfit).or_default() += 1;
            }
        }
    }

    /// Takes back flows that are no longer installed and adds their final counts. When this returns, they forward no
    /// packets.
    pub(crate) fn take_back(&self, flows: &[Arc<Megaflow>]) {
        if !flows.iter().any(|flow| flow.offloaded.load(Ordering::Acquire)) {
            return;
        }
        let mut state = self.state.lock();
        let Some(state) = &mut *state else { return };
        let is_current = |flow: &Arc<Megaflow>| {
            state.flows.get(&flow.id).is_some_and(|offloaded| Arc::ptr_eq(&offloaded.flow, flow))
        };
        let ids: Vec<FlowId> = flows.iter().filter(|flow| is_current(flow)).map(|flow| flow.id).collect();
        state.take_back(ids.into_iter(), self.clock.now());
        if std::mem::take(&mut state.is_full) {
            self.move_on();
        }
    }

    /// Fetches the counts of a flow.
    pub(crate) fn bring_counts(&self, flow: &Megaflow) {
        if !flow.offloaded.load(Ordering::Acquire) {
            return;
        }
        if let Some(state) = &mut *self.state.lock() {
            state.bring(flow.id, self.clock.now());
        }
    }

    /// Fetches the counts of all flows, some at a time, and handles devices that changed.
    pub(crate) fn refresh(&self) {
        if !self.is_on() {
            return;
        }
        let ids: Vec<FlowId> = match &mut *self.state.lock() {
            Some(state) => {
                state.accelerator.refresh();
                state.flows.keys().copied().collect()
            }
            None => return,
        };
        for ids in ids.chunks(FLOWS_AT_ONCE) {
            let mut guard = self.state.lock();
            let Some(state) = &mut *guard else { return };
            let now = self.clock.now();
            ids.iter().for_each(|id| state.bring(*id, now));
            // A thread that waits gets the lock before the next flows do.
            MutexGuard::unlock_fair(guard);
        }
    }

    /// Starts a new epoch, in which refused flows are offered again.
    fn move_on(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }
}

impl State {
    fn port_add(&mut self, port: Arc<Port>) {
        // Packets that bypass the datapath would bypass these, too.
        let added = if port.qos.is_shaping() || port.qos.is_policing() {
            Err("the switch shapes or polices its packets".to_owned())
        } else {
            self.accelerator.port_add(&port.device)
        };
        if let Err(why) = &added {
            // Many types of devices are never accelerated, and deserve no warning.
            match port.device.kernel_path() {
                Some(_) => tracing::warn!(target: "dpif_netdev", "{}: not offloaded: {why}", port.device.name()),
                None => tracing::debug!(target: "dpif_netdev", "{}: not offloaded: {why}", port.device.name()),
            }
        }
        self.ports.insert(port.number, (port, added));
    }

    fn take(&mut self, flow: &Arc<Megaflow>) -> Result<(), Unfit> {
        if is_tracked(flow) {
            return Err(Unfit::Tracked);
        }
        let (to, tag) = output_and_tag(&flow.actions).ok_or(Unfit::Actions)?;
        let matches = Network::ALL.map(|network| {
            let (from, mut frames) = plain_match(flow, network)?;
            // Only a part of the frames that the flow covers may be offloaded.
            match tag {
                Tag::Keep => {}
                Tag::Push(_) => add_tagged(&mut frames, false)?,
                Tag::Pop => add_tagged(&mut frames, true)?,
            }
            Some((from, frames))
        });
        let from = matches.iter().flatten().map(|(from, _)| *from).next().ok_or(Unfit::Match)?;
        let frames = matches.map(|of| of.map(|(_, frames)| frames));
        let accelerated = |number| match self.ports.get(&number) {
            Some((_, Ok(port))) => Ok(*port),
            _ => Err(Unfit::Port),
        };
        if from == to {
            return Err(Unfit::Port);
        }
        let verdict = Verdict { from: accelerated(from)?, to: accelerated(to)?, tag, frames };
        let handle = self.accelerator.put(&verdict).map_err(Unfit::Refused)?;
        flow.offloaded.store(true, Ordering::Release);
        let known = Forwarded::default();
        self.flows.insert(flow.id, OffloadedFlow { flow: Arc::clone(flow), handle, from, to, tag, known });
        Ok(())
    }

    fn take_back_where(&mut self, now: Millis, which: impl Fn(&OffloadedFlow) -> bool) {
        let ids: Vec<FlowId> = self.flows.iter().filter(|(_, offloaded)| which(offloaded)).map(|(id, _)| *id).collect();
        self.take_back(ids.into_iter(), now);
    }

    fn take_back(&mut self, ids: impl Iterator<Item = FlowId>, now: Millis) {
        let mut flows: Vec<OffloadedFlow> = ids.filter_map(|id| self.flows.remove(&id)).collect();
        let handles: Vec<Handle> = flows.iter().map(|offloaded| offloaded.handle).collect();
        let (ports, forwarded) = (&self.ports, &mut self.forwarded);
        self.accelerator.remove(&handles, &mut |at, all| {
            if let Some(offloaded) = flows.get_mut(at) {
                offloaded.add(all, ports, forwarded, now);
            }
        });
        flows.iter().for_each(|offloaded| offloaded.flow.offloaded.store(false, Ordering::Release));
    }

    fn bring(&mut self, id: FlowId, now: Millis) {
        let Some(offloaded) = self.flows.get_mut(&id) else { return };
        let all = self.accelerator.forwarded(offloaded.handle);
        offloaded.add(all, &self.ports, &mut self.forwarded, now);
    }
}

impl OffloadedFlow {
    /// Adds new counts to the flow's own counters and to those of ports.
    fn add(
        &mut self,
        all: Forwarded,
        ports: &BTreeMap<DpPort, (Arc<Port>, Result<AcceleratedPort, String>)>,
        sum: &mut (u64, u64),
        now: Millis,
    ) {
        let packets = all.packets.wrapping_sub(self.known.packets);
        let bytes = all.bytes.wrapping_sub(self.known.bytes);
        // A packet may be counted between reading both counters: its bytes are then seen before the packet, and added
        // with it.
        if packets == 0 {
            return;
        }
        self.known = all;
        self.flow.count_offloaded(packets, bytes, all.tcp_flags, Millis(now.0.saturating_sub(all.idle_ms)));
        if let (Some((from, _)), Some((to, _))) = (ports.get(&self.from), ports.get(&self.to)) {
            let sent = match self.tag {
                Tag::Keep => bytes,
                Tag::Push(_) => bytes.wrapping_add(packets.wrapping_mul(TAG_BYTES)),
                // As above, the sum may be off by such a packet now, and is right with the next counts.
                Tag::Pop => bytes.wrapping_sub(packets.wrapping_mul(TAG_BYTES)),
            };
            from.count_offloaded(to, packets, (bytes, sent));
        }
        sum.0 += packets;
        sum.1 += bytes;
    }
}

/// The output port and the change of the tag; `None` for any other actions.
fn output_and_tag(actions: &[DpAction]) -> Option<(DpPort, Tag)> {
    match *actions {
        [DpAction::Output(to)] => Some((to, Tag::Keep)),
        [DpAction::PushVlan { tpid: ethertype::VLAN, tci }, DpAction::Output(to)] => Some((to, Tag::Push(tci))),
        [DpAction::PopVlan, DpAction::Output(to)] => Some((to, Tag::Pop)),
        _ => None,
    }
}

/// Returns true if the packets of a flow go, or went, through the connection tracker.
fn is_tracked(flow: &Megaflow) -> bool {
    flow.actions.iter().any(|action| matches!(action, DpAction::Ct(_))) || flow.key.word(CT) != 0
}

/// Restricts `frames` to tagged or untagged ones; `None` if none are left.
fn add_tagged(frames: &mut Common, is_tagged: bool) -> Option<()> {
    let bit = if is_tagged { TAGGED } else { 0 };
    let contradicts = (frames.key[SOURCE] ^ bit) & frames.mask[SOURCE] & TAGGED != 0;
    frames.key[SOURCE] |= bit;
    frames.mask[SOURCE] |= TAGGED;
    (!contradicts).then_some(())
}

/// The ingress port of a flow, and its match on plain packets of a network; `None` if no such packet can match it.
fn plain_match(flow: &Megaflow, network: Network) -> Option<(DpPort, Common)> {
    let mut frames = Common { key: Default::default(), mask: Default::default() };
    let (words, eth_type): (&[_], u16) = match network {
        Network::Ipv4 => (&IPV4_WORDS, ethertype::IPV4),
        Network::Ipv6 => (&IPV6_WORDS, ethertype::IPV6),
    };
    let mut from = None;
    for (word, bits, value) in flow.key.in_mask(flow.reads.mask()) {
        // The bits of this word that vary between plain packets, and the values of the others.
        let (varying, fixed) = match words.iter().position(|(of, _)| *of == word) {
            Some(at) => {
                let varying = words[at].1;
                (frames.key[at], frames.mask[at]) =
                    (frames.key[at] | value & varying, frames.mask[at] | bits & varying);
                (varying, if word == ETH_DST { eth_type.into() } else { 0 })
            }
            None if word == PORTS => {
                from = (bits >> 32 == u64::from(u32::MAX)).then_some(DpPort((value >> 32) as u32));
                (!0 << 32, 0)
            }
            None if word == VLAN && bits & TAG_PROTOCOL != 0 => {
                // The tag protocol depends on the bit that marks a tag as present.
                add_tagged(&mut frames, value != 0)?;
                (0, if value == 0 { 0 } else { TAG_PROTOCOL })
            }
            None => (0, 0),
        };
        if (value ^ fixed) & bits & !varying != 0 {
            return None;
        }
    }
    Some((from?, frames))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::PortNo;
    use base::rng::Rng;
    use dpif::{DpAction, DpFlow};
    use flow::extract::extract;
    use flow::{Field, FlowKey};

    /// The key of a UDP packet with few values in each field, over this network, with or without a tag.
    fn udp(rng: &mut Rng, network: Network) -> FlowKey {
        let mut frame = vec![0; 80];
        // Offsets of bytes with few values, after the Ethernet type.
        let (places, eth_type): (&[usize], _) = match network {
            Network::Ipv4 => (&[1, 8, 15, 19, 21, 23], ethertype::IPV4),
            Network::Ipv6 => (&[1, 3, 7, 15, 23, 31, 39, 41, 43], ethertype::IPV6),
        };
        for at in [5, 11].into_iter().chain(places.iter().map(|at| 14 + at)) {
            frame[at] = rng.below(2) as u8;
        }
        frame[12..14].copy_from_slice(&eth_type.to_be_bytes());
        match network {
            Network::Ipv4 => (frame[14], frame[17], frame[23]) = (0x45, 46, 17),
            Network::Ipv6 => (frame[14], frame[19], frame[20]) = (0x60 | frame[15], 20, 17),
        }
        if rng.below(2) == 0 {
            frame.splice(12..12, [0x81, 0, (rng.below(2) << 5) as u8, rng.below(2) as u8]);
        }
        extract(&frame, PortNo(3)).0
    }

    fn words(network: Network) -> &'static [(usize, u64)] {
        match network {
            Network::Ipv4 => &IPV4_WORDS,
            Network::Ipv6 => &IPV6_WORDS,
        }
    }

    /// The match on plain packets equals the flow's match on them.
    #[test]
    fn matches_equal_those_of_the_flow() {
        let mut rng = Rng::seeded(5);
        let (mut fits, mut agreed, rounds) = ([0; 2], [0; 4], 8000);
        for _ in 0..rounds {
            let network = Network::ALL[rng.below(2) as usize];
            let mut mask = FlowKey::ZERO;
            mask.0[PORTS] = !0;
            let more = [VLAN, flow::layout::ARP_SHA, flow::layout::PKTTYPE_CTTP];
            for word in words(network).iter().map(|(word, _)| *word).chain(more) {
                mask.0[word] = [0, 0, 0x8100 << 48, !0, rng.next_u64()][rng.below(5) as usize];
            }
            let mut key = udp(&mut rng, network);
            if rng.below(4) == 0 {
                let other = [ETH_DST, ETH_SRC, VLAN, IP_MISC, flow::layout::CT][rng.below(5) as usize];
                key.0[other] ^= 1 << rng.below(64);
            }
            let flow = Megaflow::new(FlowId(1), DpFlow::by_hand(&key, &mask, [DpAction::Output(DpPort(1))].into(), 0));
            for network in Network::ALL {
                let found = plain_match(&flow, network);
                fits[network as usize] += u32::from(found.is_some());
                for _ in 0..8 {
                    let packet = udp(&mut rng, network);
                    let covers = packet.0.iter().zip(&key.0).zip(&mask.0).all(|((a, b), bits)| (a ^ b) & bits == 0);
                    let plainly = found.is_some_and(|(from, frames)| {
                        let each = words(network).iter().zip(frames.key.iter().zip(&frames.mask));
                        from == DpPort(3)
                            && each
                                .into_iter()
                                .all(|((word, varying), (key, mask))| (packet.0[*word] & varying ^ key) & mask == 0)
                    });
                    assert_eq!(plainly, covers, "{packet:?} {key:?} {mask:?}");
                    let is_tagged = usize::from(packet.0[ETH_SRC] & TAGGED != 0);
                    agreed[network as usize * 2 + is_tagged] += u32::from(covers);
                }
            }
        }
        assert!(fits.iter().chain(&agreed).all(|n| *n > 500), "{fits:?} {agreed:?}");
        tally::report!("{rounds} flows, {fits:?} fit, {agreed:?} packets of each network, without a tag and with one");
    }

    #[test]
    fn flows_of_tracked_packets_are_refused() {
        let (mut key, mut mask) = (udp(&mut Rng::seeded(1), Network::Ipv4), FlowKey::ZERO);
        mask.0[PORTS] = !0;
        let tracked = |key: &FlowKey, actions: &[DpAction]| {
            is_tracked(&Megaflow::new(FlowId(1), DpFlow::by_hand(key, &mask, actions.into(), 0)))
        };
        let (ct, output) = (DpAction::Ct(Arc::default()), DpAction::Output(DpPort(1)));
        // The member of a bond differs by packet.
        assert_eq!(output_and_tag(&[DpAction::LbOutput(dpif::BondId(1))]), None);
        assert_eq!(output_and_tag(&[DpAction::PopVlan, DpAction::LbOutput(dpif::BondId(1))]), None);
        assert!(tracked(&key, &[ct.clone(), DpAction::Recirc(1)]) && tracked(&key, &[ct, output.clone()]));
        assert!(!tracked(&key, std::slice::from_ref(&output)));
        key.set(Field::CtState, 0x22);
        assert!(tracked(&key, &[output]));
    }

    #[test]
    fn a_flow_without_port_or_of_another_type_is_refused() {
        let fits = |change: &dyn Fn(&mut FlowKey, &mut FlowKey)| {
            let (mut key, mut mask) = (udp(&mut Rng::seeded(1), Network::Ipv4), FlowKey::ZERO);
            mask.0[PORTS] = !0;
            change(&mut key, &mut mask);
            let flow = Megaflow::new(FlowId(1), DpFlow::by_hand(&key, &mask, [].into(), 0));
            Network::ALL.map(|network| plain_match(&flow, network).is_some())
        };
        assert_eq!(fits(&|_, _| {}), [true, true]);
        assert_eq!(fits(&|_, mask| mask.0[PORTS] = 0), [false, false]);
        assert_eq!(fits(&|key, _| key.0[PORTS] |= 7), [false, false]);
        let type_of = |eth_type| {
            fits(&|key, mask| {
                key.set(Field::EthType, eth_type);
                mask.set(Field::EthType, 0xffff);
            })
        };
        assert_eq!([0x0800, 0x86dd, 0x0806].map(type_of), [[true, false], [false, true], [false, false]]);
    }
}
