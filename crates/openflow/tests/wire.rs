//! Actions and matches from any bytes: no panic, and everything that is decoded round-trips.

use flow::Match;
use openflow::nxm::{self, Dialect, Unknown};
use openflow::wire::{Reader, Writer};
use openflow::{
    Message, Version, actions_to_string, decode_actions, decode_instructions, encode_actions, encode_instructions,
};
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
    assert_eq!(values.collect::<Vec<u128>>(), [7]);
    for (text, v13, v15) in [
        (
            "load:0x100000000000000002->xxreg0[3..100]",
            "load:0x2->NXM_NX_XXREG0[3..66],load:0x10->NXM_NX_XXREG0[67..100]",
            "set_field:0x800000000000000010/0x1ffffffffffffffffffffffff8->xxreg0",
        ),
        (
            "load:2->xxreg4[3..100]",
            "set_field:0x10/0x1ffffffffffffffffffffffff8->xxreg4",
            "set_field:0x10/0x1ffffffffffffffffffffffff8->xxreg4",
        ),
        ("load:7->tun_metadata47", "set_field:0x7->tun_metadata47", "set_field:0x7->tun_metadata47"),
        ("load:5->xxreg5[]", "set_field:0x5->xxreg5", "set_field:0x5->xxreg5"),
    ] {
        let actions = parse_instructions(text, &flow::NoNames).expect(text);
        for (version, shown) in [(Version::V13, v13), (Version::V15, v15)] {
            let mut out = Writer::new();
            encode_actions(&mut out, &actions, version, &Match::ANY);
            let decoded = decode_actions(&out.into_bytes().expect("short"), version).expect(text);
            assert_eq!(actions_to_string(&decoded, &flow::NoNames, version), shown, "{text} in {version}");
        }
    }
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

/// The bytes of a match in Nicira's format.
fn nxm_bytes(matching: &Match) -> Vec<u8> {
    let mut out = openflow::wire::Writer::new();
    let length = nxm::encode_nx_match(&mut out, matching, None);
    out[..length].to_vec()
}

#[test]
fn tunnel_options_of_matches_keep_their_length() {
    // As a switch sends them that maps tun_metadata0 to four bytes.
    for (bytes, text) in [
        (&[0, 1, 0x50, 4, 0, 0, 0, 5][..], "tun_metadata0=0x5"),
        (&[0, 1, 0x51, 8, 0, 0, 1, 0xff, 0, 0, 0xf, 0xff], "tun_metadata0=0x1ff/0xfff"),
        (&[0, 1, 0x51, 8, 0, 0, 0, 0xef, 0, 0, 0, 0xff], "tun_metadata0=0xef"),
        (&[0, 1, 0x51, 8, 0, 0, 0, 0, 0, 0, 0, 0], "tun_metadata0"),
        (&[0, 1, 0x50, 4, 0, 0, 0, 0], "tun_metadata0=0"),
    ] {
        let (matching, _) = nxm::decode(bytes, Unknown::Refuse).expect(text);
        assert_eq!(flow::text::match_to_string(&matching, &flow::NoNames), text);
        assert_eq!(nxm_bytes(&matching), bytes, "{text}");
    }
    // Without a switch, an option is as long as its value.
    let parsed = flow::text::parse_match("tun_metadata0=5", &flow::NoNames).expect("a match");
    assert_eq!(nxm_bytes(&parsed), [0, 1, 0x50, 1, 5]);
}

#[test]
fn headers_of_tunnel_options_in_actions_have_the_mapped_length() {
    use openflow::message::{Options, encode_with};
    use openflow::wire::OptionLengths;
    let mut lengths = OptionLengths::default();
    lengths.set(0, 4);
    for (text, header) in [
        ("move:tun_metadata0[0..15]->reg0[0..15]", [0, 1, 0x50, 4]),
        ("push:tun_metadata0[0..3]", [0, 1, 0x50, 4]),
        ("pop:tun_metadata0[4..7]", [0, 1, 0x50, 4]),
        ("output:tun_metadata0[0..15]", [0, 1, 0x50, 4]),
        ("learn(table=1,tun_metadata0[0..15]=reg0[0..15])", [0, 1, 0x50, 4]),
        ("delete_field:tun_metadata0", [0, 1, 0x50, 4]),
        ("check_pkt_larger(100)->tun_metadata0[0]", [0, 1, 0x50, 4]),
        ("multipath(eth_src,0,modulo_n,1,0,tun_metadata0[0..3])", [0, 1, 0x50, 4]),
        ("sample(probability=1,obs_domain_id=tun_metadata0[0..15])", [0, 1, 0x50, 4]),
        // One that is not mapped, and a value, which is as long as it needs.
        ("push:tun_metadata1[0..3]", [0, 1, 0x52, 124]),
        ("set_field:5->tun_metadata0", [0, 1, 0x50, 1]),
    ] {
        for version in [Version::V10, Version::V13, Version::V15] {
            let flow = openflow::parse_flow(&format!("actions={text}"), openflow::FlowModCommand::Add, &flow::NoNames);
            let message = Message::FlowMod(openflow::Form::Standard, Box::new(flow.expect(text).flow_mod));
            let options = Options { option_lengths: lengths, ..Options::default() };
            let bytes = encode_with(version, 1, &message, options);
            assert!(bytes.windows(4).any(|w| w == header), "{text}: {bytes:02x?}");
        }
    }
}

