//! Random transactions, and random monitors that watch them, on both servers: every answer and every update must be the
//! same.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::generate::Generator;
use crate::pair::Pair;

const SCHEMA: &str = include_str!("../data/all.ovsschema");

/// The session that writes, which monitors everything, and the one that only monitors.
const WRITER: usize = 0;
const WATCHER: usize = 1;

/// Databases, and transactions in each.
const DATABASES: u64 = 40;
const STEPS: usize = 120;

#[derive(Default)]
struct Counts {
    transactions: u64,
    accepted: u64,
    monitors: u64,
    compared: u64,
    accidents: u64,
    several_tables: u64,
    faults: BTreeMap<&'static str, u64>,
}

/// The watcher's monitors: their names and requests.
#[derive(Default)]
struct Watch {
    monitors: Vec<(Value, Value, bool)>,
    serial: u64,
}

async fn transact(pair: &mut Pair, generator: &mut Generator, counts: &mut Counts) {
    let operations = generator.operations();
    let params: Vec<Value> = std::iter::once(json!("A")).chain(operations.clone()).collect();
    let answer = pair.ask(WRITER, "transact", &Value::from(params)).await;
    counts.transactions += 1;
    match answer.iter().find(|message| message.get("method").is_none()) {
        Some(reply) => {
            let results = &reply["result"];
            let failed = |result: &Value| result.is_null() || result.get("error").is_some();
            counts.accepted += u64::from(!results.as_array().is_some_and(|results| results.iter().any(failed)));
            generator.learn(&operations, results);
        }
        // A `wait` without a timeout waits.
        None => {
            let id = json!(pair.last_id());
            pair.notify(WRITER, "cancel", vec![id]).await;
        }
    }
}

fn is_done(answer: &[Value]) -> bool {
    answer.iter().any(|message| message["error"].is_null() && message.get("result").is_some())
}

/// Of several tables with errors in a monitor's requests, Open vSwitch names the first in a hash table of their
/// names. So the requests are sent for each table alone, and must then have equal replies.
async fn ask_for_each_table(pair: &mut Pair, method: &str, params: &Value, counts: &mut Counts) {
    let difference = pair.differences.pop();
    let mut wrong = 0;
    for (table, request) in params[2].as_object().into_iter().flatten() {
        let mut alone = params.clone();
        alone[2] = json!({ table: request });
        if is_done(&pair.ask(WATCHER, method, &alone).await) {
            pair.ask(WATCHER, "monitor_cancel", &json!([params[1]])).await;
        } else {
            wrong += 1;
        }
    }
    if wrong < 2 {
        pair.differences.extend(difference);
    } else {
        counts.several_tables += 1;
    }
}

async fn watch(pair: &mut Pair, generator: &mut Generator, watch: &mut Watch, counts: &mut Counts) {
    counts.monitors += 1;
    let known = watch.monitors.len() as u64;
    match generator.rng.below(10) {
        0..5 if known < 8 => {
            let method = *generator.pick(&["monitor", "monitor_cond", "monitor_cond_since"]);
            let requests = generator.monitor(method != "monitor");
            watch.serial += 1;
            let name = json!(["m", watch.serial]);
            let mut params = json!(["A", name, requests]);
            if method == "monitor_cond_since" {
                params.as_array_mut().unwrap().push(json!("00000000-0000-0000-0000-000000000000"));
            }
            let answer = pair.ask(WATCHER, method, &params).await;
            if is_done(&answer) {
                watch.monitors.push((name, requests, method != "monitor"));
            } else if !pair.differences.is_empty() && pair.differ_in_errors {
                ask_for_each_table(pair, method, &params, counts).await;
            }
        }
        5..8 if known > 0 => {
            let at = generator.rng.below(known) as usize;
            let (name, requests, conditional) = watch.monitors[at].clone();
            if !conditional {
                return;
            }
            let change = generator.condition_change(&requests);
            watch.serial += 1;
            let renamed = if generator.chance(30) { json!(watch.serial) } else { name.clone() };
            let answer = pair.ask(WATCHER, "monitor_cond_change", &json!([name, renamed, change])).await;
            if is_done(&answer) {
                watch.monitors[at].0 = renamed;
            } else {
                // Open vSwitch may have executed a part of a refused request.
                watch.monitors.remove(at);
                pair.ask(WATCHER, "monitor_cancel", &json!([name])).await;
            }
        }
        _ if known > 0 => {
            let at = generator.rng.below(known) as usize;
            let (name, ..) = watch.monitors.remove(at);
            pair.ask(WATCHER, "monitor_cancel", &json!([name])).await;
        }
        _ => {}
    }
}

async fn run(bin: &std::path::Path, seed: u64, counts: &mut Counts) -> Vec<String> {
    let mut pair = Pair::start(bin, SCHEMA, 2).await;
    let mut generator = Generator::new(SCHEMA, seed);
    let mut watched = Watch::default();
    let tables = ["root", "bound", "top", "kid", "needy", "few", "unique"];
    let tables: serde_json::Map<String, Value> =
        tables.into_iter().map(|table| (table.to_owned(), json!({}))).collect();
    let method = if seed.is_multiple_of(2) { "monitor" } else { "monitor_cond" };
    pair.ask(WRITER, method, &json!(["A", null, tables])).await;
    for _ in 0..STEPS {
        transact(&mut pair, &mut generator, counts).await;
        pair.look(WATCHER).await;
        if generator.chance(30) {
            watch(&mut pair, &mut generator, &mut watched, counts).await;
        }
        // Once two databases differ, so does all that follows.
        if !pair.differences.is_empty() || pair.fault_of_peer.is_some() {
            break;
        }
    }
    // The messages of the writer's monitors together give the present contents.
    for table in tables.keys() {
        pair.ask(WRITER, "transact", &json!(["A", {"op": "select", "table": table, "where": []}])).await;
    }
    counts.compared += pair.compared;
    counts.accidents += pair.accidents();
    if let Some(fault) = pair.fault_of_peer {
        *counts.faults.entry(fault).or_default() += 1;
    }
    pair.differences
}

/// The seeds: the default ones, or `FLOWSTONE_SEEDS=FROM..TO`, to look for other differences.
fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("FLOWSTONE_SEEDS") else { return 0..DATABASES };
    let (from, to) = text.split_once("..").expect("FLOWSTONE_SEEDS=FROM..TO");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[tokio::test]
async fn random_transactions_and_monitors_are_answered_as_by_open_vswitch() {
    let Some(bin) = oracle::folder().map(|folder| folder.join("bin")) else { return };
    let mut counts = Counts::default();
    let mut differences = Vec::new();
    for seed in seeds() {
        let found = run(&bin, seed, &mut counts).await;
        differences.extend(found.into_iter().map(|difference| format!("seed {seed}: {difference}")));
    }
    let Counts { transactions, accepted, monitors, compared, accidents, several_tables, faults } = counts;
    tally::report!(
        "{transactions} transactions ({accepted} accepted), {monitors} requests of monitors, {compared} messages, \
         {accidents} errors name another one of several wrong things, {several_tables} one of several tables; \
         faults of Open vSwitch that ended a database: {faults:?}"
    );
    let shown = differences.iter().take(40).map(String::as_str).collect::<Vec<_>>().join("\n");
    assert!(differences.is_empty(), "{} differences\n{shown}", differences.len());
    let enough = transactions > 3000 && accepted > 1000 && monitors > 1000;
    assert!(enough || std::env::var_os("FLOWSTONE_SEEDS").is_some(), "enough was compared");
}
