//! Properties: a type, a length and a value, padded to a multiple of 8 bytes. OpenFlow 1.4 and later, and some messages of
//! Nicira's, use them for extensible parts (OpenFlow 1.4 section 7.2.1 and others that say "TLV format").
//!
//! The length counts type, length and value, not the padding. All messages read properties with this module, so that
//! malformed ones cause the same errors everywhere: `OFPBPC_BAD_LEN`, `OFPBPC_BAD_TYPE`, `OFPBPC_BAD_EXPERIMENTER`
//! and `OFPBPC_BAD_EXP_TYPE`.

use crate::error::OfpError;
use crate::nxm::Unknown;
use crate::wire::{Reader, Result, Writer};

/// The type of experimenter properties; their values begin with the experimenter id and a type of its own.
pub(crate) const EXPERIMENTER: u16 = 0xffff;
/// The second experimenter type, in lists that have two: for secondary controllers, or for table misses.
pub(crate) const OTHER_EXPERIMENTER: u16 = 0xfffe;

/// Bytes of type and length.
const HEADER_LEN: usize = 4;

const LEN: OfpError = OfpError::BpcBadLen;

/// A property.
#[derive(Clone, Debug)]
pub(crate) struct Property<'a> {
    /// Its type, whose meaning depends on the message.
    pub(crate) ty: u16,
    /// For an experimenter property: the experimenter id, and its type.
    pub(crate) experimenter: Option<(u32, u32)>,
    /// The value after these headers, without padding.
    pub(crate) value: Reader<'a>,
}

impl<'a> Property<'a> {
    /// Takes a property with its padding off the front of `r`. Types from `experimenters` on are experimenter properties.
    pub(crate) fn take(r: &mut Reader<'a>, experimenters: u16) -> Result<Self> {
        let mut header = r.clone();
        let (ty, len) = (header.u16().map_err(|_| LEN)?, usize::from(header.u16().map_err(|_| LEN)?));
        let whole = r.bytes(len.next_multiple_of(8)).map_err(|_| LEN)?;
        let mut value = Reader::new(whole.get(HEADER_LEN..len).ok_or(LEN)?);
        let experimenter = if ty >= experimenters {
            let (experimenter, ty) = (value.u32().map_err(|_| LEN)?, value.u32().map_err(|_| LEN)?);
            if experimenter == 0 {
                return Err(OfpError::BpcBadExperimenter);
            }
            Some((experimenter, ty))
        } else {
            None
        };
        Ok(Self { ty, experimenter, value })
    }

