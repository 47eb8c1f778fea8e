//! The output of `--help`.

use std::fmt::Write as _;

/// The forms of the commands and their descriptions.
const COMMANDS: &[(&str, &str)] = &[
    ("list-dbs [SERVER]", "list databases"),
    ("get-schema [SERVER] [DATABASE]", "print the schema as JSON"),
    ("get-schema-version [SERVER] [DATABASE]", "print the schema's version"),
    ("get-schema-cksum [SERVER] [DATABASE]", "print the schema's checksum"),
    ("list-tables [SERVER] [DATABASE]", "list tables"),
    ("list-columns [SERVER] [DATABASE] [TABLE]", "list columns and their types"),
    ("transact [SERVER] TRANSACTION", "execute the params of a \"transact\" request"),
    ("query [SERVER] TRANSACTION", "the same without changing anything"),
    ("dump [SERVER] [DATABASE] [TABLE [COLUMN...]]", "print rows"),
    ("monitor [SERVER] [DATABASE] TABLE [COLUMN,...]...", "print rows and what happens to them"),
    ("monitor [SERVER] [DATABASE] ALL", "the same for all tables"),
    ("monitor-cond [SERVER] [DATABASE] CONDITIONS TABLE [COLUMN,...]...", "the same for rows that match"),
    (
        "monitor-cond-since [SERVER] [DATABASE] [LASTID] CONDITIONS TABLE [COLUMN,...]...",
        "the same after a transaction",
    ),
    ("wait [SERVER] DATABASE added|connected|removed", "wait for a database"),
    ("convert [SERVER] SCHEMA", "change a database's schema"),
    ("needs-conversion [SERVER] SCHEMA", "print whether a database has another schema"),
    ("backup [SERVER] [DATABASE] > SNAPSHOT", "copy a database to a file"),
    ("[--force] restore [SERVER] [DATABASE] < SNAPSHOT", "replace a database's contents"),
    ("lock [SERVER] LOCK", "ask for a lock and print what becomes of it"),
    ("steal [SERVER] LOCK", "take a lock from its owner"),
    ("unlock [SERVER] LOCK", "give up a lock"),
    ("help", "this text"),
];

/// The answer to `--help`.
pub(super) fn usage(program: &str, log: &vlog::Log) -> String {
    let mut text = format!("{program}: asks and watches OVSDB servers\nusage: {program} [OPTIONS] COMMAND [ARG...]\n");
    for (form, does) in COMMANDS {
        let _ = write!(text, "\n  {form}\n      {does}");
    }
    let socket = daemon::dirs::rundir().join("db.sock");
    let _ = write!(
        text,
        "

SERVER is unix:FILE, tcp:HOST:PORT or ssl:HOST:PORT, by default unix:{}; DATABASE is Open_vSwitch by default.
COLUMN may be !initial, !insert, !delete or !modify, to leave out such events.

Output formatting options:
  -f, --format=FORMAT     table (the default), list, html, csv or json
  -d, --data=FORMAT       string (the default), bare or json
  --no-headings           leave out the headings
  --pretty                indent JSON
  --bare                  same as --format=list --data=bare --no-headings
  --max-column-width=N    cut wider columns of tables
  --timestamp             put the time above what a monitor prints
{}  --bootstrap-ca-cert=FILE  the same, taken from the first server if not there
  --ssl-protocols=PROTOS  list of TLS versions to use
  --ssl-ciphers=CIPHERS   list of ciphers of TLS 1.2 to use
  --ssl-ciphersuites=SUITES  list of ciphers of TLS 1.3 to use
  --ssl-server-name=NAME  server name to send in TLS handshakes (SNI)
{}{}
Other options:
  -t, --timeout=SECS      give up after SECS seconds
  -h, --help              this text
  -V, --version           versions
",
        socket.display(),
        tls::Config::usage(),
        daemon::options::usage(program),
        log.usage()
    );
    text
}
