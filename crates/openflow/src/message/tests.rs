//! Round trips of messages in each version, and malformed bytes.

use super::*;
use crate::action::{Action, PacketInReason};
use crate::bundle_features::{BundleFeatures, BundleFeaturesRequest, Time, TimeFeatures};
use crate::controller_status::{ControllerReason, ControllerStatus};
use crate::flow_mod::FlowModCommand;
use crate::flow_msg::{FlowRemovedReason, FlowStats, FlowStatsRequest};
use crate::group::{GroupCommand, GroupFeatures};
use crate::meter::{Band, BandKind, MeterCommand, MeterConfig, MeterFeatures, MeterStats};
use crate::multipart::{AggregateStats, Entry, Reassembly, ReplyWriter, SwitchDesc};
use crate::port::{PortDesc, PortReason, PortStats};
use crate::queue::{QueueConfig, QueueStats, QueueStatsRequest};
use crate::role::Role;
use crate::switch::FragHandling;
use crate::table::{TableFeatures, TableStats};
use crate::versions::Versions;
use base::MacAddr;
use flow::{Field, Match};
use proptest::prelude::*;

fn matching() -> impl Strategy<Value = Match> {
    (any::<Option<u16>>(), any::<Option<u64>>(), any::<Option<(u32, u8)>>(), any::<Option<u16>>()).prop_map(
        |(port, mac, net, tp)| {
            let mut m = Match::ANY;
            if let Some(p) = port {
                m.set(Field::InPortOxm, (p % 0xff00).into());
            }
            if let Some(mac) = mac {
                m.set(Field::EthSrc, (mac & 0xffff_ffff_ffff).into());
            }
            if let Some((addr, len)) = net {
                m.set(Field::EthType, 0x800);
                m.set_masked(Field::Ipv4Src, addr.into(), u128::from(u32::MAX << (len % 32)));
                if let Some(tp) = tp {
                    m.set(Field::IpProto, 6);
                    m.set(Field::TcpDst, tp.into());
                }
            }
            m
        },
    )
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    prop::collection::vec(
        prop_oneof![
            (1..0xff00u32).prop_map(|p| Action::Output { port: PortNo(p), max_len: 0 }),
            Just(Action::Output { port: PortNo::CONTROLLER, max_len: 128 }),
            any::<u32>().prop_map(Action::SetQueue),
            (1..0xff00u32, any::<u8>())
                .prop_map(|(p, t)| Action::Resubmit { in_port: Some(PortNo(p)), table: Some(t % 255) }),
            Just(Action::PopVlan),
        ],
        0..6,
    )
}

fn port_desc() -> impl Strategy<Value = PortDesc> {
    (1..0xff00u32, any::<[u8; 6]>(), "[a-z0-9]{1,15}", 0..128u32, 0..8u32, 0..128u32).prop_map(
        |(no, mac, name, config, state, modes)| PortDesc {
            port_no: PortNo(no),
            hw_addr: MacAddr(mac),
            name,
            config: config & 0x65,
            state: state & 1,
            curr: 0,
            advertised: modes,
            supported: 0,
            peer: modes,
            curr_speed: 0,
            max_speed: 0,
        },
    )
}

fn flow_stats() -> impl Strategy<Value = FlowStats> {
    (any::<(u8, u16, u64, u32, u16)>(), matching(), actions(), any::<(u64, u64)>()).prop_map(
        |((table, priority, cookie, sec, idle), matching, actions, (pkts, bytes))| FlowStats {
            priority,
            cookie,
            duration_sec: sec,
            duration_nsec: 5_000_000,
            idle_timeout: idle,
            packet_count: pkts,
            byte_count: bytes,
            actions,
            ..FlowStats::blank(table, matching)
        },
    )
}

