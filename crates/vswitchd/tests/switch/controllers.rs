//! Controllers: primary ones and service listeners, the status in their rows, and the ownership of flows.

use crate::lab::{Lab, flows};
use openflow::message::{Message, encode};
use openflow::switch::Hello;
use openflow::{Version, versions::Versions};
use ovsdb::{Datum, Uuid};
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};

fn add_controller(lab: &mut Lab, target: &str, columns: &[(&str, Datum)]) -> Uuid {
    let bridge = lab.uuid("Bridge", "br0");
    lab.change(|txn| {
        let controller = txn.insert_row("Controller");
        txn.set_datum("Controller", controller, "target", Datum::scalar(target));
        for (column, value) in columns {
            txn.set_datum("Controller", controller, column, value.clone());
        }
        txn.add_elements("Bridge", bridge, "controller", &Datum::scalar(controller));
    });
    lab.idl.rows("Controller").find(|r| r.string("target") == target).unwrap().uuid()
}

fn del_controller(lab: &mut Lab, controller: Uuid) {
    let bridge = lab.uuid("Bridge", "br0");
    lab.change(|txn| txn.remove_elements("Bridge", bridge, "controller", &Datum::scalar(controller)));
}

fn has_flows(lab: &Lab) -> bool {
    !flows(&lab.bridge("br0")).is_empty()
}

fn read_message(stream: &mut UnixStream) -> Vec<u8> {
    let mut message = vec![0; 8];
    stream.read_exact(&mut message).unwrap();
    let len = usize::from(u16::from_be_bytes([message[2], message[3]]));
    message.resize(len, 0);
    stream.read_exact(&mut message[8..]).unwrap();
    message
}

/// Waits for the switch's HELLO, and answers it.
fn greet(listener: &UnixListener) -> UnixStream {
    let (mut stream, _) = listener.accept().unwrap();
    read_message(&mut stream);
    let hello = Hello { versions: Versions::of(&[Version::V13]) };
    stream.write_all(&encode(Version::V13, 0, &Message::Hello(hello))).unwrap();
    stream
}

#[test]
fn a_controller_connects_and_is_removed() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    assert!(has_flows(&lab));
    let path = lab.dir.path().join("controller");
    let listener = UnixListener::bind(&path).unwrap();
    let uuid = add_controller(&mut lab, &format!("unix:{}", path.display()), &[]);
    // From now on, flows belong to the controller.
    assert!(!has_flows(&lab));
    let stream = greet(&listener);
    lab.wait("is_connected", |db| {
        db.row("Controller", uuid).is_some_and(|r| r.boolean("is_connected") && r.string("role") == "other")
    });
    let row = lab.idl.row("Controller", uuid).unwrap();
    assert_eq!(row.map_get("status", "state"), Some("ACTIVE"));
    assert!(row.map_get("status", "sec_since_connect").unwrap().parse::<u64>().is_ok());
    assert_eq!(row.map_get("status", "sec_since_disconnect"), None);
    drop((stream, listener));
    std::fs::remove_file(&path).unwrap();
    lab.wait("disconnected", |db| {
        db.row("Controller", uuid).is_some_and(|r| !r.boolean("is_connected") && r.string_opt("role").is_none())
    });
    lab.wait("last_error", |db| {
        let row = db.row("Controller", uuid);
        row.is_some_and(|r| r.map_get("status", "last_error") == Some("No such file or directory"))
    });
    let row = lab.idl.row("Controller", uuid).unwrap();
    assert!(row.map_get("status", "sec_since_disconnect").unwrap().parse::<u64>().unwrap() >= 1);
    del_controller(&mut lab, uuid);
    assert!(has_flows(&lab));
}

#[test]
fn controllers_receive_port_status() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    lab.add_port("br0", "p", "dummy", &[]);
    let path = lab.dir.path().join("controller");
    let listener = UnixListener::bind(&path).unwrap();
    let uuid = add_controller(&mut lab, &format!("unix:{}", path.display()), &[]);
    let mut stream = greet(&listener);
    lab.wait("role", |db| db.row("Controller", uuid).is_some_and(|r| r.string_opt("role").is_some()));
    let device = lab.switch.as_ref().unwrap().with.dummies.find("p").unwrap();
    netdev::Netdev::set_up(&*device, false).unwrap();
    stream.set_read_timeout(Some(crate::lab::DEADLINE)).unwrap();
    loop {
        let message = read_message(&mut stream);
        if let Ok((_, _, Message::PortStatus(status))) = openflow::message::decode(&message) {
            assert_eq!(status.reason, openflow::port::PortReason::Modify);
            assert_eq!(status.desc.name, "p");
            break;
        }
    }
}

