//! What all rules of a tuple have in common, by which a look-up passes over it without reading anything.
//!
//! A packet that was read to be UDP matches no rule of a tuple in which all are for TCP, and one whose register was written
//! to be 3 none where all want 4. Only bits are compared that the look-up knows already: nothing is recorded.
//!
//! Bits that rules do not agree in are left out for as long as the tuple lives, so that a change costs no search among the
//! rules that stay.

use crate::MiniMatch;
use flow::{FlowKey, Reads};
use smallvec::SmallVec;

/// See the top of this file.
#[derive(Debug, Default)]
pub(crate) struct Common(SmallVec<[Word; LIKELY]>);

/// Words in which rules agree, mostly: the one of the Ethernet type and the one of the IP protocol.
const LIKELY: usize = 2;

/// What rules agree in, of one word: these bits have these values.
#[derive(Clone, Copy, Debug)]
struct Word {
    at: u8,
    bits: u64,
    value: u64,
}

impl Common {
    /// Takes in a rule; `is_first` if it is the only one.
    pub(crate) fn insert(&mut self, rule: &MiniMatch, is_first: bool) {
        let words = rule.mask().words().zip(rule.values());
        if is_first {
            self.0 = words.map(|((at, bits), value)| Word { at: at as u8, bits, value: *value }).collect();
            return;
        }
        // Both lists are in the order of the words.
        let mut words = words;
        self.0.retain(|word| {
            let same = words.by_ref().find(|((at, _), _)| *at == usize::from(word.at));
            word.bits &= same.map_or(0, |(_, value)| !(value ^ word.value));
            word.bits != 0
        });
    }

    /// Whether no rule can match `key`, by bits of it that are read already, or not the packet's any more.
    #[inline]
    pub(crate) fn contradicts(&self, key: &FlowKey, reads: &Reads) -> bool {
        self.0.iter().any(|word| {
            let at = usize::from(word.at);
            (key.0[at] ^ word.value) & word.bits & (reads.mask().0[at] | reads.written().0[at]) != 0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::{Field, Match};

    fn rule(of: &[(Field, u128)]) -> MiniMatch {
        let mut m = Match::ANY;
        of.iter().for_each(|(field, value)| m.set(*field, *value));
        MiniMatch::new(&m)
    }

    #[test]
    fn known_bits_in_which_all_rules_differ_from_the_key_rule_them_out() {
        let mut common = Common::default();
        common.insert(&rule(&[(Field::EthType, 0x800), (Field::IpProto, 6), (Field::Reg0, 1)]), true);
        common.insert(&rule(&[(Field::EthType, 0x800), (Field::IpProto, 6), (Field::Reg0, 3)]), false);
        let mut key = FlowKey::ZERO;
        key.set(Field::EthType, 0x800);
        key.set(Field::IpProto, 17);
        let mut reads = Reads::new();
        assert!(!common.contradicts(&key, &reads), "nothing is known");
        reads.note_field(Field::IpProto);
        assert!(common.contradicts(&key, &reads));
        key.set(Field::IpProto, 6);
        assert!(!common.contradicts(&key, &reads));
        reads.write_field(Field::Reg0);
        assert!(common.contradicts(&key, &reads), "the last bit is set in both");
        key.set(Field::Reg0, 5);
        assert!(common.contradicts(&key, &reads), "and the third in none");
        key.set(Field::Reg0, 1);
        assert!(!common.contradicts(&key, &reads));
    }
}
