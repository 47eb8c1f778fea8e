//! Requests to a running server through its [`super::Handle`]: the substance of its control commands.

use std::collections::BTreeMap;

use tokio::sync::{mpsc, oneshot};
use tracing::info;

use super::handle::{Action, Command};
use super::origin::Origin;
use super::remotes;
use super::server::{Event, Server};
use crate::compaction::Compaction;
use crate::follow::{Excluded, Source};

/// The reply if a configuration file cannot be used.
const RELOAD_FAILED: &str = "Configuration failed.  See the log file for details.";
/// The niceness of compaction threads relative to serving threads.
const NICENESS: i32 = 10;

impl Server {
    pub(super) async fn command(&mut self, command: Command) {
        let Command { action, answer } = command;
        let result = match action {
            Action::Compact(name) => match self.compact(name.as_deref()) {
                Ok(asked) => {
                    self.asked_compactions.push(AskedCompactions { asked, failures: String::new(), answer });
                    self.deliver();
                    return;
                }
                Err(reason) => Err(reason),
            },
            action => {
                let may_change = action.changes_configuration();
                let result = self.act(action).await;
                if may_change && result.is_ok() {
                    self.save_running();
                }
                result
            }
        };
        self.deliver();
        // The caller may have given up.
        let _ = answer.send(result);
    }

    async fn act(&mut self, action: Action) -> Result<String, String> {
        let now = self.now();
        if let Some((path, _)) = self.config_file.as_ref().filter(|_| action.changes_configuration()) {
            return Err(format!("Update the {} and use ovsdb-server/reload instead", path.display()));
        }
        let lines = |names: Vec<&str>| names.iter().flat_map(|name| [name, "\n"]).collect::<String>();
        match action {
            Action::Compact(_) => Err("compaction is answered when it is done".to_owned()),
            Action::AddRemote(remote) => {
                remotes::check(&self.core, &remote)?;
                self.configured.insert(remote);
                self.update_endpoints().await;
                Ok(String::new())
            }
            Action::RemoveRemote(remote) => {
                if !self.configured.remove(&remote) {
                    return Err("no such remote".into());
                }
                self.update_endpoints().await;
                Ok(String::new())
            }
            Action::ListRemotes => Ok(lines(self.configured.iter().map(String::as_str).collect())),
            Action::ListDatabases => Ok(lines(self.core.database_names().collect())),
            Action::AddDatabase(text) => {
                let origin = match Source::parse_relay(&text) {
                    Some(relay) => {
                        let (name, mut source) = relay.map_err(|error| error.to_string())?;
                        source.probe_ms = self.core.relay_probe_ms;
                        Origin::Relay(name, source)
                    }
                    None => Origin::File(text.into()),
                };
                self.open(origin).map_err(|error| error.to_string())?;
                self.update_endpoints().await;
                Ok(String::new())
            }
            Action::RemoveDatabase(name) => {
                if name.starts_with('_') {
                    return Err("Cannot remove reserved database.".into());
                }
                if !self.core.remove_database(&name, now) {
                    return Err("Failed to find the database.".into());
                }
                self.origins.remove(&name);
                info!(target: "ovsdb_server", "removing {name} database by user request");
                self.update_endpoints().await;
                Ok(String::new())
            }
            Action::Reconnect => {
                self.core.disconnect_all("user ran ovsdb-server/reconnect");
                Ok(String::new())
            }
            Action::RefuseConditions => {
                self.core.refuse_conditions();
                Ok(String::new())
            }
            Action::MemoryReport => {
                let mut report = self.core.memory_report();
                let held = self.pool.held() as u64;
                report.extend((held > 0).then_some(("sessions-held", held)));
                Ok(report.iter().map(|(name, count)| format!("{name}:{count}")).collect::<Vec<_>>().join(" "))
            }
            Action::SetActiveServer(remotes) => {
                self.core.set_active_server(Source::parse(&remotes)?);
                Ok(String::new())
            }
            Action::ActiveServer => Ok(self.core.active_server().map(Source::to_string).unwrap_or_default()),
            // Open vSwitch reports the failure by a text instead of an error, too.
            Action::ConnectActive => Ok(self.core.connect_active().err().unwrap_or_default()),
            Action::DisconnectActive => {
                self.core.disconnect_active();
                // Records missing in a copy are written now.
                self.reports.clear();
                Ok(String::new())
            }
            Action::SetExcluded(tables) => {
                self.core.set_excluded(Excluded::from(tables.as_str()));
                Ok(String::new())
            }
            Action::Excluded => Ok(self.core.excluded().to_string()),
            Action::SyncStatus => Ok(self.core.sync_status()),
            Action::SetActiveProbe(probe_ms) => {
                self.core.set_active_probe(probe_ms);
                Ok(String::new())
            }
            Action::SetRelayProbe(probe_ms) => {
                self.core.set_relay_probe(probe_ms);
                Ok(String::new())
            }
            Action::SetTransactionLog(table, setting) => {
                self.core.set_transaction_log(&table, &setting).map(|()| String::new())
            }
            Action::TransactionLog => Ok(self.core.transaction_log_report()),
            Action::Reload => {
                let found = self.config_file.as_ref();
                let found = found.cloned().ok_or("Configuration file was not specified on command line")?;
                let (path, directory) = found;
                let configured = self.configure(&path, &directory);
                self.update_endpoints().await;
                configured.map(|()| String::new()).map_err(|_| RELOAD_FAILED.to_owned())
            }
            Action::StorageStatus(name) => match self.core.storage_failure(&name) {
                None => Err("Failed to find the database.".into()),
                Some(None) => Ok("status: ok".into()),
                Some(Some(failure)) => Ok(format!("status: {failure}")),
            },
        }
    }

