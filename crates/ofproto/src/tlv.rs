//! The table of a bridge that maps tunnel options to the fields `tun_metadata0` to `tun_metadata63`.
//!
//! In messages, options are values beside a match's key; in flow tables, bits of the key at a place that the table assigns. A
//! field that flows use stays mapped, so that the meaning of its bits does not change.

use crate::bridge::Ofproto;
use crate::flow_table::Criteria;
use flow::{Field, FlowKey, Match, OptionPlace, OptionTable, PlacedOption, TunOption};
use openflow::tlv::{TLV_FIELDS, TlvCommand, TlvMap, TlvTableMod, TlvTableReply};
use openflow::wire::OptionLengths;
use openflow::{Action, FlowMod, OfpError};
use std::collections::BTreeMap;
use xlate::Rule;

/// The total size of the values of all mapped options in a flow key, in bytes.
const SPACE: u32 = 4 * OptionPlace::COUNT as u32;

/// The mapped options by the numbers of their fields, with their places in the key.
#[derive(Debug, Default)]
pub(crate) struct TlvTable(BTreeMap<u16, (TlvMap, PlacedOption)>);

impl Ofproto {
    /// Changes the mapping of tunnel options.
    ///
    /// Errors: those of [`TlvTable::change`], and `NXTTMFC_INVALID_TLV_DEL` for a field that a flow uses.
    pub(crate) fn change_tlvs(&self, change: &TlvTableMod) -> Result<(), OfpError> {
        {
            let mut tlvs = self.tlvs.lock();
            self.check_unused(&tlvs, change)?;
            tlvs.change(change)?;
            self.connections().set_option_lengths(tlvs.lengths());
        }
        // Translations have a copy of their own.
        self.rebuild();
        Ok(())
    }

    /// Refuses to unmap fields that flows use.
    fn check_unused(&self, tlvs: &TlvTable, change: &TlvTableMod) -> Result<(), OfpError> {
        let goes = |index: u16| match change.command {
            TlvCommand::Add => false,
            TlvCommand::Delete => change.maps.iter().any(|map| map.index == index),
            TlvCommand::Clear => true,
        };
        let going: Vec<u16> = tlvs.0.keys().copied().filter(|index| goes(*index)).collect();
        if !going.is_empty() && self.collect(&Criteria::any()).iter().any(|rule| tlvs.is_used(rule, &going)) {
            return Err(OfpError::NxttmfcInvalidTlvDel);
        }
        Ok(())
    }

    /// The places of options in keys, for translations.
    pub(crate) fn option_table(&self) -> OptionTable {
        self.tlvs.lock().0.values().map(|(_, placed)| placed.clone()).collect()
    }

    /// The mapping of tunnel options.
    pub(crate) fn tlvs(&self) -> TlvTableReply {
        self.tlvs.lock().reply()
    }

    /// Converts the options of a match to bits of its key.
    ///
    /// Errors: `NXFMFC_INVALID_TLV_FIELD` for an unmapped option, `OFPBMC_BAD_LEN` for one longer than its mapping.
    pub(crate) fn place_options(&self, matching: &mut Match) -> Result<(), OfpError> {
        if matching.options().is_empty() { Ok(()) } else { self.tlvs.lock().place(matching) }
    }

    /// Does the same for a flow, whose actions may use mapped options only.
    pub(crate) fn place_options_of(&self, fm: &mut FlowMod) -> Result<(), OfpError> {
        self.place_options(&mut fm.matching)?;
        self.check_options(&fm.actions)
    }

    /// Refuses actions that use unmapped options, or bits beyond their length.
    ///
    /// Errors: `NXFMFC_INVALID_TLV_FIELD`, `OFPBAC_BAD_SET_LEN`.
    pub(crate) fn check_options(&self, actions: &[Action]) -> Result<(), OfpError> {
        let mut named = Vec::new();
        actions.iter().for_each(|action| action.tunnel_options(&mut |field, bits| named.push((field, bits))));
        if named.is_empty() {
            return Ok(());
        }
        let tlvs = self.tlvs.lock();
        named.iter().try_for_each(|(field, n_bits)| {
            let mapped = index_of(*field).and_then(|index| tlvs.0.get(&index));
            let (_, placed) = mapped.ok_or(OfpError::NxfmfcInvalidTlvField)?;
            if *n_bits <= placed.n_bits() { Ok(()) } else { Err(OfpError::BacBadSetLen) }
        })
    }

