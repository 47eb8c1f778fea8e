//! Flow mods.

use super::{ALL_TABLES, EMERGENCY, read_flags, table, wire_flags};
use crate::Version::{self, V10, V14};
use crate::action::check::{Limits, check_verified};
use crate::body::{
    put_flow_actions, put_match10, put_nxm, put_oxm_match, read_flow_actions_into, read_match10, read_nxm_into,
    read_oxm_match_into,
};
use crate::error::OfpError;
use crate::flow_mod::{FlowMod, FlowModCommand};
use crate::of_match::{OF10_LEN, of10_is_exact};
use crate::wire::{Reader, Result, Writer};
use flow::{Match, NoNames};
use vlog::{Admission, RateLimit};

/// Bytes of the fields before the match, from OpenFlow 1.1 on.
const FIELDS_LEN: usize = 40;
/// Bytes of the fields that OpenFlow 1.0's and Nicira's form share.
const COMMON10_LEN: usize = 24;
const NO_BUFFER: u32 = u32::MAX;

fn command(n: u16) -> Result<FlowModCommand> {
    u8::try_from(n).ok().and_then(FlowModCommand::from_wire).ok_or(OfpError::FmfcBadCommand)
}

fn is_delete(c: FlowModCommand) -> bool {
    matches!(c, FlowModCommand::Delete | FlowModCommand::DeleteStrict)
}

/// Splits the 16-bit command field of OpenFlow 1.0 into command and table: with Nicira's table_id extension the upper byte is
/// the table, 0xff for none.
fn command10(field: u16, table_id_ext: bool) -> Result<(FlowModCommand, Option<u8>)> {
    if !table_id_ext {
        return Ok((command(field)?, None));
    }
    Ok((command(field & 0xff)?, table((field >> 8) as u8)))
}

fn command_field10(fm: &FlowMod, table_id_ext: bool) -> u16 {
    let table = if table_id_ext { fm.table_id.unwrap_or(ALL_TABLES) } else { 0 };
    u16::from(table) << 8 | fm.command as u16
}

/// Reads the part that OpenFlow 1.0's and Nicira's form share, from the cookie to the flags. Returns the flags as on the wire.
fn read_common10(r: &mut Reader<'_>, table_id_ext: bool, fm: &mut FlowMod) -> Result<u16> {
    fm.new_cookie = r.u64()?;
    (fm.command, fm.table_id) = command10(r.u16()?, table_id_ext)?;
    fm.modify_cookie = fm.new_cookie != FlowMod::KEEP_COOKIE;
    fm.idle_timeout = r.u16()?;
    fm.hard_timeout = r.u16()?;
    fm.priority = r.u16()?;
    let buffer = r.u32()?;
    fm.buffer_id = (buffer != NO_BUFFER).then_some(buffer);
    // Only deletions use it, but other commands report a bad one too.
    fm.out_port = r.port10()?;
    r.u16()
}

fn put_common10(fm: &FlowMod, version: Version, table_id_ext: bool, out: &mut Writer) {
    out.put_u64(fm.new_cookie);
    out.put_u16(command_field10(fm, table_id_ext));
    out.put_u16(fm.idle_timeout);
    out.put_u16(fm.hard_timeout);
    out.put_u16(fm.priority);
    out.put_u32(fm.buffer_id.unwrap_or(NO_BUFFER));
    out.put_u16(fm.out_port.to_of10());
    out.put_u16(wire_flags(version, fm.flags));
}

/// Sets the flags, and refuses actions that no switch could accept for a flow with this match.
fn finish(fm: &mut FlowMod, flags: u16, version: Version) -> Result<()> {
    fm.flags = read_flags(version, flags)?;
    if version == V10 && flags & EMERGENCY != 0 {
        // There are no emergency flows, and OpenFlow 1.0 has an error of its own for those with timeouts (section 5.3.3).
        let has_timeout = fm.idle_timeout != 0 || fm.hard_timeout != 0;
        return Err(if has_timeout { OfpError::FmfcBadEmergTimeout } else { OfpError::FmfcTableFull });
    }
    let limits = Limits { n_tables: ALL_TABLES, ..Limits::new(version, fm.table_id.unwrap_or(ALL_TABLES)) };
    check_verified(&fm.actions, &fm.matching, &limits)
}

/// Reads `OFPT_FLOW_MOD` into `fm`, replacing its contents. `table_id_ext`: whether Nicira's table_id extension is on (OpenFlow
/// 1.0 only). After an error the contents of `fm` are unspecified.
pub(crate) fn decode_flow_mod(
    version: Version,
    table_id_ext: bool,
    r: &mut Reader<'_>,
    fm: &mut FlowMod,
) -> Result<()> {
    fm.reset(FlowModCommand::Add);
    if version == V10 {
        let exact = r.peek().get(..OF10_LEN).is_some_and(of10_is_exact);
        fm.matching = read_match10(r)?;
        keep_meaningful(&mut fm.matching);
        let flags = read_common10(r, table_id_ext, fm)?;
        if exact {
            // A flow without wildcards has the highest priority, whatever the message says (section 3.4).
            fm.priority = u16::MAX;
        }
        read_flow_actions_into(V10, r, &mut fm.actions)?;
        return finish(fm, flags, V10);
    }
    // Errors in the match are reported before errors in the fields that precede it.
    let mut fields = r.sub(FIELDS_LEN)?;
    read_oxm_match_into(version, r, &mut fm.matching)?;
    let flags = read_fields(version, &mut fields, fm)?;
    read_flow_actions_into(version, r, &mut fm.actions)?;
    finish(fm, flags, version)
}

