//! Compact keys of plain packets, which make up nearly all traffic: TCP, UDP, SCTP and ICMP over IP, without IP options
//! or fragments, with at most one VLAN tag.
//!
//! Over IPv4, at most eight words of such a key are not zero, and they fit in one cache line ([`PlainKey`]); over IPv6,
//! there are four more ([`WideKey`]). A compact key is cheap to make, and a lookup indexes its words directly. Compact
//! and whole keys implement [`Words`], so lookups are generic over them.

use base::PortNo;
use packet::wire::Head;

use crate::FlowKey;
use crate::extract::{Layers, be16, ethertype, ipproto};
use crate::layout::{self, WORDS};

/// Number of words in the keys of untagged TCP, UDP and SCTP packets over IPv4. Their codes are below this.
pub const PLAIN_WORDS: usize = 6;
/// The words that a [`PlainKey`] holds, by code.
const PLAIN: [usize; PLAIN_PLACES] = [
    layout::PORTS,
    layout::ETH_DST,
    layout::ETH_SRC,
    layout::IPV4,
    layout::IP_MISC,
    layout::TP,
    layout::VLAN,
    layout::DPHASH_ACTSET,
];
/// The number of words of a [`PlainKey`].
pub(crate) const PLAIN_PLACES: usize = 8;
/// The code that stands for a zero word.
const ZERO: usize = PLAIN_PLACES;
/// The words that a [`WideKey`] holds besides; their codes follow [`ZERO`].
const WIDE: [usize; 5] =
    [layout::IPV6_SRC, layout::IPV6_SRC + 1, layout::IPV6_DST, layout::IPV6_DST + 1, layout::MPLS01];
/// Offset between the index and the code of any other word.
pub(crate) const OTHERS: usize = ZERO + 1 + WIDE.len();
const CODES: usize = 128;
/// The number of words in [`Words::wide`].
pub const WIDE_WORDS: usize = 10;
/// Their codes: the words of plain packets without the IPv4 addresses, the word of the VLAN tag, and the IPv6 addresses.
const WIDE_PLACES: [usize; WIDE_WORDS] = [0, 1, 2, 4, 5, 6, ZERO + 1, ZERO + 2, ZERO + 3, ZERO + 4];
/// Shift of `dp_hash` in its word.
pub(crate) const DP_HASH_SHIFT: u32 = 32;

/// The code of each word.
const CODE_OF: [u8; WORDS] = {
    let mut codes = [0; WORDS];
    let mut word = 0;
    while word < WORDS {
        codes[word] = (OTHERS + word) as u8;
        word += 1;
    }
    let mut code = 0;
    while code < PLAIN.len() {
        codes[PLAIN[code]] = code as u8;
        code += 1;
    }
    code = 0;
    while code < WIDE.len() {
        codes[WIDE[code]] = (ZERO + 1 + code) as u8;
        code += 1;
    }
    codes
};

/// The word of each code; an invalid index for codes without a word.
static WORD_OF: [u8; CODES] = {
    let mut words = [u8::MAX; CODES];
    let mut word = 0;
    while word < WORDS {
        words[CODE_OF[word] as usize] = word as u8;
        word += 1;
    }
    words
};

const _: () = assert!(OTHERS + WORDS <= CODES);

/// The number of a word in an order in which the words of compact keys come first. A lookup that reads the same words
/// of many keys converts them once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code(u8);

impl Code {
    /// The code of a word that is zero in all keys.
    pub const NONE: Self = Self(ZERO as u8);

    /// The code of `word`, which is below [`WORDS`].
    pub const fn of(word: usize) -> Self {
        Self(CODE_OF[word])
    }

    /// The number: below 128.
    #[inline]
    pub(crate) const fn number(self) -> usize {
        self.0 as usize
    }

    /// Its index among the first [`PLAIN_WORDS`] words, if it is one of them.
    pub fn place(self) -> Option<usize> {
        let place = usize::from(self.0);
        (place < PLAIN_WORDS).then_some(place)
    }

