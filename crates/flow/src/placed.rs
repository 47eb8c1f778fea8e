//! Tunnel options in a key, at the locations that the switch's TLV table assigned.
//!
//! An option's value is stored in pieces of four bytes, and a presence bit marks the option as present in the packet.
//! Every writer keeps this invariant of keys: the value of an absent option is zero.

use super::field::{Field, Loc};
use super::key::{FlowKey, FlowMask};
use super::layout;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The location of four bytes of a tunnel option in a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionPlace(u8);

/// The bit of a key's tunnel flags that says that the packet has a critical option which no bridge can read. No field shows it.
pub const UNKNOWN_OPTION: u16 = 0x10;
/// The bit that says that an option which some bridge reads has another length. No field shows it.
pub const OTHER_LENGTH: u16 = 0x20;

/// The word of presence bits, one for each option, relative to the option words.
const PRESENCE: usize = layout::REGS - layout::TUN_METADATA - 1;

impl OptionPlace {
    /// Number of locations. (The last word holds the presence bits.)
    pub const COUNT: u8 = 2 * PRESENCE as u8;

    /// Location `n`, if it exists.
    pub fn new(n: u8) -> Option<Self> {
        (n < Self::COUNT).then_some(Self(n))
    }

    fn word(self) -> (usize, u16) {
        (layout::TUN_METADATA + usize::from(self.0 / 2), if self.0.is_multiple_of(2) { 32 } else { 0 })
    }
}

/// A tunnel option with its location in a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlacedOption {
    field: Field,
    index: u8,
    /// The number of its presence bit.
    slot: u8,
    /// Class and type of the option in a tunnel header (RFC 8926 section 3.5).
    id: (u16, u8),
    /// Locations, most significant four bytes first.
    places: Arc<[OptionPlace]>,
}

/// Contiguous bits of an option in a word of a key.
struct Piece {
    word: usize,
    shift: u16,
    n_bits: u16,
    /// Offset of these bits in the requested range, from the least significant bit.
    at: u16,
}

impl Piece {
    fn ones(&self) -> u64 {
        (1 << self.n_bits) - 1
    }
}

impl PlacedOption {
    /// The option of `field` at `places`, most significant four bytes first. `None` if the field is no tunnel option.
    pub fn new(field: Field, places: &[OptionPlace]) -> Option<Self> {
        let Loc::TunMetadata(index) = field.info().loc else { return None };
        Some(Self { field, index, slot: index, id: (0, 0), places: places.into() })
    }

    /// The same with another presence bit, of 64. Without this, the number of the field is that of the bit.
    #[must_use]
    pub fn with_presence(self, slot: u8) -> Self {
        Self { slot: slot & 63, ..self }
    }

    /// The same for an option with this class and type in headers.
    #[must_use]
    pub fn with_id(self, class: u16, kind: u8) -> Self {
        Self { id: (class, kind), ..self }
    }

    /// Class and type of the option in headers.
    pub fn id(&self) -> (u16, u8) {
        self.id
    }

    /// Whether a receiver that does not know the option must drop the packet (RFC 8926 section 3.5).
    pub fn is_critical(&self) -> bool {
        is_critical(self.id.1)
    }

    /// Its field.
    pub fn field(&self) -> Field {
        self.field
    }

    /// Where it is.
    pub fn places(&self) -> &[OptionPlace] {
        &self.places
    }

    /// Length of its value in bits.
    pub fn n_bits(&self) -> u16 {
        32 * self.places.len() as u16
    }

    /// The word and bit of its presence.
    pub fn presence(&self) -> (usize, u64) {
        (layout::TUN_METADATA + PRESENCE, 1 << (self.slot & 63))
    }

