//! Random packets and actions, few enough of each kind that they meet.

use base::rng::Rng;
use conntrack::{Action, Commit, Helper, Nat, NatKind};

use super::frames;
use super::model::{Conn, Model, States};
use super::packets::{Flow, ICMP, ICMPV6, SCTP, TCP, UDP, network};
use super::tcp::{ACK, FIN, PSH, RST, SYN};

pub(crate) const ZONES: [u16; 4] = [0, 1, 7, 65535];
const PORTS: [u16; 6] = [21, 80, 700, 2000, 2001, 65535];
const NET4: u128 = 0x0a00_0000;
const NET6: u128 = 0xfc00 << 112;

/// A packet to send.
pub(crate) struct Generated {
    pub frame: Vec<u8>,
    pub partial: bool,
    pub is_fragmented: bool,
    /// Where it is meant for.
    pub zone: u16,
    pub id: u16,
}

pub(crate) fn one<T: Copy>(rng: &mut Rng, list: &[T]) -> T {
    list[rng.below(list.len() as u64) as usize]
}

pub(crate) fn chance(rng: &mut Rng, percent: u64) -> bool {
    rng.below(100) < percent
}

fn host(rng: &mut Rng, v6: bool) -> u128 {
    (if v6 { NET6 } else { NET4 }) | u128::from(1 + rng.below(3))
}

fn flow(rng: &mut Rng) -> Flow {
    let v6 = chance(rng, 30);
    let proto = one(rng, &[TCP, TCP, TCP, UDP, UDP, ICMP, SCTP, 47]);
    let (src, dst, zone) = (host(rng, v6), host(rng, v6), one(rng, &ZONES));
    let port = |rng: &mut Rng| if rng.below(200) == 0 { 0 } else { one(rng, &PORTS) };
    let (mut a, mut b) = (port(rng), port(rng));
    let proto = if proto == ICMP && v6 { ICMPV6 } else { proto };
    if matches!(proto, ICMP | ICMPV6) {
        let kinds: &[u16] = if v6 { &[128, 128, 129, 135] } else { &[8, 8, 8, 0, 13, 14, 15, 10] };
        (a, b) = (1 + rng.below(3) as u16, one(rng, kinds) << 8 | u16::from(rng.below(50) == 0));
    } else if proto == 47 {
        (a, b) = (0, 0);
    }
    Flow { zone, proto, v6, src, dst, a, b }
}

/// A line for the client or server of a control connection.
fn line(rng: &mut Rng, conn: &Conn, reply: bool) -> String {
    let own = conn.flows[usize::from(reply)].src;
    let address = if rng.below(6) == 0 { own ^ 1 } else { own };
    let port = one(rng, &[0u16, 2000, 5000, 5001]);
    let commas = |address: u128| {
        let [a, b, c, d] = (address as u32).to_be_bytes();
        let [high, low] = port.to_be_bytes();
        format!("{a},{b},{c},{d},{high},{low}")
    };
    let ip = std::net::Ipv6Addr::from(address);
    match (rng.below(8), conn.flows[0].v6, reply) {
        (0, _, _) => "USER x\r\n".to_owned(),
        (1, false, false) => "PORT x\r\n".to_owned(),
        (_, false, false) => format!("PORT {}\r\n", commas(address)),
        (_, false, true) => format!("227 Entering Passive Mode ({}).\r\n", commas(address)),
        (_, true, false) => format!("EPRT |2|{ip}|{port}|\r\n"),
        (_, true, true) => format!("229 Entering Extended Passive Mode (|||{port}|)\r\n"),
    }
}

