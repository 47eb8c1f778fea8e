//! Tests of the state machine: recorded verdicts of Open vSwitch, and a naive twin.

use super::*;
use base::rng::Rng;

/// A header with its payload.
fn l4(flags: u8, seq: u32, ack: u32, window: u16, scale: Option<u8>, len: usize) -> Vec<u8> {
    let mut bytes = vec![0x27, 0x10, 0, 80];
    bytes.extend(seq.to_be_bytes());
    bytes.extend(ack.to_be_bytes());
    bytes.extend([if scale.is_some() { 0x60 } else { 0x50 }, flags]);
    bytes.extend(window.to_be_bytes());
    bytes.extend([0; 4]);
    bytes.extend(scale.map(|shift| [1, 3, 3, shift]).into_iter().flatten());
    bytes.resize(bytes.len() + len, 0);
    bytes
}

fn bits(text: &str) -> u8 {
    text.chars().filter_map(|c| "FSRPAUEC".find(c)).fold(0, |bits, at| bits | 1 << at)
}

/// A tracker of one tuple that commits each new connection, as the flows of the recorded switch do. Such a flow tracks a
/// packet of a new connection a second time.
#[derive(Default)]
struct Tracker {
    /// The connection, its twin, and whether the second host began it.
    conn: Option<(Tcp, Twin, bool)>,
    /// Whether the last segments were only near the window. Open vSwitch does not change the timeout then.
    was_lax: bool,
}

impl Tracker {
    /// Tracks a segment of a host, and names its state.
    fn track(&mut self, from_second: bool, segment: &Segment, checks_sequence: bool) -> &'static str {
        let Some((tcp, twin, begun_by_second)) = &mut self.conn else { return self.create(from_second, segment) };
        let direction = if *begun_by_second == from_second { Direction::Original } else { Direction::Reply };
        let mut update = || {
            let update = tcp.update(direction, segment, checks_sequence);
            let (expected, rule) = twin.update(direction.index(), segment, checks_sequence);
            assert_eq!(update, expected);
            self.was_lax = rule == Rule::Near || self.was_lax && rule == Rule::Other;
            update
        };
        match (update(), direction) {
            (Update::Valid | Update::Lax, Direction::Original) => "est",
            (Update::Valid | Update::Lax, Direction::Reply) => "estrpl",
            (Update::StillNew, _) => {
                assert_eq!(update(), Update::StillNew);
                "new"
            }
            (Update::Invalid, _) => "inv",
            (Update::Restart, _) => self.create(from_second, segment),
        }
    }

    fn create(&mut self, by_second: bool, segment: &Segment) -> &'static str {
        self.conn = Tcp::begin(segment).map(|tcp| (tcp, Twin::begin(segment), by_second));
        self.was_lax = false;
        if self.conn.is_some() { "new" } else { "inv" }
    }

    /// Its entry in the list of connections: the host that began it, seconds, states, scales and flags of both peers.
    fn entry(&self) -> String {
        let Some((tcp, _, by_second)) = &self.conn else { return "none".to_owned() };
        let [a, b] = [Direction::Original, Direction::Reply].map(|direction| tcp.peer(direction));
        let flags = |peer: PeerInfo| match peer {
            PeerInfo { is_liberal: true, .. } => "BE_LIBERAL",
            PeerInfo { window_scale: Some(_), .. } => "WINDOW_SCALE",
            _ => "0",
        };
        let from = if *by_second { '<' } else { '>' };
        let [scale_a, scale_b] = [a, b].map(|peer| peer.window_scale.unwrap_or(0));
        let seconds = tcp.timeout().default_seconds();
        format!("{from} {seconds} {} {} {scale_a} {scale_b} {} {}", a.state, b.state, flags(a), flags(b))
    }
}

