//! Statistics of flows as a list of entries, OXS (OpenFlow 1.5 section 7.2.4).

use crate::error::OfpError;
use crate::wire::{Reader, Result, Writer};

/// `OFPXSC_OPENFLOW_BASIC`.
const BASIC: u16 = 0x8002;
const DURATION: u8 = 0;
const IDLE_TIME: u8 = 1;
const FLOW_COUNT: u8 = 3;
const PACKET_COUNT: u8 = 4;
const BYTE_COUNT: u8 = 5;

/// The statistics of one flow or of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    /// How long the flow has existed, in seconds and nanoseconds.
    pub(crate) duration: Option<(u32, u32)>,
    /// The time since the last packet, in seconds and nanoseconds.
    pub(crate) idle_time: Option<(u32, u32)>,
    pub(crate) packet_count: Option<u64>,
    pub(crate) byte_count: Option<u64>,
    pub(crate) flow_count: Option<u32>,
}

impl Counts {
    /// Reads the list with its header and padding. Skips entries that are unknown, or of another length than the
    /// specification's.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let bad = |_| OfpError::BmcBadLen;
        let mut header = r.clone();
        header.skip(2).map_err(bad)?;
        let len = usize::from(header.u16().map_err(bad)?);
        let whole = r.bytes(len.next_multiple_of(8)).map_err(bad)?;
        let mut entries = Reader::new(whole.get(4..len).ok_or(OfpError::BmcBadLen)?);
        let mut counts = Self::default();
        while !entries.is_empty() {
            let (class, field, len) =
                (entries.u16().map_err(bad)?, entries.u8().map_err(bad)?, entries.u8().map_err(bad)?);
            let mut value = entries.sub(len.into()).map_err(bad)?;
            // The lowest bit is reserved: with it, the entry is another one.
            if class == BASIC && field & 1 == 0 {
                counts.set(field >> 1, &mut value);
            }
        }
        Ok(counts)
    }

    fn set(&mut self, field: u8, value: &mut Reader<'_>) {
        let eight: Option<[u8; 8]> = value.peek().try_into().ok();
        let halves = eight.map(u64::from_be_bytes).map(|n| ((n >> 32) as u32, n as u32));
        match field {
            DURATION => self.duration = halves.or(self.duration),
            IDLE_TIME => self.idle_time = halves.or(self.idle_time),
            PACKET_COUNT => self.packet_count = eight.map(u64::from_be_bytes).or(self.packet_count),
            BYTE_COUNT => self.byte_count = eight.map(u64::from_be_bytes).or(self.byte_count),
            FLOW_COUNT => self.flow_count = value.u32().ok().filter(|_| value.is_empty()).or(self.flow_count),
            _ => {}
        }
    }

    /// Appends the list with its header and padding.
    pub(crate) fn encode(self, out: &mut Writer) {
        let start = out.len();
        out.zeros(4);
        let mut entry = |field: u8, value: &[u8]| {
            out.put_u16(BASIC);
            out.put_u8(field << 1);
            out.put_len8(value.len());
            out.put(value);
        };
        for (field, time) in [(DURATION, self.duration), (IDLE_TIME, self.idle_time)] {
            if let Some((sec, nsec)) = time {
                entry(field, &(u64::from(sec) << 32 | u64::from(nsec)).to_be_bytes());
            }
        }
        for (field, count) in [(PACKET_COUNT, self.packet_count), (BYTE_COUNT, self.byte_count)] {
            if let Some(n) = count {
                entry(field, &n.to_be_bytes());
            }
        }
        if let Some(n) = self.flow_count {
            entry(FLOW_COUNT, &n.to_be_bytes());
        }
        out.set_len16(start + 2, start);
        out.pad8(start);
    }
}

/// Converts a counter of other versions, where all ones mean that it is unknown.
pub(crate) fn known(n: u64) -> Option<u64> {
    (n != u64::MAX).then_some(n)
}

/// Converts a duration of other versions.
pub(crate) fn known_duration(sec: u32, nsec: u32) -> Option<(u32, u32)> {
    ((sec, nsec) != (u32::MAX, u32::MAX)).then_some((sec, nsec))
}
