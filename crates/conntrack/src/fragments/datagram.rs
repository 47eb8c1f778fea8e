//! A reassembled datagram, and its division into the original fragments.

use packet::checksum::{checksum, update32};
use packet::wire::{Ipv4, Ipv6};
use packet::{Offload, Packet};

use super::Family;
use super::list::{FRAGMENT_HEADER, List, Piece, V6_HEADER};

/// Flags and fragment offset of an IPv4 header, without the flag "don't fragment".
const V4_FRAGMENT_BITS: u16 = 0x3fff;
/// The flag "more fragments" of IPv4.
const V4_MORE: u16 = 0x2000;
/// The flag "more fragments" in the fourth byte of an IPv6 fragment header.
const V6_MORE: u8 = 1;
/// Addresses in an IPv4 header.
const V4_ADDRESSES: std::ops::Range<usize> = 12..20;
/// Addresses in an IPv6 header.
const V6_ADDRESSES: std::ops::Range<usize> = 8..40;

/// A complete datagram.
///
/// The caller tracks [`Datagram::whole`], and then divides the datagram. If the datagram is dropped instead, the caller
/// counts [`Datagram::fragments`] dropped packets.
#[derive(Debug)]
pub struct Datagram {
    /// The reassembled packet, with the headers and the metadata of the first fragment. Its IP header has the right
    /// lengths and checksum; an IPv6 fragment header is removed. The payload of an IPv6 fragment may begin with another
    /// fragment header: the packet is then invalid.
    pub whole: Packet,
    /// The port on which the fragment that arrived first was received.
    pub in_port: u32,
    pieces: Vec<Piece>,
    family: Family,
    /// Offset of the IP header of `whole`.
    l3: usize,
    /// Where the payload begins in `whole`.
    payload: usize,
    /// Length of the payload at reassembly.
    len: usize,
}

impl Datagram {
    /// Reassembles a complete list.
    pub(super) fn assemble(list: List, family: Family) -> Self {
        let in_port = list.in_port;
        let pieces = list.into_pieces();
        let (first, last) = (pieces.first(), pieces.last());
        let (first, len) = first.zip(last.map(Piece::stop)).expect("a complete list has pieces");
        let headers = &first.packet.data()[..first.payload];
        let headers = if family == Family::V6 { &headers[..first.payload - FRAGMENT_HEADER] } else { headers };
        let mut bytes = Vec::with_capacity(packet::buf::HEADROOM + headers.len() + len);
        bytes.resize(packet::buf::HEADROOM, 0);
        bytes.extend_from_slice(headers);
        for piece in &pieces {
            bytes.extend_from_slice(piece.bytes());
        }
        let mut whole = Packet::from_vec(bytes, packet::buf::HEADROOM).expect("the headroom is there");
        whole.copy_metadata(&first.packet);
        whole.offload = Offload::default();
        let (l3, payload) = (first.l3, headers.len());
        match family {
            Family::V4 => complete_v4(&mut whole.data_mut()[l3..], payload - l3),
            Family::V6 => {
                let proto = first.packet.data()[first.payload - FRAGMENT_HEADER];
                let frame = whole.data_mut();
                frame[first.next_header] = proto;
                let len = frame.len() - l3 - V6_HEADER;
                Ipv6::new_checked(&mut frame[l3..]).expect("a piece has the header").set_payload_len(len as u16);
            }
        }
        Self { whole, in_port, pieces, family, l3, payload, len }
    }

    /// Number of fragments.
    pub fn fragments(&self) -> usize {
        self.pieces.len()
    }

    /// Appends the fragments to `out`, in the order of their offsets. Each has the connection state and the addresses of
    /// `whole`, and its part of the payload of `whole`, so that translated ports and checksums are in the first one.
    ///
    /// If a helper has changed the length of the payload, the last fragment is longer or shorter than it was, or the last
    /// ones are missing.
    pub fn divide(self, out: &mut Vec<Packet>) {
        let Self { whole, mut pieces, family, l3, payload, len, .. } = self;
        let headers = whole.data().get(l3..payload).unwrap_or_default();
        let bytes = whole.data().get(payload..).unwrap_or_default();
        if bytes.len() != len {
            resize(&mut pieces, bytes, family);
        }
        for mut piece in pieces {
            set_addresses(&mut piece, headers, family);
            let part = &bytes[piece.start..piece.stop()];
            if part != piece.bytes() {
                piece.packet.data_mut()[piece.payload..piece.end].copy_from_slice(part);
            }
            if let Some(metadata) = whole.metadata() {
                let connection = &mut piece.packet.metadata_mut().connection;
                connection.clone_from(&metadata.connection);
                // The actions for the other fragments may be different ones, so that each action collects all of them again.
                connection.is_current = false;
            }
            out.push(piece.packet);
        }
    }
}

/// Gives a reassembled IPv4 packet its length and checksum, and clears its fragment bits.
fn complete_v4(packet: &mut [u8], header_len: usize) {
    let len = packet.len() as u16;
    let header = &mut packet[..header_len];
    let mut ip = Ipv4::new_checked(&mut *header).expect("a piece has the header");
    ip.set_total_len(len);
    ip.set_flags_offset(ip.flags_offset() & !V4_FRAGMENT_BITS);
    set_v4_checksum(header);
}

fn set_v4_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let sum = checksum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Writes the addresses of another header into that of a fragment, if they differ.
fn set_addresses(piece: &mut Piece, from: &[u8], family: Family) {
    let range = if family == Family::V6 { V6_ADDRESSES } else { V4_ADDRESSES };
    let Some(addresses) = from.get(range.clone()) else { return };
    if &piece.packet.data()[piece.l3..][range.clone()] == addresses {
        return;
    }
    let header = &mut piece.packet.data_mut()[piece.l3..];
    if family == Family::V4 {
        let mut sum = u16::from_be_bytes([header[10], header[11]]);
        for (old, new) in header[range.clone()].chunks_exact(4).zip(addresses.chunks_exact(4)) {
            sum = update32(sum, word(old), word(new));
        }
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    header[range].copy_from_slice(addresses);
}

fn word(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// Adapts the pieces to a payload of another length.
#[cold]
fn resize(pieces: &mut Vec<Piece>, bytes: &[u8], family: Family) {
    let n = pieces.partition_point(|piece| piece.start < bytes.len()).max(1);
    pieces.truncate(n);
    let Some(last) = pieces.last_mut() else { return };
    let part = &bytes[last.start.min(bytes.len())..];
    last.packet.truncate(last.payload);
    last.packet.append(part);
    last.end = last.payload + part.len();
    last.more = false;
    let (l3, header_len, len) = (last.l3, last.payload - last.l3, last.end - last.l3);
    let header = &mut last.packet.data_mut()[l3..][..header_len];
    if family == Family::V6 {
        header[header_len - FRAGMENT_HEADER + 3] &= !V6_MORE;
        let mut ip = Ipv6::new_checked(header).expect("a piece has the header");
        ip.set_payload_len((len - V6_HEADER) as u16);
    } else {
        let mut ip = Ipv4::new_checked(&mut *header).expect("a piece has the header");
        ip.set_total_len(len as u16);
        ip.set_flags_offset(ip.flags_offset() & !V4_MORE);
        set_v4_checksum(header);
    }
}
