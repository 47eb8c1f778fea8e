//! The text of `stp/show` and `rstp/show`, in the format of Open vSwitch 4.0.0.

use crate::id::{BridgeId, Times, to_ms};
use crate::status::{BridgeStatus, PortStatus, Protocol, State};
use std::fmt::Write;

/// The text about one bridge.
pub fn bridge(status: &BridgeStatus) -> String {
    let mut out = format!("---- {} ----\nRoot ID:\n", status.name);
    identity(status.protocol, status.root, status.root_times, &mut out);
    match status.root_port() {
        None => out.push_str("  This bridge is the root\n"),
        Some(port) => {
            writeln!(out, "  root-port       {}", port.name).expect("strings take everything");
            writeln!(out, "  root-path-cost  {}", status.root_path_cost).expect("strings take everything");
        }
    }
    out.push_str("\nBridge ID:\n");
    identity(status.protocol, status.id, status.own_times, &mut out);
    // The columns of costs differ: a cost of STP has 5 digits at most, one of RSTP 9.
    let (cost, line) = match status.protocol {
        Protocol::Stp => ("Cost ", "-----"),
        Protocol::Rstp => ("Cost    ", "--------"),
    };
    writeln!(out, "\n  Interface  Role       State      {cost} Pri.Nbr ").expect("strings take everything");
    writeln!(out, "  ---------- ---------- ---------- {line} -------").expect("strings take everything");
    // As in Open vSwitch, disabled ports are in the list of RSTP only.
    let is_listed = |port: &&PortStatus| status.protocol == Protocol::Rstp || port.state != State::Disabled;
    status.ports.iter().filter(is_listed).for_each(|one| port(status.protocol, one, &mut out));
    out.push('\n');
    out
}

fn identity(protocol: Protocol, id: BridgeId, times: Times, out: &mut String) {
    let priority = match protocol {
        Protocol::Stp => "stp-priority  ",
        Protocol::Rstp => "stp-priority    ",
    };
    let seconds = |time: u16| to_ms(time) / 1000;
    writeln!(out, "  {priority}{}", id.priority()).expect("strings take everything");
    writeln!(out, "  stp-system-id   {}", id.address()).expect("strings take everything");
    writeln!(out, "  stp-hello-time  {}s", seconds(times.hello_time)).expect("strings take everything");
    writeln!(out, "  stp-max-age     {}s", seconds(times.max_age)).expect("strings take everything");
    writeln!(out, "  stp-fwd-delay   {}s", seconds(times.forward_delay)).expect("strings take everything");
}

fn port(protocol: Protocol, port: &PortStatus, out: &mut String) {
    let name = &port.name;
    let (priority, number) = port.number(protocol);
    match protocol {
        Protocol::Stp => writeln!(
            out,
            "  {name:<10} {:<10} {:<10} {:<5} {priority}.{number}",
            port.role.stp_name(),
            port.state.stp_name(),
            port.path_cost
        ),
        Protocol::Rstp => writeln!(
            out,
            "  {name:<10} {:<10} {:<10} {:<9}{priority}.{number}",
            port.role.rstp_name(),
            port.state.rstp_name(),
            port.path_cost
        ),
    }
    .expect("strings take everything");
}

impl PortStatus {
    /// The priority and the number in its port identifier. With RSTP, the priority is a multiple of 16.
    pub fn number(&self, protocol: Protocol) -> (u16, u16) {
        match protocol {
            Protocol::Stp => (self.id.0 >> 8, self.id.0 & 0xff),
            Protocol::Rstp => (self.id.0 >> 8 & 0xf0, self.id.0 & 0xfff),
        }
    }
}
