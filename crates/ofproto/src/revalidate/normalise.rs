//! Normalises actions: removes parts that make no difference to the packets of a flow.
//!
//! A translation leaves out setting a field to the value that it has, if it has read the field. It may read less after
//! a rule is removed, and then sets the same field: the actions differ, but have the same effect on every packet
//! that matched before.

use dpif::DpAction;
use flow::{FlowKey, FlowMask, layout};

/// Returns `actions` without parts that have no effect on packets which agree with `key` in the bits of `mask`: fields set to
/// the value that they have, and copies without a change.
pub(crate) fn normalise(actions: &[DpAction], key: &FlowKey, mask: &FlowMask) -> Vec<DpAction> {
    let (mut key, mut known) = (key.clone(), mask.clone());
    let mut out = Vec::with_capacity(actions.len());
    let mut rest = actions.iter();
    while let Some(action) = rest.next() {
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
                // All headers moved.
                known.0[layout::ETH_DST..].fill(0);
                out.push(action.clone());
            }
            DpAction::PushMpls { .. } | DpAction::PopMpls { .. } | DpAction::CopyTtl { .. } => {
                // The payload changed.
                known.0[layout::ETH_DST] &= !0xffff;
                known.0[layout::MPLS01..].fill(0);
                out.push(action.clone());
            }
            DpAction::PushPbb { .. } => {
                // The new header keeps only the addresses of the old one.
                known.0[layout::ETH_DST] &= !0xffff;
                known.0[layout::ETH_SRC] &= !0xffff;
                known.0[layout::VLAN..].fill(0);
                out.push(action.clone());
            }
            DpAction::Ct(ct) if ct.nat.is_some() => {
                // Addresses and ports may have changed.
                known.0[layout::IPV4..].fill(0);
                out.push(action.clone());
            }
            DpAction::PopVlan if is_replaced_by_itself(rest.as_slice(), &key, &known) => {
                rest.next();
            }
            DpAction::PushVlan { .. } | DpAction::PopVlan => {
                // The tags moved.
                known.0[layout::ETH_SRC] &= !0xffff;
                known.0[layout::VLAN] = 0;
                out.push(action.clone());
            }
            DpAction::Clone(inner) => {
                let inner = normalise(inner, &key, &known);
                if inner.iter().any(DpAction::affects_later) {
                    out.push(DpAction::Clone(inner.into()));
                } else {
                    out.extend(inner);
                }
            }
            other => out.push(other.with_nested(|inner| normalise(inner, &key, &known).into())),
        }
    }
    out
}

/// Returns true if the outer tag, which was just popped, is pushed again by the first of these actions.
fn is_replaced_by_itself(next: &[DpAction], key: &FlowKey, known: &FlowMask) -> bool {
    let all_known = known.vlan(0) == (0xffff, 0xffff);
    matches!(next, [DpAction::PushVlan { tpid, tci }, ..] if all_known && key.vlan(0) == (*tpid, *tci | 0x1000))
}

/// Returns true if the cached actions of a flow that matches `installed` have the same effect as `fresh` ones, whose translation
/// read `read`, on packets of both. The fresh translation may have read more, of rules that none of the flow's packets can
/// match, and therefore leave out actions without an effect.
pub(crate) fn have_same_effect(
    (cached, installed): (&[DpAction], &FlowMask),
    (fresh, read): (&[DpAction], &FlowMask),
    key: &FlowKey,
) -> bool {
    let both = union(installed, read);
    normalise(cached, key, &both) == normalise(fresh, key, &both)
}

/// The bits of both masks.
pub(crate) fn union(a: &FlowMask, b: &FlowMask) -> FlowMask {
    FlowKey(std::array::from_fn(|word| a.0[word] | b.0[word]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::DpPort;
    use flow::Field;

    #[test]
    fn setting_a_known_value_has_no_effect() {
        let (mut key, mut mask) = (FlowKey::ZERO, FlowKey::ZERO);
        key.set(Field::EthSrc, 3);
        let set = |value| DpAction::Set { field: Field::EthSrc, value, mask: Field::EthSrc.info().full_mask() };
        let out = DpAction::Output(DpPort(5));
        let cloned = |value| vec![DpAction::Clone(vec![set(value), out.clone()].into()), out.clone()];
        assert_eq!(normalise(&cloned(3), &key, &mask), cloned(3), "not known");
        mask.add_mask(Field::EthSrc, u128::MAX);
        assert_eq!(normalise(&cloned(3), &key, &mask), [out.clone(), out.clone()]);
        assert_eq!(normalise(&cloned(4), &key, &mask), cloned(4));
        let there_and_back = [set(4), out.clone(), set(3), set(3), out.clone()];
        assert_eq!(normalise(&there_and_back, &key, &mask), [set(4), out.clone(), set(3), out.clone()]);
        // A translation that reads the field leaves out what one without the read sets.
        let cached = [set(3), out.clone()];
        let any = FlowKey::ZERO;
        assert!(have_same_effect((&cached, &any), (std::slice::from_ref(&out), &mask), &key));
        assert!(!have_same_effect((&cached, &any), (&[out], &any), &key));
    }

    #[test]
    fn a_known_tag_may_be_replaced_by_itself() {
        let (mut key, mut mask) = (FlowKey::ZERO, FlowKey::ZERO);
        key.set_vlan(0, 0x8100, 0x1005);
        let replaced =
            |tci| vec![DpAction::PopVlan, DpAction::PushVlan { tpid: 0x8100, tci }, DpAction::Output(DpPort(5))];
        mask.set_vlan(0, 0xffff, 0x1fff);
        assert_eq!(normalise(&replaced(0x1005), &key, &mask), replaced(0x1005), "its priority is not known");
        mask.set_vlan(0, 0xffff, 0xffff);
        assert_eq!(normalise(&replaced(0x1005), &key, &mask), [DpAction::Output(DpPort(5))]);
        assert_eq!(normalise(&replaced(0x1006), &key, &mask), replaced(0x1006));
    }
}
