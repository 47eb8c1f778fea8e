//! The program ovs-vswitchd: options, daemonizing, control socket.

use crate::commands;
use crate::confinement::Confinement;
use crate::cores::Cores;
use crate::run::{Daemon, Options};
use crate::types::{DummyLevel, Types};
use base::Clock;
use cli::options::HELP_AND_VERSION;
use cli::{Arg, Fatal, Opt, Parser};
use daemon::DaemonOptions;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;

const OPTIONS: &[Opt] = &[
    Opt::new("enable-dummy", Arg::Optional),
    Opt::new("disable-system", Arg::None),
    Opt::new("disable-system-route", Arg::None),
    Opt::new("dummy-numa", Arg::Required),
    Opt::new("mlockall", Arg::None),
    Opt::new("hw-rawio-access", Arg::None),
    Opt::new("private-key", Arg::Required).short('p'),
    Opt::new("certificate", Arg::Required).short('c'),
    Opt::new("ca-cert", Arg::Required).short('C'),
    Opt::new("bootstrap-ca-cert", Arg::Required),
    Opt::new("peer-ca-cert", Arg::Required),
    Opt::new("ssl-protocols", Arg::Required),
    Opt::new("ssl-ciphers", Arg::Required),
    Opt::new("ssl-ciphersuites", Arg::Required),
    Opt::new("ssl-server-name", Arg::Required),
];

/// What the command line says.
#[derive(Debug, Default)]
struct CommandLine {
    daemon: DaemonOptions,
    types: Types,
    remote: Option<String>,
    /// The nodes of dummy cores.
    dummy_numa: Option<String>,
    tls: tls::Config,
}

/// The options, for completion in a shell.
pub fn vocabulary() -> cli::completion::Vocabulary {
    cli::completion::Vocabulary::new(&[OPTIONS, daemon::OPTIONS, vlog::OPTIONS, HELP_AND_VERSION], [])
}

/// Runs ovs-vswitchd. `args[0]` is the name that it was called by.
pub fn main(args: Vec<OsString>) -> ExitCode {
    let program = "ovs-vswitchd";
    let log = vlog::init(program);
    let command_line = match parse(args.clone(), &log) {
        Ok(Some(command_line)) => command_line,
        Ok(None) => return ExitCode::SUCCESS,
        Err(error) => return error.report(program),
    };
    match serve(&args, command_line, &log) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => cli::program::fail(program, message),
    }
}

fn parse(args: Vec<OsString>, log: &Arc<vlog::Log>) -> Result<Option<CommandLine>, Fatal> {
    let mut parser = Parser::new(args, &[OPTIONS, daemon::OPTIONS, vlog::OPTIONS, HELP_AND_VERSION]);
    let mut command_line = CommandLine::default();
    for found in &mut parser {
        let found = found?;
        let value = found.value.as_deref();
        match found.id {
            "help" => {
                cli::print_or_end(&usage(log));
                return Ok(None);
            }
            "version" => {
                cli::print_or_end(&cli::program::version_text("ovs-vswitchd"));
                return Ok(None);
            }
            "enable-dummy" => command_line.types.dummy = DummyLevel::parse(value)?,
            "disable-system" => command_line.types.no_system = true,
            "dummy-numa" => command_line.dummy_numa = value.map(str::to_owned),
            "disable-system-route" => command_line.types.no_system_routes = true,
            "mlockall" => rustix::mm::mlockall(rustix::mm::MlockAllFlags::CURRENT | rustix::mm::MlockAllFlags::FUTURE)
                .map_err(|e| format!("mlockall failed ({e})"))?,
            "hw-rawio-access" => command_line.daemon.raw_io = true,
            id if command_line.tls.accept(id, value.unwrap_or_default()) => {}
            id if command_line.daemon.accept(id, value)? => {}
            id => {
                log.accept(id, value)?;
            }
        }
    }
    let mut positionals = parser.into_positionals().into_iter();
    command_line.remote = positionals.next();
    if positionals.next().is_some() {
        return Err("at most one non-option argument accepted; use --help for usage".into());
    }
    Ok(Some(command_line))
}

