//! Generated corpora held against Open vSwitch's `ovs-ofctl`: messages of every kind and version as text, and flows,
//! groups and meters from text to bytes, well-formed and damaged.
//!
//! The program is taken from the folder `$FLOWSTONE_PEERS/bin`. Without that variable the tests are skipped, but under
//! `CI=true` they fail. All that is generated is the same in each run.

mod exceptions;
mod make;
mod messages;
mod oracle;
mod texts;

use openflow::OfpError;

/// All errors that there are.
fn errors() -> impl Iterator<Item = OfpError> {
    let all = openflow::Version::ALL;
    let numbers = (0..20u16).flat_map(|ty| (0..40u16).map(move |code| (ty, code)));
    let _ = (all, numbers);
    OfpError::all()
}

#[test]
fn messages_are_printed_alike() {
    let Some(ofctl) = oracle::program() else { return };
    let mut g = make::Gen::new(1);
    let pool = messages::Pool::new(&mut g);
    let mut corpus = messages::corpus(&mut g, &pool, 5500);
    let damaged: Vec<_> =
        corpus.iter().step_by(3).map(|(name, v, m)| (*name, *v, messages::damage(&mut g, m))).collect();
    corpus.extend(damaged);
    let bytes: Vec<&[u8]> = corpus.iter().map(|(_, _, m)| m.as_slice()).collect();
    let mut wrong = Vec::new();
    for (args, verbosity) in [(&[][..], 2)] {
        let theirs = oracle::print(&ofctl, args, &bytes);
        for ((name, version, message), theirs) in corpus.iter().zip(theirs) {
            let ours = openflow::print::print(message, openflow::print::Style::plain(verbosity));
            if theirs.as_ref() != Some(&ours) {
                let hex: String = message.iter().map(|b| format!("{b:02x}")).collect();
                wrong.push(format!("#### {name} {version:?} {hex}\n--- ours\n{ours}--- theirs\n{}", theirs.unwrap_or("CRASH\n".into())));
            }
        }
    }
    std::fs::write("/tmp/corpus-wrong.txt", wrong.join("\n")).unwrap();
    assert!(wrong.is_empty(), "{} differences of {}", wrong.len(), corpus.len());
}
