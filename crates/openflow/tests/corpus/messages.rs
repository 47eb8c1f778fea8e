//! Messages of every kind and version.

use crate::bodies::{
    flow_mod, flow_removed, flow_reply, flow_request, monitor10, monitor13, monitor14, nx_flow_mod, nx_flow_removed,
    nx_flow_request, nx_flow_stats, nx_packet_in, packet_in, packet_in2, packet_out, port_desc, port_mod, port_stats,
    queue_config, queue_desc, queue_request, queue_stats, stats_list, update,
};
use crate::groups::{
    ct_flush, group_desc, group_features, group_id, group_mod, group_stats, meter_config, meter_id, meter_mod,
    meter_stats, table_desc, table_features, table_mod, table_stats, tlv_maps,
};
use crate::make::{Gen, NICIRA, ONF, cat, message, property};
use crate::texts;
use Version::{V10, V11, V12, V13, V14, V15};
use flow::Match;
use openflow::Action;
use openflow::FlowModCommand;
use openflow::OfpError;
use openflow::Version;
use openflow::encode_actions;
use openflow::encode_flow_actions;
use openflow::nxm::encode_nx_match;
use openflow::nxm::encode_oxm_match;
use openflow::of_match::encode_of10;
use openflow::of_match::encode_of11;
use openflow::parse_flow;
use openflow::types::WireNumber;
use openflow::{Limits, check};

/// Matches and actions to use in messages.
pub(crate) struct Pool {
    flows: Vec<(Match, Vec<Action>)>,
}

impl Pool {
    pub(crate) fn new(g: &mut Gen) -> Self {
        let mut flows = Vec::new();
        while flows.len() < 3000 {
            let text = texts::flow(g);
            // The pool keeps to flows that a switch accepts, without the connection's whole state as a subfield.
            if text.contains("ct_state[]") || text.contains("CT_STATE[]") {
                continue;
            }
            let Ok(flow) = parse_flow(&text, FlowModCommand::Add, &flow::NoNames) else { continue };
            let (matching, actions) = (flow.flow_mod.matching, flow.flow_mod.actions);
            // A text may have a load that every switch refuses.
            if !matches!(check(&actions, &matching, &Limits::new(V10, 255)), Err(OfpError::BacBadSetArgument)) {
                flows.push((matching, actions));
            }
        }
        Self { flows }
    }

    pub(crate) fn any(&self, g: &mut Gen) -> (Match, Vec<Action>) {
        g.of(&self.flows)
    }
}

/// One kind of message: its versions, and a function that makes one.
pub(crate) struct MessageGenerator {
    pub(crate) name: &'static str,
    versions: &'static [Version],
    make: fn(&mut Gen, &Pool, Version) -> (WireNumber, Vec<u8>),
    /// The number of these messages for each message of weight 1.
    weight: usize,
}

const ALL: &[Version] = &[V10, V11, V12, V13, V14, V15];
const FROM11: &[Version] = &[V11, V12, V13, V14, V15];
const FROM12: &[Version] = &[V12, V13, V14, V15];
const FROM13: &[Version] = &[V13, V14, V15];
const FROM14: &[Version] = &[V14, V15];

const fn kind(
    name: &'static str,
    versions: &'static [Version],
    weight: usize,
    make: fn(&mut Gen, &Pool, Version) -> (WireNumber, Vec<u8>),
) -> MessageGenerator {
    MessageGenerator { name, versions, make, weight }
}

fn t(n: u8, body: Vec<u8>) -> (WireNumber, Vec<u8>) {
    (WireNumber::Type(n), body)
}

fn nx(n: u32, body: Vec<u8>) -> (WireNumber, Vec<u8>) {
    (WireNumber::Nicira(n), body)
}

