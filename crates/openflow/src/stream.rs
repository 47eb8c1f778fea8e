//! Splits a byte stream into OpenFlow messages, without I/O of its own: bytes in, whole messages out.
//!
//! Memory is bounded by one message (the header's length has 16 bits) and what the caller pushes at once. An invalid header
//! (with a length below 8) ends the stream: there is no way to find the next message.

use crate::types::HEADER_LEN;
use thiserror::Error;

/// The stream lost synchronisation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum StreamError {
    /// A header states a length below its own.
    #[error("received too-short OpenFlow message ({0} bytes)")]
    TooShort(u16),
}

/// Collects bytes and returns messages.
#[derive(Debug, Default)]
pub struct Framer {
    buf: Vec<u8>,
    start: usize,
}

impl Framer {
    /// Appends bytes that arrived.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 && (self.start == self.buf.len() || self.start >= 1 << 16) {
            self.buf.drain(..self.start);
            self.start = 0;
        }
        self.buf.extend_from_slice(bytes);
    }

    /// Returns the next message if it is complete.
    pub fn next_message(&mut self) -> Result<Option<&[u8]>, StreamError> {
        let rest = self.buf.get(self.start..).unwrap_or_default();
        let Some([_, _, hi, lo]) = rest.first_chunk::<4>() else { return Ok(None) };
        let len = u16::from_be_bytes([*hi, *lo]);
        if usize::from(len) < HEADER_LEN {
            return Err(StreamError::TooShort(len));
        }
        if rest.len() < len.into() {
            return Ok(None);
        }
        let start = self.start;
        self.start += usize::from(len);
        Ok(self.buf.get(start..self.start))
    }

    /// Returns the complete messages without consuming them: the caller passes the length of those that it used to
    /// [`Framer::take`]. Ends at an invalid header.
    pub fn messages(&self) -> impl Iterator<Item = &[u8]> + Clone {
        let mut rest = self.buf.get(self.start..).unwrap_or_default();
        std::iter::from_fn(move || {
            let [_, _, hi, lo] = rest.first_chunk::<4>()?;
            let len = usize::from(u16::from_be_bytes([*hi, *lo]));
            let (message, later) = rest.split_at_checked(len).filter(|_| len >= HEADER_LEN)?;
            rest = later;
            Some(message)
        })
    }

    /// Consumes so many bytes, which must form whole messages.
    pub fn take(&mut self, bytes: usize) {
        self.start = (self.start + bytes).min(self.buf.len());
    }

    /// The number of bytes that wait for the rest of their message.
    pub fn pending(&self) -> usize {
        self.buf.len() - self.start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    tally::proptest! {
        #[test]
        fn messages_do_not_depend_on_segmentation(bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..20),
                              step in 1..500usize) {
            let mut bytes = Vec::new();
            for b in &bodies {
                bytes.extend([4, 0]);
                bytes.extend((b.len() as u16 + 8).to_be_bytes());
                bytes.extend([0; 4]);
                bytes.extend(b);
            }
            let mut framer = Framer::default();
            let mut got = Vec::new();
            for chunk in bytes.chunks(step) {
                framer.push(chunk);
                // The test peeks at some messages before it consumes them.
                let seen: Vec<_> = framer.messages().take(3).map(<[u8]>::to_vec).collect();
                framer.take(seen.iter().map(Vec::len).sum());
                got.extend(seen.iter().map(|m| m[8..].to_vec()));
                while let Some(m) = framer.next_message().expect("lengths are right") {
                    got.push(m[8..].to_vec());
                }
            }
            prop_assert_eq!(got, bodies);
            prop_assert_eq!(framer.pending(), 0);
        }
    }

    #[test]
    fn short_length_ends_the_stream() {
        let mut framer = Framer::default();
        framer.push(&[1, 0, 0, 7, 0, 0, 0, 0]);
        assert_eq!(framer.next_message(), Err(StreamError::TooShort(7)));
    }
}
