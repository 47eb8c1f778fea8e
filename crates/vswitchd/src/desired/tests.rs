//! Rows read into plain values: what is honoured, what is corrected, and what is warned of.


