//! Meters in virtual time: comparison with a naive model, and the accuracy of rates.

use super::*;
use packet::wire::{EthernetRepr, Ipv4Repr, TcpRepr};
use packet::{Gso, GsoKind};
use proptest::prelude::*;

const REMARK: BandKind = BandKind::DscpRemark { prec_level: 1 };

fn band(kind: BandKind, rate: u32, burst: u32) -> MeterBand {
    MeterBand { kind, rate, burst }
}

fn config(unit: MeterUnit, bands: &[MeterBand]) -> MeterConfig {
    MeterConfig { unit, bands: bands.to_vec() }
}

fn meter(unit: MeterUnit, bands: &[MeterBand]) -> Meter {
    Meter::new(&config(unit, bands), Millis(0), MeterCount::default()).expect("few bands")
}

/// Buckets filled millisecond by millisecond, in tokens of a bit or of a thousandth of a packet.
struct Twin {
    unit: MeterUnit,
    bands: Vec<(MeterBand, i128)>,
    at: u64,
}

impl Twin {
    fn size(band: &MeterBand) -> i128 {
        1000 * i128::from(if band.burst == 0 { band.rate } else { band.burst })
    }

    fn classify(&mut self, size: Size, now: u64) -> Option<BandKind> {
        while self.at < now {
            self.at += 1;
            for (band, tokens) in &mut self.bands {
                *tokens = Self::size(band).min(*tokens + i128::from(band.rate));
            }
        }
        let [cost, needed] = match self.unit {
            MeterUnit::Kbps => [size.bytes, size.frame].map(|bytes| bytes as i128 * 8),
            MeterUnit::Pktps => [1000; 2],
        };
        let exceeded: Vec<MeterBand> = self.bands.iter().filter(|b| b.1 < needed).map(|b| b.0).collect();
        self.bands.iter_mut().filter(|b| b.1 >= needed).for_each(|b| b.1 -= cost);
        let highest = exceeded.iter().map(|b| b.rate).max();
        exceeded.iter().find(|b| Some(b.rate) == highest).map(|b| b.kind)
    }
}

/// A packet that is one frame on the wire.
fn plain(bytes: usize) -> Size {
    Size { bytes, frame: bytes }
}

fn sizes() -> impl Strategy<Value = Size> {
    prop_oneof![
        3 => (1..4000usize).prop_map(plain),
        1 => (1..40_000usize, 1..1600usize).prop_map(|(bytes, frame)| Size { bytes, frame: frame.min(bytes) }),
    ]
}

fn bands() -> impl Strategy<Value = Vec<MeterBand>> {
    let kind = prop_oneof![Just(BandKind::Drop), Just(REMARK)];
    let one = (kind, 0..60u32, 0..60u32).prop_map(|(kind, rate, burst)| band(kind, rate, burst));
    prop::collection::vec(one, 0..4)
}

tally::proptest! {
    #[test]
    fn verdicts_equal_the_naive_models(
        pktps: bool,
        bands in bands(),
        batches in prop::collection::vec((0..90u64, prop::collection::vec(sizes(), 1..9)), 1..60),
    ) {
        let unit = if pktps { MeterUnit::Pktps } else { MeterUnit::Kbps };
        let meter = meter(unit, &bands);
        let mut twin = Twin { unit, bands: bands.iter().map(|b| (*b, Twin::size(b))).collect(), at: 0 };
        let (mut now, mut total) = (0, MeterCount::default());
        let mut acted = 0;
        for (pause, sizes) in batches {
            now += pause;
            let verdicts = meter.classify(sizes.iter().copied(), Millis(now));
            let expected: Vec<_> = sizes.iter().map(|size| twin.classify(*size, now)).collect();
            prop_assert_eq!(verdicts.to_vec(), expected.clone());
            sizes.iter().for_each(|size| total.add(size.bytes));
            acted += expected.iter().flatten().count() as u64;
        }
        let stats = meter.stats();
        prop_assert_eq!(stats.input, total);
        prop_assert_eq!(stats.bands.iter().map(|b| b.packets).sum::<u64>(), acted);
    }

    /// No numbers overflow.
    #[test]
    fn no_numbers_panic(rate: u32, burst: u32, pktps: bool, moments: Vec<(u64, u32)>) {
        let unit = if pktps { MeterUnit::Pktps } else { MeterUnit::Kbps };
        let meter = meter(unit, &[band(BandKind::Drop, rate, burst)]);
        for (now, bytes) in moments {
            meter.classify([plain(bytes as usize); 3].into_iter(), Millis(now));
        }
    }
}

/// Sends `batch` packets of `bytes` bytes every `gap_ms` for two seconds, to use up bursts, and then measures for
/// `seconds`: packets per second that pass unchanged, are remarked, and are dropped.
fn steady(meter: &Meter, bytes: usize, batch: usize, gap_ms: u64, seconds: u64) -> [f64; 3] {
    let mut counts = [0u64; 3];
    let began = Millis(2000);
    let mut now = Millis(0);
    while now.since(began) < seconds * 1000 {
        for verdict in meter.classify(std::iter::repeat_n(plain(bytes), batch), now) {
            let at = match verdict {
                None => 0,
                Some(BandKind::DscpRemark { .. }) => 1,
                Some(BandKind::Drop) => 2,
            };
            counts[at] += u64::from(now >= began);
        }
        now = now.after(gap_ms);
    }
    counts.map(|n| n as f64 / seconds as f64)
}

