//! The table against a naive twin, at its limits, and with frames of any bytes.

use super::*;
use crate::message::Malformed;
use crate::show;
use base::rng::Rng;
use packet::checksum::{checksum, pseudo_v6};
use proptest::prelude::*;

fn group(n: u64) -> IpAddr {
    if n.is_multiple_of(3) {
        IpAddr::from([0xff05, 0, 0, 0, 0, 0, 0, n as u16])
    } else {
        IpAddr::from(0xe100_0000_u32.wrapping_add(n as u32).to_be_bytes())
    }
}

fn from(vlan: u16, bundle: &str) -> Source {
    Source { vlan, bundle: bundle.into(), flooding: Flooding::default() }
}

fn report(version: Version, groups: &[IpAddr], membership: Membership) -> Message {
    Message::Report { version, records: groups.iter().map(|group| Record { group: *group, membership }).collect() }
}

fn join(group: IpAddr) -> Message {
    report(Version::Igmp2, &[group], Membership::Join)
}

fn leave(group: IpAddr) -> Message {
    report(Version::Igmp2, &[group], Membership::Leave)
}

fn query() -> Message {
    Message::Query { source: IpAddr::from([10, 0, 0, 1]) }
}

fn names(list: &[Heard]) -> Vec<&str> {
    list.iter().map(|heard| &*heard.bundle).collect()
}

