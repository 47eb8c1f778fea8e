//! Lookups and their handles, against scans of all routes.

use std::net::{Ipv4Addr, Ipv6Addr};

use base::rng::Rng;

use super::*;
use crate::kernel::{HopState, KernelRoute, NextHop, Placement};
use crate::rules::From;

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

fn to(text: &str) -> Query {
    Query::to(ip(text))
}

fn user(dst: &str, gateway: &str) -> UserRoute {
    let gateway = (!gateway.is_empty()).then(|| ip(gateway));
    UserRoute { table: TABLE_MAIN, prefix: prefix(dst), mark: 0, device: "br0".into(), gateway, source: None }
}

fn router() -> Router {
    let mut router = Router::default();
    router.set_device_addresses("br0", &[(ip("1.1.2.88"), 24), (ip("2001:cafe::88"), 64)]);
    router
}

fn gateway(router: &Router, query: &Query) -> Option<String> {
    let route = router.lookup(query).route?;
    Some(route.gateway.map_or_else(|| "-".to_owned(), |gateway| gateway.to_string()))
}

/// The naive twin of a lookup in one table: a scan of its routes.
fn scan_table(router: &Router, table: u32, address: IpAddr, mark: u32) -> Option<RouteRow> {
    let rows = router.tables.rows(Shown::One(table)).unwrap_or_default().into_iter();
    let fits = rows.filter(|row| row.prefix.contains(address) && row.entry.mark == mark);
    fits.max_by_key(|row| {
        let more = if row.entry.origin == Origin::User { 32 } else { 0 };
        (u16::from(row.prefix.len()) + more, row.prefix.len(), row.entry.origin)
    })
}

/// The naive twin of a lookup.
fn scan(router: &Router, query: &Query) -> Option<Route> {
    let source = query.source;
    if let Some(source) = source
        && !scan_table(router, TABLE_LOCAL, source, query.mark)?.entry.local
    {
        return None;
    }
    for rule in router.rules() {
        let of = source.unwrap_or(ip("::"));
        let selects = match rule.from {
            From::All { ipv4 } => ipv4 == of.is_ipv4() && !rule.invert,
            From::In { address, len } => {
                let inside = Prefix::new(address, len).expect("valid").contains(of);
                address.is_ipv4() == of.is_ipv4() && inside != rule.invert
            }
        };
        let found = selects.then(|| scan_table(router, rule.table, query.destination, query.mark)).flatten();
        if let Some(RouteRow { entry, .. }) = found {
            let source = source.unwrap_or(entry.source);
            return Some(Route { device: entry.device, gateway: entry.gateway, source, local: entry.local });
        }
    }
    None
}

fn random_address(rng: &mut Rng) -> IpAddr {
    let n = rng.next_u64();
    match n & 3 {
        0 => IpAddr::V6(Ipv6Addr::from_bits(0x2001_cafe << 96 | u128::from(n & 0x300) << 48 | u128::from(n >> 60))),
        1 => IpAddr::V4(Ipv4Addr::from_bits(0x0101_0200 | (n >> 56) as u32)),
        _ => IpAddr::V4(Ipv4Addr::from_bits(0x0900_0000 | (n >> 40 & 0x0003_0303) as u32)),
    }
}

fn random_prefix(rng: &mut Rng) -> Prefix {
    let address = random_address(rng);
    let len = if address.is_ipv4() { 8 + rng.below(25) } else { 16 + rng.below(113) };
    Prefix::new(address, len as u8).expect("fits")
}

