//! Matches and actions in messages: hides the forms that each version has for them.

use crate::Version;
use crate::action::decode::decode_actions;
use crate::action::encode::encode_actions;
use crate::action::instruction::{decode_flow_actions, decode_flow_actions_into, encode_flow_actions};
use crate::action::{Action, check};
use crate::nxm::{self, Dialect, Unknown};
use crate::of_match;
use crate::wire::{Reader, Result, Writer};
use flow::Match;
use flow::extract::{PacketContext, extract_with};
use flow::text::PortNames;

/// A match in Nicira's form, with the cookie that may be among its entries.
pub(crate) struct NxMatch {
    pub(crate) matching: Match,
    pub(crate) cookie: u64,
    pub(crate) cookie_mask: u64,
}

pub(crate) use crate::of_match::encode_of10 as put_match10;

/// Reads `ofp_match` of OpenFlow 1.0.
pub(crate) fn read_match10(r: &mut Reader<'_>) -> Result<Match> {
    of_match::decode_of10(r)
}

/// Reads `ofp_match` of OpenFlow 1.1 and later, with its padding.
pub(crate) fn read_oxm_match(version: Version, r: &mut Reader<'_>) -> Result<Match> {
    // OpenFlow 1.1 has a form of its own, but Open vSwitch uses the later one in it too.
    if version <= Version::V11 && !r.peek().starts_with(&[0, 1]) {
        return of_match::decode_of11(r);
    }
    nxm::decode_oxm_match(r, Unknown::Refuse)
}

/// Does the same into `matching`, which must be [`Match::ANY`].
pub(crate) fn read_oxm_match_into(version: Version, r: &mut Reader<'_>, matching: &mut Match) -> Result<()> {
    if version <= Version::V11 {
        *matching = read_oxm_match(version, r)?;
        return Ok(());
    }
    nxm::decode_oxm_match_into(r, Unknown::Refuse, matching)
}

pub(crate) fn put_oxm_match(out: &mut Writer, version: Version, m: &Match) {
    if version <= Version::V11 {
        of_match::encode_of11(out, m);
        return;
    }
    put_oxm_entries(out, version, m);
}

/// Appends a match in the later form, in which Open vSwitch describes flows even in OpenFlow 1.1.
pub(crate) fn put_oxm_entries(out: &mut Writer, version: Version, m: &Match) {
    let start = out.len();
    out.put_u16(1);
    out.put_u16(0);
    nxm::encode(out, m, None, Dialect::Oxm(version));
    out.set_len16(start + 2, start);
    out.pad8(start);
}

/// Reads entries of `len` bytes and padding to a multiple of 8.
pub(crate) fn read_nxm(r: &mut Reader<'_>, len: usize) -> Result<NxMatch> {
    let (matching, cookie) = nxm::decode_nx_match(r, len, Unknown::Refuse)?;
    let (cookie, cookie_mask) = cookie.unwrap_or((0, 0));
    Ok(NxMatch { matching, cookie, cookie_mask })
}

/// Does the same into `matching`, which must be [`Match::ANY`]. Returns the cookie and its mask.
pub(crate) fn read_nxm_into(r: &mut Reader<'_>, len: usize, matching: &mut Match) -> Result<(u64, u64)> {
    let cookie = nxm::decode_nx_match_into(r, len, Unknown::Refuse, matching)?;
    Ok(cookie.unwrap_or((0, 0)))
}

/// Reads a packet's metadata as a match, from OpenFlow 1.2 on.
pub(crate) fn read_oxm_metadata(r: &mut Reader<'_>) -> Result<Match> {
    nxm::decode_oxm_match(r, Unknown::Metadata)
}

/// Reads the pipeline fields of a packet-out.
pub(crate) fn read_pipeline_fields(r: &mut Reader<'_>) -> Result<Match> {
    nxm::decode_oxm_match(r, Unknown::Pipeline)
}

/// Reads the metadata in Nicira's form: entries of `len` bytes and padding.
pub(crate) fn read_nxm_metadata(r: &mut Reader<'_>, len: usize) -> Result<Match> {
    nxm::decode_nx_match(r, len, Unknown::Metadata).map(|(matching, _)| matching)
}

/// Writes entries and padding, and their length at `len_at`.
pub(crate) fn put_nxm(out: &mut Writer, len_at: usize, m: &Match, cookie: (u64, u64)) {
    let start = out.len();
    nxm::encode(out, m, Some(cookie), Dialect::Nxm);
    out.set_len16(len_at, start);
    out.pad8(start);
}

/// Reads entries to the end of `bytes`, skipping unknown ones.
pub(crate) fn decode_loose(_version: Version, bytes: &[u8]) -> Result<Match> {
    nxm::decode(bytes, Unknown::Metadata).map(|(m, _)| m)
}

pub(crate) fn encode_loose(version: Version, m: &Match) -> Vec<u8> {
    let mut out = Writer::new();
    nxm::encode(&mut out, m, None, Dialect::of(version));
    out.into_bytes().unwrap_or_default()
}

