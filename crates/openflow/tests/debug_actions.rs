//! Actions for tests of a switch: messages have them only where a program allows them, which is a state of the process.

use flow::{Match, NoNames};
use openflow::wire::Writer;
use openflow::{Action, OfpError, Version, actions_to_string, decode_actions, encode_actions, parse_instructions};

#[test]
fn debug_actions_are_refused_unless_the_program_allows_them() {
    let list = [Action::DebugSlow, Action::DebugRecirc];
    let text = "debug_slow,debug_recirc";
    assert_eq!(parse_instructions(text, &NoNames).as_deref(), Ok(&list[..]));
    // Open vSwitch ignores an argument.
    assert_eq!(parse_instructions("debug_slow(3),debug_recirc:x", &NoNames).as_deref(), Ok(&list[..]));
    let bytes = Version::ALL.map(|version| {
        let mut bytes = Writer::new();
        encode_actions(&mut bytes, &list, version, &Match::ANY);
        (version, bytes)
    });
    let one = |n: u8| [255, 255, 0, 16, 0, 0, 0x23, 0x20, 0, n, 0, 0, 0, 0, 0, 0];
    for (version, bytes) in &bytes {
        assert_eq!(bytes[..], [one(254), one(255)].concat(), "{version:?}");
        assert_eq!(decode_actions(bytes, *version), Err(OfpError::BacBadVendorType));
    }
    // A wrong length is reported first.
    let long = [&[255, 255, 0, 24], &one(254)[4..], &[0; 8]].concat();
    assert_eq!(decode_actions(&long, Version::V13), Err(OfpError::BacBadLen));
    openflow::allow_debug_actions();
    for (version, bytes) in &bytes {
        assert_eq!(decode_actions(bytes, *version).as_deref(), Ok(&list[..]));
        assert_eq!(actions_to_string(&list, &NoNames, *version), text);
    }
}
