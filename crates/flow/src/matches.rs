//! Matches: the keys that a rule applies to.

use super::field::{Field, Loc};
use super::key::{FlowKey, FlowMask};
use super::layout;
use super::options::TunOption;
use super::placed::PlacedOption;

/// Value and mask, and tunnel options, whose location in a key depends on the switch. Invariants: bits of `key` outside
/// of `mask` are zero, and options are sorted by field. The methods maintain both.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Match {
    key: FlowKey,
    mask: FlowMask,
    options: Vec<TunOption>,
}

impl Match {
    /// Matches every packet.
    pub const ANY: Self = Self { key: FlowKey::ZERO, mask: FlowKey::ZERO, options: Vec::new() };

    /// Matches keys that equal `key` under `mask`.
    pub fn new(key: &FlowKey, mask: FlowMask) -> Self {
        Self { key: key.masked(&mask), mask, options: Vec::new() }
    }

    /// The values; zero outside of the mask.
    pub fn key(&self) -> &FlowKey {
        &self.key
    }

    /// The bits that matter.
    pub fn mask(&self) -> &FlowMask {
        &self.mask
    }

    /// The tunnel options matched, sorted by field.
    pub fn options(&self) -> &[TunOption] {
        &self.options
    }

    /// Adds a match on a tunnel option. Returns false, and changes nothing, if its field is already matched.
    pub fn set_option(&mut self, option: TunOption) -> bool {
        match self.options.binary_search_by_key(&option.field(), TunOption::field) {
            Ok(_) => false,
            Err(at) => {
                self.options.insert(at, option);
                true
            }
        }
    }

    /// Matches an option in the bits of the key where the switch placed it: its presence, and its value under its mask.
    /// Returns false if the value is too long for the placed option.
    pub fn place_option(&mut self, option: &TunOption, placed: &PlacedOption) -> bool {
        let (value, mask) = (option.value(), option.mask());
        if value.len() > 4 * placed.places().len() {
            return false;
        }
        self.set_present(placed);
        for n in 0..placed.places().len() as u16 {
            let part = |bytes: &[u8]| {
                bytes.rchunks(4).nth(n.into()).map_or(0, |c| c.iter().fold(0, |v, b| v << 8 | u32::from(*b)))
            };
            let mask = mask.map_or(u32::MAX, part);
            placed.put_word(&mut self.mask, n, mask);
            placed.put_word(&mut self.key, n, part(value) & mask);
        }
        true
    }

    fn set_present(&mut self, placed: &PlacedOption) {
        let (word, bit) = placed.presence();
        self.mask.0[word] |= bit;
        self.key.0[word] |= bit;
    }

    /// Matches up to 64 bits of an option, in addition to bits already matched.
    pub fn set_option_bits(&mut self, placed: &PlacedOption, offset: u16, n_bits: u16, value: u64) {
        placed.set(&mut self.key, offset, n_bits, value);
        placed.set(&mut self.mask, offset, n_bits, u64::MAX);
    }

    /// The match on an option, read from the bits of the key; `None` if it is not matched.
    pub fn option_at(&self, placed: &PlacedOption) -> Option<TunOption> {
        let (value, mask) = (placed.bytes(&self.key), placed.bytes(&self.mask));
        let exact = !mask.is_empty() && mask.iter().all(|byte| *byte == 0xff);
        let (word, bit) = placed.presence();
        if self.key.0[word] & bit == 0 {
            return None;
        }
        TunOption::new(placed.field(), &value, (!exact).then_some(&mask)).map(|option| option.with_len(value.len()))
    }

    /// Removes and returns the options.
    pub fn take_options(&mut self) -> Vec<TunOption> {
        std::mem::take(&mut self.options)
    }

    /// Matches `field` exactly.
    pub fn set(&mut self, field: Field, value: u128) {
        self.set_masked(field, value, field.info().full_mask());
    }

