//! The text of a packet's key in the syntax of `ofproto/trace` and `netdev-dummy/receive`: each field once, without
//! masks, after its prerequisites.

use super::PortNames;
use super::error::MatchError;
use super::parse::{field_by_name, next_key_value, parse_protocol};
use super::value::parse_value;
use crate::field::{Field, Loc, Prereq};
use crate::key::FlowKey;
use crate::matches::Match;
use crate::options::TunOption;
use crate::placed::OptionTable;
use base::PortNo;

/// Errors in the text of a key. The messages are those of Open vSwitch.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what each is")]
pub enum ExactError {
    #[error("unknown field {0}")]
    Unknown(String),
    #[error("prerequisites not met for setting {0}")]
    Prerequisites(String),
    #[error("field {0} set multiple times")]
    Twice(String),
    #[error("{0} set multiple times")]
    ProtocolTwice(&'static str),
    #[error("bad value for {0} ({1})")]
    Value(String, MatchError),
    #[error("bad value for {0} ({1}: wildcards not allowed here)")]
    Wildcard(String, String),
}

/// The TCI bit that marks a VLAN tag as present in a key.
const VLAN_PRESENT: u16 = 0x1000;
/// Tag protocol id of an IEEE 802.1Q tag.
const TPID_8021Q: u16 = 0x8100;

/// Parses a key. Fields that are not given are zero, except for the ingress port, which is [`PortNo::NONE`].
pub fn parse_exact(text: &str, ports: &dyn PortNames) -> Result<FlowKey, ExactError> {
    parse_exact_with(text, ports, &OptionTable::default())
}

/// Like [`parse_exact`], with the locations of tunnel options. Options without a location are parsed and ignored;
/// values that are too long lose their first bytes.
pub fn parse_exact_with(text: &str, ports: &dyn PortNames, options: &OptionTable) -> Result<FlowKey, ExactError> {
    let mut m = parse_exact_match(text, ports)?;
    if m.get(Field::InPortOxm).1 == 0 {
        m.set(Field::InPortOxm, PortNo::NONE.0.into());
    }
    let mut key = m.key().clone();
    // The packet type of an L3 packet implies its Ethernet type.
    let packet_type = key.get(Field::PacketType);
    if packet_type >> 16 == 1 {
        key.set(Field::EthType, packet_type & 0xffff);
    }
    for option in m.options() {
        if let Some(placed) = options.get(option.field()) {
            placed.set(&mut key, 0, 0, 0);
            let words = option.value().rchunks(4).zip(0..placed.n_bits() / 32);
            for (bytes, n) in words {
                placed.put_word(&mut key, n, bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte)));
            }
        }
    }
    // The text cannot give the tag protocol, so it is IEEE 802.1Q's.
    let (tpid, tci) = key.vlan(0);
    if tci & VLAN_PRESENT != 0 && tpid == 0 {
        key.set_vlan(0, TPID_8021Q, tci);
    }
    Ok(key)
}

/// Parses the same syntax as a match of the given fields (ovs-vswitchd.conf.db(5), Mirror:filter).
pub fn parse_exact_match(text: &str, ports: &dyn PortNames) -> Result<Match, ExactError> {
    let mut m = Match::ANY;
    let mut rest = text;
    while let Some((name, value)) = next_key_value(&mut rest) {
        match parse_protocol(name) {
            Some((Some(eth_type), proto)) => {
                set_once(&mut m, Field::EthType, eth_type.into(), "Ethernet type")?;
                if let Some(proto) = proto {
                    set_once(&mut m, Field::IpProto, proto.into(), "network protocol")?;
                }
            }
            _ => exact_field(&mut m, name, value.unwrap_or(""), ports)?,
        }
    }
    Ok(m)
}

fn set_once(m: &mut Match, field: Field, value: u128, what: &'static str) -> Result<(), ExactError> {
    if m.get(field).1 != 0 {
        return Err(ExactError::ProtocolTwice(what));
    }
    m.set(field, value);
    Ok(())
}

fn exact_field(m: &mut Match, name: &str, text: &str, ports: &dyn PortNames) -> Result<(), ExactError> {
    let field = field_by_name(name).ok_or_else(|| ExactError::Unknown(name.into()))?;
    let prereq = field.info().prereq;
    if prereq != Prereq::Ethernet && !m.meets(prereq) {
        return Err(ExactError::Prerequisites(name.into()));
    }
    if let Loc::TunMetadata(_) = field.info().loc {
        let option = TunOption::parse(field, text).map_err(|e| ExactError::Value(name.into(), e))?;
        let masked = option.mask().is_some();
        return match (m.set_option(option), masked) {
            (false, _) => Err(ExactError::Twice(name.into())),
            (true, true) => Err(ExactError::Wildcard(name.into(), text.into())),
            (true, false) => Ok(()),
        };
    }
    let (value, mask) = parse_value(field, text, ports).map_err(|e| ExactError::Value(name.into(), e))?;
    // Several fields are views of a VLAN tag, so they may be given together.
    let views = [Field::VlanTci, Field::VlanVid, Field::VlanPcp, Field::DlVlan, Field::DlVlanPcp];
    if m.get(field).1 != 0 && !views.contains(&field) {
        return Err(ExactError::Twice(name.into()));
    }
    if mask != field.info().full_mask() {
        return Err(ExactError::Wildcard(name.into(), text.into()));
    }
    m.set(field, value);
    Ok(())
}
