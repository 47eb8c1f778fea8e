//! The bits that all rules of a tuple have in common, so that a lookup can skip the tuple without reading more of the
//! key.
//!
//! A packet known to be UDP matches no rule of a tuple in which all rules match TCP; a register known to be 3 matches
//! no rule if all rules match 4. Only bits that the lookup has already read are compared, so nothing is recorded.
//!
//! A bit in which rules differ is excluded for the lifetime of the tuple, so that removing a rule needs no search among
//! the remaining ones.

use crate::MiniMatch;
use flow::{FlowKey, Reads};
use smallvec::SmallVec;

/// Common bits of a tuple; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Common(SmallVec<[Word; LIKELY]>);

/// Words with common bits in a typical tuple: Ethernet type and IP protocol.
const LIKELY: usize = 2;

/// The common bits of one word and their values.
#[derive(Clone, Copy, Debug)]
struct Word {
    at: u8,
    bits: u64,
    value: u64,
}

impl Common {
    /// Adds a rule; `is_first` if it is the tuple's only one.
    pub(crate) fn insert(&mut self, rule: &MiniMatch, is_first: bool) {
        let words = rule.mask().words().zip(rule.values());
        if is_first {
            self.0 = words.map(|((at, bits), value)| Word { at: at as u8, bits, value: *value }).collect();
            return;
        }
        // Both lists are in key order.
        let mut words = words;
        self.0.retain(|word| {
            let same = words.by_ref().find(|((at, _), _)| *at == usize::from(word.at));
            word.bits &= same.map_or(0, |(_, value)| !(value ^ word.value));
            word.bits != 0
        });
    }

    /// Whether no rule of the tuple can match `key`, judging by bits that were already read or overwritten.
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
    fn known_bits_that_contradict_all_rules_exclude_the_tuple() {
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
