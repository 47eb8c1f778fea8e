//! What is asked of a running server through its [`super::Handle`]: the substance of its control commands.

use tracing::info;

use super::config::Config;
use super::handle::{Action, Command};
use super::remotes;
use super::server::{Origin, Server};
use crate::core::Now;
use crate::follow::{Excluded, Source};

impl Server {
    pub(super) async fn command(&mut self, command: Command) {
        let Command { action, answer } = command;
        let result = self.act(action).await;
        self.deliver();
        // Who asked may have gone.
        let _ = answer.send(result);
    }

    async fn act(&mut self, action: Action) -> Result<String, String> {
        let now = self.now();
        if let Some((path, _)) = self.config_file.as_ref().filter(|_| action.changes_configuration()) {
            return Err(format!("Update the {} and use ovsdb-server/reload instead", path.display()));
        }
        let lines = |names: Vec<&str>| names.iter().flat_map(|name| [name, "\n"]).collect::<String>();
        match action {
            Action::Compact(name) => self.compact(name.as_deref(), now),
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
                info!(target: "ovsdb_server", "removing {name} database by user request");
                self.update_endpoints().await;
                Ok(String::new())
            }
            Action::Reconnect => {
                self.core.disconnect_all("user ran ovsdb-server/reconnect");
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
            Action::ConnectActive => self.core.connect_active().map(|()| String::new()),
            Action::DisconnectActive => {
                self.core.disconnect_active();
                // What was not written into a copy is written now.
                self.reports.clear();
                Ok(String::new())
            }
            Action::SetExcluded(tables) => {
                self.core.set_excluded(Excluded::parse(&tables)?);
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
                let (path, directory) = found.ok_or("Configuration file was not specified on command line")?;
                self.apply_config(Config::read(path, directory)?)?;
                self.update_endpoints().await;
                Ok(String::new())
            }
            Action::StorageStatus(name) => match self.core.storage_failure(&name) {
                None => Err("Failed to find the database.".into()),
                Some(None) => Ok("status: ok".into()),
                Some(Some(failure)) => Ok(format!("status: {failure}")),
            },
        }
    }

    fn compact(&mut self, name: Option<&str>, now: Now) -> Result<String, String> {
        let names: Vec<String> = match name {
            Some(name) if name.starts_with('_') => return Err("cannot compact built-in databases".into()),
            Some(name) if self.core.database(name).is_none() => return Err("no database by that name".into()),
            Some(name) => vec![name.to_owned()],
            None => self.core.database_names().filter(|name| !name.starts_with('_')).map(str::to_owned).collect(),
        };
        let mut failures = String::new();
        for name in names {
            info!(target: "ovsdb_server", "compacting {name} database by user request");
            if let Err(error) = self.core.compact(&name, "compacting database online", now) {
                failures.push_str(&format!("I/O error: {name}: {error}\n"));
            }
        }
        if failures.is_empty() { Ok(String::new()) } else { Err(failures) }
    }
}
