//! Packets through helpers, as Open vSwitch 4.0 was seen to treat them, and structures beside their naive twins.

use std::net::IpAddr;
use std::num::NonZeroU64;

use base::Millis;
use base::rng::Rng;
use packet::checksum::{Verdict, verify};
use packet::wire::{Ipv6Repr, Tcp, TcpRepr, UdpRepr, pseudo};
use packet::{Checksum, Gso, GsoKind, Packet, checksum, wire};
use proptest::prelude::*;

use super::assist::{Assistant, Assisted, Context, unshift};
use super::expect::{Expectation, Expectations, PER_PARENT_MAX};
use super::ftp::{Mode, Notation, SCAN_MAX, Scan, format, scan};
use super::sequence::{CHANGES_MAX, Shift, Split};
use crate::action::Helper;
use crate::conn::{Parent, Related};
use crate::key::{Direction, Key, ipproto, number_of};
use crate::parse::Parsed;
use crate::table::Handle;

use Direction::{Original, Reply};

fn handle(n: u64) -> Handle {
    Handle(NonZeroU64::new(n).unwrap())
}

/// A key from texts of addresses.
fn key(proto: u8, (src, src_port): (&str, u16), (dst, dst_port): (&str, u16)) -> Key {
    let (src, dst): (IpAddr, IpAddr) = (src.parse().unwrap(), dst.parse().unwrap());
    Key { src: number_of(src), dst: number_of(dst), src_port, dst_port, zone: 5, proto, is_v6: src.is_ipv6() }
}

/// A frame with a packet of a key; `l4` has the transport header without its checksum, which is at `checksum_at`.
fn frame(key: &Key, l4: &[u8], checksum_at: usize) -> Packet {
    let mut frame = vec![2; 12];
    if key.is_v6 {
        frame.extend([0x86, 0xdd]);
        let ip = |n: [u64; 2]| u128::from(n[0]) << 64 | u128::from(n[1]);
        let header = Ipv6Repr {
            src: ip(key.src),
            dst: ip(key.dst),
            next_header: key.proto,
            hop_limit: 64,
            ..Ipv6Repr::default()
        };
        header.emit(l4.len(), &mut frame);
    } else {
        frame.extend([8, 0]);
        let (src, dst) = (key.src[1] as u32, key.dst[1] as u32);
        let header = wire::Ipv4Repr { src, dst, proto: key.proto, ttl: 64, id: 1, ..wire::Ipv4Repr::default() };
        header.emit(l4.len(), &mut frame);
    }
    frame.extend(l4);
    let ip = wire::ip(&frame).unwrap();
    let sum = pseudo(&frame, &ip).bytes(&frame[ip.l4..]).finish();
    frame[ip.l4 + checksum_at..ip.l4 + checksum_at + 2].copy_from_slice(&sum.to_be_bytes());
    Packet::from_slice(&frame)
}

fn segment(key: &Key, seq: u32, ack: u32, options: &[u8], payload: &[u8]) -> Packet {
    let mut l4 = Vec::new();
    TcpRepr { src: key.src_port, dst: key.dst_port, seq, ack, flags: 0x18, window: 9000 }.emit(&mut l4);
    l4[12] += (options.len() as u8 / 4) << 4;
    l4.extend(options);
    l4.extend(payload);
    frame(key, &l4, 16)
}

fn parsed(packet: &Packet, key: &Key) -> Parsed {
    let ip = wire::ip(packet.data()).unwrap();
    Parsed { key: *key, l3: ip.at, l4: ip.l4, end: ip.end, embedded: None }
}

/// What a segment says: sequence number, acknowledgement, options, payload.
fn said(packet: &Packet) -> (u32, u32, Vec<u8>, Vec<u8>) {
    let ip = wire::ip(packet.data()).unwrap();
    let l4 = &packet.data()[ip.l4..ip.end];
    let tcp = Tcp::new_checked(l4).unwrap();
    (tcp.seq(), tcp.ack(), l4[20..tcp.header_len()].to_vec(), l4[tcp.header_len()..].to_vec())
}

/// A control connection.
struct Control {
    keys: [Key; 2],
    has_dnat: bool,
    related: Option<Box<Related>>,
    expectations: Expectations,
    translates: bool,
}