pub(crate) const KINDS: &[MessageGenerator] = &[
    kind("hello", ALL, 1, |g, _, _| t(0, hello(g))),
    kind("error", ALL, 6, |g, p, v| t(1, error(g, p, v))),
    kind("echo", ALL, 1, |g, _, _| {
        let n = g.below(40) as usize;
        let ty = 2 + g.below(2) as u8;
        t(ty, g.some(n))
    }),
    kind("unknown", ALL, 1, unknown),
    kind("empty", ALL, 2, empty),
    kind("features reply", ALL, 2, |g, _, v| t(6, features(g, v))),
    kind("config", ALL, 1, |g, _, _| {
        let ty = 8 + g.below(2) as u8;
        let flags = g.choice(7) as u16;
        t(ty, cat(&[&flags.to_be_bytes(), &g.u16().to_be_bytes()]))
    }),
    kind("packet in", ALL, 3, |g, p, v| t(10, packet_in(g, p, v))),
    kind("flow removed", ALL, 3, |g, p, v| t(11, flow_removed(g, p, v))),
    kind("port status", ALL, 2, |g, _, v| {
        let reason = g.choice(2) as u8;
        t(12, cat(&[&[reason], &g.pad(7), &port_desc(g, v)]))
    }),
    kind("packet out", ALL, 3, |g, p, v| t(13, packet_out(g, p, v))),
    kind("flow mod", ALL, 10, |g, p, v| t(14, flow_mod(g, p, v))),
    kind("group mod", FROM11, 5, |g, p, v| t(15, group_mod(g, p, v, v == V15))),
    kind("port mod", ALL, 2, |g, _, v| t(if v == V10 { 15 } else { 16 }, port_mod(g, v))),
    kind("table mod", FROM11, 2, |g, _, v| t(17, table_mod(g, v))),
    kind("queue config request", &[V10, V11, V12, V13], 1, |g, _, v| {
        let pad = if v == V10 { 2 } else { 4 };
        t(if v == V10 { 20 } else { 22 }, cat(&[&g.port(v), &g.pad(pad)]))
    }),
    kind("queue config reply", &[V10, V11, V12, V13], 2, |g, _, v| {
        t(if v == V10 { 21 } else { 23 }, queue_config(g, v))
    }),
    kind("role", FROM12, 2, |g, _, _| {
        let ty = 24 + g.below(2) as u8;
        let (role, id) = (g.choice(3) as u32, g.u64());
        t(ty, cat(&[&role.to_be_bytes(), &[0; 4], &id.to_be_bytes()]))
    }),
    kind("async", FROM13, 3, |g, _, v| {
        let ty = 27 + g.below(2) as u8;
        t(ty, if v == V13 { async13(g) } else { async14(g) })
    }),
    kind("meter mod", FROM13, 3, |g, _, _| t(29, meter_mod(g))),
    kind("role status", FROM14, 1, |g, _, _| t(30, role_status(g))),
    kind("table status", FROM14, 2, |g, _, v| {
        let reason = g.of(&[3u8, 4, 3, 4, 0]);
        t(31, cat(&[&[reason], &g.pad(7), &table_desc(g, v)]))
    }),
    kind("request forward", FROM14, 2, |g, p, v| t(32, request_forward(g, p, v))),
    kind("bundle control", FROM14, 1, |g, _, _| t(33, bundle_control(g))),
    kind("bundle add", FROM14, 3, |g, p, v| t(34, bundle_add(g, p, v))),
    kind("ONF role status", &[V13], 1, |g, _, _| (WireNumber::Onf(1911), role_status(g))),
    kind("ONF bundle control", &[V13], 2, |g, _, _| (WireNumber::Onf(2300), bundle_control(g))),
    kind("ONF bundle add", &[V13], 4, |g, p, v| (WireNumber::Onf(2301), bundle_add(g, p, v))),
    kind("ONF request forward", &[V13], 2, |g, p, v| (WireNumber::Onf(2350), request_forward(g, p, v))),
    kind("ONF monitor", &[V13], 1, |g, _, _| {
        let n = g.below(3) as u32;
        (WireNumber::Onf(1870 + n), if n == 0 { g.u32().to_be_bytes().to_vec() } else { Vec::new() })
    }),
    kind("NX role", ALL, 1, |g, _, _| {
        let n = 10 + g.below(2) as u32;
        nx(n, (g.choice(2) as u32).to_be_bytes().to_vec())
    }),
    kind("NX flow format", &[V10], 2, |g, _, _| nx(12, g.choice(3).to_be_bytes()[4..].to_vec())),
    kind("NX flow mod", ALL, 4, |g, p, v| nx(13, nx_flow_mod(g, p, v))),
    kind("NX flow removed", ALL, 2, |g, p, _| nx(14, nx_flow_removed(g, p))),
    kind("NX table id", ALL, 1, |g, _, _| nx(15, cat(&[&[g.choice(1) as u8], &g.pad(7)]))),
    kind("NX packet in format", ALL, 1, |g, _, _| nx(16, (g.choice(3) as u32).to_be_bytes().to_vec())),
    kind("NX packet in", ALL, 2, |g, p, _| nx(17, nx_packet_in(g, p))),
    kind("NX async", ALL, 1, |g, _, _| nx(19, async13(g))),
    kind("NX controller id", ALL, 1, |g, _, _| nx(20, cat(&[&g.pad(6), &g.u16().to_be_bytes()]))),
    kind("NX monitor", &[V10, V11, V12], 1, |g, _, _| {
        let n = g.below(3) as u32;
        nx(21 + n, if n == 0 { g.u32().to_be_bytes().to_vec() } else { Vec::new() })
    }),
    kind("NX tlv mod", ALL, 2, |g, _, _| {
        let command = g.choice(2) as u16;
        nx(24, cat(&[&command.to_be_bytes(), &g.pad(6), &tlv_maps(g)]))
    }),
    kind("NX tlv reply", ALL, 2, |g, _, _| {
        nx(26, cat(&[&g.u32().to_be_bytes(), &g.u16().to_be_bytes(), &g.pad(10), &tlv_maps(g)]))
    }),
    kind("NX async 2", ALL, 1, |g, _, _| nx(27, async14(g))),
    kind("NX resume", ALL, 2, |g, p, v| nx(28, packet_in2(g, p, v))),
    kind("NX flush zone", ALL, 1, |g, _, _| nx(29, cat(&[&g.pad(6), &g.u16().to_be_bytes()]))),
    kind("NX packet in 2", ALL, 4, |g, p, v| nx(30, packet_in2(g, p, v))),
    kind("NX group mod", &[V10, V11, V12, V13, V14], 3, |g, p, v| nx(31, group_mod(g, p, v, true))),
    kind("NX flush", ALL, 3, |g, _, _| nx(32, ct_flush(g))),
    kind("NX request forward", &[V10, V11, V12], 1, |g, p, v| nx(132, request_forward(g, p, v))),
    kind("flow request", ALL, 2, flow_request),
    kind("flow reply", ALL, 8, |g, p, v| (WireNumber::Reply(1), flow_reply(g, p, v))),
    kind("desc reply", ALL, 1, |g, _, _| {
        (WireNumber::Reply(0), cat(&[&g.name(256), &g.name(256), &g.name(256), &g.name(32), &g.name(256)]))
    }),
    kind("aggregate reply", &[V10, V11, V12, V13, V14], 1, |g, _, _| {
        (
            WireNumber::Reply(2),
            cat(&[&g.u64().to_be_bytes(), &g.u64().to_be_bytes(), &g.u32().to_be_bytes(), &g.pad(4)]),
        )
    }),
    kind("aggregate reply of 1.5", &[V15], 2, |g, _, _| (WireNumber::Reply(2), stats_list(g))),
    kind("table reply", ALL, 3, |g, _, v| (WireNumber::Reply(3), table_stats(g, v))),
    kind("port request", ALL, 1, |g, _, v| {
        let n = if v == V10 { 6 } else { 4 };
        (WireNumber::Request(4), cat(&[&g.port(v), &g.pad(n)]))
    }),
    kind("port reply", ALL, 3, |g, _, v| (WireNumber::Reply(4), several(g, 3, |g| port_stats(g, v)))),
    kind("queue request", ALL, 1, |g, _, v| (WireNumber::Request(5), queue_request(g, v))),
    kind("queue reply", ALL, 3, |g, _, v| (WireNumber::Reply(5), several(g, 3, |g| queue_stats(g, v)))),
    kind("group request", FROM11, 1, |g, _, _| {
        let ty = g.of(&[6, 6, 6, 7]);
        (WireNumber::Request(ty), cat(&[&group_id(g), &g.pad(4)]))
    }),
    kind("group reply", FROM11, 3, |g, _, v| (WireNumber::Reply(6), several(g, 3, |g| group_stats(g, v >= V13)))),
    kind("group desc reply", FROM11, 4, |g, p, v| {
        (WireNumber::Reply(7), several(g, 3, |g| group_desc(g, p, v, v == V15)))
    }),
    kind("group features reply", FROM12, 1, |g, _, _| (WireNumber::Reply(8), group_features(g))),
    kind("meter request", FROM13, 1, |g, _, _| {
        let ty = 9 + g.below(2) as u16;
        (WireNumber::Request(ty), cat(&[&meter_id(g), &g.pad(4)]))
    }),
    kind("meter reply", FROM13, 2, |g, _, _| (WireNumber::Reply(9), several(g, 3, meter_stats))),
    kind("meter config reply", FROM13, 2, |g, _, _| (WireNumber::Reply(10), several(g, 3, meter_config))),
    kind("meter features reply", FROM13, 1, |g, _, _| {
        let (types, flags) = (g.flags(6) as u32, g.flags(15) as u32);
        let numbers = cat(&[&g.u32().to_be_bytes(), &types.to_be_bytes(), &flags.to_be_bytes()]);
        (WireNumber::Reply(11), cat(&[&numbers, &[g.u8(), g.u8()], &g.pad(2)]))
    }),
    kind("table features", FROM13, 6, |g, _, v| {
        let number = if g.once_in(3) { WireNumber::Request(12) } else { WireNumber::Reply(12) };
        (number, several(g, 2, |g| table_features(g, v)))
    }),
    kind("port desc request", &[V15], 1, |g, _, v| (WireNumber::Request(13), cat(&[&g.port(v), &g.pad(4)]))),
    kind("port desc reply", ALL, 4, |g, _, v| (WireNumber::Reply(13), several(g, 3, |g| port_desc(g, v)))),
    kind("table desc reply", FROM14, 3, |g, _, v| (WireNumber::Reply(14), several(g, 2, |g| table_desc(g, v)))),
    kind("queue desc request", FROM14, 1, |g, _, v| (WireNumber::Request(15), queue_request(g, v))),
    kind("queue desc reply", FROM14, 2, |g, _, _| (WireNumber::Reply(15), several(g, 3, queue_desc))),
    kind("flow monitor request", FROM14, 2, |g, p, v| (WireNumber::Request(16), several(g, 2, |g| monitor14(g, p, v)))),
    kind("flow monitor reply", FROM14, 3, |g, p, v| (WireNumber::Reply(16), several(g, 3, |g| update(g, p, v)))),
    kind("ONF flow monitor request", &[V13], 2, |g, p, _| {
        (WireNumber::OnfRequest(1870), several(g, 2, |g| monitor13(g, p)))
    }),
    kind("ONF flow monitor reply", &[V13], 3, |g, p, v| {
        (WireNumber::OnfReply(1870), several(g, 3, |g| update(g, p, v)))
    }),
    kind("NX flow monitor request", &[V10, V11, V12], 1, |g, p, _| {
        (WireNumber::NiciraRequest(2), several(g, 2, |g| monitor10(g, p)))
    }),
    kind("NX flow monitor reply", &[V10, V11, V12], 2, |g, p, v| {
        (WireNumber::NiciraReply(2), several(g, 3, |g| update(g, p, v)))
    }),
    kind("NX flow request", &[V10], 4, |g, p, _| {
        let n = g.below(2) as u32;
        (WireNumber::NiciraRequest(n), nx_flow_request(g, p))
    }),
    kind("NX flow reply", &[V10], 10, |g, p, _| (WireNumber::NiciraReply(0), several(g, 3, |g| nx_flow_stats(g, p)))),
    kind("NX aggregate reply", &[V10], 1, |g, _, _| {
        (
            WireNumber::NiciraReply(1),
            cat(&[&g.u64().to_be_bytes(), &g.u64().to_be_bytes(), &g.u32().to_be_bytes(), &g.pad(4)]),
        )
    }),
    kind("NX group request", &[V10], 2, |g, _, _| {
        let n = 7 + g.below(2) as u32;
        (WireNumber::NiciraRequest(n), cat(&[&group_id(g), &g.pad(4)]))
    }),
    kind("NX group reply", &[V10], 3, |g, _, _| (WireNumber::NiciraReply(7), several(g, 3, |g| group_stats(g, true)))),
    kind("NX group desc reply", &[V10], 5, |g, p, v| {
        (WireNumber::NiciraReply(8), several(g, 3, |g| group_desc(g, p, v, true)))
    }),
    kind("NX group features", &[V10, V11], 1, |g, _, _| {
        if g.once_in(3) {
            (WireNumber::NiciraRequest(9), Vec::new())
        } else {
            (WireNumber::NiciraReply(9), group_features(g))
        }
    }),
    kind("NX ipfix", ALL, 2, |g, _, v| {
        let n = 3 + g.below(2) as u32;
        if g.once_in(3) {
            return (WireNumber::NiciraRequest(n), Vec::new());
        }
        let one = |g: &mut Gen| {
            let numbers: Vec<u8> = (0..10).flat_map(|_| g.u64().to_be_bytes()).collect();
            cat(&[&numbers, &g.u32().to_be_bytes(), &g.pad(4)])
        };
        let _ = v;
        (WireNumber::NiciraReply(n), if n == 3 { one(g) } else { several(g, 3, one) })
    }),
];

