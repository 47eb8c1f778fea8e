//! A tracker that is a list of connections, searched from one end to the other.

use std::collections::BTreeMap;
use std::fmt::{self, Display, Formatter};

use conntrack::proto::{Protocol, Update};
use conntrack::{Action, Commit, Direction, Nat, NatKind, state};
use packet::metadata::Tuple;

use super::helper::{self, Expected};
use super::packets::{Flow, Read, SCTP, TCP, UDP, addresses, read, rewrite};
use super::tcp::Tcp;

const TRANSLATED: u32 = state::SNAT | state::DNAT;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Valid,
    /// Valid, but the connection lives no longer for it.
    Lax,
    StillNew,
    Invalid,
    Restart,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum States {
    Tcp(Tcp),
    /// Whether packets of the reply direction came.
    Query(bool),
    /// The number of packets, and whether packets of the reply direction came.
    Other(u64, bool),
    /// The state machine of SCTP is compared with a table elsewhere.
    Sctp(Protocol),
}

impl States {
    fn begin(flow: &Flow, l4: &[u8]) -> Option<Self> {
        match flow.proto {
            _ if flow.icmp() && matches!((flow.v6, l4[0]), (false, 8 | 13 | 15) | (true, 128)) => {
                Some(Self::Query(false))
            }
            _ if flow.icmp() => None,
            TCP => Tcp::begin(l4).map(Self::Tcp),
            SCTP => Protocol::begin(SCTP, false, l4).map(Self::Sctp),
            _ => Some(Self::Other(1, false)),
        }
    }

    fn update(&mut self, reply: bool, l4: &[u8], checks: bool) -> Verdict {
        let until = |answered: bool| if answered { Verdict::Valid } else { Verdict::StillNew };
        match self {
            Self::Tcp(tcp) => tcp.update(reply, l4, checks),
            Self::Query(answered) => {
                *answered |= reply;
                until(*answered)
            }
            Self::Other(count, answered) => {
                *count += 1;
                *answered |= reply;
                until(*answered)
            }
            Self::Sctp(sctp) => {
                let direction = if reply { Direction::Reply } else { Direction::Original };
                match sctp.update(direction, l4, checks) {
                    Update::Valid => Verdict::Valid,
                    Update::Lax => Verdict::Lax,
                    Update::StillNew => Verdict::StillNew,
                    Update::Invalid => Verdict::Invalid,
                    Update::Restart => Verdict::Restart,
                }
            }
        }
    }

    /// Whether both hosts certainly exist, if a packet of each has come.
    fn has_two_ends(&self) -> bool {
        if let Self::Tcp(tcp) = self { tcp.has_two_ends() } else { true }
    }

    /// Seconds until it ends. The policy `short` replaces some of them.
    fn seconds(&self, short: bool) -> u64 {
        let (seconds, shorter) = match self {
            Self::Tcp(tcp) => (tcp.seconds(), tcp.seconds()),
            Self::Query(false) => (60, super::SHORT[0].1),
            Self::Query(true) => (30, 30),
            Self::Other(1, false) => (60, super::SHORT[1].1),
            Self::Other(_, false) => (60, super::SHORT[2].1),
            Self::Other(_, true) => (30, super::SHORT[3].1),
            Self::Sctp(sctp) => {
                let timeout = sctp.timeout();
                let seconds = u64::from(timeout.default_seconds());
                let replaced = super::SHORT.iter().find(|(name, _)| *name == timeout.name());
                (seconds, replaced.map_or(seconds, |(_, seconds)| *seconds))
            }
        };
        if short { shorter } else { seconds }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Conn {
    pub id: u64,
    pub flows: [Flow; 2],
    pub states: States,
    pub expires: u64,
    pub assured: bool,
    pub mark: u32,
    pub label: u128,
    pub snat: bool,
    pub dnat: bool,
    pub ftp: bool,
    short: bool,
    pub parent: Option<Flow>,
    /// Whether it counts for the limit of its zone.
    pub counted: bool,
}

impl Conn {
    fn has(&self, flow: &Flow) -> bool {
        self.flows.contains(flow)
    }

    /// Packets of a direction after translation.
    fn leaves(&self, reply: bool) -> Flow {
        self.flows[usize::from(!reply)].back()
    }
}

/// What a packet carries from one action to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carried {
    pub state: u32,
    pub zone: u16,
    pub mark: u32,
    pub label: u128,
    pub original: Option<Tuple>,
    conn: Option<u64>,
    pub current: bool,
    reply: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Twin {
    pub bytes: Vec<u8>,
    pub partial: bool,
    pub carried: Carried,
}

impl Display for Twin {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:02x?} {:?}", self.partial, &self.bytes[..self.bytes.len().min(100)], self.carried)
    }
}

