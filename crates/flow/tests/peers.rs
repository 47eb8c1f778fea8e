//! Compares keys and match texts with Open vSwitch's `ovs-ofctl` on generated corpora.
//!
//! The program is in the directory `$FLOWSTONE_PEERS/bin`. Without that variable the tests are skipped, except under
//! `CI=true`, where they fail.

mod corpus;

use base::PortNo;
use base::rng::Rng;
use flow::text::{NoNames, flow_key_to_string, match_to_string, parse_match};
use std::process::Command;

fn hex(bytes: &[u8]) -> String {
    format!("{bytes:02x?}").replace([',', ' ', '[', ']'], "")
}

fn seeds() -> (u64, usize) {
    let var = |name, default| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    (var("FLOWSTONE_SEED", 1), var("FLOWSTONE_CASES", 4000) as usize)
}

/// Removes fields that Open vSwitch does not have.
fn without_our_own(text: &str) -> String {
    let ours = |field: &&str| ["ipv6_exthdr=", "pbb_isid=", "pbb_uca="].iter().any(|name| field.starts_with(name));
    text.split(',').filter(|field| !ours(field)).collect::<Vec<_>>().join(",")
}

#[test]
fn keys_of_frames() {
    let Some(ofctl) = oracle::program("ovs-ofctl") else { return };
    let (seed, cases) = seeds();
    let mut rng = Rng::seeded(seed);
    let frames: Vec<_> = (0..cases).map(|_| corpus::frames::frame(&mut rng)).collect();
    let file = tempfile::NamedTempFile::new().expect("temporary file");
    std::fs::write(file.path(), corpus::frames::pcap(&frames)).expect("write");
    let out = Command::new(&ofctl).arg("parse-pcap").arg(file.path()).output().expect("run ovs-ofctl");
    let text = String::from_utf8_lossy(&out.stdout);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), frames.len(), "{}", String::from_utf8_lossy(&out.stderr));
    let mut wrong = 0;
    for (f, theirs) in frames.iter().zip(lines) {
        let ours = without_our_own(&flow_key_to_string(&flow::extract(f, PortNo::NONE).0, &NoNames));
        if ours != theirs {
            wrong += 1;
            if wrong < 10 {
                eprintln!("frame  {}\nours   {ours}\ntheirs {theirs}\n", hex(f));
            }
        }
    }
    tally::report!("{} frames", frames.len());
    assert_eq!(wrong, 0, "of {}", frames.len());
}

/// The canonical text of a match.
fn canonical(text: &str) -> Result<String, String> {
    let mut m = parse_match(text, &NoNames).map_err(|e| e.to_string())?;
    m.normalize(&NoNames);
    Ok(match_to_string(&m, &NoNames))
}

#[test]
fn canonical_text_of_matches() {
    let Some(ofctl) = oracle::program("ovs-ofctl") else { return };
    let (seed, cases) = seeds();
    let mut rng = Rng::seeded(seed);
    let texts: Vec<_> = (0..cases).map(|_| corpus::matches::valid(&mut rng)).collect();
    let file = tempfile::NamedTempFile::new().expect("temporary file");
    let flows = texts.join(" actions=drop\n") + " actions=drop\n";
    std::fs::write(file.path(), flows).expect("write");
    let out = Command::new(&ofctl).args(["-F", "NXM-table_id", "parse-flows"]).arg(file.path()).output();
    let out = out.expect("run ovs-ofctl");
    let stdout = String::from_utf8_lossy(&out.stdout);
    let lines: Vec<_> = stdout.lines().filter_map(|l| l.strip_prefix("NXT_FLOW_MOD (xid=0x")).collect();
    assert_eq!(lines.len(), texts.len(), "{}", String::from_utf8_lossy(&out.stderr));
    let (mut wrong, mut compared) = (0, 0);
    for (text, line) in texts.iter().zip(lines) {
        // `ovs-ofctl` refuses some of its own encodings, which cannot be compared.
        let Some((_, line)) = line.split_once("): ADD ") else { continue };
        let theirs = line.strip_suffix("actions=drop").unwrap_or(line).trim_end();
        compared += 1;
        if canonical(text).as_deref() != Ok(theirs) {
            wrong += 1;
            if wrong < 12 {
                eprintln!("text   {text}\nours   {:?}\ntheirs {theirs}\n", canonical(text));
            }
        }
    }
    tally::report!("{compared} matches, of {cases}");
    assert!(compared * 10 > cases * 8, "only {compared} of {cases} could be compared");
    assert_eq!(wrong, 0, "of {compared}");
}

#[test]
fn errors_of_bad_matches() {
    let Some(ofctl) = oracle::program("ovs-ofctl") else { return };
    let (seed, cases) = seeds();
    let mut rng = Rng::seeded(seed);
    let mut wrong = 0;
    for _ in 0..cases / 10 {
        let text = corpus::matches::damaged(&mut rng);
        let flow = format!("{text} actions=drop");
        let out = Command::new(&ofctl).args(["-F", "NXM-table_id", "parse-flow"]).arg(&flow).output().expect("run");
        let stderr = String::from_utf8_lossy(&out.stderr);
        let theirs = stderr.lines().find_map(|l| l.strip_prefix("ovs-ofctl: ")).map(str::to_string);
        let ours = canonical(&text).err();
        if ours != theirs {
            wrong += 1;
            if wrong < 20 {
                eprintln!("text   {text}\nours   {ours:?}\ntheirs {theirs:?}\n");
            }
        }
    }
    tally::report!("{} damaged matches", cases / 10);
    assert_eq!(wrong, 0);
}
