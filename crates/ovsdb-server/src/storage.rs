//! Storage of a database's records: a small trait, with engines for files ([`crate::file`]), for memory, and for
//! tests that cut the power at every byte.

use std::io;

use crate::log::{Record, encode};
use crate::snapshot::Snapshot;

/// An append-only log of records.
///
/// A record survives the end of the process when [`Storage::append`] has returned. It is durable, and only then may a client
/// that requested that be acknowledged, when [`Storage::sync`] has returned after it. After an error, nothing more may be
/// appended.
pub trait Storage: Send {
    /// Appends a record.
    fn append(&mut self, record: &Record) -> io::Result<()>;

    /// Makes all appended records durable.
    fn sync(&mut self) -> io::Result<()>;

    /// Starts making all appended records durable, without waiting for it. A later call returns an error.
    fn sync_soon(&mut self) -> io::Result<()> {
        self.sync()
    }

    /// Begins a new log to replace this one, which is written beside it. Cancels one that was begun before.
    fn snapshot_writer(&mut self) -> Box<dyn SnapshotWriter>;

    /// Puts the snapshot, which has been written, in the place of the log, with all that was appended since it was begun:
    /// durably and at once, so that after a crash there is either the old log or the new one. After an error the old one
    /// is in use, and there is no snapshot.
    fn install(&mut self) -> io::Result<()>;

    /// Cancels the snapshot, if there is one: nothing of it stays, even if another thread is writing it.
    fn discard(&mut self);

    /// Puts a new log in the place of the old one while the caller waits.
    fn replace(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        self.snapshot_writer().write(snapshot)?;
        self.install()
    }

    /// Length of the log in bytes.
    fn length(&self) -> u64;

    /// Whether records survive at all; without, there is nothing to compact.
    fn is_durable(&self) -> bool {
        true
    }
}

/// A log in the making.
pub trait SnapshotWriter: Send {
    /// Writes the log, and syncs most of it. May take long, in any thread, while the other log grows. Fails if the
    /// snapshot was cancelled; nothing of it remains then.
    fn write(self: Box<Self>, snapshot: &Snapshot) -> io::Result<()>;
}

/// The error of a cancelled snapshot.
pub(crate) fn cancelled_error() -> io::Error {
    io::Error::other("the new log was given up")
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

    fn snapshot_writer(&mut self) -> Box<dyn SnapshotWriter> {
        Box::new(Self)
    }

    fn install(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&mut self) {}

    fn length(&self) -> u64 {
        0
    }

    fn is_durable(&self) -> bool {
        false
    }
}

impl SnapshotWriter for Nowhere {
    fn write(self: Box<Self>, _snapshot: &Snapshot) -> io::Result<()> {
        Ok(())
    }
}

/// Keeps the log in memory, where a test can read and truncate it.
#[derive(Debug, Default, Clone)]
pub struct Memory {
    bytes: std::sync::Arc<std::sync::Mutex<MemoryState>>,
}

#[derive(Debug, Default)]
struct MemoryState {
    bytes: Vec<u8>,
    synced: usize,
    fail_after: Option<usize>,
    /// Number of snapshots begun or cancelled: only the last one is valid.
    snapshot_writers: u64,
    snapshot_writer: Option<MemoryLog>,
}

/// A snapshot that was written.
#[derive(Debug)]
struct MemoryLog {
    bytes: Vec<u8>,
    /// How long the log was when it was begun.
    from: usize,
}

#[derive(Debug)]
struct MemorySnapshotWriter {
    memory: Memory,
    number: u64,
    from: usize,
}

impl Memory {
    /// An empty log.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, MemoryState> {
        // A panic of another user leaves plain bytes behind, which are still valid.
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

    /// Makes writing fail once the log has `length` bytes: the part that fits is written, as on a full disk.
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

    fn snapshot_writer(&mut self) -> Box<dyn SnapshotWriter> {
        self.discard();
        let state = self.state();
        Box::new(MemorySnapshotWriter { memory: self.clone(), number: state.snapshot_writers, from: state.bytes.len() })
    }

    fn install(&mut self) -> io::Result<()> {
        let mut state = self.state();
        let MemoryLog { mut bytes, from } = state.snapshot_writer.take().ok_or_else(cancelled_error)?;
        bytes.extend_from_slice(state.bytes.get(from..).unwrap_or_default());
        if state.fail_after.is_some_and(|length| bytes.len() > length) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        state.synced = bytes.len();
        state.bytes = bytes;
        Ok(())
    }

    fn discard(&mut self) {
        let mut state = self.state();
        state.snapshot_writers += 1;
        state.snapshot_writer = None;
    }

    fn length(&self) -> u64 {
        self.state().bytes.len() as u64
    }
}

impl SnapshotWriter for MemorySnapshotWriter {
    fn write(self: Box<Self>, snapshot: &Snapshot) -> io::Result<()> {
        let mut out = io::Cursor::new(Vec::new());
        snapshot.write_to(&mut out)?;
        let mut state = self.memory.state();
        if state.snapshot_writers != self.number {
            return Err(cancelled_error());
        }
        let bytes = out.into_inner();
        if state.fail_after.is_some_and(|length| bytes.len() > length) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        state.snapshot_writer = Some(MemoryLog { bytes, from: self.from });
        Ok(())
    }
}
