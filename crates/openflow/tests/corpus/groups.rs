//! Bodies of messages: groups and meters, tables, and Nicira's extensions.

use crate::bodies::{duration, numbers};
use crate::make::{Gen, cat, entry, padded, property};
use crate::messages::{Pool, action_list, several};
use Version::{V10, V11, V12, V14};
use openflow::Version;

// Groups and meters.

pub(crate) fn group_id(g: &mut Gen) -> Vec<u8> {
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

pub(crate) fn group_mod(g: &mut Gen, pool: &Pool, version: Version, new: bool) -> Vec<u8> {
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

pub(crate) fn group_desc(g: &mut Gen, pool: &Pool, version: Version, new: bool) -> Vec<u8> {
    let ty = g.choice(3) as u8;
    let buckets = several(g, 3, |g| bucket(g, pool, version, new));
    let head = cat(&[&[ty], &g.pad(1), &group_id(g)]);
    if !new {
        return entry(&cat(&[&head, &buckets]));
    }
    let length = (buckets.len() as u16).to_be_bytes();
    entry(&cat(&[&head, &length, &g.pad(6), &buckets, &group_properties(g)]))
}

pub(crate) fn group_stats(g: &mut Gen, timed: bool) -> Vec<u8> {
    let n = g.below(4) as usize;
    let head = cat(&[&g.pad(2), &group_id(g), &g.u32().to_be_bytes(), &g.pad(4), &numbers(g, 2)]);
    let times = if timed { duration(g) } else { Vec::new() };
    entry(&cat(&[&head, &times, &numbers(g, 2 * n)]))
}

pub(crate) fn group_features(g: &mut Gen) -> Vec<u8> {
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

pub(crate) fn meter_id(g: &mut Gen) -> Vec<u8> {
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

pub(crate) fn meter_mod(g: &mut Gen) -> Vec<u8> {
    let (command, flags) = (g.choice(2) as u16, g.of(&[1u16, 2, 5, 6, 9, 13, 0, 3, 15, 0x10]));
    cat(&[&command.to_be_bytes(), &flags.to_be_bytes(), &meter_id(g), &bands(g)])
}

pub(crate) fn meter_config(g: &mut Gen) -> Vec<u8> {
    let flags = g.flags(15) as u16;
    entry(&cat(&[&flags.to_be_bytes(), &meter_id(g), &bands(g)]))
}

pub(crate) fn meter_stats(g: &mut Gen) -> Vec<u8> {
    let n = g.below(4) as usize;
    let body = cat(&[&g.pad(6), &g.u32().to_be_bytes(), &numbers(g, 2), &duration(g), &numbers(g, 2 * n)]);
    let length = (body.len() + 6) as u16;
    cat(&[&meter_id(g), &length.to_be_bytes(), &body])
}

// Tables.

pub(crate) fn table_mod(g: &mut Gen, version: Version) -> Vec<u8> {
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

pub(crate) fn table_desc(g: &mut Gen, _: Version) -> Vec<u8> {
    let config = g.flags(12) as u32;
    entry(&cat(&[&[g.u8()], &g.pad(1), &config.to_be_bytes(), &table_properties(g)]))
}

pub(crate) fn table_stats(g: &mut Gen, version: Version) -> Vec<u8> {
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

pub(crate) fn table_features(g: &mut Gen, version: Version) -> Vec<u8> {
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
                    // Fields that accept masks, with their lengths; and others.
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

// Nicira's extensions.

pub(crate) fn tlv_maps(g: &mut Gen) -> Vec<u8> {
    several(g, 4, |g| {
        let length = if g.once_in(6) { g.u8() } else { 4 * (1 + g.below(31) as u8) };
        cat(&[&g.u16().to_be_bytes(), &[g.u8(), length], &(g.choice(63) as u16).to_be_bytes(), &g.pad(2)])
    })
}

pub(crate) fn ct_flush(g: &mut Gen) -> Vec<u8> {
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
