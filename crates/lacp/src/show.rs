//! The output of `lacp/show` and `lacp/show-stats`, in the format of Open vSwitch 4.0.0.

use crate::machine::{BondStatus, MemberStatus, Mode, Negotiation, Timeout};
use crate::pdu::Info;
use std::fmt::{Result, Write};

const INFALLIBLE: &str = "strings take everything";

/// The reply to `lacp/show`.
pub fn show(bonds: &[BondStatus]) -> String {
    let mut out = String::new();
    bonds.iter().try_for_each(|status| bond(status, &mut out)).expect(INFALLIBLE);
    out
}

fn bond(bond: &BondStatus, out: &mut String) -> Result {
    let settings = &bond.settings;
    writeln!(out, "---- {} ----", bond.name)?;
    out.push_str(match settings.mode {
        Mode::Active => "  status: active",
        Mode::Passive => "  status: passive",
    });
    out.push_str(match bond.negotiation {
        Negotiation::Negotiated => " negotiated\n",
        Negotiation::Configured => "\n",
    });
    writeln!(out, "  sys_id: {}", settings.system)?;
    writeln!(out, "  sys_priority: {}", settings.system_priority)?;
    writeln!(out, "  aggregation key: {}", bond.key)?;
    out.push_str(match settings.timeout {
        Timeout::Fast => "  lacp_time: fast\n",
        Timeout::Slow => "  lacp_time: slow\n",
    });
    bond.members.iter().try_for_each(|status| member(status, out))
}

fn member(member: &MemberStatus, out: &mut String) -> Result {
    let attached = if member.attached { "attached" } else { "detached" };
    writeln!(out, "\nmember: {}: {} {attached}", member.name, member.currency.name())?;
    writeln!(out, "  port_id: {}", member.actor.port)?;
    writeln!(out, "  port_priority: {}", member.actor.port_priority)?;
    writeln!(out, "  may_enable: {}", member.may_enable)?;
    info("actor", &member.actor, out)?;
    info("partner", &member.partner, out)
}

fn info(whose: &str, info: &Info, out: &mut String) -> Result {
    writeln!(out, "\n  {whose} sys_id: {}", info.system)?;
    writeln!(out, "  {whose} sys_priority: {}", info.system_priority)?;
    writeln!(out, "  {whose} port_id: {}", info.port)?;
    writeln!(out, "  {whose} port_priority: {}", info.port_priority)?;
    writeln!(out, "  {whose} key: {}", info.key)?;
    write!(out, "  {whose} state:")?;
    info.state.names().try_for_each(|name| write!(out, " {name}"))?;
    writeln!(out)
}

/// The reply to `lacp/show-stats`.
pub fn statistics(bonds: &[BondStatus]) -> String {
    let mut out = String::new();
    for bond in bonds {
        writeln!(out, "---- {} statistics ----", bond.name).expect(INFALLIBLE);
        bond.members.iter().try_for_each(|member| counters(member, &mut out)).expect(INFALLIBLE);
    }
    out
}

fn counters(member: &MemberStatus, out: &mut String) -> Result {
    writeln!(out, "\nmember: {}:", member.name)?;
    let counters = &member.statistics;
    [
        ("TX PDUs", counters.tx),
        ("RX PDUs", counters.rx),
        ("RX Bad PDUs", counters.rx_bad),
        ("RX Marker Request PDUs", counters.rx_marker),
        ("Link Expired", counters.expired),
        ("Link Defaulted", counters.defaulted),
        ("Carrier Status Changed", counters.carrier_changed),
    ]
    .into_iter()
    .try_for_each(|(name, count)| writeln!(out, "  {name}: {count}"))
}