/// What only the tracker decides: which connection leaves a full table.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    /// Connections that are no longer there, by their original direction.
    pub vanished: Vec<Flow>,
    /// Whether the packet has a connection afterwards.
    pub committed: bool,
}

/// How often rare cases came.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub evicted: u64,
    pub not_evicted: u64,
    pub exhausted: u64,
    pub taken: u64,
    pub over_limit: u64,
    pub restarted: u64,
    pub forced: u64,
    pub children: u64,
    pub translated: u64,
    pub again: u64,
    pub flipped: u64,
    pub by_original: u64,
    pub errors: u64,
    /// Addresses that a translation has left as an earlier one had made them.
    pub left_alone: u64,
}

impl Counts {
    pub(crate) fn fields(&mut self) -> [&mut u64; 14] {
        let Self { evicted, not_evicted, exhausted, taken, over_limit, restarted, forced, .. } = self;
        let Self { children, translated, again, flipped, by_original, errors, left_alone, .. } = self;
        [
            evicted,
            not_evicted,
            exhausted,
            taken,
            over_limit,
            restarted,
            forced,
            children,
            translated,
            again,
            flipped,
            by_original,
            errors,
            left_alone,
        ]
    }
}

#[derive(Debug)]
pub(crate) struct Model {
    pub conns: Vec<Conn>,
    pub expected: Vec<Expected>,
    pub limits: BTreeMap<u16, u32>,
    pub max: usize,
    pub checks: bool,
    pub counts: Counts,
    last: u64,
}

impl Model {
    pub(crate) fn new() -> Self {
        Self {
            conns: Vec::new(),
            expected: Vec::new(),
            limits: BTreeMap::new(),
            max: 3_000_000,
            checks: true,
            counts: Counts::default(),
            last: 0,
        }
    }

    pub(crate) fn remove(&mut self, id: u64) {
        self.conns.retain(|conn| conn.id != id);
        self.expected.retain(|expected| expected.parent != id);
    }

    pub(crate) fn counted(&self, zone: u16) -> usize {
        self.conns.iter().filter(|conn| conn.counted && conn.flows[0].zone == zone).count()
    }

    fn find(&self, flow: &Flow, now: u64) -> Option<(usize, bool)> {
        let at = self.conns.iter().position(|conn| conn.expires > now && conn.has(flow))?;
        Some((at, self.conns[at].flows[0] != *flow))
    }

    /// Executes an action on a packet that is no fragment.
    pub(crate) fn act(&mut self, packet: &mut Twin, action: &Action, now: u64, seen: &Seen) {
        let force = action.commit == Some(Commit::Force);
        let known = packet.carried.conn.filter(|_| packet.carried.current && !force && action.helper.is_none());
        let known =
            known.and_then(|id| self.conns.iter().position(|conn| conn.id == id && conn.flows[0].zone == action.zone));
        if let Some(at) = known {
            self.counts.again += 1;
            if action.nat.is_some() {
                if let Some(read) = read(&packet.bytes, packet.partial, action.zone) {
                    let (reply, is_natted) = (packet.carried.reply, packet.carried.state & TRANSLATED != 0);
                    if !is_natted {
                        packet.carried.state |= self.translate(at, packet, &read, reply);
                    }
                }
                packet.carried.current = false;
            }
            return self.mark(at, packet, action);
        }
        let Some(read) = read(&packet.bytes, packet.partial, action.zone) else {
            packet.carried = Carried { state: state::TRK | state::INV, zone: action.zone, ..Carried::default() };
            return;
        };
        let same_zone = packet.carried.zone == action.zone;
        let before = if same_zone { packet.carried.state & !state::TRK } else { 0 };
        let found = if before & TRANSLATED != 0 {
            self.find_translated(packet, action, &read, now)
        } else {
            self.find(&read.flow, now)
        };
        // A packet that had no connection is committed before a look-up: that may have removed its connection, which has begun
        // since, as one of those that are too many.
        let is_absent = packet.carried.state & !state::REL == state::TRK | state::NEW && packet.carried.conn.is_none();
        let is_untried = action.commit.is_none() || action.nat.is_some() || !same_zone || !is_absent;
        let found = found.filter(|(at, _)| {
            let conn = &self.conns[*at];
            let is_kept = conn.assured || !seen.vanished.contains(&conn.flows[0]);
            is_untried || read.inner.is_some() || self.conns.len() <= self.max || is_kept
        });
        let is_error = read.inner.is_some();
        self.counts.errors += u64::from(is_error);
        let mut read = read;
        if let Some((at, reply)) = found {
            if force && reply {
                self.counts.forced += 1;
            } else if let Some(state) = self.update(at, reply, is_error, packet, &read, before, now) {
                return self.conclude(at, reply, is_error, packet, action, &read, state);
            } else {
                self.counts.restarted += 1;
            }
            // A packet that an action has translated begins a connection as it was before.
            if self.conns[at].leaves(reply) == read.flow {
                read.flow = self.conns[at].flows[usize::from(reply)];
            }
            // It counts until a sweep, or until another connection takes its place.
            self.conns[at].expires = now;
            let id = self.conns[at].id;
            self.expected.retain(|expected| expected.parent != id);
        }
        if is_error {
            return Self::alone(packet, action, &read.flow, state::INV, None);
        }
        self.begin(packet, action, &read, now, seen);
    }

