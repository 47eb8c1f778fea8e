//! IGMP versions 1 (RFC 1112), 2 (RFC 2236) and 3 (RFC 3376).

use crate::message::{Malformed, Membership, Message, Record, Version, skip, take};
use packet::checksum::checksum;
use std::net::{IpAddr, Ipv4Addr};

/// A query of any version (RFC 3376 section 4.1).
pub const QUERY: u8 = 0x11;
/// A report of version 1 (RFC 1112 appendix I).
pub const V1_REPORT: u8 = 0x12;
/// A report of version 2 (RFC 2236 section 2.1).
pub const V2_REPORT: u8 = 0x16;
/// A message of version 2 that a listener leaves (RFC 2236 section 2.1).
pub const V2_LEAVE: u8 = 0x17;
/// A report of version 3 (RFC 3376 section 4.2).
pub const V3_REPORT: u8 = 0x22;

/// Parses an IGMP message, which `source` sent. `message` ends where the IP packet ends.
///
/// Of a report with fewer group records than it announces, those that are there count.
pub fn parse(source: Ipv4Addr, message: &[u8]) -> Result<Message, Malformed> {
    let [kind, _, _, _, a, b, c, d, records @ ..] = message else { return Err(Malformed::Truncated) };
    // The checksum is that of the whole message, with itself.
    if checksum(message) != 0 {
        return Err(Malformed::IgmpChecksum);
    }
    let group = IpAddr::from([*a, *b, *c, *d]);
    let single = |version, membership| Ok(Message::Report { version, records: vec![Record { group, membership }] });
    match *kind {
        QUERY => Ok(Message::Query { source: source.into() }),
        V1_REPORT => single(Version::Igmp1, Membership::Join),
        V2_REPORT => single(Version::Igmp2, Membership::Join),
        V2_LEAVE => single(Version::Igmp2, Membership::Leave),
        V3_REPORT => {
            let n_records = u16::from_be_bytes([*c, *d]);
            Ok(Message::Report { version: Version::Igmp3, records: group_records(records, n_records) })
        }
        other => Err(Malformed::Type(other)),
    }
}

/// Reads group records (RFC 3376 section 4.2.4).
fn group_records(mut bytes: &[u8], n_records: u16) -> Vec<Record> {
    let next = |_| {
        let [kind, aux_words, hi, lo, group @ ..] = *take::<8>(&mut bytes)?;
        let n_sources = u16::from_be_bytes([hi, lo]);
        skip(&mut bytes, 4 * (usize::from(n_sources) + usize::from(aux_words)))?;
        Some((IpAddr::from(group), Membership::of_record(kind, n_sources)))
    };
    let records = (0..n_records).map_while(next);
    records.filter_map(|(group, membership)| Some(Record { group, membership: membership? })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Membership::{Join, Leave};

    const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    fn parsed(hex: &str) -> Result<Message, Malformed> {
        let mut bytes: Vec<u8> =
            (0..hex.len() / 2).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()).collect();
        if let [_, _, 0, 0, _, ..] = *bytes {
            let sum = checksum(&bytes).to_be_bytes();
            bytes[2..4].copy_from_slice(&sum);
        }
        parse(ROUTER, &bytes)
    }

    fn report(version: Version, records: &[([u8; 4], Membership)]) -> Result<Message, Malformed> {
        let record = |&(group, membership)| Record { group: IpAddr::from(group), membership };
        Ok(Message::Report { version, records: records.iter().map(record).collect() })
    }

    #[test]
    fn versions_1_and_2() {
        let group = [225, 1, 2, 3];
        assert_eq!(parsed("12000000e1010203"), report(Version::Igmp1, &[(group, Join)]));
        assert_eq!(parsed("16000000e1010203"), report(Version::Igmp2, &[(group, Join)]));
        assert_eq!(parsed("17000000e1010203"), report(Version::Igmp2, &[(group, Leave)]));
        assert_eq!(parsed("1164000000000000"), Ok(Message::Query { source: ROUTER.into() }));
        assert_eq!(parsed("110000000000000002007d00"), Ok(Message::Query { source: ROUTER.into() }));
        // Further bytes are part of the checksum only.
        assert_eq!(parsed("16000000e1010203aabbcc"), report(Version::Igmp2, &[(group, Join)]));
    }

    #[test]
    fn version_3() {
        let (a, b, c) = ([225, 0, 0, 1], [225, 0, 0, 2], [225, 0, 0, 3]);
        // Types 4, 3 and 1, of which the last has a source and auxiliary data.
        let three = "04000000e1000001 03000000e1000002 01020001e100000301010101aaaaaaaabbbbbbbb".replace(' ', "");
        let all = report(Version::Igmp3, &[(a, Join), (b, Leave), (c, Join)]);
        assert_eq!(parsed(&format!("2200000000000003{three}")), all);
        assert_eq!(parsed(&format!("2200000000000009{three}")), all);
        assert_eq!(parsed(&format!("2200000000000002{three}")), report(Version::Igmp3, &[(a, Join), (b, Leave)]));
        // The last record is cut off.
        assert_eq!(
            parsed(&format!("2200000000000003{}", &three[..three.len() - 2])),
            report(Version::Igmp3, &[(a, Join), (b, Leave)])
        );
        for (kind, membership) in [(1, Some(Leave)), (2, Some(Join)), (3, Some(Leave)), (4, Some(Join))]
            .into_iter()
            .chain([(5, Some(Join)), (6, Some(Join)), (0, None), (7, None), (255, None)])
        {
            let want: Vec<_> = membership.map(|m| (a, m)).into_iter().collect();
            assert_eq!(parsed(&format!("2200000000000001{kind:02x}000000e1000001")), report(Version::Igmp3, &want));
        }
    }

    #[test]
    fn malformed_messages() {
        assert_eq!(parsed(""), Err(Malformed::Truncated));
        assert_eq!(parsed("1600fafae10102"), Err(Malformed::Truncated));
        assert_eq!(parsed("1600fafae1010203"), Err(Malformed::IgmpChecksum));
        assert_eq!(parsed("13000000e1010203"), Err(Malformed::Type(0x13)));
    }
}
