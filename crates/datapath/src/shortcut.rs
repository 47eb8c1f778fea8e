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
//! Packets of one connection and direction stay in order: if one of a batch has to take the worklist, all later ones do.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::{DpPort, Millis, PortNo};
use dpif::{DpAction, FlowId};
use flow::compact::{Compact, extract_compact};
use flow::{PlainKey, TrackedKey, TrackedMatch, WideKey};
use hashbrown::HashMap;
use packet::metadata::Connection;
use packet::{Batch, Packet};
use smallvec::SmallVec;

use conntrack::tracker::Step;

use crate::execute::{Context, Executor};
use crate::flows::Reader;
use crate::group::Todo;
use crate::megaflow::{Found, Megaflow};
use crate::shared::{SharedState, counter_of};
use crate::tx::adder;
use crate::worklist::PASSES_MAX;

/// Maximum number of megaflows that the memos of one thread name.
const HINTS_MAX: usize = 1 << 16;
/// Bits of a memo that number the megaflow; the others number the thread.
const INDEX_BITS: u32 = 20;

/// A megaflow that memos name, with its match in a form that is quick to check.
#[derive(Debug)]
struct Hint {
    flow: Arc<Megaflow>,
    bits: TrackedMatch,
}

impl Hint {
    fn new(flow: &Arc<Megaflow>) -> Self {
        let bits = flow.reads.iter().map(|step| (step.word(), step.bits(), flow.key.word(step.word())));
        Self { bits: TrackedMatch::new(bits), flow: Arc::clone(flow) }
    }
}

/// The megaflows that the memos of one thread name. Another thread's memos mean nothing here.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    hints: Vec<Option<Hint>>,
    by_id: HashMap<FlowId, usize, foldhash::fast::RandomState>,
    /// The one that [`Hints::sweep`] examined last.
    swept: usize,
    /// Positions without a megaflow.
    free: Vec<usize>,
    /// Passes since the last one that was compared with a look-up.
    unchecked: Cell<u64>,
}

impl Hints {
    /// Returns the megaflow of a memo of the thread with this lane.
    #[inline]
    fn get(&self, lane: usize, memo: u32) -> Option<&Hint> {
        if memo >> INDEX_BITS != lane as u32 {
            return None;
        }
        // Numbers begin with 1, as no memo is 0.
        let number = (memo & ((1 << INDEX_BITS) - 1)) as usize;
        self.hints.get(number.wrapping_sub(1))?.as_ref()
    }

    /// Returns the memo for a megaflow.
    pub(crate) fn memo(&mut self, lane: usize, flow: &Arc<Megaflow>) -> u32 {
        let at = match self.by_id.get(&flow.id) {
            Some(at) => *at,
            None => {
                // Memory stays in proportion to the flows that are installed.
                self.sweep_some(2);
                match self.free.pop() {
                    Some(free) => free,
                    None if self.hints.len() < HINTS_MAX => self.hints.len(),
                    None => {
                        self.swept = (self.swept + 1) % HINTS_MAX;
                        self.swept
                    }
                }
            }
        };
        if at == self.hints.len() {
            self.hints.push(None);
        }
        let is_known = self.hints[at].as_ref().is_some_and(|hint| Arc::ptr_eq(&hint.flow, flow));
        if !is_known {
            if let Some(old) = self.hints[at].replace(Hint::new(flow))
                && old.flow.id != flow.id
            {
                self.by_id.remove(&old.flow.id);
            }
            self.by_id.insert(flow.id, at);
        }
        (lane as u32) << INDEX_BITS | (at as u32 + 1)
    }

