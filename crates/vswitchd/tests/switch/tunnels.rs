//! Flows of tunnels follow routes, addresses and neighbours.

use crate::commands::call;
use crate::lab::{DEADLINE, Lab};
use ovsdb::Datum;
use std::sync::Arc;
use std::time::Duration;
use unixctl::Commands;

/// A bridge `br0` with the address 203.0.113.1 and the port `p0`, and a bridge `br1` with the port `v1` and the tunnel `t1` to
/// 203.0.113.2.
fn tunnel() -> (Lab, Commands) {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    lab.add_port("br0", "p0", "dummy", &[]);
    lab.add_bridge("br1");
    lab.add_port("br1", "v1", "dummy", &[]);
    let remote = Datum::map([("remote_ip", "203.0.113.2")]);
    lab.add_port("br1", "t1", "vxlan", &[("options", remote)]);
    let commands = Commands::new("");
    vswitchd::commands::register(&commands, &Arc::clone(&lab.switch.as_ref().unwrap().with));
    run(&lab, &commands, "netdev-dummy/ip4addr", &["br0", "203.0.113.1/24"]);
    (lab, commands)
}

fn run(lab: &Lab, commands: &Commands, method: &str, args: &[&str]) -> String {
    lab.runtime.block_on(call(commands, method, args))
}

/// Has a port receive a UDP packet and waits for its flow.
fn receive(lab: &Lab, commands: &Commands, port: &str, (mac, ip): (&str, &str)) {
    let flow = format!(
        "in_port(1),eth(src=50:54:00:00:00:05,dst={mac}),eth_type(0x0800),\
         ipv4(src=203.0.113.2,dst={ip},proto=17,tos=0,ttl=64,frag=no),udp(src=1000,dst=4789)"
    );
    run(lab, commands, "netdev-dummy/receive", &[port, &flow]);
    let has_flow = async {
        while !call(commands, "dpctl/dump-flows", &["dummy@ovs-dummy"]).await.contains("0x0800") {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let waited = lab.runtime.block_on(async { tokio::time::timeout(DEADLINE, has_flow).await });
    assert!(waited.is_ok(), "the packet has no flow");
}

/// The datapath's flows once they follow all changes.
fn flows(lab: &Lab, commands: &Commands) -> String {
    run(lab, commands, "revalidator/wait", &[]);
    run(lab, commands, "dpctl/dump-flows", &["dummy@ovs-dummy"])
}

#[test]
fn flows_follow_neighbours_that_no_packet_has_asked_for() {
    let (lab, commands) = tunnel();
    let learn = ["br0", "203.0.113.2", "f8:bc:12:44:34:b6"];
    run(&lab, &commands, "tnl/neigh/set", &learn);
    receive(&lab, &commands, "v1", ("50:54:00:00:00:07", "10.0.0.2"));
    let pushes = || flows(&lab, &commands).contains("tnl_push");
    assert!(pushes());
    run(&lab, &commands, "tnl/neigh/flush", &[]);
    assert!(!pushes());
    run(&lab, &commands, "tnl/neigh/set", &learn);
    assert!(pushes());
}

#[test]
fn flows_to_the_own_port_follow_its_addresses() {
    let (lab, commands) = tunnel();
    let own = lab.row("Interface", "br0").string("mac_in_use").to_owned();
    receive(&lab, &commands, "p0", (&own, "203.0.113.9"));
    assert!(!flows(&lab, &commands).contains("tnl_pop"));
    run(&lab, &commands, "netdev-dummy/ip4addr", &["br0", "203.0.113.9/24"]);
    assert!(flows(&lab, &commands).contains("tnl_pop"));
}
