//! Link state, the port features of OpenFlow, and counters.

use std::collections::BTreeMap;

/// The duplex mode of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Duplex {
    /// One end sends at a time.
    Half,
    /// Both ends send at the same time.
    Full,
}

impl Duplex {
    /// The text of the Interface row's `duplex` column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Half => "half",
            Self::Full => "full",
        }
    }
}

/// A set of port features, in the bits of `OFPPF_*` of OpenFlow 1.1 and later (1.3, section 7.2.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Features(pub u32);

impl Features {
    /// 10 Mb/s, half duplex.
    pub const MB10_HD: Self = Self(1 << 0);
    /// 10 Mb/s, full duplex.
    pub const MB10_FD: Self = Self(1 << 1);
    /// 100 Mb/s, half duplex.
    pub const MB100_HD: Self = Self(1 << 2);
    /// 100 Mb/s, full duplex.
    pub const MB100_FD: Self = Self(1 << 3);
    /// 1 Gb/s, half duplex.
    pub const GB1_HD: Self = Self(1 << 4);
    /// 1 Gb/s, full duplex.
    pub const GB1_FD: Self = Self(1 << 5);
    /// 10 Gb/s, full duplex.
    pub const GB10_FD: Self = Self(1 << 6);
    /// 40 Gb/s, full duplex.
    pub const GB40_FD: Self = Self(1 << 7);
    /// 100 Gb/s, full duplex.
    pub const GB100_FD: Self = Self(1 << 8);
    /// 1 Tb/s, full duplex.
    pub const TB1_FD: Self = Self(1 << 9);
    /// A rate without a bit of its own.
    pub const OTHER: Self = Self(1 << 10);
    /// Copper medium.
    pub const COPPER: Self = Self(1 << 11);
    /// Fibre medium.
    pub const FIBER: Self = Self(1 << 12);
    /// Auto-negotiation.
    pub const AUTONEG: Self = Self(1 << 13);
    /// Pause frames.
    pub const PAUSE: Self = Self(1 << 14);
    /// Asymmetric pause.
    pub const PAUSE_ASYM: Self = Self(1 << 15);

    /// Whether all features of `other` are in this set.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets together.
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The feature of a rate in bits per second; [`Features::OTHER`] if no bit fits.
    pub fn of_speed(bits_per_second: u64, duplex: Duplex) -> Self {
        match (bits_per_second / 1_000_000, duplex) {
            (10, Duplex::Half) => Self::MB10_HD,
            (10, Duplex::Full) => Self::MB10_FD,
            (100, Duplex::Half) => Self::MB100_HD,
            (100, Duplex::Full) => Self::MB100_FD,
            (1_000, Duplex::Half) => Self::GB1_HD,
            (1_000, Duplex::Full) => Self::GB1_FD,
            (10_000, Duplex::Full) => Self::GB10_FD,
            (40_000, Duplex::Full) => Self::GB40_FD,
            (100_000, Duplex::Full) => Self::GB100_FD,
            (1_000_000, Duplex::Full) => Self::TB1_FD,
            _ => Self::OTHER,
        }
    }

    /// The highest rate in the set in bits per second; `None` if the set has none.
    pub fn max_speed(self) -> Option<u64> {
        const RATES: [(u32, u64); 10] = [
            (1 << 9, 1_000_000),
            (1 << 8, 100_000),
            (1 << 7, 40_000),
            (1 << 6, 10_000),
            (1 << 5, 1_000),
            (1 << 4, 1_000),
            (1 << 3, 100),
            (1 << 2, 100),
            (1 << 1, 10),
            (1 << 0, 10),
        ];
        RATES.iter().find(|(bit, _)| self.0 & bit != 0).map(|(_, mbps)| mbps * 1_000_000)
    }
}

/// The four feature sets of an OpenFlow port description.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PortFeatures {
    /// In use now.
    pub current: Features,
    /// Advertised to the peer.
    pub advertised: Features,
    /// Supported by the device.
    pub supported: Features,
    /// Advertised by the peer.
    pub peer: Features,
}

