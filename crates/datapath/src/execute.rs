//! Actions on packets. Packets that share a list of actions run through it together.
//!
//! The last action that uses a packet takes it; earlier ones get a copy. Nothing here waits or takes a lock: what is
//! to be sent gathers in [`Outputs`].
//!
//! - [`headers`]: where a frame's headers are;
//! - [`set`]: writing header fields, with checksums kept right;
//! - [`encap`]: whatever header comes first;
//! - [`meter`]: what a meter's bands do;
//! - [`nested`]: lists of actions within the list;
//! - [`recirculate`]: looking packets up once more;
//! - [`vlan`], [`mpls`], [`pbb`]: pushing and popping VLAN tags, MPLS labels and service instance tags.

mod encap;
pub(crate) mod headers;
pub(crate) mod meter;
mod mpls;
mod nested;
mod pbb;
pub(crate) mod recirculate;
pub(crate) mod set;
mod set_ip;
mod set_transport;
pub(crate) mod vlan;

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use base::{DpPort, DropReason};
use dpif::{ControllerUpcall, DpAction, Observe};
use netdev::{pool, software};
use packet::{Batch, Packet};

use crate::group::Todo;
use crate::output::Outputs;
use crate::port::{Port, PortTable};
use crate::shared::Shared;
use headers::Headers;

/// Who executes, and for which port.
pub(crate) struct Executor<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) ports: &'a PortTable,
    /// Where the packets came in.
    pub(crate) in_port: DpPort,
    /// The same, if there is such a port: it counts the drops.
    pub(crate) from: Option<&'a Port>,
    pub(crate) outputs: &'a mut Outputs,
    /// Some packets may have no Ethernet header.
    pub(crate) bare: bool,
    /// The last reason for which a packet was dropped though the actions did not say so.
    pub(crate) failed: Option<DropReason>,
    /// Packets that are to be looked up once more ([`Executor::recirculate`]).
    pub(crate) again: VecDeque<Batch>,
}

/// Where packets have been on their way through a list of actions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Nowhere yet: at the end of the list this is a drop.
    Open,
    /// Some action sent or counted them.
    Settled,
}

/// Where a list of actions stands.
#[derive(Clone, Copy)]
struct Level {
    /// In so many others.
    depth: usize,
    /// The packets go nowhere but through it, and what is still [`Fate::Open`] at its end is dropped.
    whole: bool,
}

impl<'a> Executor<'a> {
    /// For packets that came in at a port, if that is there.
    pub(crate) fn new(
        shared: &'a Shared,
        ports: &'a PortTable,
        in_port: DpPort,
        from: Option<&'a Port>,
        outputs: &'a mut Outputs,
    ) -> Self {
        Self { shared, ports, in_port, from, outputs, bare: false, failed: None, again: VecDeque::new() }
    }

    /// Runs `packets` through `actions`, and leaves `packets` empty. Some may be to be looked up once more then.
    pub(crate) fn run(&mut self, packets: &mut Batch, actions: &[DpAction]) {
        self.steps(packets, actions, Level { depth: 0, whole: true }, Fate::Open);
        self.bare = false;
        pool::recycle_all(packets);
    }

    /// As [`Executor::run`], with an output as only action.
    fn run_output(&mut self, packets: &mut Batch, port: DpPort) {
        self.output(packets, port, None, true);
        pool::recycle_all(packets);
    }

    /// Does with `packets` what is to be done, as [`Executor::run`] says.
    pub(crate) fn run_todo(&mut self, packets: &mut Batch, todo: &Todo) {
        match todo {
            Todo::Output(port) => self.run_output(packets, *port),
            Todo::Run(actions) => self.run(packets, actions),
        }
    }

