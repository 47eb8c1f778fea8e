//! Database files: locking, recovery, appending, compaction.
//!
//! A file whose tail is torn or damaged is truncated to its last whole record, but only after the whole file was
//! copied to `FILE.damaged-<time>`. Writers hold a lock on `.FILE.~lock~` beside the file, as Open vSwitch's programs
//! do, so that our programs and theirs exclude each other. A log that replaces another one is written as `FILE.tmp`
//! ([`snapshot_writer`]).

pub(crate) mod snapshot_writer;

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::process::{Flock, FlockType};
use snapshot_writer::{FileSnapshotWriter, SnapshotProgress};
use tracing::{error, warn};

use crate::database::Database;
use crate::log::{self, LogError, Parsed, Record};
use crate::replay::{self, Loaded};
use crate::snapshot::Snapshot;
use crate::storage::{SnapshotWriter, Storage};

/// Permissions of new files, less the umask: databases may contain confidential data.
const FILE_MODE: u32 = 0o660;

/// Why a database file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The operating system refused.
    #[error("I/O error: {path}: {action} ({})", describe(.error))]
    Io {
        /// The file.
        path: String,
        /// The failed action, e.g. `open failed`.
        action: &'static str,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// Another process has the lock.
    #[error("I/O error: {path}: failed to lock lockfile (Resource temporarily unavailable)")]
    Locked {
        /// The file.
        path: String,
    },
    /// The file has no sound first record.
    #[error("{}: {path}: {error}", .error.tag())]
    Damaged {
        /// The file.
        path: String,
        /// The error in it.
        error: LogError,
    },
    /// The file is empty.
    #[error("ovsdb error: {path}: cannot identify file type")]
    Empty {
        /// The file.
        path: String,
    },
    /// The file does not begin like a database file.
    #[error("ovsdb error: {path}: unexpected file format")]
    NotDatabase {
        /// The file.
        path: String,
    },
}

/// The error text of the operating system, without the error number, which other programs' messages lack.
pub(crate) fn describe(error: &io::Error) -> String {
    error.to_string().split(" (os error").next().unwrap_or_default().to_owned()
}

fn failed(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> FileError {
    let path = path.display().to_string();
    move |error| FileError::Io { path, action, error }
}

fn bytes_of(path: &Path) -> Result<Vec<u8>, FileError> {
    let mut file = File::open(path).map_err(failed(path, "open failed"))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(failed(path, "read error"))?;
    Ok(bytes)
}

/// Reads all sound records of a file without locking it. Damage is reported in the result, not an error, unless not
/// even the first record is sound.
pub fn read(path: &Path) -> Result<Parsed, FileError> {
    let bytes = bytes_of(path)?;
    let parsed = log::parse(&bytes);
    if parsed.records.is_empty() {
        return Err(without_records(path, parsed.error));
    }
    Ok(parsed)
}

/// Like [`read`], but returns the database that the records describe.
pub fn load(path: &Path) -> Result<Loaded, FileError> {
    let bytes = bytes_of(path)?;
    let loaded = replay::load(&bytes);
    if loaded.record_count == 0 {
        return Err(without_records(path, loaded.error));
    }
    Ok(loaded)
}

fn without_records(path: &Path, error: Option<LogError>) -> FileError {
    let path = path.display().to_string();
    match error {
        None => FileError::Empty { path },
        Some(LogError::Header { offset: 0, .. }) => FileError::NotDatabase { path },
        Some(error) => FileError::Damaged { path, error },
    }
}

/// A lock on a database file, held until dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
    path: PathBuf,
}

/// The lock files that this process holds. The system's locks belong to a process, not to a file descriptor: they do
/// not exclude two users within one process, and closing any descriptor of the file drops them.
static HELD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn held() -> std::sync::MutexGuard<'static, BTreeSet<PathBuf>> {
    // A panic of another holder leaves a whole set behind.
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Lock {
    /// Takes the lock of the database file `path`, which need not exist.
    pub fn take(path: &Path) -> Result<Self, FileError> {
        let lock_path = lock_path(path);
        let locked = || FileError::Locked { path: path.display().to_string() };
        // As the log names it: beside the file as the user named it.
        let shown = if path.is_symlink() { lock_path.clone() } else { beside(path) };
        let mut held = held();
        if held.contains(&lock_path) {
            warn!(target: "lockfile", "{}: cannot lock file because this process has already locked it", shown.display());
            return Err(locked());
        }
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&lock_path);
        let file = open.map_err(|error| {
            for failure in ["failed to open lock file", "failed to lock file"] {
                warn!(target: "lockfile", "{}: {failure}: {}", shown.display(), describe(&error));
            }
            failed(path, "failed to lock lockfile")(error)
        })?;
        match fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {
                held.insert(lock_path.clone());
                Ok(Self { _file: file, path: lock_path })
            }
            Err(_) => {
                warn!(
                    target: "lockfile",
                    "{}: cannot lock file because it is already locked by {}",
                    shown.display(),
                    holder(&file)
                );
                Err(locked())
            }
        }
    }
}

