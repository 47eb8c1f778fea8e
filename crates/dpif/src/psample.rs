//! Samples for collectors on this host (Flow_Sample_Collector_Set:local_group_id).
//!
//! Linux calls the interface psample: a multicast group of generic netlink, whose members receive each sample with the
//! number of its group and a cookie that identifies the sampling point.

use base::DpPort;
use packet::Packet;

/// The longest cookie in bytes (`OVS_PSAMPLE_COOKIE_MAX_SIZE`).
const COOKIE_MAX: usize = 16;

/// Where a sampled packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Psample {
    /// The group of samples.
    pub group: u32,
    /// Identifies the sampling point.
    pub cookie: Cookie,
}

/// Up to 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Cookie {
    /// Zero beyond `len`.
    bytes: [u8; COOKIE_MAX],
    len: u8,
}

/// A packet on the way to the collectors.
#[derive(Debug)]
pub struct LocalSample<'a> {
    /// Group and cookie.
    pub what: Psample,
    /// The port that the packet came in on.
    pub port: DpPort,
    /// The probability with which a packet is chosen: [`u32::MAX`] for all.
    pub probability: u32,
    /// The packet in its current state, maybe with partial checksums and longer than the MTU.
    pub packet: &'a Packet,
    /// The number of its first bytes that the collectors get at most.
    pub len_max: usize,
}

impl Cookie {
    /// `None` for more than 16 bytes.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut cookie = Self::default();
        cookie.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        cookie.len = bytes.len() as u8;
        Some(cookie)
    }

    /// The cookie of the OpenFlow action `sample`: observation domain and observation point, in network byte order.
    pub fn of_observation(domain: u32, point: u32) -> Self {
        let mut bytes = [0; COOKIE_MAX];
        bytes[..4].copy_from_slice(&domain.to_be_bytes());
        bytes[4..8].copy_from_slice(&point.to_be_bytes());
        Self { bytes, len: 8 }
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_have_up_to_16_bytes() {
        assert_eq!(Cookie::of_observation(10, 20).bytes(), [0, 0, 0, 10, 0, 0, 0, 20]);
        assert_eq!(Cookie::new(&[1; 16]).unwrap().bytes(), [1; 16]);
        assert_eq!((Cookie::new(&[]), Cookie::new(&[1; 17])), (Some(Cookie::default()), None));
    }
}
