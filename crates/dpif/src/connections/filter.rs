//! Which connections are flushed.

use conntrack::Key;
use conntrack::key::ipproto;

/// Conditions on a connection. The default matches every connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ConnectionFilter {
    /// The zone; `None` for any.
    pub zone: Option<u16>,
    /// The IP protocol; 0 for any.
    pub proto: u8,
    /// Whether addresses are IPv6; `None` for both families.
    pub is_v6: Option<bool>,
    /// Value and mask of the mark.
    pub mark: (u32, u32),
    /// Value and mask of the label.
    pub label: (u128, u128),
    /// Packets of the original direction.
    pub original: TupleFilter,
    /// Packets of the reply direction.
    pub reply: TupleFilter,
}

/// Conditions on the addresses and ports of one direction, as in [`Key`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TupleFilter {
    /// Source address; `None` for any.
    pub src: Option<[u64; 2]>,
    /// Destination address; `None` for any.
    pub dst: Option<[u64; 2]>,
    /// Source port, or ICMP's identifier; 0 for any port, but not for any identifier.
    pub src_port: u16,
    /// Destination port, or ICMP's type and code; 0 for any port, but not for any type.
    pub dst_port: u16,
}

impl ConnectionFilter {
    /// A filter for all connections of a zone, or of all zones.
    pub fn of_zone(zone: Option<u16>) -> Self {
        Self { zone, ..Self::default() }
    }

    /// Returns true if only the zone matters.
    pub fn is_zone_only(&self) -> bool {
        *self == Self::of_zone(self.zone)
    }

    /// The key to look up, if the only condition beside the zone is a whole tuple: that of either direction of a connection,
    /// in zone 0 unless there is another one, as in Open vSwitch.
    pub fn key(&self) -> Option<Key> {
        let (TupleFilter { src, dst, src_port, dst_port }, is_v6) = (self.original, self.is_v6?);
        let has_ports = self.is_icmp() || src_port != 0 && dst_port != 0;
        if self.proto == 0
            || !has_ports
            || self.reply != TupleFilter::default()
            || (self.mark.1, self.label.1) != (0, 0)
        {
            return None;
        }
        let zone = self.zone.unwrap_or_default();
        Some(Key { src: src?, dst: dst?, src_port, dst_port, zone, proto: self.proto, is_v6 })
    }

    /// Returns true for a connection with these keys of both directions, mark and label.
    pub fn matches(&self, keys: &[Key; 2], mark: u32, label: u128) -> bool {
        if let Some(key) = self.key() {
            return keys.contains(&key);
        }
        let [original, reply] = keys;
        self.zone.is_none_or(|zone| zone == original.zone)
            && (self.proto == 0 || self.proto == original.proto)
            && self.is_v6.is_none_or(|is_v6| is_v6 == original.is_v6)
            && (mark ^ self.mark.0) & self.mark.1 == 0
            && (label ^ self.label.0) & self.label.1 == 0
            && self.original.matches(original, self.is_icmp())
            && self.reply.matches(reply, self.is_icmp())
    }

    fn is_icmp(&self) -> bool {
        matches!(self.proto, ipproto::ICMP | ipproto::ICMPV6)
    }
}

impl TupleFilter {
    /// With `is_exact`, a port of 0 is not any port.
    fn matches(&self, key: &Key, is_exact: bool) -> bool {
        let port = |wanted: u16, port: u16| wanted == port || wanted == 0 && !is_exact;
        self.src.is_none_or(|src| src == key.src)
            && self.dst.is_none_or(|dst| dst == key.dst)
            && port(self.src_port, key.src_port)
            && port(self.dst_port, key.dst_port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(proto: u8, ports: (u16, u16)) -> [Key; 2] {
        let key = Key { src: [0, 1], dst: [0, 2], src_port: ports.0, dst_port: ports.1, zone: 3, proto, is_v6: false };
        [key, key.reversed()]
    }

    #[test]
    fn every_condition_counts() {
        let keys = keys(6, (1000, 80));
        let matches = |filter: ConnectionFilter| filter.matches(&keys, 5, 0x77);
        let any = ConnectionFilter::default();
        assert!(matches(any) && any.is_zone_only());
        assert!(matches(ConnectionFilter::of_zone(Some(3))) && !matches(ConnectionFilter::of_zone(Some(4))));
        assert!(matches(ConnectionFilter { proto: 6, ..any }) && !matches(ConnectionFilter { proto: 17, ..any }));
        assert!(!matches(ConnectionFilter { is_v6: Some(true), ..any }));
        assert!(matches(ConnectionFilter { mark: (0xf1, 1), ..any }));
        assert!(!matches(ConnectionFilter { mark: (0, 4), ..any }));
        assert!(!matches(ConnectionFilter { label: (0x76, u128::MAX), ..any }));
        let from = |n: u64, src_port: u16| TupleFilter { src: Some([0, n]), src_port, ..TupleFilter::default() };
        assert!(matches(ConnectionFilter { original: from(1, 0), reply: from(2, 80), ..any }));
        assert!(!matches(ConnectionFilter { original: from(1, 80), ..any }));
        assert!(!ConnectionFilter { mark: (0, 1), ..any }.is_zone_only());
    }

    #[test]
    fn a_whole_tuple_is_looked_up() {
        let keys = keys(6, (1000, 80));
        let tuple = |key: &Key| TupleFilter {
            src: Some(key.src),
            dst: Some(key.dst),
            src_port: key.src_port,
            dst_port: key.dst_port,
        };
        let of_reply = ConnectionFilter {
            zone: Some(3),
            proto: 6,
            is_v6: Some(false),
            original: tuple(&keys[1]),
            ..ConnectionFilter::default()
        };
        assert_eq!(of_reply.key(), Some(keys[1]));
        assert!(of_reply.matches(&keys, 0, 0));
        let without_zone = ConnectionFilter { zone: None, ..of_reply };
        assert!(without_zone.key().is_some_and(|key| key.zone == 0) && !without_zone.matches(&keys, 0, 0));
        // With another condition, directions count.
        assert!(!ConnectionFilter { mark: (0, u32::MAX), ..of_reply }.matches(&keys, 0, 0));
        let part = TupleFilter { src_port: 0, ..tuple(&keys[0]) };
        let filter = ConnectionFilter { zone: None, original: part, ..of_reply };
        assert!(filter.key().is_none() && filter.matches(&keys, 0, 0));
    }

    /// As in Open vSwitch, both directions have to be given whole.
    #[test]
    fn icmp_is_compared_exactly() {
        let keys = keys(1, (5, 0x0800));
        let matches = |filter: ConnectionFilter| filter.matches(&keys, 0, 0);
        let any = ConnectionFilter::default();
        let tuple = |src_port: u16, dst_port: u16| TupleFilter { src_port, dst_port, ..TupleFilter::default() };
        assert!(matches(any) && !matches(ConnectionFilter { proto: 1, ..any }));
        let original = tuple(5, 0x0800);
        assert!(!matches(ConnectionFilter { proto: 1, original, ..any }));
        assert!(matches(ConnectionFilter { proto: 1, original, reply: tuple(5, 0), ..any }));
    }
}