/// The process that has the lock on a file, as far as the system names it.
fn holder(file: &File) -> String {
    let lock = rustix::process::fcntl_getlk(file, &Flock::from(FlockType::WriteLock)).ok().flatten();
    lock.and_then(|lock| lock.pid)
        .map_or_else(|| "another process".to_owned(), |pid| format!("pid {}", pid.as_raw_pid()))
}

impl Drop for Lock {
    fn drop(&mut self) {
        held().remove(&self.path);
    }
}

/// `DIR/.NAME.~lock~` for `DIR/NAME`, symbolic links followed.
fn lock_path(path: &Path) -> PathBuf {
    beside(&resolve(path))
}

/// `DIR/.NAME.~lock~` for `DIR/NAME`.
fn beside(path: &Path) -> PathBuf {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    path.with_file_name(format!(".{name}.~lock~"))
}

/// The file that a path means, symbolic links followed, also if it does not exist; the path itself if links form a loop.
fn resolve(path: &Path) -> PathBuf {
    if let Ok(found) = std::fs::canonicalize(path) {
        return found;
    }
    let mut target = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(link) = std::fs::read_link(&target) else { return target };
        // A relative link is relative to the folder that it is in.
        target = target.parent().map_or_else(|| link.clone(), |folder| folder.join(&link));
    }
    path.to_owned()
}

/// How many symbolic links in a row are followed to a file that does not exist, as in the kernel.
const LINKS_MAX: usize = 40;

/// A log in a file, open for appending.
#[derive(Debug)]
pub struct FileStorage {
    path: PathBuf,
    file: Arc<File>,
    /// Length in bytes of its whole records; snapshot writers read it.
    length: Arc<AtomicU64>,
    syncer: Syncer,
    /// The snapshot that was begun last.
    snapshot_writer: Option<Arc<SnapshotProgress>>,
    _lock: Lock,
}

/// Syncs a file from time to time in a separate thread. Each file has a syncer of its own: the queued file is then
/// always the one in use, and an error concerns that file.
#[derive(Debug, Default)]
struct Syncer {
    /// Queue of files to sync, if the thread was started.
    files: Option<mpsc::SyncSender<Arc<File>>>,
    failed: Arc<Mutex<Option<io::Error>>>,
}

/// The minimum time between two syncs that no client waits for.
const SYNC_PAUSE: Duration = Duration::from_millis(100);

impl Syncer {
    fn sync_soon(&mut self, file: &Arc<File>) -> io::Result<()> {
        self.check()?;
        let files = match &self.files {
            Some(files) => files,
            None => match self.start() {
                Ok(files) => self.files.insert(files),
                // There can be no thread now.
                Err(_) => return file.sync_data(),
            },
        };
        // If the queue is full, its sync is still to come and covers this one.
        let _ = files.try_send(file.clone());
        Ok(())
    }

    /// Returns the result of the last sync.
    fn check(&self) -> io::Result<()> {
        self.failed().take().map_or(Ok(()), Err)
    }

    /// The error to report, if there is one.
    fn failed(&self) -> std::sync::MutexGuard<'_, Option<io::Error>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) -> io::Result<mpsc::SyncSender<Arc<File>>> {
        let (files, queue) = mpsc::sync_channel::<Arc<File>>(1);
        let failed = self.failed.clone();
        std::thread::Builder::new().name("ovsdb-sync".to_owned()).spawn(move || {
            for file in queue {
                if let Err(error) = file.sync_data() {
                    *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
                }
                std::thread::sleep(SYNC_PAUSE);
            }
        })?;
        Ok(files)
    }
}

/// An opened file: its log, and its contents.
#[derive(Debug)]
pub struct Opened {
    /// The log, positioned at its end.
    pub storage: FileStorage,
    /// The database that its records describe, or the error in their contents.
    pub database: ovsdb::Result<Database>,
    /// The errors in records whose changes are left out.
    pub invalid: Vec<ovsdb::Error>,
    /// A description of the recovery, if the file was damaged: for the log and for the user.
    pub recovered: Option<String>,
}

impl FileStorage {
    /// Opens and locks an existing file; `time_s`, the Unix time in seconds, names the copy of a damaged one.
    pub fn open(path: &Path, time_s: u64) -> Result<Opened, FileError> {
        Self::open_with(path, |file, length, error| recover(path, file, length, time_s, error))
    }

