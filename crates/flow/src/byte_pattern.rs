//! A flow's match as bits of a plain frame ([`crate::plain`]), for the byte-compare fast path: frames of the flow that
//! was used last are recognised by their bytes, without extracting a key.
//!
//! A pattern is made for the form of the flow's packet: with or without VLAN tag, over IPv4 or IPv6, with ports or
//! ICMP. It compares the bits that all frames of that form have, and the masked bits that the frame contains. The
//! protocol and the lengths of each frame are checked besides. Masked bits of a plain key that no frame contains (the
//! ingress port, and words that are zero in such keys) are compared once, when the pattern is made.

use base::PortNo;

use crate::Sparse;
use crate::compact::Form;
use crate::extract::{ethertype, ipproto};
use crate::layout;
use crate::plain::{ALL_HAVE, check_lengths};
use crate::tunneled::is_of_tunnel;

/// Bytes compared over IPv4: Ethernet with a VLAN tag, IPv4, and ports, or TCP up to its flags.
const BYTES: usize = 48;
const GROUPS: usize = BYTES / 8;
/// Bytes compared over IPv6: up to the ports behind a VLAN tag. No plain frame over IPv6 is shorter. The last two
/// groups overlap.
const BYTES_V6: usize = 62;
const GROUPS_V6: usize = BYTES_V6.div_ceil(8);

/// The bits of a flow's match in a plain frame; see the module documentation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BytePattern(Pattern);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Pattern {
    /// TCP and UDP over IPv4 without VLAN tag.
    Untagged(Groups<GROUPS>),
    V4(Form, Groups<GROUPS>),
    V6(Form, Box<Groups<GROUPS_V6>>),
}

/// The first bytes of a frame in groups of eight, in memory order: the bits to compare and their values.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Groups<const N: usize> {
    bits: [u64; N],
    /// Zero outside of `bits`.
    values: [u64; N],
}

impl<const N: usize> Groups<N> {
    fn new(bytes: &Bytes) -> Self {
        let of = |bytes: &[u8; BYTES_V6]| match N {
            GROUPS => bytes.first_chunk::<BYTES>().map_or([0; N], groups),
            _ => groups(bytes),
        };
        Self { bits: of(&bytes.bits), values: of(&bytes.values) }
    }

    #[inline(always)]
    fn cover(&self, there: &[u64; N]) -> bool {
        let mut differ = 0;
        for ((there, value), bits) in there.iter().zip(&self.values).zip(&self.bits) {
            differ |= there & bits ^ value;
        }
        differ == 0
    }
}

/// The bytes of a pattern under construction.
struct Bytes {
    bits: [u8; BYTES_V6],
    values: [u8; BYTES_V6],
}

impl Bytes {
    /// Compares some bits of a byte of the frame.
    fn put(&mut self, at: usize, bits: u8, value: u8) {
        self.bits[at] |= bits;
        self.values[at] |= value & bits;
    }

