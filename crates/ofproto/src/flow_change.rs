//! What a transaction did to flows, in the order in which it did it, for those who watch them
//! ([`crate::conn::Connections`]).

use crate::flow_table::RemovedReason;
use std::sync::Arc;
use xlate::Rule;

/// Whose request led to a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Requester {
    /// The connection's number.
    pub(crate) peer: u64,
    /// The request's transaction id.
    pub(crate) xid: u32,
}

/// Something that happened to a flow.
#[derive(Clone, Debug)]
pub(crate) struct FlowChange {
    /// The flow, as it is behind the change; as it was before it is gone.
    pub(crate) rule: Arc<Rule>,
    /// What happened.
    pub(crate) what: What,
    /// Who asked for it; nobody, if the switch does it by itself.
    pub(crate) by: Option<Requester>,
}

/// What happened to a flow.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// It was added, in the place of another of the same match and priority if there was one.
    Added {
        /// That other.
        replaced: Option<Arc<Rule>>,
    },
    /// Its actions or its cookie changed.
    Modified {
        /// As it was before.
        old: Arc<Rule>,
    },
    /// It is another rule of the same actions and cookie: nothing to tell of.
    Renewed {
        /// The rule before.
        old: Arc<Rule>,
    },
    /// It is gone.
    Deleted(RemovedReason),
}
