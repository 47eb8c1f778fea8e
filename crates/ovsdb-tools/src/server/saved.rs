//! The configuration of a database server under a monitor, kept across crashes.

use daemon::SavedState;
use ovsdb_server::RunningConfig;
use tracing::warn;

/// The configuration of a process that crashed, if this process replaces one whose configuration was changed.
///
/// # Errors
///
/// The state cannot be read.
pub fn read(state: &SavedState) -> Result<Option<RunningConfig>, String> {
    let unreadable = || "the saved configuration cannot be read".to_owned();
    let Some(text) = state.read().map_err(|error| format!("{} ({error})", unreadable()))? else { return Ok(None) };
    let json = serde_json::from_str(&text).map_err(|_| unreadable())?;
    RunningConfig::from_json(&json).map(Some).ok_or_else(unreadable)
}

/// Saves the configuration for a process that replaces this one after a crash.
pub fn write(state: &SavedState, config: &RunningConfig) {
    if let Err(error) = state.write(&config.to_json().to_string()) {
        warn!(target: "ovsdb_server", "the configuration cannot be saved for a restart after a crash: {error}");
    }
}
