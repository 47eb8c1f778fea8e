//! Sets of versions, and the negotiation by two HELLOs (OpenFlow 1.3 section 7.5.1).

use crate::Version;
use std::fmt;

/// A set of versions by number on the wire, as the bitmap of a HELLO (OpenFlow 1.3 section 7.5.1), of the numbers 0 to 31.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Versions(pub u32);

impl Versions {
    /// Returns the versions from 1.0 to `max` on the wire (the meaning of a HELLO without a bitmap).
    pub fn up_to(max: u8) -> Self {
        Self(((1u64 << (u32::from(max).min(31) + 1)) - 2) as u32)
    }

    /// Returns the set of exactly these versions.
    pub fn of(versions: &[Version]) -> Self {
        Self(versions.iter().fold(0, |set, v| set | 1 << v.wire()))
    }

    /// Returns true if `version` is in the set.
    pub fn contains(self, version: Version) -> bool {
        self.0 & 1 << version.wire() != 0
    }

    /// Returns the newest version of the set that this crate knows.
    pub fn newest(self) -> Option<Version> {
        Version::ALL.into_iter().rev().find(|v| self.contains(*v))
    }

    /// Returns the negotiated version of two sides with these sets: the newest common one.
    pub fn negotiate(self, peer: Self) -> Option<Version> {
        Self(self.0 & peer.0).newest()
    }

    /// Describes the set as log messages do: `version 0x01`, `versions 0x01, 0x04`, `version 0x06 and earlier`.
    pub fn describe(self) -> String {
        let newest = self.newest().map_or(0, Version::wire);
        if newest > 1 && self == Self::up_to(newest) {
            format!("version 0x{newest:02x} and earlier")
        } else if self.0.is_power_of_two() {
            format!("version {self}")
        } else {
            format!("versions {self}")
        }
    }
}

impl fmt::Display for Versions {
    /// Formats as `0x01, 0x04`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list: Vec<String> = (0..32).filter(|n| self.0 & 1 << n != 0).map(|n| format!("0x{n:02x}")).collect();
        f.write_str(&list.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negotiation_takes_the_newest_common() {
        let ours = Versions::of(&[Version::V10, Version::V13]);
        assert_eq!(ours.negotiate(Versions::up_to(6)), Some(Version::V13));
        assert_eq!(ours.negotiate(Versions::up_to(3)), Some(Version::V10));
        assert_eq!(ours.negotiate(Versions::of(&[Version::V14])), None);
        assert_eq!(Versions::up_to(255).0, 0xffff_fffe);
        assert_eq!(Versions::up_to(0).0, 0);
    }

    #[test]
    fn descriptions() {
        let both = Versions::of(&[Version::V10, Version::V13]);
        for (versions, text) in [
            (both, "versions 0x01, 0x04"),
            (Versions::up_to(6), "version 0x06 and earlier"),
            (Versions::up_to(1), "version 0x01"),
            (Versions(1 << 9), "version 0x09"),
        ] {
            assert_eq!(versions.describe(), text);
        }
    }
}
