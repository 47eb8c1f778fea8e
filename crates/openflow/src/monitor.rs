//! Flow monitors: a controller's subscriptions to changes of the flow tables, and the updates (OpenFlow 1.4 section
//! 7.3.5.17; for 1.3 the Open Networking Foundation's extension 187; Nicira's before).

use crate::Version::{self, V12, V14};
use crate::action::Action;
use crate::action::encode::encode_actions;
use crate::body::{put_flow_actions, put_nxm, put_oxm_match, read_flow_actions, read_nxm, read_oxm_match};
use crate::error::OfpError;
use crate::flow_mod::GROUP_ANY;
use crate::flow_msg::{ALL_TABLES, table};
use crate::wire::{Reader, Result, Writer};
use base::PortNo;
use flow::Match;

/// Bits of a monitor's flags, as Nicira numbers them.
pub mod flag {
    /// Report the existing flows at first.
    pub const INITIAL: u16 = 1 << 0;
    /// Report added flows.
    pub const ADD: u16 = 1 << 1;
    /// Report deleted flows.
    pub const DELETE: u16 = 1 << 2;
    /// Report modified flows.
    pub const MODIFY: u16 = 1 << 3;
    /// Include the flows' actions.
    pub const ACTIONS: u16 = 1 << 4;
    /// Report the controller's own changes in full. (OpenFlow 1.4 has one bit for that, and one that selects own changes only,
    /// which Open vSwitch treats as this one.)
    pub const OWN: u16 = 1 << 5;

    pub(super) const EVENTS: u16 = ADD | DELETE | MODIFY;
    pub(super) const ALL: u16 = 0x3f;
    /// `OWN` in OpenFlow 1.4.
    pub(super) const OWN14: u16 = 1 << 6;
}

/// A command on a monitor (`ofp_flow_monitor_command`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MonitorCommand {
    /// Create the monitor.
    #[default]
    Add,
    /// Change the monitor.
    Modify,
    /// Delete the monitor.
    Delete,
    /// A number that no version defines. Like Open vSwitch, the decoder accepts it; the switch refuses it.
    Other(u8),
}

impl MonitorCommand {
    fn from_wire(number: u8) -> Self {
        match number {
            0 => Self::Add,
            1 => Self::Modify,
            2 => Self::Delete,
            other => Self::Other(other),
        }
    }

    fn to_wire(self) -> u8 {
        match self {
            Self::Add => 0,
            Self::Modify => 1,
            Self::Delete => 2,
            Self::Other(number) => number,
        }
    }
}

/// One monitor of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowMonitorRequest {
    /// The controller's number for the monitor.
    pub id: u32,
    /// The command; before OpenFlow 1.4 always an addition.
    pub command: MonitorCommand,
    /// Bits of [`flag`].
    pub flags: u16,
    /// Selects flows that output to this port.
    pub out_port: PortNo,
    /// Selects flows that output to this group (OpenFlow 1.4).
    pub out_group: u32,
    /// Selects flows of this table; `None` for all.
    pub table_id: Option<u8>,
    /// Selects flows whose match is contained in this one.
    pub matching: Match,
}