/// Changes the router at random, in one way of each kind.
fn random_change(router: &mut Router, rng: &mut Rng) {
    let prefix = random_prefix(rng);
    let table = [TABLE_MAIN, TABLE_MAIN, TABLE_LOCAL, 5, 6][rng.below(5) as usize];
    let mark = rng.below(8).saturating_sub(6) as u32;
    let near = match prefix.address() {
        IpAddr::V4(_) => ip(&format!("1.1.2.{}", 1 + rng.below(3))),
        IpAddr::V6(_) => ip(&format!("2001:cafe::{}", 1 + rng.below(3))),
    };
    let metric = rng.below(3) as u32;
    let hops = vec![NextHop {
        ifindex: 7,
        gateway: Some(near),
        state: [HopState::Usable, HopState::Dead][usize::from(rng.below(4) == 0)],
        weight: 1,
    }];
    let kernel = KernelRoute { table, prefix, tos: 0, metric, local: table == TABLE_LOCAL, source: None, hops };
    let from = if rng.below(3) == 0 {
        From::All { ipv4: prefix.address().is_ipv4() }
    } else {
        From::prefix(random_address(rng), (8 + rng.below(25)) as u8)
    };
    let rule = Rule {
        priority: rng.below(4) as u32,
        from,
        invert: rng.below(3) == 0,
        table: [5, 6, 254][rng.below(3) as usize],
        user: true,
    };
    match rng.below(20) {
        0 if mark == 0 => _ = router.apply(KernelChange::Rule(Rule { user: false, ..rule })),
        0 => router.add_rule(rule),
        1 => {
            let known: Vec<_> = router.kernel.rules().to_vec();
            if let Some(rule) = known.get(rng.below(known.len() as u64) as usize) {
                let _ = router.apply(KernelChange::RuleGone(*rule));
            }
        }
        2 => drop(router.remove_rule(&rule)),
        3..=6 => drop(router.remove_route(table, prefix, mark)),
        7..=10 => {
            let device = "br0".to_owned();
            let route = UserRoute { table, prefix, mark, device, gateway: Some(near), source: None };
            let _ = router.add_route(route);
        }
        11..=14 => _ = router.apply(KernelChange::Route(kernel, Placement::Added)),
        15..=16 => {
            let known: Vec<_> = router.kernel.keys().collect();
            if let Some(key) = known.get(rng.below(known.len() as u64) as usize) {
                let found = KernelRoute { table: key.0, prefix: key.1, ..kernel };
                let _ = router.apply(KernelChange::RouteGone(found));
            }
        }
        17 => {
            let up = rng.below(3) > 0;
            let _ = router.apply(KernelChange::Link { ifindex: 7, name: "eth7".to_owned(), up, carrier: up });
        }
        18 => {
            let (address, len) = [(ip("1.1.2.77"), 24), (ip("2001:cafe::77"), 64)][rng.below(2) as usize];
            let _ = router.apply(match rng.below(3) {
                0 => KernelChange::AddressGone { ifindex: 7, address, len },
                _ => KernelChange::Address { ifindex: 7, address, len },
            });
        }
        _ => router.set_device_addresses("br1", &[(ip(&format!("1.1.2.{}", 90 + rng.below(3))), 24)]),
    }
}

#[test]
fn changes_make_stale_exactly_the_answers_that_differ() {
    let (mut lookups, mut stale) = (0, 0);
    for seed in 0..40 {
        let mut rng = Rng::seeded(seed);
        let mut router = router();
        let mut held: Vec<(Query, Option<Route>, Dependency)> = Vec::new();
        for _ in 0..120 {
            let mut query = to("9.0.0.1");
            query.destination = random_address(&mut rng);
            query.mark = rng.below(8).saturating_sub(6) as u32;
            if rng.below(3) == 0 {
                query.source = Some(random_address(&mut rng)).filter(|s| s.is_ipv4() == query.destination.is_ipv4());
            }
            let (route, dependency) = router.resolve(query);
            held.push((query, route, dependency));
            if rng.below(4) == 0 && !held.is_empty() {
                held.swap_remove(rng.below(held.len() as u64) as usize);
            }
            random_change(&mut router, &mut rng);
            let reported = router.take_stale().queries;
            held.retain(|(query, route, dependency)| {
                let fresh = router.lookup(query).route;
                assert_eq!(fresh, scan(&router, query), "{query:?}");
                assert_eq!(dependency.is_current(), fresh == *route, "{query:?}: {route:?}, {fresh:?}");
                assert_eq!(dependency.is_current(), !reported.contains(query), "{query:?}");
                lookups += 1;
                stale += usize::from(!dependency.is_current());
                dependency.is_current()
            });
            // The reported bits decide.
            let full = width(query.destination);
            let found = router.lookup(&query);
            let noise = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
            let kept = crate::prefix::mask(found.destination_bits);
            let bits = crate::prefix::bits(query.destination) ^ (noise & !kept);
            let other = Prefix::from_bits(query.destination.is_ipv4(), bits, full).address();
            assert_eq!(router.lookup(&Query { destination: other, ..query }).route, found.route, "{query:?}");
        }
    }
    assert!(stale > 500, "{stale}");
    tally::report!("{lookups} lookups, {stale} of them stale");
}

