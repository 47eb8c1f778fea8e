//! Recirculation: the frozen state of a translation that has to wait for the datapath.
//!
//! After an action like `pop_mpls` the headers are unknown until the packet is parsed again, and only the datapath computes the
//! hash by which a group selects. The translation then stores its remaining work as [`Frozen`] under a number. The datapath
//! executes the actions so far and looks the packet up again with that number in its key (`recirc_id`); the miss of that
//! look-up is translated from where the first translation stopped.
//!
//! Equal states share one number while a cached flow holds it, and for some time after that. A repeated translation therefore
//! yields the same actions, and remains a function of its input.
//!
//! States that wait for a controller have a quota of their own: a controller that never answers displaces only such states,
//! and none of a packet that is recirculated by the datapath.

use crate::bits::Value;
use crate::ct::connection_bits;
use crate::mirror::Mirrored;
use crate::model::{BridgeId, Network};
use crate::pipeline::Frame;
use crate::trace::{NodeKind, Tracing};
use crate::translate::{Xlate, drop_verdict};
use crate::verdict::{Dependency, TranslationError, Verdict, WrittenWord};
use base::{Millis, PortNo};
use dpif::{DpAction, HashKind};
use flow::{Field, FlowKey, Loc, layout};
use openflow::{Action, ControllerAction, GroupKind, Subfield};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

/// Time for which an unused state is kept, in milliseconds: packets may be in flight with its number.
const RETENTION_MS: u64 = 10_000;
/// The same time for states whose packet a controller may have.
const PAUSED_RETENTION_MS: u64 = 3_600_000;
/// Maximum number and size of the states that do not wait for a controller.
const FROZEN_MAX: Quota = Quota { n: if cfg!(test) { 1 << 10 } else { 1 << 20 }, bytes: 1 << 30 };
/// Maximum number and size of the states that wait for a controller: more than the default limit of cached flows.
const PAUSED_MAX: Quota = Quota { n: if cfg!(test) { 1 << 6 } else { 1 << 18 }, bytes: 256 << 20 };
/// Number of states examined to find an unused one to evict.
const EVICTION_CANDIDATES: usize = 16;
/// Number of states swept under one lock: translations wait for it.
const SWEEP_BATCH: usize = 256;
/// Number of states that one sweep visits at most; the next one continues.
const SWEEP_MAX: usize = 1 << 14;

/// The frozen state of a translation.
#[derive(Clone, PartialEq, Debug)]
pub struct Frozen {
    /// The bridge in which it resumes.
    pub bridge: BridgeId,
    /// Written words of the key, apart from headers.
    pub(crate) words: Vec<WrittenWord>,
    pub(crate) stack: Vec<Value>,
    /// Nested lists of actions, the outermost first.
    pub(crate) lists: Vec<FrozenList>,
    /// The table in which it resumes if there are no lists.
    pub(crate) table: Option<u8>,
    pub(crate) action_set: Vec<Action>,
    pub(crate) in_action_set: bool,
    pub(crate) in_group: bool,
    pub(crate) packet_out: bool,
    /// The datapath computes the packet's hash before it resumes.
    pub(crate) hashed: bool,
    /// The connection tracker sees the packet before it resumes.
    pub(crate) tracked: bool,
    /// The mirrors that the packet does not go to when it resumes.
    pub(crate) mirrored: Mirrored,
    /// True if it waits for a controller to resume the packet.
    pub paused: bool,
    /// The bond by a member of which the packet leaves when it resumes, by its hash; nothing else is left to do then.
    pub(crate) bond: Option<Arc<str>>,
}

/// The remaining actions of a list.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct FrozenList {
    pub(crate) actions: Arc<[Action]>,
    pub(crate) next: usize,
    /// The state of the pipeline for the list.
    pub(crate) context: ListContext,
    /// True if the list belongs to a rule, false for actions that the caller passed.
    pub(crate) is_rule: bool,
}

/// The state of the pipeline that belongs to a list of actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListContext {
    pub(crate) table: u8,
    pub(crate) depth: u32,
    pub(crate) cookie: u64,
    pub(crate) is_miss: bool,
}

