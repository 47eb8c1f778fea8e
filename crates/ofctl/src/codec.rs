//! Test commands that convert matches, actions and errors between bytes and text, without a switch.
//!
//! Decoded input is encoded again, and bytes that differ are listed.

use crate::error::{Result, fatal};
use crate::flow_text::lines;
use crate::names::Names;
use crate::options::Context;
use crate::packet_out::hex;
use crate::switch::Out;
use crate::vconn::next_xid;
use flow::Match;
use flow::text::{NoNames, match_to_string};
use openflow::action::check;
use openflow::message::{self, Options, encode_with};
use openflow::of_match::{self, OF10_LEN, OF11_LEN};
use openflow::print::{Style, print};
use openflow::switch::{ErrorReport, Hello};
use openflow::wire::{Reader, Writer};
use openflow::{
    Action, GroupCommand, Message, OfpError, Version, Versions, actions_to_string, decode_actions, decode_instructions,
    encode_actions, encode_instructions, parse_group_line,
};
use std::io::Read;

/// Formats bytes in lines of 16, without their characters.
pub fn hex_lines(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (i, line) in bytes.chunks(16).enumerate() {
        out.push_str(&format!("{:08x} ", 16 * i));
        for (n, byte) in line.iter().enumerate() {
            out.push_str(&format!("{}{byte:02x}", if n == 8 { '-' } else { ' ' }));
        }
        out.push('\n');
    }
    out
}

