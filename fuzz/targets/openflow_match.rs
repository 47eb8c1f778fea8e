//! Any bytes as a match, in each of the formats on the wire: it is written the same after it was read again.
#![no_main]

use flow::{Field, Match};
use openflow::nxm::{self, Dialect, Unknown};
use openflow::of_match;
use openflow::wire::{Reader, Writer};
use openflow::{OfpError, Version};

fuzz::target!(|bytes: &[u8]| {
    let _ = nxm::decode(bytes, Unknown::Skip);
    let _ =
        nxm::decode_nx_match(&mut Reader::new(bytes), bytes.first().map_or(0, |n| usize::from(*n)), Unknown::Refuse);
    // NXM has no entry for packet types, and ports of a connection are only written with its protocol (as in Open vSwitch).
    let has = |m: &Match, field| m.mask().get(field) != 0;
    if let Ok((matching, cookie)) = nxm::decode(bytes, Unknown::Refuse)
        && !has(&matching, Field::PacketType)
        && (has(&matching, Field::CtNwProto) || !has(&matching, Field::CtTpSrc) && !has(&matching, Field::CtTpDst))
    {
        let mut out = Writer::new();
        nxm::encode(&mut out, &matching, cookie, Dialect::Nxm);
        assert_eq!(nxm::decode(&out, Unknown::Refuse), Ok((matching, cookie)), "{out:02x?}");
    }
    if let Ok(matching) = nxm::decode_oxm_match(&mut Reader::new(bytes), Unknown::Refuse) {
        written(
            &matching,
            |m| bytes_of(m, |out, m| nxm::encode_oxm_match(out, m, Version::V15)),
            |r| nxm::decode_oxm_match(r, Unknown::Refuse),
        );
    }
    if let Ok(matching) = of_match::decode_of10(&mut Reader::new(bytes)) {
        written(&matching, |m| bytes_of(m, of_match::encode_of10), of_match::decode_of10);
    }
    if let Ok(matching) = of_match::decode_of11(&mut Reader::new(bytes)) {
        written(&matching, |m| bytes_of(m, of_match::encode_of11), of_match::decode_of11);
    }
});

fn bytes_of(matching: &Match, encode: impl Fn(&mut Writer, &Match)) -> Vec<u8> {
    let mut out = Writer::new();
    encode(&mut out, matching);
    out.to_vec()
}

/// Bytes, not values, are compared: "no VLAN tag" and an ICMP type of 16 bits have one form only when written.
fn written(
    matching: &Match,
    encode: impl Fn(&Match) -> Vec<u8>,
    decode: impl Fn(&mut Reader<'_>) -> Result<Match, OfpError>,
) {
    let out = encode(matching);
    let again = match decode(&mut Reader::new(&out)) {
        Ok(again) => again,
        // The priority of a tag that is not there: NXM can ask for that, which no packet has, and OXM cannot.
        Err(OfpError::BmcBadPrereq)
            if matching.key().vlan_tci() & 0x1000 == 0 && matching.mask().vlan_tci() & 0xe000 != 0 =>
        {
            return;
        }
        Err(e) => panic!("our own match: {e}"),
    };
    assert_eq!(encode(&again), out, "{matching:?} {again:?}");
}
