//! The text of `bfd/show`, and the key-value pairs of Interface:`bfd_status`, in the format of Open vSwitch 4.0.0.

use crate::session::SessionStatus;
use base::Millis;
use std::fmt::Write;

/// The reply to `bfd/show` without an argument: all sessions, in the given order.
pub fn sessions<'a>(sessions: impl IntoIterator<Item = &'a SessionStatus>, now: Millis) -> String {
    let mut out = String::new();
    for status in sessions {
        writeln!(out, "---- {} ----", status.name).expect("strings take everything");
        out.push_str(&session(status, now));
    }
    out
}

/// The reply to `bfd/show` about one session.
pub fn session(status: &SessionStatus, now: Millis) -> String {
    let SessionStatus { remote, multiplier, remote_multiplier, .. } = status;
    format!(
        "  Forwarding: {}\n  Detect Multiplier: {multiplier}\n  Concatenated Path Down: {}\n  \
         TX Interval: Approx {}ms\n  RX Interval: Approx {}ms\n  \
         Detect Time: now {:+}ms\n  Next TX Time: now {:+}ms\n  Last TX Time: now {:+}ms\n\n  \
         Local Flags: {}\n  Local Session State: {}\n  Local Diagnostic: {}\n  Local Discriminator: {:#x}\n  \
         Local Minimum TX Interval: {}ms\n  Local Minimum RX Interval: {}ms\n\n  \
         Remote Flags: {}\n  Remote Session State: {}\n  Remote Diagnostic: {}\n  Remote Discriminator: {:#x}\n  \
         Remote Minimum TX Interval: {}ms\n  Remote Minimum RX Interval: {}ms\n  \
         Remote Detect Multiplier: {remote_multiplier}\n",
        status.forwarding,
        status.cpath_down,
        status.tx_interval_ms,
        status.rx_interval_ms,
        from_now(status.detection, now),
        from_now(status.next_tx, now),
        from_now(status.last_tx, now),
        status.flags,
        status.state,
        status.diagnostic,
        status.discriminator,
        status.min_tx_ms,
        status.min_rx_ms,
        remote.flags,
        remote.state,
        remote.diagnostic,
        remote.discriminator,
        remote.min_tx_ms,
        remote.min_rx_ms,
    )
}

/// Milliseconds from `now` to `moment`.
fn from_now(moment: Millis, now: Millis) -> i64 {
    moment.0 as i64 - now.0 as i64
}

/// The pairs of the status column.
pub fn column(status: &SessionStatus) -> [(&'static str, String); 6] {
    [
        ("diagnostic", status.diagnostic.to_string()),
        ("flap_count", status.statistics.flaps.to_string()),
        ("forwarding", status.forwarding.to_string()),
        ("remote_diagnostic", status.remote.diagnostic.to_string()),
        ("remote_state", status.remote.state.to_string()),
        ("state", status.state.to_string()),
    ]
}
