//! TCP: which segments belong to a connection, by the windows that its peers have announced.
//!
//! The rules are those of van Rooij, "Real Stateful TCP Packet Filtering in IP Filter" (2000), as in pf and in the
//! userspace datapath of Open vSwitch. For each peer, the tracker knows `next`, the end of the highest segment, and `limit`,
//! the highest number that the other one allows. A segment fits if it ends before `limit`, begins at most one window of the
//! receiver before `next`, and acknowledges numbers near the receiver's `next`.
//!
//! [`Tcp::advance`] decides the common case itself: an established connection, and an acknowledgment in the window. All other
//! segments go through [`Tcp::track`], which contains all rules, also those of the common case.

mod segment;
#[cfg(test)]
mod tests;

pub use segment::Segment;
use segment::{ACK, CONTROL, FIN, RST, SYN, Scale};

use base::coverage;

use crate::key::Direction;
use crate::proto::Update;
use crate::timeout::Timeout;

/// How far an acknowledgment may be from the highest known number: the largest window that is not scaled, and a segment.
const MAX_ACK_WINDOW: u32 = 0xffff + 1500;

/// The shift that is assumed if the SYNs are unknown.
const MAX_SHIFT: u8 = 14;

/// The state of a peer. Their order is that of the life of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum State {
    /// It has sent nothing.
    Closed,
    /// It has sent a segment, which was not acknowledged.
    SynSent,
    /// The other peer has acknowledged a segment.
    Established,
    /// It has sent a FIN.
    Closing,
    /// The other peer has acknowledged the FIN.
    FinWait2,
    /// The connection was reset.
    TimeWait,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Closed => "CLOSED",
            Self::SynSent => "SYN_SENT",
            Self::Established => "ESTABLISHED",
            Self::Closing => "CLOSING",
            Self::FinWait2 => "FIN_WAIT_2",
            Self::TimeWait => "TIME_WAIT",
        }
    }
}

/// One of the two hosts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Peer {
    /// The sequence number behind its highest segment.
    next: u32,
    /// The number before which its segments have to end.
    limit: u32,
    /// Its largest window, without scale.
    max_window: u16,
    scale: Scale,
    state: State,
}

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tcp {
    /// By the direction in which they send.
    peers: [Peer; 2],
}

const _: () = assert!(size_of::<Tcp>() <= 40);

/// What the tracker knows of a peer, for display.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerInfo {
    /// Its state, such as `FIN_WAIT_2`.
    pub state: &'static str,
    /// The shift of its windows, from its SYN.
    pub window_scale: Option<u8>,
    /// Whether its SYN was not seen.
    pub is_liberal: bool,
}

/// A segment in the terms of the rules.
#[derive(Clone, Copy)]
struct Range {
    /// Where it begins; for a segment that takes no numbers, the sender's `next`.
    seq: u32,
    /// Where it ends.
    end: u32,
    /// Its acknowledgment; the receiver's `next` if it has none.
    ack: u32,
    /// Its window.
    window: u16,
    /// The shift of the sender's windows.
    sender_shift: u8,
    /// The shift of the receiver's windows.
    receiver_shift: u8,
}

/// Returns true if `a` is `b` or comes behind it, in the arithmetic of sequence numbers (RFC 9293, section 3.4).
#[inline]
fn at_or_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) as i32 >= 0
}

impl Peer {
    /// Records that the peer has sent `range`.
    #[inline]
    fn has_sent(&mut self, range: &Range) {
        self.max_window = self.max_window.max(range.window);
        if at_or_after(range.end, self.next) {
            self.next = range.end;
        }
    }

    /// Raises the limit to what `range`, a segment of the other peer, allows.
    #[inline]
    fn may_send(&mut self, range: &Range) {
        let window = u32::from(range.window) << range.sender_shift;
        if at_or_after(range.ack.wrapping_add(window), self.limit) {
            self.limit = range.ack.wrapping_add(window.max(1));
        }
    }
}

impl Range {
    /// Returns true if the segment is within the windows of both peers.
    #[inline]
    fn fits(&self, sender: &Peer, receiver: &Peer) -> bool {
        let window = u32::from(receiver.max_window) << self.receiver_shift;
        at_or_after(sender.limit, self.end) && at_or_after(self.seq, sender.next.wrapping_sub(window))
    }

    /// Returns true if the segment acknowledges a number near those that the receiver has sent.
    #[inline]
    fn acknowledges_near(&self, receiver: &Peer) -> bool {
        let skew = receiver.next.wrapping_sub(self.ack) as i32;
        skew >= -(MAX_ACK_WINDOW as i32) && skew <= (MAX_ACK_WINDOW << self.sender_shift) as i32
    }

    /// Returns true if the segment is near enough to its sender's numbers for a connection whose other peer is not known
    /// or has finished.
    fn is_near(&self, sender: &Peer) -> bool {
        at_or_after(sender.limit.wrapping_add(MAX_ACK_WINDOW), self.end)
            && at_or_after(self.seq, sender.next.wrapping_sub(MAX_ACK_WINDOW))
    }
}

