//! Examples of the paper and of the manual.

use super::*;
use flow::layout;

fn lookup(cls: &Cls, text: &str) -> (Option<u32>, Reads) {
    let mut reads = Reads::new();
    let found = cls.lookup(matching(text).key(), LATEST, &mut reads);
    (found.map(|r| r.priority), reads)
}

fn prefix_of(reads: &Reads, field: Field) -> u32 {
    let mask = reads.mask().get(field);
    assert_eq!(mask.leading_zeros() + mask.count_ones() + mask.trailing_zeros() % 128, 128, "{mask:x} is no prefix");
    mask.count_ones()
}

#[test]
fn a_match_in_a_higher_tuple_skips_lower_masks() {
    let cls = Cls::new();
    let high = matching("in_port=1");
    add(&cls, &high, 10);
    add(&cls, &matching("tcp,tp_dst=80"), 5);
    let (found, reads) = lookup(&cls, "in_port=1");
    assert_eq!((found, reads.mask()), (Some(10), high.mask()));
    assert_eq!((cls.len(), cls.n_masks(), cls.is_empty()), (2, 2, false));
    let without = Options { priority_sorting: false, stages: false, ..Options::ALL };
    cls.set_options(without);
    assert_eq!(cls.options(), without);
    let (found, reads) = lookup(&cls, "in_port=1");
    assert_eq!((found, reads.mask().get(Field::IpProto)), (Some(10), 0xff));
}

#[test]
fn rules_that_match_ports_are_counted() {
    let cls = Cls::new();
    add(&cls, &matching("tcp,tcp_flags=+syn"), 5);
    assert!(!cls.looks_at_ports());
    add(&cls, &matching("icmp,icmp_type=8"), 5);
    add(&cls, &matching("udp,tp_src=0x10/0x10"), 5);
    for rule in cls.rules(LATEST) {
        assert!(cls.looks_at_ports());
        cls.remove(&rule);
        cls.remove(&rule);
    }
    assert!(!cls.looks_at_ports());
}

/// NSDI'15 section 5.3: a lookup that misses in the L2 stage does not read the later stages.
#[test]
fn a_miss_in_a_stage_skips_the_later_ones() {
    let cls = Cls::new();
    add(&cls, &matching("in_port=1,dl_dst=02:00:00:00:00:01,tcp,nw_dst=10.0.0.1,tp_dst=80"), 10);
    add(&cls, &Match::ANY, 0);
    let stages = |text: &str| {
        let (found, reads) = lookup(&cls, text);
        let read: Vec<_> = flow::Stage::ALL.map(|s| reads.mask().0[s.words()].iter().any(|w| *w != 0)).into();
        (found, read)
    };
    let all = "in_port=1,dl_dst=02:00:00:00:00:01,tcp,nw_dst=10.0.0.1,tp_dst=80";
    assert_eq!(stages(all), (Some(10), vec![true; 4]));
    assert_eq!(stages(&all.replace("tp_dst=80", "tp_dst=81")), (Some(0), vec![true; 4]));
    assert_eq!(stages(&all.replace("10.0.0.1", "10.0.0.2")), (Some(0), vec![true, true, true, false]));
    assert_eq!(stages(&all.replace("00:01", "00:02")), (Some(0), vec![true, true, false, false]));
    assert_eq!(stages(&all.replace("in_port=1", "in_port=2")), (Some(0), vec![true, false, false, false]));
}

