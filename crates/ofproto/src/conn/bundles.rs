//! Bundles of a connection: messages that are stored until all of them are applied at once, or discarded (OpenFlow 1.4
//! section 6.9). A state machine without sockets, with time as an argument; [`super::bundling`] connects it to connections.
//!
//! Messages are stored as received: decoded, they would take more than ten times as much memory. The memory of all bundles of
//! a switch is limited by a [`Budget`], including bundles in a commit.

use base::Millis;
use openflow::OfpError;
use openflow::bundle::flag;
use openflow::bundle_features::{self, BundleFeatures, BundleFeaturesRequest};
use openflow::message::Options;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The largest number of open bundles of a connection.
pub(super) const BUNDLES_MAX: usize = 1024;
/// The largest memory of a connection's bundles in bytes: some millions of flow mods.
pub(super) const BYTES_MAX: usize = 512 << 20;
/// The largest memory of the bundles of all connections of a switch.
const BUDGET: usize = 1 << 30;
/// The memory that a message takes in addition to its bytes.
const OVERHEAD: usize = size_of::<BundledMessage>() + 16;

/// A connection's bundles.
#[derive(Debug, Default)]
pub(crate) struct Bundles {
    open: HashMap<u32, Bundle>,
    bytes: usize,
    budget: Arc<Budget>,
}

/// The memory of the bundles of many connections.
#[derive(Debug)]
pub(crate) struct Budget {
    taken: AtomicUsize,
    max: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { taken: AtomicUsize::new(0), max: BUDGET }
    }
}

impl Budget {
    /// The number of bytes in use.
    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

/// A part of a budget, returned when it is dropped.
#[derive(Debug)]
struct Permit {
    bytes: usize,
    budget: Arc<Budget>,
}

impl Permit {
    /// Extends it by `bytes`, if the budget allows that.
    fn grow(&mut self, bytes: usize) -> bool {
        let Budget { taken, max } = &*self.budget;
        let grown = |taken: usize| taken.checked_add(bytes).filter(|sum| sum <= max);
        let there = taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, grown).is_ok();
        if there {
            self.bytes += bytes;
        } else {
            base::coverage!(ofproto_bundles_full);
        }
        there
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.budget.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The messages of a bundle to commit.
#[derive(Debug)]
pub(crate) struct Messages {
    pub(crate) messages: Vec<BundledMessage>,
    /// The bundle's part of the budget, held until the messages are dropped.
    _permit: Permit,
}

/// An open or closed bundle.
#[derive(Debug)]
struct Bundle {
    flags: u16,
    closed: bool,
    messages: Vec<BundledMessage>,
    permit: Permit,
    /// The time of the last request for the bundle.
    used: Millis,
    /// The message that opened it, which the error about its expiry quotes.
    opened_by: Box<[u8]>,
}

/// A message in a bundle.
#[derive(Debug)]
pub(crate) struct BundledMessage {
    /// The OFPT_BUNDLE_ADD_MESSAGE that contained it.
    pub(crate) bytes: Box<[u8]>,
    /// The options for decoding it.
    pub(crate) options: Options,
    /// Whether it may concern many flows: all those that meet its criteria.
    pub(crate) selects_flows: bool,
}

impl Bundles {
    /// Creates the bundles of a connection, within this budget.
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self { budget, ..Self::default() }
    }

    fn insert(&mut self, id: u32, flags: u16, now: Millis, opened_by: &[u8]) -> Result<&mut Bundle, OfpError> {
        if flags & !(flag::ATOMIC | flag::ORDERED) != 0 {
            return Err(OfpError::BfcBadFlags);
        }
        let opened_by: Box<[u8]> = opened_by.into();
        let bytes = opened_by.len() + OVERHEAD;
        let mut permit = Permit { bytes: 0, budget: Arc::clone(&self.budget) };
        if self.open.len() >= BUNDLES_MAX || self.bytes.saturating_add(bytes) > BYTES_MAX || !permit.grow(bytes) {
            return Err(OfpError::BfcOutOfBundles);
        }
        self.bytes += bytes;
        let bundle = Bundle { flags, closed: false, messages: Vec::new(), permit, used: now, opened_by };
        Ok(self.open.entry(id).insert_entry(bundle).into_mut())
    }

