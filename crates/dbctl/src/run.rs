//! From commands to a committed transaction, and waiting until the daemon has applied it.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use cli::table::Printer;
use ovsdb::DatabaseSchema;
use ovsdb_client::{Client, Error, Idl, Outcome, Reconnect};
use tls::Tls;

use crate::command::{self, Access, Command};
use crate::context::{Committed, Context, Output};
use crate::needs::Needs;
use crate::options::Options;
use crate::{Failure, Program};

/// The longest wait between attempts to connect with `--retry`.
const BACKOFF_MAX: Duration = Duration::from_secs(8);

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Fatal(error_text(error))
    }
}

fn error_text(error: Error) -> String {
    match error {
        Error::Transaction(json) => format!("transaction error: {}", cli::json::compact(&json)),
        Error::Request { error, .. } => format!("transaction error: {}", cli::json::compact(&error)),
        other => other.to_string(),
    }
}

/// Runs the commands of the command line `words`.
pub(crate) fn run<P: Program>(program: &str, words: &[String], mut options: Options) -> Result<ExitCode, Failure> {
    let leading = std::mem::take(&mut options.leading);
    let commands = command::parse::<P>(&options.words, leading)?;
    let text = escape(words);
    let writes = commands.iter().any(|command| command.spec.access == Access::Write);
    let level = if writes { tracing::Level::INFO } else { tracing::Level::DEBUG };
    P::log(level, format_args!("Called as {text}"));
    daemon::alarm::set(options.timeout_s);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::fatal(format!("cannot start: {error}")))?;
    runtime.block_on(execute(program, &text, &options, &commands))
}

