//! Messages of every kind and version.

use crate::make::{Gen, NICIRA, ONF, Place, cat, entry, message, padded, property};
use crate::texts;
use Version::{V10, V11, V12, V13, V14, V15};
use flow::Match;
use openflow::nxm::{encode_nx_match, encode_oxm_match};
use openflow::of_match::{encode_of10, encode_of11};
use openflow::{
    Action, FlowModCommand, OfpError, Version, encode_actions, encode_flow_actions, encode_instructions, parse_flow,
};

/// Matches and actions to put into messages.
pub(crate) struct Pool {
    flows: Vec<(Match, Vec<Action>)>,
}

impl Pool {
    pub(crate) fn new(g: &mut Gen) -> Self {
        let mut flows = Vec::new();
        while flows.len() < 3000 {
            let text = texts::flow(g);
            if let Ok(flow) = parse_flow(&text, FlowModCommand::Add, &flow::NoNames) {
                flows.push((flow.flow_mod.matching, flow.flow_mod.actions));
            }
        }
        Self { flows }
    }

    fn any(&self, g: &mut Gen) -> (Match, Vec<Action>) {
        g.of(&self.flows)
    }
}

/// One kind of message: in which versions it is, and how to make one.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    versions: &'static [Version],
    make: fn(&mut Gen, &Pool, Version) -> (Place, Vec<u8>),
    /// How many of these for one of another kind.
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
    make: fn(&mut Gen, &Pool, Version) -> (Place, Vec<u8>),
) -> Kind {
    Kind { name, versions, make, weight }
}

fn t(n: u8, body: Vec<u8>) -> (Place, Vec<u8>) {
    (Place::Type(n), body)
}

fn nx(n: u32, body: Vec<u8>) -> (Place, Vec<u8>) {
    (Place::Nicira(n), body)
}

