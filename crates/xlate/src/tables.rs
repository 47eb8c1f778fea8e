//! Flow tables, groups and meters of one bridge, in versions.
//!
//! Each change of tables and groups, of one rule or of many, has a version of its own: rules store the first version in which
//! they are visible ([`classifier::Versions`]), and the groups and meters of a version are part of its [`View`]. A translation
//! takes the current view when it enters the bridge and makes all of its look-ups in that view, so that it sees a change as a
//! whole or not at all. A transaction keeps the rules that are visible in a view as long as anyone holds the view.

use crate::groups::Groups;
use crate::meters::Meters;
use crate::model::Rule;
use arc_swap::ArcSwap;
use classifier::Classifier;
use foldhash::fast::RandomState;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Flow tables of a bridge: 0 to 254. (255 means "all" in OpenFlow.)
pub const N_TABLES: usize = 255;

/// The tables of a bridge in one version.
#[derive(Debug, Default)]
pub struct View {
    /// The version.
    pub version: u64,
    /// The groups in it.
    pub groups: Arc<Groups>,
    /// The meters in it.
    pub meters: Arc<Meters>,
}

/// All flow tables of a bridge, and the view that is current. Derefs to the tables, by number.
#[derive(Debug)]
pub struct Tables {
    tables: Box<[Table]>,
    view: ArcSwap<View>,
}

impl Default for Tables {
    /// [`N_TABLES`] empty tables in version 0.
    fn default() -> Self {
        Self { tables: (0..N_TABLES).map(|_| Table::default()).collect(), view: ArcSwap::default() }
    }
}

impl Tables {
    /// Returns the current view. The rules visible in it stay in the tables while it is held, so that it should not be held
    /// for longer than a translation or a dump takes.
    pub fn view(&self) -> Arc<View> {
        self.view.load_full()
    }

    /// Makes `view` the current one and returns the previous one, which nobody can obtain from then on.
    pub fn publish(&self, view: View) -> Arc<View> {
        self.view.swap(Arc::new(view))
    }
}

impl Deref for Tables {
    type Target = [Table];

    fn deref(&self) -> &[Table] {
        &self.tables
    }
}

/// One flow table.
#[derive(Debug, Default)]
pub struct Table {
    /// Its rules, of all versions that a translation may still use.
    pub rules: Classifier<Rule>,
    /// Packets that matched a rule of the table.
    pub matched: AtomicU64,
    /// Packets that were looked up and matched no rule.
    pub missed: AtomicU64,
    /// Rules in the current version.
    active: AtomicU64,
    /// The number of these rules for each cookie.
    by_cookie: Mutex<HashMap<u64, u64, RandomState>>,
}

impl Table {
    /// Rules in the current version.
    pub fn n_active(&self) -> u64 {
        self.active.load(Ordering::Relaxed)
    }

    /// Rules in the current version that have this cookie.
    pub fn n_with_cookie(&self, cookie: u64) -> u64 {
        self.by_cookie.lock().get(&cookie).copied().unwrap_or(0)
    }

    /// Adds `n` rules of this cookie to the counts of the current version.
    pub fn count_in(&self, cookie: u64, n: u64) {
        self.active.fetch_add(n, Ordering::Relaxed);
        *self.by_cookie.lock().entry(cookie).or_default() += n;
    }

    /// Subtracts `gone` rules of this cookie from these counts.
    pub fn count_out(&self, cookie: u64, gone: u64) {
        self.active.fetch_sub(gone, Ordering::Relaxed);
        let mut by_cookie = self.by_cookie.lock();
        if let Some(n) = by_cookie.get_mut(&cookie) {
            *n = n.saturating_sub(gone);
            if *n == 0 {
                by_cookie.remove(&cookie);
            }
        }
    }
}

/// [`N_TABLES`] empty tables.
pub fn new_tables() -> Arc<Tables> {
    Arc::default()
}
