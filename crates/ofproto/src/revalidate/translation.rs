//! The dependencies and effects of verdicts that many flows have in common.
//!
//! Flows through the same tables differ in the values of their keys and in the addresses that they learn and look up,
//! and hardly in anything else: they share one [`SharedTranslation`], and each has its own [`Uses`].

use super::change::{Change, RuleChange};
use base::mix::chain;
use base::{BridgePort, MacAddr, PortNo};
use flow::{FlowKey, Step, Steps};
use foldhash::fast::RandomState;
use openflow::Action;
use smallvec::SmallVec;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use xlate::{BridgeId, Dependency, Effect, Lookup, Rule, Verdict, WrittenWord};

/// The shared part.
#[derive(Debug)]
pub(crate) struct SharedTranslation {
    /// The hash of the fields below.
    hash: u64,
    /// The bits that the verdict read.
    pub(crate) reads: Arc<Steps>,
    /// Its other dependencies, in order, without addresses.
    pub(crate) rests_on: Box<[Dependency]>,
    /// The written words of its look-ups.
    written: Box<[WrittenWord]>,
}

/// The dependencies of one verdict, before it is known whether other flows share them.
#[derive(Debug)]
pub(crate) struct Basis {
    hash: u64,
    pub(crate) reads: Vec<Step>,
    pub(crate) rests_on: Vec<Dependency>,
    pub(crate) written: Vec<WrittenWord>,
}

/// An address that a flow learns or looks up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct MacUse {
    /// Bridge, VLAN and address.
    pub(crate) mac: (BridgeId, u16, MacAddr),
    /// The port on which the flow's packets show it.
    pub(crate) learned: Option<PortNo>,
}

/// The effects of a flow, without addresses.
pub(crate) type Effects = Arc<[Effect]>;

/// The addresses of a flow.
pub(crate) type Uses = Arc<[MacUse]>;

/// An object that can change, which indexes translations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum DependencyKey {
    Table(BridgeId, u8),
    Group(BridgeId, u32),
    Meter(BridgeId, u32),
    MulticastGroup(BridgeId, u16, IpAddr),
    MulticastRouters(BridgeId, u16),
    Bridge(BridgeId),
    /// A part of the decisions of a bond, by a hash of its name.
    Bond(u64, bond::Part),
    PortState(BridgePort),
    Tunnels,
    Route(IpAddr),
    /// A neighbour at any bridge.
    Neighbour(IpAddr),
    /// The bridge of a port without one: any bridge may take the port.
    NoBridge,
}

impl Basis {
    /// Splits `verdict` into its dependencies, its effects, and its addresses.
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
            // If one packet shows an address on two ports, the later one counts.
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

    /// The hash for indexes of translations.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

/// Hashes a list of dependencies without addresses, continuing from `start`.
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
        Dependency::Removals { bridge, table } => add(hash, 7 << 56 | u64::from(*bridge) << 8 | u64::from(*table)),
        Dependency::Group { bridge, group } => add(add(hash, 3 << 56 | u64::from(*bridge)), (*group).into()),
        Dependency::Meter { bridge, meter } => add(add(hash, 4 << 56 | u64::from(*bridge)), (*meter).into()),
        Dependency::PortState(BridgePort { bridge, port }) => {
            add(add(hash, 6 << 56 | u64::from(*bridge)), port.0.into())
        }
        Dependency::Bond(name, part) => add(add(hash, 11 << 56 | *part as u64), number_of_name(name)),
        Dependency::Tunnels => add(hash, 8 << 56),
        Dependency::Route { dst, src, mark } => {
            let src = src.map_or([0, 0], number_of);
            number_of(*dst).into_iter().chain(src).fold(add(hash, 9 << 56 | u64::from(*mark)), add)
        }
        Dependency::Neighbour { bridge: _, ip } => number_of(*ip).into_iter().fold(add(hash, 10 << 56), add),
        Dependency::MulticastGroup { bridge, vlan, group } => {
            let hash = add(hash, 11 << 56 | u64::from(*vlan) << 32 | u64::from(*bridge));
            number_of(*group).into_iter().fold(hash, add)
        }
        Dependency::MulticastRouters { bridge, vlan } => {
            add(hash, 12 << 56 | u64::from(*vlan) << 32 | u64::from(*bridge))
        }
        Dependency::Frozen(kept) => add(hash, 5 << 56 | u64::from(kept.id)),
        Dependency::Mac { .. } => hash,
    })
}