/// Messages of each kind in each of its versions, round robin, `n` in all, with consecutive transaction ids.
pub(crate) fn corpus(g: &mut Gen, pool: &Pool, n: usize) -> Vec<(&'static str, Version, Vec<u8>)> {
    let mut all = Vec::new();
    while all.len() < n {
        for kind in KINDS {
            for version in kind.versions {
                for _ in 0..kind.weight {
                    let (number, body) = (kind.make)(g, pool, *version);
                    let more = g.once_in(10);
                    let xid = all.len() as u32 + 1;
                    let mut made = message(*version, xid, number, more, &body);
                    if kind.name.ends_with("bundle add") && !g.once_in(12) {
                        // The inner message has the transaction id of the outer one.
                        let inner = made.len() - body.len() + 8;
                        made[inner + 4..inner + 8].copy_from_slice(&xid.to_be_bytes());
                    }
                    all.push((kind.name, *version, made));
                }
            }
        }
    }
    all.truncate(n);
    all
}

/// Damages a message: cuts or extends it, changes its type, or changes some bytes.
pub(crate) fn damage(g: &mut Gen, message: &[u8]) -> Vec<u8> {
    let mut bytes = message.to_vec();
    match g.below(8) {
        0 | 1 => bytes.truncate(8 + g.below(bytes.len() as u64 - 7) as usize),
        // Bytes after a statistics message would be another entry.
        2 if !(16..=19).contains(&bytes[1]) => {
            let n = g.of(&[1, 4, 8, 16]);
            let zeros = g.once_in(2);
            let more = if zeros { vec![0; n] } else { g.some(n) };
            bytes.extend(more);
        }
        3 => bytes[1] = g.below(38) as u8,
        4 => bytes[0] = 1 + g.below(6) as u8,
        _ => {
            for _ in 0..=g.below(2) {
                if bytes.len() > 8 {
                    let at = 8 + g.below(bytes.len() as u64 - 8) as usize;
                    bytes[at] = match g.below(4) {
                        0 => bytes[at] ^ 1 << g.below(8),
                        1 => bytes[at].wrapping_add(1),
                        2 => g.below(16) as u8,
                        _ => g.u8(),
                    };
                }
            }
        }
    }
    crate::make::set_length(&mut bytes);
    bytes
}