fn flow_mod() -> impl Strategy<Value = FlowMod> {
    (matching(), actions(), any::<(u16, u16, u64)>(), any::<bool>()).prop_map(
        |(matching, actions, (priority, idle, cookie), send)| {
            let mut fm = FlowMod::new(FlowModCommand::Add);
            fm.matching = matching;
            // The match has no VLAN tag.
            fm.actions = actions.into_iter().filter(|action| *action != Action::PopVlan).collect();
            fm.priority = priority;
            fm.idle_timeout = idle;
            fm.new_cookie = cookie >> 1;
            fm.flags.send_flow_rem = send;
            fm
        },
    )
}

/// Messages of all versions.
fn common() -> impl Strategy<Value = Message> {
    prop_oneof![
        any::<Vec<u8>>().prop_map(Message::EchoRequest),
        any::<Vec<u8>>().prop_map(Message::EchoReply),
        Just(Message::FeaturesRequest),
        Just(Message::BarrierRequest),
        Just(Message::BarrierReply),
        Just(Message::GetConfigRequest),
        port_desc().prop_map(|desc| Message::PortStatus(PortStatus { reason: PortReason::Modify, desc })),
        (1..0xff00u32, any::<[u8; 6]>()).prop_map(|(p, mac)| Message::PortMod(PortMod {
            port_no: PortNo(p),
            hw_addr: MacAddr(mac),
            config: 1,
            mask: 0x61,
            advertise: 0
        })),
        (actions(), any::<Vec<u8>>(), 1..0xff00u32).prop_map(|(actions, data, p)| Message::PacketOut(PacketOut {
            buffer_id: None,
            in_port: PortNo(p),
            metadata: Match::ANY,
            actions,
            data
        })),
        any::<bool>().prop_map(Message::FlowModTableId),
        any::<u16>().prop_map(Message::SetControllerId),
        Just(Message::FlowAge),
        prop::collection::vec(port_desc(), 0..5)
            .prop_map(|ports| Message::StatsReply { more: false, body: StatsReply::PortDesc(ports) }),
        prop::collection::vec(flow_stats(), 0..9)
            .prop_map(|flows| Message::StatsReply { more: true, body: StatsReply::Flow(flows) }),
        prop::collection::vec(flow_stats(), 0..9)
            .prop_map(|flows| Message::StatsReply { more: false, body: StatsReply::NxFlow(flows) }),
        matching().prop_map(|matching| Message::StatsRequest {
            more: false,
            body: StatsRequest::Flow(FlowStatsRequest { matching, table_id: Some(3), ..FlowStatsRequest::default() })
        }),
        matching().prop_map(|matching| Message::StatsRequest {
            more: false,
            body: StatsRequest::NxAggregate(FlowStatsRequest {
                matching,
                cookie: 8,
                cookie_mask: 12,
                ..FlowStatsRequest::default()
            })
        }),
        any::<(u64, u64, u32)>().prop_map(|(packet_count, byte_count, flow_count)| Message::StatsReply {
            more: false,
            body: StatsReply::Aggregate(AggregateStats { packet_count, byte_count, flow_count })
        }),
        Just(Message::StatsRequest {
            more: false,
            body: StatsRequest::Queue(QueueStatsRequest { port_no: PortNo::ANY, queue_id: 7 })
        }),
        any::<[u64; 3]>().prop_map(|n| Message::StatsReply {
            more: false,
            body: StatsReply::Queue(vec![QueueStats {
                port_no: PortNo(4),
                queue_id: 1,
                tx_bytes: n[0],
                tx_packets: n[1],
                tx_errors: n[2],
                duration: None
            }])
        }),
        any::<u64>().prop_map(|n| Message::StatsReply {
            more: false,
            body: StatsReply::Port(vec![PortStats { rx_packets: n, ..PortStats::unknown(PortNo::LOCAL) }])
        }),
        Just(Message::QueueGetConfigReply(QueueGetConfigReply {
            port_no: PortNo(3),
            queues: vec![QueueConfig { port_no: PortNo(3), queue_id: 9, min_rate: Some(100), max_rate: None }]
        })),
        (flow_mod(), prop_oneof![Just(Form::Standard), Just(Form::Nicira)])
            .prop_map(|(fm, form)| Message::FlowMod(form, Box::new(fm))),
        (matching(), any::<(u64, u64)>()).prop_map(|(matching, (packet_count, byte_count))| Message::FlowRemoved(
            Form::Nicira,
            Box::new(FlowRemoved {
                matching,
                cookie: 5,
                priority: 6,
                reason: FlowRemovedReason::HardTimeout,
                table_id: Some(9),
                duration_sec: 8,
                duration_nsec: 9,
                idle_timeout: 10,
                hard_timeout: 0,
                packet_count,
                byte_count,
            })
        )),
        prop::collection::vec(any::<u8>(), 1..99).prop_map(|data| {
            let mut metadata = Match::ANY;
            metadata.set(Field::InPortOxm, 3);
            metadata.set(Field::TunId, 77);
            Message::PacketIn(
                PacketInFormat::Nxt2,
                Box::new(PacketIn {
                    reason: PacketInReason::Action,
                    buffer_id: None,
                    total_len: data.len() as u32 + 3,
                    table_id: 4,
                    cookie: 99,
                    metadata,
                    data,
                    userdata: vec![1, 2, 3],
                    continuation: vec![],
                }),
            )
        }),
        any::<u128>().prop_map(|bridge| {
            Message::Resume(Box::new(PacketIn {
                reason: PacketInReason::Action,
                buffer_id: None,
                total_len: 60,
                table_id: 0,
                cookie: u64::MAX,
                metadata: Match::ANY,
                data: vec![7; 60],
                userdata: vec![],
                continuation: crate::continuation::Continuation::mark(bridge, (4, 5)),
            }))
        }),
    ]
}

