//! What Open vSwitch 4.0.0 replies to the same commands.

use base::Millis;

use super::*;
use crate::rows_to_text;

fn router() -> Router {
    let mut router = Router::default();
    let address = |text: &str, len| (text.parse().expect("an address"), len);
    let all = [address("1.1.2.88", 24), address("1.1.3.88", 24), address("2001:cafe::88", 64)];
    router.set_device_addresses("br0", &all);
    router.set_device_addresses("br1", &[address("1.1.4.5", 24)]);
    router
}

/// The reply to a command line.
fn run(router: &mut Router, line: &str) -> String {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (command, args) = words.split_first().expect("a command");
    let done = |result: Result<(), CommandError>| result.map(|()| "OK".to_owned());
    let reply = match *command {
        "add" => done(route_add(router, args)),
        "del" => done(route_del(router, args)),
        "lookup" => route_lookup(router, args).map(|text| text.trim_end().replace('\n', " ")),
        "show" => route_show(router, args).map(|(which, rows)| rows_to_text(which, &rows)),
        "rule/add" => done(rule_add(router, args)),
        "rule/del" => done(rule_del(router, args)),
        "rule/show" => Ok(rule_show(router, args).iter().map(|rule| format!("{rule}\n")).collect()),
        other => panic!("{other}"),
    };
    reply.unwrap_or_else(|error| error.to_string())
}

fn all(script: &str) {
    let mut router = router();
    for line in script.lines().filter(|line| !line.is_empty()) {
        let (command, reply) = line.split_once(" => ").expect("a reply");
        assert_eq!(run(&mut router, command).trim_end(), reply, "{command}");
    }
}

