//! Messages of all types and versions, damaged like those of faulty senders: lengths, padding, types, missing and
//! repeated parts, other versions and experimenters. The switch stays up: a refused message has changed
//! nothing, is answered with its xid, and is counted.

use super::script::{Outcome, Step, cases, steps};
use super::{errors_in, name, state_of};
use crate::conn::peer::Peer;
use crate::tests::connections::{listening, talk};
use crate::tests::{Client, Lab, handle};
use crate::{Ofproto, conn::remote::PeerKind};
use flow::table::FIELDS;
use flow::{Field, Prereq};
use openflow::error::ErrorNumber;
use openflow::message::encode;
use openflow::nxm::{Dialect, Header};
use openflow::switch::Hello;
use openflow::types::{HEADER_LEN, begin, finish, rows, set_length, xid};
use openflow::{Message, OfpError, Version, Versions};
use proptest::prelude::*;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock};

const OXM: Dialect = Dialect::Oxm(Version::V13);

/// A damage, with its position and value.
#[derive(Clone, Copy, Debug)]
enum Damage {
    /// A byte is replaced.
    Byte(u16, u8),
    /// A 16-bit number, which may be a length, changes a little.
    Length(u16, i8),
    /// The message ends early.
    Cut(u16),
    /// Zeros follow the message.
    Longer(u8),
    /// A piece of it, in units of four bytes, is repeated.
    Twice(u16, u8),
    /// A piece of it, in units of four bytes, is missing.
    Without(u16, u8),
    /// The header has another type.
    Type(u8),
    /// The header has another version.
    Version(u8),
}

fn damage() -> impl Strategy<Value = Damage> {
    let byte = prop_oneof![Just(0u8), Just(1), Just(0xff), any::<u8>()];
    prop_oneof![
        4 => (any::<u16>(), byte).prop_map(|(at, to)| Damage::Byte(at, to)),
        4 => (any::<u16>(), prop_oneof![Just(-8i8), Just(-4), Just(-1), Just(1), Just(4), Just(8), any::<i8>()])
            .prop_map(|(at, by)| Damage::Length(at, by)),
        2 => any::<u16>().prop_map(Damage::Cut),
        1 => (1..40u8).prop_map(Damage::Longer),
        3 => (any::<u16>(), 1..6u8).prop_map(|(at, n)| Damage::Twice(at, n)),
        3 => (any::<u16>(), 1..6u8).prop_map(|(at, n)| Damage::Without(at, n)),
        1 => any::<u8>().prop_map(Damage::Type),
        1 => any::<u8>().prop_map(Damage::Version),
    ]
}

impl Damage {
    /// Damages a message, but sets its header's length to the actual one: the next message could not be found
    /// otherwise.
    fn apply(self, msg: &mut Vec<u8>) {
        // The xid stays, to identify the answer.
        let place = |at: u16, unit: usize| HEADER_LEN + usize::from(at) % (msg.len() - HEADER_LEN).max(1) / unit * unit;
        match self {
            Self::Byte(at, to) => {
                let at = place(at, 1);
                msg.get_mut(at).into_iter().for_each(|byte| *byte = to);
            }
            Self::Length(at, by) => {
                let at = place(at, 2);
                if let Some(Ok(old)) = msg.get(at..at + 2).map(<[u8; 2]>::try_from) {
                    let new = u16::from_be_bytes(old).wrapping_add_signed(by.into());
                    msg[at..at + 2].copy_from_slice(&new.to_be_bytes());
                }
            }
            Self::Cut(at) => msg.truncate(place(at, 1)),
            Self::Longer(n) => msg.resize(msg.len() + usize::from(n), 0),
            Self::Twice(at, n) => {
                let at = place(at, 4);
                let piece = msg.get(at..).unwrap_or_default();
                let piece = piece[..piece.len().min(4 * usize::from(n))].to_vec();
                msg.splice(at.min(msg.len())..at.min(msg.len()), piece);
            }
            Self::Without(at, n) => {
                let at = place(at, 4).min(msg.len());
                let end = (at + 4 * usize::from(n)).min(msg.len());
                msg.drain(at..end);
            }
            Self::Type(ty) => msg[1] = ty,
            Self::Version(version) => msg[0] = version,
        }
        msg.truncate(u16::MAX.into());
        set_length(msg);
    }
}

