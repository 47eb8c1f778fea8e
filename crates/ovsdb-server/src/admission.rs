//! How much of what clients ask for may be under way at once: requests that have come and are not answered, since they
//! wait for something to hold (`wait`), are the source's to do (relays), or have not had their turn.
//!
//! Each client has an [`Account`]. Whoever reads its connection asks it for room before a request is handed on, and reads
//! nothing else until it gets it: a client that asks for too much at once is slowed down, not refused. The room is
//! given back when the [`Load`] that came with it is dropped, wherever the request has got to by then.
//!
//! A client has room of its own for a few small requests; what goes beyond that comes out of a pool that all share, up to
//! a share of it, or a single request of any size. Who has nothing under way always gets on, whatever the pool has left, so
//! that nobody waits for somebody else's requests; that load is marked, and if the request would have to wait for something
//! to hold, it is refused after all.
//!
//! Invariant: what waits for something to hold is never more than the pool, or a single request that is larger, and the
//! clients' own room.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ovsdb::jsonrpc::Message;
use serde_json::Value;
use tokio::sync::Notify;

/// Requests that are not handed on before there is room: all but short ones that are answered at once.
const SHORT_BYTES: usize = 64 << 10;

/// How much room there is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// Requests of one client.
    pub(crate) client: Amount,
    /// Of these, those that do not come out of the pool.
    pub(crate) own: Amount,
    /// Requests of all clients together that do.
    pub(crate) pool: Amount,
}

/// So many requests, and bytes of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Amount {
    pub(crate) requests: usize,
    pub(crate) bytes: usize,
}

impl Amount {
    fn has_room(self, taken: Self, bytes: usize) -> bool {
        taken.requests < self.requests && taken.bytes.saturating_add(bytes) <= self.bytes
    }

    fn add(&mut self, bytes: usize) {
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    fn sub(&mut self, bytes: usize) {
        self.requests = self.requests.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}

impl Default for Room {
    fn default() -> Self {
        Self {
            client: Amount { requests: 256, bytes: 16 << 20 },
            own: Amount { requests: 16, bytes: 64 << 10 },
            pool: Amount { requests: 4096, bytes: 256 << 20 },
        }
    }
}

/// What all clients share.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    room: Room,
    state: Mutex<State>,
    /// Told when the pool gets room.
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    taken: Amount,
    /// Clients that wait for room.
    held: usize,
}

/// What one client has under way.
#[derive(Debug)]
pub(crate) struct Account {
    pool: Arc<Pool>,
    taken: Mutex<Amount>,
    /// Told when the client gets room.
    freed: Notify,
}

/// Room that is taken; dropped, it is given back. The default takes none.
#[derive(Debug, Default)]
pub struct Load {
    account: Option<Arc<Account>>,
    bytes: usize,
    /// Out of the pool, and whether it had the room.
    pooled: Option<Pooled>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pooled {
    Given,
    Beyond,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it holds the lock; if something did, the numbers would still be there.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pool {
    /// A pool with so much room.
    #[cfg(test)]
    pub(crate) fn new(room: Room) -> Self {
        Self { room, ..Self::default() }
    }

    /// How many clients are not read from, since they wait for room.
    pub(crate) fn held(&self) -> usize {
        lock(&self.state).held
    }
}

impl Account {
    /// The account of a new client.
    pub(crate) fn new(pool: &Arc<Pool>) -> Arc<Self> {
        Arc::new(Self { pool: Arc::clone(pool), taken: Mutex::default(), freed: Notify::new() })
    }

    /// Room for a message, if there is some.
    pub(crate) fn try_admit(self: &Arc<Self>, message: &Message) -> Option<Load> {
        match needed(message) {
            None => Some(Load::default()),
            Some(bytes) => self.try_take(bytes),
        }
    }

    /// Waits until there is room for a message. Nothing is taken if it is dropped before.
    pub(crate) async fn admit(self: &Arc<Self>, message: &Message) -> Load {
        let Some(bytes) = needed(message) else { return Load::default() };
        base::coverage!(ovsdb_request_held);
        let _held = Held::begin(&self.pool);
        loop {
            let (own, shared) = (self.freed.notified(), self.pool.freed.notified());
            tokio::pin!(own, shared);
            // What is freed from here on is heard of.
            own.as_mut().enable();
            shared.as_mut().enable();
            if let Some(load) = self.try_take(bytes) {
                return load;
            }
            tokio::select! {
                () = own => {}
                () = shared => {}
            }
        }
    }

    fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Load> {
        let Room { client, own, pool } = self.pool.room;
        let mut taken = lock(&self.taken);
        let mut state = lock(&self.pool.state);
        let pooled = if own.has_room(*taken, bytes) {
            None
        } else if (taken.requests == 0 || client.has_room(*taken, bytes))
            && (state.taken.requests == 0 || pool.has_room(state.taken, bytes))
        {
            Some(Pooled::Given)
        } else if taken.requests == 0 {
            Some(Pooled::Beyond)
        } else {
            return None;
        };
        taken.add(bytes);
        if pooled == Some(Pooled::Given) {
            state.taken.add(bytes);
        }
        Some(Load { account: Some(Arc::clone(self)), bytes, pooled })
    }
}

impl Load {
    /// Memory that it stands for.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether there was no room: the request may be answered, but not wait for something to hold.
    pub(crate) fn may_not_wait(&self) -> bool {
        self.pooled == Some(Pooled::Beyond)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let Some(account) = self.account.take() else { return };
        lock(&account.taken).sub(self.bytes);
        account.freed.notify_waiters();
        if self.pooled == Some(Pooled::Given) {
            lock(&account.pool.state).taken.sub(self.bytes);
            account.pool.freed.notify_waiters();
        }
    }
}

/// A client that waits for room.
struct Held<'a>(&'a Pool);

impl<'a> Held<'a> {
    fn begin(pool: &'a Pool) -> Self {
        lock(&pool.state).held += 1;
        Self(pool)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).held -= 1;
    }
}

/// The memory for which a message must have room; `None` if it needs none.
fn needed(message: &Message) -> Option<usize> {
    let (method, params) = match message {
        Message::Request { method, params, .. } => (method.as_str(), params.as_slice()),
        Message::Notification { params, .. } => ("", params.as_slice()),
        // The server takes only short ones, and asks for few of them.
        Message::Reply { .. } | Message::Error { .. } => return None,
    };
    let bytes = params.iter().map(weight).sum::<usize>() + size_of::<Message>() + message.id().map_or(0, weight);
    (matches!(method, "transact" | "convert") || bytes > SHORT_BYTES).then_some(bytes)
}

/// The memory that JSON takes, about.
fn weight(json: &Value) -> usize {
    /// What an object's map needs for a member beside its name and value.
    const MEMBER: usize = size_of::<String>() + 2 * size_of::<usize>();
    size_of::<Value>()
        + match json {
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(weight).sum(),
            Value::Object(members) => members.iter().map(|(name, value)| MEMBER + name.len() + weight(value)).sum(),
        }
}

#[cfg(test)]
mod tests;
