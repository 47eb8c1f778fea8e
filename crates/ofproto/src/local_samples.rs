//! Samples for collectors on this host.
//!
//! Packet threads copy a sample into a queue, which is bounded in samples and in bytes; a thread sends them. Samples that
//! find the queue full are lost and counted.

use crate::bridge::Ofproto;
use crate::export::REST;
use crate::switch::Switch;
use dpif::{LocalSample, Psample};
use packet::Packet;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use vlog::{RateLimit, warn_rl};
use xlate::LocalSets;

/// The largest number of queued samples.
const QUEUE: usize = 4096;
/// The bytes of packets in the queue at most.
const QUEUE_BYTES: usize = 16 << 20;
/// Smaller values of an Ethernet type are the length of an 802.3 frame.
const ETHERTYPE_MIN: u16 = 0x600;
/// Linux's number for such frames (linux/if_ether.h).
const ETH_P_802_2: u16 = 4;
/// Rate limit of log messages about samples that were not sent: messages per minute, and burst.
static FAILED_LIMIT: RateLimit = RateLimit::new(1, 5);

/// Sends samples to the collectors on this host.
pub trait LocalCollectors: Send + Sync + std::fmt::Debug {
    /// The bytes of a packet in a sample at most.
    fn data_max(&self) -> usize;
    /// Sends a sample. After an error it is lost.
    fn send(&self, sample: &QueuedSample) -> io::Result<()>;
}

/// A copy of a sampled packet in the queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueuedSample {
    /// Group and cookie.
    pub what: Psample,
    /// The probability with which a packet is chosen: [`u32::MAX`] for all.
    pub probability: u32,
    /// The system's number of the ingress device, 0 without one.
    pub ifindex: u32,
    /// The Ethernet type of the frame, or that of the packet if it has no Ethernet header.
    pub ethertype: u16,
    /// The length of the packet in bytes.
    pub len: usize,
    /// Its first bytes.
    pub data: Vec<u8>,
    /// When it was sampled, since 1970.
    pub time: Duration,
}

/// The handle of the thread, which begins with the collectors and ends when the handle is dropped.
#[derive(Debug, Default)]
pub(crate) struct LocalWorker(OnceLock<Queue>);

#[derive(Debug)]
struct Queue {
    samples: SyncSender<QueuedSample>,
    data_max: usize,
    /// The bytes of packets in it.
    bytes: Arc<AtomicUsize>,
}

impl LocalWorker {
    fn begin(&self, collectors: Arc<dyn LocalCollectors>) {
        self.0.get_or_init(|| {
            let (samples, queued) = sync_channel(QUEUE);
            let (data_max, bytes) = (collectors.data_max(), Arc::<AtomicUsize>::default());
            let (left, thread) = (Arc::clone(&bytes), std::thread::Builder::new().name("psample".into()));
            if let Err(error) = thread.spawn(move || run(&queued, &left, &*collectors)) {
                tracing::error!(target: "collectors", "no thread for local samples: {error}");
            }
            Queue { samples, data_max, bytes }
        });
    }

    /// Queues a packet from the device with this number in the system.
    fn queue(&self, sample: &LocalSample<'_>, ifindex: u32) {
        let Some(queue) = self.0.get() else { return };
        let packet = sample.packet;
        let data = packet.data();
        let n = data.len().min(sample.len_max).min(queue.data_max);
        let lost = || base::coverage!(psample_queue_full);
        if queue.bytes.fetch_add(n, Ordering::Relaxed) + n > QUEUE_BYTES {
            queue.bytes.fetch_sub(n, Ordering::Relaxed);
            return lost();
        }
        let sample = QueuedSample {
            what: sample.what,
            probability: sample.probability,
            ifindex,
            ethertype: type_of(packet),
            len: data.len(),
            data: data[..n].to_vec(),
            time: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default(),
        };
        if queue.samples.try_send(sample).is_err() {
            queue.bytes.fetch_sub(n, Ordering::Relaxed);
            lost();
        }
    }
}