/// Messages to damage: of each type in each version the shortest one, those of the error cases,
/// and those with a known text.
static MESSAGES: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let mut all = Vec::new();
    for version in Version::ALL {
        for row in rows().iter().filter(|row| row.is_in(version)) {
            let shortest = (0..=80).find_map(|n| {
                let mut msg = begin(version, 0x5eed, row.kind, false)?;
                msg.zeros(n);
                let msg = finish(msg).ok()?;
                openflow::types::head(&msg).is_ok().then_some(msg)
            });
            all.extend(shortest);
        }
    }
    for case in cases() {
        let Outcome::Sent(lines) = case.outcome else { continue };
        // A repeated message counts once.
        for line in lines.iter().filter(|line| !line.starts_with("repeat") && !line.contains("MAC")) {
            for version in &case.versions {
                all.extend(steps(line, *version).into_iter().filter_map(|step| match step {
                    Step::Message(bytes) => Some(bytes),
                    _ => None,
                }));
            }
        }
    }
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../openflow/tests/messages");
    for file in std::fs::read_dir(folder).expect("the folder is there") {
        let text = std::fs::read_to_string(file.expect("readable").path()).expect("readable");
        for line in text.lines().filter(|line| !line.starts_with(['#', '|']) && !line.is_empty()) {
            let hex = line.trim_start_matches('!');
            let bytes = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).expect("hexadecimal");
            all.push((0..hex.len()).step_by(2).map(bytes).collect());
        }
    }
    all.retain(|msg| msg.len() >= HEADER_LEN && msg[1] != 0 && Version::from_wire(msg[0]).is_some());
    all
});

/// Gives a switch some state: flows, groups, meters, tunnel options.
fn add_state(client: &Client) {
    let lines = [
        "add-group group_id=1,type=all,bucket=output:1",
        "add-flow table=0,priority=5,in_port=1,actions=group:1",
        "nicira 24 0000_000000000000_ffff_01_04_0000_0000",
    ];
    let meter = (client.version >= Version::V13).then_some("add-meter meter=1,kbps,band=type=drop,rate=5");
    for step in lines.into_iter().chain(meter).flat_map(|line| steps(line, client.version)) {
        let Step::Message(bytes) = step else { continue };
        handle(&client.bridge, &client.peer, &bytes);
    }
    assert!(client.waiting().is_empty(), "all of it is taken");
}

fn sent(error: &str) -> u64 {
    base::coverage::read(error).unwrap_or(0)
}

/// Sends a message; returns the error that refuses it, if any. Fails if the switch reacts wrongly.
fn outcome(
    bridge: &Arc<Ofproto>,
    client: &Client,
    msg: &[u8],
    before: &mut Vec<u8>,
) -> Result<Option<ErrorNumber>, String> {
    let count = sent("ofproto_sent_error");
    handle(bridge, &client.peer, msg);
    let mut answers = Vec::new();
    let mut outgoing = client.outgoing.lock();
    while let Some(bytes) = outgoing.try_next() {
        outgoing.sent(bytes.len());
        answers.push(bytes);
    }
    drop(outgoing);
    let peer: &Peer = &client.peer;
    let after = state_of(bridge, peer);
    let errors = errors_in(&answers);
    if let Some((answered, number)) = errors.last() {
        let error = OfpError::from_number(client.version, *number);
        if *answered != xid(msg) {
            return Err(format!("the xid of the answer is {answered:x}"));
        }
        // A flow with an unknown buffer id is added, although the buffer does not exist.
        if *before != after && error != Some(OfpError::BrcBufferUnknown) {
            return Err(format!("{} changed something", name(client.version, *number)));
        }
        if sent("ofproto_sent_error") == count {
            return Err("the error was not counted".into());
        }
    }
    *before = after;
    if let [.., last] = &client.send(&Message::EchoRequest(vec![7]))[..]
        && *last == Message::EchoReply(vec![7])
    {
        return Ok(errors.last().map(|(_, number)| *number));
    }
    Err("the connection does not go on".into())
}

