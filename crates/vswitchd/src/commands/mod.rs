//! The control commands of the switch (ovs-vswitchd(8)), beside those of every daemon.
//!
//! - [`autoattach`]: LLDP; [`bond`]: bonds; [`connectivity`]: BFD and CFM; [`fdb`]: learned addresses; [`lacp`]: LACP; [`bridge`]: flows and lists of bridges; [`settings`]: features; [`classifier`]: how tables are searched; [`trace`]: `ofproto/trace`; [`upcall`]: `upcall/` and `revalidator/`;
//! - [`datapath`]: datapaths by bridge (`dpif/`); [`dpctl`]: datapaths by themselves, [`dpctl_flows`] and [`dpctl_ports`]: their flows and ports changed by hand; [`conntrack`]: connection tracking; [`drops`]: why packets were dropped; [`offload`]: what is forwarded below;
//! - [`flow_monitoring`]: sFlow and NetFlow;
//! - [`qos`]: queues of ports; [`pmd`]: packet threads; [`memory`]: `coverage/` and `memory/show`; [`dummy`]: dummy devices and the clock, for tests.
//!
//! Texts and errors are those of Open vSwitch, as scripts match them. A command that shows something has JSON for those
//! who ask for it (`ovs-appctl --format json`).

pub(crate) mod autoattach;
pub(crate) mod bond;
pub(crate) mod bridge;
mod classifier;
pub(crate) mod connectivity;
mod conntrack;
mod datapath;
mod dpctl;
mod dpctl_flows;
mod dpctl_ports;
mod drops;
mod dummy;
pub(crate) mod fdb;
pub(crate) mod flow_monitoring;
pub(crate) mod lacp;
mod memory;
mod offload;
mod pmd;
mod qos;
pub mod settings;
pub(crate) mod spanning_tree;
mod trace;
mod tunnel;
mod upcall;

use crate::devices::{Devices, Dp};
use crate::feature::Level;
use crate::levels::{BridgeLevel, InterfaceLevel, PortLevel, SwitchLevel};
use base::DpPort;
use ofproto::Ofproto;
use serde_json::Value;
use std::sync::Arc;
use unixctl::{Arity, Call, Commands, OutputFormat};

pub use memory::usage;

/// Registers the commands.
pub fn register(commands: &Commands, devices: &Arc<Devices>) {
    for_features::<SwitchLevel>(commands, devices);
    for_features::<BridgeLevel>(commands, devices);
    for_features::<PortLevel>(commands, devices);
    for_features::<InterfaceLevel>(commands, devices);
    bridge::register(commands, devices);
    classifier::register(commands, devices);
    trace::register(commands, devices);
    upcall::register(commands, devices);
    datapath::register(commands, devices);
    dpctl::register(commands, devices);
    dpctl_flows::register(commands, devices);
    dpctl_ports::register(commands, devices);
    conntrack::register(commands, devices);
    drops::register(commands, devices);
    offload::register(commands, devices);
    memory::register(commands, devices);
    pmd::register(commands, devices);
    qos::register(commands, devices);
    tunnel::register(commands, devices);
    dummy::register(commands, devices);
}

/// Registers the commands of the features of a level.
fn for_features<L: Level>(commands: &Commands, devices: &Arc<Devices>) {
    L::features().iter().for_each(|setting| setting.register(commands, devices));
}

/// What a command shows, in the form that was asked for.
enum Shown {
    Text(String),
    Json(Value),
}

impl From<String> for Shown {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Value> for Shown {
    fn from(value: Value) -> Self {
        Self::Json(value)
    }
}

/// Registers a command that has both a text and JSON.
fn show(
    commands: &Commands,
    devices: &Arc<Devices>,
    (name, usage, arity): (&str, &str, Arity),
    handler: impl Fn(&Devices, &[String], OutputFormat) -> Result<Shown, String> + Send + Sync + 'static,
) {
    let devices = Arc::clone(devices);
    commands.register_call(name, usage, arity, move |call: Call| {
        reply(handler(&devices, call.args(), call.format()), call);
    });
}

/// Registers a command that may take long: it runs on a thread of the blocking pool, so that the control thread goes on.
/// The caller's next command waits for the reply.
fn show_blocking(
    commands: &Commands,
    devices: &Arc<Devices>,
    (name, usage, arity): (&str, &str, Arity),
    handler: impl Fn(&Devices, &[String], OutputFormat) -> Result<Shown, String> + Send + Sync + 'static,
) {
    let (devices, handler) = (Arc::clone(devices), Arc::new(handler));
    commands.register_call(name, usage, arity, move |call: Call| {
        let (devices, handler) = (Arc::clone(&devices), Arc::clone(&handler));
        tokio::task::spawn_blocking(move || reply(handler(&devices, call.args(), call.format()), call));
    });
}

fn reply(outcome: Result<Shown, String>, call: Call) {
    match outcome {
        Ok(Shown::Text(text)) => call.reply(Ok(text)),
        Ok(Shown::Json(value)) => call.reply_json(value),
        Err(error) => call.reply(Err(error)),
    }
}

/// Registers a command that does something, and has a word for it at most.
fn act(
    commands: &Commands,
    devices: &Arc<Devices>,
    (name, usage, arity): (&str, &str, Arity),
    handler: impl Fn(&Devices, &[String]) -> Result<String, String> + Send + Sync + 'static,
) {
    let devices = Arc::clone(devices);
    commands.register(name, usage, arity, move |args| handler(&devices, args));
}

/// The bridge of this name, on whatever datapath.
fn find_bridge(devices: &Devices, name: &str) -> Option<Arc<Ofproto>> {
    devices.datapaths().into_iter().find_map(|(_, dp)| dp.switch.bridge_named(name))
}

/// All bridges, by name.
fn all_bridges(devices: &Devices) -> Vec<Arc<Ofproto>> {
    let mut all: Vec<_> = devices.datapaths().into_iter().flat_map(|(_, dp)| dp.switch.bridges()).collect();
    all.sort_by(|a, b| a.name().cmp(b.name()));
    all
}

/// A datapath's name, as `netdev@ovs-netdev`.
fn dp_name(kind: &str) -> String {
    format!("{kind}@ovs-{kind}")
}

/// The name of a datapath port.
fn port_name(dp: &Dp, port: DpPort) -> Option<String> {
    if let Some((bridge, no)) = dp.switch.port_of(port) {
        return dp.switch.bridge(bridge)?.port(no).map(|p| p.spec.name);
    }
    // Ports of a datapath without bridges.
    let device = dp.placements.at(port).map(|placement| placement.device.name().to_owned());
    device.or_else(|| dp.tunnel_ports.name(port))
}

/// The number of the datapath port of that name.
fn port_number(dp: &Dp, name: &str) -> Option<DpPort> {
    dp.dpif.ports().into_iter().find(|p| p.device.name() == name).map(|p| p.number)
}

/// A packet with this key and `payload` behind its headers.
fn compose(key: &flow::FlowKey, payload: &[u8]) -> packet::Packet {
    packet::Packet::from_slice(&flow::compose::compose(key, payload))
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().filter(|c| !c.is_ascii_whitespace()).map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    let digits = digits?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}
