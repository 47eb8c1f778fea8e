//! Routes, rules, addresses and neighbours of a namespace: what `ip` sets is followed, and lookups agree with the
//! kernel's own.

use std::net::IpAddr;
use std::process::{Command, Stdio};

use base::rng::Rng;
use netdev_linux::routes::{Follower, Update};
use routes::{Query, Router, Shown};

use crate::net::{Net, run};

/// A namespace with two devices, e0 and e1, and their addresses.
fn namespace(net: &mut Net) -> String {
    let name = net.namespace("r");
    let ip = |line: &str| run(&format!("ip -n {name} {line}"));
    ip("link set lo up");
    for (device, net) in [("e0", 5), ("e1", 6)] {
        ip(&format!("link add {device} type veth peer name x{device}"));
        // Link-local addresses would come by themselves, some time later.
        ip(&format!("link set {device} addrgenmode none"));
        ip(&format!("link set x{device} addrgenmode none"));
        ip(&format!("address add 10.{net}.0.1/24 dev {device}"));
        ip(&format!("address add 2001:db8:{net}::1/64 dev {device} nodad"));
        ip(&format!("link set {device} up"));
        ip(&format!("link set x{device} up"));
    }
    name
}

/// Runs `ip` in the namespace. Some commands of random sequences fail.
fn try_ip(namespace: &str, line: &str) {
    let words = line.split_whitespace();
    let mut command = Command::new("ip");
    command.args(["-n", namespace]).args(words).stdout(Stdio::null()).stderr(Stdio::null());
    let _ = command.status().expect("ip runs");
}

fn follower(namespace: &str) -> Follower {
    let file = std::fs::File::open(format!("/run/netns/{namespace}")).expect("the namespace");
    Follower::open_in(std::os::fd::AsFd::as_fd(&file)).expect("sockets")
}

fn started(namespace: &str) -> (Follower, Router) {
    let (mut follower, mut router) = (follower(namespace), Router::default());
    follower.follow(&mut router).expect("a dump");
    (follower, router)
}

/// Follows until no changes are left.
fn follow(follower: &mut Follower, router: &mut Router) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let none = Timespec { tv_sec: 0, tv_nsec: 0 };
    while poll(&mut [PollFd::from_borrowed_fd(follower.fd(), PollFlags::IN)], Some(&none)).expect("poll") > 0 {
        follower.follow(router).expect("netlink");
    }
}

/// The routes and rules, in an order that does not depend on history.
fn state(router: &Router) -> (Vec<String>, Vec<String>) {
    let rows = router.rows(Shown::All).expect("rows");
    let mut rows: Vec<_> = rows.iter().map(|row| format!("{} {row}", row.table)).collect();
    rows.sort();
    let mut rules: Vec<_> = router.rules().map(ToString::to_string).collect();
    rules.sort();
    (rows, rules)
}

fn to(text: &str) -> Query {
    Query::to(text.parse().expect("an address"))
}

fn way(router: &Router, destination: &str) -> Option<String> {
    let route = router.lookup(&to(destination)).route?;
    Some(format!("{} {:?} {}", route.device, route.gateway, route.source))
}