/// Damages a structure in a message: changes a length; duplicates, removes or moves a piece, or takes it from another
/// message; or sets bits that were zero.
pub(crate) fn tear(g: &mut Gen, message: &[u8], other: &[u8]) -> Vec<u8> {
    let mut bytes = message.to_vec();
    for _ in 0..=g.below(2) / 2 {
        let len = bytes.len();
        if len < 16 {
            break;
        }
        // Most structures with a length are aligned to 4 or 8 bytes.
        let at = 8 + (g.below(len as u64 - 8) as usize & !g.of(&[1, 3, 7, 7]));
        let n = g.of(&[4, 8, 8, 8, 16, 16, 24, 32, 40]).min(len - at);
        match g.below(9) {
            0..=2 if at + 2 <= len => {
                let now = u16::from_be_bytes([bytes[at], bytes[at + 1]]);
                let left = (len - at) as u16;
                let new = match g.below(5) {
                    0 => g.of(&[0, 1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 32, 40]),
                    1 => g.of(&[left, left.wrapping_add(8), left.wrapping_sub(8), left.wrapping_add(1)]),
                    2 => now.wrapping_add(g.of(&[1, 2, 4, 8, 16])),
                    3 => now.wrapping_sub(g.of(&[1, 2, 4, 8, 16])),
                    _ => g.of(&[0xff, 0x100, 0x7fff, 0x8000, 0xfff8, 0xfffe, 0xffff]),
                };
                bytes[at..at + 2].copy_from_slice(&new.to_be_bytes());
            }
            3 => {
                let piece = bytes[at..at + n].to_vec();
                bytes.splice(at..at, piece);
            }
            4 => drop(bytes.drain(at..at + n)),
            5 => {
                let from = 8 + (g.below(len as u64 - 8) as usize & !7);
                let piece: Vec<u8> = bytes.drain(at..at + n).collect();
                let from = from.min(bytes.len());
                bytes.splice(from..from, piece);
            }
            6 if other.len() >= 16 => {
                let from = 8 + (g.below(other.len() as u64 - 8) as usize & !7);
                let piece = other[from..other.len().min(from + n)].to_vec();
                bytes.splice(at..at, piece);
            }
            7 => {
                // Padding consists of zeros.
                let zeros: Vec<usize> = (8..len).filter(|i| bytes[*i] == 0).collect();
                if !zeros.is_empty() {
                    bytes[g.of(&zeros)] = g.of(&[1, 0x80, 0xff]);
                }
            }
            _ => bytes[at] ^= 1 << g.below(8),
        }
    }
    crate::make::set_length(&mut bytes);
    bytes
}