    /// The options of a packet with this key.
    pub(crate) fn options_of(&self, key: &FlowKey) -> Vec<TunOption> {
        if key.0[flow::layout::TUN_METADATA..flow::layout::REGS].iter().all(|word| *word == 0) {
            return Vec::new();
        }
        let tlvs = self.tlvs.lock();
        tlvs.0.values().filter_map(|(_, placed)| Match::new(key, placed.whole()).option_at(placed)).collect()
    }

    /// The match of a rule in the form for controllers: with options as values.
    pub(crate) fn match_of(&self, rule: &Rule) -> Match {
        let mut matching = rule.minimatch.expand();
        self.extract_options(&mut matching);
        matching
    }

    /// Adds the options whose bits are matched as values.
    pub(crate) fn extract_options(&self, matching: &mut Match) {
        if matching.mask().0[flow::layout::TUN_METADATA..flow::layout::REGS].iter().any(|word| *word != 0) {
            self.tlvs.lock().extract(matching);
        }
    }
}

/// Copies the options of a match into a key.
pub(crate) fn put_options(key: &mut FlowKey, matching: &Match) {
    for word in flow::layout::TUN_METADATA..flow::layout::REGS {
        key.0[word] = key.0[word] & !matching.mask().0[word] | matching.key().0[word];
    }
}

/// The field with this number.
fn field_of(index: u16) -> Option<Field> {
    Field::from_name(&format!("tun_metadata{index}"))
}

/// The number of a `tun_metadata` field.
fn index_of(field: Field) -> Option<u16> {
    if let flow::Loc::TunMetadata(index) = field.info().loc { Some(index.into()) } else { None }
}

impl TlvTable {
    /// Applies a change, or nothing of it if it fails.
    ///
    /// Errors: `NXTTMFC_ALREADY_MAPPED` for a field, `NXTTMFC_DUP_ENTRY` for an option that is mapped to another field,
    /// `NXTTMFC_TABLE_FULL`.
    fn change(&mut self, change: &TlvTableMod) -> Result<(), OfpError> {
        match change.command {
            TlvCommand::Add => self.add(&change.maps)?,
            // Deleting an unmapped field does nothing.
            TlvCommand::Delete => self.0.retain(|index, _| change.maps.iter().all(|map| map.index != *index)),
            TlvCommand::Clear => self.0.clear(),
        }
        Ok(())
    }

    fn add(&mut self, added: &[TlvMap]) -> Result<(), OfpError> {
        let mut table = self.0.clone();
        for map in added {
            if table.contains_key(&map.index) {
                return Err(OfpError::NxttmfcAlreadyMapped);
            }
            if table.values().any(|(old, _)| (old.class, old.ty) == (map.class, map.ty)) {
                return Err(OfpError::NxttmfcDupEntry);
            }
            let taken: Vec<OptionPlace> = table.values().flat_map(|(_, placed)| placed.places().to_vec()).collect();
            let free = (0..OptionPlace::COUNT).filter_map(OptionPlace::new).filter(|place| !taken.contains(place));
            let places: Vec<OptionPlace> = free.take(usize::from(map.len / 4)).collect();
            if places.len() < usize::from(map.len / 4) {
                return Err(OfpError::NxttmfcTableFull);
            }
            let placed = field_of(map.index).and_then(|field| PlacedOption::new(field, &places));
            let placed = placed.map(|placed| placed.with_id(map.class, map.ty));
            table.insert(map.index, (*map, placed.ok_or(OfpError::NxttmfcBadFieldIdx)?));
        }
        self.0 = table;
        Ok(())
    }

    /// The table in the form for controllers.
    fn reply(&self) -> TlvTableReply {
        let maps = self.0.values().map(|(map, _)| *map).collect();
        TlvTableReply { max_option_space: SPACE, max_fields: TLV_FIELDS, maps }
    }

    /// The lengths of the mapped options.
    fn lengths(&self) -> OptionLengths {
        let mut lengths = OptionLengths::NONE;
        self.0.values().for_each(|(map, _)| lengths.set(map.index, map.len));
        lengths
    }