    #[cfg(test)]
    pub(crate) fn fill(&mut self) {
        self.bytes = BYTES_MAX;
    }

    fn remove(&mut self, id: u32) -> Option<Bundle> {
        let bundle = self.open.remove(&id)?;
        self.bytes = self.bytes.saturating_sub(bundle.permit.bytes);
        Some(bundle)
    }

    /// Opens a bundle.
    ///
    /// Errors: `OFPBFC_BAD_ID` if it exists already, which also discards it: two users of one number would mix their messages;
    /// `OFPBFC_OUT_OF_BUNDLES`, `OFPBFC_BAD_FLAGS`.
    pub(crate) fn open(&mut self, id: u32, flags: u16, now: Millis, opened_by: &[u8]) -> Result<(), OfpError> {
        if self.remove(id).is_some() {
            return Err(OfpError::BfcBadId);
        }
        self.insert(id, flags, now, opened_by).map(drop)
    }

    /// Closes a bundle: it accepts no more messages.
    ///
    /// Errors: `OFPBFC_BAD_ID`; `OFPBFC_BUNDLE_CLOSED` and `OFPBFC_BAD_FLAGS`, which discard it.
    pub(crate) fn close(&mut self, id: u32, flags: u16, now: Millis) -> Result<(), OfpError> {
        let bundle = self.open.get_mut(&id).ok_or(OfpError::BfcBadId)?;
        let error = match bundle {
            bundle if bundle.closed => OfpError::BfcBundleClosed,
            bundle if bundle.flags != flags => OfpError::BfcBadFlags,
            bundle => {
                (bundle.closed, bundle.used) = (true, now);
                return Ok(());
            }
        };
        self.remove(id);
        Err(error)
    }

    /// Removes a bundle in order to commit it.
    ///
    /// Errors: `OFPBFC_BAD_ID`; `OFPBFC_BAD_FLAGS`, which discards it.
    pub(crate) fn take(&mut self, id: u32, flags: u16) -> Result<Messages, OfpError> {
        let Bundle { messages, permit, flags: opened_with, .. } = self.remove(id).ok_or(OfpError::BfcBadId)?;
        if opened_with == flags { Ok(Messages { messages, _permit: permit }) } else { Err(OfpError::BfcBadFlags) }
    }

    /// Discards a bundle.
    ///
    /// Errors: `OFPBFC_BAD_ID`.
    pub(crate) fn discard(&mut self, id: u32) -> Result<(), OfpError> {
        self.remove(id).map(drop).ok_or(OfpError::BfcBadId)
    }

    /// Adds a message to a bundle, which is opened if it does not exist.
    ///
    /// Errors: `OFPBFC_MSG_TOO_MANY`; those of opening it; `OFPBFC_BUNDLE_CLOSED` and `OFPBFC_BAD_FLAGS`, which discard it.
    pub(crate) fn add(
        &mut self,
        (id, flags): (u32, u16),
        message: BundledMessage,
        now: Millis,
    ) -> Result<(), OfpError> {
        let bytes = message.bytes.len() + OVERHEAD;
        let error = match self.open.get(&id) {
            Some(bundle) if bundle.closed => Some(OfpError::BfcBundleClosed),
            Some(bundle) if bundle.flags != flags => Some(OfpError::BfcBadFlags),
            _ => None,
        };
        if let Some(error) = error {
            self.remove(id);
            return Err(error);
        }
        if self.bytes.saturating_add(bytes) > BYTES_MAX {
            return Err(OfpError::BfcMsgTooMany);
        }
        let is_new = !self.open.contains_key(&id);
        if is_new {
            self.insert(id, flags, now, &message.bytes)?;
        }
        let bundle = self.open.get_mut(&id).ok_or(OfpError::BfcBadId)?;
        if !bundle.permit.grow(bytes) {
            if is_new {
                self.remove(id);
            }
            return Err(OfpError::BfcMsgTooMany);
        }
        self.bytes += bytes;
        bundle.used = now;
        bundle.messages.push(message);
        Ok(())
    }

