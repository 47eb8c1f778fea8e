//! Frames for tuples, and their fragments.

use super::packets::{Flow, network, seal};

/// Offsets of fragments count in units of this many bytes.
const UNIT: usize = 8;

/// A frame with a packet of the tuple's addresses and protocol, and valid checksums.
pub(crate) fn frame(flow: &Flow, l4: &[u8], id: u16, is_tagged: bool, partial: bool) -> Vec<u8> {
    let mut frame = vec![2; 12];
    if is_tagged {
        frame.extend([0x81, 0, 0, 5]);
    }
    frame.extend(if flow.v6 { [0x86, 0xdd] } else { [8, 0] });
    let l3 = frame.len();
    frame.extend(packet(flow, l4, id));
    seal(&mut frame, l3, partial);
    frame
}

/// An IP packet without checksums.
pub(crate) fn packet(flow: &Flow, l4: &[u8], id: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    if flow.v6 {
        bytes.extend([0x60, 0, 0, 0]);
        bytes.extend((l4.len() as u16).to_be_bytes());
        bytes.extend([flow.proto, 64]);
        bytes.extend(flow.src.to_be_bytes());
        bytes.extend(flow.dst.to_be_bytes());
    } else {
        bytes.extend([0x45, 0]);
        bytes.extend((20 + l4.len() as u16).to_be_bytes());
        bytes.extend(id.to_be_bytes());
        bytes.extend([0, 0, 64, flow.proto, 0, 0]);
        bytes.extend((flow.src as u32).to_be_bytes());
        bytes.extend((flow.dst as u32).to_be_bytes());
    }
    bytes.extend(l4);
    bytes
}

pub(crate) fn ports(flow: &Flow) -> Vec<u8> {
    [flow.a.to_be_bytes(), flow.b.to_be_bytes()].concat()
}

pub(crate) fn tcp(flow: &Flow, seq: u32, ack: u32, flags: u8, window: u16, options: &[u8], text: &[u8]) -> Vec<u8> {
    let mut l4 = ports(flow);
    l4.extend(seq.to_be_bytes());
    l4.extend(ack.to_be_bytes());
    l4.extend([(((20 + options.len()) / 4) << 4) as u8, flags]);
    l4.extend(window.to_be_bytes());
    l4.extend([0; 4]);
    l4.extend(options);
    l4.extend(text);
    l4
}

/// A UDP datagram, with a mark in place of the checksum unless it has none.
pub(crate) fn udp(flow: &Flow, text: &[u8], has_checksum: bool) -> Vec<u8> {
    let mut l4 = ports(flow);
    l4.extend((8 + text.len() as u16).to_be_bytes());
    l4.extend(if has_checksum { [1, 1] } else { [0, 0] });
    l4.extend(text);
    l4
}

pub(crate) fn icmp(flow: &Flow, text: &[u8]) -> Vec<u8> {
    let mut l4 = flow.b.to_be_bytes().to_vec();
    l4.extend([0, 0]);
    l4.extend(flow.a.to_be_bytes());
    l4.extend([0, 1]);
    l4.extend(text);
    l4
}

pub(crate) fn sctp(flow: &Flow, tag: u32, kind: u8, body: &[u8]) -> Vec<u8> {
    let mut l4 = ports(flow);
    l4.extend(tag.to_be_bytes());
    l4.extend([0, 0, 0, 0, kind, 0]);
    l4.extend((4 + body.len() as u16).to_be_bytes());
    l4.extend(body);
    l4
}

/// The fragments of a frame whose IP payload is cut at these units of 8 bytes.
pub(crate) fn fragments(frame: &[u8], cuts: &[usize], id: u16) -> Vec<Vec<u8>> {
    let l3 = network(frame);
    let v6 = frame[l3] >> 4 == 6;
    let l4 = l3 + if v6 { 40 } else { 20 };
    let payload = &frame[l4..];
    let mut bounds = vec![0];
    bounds.extend(cuts.iter().map(|units| units * UNIT));
    bounds.push(payload.len());
    let one = |pair: &[usize]| {
        let more = pair[1] < payload.len();
        let mut bytes = frame[..l4].to_vec();
        if v6 {
            bytes.extend([bytes[l3 + 6], 0]);
            bytes.extend((pair[0] as u16 | u16::from(more)).to_be_bytes());
            bytes.extend(u32::from(id).to_be_bytes());
            bytes[l3 + 6] = 44;
        } else {
            let field = (pair[0] / UNIT) as u16 | u16::from(more) << 13;
            bytes[l3 + 6..l3 + 8].copy_from_slice(&field.to_be_bytes());
        }
        bytes.extend(&payload[pair[0]..pair[1]]);
        if v6 {
            let len = (bytes.len() - l3 - 40) as u16;
            bytes[l3 + 4..l3 + 6].copy_from_slice(&len.to_be_bytes());
        } else {
            let len = (bytes.len() - l3) as u16;
            bytes[l3 + 2..l3 + 4].copy_from_slice(&len.to_be_bytes());
            bytes[l3 + 10..l3 + 12].fill(0);
            let sum = packet::checksum::checksum(&bytes[l3..l3 + 20]);
            bytes[l3 + 10..l3 + 12].copy_from_slice(&sum.to_be_bytes());
        }
        bytes
    };
    bounds.windows(2).map(one).collect()
}
