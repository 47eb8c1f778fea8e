//! Monitors: a replica fed by notifications alone equals the database as seen through the monitor's condition.

use ovsdb::Uuid;
use ovsdb::jsonrpc::Message;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::replica::{Replica, Rows};
use super::twin::{Op, transactions};
use super::{Bench, schema};
use crate::Output;

const COLUMNS: [&str; 3] = ["number", "map", "kids"];

/// The database's rows of `root` whose number is at least `least`.
fn held(bench: &Bench, least: i64) -> Rows {
    let kinds = schema();
    let table = kinds.table("root").unwrap();
    let column = |name: &str| table.column_index(name).unwrap();
    let database = bench.core.database("T").unwrap();
    let rows = database.rows(kinds.table_index("root").unwrap());
    let rows = rows.filter(|row| row.column(column("number")).unwrap().as_integer().unwrap() >= least);
    let values = |row: &crate::Row| {
        COLUMNS.iter().map(|name| ((*name).to_owned(), row.column(column(name)).unwrap().clone())).collect()
    };
    rows.map(|row| (("root".to_owned(), row.uuid().to_string()), values(row))).collect()
}

/// Feeds notifications to the replicas of the monitors m1 (all rows), m2 (`number >= least`) and m3 (the same).
fn feed(outputs: &[Output], replicas: &mut [Replica; 3], last: &mut Value) {
    for output in outputs {
        let Output::Send(_, Message::Notification { method, params }) = output else { continue };
        match method.as_str() {
            "update" => replicas[0].update_v1(&params[1]),
            "update2" => replicas[1].update_v2(&params[1]),
            "update3" => {
                *last = params[1].clone();
                replicas[2].update_v2(&params[2]);
            }
            other => panic!("unknown notification {other}"),
        }
    }
}

tally::proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    #[test]
    fn replicas_follow_the_database(
        transactions in transactions(),
        least in 0i64..100,
        other in 0i64..100,
        away in 0usize..12,
    ) {
        let mut bench = Bench::new();
        let (writer, reader) = (bench.connect(), bench.connect());
        let at_least = |least: i64| json!([["number", ">=", least]]);
        let request = json!({"root": [{"columns": COLUMNS, "where": at_least(least)}]});
        bench.call(reader, "monitor", json!(["T", "m1", {"root": {"columns": COLUMNS}}]));
        bench.call(reader, "monitor_cond", json!(["T", "m2", request]));
        bench.call(reader, "monitor_cond_since", json!(["T", "m3", request, Uuid::ZERO.to_string()]));
        let fresh = || Replica::new(&[("root", &COLUMNS)]);
        let mut replicas = [fresh(), fresh(), fresh()];
        let mut last = json!(Uuid::ZERO.to_string());
        let mut conditions = [least, least];
        let mut reader = Some(reader);
        for (at, ops) in transactions.iter().enumerate() {
            if at == away {
                // The client disconnects for one transaction and requests the differences when it reconnects.
                bench.core.disconnect(reader.take().unwrap());
            }
            let operations: Vec<Value> = ops.iter().map(Op::to_json).collect();
            let params: Vec<Value> = std::iter::once(json!("T")).chain(operations).collect();
            let outputs = bench.outputs(writer, "transact", Value::from(params));
            feed(&outputs, &mut replicas, &mut last);
            if reader.is_none() {
                let id = bench.connect();
                let request = json!({"root": [{"columns": COLUMNS, "where": at_least(conditions[1])}]});
                let result = bench.call(id, "monitor_cond_since", json!(["T", "m3", request, last]));
                if result[0] == false {
                    replicas[2] = fresh();
                }
                last = result[1].clone();
                replicas[2].update_v2(&result[2]);
                let result = bench.call(id, "monitor", json!(["T", "m1", {"root": {"columns": COLUMNS}}]));
                replicas[0] = fresh();
                replicas[0].update_v1(&result);
                let request = json!({"root": [{"columns": COLUMNS, "where": at_least(conditions[0])}]});
                replicas[1] = fresh();
                replicas[1].update_v2(&bench.call(id, "monitor_cond", json!(["T", "m2", request])));
                reader = Some(id);
            }
            if at == 3 {
                let change = json!({"root": [{"where": at_least(other)}]});
                let outputs = bench.outputs(reader.unwrap(), "monitor_cond_change", json!(["m2", "m2", change]));
                feed(&outputs, &mut replicas, &mut last);
                conditions[0] = other;
            }
            prop_assert_eq!(&replicas[0].rows, &held(&bench, i64::MIN));
            prop_assert_eq!(&replicas[1].rows, &held(&bench, conditions[0]));
            prop_assert_eq!(&replicas[2].rows, &held(&bench, conditions[1]));
        }
    }
}

#[test]
fn a_client_receives_its_own_changes_before_the_reply() {
    let mut bench = Bench::new();
    let session = bench.connect();
    bench.call(session, "monitor", json!(["T", null, {"root": {}}]));
    let outputs = bench.outputs(session, "transact", json!(["T", {"op": "insert", "table": "root", "row": {}}]));
    let kinds: Vec<&str> = outputs
        .iter()
        .map(|output| match output {
            Output::Send(_, message) => message.kind(),
            Output::Write(..) | Output::Close(..) => "other",
        })
        .collect();
    assert_eq!(kinds, ["notification", "reply"]);
}

#[test]
fn the_history_is_bounded() {
    let mut bench = Bench::new();
    let session = bench.connect();
    let touch = |bench: &mut Bench, number: i64| {
        let row = json!({"number": number});
        bench.transact(session, &[json!({"op": "update", "table": "root", "where": [], "row": row})]);
        bench.core.database("T").unwrap().last_transaction().to_string()
    };
    bench.transact(session, &[json!({"op": "insert", "table": "root", "row": {}})]);
    let first = touch(&mut bench, 1);
    let since = |bench: &mut Bench, id: &str, number: i64| {
        bench.call(session, "monitor_cond_since", json!(["T", number, {"root": {}}, id]))
    };
    touch(&mut bench, 2);
    let result = since(&mut bench, &first, 1);
    assert_eq!(result[0], true);
    assert!(result[2]["root"].as_object().unwrap().values().all(|update| update["modify"]["number"] == 2));
    for number in 0..101 {
        touch(&mut bench, number % 100);
    }
    let result = since(&mut bench, &first, 2);
    assert_eq!(result[0], false);
    let current = bench.core.database("T").unwrap().last_transaction().to_string();
    assert_eq!(since(&mut bench, &current, 3), json!([true, current, {}]));
}
