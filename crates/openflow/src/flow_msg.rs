//! Flow messages: modifications in OpenFlow 1.0's, 1.1+'s and Nicira's form, removal, statistics requests and entries,
//! and flow monitors (OpenFlow 1.0 sections 5.3.3, 5.3.5, 5.4.3; 1.3 sections 7.3.4.1, 7.3.5.2, 7.3.5.3, 7.4.2).

use crate::Version::{self, V10, V12, V13, V14};
use crate::action::Action;
use crate::body::{
    put_flow_actions, put_match10, put_nxm, put_oxm_match, read_flow_actions, read_match10, read_nxm, read_oxm_match,
};
use crate::error::OfpError;
use crate::flow_mod::{FlowFlags, FlowMod, FlowModCommand, GROUP_ANY};
use crate::of_match::{OF10_LEN, of10_is_exact};
use crate::wire::{Put, Reader, Result, patch_len};
use base::PortNo;
use flow::Match;

const NO_BUFFER: u32 = u32::MAX;
const ALL_TABLES: u8 = 0xff;
/// As the new cookie of a modification: leave cookies as they are.
const KEEP_COOKIE: u64 = u64::MAX;

const SEND_FLOW_REM: u16 = 1;
const CHECK_OVERLAP: u16 = 2;
const EMERGENCY: u16 = 4;
const RESET_COUNTS: u16 = 4;
const NO_PKT_COUNTS: u16 = 8;
const NO_BYT_COUNTS: u16 = 16;

fn read_flags(version: Version, bits: u16) -> Result<FlowFlags> {
    let known = match version {
        V10 if bits & EMERGENCY != 0 => return Err(OfpError::FmfcTableFull),
        V10 | Version::V11 => SEND_FLOW_REM | CHECK_OVERLAP,
        V12 => SEND_FLOW_REM | CHECK_OVERLAP | RESET_COUNTS,
        _ => SEND_FLOW_REM | CHECK_OVERLAP | RESET_COUNTS | NO_PKT_COUNTS | NO_BYT_COUNTS,
    };
    if bits & !known != 0 {
        return Err(OfpError::FmfcBadFlags);
    }
    Ok(FlowFlags {
        send_flow_rem: bits & SEND_FLOW_REM != 0,
        check_overlap: bits & CHECK_OVERLAP != 0,
        reset_counts: bits & RESET_COUNTS != 0,
        no_packet_counts: bits & NO_PKT_COUNTS != 0,
        no_byte_counts: bits & NO_BYT_COUNTS != 0,
    })
}

fn wire_flags(version: Version, f: FlowFlags) -> u16 {
    let bit = |on: bool, since: Version, bit: u16| if on && version >= since { bit } else { 0 };
    bit(f.send_flow_rem, V10, SEND_FLOW_REM)
        | bit(f.check_overlap, V10, CHECK_OVERLAP)
        | bit(f.reset_counts, V12, RESET_COUNTS)
        | bit(f.no_packet_counts, V13, NO_PKT_COUNTS)
        | bit(f.no_byte_counts, V13, NO_BYT_COUNTS)
}

fn command(n: u16) -> Result<FlowModCommand> {
    u8::try_from(n).ok().and_then(FlowModCommand::from_wire).ok_or(OfpError::FmfcBadCommand)
}

fn is_delete(c: FlowModCommand) -> bool {
    matches!(c, FlowModCommand::Delete | FlowModCommand::DeleteStrict)
}

/// Command and table of the 16-bit command field of OpenFlow 1.0: with Nicira's table_id extension the upper byte is the
/// table, 0xff for none.
fn command10(field: u16, table_id_ext: bool) -> Result<(FlowModCommand, Option<u8>)> {
    if !table_id_ext {
        return Ok((command(field)?, None));
    }
    let table = (field >> 8) as u8;
    Ok((command(field & 0xff)?, (table != ALL_TABLES).then_some(table)))
}

fn command_field10(fm: &FlowMod, table_id_ext: bool) -> u16 {
    let table = if table_id_ext { fm.table_id.unwrap_or(ALL_TABLES) } else { 0 };
    u16::from(table) << 8 | fm.command as u16
}

