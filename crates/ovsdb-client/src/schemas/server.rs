//! Tables and columns of the database _Server, version 1.2.0.
//!
//! Made of its schema by `cargo run -p ovsdb-client --example tables`.

ovsdb_client::tables! {
    database "_Server", version "1.2.0";

    table database::Database = "Database" [
        Model { Clustered = "clustered", Relay = "relay", Standalone = "standalone" }
    ] {
        NAME: String = "name";
        MODEL: Model = "model";
        CONNECTED: bool = "connected";
        LEADER: bool = "leader";
        SCHEMA: Option<String> = "schema";
        CID: Option<Uuid> = "cid";
        SID: Option<Uuid> = "sid";
        INDEX: Option<i64> = "index";
    }
}
