//! What actions do to the packets of a flow, without what makes no difference to them.
//!
//! A translation leaves out that a field is set to the value that it has, if it has read the field. What it reads may become
//! less when a rule goes, and then the same field is set again: the actions are others, and do the same to every packet
//! that matched before.

use dpif::DpAction;
use flow::{FlowKey, FlowMask, layout};

/// `actions` as they are to packets that agree with `key` in the bits of `mask`: without fields set to what they are, and
/// without copies that nothing changes.
pub(crate) fn essence(actions: &[DpAction], key: &FlowKey, mask: &FlowMask) -> Vec<DpAction> {
    let (mut key, mut known) = (key.clone(), mask.clone());
    let mut out = Vec::with_capacity(actions.len());
    for action in actions {
        match action {
            DpAction::Set { field, value, mask } => {
                let mut bits = FlowKey::ZERO;
                bits.add_mask(*field, *mask);
                let is_known = bits.0.iter().zip(&known.0).all(|(b, k)| b & !k == 0);
                if is_known && key.get(*field) & mask == *value & mask {
                    continue;
                }
                key.set(*field, key.get(*field) & !mask | value & mask);
                known.add_mask(*field, *mask);
                out.push(action.clone());
            }
            DpAction::PushEth { .. }
            | DpAction::PopEth
            | DpAction::AddMpls { .. }
            | DpAction::PushNsh(_)
            | DpAction::PopNsh
            | DpAction::PopPbb => {
                // No header is where it was.
                known.0[layout::ETH_DST..].fill(0);
                out.push(action.clone());
            }
            DpAction::PushMpls { .. } | DpAction::PopMpls { .. } | DpAction::CopyTtl { .. } => {
                // What the packet carries is not what it was.
                known.0[layout::ETH_DST] &= !0xffff;
                known.0[layout::MPLS01..].fill(0);
                out.push(action.clone());
            }
            DpAction::PushPbb { .. } => {
                // The new header has the addresses, and nothing else of the old one.
                known.0[layout::ETH_DST] &= !0xffff;
                known.0[layout::ETH_SRC] &= !0xffff;
                known.0[layout::VLAN..].fill(0);
                out.push(action.clone());
            }
            DpAction::Ct(ct) if ct.nat.is_some() => {
                // Addresses and ports may be others.
                known.0[layout::IPV4..].fill(0);
                out.push(action.clone());
            }
            DpAction::PushVlan { .. } | DpAction::PopVlan => {
                // Tags are not where they were.
                known.0[layout::ETH_SRC] &= !0xffff;
                known.0[layout::VLAN] = 0;
                out.push(action.clone());
            }
            DpAction::Clone(inner) => {
                let inner = essence(inner, &key, &known);
                if inner.iter().any(DpAction::affects_later) {
                    out.push(DpAction::Clone(inner.into()));
                } else {
                    out.extend(inner);
                }
            }
            other => out.push(other.with_nested(|inner| essence(inner, &key, &known).into())),
        }
    }
    out
}

/// Whether cached actions of a flow that matches `installed` do the same as `fresh` ones, whose translation has read `read`, to
/// packets that both are for. The fresh one may have read more, of rules that none of the flow's packets can match, and
/// for that leave out what makes no difference.
pub(crate) fn same_essence(
    (cached, installed): (&[DpAction], &FlowMask),
    (fresh, read): (&[DpAction], &FlowMask),
    key: &FlowKey,
) -> bool {
    let both = union(installed, read);
    essence(cached, key, &both) == essence(fresh, key, &both)
}

/// The bits of both.
pub(crate) fn union(a: &FlowMask, b: &FlowMask) -> FlowMask {
    FlowKey(std::array::from_fn(|word| a.0[word] | b.0[word]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::DpPort;
    use flow::Field;

    #[test]
    fn what_is_set_to_what_it_is_makes_no_difference() {
        let (mut key, mut mask) = (FlowKey::ZERO, FlowKey::ZERO);
        key.set(Field::EthSrc, 3);
        let set = |value| DpAction::Set { field: Field::EthSrc, value, mask: Field::EthSrc.info().full_mask() };
        let out = DpAction::Output(DpPort(5));
        let cloned = |value| vec![DpAction::Clone(vec![set(value), out.clone()].into()), out.clone()];
        assert_eq!(essence(&cloned(3), &key, &mask), cloned(3), "not known");
        mask.add_mask(Field::EthSrc, u128::MAX);
        assert_eq!(essence(&cloned(3), &key, &mask), [out.clone(), out.clone()]);
        assert_eq!(essence(&cloned(4), &key, &mask), cloned(4));
        let there_and_back = [set(4), out.clone(), set(3), set(3), out.clone()];
        assert_eq!(essence(&there_and_back, &key, &mask), [set(4), out.clone(), set(3), out.clone()]);
        // A translation that has read the field leaves out what one that has not does.
        let cached = [set(3), out.clone()];
        let any = FlowKey::ZERO;
        assert!(same_essence((&cached, &any), (std::slice::from_ref(&out), &mask), &key));
        assert!(!same_essence((&cached, &any), (&[out], &any), &key));
    }
}
