//! The tunnel ports of one datapath, and which of them a received packet belongs to.
//!
//! Interfaces share a port of the datapath if their type and UDP port are equal. Its packets belong to the most specific
//! interface that accepts their outer addresses, key and packet type. Open vSwitch compares, in this order: a fixed key
//! before `in_key=flow`; then a fixed remote address before `remote_ip=flow`; then a fixed local address before none,
//! before `local_ip=flow`; then ports of the packet's type before those that are aware of the packet type.
//!
//! A lookup takes at most two probes of a hash table for each of these twelve classes that has ports, however many ports
//! there are. Invariant: a port of `ports` is in `tables` under its own criteria.

mod show;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use base::DpPort;
use packet::metadata::Tunnel;

pub use show::{Listener, LocalAddress, Row, listeners_text, listeners_verbose_text, rows_text};

use crate::framing::PacketType;
use crate::options::{Config, Endpoint, Key, PacketMode};

/// Number of classes of precedence: two of keys, two of remote and three of local addresses.
const CLASSES: usize = 12;

/// A tunnel port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Port<Id> {
    /// The user's handle, for example a bridge and an OpenFlow port.
    pub id: Id,
    /// The interface's name.
    pub name: Arc<str>,
    /// The port of the datapath behind the interface.
    pub datapath_port: DpPort,
    /// The configuration.
    pub config: Arc<Config>,
}

/// The class of precedence of a port, 0 before all others, and its criteria within the class.
fn criteria(config: &Config) -> (usize, Criteria) {
    let Config { remote, local, in_key, packets, .. } = *config;
    let (key_class, key) = match in_key {
        Key::Absent => (0, 0),
        Key::Fixed(key) => (0, key),
        Key::Flow => (1, 0),
    };
    let (remote_class, remote) = match remote {
        Endpoint::Fixed(address) => (0, Some(address)),
        Endpoint::Any | Endpoint::Flow => (1, None),
    };
    let (local_class, local) = match local {
        Endpoint::Fixed(address) => (0, Some(address)),
        Endpoint::Any => (1, None),
        Endpoint::Flow => (2, None),
    };
    ((key_class * 2 + remote_class) * 3 + local_class, Criteria { packets, key, remote, local })
}

/// What packets of a port have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Criteria {
    packets: PacketMode,
    key: u64,
    remote: Option<IpAddr>,
    local: Option<IpAddr>,
}

/// Fields of a packet's tunnel that a lookup read. Another packet that agrees in them, in the datapath's port and the
/// packet type gets the same answer until the ports change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Consulted {
    /// The key, all of it.
    pub key: bool,
    /// The outer source address.
    pub src: bool,
    /// The outer destination address.
    pub dst: bool,
}

impl Consulted {
    /// The fields of both.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { key: self.key || other.key, src: self.src || other.src, dst: self.dst || other.dst }
    }
}

/// A port has the same criteria as another one. The text is what Open vSwitch logs.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{name}: attempting to add tunnel port with same config as port '{other}' ({criteria})")]
pub struct Conflict {
    /// The refused port.
    pub name: Arc<str>,
    /// The existing port.
    pub other: Arc<str>,
    /// Their common criteria.
    pub criteria: String,
}

/// The ports of one class behind one port of the datapath.
#[derive(Debug)]
struct Class<Id> {
    by_criteria: HashMap<Criteria, Id>,
    /// Number of ports of each mode.
    modes: [usize; 3],
}

impl<Id> Class<Id> {
    fn new() -> Self {
        Self { by_criteria: HashMap::new(), modes: [0; 3] }
    }
}

/// The tunnel ports of one datapath.
#[derive(Debug)]
pub struct Ports<Id> {
    ports: HashMap<Id, Port<Id>>,
    tables: HashMap<DpPort, Box<[Class<Id>; CLASSES]>>,
}

impl<Id> Default for Ports<Id> {
    fn default() -> Self {
        Self { ports: HashMap::new(), tables: HashMap::new() }
    }
}