pub(crate) fn several(g: &mut Gen, most: u64, mut one: impl FnMut(&mut Gen) -> Vec<u8>) -> Vec<u8> {
    (0..g.below(most + 1)).flat_map(|_| one(g)).collect()
}

// Matches and actions.

/// A match in the form of `version`.
pub(crate) fn of_match(matching: &Match, version: Version) -> Vec<u8> {
    let mut out = openflow::wire::Writer::new();
    match version {
        V10 => encode_of10(&mut out, matching),
        V11 => encode_of11(&mut out, matching),
        _ => encode_oxm_match(&mut out, matching, version),
    }
    out.to_vec()
}

/// A match in Nicira's form, and its length.
pub(crate) fn nx_match(matching: &Match) -> (Vec<u8>, u16) {
    let mut out = openflow::wire::Writer::new();
    let length = encode_nx_match(&mut out, matching, None);
    (out.to_vec(), length as u16)
}

/// An OpenFlow 1.0 match with random bits.
fn raw10(g: &mut Gen) -> Vec<u8> {
    let wildcards = g.flags(0x3f_ffff) as u32;
    let (port, vlan) = (g.port(V10), g.of(&[0xffff, 5, 0, 0xfff, 0x1fff]) as u16);
    let (ty, proto) = (g.of(&[0x800u16, 0x806, 0x86dd, 0x8847, 0x5ff, 0]), g.of(&[6u8, 17, 1, 58, 132, 0, 2]));
    let head = cat(&[
        &wildcards.to_be_bytes(),
        &port,
        &g.mac(),
        &g.mac(),
        &vlan.to_be_bytes(),
        &[g.choice(7) as u8],
        &g.pad(1),
    ]);
    let net = cat(&[&ty.to_be_bytes(), &[g.u8(), proto], &g.pad(2), &g.u32().to_be_bytes(), &g.u32().to_be_bytes()]);
    cat(&[&head, &net, &g.u16().to_be_bytes(), &g.u16().to_be_bytes()])
}

