//! The configuration file (`--config-file`): remotes and databases as JSON, and how a running server is brought in line
//! with it.
//!
//! File names in it are relative to the directory in which the server was started, like those on the command line,
//! also when a daemon that has left that directory reloads it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use tracing::{error, info, warn};

use super::origin::Origin;
use super::remotes::{self, DSCP_MAX, RemoteOptions};
use super::server::{OpenError, Server};
use crate::follow::Source;

/// The contents of a configuration file.
#[derive(Debug, Default)]
pub(super) struct Config {
    remotes: BTreeMap<String, GivenOptions>,
    /// By the names in the file: file names, or, for relays, database names.
    databases: BTreeMap<String, DatabaseConfig>,
    /// The databases of the model active-backup, whether they are backups or not.
    active_backups: BTreeSet<String>,
}

/// The options of one remote.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct GivenOptions {
    inactivity_probe_ms: Option<u64>,
    max_backoff_ms: Option<u64>,
    read_only: Option<bool>,
    role: Option<String>,
    dscp: Option<u8>,
}

/// One database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum DatabaseConfig {
    /// From a file, as a database of its own.
    Own(PathBuf),
    /// From a file, as a copy of a database of another server.
    Backup(PathBuf, Source, BTreeSet<String>),
    /// In memory.
    Relay(Source),
}

impl GivenOptions {
    /// Overrides the defaults with the given options.
    pub(super) fn apply(&self, options: &mut RemoteOptions) {
        options.inactivity_probe_ms = self.inactivity_probe_ms.unwrap_or(options.inactivity_probe_ms);
        options.max_backoff_ms = self.max_backoff_ms.unwrap_or(options.max_backoff_ms);
        options.read_only = self.read_only.unwrap_or(options.read_only);
        options.dscp = self.dscp.unwrap_or(options.dscp);
        if let Some(role) = &self.role {
            options.role.clone_from(role);
        }
    }

    fn from_json(json: &Value, path: &str) -> Result<Self, String> {
        let mut members = Members::new(json, path)?;
        let options = Self {
            inactivity_probe_ms: members.milliseconds("inactivity-probe")?,
            max_backoff_ms: members.milliseconds("max-backoff")?.map(|backoff| backoff.max(1000)),
            read_only: members.boolean("read-only")?,
            role: members.string("role")?,
            dscp: members.dscp()?,
        };
        members.warn();
        Ok(options)
    }
}

impl Config {
    /// Reads a file, with names that are relative to `directory`. The error is lines for the log.
    pub(super) fn read(path: &Path, directory: &Path) -> Result<Self, String> {
        let name = path.display();
        let text = std::fs::read_to_string(path).map_err(|error| {
            format!("failed to open configuration file '{name}': {}", crate::file::describe(&error))
        })?;
        let json = ovsdb::json_text::parse(text.as_bytes())
            .map_err(|error| format!("config: reading JSON failed ({error})"))?;
        Self::from_json(&json, directory)
    }

    fn from_json(json: &Value, directory: &Path) -> Result<Self, String> {
        if !json.is_object() {
            return Err("configuration in a file must be a JSON object".to_owned());
        }
        let mut members = Members::new(json, "the configuration")?;
        let (remotes, databases) = (members.take("remotes"), members.take("databases"));
        members.ignore();
        let mut config = Self::default();
        for (name, options) in object(&remotes, "remotes")? {
            let path = format!("remotes: {name}");
            config.remotes.insert(name.clone(), GivenOptions::from_json(options, &path)?);
        }
        for (name, database) in object(&databases, "databases")? {
            let path = format!("syntax \"{database}\": syntax error: Parsing database {name} failed");
            if database.get("service-model").is_some_and(|model| model == "active-backup") {
                config.active_backups.insert(name.clone());
            }
            let parsed = DatabaseConfig::from_json(name, database, &path, directory);
            let parsed = parsed.map_err(|reason| format!("{reason}\nconfig: failed to parse 'databases'"))?;
            config.databases.insert(name.clone(), parsed);
        }
        Ok(config)
    }
}