    /// Its index in [`Words::wide`], if it is one of those words.
    pub fn wide_place(self) -> Option<usize> {
        WIDE_PLACES.iter().position(|code| *code == usize::from(self.0))
    }

    /// The word of this code, if it has one.
    #[inline]
    pub fn word(self) -> Option<usize> {
        let word = usize::from(WORD_OF[usize::from(self.0) % CODES]);
        (word < WORDS).then_some(word)
    }
}

/// The codes of the words of compact keys, with these words.
pub(crate) fn coded_words() -> impl Iterator<Item = (usize, usize)> {
    let wide = WIDE.into_iter().enumerate().map(|(i, word)| (ZERO + 1 + i, word));
    PLAIN.into_iter().enumerate().chain(wide)
}

impl Default for Code {
    fn default() -> Self {
        Self::NONE
    }
}

/// Access to the words of a key, compact or whole.
pub trait Words {
    /// A word; `word` is below [`WORDS`].
    fn word(&self, word: usize) -> u64;

    /// The word of a code.
    fn coded(&self, code: Code) -> u64;

    /// The first [`PLAIN_WORDS`] words in code order, if the key stores them so.
    #[inline]
    fn plain(&self) -> Option<&[u64; PLAIN_WORDS]> {
        None
    }

    /// The words of an IPv6 packet that flows match most often, if the key stores them in a fixed order ([`Code::wide_place`]).
    #[inline]
    fn wide(&self) -> Option<[u64; WIDE_WORDS]> {
        None
    }
}

impl<K: Words> Words for &K {
    #[inline]
    fn word(&self, word: usize) -> u64 {
        (**self).word(word)
    }

    #[inline]
    fn coded(&self, code: Code) -> u64 {
        (**self).coded(code)
    }

    #[inline]
    fn plain(&self) -> Option<&[u64; PLAIN_WORDS]> {
        (**self).plain()
    }

    #[inline]
    fn wide(&self) -> Option<[u64; WIDE_WORDS]> {
        (**self).wide()
    }
}

impl Words for FlowKey {
    #[inline]
    fn word(&self, word: usize) -> u64 {
        self.0.get(word).copied().unwrap_or(0)
    }

    #[inline]
    fn coded(&self, code: Code) -> u64 {
        self.word(WORD_OF[usize::from(code.0) % CODES].into())
    }
}

/// The key of a plain packet over IPv4. In code order: ingress port, Ethernet destination and type, Ethernet source and
/// VLAN tag, IPv4 addresses, the other fields of the IP header, ports or ICMP type and code with TCP flags, the tag
/// protocol, and the hash computed by the datapath.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(align(64))]
pub struct PlainKey([u64; ZERO]);

impl PlainKey {
    pub(crate) fn new(words: [u64; ZERO]) -> Self {
        Self(words)
    }

    /// The key of the packet after recirculation, with this `recirc_id` and the hash computed by the datapath (0 for
    /// none).
    #[inline]
    #[must_use]
    pub fn with_recirculation(mut self, recirc_id: u32, dp_hash: u32) -> Self {
        set_recirculation(&mut self.0, recirc_id, dp_hash);
        self
    }

    /// The same in place: a copy would read words as soon as they are written.
    #[inline]
    pub fn recirculate(&mut self, recirc_id: u32, dp_hash: u32) {
        set_recirculation(&mut self.0, recirc_id, dp_hash);
    }

    /// The words in code order.
    #[inline]
    pub(crate) fn words(&self) -> &[u64; ZERO] {
        &self.0
    }

    /// `key` in compact form, if all words that this form lacks are zero.
    pub fn of(key: &FlowKey) -> Option<Self> {
        let plain = Self::new(PLAIN.map(|word| key.0[word]));
        (plain.expand() == *key).then_some(plain)
    }

    /// TCP flags; 0 of other packets.
    #[inline]
    pub fn tcp_flags(&self) -> u16 {
        (self.coded(Code::of(layout::TP)) >> 16) as u16 & 0xfff
    }

    /// The whole key.
    pub fn expand(&self) -> FlowKey {
        let mut key = FlowKey::ZERO;
        self.put_into(&mut key);
        key
    }