fn raw11(g: &mut Gen) -> Vec<u8> {
    let wildcards = g.flags(0x3ff) as u32;
    let vlan = g.of(&[0xffff, 0xfffe, 5, 0, 0xfff, 0x1000]) as u16;
    let (ty, proto) = (g.of(&[0x800u16, 0x806, 0x86dd, 0x8847, 0x8848, 0x5ff]), g.of(&[6u8, 17, 1, 58, 132, 0]));
    let mask = |g: &mut Gen, n: usize| match g.below(3) {
        0 => vec![0; n],
        1 => vec![0xff; n],
        _ => g.some(n),
    };
    let macs = cat(&[&g.mac(), &mask(g, 6), &g.mac(), &mask(g, 6)]);
    let head = cat(&[
        &[0, 0, 0, 88],
        &g.port(V11),
        &wildcards.to_be_bytes(),
        &macs,
        &vlan.to_be_bytes(),
        &[g.choice(7) as u8],
        &g.pad(1),
    ]);
    let nets = cat(&[&g.u32().to_be_bytes(), &mask(g, 4), &g.u32().to_be_bytes(), &mask(g, 4)]);
    let net =
        cat(&[&ty.to_be_bytes(), &[g.choice(63) as u8, proto], &nets, &g.u16().to_be_bytes(), &g.u16().to_be_bytes()]);
    let label = g.choice(0xf_ffff) as u32;
    cat(&[&head, &net, &label.to_be_bytes(), &[g.choice(7) as u8], &g.pad(3), &g.u64().to_be_bytes(), &mask(g, 8)])
}

