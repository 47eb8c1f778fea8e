//! Settings by feature: each reads its own columns into a specification, and applies that when it differs from what was
//! applied before.
//!
//! A feature belongs to one [`Level`]: the switch, a bridge, a port or an interface. Each object has a list of the
//! features of its level ([`Settings`]). A change of the database makes just those features stale that list a column
//! it touches ([`Feature::COLUMNS`]), in the object of the changed row, in objects below it, and in objects that read
//! the row by a reference ([`References`]). A stale feature is read again, and applied if its specification is another.
//! What happens to an object outside of the database is an [`Event`]; features that follow it are applied again.

use crate::reader::Reader;
use crate::references::{Location, References};
use ovsdb_client::typed::AnyColumn;
use ovsdb_client::{Change, Replica, Transaction};
use serde_json::{Value, json};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use unixctl::Commands;

/// What a feature's settings belong to.
pub trait Level: Debug + Sized + 'static {
    /// The rows that a feature of this level reads: that of the object, and those of the objects that it is part of.
    type Rows<'a>: Copy;
    /// What a feature of this level is applied to.
    type Target<'a>;
    /// What a feature of this level reports on.
    type Reported<'a>: Copy;

    /// All features of this level, in the order in which they are applied.
    fn features() -> Vec<Box<dyn Setting<Self>>>;

    /// The columns that features of this level read.
    fn columns() -> Arc<[AnyColumn]>;
}

/// What features follow beside their columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The device of the interface was opened or took new options, or its link, address or MTU changed.
    Device,
    /// Ports of the bridge were added or removed, or have other numbers or addresses.
    Ports,
    /// A datapath was created.
    Datapath,
}

/// The extent of what the switch writes to the database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Report {
    /// The state of what runs.
    Status,
    /// The state and the counters.
    Statistics,
    /// The state of protocols alone, which changes more often.
    Protocols,
}

/// One area of settings.
pub trait Feature: Default + Debug + 'static {
    /// What the settings belong to.
    type Level: Level;
    /// The settings, checked. Its default stands for an object without a row.
    type Spec: Default + PartialEq + Debug;
    /// The name in the output of `settings/show`.
    const NAME: &'static str;
    /// The columns that [`Feature::read`] reads.
    const COLUMNS: &'static [AnyColumn];
    /// The columns that [`Feature::report`] writes.
    const REPORTS: &'static [AnyColumn] = &[];
    /// Whether [`Feature::report`] writes the state of a protocol. Only such features get [`Report::Protocols`].
    const IS_PROTOCOL: bool = false;
    /// The events after which the same settings are applied again.
    const FOLLOWS: &'static [Event] = &[];

    /// Reads the settings. A value that cannot be used, or that asks for something unsupported, is left out with a
    /// warning ([`Reader::warn`]), so that one bad row does not stop the others.
    fn read(reader: &Reader<'_>, rows: <Self::Level as Level>::Rows<'_>) -> Self::Spec;

    /// Makes the object follow the settings. A feature that only warns or reports has nothing to apply.
    fn apply(&mut self, _spec: &Self::Spec, _target: &mut <Self::Level as Level>::Target<'_>) {}

    /// Writes the state of the object to the database.
    fn report(&self, _of: <Self::Level as Level>::Reported<'_>, _what: Report, _txn: &mut Transaction<'_>) {}

    /// Registers the control commands of the feature.
    fn commands(_commands: &Commands, _devices: &Arc<crate::devices::Devices>) {}
}

/// How often features were read and applied, by name.
#[derive(Clone, Debug, Default)]
pub struct Counts(BTreeMap<&'static str, Count>);

/// How often a feature was read and applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Times that the columns were read.
    pub read: u64,
    /// Times that the settings were applied.
    pub applied: u64,
}

impl Counts {
    /// The counts by the name of the feature.
    pub fn all(&self) -> &BTreeMap<&'static str, Count> {
        &self.0
    }

    /// One line a feature: name, times read, times applied.
    pub fn text(&self) -> String {
        let mut text = format!("{:<20} {:>10} {:>10}\n", "feature", "read", "applied");
        for (name, Count { read, applied }) in &self.0 {
            text.push_str(&format!("{name:<20} {read:>10} {applied:>10}\n"));
        }
        text
    }

    /// The same as JSON.
    pub fn json(&self) -> Value {
        let count = |count: &Count| json!({"read": count.read, "applied": count.applied});
        self.0.iter().map(|(name, of)| ((*name).to_owned(), count(of))).collect::<serde_json::Map<_, _>>().into()
    }
}

