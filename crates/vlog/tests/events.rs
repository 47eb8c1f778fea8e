//! From the tracing macros to lines in a file. One test only: the cache of interests belongs to the process.

#[test]
fn events_become_lines() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let log = vlog::init("prog");
    log.set_syslog_method("null").unwrap();
    log.set("console:off").unwrap();
    log.set("PATTERN:file:%c|%p|%m").unwrap();
    log.set_file(path.clone()).unwrap();
    let once = |text: &str| {
        tracing::debug!(target: "bridge", "{text}");
        tracing::info!(target: "bridge", count = 3, name = "x", "{text}");
        tracing::error!(target: "bridge", "{text}");
        vlog::emer!(target: "bridge", "{text}");
        tracing::warn!("{text}");
        tracing::trace!(target: "bridge", "{text}");
    };
    once("a");
    log.set("bridge:file:dbg").unwrap();
    once("b");
    log.set("off").unwrap();
    once("c");
    log.set("file:emer").unwrap();
    once("d");
    static LIMIT: vlog::RateLimit = vlog::RateLimit::new(1, 1);
    log.set("file:info").unwrap();
    for i in 0..3 {
        vlog::info_rl!(&LIMIT, target: "bridge", "limited {i}");
    }
    log.set_rate_limits(&[], false).unwrap();
    vlog::info_rl!(&LIMIT, target: "bridge", "unlimited");
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().skip(1).collect();
    assert_eq!(
        lines,
        [
            "bridge|INFO|a count=3 name=x",
            "bridge|ERR|a",
            "bridge|EMER|a",
            "events|WARN|a",
            "bridge|DBG|b",
            "bridge|INFO|b count=3 name=x",
            "bridge|ERR|b",
            "bridge|EMER|b",
            "events|WARN|b",
            "bridge|EMER|d",
            "bridge|INFO|limited 0",
            "bridge|INFO|unlimited",
        ]
    );
}