impl Control {
    /// From the key of the client's packets as they arrive to that of their translation.
    fn new(arrives: Key, leaves: Key) -> Self {
        Self {
            keys: [arrives, leaves.reversed()],
            has_dnat: arrives.dst != leaves.dst,
            related: None,
            expectations: Expectations::new(100),
            translates: true,
        }
    }

    /// A packet, before the translation of its addresses.
    fn pass(&mut self, packet: &mut Packet, direction: Direction, helper: Helper) -> Assisted {
        let parsed = parsed(packet, &self.keys[direction.index()]);
        if self.translates
            && let Some(shifts) = self.related.as_ref().and_then(|related| related.shifts.as_ref())
        {
            unshift(packet, &parsed, shifts, direction);
        }
        let mut assistant = Assistant {
            helper,
            keys: self.keys,
            has_dnat: self.has_dnat,
            mark: 7,
            label: 9,
            related: &mut self.related,
            handle: handle(3),
        };
        let context = Context { expectations: &self.expectations, translates: self.translates, now: Millis(0) };
        assistant.assist(packet, &parsed, direction, &context)
    }

    /// A segment; returns it as it leaves (sequence number, acknowledgement, payload).
    fn say(&mut self, direction: Direction, seq: u32, ack: u32, text: &str) -> (u32, u32, String) {
        let mut packet = segment(&self.keys[direction.index()], seq, ack, &[], text.as_bytes());
        assert_eq!(self.pass(&mut packet, direction, Helper::Ftp), Assisted::Valid, "{text}");
        assert_eq!(verify(packet.data()), Verdict::Good, "{text}");
        let (seq, ack, _, payload) = said(&packet);
        (seq, ack, String::from_utf8(payload).unwrap())
    }

    fn expected(&self) -> Vec<Key> {
        self.expectations.list().iter().map(|e| e.key).collect()
    }
}

const CLIENT: (&str, u16) = ("10.0.0.1", 40000);
const SERVER: (&str, u16) = ("10.0.0.2", 21);

fn owned(seq: u32, ack: u32, text: &str) -> (u32, u32, String) {
    (seq, ack, text.to_owned())
}

#[test]
fn an_active_client_with_snat_announces_its_translated_address() {
    let mut c = Control::new(key(ipproto::TCP, CLIENT, SERVER), key(ipproto::TCP, ("10.9.9.99", 40000), SERVER));
    assert_eq!(c.say(Original, 1001, 5001, "PORT 10,0,0,1,4,5\r\n"), owned(1001, 5001, "PORT 10,9,9,99,4,5\r\n"));
    assert_eq!(c.say(Reply, 5001, 1021, "200 ok\r\n"), owned(5001, 1020, "200 ok\r\n"));
    // A retransmission changes in the same way, and shifts nothing more.
    assert_eq!(c.say(Original, 1001, 5009, "PORT 10,0,0,1,4,5\r\n"), owned(1001, 5009, "PORT 10,9,9,99,4,5\r\n"));
    assert_eq!(c.say(Original, 1020, 5009, "LIST\r\n"), owned(1021, 5009, "LIST\r\n"));
    assert_eq!(c.say(Original, 1026, 5009, "PORT 10,0,0,1,4,6\r\n"), owned(1027, 5009, "PORT 10,9,9,99,4,6\r\n"));
    assert_eq!(c.say(Reply, 5009, 1047, ""), owned(5009, 1045, ""));
    assert_eq!(c.say(Original, 1045, 5009, "LIST\r\n"), owned(1047, 5009, "LIST\r\n"));
    // Both commands and more in one retransmission.
    assert_eq!(
        c.say(Original, 1020, 5009, "LIST\r\nPORT 10,0,0,1,4,6\r\nLIST\r\n"),
        owned(1021, 5009, "LIST\r\nPORT 10,9,9,99,4,6\r\nLIST\r\n")
    );
    let first = key(ipproto::TCP, ("10.0.0.2", 0), ("10.9.9.99", 1029));
    assert_eq!(c.expected(), [first, Key { dst_port: 1030, ..first }]);
    let syn = Key { src_port: 20, ..first };
    let found = c.expectations.find(&syn).unwrap();
    assert_eq!(found.translation(&syn), key(ipproto::TCP, ("10.0.0.1", 1029), ("10.0.0.2", 20)));
    assert!(found.translated().dst() && !found.translated().src());
    assert_eq!((found.mark, found.label, found.parent.handle), (7, 9, handle(3)));
    assert_eq!(c.expectations.find(&Key { dst_port: 1031, ..syn }), None);
    assert_eq!(c.expectations.find(&Key { zone: 6, ..syn }), None);
    c.expectations.remove_all_of(handle(4));
    assert_eq!(c.expectations.len(), 2);
    c.expectations.remove_all_of(handle(3));
    assert_eq!(c.expectations.find(&syn), None);
}

