//! Statistics of flows: requests, and entries of the replies.

use super::{ALL_TABLES, read_flags, table, wire_flags};
use crate::Version::{self, V10, V13, V14, V15};
use crate::action::Action;
use crate::body::{
    put_flow_actions, put_match10, put_nxm, put_oxm_entries, put_oxm_match, read_flow_actions, read_match10, read_nxm,
    read_oxm_match,
};
use crate::error::OfpError;
use crate::flow_mod::{FlowFlags, FlowMod, GROUP_ANY};
use crate::oxs::{Counts, known, known_duration};
use crate::wire::{Reader, Result, Writer};
use base::PortNo;
use flow::Match;

/// A flow or aggregate statistics request: selects flows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowStatsRequest {
    /// Selects flows whose match is contained in this one.
    pub matching: Match,
    /// Selects flows of this table; `None` for all.
    pub table_id: Option<u8>,
    /// Selects flows that output to this port; [`PortNo::ANY`] for no such limit.
    pub out_port: PortNo,
    /// Selects flows that output to this group (OpenFlow 1.1); [`GROUP_ANY`] for no such limit.
    pub out_group: u32,
    /// Selects flows with these bits of the cookie (OpenFlow 1.1 and NXM).
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
        if version == V10 {
            let matching = read_match10(r)?;
            let table_id = table(r.u8()?);
            r.skip(1)?;
            let out_port = r.port10()?;
            r.finish()?;
            return Ok(Self { matching, table_id, out_port, ..Self::default() });
        }
        let table_id = table(r.u8()?);
        r.skip(3)?;
        let (out_port, out_group) = (r.port11()?, r.u32()?);
        r.skip(4)?;
        let (cookie, cookie_mask) = (r.u64()?, r.u64()?);
        let matching = read_oxm_match(version, r)?;
        // No known field follows.
        r.rest();
        Ok(Self { matching, table_id, out_port, out_group, cookie, cookie_mask })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
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
        let (out_port, len, table_id) = (r.port10()?, usize::from(r.u16()?), table(r.u8()?));
        r.skip(3)?;
        let nxm = read_nxm(r, len)?;
        r.finish()?;
        Ok(Self {
            matching: nxm.matching,
            table_id,
            out_port,
            out_group: GROUP_ANY,
            cookie: nxm.cookie,
            cookie_mask: nxm.cookie_mask,
        })
    }

    pub(crate) fn encode_nx(&self, out: &mut Writer) {
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
    /// Seconds since the last packet, if known (Nicira's form and OpenFlow 1.5).
    pub idle_age: Option<u32>,
    /// Seconds since it was added or changed, if known (Nicira's form).
    pub hard_age: Option<u32>,
    /// OpenFlow 1.3.
    pub flags: FlowFlags,
    pub packet_count: u64,
    pub byte_count: u64,
    pub actions: Vec<Action>,
}

