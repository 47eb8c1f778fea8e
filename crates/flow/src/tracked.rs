//! Compact keys of packets that went through the connection tracker: a plain packet's key and the fields of its connection.
//!
//! Such keys equal the result of [`crate::extract()`] and the connection of the packet's metadata. Packets with other
//! metadata, such as a tunnel or a mark of the host, have whole keys only.

use base::PortNo;
use packet::metadata::{Connection, Tuple};

use crate::byte_pattern::FramePattern;
use crate::plain::{Code, DP_HASH_SHIFT, OTHERS, PLAIN_PLACES, PLAIN_WORDS, WIDE_WORDS, Words, coded_words};
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

/// The fields of a connection that most matches read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Brief {
    /// The word with state, zone and protocol.
    ct: u64,
    mark: u64,
    label: [u64; 2],
}

impl Brief {
    /// The fields by their values. `proto` is the protocol of the original tuple, 0 without one.
    #[inline]
    pub fn new(state: u32, zone: u16, proto: u8, mark: u32, label: u128) -> Self {
        let ct = u64::from(state) << 32 | u64::from(zone) << 16 | u64::from(proto) << 8;
        Self { ct, mark: mark.into(), label: [(label >> 64) as u64, label as u64] }
    }

    /// The fields of a connection.
    #[inline]
    fn of(connection: &Connection) -> Self {
        let proto = connection.original.map_or(0, |tuple| tuple.proto);
        Self::new(connection.state, connection.zone, proto, connection.mark, connection.label)
    }
}

/// Bits of a word that a match reads, and their values.
#[derive(Clone, Copy, Debug, Default)]
struct Bits {
    mask: u64,
    value: u64,
}

impl Bits {
    fn add(&mut self, mask: u64, value: u64) {
        (self.mask, self.value) = (self.mask | mask, self.value | value);
    }

    /// 0 if the word has the values.
    #[inline]
    fn difference(self, word: u64) -> u64 {
        word & self.mask ^ self.value
    }
}

/// A match on packets with a connection, in a form that needs no [`TrackedKey`].
#[derive(Clone, Debug, Default)]
pub struct TrackedMatch {
    /// Bits of the words of a [`PlainKey`] and their values, by place.
    masks: [u64; PLAIN_PLACES],
    values: [u64; PLAIN_PLACES],
    /// Bits of [`Brief`].
    ct: Bits,
    mark: Bits,
    label: [Bits; 2],
    /// Bits of the other words of a connection, from [`FIRST`] on.
    original: Vec<(u8, Bits)>,
    /// Bits of all other words.
    others: Vec<(Code, Bits)>,
    /// Bits of the words of a [`PlainKey`] in the bytes of an untagged frame; see [`Self::frame`].
    frame: Option<FramePattern>,
    /// Whether it reads mark or label.
    reads_mark: bool,
    /// Whether frames, as opposed to packets without an Ethernet header, have the values.
    is_for_frames: bool,
    /// Whether plain packets over IPv4, in which the other words are zero, have the values of `others`.
    is_for_plain: bool,
}

impl TrackedMatch {
    /// A match on these bits of words: each as word, mask and value.
    pub fn new(bits: impl IntoIterator<Item = (usize, u64, u64)>) -> Self {
        let mut found = Self { is_for_frames: true, is_for_plain: true, ..Self::default() };
        for (word, mut mask, value) in bits {
            let (code, value) = (Code::of(word), value & mask);
            if word == layout::PKTTYPE_CTTP {
                // The type of frames is 0, as are all bits in the upper half.
                found.is_for_frames &= value >> 32 == 0;
                mask &= u64::from(u32::MAX);
            }
            if mask == 0 {
                continue;
            }
            match word {
                _ if code.number() < PLAIN_PLACES => {
                    found.masks[code.number()] |= mask;
                    found.values[code.number()] |= value;
                }
                layout::CT => found.ct.add(mask, value),
                layout::CONJ_CTMARK => found.mark.add(mask, value),
                layout::CT_LABEL => found.label[0].add(mask, value),
                _ if word == layout::CT_LABEL + 1 => found.label[1].add(mask, value),
                _ if (FIRST..FIRST + N).contains(&word) => {
                    found.original.push(((word - FIRST) as u8, Bits { mask, value: value & mask }));
                }
                _ => {
                    found.others.push((code, Bits { mask, value }));
                    found.is_for_plain &= value == 0;
                }
            }
        }
        found.is_for_plain &= found.is_for_frames;
        found.reads_mark = [&found.mark, &found.label[0], &found.label[1]].iter().any(|bits| bits.mask != 0);
        if found.is_for_plain && found.is_brief() {
            let inner = 1..PLAIN_PLACES - 1;
            let words = coded_words().filter(|(code, _)| inner.contains(code));
            let bits = words.map(|(code, word)| (word, found.masks[code], found.values[code]));
            found.frame = FramePattern::new(bits);
        }
        found
    }

    /// Its bits in the bytes of a plain packet, if such a packet is covered that has them, the connection's fields
    /// ([`Self::covers_fields`]), and the right pass ([`Self::covers_pass`]). Only for matches that [`Self::is_brief`].
    #[inline(always)]
    pub fn frame(&self) -> Option<&FramePattern> {
        self.frame.as_ref()
    }

    /// Returns true for plain packets from this port that are recirculated with this id and hash, if they may have the values.
    #[inline]
    pub fn covers_pass(&self, in_port: PortNo, recirc_id: u32, dp_hash: u32) -> bool {
        let port = u64::from(in_port.0) << 32 | u64::from(recirc_id);
        let (first, last) = (0, PLAIN_PLACES - 1);
        let differs = |code: usize, word: u64| word & self.masks[code] ^ self.values[code];
        differs(first, port) | differs(last, u64::from(dp_hash) << DP_HASH_SHIFT) == 0
    }