/// The command line as one line, with arguments quoted if needed.
fn escape(words: &[String]) -> String {
    let quote = |word: &String| {
        if !word.contains([' ', '\t', '\r', '\n', '\x0b', '\\', '\'', '"']) {
            return word.clone();
        }
        format!("\"{}\"", word.replace('\\', "\\\\").replace('"', "\\\""))
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

/// The comment of the transaction in the server's log.
fn comment(program: &str, text: &str) -> String {
    let parent = std::fs::read(format!("/proc/{}/cmdline", std::os::unix::process::parent_id())).unwrap_or_default();
    let parent = parent.split(|byte| *byte == 0).next().map(String::from_utf8_lossy).unwrap_or_default();
    match parent.rsplit('/').next() {
        Some(name) if !name.is_empty() => format!("{program} (invoked by {name}): {text}"),
        _ => format!("{program}: {text}"),
    }
}

async fn connect<P: Program>(options: &Options) -> Result<Client, Error> {
    let tls = Tls::new(options.tls.clone());
    let mut backoff = Duration::from_secs(1);
    loop {
        let wanted = async |client: &mut Client| {
            let standing = client.standing(P::DATABASE).await;
            standing.is_ok_and(|standing| standing.suits_a_replica(options.leader_only))
        };
        match Client::connect_to(&options.db, &tls, options.order, wanted).await {
            Err(Error::Connection { .. }) if options.retry => {
                tokio::time::sleep(backoff).await;
                backoff = (backoff * 2).min(BACKOFF_MAX);
            }
            // In the words in which a socket of such an address fails.
            Err(Error::Remote { .. }) => {
                let problem = "Address family not supported by protocol".to_owned();
                return Err(Error::Connection { remote: options.db.clone(), problem });
            }
            result => return result,
        }
    }
}

async fn execute<P: Program>(
    program: &str,
    text: &str,
    options: &Options,
    commands: &[Command<P>],
) -> Result<ExitCode, Failure> {
    let mut client = connect::<P>(options).await?;
    let schema = client.schema(P::DATABASE).await.map_err(|error| Failure::Fatal(error.to_string()))?;
    let mut needs = Needs::new(&schema, P::ways);
    for command in commands {
        (command.spec.needs)(&mut needs, command)?;
    }
    needs.columns(P::ROOT, P::CONFIGURATION.as_ref().filter(|_| options.wait).map_or(&[], |columns| columns));
    let wanted = needs.wanted;
    let mut idl = Idl::from_client(client, schema.clone(), wanted);
    // A single server need not be the leader: the user has chosen it.
    idl.set_leader_only(options.leader_only && idl.server_count() > 1);
    idl.first_contents().await?;
    idl.set_reconnect(if options.retry { Reconnect::Always } else { Reconnect::Never });
    let comment = comment(program, text);
    loop {
        // The first call returns at once; later ones wait for a relevant change.
        idl.changed().await?;
        if !idl.is_live() {
            continue;
        }
        match attempt(&mut idl, &schema, &comment, options, commands).await {
            Ok(Some(done)) => return finish::<P>(program, &mut idl, options, done).await,
            Ok(None) | Err(Failure::NotYet) => {}
            Err(failure) => return Err(failure),
        }
    }
}

/// The work left after a commit.
struct Done {
    outputs: Vec<Output>,
    /// The configuration that the daemon must reach.
    next_cfg: Option<i64>,
    added: Vec<String>,
}

/// Runs all commands and commits; `None` means to try again.
async fn attempt<P: Program>(
    idl: &mut Idl,
    schema: &Arc<DatabaseSchema>,
    comment: &str,
    options: &Options,
    commands: &[Command<P>],
) -> Result<Option<Done>, Failure> {
    let mut context = Context::new(idl.transaction(), schema.clone());
    context.txn.comment(comment);
    let root = context.root();
    if let Some([next_cfg, _]) = P::CONFIGURATION.filter(|_| options.wait) {
        context.txn.increment_column(P::ROOT, root, next_cfg);
    }
    let mut outputs = Vec::with_capacity(commands.len());
    for command in commands {
        let mut output = Output::default();
        (command.spec.run)(&mut context, command, &mut output)?;
        outputs.push(output);
    }
    check_symbols(&context)?;
    let added = std::mem::take(&mut context.added);
    let txn = context.txn;
    let outcome = if options.dry_run { Outcome::Unchanged } else { txn.commit().await? };
    let (committed, next_cfg) = match outcome {
        Outcome::Unchanged => (Committed::default(), None),
        Outcome::Committed(committed) => {
            let next_cfg = committed.incremented().filter(|_| options.wait);
            (committed, next_cfg)
        }
        Outcome::TryAgain => return Ok(None),
        Outcome::NotLocked => return Err(Failure::fatal("database not locked")),
    };
    for (command, output) in commands.iter().zip(&mut outputs) {
        if let Some(finish) = command.spec.finish {
            finish(&committed, output);
        }
    }
    Ok(Some(Done { outputs, next_cfg, added }))
}

/// Checks that the names of `--id` are both defined and used.
fn check_symbols<P: Program>(context: &Context<'_, P>) -> Result<(), Failure> {
    for (name, symbol) in context.symbols.iter() {
        if !symbol.created {
            return Err(Failure::fatal(format!(
                "row id \"{name}\" is referenced but never created (e.g. with \"-- --id={name} create ...\")"
            )));
        }
        if symbol.strong_reference {
            continue;
        }
        let only = if symbol.weak_reference { "only a weak reference" } else { "no reference" };
        P::log(
            tracing::Level::WARN,
            format_args!(
                "row id \"{name}\" was created but {only} to it was inserted, so it will not actually appear in the \
             database"
            ),
        );
    }
    Ok(())
}

async fn finish<P: Program>(program: &str, idl: &mut Idl, options: &Options, done: Done) -> Result<ExitCode, Failure> {
    print(options, done.outputs);
    let (Some(next_cfg), Some([_, cur_cfg])) = (done.next_cfg, P::CONFIGURATION) else { return Ok(ExitCode::SUCCESS) };
    loop {
        let reached = idl.rows(P::ROOT).next().is_some_and(|row| row.integer(cur_cfg) >= next_cfg);
        if reached {
            break;
        }
        idl.changed().await?;
    }
    Ok(P::report(program, idl, &done.added))
}

fn print(options: &Options, outputs: Vec<Output>) {
    let mut printer = Printer::default();
    let mut text = String::new();
    for output in outputs {
        if let Some(table) = output.table {
            text.push_str(&printer.render(&table, &options.style));
        } else if options.oneline {
            let line = output.text.strip_suffix('\n').unwrap_or(&output.text);
            text.push_str(&line.replace('\\', "\\\\").replace('\n', "\\n"));
            text.push('\n');
        } else {
            text.push_str(&output.text);
        }
    }
    // The reader may have gone away; the transaction is committed nevertheless.
    cli::output::write_now(text.as_bytes());
}
