//! The control thread's loop: database changes, link changes, the clock.

use crate::bridge::RunningBridge;
use crate::desired::{Desired, WANTED};
use crate::devices::{Devices, Types};
use crate::status;
use base::Clock;
use ovsdb_client::Idl;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, MissedTickBehavior};

/// How often flows' statistics are pushed, and idle flows and timeouts looked for.
const REVALIDATE: Duration = Duration::from_millis(500);
/// How often interface statistics are written, unless other_config:stats-update-interval says otherwise.
const STATS_MS: u64 = 5000;

/// What the switch is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// The database's remote.
    pub remote: String,
    /// Where the bridges' sockets go.
    pub rundir: PathBuf,
    /// Which types there are.
    pub types: Types,
}

/// A switch daemon without its process: what `ovs-vswitchd` and `flowstone run` have in common.
#[derive(Debug)]
pub struct Daemon {
    options: Options,
    idl: Idl,
    /// All devices and datapaths.
    pub devices: Arc<Devices>,
    bridges: BTreeMap<String, RunningBridge>,
    /// Bridges that could not be made, and why.
    failed: BTreeMap<String, String>,
    links_changed: Arc<Notify>,
    /// Woken by `exit`, `ofproto` commands and the like.
    poke: Arc<Notify>,
    desired: Desired,
    configured: bool,
}

impl Daemon {
    /// A daemon that will connect to its database. Needs a tokio runtime.
    pub fn new(options: Options, clock: Clock) -> Result<Self, String> {
        let mut idl = Idl::new(&options.remote, "Open_vSwitch", WANTED).map_err(|e| e.to_string())?;
        idl.set_lock(Some("ovs_vswitchd"));
        let links_changed = Arc::new(Notify::new());
        let devices = Arc::new(Devices::new(options.types, clock, Arc::clone(&links_changed)));
        Ok(Self {
            options,
            idl,
            devices,
            bridges: BTreeMap::new(),
            failed: BTreeMap::new(),
            links_changed,
            poke: Arc::new(Notify::new()),
            desired: Desired::default(),
            configured: false,
        })
    }

    /// Serves for ever; `ready` is called once the first configuration is running.
    pub async fn run(&mut self, mut ready: impl FnMut()) {
        let mut revalidate = tokio::time::interval(REVALIDATE);
        revalidate.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut next_stats = Instant::now() + Duration::from_millis(STATS_MS);
        let mut was_ready = false;
        loop {
            tokio::select! {
                // Fails only for programs that do not reconnect.
                _ = self.idl.changed() => {
                    // What changes together is worked on together; our own updates come back here, too.
                    let changes = self.idl.take_changes();
                    if !changes.is_empty() || !self.configured {
                        self.reconfigure().await;
                    }
                }
                () = self.links_changed.notified() => {
                    if self.configured {
                        self.links_changed().await;
                    }
                }
                () = self.poke.notified() => {}
                _ = revalidate.tick() => self.housekeeping(),
                () = tokio::time::sleep_until(next_stats) => {
                    next_stats = Instant::now() + Duration::from_millis(self.stats_interval_ms());
                    if self.configured {
                        self.write_statistics().await;
                    }
                }
            }
            if !was_ready && self.configured {
                was_ready = true;
                ready();
            }
        }
    }

    fn stats_interval_ms(&self) -> u64 {
        let wanted = self.desired.other_config.get("stats-update-interval").and_then(|v| v.parse().ok());
        wanted.unwrap_or(STATS_MS).max(STATS_MS)
    }

    /// Makes everything as the database says, and writes back what is.
    async fn reconfigure(&mut self) {
        if !self.idl.is_live() || !self.idl.has_lock() {
            return;
        }
        self.desired = Desired::read(self.idl.replica());
        self.apply();
        self.configured = true;
        self.write_status().await;
    }

    /// Devices came, went or changed: ports that could not be opened are tried again, those that are gone are closed.
    async fn links_changed(&mut self) {
        self.apply();
        self.write_status().await;
    }

    fn apply(&mut self) {
        base::coverage!(bridge_reconfigure);
        let desired = &self.desired;
        self.bridges.retain(|name, running| {
            desired.bridges.get(name).is_some_and(|spec| spec.datapath_type == running.datapath_type)
        });
        self.failed.clear();
        for (name, spec) in &desired.bridges {
            if !self.bridges.contains_key(name) {
                match RunningBridge::new(spec, &self.devices, &self.options.rundir) {
                    Ok(bridge) => {
                        self.bridges.insert(name.clone(), bridge);
                    }
                    Err(e) => {
                        tracing::error!(target: "bridge", "failed to create bridge {name}: {e}");
                        self.failed.insert(name.clone(), e);
                    }
                }
            }
        }
        for (name, bridge) in &mut self.bridges {
            bridge.configure_interfaces(&desired.bridges[name], &self.devices);
        }
        // A patch port's peer may be on any bridge of the same datapath.
        let mut patches: BTreeMap<(String, String), (u32, base::PortNo, String)> = BTreeMap::new();
        for bridge in self.bridges.values() {
            for name in bridge.interfaces.keys() {
                if let Some((id, no, peer)) = bridge.find_patch(name) {
                    patches.insert((bridge.datapath_type.clone(), name.clone()), (id, no, peer.to_owned()));
                }
            }
        }
        for (name, bridge) in &mut self.bridges {
            let spec = &desired.bridges[name];
            let kind = bridge.datapath_type.clone();
            bridge.connect(spec, &|own, peer| {
                let (id, no, back) = patches.get(&(kind.clone(), peer.to_owned()))?;
                (back == own).then_some((*id, *no))
            });
            if bridge.speaks_otherwise(spec) {
                bridge.listen_again(spec, &self.options.rundir);
            }
            bridge.configure_controllers(spec);
        }
    }

    async fn write_status(&mut self) {
        let (desired, bridges, failed, devices) = (&self.desired, &self.bridges, &self.failed, &self.devices);
        let outcome = self.idl.transact(|txn| status::write(txn, desired, bridges, failed, devices)).await;
        if let Err(e) = outcome {
            tracing::warn!(target: "bridge", "could not write status to the database: {e}");
        }
    }

    async fn write_statistics(&mut self) {
        if !self.idl.is_live() || !self.idl.has_lock() {
            return;
        }
        let (desired, bridges, failed, devices) = (&self.desired, &self.bridges, &self.failed, &self.devices);
        let outcome = self
            .idl
            .transact(|txn| {
                status::write(txn, desired, bridges, failed, devices);
                status::write_statistics(txn, bridges);
            })
            .await;
        if let Err(e) = outcome {
            tracing::warn!(target: "bridge", "could not write statistics to the database: {e}");
        }
    }

    /// The clock's work: statistics, idle datapath flows, timeouts.
    fn housekeeping(&self) {
        for (_, dp) in self.devices.datapaths() {
            dp.switch.housekeeping();
        }
    }
}
