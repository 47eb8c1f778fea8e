//! How a replay port plays its frames: as fast as they are taken or at a rate, and with the recorded addresses or with
//! others each time, so that a small capture file makes connections that the switch has never seen.

use std::time::Instant;

use crate::device::Options;

/// The options `rate` and `new-addresses` of a replay port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Playback {
    /// Frames a second of each queue; as many as are taken if `None`.
    pub(super) rate: Option<u64>,
    /// The frames have other IPv4 addresses each time ([`Renumber`]).
    pub(super) new_addresses: bool,
}

impl Playback {
    /// Reads the options. An error has the option's name and its problem.
    pub(super) fn from_options(options: &Options) -> Result<Self, (&'static str, String)> {
        let rate = match options.get("rate").map(|text| (text, text.parse::<u64>())) {
            None => None,
            Some((_, Ok(rate))) if rate > 0 => Some(rate),
            Some((text, _)) => return Err(("rate", format!("'{text}' is not a number of frames a second"))),
        };
        let new_addresses = match options.get("new-addresses").map(String::as_str) {
            None | Some("false") => false,
            Some("true") => true,
            Some(text) => return Err(("new-addresses", format!("'{text}' is neither true nor false"))),
        };
        Ok(Self { rate, new_addresses })
    }
}

/// Frames that may wait for the receiver. Further frames are lost, as with a device whose ring is full.
const WAITING_MAX: u64 = 4096;

/// A rate of frames.
#[derive(Debug)]
pub(super) struct Pace {
    rate: u64,
    began: Instant,
    /// Frames taken or lost since then.
    gone: u64,
}

impl Pace {
    pub(super) fn new(rate: u64) -> Self {
        Self { rate, began: Instant::now(), gone: 0 }
    }

    /// Takes up to `max` of the frames that are due.
    pub(super) fn take(&mut self, max: usize) -> usize {
        self.take_at(self.began.elapsed().as_nanos(), max)
    }

    /// The same, `ns` nanoseconds after the beginning.
    fn take_at(&mut self, ns: u128, max: usize) -> usize {
        let due = u64::try_from(ns * u128::from(self.rate) / 1_000_000_000).unwrap_or(u64::MAX);
        self.gone = self.gone.max(due.saturating_sub(WAITING_MAX));
        let n = due.saturating_sub(self.gone).min(max as u64);
        self.gone += n;
        n as usize
    }
}

/// Gives frames other addresses each time they are played: it adds the number of times before to the lower 16 bits of
/// the lower of both IPv4 addresses, and subtracts it from those of the higher one. Both directions of a connection
/// so change alike. Checksums remain right if neither addition carries: the frames' lower address should end in 0.0,
/// the higher one in 255.255.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Renumber {
    times: u16,
}

impl Renumber {
    pub(super) fn next_time(&mut self) {
        self.times = self.times.wrapping_add(1);
    }

    /// Changes a frame; frames other than IPv4 in untagged Ethernet stay as they are.
    pub(super) fn apply(self, frame: &mut [u8]) {
        let Some(header) = frame.first_chunk_mut::<34>().filter(|header| header[12..14] == [8, 0]) else { return };
        let (source, destination) = header[26..34].split_at_mut(4);
        let (lower, higher) = if source < destination { (source, destination) } else { (destination, source) };
        let [_, _, a, b] = lower else { return };
        [*a, *b] = u16::from_be_bytes([*a, *b]).wrapping_add(self.times).to_be_bytes();
        let [_, _, a, b] = higher else { return };
        [*a, *b] = u16::from_be_bytes([*a, *b]).wrapping_sub(self.times).to_be_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_become_due_at_the_rate() {
        let mut pace = Pace::new(1000);
        assert_eq!(pace.take_at(999_999, 32), 0);
        assert_eq!(pace.take_at(1_000_000, 32), 1);
        assert_eq!(
            [pace.take_at(50_000_000, 32), pace.take_at(50_000_000, 32), pace.take_at(50_000_000, 32)],
            [32, 17, 0]
        );
        // A receiver that stayed away for long has lost frames.
        let taken = std::iter::from_fn(|| Some(pace.take_at(3_600_000_000_000, 32)).filter(|n| *n > 0)).sum::<usize>();
        assert_eq!(taken as u64, WAITING_MAX);
    }

    #[test]
    fn both_directions_get_the_same_new_addresses_and_keep_their_checksum() {
        let frame =
            |source: [u8; 4], destination: [u8; 4]| [&[0; 12][..], &[8, 0], &[0; 12], &source, &destination].concat();
        let sum = |frame: &[u8]| {
            frame.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum::<u32>()
        };
        let mut renumber = Renumber::default();
        for times in 0..1000_u16 {
            let mut there = frame([10, 0, 0, 0], [11, 0, 255, 255]);
            let mut back = frame([11, 0, 255, 255], [10, 0, 0, 0]);
            let before = sum(&there);
            renumber.apply(&mut there);
            renumber.apply(&mut back);
            let ([a, b], [c, d]) = (times.to_be_bytes(), (65_535 - times).to_be_bytes());
            assert_eq!(there, frame([10, 0, a, b], [11, 0, c, d]));
            assert_eq!(back, frame([11, 0, c, d], [10, 0, a, b]));
            assert_eq!(sum(&there), before);
            renumber.next_time();
        }
        let mut other = vec![0; 60];
        renumber.apply(&mut other);
        renumber.apply(&mut [8, 0]);
        assert_eq!(other, [0; 60]);
    }

    #[test]
    fn options_are_checked() {
        let read = |name: &str, value: &str| Playback::from_options(&[(name.to_owned(), value.to_owned())].into());
        assert_eq!(Playback::from_options(&Options::new()), Ok(Playback::default()));
        assert_eq!(read("rate", "500000").map(|playback| playback.rate), Ok(Some(500_000)));
        assert_eq!(read("new-addresses", "true").map(|playback| playback.new_addresses), Ok(true));
        assert!(read("new-addresses", "maybe").is_err_and(|(name, _)| name == "new-addresses"));
        for text in ["0", "-1", "fast"] {
            assert!(read("rate", text).is_err_and(|(name, problem)| name == "rate" && problem.contains(text)));
        }
    }
}
