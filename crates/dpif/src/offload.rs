//! Flows that an accelerator forwards.

use base::DpPort;
use netdev::accelerate::{Capacity, Refusal};
use std::collections::BTreeMap;

/// Why a flow is not offloaded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, thiserror::Error)]
pub enum Unfit {
    /// Its actions are not a single output, with at most one VLAN tag pushed or popped.
    #[error("actions other than one output")]
    Actions,
    /// It sends packets through the connection tracker, or matches packets that went through it.
    #[error("connections are tracked in userspace")]
    Tracked,
    /// It matches no plain packet, or does not match the ingress port.
    #[error("not for plain TCP or UDP")]
    Match,
    /// Its ingress or output port is not accelerated.
    #[error("a port that is not accelerated")]
    Port,
    /// The accelerator refused it.
    #[error("{0}")]
    Refused(Refusal),
}

/// The state of the offload, for display.
#[derive(Clone, Debug)]
pub struct OffloadInfo {
    /// The accelerator's kind.
    pub kind: &'static str,
    /// How much it has.
    pub capacity: Capacity,
    /// The datapath's ports, by number; an error states why a port is not accelerated.
    pub ports: BTreeMap<DpPort, Result<(), String>>,
    /// Number of flows accepted so far.
    pub taken: u64,
    /// Packets that it forwarded and their bytes, as far as fetched.
    pub forwarded: (u64, u64),
    /// Number of refusals by reason; a flow that is offered again counts again.
    pub refused: BTreeMap<Unfit, u64>,
}
