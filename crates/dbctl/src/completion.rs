//! Completion of command lines in a shell, by the tables of options and commands and by the present contents of the
//! database.
//!
//! [`arguments`] returns the possible arguments of a command at a position; their values are read from the server, if
//! one answers soon.

use std::time::Duration;

use cli::completion::Line;
use cli::options::Arg;
use ovsdb::jsonrpc::Remote;
use ovsdb::{AtomType, ColumnSchema, DatabaseSchema, TableSchema};
use ovsdb_client::Client;
use serde_json::{Value, json};

use crate::command::{self, Spec};
use crate::names::{self, Way};
use crate::options::global_options;
use crate::{Program, help};

/// The possible values of an argument.
#[derive(Debug, Clone, Copy)]
pub enum Source {
    /// The values of a column.
    Column(&'static str, &'static str),
    /// One of these words.
    Words(&'static [&'static str]),
    /// The name of a network device of this machine.
    Device,
    /// Values that cannot be listed.
    Unknown,
}

/// The prefixes of connection methods.
pub const TARGETS: &[&str] = &["tcp:", "ssl:", "unix:", "ptcp:", "pssl:", "punix:"];

/// The candidates for the current word of a line.
pub fn complete<P: Program>(line: &Line) -> Vec<String> {
    let words = line.words.get(1..).unwrap_or_default();
    // The value of a global option may be anything.
    let Some((global, segment, db)) = split_words::<P>(words) else { return Vec::new() };
    let (options, rest) = segment.split_at(segment.iter().take_while(|word| word.starts_with('-')).count());
    let Some((name, args)) = rest.split_first() else {
        return before_command::<P>(global, if global { words } else { options }, &line.current);
    };
    let Some(spec) = command::all::<P>().find(|spec| spec.name == name) else { return Vec::new() };
    let mut database = Database::<P>::open(db);
    let (kinds, may_end) = arguments(spec.arguments, args.len());
    let mut found: Vec<String> =
        kinds.iter().flat_map(|kind| database.candidates(spec, kind, args, &line.current)).collect();
    if may_end {
        found.push("--".to_owned());
    }
    found
}

/// Splits the words into the current command and the words before it: whether global options may follow, the words of
/// the command with its options, and the server given by `--db`. `None` if the current word is the value of a global
/// option.
fn split_words<P: Program>(words: &[String]) -> Option<(bool, &[String], Option<&str>)> {
    let takes_value = |word: &str| {
        let long = |opt: &&cli::options::Opt| word.strip_prefix("--") == Some(opt.long);
        let short = |opt: &&cli::options::Opt| opt.short.is_some_and(|letter| word == format!("-{letter}"));
        let mut all = global_options::<P>().into_iter().flatten();
        all.find(|opt| long(opt) || short(opt)).is_some_and(|opt| opt.arg == Arg::Required)
    };
    let (mut db, mut at) = (None, 0);
    while let Some(word) = words.get(at).filter(|word| word.starts_with('-') && *word != "--") {
        if let Some(server) = word.strip_prefix("--db=") {
            db = Some(server);
        }
        if takes_value(word) {
            at += 1;
            if word == "--db" {
                db = words.get(at).map(String::as_str);
            }
        }
        at += 1;
    }
    if at >= words.len() {
        return (at == words.len()).then_some((true, &[], db));
    }
    // Options of the first command may stand among the global ones.
    let start = words.iter().rposition(|word| word == "--").map_or(at, |dashes| dashes + 1);
    Some((false, words.get(start..).unwrap_or_default(), db))
}

/// Options and names of commands.
fn before_command<P: Program>(global: bool, options: &[String], current: &str) -> Vec<String> {
    let name_of = |option: &str| option.split('=').next().unwrap_or_default().to_owned();
    let local = command::all_options::<P>().into_iter().map(str::to_owned);
    if current.starts_with('-') {
        let mut found: Vec<String> = local.collect();
        if global {
            found.extend(
                help::options(&global_options::<P>())
                    .lines()
                    .filter(|line| line.starts_with("--"))
                    .map(|line| line.strip_suffix("ARG").unwrap_or(line).to_owned()),
            );
            found.push("--".to_owned());
        }
        return found;
    }
    // Commands with all the typed options, as far as those are options of commands.
    let locals: Vec<String> = local.map(|option| name_of(&option)).collect();
    let typed: Vec<String> =
        options.iter().map(|option| name_of(option)).filter(|option| locals.contains(option)).collect();
    let fits = |spec: &&Spec<P>| typed.iter().all(|option| spec.options.iter().any(|has| name_of(has) == *option));
    command::all::<P>().filter(fits).map(|spec| spec.name.to_owned()).collect()
}

