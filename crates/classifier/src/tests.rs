//! The classifier against a linear list of rules.

use super::*;
use flow::Field;
use proptest::prelude::*;

#[derive(Debug)]
struct TestRule {
    minimatch: MiniMatch,
    full: Match,
    priority: u32,
    versions: Versions,
}

impl Rule for TestRule {
    fn minimatch(&self) -> &MiniMatch {
        &self.minimatch
    }
    fn priority(&self) -> u32 {
        self.priority
    }
    fn versions(&self) -> &Versions {
        &self.versions
    }
}

/// Few fields with few values, so that rules overlap and repeat.
fn arb_match() -> impl Strategy<Value = Match> {
    (0..4u8, 0..4u8, 0..3u8, 0..3u8, 0..3u8).prop_map(|(src, dst, proto, port, in_port)| {
        let mut m = Match::ANY;
        if src > 0 {
            m.set_masked(Field::Ipv4Src, u128::from(src) << 24 | 5, if src == 3 { 0xff00_0000 } else { 0xffff_ffff });
        }
        if dst > 0 {
            m.set_masked(Field::EthDst, dst.into(), 3);
        }
        if proto > 0 {
            m.set(Field::IpProto, proto.into());
        }
        if port > 0 {
            m.set(Field::TcpDst, port.into());
        }
        if in_port > 0 {
            m.set(Field::InPort, in_port.into());
        }
        m
    })
}

fn arb_key() -> impl Strategy<Value = FlowKey> {
    arb_match().prop_map(|m| m.key().clone())
}

#[derive(Clone, Debug)]
enum Op {
    Insert(Match, u32),
    Remove(Match, u32),
    Lookup(FlowKey),
    Within(Match),
}

fn arb_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (arb_match(), 0..4u32).prop_map(|(m, p)| Op::Insert(m, p)),
        2 => (arb_match(), 0..4u32).prop_map(|(m, p)| Op::Remove(m, p)),
        4 => arb_key().prop_map(Op::Lookup),
        1 => arb_match().prop_map(Op::Within),
    ]
}

proptest! {
    #[test]
    fn agrees_with_a_list(ops in prop::collection::vec(arb_op(), 1..80)) {
        let cls = Classifier::new();
        let mut list: Vec<Arc<TestRule>> = Vec::new();
        for op in ops {
            match op {
                Op::Insert(m, priority) => {
                    let rule = Arc::new(TestRule { minimatch: cls.compress(&m), full: m.clone(), priority, versions: Versions::new(0) });
                    prop_assert_eq!(rule.minimatch.expand(), m.clone());
                    let old = list.iter().position(|r| r.full == m && r.priority == priority).map(|i| list.remove(i));
                    list.push(Arc::clone(&rule));
                    cls.insert(rule);
                    prop_assert!(old.is_none_or(|old| cls.remove(&old)));
                }
                Op::Remove(m, priority) => {
                    let old = list.iter().position(|r| r.full == m && r.priority == priority).map(|i| list.remove(i));
                    let found = cls.find(&m, priority, LATEST);
                    prop_assert_eq!(found.map(|r| Arc::as_ptr(&r)), old.as_ref().map(Arc::as_ptr));
                    prop_assert!(old.is_none_or(|old| cls.remove(&old) && !cls.remove(&old)));
                }
                Op::Lookup(key) => {
                    let want = list.iter().filter(|r| r.full.matches(&key)).map(|r| r.priority).max();
                    let mut reads = Reads::new();
                    let got = cls.lookup(&key, LATEST, &mut reads);
                    prop_assert_eq!(got.as_ref().map(|r| r.priority), want);
                    prop_assert!(got.as_ref().is_none_or(|r| r.full.matches(&key)));
                    // Every key that agrees in the bits read gets a rule of the same priority: flip the other bits.
                    let other = FlowKey(std::array::from_fn(|i| key.0[i] ^ !reads.mask().0[i]));
                    let again = cls.lookup(&other, LATEST, &mut Reads::new());
                    prop_assert_eq!(again.map(|r| r.priority), want);
                }
                Op::Within(m) => {
                    let mut want: Vec<_> = list.iter().filter(|r| m.contains(&r.full)).map(Arc::as_ptr).collect();
                    let mut got: Vec<_> = cls.within(&m, LATEST).iter().map(Arc::as_ptr).collect();
                    want.sort();
                    got.sort();
                    prop_assert_eq!(got, want);
                }
            }
            prop_assert_eq!(cls.len(), list.len());
            prop_assert_eq!(cls.rules(LATEST).len(), list.len());
            for r in &list {
                prop_assert!(cls.find(&r.full, r.priority, LATEST).is_some_and(|f| Arc::ptr_eq(&f, r)));
            }
        }
    }
}

#[test]
fn a_higher_tuple_spares_the_lower_masks() {
    let cls = Classifier::new();
    let (mut high, mut low) = (Match::ANY, Match::ANY);
    high.set(Field::InPort, 1);
    low.set(Field::TcpDst, 80);
    for (m, priority) in [(&high, 10), (&low, 5)] {
        let minimatch = cls.compress(m);
        cls.insert(Arc::new(TestRule { minimatch, full: m.clone(), priority, versions: Versions::new(0) }));
    }
    let mut reads = Reads::new();
    assert_eq!(cls.lookup(high.key(), LATEST, &mut reads).map(|r| r.priority), Some(10));
    assert_eq!(reads.mask(), high.mask());
    assert_eq!((cls.len(), cls.n_masks(), cls.is_empty()), (2, 2, false));
}