    /// Discards bundles without a request for `idle_ms`, and returns the messages that opened them.
    pub(crate) fn expire(&mut self, now: Millis, idle_ms: u64) -> Vec<Box<[u8]>> {
        let over = |bundle: &Bundle| bundle.used.0.saturating_add(idle_ms) <= now.0;
        let mut expired: Vec<u32> = self.open.iter().filter(|(_, b)| over(b)).map(|(id, _)| *id).collect();
        expired.sort_unstable();
        expired.into_iter().filter_map(|id| Some(self.remove(id)?.opened_by)).collect()
    }
}

/// Returns the bundle features: scheduled bundles are not supported.
///
/// Errors: `OFPBRC_MULTIPART_BAD_SCHED` for a request to set the largest offsets of times.
pub(super) fn features(request: &BundleFeaturesRequest) -> Result<BundleFeatures, OfpError> {
    if request.flags & bundle_features::flag::TIME_SET_SCHED != 0 {
        return Err(OfpError::BrcMultipartBadSched);
    }
    Ok(BundleFeatures { capabilities: flag::ATOMIC | flag::ORDERED, time: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: u16 = flag::ATOMIC | flag::ORDERED;

    fn message_of(len: usize) -> BundledMessage {
        BundledMessage { bytes: vec![0; len].into(), options: Options::default(), selects_flows: false }
    }

    fn n_messages(bundle: Result<Messages, OfpError>) -> Result<usize, OfpError> {
        bundle.map(|bundle| bundle.messages.len())
    }

    #[test]
    fn a_bundle_is_opened_filled_and_committed() {
        let mut b = Bundles::default();
        let add = |b: &mut Bundles, id, flags, at| b.add((id, flags), message_of(80), Millis(at));
        assert_eq!(b.open(1, FLAGS, Millis(0), b"open"), Ok(()));
        assert_eq!(add(&mut b, 1, FLAGS, 1), Ok(()));
        assert_eq!(add(&mut b, 1, FLAGS, 2), Ok(()));
        assert_eq!(b.close(1, FLAGS, Millis(3)), Ok(()));
        assert_eq!(n_messages(b.take(1, FLAGS)), Ok(2));
        assert_eq!(n_messages(b.take(1, FLAGS)), Err(OfpError::BfcBadId));
        // An addition opens a bundle, and a commit needs no close.
        assert_eq!(add(&mut b, 1, FLAGS, 4), Ok(()));
        assert_eq!(n_messages(b.take(1, FLAGS)), Ok(1));
        assert_eq!((b.bytes, b.open.len()), (0, 0));
    }

    #[test]
    fn contradictory_requests_discard_the_bundle() {
        let mut b = Bundles::default();
        let gone = |b: &mut Bundles| assert_eq!(b.discard(1), Err(OfpError::BfcBadId));
        let open = |b: &mut Bundles| assert_eq!(b.open(1, FLAGS, Millis(0), b"open"), Ok(()));
        assert_eq!(b.open(1, 4, Millis(0), b"open"), Err(OfpError::BfcBadFlags));
        open(&mut b);
        assert_eq!(b.open(1, FLAGS, Millis(0), b"open"), Err(OfpError::BfcBadId));
        gone(&mut b);
        open(&mut b);
        assert_eq!(b.close(1, 0, Millis(0)), Err(OfpError::BfcBadFlags));
        gone(&mut b);
        open(&mut b);
        assert_eq!(b.close(1, FLAGS, Millis(0)), Ok(()));
        assert_eq!(b.close(1, FLAGS, Millis(0)), Err(OfpError::BfcBundleClosed));
        gone(&mut b);
        open(&mut b);
        assert_eq!(b.close(1, FLAGS, Millis(0)), Ok(()));
        assert_eq!(b.add((1, FLAGS), message_of(8), Millis(0)), Err(OfpError::BfcBundleClosed));
        gone(&mut b);
        open(&mut b);
        assert_eq!(b.add((1, 0), message_of(8), Millis(0)), Err(OfpError::BfcBadFlags));
        gone(&mut b);
        open(&mut b);
        assert_eq!(n_messages(b.take(1, 0)), Err(OfpError::BfcBadFlags));
        gone(&mut b);
        assert_eq!(b.close(1, FLAGS, Millis(0)), Err(OfpError::BfcBadId));
        assert_eq!(b.bytes, 0);
    }

    #[test]
    fn number_and_size_of_bundles_are_limited() {
        let mut b = Bundles::default();
        for id in 0..BUNDLES_MAX as u32 {
            assert_eq!(b.open(id, 0, Millis(0), b"open"), Ok(()));
        }
        assert_eq!(b.open(5000, 0, Millis(0), b"open"), Err(OfpError::BfcOutOfBundles));
        assert_eq!(b.add((5000, 0), message_of(8), Millis(0)), Err(OfpError::BfcOutOfBundles));
        b.bytes = BYTES_MAX - 100;
        assert_eq!(b.add((7, 0), message_of(200), Millis(0)), Err(OfpError::BfcMsgTooMany));
        // Existing bundles stay, and others expire.
        assert_eq!(b.discard(7), Ok(()));
        assert_eq!(b.open(5000, 0, Millis(0), b"open"), Ok(()));
    }

    #[test]
    fn connections_share_a_budget() {
        let budget = Arc::new(Budget { taken: AtomicUsize::new(0), max: 1000 + 4 * OVERHEAD });
        let [mut greedy, mut other] = [(); 2].map(|()| Bundles::new(Arc::clone(&budget)));
        let add = |b: &mut Bundles, id, len| b.add((id, FLAGS), message_of(len), Millis(0));
        assert_eq!(add(&mut greedy, 1, 450), Ok(()), "which opens it too");
        assert_eq!(other.open(1, FLAGS, Millis(0), &[0; 80]), Ok(()));
        assert_eq!(add(&mut other, 1, 30), Err(OfpError::BfcMsgTooMany));
        assert_eq!(add(&mut other, 2, 30), Err(OfpError::BfcOutOfBundles));
        assert_eq!(add(&mut other, 1, 20), Ok(()));
        // Bundles in a commit count as well.
        let taken = greedy.take(1, FLAGS).expect("a bundle");
        assert_eq!((greedy.bytes, add(&mut other, 1, 30)), (0, Err(OfpError::BfcMsgTooMany)));
        drop(taken);
        assert_eq!(add(&mut other, 1, 30), Ok(()));
        drop((greedy, other));
        assert_eq!(budget.taken(), 0);
    }

    #[test]
    fn idle_bundles_expire() {
        let mut b = Bundles::default();
        assert_eq!(b.open(1, 0, Millis(0), b"one"), Ok(()));
        assert_eq!(b.open(2, 0, Millis(500), b"two"), Ok(()));
        assert_eq!(b.open(3, 0, Millis(500), b"three"), Ok(()));
        assert_eq!(b.expire(Millis(999), 1000), []);
        assert_eq!(b.expire(Millis(1000), 1000), [b"one"[..].into()]);
        assert_eq!(b.add((3, 0), message_of(8), Millis(1499)), Ok(()));
        assert_eq!(b.expire(Millis(1500), 1000), [b"two"[..].into()]);
        assert_eq!(b.close(3, 0, Millis(2498)), Ok(()));
        assert_eq!(b.expire(Millis(3497), 1000), []);
        assert_eq!(b.expire(Millis(3498), 1000), [b"three"[..].into()]);
        assert_eq!(b.bytes, 0);
    }
}