/// One line of the naive table: a group, or `None` for a router; bundle; version; time.
type Line = (u16, Option<IpAddr>, &'static str, Option<Version>, Millis);

/// The table as two lists, searched from the front for everything.
#[derive(Default)]
struct Naive {
    /// Groups with the version of the last report, in the order of the last reports.
    groups: Vec<(GroupKey, Version)>,
    /// All members and routers, in the order of their last messages.
    lines: Vec<(u16, Option<IpAddr>, &'static str, Millis)>,
    size: usize,
    aging_ms: u64,
}

impl Naive {
    fn members(&self, vlan: u16, group: Option<IpAddr>) -> Vec<&'static str> {
        self.lines.iter().filter(|l| (l.0, l.1) == (vlan, group)).map(|l| l.2).collect()
    }

    fn forget_empty(&mut self) {
        let lines = &self.lines;
        self.groups.retain(|((vlan, group), _)| lines.iter().any(|l| (l.0, l.1) == (*vlan, Some(*group))));
    }

    fn hear(&mut self, vlan: u16, group: Option<IpAddr>, bundle: &'static str, now: Millis) {
        self.lines.retain(|l| (l.0, l.1, l.2) != (vlan, group, bundle));
        self.lines.push((vlan, group, bundle, now));
    }

    fn shrink(&mut self, to: usize) {
        while self.groups.len() > to {
            let ((vlan, group), _) = self.groups.remove(0);
            self.lines.retain(|l| (l.0, l.1) != (vlan, Some(group)));
        }
    }

    fn learn(&mut self, message: &Message, (vlan, bundle, flooding): (u16, &'static str, Flooding), now: Millis) {
        let (version, records) = match message {
            Message::Query { source } if source.is_unspecified() => return,
            Message::Query { .. } => return self.hear(vlan, None, bundle, now),
            Message::Report { version, records } => (*version, records),
        };
        for record in records {
            let key = (vlan, record.group);
            if record.membership == Membership::Leave {
                if !flooding.reports {
                    self.lines.retain(|l| (l.0, l.1, l.2) != (vlan, Some(record.group), bundle));
                    self.forget_empty();
                }
            } else if !flooding.traffic && !self.members(vlan, None).contains(&bundle) {
                if self.groups.iter().all(|(k, _)| *k != key) {
                    self.shrink(self.size - 1);
                }
                self.groups.retain(|(k, _)| *k != key);
                self.groups.push((key, version));
                self.hear(vlan, Some(record.group), bundle, now);
            }
        }
    }

    fn expire(&mut self, now: Millis) {
        let aging_ms = self.aging_ms;
        self.lines.retain(|l| now.since(l.3) < if l.1.is_some() { aging_ms } else { 180_000 });
        self.forget_empty();
    }

    fn all(&self) -> Vec<Line> {
        let members = self.groups.iter().flat_map(|((vlan, group), version)| {
            let of_group = self.lines.iter().filter(move |l| (l.0, l.1) == (*vlan, Some(*group)));
            of_group.map(move |l| (l.0, l.1, l.2, Some(*version), l.3))
        });
        let routers = self.lines.iter().filter(|l| l.1.is_none()).map(|l| (l.0, None, l.2, None, l.3));
        members.chain(routers).collect()
    }
}

const BUNDLES: [&str; 4] = ["a", "b", "c", "d"];

fn all(table: &Table) -> Vec<Line> {
    let name = |bundle: &str| *BUNDLES.iter().find(|name| **name == bundle).unwrap();
    let mut out = Vec::new();
    for ((vlan, address), group) in table.groups() {
        assert!(!group.members().is_empty());
        out.extend(group.members().iter().map(|m| (vlan, Some(address), name(&m.bundle), Some(group.version), m.at)));
    }
    out.extend(table.all_routers().into_iter().map(|(vlan, r)| (vlan, None, name(&r.bundle), None, r.at)));
    out
}

/// What translations see of a part of the table.
fn seen(table: &Table, change: Change) -> Vec<String> {
    let list = match change {
        Change::Group(vlan, group) => table.members(vlan, group),
        Change::Routers(vlan) => table.routers(vlan),
    };
    let mut seen: Vec<String> = list.iter().map(|heard| heard.bundle.to_string()).collect();
    seen.sort();
    seen
}

tally::proptest! {
    /// Any operations leave the table as the naive twin, and report each part that changed, and no other one.
    #[test]
    fn the_table_agrees_with_a_naive_twin(seed: u64) {
        let mut rng = Rng::seeded(seed);
        let mut table = Table::new(Settings { table_size: 10, aging_secs: 200 });
        let mut naive = Naive { size: 10, aging_ms: 200_000, ..Naive::default() };
        let mut now = Millis(5000);
        let parts: Vec<Change> = (0..3)
            .flat_map(|vlan| (0..16).map(move |n| Change::Group(vlan, group(n))).chain([Change::Routers(vlan)]))
            .collect();
        for _ in 0..60 {
            let before: Vec<_> = parts.iter().map(|part| seen(&table, *part)).collect();
            now = now.after(rng.below(12) * 1000);
            let bundle = BUNDLES[rng.below(4) as usize];
            let vlan = rng.below(3) as u16;
            let flooding = Flooding { traffic: bundle == "d" && vlan == 1, reports: bundle == "c" };
            let changes = match rng.below(20) {
                0 => {
                    naive.lines.retain(|l| l.2 != bundle);
                    naive.forget_empty();
                    table.remove_bundle(bundle)
                }
                1 if rng.below(4) == 0 => {
                    naive.groups.clear();
                    naive.lines.clear();
                    table.flush()
                }
                2 => {
                    let (size, secs) = (10 + rng.below(3), 100 + rng.below(200));
                    (naive.size, naive.aging_ms) = (size as usize, secs * 1000);
                    naive.shrink(naive.size);
                    table.configure(Settings { table_size: size as usize, aging_secs: secs as u32 })
                }
                3 | 4 => {
                    naive.expire(now);
                    let due = table.next_deadline().is_some_and(|deadline| deadline <= now);
                    let mut changes = table.expire(now, 3);
                    prop_assert_eq!(due, !changes.is_empty());
                    while table.next_deadline().is_some_and(|deadline| deadline <= now) {
                        changes.extend(table.expire(now, 3));
                    }
                    changes
                }
                kind => {
                    let groups: Vec<_> = (0..rng.below(4)).map(|_| group(rng.below(16))).collect();
                    let message = match kind {
                        5 => query(),
                        6 => Message::Query { source: IpAddr::from([0; 4]) },
                        7..10 => report(Version::Mld2, &groups, Membership::Leave),
                        10..13 => report(Version::Igmp3, &groups, Membership::Join),
                        _ => join(group(rng.below(16))),
                    };
                    let source = Source { vlan, bundle: bundle.into(), flooding };
                    let news = table.news(&message, &source);
                    naive.learn(&message, (vlan, bundle, flooding), now);
                    let changes = table.learn(&message, &source, now);
                    prop_assert!(news == 0 || !changes.is_empty());
                    changes
                }
            };
            for (part, before) in parts.iter().zip(before) {
                prop_assert!(before == seen(&table, *part) || changes.contains(part), "{part:?} was not reported");
            }
            prop_assert!(changes.iter().all(|change| parts.contains(change)));
            prop_assert_eq!(all(&table), naive.all());
            prop_assert_eq!(table.len(), naive.groups.len());
            check_indices(&table);
        }
    }

    /// Frames of any bytes, and valid ones with some bytes changed, are a message or an error; the table stays within its limits.
    #[test]
    fn hostile_frames(seed: u64) {
        let mut rng = Rng::seeded(seed);
        let mut table = Table::new(Settings { table_size: 10, aging_secs: 15 });
        for n in 0..30 {
            let mut frame = any_frame(&mut rng);
            for _ in 0..rng.below(4) {
                let at = rng.below(frame.len() as u64) as usize;
                frame[at] = rng.below(256) as u8;
            }
            frame.truncate(rng.below(2 * frame.len() as u64) as usize);
            if let Ok(message) = Message::parse(&frame) {
                let source = from(rng.below(4096) as u16, BUNDLES[rng.below(4) as usize]);
                table.learn(&message, &source, Millis(n * 100));
            }
            table.expire(Millis(n * 100), usize::MAX);
            prop_assert!(table.len() <= 10);
        }
        check_indices(&table);
    }
}

fn check_indices(table: &Table) {
    let members: usize = table.groups.values().map(|g| g.members.len()).sum();
    let routers: usize = table.routers.values().map(Vec::len).sum();
    assert_eq!((table.by_report.len(), table.member_ages.len()), (table.groups.len(), members));
    assert_eq!(table.router_ages.len(), routers);
    assert!(table.routers.values().all(|routers| !routers.is_empty()));
}

/// A frame with an IGMP or MLD message of random contents and a right checksum.
fn any_frame(rng: &mut Rng) -> Vec<u8> {
    let mut message: Vec<u8> = (0..8 + rng.below(64)).map(|_| rng.below(6) as u8).collect();
    let (src, dst) = ([0xfe; 16], [0xff; 16]);
    let is_v6 = rng.below(2) == 0;
    let types: [u8; 5] = if is_v6 { [130, 131, 132, 143, 0] } else { [0x11, 0x12, 0x16, 0x17, 0x22] };
    message[0] = types[rng.below(5) as usize];
    (message[2], message[3]) = (0, 0);
    let len = message.len() as u32;
    let sum = if is_v6 { pseudo_v6(&src, &dst, 58, len).bytes(&message).finish() } else { checksum(&message) };
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let mut frame = vec![0xff; 12];
    for _ in 0..rng.below(3) {
        frame.extend([0x81, 0, 0, 5]);
    }
    if is_v6 {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, len as u8 + 8, 0, 1]);
        frame.extend(src.into_iter().chain(dst));
        frame.extend([58, 0, 5, 2, 0, 0, 1, 0]);
    } else {
        frame.extend([
            8,
            0,
            0x46,
            0,
            0,
            24 + len as u8,
            0,
            0,
            0,
            0,
            1,
            2,
            0,
            0,
            10,
            0,
            0,
            1,
            224,
            0,
            0,
            22,
            0x94,
            4,
            0,
            0,
        ]);
    }
    frame.extend(message);
    frame
}