    /// Renews the memos of packets that were looked up after the tracker.
    #[cold]
    pub(crate) fn learn(&mut self, shared: &SharedState, lane: usize, batch: &mut Batch, found: &[Found<'_>]) {
        for (packet, flow) in batch.iter_mut().zip(found) {
            let connection = packet.metadata().and_then(|metadata| metadata.only_connection());
            let Some(connection) = connection.filter(|connection| connection.awaits_lookup) else { continue };
            if let Some(flow) = flow
                && !flow.calls_above
                && !connection.is_error
            {
                shared.tracker.set_memo(connection, self.memo(lane, flow));
            }
            packet.metadata_mut().connection.awaits_lookup = false;
        }
    }

    /// Drops references to removed flows in a part of the table, so that their memory is freed eventually.
    pub(crate) fn sweep(&mut self) {
        self.sweep_some(64);
    }

    fn sweep_some(&mut self, n: usize) {
        for _ in 0..n.min(self.hints.len()) {
            self.swept = (self.swept + 1) % self.hints.len();
            let hint = &mut self.hints[self.swept];
            if let Some(gone) = hint.take_if(|hint| hint.flow.is_gone()) {
                self.by_id.remove(&gone.flow.id);
                self.free.push(self.swept);
            }
        }
    }
}

/// Returns true if packets with these actions can take the shortcut: the tracker, and another look-up.
pub(crate) fn is_tracking(actions: &[DpAction]) -> bool {
    match actions {
        [before @ .., DpAction::Ct(_), DpAction::Recirc(_)] => {
            before.iter().all(|action| matches!(action, DpAction::Ct(_) | DpAction::CtClear))
        }
        _ => false,
    }
}

/// Returns true if some action uses the metadata of a packet.
pub(crate) fn uses_metadata(actions: &[DpAction]) -> bool {
    actions.iter().any(|action| match action {
        DpAction::Output(_)
        | DpAction::Trunc(_)
        | DpAction::PushVlan { .. }
        | DpAction::PopVlan
        | DpAction::PushMpls { .. }
        | DpAction::PopMpls { .. }
        | DpAction::CtClear
        | DpAction::Drop(_) => false,
        DpAction::Set { field, .. } => matches!(field, flow::Field::PktMark | flow::Field::SkbPriority),
        _ => true,
    })
}

/// What a batch adds to a megaflow of a later pass, and the packets for which that is the last one.
struct Taken<'a> {
    flow: &'a Arc<Megaflow>,
    n: u64,
    bytes: u64,
    tcp_flags: u16,
    packets: Batch,
}

/// The state of a batch on the shortcut.
struct Passage<'a> {
    taken: SmallVec<[Taken<'a>; 4]>,
    /// The last one of them that a packet took.
    last: usize,
    /// The connections and directions of packets that have left the shortcut.
    late: SmallVec<[(u64, bool); 8]>,
}

/// The compact key of a packet, which all passes share until a translation changes the packet.
#[derive(Default)]
struct CompactKey {
    /// `None` if the key is not extracted, or no longer true.
    form: Option<Compact>,
    plain: PlainKey,
    wide: WideKey,
}

impl CompactKey {
    /// Extracts the key, if it is not known, and sets recirculation id and hash of this pass. `None` if it has no compact form.
    #[inline]
    fn of_pass(&mut self, packet: &Packet, in_port: DpPort, recirc_id: u32) -> Option<Compact> {
        if self.form.is_none() {
            self.form = extract_compact(packet.data(), PortNo(in_port.0), &mut self.plain, &mut self.wide);
        }
        match self.form? {
            Compact::Plain => self.plain = self.plain.with_recirculation(recirc_id, packet.dp_hash),
            Compact::Wide => self.wide = self.wide.with_recirculation(recirc_id, packet.dp_hash),
        }
        self.form
    }
}

impl<'a> Passage<'a> {
    /// Counts a packet for a megaflow, which `last` then names.
    #[inline]
    fn count(&mut self, flow: &'a Arc<Megaflow>, bytes: u64, tcp_flags: u16) {
        let is_last = self.taken.get(self.last).is_some_and(|taken| Arc::ptr_eq(taken.flow, flow));
        if !is_last {
            let known = self.taken.iter().position(|taken| Arc::ptr_eq(taken.flow, flow));
            self.last = known.unwrap_or(self.taken.len());
            if known.is_none() {
                self.taken.push(Taken { flow, n: 0, bytes: 0, tcp_flags: 0, packets: Batch::new() });
            }
        }
        let taken = &mut self.taken[self.last];
        taken.n += 1;
        taken.bytes += bytes;
        taken.tcp_flags |= tcp_flags;
    }
}

/// The state of the shortcut for one batch.
pub(crate) struct Follower<'a> {
    shared: &'a SharedState,
    hints: &'a Hints,
    reader: &'a Reader<'a>,
    lane: usize,
    in_port: DpPort,
    now: Millis,
    /// One in this number of passes is compared with a look-up; 0 for none.
    check_every: u64,
}

/// The end of a packet's way on the shortcut.
enum End {
    /// It takes the actions of the megaflow that was counted last.
    Takes,
    /// It is looked up with this recirculation id.
    Recirculates(u32),
    /// It takes the actions of its first megaflow as all other packets.
    Stays,
}

impl<'a> Follower<'a> {
    /// A follower for packets of `context`, on the thread of a lane.
    pub(crate) fn new(context: Context<'a>, reader: &'a Reader<'a>, hints: &'a Hints, lane: usize) -> Self {
        let Context { shared, in_port, now, .. } = context;
        let check_every = shared.check_every.load(Ordering::Relaxed);
        Self { shared, hints, reader, lane, in_port, now, check_every }
    }

