//! Requests that a switch refuses, each with its error: messages that are well-formed except for one error. If there is an
//! `ovs-ofctl` (see `corpus`), such messages are compared with its output.

use openflow::message::{Message, Options, decode, decode_with};
use openflow::print::{Style, print};
use openflow::{Limits, OfpError, Version, check};

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

/// A message of this type, with the right length.
fn message(version: Version, ty: u8, body: &str) -> Vec<u8> {
    let body = bytes(body);
    let length = (8 + body.len() as u16).to_be_bytes();
    [&[version.wire(), ty, length[0], length[1], 0, 0, 0, 1][..], &body].concat()
}

fn error(message: &[u8]) -> Option<OfpError> {
    decode(message).err().map(|e| e.error)
}

fn shown(message: &[u8]) -> bool {
    decode_with(message, Options { shown: true, ..Options::default() }).is_ok()
}

/// A flow mod that adds a flow to table 3, with these match entries and instructions.
fn flow_mod(version: Version, matching: &str, instructions: &str) -> Vec<u8> {
    let n = bytes(matching).len();
    let padding = "00".repeat((4 + n).next_multiple_of(8) - 4 - n);
    let head = "0000000000000000 0000000000000000 03 00 0000 0000 0001 ffffffff ffffffff ffffffff 0000 0000";
    message(version, 14, &format!("{head} 0001 {:04x} {matching} {padding} {instructions}", 4 + n))
}

#[test]
fn setting_a_vlan_id_requires_the_presence_bit() {
    let set = |version, entry: &str| {
        error(&flow_mod(version, "80000c02 1005", &format!("0004 0018 00000000 0019 0010 {entry}")))
    };
    for version in [Version::V12, Version::V13, Version::V14, Version::V15] {
        assert_eq!(set(version, "80000c02 1005 0000 00000000"), None);
        assert_eq!(set(version, "80000c02 0005 0000 00000000"), Some(OfpError::BacBadSetArgument));
    }
    assert_eq!(set(Version::V15, "80000d04 1005 10ff 00000000"), None);
    assert_eq!(set(Version::V15, "80000d04 0005 0fff 00000000"), Some(OfpError::BacBadSetArgument));
}

#[test]
fn invalid_connections_are_not_committed() {
    // ct_state=+inv+trk,ip and ct of zone 0, with or without the flag for committing.
    let ct = |flags: &str| {
        let action = format!("ffff 0018 00002320 0023 {flags} 00000000 0000 ff 000000 0000");
        let matching = "80000a02 0800 0001d308 00000030 00000030";
        let message = flow_mod(Version::V13, matching, &format!("0004 0020 00000000 {action}"));
        decoded_and_checked(&message)
    };
    assert_eq!(ct("0000"), Ok(()));
    assert_eq!(ct("0001"), Err(OfpError::BacMatchInconsistent));
}

/// Decodes a flow mod and checks its actions, as the switch does.
fn decoded_and_checked(message: &[u8]) -> Result<(), OfpError> {
    let (_, _, decoded) = decode(message).map_err(|e| e.error)?;
    let Message::FlowMod(_, fm) = decoded else { panic!("a flow mod: {decoded:?}") };
    check(&fm.actions, &fm.matching, &Limits::new(Version::V13, 255))
}

#[test]
fn reserved_bytes_of_bundle_are_zero() {
    let bundle = |reserved: &str| {
        let action =
            format!("ffff 0028 00002320 000c 0001 0000 0000 00000002 0002 0000 00000000 {reserved} 0001 0002 00000000");
        error(&flow_mod(Version::V13, "", &format!("0004 0030 00000000 {action}")))
    };
    assert_eq!(bundle("00000000"), None);
    assert_eq!(bundle("00000100"), Some(OfpError::BacBadArgument));
}

#[test]
fn the_vendor_of_an_action_is_checked_first() {
    // 8 bytes, which is too short for any action of Nicira's.
    let apply = |action: &str| error(&flow_mod(Version::V13, "", &format!("0004 0010 00000000 {action}")));
    assert_eq!(apply("ffff 0008 00000007"), Some(OfpError::BacBadVendor));
    assert_eq!(apply("ffff 0008 00002320"), Some(OfpError::BacBadLen));
}

#[test]
fn tunnel_options_have_124_bytes_at_most() {
    let length = |n: usize| error(&flow_mod(Version::V13, &format!("000150 {n:02x} {}", "00".repeat(n)), ""));
    assert_eq!((length(124), length(128)), (None, Some(OfpError::BmcBadField)));
}

