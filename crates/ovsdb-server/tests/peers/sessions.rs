//! Sessions apart from transactions: locks, waiting and cancelling, methods with all kinds of parameters, and the
//! conversion of a database in use. Both servers must send the same messages to every session.

use std::path::PathBuf;

use serde_json::{Map, Value, json};

use crate::generate::{Generator, uuid};
use crate::pair::Pair;

const SCHEMA: &str = include_str!("../data/all.ovsschema");

fn bin() -> Option<PathBuf> {
    oracle::folder().map(|folder| folder.join("bin"))
}

#[tokio::test]
async fn locks_change_hands_as_in_open_vswitch() {
    let Some(bin) = bin() else { return };
    let mut pair = Pair::start(&bin, SCHEMA, 3).await;
    let mut generator = Generator::new(SCHEMA, 1);
    for step in 0..400 {
        let session = generator.rng.below(3) as usize;
        let name = *generator.pick(&["a", "b"]);
        let assert = json!(["A", {"op": "assert", "lock": name}, {"op": "insert", "table": "root", "row": {}}]);
        let method = *generator.pick(&["lock", "lock", "steal", "unlock", "unlock", "unlock", "transact"]);
        let answer = match method {
            "transact" => pair.ask(session, method, &assert).await,
            _ => pair.ask(session, method, &json!([name])).await,
        };
        if answer[0]["result"]["locked"] == true {
            pair.owners.insert((session, name.to_owned()));
        } else if method == "unlock" {
            pair.owners.remove(&(session, name.to_owned()));
        }
        for other in 0..3 {
            for heard in pair.look(other).await {
                let lock = (other, heard["params"][0].as_str().unwrap_or_default().to_owned());
                match heard["method"].as_str() {
                    Some("locked") => _ = pair.owners.insert(lock),
                    _ => _ = pair.owners.remove(&lock),
                }
            }
        }
        if !pair.differences.is_empty() {
            println!("at step {step}");
            break;
        }
    }
    tally::report!("400 steps, {} messages", pair.compared);
    pair.assert_same("locks");
}

#[tokio::test]
async fn transactions_wait_and_are_canceled_as_in_open_vswitch() {
    let Some(bin) = bin() else { return };
    let mut pair = Pair::start(&bin, SCHEMA, 3).await;
    let mut generator = Generator::new(SCHEMA, 2);
    let mut waiting: Vec<(usize, u64)> = Vec::new();
    for _ in 0..300 {
        let session = 1 + generator.rng.below(2) as usize;
        let number = generator.rng.below(4);
        match generator.rng.below(10) {
            0..3 => {
                let until = *generator.pick(&["==", "!="]);
                let insert = json!({"op": "insert", "table": "root", "row": {"i": number as i64}});
                let wait = json!({"op": "wait", "table": "few", "where": [["n", "==", number]], "columns": ["n"],
                                  "until": until, "rows": [{"n": number}]});
                let operations =
                    if generator.chance(50) { json!(["A", wait, insert]) } else { json!(["A", insert, wait]) };
                pair.ask(session, "transact", &operations).await;
                waiting.push((session, pair.last_id()));
            }
            3..6 => {
                let insert = json!({"op": "insert", "table": "few", "row": {"n": number}});
                pair.ask(0, "transact", &json!(["A", insert])).await;
            }
            6..9 => {
                let delete = json!({"op": "delete", "table": "few", "where": [["n", "==", number]]});
                pair.ask(0, "transact", &json!(["A", delete])).await;
            }
            _ if !waiting.is_empty() => {
                // Perhaps of one that is done already, or of another session's.
                let (owner, id) = *generator.pick(&waiting);
                let canceler = if generator.chance(80) { owner } else { session };
                pair.notify(canceler, "cancel", vec![json!(id)]).await;
            }
            _ => _ = pair.notify(session, "cancel", vec![]).await,
        }
        for session in 0..3 {
            pair.look(session).await;
        }
    }
    tally::report!("300 steps, {} messages", pair.compared);
    pair.assert_same("waiting");
}

