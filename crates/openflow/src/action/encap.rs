//! `encap` and `decap`, which add and remove headers and so change the packet's type (ovs-actions(7); NXAST_ENCAP and
//! NXAST_DECAP, from OpenFlow 1.3 on).

use super::Action;
use super::encode::nicira;
use super::parse::{ActionError, error, u8_of, u16_of};
use crate::error::OfpError;
use crate::wire::{Reader, Writer};
use flow::text::{next_key_value, scan_int};
use std::fmt::Write;

const LEN: OfpError = OfpError::BacBadLen;

/// The packet type in `NXAST_DECAP` that leaves the new type to the header.
const NEXT_PROTO: u32 = 0xfffe;
/// The last of OpenFlow's namespaces of packet types (OpenFlow 1.5 section 7.2.3.11).
const NAMESPACE_MAX: u16 = 4;
/// The property class of NSH.
const CLASS_NSH: u16 = 4;
const MD_TYPE: u8 = 1;
const TLV: u8 = 2;

/// A header to push. The values are packet types as on the wire: a namespace of 16 bits and a type of 16 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u32)]
pub enum EncapHeader {
    /// An Ethernet header with zero addresses.
    Ethernet = 0,
    /// A network service header.
    Nsh = 0x1_894f,
    /// An MPLS label.
    Mpls = 0x1_8847,
    /// An MPLS label of the multicast Ethernet type.
    MplsMulticast = 0x1_8848,
}

impl EncapHeader {
    const ALL: [(Self, &str); 4] =
        [(Self::Ethernet, "ethernet"), (Self::Nsh, "nsh"), (Self::Mpls, "mpls"), (Self::MplsMulticast, "mpls_mc")];

    /// The type of a packet that begins with the header: namespace and type.
    pub fn packet_type(self) -> (u16, u16) {
        ((self as u32 >> 16) as u16, self as u32 as u16)
    }
}

/// The contents of a pushed header.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum EncapProperty {
    /// The metadata type of an NSH header: 1, or 2 for metadata of variable length.
    MdType(u8),
    /// A TLV of metadata type 2.
    Tlv {
        /// Class of its type.
        class: u16,
        /// Type.
        ty: u8,
        /// Value, 240 bytes at most.
        value: Vec<u8>,
    },
}

/// The largest value of a TLV in bytes, so that the length of its property fits 8 bits.
const MAX_TLV: usize = 240;

/// Parameters of `encap`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Encap {
    /// The header.
    pub header: EncapHeader,
    /// A header length that the sender states, in bytes. It has no effect and is kept.
    pub header_len: u16,
    /// The header's contents.
    pub properties: Vec<EncapProperty>,
}

/// Reads the body of NXAST_ENCAP.
pub(super) fn decode_encap(mut r: Reader<'_>) -> Result<Action, OfpError> {
    let (header_len, packet_type) = (r.u16()?, r.u32()?);
    let known = EncapHeader::ALL.iter().find(|(header, _)| *header as u32 == packet_type);
    let (header, _) = *known.ok_or(OfpError::NxbacBadHeaderType)?;
    let mut properties = Vec::new();
    while !r.is_empty() {
        properties.push(decode_property(&mut r)?);
    }
    Ok(Action::Encap(Box::new(Encap { header, header_len, properties })))
}

fn decode_property(r: &mut Reader<'_>) -> Result<EncapProperty, OfpError> {
    let mut header = r.clone();
    let (class, ty) = (header.u16()?, header.u8()?);
    let len = usize::from(header.u8()?);
    if len < 4 {
        return Err(LEN);
    }
    // Properties are aligned to 8 bytes.
    let mut whole = r.sub(len.next_multiple_of(8))?;
    whole.skip(4)?;
    match (class, ty) {
        (CLASS_NSH, MD_TYPE) if len > 8 => Err(OfpError::NxbacBadEdProp),
        (CLASS_NSH, MD_TYPE) => Ok(EncapProperty::MdType(whole.u8()?)),
        (CLASS_NSH, TLV) => {
            let (class, ty) = (whole.u16()?, whole.u8()?);
            let n = usize::from(whole.u8()?);
            if (8 + n).next_multiple_of(8) != len {
                return Err(OfpError::NxbacBadEdProp);
            }
            Ok(EncapProperty::Tlv { class, ty, value: whole.bytes(n)?.to_vec() })
        }
        _ => Err(OfpError::NxbacUnknownEdProp),
    }
}

