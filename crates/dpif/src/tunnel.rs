//! Tunnels in the datapath: the headers that it pushes, and fragments of received packets.

use base::DpPort;
use std::hash::{Hash, Hasher};
use tunnel::header::Template;

/// Outer headers to be pushed.
#[derive(Clone, Debug)]
pub struct TunnelPush {
    /// The datapath's port of the tunnel.
    pub port: DpPort,
    /// The ingress port of the packets with the outer headers: that of the bridge which sends them.
    pub out_port: DpPort,
    /// The headers.
    pub template: Template,
    /// The key of packets in the other direction, if it is another one.
    pub in_key: Option<u64>,
}

/// The tunnel that a received packet belongs to, apart from its key and addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TunnelPop {
    /// The datapath's port of the tunnel.
    pub port: DpPort,
    /// That of the tunnel for packets of GRE that are ERSPAN, if there is one besides.
    pub erspan: Option<DpPort>,
}

impl TunnelPop {
    /// Packets of one port only.
    pub fn of(port: DpPort) -> Self {
        Self { port, erspan: None }
    }
}

/// The tunnels that a fragment of an outer packet may belong to. Only the whole datagram shows which.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Defragment {
    /// The tunnels by UDP destination port; `None` for protocols without ports.
    pub tunnels: Vec<(Option<u16>, TunnelPop)>,
    /// The port that gets fragments of other datagrams, and those that are not reassembled.
    pub otherwise: DpPort,
}

impl PartialEq for TunnelPush {
    fn eq(&self, other: &Self) -> bool {
        let Self { port, out_port, template, in_key } = self;
        (*port, *out_port, *in_key) == (other.port, other.out_port, other.in_key)
            && template.headers() == other.template.headers()
    }
}

impl Eq for TunnelPush {}

impl Hash for TunnelPush {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.port, self.out_port, self.in_key, self.template.headers()).hash(state);
    }
}
