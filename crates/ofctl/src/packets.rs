//! Packets without a switch: composed from text, described, and read from capture files with the OpenFlow messages in
//! them.

use crate::codec::hex_lines;
use crate::error::{Result, fatal, strerror};
use crate::options::Context;
use crate::packet_out::hex;
use crate::switch::Out;
use base::PortNo;
use flow::text::{NoNames, flow_key_to_string};
use flow::{Field, FlowKey};
use openflow::print::{Style, print};
use openflow::stream::Framer;
use std::collections::HashMap;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};

/// Default TCP ports of OpenFlow connections.
const PORTS: [u16; 2] = [6633, 6653];

/// Composes a packet from a flow.
pub fn compose_packet(c: &Context, a: &[String]) -> Result {
    let key = flow::text::parse_exact(&a[0], &NoNames).map_err(|e| fatal(format!("{}: {e}", a[0])))?;
    let payload = match a.get(1) {
        None => flow::compose::PAYLOAD.to_vec(),
        Some(text) => hex(text).ok_or_else(|| fatal(format!("{text}: trailing garbage in packet data")))?,
    };
    let frame = flow::compose(&key, if flow::compose::carries_payload(&key) { &payload } else { &[] });
    let (extracted, _) = flow::extract(&frame, PortNo::NONE);
    let mut out = Out::default();
    if extracted != key {
        let whole = |key: &FlowKey| flow_key_to_string(key, &NoNames);
        out.put(&format!(
            "specified and extracted flows differ:\nspecified: {}\nextracted: {}\n",
            whole(&key),
            whole(&extracted)
        ));
    }
    if c.digits_only {
        let digits: String = frame.iter().map(|byte| format!("{byte:02x}")).collect();
        out.put(&digits);
    } else {
        out.put(&hex_lines(&frame));
    }
    Ok(())
}

const TCP: u8 = 6;
const SYN: u8 = 2;

/// Describes a packet from standard input.
pub fn parse_packet(_: &Context, _: &[String]) -> Result {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).map_err(|e| fatal(format!("read failed ({})", strerror(&e))))?;
    let (key, _) = flow::extract(&bytes, PortNo::NONE);
    let text = flow_key_to_string(&key, &NoNames);
    // It came from nowhere.
    Out::default().put(&format!("{}\n", text.replacen("in_port=ANY,", "", 1)));
    Ok(())
}

/// Reads a capture file.
fn read_pcap(name: &str) -> Result<Vec<u8>> {
    std::fs::read(name).map_err(|e| {
        tracing::warn!(target: "pcap", "{name}: failed to open pcap file for reading ({})", strerror(&e));
        fatal(format!("{name}: open failed ({})", strerror(&e)))
    })
}

/// The length of the header of a capture file.
const HEADER_BYTES: usize = 24;

/// The packets of a capture file in either byte order.
fn packets(bytes: &[u8]) -> Result<Vec<&[u8]>> {
    if bytes.len() < HEADER_BYTES {
        tracing::warn!(target: "pcap", "failed to read pcap header: End of file");
        return Err(fatal("open failed (End of file)"));
    }
    let word = |bytes: &[u8], at: usize| bytes.get(at..at + 4).and_then(|b| b.try_into().ok());
    let magic = word(bytes, 0).map_or(0, u32::from_le_bytes);
    let number: fn([u8; 4]) -> u32 = match magic {
        0xa1b2_c3d4 | 0xa1b2_3c4d => u32::from_le_bytes,
        0xd4c3_b2a1 | 0x4d3c_b2a1 => u32::from_be_bytes,
        _ => {
            tracing::warn!(target: "pcap",
                "bad magic 0x{magic:08x} reading pcap file (expected 0xa1b2c3d4, 0xa1b23c4d, 0xd4c3b2a1, or 0x4d3cb2a1)");
            return Err(fatal("open failed (Protocol error)"));
        }
    };
    let mut rest = bytes.get(HEADER_BYTES..).unwrap_or_default();
    let mut packets = Vec::new();
    while let Some(length) = word(rest, 8).map(|length| number(length) as usize) {
        let Some((packet, after)) = rest.get(16..).and_then(|rest| rest.split_at_checked(length)) else { break };
        packets.push(packet);
        rest = after;
    }
    Ok(packets)
}

fn named(name: &str, e: crate::error::Exit) -> crate::error::Exit {
    match e {
        crate::error::Exit::Fatal(message) => fatal(format!("{name}: {message}")),
        code => code,
    }
}

/// Prints the keys of the packets of capture files.
pub fn parse_pcap(_: &Context, a: &[String]) -> Result {
    let mut out = Out::default();
    for name in a {
        let bytes = read_pcap(name)?;
        for packet in packets(&bytes).map_err(|e| named(name, e))? {
            let (key, _) = flow::extract(packet, PortNo::NONE);
            out.put(&format!("{}\n", flow_key_to_string(&key, &NoNames)));
        }
    }
    Ok(())
}