/// Reads the body of NXAST_DECAP.
pub(super) fn decode_decap(mut r: Reader<'_>) -> Result<Action, OfpError> {
    r.skip(2)?;
    let packet_type = r.u32()?;
    if !r.is_empty() {
        return Err(OfpError::NxbacUnknownEdProp);
    }
    Ok(Action::Decap((packet_type != NEXT_PROTO).then_some(packet_type)))
}

pub(super) fn encode_encap(out: &mut Writer, encap: &Encap) {
    nicira(out, 46, |b| {
        b.put_u16(encap.header_len);
        b.put_u32(encap.header as u32);
        for property in &encap.properties {
            b.put_u16(CLASS_NSH);
            match property {
                EncapProperty::MdType(md_type) => {
                    b.put(&[MD_TYPE, 5, *md_type, 0, 0, 0]);
                }
                EncapProperty::Tlv { class, ty, value } => {
                    let padded = value.len().next_multiple_of(8);
                    b.put(&[TLV, (8 + padded) as u8]);
                    b.put_u16(*class);
                    b.put(&[*ty, value.len() as u8]);
                    b.put(value);
                    b.zeros(padded - value.len());
                }
            }
        }
    });
}

pub(super) fn encode_decap(out: &mut Writer, packet_type: Option<u32>) {
    nicira(out, 47, |b| {
        b.zeros(2);
        b.put_u32(packet_type.unwrap_or(NEXT_PROTO));
    });
}

/// Reads `encap(HEADER)` or `encap(HEADER(PROPERTY,...))`.
pub(super) fn parse_encap(text: &str) -> Result<Action, ActionError> {
    let mut rest = text;
    let Some((name, inner)) = next_key_value(&mut rest) else {
        return error(format!("Missing encap hdr: {text}"));
    };
    let mut inner = inner.unwrap_or("");
    let Some((header, _)) = EncapHeader::ALL.iter().find(|(_, known)| *known == name) else {
        return error(format!("Encap hdr not supported: {inner}"));
    };
    let mut properties = Vec::new();
    while let Some((key, value)) = next_key_value(&mut inner) {
        properties.push(parse_property(key, value.unwrap_or(""))?);
    }
    Ok(Action::Encap(Box::new(Encap { header: *header, header_len: 0, properties })))
}

fn parse_property(key: &str, value: &str) -> Result<EncapProperty, ActionError> {
    match (key, value) {
        ("md_type" | "tlv", "") => error("Value missing for encap property"),
        ("md_type", _) => match u8_of(value, "md_type")? {
            md_type @ (1 | 2) => Ok(EncapProperty::MdType(md_type)),
            _ => error("invalid md_type"),
        },
        ("tlv", _) => match parse_tlv(value) {
            Some(tlv) => Ok(tlv),
            None => error(format!("Invalid NSH TLV header: {value}")),
        },
        _ => error(format!("Invalid property: {key}")),
    }
}

