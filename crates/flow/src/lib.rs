//! The field table, flow keys, masks and matches, extraction from packets, and the text syntax of matches.