/// Replays a recording; returns the numbers of connections and segments. Its lines are `connection`, segments (host, control
/// bits, sequence number, acknowledgment, window, shift, length of the payload, resulting state) and `end` with the entry.
fn replay(name: &str, recording: &str, checks_sequence: bool) -> (usize, usize) {
    let mut tracker = Tracker::default();
    let (mut connections, mut segments) = (0, 0);
    for (n, line) in recording.lines().enumerate() {
        let words: Vec<_> = line.split(' ').collect();
        match words[..] {
            ["connection"] => {
                tracker = Tracker::default();
                connections += 1;
            }
            ["end", ref expected @ ..] => {
                let entry = tracker.entry();
                let mut entry: Vec<_> = entry.split(' ').collect();
                if tracker.was_lax && entry.len() == expected.len() {
                    entry[1] = expected[1];
                }
                assert_eq!(entry, expected, "{name}:{}", n + 1);
            }
            [host, flags, seq, ack, window, scale, len, state] => {
                let number = |text: &str| text.parse::<u32>().unwrap();
                let (window, len) = (number(window) as u16, number(len) as usize);
                let bytes = l4(bits(flags), number(seq), number(ack), window, scale.parse().ok(), len);
                let segment = Segment::read(&bytes).unwrap();
                assert_eq!(tracker.track(host == "<", &segment, checks_sequence), state, "{name}:{}", n + 1);
                segments += 1;
            }
            _ => panic!("{name}:{}: {line}", n + 1),
        }
    }
    (connections, segments)
}

/// Random connections whose packets and final entries Open vSwitch 4.0.0 has judged.
#[test]
fn recorded_connections_agree() {
    let recordings =
        [("checked.txt", include_str!("checked.txt"), true), ("unchecked.txt", include_str!("unchecked.txt"), false)];
    for (name, recording, checks_sequence) in recordings {
        let (connections, segments) = replay(name, recording, checks_sequence);
        tally::report!("{name}: {connections} connections, {segments} segments");
    }
}

/// The rule that has decided about a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// It is within the windows.
    Fits,
    /// It is only near them.
    Near,
    /// None of both.
    Other,
}

/// A peer of the naive machine. Numbers of states: 0 closed, 1 SYN sent, 2 established, 3 closing, 4 FIN acknowledged, 5
/// reset.
#[derive(Clone, Copy, Debug)]
struct TwinPeer {
    next: u32,
    limit: u32,
    window: i64,
    /// The factor of windows; `None` without the option, 0 if the SYN is unknown.
    factor: Option<i64>,
    state: u8,
}

/// The rules without sharing, in order, with numbers of 64 bits.
#[derive(Clone, Copy, Debug)]
struct Twin([TwinPeer; 2]);

/// The distance from `b` to `a` on the circle of sequence numbers.
fn distance(a: i64, b: u32) -> i64 {
    let apart = (a - i64::from(b)).rem_euclid(1 << 32);
    if apart >= 1 << 31 { apart - (1 << 32) } else { apart }
}

fn factor(scale: Scale) -> Option<i64> {
    match scale {
        Scale::Absent => None,
        Scale::Unknown => Some(0),
        Scale::Shift(shift) => Some(1 << shift),
    }
}

impl Twin {
    fn begin(segment: &Segment) -> Self {
        let is_syn = segment.flags & SYN != 0;
        let takes = segment.len + u32::from(is_syn) + u32::from(segment.flags & FIN != 0);
        let by = if is_syn { factor(segment.scale) } else { Some(0) };
        let mut window = i64::from(segment.window).max(1);
        if let Some(by @ 1..) = by {
            window = (window + by - 1) / by;
        }
        let limit = segment.seq.wrapping_add(takes).wrapping_add(1);
        let sender = TwinPeer { next: segment.seq, limit, window, factor: by, state: 1 };
        let other = if is_syn { None } else { Some(0) };
        Self([sender, TwinPeer { next: 0, limit: 1, window: 1, factor: other, state: 0 }])
    }

