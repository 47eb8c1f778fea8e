//! Flow-removed messages.

use super::{ALL_TABLES, table};
use crate::Version::{self, V10, V15};
use crate::body::{put_match10, put_nxm, put_oxm_match, read_match10, read_nxm, read_oxm_match};
use crate::oxs::{Counts, known, known_duration};
use crate::wire::{Reader, Result, Writer};
use flow::Match;

/// The reason for a flow's removal (`ofp_flow_removed_reason`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FlowRemovedReason {
    /// The idle timeout expired.
    IdleTimeout,
    /// The hard timeout expired.
    HardTimeout,
    /// A controller deleted it.
    Delete,
    /// Its group was deleted (OpenFlow 1.3).
    GroupDelete,
    /// Its meter was deleted (OpenFlow 1.4).
    MeterDelete,
    /// The switch evicted it to make room for another flow (OpenFlow 1.4; Nicira's before).
    Eviction,
    /// A reason without a name, by its number.
    Other(u8),
}

impl FlowRemovedReason {
    const ALL: [Self; 6] =
        [Self::IdleTimeout, Self::HardTimeout, Self::Delete, Self::GroupDelete, Self::MeterDelete, Self::Eviction];

    fn from_wire(n: u8) -> Self {
        Self::ALL.get(usize::from(n)).copied().unwrap_or(Self::Other(n))
    }

    /// The number in messages of `version`. OpenFlow 1.4 introduced the removal of a meter as a reason; earlier versions report
    /// a deletion, as Open vSwitch does.
    fn wire_in(self, version: Version) -> u8 {
        match self {
            Self::MeterDelete if version < Version::V14 => Self::Delete,
            reason => reason,
        }
        .wire()
    }

    /// The number on the wire.
    pub fn wire(self) -> u8 {
        match self {
            Self::Other(n) => n,
            known => Self::ALL.iter().position(|r| *r == known).unwrap_or_default() as u8,
        }
    }
}

/// A flow was removed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "named as the specification names them")]
pub struct FlowRemoved {
    pub matching: Match,
    pub cookie: u64,
    pub priority: u16,
    pub reason: FlowRemovedReason,
    /// `None` if the message does not include it.
    pub table_id: Option<u8>,
    /// How long the flow existed, whole seconds.
    pub duration_sec: u32,
    /// The rest of that in nanoseconds.
    pub duration_nsec: u32,
    pub idle_timeout: u16,
    /// 0 in OpenFlow 1.0 and Nicira's form, which do not include it. (Neither does 1.1, except in Open vSwitch.)
    pub hard_timeout: u16,
    pub packet_count: u64,
    pub byte_count: u64,
}

impl FlowRemoved {
    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        if version >= V15 {
            return Self::decode15(r);
        }
        let v10 = version == V10;
        let mut matching = if v10 { read_match10(r)? } else { Match::ANY };
        let (cookie, priority, reason) = (r.u64()?, r.u16()?, FlowRemovedReason::from_wire(r.u8()?));
        let table_id = table(r.u8()?).filter(|_| !v10);
        let (duration_sec, duration_nsec, idle_timeout, hard) = (r.u32()?, r.u32()?, r.u16()?, r.u16()?);
        let (packet_count, byte_count) = (r.u64()?, r.u64()?);
        if !v10 {
            matching = read_oxm_match(version, r)?;
            // No known field follows.
            r.rest();
        }
        r.finish()?;
        let hard_timeout = if v10 { 0 } else { hard };
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

    /// Reads the message of OpenFlow 1.5, which lists counts as OXS (section 7.4.2).
    fn decode15(r: &mut Reader<'_>) -> Result<Self> {
        let (table_id, reason, priority) = (table(r.u8()?), FlowRemovedReason::from_wire(r.u8()?), r.u16()?);
        let (idle_timeout, hard_timeout, cookie) = (r.u16()?, r.u16()?, r.u64()?);
        let matching = read_oxm_match(V15, r)?;
        let counts = Counts::decode(r)?;
        // No known field follows.
        r.rest();
        let (duration_sec, duration_nsec) = counts.duration.unwrap_or((u32::MAX, u32::MAX));
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
            packet_count: counts.packet_count.unwrap_or(u64::MAX),
            byte_count: counts.byte_count.unwrap_or(u64::MAX),
        })
    }

    fn encode15(&self, out: &mut Writer) {
        out.put_u8(self.table_id.unwrap_or(ALL_TABLES));
        out.put_u8(self.reason.wire());
        out.put_u16(self.priority);
        out.put_u16(self.idle_timeout);
        out.put_u16(self.hard_timeout);
        out.put_u64(self.cookie);
        put_oxm_match(out, V15, &self.matching);
        let counts = Counts {
            duration: known_duration(self.duration_sec, self.duration_nsec),
            packet_count: known(self.packet_count),
            byte_count: known(self.byte_count),
            ..Counts::default()
        };
        counts.encode(out);
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        if version >= V15 {
            return self.encode15(out);
        }
        let v10 = version == V10;
        if v10 {
            put_match10(out, &self.matching);
        }
        out.put_u64(self.cookie);
        out.put_u16(self.priority);
        out.put_u8(self.reason.wire_in(version));
        out.put_u8(if v10 { 0 } else { self.table_id.unwrap_or(ALL_TABLES) });
        out.put_u32(self.duration_sec);
        out.put_u32(self.duration_nsec);
        out.put_u16(self.idle_timeout);
        out.put_u16(if v10 { 0 } else { self.hard_timeout });
        out.put_u64(self.packet_count);
        out.put_u64(self.byte_count);
        if !v10 {
            put_oxm_match(out, version, &self.matching);
        }
    }

    pub(crate) fn decode_nx(r: &mut Reader<'_>) -> Result<Self> {
        let (cookie, priority, reason, table) = (r.u64()?, r.u16()?, FlowRemovedReason::from_wire(r.u8()?), r.u8()?);
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

    pub(crate) fn encode_nx(&self, out: &mut Writer) {
        out.put_u64(self.cookie);
        out.put_u16(self.priority);
        // A controller that asks for this form uses OpenFlow 1.0.
        out.put_u8(self.reason.wire_in(V10));
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Form, Message, decode, encode};

    #[test]
    fn meter_deletion_is_a_reason_from_openflow_14_on() {
        let gone = FlowRemoved {
            matching: Match::ANY,
            cookie: 5,
            priority: 7,
            reason: FlowRemovedReason::MeterDelete,
            table_id: Some(3),
            duration_sec: 1,
            duration_nsec: 2,
            idle_timeout: 0,
            hard_timeout: 0,
            packet_count: 3,
            byte_count: 4,
        };
        let decoded_reason =
            |version, form| match decode(&encode(version, 1, &Message::FlowRemoved(form, Box::new(gone.clone())))) {
                Ok((_, _, Message::FlowRemoved(_, decoded))) => decoded.reason,
                other => panic!("{other:?}"),
            };
        for version in Version::ALL {
            let meter = if version < Version::V14 { FlowRemovedReason::Delete } else { FlowRemovedReason::MeterDelete };
            assert_eq!(decoded_reason(version, Form::Standard), meter, "{version}");
        }
        assert_eq!(decoded_reason(V10, Form::Nicira), FlowRemovedReason::Delete);
    }
}
