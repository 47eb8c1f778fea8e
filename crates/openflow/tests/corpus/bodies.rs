//! Bodies of messages: ports and queues, packets, flows.

use crate::groups::group_id;
use crate::make::{Gen, INTEL, cat, entry, property};
use crate::messages::{Pool, action_list, flow, flow_actions, nx_match, of_match, several};
use Version::{V10, V11, V12, V13, V14, V15};
use flow::Match;
use openflow::Action;
use openflow::Version;
use openflow::encode_instructions;
use openflow::nxm::encode_nx_match;
use openflow::types::WireNumber;

// Ports and queues.

pub(crate) fn port_desc(g: &mut Gen, version: Version) -> Vec<u8> {
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

pub(crate) fn port_mod(g: &mut Gen, version: Version) -> Vec<u8> {
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

pub(crate) fn numbers(g: &mut Gen, n: usize) -> Vec<u8> {
    (0..n).flat_map(|_| g.u64().to_be_bytes()).collect()
}

pub(crate) fn duration(g: &mut Gen) -> Vec<u8> {
    let nsec = match g.below(4) {
        0 => 0xffff_ffff,
        1 => 0,
        2 => 1_000_000 * g.below(1000) as u32,
        _ => g.below(1_000_000_000) as u32,
    };
    let sec = if nsec == 0xffff_ffff { nsec } else { g.u32() };
    cat(&[&sec.to_be_bytes(), &nsec.to_be_bytes()])
}

pub(crate) fn port_stats(g: &mut Gen, version: Version) -> Vec<u8> {
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
                // Open vSwitch's counters of RFC 2819, and its custom ones.
                2 => (0xffff, cat(&[&INTEL.to_be_bytes(), &1u32.to_be_bytes(), &g.pad(4), &numbers(g, 21)])),
                3 => (0xffff, cat(&[&INTEL.to_be_bytes(), &2u32.to_be_bytes(), &custom(g)])),
                _ => g.experimenter(),
            });
            entry(&cat(&[&g.pad(2), &port, &duration(g), &numbers(g, 8), &properties]))
        }
    }
}

