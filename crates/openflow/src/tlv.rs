//! The mapping of the fields `tun_metadata0` to `tun_metadata63` to tunnel options (NXT_TLV_TABLE_MOD,
//! NXT_TLV_TABLE_REQUEST, NXT_TLV_TABLE_REPLY; ovs-fields(7), "Geneve Fields").

use crate::error::OfpError;
use crate::wire::{Reader, Result, Writer};

/// The number of fields that can be mapped.
pub const TLV_FIELDS: u16 = 64;
/// The largest value of an option in bytes.
pub const TLV_LEN_MAX: u8 = 124;

/// One mapping.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TlvMap {
    /// The option's class.
    pub class: u16,
    /// The option's type within the class.
    pub ty: u8,
    /// The length of its value in bytes: a multiple of 4, [`TLV_LEN_MAX`] at most.
    pub len: u8,
    /// The field's number.
    pub index: u16,
}

/// A command on the mappings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlvCommand {
    /// Add mappings.
    Add,
    /// Delete the mappings of these fields.
    Delete,
    /// Delete all mappings.
    Clear,
}

/// `NXT_TLV_TABLE_MOD`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlvTableMod {
    /// The command.
    pub command: TlvCommand,
    /// The mappings to add or delete.
    pub maps: Vec<TlvMap>,
}

/// `NXT_TLV_TABLE_REPLY`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlvTableReply {
    /// The total size that the values of all options may have, in bytes.
    pub max_option_space: u32,
    /// The number of fields that can be mapped.
    pub max_fields: u16,
    /// The current mappings.
    pub maps: Vec<TlvMap>,
}

impl TlvTableMod {
    /// Errors: `NXTTMFC_BAD_COMMAND`, `NXTTMFC_BAD_OPT_LEN`, `NXTTMFC_BAD_FIELD_IDX`.
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let command = match r.u16()? {
            0 => TlvCommand::Add,
            1 => TlvCommand::Delete,
            2 => TlvCommand::Clear,
            _ => return Err(OfpError::NxttmfcBadCommand),
        };
        r.skip(6)?;
        Ok(Self { command, maps: decode_maps(r, TLV_FIELDS)? })
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.put_u16(self.command as u16);
        out.zeros(6);
        encode_maps(&self.maps, out);
    }
}

impl TlvTableReply {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let (max_option_space, max_fields) = (r.u32()?, r.u16()?);
        r.skip(10)?;
        Ok(Self { max_option_space, max_fields, maps: decode_maps(r, max_fields)? })
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.put_u32(self.max_option_space);
        out.put_u16(self.max_fields);
        out.zeros(10);
        encode_maps(&self.maps, out);
    }
}

/// Reads mappings of fields below `fields`.
fn decode_maps(r: &mut Reader<'_>, fields: u16) -> Result<Vec<TlvMap>> {
    let mut maps = Vec::new();
    while !r.is_empty() {
        let map = TlvMap { class: r.u16()?, ty: r.u8()?, len: r.u8()?, index: r.u16()? };
        r.skip(2)?;
        if map.len > TLV_LEN_MAX || !map.len.is_multiple_of(4) {
            return Err(OfpError::NxttmfcBadOptLen);
        }
        if map.index >= fields {
            return Err(OfpError::NxttmfcBadFieldIdx);
        }
        maps.push(map);
    }
    Ok(maps)
}

fn encode_maps(maps: &[TlvMap], out: &mut Writer) {
    for map in maps {
        out.put_u16(map.class);
        out.put_u8(map.ty);
        out.put_u8(map.len);
        out.put_u16(map.index);
        out.zeros(2);
    }
}

/// Parses `{class=CLASS,type=TYPE,len=LENGTH}->tun_metadataN,...`, keeping the low bits of each number; `None` if the text is
/// malformed.
pub fn parse_tlv_maps(text: &str) -> Option<Vec<TlvMap>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    // Commas appear within braces too.
    text.split(",{").enumerate().map(|(n, map)| parse_map(if n == 0 { map.strip_prefix('{')? } else { map })).collect()
}

