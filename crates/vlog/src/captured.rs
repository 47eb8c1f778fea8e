//! For tests: keeps the messages that a thread logs.

use crate::Level;
use parking_lot::Mutex;
use std::fmt::Debug;
use std::sync::Arc;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Metadata, Subscriber};

/// Messages of some modules, without their levels and modules. Clones share them.
#[derive(Clone, Debug)]
pub struct Captured {
    modules: &'static [&'static str],
    level: tracing::Level,
    messages: Arc<Mutex<Vec<String>>>,
}

impl Captured {
    /// Keeps the messages of these modules at `level` and above.
    pub fn new(modules: &'static [&'static str], level: Level) -> Self {
        let level = match level {
            Level::Off | Level::Emer | Level::Err => tracing::Level::ERROR,
            Level::Warn => tracing::Level::WARN,
            Level::Info => tracing::Level::INFO,
            Level::Dbg => tracing::Level::DEBUG,
        };
        Self { modules, level, messages: Arc::default() }
    }

    /// Runs `f`, and keeps what this thread logs meanwhile; the process's log does not get it.
    pub fn during<T>(&self, f: impl FnOnce() -> T) -> T {
        // Were this the only subscriber, a thread without one could turn call sites off for the whole process.
        let _second = Dispatch::new(self.clone());
        tracing::subscriber::with_default(self.clone(), f)
    }

    /// Returns the messages so far, in order, and forgets them.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.messages.lock())
    }
}

/// Keeps the message of an event.
struct Message<'a>(&'a Mutex<Vec<String>>);

impl Visit for Message<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0.lock().push(format!("{value:?}"));
        }
    }
}

impl Subscriber for Captured {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level && self.modules.contains(&metadata.target())
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut Message(&self.messages));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_the_modules_are_kept_while_it_runs() {
        let captured = Captured::new(&["bridge", "connmgr"], Level::Info);
        tracing::info!(target: "bridge", "before");
        let result = captured.during(|| {
            tracing::info!(target: "bridge", "{} ports", 2);
            tracing::error!(target: "connmgr", name = "br0", "lost");
            tracing::debug!(target: "bridge", "too fine");
            tracing::info!(target: "util", "another module");
            7
        });
        assert_eq!(result, 7);
        assert_eq!(captured.take(), ["2 ports", "lost"]);
        assert_eq!(captured.take(), [""; 0]);
    }
}
