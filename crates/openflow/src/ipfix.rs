//! Statistics of IPFIX exporters (NXST_IPFIX_BRIDGE, NXST_IPFIX_FLOW).

use crate::wire::{Reader, Result, Writer};

/// What an exporter has done. A count that is not known is `u64::MAX`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IpfixStats {
    /// Flows that there were.
    pub flows: u64,
    /// Flows that there are.
    pub current_flows: u64,
    /// Sampled packets.
    pub packets: u64,
    /// Of these IPv4.
    pub ipv4: u64,
    /// Of these IPv6.
    pub ipv6: u64,
    /// Packets that could not be sampled.
    pub errors: u64,
    /// Of these IPv4.
    pub ipv4_errors: u64,
    /// Of these IPv6.
    pub ipv6_errors: u64,
    /// Messages to collectors.
    pub sent: u64,
    /// Messages that could not be sent.
    pub send_errors: u64,
    /// Which set of collectors; 0 for the bridge's.
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