/// Prints the OpenFlow messages in the TCP connections of a capture file.
pub fn ofp_parse_pcap(c: &Context, a: &[String]) -> Result {
    let name = &a[0];
    // As `atoi` reads them, and as many bits as a port has.
    let mut ports: Vec<u16> = a[1..].iter().map(|port| cli::leading_integer(port, 10) as u16).collect();
    if ports.is_empty() {
        ports.extend(PORTS);
    }
    let bytes = read_pcap(name)?;
    let mut out = Out::default();
    let mut is_first = true;
    let mut streams: HashMap<(SocketAddr, SocketAddr), TcpStream> = HashMap::new();
    for packet in packets(&bytes).map_err(|e| named(name, e))? {
        let Some(segment) = Segment::of(packet) else { continue };
        if !ports.contains(&segment.src.port()) && !ports.contains(&segment.dst.port()) {
            continue;
        }
        let stream = streams.entry((segment.src, segment.dst)).or_default();
        stream.take(&segment);
        loop {
            match stream.framer.next_message() {
                Ok(Some(message)) => {
                    let address = |a: SocketAddr| format!("{}.{}", a.ip(), a.port());
                    let between = if std::mem::take(&mut is_first) { "" } else { "\n" };
                    out.put(&format!("{between}{} > {}:\n", address(segment.src), address(segment.dst)));
                    out.put(&print(message, Style::plain(c.verbosity.saturating_add(1))));
                }
                Ok(None) => break,
                // Lost synchronisation: the next message cannot be found.
                Err(_) => {
                    stream.framer = Framer::default();
                    break;
                }
            }
        }
    }
    Ok(())
}

/// A TCP segment.
struct Segment<'a> {
    src: SocketAddr,
    dst: SocketAddr,
    /// Sequence number of the first byte.
    number: u32,
    is_syn: bool,
    payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// The TCP segment in a frame, if there is one.
    fn of(frame: &'a [u8]) -> Option<Self> {
        let (key, layers) = flow::extract(frame, PortNo::NONE);
        if key.ip_proto() != TCP || key.get(Field::IpFrag) != 0 {
            return None;
        }
        let port = |field| key.get(field) as u16;
        let address = |v4: Field, v6: Field| match key.eth_type() {
            0x0800 => Some(IpAddr::V4((key.get(v4) as u32).into())),
            0x86dd => Some(IpAddr::V6(key.get(v6).into())),
            _ => None,
        };
        let start = usize::from(layers.l4?);
        let header = frame.get(start..)?;
        let word: [u8; 4] = header.get(4..8)?.try_into().ok()?;
        let (offset, flags) = (usize::from(header.get(12)? >> 4) * 4, *header.get(13)?);
        // The frame may be longer than the packet.
        let payload = frame.get(start + offset..layers.end.min(frame.len()))?;
        Some(Self {
            src: SocketAddr::new(address(Field::Ipv4Src, Field::Ipv6Src)?, port(Field::TcpSrc)),
            dst: SocketAddr::new(address(Field::Ipv4Dst, Field::Ipv6Dst)?, port(Field::TcpDst)),
            number: u32::from_be_bytes(word),
            is_syn: flags & SYN != 0,
            payload,
        })
    }
}

/// Reassembles one direction of a TCP connection. Early segments are kept, and repeated ones are skipped.
#[derive(Default)]
struct TcpStream {
    /// Sequence number of the next byte, once known.
    next: Option<u32>,
    early: Vec<(u32, Vec<u8>)>,
    framer: Framer,
}

/// Maximum number of early segments; if it is exceeded, the missing segment is given up.
const EARLY_MAX: usize = 64;

impl TcpStream {
    fn take(&mut self, segment: &Segment<'_>) {
        if segment.is_syn {
            *self = Self { next: Some(segment.number.wrapping_add(1)), ..Self::default() };
        }
        if segment.payload.is_empty() {
            return;
        }
        self.next.get_or_insert(segment.number);
        self.early.push((segment.number, segment.payload.to_vec()));
        if self.early.len() > EARLY_MAX {
            self.framer = Framer::default();
            self.next = self.early.iter().map(|(number, _)| *number).min();
        }
        while let Some(next) = self.next {
            // Distance of a segment behind the next byte; less than half of the number space.
            let behind = |number: u32| next.wrapping_sub(number);
            let fits = |(number, _): &(u32, Vec<u8>)| behind(*number) < 1 << 31;
            let Some(at) = self.early.iter().position(fits) else { break };
            let (number, bytes) = self.early.swap_remove(at);
            let fresh = bytes.get(behind(number) as usize..).unwrap_or_default();
            self.framer.push(fresh);
            self.next = Some(next.wrapping_add(fresh.len() as u32));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_in_any_order() {
        let end = "127.0.0.1:6653".parse().expect("an address");
        let hello = [1u8, 0, 0, 8, 0, 0, 0, 7];
        let segment = |number, payload, is_syn| Segment { src: end, dst: end, number, is_syn, payload };
        let mut stream = TcpStream::default();
        stream.take(&segment(u32::MAX - 2, &[], true));
        stream.take(&segment(2, &hello[4..], false));
        assert_eq!(stream.framer.next_message(), Ok(None));
        stream.take(&segment(u32::MAX - 1, &hello[..4], false));
        assert_eq!(stream.framer.next_message(), Ok(Some(&hello[..])));
        stream.take(&segment(2, &hello[4..], false));
        assert_eq!(stream.framer.next_message(), Ok(None));
        assert_eq!(stream.framer.pending(), 0);
    }
}
