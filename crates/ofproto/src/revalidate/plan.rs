//! What a verdict rests on and what it causes, as far as many flows have it in common.
//!
//! Flows through the same tables differ in the values of their keys and in the addresses that they learn and look for,
//! and hardly in anything else: a [`Plan`] is kept once for all of them, [`Uses`] for each.

use super::change::{Change, RuleChange};
use base::{MacAddr, PortNo};
use flow::{FlowKey, Sparse};
use openflow::Action;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};
use xlate::{BridgeId, Dependency, Effect, Lookup, Rule, Verdict};

/// The part that is shared.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Of all that follows, made once.
    hash: u64,
    /// Bits that the verdict read.
    pub(crate) mask: Sparse,
    /// Look-ups in flow tables.
    pub(crate) lookups: Vec<Lookup>,
    /// Flow tables of which everything matters.
    pub(crate) tables: Vec<(BridgeId, u8)>,
    /// Bridges passed.
    pub(crate) bridges: Vec<BridgeId>,
    /// Groups used.
    pub(crate) groups: Vec<(BridgeId, u32)>,
}

/// An address that a flow learns, or that it looked for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct MacUse {
    /// Bridge, VLAN and address.
    pub(crate) mac: (BridgeId, u16, MacAddr),
    /// Where the flow's packets show it to be.
    pub(crate) learned: Option<PortNo>,
}

/// What a flow causes, but for addresses.
pub(crate) type Effects = Arc<[Effect]>;

/// The addresses of a flow.
pub(crate) type Uses = Arc<[MacUse]>;

/// A place where something can change: what plans are found by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Place {
    Table(BridgeId, u8),
    Group(BridgeId, u32),
    Bridge(BridgeId),
    /// Of packets that no bridge takes: any bridge may begin to.
    NoBridge,
}

impl Plan {
    /// What `verdict` rests on, taken out of it: the shared part, the effects and the
    /// addresses.
    pub(crate) fn of(verdict: &mut Verdict) -> (Self, Effects, Uses) {
        let mut lookups = Vec::with_capacity(verdict.dependencies.len());
        let (mut bridges, mut groups, mut tables, mut uses) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for dependency in verdict.dependencies.drain(..) {
            match dependency {
                Dependency::Bridge(bridge) => push_new(&mut bridges, bridge),
                Dependency::Table { bridge, table } => push_new(&mut tables, (bridge, table)),
                Dependency::Group { bridge, group } => push_new(&mut groups, (bridge, group)),
                Dependency::Mac { bridge, vlan, mac } => {
                    push_new(&mut uses, MacUse { mac: (bridge, vlan, mac), learned: None });
                }
                Dependency::Lookup(lookup) => push_new(&mut lookups, lookup),
            }
        }
        let mut effects = std::mem::take(&mut verdict.effects);
        effects.retain(|effect| {
            let Effect::LearnMac { bridge, vlan, mac, port } = *effect else { return true };
            let mac = (bridge, vlan, mac);
            // Of an address that one packet shows in two places, the later one stays.
            match uses.iter_mut().find(|u| u.mac == mac) {
                Some(known) => known.learned = Some(port),
                None => uses.push(MacUse { mac, learned: Some(port) }),
            }
            false
        });
        let mut plan = Self { hash: 0, mask: Sparse::new(verdict.reads.mask()), lookups, tables, bridges, groups };
        plan.hash = plan.make_hash();
        (plan, effects.into(), if uses.is_empty() { Uses::default() } else { uses.into() })
    }

    /// Gives room back that it does not need, as it is to stay.
    pub(crate) fn shrink(&mut self) {
        self.lookups.shrink_to_fit();
        self.tables.shrink_to_fit();
        self.bridges.shrink_to_fit();
        self.groups.shrink_to_fit();
    }

