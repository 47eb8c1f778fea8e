//! Meters: token buckets shared by all threads.
//!
//! Meters are stored in a table of pages, which are allocated on demand, so that finding a meter takes two loads and no
//! lock. Each meter has a lock, which is taken once for each batch: the rate applies to all threads together. Under the
//! lock, packets are only classified; actions on them follow after it is released.
//!
//! A bucket counts integers, so that nothing is lost to rounding: bits, or thousandths of packets. A rate in kilobits
//! or packets per second is the same number of these per millisecond. A bucket starts full. A packet conforms if the
//! bucket has all of its tokens, and takes them: nothing larger than the bucket ever conforms, as in Open vSwitch. Each
//! band goes by its own bucket, whatever other bands do with the packet.
//!
//! A GSO packet conforms if the tokens suffice for its longest segment, because only segments go on the wire. It takes the
//! tokens of all of them, after which others wait for correspondingly longer.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use base::Millis;
use dpif::meter::{METER_BANDS_MAX, METERS_MAX};
use dpif::{BandKind, DpifError, MeterBand, MeterConfig, MeterCount, MeterId, MeterStats, MeterUnit};
use packet::buf::BATCH_MAX;
use packet::{Batch, Packet};
use parking_lot::Mutex;
use smallvec::SmallVec;

/// Meters of a page.
const PAGE: usize = 512;
/// Tokens of a packet in a bucket.
const TOKENS_PACKET: i64 = 1000;

/// The action for each packet of a batch: that of the band that acts on it, if any.
pub(crate) type Verdicts = SmallVec<[Option<BandKind>; BATCH_MAX]>;

type Page = Box<[ArcSwapOption<Meter>]>;

/// The bytes of a packet.
#[derive(Clone, Copy, Debug)]
struct Size {
    /// Of the whole packet.
    bytes: usize,
    /// Of the longest frame that goes on the wire for it.
    frame: usize,
}

/// All meters of a datapath.
#[derive(Debug)]
pub(crate) struct Meters {
    pages: Box<[OnceLock<Page>]>,
    /// Held while meters are added and removed.
    numbers: Mutex<Numbers>,
}

/// The free ids: these, and all from `next` on.
#[derive(Debug, Default)]
struct Numbers {
    free: BinaryHeap<Reverse<u32>>,
    next: u32,
}

/// A meter.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Meter {
    config: MeterConfig,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    unit: MeterUnit,
    /// Time of the last refill.
    filled: Millis,
    buckets: SmallVec<[Bucket; 1]>,
    input: MeterCount,
}

#[derive(Debug)]
struct Bucket {
    kind: BandKind,
    /// Tokens a millisecond.
    rate: i64,
    tokens_max: i64,
    /// Negative after a GSO packet that took more tokens than there were.
    tokens: i64,
    count: MeterCount,
}

impl Default for Meters {
    fn default() -> Self {
        let pages = (METERS_MAX as usize).div_ceil(PAGE);
        Self { pages: (0..pages).map(|_| OnceLock::new()).collect(), numbers: Mutex::default() }
    }
}

impl Meters {
    /// Adds a meter under the lowest free id.
    pub(crate) fn add(&self, config: &MeterConfig, now: Millis) -> Result<MeterId, DpifError> {
        let meter = Meter::new(config, now, MeterCount::default())?;
        let mut numbers = self.numbers.lock();
        let number = match numbers.free.pop() {
            Some(Reverse(number)) => number,
            None if numbers.next < METERS_MAX => {
                numbers.next += 1;
                numbers.next - 1
            }
            None => return Err(DpifError::TooManyMeters),
        };
        let page =
            self.pages[number as usize / PAGE].get_or_init(|| (0..PAGE).map(|_| ArcSwapOption::empty()).collect());
        page[number as usize % PAGE].store(Some(Arc::new(meter)));
        Ok(MeterId(number))
    }

    /// Reconfigures a meter, with full buckets. Its input counters continue, and its band counters restart at zero
    /// (OpenFlow 1.3, "Meter modification messages").
    pub(crate) fn set(&self, id: MeterId, config: &MeterConfig, now: Millis) -> Result<(), DpifError> {
        let _changing = self.numbers.lock();
        let place = self.place(id).ok_or(DpifError::NoMeter)?;
        let input = place.load().as_ref().ok_or(DpifError::NoMeter)?.stats().input;
        place.store(Some(Arc::new(Meter::new(config, now, input)?)));
        Ok(())
    }

