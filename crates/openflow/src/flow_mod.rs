//! A flow modification as a value: what the text of `ovs-ofctl` and the messages of all versions have in common.

use super::action::Action;
use base::PortNo;
use flow::Match;

/// What to do with flows (OpenFlow `ofp_flow_mod_command`, the discriminant is the number on the wire).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum FlowModCommand {
    /// Add a flow, replacing one of the same match and priority.
    Add = 0,
    /// Change the actions of all flows that the match contains.
    Modify = 1,
    /// Change the actions of the flow of this very match and priority.
    ModifyStrict = 2,
    /// Delete all flows that the match contains.
    Delete = 3,
    /// Delete the flow of this very match and priority.
    DeleteStrict = 4,
}

impl FlowModCommand {
    /// Whether it brings actions, and does not delete.
    pub fn adds(self) -> bool {
        !matches!(self, Self::Delete | Self::DeleteStrict)
    }

    /// The command of this number.
    pub fn from_wire(n: u8) -> Option<Self> {
        [Self::Add, Self::Modify, Self::ModifyStrict, Self::Delete, Self::DeleteStrict]
            .into_iter()
            .find(|c| *c as u8 == n)
    }
}

/// Flags of a flow (OpenFlow 1.3 section 7.3.4.1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct FlowFlags {
    /// Tell the controllers when the flow goes.
    pub send_flow_rem: bool,
    /// Refuse to add the flow if one of the same priority overlaps.
    pub check_overlap: bool,
    /// Start counting anew (OpenFlow 1.2; always done by `Add` before).
    pub reset_counts: bool,
    /// No packet counter needed (OpenFlow 1.3).
    pub no_packet_counts: bool,
    /// No byte counter needed (OpenFlow 1.3).
    pub no_byte_counts: bool,
}

/// Any group, in requests.
pub const GROUP_ANY: u32 = 0xffff_ffff;

/// One modification of the flow tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowMod {
    /// What to do.
    pub command: FlowModCommand,
    /// Which table; `None` for all of them (delete), or for the switch to choose (add).
    pub table_id: Option<u8>,
    /// Larger goes first.
    pub priority: u16,
    /// Which packets.
    pub matching: Match,
    /// The cookie that existing flows must have in the bits of `cookie_mask`.
    pub cookie: u64,
    /// See `cookie`.
    pub cookie_mask: u64,
    /// The cookie of a new flow, and of changed ones if `modify_cookie`.
    pub new_cookie: u64,
    /// Whether a modification changes the cookie of flows that exist.
    pub modify_cookie: bool,
    /// Seconds without a packet until the flow goes; 0: never.
    pub idle_timeout: u16,
    /// Seconds until the flow goes; 0: never.
    pub hard_timeout: u16,
    /// Larger stays longer when flows are evicted (OpenFlow 1.4).
    pub importance: u16,
    /// A buffered packet to which to apply the flow.
    pub buffer_id: Option<u32>,
    /// Delete: only flows that output to this port; `PortNo::ANY` for no such limit.
    pub out_port: PortNo,
    /// Delete: only flows that output to this group; [`GROUP_ANY`] for no such limit.
    pub out_group: u32,
    /// Flags of a new flow.
    pub flags: FlowFlags,
    /// What the flow does.
    pub actions: Vec<Action>,
}

impl Default for FlowMod {
    fn default() -> Self {
        Self::new(FlowModCommand::Add)
    }
}

impl FlowMod {
    /// As the new cookie of a modification: cookies stay what they are, and what is not there is not added.
    pub const KEEP_COOKIE: u64 = u64::MAX;
    /// Priority of flows whose text names none.
    pub const DEFAULT_PRIORITY: u16 = 0x8000;

    /// `command` on all packets and all tables, with nothing else set.
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

    /// Makes it what [`FlowMod::new`] gives, in the memory that it has: matches are long.
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
    fn what_is_reset_is_new() {
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
