//! The output of `--help`, `--version`, `--commands` and `--options`.

use std::fmt::Write as _;

use cli::options::{Arg, Opt};

use crate::{Program, command};

/// The output of `--version`.
pub(crate) fn version<P: Program>(program: &str) -> String {
    format!("{}DB Schema {}\n", cli::version_text(program), P::SCHEMA_VERSION)
}

/// The output of `--commands`: a line for each command, for shell completion.
pub(crate) fn commands<P: Program>() -> String {
    let mut text = String::new();
    for spec in command::all::<P>() {
        for option in spec.options {
            let _ = write!(text, "[{option}] ");
        }
        let _ = writeln!(text, ",{},{}", spec.name, spec.arguments);
    }
    text
}

/// The output of `--options`: a line for each global option, for shell completion.
pub(crate) fn options(fragments: &[&[Opt]]) -> String {
    let mut text = String::new();
    for opt in fragments.iter().copied().flatten() {
        let suffix = if opt.arg == Arg::None { "" } else { "=ARG" };
        if !opt.long.is_empty() {
            let _ = writeln!(text, "--{}{suffix}", opt.long);
        }
        if let Some(letter) = opt.short {
            let _ = writeln!(text, "-{letter}{}", if opt.arg == Arg::None { "" } else { " ARG" });
        }
    }
    text
}

/// A group of commands in the help: its title, and for each form of a command its description.
pub type Group = (&'static str, &'static [(&'static str, &'static str)]);

/// The database commands, which every program has.
#[rustfmt::skip]
const DATABASE: Group =
    ("Database commands", &[
        ("[--if-exists] [--columns=COL,...] list TBL [REC]...", "print records"),
        ("[--columns=COL,...] find TBL [COL[:KEY]=VALUE]...", "print the records that satisfy conditions"),
        ("[--if-exists] [--id=@NAME] get TBL REC [COL[:KEY]]...", "print values"),
        ("[--if-exists] set TBL REC COL[:KEY]=VALUE...", "set values"),
        ("[--if-exists] add TBL REC COL [KEY=]VALUE...", "add elements to a column"),
        ("[--if-exists] remove TBL REC COL KEY|VALUE|KEY=VALUE...", "remove elements from a column"),
        ("[--if-exists] clear TBL REC COL...", "empty columns"),
        ("[--id=@NAME|UUID] create TBL COL[:KEY]=VALUE...", "add a record and print its UUID"),
        ("[--if-exists] destroy TBL REC...", "delete records"),
        ("--all destroy TBL", "delete all records of a table"),
        ("wait-until TBL REC [COL[:KEY]=VALUE]...", "wait for a record that satisfies conditions"),
        ("comment [ARG]...", "do nothing, but for the database's log"),
    ]);

/// The output of `--help`.
pub(crate) fn usage<P: Program>(program: &str, log: &vlog::Log, default_db: &str) -> String {
    let mut text = format!(
        "{program}: {}\nusage: {program} [OPTIONS] [--] [COMMAND-OPTIONS] \
         COMMAND [ARG...] [-- [COMMAND-OPTIONS] COMMAND [ARG...]]...\n",
        P::TITLE
    );
    let bootstrap = if P::BOOTSTRAP_OPTIONS.is_empty() {
        ""
    } else {
        "  --bootstrap-ca-cert=FILE  the same, taken from the first server if not there\n"
    };
    for (title, forms) in P::HELP.iter().chain([&DATABASE]) {
        let _ = writeln!(text, "\n{title}:");
        for (form, does) in *forms {
            let _ = writeln!(text, "  {form}\n      {does}");
        }
    }
    let _ = write!(
        text,
        "
{}

Options:
  --db=SERVER[,SERVER]... database server or servers, by default {default_db}
{}  -t, --timeout=SECS      give up after SECS seconds
  --dry-run               change nothing
  --oneline               one line of output for each command
  --no-syslog             same as -v{}:syslog:warn

Output formatting options:
  -f, --format=FORMAT     table, list (the default), html, csv or json
  -d, --data=FORMAT       string (the default), bare or json
  --no-headings           leave out the headings
  --pretty                indent JSON
  --bare                  same as --format=list --data=bare --no-headings
  --max-column-width=N    cut wider columns of tables
{}{}  --peer-ca-cert=FILE     file with CA certificate to show to peers
  --ssl-protocols=PROTOS  list of TLS versions to use
  --ssl-ciphers=CIPHERS   list of ciphers of TLS 1.2 to use
{}
Other options:
  -h, --help              this text
  -V, --version           versions
",
        P::RECORDS,
        own_options::<P>(),
        P::MODULE,
        tls::Config::usage(),
        bootstrap,
        log.usage()
    );
    text
}

/// The lines for options that not every program has.
fn own_options<P: Program>() -> String {
    let lines = [
        ("no-wait", "  --no-wait               do not wait until ovs-vswitchd has taken the changes\n"),
        (
            "no-leader-only",
            "  --no-leader-only        of several servers, take any, not only the leader of their cluster\n",
        ),
        ("no-shuffle-remotes", "  --no-shuffle-remotes    try several servers in the order in which they are named\n"),
        ("retry", "  --retry                 try to connect again and again\n"),
    ];
    let has = |long: &str| P::OPTIONS.iter().any(|opt| opt.long == long);
    lines.iter().filter(|(long, _)| has(long)).map(|(_, line)| *line).collect()
}
