//! The typed view reads and writes the same as access by names.

use ovsdb::{DatabaseSchema, Datum, Uuid};
use serde_json::json;

use crate::schemas::vswitch::{Bridge, Port, bridge, controller, interface, port, sflow};
use crate::typed::{Enumeration, Ref, Row, Table};
use crate::{ChangeKind, Idl, Misfit, Replica, Wanted, columns};

fn uuid(number: u32) -> Uuid {
    Uuid::parse(&format!("00000000-0000-4000-8000-{number:012}")).unwrap()
}

fn wanted() -> Wanted {
    Wanted::from(&columns! {
        bridge { NAME, PORTS, FAIL_MODE, PROTOCOLS, OTHER_CONFIG, FLOW_TABLES, STP_ENABLE }
        port { NAME, TAG, TRUNKS, VLAN_MODE }
    })
}

fn updates() -> serde_json::Value {
    let id = |number| ["uuid".to_owned(), uuid(number).to_string()];
    json!({
        "Bridge": { uuid(1).to_string(): { "initial": {
            "name": "br0", "fail_mode": "secure", "ports": ["set", [id(3), id(2)]],
            "protocols": ["set", ["OpenFlow13", "OpenFlow99"]],
            "other_config": ["map", [["hwaddr", "x"], ["a", "b"]]],
            "flow_tables": ["map", [[7, id(9)]]] } } },
        "Port": { uuid(2).to_string(): { "initial": { "name": "p", "trunks": ["set", [3, 1]], "tag": 5 } } },
    })
}

fn replica() -> Replica {
    let mut replica = Replica::new(&wanted());
    assert_eq!(replica.bind(&DatabaseSchema::parse(ovsdb::schemas::OPEN_VSWITCH).unwrap()), []);
    replica.apply_updates2(&updates()).unwrap();
    replica
}