    /// Writes the words of a plain packet's key into `key`.
    #[inline]
    pub(crate) fn put_into(&self, key: &mut FlowKey) {
        for (word, value) in PLAIN.into_iter().zip(self.0) {
            key.0[word] = value;
        }
    }
}

impl Words for PlainKey {
    #[inline]
    fn word(&self, word: usize) -> u64 {
        self.coded(CODE_OF.get(word).map_or(Code::NONE, |code| Code(*code)))
    }

    #[inline]
    fn coded(&self, code: Code) -> u64 {
        let (code, value) = (usize::from(code.0), self.0[usize::from(code.0) % ZERO]);
        if code < ZERO { value } else { 0 }
    }

    #[inline]
    fn plain(&self) -> Option<&[u64; PLAIN_WORDS]> {
        self.0.first_chunk()
    }
}

/// Sets recirculation id and hash in a compact key's words.
#[inline]
fn set_recirculation(words: &mut [u64], recirc_id: u32, dp_hash: u32) {
    let ports = &mut words[usize::from(CODE_OF[layout::PORTS])];
    *ports = *ports & !u64::from(u32::MAX) | u64::from(recirc_id);
    words[usize::from(CODE_OF[layout::DPHASH_ACTSET])] = u64::from(dp_hash) << DP_HASH_SHIFT;
}

/// The key of a plain packet over IPv6, or of a packet with one or two MPLS labels: the words of a [`PlainKey`] with zero IPv4
/// addresses, the IPv6 addresses, and the labels.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(align(64))]
pub struct WideKey([u64; OTHERS + 1]);

impl WideKey {
    /// The words of [`PLAIN`] and those of [`WIDE`].
    pub(crate) fn new(words: [u64; ZERO], more: [u64; WIDE.len()]) -> Self {
        let [a, b, c, d, e, f, g, h] = words;
        let [src0, src1, dst0, dst1, labels] = more;
        Self([a, b, c, d, e, f, g, h, 0, src0, src1, dst0, dst1, labels, 0])
    }

    /// The key of the packet after recirculation, with this `recirc_id` and the hash computed by the datapath (0 for
    /// none).
    #[inline]
    #[must_use]
    pub fn with_recirculation(mut self, recirc_id: u32, dp_hash: u32) -> Self {
        set_recirculation(&mut self.0, recirc_id, dp_hash);
        self
    }

    /// The same in place: a copy would read words as soon as they are written.
    #[inline]
    pub fn recirculate(&mut self, recirc_id: u32, dp_hash: u32) {
        set_recirculation(&mut self.0, recirc_id, dp_hash);
    }

    /// The words in code order, and a zero.
    #[inline]
    pub(crate) fn words(&self) -> &[u64; OTHERS + 1] {
        &self.0
    }

    /// `key` in compact form, if all words that this form lacks are zero.
    pub fn of(key: &FlowKey) -> Option<Self> {
        let wide = Self::new(PLAIN.map(|word| key.0[word]), WIDE.map(|word| key.0[word]));
        (wide.expand() == *key).then_some(wide)
    }

    /// TCP flags; 0 of other packets.
    #[inline]
    pub fn tcp_flags(&self) -> u16 {
        (self.coded(Code::of(layout::TP)) >> 16) as u16 & 0xfff
    }

    /// The whole key.
    pub fn expand(&self) -> FlowKey {
        let mut key = FlowKey::ZERO;
        for (word, value) in PLAIN.into_iter().zip(self.0) {
            key.0[word] = value;
        }
        for (word, value) in WIDE.into_iter().zip(&self.0[ZERO + 1..]) {
            key.0[word] = *value;
        }
        key
    }
}

impl Words for WideKey {
    #[inline]
    fn word(&self, word: usize) -> u64 {
        self.coded(CODE_OF.get(word).map_or(Code::NONE, |code| Code(*code)))
    }

    #[inline]
    fn coded(&self, code: Code) -> u64 {
        self.0[usize::from(code.0).min(OTHERS)]
    }

    #[inline]
    fn plain(&self) -> Option<&[u64; PLAIN_WORDS]> {
        self.0.first_chunk()
    }

