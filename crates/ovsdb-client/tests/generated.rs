//! The modules of `ovsdb_client::schemas` equal the generator's output for the schemas. With `FLOWSTONE_REFRESH` set,
//! they are regenerated.

use std::path::Path;

use ovsdb::DatabaseSchema;
use ovsdb_client::typed::AnyColumn;
use ovsdb_client::{Replica, Wanted, generate, schemas};

fn check(schema: &str, module: &str) {
    let made = generate::module(&DatabaseSchema::parse(schema).unwrap()).unwrap();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/schemas").join(module);
    if std::env::var_os("FLOWSTONE_REFRESH").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(kept == made, "{module} is out of date; set FLOWSTONE_REFRESH to write it anew");
}

#[test]
fn modules_are_up_to_date() {
    check(ovsdb::schemas::OPEN_VSWITCH, "vswitch.rs");
    check(ovsdb::schemas::SERVER, "server.rs");
    check(ovsdb::schemas::HARDWARE_VTEP, "vtep.rs");
}

/// Every column of a schema, of all modules.
#[test]
fn generated_columns_fit_their_schema() {
    use schemas::vswitch::*;
    let modules: [&[AnyColumn]; 19] = [
        open_vswitch::COLUMNS,
        autoattach::COLUMNS,
        bridge::COLUMNS,
        controller::COLUMNS,
        ct_timeout_policy::COLUMNS,
        ct_zone::COLUMNS,
        datapath::COLUMNS,
        flow_sample_collector_set::COLUMNS,
        flow_table::COLUMNS,
        interface::COLUMNS,
        ipfix::COLUMNS,
        manager::COLUMNS,
        mirror::COLUMNS,
        netflow::COLUMNS,
        port::COLUMNS,
        qos::COLUMNS,
        queue::COLUMNS,
        sflow::COLUMNS,
        ssl::COLUMNS,
    ];
    let columns: Vec<AnyColumn> = modules.concat();
    let schema = DatabaseSchema::parse(ovsdb::schemas::OPEN_VSWITCH).unwrap();
    let count: usize = schema.tables().iter().map(|table| table.own_columns().count()).sum();
    assert_eq!(columns.len(), count);
    let mut replica = Replica::new(&Wanted::from(columns.as_slice()));
    assert_eq!(replica.bind(&schema), []);
    for column in columns {
        let found = schema.table(column.table).unwrap().column(column.column).unwrap();
        assert_eq!(found.ephemeral, column.is_ephemeral, "{column:?}");
    }
}