    fn find_translated(&mut self, packet: &Twin, action: &Action, read: &Read, now: u64) -> Option<(usize, bool)> {
        if let Some((at, reply)) = self.find(&read.flow.back(), now) {
            self.counts.flipped += 1;
            return Some((at, !reply));
        }
        let original = packet.carried.original.filter(|_| action.nat.is_none())?;
        let number = |n: [u64; 2]| u128::from(n[0]) << 64 | u128::from(n[1]);
        let (src, dst) = (number(original.src), number(original.dst));
        let mut flow = Flow { src, dst, a: original.src_port, b: original.dst_port, ..read.flow };
        if (original.proto, original.is_v6) != (flow.proto, flow.v6) {
            return None;
        }
        if flow.icmp() {
            (flow.a, flow.b) = (read.flow.a, original.src_port << 8 | original.dst_port);
        }
        let found = self.find(&flow, now);
        self.counts.by_original += u64::from(found.is_some());
        found
    }

    #[expect(clippy::too_many_arguments, reason = "a test")]
    fn update(
        &mut self,
        at: usize,
        reply: bool,
        is_error: bool,
        packet: &Twin,
        read: &Read,
        mut state: u32,
        now: u64,
    ) -> Option<u32> {
        let conn = &mut self.conns[at];
        let rpl = if reply { state::RPL } else { 0 };
        if is_error {
            return Some(state | state::REL | rpl);
        }
        if conn.parent.is_some() {
            state |= state::REL;
        }
        let verdict = conn.states.update(reply, &packet.bytes[read.l4..read.end], self.checks);
        match verdict {
            Verdict::Valid | Verdict::Lax => state = (state | state::EST | rpl) & !state::NEW,
            Verdict::StillNew => state |= state::NEW,
            Verdict::Invalid => return Some(state::INV),
            Verdict::Restart => return None,
        }
        if verdict == Verdict::Lax {
            return Some(state);
        }
        conn.expires = now + conn.states.seconds(conn.short) * 1000;
        conn.assured |= verdict == Verdict::Valid && conn.states.has_two_ends();
        Some(state)
    }

    #[expect(clippy::too_many_arguments, reason = "a test")]
    fn conclude(
        &mut self,
        at: usize,
        reply: bool,
        error: bool,
        packet: &mut Twin,
        action: &Action,
        read: &Read,
        mut state: u32,
    ) {
        let before = packet.bytes.clone();
        if action.nat.is_some() && state & TRANSLATED == 0 {
            state |= self.translate(at, packet, read, reply);
        }
        let conn = &self.conns[at];
        packet.carried = Carried {
            state: state | state::TRK,
            zone: action.zone,
            mark: conn.mark,
            label: conn.label,
            original: Some(conn.parent.unwrap_or(conn.flows[0]).shown()),
            conn: Some(conn.id),
            current: action.nat.is_none(),
            reply,
        };
        self.mark(at, packet, action);
        let conn = &self.conns[at];
        if conn.ftp && state & state::INV == 0 && !error {
            let text = helper::payload(&before[read.l4..read.end]);
            match helper::expected(conn, reply, text) {
                Ok(expected) => {
                    let is_known = |new: &Expected| self.expected.iter().any(|old| old.flow == new.flow);
                    let new = expected.filter(|new| !is_known(new));
                    self.expected.extend(new);
                }
                Err(helper::Broken) => packet.carried.state |= state::INV,
            }
        }
    }

