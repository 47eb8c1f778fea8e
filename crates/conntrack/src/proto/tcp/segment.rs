//! The fields of a TCP segment that the state machine reads (RFC 9293, section 3.1).

/// Control bits.
pub(super) const FIN: u8 = 0x01;
pub(super) const SYN: u8 = 0x02;
pub(super) const RST: u8 = 0x04;
pub(super) const PSH: u8 = 0x08;
pub(super) const ACK: u8 = 0x10;
pub(super) const URG: u8 = 0x20;

/// The bits without PSH, URG and those of ECN, which do not change states.
pub(super) const CONTROL: u8 = FIN | SYN | RST | ACK;

const MIN_HEADER: usize = 20;

/// Kinds of options.
const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_WINDOW_SCALE: u8 = 3;

/// The largest shift of windows (RFC 7323, section 2.3).
const MAX_SHIFT: u8 = 14;

/// What a peer said about the scale of its windows (RFC 7323, section 2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Scale {
    /// Its SYN had no option, or it has sent no SYN.
    #[default]
    Absent,
    /// Its SYN is unknown: the connection was picked up later.
    Unknown,
    /// The shift in its SYN, at most 14.
    Shift(u8),
}

impl Scale {
    /// The shift of windows in segments other than SYNs, if both peers scale.
    #[inline]
    pub(super) fn shift(self) -> u8 {
        match self {
            Self::Absent | Self::Unknown => 0,
            Self::Shift(shift) => shift,
        }
    }
}

/// A segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segment {
    /// Sequence number.
    pub(super) seq: u32,
    /// Acknowledgment number.
    pub(super) ack: u32,
    /// Length of the payload in bytes.
    pub(super) len: u32,
    /// Window, not scaled.
    pub(super) window: u16,
    /// Control bits.
    pub(super) flags: u8,
    /// The window scale option of a SYN.
    pub(super) scale: Scale,
}

impl Segment {
    /// Reads a TCP header and its payload. Returns `None` if the header is not complete. Only a SYN's options are read.
    #[inline]
    pub fn read(l4: &[u8]) -> Option<Self> {
        let header: &[u8; MIN_HEADER] = l4.first_chunk()?;
        let header_len = usize::from(header[12] >> 4) * 4;
        let options = l4.get(MIN_HEADER..header_len)?;
        let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let flags = header[13];
        Some(Self {
            seq: number(4),
            ack: number(8),
            len: (l4.len() - header_len) as u32,
            window: u16::from_be_bytes([header[14], header[15]]),
            flags,
            scale: if flags & SYN != 0 { window_scale(options) } else { Scale::Absent },
        })
    }

    /// Becomes the segment of a header and payload `l4`, of which the header is complete. Returns false for a SYN, whose
    /// options this does not read.
    #[inline(always)]
    pub(crate) fn read_plain(&mut self, l4: &[u8]) -> bool {
        let Some(header) = l4.first_chunk::<MIN_HEADER>() else { return false };
        let number = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        (self.seq, self.ack) = (number(4), number(8));
        self.len = (l4.len() as u32).wrapping_sub(u32::from(header[12] >> 4) * 4);
        self.window = u16::from_be_bytes([header[14], header[15]]);
        (self.flags, self.scale) = (header[13], Scale::Absent);
        self.flags & SYN == 0
    }

    /// Returns true if all of `bits` are set.
    #[inline]
    pub(super) fn has(&self, bits: u8) -> bool {
        self.flags & bits == bits
    }

    /// Returns false for combinations of control bits that no implementation sends.
    pub(super) fn is_possible(&self) -> bool {
        if self.has(SYN) {
            if self.flags & (RST | FIN) != 0 {
                return false;
            }
        } else if self.flags & (ACK | RST) == 0 {
            return false;
        }
        self.has(ACK) || self.flags & (FIN | PSH | URG) == 0
    }

    /// The sequence number behind the segment. SYN and FIN take one number each.
    #[inline]
    pub(super) fn end(&self) -> u32 {
        let controls = u32::from(self.has(SYN)) + u32::from(self.has(FIN));
        self.seq.wrapping_add(self.len).wrapping_add(controls)
    }
}

/// The window scale option among `options`.
#[cold]
fn window_scale(mut options: &[u8]) -> Scale {
    loop {
        options = match *options {
            [] | [OPTION_END, ..] => return Scale::Absent,
            [OPTION_NOP, ref rest @ ..] => rest,
            [OPTION_WINDOW_SCALE, 3, shift, ..] => return Scale::Shift(shift.min(MAX_SHIFT)),
            // A length below 2 is malformed, as is one beyond the header.
            [_, len @ 2..=u8::MAX, ..] => options.get(usize::from(len)..).unwrap_or_default(),
            _ => return Scale::Absent,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;

    #[test]
    fn options_are_walked_to_their_end() {
        let cases: [(&[u8], Scale); 10] = [
            (&[], Scale::Absent),
            (&[3, 3, 7], Scale::Shift(7)),
            (&[1, 3, 3, 255], Scale::Shift(14)),
            (&[2, 4, 5, 180, 4, 2, 8, 10, 0, 0, 0, 0, 0, 0, 0, 0, 1, 3, 3, 0], Scale::Shift(0)),
            (&[0, 3, 3, 7], Scale::Absent),
            (&[3, 2, 7, 0], Scale::Absent),
            (&[3, 3], Scale::Absent),
            (&[5, 0, 3, 3, 7], Scale::Absent),
            (&[5, 40, 3, 3, 7], Scale::Absent),
            (&[5], Scale::Absent),
        ];
        for (options, scale) in cases {
            assert_eq!(window_scale(options), scale, "{options:?}");
        }
    }

    #[test]
    fn any_bytes_are_read_without_panic() {
        let mut rng = Rng::seeded(5);
        let (rounds, mut complete) = (100_000, 0);
        for _ in 0..rounds {
            let mut bytes: Vec<u8> = (0..rng.below(70)).map(|_| rng.next_u64() as u8).collect();
            if let Some(flags) = bytes.get_mut(13) {
                *flags |= SYN;
            }
            if let Some(segment) = Segment::read(&bytes) {
                let header = usize::from(bytes[12] >> 4) * 4;
                assert!(header >= 20);
                assert_eq!(segment.len as usize, bytes.len() - header);
                complete += 1;
            }
        }
        tally::report!("{rounds} headers, {complete} complete");
    }
}
