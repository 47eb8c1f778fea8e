//! Messages as the kernel sends them, and any others.

use proptest::prelude::*;

use super::*;

/// A message of a type with a header and attributes.
fn message(message_type: u16, flags: u16, header: &[u8], attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend(message_type.to_ne_bytes());
    out.extend(flags.to_ne_bytes());
    out.extend([7, 0, 0, 0, 0, 0, 0, 0]);
    out.extend(header);
    for (attribute, value) in attributes {
        out.extend((4 + value.len() as u16).to_ne_bytes());
        out.extend(attribute.to_ne_bytes());
        out.extend(*value);
        out.resize(out.len().next_multiple_of(4), 0);
    }
    let len = out.len() as u32;
    out[..4].copy_from_slice(&len.to_ne_bytes());
    out
}

fn change(bytes: &[u8]) -> Option<KernelChange> {
    let mut all: Vec<_> = messages(bytes).collect();
    assert_eq!((all.len(), u32::from_ne_bytes([7, 0, 0, 0])), (1, all[0].seq));
    match all.remove(0).item {
        Some(Item::Change(change)) => Some(change),
        Some(other) => panic!("{other:?}"),
        None => None,
    }
}

fn prefix(text: &str) -> Prefix {
    text.parse().expect("a prefix")
}

fn route_header(len: u8, table: u8, route_type: u8, flags: u32) -> Vec<u8> {
    [&[AF_INET, len, 0, 0, table, 3, 0, route_type][..], &flags.to_ne_bytes()].concat()
}

#[test]
fn routes_with_one_and_several_next_hops() {
    let index = 5u32.to_ne_bytes();
    let table = 1000u32.to_ne_bytes();
    let attributes: &[(u16, &[u8])] = &[
        (RTA_TABLE, &table),
        (RTA_DST, &[10, 0, 0, 0]),
        (RTA_PRIORITY, &100u32.to_ne_bytes()),
        (RTA_PREFSRC, &[1, 2, 3, 4]),
        (RTA_OIF, &index),
        (RTA_VIA, &[&(libc::AF_INET6 as u16).to_ne_bytes()[..], &[0xfe; 16]].concat()),
    ];
    let bytes = message(RTM_NEWROUTE, NLM_F_REPLACE, &route_header(8, 252, RTN_UNICAST, 0), attributes);
    let gateway = Some(IpAddr::V6(Ipv6Addr::from([0xfe; 16])));
    let expected = KernelRoute {
        table: 1000,
        prefix: prefix("10.0.0.0/8"),
        tos: 0,
        metric: 100,
        local: false,
        source: Some([1, 2, 3, 4].into()),
        hops: vec![NextHop { ifindex: 5, gateway, state: HopState::Usable, weight: 1 }],
    };
    assert_eq!(change(&bytes), Some(KernelChange::Route(expected.clone(), Placement::Replaced)));

    let one = |flags: u8, index: u8, last: u8| {
        [&[16, 0, flags, last - 1, index, 0, 0, 0][..], &[8, 0, 5, 0, 10, 0, 0, last]].concat()
    };
    let both = [one(0, 5, 1), one(RTNH_F_DEAD as u8, 6, 2), one(RTNH_F_LINKDOWN as u8, 7, 3)].concat();
    let attributes: &[(u16, &[u8])] = &[(RTA_MULTIPATH, &both)];
    let bytes = message(RTM_DELROUTE, 0, &route_header(0, 254, RTN_LOCAL, 0), attributes);
    let Some(KernelChange::RouteGone(route)) = change(&bytes) else { panic!("a route") };
    let hop =
        |ifindex, last, state| NextHop { ifindex, gateway: Some([10, 0, 0, last].into()), state, weight: last.into() };
    let hops = [hop(5, 1, HopState::Usable), hop(6, 2, HopState::Dead), hop(7, 3, HopState::NoCarrier)];
    assert_eq!((route.table, route.prefix, route.local, &route.hops[..]), (254, Prefix::ALL_V4, true, &hops[..]));
}

