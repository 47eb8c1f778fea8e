//! The Internet checksum (RFC 1071), its incremental update (RFC 1624), and CRC32c for SCTP.
//!
//! The byte order and the grouping of the 16-bit words do not matter to a ones' complement sum, as long as the result
//! is read in the same order. So sums run over 64-bit loads in memory order and are folded and swapped once at the end.

use crate::buf::{Checksum, Packet};
use crate::wire::{self, Transport};

/// A running ones' complement sum of 16-bit words. Only the last slice added may have an odd length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// The sum of no bytes.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds bytes, padding an odd last byte with a zero.
    #[must_use]
    pub fn bytes(self, data: &[u8]) -> Self {
        self.bytes_here(data)
    }

    /// As [`Self::bytes`], as a part of its caller.
    #[inline(always)]
    #[must_use]
    pub fn bytes_here(self, data: &[u8]) -> Self {
        let mut sum: u128 = 0;
        let mut rest = data;
        while let Some((words, after)) = rest.split_first_chunk::<32>() {
            sum += word_at::<0>(words) + word_at::<8>(words) + word_at::<16>(words) + word_at::<24>(words);
            rest = after;
        }
        if let Some((words, after)) = rest.split_first_chunk::<16>() {
            sum += word_at::<0>(words) + word_at::<8>(words);
            rest = after;
        }
        if let Some((word, after)) = rest.split_first_chunk::<8>() {
            sum += word_at::<0>(word);
            rest = after;
        }
        sum += u128::from(last_word(data, rest));
        // Folding 128 bits twice leaves 64: the first fold yields at most 2^64 - 1 plus a small carry.
        let folded = (sum & u128::from(u64::MAX)) + (sum >> 64);
        let folded = (folded as u64).wrapping_add((folded >> 64) as u64);
        Self(self.0 + (folded & 0xffff_ffff) + (folded >> 32))
    }

    /// Adds an IPv4 header without options.
    #[inline(always)]
    #[must_use]
    pub fn ipv4_header(self, header: &[u8; 20]) -> Self {
        let (words, _) = header.as_chunks::<4>();
        Self(words.iter().fold(self.0, |sum, word| sum + u64::from(u32::from_ne_bytes(*word))))
    }

    /// Adds a 16-bit word.
    #[inline]
    #[must_use]
    pub fn u16(self, n: u16) -> Self {
        Self(self.0 + u64::from(n.to_be()))
    }

    /// Adds a 32-bit number.
    #[inline]
    #[must_use]
    pub fn u32(self, n: u32) -> Self {
        Self(self.0 + u64::from(n.to_be()))
    }

    /// The folded sum, not complemented: the content of the checksum field of a [`Checksum::Partial`] packet.
    #[inline]
    pub fn partial(self) -> u16 {
        u16::from_be(fold(self.0))
    }

    /// The checksum: the complement of the sum.
    #[inline]
    pub fn finish(self) -> u16 {
        !self.partial()
    }

    /// Returns true if the sum is that of bytes with their own valid checksum, so that [`Self::finish`] returns 0. It needs
    /// no folding: 2^16 is 1 modulo 0xffff.
    #[inline]
    pub fn is_valid(self) -> bool {
        self.0 != 0 && self.0.is_multiple_of(0xffff)
    }
}

impl std::ops::Add for Sum {
    type Output = Self;