/// NSDI'15 section 5.4: with 10/8, 10.1/16, 10.2/16, 10.1.3/24 and 10.1.4.5/32 in a table, a packet to 10.3.x.y needs
/// 16 bits of its address.
#[test]
fn the_papers_prefixes() {
    let cls = Cls::new();
    for (text, priority) in
        [("10.0.0.0/8", 8), ("10.1.0.0/16", 16), ("10.2.0.0/16", 16), ("10.1.3.0/24", 24), ("10.1.4.5", 32)]
    {
        add(&cls, &matching(&format!("ip,nw_dst={text}")), priority);
    }
    for (dst, found, read) in [
        ("10.3.5.6", Some(8), 16),
        ("10.1.4.5", Some(32), 32),
        ("10.1.4.4", Some(16), 32),
        ("10.1.3.5", Some(24), 24),
        ("10.1.6.1", Some(16), 23),
        ("10.2.6.1", Some(16), 16),
        ("10.128.6.1", Some(8), 9),
        ("20.2.6.1", None, 4),
    ] {
        let (rule, reads) = lookup(&cls, &format!("ip,nw_dst={dst}"));
        assert_eq!((rule, prefix_of(&reads, Field::Ipv4Dst)), (found, read), "{dst}");
    }
    cls.set_options(Options { prefix_tries: false, ..Options::ALL });
    assert_eq!(prefix_of(&lookup(&cls, "ip,nw_dst=10.3.5.6").1, Field::Ipv4Dst), 32);
    cls.set_options(Options::ALL);
    assert_eq!(cls.set_prefixes(&[Field::Ipv4Src]), Ok(()));
    assert_eq!(prefix_of(&lookup(&cls, "ip,nw_dst=10.3.5.6").1, Field::Ipv4Dst), 32);
    assert_eq!(cls.set_prefixes(&[Field::Ipv4Dst]), Ok(()));
    assert_eq!(prefix_of(&lookup(&cls, "ip,nw_dst=10.3.5.6").1, Field::Ipv4Dst), 16);
    assert!(cls.set_prefixes(&[Field::EthDst]).is_err());
    assert_eq!(cls.prefixes(), [Field::Ipv4Dst]);
}

#[test]
fn ipv6_prefixes_read_the_second_word_only_if_needed() {
    let cls = Cls::new();
    add(&cls, &matching("ipv6,ipv6_dst=2001:db8::/32"), 32);
    add(&cls, &matching("ipv6,ipv6_dst=2001:db8:1::/48"), 48);
    add(&cls, &matching("ipv6,ipv6_dst=2001:db8:1::1"), 128);
    let read = |dst: &str| {
        let (found, reads) = lookup(&cls, &format!("ipv6,ipv6_dst={dst}"));
        (found, prefix_of(&reads, Field::Ipv6Dst))
    };
    assert_eq!(read("2001:db8:8000::1"), (Some(32), 33));
    assert_eq!(read("2001:db8:1:8000::1"), (Some(48), 49));
    assert_eq!(read("2001:db8:1::2"), (Some(48), 127));
    assert_eq!(read("2001:db8:1::1"), (Some(128), 128));
}

/// A bug described in NSDI'15: type and code of ICMP share the key's word with TCP ports, and one ICMP rule made every
/// TCP megaflow match on its ports.
#[test]
fn an_icmp_rule_does_not_read_tcp_ports() {
    let cls = Cls::new();
    add(&cls, &matching("icmp,icmp_type=8,icmp_code=0"), 20);
    add(&cls, &matching("icmp6,icmpv6_type=135"), 20);
    add(&cls, &matching("icmp,icmp_type=3"), 10);
    add(&cls, &matching("ip"), 1);
    for text in ["tcp,tp_src=1234,tp_dst=80", "udp,tp_src=8,tp_dst=0", "sctp,tp_src=3,tp_dst=0"] {
        let (found, reads) = lookup(&cls, text);
        assert_eq!((found, reads.mask().0[layout::TP]), (Some(1), 0), "{text}");
    }
    assert_eq!(lookup(&cls, "icmp,icmp_type=8,icmp_code=0").0, Some(20));
    // ICMP rules do not change how many bits of a port are read for rules on ports either.
    let bits = |cls: &Cls| lookup(cls, "tcp,tp_src=7,tp_dst=443").1.mask().0[layout::TP];
    let tcp = Cls::new();
    add(&tcp, &matching("ip"), 1);
    for cls in [&cls, &tcp] {
        add(cls, &matching("tcp,tp_dst=80"), 20);
    }
    assert_eq!(bits(&cls), bits(&tcp));
    assert_eq!(lookup(&cls, "tcp,tp_src=7,tp_dst=443").1.mask().get(Field::TcpDst), 0xff00);
}

/// NSDI'15 section 5.4: few bits of a port show that it is not one of an ACL's.
#[test]
fn only_deciding_bits_of_ports_are_read() {
    let cls = Cls::new();
    add(&cls, &matching("tcp,tp_dst=80"), 20);
    add(&cls, &matching("ip"), 1);
    let (found, reads) = lookup(&cls, "tcp,tp_src=7,tp_dst=33000");
    assert_eq!((found, reads.mask().get(Field::TcpDst), reads.mask().get(Field::TcpSrc)), (Some(1), 0x8000, 0));
    let (found, reads) = lookup(&cls, "udp,tp_src=7,tp_dst=33000");
    assert_eq!((found, reads.mask().0[layout::TP]), (Some(1), 0));
    cls.set_options(Options { ports_trie: false, ..Options::ALL });
    assert_eq!(lookup(&cls, "tcp,tp_dst=33000").1.mask().get(Field::TcpDst), 0xffff);
}