#[test]
fn routes() {
    all("\
add 1.1.2.92/24 br0 => OK
add 2001:cafe::92/64 br0 => OK
add 10.2.0.0/16 br0 src=1.1.2.88 => Error while inserting route.
add 10.4.0.0/16 nope => Error while inserting route.
add 10.4.0.0/16 br1 => Error while inserting route.
add 10.5.0.0/33 br0 => Invalid 'ip/plen' parameter
add bad br0 => Invalid 'ip/plen' parameter
add 10.6.0.1 br0 => Error while inserting route.
add 10.7.0.1/255.255.0.0 br0 => Error while inserting route.
add 10.7.0.1/255.0.255.0 br0 => Invalid 'ip/plen' parameter
add 9.0.0.0/8x br0 1.1.2.5 => Invalid 'ip/plen' parameter
add 10.8.0.1/16 br0 bad => Invalid pkt_mark, IP gateway or src_ip
add 10.8.0.1/16 br0 pkt_mark=bad => Invalid pkt_mark, IP gateway or src_ip
add 10.8.0.1/16 br0 pkt_mark=1 foo=2 => Invalid pkt_mark, IP gateway or src_ip
add 10.8.0.1/16 br0 2001::1 => Invalid pkt_mark, IP gateway or src_ip
add 10.8.0.1/16 br0 1.1.2.2 src= => Invalid pkt_mark, IP gateway or src_ip
add 10.8.0.1/16 br0 1.1.2.2 src=2001:cafe::88 => Invalid pkt_mark, IP gateway or src_ip
add 10.9.0.1/16 br0 table=5 => Error while inserting route.
add 10.8.0.1/16 br0 1.1.2.2 1.1.2.3 => OK
add 7.2.0.0/16 br0 1.1.4.9 src=1.1.3.88 => Error while inserting route.
add 7.3.0.0/16 br0 1.1.3.9 src=1.1.2.88 => Error while inserting route.
add 7.5.0.0/16 br0 1.1.3.9 table=main => Invalid table format
add 7.5.0.0/16 br0 1.1.3.9 table=4294967295 => OK
add 7.5.0.0/16 br0 1.1.3.9 table=1000 pkt_mark=4294967296 => OK
add 7.5.0.0/16 br0 1.1.3.9 table=1000 pkt_mark=-1 => OK
add 8.0.0.0/8 br0 1.1.2.5 pkt_mark=5x table=7x => OK
add 1.1.2.128/25 br0 9.9.9.9 => OK
lookup 1.1.2.200 => src 1.1.2.88 gateway 9.9.9.9 dev br0
del 1.1.2.128/25 table=x => Invalid table format
del 1.1.2.128/25 table=77 pkt_mark=bad => Table table=77 not found
del 1.1.2.128/25 => OK
add 1.1.3.0/24 br0 src=0.0.0.0 => OK
add 9.0.0.0/8 br0 1.1.2.5 table=0 => OK
lookup 9.0.0.1 => Not found
del 9.0.0.0/8 => Not found
del 9.0.0.0/8 table=0 => OK
del 7.5.0.0/16 => Not found
del 7.5.0.0/16 table=1000 => OK
del 7.5.0.0/16 table=1000 pkt_mark=4294967295 => OK
del 7.5.0.0/16 table=77 => Table table=77 not found
del 1.1.2.0/24 => OK
del 1.1.2.0/24 => Not found
del 1.1.2.0/33 => Invalid parameters
del 1.1.2.0/24 foo => Invalid pkt_mark or table
del 1.1.2.7/24 pkt_mark=bad => Invalid pkt_mark or table
show all => Invalid table format
show table=main => Invalid table format
show table= => Invalid table format
show table=77 => Table 'table=77' not found
show table=253 => Table 'table=253' not found
show table=1000 => Route Table #1000:");
}

#[test]
fn lookups() {
    all("\
add 9.0.0.0/8 br0 1.1.2.1 => OK
add 9.0.0.0/8 br0 1.1.2.5 pkt_mark=5 => OK
add 9.1.0.0/16 br0 1.1.2.6 pkt_mark=6 => OK
lookup 9.0.0.1 => src 1.1.2.88 gateway 1.1.2.1 dev br0
lookup ::ffff:9.0.0.1 => src 1.1.2.88 gateway 1.1.2.1 dev br0
lookup 9.0.0.1 pkt_mark=5 => src 1.1.2.88 gateway 1.1.2.5 dev br0
lookup 9.0.0.1/32 => src 1.1.2.88 gateway 1.1.2.1 dev br0
lookup ::ffff:9.0.0.1/128 => src 1.1.2.88 gateway 1.1.2.1 dev br0
lookup 9.0.0.1/24 => Invalid 'ip/plen' parameter
lookup 9.0.0.1/33 => Invalid 'ip/plen' parameter
lookup 9.0.0.1 pkt_mark=6 => Not found
lookup 9.1.0.1 => src 1.1.2.88 gateway 1.1.2.1 dev br0
lookup 9.1.0.1 pkt_mark=6 => src 1.1.2.88 gateway 1.1.2.6 dev br0
lookup 9.1.0.1 pkt_mark=5 => src 1.1.2.88 gateway 1.1.2.5 dev br0
lookup 1.1.2.3 pkt_mark=5 => Not found
lookup 1.1.2.88 => src 1.1.2.88 gateway :: dev br0
lookup 9.0.0.1 src=1.1.3.88 => src 1.1.3.88 gateway 1.1.2.1 dev br0
lookup 9.0.0.1 src=1.1.3.99 => Not found
lookup 9.0.0.1 src=0.0.0.0 => src 1.1.2.88 gateway 1.1.2.1 dev br0
lookup 1.1.2.88 src=1.1.3.88 => src 1.1.3.88 gateway :: dev br0
lookup 9.0.0.1 src=1.1.3.88 pkt_mark=5 => Not found
lookup 2001:cafe::1 src=:: => src 2001:cafe::88 gateway :: dev br0
lookup 9.1.1.1 src=2001::1 => Invalid pkt_mark or src
lookup 9.1.1.1 table=7 => Invalid pkt_mark or src
lookup 9.1.1.1/8 => Invalid 'ip/plen' parameter
lookup ::1 => Not found");
}

#[test]
fn rules_select_tables() {
    all("\
add 9.0.0.0/8 br0 1.1.2.1 => OK
add 9.0.0.0/8 br0 1.1.2.101 table=1 => OK
add 9.0.0.0/8 br0 1.1.2.102 table=2 => OK
rule/add from=1.1.2.88 prio=10 table=1 => OK
lookup 9.0.0.1 => src 1.1.2.88 gateway 1.1.2.1 dev br0
lookup 9.0.0.1 src=1.1.2.88 => src 1.1.2.88 gateway 1.1.2.101 dev br0
lookup 9.0.0.1 src=1.1.3.88 => src 1.1.3.88 gateway 1.1.2.1 dev br0
rule/del from=1.1.2.88 prio=10 table=1 => OK
rule/add not from=1.1.2.0/24 prio=10 table=1 => OK
lookup 9.0.0.1 => src 1.1.2.88 gateway 1.1.2.1 dev br0
lookup 9.0.0.1 src=1.1.2.88 => src 1.1.2.88 gateway 1.1.2.1 dev br0
lookup 9.0.0.1 src=1.1.3.88 => src 1.1.3.88 gateway 1.1.2.101 dev br0
rule/del not from=1.1.2.0/24 prio=10 table=1 => OK
rule/add not from=all prio=10 table=1 => OK
lookup 9.0.0.1 => src 1.1.2.88 gateway 1.1.2.1 dev br0
rule/add from=all prio=9 table=99 => OK
lookup 9.0.0.1 => src 1.1.2.88 gateway 1.1.2.1 dev br0
rule/add from=all prio=11 table=2 => OK
lookup 9.0.0.1 => src 1.1.2.88 gateway 1.1.2.1 dev br0
lookup 9.0.0.1 src=1.1.2.88 => src 1.1.2.88 gateway 1.1.2.102 dev br0
rule/add -6 from=2001::/16 prio=10 table=1 => OK
lookup 9.0.0.1 => src 1.1.2.88 gateway 1.1.2.1 dev br0
rule/add -6 from=all prio=11 table=1 => OK
lookup 9.0.0.1 => src 1.1.2.88 gateway 1.1.2.101 dev br0
lookup 1.1.3.5 => src 1.1.3.88 gateway :: dev br0");
}

#[test]
fn rules_are_read_leniently_and_find_a_priority() {
    let mut router = router();
    for (line, reply) in [
        ("rule/add from=7.7.7.1 table=3", "OK"),
        ("rule/add from=7.7.7.2 prio=0 table=3", "OK"),
        ("rule/add from=7.7.7.3 prio=4294967296 table=3", "OK"),
        ("rule/add from=7.7.7.4 prio=4294967297 table=3", "OK"),
        ("rule/add from=7.7.7.5 prio=-1 table=3", "OK"),
        ("rule/add from=7.7.7.6 table=3", "OK"),
        ("rule/add from=7.7.7.9/17 prio=20x table=3x", "OK"),
        ("rule/add not from=all prio=20 table=mainx", "OK"),
        ("rule/add -6 from=2001::1/64 table=local", "OK"),
        ("rule/add foo table=5", "Invalid 'from' parameter"),
        ("rule/add not -6 from=all table=5", "Invalid 'from' parameter"),
        ("rule/add from=bad table=5", "Invalid from=ip/plen"),
        ("rule/add from=1.1.2.0/33 table=5", "Invalid from=ip/plen"),
        ("rule/add from=1.1.2.0/24 prio=5", "Not enough arguments"),
        ("rule/add from=1.1.2.0/24 prio=bad table=5", "Invalid 'table' format"),
        ("rule/add from=1.1.2.0/24 prio=5 table=bad", "Invalid 'table' format"),
        ("rule/del from=all table=main prio=32766", "Failed to delete router rule: -2 (Unknown error -2)"),
        ("rule/del from=7.7.7.1 prio=99 table=3", "Failed to delete router rule: -2 (Unknown error -2)"),
        ("rule/del from=7.7.7.1 table=3", "OK"),
    ] {
        assert_eq!(run(&mut router, line), reply, "{line}");
    }
    assert_eq!(
        run(&mut router, "rule/show"),
        "\
Cached: 0: from all lookup local
User: 1: from 7.7.7.4 lookup 3
User: 20: from 7.7.7.9/17  lookup 3
User: 20: not from all lookup main
User: 32763: from 7.7.7.3 lookup 3
User: 32764: from 7.7.7.2 lookup 3
Cached: 32766: from all lookup main
Cached: 32767: from all lookup default
User: 4294967294: from 7.7.7.6 lookup 3
User: 4294967295: from 7.7.7.5 lookup 3
"
    );
    let json: Vec<_> = rule_show(&router, &["-6"]).iter().map(|rule| rule.to_json().to_string()).collect();
    assert_eq!(
        json[2],
        r#"{"from":"2001::1","invert":false,"ipv4":false,"lookup":255,"priority":4294967293,"src-prefix":64,"user":true}"#
    );
}

#[test]
fn tables_are_shown() {
    let mut router = Router::default();
    let address = |text: &str, len| (text.parse().expect("an address"), len);
    router.set_device_addresses("br0", &[address("1.1.2.88", 24), address("2001:cafe::88", 64)]);
    for line in [
        "add 1.1.2.92/24 br0",
        "add 2001:cafe::92/64 br0",
        "add 10.0.0.0/8 br0 1.1.2.1",
        "add 10.0.0.0/8 br0 1.1.2.1 pkt_mark=5",
        "add 10.1.0.0/16 br0 1.1.2.1 src=1.1.2.88",
        "add 10.8.0.1/16 br0 1.1.2.3",
        "add 10.10.0.1/16 br0 1.1.2.7 table=100 src=1.1.2.88 pkt_mark=7",
        "add 0.0.0.0/0 br0 1.1.2.7",
        "add ::/0 br0 2001:cafe::1",
        "add 2002::/16 br0 2001:cafe::1 src=2001:cafe::88",
    ] {
        assert_eq!(run(&mut router, line), "OK", "{line}");
    }
    let local = "\
Cached: 1.1.2.88/32 dev br0 SRC 1.1.2.88 local
Cached: 2001:cafe::88/128 dev br0 SRC 2001:cafe::88 local
";
    let main = "\
Cached: 1.1.2.0/24 dev br0 SRC 1.1.2.88
User: 1.1.2.0/24 dev br0 SRC 1.1.2.88
User: 10.1.0.0/16 dev br0 GW 1.1.2.1 SRC 1.1.2.88
User: 10.8.0.0/16 dev br0 GW 1.1.2.3 SRC 1.1.2.88
User: 10.0.0.0/8 dev br0 GW 1.1.2.1 SRC 1.1.2.88
User: 10.0.0.0/8 MARK 5 dev br0 GW 1.1.2.1 SRC 1.1.2.88
User: 0.0.0.0/0 dev br0 GW 1.1.2.7 SRC 1.1.2.88
Cached: 2001:cafe::/64 dev br0 SRC 2001:cafe::88
User: 2001:cafe::/64 dev br0 SRC 2001:cafe::88
User: 2002::/16 dev br0 GW 2001:cafe::1 SRC 2001:cafe::88
User: ::/0 dev br0 GW 2001:cafe::1 SRC 2001:cafe::88
";
    assert_eq!(run(&mut router, "show"), format!("Route Table:\n{local}{main}"));
    assert_eq!(run(&mut router, "show table=0"), format!("Route Table:\n{local}{main}"));
    assert_eq!(run(&mut router, "show table=254"), format!("Route Table:\n{main}"));
    let other = "User: 10.10.0.0/16 MARK 7 dev br0 GW 1.1.2.7 SRC 1.1.2.88";
    assert_eq!(run(&mut router, "show table=100"), format!("Route Table #100:\n{other}\n"));
    assert_eq!(run(&mut router, "show table=all"), format!("{local}{main}{other} table 100\n"));
    let (_, rows) = route_show(&router, &["table=all"]).expect("rows");
    let json: Vec<_> = rows.iter().map(|row| row.to_json().to_string()).collect();
    assert_eq!(
        json[0],
        r#"{"dst":"1.1.2.88","local":true,"nexthops":[{"dev":"br0"}],"prefix":32,"prefsrc":"1.1.2.88","table":255,"user":false}"#
    );
    let last = r#"{"dst":"10.10.0.0","local":false,"mark":7,"nexthops":[{"dev":"br0","gateway":"1.1.2.7"}],"prefix":16,"prefsrc":"1.1.2.88","table":100,"user":true}"#;
    assert_eq!(json.last().map(String::as_str), Some(last));
}

#[test]
fn times_of_neighbours() {
    let mut neighbours = Neighbours::default();
    let show = |value: Result<Option<String>, CommandError>| match value {
        Ok(value) => value.unwrap_or_else(|| "OK".to_owned()),
        Err(error) => error.to_string(),
    };
    for (args, reply) in [
        (&[][..], "900"),
        (&["bad"], "bad aging value"),
        (&["0"], "bad aging value"),
        (&["-1"], "bad aging value"),
        (&["3601"], "bad aging value"),
        (&["4294967296"], "bad aging value"),
        (&["3600"], "OK"),
        (&["5x"], "OK"),
        (&[], "5"),
    ] {
        assert_eq!(show(neigh_aging(&mut neighbours, args, Millis(0))), reply, "{args:?}");
    }
    for (args, reply) in [
        (&[][..], "1000"),
        (&["0"], "OK"),
        (&["bad"], "bad retrans_time value"),
        (&["4000"], "OK"),
        (&["100000"], "retrans_time value cannot be greater than aging"),
        (&[], "4000"),
    ] {
        assert_eq!(show(neigh_retrans_time(&mut neighbours, args)), reply, "{args:?}");
    }
    assert_eq!(show(neigh_aging(&mut neighbours, &["3"], Millis(0))), "aging value cannot be less than retrans_time");
    let set = |neighbours: &mut Neighbours, args: &[&str]| neigh_set(neighbours, args, Millis(0));
    assert_eq!(set(&mut neighbours, &["br0", "bad", "x"]), Err(CommandError::NeighbourAddress));
    assert_eq!(set(&mut neighbours, &["br0", "1.1.2.92", "x"]), Err(CommandError::NeighbourMac));
    assert_eq!(set(&mut neighbours, &["br0", "1.1.2.92", "f8:bc:12:44:34:b6"]), Ok(()));
    let name = "a_bridge_name_that_is_longer_than_sixteen";
    assert_eq!(set(&mut neighbours, &[name, "1.1.2.95", "f8:bc:12:44:34:b6"]), Ok(()));
    assert_eq!(
        crate::neighbours_to_text(&neighbours.rows(Millis(0))),
        "\
IP                                            MAC                 Bridge
==========================================================================
1.1.2.95                                      f8:bc:12:44:34:b6   a_bridge_name_t
1.1.2.92                                      f8:bc:12:44:34:b6   br0
"
    );
}
