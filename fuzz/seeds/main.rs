//! Writes seeds and dictionaries: frames, messages and texts that the targets accept, the same in every run. `cargo
//! run --example seeds DIR` creates a folder of seeds for each target in DIR, and dictionaries beside them; seeds
//! that add coverage are then merged into `corpus/` (see the README).

#[path = "../../crates/flow/tests/corpus/mod.rs"]
mod corpus;
mod texts;

// Defines the functions that the instrumentation calls.
use libfuzzer_sys as _;

use base::rng::Rng;
use openflow::group::{BucketStats, GroupDesc, GroupStats, parse_group_line};
use openflow::multipart::StatsReply;
use openflow::wire::Writer;
use openflow::{FlowMod, Form, Message, Options, Protocols, Version, encode_with, parse_flow_line};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// The target directory of seeds.
struct Seeds {
    dir: PathBuf,
}

impl Seeds {
    fn put_all<T: AsRef<[u8]>>(&self, target: &str, seeds: impl IntoIterator<Item = T>) -> io::Result<()> {
        let dir = self.dir.join(target);
        fs::create_dir_all(&dir)?;
        let before = fs::read_dir(&dir)?.count();
        let mut seeds = seeds.into_iter().enumerate();
        seeds.try_for_each(|(n, seed)| fs::write(dir.join(format!("{:03}", before + n)), seed))
    }
}

fn main() -> io::Result<()> {
    let dir = env::args().nth(1).expect("usage: seeds DIR");
    let seeds = Seeds { dir: PathBuf::from(&dir) };
    let mut rng = Rng::seeded(1);
    let frames: Vec<Vec<u8>> = (0..300).map(|_| corpus::frames::frame(&mut rng)).collect();
    seeds.put_all("extract", &frames)?;
    for target in ["execute", "translate", "conntrack_parse", "conntrack_rewrite"] {
        // Bytes for the values drawn after the frame: enough for some actions and rules.
        let drawn = |rng: &mut Rng| (0..rng.below(160)).map(|_| rng.next_u64() as u8).collect::<Vec<u8>>();
        let seed =
            |frame: &Vec<u8>| [(frame.len() as u16).to_be_bytes().to_vec(), frame.clone(), drawn(&mut rng)].concat();
        seeds.put_all(target, frames.iter().map(seed))?;
    }
    seeds.put_all("pcap", frames.chunks(20).map(capture))?;
    let steps = |rng: &mut Rng| (0..8 + rng.below(300)).map(|_| rng.next_u64() as u8).collect::<Vec<_>>();
    let mut of_steps = Rng::seeded(2);
    seeds.put_all("rings", (0..100).map(|_| steps(&mut of_steps)))?;
    seeds.put_all("rbac", (0..100).map(|_| steps(&mut of_steps)))?;
    seeds.put_all("alg", control_connections())?;
    let mut of_packets = Rng::seeded(3);
    seeds.put_all("conntrack_packets", (0..100).map(|_| steps(&mut of_packets)))?;
    seeds.put_all("fragments", (0..100).map(|_| steps(&mut of_steps)))?;
    seeds.put_all("match_text", (0..300).map(|_| corpus::matches::valid(&mut rng)))?;
    seeds.put_all("action_text", texts::actions())?;
    seeds.put_all("flow_text", texts::flows().chain((0..100).map(|n| flow_of(n, &mut rng))))?;
    seeds.put_all("group_text", texts::groups())?;
    let messages = [messages(&mut rng, &frames), recorded()?].concat();
    seeds.put_all("openflow", &messages)?;
    seeds.put_all("openflow_stream", messages.chunks(10).map(|chunk| [vec![0, 50], chunk.concat()].concat()))?;
    seeds.put_all("openflow_match", matches(&mut rng))?;
    for (target, texts) in texts::by_target() {
        seeds.put_all(target, texts)?;
    }
    seeds.put_all(
        "database_file",
        texts::logs()
            .into_iter()
            .map(|log| log.iter().flat_map(|record| ovsdb_server::log::encode(&record.into())).collect::<Vec<u8>>()),
    )?;
    seeds.put_all("netlink", (0..20).map(|_| link_message(&mut rng)))?;
    let mut of_routing = Rng::seeded(4);
    seeds.put_all(
        "routing",
        (0..60).map(|_| (0..8).flat_map(|_| routing_message(&mut of_routing)).collect::<Vec<u8>>()),
    )?;
    seeds.put_all("lacp", lacp_frames())?;
    seeds.put_all("lldp", lldp_frames())?;
    seeds.put_all("spanning_tree", bpdus())?;
    seeds.put_all("bfd", bfd_frames())?;
    seeds.put_all("cfm", cfm_frames())?;
    seeds.put_all("tunnel_pop", tunnel_frames())?;
    seeds.put_all("tunnel_text", PUSHED.lines().skip(1).filter_map(|line| line.split(' ').nth(2)))?;
    dictionaries(Path::new(&dir))
}