    #[inline(always)]
    fn wide(&self) -> Option<[u64; WIDE_WORDS]> {
        Some(WIDE_PLACES.map(|code| self.0[code]))
    }
}

/// The compact key of a plain IPv4 frame; it equals the result of [`crate::extract()`] under any limit of VLAN tags.
/// `None` for any other frame.
#[inline(always)]
pub fn extract_plain(frame: &[u8], in_port: PortNo) -> Option<PlainKey> {
    plain(frame, in_port).map(|(key, _)| key)
}

/// Bytes of Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 42;

/// Eight bytes of the headers, from `at` on.
#[inline(always)]
fn be64(headers: &[u8; HEADERS], at: usize) -> u64 {
    headers[at..].first_chunk::<8>().map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// A frame with checked headers and lengths: untagged TCP or UDP over IPv4.
pub(crate) struct Checked<'a> {
    headers: &'a [u8; HEADERS],
    /// Length of the IPv4 packet in bytes.
    total: usize,
    /// 0 of UDP.
    pub(crate) tcp_flags: u16,
}

/// Bits that all untagged TCP and UDP frames over IPv4 without options or fragments share, by offset: Ethernet type, IP
/// version and header length, fragment offset and flags.
pub(crate) const ALL_HAVE: [(usize, u8, u8); 5] =
    [(12, 0xff, 0x08), (13, 0xff, 0x00), (14, 0xff, 0x45), (20, 0x3f, 0), (21, 0xff, 0)];

/// Checks a frame for untagged TCP or UDP over IPv4 without options or fragments. `None` for anything else, or if its
/// lengths contradict each other.
#[inline(always)]
fn check(frame: &[u8]) -> Option<Checked<'_>> {
    let h = frame.first_chunk::<HEADERS>()?;
    let fragment = be16([h[20], h[21]]) & 0x3fff;
    // Ethernet type, version and header length.
    if be64(h, 8) as u32 >> 8 != 0x08_0045 || fragment != 0 { None } else { check_lengths(frame) }
}

/// The rest of [`check`], for a frame that has the bits of [`ALL_HAVE`].
#[inline(always)]
pub(crate) fn check_lengths(frame: &[u8]) -> Option<Checked<'_>> {
    let h = frame.first_chunk::<HEADERS>()?;
    let total = usize::from(be16([h[16], h[17]]));
    if 14 + total > frame.len() {
        return None;
    }
    let mut tcp_flags = 0;
    match h[23] {
        ipproto::UDP if total >= 28 => {}
        ipproto::TCP => {
            let &[hi, lo] = frame.get(46..48)?.first_chunk::<2>()?;
            let header = usize::from(hi >> 4) * 4;
            if header < 20 || 20 + header > total {
                return None;
            }
            tcp_flags = be16([hi, lo]) & 0xfff;
        }
        _ => return None,
    }
    Some(Checked { headers: h, total, tcp_flags })
}

/// The headers and the TCP flags (0 of UDP) of an untagged frame of TCP or UDP over IPv4 without options; `None` for any other
/// frame.
#[inline(always)]
pub fn untagged_head(frame: &[u8]) -> Option<(Head<'_>, u16)> {
    let Checked { headers, total, tcp_flags } = check(frame)?;
    let head = Head { l3: 14, ip: headers[14..].first_chunk()?, l4: frame.get(34..14 + total)? };
    Some((head, tcp_flags))
}

/// As [`untagged_head`], for a plain frame that may have a VLAN tag.
#[inline(never)]
pub fn tagged_head(frame: &[u8]) -> Option<(Head<'_>, u16)> {
    let (key, layers) = plain(frame, PortNo(0))?;
    let head = Head::at(frame, layers.l3?.into())?;
    matches!(head.proto(), ipproto::TCP | ipproto::UDP).then_some((head, key.tcp_flags()))
}

/// The key of a plain IPv4 frame and its layers, as [`crate::extract()`] returns them.
#[inline]
pub(crate) fn plain(frame: &[u8], in_port: PortNo) -> Option<(PlainKey, Layers)> {
    untagged(frame, in_port).or_else(|| crate::compact::plain_v4(frame, in_port))
}

