//! Which OpenFlow port number an interface gets.
//!
//! A number that the interface's row requests comes first; then the number that it has; then the one that it had
//! before the switch was started anew; then the next that is free, counting upwards, so that the number of a port that
//! was deleted is not given to another one soon. Numbers above [`AUTOMATIC_MAX`] are given only on request.
//!
//! A new interface does not take the number of another one: flows and controllers know that by its number. It can take
//! it later, as an interface whose request changes can, when the configuration changes, and only from an interface that
//! did not request it.

use base::PortNo;
use std::collections::BTreeSet;

/// The highest number that is given without a request (ovs-vswitchd.conf.db(5), "OpenFlow Port Number").
pub const AUTOMATIC_MAX: u16 = 32767;

/// What speaks for a number. Numbers are from 1 to 65279.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Claim {
    /// Whether this is the bridge's own interface, which always is `LOCAL`.
    pub local: bool,
    /// The requested number.
    pub request: Option<u16>,
    /// The number that it has now.
    pub held: Option<u16>,
    /// The number that the database says it had.
    pub remembered: Option<u16>,
    /// Whether it may give up the number that it has for the one that it requests, and take that from another one.
    pub may_move: bool,
}

/// The numbers of a bridge.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Numbers {
    used: BTreeSet<u16>,
    /// The number that was last given without a request, 0 at first.
    last: u16,
    /// Whether a claim did not get the number that it requests, which may become free.
    is_contended: bool,
}

impl Numbers {
    /// Gives each claim a number, no number twice. A claim goes without only if all numbers are taken.
    pub fn assign(&mut self, claims: &[Claim]) -> Vec<Option<PortNo>> {
        let mut numbers: Vec<Option<PortNo>> = claims.iter().map(|c| c.local.then_some(PortNo::LOCAL)).collect();
        self.used.clear();
        let preferences: [fn(&Claim) -> Option<u16>; 5] = [
            |c| c.request.filter(|_| c.request == c.held),
            |c| c.request.filter(|_| c.may_move && c.held.is_some()),
            |c| c.held,
            |c| c.request.filter(|_| c.held.is_none()),
            |c| c.remembered,
        ];
        for preference in preferences {
            for (claim, number) in claims.iter().zip(&mut numbers) {
                if number.is_none()
                    && let Some(wanted) = preference(claim)
                    && self.used.insert(wanted)
                {
                    *number = Some(PortNo(wanted.into()));
                }
            }
        }
        for number in numbers.iter_mut().filter(|n| n.is_none()) {
            let Some(free) = next_free(&self.used, self.last) else { break };
            self.used.insert(free);
            self.last = free;
            *number = Some(PortNo(free.into()));
        }
        let is_refused = |(claim, number): (&Claim, &Option<PortNo>)| {
            !claim.local && claim.request.is_some_and(|no| *number != Some(PortNo(no.into())))
        };
        self.is_contended = claims.iter().zip(&numbers).any(is_refused) || numbers.iter().any(Option::is_none);
        numbers
    }

    /// Gives one claim the number that [`Numbers::assign`] would give it beside all others, whose numbers stay. `None`
    /// if theirs may have to change, so that all claims are to be assigned.
    pub fn assign_one(&mut self, claim: &Claim) -> Option<PortNo> {
        if claim.local {
            return Some(PortNo::LOCAL);
        }
        if self.is_contended {
            return None;
        }
        let number = match (claim.request, claim.held) {
            (Some(request), Some(held)) if request != held => return None,
            (_, Some(held)) => held,
            (Some(request), None) => Some(request).filter(|no| !self.used.contains(no))?,
            (None, None) => match claim.remembered.filter(|no| !self.used.contains(no)) {
                Some(remembered) => remembered,
                None => {
                    self.last = next_free(&self.used, self.last)?;
                    self.last
                }
            },
        };
        self.used.insert(number);
        Some(PortNo(number.into()))
    }

    /// Whether a claim did not get the number that it requests.
    pub fn is_contended(&self) -> bool {
        self.is_contended
    }

    /// Frees the number of a claim that is gone. Returns whether a claim may be waiting for it, so that all claims are
    /// to be assigned.
    pub fn release(&mut self, number: PortNo) -> bool {
        u16::try_from(number.0).is_ok_and(|no| self.used.remove(&no)) && self.is_contended
    }
}

