//! Why a packet was dropped. Every drop has a reason and a counter that a user can read.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! drop_reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal,)+) => {
        /// Why a packet was not forwarded.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum DropReason { $($(#[$doc])* $variant,)+ }

        impl DropReason {
            /// All reasons, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name that users see, as `output-queue-full`.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }
        }
    };
}

drop_reasons! {
    /// The flow's actions are empty: the tables drop the packet.
    Action = "action",
    /// The frame is too short to have an Ethernet header, or longer than its buffer.
    Malformed = "malformed",
    /// A header that an action needs is cut off.
    Truncated = "truncated",
    /// The frame is larger than the way out allows, and may not be split.
    TooBig = "too-big",
    /// The output port does not exist.
    NoPort = "no-port",
    /// The port is down or has its receive side switched off.
    PortDown = "port-down",
    /// The port's transmit queue is full.
    OutputQueueFull = "output-queue-full",
    /// The device refused the frame.
    OutputError = "output-error",
    /// The queue to the slow path is full.
    UpcallQueueFull = "upcall-queue-full",
    /// The slow path failed on this packet, for a reason that none of the following names.
    TranslationError = "translation-error",
    /// Tables, groups or patch ports lead to each other without end.
    RecursionTooDeep = "recursion-too-deep",
    /// The tables need more look-ups than a packet is allowed.
    TooManyResubmits = "too-many-resubmits",
    /// The tables push more values than the stack's limit.
    StackTooDeep = "stack-too-deep",
    /// The tables produce more actions than a datapath accepts.
    TooManyActions = "too-many-actions",
    /// The group does not exist, or none of its buckets is live.
    NoGroup = "no-group",
    /// The port does not carry the frame's VLAN.
    VlanMismatch = "vlan-mismatch",
    /// Sent to a reserved address that a bridge does not forward.
    ReservedAddress = "reserved-address",
    /// The output port is the ingress port.
    SamePort = "same-port",
    /// TTL or hop limit ran out.
    TtlExpired = "ttl-expired",
    /// Recirculation exceeds a limit, or its state no longer exists.
    Recirculation = "recirculation",
    /// A meter's rate was exceeded.
    Meter = "meter",
    /// The frame is a fragment, and fragments are dropped by configuration.
    Fragment = "fragment",
    /// The packet has no Ethernet header, and only frames leave there.
    NoEthernet = "no-ethernet",
    /// An action needs another type of packet, with or without Ethernet header.
    PacketType = "packet-type",
    /// The packet has, or would get, more MPLS labels than a flow key holds.
    TooManyLabels = "too-many-mpls-labels",
    /// Both the ingress port and the output port are protected (Port:protected).
    ProtectedPort = "protected-port",
    /// The ingress or output port is reserved for the copies of a mirror (Mirror:output_port).
    MirrorPort = "mirror-port",
    /// Headers could not be pushed: no headroom, or nested too deep.
    NoHeadroom = "no-headroom",
    /// The inbox of the protocol that the packet is for is full.
    ProtocolQueueFull = "protocol-queue-full",
    /// The protocol that the packet is for does not run.
    NoProtocol = "no-protocol",
    /// A protocol keeps the port from forwarding.
    PortBlocked = "port-blocked",
    /// The outer headers of a tunnel are malformed.
    TunnelHeader = "tunnel-header",
    /// An outer checksum of a tunnel is wrong.
    TunnelChecksum = "tunnel-checksum",
    /// No tunnel has the packet's outer addresses and key.
    NoTunnel = "no-tunnel",
    /// There is no route to the other end of a tunnel, or no address to send from.
    NoRoute = "no-route",
    /// The Ethernet address of the next hop to the other end of a tunnel is not known yet.
    NoNeighbour = "no-neighbour",
    /// The outer header marks congestion, and the inner packet does not support such marks (RFC 6040).
    Congestion = "congestion",
    /// A tunnel's packet has a critical option that the bridge does not map (RFC 8926).
    TunnelOption = "tunnel-option",
    /// The outer headers of a tunnel could not be built.
    TunnelBuild = "tunnel-build",
    /// The packet exceeds the ingress policing of the port where it came in.
    IngressPolicing = "ingress-policing",
    /// The packet exceeds the policer of the port where it was to leave.
    EgressPolicing = "egress-policing",
    /// The shaper's queue of the port is full.
    ShaperQueueFull = "shaper-queue-full",
    /// Other fragments of its datagram did not come in time.
    IncompleteDatagram = "incomplete-datagram",
    /// The datapath does not know the bond, or the bond has no member for the packet's bucket.
    NoBond = "no-bond",
    /// The switch waits for its flows to be restored (Open_vSwitch:other_config:flow-restore-wait).
    FlowRestore = "flow-restore",
}

/// One counter a [`DropReason`].
#[derive(Debug)]
pub struct DropCounters([AtomicU64; DropReason::ALL.len()]);

impl Default for DropCounters {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl DropCounters {
    /// Counts `n` packets dropped for `reason`.
    pub fn add(&self, reason: DropReason, n: u64) {
        self.0[reason as usize].fetch_add(n, Ordering::Relaxed);
    }

    /// As `add`, without an atomic read-modify-write: for counters that only one thread writes.
    pub fn add_own(&self, reason: DropReason, n: u64) {
        let counter = &self.0[reason as usize];
        counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Adds another set of counts.
    pub fn add_all(&self, others: &Self) {
        others.nonzero().for_each(|(reason, n)| self.add(reason, n));
    }

    /// Packets dropped for `reason` so far.
    pub fn count(&self, reason: DropReason) -> u64 {
        self.0[reason as usize].load(Ordering::Relaxed)
    }

    /// All reasons that dropped something, with their counts.
    pub fn nonzero(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.iter().map(|r| (*r, self.count(*r))).filter(|(_, n)| *n > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_by_reason() {
        let c = DropCounters::default();
        c.add(DropReason::TooBig, 2);
        c.add(DropReason::TooBig, 1);
        assert_eq!(c.nonzero().collect::<Vec<_>>(), [(DropReason::TooBig, 3)]);
        assert_eq!(DropReason::TooBig.name(), "too-big");
        let sum = DropCounters::default();
        sum.add_own(DropReason::TooBig, 4);
        sum.add_own(DropReason::Meter, 1);
        sum.add_all(&c);
        assert_eq!(sum.nonzero().collect::<Vec<_>>(), [(DropReason::TooBig, 7), (DropReason::Meter, 1)]);
    }
}
