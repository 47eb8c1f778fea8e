//! Statistics of IPFIX exporters (NXST_IPFIX_BRIDGE, NXST_IPFIX_FLOW).

use crate::wire::{Reader, Result, Writer};

/// The counters of an exporter. An unknown count is `u64::MAX`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IpfixStats {
    /// Flows seen so far.
    pub flows: u64,
    /// Flows in the cache.
    pub current_flows: u64,
    /// Sampled packets.
    pub packets: u64,
    /// IPv4 packets among them.
    pub ipv4: u64,
    /// IPv6 packets among them.
    pub ipv6: u64,
    /// Packets whose sampling failed.
    pub errors: u64,
    /// IPv4 packets among these.
    pub ipv4_errors: u64,
    /// IPv6 packets among these.
    pub ipv6_errors: u64,
    /// Messages sent to collectors.
    pub sent: u64,
    /// Messages whose sending failed.
    pub send_errors: u64,
    /// The collector set; 0 for the bridge's.
    pub collector_set_id: u32,
}

impl IpfixStats {
    fn counts(&mut self) -> [&mut u64; 10] {
        [
            &mut self.flows,
            &mut self.current_flows,
            &mut self.packets,
            &mut self.ipv4,
            &mut self.ipv6,
            &mut self.errors,
            &mut self.ipv4_errors,
            &mut self.ipv6_errors,
            &mut self.sent,
            &mut self.send_errors,
        ]
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let mut stats = Self::default();
        for n in stats.counts() {
            *n = r.u64()?;
        }
        stats.collector_set_id = r.u32()?;
        r.skip(4)?;
        Ok(stats)
    }

    pub(crate) fn encode(mut self, out: &mut Writer) {
        self.counts().into_iter().for_each(|n| out.put_u64(*n));
        out.put_u32(self.collector_set_id);
        out.zeros(4);
    }
}