    /// The sum of all words of both.
    #[inline]
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

/// The word at `AT`, in memory order.
#[inline(always)]
fn word_at<const AT: usize>(bytes: &[u8]) -> u128 {
    let word = std::array::from_fn(|i| bytes[AT + i]);
    u64::from_ne_bytes(word).into()
}

/// The word that begins with `tail`, the last bytes of `data`, fewer than 8, and continues with zeros.
#[inline]
fn last_word(data: &[u8], tail: &[u8]) -> u64 {
    // In little endian the first byte is the lowest.
    let word = match (data.last_chunk::<8>(), tail.len()) {
        (_, 0) => 0,
        // Shifts out the bytes in front of the tail: cheaper than a copy of a length that is known only here.
        (Some(last), len) => u64::from_le_bytes(*last) >> (64 - 8 * len),
        (None, _) => tail.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    word.to_le()
}

/// Folds 64 bits to 16 with end-around carries.
#[inline]
fn fold(sum: u64) -> u16 {
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16 & 0xffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    sum as u16
}

/// The checksum of `data`. The result is 0 if `data` contains its own valid checksum.
#[inline]
pub fn checksum(data: &[u8]) -> u16 {
    Sum::new().bytes(data).finish()
}

/// The sum of an IPv4 pseudo-header (RFC 9293 section 3.1).
#[inline]
pub fn pseudo_v4(src: [u8; 4], dst: [u8; 4], proto: u8, len: u16) -> Sum {
    // Words in memory order, as in `Sum`. Four words of at most 32 bits do not overflow.
    let addresses = u64::from(u32::from_ne_bytes(src)) + u64::from(u32::from_ne_bytes(dst));
    Sum(addresses + u64::from(u16::from(proto).to_be()) + u64::from(len.to_be()))
}

/// The sum of an IPv6 pseudo-header (RFC 8200 section 8.1).
pub fn pseudo_v6(src: &[u8; 16], dst: &[u8; 16], proto: u8, len: u32) -> Sum {
    Sum::new().bytes(src).bytes(dst).u32(len).u16(proto.into())
}

/// Updates a checksum after a 16-bit word that it covers changed from `old` to `new` (RFC 1624, equation 3).
#[inline]
pub fn update16(checksum: u16, old: u16, new: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!old) + u32::from(new);
    let sum = (sum & 0xffff) + (sum >> 16);
    !(((sum & 0xffff) + (sum >> 16)) as u16)
}

/// Like [`update16`], for 32 bits at an even offset.
pub fn update32(checksum: u16, old: u32, new: u32) -> u16 {
    let checksum = update16(checksum, (old >> 16) as u16, (new >> 16) as u16);
    update16(checksum, old as u16, new as u16)
}

/// Like [`update16`], for 48 bits at an even offset.
pub fn update48(checksum: u16, old: u64, new: u64) -> u16 {
    update32(update16(checksum, (old >> 32) as u16, (new >> 32) as u16), old as u32, new as u32)
}

/// Like [`update16`], for 128 bits at an even offset.
pub fn update128(checksum: u16, old: u128, new: u128) -> u16 {
    let mut checksum = checksum;
    for shift in [96, 64, 32, 0] {
        checksum = update32(checksum, (old >> shift) as u32, (new >> shift) as u32);
    }
    checksum
}

/// Updates the checksum field of a [`Checksum::Partial`] packet after 32 bits of its pseudo-header changed. The field
/// holds the uncomplemented sum of the pseudo-header alone, so changes of ports and payload leave it as it is.
pub fn update32_partial(sum: u16, old: u32, new: u32) -> u16 {
    !update32(!sum, old, new)
}

/// Like [`update32_partial`], for 128 bits.
pub fn update128_partial(sum: u16, old: u128, new: u128) -> u16 {
    !update128(!sum, old, new)
}

/// CRC32c of RFC 9260 appendix A. SCTP stores it in little endian.
pub fn crc32c(data: &[u8]) -> u32 {
    !crc32c_more(u32::MAX, data)
}

/// The CRC32c of an SCTP packet, whose checksum field counts as zero; `None` if its header is truncated.
pub fn crc32c_sctp(packet: &[u8]) -> Option<u32> {
    let (before, rest) = packet.split_first_chunk::<8>()?;
    let (_, after) = rest.split_first_chunk::<4>()?;
    Some(!crc32c_more(crc32c_more(crc32c_more(u32::MAX, before), &[0; 4]), after))
}

/// Continues a CRC with more bytes, eight at a time.
fn crc32c_more(mut crc: u32, data: &[u8]) -> u32 {
    let mut words = data.chunks_exact(8);
    for w in &mut words {
        let mut word = [0; 8];
        word.copy_from_slice(w);
        let bytes = (u64::from_le_bytes(word) ^ u64::from(crc)).to_le_bytes();
        crc = bytes.iter().zip(CRC32C.iter().rev()).fold(0, |crc, (byte, table)| crc ^ table[usize::from(*byte)]);
    }
    words.remainder().iter().fold(crc, |crc, b| CRC32C[0][usize::from(crc as u8 ^ b)] ^ crc >> 8)
}

/// For a number of zero bytes that follow, the CRC of each byte.
static CRC32C: [[u32; 256]; 8] = {
    let mut tables = [[0; 256]; 8];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        tables[0][i] = crc;
        i += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut i = 0;
        while i < 256 {
            let shorter = tables[zeros - 1][i];
            tables[zeros][i] = tables[0][(shorter & 0xff) as usize] ^ shorter >> 8;
            i += 1;
        }
        zeros += 1;
    }
    tables
};

