//! The control commands of dummy devices: `netdev-dummy/receive`, `netdev-dummy/set-admin-state` and
//! `netdev-dummy/conn-state`.
//!
//! Each takes the arguments after the command's name and returns the reply or an error text; the texts are Open
//! vSwitch's. The command table checks the number of arguments (see [`Registry::COMMANDS`]).

use std::fmt::Write;
use std::iter::Peekable;

use packet::{Batch, Packet};

use super::{Dummy, ETH_HEADER_LEN, Registry};
use crate::device::Netdev;

/// Composes a frame from the text of a flow, as `in_port(1),eth(...),...`. The number is the length of the frame, if it is given.
pub type ComposeFlow<'a> = &'a dyn Fn(&str, Option<usize>) -> Result<Packet, String>;

/// The shortest frame that may be asked for: that of Ethernet without its checksum (IEEE 802.3 section 4A.4.2).
const LEN_MIN: usize = 60;

impl Registry {
    /// The commands: name, usage, minimum and maximum number of arguments.
    pub const COMMANDS: [(&'static str, &'static str, usize, usize); 3] = [
        ("netdev-dummy/receive", "name [--qid queue_id] packet|flow [--len packet_len]", 2, usize::MAX),
        ("netdev-dummy/set-admin-state", "[netdev] up|down", 1, 2),
        ("netdev-dummy/conn-state", "[netdev]", 0, 1),
    ];

    /// `netdev-dummy/receive NAME [--qid N] (PACKET | FLOW [--len N])...`: puts frames, given as hexadecimal digits
    /// or as a flow, into the device's receive queue.
    pub fn command_receive(&self, args: &[String], compose: ComposeFlow<'_>) -> Result<String, String> {
        let mut args = args.iter().map(String::as_str).peekable();
        let name = args.next().unwrap_or_default();
        let device = self.find(name).ok_or("no such dummy netdev")?;
        let mut queue = 0;
        if args.peek() == Some(&"--qid") && args.len() > 1 {
            args.next();
            queue = match leading_number(args.next().unwrap_or_default()) {
                n if (0..device.n_rxq() as i64).contains(&n) => n as usize,
                _ => return Err("bad rx queue id.".to_owned()),
            };
        }
        // Frames before a mistake are received all the same.
        let mut packets = Batch::new();
        let result = packets_of(&mut args, compose, &mut packets);
        device.receive_all(packets, queue);
        result.map(|()| String::new())
    }

    /// `netdev-dummy/set-admin-state [NAME] up|down`: sets one device's administrative state, or all devices'.
    pub fn command_set_admin_state(&self, args: &[String]) -> Result<String, String> {
        let up = match args.last().map(|s| s.to_ascii_lowercase()).as_deref() {
            Some("up") => true,
            Some("down") => false,
            _ => return Err("Invalid Admin State".to_owned()),
        };
        let devices = match args {
            [name, _] => vec![self.find(name).ok_or("Unknown Dummy Interface")?],
            _ => self.devices(),
        };
        for device in devices {
            device.set_up(up).map_err(|e| e.to_string())?;
        }
        Ok("OK".to_owned())
    }

    /// `netdev-dummy/conn-state [NAME]`: prints a line for each device with an outgoing connection, or for one device.
    pub fn command_conn_state(&self, args: &[String]) -> Result<String, String> {
        let word = |device: &Dummy| match device.connected() {
            Some(true) => Some("connected"),
            Some(false) => Some("disconnected"),
            None => None,
        };
        let mut reply = String::new();
        if let Some(name) = args.first() {
            let state = self.find(name).and_then(|device| word(&device)).unwrap_or("unknown");
            let _ = writeln!(reply, "{name}: {state}");
        } else {
            for device in self.devices() {
                if let Some(state) = word(&device) {
                    let _ = writeln!(reply, "{}: {state}", device.name());
                }
            }
        }
        Ok(reply)
    }
}

/// Appends the frames of the arguments PACKET, or FLOW and `--len`, to `packets`, up to the first mistake.
fn packets_of<'a>(
    args: &mut Peekable<impl Iterator<Item = &'a str>>,
    compose: ComposeFlow<'_>,
    packets: &mut Batch,
) -> Result<(), String> {
    while let Some(text) = args.next() {
        if let Some(frame) = frame_from_hex(text) {
            packets.push(Packet::from_slice(&frame));
            continue;
        }
        let mut len = None;
        if args.peek() == Some(&"--len") {
            args.next();
            len = match leading_number(args.next().unwrap_or_default()) {
                n if n >= LEN_MIN as i64 => Some(n as usize),
                _ => return Err("too small packet len".to_owned()),
            };
        }
        packets.push(compose(text, len)?);
    }
    Ok(())
}

/// The bytes of pairs of hexadecimal digits, ignoring spaces and full stops between them; `None` if `text` is anything
/// else or too short for an Ethernet header.
fn frame_from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().filter(|c| !matches!(c, ' ' | '.')).map(|c| c.to_digit(16).map(|d| d as u8)).collect();
    let digits = digits?;
    let (pairs, rest) = digits.as_chunks::<2>();
    (rest.is_empty() && pairs.len() >= ETH_HEADER_LEN)
        .then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// The number at the front of `text`, or 0 if there is none, like atoi(3).
fn leading_number(text: &str) -> i64 {
    let text = text.trim_start();
    let end = text.char_indices().find(|(i, c)| !(c.is_ascii_digit() || (*i == 0 && *c == '-'))).map(|(i, _)| i);
    let digits = &text[..end.unwrap_or(text.len())];
    // A number that does not fit is -1 in C.
    digits.parse().unwrap_or(if matches!(digits, "" | "-") { 0 } else { -1 })
}
