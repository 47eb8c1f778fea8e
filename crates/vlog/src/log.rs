//! The state of logging and the processing of messages.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use cli::Fatal;
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};

use crate::level::{Destination, FACILITY_DAEMON, FACILITY_LOCAL0, Level};
use crate::modules::Modules;
use crate::pattern::{Identity, Record, format};
use crate::sink::{LogFile, Syslog, SyslogMethod, udp_address};
use crate::spec::Spec;

/// The default patterns, in the order of [`Destination::ALL`].
const DEFAULT_PATTERNS: [&str; 3] =
    ["ovs|%05N|%c%T|%p|%m", "%D{%Y-%m-%dT%H:%M:%SZ}|%05N|%c%T|%p|%m", "%D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c%T|%p|%m"];

/// The format for a syslog server (RFC 5424).
const TARGET_PATTERN: &str = "<%B>1 %D{%Y-%m-%dT%H:%M:%S.###Z} %E %A %P %c - \u{feff}%m";

/// No facility was chosen: the system's syslog has another default than remote targets, the console and the file.
const NO_FACILITY: u8 = u8::MAX;

/// The logging of a process.
#[derive(Debug)]
pub struct Log {
    identity: Identity,
    modules: Modules,
    patterns: RwLock<[String; 3]>,
    subprogram: RwLock<String>,
    facility: AtomicU8,
    serial: AtomicU64,
    /// True if another process opened the log file, and started this one to go on.
    continues: bool,
    file: Mutex<LogFile>,
    syslog: Mutex<Syslog>,
    target: Mutex<Option<Syslog>>,
}

impl Log {
    /// Logging of `program` to the console, at `INFO`, and to the syslog method of the environment variable
    /// `OVS_SYSLOG_METHOD`.
    pub fn new(program: &str) -> Self {
        let method = std::env::var("OVS_SYSLOG_METHOD").ok();
        let method = method.and_then(|method| SyslogMethod::parse(&method).ok()).unwrap_or(SyslogMethod::Libc);
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let continued = continued_serial();
        Self {
            identity: Identity {
                program: program.to_owned(),
                host,
                pid: std::process::id(),
                started: Timestamp::now(),
            },
            modules: Modules::of(program),
            patterns: RwLock::new(DEFAULT_PATTERNS.map(str::to_owned)),
            subprogram: RwLock::default(),
            facility: AtomicU8::new(NO_FACILITY),
            serial: AtomicU64::new(continued.unwrap_or(0)),
            continues: continued.is_some(),
            file: Mutex::default(),
            syslog: Mutex::new(Syslog::new(method)),
            target: Mutex::new(None),
        }
    }

    /// The name of the program.
    pub fn program(&self) -> &str {
        &self.identity.program
    }

    /// Makes modules known that no call site has named yet, so that `vlog/set` accepts them.
    pub fn declare(&self, modules: &[&str]) {
        for name in modules {
            self.modules.obtain(name);
        }
    }

    /// The name shown by `%t` and `%T` for messages of threads without a name of their own, for instance `monitor`.
    pub fn set_subprogram(&self, name: &str) {
        name.clone_into(&mut self.subprogram.write());
    }

    /// Sets the level of a module, or of all, for a destination, or for all.
    pub fn set_level(&self, module: Option<&str>, destination: Option<Destination>, level: Level) {
        self.modules.set_level(module, destination, level);
        tracing::callsite::rebuild_interest_cache();
    }

    /// Applies one specification of `vlog/set` or `--verbose`. The error is the reply of `vlog/set`.
    pub fn set(&self, spec: &str) -> Result<(), String> {
        match Spec::parse(spec, |name| self.modules.contains(name))? {
            Spec::Levels { module, destination, level } => self.set_level(module.as_deref(), destination, level),
            Spec::Facility(facility) => self.facility.store(facility, Relaxed),
            Spec::Pattern { destination, pattern } => {
                let mut patterns = self.patterns.write();
                match destination {
                    Some(destination) => patterns[destination.index()] = pattern,
                    None => patterns.fill(pattern),
                }
            }
        }
        Ok(())
    }