/// Reads the actions of a packet-out, to the end of `r`.
pub(crate) fn read_actions(version: Version, r: &mut Reader<'_>) -> Result<Vec<Action>> {
    let actions = decode_actions(r.rest(), version)?;
    check::verify_decoded(&actions, check::Allowed::Actions)?;
    Ok(actions)
}

pub(crate) fn put_actions(out: &mut Writer, version: Version, actions: &[Action]) {
    encode_actions(out, actions, version, &Match::ANY);
}

/// Reads a flow's actions, to the end of `r`: actions in OpenFlow 1.0 and Nicira's messages, instructions later.
pub(crate) fn read_flow_actions(version: Version, r: &mut Reader<'_>) -> Result<Vec<Action>> {
    decode_flow_actions(r.rest(), version)
}

/// Does the same into `actions`, which must be empty.
pub(crate) fn read_flow_actions_into(version: Version, r: &mut Reader<'_>, actions: &mut Vec<Action>) -> Result<()> {
    decode_flow_actions_into(r.rest(), version, actions)?;
    check::verify_decoded(actions, check::Allowed::Flow)
}

pub(crate) fn put_flow_actions(out: &mut Writer, version: Version, actions: &[Action], m: &Match) {
    encode_flow_actions(out, actions, version, m);
}

/// A packet's headers. `packet_type`: namespace and type of the outermost header, zero for Ethernet.
pub fn packet_to_string(data: &[u8], packet_type: u32, ports: &dyn PortNames) -> String {
    let mut out = String::new();
    describe_packet(data, packet_type, ports, &mut out);
    out.truncate(out.trim_end().len());
    out
}

/// Appends a packet's headers, on one line. `packet_type`: namespace and type of the outermost header, zero for Ethernet.
pub(crate) fn describe_packet(data: &[u8], packet_type: u32, ports: &dyn PortNames, out: &mut String) {
    if packet_type != 0 && packet_type >> 16 != 1 {
        describe_unknown_packet(data, packet_type, ports, out);
        return;
    }
    let (key, (data, l4)) = if packet_type >> 16 == 1 {
        let l3_type = Some(packet_type as u16);
        (
            extract_with(
                data,
                &PacketContext { in_port: base::PortNo(0), l3_type, ..PacketContext::default() },
                usize::MAX,
            ),
            (data, None),
        )
    } else {
        let (key, layers) = flow::extract::extract(data, base::PortNo(0));
        // The text leaves out bytes beyond the length that the IP header states.
        let data = data.get(..layers.end).unwrap_or(data);
        // Only a first fragment has this header, but as in Open vSwitch a later one is printed as if it had it.
        let later = || Some(layers.l3?).filter(|_| key.eth_type() == 0x0800 && key.ip_proto() != 0);
        let behind_ipv4 = || later().and_then(|at| Some(at + 4 * u16::from(data.get(usize::from(at))? & 0xf)));
        let l4 = layers.l4.or_else(behind_ipv4);
        (key, (data, l4))
    };
    out.push_str(&fields_of(&key, ports));
    checksum(data, &key, l4, out);
    out.push('\n');
}

/// The text of a key without the ingress port, as a packet without metadata has none.
fn fields_of(key: &flow::FlowKey, ports: &dyn PortNames) -> String {
    flow::text::flow_key_to_string(key, ports).replacen(",in_port=0", "", 1).replacen("in_port=0,", "", 1)
}

/// Describes a packet whose type is neither Ethernet nor an Ethernet type. As in Open vSwitch, the fields are those of the
/// Ethernet type with the same number, but no header except MPLS is read.
fn describe_unknown_packet(data: &[u8], packet_type: u32, ports: &dyn PortNames, out: &mut String) {
    let ty = packet_type as u16;
    let data = if matches!(ty, 0x8847 | 0x8848) { data } else { &[] };
    let context = PacketContext { in_port: base::PortNo(0), l3_type: Some(ty), ..PacketContext::default() };
    let key = extract_with(data, &context, usize::MAX);
    let text = fields_of(&key, ports);
    let fields = text.split_once(')').map_or("", |(_, fields)| fields);
    let digits = |n: u32| if n > 9 { format!("{n:#x}") } else { n.to_string() };
    out.push_str(&format!("packet_type=({},{}){fields}\n", digits(packet_type >> 16), digits(packet_type & 0xffff)));
}

/// Appends the transport header's checksum, if the packet has that header in full.
fn checksum(data: &[u8], key: &flow::FlowKey, l4: Option<u16>, out: &mut String) {
    let ip = matches!(key.eth_type(), 0x0800 | 0x86dd);
    let (name, at, header_len) = match key.ip_proto() {
        6 => ("tcp", 16, 20),
        17 => ("udp", 6, 8),
        132 => ("sctp", 8, 12),
        1 => ("icmp", 2, 8),
        58 => ("icmp6", 2, 4),
        _ => return,
    };
    let Some(header) = l4.and_then(|at| data.get(usize::from(at)..)).and_then(|h| h.get(..header_len)) else { return };
    if ip {
        let n = if name == "sctp" { 4 } else { 2 };
        let sum = header[at..at + n].iter().fold(0u32, |v, b| v << 8 | u32::from(*b));
        out.push_str(&format!(" {name}_csum:{sum:x}"));
    }
}