/// Offset of the checksum in the SCTP header; a partial checksum at this offset is a CRC32c.
const SCTP_OFFSET: u16 = 8;
/// Offset of the checksum in the UDP header, where 0 means that there is none.
const UDP_OFFSET: u16 = 6;

/// Completes a [`Checksum::Partial`]: stores the checksum and sets the flag to [`Checksum::Good`]. If the range lies
/// outside of the frame, only the flag is cleared. Packets with other flags stay as they are.
pub fn finish(packet: &mut Packet) {
    let Checksum::Partial { start, offset } = packet.offload.checksum else { return };
    packet.offload.checksum = Checksum::Unknown;
    let Some(covered) = packet.data_mut().get_mut(usize::from(start)..) else { return };
    let at = usize::from(offset);
    if offset == SCTP_OFFSET {
        let Some(field) = covered.get_mut(at..at + 4) else { return };
        field.fill(0);
        let crc = crc32c(covered).to_le_bytes();
        covered[at..at + 4].copy_from_slice(&crc);
    } else {
        if covered.len() < at + 2 {
            return;
        }
        // The field holds the sum of the pseudo-header, so the checksum over the range covers it, too.
        let mut sum = checksum(covered);
        if sum == 0 && offset == UDP_OFFSET {
            sum = 0xffff;
        }
        covered[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    packet.offload.checksum = Checksum::Good;
}

/// The result of checking the checksums of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// All checksums that are present are valid.
    Good,
    /// At least one checksum is wrong.
    Bad,
    /// No checksum could be checked: no IP packet, a fragment, an IPv6 packet with segments left in its routing header,
    /// an unknown transport protocol, or a UDP checksum of 0.
    None,
}

/// Checks the IPv4 header checksum and the transport checksum of an Ethernet frame by its bytes alone, without offload
/// flags.
pub fn verify(frame: &[u8]) -> Verdict {
    let Some(ip) = wire::ip(frame) else { return Verdict::None };
    if ip.version == 4 && checksum(&frame[ip.at..ip.at + ip.header]) != 0 {
        return Verdict::Bad;
    }
    let whole = if ip.version == 4 { Verdict::Good } else { Verdict::None };
    if ip.fragment || ip.routed {
        return whole;
    }
    let l4 = &frame[ip.l4..ip.end];
    let sum = match Transport::of(ip.proto) {
        Some(Transport::Sctp) => {
            let Some((crc, field)) = crc32c_sctp(l4).zip(l4.get(8..12)) else { return whole };
            return if crc.to_le_bytes() == field { Verdict::Good } else { Verdict::Bad };
        }
        Some(Transport::Udp) if l4.get(6..8).is_none_or(|f| f == [0, 0]) => return whole,
        // ICMPv6 over IPv4 is undefined.
        Some(Transport::Icmpv6) if ip.version == 4 => return whole,
        Some(Transport::Tcp | Transport::Udp | Transport::Icmpv6) => wire::pseudo(frame, &ip).bytes(l4).finish(),
        Some(Transport::Icmp) => checksum(l4),
        None => return whole,
    };
    if sum == 0 { Verdict::Good } else { Verdict::Bad }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 1071 section 1, word by word.
    fn naive(data: &[u8]) -> u16 {
        let mut sum = 0u32;
        for pair in data.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    /// Compares checksums; 0 and 0xffff are the same number in ones' complement.
    fn same(a: u16, b: u16) -> bool {
        a == b || (a == 0 || a == 0xffff) && (b == 0 || b == 0xffff)
    }

    tally::proptest! {
        #[test]
        fn equals_the_naive_sum(data: Vec<u8>) {
            prop_assert_eq!(checksum(&data), naive(&data));
        }

        #[test]
        fn sums_are_valid_if_the_checksum_is_zero(mut data: Vec<u8>, fits: bool) {
            if fits && data.len() >= 2 {
                data[..2].fill(0);
                let sum = checksum(&data);
                data[..2].copy_from_slice(&sum.to_be_bytes());
            }
            prop_assert_eq!(Sum::new().bytes(&data).is_valid(), checksum(&data) == 0);
        }

        #[test]
        fn crc_equals_the_bitwise_crc(data: Vec<u8>) {
            let step = |crc: u32, _| if crc & 1 != 0 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
            let naive = !data.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step));
            prop_assert_eq!(crc32c(&data), naive);
            let zeroed = |data: &[u8]| crc32c(&[&data[..8], &[0; 4], &data[12..]].concat());
            prop_assert_eq!(crc32c_sctp(&data), (data.len() >= 12).then(|| zeroed(&data)));
        }

        #[test]
        fn incremental_equals_full(mut data in proptest::collection::vec(any::<u8>(), 40..80), new: u128, at in 0usize..12) {
            let at = at * 2;
            let field = |d: &[u8]| -> [u8; 16] { std::array::from_fn(|i| d[at + i]) };
            let before = checksum(&data);
            let old = u128::from_be_bytes(field(&data));
            data[at..at + 16].copy_from_slice(&new.to_be_bytes());
            prop_assert!(same(update128(before, old, new), checksum(&data)));
            let (new32, now) = ((new >> 7) as u32, checksum(&data));
            let old32 = (new >> 96) as u32;
            data[at..at + 4].copy_from_slice(&new32.to_be_bytes());
            prop_assert!(same(update32(now, old32, new32), checksum(&data)));
            let now = checksum(&data);
            data[at..at + 2].copy_from_slice(&[1, 2]);
            prop_assert!(same(update16(now, (new32 >> 16) as u16, 0x0102), checksum(&data)));
        }

        #[test]
        fn pseudo_header_sum_equals_the_sum_of_its_bytes(src: [u8; 4], dst: [u8; 4], proto: u8, len: u16) {
            let bytes = [&src[..], &dst, &[0, proto], &len.to_be_bytes()].concat();
            prop_assert_eq!(pseudo_v4(src, dst, proto, len).finish(), naive(&bytes));
            prop_assert_eq!(pseudo_v4(src, dst, proto, len).partial(), Sum::new().bytes(&bytes).partial());
        }

        #[test]
        fn partial_completes_to_the_checksum(src: [u8; 4], dst: [u8; 4], payload: Vec<u8>, new: u32) {
            let mut udp = vec![1, 2, 3, 4, 0, 0, 0, 0];
            udp.extend(&payload);
            let len = udp.len() as u16;
            udp[4..6].copy_from_slice(&len.to_be_bytes());
            let full = pseudo_v4(new.to_be_bytes(), dst, 17, len).bytes(&udp).finish();
            let pseudo = pseudo_v4(src, dst, 17, len).partial();
            let pseudo = update32_partial(pseudo, u32::from_be_bytes(src), new);
            udp[6..8].copy_from_slice(&pseudo.to_be_bytes());
            let mut packet = Packet::from_slice(&udp);
            packet.offload.checksum = Checksum::Partial { start: 0, offset: 6 };
            finish(&mut packet);
            let got = u16::from_be_bytes([packet.data()[6], packet.data()[7]]);
            prop_assert!(same(got, full) && got != 0);
            prop_assert_eq!(packet.offload.checksum, Checksum::Good);
        }
    }

    #[test]
    fn known_values() {
        // RFC 1071 section 3 and RFC 3720 appendix B.4.
        assert_eq!(Sum::new().bytes(&[0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7]).partial(), 0xddf2);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn ranges_outside_of_the_frame_are_ignored() {
        for (start, offset) in [(100, 0), (2, 3), (2, 8)] {
            let mut packet = Packet::from_slice(&[0; 5]);
            packet.offload.checksum = Checksum::Partial { start, offset };
            finish(&mut packet);
            assert_eq!(packet.offload.checksum, Checksum::Unknown);
        }
    }

    #[test]
    fn icmpv6_over_ipv4_is_not_verified() {
        let mut frame =
            [vec![2; 12], vec![8, 0, 0x45, 0, 0, 24, 0, 0, 0, 0, 64, 58], vec![0; 10], vec![135, 0, 1, 2]].concat();
        let sum = checksum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        assert_eq!(verify(&frame), Verdict::Good);
    }
}
