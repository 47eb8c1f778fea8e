//! A connection.

use crate::action::{Helper, Translated};
use crate::alg::sequence::Shifts;
use crate::key::{Direction, Key};
use crate::limits::Permit;
use crate::proto::Protocol;
use crate::table::Handle;
use crate::timeout::PolicyId;

/// A connection in the table. It is locked while a packet updates it. When it ends stands beside it
/// ([`crate::table::ConnGuard::life`]).
#[derive(Debug)]
pub struct Conn {
    /// The key of packets of each direction as they arrive, by [`Direction::index`]. Without address translation each is
    /// the other one reversed.
    pub keys: [Key; 2],
    /// The state of its protocol.
    pub protocol: Protocol,
    /// Label.
    pub label: u128,
    /// Mark.
    pub mark: u32,
    /// Which addresses are translated.
    pub translated: Translated,
    /// The helper that reads its packets.
    pub helper: Option<Helper>,
    /// Timeouts.
    pub policy: PolicyId,
    /// For a connection that a helper expected: the connection of the helper, and its original direction.
    pub parent: Option<Box<Parent>>,
    /// Shifts of TCP sequence numbers, after a helper has changed the length of the payload.
    pub shifts: Option<Box<Shifts>>,
    /// Where a datapath remembers the way of the packets of each direction; 0 for nowhere. The tracker only keeps them: the
    /// datapath checks what it remembers.
    pub memos: [u32; 2],
    /// What counts the connection for the limit of its zone.
    pub limited_by: Option<Permit>,
}

/// The connection of a helper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parent {
    /// Its handle.
    pub handle: Handle,
    /// The key of its original direction.
    pub key: Key,
}

impl Conn {
    /// The tuple of packets of a direction after their translation.
    #[inline]
    pub fn leaves_as(&self, direction: Direction) -> Key {
        self.keys[direction.reversed().index()].reversed()
    }
}
