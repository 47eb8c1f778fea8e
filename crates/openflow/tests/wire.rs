//! Actions and matches from any bytes: no panic, and everything that is decoded round-trips.

use flow::Match;
use openflow::nxm::{self, Dialect, Unknown};
use openflow::wire::{Reader, Writer};
use openflow::{Version, actions_to_string, decode_actions, decode_instructions, encode_actions, encode_instructions};
use openflow::{of_match, parse_instructions};
use proptest::prelude::*;

const VERSIONS: [Version; 4] = [Version::V10, Version::V11, Version::V13, Version::V15];

/// One action of Nicira's or of OpenFlow's own with a valid length and otherwise random bytes.
fn action() -> impl Strategy<Value = Vec<u8>> {
    let nicira = (0u16..52, 0usize..5, prop::collection::vec(any::<u8>(), 40)).prop_map(|(subtype, n, bytes)| {
        let length = 16 + 8 * n;
        let mut action = vec![0xff, 0xff, 0, length as u8, 0, 0, 0x23, 0x20];
        action.extend(subtype.to_be_bytes());
        action.extend(&bytes[..length - 10]);
        action
    });
    let standard = (0u16..30, 0usize..3, prop::collection::vec(any::<u8>(), 40)).prop_map(|(ty, n, bytes)| {
        let length = 8 + 8 * n;
        let mut action = ty.to_be_bytes().to_vec();
        action.extend([0, length as u8]);
        action.extend(&bytes[..length - 4]);
        action
    });
    prop_oneof![nicira, standard]
}

/// Entries with headers of existing fields and random values.
fn entries() -> impl Strategy<Value = Vec<u8>> {
    let fields = flow::field::FIELDS;
    let entry = (0..fields.len(), any::<bool>(), any::<u128>(), any::<u128>()).prop_map(move |(i, masked, v, m)| {
        let info = &fields[i];
        let mut out = Writer::new();
        let mask = masked.then_some(m & info.full_mask());
        let value = v & info.full_mask() & mask.unwrap_or(u128::MAX);
        nxm::put_entry_as(&mut out, info.id, value, mask, Dialect::Nxm);
        out.to_vec()
    });
    prop::collection::vec(entry, 0..6).prop_map(|list| list.concat())
}