#[test]
fn unknown_metadata_excludes_a_tuple_by_itself() {
    let cls = Cls::new();
    add(&cls, &matching("metadata=1,reg0=5,tcp,tp_dst=80"), 20);
    add(&cls, &matching("metadata=2"), 1);
    let (found, reads) = lookup(&cls, "metadata=2,reg0=5,tcp,tp_dst=80");
    assert_eq!((found, reads.mask()), (Some(1), &FlowKey::mask_of(Field::Metadata)));
    let (found, reads) = lookup(&cls, "metadata=1,reg0=6,tcp,tp_dst=80");
    assert_eq!((found, reads.mask().get(Field::Reg0), reads.mask().get(Field::EthType)), (None, 0xffff_ffff, 0));
    let plain = Cls::new();
    add(&plain, &matching("reg0=5"), 1);
    assert_eq!(lookup(&plain, "metadata=2,reg0=5").1.mask().get(Field::Metadata), 0);
}

/// The table of ovs-fields(7).
#[test]
fn the_manuals_conjunctive_match() {
    let cls = Cls::new();
    let clause = |id, clause| vec![Conjunction { id, clause, n_clauses: 2 }];
    for host in [1, 4, 6, 7] {
        add_rule(&cls, &matching(&format!("ip,nw_src=10.0.0.{host}")), 10, 0, clause(1234, 0));
    }
    for host in [2, 5, 7, 8] {
        add_rule(&cls, &matching(&format!("ip,nw_dst=10.0.0.{host}")), 10, 0, clause(1234, 1));
    }
    let found = |src: u8, dst: u8| lookup(&cls, &format!("ip,nw_src=10.0.0.{src},nw_dst=10.0.0.{dst}")).0;
    // Without a rule for the id, the conjunctive match has no effect.
    assert_eq!(found(4, 5), None);
    add(&cls, &matching("nw_src=10.0.0.4,ip"), 5);
    assert_eq!(found(4, 5), Some(5));
    // The rule for the id may have any priority, and further conditions.
    let by_id = add(&cls, &matching("conj_id=1234,ip"), 30);
    assert_eq!(
        [found(4, 5), found(7, 7), found(4, 4), found(2, 2), found(5, 5)],
        [Some(30), Some(30), Some(5), None, None]
    );
    cls.remove(&by_id);
    add(&cls, &matching("conj_id=1234,ipv6"), 30);
    assert_eq!(found(4, 5), Some(5));
    // An ordinary rule of the clauses' priority or above wins, a lower one loses.
    add(&cls, &matching("conj_id=1234,ip"), 30);
    assert_eq!(found(4, 5), Some(30));
    for (text, priority) in [("ip,nw_src=10.0.0.6", 9), ("ip,nw_dst=10.0.0.7", 10), ("ip,nw_dst=10.0.0.8", 40)] {
        let ordinary = matching(text);
        add(&cls, &Match::new(ordinary.key(), ordinary.mask().clone()), priority);
    }
    assert_eq!([found(6, 5), found(4, 7), found(4, 8)], [Some(30), Some(10), Some(40)]);
}

#[test]
fn the_clauses_of_a_conjunctive_match_can_be_listed() {
    let cls = Cls::new();
    let part = |text: &str, priority, id, clause| {
        add_rule(&cls, &matching(text), priority, 0, vec![Conjunction { id, clause, n_clauses: 2 }])
    };
    part("ip,nw_src=10.0.0.4", 100, 1, 0);
    part("ip,nw_src=10.0.0.0/24", 100, 1, 0);
    part("ip,nw_dst=10.0.0.2", 100, 1, 1);
    part("ip,nw_dst=10.0.0.0/16", 100, 2, 1);
    part("ip,nw_src=10.0.0.4", 50, 1, 0);
    part("ip,nw_dst=10.0.0.2", 50, 1, 1);
    let list = |src: u8, dst: u8| {
        let key = matching(&format!("ip,nw_src=10.0.0.{src},nw_dst=10.0.0.{dst}"));
        let rules = cls.conjunctive(key.key(), LATEST);
        let text = |rule: Arc<TestRule>| flow::text::match_to_string(&rule.full, &flow::NoNames);
        rules.into_iter().map(text).collect::<Vec<_>>()
    };
    // All flows of the highest priority that the packet matches.
    add(&cls, &matching("conj_id=1"), 7);
    assert_eq!(list(4, 2), ["ip,nw_src=10.0.0.4", "ip,nw_src=10.0.0.0/24", "ip,nw_dst=10.0.0.2"]);
    assert_eq!(list(5, 2), ["ip,nw_src=10.0.0.0/24", "ip,nw_dst=10.0.0.2"]);
    assert!(list(4, 3).is_empty());
    // An ordinary rule of a higher priority takes their place.
    add(&cls, &matching("ip"), 200);
    assert!(list(4, 2).is_empty());
}

