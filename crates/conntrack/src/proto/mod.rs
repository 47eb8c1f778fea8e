//! States of protocols: which packets belong to a connection, and how long it lives.

pub mod datagram;
pub mod icmp;
pub mod sctp;
pub mod tcp;

use crate::key::{Direction, ipproto};
use crate::timeout::Timeout;

/// The verdict about a packet of a known connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Update {
    /// The packet belongs to the connection, which is established.
    Valid,
    /// The packet belongs to the connection, which is still new.
    StillNew,
    /// The packet does not fit.
    Invalid,
    /// The packet begins another connection with the same tuple: this one has ended.
    Restart,
    /// The packet belongs to the connection, which is established, but renews no timeout: it is only near what its sender
    /// may send.
    Lax,
}

/// The state of a connection's protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// TCP.
    Tcp(tcp::Tcp),
    /// SCTP.
    Sctp(sctp::Sctp),
    /// UDP, and all protocols without a state machine.
    Datagram(datagram::Datagram),
    /// ICMP and ICMPv6.
    Icmp(icmp::Icmp),
}

impl Protocol {
    /// The state after the first packet of a connection, whose transport header and payload are `l4`, or `None` if such a
    /// packet begins no connection.
    pub fn begin(proto: u8, is_icmp: bool, l4: &[u8]) -> Option<Self> {
        Some(match proto {
            _ if is_icmp => Self::Icmp(icmp::Icmp::begin(proto, l4)?),
            ipproto::TCP => Self::Tcp(tcp::Tcp::begin(&tcp::Segment::read(l4)?)?),
            ipproto::SCTP => Self::Sctp(sctp::Sctp::begin(l4)?),
            _ => Self::Datagram(datagram::Datagram::begin()),
        })
    }

    /// Applies a packet of a direction. With `checks_sequence`, TCP sequence numbers outside of the window are invalid.
    #[inline]
    pub fn update(&mut self, direction: Direction, l4: &[u8], checks_sequence: bool) -> Update {
        match self {
            Self::Tcp(tcp) => match tcp::Segment::read(l4) {
                Some(segment) => tcp.update(direction, &segment, checks_sequence),
                None => Update::Invalid,
            },
            Self::Sctp(sctp) => sctp.update(direction, l4),
            Self::Datagram(datagram) => datagram.update(direction),
            Self::Icmp(icmp) => icmp.update(direction),
        }
    }

    /// Applies a packet of TCP or UDP if that needs few rules: a segment in the window of an established connection, or a
    /// datagram. Returns [`Update::Valid`] or [`Update::StillNew`], and the timeout; `None`, without a change, for all
    /// other packets. `segment` has no meaning for UDP.
    #[inline(always)]
    pub fn advance(&mut self, direction: Direction, segment: &tcp::Segment) -> Option<(Update, Timeout)> {
        match self {
            Self::Tcp(tcp) => tcp.advance(direction, segment).then_some((Update::Valid, Timeout::TcpEstablished)),
            Self::Datagram(datagram) => Some((datagram.update(direction), datagram.timeout())),
            Self::Sctp(_) | Self::Icmp(_) => None,
        }
    }

    /// Whether a valid packet of an established connection assures it, so that it does not give way to others. A reply may
    /// come from an address that the sender only pretends to have, and so TCP waits for the end of the handshake.
    #[inline]
    pub fn is_assured(&self) -> bool {
        match self {
            Self::Tcp(tcp) => tcp.is_acknowledged(),
            Self::Sctp(_) | Self::Datagram(_) | Self::Icmp(_) => true,
        }
    }

    /// Which timeout applies.
    #[inline]
    pub fn timeout(&self) -> Timeout {
        match self {
            Self::Tcp(tcp) => tcp.timeout(),
            Self::Sctp(sctp) => sctp.timeout(),
            Self::Datagram(datagram) => datagram.timeout(),
            Self::Icmp(icmp) => icmp.timeout(),
        }
    }
}
