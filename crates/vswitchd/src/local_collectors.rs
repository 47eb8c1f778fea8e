//! The collectors of samples on this host: the members of Linux's psample.

use netdev_linux::psample::{DATA_MAX, Psample, Sample};
use ofproto::{LocalCollectors, QueuedSample};
use std::io;

/// Samples go to psample.
#[derive(Debug)]
pub(crate) struct HostCollectors(Psample);

impl HostCollectors {
    /// Returns `None`, and logs the reason for debugging, if the kernel has no psample.
    pub(crate) fn open() -> Option<Self> {
        match Psample::open() {
            Ok(psample) => Some(Self(psample)),
            Err(error) => {
                tracing::debug!(target: "bridge", "no local sampling: {error}");
                None
            }
        }
    }
}

impl LocalCollectors for HostCollectors {
    fn data_max(&self) -> usize {
        DATA_MAX
    }

    fn send(&self, sample: &QueuedSample) -> io::Result<()> {
        self.0.send(&Sample {
            group: sample.what.group,
            cookie: sample.what.cookie.bytes(),
            probability: sample.probability,
            ifindex: sample.ifindex,
            ethertype: sample.ethertype,
            len: sample.len,
            data: &sample.data,
            time: sample.time,
        })
    }
}
