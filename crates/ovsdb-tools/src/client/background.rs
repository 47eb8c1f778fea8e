//! A client in the background: its control socket, and its end.

use daemon::Started;
use unixctl::Commands;

/// The daemon state of the process, if it is a daemon.
pub(super) struct Background(Option<(Started, Commands)>);

impl Background {
    /// Reports that the work has begun: lets the process started by the user end, and answers control commands: those
    /// of every daemon and those added by `register`.
    ///
    /// # Errors
    ///
    /// The control socket cannot be created.
    pub(super) fn begin(started: Option<Started>, register: impl FnOnce(&Commands)) -> Result<Self, String> {
        let Some(mut started) = started else { return Ok(Self(None)) };
        let commands = Commands::new(cli::version_text(started.log().program()));
        daemon::control::register_common(&commands, started.log(), started.shutdown());
        register(&commands);
        if let Some(control) = started.bind_control(commands.clone()).map_err(|error| error.to_string())? {
            tokio::spawn(control.run());
        }
        started.ready();
        Ok(Self(Some((started, commands))))
    }

    /// Waits until the daemon is asked to end; forever if it is no daemon.
    pub(super) async fn ended(&self) {
        let Some((started, commands)) = &self.0 else { return std::future::pending().await };
        if let Err(error) = started.terminated(commands).await {
            tracing::error!(target: "ovsdb_client", "cannot wait for signals: {error}");
        }
    }
}