#[test]
fn a_dump_shows_what_ip_has_set() {
    let mut net = Net::new();
    let name = namespace(&mut net);
    for line in [
        "route add 20.0.0.0/8 via 10.5.0.8 metric 5",
        "route add 20.0.0.0/8 via 10.5.0.9 metric 10",
        "route add 21.0.0.0/8 nexthop via 10.5.0.9 nexthop via 10.6.0.9",
        "route add 22.0.0.0/8 via 10.6.0.9 table 1000",
        "route add blackhole 23.0.0.0/8",
        "route add 24.0.0.0/8 via inet6 fe80::9 dev e1",
        "-6 route add 2001:db9::/32 nexthop via 2001:db8:5::9 nexthop via 2001:db8:6::9",
        "rule add not from 10.8.0.0/16 table 1000 priority 100",
        "rule add fwmark 5 table 1000 priority 101",
        "-6 rule add from 2001::/16 table 1000 priority 102",
        "neighbour add 10.5.0.9 lladdr 02:00:00:00:00:09 dev e0",
    ] {
        run(&format!("ip -n {name} {line}"));
    }
    let (_, router) = started(&name);
    let way = |destination: &str| way(&router, destination).unwrap_or_default();
    assert_eq!(way("20.0.0.1"), "e0 Some(10.5.0.8) 10.5.0.1");
    assert_eq!(way("21.0.0.1"), "e0 Some(10.5.0.9) 10.5.0.1");
    assert_eq!(way("22.0.0.1"), "", "the rule needs a source");
    assert_eq!(way("23.0.0.1"), "");
    assert_eq!(way("24.0.0.1"), "e1 Some(fe80::9) 10.6.0.1");
    assert_eq!(way("10.6.0.77"), "e1 None 10.6.0.1");
    assert_eq!(way("127.0.0.1"), "lo None 127.0.0.1");
    assert_eq!(way("2001:db9::1"), "e0 Some(2001:db8:5::9) 2001:db8:5::1");
    assert_eq!(way("2001:db8:6::77"), "e1 None 2001:db8:6::1");
    let query = Query { source: Some([10, 5, 0, 1].into()), ..to("22.0.0.1") };
    assert_eq!(router.lookup(&query).route.and_then(|route| route.gateway), Some([10, 6, 0, 9].into()));
    let rules: Vec<_> = router.rules().map(ToString::to_string).filter(|rule| rule.contains("1000")).collect();
    assert_eq!(rules, ["Cached: 100: not from 10.8.0.0/16  lookup 1000", "Cached: 102: from 2001::/16  lookup 1000"]);
}

#[test]
fn a_change_makes_stale_what_it_concerns() {
    let mut net = Net::new();
    let name = namespace(&mut net);
    run(&format!("ip -n {name} route add 21.0.0.0/8 nexthop via 10.5.0.9 nexthop via 10.6.0.9"));
    let (mut follower, mut router) = started(&name);
    let (route, one) = router.resolve(to("21.0.0.1"));
    assert_eq!(route.map(|route| route.device.to_string()).as_deref(), Some("e0"));
    let (_, other) = router.resolve(to("10.6.0.5"));
    run(&format!("ip -n {name} route add 22.0.0.0/8 via 10.5.0.9"));
    follow(&mut follower, &mut router);
    assert!(one.is_current() && other.is_current());
    // The kernel says nothing of the next hop that dies.
    run(&format!("ip -n {name} link set e0 down"));
    follow(&mut follower, &mut router);
    assert!(!one.is_current() && other.is_current());
    assert_eq!(way(&router, "21.0.0.1").as_deref(), Some("e1 Some(10.6.0.9) 10.6.0.1"));
    assert_eq!(way(&router, "22.0.0.1"), None);
    run(&format!("ip -n {name} link set e1 name f1"));
    follow(&mut follower, &mut router);
    assert_eq!(way(&router, "10.6.0.5").as_deref(), Some("f1 None 10.6.0.1"));
    assert!(!other.is_current());
}

#[test]
fn lost_changes_lead_to_a_dump() {
    let mut net = Net::new();
    let name = namespace(&mut net);
    let (mut follower, mut router) = started(&name);
    rustix::net::sockopt::set_socket_recv_buffer_size(follower.fd(), 4096).expect("a small buffer");
    let file =
        tempfile(&net, (0..500).map(|n| format!("route add 30.{}.{}.0/24 via 10.5.0.9\n", n / 250, n % 250)).collect());
    run(&format!("ip -n {name} -batch {}", file.display()));
    follower.follow(&mut router).expect("netlink");
    assert_eq!(way(&router, "30.1.249.1").as_deref(), Some("e0 Some(10.5.0.9) 10.5.0.1"));
    // The same for the caller that applies changes itself.
    run(&format!("ip -n {name} route flush root 30.0.0.0/8"));
    assert_eq!(follower.read().expect("netlink"), Update::Lost);
    let _ = std::fs::remove_file(file);
}

fn tempfile(net: &Net, text: String) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(net.name("batch"));
    std::fs::write(&path, text).expect("a file");
    path
}