/// The part that OpenFlow 1.0's and Nicira's form share, from the cookie to the flags.
fn read_common10(r: &mut Reader<'_>, table_id_ext: bool) -> Result<FlowMod> {
    let new_cookie = r.u64()?;
    let (command, table_id) = command10(r.u16()?, table_id_ext)?;
    let mut fm = FlowMod { table_id, new_cookie, ..FlowMod::new(command) };
    fm.modify_cookie = new_cookie != KEEP_COOKIE;
    fm.idle_timeout = r.u16()?;
    fm.hard_timeout = r.u16()?;
    fm.priority = r.u16()?;
    let buffer = r.u32()?;
    fm.buffer_id = (buffer != NO_BUFFER && !is_delete(command)).then_some(buffer);
    let out_port = r.port10()?;
    fm.out_port = if is_delete(command) { out_port } else { PortNo::ANY };
    fm.flags = read_flags(V10, r.u16()?)?;
    Ok(fm)
}

fn put_common10(fm: &FlowMod, table_id_ext: bool, out: &mut Vec<u8>) {
    out.put_u64(fm.new_cookie);
    out.put_u16(command_field10(fm, table_id_ext));
    out.put_u16(fm.idle_timeout);
    out.put_u16(fm.hard_timeout);
    out.put_u16(fm.priority);
    out.put_u32(fm.buffer_id.unwrap_or(NO_BUFFER));
    out.put_u16(fm.out_port.to_of10());
    out.put_u16(wire_flags(V10, fm.flags));
}

/// Reads `OFPT_FLOW_MOD`. `table_id_ext`: whether Nicira's table_id extension is on (OpenFlow 1.0 only).
pub(crate) fn decode_flow_mod(version: Version, table_id_ext: bool, r: &mut Reader<'_>) -> Result<FlowMod> {
    if version == V10 {
        let exact = r.0.get(..OF10_LEN).is_some_and(of10_is_exact);
        let matching = read_match10(r)?;
        let mut fm = read_common10(r, table_id_ext)?;
        if exact {
            // A flow without wildcards has the highest priority, whatever it says (section 3.4).
            fm.priority = u16::MAX;
        }
        fm.matching = matching;
        fm.actions = read_flow_actions(V10, r)?;
        return Ok(fm);
    }
    let (cookie, cookie_mask) = (r.u64()?, r.u64()?);
    let (table, command) = (r.u8()?, command(r.u8()?.into())?);
    let mut fm = FlowMod::new(command);
    if command == FlowModCommand::Add {
        fm.new_cookie = cookie;
    } else {
        (fm.cookie, fm.cookie_mask, fm.new_cookie) = (cookie, cookie_mask, KEEP_COOKIE);
    }
    fm.table_id = (table != ALL_TABLES).then_some(table);
    fm.idle_timeout = r.u16()?;
    fm.hard_timeout = r.u16()?;
    fm.priority = r.u16()?;
    let buffer = r.u32()?;
    fm.buffer_id = (buffer != NO_BUFFER && !is_delete(command)).then_some(buffer);
    let (out_port, out_group) = (r.port11()?, r.u32()?);
    if is_delete(command) {
        (fm.out_port, fm.out_group) = (out_port, out_group);
    }
    fm.flags = read_flags(version, r.u16()?)?;
    let importance = r.u16()?;
    fm.importance = if version >= V14 { importance } else { 0 };
    fm.matching = read_oxm_match(version, r)?;
    fm.actions = read_flow_actions(version, r)?;
    Ok(fm)
}

