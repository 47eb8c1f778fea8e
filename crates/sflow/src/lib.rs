//! sFlow version 5 (sflow.org, "sFlow Version 5", July 2004): exports sampled packets and counters, in datagrams for
//! collectors.
//!
//! - [`xdr`]: the encoding of values (RFC 4506);
//! - [`flow_sample`]: a sampled packet and its records;
//! - [`counters`]: the counters of a port or of the switch, and their records;
//! - [`agent`]: the agent: sequence numbers, polling, datagrams.
//!
//! This crate has no sockets and no clock: the caller passes samples and counters with their time to [`Agent`], and
//! sends the datagrams that it returns.
//!
//! Invariants: a datagram is at most [`agent::DATAGRAM_MAX`] bytes long; every sample that the agent accepts is in
//! exactly one datagram; an agent's memory is bounded by one datagram and the number of its counter sources.

pub mod agent;
pub mod counters;
pub mod flow_sample;
pub mod xdr;

pub use agent::{Agent, Config};
pub use counters::{AppResources, Counter, Datapath, Duplex, Ethernet, Interface, Lacp};
pub use flow_sample::{FlowSample, HeaderProtocol, Output, Tunnel};

/// A source of samples (section 4.2.1 of the specification).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Source {
    /// An interface, by its index.
    Interface(u32),
    /// A logical entity: the bridge itself, by a number.
    Bridge(u32),
}

impl Source {
    /// The type of logical entities in the upper byte of a source id.
    const ENTITY: u32 = 2;

    /// The source id: a type and an index of 24 bits.
    pub fn id(self) -> u32 {
        match self {
            Self::Interface(index) => index & 0xff_ffff,
            Self::Bridge(number) => Self::ENTITY << 24 | number & 0xff_ffff,
        }
    }
}