    /// Compares bits of `byte` of a key's word. Returns false if no frame of this form received on `in_port` has that
    /// value, or if only some frames of this form contain the byte.
    fn put_word(&mut self, form: Form, (word, byte): (usize, usize), in_port: PortNo, (bits, value): (u8, u8)) -> bool {
        let (l3, l4) = (form.l3(), form.l4());
        let is_fixed = |there: u64| there.to_be_bytes()[byte] & bits == value;
        let ethertype = if form.is_v6 { ethertype::IPV6 } else { ethertype::IPV4 };
        let at = match (word, byte) {
            (layout::PORTS, _) => return is_fixed(u64::from(in_port.0) << 32),
            (layout::ETH_DST, 0..6) => byte,
            (layout::ETH_DST, _) => return is_fixed(ethertype.into()),
            (layout::ETH_SRC, 0..6) => 6 + byte,
            (layout::ETH_SRC, _) if form.tpid == 0 => return is_fixed(0),
            (layout::ETH_SRC, 6) => {
                // The drop eligible bit of the frame is the bit that marks a tag as present in the key.
                self.put(14, bits & !0x10, value);
                return value & 0x10 == bits & 0x10;
            }
            (layout::ETH_SRC, _) => 15,
            (layout::VLAN, _) => return is_fixed(u64::from(form.tpid) << 48),
            (layout::IPV4, _) if !form.is_v6 => l3 + 12 + byte,
            (layout::IP_MISC, 4) => return is_fixed(0),
            (layout::IP_MISC, 5..8) if !form.is_v6 => l3 + [1, 8, 9][byte - 5],
            // Flow label and traffic class (RFC 8200 section 3) are not aligned to bytes.
            (layout::IP_MISC, 1) if form.is_v6 => {
                self.put(l3 + 1, bits & 0x0f, value);
                return value & 0xf0 == 0;
            }
            (layout::IP_MISC, 2 | 3) if form.is_v6 => l3 + byte,
            (layout::IP_MISC, 5) if form.is_v6 => {
                self.put(l3, bits >> 4, value >> 4);
                self.put(l3 + 1, bits << 4, value << 4);
                return true;
            }
            (layout::IP_MISC, 6 | 7) if form.is_v6 => l3 + [7, 6][byte - 6],
            (layout::IPV6_SRC.., _) if form.is_v6 && word < layout::IPV6_DST + 2 => {
                l3 + 8 + 8 * (word - layout::IPV6_SRC) + byte
            }
            (layout::TP, 0..4) if !form.is_icmp => l4 + byte,
            (layout::TP, 1) => l4,
            (layout::TP, 3) => l4 + 1,
            // Only TCP has flags.
            (layout::TP, 4 | 5) if !form.is_icmp => return false,
            _ => return is_fixed(0),
        };
        self.put(at, bits, value);
        true
    }
}

impl Form {
    /// The form of the packet that a flow was made for. (For a packet of any other form, the pattern covers no frame.)
    fn of(key: &Sparse) -> Self {
        let is_v6 = key.word(layout::ETH_DST) as u16 == ethertype::IPV6;
        let icmp = if is_v6 { ipproto::ICMPV6 } else { ipproto::ICMP };
        let tpid = (key.word(layout::VLAN) >> 48) as u16;
        Self {
            tpid: if matches!(tpid, ethertype::VLAN | ethertype::QINQ) { tpid } else { 0 },
            is_v6,
            is_icmp: key.word(layout::IP_MISC) as u8 == icmp,
        }
    }

    /// Whether frames of this form have ports, and neither a VLAN tag nor IPv6.
    fn is_untagged(self) -> bool {
        self.tpid == 0 && !self.is_v6 && !self.is_icmp
    }

    /// Bytes that the pattern of this form compares; shorter frames are not covered.
    #[cfg(test)]
    fn compared(self) -> usize {
        if self.is_v6 { BYTES_V6 } else { BYTES }
    }

    /// Compares the bits that all frames of this form have.
    fn put_common(self, bytes: &mut Bytes) {
        if !self.is_v6 {
            // Behind a tag, these fields and the Ethernet type are four bytes later.
            let at_tag = self.l3() - 14;
            ALL_HAVE.into_iter().for_each(|(at, bits, value)| bytes.put(at + at_tag, bits, value));
        }
        let mut put16 = |at: usize, value: u16| {
            let [high, low] = value.to_be_bytes();
            bytes.put(at, 0xff, high);
            bytes.put(at + 1, 0xff, low);
        };
        if self.tpid != 0 {
            put16(12, self.tpid);
        }
        if self.is_v6 {
            put16(self.l3() - 2, ethertype::IPV6);
        }
    }
}

impl BytePattern {
    /// The pattern of a flow with `key` and `mask`, for frames received on `in_port`. `None` if the flow matches TCP
    /// flags, or covers no plain frame of its packet's form from that port.
    pub fn new(key: &Sparse, mask: &Sparse, in_port: PortNo) -> Option<Self> {
        Self::with(key, key.in_mask(mask), in_port)
    }

