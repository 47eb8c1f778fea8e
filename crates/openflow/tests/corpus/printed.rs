//! Messages printed by Open vSwitch's `ovs-ofctl`, many in one run.

use std::path::Path;

/// A message whose text marks the end of the text before it.
const MARK: [u8; 8] = [1, 2, 0, 8, 0xc0, 0xde, 0, 0];

/// The texts of messages, each of which must have the length in its header; `None` if the program crashes while it prints
/// one.
pub(crate) fn texts(program: &Path, verbosity: &[&str], messages: &[&[u8]]) -> Vec<Option<String>> {
    let mut texts = Vec::new();
    while texts.len() < messages.len() {
        let rest = &messages[texts.len()..];
        let stream: Vec<u8> = rest.iter().flat_map(|m| m.iter().chain(&MARK)).copied().collect();
        // Line buffering keeps the output before a crash.
        let args = [verbosity, &["ofp-parse", "-"]].concat();
        let output = oracle::run(program, &args, &stream);
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut parts: Vec<&str> = stdout.split("OFPT_ECHO_REQUEST (xid=0xc0de0000): 0 bytes of payload\n").collect();
        let last = parts.pop().unwrap_or_default();
        assert!(parts.len() == rest.len() || !output.status.success(), "{last}");
        let dump = verbosity.iter().map(|v| v.matches('m').count()).sum::<usize>() > 2;
        let whole = |text: &str| {
            if !dump {
                return text.to_owned();
            }
            // The mark's own hex dump precedes the next text.
            text.strip_prefix("00000000  01 02 00 08 c0 de 00 00-                        |........        |\n")
                .unwrap_or(text)
                .to_owned()
        };
        texts.extend(parts.iter().map(|text| Some(whole(text))));
        if texts.len() < messages.len() {
            texts.push(None);
        }
    }
    texts
}
