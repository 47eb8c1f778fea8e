//! Writes a new log for a database file beside the old one, and replaces the old one by it.
//!
//! While a thread writes the snapshot to `FILE.tmp`, transactions are still appended to `FILE`, which stays the
//! database. The thread then copies records appended meanwhile, until few are left. The appending thread copies the
//! rest between two records ([`FileStorage::step`]), syncs the new file, renames it over the old one, and syncs the
//! directory. So at any moment `FILE` is a log with all acknowledged transactions, and no record is written twice
//! while both files exist.
//!
//! `FILE.tmp` belongs to the snapshot that was begun last. Ending a snapshot, for any reason, removes its file; a
//! thread that still writes it notices and stops. Both happen under one lock, so that no thread removes the file of
//! another snapshot. The next snapshot removes a file that a killed process left, as Open vSwitch's programs do.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{FILE_MODE, FileStorage, Syncer, open_directory};
use crate::snapshot::Snapshot;
use crate::storage::{SnapshotWriter, cancelled_error};

/// Bytes that the writer thread writes before it syncs them: a client that waits for the disk meanwhile does not wait
/// for the whole snapshot.
const SYNC_EVERY: u64 = 1 << 20;

/// Maximum number of bytes that the appending thread copies at the end...
const REST_MAX: u64 = 64 << 10;
/// ... unless as many copies each found as much again.
const COPIES_MAX: usize = 20;

/// How much is copied at a time.
const COPY_PIECE: usize = 1 << 20;

/// The state shared by the writer of a snapshot and the log that it replaces.
#[derive(Debug)]
pub(crate) struct SnapshotProgress {
    temporary: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// There is no file yet.
    Begun,
    /// There is a file that is being written.
    Created,
    Written(Written),
    /// It was installed or cancelled; the file does not exist.
    Ended,
}

/// A file with the snapshot, and the records appended to the old log up to `copied`.
#[derive(Debug)]
struct Written {
    file: File,
    length: u64,
    copied: u64,
}

impl SnapshotProgress {
    fn state(&self) -> MutexGuard<'_, State> {
        // No one panics with the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels the snapshot and removes its file, if that has not happened yet.
    pub(super) fn end(&self) {
        let mut state = self.state();
        if let State::Created | State::Written(_) = *state {
            let _ = std::fs::remove_file(&self.temporary);
        }
        *state = State::Ended;
    }

    fn check(&self) -> io::Result<()> {
        if matches!(*self.state(), State::Ended) { Err(cancelled_error()) } else { Ok(()) }
    }
}

/// The writer of a snapshot.
pub(super) struct FileSnapshotWriter {
    shared: Arc<SnapshotProgress>,
    old: Arc<File>,
    old_length: Arc<AtomicU64>,
    /// How long the old log was when the snapshot was begun.
    from: u64,
    /// Bytes to write before a sync.
    sync_every: u64,
}

impl FileSnapshotWriter {
    /// Begins a snapshot to replace `old`, at `path` with `length` bytes.
    pub(super) fn begin(path: &Path, old: &Arc<File>, length: &Arc<AtomicU64>) -> Self {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        let shared = SnapshotProgress { temporary: temporary.into(), state: Mutex::new(State::Begun) };
        let from = length.load(Ordering::Acquire);
        let (old, old_length) = (Arc::clone(old), Arc::clone(length));
        Self { shared: Arc::new(shared), old, old_length, from, sync_every: SYNC_EVERY }
    }

    /// As [`begin`](Self::begin), for a writer that the service waits for: it writes as fast as possible.
    pub(super) fn at_once(mut self) -> Self {
        self.sync_every = u64::MAX;
        self
    }

    pub(super) fn shared(&self) -> &Arc<SnapshotProgress> {
        &self.shared
    }

    /// Creates the file, with the old one's permissions.
    fn create(&self) -> io::Result<File> {
        let mut state = self.shared.state();
        if matches!(*state, State::Ended) {
            return Err(cancelled_error());
        }
        let temporary = &self.shared.temporary;
        match std::fs::remove_file(temporary) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(temporary)?;
        *state = State::Created;
        file.set_permissions(self.old.metadata()?.permissions())?;
        Ok(file)
    }

    fn write_file(&self, file: &File, snapshot: &Snapshot) -> io::Result<(u64, u64)> {
        let mut out = Paced { file, unsynced: 0, sync_every: self.sync_every, snapshot_writer: &self.shared };
        let mut length = snapshot.write_to(&mut out)?;
        let mut copied = self.from;
        for _ in 0..COPIES_MAX {
            let rest = copy(&self.old, copied, self.old_length.load(Ordering::Acquire), &mut out)?;
            copied += rest;
            length += rest;
            file.sync_all()?;
            if rest < REST_MAX {
                break;
            }
        }
        Ok((length, copied))
    }
}

impl SnapshotWriter for FileSnapshotWriter {
    fn write(self: Box<Self>, snapshot: &Snapshot) -> io::Result<()> {
        let file = self.create()?;
        let (length, copied) = self.write_file(&file, snapshot)?;
        match &mut *self.shared.state() {
            state @ State::Created => *state = State::Written(Written { file, length, copied }),
            _ => return Err(cancelled_error()),
        }
        Ok(())
    }
}