#[test]
fn a_passive_server_with_dnat_announces_its_translated_address() {
    let mut c = Control::new(key(ipproto::TCP, CLIENT, ("10.88.88.88", 21)), key(ipproto::TCP, CLIENT, SERVER));
    let reply = "227 Entering Passive Mode (10,0,0,2,8,9).\r\n";
    assert_eq!(c.say(Reply, 5001, 1001, reply), owned(5001, 1001, "227 Entering Passive Mode (10,88,88,88,8,9).\r\n"));
    assert_eq!(c.say(Original, 1001, 5047, "LIST\r\n"), owned(1001, 5044, "LIST\r\n"));
    assert_eq!(c.say(Reply, 5044, 1007, "200 OK\r\n"), owned(5047, 1007, "200 OK\r\n"));
    assert_eq!(c.say(Original, 1007, 5055, "PORT 10,0,0,1,4,5\r\n"), owned(1007, 5052, "PORT 10,0,0,1,4,5\r\n"));
    let extended = "229 Extended Passive (|||2058|)\r\n";
    assert_eq!(c.say(Reply, 5052, 1026, extended), owned(5055, 1026, extended));
    let passive = key(ipproto::TCP, ("10.0.0.1", 3333), ("10.88.88.88", 2057));
    let found = c.expectations.find(&passive).unwrap();
    assert_eq!(found.translation(&passive), key(ipproto::TCP, ("10.0.0.2", 2057), ("10.0.0.1", 3333)));
    assert!(found.translated().dst() && !found.translated().src());
    assert!(c.expectations.find(&Key { dst_port: 2058, ..passive }).is_some());
    let active = key(ipproto::TCP, ("10.0.0.2", 20), ("10.0.0.1", 1029));
    let found = c.expectations.find(&active).unwrap();
    assert_eq!(found.translation(&active), key(ipproto::TCP, ("10.0.0.1", 1029), ("10.88.88.88", 20)));
    assert!(found.translated().src() && !found.translated().dst());
}

#[test]
fn ipv6_addresses_are_translated() {
    let client = ("fc00::1", 40000);
    let mut c = Control::new(
        key(ipproto::TCP, client, ("fc00::8", 21)),
        key(ipproto::TCP, ("fc00::99", 40000), ("fc00::2", 21)),
    );
    assert_eq!(
        c.say(Original, u32::MAX - 3, 50, "eprt |2|FC00:0::1|1029|\r\n"),
        owned(u32::MAX - 3, 50, "eprt |2|fc00::99|1029|\r\n")
    );
    assert_eq!(c.say(Original, 22, 50, "LIST\r\n"), owned(21, 50, "LIST\r\n"));
    assert_eq!(c.say(Reply, 50, 27, "229 Extended Passive (|||7|)"), owned(50, 28, "229 Extended Passive (|||7|)"));
    let active = key(ipproto::TCP, ("fc00::2", 20), ("fc00::99", 1029));
    let found = c.expectations.find(&active).unwrap();
    assert_eq!(found.translation(&active), key(ipproto::TCP, ("fc00::1", 1029), ("fc00::8", 20)));
    let passive = key(ipproto::TCP, ("fc00::1", 20), ("fc00::8", 7));
    let found = c.expectations.find(&passive).unwrap();
    assert_eq!(found.translation(&passive), key(ipproto::TCP, ("fc00::2", 7), ("fc00::99", 20)));
    assert!(found.translated().src() && found.translated().dst());
}

#[test]
fn without_translation_packets_stay_as_they_are() {
    let mut c = Control::new(key(ipproto::TCP, CLIENT, SERVER), key(ipproto::TCP, ("10.9.9.99", 40000), SERVER));
    c.translates = false;
    assert_eq!(c.say(Original, 1001, 5001, "PORT 10,0,0,1,4,5\r\n"), owned(1001, 5001, "PORT 10,0,0,1,4,5\r\n"));
    assert_eq!(c.expected(), [key(ipproto::TCP, ("10.0.0.2", 0), ("10.9.9.99", 1029))]);
    assert!(c.related.is_none());
}