#[test]
fn packets_are_sent_with_fields_of_the_pipeline() {
    let sent = |field: &str| {
        let n = 12 + bytes(field).len();
        let padding = "00".repeat(n.next_multiple_of(8) - n);
        error(&message(
            Version::V15,
            13,
            &format!("ffffffff 0000 0000 0001 {n:04x} 80000004 00000001 {field} {padding}"),
        ))
    };
    for field in ["80000408 0000000000000005", "00010204 00000001", "80005804 00010800", "00012008 0000000000000007"] {
        assert_eq!(sent(field), None, "{field}");
    }
    // The packet mark, the connection state, a conjunction id, an Ethernet type.
    for field in ["00014204 00000001", "0001d204 00000000", "00014a04 00000001", "80000a02 0800"] {
        assert_eq!(sent(field), Some(OfpError::BrcPipelineFieldsOnly), "{field}");
    }
}

#[test]
fn a_method_of_selection_is_for_groups_as_a_whole() {
    let method = "ffff 0028 0000154d 00000001 00000000 64705f6861736800 0000000000000000 0000000000000007";
    let command = |n: u16, bucket: &str| {
        error(&message(Version::V15, 15, &format!("{n:04x} 01 00 00000005 0000 0000 {bucket} {method}")))
    };
    assert_eq!((command(0, "ffffffff"), command(1, "ffffffff")), (None, None));
    for (n, bucket) in [(2, "ffffffff"), (3, "fffffffe"), (5, "fffffffe")] {
        assert_eq!(command(n, bucket), Some(OfpError::BpcBadValue), "{n}");
    }
}

/// Features of table 1 with the required properties and `more`.
fn table_features(version: Version, more: &str) -> Vec<u8> {
    let required: String = (0..8).map(|n| format!("{:04x} 0004 00000000", 2 * n)).collect();
    let length = 64 + bytes(&required).len() + bytes(more).len();
    let head = format!("{length:04x} 01 00 00000000 {} {}", "00".repeat(32), "00".repeat(24));
    message(version, 18, &format!("000c 0000 00000000 {head} {required} {more}"))
}

#[test]
fn features_of_tables_have_each_property_once_and_known_fields() {
    for version in [Version::V13, Version::V14, Version::V15] {
        assert_eq!(error(&table_features(version, "")), None);
        assert_eq!(error(&table_features(version, "0000 0004 00000000")), Some(OfpError::TffcBadFeatures));
        // No table has the number 255.
        assert_eq!(error(&table_features(version, "0003 0005 ff 000000")), Some(OfpError::BpcBadValue));
        // Printing skips unknown properties.
        let property = table_features(version, "0018 0004 00000000");
        let field = table_features(version, "000d 0008 80007c04");
        assert_eq!((error(&property), error(&field)), (Some(OfpError::BpcBadType), Some(OfpError::BmcBadField)));
        assert!(shown(&property) && shown(&field));
    }
}

#[test]
fn changes_of_ports_have_known_properties() {
    let change = |property: &str| {
        message(Version::V14, 16, &format!("00000001 00000000 000000000001 0000 00000000 00000000 {property}"))
    };
    assert_eq!(error(&change("0000 0008 00000020")), None);
    let unknown = change("0005 0008 00000020");
    assert_eq!(error(&unknown), Some(OfpError::BpcBadType));
    assert!(shown(&unknown));
}

#[test]
fn an_experimenters_statistics_of_openflow_10_need_no_type() {
    assert_eq!(error(&message(Version::V10, 16, "ffff 0000 00000007")), Some(OfpError::BrcBadVendor));
    assert_eq!(error(&message(Version::V10, 16, "ffff 0000 00002320")), Some(OfpError::BrcBadLen));
}

#[test]
fn flags_of_monitors_are_checked_before_their_ports() {
    // A port that does not exist, and no event.
    let request = "ffff 0000 00000000 4f4e4600 0000074e 00000001 0000 0004 fffffe00 ff 000000 0001 0004 00000000";
    assert_eq!(error(&message(Version::V13, 18, request)), Some(OfpError::MofcBadFlags));
}

#[test]
fn bits_of_other_versions_are_no_capability_in_openflow_10() {
    let features = message(Version::V10, 6, "0000000000000001 00000000 01 00 0000 80000000 00000000");
    assert!(print(&features, Style::plain(0)).contains("capabilities: 0\n"));
}

#[test]
fn types_of_packets_are_printed_as_digits_or_hexadecimal() {
    for (entry, text) in [("80005804 00010800", "(1,0x800)"), ("80005804 80010009", "(0x8001,9)")] {
        let text = format!("packet_type={text}");
        assert!(print(&flow_mod(Version::V13, entry, ""), Style::plain(0)).contains(&text), "{text}");
    }
}
