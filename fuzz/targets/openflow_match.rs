//! Any bytes as a match, in each of the formats on the wire: it reads the same when it was written again.
#![no_main]

use flow::Match;
use libfuzzer_sys::fuzz_target;
use openflow::Version;
use openflow::bytes::Reader;
use openflow::nxm::{self, Dialect, Unknown};
use openflow::of_match;

fuzz_target!(|bytes: &[u8]| {
    let _ = nxm::decode(bytes, Unknown::Skip);
    let _ = nxm::decode_nx_match(&mut Reader(bytes), bytes.first().map_or(0, |n| usize::from(*n)), Unknown::Refuse);
    if let Ok((matching, cookie)) = nxm::decode(bytes, Unknown::Refuse) {
        let mut out = Vec::new();
        nxm::encode(&mut out, &matching, cookie, Dialect::Nxm);
        assert_eq!(nxm::decode(&out, Unknown::Refuse), Ok((matching, cookie)), "{out:02x?}");
    }
    if let Ok(matching) = nxm::decode_oxm_match(&mut Reader(bytes), Unknown::Refuse) {
        // Bytes, not values: "no VLAN tag" is written in one way only.
        let encode = |matching| {
            let mut out = Vec::new();
            nxm::encode_oxm_match(&mut out, matching, Version::V15);
            out
        };
        let out = encode(&matching);
        let again = nxm::decode_oxm_match(&mut Reader(&out), Unknown::Refuse).expect("our own match");
        assert_eq!(encode(&again), out, "{matching:?} {again:?}");
    }
    if let Ok(matching) = of_match::decode_of10(&mut Reader(bytes)) {
        written(&matching, of_match::encode_of10, |r| of_match::decode_of10(r).ok());
    }
    if let Ok(matching) = of_match::decode_of11(&mut Reader(bytes)) {
        written(&matching, of_match::encode_of11, |r| of_match::decode_of11(r).ok());
    }
});

fn written(matching: &Match, encode: impl Fn(&mut Vec<u8>, &Match), decode: impl Fn(&mut Reader<'_>) -> Option<Match>) {
    let mut out = Vec::new();
    encode(&mut out, matching);
    assert_eq!(decode(&mut Reader(&out)).as_ref(), Some(matching), "{out:02x?}");
}