    fn make_hash(&self) -> u64 {
        static SEED: OnceLock<foldhash::fast::RandomState> = OnceLock::new();
        let mut hasher = SEED.get_or_init(Default::default).build_hasher();
        (&self.mask, &self.tables, &self.bridges, &self.groups).hash(&mut hasher);
        // Look-ups share what was written before them.
        let mut last = None;
        for Lookup { bridge, table, found, written } in &self.lookups {
            let found = found.map_or(0, |priority| 1 << 16 | u64::from(priority));
            hasher.write_u64(u64::from(*bridge) << 32 | u64::from(*table) << 24 | found);
            let list = Arc::as_ptr(written);
            if last.is_none_or(|last| !std::ptr::eq(last, list)) {
                written.hash(&mut hasher);
                last = Some(list);
            }
        }
        hasher.finish()
    }

    /// Where something can change that flows of this plan rest on.
    pub(crate) fn places(&self) -> impl Iterator<Item = Place> + '_ {
        let tables = self.lookups.iter().map(|l| Place::Table(l.bridge, l.table));
        let tables = tables.chain(self.tables.iter().map(|(b, t)| Place::Table(*b, *t)));
        let groups = self.groups.iter().map(|(b, g)| Place::Group(*b, *g));
        let none = self.bridges.is_empty().then_some(Place::NoBridge);
        tables.chain(groups).chain(self.bridges.iter().map(|b| Place::Bridge(*b))).chain(none)
    }

    /// Whether a flow of this plan, with a key whose words `key` tells, may not be what it was after this change of a
    /// rule in a table.
    pub(crate) fn rule_matters(
        &self,
        (bridge, table): (BridgeId, u8),
        (rule, what): (&Rule, RuleChange),
        key: &dyn Fn(usize) -> u64,
    ) -> bool {
        if self.tables.contains(&(bridge, table)) {
            return true;
        }
        let mut lookups = self.lookups.iter().filter(|l| (l.bridge, l.table) == (bridge, table));
        lookups.any(|lookup| priority_matters(lookup, rule, what) && !self.contradicts(lookup, rule, key))
    }

    /// Whether some flow of this plan may not be what it was after this change of a rule in a table, whatever its key.
    pub(crate) fn rule_may_matter(&self, (bridge, table): (BridgeId, u8), (rule, what): (&Rule, RuleChange)) -> bool {
        let mut lookups = self.lookups.iter().filter(|l| (l.bridge, l.table) == (bridge, table));
        self.tables.contains(&(bridge, table)) || lookups.any(|lookup| priority_matters(lookup, rule, what))
    }

    /// Whether no packet of the flow can have matched `rule` at this look-up.
    fn contradicts(&self, lookup: &Lookup, rule: &Rule, key: &dyn Fn(usize) -> u64) -> bool {
        let found = |list: &[(u8, u64, u64)], word: usize| {
            let unsaid = if flow::layout::GIVEN.contains(&word) { u64::MAX } else { 0 };
            list.binary_search_by_key(&word, |w| usize::from(w.0)).map_or((unsaid, 0), |at| (list[at].1, list[at].2))
        };
        rule.minimatch.mask().words().zip(rule.minimatch.values()).any(|((word, bits), value)| {
            let bits = if word == flow::layout::CONJ_CTMARK { bits & !conj_id_bits() } else { bits };
            let (written, now) = found(&lookup.written, word);
            if (now ^ value) & bits & written != 0 {
                return true;
            }
            let read = self.mask.word(word) & bits & !written;
            read != 0 && (key(word) ^ value) & read != 0
        })
    }

    /// Bytes that it takes, with what it points to.
    pub(crate) fn bytes(&self) -> usize {
        let written: usize = self.lookups.iter().map(|l| size_of_val(&*l.written)).sum();
        size_of::<Self>()
            + self.mask.heap_bytes()
            + size_of_val(&*self.lookups)
            + written
            + size_of_val(&*self.tables)
            + size_of_val(&*self.bridges)
            + size_of_val(&*self.groups)
    }
}

