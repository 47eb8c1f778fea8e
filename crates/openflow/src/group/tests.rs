//! Groups round-trip through the bytes of every version that can carry them, and through text; malformed ones are refused.

use super::*;
use crate::message::{Message, decode, encode};
use crate::multipart::{StatsReply, StatsRequest};
use crate::{OfpError, Version, actions_to_string};
use flow::NoNames;
use proptest::prelude::*;

fn actions() -> impl Strategy<Value = Arc<[Action]>> {
    let action = prop_oneof![
        (1..0xff00u32).prop_map(|p| Action::Output { port: PortNo(p), max_len: 0 }),
        any::<u32>().prop_map(Action::Group),
        any::<u32>().prop_map(Action::SetQueue),
        Just(Action::DecTtl(None)),
    ];
    prop::collection::vec(action, 0..4).prop_map(Into::into)
}

fn kind() -> impl Strategy<Value = GroupKind> {
    (0..4u8).prop_map(|n| GroupKind::from_wire(n).expect("a kind"))
}

/// Buckets that fit a group of `kind`, numbered from 0.
fn buckets(kind: GroupKind) -> impl Strategy<Value = Vec<Bucket>> {
    let count = if kind == GroupKind::Indirect { 1..2 } else { 0..5usize };
    let watch_port = prop_oneof![Just(PortNo::ANY), (1..0xff00u32).prop_map(PortNo)];
    prop::collection::vec((any::<u16>(), watch_port, 0..9u32, actions()), count).prop_map(move |all| {
        let bucket = |(id, (weight, port, group, actions))| Bucket {
            weight: if kind == GroupKind::Select { weight } else { 0 },
            watch_port: if matches!(kind, GroupKind::All | GroupKind::Indirect) { PortNo::ANY } else { port },
            watch_group: if kind == GroupKind::FastFailover { group } else { GROUP_ANY },
            actions,
            bucket_id: id,
        };
        (0..).zip(all).map(bucket).collect()
    })
}

fn properties(kind: GroupKind) -> impl Strategy<Value = GroupProperties> {
    let fields = [(Field::EthSrc, 0xff_u128), (Field::Ipv4Src, 0xffff_ffff), (Field::TcpDst, 0xffff)];
    (any::<bool>(), any::<u64>(), prop::sample::subsequence(fields.to_vec(), 0..3)).prop_map(move |(set, n, fields)| {
        if !set || kind != GroupKind::Select {
            return GroupProperties::default();
        }
        GroupProperties { selection_method: "hash".into(), selection_method_param: n, fields, options: Vec::new() }
    })
}

fn group_mod() -> impl Strategy<Value = GroupMod> {
    let command = prop_oneof![Just(GroupCommand::Add), Just(GroupCommand::Modify), Just(GroupCommand::AddOrModify)];
    (command, kind(), any::<u32>())
        .prop_flat_map(|(command, kind, group_id)| {
            (Just(command), Just(kind), Just(group_id), buckets(kind), properties(kind))
        })
        .prop_map(|(command, kind, group_id, buckets, properties)| GroupMod {
            kind,
            buckets,
            properties,
            ..GroupMod::new(command, group_id)
        })
}

/// The part of `properties` that `version` can carry.
fn expressible(properties: GroupProperties, version: Version) -> GroupProperties {
    if version == Version::V10 || version == Version::V15 { properties } else { GroupProperties::default() }
}

