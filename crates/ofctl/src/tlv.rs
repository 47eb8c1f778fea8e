//! Commands for the mapping of tunnel options to fields.

use crate::error::{Result, fatal};
use crate::options::Context;
use crate::switch::{Target, dump, open, open_for_flow_mods, transact_noreply};
use openflow::message::Options;
use openflow::tlv::{TlvCommand, TlvMap, TlvTableMod, parse_tlv_maps};
use openflow::{Message, Protocols};

fn maps(text: &str) -> Result<Vec<TlvMap>> {
    parse_tlv_maps(text).ok_or_else(|| fatal("invalid tlv mapping"))
}

fn change(c: &Context, switch: &str, command: TlvCommand, maps: Vec<TlvMap>) -> Result {
    let (mut conn, _) = open_for_flow_mods(c, switch, Protocols::EXTENDED)?;
    transact_noreply(c, &mut conn, &Message::TlvTableMod(TlvTableMod { command, maps }), Options::default())
}

/// Maps options.
pub fn add_tlv_map(c: &Context, a: &[String]) -> Result {
    change(c, &a[0], TlvCommand::Add, maps(&a[1])?)
}

/// Deletes mappings, or all mappings.
pub fn del_tlv_map(c: &Context, a: &[String]) -> Result {
    match a.get(1) {
        Some(text) => change(c, &a[0], TlvCommand::Delete, maps(text)?),
        None => change(c, &a[0], TlvCommand::Clear, Vec::new()),
    }
}

/// Prints the mappings.
pub fn dump_tlv_map(c: &Context, a: &[String]) -> Result {
    let mut conn = open(c, &a[0], Target::Mgmt)?;
    dump(c, &a[0], &mut conn, &Message::TlvTableRequest)
}