impl DatabaseConfig {
    fn from_json(name: &str, json: &Value, path: &str, directory: &Path) -> Result<Self, String> {
        let mut members = Members::new(json, path)?;
        let model = members.string("service-model")?;
        let backup = members.boolean("backup")?;
        let source = members.take("source");
        let excluded = members.take("exclude-tables");
        members.finish()?;
        let source = if source.is_null() { None } else { Some(read_source(&source, path)?) };
        let excluded = match excluded {
            Value::Null => BTreeSet::new(),
            Value::Array(names) => {
                let name = |name: &Value| name.as_str().map(str::to_owned);
                let names: Option<BTreeSet<String>> = names.iter().map(name).collect();
                names.ok_or_else(|| format!("{path}: exclude-tables: names of tables expected"))?
            }
            _ => return Err(format!("{path}: exclude-tables: array expected")),
        };
        let model = model.as_deref().unwrap_or("standalone");
        if model != "active-backup" && (backup.is_some() || !excluded.is_empty()) {
            return Err(format!("{path}: backup and exclude-tables belong to the service model active-backup"));
        }
        if model == "active-backup" && backup.is_none() {
            return Err(format!("{path}: active-backup needs backup, which says whether it is one"));
        }
        let is_backup = backup.unwrap_or(false);
        let file = directory.join(name);
        match (model, source) {
            ("standalone", None) => Ok(Self::Own(file)),
            ("standalone", Some(_)) => Err(format!("{path}: a standalone database has no source")),
            ("active-backup", Some(source)) if is_backup => Ok(Self::Backup(file, source, excluded)),
            ("active-backup", None) if is_backup => Err(format!("{path}: a backup needs a source")),
            ("active-backup", _) => Ok(Self::Own(file)),
            ("relay", Some(source)) => Ok(Self::Relay(source)),
            ("relay", None) => Err(format!("{path}: Required 'source' member is missing.")),
            ("clustered", _) => Err(format!("{path}: clustered databases are not supported")),
            _ => Err(format!(
                "Unrecognized database service model: '{model}'\n{path}: '{model}' is not a valid service model"
            )),
        }
    }

    fn source(&self) -> Option<&Source> {
        match self {
            Self::Own(_) => None,
            Self::Backup(_, source, _) | Self::Relay(source) => Some(source),
        }
    }
}

/// Reads `{"REMOTE[,REMOTE]...": {options}}`.
fn read_source(json: &Value, path: &str) -> Result<Source, String> {
    let members = json.as_object().ok_or_else(|| format!("{path}: source: object expected"))?;
    let mut members = members.iter();
    let (Some((remotes, options)), None) = (members.next(), members.next()) else {
        return Err(format!("{path}: source: exactly one connection method expected"));
    };
    let mut source = Source::parse(remotes).map_err(|error| format!("{path}: source: {error}"))?;
    let mut options = Members::new(options, &format!("{path}: source"))?;
    source.probe_ms = options.milliseconds("inactivity-probe")?.unwrap_or(source.probe_ms);
    source.max_backoff_ms = options.milliseconds("max-backoff")?.unwrap_or(source.max_backoff_ms).max(1000);
    source.dscp = options.dscp()?.unwrap_or(source.dscp);
    options.warn();
    Ok(source)
}

fn object<'a>(json: &'a Value, path: &str) -> Result<Vec<(&'a String, &'a Value)>, String> {
    match json {
        Value::Null => Ok(Vec::new()),
        Value::Object(members) => Ok(members.iter().collect()),
        _ => Err(format!("{path}: object expected")),
    }
}

/// The members of an object, taken one after another.
struct Members {
    members: Map<String, Value>,
    path: String,
    /// The text of the object.
    whole: String,
}

fn unexpected(member: &str) -> String {
    format!("Member '{member}' is present but not allowed here.")
}

impl Members {
    fn new(json: &Value, path: &str) -> Result<Self, String> {
        let members = match json {
            Value::Null => Map::new(),
            Value::Object(members) => members.clone(),
            _ => return Err(format!("{path}: object expected")),
        };
        Ok(Self { members, path: path.to_owned(), whole: json.to_string() })
    }

    fn take(&mut self, name: &str) -> Value {
        self.members.remove(name).unwrap_or_default()
    }

    fn milliseconds(&mut self, name: &str) -> Result<Option<u64>, String> {
        match self.take(name) {
            Value::Null => Ok(None),
            json => json.as_u64().map(Some).ok_or_else(|| format!("{}: {name}: milliseconds expected", self.path)),
        }
    }

    fn dscp(&mut self) -> Result<Option<u8>, String> {
        let json = self.take("dscp");
        if json.is_null() {
            return Ok(None);
        }
        let dscp = json.as_u64().and_then(|dscp| u8::try_from(dscp).ok()).filter(|dscp| *dscp <= DSCP_MAX);
        dscp.map(Some).ok_or_else(|| format!("{}: dscp: a number from 0 to 63 expected", self.path))
    }

    fn boolean(&mut self, name: &str) -> Result<Option<bool>, String> {
        match self.take(name) {
            Value::Null => Ok(None),
            json => json.as_bool().map(Some).ok_or_else(|| format!("{}: {name}: true or false expected", self.path)),
        }
    }