/// Messages of OpenFlow 1.3.
fn of13() -> impl Strategy<Value = Message> {
    let mut features = TableFeatures {
        table_id: 3,
        name: "x".into(),
        max_entries: 7,
        any_properties: true,
        ..TableFeatures::default()
    };
    features.nonmiss.instructions = 0x7e;
    features.nonmiss.next_tables = [0xf0, 0, 0, 1];
    features.matching.insert(Field::EthSrc);
    features.matching.insert(Field::TunMetadata3);
    features.wildcard.insert(Field::EthSrc);
    features.wildcard.insert(Field::TunMetadata3);
    features.maskable.insert(Field::TunMetadata3);
    features.miss.apply.set_fields.insert(Field::Ipv6Dst);
    let table = TableStats {
        table_id: 4,
        name: String::new(),
        wildcards: 0,
        max_entries: 0,
        active_count: 5,
        lookup_count: 6,
        matched_count: 7,
        abilities: None,
    };
    prop_oneof![
        Just(Message::Hello(Hello { versions: Versions(0x12) })),
        Just(Message::SetConfig(SwitchConfig {
            frag: FragHandling::NxMatch,
            invalid_ttl_to_controller: None,
            miss_send_len: 128
        })),
        Just(Message::RoleRequest(Form::Standard, RoleMsg { role: Role::Primary, generation_id: Some(5) })),
        any::<[u8; 24]>().prop_map(|masks| {
            let change =
                AsyncChange::decode13(crate::asynchronous::PACKET_IN13, &mut Reader::new(&masks)).expect("24 bytes");
            Message::SetAsync(AsyncForm::Standard, change)
        }),
        Just(Message::StatsReply { more: false, body: StatsReply::TableFeatures(vec![features.clone(), features]) }),
        Just(Message::StatsReply { more: false, body: StatsReply::Table(vec![table]) }),
        Just(Message::StatsReply {
            more: false,
            body: StatsReply::MeterFeatures(MeterFeatures {
                max_meters: 1,
                band_types: 2,
                capabilities: 3,
                max_bands: 4,
                max_color: 5,
                features: None,
            })
        }),
        Just(Message::StatsRequest { more: false, body: StatsRequest::ControllerStatus }),
        any::<Option<(u32, u64)>>().prop_map(|time| {
            let time = time.map(|(nanoseconds, seconds)| TimeFeatures {
                accuracy: Time { seconds: 0, nanoseconds },
                max_future: Time { seconds, nanoseconds: 0 },
                ..TimeFeatures::default()
            });
            let body = StatsRequest::BundleFeatures(BundleFeaturesRequest { flags: 3, time });
            Message::StatsRequest { more: false, body }
        }),
        Just(Message::StatsReply {
            more: false,
            body: StatsReply::BundleFeatures(BundleFeatures { capabilities: 3, time: Some(TimeFeatures::default()) })
        }),
        any::<Option<Vec<u8>>>().prop_map(|uri| {
            let uri = uri.map(|mut uri| {
                uri.truncate(300);
                uri
            });
            let (role, reason) = (Role::Secondary, ControllerReason::Channel);
            Message::ControllerStatus(Box::new(ControllerStatus { short_id: 7, role, reason, is_up: false, uri }))
        }),
        (0..3usize).prop_map(|n| {
            let (role, reason) = (Role::Equal, ControllerReason::Request);
            let status = ControllerStatus { short_id: 7, role, reason, is_up: true, uri: Some(b"tcp:x".to_vec()) };
            Message::StatsReply { more: false, body: StatsReply::ControllerStatus(vec![status; n]) }
        }),
        Just(Message::StatsReply {
            more: false,
            body: StatsReply::GroupFeatures(GroupFeatures {
                types: 15,
                capabilities: 7,
                max_groups: [1, 2, 3, 4],
                actions: [5, 6, 7, 8]
            })
        }),
        Just(Message::StatsReply {
            more: false,
            body: StatsReply::Desc(Box::new(SwitchDesc { manufacturer: "m".into(), ..SwitchDesc::default() }))
        }),
        meter(),
        Just(Message::GroupMod(GroupMod::new(GroupCommand::Delete, 5))),
        bundle(),
    ]
}

