//! A bridge's NetFlow exporter: it counts the packets of cached flows when their statistics are pushed, and the packets
//! that missed the cache, so that each packet is counted once. A record ends when the cached flow goes, or after the
//! active timeout.

use super::ExportCounters;
use super::collector::Collectors;
use super::worker::Export;
use crate::bridge::Ofproto;
use crate::switch::Switch;
use ::netflow::{Config, Exporter, Now, Traffic};
use base::{Clock, Millis};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{SystemTime, UNIX_EPOCH};
use xlate::Effect;

/// The largest number of datagrams that wait to be sent.
const OUTBOX: usize = 4096;

/// The configuration of an exporter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetflowSettings {
    /// Collectors, over UDP.
    pub targets: BTreeSet<SocketAddr>,
    /// Type of the engine; `None` for the datapath's.
    pub engine_type: Option<u8>,
    /// Number of the engine; `None` for the datapath's.
    pub engine_id: Option<u8>,
    /// Seconds after which a flow that has not ended is exported; `None` for never.
    pub active_timeout_secs: Option<u32>,
    /// Puts the engine's number into the numbers of interfaces.
    pub add_id_to_interface: bool,
}

/// A running exporter.
#[derive(Debug)]
pub(crate) struct NetflowExport {
    clock: Clock,
    state: Mutex<State>,
    /// Locked after `state`, by the thread that sends.
    collectors: Mutex<Collectors>,
}

#[derive(Debug)]
struct State {
    settings: NetflowSettings,
    exporter: Exporter,
    outbox: Vec<Vec<u8>>,
    counters: ExportCounters,
}

impl State {
    /// Takes the datagrams to be sent.
    fn take(&mut self, now: Now) -> Vec<Vec<u8>> {
        self.exporter.send(now, &mut self.outbox);
        std::mem::take(&mut self.outbox)
    }

    /// Drops datagrams that the thread does not send in time.
    fn bound(&mut self) {
        if self.outbox.len() > OUTBOX {
            base::coverage!(netflow_queue_full);
            self.counters.lost += (self.outbox.len() - OUTBOX) as u64;
            self.outbox.truncate(OUTBOX);
        }
    }
}

/// Counted packets of a cached flow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) tcp_flags: u16,
    /// When the last packet came.
    pub(crate) used: Millis,
}

impl NetflowExport {
    fn new(settings: NetflowSettings, config: Config, clock: &Clock) -> Self {
        let collectors = Mutex::new(Collectors::new(&settings.targets));
        let exporter = Exporter::new(config, clock.now());
        let state = State { settings, exporter, outbox: Vec::new(), counters: ExportCounters::default() };
        Self { clock: clock.clone(), state: Mutex::new(state), collectors }
    }

    fn now(&self) -> Now {
        Now { at: self.clock.now(), unix: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default() }
    }

    fn reconfigure(&self, settings: NetflowSettings, config: Config) {
        let mut state = self.state.lock();
        state.exporter.reconfigure(config);
        if settings.targets != state.settings.targets {
            *self.collectors.lock() = Collectors::new(&settings.targets);
        }
        state.settings = settings;
    }

    fn count(&self, counted: &xlate::CountedFlow, by: Counted) {
        let Counted { packets, bytes, tcp_flags, used } = by;
        let traffic = Traffic { packets, bytes, tcp_flags: tcp_flags as u8, first: used, last: used };
        let (now, mut state) = (self.now(), self.state.lock());
        let State { exporter, outbox, .. } = &mut *state;
        exporter.count(counted.flow, counted.output, &traffic, now, outbox);
        state.bound();
    }

    fn end_flow(&self, counted: &xlate::CountedFlow) {
        let (now, mut state) = (self.now(), self.state.lock());
        let State { exporter, outbox, .. } = &mut *state;
        exporter.end(&counted.flow, now, outbox);
        state.bound();
    }

