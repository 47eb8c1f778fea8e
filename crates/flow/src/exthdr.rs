//! What `ipv6_exthdr` tells of an IPv6 packet (OpenFlow 1.3 section 7.2.3.8): which extension headers it has, and whether
//! they are repeated or stand in an order that RFC 8200 section 4.1 does not recommend.

use crate::extract::ipproto;
use std::collections::{HashSet, VecDeque};

/// No next header.
pub const NO_NEXT: u16 = 1 << 0;
/// Encrypted payload: nobody sees what follows.
pub const ESP: u16 = 1 << 1;
/// Authentication.
pub const AUTH: u16 = 1 << 2;
/// Options for destinations, one or two headers.
pub const DEST: u16 = 1 << 3;
/// Fragment.
pub const FRAG: u16 = 1 << 4;
/// Routing.
pub const ROUTER: u16 = 1 << 5;
/// Hop-by-hop options.
pub const HOP: u16 = 1 << 6;
/// A header comes once more than it should.
pub const REPEATED: u16 = 1 << 7;
/// A header stands behind one that should follow it.
pub const UNORDERED: u16 = 1 << 8;

/// Where options for the destinations on the way stand, those that a routing header may follow.
const RANK_DEST: u8 = 1;
/// Where options for the last destination stand.
const RANK_LAST: u8 = 6;

/// The extension headers of a packet, as they come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Seen {
    bits: u16,
    rank: u8,
    options: u8,
}

impl Seen {
    /// The next header. What is none of an IPv6 packet's extension headers changes nothing.
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
        let again = if bit == DEST {
            self.options = self.options.saturating_add(1);
            self.options > 2
        } else {
            self.bits & bit != 0
        };
        self.bits |= bit;
        if again {
            self.bits |= REPEATED;
        }
        if rank < self.rank {
            self.bits |= UNORDERED;
        }
        self.rank = self.rank.max(rank);
    }

    /// What was seen.
    pub(crate) fn bits(self) -> u16 {
        self.bits
    }
}

/// The shortest list of extension headers in front of `proto` for which `ipv6_exthdr` is `bits`, as far as there is one.
/// `fragment` says that there is to be a fragment header at least, and of a later one that this comes last.
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
    fn a_list_with_bits() {
        assert_eq!(chain(0, TCP, false, false), []);
        assert_eq!(chain(0, TCP, true, false), [FRAGMENT]);
        assert_eq!(chain(HOP | AUTH, TCP, false, false), [HOPOPTS, AH]);
        assert_eq!(chain(DEST | ROUTER | UNORDERED, TCP, false, false), [DSTOPTS, DSTOPTS, ROUTING]);
        assert_eq!(chain(ROUTER | AUTH, FRAGMENT, true, true), [ROUTING, AH, FRAGMENT]);
        assert_eq!(chain(AUTH | REPEATED, ipproto::ESP, false, false), [AH, AH]);
        assert_eq!(chain(u16::MAX, TCP, false, false).len(), 5, "there is none");
    }
}