fn segment(rng: &mut Rng, flow: &Flow, known: Option<(&Conn, bool)>) -> Vec<u8> {
    let scaled: &[u8] = one(rng, &[&[][..], &[3, 3, 2, 0], &[1, 3, 3, 7]]);
    let window = one(rng, &[0, 100, 8000, 65535]);
    let random_flags = |rng: &mut Rng| rng.below(64) as u8;
    let tcp = known
        .and_then(|(conn, reply)| if let States::Tcp(tcp) = conn.states { Some((tcp, conn, reply)) } else { None });
    let Some((tcp, conn, reply)) = tcp else {
        let flags = if chance(rng, 75) { SYN } else { random_flags(rng) };
        return frames::tcp(flow, rng.below(1000) as u32, 0, flags, window, scaled, b"");
    };
    let [own, other] = if reply { [tcp.0[1], tcp.0[0]] } else { tcp.0 };
    let off = one(rng, &[0, 0, 0, 0, 0, 0, 1, u32::MAX, 70_000, 1 << 31]);
    let (seq, ack) = (own.low.wrapping_add(off), other.low.wrapping_add(one(rng, &[0, 0, 0, 0, 1, 1 << 20])));
    if conn.ftp && chance(rng, 60) {
        return frames::tcp(flow, seq, ack, ACK | PSH, window, &[], line(rng, conn, reply).as_bytes());
    }
    // What each state would send.
    let fitting = match (own.state, other.state) {
        (0, _) => SYN | ACK,
        (1, 0) => SYN,
        (4.., 4..) => SYN,
        (3, _) => ACK,
        (_, 3) => FIN | ACK,
        _ => one(rng, &[ACK, ACK, ACK | PSH, ACK | PSH, FIN | ACK]),
    };
    let flags = match rng.below(20) {
        0 => random_flags(rng),
        1 => RST | one(rng, &[0, ACK]),
        _ => fitting,
    };
    let options = if flags & SYN != 0 { scaled } else { &[] };
    let text: &[u8] = if flags & (SYN | RST) == 0 { one(rng, &[&b""[..], b"x", b"0123456789"]) } else { b"" };
    frames::tcp(flow, seq, ack, flags, window, options, text)
}

fn transport(rng: &mut Rng, flow: &Flow, known: Option<(&Conn, bool)>, len: usize) -> Vec<u8> {
    let text: Vec<u8> = (0..len).map(|n| n as u8).collect();
    match flow.proto {
        TCP => segment(rng, flow, known),
        UDP => frames::udp(flow, &text, chance(rng, 80)),
        ICMP | ICMPV6 => frames::icmp(flow, &text),
        SCTP => {
            let kind = one(rng, &[1, 1, 2, 10, 11, 0, 0, 6, 7, 8, 14]);
            let tag = if kind == 1 { 0 } else { rng.below(3) as u32 };
            frames::sctp(flow, tag, kind, &[0, 0, 0, 1 + rng.below(2) as u8, 0, 0, 0, 9, 0, 1, 0, 1, 0, 0, 0, 4])
        }
        _ => text,
    }
}

/// An ICMP error about a packet of the opposite direction, at times cut off.
fn error(rng: &mut Rng, about: &Flow) -> (Flow, Vec<u8>) {
    let sent = about.back();
    let mut len = 0;
    let l4 = transport(rng, &sent, None, 20);
    let mut inner = frames::frame(&sent, &l4, 9, false, false).split_off(14);
    if chance(rng, 40) {
        len = rng.below(l4.len().saturating_sub(8) as u64 + 1) as usize;
    }
    inner.truncate(inner.len() - len);
    let src = if chance(rng, 40) { host(rng, about.v6) | 8 } else { about.src };
    let dst = if chance(rng, 95) { about.dst } else { about.dst ^ 1 };
    let (proto, kind) = if about.v6 { (ICMPV6, one(rng, &[1, 2, 3, 4])) } else { (ICMP, one(rng, &[3, 4, 5, 11, 12])) };
    let flow = Flow { proto, src, dst, a: 0, b: kind << 8 | 1, ..*about };
    (flow, frames::icmp(&flow, &inner))
}

