//! Versions of OpenFlow, by the number in a message's header.

use std::fmt;

/// A version of OpenFlow; its discriminant is the number on the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Version {
    /// OpenFlow 1.0.
    V10 = 1,
    /// OpenFlow 1.1.
    V11 = 2,
    /// OpenFlow 1.2.
    V12 = 3,
    /// OpenFlow 1.3.
    V13 = 4,
    /// OpenFlow 1.4.
    V14 = 5,
    /// OpenFlow 1.5.
    V15 = 6,
}

impl Version {
    /// All versions, oldest first.
    pub const ALL: [Self; 6] = [Self::V10, Self::V11, Self::V12, Self::V13, Self::V14, Self::V15];

    /// Returns the version with this number on the wire.
    pub fn from_wire(n: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|v| *v as u8 == n)
    }

    /// The number in a message's header.
    pub fn wire(self) -> u8 {
        self as u8
    }

    /// The name in `-O` and database rows, as `OpenFlow13`.
    pub fn name(self) -> &'static str {
        ["OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"][self as usize - 1]
    }

    /// Returns the version with this name, in any case, with or without a point between the digits (`OpenFlow1.3`).
    pub fn from_name(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase().replace("1.", "1");
        Self::ALL.into_iter().find(|v| v.name().eq_ignore_ascii_case(&name))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenFlow 1.{}", *self as u8 - 1)
    }
}
