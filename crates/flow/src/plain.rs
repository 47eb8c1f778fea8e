//! Keys of plain packets, in one line of memory.
//!
//! What nearly all frames are, TCP or UDP over IPv4 without VLAN tags, options or fragments, has six words of a key that
//! are not zero. A [`PlainKey`] is these: quick to make, and what looks for bits in a key finds them without a search.
//! Both kinds of key answer to [`Words`], so that who looks flows up is written once.

use base::PortNo;

use crate::FlowKey;
use crate::extract::{Layers, be16, ethertype, ipproto};
use crate::layout::{self, WORDS};

/// Words of a plain packet's key that may not be zero: those whose codes are below this.
pub const PLAIN_WORDS: usize = 6;
/// These words, by their code.
const PLAIN: [usize; PLAIN_WORDS] =
    [layout::PORTS, layout::ETH_DST, layout::ETH_SRC, layout::IPV4, layout::IP_MISC, layout::TP];
/// The code of words that are zero in a plain packet's key is this much more than their index.
const OTHERS: usize = ZERO + 1;
/// No word has this code: it stands for zero.
const ZERO: usize = 7;
const CODES: usize = 128;

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
    codes
};

/// The word of each code; one that no key has, where there is none.
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

/// A word's number among those of plain packets, which come first; for what asks for the same words of many keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Code(u8);

impl Code {
    /// Stands for zero in all keys.
    pub const NONE: Self = Self(ZERO as u8);

    /// The code of a word, which is below [`WORDS`].
    pub const fn of(word: usize) -> Self {
        Self(CODE_OF[word])
    }

    /// Its place among the words of plain packets' keys, if it is one of them.
    pub fn place(self) -> Option<usize> {
        let place = usize::from(self.0);
        (place < PLAIN_WORDS).then_some(place)
    }

    /// The word that has this code, if one has.
    #[inline]
    pub fn word(self) -> Option<usize> {
        let word = usize::from(WORD_OF[usize::from(self.0) % CODES]);
        (word < WORDS).then_some(word)
    }
}

impl Default for Code {
    fn default() -> Self {
        Self::NONE
    }
}

/// A packet's key, by its words.
pub trait Words {
    /// A word; `word` is below [`WORDS`].
    fn word(&self, word: usize) -> u64;

    /// The word of a code.
    fn coded(&self, code: Code) -> u64;

    /// Of a plain packet's key, all words that may not be zero, by their codes.
    #[inline]
    fn plain(&self) -> Option<&[u64; PLAIN_WORDS]> {
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

/// The key of a plain packet; see the module's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(align(64))]
pub struct PlainKey([u64; ZERO + 1]);

impl PlainKey {
    /// A key by its words in the order of their codes: ingress port, Ethernet destination and type, Ethernet source, IPv4
    /// addresses, what else there is of IP, ports and TCP flags.
    fn new(words: [u64; PLAIN_WORDS]) -> Self {
        let [a, b, c, d, e, f] = words;
        Self([a, b, c, d, e, f, 0, 0])
    }

    /// The same key, if all its words that are not zero are those of plain packets.
    pub fn of(key: &FlowKey) -> Option<Self> {
        let plain = Self::new(PLAIN.map(|word| key.0[word]));
        (plain.expand() == *key).then_some(plain)
    }

    /// TCP flags, of which other packets have none.
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

    /// Sets the words of `key` that are not zero in plain packets' keys.
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
        self.0[usize::from(code.0).min(ZERO)]
    }

    #[inline]
    fn plain(&self) -> Option<&[u64; PLAIN_WORDS]> {
        self.0.first_chunk()
    }
}

/// The key of a frame that is plain, as nearly all are: what [`crate::extract()`] says of it, however many VLAN tags it
/// looks at. `None` of any other.
#[inline]
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

/// What tells that a frame is plain, beside what its key has of it.
pub(crate) struct Checked<'a> {
    headers: &'a [u8; HEADERS],
    /// Bytes of the IPv4 packet.
    total: usize,
    /// 0 of UDP.
    pub(crate) tcp_flags: u16,
}

/// Bits that all plain frames have, by their places: Ethernet type, IP version and length of its header, no fragment.
pub(crate) const ALL_HAVE: [(usize, u8, u8); 5] =
    [(12, 0xff, 0x08), (13, 0xff, 0x00), (14, 0xff, 0x45), (20, 0x3f, 0), (21, 0xff, 0)];

/// TCP or UDP over IPv4 without VLAN tags, options or fragments: `None` if it is anything else, or the lengths in it do not
/// fit.
#[inline(always)]
fn check(frame: &[u8]) -> Option<Checked<'_>> {
    let h = frame.first_chunk::<HEADERS>()?;
    let fragment = be16([h[20], h[21]]) & 0x3fff;
    // Ethernet type, version and header length.
    if be64(h, 8) as u32 >> 8 != 0x08_0045 || fragment != 0 { None } else { check_lengths(frame) }
}

/// What there is to check of a frame that has [`ALL_HAVE`].
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

/// The key of a frame that is plain, read at fixed places. Says what [`pass`] says.
#[inline]
pub(crate) fn plain(frame: &[u8], in_port: PortNo) -> Option<(PlainKey, Layers)> {
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

/// A TCP or UDP packet without tags and options.
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
    use base::rng::Rng;

    #[test]
    fn both_kinds_of_key_tell_the_same() {
        let mut rng = Rng::seeded(5);
        let plain = PlainKey::new(std::array::from_fn(|_| rng.next_u64()));
        let key = plain.expand();
        for word in 0..WORDS {
            let code = Code::of(word);
            assert_eq!(code.word(), Some(word));
            assert_eq!((plain.word(word), plain.coded(code)), (key.0[word], key.0[word]));
            assert_eq!((key.word(word), key.coded(code)), (key.0[word], key.0[word]));
        }
        assert_eq!((plain.coded(Code::NONE), key.coded(Code::NONE), Code::NONE.word()), (0, 0, None));
        assert_eq!(key.0.iter().filter(|word| **word != 0).count(), PLAIN.len());
        assert_eq!(PlainKey::of(&key), Some(plain));
        let more = FlowKey(std::array::from_fn(|word| if word == layout::VLAN { 1 } else { key.0[word] }));
        assert_eq!(PlainKey::of(&more), None);
    }
}
