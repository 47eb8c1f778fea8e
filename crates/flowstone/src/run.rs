//! `flowstone run`: database and switch in one process.
//!
//! The database server runs on a thread of its own and serves its socket as usual; the switch is an ordinary client of
//! it. To tools the process looks like both daemons: it holds both pid files and serves both control sockets.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use base::Clock;
use cli::options::HELP_AND_VERSION;
use cli::{Arg, Fatal, Opt, Parser};
use daemon::options::PidFileName;
use daemon::{DaemonOptions, PidFile, dirs};
use ovsdb::schema::DatabaseSchema;
use ovsdb_server::{Builder, Excluded, RunningConfig, Source};
use ovsdb_tools::server::saved;
use tokio::sync::oneshot;
use vswitchd::confinement::Confinement;
use vswitchd::cores::Cores;
use vswitchd::run::{Daemon, Options};
use vswitchd::types::{DummyLevel, Types};

const OPTIONS: &[Opt] = &[
    Opt::new("db", Arg::Required),
    Opt::new("remote", Arg::Required),
    Opt::new("enable-dummy", Arg::Optional),
    Opt::new("disable-system", Arg::None),
    Opt::new("dummy-numa", Arg::Required),
];

/// The parsed command line.
struct CommandLine {
    daemon: DaemonOptions,
    types: Types,
    /// The nodes of dummy cores.
    dummy_numa: Option<String>,
    database: PathBuf,
    remotes: Vec<String>,
}

/// Runs both.
pub(crate) fn main(args: Vec<OsString>) -> ExitCode {
    let program = "flowstone";
    let log = vlog::init(program);
    let command_line = match parse(args.clone(), &log) {
        Ok(Some(command_line)) => command_line,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => return error.report(program),
    };
    // A daemon that re-executes itself needs the subcommand that was removed.
    let mut full_args = args;
    full_args.insert(1, "run".into());
    match serve(&full_args, command_line, &log) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => cli::fail(program, message),
    }
}

/// The options, for shell completion.
pub(crate) fn vocabulary() -> cli::completion::Vocabulary {
    cli::completion::Vocabulary::new(&[OPTIONS, daemon::OPTIONS, vlog::OPTIONS, HELP_AND_VERSION], [])
}

fn parse(args: Vec<OsString>, log: &Arc<vlog::Log>) -> Result<Option<CommandLine>, Fatal> {
    let mut parser = Parser::new(args, &[OPTIONS, daemon::OPTIONS, vlog::OPTIONS, HELP_AND_VERSION]);
    let mut line = CommandLine {
        daemon: DaemonOptions::default(),
        types: Types::default(),
        dummy_numa: None,
        database: dirs::dbdir().join("conf.db"),
        remotes: Vec::new(),
    };
    for found in &mut parser {
        let found = found?;
        let value = found.value.as_deref();
        match (found.id, value) {
            ("help", _) => {
                cli::print_or_end(&usage(log));
                return Ok(None);
            }
            ("version", _) => {
                cli::print_or_end(&cli::version_text("flowstone"));
                return Ok(None);
            }
            ("db", Some(path)) => line.database = path.into(),
            ("remote", Some(remote)) => line.remotes.push(remote.to_owned()),
            ("enable-dummy", level) => line.types.dummy = DummyLevel::parse(level)?,
            ("disable-system", _) => line.types.no_system = true,
            ("dummy-numa", nodes) => line.dummy_numa = nodes.map(str::to_owned),
            (id, value) if line.daemon.accept(id, value)? => {}
            (id, value) => {
                if id == "log-file" && value.is_none() {
                    let dir = dirs::logdir();
                    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
                }
                log.accept(id, value)?;
            }
        }
    }
    if let Some(extra) = parser.into_positionals().first() {
        return Err(format!("unexpected argument '{extra}'; use --help for usage").into());
    }
    if line.daemon.unixctl.is_some() {
        return Err("--unixctl: the process answers on the sockets of both daemons, which have fixed names".into());
    }
    if line.daemon.pidfile.is_some() {
        return Err("--pidfile: the process always has the pid files of both daemons".into());
    }
    line.daemon.pidfile = Some(PidFileName::Named(dirs::rundir().join("ovs-vswitchd.pid")));
    Ok(Some(line))
}

