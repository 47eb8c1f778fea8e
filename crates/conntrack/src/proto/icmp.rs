//! ICMP and ICMPv6 queries (RFC 792, RFC 950, RFC 4443): a query begins a connection, an answer establishes it.

use crate::key::{Direction, ipproto};
use crate::proto::Update;
use crate::timeout::Timeout;

/// Types of ICMP messages that begin a connection: echo, timestamp, information (RFC 792).
const QUERIES_V4: [u8; 3] = [8, 13, 15];

/// The ICMPv6 echo request (RFC 4443, section 4.1).
const ECHO_V6: u8 = 128;

/// Which packets of a connection were seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Icmp {
    /// Only queries.
    First,
    /// Also answers.
    Reply,
}

impl Icmp {
    /// The state after the first message, or `None` unless this is a query. `proto` is that of ICMP or of ICMPv6.
    pub fn begin(proto: u8, l4: &[u8]) -> Option<Self> {
        let kind = *l4.first()?;
        let is_query = if proto == ipproto::ICMPV6 { kind == ECHO_V6 } else { QUERIES_V4.contains(&kind) };
        is_query.then_some(Self::First)
    }

    /// Applies a message. The connection is new until an answer comes.
    #[inline]
    pub fn update(&mut self, direction: Direction) -> Update {
        if direction == Direction::Reply {
            *self = Self::Reply;
        }
        match self {
            Self::First => Update::StillNew,
            Self::Reply => Update::Valid,
        }
    }

    /// Which timeout applies.
    #[inline]
    pub fn timeout(&self) -> Timeout {
        match self {
            Self::First => Timeout::IcmpFirst,
            Self::Reply => Timeout::IcmpReply,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;

    /// Open vSwitch 4.0.0 judges the types 0 to 44 of ICMP, and 0 to 5 and 127 to 159 of ICMPv6, in this way. The others are
    /// no queries either.
    #[test]
    fn only_queries_begin_a_connection() {
        for kind in 0..=255 {
            let l4 = [kind, 0, 0, 0, 0, 1, 0, 1];
            assert_eq!(Icmp::begin(ipproto::ICMP, &l4).is_some(), matches!(kind, 8 | 13 | 15), "{kind}");
            assert_eq!(Icmp::begin(ipproto::ICMPV6, &l4).is_some(), kind == 128, "{kind}");
        }
        assert_eq!(Icmp::begin(ipproto::ICMP, &[]), None);
    }

    /// Verdicts and seconds of Open vSwitch 4.0.0.
    #[test]
    fn a_connection_is_new_until_its_answer() {
        let mut state = Icmp::begin(ipproto::ICMP, &[8]).unwrap();
        assert_eq!(state.timeout().default_seconds(), 60);
        let steps = [
            (Direction::Original, Update::StillNew, 60),
            (Direction::Reply, Update::Valid, 30),
            (Direction::Original, Update::Valid, 30),
            (Direction::Reply, Update::Valid, 30),
        ];
        for (direction, update, seconds) in steps {
            assert_eq!(state.update(direction), update);
            assert_eq!(state.timeout().default_seconds(), seconds);
        }
    }

    #[test]
    fn random_messages_agree_with_a_flag() {
        let mut rng = Rng::seeded(12);
        let steps = 100_000;
        let (mut state, mut answered) = (Icmp::First, false);
        for _ in 0..steps {
            if rng.below(8) == 0 {
                (state, answered) = (Icmp::First, false);
            }
            let direction = if rng.below(4) == 0 { Direction::Reply } else { Direction::Original };
            answered |= direction == Direction::Reply;
            assert_eq!(state.update(direction), if answered { Update::Valid } else { Update::StillNew });
            assert_eq!(state.timeout(), if answered { Timeout::IcmpReply } else { Timeout::IcmpFirst });
        }
        tally::report!("{steps} messages");
    }
}
