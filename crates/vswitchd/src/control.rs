//! The controllers of one bridge: connections as configured, the mode without controllers, and in-band control.

use crate::confinement::Confinement;
use crate::features::controllers::ControllersSpec;
use crate::features::in_band::InBandSpec;
use crate::features::routes::Routes;
use base::Millis;
use ofproto::conn::inband::InBand;
use ofproto::conn::service::DSCP;
use ofproto::{Ofproto, PeerKind, Service, ServiceConfig, Settings};
use openflow::flow_mod::{FlowMod, FlowModCommand};
use ovsdb_client::schemas::vswitch as db;
use ovsdb_client::typed::Ref;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{SocketAddr, SocketAddrV4};
use std::sync::Arc;
use tokio::task::JoinHandle;
use vlog::{RateLimit, err_rl};

/// How long next hops are taken to stay what they are, in milliseconds: if all are known, and if not.
const KNOWN_MS: u64 = 10_000;
const UNKNOWN_MS: u64 = 1_000;

/// Limit on errors about controllers that the database may not name.
static REFUSED: RateLimit = RateLimit::new(1, 5);

/// The OpenFlow connections of a bridge.
#[derive(Debug, Default)]
pub struct Control {
    /// Its controllers' connections, by row.
    pub controllers: BTreeMap<Ref<db::Controller>, Controller>,
    /// The management and the snooping socket.
    sockets: Vec<Service>,
    /// The mode that the flow tables were last emptied for.
    mode: Option<FlowMode>,
    /// The task that empties the flow tables, if there are very many flows.
    pub emptying: Option<JoinHandle<()>>,
    /// In-band control as configured; `None` where it is disabled.
    in_band: Option<InBandSpec>,
    /// In-band control as the switch has it.
    installed: Option<InBand>,
    /// When the next hops are to be resolved again.
    resolve_at: Millis,
}

/// A controller's connection, or why there is none.
#[derive(Debug)]
pub struct Controller {
    config: ServiceConfig,
    in_band: bool,
    /// The connection.
    pub service: Result<Service, String>,
}

/// The source of flows. When it changes, the flow tables start empty (ovs-vswitchd.conf.db(5), Bridge:fail_mode).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum FlowMode {
    /// Primary controllers.
    Controllers,
    /// No controller: the bridge drops packets until flows are added.
    Secure,
    /// No controller: the bridge is a learning switch.
    Standalone,
}

impl Control {
    /// Listens on the management and the snooping socket, and anew when other versions are to be spoken, or
    /// when that was not possible before.
    pub fn listen(&mut self, ofproto: &Arc<Ofproto>, spec: &ControllersSpec, confinement: &Confinement) {
        let settings = Settings { probe_ms: 0, packet_in_queue: spec.packet_in_queue, ..Settings::default() };
        let before: BTreeSet<String> = self.sockets.iter().map(|socket| socket.target().to_owned()).collect();
        self.sockets.retain(|socket| socket.versions() == spec.versions);
        self.sockets.iter().for_each(|socket| socket.configure(settings));
        for (suffix, kind) in [("mgmt", PeerKind::Service), ("snoop", PeerKind::Snoop)] {
            let target = confinement.own_target(ofproto.name(), suffix);
            if self.sockets.iter().any(|socket| socket.target() == target) {
                continue;
            }
            let is_new = kind == PeerKind::Service && !before.contains(&target);
            let config = ServiceConfig { target, kind, versions: spec.versions, dscp: DSCP, settings };
            match Service::start(ofproto, config) {
                Ok(service) => {
                    if is_new {
                        log_controller(ofproto, "added", service.target(), "service");
                    }
                    self.sockets.push(service);
                }
                Err(e) => tracing::error!(target: "connmgr", "{}: {e}", ofproto.name()),
            }
        }
    }

    /// Starts and stops connections to controllers. When the source of flows changes, empties the flow tables; a standalone
    /// bridge then has one flow, which forwards everything. Connections stay if only their settings change.
    pub fn configure(&mut self, ofproto: &Arc<Ofproto>, spec: &ControllersSpec, confinement: &Confinement) {
        self.connect(ofproto, spec, confinement);
        let mode = match (spec.controllers.iter().any(|c| c.primary), spec.fail_secure) {
            (true, _) => FlowMode::Controllers,
            (false, true) => FlowMode::Secure,
            (false, false) => FlowMode::Standalone,
        };
        if self.mode.replace(mode) != Some(mode) {
            self.emptying = ofproto.empty_tables(move |ofproto| {
                if mode == FlowMode::Standalone {
                    add_normal_flow(ofproto);
                }
            });
        }
        ofproto.set_fail_open(!spec.fail_secure);
    }

    /// Lets controllers and managers through the bridge from now on, or no longer.
    pub fn set_in_band(&mut self, ofproto: &Ofproto, in_band: Option<InBandSpec>) {
        self.in_band = in_band;
        self.refresh_in_band(ofproto);
    }