tally::proptest! {
    #[test]
    fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for version in VERSIONS {
            let _ = decode_actions(&bytes, version);
            let _ = decode_instructions(&bytes, version);
        }
        let _ = nxm::decode(&bytes, Unknown::Skip);
        let _ = nxm::decode_oxm_match(&mut Reader::new(&bytes), Unknown::Refuse);
        let _ = of_match::decode_of10(&mut Reader::new(&bytes));
        let _ = of_match::decode_of11(&mut Reader::new(&bytes));
    }

    #[test]
    fn actions_survive_in_their_own_version(list in prop::collection::vec(action(), 1..4)) {
        for version in VERSIONS {
            let Ok(actions) = decode_actions(&list.concat(), version) else { continue };
            // A tag in the match, so that the encoder pushes none before it sets the tag's fields.
            let mut tagged = Match::ANY;
            tagged.set_masked(flow::Field::VlanTci, 0x1000, 0x1000);
            let mut bytes = Writer::new();
            encode_actions(&mut bytes, &actions, version, &tagged);
            let again = decode_actions(&bytes, version);
            prop_assert!(again.is_ok(), "{actions:?} becomes {bytes:02x?}: {again:?}");
            let mut twice = Writer::new();
            encode_actions(&mut twice, &again.unwrap_or_default(), version, &tagged);
            prop_assert_eq!(&twice, &bytes, "{:?}", actions);
            // The enclosing instructions make no difference.
            if version > Version::V10 {
                let mut instructions = Writer::new();
                encode_instructions(&mut instructions, &actions, version, &tagged);
                let read = decode_instructions(&instructions, version);
                prop_assert_eq!(read, decode_actions(&bytes, version));
            }
        }
    }

    #[test]
    fn matches_survive(bytes in entries()) {
        let Ok((matching, cookie)) = nxm::decode(&bytes, Unknown::Refuse) else { return Ok(()) };
        let mut out = Writer::new();
        nxm::encode(&mut out, &matching, cookie, Dialect::Nxm);
        prop_assert_eq!(nxm::decode(&out, Unknown::Refuse), Ok((matching.clone(), cookie)), "{:02x?}", out);
    }

    #[test]
    fn fixed_matches_survive(bytes in prop::collection::vec(any::<u8>(), 88)) {
        let matching = of_match::decode_of10(&mut Reader::new(&bytes)).expect("40 bytes are there");
        let mut out = Writer::new();
        of_match::encode_of10(&mut out, &matching);
        prop_assert_eq!(of_match::decode_of10(&mut Reader::new(&out)), Ok(matching));
        let mut bytes = bytes;
        bytes[..4].copy_from_slice(&[0, 0, 0, 88]);
        if let Ok(matching) = of_match::decode_of11(&mut Reader::new(&bytes)) {
            let mut out = Writer::new();
            of_match::encode_of11(&mut out, &matching);
            prop_assert_eq!(of_match::decode_of11(&mut Reader::new(&out)), Ok(matching));
        }
    }

    #[test]
    fn any_text_is_read_without_panic(text in "[a-z0-9_:,()\\[\\].=>/-]{0,60}") {
        let _ = parse_instructions(&text, &flow::NoNames);
        let _ = openflow::parse_flow_line(&text, &flow::NoNames);
    }

    #[test]
    fn printed_actions_are_read_again(list in prop::collection::vec(action(), 1..3)) {
        let Ok(actions) = decode_actions(&list.concat(), Version::V10) else { return Ok(()) };
        let text = actions_to_string(&actions, &flow::NoNames, Version::V10);
        if let Ok(again) = parse_instructions(&text, &flow::NoNames) {
            prop_assert_eq!(actions_to_string(&again, &flow::NoNames, Version::V10), text);
        }
    }
}

#[test]
fn a_load_into_a_field_wider_than_a_value_fills_it_with_zeros() {
    let actions = parse_instructions("load:7->xxreg0", &flow::NoNames).expect("a field of 128 bits");
    let values = actions.iter().map(|action| match action {
        openflow::Action::RegLoad { value, .. } => *value,
        other => panic!("{other:?}"),
    });
    assert_eq!(values.collect::<Vec<u64>>(), [7, 0]);
    let actions = parse_instructions("load:7->tun_metadata47", &flow::NoNames).expect("a field of 992 bits");
    assert_eq!(actions_to_string(&actions, &flow::NoNames, Version::V13), "set_field:0x7->tun_metadata47");
}

#[test]
fn a_packet_type_invalidates_ethernet_fields_before_it() {
    use openflow::nxm::{Unknown, decode, decode_oxm_match};
    // eth_dst, then packet_type=(1,0x86dd).
    let entries = [&[0x80, 0, 6, 6][..], &[2; 6], &[0x80, 0, 0x58, 4, 0, 1, 0x86, 0xdd]].concat();
    assert_eq!(decode(&entries, Unknown::Refuse), Err(openflow::OfpError::BmcBadPrereq));
    let whole = [&[0, 1, 0, 22][..], &entries[..], &[0, 0]].concat();
    assert_eq!(decode_oxm_match(&mut Reader::new(&whole), Unknown::Refuse), Err(openflow::OfpError::BmcBadPrereq));
    // A cookie with a mask of zero is no cookie.
    let cookie = [&[0, 1, 0x3d, 0x10][..], &[0; 16]].concat();
    assert_eq!(decode(&cookie, Unknown::Refuse).map(|(_, cookie)| cookie), Ok(None));
}
