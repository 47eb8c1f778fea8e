//! The machine in virtual time: random link events against a naive twin, the invariants of the decisions, and outputs that
//! Open vSwitch 4.0.0 has shown.

use crate::{
    Admission, Bonds, Choice, CommandError, Detection, Effect, LacpStatus, Link, MemberSettings, Mode, Settings, View,
};
use crate::{Part, Table};
use base::rng::Rng;
use base::{BridgePort, MacAddr, Millis, PortNo};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const NAME: &str = "bond0";

fn port(n: u32) -> BridgePort {
    BridgePort { bridge: 1, port: PortNo(n) }
}

fn member(n: u32, link: Link) -> (BridgePort, MemberSettings) {
    let mac = MacAddr([2, 0, 0, 0, 0, n as u8]);
    (port(n), MemberSettings { name: format!("p{n}").into(), mac, link })
}

fn settings(mode: Mode, n_members: u32) -> Settings {
    Settings { mode, members: (1..=n_members).map(|n| member(n, Link::UP)).collect(), ..Settings::default() }
}

/// A machine with one bond.
struct Lab {
    bonds: Bonds,
    now: Millis,
    log: Vec<String>,
    announced: u32,
}

impl Lab {
    fn new(settings: Settings) -> Self {
        let mut lab = Self { bonds: Bonds::new(), now: Millis(1000), log: Vec::new(), announced: 0 };
        lab.configure(settings);
        lab
    }

    fn configure(&mut self, settings: Settings) {
        self.bonds.configure([(NAME.into(), settings)].into(), self.now);
        self.poll();
    }

    fn poll(&mut self) {
        let mut rounds = 0;
        while self.bonds.next_deadline().is_some_and(|due| due <= self.now) {
            for effect in self.bonds.poll(self.now) {
                match effect {
                    Effect::Log(line) => self.log.push(line),
                    Effect::Announce { .. } => self.announced += 1,
                    Effect::Changed { .. } => {}
                }
            }
            rounds += 1;
            assert!(rounds < 5, "the machine comes to rest");
        }
    }

    /// Lets time pass, polling at the deadlines only.
    fn pass(&mut self, ms: u64) {
        let end = self.now.after(ms);
        while let Some(due) = self.bonds.next_deadline().filter(|due| *due <= end) {
            self.now = due.max(self.now);
            self.poll();
        }
        self.now = end;
    }

    fn link(&mut self, n: u32, link: Link) {
        self.bonds.set_link(port(n), link);
        self.poll();
    }

    fn lacp(&mut self, status: LacpStatus) {
        self.bonds.set_lacp(NAME, status);
        self.poll();
    }

    fn view(&self) -> Arc<View> {
        Arc::clone(&self.bonds.published().load()[NAME])
    }

    fn show(&mut self) -> String {
        self.bonds.show(Some(NAME), self.now).unwrap()
    }

    fn load(&self, bucket: u8, kilobytes: u64) {
        self.view().loads().add(bucket, kilobytes * 1024);
    }

    fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }
}

