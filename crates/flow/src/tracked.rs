//! Compact keys of packets that went through the connection tracker: a plain packet's key and the fields of its connection.
//!
//! Such keys equal the result of [`crate::extract()`] and the connection of the packet's metadata. Packets with other
//! metadata, such as a tunnel or a mark of the host, have whole keys only.

use packet::metadata::{Connection, Tuple};

use crate::plain::{Code, OTHERS, PLAIN_PLACES, PLAIN_WORDS, WIDE_WORDS, Words, coded_words};
use crate::{FlowKey, PlainKey, WideKey, layout};

/// The first word with fields of the connection.
const FIRST: usize = layout::CONJ_CTMARK;
/// Number of these words.
const N: usize = layout::ETH_DST - FIRST;
/// The place of words that are zero.
const ZERO: usize = OTHERS + N;

/// The place of the word of each code.
static PLACE_OF: [u8; 128] = {
    let mut places = [ZERO as u8; 128];
    let mut code = 0;
    while code < OTHERS {
        places[code] = code as u8;
        code += 1;
    }
    let mut word = 0;
    while word < N {
        places[OTHERS + FIRST + word] = (OTHERS + word) as u8;
        word += 1;
    }
    places
};

/// The key of a plain packet with a connection: the words of a [`WideKey`] in code order, and those of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(align(64))]
pub struct TrackedKey([u64; ZERO + 1]);

impl Default for TrackedKey {
    fn default() -> Self {
        Self([0; ZERO + 1])
    }
}

impl TrackedKey {
    /// Becomes the key of a plain packet over IPv4 with this connection.
    #[inline]
    pub fn set_plain(&mut self, key: &PlainKey, connection: &Connection) {
        let words = key.words();
        self.0[..words.len()].copy_from_slice(words);
        self.0[words.len()..OTHERS].fill(0);
        self.set_connection(connection);
    }

    /// Becomes the key of a plain packet over IPv6 with this connection.
    #[inline]
    pub fn set_wide(&mut self, key: &WideKey, connection: &Connection) {
        self.0[..OTHERS].copy_from_slice(&key.words()[..OTHERS]);
        self.set_connection(connection);
    }

    #[inline]
    fn set_connection(&mut self, connection: &Connection) {
        self.0[OTHERS..].copy_from_slice(&words_of(connection));
    }

    /// TCP flags; 0 of other packets.
    #[inline]
    pub fn tcp_flags(&self) -> u16 {
        (self.coded(Code::of(layout::TP)) >> 16) as u16 & 0xfff
    }

    /// The whole key.
    pub fn expand(&self) -> FlowKey {
        let mut key = FlowKey::ZERO;
        for (code, word) in coded_words() {
            key.0[word] = self.0[code];
        }
        key.0[FIRST..FIRST + N].copy_from_slice(&self.0[OTHERS..ZERO]);
        key
    }
}

/// The words of a connection's fields, from [`FIRST`] on, and a zero.
#[inline]
fn words_of(connection: &Connection) -> [u64; N + 1] {
    let mut words = [0; N + 1];
    words[layout::CONJ_CTMARK - FIRST] = connection.mark.into();
    words[layout::CT_LABEL - FIRST] = (connection.label >> 64) as u64;
    words[layout::CT_LABEL + 1 - FIRST] = connection.label as u64;
    let mut ct = u64::from(connection.state) << 32 | u64::from(connection.zone) << 16;
    if let Some(Tuple { src, dst, proto, is_v6, src_port, dst_port }) = connection.original {
        ct |= u64::from(proto) << 8;
        words[layout::PKTTYPE_CTTP - FIRST] = u64::from(src_port) << 16 | u64::from(dst_port);
        if is_v6 {
            words[layout::CT_IPV6_SRC - FIRST..layout::CT_IPV6_DST - FIRST].copy_from_slice(&src);
            words[layout::CT_IPV6_DST - FIRST..layout::ETH_DST - FIRST].copy_from_slice(&dst);
        } else {
            words[layout::CT_NW - FIRST] = src[1] << 32 | dst[1] & 0xffff_ffff;
        }
    }
    words[layout::CT - FIRST] = ct;
    words
}