pub(crate) const KINDS: &[Kind] = &[
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
    kind("ONF role status", &[V13], 1, |g, _, _| (Place::Onf(1911), role_status(g))),
    kind("ONF bundle control", &[V13], 2, |g, _, _| (Place::Onf(2300), bundle_control(g))),
    kind("ONF bundle add", &[V13], 4, |g, p, v| (Place::Onf(2301), bundle_add(g, p, v))),
    kind("ONF request forward", &[V13], 2, |g, p, v| (Place::Onf(2350), request_forward(g, p, v))),
    kind("ONF monitor", &[V13], 1, |g, _, _| {
        let n = g.below(3) as u32;
        (Place::Onf(1870 + n), if n == 0 { g.u32().to_be_bytes().to_vec() } else { Vec::new() })
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
    kind("flow reply", ALL, 8, |g, p, v| (Place::Reply(1), flow_reply(g, p, v))),
    kind("desc reply", ALL, 1, |g, _, _| {
        (Place::Reply(0), cat(&[&g.name(256), &g.name(256), &g.name(256), &g.name(32), &g.name(256)]))
    }),
    kind("aggregate reply", &[V10, V11, V12, V13, V14], 1, |g, _, _| {
        (Place::Reply(2), cat(&[&g.u64().to_be_bytes(), &g.u64().to_be_bytes(), &g.u32().to_be_bytes(), &g.pad(4)]))
    }),
    kind("aggregate reply of 1.5", &[V15], 2, |g, _, _| (Place::Reply(2), stats_list(g))),
    kind("table reply", ALL, 3, |g, _, v| (Place::Reply(3), table_stats(g, v))),
    kind("port request", ALL, 1, |g, _, v| {
        let n = if v == V10 { 6 } else { 4 };
        (Place::Request(4), cat(&[&g.port(v), &g.pad(n)]))
    }),
    kind("port reply", ALL, 3, |g, _, v| (Place::Reply(4), several(g, 3, |g| port_stats(g, v)))),
    kind("queue request", ALL, 1, |g, _, v| (Place::Request(5), queue_request(g, v))),
    kind("queue reply", ALL, 3, |g, _, v| (Place::Reply(5), several(g, 3, |g| queue_stats(g, v)))),
    kind("group request", FROM11, 1, |g, _, _| {
        let ty = g.of(&[6, 6, 6, 7]);
        (Place::Request(ty), cat(&[&group_id(g), &g.pad(4)]))
    }),
    kind("group reply", FROM11, 3, |g, _, v| (Place::Reply(6), several(g, 3, |g| group_stats(g, v >= V13)))),
    kind("group desc reply", FROM11, 4, |g, p, v| (Place::Reply(7), several(g, 3, |g| group_desc(g, p, v, v == V15)))),
    kind("group features reply", FROM12, 1, |g, _, _| (Place::Reply(8), group_features(g))),
    kind("meter request", FROM13, 1, |g, _, _| {
        let ty = 9 + g.below(2) as u16;
        (Place::Request(ty), cat(&[&meter_id(g), &g.pad(4)]))
    }),
    kind("meter reply", FROM13, 2, |g, _, _| (Place::Reply(9), several(g, 3, meter_stats))),
    kind("meter config reply", FROM13, 2, |g, _, _| (Place::Reply(10), several(g, 3, meter_config))),
    kind("meter features reply", FROM13, 1, |g, _, _| {
        let (types, flags) = (g.flags(6) as u32, g.flags(15) as u32);
        let numbers = cat(&[&g.u32().to_be_bytes(), &types.to_be_bytes(), &flags.to_be_bytes()]);
        (Place::Reply(11), cat(&[&numbers, &[g.u8(), g.u8()], &g.pad(2)]))
    }),
    kind("table features", FROM13, 6, |g, _, v| {
        let place = if g.once_in(3) { Place::Request(12) } else { Place::Reply(12) };
        (place, several(g, 2, |g| table_features(g, v)))
    }),
    kind("port desc request", &[V15], 1, |g, _, v| (Place::Request(13), cat(&[&g.port(v), &g.pad(4)]))),
    kind("port desc reply", ALL, 4, |g, _, v| (Place::Reply(13), several(g, 3, |g| port_desc(g, v)))),
    kind("table desc reply", FROM14, 3, |g, _, v| (Place::Reply(14), several(g, 2, |g| table_desc(g, v)))),
    kind("queue desc request", FROM14, 1, |g, _, v| (Place::Request(15), queue_request(g, v))),
    kind("queue desc reply", FROM14, 2, |g, _, _| (Place::Reply(15), several(g, 3, queue_desc))),
    kind("flow monitor request", FROM14, 2, |g, p, v| (Place::Request(16), several(g, 2, |g| monitor14(g, p, v)))),
    kind("flow monitor reply", FROM14, 3, |g, p, v| (Place::Reply(16), several(g, 3, |g| update(g, p, v)))),
    kind("ONF flow monitor request", &[V13], 2, |g, p, v| {
        (Place::OnfRequest(1870), several(g, 2, |g| monitor14(g, p, v)))
    }),
    kind("ONF flow monitor reply", &[V13], 3, |g, p, v| (Place::OnfReply(1870), several(g, 3, |g| update(g, p, v)))),
    kind("NX flow monitor request", &[V10, V11, V12], 1, |g, p, _| {
        (Place::NiciraRequest(2), several(g, 2, |g| monitor10(g, p)))
    }),
    kind("NX flow monitor reply", &[V10, V11, V12], 2, |g, p, v| {
        (Place::NiciraReply(2), several(g, 3, |g| update(g, p, v)))
    }),
    kind("NX flow request", &[V10], 4, |g, p, _| {
        let n = g.below(2) as u32;
        (Place::NiciraRequest(n), nx_flow_request(g, p))
    }),
    kind("NX flow reply", &[V10], 10, |g, p, _| (Place::NiciraReply(0), several(g, 3, |g| nx_flow_stats(g, p)))),
    kind("NX aggregate reply", &[V10], 1, |g, _, _| {
        (
            Place::NiciraReply(1),
            cat(&[&g.u64().to_be_bytes(), &g.u64().to_be_bytes(), &g.u32().to_be_bytes(), &g.pad(4)]),
        )
    }),
    kind("NX group request", &[V10], 2, |g, _, _| {
        let n = 7 + g.below(2) as u32;
        (Place::NiciraRequest(n), cat(&[&group_id(g), &g.pad(4)]))
    }),
    kind("NX group reply", &[V10], 3, |g, _, _| (Place::NiciraReply(7), several(g, 3, |g| group_stats(g, true)))),
    kind("NX group desc reply", &[V10], 5, |g, p, v| {
        (Place::NiciraReply(8), several(g, 3, |g| group_desc(g, p, v, true)))
    }),
    kind("NX group features", &[V10, V11], 1, |g, _, _| {
        if g.once_in(3) { (Place::NiciraRequest(9), Vec::new()) } else { (Place::NiciraReply(9), group_features(g)) }
    }),
    kind("NX ipfix", ALL, 2, |g, _, v| {
        let n = 3 + g.below(2) as u32;
        if g.once_in(3) {
            return (Place::NiciraRequest(n), Vec::new());
        }
        let one = |g: &mut Gen| {
            let numbers: Vec<u8> = (0..10).flat_map(|_| g.u64().to_be_bytes()).collect();
            cat(&[&numbers, &g.u32().to_be_bytes(), &g.pad(4)])
        };
        let _ = v;
        (Place::NiciraReply(n), if n == 3 { one(g) } else { several(g, 3, one) })
    }),
];

/// A message of each kind in each of its versions, and so on in turn, `n` in all. The transaction ids count.
pub(crate) fn corpus(g: &mut Gen, pool: &Pool, n: usize) -> Vec<(&'static str, Version, Vec<u8>)> {
    let mut all = Vec::new();
    while all.len() < n {
        for kind in KINDS {
            for version in kind.versions {
                for _ in 0..kind.weight {
                    let (place, body) = (kind.make)(g, pool, *version);
                    let more = g.once_in(10);
                    let xid = all.len() as u32 + 1;
                    all.push((kind.name, *version, message(*version, xid, place, more, &body)));
                }
            }
        }
    }
    all.truncate(n);
    all
}

/// One of these messages with something wrong: cut, longer, of another type, or with some bytes that are not as they were.
pub(crate) fn damage(g: &mut Gen, message: &[u8]) -> Vec<u8> {
    let mut bytes = message.to_vec();
    match g.below(8) {
        0 | 1 => bytes.truncate(8 + g.below(bytes.len() as u64 - 7) as usize),
        // What comes behind statistics is another entry, or the beginning of one.
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

fn several(g: &mut Gen, most: u64, mut one: impl FnMut(&mut Gen) -> Vec<u8>) -> Vec<u8> {
    (0..g.below(most + 1)).flat_map(|_| one(g)).collect()
}

// Matches and actions.

/// As `version` has it in its own messages.
fn of_match(matching: &Match, version: Version) -> Vec<u8> {
    let mut out = Vec::new();
    match version {
        V10 => encode_of10(&mut out, matching),
        V11 => encode_of11(&mut out, matching),
        _ => encode_oxm_match(&mut out, matching, version),
    }
    out
}

/// Nicira's, padded, and its length.
fn nx_match(matching: &Match) -> (Vec<u8>, u16) {
    let mut out = Vec::new();
    let length = encode_nx_match(&mut out, matching, None);
    (out, length as u16)
}

/// A match in OpenFlow 1.0's form with any bits.
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

/// A match, of our writing or with any bits, and actions that go with the former.
fn flow(g: &mut Gen, pool: &Pool, version: Version) -> (Vec<u8>, Match, Vec<Action>) {
    let (matching, actions) = pool.any(g);
    let bytes = match version {
        V10 if g.once_in(3) => raw10(g),
        V11 if g.once_in(3) => raw11(g),
        _ => of_match(&matching, version),
    };
    (bytes, matching, actions)
}

/// What a flow does, as `version` writes it. What is an instruction is left out where there are none.
fn flow_actions(matching: &Match, actions: &[Action], version: Version) -> Vec<u8> {
    let mut out = Vec::new();
    encode_flow_actions(&mut out, actions, version, matching);
    out
}

/// A list of actions, with no instructions.
fn action_list(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
    loop {
        let (matching, actions) = pool.any(g);
        if actions.iter().any(|a| a.is_instruction() || matches!(a, Action::Conjunction { .. })) {
            continue;
        }
        let mut out = Vec::new();
        encode_actions(&mut out, &actions, version, &matching);
        return out;
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
            let (place, body) = (kind.make)(g, pool, version);
            let mut inner = message(version, 77, place, false, &body);
            if g.once_in(2) {
                inner.truncate(64);
            }
            inner
        }
    };
    cat(&[&number, &data])
}

fn unknown(g: &mut Gen, _: &Pool, _: Version) -> (Place, Vec<u8>) {
    let n = 8 * g.below(5) as usize;
    let body = g.some(n);
    let small = g.below(40) as u32;
    let place = match g.below(8) {
        0 => Place::Type(g.u8()),
        1 => Place::Nicira(small),
        2 => Place::Onf(small),
        3 => Place::Request(small as u16),
        4 => Place::Reply(small as u16),
        5 => Place::NiciraRequest(small),
        6 => Place::NiciraReply(small),
        _ => Place::OnfReply(small),
    };
    (place, body)
}

/// Messages that are only headers.
fn empty(g: &mut Gen, _: &Pool, version: Version) -> (Place, Vec<u8>) {
    let barrier = if version == V10 { 18 } else { 20 };
    let places = [
        Place::Type(5),
        Place::Type(7),
        Place::Type(barrier),
        Place::Type(barrier + 1),
        Place::Type(26),
        Place::Nicira(18),
        Place::Nicira(25),
        Place::Request(0),
        Place::Request(3),
        Place::Request(8),
        Place::Request(11),
        Place::Request(13),
        Place::Request(14),
        Place::Request(7),
        Place::Request(12),
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
    let place = match version {
        _ if meter => Place::Type(29),
        V10 => return message(version, 5, Place::Nicira(31), false, &group_mod(g, pool, version, true)),
        _ if g.once_in(20) => Place::Type(18),
        _ => Place::Type(15),
    };
    message(version, 5, place, false, &body)
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
    let (place, body) = (kind.make)(g, pool, version);
    let inner = message(version, 5, place, false, &body);
    let (id, flags) = (g.u32(), g.flags(3) as u16);
    // The transaction id of the outer message is what the test says; an inner one of another number is an error.
    cat(&[&id.to_be_bytes(), &g.pad(2), &flags.to_be_bytes(), &inner])
}

// Ports and queues.

fn port_desc(g: &mut Gen, version: Version) -> Vec<u8> {
    let (config, state) = (g.flags(0x7f) as u32, g.flags(if version == V10 { 0x301 } else { 7 }) as u32);
    let modes = |g: &mut Gen| (g.flags(if version == V10 { 0xfff } else { 0xffff }) as u32).to_be_bytes();
    if version == V10 {
        let all = cat(&[&modes(g), &modes(g), &modes(g), &modes(g)]);
        return cat(&[&g.port(version), &g.mac(), &g.name(16), &config.to_be_bytes(), &state.to_be_bytes(), &all]);
    }
    let speeds = |g: &mut Gen| {
        cat(&[&modes(g), &modes(g), &modes(g), &modes(g), &g.u32().to_be_bytes(), &g.u32().to_be_bytes()])
    };
    let name = g.name(16);
    let (port, mac) = (g.port(version), g.mac());
    if version < V14 {
        let head = cat(&[&port, &g.pad(4), &mac, &g.pad(2), &name]);
        return cat(&[&head, &config.to_be_bytes(), &state.to_be_bytes(), &speeds(g)]);
    }
    let properties = g.properties(2, &mut |g| match g.below(5) {
        0 => {
            let n = 4 * g.below(9) as usize;
            (g.choice(4) as u16, g.some(n))
        }
        1 => g.experimenter(),
        _ => (0, cat(&[&g.pad(4), &speeds(g)])),
    });
    let rest = cat(&[&g.pad(2), &mac, &g.pad(2), &name, &config.to_be_bytes(), &state.to_be_bytes(), &properties]);
    let length = (rest.len() + 6) as u16;
    cat(&[&port, &length.to_be_bytes(), &rest])
}

fn port_mod(g: &mut Gen, version: Version) -> Vec<u8> {
    let (config, mask) = (g.flags(0x7f) as u32, g.flags(0x7f) as u32);
    let modes = g.flags(0xffff) as u32;
    let (port, mac) = (g.port(version), g.mac());
    let bits = cat(&[&config.to_be_bytes(), &mask.to_be_bytes()]);
    match version {
        V10 => cat(&[&port, &mac, &bits, &modes.to_be_bytes(), &g.pad(4)]),
        V11 | V12 | V13 => cat(&[&port, &g.pad(4), &mac, &g.pad(2), &bits, &modes.to_be_bytes(), &g.pad(4)]),
        _ => {
            let properties = g.properties(2, &mut |g| match g.below(6) {
                0 => (g.choice(3) as u16, g.u32().to_be_bytes().to_vec()),
                1 => g.experimenter(),
                _ => (0, (g.flags(0xffff) as u32).to_be_bytes().to_vec()),
            });
            cat(&[&port, &g.pad(4), &mac, &g.pad(2), &bits, &properties])
        }
    }
}

fn numbers(g: &mut Gen, n: usize) -> Vec<u8> {
    (0..n).flat_map(|_| g.u64().to_be_bytes()).collect()
}

fn duration(g: &mut Gen) -> Vec<u8> {
    let nsec = match g.below(4) {
        0 => 0xffff_ffff,
        1 => 0,
        2 => 1_000_000 * g.below(1000) as u32,
        _ => g.below(1_000_000_000) as u32,
    };
    let sec = if nsec == 0xffff_ffff { nsec } else { g.u32() };
    cat(&[&sec.to_be_bytes(), &nsec.to_be_bytes()])
}

fn port_stats(g: &mut Gen, version: Version) -> Vec<u8> {
    let port = g.port(version);
    match version {
        V10 => cat(&[&port, &g.pad(6), &numbers(g, 12)]),
        V11 | V12 => cat(&[&port, &g.pad(4), &numbers(g, 12)]),
        V13 => cat(&[&port, &g.pad(4), &numbers(g, 12), &duration(g)]),
        _ => {
            let properties = g.properties(3, &mut |g| match g.below(5) {
                0 => (0, cat(&[&g.pad(4), &numbers(g, 4)])),
                1 => {
                    let n = 4 * g.below(9) as usize;
                    (g.choice(2) as u16, g.some(n))
                }
                // Open vSwitch's counts of RFC 2819, and its own.
                2 => (0xffff, cat(&[&NICIRA.to_be_bytes(), &1u32.to_be_bytes(), &g.pad(4), &numbers(g, 10)])),
                3 => (0xffff, cat(&[&NICIRA.to_be_bytes(), &2u32.to_be_bytes(), &custom(g)])),
                _ => g.experimenter(),
            });
            entry(&cat(&[&g.pad(2), &port, &duration(g), &numbers(g, 8), &properties]))
        }
    }
}

/// Statistics with names.
fn custom(g: &mut Gen) -> Vec<u8> {
    let n = g.below(4);
    let mut out = cat(&[&(n as u16).to_be_bytes(), &g.pad(2), &g.pad(4)]);
    for _ in 0..n {
        let name = g.of(&[&b"ovs_tx_failure_drops"[..], b"x", b"a b"]);
        out.push(name.len() as u8);
        out.extend(name);
        out.extend(g.u64().to_be_bytes());
    }
    out
}

fn queue_id(g: &mut Gen) -> Vec<u8> {
    let n = if g.once_in(3) { u32::MAX } else { g.u32() };
    n.to_be_bytes().to_vec()
}

fn queue_request(g: &mut Gen, version: Version) -> Vec<u8> {
    let port = g.port(version);
    let pad = if version == V10 { 2 } else { 0 };
    cat(&[&port, &g.pad(pad), &queue_id(g)])
}

fn queue_stats(g: &mut Gen, version: Version) -> Vec<u8> {
    let (port, id) = (g.port(version), queue_id(g));
    let pad = if version == V10 { 2 } else { 0 };
    let old = cat(&[&port, &g.pad(pad), &id, &numbers(g, 3)]);
    match version {
        V10 | V11 | V12 => old,
        V13 => cat(&[&old, &duration(g)]),
        _ => {
            let properties = if g.once_in(4) { g.properties(1, &mut Gen::experimenter) } else { Vec::new() };
            entry(&cat(&[&g.pad(6), &old, &duration(g), &properties]))
        }
    }
}

fn rates(g: &mut Gen, pad_before: usize) -> Vec<u8> {
    g.properties(3, &mut |g| {
        let rate = if g.once_in(4) { g.u16() } else { g.below(1002) as u16 };
        let ty = g.of(&[1, 2, 1, 2, 1, 2, 3, 0xffff]);
        if ty == 0xffff {
            return g.experimenter();
        }
        (ty, cat(&[&vec![0; pad_before], &rate.to_be_bytes(), &vec![0; if pad_before > 0 { 6 } else { 2 }]]))
    })
}

fn queue_config(g: &mut Gen, version: Version) -> Vec<u8> {
    let port = g.port(version);
    let pad = if version == V10 { 6 } else { 4 };
    let queues = several(g, 3, |g| {
        let properties = rates(g, 4);
        let id = g.u32();
        if version < V12 {
            let length = 8 + properties.len() as u16;
            return cat(&[&id.to_be_bytes(), &length.to_be_bytes(), &g.pad(2), &properties]);
        }
        let length = 16 + properties.len() as u16;
        cat(&[&id.to_be_bytes(), &port.clone(), &length.to_be_bytes(), &g.pad(6), &properties])
    });
    cat(&[&port, &g.pad(pad), &queues])
}

fn queue_desc(g: &mut Gen) -> Vec<u8> {
    let (port, id) = (g.port(V14), g.u32());
    let properties = rates(g, 0);
    let length = 16 + properties.len() as u16;
    cat(&[&port, &id.to_be_bytes(), &length.to_be_bytes(), &g.pad(6), &properties])
}

// Packets.

fn reason(g: &mut Gen) -> u8 {
    g.choice(5) as u8
}

fn buffer(g: &mut Gen) -> Vec<u8> {
    let id = if g.once_in(3) { g.u32() } else { u32::MAX };
    id.to_be_bytes().to_vec()
}

/// A length of the whole packet that goes with the part that is there.
fn total(g: &mut Gen, data: &[u8]) -> u16 {
    match g.below(4) {
        0 => g.u16(),
        1 => data.len() as u16 + 100,
        _ => data.len() as u16,
    }
}

fn metadata(pool: &Pool, g: &mut Gen) -> Match {
    let mut m = if g.once_in(2) { pool.any(g).0 } else { Match::ANY };
    if !g.once_in(6) {
        m.set(flow::Field::InPortOxm, (1 + g.below(5)).into());
    }
    m
}

fn packet_in(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
    let data = g.frame();
    let total = total(g, &data).to_be_bytes();
    let (buffer, reason) = (buffer(g), reason(g));
    let oxm = of_match(&metadata(pool, g), if version < V12 { V12 } else { version });
    match version {
        V10 => cat(&[&buffer, &total, &g.port(V10), &[reason], &g.pad(1), &data]),
        V11 => cat(&[&buffer, &g.port(V11), &g.port(V11), &total, &[reason, g.u8()], &data]),
        V12 => cat(&[&buffer, &total, &[reason, g.u8()], &oxm, &g.pad(2), &data]),
        _ => cat(&[&buffer, &total, &[reason, g.u8()], &g.u64().to_be_bytes(), &oxm, &g.pad(2), &data]),
    }
}

fn nx_packet_in(g: &mut Gen, pool: &Pool) -> Vec<u8> {
    let data = g.frame();
    let total = total(g, &data).to_be_bytes();
    let (matching, length) = nx_match(&metadata(pool, g));
    let head =
        cat(&[&buffer(g), &total, &[reason(g), g.u8()], &g.u64().to_be_bytes(), &length.to_be_bytes(), &g.pad(6)]);
    cat(&[&head, &matching, &g.pad(2), &data])
}

fn packet_in2(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
    let data = g.frame();
    let mut out = if g.once_in(10) { Vec::new() } else { property(0, &data) };
    let more = g.properties(6, &mut |g| match g.below(9) {
        0 => (1, (data.len() as u32 + g.below(9) as u32).to_be_bytes().to_vec()),
        1 => (2, buffer(g)),
        2 => (3, vec![g.u8()]),
        3 => (4, cat(&[&[0; 4], &g.u64().to_be_bytes()])),
        4 => (5, vec![reason(g)]),
        5 | 6 => {
            let (matching, length) = nx_match(&metadata(pool, g));
            (6, cat(&[&[0; 4], &matching[..length as usize]]))
        }
        7 => {
            let n = g.below(9) as usize;
            (7, g.some(n))
        }
        _ if g.once_in(2) => continuation(g, pool, version),
        _ => {
            let n = 4 * g.below(4) as usize;
            (g.choice(12) as u16, g.some(n))
        }
    });
    out.extend(more);
    out
}

/// NXPINT_CONTINUATION: what Open vSwitch's switch puts there.
fn continuation(g: &mut Gen, pool: &Pool, version: Version) -> (u16, Vec<u8>) {
    let inner = g.properties(5, &mut |g| match g.below(9) {
        0 => (0x8000, g.some(16)),
        1 => (0x8001, cat(&[&[0; 4], &g.some(12)])),
        2 => (0x8002, g.u32().to_be_bytes().to_vec()),
        3 => (0x8003, Vec::new()),
        4 => (0x8004, vec![g.u8()]),
        5 => (0x8005, cat(&[&[0; 4], &g.u64().to_be_bytes()])),
        6 | 7 => {
            let ty = 0x8006 + g.below(2) as u16;
            (ty, cat(&[&[0; 4], &action_list(g, pool, version)]))
        }
        _ => (0x8008, vec![0, 0, 0, 1]),
    });
    (8, cat(&[&[0; 4], &inner]))
}

fn packet_out(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
    let actions = action_list(g, pool, version);
    let buffer = buffer(g);
    let data = if buffer == [0xff; 4] || g.once_in(5) { g.frame() } else { Vec::new() };
    let length = (actions.len() as u16).to_be_bytes();
    let port = if g.once_in(3) {
        g.port(version)
    } else {
        cat(&[&[0xff; 4], &[0xf8]])[if version == V10 { 3 } else { 1 }..].to_vec()
    };
    let port = if port.len() == 2 && port[1] == 0xf8 { vec![0xff, 0xf8] } else { port };
    match version {
        V10 => cat(&[&buffer, &port, &length, &actions, &data]),
        V15 => {
            let oxm = of_match(&metadata(pool, g), version);
            cat(&[&buffer, &length, &g.pad(2), &oxm, &actions, &data])
        }
        _ => cat(&[&buffer, &port, &length, &g.pad(6), &actions, &data]),
    }
}

// Flows.

fn flow_mod(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
    let (matching_bytes, matching, actions) = flow(g, pool, version);
    let command = g.choice(4);
    let (idle, hard, priority) = (g.u16().to_be_bytes(), g.u16().to_be_bytes(), g.u16().to_be_bytes());
    let buffer = buffer(g);
    let out_port = if g.once_in(3) {
        g.port(version)
    } else if version == V10 {
        vec![0xff; 2]
    } else {
        vec![0xff; 4]
    };
    let does = if command >= 3 && g.once_in(2) { Vec::new() } else { flow_actions(&matching, &actions, version) };
    let cookie = g.u64().to_be_bytes();
    if version == V10 {
        let (flags, table) = (g.flags(7) as u16, if g.once_in(3) { g.u8() } else { 0 });
        let command = u16::from(table) << 8 | (command as u16 & 0xff);
        let head =
            cat(&[&matching_bytes, &cookie, &command.to_be_bytes(), &idle, &hard, &priority, &buffer, &out_port]);
        return cat(&[&head, &flags.to_be_bytes(), &does]);
    }
    let flags = g.flags(if version < V13 { 7 } else { 0x1f }) as u16;
    let mask = g.of(&[0, 0, u64::MAX, 0xff]).to_be_bytes();
    let out_group = if g.once_in(3) { group_id(g) } else { vec![0xff; 4] };
    let importance = if g.once_in(4) { g.u16() } else { 0 };
    let head =
        cat(&[&cookie, &mask, &[g.u8(), command as u8], &idle, &hard, &priority, &buffer, &out_port, &out_group]);
    cat(&[&head, &flags.to_be_bytes(), &importance.to_be_bytes(), &matching_bytes, &does])
}

fn nx_flow_mod(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
    let (matching, actions) = pool.any(g);
    let (bytes, length) = nx_match(&matching);
    let (command, flags) = (g.choice(4) as u16, g.flags(7) as u16);
    let out_port = if g.once_in(3) { g.port(V10) } else { vec![0xff; 2] };
    let times = cat(&[&g.u16().to_be_bytes(), &g.u16().to_be_bytes(), &g.u16().to_be_bytes()]);
    let head =
        cat(&[&g.u64().to_be_bytes(), &command.to_be_bytes(), &times, &buffer(g), &out_port, &flags.to_be_bytes()]);
    let does = flow_actions(&matching, &actions, version);
    cat(&[&head, &length.to_be_bytes(), &g.pad(6), &bytes, &does])
}

fn flow_removed(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
    let (matching_bytes, ..) = flow(g, pool, version);
    let (cookie, priority, reason) = (g.u64().to_be_bytes(), g.u16().to_be_bytes(), g.choice(6) as u8);
    let (table, times, counts) = (g.u8(), duration(g), numbers(g, 2));
    let (idle, hard) = (g.u16().to_be_bytes(), g.u16().to_be_bytes());
    match version {
        V10 => cat(&[&matching_bytes, &cookie, &priority, &[reason], &g.pad(1), &times, &idle, &g.pad(2), &counts]),
        V15 => cat(&[&[table, reason], &priority, &idle, &hard, &cookie, &matching_bytes, &stats_list(g)]),
        _ => cat(&[&cookie, &priority, &[reason, table], &times, &idle, &hard, &counts, &matching_bytes]),
    }
}

fn nx_flow_removed(g: &mut Gen, pool: &Pool) -> Vec<u8> {
    let (bytes, length) = nx_match(&pool.any(g).0);
    let (reason, table) = (g.choice(6) as u8, g.u8());
    let head =
        cat(&[&g.u64().to_be_bytes(), &g.u16().to_be_bytes(), &[reason, table], &duration(g), &g.u16().to_be_bytes()]);
    cat(&[&head, &length.to_be_bytes(), &numbers(g, 2), &bytes])
}

/// OXS: statistics of OpenFlow 1.5.
fn stats_list(g: &mut Gen) -> Vec<u8> {
    let mut body = Vec::new();
    for _ in 0..g.below(6) {
        let field = g.choice(5) as u8;
        let class = g.of(&[0x8002u16, 0x8002, 0x8002, 0x8002, 0xffff, 0x8001]);
        let value = match field {
            3 => g.u32().to_be_bytes().to_vec(),
            0 => duration(g),
            1 => cat(&[&u32::from(g.u16()).to_be_bytes(), &[0; 4]]),
            _ => g.u64().to_be_bytes().to_vec(),
        };
        body.extend(cat(&[&class.to_be_bytes(), &[field << 1, value.len() as u8], &value]));
    }
    property(0, &body)
}

fn flow_request(g: &mut Gen, pool: &Pool, version: Version) -> (Place, Vec<u8>) {
    let (matching, ..) = flow(g, pool, version);
    let ty = 1 + g.below(2) as u16;
    let table = g.u8();
    let port = g.port(version);
    if version == V10 {
        return (Place::Request(ty), cat(&[&matching, &[table], &g.pad(1), &port]));
    }
    let mask = g.of(&[0, u64::MAX, 0xff]).to_be_bytes();
    let body = cat(&[&[table], &g.pad(3), &port, &group_id(g), &g.pad(4), &g.u64().to_be_bytes(), &mask, &matching]);
    (Place::Request(ty), body)
}

fn nx_flow_request(g: &mut Gen, pool: &Pool) -> Vec<u8> {
    let mut bytes = Vec::new();
    let cookie = g.once_in(3).then(|| (5 & g.u64(), 0xff));
    let length = encode_nx_match(&mut bytes, &pool.any(g).0, cookie) as u16;
    cat(&[&g.port(V10), &length.to_be_bytes(), &[g.u8()], &g.pad(3), &bytes])
}

fn flow_reply(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
    several(g, 3, |g| {
        let (matching_bytes, matching, actions) = flow(g, pool, version);
        let does = flow_actions(&matching, &actions, version);
        let (table, priority) = (g.u8(), g.u16().to_be_bytes());
        let (times, idle, hard) = (duration(g), g.u16().to_be_bytes(), g.u16().to_be_bytes());
        let (cookie, counts) = (g.u64().to_be_bytes(), numbers(g, 2));
        let flags = g.flags(if version < V13 { 7 } else { 0x1f }) as u16;
        match version {
            V10 => {
                let head = cat(&[&[table], &g.pad(1), &matching_bytes, &times, &priority, &idle, &hard, &g.pad(6)]);
                entry(&cat(&[&head, &cookie, &counts, &does]))
            }
            V15 => {
                let head =
                    cat(&[&g.pad(2), &[table, g.choice(1) as u8], &priority, &idle, &hard, &flags.to_be_bytes()]);
                let importance = g.u16().to_be_bytes();
                entry(&cat(&[&head, &importance, &cookie, &matching_bytes, &stats_list(g), &does]))
            }
            _ => {
                let importance = if version >= V14 { g.u16() } else { 0 };
                let head = cat(&[&[table], &g.pad(1), &times, &priority, &idle, &hard, &flags.to_be_bytes()]);
                entry(&cat(&[&head, &importance.to_be_bytes(), &g.pad(2), &cookie, &counts, &matching_bytes, &does]))
            }
        }
    })
}

fn nx_flow_stats(g: &mut Gen, pool: &Pool) -> Vec<u8> {
    let (matching, actions) = pool.any(g);
    let (bytes, length) = nx_match(&matching);
    let head = cat(&[
        &[g.u8()],
        &g.pad(1),
        &duration(g),
        &g.u16().to_be_bytes(),
        &g.u16().to_be_bytes(),
        &g.u16().to_be_bytes(),
    ]);
    let ages = cat(&[&g.u16().to_be_bytes(), &g.u16().to_be_bytes()]);
    let rest = cat(&[&length.to_be_bytes(), &ages, &g.u64().to_be_bytes(), &numbers(g, 2), &bytes]);
    entry(&cat(&[&head, &rest, &flow_actions(&matching, &actions, V10)]))
}

fn monitor10(g: &mut Gen, pool: &Pool) -> Vec<u8> {
    let matching = if g.once_in(2) { Match::ANY } else { pool.any(g).0 };
    let (bytes, length) = nx_match(&matching);
    let flags = g.flags(0x3f) as u16;
    let head =
        cat(&[&g.u32().to_be_bytes(), &flags.to_be_bytes(), &g.port(V10), &length.to_be_bytes(), &[g.u8()], &g.pad(5)]);
    cat(&[&head, &bytes])
}

fn monitor14(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
    let matching = if g.once_in(2) { Match::ANY } else { pool.any(g).0 };
    let (flags, command) = (g.flags(0x3f) as u16, g.choice(2) as u8);
    let head = cat(&[&g.u32().to_be_bytes(), &g.port(version), &group_id(g), &flags.to_be_bytes(), &[g.u8(), command]]);
    cat(&[&head, &of_match(&matching, version)])
}

fn update(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
    let old = version < V13;
    let event = g.choice(if old { 3 } else { 6 }) as u16;
    let abbreviated = event == if old { 3 } else { 4 };
    if abbreviated {
        return entry(&cat(&[&event.to_be_bytes(), &g.u32().to_be_bytes()]));
    }
    if !old && event >= 5 {
        return entry(&cat(&[&event.to_be_bytes(), &[0; 4]]));
    }
    let (matching, actions) = pool.any(g);
    let does = if g.once_in(2) { Vec::new() } else { action_list(g, pool, version) };
    let (reason, priority) = (g.choice(6) as u16, g.u16());
    let times = cat(&[&g.u16().to_be_bytes(), &g.u16().to_be_bytes()]);
    let cookie = g.u64().to_be_bytes();
    if old {
        let (bytes, length) = nx_match(&matching);
        let head =
            cat(&[&event.to_be_bytes(), &reason.to_be_bytes(), &priority.to_be_bytes(), &times, &length.to_be_bytes()]);
        return entry(&cat(&[&head, &[g.u8()], &g.pad(1), &cookie, &bytes, &does]));
    }
    let head =
        cat(&[&event.to_be_bytes(), &[g.u8(), reason as u8], &times, &priority.to_be_bytes(), &g.pad(4), &cookie]);
    let does = if does.is_empty() {
        does
    } else {
        let actions: Vec<Action> = actions.into_iter().filter(|a| !a.is_instruction()).collect();
        let mut out = Vec::new();
        encode_instructions(&mut out, &actions, version, &matching);
        out
    };
    entry(&cat(&[&head, &of_match(&matching, version), &does]))
}

// Groups and meters.

fn group_id(g: &mut Gen) -> Vec<u8> {
    let n = match g.below(6) {
        0 => 0xffff_fffc,
        1 => 0xffff_ffff,
        2 => g.u32(),
        _ => g.below(20) as u32,
    };
    n.to_be_bytes().to_vec()
}

fn watch(g: &mut Gen) -> u32 {
    if g.once_in(2) { u32::MAX } else { g.below(9) as u32 }
}

fn bucket(g: &mut Gen, pool: &Pool, version: Version, new: bool) -> Vec<u8> {
    let actions = action_list(g, pool, version);
    let weight = g.of(&[0u16, 0, 1, 5, 65535]);
    let (port, group) = (watch(g).to_be_bytes(), watch(g).to_be_bytes());
    if !new {
        return entry(&cat(&[&weight.to_be_bytes(), &port, &group, &g.pad(4), &actions]));
    }
    let id = if g.once_in(8) { g.u32() } else { g.below(500) as u32 };
    let properties = g.properties(3, &mut |g| match g.below(7) {
        0 | 1 => (0, cat(&[&weight.to_be_bytes(), &[0; 2]])),
        2 | 3 => (1, port.to_vec()),
        4 | 5 => (2, group.to_vec()),
        _ => g.experimenter(),
    });
    let length = (actions.len() as u16).to_be_bytes();
    entry(&cat(&[&length, &id.to_be_bytes(), &actions, &properties]))
}

fn group_properties(g: &mut Gen) -> Vec<u8> {
    let one = |g: &mut Gen| {
        let method = g.of(&[&b"hash"[..], b"dp_hash", b"other", b""]);
        let mut name = method.to_vec();
        name.resize(16, 0);
        let fields = if g.once_in(2) {
            Vec::new()
        } else {
            g.of(&["8000190400000000", "80000604ffffffffffff", "80001704ffffff00", "0001ff04"]).into()
        };
        let fields =
            if fields.is_empty() { Vec::new() } else { crate::make::hex(std::str::from_utf8(&fields).unwrap_or("")) };
        let fields = if fields.len() > 4 && fields[3] as usize != fields.len() - 4 {
            let mut f = fields;
            f[3] = (f.len() - 4) as u8;
            f
        } else {
            fields
        };
        (0xffff, cat(&[&0x154du32.to_be_bytes(), &1u32.to_be_bytes(), &[0; 4], &name, &g.u64().to_be_bytes(), &fields]))
    };
    if g.once_in(3) {
        let (ty, body) = if g.once_in(6) { g.experimenter() } else { one(g) };
        return property(ty, &body);
    }
    Vec::new()
}

fn group_mod(g: &mut Gen, pool: &Pool, version: Version, new: bool) -> Vec<u8> {
    let command = if new { g.of(&[0u16, 1, 2, 3, 5, 0x8000, 0, 1, 4, 7]) } else { g.of(&[0u16, 1, 2, 0x8000, 0, 5]) };
    let ty = g.choice(3) as u8;
    let buckets =
        if command == 2 && !g.once_in(5) { Vec::new() } else { several(g, 3, |g| bucket(g, pool, version, new)) };
    let head = cat(&[&command.to_be_bytes(), &[ty], &g.pad(1), &group_id(g)]);
    if !new {
        return cat(&[&head, &buckets]);
    }
    let id = g.of(&[0xffff_ffff_u32, 0xffff_fffd, 0xffff_fffe, 5, 0xffff_ff00, 0xffff_ffff]);
    let length = (buckets.len() as u16).to_be_bytes();
    cat(&[&head, &length, &g.pad(2), &id.to_be_bytes(), &buckets, &group_properties(g)])
}

fn group_desc(g: &mut Gen, pool: &Pool, version: Version, new: bool) -> Vec<u8> {
    let ty = g.choice(3) as u8;
    let buckets = several(g, 3, |g| bucket(g, pool, version, new));
    let head = cat(&[&[ty], &g.pad(1), &group_id(g)]);
    if !new {
        return entry(&cat(&[&head, &buckets]));
    }
    let length = (buckets.len() as u16).to_be_bytes();
    entry(&cat(&[&head, &length, &g.pad(6), &buckets, &group_properties(g)]))
}

fn group_stats(g: &mut Gen, timed: bool) -> Vec<u8> {
    let n = g.below(4) as usize;
    let head = cat(&[&g.pad(2), &group_id(g), &g.u32().to_be_bytes(), &g.pad(4), &numbers(g, 2)]);
    let times = if timed { duration(g) } else { Vec::new() };
    entry(&cat(&[&head, &times, &numbers(g, 2 * n)]))
}

fn group_features(g: &mut Gen) -> Vec<u8> {
    let (types, capabilities) = (g.flags(15) as u32, g.flags(15) as u32);
    let numbers: Vec<u8> = (0..4).flat_map(|_| g.u32().to_be_bytes()).collect();
    let actions: Vec<u8> = (0..4)
        .flat_map(|_| {
            let pbb = if g.once_in(12) { 3 << 26 } else { 0 };
            (g.flags(0x13ff_fff1 | pbb) as u32 & (0x13ff_fff1 | pbb as u32)).to_be_bytes()
        })
        .collect();
    cat(&[&types.to_be_bytes(), &capabilities.to_be_bytes(), &numbers, &actions])
}

fn meter_id(g: &mut Gen) -> Vec<u8> {
    let n = match g.below(6) {
        0 => 0xffff_ffff,
        1 => 0xffff_fffe,
        2 => 0xffff_fffd,
        3 => g.u32(),
        _ => g.below(20) as u32,
    };
    n.to_be_bytes().to_vec()
}

fn bands(g: &mut Gen) -> Vec<u8> {
    several(g, 3, |g| {
        let numbers = cat(&[&g.u32().to_be_bytes(), &g.u32().to_be_bytes()]);
        match g.below(8) {
            0..=3 => property(1, &cat(&[&numbers, &[0; 4]])),
            4..=6 => property(2, &cat(&[&numbers, &[g.choice(7) as u8, 0, 0, 0]])),
            _ => property(g.choice(3) as u16, &cat(&[&numbers, &[0; 4]])),
        }
    })
}

fn meter_mod(g: &mut Gen) -> Vec<u8> {
    let (command, flags) = (g.choice(2) as u16, g.of(&[1u16, 2, 5, 6, 9, 13, 0, 3, 15, 0x10]));
    cat(&[&command.to_be_bytes(), &flags.to_be_bytes(), &meter_id(g), &bands(g)])
}

fn meter_config(g: &mut Gen) -> Vec<u8> {
    let flags = g.flags(15) as u16;
    entry(&cat(&[&flags.to_be_bytes(), &meter_id(g), &bands(g)]))
}

fn meter_stats(g: &mut Gen) -> Vec<u8> {
    let n = g.below(4) as usize;
    let body = cat(&[&g.pad(6), &g.u32().to_be_bytes(), &numbers(g, 2), &duration(g), &numbers(g, 2 * n)]);
    let length = (body.len() + 6) as u16;
    cat(&[&meter_id(g), &length.to_be_bytes(), &body])
}

// Tables.

fn table_mod(g: &mut Gen, version: Version) -> Vec<u8> {
    let (table, config) = (g.u8(), g.flags(if version < V14 { 3 } else { 12 }) as u32);
    let properties = if version < V14 { Vec::new() } else { table_properties(g) };
    cat(&[&[table], &g.pad(3), &config.to_be_bytes(), &properties])
}

fn table_properties(g: &mut Gen) -> Vec<u8> {
    g.properties(2, &mut |g| match g.below(6) {
        0..=2 => (2, (g.flags(7) as u32).to_be_bytes().to_vec()),
        3 | 4 => {
            let (down, up) = (g.below(100) as u8, g.below(110) as u8);
            (3, vec![down, up, g.u8(), 0])
        }
        _ => g.experimenter(),
    })
}

fn table_desc(g: &mut Gen, _: Version) -> Vec<u8> {
    let config = g.flags(12) as u32;
    entry(&cat(&[&[g.u8()], &g.pad(1), &config.to_be_bytes(), &table_properties(g)]))
}

fn table_stats(g: &mut Gen, version: Version) -> Vec<u8> {
    let mut table = g.of(&[0u8, 0, 3, 250]);
    several(g, 4, |g| {
        if !g.once_in(3) {
            table = table.saturating_add(1);
        }
        let counts = cat(&[&g.u32().to_be_bytes(), &numbers(g, 2)]);
        match version {
            V10 => {
                let wildcards = g.flags(0x3f_ffff) as u32;
                cat(&[
                    &[table],
                    &g.pad(3),
                    &g.name(32),
                    &wildcards.to_be_bytes(),
                    &g.of(&[0u32, 1_000_000]).to_be_bytes(),
                    &counts,
                ])
            }
            V11 => {
                let bits: Vec<u8> = (0..6).flat_map(|_| (g.flags(0x3ff) as u32).to_be_bytes()).collect();
                let config = g.flags(3) as u32;
                cat(&[&[table], &g.pad(7), &g.name(32), &bits, &config.to_be_bytes(), &g.u32().to_be_bytes(), &counts])
            }
            V12 => {
                let fields: Vec<u8> = (0..2).flat_map(|_| g.flags(0xf_ffff_ffff).to_be_bytes()).collect();
                let acts: Vec<u8> =
                    (0..2).flat_map(|_| (g.flags(0x3ff_f801) as u32 & 0x3ff_f801).to_be_bytes()).collect();
                let sets: Vec<u8> = (0..2).flat_map(|_| g.flags(0xf_ffff_ffff).to_be_bytes()).collect();
                let rest: Vec<u8> = [0x3f, 3].iter().flat_map(|m| (g.flags(*m) as u32).to_be_bytes()).collect();
                let head = cat(&[&[table], &g.pad(7), &g.name(32), &fields, &acts, &sets, &numbers(g, 2)]);
                cat(&[&head, &rest, &g.u32().to_be_bytes(), &counts])
            }
            _ => cat(&[&[table], &g.pad(3), &counts]),
        }
    })
}

fn table_features(g: &mut Gen, version: Version) -> Vec<u8> {
    let mut types = vec![0u16, 2, 4, 6, 8, 10, 12, 14];
    for ty in [1, 3, 5, 7, 13, 15] {
        if g.once_in(2) {
            types.push(ty);
        }
    }
    if g.once_in(6) {
        types.push(g.of(&[9, 11, 16, 0xfffe, 0xffff]));
        types.remove(g.below(8) as usize);
    }
    let properties: Vec<u8> = types
        .into_iter()
        .flat_map(|ty| {
            let (ty, body) = match ty {
                // Lists of instructions.
                0 | 1 => {
                    let all = several(g, 5, |g| cat(&[&(1 + g.below(6) as u16).to_be_bytes(), &[0, 4]]));
                    (ty, all)
                }
                2 | 3 => {
                    let n = g.below(6) as usize;
                    (ty, g.some(n))
                }
                4..=7 => {
                    let list = [0u16, 11, 12, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 28, 99];
                    (ty, several(g, 6, |g| cat(&[&g.of(&list).to_be_bytes(), &[0, 4]])))
                }
                8 | 10 | 12..=15 => {
                    // Fields that take masks, and how long they are; and others.
                    let maskable = [(0x02u8, 8u8), (0x03, 6), (0x06, 2), (0x0b, 4), (0x0d, 2), (0x1a, 16), (0x1b, 16)];
                    let mut headers: Vec<[u8; 4]> = vec![
                        [0x80, 0, 0, 4],
                        [0x80, 0, 0x0a, 2],
                        [0x80, 0, 0x0e, 1],
                        [0x80, 0, 0x14, 1],
                        [0x80, 0, 0x2a, 2],
                        [0x80, 0, 0x7e, 4],
                    ];
                    let masks = ty == 8 || g.once_in(30);
                    headers
                        .extend(maskable.map(|(n, len)| [0x80, 0, n << 1 | u8::from(masks), len << u8::from(masks)]));
                    (ty, several(g, 6, |g| g.of(&headers).to_vec()))
                }
                0xfffe | 0xffff => (ty, g.experimenter().1),
                _ => (ty, vec![0; 4]),
            };
            property(ty, &body)
        })
        .collect();
    let command = if version >= V14 { g.choice(3) as u8 } else { 0 };
    let (caps, most) = (g.flags(15) as u32, g.u32());
    let head = cat(&[&[g.u8(), command], &g.pad(4), &g.name(32), &numbers(g, 2)]);
    entry(&cat(&[&head, &caps.to_be_bytes(), &most.to_be_bytes(), &properties]))
}

// Nicira's.

fn tlv_maps(g: &mut Gen) -> Vec<u8> {
    several(g, 4, |g| {
        let length = if g.once_in(6) { g.u8() } else { 4 * (1 + g.below(31) as u8) };
        cat(&[&g.u16().to_be_bytes(), &[g.u8(), length], &(g.choice(63) as u16).to_be_bytes(), &g.pad(2)])
    })
}

fn ct_flush(g: &mut Gen) -> Vec<u8> {
    let proto = g.of(&[0u8, 6, 17, 1, 58, 132]);
    let properties = g.properties(3, &mut |g| {
        let ty = g.of(&[0u16, 1, 0, 1, 2, 3, 9]);
        if ty == 2 {
            return (ty, g.u16().to_be_bytes().to_vec());
        }
        let inner = g.properties(4, &mut |g| {
            let ty = g.choice(6) as u16;
            match ty {
                0 | 1 => {
                    let v4 = cat(&[&[0; 10], &[0xff, 0xff], &g.some(4)]);
                    let v6 = g.some(16);
                    (ty, g.of(&[v4.clone(), v6, v4]))
                }
                2 | 3 => (ty, g.u16().to_be_bytes().to_vec()),
                4 => (ty, g.u16().to_be_bytes().to_vec()),
                5 | 6 => (ty, vec![g.u8()]),
                _ => (ty, vec![0; 4]),
            }
        });
        (ty, cat(&[&[0; 4], &inner]))
    });
    cat(&[&[proto], &g.pad(7), &padded(properties)])
}
