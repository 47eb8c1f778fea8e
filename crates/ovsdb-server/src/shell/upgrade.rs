//! Database files whose schema is older than the program's.

use std::path::{Path, PathBuf};

use ovsdb::{DatabaseSchema, Error, UuidSource};
use tracing::info;

use super::server::OpenError;
use crate::core::{Now, convert};
use crate::database::Database;
use crate::file::{self, FileStorage};
use crate::journal::Style;
use crate::snapshot::Snapshot;
use crate::storage::Storage;

/// Converts a file to `schema` if its own schema has a lower version; returns its contents then.
pub(super) fn upgrade(
    storage: &mut FileStorage,
    database: Database,
    schema: DatabaseSchema,
    path: &Path,
    now: Now,
    style: Style,
) -> Result<Database, OpenError> {
    let old = database.schema();
    if version_numbers(&old.version) >= version_numbers(&schema.version) {
        return Ok(database);
    }
    let sum = old.cksum.split(' ').next().unwrap_or_default();
    let backup = PathBuf::from(format!("{}.backup{}-{sum}", path.display(), old.version));
    info!(
        target: "ovsdb_server",
        "{}: converting from schema version {} to {}; the old file is kept as {}",
        path.display(), old.version, schema.version, backup.display()
    );
    std::fs::copy(path, &backup).map_err(|error| Error::io(&error, format!("{}: copy failed", backup.display())))?;
    let converted = convert(&database, schema.into(), &mut UuidSource::os())?;
    let snapshot = Snapshot::of(&converted, "converted to a newer schema", now.unix_ms, style);
    let replaced = storage.replace(&snapshot);
    replaced.map_err(|error| Error::io(&error, format!("{}: write failed", path.display())))?;
    Ok(file::load(path)?.database?)
}

/// The numbers of a version `x.y.z`, for comparison; a missing version is lower than all others.
fn version_numbers(version: &str) -> Vec<u64> {
    version.split('.').filter_map(|part| part.parse().ok()).collect()
}