    /// The locations of `n_bits` bits of the value from bit `offset` on, limited to the value's length.
    fn pieces(&self, offset: u16, n_bits: u16) -> impl Iterator<Item = Piece> + '_ {
        let end = offset.saturating_add(n_bits).min(self.n_bits());
        let mut next = offset;
        std::iter::from_fn(move || {
            let place = self.places.iter().rev().nth(usize::from(next / 32)).filter(|_| next < end)?;
            let (word, base) = place.word();
            let (begin, n_bits) = (next % 32, (32 - next % 32).min(end - next));
            let piece = Piece { word, shift: base + begin, n_bits, at: next - offset };
            next += n_bits;
            Some(piece)
        })
    }

    /// Reads `n_bits` bits, 64 at most, of the value from bit `offset` on.
    pub fn get(&self, key: &FlowKey, offset: u16, n_bits: u16) -> u64 {
        self.pieces(offset, n_bits.min(64)).fold(0, |value, p| value | (key.0[p.word] >> p.shift & p.ones()) << p.at)
    }

    /// Writes these bits and sets the presence bit.
    pub fn set(&self, key: &mut FlowKey, offset: u16, n_bits: u16, value: u64) {
        let (word, bit) = self.presence();
        key.0[word] |= bit;
        self.put(key, offset, n_bits, value);
    }

    fn put(&self, key: &mut FlowKey, offset: u16, n_bits: u16, value: u64) {
        for p in self.pieces(offset, n_bits.min(64)) {
            let word = &mut key.0[p.word];
            *word = *word & !(p.ones() << p.shift) | (value >> p.at & p.ones()) << p.shift;
        }
    }

    /// The mask of `n_bits` bits of the value from bit `offset` on.
    pub fn mask(&self, offset: u16, n_bits: u16) -> FlowMask {
        let mut mask = FlowKey::ZERO;
        for p in self.pieces(offset, n_bits) {
            mask.0[p.word] |= p.ones() << p.shift;
        }
        mask
    }

    /// The mask of the option's value and presence bit.
    pub fn whole(&self) -> FlowMask {
        let mut mask = self.mask(0, self.n_bits());
        let (word, bit) = self.presence();
        mask.0[word] |= bit;
        mask
    }

    /// The value's bytes, most significant first.
    pub fn bytes(&self, key: &FlowKey) -> Vec<u8> {
        let words = (0..self.places.len() as u16).rev().map(|n| self.get(key, 32 * n, 32) as u32);
        words.flat_map(u32::to_be_bytes).collect()
    }

    /// Sets the value and the presence bit: bytes, most significant first, as many as the option has.
    pub fn put_bytes(&self, key: &mut FlowKey, value: &[u8]) {
        self.write(&mut key.0, value);
    }

    /// The same in the words of a key that hold options, from [`layout::TUN_METADATA`] on.
    #[inline]
    fn write(&self, words: &mut [u64], value: &[u8]) {
        let (word, bit) = self.presence();
        let presence = words.get_mut(word - layout::TUN_METADATA).map(|word| *word |= bit);
        debug_assert!(presence.is_some());
        for (bytes, place) in value.rchunks_exact(4).zip(self.places.iter().rev()) {
            let bytes = bytes.first_chunk().map_or(0, |bytes| u32::from_be_bytes(*bytes));
            let (word, shift) = place.word();
            if let Some(word) = words.get_mut(word - layout::TUN_METADATA) {
                *word = *word & !(u64::from(u32::MAX) << shift) | u64::from(bytes) << shift;
            }
        }
    }

    /// Sets four bytes of the value; `n` counts from the least significant.
    pub(crate) fn put_word(&self, key: &mut FlowKey, n: u16, value: u32) {
        self.put(key, 32 * n, 32, value.into());
    }
}

/// Options with a location, by field.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OptionTable(BTreeMap<u8, PlacedOption>);

impl OptionTable {
    /// The option of this field; `None` if it has no location.
    pub fn get(&self, field: Field) -> Option<&PlacedOption> {
        if let Loc::TunMetadata(index) = field.info().loc { self.0.get(&index) } else { None }
    }