/// Control connections of FTP, and requests of TFTP: for each kind of translation, announcements in both directions, and a
/// retransmission of the first.
fn control_connections() -> impl Iterator<Item = Vec<u8>> {
    (0..8u8).flat_map(|kinds| {
        let (command, reply) = if kinds & 1 == 0 {
            ("PORT 10,0,0,1,4,5\r\n", "227 Entering Passive Mode (10,0,0,2,8,9).\r\n")
        } else {
            ("EPRT |2|fc00::1|1029|\r\n", "229 Entering Extended Passive Mode (|||2057|)\r\n")
        };
        let packet =
            |flags: u8, seq: usize, text: &str| [&[flags, seq as u8, text.len() as u8][..], text.as_bytes()].concat();
        let ftp = [
            vec![kinds, 1],
            packet(4, 0, command),
            packet(5, 0, reply),
            packet(6, command.len(), "LIST\r\n"),
            packet(7, reply.len(), "200 OK\r\n"),
            packet(4, 0, &[command, "LIST\r\n"].concat()),
        ];
        let tftp = [vec![kinds, 0], packet(4, 0, "\0\x01file\0octet\0"), packet(5, 0, "\0\x03")];
        [ftp.concat(), tftp.concat()]
    })
}

/// Outer headers as Open vSwitch pushed them: name, packet type, text, frame.
const PUSHED: &str = include_str!("../../crates/tunnel/src/header/tests/pushed.txt");

/// Packets of tunnel ports of every type, good and bad, behind a byte for the type.
fn tunnel_frames() -> impl Iterator<Item = Vec<u8>> {
    let received = include_str!("../../crates/tunnel/src/header/tests/received.txt");
    received.lines().filter(|line| !line.starts_with(['#', '>'])).filter_map(|line| {
        let types = ["vxlan", "vxlan-gbp", "geneve", "gre", "erspan", "gtpu", "srv6"];
        let (name, hex) = (line.split(' ').next()?, line.rsplit(' ').next()?);
        let number = types.iter().position(|known| *known == name)? as u8;
        let bytes = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).expect("a digit"));
        Some(std::iter::once(number).chain(bytes).collect())
    })
}

/// BPDUs of each type with the protocol, the port, the time and the length in front, alone and behind each other.
fn bpdus() -> Vec<Vec<u8>> {
    let id = spanning_tree::BridgeId::new(0, base::MacAddr::from_u64(1));
    let config = |flags| spanning_tree::bpdu::Config {
        flags: spanning_tree::bpdu::Flags(flags),
        vector: spanning_tree::id::Vector { root: id, bridge: id, ..Default::default() },
        times: spanning_tree::id::Times::of_root(2, 20, 15),
    };
    let bpdus = [0x0e, 0x3c, 0x7c, 0x69, 0x65].map(|flags| spanning_tree::Bpdu::Rapid(config(flags)));
    let older = [0, 1, 0x80].map(|flags| spanning_tree::Bpdu::Config(config(flags)));
    let all = bpdus.into_iter().chain(older).chain([spanning_tree::Bpdu::TopologyChange]);
    let event = |(n, bpdu): (usize, spanning_tree::Bpdu)| {
        let frame = bpdu.write(base::MacAddr::default());
        [&[n as u8 % 2, n as u8 * 8, frame.len() as u8][..], &frame].concat()
    };
    let each: Vec<_> = all.enumerate().map(event).collect();
    let both = [0, 1].map(|protocol| [&[protocol][..], &each.concat()].concat());
    each.into_iter().map(|event| [&[0][..], &event].concat()).chain(both).collect()
}