#[test]
fn masks_are_listed_by_priority_and_arrival() {
    let cls = Cls::new();
    let masks = || {
        let text = |mask: &Arc<MiniMask>| {
            flow::text::match_to_string(&Match::new(&FlowKey([u64::MAX; flow::WORDS]), mask.expand()), &flow::NoNames)
        };
        cls.masks()
            .iter()
            .map(|mask| text(mask).split(['=', '/']).next().unwrap_or_default().to_owned())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let [reg0, reg1, reg2, reg3] = ["reg0=1", "reg1=1", "reg2=1", "reg3=1"].map(matching);
    let first = add(&cls, &reg0, 9);
    add(&cls, &reg1, 5);
    add(&cls, &reg2, 5);
    add(&cls, &reg3, 5);
    assert_eq!(masks(), "reg0 reg1 reg2 reg3");
    // A mask that is raised to the priority of others follows them, one that is lowered to it precedes them.
    let raised = add(&cls, &reg2, 9);
    assert_eq!(masks(), "reg0 reg2 reg1 reg3");
    cls.remove(&raised);
    assert_eq!(masks(), "reg0 reg2 reg1 reg3");
    // The last mask takes the place of one that goes, as far as its priority allows.
    cls.remove(&first);
    assert_eq!(masks(), "reg3 reg2 reg1");
    let gone = cls.find(&reg3, 5, LATEST).expect("there");
    cls.remove(&gone);
    assert_eq!(masks(), "reg1 reg2");
    add(&cls, &reg3, 5);
    assert_eq!(masks(), "reg1 reg2 reg3");
}

#[test]
fn a_conjunctive_match_does_not_record_conj_id() {
    let cls = Cls::new();
    for (text, clause) in [("in_port=1", 0), ("dl_type=0x800", 1)] {
        add_rule(&cls, &matching(text), 10, 0, vec![Conjunction { id: 7, clause, n_clauses: 2 }]);
    }
    // Its priority is below the clauses', so the first search ends before it.
    add(&cls, &matching("conj_id=7"), 3);
    add(&cls, &matching("in_port=1"), 5);
    let (found, reads) = lookup(&cls, "in_port=1,ip");
    assert_eq!(found, Some(5));
    assert_eq!(reads.mask().get(Field::ConjId), 0);
    assert!(reads.written().is_zero());
}

#[test]
fn a_version_sees_the_rules_of_that_version() {
    let cls = Cls::new();
    let m = matching("in_port=1");
    let old = add_rule(&cls, &m, 5, 1, Vec::new());
    let new = add_rule(&cls, &m, 5, 2, Vec::new());
    old.versions.remove_in(2);
    let found = |version| cls.lookup(m.key(), version, &mut Reads::new()).map(|r| Arc::as_ptr(&r));
    let by_match = |version| cls.find(&m, 5, version).map(|r| Arc::as_ptr(&r));
    for (version, rule) in [(0, None), (1, Some(&old)), (2, Some(&new)), (LATEST, Some(&new))] {
        assert_eq!(found(version), rule.map(Arc::as_ptr));
        assert_eq!(by_match(version), rule.map(Arc::as_ptr));
        assert_eq!(cls.rules(version).len(), usize::from(rule.is_some()));
    }
    assert_eq!(cls.len(), 2);
    assert!(cls.remove(&old) && !cls.remove(&old));
    assert_eq!((cls.len(), found(1)), (1, None));
    settle(&cls);
    assert_eq!(Arc::strong_count(&old), 1);
}