#[test]
fn actions_go_back_in_the_form_in_which_they_came() {
    let bytes_of = |hex: &str| -> Vec<u8> {
        let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    };
    for (hex, versions, text) in [
        // NXAST_RESUBMIT, and NXAST_RESUBMIT_TABLE with the current table.
        ("ffff0010 00002320 0001 0001 00000000", &Version::ALL[..], "resubmit:1"),
        ("ffff0010 00002320 000e 0001 ff000000", &Version::ALL, "resubmit:1"),
        ("ffff0010 00002320 0001 fff8 00000000", &Version::ALL, "resubmit(,)"),
        // NXAST_LEARN2 without limit.
        (
            "ffff0028 00002320 002d 0000 0000 8000 0000000000000000 0000 01 00 0000 0000 00000000 0000 0000",
            &Version::ALL,
            "learn(table=1)",
        ),
        // The Open Networking Foundation's copy_field.
        (
            "ffff0020 4f4e4600 0c80 0000 0020 0000 0000 0000 00010004 00010204 00000000",
            &[Version::V13, Version::V14],
            "move:NXM_NX_REG0[]->NXM_NX_REG1[]",
        ),
    ] {
        for version in versions {
            let actions = decode_actions(&bytes_of(hex), *version).expect(text);
            assert_eq!(actions_to_string(&actions, &flow::NoNames, *version), text);
            let mut out = Writer::new();
            encode_actions(&mut out, &actions, *version, &Match::ANY);
            assert_eq!(out, bytes_of(hex), "{text}");
        }
    }
}

#[test]
fn upper_registers_have_numbers_of_an_experimenter() {
    let shown = |text: &str, dialect: Dialect| {
        let matching = flow::text::parse_match(text, &flow::NoNames).expect(text);
        let mut out = Writer::new();
        nxm::encode(&mut out, &matching, None, dialect);
        let (again, _) = nxm::decode(&out, Unknown::Refuse).expect(text);
        assert_eq!(again, matching, "{text}");
        nxm::entries_to_string(&out)
    };
    let (oxm13, oxm15) = (Dialect::Oxm(Version::V13), Dialect::Oxm(Version::V15));
    for dialect in [Dialect::Nxm, oxm13] {
        assert_eq!(shown("reg16=1", dialect), "NXOXM_ET_REG16(00000001)");
        assert_eq!(shown("reg31=1/3", dialect), "NXOXM_ET_REG31_W(00000001/00000003)");
        assert_eq!(shown("xreg15=1", dialect), "NXOXM_ET_REG30(00000000), NXOXM_ET_REG31(00000001)");
    }
    // OpenFlow 1.5 has packet registers of 64 bits.
    assert_eq!(shown("reg16=1", oxm15), "OXM_OF_PKT_REG8_W(0000000100000000/ffffffff00000000)");
    assert_eq!(shown("xxreg7=1", oxm15), "OXM_OF_PKT_REG14(0000000000000000), OXM_OF_PKT_REG15(0000000000000001)");

    for (text, versions, header) in [
        ("set_field:1->reg20", &[Version::V13, Version::V15][..], "ffff2a0800002320"),
        ("load:5->xxreg5[0..31]", &[Version::V10, Version::V13, Version::V15], "ffff452400002320"),
        ("move:reg16[]->reg1[]", &Version::ALL, "ffff220800002320"),
        ("output:reg19", &Version::ALL, "ffff280800002320"),
        ("push:reg18[]", &Version::ALL, "ffff260800002320"),
    ] {
        for version in versions {
            let actions = parse_instructions(text, &flow::NoNames).expect(text);
            let mut out = Writer::new();
            encode_actions(&mut out, &actions, *version, &Match::ANY);
            let hex: String = out.iter().map(|byte| format!("{byte:02x}")).collect();
            assert!(hex.contains(header), "{text}: {hex}");
            assert!(decode_actions(&out, *version).is_ok(), "{text}");
        }
    }
    // These actions have room for four bytes of header.
    for text in ["learn(reg20=5)", "multipath(eth_src,0,modulo_n,1,0,reg24[0..4])"] {
        let inner = text.split_once('(').and_then(|(_, t)| t.strip_suffix(')')).expect("an argument");
        let refused = parse_instructions(text, &flow::NoNames).map(drop).map_err(|e| e.0);
        assert!(
            refused.as_ref().is_err_and(|e| e.starts_with(inner) && e.contains("experimenter OXM field")),
            "{refused:?}"
        );
    }
}