/// LACPDUs for two members with the prefixes of the target: of one partner, of two, and a malformed one.
fn lacp_frames() -> Vec<Vec<u8>> {
    let frame = |head: u8, system: u8, key: u16, port: u16| {
        let state = lacp::State(0x3f);
        let system = base::MacAddr([2, 0, 0, 0, 0, system]);
        let actor = lacp::Info { system_priority: 1000, system, key, port_priority: 1, port, state };
        let frame = lacp::Pdu { actor, partner: lacp::Info::default() }.frame(base::MacAddr::ZERO);
        [&[head, frame.len() as u8][..], &frame].concat()
    };
    let mut cut = frame(0, 1, 7, 1);
    cut.truncate(60);
    vec![
        [frame(0, 1, 7, 1), frame(1, 1, 7, 2), frame(0xfe, 1, 7, 1)].concat(),
        [frame(0, 1, 7, 1), frame(1, 9, 7, 2), frame(0xff, 9, 8, 2), cut].concat(),
    ]
}

/// Three LLDP frames with length prefixes: a new neighbour, its shutdown, and a neighbour that answers mappings.
fn with_length(frame: &[u8]) -> Vec<u8> {
    [&(frame.len() as u16).to_be_bytes()[..], frame].concat()
}

/// The packets by which a session comes up and goes down again, each alone and all together.
fn bfd_frames() -> Vec<Vec<u8>> {
    use bfd::packet::{Addresses, Control, Diagnostic, Flags, State, frame};
    let addresses = Addresses {
        mac_src: base::MacAddr::default(),
        mac_dst: base::MacAddr::default(),
        ip_src: [169, 254, 1, 0].into(),
        ip_dst: [169, 254, 1, 1].into(),
        udp_src: 49152,
    };
    let each: Vec<Vec<u8>> = [State::Down, State::Init, State::Up, State::AdminDown]
        .into_iter()
        .map(|state| Control {
            diagnostic: Diagnostic::NONE,
            state,
            flags: Flags::POLL,
            multiplier: 3,
            my_discriminator: 5,
            your_discriminator: 0,
            desired_min_tx_us: 100_000,
            required_min_rx_us: 100_000,
            required_min_echo_rx_us: 0,
        })
        .map(|control| with_length(&frame(&addresses, &control)))
        .collect();
    let all = each.concat();
    each.into_iter().chain([all, [0, 200].repeat(30)]).collect()
}

/// CCMs of two points in both modes, with and without a defect.
fn cfm_frames() -> Vec<Vec<u8>> {
    let ccm = |mpid: u16, rdi| cfm::Ccm {
        rdi,
        interval_code: 4,
        sequence: 1,
        mpid,
        extended_interval_ms: 0,
        extended_mpid: mpid.into(),
        is_down: rdi,
    };
    let frame = |ccm: cfm::Ccm| with_length(&ccm.frame(base::MacAddr::default(), cfm::pdu::DESTINATION, 0));
    let all = [ccm(1, false), ccm(2, false), ccm(2, true), ccm(1, false)].map(frame).concat();
    [0, 0x80].into_iter().map(|mode| [&[mode], &all[..]].concat()).collect()
}

fn lldp_frames() -> Vec<Vec<u8>> {
    let pdu = |ttl_s, statuses: &[u8]| lldp::Pdu {
        chassis_id: vec![4, 2, 0, 0, 0, 0, 1],
        port_id: b"\x05eth9".to_vec(),
        ttl_s,
        system_name: Some(b"peer".to_vec()),
        element: (!statuses.is_empty()).then(lldp::Element::default),
        assignments: (statuses.iter())
            .map(|s| lldp::Assignment { status: lldp::AssignmentStatus(*s), vlan: 200, isid: 100 })
            .collect(),
        ..lldp::Pdu::default()
    };
    let frame = |pdu: lldp::Pdu| pdu.write(base::MacAddr::default()).0;
    let frames = [pdu(120, &[]), pdu(0, &[]), pdu(1, &[2]), pdu(120, &[2, 3, 4])].map(frame);
    let each = frames.iter().map(|frame| with_length(frame)).collect::<Vec<_>>();
    let all = each.concat();
    each.into_iter().chain([all]).collect()
}

fn flow_of(n: usize, rng: &mut Rng) -> String {
    let actions: Vec<String> = texts::actions().collect();
    format!("table={},priority={n},{} actions={}", n % 254, corpus::matches::valid(rng), actions[n % actions.len()])
}

fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = netdev::pcap::Writer::new(&mut out).expect("memory");
    for frame in frames {
        writer.write_at(frame, std::time::Duration::from_secs(1)).expect("memory");
    }
    drop(writer);
    out
}

/// Flow modifications in all formats that can carry them, requests, and packets in and out.
fn messages(rng: &mut Rng, frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for (n, text) in texts::flows().chain((0..60).map(|n| flow_of(n, rng))).enumerate() {
        let Ok(parsed) = parse_flow_line(&text, &flow::NoNames) else { continue };
        for protocol in parsed.usable.iter() {
            let Some(version) = protocol.version() else { continue };
            let form = if Protocols::NXM_ANY.contains(protocol) { Form::Nicira } else { Form::Standard };
            let message = Message::FlowMod(form, Box::new(FlowMod { cookie: n as u64, ..parsed.flow_mod.clone() }));
            out.push(encode_with(version, 1, &message, Options::default()));
        }
    }
    for text in texts::groups() {
        let Ok(parsed) = parse_group_line(&text, &flow::NoNames) else { continue };
        let gm = parsed.group_mod;
        let (kind, group_id) = (gm.kind, gm.group_id);
        let desc = GroupDesc { kind, group_id, buckets: gm.buckets.clone(), properties: gm.properties.clone() };
        let stats =
            GroupStats { group_id, buckets: vec![BucketStats::default(); gm.buckets.len()], ..GroupStats::default() };
        let replies = [StatsReply::GroupDesc(vec![desc.clone(), desc]), StatsReply::Group(vec![stats.clone(), stats])];
        let replies = replies.map(|body| Message::StatsReply { more: false, body });
        for version in [Version::V10, Version::V13, Version::V15] {
            let change = encode_with(version, 1, &Message::GroupMod(gm.clone()), Options::default());
            if version != Version::V10 {
                out.push(openflow::bundle::wrap(version, 1, 3, &change));
            }
            out.push(change);
            out.extend(replies.iter().map(|m| encode_with(version, 1, m, Options::default())));
        }
    }
    for ty in 0..9 {
        let control = openflow::bundle::BundleControl { bundle_id: 1, ty, flags: 3 };
        for version in [Version::V13, Version::V14] {
            out.push(encode_with(version, 1, &Message::BundleControl(control), Options::default()));
        }
    }
    for version in Version::ALL {
        // Every type, with bodies of zeros and of a frame: the shapes that a fuzzer starts from.
        for ty in 0..36u8 {
            for body in [vec![0; 16], vec![0; 56], frames[usize::from(ty)].clone()] {
                let len = (8 + body.len()) as u16;
                out.push([vec![version.wire(), ty], len.to_be_bytes().to_vec(), vec![0, 0, 0, 1], body].concat());
            }
        }
        let stats = if version == Version::V10 { 16 } else { 18 };
        for kind in (0..20u16).chain([0xffff]) {
            for ty in [stats, stats + 1] {
                let mut message = vec![version.wire(), ty, 0, 16 + 56, 0, 0, 0, 1];
                message.extend(kind.to_be_bytes());
                message.resize(16 + 56, 0);
                out.push(message);
            }
        }
    }
    out
}

/// The messages that the tests of the crate `openflow` read, print and write.
fn recorded() -> io::Result<Vec<Vec<u8>>> {
    let mut out = Vec::new();
    for file in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../crates/openflow/tests/messages"))? {
        let text = fs::read_to_string(file?.path())?;
        let lines = text.lines().map(|line| line.trim_start_matches('!'));
        out.extend(lines.filter(|l| !l.is_empty() && !l.starts_with(['#', '|'])).map(|hex| {
            (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).expect("hexadecimal")).collect()
        }));
    }
    out.sort();
    Ok(out)
}

/// Matches of texts in each of the formats on the wire.
fn matches(rng: &mut Rng) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    for _ in 0..100 {
        let text = corpus::matches::valid(rng);
        let Ok(m) = flow::text::parse_match(&text, &flow::NoNames) else { continue };
        let mut forms: [Writer; 4] = Default::default();
        openflow::nxm::encode(&mut forms[0], &m, Some((1, 3)), openflow::nxm::Dialect::Nxm);
        openflow::nxm::encode_oxm_match(&mut forms[1], &m, Version::V15);
        openflow::of_match::encode_of10(&mut forms[2], &m);
        openflow::of_match::encode_of11(&mut forms[3], &m);
        // A match that is too long for its format is no seed.
        out.extend(forms.into_iter().filter_map(|form| form.into_bytes().ok()));
    }
    out
}