fn parse_map(text: &str) -> Option<TlvMap> {
    let (option, field) = text.split_once("}->tun_metadata")?;
    let mut numbers = option.splitn(3, ',');
    let mut number = |name: &str| {
        let text = numbers.next()?.strip_prefix(name)?;
        crate::action::parse::parse_uint(text, 64)
    };
    let (class, ty, len) = (number("class=")?, number("type=")?, number("len=")?);
    let index = field.parse::<u16>().ok().filter(|_| field.bytes().all(|b| b.is_ascii_digit()))?;
    Some(TlvMap { class: class as u16, ty: ty as u8, len: len as u8, index })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::print::{Style, print};
    use crate::{Message, Version, decode, encode};
    use proptest::prelude::*;

    fn maps() -> impl Strategy<Value = Vec<TlvMap>> {
        let map = (any::<u16>(), any::<u8>(), 0..=31u8, 0..TLV_FIELDS);
        prop::collection::vec(
            map.prop_map(|(class, ty, words, index)| TlvMap { class, ty, len: 4 * words, index }),
            0..6,
        )
    }

    tally::proptest! {
        #[test]
        fn messages_survive(maps in maps(), command in 0..3u8, space: u32, fields in TLV_FIELDS..) {
            let command = [TlvCommand::Add, TlvCommand::Delete, TlvCommand::Clear][usize::from(command)];
            let messages = [
                Message::TlvTableMod(TlvTableMod { command, maps: maps.clone() }),
                Message::TlvTableRequest,
                Message::TlvTableReply(TlvTableReply { max_option_space: space, max_fields: fields, maps }),
            ];
            for message in messages {
                for version in Version::ALL {
                    let read = decode(&encode(version, 7, &message)).map(|(_, _, message)| message);
                    prop_assert_eq!(read.as_ref(), Ok(&message));
                }
            }
        }

        #[test]
        fn text_is_read(maps in maps()) {
            let text: Vec<String> = maps
                .iter()
                .map(|m| format!("{{class={:#x},type={},len={}}}->tun_metadata{}", m.class, m.ty, m.len, m.index))
                .collect();
            prop_assert_eq!(parse_tlv_maps(&text.join(",")), Some(maps));
        }
    }

    #[test]
    fn bytes_and_text() {
        let maps =
            parse_tlv_maps("{class=0xffff,type=1,len=4}->tun_metadata0,{class=3,type=2,len=124}->tun_metadata63");
        let add = Message::TlvTableMod(TlvTableMod { command: TlvCommand::Add, maps: maps.expect("two mappings") });
        let bytes = encode(Version::V10, 4, &add);
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "010400280000000400002320000000180000000000000000ffff0104000000000003027c003f0000");
        assert_eq!(
            print(&bytes, Style::plain(0)),
            "NXT_TLV_TABLE_MOD (xid=0x4):\n ADD mapping table:\n  class  type  length  match field\n \
             ------  ----  ------  --------------\n 0xffff   0x1       4  tun_metadata0\n    0x3   0x2     124  tun_metadata63\n"
        );
    }

    #[test]
    fn malformed_input_is_refused() {
        for (body, error) in [
            ("0003000000000000", OfpError::NxttmfcBadCommand),
            ("0000000000000000 ffff010500000000", OfpError::NxttmfcBadOptLen),
            ("0000000000000000 ffff018000000000", OfpError::NxttmfcBadOptLen),
            ("0000000000000000 ffff010400400000", OfpError::NxttmfcBadFieldIdx),
        ] {
            let digits: Vec<u8> = body.chars().filter_map(|c| c.to_digit(16)).map(|d| d as u8).collect();
            let body: Vec<u8> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
            let mut bytes = vec![4, 4, 0, 16 + body.len() as u8, 0, 0, 0, 1, 0, 0, 0x23, 0x20, 0, 0, 0, 24];
            bytes.extend(body);
            assert_eq!(decode(&bytes).map(drop).map_err(|e| e.error), Err(error), "{bytes:02x?}");
        }
        for text in [
            "class=1",
            "{class=1}->tun_metadata0",
            "{class=x,type=1,len=4}->tun_metadata0",
            "{class=1,type=1,len=4}->reg0",
            "{class=1,type=1,len=4}->tun_metadata",
            "{class=1,type=1,len=4}->tun_metadata1x",
            "{class=1,type=1,len=4}->tun_metadata1 {class=1,type=2,len=4}->tun_metadata2",
        ] {
            assert_eq!(parse_tlv_maps(text), None, "{text}");
        }
    }
}