#[test]
fn selective_acknowledgements_are_shifted() {
    let mut c = Control::new(key(ipproto::TCP, CLIENT, SERVER), key(ipproto::TCP, ("10.9.9.199", 40000), SERVER));
    c.say(Original, 1001, 5001, "PORT 10,0,0,1,4,5\r\n");
    let blocks = [1030u32, 1040, 1001, 1005].map(u32::to_be_bytes).concat();
    let options = |blocks: &[u8]| [&[1, 5, 18], blocks, &[0][..]].concat();
    let mut packet = segment(&c.keys[1], 5001, 1022, &options(&blocks), b"");
    assert_eq!(c.pass(&mut packet, Reply, Helper::Ftp), Assisted::Valid);
    assert_eq!(verify(packet.data()), Verdict::Good);
    let (_, ack, got, _) = said(&packet);
    let blocks = [1028u32, 1038, 1001, 1005].map(u32::to_be_bytes).concat();
    assert_eq!((ack, got), (1020, options(&blocks)));
}

#[test]
fn partial_checksums_cover_the_new_length() {
    for client in ["10.0.0.1", "fc00::1"] {
        let is_v6 = client.contains(':');
        let (seen, server) = if is_v6 { ("fc00::aaaa", ("fc00::2", 21)) } else { ("10.99.99.99", SERVER) };
        let mut c = Control::new(key(ipproto::TCP, (client, 1), server), key(ipproto::TCP, (seen, 1), server));
        let text = if is_v6 { "EPRT |2|fc00::1|1029|\r\n" } else { "PORT 10,0,0,1,4,5\r\n" };
        let mut packet = segment(&c.keys[0], 1, 1, &[], text.as_bytes());
        let ip = wire::ip(packet.data()).unwrap();
        let sum = pseudo(packet.data(), &ip).partial();
        packet.data_mut()[ip.l4 + 16..ip.l4 + 18].copy_from_slice(&sum.to_be_bytes());
        packet.offload.checksum = Checksum::Partial { start: ip.l4 as u16, offset: 16 };
        assert_eq!(c.pass(&mut packet, Original, Helper::Ftp), Assisted::Valid);
        assert!(said(&packet).3.len() > text.len());
        checksum::finish(&mut packet);
        assert_eq!(verify(packet.data()), Verdict::Good);
    }
}

#[test]
fn a_gso_packet_is_segmented_with_the_changed_text() {
    let mut c = Control::new(key(ipproto::TCP, CLIENT, SERVER), key(ipproto::TCP, ("10.9.9.99", 40000), SERVER));
    let text = format!("PORT 10,0,0,1,4,5\r\n{}", "x".repeat(100));
    let mut packet = segment(&c.keys[0], 1, 1, &[], text.as_bytes());
    packet.offload.gso = Some(Gso { kind: GsoKind::TcpV4, size: 50, ecn: false });
    assert_eq!(c.pass(&mut packet, Original, Helper::Ftp), Assisted::Valid);
    let parts = packet::segment::segment(&packet).unwrap();
    assert!(parts.iter().all(|part| verify(part.data()) == Verdict::Good));
    let whole: Vec<u8> = parts.iter().flat_map(|part| said(part).3).collect();
    assert_eq!(whole, text.replace("10,0,0,1", "10,9,9,99").into_bytes());
}

#[test]
fn a_part_of_a_changed_text_is_invalid() {
    let mut c = Control::new(key(ipproto::TCP, CLIENT, SERVER), key(ipproto::TCP, ("10.9.9.99", 40000), SERVER));
    c.say(Original, 1001, 5001, "PORT 10,0,0,1,4,5\r\n");
    for (seq, text) in [(1008, "0,0,1,4,5\r\n"), (1001, "PORT 10,0")] {
        let mut packet = segment(&c.keys[0], seq, 5001, &[], text.as_bytes());
        assert_eq!(c.pass(&mut packet, Original, Helper::Ftp), Assisted::Invalid, "{text}");
    }
    assert_eq!(c.say(Original, 1014, 5001, ",4,5\r\n"), owned(1015, 5001, ",4,5\r\n"));
}

