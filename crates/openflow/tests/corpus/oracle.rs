//! Open vSwitch's `ovs-ofctl`: run on many messages or flows at once.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The program, if there is one.
pub(crate) fn program() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os("FLOWSTONE_PEERS") {
        return Some(PathBuf::from(dir).join("bin/ovs-ofctl"));
    }
    let ci = std::env::var("CI").is_ok_and(|v| v == "true");
    assert!(!ci, "FLOWSTONE_PEERS must name a folder with bin/ovs-ofctl when CI=true");
    println!("skipped: FLOWSTONE_PEERS is unset, so there is no ovs-ofctl to compare with");
    None
}

/// Runs it with this input.
pub(crate) fn run(program: &Path, args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("ovs-ofctl runs");
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || drop(stdin.write_all(&input)));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("the writer does not panic");
    output
}

/// What it says is wrong, without the name of the program and without what it logs.
pub(crate) fn errors(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let lines = stderr.lines().filter(|l| !["|WARN|", "|ERR|", "|INFO|"].iter().any(|level| l.contains(level)));
    lines.map(|l| l.strip_prefix("ovs-ofctl: ").unwrap_or(l)).collect::<Vec<_>>().join("\n")
}

/// A message whose text ends that of the one before.
const MARK: [u8; 8] = [1, 2, 0, 8, 0xc0, 0xde, 0, 0];

/// The texts of messages, each of which has the length that its header says; `None` where the program ends in the middle
/// of one.
pub(crate) fn print(program: &Path, verbosity: &[&str], messages: &[&[u8]]) -> Vec<Option<String>> {
    let mut texts = Vec::new();
    while texts.len() < messages.len() {
        let rest = &messages[texts.len()..];
        let stream: Vec<u8> = rest.iter().flat_map(|m| m.iter().chain(&MARK)).copied().collect();
        // Line by line, so that what was printed is there when the program is not.
        let args = [verbosity, &["ofp-parse", "-"]].concat();
        let output = run(program, &args, &stream);
        let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
        let mut parts: Vec<&str> = stdout.split("OFPT_ECHO_REQUEST (xid=0xc0de0000): 0 bytes of payload\n").collect();
        let last = parts.pop().unwrap_or_default();
        assert!(parts.len() == rest.len() || !output.status.success(), "{last}");
        let dump = verbosity.iter().map(|v| v.matches('m').count()).sum::<usize>() > 2;
        let whole = |text: &str| {
            if !dump {
                return text.to_owned();
            }
            // The mark's own dump stands in front of the next text.
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
