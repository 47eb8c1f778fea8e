//! Test commands that parse matches in the text of NXM or OXM entries, as `NXM_OF_ETH_TYPE(0800),
//! NXM_OF_IP_SRC(0a000001)`, from standard input, and print them after a round trip through bytes and a match; and a
//! similar command for VLAN matches.

use crate::codec::{hex_lines, read_stdin};
use crate::error::{Result, fatal};
use crate::options::Context;
use crate::switch::Out;
use flow::text::{NoNames, match_to_string};
use flow::{Field, Maskable, Match};
use openflow::nxm::entries_to_string as format;
use openflow::nxm::{self, Cookie, Dialect, Header, Unknown};
use openflow::wire::{Reader, Writer};
use openflow::{OfpError, Version, of_match};

const COOKIE: (&str, u16, u8, usize) = ("NXM_NX_COOKIE", 1, 30, 8);

/// The class of headers that are followed by the id of an experimenter.
const EXPERIMENTER_CLASS: u64 = 0xffff;

/// The header with this name, or with this number of 8 hexadecimal digits, or of 16 if it has an experimenter id.
fn header_by_name(name: &str) -> Option<Header> {
    let (base, has_mask) = name.strip_suffix("_W").map_or((name, false), |base| (base, true));
    let (cookie, class, number, width) = COOKIE;
    if base == cookie {
        return Some(Header { class, number, has_mask, payload: width << u8::from(has_mask), experimenter: 0 });
    }
    let found = flow::field::FIELDS.iter().find_map(|info| {
        let n = info.nxm.iter().find(|n| n.name == base)?;
        let payload = info.wire_bytes() << u8::from(has_mask);
        (!has_mask || info.maskable == Maskable::Full).then_some(Header {
            class: n.class,
            number: n.number,
            has_mask,
            payload,
            experimenter: n.experimenter,
        })
    });
    found.or_else(|| {
        let digits = Some(name).filter(|name| name.bytes().all(|b| b.is_ascii_hexdigit()))?;
        let word = match (digits.len(), u64::from_str_radix(digits, 16).ok()?) {
            (8, word) => word << 32,
            (16, word) if word >> 48 == EXPERIMENTER_CLASS => word,
            _ => return None,
        };
        Header::decode(&mut Reader::new(&word.to_be_bytes())).ok()
    })
}

/// Parses entries. The errors are Open vSwitch's.
fn parse(text: &str) -> std::result::Result<Vec<u8>, String> {
    let mut out = Vec::new();
    if text == "<any>" {
        return Ok(out);
    }
    let separators = [',', ' ', '\t', '\r', '\n'];
    let mut rest = text.trim_start_matches(separators);
    while !rest.is_empty() {
        let (name, value) = rest.split_once('(').ok_or_else(|| format!("{text}: missing ( at end of nx_match"))?;
        let header = header_by_name(name).ok_or_else(|| format!("{text}: unknown field `{name}'"))?;
        let mut written = Writer::new();
        header.encode(&mut written);
        out.extend_from_slice(&written);
        rest = value;
        let width = header.payload >> u8::from(header.has_mask);
        take_hex(&mut rest, width, &mut out)?;
        if header.has_mask {
            rest = rest.trim_start();
            rest = rest.strip_prefix('/').ok_or_else(|| format!("{text}: missing / in masked field {name}"))?;
            take_hex(&mut rest, width, &mut out)?;
        }
        rest = rest.trim_start();
        rest = rest.strip_prefix(')').ok_or_else(|| format!("{text}: missing ) following field {name}"))?;
        rest = rest.trim_start_matches(separators);
    }
    Ok(out)
}

