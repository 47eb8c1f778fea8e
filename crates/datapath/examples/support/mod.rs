//! Packets and verdicts for the examples that measure: the workloads of bench/workload.py, without a switch.

pub(crate) mod tunnels;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::DpPort;
use base::rng::Rng;
use datapath::Datapath;
use dpif::{ControllerUpcall, DpAction, DpActions, DpFlow, DpFlowStats, FlowId, Upcall, UpcallHandler, UpcallReply};
use flow::{Field, FlowKey, Reads, layout};
use packet::Packet;

/// The bits read of a key after ingress port, Ethernet type, VLAN, protocol and fragment bits.
pub(crate) type Read = Box<dyn Fn(&FlowKey, &mut Reads) + Send + Sync>;

/// Prefix rules on a field: value (aligned to the right) and length.
pub(crate) type Rules = Vec<(u32, u32)>;

/// An Ethernet, IPv4 and UDP frame of 60 bytes.
pub(crate) fn frame(src: u32, dst: u32, sport: u16, dport: u16) -> Packet {
    let mut frame = vec![0; 60];
    frame[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    frame[14..24].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    frame[26..30].copy_from_slice(&src.to_be_bytes());
    frame[30..34].copy_from_slice(&dst.to_be_bytes());
    frame[34..36].copy_from_slice(&sport.to_be_bytes());
    frame[36..38].copy_from_slice(&dport.to_be_bytes());
    frame[38..40].copy_from_slice(&26u16.to_be_bytes());
    Packet::from_slice(&frame)
}

/// A frame of a form that has a compact key: `tcp`, `icmp` (echo request), each over IPv4, `ipv6` (TCP over IPv6),
/// `icmp6`, `vlan` (TCP over IPv4 behind a tag), or `vlan6`. Checksums are zero, as nothing here verifies them.
pub(crate) fn frame_of(form: &str, src: u32, dst: u32) -> Option<Packet> {
    let (tagged, v6, proto) = match form {
        "tcp" => (false, false, 6),
        "icmp" => (false, false, 1),
        "ipv6" => (false, true, 6),
        "icmp6" => (false, true, 58),
        "vlan" => (true, false, 6),
        "vlan6" => (true, true, 6),
        _ => return None,
    };
    let mut bytes = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if tagged {
        bytes.extend([0x81, 0, 0, 100]);
    }
    if v6 {
        let address = |low: u32| [[0xfd, 0, 0, 0], [0; 4], [0; 4], low.to_be_bytes()].concat();
        bytes.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, proto, 64]);
        bytes.extend([address(src), address(dst)].concat());
    } else {
        bytes.extend([0x08, 0, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, proto, 0, 0]);
        bytes.extend([src.to_be_bytes(), dst.to_be_bytes()].concat());
    }
    let ports = [1000u16.to_be_bytes(), 2000u16.to_be_bytes()].concat();
    bytes.extend(match proto {
        6 => [&ports[..], &[0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]].concat(),
        58 => [&[128, 0, 0, 0], &[0; 16][..]].concat(),
        _ => [&[8, 0, 0, 0], &[0; 16][..]].concat(),
    });
    bytes.resize(bytes.len().max(60), 0);
    Some(Packet::from_slice(&bytes))
}

/// Returns the number of leading bits of `value`, which has `width` bits, that determine the rules it matches, and
/// whether it matches one.
pub(crate) fn read_len(value: u32, width: u32, rules: &[(u32, u32)]) -> (u32, bool) {
    let (mut len, mut matched) = (0, false);
    for (rule, plen) in rules {
        let same = ((value ^ rule) << (32 - width)).leading_zeros();
        matched |= same >= *plen;
        len = len.max((*plen).min(same + 1));
    }
    (len, matched)
}

/// Records the first `len` bits of `field`, which lies within one word.
pub(crate) fn read_prefix(reads: &mut Reads, field: Field, len: u32) {
    let mask = FlowKey::mask_of(field);
    let (word, bits) = mask.0.iter().enumerate().find(|(_, b)| **b != 0).expect("a field has bits");
    reads.note_prefix(word, bits.trailing_zeros() as u8, bits.count_ones() as u8, len as u8);
}

