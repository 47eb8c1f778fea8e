//! The hash that assigns frames to the buckets of a `balance-slb` bond: MurmurHash3 (x86, 32 bits; Austin Appleby, 2011) of
//! the source address and the VLAN, with `bond-hash-basis` as its seed.

use base::MacAddr;

/// Returns the hash of a source address, the VLAN with which frames leave, and the basis. The bucket is its low byte.
pub fn source_hash(mac: MacAddr, vlan: u16, basis: u32) -> u32 {
    let key = u64::from(vlan) << 48 | mac.to_u64();
    let hash = [key as u32, (key >> 32) as u32].into_iter().fold(basis, mix);
    finish(hash ^ 8)
}

/// Returns the bucket of a hash.
pub fn bucket_of(hash: u32) -> u8 {
    hash as u8
}

fn mix(hash: u32, word: u32) -> u32 {
    let word = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    (hash ^ word).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

fn finish(mut hash: u32) -> u32 {
    hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Replies of `bond/hash` by Open vSwitch 4.0.0.
    #[test]
    fn equals_the_replies_of_open_vswitch() {
        let mac = "00:11:22:33:44:55".parse().unwrap();
        for (vlan, basis, bucket) in
            [(0, 0, 226), (7, 0, 195), (7, 9, 139), (4096, 0, 171), (65535, 0, 91), (0, 7, 155), (0, u32::MAX, 233)]
        {
            assert_eq!(bucket_of(source_hash(mac, vlan, basis)), bucket, "{vlan} {basis}");
        }
    }

    #[test]
    fn addresses_are_spread_evenly() {
        let mut counts = [0u32; crate::BUCKETS];
        for n in 0..25_600u64 {
            counts[usize::from(bucket_of(source_hash(MacAddr::local_from(n), 0, 1)))] += 1;
        }
        assert!(counts.iter().all(|count| (40..200).contains(count)), "{counts:?}");
    }
}