    fn send(&self, datagrams: &[Vec<u8>]) {
        let (mut sent, mut failed) = (0, 0);
        let mut collectors = self.collectors.lock();
        for datagram in datagrams {
            let (more, less) = collectors.send(datagram);
            (sent, failed) = (sent + more, failed + less);
        }
        drop(collectors);
        if !datagrams.is_empty() {
            let mut state = self.state.lock();
            state.counters.sent += sent;
            state.counters.send_errors += failed;
        }
    }
}

impl Export for NetflowExport {
    fn run(&self, _: Millis) -> Option<Millis> {
        let (now, mut state) = (self.now(), self.state.lock());
        let State { exporter, outbox, .. } = &mut *state;
        exporter.run(now, outbox);
        let (datagrams, deadline) = (state.take(now), state.exporter.deadline());
        drop(state);
        self.send(&datagrams);
        deadline
    }

    fn end(&self, _: Millis) {
        let (now, mut state) = (self.now(), self.state.lock());
        let State { exporter, outbox, .. } = &mut *state;
        exporter.flush(now, outbox);
        let datagrams = state.take(now);
        drop(state);
        self.send(&datagrams);
    }
}

impl Ofproto {
    /// Sets the bridge's NetFlow exporter. An exporter keeps its flows when its settings change; a removed one exports
    /// those that it has.
    pub fn set_netflow(&self, settings: Option<NetflowSettings>) {
        let old = self.netflow.load_full();
        let Some(switch) = self.switch() else { return };
        match (old, settings) {
            (None, None) => {}
            (Some(old), Some(settings)) => {
                let config = switch.netflow_config(&settings);
                old.reconfigure(settings, config);
                switch.export.wake();
            }
            (None, Some(settings)) => {
                let config = switch.netflow_config(&settings);
                let new = Arc::new(NetflowExport::new(settings, config, switch.clock()));
                let weak: Weak<NetflowExport> = Arc::downgrade(&new);
                switch.export.begin(weak, switch.clock());
                self.netflow.store(Some(new));
                self.rebuild();
            }
            (Some(old), None) => {
                self.netflow.store(None);
                self.rebuild();
                switch.export.end(old);
            }
        }
    }

    /// Counters of the exporter, if the bridge has one, and those of its cache.
    pub fn netflow_stats(&self) -> Option<(ExportCounters, ::netflow::Stats)> {
        let exporter = self.netflow.load_full()?;
        let state = exporter.state.lock();
        Some((state.counters.clone(), state.exporter.stats()))
    }
}

impl Switch {
    /// The configuration of an exporter. The engine is that of the datapath unless settings name another one.
    fn netflow_config(&self, settings: &NetflowSettings) -> Config {
        let [id, kind] = engine_of(self.datapath_name());
        Config {
            engine_type: settings.engine_type.unwrap_or(kind),
            engine_id: settings.engine_id.unwrap_or(id),
            active_timeout_secs: settings.active_timeout_secs,
            add_id_to_interface: settings.add_id_to_interface,
        }
    }

    /// Counts packets with these effects for NetFlow.
    pub(crate) fn count_for_netflow(&self, effects: &[Effect], by: Counted) {
        for effect in effects {
            if let Effect::NetFlow(counted) = effect
                && let Some(exporter) = self.bridge(counted.bridge).and_then(|bridge| bridge.netflow.load_full())
            {
                exporter.count(counted, by);
            }
        }
    }

    /// Notes that a cached flow with these effects is gone.
    pub(crate) fn end_for_netflow(&self, effects: &[Effect]) {
        for effect in effects {
            if let Effect::NetFlow(counted) = effect
                && let Some(exporter) = self.bridge(counted.bridge).and_then(|bridge| bridge.netflow.load_full())
            {
                exporter.end_flow(counted);
                self.export.wake();
            }
        }
    }
}

/// The number and the type of the engine that a datapath is, from its name: collectors tell datapaths of one host apart by them.
fn engine_of(datapath: &str) -> [u8; 2] {
    let hash = datapath.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let [id, kind, ..] = hash.to_le_bytes();
    [id, kind]
}