/// A frozen state and its number.
#[derive(Debug)]
pub struct RecircState {
    /// Its `recirc_id`, never 0.
    pub id: u32,
    /// The state.
    pub frozen: Frozen,
}

impl PartialEq for RecircState {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for RecircState {}

impl Hash for RecircState {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

/// All frozen states that may be needed.
#[derive(Debug, Default)]
pub struct FrozenTable(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    by_id: BTreeMap<u32, Entry>,
    /// The number at which the next sweep begins.
    swept: u32,
    by_hash: HashMap<u64, SmallVec<[u32; 1]>>,
    hasher: foldhash::fast::RandomState,
    last: u32,
    /// The use of the two quotas: states that the datapath resumes, and states that a controller resumes.
    taken: [Quota; 2],
    /// The states that wait for a controller, by the time of their last use.
    paused: BTreeMap<u64, u32>,
    last_use: u64,
}

/// A number of states, and their approximate size in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Quota {
    n: usize,
    bytes: usize,
}

impl Quota {
    fn has_room_for(self, bytes: usize, max: Self) -> bool {
        self.n < max.n && self.bytes.saturating_add(bytes) <= max.bytes
    }
}

#[derive(Debug)]
struct Entry {
    state: Arc<RecircState>,
    hash: u64,
    /// The key in `Inner::paused`, if it waits for a controller.
    used: u64,
    /// The time since which no flow holds it.
    idle: Option<Millis>,
}

impl FrozenTable {
    /// Returns the state with this number.
    pub fn get(&self, id: u32) -> Option<Arc<RecircState>> {
        self.0.lock().touch(id)
    }

    /// Stores a state and returns it with its number; `None` if there are too many. A state that waits for a controller evicts
    /// the least recently used state of its kind.
    pub fn store(&self, frozen: Frozen) -> Option<Arc<RecircState>> {
        let mut inner = self.0.lock();
        let inner = &mut *inner;
        let hash = hash_of(&frozen, &inner.hasher);
        let ids = inner.by_hash.get(&hash).into_iter().flatten();
        let same = ids.copied().find(|id| inner.by_id.get(id).is_some_and(|e| e.state.frozen == frozen));
        if let Some(id) = same {
            return inner.touch(id);
        }
        if !inner.has_room_for(&frozen) {
            return None;
        }
        loop {
            inner.last = inner.last.wrapping_add(1).max(1);
            if !inner.by_id.contains_key(&inner.last) {
                break;
            }
        }
        Some(inner.insert(frozen, hash))
    }

    /// Removes states that were unused for [`RETENTION_MS`], or [`PAUSED_RETENTION_MS`]. To be called periodically.
    pub fn sweep(&self, now: Millis) {
        self.sweep_some(now, SWEEP_MAX);
    }

    /// Sweeps `most` states at most: the next call continues after them.
    fn sweep_some(&self, now: Millis, most: usize) {
        let ids: Vec<u32> = {
            let mut inner = self.0.lock();
            let next: Vec<u32> = inner.by_id.range(inner.swept..).map(|(id, _)| *id).take(most).collect();
            // After the last state the sweep starts over.
            inner.swept = next.last().filter(|_| next.len() == most).and_then(|id| id.checked_add(1)).unwrap_or(0);
            next
        };
        for ids in ids.chunks(SWEEP_BATCH) {
            // Dropped after the lock is released.
            let mut forgotten = Vec::new();
            let mut inner = self.0.lock();
            forgotten.extend(ids.iter().filter_map(|id| inner.forget(*id, now)));
        }
    }

    /// The number of states.
    pub fn len(&self) -> usize {
        self.0.lock().by_id.len()
    }

    /// Returns true if there are no states.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Inner {
    /// Returns the state with this number, and marks it as used.
    fn touch(&mut self, id: u32) -> Option<Arc<RecircState>> {
        let entry = self.by_id.get_mut(&id)?;
        entry.idle = None;
        if entry.state.frozen.paused {
            self.last_use += 1;
            self.paused.remove(&entry.used);
            self.paused.insert(self.last_use, id);
            entry.used = self.last_use;
        }
        Some(Arc::clone(&entry.state))
    }

