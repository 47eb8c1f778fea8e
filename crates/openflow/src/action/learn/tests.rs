//! `learn` round-trips through bytes and text.

use super::*;
use crate::{Version, actions_to_string, decode_actions, encode_actions, parse_actions};
use flow::NoNames;
use proptest::prelude::*;

/// A subfield of some width that can be matched without prerequisites, and written.
fn part() -> impl Strategy<Value = Subfield> {
    let fields = vec![Field::InPort, Field::VlanTci, Field::EthSrc, Field::Reg3, Field::Metadata, Field::Xxreg1];
    (prop::sample::select(fields), any::<u16>(), any::<u16>(), any::<bool>()).prop_map(|(field, a, b, whole)| {
        let width = field.info().n_bits;
        let offset = a % width;
        if whole { Subfield::whole(field) } else { Subfield { field, offset, n_bits: 1 + b % (width - offset) } }
    })
}

fn spec() -> impl Strategy<Value = LearnSpec> {
    (part(), part(), any::<u128>(), 0..5u8).prop_map(|(dst, src, value, shape)| {
        // As wide as the destination, within a field that is wide enough.
        let wide = Subfield { field: Field::Xxreg0, offset: src.offset.min(128 - dst.n_bits), n_bits: dst.n_bits };
        let value = LearnSrc::Immediate(value & ones(dst.n_bits));
        let (src, dst, n_bits) = match shape {
            0 => (value, LearnDst::Match(dst), dst.n_bits),
            1 => (LearnSrc::Field(wide), LearnDst::Match(dst), dst.n_bits),
            2 => (value, LearnDst::Load(dst), dst.n_bits),
            3 => (LearnSrc::Field(wide), LearnDst::Load(dst), dst.n_bits),
            _ => (LearnSrc::Field(src), LearnDst::Output, src.n_bits),
        };
        LearnSpec { src, dst, n_bits }
    })
}

fn learn() -> impl Strategy<Value = Learn> {
    let numbers = (any::<[u16; 5]>(), any::<u64>(), 0..255u8, any::<u32>());
    let flags = (any::<[bool; 2]>(), prop::option::of((0..32u16).prop_map(|offset| (Field::Reg7, offset))));
    (numbers, flags, prop::collection::vec(spec(), 0..5)).prop_map(
        |((n, cookie, table, limit), (flags, dst), specs)| Learn {
            second: false,
            idle_timeout: n[0],
            hard_timeout: n[1],
            priority: n[2],
            cookie,
            table,
            fin_idle_timeout: n[3],
            fin_hard_timeout: n[4],
            send_flow_rem: flags[0],
            delete_learned: flags[1],
            limit,
            result_dst: dst.map(|(field, offset)| Subfield { field, offset, n_bits: 1 }),
            specs,
        },
    )
}

tally::proptest! {
    #[test]
    fn bytes_and_text_survive(learn in learn()) {
        let actions = [Action::Learn(Arc::new(learn))];
        for version in [Version::V10, Version::V13, Version::V15] {
            let mut bytes = crate::wire::Writer::new();
            encode_actions(&mut bytes, &actions, version, &Match::ANY);
            let again = decode_actions(&bytes, version);
            prop_assert_eq!(again.as_deref(), Ok(&actions[..]), "{:02x?}", &bytes[..]);
        }
        let text = actions_to_string(&actions, &NoNames, Version::V13);
        let again = parse_actions(&text, &NoNames);
        prop_assert_eq!(again.as_deref(), Ok(&actions[..]), "{}", text);
    }
}

#[test]
fn a_specification_may_depend_on_earlier_ones() {
    let verdict = |text: &str| {
        let actions = parse_actions(text, &NoNames).expect("actions");
        let Some(Action::Learn(learn)) = actions.first() else { panic!("{text}") };
        learn.check(&Match::ANY)
    };
    assert_eq!(verdict("learn(eth_type=0x800,nw_proto=6,tcp_src=5)"), Ok(()));
    assert_eq!(verdict("learn(eth_type=0x800,tcp_src=5,nw_proto=6)"), Err(OfpError::BacMatchInconsistent));
    // A field's prerequisites come from the flow's own match if it is a source.
    assert_eq!(verdict("learn(eth_type=0x800,ip_dst=ip_src)"), Err(OfpError::BacMatchInconsistent));
    assert_eq!(verdict("learn(load:5->eth_type)"), Err(OfpError::BacBadSetArgument));
}
