//! Which OpenFlow port number an interface gets.
//!
//! A number that the interface's row asks for comes first; then the number that it has; then the one that it had
//! before the switch was started anew; then the next that is free, counting upwards, so that the number of a port that
//! was deleted is not given to another one soon. Numbers above [`AUTOMATIC_MAX`] are given only to who asks.

use base::PortNo;
use std::collections::BTreeSet;

/// The highest number that is given without being asked for (ovs-vswitchd.conf.db(5), "OpenFlow Port Number").
pub const AUTOMATIC_MAX: u16 = 32767;

/// What speaks for a number. Numbers are from 1 to 65279.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Claim {
    /// Whether this is the bridge's own interface, which always is `LOCAL`.
    pub local: bool,
    /// The number asked for.
    pub request: Option<u16>,
    /// The number that it has now.
    pub held: Option<u16>,
    /// The number that the database says it had.
    pub remembered: Option<u16>,
}

/// Gives each claim a number, no number twice. `last` is the number that was last given without being asked for, 0 at
/// first. A claim goes without only if all numbers are taken.
pub fn assign(claims: &[Claim], last: &mut u16) -> Vec<Option<PortNo>> {
    let mut numbers: Vec<Option<PortNo>> = claims.iter().map(|c| c.local.then_some(PortNo::LOCAL)).collect();
    let mut used = BTreeSet::new();
    let preferences: [fn(&Claim) -> Option<u16>; 4] =
        [|c| c.request.filter(|_| c.request == c.held), |c| c.request, |c| c.held, |c| c.remembered];
    for preference in preferences {
        for (claim, number) in claims.iter().zip(&mut numbers) {
            if number.is_none()
                && let Some(wanted) = preference(claim)
                && used.insert(wanted)
            {
                *number = Some(PortNo(wanted.into()));
            }
        }
    }
    for number in numbers.iter_mut().filter(|n| n.is_none()) {
        let Some(free) = next_free(&used, *last) else { break };
        used.insert(free);
        *last = free;
        *number = Some(PortNo(free.into()));
    }
    numbers
}

/// The first free number after `last`, starting again at 1 when all up to the highest are taken.
fn next_free(used: &BTreeSet<u16>, last: u16) -> Option<u16> {
    (last.saturating_add(1)..=AUTOMATIC_MAX).chain(1..=last.min(AUTOMATIC_MAX)).find(|n| !used.contains(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NONE: Claim = Claim { local: false, request: None, held: None, remembered: None };

    fn numbers(claims: &[Claim], mut last: u16) -> Vec<u32> {
        assign(claims, &mut last).into_iter().map(|n| n.map_or(0, |n| n.0)).collect()
    }

    fn request(n: u16) -> Claim {
        Claim { request: Some(n), ..NONE }
    }

    fn held(n: u16) -> Claim {
        Claim { held: Some(n), ..NONE }
    }

    fn remembered(n: u16) -> Claim {
        Claim { remembered: Some(n), ..NONE }
    }

    #[test]
    fn table_of_cases() {
        let local = Claim { local: true, request: Some(7), ..NONE };
        let both = |request, held| Claim { request: Some(request), held: Some(held), ..NONE };
        let cases: &[(&str, &[Claim], u16, &[u32])] = &[
            ("counting from 1", &[NONE, NONE], 0, &[1, 2]),
            ("a number freed is not given again soon", &[held(1), NONE], 2, &[1, 3]),
            ("asked for and free", &[NONE, request(1)], 0, &[2, 1]),
            ("asked for and held by another that did not ask", &[held(1), request(1)], 2, &[3, 1]),
            ("asked for by two, held by the second", &[request(5), both(5, 5)], 0, &[1, 5]),
            ("asked for by two, held by none", &[request(5), request(5)], 0, &[5, 1]),
            ("asked for another than held", &[both(9, 2)], 2, &[9]),
            ("asked for a taken one, holds one", &[both(9, 9), both(9, 4)], 4, &[9, 4]),
            ("request taken back", &[held(9)], 0, &[9]),
            ("as before the restart", &[remembered(12), NONE], 0, &[12, 1]),
            ("held beats remembered", &[remembered(3), held(3)], 3, &[4, 3]),
            ("asked for beats remembered", &[remembered(3), request(3)], 0, &[1, 3]),
            ("numbers go on above those remembered", &[remembered(1), remembered(2), NONE], 0, &[1, 2, 3]),
            ("the local port", &[local, request(7), NONE], 0, &[0xffff_fffe, 7, 1]),
            ("around", &[NONE, NONE], AUTOMATIC_MAX - 1, &[32767, 1]),
            ("high only by request", &[request(65279), NONE], AUTOMATIC_MAX, &[65279, 1]),
        ];
        for (what, claims, last, expected) in cases {
            assert_eq!(numbers(claims, *last), *expected, "{what}");
        }
    }

    #[test]
    fn without_free_numbers_claims_go_without() {
        let mut claims = vec![NONE; usize::from(AUTOMATIC_MAX)];
        assert!(numbers(&claims, 17).iter().all(|n| *n != 0));
        claims.push(NONE);
        assert_eq!(numbers(&claims, 17).iter().filter(|n| **n == 0).count(), 1);
    }

    tally::proptest! {
        #[test]
        fn no_number_twice_and_every_claim_served(
            claims in proptest::collection::vec(
                (proptest::option::of(1u16..12), proptest::option::of(1u16..12), proptest::option::of(1u16..12)),
                0..20,
            ),
            last in 0u16..20,
        ) {
            let claims: Vec<Claim> = claims
                .into_iter()
                .map(|(request, held, remembered)| Claim { local: false, request, held, remembered })
                .collect();
            let given = numbers(&claims, last);
            let distinct: BTreeSet<u32> = given.iter().copied().collect();
            prop_assert_eq!(distinct.len(), claims.len());
            for (claim, number) in claims.iter().zip(&given) {
                if let Some(request) = claim.request {
                    // Whoever did not get what it asked for lost it to another who asked.
                    let winner = claims.iter().zip(&given).any(|(c, n)| {
                        c.request == Some(request) && *n == u32::from(request)
                    });
                    prop_assert!(winner, "{} asked for, {} given", request, number);
                }
            }
            // Settled once, nothing moves.
            let settled: Vec<Claim> = claims
                .iter()
                .zip(&given)
                .map(|(c, n)| Claim { held: u16::try_from(*n).ok(), ..*c })
                .collect();
            prop_assert_eq!(numbers(&settled, last), given);
        }
    }
}