fn holds(rate: f64, wanted: f64) -> bool {
    (rate - wanted).abs() <= wanted * 0.02
}

#[test]
fn rates_are_held() {
    let mut loads = 0;
    for (unit, bytes) in
        [(MeterUnit::Pktps, 60), (MeterUnit::Kbps, 64), (MeterUnit::Kbps, 1500), (MeterUnit::Kbps, 60_000)]
    {
        // The size of a packet in the meter's unit.
        let size = if unit == MeterUnit::Pktps { 1.0 } else { (bytes * 8) as f64 / 1000.0 };
        for (rate, batch, gap_ms) in [
            (100, 1, 1),
            (100, 32, 7),
            (1000, 32, 7),
            (1000, 500, 10),
            (5000, 32, 1),
            (20_000, 1, 1),
            (20_000, 500, 10),
            (100_000, 3000, 10),
        ] {
            let offered = (batch * 1000) as f64 / gap_ms as f64;
            // Long enough that a single packet makes no difference.
            let seconds = (size / f64::from(rate) * 50.0).ceil().max(1.0) as u64;
            let wanted = f64::from(rate) / size;
            if offered < wanted * 1.6 || offered * seconds as f64 > 2e5 {
                continue;
            }
            // A bucket that has room for a packet beside what it gets between two batches.
            let enough = (size + f64::from(rate) * gap_ms as f64 / 1000.0).ceil() as u32;
            for burst in [rate, enough, enough * 3] {
                let meter = meter(unit, &[band(BandKind::Drop, rate, burst)]);
                let [passed, _, dropped] = steady(&meter, bytes, batch, gap_ms, seconds);
                let what = format!("{rate} {unit:?}, {burst}: {batch} of {bytes} each {gap_ms} ms: {passed}");
                assert!(holds(passed, wanted) && holds(passed + dropped, offered), "{what}, not {wanted}");
                loads += 1;
            }
        }
    }
    tally::report!("{loads} loads");
    assert!(loads > 40);
}

#[test]
fn a_packet_that_is_larger_than_the_bucket_never_passes() {
    let meter = meter(MeterUnit::Kbps, &[band(BandKind::Drop, 1000, 8)]);
    let verdicts = |lens: &[usize], ms| {
        let verdicts = meter.classify(lens.iter().map(|n| plain(*n)), Millis(ms));
        verdicts.iter().map(Option::is_none).collect::<Vec<_>>()
    };
    assert_eq!(verdicts(&[1001, 1000, 1], 0), [false, true, false]);
    assert_eq!(verdicts(&[1001, 900, 101, 100], 8), [false, true, false, true]);
    assert_eq!(verdicts(&[100], 0), [false], "time does not go back");
    // Of a bucket, not more than its size is left after a pause.
    assert_eq!(verdicts(&[500, 501, 500, 1], 100_000), [true, false, true, false]);
}

#[test]
fn a_gso_packet_passes_if_its_segments_may_begin() {
    let meter = meter(MeterUnit::Kbps, &[band(BandKind::Drop, 1000, 16)]);
    let passes = |bytes, frame, ms| meter.classify([Size { bytes, frame }].into_iter(), Millis(ms))[0].is_none();
    assert!(passes(60_000, 1500, 0), "its segments are smaller than the bucket");
    // 60,000 bytes take 480 ms, of which the full bucket gave 16.
    assert!(!passes(60, 60, 464) && passes(60, 60, 465));
    assert!(!passes(60_000, 2001, 10_000), "its segments are larger than the bucket");
}

#[test]
fn the_size_of_a_packet_is_that_of_its_frames() {
    let mut frame = Vec::new();
    EthernetRepr { ethertype: 0x0800, ..EthernetRepr::default() }.emit(&mut frame);
    Ipv4Repr { src: 1, dst: 2, proto: 6, ttl: 64, ..Ipv4Repr::default() }.emit(20 + 950, &mut frame);
    TcpRepr { src: 1, dst: 2, ..TcpRepr::default() }.emit(&mut frame);
    frame.extend([0; 950]);
    let mut packet = Packet::from_slice(&frame);
    let whole = Size::of(&packet);
    assert_eq!((whole.bytes, whole.frame), (packet.len(), packet.len()));
    packet.offload.gso = Some(Gso { kind: GsoKind::TcpV4, size: 100, ecn: false });
    let large = Size::of(&packet);
    assert_eq!((large.bytes, large.frame), (packet.len(), 54 + 100));
}

