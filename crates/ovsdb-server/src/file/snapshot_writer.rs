//! Another log for a database file, written beside it and put in its place.
//!
//! While a thread writes the snapshot to `FILE.tmp`, transactions go on being appended to `FILE`, which stays the database.
//! The thread then copies records appended meanwhile, until there are few left. The thread that appends copies the rest,
//! between two records ([`FileStorage::step`]); then the new file is made durable, renamed over the old one, and the
//! rename made durable. So at any moment `FILE` is a log with everything that was acknowledged, and nothing has to be
//! written twice while both are there.
//!
//! `FILE.tmp` belongs to the snapshot that was begun last: who ends a snapshot, for whatever reason, removes its file, and whoever
//! still writes it finds that it was ended and stops. Both happen under one lock, so that nobody removes the file of
//! another. What a killed process leaves is removed by the next snapshot, as Open vSwitch's programs do.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{FILE_MODE, FileStorage, Syncer, open_directory};
use crate::snapshot::Snapshot;
use crate::storage::{SnapshotWriter, given_up};

/// How much is written beside the service before it is made durable: who waits for the disk meanwhile does not wait for
/// all of it.
const SYNC_EVERY: u64 = 1 << 20;

/// How much is left to be copied, at most, by who appends...
const REST_MAX: u64 = 64 << 10;
/// ... unless as many copies each found as much again.
const COPIES_MAX: usize = 20;

/// How much is copied at a time.
const COPY_PIECE: usize = 1 << 20;

/// What the writer of a snapshot shares with the log that it is to replace.
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
    /// It was installed or given up; there is no file.
    Ended,
}

/// A file that holds the snapshot, and what was appended to the old one up to `copied`.
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

    /// Gives the snapshot up and removes its file, if that has not happened yet.
    pub(super) fn end(&self) {
        let mut state = self.state();
        if let State::Created | State::Written(_) = *state {
            let _ = std::fs::remove_file(&self.temporary);
        }
        *state = State::Ended;
    }

    fn check(&self) -> io::Result<()> {
        if matches!(*self.state(), State::Ended) { Err(given_up()) } else { Ok(()) }
    }
}

/// The writer of a snapshot.
pub(super) struct FileSnapshotWriter {
    shared: Arc<SnapshotProgress>,
    old: Arc<File>,
    old_length: Arc<AtomicU64>,
    /// How long the old log was when the snapshot was begun.
    from: u64,
    /// How much is written before it is made durable.
    sync_every: u64,
}

impl FileSnapshotWriter {
    /// Begins a snapshot of what is to replace `old`, which is found at `path` and has `length` bytes.
    pub(super) fn begin(path: &Path, old: &Arc<File>, length: &Arc<AtomicU64>) -> Self {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(".tmp");
        let shared = SnapshotProgress { temporary: temporary.into(), state: Mutex::new(State::Begun) };
        let from = length.load(Ordering::Acquire);
        let (old, old_length) = (Arc::clone(old), Arc::clone(length));
        Self { shared: Arc::new(shared), old, old_length, from, sync_every: SYNC_EVERY }
    }

    /// The same for a writer whom the service waits for: the sooner it is done, the better for all.
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
            return Err(given_up());
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
            _ => return Err(given_up()),
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

/// Writes to the file of a snapshot as long as that is wanted, and makes it durable now and then.
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
    /// The folder with both logs, before the new one takes the place of the old one.
    directory: Option<File>,
}

/// The next step of an installation. A crash between any two leaves one of both logs, with all acknowledged records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Records appended since then are copied.
    Copy,
    /// The new file is made durable.
    Sync,
    /// It takes the place of the old one, and is appended to from now on.
    Rename,
    /// That is made durable.
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
        // A device that takes no sync.
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
        let shared = self.snapshot_writer.take().ok_or_else(given_up)?;
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
                Err(given_up())
            }
        }
    }

    /// Takes the next step; gives the one after it. After an error the old log stays in use; but if only the rename could
    /// not be made durable, the new one is in use and the next [`crate::storage::Storage::sync`] fails.
    pub(crate) fn step(&mut self, installation: &mut Installation) -> io::Result<Option<Step>> {
        let next = match (installation.next, &mut installation.written) {
            (Step::Copy, Some(written)) => {
                let length = self.length.load(Ordering::Acquire);
                let rest = copy(&self.file, written.copied, length, &mut written.file)?;
                written.length += rest;
                Some(Step::Sync)
            }
            (Step::Sync, Some(written)) => {
                // What the disk refused may not be in what was copied from there.
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
                    // The thread of the old one does what it has, and ends.
                    self.syncer = Syncer::default();
                    close_beside(std::mem::replace(&mut self.file, Arc::new(file)));
                }
                Some(Step::SyncDirectory)
            }
            (Step::SyncDirectory, _) => {
                let synced = installation.directory.as_ref().map_or_else(|| Err(given_up()), File::sync_all);
                if let Err(error) = synced {
                    *self.syncer.failed() = Some(error);
                }
                None
            }
            (Step::Copy | Step::Sync, None) => return Err(given_up()),
        };
        if let Some(next) = next {
            installation.next = next;
        }
        Ok(next)
    }
}

/// Closes a file that has no name any more: it takes its time to free the blocks of a long one.
fn close_beside(file: Arc<File>) {
    // If there can be no thread, it is closed here.
    let _ = std::thread::Builder::new().name("ovsdb-close".to_owned()).spawn(move || drop(file));
}
