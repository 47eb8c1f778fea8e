//! The table of a bridge that maps tunnel options to the fields `tun_metadata0` to `tun_metadata63`.

use crate::bridge::Ofproto;
use openflow::OfpError;
use openflow::tlv::{TLV_FIELDS, TlvCommand, TlvMap, TlvTableMod, TlvTableReply};

impl Ofproto {
    /// Changes the mapping of tunnel options.
    ///
    /// Errors: those of [`TlvTable::change`].
    pub(crate) fn change_tlvs(&self, change: &TlvTableMod) -> Result<(), OfpError> {
        self.tlvs.lock().change(change)
    }

    /// The mapping of tunnel options.
    pub(crate) fn tlvs(&self) -> TlvTableReply {
        self.tlvs.lock().reply()
    }
}

/// Bytes that the values of all mapped options have in a flow key.
const SPACE: u32 = 256;

/// Which options are mapped, in the order of their fields.
#[derive(Debug, Default)]
pub(crate) struct TlvTable(Vec<TlvMap>);

impl TlvTable {
    /// Changes the table, all of it or nothing.
    ///
    /// Errors: `NXTTMFC_ALREADY_MAPPED` for a field, `NXTTMFC_DUP_ENTRY` for an option that another field stands for,
    /// `NXTTMFC_TABLE_FULL`.
    pub(crate) fn change(&mut self, change: &TlvTableMod) -> Result<(), OfpError> {
        match change.command {
            TlvCommand::Add => self.0 = self.with(&change.maps)?,
            // A field that is not mapped stays so.
            TlvCommand::Delete => self.0.retain(|old| change.maps.iter().all(|map| map.index != old.index)),
            TlvCommand::Clear => self.0.clear(),
        }
        Ok(())
    }

    fn with(&self, added: &[TlvMap]) -> Result<Vec<TlvMap>, OfpError> {
        let mut maps = self.0.clone();
        for map in added {
            if maps.iter().any(|old| old.index == map.index) {
                return Err(OfpError::NxttmfcAlreadyMapped);
            }
            if maps.iter().any(|old| (old.class, old.ty) == (map.class, map.ty)) {
                return Err(OfpError::NxttmfcDupEntry);
            }
            let used: u32 = maps.iter().map(|old| u32::from(old.len)).sum();
            if used + u32::from(map.len) > SPACE {
                return Err(OfpError::NxttmfcTableFull);
            }
            maps.push(*map);
        }
        maps.sort_by_key(|map| map.index);
        Ok(maps)
    }

    /// What a controller is told.
    pub(crate) fn reply(&self) -> TlvTableReply {
        TlvTableReply { max_option_space: SPACE, max_fields: TLV_FIELDS, maps: self.0.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(ty: u8, len: u8, index: u16) -> TlvMap {
        TlvMap { class: 0xffff, ty, len, index }
    }

    #[test]
    fn a_change_is_made_whole_or_not_at_all() {
        let mut table = TlvTable::default();
        let mut change = |command, maps: &[TlvMap]| {
            let result = table.change(&TlvTableMod { command, maps: maps.to_vec() });
            (result, table.reply().maps)
        };
        let (first, big) = (map(0, 4, 5), [map(1, 124, 1), map(2, 124, 2)]);
        assert_eq!(change(TlvCommand::Add, &[first]), (Ok(()), vec![first]));
        assert_eq!(change(TlvCommand::Add, &[map(3, 4, 5)]), (Err(OfpError::NxttmfcAlreadyMapped), vec![first]));
        assert_eq!(change(TlvCommand::Add, &[map(0, 4, 6)]), (Err(OfpError::NxttmfcDupEntry), vec![first]));
        assert_eq!(change(TlvCommand::Add, &[big[0], map(1, 4, 7)]), (Err(OfpError::NxttmfcDupEntry), vec![first]));
        assert_eq!(change(TlvCommand::Add, &big), (Ok(()), vec![big[0], big[1], first]));
        let full = (Err(OfpError::NxttmfcTableFull), vec![big[0], big[1], first]);
        assert_eq!(change(TlvCommand::Add, &[map(9, 8, 9)]), full);
        // The field counts, whatever option is named.
        assert_eq!(change(TlvCommand::Delete, &[map(77, 8, 1), map(78, 8, 60)]), (Ok(()), vec![big[1], first]));
        assert_eq!(change(TlvCommand::Clear, &[]), (Ok(()), vec![]));
    }
}
