//! What a verdict rests on and what it causes, as far as many flows have it in common.
//!
//! Flows through the same tables differ in the values of their keys and in the addresses that they learn and look for,
//! and hardly in anything else: a [`SharedTranslation`] is kept once for all of them, [`Uses`] for each.

use super::change::{Change, RuleChange};
use base::mix::chain;
use base::{DpPort, MacAddr, PortNo};
use flow::{FlowKey, Step, Steps};
use foldhash::fast::RandomState;
use openflow::Action;
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use xlate::{BridgeId, Dependency, Effect, Lookup, Rule, Verdict, WrittenWord};

/// The part that is shared.
#[derive(Debug)]
pub(crate) struct SharedTranslation {
    /// Of all that follows.
    hash: u64,
    /// What the verdict read.
    pub(crate) reads: Arc<Steps>,
    /// What else it rests on, in order, but for addresses.
    pub(crate) rests_on: Box<[Dependency]>,
    /// What its look-ups say was written.
    written: Box<[WrittenWord]>,
}

/// The same of one verdict, of which it is not known yet whether others have it in common.
#[derive(Debug)]
pub(crate) struct Basis {
    hash: u64,
    pub(crate) reads: Vec<Step>,
    pub(crate) rests_on: Vec<Dependency>,
    pub(crate) written: Vec<WrittenWord>,
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

/// A place where something can change: what translations are found by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum DependencyKey {
    Table(BridgeId, u8),
    Group(BridgeId, u32),
    Meter(BridgeId, u32),
    Bridge(BridgeId),
    PortState(DpPort),
    /// Of packets that no bridge takes: any bridge may begin to.
    NoBridge,
}

impl Basis {
    /// What `verdict` rests on, its effects, and the addresses.
    pub(crate) fn of(verdict: Verdict) -> (Self, Vec<Effect>, Uses) {
        let Verdict { reads, dependencies: mut rests_on, written, mut effects, .. } = verdict;
        let mut uses: SmallVec<[MacUse; 4]> = SmallVec::new();
        rests_on.retain(|dependency| {
            let Dependency::Mac { bridge, vlan, mac } = *dependency else { return true };
            let mac = (bridge, vlan, mac);
            if uses.iter().all(|u| u.mac != mac) {
                uses.push(MacUse { mac, learned: None });
            }
            false
        });
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
        let hash = rests_on_hash(Steps::hash_of(&reads), &rests_on, &written);
        (
            Self { hash, reads, rests_on, written },
            effects,
            if uses.is_empty() { Uses::default() } else { Uses::from(&uses[..]) },
        )
    }

    /// For indexes of translations.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

/// A number for a list of dependencies without addresses, behind what was hashed to `start`.
fn rests_on_hash(start: u64, rests_on: &[Dependency], written: &[WrittenWord]) -> u64 {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let (hash, turned) = (start, start.rotate_left(32) | 1);
    let add = |hash: u64, word: u64| chain(hash, word, turned ^ MIX);
    let hash = written.iter().fold(hash, |hash, (word, bits, value)| add(add(hash, bits ^ u64::from(*word)), *value));
    rests_on.iter().fold(hash, |hash, dependency| match dependency {
        Dependency::Lookup(Lookup { bridge, table, found, .. }) => {
            let found = found.map_or(0, |priority| u64::from(priority) + 1);
            add(hash, u64::from(*bridge) << 41 | u64::from(*table) << 33 | found)
        }
        Dependency::Bridge(bridge) => add(hash, 1 << 56 | u64::from(*bridge)),
        Dependency::Table { bridge, table } => add(hash, 2 << 56 | u64::from(*bridge) << 8 | u64::from(*table)),
        Dependency::Group { bridge, group } => add(add(hash, 3 << 56 | u64::from(*bridge)), (*group).into()),
        Dependency::Meter { bridge, meter } => add(add(hash, 4 << 56 | u64::from(*bridge)), (*meter).into()),
        Dependency::PortState(port) => add(hash, 6 << 56 | u64::from(port.0)),
        Dependency::Frozen(kept) => add(hash, 5 << 56 | u64::from(kept.id)),
        Dependency::Mac { .. } => hash,
    })
}

impl SharedTranslation {
    /// Keeps a basis.
    pub(crate) fn new(basis: Basis) -> Self {
        let Basis { hash, reads, rests_on, written } = basis;
        Self { hash, reads: Arc::new(Steps::new(&reads)), rests_on: rests_on.into(), written: written.into() }
    }

    /// For indexes of translations.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Whether it is what a verdict rests on.
    pub(crate) fn is(&self, basis: &Basis) -> bool {
        self.hash == basis.hash && self.reads[..] == basis.reads && self.rests_on_same(basis)
    }

    /// Whether all but what was read is the same.
    pub(crate) fn rests_on_same(&self, basis: &Basis) -> bool {
        self.rests_on[..] == basis.rests_on && self.written[..] == basis.written
    }

    /// Look-ups in flow tables.
    pub(crate) fn lookups(&self) -> impl Iterator<Item = &Lookup> {
        self.rests_on.iter().filter_map(|d| if let Dependency::Lookup(lookup) = d { Some(lookup) } else { None })
    }