    /// The control command `vlog/set`: the specifications, or everything to `DBG` if there are none.
    pub fn set_all(&self, specs: &[String]) -> Result<(), String> {
        if specs.is_empty() {
            self.set_level(None, None, Level::Dbg);
        }
        specs.iter().try_for_each(|spec| self.set(spec))
    }

    /// The control command `vlog/list`.
    pub fn list(&self) -> String {
        self.modules.list()
    }

    /// The control command `vlog/list-pattern`.
    pub fn list_pattern(&self) -> String {
        let mut out =
            "         prefix                            format\n         ------                            ------\n"
                .to_owned();
        let syslog_prefix = self.syslog.lock().method.prefix();
        let patterns = self.patterns.read();
        for destination in Destination::ALL {
            let prefix = if destination == Destination::Syslog { syslog_prefix } else { "none" };
            out.push_str(&format!("{:<7}  {prefix:<32}  {}\n", destination.name(), patterns[destination.index()]));
        }
        out
    }

    /// The control commands `vlog/enable-rate-limit` and `vlog/disable-rate-limit`, for some modules or for all.
    pub fn set_rate_limits(&self, modules: &[String], honor: bool) -> Result<(), String> {
        if modules.is_empty() {
            self.modules.set_honor_rate_limits(None, honor);
        }
        for name in modules {
            if name.eq_ignore_ascii_case("any") {
                self.modules.set_honor_rate_limits(None, honor);
                continue;
            }
            if !self.modules.contains(name) {
                return Err("unknown module".to_owned());
            }
            self.modules.set_honor_rate_limits(Some(name), honor);
        }
        Ok(())
    }

    /// Whether messages of `module` are subject to rate limits.
    pub fn honors_rate_limits(&self, module: &str) -> bool {
        self.modules.honors_rate_limits(module)
    }

    /// Opens the log file (`--log-file`) at once, so that it also has the reason why a program does not start.
    ///
    /// # Errors
    ///
    /// The file cannot be created or written, which the log reports.
    pub fn set_file(&self, path: PathBuf) -> Result<(), Fatal> {
        let given = path.display().to_string();
        let path = std::path::absolute(&path).unwrap_or(path);
        let file = LogFile::open(&path).map_err(|error| {
            let reason = strip_os_error(&error);
            self.own(Level::Warn, &format!("failed to open {given} for logging: {reason}"));
            Fatal::Logged
        })?;
        *self.file.lock() = LogFile { path: Some(path), given: given.clone(), file: Some(file) };
        tracing::callsite::rebuild_interest_cache();
        // The process that started this one has announced the file.
        if !self.continues {
            self.own(Level::Info, &format!("opened log file {given}"));
        }
        Ok(())
    }

    /// The path of the log file, if one was named.
    pub fn file(&self) -> Option<PathBuf> {
        self.file.lock().path.clone()
    }

    /// The environment variable, and its value, by which a process that this one starts as its continuation goes on with
    /// the log: it does not announce the log file, and continues to number messages.
    pub fn continuation(&self) -> (&'static str, String) {
        (CONTINUATION, format!("{}:{}", self.identity.pid, self.serial.load(Relaxed)))
    }

    /// The control command `vlog/reopen`: opens the log file again if its name leads to another file now.
    pub fn reopen(&self) -> Result<(), String> {
        let file = self.file.lock();
        let Some(path) = file.path.clone() else { return Ok(()) };
        if file.is_current() {
            return Ok(());
        }
        let given = file.given.clone();
        let fresh = LogFile::open(&path).map_err(|error| strip_os_error(&error))?;
        let was_open = file.file.is_some();
        drop(file);
        if was_open {
            self.own(Level::Info, "closing log file");
        }
        self.file.lock().file = Some(fresh);
        tracing::callsite::rebuild_interest_cache();
        self.own(Level::Info, &format!("opened log file {given}"));
        Ok(())
    }

