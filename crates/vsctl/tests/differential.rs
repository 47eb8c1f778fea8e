//! Runs the command lines of `corpus/*.txt` with this program and with Open vSwitch's own ovs-vsctl, against database
//! servers of both, and compares their outputs, exit codes, and the final contents of the databases.
//!
//! Needs Open vSwitch's programs in `$FLOWSTONE_PEERS/bin` and its schemas in `$FLOWSTONE_PEERS/usr/share/openvswitch`.
//! The test binary is its own program under test: it runs itself with `FLOWSTONE_RUN_AS` set.

use std::path::Path;
use std::process::ExitCode;

use oracle::corpus::{Comparison, RUN_AS};

fn main() -> ExitCode {
    if let Some(name) = std::env::var_os(RUN_AS) {
        let args = std::env::args_os().collect();
        return if name == "ovsdb-server" { ovsdb_tools::server_main(args) } else { vsctl::main(args) };
    }
    let Some(peers) = oracle::folder() else { return ExitCode::SUCCESS };
    let comparison = Comparison {
        program: "ovs-vsctl",
        schema: "vswitch.ovsschema",
        database: "Open_vSwitch",
        options: &["--no-wait", "--no-syslog"],
        corpus: &Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus"),
    };
    let (lines, different) = oracle::corpus::compare(&comparison, &peers);
    tally::report!("{lines} command lines, {different} different");
    if different == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