/// Whether a change of a rule of this priority can change what a look-up finds. A clause of a conjunctive match and the
/// rule that it leads to have priorities of their own, so that these matter to each look-up.
fn priority_matters(lookup: &Lookup, rule: &Rule, what: RuleChange) -> bool {
    let conjunctive = || {
        rule.actions.iter().any(|a| matches!(a, Action::Conjunction { .. }))
            || rule
                .minimatch
                .mask()
                .words()
                .any(|(w, bits)| w == flow::layout::CONJ_CTMARK && bits & conj_id_bits() != 0)
    };
    let matters = match what {
        RuleChange::Added => lookup.found.is_none_or(|found| found <= rule.priority),
        RuleChange::Removed | RuleChange::Replaced => lookup.found == Some(rule.priority),
    };
    matters || conjunctive()
}

/// The bits of `conj_id` in its word: a look-up may give it a value of its own.
fn conj_id_bits() -> u64 {
    FlowKey::mask_of(flow::Field::ConjId).0[flow::layout::CONJ_CTMARK]
}

fn push_new<T: PartialEq>(list: &mut Vec<T>, item: T) {
    if !list.contains(&item) {
        list.push(item);
    }
}

impl PartialEq for Plan {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash
            && self.mask == other.mask
            && same_lookups(&self.lookups, &other.lookups)
            && self.tables == other.tables
            && self.bridges == other.bridges
            && self.groups == other.groups
    }
}

/// Whether two lists of look-ups are the same. Those of one translation share what was written before them, which is
/// compared once.
fn same_lookups(ours: &[Lookup], others: &[Lookup]) -> bool {
    let mut same_written = None;
    ours.len() == others.len()
        && ours.iter().zip(others).all(|(a, b)| {
            let lists = (Arc::as_ptr(&a.written), Arc::as_ptr(&b.written));
            let scalars = |l: &Lookup| (l.bridge, l.table, l.found);
            scalars(a) == scalars(b)
                && (same_written.is_some_and(|(x, y)| std::ptr::eq(x, lists.0) && std::ptr::eq(y, lists.1))
                    || a.written == b.written)
                && {
                    same_written = Some(lists);
                    true
                }
        })
}

impl Eq for Plan {}

impl Hash for Plan {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// Rules of one table, and what became of them.
type RuleChanges = Vec<(Arc<Rule>, RuleChange)>;

/// Changes that came together, by place.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) everything: bool,
    pub(crate) places: HashSet<Place>,
    pub(crate) macs: HashSet<(BridgeId, u16, MacAddr)>,
    /// Single rules, by table; the table is in `places` instead if there are too many.
    pub(crate) rules: HashMap<(BridgeId, u8), RuleChanges>,
    /// A rule is gone: flows may match more closely than they need to.
    pub(crate) loosened: bool,
}

/// Rules of a table that are looked at one by one: with more, all flows that looked into the table are translated
/// again, as comparing each with each would cost more.
const RULES_MAX: usize = 128;

impl Changes {
    pub(crate) fn add(&mut self, change: Change) {
        match change {
            Change::Rule { bridge, table, rule, what } => {
                self.loosened |= what == RuleChange::Removed;
                let place = Place::Table(bridge, table);
                if self.everything || self.places.contains(&place) {
                    return;
                }
                let rules = self.rules.entry((bridge, table)).or_default();
                rules.push((rule, what));
                if rules.len() > RULES_MAX {
                    self.rules.remove(&(bridge, table));
                    self.places.insert(place);
                }
            }
            Change::Mac { bridge, vlan, mac } => _ = self.macs.insert((bridge, vlan, mac)),
            Change::Group { bridge, group } => _ = self.places.insert(Place::Group(bridge, group)),
            Change::Bridge(bridge) => {
                self.loosened = true;
                self.places.insert(Place::Bridge(bridge));
                self.places.insert(Place::NoBridge);
            }
            Change::Everything => {
                *self = Self { everything: true, loosened: true, ..Self::default() };
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.everything && self.places.is_empty() && self.macs.is_empty() && self.rules.is_empty()
    }
}