tally::proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn the_switch_survives_damaged_messages(
        tries in prop::collection::vec((any::<prop::sample::Index>(), prop::collection::vec(damage(), 0..4)), 1..12),
        version in 0..6usize,
    ) {
        let version = Version::ALL[version];
        let mut lab = Lab::new();
        let bridge = lab.bridge("br", 2);
        let client = Client::new(&bridge, PeerKind::Service, version);
        add_state(&client);
        let mut before = state_of(&bridge, &client.peer);
        let of_version: Vec<&Vec<u8>> = MESSAGES.iter().filter(|msg| msg[0] == version.wire()).collect();
        for (which, damages) in tries {
            let mut msg = (*which.get(&of_version)).clone();
            damages.iter().for_each(|damage| damage.apply(&mut msg));
            let result = outcome(&bridge, &client, &msg, &mut before);
            prop_assert!(result.is_ok(), "{:?}: {:02x?}", result, msg);
        }
    }

    /// Matches with random fields: a duplicate field, or a field whose prerequisites are missing, is
    /// refused.
    #[test]
    fn duplicate_fields_and_missing_prerequisites_are_refused(
        tries in prop::collection::vec(
            (prop::collection::vec(any::<prop::sample::Index>(), 1..6), any::<[u8; 16]>(), any::<bool>()), 1..12),
    ) {
        let mut lab = Lab::new();
        let bridge = lab.bridge("br", 2);
        let client = Client::new(&bridge, PeerKind::Service, Version::V13);
        let mut before = state_of(&bridge, &client.peer);
        let known: Vec<_> = FIELDS.iter().filter_map(|field| Some((field, Header::of(field.id, false, OXM)?))).collect();
        for (which, value, again) in tries {
            let mut fields: Vec<_> = which.iter().map(|index| index.get(&known)).collect();
            if again {
                fields.push(fields[0]);
            }
            let mut entries = openflow::wire::Writer::new();
            for (_, header) in &fields {
                header.encode(&mut entries);
                (0..header.payload).for_each(|i| entries.put_u8(value[i % value.len()] & 1));
            }
            let hex: String = entries.iter().map(|byte| format!("{byte:02x}")).collect();
            let Some(Step::Message(msg)) = steps(&format!("flow match={hex}"), client.version).pop() else { continue };
            let result = outcome(&bridge, &client, &msg, &mut before);
            prop_assert!(result.is_ok(), "{:?}: {:02x?}", result, msg);
            let twice = (1..fields.len()).any(|i| fields[..i].iter().any(|(field, _)| field.id == fields[i].0.id));
            let has_type = fields.iter().any(|(field, _)| [Field::EthType, Field::PacketType].contains(&field.id));
            let lacks = !has_type && fields.iter().any(|(field, _)| {
                matches!(
                    field.prereq,
                    Prereq::Arp | Prereq::Ipv4 | Prereq::Ipv6 | Prereq::Ip | Prereq::Mpls | Prereq::Tcp | Prereq::Udp
                )
            });
            if twice || lacks {
                prop_assert!(result.is_ok_and(|error| error.is_some()), "{:?}", fields);
            }
        }
    }

    /// Bytes before the version negotiation, and bytes that are no message, end the connection at most.
    #[test]
    fn malformed_beginnings_end_the_connection(
        damages in prop::collection::vec(damage(), 1..5),
        rest in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut lab = Lab::new();
        let bridge = lab.bridge("br", 1);
        let mut bytes = encode(Version::V13, 1, &Message::Hello(Hello { versions: Versions::of(&Version::ALL[..3]) }));
        damages.iter().for_each(|damage| damage.apply(&mut bytes));
        bytes.extend(rest);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("starts");
        // At least our HELLO is sent.
        runtime.block_on(talk(&bridge, &listening(&[Version::V10, Version::V13]), &bytes, 8));
        let client = Client::new(&bridge, PeerKind::Service, Version::V13);
        prop_assert_eq!(client.send(&Message::EchoRequest(vec![7])), [Message::EchoReply(vec![7])]);
    }
}

#[test]
fn errors_are_counted_by_name() {
    let mut lab = Lab::new();
    let bridge = lab.bridge("br", 1);
    let client = Client::new(&bridge, PeerKind::Service, Version::V13);
    let before = sent("OFPBRC_BAD_SUBTYPE");
    client.bytes(&[4, 4, 0, 16, 0, 0, 0, 1, 0, 0, 0x23, 0x20, 0, 0, 0x0f, 0xff]);
    assert!(sent("OFPBRC_BAD_SUBTYPE") > before);
    assert!(base::coverage::show().contains("OFPBRC_BAD_SUBTYPE"));
}
