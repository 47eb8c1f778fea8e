//! The state of one client, and the locks that clients contend for (RFC 7047 sections 4.1.8 to 4.1.10).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ovsdb::jsonrpc::Message;
use ovsdb::write;
use serde_json::Value;

use crate::monitor::Monitor;
use crate::rbac::Role;

/// Names a session for as long as the server runs.
pub type SessionId = u64;

/// The permissions of a client, by its remote.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Access {
    /// Whether it may not change anything (`read_only` of its remote).
    pub read_only: bool,
    /// The role of its remote; empty for none.
    pub role: String,
    /// The name in its certificate.
    pub client: Option<String>,
}

impl Access {
    /// The role, if there is one.
    pub(crate) fn role(&self) -> Option<Role<'_>> {
        (!self.role.is_empty()).then(|| Role { name: &self.role, client: self.client.as_deref() })
    }
}

/// One client.
#[derive(Debug, Default)]
pub(crate) struct Session {
    /// The monitors that it started, with the names of their databases.
    pub(crate) monitors: Vec<(String, Monitor)>,
    /// The locks that it has requested and not released, whether or not it owns them.
    pub(crate) locks_requested: BTreeSet<String>,
    /// The locks that it owns.
    pub(crate) locks_owned: BTreeSet<String>,
    /// Whether it understands notifications about added and removed databases, and need not be disconnected for them.
    pub(crate) change_aware: bool,
    /// Its permissions.
    pub(crate) access: Access,
}

impl Session {
    /// The place of the monitor called `id`.
    pub(crate) fn monitor_position(&self, id: &Value) -> Option<usize> {
        self.monitors.iter().position(|(_, monitor)| monitor.id == *id)
    }
}

/// A serialised message: the body may be shared with other clients.
#[derive(Clone, PartialEq, Eq)]
pub struct Text {
    /// The part before the body.
    pub head: Vec<u8>,
    /// The shared part.
    pub body: Arc<[u8]>,
    /// The part after the body.
    pub tail: &'static [u8],
    /// Whether the client did not ask for it.
    pub unasked: bool,
}

impl std::fmt::Debug for Text {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.parts().iter().try_for_each(|part| f.write_str(&String::from_utf8_lossy(part)))
    }
}

impl Text {
    /// The answer to a request.
    pub(crate) fn reply(id: &Value, result: (Vec<u8>, Arc<[u8]>, &'static [u8])) -> Self {
        let (before, body, tail) = result;
        let mut head = b"{\"error\":null,\"id\":".to_vec();
        write::value(&mut head, id);
        head.extend_from_slice(b",\"result\":");
        head.extend_from_slice(&before);
        Self { head, body, tail, unasked: false }
    }

    /// A message of a client's own.
    pub(crate) fn of(message: &Message) -> Self {
        let unasked = matches!(message, Message::Notification { .. });
        Self { head: message.to_bytes(), body: Arc::default(), tail: b"", unasked }
    }

    /// Its parts, in order.
    pub(crate) fn parts(&self) -> [&[u8]; 3] {
        [&self.head, &self.body, self.tail]
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.head.len() + self.body.len() + self.tail.len()
    }

    /// Whether there is nothing, which is no message.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Something for the shell around the core to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Send a message to a session's client.
    Send(SessionId, Message),
    /// The same, of one that is written already.
    Write(SessionId, Text),
    /// Close a session, for the reason given.
    Close(SessionId, String),
}

/// A session that wants a lock.
#[derive(Debug, Clone, Copy)]
struct Waiter {
    session: SessionId,
    /// Whether it stole the lock. If another session steals it in turn, this one does not wait for the lock, but must
    /// request it again.
    stole: bool,
}

/// All locks: for each, the sessions that want it, its owner first.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    waiters: BTreeMap<String, VecDeque<Waiter>>,
}

impl Locks {
    /// Queues `session` for a lock; returns whether it owns it now.
    pub(crate) fn request(&mut self, name: &str, session: SessionId) -> bool {
        let waiters = self.waiters.entry(name.to_owned()).or_default();
        waiters.push_back(Waiter { session, stole: false });
        waiters.len() == 1
    }

    /// Assigns a lock to `session` at once; returns the session that owned it.
    pub(crate) fn steal(&mut self, name: &str, session: SessionId) -> Option<SessionId> {
        let waiters = self.waiters.entry(name.to_owned()).or_default();
        let victim = waiters.pop_front_if(|owner| owner.stole).or_else(|| waiters.front().copied());
        waiters.push_front(Waiter { session, stole: true });
        victim.map(|victim| victim.session)
    }

    /// Takes `session` out of a lock's queue; returns the session that owns the lock from now on, if that changed.
    pub(crate) fn release(&mut self, name: &str, session: SessionId) -> Option<SessionId> {
        let waiters = self.waiters.get_mut(name)?;
        let was_owner = waiters.front().is_some_and(|owner| owner.session == session);
        waiters.retain(|waiter| waiter.session != session);
        let next = waiters.front().map(|owner| owner.session);
        if next.is_none() {
            self.waiters.remove(name);
        }
        next.filter(|_| was_owner)
    }
}
