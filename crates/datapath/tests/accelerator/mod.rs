//! A naive accelerator in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Clock, Millis, PortNo};
use flow::Field;
use flow::extract::extract;
use flow::layout::{ETH_DST, ETH_SRC, IP_MISC, IPV4, IPV6_DST, IPV6_SRC, TP};
use netdev::accelerate::{
    AcceleratedPort, Accelerator, Capacity, Forwarded, Handle, Network, PLAIN_WORDS, Refusal, Tag, Verdict,
};
use netdev::{Netdev, Tx};
use packet::{Batch, Packet};
use parking_lot::Mutex;

/// A naive accelerator: a list of verdicts, searched in order.
#[derive(Debug)]
pub(crate) struct Twin {
    pub(crate) clock: Clock,
    pub(crate) flows_max: usize,
    pub(crate) state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) ports: BTreeMap<AcceleratedPort, Arc<dyn Netdev>>,
    pub(crate) verdicts: BTreeMap<Handle, (Verdict, Forwarded, Millis)>,
    pub(crate) next: Handle,
    pub(crate) forwarded: u64,
    /// Forwarded packets of each network, without and with a tag.
    pub(crate) by_kind: [u64; 4],
    /// Packets that got or lost a tag.
    pub(crate) tags: u64,
}

pub(crate) const FLOWS_MAX: usize = 7;
const MASKS_MAX: usize = 2;

/// Returns the network of a plain frame, and its words.
fn plain(frame: &[u8]) -> Option<(Network, [u64; PLAIN_WORDS])> {
    let (key, layers) = extract(frame, PortNo(1));
    let (l3, l4) = (usize::from(layers.l3?), usize::from(layers.l4?));
    let word = |at: usize| key.0[at];
    let tci = word(ETH_SRC) & 0xffff;
    let is_tagged = tci != 0;
    let (network, header, addresses) = match key.eth_type() {
        0x0800 => (Network::Ipv4, 20, [word(IPV4), 0, 0, 0]),
        0x86dd => {
            let at = |n| word([IPV6_SRC, IPV6_SRC + 1, IPV6_DST, IPV6_DST + 1][n]);
            (Network::Ipv6, 40, std::array::from_fn(at))
        }
        _ => return None,
    };
    let protocol = if is_tagged { 0x8100 << 48 } else { 0 };
    let l4_bytes = layers.end.checked_sub(l4)?;
    let whole = match key.ip_proto() {
        6 => l4_bytes >= 20 && (20..=l4_bytes).contains(&(usize::from(frame[l4 + 12] >> 4) * 4)),
        17 => l4_bytes >= 8,
        _ => false,
    };
    let fits = l3 == if is_tagged { 18 } else { 14 } && l4 - l3 == header && key.get(Field::IpFrag) == 0;
    let [a, b, c, d] = addresses;
    let words = [word(ETH_DST) & !0xffff, word(ETH_SRC), word(IP_MISC), word(TP), a, b, c, d];
    (fits && whole && word(flow::layout::VLAN) == protocol).then_some((network, words))
}

impl Twin {
    pub(crate) fn new(clock: &Clock, flows_max: usize) -> Arc<Self> {
        Arc::new(Self { clock: clock.clone(), flows_max, state: Mutex::default() })
    }