fn meter() -> impl Strategy<Value = Message> {
    let band = any::<(Option<u8>, u32, u32)>().prop_map(|(remark, rate, burst_size)| {
        let kind = remark.map_or(BandKind::Drop, |prec_level| BandKind::DscpRemark { prec_level });
        Band { kind, rate, burst_size }
    });
    let bands = proptest::collection::vec(band, 0..4);
    let config = (any::<u32>(), 0..2u16, any::<u16>(), bands).prop_map(|(meter_id, unit, other, bands)| {
        let flags = other & !3 | 1 << unit;
        MeterConfig { meter_id, flags, bands }
    });
    let counts = proptest::collection::vec(any::<(u64, u64)>(), 0..4);
    let stats = (any::<(u32, u32, u64, u64, u32, u32)>(), counts).prop_map(|(n, bands)| MeterStats {
        meter_id: n.0,
        flow_count: n.1,
        packet_in_count: n.2,
        byte_in_count: n.3,
        duration_sec: n.4,
        duration_nsec: n.5,
        bands,
    });
    let reply = |body| Message::StatsReply { more: false, body };
    prop_oneof![
        (any::<bool>(), config.clone()).prop_map(|(add, meter)| {
            let command = if add { MeterCommand::Add } else { MeterCommand::Modify };
            Message::MeterMod(MeterMod { command, meter })
        }),
        any::<u32>().prop_map(|id| Message::MeterMod(MeterMod::delete(id))),
        proptest::collection::vec(config, 0..3).prop_map(move |all| reply(StatsReply::MeterConfig(all))),
        proptest::collection::vec(stats, 0..3).prop_map(move |all| reply(StatsReply::Meter(all))),
    ]
}

fn bundle() -> impl Strategy<Value = Message> {
    prop_oneof![
        any::<(u32, u16, u16)>()
            .prop_map(|(bundle_id, ty, flags)| { Message::BundleControl(BundleControl { bundle_id, ty, flags }) }),
        any::<(u32, u16)>().prop_map(|(bundle_id, flags)| {
            let message = Message::GroupMod(GroupMod::new(GroupCommand::Delete, 5));
            Message::BundleAdd(Box::new(BundleAdd { bundle_id, flags, message }))
        }),
    ]
}