    /// Matches the bits `mask` of `field`, replacing an earlier match on the field. A VLAN id or priority implies that
    /// a tag is present; 0xffff as `dl_vlan` that none is (OpenFlow 1.0 section 5.2.3). ICMP types and codes are
    /// matched as 16-bit ports, and the type of a neighbour discovery option as TCP flags, so that equal matches compare
    /// equal however they were written.
    pub fn set_masked(&mut self, field: Field, value: u128, mask: u128) {
        let mask = mask & field.info().full_mask();
        let (field, mask) = match stored_as(field) {
            Some(wider) => (wider, mask | mask << 8),
            None => (field, mask),
        };
        let tagged = (self.key.0[layout::ETH_SRC] & 0x1000, self.mask.0[layout::ETH_SRC] & 0x1000);
        self.clear(field);
        match field {
            Field::DlVlan if mask != 0 && value == 0xffff => return self.set(Field::VlanTci, 0),
            Field::DlVlan | Field::DlVlanPcp | Field::VlanPcp if mask != 0 => self.set_tagged(0x1000, 0x1000),
            // Clearing one VLAN field keeps the tag if another field still needs it.
            Field::DlVlan | Field::DlVlanPcp | Field::VlanPcp | Field::VlanVid if mask == 0 => {
                let left = self.mask.vlan_tci() & 0xefff != 0;
                self.set_tagged(if left { tagged.0 } else { 0 }, if left { tagged.1 } else { 0 });
                return;
            }
            _ => {}
        }
        self.mask.add_mask(field, mask);
        self.key.set(field, value & mask);
    }

    /// Sets value and mask of the bit that marks a VLAN tag as present.
    fn set_tagged(&mut self, value: u64, mask: u64) {
        let word = layout::ETH_SRC;
        self.key.0[word] = self.key.0[word] & !0x1000 | value;
        self.mask.0[word] = self.mask.0[word] & !0x1000 | mask;
    }

    /// Stops matching `field`.
    pub fn clear(&mut self, field: Field) {
        let field = stored_as(field).unwrap_or(field);
        let whole = field.info().full_mask();
        let mut clear = |word: usize, bits: u64| {
            self.mask.0[word] &= !bits;
            self.key.0[word] &= !bits;
        };
        match field.info().loc {
            Loc::Bits { word, shift, width } => {
                let width = if width == 64 { u64::MAX } else { (1 << width) - 1 };
                clear(word.into(), (whole as u64 & width) << shift);
            }
            Loc::Wide(word) => {
                clear(word, (whole >> 64) as u64);
                clear(word + 1, whole as u64);
            }
            Loc::InPort16 => self.clear(Field::InPortOxm),
            Loc::NwTos => self.clear(Field::IpDscp),
            Loc::ArpOp => self.clear(Field::IpProto),
            Loc::TunMetadata(_) => {}
        }
    }

    /// Makes it [`Match::ANY`] again.
    pub fn reset(&mut self) {
        self.key.0.fill(0);
        self.mask.0.fill(0);
        self.options.clear();
    }

    /// Value and mask of `field`, right aligned.
    pub fn get(&self, field: Field) -> (u128, u128) {
        (self.key.get(field), self.mask.get(field))
    }

    /// Whether `field` is matched exactly, with this value.
    pub fn is_exactly(&self, field: Field, value: u128) -> bool {
        self.get(field) == (value, field.info().full_mask())
    }

    /// Whether `key` matches, ignoring tunnel options.
    pub fn matches(&self, key: &FlowKey) -> bool {
        self.key.eq_masked(key, &self.mask)
    }

    /// Whether every key that matches `other` also matches `self`, ignoring tunnel options.
    pub fn contains(&self, other: &Self) -> bool {
        self.mask.0.iter().zip(&other.mask.0).all(|(a, b)| a & !b == 0) && self.key.eq_masked(&other.key, &self.mask)
    }

    /// Whether some key matches both, ignoring tunnel options.
    pub fn overlaps(&self, other: &Self) -> bool {
        let common = self.mask.masked(&other.mask);
        self.key.eq_masked(&other.key, &common)
    }
}