/// The shifts of windows of segments other than SYNs.
#[inline]
fn shifts(sender: Scale, receiver: Scale) -> (u8, u8) {
    match (sender, receiver) {
        (Scale::Shift(sender), Scale::Shift(receiver)) => (sender, receiver),
        (Scale::Unknown, Scale::Unknown) => (MAX_SHIFT, MAX_SHIFT),
        _ => (0, 0),
    }
}

impl Tcp {
    /// Returns true if a connection may begin with a segment.
    #[inline]
    pub(crate) fn may_begin(segment: &Segment) -> bool {
        segment.is_possible() && !segment.has(SYN | ACK)
    }

    /// The state after the first segment of a connection, or `None` if this one begins none. A connection may be picked up
    /// behind its SYN.
    pub fn begin(segment: &Segment) -> Option<Self> {
        if !Self::may_begin(segment) {
            return None;
        }
        let (scale, other_scale) =
            if segment.has(SYN) { (segment.scale, Scale::Absent) } else { (Scale::Unknown, Scale::Unknown) };
        let sender = Peer {
            next: segment.seq,
            limit: segment.end().wrapping_add(1),
            max_window: unscaled(segment.window.max(1), scale.shift()),
            scale,
            state: State::SynSent,
        };
        let receiver = Peer { next: 0, limit: 1, max_window: 1, scale: other_scale, state: State::Closed };
        Some(Self { peers: [sender, receiver] })
    }

    /// Applies a segment of a direction. Without `checks_sequence`, all numbers are accepted.
    #[inline]
    pub fn update(&mut self, direction: Direction, segment: &Segment, checks_sequence: bool) -> Update {
        if self.advance(direction, segment) {
            return Update::Valid;
        }
        self.track(direction, segment, checks_sequence)
    }

    /// Applies a segment of the common case. Returns false, without a change, for all others.
    #[inline]
    pub(super) fn advance(&mut self, direction: Direction, segment: &Segment) -> bool {
        let (sender, receiver) = split(&mut self.peers, direction);
        if segment.flags & CONTROL == ACK && sender.state == State::Established && receiver.state == State::Established
        {
            let range = plain_range(segment, sender, receiver);
            if range.fits(sender, receiver) && range.acknowledges_near(receiver) {
                sender.has_sent(&range);
                receiver.may_send(&range);
                return true;
            }
        }
        false
    }

    /// All rules.
    #[cold]
    fn track(&mut self, direction: Direction, segment: &Segment, checks_sequence: bool) -> Update {
        if !segment.is_possible() {
            coverage!(conntrack_invalid_tcp_flags);
            return Update::Invalid;
        }
        let (sender, receiver) = split(&mut self.peers, direction);
        if segment.flags & (SYN | ACK) == SYN {
            if sender.state >= State::FinWait2 && receiver.state >= State::FinWait2 {
                return Update::Restart;
            }
            if sender.state <= State::SynSent {
                sender.state = State::SynSent;
                return Update::StillNew;
            }
        }
        let mut range = Range { end: segment.end(), ..plain_range(segment, sender, receiver) };
        if segment.has(SYN) {
            (range.sender_shift, range.receiver_shift) = (0, 0);
        }
        let is_pickup = sender.state < State::SynSent && first_of_reply(segment, &mut range, sender, receiver);
        let is_silent = !segment.has(ACK) || (segment.ack == 0 && segment.has(RST));
        range.ack = if is_silent { receiver.next } else { segment.ack };
        let takes_numbers = range.end != segment.seq;
        (range.seq, range.end) = if takes_numbers { (segment.seq, range.end) } else { (sender.next, sender.next) };

        let resets_exactly = !segment.has(RST) || segment.seq.wrapping_sub(sender.next).wrapping_add(1) <= 2;
        let fits = range.fits(sender, receiver) && (is_pickup || range.acknowledges_near(receiver)) && resets_exactly;
        if !checks_sequence && !fits {
            coverage!(conntrack_tcp_seq_chk_bypass);
        }
        if !checks_sequence || fits {
            sender.has_sent(&range);
            receiver.may_send(&range);
            transition(segment, sender, receiver);
            return Update::Valid;
        }
        let is_lax =
            receiver.state < State::SynSent || receiver.state >= State::FinWait2 || sender.state >= State::FinWait2;
        if is_lax && range.is_near(sender) {
            sender.has_sent(&range);
            receiver.may_send(&range);
            // Its acknowledgment changes no state: the other peer may not exist.
            finish(segment, sender, receiver);
            return Update::Lax;
        }
        coverage!(conntrack_tcp_seq_chk_failed);
        Update::Invalid
    }

