//! Command lines in the manner of the `ovs-*` programs: options, abbreviations, usage errors.