fn round_trip(version: Version, message: &Message) -> std::result::Result<(), TestCaseError> {
    let bytes = encode(version, 0x1234_5678, message);
    if !crate::multipart::has(version, message.kind()) {
        prop_assert!(bytes.is_empty());
        return Ok(());
    }
    let (v, xid, mut again) = decode(&bytes).map_err(|e| TestCaseError::fail(format!("{e} of {message:?}")))?;
    prop_assert_eq!((v, xid), (version, 0x1234_5678));
    // An addition without a table is decoded with table 0, and the old form always states a new cookie.
    if let (Message::FlowMod(_, got), Message::FlowMod(_, sent)) = (&mut again, message) {
        got.table_id = got.table_id.filter(|t| *t != 0);
        got.modify_cookie = sent.modify_cookie;
    }
    prop_assert_eq!(&again, message);
    Ok(())
}

tally::proptest! {
    #[test]
    fn openflow_10_round_trip(m in common()) {
        round_trip(Version::V10, &m)?;
    }

    #[test]
    fn openflow_13_round_trip(m in prop_oneof![common(), of13()]) {
        round_trip(Version::V13, &m)?;
    }

    #[test]
    fn openflow_14_and_15_round_trip(m in common()) {
        round_trip(Version::V14, &m)?;
        round_trip(Version::V15, &m)?;
    }

    #[test]
    fn bundles_round_trip(m in bundle()) {
        round_trip(Version::V14, &m)?;
        round_trip(Version::V15, &m)?;
    }

    /// Decoding into an existing flow mod gives the same result as decoding into a new one.
    #[test]
    fn flow_mods_are_read_in_place(fm in flow_mod(), before in flow_mod(), version in 0..6usize, in_bundle: bool,
                                   damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3)) {
        let version = Version::ALL[version];
        let mut bytes = encode_flow_mod(version, 7, Form::Standard, &fm, Options::default());
        prop_assert_eq!(&bytes, &encode(version, 7, &Message::FlowMod(Form::Standard, Box::new(fm))));
        if in_bundle && version >= Version::V14 {
            bytes = crate::bundle::wrap(version, 3, 1, &bytes);
        }
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let mut place = before;
        let head = decode_flow_mod_into(&bytes, Options::default(), &mut place);
        let expected = match decode(&bytes) {
            Ok((version, xid, Message::FlowMod(Form::Standard, fm))) => {
                Some((FlowModHead { version, xid, bundle: None }, fm))
            }
            Ok((version, xid, Message::BundleAdd(add))) => match *add {
                BundleAdd { bundle_id, flags, message: Message::FlowMod(Form::Standard, fm) } => {
                    Some((FlowModHead { version, xid, bundle: Some((bundle_id, flags)) }, fm))
                }
                _ => None,
            },
            _ => None,
        };
        prop_assert_eq!(head.map(|head| (head, Box::new(place))), expected);
    }

    /// Damaged messages are refused or decoded, and printed, without a panic.
    #[test]
    fn damage_does_no_harm(m in prop_oneof![common(), of13()], v13: bool,
                           damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
                           cut in any::<Option<prop::sample::Index>>()) {
        let mut bytes = encode(if v13 { Version::V13 } else { Version::V10 }, 1, &m);
        if bytes.is_empty() {
            // OpenFlow 1.0 does not have this message.
            return Ok(());
        }
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
            if let Some(place) = bytes.get(..4).map(|_| bytes.len() as u16) {
                bytes[2..4].copy_from_slice(&place.to_be_bytes());
            }
        }
        let _ = decode(&bytes);
        let text = crate::print::print(&bytes, crate::print::Style::plain(3));
        prop_assert!(text.ends_with('\n'));
    }

    #[test]
    fn answers_in_parts_come_together(flows in prop::collection::vec(flow_stats(), 0..4), copies in 0..1500usize) {
        let all: Vec<FlowStats> = flows.iter().cloned().cycle().take(if flows.is_empty() { 0 } else { copies }).collect();
        let mut writer = ReplyWriter::new(Version::V13, 9, MessageKind::FlowReply).expect("1.3 has it");
        let mut parts: Vec<Vec<u8>> = all.iter().filter_map(|f| writer.push(&Entry::Flow(f))).collect();
        parts.push(writer.finish());
        let mut whole = Reassembly::new(1 << 26);
        let mut got = None;
        for (i, part) in parts.iter().enumerate() {
            let (_, _, m) = decode(part).expect("own bytes");
            let Message::StatsReply { more, body } = m else { panic!("{m:?}") };
            prop_assert_eq!(more, i + 1 < parts.len());
            got = whole.push(body, more, part.len()).expect("below the bound");
        }
        prop_assert_eq!(got, Some(StatsReply::Flow(all)));
    }
}

