//! The program ovsdb-server (ovsdb-server(1)): options, control commands, and the daemon around
//! [`ovsdb_server::Server`].

pub mod control;
mod options;
pub mod saved;

use std::ffi::OsString;
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;

use daemon::SavedState;
use ovsdb_server::journal::Style;
use ovsdb_server::{Ending, OpenError, Server};
use tokio::sync::oneshot;
use tracing::info;

use options::{Invocation, Options, Origin};

/// The options, for completion in a shell.
pub fn vocabulary() -> cli::completion::Vocabulary {
    options::vocabulary()
}

/// Runs the program with `args`, the first of which is its name, and returns its exit status.
pub fn server_main(args: Vec<OsString>) -> ExitCode {
    let program = cli::program::program_name_of(&args);
    let log = vlog::init(&program);
    let options = match options::parse(args.clone(), &program, &log) {
        Ok(Invocation::Serve(options)) => *options,
        Ok(Invocation::Print(text)) => {
            return cli::print(&text);
        }
        Err(error) => return error.report(&program),
    };
    let started = match daemon::start(&args, options.daemon.clone(), &log) {
        Ok(started) => started,
        Err(error) => return cli::fail(&program, error),
    };
    match serve(started, options, &program) {
        Ok(code) => code,
        Err(message) => cli::fail(&program, message),
    }
}

fn serve(mut started: daemon::Started, mut options: Options, program: &str) -> Result<ExitCode, String> {
    let saved_state = started.saved_state();
    if let Some(config) = saved_state.as_ref().map(saved::read).transpose()?.flatten() {
        options.restore(&config)?;
    }
    let mut server = open(&options, saved_state).map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start the event loop ({error})"))?;
    runtime.block_on(async move {
        let commands = unixctl::Commands::new(cli::version_text(program));
        daemon::control::register(&commands, started.log(), started.shutdown(), Vec::new);
        control::register(&commands, &server.handle(), started.shutdown());
        let control = started.bind_control(commands.clone()).map_err(|error| error.to_string())?;
        if let Some(control) = control {
            tokio::spawn(control.run());
        }
        // Failures are logged, and retried later.
        server.listen().await;
        started.ready();
        if options.run.is_none() {
            info!(target: "ovsdb_server", "{program} (Open vSwitch) {}", cli::program::COMPATIBLE_VERSION);
        }
        let child = options.run.as_deref().map(run_child).transpose()?;
        let mut status = None;
        let end = async {
            tokio::select! {
                ended = child_end(child) => status = ended,
                reason = started.terminated(&commands) => match reason {
                    Ok(daemon::Reason::Signal(_)) => return Ending::Abrupt,
                    Ok(daemon::Reason::Exit { .. }) => {}
                    Err(error) => tracing::error!(target: "ovsdb_server", "cannot wait for signals: {error}"),
                }
            }
            Ending::Orderly
        };
        server.run_until(end).await;
        match (status, options.run) {
            (Some(status), Some(command)) if !status.success() => {
                Err(format!("{command}: child exited, {}", describe(status)))
            }
            _ => Ok(ExitCode::SUCCESS),
        }
    })
}

fn open(options: &Options, saved_state: Option<SavedState>) -> Result<Server, OpenError> {
    let mut builder = Server::builder().pki(options.pki.clone());
    if options.no_column_diff {
        builder = builder.style(Style::Whole);
    }
    for origin in &options.databases {
        builder = match origin {
            Origin::File(file) => builder.database_file(file),
            Origin::Relay(name, source) => builder.database_relay(name, source.clone()),
        };
    }
    if let Some(file) = &options.config_file {
        builder = builder.config_file(file);
    }
    builder = builder.excluded(options.excluded.clone());
    if let Some(source) = &options.sync_from {
        builder = builder.active_server(source.clone());
        if !options.begins_active {
            builder = builder.backup();
        }
    }
    for remote in &options.remotes {
        builder = builder.remote(remote.clone());
    }
    if let Some(state) = saved_state {
        builder = builder.on_change(move |config| saved::write(&state, config));
    }
    builder.open()
}

/// Starts the command of `--run`; the receiver gets its exit status.
fn run_child(command: &str) -> Result<oneshot::Receiver<ExitStatus>, String> {
    let mut child = Command::new("/bin/sh")
        .args(["-c", command])
        .spawn()
        .map_err(|error| format!("{command}: process failed to start ({error})"))?;
    let (sender, receiver) = oneshot::channel();
    std::thread::spawn(move || {
        if let Ok(status) = child.wait() {
            // The server may have ended for another reason.
            let _ = sender.send(status);
        }
    });
    Ok(receiver)
}

async fn child_end(child: Option<oneshot::Receiver<ExitStatus>>) -> Option<ExitStatus> {
    match child {
        Some(child) => child.await.ok(),
        None => std::future::pending().await,
    }
}

fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("killed ({})", daemon::status::signal_name(signal)),
        (None, None) => "terminated abnormally".to_owned(),
    }
}

/// The log of the process, for the usage text.
fn logging_usage(log: &Arc<vlog::Log>) -> String {
    log.usage()
}
