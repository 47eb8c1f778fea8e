//! Round trips of actions on outer headers, on connections, and of samples: through the bytes of every version that has the
//! action, and through text.

use base::PortNo;
use flow::text::parse_match;
use flow::{Field, Match, NoNames, TunOption};
use openflow::{
    Action, Ct, CtZone, Encap, EncapHeader, EncapProperty, Limits, Nat, NatAddresses, NatKind, ObservationId, OfpError,
    Sample, SampleDirection, SampleForm, Subfield, Version,
};
use openflow::{actions_to_string, check, decode_actions, encode_actions, parse_instructions};
use proptest::prelude::*;

fn headers() -> impl Strategy<Value = Action> {
    let property = prop_oneof![
        (1..3u8).prop_map(EncapProperty::MdType),
        // The text of a value leaves out zeros at its front, and has whole bytes only if its first digit is not zero.
        (any::<u16>(), any::<u8>(), 0x10..=0xffu8, prop::collection::vec(any::<u8>(), 0..240)).prop_map(
            |(class, ty, first, rest)| EncapProperty::Tlv { class, ty, value: [&[first][..], &rest].concat() }
        ),
    ];
    let header = prop::sample::select(vec![
        EncapHeader::Ethernet,
        EncapHeader::Nsh,
        EncapHeader::Mpls,
        EncapHeader::MplsMulticast,
    ]);
    prop_oneof![
        any::<bool>().prop_map(|multicast| Action::PushMpls(0x8847 + u16::from(multicast))),
        any::<u16>().prop_map(Action::PopMpls),
        Just(Action::PushPbb),
        Just(Action::PopPbb),
        any::<u8>().prop_map(Action::SetMplsTtl),
        Just(Action::DecMplsTtl),
        Just(Action::CopyTtlOut),
        Just(Action::CopyTtlIn),
        Just(Action::DecNshTtl),
        prop::option::of((0..2u32, 0..0xfffe_u32)).prop_map(|ty| Action::Decap(ty.map(|(ns, ty)| ns << 16 | ty))),
        (header, prop::collection::vec(property, 0..3))
            .prop_map(|(header, properties)| Action::Encap(Box::new(Encap { header, header_len: 0, properties }))),
    ]
}

fn nat() -> impl Strategy<Value = Nat> {
    let ports = prop::option::of((1..=u16::MAX, prop::option::of(any::<u16>())));
    let addresses = prop_oneof![
        Just(NatAddresses::None),
        (1..u32::MAX, prop::option::of(any::<u32>()))
            .prop_map(|(min, max)| { NatAddresses::Ipv4(min.into(), max.filter(|max| *max > min).map(Into::into)) }),
        (1..u128::MAX, prop::option::of(any::<u128>()))
            .prop_map(|(min, max)| { NatAddresses::Ipv6(min.into(), max.filter(|max| *max > min).map(Into::into)) }),
    ];
    let kind = prop::option::of(prop::sample::select(vec![NatKind::Src, NatKind::Dst]));
    (kind, any::<bool>(), 0..3u8, addresses, ports).prop_map(
        |(kind, persistent, choice, addresses, ports)| match kind {
            // The text of a `nat` without parameters or without addresses leaves these out.
            None => Nat::default(),
            Some(_) if addresses == NatAddresses::None => Nat { kind, ..Nat::default() },
            Some(_) => Nat {
                kind,
                persistent,
                hash: choice == 1,
                random: choice == 2,
                addresses,
                ports: ports.map(|(min, max)| (min, max.filter(|max| *max > min))),
            },
        },
    )
}