    /// Opens and locks an existing file that is not damaged.
    pub fn open_undamaged(path: &Path) -> Result<Opened, FileError> {
        Self::open_with(path, |_, _, error| {
            Err(FileError::Damaged { path: path.display().to_string(), error: error.clone() })
        })
    }

    fn open_with(
        path: &Path,
        repair: impl FnOnce(&File, u64, &LogError) -> Result<String, FileError>,
    ) -> Result<Opened, FileError> {
        // A file that does not exist leaves no lock file behind.
        if let Err(missing) = path.metadata()
            && missing.kind() == io::ErrorKind::NotFound
        {
            return Err(failed(path, "open failed")(missing));
        }
        let lock = Lock::take(path)?;
        let mut file = OpenOptions::new().read(true).write(true).open(path).map_err(failed(path, "open failed"))?;
        let loaded = load(path)?;
        let length = loaded.sound_length as u64;
        let recovered = match &loaded.error {
            Some(error) => Some(repair(&file, length, error)?),
            None => None,
        };
        file.seek(SeekFrom::Start(length)).map_err(failed(path, "seek failed"))?;
        let storage = Self::new(path, file, length, lock);
        Ok(Opened { storage, database: loaded.database, invalid: loaded.invalid, recovered })
    }

    fn new(path: &Path, file: File, length: u64, lock: Lock) -> Self {
        let length = Arc::new(AtomicU64::new(length));
        let (syncer, snapshot_writer) = (Syncer::default(), None);
        Self { path: resolve(path), file: Arc::new(file), length, syncer, snapshot_writer, _lock: lock }
    }

    /// Creates a new file with these records; fails if it exists.
    pub fn create(path: &Path, records: &[Record]) -> Result<Self, FileError> {
        Self::create_with(path, |file| records.iter().try_fold(0, |length, record| Ok(length + record.write_to(file)?)))
    }

    /// Creates a new file with these contents; fails if it exists.
    pub fn create_from(path: &Path, snapshot: &Snapshot) -> Result<Self, FileError> {
        Self::create_with(path, |file| snapshot.write_to(file))
    }

    fn create_with(path: &Path, write: impl FnOnce(&mut File) -> io::Result<u64>) -> Result<Self, FileError> {
        let lock = Lock::take(path)?;
        // The system does not follow a symbolic link when it creates a new file.
        let target = resolve(path);
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(FILE_MODE).open(&target);
        let mut file = file.map_err(failed(path, "create failed"))?;
        let written = write(&mut file).and_then(|length| {
            file.sync_all()?;
            sync_directory(&target)?;
            Ok(length)
        });
        match written {
            Ok(length) => Ok(Self::new(path, file, length, lock)),
            Err(error) => {
                // A half-written new file is of no use to anyone, and would be in the way of the next attempt.
                let _ = std::fs::remove_file(&target);
                Err(failed(path, "write failed")(error))
            }
        }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn begin_snapshot_writer(&mut self) -> FileSnapshotWriter {
        self.discard();
        let snapshot_writer = FileSnapshotWriter::begin(&self.path, &self.file, &self.length);
        self.snapshot_writer = Some(Arc::clone(snapshot_writer.shared()));
        snapshot_writer
    }
}

/// Copies a damaged file aside and cuts it back to its sound part.
fn recover(path: &Path, file: &File, length: u64, time_s: u64, error: &LogError) -> Result<String, FileError> {
    let copy = copy_aside(path, time_s)?;
    file.set_len(length).and_then(|()| file.sync_all()).map_err(failed(path, "truncate failed"))?;
    error!(target: "ovsdb_server", "{}: {}: {error}", error.tag(), path.display());
    let message = format!(
        "{}: recovered {length} bytes up to the last whole record, the damaged file is kept as {}",
        path.display(),
        copy.display()
    );
    warn!(target: "ovsdb_log", "{message}");
    Ok(message)
}

fn copy_aside(path: &Path, time_s: u64) -> Result<PathBuf, FileError> {
    let mut source = File::open(path).map_err(failed(path, "open failed"))?;
    let base = format!("{}.damaged-{time_s}", path.display());
    for attempt in 0..1000 {
        let copy = PathBuf::from(if attempt == 0 { base.clone() } else { format!("{base}.{attempt}") });
        let mut target = match OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&copy) {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            Err(error) => return Err(failed(&copy, "create failed")(error)),
        };
        let copied = io::copy(&mut source, &mut target).and_then(|_| target.sync_all());
        copied.and_then(|()| sync_directory(&copy)).map_err(failed(&copy, "write failed"))?;
        return Ok(copy);
    }
    Err(failed(path, "too many damaged copies exist")(io::Error::from(io::ErrorKind::AlreadyExists)))
}

fn sync_directory(path: &Path) -> io::Result<()> {
    open_directory(path)?.sync_all()
}