    /// Which timeout applies.
    #[inline]
    pub fn timeout(&self) -> Timeout {
        let [a, b] = [self.peers[0].state, self.peers[1].state];
        let (low, high) = (a.min(b), a.max(b));
        if low == State::Established && high == State::Established {
            Timeout::TcpEstablished
        } else if low >= State::FinWait2 {
            Timeout::TcpClose
        } else if low >= State::Closing {
            Timeout::TcpTimeWait
        } else if low == State::Closed {
            Timeout::TcpSynSent
        } else if low < State::Established {
            Timeout::TcpSynRecv
        } else {
            Timeout::TcpFinWait
        }
    }

    /// Returns true if each peer has acknowledged a segment of the other one, and none has reset the connection.
    #[inline]
    pub fn is_acknowledged(&self) -> bool {
        let low = self.peers[0].state.min(self.peers[1].state);
        low >= State::Established && low != State::TimeWait
    }

    /// The name of the connection's state: that of the peer that is ahead, without the difference between the states
    /// after an acknowledged FIN.
    pub fn state_name(&self) -> &'static str {
        match self.peers[0].state.max(self.peers[1].state) {
            State::FinWait2 => State::TimeWait.name(),
            state => state.name(),
        }
    }

    /// What the tracker knows of the peer that sends in a direction.
    pub fn peer(&self, direction: Direction) -> PeerInfo {
        let peer = &self.peers[direction.index()];
        PeerInfo {
            state: peer.state.name(),
            window_scale: if let Scale::Shift(shift) = peer.scale { Some(shift) } else { None },
            is_liberal: peer.scale == Scale::Unknown,
        }
    }
}

/// The sender and the receiver of a direction.
#[inline]
fn split(peers: &mut [Peer; 2], direction: Direction) -> (&mut Peer, &mut Peer) {
    let [original, reply] = peers;
    match direction {
        Direction::Original => (original, reply),
        Direction::Reply => (reply, original),
    }
}

/// The range of a segment with ACK and without SYN and FIN.
#[inline]
fn plain_range(segment: &Segment, sender: &Peer, receiver: &Peer) -> Range {
    let (sender_shift, receiver_shift) = shifts(sender.scale, receiver.scale);
    // A segment without payload takes no numbers, so that its own says little.
    let seq = if segment.len == 0 { sender.next } else { segment.seq };
    let end = seq.wrapping_add(segment.len);
    Range { seq, end, ack: segment.ack, window: segment.window, sender_shift, receiver_shift }
}

/// A window in units of a scale, rounded up.
fn unscaled(window: u16, shift: u8) -> u16 {
    (u32::from(window)).div_ceil(1 << shift) as u16
}

/// Learns the numbers of a peer from its first segment. Returns true if this sets the peer's limit, since the other one has
/// not acknowledged a number as high; nothing is known then to which this peer's acknowledgment could be near.
fn first_of_reply(segment: &Segment, range: &mut Range, sender: &mut Peer, receiver: &mut Peer) -> bool {
    if segment.has(SYN) && matches!(receiver.scale, Scale::Shift(_)) {
        sender.scale = segment.scale;
        if let Scale::Shift(shift) = sender.scale {
            range.sender_shift = shift;
            range.receiver_shift = receiver.scale.shift();
            range.window = unscaled(segment.window, shift);
        } else {
            // This peer does not scale, so the other one must not either.
            let window = u32::from(receiver.max_window) << receiver.scale.shift();
            receiver.max_window = window.min(u32::from(u16::MAX)) as u16;
            receiver.scale = Scale::Absent;
        }
    }
    sender.next = segment.seq;
    sender.state = State::SynSent;
    let window = u32::from(receiver.max_window) << range.receiver_shift;
    let limit = range.end.wrapping_add(window.max(1));
    sender.max_window = sender.max_window.max(range.window);
    let sets_limit = sender.limit == 1 || at_or_after(limit, sender.limit);
    if sets_limit {
        sender.limit = limit;
    }
    sets_limit
}

/// Changes the states of the peers after a segment that fits.
fn transition(segment: &Segment, sender: &mut Peer, receiver: &mut Peer) {
    if segment.has(SYN) {
        sender.state = sender.state.max(State::SynSent);
    }
    if segment.has(FIN) {
        sender.state = sender.state.max(State::Closing);
    }
    if segment.has(ACK) {
        receiver.state = match receiver.state {
            State::SynSent => State::Established,
            State::Closing => State::FinWait2,
            state => state,
        };
    }
    if segment.has(RST) {
        (sender.state, receiver.state) = (State::TimeWait, State::TimeWait);
    }
}

/// Changes the states after a segment near the window, which acknowledges nothing.
fn finish(segment: &Segment, sender: &mut Peer, receiver: &mut Peer) {
    if segment.has(FIN) {
        sender.state = sender.state.max(State::Closing);
    }
    if segment.has(RST) {
        (sender.state, receiver.state) = (State::TimeWait, State::TimeWait);
    }
}