    /// The same for packets that came out of one tunnel: the fields of the outer headers and of options, which are equal for all of
    /// them, are not compared.
    pub fn behind_tunnel(key: &Sparse, mask: &Sparse, in_port: PortNo) -> Option<Self> {
        Self::with(key, key.in_mask(mask).filter(|(word, ..)| !is_of_tunnel(*word)), in_port)
    }

    fn with(key: &Sparse, compared: impl Iterator<Item = (usize, u64, u64)>, in_port: PortNo) -> Option<Self> {
        let form = Form::of(key);
        let mut bytes = Bytes { bits: [0; BYTES_V6], values: [0; BYTES_V6] };
        form.put_common(&mut bytes);
        for (word, bits, value) in compared {
            for (byte, (bits, value)) in bits.to_be_bytes().into_iter().zip(value.to_be_bytes()).enumerate() {
                if bits != 0 && !bytes.put_word(form, (word, byte), in_port, (bits, value)) {
                    return None;
                }
            }
        }
        Some(Self(match form {
            _ if form.is_untagged() => Pattern::Untagged(Groups::new(&bytes)),
            _ if form.is_v6 => Pattern::V6(form, Box::new(Groups::new(&bytes))),
            _ => Pattern::V4(form, Groups::new(&bytes)),
        }))
    }

    /// The TCP flags of a frame, if the flow covers it and it has the pattern's form (see [`Self::covers_all`]).
    #[inline]
    pub fn covers(&self, frame: &[u8]) -> Option<u16> {
        self.covers_all(std::iter::once(frame)).map(|(_, tcp_flags)| tcp_flags)
    }

    /// If the flow covers all frames and they have the pattern's form: their total length in bytes and their combined
    /// TCP flags. Also `None` if a frame is shorter than the bytes compared.
    #[inline(always)]
    pub fn covers_all<'a>(&self, frames: impl Iterator<Item = &'a [u8]>) -> Option<(u32, u16)> {
        match &self.0 {
            Pattern::Untagged(pattern) => sum(frames, |frame| {
                let there = groups(frame.first_chunk::<BYTES>()?);
                let checked = check_lengths(frame)?;
                pattern.cover(&there).then_some(checked.tcp_flags)
            }),
            Pattern::V4(form, pattern) => sum(frames, |frame| {
                let there = groups(frame.first_chunk::<BYTES>()?);
                if pattern.cover(&there) { form.tcp_flags(frame) } else { None }
            }),
            Pattern::V6(form, pattern) => sum(frames, |frame| {
                let there = groups(frame.first_chunk::<BYTES_V6>()?);
                if pattern.cover(&there) { form.tcp_flags(frame) } else { None }
            }),
        }
    }
}

/// Bits of a match in the first bytes of an untagged frame of TCP or UDP over IPv4 without options, which has been recognised as
/// such: for frames of which other bits of the match are compared elsewhere.
#[derive(Clone, Debug)]
pub struct FramePattern(Groups<GROUPS>);

impl FramePattern {
    /// Bytes that [`Self::covers`] compares.
    pub const BYTES: usize = BYTES;

    /// The pattern of these bits of words of a [`crate::PlainKey`], each as word, mask and value, without the words of the ingress
    /// port and of the hash. `None` if they contain TCP flags, or no such frame has the values.
    pub(crate) fn new(bits: impl IntoIterator<Item = (usize, u64, u64)>) -> Option<Self> {
        let form = Form { tpid: 0, is_v6: false, is_icmp: false };
        let mut bytes = Bytes { bits: [0; BYTES_V6], values: [0; BYTES_V6] };
        for (word, mask, value) in bits {
            for (byte, (mask, value)) in mask.to_be_bytes().into_iter().zip(value.to_be_bytes()).enumerate() {
                if mask != 0 && !bytes.put_word(form, (word, byte), PortNo(0), (mask, value)) {
                    return None;
                }
            }
        }
        Some(Self(Groups::new(&bytes)))
    }

