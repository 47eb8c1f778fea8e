//! A match: which keys a flow is for.

use super::field::Field;
use super::key::{FlowKey, FlowMask};
use super::layout;
use super::options::TunOption;

/// A value and a mask, and tunnel options, whose place in a key only a switch knows. Invariant: bits of `key` outside of
/// `mask` are zero, and options are in the order of their fields (the methods keep it).
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct Match {
    key: FlowKey,
    mask: FlowMask,
    options: Vec<TunOption>,
}

impl Match {
    /// Matches every packet.
    pub const ANY: Self = Self { key: FlowKey::ZERO, mask: FlowKey::ZERO, options: Vec::new() };

    /// Matches keys that agree with `key` in the bits of `mask`.
    pub fn new(key: &FlowKey, mask: FlowMask) -> Self {
        Self { key: key.masked(&mask), mask, options: Vec::new() }
    }

    /// The values; zero where the mask is.
    pub fn key(&self) -> &FlowKey {
        &self.key
    }

    /// The bits that matter.
    pub fn mask(&self) -> &FlowMask {
        &self.mask
    }

    /// Tunnel options that are matched, in the order of their fields.
    pub fn options(&self) -> &[TunOption] {
        &self.options
    }

    /// Matches a tunnel option. Whether that is new: false, and nothing is changed, if its field is matched already.
    pub fn set_option(&mut self, option: TunOption) -> bool {
        match self.options.binary_search_by_key(&option.field(), TunOption::field) {
            Ok(_) => false,
            Err(at) => {
                self.options.insert(at, option);
                true
            }
        }
    }

    /// Matches an option by the bits of the key where a switch keeps it: 4 bytes at each of these places, the most
    /// significant first. Whether it fits there.
    pub fn place_option(&mut self, option: &TunOption, places: &[OptionPlace]) -> bool {
        if option.mask() == Some(&[]) {
            let (word, bit) = presence(option.index());
            self.mask.0[word] |= bit;
            self.key.0[word] |= bit;
            return true;
        }
        let (value, mask) = (option.value(), option.mask());
        if value.len() > 4 * places.len() {
            return false;
        }
        for (n, place) in places.iter().rev().enumerate() {
            let part =
                |bytes: &[u8]| bytes.rchunks(4).nth(n).map_or(0, |c| c.iter().fold(0, |v, b| v << 8 | u32::from(*b)));
            let mask = mask.map_or(u32::MAX, part);
            place.put(&mut self.mask, mask);
            place.put(&mut self.key, part(value) & mask);
        }
        true
    }

    /// What [`Match::place_option`] made of an option of `field`; `None` if these bits of the key are not matched.
    pub fn option_at(&self, field: Field, places: &[OptionPlace]) -> Option<TunOption> {
        let bytes = |key: &FlowKey| places.iter().flat_map(|place| place.get(key).to_be_bytes()).collect::<Vec<u8>>();
        let (value, mask) = (bytes(&self.key), bytes(&self.mask));
        let none = mask.iter().all(|byte| *byte == 0);
        let exact = !mask.is_empty() && mask.iter().all(|byte| *byte == 0xff);
        let option = TunOption::new(field, &value, (!exact).then_some(&mask))?;
        let (word, bit) = presence(option.index());
        (!none || self.mask.0[word] & bit != 0).then_some(option)
    }

    /// The options, which are matched no more.
    pub fn take_options(&mut self) -> Vec<TunOption> {
        std::mem::take(&mut self.options)
    }

    /// Matches `field` exactly.
    pub fn set(&mut self, field: Field, value: u128) {
        self.set_masked(field, value, field.info().full_mask());
    }

