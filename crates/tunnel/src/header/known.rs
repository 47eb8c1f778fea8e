//! Outer headers by their bytes. Most packets of a tunnel begin with the same bytes except for a few fields, which are checked
//! alone: lengths, identification, checksums, and the UDP source port.
//!
//! Known headers are those of an untagged Ethernet frame over IPv4 and UDP, in front of an Ethernet frame, of at most [`BYTES`]
//! bytes. [`super::pop::parse`] reads all others, and these at first.

use std::sync::Arc;

use base::mix::fold;
use base::ways::Ways;
use packet::checksum::{Sum, pseudo_v4};
use packet::metadata::Tunnel;

use super::pop::{Inner, Parsed};
use super::{Addresses, Pop};
use crate::flags;

/// Most bytes of known headers.
const BYTES: usize = 64;
/// Bytes in front that are not compared: the destination address and a part of the source address.
const IGNORED: usize = 8;
const GROUPS: usize = (BYTES - IGNORED) / 8;
/// Shortest inner frame.
const INNER_MIN: usize = 14;
/// Where the IP header starts, and the UDP header.
const IP: usize = 14;
const UDP: usize = 34;
/// Bytes of other fields that differ among packets of a tunnel: the source address of Ethernet; length, identification and
/// checksum of IP; source port, length and checksum of UDP.
const VARIABLE: [std::ops::Range<usize>; 5] = [8..12, 16..20, 24..26, 34..36, 38..42];

/// The compared bits of the groups, for headers of all lengths.
const COMPARED: [u64; GROUPS] = {
    let mut bytes = [0xff; BYTES];
    let mut n = 0;
    while n < VARIABLE.len() {
        let mut at = VARIABLE[n].start;
        while at < VARIABLE[n].end {
            bytes[at] = 0;
            at += 1;
        }
        n += 1;
    }
    groups(&bytes)
};

/// Bytes behind the first ones in groups of eight, in memory order.
#[inline(always)]
const fn groups(bytes: &[u8; BYTES]) -> [u64; GROUPS] {
    let mut groups = [0; GROUPS];
    let mut i = 0;
    while i < GROUPS {
        let at = IGNORED + 8 * i;
        let [a, b, c, d, e, f, g, h] = [
            bytes[at],
            bytes[at + 1],
            bytes[at + 2],
            bytes[at + 3],
            bytes[at + 4],
            bytes[at + 5],
            bytes[at + 6],
            bytes[at + 7],
        ];
        groups[i] = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        i += 1;
    }
    groups
}

#[inline(always)]
fn be16(bytes: &[u8; BYTES], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Whether a UDP datagram has the right checksum, in a frame that begins with these bytes.
#[inline]
fn is_datagram_valid(bytes: &[u8; BYTES], datagram: &[u8]) -> bool {
    let address = |at: usize| std::array::from_fn(|i| bytes[IP + at + i]);
    let pseudo = pseudo_v4(address(12), address(16), super::PROTO_UDP, datagram.len() as u16);
    (pseudo + Sum::new().bytes(datagram)).is_valid()
}

/// The outer headers of a tunnel's packets.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Known {
    /// The compared bytes.
    values: [u64; GROUPS],
    /// The compared bits of the last two groups, where the inner frame may begin.
    last: [u64; 2],
    tunnel: Arc<Tunnel>,
    /// The sum of the IP header's 16-bit words without length, identification and checksum.
    sum: u32,
    /// Where the inner frame starts.
    start: u16,
    pop: Pop,
    /// Whether packets have a UDP checksum, which is part of their metadata.
    has_checksum: bool,
}

impl Known {
    /// The known headers that `frame` begins with. `None` for headers of other forms.
    fn new(pop: Pop, frame: &[u8], parsed: &Parsed<'_>, tunnel: &Arc<Tunnel>) -> Option<Self> {
        let bytes = frame.first_chunk::<BYTES>()?;
        let is_known_form = matches!(parsed.addresses, Addresses::V4(..))
            && be16(bytes, 12) == super::ETH_IPV4
            && bytes[IP + 9] == super::PROTO_UDP
            && parsed.inner == Inner::Ethernet
            && (UDP + 8..=BYTES).contains(&parsed.start);
        if !is_known_form {
            return None;
        }
        let mut compared = [0xff; BYTES];
        compared.get_mut(parsed.start..)?.fill(0);
        let [.., a, b] = groups(&compared);
        let last = [a, b];
        let has_checksum = parsed.flags & flags::CHECKSUM != 0;
        let mut known =
            Self { values: [0; GROUPS], last, tunnel: Arc::clone(tunnel), sum: 0, start: 0, pop, has_checksum };
        known.values = known.compared(bytes);
        known.start = parsed.start as u16;
        let words = (IP..UDP).step_by(2).filter(|at| !VARIABLE.iter().any(|range| range.contains(at)));
        known.sum = words.map(|at| u32::from(be16(bytes, at))).sum();
        Some(known)
    }

