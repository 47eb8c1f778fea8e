//! A port with both ends in the hands of a test, and handlers that serve misses.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test program uses its part of this")]

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use base::{Clock, DpPort, DropReason, MacAddr};
use datapath::{Config, Datapath};
use dpif::{
    ControllerUpcall, DpAction, DpActions, DpFlow, DpFlowStats, FlowId, LocalSample, Observe, Protocol, Psample, Punt,
    Upcall, UpcallHandler, UpcallReply,
};
use flow::{Field, FlowKey, FlowMask};
use netdev::queue::FrameQueue;
use netdev::{Changes, LinkStatus, Netdev, NetdevError, NetdevStats, Rx, SendReport, Tx};
use packet::{Batch, Packet};
use parking_lot::Mutex;

/// A device: frames pushed into `input` are received, sent frames are in `output`.
#[derive(Debug)]
pub struct TestPort {
    name: String,
    pub input: Arc<FrameQueue>,
    pub output: Arc<Mutex<Vec<Packet>>>,
    mtu: AtomicU32,
    /// Whether receiving fails.
    pub broken: Arc<AtomicBool>,
    /// The number of times that frames were requested.
    pub asked: Arc<AtomicU64>,
    /// Transmit queues opened so far.
    pub tx_opened: AtomicU64,
    /// Whether opening a transmit queue fails.
    pub tx_fails: AtomicBool,
    /// Whether the device drops packets to be sent.
    pub down: Arc<AtomicBool>,
    changes: Changes,
}

impl TestPort {
    pub fn new(name: &str) -> Arc<Self> {
        Arc::new(Self {
            name: name.to_owned(),
            input: Arc::new(FrameQueue::new(1 << 20).expect("eventfd")),
            output: Arc::default(),
            mtu: AtomicU32::new(1500),
            broken: Arc::default(),
            asked: Arc::default(),
            tx_opened: AtomicU64::default(),
            tx_fails: AtomicBool::default(),
            down: Arc::default(),
            changes: Changes::default(),
        })
    }

    pub fn receive(&self, frame: &[u8]) {
        self.receive_packet(Packet::from_slice(frame));
    }

    pub fn receive_packet(&self, packet: Packet) {
        self.input.push(packet).expect("the test's queue has room");
    }

    /// Returns the packets sent since the last call.
    pub fn sent(&self) -> Vec<Packet> {
        std::mem::take(&mut self.output.lock())
    }
}

struct TestRx(Arc<FrameQueue>, Arc<AtomicBool>, Arc<AtomicU64>);

impl Rx for TestRx {
    fn recv_batch(&mut self, out: &mut Batch, max: usize) -> io::Result<usize> {
        self.2.fetch_add(1, Ordering::Relaxed);
        if self.1.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::NotConnected.into());
        }
        Ok(self.0.pop(out, max))
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.fd())
    }

    fn drain(&mut self) -> io::Result<()> {
        self.0.clear();
        Ok(())
    }
}

struct TestTx(Arc<Mutex<Vec<Packet>>>, Arc<AtomicBool>);

impl Tx for TestTx {
    fn refuses(&mut self, _n: usize) -> Option<DropReason> {
        self.1.load(Ordering::Relaxed).then_some(DropReason::PortDown)
    }

    fn send_batch(&mut self, batch: &mut Batch) -> SendReport {
        let mut report = SendReport::default();
        if self.1.load(Ordering::Relaxed) {
            report.count_dropped(DropReason::PortDown, batch.len() as u64);
            batch.clear();
            return report;
        }
        for p in &*batch {
            report.count_sent(p.len());
        }
        self.0.lock().append(batch);
        report
    }
}

impl Netdev for TestPort {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        "test"
    }

    fn open_rx(&self, _queue: usize) -> Result<Box<dyn Rx>, NetdevError> {
        Ok(Box::new(TestRx(self.input.clone(), self.broken.clone(), self.asked.clone())))
    }

    fn open_tx(&self) -> Result<Box<dyn Tx>, NetdevError> {
        if self.tx_fails.load(Ordering::SeqCst) {
            return Err(NetdevError::Open { name: self.name.clone(), source: io::ErrorKind::OutOfMemory.into() });
        }
        self.tx_opened.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(TestTx(self.output.clone(), self.down.clone())))
    }

    fn mac(&self) -> MacAddr {
        MacAddr::ZERO
    }

    fn set_mac(&self, _mac: MacAddr) -> Result<(), NetdevError> {
        Ok(())
    }

    fn mtu(&self) -> Option<u32> {
        Some(self.mtu.load(Ordering::Relaxed))
    }

    fn set_mtu(&self, mtu: u32) -> Result<(), NetdevError> {
        self.mtu.store(mtu, Ordering::Relaxed);
        self.changes.notify();
        Ok(())
    }

    fn set_up(&self, _up: bool) -> Result<(), NetdevError> {
        Ok(())
    }

    fn status(&self) -> LinkStatus {
        LinkStatus { admin_up: true, carrier: true, ..LinkStatus::default() }
    }

    fn stats(&self) -> NetdevStats {
        NetdevStats::default()
    }

    fn changes(&self) -> &Changes {
        &self.changes
    }
}

/// The reply of a test handler: actions, and the mask of the flow to install.
pub type Answer = Box<dyn Fn(DpPort, &FlowKey) -> (DpActions, Option<FlowMask>) + Send + Sync>;