    fn mark(&mut self, at: usize, packet: &mut Twin, action: &Action) {
        let conn = &mut self.conns[at];
        if conn.parent.is_some() {
            return;
        }
        if let Some((value, mask)) = action.mark {
            packet.carried.mark = packet.carried.mark & !mask | value;
            conn.mark = packet.carried.mark;
        }
        if let Some((value, mask)) = action.label {
            packet.carried.label = packet.carried.label & !mask | value;
            conn.label = packet.carried.label;
        }
    }

    fn translate(&mut self, at: usize, packet: &mut Twin, read: &Read, reply: bool) -> u32 {
        let conn = &self.conns[at];
        if !conn.snat && !conn.dnat {
            return 0;
        }
        self.counts.translated += 1;
        let (src, dst) = if reply { (conn.dnat, conn.snat) } else { (conn.snat, conn.dnat) };
        let mut to = conn.leaves(reply);
        if read.inner.is_none() {
            let (is_src, is_dst) = addresses(&packet.bytes, read.l3);
            self.counts.left_alone += u64::from(!src && to.src != is_src || !dst && to.dst != is_dst);
            to.src = if src { to.src } else { is_src };
            to.dst = if dst { to.dst } else { is_dst };
        }
        rewrite(&mut packet.bytes, read, &to, packet.partial);
        if src && dst {
            TRANSLATED
        } else if src {
            state::SNAT
        } else {
            state::DNAT
        }
    }

    /// A packet without a connection in the list.
    fn alone(packet: &mut Twin, action: &Action, flow: &Flow, state: u32, expected: Option<&Expected>) {
        packet.carried = Carried {
            state: state | state::TRK,
            zone: action.zone,
            mark: expected.map_or(0, |expected| expected.mark),
            label: expected.map_or(0, |expected| expected.label),
            original: Some(expected.map_or(flow, |expected| &expected.parent_flow).shown()),
            ..Carried::default()
        };
    }

    fn begin(&mut self, packet: &mut Twin, action: &Action, read: &Read, now: u64, seen: &Seen) {
        let expected = self.expected.iter().find(|expected| expected.flow == Flow { a: 0, ..read.flow }).cloned();
        let l4 = &packet.bytes[read.l4..read.end];
        let Some(states) = States::begin(&read.flow, l4) else {
            return Self::alone(packet, action, &read.flow, state::INV, expected.as_ref());
        };
        let state = state::NEW | if expected.is_some() { state::REL } else { 0 };
        let is_committed =
            action.commit.is_some() && self.commit(&read.flow, states, action, expected.as_ref(), now, seen).is_some();
        if is_committed {
            let at = self.conns.len() - 1;
            self.conclude(at, false, false, packet, action, read, state);
        } else {
            Self::alone(packet, action, &read.flow, state, expected.as_ref());
        }
    }

    /// Adds a connection at the end of the list.
    fn commit(
        &mut self,
        flow: &Flow,
        states: States,
        action: &Action,
        expected: Option<&Expected>,
        now: u64,
        seen: &Seen,
    ) -> Option<()> {
        let limit = self.limits.get(&flow.zone).copied();
        if limit.is_some_and(|limit| limit != 0 && self.counted(flow.zone) >= limit as usize) {
            self.counts.over_limit += 1;
            return None;
        }
        let (back, snat, dnat) = self.choose(flow, action, expected, now)?;
        if self.conns.len() >= self.max {
            self.make_room(&[*flow, back], now, seen)?;
            // After the maximum was lowered, a new connection takes the place of one, and some more are removed.
            while self.conns.len() >= self.max && self.make_room(&[*flow, back], now, seen).is_some() {}
            if self.conns.len() >= self.max && !seen.committed {
                return None;
            }
        }
        let is_taken = self.find(flow, now).or_else(|| self.find(&back, now)).is_some();
        // Before the tracker sees one that has not expired, it may remove one that has.
        let is_removed = |conn: &&Conn| !is_taken || conn.expires <= now && seen.vanished.contains(&conn.flows[0]);
        let in_the_way = self.conns.iter().filter(|conn| conn.has(flow) || conn.has(&back));
        let expired: Vec<u64> = in_the_way.filter(is_removed).map(|conn| conn.id).collect();
        expired.into_iter().for_each(|id| self.remove(id));
        if is_taken {
            self.counts.taken += 1;
            return None;
        }
        self.last += 1;
        self.counts.children += u64::from(expected.is_some());
        let short = action.timeout.is_some();
        self.conns.push(Conn {
            id: self.last,
            flows: [*flow, back],
            states,
            expires: now + states.seconds(short) * 1000,
            assured: false,
            mark: expected.map_or(0, |expected| expected.mark),
            label: expected.map_or(0, |expected| expected.label),
            snat,
            dnat,
            ftp: action.helper.is_some() && flow.proto == TCP,
            short,
            parent: expected.map(|expected| expected.parent_flow),
            counted: limit.is_some(),
        });
        Some(())
    }

