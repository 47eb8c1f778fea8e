//! What a tracker does with the packets of a connection that has a helper.
//!
//! The order for a packet of such a connection:
//!
//! 1. [`unshift`], if the connection has shifts: the state machine sees acknowledgements as the sender of the acknowledged
//!    bytes counts, and never sees shifted sequence numbers;
//! 2. the state machine; a packet that it rejects takes no further step;
//! 3. [`assist`], which creates expectations and, if the action translates addresses, changes the payload and shifts its
//!    sequence number; `nat::rewrite::translate` comes before or after it.
//!
//! `assist` is also for the packet that commits the connection. It may change the length of a packet: of its
//! [`Parsed`], `l3` and `l4` remain valid, and `end` does not.

use base::Millis;
use packet::Packet;
use packet::wire::Tcp;

use crate::action::Helper;
use crate::alg::expect::{Expectation, Expectations};
use crate::alg::ftp::{self, Mode, Scan};
use crate::alg::rewrite::{payload, replace, shift_ack, shift_seq};
use crate::alg::sequence::{Shift, Shifts};
use crate::alg::tftp;
use crate::conn::{Conn, Parent, Related};
use crate::key::{Direction, Key, ip_of, ipproto, number_of};
use crate::parse::Parsed;
use crate::table::Handle;

/// The result of [`assist`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Assisted {
    /// The state of the packet is as before.
    Valid,
    /// The packet has a broken announcement, one of another address than the sender's, or a part of a text that was
    /// translated as a whole: it also gets the state [`INV`](crate::state::INV).
    Invalid,
}

/// The tracker and the action that a packet is for.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Where expected connections go.
    pub expectations: &'a Expectations,
    /// Whether the action translates addresses (`nat`). Without, nothing in the packet changes.
    pub translates: bool,
    /// The time.
    pub now: Millis,
}

/// The parts of a connection that helpers use.
#[derive(Debug)]
pub struct Assistant<'a> {
    /// [`Conn::helper`].
    pub helper: Helper,
    /// [`Conn::keys()`].
    pub keys: [Key; 2],
    /// Whether its destination is translated.
    pub has_dnat: bool,
    /// [`Conn::mark`].
    pub mark: u32,
    /// [`Conn::label`].
    pub label: u128,
    /// [`Conn::related`].
    pub related: &'a mut Option<Box<Related>>,
    /// The name of the connection.
    pub handle: Handle,
}

/// Shifts the acknowledgements in a packet back, before the state machine sees it. To be called for packets of connections
/// whose `shifts` is set, if the action translates addresses.
#[cold]
pub fn unshift(packet: &mut Packet, parsed: &Parsed, shifts: &Shifts, direction: Direction) {
    if parsed.embedded.is_none() {
        shift_ack(packet, parsed, shifts.of(direction.reversed()));
    }
}

/// Assists a packet that the state machine of its connection accepted; see the module. A packet of a connection without a
/// helper takes one branch.
#[inline]
pub fn assist(
    packet: &mut Packet,
    parsed: &Parsed,
    conn: &mut Conn,
    handle: Handle,
    direction: Direction,
    context: &Context<'_>,
) -> Assisted {
    let Some(helper) = conn.helper else { return Assisted::Valid };
    let (keys, has_dnat, mark, label) = (conn.keys(), conn.translated.dst(), conn.mark, conn.label.into());
    let mut assistant = Assistant { helper, keys, has_dnat, mark, label, related: &mut conn.related, handle };
    assistant.assist(packet, parsed, direction, context)
}

