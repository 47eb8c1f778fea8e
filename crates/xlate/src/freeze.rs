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
//! Remainders that wait for a controller have a share of their own: one that never answers costs others like it, and
//! no packet that only comes back from the datapath.

use crate::bits::Value;
use crate::ct::connection_bits;
use crate::model::{BridgeId, Network};
use crate::pipeline::Frame;
use crate::trace::Kind;
use crate::translate::{Xlate, drop_verdict};
use crate::verdict::{Dependency, TranslationError, Verdict, WrittenWord};
use base::{Millis, PortNo};
use dpif::{DpAction, HashKind};
use flow::{Field, FlowKey, Loc, layout};
use openflow::{Action, ControllerAction, GroupKind};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

/// Time for which an unused state is kept, in milliseconds: packets may be in flight with its number.
const KEPT_MS: u64 = 10_000;
/// The same if a controller may have the packet.
const PAUSED_MS: u64 = 3_600_000;
/// Maximum number and size of the states that do not wait for a controller.
const FROZEN_MAX: Quota = Quota { n: if cfg!(test) { 1 << 10 } else { 1 << 20 }, bytes: 1 << 30 };
/// The same of states that wait for a controller: more than the default limit of cached flows.
const PAUSED_MAX: Quota = Quota { n: if cfg!(test) { 1 << 6 } else { 1 << 18 }, bytes: 256 << 20 };
/// Number of states examined to find an unused one to evict.
const TRIED_FOR_ROOM: usize = 16;
/// Number of states swept under one lock: translations wait for it.
const SWEPT_AT_ONCE: usize = 256;
/// Number of states that one sweep visits at most; the next one continues.
const SWEPT_MAX: usize = 1 << 14;

/// What is left of a translation.
#[derive(Clone, PartialEq, Debug)]
pub struct Frozen {
    /// Where it goes on.
    pub bridge: BridgeId,
    /// What is known of the packet beside its headers: words of the key that were written.
    pub(crate) words: Vec<WrittenWord>,
    pub(crate) stack: Vec<Value>,
    /// Lists of actions inside of each other, the outermost first.
    pub(crate) lists: Vec<FrozenList>,
    /// The table that it goes on in, if there are no lists.
    pub(crate) table: Option<u8>,
    pub(crate) action_set: Vec<Action>,
    pub(crate) in_action_set: bool,
    pub(crate) in_group: bool,
    pub(crate) packet_out: bool,
    /// The datapath has computed its hash by then.
    pub(crate) hashed: bool,
    /// The packet is known to the connection tracker by then.
    pub(crate) tracked: bool,
    /// A controller has the packet.
    pub paused: bool,
}

/// The rest of a list of actions.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct FrozenList {
    pub(crate) actions: Arc<[Action]>,
    pub(crate) next: usize,
    /// In whose name it is carried out.
    pub(crate) place: Place,
    /// It is a rule's, and not one that was given.
    pub(crate) of_rule: bool,
}

/// Where a translation is: what a list of actions has to itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) table: u8,
    pub(crate) depth: u32,
    pub(crate) cookie: u64,
    pub(crate) is_miss: bool,
}

/// A remainder and its number.
#[derive(Debug)]
pub struct Kept {
    /// Its `recirc_id`, never 0.
    pub id: u32,
    /// What is left.
    pub frozen: Frozen,
}

impl PartialEq for Kept {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for Kept {}

impl Hash for Kept {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

/// All remainders that may be needed.
#[derive(Debug, Default)]
pub struct FrozenTable(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    by_id: BTreeMap<u32, Entry>,
    /// From which number on the next sweep looks.
    swept: u32,
    by_hash: HashMap<u64, SmallVec<[u32; 1]>>,
    hasher: foldhash::fast::RandomState,
    last: u32,
    /// Those that come back from the datapath, and those that a controller has, together.
    taken: [Quota; 2],
    /// Those that a controller has, by when they were last used.
    paused: BTreeMap<u64, u32>,
    last_use: u64,
}

/// How many remainders, and about how many bytes they take.
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
    kept: Arc<Kept>,
    hash: u64,
    /// The key in `Inner::paused`, if a controller has it.
    used: u64,
    /// The time since which it is unused.
    idle: Option<Millis>,
}

impl FrozenTable {
    /// The remainder of this number.
    pub fn get(&self, id: u32) -> Option<Arc<Kept>> {
        self.0.lock().touch(id)
    }