/// Writes `OFPT_FLOW_MOD`.
pub(crate) fn encode_flow_mod(fm: &FlowMod, version: Version, table_id_ext: bool, out: &mut Vec<u8>) {
    if version == V10 {
        put_match10(out, &fm.matching);
        put_common10(fm, table_id_ext, out);
        put_flow_actions(out, V10, &fm.actions, &fm.matching);
        return;
    }
    let add = fm.command == FlowModCommand::Add;
    out.put_u64(if add { fm.new_cookie } else { fm.cookie & fm.cookie_mask });
    out.put_u64(if add { 0 } else { fm.cookie_mask });
    // Only deletion goes over all tables, and that only from OpenFlow 1.2 on.
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

/// Reads `NXT_FLOW_MOD`, of which only what a flow does depends on the version.
pub(crate) fn decode_nx_flow_mod(version: Version, table_id_ext: bool, r: &mut Reader<'_>) -> Result<FlowMod> {
    let mut fm = read_common10(r, table_id_ext)?;
    let match_len = usize::from(r.u16()?);
    r.skip(6)?;
    let nxm = read_nxm(r, match_len)?;
    if fm.command == FlowModCommand::Add && nxm.cookie_mask != 0 {
        return Err(OfpError::NxbrcNxmInvalid);
    }
    (fm.matching, fm.cookie, fm.cookie_mask) = (nxm.matching, nxm.cookie, nxm.cookie_mask);
    fm.actions = read_flow_actions(version, r)?;
    Ok(fm)
}

/// Writes `NXT_FLOW_MOD`.
pub(crate) fn encode_nx_flow_mod(fm: &FlowMod, version: Version, table_id_ext: bool, out: &mut Vec<u8>) {
    put_common10(fm, table_id_ext, out);
    let len_at = out.len();
    out.zeros(8);
    put_nxm(out, len_at, &fm.matching, (fm.cookie, fm.cookie_mask));
    put_flow_actions(out, version, &fm.actions, &fm.matching);
}

/// Why a flow is gone (`ofp_flow_removed_reason`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum FlowRemovedReason {
    /// No packet for as long as its idle timeout.
    IdleTimeout = 0,
    /// Its hard timeout.
    HardTimeout = 1,
    /// A controller deleted it.
    Delete = 2,
    /// Its group was deleted (OpenFlow 1.3).
    GroupDelete = 3,
    /// Its meter was deleted (OpenFlow 1.4).
    MeterDelete = 4,
    /// It made room for another (OpenFlow 1.4; Nicira's before).
    Eviction = 5,
}

impl FlowRemovedReason {
    fn read(n: u8) -> Result<Self> {
        use FlowRemovedReason as R;
        let all = [R::IdleTimeout, R::HardTimeout, R::Delete, R::GroupDelete, R::MeterDelete, R::Eviction];
        all.into_iter().find(|r| *r as u8 == n).ok_or(OfpError::NxbrcBadReason)
    }
}

/// A flow is gone.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "named as the specification names them")]
pub struct FlowRemoved {
    pub matching: Match,
    pub cookie: u64,
    pub priority: u16,
    pub reason: FlowRemovedReason,
    /// `None` if the message does not tell.
    pub table_id: Option<u8>,
    /// How long it was there, whole seconds.
    pub duration_sec: u32,
    /// And nanoseconds.
    pub duration_nsec: u32,
    pub idle_timeout: u16,
    /// 0 in OpenFlow 1.0 and Nicira's form, which do not tell.
    pub hard_timeout: u16,
    pub packet_count: u64,
    pub byte_count: u64,
}