#[tokio::test]
async fn methods_take_and_refuse_parameters_as_in_open_vswitch() {
    let Some(bin) = bin() else { return };
    let mut pair = Pair::start(&bin, SCHEMA, 1).await;
    let mut generator = Generator::new(SCHEMA, 3);
    let zero = "00000000-0000-0000-0000-000000000000";
    let sound = [
        ("echo", json!(["a", {"b": [1, null]}])),
        ("list_dbs", json!([])),
        ("get_schema", json!(["A"])),
        ("get_schema", json!(["_Server"])),
        ("get_server_id", json!([])),
        ("transact", json!(["A", {"op": "comment", "comment": "c"}])),
        ("transact", json!(["_Server", {"op": "select", "table": "Database", "where": []}])),
        ("monitor", json!(["A", "m", {"few": {"columns": ["n"], "select": {"initial": true}}}])),
        ("monitor_cond", json!(["A", "m", {"few": {"columns": ["n"], "where": [["n", "<", 3]]}}])),
        ("monitor_cond_since", json!(["A", "m", {"few": [{"columns": ["n"], "where": [true]}]}, zero])),
        ("monitor_cond_since", json!(["A", "m", {"few": [{"columns": ["n"]}]}, uuid(1)])),
        ("monitor_cond_change", json!(["m", "m", {"few": [{"where": [["n", "!=", 1]]}]}])),
        ("monitor_cancel", json!(["m"])),
        ("lock", json!(["l"])),
        ("steal", json!(["l"])),
        ("unlock", json!(["l"])),
        ("set_db_change_aware", json!([true])),
        ("none", json!([1])),
        ("Transact", json!(["A"])),
    ];
    for _ in 0..1200 {
        let (method, mut params) = generator.pick(&sound).clone();
        if generator.chance(70) {
            let members = params.as_array_mut().expect("parameters are an array");
            match generator.rng.below(5) {
                // Debian's server crashes on a monitor of nothing.
                0 if !members.is_empty() && !method.starts_with("monitor") => _ = members.pop(),
                1 => members.push(json!(1)),
                _ if !members.is_empty() => {
                    let at = generator.rng.below(members.len() as u64) as usize;
                    generator.corrupt(&mut members[at]);
                }
                _ => {}
            }
        }
        let answer = pair.ask(0, method, &params).await;
        if answer.is_empty() {
            let id = json!(pair.last_id());
            pair.notify(0, "cancel", vec![id]).await;
        }
        if answer.contains(&json!(["closed"])) {
            break;
        }
    }
    tally::report!("1200 requests, {} messages", pair.compared);
    pair.assert_same("methods");
}

/// A schema with something changed, which may be no schema any more.
fn changed(generator: &mut Generator, schema: &Value) -> Value {
    let mut changed = schema.clone();
    // One change at a time: of two that are wrong it is an accident which one is named.
    let tables = changed["tables"].as_object_mut().expect("there are tables");
    let names: Vec<String> = tables.keys().cloned().collect();
    let name = generator.pick(&names).clone();
    let table = &mut tables[&name];
    let Some(columns) = table["columns"].as_object().map(Map::len) else { return changed };
    let column_names: Vec<String> = table["columns"].as_object().into_iter().flat_map(Map::keys).cloned().collect();
    let column = generator.pick(&column_names).clone();
    let types = [
        json!("integer"),
        json!("real"),
        json!("string"),
        json!({"key": "integer", "min": 0}),
        json!({"key": "integer", "min": 0, "max": "unlimited"}),
        json!({"key": {"type": "integer", "minInteger": 0, "maxInteger": 3}, "min": 0, "max": "unlimited"}),
        json!({"key": "string", "min": 0, "max": 2}),
        json!({"key": {"type": "string", "minLength": 2}}),
        json!({"key": {"type": "string", "enum": ["set", ["a", "b"]]}}),
        json!({"key": "string", "value": "integer", "min": 0, "max": "unlimited"}),
        json!({"key": {"type": "uuid", "refTable": "kid"}, "min": 0, "max": "unlimited"}),
        json!({"key": {"type": "uuid", "refTable": "top", "refType": "weak"}, "min": 0, "max": "unlimited"}),
    ];
    let other = generator.pick(&types).clone();
    match generator.rng.below(10) {
        0 if columns > 1 => _ = table["columns"].as_object_mut().unwrap().shift_remove(&column),
        1 => _ = tables.shift_remove(&name),
        2 => table["columns"][&column]["type"] = other,
        3 => table["columns"]["extra"] = json!({ "type": other }),
        4 => _ = tables.insert("more".to_owned(), json!({"isRoot": true, "columns": {"x": {"type": other}}})),
        5 => table["maxRows"] = json!(1 + generator.rng.below(9)),
        6 => table["indexes"] = json!([[column]]),
        7 => table["isRoot"] = json!(generator.chance(60)),
        8 => table["columns"][&column]["mutable"] = json!(false),
        _ => generator.corrupt(table),
    }
    changed
}