/// `n` rules of as many masks, and packets for each.
fn masks(n: u32, rng: &mut Rng) -> (Vec<Packet>, Read) {
    let top = |bits: u32, i: u32| i.wrapping_add(1).wrapping_mul(2_654_435_761) >> (32 - bits) << (32 - bits);
    let (mut srcs, mut dsts, mut frames): (Rules, Rules, Vec<_>) = Default::default();
    for i in 0..n {
        let (slen, dlen) = (9 + i % 23, 9 + i / 23 % 23);
        let (s, d) = (top(slen, i), top(dlen, 31 * i + 7));
        srcs.push((s, slen));
        dsts.push((d, dlen));
        for _ in 0..(4096 / n).max(1) {
            let low = [slen, dlen].map(|len| rng.below(1 << (32 - len)) as u32);
            frames.push(frame(s | low[0], d | low[1], any_port(rng), any_port(rng)));
        }
    }
    let read = move |key: &FlowKey, reads: &mut Reads| {
        read_prefix(reads, Field::Ipv4Src, read_len(key.get(Field::Ipv4Src) as u32, 32, &srcs).0);
        read_prefix(reads, Field::Ipv4Dst, read_len(key.get(Field::Ipv4Dst) as u32, 32, &dsts).0);
    };
    (frames, Box::new(read))
}

/// A whitelist by source address, destination port or source port: `n` packets that the first rule allows, and
/// `attack` packets that each differ from the three rules in other bits.
fn whitelist(n: u32, attack: u32, rng: &mut Rng) -> (Vec<Packet>, Read) {
    let (allow, dport, sport) = (0x0a00_000a, 80, 12345);
    let mut frames: Vec<_> =
        (0..n).map(|_| frame(allow, rng.next_u64() as u32, any_port(rng), any_port(rng))).collect();
    for i in 0..attack {
        let i = i.wrapping_mul(4099) % (32 * 16 * 16);
        let mut flip = |value: u32, width: u32, bit: u32| {
            let low = (1u64 << (width - 1 - bit)) - 1;
            (u64::from(value ^ 1 << (width - 1 - bit)) & !low | rng.next_u64() & low) as u32
        };
        let (s, d) = (flip(allow, 32, i / 256), flip(dport, 16, i / 16 % 16));
        frames.push(frame(s, 7, flip(sport, 16, i % 16) as u16, d as u16));
    }
    let read = move |key: &FlowKey, reads: &mut Reads| {
        let fields = [(Field::Ipv4Src, 32, allow), (Field::UdpDst, 16, dport), (Field::UdpSrc, 16, sport)];
        for (field, width, rule) in fields {
            let (len, matched) = read_len(key.get(field) as u32, width, &[(rule, width)]);
            read_prefix(reads, field, len);
            if matched {
                return;
            }
        }
    };
    (frames, Box::new(read))
}

fn any_port(rng: &mut Rng) -> u16 {
    1024 + rng.below(64_000) as u16
}

/// Reads some fields completely.
pub(crate) fn fields(fields: &'static [Field]) -> Read {
    Box::new(move |_, reads| fields.iter().for_each(|f| reads.note_field(*f)))
}

