//! Any JSON as the operations of consecutive transactions on the Open_vSwitch database: each committed transaction
//! reads the same from its record in a database file.
#![no_main]

use ovsdb::{DatabaseSchema, UuidSource, schemas};
use ovsdb_server::journal::{self, Style};
use ovsdb_server::{Caller, Database, Outcome, execute};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

static SCHEMA: LazyLock<Arc<DatabaseSchema>> =
    LazyLock::new(|| Arc::new(DatabaseSchema::parse(schemas::OPEN_VSWITCH).expect("our own schema")));

fuzz::target!(|bytes: &[u8]| {
    let mut uuids = UuidSource::seeded(1);
    let mut database = Database::new(Arc::clone(&SCHEMA));
    let locks = BTreeSet::new();
    let caller = Caller { locks: &locks, read_only: false, role: None, elapsed_ms: 0 };
    for operations in serde_json::Deserializer::from_slice(bytes).into_iter::<Vec<Value>>() {
        let Ok(operations) = operations else { return };
        let Outcome::Done { prepared: Some(prepared), .. } = execute(&database, &operations, caller, &mut uuids) else {
            continue;
        };
        let before = database.clone();
        let style = if prepared.durable { Style::Whole } else { Style::Difference };
        let record = journal::record(&SCHEMA, &prepared.changes, &prepared.comment, 0, style);
        database.apply(uuids.next_uuid(), prepared.changes);
        let mut replayed = before;
        if let Some(record) = record {
            let changes = journal::changes(&replayed, &record.to_json()).expect("our own record");
            replayed.apply(uuids.next_uuid(), changes);
        }
        let snapshot = |database| journal::snapshot(database, "", 0, Style::Whole);
        assert_eq!(snapshot(&replayed), snapshot(&database));
    }
});
