//! Execution of actions. Packets that share a list of actions run through it together.
//!
//! The last action that uses a packet takes it; earlier ones get a copy. Packets to be sent gather in [`Outputs`],
//! recirculated packets in the [`Worklist`]. Three actions take locks: a meter has one, taken once for a batch; packets
//! for controllers are encoded and queued under the locks of the connections; and the inbox of a protocol has one.
//!
//! - [`headers`]: finds the headers of a frame;
//! - [`set`]: writes header fields and updates checksums;
//! - [`chance`]: chooses packets at random;
//! - [`encap`]: pushes and pops the outermost header;
//! - [`lb_output`]: chooses the member of a bond for each packet;
//! - [`meter`]: applies the bands of a meter;
//! - [`nested`]: runs nested lists of actions;
//! - [`path_mtu`]: answers packets that are too long for the path of their tunnel;
//! - [`recirculate`]: sends packets to another look-up;
//! - [`tunnel`]: pushes and pops the outer headers of tunnels;
//! - [`vlan`], [`mpls`], [`pbb`]: push and pop VLAN tags, MPLS labels and service instance tags.

pub(crate) mod chance;
mod encap;
pub(crate) mod headers;
mod lb_output;
pub(crate) mod meter;
mod mpls;
mod nested;
mod patch;
mod path_mtu;
mod pbb;
pub(crate) mod recirculate;
pub(crate) mod set;
mod set_ip;
mod set_transport;
mod tunnel;

pub(crate) mod vlan;

use std::sync::atomic::Ordering;

use ::tunnel::header::Hit;
use base::{DpPort, DropReason, Millis};
use dpif::{ControllerUpcall, DpAction, LocalSample, Observe, Psample, Punt, Upcall};
use flow::extract::extract_with;
use netdev::{pool, software};
use packet::segment::{longest_frame, shortest_frame};
use packet::{Batch, Packet};
use smallvec::SmallVec;

use crate::group::Todo;
use crate::input::Keys;
use crate::megaflow::Found;
use crate::output::Outputs;
use crate::port::{Port, PortTable};
use crate::shared::SharedState;
use crate::worklist::Worklist;
use headers::Headers;
pub(crate) use path_mtu::AnswerLimit;
pub(crate) use tunnel::outer_fragments;

/// The origin of a batch, and the state that its execution uses.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) shared: &'a SharedState,
    pub(crate) ports: &'a PortTable,
    /// The ingress port.
    pub(crate) in_port: DpPort,
    /// The ingress port in the table, if it exists: it counts the drops.
    pub(crate) from: Option<&'a Port>,
    /// The start of the round.
    pub(crate) now: Millis,
}

impl Context<'_> {
    /// The same for packets of another ingress port.
    #[inline]
    pub(crate) fn on(self, in_port: DpPort) -> Self {
        if in_port == self.in_port {
            return self;
        }
        Self { in_port, from: self.ports.port(in_port).map(|port| &**port), ..self }
    }
}

/// Executes actions on packets of one port.
pub(crate) struct Executor<'a> {
    shared: &'a SharedState,
    ports: &'a PortTable,
    in_port: DpPort,
    from: Option<&'a Port>,
    /// [`TunnelPush::in_key`](dpif::TunnelPush::in_key) of the outer headers that the current list has pushed.
    in_key: Option<u64>,
    /// The probability with which the packets were chosen by the innermost `sample` around the current list.
    probability: u32,
    now: Millis,
    outputs: &'a mut Outputs,
    /// Takes recirculated packets.
    work: &'a mut Worklist,
    /// Some packets may have no Ethernet header.
    pub(crate) any_l3: bool,
    /// The keys of the packets, by position, if the list of actions runs on a whole batch in its order.
    pub(crate) keys: Option<&'a Keys>,
}

/// Whether some action of a list has consumed the packets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// No action has sent or counted them: at the end of the list this is a drop.
    Open,
    /// An action sent or counted them.
    Settled,
}