    fn string(&mut self, name: &str) -> Result<Option<String>, String> {
        match self.take(name) {
            Value::Null => Ok(None),
            Value::String(text) => Ok(Some(text)),
            _ => Err(format!("{}: {name}: string expected", self.path)),
        }
    }

    /// Logs the first of the options that were not taken: they are unknown, and have no effect.
    fn warn(self) {
        if let Some(name) = self.members.keys().next() {
            warn!(
                target: "ovsdb_jsonrpc_server",
                "syntax \"{}\": syntax error: Parsing JSON-RPC options failed: {}",
                self.whole,
                unexpected(name)
            );
        }
    }

    /// Logs the members that were not taken: newer versions may know them.
    fn ignore(self) {
        for name in self.members.keys() {
            warn!(target: "ovsdb_server", "config: unknown member '{name}' has no effect");
        }
    }

    /// Returns an error for members that were not taken: they are unknown.
    fn finish(self) -> Result<(), String> {
        match self.members.keys().next() {
            Some(name) => Err(format!("{}: {}", self.path, unexpected(name))),
            None => Ok(()),
        }
    }
}

impl Server {
    /// Reads a configuration file and applies it. The log has the reasons of a failure.
    pub(super) fn configure(&mut self, path: &Path, directory: &Path) -> Result<(), String> {
        if let Err(error) = std::fs::File::open(path) {
            let reason = crate::file::describe(&error);
            error!(target: "ovsdb_server", "failed to open configuration file '{}': {reason}", path.display());
            return Err("server configuration failed".to_owned());
        }
        info!(target: "ovsdb_server", "loading configuration from '{}'", path.display());
        match Config::read(path, directory) {
            Ok(config) => self.apply_config(config),
            Err(reason) => Err(format!("{reason}\nfailed to load configuration from {}", path.display())),
        }
        .map_err(|reasons| {
            reasons.lines().for_each(|reason| warn!(target: "ovsdb_server", "{reason}"));
            "server configuration failed".to_owned()
        })
    }

    /// Applies a configuration to databases and addresses. Unchanged parts are not touched; the error names unusable
    /// parts, and the others are served nevertheless.
    pub(super) fn apply_config(&mut self, config: Config) -> Result<(), String> {
        let now = self.now();
        let gone: Vec<String> = self
            .given_databases
            .iter()
            .filter(|(name, (_, old))| config.databases.get(*name).is_none_or(|new| !is_same_storage(old, new)))
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            if let Some((database, _)) = self.given_databases.remove(&name) {
                info!(target: "ovsdb_server", "removing {database} database: the configuration has changed");
                self.core.remove_database(&database, now);
                self.origins.remove(&database);
            }
        }
        let mut failures = Vec::new();
        for (name, wanted) in config.databases {
            if let Err(reason) = self.apply_database(&name, wanted) {
                failures.push(format!("failed to open database '{name}': {reason}"));
            }
        }
        if !failures.is_empty() {
            failures.push("failed to configure databases".to_owned());
        }
        for (name, (database, _)) in &self.given_databases {
            if config.active_backups.contains(name) {
                self.core.note_copy(database);
            } else {
                self.core.forget_copy(database);
            }
        }
        for remote in config.remotes.keys() {
            if let Err(reason) = remotes::check(&self.core, remote) {
                failures.push(format!("failed to configure remotes: {reason}"));
            }
        }
        self.configured = config.remotes.keys().cloned().collect();
        self.given_options = config.remotes;
        if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
    }

    fn apply_database(&mut self, name: &str, wanted: DatabaseConfig) -> Result<(), String> {
        let known = self.given_databases.get(name).cloned();
        let database = match (&known, &wanted) {
            (Some((_, old)), new) if old == new => return Ok(()),
            (Some((database, _)), _) => database.clone(),
            (None, DatabaseConfig::Own(file) | DatabaseConfig::Backup(file, ..)) => {
                // The error names the file as the configuration does.
                let named = |error: OpenError| error.to_string().replace(&file.display().to_string(), name);
                self.open(Origin::File(file.clone())).map_err(named)?
            }
            (None, DatabaseConfig::Relay(source)) => {
                self.open(Origin::Relay(name.to_owned(), source.clone())).map_err(|error| error.to_string())?
            }
        };
        match &wanted {
            DatabaseConfig::Backup(_, source, excluded) => {
                self.core.back_up(&database, source.clone(), excluded.clone());
                self.core.disconnect_all("making server read-only");
            }
            DatabaseConfig::Own(_) if known.as_ref().is_some_and(|(_, old)| old.source().is_some()) => {
                self.core.end_backup(&database);
                self.reports.clear();
                self.core.disconnect_all("making server read/write");
            }
            DatabaseConfig::Own(_) | DatabaseConfig::Relay(_) => {}
        }
        self.given_databases.insert(name.to_owned(), (database, wanted));
        Ok(())
    }
}

