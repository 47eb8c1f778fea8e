//! The configuration of a running server, as the control commands left it: a daemon saves it, so that a process that is
//! started again after a crash serves the same.

use std::path::Path;

use serde_json::{Value, json};

use super::server::Server;
use crate::follow::Source;

/// The part of a server's configuration that control commands change.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunningConfig {
    /// The databases, as `ovsdb-server/add-db` takes them; files by absolute names.
    pub databases: Vec<String>,
    /// The addresses.
    pub remotes: Vec<String>,
    /// The active server, if one was named.
    pub active_server: Option<String>,
    /// The tables that are not copied from there.
    pub excluded: String,
    /// Whether the server is the backup of the active server.
    pub is_backup: bool,
}

impl RunningConfig {
    /// As JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "databases": self.databases,
            "remotes": self.remotes,
            "active-server": self.active_server,
            "excluded": self.excluded,
            "is-backup": self.is_backup,
        })
    }

    /// Reads what [`Self::to_json`] wrote; `None` if it is something else.
    pub fn from_json(json: &Value) -> Option<Self> {
        let strings = |name: &str| -> Option<Vec<String>> {
            json.get(name)?.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
        };
        Some(Self {
            databases: strings("databases")?,
            remotes: strings("remotes")?,
            active_server: json.get("active-server")?.as_str().map(str::to_owned),
            excluded: json.get("excluded")?.as_str()?.to_owned(),
            is_backup: json.get("is-backup")?.as_bool()?,
        })
    }
}

/// Receives the configuration after each change.
pub(super) struct Saver(Box<dyn FnMut(&RunningConfig) + Send>);

impl Saver {
    pub(super) fn new(save: impl FnMut(&RunningConfig) + Send + 'static) -> Self {
        Self(Box::new(save))
    }
}

impl std::fmt::Debug for Saver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Saver").finish()
    }
}

/// The text by which a file is opened again from another folder.
pub(super) fn file_text(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

/// The text by which a relay is opened again.
pub(super) fn relay_text(name: &str, source: &Source) -> String {
    format!("relay:{name}:{source}")
}

impl Server {
    /// Passes the configuration on, if anyone saves it.
    pub(super) fn save_running(&mut self) {
        let Some(mut saver) = self.saver.take() else { return };
        saver.0(&self.running());
        self.saver = Some(saver);
    }

    fn running(&self) -> RunningConfig {
        RunningConfig {
            databases: self.origins.values().cloned().collect(),
            remotes: self.configured.iter().cloned().collect(),
            active_server: self.core.active_server().map(Source::to_string),
            excluded: self.core.excluded().to_string(),
            is_backup: self.core.is_backup(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::storage::Storage;

    #[tokio::test]
    async fn changes_by_control_commands_are_saved() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str| {
            let path = directory.path().join(name);
            let mut schema = crate::tests::schema().to_json();
            schema["name"] = name.into();
            let created = crate::file::FileStorage::create(&path, &[crate::log::Record::from(&schema)]).unwrap();
            assert!(created.length() > 0);
            path.display().to_string()
        };
        let (first, second) = (file("first"), file("second"));
        let (saved, configurations) = mpsc::channel();
        let server = Server::builder()
            .database_file(&first)
            .on_change(move |config| saved.send(RunningConfig::from_json(&config.to_json()).unwrap()).unwrap())
            .open()
            .unwrap();
        let handle = server.handle();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let commands = async {
            let socket = format!("punix:{}/s", directory.path().display());
            let mut expected = RunningConfig { databases: vec![first.clone()], ..RunningConfig::default() };
            handle.add_database(second.clone()).await.unwrap();
            expected.databases.push(second.clone());
            assert_eq!(configurations.try_recv().unwrap(), expected);
            handle.add_remote(socket.clone()).await.unwrap();
            expected.remotes.push(socket.clone());
            assert_eq!(configurations.try_recv().unwrap(), expected);
            handle.remove_database("first".to_owned()).await.unwrap();
            expected.databases.remove(0);
            assert_eq!(configurations.try_recv().unwrap(), expected);
            handle.add_database("relay:third:unix:x,tcp:127.0.0.1:1".to_owned()).await.unwrap();
            expected.databases.push("relay:third:unix:x,tcp:127.0.0.1:1".to_owned());
            assert_eq!(configurations.try_recv().unwrap(), expected);
            handle.set_active_server("unix:y".to_owned()).await.unwrap();
            expected.active_server = Some("unix:y".to_owned());
            assert_eq!(configurations.try_recv().unwrap(), expected);
            // Any list of tables is taken.
            handle.set_excluded("foo,second:a".to_owned()).await.unwrap();
            expected.excluded = "foo,second:a".to_owned();
            assert_eq!(configurations.try_recv().unwrap(), expected);
            handle.connect_active().await.unwrap();
            expected.is_backup = true;
            assert_eq!(configurations.try_recv().unwrap(), expected);
            handle.remove_remote(socket).await.unwrap();
            expected.remotes.clear();
            assert_eq!(configurations.try_recv().unwrap(), expected);
            drop(stop);
        };
        let ended = async move { _ = stopped.await };
        tokio::join!(server.run(ended), commands);
    }

    #[tokio::test]
    async fn without_an_active_server_connecting_is_answered_by_a_text() {
        let server = Server::builder().open().unwrap();
        let handle = server.handle();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let commands = async {
            let expected = "Unable to connect: active server is not specified.".to_owned();
            assert_eq!(handle.connect_active().await, Ok(expected));
            drop(stop);
        };
        tokio::join!(server.run(async move { _ = stopped.await }), commands);
    }
}
