//! Samples for collectors on this host, from the OpenFlow action to the collectors.

use super::ipfix::{refused, sample};
use super::*;
use crate::{LocalCollectors, LocalSets, QueuedSample};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

/// Collectors on this host.
#[derive(Debug)]
struct Local(Sender<QueuedSample>);

impl LocalCollectors for Local {
    fn data_max(&self) -> usize {
        40
    }

    fn send(&self, sample: &QueuedSample) -> std::io::Result<()> {
        let _ = self.0.send(sample.clone());
        Ok(())
    }
}

#[test]
fn sampled_flows_are_reported_to_collectors_on_this_host() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let c = Client::new(&br, PeerKind::Controller, Version::V13);
    c.flow_mod(add(in_port(1), 5, vec![sample(3, u16::MAX), sample(4, u16::MAX), output(2)]));
    let set = |groups| br.set_local_sets(Some(LocalSets { groups: Arc::new(groups), explicit_drops: false }));
    set([(3, 77)].into());
    // There are none yet.
    lab.send("br-1", &[frame(1, 2)]);
    assert!(!lab.switch.has_local_collectors());
    let (samples, received) = channel();
    lab.switch.set_local_collectors(Arc::new(Local(samples)));
    lab.send("br-1", &[frame(1, 2)]);
    let wait = Duration::from_secs(60);
    let got = received.recv_timeout(wait).expect("a sample");
    assert_eq!((got.what.group, got.what.cookie.bytes()), (77, &[0, 0, 0, 7, 0, 0, 0, 9][..]));
    assert_eq!((got.probability, got.ethertype), (u32::MAX, 0x88b5));
    assert_eq!((got.len, &got.data[..]), (frame(1, 2).len(), &frame(1, 2)[..40]));
    // Other commands than of IPFIX exporters do not know them.
    assert_eq!(refused(&c, StatsRequest::IpfixFlow), Some(OfpError::NxstNotConfigured));
    for (on, groups) in [("false", [(3, 77)]), ("true", [(4, 78)])] {
        assert_eq!(lab.switch.set_feature("psample", on, false), crate::features::Set::Done);
        set(groups.into());
        lab.send("br-1", &[frame(1, 2)]);
    }
    assert_eq!(received.recv_timeout(wait).map(|sample| sample.what.group), Ok(78));
    br.set_local_sets(None);
    lab.send("br-1", &[frame(1, 2)]);
    assert_eq!(lab.received("br-2").len(), 5);
    assert!(received.try_recv().is_err());
}
