//! Reads and writes the big-endian structures of OpenFlow.
//!
//! A [`Reader`] checks every length. A [`Writer`] writes lengths after what they count, and records if one does not fit its
//! length field: the message is then refused as a whole instead of being sent with a length that wrapped around.

use crate::error::OfpError;
use base::{MacAddr, PortNo};
use flow::{Field, Loc};

/// The result of decoding.
pub type Result<T> = std::result::Result<T, OfpError>;

/// Reads from the front of a byte string. A read beyond its end fails with the error that the reader was created with,
/// and consumes nothing.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    short: OfpError,
}

impl<'a> Reader<'a> {
    /// Creates a reader whose error is [`OfpError::BrcBadLen`].
    pub fn new(bytes: &'a [u8]) -> Self {
        Self::reporting(bytes, OfpError::BrcBadLen)
    }

    /// Creates a reader whose error is `short`, that of the structure to read.
    pub fn reporting(bytes: &'a [u8], short: OfpError) -> Self {
        Self { bytes, short }
    }

    /// The number of bytes left.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns true if nothing is left.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns true if all bytes left are zero.
    pub fn is_zero(&self) -> bool {
        self.bytes.iter().all(|b| *b == 0)
    }

    /// Returns the bytes that are left, without consuming them.
    pub fn peek(&self) -> &'a [u8] {
        self.bytes
    }

    /// Reads with another error for missing bytes: that of a nested structure.
    pub fn within<T>(&mut self, short: OfpError, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        let outer = std::mem::replace(&mut self.short, short);
        let value = read(self);
        self.short = outer;
        value
    }

    /// Reads the next `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, tail) = self.bytes.split_at_checked(n).ok_or(self.short)?;
        self.bytes = tail;
        Ok(head)
    }

    /// Returns a reader of the next `n` bytes, with the same error.
    pub fn sub(&mut self, n: usize) -> Result<Self> {
        Ok(Self { bytes: self.bytes(n)?, short: self.short })
    }

    /// Reads everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    /// Reads the next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, tail) = self.bytes.split_first_chunk::<N>().ok_or(self.short)?;
        self.bytes = tail;
        Ok(*head)
    }

    /// Skips `n` bytes.
    pub fn skip(&mut self, n: usize) -> Result<()> {
        self.bytes(n).map(drop)
    }

    /// Reads a byte.
    pub fn u8(&mut self) -> Result<u8> {
        self.array::<1>().map(|[b]| b)
    }

    /// Reads 16 bits.
    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// Reads 32 bits.
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// Reads 64 bits.
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Reads the next `n` bytes, at most 16, as a number.
    pub fn uint(&mut self, n: usize) -> Result<u128> {
        debug_assert!(n <= 16, "wider numbers do not fit");
        Ok(self.bytes(n)?.iter().fold(0, |v, b| v << 8 | u128::from(*b)))
    }

    /// Reads an Ethernet address.
    pub fn mac(&mut self) -> Result<MacAddr> {
        self.array().map(MacAddr)
    }

    /// Reads a port number of OpenFlow 1.0.
    pub fn port10(&mut self) -> Result<PortNo> {
        self.u16().map(PortNo::from_of10)
    }

    /// Reads a port number of OpenFlow 1.1 and later.
    ///
    /// Errors: `OFPBAC_BAD_OUT_PORT` for a number out of range.
    pub fn port11(&mut self) -> Result<PortNo> {
        PortNo::from_of11(self.u32()?).ok_or(OfpError::BacBadOutPort)
    }

    /// Reads a string in a field of `n` bytes, up to the first NUL. Bytes that are not UTF-8 are replaced.
    pub fn string(&mut self, n: usize) -> Result<String> {
        let bytes = self.bytes(n)?;
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(n);
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// Fails unless all bytes were read.
    pub fn finish(&self) -> Result<()> {
        if self.is_empty() { Ok(()) } else { Err(self.short) }
    }
}

/// A message, or a list or text in it, is longer than its length field allows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("message is too long for OpenFlow")]
pub struct TooLong;

/// The lengths to which a switch maps tunnel options, by the numbers of their fields; 0 for those that it does not map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionLengths([u8; 64]);

impl Default for OptionLengths {
    fn default() -> Self {
        Self::NONE
    }
}

impl OptionLengths {
    /// Maps no options.
    pub const NONE: Self = Self([0; 64]);

    /// Maps option `index` to `len` bytes.
    pub fn set(&mut self, index: u16, len: u8) {
        if let Some(place) = self.0.get_mut(usize::from(index)) {
            *place = len;
        }
    }

    /// The length of a field that is a mapped option.
    pub fn of(&self, field: Field) -> Option<usize> {
        let Loc::TunMetadata(index) = field.info().loc else { return None };
        self.0.get(usize::from(index)).copied().filter(|len| *len > 0).map(usize::from)
    }
}

/// Appends big-endian structures.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    /// A length did not fit into its field.
    overflowed: bool,
    /// The lengths for headers of tunnel options.
    option_lengths: OptionLengths,
}

impl Writer {
    /// Creates an empty writer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an empty writer with memory for `n` bytes.
    pub fn with_capacity(n: usize) -> Self {
        Self { bytes: Vec::with_capacity(n), ..Self::default() }
    }

