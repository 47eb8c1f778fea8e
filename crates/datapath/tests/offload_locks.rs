//! Threads that use an accelerator at the same time: which of them wait, and which go on.

mod accelerator;
mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use accelerator::{FLOWS_MAX, Twin};
use base::{Clock, DpPort};
use common::{TestHandler, TestPort};
use datapath::{Config, Datapath, OFFERED_PACKETS};
use dpif::{DpAction, DpActions, DpFlow, DpFlowEntry, Dpif};
use flow::{Field, FlowKey};
use netdev::Netdev;
use netdev::accelerate::{AcceleratedPort, Accelerator, Capacity, Forwarded, Handle, Refusal, Verdict};

/// What an accelerator is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Request {
    Remove,
    Counts,
}

/// An accelerator that calls the test while it removes flows or reads their counts.
struct Observed {
    twin: Arc<Twin>,
    meanwhile: OnceLock<Box<dyn Fn(Request) + Send + Sync>>,
}

impl std::fmt::Debug for Observed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observed").field("twin", &self.twin).finish_non_exhaustive()
    }
}

impl Observed {
    fn call(&self, request: Request) {
        if let Some(meanwhile) = self.meanwhile.get() {
            meanwhile(request);
        }
    }
}

impl Accelerator for Observed {
    fn kind(&self) -> &'static str {
        "observed"
    }

    fn port_add(&self, device: &Arc<dyn Netdev>) -> Result<AcceleratedPort, String> {
        self.twin.port_add(device)
    }

    fn port_del(&self, port: AcceleratedPort) {
        self.twin.port_del(port);
    }

    fn put(&self, verdict: &Verdict) -> Result<Handle, Refusal> {
        self.twin.put(verdict)
    }

    fn remove(&self, handles: &[Handle], report: &mut dyn FnMut(usize, Forwarded)) {
        if !handles.is_empty() {
            self.call(Request::Remove);
        }
        self.twin.remove(handles, report);
    }

    fn forwarded(&self, handle: Handle) -> Forwarded {
        self.call(Request::Counts);
        self.twin.forwarded(handle)
    }

    fn refresh(&self) {}

    fn capacity(&self) -> Capacity {
        self.twin.capacity()
    }
}

/// Three ports, an accelerator with room for `flows_max` flows, and a handler that sends all packets to the second port,
/// by flows that match the input port, the Ethernet destination and the protocol.
struct Scene {
    dp: Arc<Datapath>,
    ports: [Arc<TestPort>; 3],
    accelerator: Arc<Observed>,
}

impl Scene {
    fn new(flows_max: usize) -> Self {
        let clock = Clock::stopped();
        let config = Config { threads: 0, ..Config::default() };
        let dp = Arc::new(Datapath::new(config, clock.clone()).expect("no threads"));
        let ports = ["a", "b", "c"].map(TestPort::new);
        for port in &ports {
            dp.port_add(port.clone(), None).expect("opens");
        }
        dp.set_handler(TestHandler::new(Box::new(|_, _| {
            let mut mask = FlowKey::mask_of(Field::InPortOxm);
            mask.0[flow::layout::PORTS] = u64::MAX;
            mask.add_mask(Field::EthType, 0xffff);
            mask.add_mask(Field::EthDst, u64::MAX.into());
            ([DpAction::Output(DpPort(2))].into(), Some(mask))
        })));
        let accelerator = Arc::new(Observed { twin: Twin::new(&clock, flows_max), meanwhile: OnceLock::new() });
        dp.set_accelerator(Some(accelerator.clone()));
        Self { dp, ports, accelerator }
    }

    fn observe(&self, meanwhile: impl Fn(Request) + Send + Sync + 'static) {
        assert!(self.accelerator.meanwhile.set(Box::new(meanwhile)).is_ok(), "set once");
    }