#[test]
fn tftp_answers_come_from_any_port() {
    let server = ("10.0.0.2", 69);
    let mut c =
        Control::new(key(ipproto::UDP, ("10.0.0.1", 50000), server), key(ipproto::UDP, ("10.9.9.99", 7000), server));
    let mut send = |direction: Direction, payload: &[u8]| {
        let key = c.keys[direction.index()];
        let mut l4 = Vec::new();
        UdpRepr { src: key.src_port, dst: key.dst_port }.emit(payload.len(), &mut l4);
        l4.extend(payload);
        let mut packet = frame(&key, &l4, 6);
        assert_eq!(c.pass(&mut packet, direction, Helper::Tftp), Assisted::Valid);
        c.expectations.list()
    };
    assert_eq!(send(Original, b"\0\x04\0\x01"), []);
    assert_eq!(send(Original, b"\0"), []);
    assert_eq!(send(Reply, b"\0\x01file\0octet\0"), []);
    let list = send(Original, b"\0\x01file\0octet\0");
    assert_eq!(list.len(), 1);
    let answer = key(ipproto::UDP, ("10.0.0.2", 6969), ("10.9.9.99", 7000));
    assert!(list[0].matches(&answer));
    assert_eq!(list[0].translation(&answer), key(ipproto::UDP, ("10.0.0.1", 50000), ("10.0.0.2", 6969)));
    assert_eq!(send(Original, b"\0\x02file\0octet\0"), list);
}

/// The state and the expected port of announcements without address translation.
fn announced(text: &str, direction: Direction, is_v6: bool) -> (Assisted, Option<u16>) {
    let (client, server) = if is_v6 { (("fc00::1", 40000), ("fc00::2", 21)) } else { (CLIENT, SERVER) };
    let key = key(ipproto::TCP, client, server);
    let mut c = Control::new(key, key);
    let mut packet = segment(&c.keys[direction.index()], 1, 1, &[], text.as_bytes());
    let before = packet.clone();
    let assisted = c.pass(&mut packet, direction, Helper::Ftp);
    assert_eq!(packet, before, "{text}");
    (assisted, c.expected().first().map(|key| key.dst_port))
}

#[test]
fn announcements_are_judged_like_the_peer() {
    let text = include_str!("announcements.txt");
    let (mut n, mut wrong) = (0, Vec::new());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let fields: Vec<&str> = line.splitn(3, ' ').collect();
        let [end, outcome, text] = fields[..] else { panic!("{line}") };
        let direction = if end.starts_with('c') { Original } else { Reply };
        let text = text.replace("\\r", "\r").replace("\\n", "\n").replace("\\t", "\t");
        let expected = match outcome.split('!').next().unwrap() {
            "-" => (Assisted::Valid, None),
            "inv" => (Assisted::Invalid, None),
            port => (Assisted::Valid, Some(port.parse().unwrap())),
        };
        let got = announced(&text, direction, end.ends_with('6'));
        if got != expected {
            wrong.push((line, got));
        }
        n += 1;
    }
    assert_eq!(wrong, []);
    tally::report!("{n} announcements");
}

#[test]
fn only_the_beginning_of_a_segment_counts() {
    let spaces = |n: usize| " ".repeat(n);
    assert_eq!(
        announced(&format!("PORT {}10,0,0,1,4,5\r\n", spaces(110)), Original, false),
        (Assisted::Valid, Some(1029))
    );
    assert_eq!(announced(&format!("PORT {}10,0,0,1,4,5\r\n", spaces(111)), Original, false), (Assisted::Invalid, None));
    assert_eq!(announced(&format!("PORT 10,0,0,1,4,5{}", spaces(200)), Original, false), (Assisted::Valid, Some(1029)));
}

/// Text near announcements.
fn near_announcements() -> impl Strategy<Value = Vec<u8>> {
    let seeds = proptest::sample::select(vec![
        "PORT 10,0,0,1,4,5\r\n",
        "227 Entering Passive Mode (10,0,0,2,8,9).\r\n",
        "229 Entering Extended Passive Mode (|||2057|)\r\n",
        "EPRT |1|10.0.0.1|1029|\r\n",
        "EPRT |2|fc00::1|1029|\r\n",
    ]);
    let edits = proptest::collection::vec((any::<proptest::sample::Index>(), 0..4u8, any::<u8>()), 0..4);
    (seeds, edits).prop_map(|(seed, edits)| {
        let mut text = seed.as_bytes().to_vec();
        for (index, kind, byte) in edits {
            let at = index.index(text.len() + 1);
            match kind {
                0 => text.insert(at, byte),
                1 => text.insert(at, b"0129,.|( "[usize::from(byte) % 9]),
                2 if at < text.len() => drop(text.remove(at)),
                _ => text.truncate(at.max(3)),
            }
        }
        text
    })
}

