//! The state of one translation, grouped by how it changes: [`Packet`] by actions, [`Position`] by the way through tables
//! and bridges, [`Output`] only grows, [`Control`] steers the loop over actions, and [`Usage`] counts against limits.
//!
//! Code that works on a copy of the packet, or elsewhere in the pipeline, runs in a [`crate::scope::Scope`], which restores
//! what has to be as it was.

use crate::bits::Value;
use crate::commit::Pending;
use crate::freeze::{Freeze, Unseen};
use crate::learn::FinTimeout;
use crate::mac::MacKey;
use crate::model::{Bridge, BridgeId};
use crate::monitor::Outputs;
use crate::pipeline::Frame;
use crate::restored::Restored;
use crate::verdict::{Dependency, Effect, TranslationError, Written, WrittenWord};
use base::{DropReason, PortNo};
use dpif::DpAction;
use flow::{FlowKey, Reads};
use openflow::{Action, Nat};
use std::collections::HashMap;

/// Typical number of written words.
pub(crate) const WORDS_TYPICAL_WRITTEN: usize = 8;
/// Typical number of look-ups in a translation.
pub(crate) const TYPICAL_LOOKUPS: usize = 16;

/// The packet with the changes of actions so far.
pub(crate) struct Packet {
    /// The key after the OpenFlow actions so far.
    pub(crate) key: FlowKey,
    /// The datapath's key after the datapath actions emitted so far.
    pub(crate) base: FlowKey,
    /// Changes in `key` that are not emitted yet.
    pub(crate) pending: Pending,
    /// The datapath has computed the packet's hash, and the key has it.
    pub(crate) hashed: bool,
    /// The headers that a pop uncovered, which have to be parsed first.
    pub(crate) unseen: Unseen,
    /// True if the connection tracker has seen the packet; `None` if the key's `ct_state` decides.
    pub(crate) tracked: Option<bool>,
    /// True if the tracker may have translated addresses and ports of the packet in the datapath.
    pub(crate) translated: bool,
    /// The written words of the key, as dependencies record them; `None` if they changed since they were recorded.
    pub(crate) written: Option<Written>,
    /// The priority that the packet came with, which `pop_queue` restores.
    pub(crate) first_priority: u32,
}

/// The position of the translation in the pipeline.
pub(crate) struct Position<'a> {
    pub(crate) bridge: &'a Bridge,
    /// The version of the bridge's tables, as an index into [`crate::translate::Xlate::views`].
    pub(crate) view: usize,
    pub(crate) table: u8,
    /// The index of the [`Effect::Lookup`] of the rule whose actions are executed.
    pub(crate) rule: Option<usize>,
    pub(crate) rule_cookie: u64,
    /// True for a table-miss rule: priority 0, matches all (OpenFlow 1.3 section 5.4).
    pub(crate) rule_is_miss: bool,
    pub(crate) action_set: Vec<Action>,
    pub(crate) stack: Vec<Value>,
    /// See [`crate::translate::MAX_DEPTH`].
    pub(crate) depth: u32,
    /// The number of nested rules, buckets and patch ports.
    pub(crate) level: u32,
    /// Nested calls of the loop over lists of actions in this bridge.
    pub(crate) runs: u32,
    /// True while the action set is executed.
    pub(crate) in_action_set: bool,
    /// The level of the bucket that is executed. (The actions of a rule that it leads to are at a higher level.)
    pub(crate) bucket_level: Option<u32>,
    /// True if the translation began with the actions of a packet-out.
    pub(crate) packet_out: bool,
}

impl<'a> Position<'a> {
    /// The beginning of the pipeline of `bridge`, whose tables are those of the first view.
    pub(crate) fn new(bridge: &'a Bridge) -> Self {
        Self {
            bridge,
            view: 0,
            table: 0,
            rule: None,
            rule_cookie: u64::MAX,
            rule_is_miss: false,
            action_set: Vec::new(),
            stack: Vec::new(),
            depth: 0,
            level: 0,
            runs: 0,
            in_action_set: false,
            bucket_level: None,
            packet_out: false,
        }
    }
}

impl Position<'_> {
    /// Returns true while a bucket's own actions are executed, not those of a rule that they lead to.
    pub(crate) fn is_in_bucket(&self) -> bool {
        self.bucket_level == Some(self.level)
    }
}

/// The output of the translation.
pub(crate) struct Output {
    pub(crate) reads: Reads,
    pub(crate) actions: Vec<DpAction>,
    pub(crate) effects: Vec<Effect>,
    /// Addresses whose port is another one after this packet, as its later look-ups see them.
    pub(crate) learned: HashMap<(BridgeId, MacKey), PortNo>,
    pub(crate) fin_timeouts: Vec<FinTimeout>,
    pub(crate) dependencies: Vec<Dependency>,
    /// The words of the key that were written before any of the look-ups.
    pub(crate) all_written: Vec<WrittenWord>,
    /// The first reason why the packet was not output.
    pub(crate) drop: Option<DropReason>,
    /// True if an action reports the packet to IPFIX collectors.
    pub(crate) observed: bool,
    /// True if the bridge of such an action asks for explicit drops.
    pub(crate) explicit_drops: bool,
    /// True if each packet takes the slow path.
    pub(crate) slow: bool,
    /// What flow monitoring reports of the packet's outputs.
    pub(crate) outputs: Outputs,
}

/// Requests of an action to the code around it.
#[derive(Default)]
pub(crate) struct Control {
    /// The error that ended the translation.
    pub(crate) error: Option<TranslationError>,
    /// Ends all lists of actions: after an `exit`, or an error.
    pub(crate) exit: bool,
    /// Freezes the translation until the packet returns from the datapath or a controller.
    pub(crate) freeze: Option<Freeze>,
    /// Ends the current list of actions; lists that led to it by a resubmit continue.
    pub(crate) stop_list: bool,
    /// The list of actions to execute next, before the rest of the current one.
    pub(crate) next: Option<Frame<'static>>,
    /// The address translation of the `ct` action in execution.
    pub(crate) nat: Option<Box<Nat>>,
    /// The table and cookie that a trace has shown as restored.
    pub(crate) restored: Restored,
    /// Makes the next look-up use the original direction of the packet's connection.
    pub(crate) by_connection: bool,
}

/// The use of the translation's limits.
#[derive(Default)]
pub(crate) struct Usage {
    /// Size of all datapath actions so far, nested ones included, in bytes.
    pub(crate) action_bytes: usize,
    /// See [`crate::translate::MAX_RESUBMITS`].
    pub(crate) resubmits: u32,
    /// See [`crate::translate::MAX_STEPS`].
    pub(crate) steps: u32,
    /// The number of open scopes; see [`crate::translate::MAX_SCOPES`].
    pub(crate) scopes: u32,
}
