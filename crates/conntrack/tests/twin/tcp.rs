//! The table of TCP states, written down row by row (van Rooij 2000; the userspace datapath of Open vSwitch).

use super::model::Verdict;

pub(crate) const FIN: u8 = 1;
pub(crate) const SYN: u8 = 2;
pub(crate) const RST: u8 = 4;
pub(crate) const PSH: u8 = 8;
pub(crate) const ACK: u8 = 16;
pub(crate) const URG: u8 = 32;

const CLOSED: u8 = 0;
const SYN_SENT: u8 = 1;
const ESTABLISHED: u8 = 2;
const CLOSING: u8 = 3;
const FIN_WAIT_2: u8 = 4;
const TIME_WAIT: u8 = 5;

const ACK_WINDOW: i64 = 0xffff + 1500;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Scale {
    None,
    Unknown,
    By(u8),
}

/// A host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Host {
    pub low: u32,
    high: u32,
    window: u16,
    scale: Scale,
    pub state: u8,
}

/// Both hosts, the one that has begun first.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tcp(pub [Host; 2]);

struct Segment {
    seq: u32,
    ack: u32,
    flags: u8,
    window: u16,
    payload: u32,
    scale: Scale,
}

fn read(l4: &[u8]) -> Segment {
    let be32 = |at: usize| u32::from_be_bytes(l4[at..at + 4].try_into().unwrap());
    let header = usize::from(l4[12] >> 4) * 4;
    let mut scale = Scale::None;
    let mut at = 20;
    while at < header && l4[at] != 0 {
        match l4[at] {
            1 => at += 1,
            3 => {
                scale = Scale::By(l4[at + 2].min(14));
                break;
            }
            _ => at += usize::from(l4[at + 1]),
        }
    }
    let window = u16::from_be_bytes([l4[14], l4[15]]);
    Segment { seq: be32(4), ack: be32(8), flags: l4[13], window, payload: (l4.len() - header) as u32, scale }
}

fn is_nonsense(flags: u8) -> bool {
    let has = |bit: u8| flags & bit != 0;
    has(SYN) && (has(RST) || has(FIN))
        || !has(SYN) && !has(ACK) && !has(RST)
        || !has(ACK) && (has(FIN) || has(PSH) || has(URG))
}

fn up(window: u16, shift: u8) -> u16 {
    u32::from(window).div_ceil(1 << shift) as u16
}

/// `a` minus `b` on the circle of numbers.
fn ahead(a: u32, b: u32) -> i64 {
    i64::from(a.wrapping_sub(b) as i32)
}

impl Tcp {
    pub(crate) fn begin(l4: &[u8]) -> Option<Self> {
        let segment = read(l4);
        if is_nonsense(segment.flags) || segment.flags & SYN != 0 && segment.flags & ACK != 0 {
            return None;
        }
        let is_syn = segment.flags & SYN != 0;
        let length = segment.payload + u32::from(is_syn) + u32::from(segment.flags & FIN != 0);
        let shift = if let (true, Scale::By(shift)) = (is_syn, segment.scale) { shift } else { 0 };
        let first = Host {
            low: segment.seq,
            high: segment.seq.wrapping_add(length).wrapping_add(1),
            window: up(segment.window.max(1), shift),
            scale: if is_syn { segment.scale } else { Scale::Unknown },
            state: SYN_SENT,
        };
        let scale = if is_syn { Scale::None } else { Scale::Unknown };
        Some(Self([first, Host { low: 0, high: 1, window: 1, scale, state: CLOSED }]))
    }