    /// The options of a packet with this key as they are in a tunnel header.
    pub fn encode(&self, key: &FlowKey) -> Vec<u8> {
        let mut bytes = Vec::new();
        for option in self.iter() {
            let (word, bit) = option.presence();
            if key.0[word] & bit != 0 {
                let (class, kind) = option.id;
                bytes.extend(class.to_be_bytes());
                bytes.extend([kind, option.places.len() as u8]);
                bytes.extend(option.bytes(key));
            }
        }
        bytes
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &PlacedOption> {
        self.0.values()
    }
}

/// Returns true for the type of an option that a receiver has to know (RFC 8926 section 3.5).
fn is_critical(kind: u8) -> bool {
    kind & 0x80 != 0
}

/// All options that some bridge of a switch maps, to find the options of received packets. Each has a presence bit and places
/// of its own, whichever fields the bridges give it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReceivedOptions(Vec<PlacedOption>);

impl ReceivedOptions {
    /// Puts a packet's options into its key, given their bytes in the header: of two of one class and type, the last.
    /// Options that no bridge maps are left out; flags say if one of them is critical ([`UNKNOWN_OPTION`]), or has another length than
    /// a bridge expects ([`OTHER_LENGTH`]).
    pub fn put(&self, key: &mut FlowKey, options: &[u8]) {
        let flags = self.place(&mut key.0, options);
        if flags != 0 {
            key.set(Field::TunFlags, key.get(Field::TunFlags) | u128::from(flags));
        }
    }