/// The first free number after `last`, starting again at 1 when all up to the highest are taken.
fn next_free(used: &BTreeSet<u16>, last: u16) -> Option<u16> {
    (last.saturating_add(1)..=AUTOMATIC_MAX).chain(1..=last.min(AUTOMATIC_MAX)).find(|n| !used.contains(n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NONE: Claim = Claim { local: false, request: None, held: None, remembered: None, may_move: true };

    fn numbers(claims: &[Claim], last: u16) -> Vec<u32> {
        let mut numbers = Numbers { last, ..Numbers::default() };
        numbers.assign(claims).into_iter().map(|n| n.map_or(0, |n| n.0)).collect()
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
            ("requested and free", &[NONE, request(1)], 0, &[2, 1]),
            ("requested by a new one, held by another without request", &[held(1), request(1)], 1, &[1, 2]),
            ("requested later, held by another without request", &[held(1), both(1, 2)], 2, &[3, 1]),
            ("the same without permission to move", &[held(1), Claim { may_move: false, ..both(1, 2) }], 2, &[1, 2]),
            ("requests exchanged", &[both(2, 1), both(1, 2)], 2, &[2, 1]),
            ("requested and held by one that requests another", &[both(9, 1), both(1, 2)], 2, &[9, 1]),
            ("requested by a new one, held by one that leaves it", &[both(9, 1), request(1)], 1, &[9, 1]),
            ("requested by two, held by the second", &[request(5), both(5, 5)], 0, &[1, 5]),
            ("requested by two, held by none", &[request(5), request(5)], 0, &[5, 1]),
            ("requested another than held", &[both(9, 2)], 2, &[9]),
            ("requested a taken one, holds one", &[both(9, 9), both(9, 4)], 4, &[9, 4]),
            ("request taken back", &[held(9)], 0, &[9]),
            ("as before the restart", &[remembered(12), NONE], 0, &[12, 1]),
            ("held beats remembered", &[remembered(3), held(3)], 3, &[4, 3]),
            ("requested beats remembered", &[remembered(3), request(3)], 0, &[1, 3]),
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
            may_move: bool,
        ) {
            let mut all_held = BTreeSet::new();
            let claims: Vec<Claim> = claims
                .into_iter()
                .map(|(request, held, remembered)| {
                    let held = held.filter(|no| all_held.insert(*no));
                    Claim { local: false, request, held, remembered, may_move }
                })
                .collect();
            let given = numbers(&claims, last);
            let distinct: BTreeSet<u32> = given.iter().copied().collect();
            prop_assert_eq!(distinct.len(), claims.len());
            for (claim, number) in claims.iter().zip(&given) {
                if let Some(request) = claim.request {
                    // A claim without the number that it requested lost it to another one that requested it, or that
                    // had it and did not have to move.
                    let winner = claims.iter().zip(&given).find(|(_, n)| **n == u32::from(request));
                    let is_fair = winner.is_some_and(|(c, _)| {
                        let had_it = c.held == Some(request) && (!may_move || claim.held.is_none());
                        c.request == Some(request) || had_it
                    });
                    prop_assert!(is_fair || !may_move && claim.held.is_some(), "{} requested, {} given", request, number);
                }
                if !may_move && let Some(held) = claim.held {
                    prop_assert_eq!(*number, u32::from(held));
                }
            }
            // Settled once, nothing moves but on purpose, and then only once.
            let settle = |may_move: bool, given: &[u32]| -> Vec<Claim> {
                let held = claims.iter().zip(given);
                held.map(|(c, n)| Claim { held: u16::try_from(*n).ok(), may_move, ..*c }).collect()
            };
            prop_assert_eq!(&numbers(&settle(false, &given), last), &given);
            let moved = numbers(&settle(true, &given), last);
            prop_assert_eq!(&numbers(&settle(true, &moved), last), &moved);
        }

        #[test]
        fn one_claim_is_numbered_as_it_would_be_among_all(
            steps in proptest::collection::vec(
                (
                    any::<[bool; 2]>(),
                    proptest::option::of(1u16..9),
                    proptest::option::of(1u16..9),
                    any::<usize>(),
                ),
                1..30,
            ),
        ) {
            // Numbers one by one where that is possible, beside numbers of all claims in each step.
            let (mut numbers, mut all) = (Numbers::default(), Numbers::default());
            let mut claims: Vec<Claim> = Vec::new();
            for ([is_new, may_move], request, remembered, at) in steps {
                claims.iter_mut().for_each(|claim| claim.may_move = may_move);
                // Whether all claims have to be assigned, and otherwise the number of a new claim.
                let (is_stale, number) = if is_new || claims.is_empty() {
                    claims.push(Claim { local: false, request, held: None, remembered, may_move });
                    let number = numbers.assign_one(claims.last().unwrap());
                    (number.is_none(), number)
                } else {
                    let gone = claims.remove(at % claims.len());
                    (gone.held.is_some_and(|held| numbers.release(PortNo(held.into()))), None)
                };
                let naive = all.assign(&claims);
                let expected: Vec<_> = naive.iter().map(|n| n.and_then(|n| u16::try_from(n.0).ok())).collect();
                if is_stale {
                    prop_assert_eq!(&numbers.assign(&claims), &naive);
                } else {
                    let others = claims.iter().zip(&expected).filter(|(claim, _)| claim.held.is_some());
                    prop_assert!(others.clone().all(|(claim, n)| claim.held == *n), "{:?} {:?}", claims, expected);
                }
                if let Some(number) = number {
                    prop_assert_eq!(Some(&Some(number)), naive.last());
                }
                for (claim, number) in claims.iter_mut().zip(&expected) {
                    claim.held = *number;
                }
                prop_assert_eq!(&numbers.used, &all.used);
            }
        }
    }
}