/// A name as a number, by FNV-1a (Fowler, Noll, Vo).
fn number_of_name(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// An address as two words.
fn number_of(ip: IpAddr) -> [u64; 2] {
    match ip {
        IpAddr::V4(ip) => [0, u32::from(ip).into()],
        IpAddr::V6(ip) => [(u128::from(ip) >> 64) as u64, u128::from(ip) as u64],
    }
}

impl SharedTranslation {
    /// Creates a shared translation.
    pub(crate) fn new(basis: Basis) -> Self {
        let Basis { hash, reads, rests_on, written } = basis;
        Self { hash, reads: Arc::new(Steps::new(&reads)), rests_on: rests_on.into(), written: written.into() }
    }

    /// The hash for indexes of translations.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Returns true if it equals a verdict's dependencies.
    pub(crate) fn is(&self, basis: &Basis) -> bool {
        self.hash == basis.hash && self.reads[..] == basis.reads && self.rests_on_same(basis)
    }

    /// Returns true if it equals them apart from the bits read.
    pub(crate) fn rests_on_same(&self, basis: &Basis) -> bool {
        self.rests_on[..] == basis.rests_on && self.written[..] == basis.written
    }

    /// The look-ups in flow tables.
    pub(crate) fn lookups(&self) -> impl Iterator<Item = &Lookup> {
        self.rests_on.iter().filter_map(|d| if let Dependency::Lookup(lookup) = d { Some(lookup) } else { None })
    }

    /// Returns true if it depends on any such change of a flow table, whatever the rule is.
    fn rests_on_table(&self, (bridge, table): (BridgeId, u8), what: RuleChange) -> bool {
        self.rests_on.contains(&Dependency::Table { bridge, table })
            || what == RuleChange::Removed && self.rests_on.contains(&Dependency::Removals { bridge, table })
    }

    /// The objects on which flows of this translation depend; some appear more than once.
    pub(crate) fn dependency_keys(&self) -> impl Iterator<Item = DependencyKey> + '_ {
        let key = |dependency: &Dependency| match *dependency {
            Dependency::Lookup(Lookup { bridge, table, .. })
            | Dependency::Table { bridge, table }
            | Dependency::Removals { bridge, table } => Some(DependencyKey::Table(bridge, table)),
            Dependency::Group { bridge, group } => Some(DependencyKey::Group(bridge, group)),
            Dependency::Meter { bridge, meter } => Some(DependencyKey::Meter(bridge, meter)),
            Dependency::MulticastGroup { bridge, vlan, group } => {
                Some(DependencyKey::MulticastGroup(bridge, vlan, group))
            }
            Dependency::MulticastRouters { bridge, vlan } => Some(DependencyKey::MulticastRouters(bridge, vlan)),
            Dependency::Bridge(bridge) => Some(DependencyKey::Bridge(bridge)),
            Dependency::Bond(ref name, part) => Some(DependencyKey::Bond(number_of_name(name), part)),
            Dependency::PortState(port) => Some(DependencyKey::PortState(port)),
            Dependency::Tunnels => Some(DependencyKey::Tunnels),
            Dependency::Route { dst, .. } => Some(DependencyKey::Route(dst)),
            Dependency::Neighbour { ip, .. } => Some(DependencyKey::Neighbour(ip)),
            Dependency::Mac { .. } | Dependency::Frozen(_) => None,
        };
        let none = !self.rests_on.iter().any(|d| matches!(d, Dependency::Bridge(_)));
        self.rests_on.iter().filter_map(key).chain(none.then_some(DependencyKey::NoBridge))
    }

    /// Returns true if this change of a rule in a table may affect a flow of this translation whose key has the words
    /// `key`.
    pub(crate) fn rule_matters(
        &self,
        (bridge, table): (BridgeId, u8),
        (rule, what): (&Rule, RuleChange),
        key: &dyn Fn(usize) -> u64,
    ) -> bool {
        if self.rests_on_table((bridge, table), what) {
            return true;
        }
        let mut lookups = self.lookups().filter(|l| (l.bridge, l.table) == (bridge, table));
        lookups.any(|lookup| priority_matters(lookup, rule, what) && !self.contradicts(lookup, rule, key))
    }

    /// Returns true if this change of a rule in a table may affect some flow of this translation, whatever its key.
    pub(crate) fn rule_may_matter(&self, (bridge, table): (BridgeId, u8), (rule, what): (&Rule, RuleChange)) -> bool {
        let mut lookups = self.lookups().filter(|l| (l.bridge, l.table) == (bridge, table));
        self.rests_on_table((bridge, table), what) || lookups.any(|lookup| priority_matters(lookup, rule, what))
    }

    /// Returns true if no packet of the flow can have matched `rule` at this look-up.
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

    /// The memory that it takes, with everything that it owns, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.reads.bytes() + size_of_val(&*self.rests_on) + size_of_val(&*self.written)
    }
}

