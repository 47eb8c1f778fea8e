//! The modules and their levels.
//!
//! A module exists from the start if it is well known, and else from the first time a call site or a program names it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

use parking_lot::RwLock;

use crate::level::{Destination, Level};

/// The modules of Open vSwitch's daemons, in the order of `vlog/list`: scripts pass their names to `-v` and `vlog/set`.
const OF_PROGRAMS: [(&str, &str); 4] = [
    ("ovsdb-server", include_str!("modules/ovsdb-server.txt")),
    ("ovsdb-client", include_str!("modules/ovsdb-client.txt")),
    ("ovs-vswitchd", include_str!("modules/ovs-vswitchd.txt")),
    ("ovs-testcontroller", include_str!("modules/ovs-testcontroller.txt")),
];

/// Modules of other programs.
const OF_OTHERS: &[&str] = &["dpctl", "ovs_ofctl", "vsctl", "vtep_ctl", "vswitchd", "xlate"];

/// The modules of a program; those of all for programs that have no list.
fn well_known(program: &str) -> Vec<&'static str> {
    match OF_PROGRAMS.iter().find(|(name, _)| *name == program) {
        Some((_, modules)) => modules.split_whitespace().collect(),
        None => {
            let daemons = OF_PROGRAMS.iter().flat_map(|(_, modules)| modules.split_whitespace());
            daemons.chain(OF_OTHERS.iter().copied()).collect()
        }
    }
}

/// The level of every destination at the start.
const DEFAULT_LEVEL: Level = Level::Info;

/// One module.
#[derive(Debug)]
pub(crate) struct Module {
    levels: [AtomicU8; 3],
    honor_rate_limits: AtomicBool,
}

impl Module {
    fn new(levels: [Level; 3]) -> Self {
        Self { levels: levels.map(|level| AtomicU8::new(level as u8)), honor_rate_limits: AtomicBool::new(true) }
    }

    pub(crate) fn level(&self, destination: Destination) -> Level {
        Level::from_u8(self.levels[destination.index()].load(Relaxed))
    }

    fn set_level(&self, destination: Destination, level: Level) {
        self.levels[destination.index()].store(level as u8, Relaxed);
    }
}

/// All modules. Levels set for all modules also apply to modules created later.
#[derive(Debug)]
pub(crate) struct Modules {
    table: RwLock<BTreeMap<String, Arc<Module>>>,
    defaults: Module,
}

impl Modules {
    /// The modules of a program.
    pub(crate) fn of(program: &str) -> Self {
        let modules = Self { table: RwLock::default(), defaults: Module::new([DEFAULT_LEVEL; 3]) };
        for name in well_known(program) {
            modules.obtain(name);
        }
        modules
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.table.read().contains_key(name)
    }

    /// Returns the module of that name, creating it if needed.
    pub(crate) fn obtain(&self, name: &str) -> Arc<Module> {
        if let Some(module) = self.table.read().get(name) {
            return Arc::clone(module);
        }
        let mut table = self.table.write();
        Arc::clone(table.entry(name.to_owned()).or_insert_with(|| {
            let mut levels = [DEFAULT_LEVEL; 3];
            for destination in Destination::ALL {
                levels[destination.index()] = self.defaults.level(destination);
            }
            let module = Module::new(levels);
            module.honor_rate_limits.store(self.defaults.honor_rate_limits.load(Relaxed), Relaxed);
            Arc::new(module)
        }))
    }

    /// Runs `change` on the module of that name, or on all modules and the defaults.
    fn change(&self, name: Option<&str>, change: impl Fn(&Module)) {
        if let Some(name) = name {
            change(&self.obtain(name));
            return;
        }
        change(&self.defaults);
        self.table.read().values().for_each(|module| change(module));
    }

    pub(crate) fn set_level(&self, name: Option<&str>, destination: Option<Destination>, level: Level) {
        self.change(name, |module| match destination {
            Some(destination) => module.set_level(destination, level),
            None => Destination::ALL.into_iter().for_each(|destination| module.set_level(destination, level)),
        });
    }

    pub(crate) fn set_honor_rate_limits(&self, name: Option<&str>, honor: bool) {
        self.change(name, |module| module.honor_rate_limits.store(honor, Relaxed));
    }

    pub(crate) fn honors_rate_limits(&self, name: &str) -> bool {
        self.table.read().get(name).is_none_or(|module| module.honor_rate_limits.load(Relaxed))
    }

    /// The least severe level that any module has for one of `destinations`.
    pub(crate) fn most_verbose(&self, destinations: &[Destination]) -> Level {
        let table = self.table.read();
        let modules = table.values().map(AsRef::as_ref).chain([&self.defaults]);
        modules
            .flat_map(|module| destinations.iter().map(|destination| module.level(*destination)))
            .max()
            .unwrap_or(Level::Off)
    }

    /// `vlog/list`.
    pub(crate) fn list(&self) -> String {
        let mut out =
            "                 console    syslog    file\n                 -------    ------    ------\n".to_owned();
        for (name, module) in self.table.read().iter() {
            out.push_str(&format!(
                "{name:<16}  {:>4}       {:>4}       {:>4}",
                module.level(Destination::Console).name(),
                module.level(Destination::Syslog).name(),
                module.level(Destination::File).name()
            ));
            if !module.honor_rate_limits.load(Relaxed) {
                out.push_str("    (rate limiting disabled)");
            }
            out.push('\n');
        }
        out
    }
}
