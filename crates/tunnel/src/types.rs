//! The types of tunnel interfaces (ovs-vswitchd.conf.db(5), Interface table, `type`).

/// A type of tunnel interface.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum TunnelType {
    /// RFC 7348, with the group policy and generic protocol extensions.
    Vxlan,
    /// RFC 8926.
    Geneve,
    /// RFC 2784 and 2890 over IPv4 or IPv6, by the addresses.
    Gre,
    /// The same over IPv6 only.
    Ip6Gre,
    /// ERSPAN types II and III over GRE and IPv4 or IPv6, by the addresses.
    Erspan,
    /// The same over IPv6 only.
    Ip6Erspan,
    /// GTP-U version 1 (3GPP TS 29.281).
    Gtpu,
    /// Segment routing over IPv6 (RFC 8754, RFC 8986).
    Srv6,
    /// An inner packet directly behind UDP (RFC 7510 for MPLS).
    Bareudp,
}

impl TunnelType {
    /// All types, by name.
    pub const ALL: [(&str, Self); 9] = [
        ("bareudp", Self::Bareudp),
        ("erspan", Self::Erspan),
        ("geneve", Self::Geneve),
        ("gre", Self::Gre),
        ("gtpu", Self::Gtpu),
        ("ip6erspan", Self::Ip6Erspan),
        ("ip6gre", Self::Ip6Gre),
        ("srv6", Self::Srv6),
        ("vxlan", Self::Vxlan),
    ];

    /// The type with a name, as in the database.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// Its name in the database.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }
}
