//! What a flow asks of a plain frame, as bits of the frame: so that frames which take the flow of those before them are told
//! by their bytes, and no key is made of them.
//!
//! Which bits are looked at: those that all plain frames have ([`crate::plain`]), and those of the flow's mask, each where
//! the frame has it; beside them a frame's protocol and lengths are asked. What a plain key says that stands nowhere in the frame (the ingress port, and zero in all words
//! that such keys do not have) is compared once, when the pattern is made.

use base::PortNo;

use crate::Sparse;
use crate::extract::ethertype;
use crate::layout;
use crate::plain::{ALL_HAVE, check_lengths};

/// Bytes of a frame that are looked at: Ethernet, IPv4, and TCP as far as its flags.
const BYTES: usize = 48;
const GROUPS: usize = BYTES / 8;

/// The bits of a flow's mask in a plain frame, with the flow's values there; see the module's text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Alike {
    bits: [u64; GROUPS],
    /// Zero where `bits` are.
    values: [u64; GROUPS],
}

/// Where a byte of a key's word, counted from the most significant, comes from.
enum From {
    Frame(usize),
    /// It is the same in all plain frames from one port.
    Fixed(u8),
    /// It is in some frames only.
    Varies,
}

fn origin(word: usize, byte: usize, in_port: PortNo) -> From {
    let fixed = |value: u64| From::Fixed(value.to_be_bytes()[byte]);
    match (word, byte) {
        (layout::PORTS, _) => fixed(u64::from(in_port.0) << 32),
        (layout::ETH_DST, 0..6) => From::Frame(byte),
        (layout::ETH_DST, _) => fixed(ethertype::IPV4.into()),
        (layout::ETH_SRC, 0..6) => From::Frame(6 + byte),
        (layout::IPV4, _) => From::Frame(26 + byte),
        // Type of service, time to live, protocol.
        (layout::IP_MISC, 5) => From::Frame(15),
        (layout::IP_MISC, 6 | 7) => From::Frame(16 + byte),
        (layout::TP, 0..4) => From::Frame(34 + byte),
        // TCP flags, of which UDP has none.
        (layout::TP, 4 | 5) => From::Varies,
        _ => From::Fixed(0),
    }
}

impl Alike {
    /// The pattern of a flow that matches the bits `mask` as `key` has them, for frames that come in at `in_port`. `None`
    /// if it covers no plain frame from there, or asks for TCP flags.
    pub fn new(key: &Sparse, mask: &Sparse, in_port: PortNo) -> Option<Self> {
        let (mut all_bits, mut values) = ([0; BYTES], [0; BYTES]);
        for (at, bits, value) in ALL_HAVE {
            (all_bits[at], values[at]) = (bits, value);
        }
        for (word, bits, value) in key.in_mask(mask) {
            for (byte, (bits, value)) in bits.to_be_bytes().into_iter().zip(value.to_be_bytes()).enumerate() {
                match origin(word, byte, in_port) {
                    _ if bits == 0 => {}
                    From::Frame(at) => (all_bits[at], values[at]) = (bits, value),
                    From::Fixed(there) if there & bits == value => {}
                    From::Fixed(_) | From::Varies => return None,
                }
            }
        }
        Some(Self { bits: groups(&all_bits), values: groups(&values) })
    }

    /// Whether a frame is plain and the flow covers it; then its TCP flags, 0 of one that has none. (Also `None` of plain
    /// frames that have less than 48 bytes.)
    #[inline]
    pub fn tcp_flags_if_covered(&self, frame: &[u8]) -> Option<u16> {
        let there = groups(frame.first_chunk()?);
        let checked = check_lengths(frame)?;
        let mut differ = 0;
        for ((there, value), bits) in there.iter().zip(&self.values).zip(&self.bits) {
            differ |= there & bits ^ value;
        }
        (differ == 0).then_some(checked.tcp_flags)
    }
}