fn error_of(bytes: &[u8]) -> OfpError {
    decode(bytes).expect_err("malformed").error
}

/// Bytes made by hand after OpenFlow 1.5.1, section 7.3.5.4: Open vSwitch does not have this message.
#[test]
fn counts_of_flows_of_openflow_15() {
    let bytes = [
        6, 19, 0, 80, 0, 0, 0, 7, 0, 17, 0, 0, 0, 0, 0, 0, // a multipart reply of type 17
        0, 64, 0, 0, 3, 0, 0, 10, // length, table 3, asked for, priority 10
        0, 1, 0, 12, 0x80, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 0, // in_port=2
        0, 0, 0, 40, // statistics
        0x80, 2, 0, 8, 0, 0, 0, 9, 0, 0, 0, 0, // for nine seconds
        0x80, 2, 8, 8, 0, 0, 0, 0, 0, 0, 0, 5, // five packets
        0x80, 2, 10, 8, 0, 0, 0, 0, 0, 0, 1, 0, // 256 bytes
    ];
    let (version, xid, message) = decode(&bytes).expect("well-formed");
    let Message::StatsReply { more: false, body } = &message else { panic!("{message:?}") };
    assert_eq!(body.encode(version, xid), [bytes.to_vec()]);
    let text = crate::print::print(&bytes, crate::print::Style::plain(0));
    assert_eq!(
        text,
        "OFPST_FLOW_STATS reply (OF1.5) (xid=0x7):\n duration=9s, table=3, n_packets=5, n_bytes=256, priority=10,in_port=2\n"
    );
}

#[test]
fn malformed_messages_get_their_errors() {
    assert_eq!(error_of(&[9, 5, 0, 8, 0, 0, 0, 1]), OfpError::BrcBadVersion);
    assert_eq!(error_of(&[4, 99, 0, 8, 0, 0, 0, 1]), OfpError::BrcBadType);
    assert_eq!(error_of(&[4, 5, 0, 9, 0, 0, 0, 1, 0]), OfpError::BrcBadLen);
    assert_eq!(error_of(&[4, 14, 0, 8, 0, 0, 0, 1]), OfpError::BrcBadLen);
    assert_eq!(error_of(&[4, 4, 0, 16, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]), OfpError::BrcBadVendor);
    assert_eq!(error_of(&[4, 4, 0, 16, 0, 0, 0, 1, 0, 0, 0x23, 0x20, 0, 0, 9, 9]), OfpError::BrcBadSubtype);
    assert_eq!(error_of(&[4, 18, 0, 16, 0, 0, 0, 1, 0, 99, 0, 0, 0, 0, 0, 0]), OfpError::BrcBadStat);
    assert_eq!(decode(&[9, 5, 0, 8, 0, 0, 0, 7]).expect_err("malformed").xid, 7);
}