/// The position of a list of actions in the nesting.
#[derive(Clone, Copy)]
struct Level {
    /// The number of enclosing lists.
    depth: usize,
    /// No enclosing list uses the packets afterwards: packets that are still [`Fate::Open`] at its end are dropped.
    whole: bool,
}

impl<'a> Executor<'a> {
    pub(crate) fn new(context: Context<'a>, outputs: &'a mut Outputs, work: &'a mut Worklist) -> Self {
        let Context { shared, ports, in_port, from, now } = context;
        Self {
            shared,
            ports,
            in_port,
            from,
            in_key: None,
            probability: u32::MAX,
            now,
            outputs,
            work,
            any_l3: false,
            keys: None,
        }
    }

    /// The number of packets that wait for another look-up.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.work.len()
    }

    /// Runs `packets` through `actions`, and leaves `packets` empty. The worklist may then hold recirculated packets.
    pub(crate) fn run(&mut self, packets: &mut Batch, actions: &[DpAction]) {
        self.steps(packets, actions, Level { depth: 0, whole: true }, Fate::Open);
        self.any_l3 = false;
        pool::recycle_all(packets);
    }

    /// As [`Executor::run`], with an output as the only action.
    fn run_output(&mut self, packets: &mut Batch, port: DpPort) {
        self.output(packets, port, None, true);
        pool::recycle_all(packets);
    }

    /// Gives a packet that left a tunnel the tunnel, beside the metadata that it has.
    #[inline]
    pub(crate) fn attach(&self, packet: &mut Packet, hit: Hit) {
        self.work.tunnels.attach_beside(packet, hit);
    }

    /// The same for all packets of a batch, if `hits` has the outer headers of any.
    #[inline]
    pub(crate) fn attach_all(&self, packets: &mut Batch, hits: &[Hit]) {
        packets.iter_mut().zip(hits).for_each(|(packet, hit)| self.attach(packet, *hit));
    }

    /// Offers megaflows that packets take to the accelerator, if there is one.
    #[inline]
    pub(crate) fn offer(&self, found: &[Found<'_>]) {
        if self.shared.flows.offload.is_on() {
            self.shared.flows.offload.offer(found);
        }
    }

    /// Runs `packets` through the actions of `todo`, as [`Executor::run`] does.
    pub(crate) fn run_todo(&mut self, packets: &mut Batch, todo: &Todo<'_>) {
        match todo {
            Todo::Output(port) => self.run_output(packets, *port),
            Todo::Run(actions) | Todo::Track(actions) => self.run(packets, actions),
        }
    }

    /// Runs packets with a fate through a list. Packets that no action took stay in `packets`.
    fn steps(&mut self, packets: &mut Batch, actions: &[DpAction], level: Level, fate: Fate) -> Fate {
        let (in_port, in_key, any_l3) = (self.in_port, self.in_key, self.any_l3);
        let fate = self.steps_of(packets, actions, level, fate);
        // The list may have pushed outer headers.
        (self.in_port, self.in_key, self.any_l3) = (in_port, in_key, self.any_l3 || any_l3);
        fate
    }

    fn steps_of(&mut self, packets: &mut Batch, actions: &[DpAction], level: Level, mut fate: Fate) -> Fate {
        let mut trunc = None;
        let mut at = 0;
        let flood_from = actions.iter().rposition(|a| !matches!(a, DpAction::Output(_))).map_or(0, |i| i + 1);
        while let Some(action) = actions.get(at) {
            let start = at;
            at += 1;
            let last = at == actions.len();
            match action {
                DpAction::Output(_) if start >= flood_from && !last && trunc.is_none() && !self.any_l3 => {
                    self.flood(packets, &actions[start..]);
                    return Fate::Settled;
                }
                DpAction::Output(port) => {
                    fate = Fate::Settled;
                    self.output(packets, *port, trunc.take(), last);
                }
                DpAction::LbOutput(bond) => {
                    fate = Fate::Settled;
                    let are_kept = level.depth == 0 && lb_output::leave_packets_alone(&actions[..start]);
                    let keys = self.keys.filter(|_| are_kept);
                    self.lb_output(packets, *bond, keys, trunc.take(), last);
                }
                DpAction::Trunc(len) => trunc = Some(*len as usize),
                DpAction::Set { .. } => {
                    // Adjacent sets parse the headers once.
                    at += actions[at..].iter().take_while(|a| matches!(a, DpAction::Set { .. })).count();
                    self.keep(packets, patch::setter(&actions[start..at]));
                }
                DpAction::PushVlan { tpid, tci } => self.keep(packets, |p| vlan::push(p, *tpid, *tci)),
                DpAction::PopVlan => match actions.get(at) {
                    Some(DpAction::PushVlan { tpid, tci }) => {
                        at += 1;
                        self.keep(packets, |p| vlan::replace(p, *tpid, *tci));
                    }
                    _ => self.keep(packets, vlan::pop),
                },
                DpAction::PushMpls { ethertype, lse } => {
                    self.segment(packets);
                    let vlans_max = self.shared.vlans_max.load(Ordering::Relaxed);
                    self.keep(packets, |p| mpls::push(p, *ethertype, *lse, vlans_max));
                }
                DpAction::PopMpls { ethertype } => {
                    let vlans_max = self.shared.vlans_max.load(Ordering::Relaxed);
                    self.keep(packets, |p| mpls::pop(p, *ethertype, vlans_max));
                }
                DpAction::PushPbb { tci } => {
                    self.segment(packets);
                    self.keep(packets, |p| pbb::push(p, *tci));
                }
                DpAction::PopPbb => {
                    let vlans_max = self.shared.vlans_max.load(Ordering::Relaxed);
                    self.keep(packets, |p| pbb::pop(p, vlans_max));
                }
                DpAction::CopyTtl { outwards } => {
                    let vlans_max = self.shared.vlans_max.load(Ordering::Relaxed);
                    packets.iter_mut().for_each(|p| mpls::copy_ttl(p, *outwards, vlans_max));
                }
                DpAction::Hash(kind, basis) => match self.keys {
                    // No action has changed the packets yet.
                    Some(keys) if start == 0 && level.depth == 0 => {
                        recirculate::hash_by_keys(keys, packets, *kind, *basis);
                    }
                    _ => recirculate::hash(self.shared, self.in_port, packets, *kind, *basis),
                },
                DpAction::Recirc(id) => {
                    fate = Fate::Settled;
                    self.recirc(packets, *id, last);
                }
                DpAction::Ct(ct) => {
                    let dropped = self.shared.tracker.track_all(packets, ct, self.in_port.0, self.now);
                    self.shared.count_drop(self.from, DropReason::IncompleteDatagram, dropped as u64);
                    if packets.is_empty() {
                        // The tracker holds fragments.
                        return Fate::Settled;
                    }
                }
                DpAction::CtClear => packets.iter_mut().for_each(|packet| packet.clear_connection()),
                DpAction::Controller(what) => {
                    fate = Fate::Settled;
                    self.controller(packets, what);
                }
                DpAction::Observe(what) => self.observe(packets, what),
                DpAction::Psample(what) => self.psample(packets, *what, trunc.take()),
                DpAction::Punt(punt) => {
                    fate = Fate::Settled;
                    self.punt(packets, punt);
                }
                DpAction::SlowPath => {
                    fate = Fate::Settled;
                    self.slow(packets, level);
                }
                DpAction::Clone(inner) => {
                    fate = self.nested(packets, inner, level, fate, last);
                }
                DpAction::CheckPktLen { size, greater, lesser } => {
                    // The last segment may be the only one that fits.
                    let size_max = usize::from(*size);
                    self.segment_if(packets, |p| longest_frame(p) > size_max && shortest_frame(p) <= size_max);
                    fate = self.by_length(packets, usize::from(*size), [greater, lesser], level, fate, last);
                }
                DpAction::Sample { probability, actions } => {
                    fate = self.by_chance(packets, *probability, actions, level, fate, last);
                }
                DpAction::PushEth { dst, src } => packets.iter_mut().for_each(|p| encap::push_eth(p, *dst, *src)),
                DpAction::PopEth => {
                    self.any_l3 = true;
                    self.keep(packets, encap::pop_eth);
                }
                DpAction::AddMpls { ethertype, lse } => {
                    self.any_l3 = true;
                    self.segment(packets);
                    packets.iter_mut().for_each(|p| encap::add_mpls(p, *ethertype, *lse));
                }
                DpAction::PushNsh(what) => {
                    self.any_l3 = true;
                    self.segment(packets);
                    packets.iter_mut().for_each(|p| encap::push_nsh(p, what));
                }
                DpAction::PopNsh => self.keep(packets, encap::pop_nsh),
                DpAction::TunnelPush(push) => {
                    self.keys = None;
                    if let Some(len) = trunc.take() {
                        self.segment(packets);
                        packets.iter_mut().for_each(|p| p.truncate(len));
                    }
                    self.push_tunnel(packets, push);
                }
                DpAction::TunnelPop(what) => {
                    fate = Fate::Settled;
                    self.pop_tunnel(packets, *what, last);
                }
                DpAction::Held => fate = Fate::Settled,
                DpAction::Defragment(what) => {
                    fate = Fate::Settled;
                    self.defragment(packets, what, last);
                }
                DpAction::Meter(id) => meter::run(self.shared, self.from, *id, packets),
                DpAction::Drop(reason) => {
                    self.shared.count_flow_drop(self.from, *reason, packets.len() as u64);
                    pool::recycle_all(packets);
                }
            }
            if packets.is_empty() {
                return Fate::Settled;
            }
        }
        if fate == Fate::Open && level.whole {
            self.shared.count_drop(self.from, DropReason::Action, packets.len() as u64);
        }
        fate
    }

    /// Sends the packets to a port: the packets themselves if this is their last use, otherwise copies.
    fn output(&mut self, packets: &mut Batch, port: DpPort, trunc: Option<usize>, last: bool) {
        if self.any_l3 && packets.iter().any(|p| p.l3_type.is_some()) {
            self.output_frames(packets, port, trunc, last);
            return;
        }
        if trunc.is_some() && packets.iter().any(|p| p.offload.gso.is_some()) {
            return self.output_segments(packets, port, trunc, last);
        }
        let result = if last {
            if let Some(len) = trunc {
                packets.iter_mut().for_each(|p| p.truncate(len));
            }
            self.outputs.push_all(self.shared, self.ports, self.from, port, packets)
        } else {
            let mut copies = std::mem::take(&mut self.outputs.copies);
            match trunc {
                Some(len) => copies.extend(packets.iter().map(|p| truncated_copy(p, len))),
                None => pool::copy_all(packets, &mut copies),
            }
            let result = self.outputs.push_all(self.shared, self.ports, self.from, port, &mut copies);
            self.outputs.copies = copies;
            result
        };
        if let Err(reason) = result {
            self.work.failed = Some(reason);
            if reason == DropReason::TooBig {
                self.answer_too_long();
            }
        }
    }

    /// Sends the packets to the ports with which their list of actions ends, and leaves `packets` empty. The last
    /// port that accepts them gets the packets themselves, the others get copies; a port whose device drops
    /// everything gets none.
    fn flood(&mut self, packets: &mut Batch, outputs: &[DpAction]) {
        let n = packets.len();
        let mut ports: SmallVec<[DpPort; 8]> = SmallVec::new();
        for action in outputs {
            if let DpAction::Output(port) = action
                && !self.outputs.refuses(self.shared, *port, n)
            {
                ports.push(*port);
            }
        }
        let last = ports.pop();
        for port in ports {
            self.output(packets, port, None, false);
        }
        match last {
            Some(port) => self.output(packets, port, None, true),
            None => pool::recycle_all(packets),
        }
    }

    /// As [`Executor::output`], but segments GSO packets first and truncates each segment.
    #[cold]
    fn output_segments(&mut self, packets: &mut Batch, port: DpPort, trunc: Option<usize>, last: bool) {
        let mut segments: Batch = if last { std::mem::take(packets) } else { packets.iter().map(pool::copy).collect() };
        self.segment(&mut segments);
        self.output(&mut segments, port, trunc, true);
        pool::recycle_all(&mut segments);
    }

    /// As [`Executor::output`], but drops packets without an Ethernet header.
    #[cold]
    fn output_frames(&mut self, packets: &mut Batch, port: DpPort, trunc: Option<usize>, last: bool) {
        let mut frames: Batch = packets.iter().filter(|p| p.l3_type.is_none()).map(pool::copy).collect();
        self.work.failed = Some(DropReason::NoEthernet);
        self.shared.count_drop(self.from, DropReason::NoEthernet, (packets.len() - frames.len()) as u64);
        if last {
            pool::recycle_all(packets);
        }
        self.output(&mut frames, port, trunc, true);
    }

    /// Sends the packets to controllers; GSO packets by segments.
    fn controller(&mut self, packets: &Batch, what: &ControllerUpcall) {
        match self.shared.handler() {
            Some(handler) => each_segment(packets, |p| handler.controller(self.in_port, what, p)),
            None => self.shared.count_drop(self.from, DropReason::UpcallQueueFull, packets.len() as u64),
        }
    }

    /// Reports the packets to collectors, GSO packets by segments. This does not affect forwarding.
    #[cold]
    fn observe(&mut self, packets: &Batch, what: &Observe) {
        if let Some(handler) = self.shared.handler() {
            each_segment(packets, |p| handler.observe(self.in_port, what, p));
        }
    }

    /// Sends copies to the collectors of this host. As in Linux, a GSO packet is one sample. This does not affect
    /// forwarding.
    #[cold]
    fn psample(&mut self, packets: &Batch, what: Psample, trunc: Option<usize>) {
        let Some(handler) = self.shared.handler() else { return };
        let (port, probability, len_max) = (self.in_port, self.probability, trunc.unwrap_or(usize::MAX));
        for packet in packets {
            handler.psample(&LocalSample { what, port, probability, packet, len_max });
        }
    }

    /// Queues the packets for a protocol as they would be on the wire: GSO packets by segments, all with complete
    /// checksums. Packets that do not fit into the inbox are dropped and counted.
    #[cold]
    fn punt(&mut self, packets: &Batch, punt: &Punt) {
        for packet in packets {
            if software::is_finished(packet) {
                self.punt_one(packet, punt);
                continue;
            }
            let mut frames = Batch::new();
            match software::finish(pool::copy(packet), &mut frames) {
                Ok(()) => frames.iter().for_each(|frame| self.punt_one(frame, punt)),
                Err(packet) => self.refuse(packet, DropReason::Malformed),
            }
            pool::recycle_all(&mut frames);
        }
    }

    fn punt_one(&mut self, frame: &Packet, punt: &Punt) {
        let queued = match self.shared.handler() {
            // Protocols read frames.
            _ if frame.l3_type.is_some() => Err(DropReason::NoEthernet),
            Some(handler) => handler.punt(self.in_port, punt, frame),
            None => Err(DropReason::NoProtocol),
        };
        match queued {
            Ok(None) => {}
            Ok(Some(other)) => {
                let from = self.ports.port(other).map(|port| &**port);
                self.shared.count_drop(from, DropReason::ProtocolQueueFull, 1);
            }
            Err(reason) => {
                self.work.failed = Some(reason);
                self.shared.count_drop(self.from, reason, 1);
            }
        }
    }

    /// Has each packet translated, and executes the actions for it.
    #[cold]
    fn slow(&mut self, packets: &mut Batch, level: Level) {
        let Some(handler) = self.shared.handler() else {
            self.shared.count_drop(self.from, DropReason::UpcallQueueFull, packets.len() as u64);
            return pool::recycle_all(packets);
        };
        let vlans_max = self.shared.vlans_max.load(Ordering::Relaxed);
        let mut one = Batch::new();
        for packet in packets.drain(..) {
            let mut key = extract_with(packet.data(), &recirculate::context_of(&packet, self.in_port), vlans_max);
            recirculate::put_options(self.shared, &packet, &mut key);
            let actions = handler.slow(Upcall { port: self.in_port, key: &key, packet: &packet });
            one.push(packet);
            self.steps(&mut one, &actions, level, Fate::Open);
            pool::recycle_all(&mut one);
        }
    }

    /// Segments GSO packets, before a push of a header that no device can segment behind, and where actions depend on
    /// segments.
    fn segment(&mut self, packets: &mut Batch) {
        self.segment_if(packets, |_| true);
    }

    /// Segments the GSO packets for which `wanted` returns true.
    fn segment_if(&mut self, packets: &mut Batch, wanted: impl Fn(&Packet) -> bool) {
        let is_wanted = |packet: &Packet| packet.offload.gso.is_some() && wanted(packet);
        if !packets.iter().any(is_wanted) {
            return;
        }
        let mut segments = Batch::with_capacity(packets.len());
        for packet in packets.drain(..) {
            if !is_wanted(&packet) {
                segments.push(packet);
            } else if let Err(packet) = software::finish(packet, &mut segments) {
                self.refuse(packet, DropReason::TooBig);
            }
        }
        *packets = segments;
    }

    /// Drops a packet that an action does not apply to.
    #[cold]
    pub(crate) fn refuse(&mut self, packet: Packet, reason: DropReason) {
        self.work.failed = Some(reason);
        self.shared.count_drop(self.from, reason, 1);
        pool::recycle(packet);
    }

    /// Changes each packet; packets for which that fails are dropped and counted.
    fn keep(&mut self, packets: &mut Batch, mut change: impl FnMut(&mut Packet) -> Result<(), DropReason>) {
        packets.retain_mut(|packet| match change(packet) {
            Ok(()) => true,
            Err(reason) => {
                self.refuse(std::mem::take(packet), reason);
                false
            }
        });
    }
}

