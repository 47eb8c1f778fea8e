//! Any bytes as events of a bond: links, LACP, commands, loads and time. Its decisions keep their invariants; and arguments of
//! `bond/hash` never panic.
#![no_main]

use base::{BridgePort, MacAddr, Millis, PortNo};
use bond::{Bonds, Choice, LacpStatus, Link, MemberSettings, Mode, Settings};

const MODES: [Mode; 3] = [Mode::ActiveBackup, Mode::BalanceSlb, Mode::BalanceTcp];
const LACP: [LacpStatus; 3] = [LacpStatus::Disabled, LacpStatus::Configured, LacpStatus::Negotiated];

fn port(n: u8) -> BridgePort {
    BridgePort { bridge: 1, port: PortNo(u32::from(n % 4) + 1) }
}

fn name(n: u8) -> String {
    format!("p{}", n % 4 + 1)
}

fn settings(a: u8, b: u8) -> Settings {
    let member = |n| MemberSettings { name: name(n).into(), mac: MacAddr::local_from(n.into()), link: Link::UP };
    Settings {
        mode: MODES[usize::from(a % 3)],
        updelay_ms: u64::from(a >> 4) * 100,
        downdelay_ms: u64::from(b >> 4) * 100,
        lacp_fallback: a & 4 != 0,
        all_members_active: a & 8 != 0,
        members: (0..4).filter(|n| b >> n & 1 != 0).map(|n| (port(n), member(n))).collect(),
        ..Settings::default()
    }
}

fuzz::target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let mut words = text.split(' ');
    _ = bond::commands::hash(words.next().unwrap_or_default(), words.next(), words.next());
    let (mut bonds, mut now) = (Bonds::new(), Millis(0));
    for event in bytes.as_chunks::<3>().0 {
        let [what, a, b] = *event;
        match what % 8 {
            0 => bonds.configure([("bond0".into(), settings(a, b))].into(), now),
            1 => bonds.set_link(port(a), Link { carrier: b & 1 != 0, may_enable: b & 2 != 0 }),
            2 => bonds.set_lacp("bond0", LACP[usize::from(a % 3)]),
            3 => _ = bonds.migrate("bond0", &a.to_string(), &name(b)),
            4 => _ = bonds.set_active_member("bond0", &name(a)),
            5 => _ = bonds.disable_member("bond0", &name(a)),
            6 => {
                if let Some(view) = bonds.published().load().get("bond0") {
                    view.loads().add(a, u64::from(b) * 10_000);
                }
            }
            _ => now = now.after(u64::from(a) * u64::from(b)),
        }
        bonds.poll(now);
        bonds.poll(now);
        assert!(bonds.next_deadline().is_none_or(|due| due > now), "nothing is left to do at this time");
        _ = bonds.show(None, now);
        let views = bonds.published().load();
        let Some(view) = views.get("bond0") else { continue };
        assert_eq!(view.active().is_none(), view.enabled().is_empty());
        assert!(view.active().is_none_or(|active| view.enabled().contains(&active)));
        if matches!(view.choice(), Choice::Source | Choice::Hash) {
            let is_enabled = |bucket| view.member(bucket).is_some_and(|member| view.enabled().contains(&member));
            assert!((0..=255).all(is_enabled));
        }
    }
});