    fn place(&self, matching: &mut Match) -> Result<(), OfpError> {
        for option in matching.take_options() {
            let (_, placed) = self.0.get(&option.index().into()).ok_or(OfpError::NxfmfcInvalidTlvField)?;
            if !matching.place_option(&option, placed) {
                return Err(OfpError::BmcBadLen);
            }
        }
        Ok(())
    }

    fn extract(&self, matching: &mut Match) {
        for (_, placed) in self.0.values() {
            if let Some(option) = matching.option_at(placed) {
                matching.set_option(option);
            }
        }
    }

    /// Returns true if a rule's match or its actions use one of these fields.
    fn is_used(&self, rule: &Rule, fields: &[u16]) -> bool {
        let mut matching = rule.minimatch.expand();
        self.extract(&mut matching);
        let mut used = matching.options().iter().any(|option| fields.contains(&option.index().into()));
        let mut note = |field, _| used |= index_of(field).is_some_and(|index| fields.contains(&index));
        rule.actions.iter().for_each(|action| action.tunnel_options(&mut note));
        used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(ty: u8, len: u8, index: u16) -> TlvMap {
        TlvMap { class: 0xffff, ty, len, index }
    }

    #[test]
    fn a_change_is_atomic() {
        let mut table = TlvTable::default();
        let mut change = |command, maps: &[TlvMap]| {
            let result = table.change(&TlvTableMod { command, maps: maps.to_vec() });
            (result, table.reply().maps)
        };
        let (first, big) = (map(0, 8, 5), [map(1, 124, 1), map(2, 124, 2)]);
        assert_eq!(change(TlvCommand::Add, &[first]), (Ok(()), vec![first]));
        assert_eq!(change(TlvCommand::Add, &[map(3, 4, 5)]), (Err(OfpError::NxttmfcAlreadyMapped), vec![first]));
        assert_eq!(change(TlvCommand::Add, &[map(0, 4, 6)]), (Err(OfpError::NxttmfcDupEntry), vec![first]));
        assert_eq!(change(TlvCommand::Add, &[big[0], map(1, 4, 7)]), (Err(OfpError::NxttmfcDupEntry), vec![first]));
        assert_eq!(change(TlvCommand::Add, &big), (Ok(()), vec![big[0], big[1], first]));
        let full = (Err(OfpError::NxttmfcTableFull), vec![big[0], big[1], first]);
        assert_eq!(change(TlvCommand::Add, &[map(9, 4, 9)]), full);
        // The field counts, whichever option the command names.
        assert_eq!(change(TlvCommand::Delete, &[map(77, 8, 1), map(78, 8, 60)]), (Ok(()), vec![big[1], first]));
        assert_eq!(change(TlvCommand::Clear, &[]), (Ok(()), vec![]));
    }

    #[test]
    fn options_round_trip_through_the_key() {
        let mut table = TlvTable::default();
        // An option may take several pieces of the key.
        assert_eq!(table.add(&[map(1, 120, 1), map(2, 4, 2), map(3, 120, 3)]), Ok(()));
        table.0.remove(&1);
        table.0.remove(&3);
        assert_eq!(table.add(&[map(4, 124, 4), map(5, 120, 5)]), Ok(()));
        let wide = format!("0x{}", "a5".repeat(124));
        for text in [
            "tun_metadata2=0x5",
            "tun_metadata2",
            "tun_metadata2=0x1/0x3",
            &format!("tun_metadata4={wide},tun_metadata5=0"),
        ] {
            let parsed = flow::text::parse_match(text, &flow::NoNames).expect(text);
            let mut m = parsed.clone();
            assert_eq!(table.place(&mut m), Ok(()), "{text}");
            assert!(m.options().is_empty() && m != Match::ANY);
            table.extract(&mut m);
            assert_eq!(m.options(), parsed.options(), "{text}");
        }
        for (text, error) in
            [("tun_metadata1=5", OfpError::NxfmfcInvalidTlvField), ("tun_metadata2=0x123456789a", OfpError::BmcBadLen)]
        {
            let mut m = flow::text::parse_match(text, &flow::NoNames).expect(text);
            assert_eq!(table.place(&mut m), Err(error), "{text}");
        }
    }
}