/// Reads `0xCLASS,TYPE,0xVALUE`, keeping the low bits of class and type and the leading digit pairs of the value. An empty
/// value is printed as `0`.
fn parse_tlv(text: &str) -> Option<EncapProperty> {
    let (class, rest) = text.split_once(',')?;
    let (ty, value) = rest.split_once(',')?;
    let whole = |text, radix| scan_int(text, radix).and_then(|(n, rest)| rest.is_empty().then_some(n));
    let class = whole(class.strip_prefix("0x")?, 16)? as u16;
    let ty = whole(ty.trim_start(), 10)? as u8;
    if value == "0" {
        return Some(EncapProperty::Tlv { class, ty, value: Vec::new() });
    }
    let digits: Vec<u8> =
        value.strip_prefix("0x")?.chars().map_while(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    let value: Vec<u8> = digits.chunks_exact(2).map(|pair| pair.iter().fold(0, |n, digit| n << 4 | digit)).collect();
    (!digits.is_empty() && value.len() <= MAX_TLV).then_some(EncapProperty::Tlv { class, ty, value })
}

/// Reads `decap`, or `decap(packet_type(ns=NAMESPACE,type=TYPE))`.
pub(super) fn parse_decap(text: &str) -> Result<Action, ActionError> {
    let mut rest = text;
    let mut inner = match next_key_value(&mut rest) {
        None => return Ok(Action::Decap(None)),
        Some(("packet_type", inner)) => inner.unwrap_or(""),
        Some((other, _)) => return error(format!("Invalid decap argument: {other}")),
    };
    let mut attribute = |name: &str| match next_key_value(&mut inner) {
        Some((key, value)) if key == name => u16_of(value.unwrap_or(""), name),
        _ => error(format!("Missing packet_type attribute {name}")),
    };
    let namespace = attribute("ns")?;
    if namespace > NAMESPACE_MAX {
        return error(format!("Unsupported ns value: {namespace}"));
    }
    let packet_type = u32::from(namespace) << 16 | u32::from(attribute("type")?);
    Ok(Action::Decap((packet_type != NEXT_PROTO).then_some(packet_type)))
}

pub(super) fn format_encap(out: &mut String, encap: &Encap) {
    let name = EncapHeader::ALL.iter().find(|(header, _)| *header == encap.header).map_or("", |(_, name)| name);
    let _ = write!(out, "encap({name}");
    for (i, property) in encap.properties.iter().enumerate() {
        out.push(if i == 0 { '(' } else { ',' });
        let _ = match property {
            EncapProperty::MdType(md_type) => write!(out, "md_type={md_type}"),
            EncapProperty::Tlv { class, ty, value } => {
                let digits: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
                match digits.trim_start_matches('0') {
                    "" => write!(out, "tlv(0x{class:04x},{ty},0)"),
                    digits => write!(out, "tlv(0x{class:04x},{ty},0x{digits})"),
                }
            }
        };
    }
    out.push_str(if encap.properties.is_empty() { ")" } else { "))" });
}

pub(super) fn format_decap(out: &mut String, packet_type: Option<u32>) {
    out.push_str("decap(");
    if let Some(packet_type) = packet_type {
        let (namespace, ty) = (packet_type >> 16, packet_type & 0xffff);
        let zero = if ty == 0 { "" } else { "0x" };
        let _ = write!(out, "packet_type(ns={namespace},type={zero}{ty:x})");
    }
    out.push(')');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::bytes_of_hex as bytes;
    use crate::action::check::{Limits, check};
    use crate::{Version, actions_to_string, decode_actions, encode_actions, parse_instructions};
    use flow::text::parse_match;
    use flow::{Match, NoNames};

    #[test]
    fn values_of_options_are_printed_without_leading_zeros() {
        for (value, shown) in [("00195678", "0x195678"), ("0100", "0x100"), ("0000", "0")] {
            let tlv = parse_tlv(&format!("0x1000,10,0x{value}")).expect("well-formed");
            let mut out = String::new();
            format_encap(&mut out, &Encap { header: EncapHeader::Nsh, header_len: 0, properties: vec![tlv] });
            assert_eq!(out, format!("encap(nsh(tlv(0x1000,10,{shown})))"));
        }
    }

    #[test]
    fn bytes_and_text() {
        for (hex, text) in [
            ("ffff 0010 00002320 002e 0000 00000000", "encap(ethernet)"),
            ("ffff 0010 00002320 002e 0000 00018847", "encap(mpls)"),
            ("ffff 0010 00002320 002e 0000 00018848", "encap(mpls_mc)"),
            ("ffff 0018 00002320 002e 0000 0001894f 0004 01 05 01000000", "encap(nsh(md_type=1))"),
            (
                "ffff 0038 00002320 002e 0000 0001894f 0004 01 05 02000000 0004 02 10 1000 0a 03 123456 0000000000
                 0004 02 10 2000 0b 01 81 00000000000000",
                "encap(nsh(md_type=2,tlv(0x1000,10,0x123456),tlv(0x2000,11,0x81)))",
            ),
            ("ffff 0010 00002320 002f 0000 0000fffe", "decap()"),
            ("ffff 0010 00002320 002f 0000 0001894f", "decap(packet_type(ns=1,type=0x894f))"),
            ("ffff 0010 00002320 002f 0000 00000000", "decap(packet_type(ns=0,type=0))"),
            ("ffff 0010 00002320 0030 000000000000", "dec_nsh_ttl"),
            ("0013 0008 8847 0000", "push_mpls:0x8847"),
            ("0014 0008 0800 0000", "pop_mpls:0x0800"),
            ("000f 0008 07000000", "set_mpls_ttl(7)"),
            ("0010 0008 00000000", "dec_mpls_ttl"),
            ("000b 0008 00000000", "copy_ttl_out"),
            ("000c 0008 00000000", "copy_ttl_in"),
        ] {
            for version in [Version::V13, Version::V14, Version::V15] {
                let actions = decode_actions(&bytes(hex), version).expect(text);
                assert_eq!(actions_to_string(&actions, &NoNames, version), text);
                assert_eq!(parse_instructions(text, &NoNames), Ok(actions.clone()));
                let mut out = Writer::new();
                encode_actions(&mut out, &actions, version, &Match::ANY);
                assert_eq!(out, bytes(hex), "{text}");
            }
            assert!(decode_actions(&bytes(hex), Version::V10).is_err(), "{text}");
        }
    }

    #[test]
    fn labels_in_openflow_10_and_11() {
        let text = "push_mpls:0x8848,pop_mpls:0x8847,set_mpls_label(5),set_mpls_tc(3),set_mpls_ttl(7),dec_mpls_ttl";
        let of10 = "ffff0010 00002320 00178848 00000000 ffff0010 00002320 00188847 00000000
            ffff0010 00002320 001e0000 00000005 ffff0010 00002320 001f0300 00000000
            ffff0010 00002320 00190700 00000000 ffff0010 00002320 001a0000 00000000";
        let of11 = "00130008 88480000 00140008 88470000 000d0008 00000005 000e0008 03000000 000f0008 07000000
            00100008 00000000";
        for (version, hex) in [(Version::V10, of10), (Version::V11, of11)] {
            let actions = decode_actions(&bytes(hex), version).expect(text);
            assert_eq!(actions_to_string(&actions, &NoNames, version), text);
            assert_eq!(parse_instructions(text, &NoNames), Ok(actions.clone()));
            let mut out = Writer::new();
            encode_actions(&mut out, &actions, version, &Match::ANY);
            assert_eq!(out, bytes(hex), "{version:?}");
        }
    }

    #[test]
    fn bad_bytes() {
        use OfpError::{BacBadArgument, BacBadLen, NxbacBadEdProp, NxbacBadHeaderType, NxbacUnknownEdProp};
        for (hex, error) in [
            ("ffff 0010 00002320 002e 0000 00010800", NxbacBadHeaderType),
            ("ffff 0018 00002320 002e 0000 0001894f 0004 01 09 01000000", BacBadLen),
            ("ffff 0018 00002320 002e 0000 0001894f 0004 01 03 01000000", BacBadLen),
            ("ffff 0018 00002320 002e 0000 0001894f 0005 01 05 01000000", NxbacUnknownEdProp),
            ("ffff 0018 00002320 002e 0000 0001894f 0004 03 05 01000000", NxbacUnknownEdProp),
            ("ffff 0020 00002320 002e 0000 0001894f 0004 02 0b 1000 0a 03 1234560000000000", NxbacBadEdProp),
            ("ffff 0020 00002320 002e 0000 0001894f 0004 02 10 1000 0a 09 1234560000000000", NxbacBadEdProp),
            ("ffff 0018 00002320 002e 0000 0001894f 0004 02 07 1000 0a 00", NxbacBadEdProp),
            ("ffff 0018 00002320 002e 0000 0001894f 0000000000000000", BacBadLen),
            ("ffff 0018 00002320 002f 0000 0000fffe 0000000000000000", NxbacUnknownEdProp),
            ("0013 0008 0800 0000", BacBadArgument),
        ] {
            assert_eq!(decode_actions(&bytes(hex), Version::V13), Err(error), "{hex}");
        }
    }

    #[test]
    fn bad_text() {
        for (text, message) in [
            ("encap", "Missing encap hdr: "),
            ("encap(foo(3))", "Encap hdr not supported: 3"),
            ("encap(nsh(md_type=3))", "invalid md_type"),
            ("encap(nsh(md_type=1x))", "invalid md_type \"1x\""),
            ("encap(nsh(md_type))", "Value missing for encap property"),
            ("encap(nsh(tlv(1,10,0x12)))", "Invalid NSH TLV header: 1,10,0x12"),
            ("encap(nsh(tlv(0x1,10,0xz)))", "Invalid NSH TLV header: 0x1,10,0xz"),
            ("encap(mpls(ether_type=0x8847))", "Invalid property: ether_type"),
            ("decap(foo)", "Invalid decap argument: foo"),
            ("decap(packet_type(ns=5,type=1))", "Unsupported ns value: 5"),
            ("decap(packet_type(type=5))", "Missing packet_type attribute ns"),
            ("decap(packet_type(ns=1,type=0x12345))", "invalid type \"0x12345\""),
            ("push_mpls", "invalid push_mpls \"\""),
            ("set_mpls_label:", "set_mpls_label: expected label."),
            ("set_mpls_label:1048576", "1048576: not a valid MPLS label"),
            ("set_mpls_tc:8", "8: not a valid MPLS TC"),
            ("set_mpls_tc:x", "invalid MPLS TC \"x\""),
            ("set_mpls_ttl", "set_mpls_ttl: expected ttl."),
        ] {
            assert_eq!(parse_instructions(text, &NoNames).map_err(|e| e.0), Err(message.into()), "{text}");
        }
    }

    #[test]
    fn the_packet_type_follows_the_list() {
        const BAD: Result<(), OfpError> = Err(OfpError::BacMatchInconsistent);
        for (matching, actions, verdict) in [
            ("", "push_mpls:0x8847,dec_mpls_ttl,pop_mpls:0x800,dec_ttl", Ok(())),
            ("ip", "push_mpls:0x8847,dec_ttl", BAD),
            ("tcp", "push_mpls:0x8847,pop_mpls:0x800,set_field:5->tcp_src", BAD),
            ("", "pop_mpls:0x800", BAD),
            ("mpls", "pop_mpls:0x8847,pop_mpls:0x800,pop_mpls:0x8847", BAD),
            ("mpls", "pop_mpls:0x800,copy_ttl_in", BAD),
            ("mpls", "copy_ttl_in,copy_ttl_out", Ok(())),
            ("packet_type=(1,0x800)", "push_mpls:0x8847", BAD),
            ("packet_type=(1,0x800)", "dec_ttl", Ok(())),
            ("packet_type=(1,0x800)", "encap(ethernet),set_field:00:00:00:00:00:01->eth_src", Ok(())),
            ("packet_type=(1,0x800)", "encap(nsh),dec_nsh_ttl", Ok(())),
            ("packet_type=(1,0x800)", "encap(nsh),dec_ttl", BAD),
            ("packet_type=(1,0x800)", "encap(nsh),encap(ethernet),dec_nsh_ttl", Ok(())),
            ("", "encap(nsh),set_field:00:00:00:00:00:01->eth_src", BAD),
            ("", "encap(mpls),set_field:3->mpls_label", Ok(())),
            ("", "encap(mpls),pop_mpls:0x800", BAD),
            ("", "encap(mpls),decap,set_field:3->mpls_label", BAD),
            ("ip", "decap,dec_ttl", Ok(())),
            ("ip", "decap,encap(ethernet),dec_ttl", Ok(())),
            ("ip", "decap,push_mpls:0x8847", BAD),
            ("", "dec_nsh_ttl", BAD),
            ("eth_type=0x894f", "decap,decap", Ok(())),
        ] {
            let m = parse_match(matching, &NoNames).expect("a match");
            let list = parse_instructions(actions, &NoNames).expect("actions");
            assert_eq!(check(&list, &m, &Limits::new(Version::V13, 3)), verdict, "{matching} {actions}");
        }
    }
}