/// Takes exactly `width` pairs of hexadecimal digits from the front.
fn take_hex(rest: &mut &str, width: usize, out: &mut Vec<u8>) -> std::result::Result<(), String> {
    let mut n = 0;
    loop {
        let trimmed = rest.trim_start();
        let digits = trimmed.get(..2).filter(|pair| pair.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(byte) = digits.and_then(|pair| u8::from_str_radix(pair, 16).ok()) else { break };
        out.push(byte);
        n += 1;
        *rest = trimmed.get(2..).unwrap_or_default();
    }
    if n == width { Ok(()) } else { Err(format!("expected to read {width} bytes but got {n}")) }
}

/// Decodes entries as a switch does if `strict`; otherwise skips unknown entries, and keeps entries with unmet prerequisites.
fn decode(bytes: &[u8], strict: bool) -> std::result::Result<(Match, Option<Cookie>), OfpError> {
    let decoded = nxm::decode(bytes, if strict { Unknown::Refuse } else { Unknown::Lenient });
    if decoded == Err(OfpError::BmcBadWildcards) {
        warn_of_wildcards(bytes);
    }
    decoded
}

/// Logs the header of the first entry with a value outside of its mask.
fn warn_of_wildcards(bytes: &[u8]) {
    let mut r = Reader::new(bytes);
    while let Ok(header) = Header::decode(&mut r.clone()) {
        if nxm::decode_entry(&mut r) == Err(OfpError::BmcBadWildcards) {
            let Header { class, number, has_mask, payload, experimenter } = header;
            tracing::warn!(target: "nx_match",
                "Rejecting NXM/OXM entry {experimenter}:{class}:{number}:{}:{payload} with 1-bits in value for bits \
                 wildcarded by the mask.", u8::from(has_mask));
            return;
        }
    }
}

fn convert(c: &Context, oxm: Option<Version>) -> Result {
    let mut out = Out::default();
    for line in read_stdin()?.lines() {
        if line.starts_with('#') {
            out.put(&format!("{line}\n"));
            continue;
        }
        let text = line.split('#').next().unwrap_or_default();
        if text.trim().is_empty() {
            out.put("\n");
            continue;
        }
        let bytes = parse(text).map_err(fatal)?;
        match decode(&bytes, c.strict) {
            Err(e) => out.put(&format!("nx_pull_match() returned error {e}\n")),
            Ok((matching, cookie)) => {
                let mut whole = Writer::new();
                let entries = match oxm {
                    None => {
                        let length = nxm::encode_nx_match(&mut whole, &matching, cookie);
                        whole.get(..length)
                    }
                    Some(version) => {
                        nxm::encode_oxm_match(&mut whole, &matching, version);
                        let length = whole.get(2..4).and_then(|b| b.try_into().ok()).map_or(0, u16::from_be_bytes);
                        whole.get(4..usize::from(length))
                    }
                };
                out.put(&format!("{}\n", format(entries.unwrap_or_default())));
                if c.verbosity > 0 {
                    out.put(&hex_lines(&whole));
                }
            }
        }
    }
    Ok(())
}

/// Matches in Nicira's format.
pub fn parse_nxm(c: &Context, _: &[String]) -> Result {
    convert(c, None)
}

/// Matches in the OpenFlow format of a version.
pub fn parse_oxm(c: &Context, a: &[String]) -> Result {
    let version = Version::ALL.into_iter().find(|v| v.name() == a[0] && *v >= Version::V12);
    convert(c, Some(version.ok_or_else(|| fatal(format!("{}: not a valid version for OXM", a[0])))?))
}

/// Prints a VLAN match after round trips through text and the four match formats.
pub fn check_vlan(_: &Context, a: &[String]) -> Result {
    let number = |text: &str| u16::from_str_radix(text, 16).unwrap_or(0);
    let (tci, mask) = (number(&a[0]), number(&a[1]));
    let mut m = Match::ANY;
    m.set_masked(Field::VlanTci, tci.into(), mask.into());
    let tag = |m: &Match| {
        let (tci, mask) = m.get(Field::VlanTci);
        format!("{tci:04x}/{mask:04x}")
    };
    let mut out = Out::default();

    let text = match_to_string(&m, &NoNames);
    let parsed = flow::text::parse_match(&text, &NoNames).map_err(fatal)?;
    out.put(&format!("{text} -> {}\n", tag(&parsed)));

    let mut entries = Writer::new();
    let length = nxm::encode_nx_match(&mut entries, &m, None);
    let entries = entries.get(..length).unwrap_or_default();
    match nxm::decode(entries, Unknown::Refuse) {
        Ok((m, _)) => out.put(&format!("NXM: {} -> {}\n", format(entries), tag(&m))),
        Err(e) => out.put(&format!("NXM: {} -> {e}\n", format(entries))),
    }

    let mut entries = Writer::new();
    nxm::encode(&mut entries, &m, None, Dialect::Oxm(Version::V12));
    match nxm::decode(&entries, Unknown::Refuse) {
        Ok((m, _)) => {
            let (tci, mask) = m.get(Field::VlanTci);
            let pcp = if mask & 0xe000 == 0 { "--".into() } else { format!("{:02x}", tci >> 13) };
            let (vid, vid_mask) = (tci & 0x1fff, mask & 0x1fff);
            out.put(&format!("OXM: {} -> {vid:04x}/{vid_mask:04x},{pcp}\n", format(&entries)));
        }
        Err(e) => out.put(&format!("OXM: {} -> {e}\n", format(&entries))),
    }

    let mut bytes = Writer::new();
    of_match::encode_of10(&mut bytes, &m);
    let again = of_match::decode_of10(&mut Reader::new(&bytes)).map_err(fatal)?;
    out.put(&fixed("OF1.0", &bytes, (0, 18), (1 << 1, 1 << 20), &tag(&again)));
    let mut bytes = Writer::new();
    of_match::encode_of11(&mut bytes, &m);
    let again = of_match::decode_of11(&mut Reader::new(&bytes)).map_err(fatal)?;
    out.put(&fixed("OF1.1", &bytes, (8, 36), (1 << 1, 1 << 2), &tag(&again)));
    Ok(())
}

/// Prints VLAN id and priority of a match of fixed size. The wildcards and both fields are at the given offsets, with
/// the wildcard bits of both fields.
fn fixed(name: &str, bytes: &[u8], (wildcards, vlan): (usize, usize), (vid, pcp): (u32, u32), again: &str) -> String {
    let at = |n: usize| Reader::new(bytes.get(n..).unwrap_or_default());
    let wildcards = at(wildcards).u32().unwrap_or(0);
    let wild = |bit: u32| u8::from(wildcards & bit != 0);
    let (id, priority) = (at(vlan).u16().unwrap_or(0), at(vlan + 2).u8().unwrap_or(0));
    format!("{name}: {id:04x}/{},{priority:02x}/{} -> {again}\n", wild(vid), wild(pcp))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip() {
        for text in [
            "NXM_OF_ETH_TYPE(0800), NXM_OF_IP_SRC(0a000001)",
            "NXM_NX_REG0_W(00000001/00000003)",
            "OXM_OF_METADATA(0000000000000001), NXM_NX_COOKIE_W(0000000000000005/00000000000000ff)",
            "<any>",
        ] {
            assert_eq!(format(&parse(text).expect(text)), text);
        }
        for (text, error) in [
            ("NXM_OF_IN_PORT(01)", "expected to read 2 bytes but got 1"),
            ("NXM_OF_IN_PORT", "NXM_OF_IN_PORT: missing ( at end of nx_match"),
            ("NXM_OF_IN_PORT(0001", "NXM_OF_IN_PORT(0001: missing ) following field NXM_OF_IN_PORT"),
            ("NXM_OF_IN_PORT_W(0001/0002)", "NXM_OF_IN_PORT_W(0001/0002): unknown field `NXM_OF_IN_PORT_W'"),
            ("NXM_OF_VLAN_TCI_W(1000)", "NXM_OF_VLAN_TCI_W(1000): missing / in masked field NXM_OF_VLAN_TCI_W"),
        ] {
            assert_eq!(parse(text), Err(error.into()));
        }
    }

    #[test]
    fn unknown_entries_are_skipped_unless_strict() {
        let read = |text: &str, strict| decode(&parse(text).expect(text), strict).map(|(m, _)| m);
        assert_eq!(read("NXM_OF_IP_SRC(0a000001)", true), Err(OfpError::BmcBadPrereq));
        assert!(read("NXM_OF_IP_SRC(0a000001)", false).is_ok_and(|m| m.is_exactly(Field::PacketType, 0)));
        assert_eq!(read("NXM_OF_IN_PORT(0001), NXM_OF_IN_PORT(0001)", false), Err(OfpError::BmcDupField));
    }

    /// The text after a round trip without `--strict`.
    fn again(text: &str) -> String {
        let (matching, cookie) = decode(&parse(text).expect(text), false).expect(text);
        let mut out = Writer::new();
        let length = nxm::encode_nx_match(&mut out, &matching, cookie);
        format(out.get(..length).expect("its length"))
    }

    #[test]
    fn headers_of_experimenters_are_numbers_of_16_digits() {
        assert_eq!(parse("ffff220800002320(00000005)"), parse("NXOXM_ET_REG16(00000005)"));
        assert_eq!(again("FFFF230c00002320(00000005/00000007)"), "NXOXM_ET_REG16_W(00000005/00000007)");
        for unknown in ["ffff020800002320(11112222)", "ffff2208(00000005)"] {
            assert_eq!(again(unknown), "<any>");
            assert_eq!(decode(&parse(unknown).expect(unknown), true), Err(OfpError::BmcBadField));
        }
        assert_eq!(parse("ffff020800002320(1111)"), Err("expected to read 4 bytes but got 2".into()));
        for bad in ["ffff22080000232", "ffff220800002320_W", "0001220800002320", "ffff2208000023200", "+fff2208"] {
            assert_eq!(parse(&format!("{bad}(00)")), Err(format!("{bad}(00): unknown field `{bad}'")));
        }
    }

    #[test]
    fn entries_without_prerequisites_are_kept_unless_strict() {
        for text in [
            "NXM_NX_CT_NW_PROTO(06)",
            "NXM_NX_CT_NW_SRC(0a000001)",
            "NXM_NX_CT_NW_PROTO(06), NXM_NX_CT_TP_SRC(0005)",
            "NXM_NX_CT_STATE_W(00000020/00000020), NXM_NX_CT_NW_PROTO(06)",
            "NXM_OF_ETH_TYPE(86dd), NXM_NX_CT_NW_SRC(0a000001)",
            "NXOXM_NSH_FLAGS(01)",
            "NXOXM_NSH_MDTYPE(01)",
            "OXM_OF_PACKET_TYPE(00010800), NXM_OF_ETH_SRC(000000000001)",
        ] {
            assert_eq!(again(text), text);
            assert_eq!(decode(&parse(text).expect(text), true), Err(OfpError::BmcBadPrereq), "{text}");
        }
        for text in ["NXM_NX_CT_TP_SRC(0005)", "NXM_OF_IP_PROTO(06)", "NXM_OF_TCP_SRC(0005)", "NXM_OF_ARP_OP(0001)"] {
            assert_eq!(again(text), "OXM_OF_PACKET_TYPE(00000000)", "{text}");
        }
        assert_eq!(again("OXM_OF_VLAN_PCP(01)"), "NXM_OF_VLAN_TCI_W(3000/f000)");
        assert_eq!(again("OXM_OF_VLAN_VID(0000), OXM_OF_VLAN_PCP(01)"), "NXM_OF_VLAN_TCI(3000)");
        let twice = parse("OXM_OF_VLAN_PCP(01), OXM_OF_VLAN_VID(1005)").expect("two entries");
        assert_eq!(decode(&twice, false), Err(OfpError::BmcDupField));
    }

    #[test]
    fn ethernet_fields_without_a_mask_imply_an_ethernet_packet() {
        for text in ["NXM_OF_VLAN_TCI_W(0000/0000)", "NXM_OF_ETH_SRC_W(000000000000/000000000000)"] {
            assert_eq!(again(text), "OXM_OF_PACKET_TYPE(00000000)", "{text}");
        }
        assert_eq!(again("NXM_OF_ETH_TYPE(0800), NXM_OF_IP_SRC_W(00000000/00000000)"), "NXM_OF_ETH_TYPE(0800)");
    }

    #[test]
    fn erspan_fields_keep_bits_that_do_not_fit() {
        for text in [
            "NXOXM_ET_ERSPAN_IDX(01020304)",
            "NXOXM_ET_ERSPAN_IDX_W(01020304/0fffffff)",
            "NXOXM_ET_ERSPAN_IDX_W(00020304/000fffff)",
            "NXOXM_ET_ERSPAN_VER(15)",
        ] {
            assert_eq!(again(text), text);
        }
        assert_eq!(again("NXOXM_ET_ERSPAN_IDX_W(00020304/ffffffff)"), "NXOXM_ET_ERSPAN_IDX(00020304)");
    }
}