    fn update(&mut self, from: usize, segment: &Segment, checks_sequence: bool) -> (Update, Rule) {
        let [syn, fin, rst, ack] = [SYN, FIN, RST, ACK].map(|bit| segment.flags & bit != 0);
        let extra = segment.flags & (segment::PSH | segment::URG) != 0;
        let is_odd = syn && (fin || rst) || !syn && !ack && !rst || !ack && (fin || extra);
        if is_odd {
            return (Update::Invalid, Rule::Other);
        }
        let [mut me, mut other] = [self.0[from], self.0[1 - from]];
        if syn && !ack && me.state >= 4 && other.state >= 4 {
            return (Update::Restart, Rule::Other);
        }
        if syn && !ack && me.state <= 1 {
            self.0[from].state = 1;
            return (Update::StillNew, Rule::Fits);
        }
        let (mut mine, mut theirs) = match (me.factor, other.factor) {
            _ if syn => (1, 1),
            (Some(0), Some(0)) => (1 << 14, 1 << 14),
            (Some(a @ 1..), Some(b @ 1..)) => (a, b),
            _ => (1, 1),
        };
        let mut window = i64::from(segment.window);
        let takes = i64::from(segment.len) + i64::from(syn) + i64::from(fin);
        let end = i64::from(segment.seq) + takes;
        let mut any_ack = false;
        if me.state == 0 {
            if let (true, Some(by @ 1..)) = (syn, other.factor) {
                me.factor = factor(segment.scale);
                if let Some(own) = me.factor {
                    (mine, theirs) = (own, by);
                    window = (window + own - 1) / own;
                } else {
                    other.window = (other.window * by).min(65535);
                    other.factor = None;
                }
            }
            (me.next, me.state) = (segment.seq, 1);
            me.window = me.window.max(window);
            let limit = end + (other.window * theirs).max(1);
            if me.limit == 1 || distance(limit, me.limit) >= 0 {
                me.limit = limit as u32;
                any_ack = true;
            }
        }
        let acked = if !ack || segment.ack == 0 && rst { other.next } else { segment.ack };
        let (seq, end) =
            if takes == 0 { (i64::from(me.next), i64::from(me.next)) } else { (i64::from(segment.seq), end) };
        let skew = distance(i64::from(other.next), acked);
        let end_number = end.rem_euclid(1 << 32) as u32;
        let exact = !rst || (-1..=1).contains(&distance(i64::from(segment.seq), me.next));
        let in_window =
            distance(i64::from(me.limit), end_number) >= 0 && distance(seq + other.window * theirs, me.next) >= 0;
        let fits = in_window && (any_ack || (-67035..=67035 * mine).contains(&skew)) && exact;
        let is_done = other.state == 0 || other.state >= 4 || me.state >= 4;
        let rule = if fits || !checks_sequence {
            Rule::Fits
        } else if is_done
            && distance(i64::from(me.limit) + 67035, end_number) >= 0
            && distance(seq + 67035, me.next) >= 0
        {
            Rule::Near
        } else {
            Rule::Other
        };
        if rule != Rule::Other {
            me.window = me.window.max(window);
            if distance(end, me.next) > 0 {
                me.next = end as u32;
            }
            if distance(i64::from(acked) + window * mine, other.limit) >= 0 {
                other.limit = (i64::from(acked) + (window * mine).max(1)) as u32;
            }
            me.state = if fin { me.state.max(3) } else { me.state };
            if rule == Rule::Fits && ack {
                other.state = [0, 2, 2, 4, 4, 5][usize::from(other.state)];
            }
            if rst {
                (me.state, other.state) = (5, 5);
            }
        }
        (self.0[from], self.0[1 - from]) = (me, other);
        let update = match rule {
            Rule::Fits => Update::Valid,
            Rule::Near => Update::Lax,
            Rule::Other => Update::Invalid,
        };
        (update, rule)
    }

    /// Compares it with the machine.
    fn check(&self, tcp: &Tcp) {
        for (twin, peer) in self.0.iter().zip(&tcp.peers) {
            assert_eq!(
                (twin.next, twin.limit, twin.window, twin.factor, twin.state),
                (peer.next, peer.limit, i64::from(peer.max_window), factor(peer.scale), peer.state as u8)
            );
        }
        let states = [self.0[0].state, self.0[1].state];
        let (low, high) = (*states.iter().min().unwrap(), *states.iter().max().unwrap());
        let timeout = match (low, high) {
            (4.., _) => Timeout::TcpClose,
            (3, _) => Timeout::TcpTimeWait,
            (0, _) => Timeout::TcpSynSent,
            (1, _) => Timeout::TcpSynRecv,
            (_, 3..) => Timeout::TcpFinWait,
            _ => Timeout::TcpEstablished,
        };
        assert_eq!(tcp.timeout(), timeout);
    }
}

