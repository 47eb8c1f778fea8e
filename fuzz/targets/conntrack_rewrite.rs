//! Address translation of any frame that can be tracked, to any tuple and back: correct checksums stay correct, and the
//! frame is again what it was.
#![no_main]

use base::PortNo;
use conntrack::Key;
use conntrack::action::Translated;
use conntrack::nat::rewrite::{translate, translate_error};
use conntrack::parse::parse;
use flow::{compose, extract};
use fuzz::Input;
use packet::checksum::{Verdict, verify};
use packet::{Checksum, Packet};

fuzz::target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let raw = input.frame();
    let (flow, _) = extract(raw, PortNo(1));
    // The raw frame, or a valid one of the same kind.
    let frame = if input.below(2) == 0 || flow.eth_type() == 0 { raw.to_vec() } else { compose(&flow, b"payload") };
    let mut packet = Packet::from_slice(&frame);
    packet.offload.checksum = match input.below(3) {
        0 => Checksum::Unknown,
        1 => Checksum::Good,
        _ => Checksum::Partial { start: input.number(1) as u16, offset: input.number(1) as u16 },
    };
    let known = packet.offload.checksum == Checksum::Unknown;
    let before = verify(&frame);
    if let Ok(parsed) = parse(&packet, 0) {
        let to = target(&mut input, &parsed.key);
        rewrite(&mut packet, &to);
        let after = verify(packet.data());
        assert!(!known || before != Verdict::Good || after == Verdict::Good, "{frame:02x?} {to:?}");
        if let Ok(again) = parse(&packet, 0) {
            assert_eq!(again.key, to, "{frame:02x?}");
            rewrite(&mut packet, &parsed.key);
            assert!(same(packet.data(), &frame), "{frame:02x?} {to:?} {:02x?}", packet.data());
        } else {
            assert!(!known, "{frame:02x?} {to:?}");
        }
    }
});

/// Another tuple of the same kind as `from`.
fn target(input: &mut Input<'_>, from: &Key) -> Key {
    let mut address = || [if from.is_v6 { input.number(8) as u64 } else { 0 }, input.number(4) as u64];
    let (src, dst) = (address(), address());
    let mut port = |old: u16| if old == 0 { 0 } else { (input.number(2) as u16).max(1) };
    let src_port = port(from.src_port);
    let dst_port = if from.is_icmp() { from.dst_port } else { port(from.dst_port) };
    Key { src, dst, src_port, dst_port, ..*from }
}

fn rewrite(packet: &mut Packet, to: &Key) {
    let Ok(parsed) = parse(packet, 0) else { return };
    if parsed.embedded.is_some() {
        translate_error(packet, &parsed, to);
    } else {
        translate(packet, &parsed, to, Translated::new(true, true));
    }
}

/// Returns true if two frames are equal, but for checksums of all zeros and all ones, which are the same number.
fn same(a: &[u8], b: &[u8]) -> bool {
    let is_zero = |bytes: &[u8], at: usize| {
        let pair = |at: usize| bytes.get(at..at + 2).is_some_and(|pair| pair == [0, 0] || pair == [0xff, 0xff]);
        pair(at) || at.checked_sub(1).is_some_and(pair)
    };
    a.len() == b.len() && (0..a.len()).all(|at| a[at] == b[at] || is_zero(a, at) && is_zero(b, at))
}
