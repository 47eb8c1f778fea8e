//! Flow formats: the initial format of a connection, and the versions that formats need.

use openflow::{Protocols, Version, Versions};

/// The initial flow format of a connection of `version`.
pub fn initial(version: Version) -> Protocols {
    Protocols::of_version(version).first().unwrap_or(Protocols::NONE)
}

/// Whether two sets have a format in common.
pub fn intersect(a: Protocols, b: Protocols) -> bool {
    !(a & b).is_empty()
}

/// The formats of these versions.
pub fn of_versions(versions: Versions) -> Protocols {
    let list = Version::ALL.into_iter().filter(|v| versions.contains(*v));
    list.fold(Protocols::NONE, |set, v| set | Protocols::of_version(v))
}

/// The versions of these formats.
pub fn versions(protocols: Protocols) -> Versions {
    Versions::of(&protocols.iter().filter_map(Protocols::version).collect::<Vec<_>>())
}

/// Whether flow modifications in this format use Nicira's table id extension.
pub fn table_id_ext(p: Protocols) -> bool {
    p == Protocols::OF10_STD_TID || p == Protocols::OF10_NXM_TID
}

/// Whether this is one of Nicira's formats.
pub fn is_nxm(p: Protocols) -> bool {
    intersect(p, Protocols::NXM_ANY)
}

/// Names of versions, as listed in an error.
pub fn version_list(versions: Versions) -> String {
    let names: Vec<&str> = Version::ALL.into_iter().filter(|v| versions.contains(*v)).map(Version::name).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_and_formats() {
        let v = Versions::of(&[Version::V10, Version::V13]);
        assert_eq!(of_versions(v), Protocols::OF10_ANY | Protocols::NXM_ANY | Protocols::OF13_OXM);
        assert_eq!(versions(of_versions(v)), v);
        assert_eq!(initial(Version::V10), Protocols::OF10_STD);
        assert_eq!(version_list(v), "OpenFlow10, OpenFlow13");
    }
}
