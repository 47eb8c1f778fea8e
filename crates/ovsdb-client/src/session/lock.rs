//! A lock in the server (RFC 7047 section 4.1.8), requested on every connection.

/// Whether a lock is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockState {
    /// The server has not answered.
    Unknown,
    /// This client holds it.
    Held,
    /// Another client holds it.
    Contended,
}

/// The requested lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lock {
    pub(super) name: String,
    pub(super) request: Option<u64>,
    pub(super) state: LockState,
}

impl Lock {
    pub(super) fn new(name: &str) -> Self {
        Self { name: name.to_owned(), request: None, state: LockState::Unknown }
    }

    /// The connection was lost, and the lock with it.
    pub(super) fn disconnected(&mut self) {
        self.state = LockState::Unknown;
        self.request = None;
    }
}
