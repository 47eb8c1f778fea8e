//! What a daemon under a monitor (`--monitor`) keeps across its crashes: settings that were changed at run time.
//!
//! The contents are in a file without a name, which the monitor creates and each process that it starts inherits as
//! standard input. They are gone when the monitor ends.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::MemfdFlags;

/// Text that outlives a crash of the daemon. Clones have the same text.
#[derive(Debug, Clone)]
pub struct SavedState(Arc<File>);

impl SavedState {
    /// Creates the file, for a monitor.
    pub(crate) fn create() -> io::Result<File> {
        Ok(File::from(rustix::fs::memfd_create("saved-state", MemfdFlags::CLOEXEC)?))
    }

    /// Takes the file that the monitor passed as standard input.
    pub(crate) fn take() -> io::Result<Self> {
        let file = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        rustix::stdio::dup2_stdin(crate::stage::null()?)?;
        Ok(Self(Arc::new(File::from(file))))
    }

    /// Returns the text that was written last, in this process or in one that crashed; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The contents are not text, or cannot be read.
    pub fn read(&self) -> io::Result<Option<String>> {
        let mut bytes = vec![0; self.length()?];
        self.0.read_exact_at(&mut bytes, 0)?;
        let text = String::from_utf8(bytes).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        let text = text.trim_end_matches('\n');
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }

    /// Replaces the text, in which newlines at the end do not count.
    ///
    /// # Errors
    ///
    /// The text cannot be written.
    pub fn write(&self, text: &str) -> io::Result<()> {
        // One write replaces the whole text: a crash leaves the old or the new one, never a mixture.
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(bytes.len().max(self.length()?), b'\n');
        self.0.write_all_at(&bytes, 0)
    }

    fn length(&self) -> io::Result<usize> {
        usize::try_from(self.0.metadata()?.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_text_counts() {
        let state = SavedState(Arc::new(SavedState::create().unwrap()));
        assert_eq!(state.read().unwrap(), None);
        for text in ["a longer text", "short", "a longer text again"] {
            state.write(text).unwrap();
            assert_eq!(state.read().unwrap().as_deref(), Some(text));
        }
    }
}