/// A `ct` with at most one `nat`, as the text does not keep its position among several actions.
fn ct() -> impl Strategy<Value = Action> {
    let exec = prop_oneof![
        any::<u32>().prop_map(|value| Action::RegLoad { dst: Subfield::whole(Field::CtMark), value: value.into() }),
        any::<u64>().prop_map(|value| {
            Action::RegLoad { dst: Subfield { field: Field::CtLabel, offset: 64, n_bits: 64 }, value: value.into() }
        }),
        Just(Action::RegMove { src: Subfield::whole(Field::Reg0), dst: Subfield::whole(Field::CtMark) }),
    ];
    let zone = prop_oneof![
        any::<u16>().prop_map(CtZone::Immediate),
        (0..=16u16).prop_map(|offset| CtZone::Field(Subfield { field: Field::Reg5, offset, n_bits: 16 })),
    ];
    let rest = (prop::option::of(nat()), prop::collection::vec(exec, 0..3));
    (any::<[bool; 2]>(), zone, prop::option::of(0..255u8), prop::sample::select(vec![0u16, 21, 69]), rest).prop_map(
        |([commit, force], zone, table, alg, (nat, exec))| {
            let nat = nat.map(|nat| Action::Nat(Box::new(nat)));
            let exec = if commit { nat.into_iter().chain(exec).collect() } else { Vec::new() };
            Action::Ct(Box::new(Ct { commit, force: commit && force, zone, table, alg, exec }))
        },
    )
}

fn other() -> impl Strategy<Value = Action> {
    let port = prop::option::of((1..100u32).prop_map(PortNo));
    let sample = (1..=u16::MAX, any::<[u32; 3]>(), port.clone(), 0..3u8).prop_map(|(probability, ids, port, way)| {
        let direction = [SampleDirection::Default, SampleDirection::Ingress, SampleDirection::Egress][usize::from(way)];
        let form = match (direction, port) {
            (SampleDirection::Default, None) => SampleForm::Plain,
            (SampleDirection::Default, Some(_)) => SampleForm::Port,
            _ => SampleForm::Direction,
        };
        let [collector_set_id, obs_domain_id, obs_point_id] = ids;
        // Some ids come from a register.
        let register = |n| Field::reg(n).filter(|_| obs_domain_id % 4 == 0).map(Subfield::whole);
        let domain = register(3).map_or(obs_domain_id.into(), ObservationId::Field);
        let form = if matches!(domain, ObservationId::Field(_)) { SampleForm::Fields } else { form };
        let (obs_domain_id, obs_point_id) = (domain, obs_point_id.into());
        let sampling_port = port.unwrap_or(PortNo::NONE);
        let sample =
            Sample { form, probability, collector_set_id, obs_domain_id, obs_point_id, sampling_port, direction };
        Action::Sample(Box::new(sample))
    });
    let option =
        (0..64u8, prop::collection::vec(any::<u8>(), 0..=124), any::<bool>()).prop_map(|(n, bytes, masked)| {
            let field = Field::from_name(&format!("tun_metadata{n}")).expect("there are 64 of them");
            let mask: Vec<u8> = bytes.iter().map(|byte| byte | 0x11).collect();
            let option = TunOption::new(field, &bytes, masked.then_some(&mask[..])).expect("it fits");
            Action::SetTunOption(Box::new(option))
        });
    prop_oneof![
        option.prop_filter("\"any value\" is no text", |action| {
            !matches!(action, Action::SetTunOption(option) if option.mask() == Some(&[]))
        }),
        sample,
        Just(Action::CtClear),
        Just(Action::DebugSlow),
        Just(Action::DebugRecirc),
        (port, 0..255u8).prop_map(|(in_port, table)| Action::ResubmitCt { in_port, table: Some(table) }),
        (0..64u8).prop_map(|n| {
            Action::DeleteField(Field::from_name(&format!("tun_metadata{n}")).expect("there are 64 of them"))
        }),
    ]
}

/// The versions that can decode the action.
fn versions(action: &Action) -> Vec<Version> {
    let first = match action {
        Action::CopyTtlOut | Action::CopyTtlIn => Version::V11,
        Action::DecNshTtl | Action::Encap(_) | Action::Decap(_) | Action::PushPbb | Action::PopPbb => Version::V13,
        _ => Version::V10,
    };
    Version::ALL.into_iter().filter(|version| *version >= first).collect()
}