tally::proptest! {
    #[test]
    fn an_address_is_where_the_scanner_says(text in near_announcements(), reply: bool, is_v6: bool) {
        let direction = if reply { Reply } else { Original };
        let Scan::Announcement(found) = scan(&text, direction, is_v6) else { return Ok(()) };
        prop_assert_eq!(found.mode == Mode::Passive, reply);
        let Some(address) = found.address else { return Ok(()) };
        prop_assert!(address.span.end < text.len().min(SCAN_MAX));
        prop_assert_eq!(address.ip.is_ipv6(), is_v6);
        let written = std::str::from_utf8(&text[address.span.clone()]).unwrap();
        let plain = if is_v6 { written.to_owned() } else { written.replace(',', ".") };
        prop_assert_eq!(plain.parse::<IpAddr>(), Ok(address.ip));
        // Another address in its place is found there, with the same port.
        let other = if is_v6 { "fd00:1:2:3:4:5:6:7" } else { "192.168.100.200" }.parse().unwrap();
        let new = format(other, address.notation);
        let mut changed = text.clone();
        changed.splice(address.span.clone(), new.bytes());
        if changed.len() <= SCAN_MAX {
            let Scan::Announcement(again) = scan(&changed, direction, is_v6) else { panic!("{changed:?}") };
            prop_assert_eq!(again.port, found.port);
            let again = again.address.unwrap();
            prop_assert_eq!((again.ip, again.span.len()), (other, new.len()));
            prop_assert!(again.notation == address.notation && again.notation != Notation::Commas || !is_v6);
        }
    }

    #[test]
    fn any_text_is_scanned(text: Vec<u8>, reply: bool, is_v6: bool) {
        let _ = scan(&text, if reply { Reply } else { Original }, is_v6);
    }
}

/// A text with changes, sent in random segments with retransmissions, arrives as if all of it had been replaced at once; and
/// acknowledgements of its bytes come back to the bytes of the sender.
#[test]
fn a_changed_stream_arrives_whole() {
    let mut rng = Rng::seeded(11);
    let mut segments = 0;
    for round in 0..400u32 {
        // The old text and its changes: "x" in lower case, changed text in upper case.
        let isn = (rng.next_u64() as u32).wrapping_sub(if round % 4 == 0 { u32::MAX / 2 } else { 0 });
        let isn = if round % 3 == 0 { u32::MAX - rng.below(50) as u32 } else { isn };
        let (mut old, mut new, mut changes) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rng.below(CHANGES_MAX as u64 + 1) {
            for _ in 0..rng.below(20) {
                let byte = b'a' + rng.below(26) as u8;
                old.push(byte);
                new.push(byte);
            }
            let start = old.len();
            old.resize(start + 1 + rng.below(9) as usize, b'?');
            let text: String = (0..=rng.below(11)).map(|_| char::from(b'A' + rng.below(26) as u8)).collect();
            changes.push((start..old.len(), text.clone()));
            new.extend(text.bytes());
        }
        old.extend(b"end");
        new.extend(b"end");
        let (mut shift, mut arrived, mut sent) = (Shift::default(), vec![None; new.len()], 0);
        while sent < old.len() {
            // From anywhere in what was sent, to somewhere beyond it at times.
            let from = rng.below(sent as u64 + 1) as usize;
            let to = (from + rng.below(40) as usize).min(old.len());
            let cuts = |at: usize| changes.iter().any(|(span, _)| span.start < at && at < span.end);
            if from >= to || cuts(from) || cuts(to) {
                continue;
            }
            let seq = isn.wrapping_add(from as u32);
            let forward = shift.forward(seq);
            // The helper sees a change when its bytes are sent for the first time, or again.
            for (span, text) in changes.iter().filter(|(span, _)| from <= span.start && span.end <= to) {
                assert!(shift.admit(isn.wrapping_add(span.end as u32), span.len(), text));
            }
            let mut bytes = old[from..to].to_vec();
            for (span, text) in shift.edits(seq, bytes.len()).unwrap() {
                bytes.splice(span, text.bytes());
            }
            let at = forward.wrapping_sub(isn) as usize;
            for (n, byte) in bytes.iter().enumerate() {
                assert!(arrived[at + n].replace(*byte).is_none_or(|before| before == *byte));
            }
            sent = sent.max(to);
            segments += 1;
            let ack = isn.wrapping_add((at + bytes.len()) as u32);
            assert_eq!(shift.backward(ack), isn.wrapping_add(to as u32));
        }
        assert_eq!(arrived.into_iter().map(Option::unwrap).collect::<Vec<u8>>(), new);
        // Acknowledgements never go back, and none within a changed text reaches its end.
        let mut last = 0;
        for ack in 0..=new.len() {
            let back = shift.backward(isn.wrapping_add(ack as u32)).wrapping_sub(isn) as usize;
            assert!(last <= back || back > old.len() && ack == 0, "{last} {back}");
            last = back;
        }
        assert_eq!(last, old.len());
    }
    tally::report!("{segments} segments");
}

