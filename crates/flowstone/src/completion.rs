//! Completion of command lines in bash. `flowstone completion bash` prints a script for bash, which runs `flowstone
//! complete LINE` to get candidates whenever the user presses the completion key.
//!
//! Candidates come from the tables with which the programs parse their command lines, and from running daemons:
//! bridges, ports, tables and columns from the database, control commands from the daemon.

use std::ffi::OsString;
use std::process::ExitCode;

use cli::completion::{Line, Vocabulary, WordPosition};
use ovsdb::jsonrpc::Remote;
use ovsdb_client::Client;
use serde_json::{Value, json};

use crate::control::Connection;
use crate::{PROGRAMS, appctl as appctl_program, run};

/// The environment variable with bash's word separators.
const BREAKS: &str = "COMP_WORDBREAKS";

/// Subcommands of this binary that are not programs.
const SUBCOMMANDS: &[&str] = &["completion", "links", "run", "schema"];

/// `flowstone completion bash`.
pub(crate) fn script(name: &str, args: &[OsString]) -> ExitCode {
    if args != ["bash"] {
        return cli::fail(name, "completion: exactly one argument is required, the shell: bash");
    }
    let Ok(executable) = std::env::current_exe() else {
        return cli::fail(name, "completion: the path of this program is not known");
    };
    let executable = executable.display().to_string().replace('\'', "'\\''");
    let names: Vec<&str> = PROGRAMS.iter().map(|program| program.name).chain(["flowstone"]).collect();
    // A candidate that ends in = or : is not followed by a space. Without candidates, bash completes file names.
    cli::print(&format!(
        "# Completion of Flowstone's command lines in bash: source it, or put it where bash-completion looks.\n\
         _flowstone_complete() {{\n\
         \x20   mapfile -t COMPREPLY < <({BREAKS}=\"${BREAKS}\" '{executable}' complete \"${{COMP_LINE:0:COMP_POINT}}\" 2>/dev/null)\n\
         \x20   [[ ${{#COMPREPLY[@]}} -eq 1 && ${{COMPREPLY[0]}} == *[=:] ]] && compopt -o nospace 2>/dev/null\n\
         \x20   return 0\n\
         }}\n\
         complete -o default -F _flowstone_complete {}\n",
        names.join(" ")
    ))
}

/// `flowstone complete LINE`: prints the candidates for the end of a line, one per line.
pub(crate) fn main(name: &str, args: &[OsString]) -> ExitCode {
    let [line] = args else {
        return cli::fail(name, "complete: exactly one argument is required, the command line up to the cursor");
    };
    if let Err(problem) = cli::completion::patience() {
        return cli::fail(name, &problem);
    }
    let mut line = Line::parse(&line.to_string_lossy());
    let candidates = candidates(&mut line);
    let separators = std::env::var(BREAKS).unwrap_or_default();
    // Only the separators that occur within what programs parse as one word.
    let separators: String = separators.chars().filter(|c| ":=".contains(*c)).collect();
    let answers = line.answer(candidates, &separators);
    cli::print(&answers.iter().map(|answer| format!("{answer}\n")).collect::<String>())
}

fn candidates(line: &mut Line) -> Vec<String> {
    let called = line.words.first().map(|word| cli::program_name(word.as_ref())).unwrap_or_default();
    if let Some(program) = PROGRAMS.iter().find(|program| program.name == called) {
        return (program.complete)(line);
    }
    let subcommands = PROGRAMS.iter().map(|program| program.subcommand).chain(SUBCOMMANDS.iter().copied());
    let Some(word) = line.words.get(1).cloned() else {
        return subcommands.map(str::to_owned).collect();
    };
    if let Some(program) = PROGRAMS.iter().find(|program| program.subcommand == word || program.name == word) {
        line.words.remove(0);
        return (program.complete)(line);
    }
    match word.as_str() {
        "run" => options(run::vocabulary(), line),
        "completion" => vec!["bash".to_owned()],
        "schema" => ovsdb::schemas::ALL.iter().map(|(name, _)| (*name).to_owned()).collect(),
        _ => Vec::new(),
    }
}

fn place(vocabulary: &Vocabulary, line: &Line) -> WordPosition {
    vocabulary.position(line.words.get(1..).unwrap_or_default(), &line.current)
}

/// Options and commands; arguments are file names, which bash completes.
pub(crate) fn options(vocabulary: Vocabulary, line: &Line) -> Vec<String> {
    match place(&vocabulary, line) {
        WordPosition::Option => vocabulary.option_words().collect(),
        WordPosition::Command => vocabulary.commands,
        WordPosition::Value(_) | WordPosition::Argument(_) => Vec::new(),
    }
}

/// The names before `suffix` of the files in the run directory.
fn running(suffix: &str) -> Vec<String> {
    let files = std::fs::read_dir(daemon::dirs::rundir()).into_iter().flatten().flatten();
    let name = |file: std::fs::DirEntry| file.file_name().to_str()?.strip_suffix(suffix).map(str::to_owned);
    files.filter_map(name).collect()
}

/// Bridges that accept OpenFlow connections.
fn bridges() -> Vec<String> {
    running(".mgmt")
}

