//! Bytes a megaflow and a microflow entry: `memory [--masks N[,N]...] [FLOWS]...` prints a line of JSON for each index,
//! number of masks and number of megaflows. Without arguments: 1, 10 and 200 masks, and 1,000, 10,000 and 100,000 flows.
//!
//! Bytes are those that a datapath without packets has requested from its allocator, beyond those without flows;
//! overhead of the allocator is not included. Flows are spread evenly over tenants. The tenant's Ethernet address is
//! read first, and each tenant has source and destination prefixes of different lengths: a mask each. That is a
//! consistent translation: each read depends on the values read before. The line also has the trees' own estimate
//! (`estimate`).

#[path = "support/mod.rs"]
#[allow(dead_code, reason = "each example uses its part of this")]
mod support;

use std::alloc::System;
use std::collections::HashSet;
use std::process::ExitCode;
use std::sync::Arc;

use base::rng::Rng;
use base::{Clock, DpPort};
use cap::Cap;
use datapath::megaflow::{IndexKind, Megaflow, MegaflowIndex, Tree, TupleSpace};
use datapath::{Config, Datapath};
use dpif::{DpAction, DpFlow, Dpif, FlowId};
use flow::{Field, FlowKey, Reads};
use support::read_prefix;

#[global_allocator]
static ALLOCATOR: Cap<System> = Cap::new(System, usize::MAX);

/// The number of pairs of prefix lengths, and so of masks.
const MASKS_MAX: usize = 256;
/// The maximum number of flows that every mask has room for.
const FLOWS_MAX: usize = 10_000_000;

/// The source and destination prefix lengths of a tenant.
fn lengths(tenant: usize) -> (u8, u8) {
    (32 - (tenant % 16) as u8, 32 - (tenant / 16 % 16) as u8)
}

/// The flow of a packet with these addresses to a tenant.
fn flow(tenant: usize, (src, dst): (u32, u32)) -> DpFlow {
    let mut key = FlowKey::ZERO;
    let fields = [
        (Field::InPortOxm, 1),
        (Field::EthType, 0x0800),
        (Field::EthSrc, 0x0200_0000_0001),
        (Field::EthDst, 0x0200_0000_0000 | tenant as u128),
        (Field::IpProto, 17),
        (Field::IpTtl, 64),
        (Field::Ipv4Src, src.into()),
        (Field::Ipv4Dst, dst.into()),
        (Field::UdpSrc, 1000),
        (Field::UdpDst, 2000),
    ];
    for (field, value) in fields {
        key.set(field, value);
    }
    let mut reads = Reads::new();
    for field in [Field::InPortOxm, Field::EthType, Field::EthDst, Field::IpProto, Field::IpFrag] {
        reads.note_field(field);
    }
    let (src_len, dst_len) = lengths(tenant);
    read_prefix(&mut reads, Field::Ipv4Src, src_len.into());
    read_prefix(&mut reads, Field::Ipv4Dst, dst_len.into());
    let actions = Arc::new([DpAction::Output(DpPort(2))]);
    DpFlow::new(&key, reads.order(), actions, 0)
}

/// Returns tenants and addresses of `flows` flows, no two of which match the same packet.
fn places(flows: usize, masks: usize) -> Vec<(usize, (u32, u32))> {
    let mut rng = Rng::seeded(1);
    let mut taken = HashSet::new();
    let mut place = |tenant: usize| {
        let (src_len, dst_len) = lengths(tenant);
        loop {
            let (src, dst) = (rng.next_u64() as u32, rng.next_u64() as u32);
            if taken.insert((tenant, src >> (32 - src_len), dst >> (32 - dst_len))) {
                return (tenant, (src, dst));
            }
        }
    };
    (0..flows).map(|i| place(i % masks)).collect()
}

/// Bytes in use.
fn bytes() -> usize {
    ALLOCATOR.allocated()
}

fn estimate<I: MegaflowIndex>(places: &[(usize, (u32, u32))]) -> usize {
    let mut index = I::default();
    for (n, (tenant, addresses)) in (1..).zip(places) {
        index.insert(Megaflow::new(FlowId(n), flow(*tenant, *addresses)));
    }
    index.bytes()
}

fn measure(index: IndexKind, masks: usize, flows: usize) -> Result<(), dpif::DpifError> {
    let places = places(flows, masks);
    let config = Config { threads: 0, flow_limit: flows as u64, index, ..Config::default() };
    let datapath = Datapath::new(config, Clock::stopped())?;
    let empty = bytes();
    for (n, (tenant, addresses)) in (1..).zip(&places) {
        datapath.flow_put(FlowId(n), flow(*tenant, *addresses))?;
    }
    // Statistics requests maintain the index.
    datapath.flow_stats(&mut |_, _| {});
    let used = bytes().saturating_sub(empty);
    let stats = datapath.stats();
    let (name, estimated) = match index {
        IndexKind::TupleSpace => ("tuple-space", estimate::<TupleSpace>(&places)),
        IndexKind::Tree => ("tree", estimate::<Tree>(&places)),
    };
    println!(
        "{{\"measure\": \"megaflows\", \"index\": \"{name}\", \"masks\": {}, \"megaflows\": {}, \
         \"bytes_per_megaflow\": {:.1}, \"of_these_index_estimate\": {:.1}}}",
        stats.masks,
        stats.flows,
        used as f64 / stats.flows.max(1) as f64,
        estimated as f64 / flows as f64,
    );
    Ok(())
}

/// Numbers of masks and of flows.
fn arguments() -> Result<(Vec<usize>, Vec<usize>), String> {
    let number = |text: &str, max: usize| {
        let n = text.parse().ok().filter(|n| (1..=max).contains(n));
        n.ok_or_else(|| format!("'{text}' is not a number from 1 to {max}"))
    };
    let (mut masks, mut flows) = (vec![1, 10, 200], Vec::new());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if word == "--masks" {
            let list = words.next().ok_or("--masks wants numbers")?;
            masks = list.split(',').map(|n| number(n, MASKS_MAX)).collect::<Result<_, _>>()?;
        } else {
            flows.push(number(&word, FLOWS_MAX)?);
        }
    }
    if flows.is_empty() {
        flows = vec![1_000, 10_000, 100_000];
    }
    Ok((masks, flows))
}

fn run() -> Result<(), String> {
    let (masks, flows) = arguments()?;
    println!(
        "{{\"measure\": \"microflow cache\", \"bytes_per_microflow_entry\": {}}}",
        Datapath::microflow_entry_bytes()
    );
    for index in [IndexKind::TupleSpace, IndexKind::Tree] {
        for masks in &masks {
            for flows in &flows {
                measure(index, *masks, *flows).map_err(|e| e.to_string())?;
            }
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("memory: {error}");
            ExitCode::FAILURE
        }
    }
}
