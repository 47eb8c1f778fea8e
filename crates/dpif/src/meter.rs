//! Meters: how fast packets may come that are sent through one, and what becomes of those that come faster
//! (OpenFlow 1.3 section 5.7).

/// Names a meter of a datapath, for as long as it is there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct MeterId(pub u32);

/// Meters of a datapath at most.
pub const METERS_MAX: u32 = 262_144;
/// Bands of a meter at most.
pub const METER_BANDS_MAX: usize = 8;

/// What a meter counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MeterUnit {
    /// Kilobits (1000 bits) a second, of frames without frame check sequence.
    Kbps,
    /// Packets a second.
    Pktps,
}

/// What a band does with a packet that finds its bucket empty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BandKind {
    /// Drops it.
    Drop,
    /// Raises the drop precedence of an IP packet of an assured forwarding class (RFC 2597) by so many levels, to the
    /// highest at most. Other packets stay as they are.
    DscpRemark {
        /// Levels, from 1.
        prec_level: u8,
    },
}

/// A band of a meter: a token bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MeterBand {
    /// What it does.
    pub kind: BandKind,
    /// From which rate on, in the meter's unit.
    pub rate: u32,
    /// What may come at once beside that, in kilobits or packets; 0 for what comes in a second at the rate. It is never
    /// less than what comes in [`BURST_MIN_MS`]. The last packet of a burst may go beyond it, and what follows waits for
    /// as much longer.
    pub burst: u32,
}

/// See [`MeterBand::burst`]: packets come in batches, and clocks have ticks.
pub const BURST_MIN_MS: u32 = 10;

/// What a meter does. Of the bands whose buckets a packet finds empty, the one of the highest rate acts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeterConfig {
    /// What it counts.
    pub unit: MeterUnit,
    /// Its bands, [`METER_BANDS_MAX`] at most. With none it only counts.
    pub bands: Vec<MeterBand>,
}

/// Packets and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MeterCount {
    /// Packets.
    pub packets: u64,
    /// Bytes of frames, without frame check sequence.
    pub bytes: u64,
}

impl MeterCount {
    /// Counts a packet.
    pub fn add(&mut self, bytes: usize) {
        self.packets += 1;
        self.bytes += bytes as u64;
    }
}

/// What a meter has done so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeterStats {
    /// What came in.
    pub input: MeterCount,
    /// What each band acted on.
    pub bands: Vec<MeterCount>,
}
