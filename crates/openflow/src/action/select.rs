//! Actions that select by a hash of the packet's flow: `multipath`, `bundle` and `bundle_load` (ovs-actions(7);
//! NXAST_MULTIPATH, NXAST_BUNDLE, NXAST_BUNDLE_LOAD).

use super::check::{check_port, destination};
use super::decode::{short_header_field, subfield, writable};
use super::encode::{is_long, nicira, pack, put_header};
use super::parse::{ActionError, error};
use super::{Action, Subfield};
use crate::error::OfpError;
use crate::nxm::Dialect;
use crate::wire::{Reader, Writer};
use base::PortNo;
use flow::text::{format_port, parse_port};
use flow::{Match, PortNames};
use std::fmt::Write;

const ARGUMENT: OfpError = OfpError::BacBadArgument;

/// The fields to hash (`NX_HASH_FIELDS_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HashFields {
    /// The Ethernet source address.
    EthSrc,
    /// Addresses, types and ports from Ethernet to TCP and SCTP; the same for both directions.
    SymmetricL4,
    /// The fields of `SymmetricL4` without Ethernet.
    SymmetricL3L4,
    /// The fields of `SymmetricL3L4` with the ports of UDP.
    SymmetricL3L4Udp,
    /// The IPv4 or IPv6 source address.
    NwSrc,
    /// The IPv4 or IPv6 destination address.
    NwDst,
    /// Both IP addresses; the same for both directions.
    SymmetricL3,
    /// A number without meaning, which `bundle_load` may have on the wire.
    Unknown(u16),
}

impl HashFields {
    const ALL: [(Self, &str); 7] = [
        (Self::EthSrc, "eth_src"),
        (Self::SymmetricL4, "symmetric_l4"),
        (Self::SymmetricL3L4, "symmetric_l3l4"),
        (Self::SymmetricL3L4Udp, "symmetric_l3l4+udp"),
        (Self::NwSrc, "nw_src"),
        (Self::NwDst, "nw_dst"),
        (Self::SymmetricL3, "symmetric_l3"),
    ];

    fn name(self) -> &'static str {
        name_in(&Self::ALL, self)
    }

    /// The number on the wire.
    fn number(self) -> u16 {
        if let Self::Unknown(n) = self { n } else { number_in(&Self::ALL, self) }
    }
}

/// The algorithm that selects a link by a hash (`NX_MP_ALG_*`; the first three are those of RFC 2992).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkAlgorithm {
    /// The hash modulo the number of links.
    ModuloN,
    /// Equal ranges of hashes, one for each link.
    HashThreshold,
    /// The link for which a hash of flow and link is the highest.
    HighestRandomWeight,
    /// Hashes of flow and a counter, until one is a link's number.
    IterHash,
}

impl LinkAlgorithm {
    const ALL: [(Self, &str); 4] = [
        (Self::ModuloN, "modulo_n"),
        (Self::HashThreshold, "hash_threshold"),
        (Self::HighestRandomWeight, "hrw"),
        (Self::IterHash, "iter_hash"),
    ];
}

/// The algorithm that selects a port (`NX_BD_ALG_*`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MemberAlgorithm {
    /// The first live port.
    ActiveBackup,
    /// The live port for which a hash of flow and index is the highest (RFC 2992).
    HighestRandomWeight,
    /// A number without meaning, which `bundle_load` may have on the wire.
    Unknown(u16),
}

impl MemberAlgorithm {
    const ALL: [(Self, &str); 2] = [(Self::ActiveBackup, "active_backup"), (Self::HighestRandomWeight, "hrw")];

    /// The number on the wire.
    fn number(self) -> u16 {
        if let Self::Unknown(n) = self { n } else { number_in(&Self::ALL, self) }
    }
}