#[test]
fn a_dump_replaces_the_replica_and_concerns_only_what_differs() {
    let link = || KernelChange::Link { ifindex: 3, name: "eth0".to_owned(), up: true, carrier: true };
    let address = || KernelChange::Address { ifindex: 3, address: ip("10.5.0.1"), len: 24 };
    let route = |dst: &str, gateway: &str, metric| {
        let hops = vec![NextHop { ifindex: 3, gateway: Some(ip(gateway)), state: HopState::Usable, weight: 1 }];
        let route = KernelRoute { table: 254, prefix: prefix(dst), tos: 0, metric, local: false, source: None, hops };
        KernelChange::Route(route, Placement::Added)
    };
    let mut router = Router::default();
    router.replace_kernel([link(), address(), route("20.0.0.0/8", "10.5.0.9", 0), route("21.0.0.0/8", "10.5.0.9", 0)]);
    let (_, a) = router.resolve(to("20.0.0.1"));
    let (_, b) = router.resolve(to("21.0.0.1"));
    let (_, c) = router.resolve(to("22.0.0.1"));
    router.replace_kernel([link(), address(), route("20.0.0.0/8", "10.5.0.8", 0), route("21.0.0.0/8", "10.5.0.9", 0)]);
    assert_eq!((a.is_current(), b.is_current(), c.is_current()), (false, true, true));
    assert_eq!(gateway(&router, &to("20.0.0.1")).as_deref(), Some("10.5.0.8"));
    // The smallest metric is used, whatever the order.
    router.replace_kernel([link(), address(), route("20.0.0.0/8", "10.5.0.7", 5), route("20.0.0.0/8", "10.5.0.8", 10)]);
    assert_eq!(gateway(&router, &to("20.0.0.1")).as_deref(), Some("10.5.0.7"));
    assert!(!b.is_current() && c.is_current());
    assert_eq!(
        router.apply(KernelChange::Link { ifindex: 3, name: "eth0".to_owned(), up: false, carrier: false }),
        Step::Dump
    );
    assert_eq!(gateway(&router, &to("20.0.0.1")), None);
}

#[test]
fn a_dead_next_hop_gives_way_to_the_next() {
    let mut router = Router::default();
    let link = |ifindex, name: &str| KernelChange::Link { ifindex, name: name.to_owned(), up: true, carrier: true };
    let hop = |ifindex, gateway: &str, state| NextHop { ifindex, gateway: Some(ip(gateway)), state, weight: 1 };
    let route = |state| KernelRoute {
        table: 254,
        prefix: prefix("21.0.0.0/8"),
        tos: 0,
        metric: 0,
        local: false,
        source: None,
        hops: vec![hop(1, "10.5.0.9", state), hop(2, "10.6.0.9", HopState::Usable)],
    };
    let dump = |state| {
        let address = |ifindex, text: &str| KernelChange::Address { ifindex, address: ip(text), len: 24 };
        let links = [link(1, "v0"), link(2, "v1"), address(1, "10.5.0.1"), address(2, "10.6.0.1")];
        links.into_iter().chain([KernelChange::Route(route(state), Placement::Added)])
    };
    router.replace_kernel(dump(HopState::Usable));
    let first = (0..=255)
        .map(|n| format!("21.1.1.{n}"))
        .find(|to_it| gateway(&router, &to(to_it)).as_deref() == Some("10.5.0.9"));
    let (_, dependency) = router.resolve(to(&first.expect("a destination with the first next hop")));
    router.replace_kernel(dump(HopState::NoCarrier));
    assert!(!dependency.is_current());
    let route = router.lookup(&to("21.1.1.1")).route.expect("the other");
    assert_eq!((&*route.device, route.source), ("v1", ip("10.6.0.1")));
    // The device is renamed.
    assert_eq!(router.apply(link(2, "w1")), Step::Followed);
    assert_eq!(&*router.lookup(&to("21.1.1.1")).route.expect("the same").device, "w1");
}

