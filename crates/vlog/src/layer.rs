//! The way from `tracing` to the [`Log`].

use std::fmt::Write as _;
use std::sync::{Arc, OnceLock};

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use crate::level::Level;
use crate::log::Log;

static LOG: OnceLock<Arc<Log>> = OnceLock::new();

/// Creates the logging of this process and installs it as the receiver of all tracing events. Later calls return the
/// log of the first one.
pub fn init(program: &str) -> Arc<Log> {
    let log = LOG.get_or_init(|| {
        let log = Arc::new(Log::new(program));
        // Where a test has installed another receiver, that one stays.
        let _ =
            tracing::subscriber::set_global_default(tracing_subscriber::registry().with(VlogLayer::new(log.clone())));
        log
    });
    Arc::clone(log)
}

/// The logging of this process, once [`init`] was called.
pub fn log() -> Option<&'static Arc<Log>> {
    LOG.get()
}

/// A layer that sends events to a [`Log`].
#[derive(Debug)]
pub struct VlogLayer {
    log: Arc<Log>,
}

impl VlogLayer {
    /// A layer over `log`.
    pub fn new(log: Arc<Log>) -> Self {
        Self { log }
    }

    fn wants(&self, metadata: &Metadata<'_>) -> bool {
        // An error may turn out to be an emergency, which is wanted in more places.
        let level = match Level::of(*metadata.level()) {
            Some(Level::Err) => Level::Emer,
            Some(level) => level,
            None => return false,
        };
        !metadata.is_span() && self.log.wants(module_of(metadata.target()), level)
    }
}

/// The module of a target. A target that is a path, because the call site named none, means the crate.
fn module_of(target: &str) -> &str {
    target.split_once("::").map_or(target, |(krate, _)| krate)
}

impl<S: Subscriber> Layer<S> for VlogLayer {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.wants(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.wants(metadata)
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match self.log.most_verbose() {
            Level::Off => LevelFilter::OFF,
            Level::Emer | Level::Err => LevelFilter::ERROR,
            Level::Warn => LevelFilter::WARN,
            Level::Info => LevelFilter::INFO,
            Level::Dbg => LevelFilter::DEBUG,
        })
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let Some(level) = Level::of(*metadata.level()) else { return };
        let mut text = Text::default();
        event.record(&mut text);
        let level = if text.emergency { Level::Emer } else { level };
        self.log.write(module_of(metadata.target()), level, &text.finish());
    }
}

/// The text of an event: its message, then its fields as ` name=value`.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
    emergency: bool,
}

impl Text {
    fn finish(mut self) -> String {
        self.message.push_str(&self.fields);
        self.message
    }
}

impl Visit for Text {
    fn record_bool(&mut self, field: &Field, value: bool) {
        if field.name() == "emer" {
            self.emergency = value;
        } else {
            self.record_debug(field, &value);
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            let _ = write!(self.fields, " {}={value}", field.name());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let _ = if field.name() == "message" {
            write!(self.message, "{value:?}")
        } else {
            write!(self.fields, " {}={value:?}", field.name())
        };
    }
}