impl FlowStats {
    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        if version >= V15 {
            return Self::decode15(r);
        }
        let (len, end, table_id) = entry(r)?;
        // Other lengths are checked after the match.
        if version > V10 && len < ENTRY_LEN {
            return Err(OfpError::BrcBadLen);
        }
        let matching = if version == V10 { read_match10(r)? } else { Match::ANY };
        let mut s = Self::blank(table_id, matching);
        (s.duration_sec, s.duration_nsec) = (r.u32()?, r.u32()?);
        (s.priority, s.idle_timeout, s.hard_timeout) = (r.u16()?, r.u16()?, r.u16()?);
        let mut flags = 0;
        if version == V10 {
            r.skip(6)?;
        } else {
            flags = r.u16()?;
            let importance = r.u16()?;
            s.importance = if version >= V14 { importance } else { 0 };
            r.skip(2)?;
        }
        (s.cookie, s.packet_count, s.byte_count) = (r.u64()?, r.u64()?, r.u64()?);
        if version > V10 {
            s.matching = read_oxm_match(version, r)?;
            s.flags = if version >= V13 { read_flags(version, flags)? } else { FlowFlags::default() };
        }
        s.actions = read_flow_actions(version, &mut rest_of_entry(version, end, r)?)?;
        Ok(s)
    }

    /// Reads a flow description of OpenFlow 1.5 (`OFPMP_FLOW_DESC`), with counts as OXS (section 7.3.5.2).
    fn decode15(r: &mut Reader<'_>) -> Result<Self> {
        let before = r.len();
        let end = before.wrapping_sub(r.u16()?.into());
        r.skip(2)?;
        let mut s = Self::blank(r.u8()?, Match::ANY);
        r.skip(1)?;
        (s.priority, s.idle_timeout, s.hard_timeout) = (r.u16()?, r.u16()?, r.u16()?);
        s.flags = read_flags(V15, r.u16()?)?;
        (s.importance, s.cookie) = (r.u16()?, r.u64()?);
        s.matching = read_oxm_match(V15, r)?;
        s.set_counts(Counts::decode(r)?);
        s.actions = read_flow_actions(V15, &mut rest_of_entry(V15, end, r)?)?;
        Ok(s)
    }

    fn set_counts(&mut self, counts: Counts) {
        (self.duration_sec, self.duration_nsec) = counts.duration.unwrap_or((u32::MAX, u32::MAX));
        self.idle_age = counts.idle_time.map(|(sec, _)| sec).filter(|sec| i32::try_from(*sec).is_ok());
        self.packet_count = counts.packet_count.unwrap_or(u64::MAX);
        self.byte_count = counts.byte_count.unwrap_or(u64::MAX);
    }

    fn counts(&self) -> Counts {
        Counts {
            duration: known_duration(self.duration_sec, self.duration_nsec),
            idle_time: self.idle_age.map(|age| (age, 0)),
            packet_count: known(self.packet_count),
            byte_count: known(self.byte_count),
            flow_count: None,
        }
    }

    /// Reads counts alone (`OFPMP_FLOW_STATS`, OpenFlow 1.5 section 7.3.5.4), sent on request or unsolicited.
    pub(crate) fn decode_counts(r: &mut Reader<'_>) -> Result<Self> {
        let len = usize::from(r.u16()?);
        let mut r = r.sub(len.checked_sub(2).ok_or(OfpError::BrcBadLen)?)?;
        r.skip(2)?;
        let mut s = Self::blank(r.u8()?, Match::ANY);
        r.skip(1)?;
        s.priority = r.u16()?;
        s.matching = read_oxm_match(V15, &mut r)?;
        s.set_counts(Counts::decode(&mut r)?);
        r.finish()?;
        Ok(s)
    }

    pub(crate) fn encode_counts(&self, out: &mut Writer) {
        let start = out.len();
        out.zeros(4);
        out.put_u8(self.table_id);
        out.put_u8(0); // OFPFSR_STATS_REQUEST: the reply to a request
        out.put_u16(self.priority);
        put_oxm_entries(out, V15, &self.matching);
        self.counts().encode(out);
        out.set_len16(start, start);
    }

    fn encode15(&self, out: &mut Writer) {
        let start = out.len();
        out.zeros(4);
        out.put_u8(self.table_id);
        out.put_u8(0);
        out.put_u16(self.priority);
        out.put_u16(self.idle_timeout);
        out.put_u16(self.hard_timeout);
        out.put_u16(wire_flags(V15, self.flags));
        out.put_u16(self.importance);
        out.put_u64(self.cookie);
        put_oxm_entries(out, V15, &self.matching);
        self.counts().encode(out);
        put_flow_actions(out, V15, &self.actions, &self.matching);
        out.set_len16(start, start);
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        if version >= V15 {
            return self.encode15(out);
        }
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
            put_oxm_entries(out, version, &self.matching);
            put_flow_actions(out, version, &self.actions, &self.matching);
        }
        out.set_len16(start, start);
    }

    pub(crate) fn decode_nx(r: &mut Reader<'_>) -> Result<Self> {
        let (entry_len, end, table_id) = entry(r)?;
        let mut s = Self::blank(table_id, Match::ANY);
        (s.duration_sec, s.duration_nsec) = (r.u32()?, r.u32()?);
        (s.priority, s.idle_timeout, s.hard_timeout) = (r.u16()?, r.u16()?, r.u16()?);
        let len = usize::from(r.u16()?);
        // On the wire an age is one more than its value, and 0 means unknown.
        (s.idle_age, s.hard_age) = (r.u16()?.checked_sub(1).map(u32::from), r.u16()?.checked_sub(1).map(u32::from));
        (s.cookie, s.packet_count, s.byte_count) = (r.u64()?, r.u64()?, r.u64()?);
        if entry_len < ENTRY_LEN + len.next_multiple_of(8) {
            return Err(OfpError::BrcBadLen);
        }
        s.matching = read_nxm(r, len)?.matching;
        s.actions = read_flow_actions(V10, &mut rest_of_entry(V10, end, r)?)?;
        Ok(s)
    }

    pub(crate) fn encode_nx(&self, out: &mut Writer) {
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
            out.put_u16(age.map_or(0, |a| u16::try_from(a.saturating_add(1)).unwrap_or(u16::MAX)));
        }
        out.put_u64(self.cookie);
        out.put_u64(self.packet_count);
        out.put_u64(self.byte_count);
        put_nxm(out, len_at, &self.matching, (0, 0));
        put_flow_actions(out, V10, &self.actions, &self.matching);
        out.set_len16(start, start);
    }

    /// Returns a flow with only its table and match set.
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

/// Bytes of an entry before its match, from OpenFlow 1.1 to 1.4 and in Nicira's form.
const ENTRY_LEN: usize = 48;

/// Reads the length and table that begin an entry. Returns its length, how many bytes are left where it ends (a number that is
/// too large if that is beyond the end), and the table.
fn entry(r: &mut Reader<'_>) -> Result<(usize, usize, u8)> {
    let before = r.len();
    let len = usize::from(r.u16()?);
    let table = r.u8()?;
    r.skip(1)?;
    Ok((len, before.wrapping_sub(len), table))
}

/// Returns the rest of the entry that ends where `end` bytes are left.
fn rest_of_entry<'a>(version: Version, end: usize, r: &mut Reader<'a>) -> Result<Reader<'a>> {
    let too_long = if version == V10 { OfpError::BrcBadLen } else { OfpError::BicBadLen };
    if end > isize::MAX as usize {
        return Err(too_long);
    }
    let len = r.len().checked_sub(end).ok_or(too_long)?;
    r.sub(len)
}