/// Applies `Set` actions to a packet. Fields of headers that the packet does not have are skipped: the slow path only
/// sets fields that the packet's key has.
pub(crate) fn set_all(packet: &mut Packet, sets: &[DpAction]) -> Result<(), DropReason> {
    let mut headers = None;
    for action in sets {
        if let DpAction::Set { field, value, mask } = action
            && !set::set_metadata(packet, *field, *value, *mask)
        {
            let headers = headers.get_or_insert_with(|| Headers::of(packet));
            set::set(packet, headers, *field, *value, *mask)?;
        }
    }
    Ok(())
}

/// Calls `each` for each packet: for the segments of a GSO packet, or for the packet as it is if its offload flags
/// are invalid.
fn each_segment(packets: &Batch, mut each: impl FnMut(&Packet)) {
    for packet in packets {
        if packet.offload.gso.is_none() {
            each(packet);
            continue;
        }
        let mut segments = Batch::new();
        match software::finish(pool::copy(packet), &mut segments) {
            Ok(()) => segments.iter().for_each(&mut each),
            Err(whole) => each(&whole),
        }
        pool::recycle_all(&mut segments);
    }
}

/// Returns a copy of the first `len` bytes.
fn truncated_copy(packet: &Packet, len: usize) -> Packet {
    let mut copy = if len < packet.len() { pool::filled(&packet.data()[..len]) } else { pool::copy(packet) };
    let offload = copy.offload;
    copy.copy_metadata(packet);
    copy.offload = offload;
    copy
}

#[cfg(test)]
mod tests;