/// Like [`plain`], for untagged TCP and UDP, the most frequent frames: reads at fixed offsets.
#[inline(always)]
pub(crate) fn untagged(frame: &[u8], in_port: PortNo) -> Option<(PlainKey, Layers)> {
    let Checked { headers: h, total, tcp_flags } = check(frame)?;
    let transport = be64(h, 34) & 0xffff_ffff << 32 | u64::from(tcp_flags) << 16;
    let key = PlainKey([
        u64::from(in_port.0) << 32,
        be64(h, 0) & !0xffff | u64::from(ethertype::IPV4),
        be64(h, 6) & !0xffff,
        be64(h, 26),
        u64::from(h[15]) << 16 | u64::from(be16([h[22], h[23]])),
        transport,
        0,
        0,
    ]);
    Some((key, Layers { l2_5: None, l3: Some(14), l4: Some(34), end: 14 + total }))
}

/// A TCP or UDP packet without VLAN tags and IP options.
#[cfg(test)]
pub(crate) fn plain_frame(proto: u8, payload: usize) -> Vec<u8> {
    let transport = if proto == ipproto::TCP { 20 } else { 8 };
    let mut frame: Vec<u8> = (0..14 + 20 + transport + payload).map(|i| i as u8).collect();
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0x12]);
    frame[16..18].copy_from_slice(&((20 + transport + payload) as u16).to_be_bytes());
    frame[20..22].fill(0);
    frame[23] = proto;
    if proto == ipproto::TCP {
        frame[46] = 0x5a;
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::{PacketContext, extract_with};
    use base::rng::Rng;

    #[test]
    fn compact_and_whole_keys_agree() {
        let mut rng = Rng::seeded(5);
        let plain = PlainKey::new(std::array::from_fn(|_| rng.next_u64()));
        let key = plain.expand();
        let wide = WideKey::new(std::array::from_fn(|_| rng.next_u64()), std::array::from_fn(|_| rng.next_u64()));
        let of_wide = wide.expand();
        for word in 0..WORDS {
            let code = Code::of(word);
            assert_eq!(code.word(), Some(word));
            assert_eq!((plain.word(word), plain.coded(code)), (key.0[word], key.0[word]));
            assert_eq!((key.word(word), key.coded(code)), (key.0[word], key.0[word]));
            assert_eq!((wide.word(word), wide.coded(code)), (of_wide.0[word], of_wide.0[word]));
            let wide_words = wide.wide().expect("a wide key has these words");
            assert!(code.wide_place().is_none_or(|at| wide_words[at] == of_wide.0[word]));
            assert!(code.place().is_none_or(|at| wide.plain().is_some_and(|words| words[at] == of_wide.0[word])));
        }
        assert_eq!((plain.coded(Code::NONE), key.coded(Code::NONE), Code::NONE.word()), (0, 0, None));
        assert_eq!(wide.coded(Code::NONE), 0);
        assert_eq!(of_wide.0.iter().filter(|word| **word != 0).count(), PLAIN.len() + WIDE.len());
        assert_eq!((WideKey::of(&of_wide), PlainKey::of(&of_wide)), (Some(wide), None));
        assert_eq!(key.0.iter().filter(|word| **word != 0).count(), PLAIN.len());
        assert_eq!(PlainKey::of(&key), Some(plain));
        let more = FlowKey(std::array::from_fn(|word| if word == layout::MPLS2 { 1 } else { key.0[word] }));
        assert_eq!((PlainKey::of(&more), WideKey::of(&more)), (None, None));
    }

    #[test]
    fn recirculated_keys_have_their_id_and_hash() {
        let frame = plain_frame(ipproto::TCP, 20);
        let context =
            PacketContext { in_port: PortNo(3), recirc_id: 7, dp_hash: 0x8000_0009, ..PacketContext::default() };
        let plain = extract_plain(&frame, PortNo(3)).expect("plain").with_recirculation(7, 0x8000_0009);
        assert_eq!(plain.expand(), extract_with(&frame, &context, 2));
    }
}