fn usage(log: &vlog::Log) -> String {
    format!(
        "flowstone run: database and switch in one process\n\
         usage: flowstone run [OPTIONS]\n\
         \x20 --db=FILE               the database, made if it is not there\n\
         \x20                         (default: {})\n\
         \x20 --remote=REMOTE         where else the database listens, beside punix:{}\n\
         \x20 --enable-dummy[=LEVEL]  allow dummy datapaths and interfaces; LEVEL \"system\" puts\n\
         \x20                         them in the place of type \"system\", \"override\" of all\n\
         \x20 --disable-system        no datapath of type \"system\"\n\
         \x20 --dummy-numa=NODE,...   packet threads see as many cores, each on that NUMA node,\n\
         \x20                         and not those of the machine (for tests)\n\
         {}{}",
        dirs::dbdir().join("conf.db").display(),
        dirs::rundir().join("db.sock").display(),
        daemon::options::usage("ovs-vswitchd"),
        log.usage(),
    )
}

fn serve(args: &[OsString], line: CommandLine, log: &Arc<vlog::Log>) -> Result<(), String> {
    let rundir = dirs::rundir();
    for dir in [Some(rundir.as_path()), line.database.parent()].into_iter().flatten() {
        std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    let overwrite = line.daemon.overwrite_pidfile;
    let mut options = line.daemon;
    options.datapath_access = true;
    let is_on = !options.no_self_confinement;
    let mut started = daemon::start(args, options, log).map_err(|e| e.to_string())?;
    Cores::discover(line.dummy_numa.as_deref());
    let database_pid = PidFile::create(&rundir.join("ovsdb-server.pid"), overwrite).map_err(|e| e.to_string())?;
    let database = Database::start(&line.database, line.remotes, &rundir, &started)?;
    let runtime = vswitchd::program::runtime().map_err(|e| e.to_string())?;
    let outcome = runtime.block_on(async {
        let remote = format!("unix:{}", rundir.join("db.sock").display());
        let confinement = Confinement { rundir: rundir.clone(), is_on };
        let options =
            Options { remote, confinement, types: line.types, host_versions: true, tls: tls::Config::default() };
        let mut switch = Daemon::new(options, Clock::real())?;
        let commands = vswitchd::program::control_commands("ovs-vswitchd", log, started.shutdown(), &switch);
        tokio::spawn(bind(&rundir, "ovs-vswitchd", &commands)?.run());
        vswitchd::program::until_the_end(&mut switch, &mut started, &commands).await
    });
    database.stop();
    drop(database_pid);
    outcome
}

/// Binds the control socket under `program`'s name.
fn bind(rundir: &Path, program: &str, commands: &unixctl::Commands) -> Result<unixctl::Server, String> {
    let path = rundir.join(format!("{program}.{}.ctl", std::process::id()));
    unixctl::Server::bind(&path, commands.clone()).map_err(|e| format!("{}: {e}", path.display()))
}

/// Adds the databases and addresses of `config` to a server. The database in `file` is created if it is missing, and
/// converted if its schema is an older one.
fn configure(mut builder: Builder, config: &RunningConfig, file: &Path) -> Result<Builder, String> {
    for text in &config.databases {
        builder = match Source::parse_relay(text) {
            Some(relay) => {
                let (name, source) = relay.map_err(|e| e.to_string())?;
                builder.database_relay(name, source)
            }
            None if Path::new(text) == file => {
                let schema = DatabaseSchema::parse(ovsdb::schemas::OPEN_VSWITCH).map_err(|e| e.to_string())?;
                builder.database_file_upgraded(file, schema)
            }
            None => builder.database_file(text),
        };
    }
    for remote in &config.remotes {
        builder = builder.remote(remote.clone());
    }
    builder = builder.excluded(Excluded::from(config.excluded.as_str()));
    if let Some(server) = &config.active_server {
        builder = builder.active_server(Source::parse(server)?);
        if config.is_backup {
            builder = builder.backup();
        }
    }
    Ok(builder)
}

/// The database server on its thread.
struct Database {
    stop: oneshot::Sender<()>,
    thread: std::thread::JoinHandle<()>,
}

impl Database {
    /// Opens the database, and returns when its socket is listening.
    fn start(file: &Path, remotes: Vec<String>, rundir: &Path, started: &daemon::Started) -> Result<Self, String> {
        let (log, shutdown, saved_state) = (started.log(), started.shutdown(), started.saved_state());
        let given = [vec![format!("punix:{}", rundir.join("db.sock").display())], remotes].concat();
        let file = std::path::absolute(file).map_err(|e| format!("{}: {e}", file.display()))?;
        // After a crash, what control commands made of the configuration; otherwise that of the command line.
        let config = match saved_state.as_ref().map(saved::read).transpose()?.flatten() {
            Some(config) => config,
            None => RunningConfig {
                databases: vec![file.display().to_string()],
                remotes: [vec!["db:Open_vSwitch,Open_vSwitch,manager_options".to_owned()], given.clone()].concat(),
                ..RunningConfig::default()
            },
        };
        let mut builder = ovsdb_server::Server::builder().pki(ovsdb_server::Pki::of_open_vswitch());
        if let Some(state) = saved_state {
            builder = builder.on_change(move |config| saved::write(&state, config));
        }
        let mut server = configure(builder, &config, &file)?.open().map_err(|e| e.to_string())?;
        let commands = unixctl::Commands::new(cli::version_text("ovsdb-server").trim_end());
        daemon::control::register(&commands, log, shutdown, Vec::new);
        ovsdb_tools::server::control::register(&commands, &server.handle(), shutdown);
        let control = bind(rundir, "ovsdb-server", &commands)?;
        let (stop, stopped) = oneshot::channel();
        let (listening, heard) = std::sync::mpsc::channel();
        let body = move || {
            let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
                Ok(runtime) => runtime,
                Err(e) => {
                    let _ = listening.send(Err(format!("cannot start the event loop ({e})")));
                    return;
                }
            };
            runtime.block_on(async move {
                tokio::spawn(control.run());
                let mut failed = server.listen().await;
                // Remotes in the database are retried, and can be changed once everything runs.
                failed.retain(|problem| given.iter().any(|remote| problem.starts_with(&format!("{remote}: "))));
                let _ = listening.send(if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) });
                server
                    .run(async {
                        // This also ends when the sender is gone.
                        let _ = stopped.await;
                    })
                    .await;
            });
        };
        let thread = std::thread::Builder::new().name("ovsdb".to_owned()).spawn(body).map_err(|e| e.to_string())?;
        match heard.recv() {
            Ok(Ok(())) => Ok(Self { stop, thread }),
            Ok(Err(e)) => Err(e),
            Err(_) => Err("the database thread ended before it served".to_owned()),
        }
    }

    /// Stops the server after it has written the transactions that it accepted.
    fn stop(self) {
        let _ = self.stop.send(());
        if self.thread.join().is_err() {
            tracing::error!(target: "ovsdb_server", "the database thread failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_database_is_converted_and_saved_settings_are_restored() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("conf.db");
        let older = DatabaseSchema::parse(r#"{"name": "Open_vSwitch", "version": "1.0.0", "tables": {}}"#).unwrap();
        drop(ovsdb_server::Server::builder().database_file_or_new(&file, older).open().unwrap());
        let config = RunningConfig {
            databases: vec![file.display().to_string(), "relay:other:unix:x".to_owned()],
            active_server: Some("unix:y".to_owned()),
            excluded: "a:b".to_owned(),
            ..RunningConfig::default()
        };
        let server = configure(ovsdb_server::Server::builder(), &config, &file).unwrap().open().unwrap();
        let shipped = DatabaseSchema::parse(ovsdb::schemas::OPEN_VSWITCH).unwrap();
        assert_eq!(server.core().database("Open_vSwitch").unwrap().schema().version, shipped.version);
        assert!(server.core().database_names().any(|name| name == "other"));
        assert_eq!(server.core().active_server().map(Source::to_string).as_deref(), Some("unix:y"));
        assert_eq!((server.core().excluded().to_string(), server.core().is_backup()), ("a:b".to_owned(), false));
    }
}
