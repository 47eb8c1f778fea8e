//! Any frame through any list of datapath actions: the datapath sends it or counts why not, and never panics.
#![no_main]

use base::{Clock, DpPort, DropReason};
use datapath::{Config, Datapath};
use dpif::{DpAction, Dpif};
use fuzz::Input;
use libfuzzer_sys::fuzz_target;
use packet::{Checksum, Packet};
use std::sync::{Arc, LazyLock};

static DATAPATH: LazyLock<Datapath> = LazyLock::new(|| {
    let datapath = Datapath::new(Config { threads: 0, ..Config::default() }, Clock::real()).expect("no threads");
    for name in ["a", "b"] {
        datapath.port_add(netdev::memory::null(name).expect("a descriptor"), None).expect("a free number");
    }
    datapath
});

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let actions: Arc<[DpAction]> = list(&mut input, 3).into();
    dpif::text::format_actions(&actions, input.number(2) as u16, &|_| None);
    let checksum = match input.below(3) {
        0 => Checksum::Unknown,
        1 => Checksum::Good,
        _ => Checksum::Partial { start: input.number(1) as u16, offset: input.number(1) as u16 },
    };
    let mut packet = Packet::from_slice(input.0);
    packet.offload.checksum = checksum;
    let _ = DATAPATH.execute(DpPort(1), packet, &actions);
});

fn list(input: &mut Input<'_>, depth: usize) -> Vec<DpAction> {
    (0..input.below(8)).map(|_| action(input, depth)).collect()
}

fn action(input: &mut Input<'_>, depth: usize) -> DpAction {
    match input.below(12) {
        0 => DpAction::Output(DpPort(input.below(4) as u32)),
        1 => DpAction::Trunc(input.number(2) as u32),
        2 => DpAction::PushVlan { tpid: [0x8100, 0x88a8][input.below(2)], tci: input.number(2) as u16 },
        3 => DpAction::PopVlan,
        4 if depth > 0 => DpAction::Clone(list(input, depth - 1).into()),
        5 => DpAction::Drop(DropReason::Action),
        _ => {
            let (field, value, mask) = input.masked();
            DpAction::Set { field, value, mask }
        }
    }
}
