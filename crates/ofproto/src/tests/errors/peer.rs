//! Runs the same cases on Open vSwitch: it gives the same answers, unless a case says otherwise.
//!
//! Without Open vSwitch's programs the test is skipped; see the crate `oracle`.

use super::script::{Case, Outcome, Step, XID, cases, is_of_the_lab, steps};
use super::{errors_in, name};
use openflow::Version;
use openflow::message::{Message, encode};
use openflow::stream::Framer;
use openflow::switch::Hello;
use openflow::types::xid;
use openflow::versions::Versions;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

const SETUP: &str = "set bridge br0 protocols=OpenFlow10,OpenFlow11,OpenFlow12,OpenFlow13,OpenFlow14,OpenFlow15 \
    -- add-port br0 p1 -- set interface p1 type=dummy ofport_request=1 \
    -- add-port br0 p2 -- set interface p2 type=dummy ofport_request=2";

/// A running Open vSwitch.
struct Peer(oracle::Switch);

impl Peer {
    /// Sends messages one after the other, and returns all error replies. Fails if the connection
    /// ends.
    fn talk(&self, version: Version, messages: &[Vec<u8>]) -> Result<Vec<Vec<u8>>, String> {
        let mut stream = UnixStream::connect(self.0.path("br0.mgmt")).map_err(|e| e.to_string())?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).map_err(|e| e.to_string())?;
        let mut all = encode(version, 1, &Message::Hello(Hello { versions: Versions::of(&[version]) }));
        messages.iter().for_each(|message| all.extend_from_slice(message));
        all.extend(encode(version, 0xec40, &Message::BarrierRequest));
        all.extend(encode(version, 0xec40, &Message::EchoRequest(vec![7])));
        stream.write_all(&all).map_err(|e| e.to_string())?;
        let (mut framer, mut chunk, mut answers) = (Framer::default(), vec![0; 1 << 16], Vec::new());
        loop {
            match stream.read(&mut chunk).map_err(|e| e.to_string())? {
                0 => return Err("the connection ended".into()),
                n => framer.push(&chunk[..n]),
            }
            while let Some(message) = framer.next_message().map_err(|e| e.to_string())? {
                if message[1] == 3 && xid(message) == 0xec40 {
                    return Ok(answers);
                }
                answers.push(message.to_vec());
            }
        }
    }

    /// Deletes flows, groups, meters and tunnel options.
    fn reset(&self) {
        let lines = [
            "type 14 16*00_ff03_0000_0000_0000_ffffffff_ffffffff_ffffffff_0000_0000_00010004_00000000",
            "type 15 0002_00_00_fffffffc",
            "type 29 0002_0000_ffffffff",
            "nicira 24 0002_000000000000",
        ];
        let messages: Vec<Vec<u8>> =
            lines.iter().flat_map(|line| steps(line, Version::V13)).filter_map(bytes).collect();
        // Options stay in use until deleted flows have been cleaned up, by another thread that may get no processor for a while.
        let forgets = |attempt| {
            if attempt > 100 {
                std::thread::sleep(Duration::from_millis(5));
            }
            errors_in(&self.talk(Version::V13, &messages).expect("answers")).is_empty()
        };
        assert!((0..4000).any(forgets), "all can be forgotten");
    }
}

fn bytes(step: Step) -> Option<Vec<u8>> {
    if let Step::Message(bytes) = step { Some(bytes) } else { None }
}

#[test]
fn open_vswitch_gives_the_same_answers() {
    let Some(folder) = oracle::folder() else { return };
    let switch = Peer(oracle::Switch::start(&folder, SETUP));
    let (mut wrong, mut tried) = (Vec::new(), 0);
    for Case { error, versions, when, outcome, peer } in cases() {
        let Outcome::Sent(lines) = outcome else { continue };
        if lines.iter().any(|line| is_of_the_lab(line)) {
            continue;
        }
        for version in versions {
            let messages: Vec<Vec<u8>> = lines.iter().flat_map(|line| steps(line, version)).filter_map(bytes).collect();
            tried += 1;
            switch.reset();
            let expected = peer.as_ref().map_or(Some(error), |(other, _)| *other);
            let expected = expected.and_then(|error| error.number(version)).map(|number| name(version, number));
            let expected = expected.unwrap_or_else(|| "none".into());
            let answer = match switch.talk(version, &messages) {
                Ok(answers) => {
                    let last = errors_in(&answers).into_iter().rfind(|(xid, _)| *xid == XID);
                    last.map_or_else(|| "none".into(), |(_, number)| name(version, number))
                }
                Err(why) => why,
            };
            if answer != expected {
                wrong.push(format!("{version} {error} ({when}): {answer}"));
            }
        }
    }
    assert!(wrong.is_empty(), "of {tried} cases {} differ:\n{}", wrong.len(), wrong.join("\n"));
}
