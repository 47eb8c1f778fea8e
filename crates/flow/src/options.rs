//! Values of tunnel options (`tun_metadata0` to `63`): up to 124 bytes, optionally with a mask.
//!
//! The location of an option in a key is defined by a switch's TLV table. Programs without such a table, like
//! `ovs-ofctl`, keep options beside the key, in wire format and without leading zeros.

use super::field::{Field, Loc};
use super::text::{MatchError, Part};
use std::fmt::Write;
use std::hash::{Hash, Hasher};

/// Maximum length of an option in bytes.
pub const OPTION_LEN_MAX: usize = 124;

/// An option's value and mask.
///
/// Invariants: a mask is as long as the value; the first byte is not zero in both; the value has no bits outside of the
/// mask; both have at most `len` bytes, and that is at most [`OPTION_LEN_MAX`]. Options that differ in `len` or `space` only
/// are equal.
#[derive(Clone, Debug)]
pub struct TunOption {
    field: Field,
    value: Vec<u8>,
    mask: Option<Vec<u8>>,
    len: u8,
    /// A mask of ones is shown if it has fewer bytes than this.
    space: u8,
}

impl PartialEq for TunOption {
    fn eq(&self, other: &Self) -> bool {
        (self.field, &self.value, &self.mask) == (other.field, &other.value, &other.mask)
    }
}

impl Eq for TunOption {}

impl Hash for TunOption {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.field, &self.value, &self.mask).hash(state);
    }
}

impl TunOption {
    /// The option of `field`, with value and mask in wire format. `None` if the field is no tunnel option, or value and
    /// mask are too long or differ in length. Bits of the value outside of the mask are ignored.
    pub fn new(field: Field, value: &[u8], mask: Option<&[u8]>) -> Option<Self> {
        let fits = matches!(field.info().loc, Loc::TunMetadata(_)) && value.len() <= OPTION_LEN_MAX;
        if !fits || mask.is_some_and(|mask| mask.len() != value.len()) {
            return None;
        }
        let of = |mask: &[u8]| value.iter().zip(mask).map(|(v, m)| v & m).collect::<Vec<u8>>();
        let value = mask.map_or_else(|| value.to_vec(), of);
        let at = |bytes: &[u8]| bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
        // The value has no bits outside of the mask.
        let start = at(mask.unwrap_or(&value));
        let mask = mask.map(|mask| mask.get(start..).unwrap_or_default().to_vec());
        let value = value.get(start..).unwrap_or_default().to_vec();
        let len = value.len() as u8;
        Some(Self { field, value, mask, len, space: 0 })
    }

    /// Sets the length of the option in bytes, which is at least that of its value.
    #[must_use]
    pub fn with_len(mut self, len: usize) -> Self {
        self.len = len.clamp(self.value.len(), OPTION_LEN_MAX) as u8;
        self
    }

    /// Rounds the space of the option up to whole words of four bytes, as a program does that places options by their masks: a
    /// mask of ones for all of it means no mask, and a shorter one is shown.
    #[must_use]
    pub fn in_words(mut self) -> Self {
        if let Some(mask) = self.mask.take_if(|mask| !mask.is_empty() && mask.iter().all(|byte| *byte == 0xff)) {
            self.space = mask.len().next_multiple_of(4) as u8;
            if mask.len() < usize::from(self.space) {
                self.mask = Some(mask);
            } else {
                // Without a mask, the value has no leading zeros.
                let zeros = self.value.iter().take_while(|byte| **byte == 0).count();
                self.value.drain(..zeros);
            }
        }
        self
    }

    /// The length of the option in bytes, as on the wire: that of the mapped option if the value comes from a switch, the
    /// shortest that holds the value otherwise.
    pub fn len(&self) -> usize {
        self.len.into()
    }

    /// Whether the option has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether the mask need not be shown, as it has all bits.
    fn covers_all(&self, mask: &[u8]) -> bool {
        mask.len() >= usize::from(self.space) && mask.iter().all(|byte| *byte == 0xff)
    }

    /// A match on some bits of an option. `None` if `field` is no tunnel option, or the bits are out of its range.
    pub fn of_bits(field: Field, offset: u16, n_bits: u16, value: &[u8]) -> Option<Self> {
        let (offset, n_bits) = (usize::from(offset), usize::from(n_bits));
        let whole = 8 * OPTION_LEN_MAX;
        if offset + n_bits > whole {
            return None;
        }
        let (mut bits, mut mask) = ([0; OPTION_LEN_MAX], [0; OPTION_LEN_MAX]);
        for n in 0..n_bits {
            let set =
                value.len().checked_sub(n / 8 + 1).and_then(|i| value.get(i)).is_some_and(|b| b >> (n % 8) & 1 != 0);
            let place = OPTION_LEN_MAX - 1 - (offset + n) / 8;
            mask[place] |= 1 << ((offset + n) % 8);
            bits[place] |= u8::from(set) << ((offset + n) % 8);
        }
        Self::new(field, &bits, (n_bits < whole).then_some(&mask))
    }