impl FlowRemoved {
    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        let v10 = version == V10;
        let mut matching = if v10 { read_match10(r)? } else { Match::ANY };
        let (cookie, priority, reason) = (r.u64()?, r.u16()?, FlowRemovedReason::read(r.u8()?)?);
        let table = r.u8()?;
        let (duration_sec, duration_nsec, idle_timeout, hard) = (r.u32()?, r.u32()?, r.u16()?, r.u16()?);
        let (packet_count, byte_count) = (r.u64()?, r.u64()?);
        if !v10 {
            matching = read_oxm_match(version, r)?;
        }
        r.finish()?;
        let table_id = (!v10 && table != ALL_TABLES).then_some(table);
        let hard_timeout = if version < V12 { 0 } else { hard };
        Ok(Self {
            matching,
            cookie,
            priority,
            reason,
            table_id,
            duration_sec,
            duration_nsec,
            idle_timeout,
            hard_timeout,
            packet_count,
            byte_count,
        })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Vec<u8>) {
        let v10 = version == V10;
        if v10 {
            put_match10(out, &self.matching);
        }
        out.put_u64(self.cookie);
        out.put_u16(self.priority);
        out.put_u8(self.reason as u8);
        out.put_u8(if v10 { 0 } else { self.table_id.unwrap_or(ALL_TABLES) });
        out.put_u32(self.duration_sec);
        out.put_u32(self.duration_nsec);
        out.put_u16(self.idle_timeout);
        out.put_u16(if version < V12 { 0 } else { self.hard_timeout });
        out.put_u64(self.packet_count);
        out.put_u64(self.byte_count);
        if !v10 {
            put_oxm_match(out, version, &self.matching);
        }
    }

    pub(crate) fn decode_nx(r: &mut Reader<'_>) -> Result<Self> {
        let (cookie, priority, reason, table) = (r.u64()?, r.u16()?, FlowRemovedReason::read(r.u8()?)?, r.u8()?);
        let (duration_sec, duration_nsec, idle_timeout, len) = (r.u32()?, r.u32()?, r.u16()?, r.u16()?);
        let (packet_count, byte_count) = (r.u64()?, r.u64()?);
        let matching = read_nxm(r, len.into())?.matching;
        r.finish()?;
        Ok(Self {
            matching,
            cookie,
            priority,
            reason,
            table_id: table.checked_sub(1),
            duration_sec,
            duration_nsec,
            idle_timeout,
            hard_timeout: 0,
            packet_count,
            byte_count,
        })
    }

    pub(crate) fn encode_nx(&self, out: &mut Vec<u8>) {
        out.put_u64(self.cookie);
        out.put_u16(self.priority);
        out.put_u8(self.reason as u8);
        out.put_u8(self.table_id.map_or(0, |t| t.wrapping_add(1)));
        out.put_u32(self.duration_sec);
        out.put_u32(self.duration_nsec);
        out.put_u16(self.idle_timeout);
        let len_at = out.len();
        out.put_u16(0);
        out.put_u64(self.packet_count);
        out.put_u64(self.byte_count);
        put_nxm(out, len_at, &self.matching, (0, 0));
    }
}

/// Which flows a flow or aggregate statistics request asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowStatsRequest {
    /// Those that this contains.
    pub matching: Match,
    /// In this table; `None` for all.
    pub table_id: Option<u8>,
    /// Those that output here; [`PortNo::ANY`] for no such limit.
    pub out_port: PortNo,
    /// Those that output to this group (OpenFlow 1.1); [`GROUP_ANY`] for no such limit.
    pub out_group: u32,
    /// Those with these bits of the cookie (OpenFlow 1.1 and NXM).
    pub cookie: u64,
    /// See `cookie`.
    pub cookie_mask: u64,
}

impl Default for FlowStatsRequest {
    fn default() -> Self {
        Self {
            matching: Match::ANY,
            table_id: None,
            out_port: PortNo::ANY,
            out_group: GROUP_ANY,
            cookie: 0,
            cookie_mask: 0,
        }
    }
}

