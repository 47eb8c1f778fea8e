//! FTP control connections without translation: which data connections they announce (RFC 959, RFC 2428).

use super::model::Conn;
use super::packets::Flow;

#[derive(Clone, Debug)]
pub(crate) struct Expected {
    /// With a source port of 0 for any.
    pub flow: Flow,
    pub active: bool,
    pub mark: u32,
    pub label: u128,
    pub parent: u64,
    pub parent_flow: Flow,
    pub parent_dnat: bool,
}

/// An announcement is incomplete, or of another host.
pub(crate) struct Broken;

pub(crate) fn payload(tcp: &[u8]) -> &str {
    let text = &tcp[usize::from(tcp[12] >> 4) * 4..];
    std::str::from_utf8(text).unwrap_or("")
}

/// The data connection that a line announces. Lines are those of [`super::scenario`].
pub(crate) fn expected(conn: &Conn, reply: bool, text: &str) -> Result<Option<Expected>, Broken> {
    let [original, back] = conn.flows;
    let (active, port) = match (original.v6, reply) {
        (false, false) if text.starts_with("PORT") => (true, numbers(text, original.src)?),
        (false, true) if text.starts_with("227") => (false, numbers(text, back.src)?),
        (true, false) if text.starts_with("EPRT") => (true, extended(text, original.src)?),
        (true, true) if text.contains("Extended Passive") => {
            let port = text.split('|').nth(3).and_then(|port| port.parse().ok());
            (false, port.ok_or(Broken)?)
        }
        _ => return Ok(None),
    };
    let there = if active { back } else { original };
    let expected = Expected {
        flow: Flow { a: 0, b: port, ..there },
        active,
        mark: conn.mark,
        label: conn.label,
        parent: conn.id,
        parent_flow: original,
        parent_dnat: conn.dnat,
    };
    Ok((port != 0).then_some(expected))
}

/// The port of `h1,h2,h3,h4,p1,p2`.
fn numbers(text: &str, address: u128) -> Result<u16, Broken> {
    let list = text.split([' ', '(', ')', '\r']).find(|word| word.contains(',')).ok_or(Broken)?;
    let numbers: Vec<u8> = list.split(',').map(|n| n.parse().map_err(|_| Broken)).collect::<Result<_, _>>()?;
    let [h1, h2, h3, h4, p1, p2] = numbers[..] else { return Err(Broken) };
    let is_own = u128::from(u32::from_be_bytes([h1, h2, h3, h4])) == address;
    if is_own { Ok(u16::from_be_bytes([p1, p2])) } else { Err(Broken) }
}

/// The port of `|2|address|port|`.
fn extended(text: &str, address: u128) -> Result<u16, Broken> {
    let fields: Vec<&str> = text.split('|').collect();
    let ip: std::net::Ipv6Addr = fields.get(2).and_then(|ip| ip.parse().ok()).ok_or(Broken)?;
    let port = fields.get(3).and_then(|port| port.parse().ok()).ok_or(Broken)?;
    if u128::from(ip) == address { Ok(port) } else { Err(Broken) }
}