    /// Removes a meter.
    pub(crate) fn del(&self, id: MeterId) -> Result<MeterStats, DpifError> {
        let mut numbers = self.numbers.lock();
        let meter = self.place(id).and_then(|place| place.swap(None)).ok_or(DpifError::NoMeter)?;
        numbers.free.push(Reverse(id.0));
        Ok(meter.stats())
    }

    /// The configuration and statistics of a meter.
    pub(crate) fn entry(&self, id: MeterId) -> Option<(MeterConfig, MeterStats)> {
        let meter = self.place(id)?.load();
        meter.as_ref().map(|meter| (meter.config.clone(), meter.stats()))
    }

    /// Counts a batch and classifies its packets; `None` if the meter does not exist.
    pub(crate) fn classify(&self, id: MeterId, packets: &Batch, now: Millis) -> Option<Verdicts> {
        let meter = self.place(id)?.load();
        Some(meter.as_ref()?.classify(packets.iter().map(Size::of), now))
    }

    fn place(&self, id: MeterId) -> Option<&ArcSwapOption<Meter>> {
        self.pages.get(id.0 as usize / PAGE)?.get()?.get(id.0 as usize % PAGE)
    }
}

impl Size {
    fn of(packet: &Packet) -> Self {
        Self { bytes: packet.len(), frame: packet::segment::longest_frame(packet) }
    }
}

impl Meter {
    fn new(config: &MeterConfig, now: Millis, input: MeterCount) -> Result<Self, DpifError> {
        if config.bands.len() > METER_BANDS_MAX {
            return Err(DpifError::TooManyBands);
        }
        let buckets = config.bands.iter().map(Bucket::new).collect();
        let state = State { unit: config.unit, filled: now, buckets, input };
        Ok(Self { config: config.clone(), state: Mutex::new(state) })
    }

    fn classify(&self, sizes: impl Iterator<Item = Size>, now: Millis) -> Verdicts {
        let mut state = self.state.lock();
        state.fill(now);
        sizes.map(|size| state.classify(size)).collect()
    }

    fn stats(&self) -> MeterStats {
        let state = self.state.lock();
        MeterStats { input: state.input, bands: state.buckets.iter().map(|b| b.count).collect() }
    }
}

impl State {
    /// Refills the buckets for the time since the last call. A thread with an older clock reading adds nothing.
    fn fill(&mut self, now: Millis) {
        let elapsed = i64::try_from(now.since(self.filled)).unwrap_or(i64::MAX);
        if elapsed > 0 {
            self.filled = now;
            self.buckets.iter_mut().for_each(|bucket| bucket.fill(elapsed));
        }
    }

    /// Counts a packet, takes its tokens from each bucket to which it conforms, and returns the action of the band that acts on
    /// it, if any: among the others that of the highest rate, and the first among equal rates.
    fn classify(&mut self, size: Size) -> Option<BandKind> {
        self.input.add(size.bytes);
        let (cost, needed) = match self.unit {
            MeterUnit::Kbps => (bits(size.bytes), bits(size.frame)),
            MeterUnit::Pktps => (TOKENS_PACKET, TOKENS_PACKET),
        };
        let mut acting: Option<&mut Bucket> = None;
        for bucket in &mut self.buckets {
            if bucket.take(cost, needed) || acting.as_ref().is_some_and(|other| other.rate >= bucket.rate) {
                continue;
            }
            acting = Some(bucket);
        }
        let bucket = acting?;
        bucket.count.add(size.bytes);
        Some(bucket.kind)
    }
}

fn bits(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX / 8).saturating_mul(8)
}

impl Bucket {
    fn new(band: &MeterBand) -> Self {
        let burst = if band.burst == 0 { band.rate } else { band.burst };
        let tokens_max = i64::from(burst) * 1000;
        Self { kind: band.kind, rate: band.rate.into(), tokens_max, tokens: tokens_max, count: MeterCount::default() }
    }

    fn fill(&mut self, elapsed_ms: i64) {
        self.tokens = self.tokens.saturating_add(self.rate.saturating_mul(elapsed_ms)).min(self.tokens_max);
    }

    /// Takes `cost` tokens, if the bucket has the `needed` ones. Returns whether it had.
    fn take(&mut self, cost: i64, needed: i64) -> bool {
        let conforms = self.tokens >= needed;
        if conforms {
            self.tokens = self.tokens.saturating_sub(cost);
        }
        conforms
    }
}

#[cfg(test)]
mod tests;