    /// The number of this remainder; `None` if there are too many. Of those that a controller has, the one that was not used
    /// for longest gives way to it.
    pub fn keep(&self, frozen: Frozen) -> Option<Arc<Kept>> {
        let mut inner = self.0.lock();
        let inner = &mut *inner;
        let hash = hash_of(&frozen, &inner.hasher);
        let ids = inner.by_hash.get(&hash).into_iter().flatten();
        let same = ids.copied().find(|id| inner.by_id.get(id).is_some_and(|e| e.kept.frozen == frozen));
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

    /// Removes states that were unused for [`KEPT_MS`], or [`PAUSED_MS`]. To be called periodically.
    pub fn sweep(&self, now: Millis) {
        self.sweep_some(now, SWEPT_MAX);
    }

    /// The same of so many at most: the next call goes on behind them.
    fn sweep_some(&self, now: Millis, most: usize) {
        let ids: Vec<u32> = {
            let mut inner = self.0.lock();
            let next: Vec<u32> = inner.by_id.range(inner.swept..).map(|(id, _)| *id).take(most).collect();
            // Behind the last one it begins anew.
            inner.swept = next.last().filter(|_| next.len() == most).and_then(|id| id.checked_add(1)).unwrap_or(0);
            next
        };
        for ids in ids.chunks(SWEPT_AT_ONCE) {
            // Dropped after the lock is released.
            let mut forgotten = Vec::new();
            let mut inner = self.0.lock();
            forgotten.extend(ids.iter().filter_map(|id| inner.forget(*id, now)));
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.lock().by_id.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Inner {
    /// The remainder of this number, which is in use.
    fn touch(&mut self, id: u32) -> Option<Arc<Kept>> {
        let entry = self.by_id.get_mut(&id)?;
        entry.idle = None;
        if entry.kept.frozen.paused {
            self.last_use += 1;
            self.paused.remove(&entry.used);
            self.paused.insert(self.last_use, id);
            entry.used = self.last_use;
        }
        Some(Arc::clone(&entry.kept))
    }

    /// Adds a remainder under the number `last`, which is free.
    fn insert(&mut self, frozen: Frozen, hash: u64) -> Arc<Kept> {
        let share = &mut self.taken[usize::from(frozen.paused)];
        share.n += 1;
        share.bytes += frozen.bytes();
        let kept = Arc::new(Kept { id: self.last, frozen });
        self.by_hash.entry(hash).or_default().push(kept.id);
        self.by_id.insert(kept.id, Entry { kept: Arc::clone(&kept), hash, used: 0, idle: None });
        _ = self.touch(kept.id);
        kept
    }

    fn remove(&mut self, id: u32) -> Option<Arc<Kept>> {
        let Entry { kept, hash, used, .. } = self.by_id.remove(&id)?;
        if let Some(ids) = self.by_hash.get_mut(&hash) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_hash.remove(&hash);
            }
        }
        if kept.frozen.paused {
            self.paused.remove(&used);
        }
        let share = &mut self.taken[usize::from(kept.frozen.paused)];
        share.n -= 1;
        share.bytes -= kept.frozen.bytes();
        Some(kept)
    }

    /// Whether there is room for one more, if need be in the place of others that wait for a controller as it does.
    fn has_room_for(&mut self, frozen: &Frozen) -> bool {
        let bytes = frozen.bytes();
        if !frozen.paused {
            return self.taken[0].has_room_for(bytes, FROZEN_MAX);
        }
        for _ in 0..TRIED_FOR_ROOM {
            if self.taken[1].has_room_for(bytes, PAUSED_MAX) {
                return true;
            }
            let Some(id) = self.paused.first_key_value().map(|(_, id)| *id) else { break };
            // A cached flow that gives out the number goes on doing so.
            let in_use = self.by_id.get(&id).is_some_and(|entry| Arc::strong_count(&entry.kept) > 1);
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
    fn forget(&mut self, id: u32, now: Millis) -> Option<Arc<Kept>> {
        let entry = self.by_id.get_mut(&id)?;
        if Arc::strong_count(&entry.kept) > 1 {
            entry.idle = None;
            return None;
        }
        let since = *entry.idle.get_or_insert(now);
        let long = if entry.kept.frozen.paused { PAUSED_MS } else { KEPT_MS };
        if now.since(since) < long {
            return None;
        }
        self.remove(id)
    }
}

impl Frozen {
    /// About how much memory it takes, what it shares with rules aside.
    fn bytes(&self) -> usize {
        size_of::<Entry>()
            + size_of::<Kept>()
            + self.words.len() * size_of::<WrittenWord>()
            + self.stack.len() * size_of::<Value>()
            + self.lists.len() * size_of::<FrozenList>()
            + self.action_set.len() * size_of::<Action>()
    }
}

/// What differs mostly has another: remainders of one hash are compared one by one, and translations wait for that.
fn hash_of(frozen: &Frozen, hasher: &foldhash::fast::RandomState) -> u64 {
    let mut state = hasher.build_hasher();
    let Frozen { bridge, words, stack, lists, table, action_set, .. } = frozen;
    let Frozen { in_action_set, in_group, packet_out, hashed, tracked, paused, .. } = frozen;
    (bridge, words, stack, table, action_set).hash(&mut state);
    (in_action_set, in_group, packet_out, hashed, tracked, paused).hash(&mut state);
    for FrozenList { actions, next, place, of_rule } in lists {
        (actions.get(*next..), next, place.table, place.cookie, place.is_miss, of_rule).hash(&mut state);
    }
    state.finish()
}

/// Headers of a packet that are unknown until it is parsed again, because an action popped the header before them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unseen {
    /// All is known.
    Nothing,
    /// What follows the Ethernet header.
    Payload,
    /// The Ethernet header too.
    Frame,
}

/// What is to be done before the packet comes back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Freeze {
    /// Nothing more than look into it. All that stands behind the action is left.
    Look,
    /// Compute its hash. The action itself is left.
    Hash(HashKind, u32),
    /// Wait for a controller to let it go on.
    Pause(Box<ControllerAction>),
}

impl Freeze {
    /// Whether the action that asks for it is to be carried out again.
    pub(crate) fn repeats(&self) -> bool {
        matches!(self, Self::Hash(..))
    }
}

/// Bits of a word of the key that a recirculated packet keeps, and that do not follow from its headers.
fn carried_bits(word: usize, connection: bool) -> u64 {
    match word {
        _ if word < layout::DPHASH_ACTSET => u64::MAX,
        _ if connection => connection_bits(word),
        _ => 0,
    }
}

impl Xlate<'_> {
    /// Leaves what `frames` have left, and the action set if this is the pipeline's own list, to when the packet has
    /// come back.
    pub(crate) fn freeze(&mut self, why: Freeze, mut frames: Vec<Frame<'_>>) {
        self.commit();
        let paused = matches!(why, Freeze::Pause(_));
        let sender = self.place();
        let own = self.pos.runs == 1 && !self.pos.in_action_set;
        let mut lists = Vec::with_capacity(frames.len());
        // As the last list ends, we are where the one before is.
        while let Some(frame) = frames.pop() {
            let place = self.place();
            lists.push(frame.frozen(place));
            self.leave(frame);
        }
        lists.reverse();
        let frozen = Frozen {
            bridge: self.pos.bridge.id,
            words: if paused { self.retained_words() } else { self.carried_words(true) },
            stack: self.pos.stack.clone(),
            lists,
            table: None,
            action_set: if own { std::mem::take(&mut self.pos.action_set) } else { Vec::new() },
            in_action_set: self.pos.in_action_set,
            in_group: self.pos.in_group,
            packet_out: self.pos.packet_out,
            hashed: self.packet.hashed || matches!(why, Freeze::Hash(..)),
            tracked: self.is_tracked(),
            paused,
        };
        let Some(kept) = self.net.frozen.keep(frozen) else {
            return self.fail(TranslationError::Recirculation);
        };
        match why {
            Freeze::Pause(action) => {
                let here = self.place();
                self.set_place(sender);
                self.send_upcall(&action, kept.id);
                self.set_place(here);
            }
            Freeze::Look => self.emit(DpAction::Recirc(kept.id)),
            Freeze::Hash(kind, basis) => {
                self.emit(DpAction::Hash(kind, basis));
                self.emit(DpAction::Recirc(kept.id));
            }
        }
        self.out.dependencies.push(Dependency::Frozen(kept));
    }

    /// What was written of a packet's `connection` goes along unless it comes back from the tracker.
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

    /// What a controller does not hand back with the packet.
    fn retained_words(&self) -> Vec<WrittenWord> {
        let bits =
            FlowKey::mask_of(Field::SkbPriority).0[layout::SKB_PKT] & self.out.reads.written().0[layout::SKB_PKT];
        let word = (layout::SKB_PKT as u8, bits, self.packet.key.0[layout::SKB_PKT] & bits);
        if bits == 0 { Vec::new() } else { vec![word] }
    }

    /// What takes the place of the packet's own metadata.
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

/// Goes on with what was left under the number in a packet's key.
pub(crate) fn resume(net: &Network, key: &FlowKey, trace: bool) -> Verdict {
    // One that waits for a controller is not the datapath's to go on with.
    match net.frozen.get(key.get(Field::RecircId) as u32).filter(|kept| !kept.frozen.paused) {
        Some(kept) => go_on(net, key, &kept, trace),
        None => drop_verdict(key, TranslationError::Recirculation, trace),
    }
}

/// Goes on with what was left when a controller was sent the packet that it hands back. `key` is that of the packet, with
/// metadata and ingress port of the bridge as the controller has them.
pub fn resume_paused(net: &Network, key: &FlowKey, kept: &Arc<Kept>) -> Verdict {
    go_on(net, key, kept, false)
}

fn go_on(net: &Network, key: &FlowKey, kept: &Arc<Kept>, trace: bool) -> Verdict {
    let Some(bridge) = net.bridges.get(&kept.frozen.bridge) else {
        return drop_verdict(key, TranslationError::Recirculation, trace);
    };
    Xlate::work(net, bridge, key, trace, |x| x.thaw(kept))
}

impl Xlate<'_> {
    /// Goes on with what was left.
    fn thaw(&mut self, kept: &Arc<Kept>) {
        let (frozen, bridge) = (&kept.frozen, self.pos.bridge);
        // It follows from the number, mostly; keys are read accordingly.
        self.out.reads.note_field(Field::PacketType);
        self.restore_words(&frozen.words);
        self.pos.stack.clone_from(&frozen.stack);
        self.pos.action_set.clone_from(&frozen.action_set);
        self.update_actset_output();
        (self.pos.in_action_set, self.pos.in_group) = (frozen.in_action_set, frozen.in_group);
        self.pos.packet_out = frozen.packet_out;
        (self.packet.hashed, self.packet.tracked) = (frozen.hashed, Some(frozen.tracked));
        self.out.dependencies.push(Dependency::Bridge(bridge.id));
        self.out.dependencies.push(Dependency::Frozen(Arc::clone(kept)));
        self.tracer.enter(Kind::Bridge, || format!("bridge(\"{}\")", bridge.name));
        self.tracer.note(Kind::Action, || "thaw".into());
        if let Some(table) = frozen.table.or(frozen.lists.last().map(|list| list.place.table)) {
            self.tracer.note(Kind::Action, || format!("    Resuming from table {table}"));
        }
        match frozen.table {
            Some(table) => self.begin_in(table),
            None => self.run_frozen(&frozen.lists),
        }
        self.pos.in_action_set = false;
        self.do_action_set();
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
            // The register may hold a part of the frame, or name NORMAL.
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
            Action::SetField { field, .. } => {
                let known = if frame { layout::ETH_DST } else { layout::MPLS01 };
                !matches!(field.info().loc, Loc::Bits { word, .. } if usize::from(word) < known)
            }
            // What is in its buckets has its own turn.
            Action::Group(id) => self.find_group(*id).is_some_and(|g| g.kind == GroupKind::Select),
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frozen(bridge: BridgeId, value: u64) -> Frozen {
        let place = Place { table: 3, depth: 0, cookie: 0, is_miss: false };
        let list = FrozenList { actions: [Action::PopVlan, Action::Exit].into(), next: 1, place, of_rule: true };
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
            paused: false,
        }
    }

    #[test]
    fn the_same_has_the_same_number_until_it_is_forgotten() {
        let table = FrozenTable::default();
        let first = table.keep(frozen(1, 5)).expect("room");
        let other = table.keep(frozen(1, 6)).expect("room").id;
        assert_eq!(table.keep(frozen(1, 5)).map(|kept| kept.id), Some(first.id));
        let mut differing = frozen(1, 5);
        differing.lists[0].actions = [Action::PopVlan, Action::PopVlan].into();
        let third = table.keep(differing).expect("room").id;
        assert!(first.id != 0 && other != first.id && ![other, first.id].contains(&third));
        table.sweep(Millis(1000));
        table.sweep(Millis(1000 + KEPT_MS - 1));
        assert_eq!(table.len(), 3);
        assert!(table.get(third).is_some(), "and is needed once more");
        table.sweep(Millis(1000 + KEPT_MS));
        assert_eq!((table.len(), table.get(other)), (2, None));
        table.sweep(Millis(1000 + 2 * KEPT_MS));
        assert_eq!((table.len(), table.get(first.id)), (1, Some(Arc::clone(&first))));
        drop(first);
        assert_eq!(table.keep(frozen(1, 6)).map(|kept| kept.id), Some(third + 1), "numbers are not used at once again");
    }

    #[test]
    fn a_sweep_looks_at_some_and_the_next_goes_on_behind_them() {
        let table = FrozenTable::default();
        for value in 0..10 {
            assert!(table.keep(frozen(1, value)).is_some());
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
        assert_eq!(sweep_all(1000 + KEPT_MS), [6, 2, 0]);
    }

    #[test]
    fn what_finds_no_room_leaves_nothing_behind() {
        let table = FrozenTable::default();
        for value in 0..2 * FROZEN_MAX.n as u64 {
            assert_eq!(table.keep(frozen(1, value)).is_some(), value < FROZEN_MAX.n as u64);
        }
        assert!(table.keep(frozen(1, 0)).is_some(), "it is there");
        assert_eq!(table.0.lock().by_hash.len(), FROZEN_MAX.n);
        table.sweep(Millis(0));
        table.sweep(Millis(KEPT_MS));
        let inner = table.0.lock();
        assert!(inner.by_id.is_empty() && inner.by_hash.is_empty() && inner.taken[0].bytes == 0);
    }

    #[test]
    fn a_controller_that_never_answers_costs_others_like_it_alone() {
        let paused = |value| Frozen { paused: true, ..frozen(1, value) };
        let max = PAUSED_MAX.n as u64;
        let table = FrozenTable::default();
        let held = table.keep(paused(0)).expect("room");
        let ids: Vec<u32> = (1..max).map(|value| table.keep(paused(value)).expect("room").id).collect();
        assert_eq!(table.get(ids[0]).map(|kept| kept.id), Some(ids[0]), "and is used last");
        let more: Vec<u32> = (max..2 * max - 2).map(|value| table.keep(paused(value)).expect("room").id).collect();
        assert_eq!(table.len(), PAUSED_MAX.n);
        // A cached flow holds the first.
        assert!(table.get(held.id).is_some() && table.get(ids[0]).is_some());
        assert!(ids[1..].iter().all(|id| table.get(*id).is_none()), "the oldest give way");
        assert!(more.iter().all(|id| table.get(*id).is_some()));
        // There is room for what only comes back from the datapath.
        assert!((0..FROZEN_MAX.n as u64).all(|value| table.keep(frozen(1, value)).is_some()));
        // If all are held, none gives way.
        let all: Vec<_> = (0..max).filter_map(|value| table.keep(paused(value))).collect();
        assert_eq!(all.len(), PAUSED_MAX.n);
        assert!(table.keep(paused(3 * max)).is_none());
        drop((all, held));
        assert!(table.keep(paused(3 * max)).is_some());
        table.sweep(Millis(0));
        table.sweep(Millis(PAUSED_MS));
        let inner = table.0.lock();
        assert!(inner.by_id.is_empty() && inner.paused.is_empty());
        assert!(inner.taken.iter().all(|share| (share.n, share.bytes) == (0, 0)));
    }

    #[test]
    fn long_remainders_are_fewer() {
        let long = |value| Frozen { paused: true, stack: vec![Value::default(); 1 << 17], ..frozen(1, value) };
        let each = long(0).bytes();
        let table = FrozenTable::default();
        for value in 0..40 {
            assert!(table.keep(long(value)).is_some());
        }
        let taken = table.0.lock().taken[1];
        assert!(taken.bytes <= PAUSED_MAX.bytes && taken.n == (PAUSED_MAX.bytes / each).min(40));
    }

    #[test]
    fn remainders_of_flows_that_differ_in_a_number_are_told_apart_by_hash() {
        let table = FrozenTable::default();
        for port in 0..FROZEN_MAX.n as u32 {
            let output = Action::Output { port: PortNo(port), max_len: 0 };
            let mut frozen = frozen(1, 5);
            frozen.lists[0].actions = [Action::PopVlan, output].into();
            assert!(table.keep(frozen).is_some());
        }
        assert!(table.0.lock().by_hash.values().all(|ids| ids.len() <= 2));
    }
}