/// A message about a link, an address, a route or a rule of few values, so that they refer to each other.
fn routing_message(rng: &mut Rng) -> Vec<u8> {
    let ifindex = 1 + rng.below(2) as u8;
    let address = |rng: &mut Rng| [10, rng.below(3) as u8, 0, rng.below(3) as u8];
    let attribute = |kind: u8, value: &[u8]| [&[4 + value.len() as u8, 0, kind, 0], value].concat();
    let gone = u8::from(rng.below(4) == 0);
    let len = [0, 8, 16, 24, 32][rng.below(5) as usize];
    let (kind, header, attributes) = match rng.below(6) {
        0 => (16 + gone, [&[0, 0, 1, 0, ifindex, 0, 0, 0, 1, 0, 1, 0][..], &[0; 4]].concat(), attribute(3, b"e0\0\0")),
        1 => (20 + gone, vec![2, 24, 0, 0, ifindex, 0, 0, 0], attribute(2, &address(rng))),
        2 => (32 + gone, vec![2, 0, len, 0, 77, 0, 0, 1, 0, 0, 0, 0], attribute(2, &address(rng))),
        _ => {
            let table = [254, 255, 77][rng.below(3) as usize];
            let (to, gateway) = (attribute(1, &address(rng)), attribute(5, &address(rng)));
            let device = attribute(4, &[ifindex, 0, 0, 0]);
            (24 + gone, vec![2, len, 0, 0, table, 3, 0, 1, 0, 0, 0, 0], [to, gateway, device].concat())
        }
    };
    let body = [header, attributes].concat();
    [&(16 + body.len() as u32).to_ne_bytes()[..], &[kind, 0, 0, 0], &[0; 8], &body].concat()
}

/// A message about a link, with attributes of any types and of lengths that fit.
fn link_message(rng: &mut Rng) -> Vec<u8> {
    let mut message = vec![0; 32];
    message[4..6].copy_from_slice(&16u16.to_ne_bytes());
    for _ in 0..rng.below(8) {
        let len = rng.below(40) as u16;
        message.extend((4 + len).to_ne_bytes());
        message.extend((rng.below(24) as u16).to_ne_bytes());
        message.extend((0..len.next_multiple_of(4)).map(|_| rng.next_u64() as u8));
    }
    let len = message.len() as u32;
    message[..4].copy_from_slice(&len.to_ne_bytes());
    message
}

/// The words of each text format, for libFuzzer to put in.
fn dictionaries(dir: &Path) -> io::Result<()> {
    let fields = || flow::field::FIELDS.iter().flat_map(|f| [f.name, f.alias]).filter(|name| !name.is_empty());
    let protocols =
        ["tcp", "udp", "icmp6", "ip", "ipv6", "arp", "sctp6", "mpls", "nsh", "/", "=", ",", "0x", "0xffff/0x1"];
    let flow: Vec<&str> = fields().chain(protocols).chain(texts::FLOW_WORDS.iter().copied()).collect();
    let groups = texts::GROUP_WORDS.iter().chain(texts::ACTION_WORDS).copied().chain(fields()).collect();
    let lists: [(&[&str], Vec<&str>); 5] = [
        (&["group_text"], groups),
        (&["match_text"], fields().chain(protocols).collect()),
        (&["flow_text", "action_text"], flow.into_iter().chain(texts::ACTION_WORDS.iter().copied()).collect()),
        (&["transact", "session", "source", "jsonrpc", "unixctl", "database_file"], texts::JSON_WORDS.to_vec()),
        (&["schema"], texts::SCHEMA_WORDS.to_vec()),
    ];
    for (targets, mut words) in lists {
        words.sort_unstable();
        words.dedup();
        for target in targets {
            let lines: String =
                words.iter().map(|w| format!("\"{}\"\n", w.replace('\\', "\\\\").replace('"', "\\\""))).collect();
            fs::write(dir.join(format!("{target}.dict")), lines)?;
        }
    }
    Ok(())
}
