//! The control thread's loop: database changes, link changes, the clock.

use crate::columns;
use crate::configuration::Configuration;
use crate::confinement::Confinement;
use crate::devices::Devices;
use crate::feature::{Counts, Report};
use crate::own_tls::OwnTls;
use crate::types::{DummyLevel, Types};
use base::Clock;
use ovsdb_client::schemas::vswitch;
use ovsdb_client::{Idl, LockState, Outcome};
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;

/// How often flows' statistics are pushed, and idle flows and timeouts looked for.
const REVALIDATE: Duration = Duration::from_millis(500);
/// How often the routes to controllers through the bridges are looked up.
const IN_BAND: Duration = Duration::from_secs(1);

/// How long changes of protocols' status are collected until they are written.
const STATUS_DELAY: Duration = Duration::from_millis(20);

/// Maximum number of interfaces whose statistics are written in one transaction.
const INTERFACES_PER_TRANSACTION: usize = 128;

/// How the switch is started.
#[derive(Clone, Debug)]
pub struct Options {
    /// The database's remote.
    pub remote: String,
    /// The sockets of bridges and of their controllers.
    pub confinement: Confinement,
    /// Which types there are.
    pub types: Types,
    /// Whether the switch writes the versions of itself, its schema and the system, too. Beside a database server of its
    /// own, that is work of the start script (ovs-ctl).
    pub host_versions: bool,
    /// Keys and certificates for the database's remote, and for all others where the database has none.
    pub tls: tls::Config,
}

/// A switch daemon without its process: the common part of `ovs-vswitchd` and `flowstone run`.
#[derive(Debug)]
pub struct Daemon {
    idl: Idl,
    /// All devices and datapaths.
    pub devices: Arc<Devices>,
    confinement: Confinement,
    configuration: Configuration,
    links_changed: Arc<Notify>,
    is_configured: bool,
    /// Whether the database was followed and the lock was held at the last change.
    is_active: bool,
    /// Whether another switch was seen to hold the lock.
    is_contended: bool,
    /// Whether the database may lack a part of what was written.
    is_unwritten: bool,
    /// Whether configuration changed while the switch was not active.
    is_due: bool,
}

/// A task that ends when dropped.
struct Background(tokio::task::JoinHandle<()>);

impl Background {
    fn start(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(work))
    }

    /// The clock's work: a wait for the database does not hold it up.
    fn housekeeping(devices: Arc<Devices>) -> Self {
        Self::start(async move {
            let mut tick = tokio::time::interval(REVALIDATE);
            tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut usage = tokio::time::interval(Duration::from_secs(dpif::INTERVAL_SECS));
            usage.set_missed_tick_behavior(MissedTickBehavior::Delay);
            // The first one is over at once.
            usage.tick().await;
            loop {
                tokio::select! {
                    _ = tick.tick() => {
                        devices.datapaths().iter().for_each(|(_, dp)| {
                            dp.switch.housekeeping();
                            dp.switch.release_held();
                        });
                        devices.underlay.run();
                    }
                    _ = usage.tick() => {
                        devices.all_datapaths().iter().for_each(|dp| _ = dp.dpif.tick());
                        // Nothing else has these clean up their flows.
                        devices.standalone.all().iter().for_each(|dp| dp.dpif.flow_stats(&mut |_, _| {}));
                    }
                }
            }
        })
    }
}