    /// Starts compactions of databases; returns their numbers.
    fn compact(&mut self, name: Option<&str>) -> Result<BTreeMap<u64, String>, String> {
        let now = self.now();
        let names: Vec<String> = match name {
            Some(name) if name.starts_with('_') => return Err("cannot compact built-in databases".into()),
            Some(name) if self.core.database(name).is_none() => return Err("no database by that name".into()),
            Some(name) => vec![name.to_owned()],
            None => self.core.database_names().filter(|name| !name.starts_with('_')).map(str::to_owned).collect(),
        };
        let mut asked = BTreeMap::new();
        for name in names {
            info!(target: "ovsdb_server", "compacting {name} database by user request");
            asked.insert(self.core.compact(&name, now)?, name);
        }
        Ok(asked)
    }

    /// Runs the compactions that were begun, and answers the commands whose compactions have ended.
    pub(super) fn run_compactions(&mut self) {
        // If one cannot be run, the next one of that database begins at once.
        loop {
            let begun = self.core.begun_compactions();
            if begun.is_empty() {
                break;
            }
            for compaction in begun {
                let unrun = compaction.failure("no thread can be started");
                if run_beside(compaction, self.events.clone()).is_err() {
                    let now = self.now();
                    self.core.compacted(unrun, now);
                }
            }
        }
        for (id, result) in self.core.ended_compactions() {
            for waiting in &mut self.asked_compactions {
                if let (Some(name), Err(reason)) = (waiting.asked.remove(&id), &result) {
                    waiting.failures.push_str(&format!("I/O error: {name}: {reason}\n"));
                }
            }
        }
        for waiting in self.asked_compactions.extract_if(.., |waiting| waiting.asked.is_empty()) {
            let failures = waiting.failures;
            let answer = if failures.is_empty() { Ok(String::new()) } else { Err(failures) };
            // The caller may have given up.
            let _ = waiting.answer.send(answer);
        }
    }
}

/// A request for compactions that is answered when they have ended.
#[derive(Debug)]
pub(super) struct AskedCompactions {
    /// The remaining ones, with their databases.
    asked: BTreeMap<u64, String>,
    failures: String,
    answer: oneshot::Sender<Result<String, String>>,
}

/// Runs a compaction in a thread of its own, which brings it back as an event.
fn run_beside(compaction: Compaction, events: mpsc::Sender<Event>) -> std::io::Result<()> {
    let thread = std::thread::Builder::new().name("ovsdb-compact".to_owned());
    thread.spawn(move || {
        // Serving threads have priority. A failure here does no harm.
        let _ = rustix::process::nice(NICENESS);
        let panicked = compaction.failure("it panicked");
        let run = std::panic::AssertUnwindSafe(|| compaction.run());
        let compacted = std::panic::catch_unwind(run).unwrap_or(panicked);
        // The server may have ended.
        let _ = events.blocking_send(Event::Compacted(compacted));
    })?;
    Ok(())
}
