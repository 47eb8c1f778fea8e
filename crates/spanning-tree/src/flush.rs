//! The rate at which a bridge forgets learned addresses: at once, but no more than [`BURST`] times in a second, so that a
//! flood of BPDUs with topology changes does not keep the tables of addresses empty.
//!
//! Invariant: a requested flush happens within [`WINDOW_MS`].

use crate::timer::Timer;
use base::{Millis, PortNo};
use std::collections::BTreeSet;

/// How often addresses may be forgotten in a window.
pub const BURST: u32 = 8;
/// The window, in milliseconds.
pub const WINDOW_MS: u64 = 1000;

/// The ports whose addresses are to be forgotten.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scope {
    /// All of the bridge, also those that do not take part.
    Bridge,
    /// These.
    Ports(BTreeSet<PortNo>),
}

/// The flushes that a bridge has requested.
#[derive(Debug, Default)]
pub struct Flushes {
    requested: Option<Scope>,
    count: u32,
    window: Timer,
}

impl Flushes {
    /// Requests to forget the addresses of a port.
    pub fn request(&mut self, port: PortNo) {
        match &mut self.requested {
            Some(Scope::Bridge) => {}
            Some(Scope::Ports(ports)) => _ = ports.insert(port),
            None => self.requested = Some(Scope::Ports([port].into())),
        }
    }

    /// Requests to forget the addresses of all ports.
    pub fn request_all(&mut self) {
        self.requested = Some(Scope::Bridge);
    }

    /// Returns the addresses to be forgotten now, if any.
    pub fn take(&mut self, now: Millis) -> Option<Scope> {
        if self.window.expire(now) {
            self.count = 0;
        }
        if self.requested.is_none() || self.count == BURST {
            return None;
        }
        if !self.window.is_running() {
            self.window.start(WINDOW_MS, now);
        }
        self.count += 1;
        self.requested.take()
    }

    /// The time at which [`Flushes::take`] returns a request that it has deferred.
    pub fn deadline(&self) -> Option<Millis> {
        self.requested.as_ref()?;
        self.window.deadline()
    }
}