/// Shuffled packets and their reads: `masks-N`, `victim-N`, `tse-N`, or `flows-N`: N flows of one mask; also
/// `FORM-N`: N flows of frames of a form ([`frame_of`]), and `normal-N`: N pairs of Ethernet addresses.
pub(crate) fn workload(name: &str) -> Option<(Vec<Packet>, Read)> {
    let (kind, n) = name.split_once('-')?;
    let n: u32 = n.parse().ok().filter(|n| (1..=1_000_000).contains(n))?;
    let mut rng = Rng::seeded(1);
    let (mut frames, read) = match kind {
        "masks" => masks(n, &mut rng),
        "victim" => whitelist(n, 0, &mut rng),
        "tse" => whitelist(n, n, &mut rng),
        "flows" => {
            let frames = (0..n.max(4096)).map(|i| frame(0x0a00_0000 + i % n, 0x0b00_0000 + i % n, 1000, 2000));
            (frames.collect(), fields(&[Field::Ipv4Src, Field::Ipv4Dst]))
        }
        "normal" => {
            let frames = (0..n.max(4096)).map(|i| {
                let mut packet = frame(0x0a00_0000, 0x0b00_0000, 1000, 2000);
                packet.data_mut()[2..6].copy_from_slice(&(0x8000_0000 + i % n).to_be_bytes());
                packet.data_mut()[8..12].copy_from_slice(&(i % n).to_be_bytes());
                packet
            });
            (frames.collect(), fields(&[Field::EthSrc, Field::EthDst]))
        }
        form => {
            let frames = (0..n.max(4096)).map(|i| frame_of(form, 0x0a00_0000 + i % n, 0x0b00_0000 + i % n));
            let read: &[Field] = match form {
                "ipv6" | "icmp6" | "vlan6" => &[Field::Ipv6Src, Field::Ipv6Dst],
                _ => &[Field::Ipv4Src, Field::Ipv4Dst],
            };
            (frames.collect::<Option<_>>()?, fields(read))
        }
    };
    for i in (1..frames.len()).rev() {
        frames.swap(i, rng.below(i as u64 + 1) as usize);
    }
    Some((frames, read))
}

/// Forwards all packets to the same ports, and installs flows with the bits that a function reads.
pub(crate) struct Forward {
    read: Read,
    actions: Vec<DpAction>,
    next_id: AtomicU64,
}

impl Forward {
    /// Forwards all packets to `port`.
    pub(crate) fn to(port: DpPort, read: Read) -> Arc<Self> {
        Self::to_all(&[port], read)
    }

    /// Forwards all packets to each of `ports`.
    pub(crate) fn to_all(ports: &[DpPort], read: Read) -> Arc<Self> {
        let actions = ports.iter().map(|port| DpAction::Output(*port)).collect();
        Arc::new(Self { read, actions, next_id: AtomicU64::new(1) })
    }
}

impl std::fmt::Debug for Forward {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Forward")
    }
}

impl UpcallHandler for Forward {
    fn miss(&self, upcall: Upcall<'_>) -> UpcallReply {
        let mut reads = Reads::new();
        reads.note(layout::PORTS, 0xffff_ffff << 32);
        reads.note(layout::ETH_DST, 0xffff);
        reads.note(layout::ETH_SRC, 0x1000);
        reads.note_field(Field::IpProto);
        reads.note_field(Field::IpFrag);
        (self.read)(upcall.key, &mut reads);
        let id = FlowId(self.next_id.fetch_add(1, Ordering::Relaxed));
        // A list of its own, as flows of different shards have them.
        let actions = DpActions::from(&self.actions[..]);
        let flow = DpFlow::new(upcall.key, reads.order(), Arc::clone(&actions), 0);
        UpcallReply { actions, install: Some((id, flow)) }
    }

    fn controller(&self, _port: DpPort, _what: &ControllerUpcall, _packet: &Packet) {}

    fn flow_gone(&self, _id: FlowId, _stats: DpFlowStats) {}
}

/// The approximate number of packets of a slice: few, so that some slices are not disturbed.
pub(crate) const SLICE: usize = 4096;

/// Moves at least this number of packets, and returns how many.
pub(crate) fn slice(dp: &Datapath, packets: usize) -> usize {
    let mut n = 0;
    while n < packets {
        n += dp.run_once();
    }
    n
}

/// The nanoseconds a packet of slices, in ascending order: of `slices` slices, or of those within a time.
pub(crate) fn times(dp: &Datapath, slices: Option<usize>, time: Duration) -> Vec<f64> {
    let (mut times, begin) = (Vec::new(), Instant::now());
    while slices.map_or(begin.elapsed() < time, |n| times.len() < n) {
        let start = Instant::now();
        let packets = slice(dp, SLICE);
        times.push(start.elapsed().as_nanos() as f64 / packets as f64);
    }
    times.sort_by(f64::total_cmp);
    times
}
