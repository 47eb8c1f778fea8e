//! How many requests of clients may be pending at once: requests that have arrived and are not answered, because they
//! wait for a condition (`wait`), were forwarded to the source (relays), or have not had their turn.
//!
//! Each client has a [`Quota`]. The task that reads its connection acquires a permit before it passes a request on, and reads
//! nothing else until it has one: a client that sends too much at once is slowed down, not refused. Dropping the
//! [`Permit`] releases it, wherever the request is by then.
//!
//! A client has a quota of its own for a few small requests; beyond it, permits come out of a pool that all clients share, up to
//! a share of it, or for a single request of any size. A client without pending requests always gets a permit,
//! whatever is left in the pool, so that clients do not wait for each other's requests; that permit is marked, and if the
//! request would have to wait for a condition, it is refused after all.
//!
//! Invariant: requests that wait for a condition never exceed the pool, or a single request that is larger, and the
//! clients' own quotas.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ovsdb::jsonrpc::Message;
use serde_json::Value;
use tokio::sync::Notify;

/// Requests up to this size that are answered at once need no permit.
const SHORT_BYTES: usize = 64 << 10;

/// Limits on pending requests.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AdmissionLimits {
    /// Requests of one client.
    pub(crate) client: Amount,
    /// The part of these that does not come out of the pool.
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

impl Default for AdmissionLimits {
    fn default() -> Self {
        Self {
            client: Amount { requests: 256, bytes: 16 << 20 },
            own: Amount { requests: 16, bytes: 64 << 10 },
            pool: Amount { requests: 4096, bytes: 256 << 20 },
        }
    }
}

/// The limits shared by all clients.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    room: AdmissionLimits,
    state: Mutex<State>,
    /// Notified when a permit of the pool is released.
    freed: Notify,
}

#[derive(Debug, Default)]
struct State {
    taken: Amount,
    /// Clients that wait for a permit.
    held: usize,
}

/// The pending requests of one client.
#[derive(Debug)]
pub(crate) struct Quota {
    pool: Arc<Pool>,
    taken: Mutex<Amount>,
    /// Notified when a permit of the client is released.
    freed: Notify,
}

/// A permit for a pending request; released on drop. The default counts for nothing.
#[derive(Debug, Default)]
pub struct Permit {
    quota: Option<Arc<Quota>>,
    bytes: usize,
    /// The part from the pool, and whether it was within the limits.
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
    /// A pool with these limits.
    #[cfg(test)]
    pub(crate) fn new(room: AdmissionLimits) -> Self {
        Self { room, ..Self::default() }
    }

    /// Number of clients that are not read from, since they wait for a permit.
    pub(crate) fn held(&self) -> usize {
        lock(&self.state).held
    }
}

impl Quota {
    /// The quota of a new client.
    pub(crate) fn new(pool: &Arc<Pool>) -> Arc<Self> {
        Arc::new(Self { pool: Arc::clone(pool), taken: Mutex::default(), freed: Notify::new() })
    }

    /// AdmissionLimits for a message, if there is some.
    pub(crate) fn try_admit(self: &Arc<Self>, message: &Message) -> Option<Permit> {
        match needed(message) {
            None => Some(Permit::default()),
            Some(bytes) => self.try_take(bytes),
        }
    }

    /// Waits for a permit for a message. Dropping the future acquires nothing.
    pub(crate) async fn admit(self: &Arc<Self>, message: &Message) -> Permit {
        let Some(bytes) = needed(message) else { return Permit::default() };
        base::coverage!(ovsdb_request_held);
        let _held = Held::begin(&self.pool);
        loop {
            let (own, shared) = (self.freed.notified(), self.pool.freed.notified());
            tokio::pin!(own, shared);
            // Registers for releases from here on.
            own.as_mut().enable();
            shared.as_mut().enable();
            if let Some(permit) = self.try_take(bytes) {
                return permit;
            }
            tokio::select! {
                () = own => {}
                () = shared => {}
            }
        }
    }

    fn try_take(self: &Arc<Self>, bytes: usize) -> Option<Permit> {
        let AdmissionLimits { client, own, pool } = self.pool.room;
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
        Some(Permit { quota: Some(Arc::clone(self)), bytes, pooled })
    }
}

impl Permit {
    /// Memory that it counts for.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if it exceeds the limits: the request may be answered, but must not wait for a condition.
    pub(crate) fn may_not_wait(&self) -> bool {
        self.pooled == Some(Pooled::Beyond)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(quota) = self.quota.take() else { return };
        lock(&quota.taken).sub(self.bytes);
        quota.freed.notify_waiters();
        if self.pooled == Some(Pooled::Given) {
            lock(&quota.pool.state).taken.sub(self.bytes);
            quota.pool.freed.notify_waiters();
        }
    }
}

/// A client that waits for a permit.
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

/// Returns the memory that a message needs a permit for; `None` if it needs no permit.
fn needed(message: &Message) -> Option<usize> {
    let (method, params) = match message {
        Message::Request { method, params, .. } => (method.as_str(), params.as_slice()),
        Message::Notification { params, .. } => ("", params.as_slice()),
        // The server accepts only short ones, and requests few of them.
        Message::Reply { .. } | Message::Error { .. } => return None,
    };
    let bytes = params.iter().map(weight).sum::<usize>() + size_of::<Message>() + message.id().map_or(0, weight);
    (matches!(method, "transact" | "convert") || bytes > SHORT_BYTES).then_some(bytes)
}

/// The approximate memory of JSON.
fn weight(json: &Value) -> usize {
    /// Memory of an object's map for a member beside its name and value.
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
