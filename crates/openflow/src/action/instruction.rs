//! Instructions (OpenFlow 1.3 sections 5.9 and 7.2.4) from and to bytes, merged into one list with the actions: the
//! actions of Apply-Actions stand by themselves, and each other instruction is an [`Action`] of its own, in the order of
//! execution.

use super::decode::{decode_list, decode_list_into};
use super::encode::{Encoder, standard};
use super::{Action, check};
use crate::error::OfpError;
use crate::version::Version;
use crate::wire::{Reader, Writer};
use flow::Match;

const LEN: OfpError = OfpError::BicBadLen;

/// Reads a flow's actions: a list of actions in OpenFlow 1.0, of instructions later. `bytes` is the rest of the
/// message or of the flow's entry.
pub fn decode_flow_actions(bytes: &[u8], version: Version) -> Result<Vec<Action>, OfpError> {
    let mut actions = Vec::new();
    decode_flow_actions_into(bytes, version, &mut actions)?;
    check::verify_decoded(&actions, check::Allowed::Flow)?;
    Ok(actions)
}

/// Does the same into `actions`, which must be empty, without [`verify`](super::check::verify).
pub(crate) fn decode_flow_actions_into(
    bytes: &[u8],
    version: Version,
    actions: &mut Vec<Action>,
) -> Result<(), OfpError> {
    match version {
        Version::V10 => decode_list_into(bytes, version, 0, actions),
        _ => decode_instructions_into(bytes, version, actions),
    }
}

/// Reads a list of instructions to the end of `bytes` (OpenFlow 1.1 and later).
///
/// Errors: `OFPBIC_BAD_LEN`, `OFPBIC_UNKNOWN_INST`, `OFPBIC_BAD_EXPERIMENTER`,
/// `OFPBIC_DUP_INST`, and those of [`decode_actions`](super::decode::decode_actions).
pub fn decode_instructions(bytes: &[u8], version: Version) -> Result<Vec<Action>, OfpError> {
    let mut actions = Vec::new();
    decode_instructions_into(bytes, version, &mut actions)?;
    check::verify_decoded(&actions, check::Allowed::Flow)?;
    Ok(actions)
}

fn decode_instructions_into(bytes: &[u8], version: Version, actions: &mut Vec<Action>) -> Result<(), OfpError> {
    if !bytes.len().is_multiple_of(8) {
        return Err(LEN);
    }
    // By type, in the order in which they are executed: apply, clear, write actions, write metadata, goto; and meter, which
    // comes before them all.
    let mut found: [Option<Reader<'_>>; 6] = [const { None }; 6];
    let mut r = Reader::reporting(bytes, LEN);
    while !r.is_empty() {
        let mut header = r.clone();
        let (ty, length) = (header.u16()?, usize::from(header.u16()?));
        let whole = r.bytes(length)?;
        if length < 8 || !length.is_multiple_of(8) {
            return Err(LEN);
        }
        let (slot, fixed) = match ty {
            4 => (0, None),
            5 => (1, Some(8)),
            3 => (2, None),
            2 => (3, Some(24)),
            1 => (4, Some(8)),
            // OpenFlow 1.5 replaces it by an action. Before 1.3 we accept it, as Open vSwitch does, but never send it.
            6 if version < Version::V15 || length != 8 => (5, Some(8)),
            0xffff => return Err(OfpError::BicBadExperimenter),
            _ => return Err(OfpError::BicUnknownInst),
        };
        if fixed.is_some_and(|n| n != length) {
            return Err(LEN);
        }
        if found[slot].is_some() {
            return Err(OfpError::BicDupInst);
        }
        found[slot] = Some(Reader::reporting(whole.get(4..).unwrap_or_default(), LEN));
    }

    let [apply, clear, write, metadata, goto, meter] = found;
    // Skips the padding.
    fn list<'a>(r: &Reader<'a>) -> &'a [u8] {
        r.peek().get(4..).unwrap_or_default()
    }
    if let Some(mut r) = meter {
        actions.push(Action::Meter(r.u32()?));
    }
    if let Some(r) = apply {
        decode_list_into(list(&r), version, 0, actions)?;
    }
    if clear.is_some() {
        actions.push(Action::ClearActions);
    }
    if let Some(r) = write {
        let set = decode_list(list(&r), version, 0)?;
        if !set.iter().all(check::is_allowed_in_set) {
            return Err(OfpError::BacBadType);
        }
        actions.push(Action::WriteActions(set));
    }
    if let Some(mut r) = metadata {
        r.skip(4)?;
        actions.push(Action::WriteMetadata { value: r.u64()?, mask: r.u64()? });
    }
    if let Some(mut r) = goto {
        actions.push(Action::GotoTable(r.u8()?));
    }
    Ok(())
}

/// Appends a flow's actions: a list of actions in OpenFlow 1.0, of instructions later.
pub fn encode_flow_actions(out: &mut Writer, actions: &[Action], version: Version, matching: &Match) {
    if version == Version::V10 {
        Encoder::new(version, matching).list(out, actions);
    } else {
        encode_instructions(out, actions, version, matching);
    }
}

/// Appends instructions (OpenFlow 1.1 and later): Apply-Actions with all actions, then the others.
pub fn encode_instructions(out: &mut Writer, actions: &[Action], version: Version, matching: &Match) {
    let mut encoder = Encoder::new(version, matching);
    if let (Version::V13 | Version::V14, Some(Action::Meter(id))) = (version, actions.first()) {
        standard(out, 6, |b| b.put_u32(*id));
    }
    let applied = |a: &Action| !a.is_instruction() || version >= Version::V15 && matches!(a, Action::Meter(_));
    if actions.iter().any(applied) {
        let mut list = out.nested();
        // The encoder skips instructions; if it writes nothing at all, Apply-Actions is left out.
        encoder.list(&mut list, actions);
        if !list.is_empty() {
            standard(out, 4, |b| {
                b.zeros(4);
                b.append(&list);
            });
        }
    }
    for action in actions {
        match action {
            Action::ClearActions => standard(out, 5, |b| b.zeros(4)),
            // An empty set changes nothing.
            Action::WriteActions(actions) if actions.is_empty() => {}
            Action::WriteActions(actions) => standard(out, 3, |b| {
                b.zeros(4);
                encoder.list(b, actions);
            }),
            Action::WriteMetadata { value, mask } => standard(out, 2, |b| {
                b.zeros(4);
                b.put_u64(*value);
                b.put_u64(*mask);
            }),
            Action::GotoTable(table) => standard(out, 1, |b| b.put_u8(*table)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actions_to_string;
    use crate::parse_instructions;
    use flow::NoNames;

    #[test]
    fn empty_write_actions_are_not_sent() {
        for (text, kept) in [
            ("write_actions(drop)", "drop"),
            ("write_actions()", "drop"),
            ("write_actions(drop),goto_table:1", "goto_table:1"),
            ("write_actions(output:1)", "write_actions(output:1)"),
        ] {
            let actions = parse_instructions(text, &NoNames).expect(text);
            let mut out = Writer::new();
            encode_instructions(&mut out, &actions, Version::V13, &Match::ANY);
            let read = decode_instructions(&out, Version::V13).expect(text);
            assert_eq!(actions_to_string(&read, &NoNames, Version::V13), kept, "{text}");
        }
        // A switch that receives the instruction shows it.
        let read = decode_instructions(&[0, 3, 0, 8, 0, 0, 0, 0], Version::V13).expect("an instruction");
        assert_eq!(actions_to_string(&read, &NoNames, Version::V13), "write_actions(drop)");
    }
}