#[test]
fn messages_that_bundles_refuse_get_errors() {
    let group = encode(Version::V13, 9, &Message::GroupMod(GroupMod::new(GroupCommand::Delete, 5)));
    let add = crate::bundle::wrap(Version::V13, 1, 3, &group);
    assert!(matches!(decode(&add), Ok((Version::V13, 9, Message::BundleAdd(add))) if add.bundle_id == 1));
    // Properties may follow the inner message.
    let mut longer = [&add[..], &[0; 8]].concat();
    types::set_length(&mut longer);
    assert_eq!(decode(&longer), decode(&add));
    let damaged = |f: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = add.clone();
        f(&mut bytes);
        types::set_length(&mut bytes);
        error_of(&bytes)
    };
    assert_eq!(damaged(&|b| b[31] = 8), OfpError::BfcMsgBadXid);
    assert_eq!(damaged(&|b| b.truncate(30)), OfpError::BfcMsgBadLen);
    assert_eq!(damaged(&|b| b[25] = 200), OfpError::BfcMsgUnsup);
    let barrier = encode(Version::V13, 9, &Message::BarrierRequest);
    assert_eq!(error_of(&crate::bundle::wrap(Version::V13, 1, 3, &barrier)), OfpError::BfcMsgUnsup);
    assert_eq!(error_of(&crate::bundle::wrap(Version::V13, 1, 3, &add)), OfpError::BfcMsgUnsup);
}

#[test]
fn hello_is_read_in_any_version() {
    let (_, _, m) = decode(&[9, 0, 0, 8, 0, 0, 0, 1]).expect("HELLO");
    assert_eq!(m, Message::Hello(Hello { versions: Versions::up_to(9) }));
    // Malformed elements do not prevent the negotiation.
    let (_, _, m) = decode(&[4, 0, 0, 12, 0, 0, 0, 1, 0, 1, 0, 0]).expect("HELLO");
    assert_eq!(m, Message::Hello(Hello { versions: Versions::up_to(4) }));
}

#[test]
fn table_id_extension_takes_the_upper_byte() {
    let mut fm = FlowMod::new(FlowModCommand::Delete);
    fm.table_id = Some(7);
    fm.out_port = PortNo(3);
    let m = Message::FlowMod(Form::Nicira, Box::new(fm));
    let on = Options { flow_mod_table_id: true, ..Options::default() };
    let bytes = encode_with(Version::V10, 1, &m, on);
    assert_eq!(decode_with(&bytes, on).expect("own bytes").2.kind(), MessageKind::NxFlowMod);
    // Without the extension the table is part of an unknown command.
    assert_eq!(error_of(&bytes), OfpError::FmfcBadCommand);
    // OpenFlow 1.0 without the extension does not state a table.
    let Ok((_, _, Message::FlowMod(_, fm))) = decode(&encode(Version::V10, 1, &m)) else { panic!("own bytes") };
    assert_eq!(fm.table_id, None);
}

#[test]
fn bound_of_reassembly() {
    let mut whole = Reassembly::new(10);
    assert_eq!(whole.push(StatsReply::Flow(vec![]), true, 8), Ok(None));
    assert_eq!(whole.push(StatsReply::Port(vec![]), true, 1), Err(OfpError::BrcBadStat));
    assert_eq!(whole.push(StatsReply::Flow(vec![]), true, 8), Err(OfpError::BrcMultipartBufferOverflow));
}

#[test]
fn actions_that_do_not_fit_the_match_are_refused_as_they_are_read() {
    let mut fm = FlowMod::new(FlowModCommand::Add);
    fm.actions = vec![Action::PopVlan];
    for form in [Form::Standard, Form::Nicira] {
        for version in Version::ALL {
            let message = Message::FlowMod(form, Box::new(fm.clone()));
            let read = decode(&encode(version, 1, &message)).map(|(_, _, message)| message).map_err(|e| e.error);
            // OpenFlow 1.0 accepts actions without effect.
            let expected = if version == Version::V10 { Ok(()) } else { Err(OfpError::BacMatchInconsistent) };
            assert_eq!(read.map(drop), expected, "{version:?}");
        }
    }
}

