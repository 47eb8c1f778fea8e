//! The processor's time stamp counter. Open vSwitch reports its costs in these cycles.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long the counter is compared with the clock.
const COMPARED: Duration = Duration::from_millis(20);

/// Cycles of the time stamp counter per nanosecond, measured once; `None` on a processor without one.
pub fn cycles_per_ns() -> Option<f64> {
    static MEASURED: OnceLock<Option<f64>> = OnceLock::new();
    *MEASURED.get_or_init(|| {
        let (from, start) = (read()?, Instant::now());
        std::thread::sleep(COMPARED);
        let (to, ns) = (read()?, start.elapsed().as_nanos());
        Some(to.wrapping_sub(from) as f64 / ns as f64)
    })
}

#[cfg(target_arch = "x86_64")]
#[allow(clippy::unnecessary_wraps)]
fn read() -> Option<u64> {
    // SAFETY: every x86-64 processor has the instruction. Linux permits it to programs unless a process opts out (prctl
    // PR_SET_TSC), which this one does not.
    Some(unsafe { std::arch::x86_64::_rdtsc() })
}

#[cfg(not(target_arch = "x86_64"))]
fn read() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_frequency_is_plausible() {
        if let Some(per_ns) = super::cycles_per_ns() {
            assert!((0.2..10.0).contains(&per_ns), "{per_ns} cycles a nanosecond");
        }
    }
}
