//! Ids, addresses, clocks, seeded randomness, counters and drop reasons that every other crate shares.