#[test]
fn a_message_that_does_not_fit_is_not_written() {
    let outputs = |n| vec![Action::Output { port: PortNo(1), max_len: 0 }; n];
    let flow = |n, form| {
        let fm = FlowMod { actions: outputs(n), ..FlowMod::new(FlowModCommand::Add) };
        encode(Version::V13, 1, &Message::FlowMod(form, Box::new(fm)))
    };
    // 16 bytes each, in an instruction whose length field has 16 bits.
    assert!(flow(4000, Form::Standard).len() > 64_000);
    assert!(decode(&flow(4000, Form::Standard)).is_ok());
    assert!(flow(4100, Form::Standard).is_empty(), "the instruction is too long");
    assert!(flow(4092, Form::Standard).is_empty(), "the instruction fits, but the message is too long");
    // A list that is too long is an error even in a message whose end may be truncated.
    let mut gm = GroupMod::new(GroupCommand::Add, 1);
    gm.buckets = vec![crate::Bucket { actions: outputs(4100).into(), ..crate::Bucket::new(gm.kind) }];
    assert!(encode(Version::V13, 1, &Message::GroupMod(gm.clone())).is_empty());
    // Nor is a message around it.
    let request = crate::request_forward::ForwardedRequest::Group(gm.clone());
    assert!(encode(Version::V14, 1, &Message::RequestForward(Box::new(RequestForward { xid: 1, request }))).is_empty());
    let add = BundleAdd { bundle_id: 1, flags: 0, message: Message::GroupMod(gm) };
    assert!(encode(Version::V14, 1, &Message::BundleAdd(Box::new(add))).is_empty());
    // Flow text has a length field of its own: dumps leave out flows that do not fit it.
    let note = FlowStats { actions: vec![Action::Note(vec![1; 70_000])], ..FlowStats::blank(0, Match::ANY) };
    let mut writer = ReplyWriter::new(Version::V13, 1, MessageKind::FlowReply).expect("a reply");
    assert!(writer.push(&Entry::Flow(&note)).is_none());
    assert!(writer.push(&Entry::Flow(&FlowStats::blank(0, Match::ANY))).is_none());
    assert_eq!((writer.written(), writer.left_out()), (1, 1));
    let Ok((_, _, Message::StatsReply { body: StatsReply::Flow(flows), .. })) = decode(&writer.finish()) else {
        panic!("a whole message");
    };
    assert_eq!(flows.len(), 1);
}

#[test]
fn features_have_the_ports_that_fit() {
    let port = PortDesc { name: "p".into(), ..PortDesc::default() };
    let features = Features { ports: vec![port; 1500], ..Features::default() };
    for (version, length, n) in [(Version::V10, 48, 1364), (Version::V12, 64, 1023), (Version::V13, 64, 0)] {
        let bytes = encode(version, 1, &Message::FeaturesReply(Box::new(features.clone())));
        assert_eq!(bytes.len(), 32 + n * length, "{version:?}");
        let Ok((_, _, Message::FeaturesReply(read))) = decode(&bytes) else { panic!("a whole message") };
        assert_eq!(read.ports.len(), n);
    }
}

#[test]
fn the_packet_of_a_packet_in_is_cut_to_what_fits() {
    let packet_in = PacketIn { data: vec![7; 70_000], total_len: 70_000, ..PacketIn::empty() };
    let bytes = encode(Version::V13, 1, &Message::PacketIn(PacketInFormat::Standard, Box::new(packet_in.clone())));
    assert_eq!(bytes.len(), 65_535);
    assert!(matches!(decode(&bytes), Ok((_, _, Message::PacketIn(..)))));
    // In a list of properties, the packet is cut so that the other properties fit.
    let bytes = encode(Version::V13, 1, &Message::PacketIn(PacketInFormat::Nxt2, Box::new(packet_in)));
    let Ok((_, _, Message::PacketIn(_, read))) = decode(&bytes) else { panic!("a whole message") };
    assert!(read.total_len == 70_000 && read.data.len() > 60_000);
}
