//! Serial numbers of accepted connections to Unix sockets, which have no address: logs name such a connection `unix#N`.

use std::sync::atomic::{AtomicU64, Ordering};

/// Returns the number of the next connection that the process accepts at a Unix socket of any kind, from 0 on.
pub fn next_unix_connection() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