/// Standard input as text.
pub fn read_stdin() -> Result<String> {
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes).map_err(|e| fatal(format!("read failed ({e})")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Calls `f` with each line of standard input as bytes, skipping comments and blank lines.
fn each_line_of_hex(mut f: impl FnMut(&[u8]) -> Result) -> Result {
    for (_, line) in lines(&read_stdin()?) {
        f(&hex(line).ok_or_else(|| fatal("Trailing garbage in hex data"))?)?;
    }
    Ok(())
}

/// Lists the bytes in which `b` differs from `a`, one per line.
fn differences(prefix: &str, a: &[u8], b: &[u8]) -> String {
    let mut out = String::new();
    let text = |byte: Option<&u8>| byte.map_or_else(|| "(none)".to_owned(), |byte| format!("{byte:02x}"));
    for n in (0..a.len().max(b.len())).filter(|n| a.get(*n) != b.get(*n)) {
        out.push_str(&format!("{prefix}{n:2}: {} -> {}\n", text(a.get(n)), text(b.get(n))));
    }
    out
}

fn version(name: &str, what: &str) -> Result<Version> {
    let known = Version::ALL.into_iter().find(|v| v.name() == name);
    known.ok_or_else(|| fatal(format!("{name}: not a valid {what}")))
}

/// Decodes actions or instructions of a version from standard input.
fn parse_ofpacts(
    a: &[String],
    what: &str,
    decode: impl Fn(&[u8], Version) -> std::result::Result<Vec<Action>, OfpError>,
    encode: impl Fn(&[Action], Version) -> Vec<u8>,
) -> Result {
    let version = version(&a[0], "OpenFlow version")?;
    let mut out = Out::default();
    each_line_of_hex(|bytes| {
        match decode(bytes, version) {
            Err(e) => out.put(&format!("bad {} {what}: {e}\n\n", version.name())),
            Ok(actions) => {
                out.put(&format!("actions={}\n", actions_to_string(&actions, &NoNames, version)));
                out.put(&differences("", bytes, &encode(&actions, version)));
                out.put("\n");
            }
        }
        Ok(())
    })
}

/// Decodes a list that may hold actions only, no instructions.
fn decode_plain_actions(bytes: &[u8], version: Version) -> std::result::Result<Vec<Action>, OfpError> {
    let actions = decode_actions(bytes, version)?;
    check::verify(&actions, check::Allowed::Actions)?;
    Ok(actions)
}

/// Actions of a version.
pub fn parse_actions(_: &Context, a: &[String]) -> Result {
    parse_ofpacts(a, "actions", decode_plain_actions, |actions, version| {
        let mut out = Writer::new();
        encode_actions(&mut out, actions, version, &Match::ANY);
        out.to_vec()
    })
}

/// Instructions of a version; in OpenFlow 1.0 actions.
pub fn parse_instructions(_: &Context, a: &[String]) -> Result {
    parse_ofpacts(
        a,
        "instructions",
        |bytes, version| {
            if version == Version::V10 { decode_actions(bytes, version) } else { decode_instructions(bytes, version) }
        },
        |actions, version| {
            let mut out = Writer::new();
            if version == Version::V10 {
                encode_actions(&mut out, actions, version, &Match::ANY);
            } else {
                encode_instructions(&mut out, actions, version, &Match::ANY);
            }
            out.to_vec()
        },
    )
}

fn expect_length(bytes: &[u8], length: usize) -> Result {
    if bytes.len() == length {
        return Ok(());
    }
    Err(fatal(format!("Input is {} bytes, expected {length}", bytes.len())))
}

/// Matches of OpenFlow 1.0, as given and normalised.
pub fn parse_ofp10_match(_: &Context, _: &[String]) -> Result {
    let mut out = Out::default();
    each_line_of_hex(|bytes| {
        expect_length(bytes, OF10_LEN)?;
        let mut matching = of_match::decode_of10(&mut Reader::new(bytes)).map_err(fatal)?;
        let encoded = |matching: &Match| {
            let mut out = Writer::new();
            of_match::encode_of10(&mut out, matching);
            out.to_vec()
        };
        out.put(&format!("{}\n", match_to_string(&matching, &NoNames)));
        let as_read = encoded(&matching);
        out.put(&differences("", bytes, &as_read));
        if let Some(change) = matching.normalize(&NoNames) {
            change.lines().iter().for_each(|line| tracing::info!(target: "ofp_match", "{line}"));
        }
        out.put(&differences("normal: ", &as_read, &encoded(&matching)));
        out.put("\n");
        Ok(())
    })
}

/// Matches of OpenFlow 1.1.
pub fn parse_ofp11_match(_: &Context, _: &[String]) -> Result {
    let mut out = Out::default();
    each_line_of_hex(|bytes| {
        expect_length(bytes, OF11_LEN)?;
        match of_match::decode_of11(&mut Reader::new(bytes)) {
            Err(e) => out.put(&format!("bad ofp11_match: {e}\n\n")),
            Ok(matching) => {
                let mut encoded = Writer::new();
                of_match::encode_of11(&mut encoded, &matching);
                out.put(&format!("{}\n", match_to_string(&matching, &NoNames)));
                out.put(&differences("", bytes, &encoded));
                out.put("\n");
            }
        }
        Ok(())
    })
}

/// Prints the message that adds a group.
pub fn parse_group(c: &Context, a: &[String]) -> Result {
    let group = openflow::parse_group(&a[0], GroupCommand::Add, &Names::default()).map_err(fatal)?;
    group_mod(c, group)
}

/// Prints the messages for a file of groups.
pub fn parse_groups(c: &Context, a: &[String]) -> Result {
    let text = crate::flow_text::read_file(&a[0])?;
    for (n, line) in lines(&text) {
        let group = parse_group_line(line, &Names::default()).map_err(|e| fatal(format!("{}:{n}: {e}", a[0])))?;
        group_mod(c, group)?;
    }
    Ok(())
}

fn group_mod(c: &Context, group: openflow::ParsedGroup) -> Result {
    let protocol = (group.usable & c.protocols).first().ok_or_else(|| fatal("no usable protocol"))?;
    let version = protocol.version().unwrap_or(Version::V10);
    let mut out = Out::default();
    out.put(&format!("usable protocols: {}\nchosen version: {}\n", group.usable, version.name()));
    let msg = encode_with(version, next_xid(), &Message::GroupMod(group.group_mod), Options::default());
    out.put(&print(&msg, Style::plain(c.verbosity)));
    Ok(())
}

/// Prints the numbers of an error in each version.
pub fn print_error(_: &Context, a: &[String]) -> Result {
    let error = error_by_name(&a[0])?;
    for version in Version::ALL {
        if let Some(number) = error.number(version) {
            let vendor = if number.vendor == 0 { "0".to_owned() } else { format!("{:#x}", number.vendor) };
            cli::outln!("{version}: vendor {vendor}, type {}, code {}", number.ty, number.code);
        }
    }
    Ok(())
}

fn error_by_name(name: &str) -> Result<OfpError> {
    OfpError::from_name(name).ok_or_else(|| fatal(format!("unknown error \"{name}\"")))
}

/// Prints the message that reports an error about a request.
pub fn encode_error_reply(_: &Context, a: &[String]) -> Result {
    let error = error_by_name(&a[0])?;
    let request = hex(&a[1]).ok_or_else(|| fatal("Trailing garbage in hex data"))?;
    if request.len() < openflow::types::HEADER_LEN {
        return Err(fatal("Request too short"));
    }
    let known = request.first().and_then(|version| Version::from_wire(*version));
    let version = known.ok_or_else(|| fatal("Request of an unknown OpenFlow version"))?;
    if error.number(version).is_none() {
        tracing::error!(target: "ofp_errors", "cannot encode {error} for {version}");
    }
    let report = Message::Error(ErrorReport::on(error, &request));
    Out::default().put(&hex_lines(&message::encode(version, openflow::types::xid(&request), &report)));
    Ok(())
}

/// Prints the HELLO for a set of versions, given as its bitmap.
pub fn encode_hello(_: &Context, a: &[String]) -> Result {
    let text = &a[0];
    let digits = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let bitmap = digits.map_or_else(|| text.parse(), |digits| u32::from_str_radix(digits, 16));
    let versions = bitmap.map(|bitmap| Versions(bitmap & 0x7e)).unwrap_or_default();
    let newest =
        versions.newest().ok_or_else(|| fatal(format!("{text}: no OpenFlow version (0x2 is OpenFlow 1.0)")))?;
    let hello = message::encode(newest, next_xid(), &Message::Hello(Hello { versions }));
    let mut out = Out::default();
    out.put(&hex_lines(&hello));
    out.put(&print(&hello, Style::plain(0)));
    Ok(())
}

/// Prints keys and values in the syntax of flows.
pub fn parse_key_value(_: &Context, a: &[String]) -> Result {
    for text in a {
        let mut rest = text.as_str();
        let mut found = Vec::new();
        while let Some((key, value)) = flow::text::next_key_value(&mut rest) {
            found.push(match value {
                None | Some("") => key.to_owned(),
                Some(value) => format!("{key}={value}"),
            });
        }
        cli::outln!("{}", found.join(", "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_no_actions() {
        let metadata = "ffff002000002320 0016 000000000000 0000000000000005 ffffffffffffffff";
        let bytes = hex(metadata).expect("hexadecimal");
        for version in [Version::V10, Version::V13] {
            assert_eq!(decode_plain_actions(&bytes, version), Err(OfpError::BicUnsupInst));
            assert!(decode_actions(&bytes, version).is_ok());
        }
    }

    #[test]
    fn differences_are_listed_by_byte() {
        assert_eq!(
            hex_lines(&[0; 17]),
            format!("00000000 {0}-{1}\n00000010  00\n", " 00".repeat(8), &" 00".repeat(8)[1..])
        );
        assert_eq!(hex_lines(&[1]), "00000000  01\n");
        assert_eq!(differences("", &[1, 2], &[1, 3, 4]), " 1: 02 -> 03\n 2: (none) -> 04\n");
        assert_eq!(differences("x: ", &[1, 2], &[1]), "x:  1: 02 -> (none)\n");
    }
}
