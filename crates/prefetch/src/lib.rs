//! Brings memory into the processor's cache ahead of its use.
//!
//! A load that misses the cache holds back all instructions after it, so that few misses overlap. A prefetch is complete
//! at once: a loop over a batch of packets starts the misses of all of them.
//!
//! This crate has `unsafe` code, as the standard library has no safe function for this in its stable part: one block for
//! each architecture. On others the functions do nothing.

/// Bytes of a cache line.
const LINE: usize = 64;

/// Begins to bring the first `LINES` cache lines of a value into all levels of the cache. The value should be aligned to a
/// line. A processor may ignore this.
#[inline(always)]
pub fn lines<const LINES: usize, T>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    for line in 0..LINES {
        // The address may lie behind the value: nothing is read there.
        one(start.wrapping_add(line * LINE));
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn one(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch reads and writes nothing that a program can observe, and raises no fault, whatever the address
    // (Intel 64 and IA-32 Architectures Software Developer's Manual, PREFETCHh). SSE is part of the architecture.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) }
}

#[cfg(target_arch = "aarch64")]
#[inline(always)]
fn one(address: *const u8) {
    // SAFETY: as on x86-64: a prefetch is a hint without effects on memory, registers and flags, and raises no synchronous
    // fault (Arm Architecture Reference Manual, PRFM).
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
fn one(_address: *const u8) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stay_as_they_are() {
        let value = [7u64; 64];
        lines::<8, _>(&value);
        // Lines behind a value, up to the end of the address space.
        lines::<64, _>(&value[63]);
        one(std::ptr::null());
        one(std::ptr::without_provenance(usize::MAX));
        assert_eq!(value, [7; 64]);
    }
}