/// The folder that a file is in.
fn open_directory(path: &Path) -> io::Result<File> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)
}

impl Drop for FileStorage {
    fn drop(&mut self) {
        // While the lock is still held: a snapshot is not to meet that of another process.
        self.discard();
    }
}

impl Storage for FileStorage {
    fn append(&mut self, record: &Record) -> io::Result<()> {
        let length = self.length();
        match record.write_to(&mut &*self.file) {
            Ok(added) => self.length.store(length + added, Ordering::Release),
            Err(error) => {
                // Removes the partial record, so that a later one does not follow a torn one.
                let _ = self.file.set_len(length);
                let _ = (&*self.file).seek(SeekFrom::Start(length));
                return Err(error);
            }
        }
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.syncer.check()?;
        self.file.sync_data()
    }

    fn sync_soon(&mut self) -> io::Result<()> {
        self.syncer.sync_soon(&self.file)
    }

    fn snapshot_writer(&mut self) -> Box<dyn SnapshotWriter> {
        Box::new(self.begin_snapshot_writer())
    }

    fn install(&mut self) -> io::Result<()> {
        let mut installation = self.installation()?;
        while self.step(&mut installation)?.is_some() {}
        Ok(())
    }

    fn discard(&mut self) {
        if let Some(snapshot_writer) = self.snapshot_writer.take() {
            snapshot_writer.end();
        }
    }

    fn replace(&mut self, snapshot: &Snapshot) -> io::Result<()> {
        Box::new(self.begin_snapshot_writer().at_once()).write(snapshot)?;
        self.install()
    }

    fn length(&self) -> u64 {
        self.length.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::json;

    use super::*;
    use crate::journal::Style;
    use crate::tests::schema;

    fn create(directory: &Path) -> FileStorage {
        FileStorage::create(&directory.join("t.db"), &[Record::from(&schema().to_json())]).unwrap()
    }

    fn snapshot() -> Snapshot {
        Snapshot::of(&Database::new(schema()), "", 0, Style::Difference)
    }

    #[test]
    fn a_new_file_is_synced_while_the_sync_of_the_old_one_is_pending() {
        let directory = tempfile::tempdir().unwrap();
        let mut storage = create(directory.path());
        // A thread that has not processed the old file yet, and a full queue.
        let (files, queue) = mpsc::sync_channel(1);
        storage.syncer.files = Some(files);
        storage.sync_soon().unwrap();
        storage.replace(&snapshot()).unwrap();
        // A file that cannot be synced shows whether a sync was tried.
        storage.file = Arc::new(File::open("/dev/null").unwrap());
        storage.sync_soon().unwrap();
        let begun = Instant::now();
        while storage.syncer.check().is_ok() {
            assert!(begun.elapsed() < Duration::from_secs(60), "nobody makes the new file durable");
            std::thread::sleep(Duration::from_millis(1));
        }
        // The syncer thread of the old file finishes its queue and ends.
        assert_eq!(queue.iter().count(), 1);
    }

    #[test]
    fn a_file_is_created_where_a_symbolic_link_points() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        let records = [Record::from(&schema().to_json())];
        std::fs::create_dir(at("folder")).unwrap();
        std::os::unix::fs::symlink("middle", at("link")).unwrap();
        std::os::unix::fs::symlink("folder/file", at("middle")).unwrap();
        let storage = FileStorage::create(&at("link"), &records).unwrap();
        assert!(at("link").is_symlink() && at("middle").is_symlink() && at("folder/file").is_file());
        assert!(matches!(Lock::take(&at("folder/file")), Err(FileError::Locked { .. })));
        drop(storage);
        assert!(matches!(
            FileStorage::create(&at("link"), &records),
            Err(FileError::Io { action: "create failed", .. })
        ));
        std::os::unix::fs::symlink("loop", at("loop")).unwrap();
        assert!(matches!(
            FileStorage::create(&at("loop"), &records),
            Err(FileError::Io { action: "create failed", .. })
        ));
    }

    #[test]
    fn errors_of_a_replaced_file_do_not_count() {
        let directory = tempfile::tempdir().unwrap();
        let mut storage = create(directory.path());
        let failed = Arc::clone(&storage.syncer.failed);
        storage.replace(&snapshot()).unwrap();
        *failed.lock().unwrap() = Some(io::Error::other("the old one"));
        storage.append(&Record::from(&json!({}))).unwrap();
        storage.sync_soon().unwrap();
        storage.sync().unwrap();
        // But records copied from a failed file may differ from those written.
        *storage.syncer.failed() = Some(io::Error::other("this one"));
        assert!(storage.replace(&snapshot()).is_err());
        assert!(storage.sync().is_err());
    }
}
