//! The external data representation (RFC 4506), as far as sFlow needs it: words in network byte order, and byte strings
//! padded to whole words.

use std::net::IpAddr;

/// Appends encoded values to bytes.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    /// The bytes so far.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, at the end.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// An unsigned integer (section 4.2).
    pub fn word(&mut self, value: u32) {
        self.0.extend(value.to_be_bytes());
    }

    /// An unsigned hyper integer (section 4.5).
    pub fn hyper(&mut self, value: u64) {
        self.0.extend(value.to_be_bytes());
    }

    /// Opaque data of a fixed length, padded (section 4.9).
    pub fn fixed(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    /// Opaque data of variable length: the length, the bytes, padding (section 4.10).
    pub fn opaque(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u32);
        self.fixed(bytes);
    }

    /// An array of words of variable length (section 4.13).
    pub fn words(&mut self, words: &[u32]) {
        self.word(words.len() as u32);
        words.iter().for_each(|word| self.word(*word));
    }

    /// An address with its type, the `address` of the specification of sFlow.
    pub fn address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => {
                self.word(1);
                self.fixed(&v4.octets());
            }
            IpAddr::V6(v6) => {
                self.word(2);
                self.fixed(&v6.octets());
            }
        }
    }

    /// A record: its format, and its contents as opaque data.
    pub fn record(&mut self, format: u32, contents: impl FnOnce(&mut Self)) {
        self.word(format);
        let at = self.0.len();
        self.word(0);
        contents(self);
        let len = (self.0.len() - at - 4) as u32;
        if let Some(place) = self.0.get_mut(at..at + 4) {
            place.copy_from_slice(&len.to_be_bytes());
        }
    }
}
