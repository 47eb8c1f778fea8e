//! Meters: rate limits for the packets that are sent through them (OpenFlow 1.3 section 5.7).

/// The id of a datapath's meter while it exists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct MeterId(pub u32);

/// Maximum number of meters of a datapath.
pub const METERS_MAX: u32 = 262_144;
/// Maximum number of bands of a meter.
pub const METER_BANDS_MAX: usize = 8;

/// The unit of a meter's rates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MeterUnit {
    /// Kilobits (1000 bits) per second, of frames without frame check sequence.
    Kbps,
    /// Packets a second.
    Pktps,
}

/// The action of a band on packets that exceed its rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BandKind {
    /// Drops it.
    Drop,
    /// Raises the drop precedence of an IP packet in an assured forwarding class (RFC 2597) by this number of levels,
    /// up to the highest. Other packets stay as they are.
    DscpRemark {
        /// Levels, from 1.
        prec_level: u8,
    },
}

/// A band of a meter: a token bucket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MeterBand {
    /// The action on excess packets.
    pub kind: BandKind,
    /// The band's rate, in the meter's unit.
    pub rate: u32,
    /// Burst size in kilobits or packets; 0 for the amount of one second at the rate. No packet larger than that conforms.
    pub burst: u32,
}

/// The configuration of a meter. Among the bands whose bucket lacks tokens for a packet, the one with the highest rate
/// acts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeterConfig {
    /// The unit of its rates.
    pub unit: MeterUnit,
    /// Its bands, at most [`METER_BANDS_MAX`]. A meter without bands only counts.
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

/// Statistics of a meter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MeterStats {
    /// Packets that entered the meter.
    pub input: MeterCount,
    /// Packets that each band acted on.
    pub bands: Vec<MeterCount>,
}
