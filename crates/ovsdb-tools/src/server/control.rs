//! The control commands of ovsdb-server (ovsdb-server(1), "Runtime Management Commands").

use std::future::Future;
use std::ops::RangeInclusive;

use daemon::Shutdown;
use ovsdb_server::Handle;
use unixctl::Commands;

type Answer = Result<String, String>;

/// Registers all commands; they reach the server through `handle`.
pub fn register(commands: &Commands, handle: &Handle, shutdown: &Shutdown) {
    let add = |name: &str, usage: &str, arity: RangeInclusive<usize>, run: fn(Handle, Vec<String>) -> BoxAnswer| {
        let handle = handle.clone();
        commands.register_async(name, usage, arity, move |args| run(handle.clone(), args));
    };
    add("memory/show", "", 0..=0, |h, _| boxed(async move { h.memory_report().await }));
    add("ovsdb-server/compact", "", 0..=1, |h, mut a| boxed(async move { h.compact(a.pop()).await }));
    add("ovsdb-server/reconnect", "", 0..=0, |h, _| boxed(async move { h.reconnect().await }));
    add("ovsdb-server/disable-monitor-cond", "", 0..=0, |h, _| boxed(async move { h.disable_monitor_cond().await }));
    add("ovsdb-server/add-remote", "REMOTE", 1..=1, |h, mut a| {
        boxed(async move { h.add_remote(a.pop().unwrap_or_default()).await })
    });
    add("ovsdb-server/remove-remote", "REMOTE", 1..=1, |h, mut a| {
        boxed(async move { h.remove_remote(a.pop().unwrap_or_default()).await })
    });
    add("ovsdb-server/list-remotes", "", 0..=0, |h, _| boxed(async move { h.list_remotes().await }));
    add("ovsdb-server/add-db", "DB", 1..=1, |h, mut a| {
        boxed(async move { h.add_database(a.pop().unwrap_or_default()).await })
    });
    add("ovsdb-server/remove-db", "DB", 1..=1, |h, mut a| {
        boxed(async move { h.remove_database(a.pop().unwrap_or_default()).await })
    });
    add("ovsdb-server/list-dbs", "", 0..=0, |h, _| boxed(async move { h.list_databases().await }));
    add("ovsdb-server/get-db-storage-status", "DB", 1..=1, |h, mut a| {
        boxed(async move { h.storage_status(a.pop().unwrap_or_default()).await })
    });
    let exit = shutdown.clone();
    commands.register("exit", "", 0..=0, move |_| {
        exit.request(daemon::Reason::Exit { cleanup: false });
        Ok(String::new())
    });
    add("ovsdb-server/tlog-set", "DB:TABLE on|off", 2..=2, |h, mut a| {
        let setting = a.pop().unwrap_or_default();
        boxed(async move { h.set_transaction_log(a.pop().unwrap_or_default(), setting).await })
    });
    add("ovsdb-server/tlog-list", "", 0..=0, |h, _| boxed(async move { h.transaction_log().await }));
    add("ovsdb-server/reload", "", 0..=0, |h, _| boxed(async move { h.reload().await }));
    register_models(&add);
    register_without_effect(commands);
}

/// Commands about active servers, backups and relays.
fn register_models(add: &impl Fn(&str, &str, RangeInclusive<usize>, fn(Handle, Vec<String>) -> BoxAnswer)) {
    add("ovsdb-server/set-active-ovsdb-server", "", 1..=1, |h, mut a| {
        boxed(async move { h.set_active_server(a.pop().unwrap_or_default()).await })
    });
    add("ovsdb-server/get-active-ovsdb-server", "", 0..=0, |h, _| boxed(async move { h.active_server().await }));
    add("ovsdb-server/connect-active-ovsdb-server", "", 0..=0, |h, _| boxed(async move { h.connect_active().await }));
    add("ovsdb-server/disconnect-active-ovsdb-server", "", 0..=0, |h, _| {
        boxed(async move { h.disconnect_active().await })
    });
    add("ovsdb-server/set-active-ovsdb-server-probe-interval", "", 1..=1, |h, mut a| {
        boxed(async move { h.set_active_probe(probe_interval(&a.pop().unwrap_or_default())?).await })
    });
    add("ovsdb-server/set-relay-source-probe-interval", "", 1..=1, |h, mut a| {
        boxed(async move { h.set_relay_probe(probe_interval(&a.pop().unwrap_or_default())?).await })
    });
    add("ovsdb-server/set-sync-exclude-tables", "", 0..=1, |h, mut a| {
        boxed(async move { h.set_excluded(a.pop().unwrap_or_default()).await })
    });
    add("ovsdb-server/get-sync-exclude-tables", "", 0..=0, |h, _| boxed(async move { h.excluded().await }));
    add("ovsdb-server/sync-status", "", 0..=0, |h, _| boxed(async move { h.sync_status().await }));
}

fn probe_interval(text: &str) -> Result<u64, String> {
    let interval: i32 = text.parse().map_err(|_| "Invalid probe interval, integer value expected".to_owned())?;
    // A negative one is as good as none.
    Ok(u64::try_from(interval).unwrap_or(0))
}

type BoxAnswer = std::pin::Pin<Box<dyn Future<Output = Answer> + Send>>;

fn boxed(answer: impl Future<Output = Answer> + Send + 'static) -> BoxAnswer {
    Box::pin(answer)
}

/// Accepts both settings, which have no effect: the allocator returns memory by itself.
fn trim_on_compaction(args: &[String]) -> Answer {
    match args.first().map(String::as_str) {
        Some("on" | "off") => Ok(String::new()),
        _ => Err("invalid argument".to_owned()),
    }
}

/// Registers commands that are accepted and change nothing, and one whose counters do not exist.
fn register_without_effect(commands: &Commands) {
    commands.register("ovsdb-server/memory-trim-on-compaction", "on|off", 1..=1, trim_on_compaction);
    commands.register("ovsdb-server/perf-counters-show", "", 0..=0, |_| {
        Err("performance counter is not supported on this platform".to_owned())
    });
    commands.register("ovsdb-server/perf-counters-clear", "", 0..=0, |_| Ok(String::new()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_known_setting_of_trimming_is_accepted() {
        let set = |value: &str| trim_on_compaction(&[value.to_owned()]);
        assert_eq!(set("on"), Ok(String::new()));
        assert_eq!(set("off"), Ok(String::new()));
        assert_eq!(set("x"), Err("invalid argument".to_owned()));
    }
}