    /// Runs packets with a fate through a list. Some may be left behind in `packets`.
    fn steps(&mut self, packets: &mut Batch, actions: &[DpAction], level: Level, mut fate: Fate) -> Fate {
        let mut trunc = None;
        let mut at = 0;
        while let Some(action) = actions.get(at) {
            let start = at;
            at += 1;
            let last = at == actions.len();
            match action {
                DpAction::Output(port) => {
                    fate = Fate::Settled;
                    self.output(packets, *port, trunc.take(), last);
                }
                DpAction::Trunc(len) => trunc = Some(*len as usize),
                DpAction::Set { .. } => {
                    // Neighbouring sets share one look at the headers.
                    at += actions[at..].iter().take_while(|a| matches!(a, DpAction::Set { .. })).count();
                    self.keep(packets, |packet| set_all(packet, &actions[start..at]));
                }
                DpAction::PushVlan { tpid, tci } => self.keep(packets, |p| vlan::push(p, *tpid, *tci)),
                DpAction::PopVlan => self.keep(packets, vlan::pop),
                DpAction::PushMpls { ethertype, lse } => {
                    self.cut_large(packets);
                    let vlans_max = self.shared.vlans_max.load(Ordering::Relaxed);
                    self.keep(packets, |p| mpls::push(p, *ethertype, *lse, vlans_max));
                }
                DpAction::PopMpls { ethertype } => {
                    let vlans_max = self.shared.vlans_max.load(Ordering::Relaxed);
                    self.keep(packets, |p| mpls::pop(p, *ethertype, vlans_max));
                }
                DpAction::PushPbb { tci } => {
                    self.cut_large(packets);
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
                DpAction::Hash(kind, basis) => recirculate::hash(self.shared, self.in_port, packets, *kind, *basis),
                DpAction::Recirc(id) => {
                    fate = Fate::Settled;
                    self.recirc(packets, *id, last);
                }
                DpAction::Ct(_) => {
                    // There is no tracker yet: to go on would be to take any packet for one that it let pass.
                    self.failed = Some(DropReason::NoConntrack);
                    self.shared.count_drop(self.from, DropReason::NoConntrack, packets.len() as u64);
                    pool::recycle_all(packets);
                }
                // No packet has a connection.
                DpAction::CtClear => {}
                DpAction::Controller(what) => {
                    fate = Fate::Settled;
                    self.controller(packets, what);
                }
                DpAction::Observe(what) => self.observe(packets, what),
                DpAction::Clone(inner) => {
                    fate = self.nested(packets, inner, level, fate, last);
                }
                DpAction::CheckPktLen { size, greater, lesser } => {
                    fate = self.by_length(packets, usize::from(*size), [greater, lesser], level, fate, last);
                }
                DpAction::Sample { probability, actions } => {
                    fate = self.by_chance(packets, *probability, actions, level, fate, last);
                }
                DpAction::PushEth { dst, src } => packets.iter_mut().for_each(|p| encap::push_eth(p, *dst, *src)),
                DpAction::PopEth => {
                    self.bare = true;
                    self.cut_large(packets);
                    self.keep(packets, encap::pop_eth);
                }
                DpAction::AddMpls { ethertype, lse } => {
                    self.bare = true;
                    self.cut_large(packets);
                    packets.iter_mut().for_each(|p| encap::add_mpls(p, *ethertype, *lse));
                }
                DpAction::PushNsh(what) => {
                    self.bare = true;
                    self.cut_large(packets);
                    packets.iter_mut().for_each(|p| encap::push_nsh(p, what));
                }
                DpAction::PopNsh => self.keep(packets, encap::pop_nsh),
                DpAction::Meter(id) => meter::run(self.shared, self.from, *id, packets),
                DpAction::Drop(reason) => {
                    self.shared.count_drop(self.from, *reason, packets.len() as u64);
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

    /// Sends the packets out of a port: themselves if this is their last use, else copies.
    fn output(&mut self, packets: &mut Batch, port: DpPort, trunc: Option<usize>, last: bool) {
        if self.bare && packets.iter().any(|p| p.bare.is_some()) {
            self.output_frames(packets, port, trunc, last);
            return;
        }
        let result = if last {
            if let Some(len) = trunc {
                packets.iter_mut().for_each(|p| p.truncate(len));
            }
            self.outputs.push_all(self.shared, self.ports, self.from, port, packets)
        } else {
            let mut copies = std::mem::take(&mut self.outputs.copies);
            match trunc {
                Some(len) => copies.extend(packets.iter().map(|p| cut_copy_of(p, len))),
                None => pool::copy_all(packets, &mut copies),
            }
            let result = self.outputs.push_all(self.shared, self.ports, self.from, port, &mut copies);
            self.outputs.copies = copies;
            result
        };
        if let Err(reason) = result {
            self.failed = Some(reason);
        }
    }

    /// As [`Executor::output`] of those that are frames.
    #[cold]
    fn output_frames(&mut self, packets: &mut Batch, port: DpPort, trunc: Option<usize>, last: bool) {
        let mut frames: Batch = packets.iter().filter(|p| p.bare.is_none()).map(pool::copy).collect();
        self.failed = Some(DropReason::NoEthernet);
        self.shared.count_drop(self.from, DropReason::NoEthernet, (packets.len() - frames.len()) as u64);
        if last {
            pool::recycle_all(packets);
        }
        self.output(&mut frames, port, trunc, true);
    }

    fn controller(&mut self, packets: &Batch, what: &ControllerUpcall) {
        match self.shared.handler() {
            Some(handler) => packets.iter().for_each(|p| handler.controller(self.in_port, what, p)),
            None => self.shared.count_drop(self.from, DropReason::UpcallQueueFull, packets.len() as u64),
        }
    }

    /// Has collectors told of the packets, of each that one stands for. It changes nothing about where they go.
    #[cold]
    fn observe(&mut self, packets: &Batch, what: &Observe) {
        let Some(handler) = self.shared.handler() else { return };
        for packet in packets {
            if packet.offload.gso.is_none() {
                handler.observe(self.in_port, what, packet);
                continue;
            }
            let mut cut = Batch::new();
            if software::finish(pool::copy(packet), &mut cut).is_ok() {
                cut.iter().for_each(|one| handler.observe(self.in_port, what, one));
            }
            pool::recycle_all(&mut cut);
        }
    }

    /// Cuts packets that stand for several, which nobody could behind headers that devices do not look through.
    fn cut_large(&mut self, packets: &mut Batch) {
        if packets.iter().all(|p| p.offload.gso.is_none()) {
            return;
        }
        let mut cut = Batch::with_capacity(packets.len());
        for packet in packets.drain(..) {
            if packet.offload.gso.is_none() {
                cut.push(packet);
            } else if let Err(packet) = software::finish(packet, &mut cut) {
                self.refuse(packet, DropReason::TooBig);
            }
        }
        *packets = cut;
    }

    /// Drops a packet that an action cannot be done to.
    #[cold]
    fn refuse(&mut self, packet: Packet, reason: DropReason) {
        self.failed = Some(reason);
        self.shared.count_drop(self.from, reason, 1);
        pool::recycle(packet);
    }

    /// Changes each packet; those that cannot be changed are dropped and counted.
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

/// Applies `Set` actions to a packet. A field of a header that the packet does not have is passed over: the slow path
/// asks for a field only if the packet's key has it.
fn set_all(packet: &mut Packet, sets: &[DpAction]) -> Result<(), DropReason> {
    let headers = Headers::of(packet);
    for action in sets {
        if let DpAction::Set { field, value, mask } = action {
            set::set(packet, &headers, *field, *value, *mask)?;
        }
    }
    Ok(())
}

/// A copy of the first `len` bytes.
fn cut_copy_of(packet: &Packet, len: usize) -> Packet {
    let mut copy = if len < packet.len() { pool::filled(&packet.data()[..len]) } else { pool::copy(packet) };
    let offload = copy.offload;
    copy.take_marks_of(packet);
    copy.offload = offload;
    copy
}

#[cfg(test)]
mod tests;