/// A feature of one object with its settings, whatever their type.
pub trait Setting<L: Level>: Debug {
    /// See [`Feature::NAME`].
    fn name(&self) -> &'static str;
    /// See [`Feature::COLUMNS`].
    fn columns(&self) -> &'static [AnyColumn];
    /// See [`Feature::REPORTS`].
    fn reports(&self) -> &'static [AnyColumn];
    /// See [`Feature::commands`].
    fn register(&self, commands: &Commands, devices: &Arc<crate::devices::Devices>);
    /// Has the settings read again.
    fn set_stale(&mut self);
    /// Has the settings applied again if the feature follows `event`.
    fn follow(&mut self, event: Event);
    /// Whether the settings are to be read again.
    fn is_stale(&self) -> bool;
    /// Whether the settings are to be applied.
    fn is_pending(&self) -> bool;
    /// Reads the settings; without rows, they are the default. Logs warnings that did not hold before for any
    /// object.
    fn read(&mut self, db: &Replica, rows: Option<L::Rows<'_>>, at: &Location, references: &mut References);
    /// Applies the settings.
    fn apply(&mut self, target: &mut L::Target<'_>);
    /// See [`Feature::report`].
    fn report(&self, of: L::Reported<'_>, what: Report, txn: &mut Transaction<'_>);
    /// Removes the references to rows that were read.
    fn forget(&mut self, at: &Location, references: &mut References);
    /// The settings, a [`Feature::Spec`].
    fn spec(&self) -> &dyn Any;
    /// The settings as text, for tests.
    fn describe(&self) -> String;
    /// The warnings about the settings.
    fn warnings(&self) -> &BTreeSet<String>;
}

#[derive(Debug)]
struct Held<F: Feature> {
    feature: F,
    spec: F::Spec,
    is_stale: bool,
    is_pending: bool,
    warnings: BTreeSet<String>,
    /// Rows that were read by reference, and tables that were read whole.
    read: crate::reader::Read,
}

/// A feature for [`Level::features`], not read yet.
pub fn setting<F: Feature>() -> Box<dyn Setting<F::Level>> {
    Box::new(Held {
        feature: F::default(),
        spec: F::Spec::default(),
        is_stale: true,
        is_pending: true,
        warnings: BTreeSet::new(),
        read: crate::reader::Read::default(),
    })
}

impl<F: Feature> Setting<F::Level> for Held<F> {
    fn name(&self) -> &'static str {
        F::NAME
    }

    fn columns(&self) -> &'static [AnyColumn] {
        F::COLUMNS
    }

    fn reports(&self) -> &'static [AnyColumn] {
        F::REPORTS
    }

    fn register(&self, commands: &Commands, devices: &Arc<crate::devices::Devices>) {
        F::commands(commands, devices);
    }

    fn set_stale(&mut self) {
        self.is_stale = true;
    }

    fn follow(&mut self, event: Event) {
        self.is_pending |= F::FOLLOWS.contains(&event);
    }

    fn is_stale(&self) -> bool {
        self.is_stale
    }

    fn is_pending(&self) -> bool {
        self.is_pending
    }

    fn read(
        &mut self,
        db: &Replica,
        rows: Option<<F::Level as Level>::Rows<'_>>,
        at: &Location,
        references: &mut References,
    ) {
        let reader = Reader::new(db);
        let spec = rows.map(|rows| F::read(&reader, rows)).unwrap_or_default();
        let (warnings, read) = reader.finish();
        references.warn(&self.warnings, &warnings);
        references.replace(&self.read, &read, at, F::NAME);
        self.is_pending |= spec != self.spec;
        (self.spec, self.warnings, self.read, self.is_stale) = (spec, warnings, read, false);
    }

    fn apply(&mut self, target: &mut <F::Level as Level>::Target<'_>) {
        self.is_pending = false;
        self.feature.apply(&self.spec, target);
    }

    fn report(&self, of: <F::Level as Level>::Reported<'_>, what: Report, txn: &mut Transaction<'_>) {
        if F::IS_PROTOCOL || what != Report::Protocols {
            self.feature.report(of, what, txn);
        }
    }

    fn forget(&mut self, at: &Location, references: &mut References) {
        let (read, warnings) = (std::mem::take(&mut self.read), std::mem::take(&mut self.warnings));
        references.warn(&warnings, &BTreeSet::new());
        references.replace(&read, &crate::reader::Read::default(), at, F::NAME);
    }

    fn spec(&self) -> &dyn Any {
        &self.spec
    }

    fn describe(&self) -> String {
        format!("{}: {:?}", F::NAME, self.spec)
    }

    fn warnings(&self) -> &BTreeSet<String> {
        &self.warnings
    }
}

