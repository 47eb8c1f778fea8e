//! The decisions of a bond, published for translation: which frames it admits, and the member by which a frame leaves.
//!
//! A [`View`] is immutable; the machine replaces it when a decision changes, and reports that with
//! [`Effect::Changed`](crate::Effect::Changed). A translation that used a view depends on the bond.

use crate::BUCKETS;
use crate::hash::{bucket_of, source_hash};
use arc_swap::ArcSwap;
use base::{BridgePort, MacAddr, PortNo};
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes sent by each bucket since the machine last collected them.
#[derive(Debug)]
pub struct Loads([AtomicU64; BUCKETS]);

impl Default for Loads {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; BUCKETS])
    }
}

impl Loads {
    /// Adds bytes to a bucket's load.
    pub fn add(&self, bucket: u8, bytes: u64) {
        self.0[usize::from(bucket)].fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes the bytes of a bucket.
    pub(crate) fn take(&self, bucket: usize) -> u64 {
        self.0[bucket].swap(0, Ordering::Relaxed)
    }
}

/// How a bond balances now, considering the status of LACP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Balance {
    /// Not at all: the bond does not forward.
    Blocked,
    /// All frames use the active member.
    ActiveBackup,
    /// The source address and the VLAN select the bucket.
    Slb,
    /// A hash of the datapath selects the bucket.
    Tcp,
}

/// Whether a frame that a member received enters the bridge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admission {
    /// It enters.
    Accept,
    /// It is dropped.
    Drop,
    /// It enters unless its source address was learned outside of the bond and it is not a gratuitous ARP packet: then it
    /// is a frame of the bridge that came back.
    AcceptUnlessMoved,
}

/// The member by which a frame leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// There is none: the frame is dropped.
    None,
    /// This one.
    Member(PortNo),
    /// The one of the bucket to which the source address and the VLAN belong ([`View::source_bucket`]).
    Source,
    /// The one of the bucket that a hash of the datapath selects.
    Hash,
}

/// A part of a bond's decisions. Translations depend on the parts that they used.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Part {
    /// The rules by which members admit frames ([`View::admit`]).
    Admission,
    /// The way to choose the member for a frame ([`View::choice`], [`View::lb_output`], [`View::hash_basis`]).
    Choice,
    /// The members of buckets ([`View::member`]).
    Buckets,
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 3] = [Self::Admission, Self::Choice, Self::Buckets];
}

/// The decisions of one bond.
#[derive(Clone, Debug)]
pub struct View {
    pub(crate) balance: Balance,
    pub(crate) negotiated: bool,
    pub(crate) hash_basis: u32,
    pub(crate) active: Option<PortNo>,
    pub(crate) enabled: Vec<PortNo>,
    pub(crate) all_members_active: bool,
    pub(crate) buckets: Box<[Option<PortNo>; BUCKETS]>,
    pub(crate) lb_output: Option<u32>,
    pub(crate) loads: Arc<Loads>,
}

impl View {
    /// Returns the parts that differ from an earlier view of the bond.
    pub(crate) fn changes_since(&self, before: &Self) -> Vec<Part> {
        let admission = |view: &Self| (view.balance, view.negotiated, view.active, view.all_members_active);
        let choice = |view: &Self| (view.choice(), view.lb_output(), view.hash_basis);
        let differs = |part: &Part| match part {
            Part::Admission => admission(self) != admission(before) || self.enabled != before.enabled,
            Part::Choice => choice(self) != choice(before),
            Part::Buckets => self.buckets != before.buckets,
        };
        Part::ALL.into_iter().filter(differs).collect()
    }

    /// Decides about a frame that `member` received.
    pub fn admit(&self, member: PortNo, dst: MacAddr) -> Admission {
        let is_active = self.active == Some(member);
        match self.balance {
            Balance::Blocked => Admission::Drop,
            // The partner distributes frames over the members, and sends each of them once.
            _ if self.negotiated && self.enabled.contains(&member) => Admission::Accept,
            _ if self.negotiated => Admission::Drop,
            Balance::ActiveBackup if is_active => Admission::Accept,
            Balance::ActiveBackup => Admission::Drop,
            _ if dst.is_multicast() && !is_active && !self.all_members_active => Admission::Drop,
            Balance::Slb | Balance::Tcp => Admission::AcceptUnlessMoved,
        }
    }

    /// Returns how the member for a frame is chosen.
    pub fn choice(&self) -> Choice {
        match (self.balance, self.active) {
            (Balance::Blocked, _) | (_, None) => Choice::None,
            (Balance::ActiveBackup, Some(active)) => Choice::Member(active),
            (Balance::Slb, Some(_)) => Choice::Source,
            (Balance::Tcp, Some(_)) => Choice::Hash,
        }
    }

    /// Returns the id of the bond in the datapath if the datapath chooses the member ([`Bonds::tables`](crate::Bonds::tables)),
    /// by a hash ([`Choice::Hash`]).
    pub fn lb_output(&self) -> Option<u32> {
        self.lb_output.filter(|_| self.choice() == Choice::Hash)
    }

    /// Returns the bucket of a frame by its source address and the VLAN with which it leaves (0: untagged).
    pub fn source_bucket(&self, src: MacAddr, vlan: u16) -> u8 {
        bucket_of(source_hash(src, vlan, self.hash_basis))
    }

    /// Returns the member of a bucket.
    pub fn member(&self, bucket: u8) -> Option<PortNo> {
        self.buckets[usize::from(bucket)]
    }

    /// Returns the member for the frames of a source address in a VLAN, where no hash of the datapath is available.
    pub fn member_for(&self, src: MacAddr, vlan: u16) -> Option<PortNo> {
        match self.choice() {
            Choice::None => None,
            Choice::Member(member) => Some(member),
            Choice::Source | Choice::Hash => self.member(self.source_bucket(src, vlan)),
        }
    }

    /// The seed of hashes (`bond-hash-basis`).
    pub fn hash_basis(&self) -> u32 {
        self.hash_basis
    }

    /// The active member.
    pub fn active(&self) -> Option<PortNo> {
        self.active
    }

    /// The enabled members, by number.
    pub fn enabled(&self) -> &[PortNo] {
        &self.enabled
    }

    /// Where the bytes of buckets are counted.
    pub fn loads(&self) -> &Arc<Loads> {
        &self.loads
    }
}

/// The table by which the datapath balances a bond.
#[derive(Clone, Debug)]
pub struct Table {
    /// The id of the bond.
    pub id: u32,
    /// The seed of hashes.
    pub hash_basis: u32,
    /// The member of each bucket.
    pub buckets: Box<[Option<BridgePort>; BUCKETS]>,
    /// Where the bytes of buckets are counted.
    pub loads: Arc<Loads>,
}

/// The views of bonds by name.
pub type Views = HashMap<Arc<str>, Arc<View>, RandomState>;

/// The current views of all bonds.
#[derive(Debug, Default)]
pub struct Published(ArcSwap<Views>);

impl Published {
    /// Returns the current views.
    pub fn load(&self) -> Arc<Views> {
        self.0.load_full()
    }

    pub(crate) fn store(&self, views: Views) {
        self.0.store(Arc::new(views));
    }
}
