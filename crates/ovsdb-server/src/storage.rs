//! Where a database's records are kept. One small trait, with engines for files ([`crate::file`]), for memory, and for
//! tests that cut the power at every byte.

use std::io;

use crate::log::{Record, encode};

/// An append-only log of records.
///
/// A record survives the end of the process when [`Storage::append`] has returned. It is durable, and only then may a client
/// that asked for that be told so, when [`Storage::sync`] has returned after it. After an error, nothing more may be
/// appended.
pub trait Storage: Send {
    /// Appends a record.
    fn append(&mut self, record: &Record) -> io::Result<()>;

    /// Makes all appended records durable.
    fn sync(&mut self) -> io::Result<()>;

    /// Has all appended records made durable soon, without waiting for it. An error is told by a later call.
    fn sync_soon(&mut self) -> io::Result<()> {
        self.sync()
    }

    /// Replaces the whole log, durably and at once: after a crash it is either the old or the new one.
    fn replace(&mut self, records: &[Record]) -> io::Result<()>;

    /// Length of the log in bytes.
    fn length(&self) -> u64;

    /// Whether records survive at all; without, there is nothing to compact.
    fn is_durable(&self) -> bool {
        true
    }
}

/// Keeps nothing: for databases that live as long as the process.
#[derive(Debug, Default)]
pub struct Nowhere;

impl Storage for Nowhere {
    fn append(&mut self, _record: &Record) -> io::Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn replace(&mut self, _records: &[Record]) -> io::Result<()> {
        Ok(())
    }

    fn length(&self) -> u64 {
        0
    }

    fn is_durable(&self) -> bool {
        false
    }
}

/// Keeps the log in memory, where a test can look at it and cut it off.
#[derive(Debug, Default, Clone)]
pub struct Memory {
    bytes: std::sync::Arc<std::sync::Mutex<MemoryState>>,
}

#[derive(Debug, Default)]
struct MemoryState {
    bytes: Vec<u8>,
    synced: usize,
    fail_after: Option<usize>,
}

impl Memory {
    /// An empty log.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, MemoryState> {
        // A panic of another user leaves plain bytes behind, which are still what was written.
        self.bytes.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The log as written so far.
    pub fn bytes(&self) -> Vec<u8> {
        self.state().bytes.clone()
    }

    /// How many bytes were durable when `sync` was last called.
    pub fn synced_length(&self) -> usize {
        self.state().synced
    }

    /// Makes writing fail once the log has `length` bytes: what fits is written, as on a full disk.
    pub fn fail_after(&self, length: usize) {
        self.state().fail_after = Some(length);
    }
}

impl Storage for Memory {
    fn append(&mut self, record: &Record) -> io::Result<()> {
        let record = encode(record);
        let mut state = self.state();
        let room = state.fail_after.map_or(usize::MAX, |length| length.saturating_sub(state.bytes.len()));
        if room < record.len() {
            state.bytes.extend_from_slice(record.get(..room).unwrap_or_default());
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        state.bytes.extend_from_slice(&record);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut state = self.state();
        state.synced = state.bytes.len();
        Ok(())
    }

    fn replace(&mut self, records: &[Record]) -> io::Result<()> {
        let bytes: Vec<u8> = records.iter().flat_map(encode).collect();
        let mut state = self.state();
        if state.fail_after.is_some_and(|length| bytes.len() > length) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        state.synced = bytes.len();
        state.bytes = bytes;
        Ok(())
    }

    fn length(&self) -> u64 {
        self.state().bytes.len() as u64
    }
}
