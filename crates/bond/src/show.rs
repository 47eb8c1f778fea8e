//! The replies to `bond/list` and `bond/show`, in the format of Open vSwitch 4.0.0; bonds and members by name.
//!
//! The number of a bond stands where Open vSwitch shows the recirculation id that it reserves for the bond.

use crate::bond::{Bond, Member};
use crate::commands::CommandError;
use crate::machine::Bonds;
use crate::settings::Mode;
use base::{BridgePort, MacAddr, Millis};
use std::fmt::Write;

/// The first line of the reply to `bond/list`.
pub const LIST_HEADER: &str = "bond\ttype\trecircID\tmembers\n";

impl Bonds {
    /// The reply to `bond/list` without its first line ([`LIST_HEADER`]).
    pub fn list(&self) -> String {
        let mut out = String::new();
        for bond in self.bonds.values() {
            let members: Vec<&str> = by_name(bond).into_iter().map(|(_, member)| &*member.name).collect();
            let (mode, number) = (bond.settings.mode.name(), bond.number);
            line(&mut out, format_args!("{}\t{mode}\t{number}\t{}", bond.name, members.join(", ")));
        }
        out
    }

    /// The reply to `bond/show`, for one bond or all of them.
    pub fn show(&mut self, bond: Option<&str>, now: Millis) -> Result<String, CommandError> {
        self.bonds.values_mut().for_each(Bond::collect_loads);
        let mut out = String::new();
        match bond {
            Some(name) => show(self.bonds.get(name).ok_or(CommandError::NoBond)?, now, &mut out),
            None => self.bonds.values().for_each(|bond| show(bond, now, &mut out)),
        }
        Ok(out)
    }
}

fn by_name(bond: &Bond) -> Vec<(&BridgePort, &Member)> {
    let mut members: Vec<_> = bond.members.iter().collect();
    members.sort_by_key(|(_, member)| &member.name);
    members
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    writeln!(out, "{text}").expect("strings take everything");
}

fn show(bond: &Bond, now: Millis, out: &mut String) {
    let settings = &bond.settings;
    line(out, format_args!("---- {} ----", bond.name));
    line(out, format_args!("bond_mode: {}", settings.mode.name()));
    match settings.mode {
        Mode::BalanceTcp => line(out, format_args!("bond may use recirculation: yes, Recirc-ID : {}", bond.number)),
        _ => line(out, format_args!("bond may use recirculation: no, Recirc-ID : -1")),
    }
    line(out, format_args!("bond-hash-basis: {}", settings.hash_basis));
    if settings.uses_lb_output() {
        line(out, format_args!("lb_output action: enabled, bond-id: {}", bond.number));
    } else {
        line(out, format_args!("lb_output action: disabled, bond-id: -1"));
    }
    if settings.mode == Mode::BalanceSlb {
        line(out, format_args!("all members active: {}", settings.all_members_active));
    }
    line(out, format_args!("updelay: {} ms", settings.updelay_ms));
    line(out, format_args!("downdelay: {} ms", settings.downdelay_ms));
    if let Some(due) = bond.next_rebalance {
        line(out, format_args!("next rebalance: {} ms", due.0 as i64 - now.0 as i64));
    }
    line(out, format_args!("lacp_status: {}", bond.lacp.name()));
    line(out, format_args!("lacp_fallback_ab: {}", settings.lacp_fallback));
    let is_missing = |name: &str| !bond.members.values().any(|member| *member.name == *name);
    match settings.primary().map(|name| &**name) {
        Some(name) if is_missing(name) => line(out, format_args!("active-backup primary: {name} (no such member)")),
        primary => line(out, format_args!("active-backup primary: {}", primary.unwrap_or("<none>"))),
    }
    let active = bond.active.and_then(|port| bond.members.get(&port));
    let (mac, name) = active.map_or((MacAddr::ZERO, "none"), |member| (member.mac, &*member.name));
    line(out, format_args!("active member mac: {mac}({name})"));
    line(out, format_args!(""));
    by_name(bond).into_iter().for_each(|(port, member)| show_member(bond, *port, member, now, out));
}

fn show_member(bond: &Bond, port: BridgePort, member: &Member, now: Millis, out: &mut String) {
    line(out, format_args!("member {}: {}", member.name, if member.enabled { "enabled" } else { "disabled" }));
    if bond.active == Some(port) {
        line(out, format_args!("  active member"));
    }
    if let Some(due) = member.delay {
        let which = if member.enabled { "downdelay" } else { "updelay" };
        line(out, format_args!("  {which} expires in {} ms", due.0 as i64 - now.0 as i64));
    }
    line(out, format_args!("  may_enable: {}", member.is_up()));
    if bond.settings.mode != Mode::ActiveBackup {
        for (i, bucket) in bond.buckets.iter().enumerate() {
            let kilobytes = bucket.load / 1024;
            if bucket.owner == Some(port) && kilobytes > 0 {
                line(out, format_args!("  hash {i}: {kilobytes} kB load"));
            }
        }
    }
    line(out, format_args!(""));
}