/// A match on packets with a connection, in a form that needs no [`TrackedKey`].
#[derive(Clone, Debug, Default)]
pub struct TrackedMatch {
    /// Bits of the words of a [`PlainKey`], by place.
    plain: Vec<(u8, u64, u64)>,
    /// Bits of the words of a connection, from [`FIRST`] on.
    connection: Vec<(u8, u64, u64)>,
    /// Bits of all other words.
    others: Vec<(Code, u64, u64)>,
    /// Whether plain packets over IPv4, in which the other words are zero, have the values of `others`.
    is_for_plain: bool,
}

impl TrackedMatch {
    /// A match on these bits of words: each as word, mask and value.
    pub fn new(bits: impl IntoIterator<Item = (usize, u64, u64)>) -> Self {
        let mut found = Self { is_for_plain: true, ..Self::default() };
        for (word, mask, value) in bits {
            let (code, value) = (Code::of(word), value & mask);
            if mask == 0 {
                continue;
            }
            if code.number() < PLAIN_PLACES {
                add(&mut found.plain, code.number() as u8, mask, value);
            } else if (FIRST..FIRST + N).contains(&word) {
                add(&mut found.connection, (word - FIRST) as u8, mask, value);
            } else {
                add(&mut found.others, code, mask, value);
                found.is_for_plain &= value == 0;
            }
        }
        found
    }

    /// Returns true for a plain packet over IPv4 with this connection that has the values.
    #[inline]
    pub fn covers_plain(&self, key: &PlainKey, connection: &Connection) -> bool {
        let words = key.words();
        self.is_for_plain
            && self.plain.iter().all(|(at, mask, value)| words[usize::from(*at) % PLAIN_PLACES] & mask == *value)
            && self.covers_connection(connection)
    }

    /// Returns true for a plain packet over IPv6 with this connection that has the values.
    #[inline]
    pub fn covers_wide(&self, key: &WideKey, connection: &Connection) -> bool {
        let words = key.words();
        self.plain.iter().all(|(at, mask, value)| words[usize::from(*at)] & mask == *value)
            && self.others.iter().all(|(code, mask, value)| key.coded(*code) & mask == *value)
            && self.covers_connection(connection)
    }

    #[inline]
    fn covers_connection(&self, connection: &Connection) -> bool {
        self.connection.iter().all(|(at, mask, value)| word_of(connection, usize::from(*at)) & mask == *value)
    }
}

/// Adds bits to those of the same word.
fn add<W: PartialEq>(list: &mut Vec<(W, u64, u64)>, word: W, mask: u64, value: u64) {
    match list.iter_mut().find(|(known, ..)| *known == word) {
        Some((_, bits, values)) => (*bits, *values) = (*bits | mask, *values | value),
        None => list.push((word, mask, value)),
    }
}

/// A word of a connection's fields, from [`FIRST`] on.
#[inline]
fn word_of(connection: &Connection, at: usize) -> u64 {
    const CT: usize = layout::CT - FIRST;
    const MARK: usize = layout::CONJ_CTMARK - FIRST;
    match at {
        CT => {
            let proto = connection.original.map_or(0, |tuple| u64::from(tuple.proto));
            u64::from(connection.state) << 32 | u64::from(connection.zone) << 16 | proto << 8
        }
        MARK => connection.mark.into(),
        _ => words_of(connection)[at.min(N)],
    }
}

impl Words for TrackedKey {
    #[inline]
    fn word(&self, word: usize) -> u64 {
        if word < layout::WORDS { self.coded(Code::of(word)) } else { 0 }
    }

    #[inline]
    fn coded(&self, code: Code) -> u64 {
        self.0[usize::from(PLACE_OF[code.number() % 128]).min(ZERO)]
    }