    /// Reads the front of the value with `read`.
    pub(crate) fn read<T>(mut self, read: impl FnOnce(&mut Reader<'a>) -> Result<T>) -> Result<T> {
        read(&mut self.value).map_err(|e| if e == OfpError::BrcBadLen { LEN } else { e })
    }

    /// Returns the value, of exactly `N` bytes.
    fn exactly<const N: usize>(self) -> Result<[u8; N]> {
        self.value.peek().try_into().map_err(|_| LEN)
    }

    /// Returns the value as 128 bits.
    pub(crate) fn u128(self) -> Result<u128> {
        self.exactly().map(u128::from_be_bytes)
    }

    /// Returns the value as 8 bits. (Some senders count the bytes after it into the length, others do not.)
    pub(crate) fn u8(self) -> Result<u8> {
        self.read(Reader::u8)
    }

    /// Returns the value as 16 bits, with the same leniency.
    pub(crate) fn u16(self) -> Result<u16> {
        self.read(Reader::u16)
    }

    /// Returns the value as 32 bits.
    pub(crate) fn u32(self) -> Result<u32> {
        self.exactly().map(u32::from_be_bytes)
    }

    /// Returns the value as 64 bits, which are aligned to 8 bytes.
    pub(crate) fn u64(self) -> Result<u64> {
        self.exactly().map(|b: [u8; 12]| b[4..].iter().fold(0, |v, b| v << 8 | u64::from(*b)))
    }

    /// Skips a property that the message does not know, or returns the error for it.
    pub(crate) fn unknown(&self, unknown: Unknown) -> Result<()> {
        match (unknown, self.experimenter) {
            (Unknown::Skip | Unknown::Lenient | Unknown::Metadata | Unknown::Pipeline, _) => Ok(()),
            (Unknown::Refuse, None) => Err(OfpError::BpcBadType),
            (Unknown::Refuse, Some(_)) => Err(OfpError::BpcBadExpType),
        }
    }
}

/// Reads properties to the end of `r`, each with `one`.
pub(crate) fn each<'a>(r: &mut Reader<'a>, one: impl FnMut(Property<'a>) -> Result<()>) -> Result<()> {
    each_with(EXPERIMENTER, r, one)
}

/// Does the same where types from `experimenters` on are experimenter properties.
pub(crate) fn each_with<'a>(
    experimenters: u16,
    r: &mut Reader<'a>,
    mut one: impl FnMut(Property<'a>) -> Result<()>,
) -> Result<()> {
    while !r.is_empty() {
        one(Property::take(r, experimenters)?)?;
    }
    Ok(())
}

/// Appends a property with the value that `value` writes, and its padding.
pub(crate) fn put(out: &mut Writer, ty: u16, value: impl FnOnce(&mut Writer)) {
    let start = out.len();
    out.put_u16(ty);
    out.put_u16(0);
    value(out);
    out.set_len16(start + 2, start);
    out.pad8(start);
}

/// Appends an experimenter property.
pub(crate) fn put_experimenter(out: &mut Writer, experimenter: u32, ty: u32, value: impl FnOnce(&mut Writer)) {
    put(out, EXPERIMENTER, |out| {
        out.put_u32(experimenter);
        out.put_u32(ty);
        value(out);
    });
}

/// Appends a property of 16 bits. The length counts the padding, as Open vSwitch's does.
pub(crate) fn put_u16(out: &mut Writer, ty: u16, value: u16) {
    put(out, ty, |out| {
        out.put_u16(value);
        out.zeros(2);
    });
}

/// Appends a property of 32 bits.
pub(crate) fn put_u32(out: &mut Writer, ty: u16, value: u32) {
    put(out, ty, |out| out.put_u32(value));
}

/// Appends a property of 64 bits.
pub(crate) fn put_u64(out: &mut Writer, ty: u16, value: u64) {
    put(out, ty, |out| {
        out.zeros(4);
        out.put_u64(value);
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Result<Vec<(u16, Vec<u8>)>> {
        let mut found = Vec::new();
        each(&mut Reader::new(bytes), |p| {
            found.push((p.ty, p.value.peek().to_vec()));
            Ok(())
        })?;
        Ok(found)
    }

    #[test]
    fn properties_round_trip() {
        let mut out = Writer::new();
        put(&mut out, 1, |_| {});
        put(&mut out, 2, |out| out.put(&[7; 5]));
        put_u64(&mut out, 3, 9);
        assert_eq!(out.len(), 8 + 16 + 16);
        assert_eq!(all(&out).map(|v| v.len()), Ok(3));
        assert_eq!(all(&out).unwrap()[1], (2, vec![7; 5]));
        let mut r = Reader::new(&out[24..]);
        assert_eq!(Property::take(&mut r, EXPERIMENTER).and_then(Property::u64), Ok(9));
    }

    #[test]
    fn lengths_that_do_not_fit() {
        for bytes in [&[0, 1, 0][..], &[0, 1, 0, 3, 0, 0, 0, 0], &[0, 1, 0, 9, 0, 0, 0, 0], &[0, 1, 0, 4]] {
            assert_eq!(all(bytes), Err(LEN), "{bytes:?}");
        }
        let four = || Property { ty: 0, experimenter: None, value: Reader::new(&[0, 0, 0, 1]) };
        assert_eq!((four().u32(), four().u16(), four().u8(), four().u64()), (Ok(1), Ok(0), Ok(0), Err(LEN)));
        let one = || Property { value: Reader::new(&[0]), ..four() };
        assert_eq!((one().u32(), one().u16(), one().u8()), (Err(LEN), Err(LEN), Ok(0)));
    }

    #[test]
    fn unknown_types() {
        let of = |experimenter: u32| {
            let mut out = Writer::new();
            put(&mut out, EXPERIMENTER, |out| {
                out.put_u32(experimenter);
                out.put_u32(1);
            });
            Property::take(&mut Reader::new(&out), EXPERIMENTER)
                .and_then(|p| p.unknown(Unknown::Refuse).and(Ok(p.value.len())))
        };
        assert_eq!(of(0), Err(OfpError::BpcBadExperimenter));
        assert_eq!(of(0x1234), Err(OfpError::BpcBadExpType));
        let plain = Property { ty: 3, experimenter: None, value: Reader::new(&[]) };
        assert_eq!(plain.unknown(Unknown::Refuse), Err(OfpError::BpcBadType));
        assert_eq!(plain.unknown(Unknown::Skip), Ok(()));
    }
}