/// Removes fields that have no meaning, as the match lacks their prerequisites (OpenFlow 1.0 section 5.2.3).
fn keep_meaningful(matching: &mut Match) {
    static LIMIT: RateLimit = RateLimit::new(10, 10);
    let Some(change) = matching.keep_meaningful(&NoNames) else { return };
    if let Admission::Pass { dropped } = LIMIT.admit_now("ofp_match") {
        let dropped = dropped.map(|dropped| dropped.to_string());
        for line in dropped.into_iter().chain(change.lines()) {
            tracing::info!(target: "ofp_match", "{line}");
        }
    }
}

/// Reads the fields before the match, from OpenFlow 1.1 on. Returns the flags as on the wire.
fn read_fields(version: Version, r: &mut Reader<'_>, fm: &mut FlowMod) -> Result<u16> {
    let (cookie, cookie_mask) = (r.u64()?, r.u64()?);
    let (table_id, command) = (table(r.u8()?), command(r.u8()?.into()));
    // OpenFlow 1.2 and later accept "all tables", for deletions only.
    if table_id.is_none() && !(version > Version::V11 && command.is_ok_and(is_delete)) {
        return Err(OfpError::FmfcBadTableId);
    }
    let out_port = r.clone().sub(14).and_then(|mut r| r.skip(10).and_then(|()| r.port11()))?;
    let command = command?;
    fm.command = command;
    if command == FlowModCommand::Add || adds_if_missing(version, command, cookie_mask) {
        fm.new_cookie = cookie;
    } else {
        (fm.cookie, fm.cookie_mask, fm.new_cookie) = (cookie, cookie_mask, FlowMod::KEEP_COOKIE);
    }
    fm.table_id = table_id;
    fm.idle_timeout = r.u16()?;
    fm.hard_timeout = r.u16()?;
    fm.priority = r.u16()?;
    let buffer = r.u32()?;
    fm.buffer_id = (buffer != NO_BUFFER).then_some(buffer);
    r.skip(4)?;
    let out_group = r.u32()?;
    // Only deletions use it, but other commands report a bad one too.
    fm.out_port = out_port;
    if is_delete(command) {
        fm.out_group = out_group;
    }
    let flags = r.u16()?;
    let importance = r.u16()?;
    fm.importance = if version >= V14 && command == FlowModCommand::Add { importance } else { 0 };
    Ok(flags)
}

/// Returns true if a modification that finds no flow adds it: in OpenFlow 1.1, unless it matches on cookies (section
/// 4.6). (OpenFlow 1.0 does so too, but its message has another form.)
fn adds_if_missing(version: Version, command: FlowModCommand, cookie_mask: u64) -> bool {
    let modifies = matches!(command, FlowModCommand::Modify | FlowModCommand::ModifyStrict);
    version == Version::V11 && modifies && cookie_mask == 0
}

/// Writes `OFPT_FLOW_MOD`.
pub(crate) fn encode_flow_mod(fm: &FlowMod, version: Version, table_id_ext: bool, out: &mut Writer) {
    if version == V10 {
        put_match10(out, &fm.matching);
        put_common10(fm, V10, table_id_ext, out);
        put_flow_actions(out, V10, &fm.actions, &fm.matching);
        return;
    }
    let add = fm.command == FlowModCommand::Add;
    let new = add || adds_if_missing(version, fm.command, fm.cookie_mask) && fm.new_cookie != FlowMod::KEEP_COOKIE;
    out.put_u64(if new { fm.new_cookie } else { fm.cookie & fm.cookie_mask });
    out.put_u64(if add { 0 } else { fm.cookie_mask });
    // Only deletions cover all tables, and only from OpenFlow 1.2 on.
    out.put_u8(fm.table_id.unwrap_or(if is_delete(fm.command) && version > Version::V11 { ALL_TABLES } else { 0 }));
    out.put_u8(fm.command as u8);
    out.put_u16(fm.idle_timeout);
    out.put_u16(fm.hard_timeout);
    out.put_u16(fm.priority);
    out.put_u32(fm.buffer_id.unwrap_or(NO_BUFFER));
    out.put_u32(fm.out_port.0);
    out.put_u32(fm.out_group);
    out.put_u16(wire_flags(version, fm.flags));
    out.put_u16(if version >= V14 { fm.importance } else { 0 });
    put_oxm_match(out, version, &fm.matching);
    put_flow_actions(out, version, &fm.actions, &fm.matching);
}

/// Reads `NXT_FLOW_MOD`, whose flags and actions depend on the version, in the same way as [`decode_flow_mod`].
pub(crate) fn decode_nx_flow_mod(
    version: Version,
    table_id_ext: bool,
    r: &mut Reader<'_>,
    fm: &mut FlowMod,
) -> Result<()> {
    fm.reset(FlowModCommand::Add);
    // Errors in the match are reported before errors in the fields that precede it.
    let mut fields = r.sub(COMMON10_LEN)?;
    let match_len = usize::from(r.u16()?);
    r.skip(6)?;
    (fm.cookie, fm.cookie_mask) = read_nxm_into(r, match_len, &mut fm.matching)?;
    let flags = read_common10(&mut fields, table_id_ext, fm)?;
    if fm.command == FlowModCommand::Add && fm.cookie_mask != 0 {
        return Err(OfpError::NxbrcNxmInvalid);
    }
    read_flow_actions_into(version, r, &mut fm.actions)?;
    finish(fm, flags, version)
}

/// Writes `NXT_FLOW_MOD`.
pub(crate) fn encode_nx_flow_mod(fm: &FlowMod, version: Version, table_id_ext: bool, out: &mut Writer) {
    put_common10(fm, version, table_id_ext, out);
    let len_at = out.len();
    out.zeros(8);
    put_nxm(out, len_at, &fm.matching, (fm.cookie, fm.cookie_mask));
    put_flow_actions(out, version, &fm.actions, &fm.matching);
}