    /// Adds a state under the number `last`, which is free.
    fn insert(&mut self, frozen: Frozen, hash: u64) -> Arc<RecircState> {
        let share = &mut self.taken[usize::from(frozen.paused)];
        share.n += 1;
        share.bytes += frozen.bytes();
        let state = Arc::new(RecircState { id: self.last, frozen });
        self.by_hash.entry(hash).or_default().push(state.id);
        self.by_id.insert(state.id, Entry { state: Arc::clone(&state), hash, used: 0, idle: None });
        _ = self.touch(state.id);
        state
    }

    fn remove(&mut self, id: u32) -> Option<Arc<RecircState>> {
        let Entry { state, hash, used, .. } = self.by_id.remove(&id)?;
        if let Some(ids) = self.by_hash.get_mut(&hash) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_hash.remove(&hash);
            }
        }
        if state.frozen.paused {
            self.paused.remove(&used);
        }
        let share = &mut self.taken[usize::from(state.frozen.paused)];
        share.n -= 1;
        share.bytes -= state.frozen.bytes();
        Some(state)
    }

    /// Returns true if the quota allows one more state. Evicts a state that waits for a controller to make room for another one.
    fn has_room_for(&mut self, frozen: &Frozen) -> bool {
        let bytes = frozen.bytes();
        if !frozen.paused {
            return self.taken[0].has_room_for(bytes, FROZEN_MAX);
        }
        for _ in 0..EVICTION_CANDIDATES {
            if self.taken[1].has_room_for(bytes, PAUSED_MAX) {
                return true;
            }
            let Some(id) = self.paused.first_key_value().map(|(_, id)| *id) else { break };
            // A cached flow holds this state, and sends packets to the controller with its number.
            let in_use = self.by_id.get(&id).is_some_and(|entry| Arc::strong_count(&entry.state) > 1);
            if in_use {
                _ = self.touch(id);
            } else {
                base::coverage!(xlate_paused_evicted);
                self.remove(id);
            }
        }
        let room = self.taken[1].has_room_for(bytes, PAUSED_MAX);
        if !room {
            base::coverage!(xlate_paused_refused);
        }
        room
    }

    /// Removes a state if it was unused for long enough.
    fn forget(&mut self, id: u32, now: Millis) -> Option<Arc<RecircState>> {
        let entry = self.by_id.get_mut(&id)?;
        if Arc::strong_count(&entry.state) > 1 {
            entry.idle = None;
            return None;
        }
        let since = *entry.idle.get_or_insert(now);
        let long = if entry.state.frozen.paused { PAUSED_RETENTION_MS } else { RETENTION_MS };
        if now.since(since) < long {
            return None;
        }
        self.remove(id)
    }
}

impl Frozen {
    /// The approximate memory that the state takes, without parts that it shares with rules.
    fn bytes(&self) -> usize {
        size_of::<Entry>()
            + size_of::<RecircState>()
            + self.words.len() * size_of::<WrittenWord>()
            + self.stack.len() * size_of::<Value>()
            + self.lists.len() * size_of::<FrozenList>()
            + self.action_set.len() * size_of::<Action>()
    }
}

/// Returns a hash that mostly differs for different states: states with equal hashes are compared one by one while
/// translations wait.
fn hash_of(frozen: &Frozen, hasher: &foldhash::fast::RandomState) -> u64 {
    let mut state = hasher.build_hasher();
    let Frozen { bridge, words, stack, lists, table, action_set, .. } = frozen;
    let Frozen { in_action_set, in_group, packet_out, hashed, tracked, mirrored, paused, bond, .. } = frozen;
    (bridge, words, stack, table, action_set, bond).hash(&mut state);
    (in_action_set, in_group, packet_out, hashed, tracked, mirrored, paused).hash(&mut state);
    for FrozenList { actions, next, context, is_rule } in lists {
        (actions.get(*next..), next, context.table, context.cookie, context.is_miss, is_rule).hash(&mut state);
    }
    state.finish()
}

/// Headers of a packet that are unknown until it is parsed again, because an action popped the header before them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unseen {
    /// None: all headers are known.
    Nothing,
    /// The headers after Ethernet.
    Payload,
    /// The Ethernet header and all after it.
    Frame,
}

