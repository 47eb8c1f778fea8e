//! Messages that random draws rarely contain: experimenter properties of each length, tables that differ in few
//! properties, tunnel options as on the wire, updates of monitors without a match, and the cases of rare exceptions.

use crate::make::{cat, message, padded, property};
use Version::{V10, V13, V14, V15};
use openflow::Version;
use openflow::types::WireNumber;

/// The messages, with kind and version.
pub(crate) fn messages() -> Vec<(&'static str, Version, Vec<u8>, bool)> {
    let mut all = Vec::new();
    // Experimenter properties of table features, of each length and type.
    let required: Vec<u8> = [0, 2, 4, 6, 8, 10, 12, 14].into_iter().flat_map(|ty| property(ty, &[])).collect();
    for (version, vendor, subtype) in [(V13, 0, 0), (V14, 0x2320, 0), (V14, 0x4f4e_4600, 1), (V15, 7, 1), (V15, 7, 2)] {
        for (ty, rest) in [(0xffff, 0), (0xffff, 1), (0xffff, 4), (0xffff, 8), (0xfffe, 0), (0xfffe, 8)] {
            let body = cat(&[&u32::to_be_bytes(vendor), &u32::to_be_bytes(subtype), &vec![1; rest]]);
            let table = features_of(1, 1, &cat(&[&required, &property(ty, &body)]));
            all.push(("table features", version, message(version, 5, WireNumber::Reply(12), false, &table)));
        }
        let table = features_of(1, 1, &cat(&[&required, &property(0xfffe, &[1, 2])]));
        all.push(("table features", version, message(version, 5, WireNumber::Request(12), false, &table)));
    }
    // Tables with equal fields that differ in masks, in wildcards, or in other features.
    let (exact, masked): ([u8; 8], [u8; 8]) = ([0x80, 0, 6, 6, 0x80, 0, 8, 6], [0x80, 0, 7, 12, 0x80, 0, 8, 6]);
    let fields = |matching: &[u8], wildcards: &[u8]| {
        let others: Vec<u8> = [0, 2, 4, 6, 12, 14].into_iter().flat_map(|ty| property(ty, &[])).collect();
        cat(&[&others, &property(8, matching), &property(10, wildcards)])
    };
    let choices = [fields(&exact, &exact), fields(&masked, &exact), fields(&exact, &[]), fields(&masked, &exact[..4])];
    for first in &choices {
        for second in &choices {
            for metadata in [1, 2] {
                let tables = cat(&[&features_of(1, 1, first), &features_of(2, metadata, second)]);
                all.push(("table features", V14, message(V14, 5, WireNumber::Reply(12), false, &tables)));
            }
        }
    }
    // Tunnel options in a match that is printed as it is on the wire.
    for entry in [
        &[0, 1, 0xce, 2, 0x8f, 0xf0][..],
        &[0, 1, 0xcf, 4, 0x8f, 0xf0, 0xff, 0xff],
        &[0, 1, 0x50, 4, 1, 2, 3, 4],
        &[0, 1, 0x50, 0],
    ] {
        let length = u16::try_from(entry.len()).expect("it is short");
        let head = cat(&[&[0; 8], &[0; 6], &[0, 9], &[0xff; 4], &[0xff; 2], &[0; 2], &length.to_be_bytes(), &[0; 6]]);
        let body = cat(&[&head, &padded(entry.to_vec())]);
        for version in [V10, V13] {
            all.push(("NX flow mod", version, message(version, 5, WireNumber::Nicira(13), false, &body)));
        }
    }
    // Updates without a match before others.
    for version in [V14, V15] {
        let update = |event: u8| cat(&[&[0, 32, 0, event, 7, 0], &[0; 18], &[0, 1, 0, 4, 0, 0, 0, 0]]);
        let body = cat(&[&update(1), &update(3)]);
        all.push(("flow monitor reply", version, message(version, 5, WireNumber::Reply(16), false, &body)));
    }
    // Errors that quote a message of a version that does not exist, and settings that Open vSwitch does not know.
    let quoted = cat(&[&[0, 1, 0, 1], &[0x10, 2, 0, 8, 0, 0, 0, 1]]);
    all.push(("error", V13, message(V13, 5, WireNumber::Type(1), false, &quoted)));
    for flags in [7u32, 8, u32::MAX] {
        let body = cat(&[&[1, 0, 0, 0, 0, 0, 0, 4], &property(2, &flags.to_be_bytes())]);
        all.push(("table mod", V14, message(V14, 5, WireNumber::Type(17), false, &body)));
    }
    // Matches on the extension headers of IPv6, and on ipv6_label with mask bits beyond its 20.
    let ipv6 = [0x80, 0, 0xa, 2, 0x86, 0xdd];
    let exthdr = oxm_match(&cat(&[&ipv6, &[0x80, 0, 0x4e, 2, 0, 1]]));
    let head = cat(&[&[0xff; 4], &[0, 0, 0, 1], &[0; 8]]);
    all.push(("packet in", V13, message(V13, 5, WireNumber::Type(10), false, &cat(&[&head, &exthdr, &[0; 2]]))));
    let label = oxm_match(&cat(&[&ipv6, &[0x80, 0, 0x39, 8, 0, 0, 0, 0x45, 0xff, 0xf0, 0, 0xff]]));
    let head = cat(&[&[0; 22], &[0, 9], &[0xff; 12], &[0; 4]]);
    all.push(("flow mod", V13, message(V13, 5, WireNumber::Type(14), false, &cat(&[&head, &label]))));
    // resubmit(1,,ct), and a set_field whose mask is all of ipv6_label.
    let resubmit = [0xff, 0xff, 0, 16, 0, 0, 0x23, 0x20, 0, 44, 0, 1, 0xff, 0, 0, 0];
    all.push((
        "packet out",
        V10,
        message(V10, 5, WireNumber::Type(13), false, &cat(&[&[0xff; 4], &[0, 1, 0, 16], &resubmit])),
    ));
    let set_field = [0, 25, 0, 16, 0x80, 0, 0x39, 8, 0, 0, 0, 5, 0, 0xf, 0xff, 0xff];
    let head = cat(&[&[0xff; 4], &[0, 16, 0, 0], &oxm_match(&[0x80, 0, 0, 4, 0, 0, 0, 1])]);
    all.push(("packet out", V15, message(V15, 5, WireNumber::Type(13), false, &cat(&[&head, &set_field]))));
    // The queues of reserved ports.
    for port in [0xfffeu16, 0xffff, 0xfff8] {
        let body = cat(&[&port.to_be_bytes(), &[0; 2]]);
        all.push(("queue config request", V10, message(V10, 5, WireNumber::Type(20), false, &body)));
    }
    // None of them is damaged.
    all.into_iter().map(|(kind, version, m)| (kind, version, m, false)).collect()
}

/// A match of OpenFlow 1.2 and later with these entries.
fn oxm_match(entries: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + entries.len()).expect("they are short");
    padded(cat(&[&[0, 1], &length.to_be_bytes(), entries]))
}

/// The features of a table with these properties.
fn features_of(table: u8, metadata_match: u64, properties: &[u8]) -> Vec<u8> {
    let length = u16::try_from(64 + properties.len()).expect("they are short");
    let numbers = cat(&[&metadata_match.to_be_bytes(), &[0; 8], &[0; 4], &[0, 0, 0, 5]]);
    cat(&[&length.to_be_bytes(), &[table, 0, 0, 0, 0, 0], b"t", &[0; 31], &numbers, properties])
}