/// The wider field that holds an ICMP type or code, or the type of a neighbour discovery option.
fn stored_as(field: Field) -> Option<Field> {
    match field {
        Field::Icmpv4Type | Field::Icmpv6Type => Some(Field::TcpSrc),
        Field::Icmpv4Code | Field::Icmpv6Code => Some(Field::TcpDst),
        Field::NdOptionsType => Some(Field::TcpFlags),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::FIELDS;
    use crate::placed::OptionPlace;

    #[test]
    fn all_of_a_field_is_cleared_and_nothing_else() {
        let all = Match::new(&FlowKey([u64::MAX; layout::WORDS]), FlowKey([u64::MAX; layout::WORDS]));
        for f in FIELDS {
            let whole = FlowKey::mask_of(stored_as(f.id).unwrap_or(f.id));
            let left = FlowKey(std::array::from_fn(|i| !whole.0[i]));
            let mut m = all.clone();
            m.clear(f.id);
            assert_eq!(m, Match::new(&left, left.clone()), "{}", f.name);
            m.reset();
            assert_eq!(m, Match::ANY);
        }
    }

    #[test]
    fn a_field_that_is_set_is_matched_exactly() {
        for f in FIELDS.iter().filter(|f| !matches!(f.loc, crate::field::Loc::TunMetadata(_))) {
            let mut m = Match::ANY;
            m.set(f.id, 1);
            let value = if f.id == Field::IpDscpShifted { 0 } else { 1 };
            assert!(m.is_exactly(f.id, value), "{} {:x?}", f.name, m.get(f.id));
            m.set_masked(f.id, 1, u128::MAX);
            assert!(m.is_exactly(f.id, value), "{}", f.name);
            m.set_masked(f.id, 0, 0);
            assert_eq!(m, Match::ANY, "{}", f.name);
        }
    }

    #[test]
    fn options_in_a_key() {
        let place = |field, places: &[u8]| {
            let places: Vec<OptionPlace> = places.iter().copied().filter_map(OptionPlace::new).collect();
            PlacedOption::new(field, &places).expect("an option")
        };
        let placed = place(Field::TunMetadata3, &[60, 7]);
        for (value, mask) in [
            (&[0x12, 0x34, 0x56, 0x78, 0x9a][..], None),
            (&[], None),
            (&[1, 0, 0, 0, 2], Some(&[0xff, 0, 0, 0, 3][..])),
            (&[], Some(&[][..])),
        ] {
            let option = TunOption::new(Field::TunMetadata3, value, mask).expect("an option");
            let mut m = Match::ANY;
            assert!(m.place_option(&option, &placed));
            assert_eq!(m.option_at(&placed), Some(option));
            // An absent option has no value.
            assert!(!m.matches(&FlowKey::ZERO));
            // An option placed elsewhere is not matched.
            assert_eq!(m.option_at(&place(Field::TunMetadata4, &[5])), None);
        }
        let long = TunOption::new(Field::TunMetadata3, &[1; 9], None).expect("an option");
        let mut m = Match::ANY;
        assert!(!m.place_option(&long, &placed));
        m.set_option_bits(&placed, 28, 8, 0xa5);
        m.set_option_bits(&placed, 40, 4, 1);
        let bits = TunOption::new(Field::TunMetadata3, &[1, 0xa, 0x50, 0, 0, 0], Some(&[0xf, 0xf, 0xf0, 0, 0, 0]));
        assert_eq!(m.option_at(&placed), bits);
    }

    #[test]
    fn vlan_views_share_the_tag() {
        let mut m = Match::ANY;
        m.set(Field::DlVlan, 5);
        m.set(Field::DlVlanPcp, 3);
        assert_eq!(m.get(Field::VlanTci), (0x7005, 0xffff));
        m.set_masked(Field::DlVlan, 0, 0);
        assert_eq!(m.get(Field::VlanTci), (0x7000, 0xf000));
        m.set(Field::DlVlan, 0xffff);
        assert_eq!(m.get(Field::VlanTci), (0, 0xffff));
        m.set(Field::VlanVid, 5);
        assert_eq!(m.get(Field::VlanTci), (5, 0xffff));
    }

    #[test]
    fn containment_and_overlap() {
        let (mut net, mut host) = (Match::ANY, Match::ANY);
        net.set_masked(Field::Ipv4Src, 0x0a00_0000, 0xff00_0000);
        host.set(Field::Ipv4Src, 0x0a01_0203);
        assert!(net.contains(&host) && !host.contains(&net) && net.overlaps(&host));
        host.set(Field::Ipv4Src, 0x0b01_0203);
        assert!(!net.overlaps(&host));
        assert!(Match::ANY.contains(&net) && Match::ANY.overlaps(&host));
        host.clear(Field::Ipv4Src);
        assert_eq!(host, Match::ANY);
    }
}