tally::proptest! {
    #[test]
    fn changes_survive(gm in group_mod(), version in prop::sample::select(Version::ALL.to_vec())) {
        let message = Message::GroupMod(GroupMod { properties: expressible(gm.properties.clone(), version), ..gm });
        let bytes = encode(version, 5, &message);
        prop_assert_eq!(decode(&bytes), Ok((version, 5, message)));
    }

    #[test]
    fn descriptions_survive(all in prop::collection::vec(group_mod(), 0..4),
                            version in prop::sample::select(Version::ALL.to_vec())) {
        let describe = |g: GroupMod| GroupDesc {
            kind: g.kind,
            group_id: g.group_id,
            buckets: g.buckets,
            properties: expressible(g.properties, version),
        };
        let body = StatsReply::GroupDesc(all.into_iter().map(describe).collect());
        let message = Message::StatsReply { more: false, body };
        let bytes = encode(version, 5, &message);
        prop_assert_eq!(decode(&bytes), Ok((version, 5, message)));
    }

    #[test]
    fn counters_survive(n in any::<[u64; 4]>(), ids in any::<[u32; 3]>(), count in 0..9usize) {
        let stats = GroupStats {
            group_id: ids[0],
            ref_count: ids[1],
            packet_count: n[0],
            byte_count: n[1],
            duration_sec: ids[2],
            duration_nsec: 999,
            buckets: vec![BucketStats { packet_count: n[2], byte_count: n[3] }; count],
        };
        let message = Message::StatsReply { more: false, body: StatsReply::Group(vec![stats.clone(), stats]) };
        for version in [Version::V10, Version::V13, Version::V15] {
            let bytes = encode(version, 5, &message);
            prop_assert_eq!(decode(&bytes), Ok((version, 5, message.clone())));
        }
    }

    /// The text of a group mod parses to the same group mod.
    #[test]
    fn text_is_read_again(gm in group_mod()) {
        let gm = GroupMod { group_id: gm.group_id % GROUP_MAX, ..gm };
        let mut text = format!("group_id={},type={}", gm.group_id, gm.kind.name());
        if !gm.properties.selection_method.is_empty() {
            text += &format!(",selection_method=hash,selection_method_param={}", gm.properties.selection_method_param);
            let name = |(field, mask): &(Field, u128)| match field {
                Field::EthSrc => "eth_src=00:00:00:00:00:ff".to_owned(),
                _ => format!("{field}={}", if *mask == 0xffff { "0xffff" } else { "255.255.255.255" }),
            };
            let fields: Vec<String> = gm.properties.fields.iter().map(name).collect();
            text += &format!(",fields({})", fields.join(","));
        }
        for b in &gm.buckets {
            text += &format!(",bucket=weight={},", b.weight);
            if b.watch_port != PortNo::ANY {
                text += &format!("watch_port:{},", b.watch_port.0);
            }
            if b.watch_group != GROUP_ANY {
                text += &format!("watch_group:{},", b.watch_group);
            }
            text += &format!("actions={}", actions_to_string(&b.actions, &NoNames, Version::V13));
        }
        let parsed = parse_group(&text, gm.command, &NoNames).map(|g| g.group_mod);
        prop_assert_eq!(parsed, Ok(gm), "{}", text);
    }

    #[test]
    fn any_text_is_read_without_panic(text in "[a-z_=:,()0-9 .>\\[\\]-]{0,60}", known in any::<bool>()) {
        let text = if known { format!("group_id=1,type=select,bucket={text}") } else { text };
        let _ = parse_group_line(&text, &NoNames);
        let _ = parse_group(&text, GroupCommand::InsertBucket, &NoNames);
    }
}

#[test]
fn buckets_without_an_id_get_the_smallest_that_are_free() {
    let text = "group_id=1,type=all,bucket=bucket_id:1,1,bucket=2,bucket=3,bucket=bucket_id:0,4";
    let group = parse_group(text, GroupCommand::Add, &NoNames).expect("a group").group_mod;
    assert_eq!(group.buckets.iter().map(|b| b.bucket_id).collect::<Vec<_>>(), [1, 2, 3, 0]);
}

#[test]
fn commands_of_buckets_exist_in_openflow_10_and_15() {
    let text = "group_id=1,command_bucket_id=last,bucket=bucket_id:4,output:1";
    let gm = parse_group(text, GroupCommand::InsertBucket, &NoNames).expect("a group").group_mod;
    let message = Message::GroupMod(gm);
    for (version, ty) in [(Version::V10, 4), (Version::V15, 15)] {
        let bytes = encode(version, 1, &message);
        assert_eq!(bytes[1], ty, "{version}");
        assert_eq!(decode(&bytes), Ok((version, 1, message.clone())));
    }
    // Only OpenFlow 1.0 has Nicira's message, as in Open vSwitch.
    let mut nicira = encode(Version::V10, 1, &message);
    for version in [Version::V11, Version::V12, Version::V13, Version::V14] {
        assert!(encode(version, 1, &message).is_empty(), "{version}");
        nicira[0] = version.wire();
        assert_eq!(decode(&nicira).map(drop).map_err(|e| e.error), Err(OfpError::BrcBadSubtype), "{version}");
    }
}

