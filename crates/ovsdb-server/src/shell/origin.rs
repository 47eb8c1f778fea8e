//! Where the contents of a database come from.

use std::fmt;
use std::path::PathBuf;

use ovsdb::DatabaseSchema;

use super::running;
use crate::follow::Source;

/// The origin of a database.
pub(super) enum Origin {
    File(PathBuf),
    FileOrNew(PathBuf, Box<DatabaseSchema>),
    FileUpgraded(PathBuf, Box<DatabaseSchema>),
    Memory(Box<DatabaseSchema>),
    Relay(String, Source),
}

impl fmt::Display for Origin {
    /// The name on a command line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) | Self::FileOrNew(path, _) | Self::FileUpgraded(path, _) => {
                write!(f, "{}", path.display())
            }
            Self::Memory(schema) => f.write_str(&schema.name),
            Self::Relay(name, source) => f.write_str(&running::relay_text(name, source)),
        }
    }
}
