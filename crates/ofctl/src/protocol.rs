//! Flow formats: an OpenFlow version, and in 1.0 the format and the table_id extension that the connection is switched to.

use openflow::{Version, Versions};
use std::fmt;

/// A set of flow formats, a bit each, the most widely supported first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protocols(pub u32);

impl Protocols {
    /// OpenFlow 1.0.
    pub const OF10_STD: Self = Self(1 << 0);
    /// OpenFlow 1.0 with the table_id extension.
    pub const OF10_STD_TID: Self = Self(1 << 1);
    /// Nicira's extended match.
    pub const NXM: Self = Self(1 << 2);
    /// Nicira's extended match with the table_id extension.
    pub const NXM_TID: Self = Self(1 << 3);
    /// OpenFlow 1.1.
    pub const OF11: Self = Self(1 << 4);
    /// Both of OpenFlow 1.0's own.
    pub const OF10_ANY: Self = Self(0x03);
    /// Both of Nicira's.
    pub const NXM_ANY: Self = Self(0x0c);
    /// OpenFlow 1.2 to 1.5.
    pub const OXM: Self = Self(0x1e0);
    /// OpenFlow 1.1 to 1.5.
    pub const OF11_UP: Self = Self(0x1f0);
    /// OpenFlow 1.3 to 1.5.
    pub const OF13_UP: Self = Self(0x1c0);
    /// All.
    pub const ANY: Self = Self(0x1ff);
    /// None.
    pub const NONE: Self = Self(0);

    /// The format in which a connection of `version` begins.
    pub fn initial(version: Version) -> Self {
        if version == Version::V10 { Self::OF10_STD } else { Self(1 << (version.wire() + 2)) }
    }

    /// The formats of these versions.
    pub fn of_versions(versions: Versions) -> Self {
        let v10 = if versions.contains(Version::V10) { 0x0f } else { 0 };
        Version::ALL[1..].iter().filter(|v| versions.contains(**v)).fold(Self(v10), |set, v| set | Self::initial(*v))
    }

    /// The versions of these formats.
    pub fn versions(self) -> Versions {
        let mut list = Vec::new();
        if self.0 & 0x0f != 0 {
            list.push(Version::V10);
        }
        list.extend(Version::ALL[1..].iter().filter(|v| self.has(Self::initial(**v))));
        Versions::of(&list)
    }

    /// Whether some of `other` are in the set.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The single formats of the set, the most widely supported first.
    pub fn each(self) -> impl Iterator<Item = Self> {
        (0..9).map(|bit| Self(1 << bit)).filter(move |p| self.has(*p))
    }

    /// Whether flow modifications name their table by the extension.
    pub fn table_id_ext(self) -> bool {
        self == Self::OF10_STD_TID || self == Self::NXM_TID
    }

    /// Whether this is one of Nicira's formats.
    pub fn is_nxm(self) -> bool {
        Self::NXM_ANY.has(self)
    }

    /// The set of a list of names as `-F` takes it; the error is the name that is unknown.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut set = Self::NONE;
        for name in text.split([',', ' ', '\t']).filter(|n| !n.is_empty()) {
            let named = NAMES.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, p)| *p);
            set = set | named.ok_or_else(|| format!("{name}: unknown flow protocol"))?;
        }
        if set == Self::NONE { Err(format!("{text}: no flow protocol specified")) } else { Ok(set) }
    }
}

const NAMES: [(&str, Protocols); 13] = [
    ("any", Protocols::ANY),
    ("OpenFlow10-table_id", Protocols::OF10_STD),
    ("OpenFlow10+table_id", Protocols::OF10_STD_TID),
    ("OpenFlow10", Protocols::OF10_ANY),
    ("NXM-table_id", Protocols::NXM),
    ("NXM+table_id", Protocols::NXM_TID),
    ("NXM", Protocols::NXM_ANY),
    ("OpenFlow11", Protocols::OF11),
    ("OXM-OpenFlow12", Protocols(1 << 5)),
    ("OXM-OpenFlow13", Protocols(1 << 6)),
    ("OXM-OpenFlow14", Protocols(1 << 7)),
    ("OXM-OpenFlow15", Protocols(1 << 8)),
    ("OXM", Protocols::OXM),
];

impl std::ops::BitOr for Protocols {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl std::ops::BitAnd for Protocols {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl fmt::Display for Protocols {
    /// The shortest list of names: collections first.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("none");
        }
        if self.0 == Self::ANY.0 {
            return f.write_str("any");
        }
        // A collection stands where its first member would.
        const ORDER: [Protocols; 12] = [
            Protocols::OF10_ANY,
            Protocols::NXM_ANY,
            Protocols::OXM,
            Protocols::OF10_STD,
            Protocols::OF10_STD_TID,
            Protocols::NXM,
            Protocols::NXM_TID,
            Protocols::OF11,
            Protocols(1 << 5),
            Protocols(1 << 6),
            Protocols(1 << 7),
            Protocols(1 << 8),
        ];
        let mut rest = self.0;
        let mut names = Vec::new();
        for p in ORDER {
            if rest & p.0 == p.0 {
                rest &= !p.0;
                names.extend(NAMES.iter().find(|(_, n)| *n == p).map(|(name, _)| *name));
            }
        }
        f.write_str(&names.join(","))
    }
}

/// Names of versions, as an error lists them.
pub fn version_list(versions: Versions) -> String {
    let names: Vec<&str> = Version::ALL.into_iter().filter(|v| versions.contains(*v)).map(Version::name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_sets() {
        assert_eq!(Protocols::ANY.to_string(), "any");
        assert_eq!((Protocols::OF10_ANY | Protocols::NXM_ANY).to_string(), "OpenFlow10,NXM");
        assert_eq!((Protocols::NXM_ANY | Protocols::OXM).to_string(), "NXM,OXM");
        assert_eq!((Protocols::OXM | Protocols::NXM_TID).to_string(), "OXM,NXM+table_id");
        assert_eq!(Protocols::OF13_UP.to_string(), "OXM-OpenFlow13,OXM-OpenFlow14,OXM-OpenFlow15");
        assert_eq!(Protocols::parse("nxm,OpenFlow10-table_id"), Ok(Protocols(0x0d)));
        assert_eq!(Protocols::parse("nope"), Err("nope: unknown flow protocol".into()));
    }

    #[test]
    fn versions_and_formats() {
        let v = Versions::of(&[Version::V10, Version::V13]);
        assert_eq!(Protocols::of_versions(v), Protocols(0x4f));
        assert_eq!(Protocols(0x4f).versions(), v);
        assert_eq!(Protocols::initial(Version::V11), Protocols::OF11);
    }
}