/// A number near one of the numbers of a connection.
fn near(rng: &mut Rng, base: u32) -> u32 {
    const OFFSETS: [i64; 16] =
        [0, 0, 0, 0, 1, -1, 2, 1460, -1460, 65535, 67035, -67035, 67036, -67036, 1_098_301_440, 1 << 31];
    match rng.below(20) {
        0 => rng.next_u64() as u32,
        n if n < 9 => base,
        _ => base.wrapping_add(OFFSETS[rng.below(16) as usize] as u32).wrapping_add(rng.below(3) as u32),
    }
}

fn random_segment(rng: &mut Rng, tcp: &Tcp, from: usize) -> Segment {
    const FLAGS: [u8; 12] = [ACK, ACK, ACK, ACK, ACK, FIN | ACK, SYN | ACK, SYN, RST, RST | ACK, PSH_ACK, PSH_ACK];
    const PSH_ACK: u8 = segment::PSH | ACK;
    const SCALES: [Scale; 4] = [Scale::Absent, Scale::Shift(0), Scale::Shift(7), Scale::Shift(14)];
    let flags = if rng.below(20) == 0 { rng.next_u64() as u8 } else { FLAGS[rng.below(12) as usize] };
    let scale = if flags & SYN != 0 { SCALES[rng.below(4) as usize] } else { Scale::Absent };
    let window = [0, 1, 1000, 49152, 65535, rng.next_u64() as u16][rng.below(6) as usize];
    let len = [0, 0, 0, 1, 100, 1460, 65000][rng.below(7) as usize];
    let base = if rng.below(8) == 0 { tcp.peers[from].limit } else { tcp.peers[from].next };
    let base = if base == 0 { rng.next_u64() as u32 } else { base };
    let ack = if rng.below(20) == 0 { 0 } else { near(rng, tcp.peers[1 - from].next) };
    Segment { seq: near(rng, base), ack, len, window, flags, scale }
}

#[test]
fn random_segments_agree_with_the_twin() {
    let mut rng = Rng::seeded(1974);
    let steps = 300_000;
    let mut conn: Option<(Tcp, Twin)> = None;
    let mut verdicts = [0u32; 5];
    for _ in 0..steps {
        let Some((tcp, twin)) = &mut conn else {
            let blank = Tcp {
                peers: [Peer { next: 0, limit: 0, max_window: 0, scale: Scale::Absent, state: State::Closed }; 2],
            };
            let segment = random_segment(&mut rng, &blank, 0);
            conn = Tcp::begin(&segment).map(|tcp| (tcp, Twin::begin(&segment)));
            continue;
        };
        let from = rng.below(2) as usize;
        let direction = [Direction::Original, Direction::Reply][from];
        let segment = random_segment(&mut rng, tcp, from);
        let checks_sequence = rng.below(50) != 0;
        let update = tcp.update(direction, &segment, checks_sequence);
        let (expected, _) = twin.update(from, &segment, checks_sequence);
        assert_eq!(update, expected, "{segment:?}");
        twin.check(tcp);
        verdicts[update as usize] += 1;
        if update == Update::Restart || rng.below(60) == 0 {
            conn = None;
        }
    }
    assert!(verdicts.iter().all(|&count| count > 100), "{verdicts:?}");
    tally::report!("{steps} segments; valid, still new, invalid, restart, lax: {verdicts:?}");
}

