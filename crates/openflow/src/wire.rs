//! Reading and writing big-endian structures: a reader that checks every length, and writing into a `Vec`.

use crate::error::OfpError;
use base::{MacAddr, PortNo};

/// What decoding gives.
pub type Result<T> = std::result::Result<T, OfpError>;

/// Reads from the front of a byte string. Each method fails with [`OfpError::BrcBadLen`] if too little is left.
#[derive(Clone, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Bytes left.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether all was read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next `n` bytes.
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n).ok_or(OfpError::BrcBadLen)?;
        self.0 = tail;
        Ok(head)
    }

    /// A reader of the next `n` bytes.
    pub fn sub(&mut self, n: usize) -> Result<Self> {
        self.bytes(n).map(Reader)
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }

    /// The next `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or(OfpError::BrcBadLen)?;
        self.0 = tail;
        Ok(*head)
    }

    /// Passes over `n` bytes.
    pub fn skip(&mut self, n: usize) -> Result<()> {
        self.bytes(n).map(|_| ())
    }

    /// A byte.
    pub fn u8(&mut self) -> Result<u8> {
        self.array::<1>().map(|[b]| b)
    }

    /// 16 bits.
    pub fn u16(&mut self) -> Result<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// 32 bits.
    pub fn u32(&mut self) -> Result<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// 64 bits.
    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// An Ethernet address.
    pub fn mac(&mut self) -> Result<MacAddr> {
        self.array().map(MacAddr)
    }

    /// A port number of OpenFlow 1.0.
    pub fn port10(&mut self) -> Result<PortNo> {
        self.u16().map(PortNo::from_of10)
    }

    /// A port number of OpenFlow 1.1+; one out of range is an error.
    pub fn port11(&mut self) -> Result<PortNo> {
        PortNo::from_of11(self.u32()?).ok_or(OfpError::BacBadOutPort)
    }

    /// A string in a field of `n` bytes, up to the first NUL. Bytes that are not UTF-8 are replaced.
    pub fn string(&mut self, n: usize) -> Result<String> {
        let bytes = self.bytes(n)?;
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(n);
        Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
    }

    /// Fails unless everything was read.
    pub fn finish(&self) -> Result<()> {
        if self.is_empty() { Ok(()) } else { Err(OfpError::BrcBadLen) }
    }
}

/// Writing at the end of a `Vec`.
pub trait Put {
    /// 8 bits.
    fn put_u8(&mut self, v: u8);
    /// Bytes as they are.
    fn put(&mut self, bytes: &[u8]);

    /// 16 bits.
    fn put_u16(&mut self, v: u16) {
        self.put(&v.to_be_bytes());
    }
    /// 32 bits.
    fn put_u32(&mut self, v: u32) {
        self.put(&v.to_be_bytes());
    }
    /// 64 bits.
    fn put_u64(&mut self, v: u64) {
        self.put(&v.to_be_bytes());
    }
    /// `n` zeros.
    fn zeros(&mut self, n: usize) {
        for _ in 0..n {
            self.put_u8(0);
        }
    }
    /// A string in a field of `n` bytes, cut to leave a NUL at its end.
    fn put_str(&mut self, s: &str, n: usize) {
        let len = s.len().min(n.saturating_sub(1));
        self.put(&s.as_bytes()[..len]);
        self.zeros(n - len);
    }
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, v: u8) {
        self.push(v);
    }
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// Writes the 16-bit length of what was appended since `start` at `start + offset`.
pub fn patch_len(out: &mut [u8], start: usize, offset: usize) {
    let len = (out.len() - start) as u16;
    if let Some(place) = out.get_mut(start + offset..start + offset + 2) {
        place.copy_from_slice(&len.to_be_bytes());
    }
}

/// Appends zeros until the length since `start` is a multiple of 8.
pub fn pad8(out: &mut Vec<u8>, start: usize) {
    let n = (out.len() - start).wrapping_neg() % 8;
    out.zeros(n);
}
