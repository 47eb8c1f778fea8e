//! The control commands that every daemon has: `exit`, `vlog/*`, `coverage/*`, `memory/show`. `list-commands` and
//! `version` come with [`unixctl::Commands`].

use std::sync::Arc;

use tokio::sync::watch;
use unixctl::Commands;

use crate::Reason;

/// Ends a daemon from anywhere in it; clones end the same one.
#[derive(Debug, Clone)]
pub struct Shutdown(Arc<watch::Sender<Option<Reason>>>);

impl Default for Shutdown {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl Shutdown {
    /// Asks for the end; the first reason counts.
    pub fn request(&self, reason: Reason) {
        self.0.send_if_modified(|current| {
            let first = current.is_none();
            current.get_or_insert(reason);
            first
        });
    }

    /// Waits until the end is asked for.
    pub async fn requested(&self) -> Reason {
        let mut receiver = self.0.subscribe();
        loop {
            if let Some(reason) = *receiver.borrow_and_update() {
                return reason;
            }
            // The sender lives as long as `self`.
            if receiver.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Registers the commands. `memory` gives what `memory/show` reports, as names and numbers.
///
/// A daemon with an `exit` of its own registers that afterwards, in place of the one made here.
pub fn register(
    commands: &Commands,
    log: &Arc<vlog::Log>,
    shutdown: &Shutdown,
    memory: impl Fn() -> Vec<(String, u64)> + Send + Sync + 'static,
) {
    let exit = shutdown.clone();
    commands.register("exit", "", 0..=0, move |_| {
        exit.request(Reason::Exit { cleanup: false });
        Ok(String::new())
    });
    commands.register("memory/show", "", 0..=0, move |_| Ok(usage_text(memory())));
    commands.register("coverage/show", "", 0..=0, |_| Ok(base::coverage::show()));
    commands.register("coverage/read-counter", "COUNTER", 1..=1, |args| {
        let total = args.first().and_then(|name| base::coverage::read(name));
        total.map(|total| total.to_string()).ok_or_else(|| "No such counter".to_owned())
    });
    register_logging(commands, log);
}

/// `a:1 b:2`, sorted by name, on one line.
fn usage_text(mut usage: Vec<(String, u64)>) -> String {
    usage.sort();
    usage.iter().map(|(name, number)| format!("{name}:{number}")).collect::<Vec<_>>().join(" ")
}

fn register_logging(commands: &Commands, log: &Arc<vlog::Log>) {
    let with = |log: &Arc<vlog::Log>, run: fn(&vlog::Log, &[String]) -> Result<String, String>| {
        let log = Arc::clone(log);
        move |args: &[String]| run(&log, args)
    };
    let any = 0..=usize::MAX;
    commands.register(
        "vlog/set",
        "{spec | PATTERN:destination:pattern}",
        any.clone(),
        with(log, |log, args| log.set_all(args).map(|()| String::new())),
    );
    commands.register("vlog/list", "", 0..=0, with(log, |log, _| Ok(log.list())));
    commands.register("vlog/list-pattern", "", 0..=0, with(log, |log, _| Ok(log.list_pattern())));
    commands.register(
        "vlog/enable-rate-limit",
        "[module]...",
        any.clone(),
        with(log, |log, args| log.set_rate_limits(args, true).map(|()| String::new())),
    );
    commands.register(
        "vlog/disable-rate-limit",
        "[module]...",
        any,
        with(log, |log, args| log.set_rate_limits(args, false).map(|()| String::new())),
    );
    commands.register("vlog/reopen", "", 0..=0, with(log, |log, _| log.reopen().map(|()| String::new())));
    commands.register(
        "vlog/close",
        "",
        0..=0,
        with(log, |log, _| {
            log.close();
            Ok(String::new())
        }),
    );
}
