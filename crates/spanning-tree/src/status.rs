//! The state of bridges and ports, and the keys and values by which the columns of the database show it, as
//! ovs-vswitchd.conf.db(5) documents and Open vSwitch 4.0.0 writes them.

use crate::id::{BridgeId, PortId, Times};
use base::{Millis, PortNo};

/// The role of a port (IEEE 802.1D-2004 17.7).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Role {
    /// The port does not take part.
    #[default]
    Disabled,
    /// It leads to the root.
    Root,
    /// It connects its LAN to the root.
    Designated,
    /// It has another path to the root.
    Alternate,
    /// Another port of the bridge connects its LAN to the root.
    Backup,
}

impl Role {
    /// As STP shows it, which knows no backup ports, and where a disabled port has the role of a designated one.
    pub fn stp_name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Disabled | Self::Designated => "designated",
            Self::Alternate | Self::Backup => "alternate",
        }
    }

    /// As RSTP shows it.
    pub fn rstp_name(self) -> &'static str {
        match self {
            Self::Disabled => "Disabled",
            Self::Root => "Root",
            Self::Designated => "Designated",
            Self::Alternate => "Alternate",
            Self::Backup => "Backup",
        }
    }
}

/// The state of a port: `Discarding` with RSTP, `Blocking` and `Listening` with STP.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum State {
    /// The port is down.
    #[default]
    Disabled,
    /// It neither learns nor forwards, as another port is to be used.
    Blocking,
    /// It neither learns nor forwards yet.
    Listening,
    /// It neither learns nor forwards.
    Discarding,
    /// It learns addresses.
    Learning,
    /// It learns and forwards.
    Forwarding,
}

impl State {
    /// Returns true if source addresses of received frames are learned.
    pub fn learns(self) -> bool {
        matches!(self, Self::Learning | Self::Forwarding)
    }

    /// Returns true if frames other than BPDUs are received and sent.
    pub fn forwards(self) -> bool {
        self == Self::Forwarding
    }

    /// As STP shows it.
    pub fn stp_name(self) -> &'static str {
        match self {
            Self::Disabled => "disabled",
            Self::Blocking | Self::Discarding => "blocking",
            Self::Listening => "listening",
            Self::Learning => "learning",
            Self::Forwarding => "forwarding",
        }
    }

    /// As RSTP shows it.
    pub fn rstp_name(self) -> &'static str {
        match self {
            Self::Disabled => "Disabled",
            Self::Blocking | Self::Listening | Self::Discarding => "Discarding",
            Self::Learning => "Learning",
            Self::Forwarding => "Forwarding",
        }
    }
}

/// Counters of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// BPDUs sent.
    pub tx: u64,
    /// Valid BPDUs received.
    pub rx: u64,
    /// Invalid BPDUs received.
    pub error: u64,
}

/// The protocol of a bridge.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// STP.
    Stp,
    /// RSTP.
    Rstp,
}

/// The state of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortStatus {
    /// Its OpenFlow number.
    pub port: PortNo,
    /// Its name.
    pub name: String,
    /// Its port identifier.
    pub id: PortId,
    /// Its role.
    pub role: Role,
    /// Its state.
    pub state: State,
    /// The time since when it has been in that state.
    pub state_since: Millis,
    /// The time since when the protocol has been running on it.
    pub since: Millis,
    /// Its path cost.
    pub path_cost: u32,
    /// The designated bridge of its LAN.
    pub designated_bridge: BridgeId,
    /// The designated port of its LAN.
    pub designated_port: PortId,
    /// The path cost of the designated bridge.
    pub designated_cost: u32,
    /// Counters.
    pub statistics: Statistics,
}

/// The state of a bridge.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BridgeStatus {
    /// Its number.
    pub bridge: u32,
    /// Its name.
    pub name: String,
    /// Its protocol.
    pub protocol: Protocol,
    /// Its bridge identifier.
    pub id: BridgeId,
    /// The timer values that it uses when it is the root.
    pub own_times: Times,
    /// The root bridge.
    pub root: BridgeId,
    /// The timer values of the root.
    pub root_times: Times,
    /// The cost of the path to the root.
    pub root_path_cost: u32,
    /// The port that leads to the root; none on the root.
    pub root_port: Option<PortNo>,
    /// Its ports, by port identifier number.
    pub ports: Vec<PortStatus>,
}

/// Keys and values of a column.
pub type Column = Vec<(&'static str, String)>;
/// Keys and counters of a column.
pub type Counters = Vec<(&'static str, u64)>;

fn hex(id: PortId) -> String {
    format!("{:04x}", id.0)
}

fn seconds(since: Millis, now: Millis) -> u64 {
    now.since(since) / 1000
}

impl BridgeStatus {
    /// The status of the root port, unless the bridge is the root.
    pub fn root_port(&self) -> Option<&PortStatus> {
        self.ports.iter().find(|port| Some(port.port) == self.root_port)
    }

    /// The keys of STP in the column `status` of table Bridge.
    pub fn stp_column(&self) -> Column {
        vec![
            ("stp_bridge_id", self.id.to_string()),
            ("stp_designated_root", self.root.to_string()),
            ("stp_root_path_cost", self.root_path_cost.to_string()),
        ]
    }

    /// The column `rstp_status` of table Bridge. The designated bridge and port are those of the root port.
    pub fn rstp_column(&self) -> Column {
        let root_port = self.root_port();
        let (designated, designated_port, own_port) = match root_port {
            Some(port) => (port.designated_bridge, port.designated_port, port.id),
            None => (self.id, PortId(0), PortId(0)),
        };
        vec![
            ("rstp_bridge_id", self.id.rstp_text()),
            ("rstp_bridge_port_id", hex(own_port)),
            ("rstp_designated_id", designated.rstp_text()),
            ("rstp_designated_port_id", hex(designated_port)),
            ("rstp_root_id", self.root.rstp_text()),
            ("rstp_root_path_cost", self.root_path_cost.to_string()),
        ]
    }
}

impl PortStatus {
    /// The keys of STP in the column `status` of table Port. The port identifier is decimal, as Open vSwitch writes it.
    pub fn stp_column(&self, now: Millis) -> Column {
        vec![
            ("stp_port_id", self.id.0.to_string()),
            ("stp_role", self.role.stp_name().to_owned()),
            ("stp_sec_in_state", seconds(self.state_since, now).to_string()),
            ("stp_state", self.state.stp_name().to_owned()),
        ]
    }

    /// The keys of STP in the column `statistics` of table Port.
    pub fn stp_counters(&self) -> Counters {
        let Statistics { tx, rx, error } = self.statistics;
        vec![("stp_error_count", error), ("stp_rx_count", rx), ("stp_tx_count", tx)]
    }

    /// The column `rstp_status` of table Port.
    pub fn rstp_column(&self) -> Column {
        vec![
            ("rstp_designated_bridge_id", self.designated_bridge.rstp_text()),
            ("rstp_designated_path_cost", self.designated_cost.to_string()),
            ("rstp_designated_port_id", hex(self.designated_port)),
            ("rstp_port_id", hex(self.id)),
            ("rstp_port_role", self.role.rstp_name().to_owned()),
            ("rstp_port_state", self.state.rstp_name().to_owned()),
        ]
    }

    /// The column `rstp_statistics` of table Port.
    pub fn rstp_counters(&self, now: Millis) -> Counters {
        let Statistics { tx, rx, error } = self.statistics;
        let uptime = seconds(self.since, now);
        vec![("rstp_error_count", error), ("rstp_rx_count", rx), ("rstp_tx_count", tx), ("rstp_uptime", uptime)]
    }
}
