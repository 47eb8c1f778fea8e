//! Files of flows.

use crate::error::{Result, fatal, strerror};
use flow::Normalized;
use openflow::ParsedFlow;
use std::io::Read;

/// The lines of a flow file without comments and blank lines, with their numbers.
pub fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(i, line)| {
        let line = line.split('#').next().unwrap_or_default().trim();
        (!line.is_empty()).then_some((i + 1, line))
    })
}

/// Reads a file, or standard input for `-`.
pub fn read_file(name: &str) -> Result<String> {
    contents(name).map_err(|e| fatal(format!("{name}: open failed ({})", strerror(&e))))
}

/// The same for a set of flows, whose errors have other words.
pub fn read_flow_set(name: &str) -> Result<String> {
    contents(name).map_err(|e| fatal(format!("{name}: open ({})", strerror(&e))))
}

fn contents(name: &str) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    if name == "-" {
        std::io::stdin().lock().read_to_end(&mut bytes)?;
    } else {
        bytes = std::fs::read(name)?;
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Logs the fields that a match lost when it was normalised.
pub fn normalize(flow: &mut ParsedFlow) {
    if let Some(change) = flow.normalized.take() {
        log_change(&change);
    }
}

/// Logs what normalising a match changed.
pub fn log_change(change: &Normalized) {
    for line in change.lines() {
        tracing::info!(target: "ofp_match", "{line}");
    }
}
