//! The contents of the file, written by this program when it runs again with the variable set.

use proptest::prelude::*;
use std::process::Command;

tally::proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(30) })]

    /// Discards no case.
    #[test]
    fn few(n in 0u8..4, other: bool) {
        if other {
            return Ok(());
        }
        prop_assert!(n < 4);
    }

    #[test]
    fn as_few(n: u8) {
        prop_assert_eq!(n, n);
    }
}

#[test]
fn compares() {
    let both = || tally::report!("{} tables, {} packets", 2, 30);
    both();
}

#[test]
fn each_leaves_a_line() {
    let directory = tempfile::tempdir().expect("a folder");
    let file = directory.path().join("counts");
    for threads in ["1", "3"] {
        let _ = std::fs::remove_file(&file);
        let again = std::env::current_exe().expect("this program");
        let mut again = Command::new(again);
        again
            .args(["-q", "few", "compares", "--test-threads", threads])
            .env(tally::FILE, &file)
            .env_remove("PROPTEST_CASES");
        assert!(again.output().expect("runs").status.success());
        let text = std::fs::read_to_string(&file).expect("counts");
        let mut lines: Vec<_> = text.lines().collect();
        lines.sort_unstable();
        assert_eq!(
            lines,
            [
                "tally::counts::as_few: 30 cases",
                "tally::counts::compares: 2 tables, 30 packets",
                "tally::counts::few: 30 cases"
            ]
        );
    }
}