    /// The control command `vlog/close`: closes the log file until `vlog/reopen`.
    pub fn close(&self) {
        if self.file.lock().file.is_some() {
            self.own(Level::Info, "closing log file");
        }
        self.file.lock().file = None;
        tracing::callsite::rebuild_interest_cache();
    }

    /// `--syslog-method`.
    pub fn set_syslog_method(&self, method: &str) -> Result<(), String> {
        *self.syslog.lock() = Syslog::new(SyslogMethod::parse(method)?);
        Ok(())
    }

    /// `--syslog-target`: also sends syslog messages to this UDP address. An address that is none is an error in the log.
    pub fn set_syslog_target(&self, target: &str) {
        match udp_address(target) {
            Ok(address) => *self.target.lock() = Some(Syslog::new(SyslogMethod::Udp(address))),
            Err(reason) => self.write("socket_util", Level::Err, &format!("{target}: {reason}")),
        }
    }

    /// The destinations that exist: the file only if it is open.
    fn destinations(&self) -> Vec<Destination> {
        let has_file = self.file.lock().file.is_some();
        Destination::ALL.into_iter().filter(|destination| *destination != Destination::File || has_file).collect()
    }

    /// Whether any destination wants messages of `level` from `module`.
    pub(crate) fn wants(&self, module: &str, level: Level) -> bool {
        let module = self.modules.obtain(module);
        self.destinations().into_iter().any(|destination| module.level(destination) >= level)
    }

    /// The least severe level that anything is logged at.
    pub(crate) fn most_verbose(&self) -> Level {
        self.modules.most_verbose(&self.destinations())
    }

    /// A message of the module `vlog`.
    fn own(&self, level: Level, message: &str) {
        self.write("vlog", level, message);
    }

    /// Sends a message to every destination that wants it.
    pub fn write(&self, module: &str, level: Level, message: &str) {
        self.write_to(&Destination::ALL, module, level, message);
    }

    /// Sends the message with which the program ends to the destinations except the console: the program prints it there
    /// in its own form.
    pub fn write_fatal(&self, module: &str, message: &str) {
        self.write_to(&[Destination::Syslog, Destination::File], module, Level::Emer, message);
    }

    fn write_to(&self, destinations: &[Destination], module: &str, level: Level, message: &str) {
        let settings = self.modules.obtain(module);
        let wanted = |destination| destinations.contains(&destination) && settings.level(destination) >= level;
        if !Destination::ALL.into_iter().any(wanted) {
            return;
        }
        let subprogram = self.subprogram();
        let facility = self.facility.load(Relaxed);
        let record = Record {
            module,
            level,
            message,
            serial: self.serial.fetch_add(1, Relaxed) + 1,
            time: Timestamp::now(),
            subprogram: &subprogram,
            facility: if facility == NO_FACILITY { FACILITY_LOCAL0 } else { facility },
        };
        if wanted(Destination::Console) {
            let line = self.line(Destination::Console, &record);
            let _ = std::io::stderr().lock().write_all(line.as_bytes());
        }
        if wanted(Destination::File) {
            let file = self.file.lock();
            if file.file.is_some() {
                file.write(&self.line(Destination::File, &record));
            }
        }
        if wanted(Destination::Syslog) {
            self.write_syslog(&record, facility);
        }
    }

    fn line(&self, destination: Destination, record: &Record<'_>) -> String {
        let mut line = String::with_capacity(record.message.len() + 64);
        format(&self.patterns.read()[destination.index()], record, &self.identity, &mut line);
        line.push('\n');
        line
    }