/// ovs-ofctl: its first argument is a bridge.
pub(crate) fn ofctl(line: &Line) -> Vec<String> {
    let vocabulary = ofctl::vocabulary();
    match place(&vocabulary, line) {
        WordPosition::Argument(words) if words.len() == 1 => bridges(),
        _ => options(vocabulary, line),
    }
}

/// ovs-vtep: its argument is the bridge of a physical switch.
pub(crate) fn vtep(line: &Line) -> Vec<String> {
    let vocabulary = vtep::vocabulary();
    match place(&vocabulary, line) {
        WordPosition::Command => bridges(),
        _ => options(vocabulary, line),
    }
}

/// ovs-appctl: the commands are the daemon's, and their usage shows which arguments are bridges.
pub(crate) fn appctl(line: &Line) -> Vec<String> {
    let vocabulary = appctl_program::vocabulary();
    let place = place(&vocabulary, line);
    match &place {
        WordPosition::Option => return vocabulary.option_words().collect(),
        WordPosition::Value("target") => return running(".pid"),
        WordPosition::Value("format") => return ["json", "text"].map(str::to_owned).to_vec(),
        _ => {}
    }
    // The last occurrence on the command line wins.
    let words = line.words.iter();
    let mut target = "ovs-vswitchd";
    for (word, next) in words.clone().zip(words.skip(1)) {
        if word == "-t" || word == "--target" {
            target = next.as_str();
        } else if let Some(value) = next.strip_prefix("--target=").or_else(|| next.strip_prefix("-t")) {
            target = if value.is_empty() { target } else { value };
        }
    }
    // [`main`] has checked that there is no error.
    let patience = cli::completion::patience().unwrap_or_default();
    let listed = Connection::open(target).and_then(|mut daemon| {
        daemon.set_patience(patience)?;
        daemon.call("list-commands", &[])
    });
    let Ok(Value::String(text)) = listed else { return Vec::new() };
    // The first line is a heading, followed by the commands with their usage.
    let mut commands = text.lines().skip(1).map(|line| line.trim().split_once(' ').unwrap_or((line.trim(), "")));
    match place {
        WordPosition::Command => commands.map(|(name, _)| name.to_owned()).collect(),
        WordPosition::Argument(words) => {
            let usage = commands.find(|(name, _)| words.first().is_some_and(|word| word == name));
            let names_bridges = usage.is_some_and(|(_, usage)| usage.to_ascii_lowercase().contains("bridge"));
            if names_bridges { bridges() } else { Vec::new() }
        }
        WordPosition::Option | WordPosition::Value(_) => Vec::new(),
    }
}

/// ovsdb-client: completes server, databases, tables, and columns of a table.
pub(crate) fn ovsdb_client(line: &Line) -> Vec<String> {
    let vocabulary = ovsdb_tools::client::vocabulary();
    let WordPosition::Argument(words) = place(&vocabulary, line) else { return options(vocabulary, line) };
    let default = format!("unix:{}/db.sock", daemon::dirs::rundir().display());
    let mut args = words.get(1..).unwrap_or_default();
    let named = args.first().filter(|word| word.contains(':'));
    if named.is_some() {
        args = args.get(1..).unwrap_or_default();
    }
    let server = if named.is_none() && args.is_empty() { Some(default.clone()) } else { None };
    let known = ask(named.unwrap_or(&default), args.first());
    let (databases, tables) = known.unwrap_or_default();
    if args.first().is_some_and(|word| databases.contains(word)) {
        args = args.get(1..).unwrap_or_default();
    }
    let wants_table = matches!(words.first().map(String::as_str), Some("dump" | "list-columns" | "monitor"));
    match args {
        [] => server.into_iter().chain(databases).chain(tables.into_keys().filter(|_| wants_table)).collect(),
        [table, ..] if wants_table => tables.get(table).cloned().unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// Columns by table.
type Tables = std::collections::BTreeMap<String, Vec<String>>;

/// The databases of a server, and the tables of `database`, or of the default database if the server does not have it.
fn ask(server: &str, database: Option<&String>) -> Option<(Vec<String>, Tables)> {
    // Completion must not open a listening socket.
    if Remote::any_is_passive(server) {
        return None;
    }
    let patience = cli::completion::patience().ok()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    runtime.block_on(async {
        let asked = async {
            let mut client = Client::connect(server, &std::sync::Arc::default()).await.ok()?;
            let list = client.request("list_dbs", Vec::new()).await.unwrap_or_else(|_| json!([]));
            let names = list.as_array().into_iter().flatten().filter_map(Value::as_str);
            let databases: Vec<String> = names.map(str::to_owned).collect();
            let default = "Open_vSwitch".to_owned();
            let database = database.filter(|name| databases.contains(name)).unwrap_or(&default);
            let mut tables = Tables::new();
            if let Ok(schema) = client.schema(database).await {
                for table in schema.tables() {
                    let columns = table.own_columns().map(|(_, column)| column.name.clone());
                    tables.insert(table.name.clone(), columns.collect());
                }
            }
            Some((databases, tables))
        };
        tokio::time::timeout(patience, asked).await.ok()?
    })
}