/// Counters with names.
fn custom(g: &mut Gen) -> Vec<u8> {
    let n = g.below(4);
    let mut out = cat(&[&g.pad(2), &(n as u16).to_be_bytes()]);
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

pub(crate) fn queue_request(g: &mut Gen, version: Version) -> Vec<u8> {
    let port = g.port(version);
    let pad = if version == V10 { 2 } else { 0 };
    cat(&[&port, &g.pad(pad), &queue_id(g)])
}

pub(crate) fn queue_stats(g: &mut Gen, version: Version) -> Vec<u8> {
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

pub(crate) fn queue_config(g: &mut Gen, version: Version) -> Vec<u8> {
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

pub(crate) fn queue_desc(g: &mut Gen) -> Vec<u8> {
    let (port, id) = (g.port(V14), g.u32());
    let properties = rates(g, 0);
    let length = 16 + properties.len() as u16;
    cat(&[&port, &id.to_be_bytes(), &length.to_be_bytes(), &g.pad(6), &properties])
}

// Packets.

pub(crate) fn reason(g: &mut Gen) -> u8 {
    g.choice(5) as u8
}

fn buffer(g: &mut Gen) -> Vec<u8> {
    let id = if g.once_in(3) { g.u32() } else { u32::MAX };
    id.to_be_bytes().to_vec()
}

/// The length of a whole packet that begins with `data`.
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

pub(crate) fn packet_in(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
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

pub(crate) fn nx_packet_in(g: &mut Gen, pool: &Pool) -> Vec<u8> {
    let data = g.frame();
    let total = total(g, &data).to_be_bytes();
    let (matching, length) = nx_match(&metadata(pool, g));
    let head =
        cat(&[&buffer(g), &total, &[reason(g), g.u8()], &g.u64().to_be_bytes(), &length.to_be_bytes(), &g.pad(6)]);
    cat(&[&head, &matching, &g.pad(2), &data])
}

pub(crate) fn packet_in2(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
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

/// NXPINT_CONTINUATION, in the form of Open vSwitch.
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

pub(crate) fn packet_out(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
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

pub(crate) fn flow_mod(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
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

pub(crate) fn nx_flow_mod(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
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

pub(crate) fn flow_removed(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
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

pub(crate) fn nx_flow_removed(g: &mut Gen, pool: &Pool) -> Vec<u8> {
    let (bytes, length) = nx_match(&pool.any(g).0);
    let (reason, table) = (g.choice(6) as u8, g.u8());
    let head =
        cat(&[&g.u64().to_be_bytes(), &g.u16().to_be_bytes(), &[reason, table], &duration(g), &g.u16().to_be_bytes()]);
    cat(&[&head, &length.to_be_bytes(), &numbers(g, 2), &bytes])
}

/// OXS: statistics of OpenFlow 1.5.
pub(crate) fn stats_list(g: &mut Gen) -> Vec<u8> {
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

pub(crate) fn flow_request(g: &mut Gen, pool: &Pool, version: Version) -> (WireNumber, Vec<u8>) {
    let (matching, ..) = flow(g, pool, version);
    let ty = 1 + g.below(2) as u16;
    let table = g.u8();
    let port = g.port(version);
    if version == V10 {
        return (WireNumber::Request(ty), cat(&[&matching, &[table], &g.pad(1), &port]));
    }
    let mask = g.of(&[0, u64::MAX, 0xff]).to_be_bytes();
    let body = cat(&[&[table], &g.pad(3), &port, &group_id(g), &g.pad(4), &g.u64().to_be_bytes(), &mask, &matching]);
    (WireNumber::Request(ty), body)
}

pub(crate) fn nx_flow_request(g: &mut Gen, pool: &Pool) -> Vec<u8> {
    let mut bytes = openflow::wire::Writer::new();
    let cookie = g.once_in(3).then(|| (5 & g.u64(), 0xff));
    let length = encode_nx_match(&mut bytes, &pool.any(g).0, cookie) as u16;
    cat(&[&g.port(V10), &length.to_be_bytes(), &[g.u8()], &g.pad(3), &bytes])
}

pub(crate) fn flow_reply(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
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

pub(crate) fn nx_flow_stats(g: &mut Gen, pool: &Pool) -> Vec<u8> {
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

pub(crate) fn monitor10(g: &mut Gen, pool: &Pool) -> Vec<u8> {
    let matching = if g.once_in(2) { Match::ANY } else { pool.any(g).0 };
    let (bytes, length) = nx_match(&matching);
    let flags = g.flags(0x3f) as u16;
    let head =
        cat(&[&g.u32().to_be_bytes(), &flags.to_be_bytes(), &g.port(V10), &length.to_be_bytes(), &[g.u8()], &g.pad(5)]);
    cat(&[&head, &bytes])
}

/// In the form of the Open Networking Foundation's extension of OpenFlow 1.3.
pub(crate) fn monitor13(g: &mut Gen, pool: &Pool) -> Vec<u8> {
    let matching = if g.once_in(2) { Match::ANY } else { pool.any(g).0 };
    let bytes = of_match(&matching, V13);
    let flags = g.flags(0x3f) as u16;
    let head = cat(&[&g.u32().to_be_bytes(), &flags.to_be_bytes(), &bytes[2..4], &g.port(V13), &[g.u8()], &g.pad(3)]);
    cat(&[&head, &bytes])
}

pub(crate) fn monitor14(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
    let matching = if g.once_in(2) { Match::ANY } else { pool.any(g).0 };
    let (flags, command) = (g.flags(0x3f) as u16, g.choice(4) as u8);
    let head = cat(&[&g.u32().to_be_bytes(), &g.port(version), &group_id(g), &flags.to_be_bytes(), &[g.u8(), command]]);
    cat(&[&head, &of_match(&matching, version)])
}

pub(crate) fn update(g: &mut Gen, pool: &Pool, version: Version) -> Vec<u8> {
    let old = version < V14;
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
    let instructions = |g: &mut Gen| {
        let actions: Vec<Action> = actions.iter().filter(|a| !a.is_instruction()).cloned().collect();
        let mut out = openflow::wire::Writer::new();
        if g.once_in(2) {
            encode_instructions(&mut out, &actions, version, &matching);
        }
        out.to_vec()
    };
    if old {
        let (bytes, length, does) = if version == V13 {
            let bytes = of_match(&matching, V13);
            let length = u16::from_be_bytes([bytes[2], bytes[3]]);
            (bytes, length, instructions(g))
        } else {
            let (bytes, length) = nx_match(&matching);
            (bytes, length, does)
        };
        let head =
            cat(&[&event.to_be_bytes(), &reason.to_be_bytes(), &priority.to_be_bytes(), &times, &length.to_be_bytes()]);
        return entry(&cat(&[&head, &[g.u8()], &g.pad(1), &cookie, &bytes, &does]));
    }
    let head =
        cat(&[&event.to_be_bytes(), &[g.u8(), reason as u8], &times, &priority.to_be_bytes(), &g.pad(4), &cookie]);
    let does = instructions(g);
    entry(&cat(&[&head, &of_match(&matching, version), &does]))
}