#[test]
fn delays_as_in_open_vswitch() {
    let mut lab = Lab::new(Settings { updelay_ms: 500, downdelay_ms: 700, ..settings(Mode::ActiveBackup, 3) });
    assert_eq!(
        lab.take_log(),
        ["member p1: enabled", "member p2: enabled", "member p3: enabled", "bond bond0: active member is now p1"]
    );
    lab.link(1, Link::DOWN);
    lab.pass(100);
    assert!(
        lab.show()
            .contains("member p1: enabled\n  active member\n  downdelay expires in 600 ms\n  may_enable: false\n")
    );
    lab.link(1, Link::UP);
    lab.link(1, Link::DOWN);
    lab.pass(699);
    assert_eq!(lab.view().active(), Some(PortNo(1)));
    lab.pass(1);
    lab.link(1, Link::UP);
    lab.pass(100);
    assert!(lab.show().contains("member p1: disabled\n  updelay expires in 400 ms\n  may_enable: true\n"));
    lab.pass(400);
    assert_eq!(
        lab.take_log(),
        [
            "member p1: link state down",
            "member p1: will be disabled if it stays down for 700 ms",
            "member p1: link state up",
            "member p1: will not be disabled",
            "member p1: link state down",
            "member p1: will be disabled if it stays down for 700 ms",
            "member p1: disabled",
            "bond bond0: active member is now p2",
            "member p1: link state up",
            "member p1: will be enabled if it stays up for 500 ms",
            "member p1: enabled",
        ]
    );
    (1..=3).for_each(|n| lab.link(n, Link::DOWN));
    lab.pass(2000);
    assert_eq!(lab.take_log().last().unwrap(), "bond bond0: all members disabled");
    assert!(lab.show().contains("active member mac: 00:00:00:00:00:00(none)\n"));
    lab.link(2, Link::UP);
    assert_eq!(
        lab.take_log(),
        [
            "member p2: link state up",
            "member p2: will be enabled if it stays up for 500 ms",
            "bond bond0: active member is now p2, skipping remaining 500 ms updelay (since no member was enabled)",
            "member p2: enabled",
        ]
    );
    assert_eq!(lab.bonds.set_active_member(NAME, "p1"), Err(CommandError::ActivateDisabled));
    assert_eq!(lab.bonds.enable_member(NAME, "p1"), Ok("enabled"));
    lab.poll();
    assert!(lab.show().contains("member p1: enabled\n  downdelay expires in 700 ms\n  may_enable: false\n"));
    assert_eq!(lab.bonds.migrate(NAME, "1", "p1"), Err(CommandError::NotSlb));
}