impl FlowStatsRequest {
    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        let some = |t: u8| (t != ALL_TABLES).then_some(t);
        if version == V10 {
            let matching = read_match10(r)?;
            let table_id = some(r.u8()?);
            r.skip(1)?;
            let out_port = r.port10()?;
            r.finish()?;
            return Ok(Self { matching, table_id, out_port, ..Self::default() });
        }
        let table_id = some(r.u8()?);
        r.skip(3)?;
        let (out_port, out_group) = (r.port11()?, r.u32()?);
        r.skip(4)?;
        let (cookie, cookie_mask) = (r.u64()?, r.u64()?);
        let matching = read_oxm_match(version, r)?;
        r.finish()?;
        Ok(Self { matching, table_id, out_port, out_group, cookie, cookie_mask })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Vec<u8>) {
        let table = self.table_id.unwrap_or(ALL_TABLES);
        if version == V10 {
            put_match10(out, &self.matching);
            out.put_u8(table);
            out.put_u8(0);
            out.put_u16(self.out_port.to_of10());
            return;
        }
        out.put_u8(table);
        out.zeros(3);
        out.put_u32(self.out_port.0);
        out.put_u32(self.out_group);
        out.zeros(4);
        out.put_u64(self.cookie);
        out.put_u64(self.cookie_mask);
        put_oxm_match(out, version, &self.matching);
    }

    pub(crate) fn decode_nx(r: &mut Reader<'_>) -> Result<Self> {
        let (out_port, len, table) = (r.port10()?, usize::from(r.u16()?), r.u8()?);
        r.skip(3)?;
        let nxm = read_nxm(r, len)?;
        r.finish()?;
        Ok(Self {
            matching: nxm.matching,
            table_id: (table != ALL_TABLES).then_some(table),
            out_port,
            out_group: GROUP_ANY,
            cookie: nxm.cookie,
            cookie_mask: nxm.cookie_mask,
        })
    }

    pub(crate) fn encode_nx(&self, out: &mut Vec<u8>) {
        out.put_u16(self.out_port.to_of10());
        let len_at = out.len();
        out.put_u16(0);
        out.put_u8(self.table_id.unwrap_or(ALL_TABLES));
        out.zeros(3);
        put_nxm(out, len_at, &self.matching, (self.cookie, self.cookie_mask));
    }
}

/// A flow in a statistics reply.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "named as the specification names them")]
pub struct FlowStats {
    pub table_id: u8,
    pub priority: u16,
    pub matching: Match,
    pub cookie: u64,
    pub duration_sec: u32,
    pub duration_nsec: u32,
    pub idle_timeout: u16,
    pub hard_timeout: u16,
    /// OpenFlow 1.4.
    pub importance: u16,
    /// Seconds since the last packet, if known (Nicira's form).
    pub idle_age: Option<u16>,
    /// Seconds since it was added or changed, if known (Nicira's form).
    pub hard_age: Option<u16>,
    /// OpenFlow 1.3.
    pub flags: FlowFlags,
    pub packet_count: u64,
    pub byte_count: u64,
    pub actions: Vec<Action>,
}

