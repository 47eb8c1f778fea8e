//! FTP messages that announce a data connection: the commands `PORT` (RFC 959 section 4.1.2) and `EPRT` (RFC 2428
//! section 2), and the replies 227 to `PASV` and 229 to `EPSV`.
//!
//! As in Open vSwitch, only the first [`SCAN_MAX`] bytes of a segment count, a message begins with its segment, and a
//! message with the code or name of an announcement but without a complete one is broken. Names are in either case. The
//! text before the first digit of an announcement is free. A number is complete if another byte follows it in the segment.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use crate::key::Direction;

/// How many bytes of a segment are scanned.
pub const SCAN_MAX: usize = 128;

/// Which end opens the data connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// The server connects to the client.
    Active,
    /// The client connects to the server.
    Passive,
}

/// How an announcement writes its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Notation {
    /// The numbers of an IPv4 address, separated by commas (RFC 959).
    Commas,
    /// The usual text of an address (RFC 2428).
    Text,
}

/// An address in an announcement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announced {
    /// The address.
    pub ip: IpAddr,
    /// Its notation.
    pub notation: Notation,
    /// Its bytes in the payload.
    pub span: Range<usize>,
}

/// A data connection that a message announces.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Announcement {
    /// Which end connects.
    pub mode: Mode,
    /// The address that it connects to; `None` for that of the server's end of the control connection.
    pub address: Option<Announced>,
    /// The port that it connects to.
    pub port: u16,
}

/// The result of scanning a segment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Scan {
    /// The segment has nothing to announce.
    Other,
    /// The segment begins with an announcement that is not complete or not valid.
    Broken,
    /// The segment announces a data connection.
    Announcement(Announcement),
}

/// Scans the payload of a segment of a control connection. Commands are only recognised in the original direction, that of
/// the client, and replies only in the other one.
pub fn scan(payload: &[u8], direction: Direction, is_v6: bool) -> Scan {
    let text = &payload[..payload.len().min(SCAN_MAX)];
    let found = match (direction, is_v6) {
        (Direction::Original, false) if has_prefix(text, b"PORT") => port(text),
        (Direction::Original, _) if has_prefix(text, b"EPRT") => eprt(text, is_v6),
        (Direction::Reply, false) if has_prefix(text, b"227") => passive(text),
        (Direction::Reply, false) if has_prefix(text, b"229") => extended_passive(text, b' '),
        // Open vSwitch goes by the words over IPv6, and by the code over IPv4.
        (Direction::Reply, true) => match position_of(text, b"extended passive") {
            Some(at) => extended_passive(&text[at..], b'('),
            None => return Scan::Other,
        },
        _ => return Scan::Other,
    };
    found.map_or(Scan::Broken, Scan::Announcement)
}

/// The text of an address in a notation.
pub fn format(ip: IpAddr, notation: Notation) -> String {
    match notation {
        Notation::Commas => ip.to_string().replace('.', ","),
        Notation::Text => ip.to_string(),
    }
}

fn has_prefix(text: &[u8], prefix: &[u8]) -> bool {
    text.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
}

fn position_of(text: &[u8], words: &[u8]) -> Option<usize> {
    text.windows(words.len()).position(|window| window.eq_ignore_ascii_case(words))
}

