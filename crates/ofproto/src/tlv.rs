//! The table of a bridge that maps tunnel options to the fields `tun_metadata0` to `tun_metadata63`.
//!
//! In messages, options are values beside a match's key; in flow tables, bits of the key at a place that the table assigns. A
//! field that flows use stays mapped, so that the meaning of its bits does not change.

use crate::bridge::Ofproto;
use crate::flow_table::Criteria;
use crate::switch::Switch;
use flow::{Field, FlowKey, Match, OptionPlace, OptionTable, PlacedOption, ReceivedOptions, TunOption};
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

/// The places in keys of the options that bridges map. Bridges that map the same option share them, so that the key of a received
/// packet has each of its options once.
#[derive(Debug, Default)]
pub(crate) struct OptionSpace(Vec<SharedOption>);

#[derive(Debug)]
struct SharedOption {
    placed: PlacedOption,
    slot: u8,
    bridges: usize,
}

impl OptionSpace {
    /// The place of an option for a field. `None` if there is no space left.
    fn take(&mut self, map: &TlvMap, field: Field) -> Option<PlacedOption> {
        let n_places = usize::from(map.len / 4);
        let same = |option: &&mut SharedOption| {
            option.placed.id() == (map.class, map.ty) && option.placed.places().len() == n_places
        };
        let mapped = |places: &[OptionPlace], slot| {
            PlacedOption::new(field, places).map(|placed| placed.with_id(map.class, map.ty).with_presence(slot))
        };
        if let Some(option) = self.0.iter_mut().find(same) {
            let placed = mapped(option.placed.places(), option.slot)?;
            option.bridges += 1;
            return Some(placed);
        }
        let is_taken = |place: &OptionPlace| self.0.iter().any(|option| option.placed.places().contains(place));
        let free = (0..OptionPlace::COUNT).filter_map(OptionPlace::new).filter(|place| !is_taken(place));
        let places: Vec<OptionPlace> = free.take(n_places).collect();
        let slot = (0..64).find(|slot| self.0.iter().all(|option| option.slot != *slot))?;
        let placed = mapped(&places, slot).filter(|_| places.len() == n_places)?;
        self.0.push(SharedOption { placed: placed.clone(), slot, bridges: 1 });
        Some(placed)
    }

    /// Gives up the place of an option.
    fn release(&mut self, placed: &PlacedOption) {
        for option in &mut self.0 {
            let is_it = (option.placed.id(), option.placed.places()) == (placed.id(), placed.places());
            option.bridges -= usize::from(is_it);
        }
        self.0.retain(|option| option.bridges > 0);
    }

    /// All of them.
    pub(crate) fn all(&self) -> ReceivedOptions {
        self.0.iter().map(|option| option.placed.clone()).collect()
    }
}

impl Ofproto {
    /// Changes the mapping of tunnel options.
    ///
    /// Errors: those of [`TlvTable::change`], and `NXTTMFC_INVALID_TLV_DEL` for a field that a flow uses.
    pub(crate) fn change_tlvs(&self, change: &TlvTableMod) -> Result<(), OfpError> {
        {
            let mut tlvs = self.tlvs.lock();
            self.check_unused(&tlvs, change)?;
            match self.switch() {
                Some(switch) => switch.with_options(|space| tlvs.change(change, space))?,
                // Its switch is gone, and packets with it.
                None => tlvs.change(change, &mut OptionSpace::default())?,
            }
            self.connections().set_option_lengths(tlvs.lengths());
        }
        // Translations have a copy of their own.
        self.rebuild();
        Ok(())
    }

