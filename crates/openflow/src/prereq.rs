//! The prerequisites of match fields in ovs-fields(7).

use flow::{Field, Match, Prereq};

/// Returns true if `matching` meets the prerequisites of `field`.
pub fn satisfied(field: Field, matching: &Match) -> bool {
    match field.info().prereq {
        Prereq::Ct => connection_tracked(field, matching),
        prereq => matching.meets(prereq),
    }
}

/// Returns true if the match implies that the connection's original direction is known: a tracked connection that is not
/// invalid, of the address family of the field.
fn connection_tracked(field: Field, matching: &Match) -> bool {
    connection_is_known(matching)
        && match field {
            Field::CtNwSrc | Field::CtNwDst => matching.meets(Prereq::Ipv4),
            Field::CtIpv6Src | Field::CtIpv6Dst => matching.meets(Prereq::Ipv6),
            _ => true,
        }
}

/// Returns true if the match implies a tracked connection that is not invalid, which each flag of a connection's state and
/// address translation does.
pub(crate) fn connection_is_known(matching: &Match) -> bool {
    // new, est, rel, rpl, snat and dnat
    const KNOWN: u128 = 0xcf;
    const INVALID: u128 = 0x10;
    const TRACKED: u128 = 0x20;
    let (value, mask) = matching.get(Field::CtState);
    value & mask & KNOWN != 0 || value & mask & TRACKED != 0 && mask & INVALID != 0 && value & INVALID == 0
}