impl<Id: Copy + Eq + Hash> Ports<Id> {
    /// Adds a port, or replaces the port with the same id.
    ///
    /// # Errors
    ///
    /// [`Conflict`] with another port. Then there is no port with the id any more, as in Open vSwitch: a new port must not
    /// be created, and one with a new configuration receives nothing and may not be sent through ("Tunneling decided
    /// against output") until a later attempt succeeds.
    pub fn set(&mut self, port: Port<Id>) -> Result<(), Conflict> {
        self.remove(port.id);
        self.check(port.datapath_port, &port.name, &port.config)?;
        let (class, criteria) = criteria(&port.config);
        let table =
            self.tables.entry(port.datapath_port).or_insert_with(|| Box::new(std::array::from_fn(|_| Class::new())));
        let Class { by_criteria, modes } = &mut table[class];
        by_criteria.insert(criteria, port.id);
        modes[criteria.packets as usize] += 1;
        self.ports.insert(port.id, port);
        Ok(())
    }

    /// Looks for the port with the criteria of a new one.
    ///
    /// # Errors
    ///
    /// If there is one.
    pub fn check(&self, datapath_port: DpPort, name: &str, config: &Config) -> Result<(), Conflict> {
        let (class, criteria) = criteria(config);
        let Some(table) = self.tables.get(&datapath_port) else { return Ok(()) };
        let Some(other) = table[class].by_criteria.get(&criteria) else { return Ok(()) };
        let other = self.ports.get(other).map_or_else(|| name.into(), |other| other.name.clone());
        Err(Conflict { name: name.into(), other, criteria: config.match_text(datapath_port.0) })
    }

    /// Removes a port.
    pub fn remove(&mut self, id: Id) -> Option<Port<Id>> {
        let port = self.ports.remove(&id)?;
        let (class, criteria) = criteria(&port.config);
        if let Some(table) = self.tables.get_mut(&port.datapath_port) {
            if table[class].by_criteria.remove(&criteria).is_some() {
                table[class].modes[criteria.packets as usize] -= 1;
            }
            if table.iter().all(|class| class.by_criteria.is_empty()) {
                self.tables.remove(&port.datapath_port);
            }
        }
        Some(port)
    }

    /// A port by its id.
    pub fn get(&self, id: Id) -> Option<&Port<Id>> {
        self.ports.get(&id)
    }

    /// The ports, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Port<Id>> {
        self.ports.values()
    }

    /// The number of ports.
    pub fn len(&self) -> usize {
        self.ports.len()
    }

    /// Returns true if there are no ports.
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty()
    }

    /// The port that a packet from a port of the datapath belongs to, and what the answer depends on. Without a port the
    /// packet is dropped. The host's mark does not take part.
    pub fn find(&self, datapath_port: DpPort, tunnel: &Tunnel, packet: PacketType) -> (Option<&Port<Id>>, Consulted) {
        let mut consulted = Consulted::default();
        let Some(table) = self.tables.get(&datapath_port) else { return (None, consulted) };
        let legacy = match packet {
            PacketType::Ethernet => PacketMode::LegacyL2,
            PacketType::Layer3 => PacketMode::LegacyL3,
        };
        for (index, Class { by_criteria, modes }) in table.iter().enumerate() {
            let (has_key, has_remote, has_local) = (index < 6, index % 6 < 3, index % 3 == 0);
            let criteria = Criteria {
                packets: legacy,
                key: if has_key { tunnel.key } else { 0 },
                remote: has_remote.then(|| tunnel.src.to_canonical()),
                local: has_local.then(|| tunnel.dst.to_canonical()),
            };
            for packets in [legacy, PacketMode::PacketTypeAware] {
                if modes[packets as usize] == 0 {
                    continue;
                }
                consulted.key |= has_key;
                consulted.src |= has_remote;
                consulted.dst |= has_local;
                let found = by_criteria.get(&Criteria { packets, ..criteria });
                if let Some(port) = found.and_then(|id| self.ports.get(id)) {
                    return (Some(port), consulted);
                }
            }
        }
        (None, consulted)
    }

    /// The ports in the order of their precedence, and by the datapath's port and their name within a class.
    fn by_precedence(&self) -> Vec<&Port<Id>> {
        let mut ports: Vec<_> = self.ports.values().collect();
        ports.sort_by(|a, b| {
            let rank = |port: &Port<Id>| (criteria(&port.config).0, port.datapath_port);
            rank(a).cmp(&rank(b)).then_with(|| a.name.cmp(&b.name))
        });
        ports
    }
}