#[test]
fn service_controllers_do_not_take_over() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    let path = lab.dir.path().join("br0.service");
    let change = lab.last_change();
    let uuid = add_controller(&mut lab, &format!("punix:{}", path.display()), &[]);
    assert!(has_flows(&lab));
    assert_eq!(lab.last_change(), change);
    assert!(path.exists());
    assert!(lab.idl.row("Controller", uuid).unwrap().is_empty("status"));
    // The type overrides the default for the target.
    let uuid2 = add_controller(&mut lab, "tcp:127.0.0.1:1", &[("type", Datum::scalar("service"))]);
    assert!(has_flows(&lab));
    del_controller(&mut lab, uuid2);
    let columns = [("type", Datum::scalar("primary"))];
    lab.change(|txn| {
        for (column, value) in &columns {
            txn.set_datum("Controller", uuid, column, value.clone());
        }
    });
    assert!(!has_flows(&lab));
    del_controller(&mut lab, uuid);
    assert!(!path.exists());
}

#[test]
fn more_controllers_leave_flows_alone() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    let first = add_controller(&mut lab, "tcp:127.0.0.1:1", &[]);
    let mut fm = openflow::flow_mod::FlowMod::new(openflow::flow_mod::FlowModCommand::Add);
    fm.priority = 7;
    lab.bridge("br0").flow_mod(&fm).unwrap();
    let second = add_controller(&mut lab, "tcp:127.0.0.1:2", &[]);
    lab.set("Bridge", "br0", &[("fail_mode", Datum::scalar("secure"))]);
    assert_eq!(flows(&lab.bridge("br0")).len(), 1);
    del_controller(&mut lab, first);
    assert_eq!(flows(&lab.bridge("br0")).len(), 1);
    del_controller(&mut lab, second);
    assert!(!has_flows(&lab));
}

#[test]
fn an_unusable_target_is_reported() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    let uuid = add_controller(&mut lab, "pssl:0:127.0.0.1", &[]);
    let row = lab.idl.row("Controller", uuid).unwrap();
    assert!(!row.boolean("is_connected"));
    assert!(row.map_get("status", "last_error").unwrap().contains("Protocol not available"));
    assert_eq!(row.map_get("status", "state"), Some("VOID"));
}

#[test]
fn a_listener_with_other_settings_keeps_its_address() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    // A port that is free now.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let uuid = add_controller(&mut lab, &format!("ptcp:{port}:127.0.0.1"), &[]);
    let listens = |_: &vswitchd::devices::Devices| std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    lab.wait_for("the listener", listens);
    lab.change(|txn| txn.set_datum("Controller", uuid, "inactivity_probe", Datum::scalar(9000)));
    lab.wait("no error", |db| db.row("Controller", uuid).is_some_and(|r| r.is_empty("status")));
    lab.wait_for("the listener", listens);
}

#[test]
fn an_address_in_use_is_retried() {
    let mut lab = Lab::new();
    lab.add_bridge("br0");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let uuid = add_controller(&mut lab, &format!("ptcp:{port}:127.0.0.1"), &[]);
    assert!(lab.idl.row("Controller", uuid).unwrap().map_get("status", "last_error").is_some());
    drop(taken);
    lab.wait("no error", |db| db.row("Controller", uuid).is_some_and(|r| r.is_empty("status")));
}

#[test]
fn a_failed_listening_socket_is_retried() {
    use std::os::unix::fs::FileTypeExt;
    let mut lab = Lab::new();
    let path = |lab: &Lab, suffix: &str| lab.dir.path().join(format!("br0.{suffix}"));
    let is_socket = |path: &std::path::Path| std::fs::metadata(path).is_ok_and(|m| m.file_type().is_socket());
    let (management, snooping) = (path(&lab, "mgmt"), path(&lab, "snoop"));
    std::fs::create_dir(&management).unwrap();
    lab.add_bridge("br0");
    assert!(!is_socket(&management) && is_socket(&snooping));
    std::fs::remove_dir(&management).unwrap();
    let bridge = lab.uuid("Bridge", "br0");
    lab.change(|txn| txn.set_datum("Bridge", bridge, "fail_mode", Datum::scalar("secure")));
    assert!(is_socket(&management) && is_socket(&snooping));
}