#[test]
fn the_fast_path_is_the_machine() {
    const STATES: [State; 8] = [
        State::Established,
        State::Established,
        State::Established,
        State::Closed,
        State::SynSent,
        State::Closing,
        State::FinWait2,
        State::TimeWait,
    ];
    let mut rng = Rng::seeded(793);
    let (steps, mut fast) = (300_000, 0);
    for _ in 0..steps {
        let peers = [(); 2].map(|()| {
            let next = rng.next_u64() as u32;
            Peer {
                next,
                limit: next.wrapping_add(rng.below(100_000) as u32),
                max_window: rng.next_u64() as u16,
                scale: [Scale::Absent, Scale::Unknown, Scale::Shift(0), Scale::Shift(9)][rng.below(4) as usize],
                state: STATES[rng.below(8) as usize],
            }
        });
        let mut tcp = Tcp { peers };
        let mut full = tcp;
        let from = rng.below(2) as usize;
        let direction = [Direction::Original, Direction::Reply][from];
        let segment = random_segment(&mut rng, &tcp, from);
        let checks_sequence = rng.below(4) != 0;
        let update = tcp.update(direction, &segment, checks_sequence);
        assert_eq!(update, full.track(direction, &segment, checks_sequence));
        assert_eq!(tcp, full);
        let both = peers.iter().all(|peer| peer.state == State::Established);
        fast += u32::from(both && update == Update::Valid && segment.flags & CONTROL == ACK);
    }
    tally::report!("{steps} segments, {fast} of them plain and valid");
}

/// States and seconds of Open vSwitch 4.0.0 during the life of a connection.
#[test]
fn a_connection_lives_and_is_reopened() {
    let mut tracker = Tracker::default();
    let steps = [
        (false, "S", 1000, 0, "new", "SYN_SENT", 30),
        (true, "SA", 5000, 1001, "estrpl", "ESTABLISHED", 30),
        (false, "A", 1001, 5001, "est", "ESTABLISHED", 86_400),
        (false, "FA", 1001, 5001, "est", "CLOSING", 900),
        (true, "A", 5001, 1002, "estrpl", "TIME_WAIT", 900),
        (true, "FA", 5001, 1002, "estrpl", "TIME_WAIT", 45),
        (false, "A", 1002, 5002, "est", "TIME_WAIT", 30),
        (true, "S", 9000, 0, "new", "SYN_SENT", 30),
    ];
    for (from_second, flags, seq, ack, state, name, seconds) in steps {
        let segment = Segment::read(&l4(bits(flags), seq, ack, 65535, None, 0)).unwrap();
        assert_eq!(tracker.track(from_second, &segment, true), state, "{flags} {seq}");
        let (tcp, ..) = tracker.conn.as_ref().unwrap();
        assert_eq!((tcp.state_name(), tcp.timeout().default_seconds()), (name, seconds), "{flags} {seq}");
    }
}

/// Which combinations Open vSwitch 4.0.0 accepts in an established connection, and as a first segment.
#[test]
fn impossible_control_bits_are_invalid() {
    let begin = "S R A FA RA PA UA SEC RFA FPUA EA SE";
    let only_within = "SA SPA";
    let invalid = "- F P U SR SF FR PU SU SP FP FU SFA SRA FPU SFRPAU E RP FSPU SPU";
    for (list, begins, is_possible) in [(begin, true, true), (only_within, false, true), (invalid, false, false)] {
        for flags in list.split(' ') {
            let segment = Segment::read(&l4(bits(flags), 1001, 5001, 65535, None, 0)).unwrap();
            assert_eq!(segment.is_possible(), is_possible, "{flags}");
            assert_eq!(Tcp::begin(&segment).is_some(), begins, "{flags}");
        }
    }
}

/// Open vSwitch 4.0.0 rejects the answer's data here, as if the first window of 65535 had overflowed 16 bits.
#[test]
fn a_window_is_restored_if_the_answer_does_not_scale() {
    let mut tcp = Tcp::begin(&Segment::read(&l4(SYN, 1000, 0, 65535, Some(7), 0)).unwrap()).unwrap();
    let answer = Segment::read(&l4(SYN | ACK, 5000, 1001, 65535, None, 0)).unwrap();
    assert_eq!(tcp.update(Direction::Reply, &answer, true), Update::Valid);
    assert_eq!(tcp.peers[0].max_window, 65535);
    assert_eq!(tcp.peer(Direction::Original).window_scale, None);
}