    #[inline(always)]
    fn compared(&self, bytes: &[u8; BYTES]) -> [u64; GROUPS] {
        let mut groups = groups(bytes);
        for (group, bits) in groups.iter_mut().zip(COMPARED) {
            *group &= bits;
        }
        for (group, bits) in groups.iter_mut().rev().zip(self.last.iter().rev()) {
            *group &= bits;
        }
        groups
    }

    /// Where the inner frame of a frame with these headers ends, if lengths and checksums are right. The UDP checksum of a
    /// `trusted` frame is not verified.
    #[inline(always)]
    fn end_of(&self, pop: Pop, bytes: &[u8; BYTES], frame: &[u8], trusted: bool) -> Option<usize> {
        let len = frame.len();
        let differ = self.compared(bytes).iter().zip(&self.values).fold(0, |differ, (a, b)| differ | (a ^ b));
        let total = usize::from(be16(bytes, IP + 2));
        let sum = self.sum + total as u32 + u32::from(be16(bytes, IP + 4)) + u32::from(be16(bytes, IP + 10));
        let folded = (sum & 0xffff) + (sum >> 16);
        let udp_len = usize::from(be16(bytes, UDP + 4));
        let end = UDP + udp_len;
        let is_valid = differ == 0
            && (folded & 0xffff) + (folded >> 16) == 0xffff
            && IP + total <= len
            && udp_len + (UDP - IP) <= total
            && end >= usize::from(self.start) + INNER_MIN
            && (be16(bytes, UDP + 6) != 0) == self.has_checksum
            && self.pop == pop;
        (is_valid && (!self.has_checksum || trusted || is_datagram_valid(bytes, frame.get(UDP..end)?))).then_some(end)
    }

    #[inline]
    pub(super) fn tunnel(&self) -> &Arc<Tunnel> {
        &self.tunnel
    }

    #[inline]
    pub(super) fn start(&self) -> usize {
        self.start.into()
    }
}

/// Known headers by their numbers.
#[derive(Debug)]
pub(super) struct Headers {
    ways: Ways,
    known: Vec<Known>,
}

impl Headers {
    pub(super) fn new() -> Self {
        Self { ways: Ways::new(), known: Vec::new() }
    }

    /// The hash of a frame: IP addresses and the first bytes of the tunnel header, which tell tunnels
    /// apart.
    #[inline(always)]
    fn hash(bytes: &[u8; BYTES]) -> u64 {
        let eight = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| bytes[at + i]));
        let (addresses, header) = (eight(IP + 12), eight(UDP + 8));
        fold(addresses ^ 0x9e37_79b9_7f4a_7c15, header ^ 0xbe54_66cf_34e9_0c6d)
    }

    /// The number of the headers that a frame begins with, where the inner frame ends, and the UDP source port.
    #[inline(always)]
    pub(super) fn find(&self, pop: Pop, frame: &[u8], trusted: bool) -> Option<(u16, usize, u16)> {
        let bytes = frame.first_chunk::<BYTES>()?;
        let number = self.ways.find(Self::hash(bytes))? as u16;
        let end = self.get(number)?.end_of(pop, bytes, frame, trusted)?;
        Some((number, end, be16(bytes, UDP)))
    }

    #[inline(always)]
    pub(super) fn get(&self, number: u16) -> Option<&Known> {
        self.known.get(usize::from(number))
    }

    /// Learns the headers of a frame, if they have a known form.
    #[cold]
    pub(super) fn learn(&mut self, pop: Pop, frame: &[u8], parsed: &Parsed<'_>, tunnel: &Arc<Tunnel>) {
        let Some(bytes) = frame.first_chunk::<BYTES>() else { return };
        let Some(known) = Known::new(pop, frame, parsed, tunnel) else { return };
        let number = self.ways.assign(Self::hash(bytes));
        match self.known.get_mut(number) {
            Some(place) => *place = known,
            // Numbers are assigned in order.
            None => self.known.push(known),
        }
    }
}
