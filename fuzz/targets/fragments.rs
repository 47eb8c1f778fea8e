//! Fragments in any order, with any offsets and lengths: no packet is lost, reassembled packets are consistent, and the
//! fragments of a datagram continue with its addresses and bytes.
#![no_main]

use base::Millis;
use conntrack::fragments::{BYTES_MAX, Datagram, Family, Fragments, Taken};
use conntrack::parse::Fragment;
use fuzz::Input;
use packet::Packet;
use packet::checksum::checksum;

/// A fragment of one of a few datagrams, its description, and whether the description is wrong. Its payload depends only on its offset and the datagram.
fn fragment(input: &mut Input<'_>) -> (Packet, Fragment, bool) {
    let (what, id) = (input.number(1) as u8, input.number(1) as u8 & 3);
    let (is_v6, more, options) = (what & 1 != 0, what & 2 != 0, usize::from(what >> 2 & 3));
    let offset = if what & 16 != 0 { 8 * (input.number(2) as usize & 0x1fff) } else { 56 * 8 * input.below(4) };
    let len = if what & 32 != 0 { input.number(2) as usize % 3000 } else { 56 * 8 };
    let mut frame = vec![2; 12];
    frame.extend([[8, 0], [0x86, 0xdd]][usize::from(is_v6)]);
    let l3 = frame.len();
    let bits = if is_v6 { offset | usize::from(more) } else { (offset / 8) | (usize::from(more) << 13) } as u16;
    if is_v6 {
        frame.extend([0x60, 0, 0, 0]);
        frame.extend(((8 * (options + 1) + len) as u16).to_be_bytes());
        frame.extend([if options > 0 { 60 } else { 44 }, 64]);
        frame.extend([0xfd; 32]);
        (0..options).for_each(|n| frame.extend([if n + 1 < options { 60 } else { 44 }, 0, 1, 4, 0, 0, 0, 0]));
        frame.extend([17, 0]);
        frame.extend(bits.to_be_bytes());
        frame.extend([0, 0, 0, id]);
    } else {
        let header = 20 + 4 * options;
        frame.extend([0x40 | (header / 4) as u8, 0]);
        frame.extend(((header + len) as u16).to_be_bytes());
        frame.extend([0, id]);
        frame.extend(bits.to_be_bytes());
        frame.extend([64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        frame.resize(l3 + header, 1);
        let sum = checksum(&frame[l3..]);
        frame[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
    }
    let payload = frame.len();
    frame.extend((offset..offset + len).map(|at| byte(at, id)));
    let (header, end) = (if is_v6 { payload - 8 } else { l3 }, frame.len());
    if what & 64 != 0 {
        frame.resize(frame.len() + input.below(30), 0xee);
    }
    let mut at = Fragment { l3, header, payload, end, is_v6, offset, more, id: id.into(), proto: 17 };
    let is_mangled = what & 128 != 0 && input.below(8) == 0;
    if is_mangled {
        at = Fragment { l3: input.number(2) as usize, payload: input.number(2) as usize, ..at };
        at = Fragment { header: input.number(2) as usize, end: input.number(2) as usize, ..at };
    }
    (Packet::from_slice(&frame), at, is_mangled)
}

fn byte(at: usize, id: u8) -> u8 {
    (at.wrapping_mul(7) ^ at >> 8) as u8 ^ id
}

/// Checks a datagram, and its fragments after a change of addresses and payload.
fn finish(mut datagram: Datagram, is_mangled: bool, input: &mut Input<'_>) -> usize {
    let n = datagram.fragments();
    let frame = datagram.whole.data();
    if is_mangled {
        datagram.divide(&mut Vec::new());
        return n;
    }
    let ip = packet::wire::ip(frame).expect("a whole packet");
    assert!(!ip.fragment && ip.end == frame.len() && ip.proto == 17);
    assert!(ip.version == 6 || checksum(&frame[14..14 + ip.header]) == 0);
    let id = frame[ip.l4..].first().map_or(0, |first| first ^ byte(0, 0));
    assert!(frame[ip.l4..].iter().enumerate().all(|(at, found)| *found == byte(at, id)));
    let addresses = if ip.version == 6 { 22..54 } else { 26..34 };
    let changes = input.number(1) as u8;
    let (l4, whole) = (ip.l4, datagram.whole.data_mut());
    whole[addresses.clone()].iter_mut().for_each(|byte| *byte ^= changes);
    if let Some(byte) = whole[l4..].last_mut() {
        *byte ^= changes;
    }
    let mut payload = whole[l4..].to_vec();
    if changes & 7 == 7 {
        let len = input.number(2) as usize % 3000 + 1;
        payload.resize(len, 0);
        datagram.whole.truncate(l4 + len);
        datagram.whole.append(&vec![0; (l4 + len).saturating_sub(datagram.whole.len())]);
    }
    let (addresses_now, mut out, mut start) = (datagram.whole.data()[addresses.clone()].to_vec(), Vec::new(), 0);
    datagram.divide(&mut out);
    for packet in &out {
        let frame = packet.data();
        let ip = packet::wire::ip(frame).expect("a fragment");
        assert!(ip.version == 6 || checksum(&frame[14..14 + ip.header]) == 0);
        assert_eq!(frame[addresses.clone()], addresses_now);
        assert_eq!(frame[ip.l4..ip.end], payload[start..start + ip.end - ip.l4]);
        start += ip.end - ip.l4;
    }
    assert!(start == payload.len() && out.len() <= n && !out.is_empty());
    n
}

fuzz::target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let mut fragments = Fragments::new();
    for family in [Family::V4, Family::V6] {
        fragments.set_min_size(family, 400).expect("the smallest size");
    }
    fragments.set_max_fragments([5000, 8][input.below(2)]).expect("at most 5000");
    let (mut held, mut now, mut is_mangled) = (0, 0, false);
    while !input.is_empty() {
        let mut dropped = Vec::new();
        match input.below(16) {
            0 => now += 4_000 * input.number(1) as u64,
            1 => fragments.expire(Millis(now), &mut dropped),
            2 => fragments.sweep(Millis(now), &mut dropped),
            3 => fragments.set_enabled([Family::V4, Family::V6][input.below(2)], input.below(2) == 0),
            4 if input.below(8) == 0 => fragments.clear(&mut dropped),
            _ => {
                let (packet, at, wrong) = fragment(&mut input);
                is_mangled |= wrong;
                held += 1;
                match fragments.take(packet, &at, 5, 1, Millis(now)) {
                    Taken::Held => {}
                    Taken::Pass(..) => held -= 1,
                    Taken::Complete(datagram) => held -= finish(datagram, is_mangled, &mut input),
                }
            }
        }
        held -= dropped.len();
        let status = fragments.status();
        assert_eq!(status.fragments, held);
        assert_eq!(fragments.lists().map(|list| list.fragments).sum::<usize>(), held);
        assert!(held <= status.max_fragments as usize && held * 400 < BYTES_MAX);
    }
});
