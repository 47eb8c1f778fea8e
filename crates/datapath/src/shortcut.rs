//! The shortcut of tracked packets: through all passes of a packet in one step.
//!
//! A packet of a stateful pipeline takes a megaflow that sends it through the connection tracker and recirculates it, then
//! another one, and so on. Beside the connection, for each direction, the tracker keeps a memo: the megaflow that the last
//! packet took after this action. If that megaflow covers the packet with its current state, the packet takes it without a
//! look-up, and if it only sends the packet somewhere, its metadata is never written.
//!
//! A memo is a hint. The megaflow is used if it is installed, belongs to the current generation, and has the values of the
//! packet in every bit that its translation read: so a look-up would give the same. Otherwise the packet continues on the
//! worklist, with the state that it has by then, and its look-up there renews the memo. Every pass counts as it does without
//! the shortcut.
//!
//! A connection without a memo, and a packet without a connection, take a guess: the megaflow of the last packet with the same
//! recirculation id and state. It is checked as a memo is. The connection gets it as its memo after the list of actions.
//!
//! Most packets are [`plain`]: the tracker resumes their connections, and they have no metadata between passes. All other
//! packets, and plain ones that need all rules of the tracker, take the general path ([`Follower::follow_from`]).
//!
//! Packets that left tunnels are without them in their metadata on the shortcut ([`crate::tunnel_hints`]), and take no megaflow there
//! that reads fields of tunnels. They get their tunnels when they leave the shortcut, and where the last actions use metadata.
//!
//! Packets of one connection and direction stay in order: if one of a batch has to take the worklist, all later ones do. Packets
//! of a batch that take several lists of actions may belong to one connection: once a list has sent packets to the worklist outside
//! of the shortcut, the packets of later lists take the worklist, too.

mod hints;
mod passage;
mod plain;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{DpPort, DropReason, Millis};
use conntrack::Action;
use conntrack::tracker::Step;
use dpif::DpAction;
use flow::compact::Compact;
use flow::{PlainKey, TrackedKey, WideKey};
use packet::buf::BATCH_MAX;
use packet::metadata::Connection;
use packet::{Batch, Packet};
use smallvec::SmallVec;
use tunnel::header::Hit;

pub(crate) use hints::Hints;
pub(crate) use passage::Passage;

use crate::execute::{Context, Executor, recirculate, set_all, vlan};
use crate::flows::Reader;
use crate::group::Todo;
use crate::megaflow::Megaflow;
use crate::shared::{SharedState, counter_of};
use crate::tx::adder;
use crate::worklist::PASSES_MAX;
use hints::Hint;
use passage::{CompactKey, List, Prepared, Taken, Tally};
use plain::{RECENT, Recent, resumable};

/// Returns true if packets with these actions can take the shortcut: the tracker, and another look-up. The list may compute a hash
/// and set header fields, too: a fragment begins the list anew, and doing so twice changes nothing. If the list changes VLAN tags,
/// fragments do not take the shortcut ([`changes_tags`]).
pub(crate) fn is_tracking(actions: &[DpAction]) -> bool {
    let [before @ .., DpAction::Recirc(_)] = actions else { return false };
    let is_followed = |action: &DpAction| match action {
        DpAction::Ct(_) | DpAction::CtClear | DpAction::Hash(..) => true,
        DpAction::PushVlan { .. } | DpAction::PopVlan => true,
        DpAction::Set { .. } => !uses_metadata(std::slice::from_ref(action)),
        _ => false,
    };
    before.iter().all(is_followed) && before.iter().any(|action| matches!(action, DpAction::Ct(_)))
}

/// Returns true if some action pushes or pops a VLAN tag.
fn changes_tags(actions: &[DpAction]) -> bool {
    actions.iter().any(|action| matches!(action, DpAction::PushVlan { .. } | DpAction::PopVlan))
}

/// Returns true if some action uses the metadata of a packet.
pub(crate) fn uses_metadata(actions: &[DpAction]) -> bool {
    actions.iter().any(|action| match action {
        DpAction::Output(_)
        | DpAction::LbOutput(_)
        | DpAction::Trunc(_)
        | DpAction::PushVlan { .. }
        | DpAction::PopVlan
        | DpAction::PushMpls { .. }
        | DpAction::PopMpls { .. }
        | DpAction::CtClear
        | DpAction::TunnelPush(_)
        | DpAction::Drop(_) => false,
        DpAction::Clone(list) => uses_metadata(list),
        DpAction::Set { field, .. } => matches!(field, flow::Field::PktMark | flow::Field::SkbPriority),
        _ => true,
    })
}

