//! The commands of ovsdb-tool but for `show-log`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use ovsdb::json::canonical;
use ovsdb::schema::is_valid_version;
use ovsdb::{DatabaseSchema, Error, UuidSource};
use ovsdb_server::file::{self, FileError, FileStorage};
use ovsdb_server::journal::{self, Style};
use ovsdb_server::log::{LogError, Record};
use ovsdb_server::storage::Storage;
use ovsdb_server::{Caller, Database, Outcome as Executed, Role, Snapshot};
use serde_json::{Value, json};

use super::{Context, Outcome, db_arg, default_db, schema_arg};

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn unix_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as i64
}

fn print_line(line: &str) -> Outcome {
    Ok(cli::print(&format!("{line}\n")))
}

pub(super) fn create(_: &Context, args: &[String]) -> Outcome {
    let schema = schema_arg(args, 1)?;
    FileStorage::create(&db_arg(args, 0), &[Record::from(&schema.to_json())]).map_err(text)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn clustered(_: &Context, _: &[String]) -> Outcome {
    Err("clustered databases are not supported".into())
}

/// The schema in a database file.
fn db_schema(path: &Path) -> Result<DatabaseSchema, String> {
    let parsed = file::read(path).map_err(text)?;
    let schema = parsed.records.first().unwrap_or(&Value::Null);
    DatabaseSchema::from_json(schema).map_err(text)
}

pub(super) fn db_name(_: &Context, args: &[String]) -> Outcome {
    print_line(&db_schema(&db_arg(args, 0))?.name)
}

pub(super) fn db_version(_: &Context, args: &[String]) -> Outcome {
    print_line(&db_schema(&db_arg(args, 0))?.version)
}

pub(super) fn db_cksum(_: &Context, args: &[String]) -> Outcome {
    print_line(&db_schema(&db_arg(args, 0))?.cksum)
}

pub(super) fn schema_name(_: &Context, args: &[String]) -> Outcome {
    print_line(&schema_arg(args, 0)?.name)
}

pub(super) fn schema_version(_: &Context, args: &[String]) -> Outcome {
    print_line(&schema_arg(args, 0)?.version)
}

pub(super) fn schema_cksum(_: &Context, args: &[String]) -> Outcome {
    print_line(&schema_arg(args, 0)?.cksum)
}

/// Whether a file is a clustered database.
fn is_clustered(path: &Path) -> Result<bool, String> {
    match file::read(path) {
        Err(FileError::Damaged { error: LogError::Clustered, .. }) => Ok(true),
        // The header of the first record is sound.
        Ok(_) | Err(FileError::Damaged { .. }) => Ok(false),
        Err(error) => Err(error.to_string()),
    }
}

pub(super) fn not_clustered(_: &Context, args: &[String]) -> Outcome {
    let path = db_arg(args, 0);
    if is_clustered(&path)? {
        return Err("clustered databases are not supported".into());
    }
    Err(format!("{}: not a clustered database", path.display()))
}

pub(super) fn check_cluster(_: &Context, args: &[String]) -> Outcome {
    for path in args.iter().map(Path::new) {
        if !is_clustered(path)? {
            return Err(FileError::Empty { path: path.display().to_string() }.to_string());
        }
    }
    Err("clustered databases are not supported".into())
}

pub(super) fn cluster_to_standalone(_: &Context, args: &[String]) -> Outcome {
    match args.get(1) {
        Some(path) if !is_clustered(Path::new(path))? => Err("Database is not clustered db.\n".to_owned()),
        _ => Err("clustered databases are not supported".into()),
    }
}

pub(super) fn db_is_clustered(_: &Context, args: &[String]) -> Outcome {
    Ok(if is_clustered(&db_arg(args, 0))? { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

pub(super) fn db_is_standalone(_: &Context, args: &[String]) -> Outcome {
    Ok(if is_clustered(&db_arg(args, 0))? { ExitCode::from(2) } else { ExitCode::SUCCESS })
}

pub(super) fn needs_conversion(_: &Context, args: &[String]) -> Outcome {
    let old = db_schema(&db_arg(args, 0))?;
    let new = schema_arg(args, 1)?;
    print_line(if old.equivalent(&new) { "no" } else { "yes" })
}

pub(super) fn compare_versions(_: &Context, args: &[String]) -> Outcome {
    let [a, operator, b] = args else {
        return Err("'compare-versions' command requires at least 3 arguments".into());
    };
    let (a, b) = (version(a)?, version(b)?);
    let holds = match operator.as_str() {
        "<" => a < b,
        "<=" => a <= b,
        "==" => a == b,
        ">=" => a >= b,
        ">" => a > b,
        "!=" => a != b,
        other => return Err(format!("{other}: not a relational operator")),
    };
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::from(2) })
}

fn version(text: &str) -> Result<Vec<u64>, String> {
    let error = || format!("{text}: not an OVSDB version number in format x.y.z");
    if !is_valid_version(text) {
        return Err(error());
    }
    text.split('.').map(|part| part.parse().map_err(|_| error())).collect()
}

/// Opens a file for writing; a damaged tail is an error, and stays.
fn open(path: &Path) -> Result<(Database, FileStorage), String> {
    let opened = FileStorage::open_undamaged(path).map_err(text)?;
    Ok((valid(opened.database, opened.invalid)?, opened.storage))
}

/// The error of `compact` and `convert`, which has other words for a locked file.
fn to_replace(error: FileError) -> String {
    let error = text(error);
    match error.strip_prefix("I/O error: ") {
        Some(short) if short.contains(": failed to lock lockfile") => short.to_owned(),
        _ => error,
    }
}

/// Opens the source of `compact` and `convert`: locked if it is to be replaced, and otherwise only read.
fn source(path: &Path, is_target: bool) -> Result<(Database, Option<FileStorage>), String> {
    if !is_target {
        return Ok((load(path)?, None));
    }
    let opened = FileStorage::open_undamaged(path).map_err(to_replace)?;
    Ok((valid(opened.database, opened.invalid)?, Some(opened.storage)))
}

/// Reads a file without locking it; a damaged tail is an error.
fn load(path: &Path) -> Result<Database, String> {
    let loaded = file::load(path).map_err(text)?;
    if let Some(error) = loaded.error {
        return Err(format!("{}: {}: {error}", error.tag(), path.display()));
    }
    valid(loaded.database, loaded.invalid)
}

/// The database, if no record of its file is invalid.
fn valid(database: ovsdb::Result<Database>, invalid: Vec<Error>) -> Result<Database, String> {
    match (database, invalid.into_iter().next()) {
        (Ok(database), None) => Ok(database),
        (Ok(_), Some(error)) | (Err(error), _) => Err(error.to_string()),
    }
}

/// Replaces a file, including its name.
fn replace(storage: &mut FileStorage, snapshot: &Snapshot) -> std::io::Result<()> {
    storage.replace(snapshot)?;
    storage.sync()
}

/// Writes a database into its own file, or into another.
fn write(database: &Database, own: Option<FileStorage>, target: &Path, comment: &str) -> Outcome {
    let snapshot = Snapshot::of(database, comment, unix_ms(), Style::Difference);
    let existing = match own {
        Some(storage) => Some(storage),
        None if target.exists() => {
            Some(FileStorage::open(target, (unix_ms() / 1000) as u64).map_err(to_replace)?.storage)
        }
        None => None,
    };
    if let Some(mut storage) = existing {
        replace(&mut storage, &snapshot).map_err(|error| format!("I/O error: {}: {error}", target.display()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let created = FileStorage::create_from(target, &snapshot).map_err(|error| match error {
        FileError::Io { path, action: "create failed", error } => {
            FileError::Io { path, action: "create or open failed", error }
        }
        other => other,
    });
    created.map_err(to_replace)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn compact(_: &Context, args: &[String]) -> Outcome {
    let path = db_arg(args, 0);
    let (database, storage) = source(&path, args.get(1).is_none())?;
    write(&database, storage, args.get(1).map_or(&path, |target| Path::new(target)), "compacted by ovsdb-tool")
}

pub(super) fn convert(_: &Context, args: &[String]) -> Outcome {
    let schema = schema_arg(args, 1)?;
    let path = db_arg(args, 0);
    let (database, storage) = source(&path, args.get(2).is_none())?;
    let converted = ovsdb_server::convert(&database, schema.into(), &mut UuidSource::os()).map_err(text)?;
    write(&converted, storage, args.get(2).map_or(&path, |target| Path::new(target)), "converted by ovsdb-tool")
}

/// The database file and the transaction among the arguments of `query` and `transact`.
fn transaction_args(args: &[String]) -> Result<(std::path::PathBuf, &str), String> {
    match args {
        [transaction] => Ok((default_db(), transaction)),
        [path, transaction, ..] => Ok((path.into(), transaction)),
        [] => Err("no transaction given".into()),
    }
}

/// Parses a transaction: an array, or an object, which [`run`] refuses.
fn parse_transaction(text: &str) -> Result<Value, String> {
    ovsdb::json_text::parse(text.as_bytes()).map_err(|error| format!("\"{text}\": {error}"))
}

/// Runs a transaction; returns the reply and the record to be written.
fn run(context: &Context, database: &Database, transaction: &Value) -> (Value, Option<ovsdb_server::Prepared>) {
    let name = transaction.get(0).and_then(Value::as_str);
    let operations = transaction.as_array().filter(|_| name == Some(database.schema().name.as_str()));
    let Some((_, operations)) = operations.and_then(|elements| elements.split_first()) else {
        return (Error::syntax(transaction, "database name expected as first parameter").to_json(), None);
    };
    let locks = BTreeSet::new();
    // The user of this program has no certificate.
    let role = context.role.as_deref().map(|name| Role { name, client: None });
    let caller = Caller { locks: &locks, read_only: false, role, elapsed_ms: 0 };
    match ovsdb_server::execute(database, operations, caller, &mut UuidSource::os()) {
        Executed::Done { results, prepared } => (Value::from(results), prepared),
        Executed::Wait { .. } => (json!([Error::new("not supported", "triggers not supported").to_json()]), None),
    }
}

pub(super) fn query(context: &Context, args: &[String]) -> Outcome {
    let (path, transaction) = transaction_args(args)?;
    let database = load(&path)?;
    let transaction = parse_transaction(transaction)?;
    // The transaction may change data: its changes are not written.
    let (result, _) = run(context, &database, &transaction);
    print_line(&canonical(&result))
}

pub(super) fn transact(context: &Context, args: &[String]) -> Outcome {
    let (path, transaction) = transaction_args(args)?;
    let (database, mut storage) = open(&path)?;
    let transaction = parse_transaction(transaction)?;
    let (result, prepared) = run(context, &database, &transaction);
    if let Some(prepared) = prepared {
        let record =
            journal::record(database.schema(), &prepared.changes, &prepared.comment, unix_ms(), Style::Difference);
        if let Some(record) = record {
            let written = storage.append(&record).and_then(|()| storage.sync());
            written.map_err(|error| format!("I/O error: {}: {error}", path.display()))?;
        }
    }
    print_line(&canonical(&result))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_an_array_or_an_object() {
        for (text, column) in [("5", 1), (" 55 ", 3), ("\"abc\"", 4), ("null", 4)] {
            let message =
                format!("\"{text}\": line 0, column {column}, byte {column}: syntax error at beginning of input");
            assert_eq!(parse_transaction(text), Err(message));
        }
        assert!(parse_transaction("[]").is_ok() && parse_transaction("{}").is_ok());
    }
}
