//! Recirculation: what is left of a translation when it cannot go on before the datapath has done something.
//!
//! After an action as `pop_mpls` nobody knows what the packet carries, and the hash that a group selects by is the
//! datapath's to compute. Then all that is left is kept as [`Frozen`] under a number, the datapath does what was
//! decided so far and has the packet looked up once more with that number in its key (`recirc_id`), and the look-up's miss
//! is translated from where the first one stopped.
//!
//! The same remainder has the same number, as long as somebody holds it or did until lately: so a translation done again
//! comes to the same actions, and stays a function of what it looks at.

use crate::bits::Value;
use crate::ct::connection_bits;
use crate::model::{BridgeId, Network};
use crate::pipeline::Frame;
use crate::trace::Kind;
use crate::translate::{Xlate, nowhere};
use crate::verdict::{Dependency, TranslationError, Verdict, WrittenWord};
use base::{Millis, PortNo};
use dpif::{DpAction, HashKind};
use flow::{Field, FlowKey, Loc, layout};
use openflow::{Action, ControllerAction, GroupKind};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::Arc;

/// How long a remainder is kept that nobody holds, in milliseconds: packets may be under way with its number.
const KEPT_MS: u64 = 10_000;
/// The same where a controller may have the packet.
const PAUSED_MS: u64 = 3_600_000;
/// Remainders at most.
const FROZEN_MAX: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };
/// Remainders that are looked at together for whether they are needed: translations wait meanwhile.
const SWEPT_AT_ONCE: usize = 256;

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
    by_id: HashMap<u32, Entry>,
    by_hash: HashMap<u64, SmallVec<[u32; 1]>>,
    hasher: foldhash::fast::RandomState,
    last: u32,
}

#[derive(Debug)]
struct Entry {
    kept: Arc<Kept>,
    hash: u64,
    /// Since when it is known that nobody holds it.
    idle: Option<Millis>,
}

impl FrozenTable {
    /// The remainder of this number.
    pub fn get(&self, id: u32) -> Option<Arc<Kept>> {
        let mut inner = self.0.lock();
        let entry = inner.by_id.get_mut(&id)?;
        entry.idle = None;
        Some(Arc::clone(&entry.kept))
    }

    /// The number of this remainder; `None` if there are too many.
    pub fn keep(&self, frozen: Frozen) -> Option<Arc<Kept>> {
        let mut inner = self.0.lock();
        let inner = &mut *inner;
        let hash = hash_of(&frozen, &inner.hasher);
        let ids = inner.by_hash.get(&hash).into_iter().flatten();
        let same = ids.into_iter().find(|id| inner.by_id.get(id).is_some_and(|e| e.kept.frozen == frozen));
        if let Some(entry) = same.and_then(|id| inner.by_id.get_mut(id)) {
            entry.idle = None;
            return Some(Arc::clone(&entry.kept));
        }
        if inner.by_id.len() >= FROZEN_MAX {
            return None;
        }
        loop {
            inner.last = inner.last.wrapping_add(1).max(1);
            if !inner.by_id.contains_key(&inner.last) {
                break;
            }
        }
        let kept = Arc::new(Kept { id: inner.last, frozen });
        inner.by_hash.entry(hash).or_default().push(kept.id);
        inner.by_id.insert(kept.id, Entry { kept: Arc::clone(&kept), hash, idle: None });
        Some(kept)
    }

