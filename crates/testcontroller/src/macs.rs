//! The table of learned addresses and their ports.

use base::{MacAddr, Millis, PortNo};
use std::collections::HashMap;

/// Milliseconds after which an address is forgotten.
const AGE_MAX_MS: u64 = 300_000;
/// Addresses that are remembered.
const MACS_MAX: usize = 8192;

/// Addresses of one switch.
#[derive(Debug, Default)]
pub(crate) struct Macs(HashMap<MacAddr, (PortNo, Millis)>);

impl Macs {
    /// Learns that `mac` sends from `port`.
    pub(crate) fn learn(&mut self, mac: MacAddr, port: PortNo, now: Millis) {
        if mac.is_multicast() {
            return;
        }
        if self.0.len() >= MACS_MAX && !self.0.contains_key(&mac) {
            self.0.retain(|_, (_, seen)| now.since(*seen) < AGE_MAX_MS);
            // The least recently seen address is evicted.
            if self.0.len() >= MACS_MAX
                && let Some(oldest) = self.0.iter().min_by_key(|(_, (_, seen))| *seen).map(|(mac, _)| *mac)
            {
                self.0.remove(&oldest);
            }
        }
        self.0.insert(mac, (port, now));
    }

    /// The port on which `mac` was last seen, unless it is too long ago.
    pub(crate) fn port(&self, mac: MacAddr, now: Millis) -> Option<PortNo> {
        let (port, seen) = self.0.get(&mac)?;
        (now.since(*seen) < AGE_MAX_MS).then_some(*port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_evicted_by_age_and_number() {
        let mac = |n: usize| MacAddr::from_u64(0x0200_0000_0000 + n as u64);
        let mut macs = Macs::default();
        macs.learn(mac(0), PortNo(1), Millis(0));
        assert_eq!(macs.port(mac(0), Millis(299_999)), Some(PortNo(1)));
        assert_eq!(macs.port(mac(0), Millis(300_000)), None);
        macs.learn(MacAddr::BROADCAST, PortNo(1), Millis(0));
        assert_eq!(macs.port(MacAddr::BROADCAST, Millis(0)), None);
        for n in 1..=MACS_MAX {
            macs.learn(mac(n), PortNo(2), Millis(n as u64));
        }
        assert_eq!((macs.0.len(), macs.port(mac(0), Millis(1))), (MACS_MAX, None));
        macs.learn(mac(1), PortNo(3), Millis(400_000));
        macs.learn(mac(0), PortNo(3), Millis(400_000));
        assert_eq!(macs.0.len(), 2);
    }
}