/// A handler that replies by a closure and records its calls.
pub struct TestHandler {
    answer: Answer,
    pub generation: AtomicU64,
    pub next_id: AtomicU64,
    pub misses: AtomicU64,
    /// Whether packet threads get replies, and the number of these.
    pub answers_here: AtomicBool,
    pub answered_here: AtomicU64,
    pub gone: Mutex<Vec<(FlowId, DpFlowStats)>>,
    /// The number of reports of removed flows that have begun.
    pub reports: AtomicU64,
    pub packet_ins: Mutex<Vec<(DpPort, Vec<u8>)>>,
    /// Packets for protocols, and the result returned for them.
    pub punted: Mutex<Vec<(DpPort, Protocol, Vec<u8>)>>,
    pub punt_says: Mutex<Result<Option<DpPort>, DropReason>>,
    pub observed: Mutex<Vec<(DpPort, Observe, usize)>>,
    /// Samples for this host, with their probability and the number of bytes.
    pub sampled: Mutex<Vec<(Psample, u32, usize)>>,
    /// Keys checked by [`UpcallHandler::check`], and the result returned for them.
    pub checked: Mutex<Vec<FlowKey>>,
    pub check_says: AtomicBool,
}

impl TestHandler {
    pub fn new(answer: Answer) -> Arc<Self> {
        Arc::new(Self {
            answer,
            generation: AtomicU64::new(0),
            next_id: AtomicU64::new(1),
            misses: AtomicU64::new(0),
            answers_here: AtomicBool::new(false),
            answered_here: AtomicU64::new(0),
            gone: Mutex::default(),
            reports: AtomicU64::default(),
            packet_ins: Mutex::default(),
            punted: Mutex::default(),
            punt_says: Mutex::new(Ok(None)),
            observed: Mutex::default(),
            sampled: Mutex::default(),
            checked: Mutex::default(),
            check_says: AtomicBool::new(true),
        })
    }

    /// A handler that always replies with `actions`, for all packets of a port, VLAN and Ethernet type.
    pub fn always(actions: Vec<DpAction>) -> Arc<Self> {
        let actions: DpActions = actions.into();
        Self::new(Box::new(move |_, _| (actions.clone(), Some(plain_mask()))))
    }
}

impl std::fmt::Debug for TestHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestHandler")
    }
}

impl UpcallHandler for TestHandler {
    fn miss(&self, upcall: Upcall<'_>) -> UpcallReply {
        self.misses.fetch_add(1, Ordering::Relaxed);
        let generation = self.generation.load(Ordering::SeqCst);
        let (actions, mask) = (self.answer)(upcall.port, upcall.key);
        let install = mask.map(|mask| {
            let id = FlowId(self.next_id.fetch_add(1, Ordering::Relaxed));
            (id, DpFlow::by_hand(upcall.key, &mask, actions.clone(), generation))
        });
        UpcallReply { actions, install }
    }

    fn try_miss(&self, upcall: Upcall<'_>) -> Option<UpcallReply> {
        if !self.answers_here.load(Ordering::SeqCst) {
            return None;
        }
        self.answered_here.fetch_add(1, Ordering::SeqCst);
        Some(self.miss(upcall))
    }

    fn controller(&self, port: DpPort, _what: &ControllerUpcall, packet: &Packet) {
        self.packet_ins.lock().push((port, packet.data().to_vec()));
    }

    fn observe(&self, port: DpPort, what: &Observe, packet: &Packet) {
        self.observed.lock().push((port, what.clone(), packet.len()));
    }

    fn psample(&self, sample: &LocalSample<'_>) {
        let len = sample.packet.len().min(sample.len_max);
        self.sampled.lock().push((sample.what, sample.probability, len));
    }

    fn punt(&self, port: DpPort, punt: &Punt, packet: &Packet) -> Result<Option<DpPort>, DropReason> {
        self.punted.lock().push((port, punt.protocol, packet.data().to_vec()));
        *self.punt_says.lock()
    }

    fn slow(&self, upcall: Upcall<'_>) -> DpActions {
        (self.answer)(upcall.port, upcall.key).0
    }

    fn flow_gone(&self, id: FlowId, stats: DpFlowStats) {
        self.reports.fetch_add(1, Ordering::SeqCst);
        self.gone.lock().push((id, stats));
    }

    fn check(&self, _port: DpPort, key: &FlowKey, _id: FlowId, _actions: &DpActions) -> bool {
        self.checked.lock().push(key.clone());
        self.check_says.load(Ordering::SeqCst)
    }
}

/// Returns a datapath without packet threads, which the test steps.
pub fn stepped() -> Datapath {
    Datapath::new(Config { threads: 0, ..Config::default() }, Clock::stopped()).expect("no thread to start")
}

/// Adds ports 1 and 2.
pub fn two_ports(dp: &Datapath) -> (Arc<TestPort>, Arc<TestPort>) {
    let (a, b) = (TestPort::new("a"), TestPort::new("b"));
    assert_eq!(dp.port_add(a.clone(), None).expect("opens"), DpPort(1));
    assert_eq!(dp.port_add(b.clone(), Some(DpPort(2))).expect("opens"), DpPort(2));
    (a, b)
}

/// A list of one action.
pub fn only(action: DpAction) -> DpActions {
    [action].into()
}

/// Outputs to a port.
pub fn out(port: u32) -> DpAction {
    DpAction::Output(DpPort(port))
}

/// A mask of ingress port, VLAN tag and Ethernet type.
pub fn plain_mask() -> FlowMask {
    let mut mask = FlowKey::mask_of(Field::InPortOxm);
    mask.add_mask(Field::VlanTci, 0xffff);
    mask.add_mask(Field::EthType, 0xffff);
    mask
}

/// An untagged frame whose payload carries a number.
pub fn numbered_frame(n: u32, len: usize) -> Vec<u8> {
    let mut frame = vec![0; len.max(18)];
    frame[..12].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame[14..18].copy_from_slice(&n.to_be_bytes());
    frame
}
