//! A transaction's changes to flows, in order, for flow monitors
//! ([`crate::conn::Connections`]).

use crate::flow_table::RemovedReason;
use std::sync::Arc;
use xlate::Rule;

/// The connection and request that led to a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Requester {
    /// The connection's number.
    pub(crate) peer: u64,
    /// The request's transaction id.
    pub(crate) xid: u32,
}

/// A change of a flow.
#[derive(Clone, Debug)]
pub(crate) struct FlowChange {
    /// The flow after the change; a deleted flow as it was.
    pub(crate) rule: Arc<Rule>,
    /// The kind of change.
    pub(crate) what: FlowChangeKind,
    /// The requester; `None` if the switch made the change by itself.
    pub(crate) by: Option<Requester>,
}

/// The kind of change to a flow.
#[derive(Clone, Debug)]
pub(crate) enum FlowChangeKind {
    /// The flow was added, and replaced another one of the same match and priority if there was one.
    Added {
        /// The replaced flow.
        replaced: Option<Arc<Rule>>,
    },
    /// Its actions or its cookie changed.
    Modified {
        /// The flow before the change.
        old: Arc<Rule>,
    },
    /// The flow was replaced by one with the same actions and cookie, which monitors do not report.
    Renewed {
        /// The flow before the change.
        old: Arc<Rule>,
    },
    /// The flow was deleted.
    Deleted(RemovedReason),
}
