//! Any bytes as datagrams about the kernel's routing, which a router follows. Answers are as fresh lookups give them.
#![no_main]

use netdev_linux::routes::parse::{Item, messages};
use routes::{Dependency, KernelChange, Query, Route, Router, Shown};

fuzz::target!(|bytes: &[u8]| {
    let all: Vec<_> = messages(bytes).collect();
    // Each message takes at least its header.
    assert!(all.len() <= bytes.len() / 16);
    let mut router = Router::default();
    let mut held: Vec<(Query, Option<Route>, Dependency)> = Vec::new();
    for change in all.into_iter().filter_map(|message| message.item) {
        let Item::Change(change) = change else { continue };
        let query = match &change {
            KernelChange::Route(route, _) | KernelChange::RouteGone(route) => Some(Query::to(route.prefix.last())),
            KernelChange::Address { address, .. } => Some(Query::to(*address)),
            _ => None,
        };
        if let Some(query) = query.filter(|_| held.len() < 64) {
            let (route, dependency) = router.resolve(query);
            held.push((query, route, dependency));
        }
        let _ = router.apply(change);
        held.retain(|(query, route, dependency)| {
            assert_eq!(dependency.is_current(), router.lookup(query).route == *route);
            dependency.is_current()
        });
    }
    // One row at most for each route.
    assert!(router.rows(Shown::All).is_some_and(|rows| rows.len() <= bytes.len() / 16));
});