    /// Returns true for a frame with these first bytes that has the values.
    #[inline(always)]
    pub fn covers(&self, frame: &[u8; BYTES]) -> bool {
        self.0.cover(&groups(frame))
    }
}

/// Total length and combined TCP flags of frames; `None` if `flags` is `None` for any of them.
#[inline(always)]
fn sum<'a>(frames: impl Iterator<Item = &'a [u8]>, flags: impl Fn(&[u8]) -> Option<u16>) -> Option<(u32, u16)> {
    let (mut bytes, mut all_flags) = (0, 0);
    for frame in frames {
        all_flags |= flags(frame)?;
        bytes += frame.len() as u32;
    }
    Some((bytes, all_flags))
}

/// Splits bytes into groups of eight, in memory order.
#[inline(always)]
fn groups<const LEN: usize, const N: usize>(bytes: &[u8; LEN]) -> [u64; N] {
    std::array::from_fn(|i| {
        let at = (8 * i).min(LEN - 8);
        bytes[at..].first_chunk().map_or(0, |group| u64::from_ne_bytes(*group))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compact::{FORMS, extract_wide, frame_of, proto_of};
    use crate::extract::extract;
    use crate::plain::{extract_plain, plain_frame};
    use crate::{FlowKey, WORDS};
    use base::rng::Rng;

    /// A mask of few bits, most of them in words of plain keys.
    fn mask(rng: &mut Rng) -> FlowKey {
        let mut mask = FlowKey::ZERO;
        let words = [
            layout::PORTS,
            layout::ETH_DST,
            layout::ETH_SRC,
            layout::VLAN,
            layout::IPV4,
            layout::IPV6_SRC,
            layout::IPV6_DST + 1,
            layout::IP_MISC,
            layout::TP,
        ];
        for _ in 0..rng.below(5) {
            let any = rng.below(WORDS as u64) as usize;
            let word = if rng.below(8) == 0 { any } else { words[rng.below(words.len() as u64) as usize] };
            mask.0[word] |= match rng.below(3) {
                0 => u64::MAX,
                1 => 0xff << (8 * rng.below(8)),
                _ => 1 << rng.below(64),
            };
        }
        mask
    }

    /// The key of a plain frame.
    fn compact(frame: &[u8], port: PortNo) -> Option<FlowKey> {
        let plain = extract_plain(frame, port).map(|key| key.expand());
        plain.or_else(|| extract_wide(frame, port).map(|key| key.expand()))
    }

    #[test]
    fn a_pattern_covers_the_plain_frames_of_its_form_that_the_flow_covers() {
        let (mut rng, port) = (Rng::seeded(11), PortNo(3));
        let (mut covered, mut patterns) = (0, [0u32; FORMS.len()]);
        for n in 0..48_000 {
            let form = FORMS[n % FORMS.len()];
            let proto = proto_of(form, &mut rng);
            let first = frame_of(form, proto, rng.below(30) as usize);
            let mask = mask(&mut rng);
            let mut key = extract(&first, port).0;
            if rng.below(8) == 0 {
                // A flow that may not cover the frame.
                key.0[rng.below(WORDS as u64) as usize] ^= 1 << rng.below(64);
            }
            let of_key = Form::of(&Sparse::new(&key));
            let Some(pattern) = BytePattern::new(&Sparse::new(&key), &Sparse::new(&mask), port) else {
                // The flow matches TCP flags, or something that no plain frame from this port has.
                let plain = compact(&first, port).expect("plain");
                let flags = mask.0[layout::TP] >> 16 & 0xffff != 0;
                assert!(of_key != form || flags || !plain.eq_masked(&key, &mask), "{mask:?}");
                continue;
            };
            patterns[n % FORMS.len()] += 1;
            for _ in 0..8 {
                let mut frame = match rng.below(8) {
                    0 => frame_of(FORMS[rng.below(FORMS.len() as u64) as usize], proto, 12),
                    1 => frame_of(form, proto_of(form, &mut rng), 12),
                    _ => first.clone(),
                };
                for _ in 0..rng.below(3) {
                    let at = rng.below(frame.len() as u64) as usize;
                    frame[at] ^= 1 << rng.below(8);
                }
                match rng.below(6) {
                    0 => frame.truncate(frame.len() - rng.below(30) as usize),
                    1 => frame.resize(frame.len() + rng.below(30) as usize, 7),
                    _ => {}
                }
                let of_form = |key: &FlowKey| {
                    let long_enough = frame.len() >= of_key.compared();
                    // The untagged IPv4 form with ports covers TCP and UDP only.
                    let is_known = !of_key.is_untagged() || matches!(key.0[layout::IP_MISC] as u8, 6 | 17);
                    Form::of(&Sparse::new(key)) == of_key && long_enough && is_known
                };
                let right = compact(&frame, port).filter(of_form).filter(|of_frame| of_frame.eq_masked(&key, &mask));
                let flags = |key: FlowKey| (key.0[layout::TP] >> 16) as u16 & 0xfff;
                covered += u64::from(right.is_some());
                let found = pattern.covers_all([&frame[..]].into_iter());
                assert_eq!(found, right.map(|key| (frame.len() as u32, flags(key))), "{frame:x?} {key:?} {mask:?}");
            }
        }
        tally::report!("{} patterns, {covered} frames covered", patterns.iter().sum::<u32>());
        assert!(patterns.iter().all(|n| *n > 1000) && covered > 20_000, "{patterns:?} {covered}");
    }

    #[test]
    fn bits_outside_of_frames_are_compared_when_the_pattern_is_made() {
        let key = extract(&plain_frame(17, 20), PortNo(3)).0;
        let pattern = |change: &dyn Fn(&mut FlowKey), word: usize, port| {
            let (mut key, mut mask) = (key.clone(), FlowKey::ZERO);
            change(&mut key);
            mask.0[word] = u64::MAX;
            BytePattern::new(&Sparse::new(&key), &Sparse::new(&mask), PortNo(port))
        };
        assert!(pattern(&|_| (), layout::PORTS, 3).is_some());
        assert!(pattern(&|_| (), layout::PORTS, 4).is_none());
        assert!(pattern(&|key| key.0[layout::PORTS] |= 1, layout::PORTS, 3).is_none());
        assert!(pattern(&|_| (), layout::VLAN, 3).is_some());
        assert!(pattern(&|key| key.0[layout::VLAN] = 1, layout::VLAN, 3).is_none());
        assert!(pattern(&|key| key.0[layout::ETH_DST] ^= 1, layout::ETH_DST, 3).is_none());
        assert!(pattern(&|_| (), layout::TP, 3).is_none());
    }

    #[test]
    fn fields_of_a_tunnel_are_compared_only_without_one() {
        let key = extract(&plain_frame(17, 20), PortNo(3)).0;
        let mut mask = FlowKey::ZERO;
        (mask.0[layout::TUN_ID], mask.0[layout::TUN_METADATA], mask.0[layout::IPV4]) = (7, 1, u64::MAX);
        let mut of_tunnel = key.clone();
        (of_tunnel.0[layout::TUN_ID], of_tunnel.0[layout::TUN_METADATA]) = (5, 1);
        let patterns = |key: &FlowKey| {
            let (key, mask) = (Sparse::new(key), Sparse::new(&mask));
            [BytePattern::new(&key, &mask, PortNo(3)), BytePattern::behind_tunnel(&key, &mask, PortNo(3))]
        };
        let [plain, behind] = patterns(&key);
        assert!(plain.is_some() && plain == behind);
        assert_eq!(patterns(&of_tunnel), [None, behind]);
    }
}