impl Background {
    /// Notifies `due` some milliseconds after each series of changes: they are written together.
    fn statuses(changed: Arc<Notify>, due: Arc<Notify>) -> Self {
        Self::start(async move {
            loop {
                changed.notified().await;
                tokio::time::sleep(STATUS_DELAY).await;
                due.notify_one();
            }
        })
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Daemon {
    /// A daemon that will connect to its database. Needs a tokio runtime.
    pub fn new(options: Options, clock: Clock) -> Result<Self, String> {
        if options.types.dummy != DummyLevel::Off {
            openflow::allow_debug_actions();
        }
        let tls = tls::Tls::new(options.tls.clone());
        let mut idl =
            Idl::new(&options.remote, &tls, vswitch::DATABASE, columns::wanted()).map_err(|e| e.to_string())?;
        idl.set_lock(Some("ovs_vswitchd"));
        let links_changed = Arc::new(Notify::new());
        let devices = Arc::new(Devices::new(options.types, clock, Arc::clone(&links_changed)));
        let is_tls = |remote: &str| ["ssl:", "pssl:"].iter().any(|method| remote.trim().starts_with(method));
        let is_used = options.remote.split(',').any(is_tls);
        let own_tls = OwnTls::new(tls, options.tls.clone(), is_used);
        let mut configuration =
            Configuration::new(Arc::clone(&devices), options.confinement.clone(), own_tls, options.tls.clone());
        configuration.host_versions = options.host_versions;
        Ok(Self {
            idl,
            devices,
            confinement: options.confinement,
            configuration,
            links_changed,
            is_configured: false,
            is_active: false,
            is_contended: false,
            is_unwritten: false,
            is_due: false,
        })
    }

    /// How often features were read and applied.
    pub fn counts(&self) -> Arc<Mutex<Counts>> {
        Arc::clone(&self.configuration.counts)
    }

    /// Serves for ever; `ready` is called once the first configuration is running.
    pub async fn run(&mut self, mut ready: impl FnMut()) {
        let _housekeeping = Background::housekeeping(Arc::clone(&self.devices));
        // With all devices dummies, the kernel's routes lead to none of them.
        let types = self.devices.types;
        let follows = types.dummy != DummyLevel::Override && !types.no_system_routes;
        let _routes = follows.then(|| Background::start(Arc::clone(&self.devices.underlay).follow_kernel()));
        let status_due = Arc::new(Notify::new());
        let _statuses = Background::statuses(Arc::clone(&self.devices.status_changed), Arc::clone(&status_due));
        let mut in_band = tokio::time::interval(IN_BAND);
        in_band.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let devices = Arc::clone(&self.devices);
        let mut next_stats = devices.clock.now().after(self.configuration.statistics_interval_ms());
        let mut was_ready = false;
        loop {
            tokio::select! {
                // Fails only for programs that do not reconnect.
                _ = self.idl.changed() => self.database_changed().await,
                () = self.links_changed.notified() => {
                    if self.is_configured {
                        self.configuration.look_for_changed_devices();
                        self.configure().await;
                    }
                }
                () = devices.underlay.has_requests.notified() => devices.send_requests(),
                () = status_due.notified() => self.write_protocols().await,
                _ = in_band.tick() => {
                    for bridge in self.configuration.bridges_mut() {
                        bridge.refresh_in_band();
                    }
                }
                () = devices.wait_until(next_stats) => {
                    next_stats = devices.clock.now().after(self.configuration.statistics_interval_ms());
                    if self.is_configured {
                        self.retry().await;
                        self.write(Report::Statistics, true).await;
                        if self.is_due {
                            self.database_changed().await;
                        }
                    }
                }
            }
            devices.idl_cells.store(self.idl.n_cells(), Ordering::Relaxed);
            if !was_ready && self.is_configured {
                was_ready = true;
                ready();
            }
        }
    }

    /// Tries again what failed and may succeed now although nothing announces it.
    async fn retry(&mut self) {
        let mut is_due = false;
        for bridge in self.configuration.bridges_mut() {
            bridge.retry_control(&self.confinement);
            is_due |= bridge.look_for_retries();
        }
        if is_due {
            self.configure().await;
        }
    }

    /// Notes changes of the database. Returns true if some are of the configuration.
    fn note_changes(&mut self) -> bool {
        let mut is_due = false;
        for change in self.idl.take_changes() {
            is_due |= self.configuration.note(&change);
        }
        is_due
    }

    /// Reacts to a change of the database's contents, connection or lock. While the database is away, everything stays as it is; while another
    /// switch holds the lock, nothing may run here.
    async fn database_changed(&mut self) {
        let is_due = self.note_changes();
        let is_contended = self.idl.lock_state() == Some(LockState::Contended);
        if is_contended && !self.is_contended {
            tracing::error!(
                target: "bridge",
                "another ovs-vswitchd process is running, disabling this process (pid {}) until it goes away",
                std::process::id()
            );
            self.configuration.clear().await;
            self.is_configured = false;
        }
        self.is_contended = is_contended;
        let is_active = self.idl.is_live() && self.idl.has_lock();
        let was_active = std::mem::replace(&mut self.is_active, is_active);
        let is_resumed = is_active && !was_active;
        // A server that was restarted has forgotten the columns that it keeps in memory only, like states of links.
        self.is_unwritten |= is_resumed;
        if is_active && (self.is_unwritten || is_due || self.is_due) {
            self.is_due = false;
            self.configure().await;
        } else {
            self.is_due |= is_due;
        }
    }

    /// Makes everything as the database says, and writes back the state of what changed. While the database is away, its
    /// last contents count.
    async fn configure(&mut self) {
        if self.idl.is_live() {
            // Whatever called for this, all that the database has is configured: `cur_cfg` says so afterwards.
            self.note_changes();
        }
        let db = self.idl.is_live().then(|| self.idl.replica());
        self.configuration.configure(db).await;
        self.is_configured = true;
        self.write(Report::Status, self.is_unwritten).await;
    }

    /// Writes the state of protocols.
    async fn write_protocols(&mut self) {
        if !self.is_configured || !self.idl.is_live() || !self.idl.has_lock() {
            return;
        }
        let mut txn = self.idl.transaction();
        self.configuration.report_protocols(&mut txn);
        self.is_unwritten |= !is_written(txn.commit().await);
    }

    async fn write(&mut self, what: Report, is_all: bool) {
        // Until it is written, it is not.
        let was_unwritten = std::mem::replace(&mut self.is_unwritten, true);
        if !self.idl.is_live() || !self.idl.has_lock() {
            return;
        }
        let mut counted = Vec::new();
        if what == Report::Statistics {
            // A transaction of all interfaces would keep the control thread from other work for long.
            counted = self.configuration.interfaces_after(None, INTERFACES_PER_TRANSACTION);
            while let (INTERFACES_PER_TRANSACTION, Some(last)) = (counted.len(), counted.last()) {
                let mut txn = self.idl.transaction();
                self.configuration.report_statistics(&counted, &mut txn);
                if !is_written(txn.commit().await) {
                    return;
                }
                // The server reports the written values back: they are noted in parts, too.
                self.is_due |= self.note_changes();
                tokio::task::yield_now().await;
                counted = self.configuration.interfaces_after(Some(last), INTERFACES_PER_TRANSACTION);
            }
        }
        let mut txn = self.idl.transaction();
        self.configuration.report_statistics(&counted, &mut txn);
        let written = self.configuration.report(what, is_all || was_unwritten, &mut txn);
        if is_written(txn.commit().await) {
            self.configuration.written(written);
            self.is_unwritten = false;
        }
    }
}

/// Returns true if the state is in the database. After a failure, the next change of the database, or its reconnection,
/// triggers another attempt.
fn is_written(outcome: Result<Outcome, ovsdb_client::Error>) -> bool {
    match outcome {
        Ok(Outcome::TryAgain) => false,
        Ok(_) => true,
        Err(e) => {
            tracing::warn!(target: "bridge", "could not write status to the database: {e}");
            false
        }
    }
}

#[cfg(test)]
mod tests;
