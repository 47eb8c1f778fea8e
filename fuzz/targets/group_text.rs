//! Any text as a group, as for `ovs-ofctl add-groups`: an encoded group encodes the same after decoding.
#![no_main]

use flow::NoNames;
use openflow::print::{Style, print};
use openflow::{GroupCommand, Message, Version, decode, encode, parse_group, parse_group_line};

fuzz::target!(|bytes: &[u8]| {
    let Some(text) = fuzz::text(bytes) else { return };
    for command in [GroupCommand::Delete, GroupCommand::InsertBucket, GroupCommand::RemoveBucket] {
        let _ = parse_group(text, command, &NoNames);
    }
    let Ok(parsed) = parse_group_line(text, &NoNames) else { return };
    let message = Message::GroupMod(parsed.group_mod);
    for version in [Version::V10, Version::V13, Version::V15] {
        let written = encode(version, 1, &message);
        print(&written, Style::plain(2));
        // Some groups can be sent, but not received, as with ovs-ofctl: two buckets of the same id, for one.
        if let Ok((_, _, again)) = decode(&written) {
            assert_eq!(encode(version, 1, &again), written, "{text} in {version:?}");
        }
    }
});
