//! What Open_vSwitch:other_config says of caches, threads and limits, for all datapaths.

use crate::cores::Cores;
use crate::devices::Dp;
use crate::feature::{Event, Feature};
use crate::features::threads;
use crate::levels::{SwitchLevel, SwitchTarget};
use crate::reader::{Config, Reader};
use dpif::ThreadConfig;
use ofproto::Limits;
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::{OpenVSwitch, open_vswitch};
use ovsdb_client::typed::{AnyColumn, Row};

/// Settings; see ovs-vswitchd.conf.db(5) for the keys, but for `self-check`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tuning {
    /// `vlan-limit`: VLAN tags that keys tell of, 1 or 2.
    pub vlans_max: usize,
    /// `emc-insert-inv-prob`: one in so many packets enters the microflow cache, 0 for none.
    pub microflow_inverse_probability: u32,
    /// `n-handler-threads`: threads that answer misses, 0 for as many as fit the machine.
    pub handlers: usize,
    /// `n-revalidator-threads`: threads that revalidate flows, 0 for a quarter of the handler threads and one more.
    pub revalidators: usize,
    /// `pmd-*`: packet threads and their queues.
    pub threads: ThreadConfig,
    /// `pmd-perf-metrics`: packet threads keep a history of their rounds, and histograms are shown.
    pub metrics: bool,
    /// `flow-limit`, `max-idle`, `max-revalidator`, `min-revalidate-pps`: see [`Limits`].
    pub limits: Limits,
    /// `bundle-idle-timeout`: milliseconds after which a bundle is forgotten that nothing is done to.
    pub bundle_idle_ms: u64,
    /// `self-check`: every so many cached packets, one is decided about afresh; 0 for none.
    pub self_check: u64,
    /// `hw-offload`: flows go to an accelerator, if there is one.
    pub offload: bool,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            vlans_max: 1,
            microflow_inverse_probability: 100,
            handlers: 0,
            revalidators: 0,
            threads: ThreadConfig::default(),
            metrics: false,
            limits: Limits::default(),
            bundle_idle_ms: ofproto::BUNDLE_IDLE_MS,
            self_check: 0,
            offload: false,
        }
    }
}

/// Caches, threads and limits of all datapaths.
#[derive(Debug, Default)]
pub struct TuningFeature;

impl Feature for TuningFeature {
    type Level = SwitchLevel;
    type Spec = Tuning;
    const NAME: &'static str = "tuning";
    const COLUMNS: &'static [AnyColumn] = &columns! { open_vswitch { OTHER_CONFIG } };
    const FOLLOWS: &'static [Event] = &[Event::Datapath];

    fn read(reader: &Reader<'_>, root: Row<'_, OpenVSwitch>) -> Tuning {
        Tuning::read(root.get(open_vswitch::OTHER_CONFIG), &|warning| reader.warn(warning))
    }

    fn apply(&mut self, tuning: &Tuning, target: &mut SwitchTarget<'_>) {
        target.devices.hw_offload.store(tuning.offload, std::sync::atomic::Ordering::Relaxed);
        for (_, dp) in target.devices.datapaths() {
            // Threads are waited for.
            let tuning = tuning.clone();
            target.jobs.0.push(Box::new(move || tuning.apply(&dp)));
        }
    }
}

impl Tuning {
    /// Reads other_config of the row, and calls `warn` for values that cannot be used.
    pub fn read(config: Config<'_>, warn: &dyn Fn(String)) -> Self {
        let default = Self::default();
        let number = |key: &str, max: u64| {
            let text = config.get(key)?;
            let value = text.parse::<u64>().ok().filter(|n| *n <= max);
            if value.is_none() {
                warn(format!("switch: other_config:{key} is \"{text}\", which is not a number up to {max}"));
            }
            value
        };
        Self {
            // 0 stands for as many as there can be.
            vlans_max: match number("vlan-limit", u64::MAX) {
                None => default.vlans_max,
                Some(0) => flow::extract::VLANS,
                Some(tags) => flow::extract::VLANS.min(usize::try_from(tags).unwrap_or(usize::MAX)),
            },
            microflow_inverse_probability: number("emc-insert-inv-prob", u32::MAX.into())
                .map_or(default.microflow_inverse_probability, |n| n as u32),
            handlers: number("n-handler-threads", 64).map_or(default.handlers, |n| n as usize),
            revalidators: number("n-revalidator-threads", u32::MAX.into()).map_or(default.revalidators, |n| n as usize),
            threads: threads::read(config, &Cores::of_machine, warn),
            metrics: config.get("pmd-perf-metrics") == Some("true"),
            limits: Limits {
                flow_limit: number("flow-limit", u32::MAX.into()).unwrap_or(default.limits.flow_limit),
                max_idle_ms: number("max-idle", u32::MAX.into()).unwrap_or(default.limits.max_idle_ms),
                max_revalidator_ms: number("max-revalidator", u32::MAX.into())
                    .unwrap_or(default.limits.max_revalidator_ms),
                min_revalidate_pps: number("min-revalidate-pps", u32::MAX.into())
                    .unwrap_or(default.limits.min_revalidate_pps),
            },
            // In seconds, at least one.
            bundle_idle_ms: number("bundle-idle-timeout", u32::MAX.into())
                .map_or(default.bundle_idle_ms, |s| s.max(1) * 1000),
            self_check: number("self-check", u64::MAX).unwrap_or(default.self_check),
            offload: config.get("hw-offload") == Some("true"),
        }
    }

    /// Makes a datapath be so.
    pub fn apply(&self, dp: &Dp) {
        dp.switch.set_vlans_max(self.vlans_max);
        dp.dpif.set_microflow_inverse_probability(self.microflow_inverse_probability);
        if let Err(e) = dp.dpif.set_threads(&self.threads) {
            tracing::warn!(target: "dpif_netdev", "{e}");
        }
        dp.dpif.set_metrics(self.metrics);
        dp.dpif.set_self_check(self.self_check);
        dp.set_offload(self.offload);
        dp.dpif.set_flow_limit(self.limits.flow_limit);
        dp.switch.set_limits(self.limits);
        dp.switch.set_bundle_idle_ms(self.bundle_idle_ms);
        if let Err(e) = dp.dpif.set_handlers(self.handlers) {
            tracing::warn!(target: "bridge", "{e}");
        }
        let revalidators = match self.revalidators {
            0 => dp.dpif.n_handlers() / 4 + 1,
            n => n,
        };
        if let Err(e) = dp.switch.set_revalidator_threads(revalidators) {
            tracing::warn!(target: "bridge", "revalidator thread: {e}");
        }
    }
}