    /// The same in the words of a key that hold options, from [`layout::TUN_METADATA`] on. Returns the flags.
    #[inline]
    pub(crate) fn place(&self, words: &mut [u64], mut options: &[u8]) -> u16 {
        let mut flags = 0;
        while let Some(([class @ .., kind, len], rest)) = options.split_first_chunk::<4>() {
            let (n, len) = (usize::from(len & 31), 4 * usize::from(len & 31));
            let Some((value, rest)) = rest.split_at_checked(len) else { break };
            options = rest;
            let id = (u16::from_be_bytes(*class), *kind);
            match self.0.iter().find(|option| option.id == id && option.places.len() == n) {
                Some(option) => option.write(words, value),
                None => {
                    let has_other_length = self.0.iter().any(|option| option.id == id);
                    flags |= if is_critical(*kind) { UNKNOWN_OPTION } else { 0 };
                    flags |= if has_other_length { OTHER_LENGTH } else { 0 };
                }
            }
        }
        flags
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &PlacedOption> {
        self.0.iter()
    }

    /// The presence bits of critical options that a bridge does not map, in the word of presence bits.
    pub fn unknown_to(&self, table: &OptionTable) -> (usize, u64) {
        let unknown = self.0.iter().filter(|option| {
            option.is_critical() && !table.iter().any(|known| (known.id, &known.places) == (option.id, &option.places))
        });
        (layout::TUN_METADATA + PRESENCE, unknown.fold(0, |bits, option| bits | option.presence().1))
    }
}

impl FromIterator<PlacedOption> for ReceivedOptions {
    fn from_iter<I: IntoIterator<Item = PlacedOption>>(options: I) -> Self {
        Self(options.into_iter().collect())
    }
}

impl FromIterator<PlacedOption> for OptionTable {
    fn from_iter<I: IntoIterator<Item = PlacedOption>>(options: I) -> Self {
        Self(options.into_iter().map(|option| (option.index, option)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Three pieces, neither contiguous nor in order.
    fn option() -> PlacedOption {
        let places: Vec<_> = [60, 7, 8].into_iter().filter_map(OptionPlace::new).collect();
        PlacedOption::new(Field::TunMetadata3, &places).expect("an option")
    }

    tally::proptest! {
        #[test]
        fn bits_read_back_as_a_number(before: [u32; 3], offset in 0..120u16, n_bits in 1..=64u16, value: u64) {
            let (option, mut key) = (option(), FlowKey::ZERO);
            (0..3u16).zip(before).for_each(|(n, word)| option.put_word(&mut key, n, word));
            let number = |key: &FlowKey| option.bytes(key).iter().fold(0u128, |n, byte| n << 8 | u128::from(*byte));
            let old = number(&key);
            prop_assert_eq!(old, (0..3).map(|n| u128::from(before[n]) << (32 * n)).sum::<u128>());
            let ones = u128::from(u64::MAX >> (64 - n_bits)) << offset & ((1 << 96) - 1);
            prop_assert_eq!(u128::from(option.get(&key, offset, n_bits)), (old & ones) >> offset);
            option.set(&mut key, offset, n_bits, value);
            prop_assert_eq!(number(&key), old & !ones | u128::from(value) << offset & ones);
            prop_assert_eq!(number(&option.mask(offset, n_bits)), ones);
            let (word, bit) = option.presence();
            prop_assert!(key.0[word] & bit != 0 && key.masked(&option.whole()) == key);
        }
    }

    #[test]
    fn options_of_received_packets_are_put_where_the_switch_expects_them() {
        let option = option().with_id(0xff01, 0x82).with_presence(9);
        let table: OptionTable = [option.clone()].into_iter().collect();
        let all: ReceivedOptions = [option.clone()].into_iter().collect();
        let received = |bytes: &[u8]| {
            let mut key = FlowKey::ZERO;
            all.put(&mut key, bytes);
            key
        };
        let bytes = [0xff, 1, 0x82, 3, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9];
        let key = received(&bytes);
        assert_eq!((table.encode(&key), key.0[layout::TUN_METADATA + PRESENCE]), (bytes.to_vec(), 1 << 9));
        // The last of two counts; unknown ones are not part of the key.
        let twice =
            [&[0xff, 1, 0x82, 3, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9, 9][..], &[0, 1, 2, 1, 1, 2, 3, 4][..], &bytes[..]]
                .concat();
        assert_eq!(received(&twice), key);
        for (unknown, flags) in [
            (&[0xff, 1, 0x83, 0][..], UNKNOWN_OPTION),
            (&[0xff, 1, 0x82, 1, 1, 2, 3, 4], UNKNOWN_OPTION | OTHER_LENGTH),
            (&[0xff, 1, 2, 0], 0),
            (&[0xff, 1, 0x82, 2, 1, 2, 3, 4, 5, 6, 7, 8], UNKNOWN_OPTION | OTHER_LENGTH),
            (&[0xff, 1, 0x83, 1, 1], 0),
            (&[0xff], 0),
        ] {
            let mut expected = FlowKey::ZERO;
            expected.set(Field::TunFlags, flags.into());
            assert_eq!(received(unknown), expected, "{unknown:?}");
        }
        assert_eq!(all.unknown_to(&table).1, 0);
        assert_eq!(all.unknown_to(&OptionTable::default()), (layout::TUN_METADATA + PRESENCE, 1 << 9));
    }

    #[test]
    fn only_tunnel_options_have_locations() {
        assert_eq!(PlacedOption::new(Field::Reg0, &[]), None);
        assert_eq!(OptionPlace::new(64), None);
        let table: OptionTable = [option()].into_iter().collect();
        assert_eq!(table.get(Field::TunMetadata3), Some(&option()));
        assert_eq!((table.get(Field::TunMetadata4), table.get(Field::Reg3)), (None, None));
        assert_eq!(option().n_bits(), 96);
        let mut key = FlowKey::ZERO;
        assert_eq!(table.encode(&key), []);
        option().set(&mut key, 0, 64, 0x0102_0304_0506_0708);
        let table: OptionTable = [option().with_id(0xff01, 0x82)].into_iter().collect();
        assert_eq!(table.encode(&key), [0xff, 1, 0x82, 3, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }
}