/// Parameters of `multipath`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Multipath {
    /// The fields to hash.
    pub fields: HashFields,
    /// Seeds the hash.
    pub basis: u16,
    /// The algorithm.
    pub algorithm: LinkAlgorithm,
    /// The number of the last link; the first is 0.
    pub max_link: u16,
    /// A parameter of [`LinkAlgorithm::IterHash`].
    pub arg: u32,
    /// The destination of the link's number, which is wide enough for it.
    pub dst: Subfield,
}

/// Parameters of `bundle` and `bundle_load`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BundleAction {
    /// The fields to hash.
    pub fields: HashFields,
    /// Seeds the hash.
    pub basis: u16,
    /// The algorithm.
    pub algorithm: MemberAlgorithm,
    /// The ports.
    pub members: Vec<PortNo>,
    /// The destination of the port's number, at least 16 bits; `None` to output the packet there.
    pub dst: Option<Subfield>,
}

/// `NXM_OF_IN_PORT`: members are ports.
const MEMBER_TYPE: u32 = 0x0000_0002;
/// The largest number of members of a `bundle`.
const MAX_MEMBERS: u16 = 2048;

/// Returns the name of a value, as Open vSwitch shows it.
fn name_in<T: PartialEq>(all: &[(T, &'static str)], value: T) -> &'static str {
    all.iter().find(|(other, _)| *other == value).map_or("<unknown>", |(_, name)| name)
}

/// Returns the index of a value.
fn number_in<T: PartialEq>(all: &[(T, &str)], value: T) -> u16 {
    all.iter().position(|(other, _)| *other == value).unwrap_or_default() as u16
}

/// Returns the value with this number on the wire.
fn numbered<T: Copy>(all: &[(T, &str)], n: u16) -> Result<T, OfpError> {
    all.get(usize::from(n)).map(|(value, _)| *value).ok_or(ARGUMENT)
}

/// Reads the destination of a packed subfield of a short header.
fn decode_dst(r: &mut Reader<'_>, packed: u16) -> Result<Subfield, OfpError> {
    writable(subfield(short_header_field(r)?, packed >> 6, (packed & 0x3f) + 1)?)
}

/// Reads the body of NXAST_MULTIPATH.
pub(super) fn decode_multipath(mut r: Reader<'_>) -> Result<Action, OfpError> {
    let fields = numbered(&HashFields::ALL, r.u16()?);
    let basis = r.u16()?;
    r.skip(2)?;
    let algorithm = numbered(&LinkAlgorithm::ALL, r.u16()?);
    let (max_link, arg) = (r.u16()?, r.u32()?);
    r.skip(2)?;
    let packed = r.u16()?;
    let dst = decode_dst(&mut r, packed)?;
    if dst.n_bits < 16 && usize::from(max_link) >= 1 << dst.n_bits {
        return Err(ARGUMENT);
    }
    Ok(Action::Multipath(Box::new(Multipath { fields: fields?, basis, algorithm: algorithm?, max_link, arg, dst })))
}

/// Reads the body of NXAST_BUNDLE, or of NXAST_BUNDLE_LOAD if `loads` is set.
///
/// As in Open vSwitch, missing members are reported before other errors but a destination that is no field, and
/// `bundle_load` may have fields and an algorithm without meaning.
pub(super) fn decode_bundle(mut r: Reader<'_>, loads: bool) -> Result<Action, OfpError> {
    let n = r.u16()?;
    let algorithm = numbered(&MemberAlgorithm::ALL, n).unwrap_or(MemberAlgorithm::Unknown(n));
    let n = r.u16()?;
    let fields = numbered(&HashFields::ALL, n).unwrap_or(HashFields::Unknown(n));
    let basis = r.u16()?;
    let member_type = r.u32()?;
    let (n_members, packed) = (r.u16()?, r.u16()?);
    let mut dst = r.sub(4)?;
    let reserved = r.sub(4)?;
    let field = if loads { Some(short_header_field(&mut dst.clone())?) } else { None };
    let members: Result<Vec<PortNo>, OfpError> = (0..n_members).map(|_| r.u16().map(PortNo::from_of10)).collect();
    let members = members?;
    let dst = match field {
        Some(_) if packed & 0x3f < 15 => return Err(ARGUMENT),
        Some(_) => Some(decode_dst(&mut dst, packed)?),
        None => {
            let known = !matches!((fields, algorithm), (HashFields::Unknown(_), _) | (_, MemberAlgorithm::Unknown(_)));
            let is_zero = packed == 0 && dst.is_zero() && reserved.is_zero();
            if !known || !is_zero || member_type != MEMBER_TYPE || n_members > MAX_MEMBERS {
                return Err(ARGUMENT);
            }
            None
        }
    };
    members.iter().try_for_each(|port| check_member(*port, |port| check_port(port, PortNo::MAX.0)))?;
    Ok(Action::Bundle(Box::new(BundleAction { fields, basis, algorithm, members, dst })))
}

pub(super) fn encode_multipath(out: &mut Writer, m: &Multipath) {
    nicira(out, 10, |b| {
        b.put_u16(m.fields.number());
        b.put_u16(m.basis);
        b.zeros(2);
        b.put_u16(m.algorithm as u16);
        b.put_u16(m.max_link);
        b.put_u32(m.arg);
        b.zeros(2);
        b.put_u16(pack(m.dst));
        put_header(b, m.dst.field, Dialect::Nxm);
    });
}

pub(super) fn encode_bundle(out: &mut Writer, bundle: &BundleAction) {
    nicira(out, if bundle.dst.is_some() { 13 } else { 12 }, |b| {
        b.put_u16(bundle.algorithm.number());
        b.put_u16(bundle.fields.number());
        b.put_u16(bundle.basis);
        b.put_u32(MEMBER_TYPE);
        b.put_len16(bundle.members.len());
        match bundle.dst {
            Some(dst) => {
                b.put_u16(pack(dst));
                put_header(b, dst.field, Dialect::Nxm);
            }
            None => b.zeros(6),
        }
        b.zeros(4);
        bundle.members.iter().for_each(|port| b.put_u16(port.to_of10()));
    });
}

/// Returns the value with this name.
fn named<T: Copy>(all: &[(T, &str)], text: &str, whole: &str, what: &str) -> Result<T, ActionError> {
    let found = all.iter().find(|(_, name)| name.eq_ignore_ascii_case(text));
    found.map_or_else(|| error(format!("{whole}: unknown {what} `{text}'")), |(value, _)| Ok(*value))
}

/// Parses the decimal digits that `text` begins with, as C's atoi(): other text is 0, and only the low 32 bits remain.
fn leading_number(text: &str) -> u32 {
    let (negative, digits) = match text.as_bytes() {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    let digits = digits.iter().take_while(|b| b.is_ascii_digit());
    // As strtol(), it stops at the bounds of 64 bits.
    let n = digits.fold(0i64, |n, b| {
        let digit = i64::from(b - b'0');
        n.saturating_mul(10).saturating_add(if negative { -digit } else { digit })
    });
    n as u32
}

/// Parses a subfield whose field has a four-byte header.
fn parse_dst(text: &str, whole: &str) -> Result<Subfield, ActionError> {
    let dst = Subfield::parse(text)?;
    if is_long(dst.field) {
        return error(format!("{whole}: experimenter OXM field '{text}' not supported"));
    }
    Ok(dst)
}

/// Parses `multipath(FIELDS,BASIS,ALGORITHM,N_LINKS,ARG,DST)`.
pub(super) fn parse_multipath(text: &str) -> Result<Action, ActionError> {
    // As in Open vSwitch, further words are ignored.
    let words: Vec<&str> = text.split([',', ' ']).filter(|word| !word.is_empty()).take(6).collect();
    let [fields, basis, algorithm, n_links, arg, dst] = words[..] else {
        return error(format!("{text}: not enough arguments to multipath action"));
    };
    let fields = named(&HashFields::ALL, fields, text, "fields")?;
    let algorithm = named(&LinkAlgorithm::ALL, algorithm, text, "algorithm")?;
    let n = leading_number(n_links) as i32;
    if !(1..=65_536).contains(&n) {
        return error(format!("{text}: n_links {n} is not in valid range 1 to 65536"));
    }
    let dst = parse_dst(dst, text)?;
    if dst.n_bits < 16 && n > 1 << dst.n_bits {
        return error(format!(
            "{text}: {}-bit destination field has {} possible values, less than specified n_links {n}",
            dst.n_bits,
            1 << dst.n_bits
        ));
    }
    let (basis, arg) = (leading_number(basis) as u16, leading_number(arg));
    Ok(Action::Multipath(Box::new(Multipath { fields, basis, algorithm, max_link: (n - 1) as u16, arg, dst })))
}

/// Parses `bundle(FIELDS,BASIS,ALGORITHM,ofport,members:PORT...)`, and `bundle_load` with `DST` before the members.
pub(super) fn parse_bundle(text: &str, loads: bool, ports: &dyn PortNames) -> Result<Action, ActionError> {
    let mut words = text.split([',', ' ']).filter(|word| !word.is_empty());
    let few = || format!("{text}: not enough arguments to bundle action");
    let mut next = || words.next().ok_or_else(|| ActionError(few()));
    let (fields, basis, algorithm, kind) = (next()?, next()?, next()?, next()?);
    let dst = if loads { Some(next()?) } else { None };
    let first = next()?;
    // The delimiter ends at a colon; members may stand in brackets, as older versions print them.
    let at = first.as_ptr().addr() - text.as_ptr().addr();
    let rest = text.get(at..).unwrap_or(first);
    let (delimiter, members) = rest.split_once(':').unwrap_or((rest, ""));
    if !["members", "slaves"].contains(&delimiter.trim_end().to_ascii_lowercase().as_str()) {
        return error(format!("{text}: missing member delimiter, expected `members', got `{delimiter}'"));
    }
    let port = |name: &str| parse_port(name, ports).ok_or_else(|| ActionError(format!("{name}: bad port number")));
    let members = members.split([',', ' ', '[', ']']).filter(|word| !word.is_empty()).map(port);
    let members: Vec<PortNo> = members.collect::<Result<_, _>>()?;
    let fields = named(&HashFields::ALL, fields, text, "fields")?;
    let algorithm = named(&MemberAlgorithm::ALL, algorithm, text, "algorithm")?;
    if !kind.eq_ignore_ascii_case("ofport") {
        return error(format!("{text}: unknown member_type `{kind}'"));
    }
    let basis = leading_number(basis) as u16;
    let dst = match dst {
        Some(dst) => Some(parse_dst(dst, text)?),
        None => None,
    };
    if dst.is_some_and(|dst| dst.n_bits < 16) {
        return error(format!("{text}: bundle_load action requires at least 16 bit destination"));
    }
    Ok(Action::Bundle(Box::new(BundleAction { fields, basis, algorithm, members, dst })))
}

pub(super) fn format_multipath(out: &mut String, m: &Multipath) {
    let n_links = u32::from(m.max_link) + 1;
    let (fields, algorithm) = (m.fields.name(), LinkAlgorithm::ALL[m.algorithm as usize].1);
    let _ = write!(out, "multipath({fields},{},{algorithm},{n_links},{},{})", m.basis, m.arg, m.dst);
}

pub(super) fn format_bundle(out: &mut String, bundle: &BundleAction, ports: &dyn PortNames) {
    let name = if bundle.dst.is_some() { "bundle_load" } else { "bundle" };
    let (fields, algorithm) = (bundle.fields.name(), name_in(&MemberAlgorithm::ALL, bundle.algorithm));
    let _ = write!(out, "{name}({fields},{},{algorithm},ofport,", bundle.basis);
    if let Some(dst) = bundle.dst {
        let _ = write!(out, "{dst},");
    }
    out.push_str("members:");
    for (i, port) in bundle.members.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        format_port(*port, ports, out);
    }
    out.push(')');
}

/// Checks members and destination against a flow's match. `port` checks an output port.
pub(super) fn check_bundle(
    bundle: &BundleAction,
    m: &Match,
    port: impl Fn(PortNo) -> Result<(), OfpError>,
) -> Result<(), OfpError> {
    if let Some(dst) = bundle.dst {
        destination(dst, m)?;
    }
    bundle.members.iter().try_for_each(|member| check_member(*member, &port))
}

/// Checks that a port may be a member; `port` checks an output port.
fn check_member(member: PortNo, port: impl Fn(PortNo) -> Result<(), OfpError>) -> Result<(), OfpError> {
    match member {
        PortNo::NONE => Ok(()),
        PortNo::CONTROLLER => Err(OfpError::BacBadOutPort),
        member => port(member),
    }
}

#[cfg(test)]
mod tests {
    use crate::action::bytes_of_hex as bytes;
    use crate::action::parse::parse_instructions;
    use crate::{OfpError, Version, actions_to_string, decode_actions, encode_actions};
    use flow::{Match, NoNames};

    #[test]
    fn bytes_and_text() {
        for (hex, text) in [
            (
                "ffff 0020 00002320 000a 0001 0400 0000 0000 0003 00000000 0000 0001 00010004",
                "multipath(symmetric_l4,1024,modulo_n,4,0,NXM_NX_REG0[0..1])",
            ),
            (
                "ffff 0028 00002320 000c 0001 0000 0000 00000002 0002 0000 00000000 00000000 0017 0020 00000000",
                "bundle(eth_src,0,hrw,ofport,members:23,32)",
            ),
            ("ffff 0018 00002320 0031 05dc 000a 00011204 00000000 0000", "check_pkt_larger(1500)->NXM_NX_REG9[10]"),
            (
                "ffff 0020 00002320 000c 0000 0006 0009 00000002 0000 0000 00000000 00000000",
                "bundle(symmetric_l3,9,active_backup,ofport,members:)",
            ),
            (
                "ffff 0028 00002320 000d 0001 0000 0000 00000002 0002 001f 00010004 00000000 0004 fffe 00000000",
                "bundle_load(eth_src,0,hrw,ofport,NXM_NX_REG0[],members:4,LOCAL)",
            ),
        ] {
            for version in [Version::V10, Version::V13, Version::V15] {
                let actions = decode_actions(&bytes(hex), version).expect(text);
                assert_eq!(actions_to_string(&actions, &NoNames, version), text);
                assert_eq!(parse_instructions(text, &NoNames), Ok(actions.clone()));
                let mut out = crate::wire::Writer::new();
                encode_actions(&mut out, &actions, version, &Match::ANY);
                assert_eq!(out, bytes(hex), "{text}");
            }
        }
    }

    #[test]
    fn bad_bytes() {
        for (hex, error) in [
            // An algorithm, fields, links and a destination that do not exist.
            ("ffff 0020 00002320 000a 0001 0400 0000 0004 0003 00000000 0000 0001 00010004", OfpError::BacBadArgument),
            ("ffff 0020 00002320 000a 0007 0400 0000 0000 0003 00000000 0000 0001 00010004", OfpError::BacBadArgument),
            ("ffff 0020 00002320 000a 0001 0400 0000 0000 0010 00000000 0000 0001 00010004", OfpError::BacBadArgument),
            ("ffff 0020 00002320 000a 0001 0400 0000 0000 0003 00000000 0000 0001 80ff0a04", OfpError::BacBadSetType),
            // A destination in a bundle without one, members of another type, more members than there are bytes for, 15 bits,
            // and padding that is not zero.
            (
                "ffff 0028 00002320 000c 0001 0000 0000 00000002 0002 0000 00000001 00000000 0017 0020 00000000",
                OfpError::BacBadArgument,
            ),
            (
                "ffff 0028 00002320 000c 0001 0000 0000 00000004 0002 0000 00000000 00000000 0017 0020 00000000",
                OfpError::BacBadArgument,
            ),
            (
                "ffff 0028 00002320 000c 0001 0000 0000 00000002 0005 0000 00000000 00000000 0017 0020 00000000",
                OfpError::BacBadLen,
            ),
            (
                "ffff 0028 00002320 000d 0001 0000 0000 00000002 0002 000e 00010004 00000000 0004 0008 00000000",
                OfpError::BacBadArgument,
            ),
            (
                "ffff 0028 00002320 000c 0001 0000 0000 00000002 0002 0000 00000000 00000100 0017 0020 00000000",
                OfpError::BacBadArgument,
            ),
        ] {
            assert_eq!(decode_actions(&bytes(hex), Version::V13), Err(error), "{hex}");
        }
    }

    #[test]
    fn bad_text() {
        for (text, message) in [
            ("multipath(eth_src,50,modulo_n,0,0,reg0[])", "n_links 0 is not in valid range 1 to 65536"),
            (
                "multipath(eth_src,50,modulo_n,32,0,reg0[0..3])",
                "4-bit destination field has 16 possible values, less than specified n_links 32",
            ),
            ("multipath(eth_src,50,modulo_n,3,0)", "not enough arguments to multipath action"),
            ("multipath(xyzzy,50,modulo_n,3,0,reg0[])", "unknown fields `xyzzy'"),
            ("multipath(eth_src,50,fubar,3,0,reg0[])", "unknown algorithm `fubar'"),
            ("bundle(symmetric_l4,60,robot_horse,ofport,members:2,3)", "unknown algorithm `robot_horse'"),
            ("bundle(symmetric_l4,60,hrw,robot_horse,members:2,3)", "unknown member_type `robot_horse'"),
            ("bundle(symmetric_l4,60,hrw,ofport)", "not enough arguments to bundle action"),
            ("bundle(symmetric_l4,60,hrw,ofport,2,3)", "missing member delimiter, expected `members', got `2,3'"),
            (
                "bundle_load(symmetric_l4,60,hrw,ofport,members:2,3)",
                "missing member delimiter, expected `members', got `3'",
            ),
            ("bundle(eth_src,60,hrw,ofport,robot:2,3)", "missing member delimiter, expected `members', got `robot'"),
            (
                "bundle(eth_src,60,hrw,ofport,members[2])",
                "missing member delimiter, expected `members', got `members[2]'",
            ),
            (
                "bundle_load(eth_src,60,hrw,ofport,actset_output,members:2,3,4)",
                "experimenter OXM field 'actset_output' not supported",
            ),
            ("multipath(eth_src,0,modulo_n,1,0,reg24[0..4])", "experimenter OXM field 'reg24[0..4]' not supported"),
        ] {
            let inner = text.split_once('(').and_then(|(_, t)| t.strip_suffix(')')).expect("an argument");
            let result = parse_instructions(text, &NoNames).map_err(|e| e.0);
            assert_eq!(result, Err(format!("{inner}: {message}")), "{text}");
        }
    }

    #[test]
    fn members_may_stand_in_brackets() {
        let printed = |text: &str| -> Result<String, String> {
            let text = format!("bundle(eth_src,0,hrw,ofport,{text})");
            let actions = parse_instructions(&text, &NoNames).map_err(|e| e.0)?;
            Ok(actions_to_string(&actions, &NoNames, Version::V10))
        };
        for members in ["members:[1,2]", "members:1,[2]]", "slaves:1 2", "MEMBERS: 1][2", "members:[1,2"] {
            assert_eq!(printed(members), Ok("bundle(eth_src,0,hrw,ofport,members:1,2)".into()), "{members}");
        }
        for none in ["members:[]", "members:", "members"] {
            assert_eq!(printed(none), Ok("bundle(eth_src,0,hrw,ofport,members:)".into()), "{none}");
        }
        assert_eq!(printed("members:1,xyzzy"), Err("xyzzy: bad port number".into()));
        assert_eq!(printed("members:1:2"), Err("1:2: bad port number".into()));
    }
}