#[test]
fn columns_read_as_their_types() {
    let db = replica();
    let bridge: Row<'_, Bridge> = db.all(Bridge).next().unwrap();
    assert_eq!(bridge.reference(), Ref::new(uuid(1)));
    assert_eq!((bridge.get(bridge::NAME), bridge.get(bridge::STP_ENABLE)), ("br0", false));
    assert_eq!(bridge.get(bridge::FAIL_MODE), Some(Ok(bridge::FailMode::Secure)));
    let protocols: Vec<_> = bridge.get(bridge::PROTOCOLS).into_iter().collect();
    assert_eq!(protocols, [Ok(bridge::Protocols::OpenFlow13), Err("OpenFlow99")]);
    let config = bridge.get(bridge::OTHER_CONFIG);
    assert_eq!((config.get("hwaddr"), config.get("none"), config.len()), (Some("x"), None, 2));
    assert_eq!(config.into_iter().collect::<Vec<_>>(), [("a", "b"), ("hwaddr", "x")]);
    assert_eq!(bridge.get(bridge::FLOW_TABLES).get(7), Some(Ref::new(uuid(9))));
    let ports = bridge.get(bridge::PORTS);
    assert_eq!((ports.len(), ports.first(), ports.is_empty()), (2, Some(Ref::new(uuid(2))), false));
    assert!(ports.contains(Ref::new(uuid(3))) && !ports.contains(Ref::new(uuid(4))));
    // One of the two exists.
    let rows: Vec<Row<'_, Port>> = ports.into_iter().filter_map(|port| db.find(port)).collect();
    let [row] = rows.try_into().unwrap();
    assert_eq!((row.get(port::TAG), row.get(port::VLAN_MODE)), (Some(5), None));
    assert_eq!(row.get(port::TRUNKS).iter().collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn columns_of_another_type_are_left_out_and_reported() {
    let old = json!({ "name": "Open_vSwitch", "version": "1.0.0", "tables": {
        "Bridge": { "columns": { "name": { "type": { "key": "string", "min": 0, "max": 2 } } } },
        "Port": { "columns": { "tag": { "type": "string" }, "trunks": { "type": "integer" }, "name": { "type": "string" } } },
    } });
    let schema = DatabaseSchema::from_json(&old).unwrap();
    let mut db = Replica::new(&Wanted::from(
        &columns! { bridge { NAME } port { TAG, TRUNKS, NAME, VLAN_MODE } sflow { AGENT } },
    ));
    let misfits = db.bind(&schema);
    let reported: Vec<String> = misfits.iter().map(ToString::to_string).collect();
    assert_eq!(
        reported,
        [
            "Bridge.name is a set of up to 2 strings in the server's schema and not a string, and is left out",
            "Port.tag is a string in the server's schema and not a integer, and is left out",
            "Port.vlan_mode is missing in the server's schema (database needs upgrade?)",
            "sFlow is missing in the server's schema (database needs upgrade?)",
        ]
    );
    assert!(matches!(misfits[0], Misfit::Type { .. }));
    assert_eq!(
        db.monitor_requests(),
        json!({ "Bridge": [{ "columns": [] }], "Port": [{ "columns": ["name", "trunks"] }] })
    );
    db.apply_updates2(&json!({ "Port": { uuid(2).to_string(): { "initial": { "name": "p", "trunks": 4 } } } }))
        .unwrap();
    let row = db.all(Port).next().unwrap();
    assert_eq!((row.get(port::TAG), row.get(port::VLAN_MODE), row.get(port::NAME)), (None, None, "p"));
    // A set column may have the value of a scalar.
    assert_eq!(row.get(port::TRUNKS).first(), Some(4));
}

#[test]
fn typed_changes_equal_those_by_names() {
    let mut idl = Idl::new("unix:/nowhere", &std::sync::Arc::default(), "Open_vSwitch", wanted()).unwrap();
    *idl.session.replica_mut() = replica();
    let (bridge, port) = (Ref::new(uuid(1)), Ref::new(uuid(2)));
    let mut typed = idl.transaction();
    typed.set(port, port::TAG, Some(7));
    typed.clear(bridge, bridge::FAIL_MODE);
    typed.set(port, port::VLAN_MODE, Some(port::VlanMode::NativeTagged));
    typed.set(port, port::TRUNKS, [4, 2]);
    typed.set(bridge, bridge::STP_ENABLE, true);
    typed.add(bridge, bridge::OTHER_CONFIG, [("k", "v")]);
    typed.remove(bridge, bridge::OTHER_CONFIG, ["a"]);
    typed.remove(bridge, bridge::PORTS, [port]);
    assert_eq!(typed.read(port, port::NAME), "p");
    assert_eq!(typed.get(port, port::TAG), Some(7));
    assert_eq!(typed.get(bridge, bridge::OTHER_CONFIG).get("k"), Some("v"));
    let new = typed.insert(Port).set(port::NAME, "new").set(port::TAG, Some(1)).reference();
    assert!(typed.contains(new) && typed.all(Port).contains(&new));
    typed.delete(new);
    assert!(!typed.contains(new));
    let typed = typed.into_changes();

    let mut named = idl.transaction();
    let (b, p) = (bridge.uuid(), port.uuid());
    named.set_datum("Port", p, "tag", 7);
    named.set_datum("Bridge", b, "fail_mode", Datum::empty());
    named.set_datum("Port", p, "vlan_mode", "native-tagged");
    named.set_datum("Port", p, "trunks", Datum::set([2, 4]));
    named.set_datum("Bridge", b, "stp_enable", true);
    named.add_elements("Bridge", b, "other_config", &Datum::map([("k", "v")]));
    named.remove_elements("Bridge", b, "other_config", &Datum::scalar("a"));
    named.remove_elements("Bridge", b, "ports", &Datum::scalar(p));
    named.verify_column("Port", p, "name");
    let named = named.into_changes();
    assert_eq!(typed.operations(idl.replica(), None), named.operations(idl.replica(), None));
    assert_eq!(typed.operations(idl.replica(), None).unwrap().len(), 4);
}

#[test]
fn changes_of_rows_know_their_table() {
    let mut db = replica();
    db.take_changes();
    let update = json!({ "Port": { uuid(2).to_string(): { "modify": { "tag": 6, "name": "q" } } } });
    db.apply_updates2(&update).unwrap();
    let [change] = db.take_changes().try_into().unwrap();
    assert_eq!((change.row::<Port>(), change.row::<Bridge>()), (Some(Ref::new(uuid(2))), None));
    assert!(change.touches(port::TAG.any()) && !change.touches(port::TRUNKS.any()));
    assert!(!change.touches(interface::NAME.any()));
    let ChangeKind::Modified(old) = change.kind else { panic!("{change:?}") };
    assert_eq!(
        (old.value(port::TAG), old.value(port::NAME), old.value(port::VLAN_MODE)),
        (Some(Some(5)), Some("p"), None)
    );
}

#[test]
fn listed_strings_are_distinguished() {
    for role in controller::Role::ALL {
        assert_eq!(controller::Role::from_name(role.name()), Ok(*role));
    }
    assert_eq!(controller::Role::from_name("boss"), Err("boss"));
    assert_eq!([Ok(controller::Role::Master), Err("boss")].map(Enumeration::name_of), ["master", "boss"]);
    assert!(controller::ROLE.is_ephemeral() && !controller::TARGET.is_ephemeral());
    assert_eq!((Bridge::NAME, format!("{:?}", bridge::PORTS)), ("Bridge", "Bridge.ports".to_owned()));
}

#[test]
#[should_panic(expected = "Bridge.controller is read and not replicated")]
fn columns_that_are_not_replicated_are_not_read() {
    let db = replica();
    db.all(Bridge).next().unwrap().get(bridge::CONTROLLER);
}
