//! The bits of `ipv6_exthdr` (OpenFlow 1.3 section 7.2.3.8): the extension headers of an IPv6 packet, and whether they
//! are repeated or out of the order that RFC 8200 section 4.1 recommends.

use crate::extract::ipproto;
use std::collections::{HashSet, VecDeque};

/// No next header.
pub const NO_NEXT: u16 = 1 << 0;
/// Encapsulating security payload; the headers that follow are encrypted.
pub const ESP: u16 = 1 << 1;
/// Authentication.
pub const AUTH: u16 = 1 << 2;
/// Destination options, one or two headers.
pub const DEST: u16 = 1 << 3;
/// Fragment.
pub const FRAG: u16 = 1 << 4;
/// Routing.
pub const ROUTER: u16 = 1 << 5;
/// Hop-by-hop options.
pub const HOP: u16 = 1 << 6;
/// A header is repeated more often than recommended.
pub const REPEATED: u16 = 1 << 7;
/// The headers are not in the recommended order.
pub const UNORDERED: u16 = 1 << 8;

/// Rank of destination options in front of a routing header.
const RANK_DEST: u8 = 1;
/// Rank of destination options for the final destination.
const RANK_LAST: u8 = 6;

/// Collects the extension headers of a packet in their order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Seen {
    bits: u16,
    rank: u8,
    options: u8,
}

impl Seen {
    /// Adds the next header. Protocols other than extension headers are ignored.
    pub(crate) fn add(&mut self, proto: u8) {
        let (bit, rank) = match proto {
            ipproto::HOPOPTS => (HOP, 0),
            ipproto::DSTOPTS => (DEST, if self.rank < RANK_DEST { RANK_DEST } else { RANK_LAST }),
            ipproto::ROUTING => (ROUTER, 2),
            ipproto::FRAGMENT => (FRAG, 3),
            ipproto::AH => (AUTH, 4),
            ipproto::ESP => (ESP, 5),
            ipproto::NO_NEXT => (NO_NEXT, RANK_LAST + 1),
            _ => return,
        };
        let repeated = if bit == DEST {
            self.options = self.options.saturating_add(1);
            self.options > 2
        } else {
            self.bits & bit != 0
        };
        self.bits |= bit;
        if repeated {
            self.bits |= REPEATED;
        }
        if rank < self.rank {
            self.bits |= UNORDERED;
        }
        self.rank = self.rank.max(rank);
    }

    /// The value of `ipv6_exthdr`.
    pub(crate) fn bits(self) -> u16 {
        self.bits
    }
}

/// The shortest list of extension headers in front of `proto` that gives the `ipv6_exthdr` value `bits`, as far as one
/// exists. `fragment` asks for a fragment header, and `later` for that header to be the last.
pub(crate) fn chain(bits: u16, proto: u8, fragment: bool, later: bool) -> Vec<u8> {
    const BEFORE: [(u16, u8); 5] = [
        (HOP, ipproto::HOPOPTS),
        (DEST, ipproto::DSTOPTS),
        (ROUTER, ipproto::ROUTING),
        (FRAG, ipproto::FRAGMENT),
        (AUTH, ipproto::AH),
    ];
    let mut wanted = bits & !(ESP | NO_NEXT) | if fragment { FRAG } else { 0 };
    wanted |= match proto {
        ipproto::ESP if !later => ESP,
        ipproto::NO_NEXT if !later => NO_NEXT,
        _ => 0,
    };
    let with_last = |list: &[u8], mut seen: Seen| {
        if !later {
            seen.add(proto);
        }
        seen.bits == wanted && (!later || list.last() == Some(&ipproto::FRAGMENT))
    };
    let mut lists = VecDeque::from([(Vec::new(), Seen::default())]);
    let mut known = HashSet::new();
    while let Some((list, seen)) = lists.pop_front() {
        if with_last(&list, seen) {
            return list;
        }
        for (_, proto) in BEFORE.iter().filter(|(bit, _)| wanted & bit != 0) {
            let mut more = seen;
            more.add(*proto);
            more.options = more.options.min(2);
            if more.bits & !wanted == 0 && known.insert((more, *proto)) {
                lists.push_back(([&list[..], &[*proto]].concat(), more));
            }
        }
    }
    let there = BEFORE.iter().filter(|(bit, _)| wanted & bit != 0);
    let (last, mut list): (Vec<u8>, Vec<u8>) = there.map(|(_, p)| *p).partition(|p| later && *p == ipproto::FRAGMENT);
    list.extend(last);
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipproto::{AH, DSTOPTS, FRAGMENT, HOPOPTS, NO_NEXT as END, ROUTING, TCP};

    #[test]
    fn headers_and_their_order() {
        for (headers, bits) in [
            (&[][..], 0),
            (&[TCP], 0),
            (&[HOPOPTS, AH], HOP | AUTH),
            (&[HOPOPTS, DSTOPTS, ROUTING, FRAGMENT, AH, ipproto::ESP], 0x7e),
            (&[DSTOPTS, ROUTING, DSTOPTS], DEST | ROUTER),
            (&[DSTOPTS, DSTOPTS, END], DEST | NO_NEXT),
            (&[DSTOPTS, DSTOPTS, DSTOPTS], DEST | REPEATED),
            (&[HOPOPTS, HOPOPTS], HOP | REPEATED),
            (&[ROUTING, HOPOPTS], ROUTER | HOP | UNORDERED),
            (&[AH, ROUTING, AH], AUTH | ROUTER | REPEATED | UNORDERED),
            (&[ROUTING, DSTOPTS, FRAGMENT], ROUTER | DEST | FRAG | UNORDERED),
        ] {
            let mut seen = Seen::default();
            headers.iter().for_each(|proto| seen.add(*proto));
            assert_eq!(seen.bits(), bits, "{headers:?}");
        }
    }

    #[test]
    fn chains_give_the_requested_bits() {
        assert_eq!(chain(0, TCP, false, false), []);
        assert_eq!(chain(0, TCP, true, false), [FRAGMENT]);
        assert_eq!(chain(HOP | AUTH, TCP, false, false), [HOPOPTS, AH]);
        assert_eq!(chain(DEST | ROUTER | UNORDERED, TCP, false, false), [DSTOPTS, DSTOPTS, ROUTING]);
        assert_eq!(chain(ROUTER | AUTH, FRAGMENT, true, true), [ROUTING, AH, FRAGMENT]);
        assert_eq!(chain(AUTH | REPEATED, ipproto::ESP, false, false), [AH, AH]);
        assert_eq!(chain(u16::MAX, TCP, false, false).len(), 5, "there is none");
    }
}
