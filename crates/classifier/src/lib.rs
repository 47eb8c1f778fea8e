//! Tuple space search with priorities: a rule, and the bits that finding it read.
