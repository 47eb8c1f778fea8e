//! Kernel devices: one that does not exist yet, and one that is deleted.

use crate::lab::{Lab, named};
use ovsdb::Datum;
use std::process::Command;

/// A pair of devices in this namespace, gone when dropped.
struct Veth {
    name: String,
}

impl Veth {
    fn name(what: &str) -> String {
        format!("vs{what}{}", std::process::id())
    }

    fn add(name: &str) -> Self {
        let peer = format!("{name}p");
        assert!(ip(&["link", "add", name, "type", "veth", "peer", "name", &peer]), "ip link add {name}");
        let veth = Self { name: name.to_owned() };
        assert!(ip(&["link", "set", name, "up"]) && ip(&["link", "set", &peer, "up"]));
        veth
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        ip(&["link", "del", &self.name]);
    }
}

fn ip(args: &[&str]) -> bool {
    Command::new("ip").args(args).status().is_ok_and(|s| s.success())
}

/// Returns true if devices can be created here. In CI, a failure is an error.
fn can_make_devices() -> bool {
    let can = rustix::process::geteuid().is_root() && ip(&["-V"]);
    if !can {
        assert!(std::env::var_os("CI").is_none(), "tests with kernel devices need root and ip(8)");
        println!("skipped: tests with kernel devices need root and ip(8)");
    }
    can
}

#[test]
fn a_device_created_later_is_opened() {
    if !can_make_devices() {
        return;
    }
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    let name = Veth::name("l");
    lab.add_port("br0", &name, "", &[]);
    assert_eq!(lab.ofport(&name), -1);
    assert_eq!(lab.error(&name), format!("could not open network device {name} (No such device)"));
    let works = |db: &ovsdb_client::Replica, name: &str| {
        named(db, "Interface", name).is_some_and(|r| r.integer("ofport") > 0 && r.string("link_state") == "up")
    };
    let veth = Veth::add(&name);
    lab.wait("the device to be opened", |db| works(db, &name));
    let row = lab.row("Interface", &name);
    assert_eq!(row.string_opt("error"), None);
    assert_eq!(row.map_get("status", "driver_name"), Some("veth"));
    assert!(row.integer("ifindex") > 0);
    // The local port follows the MTU of a device, also one set by mtu_request.
    assert!(ip(&["link", "set", &name, "mtu", "1400"]));
    lab.wait("the bridge to follow", |db| named(db, "Interface", "br0").is_some_and(|r| r.integer("mtu") == 1400));
    lab.set("Interface", &name, &[("mtu_request", Datum::scalar(1300))]);
    assert_eq!(lab.row("Interface", &name).integer("mtu"), 1300);
    drop(veth);
    let gone = format!("could not open network device {name} (No such device)");
    lab.wait("the device to go", |db| {
        named(db, "Interface", &name).is_some_and(|r| r.integer("ofport") == -1 && r.string("error") == gone)
    });
    let _veth = Veth::add(&name);
    lab.wait("the device to be opened again", |db| works(db, &name));
}