    #[inline]
    fn plain(&self) -> Option<&[u64; PLAIN_WORDS]> {
        self.0.first_chunk()
    }

    #[inline]
    fn wide(&self) -> Option<[u64; WIDE_WORDS]> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compact::{Compact, FORMS, extract_compact, frame_of, proto_of};
    use crate::extract::{PacketContext, extract_with_into};
    use base::PortNo;
    use base::rng::Rng;
    use packet::Metadata;

    fn connection(rng: &mut Rng) -> Connection {
        let is_v6 = rng.below(2) == 0;
        let mut address = || if is_v6 { [rng.next_u64(), rng.next_u64()] } else { [0, rng.next_u64() >> 32] };
        let (src, dst) = (address(), address());
        let (src_port, dst_port, proto) = (rng.next_u64() as u16, rng.next_u64() as u16, rng.next_u64() as u8);
        Connection {
            state: rng.next_u64() as u32 & 0xff,
            zone: rng.next_u64() as u16,
            mark: rng.next_u64() as u32,
            label: u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64()),
            original: (rng.below(4) > 0).then_some(Tuple { src, dst, proto, is_v6, src_port, dst_port }),
            ..Connection::default()
        }
    }

    #[test]
    fn tracked_keys_equal_the_keys_of_the_general_parser() {
        let (mut rng, mut key, mut tracked) = (Rng::seeded(3), FlowKey::ZERO, TrackedKey::default());
        let frames = 20_000u64;
        for n in 0..frames {
            let form = FORMS[n as usize % FORMS.len()];
            let frame = frame_of(form, proto_of(form, &mut rng), rng.below(30) as usize);
            let metadata = Metadata { connection: connection(&mut rng), ..Metadata::default() };
            let in_port = PortNo(rng.next_u64() as u32);
            let (mut plain, mut wide) = (PlainKey::default(), WideKey::default());
            match extract_compact(&frame, in_port, &mut plain, &mut wide).expect("plain") {
                Compact::Plain => tracked.set_plain(&plain.with_recirculation(7, 9), &metadata.connection),
                Compact::Wide => tracked.set_wide(&wide.with_recirculation(7, 9), &metadata.connection),
            }
            let context = PacketContext {
                in_port,
                recirc_id: 7,
                dp_hash: 9,
                metadata: Some(&metadata),
                ..PacketContext::default()
            };
            extract_with_into(&mut key, &frame, &context, 2);
            assert_eq!(tracked.expand(), key);
            for word in 0..layout::WORDS {
                assert_eq!((tracked.word(word), tracked.coded(Code::of(word))), (key.0[word], key.0[word]));
            }
            // A match on random bits of some words, of which one is wrong in every second round.
            let words: Vec<usize> = (0..=rng.below(6)).map(|_| rng.below(layout::WORDS as u64) as usize).collect();
            let mut bits: Vec<_> =
                words.iter().map(|word| (*word, rng.next_u64() & rng.next_u64(), key.0[*word])).collect();
            let is_wrong = n % 2 == 0 && bits[0].1 != 0;
            if is_wrong {
                bits[0].2 ^= bits[0].1 & bits[0].1.wrapping_neg();
            }
            let is_twice = words[1..].contains(&words[0]);
            let bits = TrackedMatch::new(bits);
            let (p, w) = (plain.with_recirculation(7, 9), wide.with_recirculation(7, 9));
            let covers = if form.is_v6 {
                bits.covers_wide(&w, &metadata.connection)
            } else {
                bits.covers_plain(&p, &metadata.connection)
            };
            assert!(covers != is_wrong || is_twice, "{words:?}");
            let flags = if key.get(crate::Field::IpProto) == 6 { key.get(crate::Field::TcpFlags) as u16 } else { 0 };
            assert_eq!(tracked.tcp_flags(), flags);
        }
        tally::report!("{frames} frames");
    }
}