    /// A UDP frame to the host with this number.
    fn frame(host: u8) -> Vec<u8> {
        let mut udp = vec![0; 60];
        udp[5] = host;
        udp[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
        udp
    }

    /// Has the flow of a host offered to the accelerator: a miss, and as many packets as that takes.
    fn offer(&self, host: u8) {
        for _ in 0..=OFFERED_PACKETS {
            self.ports[0].receive(&Self::frame(host));
            self.dp.run_until_idle(10);
        }
    }

    /// The flow of a host.
    fn flow(&self, host: u8) -> DpFlowEntry {
        let to_host = |entry: &DpFlowEntry| entry.key.get(Field::EthDst) == u128::from(host);
        self.dp.flow_dump().into_iter().find(to_host).expect("installed")
    }
}

/// Taking a flow back from the kernel waits for other threads: meanwhile packets are forwarded, by the new flow.
#[test]
fn packets_are_forwarded_while_a_flow_is_taken_back() {
    let scene = Scene::new(FLOWS_MAX);
    let (dp, twin) = (&scene.dp, &scene.accelerator.twin);
    let [a, _, c] = &scene.ports;
    let udp = Scene::frame(1);
    let forwarded = Arc::new(AtomicU64::new(0));
    {
        let (dp, a, udp, forwarded) = (Arc::downgrade(dp), a.clone(), udp.clone(), Arc::clone(&forwarded));
        scene.observe(move |request| {
            if let (Request::Remove, Some(dp)) = (request, dp.upgrade()) {
                a.receive(&udp);
                forwarded.fetch_add(dp.run_until_idle(10) as u64, Ordering::Relaxed);
            }
        });
    }
    scene.offer(1);
    let entry = scene.flow(1);
    assert!(entry.offloaded && twin.take("a", &udp));
    // Other actions under the same id.
    let to_c: DpActions = [DpAction::Output(DpPort(3))].into();
    dp.flow_put(entry.id, DpFlow::by_hand(&entry.key, &entry.mask, to_c, 0)).expect("there is room");
    assert_eq!((forwarded.load(Ordering::Relaxed), c.sent().len()), (1, 1));
    // Packets forwarded below before, and the packet in between, count for the flow.
    assert!(!twin.take("a", &udp), "nothing is forwarded below by what was replaced");
    let stats = dp.flow_get(entry.id).expect("there").stats;
    assert_eq!(stats.packets, entry.stats.packets + 2);
    // A removed flow includes packets that were forwarded meanwhile.
    for _ in 0..OFFERED_PACKETS {
        a.receive(&udp);
        dp.run_until_idle(10);
    }
    assert!(dp.flow_get(entry.id).expect("there").offloaded, "it is offered for itself");
    let last = dp.flow_del(entry.id).expect("there");
    assert_eq!(last.packets, stats.packets + OFFERED_PACKETS);
    assert_eq!(forwarded.load(Ordering::Relaxed), 2, "another miss");
}

/// While the accelerator is busy, a packet thread forwards the packets of a flow that is due to be offered, without
/// waiting, and offers the flow with a later packet.
#[test]
fn no_packet_thread_waits_to_offer_a_flow() {
    let scene = Scene::new(FLOWS_MAX);
    scene.offer(1);
    let (dp, a) = (Arc::downgrade(&scene.dp), scene.ports[0].clone());
    let forwarded = Arc::new(AtomicBool::new(false));
    let has_forwarded = Arc::clone(&forwarded);
    scene.observe(move |request| {
        let (Request::Remove, Some(dp)) = (request, dp.upgrade()) else { return };
        let (done, is_done) = std::sync::mpsc::channel();
        let a = a.clone();
        std::thread::spawn(move || {
            for _ in 0..=OFFERED_PACKETS {
                a.receive(&Scene::frame(2));
                dp.run_until_idle(10);
            }
            // After the deadline, the test does not listen.
            let _ = done.send(());
        });
        // The deadline only ends a test that would hang.
        let in_time = is_done.recv_timeout(Duration::from_secs(60)).is_ok();
        has_forwarded.store(in_time, Ordering::SeqCst);
    });
    scene.dp.flow_del(scene.flow(1).id).expect("there");
    assert!(forwarded.load(Ordering::SeqCst), "a packet thread waits for the accelerator");
    let second = scene.flow(2);
    assert_eq!((second.stats.packets, second.offloaded), (OFFERED_PACKETS, false));
    scene.ports[0].receive(&Scene::frame(2));
    scene.dp.run_until_idle(10);
    assert!(scene.flow(2).offloaded);
}

/// Counts of flows are fetched some at a time: a thread that removes a flow comes in between.
#[test]
fn a_flow_is_taken_back_while_counts_are_fetched() {
    const HOSTS: u8 = 255;
    let scene = Scene::new(usize::from(HOSTS));
    (0..HOSTS).for_each(|host| scene.offer(host));
    let id = scene.flow(0).id;
    let (begin, begun) = std::sync::mpsc::sync_channel(0);
    // Reads of counts, altogether and before the removal.
    let (reads, reads_before) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(u64::MAX)));
    {
        let (reads, reads_before) = (Arc::clone(&reads), Arc::clone(&reads_before));
        scene.observe(move |request| {
            if request == Request::Remove {
                return reads_before.store(reads.load(Ordering::SeqCst), Ordering::SeqCst);
            }
            if reads.fetch_add(1, Ordering::SeqCst) == 0 {
                begin.send(()).expect("the remover waits");
            }
            std::thread::sleep(Duration::from_millis(1));
        });
    }
    std::thread::scope(|scope| {
        let scene = &scene;
        scope.spawn(move || {
            begun.recv().expect("counts are fetched");
            scene.dp.flow_del(id).expect("there");
        });
        scene.dp.offload().expect("is on");
    });
    let (all, before) = (reads.load(Ordering::SeqCst), reads_before.load(Ordering::SeqCst));
    assert!(before < all, "{before} of {all}");
}