impl FlowMonitorRequest {
    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        if version >= V14 {
            return Self::decode14(version, r);
        }
        let nicira = version <= V12;
        let (id, flags) = (r.u32()?, r.u16()?);
        let (out_port, len) = if nicira {
            (r.port10(), usize::from(r.u16()?))
        } else {
            let len = usize::from(r.u16()?);
            let mut port = r.sub(4)?;
            (port.port11(), len)
        };
        let table_id = table(r.u8()?);
        let zeros = r.bytes(if nicira { 5 } else { 3 })?;
        if flags & !flag::ALL != 0 || flags & flag::EVENTS == 0 {
            return Err(OfpError::MofcBadFlags);
        }
        if zeros.iter().any(|b| *b != 0) {
            return Err(OfpError::NxbrcMustBeZero);
        }
        let out_port = out_port?;
        let matching = if nicira { read_nxm(r, len)?.matching } else { read_oxm_match(version, r)? };
        Ok(Self { id, command: MonitorCommand::Add, flags, out_port, out_group: GROUP_ANY, table_id, matching })
    }

    fn decode14(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        let (id, out_port, out_group) = (r.u32()?, r.clone().port11(), {
            r.skip(4)?;
            r.u32()?
        });
        let (flags, table_id, command) = (r.u16()?, table(r.u8()?), r.u8()?);
        let command = MonitorCommand::from_wire(command);
        let known = flag::ALL & !flag::OWN | flag::OWN14;
        if command != MonitorCommand::Delete && (flags & !known != 0 || flags & flag::EVENTS == 0) {
            return Err(OfpError::MofcBadFlags);
        }
        // A deletion ignores everything except the number.
        let out_port = if command == MonitorCommand::Delete { out_port.unwrap_or(PortNo::ANY) } else { out_port? };
        let own = if flags & flag::OWN14 != 0 { flag::OWN } else { 0 };
        let flags = flags & flag::ALL & !flag::OWN | own;
        Ok(Self { id, command, flags, out_port, out_group, table_id, matching: read_oxm_match(version, r)? })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        let table_id = self.table_id.unwrap_or(ALL_TABLES);
        out.put_u32(self.id);
        if version >= V14 {
            out.put_u32(self.out_port.0);
            out.put_u32(self.out_group);
            let own = if self.flags & flag::OWN != 0 { flag::OWN14 } else { 0 };
            out.put_u16(self.flags & !flag::OWN | own);
            out.put_u8(table_id);
            out.put_u8(self.command.to_wire());
            put_oxm_match(out, version, &self.matching);
        } else if version > V12 {
            out.put_u16(self.flags);
            let len_at = out.len();
            out.put_u16(0);
            out.put_u32(self.out_port.0);
            out.put_u8(table_id);
            out.zeros(3);
            put_measured_match(out, version, len_at, &self.matching);
        } else {
            out.put_u16(self.flags);
            out.put_u16(self.out_port.to_of10());
            let len_at = out.len();
            out.put_u16(0);
            out.put_u8(table_id);
            out.zeros(5);
            put_nxm(out, len_at, &self.matching, (0, 0));
        }
    }
}

/// Writes a match, and its length at `len_at`.
fn put_measured_match(out: &mut Writer, version: Version, len_at: usize, matching: &Match) {
    let start = out.len();
    put_oxm_match(out, version, matching);
    out.copy_within(start + 2..start + 4, len_at);
}

/// An event of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FlowEvent {
    /// The flow existed when the monitor was created (OpenFlow 1.4; an addition before).
    Initial,
    /// The flow was added.
    Added,
    /// The flow was deleted, with this reason (`FlowRemovedReason`).
    Deleted(u16),
    /// The flow was modified.
    Modified,
}

/// A flow and its event.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "named as the specification names them")]
pub struct MonitoredFlow {
    pub event: FlowEvent,
    pub table_id: u8,
    pub priority: u16,
    pub idle_timeout: u16,
    pub hard_timeout: u16,
    pub cookie: u64,
    pub matching: Match,
    /// Empty if the monitor did not ask for actions.
    pub actions: Vec<Action>,
}

/// An update from a monitor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FlowUpdate {
    /// An event of a flow.
    Flow(Box<MonitoredFlow>),
    /// A change that the controller itself requested with this transaction id.
    Abbreviated(u32),
    /// Updates pause (OpenFlow 1.4; a message of its own before).
    Paused,
    /// Updates resume.
    Resumed,
}

// Events of OpenFlow 1.4. Nicira's numbers are one less, and end with the abbreviation.
const INITIAL: u16 = 0;
const ADDED: u16 = 1;
const REMOVED: u16 = 2;
const MODIFIED: u16 = 3;
const ABBREVIATED: u16 = 4;
const PAUSED: u16 = 5;
const RESUMED: u16 = 6;

impl FlowUpdate {
    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        let available = r.len();
        let (len, number) = (usize::from(r.u16()?), r.u16()?);
        if len > available || !len.is_multiple_of(8) {
            return Err(OfpError::BrcBadLen);
        }
        let event = if version >= V14 { number } else { number.saturating_add(1) };
        let short = |r: &mut Reader<'_>| if len == SHORT_LEN { r.u32() } else { Err(OfpError::BrcBadLen) };
        Ok(match event {
            ABBREVIATED => Self::Abbreviated(short(r)?),
            PAUSED if version >= V14 => short(r).map(|_| Self::Paused)?,
            RESUMED if version >= V14 => short(r).map(|_| Self::Resumed)?,
            INITIAL | ADDED | REMOVED | MODIFIED if len < FLOW_LEN => return Err(OfpError::BrcBadLen),
            INITIAL | ADDED | REMOVED | MODIFIED => {
                Self::Flow(Box::new(MonitoredFlow::decode(version, event, len - FLOW_LEN, r)?))
            }
            _ => return Err(OfpError::NxbrcFmBadEvent),
        })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        let event = match self {
            Self::Flow(flow) => match flow.event {
                FlowEvent::Initial if version >= V14 => INITIAL,
                FlowEvent::Initial | FlowEvent::Added => ADDED,
                FlowEvent::Deleted(_) => REMOVED,
                FlowEvent::Modified => MODIFIED,
            },
            Self::Abbreviated(_) => ABBREVIATED,
            Self::Paused => PAUSED,
            Self::Resumed => RESUMED,
        };
        let start = out.len();
        out.put_u16(0);
        out.put_u16(if version >= V14 { event } else { event - 1 });
        match self {
            Self::Flow(flow) => flow.encode(version, out),
            Self::Abbreviated(xid) => out.put_u32(*xid),
            Self::Paused | Self::Resumed => out.zeros(4),
        }
        out.set_len16(start, start);
    }
}

