//! A hub of kernel devices: `hub DEVICE... ` sends each frame out of all other devices, until its standard input ends,
//! and then prints counters. Measures and exercises the datapath without a switch above it.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Clock, DpPort};
use datapath::{Config, Datapath};
use dpif::{ControllerUpcall, DpAction, DpFlow, DpFlowStats, Dpif, FlowId, Upcall, UpcallHandler, UpcallReply};
use flow::{Field, FlowKey};
use netdev_linux::Linux;
use packet::Packet;

#[derive(Debug)]
struct Hub {
    ports: u32,
    next_id: AtomicU64,
}

impl UpcallHandler for Hub {
    fn miss(&self, upcall: Upcall<'_>) -> UpcallReply {
        let mut mask = FlowKey::mask_of(Field::InPortOxm);
        mask.add_mask(Field::EthDst, u128::MAX >> 80);
        let others = (1..=self.ports).map(DpPort).filter(|p| *p != upcall.port);
        let actions: Arc<[DpAction]> = others.map(DpAction::Output).collect();
        let flow = DpFlow::by_hand(upcall.key, &mask, actions.clone(), 0);
        let id = FlowId(self.next_id.fetch_add(1, Ordering::Relaxed));
        UpcallReply { actions, install: Some((id, flow)) }
    }

    fn controller(&self, _port: DpPort, _what: &ControllerUpcall, _packet: &Packet) {}

    fn flow_gone(&self, _id: FlowId, _stats: DpFlowStats) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let names: Vec<String> = std::env::args().skip(1).collect();
    let linux = Linux::new()?;
    let dp = Datapath::new(Config::default(), Clock::real())?;
    dp.set_handler(Arc::new(Hub { ports: names.len() as u32, next_id: AtomicU64::new(1) }));
    for name in &names {
        dp.port_add(linux.open_system(name)?, None)?;
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    for port in dp.ports() {
        println!("{} {}: {:?}", port.number, port.device.name(), port.stats);
    }
    for entry in dp.flow_dump() {
        println!("{:?} {:?} {:?}", entry.key, entry.actions, entry.stats);
    }
    println!("{:?}\n{:?}\ndrops {:?}", dp.stats(), dp.thread_stats(), dp.drops());
    Ok(())
}