    /// Whether all that is in a flow table matters.
    fn rests_on_table(&self, (bridge, table): (BridgeId, u8)) -> bool {
        self.rests_on.contains(&Dependency::Table { bridge, table })
    }

    /// Where something can change that flows of this translation rest on; some places more than once.
    pub(crate) fn places(&self) -> impl Iterator<Item = DependencyKey> + '_ {
        let place = |dependency: &Dependency| match *dependency {
            Dependency::Lookup(Lookup { bridge, table, .. }) | Dependency::Table { bridge, table } => {
                Some(DependencyKey::Table(bridge, table))
            }
            Dependency::Group { bridge, group } => Some(DependencyKey::Group(bridge, group)),
            Dependency::Meter { bridge, meter } => Some(DependencyKey::Meter(bridge, meter)),
            Dependency::Bridge(bridge) => Some(DependencyKey::Bridge(bridge)),
            Dependency::PortState(port) => Some(DependencyKey::PortState(port)),
            Dependency::Mac { .. } | Dependency::Frozen(_) => None,
        };
        let none = !self.rests_on.iter().any(|d| matches!(d, Dependency::Bridge(_)));
        self.rests_on.iter().filter_map(place).chain(none.then_some(DependencyKey::NoBridge))
    }

    /// Whether a flow of this translation, with a key whose words `key` tells, may not be what it was after this change of a
    /// rule in a table.
    pub(crate) fn rule_matters(
        &self,
        (bridge, table): (BridgeId, u8),
        (rule, what): (&Rule, RuleChange),
        key: &dyn Fn(usize) -> u64,
    ) -> bool {
        if self.rests_on_table((bridge, table)) {
            return true;
        }
        let mut lookups = self.lookups().filter(|l| (l.bridge, l.table) == (bridge, table));
        lookups.any(|lookup| priority_matters(lookup, rule, what) && !self.contradicts(lookup, rule, key))
    }

    /// Whether some flow of this translation may not be what it was after this change of a rule in a table, whatever its key.
    pub(crate) fn rule_may_matter(&self, (bridge, table): (BridgeId, u8), (rule, what): (&Rule, RuleChange)) -> bool {
        let mut lookups = self.lookups().filter(|l| (l.bridge, l.table) == (bridge, table));
        self.rests_on_table((bridge, table)) || lookups.any(|lookup| priority_matters(lookup, rule, what))
    }

    /// Whether no packet of the flow can have matched `rule` at this look-up.
    fn contradicts(&self, lookup: &Lookup, rule: &Rule, key: &dyn Fn(usize) -> u64) -> bool {
        let list = lookup.written.of(&self.written);
        let found = |word: usize| {
            let unsaid = if flow::layout::REGS_AND_METADATA.contains(&word) { u64::MAX } else { 0 };
            list.binary_search_by_key(&word, |w| usize::from(w.0)).map_or((unsaid, 0), |at| (list[at].1, list[at].2))
        };
        rule.minimatch.mask().words().zip(rule.minimatch.values()).any(|((word, bits), value)| {
            let bits = if word == flow::layout::CONJ_CTMARK { bits & !conj_id_bits() } else { bits };
            let (written, now) = found(word);
            if (now ^ value) & bits & written != 0 {
                return true;
            }
            let read = self.reads.mask().word(word) & bits & !written;
            read != 0 && (key(word) ^ value) & read != 0
        })
    }

    /// Bytes that it takes, with what it points to.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.reads.bytes() + size_of_val(&*self.rests_on) + size_of_val(&*self.written)
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

/// Rules of one table, and what became of them.
type RuleChanges = Vec<(Arc<Rule>, RuleChange)>;

/// Changes that came together, by place.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    pub(crate) everything: bool,
    pub(crate) places: HashSet<DependencyKey, RandomState>,
    pub(crate) macs: HashSet<(BridgeId, u16, MacAddr)>,
    /// Single rules, by table; the table is in `places` instead if there are too many.
    pub(crate) rules: HashMap<(BridgeId, u8), RuleChanges, RandomState>,
    /// A rule is gone: flows may match more closely than they need to.
    pub(crate) loosened: bool,
}

/// Changed rules of a table that are compared with flows one by one. Beyond that, all flows that consulted the table are
/// translated again, which costs less than comparing each with each.
pub(crate) const RULES_MAX: usize = 128;

impl Changes {
    pub(crate) fn add(&mut self, change: Change) {
        match change {
            Change::Rule { bridge, table, rule, what } => {
                self.loosened |= what == RuleChange::Removed;
                let place = DependencyKey::Table(bridge, table);
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
            Change::Table { bridge, table, loosened } => {
                self.loosened |= loosened;
                self.rules.remove(&(bridge, table));
                self.places.insert(DependencyKey::Table(bridge, table));
            }
            Change::Mac { bridge, vlan, mac } => _ = self.macs.insert((bridge, vlan, mac)),
            Change::Group { bridge, group } => _ = self.places.insert(DependencyKey::Group(bridge, group)),
            Change::Meter { bridge, meter } => _ = self.places.insert(DependencyKey::Meter(bridge, meter)),
            Change::PortState(port) => _ = self.places.insert(DependencyKey::PortState(port)),
            Change::Bridge(bridge) => {
                self.loosened = true;
                self.places.insert(DependencyKey::Bridge(bridge));
                self.places.insert(DependencyKey::NoBridge);
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