    /// The field.
    pub fn field(&self) -> Field {
        self.field
    }

    /// The index of the field, less than 64.
    pub fn index(&self) -> u8 {
        if let Loc::TunMetadata(index) = self.field.info().loc { index } else { 0 }
    }

    /// The value, most significant byte first, without bytes that are zero in value and mask.
    pub fn value(&self) -> &[u8] {
        &self.value
    }

    /// The mask, as long as the value; `None` matches all bits of the option. An empty mask matches the presence of the
    /// option.
    pub fn mask(&self) -> Option<&[u8]> {
        self.mask.as_deref()
    }

    /// Reads `VALUE` or `VALUE/MASK`.
    pub fn parse(field: Field, text: &str) -> Result<Self, MatchError> {
        let number = |s: &str, part| match bytes_of(s) {
            Ok(bytes) => Ok(bytes),
            Err(Large::No) => Err(MatchError::Syntax { text: text.into(), part, field: field.name() }),
            Err(Large::Yes) => {
                let bytes = OPTION_LEN_MAX;
                Err(MatchError::TooLarge { text: text.into(), part, bytes, field: field.name() })
            }
        };
        let (value, mask) = match text.split_once('/') {
            Some((value, mask)) => (number(value, Part::Value)?, Some(number(mask, Part::Mask)?)),
            None => (number(text, Part::Value)?, None),
        };
        let wide = |bytes: &[u8]| {
            let mut all = vec![0; OPTION_LEN_MAX.saturating_sub(bytes.len())];
            all.extend_from_slice(bytes);
            all
        };
        let option = Self::new(field, &wide(&value), mask.map(|mask| wide(&mask)).as_deref());
        option.ok_or_else(|| MatchError::Syntax { text: text.into(), part: Part::Value, field: field.name() })
    }

    /// Appends the option in the syntax of a match: its name, and its value and mask unless any value matches.
    pub fn format_match(&self, out: &mut String) {
        out.push_str(self.field.name());
        match &self.mask {
            Some(mask) if mask.is_empty() => {}
            Some(mask) if self.covers_all(mask) => number(&self.value, "=", out),
            Some(mask) => {
                number(&self.value, "=", out);
                number(mask, "/", out);
            }
            None => number(&self.value, "=", out),
        }
    }

    /// Appends value and mask in the syntax of an action.
    pub fn format_value(&self, out: &mut String) {
        match &self.mask {
            Some(mask) if mask.is_empty() => out.push_str("ANY"),
            mask => {
                number(&self.value, "", out);
                if let Some(mask) = mask {
                    number(mask, "/", out);
                }
            }
        }
    }
}

/// Appends a number after `prefix`, hexadecimal without leading zeros; `0` if there is no digit.
fn number(bytes: &[u8], prefix: &str, out: &mut String) {
    out.push_str(prefix);
    let mut digits = bytes.iter().skip_while(|byte| **byte == 0);
    match digits.next() {
        None => out.push('0'),
        Some(first) => {
            let _ = write!(out, "0x{first:x}");
            for byte in digits {
                let _ = write!(out, "{byte:02x}");
            }
        }
    }
}

/// Why a number is rejected: too many digits, or no number.
enum Large {
    Yes,
    No,
}