/// The reason for freezing, which is the datapath's or controller's task before the packet resumes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Freeze {
    /// Parse the headers. All actions after the current one remain.
    Parse,
    /// Compute the packet's hash. The current action remains as well.
    Hash(HashKind, u32),
    /// Wait for a controller to resume the packet.
    Pause(Box<ControllerAction>),
}

impl Freeze {
    /// Returns true if the action that asked for it is executed again.
    pub(crate) fn repeats(&self) -> bool {
        matches!(self, Self::Hash(..))
    }
}

/// Returns the bits of a word of the key that a recirculated packet keeps without having them in its headers.
fn carried_bits(word: usize, connection: bool) -> u64 {
    match word {
        _ if word < layout::DPHASH_ACTSET => u64::MAX,
        _ if connection => connection_bits(word),
        _ => 0,
    }
}

impl Xlate<'_> {
    /// Freezes the remaining actions of `frames`, with the action set if this is the pipeline's own list, and recirculates the
    /// packet.
    pub(crate) fn freeze(&mut self, why: Freeze, mut frames: Vec<Frame<'_>>) {
        self.commit();
        let paused = matches!(why, Freeze::Pause(_));
        let sender = self.list_context();
        let own = self.pos.runs == 1 && !self.pos.in_action_set;
        // As in Open vSwitch, a packet with no action left is looked up again, in the table of the outermost list.
        let done = !paused && frames.iter().all(Frame::is_done);
        let mut lists = Vec::with_capacity(frames.len());
        // The end of a list returns to the state of the list before it.
        while let Some(frame) = frames.pop() {
            let context = self.list_context();
            lists.push(frame.frozen(context));
            self.leave(frame);
        }
        lists.reverse();
        let frozen = Frozen {
            bridge: self.pos.bridge.id,
            words: if paused { self.retained_words() } else { self.carried_words(true) },
            stack: self.pos.stack.clone(),
            table: lists.first().filter(|_| done).map(|list| list.context.table),
            lists: if done { Vec::new() } else { lists },
            action_set: if own { std::mem::take(&mut self.pos.action_set) } else { Vec::new() },
            in_action_set: self.pos.in_action_set,
            in_group: self.pos.is_in_bucket(),
            packet_out: self.pos.packet_out,
            hashed: self.packet.hashed || matches!(why, Freeze::Hash(..)),
            tracked: self.is_tracked(),
            mirrored: self.mirroring.mirrored.clone(),
            paused,
            bond: None,
        };
        let Some(state) = self.net.frozen.store(frozen) else {
            return self.fail(TranslationError::Recirculation);
        };
        match why {
            Freeze::Pause(action) => {
                let context = self.list_context();
                self.set_list_context(sender);
                self.send_upcall(&action, state.id);
                self.set_list_context(context);
            }
            Freeze::Parse => self.emit(DpAction::Recirc(state.id)),
            Freeze::Hash(kind, basis) => {
                self.emit(DpAction::Hash(kind, basis));
                self.emit(DpAction::Recirc(state.id));
            }
        }
        self.out.dependencies.push(Dependency::Frozen(state));
    }

    /// Returns the number of a state for a packet that goes to controllers from here, and that nothing resumes; 0 if there is
    /// no room. Open vSwitch numbers these packets as it numbers others, and shows the number in the action.
    pub(crate) fn freeze_sender(&mut self) -> u32 {
        let frozen = Frozen {
            bridge: self.pos.bridge.id,
            words: Vec::new(),
            stack: Vec::new(),
            lists: Vec::new(),
            table: Some(self.pos.table),
            action_set: Vec::new(),
            in_action_set: self.pos.in_action_set,
            in_group: self.pos.is_in_bucket(),
            packet_out: self.pos.packet_out,
            hashed: false,
            tracked: false,
            mirrored: Mirrored::default(),
            paused: false,
            bond: None,
        };
        let Some(state) = self.net.frozen.store(frozen) else { return 0 };
        let id = state.id;
        if !self.out.dependencies.contains(&Dependency::Frozen(Arc::clone(&state))) {
            self.out.dependencies.push(Dependency::Frozen(state));
        }
        id
    }

    /// Returns the written words that a recirculated packet keeps, with its `connection` unless it comes from the tracker.
    pub(crate) fn carried_words(&self, connection: bool) -> Vec<WrittenWord> {
        let written = self.out.reads.written_words().map(|(word, bits)| (word, bits & carried_bits(word, connection)));
        let mut words: Vec<WrittenWord> = written
            .map(|(word, bits)| (word as u8, bits, self.packet.key.0[word] & bits))
            .filter(|(word, bits, value)| {
                *bits != 0 && (*value != 0 || !layout::REGS_AND_METADATA.contains(&usize::from(*word)))
            })
            .collect();
        words.push((layout::PORTS as u8, u64::from(u32::MAX) << 32, u64::from(self.packet.key.in_port().0) << 32));
        words
    }

    /// Returns the metadata that a controller does not return with the packet.
    fn retained_words(&self) -> Vec<WrittenWord> {
        let bits =
            FlowKey::mask_of(Field::SkbPriority).0[layout::SKB_PKT] & self.out.reads.written().0[layout::SKB_PKT];
        let word = (layout::SKB_PKT as u8, bits, self.packet.key.0[layout::SKB_PKT] & bits);
        if bits == 0 { Vec::new() } else { vec![word] }
    }

    /// Restores words of the packet's metadata.
    fn restore_words(&mut self, words: &[WrittenWord]) {
        let mut mask = FlowKey::ZERO;
        for (word, bits, value) in words {
            let word = usize::from(*word);
            for key in [&mut self.packet.key, &mut self.packet.base] {
                key.0[word] = key.0[word] & !bits | value;
            }
            mask.0[word] = *bits;
        }
        self.out.reads.write_mask(&mask);
    }
}

