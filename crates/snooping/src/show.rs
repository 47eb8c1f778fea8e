//! The text of `mdb/show`, in the format of Open vSwitch 4.0.0.

use crate::message::Version;
use crate::table::Table;
use base::Millis;
use std::fmt::Write;
use std::net::IpAddr;

/// A line: a member of a group, or a router.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row<P> {
    /// The bundle's port.
    pub port: P,
    /// VLAN.
    pub vlan: u16,
    /// The group with the version of its last report; `None` for a router.
    pub group: Option<(IpAddr, Version)>,
    /// Seconds since the bundle was last heard of.
    pub age_secs: u64,
}

impl<P> Row<P> {
    /// The same line with another name of the port.
    pub fn with_port<Q>(&self, port: Q) -> Row<Q> {
        Row { port, vlan: self.vlan, group: self.group, age_secs: self.age_secs }
    }
}

/// Returns the members of all groups, and then all routers, each list in the order of the last messages. `port_of` names the
/// port of a bundle; bundles without one are left out.
pub fn rows<P>(table: &Table, now: Millis, port_of: impl Fn(&str) -> Option<P>) -> Vec<Row<P>> {
    let age_secs = |at: Millis| now.since(at) / 1000;
    let mut rows = Vec::new();
    for ((vlan, address), group) in table.groups() {
        for member in group.members() {
            let Some(port) = port_of(&member.bundle) else { continue };
            let group = Some((address, group.version));
            rows.push(Row { port, vlan, group, age_secs: age_secs(member.at) });
        }
    }
    for (vlan, router) in table.all_routers() {
        let Some(port) = port_of(&router.bundle) else { continue };
        rows.push(Row { port, vlan, group: None, age_secs: age_secs(router.at) });
    }
    rows
}

/// The reply to `mdb/show`.
pub fn text<P: std::fmt::Display>(rows: &[Row<P>]) -> String {
    let mut out = String::from(" port  VLAN  protocol  GROUP                Age\n");
    for Row { port, vlan, group, age_secs } in rows {
        let port = port.to_string();
        match group {
            Some((address, version)) => {
                writeln!(out, "{port:>5}  {vlan:>4}  {:<8}  {address}         {age_secs:>3}", version.name())
            }
            None => writeln!(out, "{port:>5}  {vlan:>4}  UNKNOWN   querier             {age_secs:>3}"),
        }
        .expect("strings take everything");
    }
    out
}
