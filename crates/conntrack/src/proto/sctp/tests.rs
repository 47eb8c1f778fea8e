//! Tests of the state machine: a naive twin, and hosts that have to reach an association behind it.

use super::*;
use base::rng::Rng;

/// A packet with the given chunks: type, flags, and bytes behind the chunk header.
fn packet(tag: u32, chunks: &[(u8, u8, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = vec![0x13, 0x88, 0x13, 0x89];
    bytes.extend(tag.to_be_bytes());
    bytes.extend([0; 4]);
    for (kind, flags, value) in chunks {
        bytes.extend([*kind, *flags]);
        bytes.extend((4 + value.len() as u16).to_be_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

/// A packet with one chunk; `initiate_tag` is for INIT and INIT ACK.
fn single(tag: u32, kind: u8, flags: u8, initiate_tag: u32) -> Vec<u8> {
    let mut value = initiate_tag.to_be_bytes().to_vec();
    value.resize(16, 0);
    packet(tag, &[(kind, flags, value)])
}

const ORIGINAL: Direction = Direction::Original;
const REPLY: Direction = Direction::Reply;

/// An association with tags 10 (original direction) and 20.
fn established() -> Sctp {
    let mut sctp = Sctp::begin(&single(0, chunk::INIT, 0, 20)).unwrap();
    for (direction, packet) in [
        (REPLY, single(20, chunk::INIT_ACK, 0, 10)),
        (ORIGINAL, single(10, chunk::COOKIE_ECHO, 0, 0)),
        (REPLY, single(20, chunk::COOKIE_ACK, 0, 0)),
    ] {
        assert_eq!(sctp.update(direction, &packet), Update::Valid);
    }
    assert_eq!(sctp.state, State::Established);
    sctp
}

/// Verdicts and seconds as Open vSwitch 4.0.0 reports them.
#[test]
fn an_association_is_new_until_its_reply() {
    let init = single(0, chunk::INIT, 0, 20);
    let mut sctp = Sctp::begin(&init).unwrap();
    assert_eq!(sctp.timeout().default_seconds(), 60);
    assert_eq!(sctp.update(ORIGINAL, &init), Update::StillNew);
    assert_eq!(sctp.timeout().default_seconds(), 60);
    assert_eq!(sctp.update(REPLY, &single(20, chunk::INIT_ACK, 0, 10)), Update::Valid);
    assert_eq!(sctp.timeout().default_seconds(), 30);
}

#[test]
fn an_association_is_shut_down_and_reopened() {
    for (first, other, state, tags) in
        [(ORIGINAL, REPLY, State::ShutdownSent, [10, 20]), (REPLY, ORIGINAL, State::ShutdownReceived, [20, 10])]
    {
        let mut sctp = established();
        let steps = [
            (first, single(tags[0], chunk::DATA, 3, 0), State::Established),
            (first, single(tags[0], chunk::SHUTDOWN, 0, 0), state),
            (other, single(tags[1], chunk::SHUTDOWN_ACK, 0, 0), State::ShutdownAckSent),
            (first, single(tags[0], chunk::SHUTDOWN_COMPLETE, 0, 0), State::Closed),
        ];
        for (direction, packet, state) in steps {
            assert_eq!(sctp.update(direction, &packet), Update::Valid);
            assert_eq!(sctp.state, state);
        }
        assert_eq!(sctp.update(other, &single(0, chunk::INIT, 0, 30)), Update::Restart);
    }
}

#[test]
fn tags_are_verified() {
    let sctp = established();
    // RFC 9260, section 8.5.1, by rule.
    let cases = [
        (ORIGINAL, single(10, chunk::DATA, 3, 0), Update::Valid),
        (ORIGINAL, single(20, chunk::DATA, 3, 0), Update::Invalid),
        (REPLY, single(10, chunk::DATA, 3, 0), Update::Invalid),
        (ORIGINAL, single(0, chunk::DATA, 3, 0), Update::Invalid),
        // A: INIT has no tag, and is alone.
        (ORIGINAL, single(0, chunk::INIT, 0, 50), Update::Valid),
        (ORIGINAL, single(10, chunk::INIT, 0, 50), Update::Invalid),
        (ORIGINAL, single(0, chunk::INIT, 0, 0), Update::Invalid),
        (ORIGINAL, packet(0, &[(chunk::INIT, 0, vec![1; 16]), (chunk::DATA, 3, vec![0; 12])]), Update::Invalid),
        (ORIGINAL, packet(0, &[(chunk::INIT, 0, vec![1; 12])]), Update::Invalid),
        // B, C: the tag of the packet's direction, or the other one with the T bit.
        (ORIGINAL, packet(10, &[(chunk::ABORT, 0, vec![])]), Update::Valid),
        (ORIGINAL, packet(20, &[(chunk::ABORT, 1, vec![])]), Update::Valid),
        (ORIGINAL, packet(20, &[(chunk::ABORT, 0, vec![])]), Update::Invalid),
        (ORIGINAL, packet(10, &[(chunk::ABORT, 1, vec![])]), Update::Invalid),
        (REPLY, packet(10, &[(chunk::SHUTDOWN_COMPLETE, 1, vec![])]), Update::Valid),
        (REPLY, packet(20, &[(chunk::SHUTDOWN_COMPLETE, 1, vec![])]), Update::Invalid),
        // Cut off, or without chunks.
        (ORIGINAL, packet(10, &[]), Update::Invalid),
        (ORIGINAL, single(10, chunk::DATA, 3, 0)[..20].to_vec(), Update::Invalid),
        (ORIGINAL, [&packet(10, &[])[..], &[3, 0, 0, 3]].concat(), Update::Invalid),
    ];
    for (n, (direction, packet, update)) in cases.into_iter().enumerate() {
        assert_eq!(sctp.clone().update(direction, &packet), update, "case {n}");
    }
}

#[test]
fn answers_begin_no_connection() {
    for kind in 0..=255 {
        let tag = if kind == chunk::INIT { 0 } else { 7 };
        let begins = !matches!(kind, chunk::INIT_ACK | chunk::COOKIE_ACK | chunk::ABORT | chunk::SHUTDOWN_COMPLETE);
        assert_eq!(Sctp::begin(&single(tag, kind, 0, 9)).is_some(), begins, "{kind}");
        assert!(Sctp::begin(&single(7 - tag, kind, 0, 9)).is_none(), "{kind}");
    }
}

#[test]
fn a_connection_is_picked_up_with_the_tags_of_its_first_packets() {
    let mut sctp = Sctp::begin(&single(10, chunk::DATA, 3, 0)).unwrap();
    assert_eq!(sctp.update(ORIGINAL, &single(11, chunk::DATA, 3, 0)), Update::Invalid);
    assert_eq!(sctp.update(ORIGINAL, &single(10, chunk::DATA, 3, 0)), Update::StillNew);
    assert_eq!(sctp.update(REPLY, &single(20, 3, 0, 0)), Update::Valid);
    assert_eq!(sctp.update(REPLY, &single(21, 3, 0, 0)), Update::Invalid);

    let mut path = Sctp::begin(&single(10, chunk::HEARTBEAT, 0, 0)).unwrap();
    assert_eq!(path.state, State::HeartbeatSent);
    assert_eq!(path.update(REPLY, &single(20, 5, 0, 0)), Update::Valid);
    assert_eq!((path.state, path.tags), (State::Established, [10, 20]));
}

/// The rules as a list, chunk by chunk; states by number in the order of [`State`].
struct Twin {
    tags: [u32; 2],
    successor: [u32; 2],
    state: usize,
    answered: bool,
}

const CLOSED: usize = 0;
const WAIT: usize = 1;
const ECHOED: usize = 2;

/// State after a chunk with a valid tag, by state, for a type and a direction. `9` stands for no change.
fn row(kind: u8, from: usize) -> [usize; 8] {
    let to_established = if from == 1 { 3 } else { 9 };
    match kind {
        chunk::ABORT => [0; 8],
        chunk::COOKIE_ECHO => [9, 2, 9, 9, 9, 9, 9, to_established],
        chunk::COOKIE_ACK => [9, 9, 3, 9, 9, 9, 9, to_established],
        chunk::SHUTDOWN => [9, 9, 9, 4 + from, 9, 9, 9, to_established],
        chunk::SHUTDOWN_ACK => [9, 9, 9, 9, 6, 6, 9, to_established],
        chunk::SHUTDOWN_COMPLETE => [9, 9, 9, 9, 9, 9, 0, to_established],
        chunk::INIT | chunk::INIT_ACK | chunk::HEARTBEAT => [9; 8],
        _ => [9, 9, 9, 9, 9, 9, 9, to_established],
    }
}

impl Twin {
    fn update(&mut self, from: usize, tag: u32, kind: u8, flags: u8, initiate: u32) -> Update {
        let to = 1 - from;
        let reflected = flags & 1 == 1 && (kind == chunk::ABORT || kind == chunk::SHUTDOWN_COMPLETE);
        let unknown = self.tags[from] == 0 && self.state != WAIT;
        let announces = kind == chunk::INIT || kind == chunk::INIT_ACK;
        let starting = self.state == WAIT || self.state == ECHOED;
        if (tag == 0) != (kind == chunk::INIT) || announces && initiate == 0 {
            return Update::Invalid;
        }
        if kind == chunk::INIT && self.state == CLOSED {
            return Update::Restart;
        }
        let fits = match kind {
            chunk::INIT => true,
            chunk::INIT_ACK | chunk::COOKIE_ECHO => tag == self.tags[from] || tag == self.successor[from],
            chunk::SHUTDOWN_ACK if starting => true,
            chunk::SHUTDOWN_COMPLETE if starting && reflected => true,
            _ if reflected => self.tags[to] == 0 || tag == self.tags[to] || tag == self.successor[to],
            chunk::ABORT => tag == self.tags[from] || tag == self.successor[from] || unknown,
            _ => tag == self.tags[from] || unknown,
        };
        if !fits {
            return Update::Invalid;
        }
        let commits = kind == chunk::COOKIE_ECHO && tag != self.tags[from];
        let is_foreign = starting && kind == chunk::SHUTDOWN_ACK;
        if unknown && !announces && !commits && !reflected && !is_foreign && kind != chunk::ABORT {
            self.tags[from] = tag;
        }
        if commits {
            (self.tags, self.successor, self.state) = (self.successor, [0, 0], ECHOED);
        } else if announces && self.state == WAIT {
            self.tags[to] = initiate;
        } else if kind == chunk::INIT {
            self.successor[to] = initiate;
            self.successor[from] = 0;
        } else if kind == chunk::INIT_ACK && tag == self.successor[from] {
            self.successor[to] = initiate;
        } else if row(kind, from)[self.state] != 9 {
            self.state = row(kind, from)[self.state];
        }
        self.answered |= from == 1;
        if self.answered { Update::Valid } else { Update::StillNew }
    }
}

#[test]
fn random_packets_agree_with_the_twin() {
    const KINDS: [u8; 15] = [0, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 14];
    let mut rng = Rng::seeded(9260);
    let steps = 300_000;
    let mut pair: Option<(Sctp, Twin)> = None;
    let (mut states, mut verdicts) = ([0u32; 8], [0u32; 4]);
    for _ in 0..steps {
        let kind = KINDS[rng.below(15) as usize];
        let flags = rng.below(2) as u8;
        // Few tags, so that wrong ones are often those of another direction or association.
        let tag = if kind == chunk::INIT && rng.below(20) != 0 { 0 } else { rng.below(6) as u32 };
        let initiate = rng.below(6) as u32;
        let bytes = single(tag, kind, flags, initiate);
        let from = rng.below(2) as usize;
        let Some((sctp, twin)) = &mut pair else {
            pair = Sctp::begin(&bytes).map(|sctp| {
                let (tags, successor) = (sctp.tags, [0, 0]);
                (sctp, Twin { tags, successor, state: sctp.state as usize, answered: false })
            });
            continue;
        };
        let update = sctp.update([ORIGINAL, REPLY][from], &bytes);
        let context = format!("{kind} {flags} {tag} {initiate} {from} {sctp:?}");
        assert_eq!(update, twin.update(from, tag, kind, flags, initiate), "{context}");
        assert_eq!(
            (sctp.tags, sctp.next_tags, sctp.state as usize),
            (twin.tags, twin.successor, twin.state),
            "{context}"
        );
        states[twin.state] += 1;
        verdicts[update as usize] += 1;
        if update == Update::Restart || rng.below(40) == 0 {
            pair = None;
        }
    }
    assert!(states.iter().chain(&verdicts).all(|&count| count > 100), "{states:?} {verdicts:?}");
    tally::report!("{steps} packets; states {states:?}; valid, still new, invalid, restart {verdicts:?}");
}

#[test]
fn the_fast_path_is_the_machine_and_any_bytes_are_read() {
    let mut rng = Rng::seeded(1);
    let (steps, mut valid) = (200_000, 0);
    for _ in 0..steps {
        let mut sctp = established();
        let mut bytes = packet(
            [10, 10, 10, 20, 0][rng.below(5) as usize],
            &(0..rng.below(4))
                .map(|_| (rng.below(16) as u8, rng.below(4) as u8, vec![0; rng.below(30) as usize]))
                .collect::<Vec<_>>(),
        );
        for _ in 0..rng.below(3) {
            let at = rng.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << rng.below(8);
        }
        bytes.truncate(if rng.below(4) == 0 { rng.below(bytes.len() as u64 + 1) as usize } else { bytes.len() });
        let _ = Sctp::begin(&bytes);
        let mut full = sctp;
        let update = sctp.update(ORIGINAL, &bytes);
        let expected = Packet::read(&bytes).map_or(Update::Invalid, |packet| full.track(ORIGINAL, &packet));
        assert_eq!((update, sctp), (expected, full));
        valid += u32::from(update == Update::Valid);
    }
    tally::report!("{steps} packets, {valid} valid");
}

/// A packet between two hosts. The cookie has the tags of its receiver and of its sender.
#[derive(Clone, Copy, Debug)]
struct Message {
    tag: u32,
    kind: u8,
    flags: u8,
    initiate: u32,
    cookie: (u32, u32),
}

/// A host as in RFC 9260, without timers.
#[derive(Clone, Copy, Debug)]
struct Host {
    state: State,
    /// The tag of packets to this host.
    own: u32,
    /// The tag of packets to the peer.
    peer: u32,
}

const DOWN: Host = Host { state: State::Closed, own: 0, peer: 0 };

impl Host {
    fn message(&self, kind: u8) -> Message {
        Message { tag: self.peer, kind, flags: 0, initiate: 0, cookie: (0, 0) }
    }

    /// The host's answer to a packet.
    fn receive(&mut self, message: Message, fresh: u32) -> Option<Message> {
        use State::{Closed, CookieEchoed, CookieWait, Established, ShutdownAckSent, ShutdownSent};
        let reflect = |kind| Some(Message { tag: message.tag, flags: 1, kind, initiate: 0, cookie: (0, 0) });
        let is_reflected = message.flags == 1;
        match (message.kind, self.state) {
            (chunk::INIT, ShutdownAckSent) => return Some(self.message(chunk::SHUTDOWN_ACK)),
            (chunk::INIT, state) => {
                let own = if state == CookieWait { self.own } else { fresh };
                let cookie = (own, message.initiate);
                return Some(Message { tag: message.initiate, initiate: own, cookie, ..self.message(chunk::INIT_ACK) });
            }
            (chunk::COOKIE_ECHO, ShutdownAckSent) => return Some(self.message(chunk::SHUTDOWN_ACK)),
            (chunk::COOKIE_ECHO, _) if message.tag == message.cookie.0 => {
                *self = Self { state: Established, own: message.cookie.0, peer: message.cookie.1 };
                return Some(self.message(chunk::COOKIE_ACK));
            }
            (chunk::ABORT | chunk::SHUTDOWN_COMPLETE, state) => {
                let fits = message.tag == if is_reflected { self.peer } else { self.own };
                if fits && (message.kind == chunk::ABORT || state == ShutdownAckSent) {
                    *self = DOWN;
                }
                return None;
            }
            (chunk::SHUTDOWN_ACK, CookieWait | CookieEchoed | Closed) => return reflect(chunk::SHUTDOWN_COMPLETE),
            (chunk::COOKIE_ACK, Closed) => return None,
            (_, Closed) => return reflect(chunk::ABORT),
            _ => {}
        }
        if message.tag != self.own {
            return None;
        }
        match (message.kind, self.state) {
            (chunk::INIT_ACK, CookieWait) => {
                (self.state, self.peer) = (CookieEchoed, message.initiate);
                Some(Message { cookie: message.cookie, ..self.message(chunk::COOKIE_ECHO) })
            }
            (chunk::COOKIE_ACK, CookieEchoed) => {
                self.state = Established;
                None
            }
            (chunk::SHUTDOWN, Established | ShutdownSent | ShutdownAckSent) => {
                self.state = ShutdownAckSent;
                Some(self.message(chunk::SHUTDOWN_ACK))
            }
            (chunk::SHUTDOWN_ACK, ShutdownSent | ShutdownAckSent) => {
                let answer = self.message(chunk::SHUTDOWN_COMPLETE);
                *self = DOWN;
                Some(answer)
            }
            _ => None,
        }
    }

    /// What the host sends by itself: it opens, sends data, shuts down, or aborts.
    fn act(&mut self, choice: u64, fresh: u32) -> Message {
        match (self.state, choice) {
            (State::Closed | State::CookieWait | State::CookieEchoed, _) => {
                if self.state != State::CookieWait {
                    *self = Self { state: State::CookieWait, own: fresh, peer: 0 };
                }
                Message { tag: 0, initiate: self.own, ..self.message(chunk::INIT) }
            }
            (_, 0) => {
                let message = self.message(chunk::ABORT);
                *self = DOWN;
                message
            }
            (State::Established | State::ShutdownSent, 1) => {
                self.state = State::ShutdownSent;
                self.message(chunk::SHUTDOWN)
            }
            (State::ShutdownAckSent, _) => self.message(chunk::SHUTDOWN_ACK),
            _ => self.message(chunk::DATA),
        }
    }
}

/// Two hosts with a tracker between them that drops invalid packets.
struct Network {
    hosts: [Host; 2],
    /// The connection, and the host of its original direction.
    conn: Option<(Sctp, usize)>,
    tag: u32,
}

impl Network {
    fn tracks(&mut self, from: usize, bytes: &[u8]) -> bool {
        if let Some((sctp, first)) = &mut self.conn {
            let update = sctp.update(if from == *first { ORIGINAL } else { REPLY }, bytes);
            if update != Update::Restart {
                return update != Update::Invalid;
            }
        }
        self.conn = Sctp::begin(bytes).map(|sctp| (sctp, from));
        self.conn.is_some()
    }

    /// Sends a packet, and all answers to it, each of which is lost with a probability of `loss` percent.
    fn send(&mut self, from: usize, message: Message, loss: u64, rng: &mut Rng) {
        let (mut from, mut message) = (from, message);
        loop {
            let is_seen = rng.below(100) >= loss;
            let bytes = single(message.tag, message.kind, message.flags, message.initiate);
            if !is_seen || !self.tracks(from, &bytes) || rng.below(100) < loss {
                return;
            }
            self.tag += 1;
            from = 1 - from;
            let Some(answer) = self.hosts[from].receive(message, self.tag) else { return };
            message = answer;
        }
    }
}

/// Hosts that crash, shut down, abort and lose packets never end in a state in which the tracker keeps them apart.
#[test]
fn hosts_always_reach_an_association() {
    let mut rng = Rng::seeded(4960);
    let rounds = 5_000;
    let mut messages = 0u32;
    let mut network = Network { hosts: [DOWN; 2], conn: None, tag: 0 };
    for round in 0..rounds {
        for _ in 0..rng.below(30) {
            let from = rng.below(2) as usize;
            if rng.below(15) == 0 {
                network.hosts[from] = DOWN;
            }
            network.tag += 1;
            let message = network.hosts[from].act(rng.below(8), network.tag);
            network.send(from, message, 25, &mut rng);
            messages += 1;
        }
        let from = rng.below(2) as usize;
        network.hosts[from] = DOWN;
        let is_up = |network: &Network| {
            let [a, b] = &network.hosts;
            [a.state, b.state] == [State::Established; 2] && (a.own, a.peer) == (b.peer, b.own)
        };
        for _ in 0..3 {
            if !is_up(&network) {
                network.tag += 1;
                let message = network.hosts[from].act(9, network.tag);
                network.send(from, message, 0, &mut rng);
            }
        }
        assert!(is_up(&network), "round {round}: {:?} {:?}", network.hosts, network.conn);
        for from in [0, 1] {
            let data = network.hosts[from].message(chunk::DATA);
            assert!(network.tracks(from, &single(data.tag, data.kind, 0, 0)), "round {round}");
        }
    }
    tally::report!("{rounds} rounds, {messages} messages");
}
