//! Which fields a match makes meaningful: the prerequisites of ovs-fields(7).

use flow::{Field, Match, Prereq};

/// Whether `matching` satisfies what `field` presupposes.
pub fn satisfied(field: Field, matching: &Match) -> bool {
    match field.info().prereq {
        Prereq::Ct => connection_tracked(field, matching),
        prereq => matching.meets(prereq),
    }
}

/// Whether the connection's original direction is known: a tracked connection that is not invalid, of the family that the
/// field is for.
fn connection_tracked(field: Field, matching: &Match) -> bool {
    connection_is_known(matching)
        && match field {
            Field::CtNwSrc | Field::CtNwDst => matching.meets(Prereq::Ipv4),
            Field::CtIpv6Src | Field::CtIpv6Dst => matching.meets(Prereq::Ipv6),
            _ => true,
        }
}

/// Whether the match is for packets of a tracked connection that is not invalid.
pub(crate) fn connection_is_known(matching: &Match) -> bool {
    const NEW_EST_REL_RPL: u128 = 0x0f;
    const INVALID: u128 = 0x10;
    const TRACKED: u128 = 0x20;
    let (value, mask) = matching.get(Field::CtState);
    value & mask & NEW_EST_REL_RPL != 0 || value & mask & TRACKED != 0 && mask & INVALID != 0 && value & INVALID == 0
}
