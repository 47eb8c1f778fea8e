//! The control commands that every daemon has: `exit`, `vlog/*`, `coverage/*`, `memory/show`. `list-commands` and
//! `version` come with [`unixctl::Commands`].

use std::sync::Arc;

use serde_json::{Map, Value, json};
use tokio::sync::watch;
use unixctl::{Call, Commands, OutputFormat};

use crate::Reason;

/// A handle that ends the daemon; clones end the same one.
#[derive(Debug, Clone)]
pub struct Shutdown(Arc<watch::Sender<Option<Reason>>>);

impl Default for Shutdown {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl Shutdown {
    /// Requests the end; the first reason counts.
    pub fn request(&self, reason: Reason) {
        self.0.send_if_modified(|current| {
            let first = current.is_none();
            current.get_or_insert(reason);
            first
        });
    }

    /// Waits until an end is requested.
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

/// Registers the commands. `memory` returns the contents of `memory/show`, as names and numbers.
///
/// A daemon with its own `exit` registers it afterwards, which replaces this one.
pub fn register(
    commands: &Commands,
    log: &Arc<vlog::Log>,
    shutdown: &Shutdown,
    memory: impl Fn() -> Vec<(String, u64)> + Send + Sync + 'static,
) {
    commands.register_call("memory/show", "", 0..=0, move |call| memory_show(call, memory()));
    register_common(commands, log, shutdown);
}

/// Registers the commands of daemons that have no `memory/show`.
pub fn register_common(commands: &Commands, log: &Arc<vlog::Log>, shutdown: &Shutdown) {
    let exit = shutdown.clone();
    commands.register("exit", "", 0..=0, move |_| {
        exit.request(Reason::Exit { cleanup: false });
        Ok(String::new())
    });
    commands.register_call("coverage/show", "", 0..=0, coverage_show);
    commands.register_call("coverage/read-counter", "COUNTER", 1..=1, coverage_read_counter);
    register_logging(commands, log);
}

/// Answers `memory/show` with memory usage.
pub fn memory_show(call: Call, usage: Vec<(String, u64)>) {
    match call.format() {
        OutputFormat::Text => call.reply(Ok(usage_text(usage))),
        OutputFormat::Json => {
            let members = usage.into_iter().map(|(name, number)| (name, Value::from(number)));
            call.reply_json(members.collect::<Map<_, _>>().into());
        }
    }
}

/// Answers `coverage/show`: counted events with their rates.
pub fn coverage_show(call: Call) {
    if call.format() == OutputFormat::Text {
        return call.reply(Ok(base::coverage::show()));
    }
    let events = base::coverage::rates().into_iter().map(|rate| {
        let members = json!({
            "total": rate.total,
            "per-second-5s": rate.last_seconds,
            "per-second-minute": rate.last_minute,
            "per-second-hour": rate.last_hour,
        });
        (rate.name.to_owned(), members)
    });
    call.reply_json(events.collect::<Map<_, _>>().into());
}

/// Answers `coverage/read-counter`: the total of one event.
pub fn coverage_read_counter(call: Call) {
    let total = call.args().first().and_then(|name| base::coverage::read(name));
    match (total, call.format()) {
        (None, _) => call.reply(Err("No such counter".to_owned())),
        (Some(total), OutputFormat::Text) => call.reply(Ok(total.to_string())),
        (Some(total), OutputFormat::Json) => call.reply_json(total.into()),
    }
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