/// A command that changes something, in most cases.
fn random_command(rng: &mut Rng) -> String {
    let n = rng.below(4);
    let v6 = rng.below(3) == 0;
    let (family, destination) = if v6 { ("-6 ", format!("2001:db9:{n}::/48")) } else { ("", format!("2{n}.0.0.0/8")) };
    let device = rng.below(2);
    let via = |device: u64, last: u64| {
        if v6 { format!("2001:db8:{}::{last}", 5 + device) } else { format!("10.{}.0.{last}", 5 + device) }
    };
    let one = via(device, 8 + rng.below(2));
    let metric = rng.below(3);
    let table = [254, 254, 1000][rng.below(3) as usize];
    match rng.below(16) {
        0..=3 => format!("{family}route add {destination} via {one} metric {metric} table {table}"),
        4 if rng.below(3) == 0 => {
            format!("{family}route replace blackhole {destination} metric {metric} table {table}")
        }
        4 | 5 => format!("{family}route replace {destination} via {one} metric {metric} table {table}"),
        6 => format!("{family}route append {destination} via {one} metric {metric} table {table}"),
        7 | 8 => format!("{family}route del {destination} table {table}"),
        9 => {
            let (a, b) = (via(0, 8), via(1, 9));
            format!("{family}route add {destination} metric {metric} table {table} nexthop via {a} nexthop via {b}")
        }
        10 => format!("link set e{device} {}", ["up", "down"][rng.below(2) as usize]),
        11 => format!("link set xe{device} {}", ["up", "down"][rng.below(2) as usize]),
        12 => {
            let action = ["add", "del"][rng.below(2) as usize];
            if v6 {
                format!("address {action} 2001:db8:{}::7/64 dev e{device} nodad", 5 + device)
            } else {
                format!("address {action} 10.{}.0.7/24 dev e{device}", 5 + device)
            }
        }
        13 => format!("{family}route flush table 1000"),
        _ => {
            let action = ["add", "del"][rng.below(2) as usize];
            let from = if v6 { format!("2001:db8:{}::/48", 5 + device) } else { format!("10.{}.0.0/16", 5 + device) };
            format!("{family}rule {action} from {from} table 1000 priority {}", 100 + n)
        }
    }
}

#[test]
fn random_changes_are_followed() {
    let mut net = Net::new();
    let (mut steps, mut lookups) = (0, 0);
    let name = namespace(&mut net);
    let (mut follower, mut router) = started(&name);
    let mut rng = Rng::seeded(20);
    for _ in 0..250 {
        let command = random_command(&mut rng);
        try_ip(&name, &command);
        // The kernel sets the local route of an IPv6 address by deferred work, at any time after the command.
        let (mut ours, mut theirs);
        let mut attempts = 0..100;
        loop {
            follow(&mut follower, &mut router);
            (ours, theirs) = (state(&router), state(&started(&name).1));
            if ours == theirs || attempts.next().is_none() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        let only = |a: &[String], b: &[String]| a.iter().filter(|row| !b.contains(row)).cloned().collect::<Vec<_>>();
        assert_eq!(only(&ours.0, &theirs.0), only(&theirs.0, &ours.0), "routes after {command}");
        assert_eq!(ours.1, theirs.1, "rules after {command}");
        steps += 1;
        // The kernel's own lookup; where it chooses among several next hops, they may differ.
        let destination: IpAddr = [20 + rng.below(4) as u8, 1, 1, 1].into();
        if let Some((device, gateway, several)) = kernel_lookup(&name, destination) {
            let route = router.lookup(&Query::to(destination)).route;
            let ours = route.map(|route| (route.device.to_string(), route.gateway.map(|g| g.to_string())));
            if !several {
                assert_eq!(ours, Some((device, gateway)), "to {destination} after {command}");
                lookups += 1;
            }
        }
    }
    tally::report!("{steps} changes, {lookups} lookups like the kernel's");
}

/// Device and gateway by which the kernel sends, and whether the route has several next hops.
fn kernel_lookup(namespace: &str, destination: IpAddr) -> Option<(String, Option<String>, bool)> {
    let ip = |words: &[&str]| {
        let output = Command::new("ip").args(["-n", namespace]).args(words).output().expect("ip runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let got = ip(&["route", "get", &destination.to_string()]);
    let after = |word: &str| {
        let mut words = got.split_whitespace();
        words.find(|w| *w == word).and_then(|_| words.next()).map(str::to_owned)
    };
    let several = ip(&["route", "get", "fibmatch", &destination.to_string()]).contains("nexthop");
    Some((after("dev")?, after("via"), several))
}
