//! Prints mappings of tunnel options.

use crate::tlv::{TlvCommand, TlvMap, TlvTableMod, TlvTableReply};
use std::fmt::Write;

fn maps(maps: &[TlvMap], out: &mut String) {
    out.push_str(" mapping table:\n  class  type  length  match field\n ------  ----  ------  --------------");
    for map in maps {
        let number = |n: u16| if n == 0 { "0".to_owned() } else { format!("{n:#x}") };
        put!(
            out,
            "\n {:>6}  {:>4}  {:>6}  tun_metadata{}",
            number(map.class),
            number(map.ty.into()),
            map.len,
            map.index
        );
    }
}

/// Appends a change of the mappings.
pub(super) fn table_mod(m: &TlvTableMod, out: &mut String) {
    out.push_str(match m.command {
        TlvCommand::Add => "\n ADD",
        TlvCommand::Delete => "\n DEL",
        TlvCommand::Clear => "\n CLEAR",
    });
    if m.command != TlvCommand::Clear {
        maps(&m.maps, out);
    }
}

/// Appends the current mappings.
pub(super) fn reply(reply: &TlvTableReply, out: &mut String) {
    let allocated: u32 = reply.maps.iter().map(|map| u32::from(map.len)).sum();
    put!(out, "\n max option space={} max fields={}", reply.max_option_space, reply.max_fields);
    put!(out, "\n allocated option space={allocated}\n\n");
    maps(&reply.maps, out);
}
