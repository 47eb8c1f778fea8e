//! Packets that no flow covers go up, one at a time, on the packet thread itself.
//!
//! This is where bounded queues, fair between ports, are to stand once the slow path has threads of its own; until
//! then a miss is answered before the next packet moves, and cannot pile up.

use base::DropReason;
use dpif::{DpFlowStats, Upcall};
use flow::FlowKey;
use netdev::pool;
use packet::{Batch, Packet};

use crate::execute::Executor;
use crate::shared::bump;

/// Asks the handler about `packet`, remembers the flow that it answers with, and executes its actions.
/// `one` is an empty batch to work in.
pub(crate) fn miss(exec: &mut Executor<'_>, lane: usize, key: &FlowKey, packet: Packet, one: &mut Batch) {
    let (shared, counters) = (exec.shared, &exec.shared.lanes[lane]);
    let Some(handler) = shared.handler() else {
        bump(&counters.lost, 1);
        shared.count_drop(exec.from, DropReason::UpcallQueueFull, 1);
        pool::recycle(packet);
        return;
    };
    bump(&counters.missed, 1);
    let reply = handler.miss(Upcall { port: exec.in_port, key, packet: &packet });
    if let Some((id, flow)) = reply.install
        && !shared.install(Some(&*handler), id, flow)
    {
        // The handler takes it for installed: it has left before it came.
        handler.flow_gone(id, DpFlowStats::default());
    }
    one.push(packet);
    exec.run(one, &reply.actions);
}