/// Reads a flow's instructions up to the place where `end` bytes are left.
fn flow_actions_until(version: Version, end: usize, r: &mut Reader<'_>) -> Result<Vec<Action>> {
    let len = r.len().checked_sub(end).ok_or(OfpError::BicBadLen)?;
    read_flow_actions(version, &mut r.sub(len)?)
}

/// Bytes of an update without a flow, and of an update with a flow before its match.
const SHORT_LEN: usize = 8;
const FLOW_LEN: usize = 24;

impl MonitoredFlow {
    /// Reads a flow whose match and actions have `len` bytes. As in Open vSwitch, bytes of the next update may be read as part
    /// of the match, whose errors thus precede that of its length.
    fn decode(version: Version, event: u16, len: usize, r: &mut Reader<'_>) -> Result<Self> {
        let of = |reason| match event {
            INITIAL => FlowEvent::Initial,
            ADDED => FlowEvent::Added,
            REMOVED => FlowEvent::Deleted(reason),
            _ => FlowEvent::Modified,
        };
        if version >= V14 {
            let (table_id, reason) = (r.u8()?, r.u8()?);
            let (idle_timeout, hard_timeout, priority) = (r.u16()?, r.u16()?, r.u16()?);
            r.skip(4)?;
            let (cookie, end) = (r.u64()?, r.len().saturating_sub(len));
            let matching = read_oxm_match(version, r)?;
            let (event, actions) = (of(reason.into()), flow_actions_until(version, end, r)?);
            return Ok(Self { event, table_id, priority, idle_timeout, hard_timeout, cookie, matching, actions });
        }
        let (reason, priority, idle_timeout, hard_timeout) = (r.u16()?, r.u16()?, r.u16()?, r.u16()?);
        let (match_len, table_id) = (usize::from(r.u16()?), r.u8()?);
        r.skip(1)?;
        let cookie = r.u64()?;
        if match_len > len {
            return Err(OfpError::BrcBadLen);
        }
        let end = r.len().saturating_sub(len);
        let (matching, actions) = if version > V12 {
            (read_oxm_match(version, r)?, flow_actions_until(version, end, r)?)
        } else {
            // A flow's actions come as a list of actions even in versions with instructions.
            let matching = read_nxm(r, match_len)?.matching;
            (matching, crate::decode_actions(r.sub(r.len().saturating_sub(end))?.rest(), version)?)
        };
        Ok(Self { event: of(reason), table_id, priority, idle_timeout, hard_timeout, cookie, matching, actions })
    }

    fn encode(&self, version: Version, out: &mut Writer) {
        let reason = if let FlowEvent::Deleted(reason) = self.event { reason } else { 0 };
        if version >= V14 {
            out.put_u8(self.table_id);
            out.put_u8(reason as u8);
            out.put_u16(self.idle_timeout);
            out.put_u16(self.hard_timeout);
            out.put_u16(self.priority);
            out.zeros(4);
            out.put_u64(self.cookie);
            put_oxm_match(out, version, &self.matching);
            put_flow_actions(out, version, &self.actions, &self.matching);
            return;
        }
        for n in [reason, self.priority, self.idle_timeout, self.hard_timeout] {
            out.put_u16(n);
        }
        let len_at = out.len();
        out.put_u16(0);
        out.put_u8(self.table_id);
        out.put_u8(0);
        out.put_u64(self.cookie);
        if version > V12 {
            put_measured_match(out, version, len_at, &self.matching);
            put_flow_actions(out, version, &self.actions, &self.matching);
        } else {
            put_nxm(out, len_at, &self.matching, (0, 0));
            encode_actions(out, &self.actions, version, &self.matching);
        }
    }
}