/// The settings of one object.
#[derive(Debug)]
pub struct Settings<L: Level>(Vec<Box<dyn Setting<L>>>);

impl<L: Level> Default for Settings<L> {
    /// All features of the level, not read yet.
    fn default() -> Self {
        Self(L::features())
    }
}

impl<L: Level> Settings<L> {
    /// Makes the features stale whose columns the change touches. Returns whether there are any.
    pub fn note(&mut self, change: &Change) -> bool {
        let mut is_any = false;
        for setting in &mut self.0 {
            if setting.columns().iter().any(|column| change.touches(*column)) {
                setting.set_stale();
                is_any = true;
            }
        }
        is_any
    }

    /// The same for the feature of this name only.
    pub fn note_for(&mut self, name: &str, change: &Change) -> bool {
        let setting = self.0.iter_mut().find(|setting| setting.name() == name);
        let setting = setting.filter(|setting| setting.columns().iter().any(|column| change.touches(*column)));
        setting.map(|setting| setting.set_stale()).is_some()
    }

    /// Has all settings read again.
    pub fn set_stale(&mut self) {
        self.0.iter_mut().for_each(|setting| setting.set_stale());
    }

    /// Has the settings applied again that follow `event`.
    pub fn follow(&mut self, event: Event) {
        self.0.iter_mut().for_each(|setting| setting.follow(event));
    }

    /// Reads what is stale; an object without rows has default settings. Returns whether something is to be applied.
    pub fn read(
        &mut self,
        db: &Replica,
        rows: Option<L::Rows<'_>>,
        at: &Location,
        (references, counts): (&mut References, &mut Counts),
    ) -> bool {
        for setting in self.0.iter_mut().filter(|setting| setting.is_stale()) {
            counts.0.entry(setting.name()).or_default().read += 1;
            setting.read(db, rows, at, references);
        }
        self.0.iter().any(|setting| setting.is_pending())
    }

    /// Applies what is to be applied, in the order of [`Level::features`].
    pub fn apply(&mut self, target: &mut L::Target<'_>, counts: &mut Counts) {
        for setting in self.0.iter_mut().filter(|setting| setting.is_pending()) {
            counts.0.entry(setting.name()).or_default().applied += 1;
            setting.apply(target);
        }
    }

    /// Writes the state of the object.
    pub fn report(&self, of: L::Reported<'_>, what: Report, txn: &mut Transaction<'_>) {
        self.0.iter().for_each(|setting| setting.report(of, what, txn));
    }

    /// Removes the object's references to rows.
    pub fn forget(&mut self, at: &Location, references: &mut References) {
        self.0.iter_mut().for_each(|setting| setting.forget(at, references));
    }

    /// The settings of a feature.
    pub fn spec<F: Feature<Level = L>>(&self) -> &F::Spec {
        let spec =
            self.0.iter().find_map(|setting| setting.spec().downcast_ref().filter(|_| setting.name() == F::NAME));
        spec.expect("every object has all features of its level")
    }

    /// All settings as text, one line a feature, for tests.
    pub fn describe(&self) -> Vec<String> {
        self.0.iter().map(|setting| setting.describe()).collect()
    }

    /// The warnings about all settings.
    pub fn warnings(&self) -> BTreeSet<String> {
        self.0.iter().flat_map(|setting| setting.warnings().iter().cloned()).collect()
    }
}