    /// Each line of a message is a message of its own to syslog.
    fn write_syslog(&self, record: &Record<'_>, facility: u8) {
        let mut syslog = self.syslog.lock();
        let mut target = self.target.lock();
        for message in record.message.lines().filter(|line| !line.is_empty()) {
            let record = Record { message, ..*record };
            if syslog.method != SyslogMethod::Null {
                let facility = if facility == NO_FACILITY { FACILITY_DAEMON } else { facility };
                let record = Record { facility, ..record };
                let mut line = String::new();
                format(syslog.method.wire_prefix(), &record, &self.identity, &mut line);
                format(&self.patterns.read()[Destination::Syslog.index()], &record, &self.identity, &mut line);
                syslog.send(&line);
            }
            if let Some(target) = target.as_mut() {
                let mut line = String::new();
                format(TARGET_PATTERN, &record, &self.identity, &mut line);
                target.send(&line);
            }
        }
    }

    /// The name of the current thread, if it is not the main one, or else of the process within the program.
    fn subprogram(&self) -> String {
        match std::thread::current().name() {
            // The worker threads of a runtime act as the main thread.
            Some(name) if name != "main" && !name.starts_with("tokio-") => name.to_owned(),
            _ => self.subprogram.read().clone(),
        }
    }
}

/// The environment variable by which a process passes its log on: its process id and the number of its last message.
const CONTINUATION: &str = "FLOWSTONE_LOG";

/// The number of the last message, if this process continues the log of its parent, or of the program that it replaces.
fn continued_serial() -> Option<u64> {
    let value = std::env::var(CONTINUATION).ok()?;
    let (pid, serial) = value.split_once(':')?;
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let is_ours = pid == parent.to_string() || pid == std::process::id().to_string();
    serial.parse().ok().filter(|_| is_ours)
}

