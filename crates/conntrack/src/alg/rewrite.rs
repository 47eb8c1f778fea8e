//! Changes of TCP segments: their sequence numbers and their text, with all lengths and checksums.
//!
//! Checksums are updated by the difference (RFC 1624), so that they are as good as before, in whichever order this happens
//! with the translation of addresses. A partial checksum only covers the length. Offsets that lie outside of the frame
//! change nothing.

use std::ops::Range;

use packet::checksum::{Sum, update16, update32_partial};
use packet::wire::{Ipv4, Ipv6, Tcp};
use packet::{Checksum, Packet};

use crate::alg::sequence::Shift;
use crate::parse::Parsed;

/// Bytes of a TCP header without options.
const TCP_HEADER: usize = 20;
/// The option with selective acknowledgements (RFC 2018 section 3).
const SACK: u8 = 5;

/// Where the payload of a TCP segment is in the frame; `None` for a segment whose lengths contradict each other.
pub fn payload(packet: &Packet, parsed: &Parsed) -> Option<Range<usize>> {
    let segment = packet.data().get(parsed.l4..parsed.end)?;
    let header = Tcp::new_checked(segment).ok()?.header_len();
    (header >= TCP_HEADER && header <= segment.len()).then(|| parsed.l4 + header..parsed.end)
}

/// Returns true if the checksum of the segment is still to be completed.
fn is_partial(packet: &Packet, parsed: &Parsed) -> bool {
    matches!(packet.offload.checksum, Checksum::Partial { start, .. } if usize::from(start) == parsed.l4)
}

/// Shifts the sequence number of a segment.
pub fn shift_seq(packet: &mut Packet, parsed: &Parsed, shift: &mut Shift) {
    edit_header(packet, parsed, |header| {
        let Ok(mut tcp) = Tcp::new_checked(header) else { return };
        let seq = shift.forward(tcp.seq());
        tcp.set_seq(seq);
    });
}

/// Shifts the acknowledgements of a segment back, including selective ones; `shift` is that of the other direction.
pub fn shift_ack(packet: &mut Packet, parsed: &Parsed, shift: &Shift) {
    const ACK: u16 = 0x10;
    edit_header(packet, parsed, |header| {
        let Ok(mut tcp) = Tcp::new_checked(&mut *header) else { return };
        if tcp.flags() & ACK == 0 {
            return;
        }
        let ack = shift.backward(tcp.ack());
        tcp.set_ack(ack);
        let mut options = &mut header[TCP_HEADER..];
        loop {
            let len = match *options {
                [] | [0, ..] => return,
                [1, ..] => 1,
                [_, len, ..] if len >= 2 => usize::from(len),
                _ => return,
            };
            let Some((option, rest)) = options.split_at_mut_checked(len) else { return };
            if option[0] == SACK {
                for edge in option[2..].as_chunks_mut::<4>().0 {
                    *edge = shift.backward(u32::from_be_bytes(*edge)).to_be_bytes();
                }
            }
            options = rest;
        }
    });
}

/// Edits the header of a segment, which has a valid length, without its ports.
fn edit_header(packet: &mut Packet, parsed: &Parsed, edit: impl FnOnce(&mut [u8])) {
    let Some(payload) = payload(packet, parsed) else { return };
    let is_partial = is_partial(packet, parsed);
    let header = &mut packet.data_mut()[parsed.l4..payload.start];
    let before = Sum::new().bytes(header).partial();
    edit(header);
    let after = Sum::new().bytes(header).partial();
    if !is_partial
        && before != after
        && let Ok(mut tcp) = Tcp::new_checked(header)
    {
        let checksum = update16(tcp.checksum(), before, after);
        tcp.set_checksum(checksum);
    }
}

/// Replaces the bytes `span` of the payload by `text`. Returns false, and changes nothing, if they are not there, or if the
/// packet would become too long. The end of the packet moves by the difference of the lengths.
#[cold]
pub fn replace(packet: &mut Packet, parsed: &Parsed, span: Range<usize>, text: &[u8]) -> bool {
    let Some(payload) = payload(packet, parsed) else { return false };
    if span.start > span.end || span.end > payload.len() || parsed.l3 > parsed.l4 {
        return false;
    }
    let old = parsed.end - parsed.l4;
    let new = old - span.len() + text.len();
    if parsed.l4 - parsed.l3 + new > usize::from(u16::MAX) {
        return false;
    }
    let is_partial = is_partial(packet, parsed);
    let before = Sum::new().bytes(&packet.data()[parsed.l4..parsed.end]).partial();
    let at = payload.start + span.start;
    if text.len() > span.len() {
        packet.insert(at, text.len() - span.len());
    } else {
        packet.remove(at, span.len() - text.len());
    }
    let data = packet.data_mut();
    data[at..at + text.len()].copy_from_slice(text);
    set_ip_length(&mut data[parsed.l3..], old, new);
    let segment = &mut data[parsed.l4..parsed.l4 + new];
    let after = Sum::new().bytes(segment).partial();
    if let Ok(mut tcp) = Tcp::new_checked(segment) {
        let checksum = if is_partial {
            update32_partial(tcp.checksum(), old as u32, new as u32)
        } else {
            update16(update16(tcp.checksum(), before, after), old as u16, new as u16)
        };
        tcp.set_checksum(checksum);
    }
    true
}

/// Changes the length of an IP packet whose transport part grew from `old` to `new` bytes.
fn set_ip_length(ip: &mut [u8], old: usize, new: usize) {
    let changed = |len: u16| len.wrapping_add(new as u16).wrapping_sub(old as u16);
    match ip.first().map(|byte| byte >> 4) {
        Some(4) => {
            let Ok(mut ip) = Ipv4::new_checked(ip) else { return };
            let len = ip.total_len();
            let checksum = update16(ip.checksum(), len, changed(len));
            ip.set_total_len(changed(len));
            ip.set_checksum(checksum);
        }
        Some(6) => {
            let Ok(mut ip) = Ipv6::new_checked(ip) else { return };
            ip.set_payload_len(changed(ip.payload_len()));
        }
        _ => {}
    }
}