    /// Forgets what nobody has held for [`KEPT_MS`], or [`PAUSED_MS`]. To be called now and then.
    pub fn sweep(&self, now: Millis) {
        let ids: Vec<u32> = self.0.lock().by_id.keys().copied().collect();
        for ids in ids.chunks(SWEPT_AT_ONCE) {
            // Dropped when nobody waits any more.
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
    /// Takes a remainder out that nobody has held for long.
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
        let entry = self.by_id.remove(&id)?;
        if let Some(ids) = self.by_hash.get_mut(&entry.hash) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_hash.remove(&entry.hash);
            }
        }
        Some(entry.kept)
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

/// What of a packet nobody knows until it has been looked into, as a header was popped.
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

/// Bits of a word of the key that go with a packet, and are not told by its headers.
fn bits_that_go_along(word: usize, connection: bool) -> u64 {
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
        let own = self.runs == 1 && !self.in_action_set;
        let mut lists = Vec::with_capacity(frames.len());
        // As the last list ends, we are where the one before is.
        while let Some(frame) = frames.pop() {
            let place = self.place();
            lists.push(frame.frozen(place));
            self.leave(frame);
        }
        lists.reverse();
        let frozen = Frozen {
            bridge: self.bridge.id,
            words: if paused { self.words_that_stay() } else { self.words_that_go_along(true) },
            stack: self.stack.clone(),
            lists,
            table: None,
            action_set: if own { std::mem::take(&mut self.action_set) } else { Vec::new() },
            in_action_set: self.in_action_set,
            in_group: self.in_group,
            packet_out: self.initial_actions_seen,
            hashed: self.hashed || matches!(why, Freeze::Hash(..)),
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
        self.dependencies.push(Dependency::Frozen(kept));
    }

    /// What was written of a packet's `connection` goes along unless it comes back from the tracker.
    pub(crate) fn words_that_go_along(&self, connection: bool) -> Vec<WrittenWord> {
        let written =
            self.reads.written_words().map(|(word, bits)| (word, bits & bits_that_go_along(word, connection)));
        let mut words: Vec<WrittenWord> = written
            .map(|(word, bits)| (word as u8, bits, self.key.0[word] & bits))
            .filter(|(word, bits, value)| *bits != 0 && (*value != 0 || !layout::GIVEN.contains(&usize::from(*word))))
            .collect();
        words.push((layout::PORTS as u8, u64::from(u32::MAX) << 32, u64::from(self.key.in_port().0) << 32));
        words
    }

    /// What a controller does not hand back with the packet.
    fn words_that_stay(&self) -> Vec<WrittenWord> {
        let bits = FlowKey::mask_of(Field::SkbPriority).0[layout::SKB_PKT] & self.reads.written().0[layout::SKB_PKT];
        let word = (layout::SKB_PKT as u8, bits, self.key.0[layout::SKB_PKT] & bits);
        if bits == 0 { Vec::new() } else { vec![word] }
    }

    /// What takes the place of the packet's own metadata.
    fn put_along(&mut self, words: &[WrittenWord]) {
        let mut mask = FlowKey::ZERO;
        for (word, bits, value) in words {
            let word = usize::from(*word);
            for key in [&mut self.key, &mut self.base] {
                key.0[word] = key.0[word] & !bits | value;
            }
            mask.0[word] = *bits;
        }
        self.reads.write_mask(&mask);
    }
}

/// Goes on with what was left under the number in a packet's key.
pub(crate) fn resume(net: &Network, key: &FlowKey, trace: bool) -> Verdict {
    // One that waits for a controller is not the datapath's to go on with.
    match net.frozen.get(key.get(Field::RecircId) as u32).filter(|kept| !kept.frozen.paused) {
        Some(kept) => go_on(net, key, &kept, trace),
        None => nowhere(key, TranslationError::Recirculation, trace),
    }
}

/// Goes on with what was left when a controller was sent the packet that it hands back. `key` is that of the packet, with
/// metadata and ingress port of the bridge as the controller has them.
pub fn resume_paused(net: &Network, key: &FlowKey, kept: &Arc<Kept>) -> Verdict {
    go_on(net, key, kept, false)
}

fn go_on(net: &Network, key: &FlowKey, kept: &Arc<Kept>, trace: bool) -> Verdict {
    let Some(bridge) = net.bridges.get(&kept.frozen.bridge) else {
        return nowhere(key, TranslationError::Recirculation, trace);
    };
    Xlate::work(net, bridge, key, trace, |x| x.thaw(kept))
}

impl Xlate<'_> {
    /// Goes on with what was left.
    fn thaw(&mut self, kept: &Arc<Kept>) {
        let (frozen, bridge) = (&kept.frozen, self.bridge);
        // It follows from the number, mostly; keys are read accordingly.
        self.reads.note_field(Field::PacketType);
        self.put_along(&frozen.words);
        self.stack.clone_from(&frozen.stack);
        self.action_set.clone_from(&frozen.action_set);
        (self.in_action_set, self.in_group) = (frozen.in_action_set, frozen.in_group);
        self.initial_actions_seen = frozen.packet_out;
        (self.hashed, self.tracked) = (frozen.hashed, Some(frozen.tracked));
        self.dependencies.push(Dependency::Bridge(bridge.id));
        self.dependencies.push(Dependency::Frozen(Arc::clone(kept)));
        self.tracer.enter(Kind::Bridge, || format!("bridge(\"{}\")", bridge.name));
        self.tracer.note(Kind::Action, || "thaw".into());
        if let Some(table) = frozen.table.or(frozen.lists.last().map(|list| list.place.table)) {
            self.tracer.note(Kind::Action, || format!("    Resuming from table {table}"));
        }
        match frozen.table {
            Some(table) => self.begin_in(table),
            None => self.run_frozen(&frozen.lists),
        }
        self.in_action_set = false;
        self.do_action_set();
        self.tracer.leave();
    }

    /// Whether an action can only be carried out when the packet has been looked into, as a header was popped. (Of MPLS
    /// labels, those that cannot tell are the same as in Open vSwitch.)
    pub(crate) fn must_look_before(&self, action: &Action) -> bool {
        let frame = match self.unseen {
            Unseen::Nothing => return false,
            Unseen::Payload => false,
            Unseen::Frame => true,
        };
        match action {
            Action::Output { port, .. } => *port == PortNo::TABLE || frame && *port == PortNo::NORMAL,
            // It may be told by the frame, or be to go where frames go by what they are.
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
            Action::Group(id) => self.view.groups.get(*id).is_some_and(|g| g.kind == GroupKind::Select),
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
    fn what_finds_no_room_leaves_nothing_behind() {
        let table = FrozenTable::default();
        for value in 0..2 * FROZEN_MAX as u64 {
            assert_eq!(table.keep(frozen(1, value)).is_some(), value < FROZEN_MAX as u64);
        }
        assert!(table.keep(frozen(1, 0)).is_some(), "it is there");
        assert_eq!(table.0.lock().by_hash.len(), FROZEN_MAX);
        table.sweep(Millis(0));
        table.sweep(Millis(KEPT_MS));
        assert!(table.is_empty() && table.0.lock().by_hash.is_empty());
    }

    #[test]
    fn remainders_of_flows_that_differ_in_a_number_are_told_apart_by_hash() {
        let table = FrozenTable::default();
        for port in 0..FROZEN_MAX as u32 {
            let output = Action::Output { port: PortNo(port), max_len: 0 };
            let mut frozen = frozen(1, 5);
            frozen.lists[0].actions = [Action::PopVlan, output].into();
            assert!(table.keep(frozen).is_some());
        }
        assert!(table.0.lock().by_hash.values().all(|ids| ids.len() <= 2));
    }
}