#[test]
fn commands_of_buckets_without_a_bucket_keep_their_form() {
    // As OFPT_GROUP_MOD of OpenFlow 1.2 and 1.3, which has no place for the bucket id.
    for (wire_version, number, command) in [(3, 3, GroupCommand::InsertBucket), (4, 5, GroupCommand::RemoveBucket)] {
        let bytes = [wire_version, 15, 0, 16, 0, 0, 0, 0, 0, number, 1, 0, 0, 0, 0, 5];
        let (version, xid, message) = decode(&bytes).expect("decodes");
        assert!(matches!(&message, Message::GroupMod(gm) if gm.command == command), "{message:?}");
        assert_eq!(encode(version, xid, &message), bytes);
    }
}

#[test]
fn one_group_can_be_asked_for_where_the_version_can() {
    for (version, asked) in [(Version::V10, 7), (Version::V13, GROUP_ALL), (Version::V15, 7)] {
        let message = Message::StatsRequest { more: false, body: StatsRequest::GroupDesc(7) };
        let (_, _, got) = decode(&encode(version, 1, &message)).expect("a request");
        assert_eq!(got, Message::StatsRequest { more: false, body: StatsRequest::GroupDesc(asked) });
    }
}

#[test]
fn nicira_messages_have_the_form_of_openflow_15() {
    // ovs-ofctl add-group br0 'group_id=6,type=select,selection_method=hash,selection_method_param=7,
    // fields(ip_src,tcp_dst),bucket=output:3', with OpenFlow 1.0.
    let bytes = "0104007000000006000023200000001f000001000000000600180000ffffffff0018000800000000\
                 00000008000300000000000800010000ffff00360000154d00000001000000006861736800000000\
                 00000000000000000000000000000007 00000e04ffffffff00001402ffff0000"
        .replace([' ', '\n'], "");
    let bytes: Vec<u8> =
        (0..bytes.len() / 2).map(|i| u8::from_str_radix(&bytes[2 * i..2 * i + 2], 16).expect("hexadecimal")).collect();
    let (version, xid, message) = decode(&bytes).expect("a message");
    assert_eq!(encode(version, xid, &message), bytes);
    let Message::GroupMod(gm) = message else { panic!("{message:?}") };
    assert_eq!(gm.properties.fields, [(Field::Ipv4Src, 0xffff_ffff), (Field::TcpDst, 0xffff)]);

    // The other vendor id means the same; a third one does not.
    let at = bytes.windows(4).position(|w| w == 0x154d_u32.to_be_bytes()).expect("the vendor id");
    let with_vendor = |vendor: u32| {
        let mut bytes = bytes.clone();
        bytes[at..at + 4].copy_from_slice(&vendor.to_be_bytes());
        decode(&bytes)
    };
    let (_, _, message) = with_vendor(0x1540).expect("a message");
    assert_eq!(encode(version, xid, &message), bytes);
    assert_eq!(with_vendor(0x2320).map(drop).map_err(|e| e.error), Err(OfpError::BpcBadExpType));
}

#[test]
fn deleting_needs_no_group_id() {
    let parsed = |line: &str| parse_group_line(line, &NoNames).map(|g| g.group_mod.group_id).map_err(|e| e.to_string());
    assert_eq!(parsed("delete"), Ok(GROUP_ALL));
    assert_eq!(parsed("delete group_id=all"), Ok(GROUP_ALL));
    assert_eq!(parsed("delete group_id=1"), Ok(1));
    for (line, message) in [
        ("delete type=all", "type is not needed"),
        ("delete bucket=actions=1", "bucket is not needed"),
        ("remove_bucket", "must specify a group_id"),
        ("modify type=all", "must specify a group_id"),
    ] {
        assert_eq!(parsed(line), Err(message.into()), "{line}");
    }
}