/// A router with a route over these next hops, each a device with a router of its own.
fn balanced(hops: &[(u32, HopState)]) -> Router {
    let mut router = Router::default();
    let mut dump = Vec::new();
    let mut all = Vec::new();
    for (n, (weight, state)) in (1..).zip(hops) {
        dump.push(KernelChange::Link { ifindex: n, name: format!("v{n}"), up: true, carrier: true });
        dump.push(KernelChange::Address { ifindex: n, address: ip(&format!("10.{n}.0.1")), len: 24 });
        all.push(NextHop { ifindex: n, gateway: Some(ip(&format!("10.{n}.0.9"))), state: *state, weight: *weight });
    }
    let prefix = prefix("21.0.0.0/8");
    let route = KernelRoute { table: 254, prefix, tos: 0, metric: 0, local: false, source: None, hops: all };
    router.replace_kernel(dump.into_iter().chain([KernelChange::Route(route, Placement::Added)]));
    router
}

#[test]
fn destinations_spread_over_next_hops_by_weight() {
    const ASKED: u32 = 8_000;
    let mut routes = 0;
    for seed in 0..30 {
        let mut rng = Rng::seeded(seed);
        let hops: Vec<_> = (0..2 + rng.below(5))
            .map(|_| {
                let state =
                    [HopState::Usable, HopState::Usable, HopState::NoCarrier, HopState::Dead][rng.below(4) as usize];
                (1 + rng.below(if seed % 2 == 0 { 4 } else { 256 }) as u32, state)
            })
            .collect();
        let router = balanced(&hops);
        let best =
            [HopState::Usable, HopState::NoCarrier].into_iter().find(|s| hops.iter().any(|(_, state)| state == s));
        let mut counts = vec![0u32; hops.len()];
        for n in 0..ASKED {
            let query = Query::to(IpAddr::V4(Ipv4Addr::from_bits(0x1500_0000 | n)));
            let Some(route) = router.lookup(&query).route else { continue };
            let index: usize = route.device[1..].parse().expect("a number");
            assert_eq!(route.gateway, Some(ip(&format!("10.{index}.0.9"))));
            assert_eq!(route.source, ip(&format!("10.{index}.0.1")));
            counts[index - 1] += 1;
        }
        let total: u32 = hops.iter().filter(|(_, state)| Some(*state) == best).map(|(weight, _)| weight).sum();
        for ((weight, state), count) in hops.iter().zip(&counts) {
            let share = if Some(*state) == best { ASKED * weight / total } else { 0 };
            // Five standard deviations of a binomial distribution, and rounding.
            let bound = if share == 0 && Some(*state) != best { 0 } else { 1 + 5 * (share + 1).isqrt() };
            assert!(count.abs_diff(share) <= bound, "seed {seed}: {hops:?} {counts:?}");
        }
        routes += 1;
    }
    tally::report!("{routes} routes");
}

#[test]
fn only_destinations_whose_next_hop_changes_become_stale() {
    let usable = |weights: &[u32]| weights.iter().map(|weight| (*weight, HopState::Usable)).collect::<Vec<_>>();
    let mut router = balanced(&usable(&[1, 1]));
    let query = |n: u32| Query::to(IpAddr::V4(Ipv4Addr::from_bits(0x1500_0000 | n)));
    let held: Vec<_> = (0..1000).map(|n| router.resolve(query(n))).collect();
    let dead = KernelChange::Link { ifindex: 1, name: "v1".to_owned(), up: false, carrier: false };
    assert_eq!(router.apply(dead), Step::Dump);
    for (n, (route, dependency)) in (0..).zip(&held) {
        let now = router.lookup(&query(n)).route.expect("the other next hop");
        assert_eq!(&*now.device, "v2");
        assert_eq!(dependency.is_current(), route.as_ref() == Some(&now));
    }
    assert!(held.iter().any(|(_, dependency)| dependency.is_current()));
}