    pub(crate) fn update(&mut self, reply: bool, l4: &[u8], checks: bool) -> Verdict {
        let mut segment = read(l4);
        let (from, to) = (usize::from(reply), usize::from(!reply));
        let flag = |bit: u8| segment.flags & bit != 0;
        let (is_syn, is_ack, is_fin, is_rst) = (flag(SYN), flag(ACK), flag(FIN), flag(RST));
        let hosts = &mut self.0;
        if is_nonsense(segment.flags) {
            return Verdict::Invalid;
        }
        if is_syn && !is_ack && hosts[from].state >= FIN_WAIT_2 && hosts[to].state >= FIN_WAIT_2 {
            return Verdict::Restart;
        }
        if is_syn && !is_ack && hosts[from].state <= SYN_SENT {
            hosts[from].state = SYN_SENT;
            return Verdict::StillNew;
        }
        let (mut from_shift, mut to_shift) = match (hosts[from].scale, hosts[to].scale) {
            _ if is_syn => (0, 0),
            (Scale::By(from), Scale::By(to)) => (from, to),
            (Scale::Unknown, Scale::Unknown) => (14, 14),
            _ => (0, 0),
        };
        let mut end = segment.seq.wrapping_add(segment.payload + u32::from(is_syn) + u32::from(is_fin));
        let mut checks_ack = true;
        if hosts[from].state == CLOSED {
            if let (true, Scale::By(other)) = (is_syn, hosts[to].scale) {
                hosts[from].scale = segment.scale;
                if let Scale::By(own) = segment.scale {
                    (from_shift, to_shift) = (own, other);
                    segment.window = up(segment.window, own);
                } else {
                    hosts[to].window = (u32::from(hosts[to].window) << other).min(0xffff) as u16;
                    hosts[to].scale = Scale::None;
                }
            }
            hosts[from].low = segment.seq;
            hosts[from].state = SYN_SENT;
            let high = end.wrapping_add((u32::from(hosts[to].window) << to_shift).max(1));
            if hosts[from].high == 1 || ahead(high, hosts[from].high) >= 0 {
                hosts[from].high = high;
                checks_ack = false;
            }
            hosts[from].window = hosts[from].window.max(segment.window);
        }
        let (src, dst) = (hosts[from], hosts[to]);
        let ack = if !is_ack || is_rst && segment.ack == 0 { dst.low } else { segment.ack };
        let mut seq = segment.seq;
        if seq == end {
            (seq, end) = (src.low, src.low);
        }
        let skew = if checks_ack { ahead(dst.low, ack) } else { 0 };
        let back = ahead(seq, src.low.wrapping_sub(u32::from(dst.window) << to_shift));
        let reset = ahead(segment.seq, src.low);
        let fits = ahead(src.high, end) >= 0
            && back >= 0
            && -ACK_WINDOW <= skew
            && skew <= ACK_WINDOW << from_shift
            && (!is_rst || (-1..=1).contains(&reset));
        let is_near = (dst.state == CLOSED || dst.state >= FIN_WAIT_2 || src.state >= FIN_WAIT_2)
            && ahead(src.high.wrapping_add(ACK_WINDOW as u32), end) >= 0
            && ahead(seq, src.low.wrapping_sub(ACK_WINDOW as u32)) >= 0;
        let is_full = fits || !checks;
        if !is_full && !is_near {
            return Verdict::Invalid;
        }
        hosts[from].window = src.window.max(segment.window);
        if ahead(end, src.low) > 0 {
            hosts[from].low = end;
        }
        let window = u32::from(segment.window) << from_shift;
        if ahead(ack.wrapping_add(window), dst.high) >= 0 {
            hosts[to].high = ack.wrapping_add(window.max(1));
        }
        if is_fin && src.state < CLOSING {
            hosts[from].state = CLOSING;
        }
        if is_full && is_ack && dst.state == SYN_SENT {
            hosts[to].state = ESTABLISHED;
        }
        if is_full && is_ack && dst.state == CLOSING {
            hosts[to].state = FIN_WAIT_2;
        }
        if is_rst {
            (hosts[0].state, hosts[1].state) = (TIME_WAIT, TIME_WAIT);
        }
        if is_full { Verdict::Valid } else { Verdict::Lax }
    }

    /// Whether each host has answered the other one, and none has ended that.
    pub(crate) fn has_two_ends(&self) -> bool {
        self.0.iter().all(|host| (ESTABLISHED..TIME_WAIT).contains(&host.state))
    }

    /// Seconds until it ends.
    pub(crate) fn seconds(&self) -> u64 {
        let states = self.0.map(|host| host.state);
        let all = |least: u8| states.iter().all(|state| *state >= least);
        match () {
            () if all(FIN_WAIT_2) => 30,
            () if all(CLOSING) => 45,
            () if !all(ESTABLISHED) => 30,
            () if states.contains(&CLOSING) || states.contains(&FIN_WAIT_2) || states.contains(&TIME_WAIT) => 900,
            () => 86400,
        }
    }
}