    /// Runs packets through a list of actions that [`is_tracking`].
    pub(crate) fn run(&self, exec: &mut Executor<'_>, packets: &mut Batch, actions: &[DpAction]) {
        if !self.shared.config.shortcut || self.shared.tracker.has_expired_fragments(self.now) {
            return exec.run(packets, actions);
        }
        if let Some(DpAction::Ct(ct)) = actions.first() {
            self.shared.tracker.touch(packets, ct.zone);
        }
        // The keys are those of the packets before the tracker.
        exec.keys = None;
        let (n, mut keeps_order) = (packets.len(), false);
        let mut passage = Passage { taken: SmallVec::new(), last: 0, late: SmallVec::new() };
        let (mut left, mut left_id, mut stays) = (Batch::new(), 0, Batch::new());
        for mut packet in packets.drain(..) {
            if keeps_order {
                stays.push(packet);
                continue;
            }
            match self.follow(&mut packet, actions, &mut passage) {
                End::Takes => {
                    let list = &mut passage.taken[passage.last].packets;
                    if list.capacity() == 0 {
                        list.reserve(n);
                    }
                    list.push(packet);
                }
                End::Recirculates(id) => {
                    if id != left_id && !left.is_empty() {
                        exec.recirc(&mut left, left_id, true);
                    }
                    left_id = id;
                    left.push(packet);
                }
                End::Stays => {
                    // Later packets of its connection stay, too. The fragments of a datagram join the batch at its end anyway.
                    keeps_order = !has_only_connection(&packet);
                    stays.push(packet);
                }
            }
        }
        let mut passes = 0;
        for Taken { flow, n, bytes, tcp_flags, packets } in &mut passage.taken {
            flow.count(counter_of(self.lane), *n, *bytes, *tcp_flags, self.now);
            passes += *n;
            if !packets.is_empty() {
                exec.run_todo(packets, &Todo::of(flow));
            }
        }
        if !left.is_empty() {
            exec.recirc(&mut left, left_id, true);
        }
        if !stays.is_empty() {
            exec.run(&mut stays, actions);
        }
        let counters = &self.shared.lanes[self.lane];
        let add = adder(self.lane);
        add(&counters.hit, passes);
        add(&counters.recirculated, passes);
    }

    /// Takes one packet as far as memos lead.
    #[inline]
    fn follow(&self, packet: &mut Packet, first: &[DpAction], passage: &mut Passage<'a>) -> End {
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
                    DpAction::CtClear => connection = Connection::default(),
                    DpAction::Recirc(to) => id = *to,
                    _ => {}
                }
            }
            let Some((flow, tcp_flags)) = self.next(packet, &connection, (memo, id), &mut key, passage) else {
                if connection.handle != 0 {
                    passage.late.push(way(&connection));
                }
                packet.metadata_mut().connection = connection;
                return End::Recirculates(id);
            };
            packet.passes += 1;
            packet.tags = 0;
            passage.count(flow, packet.len() as u64, tcp_flags);
            if flow.is_tracking {
                actions = &flow.actions;
                continue;
            }
            if flow.uses_metadata {
                packet.recirc_id = id;
                connection.awaits_lookup = false;
                packet.metadata_mut().connection = connection;
            }
            return End::Takes;
        }
    }

    /// The megaflow of a memo, if the packet takes it in its pass with recirculation id `id`, and the packet's TCP flags.
    #[inline]
    fn next(
        &self,
        packet: &Packet,
        connection: &Connection,
        (memo, id): (u32, u32),
        key: &mut CompactKey,
        passage: &Passage<'a>,
    ) -> Option<(&'a Arc<Megaflow>, u16)> {
        let hint = self.hints.get(self.lane, memo)?;
        let flow = &hint.flow;
        let is_current = flow.generation == self.reader.generation() && !flow.is_gone() && !flow.calls_above;
        if !is_current || packet.passes + 1 >= PASSES_MAX || passage.late.contains(&way(connection)) {
            return None;
        }
        let (covers, tcp_flags) = match key.of_pass(packet, self.in_port, id)? {
            Compact::Plain => (hint.bits.covers_plain(&key.plain, connection), key.plain.tcp_flags()),
            Compact::Wide => (hint.bits.covers_wide(&key.wide, connection), key.wide.tcp_flags()),
        };
        if !covers || self.check_every != 0 && !self.check(flow, key, connection) {
            return None;
        }
        Some((flow, tcp_flags))
    }
}

impl Follower<'_> {
    /// Compares some passes with a look-up. Returns false if that finds another megaflow.
    #[cold]
    fn check(&self, flow: &Arc<Megaflow>, compact: &CompactKey, connection: &Connection) -> bool {
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
        match compact.form {
            Some(Compact::Wide) => key.set_wide(&compact.wide, connection),
            _ => key.set_plain(&compact.plain, connection),
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

/// The connection and direction of a packet.
fn way(connection: &Connection) -> (u64, bool) {
    (connection.handle, connection.is_reply)
}