#[test]
fn each_next_hop_is_shown() {
    let router = balanced(&[(1, HopState::Usable), (2, HopState::Dead), (3, HopState::Usable)]);
    let rows = router.rows(Shown::One(254)).expect("the table");
    let text = crate::rows_to_text(Shown::One(254), &rows);
    let line = |n: u32| format!("Cached: 21.0.0.0/8 dev v{n} GW 10.{n}.0.9 SRC 10.{n}.0.1\n");
    assert_eq!(text, format!("Route Table:\n{}{}", line(1), line(3)));
    let hops = serde_json::json!([{"dev": "v1", "gateway": "10.1.0.9"}, {"dev": "v3", "gateway": "10.3.0.9"}]);
    assert_eq!((rows.len(), &rows[0].to_json()["nexthops"]), (1, &hops));
}

#[test]
fn answers_without_a_holder_are_forgotten() {
    let mut router = router();
    router.add_route(user("9.0.0.0/8", "1.1.2.1")).expect("added");
    for n in 0..10_000u32 {
        drop(router.resolve(Query::to(IpAddr::V4(Ipv4Addr::from_bits(0x0900_0000 | n)))));
    }
    assert!(router.answers.len() <= 64, "{}", router.answers.len());
    let held: Vec<_> =
        (0..5_000u32).map(|n| router.resolve(Query::to(IpAddr::V4(Ipv4Addr::from_bits(0x0900_0000 | n)))).1).collect();
    router.add_route(user("9.0.0.0/24", "1.1.2.2")).expect("added");
    assert_eq!(held.iter().filter(|dependency| !dependency.is_current()).count(), 256);
}

#[test]
fn answers_beyond_the_limit_become_stale_with_any_change() {
    let mut router = router();
    let held: Vec<_> = (0..ANSWERS_MAX as u32 + 10)
        .map(|n| router.resolve(Query::to(IpAddr::V4(Ipv4Addr::from_bits(0x0900_0000 | n)))).1)
        .collect();
    assert_eq!(router.answers.len(), ANSWERS_MAX);
    router.add_route(user("8.0.0.0/8", "1.1.2.2")).expect("added");
    let stale: Vec<_> = (0..held.len()).filter(|n| !held[*n].is_current()).collect();
    assert_eq!(stale, (ANSWERS_MAX..held.len()).collect::<Vec<_>>());
}

#[test]
fn a_shorter_route_of_a_command_wins_by_up_to_32_bits() {
    let mut router = router();
    assert_eq!(gateway(&router, &to("1.1.2.3")).as_deref(), Some("-"));
    router.add_route(user("1.1.0.0/16", "1.1.2.1")).expect("added");
    assert_eq!(gateway(&router, &to("1.1.2.3")).as_deref(), Some("1.1.2.1"));
    // Local addresses are in a table that comes first.
    assert_eq!(gateway(&router, &to("1.1.2.88")).as_deref(), Some("-"));
    assert!(router.lookup(&to("1.1.2.88")).route.is_some_and(|route| route.local));
    router.add_route(user("::/0", "2001:cafe::1")).expect("added");
    assert_eq!(gateway(&router, &to("2001:cafe::3")).as_deref(), Some("-"));
    assert_eq!(gateway(&router, &to("2001::3")).as_deref(), Some("2001:cafe::1"));
    assert_eq!(router.add_route(user("7.0.0.0/8", "9.9.9.9")), Err(NoSource));
}

#[test]
fn removed_routes_leave_no_rows() {
    let mut router = router();
    for n in 0..100 {
        router.add_route(user(&format!("9.{n}.0.0/16"), "1.1.2.1")).expect("added");
    }
    for n in 0..100 {
        assert!(router.remove_route(TABLE_MAIN, prefix(&format!("9.{n}.0.0/16")), 0));
    }
    router.set_device_addresses("br0", &[]);
    assert!(router.rows(Shown::All).is_some_and(|rows| rows.is_empty()));
    assert_eq!(gateway(&router, &to("9.1.0.1")), None);
}