#[tokio::test]
async fn databases_are_converted_as_by_open_vswitch() {
    let Some(bin) = bin() else { return };
    let (mut converted, mut compared) = (0, 0);
    let mut differences = Vec::new();
    for seed in 0..8 {
        let mut pair = Pair::start(&bin, SCHEMA, 2).await;
        pair.any_row_may_be_named();
        let mut generator = Generator::new(SCHEMA, 100 + seed);
        let mut schema: Value = serde_json::from_str(SCHEMA).unwrap();
        for session in 0..2 {
            pair.ask(session, "set_db_change_aware", &json!([true])).await;
        }
        pair.ask(0, "monitor", &json!(["_Server", "s", {"Database": {"columns": ["name", "model", "leader"]}}])).await;
        for _ in 0..25 {
            let monitor = json!(["A", "m", {schema["tables"].as_object().unwrap().keys().next().unwrap(): {}}]);
            pair.ask(1, "monitor_cond", &monitor).await;
            pair.ask(0, "transact", &json!(["A", {"op": "insert", "table": "few", "row": {"n": 1}}])).await;
            for _ in 0..3 {
                let operations = generator.operations();
                let params: Vec<Value> = std::iter::once(json!("A")).chain(operations.clone()).collect();
                let answer = pair.ask(0, "transact", &Value::from(params)).await;
                match answer.iter().find(|message| message.get("method").is_none()) {
                    Some(reply) => generator.learn(&operations, &reply["result"]),
                    None => {
                        let id = json!(pair.last_id());
                        pair.notify(0, "cancel", vec![id]).await;
                    }
                }
            }
            let next = changed(&mut generator, &schema);
            let answer = pair.ask(0, "convert", &json!(["A", next])).await;
            pair.look(1).await;
            if answer.iter().any(|message| message["error"].is_null() && message.get("result").is_some()) {
                schema = next;
                generator.follow(&schema);
                converted += 1;
            }
            pair.ask(0, "get_schema", &json!(["A"])).await;
            for table in schema["tables"].as_object().unwrap().keys() {
                pair.ask(0, "transact", &json!(["A", {"op": "select", "table": table, "where": []}])).await;
            }
            if !pair.differences.is_empty() || pair.fault_of_peer.is_some() {
                break;
            }
        }
        compared += pair.compared;
        differences.append(&mut pair.differences);
    }
    tally::report!("{converted} of 200 conversions accepted, {compared} messages");
    let shown = differences.iter().take(12).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{} differences\n{shown}", differences.len());
}

#[tokio::test]
async fn sessions_not_aware_of_a_conversion_are_closed() {
    let Some(bin) = bin() else { return };
    let mut pair = Pair::start(&bin, SCHEMA, 2).await;
    pair.ask(0, "set_db_change_aware", &json!([true])).await;
    let mut schema: Value = serde_json::from_str(SCHEMA).unwrap();
    schema["tables"]["few"]["columns"]["extra"] = json!({"type": "integer"});
    pair.ask(0, "convert", &json!(["A", schema])).await;
    assert_eq!(pair.look(1).await, [json!(["closed"])]);
    pair.reconnect(1).await;
    pair.ask(1, "get_schema", &json!(["A"])).await;
    pair.assert_same("sessions");
}