#[test]
fn old_changes_are_forgotten() {
    let mut shift = Shift::default();
    for n in 0..CHANGES_MAX as u32 + 2 {
        assert!(shift.admit(100 * n + 10, 2, "abc"));
    }
    let all = CHANGES_MAX as u32 + 2;
    assert_eq!(shift.forward(100 * all), 100 * all + all);
    assert_eq!(shift.forward(0), 2);
    assert_eq!(shift.backward(100 * all + all), 100 * all);
    assert!(!shift.admit(10, 2, "abc"));
    assert_eq!(shift.edits(308, 1), Err(Split));
    assert_eq!(shift.edits(300, 9), Err(Split));
    assert_eq!(shift.edits(300, 8).unwrap().len(), 0);
    assert_eq!(shift.edits(300, 10).unwrap()[..], [(8..10, "abc")]);
    // Far ahead, all of them are one shift, and the order of numbers does not turn around.
    let far = (1u32 << 30) + 100_000;
    assert_eq!(shift.forward(far), far + all);
    assert_eq!(shift.forward(0), all);
    assert!(shift.admit(far + 10, 2, "d"));
    assert_eq!(shift.forward(far + 11), far + 11 + all - 1);
}

#[test]
fn expectations_agree_with_a_list() {
    let mut rng = Rng::seeded(5);
    let max = 100;
    let table = Expectations::new(max);
    let mut twin: Vec<Expectation> = Vec::new();
    let mut displaced = 0;
    let steps = 20_000;
    for step in 0..steps {
        let mut key = key(ipproto::TCP, ("10.0.0.1", 0), ("10.0.0.2", rng.below(150) as u16));
        key.zone = rng.below(2) as u16;
        let parent = handle(1 + if rng.below(3) == 0 { 0 } else { rng.below(6) });
        match rng.below(40) {
            0 => {
                table.remove_all_of(parent);
                twin.retain(|e| e.parent.handle != parent);
            }
            1..20 => {
                let parent = Parent { handle: parent, key };
                let mode = Mode::Passive;
                let (mark, label, added) = (step, 0, Millis(0));
                let new = Expectation { key, reply: key, mode, parent_has_dnat: false, parent, mark, label, added };
                table.add(new.clone());
                if twin.iter().all(|e| e.key != new.key) {
                    let of_parent = |e: &Expectation| e.parent.handle == new.parent.handle;
                    if twin.iter().filter(|e| of_parent(e)).count() == PER_PARENT_MAX {
                        let oldest = twin.iter().position(of_parent).unwrap();
                        twin.remove(oldest);
                        displaced += 1;
                    } else if twin.len() == max {
                        twin.remove(0);
                        displaced += 1;
                    }
                    twin.push(new);
                }
            }
            _ => {
                let syn = Key { src_port: rng.next_u64() as u16, ..key };
                assert_eq!(table.find(&syn), twin.iter().find(|e| e.matches(&syn)).cloned());
            }
        }
        assert_eq!(table.len(), twin.len());
    }
    assert_eq!(table.list(), twin);
    assert_eq!(table.displaced(), displaced);
    assert!(displaced > 100);
    Expectations::new(0).add(twin.remove(0));
    tally::report!("{steps} steps");
}