fn type_of(packet: &Packet) -> u16 {
    let in_frame = || packet.data().get(12..14).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    match packet.l3_type.unwrap_or_else(in_frame) {
        length if length < ETHERTYPE_MIN => ETH_P_802_2,
        ethertype => ethertype,
    }
}

fn run(samples: &Receiver<QueuedSample>, bytes: &AtomicUsize, collectors: &dyn LocalCollectors) {
    while let Ok(first) = samples.recv() {
        for sample in std::iter::once(first).chain(samples.try_iter()) {
            bytes.fetch_sub(sample.data.len(), Ordering::Relaxed);
            match collectors.send(&sample) {
                Ok(()) => base::coverage!(psample_sent),
                Err(error) => {
                    base::coverage!(psample_send_error);
                    warn_rl!(&FAILED_LIMIT, target: "collectors", "could not send a local sample: {error}");
                }
            }
        }
        std::thread::sleep(REST);
    }
}

impl Ofproto {
    /// Sets the collector sets with collectors on this host; `None` if there are none.
    pub fn set_local_sets(&self, sets: Option<LocalSets>) {
        if self.local_sets.load().as_deref() != sets.as_ref() {
            self.local_sets.store(sets.map(Arc::new));
            self.rebuild();
        }
    }
}

impl Switch {
    /// Sends local samples to these collectors and enables the feature psample. Only the first call has an effect.
    pub fn set_local_collectors(&self, collectors: Arc<dyn LocalCollectors>) {
        self.local_samples.begin(collectors);
        if self.features.add_psample() {
            self.reconfigured();
        }
    }

    /// Returns true if there are collectors on this host.
    pub fn has_local_collectors(&self) -> bool {
        self.local_samples.0.get().is_some()
    }

    /// Queues a sample for the collectors on this host.
    pub(crate) fn sample_locally(&self, sample: &LocalSample<'_>) {
        self.local_samples.queue(sample, self.ipfix.interfaces().index(sample.port));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::DpPort;
    use dpif::Cookie;
    use std::sync::mpsc::{Sender, channel};
    use std::sync::{Condvar, Mutex};

    /// Reports each sample and then waits until it may go on.
    #[derive(Debug)]
    struct Slow {
        seen: Sender<QueuedSample>,
        goes: Arc<(Mutex<bool>, Condvar)>,
    }

    impl LocalCollectors for Slow {
        fn data_max(&self) -> usize {
            60_000
        }

        fn send(&self, sample: &QueuedSample) -> io::Result<()> {
            let _ = self.seen.send(sample.clone());
            let (may, changed) = &*self.goes;
            drop(changed.wait_while(may.lock().unwrap(), |may| !*may).unwrap());
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }

    #[test]
    fn the_queue_is_bounded_in_bytes() {
        let lost = || base::coverage::read("psample_queue_full").unwrap_or(0);
        let worker = LocalWorker::default();
        let goes = Arc::new((Mutex::new(false), Condvar::new()));
        let (seen, samples) = channel();
        let packet = Packet::from_slice(&vec![0xff; 65_000]);
        let what = Psample { group: 1, cookie: Cookie::default() };
        let sample = |len_max| LocalSample { what, port: DpPort(1), probability: u32::MAX, packet: &packet, len_max };
        worker.queue(&sample(9), 0);
        worker.begin(Arc::new(Slow { seen, goes: Arc::clone(&goes) }));
        worker.queue(&sample(9), 3);
        let first = samples.recv().unwrap();
        assert_eq!((first.ifindex, first.ethertype, first.len, first.data.len()), (3, 0xffff, 65_000, 9));
        let fits = QUEUE_BYTES / 60_000;
        (0..fits + 10).for_each(|_| worker.queue(&sample(usize::MAX), 3));
        assert_eq!(lost(), 10);
        *goes.0.lock().unwrap() = true;
        goes.1.notify_all();
        // What could not be sent is lost, and the thread goes on.
        assert_eq!(samples.iter().take(fits).map(|sample| sample.data.len()).sum::<usize>(), fits * 60_000);
        worker.queue(&sample(usize::MAX), 3);
        assert_eq!((samples.recv().unwrap().data.len(), lost()), (60_000, 10));
    }
}