/// A match, encoded by us or with random bits, and actions that fit the encoded one.
pub(crate) fn flow(g: &mut Gen, pool: &Pool, version: Version) -> (Vec<u8>, Match, Vec<Action>) {
    let (matching, actions) = pool.any(g);
    let bytes = match version {
        V10 if g.once_in(3) => raw10(g),
        V11 if g.once_in(3) => raw11(g),
        _ => of_match(&matching, version),
    };
    (bytes, matching, actions)
}

/// A flow's actions in the form of `version`, without instructions if it has none.
pub(crate) fn flow_actions(matching: &Match, actions: &[Action], version: Version) -> Vec<u8> {
    let mut out = openflow::wire::Writer::new();
    encode_flow_actions(&mut out, actions, version, matching);
    out.to_vec()
}

/// A list of actions, without instructions.
pub(crate) fn action_list(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
    loop {
        let (matching, actions) = pool.any(g);
        if actions.iter().any(|a| a.is_instruction() || matches!(a, Action::Conjunction { .. })) {
            continue;
        }
        let mut out = openflow::wire::Writer::new();
        encode_actions(&mut out, &actions, version, &matching);
        return out.to_vec();
    }
}

// Session.

fn hello(g: &mut Gen) -> Vec<u8> {
    let bitmap = g.flags(0x7e) as u32;
    match g.below(6) {
        0 => Vec::new(),
        1 => {
            let n = 1 + g.below(12) as usize;
            g.some(n)
        }
        2 => cat(&[&property(2, &[1, 2, 3]), &property(1, &bitmap.to_be_bytes())]),
        3 => property(1, &cat(&[&bitmap.to_be_bytes(), &[0, 0, 0, 5]])),
        _ => property(1, &bitmap.to_be_bytes()),
    }
}

fn error(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
    let known: Vec<OfpError> = OfpError::all().filter(|e| e.number(version).is_some()).collect();
    let number = match g.below(10) {
        0 => cat(&[&g.u16().to_be_bytes(), &g.u16().to_be_bytes()]),
        1 => cat(&[&[0xff, 0xff], &g.u16().to_be_bytes(), &g.of(&[NICIRA, ONF, 5]).to_be_bytes()]),
        2 => cat(&[&[0xb0, 0xc2, 0, 0], &NICIRA.to_be_bytes(), &g.u16().to_be_bytes(), &g.u16().to_be_bytes()]),
        _ => g.of(&known).number(version).expect("it has one").encode(version),
    };
    let data = match g.below(5) {
        0 => Vec::new(),
        1 => g.of(&[&b"no \"such\" version"[..], b"x\n\x80", b"abcd"]).to_vec(),
        2 => {
            let n = g.below(20) as usize;
            g.some(n)
        }
        _ => {
            let kind = &KINDS[5 + g.below(8) as usize];
            let (number, body) = (kind.make)(g, pool, version);
            let mut inner = message(version, 77, number, false, &body);
            if g.once_in(2) {
                inner.truncate(64);
            }
            inner
        }
    };
    cat(&[&number, &data])
}

