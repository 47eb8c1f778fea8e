//! The smallest daemon: it answers the standard control commands, `echo`, `crash`, and under a monitor `remember` and
//! `recall`. The tests of this crate run it.

use std::ffi::OsString;
use std::process::ExitCode;

use daemon::{DaemonOptions, StartError};

fn main() -> ExitCode {
    let args: Vec<OsString> = std::env::args_os().collect();
    let program = cli::program::program_name_of(&args);
    let log = vlog::init(&program);
    let mut options = DaemonOptions::default();
    let tables = [daemon::OPTIONS, vlog::OPTIONS, cli::options::HELP_AND_VERSION];
    for found in cli::Parser::new(args.clone(), &tables) {
        let cli::Found { id, value } = match found {
            Ok(found) => found,
            Err(error) => {
                eprintln!("{error}");
                return ExitCode::FAILURE;
            }
        };
        match id {
            "version" => {
                print!("{}", cli::version_text(&program));
                return ExitCode::SUCCESS;
            }
            "help" => {
                print!("{}{}", daemon::options::usage(&program), log.usage());
                return ExitCode::SUCCESS;
            }
            _ => {
                let taken = options.accept(id, value.as_deref());
                if let Err(error) =
                    taken.and_then(|taken| if taken { Ok(true) } else { log.accept(id, value.as_deref()) })
                {
                    return error.report(&program);
                }
            }
        }
    }
    daemon::finish(match serve(&args, options, &program) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => cli::fail(&program, error),
    })
}

fn serve(args: &[OsString], options: DaemonOptions, program: &str) -> Result<(), StartError> {
    let mut started = daemon::start(args, options, &vlog::init(program))?;
    let commands = unixctl::Commands::new(cli::version_text(program));
    daemon::control::register(&commands, started.log(), started.shutdown(), || vec![("echoes".to_owned(), 0)]);
    commands.register("echo", "[ARG]...", 0..=usize::MAX, |args| Ok(args.join(" ")));
    if let Some(state) = started.saved_state() {
        let remembered = state.read().map_err(StartError::Spawn)?.unwrap_or_default();
        commands.register("recall", "", 0..=0, move |_| Ok(remembered.clone()));
        commands.register("remember", "", 0..=0, move |_| {
            state.write("what was remembered").map(|()| String::new()).map_err(|error| error.to_string())
        });
    }
    commands.register("crash", "", 0..=0, |_| std::process::abort());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Spawn)?;
    let server = started.bind_control(commands.clone())?;
    let ended = runtime.block_on(async {
        let server = server.map(|server| tokio::spawn(server.run()));
        started.ready();
        tracing::info!(target: "echo", "serving");
        let ended = started.terminated(&commands).await;
        if let Some(server) = server {
            server.abort();
            // Dropping the server removes the socket's file.
            let _ = server.await;
        }
        ended
    });
    ended.map(drop).map_err(StartError::Spawn)
}