#[test]
fn frames_are_parsed_behind_tags_and_options() {
    let mut rng = Rng::seeded(1);
    let (mut reports, mut queries) = (0, 0);
    for _ in 0..200 {
        match Message::parse(&any_frame(&mut rng)) {
            Ok(Message::Query { .. }) => queries += 1,
            Ok(Message::Report { .. }) => reports += 1,
            Err(error) => assert!(matches!(error, Malformed::Truncated | Malformed::Type(0)), "{error}"),
        }
    }
    assert!(reports > 50 && queries > 20, "{reports} {queries}");
    let mut padded =
        [&[0xff; 12][..], &[8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 1, 2, 0, 0, 10, 0, 0, 1, 224, 0, 0, 1]].concat();
    padded.extend([0x11, 0, 0xee, 0xff, 0, 0, 0, 0]);
    padded.resize(60, 0x55);
    assert_eq!(Message::parse(&padded), Ok(Message::Query { source: IpAddr::from([10, 0, 0, 1]) }));
    padded[20] = 0x20;
    assert_eq!(Message::parse(&padded), Err(Malformed::OtherProtocol), "a fragment");
    assert_eq!(Message::parse(&[0; 60]), Err(Malformed::OtherProtocol));
}

#[test]
fn ten_thousand_groups() {
    let mut table = Table::new(Settings { table_size: 10_000, aging_secs: 300 });
    let address = |n: u32| IpAddr::from((0xe100_0000 + n).to_be_bytes());
    for n in 0..10_000 {
        table.learn(&join(address(n)), &from(1, "a"), Millis(u64::from(n)));
    }
    assert_eq!((table.len(), table.counters()), (10_000, Counters { learned: 10_000, expired: 0, evicted: 0 }));
    // One more displaces the one that reported least recently.
    table.learn(&join(address(0)), &from(1, "a"), Millis(10_000));
    let changes = table.learn(&join(address(10_000)), &from(1, "a"), Millis(10_001));
    assert_eq!(changes, [Change::Group(1, address(1)), Change::Group(1, address(10_000))]);
    assert_eq!((names(table.members(1, address(0))), table.members(1, address(1)).len()), (vec!["a"], 0));
    assert_eq!(table.configure(Settings { table_size: 4000, aging_secs: 300 }).len(), 6000);
    assert_eq!(table.next_deadline(), Some(Millis(300_000 + 6002)));
    assert_eq!(table.expire(Millis(300_000 + 6002), 10), [Change::Group(1, address(6002))]);
    assert_eq!(table.expire(Millis(1_000_000), 256).len(), 256);
    assert_eq!(table.expire(Millis(1_000_000), usize::MAX).len(), 4000 - 257);
    assert!(table.is_empty() && table.next_deadline().is_none());
    check_indices(&table);
}

