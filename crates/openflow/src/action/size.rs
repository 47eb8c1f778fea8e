//! The memory that Open vSwitch needs for actions. It refuses text whose actions need more than [`MAX`] bytes, and so
//! do we, so that both accept the same flows.

use super::encap::EncapProperty;
use super::learn::LearnSrc;
use super::{Action, Encap, Learn};
use flow::Field;

/// The largest size of a list in bytes.
pub(super) const MAX: usize = u16::MAX as usize;

/// Returns the size of a list in bytes, with the actions nested in it.
pub(super) fn of_list(actions: &[Action]) -> usize {
    actions.iter().map(of).sum()
}

/// Rounds up to a multiple of 8 bytes.
fn padded(n: usize) -> usize {
    n.next_multiple_of(8)
}

fn of(action: &Action) -> usize {
    match action {
        Action::Output { .. }
        | Action::OutputTrunc { .. }
        | Action::Enqueue { .. }
        | Action::SetEthSrc(_)
        | Action::SetEthDst(_)
        | Action::SetTunnel { .. }
        | Action::Resubmit { .. }
        | Action::ResubmitPort { .. }
        | Action::ResubmitCt { .. }
        | Action::Conjunction { .. }
        | Action::DeleteField(_) => 16,
        Action::OutputReg { .. } | Action::StackPush(_) | Action::StackPop(_) | Action::WriteMetadata { .. } => 24,
        Action::CheckPktLarger { .. } => 32,
        Action::RegMove { .. } | Action::CopyField { .. } | Action::Multipath(_) => 40,
        Action::Nat(_) => 48,
        Action::Sample(_) => 64,
        Action::Controller(c) => 24 + padded(c.userdata.len()),
        Action::SetField { field, .. } => of_set_field(*field),
        Action::SetTunOption(option) => of_set_field(option.field()),
        Action::RegLoad { dst, .. } => of_set_field(dst.field),
        Action::DecTtl(ids) => padded(8 + 2 * ids.as_ref().map_or(1, Vec::len)),
        Action::Ct(ct) => 32 + of_list(&ct.exec),
        // The text of a note is shorter than its bytes, which are padded.
        Action::Note(bytes) => 16 + padded(bytes.len().saturating_sub(7).max(1)),
        Action::Learn(learn) => of_learn(learn),
        Action::Bundle(bundle) => 40 + padded(4 * bundle.members.len()),
        Action::Encap(encap) => of_encap(encap),
        Action::Clone(nested) | Action::WriteActions(nested) => 8 + of_list(nested),
        _ => 8,
    }
}

/// A value and a mask of the field.
fn of_set_field(field: Field) -> usize {
    16 + 2 * padded(field.info().wire_bytes())
}

fn of_learn(learn: &Learn) -> usize {
    let specs = learn.specs.iter().map(|spec| match spec.src {
        LearnSrc::Field(_) => 40,
        LearnSrc::Immediate(_) => 40 + padded(usize::from(spec.n_bits).div_ceil(8)),
    });
    48 + specs.sum::<usize>()
}

fn of_encap(encap: &Encap) -> usize {
    let properties = encap.properties.iter().map(|property| match property {
        EncapProperty::MdType(_) => 8,
        EncapProperty::Tlv { value, .. } => 8 + padded(value.len()),
    });
    16 + properties.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use crate::parse_instructions;
    use flow::NoNames;

    #[test]
    fn text_with_too_many_actions_is_refused() {
        // The smallest number of these actions that Open vSwitch refuses.
        for (action, n) in [
            ("output:1", 4096),
            ("controller(id=5)", 2731),
            ("controller(userdata=01.02.03.04.05.06.07.08,id=5)", 2048),
            ("output:reg0", 2731),
            ("mod_vlan_vid:5", 8192),
            ("mod_dl_src:00:00:00:00:00:01", 4096),
            ("set_field:1->reg0", 2048),
            ("load:1->reg0[0..3]", 2048),
            ("set_field:1->xxreg0", 1366),
            ("set_field:1->tun_metadata0", 241),
            ("move:reg0[]->reg1[]", 1639),
            ("dec_ttl(1,2,3,4,5,6,7)", 2731),
            ("resubmit(,1)", 4096),
            ("ct(commit,exec(load:1->ct_mark[]))", 1024),
            ("ct(commit,nat(src=1.2.3.4))", 820),
            ("sample(probability=5)", 1024),
            ("note:01.02.03.04.05.06.07", 2731),
            ("learn(table=1,load:5->reg0[])", 683),
            ("multipath(eth_src,0,modulo_n,1,0,reg0[])", 1639),
            ("bundle(eth_src,0,hrw,ofport,members:1,2,3,4,5)", 1024),
            ("clone(output:1,output:2)", 1639),
            ("encap(nsh(md_type=1))", 2731),
        ] {
            let list = |n: usize| vec![action; n].join(",");
            assert!(parse_instructions(&list(n - 1), &NoNames).is_ok(), "{action}");
            let refused = parse_instructions(&list(n), &NoNames).map(drop).map_err(|e| e.0);
            assert_eq!(refused, Err("input too big".into()), "{action}");
        }
    }
}
