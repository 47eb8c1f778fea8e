//! A flow mod as a value: the common content of the text of `ovs-ofctl` and the messages of all versions.

use super::action::Action;
use base::PortNo;
use flow::Match;

/// A command on flows (OpenFlow `ofp_flow_mod_command`, the discriminant is the number on the wire).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum FlowModCommand {
    /// Add a flow, replacing one with the same match and priority.
    Add = 0,
    /// Change the actions of all flows whose match is contained in this one.
    Modify = 1,
    /// Change the actions of the flow with exactly this match and priority.
    ModifyStrict = 2,
    /// Delete all flows whose match is contained in this one.
    Delete = 3,
    /// Delete the flow with exactly this match and priority.
    DeleteStrict = 4,
}

impl FlowModCommand {
    /// Returns true if the command has actions, and does not delete.
    pub fn adds(self) -> bool {
        !matches!(self, Self::Delete | Self::DeleteStrict)
    }

    /// Returns the command with this number.
    pub fn from_wire(n: u8) -> Option<Self> {
        [Self::Add, Self::Modify, Self::ModifyStrict, Self::Delete, Self::DeleteStrict]
            .into_iter()
            .find(|c| *c as u8 == n)
    }
}

/// Flags of a flow (OpenFlow 1.3 section 7.3.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowFlags {
    /// Send a flow-removed message when the flow is removed.
    pub send_flow_rem: bool,
    /// Refuse to add the flow if it overlaps another one of the same priority.
    pub check_overlap: bool,
    /// Reset the counters (OpenFlow 1.2; before, `Add` always does).
    pub reset_counts: bool,
    /// The flow needs no packet counter (OpenFlow 1.3).
    pub no_packet_counts: bool,
    /// The flow needs no byte counter (OpenFlow 1.3).
    pub no_byte_counts: bool,
}

/// Any group, in requests.
pub const GROUP_ANY: u32 = 0xffff_ffff;

/// A flow mod.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowMod {
    /// The command.
    pub command: FlowModCommand,
    /// The table; `None` for all of them (delete), or to let the switch choose (add).
    pub table_id: Option<u8>,
    /// Priority: a larger number takes precedence.
    pub priority: u16,
    /// The match.
    pub matching: Match,
    /// The cookie that existing flows must have in the bits of `cookie_mask`.
    pub cookie: u64,
    /// See `cookie`.
    pub cookie_mask: u64,
    /// The cookie of a new flow, and of modified ones if `modify_cookie`.
    pub new_cookie: u64,
    /// True if a modification also changes the cookie of existing flows.
    pub modify_cookie: bool,
    /// Idle timeout in seconds; 0: none.
    pub idle_timeout: u16,
    /// Hard timeout in seconds; 0: none.
    pub hard_timeout: u16,
    /// Eviction removes flows of lower importance first (OpenFlow 1.4).
    pub importance: u16,
    /// A buffered packet to which to apply the flow.
    pub buffer_id: Option<u32>,
    /// Delete: only flows that output to this port; `PortNo::ANY` for no such limit.
    pub out_port: PortNo,
    /// Delete: only flows that output to this group; [`GROUP_ANY`] for no such limit.
    pub out_group: u32,
    /// Flags of a new flow.
    pub flags: FlowFlags,
    /// The flow's actions.
    pub actions: Vec<Action>,
}

impl Default for FlowMod {
    fn default() -> Self {
        Self::new(FlowModCommand::Add)
    }
}

impl FlowMod {
    /// As the new cookie of a modification: keeps the cookies of existing flows, and adds no flow.
    pub const KEEP_COOKIE: u64 = u64::MAX;
    /// The priority of flows whose text has none.
    pub const DEFAULT_PRIORITY: u16 = 0x8000;

    /// Returns `command` on all packets and all tables, with nothing else set.
    pub fn new(command: FlowModCommand) -> Self {
        Self {
            command,
            table_id: None,
            priority: Self::DEFAULT_PRIORITY,
            matching: Match::ANY,
            cookie: 0,
            cookie_mask: 0,
            new_cookie: 0,
            modify_cookie: false,
            idle_timeout: 0,
            hard_timeout: 0,
            importance: 0,
            buffer_id: None,
            out_port: PortNo::ANY,
            out_group: GROUP_ANY,
            flags: FlowFlags::default(),
            actions: Vec::new(),
        }
    }

    /// Resets all fields to those of [`FlowMod::new`] in place: matches are large.
    pub(crate) fn reset(&mut self, to: FlowModCommand) {
        let Self {
            command,
            table_id,
            priority,
            matching,
            cookie,
            cookie_mask,
            new_cookie,
            modify_cookie,
            idle_timeout,
            hard_timeout,
            importance,
            buffer_id,
            out_port,
            out_group,
            flags,
            actions,
        } = self;
        (*command, *table_id, *priority) = (to, None, Self::DEFAULT_PRIORITY);
        (*cookie, *cookie_mask, *new_cookie, *modify_cookie) = (0, 0, 0, false);
        (*idle_timeout, *hard_timeout, *importance, *buffer_id) = (0, 0, 0, None);
        (*out_port, *out_group, *flags) = (PortNo::ANY, GROUP_ANY, FlowFlags::default());
        matching.reset();
        actions.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_flow_mod_equals_a_new_one() {
        let mut fm = FlowMod {
            command: FlowModCommand::Delete,
            table_id: Some(3),
            priority: 1,
            matching: Match::new(&flow::FlowKey([1; flow::WORDS]), flow::FlowKey([3; flow::WORDS])),
            cookie: 4,
            cookie_mask: 5,
            new_cookie: 6,
            modify_cookie: true,
            idle_timeout: 7,
            hard_timeout: 8,
            importance: 9,
            buffer_id: Some(10),
            out_port: PortNo(11),
            out_group: 12,
            flags: FlowFlags { send_flow_rem: true, ..FlowFlags::default() },
            actions: vec![Action::PopVlan],
        };
        fm.reset(FlowModCommand::Modify);
        assert_eq!(fm, FlowMod::new(FlowModCommand::Modify));
    }
}