/// Bytes by eight, as they stand in memory.
#[inline]
fn groups(bytes: &[u8; BYTES]) -> [u64; GROUPS] {
    let (groups, _) = bytes.as_chunks::<8>();
    std::array::from_fn(|i| groups.get(i).map_or(0, |group| u64::from_ne_bytes(*group)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::extract;
    use crate::plain::{extract_plain, plain_frame};
    use crate::{FlowKey, WORDS};
    use base::rng::Rng;

    /// A mask of few bits, most of them in words that plain keys have.
    fn mask(rng: &mut Rng) -> FlowKey {
        let mut mask = FlowKey::ZERO;
        let words = [layout::PORTS, layout::ETH_DST, layout::ETH_SRC, layout::IPV4, layout::IP_MISC, layout::TP];
        for _ in 0..rng.below(5) {
            let any = rng.below(WORDS as u64) as usize;
            let word = if rng.below(8) == 0 { any } else { words[rng.below(6) as usize] };
            mask.0[word] |= match rng.below(3) {
                0 => u64::MAX,
                1 => 0xff << (8 * rng.below(8)),
                _ => 1 << rng.below(64),
            };
        }
        mask
    }

    #[test]
    fn frames_that_are_alike_are_those_with_keys_that_are() {
        let (mut rng, port) = (Rng::seeded(11), PortNo(3));
        let (mut covered, mut patterns) = (0, 0);
        for _ in 0..60_000 {
            let proto = if rng.below(2) == 0 { 6 } else { 17 };
            let first = plain_frame(proto, rng.below(30) as usize);
            let mask = mask(&mut rng);
            let mut key = extract(&first, port).0;
            if rng.below(8) == 0 {
                // One that the frame's flow may have nothing to do with.
                key.0[rng.below(WORDS as u64) as usize] ^= 1 << rng.below(64);
            }
            let Some(alike) = Alike::new(&Sparse::new(&key), &Sparse::new(&mask), port) else {
                // It asks for what no plain frame from here has, or for flags.
                let plain = extract_plain(&first, port).expect("plain").expand();
                let asks = mask.0[layout::TP] >> 16 & 0xffff != 0;
                assert!(asks || !plain.eq_masked(&key, &mask), "{mask:?}");
                continue;
            };
            patterns += 1;
            for _ in 0..8 {
                let mut frame = if rng.below(4) == 0 { plain_frame(23 - proto, 12) } else { first.clone() };
                for _ in 0..rng.below(3) {
                    let at = rng.below(frame.len() as u64) as usize;
                    frame[at] ^= 1 << rng.below(8);
                }
                match rng.below(6) {
                    0 => frame.truncate(frame.len() - rng.below(30) as usize),
                    1 => frame.resize(frame.len() + rng.below(30) as usize, 7),
                    _ => {}
                }
                let right = extract_plain(&frame, port).map(|plain| plain.expand()).filter(|_| frame.len() >= BYTES);
                let right = right.filter(|of_frame| of_frame.eq_masked(&key, &mask));
                let flags = |key: FlowKey| (key.0[layout::TP] >> 16) as u16 & 0xfff;
                covered += u64::from(right.is_some());
                assert_eq!(alike.tcp_flags_if_covered(&frame), right.map(flags), "{frame:?} {mask:?}");
            }
        }
        tally::report!("{patterns} patterns, {covered} frames covered");
        assert!(patterns > 10_000 && covered > 10_000);
    }

    #[test]
    fn what_no_frame_says_is_compared_at_once() {
        let key = extract(&plain_frame(17, 20), PortNo(3)).0;
        let pattern = |change: &dyn Fn(&mut FlowKey), word: usize, port| {
            let (mut key, mut mask) = (key.clone(), FlowKey::ZERO);
            change(&mut key);
            mask.0[word] = u64::MAX;
            Alike::new(&Sparse::new(&key), &Sparse::new(&mask), PortNo(port))
        };
        assert!(pattern(&|_| (), layout::PORTS, 3).is_some());
        assert!(pattern(&|_| (), layout::PORTS, 4).is_none());
        assert!(pattern(&|key| key.0[layout::PORTS] |= 1, layout::PORTS, 3).is_none());
        assert!(pattern(&|_| (), layout::VLAN, 3).is_some());
        assert!(pattern(&|key| key.0[layout::VLAN] = 1, layout::VLAN, 3).is_none());
        assert!(pattern(&|key| key.0[layout::ETH_DST] ^= 1, layout::ETH_DST, 3).is_none());
        assert!(pattern(&|_| (), layout::TP, 3).is_none());
    }
}