/// Returns the arguments that may stand at position `at`, and whether the command may end before it.
///
/// `pattern` consists of words after a sign: `!` for one, `?` for one or none, `*` for any number, `+` for one or
/// more.
pub fn arguments(pattern: &str, at: usize) -> (Vec<&str>, bool) {
    let pattern: Vec<(char, &str)> =
        pattern.split(' ').filter_map(|word| Some((word.chars().next()?, word.get(1..)?))).collect();
    // The possible next positions in the pattern, and whether each follows a match of a `+`.
    let skip = |places: &mut Vec<(usize, bool)>| {
        let mut next = 0;
        while let Some((place, seen)) = places.get(next).copied() {
            let optional =
                pattern.get(place).is_some_and(|(sign, _)| matches!(*sign, '?' | '*') || (*sign == '+' && seen));
            if optional && !places.contains(&(place + 1, false)) {
                places.push((place + 1, false));
            }
            next += 1;
        }
    };
    let mut places = vec![(0, false)];
    skip(&mut places);
    for _ in 0..at {
        let mut next = Vec::new();
        for (place, _) in places {
            match pattern.get(place) {
                Some(('!' | '?', _)) => next.push((place + 1, false)),
                Some((_, _)) => next.push((place, true)),
                None => {}
            }
        }
        next.sort_unstable();
        next.dedup();
        places = next;
        skip(&mut places);
    }
    let may_end = places.iter().any(|(place, _)| *place == pattern.len());
    let mut kinds: Vec<usize> = places.into_iter().map(|(place, _)| place).collect();
    kinds.sort_unstable();
    kinds.dedup();
    (kinds.into_iter().filter_map(|place| Some(pattern.get(place)?.1)).collect(), may_end)
}

/// The database, if a server answers; otherwise the program's schema.
struct Database<P> {
    runtime: Option<tokio::runtime::Runtime>,
    client: Option<Client>,
    patience: Duration,
    schema: Option<std::sync::Arc<DatabaseSchema>>,
    program: std::marker::PhantomData<P>,
}

impl<P: Program> Database<P> {
    fn open(db: Option<&str>) -> Self {
        let default = format!("unix:{}/db.sock", daemon::dirs::rundir().display());
        let remote = db.unwrap_or(&default);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok();
        // The caller, `flowstone complete`, has checked that there is no error.
        let patience = cli::completion::patience().unwrap_or_default();
        // A key press must not send a user's request to an unintended listener.
        let asked = runtime.as_ref().filter(|_| !Remote::any_is_passive(remote));
        let opened = asked.and_then(|runtime| {
            let connect = async {
                let mut client = Client::connect(remote, &std::sync::Arc::default()).await.ok()?;
                let schema = client.schema(P::DATABASE).await.ok()?;
                Some((client, schema))
            };
            runtime.block_on(async { tokio::time::timeout(patience, connect).await.ok()? })
        });
        let (client, schema) = opened.unzip();
        let shipped = || {
            let (_, text) = ovsdb::schemas::ALL.iter().find(|(name, _)| *name == P::DATABASE)?;
            DatabaseSchema::parse(text).ok().map(std::sync::Arc::new)
        };
        Self { runtime, client, patience, schema: schema.or_else(shipped), program: std::marker::PhantomData }
    }

    /// All values of a column, with the elements of sets, and the keys of maps.
    fn values(&mut self, table: &str, column: &str) -> Vec<String> {
        let (Some(runtime), Some(client)) = (&self.runtime, &mut self.client) else { return Vec::new() };
        let select = json!({"op": "select", "table": table, "where": [], "columns": [column]});
        let ask = client.call("transact", vec![P::DATABASE.into(), select]);
        let answer = runtime.block_on(async { tokio::time::timeout(self.patience, ask).await });
        let Ok(Ok(Ok(results))) = answer else { return Vec::new() };
        let rows = results.pointer("/0/rows").and_then(Value::as_array).cloned().unwrap_or_default();
        rows.iter().filter_map(|row| row.get(column)).flat_map(scalars).collect()
    }

