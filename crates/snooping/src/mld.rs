//! MLD versions 1 (RFC 2710) and 2 (RFC 3810), as messages of ICMPv6.

use crate::message::{Malformed, Membership, Message, Record, Version, skip, take};
use packet::checksum::pseudo_v6;
use std::net::{IpAddr, Ipv6Addr};

/// A query of any version (RFC 3810 section 5.1).
pub const QUERY: u8 = 130;
/// A report of version 1 (RFC 2710 section 3).
pub const V1_REPORT: u8 = 131;
/// A message of version 1 that a listener leaves ("done", RFC 2710 section 3).
pub const V1_DONE: u8 = 132;
/// A report of version 2 (RFC 3810 section 5.2).
pub const V2_REPORT: u8 = 143;

/// The IP protocol number of ICMPv6, for the pseudo-header.
const ICMPV6: u8 = 58;
/// Bytes of a message of version 1, and of a query at least.
const V1_LEN: usize = 24;

/// Parses an MLD message from `source` to `dst`. `message` begins with the ICMPv6 type, and ends where the IP packet ends.
///
/// Of a report with fewer address records than it announces, those that are there count.
pub fn parse(source: Ipv6Addr, dst: Ipv6Addr, message: &[u8]) -> Result<Message, Malformed> {
    let [kind, _, _, _, _, _, hi, lo, rest @ ..] = message else { return Err(Malformed::Truncated) };
    let least = match *kind {
        QUERY | V1_REPORT | V1_DONE => V1_LEN,
        V2_REPORT => 8,
        other => return Err(Malformed::Type(other)),
    };
    if message.len() < least {
        return Err(Malformed::Truncated);
    }
    let pseudo = pseudo_v6(&source.octets(), &dst.octets(), ICMPV6, message.len() as u32);
    if !pseudo.bytes(message).is_valid() {
        return Err(Malformed::MldChecksum);
    }
    if *kind == QUERY {
        return Ok(Message::Query { source: source.into() });
    }
    if *kind == V2_REPORT {
        let n_records = u16::from_be_bytes([*hi, *lo]);
        return Ok(Message::Report { version: Version::Mld2, records: address_records(rest, n_records) });
    }
    let group = *rest.first_chunk::<16>().ok_or(Malformed::Truncated)?;
    let membership = if *kind == V1_DONE { Membership::Leave } else { Membership::Join };
    Ok(Message::Report { version: Version::Mld1, records: vec![Record { group: group.into(), membership }] })
}

/// Reads multicast address records (RFC 3810 section 5.2.4).
fn address_records(mut bytes: &[u8], n_records: u16) -> Vec<Record> {
    let next = |_| {
        let [kind, aux_words, hi, lo] = *take::<4>(&mut bytes)?;
        let group = *take::<16>(&mut bytes)?;
        let n_sources = u16::from_be_bytes([hi, lo]);
        skip(&mut bytes, 16 * usize::from(n_sources) + 4 * usize::from(aux_words))?;
        Some((IpAddr::from(group), Membership::of_record(kind, n_sources)))
    };
    let records = (0..n_records).map_while(next);
    records.filter_map(|(group, membership)| Some(Record { group, membership: membership? })).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use Membership::{Join, Leave};

    const HOST: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
    const DST: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 0x16);
    const A: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 1);
    const B: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 2);

    fn parsed(mut bytes: Vec<u8>) -> Result<Message, Malformed> {
        if bytes.len() >= 4 {
            let sum = pseudo_v6(&HOST.octets(), &DST.octets(), ICMPV6, bytes.len() as u32).bytes(&bytes).finish();
            bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        parse(HOST, DST, &bytes)
    }

    fn v1(kind: u8, group: Ipv6Addr) -> Vec<u8> {
        [&[kind, 0, 0, 0, 0, 0, 0, 0], &group.octets()[..]].concat()
    }

    /// A report of records: type, words of auxiliary data, sources, address.
    fn v2(n: u8, records: &[(u8, u8, u8, Ipv6Addr)]) -> Vec<u8> {
        let mut out = vec![V2_REPORT, 0, 0, 0, 0, 0, 0, n];
        for &(kind, aux, sources, group) in records {
            out.extend([kind, aux, 0, sources]);
            out.extend(group.octets());
            out.resize(out.len() + usize::from(sources) * 16 + usize::from(aux) * 4, 7);
        }
        out
    }

    fn report(version: Version, records: &[(Ipv6Addr, Membership)]) -> Result<Message, Malformed> {
        let record = |&(group, membership): &(Ipv6Addr, Membership)| Record { group: group.into(), membership };
        Ok(Message::Report { version, records: records.iter().map(record).collect() })
    }

    #[test]
    fn version_1() {
        assert_eq!(parsed(v1(V1_REPORT, A)), report(Version::Mld1, &[(A, Join)]));
        assert_eq!(parsed(v1(V1_DONE, A)), report(Version::Mld1, &[(A, Leave)]));
        assert_eq!(parsed(v1(QUERY, Ipv6Addr::UNSPECIFIED)), Ok(Message::Query { source: HOST.into() }));
    }

    #[test]
    fn version_2() {
        let two = [(4, 3, 1, A), (3, 0, 0, B)];
        let both = report(Version::Mld2, &[(A, Join), (B, Leave)]);
        assert_eq!(parsed(v2(2, &two)), both);
        assert_eq!(parsed(v2(9, &two)), both);
        assert_eq!(parsed(v2(1, &two)), report(Version::Mld2, &[(A, Join)]));
        assert_eq!(parsed(v2(0, &two)), report(Version::Mld2, &[]));
        assert_eq!(parsed(v2(2, &[(9, 0, 0, A), (6, 0, 1, B)])), report(Version::Mld2, &[(B, Join)]));
        let mut cut = v2(2, &two);
        cut.pop();
        assert_eq!(parsed(cut), report(Version::Mld2, &[(A, Join)]));
    }

    #[test]
    fn malformed_messages() {
        assert_eq!(parsed(vec![]), Err(Malformed::Truncated));
        assert_eq!(parsed(v1(V1_REPORT, A)[..23].to_vec()), Err(Malformed::Truncated));
        assert_eq!(parsed(v1(QUERY, A)[..10].to_vec()), Err(Malformed::Truncated));
        assert_eq!(parsed(v1(128, A)), Err(Malformed::Type(128)));
        assert_eq!(parse(HOST, DST, &v1(V1_REPORT, A)), Err(Malformed::MldChecksum));
        assert_eq!(parse(HOST, DST, &v2(0, &[])), Err(Malformed::MldChecksum));
    }
}