impl FlowStats {
    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        let (mut r, table_id) = entry(r)?;
        let matching = if version == V10 { read_match10(&mut r)? } else { Match::ANY };
        let mut s = Self::blank(table_id, matching);
        (s.duration_sec, s.duration_nsec) = (r.u32()?, r.u32()?);
        (s.priority, s.idle_timeout, s.hard_timeout) = (r.u16()?, r.u16()?, r.u16()?);
        if version == V10 {
            r.skip(6)?;
        } else {
            let flags = r.u16()?;
            s.flags = if version >= V13 { read_flags(version, flags)? } else { FlowFlags::default() };
            let importance = r.u16()?;
            s.importance = if version >= V14 { importance } else { 0 };
            r.skip(2)?;
        }
        (s.cookie, s.packet_count, s.byte_count) = (r.u64()?, r.u64()?, r.u64()?);
        if version == V10 {
            s.actions = read_flow_actions(V10, &mut r)?;
        } else {
            s.matching = read_oxm_match(version, &mut r)?;
            s.actions = read_flow_actions(version, &mut r)?;
        }
        Ok(s)
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u16(0);
        out.put_u8(self.table_id);
        out.put_u8(0);
        if version == V10 {
            put_match10(out, &self.matching);
        }
        out.put_u32(self.duration_sec);
        out.put_u32(self.duration_nsec);
        out.put_u16(self.priority);
        out.put_u16(self.idle_timeout);
        out.put_u16(self.hard_timeout);
        if version == V10 {
            out.zeros(6);
        } else {
            out.put_u16(if version >= V13 { wire_flags(version, self.flags) } else { 0 });
            out.put_u16(if version >= V14 { self.importance } else { 0 });
            out.zeros(2);
        }
        out.put_u64(self.cookie);
        out.put_u64(self.packet_count);
        out.put_u64(self.byte_count);
        if version == V10 {
            put_flow_actions(out, V10, &self.actions, &self.matching);
        } else {
            put_oxm_match(out, version, &self.matching);
            put_flow_actions(out, version, &self.actions, &self.matching);
        }
        patch_len(out, start, 0);
    }

    pub(crate) fn decode_nx(r: &mut Reader<'_>) -> Result<Self> {
        let (mut r, table_id) = entry(r)?;
        let mut s = Self::blank(table_id, Match::ANY);
        (s.duration_sec, s.duration_nsec) = (r.u32()?, r.u32()?);
        (s.priority, s.idle_timeout, s.hard_timeout) = (r.u16()?, r.u16()?, r.u16()?);
        let len = usize::from(r.u16()?);
        // Ages are one more than they say, so that 0 stands for unknown.
        (s.idle_age, s.hard_age) = (r.u16()?.checked_sub(1), r.u16()?.checked_sub(1));
        (s.cookie, s.packet_count, s.byte_count) = (r.u64()?, r.u64()?, r.u64()?);
        s.matching = read_nxm(&mut r, len)?.matching;
        s.actions = read_flow_actions(V10, &mut r)?;
        Ok(s)
    }

    pub(crate) fn encode_nx(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.put_u16(0);
        out.put_u8(self.table_id);
        out.put_u8(0);
        out.put_u32(self.duration_sec);
        out.put_u32(self.duration_nsec);
        out.put_u16(self.priority);
        out.put_u16(self.idle_timeout);
        out.put_u16(self.hard_timeout);
        let len_at = out.len();
        out.put_u16(0);
        for age in [self.idle_age, self.hard_age] {
            out.put_u16(age.map_or(0, |a| a.saturating_add(1)));
        }
        out.put_u64(self.cookie);
        out.put_u64(self.packet_count);
        out.put_u64(self.byte_count);
        put_nxm(out, len_at, &self.matching, (0, 0));
        put_flow_actions(out, V10, &self.actions, &self.matching);
        patch_len(out, start, 0);
    }

    /// A flow of nothing known but its table and match.
    pub fn blank(table_id: u8, matching: Match) -> Self {
        Self {
            table_id,
            priority: FlowMod::DEFAULT_PRIORITY,
            matching,
            cookie: 0,
            duration_sec: 0,
            duration_nsec: 0,
            idle_timeout: 0,
            hard_timeout: 0,
            importance: 0,
            idle_age: None,
            hard_age: None,
            flags: FlowFlags::default(),
            packet_count: 0,
            byte_count: 0,
            actions: Vec::new(),
        }
    }
}

/// The length and table that an entry begins with; the reader of what follows in it.
fn entry<'a>(r: &mut Reader<'a>) -> Result<(Reader<'a>, u8)> {
    let len = usize::from(r.u16()?);
    let mut body = r.sub(len.checked_sub(2).ok_or(OfpError::BrcBadLen)?)?;
    let table = body.u8()?;
    body.skip(1)?;
    Ok((body, table))
}

/// One monitor of a NXST_FLOW_MONITOR request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowMonitorRequest {
    /// The requester's number for it.
    pub id: u32,
    /// `NXFMF_*`: initial 1, add 2, delete 4, modify 8, actions 16, own 32.
    pub flags: u16,
    /// Flows that output here only.
    pub out_port: PortNo,
    /// This table only.
    pub table_id: Option<u8>,
    /// Flows that this contains.
    pub matching: Match,
}

impl FlowMonitorRequest {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let (id, flags, out_port) = (r.u32()?, r.u16()?, r.port10()?);
        let (len, table) = (usize::from(r.u16()?), r.u8()?);
        if r.array::<5>()? != [0; 5] {
            return Err(OfpError::NxbrcMustBeZero);
        }
        if flags & !0x3f != 0 || flags & 0x0f == 0 {
            return Err(OfpError::MofcBadFlags);
        }
        let matching = read_nxm(r, len)?.matching;
        Ok(Self { id, flags, out_port, table_id: (table != ALL_TABLES).then_some(table), matching })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.id);
        out.put_u16(self.flags);
        out.put_u16(self.out_port.to_of10());
        let len_at = out.len();
        out.put_u16(0);
        out.put_u8(self.table_id.unwrap_or(ALL_TABLES));
        out.zeros(5);
        put_nxm(out, len_at, &self.matching, (0, 0));
    }
}