impl Assistant<'_> {
    /// See [`assist()`].
    #[cold]
    pub fn assist(
        &mut self,
        packet: &mut Packet,
        parsed: &Parsed,
        direction: Direction,
        context: &Context<'_>,
    ) -> Assisted {
        if parsed.embedded.is_some() {
            return Assisted::Valid;
        }
        match (self.helper, parsed.key.proto) {
            (Helper::Ftp, ipproto::TCP) => self.ftp(packet, parsed, direction, context),
            (Helper::Tftp, ipproto::UDP) => {
                self.tftp(packet, parsed, direction, context);
                Assisted::Valid
            }
            _ => Assisted::Valid,
        }
    }

    /// Expects the answer to a request, from any port of the server to the port of the client.
    fn tftp(&self, packet: &Packet, parsed: &Parsed, direction: Direction, context: &Context<'_>) {
        const UDP_HEADER: usize = 8;
        let payload = packet.data().get(parsed.l4 + UDP_HEADER..parsed.end).unwrap_or_default();
        if direction == Direction::Original && tftp::is_request(payload) {
            let [original, reply] = &self.keys;
            let expectation = self.expect(Mode::Active, [original.src_port, reply.dst_port], context.now);
            context.expectations.add(expectation);
        }
    }

    fn ftp(&mut self, packet: &mut Packet, parsed: &Parsed, direction: Direction, context: &Context<'_>) -> Assisted {
        let Some(span) = payload(packet, parsed) else { return Assisted::Valid };
        let seq = Tcp::new_checked(&packet.data()[parsed.l4..]).map_or(0, |tcp| tcp.seq());
        let mut assisted = Assisted::Valid;
        if !span.is_empty() {
            assisted = match ftp::scan(&packet.data()[span.clone()], direction, parsed.key.is_v6) {
                Scan::Other => Assisted::Valid,
                Scan::Broken => Assisted::Invalid,
                Scan::Announcement(announcement) => self.announced(&announcement, direction, seq, context),
            };
        }
        if context.translates
            && let Some(shifts) = self.related.as_mut().and_then(|related| related.shifts.as_mut())
        {
            let shift = shifts.of_mut(direction);
            if !change(packet, parsed, shift, seq, span.len()) {
                assisted = Assisted::Invalid;
            }
            shift_seq(packet, parsed, shift);
        }
        assisted
    }

    /// Checks an announcement, expects its connection, and has its address translated.
    #[cold]
    fn announced(
        &mut self,
        announcement: &ftp::Announcement,
        direction: Direction,
        seq: u32,
        context: &Context<'_>,
    ) -> Assisted {
        // The addresses of the announcing end: its own, and the one that the other end sees.
        let [original, reply] = &self.keys;
        let [own, seen] = match announcement.mode {
            Mode::Active => [original.src, reply.dst],
            Mode::Passive => [reply.src, original.dst],
        };
        if let Some(address) = &announcement.address
            && ![own, seen].contains(&number_of(address.ip))
        {
            return Assisted::Invalid;
        }
        if announcement.port != 0 {
            context.expectations.add(self.expect(announcement.mode, [announcement.port; 2], context.now));
        }
        if let Some(address) = &announcement.address
            && context.translates
            && number_of(address.ip) != seen
        {
            let text = ftp::format(ip_of(seen, original.is_v6), address.notation);
            let shift = self.related.get_or_insert_default().shifts.get_or_insert_default().of_mut(direction);
            // If it cannot change any more, the other end gets an address that it may not reach.
            let _ = shift.admit(seq.wrapping_add(address.span.end as u32), address.span.len(), &text);
        }
        Assisted::Valid
    }

    /// The expectation of a connection to a port of the announcing end: its own, and the one that the other end sees.
    fn expect(&self, mode: Mode, [own_port, seen_port]: [u16; 2], now: Millis) -> Expectation {
        let [original, reply] = &self.keys;
        // A connection that the client opens is translated like the control connection, and one that the server opens like
        // replies on it.
        let (there, back) = match mode {
            Mode::Active => (reply, original),
            Mode::Passive => (original, reply),
        };
        Expectation {
            key: Key { src_port: 0, dst_port: seen_port, ..*there },
            reply: Key { src_port: own_port, dst_port: 0, ..*back },
            mode,
            parent_has_dnat: self.has_dnat,
            parent: Parent { handle: self.handle, key: *original },
            mark: self.mark,
            label: self.label,
            added: now,
        }
    }
}

/// Changes the texts in a segment. Returns false if one is only partly there, or the segment becomes too long.
fn change(packet: &mut Packet, parsed: &Parsed, shift: &Shift, seq: u32, len: usize) -> bool {
    let Ok(edits) = shift.edits(seq, len) else { return false };
    let mut parsed = *parsed;
    for (span, text) in edits {
        let grown = text.len() as isize - span.len() as isize;
        if !replace(packet, &parsed, span, text.as_bytes()) {
            return false;
        }
        parsed.end = parsed.end.wrapping_add_signed(grown);
    }
    true
}