#[test]
fn unusable_routes_are_left_out() {
    let index = 5u32.to_ne_bytes();
    let attributes: &[(u16, &[u8])] = &[(RTA_OIF, &index)];
    for (len, route_type, flags) in [(0, 3, 0), (0, 6, 0), (0, RTN_UNICAST, RTM_F_CLONED), (33, RTN_UNICAST, 0)] {
        let bytes = message(RTM_NEWROUTE, 0, &route_header(len, 254, route_type, flags), attributes);
        assert_eq!(change(&bytes), None, "{len} {route_type} {flags}");
        let bytes = message(RTM_NEWROUTE, NLM_F_REPLACE, &route_header(len, 254, route_type, flags), attributes);
        assert_eq!(change(&bytes), Some(KernelChange::Unclear));
    }
    assert_eq!(change(&message(RTM_NEWROUTE, 0, &route_header(0, 254, RTN_UNICAST, 0), &[])), None);
}

#[test]
fn rules_that_select_by_more_than_the_source_are_left_out() {
    let header =
        |to, len, action, flags: u32| [&[AF_INET, to, len, 0, 77, 0, 0, action][..], &flags.to_ne_bytes()].concat();
    let unused = u32::MAX.to_ne_bytes();
    let common: &[(u16, &[u8])] = &[
        (FRA_PRIORITY, &9u32.to_ne_bytes()),
        (FRA_SUPPRESS_PREFIXLEN, &unused),
        (FRA_PROTOCOL, &[3]),
        (FRA_SRC, &[10, 9, 0, 0]),
    ];
    let from = From::prefix([10, 9, 0, 0].into(), 16);
    let expected = Rule { priority: 9, from, invert: true, table: 77, user: false };
    let bytes = message(RTM_NEWRULE, 0, &header(0, 16, FR_ACT_TO_TBL, FIB_RULE_INVERT), common);
    assert_eq!(change(&bytes), Some(KernelChange::Rule(expected)));
    let zero = 0u32.to_ne_bytes();
    for (to, action, more) in [
        (24, FR_ACT_TO_TBL, None),
        (0, 6, None),
        (0, FR_ACT_TO_TBL, Some((10, &zero[..]))),
        (0, FR_ACT_TO_TBL, Some((3, b"eth0\0".as_slice()))),
        (0, FR_ACT_TO_TBL, Some((FRA_SUPPRESS_PREFIXLEN, &zero))),
    ] {
        let attributes: Vec<_> = common.iter().copied().chain(more).collect();
        assert_eq!(change(&message(RTM_NEWRULE, 0, &header(to, 16, action, 0), &attributes)), None, "{more:?}");
    }
}

#[test]
fn an_inconsistent_dump_is_noticed() {
    let bytes = message(NLMSG_DONE, NLM_F_DUMP_INTR, &0u32.to_ne_bytes(), &[]);
    let all: Vec<_> = messages(&bytes).collect();
    assert_eq!(all, [Message { seq: 7, interrupted: true, item: Some(Item::Done(0)) }]);
    let bytes = message(NLMSG_ERROR, 0, &(-95i32).to_ne_bytes(), &[]);
    assert_eq!(messages(&bytes).next().and_then(|m| m.item), Some(Item::Done(95)));
}

const TYPES: [u16; 13] = [2, 3, 4, 16, 17, 20, 21, 24, 25, 28, 29, 32, 33];

tally::proptest! {
    #[test]
    fn no_datagram_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        prop_assert!(messages(&bytes).count() <= bytes.len() / HEADER_LEN);
    }

    #[test]
    fn no_message_panics(
        message_type in prop::sample::select(&TYPES[..]),
        header in prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(2), Just(10), any::<u8>()], 0..20),
        attributes in prop::collection::vec((0u16..24, prop::collection::vec(any::<u8>(), 0..40)), 0..6),
        cut in 0usize..8,
    ) {
        let attributes: Vec<_> = attributes.iter().map(|(kind, value)| (*kind, &value[..])).collect();
        let mut bytes = message(message_type, 0, &header, &attributes);
        bytes.truncate(bytes.len() - cut.min(bytes.len()));
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        prop_assert!(messages(&bytes).count() <= 1);
    }
}
