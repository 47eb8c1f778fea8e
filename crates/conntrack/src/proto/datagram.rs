//! UDP, and all protocols without a state machine: the tracker only knows which directions have sent packets.

use crate::key::Direction;
use crate::proto::Update;
use crate::timeout::Timeout;

/// Which packets of a connection were seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Datagram {
    /// The first one.
    First,
    /// Several of the original direction.
    Single,
    /// Packets of both directions.
    Multiple,
}

impl Datagram {
    /// The state after the first packet.
    pub fn begin() -> Self {
        Self::First
    }

    /// Applies a packet. The connection is new until a packet of the reply direction comes.
    #[inline]
    pub fn update(&mut self, direction: Direction) -> Update {
        if *self == Self::Multiple {
            return Update::Valid;
        }
        match direction {
            Direction::Original => {
                *self = Self::Single;
                Update::StillNew
            }
            Direction::Reply => {
                *self = Self::Multiple;
                Update::Valid
            }
        }
    }

    /// Which timeout applies.
    #[inline]
    pub fn timeout(&self) -> Timeout {
        match self {
            Self::First => Timeout::UdpFirst,
            Self::Single => Timeout::UdpSingle,
            Self::Multiple => Timeout::UdpMultiple,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;

    /// Verdicts and seconds of Open vSwitch 4.0.0 for UDP and GRE. The states are those that the manual describes.
    #[test]
    fn a_connection_is_new_until_its_reply() {
        let mut state = Datagram::begin();
        assert_eq!(state.timeout().default_seconds(), 60);
        let steps = [
            (Direction::Original, Update::StillNew, Timeout::UdpSingle, 60),
            (Direction::Reply, Update::Valid, Timeout::UdpMultiple, 30),
            (Direction::Original, Update::Valid, Timeout::UdpMultiple, 30),
            (Direction::Original, Update::Valid, Timeout::UdpMultiple, 30),
        ];
        for (direction, update, timeout, seconds) in steps {
            assert_eq!(state.update(direction), update);
            assert_eq!(state.timeout(), timeout);
            assert_eq!(timeout.default_seconds(), seconds);
        }
    }

    #[test]
    fn random_packets_agree_with_counters() {
        let mut rng = Rng::seeded(11);
        let steps = 100_000;
        let (mut state, mut sent) = (Datagram::begin(), [1u32, 0]);
        for _ in 0..steps {
            if rng.below(8) == 0 {
                (state, sent) = (Datagram::begin(), [1, 0]);
            }
            let direction = if rng.below(4) == 0 { Direction::Reply } else { Direction::Original };
            sent[direction.index()] += 1;
            let update = if sent[1] == 0 { Update::StillNew } else { Update::Valid };
            let timeout = if sent[1] > 0 { Timeout::UdpMultiple } else { Timeout::UdpSingle };
            assert_eq!(state.update(direction), update);
            assert_eq!(state.timeout(), timeout);
        }
        tally::report!("{steps} packets");
    }
}