    /// Removes what an attempt to commit a packet has removed, also if it turned out that the connection is known: one that has
    /// expired and was in its way, and one of those that are too many since the maximum was lowered.
    pub(crate) fn shrink(&mut self, now: u64, seen: &Seen) {
        let is_gone = |conn: &&Conn| seen.vanished.contains(&conn.flows[0]);
        let expired: Vec<u64> =
            self.conns.iter().filter(is_gone).filter(|conn| conn.expires <= now).map(|conn| conn.id).collect();
        expired.into_iter().for_each(|id| self.remove(id));
        while self.conns.len() > self.max {
            let Some(id) = self.conns.iter().filter(|conn| !conn.assured).find(is_gone).map(|conn| conn.id) else {
                break;
            };
            self.counts.evicted += 1;
            self.remove(id);
        }
    }

    /// Removes the connection that the tracker has evicted for one with these keys. Expired ones in its way end anyway.
    fn make_room(&mut self, flows: &[Flow; 2], now: u64, seen: &Seen) -> Option<()> {
        let evictable = self.conns.iter().filter(|conn| !conn.assured || conn.expires <= now);
        let vanished = evictable.clone().filter(|conn| seen.vanished.contains(&conn.flows[0]));
        let is_in_the_way = |conn: &&Conn| flows.iter().any(|flow| conn.has(flow));
        let evicted = vanished.clone().find(|conn| !is_in_the_way(conn)).or_else(|| vanished.clone().next());
        let evicted = evicted.or_else(|| evictable.clone().find(|conn| seen.committed && conn.flows[0] == flows[0]));
        let Some(id) = evicted.map(|conn| conn.id) else {
            self.counts.not_evicted += 1;
            return None;
        };
        self.counts.evicted += 1;
        self.remove(id);
        Some(())
    }

    /// The key of the reply direction, and which addresses are translated.
    fn choose(
        &mut self,
        flow: &Flow,
        action: &Action,
        expected: Option<&Expected>,
        now: u64,
    ) -> Option<(Flow, bool, bool)> {
        let plain = flow.back();
        let Some(nat) = &action.nat else { return Some((plain, false, false)) };
        if let Some(expected) = expected {
            let snat = expected.active == expected.parent_dnat;
            return Some((plain, snat, !snat));
        }
        let Some(kind) = nat.kind else { return Some((plain, false, false)) };
        let free = candidates(nat, kind, flow).into_iter().find(|back| self.find(back, now).is_none());
        self.counts.exhausted += u64::from(free.is_none());
        free.map(|back| (back, kind == NatKind::Src, kind == NatKind::Dst))
    }
}

/// The translations of a range of one address and at most one port, in the order in which they are tried.
fn candidates(nat: &Nat, kind: NatKind, flow: &Flow) -> Vec<Flow> {
    let mut leaves = *flow;
    if let Some((address, _, v6)) = nat.addresses
        && v6 == flow.v6
    {
        let address = u128::from(address[0]) << 64 | u128::from(address[1]);
        *(if kind == NatKind::Src { &mut leaves.src } else { &mut leaves.dst }) = address;
    }
    if !matches!(flow.proto, TCP | UDP | SCTP) && !flow.icmp() {
        return vec![leaves.back()];
    }
    let mut list = Vec::new();
    if let Some((port, _)) = nat.ports {
        if kind == NatKind::Src || flow.icmp() {
            leaves.a = port;
        } else {
            leaves.b = port;
        }
        list.push(leaves.back());
        if kind == NatKind::Src {
            return list;
        }
    }
    let (low, high) = match flow.a {
        0..512 => (1, 511),
        512..1024 => (600, 1023),
        _ => (1024, 65535),
    };
    leaves.a = flow.a;
    for _ in 0..128 {
        list.push(leaves.back());
        leaves.a = if leaves.a >= high || leaves.a < low { low } else { leaves.a + 1 };
    }
    list
}