    /// Unmaps everything, as the bridge goes.
    pub(crate) fn clear_tlvs(&self, switch: &Switch) {
        let gone = std::mem::take(&mut *self.tlvs.lock());
        switch.with_options(|space| gone.0.values().for_each(|(_, placed)| space.release(placed)));
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
    fn change(&mut self, change: &TlvTableMod, space: &mut OptionSpace) -> Result<(), OfpError> {
        let (goes, maps): (&dyn Fn(u16) -> bool, _) = match change.command {
            TlvCommand::Add => {
                let mut added = Vec::new();
                return self.add(&change.maps, space, &mut added).inspect_err(|_| {
                    added
                        .iter()
                        .filter_map(|index| self.0.remove(index))
                        .for_each(|(_, placed)| space.release(&placed));
                });
            }
            TlvCommand::Delete => (&|index| change.maps.iter().any(|map| map.index == index), &mut self.0),
            TlvCommand::Clear => (&|_| true, &mut self.0),
        };
        // Deleting an unmapped field does nothing.
        maps.retain(|index, (_, placed)| {
            let goes = goes(*index);
            if goes {
                space.release(placed);
            }
            !goes
        });
        Ok(())
    }

    fn add(&mut self, maps: &[TlvMap], space: &mut OptionSpace, added: &mut Vec<u16>) -> Result<(), OfpError> {
        for map in maps {
            if self.0.contains_key(&map.index) {
                return Err(OfpError::NxttmfcAlreadyMapped);
            }
            if self.0.values().any(|(old, _)| (old.class, old.ty) == (map.class, map.ty)) {
                return Err(OfpError::NxttmfcDupEntry);
            }
            let field = field_of(map.index).ok_or(OfpError::NxttmfcBadFieldIdx)?;
            let placed = space.take(map, field).ok_or(OfpError::NxttmfcTableFull)?;
            self.0.insert(map.index, (*map, placed));
            added.push(map.index);
        }
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
        let (mut table, mut space) = (TlvTable::default(), OptionSpace::default());
        let mut change = |command, maps: &[TlvMap]| {
            let result = table.change(&TlvTableMod { command, maps: maps.to_vec() }, &mut space);
            assert_eq!(space.0.len(), table.0.len());
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
    fn bridges_share_the_places_of_an_option() {
        let mut space = OptionSpace::default();
        let (mut one, mut other) = (TlvTable::default(), TlvTable::default());
        let change = |command, maps: &[TlvMap]| TlvTableMod { command, maps: maps.to_vec() };
        assert_eq!(one.change(&change(TlvCommand::Add, &[map(1, 8, 0), map(2, 124, 1)]), &mut space), Ok(()));
        assert_eq!(other.change(&change(TlvCommand::Add, &[map(1, 8, 5), map(2, 116, 6)]), &mut space), Ok(()));
        let placed = |table: &TlvTable, index| table.0[&index].1.clone();
        assert_eq!(placed(&one, 0).whole(), placed(&other, 5).whole());
        assert_ne!(placed(&one, 1).presence(), placed(&other, 6).presence());
        // The space is used up by all bridges together; a failed change takes nothing.
        let full = change(TlvCommand::Add, &[map(3, 4, 7), map(4, 8, 8)]);
        assert_eq!(other.change(&full, &mut space), Err(OfpError::NxttmfcTableFull));
        assert_eq!((space.0.len(), other.0.len()), (3, 2));
        assert_eq!(one.change(&change(TlvCommand::Clear, &[]), &mut space), Ok(()));
        assert_eq!(space.0.len(), 2);
        assert_eq!(other.change(&full, &mut space), Ok(()));
    }

    #[test]
    fn options_round_trip_through_the_key() {
        let (mut table, mut space) = (TlvTable::default(), OptionSpace::default());
        let mut change =
            |command, maps: &[TlvMap]| table.change(&TlvTableMod { command, maps: maps.to_vec() }, &mut space);
        // An option may take several pieces of the key.
        assert_eq!(change(TlvCommand::Add, &[map(1, 120, 1), map(2, 4, 2), map(3, 120, 3)]), Ok(()));
        assert_eq!(change(TlvCommand::Delete, &[map(1, 120, 1), map(3, 120, 3)]), Ok(()));
        assert_eq!(change(TlvCommand::Add, &[map(4, 124, 4), map(5, 120, 5)]), Ok(()));
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