fn unknown(g: &mut Gen, _: &Pool, _: Version) -> (WireNumber, Vec<u8>) {
    let n = 8 * g.below(5) as usize;
    let body = g.some(n);
    let small = g.below(40) as u32;
    let number = match g.below(8) {
        0 => WireNumber::Type(g.u8()),
        1 => WireNumber::Nicira(small),
        2 => WireNumber::Onf(small),
        3 => WireNumber::Request(small as u16),
        4 => WireNumber::Reply(small as u16),
        5 => WireNumber::NiciraRequest(small),
        6 => WireNumber::NiciraReply(small),
        _ => WireNumber::OnfReply(small),
    };
    (number, body)
}

/// Messages that consist of headers only.
fn empty(g: &mut Gen, _: &Pool, version: Version) -> (WireNumber, Vec<u8>) {
    let barrier = if version == V10 { 18 } else { 20 };
    let places = [
        WireNumber::Type(5),
        WireNumber::Type(7),
        WireNumber::Type(barrier),
        WireNumber::Type(barrier + 1),
        WireNumber::Type(26),
        WireNumber::Nicira(18),
        WireNumber::Nicira(25),
        WireNumber::Request(0),
        WireNumber::Request(3),
        WireNumber::Request(8),
        WireNumber::Request(11),
        WireNumber::Request(13),
        WireNumber::Request(14),
        WireNumber::Request(7),
        WireNumber::Request(12),
    ];
    (g.of(&places), Vec::new())
}

fn features(g: &mut Gen, version: Version) -> Vec<u8> {
    let capabilities = g.flags(0x1ff) as u32;
    let actions = g.flags(0xfff) as u32;
    let head = cat(&[
        &g.u64().to_be_bytes(),
        &g.u32().to_be_bytes(),
        &[g.u8(), g.u8()],
        &g.pad(2),
        &capabilities.to_be_bytes(),
    ]);
    let ports = if version < V13 { several(g, 3, |g| port_desc(g, version)) } else { Vec::new() };
    cat(&[&head, &actions.to_be_bytes(), &ports])
}

fn role_status(g: &mut Gen) -> Vec<u8> {
    let (role, reason) = (g.choice(3) as u32, g.choice(2) as u8);
    let properties = if g.once_in(4) { g.properties(1, &mut Gen::experimenter) } else { Vec::new() };
    cat(&[&role.to_be_bytes(), &[reason], &g.pad(3), &g.u64().to_be_bytes(), &properties])
}

fn async13(g: &mut Gen) -> Vec<u8> {
    (0..6).flat_map(|_| (g.flags(0x3f) as u32).to_be_bytes()).collect()
}

fn async14(g: &mut Gen) -> Vec<u8> {
    g.properties(4, &mut |g| {
        if g.once_in(12) {
            let (_, body) = g.experimenter();
            return (g.of(&[0xfffe, 0xffff]), body);
        }
        let ty = g.choice(11) as u16;
        (ty, (g.flags(0x3f) as u32).to_be_bytes().to_vec())
    })
}

fn request_forward(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
    let meter = version >= V13 && g.once_in(3);
    let body = if meter { meter_mod(g) } else { group_mod(g, pool, version, version == V15) };
    let number = match version {
        _ if meter => WireNumber::Type(29),
        V10 => return message(version, 5, WireNumber::Nicira(31), false, &group_mod(g, pool, version, true)),
        _ if g.once_in(20) => WireNumber::Type(18),
        _ => WireNumber::Type(15),
    };
    message(version, 5, number, false, &body)
}

fn bundle_control(g: &mut Gen) -> Vec<u8> {
    let (ty, flags) = (g.choice(7) as u16, g.flags(3) as u16);
    let properties = if g.once_in(6) { g.properties(1, &mut Gen::experimenter) } else { Vec::new() };
    cat(&[&g.u32().to_be_bytes(), &ty.to_be_bytes(), &flags.to_be_bytes(), &properties])
}

fn bundle_add(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
    let names = [
        "flow mod",
        "flow mod",
        "group mod",
        "port mod",
        "packet out",
        "echo",
        "NX flow mod",
        "meter mod",
        "table mod",
    ];
    let name = g.of(&names);
    let kind = KINDS.iter().find(|k| k.name == name).expect("there is one");
    let (number, body) = (kind.make)(g, pool, version);
    let inner = message(version, 5, number, false, &body);
    let (id, flags) = (g.u32(), g.flags(3) as u16);
    cat(&[&id.to_be_bytes(), &g.pad(2), &flags.to_be_bytes(), &inner])
}
