//! From frames to keys: counts what came in, refuses what is no frame, extracts the key of the rest.

use base::{DropReason, PortNo};
use flow::FlowKey;
use flow::extract::extract_into;
use netdev::pool;
use packet::Batch;
use std::sync::atomic::Ordering;

use crate::port::Port;
use crate::shared::{Shared, bump};

/// An Ethernet header, in bytes: less is no frame.
const FRAME_MIN: usize = 14;

/// Makes the first of `keys` those of the packets of `batch`, in order, after dropping those that are no frames.
pub(crate) fn parse(shared: &Shared, port: &Port, batch: &mut Batch, keys: &mut Vec<FlowKey>) {
    let (mut bytes, mut least) = (0, FRAME_MIN);
    for packet in batch.iter() {
        bytes += packet.len() as u64;
        least = least.min(packet.len());
    }
    bump(&port.counters.rx_packets, batch.len() as u64);
    bump(&port.counters.rx_bytes, bytes);
    if least < FRAME_MIN {
        refuse_short(shared, port, batch);
    }
    // What is there already is used again: only what a packet can have is written anew.
    keys.resize(batch.len().max(keys.len()), FlowKey::ZERO);
    let vlans_max = shared.vlans_max.load(Ordering::Relaxed);
    let number = PortNo(port.number.0);
    for (key, packet) in keys.iter_mut().zip(batch.iter_mut()) {
        // A device may hand over what another sent.
        (packet.recirc_id, packet.tags) = (0, 0);
        extract_into(key, packet.data(), number, vlans_max);
    }
}

#[cold]
fn refuse_short(shared: &Shared, port: &Port, batch: &mut Batch) {
    let before = batch.len();
    let (whole, short): (Vec<_>, Vec<_>) = batch.drain(..).partition(|p| p.len() >= FRAME_MIN);
    batch.extend(whole);
    short.into_iter().for_each(pool::recycle);
    shared.count_drop(Some(port), DropReason::Malformed, (before - batch.len()) as u64);
}
