//! The columns of the database that the switch reads and writes, as its features list them.
//!
//! Columns that configure are kept apart from those that report: the switch is configured anew only when one of the
//! former changes, so that its own reports do not set it to work.

use crate::configuration::{configuring, reporting};
use ovsdb_client::Wanted;

/// All of them, for the replica.
pub fn wanted() -> Wanted {
    Wanted::from([configuring(), reporting()].concat().as_slice())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::feature::Feature;
    use crate::features::lldp::Lldp;

    #[test]
    fn no_column_both_configures_and_reports() {
        // Auto-attach adds VLANs to trunks, which are settings.
        let (configuring, reporting) = (configuring(), reporting());
        let both = reporting.iter().filter(|column| configuring.contains(column));
        assert!(both.clone().all(|column| Lldp::REPORTS.contains(column)), "{:?}", both.collect::<Vec<_>>());
    }
}