/// The replies are those of Open vSwitch 4.0.0 after the same messages.
#[test]
fn text_of_the_table() {
    let mut table = Table::default();
    let show = |table: &Table, now| {
        let port = |bundle: &str| Some(bundle.replace('p', "").replace("br0", "LOCAL"));
        show::text(&show::rows(table, now, port))
    };
    assert_eq!(show(&table, Millis(0)), " port  VLAN  protocol  GROUP                Age\n");
    let (v4, v6) = (IpAddr::from([225, 1, 2, 4]), IpAddr::from([0xff05, 0, 0, 0, 0, 0, 0, 0x78]));
    table.learn(&report(Version::Igmp1, &[v4], Membership::Join), &from(0, "p1"), Millis(0));
    table.learn(&report(Version::Mld2, &[v6], Membership::Join), &from(5, "br0"), Millis(0));
    table.learn(&query(), &from(7, "p12"), Millis(0));
    table.learn(&report(Version::Igmp3, &[v4], Membership::Join), &from(0, "p2"), Millis(1500));
    let want = " port  VLAN  protocol  GROUP                Age
LOCAL     5  MLDv2     ff05::78         179
    1     0  IGMPv3    225.1.2.4         179
    2     0  IGMPv3    225.1.2.4         178
   12     7  UNKNOWN   querier             179
";
    assert_eq!(show(&table, Millis(179_999)), want);
}

#[test]
fn routers_and_flooded_bundles_join_nothing() {
    let mut table = Table::default();
    let (a, b) = (group(1), group(2));
    let flooded = Source { flooding: Flooding { traffic: true, reports: false }, ..from(0, "a") };
    assert_eq!(table.learn(&join(a), &flooded, Millis(0)), []);
    assert_eq!(table.learn(&join(a), &from(0, "b"), Millis(0)), [Change::Group(0, a)]);
    assert_eq!(table.learn(&query(), &from(0, "b"), Millis(0)), [Change::Routers(0)]);
    assert_eq!(table.learn(&query(), &from(0, "b"), Millis(100_000)), []);
    // The membership from before stays until it ages; another VLAN has its own routers.
    assert_eq!(table.learn(&join(b), &from(0, "b"), Millis(1)), []);
    assert_eq!(table.learn(&join(a), &from(0, "b"), Millis(100_000)), []);
    assert_eq!(table.learn(&join(b), &from(4, "b"), Millis(1)), [Change::Group(4, b)]);
    assert_eq!(table.expire(Millis(279_999), 9), []);
    assert_eq!(table.expire(Millis(280_000), 9), [Change::Routers(0)]);
    assert_eq!(table.expire(Millis(300_000), 9), [Change::Group(0, a)]);
}

#[test]
fn leaves() {
    let mut table = Table::default();
    let a = group(1);
    let many = Source { flooding: Flooding { traffic: false, reports: true }, ..from(0, "a") };
    table.learn(&join(a), &many, Millis(0));
    table.learn(&join(a), &from(0, "b"), Millis(0));
    assert_eq!(names(table.members(0, a)), ["a", "b"]);
    assert_eq!(table.learn(&leave(a), &from(0, "c"), Millis(0)), []);
    assert_eq!(table.learn(&leave(a), &from(1, "b"), Millis(0)), []);
    assert_eq!(table.learn(&leave(a), &many, Millis(0)), []);
    assert_eq!(table.learn(&leave(a), &from(0, "b"), Millis(0)), [Change::Group(0, a)]);
    assert_eq!(names(table.members(0, a)), ["a"]);
    assert_eq!(table.remove_bundle("a"), [Change::Group(0, a)]);
    assert!(table.is_empty());
}
