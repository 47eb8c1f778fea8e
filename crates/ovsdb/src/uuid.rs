//! UUIDs (RFC 4122) and their sources: the operating system, or a seed for reproducible runs.

use std::fmt;
use std::str::FromStr;

/// A UUID; the all-zeros one is the default value of a `uuid` column.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Uuid([u8; 16]);

impl Uuid {
    /// The all-zeros UUID.
    pub const ZERO: Uuid = Uuid([0; 16]);

    /// The UUID with these bytes, in network order.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// The bytes, in network order.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// A version 4 UUID whose 122 free bits are taken from `bytes`.
    pub fn v4(mut bytes: [u8; 16]) -> Self {
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Self(bytes)
    }

    /// A fresh version 4 UUID from the operating system's random source.
    pub fn random() -> Self {
        UuidSource::os().next_uuid()
    }

    /// Whether this is the all-zeros UUID.
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// Reads the canonical 36-character form; upper case digits are accepted, as Open vSwitch does.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        if text.len() != 36 {
            return None;
        }
        let mut bytes = [0u8; 16];
        let mut nibbles = 0usize;
        for (at, &c) in text.iter().enumerate() {
            if matches!(at, 8 | 13 | 18 | 23) {
                if c != b'-' {
                    return None;
                }
                continue;
            }
            let digit = (c as char).to_digit(16)? as u8;
            let byte = bytes.get_mut(nibbles / 2)?;
            *byte = (*byte << 4) | digit;
            nibbles += 1;
        }
        Some(Self(bytes))
    }
}

impl Uuid {
    /// The 36 characters of the canonical form.
    pub fn to_text(self) -> [u8; 36] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b'-'; 36];
        let mut at = 0;
        for byte in self.0 {
            if matches!(at, 8 | 13 | 18 | 23) {
                at += 1;
            }
            text[at] = DIGITS[usize::from(byte >> 4)];
            text[at + 1] = DIGITS[usize::from(byte & 15)];
            at += 2;
        }
        text
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.to_text();
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a UUID in canonical form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a valid UUID")]
pub struct NotUuid(String);

impl FromStr for Uuid {
    type Err = NotUuid;

    fn from_str(text: &str) -> Result<Self, NotUuid> {
        Self::parse(text).ok_or_else(|| NotUuid(text.to_owned()))
    }
}

/// A stream of new UUIDs. A clone of a random one is random.
#[derive(Debug)]
pub struct UuidSource(Source);

#[derive(Debug)]
enum Source {
    /// Unused random bytes of the operating system: a UUID cannot be predicted from others.
    System(Vec<u8>),
    /// The state of a generator.
    Seeded([u64; 2]),
}

impl Clone for UuidSource {
    fn clone(&self) -> Self {
        match self.0 {
            Source::System(_) => Self::os(),
            Source::Seeded(state) => Self(Source::Seeded(state)),
        }
    }
}

/// How many random bytes a source gets at a time.
const RANDOM_BYTES: usize = 512;

impl UuidSource {
    /// A source whose UUIDs are random bytes of the operating system.
    pub fn os() -> Self {
        Self(Source::System(Vec::new()))
    }

    /// A source with the same UUIDs for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self(Source::Seeded([seed, !seed]))
    }

    /// A new source: seeded by the next UUID of `other`, or random if `other` is.
    pub fn seeded_from(other: &mut UuidSource) -> Self {
        match &mut other.0 {
            Source::System(_) => Self::os(),
            Source::Seeded([low, high]) => Self(Source::Seeded([split_mix(low, 0x9e37_79b9_7f4a_7c15), !*high])),
        }
    }

    /// The next UUID, of version 4.
    pub fn next_uuid(&mut self) -> Uuid {
        let mut bytes = [0u8; 16];
        match &mut self.0 {
            Source::System(random) => {
                if random.len() < bytes.len() {
                    *random = random_bytes();
                }
                let rest = random.len().saturating_sub(bytes.len());
                for (byte, random) in bytes.iter_mut().zip(random.drain(rest..)) {
                    *byte = random;
                }
            }
            Source::Seeded([low_state, high_state]) => {
                let (low, high) = bytes.split_at_mut(8);
                low.copy_from_slice(&split_mix(low_state, 0x9e37_79b9_7f4a_7c15).to_be_bytes());
                high.copy_from_slice(&split_mix(high_state, 0xd1b5_4a32_d192_ed03).to_be_bytes());
            }
        }
        Uuid::v4(bytes)
    }
}

fn random_bytes() -> Vec<u8> {
    let mut bytes = vec![0; RANDOM_BYTES];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()).unwrap_or(0);
    // Only a kernel without getrandom(2) leaves a rest: the hasher's per-process keys are the next best source.
    for (at, chunk) in bytes.chunks_mut(8).enumerate().skip(filled / 8) {
        use std::hash::{BuildHasher, RandomState};
        let word = RandomState::new().hash_one((std::process::id(), at)).to_le_bytes();
        chunk.iter_mut().zip(word).for_each(|(byte, random)| *byte = random);
    }
    bytes
}

/// SplitMix64 (Steele, Lea, Flood 2014) with the given odd increment: every state is visited once in 2^64 steps.
fn split_mix(state: &mut u64, increment: u64) -> u64 {
    *state = state.wrapping_add(increment);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips_and_bad_text_is_refused() {
        let text = "550e8400-e29b-41d4-a716-446655440000";
        assert_eq!(Uuid::parse(text).unwrap().to_string(), text);
        for bad in [
            "",
            "550e8400-e29b-41d4-a716-44665544000",
            "550e8400-e29b-41d4-a716-44665544000g",
            "550e8400e29b-41d4-a716-4466554400000",
        ] {
            assert!(Uuid::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn sources_give_version_4_and_seeds_repeat() {
        let mut a = UuidSource::seeded(7);
        let mut b = UuidSource::seeded(7);
        for _ in 0..100 {
            let uuid = a.next_uuid();
            assert_eq!(uuid, b.next_uuid());
            assert_eq!(uuid.to_string().as_bytes()[14], b'4');
        }
        assert_ne!(Uuid::random(), Uuid::random());
    }

    #[test]
    fn random_uuids_differ_also_across_sources() {
        let mut source = UuidSource::os();
        let mut other = UuidSource::seeded_from(&mut source);
        let mut seen = std::collections::HashSet::new();
        for _ in 0..200 {
            assert!(seen.insert(source.next_uuid()) && seen.insert(other.next_uuid()));
        }
        assert!(seen.iter().all(|uuid| uuid.to_string().as_bytes()[14] == b'4'));
    }
}