#[test]
fn outputs_of_a_new_bond() {
    let mut lab = Lab::new(Settings { hash_basis: 5, ..settings(Mode::BalanceSlb, 2) });
    lab.pass(42);
    assert_eq!(
        lab.show(),
        "---- bond0 ----\nbond_mode: balance-slb\nbond may use recirculation: no, Recirc-ID : -1\nbond-hash-basis: 5\n\
         lb_output action: disabled, bond-id: -1\nall members active: false\nupdelay: 0 ms\ndowndelay: 0 ms\n\
         next rebalance: 9958 ms\nlacp_status: off\nlacp_fallback_ab: false\nactive-backup primary: <none>\n\
         active member mac: 02:00:00:00:00:01(p1)\n\nmember p1: enabled\n  active member\n  may_enable: true\n\n\
         member p2: enabled\n  may_enable: true\n\n"
    );
    assert_eq!(lab.bonds.list(), "bond0\tbalance-slb\t1\tp1, p2\n");
    assert_eq!(lab.bonds.show(Some("other"), lab.now), Err(CommandError::NoBond));
    let primary = Some("p7".into());
    let tcp = Settings { primary, lacp_fallback: true, ..settings(Mode::BalanceTcp, 2) };
    lab.configure(Settings { rebalance_interval_ms: 500, ..tcp });
    let shown = lab.show();
    for line in [
        "bond may use recirculation: yes, Recirc-ID : 1\n",
        "next rebalance: 1000 ms\n",
        "active-backup primary: p7 (no such member)\n",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
    assert!(!shown.contains("all members active"));
    lab.configure(Settings { rebalance_interval_ms: 0, ..settings(Mode::BalanceSlb, 2) });
    assert!(!lab.show().contains("next rebalance"));
    assert_eq!(lab.bonds.next_deadline(), None);
}

#[test]
fn the_primary_member_is_active_whenever_it_is_enabled() {
    let mut lab = Lab::new(Settings { primary: Some("p2".into()), ..settings(Mode::ActiveBackup, 2) });
    assert_eq!(lab.view().active(), Some(PortNo(2)));
    assert_eq!(lab.bonds.set_active_member(NAME, "p1"), Ok("done"));
    lab.poll();
    assert_eq!(lab.view().active(), Some(PortNo(2)));
    lab.link(2, Link::DOWN);
    assert_eq!(lab.view().active(), Some(PortNo(1)));
    lab.link(2, Link::UP);
    assert_eq!(lab.view().active(), Some(PortNo(2)));
    // It has no meaning in other modes.
    lab.configure(Settings { primary: Some("p1".into()), ..settings(Mode::BalanceSlb, 2) });
    assert_eq!(lab.view().active(), Some(PortNo(2)));
}

#[test]
fn commands_last_until_the_link_changes() {
    let mut lab = Lab::new(settings(Mode::BalanceSlb, 3));
    assert_eq!(lab.bonds.set_active_member(NAME, "p1"), Ok("no change"));
    assert_eq!(lab.bonds.set_active_member(NAME, "p3"), Ok("done"));
    assert_eq!(lab.bonds.set_active_member(NAME, "p9"), Err(CommandError::NoMember));
    assert_eq!(lab.bonds.set_active_member("other", "p1"), Err(CommandError::NoBond));
    lab.poll();
    assert_eq!(lab.view().active(), Some(PortNo(3)));
    for (hash, bucket) in [("7", 7), ("256", 0), ("", 0), ("1023", 255)] {
        assert_eq!(lab.bonds.migrate(NAME, hash, "p2"), Ok("migrated"));
        lab.poll();
        assert_eq!(lab.view().member(bucket), Some(PortNo(2)));
    }
    for hash in ["x", "-1", "7x", "+7"] {
        assert_eq!(lab.bonds.migrate(NAME, hash, "p2"), Err(CommandError::BadHash));
    }
    assert_eq!(lab.bonds.migrate(NAME, "1", "p9"), Err(CommandError::NoMember));
    lab.link(1, Link::DOWN);
    assert_eq!(lab.bonds.migrate(NAME, "1", "p1"), Err(CommandError::MigrateToDisabled));
    // The member is disabled for its updelay, which is zero.
    lab.take_log();
    assert_eq!(lab.bonds.disable_member(NAME, "p2"), Ok("disabled"));
    lab.poll();
    assert_eq!(lab.take_log(), ["member p2: disabled", "member p2: link state up", "member p2: enabled"]);
}

#[test]
fn lacp_decides_what_the_bond_does() {
    let dst = MacAddr::local_from(9);
    let mut lab = Lab::new(settings(Mode::BalanceTcp, 2));
    let decisions = |lab: &Lab| {
        let view = lab.view();
        (
            view.choice(),
            view.admit(PortNo(1), dst),
            view.admit(PortNo(2), dst),
            view.admit(PortNo(2), MacAddr::BROADCAST),
        )
    };
    let blocked = (Choice::None, Admission::Drop, Admission::Drop, Admission::Drop);
    let fallen_back = (Choice::Member(PortNo(1)), Admission::Accept, Admission::Drop, Admission::Drop);
    let negotiated = (Choice::Hash, Admission::Accept, Admission::Accept, Admission::Accept);
    assert_eq!(decisions(&lab), blocked);
    lab.lacp(LacpStatus::Configured);
    assert_eq!(decisions(&lab), blocked);
    lab.configure(Settings { lacp_fallback: true, ..settings(Mode::BalanceTcp, 2) });
    assert_eq!(decisions(&lab), fallen_back);
    lab.lacp(LacpStatus::Negotiated);
    assert_eq!(decisions(&lab), negotiated);
    assert!(lab.view().member(0).is_some());
    // LACP takes a member out at once, whatever the delays.
    lab.configure(Settings { downdelay_ms: 900, ..settings(Mode::BalanceTcp, 2) });
    lab.link(2, Link { carrier: true, may_enable: false });
    assert_eq!(lab.view().enabled(), [PortNo(1)]);
    assert_eq!(lab.view().admit(PortNo(2), dst), Admission::Drop);
    lab.lacp(LacpStatus::Disabled);
    assert_eq!(decisions(&lab), blocked);
}

#[test]
fn miimon_polls_the_links_at_intervals() {
    let mut lab = Lab::new(Settings { detection: Detection::Miimon(100), ..settings(Mode::ActiveBackup, 2) });
    lab.pass(110);
    lab.link(1, Link::DOWN);
    lab.pass(80);
    assert_eq!(lab.view().active(), Some(PortNo(1)));
    // A carrier that is back before the next poll was never missed.
    lab.link(1, Link::UP);
    lab.pass(100);
    lab.link(1, Link::DOWN);
    lab.pass(9);
    assert_eq!(lab.view().active(), Some(PortNo(1)));
    lab.pass(1);
    assert_eq!(lab.view().active(), Some(PortNo(2)));
    // LACP is not polled.
    lab.link(2, Link { carrier: true, may_enable: false });
    assert_eq!(lab.view().active(), None);
}

#[test]
fn addresses_are_announced_after_a_failover() {
    let mut lab = Lab::new(settings(Mode::BalanceSlb, 3));
    let announced = |lab: &mut Lab| std::mem::take(&mut lab.announced);
    announced(&mut lab);
    lab.link(1, Link::DOWN);
    assert_eq!(announced(&mut lab), 1, "the active member is disabled");
    lab.link(3, Link::DOWN);
    assert_eq!(announced(&mut lab), 1, "another member is disabled");
    lab.link(3, Link::UP);
    assert_eq!(announced(&mut lab), 0, "a member is enabled");
    assert_eq!(lab.bonds.set_active_member(NAME, "p3"), Ok("done"));
    lab.poll();
    assert_eq!(announced(&mut lab), 1, "the operator moves the active member");
    lab.link(2, Link::DOWN);
    lab.link(3, Link::DOWN);
    announced(&mut lab);
    lab.link(1, Link::UP);
    assert_eq!(announced(&mut lab), 1, "the bond works again");
    lab.lacp(LacpStatus::Negotiated);
    lab.link(2, Link::UP);
    lab.link(1, Link::DOWN);
    assert_eq!(announced(&mut lab), 0, "LACP is negotiated");
}

#[test]
fn loads_are_halved_at_each_attempt_to_rebalance() {
    let mut lab = Lab::new(settings(Mode::BalanceSlb, 2));
    (0..8).for_each(|n| assert_eq!(lab.bonds.migrate(NAME, &n.to_string(), "p1"), Ok("migrated")));
    lab.poll();
    (0..8).for_each(|n| lab.load(n, 100));
    lab.take_log();
    lab.pass(9_999);
    assert_eq!(lab.take_log(), [""; 0]);
    assert!(lab.show().contains("  hash 3: 100 kB load\n"));
    lab.pass(1);
    assert_eq!(lab.take_log(), ["bond bond0: rebalanced (now carrying: p1:400kB and p2:400kB)"]);
    assert!(lab.show().contains("  hash 3: 50 kB load\n"));
    // Without a difference there is nothing to move.
    (0..8).for_each(|n| lab.load(n, 50));
    lab.pass(10_000);
    assert_eq!(lab.take_log(), [""; 0]);
}

#[test]
fn a_member_that_is_enabled_gets_its_share_of_idle_buckets() {
    let mut lab = Lab::new(settings(Mode::BalanceSlb, 4));
    let count = |lab: &Lab, n| (0..=255).filter(|bucket| lab.view().member(*bucket) == Some(PortNo(n))).count();
    assert_eq!((1..=4).map(|n| count(&lab, n)).collect::<Vec<_>>(), [64; 4]);
    lab.link(2, Link::DOWN);
    assert_eq!([count(&lab, 1), count(&lab, 2), count(&lab, 3), count(&lab, 4)], [86, 0, 85, 85]);
    // Buckets with load stay until rebalancing moves them.
    let busy: Vec<u8> = (0..=255).filter(|bucket| lab.view().member(*bucket) == Some(PortNo(1))).collect();
    busy.iter().for_each(|bucket| lab.load(*bucket, 1));
    lab.link(2, Link::UP);
    assert!(busy.iter().all(|bucket| lab.view().member(*bucket) == Some(PortNo(1))));
    assert_eq!([count(&lab, 2), count(&lab, 3), count(&lab, 4)], [42, 64, 64]);
}

#[test]
fn removed_bonds_and_members_are_reported() {
    let mut lab = Lab::new(settings(Mode::BalanceSlb, 3));
    let mut fewer = settings(Mode::BalanceSlb, 3);
    fewer.members.remove(&port(1));
    lab.take_log();
    lab.configure(fewer);
    assert_eq!(lab.take_log(), ["member p1: disabled", "bond bond0: active member is now p2"]);
    assert!((0..=255).all(|bucket| lab.view().member(bucket).is_some_and(|owner| owner != PortNo(1))));
    lab.bonds.configure(BTreeMap::new(), lab.now);
    let effects = lab.bonds.poll(lab.now);
    assert!(effects.contains(&Effect::Changed { bond: NAME.into(), parts: Part::ALL.to_vec() }));
    assert!(lab.bonds.published().load().is_empty());
    assert_eq!(lab.bonds.next_deadline(), None);
    assert_eq!(lab.bonds.list(), "");
}

/// The parts of decisions that the effects report as changed.
fn parts(effects: &[Effect]) -> Vec<Part> {
    let of = |effect: &Effect| if let Effect::Changed { parts, .. } = effect { parts.clone() } else { Vec::new() };
    effects.iter().flat_map(of).collect()
}

#[test]
fn the_datapath_balances_by_a_table_if_the_setting_says_so() {
    let tcp = Settings { lb_output: true, hash_basis: 7, ..settings(Mode::BalanceTcp, 2) };
    let mut lab = Lab::new(tcp.clone());
    lab.bonds.set_lacp(NAME, LacpStatus::Negotiated);
    lab.poll();
    assert!(lab.show().contains("lb_output action: enabled, bond-id: 1\n"));
    assert_eq!((lab.view().choice(), lab.view().lb_output()), (Choice::Hash, Some(1)));
    let tables: Vec<Table> = lab.bonds.tables().collect();
    let [Table { id: 1, hash_basis: 7, buckets, .. }] = &tables[..] else { panic!("{tables:?}") };
    let owner = |bucket| lab.view().member(bucket).map(|owner| port(owner.0));
    assert!((0..=255).all(|bucket| buckets[usize::from(bucket)] == owner(bucket)));
    // A member that fails changes the table, and not the choice.
    lab.bonds.set_link(port(1), Link::DOWN);
    assert_eq!(parts(&lab.bonds.poll(lab.now)), [Part::Admission, Part::Buckets]);
    assert!(lab.bonds.tables().all(|table| table.buckets.iter().all(|owner| *owner == Some(port(2)))));
    // Without members, and without a partner, there is nothing to choose.
    lab.bonds.set_link(port(2), Link::DOWN);
    assert_eq!(parts(&lab.bonds.poll(lab.now)), Part::ALL);
    assert_eq!(lab.view().lb_output(), None);
    assert!(lab.bonds.tables().all(|table| table.buckets.iter().all(Option::is_none)));
    lab.link(2, Link::UP);
    assert_eq!(lab.view().lb_output(), Some(1));
    lab.bonds.set_lacp(NAME, LacpStatus::Disabled);
    lab.poll();
    assert_eq!((lab.view().lb_output(), lab.bonds.tables().count()), (None, 1));
    // In other modes, the setting has no effect.
    lab.configure(Settings { mode: Mode::BalanceSlb, ..tcp.clone() });
    assert!(lab.show().contains("lb_output action: disabled, bond-id: -1\n"));
    assert_eq!((lab.view().lb_output(), lab.bonds.tables().count()), (None, 0));
    // A number is not used again at once.
    lab.configure(Settings { mode: Mode::ActiveBackup, ..tcp.clone() });
    lab.configure(tcp);
    assert_eq!(lab.bonds.tables().map(|table| table.id).collect::<Vec<_>>(), [2]);
}

#[test]
fn rebalancing_changes_buckets_alone() {
    let mut lab = Lab::new(Settings { lb_output: true, ..settings(Mode::BalanceTcp, 2) });
    lab.bonds.set_lacp(NAME, LacpStatus::Negotiated);
    lab.poll();
    let of_one: Vec<u8> = (0..=255).filter(|bucket| lab.view().member(*bucket) == Some(PortNo(1))).collect();
    lab.bonds.tables().for_each(|table| of_one[..4].iter().for_each(|bucket| table.loads.add(*bucket, 1 << 20)));
    lab.now = lab.now.after(10_000);
    assert_eq!(parts(&lab.bonds.poll(lab.now)), [Part::Buckets]);
}

/// A bond that looks at its links each millisecond, and keeps nothing but when a link began to disagree.
#[derive(Debug)]
struct Twin {
    up: Vec<bool>,
    enabled: Vec<bool>,
    /// For how many milliseconds the link has disagreed, and must.
    waiting: Vec<Option<(u64, u64)>>,
    active: Option<usize>,
    delays: (u64, u64),
    primary: Option<usize>,
}

impl Twin {
    fn look(&mut self) {
        for i in 0..self.up.len() {
            if self.up[i] == self.enabled[i] {
                self.waiting[i] = None;
                continue;
            }
            let delay = if self.up[i] { self.delays.0 } else { self.delays.1 };
            let (waited, needed) = *self.waiting[i].get_or_insert((0, delay));
            if waited >= needed {
                (self.enabled[i], self.waiting[i]) = (self.up[i], None);
            }
        }
        self.active = self.active.filter(|i| self.enabled[*i]);
        if self.active.is_none() && !self.enabled.contains(&true) {
            let rest = |i: &usize| self.waiting[*i].map(|(waited, needed)| (needed - waited, *i));
            let first = (0..self.up.len()).filter(|i| self.up[*i]).filter_map(|i| rest(&i)).min();
            if let Some((_, i)) = first {
                (self.enabled[i], self.waiting[i], self.active) = (true, None, Some(i));
            }
        }
        self.active = self.primary.filter(|i| self.enabled[*i]).or(self.active);
        self.active = self.active.or_else(|| self.enabled.iter().position(|enabled| *enabled));
    }

    fn tick(&mut self) {
        self.waiting.iter_mut().flatten().for_each(|(waited, _)| *waited += 1);
        self.look();
    }
}

/// Checks the invariants of decisions.
fn check(view: &View, n_members: u32) {
    let active = view.active();
    assert!(active.is_none_or(|active| view.enabled().contains(&active)), "{view:?}");
    assert_eq!(active.is_none(), view.enabled().is_empty(), "{view:?}");
    let members = || (1..=n_members).map(PortNo);
    if view.negotiated && view.choice() != Choice::None {
        let admitted = |port: &PortNo| view.admit(*port, MacAddr::BROADCAST) == Admission::Accept;
        return assert_eq!(members().filter(admitted).collect::<Vec<_>>(), view.enabled());
    }
    for (dst, all) in [(MacAddr::BROADCAST, false), (MacAddr::local_from(1), true)] {
        let accepting = members().filter(|member| view.admit(*member, dst) != Admission::Drop).count();
        match view.choice() {
            Choice::None => assert!(active.is_none() || accepting == 0),
            Choice::Member(member) => assert_eq!((Some(member), accepting), (active, 1)),
            Choice::Source if !all => assert_eq!(accepting, 1, "one copy of a broadcast frame enters"),
            Choice::Source | Choice::Hash => {}
        }
    }
    if matches!(view.choice(), Choice::Source | Choice::Hash) {
        let enabled = |bucket| view.member(bucket).is_some_and(|member| view.enabled().contains(&member));
        assert!((0..=255).all(enabled), "{view:?}");
    }
}

tally::proptest! {
    /// Random links: the machine, which wakes at its deadlines only, decides as a twin that looks each millisecond.
    #[test]
    fn agrees_with_a_naive_twin(
        seed: u64,
        n_members in 1u32..5,
        updelay_ms in prop_oneof![Just(0u64), 1u64..60],
        downdelay_ms in prop_oneof![Just(0u64), 1u64..60],
        with_primary: bool,
    ) {
        let mut random = Rng::seeded(seed);
        let primary = with_primary.then(|| "p1".into());
        let mut lab = Lab::new(Settings { updelay_ms, downdelay_ms, primary, ..settings(Mode::ActiveBackup, n_members) });
        let n = n_members as usize;
        let mut twin = Twin {
            up: vec![true; n], enabled: vec![true; n], waiting: vec![None; n], active: None,
            delays: (updelay_ms, downdelay_ms), primary: with_primary.then_some(0),
        };
        twin.look();
        for _ in 0..6 {
            let i = random.below(n_members.into()) as usize;
            twin.up[i] = random.below(2) == 0;
            twin.look();
            lab.link(i as u32 + 1, if twin.up[i] { Link::UP } else { Link::DOWN });
            for _ in 0..random.below(50) {
                let of_twin: Vec<PortNo> = (0..n).filter(|i| twin.enabled[*i]).map(|i| PortNo(i as u32 + 1)).collect();
                let view = lab.view();
                prop_assert_eq!(view.enabled(), of_twin);
                prop_assert_eq!(view.active(), twin.active.map(|i| PortNo(i as u32 + 1)));
                lab.pass(1);
                twin.tick();
            }
            check(&lab.view(), n_members);
        }
    }

    /// Random events of all kinds keep the invariants, and the machine always comes to rest.
    #[test]
    fn invariants_hold(seed: u64, n_members in 1u32..5) {
        let mut random = Rng::seeded(seed);
        let mut current = settings(Mode::BalanceSlb, n_members);
        let mut lab = Lab::new(current.clone());
        for _ in 0..10 {
            let n = random.below(n_members.into()) as u32 + 1;
            match random.below(9) {
                0..=2 => lab.link(n, Link { carrier: random.below(3) > 0, may_enable: random.below(4) > 0 }),
                3 => lab.lacp([LacpStatus::Disabled, LacpStatus::Configured, LacpStatus::Negotiated][random.below(3) as usize]),
                4 => {
                    current.mode = [Mode::ActiveBackup, Mode::BalanceSlb, Mode::BalanceTcp][random.below(3) as usize];
                    current.updelay_ms = random.below(2) * 700;
                    current.downdelay_ms = random.below(2) * 300;
                    current.lacp_fallback = random.below(2) > 0;
                    current.detection = [Detection::Carrier, Detection::Miimon(150)][random.below(2) as usize];
                    if random.below(2) > 0 && current.members.len() > 1 {
                        current.members.remove(&port(n));
                    } else {
                        current.members.extend([member(n, Link::UP)]);
                    }
                    lab.configure(current.clone());
                }
                5 => _ = lab.bonds.set_active_member(NAME, &format!("p{n}")),
                6 => _ = lab.bonds.disable_member(NAME, &format!("p{n}")),
                7 => _ = lab.bonds.migrate(NAME, &random.below(256).to_string(), &format!("p{n}")),
                _ => (0..40).for_each(|_| lab.load(random.below(256) as u8, random.below(500))),
            }
            lab.poll();
            check(&lab.view(), n_members);
            lab.pass(random.below(4000));
            check(&lab.view(), n_members);
        }
    }

    /// With constant rates, buckets move at the first attempts and then never again.
    #[test]
    fn rebalancing_converges(seed: u64, n_members in 2u32..5) {
        let mut random = Rng::seeded(seed);
        let mut lab = Lab::new(settings(Mode::BalanceSlb, n_members));
        let rates: Vec<u64> = (0..256).map(|_| if random.below(8) == 0 { random.below(4000) } else { 0 }).collect();
        for _ in 0..80 {
            let (hash, member) = (random.below(256).to_string(), format!("p{}", random.below(n_members.into()) + 1));
            prop_assert_eq!(lab.bonds.migrate(NAME, &hash, &member), Ok("migrated"));
        }
        lab.poll();
        let assignment = |lab: &Lab| (0..=255).map(|bucket| lab.view().member(bucket)).collect::<Vec<_>>();
        let mut history = Vec::new();
        for _ in 0..10 {
            rates.iter().enumerate().for_each(|(bucket, rate)| lab.load(bucket as u8, *rate));
            lab.pass(10_000);
            history.push(assignment(&lab));
        }
        // The loads approach twice the rates from below, so that small differences may count later than large ones.
        prop_assert!(history[6..].iter().all(|later| *later == history[6]));
    }

    /// A frame of the bridge that the neighbours send back enters by no member; a foreign broadcast frame that reaches all
    /// members enters once.
    #[test]
    fn no_frame_comes_back(seed: u64, n_members in 1u32..5, is_slb: bool) {
        let mut random = Rng::seeded(seed);
        let mut lab = Lab::new(settings(if is_slb { Mode::BalanceSlb } else { Mode::ActiveBackup }, n_members));
        for n in 1..=n_members {
            lab.link(n, if random.below(3) > 0 { Link::UP } else { Link::DOWN });
        }
        let view = lab.view();
        let inside = MacAddr::local_from(random.next_u64());
        let out = view.member_for(inside, random.below(4096) as u16);
        prop_assert_eq!(out.is_some(), view.active().is_some());
        // The neighbour of the member by which the frame left does not return it there.
        for back in (1..=n_members).map(PortNo).filter(|member| Some(*member) != out) {
            // The address was learned inside: `AcceptUnlessMoved` drops it.
            prop_assert!(view.admit(back, MacAddr::BROADCAST) != Admission::Accept);
        }
        let copies = (1..=n_members).filter(|n| view.admit(PortNo(*n), MacAddr::BROADCAST) != Admission::Drop).count();
        prop_assert_eq!(copies, usize::from(view.active().is_some()));
    }
}
