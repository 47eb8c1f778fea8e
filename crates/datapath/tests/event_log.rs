//! Events of flows, packets and ports reach the debug log while it is wanted, and only then.

mod common;

use std::sync::Arc;

use base::DpPort;
use common::{TestHandler, numbered_frame, only, out, stepped, two_ports};
use dpif::{DpActions, DpFlowEntry, DpFlowStats, Dpif, EventLog, FlowId, Upcall};
use packet::Packet;
use parking_lot::Mutex;
use vlog::{Captured, Level};

/// A log that keeps a word about each event.
#[derive(Debug, Default)]
struct Events(Mutex<Vec<String>>);

impl Events {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

impl EventLog for Events {
    fn missed(&self, upcall: &Upcall<'_>) {
        self.0.lock().push(format!("miss {}", upcall.port));
    }

    fn flow_added(&self, flow: &DpFlowEntry) {
        self.0.lock().push(format!("add {}", flow.id.0));
    }

    fn flow_put(&self, flow: &DpFlowEntry, old: Option<&DpFlowEntry>) {
        self.0.lock().push(format!("put {}, {} before", flow.id.0, old.map_or(0, |old| old.actions.len())));
    }

    fn flow_deleted(&self, id: FlowId, stats: &DpFlowStats) {
        self.0.lock().push(format!("delete {} with {}", id.0, stats.packets));
    }

    fn executing(&self, packet: &Packet, actions: &DpActions) {
        self.0.lock().push(format!("execute {} on {}", actions.len(), packet.len()));
    }

    fn port_added(&self, name: &str, port: DpPort) {
        self.0.lock().push(format!("port {name} {port}"));
    }

    fn port_deleted(&self, port: DpPort) {
        self.0.lock().push(format!("no port {port}"));
    }
}

/// What happens to a datapath: a miss and a hit, operations on flows, an execution, a port that goes.
fn run() -> Vec<String> {
    let (dp, events) = (stepped(), Arc::new(Events::default()));
    dp.set_event_log(events.clone());
    let (a, _b) = two_ports(&dp);
    dp.set_handler(TestHandler::always(vec![out(2)]));
    for n in 0..2 {
        a.receive(&numbered_frame(n, 60));
        dp.run_until_idle(10);
    }
    let flow = dp.flow_dump().remove(0);
    let put = |id| dp.flow_put(id, dpif::DpFlow::by_hand(&flow.key, &flow.mask, [].into(), 0));
    put(flow.id).expect("fits");
    dp.flow_del(flow.id).expect("is there");
    dp.flow_del(flow.id).expect_err("is gone");
    put(FlowId(7)).expect("fits");
    dp.execute(DpPort(1), Packet::from_slice(&numbered_frame(0, 80)), &only(out(2))).expect("passes");
    dp.port_del(DpPort(2)).expect("is there");
    events.take()
}

#[test]
fn events_are_reported_while_a_module_logs_them() {
    let expected = [
        "port a 1",
        "port b 2",
        "miss 1",
        "add 1",
        "put 1, 1 before",
        "delete 1 with 1",
        "put 7, 0 before",
        "execute 1 on 80",
        "no port 2",
    ];
    let during = |module| Captured::new(module, Level::Dbg).during(run);
    for module in [&["dpif"], &["dpif_netdev"]] {
        assert_eq!(during(module), expected, "{module:?}");
    }
    assert_eq!(during(&["bridge"]), [""; 0]);
    assert_eq!(run(), [""; 0]);
}
