//! SHIM until vlog and daemon land.
#![allow(missing_docs, clippy::all, clippy::pedantic, unreachable_pub)]
pub mod vlog {
    use cli::options::{Arg, Opt};
    pub const OPTIONS: &[Opt] = &[
        Opt::new("verbose", Arg::Optional).short('v'),
        Opt::new("log-file", Arg::Optional),
        Opt::new("syslog-method", Arg::Required),
        Opt::new("syslog-target", Arg::Required),
    ];
    pub const USAGE: &str = "";
    pub fn init(_p: &str) {
        struct S(std::sync::atomic::AtomicU64);
        struct V(String);
        impl tracing::field::Visit for V {
            fn record_debug(&mut self, f: &tracing::field::Field, v: &dyn std::fmt::Debug) {
                if f.name() == "message" { self.0 = format!("{v:?}"); }
            }
        }
        impl tracing::Subscriber for S {
            fn enabled(&self, m: &tracing::Metadata<'_>) -> bool {
                if std::env::var("VS_DEBUG").is_ok() { return *m.level() <= tracing::Level::DEBUG && !m.target().starts_with("mio") }
                *m.level() <= tracing::Level::WARN
            }
            fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id { tracing::span::Id::from_u64(1) }
            fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
            fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
            fn event(&self, e: &tracing::Event<'_>) {
                let mut v = V(String::new());
                e.record(&mut v);
                let n = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
                eprintln!("2026-11-21T00:00:00Z|{n:05}|{}|{}|{}", e.metadata().target(), e.metadata().level(), v.0);
            }
            fn enter(&self, _: &tracing::span::Id) {}
            fn exit(&self, _: &tracing::span::Id) {}
        }
        let _ = tracing::subscriber::set_global_default(S(Default::default()));
    }
    pub fn set_levels(_s: &str) -> Result<(), String> { Ok(()) }
    pub fn accept(_id: &str, _v: Option<&str>) -> Result<(), String> { Ok(()) }
}
pub mod daemon {
    pub mod dirs {
        use std::path::PathBuf;
        pub fn rundir() -> PathBuf { std::env::var_os("OVS_RUNDIR").map(PathBuf::from).unwrap_or_else(|| "/var/run/openvswitch".into()) }
        pub fn logdir() -> PathBuf { std::env::var_os("OVS_LOGDIR").map(PathBuf::from).unwrap_or_else(|| "/var/log/openvswitch".into()) }
    }
}