/// Returns true if a change of a rule with this priority can change the result of a look-up. A clause of a conjunctive match
/// and the rule that it leads to have priorities of their own, so that these always matter.
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

/// The bits of `conj_id` in its word: a look-up may set it to a value of its own.
fn conj_id_bits() -> u64 {
    FlowKey::mask_of(flow::Field::ConjId).0[flow::layout::CONJ_CTMARK]
}

/// Changed rules of one table.
type RuleChanges = Vec<(Arc<Rule>, RuleChange)>;

/// A batch of changes, by object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    pub(crate) everything: bool,
    pub(crate) keys: HashSet<DependencyKey, RandomState>,
    pub(crate) macs: HashSet<(BridgeId, u16, MacAddr)>,
    /// Single rules, by table; if there are too many, `keys` has the table instead.
    pub(crate) rules: HashMap<(BridgeId, u8), RuleChanges, RandomState>,
    /// True if a rule was removed: flows may match more closely than necessary.
    pub(crate) loosened: bool,
}

/// The number of changed rules of a table that are compared with flows one by one. Beyond it, all flows that consulted the
/// table are translated again, which costs less than comparing every pair.
pub(crate) const RULES_MAX: usize = 128;

impl Changes {
    pub(crate) fn add(&mut self, change: Change) {
        match change {
            Change::Rule { bridge, table, rule, what } => {
                self.loosened |= what == RuleChange::Removed;
                let key = DependencyKey::Table(bridge, table);
                if self.everything || self.keys.contains(&key) {
                    return;
                }
                let rules = self.rules.entry((bridge, table)).or_default();
                rules.push((rule, what));
                if rules.len() > RULES_MAX {
                    self.rules.remove(&(bridge, table));
                    self.keys.insert(key);
                }
            }
            Change::Table { bridge, table, loosened } => {
                self.loosened |= loosened;
                self.rules.remove(&(bridge, table));
                self.keys.insert(DependencyKey::Table(bridge, table));
            }
            Change::Mac { bridge, vlan, mac } => _ = self.macs.insert((bridge, vlan, mac)),
            Change::Group { bridge, group } => _ = self.keys.insert(DependencyKey::Group(bridge, group)),
            Change::Meter { bridge, meter } => _ = self.keys.insert(DependencyKey::Meter(bridge, meter)),
            Change::Bond(name, part) => _ = self.keys.insert(DependencyKey::Bond(number_of_name(&name), part)),
            Change::MulticastGroup { bridge, vlan, group } => {
                self.keys.insert(DependencyKey::MulticastGroup(bridge, vlan, group));
            }
            Change::MulticastRouters { bridge, vlan } => {
                self.keys.insert(DependencyKey::MulticastRouters(bridge, vlan));
            }
            Change::PortState(port) => _ = self.keys.insert(DependencyKey::PortState(port)),
            Change::Tunnels => {
                self.loosened = true;
                self.keys.insert(DependencyKey::Tunnels);
            }
            Change::Route(dst) => _ = self.keys.insert(DependencyKey::Route(dst)),
            Change::Neighbour(ip) => _ = self.keys.insert(DependencyKey::Neighbour(ip)),
            Change::Bridge(bridge) => {
                self.loosened = true;
                self.keys.insert(DependencyKey::Bridge(bridge));
                self.keys.insert(DependencyKey::NoBridge);
            }
            Change::Everything => {
                *self = Self { everything: true, loosened: true, ..Self::default() };
            }
        }
    }

    /// Returns true if these are changes of at most so many objects (such as whole tables) and single rules.
    pub(crate) fn are_few(&self, objects_max: usize, rules_max: usize) -> bool {
        let rules: usize = self.rules.values().map(Vec::len).sum();
        !self.everything && self.keys.len() + self.macs.len() <= objects_max && rules <= rules_max
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.everything && self.keys.is_empty() && self.macs.is_empty() && self.rules.is_empty()
    }
}