impl Drop for FileSnapshotWriter {
    fn drop(&mut self) {
        if !matches!(*self.shared.state(), State::Written(_)) {
            self.shared.end();
        }
    }
}

/// Copies part of a log to the end of another; returns how many bytes.
fn copy(old: &File, from: u64, to: u64, out: &mut impl Write) -> io::Result<u64> {
    let mut piece = vec![0; COPY_PIECE.min(to.saturating_sub(from) as usize)];
    let mut at = from;
    while at < to {
        piece.truncate((to - at) as usize);
        old.read_exact_at(&mut piece, at)?;
        out.write_all(&piece)?;
        at += piece.len() as u64;
    }
    Ok(at - from)
}

/// Writes to the file of a snapshot until the snapshot is cancelled, and syncs it from time to time.
struct Paced<'a> {
    file: &'a File,
    unsynced: u64,
    sync_every: u64,
    snapshot_writer: &'a SnapshotProgress,
}

impl Write for Paced<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.snapshot_writer.check()?;
        let written = self.file.write(bytes)?;
        self.unsynced += written as u64;
        if self.unsynced >= self.sync_every {
            self.file.sync_data()?;
            self.unsynced = 0;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for Paced<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

/// A snapshot on its way into the place of the log.
#[derive(Debug)]
pub(crate) struct Installation {
    shared: Arc<SnapshotProgress>,
    next: Step,
    /// Gone once it is the log.
    written: Option<Written>,
    /// The directory of both logs, before the new one replaces the old one.
    directory: Option<File>,
}

/// The next step of an installation. A crash between any two leaves one of both logs, with all acknowledged records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Records appended since then are copied.
    Copy,
    /// Syncs the new file.
    Sync,
    /// Renames the new file over the old one; records are appended to it from now on.
    Rename,
    /// Syncs the directory.
    SyncDirectory,
}

impl Installation {
    /// The next step.
    #[cfg(test)]
    pub(crate) fn next(&self) -> Step {
        self.next
    }

    /// The new file, until it is the log.
    #[cfg(test)]
    pub(crate) fn file(&self) -> Option<&File> {
        self.written.as_ref().map(|written| &written.file)
    }

    /// Has the last step fail.
    #[cfg(test)]
    pub(crate) fn lose_directory(&mut self) {
        // A device that does not support syncs.
        self.directory = Some(File::open("/dev/null").unwrap());
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        if self.written.is_some() {
            self.shared.end();
        }
    }
}

impl FileStorage {
    /// Begins the installation of the snapshot, which must have been written.
    pub(crate) fn installation(&mut self) -> io::Result<Installation> {
        let shared = self.snapshot_writer.take().ok_or_else(cancelled_error)?;
        let mut state = shared.state();
        match std::mem::replace(&mut *state, State::Created) {
            State::Written(written) => {
                drop(state);
                Ok(Installation { shared, next: Step::Copy, written: Some(written), directory: None })
            }
            other => {
                *state = other;
                drop(state);
                shared.end();
                Err(cancelled_error())
            }
        }
    }

    /// Takes the next step; returns the step after it. After an error the old log stays in use; but if only the sync
    /// of the directory fails, the new one is in use and the next [`crate::storage::Storage::sync`] fails.
    pub(crate) fn step(&mut self, installation: &mut Installation) -> io::Result<Option<Step>> {
        let next = match (installation.next, &mut installation.written) {
            (Step::Copy, Some(written)) => {
                let length = self.length.load(Ordering::Acquire);
                let rest = copy(&self.file, written.copied, length, &mut written.file)?;
                written.length += rest;
                Some(Step::Sync)
            }
            (Step::Sync, Some(written)) => {
                // After a failed sync, records copied from the old log may differ from those written.
                if let Some(error) = &*self.syncer.failed() {
                    return Err(io::Error::new(error.kind(), error.to_string()));
                }
                written.file.sync_data()?;
                Some(Step::Rename)
            }
            (Step::Rename, written) => {
                // First, so that want of descriptors leaves all as it was.
                installation.directory = Some(open_directory(&self.path)?);
                std::fs::rename(&installation.shared.temporary, &self.path)?;
                *installation.shared.state() = State::Ended;
                if let Some(Written { file, length, .. }) = written.take() {
                    self.length = Arc::new(AtomicU64::new(length));
                    // The syncer thread of the old file finishes its queue and ends.
                    self.syncer = Syncer::default();
                    close_beside(std::mem::replace(&mut self.file, Arc::new(file)));
                }
                Some(Step::SyncDirectory)
            }
            (Step::SyncDirectory, _) => {
                let synced = installation.directory.as_ref().map_or_else(|| Err(cancelled_error()), File::sync_all);
                if let Err(error) = synced {
                    *self.syncer.failed() = Some(error);
                }
                None
            }
            (Step::Copy | Step::Sync, None) => return Err(cancelled_error()),
        };
        if let Some(next) = next {
            installation.next = next;
        }
        Ok(next)
    }
}

/// Closes a file without a name in a separate thread: freeing the blocks of a long file takes time.
fn close_beside(file: Arc<File>) {
    // If there can be no thread, it is closed here.
    let _ = std::thread::Builder::new().name("ovsdb-close".to_owned()).spawn(move || drop(file));
}