/// The bytes of a number: hexadecimal of any width that fits, or up to 64 bits in any notation.
fn bytes_of(text: &str) -> Result<Vec<u8>, Large> {
    let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) else {
        let n = super::text::number_64(text).map_err(|large| if large { Large::Yes } else { Large::No })?;
        return Ok(n.to_be_bytes().to_vec());
    };
    let digits: Option<Vec<u8>> = hex.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.ok_or(Large::No)?;
    let zeros = digits.iter().take_while(|digit| **digit == 0).count();
    let digits = digits.get(zeros..).unwrap_or_default();
    // An odd first digit forms a byte of its own.
    let (first, pairs) = digits.split_at(digits.len() % 2);
    let bytes: Vec<u8> = first
        .iter()
        .copied()
        .chain(pairs.chunks_exact(2).map(|p| p.iter().fold(0, |n, digit| n << 4 | digit)))
        .collect();
    if bytes.len() > OPTION_LEN_MAX { Err(Large::Yes) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matches::Match;
    use crate::text::{NoNames, match_to_string, parse_match};
    use proptest::prelude::*;

    const FIELD: Field = Field::TunMetadata5;

    tally::proptest! {
        #[test]
        fn text_parses_back(value in prop::collection::vec(any::<u8>(), 0..=124), masked: bool, bits: u8) {
            let mask: Vec<u8> = value.iter().map(|byte| byte.rotate_left(3) ^ bits).collect();
            let option = TunOption::new(FIELD, &value, masked.then_some(&mask[..])).expect("it fits");
            let mut text = String::new();
            option.format_value(&mut text);
            if text != "ANY" {
                prop_assert_eq!(TunOption::parse(FIELD, &text), Ok(option.clone()));
            }
            let mut m = Match::ANY;
            prop_assert!(m.set_option(option));
            let text = match_to_string(&m, &NoNames);
            let again = parse_match(&text, &NoNames).map(|m| match_to_string(&m, &NoNames));
            prop_assert_eq!(again, Ok(text));
        }

        #[test]
        fn bits_are_counted_from_the_least_significant(offset in 0..=112u16, n_bits in 1..=16u16, value: u16) {
            let value = value & (u16::MAX >> (16 - n_bits));
            let option = TunOption::of_bits(FIELD, offset, n_bits, &value.to_be_bytes()).expect("it fits");
            let number = |bytes: &[u8]| bytes.iter().fold(0u128, |n, byte| n << 8 | u128::from(*byte));
            prop_assert_eq!(number(option.value()), u128::from(value) << offset);
            prop_assert_eq!(option.mask().map(number), Some(((1u128 << n_bits) - 1) << offset));
        }
    }

    #[test]
    fn masks_are_partial_within_words() {
        let shown = |option: TunOption| {
            let mut text = String::new();
            option.format_match(&mut text);
            text
        };
        let option = |text: &str| TunOption::parse(FIELD, text).expect("it fits");
        assert_eq!(shown(option("0xef/0xff")), "tun_metadata5=0xef");
        assert_eq!(shown(option("0xef/0xff").in_words()), "tun_metadata5=0xef/0xff");
        assert_eq!(option("5/0xffffffff").in_words(), option("5"));
        assert_eq!(shown(option("0/0").in_words()), "tun_metadata5");
        assert_eq!(shown(option("0x1ff/0xfff").in_words()), "tun_metadata5=0x1ff/0xfff");
        // The length on the wire makes no difference.
        assert_eq!((option("5").len(), option("5").with_len(4).len()), (1, 4));
        assert_eq!(option("5").with_len(4), option("5"));
    }

    #[test]
    fn in_a_match() {
        for (text, printed) in [
            ("tun_metadata0=0", "tun_metadata0=0"),
            ("tun_metadata0", "tun_metadata0"),
            ("tun_metadata0=0/0", "tun_metadata0"),
            ("tun_metadata0=0x7/0x3", "tun_metadata0=0x3/0x3"),
            ("tun_metadata0=0xff/0xff", "tun_metadata0=0xff"),
            (
                "tun_metadata1=5,tun_id=3,tun_metadata0=4,metadata=1",
                "tun_id=0x3,tun_metadata0=0x4,tun_metadata1=0x5,metadata=0x1",
            ),
            ("tun_metadata0[0..3]=5", "tun_metadata0=0x5/0xf"),
            ("tun_metadata0[]=5", "tun_metadata0=0x5"),
            ("tun_metadata0=12345678901234567890", "tun_metadata0=0xab54a98ceb1f0ad2"),
            ("tun_metadata0=-1", "tun_metadata0=0xffffffffffffffff"),
            (
                "tun_metadata0=0x123456789012345678901234567890123456",
                "tun_metadata0=0x123456789012345678901234567890123456",
            ),
        ] {
            let m = parse_match(text, &NoNames).expect(text);
            assert_eq!(match_to_string(&m, &NoNames), printed, "{text}");
        }
        for (text, message) in [
            ("tun_metadata0=1,tun_metadata0=2", "field tun_metadata0 set multiple times"),
            ("tun_metadata0=xyz", "xyz: bad syntax for tun_metadata0 value"),
            ("tun_metadata0=1/x", "1/x: bad syntax for tun_metadata0 mask"),
            (
                "tun_metadata0=123456789012345678901234567890",
                "123456789012345678901234567890: value too large for 124-byte field tun_metadata0",
            ),
        ] {
            assert_eq!(parse_match(text, &NoNames).map_err(|e| e.to_string()), Err(message.into()), "{text}");
        }
    }
}