fn usage(log: &vlog::Log) -> String {
    let socket = daemon::dirs::rundir().join("db.sock");
    format!(
        "ovs-vswitchd: Flowstone switch daemon\n\
         usage: ovs-vswitchd [OPTIONS] [DATABASE]\n\
         where DATABASE is a socket on which ovsdb-server is listening\n\x20     (default: \"unix:{}\").\n\
         \nSwitch options:\n\
         \x20 --enable-dummy[=LEVEL]  allow dummy datapaths and interfaces; LEVEL \"system\" puts\n\
         \x20                         them in the place of type \"system\", \"override\" of all\n\
         \x20 --dummy-numa=NODE,...   packet threads see as many cores, each on that NUMA node,\n\
         \x20                         and not those of the machine (for tests)\n\
         \x20 --disable-system        no datapath of type \"system\"\n\
         \x20 --disable-system-route  tunnels do not use the routes of the system\n\
         \x20 --mlockall              keep all memory resident\n\
         \x20 --hw-rawio-access       keep the capability for raw I/O with --user\n\
         {}\x20 --bootstrap-ca-cert=FILE  the same, taken from the first server if not there\n\
         \x20 --peer-ca-cert=FILE     file with CA certificate to show to peers\n\
         {}{}\n\
         Other options:\n\
         \x20 --unixctl=SOCKET        override default control socket name\n\
         \x20 -h, --help              display this help message\n\
         \x20 -V, --version           display version information\n",
        socket.display(),
        tls::Config::usage(),
        daemon::options::usage("ovs-vswitchd"),
        log.usage(),
    )
}

fn serve(args: &[OsString], command_line: CommandLine, log: &Arc<vlog::Log>) -> Result<(), String> {
    let mut options = command_line.daemon;
    // As another user, devices must still open.
    options.datapath_access = true;
    let is_on = !options.no_self_confinement;
    let mut started = daemon::start(args, options, log).map_err(|e| e.to_string())?;
    Cores::discover(command_line.dummy_numa.as_deref());
    let runtime = runtime().map_err(|e| e.to_string())?;
    let rundir = daemon::dirs::rundir();
    let remote = command_line.remote.unwrap_or_else(|| format!("unix:{}", rundir.join("db.sock").display()));
    runtime.block_on(async {
        let confinement = Confinement { rundir, is_on };
        let options = Options { remote, confinement, types: command_line.types, host_versions: false, tls: command_line.tls };
        let mut switch = Daemon::new(options, Clock::real())?;
        let commands = control_commands("ovs-vswitchd", log, started.shutdown(), &switch);
        let control = started.bind_control(commands.clone()).map_err(|e| e.to_string())?;
        tracing::info!(target: "vswitchd", "{}", cli::program::version_text("ovs-vswitchd").lines().next().unwrap_or_default());
        if let Some(control) = control {
            tokio::spawn(control.run());
        }
        until_the_end(&mut switch, &mut started, &commands).await
    })
}

/// Serves until a signal or command ends the daemon. With --detach, its parent process ends once the database was read
/// and its configuration runs.
pub async fn until_the_end(
    switch: &mut Daemon,
    started: &mut daemon::Started,
    commands: &unixctl::Commands,
) -> Result<(), String> {
    let (configured, first) = tokio::sync::oneshot::channel();
    let mut configured = Some(configured);
    let serving = switch.run(move || {
        if let Some(configured) = configured.take() {
            // The receiver is gone if a signal or command ended the daemon meanwhile.
            let _ = configured.send(());
        }
    });
    tokio::pin!(serving);
    tokio::select! {
        () = &mut serving => return Ok(()),
        _ = first => started.ready(),
        end = started.terminated(commands) => return end.map(|_| ()).map_err(|e| e.to_string()),
    }
    tokio::select! {
        () = serving => Ok(()),
        end = started.terminated(commands) => end.map(|_| ()).map_err(|e| e.to_string()),
    }
}

/// All control commands of a switch.
pub fn control_commands(
    program: &str,
    log: &Arc<vlog::Log>,
    shutdown: &daemon::Shutdown,
    switch: &Daemon,
) -> unixctl::Commands {
    let commands = unixctl::Commands::new(cli::program::version_text(program).trim_end());
    let devices = Arc::clone(&switch.devices);
    daemon::control::register(&commands, log, shutdown, move || commands::usage(&devices));
    commands::register(&commands, &switch.devices);
    commands::settings::register(&commands, switch.counts());
    let shutdown = shutdown.clone();
    commands.register("exit", "[--cleanup]", 0..=1, move |args| {
        let cleanup = match args.first().map(String::as_str) {
            None => false,
            Some("--cleanup") => true,
            Some(other) => return Err(format!("unknown option {other}")),
        };
        shutdown.request(daemon::Reason::Exit { cleanup });
        Ok(String::new())
    });
    commands
}

/// The runtime of the thread that serves connections. After each turn of one of them it looks who else has something to
/// say: by itself it would do so after dozens, if one connection never stops.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().event_interval(1).build()
}
