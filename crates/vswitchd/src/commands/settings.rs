//! `settings/show`: how often each feature of the configuration was read from the database and applied.

use crate::feature::Counts;
use parking_lot::Mutex;
use std::sync::Arc;
use unixctl::{Call, Commands, OutputFormat};

/// Registers the command.
pub fn register(commands: &Commands, counts: Arc<Mutex<Counts>>) {
    commands.register_call("settings/show", "", 0..=0, move |call: Call| {
        let counts = counts.lock().clone();
        match call.format() {
            OutputFormat::Text => call.reply(Ok(counts.text())),
            OutputFormat::Json => call.reply_json(counts.json()),
        }
    });
}
