//! Runs the command lines of `corpus/*.txt` with this program and with Open vSwitch's own vtep-ctl, against database servers of
//! both, and compares what they print, how they exit, and what is in the databases at the end.
//!
//! Needs Open vSwitch's programs in `$FLOWSTONE_PEERS/bin` and its schemas in `$FLOWSTONE_PEERS/usr/share/openvswitch`.
//! The test binary is its own program under test: it runs itself with `FLOWSTONE_RUN_AS` set.

use std::path::Path;
use std::process::ExitCode;

use oracle::corpus::{Comparison, RUN_AS};

fn main() -> ExitCode {
    if let Some(name) = std::env::var_os(RUN_AS) {
        let args = std::env::args_os().collect();
        return if name == "ovsdb-server" { ovsdb_tools::server_main(args) } else { vtepctl::main(args) };
    }
    let Some(peers) = oracle::folder() else { return ExitCode::SUCCESS };
    let schema = peers.join("usr/share/openvswitch/vtep.ovsschema");
    assert!(schema.exists(), "{} is not there: the folder was made before it was wanted", schema.display());
    assert!(same_schema(&schema), "the schema is not the one of Open vSwitch");
    let comparison = Comparison {
        program: "vtep-ctl",
        schema: "vtep.ovsschema",
        database: "hardware_vtep",
        options: &["--no-syslog"],
        corpus: &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus"),
    };
    let (lines, different) = oracle::corpus::compare(&comparison, &peers);
    tally::report!("{lines} command lines, {different} different");
    if different == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Whether ours has the same interface.
fn same_schema(theirs: &Path) -> bool {
    let theirs = std::fs::read_to_string(theirs).expect("it can be read");
    let [ours, theirs] =
        [ovsdb::schemas::HARDWARE_VTEP, &theirs].map(|text| ovsdb::DatabaseSchema::parse(text).expect("a schema"));
    ours.equivalent(&theirs) && ours.cksum == theirs.cksum
}
