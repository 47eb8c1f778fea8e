//! Ingress policing (Interface:ingress_policing_rate and the columns beside it).
//!
//! It happens where the switch receives, on ports of any type. The kernel's own ingress policing cannot replace it: packet
//! sockets and AF_XDP sockets get a frame before the filters of the ingress hook see it.

use super::segment_large;
use packet::Batch;
use parking_lot::Mutex;
use shaper::{Policer, policer::Rate};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The burst in kilobits if none is configured.
const DEFAULT_BURST_KB: u64 = 8000;
/// The burst in thousands of packets if none is configured.
const DEFAULT_BURST_KPKTS: u64 = 16;

/// The columns of an interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Policing {
    /// `ingress_policing_rate`, in kilobits per second (1,000 bits); 0 for no limit.
    pub rate_kbps: u64,
    /// `ingress_policing_burst`, in kilobits; 0 for 8,000.
    pub burst_kb: u64,
    /// `ingress_policing_kpkts_rate`, in thousands of packets per second; 0 for no limit.
    pub rate_kpps: u64,
    /// `ingress_policing_kpkts_burst`, in thousands of packets; 0 for 16.
    pub burst_kpkts: u64,
}

impl Policing {
    /// Whether there is a limit.
    pub fn is_limit(&self) -> bool {
        self.rate_kbps > 0 || self.rate_kpps > 0
    }

    fn policer(&self, now_ns: u64) -> Policer {
        let limit = |per_second: u64, burst: u64, default: u64, unit: u64| {
            let burst = if burst == 0 { default } else { burst };
            let scaled = |n: u64| n.saturating_mul(unit);
            (per_second > 0).then(|| Rate { per_second: scaled(per_second), burst: scaled(burst) })
        };
        let bytes = limit(self.rate_kbps, self.burst_kb, DEFAULT_BURST_KB, 1000 / 8);
        let packets = limit(self.rate_kpps, self.burst_kpkts, DEFAULT_BURST_KPKTS, 1000);
        Policer::new(bytes, packets, now_ns)
    }
}

/// The policer of a port.
#[derive(Debug)]
pub(super) struct Ingress {
    is_active: AtomicBool,
    origin: Instant,
    state: Mutex<(Policing, Policer)>,
}

impl Default for Ingress {
    fn default() -> Self {
        let policing = Policing::default();
        let state = Mutex::new((policing, policing.policer(0)));
        Self { is_active: AtomicBool::new(false), origin: Instant::now(), state }
    }
}

impl Ingress {
    #[inline]
    pub(super) fn is_active(&self) -> bool {
        self.is_active.load(Ordering::Relaxed)
    }

    /// Starts with full buckets if the limits are other ones.
    pub(super) fn set(&self, policing: &Policing) {
        let mut state = self.state.lock();
        if state.0 != *policing {
            *state = (*policing, policing.policer(self.now_ns()));
            self.is_active.store(policing.is_limit(), Ordering::Relaxed);
        }
    }

    pub(super) fn police(&self, batch: &mut Batch) -> u64 {
        self.police_at(self.now_ns(), batch)
    }

    fn police_at(&self, now_ns: u64, batch: &mut Batch) -> u64 {
        segment_large(batch);
        let before = batch.len();
        let (_, policer) = &mut *self.state.lock();
        batch.retain(|packet| policer.admits(now_ns, packet.len() as u64, 1));
        (before - batch.len()) as u64
    }

    fn now_ns(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use packet::Packet;

    fn frames(n: usize, len: usize) -> Batch {
        vec![Packet::from_slice(&vec![0; len]); n]
    }

    #[test]
    fn bytes_beyond_the_burst_are_dropped_and_come_back_with_time() {
        let ingress = Ingress::default();
        // 1,000 bytes per second, and 10,000 at once.
        ingress.set(&Policing { rate_kbps: 8, burst_kb: 80, ..Policing::default() });
        assert!(ingress.is_active());
        let start = ingress.now_ns();
        let mut batch = frames(32, 1000);
        assert_eq!((ingress.police_at(start, &mut batch), batch.len()), (22, 10));
        // The same settings again do not refill the buckets.
        ingress.set(&Policing { rate_kbps: 8, burst_kb: 80, ..Policing::default() });
        assert_eq!(ingress.police_at(start + 2_000_000_000, &mut frames(5, 1000)), 3);
        ingress.set(&Policing::default());
        assert!(!ingress.is_active());
    }

    #[test]
    fn packets_are_limited_by_number() {
        let ingress = Ingress::default();
        ingress.set(&Policing { rate_kpps: 1, burst_kpkts: 1, ..Policing::default() });
        let start = ingress.now_ns();
        assert_eq!(ingress.police_at(start, &mut frames(1010, 60)), 10);
        assert_eq!(ingress.police_at(start + 5_000_000, &mut frames(10, 60)), 5);
    }
}