    fn candidates(&mut self, spec: &Spec<P>, kind: &str, args: &[String], current: &str) -> Vec<String> {
        let Some(schema) = self.schema.clone() else { return Vec::new() };
        let takes_table = spec.arguments.starts_with("!TABLE");
        let table_name = if takes_table { args.first().map_or("", String::as_str) } else { P::SETTINGS };
        let table = names::table(&schema, table_name).ok();
        match kind {
            "TABLE" => schema.tables().iter().map(|table| table.name.clone()).collect(),
            "RECORD" => table.map(|table| self.records(table)).unwrap_or_default(),
            "COLUMN" => table.into_iter().flat_map(column_names).collect(),
            "COLUMN?:KEY" | "COLUMN?:KEY=VALUE" => {
                table.map(|table| self.settings(table, current, kind.ends_with("=VALUE"))).unwrap_or_default()
            }
            kind => kind.split('|').flat_map(|kind| self.source(P::source(spec.name, kind))).collect(),
        }
    }

    fn source(&mut self, source: Source) -> Vec<String> {
        match source {
            Source::Column(table, column) => self.values(table, column),
            Source::Words(words) => words.iter().map(|word| (*word).to_owned()).collect(),
            Source::Device => {
                let devices = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
                devices.map(|device| device.file_name().to_string_lossy().into_owned()).collect()
            }
            Source::Unknown => Vec::new(),
        }
    }

    /// The names of a table's rows.
    fn records(&mut self, table: &TableSchema) -> Vec<String> {
        let mut found = Vec::new();
        for way in P::ways(&table.name) {
            match way {
                Way::Singleton => found.push(".".to_owned()),
                Way::Column(column) => found.extend(self.values(&table.name, column)),
                Way::Referenced { from, by, .. } => found.extend(self.values(from, by)),
            }
        }
        if found.is_empty() {
            found = self.values(&table.name, "_uuid");
        }
        found
    }

    /// `COLUMN[:KEY]`, with values known from the schema if settings are requested.
    fn settings(&mut self, table: &TableSchema, current: &str, with_values: bool) -> Vec<String> {
        if let Some((name, _)) = current.split_once('=') {
            let column = names::column(table, name).ok().filter(|_| with_values);
            return column.into_iter().flat_map(known_values).map(|value| format!("{name}={value}")).collect();
        }
        let end = if with_values { "=" } else { "" };
        if let Some((name, _)) = current.split_once(':') {
            let Some(column) = names::column(table, name).ok().filter(|column| column.kind.is_map()) else {
                return Vec::new();
            };
            let keys = self.values(&table.name, &column.name).into_iter();
            return keys.map(|key| format!("{name}:{key}{end}")).collect();
        }
        let own = table.own_columns().map(|(_, column)| column);
        own.map(|column| format!("{}{}", column.name, if column.kind.is_map() { ":" } else { end })).collect()
    }
}

fn column_names(table: &TableSchema) -> impl Iterator<Item = String> {
    table.own_columns().map(|(_, column)| column.name.clone())
}

/// The values that a column may have, if they are few.
fn known_values(column: &ColumnSchema) -> Vec<String> {
    if column.kind.key.kind == AtomType::Boolean {
        return vec!["true".to_owned(), "false".to_owned()];
    }
    column.kind.to_json().pointer("/key/enum").map(scalars).unwrap_or_default()
}

/// The scalars in a JSON value of the protocol.
fn scalars(value: &Value) -> Vec<String> {
    match value {
        Value::String(text) => vec![text.clone()],
        Value::Array(parts) => match parts.as_slice() {
            [Value::String(tag), Value::String(uuid)] if tag == "uuid" => vec![uuid.clone()],
            [Value::String(tag), Value::Array(elements)] if tag == "set" => elements.iter().flat_map(scalars).collect(),
            [Value::String(tag), Value::Array(pairs)] if tag == "map" => {
                pairs.iter().filter_map(|pair| pair.get(0)).flat_map(scalars).collect()
            }
            _ => Vec::new(),
        },
        Value::Null | Value::Object(_) => Vec::new(),
        number => vec![number.to_string()],
    }
}

#[cfg(test)]
mod tests {
    use super::arguments;

    #[test]
    fn arguments_follow_the_pattern() {
        for (pattern, at, kinds, may_end) in [
            ("", 0, vec![], true),
            ("!A ?B !C", 0, vec!["A"], false),
            ("!A ?B !C", 1, vec!["B", "C"], false),
            ("!A ?B !C", 2, vec!["C"], true),
            ("!A ?B !C", 3, vec![], true),
            ("!A *B", 1, vec!["B"], true),
            ("!A *B", 5, vec!["B"], true),
            ("!A +B *C", 1, vec!["B"], false),
            ("!A +B *C", 2, vec!["B", "C"], true),
            ("?A !B|C", 0, vec!["A", "B|C"], false),
        ] {
            assert_eq!(arguments(pattern, at), (kinds, may_end), "{pattern} {at}");
        }
    }
}
