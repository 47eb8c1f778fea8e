//! What other parts of a program may ask a running server to do: the substance of the `ovsdb-server/*` control commands.

use std::path::PathBuf;

use tokio::sync::{mpsc, oneshot};

/// A request to the server, and where the answer goes.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) action: Action,
    pub(super) answer: oneshot::Sender<Result<String, String>>,
}

/// What to do.
#[derive(Debug)]
pub(super) enum Action {
    Compact(Option<String>),
    AddRemote(String),
    RemoveRemote(String),
    ListRemotes,
    ListDatabases,
    AddDatabase(PathBuf),
    RemoveDatabase(String),
    Reconnect,
    MemoryReport,
    StorageStatus(String),
}

/// Talks to a running server; clones talk to the same one. Every method fails if the server has ended.
#[derive(Debug, Clone)]
pub struct Handle {
    pub(super) commands: mpsc::Sender<Command>,
}

type Answer = Result<String, String>;

impl Handle {
    async fn call(&self, action: Action) -> Answer {
        let ended = || "the database server has ended".to_owned();
        let (answer, answered) = oneshot::channel();
        self.commands.send(Command { action, answer }).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }

    /// Compacts one database, or all.
    pub async fn compact(&self, database: Option<String>) -> Answer {
        self.call(Action::Compact(database)).await
    }

    /// Uses another address, as if it had been given at the start.
    pub async fn add_remote(&self, remote: String) -> Answer {
        self.call(Action::AddRemote(remote)).await
    }

    /// Stops using an address that was given at the start or added.
    pub async fn remove_remote(&self, remote: String) -> Answer {
        self.call(Action::RemoveRemote(remote)).await
    }

    /// The addresses that were given or added, one a line, sorted.
    pub async fn list_remotes(&self) -> Answer {
        self.call(Action::ListRemotes).await
    }

    /// The names of the databases, one a line, sorted.
    pub async fn list_databases(&self) -> Answer {
        self.call(Action::ListDatabases).await
    }

    /// Serves another database file.
    pub async fn add_database(&self, file: PathBuf) -> Answer {
        self.call(Action::AddDatabase(file)).await
    }

    /// Serves a database no longer.
    pub async fn remove_database(&self, name: String) -> Answer {
        self.call(Action::RemoveDatabase(name)).await
    }

    /// Closes all connections, so that clients connect anew.
    pub async fn reconnect(&self) -> Answer {
        self.call(Action::Reconnect).await
    }

    /// Counts of what takes memory, as `memory/show` prints them.
    pub async fn memory_report(&self) -> Answer {
        self.call(Action::MemoryReport).await
    }

    /// Whether a database can still be written, as `ovsdb-server/get-db-storage-status` prints it.
    pub async fn storage_status(&self, name: String) -> Answer {
        self.call(Action::StorageStatus(name)).await
    }
}