/// The state of the shortcut for one batch.
pub(crate) struct Follower<'a> {
    shared: &'a SharedState,
    hints: &'a Hints,
    reader: &'a Reader<'a>,
    lane: usize,
    in_port: DpPort,
    now: Millis,
    /// The packets left tunnels, and their metadata does not contain these yet.
    of_tunnel: bool,
    /// One in this number of passes is compared with a look-up; 0 for none.
    check_every: u64,
    /// Megaflows of memos that packets of the batch have used.
    recent: [Cell<Option<Recent<'a>>>; RECENT],
}

/// The key of a packet that is compared with a look-up.
#[derive(Clone, Copy)]
enum Checked<'a> {
    Plain(&'a PlainKey),
    Wide(&'a WideKey),
}

/// The end of a packet's way on the shortcut.
#[derive(Clone, Copy)]
enum End {
    /// It takes the actions of one of the tally's lists.
    Takes(u32),
    /// It is looked up with this recirculation id.
    Recirculates(u32),
    /// An action does not apply to it.
    Drops(DropReason),
    /// It takes the actions of its first megaflow as all other packets.
    Stays,
}

/// Stands for any end but [`End::Takes`].
const OTHER_END: u32 = u32::MAX;

/// The packets of a batch that are prepared, by position.
#[derive(Clone, Copy, Default)]
struct PreparedBits {
    /// The plain ones.
    are_plain: u32,
    are_syns: u32,
}

impl<'a> Follower<'a> {
    /// A follower for packets of `context`, on the thread of a lane.
    pub(crate) fn new(context: Context<'a>, reader: &'a Reader<'a>, hints: &'a Hints, lane: usize) -> Self {
        let Context { shared, in_port, now, .. } = context;
        let check_every = shared.check_every.load(Ordering::Relaxed);
        let of_tunnel = false;
        Self { shared, hints, reader, lane, in_port, now, of_tunnel, check_every, recent: Default::default() }
    }

    /// The same for packets that left tunnels, if they can go without tunnels in their metadata.
    pub(crate) fn of_tunnel(self) -> Self {
        // A look-up that a pass is compared with needs the tunnel.
        Self { of_tunnel: self.check_every == 0, ..self }
    }

    /// Whether packets go without tunnels in their metadata.
    pub(crate) fn is_of_tunnel(&self) -> bool {
        self.of_tunnel
    }

    /// Runs packets through the actions of a list of a batch. Packets of a list that [`is_tracking`] take the shortcut, if no
    /// packet of an earlier list may have to come before them.
    /// `hits` is empty, or has the outer headers of each packet: the packets have no tunnels in their metadata yet, and get them here
    /// where something needs them.
    pub(crate) fn run(
        &self,
        exec: &mut Executor<'_>,
        passage: &mut Passage,
        packets: &mut Batch,
        todo: &Todo<'_>,
        hits: &[Hit],
    ) {
        match todo {
            Todo::Track(actions) if passage.tally.keeps_order => self.follow_all(exec, passage, packets, actions, hits),
            _ => {
                exec.attach_all(packets, hits);
                let waiting = exec.waiting();
                exec.run_todo(packets, todo);
                passage.tally.keeps_order &= exec.waiting() == waiting;
            }
        }
    }

    /// Takes packets through their later passes.
    fn follow_all(
        &self,
        exec: &mut Executor<'_>,
        passage: &mut Passage,
        packets: &mut Batch,
        actions: &[DpAction],
        hits: &[Hit],
    ) {
        let takes_worklist = !self.shared.config.shortcut || packets.len() > BATCH_MAX;
        if takes_worklist || self.shared.tracker.has_expired_fragments(self.now) {
            passage.tally.keeps_order = false;
            exec.attach_all(packets, hits);
            return exec.run(packets, actions);
        }
        // The keys are those of the packets before the tracker.
        exec.keys = None;
        let first = resumable(actions);
        let prepared = self.prepare(passage, packets, actions, first);
        // A packet with a compact key is no fragment, and becomes none. All packets of later lists have such keys.
        let needs_key = first.is_none() && changes_tags(actions);
        let Passage { tally, plain, slots, left, stays } = passage;
        tally.begin_list();
        self.recent.iter().for_each(|recent| recent.set(None));
        // Most packets take lists of the tally; `other_ends` are the ends of the others, in order.
        let mut lists = [OTHER_END; BATCH_MAX];
        let mut other_ends: SmallVec<[End; BATCH_MAX]> = SmallVec::new();
        for (i, (packet, list)) in packets.iter_mut().zip(&mut lists).enumerate() {
            let end = match (plain.get_mut(i), first) {
                (Some(plain), Some(first)) if prepared.are_plain >> i & 1 != 0 => {
                    self.follow_plain(packet, plain, first, actions, (tally, slots))
                }
                (Some(plain), Some(first)) if prepared.are_syns >> i & 1 != 0 => {
                    self.follow_new(packet, plain, first, actions, tally)
                }
                _ if needs_key && CompactKey::default().of_pass(packet, self.in_port, 0).is_none() => End::Stays,
                _ => self.follow(packet, actions, tally),
            };
            match end {
                End::Takes(taken) => *list = taken,
                other => other_ends.push(other),
            }
            // Later packets of its connection stay, too. The fragments of a datagram join the batch at its end anyway.
            if matches!(end, End::Stays) && !has_only_connection(packet) {
                break;
            }
        }
        let (first_list, others) = (lists[0], &lists[..packets.len()]);
        if first_list != OTHER_END && others.iter().all(|list| *list == first_list) {
            if !hits.is_empty() && self.uses_metadata(tally, first_list) {
                exec.attach_all(packets, hits);
            }
            tally.push_all(first_list, packets);
        } else {
            let mut other_ends = other_ends.into_iter();
            for (i, (mut packet, list)) in packets.drain(..).zip(lists).enumerate() {
                let other = if list == OTHER_END { other_ends.next().unwrap_or(End::Stays) } else { End::Takes(list) };
                if let Some(hit) = hits.get(i)
                    && (list == OTHER_END || self.uses_metadata(tally, list))
                {
                    exec.attach(&mut packet, *hit);
                }
                match other {
                    End::Takes(list) => tally.push(list, packet),
                    End::Recirculates(id) => left.push(id, packet),
                    End::Drops(reason) => exec.refuse(packet, reason),
                    End::Stays => stays.push(packet),
                }
            }
        }
        let mut passes = 0;
        for Taken { list, n, bytes, tcp_flags, packets } in tally.taken() {
            let Some(flow) = self.hints.flow(list.hint()) else { continue };
            flow.count(counter_of(self.lane), *n, *bytes, *tcp_flags, self.now);
            passes += *n;
            if packets.is_empty() {
                continue;
            }
            if list.is_begun() {
                exec.run(packets, flow.actions.get(1..).unwrap_or_default());
            } else {
                exec.run_todo(packets, &Todo::of(flow));
            }
        }
        for (way, memo) in tally.guessed.drain(..) {
            self.shared.tracker.set_memo(way, memo);
        }
        // These come after packets of their connections that have not left.
        while let Some((id, packets)) = left.pop_first() {
            exec.recirc(packets, id, true);
        }
        if !stays.is_empty() {
            tally.keeps_order = false;
            exec.run(stays, actions);
        }
        let counters = &self.shared.lanes[self.lane];
        let add = adder(self.lane);
        add(&counters.hit, passes);
        add(&counters.recirculated, passes);
    }

    /// Whether the actions of a list of the tally use the metadata of packets.
    fn uses_metadata(&self, tally: &Tally, list: u32) -> bool {
        self.hints.flow(tally.hint_of(list)).is_some_and(|flow| flow.uses_metadata)
    }

    /// Prepares the plain packets of a batch, if `first`, its list of actions, is resumable, and reads the memory that their
    /// connections are in.
    #[inline(never)]
    fn prepare(
        &self,
        Passage { plain, slots, .. }: &mut Passage,
        packets: &Batch,
        actions: &[DpAction],
        first: Option<(&Action, u32)>,
    ) -> PreparedBits {
        let tracker = &self.shared.tracker;
        let mut bits = PreparedBits::default();
        let Some((ct, _)) = first else {
            if let Some(DpAction::Ct(ct)) = actions.first() {
                tracker.prefetch_all(packets, ct.zone);
            }
            return bits;
        };
        let mut unknown = 0;
        for (i, (packet, prepared)) in packets.iter().zip(&mut **plain).enumerate() {
            let kind = prepared.prepare(packet, ct.zone, tracker);
            // The values of the kinds are bits: 1 for plain packets, 2 for SYNs.
            bits.are_plain |= (kind as u32 & 1) << i;
            bits.are_syns |= (kind as u32 >> 1) << i;
            unknown |= u32::from(!tracker.recall(&mut prepared.plain, slots)) << i;
        }
        slots.record(packets.len() as u32, packets.len() as u32 - unknown.count_ones());
        // Each loop begins to read memory for the next one, so that cache misses overlap. Most SYNs have no connection.
        if unknown != 0 && tracker.is_large() {
            each(unknown, plain, |one| tracker.prefetch(&mut one.plain));
        }
        each(unknown & !bits.are_syns, plain, |one| tracker.locate(&mut one.plain));
        bits
    }

    /// Takes a packet of any kind as far as memos lead.
    fn follow(&self, packet: &mut Packet, first: &[DpAction], tally: &mut Tally) -> End {
        let mut connection = Connection::default();
        if let Some(metadata) = packet.metadata() {
            match metadata.only_connection() {
                Some(known) => connection = known.clone(),
                None => return End::Stays,
            }
        }
        if packet.l3_type.is_some() {
            return End::Stays;
        }
        self.follow_from(packet, connection, first, tally)
    }

    /// Takes a packet with this connection as far as memos lead.
    fn follow_from(&self, packet: &mut Packet, connection: Connection, first: &[DpAction], tally: &mut Tally) -> End {
        self.follow_after(packet, connection, first, false, tally)
    }

    /// The same for a packet that may have taken a guess before.
    fn follow_after(
        &self,
        packet: &mut Packet,
        mut connection: Connection,
        first: &[DpAction],
        mut has_guessed: bool,
        tally: &mut Tally,
    ) -> End {
        let (mut actions, mut key) = (first, CompactKey::default());
        loop {
            let (mut memo, mut id) = (0, 0);
            for action in actions {
                match action {
                    DpAction::Ct(ct) => {
                        match self.shared.tracker.track(packet, &mut connection, ct, self.now) {
                            Step::Tracked(of_connection) => memo = of_connection,
                            Step::Untracked => memo = 0,
                            // This is so for the first action, as none makes a packet a fragment.
                            Step::Fragment => return End::Stays,
                        }
                        if ct.nat.is_some() {
                            key.form = None;
                        }
                    }
                    DpAction::CtClear => (connection, memo) = (Connection::default(), 0),
                    DpAction::Recirc(to) => id = *to,
                    DpAction::Set { .. } => {
                        if let Err(reason) = set_all(packet, std::slice::from_ref(action)) {
                            return End::Drops(reason);
                        }
                        key.form = None;
                    }
                    DpAction::Hash(kind, basis) => {
                        let packets = std::slice::from_mut(packet);
                        recirculate::hash(self.shared, self.in_port, packets, *kind, *basis);
                    }
                    DpAction::PushVlan { .. } | DpAction::PopVlan => {
                        let changed = match action {
                            DpAction::PushVlan { tpid, tci } => vlan::push(packet, *tpid, *tci),
                            _ => vlan::pop(packet),
                        };
                        if let Err(reason) = changed {
                            return End::Drops(reason);
                        }
                        key.form = None;
                    }
                    _ => {}
                }
            }
            let is_guess = memo == 0 && !connection.is_error;
            if is_guess {
                has_guessed = true;
                memo = self.hints.guess(id, connection.state, connection.zone);
            }
            let next = self.next(packet, &connection, (memo, id), &mut key, tally);
            let Some((hint, flow, tcp_flags)) = next else {
                tally.late.push(way(&connection));
                packet.metadata_mut().connection = connection;
                return End::Recirculates(id);
            };
            packet.passes += 1;
            packet.tags = 0;
            if is_guess && connection.handle != 0 {
                tally.guessed.push((way(&connection), memo));
            }
            if flow.is_tracking {
                tally.count(List::of(hint), packet.len() as u64, tcp_flags);
                actions = &flow.actions;
                continue;
            }
            if has_guessed {
                tally.count_last(List::of(hint), packet.len() as u64, tcp_flags);
            } else {
                tally.count(List::of(hint), packet.len() as u64, tcp_flags);
            }
            if flow.uses_metadata {
                packet.recirc_id = id;
                connection.awaits_lookup = false;
                packet.metadata_mut().connection = connection;
            }
            return tally.end();
        }
    }

    /// The megaflow of a memo, with its position among the hints, if packets may take it in this batch.
    #[inline]
    fn current(&self, memo: u32) -> Option<(usize, &'a Hint)> {
        let (at, hint) = self.hints.get(self.lane, memo)?;
        let flow = &hint.flow;
        let is_current = flow.generation == self.reader.generation() && !flow.is_gone() && !flow.calls_above;
        let is_current = is_current && !(self.of_tunnel && hint.reads_tunnel);
        is_current.then_some((at, hint))
    }

    /// Returns true if a packet of this connection and direction may take another pass on the shortcut.
    #[inline(always)]
    fn may_take(packet: &Packet, way: impl FnOnce() -> (u64, bool), tally: &Tally) -> bool {
        let is_late = !tally.late.is_empty() && tally.late.contains(&way());
        packet.passes + 1 < PASSES_MAX && !is_late
    }

    /// The megaflow of a memo, if the packet takes it in its pass with recirculation id `id`, and the packet's TCP flags.
    #[inline]
    fn next(
        &self,
        packet: &Packet,
        connection: &Connection,
        (memo, id): (u32, u32),
        key: &mut CompactKey,
        tally: &Tally,
    ) -> Option<(usize, &'a Arc<Megaflow>, u16)> {
        let (at, hint) = self.current(memo)?;
        if !Self::may_take(packet, || way(connection), tally) {
            return None;
        }
        let flow = &hint.flow;
        let (covers, tcp_flags, checked) = match key.of_pass(packet, self.in_port, id)? {
            Compact::Plain => {
                (hint.bits.covers_plain(&key.plain, connection), key.plain.tcp_flags(), Checked::Plain(&key.plain))
            }
            Compact::Wide => {
                (hint.bits.covers_wide(&key.wide, connection), key.wide.tcp_flags(), Checked::Wide(&key.wide))
            }
        };
        if !covers || self.check_every != 0 && !self.check(flow, checked, connection) {
            return None;
        }
        Some((at, flow, tcp_flags))
    }
}

impl Follower<'_> {
    /// Compares some passes with a look-up. Returns false if that finds another megaflow.
    #[cold]
    fn check(&self, flow: &Arc<Megaflow>, compact: Checked<'_>, connection: &Connection) -> bool {
        let unchecked = &self.hints.unchecked;
        unchecked.set(unchecked.get() + 1);
        if unchecked.get() < self.check_every {
            return true;
        }
        unchecked.set(0);
        let counters = &self.shared.lanes[self.lane];
        let add = adder(self.lane);
        add(&counters.checks, 1);
        let mut key = TrackedKey::default();
        match compact {
            Checked::Wide(compact) => key.set_wide(compact, connection),
            Checked::Plain(compact) => key.set_plain(compact, connection),
        }
        // An index may have narrowed the flow: then it covers other packets, too.
        let is_right = self.reader.lookup(&key, &mut 0).is_none_or(|found| found.actions == flow.actions);
        add(&counters.checks_failed, u64::from(!is_right));
        is_right
    }
}

/// Returns true for a frame without metadata but a connection.
fn has_only_connection(packet: &Packet) -> bool {
    packet.l3_type.is_none() && packet.metadata().is_none_or(|metadata| metadata.only_connection().is_some())
}

/// Calls a function with the packets of a bitmap.
#[inline(always)]
fn each(mut bits: u32, plain: &mut [Prepared; BATCH_MAX], mut call: impl FnMut(&mut Prepared)) {
    while bits != 0 {
        call(&mut plain[bits.trailing_zeros() as usize % BATCH_MAX]);
        bits &= bits - 1;
    }
}

/// The connection and direction of a packet.
fn way(connection: &Connection) -> (u64, bool) {
    (connection.handle, connection.is_reply)
}
