//! A switch in memory for measurements: one bridge, whose ports are in-memory wires.

use base::{Clock, PortNo};
use datapath::{Config, Datapath};
use netdev::memory::{self, Memory};
use netdev::{Netdev, Rx, Tx};
use ofproto::{BundleSpec, Ofproto, PortSpec, Switch};
use openflow::flow_text::parse_flow_line;
use packet::Packet;
use std::sync::Arc;
use std::time::{Duration, Instant};
use xlate::model::PriorityTags;
use xlate::{PortOut, VlanMode};

/// The number of frames sent into a wire at a time.
const BURST: usize = 1024;

/// A port, and the far end of its wire.
type Wire = (Arc<Memory>, Box<dyn Rx>, Box<dyn Tx>);

/// The switch, and the far ends of its wires. It runs on the caller's thread.
pub(crate) struct Bench {
    /// The switch.
    pub(crate) switch: Arc<Switch>,
    /// Its datapath.
    pub(crate) dp: Arc<Datapath>,
    /// Its bridge.
    pub(crate) bridge: Arc<Ofproto>,
    wires: Vec<Wire>,
    /// Time in which the datapath processed packets.
    pub(crate) busy: Duration,
    /// Packets sent into it.
    pub(crate) packets: u64,
    /// Packets received from it.
    pub(crate) received: u64,
}

impl Bench {
    /// Creates a switch with a bridge of `ports` ports, numbered from 1. Its clock stands still, so that no flow becomes idle.
    pub(crate) fn new(config: Config, ports: u32, flow_limit: u64) -> Result<Self, Box<dyn std::error::Error>> {
        let clock = Clock::stopped();
        let switch = Switch::new(clock.clone());
        let dp = Arc::new(Datapath::new(Config { threads: 0, flow_limit, ..config }, clock)?);
        dp.set_handler(switch.clone());
        switch.attach(dp.clone(), "netdev@ovs-netdev".to_owned());
        switch.set_flow_limit(flow_limit);
        let bridge = switch.add_bridge("br0");
        let (mut specs, mut wires) = (Vec::new(), Vec::new());
        for no in 1..=ports {
            let name = format!("p{no}");
            let (near, far) = memory::pair(&name, &format!("far-{name}"))?;
            let out = PortOut::Device(dp.port_add(near.clone(), None)?);
            wires.push((near.clone(), far.open_rx(0)?, far.open_tx()?));
            let mac = near.mac();
            specs.push(PortSpec { no: PortNo(no), name, out, device: Some(near), tunnel: None, mac });
        }
        let bundle = |spec: &PortSpec| BundleSpec {
            name: spec.name.clone(),
            ports: vec![spec.no],
            mode: VlanMode::Trunk,
            tag: 0,
            trunks: Vec::new(),
            cvlans: Vec::new(),
            priority_tags: PriorityTags::Never,
            protected: false,
            multicast: Default::default(),
        };
        let bundles = specs.iter().map(bundle).collect();
        bridge.set_ports(specs, bundles);
        Ok(Self { switch, dp, bridge, wires, busy: Duration::ZERO, packets: 0, received: 0 })
    }

    /// Executes a line in the format of `ovs-ofctl add-flows`.
    pub(crate) fn flow(&self, line: &str) -> Result<(), Box<dyn std::error::Error>> {
        let parsed = parse_flow_line(line, &flow::text::NoNames)?;
        self.bridge.flow_mod(&parsed.flow_mod).map_err(|e| format!("{line}: {e:?}"))?;
        Ok(())
    }

    /// Sends frames into port `no`, and lets the datapath process them.
    pub(crate) fn send(&mut self, no: usize, frames: &mut dyn Iterator<Item = Vec<u8>>) {
        loop {
            let mut batch: Vec<Packet> = frames.take(BURST).map(|f| Packet::from_slice(&f)).collect();
            if batch.is_empty() {
                return;
            }
            self.packets += batch.len() as u64;
            self.wires[no - 1].2.send_batch(&mut batch);
            let began = Instant::now();
            self.dp.run_until_idle(usize::MAX);
            self.busy += began.elapsed();
            for (_, rx, _) in &mut self.wires {
                let mut out = Vec::new();
                while rx.recv_batch(&mut out, BURST).is_ok_and(|n| n > 0) {
                    self.received += out.len() as u64;
                    out.clear();
                }
            }
        }
    }
}