/// A random packet for the connections of a tracker.
pub(crate) fn generated(rng: &mut Rng, model: &Model, id: u16) -> Generated {
    let conn = (!model.conns.is_empty()).then(|| &model.conns[rng.below(model.conns.len() as u64) as usize]);
    let known = conn.filter(|_| chance(rng, 60)).map(|conn| (conn, chance(rng, 50)));
    let expected = (!model.expected.is_empty() && chance(rng, 20)).then(|| one_of(rng, &model.expected).flow);
    let about = match (expected, known) {
        (Some(flow), _) => Flow { a: one(rng, &PORTS), ..flow },
        (None, Some((conn, reply))) => conn.flows[usize::from(reply)],
        (None, None) => flow(rng),
    };
    let known = known.filter(|_| expected.is_none());
    let is_fragmented = matches!(about.proto, UDP | ICMP | ICMPV6 | 47) && chance(rng, 5);
    let is_tagged = chance(rng, 10);
    let len = if is_fragmented { 900 + rng.below(600) } else { rng.below(40) } as usize;
    let (flow, l4) = if !is_fragmented && chance(rng, 10) {
        error(rng, &about)
    } else {
        (about, transport(rng, &about, known, len))
    };
    let partial = !is_fragmented && matches!(flow.proto, TCP | UDP) && chance(rng, 10);
    let mut frame = frames::frame(&flow, &l4, id, is_tagged, partial);
    if !partial && chance(rng, 2) {
        let l3 = network(&frame);
        // The time to live of IPv4, or the last byte of the payload.
        let at = if chance(rng, 50) && !flow.v6 && !is_fragmented { l3 + 8 } else { frame.len() - 1 };
        frame[at] ^= 1;
    }
    Generated { frame, partial, is_fragmented, zone: about.zone, id }
}

fn one_of<'a, T>(rng: &mut Rng, list: &'a [T]) -> &'a T {
    &list[rng.below(list.len() as u64) as usize]
}

/// A random action.
pub(crate) fn action(rng: &mut Rng, zone: u16) -> Action {
    let mut action = Action { zone, ..Action::default() };
    action.commit =
        one(rng, &[None, Some(Commit::Plain), Some(Commit::Plain), Some(Commit::Plain), Some(Commit::Force)]);
    if action.commit == Some(Commit::Force) && chance(rng, 60) {
        action.commit = Some(Commit::Plain);
    }
    if chance(rng, 25) {
        let mask = one(rng, &[u32::MAX, 0xff, 0xf0]);
        action.mark = Some((rng.next_u64() as u32 & 0x37 & mask, mask));
    }
    if chance(rng, 15) {
        let mask = one(rng, &[u128::MAX, 0xff << 100, 0xf]);
        action.label = Some((u128::from(rng.next_u64()) << 60 & mask, mask));
    }
    if chance(rng, 25) {
        action.helper = Some(one(rng, &[Helper::Ftp, Helper::Ftp, Helper::Ftp, Helper::Tftp]));
        // A UDP connection with the helper would need lines of TFTP.
        action.helper = action.helper.filter(|helper| *helper == Helper::Ftp);
    }
    if chance(rng, 20) {
        action.timeout = Some("short".into());
    }
    if chance(rng, 45) {
        action.nat = Some(translation(rng));
    }
    if action.helper.is_some() {
        // Texts of control connections are not translated here.
        action.nat = action.nat.map(|_| Nat::default());
    }
    action
}

/// An action that replaces a connection by one of the opposite direction with a translation of its own.
pub(crate) fn replacement(rng: &mut Rng, zone: u16) -> Action {
    Action { zone, commit: Some(Commit::Force), nat: Some(translation(rng)), ..Action::default() }
}

fn translation(rng: &mut Rng) -> Nat {
    let kind = one(rng, &[None, Some(NatKind::Src), Some(NatKind::Src), Some(NatKind::Dst)]);
    if kind.is_none() {
        return Nat::default();
    }
    let v6 = chance(rng, 30);
    let address = host(rng, v6) | if chance(rng, 50) { 16 } else { 0 };
    let halves = [(address >> 64) as u64, address as u64];
    let addresses = chance(rng, 85).then_some((halves, halves, v6));
    let port = one(rng, &[80u16, 2000, 3000, 65535]);
    let ports = chance(rng, 50).then_some((port, port));
    Nat { kind, addresses, ports, persistent: chance(rng, 10), hash: chance(rng, 10), random: chance(rng, 10) }
}