/// A position in a text.
#[derive(Clone, Copy)]
struct Cursor<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    /// The first digit behind the first `byte` of a text.
    fn at_digit_behind(text: &'a [u8], byte: u8) -> Option<Self> {
        let from = text.iter().position(|b| *b == byte)?;
        let digits = text[from..].iter().position(u8::is_ascii_digit)?;
        Some(Self { text, at: from + digits })
    }

    /// Skips a number that is complete and at most `max`; returns it and the count of its digits.
    fn number(&mut self, max: u32) -> Option<(u32, usize)> {
        let rest = self.text.get(self.at..)?;
        let n = rest.iter().position(|b| !b.is_ascii_digit())?;
        let value =
            rest[..n].iter().fold(0u32, |value, b| value.saturating_mul(10).saturating_add(u32::from(b - b'0')));
        self.at += n;
        (n > 0 && value <= max).then_some((value, n))
    }

    /// Skips `byte`.
    fn byte(&mut self, byte: u8) -> Option<()> {
        let is_there = self.text.get(self.at) == Some(&byte);
        self.at += 1;
        is_there.then_some(())
    }

    /// Skips `h1,h2,h3,h4,p1,p2`. As in the text of addresses elsewhere, a number of the address has no leading zeros.
    fn host_port(&mut self) -> Option<(Announced, u16)> {
        let start = self.at;
        let mut octets = [0; 4];
        for octet in &mut octets {
            let (value, n_digits) = self.number(255)?;
            if n_digits > 1 && (value < 10 || n_digits > 2 && value < 100) {
                return None;
            }
            *octet = value as u8;
            self.byte(b',')?;
        }
        let span = start..self.at - 1;
        let (high, _) = self.number(255)?;
        self.byte(b',')?;
        let (low, _) = self.number(255)?;
        let ip = Ipv4Addr::from(octets).into();
        Some((Announced { ip, notation: Notation::Commas, span }, (high << 8 | low) as u16))
    }

    /// Skips the port of RFC 2428.
    fn port(&mut self) -> Option<u16> {
        Some(self.number(u32::from(u16::MAX))?.0 as u16)
    }
}

/// `PORT h1,h2,h3,h4,p1,p2`.
fn port(text: &[u8]) -> Option<Announcement> {
    let (address, port) = Cursor::at_digit_behind(text, b' ')?.host_port()?;
    Some(Announcement { mode: Mode::Active, address: Some(address), port })
}

/// `227 Entering Passive Mode (h1,h2,h3,h4,p1,p2).`
fn passive(text: &[u8]) -> Option<Announcement> {
    Some(Announcement { mode: Mode::Passive, ..port(text)? })
}

/// `EPRT |family|address|port|`, with any delimiter.
fn eprt(text: &[u8], is_v6: bool) -> Option<Announcement> {
    let at = text.iter().position(u8::is_ascii_digit)?;
    let mut cursor = Cursor { text, at };
    let family = if is_v6 { 2 } else { 1 };
    if cursor.number(2)?.0 != family {
        return None;
    }
    let delimiter = *text.get(cursor.at)?;
    cursor.at += 1;
    if !is_v6 {
        cursor.at += text[cursor.at..].iter().take_while(|b| **b == b' ').count();
    }
    let start = cursor.at;
    let end = start + text[start..].iter().position(|b| *b == delimiter)?;
    let address = std::str::from_utf8(&text[start..end]).ok()?;
    let ip = if is_v6 {
        address.parse::<Ipv6Addr>().ok()?.into()
    } else {
        // Open vSwitch writes commas here when it translates an address.
        address.replace(',', ".").parse::<Ipv4Addr>().ok()?.into()
    };
    cursor.at = end + 1;
    let port = cursor.port()?;
    let address = Announced { ip, notation: Notation::Text, span: start..end };
    Some(Announcement { mode: Mode::Active, address: Some(address), port })
}

/// `229 Entering Extended Passive Mode (|||port|)`, with any delimiter, behind the first parenthesis or else behind the first
/// `behind`.
fn extended_passive(text: &[u8], behind: u8) -> Option<Announcement> {
    let from = if text.contains(&b'(') { b'(' } else { behind };
    let mut cursor = Cursor::at_digit_behind(text, from)?;
    // The fields for the family and the address are empty (RFC 2428 section 3).
    let [a, b, c] = *text[..cursor.at].last_chunk()?;
    if a != b || b != c || a == b'(' {
        return None;
    }
    Some(Announcement { mode: Mode::Passive, address: None, port: cursor.port()? })
}