#[test]
fn conforming_packets_pass() {
    let meter = meter(MeterUnit::Pktps, &[band(BandKind::Drop, 1000, 0)]);
    assert_eq!(steady(&meter, 60, 9, 10, 30), [900.0, 0.0, 0.0]);
    // A burst is limited to the amount of one second.
    let burst = meter.classify(std::iter::repeat_n(plain(60), 3000), Millis(100_000));
    assert_eq!(burst.iter().filter(|v| v.is_none()).count(), 1000);
    assert_eq!(burst.iter().position(Option::is_some), Some(1000));
}

#[test]
fn the_band_of_the_highest_exceeded_rate_acts() {
    for bands in
        [[band(REMARK, 1000, 0), band(BandKind::Drop, 2000, 0)], [band(BandKind::Drop, 2000, 0), band(REMARK, 1000, 0)]]
    {
        let [plain, marked, dropped] = steady(&meter(MeterUnit::Pktps, &bands), 60, 30, 10, 5);
        assert!(holds(plain, 1000.0) && holds(marked, 1000.0) && holds(dropped, 1000.0), "{plain} {marked} {dropped}");
    }
    // Above the higher rate, that rate's band acts, whatever it does.
    let bands = [band(BandKind::Drop, 1000, 0), band(REMARK, 2000, 0)];
    let [plain, marked, dropped] = steady(&meter(MeterUnit::Pktps, &bands), 60, 30, 10, 5);
    assert!(holds(plain, 1000.0) && holds(marked, 1000.0) && holds(dropped, 1000.0), "{plain} {marked} {dropped}");
    // A rate of zero drops everything.
    assert_eq!(steady(&meter(MeterUnit::Kbps, &[band(BandKind::Drop, 0, 0)]), 60, 1, 10, 1), [0.0, 0.0, 100.0]);
}

#[test]
fn the_rate_is_shared_by_all_threads() {
    let meter = meter(MeterUnit::Pktps, &[band(BandKind::Drop, 1000, 5000)]);
    let passed = || {
        let batch = |ms| meter.classify([plain(60); 32].into_iter(), Millis(ms)).iter().filter(|v| v.is_none()).count();
        // Threads with older clock readings come later.
        (0..1000).map(|n| batch(n % 3) + batch(2)).sum::<usize>()
    };
    let total: usize =
        std::thread::scope(|s| [(); 4].map(|()| s.spawn(passed)).map(|t| t.join().expect("no panic")).iter().sum());
    assert!((5000..=5002).contains(&total), "{total}");
    let stats = meter.stats();
    assert_eq!((stats.input.packets, stats.bands[0].packets), (256_000, 256_000 - total as u64));
}

#[test]
fn meter_ids_are_reused() {
    let meters = Meters::default();
    let counts = config(MeterUnit::Pktps, &[]);
    let drops = config(MeterUnit::Pktps, &[band(BandKind::Drop, 1, 1)]);
    let batch = vec![packet::Packet::from_slice(&[0; 60]); 3];
    assert!(meters.classify(MeterId(0), &batch, Millis(0)).is_none());
    let ids: Vec<_> = (0..3).map(|_| meters.add(&counts, Millis(0)).expect("room").0).collect();
    assert_eq!(ids, [0, 1, 2]);
    assert_eq!(meters.classify(MeterId(1), &batch, Millis(0)).expect("there").to_vec(), [None; 3]);
    // The input counters continue.
    meters.set(MeterId(1), &drops, Millis(5)).expect("there");
    let verdicts = meters.classify(MeterId(1), &batch, Millis(5)).expect("there");
    assert_eq!(verdicts.to_vec(), [None, Some(BandKind::Drop), Some(BandKind::Drop)]);
    let stats =
        MeterStats { input: MeterCount { packets: 6, bytes: 360 }, bands: vec![MeterCount { packets: 2, bytes: 120 }] };
    assert_eq!(meters.entry(MeterId(1)), Some((drops.clone(), stats.clone())));
    assert_eq!(meters.del(MeterId(1)).ok(), Some(stats));
    assert!(matches!(meters.del(MeterId(1)), Err(DpifError::NoMeter)));
    assert!(matches!(meters.set(MeterId(1), &drops, Millis(0)), Err(DpifError::NoMeter)));
    assert!(matches!(meters.set(MeterId(u32::MAX), &drops, Millis(0)), Err(DpifError::NoMeter)));
    assert_eq!(meters.entry(MeterId(METERS_MAX)), None);
    let many = config(MeterUnit::Kbps, &[band(BandKind::Drop, 1, 1); METER_BANDS_MAX + 1]);
    assert!(matches!(meters.add(&many, Millis(0)), Err(DpifError::TooManyBands)));
    assert!(matches!(meters.set(MeterId(0), &many, Millis(0)), Err(DpifError::TooManyBands)));

    // The free id is used first, then all others.
    assert_eq!(meters.add(&counts, Millis(0)).ok(), Some(MeterId(1)));
    for n in 3..METERS_MAX {
        assert_eq!(meters.add(&counts, Millis(0)).ok(), Some(MeterId(n)));
    }
    assert!(matches!(meters.add(&counts, Millis(0)), Err(DpifError::TooManyMeters)));
    meters.del(MeterId(77_777)).expect("there");
    assert_eq!(meters.add(&drops, Millis(0)).ok(), Some(MeterId(77_777)));
}