    /// Processes a frame as the kernel would. Returns true if it forwarded the frame.
    pub(crate) fn take(&self, device: &str, frame: &[u8]) -> bool {
        let state = &mut *self.state.lock();
        let Some((from, _)) = state.ports.iter().find(|(_, port)| port.name() == device) else { return false };
        let Some((network, words)) = plain(frame) else { return false };
        let covers = |v: &Verdict| {
            let frames = v.frames[network as usize];
            v.from == *from && frames.is_some_and(|of| (0..PLAIN_WORDS).all(|i| words[i] & of.mask[i] == of.key[i]))
        };
        let Some((verdict, all, used)) = state.verdicts.values_mut().find(|(v, ..)| covers(v)) else { return false };
        *used = self.clock.now();
        all.packets += 1;
        all.bytes += frame.len() as u64;
        if words[2] & 0xff == 6 {
            all.tcp_flags |= (words[3] >> 16) as u16;
        }
        state.by_kind[network as usize * 2 + usize::from(words[1] & 0xffff != 0)] += 1;
        let mut frame = frame.to_vec();
        match verdict.tag {
            Tag::Keep => {}
            Tag::Push(tci) => {
                assert!(words[1] & 0xffff == 0);
                let [a, b] = (tci & !0x1000).to_be_bytes();
                frame.splice(12..12, [0x81, 0, a, b]);
            }
            Tag::Pop => {
                assert!(words[1] & 0xffff != 0);
                frame.drain(12..16);
            }
        }
        let mut tx: Box<dyn Tx> = state.ports[&verdict.to].open_tx().expect("a port in memory");
        let mut batch: Batch = [Packet::from_slice(&frame)].into_iter().collect();
        tx.send_batch(&mut batch);
        state.forwarded += 1;
        state.tags += u64::from(verdict.tag != Tag::Keep);
        true
    }
}

impl Accelerator for Twin {
    fn kind(&self) -> &'static str {
        "twin"
    }

    fn port_add(&self, device: &Arc<dyn Netdev>) -> Result<AcceleratedPort, String> {
        if device.name() == "d" {
            return Err("not this one".to_owned());
        }
        let ports = &mut self.state.lock().ports;
        let number = (0..=AcceleratedPort::MAX).find(|n| !ports.contains_key(n)).expect("few ports");
        ports.insert(number, Arc::clone(device));
        Ok(number)
    }

    fn port_del(&self, port: AcceleratedPort) {
        let state = &mut *self.state.lock();
        assert!(state.verdicts.values().all(|(v, ..)| v.from != port && v.to != port));
        assert!(state.ports.remove(&port).is_some());
    }

    fn put(&self, verdict: &Verdict) -> Result<Handle, Refusal> {
        let state = &mut *self.state.lock();
        assert!(state.ports.contains_key(&verdict.from) && state.ports.contains_key(&verdict.to));
        assert!(verdict.frames.iter().any(Option::is_some));
        for (network, frames) in Network::ALL.into_iter().zip(verdict.frames) {
            let Some(frames) = frames else { continue };
            assert!((0..PLAIN_WORDS).all(|i| frames.key[i] & !frames.mask[i] == 0));
            assert!(frames.mask[network.words()..].iter().all(|word| *word == 0));
            let others = state.verdicts.values().filter(|(v, ..)| v.from == verdict.from);
            let others: Vec<_> = others.filter_map(|(v, ..)| v.frames[network as usize]).collect();
            if others.contains(&frames) {
                return Err(Refusal::Taken);
            }
            let mut masks: Vec<_> = others.iter().map(|of| of.mask).collect();
            masks.sort_unstable();
            masks.dedup();
            if !masks.contains(&frames.mask) && masks.len() == MASKS_MAX {
                return Err(Refusal::TooManyMasks);
            }
        }
        if state.verdicts.len() == self.flows_max {
            return Err(Refusal::Full);
        }
        state.next += 1;
        state.verdicts.insert(state.next, (*verdict, Forwarded::default(), Millis(0)));
        Ok(state.next)
    }

    fn remove(&self, handles: &[Handle], report: &mut dyn FnMut(usize, Forwarded)) {
        for (at, handle) in handles.iter().enumerate() {
            let all = self.forwarded(*handle);
            assert!(self.state.lock().verdicts.remove(handle).is_some(), "removed twice");
            report(at, all);
        }
    }

    fn forwarded(&self, handle: Handle) -> Forwarded {
        let (_, all, used) = self.state.lock().verdicts[&handle];
        Forwarded { idle_ms: self.clock.now().since(used), ..all }
    }

    fn refresh(&self) {}

    fn capacity(&self) -> Capacity {
        Capacity { flows: self.state.lock().verdicts.len(), flows_max: self.flows_max, masks: 0, masks_max: MASKS_MAX }
    }
}