    fn connect(&mut self, ofproto: &Arc<Ofproto>, spec: &ControllersSpec, confinement: &Confinement) {
        let is_same = |a: &ServiceConfig, b: &ServiceConfig| ServiceConfig { settings: b.settings, ..a.clone() } == *b;
        let wanted: BTreeMap<Ref<db::Controller>, (ServiceConfig, bool)> = spec
            .controllers
            .iter()
            .filter(|c| {
                let refusal = confinement.refusal(ofproto.name(), &c.target);
                if let Some(refusal) = &refusal {
                    err_rl!(&REFUSED, target: "bridge", "{refusal}");
                }
                refusal.is_none()
            })
            .map(|c| {
                let config = ServiceConfig {
                    target: c.target.clone(),
                    kind: if c.primary { PeerKind::Controller } else { PeerKind::Service },
                    versions: spec.versions,
                    dscp: c.dscp,
                    settings: c.settings,
                };
                (c.row, (config, c.in_band))
            })
            .collect();
        let before = self.targets();
        self.controllers.retain(|row, running| wanted.get(row).is_some_and(|(c, _)| is_same(c, &running.config)));
        for (row, (config, in_band)) in wanted {
            let error = match self.controllers.get_mut(&row) {
                Some(running) => match &running.service {
                    Ok(service) => {
                        service.configure(config.settings);
                        (running.config, running.in_band) = (config, in_band);
                        continue;
                    }
                    Err(error) => Some(error.clone()),
                },
                None => None,
            };
            let service = Service::start(ofproto, config.clone());
            if let Err(e) = &service
                && error.as_ref() != Some(e)
            {
                tracing::error!(target: "connmgr", "{}: {e}", ofproto.name());
            }
            self.controllers.insert(row, Controller { config, in_band, service });
        }
        let after = self.targets();
        after.difference(&before).for_each(|(target, kind)| log_controller(ofproto, "added", target, kind));
        before.difference(&after).for_each(|(target, kind)| log_controller(ofproto, "removed", target, kind));
    }

    /// The targets of the controllers that are connected to or waited for, primary ones and those for service.
    fn targets(&self) -> BTreeSet<(String, &'static str)> {
        let is_served = |controller: &&Controller| controller.service.is_ok();
        let kind = |kind| if kind == PeerKind::Controller { "primary" } else { "service" };
        let target = |Controller { config, .. }: &Controller| (config.target.clone(), kind(config.kind));
        self.controllers.values().filter(is_served).map(target).collect()
    }

    /// Tries again to listen where that failed, for example because another process still had the address.
    pub fn retry(&mut self, ofproto: &Arc<Ofproto>, spec: &ControllersSpec, confinement: &Confinement) {
        self.listen(ofproto, spec, confinement);
        if self.controllers.values().any(|controller| controller.service.is_err()) {
            self.connect(ofproto, spec, confinement);
        }
    }

    /// Lets controllers and managers through the bridge. To be called at intervals, since names are resolved and
    /// neighbours become known in the course of time.
    pub fn refresh_in_band(&mut self, ofproto: &Ofproto) {
        let in_band = self.wanted_in_band(ofproto);
        if in_band != self.installed {
            ofproto.set_in_band(in_band.as_ref());
            self.installed = in_band;
        }
    }

    fn wanted_in_band(&mut self, ofproto: &Ofproto) -> Option<InBand> {
        let InBandSpec { managers, queue } = self.in_band.as_ref()?;
        let controllers = self.controllers.values().filter(|controller| controller.in_band);
        let addresses = controllers.filter_map(|controller| match controller.service.as_ref().ok()?.address()? {
            SocketAddr::V4(address) => Some(address),
            SocketAddr::V6(_) => None,
        });
        let remotes: BTreeSet<SocketAddrV4> = addresses.chain(managers.iter().copied()).collect();
        if remotes.is_empty() {
            return None;
        }
        let local = ofproto.port(base::PortNo::LOCAL)?.spec.mac;
        let now = ofproto.switch()?.clock().now();
        let next_hops = match &self.installed {
            Some(before) if before.remotes == remotes && now < self.resolve_at => before.next_hops.clone(),
            _ => {
                let routes = Routes::read();
                let stations = || remotes.iter().map(|remote| routes.station_on_the_way_to(*remote.ip()));
                self.resolve_at = now.after(if stations().all(|s| s.is_some()) { KNOWN_MS } else { UNKNOWN_MS });
                stations().flatten().collect()
            }
        };
        Some(InBand { local, remotes, next_hops, queue: *queue })
    }
}

fn log_controller(ofproto: &Ofproto, what: &str, target: &str, kind: &str) {
    tracing::info!(target: "connmgr", "{}: {what} {kind} controller \"{target}\"", ofproto.name());
}

fn add_normal_flow(ofproto: &Ofproto) {
    let mut normal = FlowMod::new(FlowModCommand::Add);
    normal.priority = 0;
    normal.actions = vec![openflow::Action::Output { port: base::PortNo::NORMAL, max_len: 0 }];
    if let Err(e) = ofproto.flow_mod(&normal) {
        tracing::error!(target: "ofproto", "{}: default flow: {e}", ofproto.name());
    }
}
