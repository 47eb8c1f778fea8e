//! The contexts and values that single fields allow: each field in messages of its own, compared with Open vSwitch.

use crate::make::{cat, message, padded};
use flow::Field;
use flow::field::FIELDS;
use openflow::Version::{self, V12, V13, V14, V15};
use openflow::nxm::{Dialect, Header};
use openflow::print::{Style, print};
use openflow::types::WireNumber;

/// Header, value and perhaps a mask, each repeated to the width of the field.
fn entry(header: Header, value: &[u8]) -> Vec<u8> {
    let mut out = openflow::wire::Writer::new();
    header.encode(&mut out);
    out.put(value);
    out.to_vec()
}

/// Fields that Open vSwitch lacks, and fields whose values and match masks it does not check.
fn is_excepted(field: Field) -> bool {
    matches!(field, Field::PbbIsid | Field::PbbUca | Field::Ipv6Exthdr)
        || (Field::TunErspanIdx..=Field::TunGtpuMsgtype).contains(&field)
}

/// All fields with a number in `version`, with some values and masks.
fn entries(version: Version) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for info in FIELDS.iter().filter(|info| !is_excepted(info.id)) {
        let Some(exact) = Header::of(info.id, false, Dialect::Oxm(version)) else { continue };
        // Tunnel options have no fixed width.
        let n = if info.wire_bytes() > 16 { 8 } else { info.wire_bytes() };
        let low = |byte: u8| [vec![0; n - 1], vec![byte]].concat();
        let mut high = low(5);
        high[0] |= 0x10;
        for value in [low(0), low(1), low(2), low(5), low(0xff), high, vec![0xff; n]] {
            all.push(entry(Header { payload: n, ..exact }, &value));
            let masked = Header { payload: 2 * n, has_mask: true, ..exact };
            all.push(entry(masked, &cat(&[&value, &vec![0xff; n]])));
            all.push(entry(masked, &cat(&[&value, &value])));
        }
        all.push(entry(Header { payload: 0, ..exact }, &[]));
        all.push(entry(Header { payload: n + 1, ..exact }, &vec![0; n + 1]));
        all.push(entry(Header { payload: 140, ..exact }, &[0; 140]));
    }
    all
}

fn with_match(entries: &[u8]) -> Vec<u8> {
    padded(cat(&[&[0, 1], &(4 + entries.len() as u16).to_be_bytes(), entries]))
}

fn flow_mod(version: Version, instructions: &[u8]) -> Vec<u8> {
    let head = cat(&[&[0; 16], &[3, 0], &[0; 6], &[0xff; 12], &[0; 4]]);
    message(version, 1, WireNumber::Type(14), false, &cat(&[&head, &with_match(&[]), instructions]))
}

/// Compares the text of messages. `excepted` gets our text and that of Open vSwitch, and returns true for intended
/// differences.
fn compare(messages: &[Vec<u8>], excepted: impl Fn(&str, &str) -> bool) {
    let Some(ofctl) = oracle::program("ovs-ofctl") else { return };
    let bytes: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    let (mut wrong, mut n) = (Vec::new(), 0);
    for (message, theirs) in messages.iter().zip(crate::printed::texts(&ofctl, &[], &bytes)) {
        let (ours, theirs) = (print(message, Style::plain(2)), theirs.unwrap_or_default());
        if ours.trim_end() == theirs.trim_end() {
            continue;
        }
        if excepted(&ours, &theirs) {
            n += 1;
            continue;
        }
        wrong.push(format!("#### {}\n--- ours\n{ours}--- theirs\n{theirs}", crate::hex(message)));
    }
    assert!(wrong.is_empty(), "{}", crate::some(&wrong));
    tally::report!("{} messages with a field each, of which {n} are excepted", messages.len());
}

#[test]
fn packets_are_sent_with_the_same_fields() {
    const IN_PORT: [u8; 8] = [0x80, 0, 0, 4, 0, 0, 0, 3];
    let messages: Vec<Vec<u8>> = entries(V15)
        .iter()
        .map(|entry| {
            let metadata = with_match(&cat(&[&IN_PORT, entry]));
            message(V15, 1, WireNumber::Type(13), false, &cat(&[&[0xff; 4], &[0; 4], &metadata, &[1; 14]]))
        })
        .collect();
    compare(&messages, |_, _| false);
}

#[test]
fn the_same_values_are_set() {
    let set = |version: Version, entry: &Vec<u8>| {
        let action = padded(cat(&[&[0, 25, 0, 0], entry]));
        let length = (action.len() as u16).to_be_bytes();
        let list = cat(&[&[0, 4], &(8 + action.len() as u16).to_be_bytes(), &[0; 4], &[0, 25], &length, &action[4..]]);
        flow_mod(version, &list)
    };
    let messages: Vec<Vec<u8>> =
        [V12, V13, V14, V15].iter().flat_map(|v| entries(*v).iter().map(|e| set(*v, e)).collect::<Vec<_>>()).collect();
    // For lengths that no field has, Open vSwitch's choice between the two errors is accidental.
    let refused = |text: &str| text.contains("OFPBAC_BAD_SET_LEN") || text.contains("OFPBAC_BAD_SET_TYPE");
    compare(&messages, move |ours, theirs| refused(ours) && refused(theirs));
}
