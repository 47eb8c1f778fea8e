//! SCTP: the state of an association, and the verification tags by which its packets are recognised (RFC 9260).
//!
//! Packets of each direction carry the tag that their receiver has chosen in its INIT or INIT ACK (section 8.5). A connection
//! may be picked up later: then the tracker learns the tag of a direction from its first packet. While an association exists,
//! INIT and INIT ACK may announce the tags of its successor (section 5.2), which a COOKIE ECHO with such a tag puts into
//! effect. Timeouts are those of protocols without states, since CT_Timeout_Policy has none for SCTP.

mod chunk;
#[cfg(test)]
mod tests;

use chunk::{Chunk, Packet};

use crate::key::Direction;
use crate::proto::Update;
use crate::proto::datagram::Datagram;
use crate::timeout::Timeout;

/// The state of an association.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// It was aborted, or has been shut down.
    Closed,
    /// A peer has sent INIT.
    CookieWait,
    /// A peer has sent COOKIE ECHO.
    CookieEchoed,
    /// Established.
    Established,
    /// The peer of the original direction has sent SHUTDOWN.
    ShutdownSent,
    /// The peer of the reply direction has sent SHUTDOWN.
    ShutdownReceived,
    /// A peer has acknowledged a SHUTDOWN.
    ShutdownAckSent,
    /// Only HEARTBEATs were seen: this is another path of an association (section 8.3).
    HeartbeatSent,
}

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sctp {
    /// The tags of packets by direction, 0 for unknown.
    tags: [u32; 2],
    /// The tags of the association that may follow, 0 for unknown.
    next_tags: [u32; 2],
    state: State,
    /// Which directions have sent packets.
    seen: Datagram,
}

const _: () = assert!(size_of::<Sctp>() <= 40);

/// The packet does not belong to the association.
struct Misfit;

impl Sctp {
    /// The state after the first packet of a connection, or `None` if this one begins none: chunks that only answer others,
    /// which a host without the association discards (section 8.4), and packets without a tag that are no INIT.
    pub fn begin(l4: &[u8]) -> Option<Self> {
        let packet = Packet::read(l4)?;
        let first = packet.chunks().next()?.ok()?;
        let state = match first.kind {
            chunk::INIT => State::CookieWait,
            chunk::COOKIE_ECHO => State::CookieEchoed,
            chunk::SHUTDOWN => State::ShutdownSent,
            chunk::SHUTDOWN_ACK => State::ShutdownAckSent,
            chunk::HEARTBEAT => State::HeartbeatSent,
            chunk::INIT_ACK | chunk::COOKIE_ACK | chunk::ABORT | chunk::SHUTDOWN_COMPLETE => return None,
            _ => State::Established,
        };
        if (packet.tag == 0) != (first.kind == chunk::INIT) {
            return None;
        }
        let mut sctp = Self { tags: [packet.tag, 0], next_tags: [0; 2], state, seen: Datagram::begin() };
        sctp.apply_all(Direction::Original, &packet).ok()?;
        Some(sctp)
    }

    /// Applies a packet of a direction.
    #[inline]
    pub fn update(&mut self, direction: Direction, l4: &[u8]) -> Update {
        let Some(packet) = Packet::read(l4) else { return Update::Invalid };
        let is_frequent =
            self.state == State::Established && packet.tag == self.tags[direction.index()] && packet.tag != 0;
        if is_frequent && packet.begins_with_data() {
            return self.seen.update(direction);
        }
        self.track(direction, &packet)
    }

    /// All rules.
    fn track(&mut self, direction: Direction, packet: &Packet<'_>) -> Update {
        if self.state == State::Closed && begins_with_init(packet) {
            return Update::Restart;
        }
        let mut next = *self;
        if next.apply_all(direction, packet).is_err() {
            return Update::Invalid;
        }
        *self = next;
        self.seen.update(direction)
    }

    /// Which timeout applies.
    #[inline]
    pub fn timeout(&self) -> Timeout {
        self.seen.timeout()
    }

