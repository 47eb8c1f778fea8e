//! Reads a log into a database, record by record: directly from its text ([`crate::direct`]), or for unusual input by
//! [`journal::changes`], which reports errors.

use std::sync::Arc;

use ovsdb::direct::Strings;
use ovsdb::{DatabaseSchema, Error, Result, UuidSource};
use serde_json::Value;

use crate::database::Database;
use crate::direct;
use crate::journal;
use crate::log::{LogError, Reader};

/// The contents of a log.
#[derive(Debug)]
pub struct Loaded {
    /// The database that the valid records describe, or the error in its schema.
    pub database: Result<Database>,
    /// The errors in sound records whose contents are not valid in this database; their changes are left out.
    pub invalid: Vec<Error>,
    /// How many sound records there are.
    pub record_count: usize,
    /// Number of bytes of these; the rest is not sound.
    pub sound_length: usize,
    /// Why reading stopped before the end.
    pub error: Option<LogError>,
}

/// Reads a log, the schema first.
pub fn load(log: &[u8]) -> Loaded {
    let mut reader = Reader::new(log);
    let (strings, uuids) = (Strings::default(), UuidSource::os());
    let mut loader = Loader { database: None, strings, uuids, invalid: Vec::new() };
    let mut record_count = 0;
    let error = loop {
        let body = match reader.body() {
            Ok(Some(body)) => body,
            Ok(None) => break None,
            Err(error) => break Some(error),
        };
        if !loader.apply_text(body.text()) {
            match body.to_json() {
                Ok(record) => loader.apply(&record),
                Err(error) => break Some(error),
            }
        }
        reader.pass(&body);
        record_count += 1;
    };
    let database = loader.database.unwrap_or_else(|| Err(Error::ovsdb("unexpected end of file reading schema")));
    Loaded { database, invalid: loader.invalid, record_count, sound_length: reader.position(), error }
}

struct Loader {
    /// Nothing before the schema was read.
    database: Option<Result<Database>>,
    strings: Strings,
    /// For the versions of rows, which are not in a log.
    uuids: UuidSource,
    invalid: Vec<Error>,
}

impl Loader {
    /// Applies a transaction if its text can be read straight.
    fn apply_text(&mut self, text: &[u8]) -> bool {
        let Some(Ok(database)) = &mut self.database else { return false };
        let Some(changes) = direct::changes(database, text, &mut self.strings) else { return false };
        database.replay(changes, &mut self.uuids);
        true
    }

    /// Applies a record, or notes why it is not valid.
    fn apply(&mut self, record: &Value) {
        match &mut self.database {
            None => {
                self.database = Some(DatabaseSchema::from_json(record).map(|schema| Database::new(Arc::new(schema))));
            }
            Some(Ok(database)) => match journal::changes(database, record) {
                Ok(changes) => database.replay(changes, &mut self.uuids),
                Err(error) => self.invalid.push(error),
            },
            Some(Err(_)) => {}
        }
    }
}