fn survives(action: Action) -> Result<(), TestCaseError> {
    openflow::allow_debug_actions();
    for version in versions(&action) {
        // OpenFlow 1.5 encodes loads as set_field.
        if version == Version::V15 && matches!(&action, Action::Ct(ct) if !ct.exec.is_empty()) {
            continue;
        }
        let list = [action.clone()];
        let mut bytes = openflow::wire::Writer::new();
        encode_actions(&mut bytes, &list, version, &Match::ANY);
        prop_assert_eq!(decode_actions(&bytes, version), Ok(list.to_vec()), "{:?} {:02x?}", version, bytes);
        let text = actions_to_string(&list, &NoNames, version);
        // The text's parameters decide the form of a sample.
        let read = parse_instructions(&text, &NoNames).map(|read| actions_to_string(&read, &NoNames, version));
        prop_assert_eq!(read, Ok(text));
        // A list that ends early, after an action or within one, is refused.
        let cut = bytes.len() - 8;
        prop_assert!(decode_actions(&bytes[..cut], version).is_err() || cut == 0);
    }
    Ok(())
}

tally::proptest! {
    #[test]
    fn headers_survive(action in headers()) {
        survives(action)?;
    }

    #[test]
    fn connections_survive(action in ct()) {
        survives(action)?;
    }

    #[test]
    fn others_survive(action in other()) {
        survives(action)?;
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// Bytes from Open vSwitch, and their text.
const KNOWN: &[(&str, &str)] = &[
    ("ffff0018 00002320 00230000 00000000 0000ff00 00000000", "ct()"),
    ("ffff0018 00002320 00230003 00000000 00050300 00000000", "ct(commit,force,table=3,zone=5)"),
    ("ffff0018 00002320 00230000 00010004 00cfff00 00000000", "ct(zone=NXM_NX_REG0[3..18])"),
    ("ffff0018 00002320 00230001 00000000 0000ff00 00000045", "ct(commit,alg=tftp)"),
    (
        "ffff0048 00002320 00230001 00000000 0000ff00 00000000 ffff0018 00002320 000700c1 0001d604 00000000 00000001
         ffff0018 00002320 00060020 00000000 00010004 0001d604",
        "ct(commit,exec(load:0x1->NXM_NX_CT_MARK[3..4],move:NXM_NX_REG0[]->NXM_NX_CT_MARK[]))",
    ),
    ("ffff0028 00002320 00230000 00000000 0000ff00 00000000 ffff0010 00002320 00240000 00000000", "ct(nat)"),
    (
        "ffff0028 00002320 00230001 00000000 0000ff00 00000000 ffff0010 00002320 00240000 00010000",
        "ct(commit,nat(src))",
    ),
    (
        "ffff0030 00002320 00230001 00000000 0000ff00 00000000 ffff0018 00002320 00240000 00020001 0a000001 00000000",
        "ct(commit,nat(dst=10.0.0.1))",
    ),
    (
        "ffff0038 00002320 00230001 00000000 0000ff00 00000000 ffff0020 00002320 00240000 00150033 0a000001 0a000009
         00010064 00000000",
        "ct(commit,nat(src=10.0.0.1-10.0.0.9:1-100,persistent,random))",
    ),
    (
        "ffff0050 00002320 00230001 00000000 0000ff00 00000000 ffff0038 00002320 00240000 0001003c
         fc000000 00000000 00000000 00000001 fc000000 00000000 00000000 00000009 0005000a 00000000",
        "ct(commit,nat(src=[fc00::1]-[fc00::9]:5-10))",
    ),
    ("ffff0010 00002320 002b0000 00000000", "ct_clear"),
    ("ffff0010 00002320 002cfff8 03000000", "resubmit(,3,ct)"),
    (
        "ffff0018 00002320 001d3039 00000001 00000002 00000003",
        "sample(probability=12345,collector_set_id=1,obs_domain_id=2,obs_point_id=3)",
    ),
    (
        "ffff0020 00002320 00263039 00000001 00000002 00000003 00010000 00000000",
        "sample(probability=12345,collector_set_id=1,obs_domain_id=2,obs_point_id=3,sampling_port=1)",
    ),
    (
        "ffff0020 00002320 00293039 00000001 00000002 00000003 ffff0200 00000000",
        "sample(probability=12345,collector_set_id=1,obs_domain_id=2,obs_point_id=3,egress)",
    ),
    ("ffff0018 00002320 00320001 527c0000 00000000 00000000", "delete_field:tun_metadata1"),
];

#[test]
fn known_bytes_and_text() {
    for (hex, text) in KNOWN {
        for version in [Version::V10, Version::V12, Version::V14] {
            let actions = decode_actions(&bytes(hex), version).expect(text);
            assert_eq!(actions_to_string(&actions, &NoNames, version), *text);
            let read = parse_instructions(text, &NoNames).map(|read| actions_to_string(&read, &NoNames, version));
            assert_eq!(read, Ok((*text).to_owned()));
            let mut out = openflow::wire::Writer::new();
            encode_actions(&mut out, &actions, version, &Match::ANY);
            assert_eq!(out, bytes(hex), "{text}");
        }
    }
}

#[test]
fn bad_bytes() {
    use OfpError::{BacBadArgument, BacBadSetArgument, BacBadSetLen, BacBadSetType, BmcBadMask, NxbrcMustBeZero};
    let in_ct =
        |nat: &str| format!("ffff0030 00002320 00230001 00000000 0000ff00 00000000 ffff0018 00002320 0024 {nat}");
    for (hex, error) in [
        // Force without commit; fields of a wrong width or that do not exist; a list without commit.
        ("ffff0018 00002320 00230002 00000000 0000ff00 00000000".into(), BacBadArgument),
        ("ffff0018 00002320 00230000 00010004 001eff00 00000000".into(), BacBadSetLen),
        ("ffff0018 00002320 00230000 0001ff04 000fff00 00000000".into(), BacBadSetType),
        (
            "ffff0028 00002320 00230000 00000000 0000ff00 00000000 ffff0010 00002320 00240000 00010000".into(),
            BacBadArgument,
        ),
        // Actions that a ct does not allow, and one that is allowed only there.
        (
            "ffff0028 00002320 00230001 00000000 0000ff00 00000000 ffff0010 00002320 00110000 00000000".into(),
            BacBadArgument,
        ),
        (
            "ffff0028 00002320 00230001 00000000 0000ff00 00000000 00190010 00010004 00000001 00000000".into(),
            BacBadArgument,
        ),
        ("ffff0010 00002320 00240000 00000000".into(), BacBadSetArgument),
        // Conflicting flags, an unknown flag; a range without a beginning, reversed, of another family, and of zeros.
        (in_ct("0000 00030000 00000000 00000000"), BacBadArgument),
        (in_ct("0000 00190000 00000000 00000000"), BacBadArgument),
        (in_ct("0000 00210000 00000000 00000000"), BacBadArgument),
        (in_ct("0000 00010002 0a000001 00000000"), BacBadArgument),
        (in_ct("0000 00010003 0a000009 0a000001"), BacBadArgument),
        (in_ct("0000 00010005 0a000001 00000000"), BacBadArgument),
        (in_ct("0000 00010001 00000000 00000000"), BacBadArgument),
        (in_ct("0000 00010010 00050000 00000000"), BacBadArgument),
        (in_ct("0000 00010021 0a000001 00050000"), BacBadArgument),
        (in_ct("0000 00010031 0a000001 00050004"), BacBadArgument),
        (in_ct("0000 00010011 0a000001 00000000"), BacBadArgument),
        (in_ct("0000 00010004 0a000001 00000000"), BacBadArgument),
        ("ffff0010 00002320 002cfff8 03000001".into(), BacBadArgument),
        ("ffff0018 00002320 001d0000 00000001 00000002 00000003".into(), BacBadArgument),
        ("ffff0020 00002320 00293039 00000001 00000002 00000003 00010300 00000000".into(), BacBadArgument),
        ("ffff0020 00002320 00293039 00000001 00000002 00000003 00010100 00000001".into(), NxbrcMustBeZero),
        ("ffff0018 00002320 00320001 53f80000 00000000 00000000".into(), BmcBadMask),
    ] {
        assert_eq!(decode_actions(&bytes(&hex), Version::V13), Err(error), "{hex}");
    }
}

#[test]
fn bad_text() {
    for (text, message) in [
        ("ct(force)", "\"force\" flag requires \"commit\" flag."),
        ("ct(zone=65536)", "65536: unknown field `65536'"),
        ("ct(table=255)", "invalid table 0xff"),
        ("ct(table=foo)", "unknown table foo"),
        ("ct(commit,alg=http)", "invalid conntrack helper \"http\""),
        ("ct(foo=1)", "invalid argument to \"ct\" action: `foo'"),
        ("ct(commit,exec(set_field:1->reg0))", "ct action doesn't support nested modification of reg0"),
        ("ct(commit,exec(output:1))", "ct action doesn't support nested action output"),
        ("ct(commit,exec(goto_table:3))", "ct action doesn't support nested action goto_table"),
        ("ct(commit,nat(src=10.0.0.1,dst=10.0.0.2))", "May only specify one of \"src\" or \"dst\"."),
        ("ct(commit,nat(src=10.0.0.9-10.0.0.1))", "invalid nat range \"10.0.0.9-10.0.0.1\""),
        ("ct(commit,nat(src=10.0.0.1x))", "garbage (x) after nat range \"10.0.0.1x\" (pos: 8)"),
        ("ct(commit,nat(src=10.0.0.1,random,hash))", "Both \"hash\" and \"random\" are not allowed."),
        ("ct(commit,nat(random))", "Flags allowed only with \"src\" or \"dst\"."),
        ("ct(commit,nat(src,foo))", "invalid key \"foo\" in \"nat\" argument"),
        ("nat", "Cannot have NAT action outside of \"ct\" action"),
        ("clone(set_field:1->ct_mark)", "cannot set CT fields outside of ct action"),
        ("sample", "non-zero \"probability\" must be specified on sample"),
        ("sample(probability=0)", "invalid probability value \"0\""),
        ("sample(probability=1,foo)", "invalid key \"foo\" in \"sample\" argument"),
        ("delete_field:foo", "unknown field `foo'"),
        ("resubmit(,,ct)", "at least one \"in_port\" or \"table\" must be specified on resubmit"),
        ("resubmit(1,2,foo)", "foo: unknown parameter"),
    ] {
        assert_eq!(parse_instructions(text, &NoNames).map_err(|e| e.0), Err(message.into()), "{text}");
    }
}

#[test]
fn connections_are_of_ip() {
    const BAD: Result<(), OfpError> = Err(OfpError::BacMatchInconsistent);
    for (matching, actions, verdict) in [
        ("", "ct", BAD),
        ("arp", "ct", BAD),
        ("ip", "ct(commit,alg=ftp)", BAD),
        ("tcp", "ct(commit,alg=ftp)", Ok(())),
        ("udp6", "ct(commit,alg=tftp)", Ok(())),
        ("ip", "ct(zone=tcp_src[])", BAD),
        ("ipv6", "ct(commit,nat(src=10.0.0.1))", BAD),
        ("ipv6", "ct(commit,zone=reg0[0..15],nat(src=10.0.0.1))", Ok(())),
        ("ip", "ct(commit,nat(src=10.0.0.1))", Ok(())),
        ("ip", "ct(table=3),resubmit(,3,ct)", BAD),
        ("ct_state=+est", "resubmit(,3,ct)", Ok(())),
        ("ct_state=+trk-inv", "resubmit(,3,ct)", Ok(())),
        ("ct_state=+trk", "resubmit(,3,ct)", BAD),
        ("", "delete_field:reg0", Err(OfpError::BacBadArgument)),
        ("", "delete_field:tun_metadata0,ct_clear,sample(probability=1)", Ok(())),
    ] {
        let m = parse_match(matching, &NoNames).expect("a match");
        let list = parse_instructions(actions, &NoNames).expect("actions");
        for version in [Version::V10, Version::V13] {
            assert_eq!(check(&list, &m, &Limits::new(version, 3)), verdict, "{matching} {actions}");
        }
    }
}
