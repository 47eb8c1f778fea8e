//! Plain packets that begin connections, without all that other packets need: TCP and UDP over IPv4, without address
//! translation or a helper.
//!
//! [`Tracker::open`] either does exactly what [`Tracker::track`] would do with a packet without a connection, or changes nothing.

use base::Millis;
use packet::metadata::Connection;

use super::Tracker;
use super::resume::{Plain, Resumed};
use super::track::write;
use crate::action::{Action, Commit, state};
use crate::key::ipproto;
use crate::proto::{Protocol, datagram, tcp};

/// Returns true if [`Tracker::open`] may execute the action.
pub fn is_opening(action: &Action) -> bool {
    action.commit == Some(Commit::Plain) && action.nat.is_none() && action.helper.is_none()
}

impl Tracker {
    /// Returns true if the plain packet of a frame may begin a connection in the zone of an action without a commit. It does, and
    /// has the state [`Self::state_of_new`], if there is none that it belongs to ([`Self::is_absent`]). Sets the zone of the key.
    #[inline]
    pub fn may_begin(&self, frame: &[u8], plain: &mut Plain, action: &Action) -> bool {
        plain.zone = action.zone;
        if action.commit.is_some() || !self.expectations.is_empty() {
            return false;
        }
        if plain.proto() != ipproto::TCP {
            return true;
        }
        let Some(segment) = plain.segment_of(frame) else { return false };
        plain.segment = segment;
        tcp::Tcp::may_begin(&plain.segment)
    }

    /// Returns true if there is no connection that a packet belongs to.
    #[inline]
    pub fn is_absent(&self, plain: &Plain, now: Millis) -> bool {
        self.table.find(&plain.key(), self.hash_of(plain), now).is_none()
    }

    /// The state of a packet that begins a connection, which is not stored.
    pub fn state_of_new(&self, plain: &Plain) -> Connection {
        let mut connection = Connection::default();
        write(&mut connection, plain.zone, state::NEW, &plain.key(), None);
        connection
    }

    /// Executes an action that [`is_opening`] on a packet that [`Self::may_begin`] a connection in the same zone. Returns the
    /// connection; `None` if it is not stored, as there is one already, for example: then nothing has changed.
    #[inline]
    pub fn open(&self, plain: &Plain, action: &Action, now: Millis) -> Option<Resumed<'_>> {
        let protocol = match plain.proto() {
            ipproto::TCP => Protocol::Tcp(tcp::Tcp::begin(&plain.segment)?),
            _ => Protocol::Datagram(datagram::Datagram::begin()),
        };
        let mut conn = self.commit(&plain.key(), self.hash_of(plain), protocol, action, None, now).ok()?;
        conn.mark = action.mark.map_or(0, |(value, _)| value);
        conn.label = action.label.map_or(0, |(value, _)| value).into();
        Some(Resumed::opened(conn))
    }
}
