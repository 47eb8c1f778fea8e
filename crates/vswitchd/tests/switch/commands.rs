//! Control commands, and the work of the control thread while they run.
#![expect(clippy::await_holding_lock, reason = "the lock is what makes passes wait, on other threads")]

use crate::lab::{DEADLINE, Lab};
use ovsdb::Datum;
use serde_json::Value;
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

/// Calls a command and returns its text.
pub(crate) async fn call(commands: &Commands, method: &str, args: &[&str]) -> String {
    let args: Vec<Value> = args.iter().map(|arg| Value::from(*arg)).collect();
    let answer = commands.run(method, &args, &mut OutputFormat::Text).await;
    answer.unwrap_or_else(|error| panic!("{method}: {error}")).as_str().unwrap_or_default().to_owned()
}

/// Has a port receive its first frame, and waits until the database has counted it: the statistics of all interfaces were
/// written then.
pub(crate) fn receive_first_frame(lab: &mut Lab, port: &str) {
    let devices = Arc::clone(&lab.switch.as_ref().unwrap().with);
    let commands = Commands::new("");
    vswitchd::commands::register(&commands, &devices);
    let flow = "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x1234)";
    lab.runtime.block_on(call(&commands, "netdev-dummy/receive", &[port, flow]));
    lab.wait_for("the frame", |devices| {
        let device = devices.dummies.find(port).unwrap();
        netdev::Netdev::stats(&*device).rx_packets == Some(1)
    });
    lab.runtime.block_on(call(&commands, "time/warp", &["11000", "1000"]));
    lab.wait("statistics", |db| {
        let row = crate::lab::named(db, "Interface", port).unwrap();
        let count = row.datum("statistics").and_then(|all| all.get(&"rx_packets".into()));
        count.and_then(ovsdb::Atom::as_integer) == Some(1)
    });
}

#[test]
fn statistics_of_a_new_interface_are_there_at_once_and_follow_the_clock() {
    let mut lab = Lab::new();
    let devices = Arc::clone(&lab.switch.as_ref().unwrap().with);
    devices.stop_time();
    lab.add_bridge("br0");
    lab.add_port("br0", "p1", "dummy", &[]);
    let row = lab.row("Interface", "p1");
    let count = row.datum("statistics").and_then(|all| all.get(&"rx_packets".into()));
    assert_eq!(count.and_then(ovsdb::Atom::as_integer), Some(0));
    receive_first_frame(&mut lab, "p1");
}

#[test]
fn commands_that_wait_for_passes_do_not_delay_others() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    for port in ["p1", "p2"] {
        lab.add_port("br0", port, "dummy", &[]);
    }
    let devices = Arc::clone(&lab.switch.as_ref().unwrap().with);
    let bridge = lab.bridge("br0");
    let commands = Commands::new("");
    vswitchd::commands::register(&commands, &devices);
    let flow = "in_port(1),eth(src=50:54:00:00:00:05,dst=50:54:00:00:00:07),eth_type(0x1234)";
    let waiting = [
        ("revalidator/wait", &[][..]),
        ("revalidator/purge", &[]),
        ("revalidator/check", &[]),
        ("revalidator/pause", &[]),
        ("upcall/disable-megaflows", &[]),
        ("bridge/dump-flows", &["br0"]),
        ("dpctl/del-flows", &["dummy@ovs-dummy"]),
    ];
    for (method, args) in waiting {
        lab.runtime.block_on(async {
            for resume in ["revalidator/resume", "upcall/enable-megaflows"] {
                call(&commands, resume, &[]).await;
            }
            // The first packet makes a flow that learns an address, the second one is counted by it.
            call(&commands, "netdev-dummy/receive", &["p1", flow]).await;
            call(&commands, "revalidator/wait", &[]).await;
            // While the test holds this lock, no pass can push the count of the second packet.
            let held = bridge.macs().write();
            call(&commands, "netdev-dummy/receive", &["p1", flow]).await;
            let mut pass = std::pin::pin!(call(&commands, method, args));
            let ended_early = tokio::select! {
                biased;
                _ = &mut pass => true,
                bridges = call(&commands, "ofproto/list", &[]) => {
                    assert_eq!(bridges, "br0\n", "{method}");
                    false
                }
            };
            drop(held);
            if !ended_early {
                let ended = tokio::time::timeout(DEADLINE, pass).await;
                assert!(ended.is_ok(), "{method} does not end");
            }
        });
    }
}

#[test]
fn revalidator_threads_are_as_many_as_set() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    let devices = Arc::clone(&lab.switch.as_ref().unwrap().with);
    let commands = Commands::new("");
    vswitchd::commands::register(&commands, &devices);
    let root = lab.root();
    let default = devices.datapath("dummy").unwrap().dpif.n_handlers() / 4 + 1;
    for (config, threads) in [
        (vec![], default),
        (vec![("n-revalidator-threads", "5")], 5),
        (vec![("n-revalidator-threads", "2")], 2),
        (vec![], default),
    ] {
        lab.change(|txn| txn.set_datum("Open_vSwitch", root, "other_config", Datum::map(config.clone())));
        let shown = lab.runtime.block_on(call(&commands, "upcall/show", &[]));
        assert_eq!(shown.matches("(keys ").count(), threads, "{shown}");
    }
}