    /// Returns true if the match reads the hash that the datapath has computed.
    #[inline]
    pub fn reads_hash(&self) -> bool {
        self.masks[PLAIN_PLACES - 1] != 0
    }

    /// Returns true if state, zone and protocol of a connection, and what `marks` returns, its mark and label, have the values.
    #[inline(always)]
    pub fn covers_fields(&self, state: u32, zone: u16, proto: u8, marks: impl FnOnce() -> (u32, u128)) -> bool {
        if !self.reads_mark {
            return self.ct.difference(Brief::new(state, zone, proto, 0, 0).ct) == 0;
        }
        let (mark, label) = marks();
        self.difference_of(&Brief::new(state, zone, proto, mark, label)) == 0
    }

    /// Returns true if the match reads nothing of a connection but the fields in [`Brief`].
    #[inline]
    pub fn is_brief(&self) -> bool {
        self.original.is_empty()
    }

    /// Returns true for a plain packet over IPv4 with this connection that has the values.
    #[inline]
    pub fn covers_plain(&self, key: &PlainKey, connection: &Connection) -> bool {
        self.is_for_plain
            && self.difference(key.words()) | self.difference_of(&Brief::of(connection)) == 0
            && self.covers_original(connection)
    }

    /// Returns true for a plain packet over IPv6 with this connection that has the values.
    #[inline]
    pub fn covers_wide(&self, key: &WideKey, connection: &Connection) -> bool {
        let words = key.words().first_chunk().map_or(u64::MAX, |words| self.difference(words));
        self.is_for_frames
            && words | self.difference_of(&Brief::of(connection)) == 0
            && self.others.iter().all(|(code, bits)| bits.difference(key.coded(*code)) == 0)
            && self.covers_original(connection)
    }

    /// 0 if the words have the values.
    #[inline]
    fn difference(&self, words: &[u64; PLAIN_PLACES]) -> u64 {
        let bits = self.masks.iter().zip(&self.values);
        bits.zip(words).fold(0, |difference, ((mask, value), word)| difference | word & mask ^ value)
    }

    #[inline]
    fn difference_of(&self, brief: &Brief) -> u64 {
        let label = self.label[0].difference(brief.label[0]) | self.label[1].difference(brief.label[1]);
        self.ct.difference(brief.ct) | self.mark.difference(brief.mark) | label
    }

    #[inline]
    fn covers_original(&self, connection: &Connection) -> bool {
        if self.original.is_empty() {
            return true;
        }
        let words = words_of(connection);
        self.original.iter().all(|(at, bits)| bits.difference(words[usize::from(*at).min(N)]) == 0)
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
    use crate::plain::{extract_plain, plain_frame, untagged_head};
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
        assert!(TrackedMatch::new([(layout::PKTTYPE_CTTP, u64::MAX << 32, 0)]).is_brief());
        tally::report!("{frames} frames");
    }

    #[test]
    fn bytes_decide_as_keys_do() {
        let (mut rng, mut decided, mut covered) = (Rng::seeded(6), 0, 0);
        let frames = 20_000;
        let words = [
            layout::PORTS,
            layout::ETH_DST,
            layout::ETH_SRC,
            layout::IPV4,
            layout::IP_MISC,
            layout::TP,
            layout::VLAN,
            layout::DPHASH_ACTSET,
            layout::CT,
            layout::CONJ_CTMARK,
            layout::CT_LABEL,
            layout::CT_LABEL + 1,
            layout::CT_NW,
        ];
        for _ in 0..frames {
            let frame = plain_frame(if rng.below(2) == 0 { 6 } else { 17 }, rng.below(30) as usize);
            let connection = connection(&mut rng);
            let in_port = PortNo(rng.next_u64() as u32);
            let plain = extract_plain(&frame, in_port).expect("plain").with_recirculation(7, 9);
            let mut tracked = TrackedKey::default();
            tracked.set_plain(&plain, &connection);
            let bits = (0..rng.below(5)).map(|_| {
                let word = words[rng.below(words.len() as u64) as usize];
                let mask = rng.next_u64() & rng.next_u64();
                let wrong = if rng.below(6) == 0 { mask & mask.wrapping_neg() } else { 0 };
                (word, mask, tracked.word(word) ^ wrong)
            });
            let bits = TrackedMatch::new(bits.collect::<Vec<_>>());
            let (head, flags) = untagged_head(&frame).expect("untagged");
            assert_eq!((u64::from(head.ports()), flags), (plain.coded(Code::of(layout::TP)) >> 32, plain.tcp_flags()));
            let (Some(pattern), Some(first)) = (bits.frame(), frame.first_chunk()) else { continue };
            let proto = connection.original.map_or(0, |tuple| tuple.proto);
            let marks = || (connection.mark, connection.label);
            let by_bytes = pattern.covers(first)
                && bits.covers_pass(in_port, 7, 9)
                && bits.covers_fields(connection.state, connection.zone, proto, marks);
            assert_eq!(by_bytes, bits.covers_plain(&plain, &connection));
            assert!(bits.reads_hash() || bits.covers_pass(in_port, 7, 9) == bits.covers_pass(in_port, 7, 0));
            (decided, covered) = (decided + 1, covered + u32::from(by_bytes));
        }
        tally::report!("{frames} frames, {decided} decided by bytes, {covered} covered");
        assert!(decided > 5000 && covered > 2000 && covered < decided);
    }
}
