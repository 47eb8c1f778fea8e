//! Plain packets that begin connections, without all that other packets need: TCP and UDP over IPv4, without address
//! translation or a helper.
//!
//! [`Tracker::announce`] and [`Tracker::open`] either do exactly what [`Tracker::track`] would do, or change nothing.

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
    /// Executes an action without a commit on the plain packet of a frame. Returns true if the packet begins a connection: it
    /// belongs to none in the zone of the action, and its state is [`Self::state_of_new`]. False if the packet needs
    /// [`Self::track`]; then nothing has changed but the zone of the key.
    #[inline]
    pub fn announce(&self, frame: &[u8], plain: &mut Plain, action: &Action, now: Millis) -> bool {
        plain.key.zone = action.zone;
        let may_begin = match plain.key.proto {
            ipproto::TCP => plain.segment_of(frame).is_some_and(|segment| {
                plain.segment = segment;
                tcp::Tcp::begin(&plain.segment).is_some()
            }),
            _ => true,
        };
        may_begin
            && action.commit.is_none()
            && self.expectations.is_empty()
            && self.table.find(&plain.key, self.hash_of(plain), now).is_none()
    }

    /// The state of a packet that begins a connection, which is not stored.
    pub fn state_of_new(&self, plain: &Plain) -> Connection {
        let mut connection = Connection::default();
        write(&mut connection, plain.key.zone, state::NEW, &plain.key, None);
        connection
    }

    /// Executes an action that [`is_opening`] on a packet that [`Self::announce`] has found to begin a connection in the same
    /// zone. Returns the connection; `None` if it is not stored, and the packet needs [`Self::track`].
    #[inline]
    pub fn open(&self, plain: &Plain, action: &Action, now: Millis) -> Option<Resumed<'_>> {
        let protocol = match plain.key.proto {
            ipproto::TCP => Protocol::Tcp(tcp::Tcp::begin(&plain.segment)?),
            _ => Protocol::Datagram(datagram::Datagram::begin()),
        };
        let mut conn = self.commit(&plain.key, self.hash_of(plain), protocol, action, None, now).ok()?;
        conn.mark = action.mark.map_or(0, |(value, _)| value);
        conn.label = action.label.map_or(0, |(value, _)| value).into();
        Some(Resumed::opened(conn))
    }
}
