//! Requests of other parts of a program to a running server: the implementation of the `ovsdb-server/*` control
//! commands.

use tokio::sync::{mpsc, oneshot};

/// A request to the server, and the channel for the answer.
#[derive(Debug)]
pub(super) struct Command {
    pub(super) action: Action,
    pub(super) answer: oneshot::Sender<Result<String, String>>,
}

/// The requested action.
#[derive(Debug)]
pub(super) enum Action {
    Compact(Option<String>),
    AddRemote(String),
    RemoveRemote(String),
    ListRemotes,
    ListDatabases,
    AddDatabase(String),
    RemoveDatabase(String),
    Reconnect,
    RefuseConditions,
    MemoryReport,
    StorageStatus(String),
    SetActiveServer(String),
    ActiveServer,
    ConnectActive,
    DisconnectActive,
    SetExcluded(String),
    Excluded,
    SyncStatus,
    SetActiveProbe(u64),
    SetRelayProbe(u64),
    SetTransactionLog(String, String),
    TransactionLog,
    Reload,
}

impl Action {
    /// Returns true if it changes settings of a configuration file.
    pub(super) fn changes_configuration(&self) -> bool {
        matches!(
            self,
            Action::AddRemote(_)
                | Action::RemoveRemote(_)
                | Action::AddDatabase(_)
                | Action::RemoveDatabase(_)
                | Action::SetActiveServer(_)
                | Action::ConnectActive
                | Action::DisconnectActive
                | Action::SetExcluded(_)
                | Action::SetActiveProbe(_)
                | Action::SetRelayProbe(_)
        )
    }
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

    /// Adds an address, as if it had been given at the start.
    pub async fn add_remote(&self, remote: String) -> Answer {
        self.call(Action::AddRemote(remote)).await
    }

    /// Removes an address that was given at the start or added.
    pub async fn remove_remote(&self, remote: String) -> Answer {
        self.call(Action::RemoveRemote(remote)).await
    }

    /// Returns the addresses that were given or added, one a line, sorted.
    pub async fn list_remotes(&self) -> Answer {
        self.call(Action::ListRemotes).await
    }

    /// The names of the databases, one a line, sorted.
    pub async fn list_databases(&self) -> Answer {
        self.call(Action::ListDatabases).await
    }

    /// Serves another database: a file, or `relay:DATABASE:REMOTE[,REMOTE]...`.
    pub async fn add_database(&self, database: String) -> Answer {
        self.call(Action::AddDatabase(database)).await
    }

    /// Serves a database no longer.
    pub async fn remove_database(&self, name: String) -> Answer {
        self.call(Action::RemoveDatabase(name)).await
    }

    /// Closes all connections, so that clients reconnect.
    pub async fn reconnect(&self) -> Answer {
        self.call(Action::Reconnect).await
    }

    /// Refuses monitors with conditions from now on, and closes all connections.
    pub async fn disable_monitor_cond(&self) -> Answer {
        self.call(Action::RefuseConditions).await
    }

    /// Returns counts of memory usage, as `memory/show` prints them.
    pub async fn memory_report(&self) -> Answer {
        self.call(Action::MemoryReport).await
    }

    /// Returns whether a database can still be written, as `ovsdb-server/get-db-storage-status` prints it.
    pub async fn storage_status(&self, name: String) -> Answer {
        self.call(Action::StorageStatus(name)).await
    }

    /// Names the server from which [`Handle::connect_active`] copies.
    pub async fn set_active_server(&self, remotes: String) -> Answer {
        self.call(Action::SetActiveServer(remotes)).await
    }

    /// The address of the active server, if one was named.
    pub async fn active_server(&self) -> Answer {
        self.call(Action::ActiveServer).await
    }

    /// Makes the server the backup of the active server.
    pub async fn connect_active(&self) -> Answer {
        self.call(Action::ConnectActive).await
    }

    /// Makes the server an active one.
    pub async fn disconnect_active(&self) -> Answer {
        self.call(Action::DisconnectActive).await
    }

    /// Names the tables that are not copied, as `DB:TABLE[,DB:TABLE]...`.
    pub async fn set_excluded(&self, tables: String) -> Answer {
        self.call(Action::SetExcluded(tables)).await
    }

    /// The tables that are not copied.
    pub async fn excluded(&self) -> Answer {
        self.call(Action::Excluded).await
    }

    /// Whether the server is active or a backup, and how copies fare.
    pub async fn sync_status(&self) -> Answer {
        self.call(Action::SyncStatus).await
    }

    /// After how much silence the active server is probed, in milliseconds; 0 for never.
    pub async fn set_active_probe(&self, probe_ms: u64) -> Answer {
        self.call(Action::SetActiveProbe(probe_ms)).await
    }

    /// After how much silence the sources of relays are probed, in milliseconds; 0 for never.
    pub async fn set_relay_probe(&self, probe_ms: u64) -> Answer {
        self.call(Action::SetRelayProbe(probe_ms)).await
    }

    /// Whether changes of a table, written `DB:TABLE`, are logged; `setting` is `on` or `off`.
    pub async fn set_transaction_log(&self, table: String, setting: String) -> Answer {
        self.call(Action::SetTransactionLog(table, setting)).await
    }

    /// All tables, and whether their changes are logged.
    pub async fn transaction_log(&self) -> Answer {
        self.call(Action::TransactionLog).await
    }

    /// Reads the configuration file again.
    pub async fn reload(&self) -> Answer {
        self.call(Action::Reload).await
    }
}