/// The state of a device's link.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkStatus {
    /// Enabled by the administrator.
    pub admin_up: bool,
    /// Whether the link has a carrier. (False while the device is disabled.)
    pub carrier: bool,
    /// Number of observed carrier changes.
    pub link_resets: u64,
    /// Current rate in bits per second.
    pub speed: Option<u64>,
    /// Duplex now.
    pub duplex: Option<Duplex>,
    /// The kernel's interface index; `Some(0)` for devices that only simulate one.
    pub ifindex: Option<u32>,
    /// The rates as OpenFlow features.
    pub features: PortFeatures,
    /// The Interface row's `status` column: `driver_name`, `driver_version`, `firmware_version`, ...
    pub details: BTreeMap<String, String>,
}

/// Work on frames that a device may take over, by its keys in the Interface row's `status` column.
const OFFLOADS: [&str; 10] = [
    "tx_geneve_tso_offload",
    "tx_gre_tso_offload",
    "tx_ip_csum_offload",
    "tx_out_ip_csum_offload",
    "tx_out_udp_csum_offload",
    "tx_sctp_csum_offload",
    "tx_tcp_csum_offload",
    "tx_tcp_seg_offload",
    "tx_udp_csum_offload",
    "tx_vxlan_tso_offload",
];

/// The entries of the Interface row's `status` column for a device to which the switch leaves the work `taken`.
pub fn offloads(taken: &[&str]) -> impl Iterator<Item = (String, String)> {
    OFFLOADS.iter().map(|offload| ((*offload).to_owned(), taken.contains(offload).to_string()))
}

macro_rules! counters {
    ($($(#[$doc:meta])* $field:ident = $column:literal,)+) => {
        /// A device's counters. `None` is an unknown counter, which OpenFlow shows as all ones.
        #[derive(Clone, PartialEq, Eq, Debug, Default)]
        pub struct NetdevStats {
            $($(#[$doc])* pub $field: Option<u64>,)+
            /// Counters specific to this type of device, by name.
            pub custom: Vec<(String, u64)>,
        }

        impl NetdevStats {
            /// The known counters, by their key in the Interface row's `statistics` column; custom counters come last.
            pub fn columns(&self) -> Vec<(&str, u64)> {
                let known = [$(($column, self.$field),)+];
                let known = known.into_iter().filter_map(|(name, n)| n.map(|n| (name, n)));
                known.chain(self.custom.iter().map(|(name, n)| (name.as_str(), *n))).collect()
            }
        }
    };
}

counters! {
    /// Frames received.
    rx_packets = "rx_packets",
    /// Frames sent.
    tx_packets = "tx_packets",
    /// Bytes in frames received.
    rx_bytes = "rx_bytes",
    /// Bytes in frames sent.
    tx_bytes = "tx_bytes",
    /// Frames received and dropped for lack of space.
    rx_dropped = "rx_dropped",
    /// Frames not sent for lack of space.
    tx_dropped = "tx_dropped",
    /// Received frames with errors of any kind.
    rx_errors = "rx_errors",
    /// Frames not sent because of an error.
    tx_errors = "tx_errors",
    /// Received with an alignment error.
    rx_frame_errors = "rx_frame_err",
    /// Receiver ring overruns.
    rx_over_errors = "rx_over_err",
    /// Received with a CRC error.
    rx_crc_errors = "rx_crc_err",
    /// Missed by the receiver.
    rx_missed_errors = "rx_missed_errors",
    /// Collisions while sending.
    collisions = "collisions",
    /// Multicast frames received.
    multicast = "rx_multicast_packets",
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_contain_the_known_counters() {
        let stats = NetdevStats {
            rx_packets: Some(1),
            collisions: Some(0),
            custom: vec![("rx_q0_packets".to_owned(), 1)],
            ..NetdevStats::default()
        };
        assert_eq!(stats.columns(), [("rx_packets", 1), ("collisions", 0), ("rx_q0_packets", 1)]);
    }

    #[test]
    fn speeds_and_features() {
        let f = Features::of_speed(10_000_000_000, Duplex::Full);
        assert_eq!((f, f.max_speed()), (Features::GB10_FD, Some(10_000_000_000)));
        assert_eq!(Features::of_speed(2_500_000_000, Duplex::Full), Features::OTHER);
        assert_eq!(Features::COPPER.max_speed(), None);
    }
}