/// The text of an error without the number that Rust appends.
pub fn strip_os_error(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log_to(path: &std::path::Path) -> Log {
        let log = Log::new("prog");
        log.set_syslog_method("null").unwrap();
        log.set("console:off").unwrap();
        log.set("PATTERN:file:%05N|%c|%p|%m").unwrap();
        log.set_file(path.to_owned()).unwrap();
        log
    }

    #[test]
    fn a_file_that_cannot_be_opened_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let log = log_to(&directory.path().join("log"));
        assert_eq!(log.set_file(directory.path().join("missing/log")), Err(Fatal::Logged));
        let text = std::fs::read_to_string(directory.path().join("log")).unwrap();
        assert!(text.ends_with("missing/log for logging: No such file or directory\n"), "{text}");
    }

    #[test]
    fn a_wrong_syslog_target_is_logged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let log = log_to(&path);
        for target in ["x", "127.0.0.1:x", "127.0.0.1:65536", "::1:5", "[::1]:5", "localhost:5"] {
            log.set_syslog_target(target);
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let messages: Vec<_> = text.lines().skip(1).map(|line| &line[6..]).collect();
        assert_eq!(
            messages,
            [
                "socket_util|ERR|x: port must be specified",
                "socket_util|ERR|127.0.0.1:x: bad port number \"x\"",
                "socket_util|ERR|127.0.0.1:65536: bad port number \"65536\"",
                "socket_util|ERR|::1:5: port must be specified",
            ]
        );
    }

    #[test]
    fn the_file_level_filters_messages() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("prog.log");
        let log = log_to(&path);
        log.write("bridge", Level::Info, "hello");
        log.write("bridge", Level::Dbg, "hidden");
        log.set("bridge:file:dbg").unwrap();
        log.write("bridge", Level::Dbg, "shown");
        log.write("unknown_module", Level::Warn, "two\nlines");
        let text = std::fs::read_to_string(&path).unwrap();
        let opened = format!("00001|vlog|INFO|opened log file {}\n", path.display());
        assert_eq!(
            text,
            opened + "00002|bridge|INFO|hello\n00003|bridge|DBG|shown\n00004|unknown_module|WARN|two\nlines\n"
        );
    }

    #[test]
    fn the_default_facility_of_the_file_is_local0() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("prog.log");
        let log = log_to(&path);
        log.set("PATTERN:file:<%B>1 %A %m").unwrap();
        log.write("bridge", Level::Info, "default");
        log.set("FACILITY:daemon").unwrap();
        log.write("bridge", Level::Info, "chosen");
        assert!(std::fs::read_to_string(&path).unwrap().ends_with("<133>1 prog default\n<29>1 prog chosen\n"));
    }

    #[test]
    fn reopening_follows_the_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("prog.log");
        let rotated = directory.path().join("prog.log.1");
        let log = log_to(&path);
        log.write("bridge", Level::Info, "one");
        log.reopen().unwrap();
        std::fs::rename(&path, &rotated).unwrap();
        log.reopen().unwrap();
        log.write("bridge", Level::Info, "two");
        log.close();
        log.write("bridge", Level::Info, "lost");
        assert!(std::fs::read_to_string(&rotated).unwrap().ends_with("one\n00003|vlog|INFO|closing log file\n"));
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.ends_with("|bridge|INFO|two\n00006|vlog|INFO|closing log file\n"), "{text}");
        log.reopen().unwrap();
        log.write("bridge", Level::Info, "three");
        assert!(std::fs::read_to_string(&path).unwrap().ends_with("|three\n"));
    }

    #[test]
    fn lists_read_as_scripts_expect() {
        let log = Log::new("prog");
        log.set_syslog_method("libc").unwrap();
        log.set("off").unwrap();
        log.set("jsonrpc:dbg:file").unwrap();
        log.set_rate_limits(&["bridge".to_owned()], false).unwrap();
        let list = log.list();
        assert!(
            list.starts_with(
                "                 console    syslog    file\n                 -------    ------    ------\n"
            )
        );
        assert!(list.contains("\njsonrpc            OFF        OFF        DBG\n"), "{list}");
        assert!(
            list.contains("\nbridge             OFF        OFF        OFF    (rate limiting disabled)\n"),
            "{list}"
        );
        assert_eq!(
            log.list_pattern(),
            "         prefix                            format\n         ------                            ------\n\
             SYSLOG   <%B> %D{%h %e %T} %E %A:          ovs|%05N|%c%T|%p|%m\n\
             CONSOLE  none                              %D{%Y-%m-%dT%H:%M:%SZ}|%05N|%c%T|%p|%m\n\
             FILE     none                              %D{%Y-%m-%dT%H:%M:%S.###Z}|%05N|%c%T|%p|%m\n"
        );
        assert_eq!(log.set_rate_limits(&["foo".to_owned()], false), Err("unknown module".to_owned()));
    }

    #[test]
    fn levels_set_for_all_hold_for_modules_met_later() {
        let log = Log::new("prog");
        log.set("off").unwrap();
        assert!(!log.wants("met_later", Level::Emer));
        log.set("dbg").unwrap();
        assert!(log.wants("met_even_later", Level::Dbg));
    }

    #[test]
    fn syslog_datagrams() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let server = std::os::unix::net::UnixDatagram::bind(&path).unwrap();
        let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let log = Log::new("prog");
        log.set("console:off").unwrap();
        log.set_syslog_method(&format!("unix:{}", path.display())).unwrap();
        log.set_syslog_target(&udp.local_addr().unwrap().to_string());
        log.write("bridge", Level::Warn, "a\nb");
        let mut buffer = [0; 1000];
        let length = server.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..length], b"<28> ovs|00001|bridge(log::tests::syslog_datagrams)|WARN|a".as_slice());
        let length = udp.recv(&mut buffer).unwrap();
        let line = std::str::from_utf8(&buffer[..length]).unwrap();
        assert!(line.starts_with("<132>1 20") && line.ends_with(" bridge - \u{feff}a"), "{line}");
    }
}