    fn apply_all(&mut self, direction: Direction, packet: &Packet<'_>) -> Result<(), Misfit> {
        for chunk in packet.chunks() {
            let chunk = chunk.map_err(|_| Misfit)?;
            self.verify(direction, packet.tag, &chunk)?;
            self.apply(direction, packet.tag, &chunk);
        }
        Ok(())
    }

    /// Checks the tag of a packet with this chunk (section 8.5.1), and learns an unknown one.
    fn verify(&mut self, direction: Direction, tag: u32, chunk: &Chunk) -> Result<(), Misfit> {
        let (own, opposite) = (direction.index(), direction.reversed().index());
        if chunk.kind == chunk::INIT {
            return if tag == 0 { Ok(()) } else { Err(Misfit) };
        }
        if tag == 0 {
            return Err(Misfit);
        }
        let is_next = tag == self.next_tags[own];
        let fits = match chunk.kind {
            _ if tag == self.tags[own] && !chunk.is_reflected => true,
            chunk::INIT_ACK | chunk::COOKIE_ECHO => is_next,
            // They may end an older association while the next one begins (section 8.5.1, rule E).
            chunk::SHUTDOWN_ACK if self.is_beginning() => true,
            chunk::SHUTDOWN_COMPLETE if chunk.is_reflected && self.is_beginning() => true,
            chunk::ABORT | chunk::SHUTDOWN_COMPLETE if chunk.is_reflected => {
                [0, tag].contains(&self.tags[opposite]) || tag == self.next_tags[opposite]
            }
            chunk::ABORT => is_next || self.may_learn(own),
            _ => {
                let learns = self.may_learn(own);
                if learns {
                    self.tags[own] = tag;
                }
                learns
            }
        };
        if fits { Ok(()) } else { Err(Misfit) }
    }

    fn is_beginning(&self) -> bool {
        matches!(self.state, State::CookieWait | State::CookieEchoed)
    }

    /// Returns true if the tag of a direction is unknown since its INIT or INIT ACK was not seen. A peer that still waits
    /// for its INIT ACK knows no tag.
    fn may_learn(&self, own: usize) -> bool {
        self.tags[own] == 0 && self.state != State::CookieWait
    }

    /// Changes the state after a chunk with a verified tag.
    fn apply(&mut self, direction: Direction, tag: u32, chunk: &Chunk) {
        let (own, opposite) = (direction.index(), direction.reversed().index());
        let state = self.state;
        self.state = match (chunk.kind, state) {
            (chunk::INIT, State::CookieWait) => {
                self.tags[opposite] = chunk.initiate_tag;
                state
            }
            (chunk::INIT, _) => {
                self.next_tags[own] = 0;
                self.next_tags[opposite] = chunk.initiate_tag;
                state
            }
            (chunk::INIT_ACK, State::CookieWait) => {
                self.tags[opposite] = chunk.initiate_tag;
                state
            }
            (chunk::INIT_ACK, _) => {
                if tag == self.next_tags[own] {
                    self.next_tags[opposite] = chunk.initiate_tag;
                }
                state
            }
            (chunk::COOKIE_ECHO, _) if tag != self.tags[own] => {
                self.tags = std::mem::take(&mut self.next_tags);
                State::CookieEchoed
            }
            (chunk::COOKIE_ECHO, State::CookieWait) => State::CookieEchoed,
            (chunk::COOKIE_ACK, State::CookieEchoed) => State::Established,
            (chunk::ABORT, _) => State::Closed,
            (chunk::SHUTDOWN, State::Established) if direction == Direction::Original => State::ShutdownSent,
            (chunk::SHUTDOWN, State::Established) => State::ShutdownReceived,
            (chunk::SHUTDOWN_ACK, State::ShutdownSent | State::ShutdownReceived) => State::ShutdownAckSent,
            (chunk::SHUTDOWN_COMPLETE, State::ShutdownAckSent) => State::Closed,
            (chunk::HEARTBEAT, _) => state,
            (_, State::HeartbeatSent) if direction == Direction::Reply => State::Established,
            _ => state,
        };
    }
}

fn begins_with_init(packet: &Packet<'_>) -> bool {
    packet.tag == 0 && matches!(packet.chunks().next(), Some(Ok(Chunk { kind: chunk::INIT, .. })))
}
