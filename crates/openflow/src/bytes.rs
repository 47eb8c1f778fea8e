//! Reading big-endian numbers off the front of a byte slice, and writing them to the end of a vector.

/// Bytes that have not been read yet. Reading past the end gives `None` and takes nothing.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Bytes left.
    pub fn len(self) -> usize {
        self.0.len()
    }

    /// Whether nothing is left.
    pub fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n)?;
        self.0 = tail;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// The next byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|b| b[0])
    }

    /// The next two bytes as a number.
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    /// The next four bytes as a number.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    /// The next eight bytes as a number.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// The next six bytes as an Ethernet address.
    pub fn mac(&mut self) -> Option<base::MacAddr> {
        self.array().map(base::MacAddr)
    }

    /// The next `n` bytes, 16 at most, as a number.
    pub fn uint(&mut self, n: usize) -> Option<u128> {
        debug_assert!(n <= 16, "wider numbers do not fit");
        Some(self.take(n)?.iter().fold(0, |v, b| v << 8 | u128::from(*b)))
    }

    /// Whether all that is left is zero.
    pub fn is_zero(self) -> bool {
        self.0.iter().all(|b| *b == 0)
    }
}

/// Appending big-endian numbers.
pub trait Put {
    /// One byte.
    fn put_u8(&mut self, v: u8);
    /// Two bytes.
    fn put_u16(&mut self, v: u16);
    /// Four bytes.
    fn put_u32(&mut self, v: u32);
    /// Eight bytes.
    fn put_u64(&mut self, v: u64);
    /// The low `n` bytes of `v`, 16 at most.
    fn put_uint(&mut self, v: u128, n: usize);
    /// `n` zero bytes.
    fn put_zeros(&mut self, n: usize);
    /// Zero bytes until the length, counted from `start`, is a multiple of 8.
    fn pad8(&mut self, start: usize);
    /// Overwrites two bytes at `at` (which must have been written).
    fn set_u16(&mut self, at: usize, v: u16);
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, v: u8) {
        self.push(v);
    }

    fn put_u16(&mut self, v: u16) {
        self.extend_from_slice(&v.to_be_bytes());
    }

    fn put_u32(&mut self, v: u32) {
        self.extend_from_slice(&v.to_be_bytes());
    }

    fn put_u64(&mut self, v: u64) {
        self.extend_from_slice(&v.to_be_bytes());
    }

    fn put_uint(&mut self, v: u128, n: usize) {
        self.extend_from_slice(&v.to_be_bytes()[16 - n.min(16)..]);
    }

    fn put_zeros(&mut self, n: usize) {
        self.resize(self.len() + n, 0);
    }

    fn pad8(&mut self, start: usize) {
        let n = self.len() - start;
        self.put_zeros(n.next_multiple_of(8) - n);
    }

    fn set_u16(&mut self, at: usize, v: u16) {
        if let Some(place) = self.get_mut(at..at + 2) {
            place.copy_from_slice(&v.to_be_bytes());
        }
    }
}