/// Whether a database need not be closed and opened again.
fn is_same_storage(old: &DatabaseConfig, new: &DatabaseConfig) -> bool {
    match (old, new) {
        (DatabaseConfig::Relay(old), DatabaseConfig::Relay(new)) => old == new,
        (DatabaseConfig::Relay(_), _) | (_, DatabaseConfig::Relay(_)) => false,
        (
            DatabaseConfig::Own(old) | DatabaseConfig::Backup(old, ..),
            DatabaseConfig::Own(new) | DatabaseConfig::Backup(new, ..),
        ) => old == new,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_in_configuration_files_are_named() {
        let read = |json: Value| Config::from_json(&json, Path::new("/etc/db"));
        let config = read(json!({
            "remotes": {"punix:db.sock": {}, "ptcp:6641": {"inactivity-probe": 16000, "read-only": true, "dscp": 0}, "ptcp:1": null},
            "databases": {
                "conf.db": {},
                "/sb.db": {"service-model": "active-backup", "backup": true, "source": {"tcp:127.0.0.1:6644": null},
                           "exclude-tables": ["A"]},
                "T": {"service-model": "relay",
                      "source": {"tcp:[::1]:6642,unix:x":
                                 {"max-backoff": 2000, "inactivity-probe": 10000, "dscp": 10}}}
            }
        }))
        .unwrap();
        assert_eq!(config.remotes.len(), 3);
        assert_eq!(config.databases["conf.db"], DatabaseConfig::Own("/etc/db/conf.db".into()));
        let DatabaseConfig::Backup(file, source, excluded) = &config.databases["/sb.db"] else { panic!() };
        assert_eq!((file.to_str(), source.to_string()), (Some("/sb.db"), "tcp:127.0.0.1:6644".to_owned()));
        assert!(excluded.contains("A"));
        assert_eq!(config.active_backups, BTreeSet::from(["/sb.db".to_owned()]));
        let DatabaseConfig::Relay(source) = &config.databases["T"] else { panic!() };
        assert_eq!((source.remotes.len(), source.probe_ms, source.max_backoff_ms), (2, 10_000, 2000));
        assert_eq!(source.dscp, 10);
        assert_eq!(config.remotes["ptcp:6641"].dscp, Some(0));
        // Unknown members and options have no effect.
        assert!(read(json!({"remotes": {"ptcp:1": {}}, "nonsense": 1})).unwrap().remotes.contains_key("ptcp:1"));
        assert!(read(json!({"remotes": {"ptcp:1": {"nonsense": 1}}})).unwrap().remotes.contains_key("ptcp:1"));
        let wrong = [
            (json!([]), "configuration in a file must be a JSON object"),
            (json!({"remotes": {"a": {"dscp": 64}}}), "remotes: a: dscp: a number from 0 to 63 expected"),
            (json!({"remotes": {"a": {"role": 1}}}), "remotes: a: role: string expected"),
            (json!({"remotes": {"a": {"max-backoff": -1}}}), "remotes: a: max-backoff: milliseconds expected"),
            (
                json!({"databases": {"T": {"service-model": "relay"}}}),
                "Parsing database T failed: Required 'source' member is missing.",
            ),
            (
                json!({"databases": {"T": {"service-model": "x"}}}),
                "Unrecognized database service model: 'x'\nsyntax \"{\"service-model\":\"x\"}\": syntax error: Parsing database T failed: 'x' is not a valid service \
                 model\nconfig: failed to parse 'databases'",
            ),
            (
                json!({"databases": {"T": {"x": 1}}}),
                "Parsing database T failed: Member 'x' is present but not allowed here.",
            ),
            (json!({"databases": {"T": {"source": {"unix:x": null}}}}), "a standalone database has no source"),
            (json!({"databases": {"T": {"backup": false}}}), "belong to the service model active-backup"),
            (json!({"databases": {"T": {"service-model": "active-backup"}}}), "active-backup needs backup"),
            (json!({"databases": {"T": {"service-model": "clustered"}}}), "clustered databases are not supported"),
            (
                json!({"databases": {"T": {"service-model": "relay", "source": {"ptcp:1": null}}}}),
                "ptcp:1: a server to copy from needs an active connection method",
            ),
        ];
        for (json, expected) in wrong {
            let error = read(json.clone()).unwrap_err();
            assert!(error.contains(expected), "{json}: {error}");
        }
    }
}
