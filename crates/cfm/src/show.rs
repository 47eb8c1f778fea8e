//! The text of `cfm/show`, in the format of Open vSwitch 4.0.0.

use crate::point::PointStatus;
use base::Millis;
use std::fmt::Write;

/// The reply to `cfm/show`: the given maintenance points, in order.
pub fn points<'a>(points: impl IntoIterator<Item = &'a PointStatus>, now: Millis) -> String {
    let mut out = String::new();
    for status in points {
        point(status, now, &mut out).expect("strings take everything");
    }
    out
}

fn point(status: &PointStatus, now: Millis, out: &mut String) -> std::fmt::Result {
    let extended = if status.extended { " extended" } else { "" };
    let forced = if status.is_forced { " fault_override" } else { "" };
    writeln!(out, "---- {} ----\nMPID {}:{extended}{forced}", status.name, status.mpid)?;
    if status.faults.any() {
        writeln!(out, "  fault: {}", status.faults)?;
    }
    match status.health {
        Some(health) => writeln!(out, "  average health: {health}")?,
        None => writeln!(out, "  average health: undefined")?,
    }
    writeln!(out, "  opstate: {}\n  remote_opstate: {}", state(status.is_down), state(status.is_remote_down))?;
    writeln!(out, "  interval: {}ms", status.interval_ms)?;
    writeln!(out, "  next CCM tx: {}ms", status.next_ccm.since(now))?;
    writeln!(out, "  next fault check: {}ms", status.next_check.since(now))?;
    for remote in &status.remotes {
        writeln!(out, "Remote MPID {}\n  recv since check: {}", remote.mpid, remote.received)?;
        writeln!(out, "  opstate: {}", state(remote.is_down))?;
    }
    Ok(())
}

/// The name of an operational state.
pub fn state(is_down: bool) -> &'static str {
    if is_down { "down" } else { "up" }
}