/// Resumes the state that the `recirc_id` in a packet's key names.
pub(crate) fn resume(net: &Network, key: &FlowKey, trace: Tracing) -> Verdict {
    // The datapath must not resume a state that waits for a controller.
    match net.frozen.get(key.get(Field::RecircId) as u32).filter(|state| !state.frozen.paused) {
        Some(state) => resume_state(net, key, &state, trace),
        None => drop_verdict(key, TranslationError::Recirculation, trace),
    }
}

/// Resumes a paused state with the packet that a controller returned. `key` is that of the packet, with metadata and ingress
/// port of the bridge as the controller sent them.
pub fn resume_paused(net: &Network, key: &FlowKey, state: &Arc<RecircState>) -> Verdict {
    resume_state(net, key, state, Tracing::Off)
}

fn resume_state(net: &Network, key: &FlowKey, state: &Arc<RecircState>, trace: Tracing) -> Verdict {
    let Some(bridge) = net.bridges.get(&state.frozen.bridge) else {
        return drop_verdict(key, TranslationError::Recirculation, trace);
    };
    Xlate::work(net, bridge, key, trace, |x| x.thaw(state))
}

impl Xlate<'_> {
    /// Continues the frozen state.
    fn thaw(&mut self, state: &Arc<RecircState>) {
        let (frozen, bridge) = (&state.frozen, self.pos.bridge);
        // The number mostly implies it, and keys are read accordingly.
        self.out.reads.note_field(Field::PacketType);
        self.restore_words(&frozen.words);
        self.pos.stack.clone_from(&frozen.stack);
        self.pos.action_set.clone_from(&frozen.action_set);
        self.update_actset_output();
        self.pos.in_action_set = frozen.in_action_set;
        self.pos.bucket_level = frozen.in_group.then_some(self.pos.level);
        self.pos.packet_out = frozen.packet_out;
        (self.packet.hashed, self.packet.tracked) = (frozen.hashed, Some(frozen.tracked));
        self.out.dependencies.push(Dependency::Bridge(bridge.id));
        self.out.dependencies.push(Dependency::Frozen(Arc::clone(state)));
        self.tracer.enter(NodeKind::Bridge, || format!("bridge(\"{}\")", bridge.name));
        self.tracer.note(NodeKind::Action, || "thaw".into());
        if self.tracer.is_on() {
            self.trace_resumed(frozen);
        }
        self.mirroring.mirrored = frozen.mirrored.clone();
        match (frozen.table, &frozen.bond) {
            (Some(table), _) => {
                self.mirroring.at_ingress = bridge.mirrors.is_some();
                self.begin_in(table);
            }
            // The mirrors of the ingress port had their copies before.
            (None, Some(bond)) => self.output_hashed(bond),
            (None, None) if self.mirror_ingress() => self.run_frozen(&frozen.lists),
            (None, None) => {}
        }
        self.pos.in_action_set = false;
        match frozen.table {
            Some(_) => self.do_action_set(),
            // The trace shows it behind the tables that the lists led to.
            None => self.execute_set(),
        }
        self.tracer.leave();
    }

    /// Returns true if an action needs headers that are unknown until the packet is parsed again. (The actions that do not
    /// need them after `pop_mpls` are those of Open vSwitch.)
    pub(crate) fn must_recirculate_before(&mut self, action: &Action) -> bool {
        let frame = match self.packet.unseen {
            Unseen::Nothing => return false,
            Unseen::Payload => false,
            Unseen::Frame => true,
        };
        match action {
            Action::Output { port, .. } => *port == PortNo::TABLE || frame && *port == PortNo::NORMAL,
            // The register may hold FLOOD or NORMAL, which need the frame.
            Action::OutputReg { .. } => frame,
            Action::OutputTrunc { .. } | Action::Enqueue { .. } => false,
            Action::SetTunnel { .. } | Action::SetQueue(_) | Action::PopQueue => false,
            Action::SetTunOption(_) | Action::DeleteField(_) => false,
            Action::SetVlanVid { .. }
            | Action::SetVlanPcp { .. }
            | Action::PopVlan
            | Action::PushVlan(_)
            | Action::SetEthSrc(_)
            | Action::SetEthDst(_) => frame,
            Action::SetField { field, .. } | Action::RegLoad { dst: Subfield { field, .. }, .. } => {
                let known = if frame { layout::ETH_DST } else { layout::MPLS01 };
                !matches!(field.info().loc, Loc::Bits { word, .. } if usize::from(word) < known)
            }
            // Its buckets are checked in their turn.
            Action::Group(id) => self.find_group(*id).is_some_and(|g| g.kind == GroupKind::Select),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frozen(bridge: BridgeId, value: u64) -> Frozen {
        let context = ListContext { table: 3, depth: 0, cookie: 0, is_miss: false };
        let list = FrozenList { actions: [Action::PopVlan, Action::Exit].into(), next: 1, context, is_rule: true };
        Frozen {
            bridge,
            words: vec![(40, u64::MAX, value)],
            stack: vec![7.into()],
            lists: vec![list],
            table: None,
            action_set: vec![Action::PopVlan],
            in_action_set: false,
            in_group: false,
            packet_out: false,
            hashed: false,
            tracked: false,
            mirrored: Mirrored::default(),
            paused: false,
            bond: None,
        }
    }

    #[test]
    fn equal_states_share_a_number_until_they_expire() {
        let table = FrozenTable::default();
        let first = table.store(frozen(1, 5)).expect("room");
        let other = table.store(frozen(1, 6)).expect("room").id;
        assert_eq!(table.store(frozen(1, 5)).map(|state| state.id), Some(first.id));
        let mut differing = frozen(1, 5);
        differing.lists[0].actions = [Action::PopVlan, Action::PopVlan].into();
        let third = table.store(differing).expect("room").id;
        assert!(first.id != 0 && other != first.id && ![other, first.id].contains(&third));
        table.sweep(Millis(1000));
        table.sweep(Millis(1000 + RETENTION_MS - 1));
        assert_eq!(table.len(), 3);
        assert!(table.get(third).is_some(), "and is needed once more");
        table.sweep(Millis(1000 + RETENTION_MS));
        assert_eq!((table.len(), table.get(other)), (2, None));
        table.sweep(Millis(1000 + 2 * RETENTION_MS));
        assert_eq!((table.len(), table.get(first.id)), (1, Some(Arc::clone(&first))));
        drop(first);
        assert_eq!(
            table.store(frozen(1, 6)).map(|state| state.id),
            Some(third + 1),
            "numbers are not used at once again"
        );
    }

    #[test]
    fn a_sweep_visits_some_states_and_the_next_one_continues() {
        let table = FrozenTable::default();
        for value in 0..10 {
            assert!(table.store(frozen(1, value)).is_some());
        }
        let sweep_all = |now| {
            (0..3)
                .map(|_| {
                    table.sweep_some(Millis(now), 4);
                    table.len()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(sweep_all(1000), [10, 10, 10]);
        assert_eq!(sweep_all(1000 + RETENTION_MS), [6, 2, 0]);
    }

    #[test]
    fn a_state_beyond_the_quota_leaves_nothing_behind() {
        let table = FrozenTable::default();
        for value in 0..2 * FROZEN_MAX.n as u64 {
            assert_eq!(table.store(frozen(1, value)).is_some(), value < FROZEN_MAX.n as u64);
        }
        assert!(table.store(frozen(1, 0)).is_some(), "it is there");
        assert_eq!(table.0.lock().by_hash.len(), FROZEN_MAX.n);
        table.sweep(Millis(0));
        table.sweep(Millis(RETENTION_MS));
        let inner = table.0.lock();
        assert!(inner.by_id.is_empty() && inner.by_hash.is_empty() && inner.taken[0].bytes == 0);
    }

    #[test]
    fn a_controller_that_never_answers_displaces_paused_states_only() {
        let paused = |value| Frozen { paused: true, ..frozen(1, value) };
        let max = PAUSED_MAX.n as u64;
        let table = FrozenTable::default();
        let held = table.store(paused(0)).expect("room");
        let ids: Vec<u32> = (1..max).map(|value| table.store(paused(value)).expect("room").id).collect();
        assert_eq!(table.get(ids[0]).map(|state| state.id), Some(ids[0]), "and is used last");
        let more: Vec<u32> = (max..2 * max - 2).map(|value| table.store(paused(value)).expect("room").id).collect();
        assert_eq!(table.len(), PAUSED_MAX.n);
        // A cached flow holds the first state.
        assert!(table.get(held.id).is_some() && table.get(ids[0]).is_some());
        assert!(ids[1..].iter().all(|id| table.get(*id).is_none()), "the oldest give way");
        assert!(more.iter().all(|id| table.get(*id).is_some()));
        // There is still room for states that the datapath resumes.
        assert!((0..FROZEN_MAX.n as u64).all(|value| table.store(frozen(1, value)).is_some()));
        // If flows hold all states, none is evicted.
        let all: Vec<_> = (0..max).filter_map(|value| table.store(paused(value))).collect();
        assert_eq!(all.len(), PAUSED_MAX.n);
        assert!(table.store(paused(3 * max)).is_none());
        drop((all, held));
        assert!(table.store(paused(3 * max)).is_some());
        table.sweep(Millis(0));
        table.sweep(Millis(PAUSED_RETENTION_MS));
        let inner = table.0.lock();
        assert!(inner.by_id.is_empty() && inner.paused.is_empty());
        assert!(inner.taken.iter().all(|share| (share.n, share.bytes) == (0, 0)));
    }

    #[test]
    fn the_quota_limits_the_size_of_states_too() {
        let long = |value| Frozen { paused: true, stack: vec![Value::default(); 1 << 17], ..frozen(1, value) };
        let each = long(0).bytes();
        let table = FrozenTable::default();
        for value in 0..40 {
            assert!(table.store(long(value)).is_some());
        }
        let taken = table.0.lock().taken[1];
        assert!(taken.bytes <= PAUSED_MAX.bytes && taken.n == (PAUSED_MAX.bytes / each).min(40));
    }

    #[test]
    fn states_that_differ_in_a_number_have_different_hashes() {
        let table = FrozenTable::default();
        for port in 0..FROZEN_MAX.n as u32 {
            let output = Action::Output { port: PortNo(port), max_len: 0 };
            let mut frozen = frozen(1, 5);
            frozen.lists[0].actions = [Action::PopVlan, output].into();
            assert!(table.store(frozen).is_some());
        }
        assert!(table.0.lock().by_hash.values().all(|ids| ids.len() <= 2));
    }
}