    /// Creates an empty writer for a part of what this one writes.
    pub fn nested(&self) -> Self {
        Self { option_lengths: self.option_lengths, ..Self::default() }
    }

    /// Sets the lengths for headers of tunnel options.
    pub fn set_option_lengths(&mut self, lengths: OptionLengths) {
        self.option_lengths = lengths;
    }

    /// The lengths for headers of tunnel options.
    pub fn option_lengths(&self) -> OptionLengths {
        self.option_lengths
    }

    /// Returns the bytes that were written.
    ///
    /// Errors: [`TooLong`] if a length did not fit into its field.
    pub fn into_bytes(self) -> std::result::Result<Vec<u8>, TooLong> {
        if self.overflowed { Err(TooLong) } else { Ok(self.bytes) }
    }

    /// Returns true if a length did not fit into its field.
    pub fn has_overflowed(&self) -> bool {
        self.overflowed
    }

    /// Removes everything written since the length was `len`, and resets an overflow in it.
    pub fn rewind(&mut self, len: usize) {
        self.bytes.truncate(len);
        self.overflowed = false;
    }

    /// Appends bytes.
    pub fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// Appends a message within the message, or its overflow.
    pub fn put_message(&mut self, message: std::result::Result<Vec<u8>, TooLong>) {
        match message {
            Ok(bytes) => self.put(&bytes),
            Err(TooLong) => self.overflowed = true,
        }
    }

    /// Appends the output of another writer, with its overflow.
    pub fn append(&mut self, other: &Self) {
        self.put(&other.bytes);
        self.overflowed |= other.overflowed;
    }

    /// Appends 8 bits.
    pub fn put_u8(&mut self, v: u8) {
        self.bytes.push(v);
    }

    /// Appends 16 bits.
    pub fn put_u16(&mut self, v: u16) {
        self.put(&v.to_be_bytes());
    }

    /// Appends 32 bits.
    pub fn put_u32(&mut self, v: u32) {
        self.put(&v.to_be_bytes());
    }

    /// Appends 64 bits.
    pub fn put_u64(&mut self, v: u64) {
        self.put(&v.to_be_bytes());
    }

    /// Appends the low `n` bytes of `v`, at most 16.
    pub fn put_uint(&mut self, v: u128, n: usize) {
        self.put(&v.to_be_bytes()[16 - n.min(16)..]);
    }

    /// Appends `n` zero bytes.
    pub fn zeros(&mut self, n: usize) {
        self.bytes.resize(self.bytes.len() + n, 0);
    }

    /// Appends a length or count of 8 bits.
    pub fn put_len8(&mut self, n: usize) {
        self.overflowed |= u8::try_from(n).is_err();
        self.put_u8(n as u8);
    }

    /// Appends a length or count of 16 bits.
    pub fn put_len16(&mut self, n: usize) {
        self.overflowed |= u16::try_from(n).is_err();
        self.put_u16(n as u16);
    }

    /// Appends a string in a field of `n` bytes, cut to leave a NUL at its end.
    pub fn put_str(&mut self, s: &str, n: usize) {
        let len = s.len().min(n.saturating_sub(1));
        self.put(&s.as_bytes()[..len]);
        self.zeros(n - len);
    }

    /// Appends zero bytes until the length since `start` is a multiple of 8.
    pub fn pad8(&mut self, start: usize) {
        let n = self.bytes.len() - start;
        self.zeros(n.next_multiple_of(8) - n);
    }

    /// Writes the number of bytes since `start` into the 16 bits at `at`, which the caller reserved.
    pub fn set_len16(&mut self, at: usize, start: usize) {
        let n = self.bytes.len() - start;
        self.overflowed |= u16::try_from(n).is_err();
        self.bytes[at..at + 2].copy_from_slice(&(n as u16).to_be_bytes());
    }
}

impl PartialEq<Vec<u8>> for Writer {
    fn eq(&self, other: &Vec<u8>) -> bool {
        !self.overflowed && self.bytes == *other
    }
}

impl std::ops::Deref for Writer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl std::ops::DerefMut for Writer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_read_reports_the_error_of_its_structure_and_consumes_nothing() {
        let mut r = Reader::reporting(&[1, 2, 3], OfpError::BacBadLen);
        assert_eq!((r.u32(), r.len()), (Err(OfpError::BacBadLen), 3));
        assert_eq!(r.within(OfpError::BmcBadLen, Reader::u64), Err(OfpError::BmcBadLen));
        assert_eq!(
            (r.u16(), r.sub(2).map(drop), r.u8(), r.finish()),
            (Ok(0x102), Err(OfpError::BacBadLen), Ok(3), Ok(()))
        );
    }

    #[test]
    fn a_length_that_does_not_fit_is_noted() {
        let write = |n: usize| {
            let mut out = Writer::new();
            out.put_u16(0);
            out.zeros(n);
            out.set_len16(0, 0);
            out
        };
        assert_eq!(write(65_533).into_bytes().map(|b| b[..2].to_vec()), Ok(vec![0xff, 0xff]));
        assert_eq!(write(65_534).into_bytes(), Err(TooLong));
        let mut out = write(65_534);
        out.rewind(0);
        out.put_len8(255);
        out.put_len16(65_535);
        assert_eq!(out.clone().into_bytes(), Ok(vec![0xff; 3]));
        out.put_len8(256);
        assert!(out.has_overflowed());
    }
}