    /// Matches the bits `mask` of `field`, replacing what was matched of it before.
    /// A VLAN id or priority implies that a tag is present; 0xffff as `dl_vlan` that none is (OpenFlow 1.0 section 5.2.3).
    /// ICMP types and codes are matched in the 16 bits where ports stand, so that all ways to say them are equal.
    pub fn set_masked(&mut self, field: Field, value: u128, mask: u128) {
        let mask = mask & field.info().full_mask();
        let (field, mask) = match as_port(field) {
            Some(port) => (port, mask | mask << 8),
            None => (field, mask),
        };
        let tagged = (self.key.0[layout::ETH_SRC] & 0x1000, self.mask.0[layout::ETH_SRC] & 0x1000);
        self.clear(field);
        match field {
            Field::DlVlan if mask != 0 && value == 0xffff => return self.set(Field::VlanTci, 0),
            Field::DlVlan | Field::DlVlanPcp | Field::VlanPcp if mask != 0 => self.set_tagged(0x1000, 0x1000),
            // One of two ways to ask for a tag is gone: it is still asked for if the other is left.
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

    /// Sets value and mask of the bit that tells that a VLAN tag is present.
    fn set_tagged(&mut self, value: u64, mask: u64) {
        let word = layout::ETH_SRC;
        self.key.0[word] = self.key.0[word] & !0x1000 | value;
        self.mask.0[word] = self.mask.0[word] & !0x1000 | mask;
    }

    /// Stops matching `field`.
    pub fn clear(&mut self, field: Field) {
        let whole = FlowKey::mask_of(as_port(field).unwrap_or(field));
        for i in 0..whole.0.len() {
            self.mask.0[i] &= !whole.0[i];
            self.key.0[i] &= !whole.0[i];
        }
    }

    /// Value and mask of `field`, right aligned.
    pub fn get(&self, field: Field) -> (u128, u128) {
        (self.key.get(field), self.mask.get(field))
    }

    /// Whether the whole of `field` is matched and has this value.
    pub fn is_exactly(&self, field: Field, value: u128) -> bool {
        self.get(field) == (value, field.info().full_mask())
    }

    /// Whether `key` matches, whatever its tunnel options.
    pub fn matches(&self, key: &FlowKey) -> bool {
        self.key.eq_masked(key, &self.mask)
    }

    /// Whether every key that matches `other` matches `self` too, whatever the tunnel options.
    pub fn contains(&self, other: &Self) -> bool {
        self.mask.0.iter().zip(&other.mask.0).all(|(a, b)| a & !b == 0) && self.key.eq_masked(&other.key, &self.mask)
    }

    /// Whether some key matches both, whatever the tunnel options.
    pub fn overlaps(&self, other: &Self) -> bool {
        let common = self.mask.masked(&other.mask);
        self.key.eq_masked(&other.key, &common)
    }
}

/// Where four bytes of a tunnel option stand in a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionPlace(u8);

impl OptionPlace {
    /// How many there are. (The last two are taken by what tells of each option whether the packet has it.)
    pub const COUNT: u8 = 2 * PRESENCE as u8;

    /// Place `n`, if there is one.
    pub fn new(n: u8) -> Option<Self> {
        (n < Self::COUNT).then_some(Self(n))
    }

    fn word(self) -> (usize, u8) {
        (layout::TUN_METADATA + usize::from(self.0 / 2), if self.0.is_multiple_of(2) { 32 } else { 0 })
    }

    fn get(self, key: &FlowKey) -> u32 {
        let (word, shift) = self.word();
        (key.0[word] >> shift) as u32
    }

    fn put(self, key: &mut FlowKey, value: u32) {
        let (word, shift) = self.word();
        key.0[word] = key.0[word] & !(0xffff_ffff << shift) | u64::from(value) << shift;
    }
}

/// The word of a key that has a bit for each option that the packet has, among those of options.
const PRESENCE: usize = layout::REGS - layout::TUN_METADATA - 1;

fn presence(index: u8) -> (usize, u64) {
    (layout::TUN_METADATA + PRESENCE, 1 << (index & 63))
}

/// The port in whose place an ICMP type or code stands.
fn as_port(field: Field) -> Option<Field> {
    match field {
        Field::Icmpv4Type | Field::Icmpv6Type => Some(Field::TcpSrc),
        Field::Icmpv4Code | Field::Icmpv6Code => Some(Field::TcpDst),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field::FIELDS;

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
        let places: Vec<OptionPlace> = [60, 7].into_iter().filter_map(OptionPlace::new).collect();
        for (value, mask) in [
            (&[0x12, 0x34, 0x56, 0x78, 0x9a][..], None),
            (&[], None),
            (&[1, 0, 0, 0, 2], Some(&[0xff, 0, 0, 0, 3][..])),
            (&[], Some(&[][..])),
        ] {
            let option = TunOption::new(Field::TunMetadata3, value, mask).expect("an option");
            let mut m = Match::ANY;
            assert!(m.place_option(&option, &places));
            assert_eq!(m.option_at(Field::TunMetadata3, &places), Some(option));
            // Another one that stands elsewhere is not matched.
            let other: Vec<OptionPlace> = OptionPlace::new(5).into_iter().collect();
            assert_eq!(m.option_at(Field::TunMetadata4, &other), None);
        }
        let long = TunOption::new(Field::TunMetadata3, &[1; 9], None).expect("an option");
        let mut m = Match::ANY;
        assert!(!m.place_option(&long, &places));
        assert_eq!(OptionPlace::new(62), None);
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
