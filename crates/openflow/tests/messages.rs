//! Captured messages, by topic, in the folder `messages`: each is printed like Open vSwitch's `ovs-ofctl ofp-print` prints
//! it, and encoded to the same bytes again.
//!
//! A file is a list of cases separated by empty lines: bytes in hexadecimal, and the text in lines that begin with
//! `| `. `#` begins a remark. `!` before the bytes marks a message that is encoded differently: Open vSwitch would not send
//! it in this form, or it is refused. `FLOWSTONE_REFRESH=1` rewrites the texts from the current output.
//!
//! If there is an `ovs-ofctl` (see `peers.rs`), the texts are compared with its output.

use base::rng::Rng;
use openflow::message::{Options, decode_with, encode_with};
use openflow::print::{Style, print};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

struct Case {
    bytes: Vec<u8>,
    same: bool,
    text: String,
}

fn files() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages");
    let mut files: Vec<_> =
        std::fs::read_dir(dir).expect("the folder is there").map(|f| f.expect("readable").path()).collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hexadecimal")).collect()
}

fn cases(file: &Path) -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in std::fs::read_to_string(file).expect("readable").lines() {
        if let Some(text) = line.strip_prefix("| ").or((line == "|").then_some("")) {
            let case = cases.last_mut().expect("bytes come first");
            case.text.push_str(text);
            case.text.push('\n');
        } else if !line.is_empty() && !line.starts_with('#') {
            let hex = line.trim_start_matches('!');
            cases.push(Case { bytes: bytes(hex), same: hex == line, text: String::new() });
        }
    }
    cases
}

/// Rewrites the texts; everything else stays.
fn refresh(file: &Path) {
    let mut out = String::new();
    for line in std::fs::read_to_string(file).expect("readable").lines().filter(|l| !l.starts_with('|')) {
        let _ = writeln!(out, "{line}");
        if !line.is_empty() && !line.starts_with('#') {
            for text in print(&bytes(line.trim_start_matches('!')), Style::plain(2)).lines() {
                let _ = writeln!(out, "{}", format!("| {text}").trim_end());
            }
        }
    }
    std::fs::write(file, out).expect("writable");
}

/// Removes blanks at the ends of lines, which editors do not keep.
fn trimmed(text: &str) -> String {
    text.lines().fold(String::new(), |mut out, line| {
        let _ = writeln!(out, "{}", line.trim_end());
        out
    })
}

#[test]
fn messages_are_printed_as_open_vswitch_prints_them() {
    for file in files() {
        if std::env::var_os("FLOWSTONE_REFRESH").is_some() {
            refresh(&file);
        }
        for case in cases(&file) {
            assert_eq!(
                trimmed(&print(&case.bytes, Style::plain(2))),
                case.text,
                "{} {:02x?}",
                file.display(),
                case.bytes
            );
        }
    }
}

#[test]
fn messages_are_written_as_they_were_read() {
    let options = Options { flow_mod_table_id: true, ..Options::default() };
    for file in files() {
        for case in cases(&file).into_iter().filter(|c| c.same) {
            let place = format!("{} {:02x?}", file.display(), case.bytes);
            let (version, xid, message) = decode_with(&case.bytes, options).unwrap_or_else(|e| panic!("{place}: {e}"));
            assert_eq!(encode_with(version, xid, &message, options), case.bytes, "{place}: {message:?}");
        }
    }
}

/// A truncated message causes no panic, and every one that is decoded can be encoded.
#[test]
fn messages_cut_short_are_answered() {
    for case in files().iter().flat_map(|f| cases(f)) {
        for len in 8..case.bytes.len().min(400) {
            let mut cut = case.bytes[..len].to_vec();
            cut[2..4].copy_from_slice(&(len as u16).to_be_bytes());
            print(&cut, Style::plain(2));
            if let Ok((version, xid, message)) = decode_with(&cut, Options::default()) {
                assert!(!encode_with(version, xid, &message, Options::default()).is_empty(), "{message:?}");
            }
        }
    }
}

/// Damaged messages are printed without a panic, and those that are decoded round-trip through bytes.
#[test]
fn messages_that_are_damaged_do_no_harm() {
    let mut rng = Rng::seeded(1);
    for case in files().iter().flat_map(|f| cases(f)).filter(|c| c.bytes.len() <= 400) {
        for _ in 0..60 {
            let mut bytes = case.bytes.clone();
            for _ in 0..=rng.below(3) {
                // Version, type and length stay: messages of other types are separate cases.
                let at = 4 + rng.below(bytes.len() as u64 - 4) as usize;
                bytes[at] = [rng.next_u64() as u8, 0, 1, 0xff][rng.below(4) as usize];
            }
            print(&bytes, Style::plain(2));
            let Ok((version, xid, message)) = decode_with(&bytes, Options::default()) else { continue };
            let written = encode_with(version, xid, &message, Options::default());
            let (_, _, again) = decode_with(&written, Options::default())
                .unwrap_or_else(|e| panic!("{bytes:02x?}: {message:?} becomes {written:02x?}: {e}"));
            let again = encode_with(version, xid, &again, Options::default());
            assert_eq!(again, written, "{bytes:02x?}: {message:?}");
        }
    }
}

#[test]
fn the_texts_are_those_of_open_vswitch() {
    let Some(program) = oracle::program("ovs-ofctl") else { return };
    for case in files().iter().flat_map(|f| cases(f)) {
        let hex = case.bytes.iter().fold(String::new(), |mut hex, b| {
            let _ = write!(hex, "{b:02x}");
            hex
        });
        let output = Command::new(&program).args(["ofp-print", &hex]).output().expect("ovs-ofctl runs");
        assert_eq!(trimmed(&String::from_utf8_lossy(&output.stdout)), case.text, "{hex}");
    }
}

#[test]
fn errors_that_quote_errors_are_printed_however_deep() {
    // Each message quotes the one before it; as many as fit one message.
    let mut message = vec![4, 2, 0, 8, 0, 0, 0, 9];
    let mut depth = 0;
    while let Ok(length) = u16::try_from(message.len() + 12) {
        let length = length.to_be_bytes();
        let report = [4, 1, length[0], length[1], 0, 0, 0, 7, 0, 1, 0, 6];
        message.splice(..0, report);
        depth += 1;
    }
    let text = print(&message, Style::plain(2));
    assert_eq!(text.matches("OFPT_ERROR (OF1.3) (xid=0x7): OFPBRC_BAD_LEN\n").count(), depth);
    assert!(text.ends_with("OFPT_ECHO_REQUEST (OF1.3) (xid=0x9): 0 bytes of payload\n"));
}
