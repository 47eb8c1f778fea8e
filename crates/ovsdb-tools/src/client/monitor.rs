//! The continuous commands: monitor, monitor-cond, monitor-cond-since, and lock, steal, unlock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cli::table::{Cell, CellValue, Format, Printer, Style, Table};
use ovsdb::jsonrpc::Message;
use ovsdb::{ColumnSchema, DatabaseSchema, Datum, NoSymbols, TableSchema, Uuid};
use ovsdb_client::Error;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, watch};
use unixctl::Commands;

use super::background::Background;
use super::query::{self, DatumCell};
use super::{Call, Done, Options, print_line, print_text, text};

/// The kinds of monitors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Method {
    Plain,
    Cond,
    CondSince,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Method::Plain => "monitor",
            Method::Cond => "monitor_cond",
            Method::CondSince => "monitor_cond_since",
        }
    }
}

/// A monitored table and the columns shown of it, in the order in which they were named.
struct Watched<'a> {
    table: &'a TableSchema,
    columns: Vec<&'a ColumnSchema>,
}

/// The monitored tables and columns.
struct Watch<'a> {
    tables: BTreeMap<&'a str, Watched<'a>>,
    requests: Map<String, Value>,
    /// Whether each printed table has its name.
    captions: bool,
}

pub(super) async fn monitor(mut call: Call, method: Method) -> Done {
    let schema = query::schema(&mut call).await?;
    let mut args = std::mem::take(&mut call.args).into_iter();
    let mut next = || args.next().ok_or_else(|| "the name of a table is missing".to_owned());
    let mut word = next()?;
    let mut since = Uuid::ZERO;
    if method == Method::CondSince
        && let Some(uuid) = Uuid::parse(&word)
    {
        since = uuid;
        word = next()?;
    }
    let mut conditions = None;
    if method != Method::Plain {
        conditions = Some(query::parse_json(&word)?);
        word = next()?;
    }
    let groups: Vec<String> = args.collect();
    let watch = watch(&call, &schema, &word, &groups, conditions.as_ref())?;
    let mut params = vec![call.database.as_str().into(), Value::Null, Value::Object(watch.requests.clone())];
    if method == Method::CondSince {
        params.push(since.to_string().into());
    }
    if call.options.change_aware.unwrap_or(true) {
        call.set_change_aware().await?;
    }
    let contents = call.client.call(method.name(), params).await.map_err(text)?;
    let contents = contents.map_err(|error| ovsdb::Error::from_json(&error).to_string())?;
    let mut show = Show::new(&call.options, &watch);
    show.contents(method, &contents)?;
    let (sender, mut conditions) = mpsc::unbounded_channel();
    let (blocker, mut blocked) = watch::channel(false);
    let background = Background::begin(call.options.daemon.take(), |commands| control(commands, sender, blocker))?;
    loop {
        let is_blocked = *blocked.borrow_and_update();
        let message = tokio::select! {
            message = call.client.receive(), if !is_blocked => message.map_err(lost)?,
            Some((table, condition)) = conditions.recv() => {
                let change = json!({ table: [{ "where": condition }] });
                let params = vec![Value::Null, Value::Null, change];
                // The server may refuse the condition, which leaves the monitor as it was.
                let _ = call.client.call("monitor_cond_change", params).await.map_err(lost)?;
                continue;
            }
            Ok(()) = blocked.changed() => continue,
            () = background.ended() => return Ok(()),
        };
        let Message::Notification { method, params } = message else { continue };
        match (method.as_str(), params.as_slice()) {
            ("monitor_canceled", [Value::Null]) => {
                return Err(format!("{}: {} database was removed", call.client.name(), call.database));
            }
            ("update", [Value::Null, updates]) => show.tables(updates, Shape::Rows, false)?,
            ("update2", [Value::Null, updates]) => show.tables(updates, Shape::Differences, false)?,
            ("update3", [Value::Null, last, updates]) => {
                show.heading(&format!("last_id: {}", last.as_str().unwrap_or_default()));
                show.tables(updates, Shape::Differences, false)?;
            }
            _ => {}
        }
    }
}

/// Registers the control commands of a monitor in the background. `conditions` gets new conditions of tables, and
/// `blocker` whether updates wait to be printed.
fn control(commands: &Commands, conditions: mpsc::UnboundedSender<(String, Value)>, blocker: watch::Sender<bool>) {
    commands.register("ovsdb-client/cond_change", "TABLE COND", 2..=2, move |args| {
        let [table, condition] = args else { return Err("TABLE and COND expected".to_owned()) };
        // The server refuses a text, which is no condition.
        let condition =
            ovsdb::json_text::parse(condition.as_bytes()).unwrap_or_else(|error| Value::from(error.to_string()));
        // The channel has no reader any more when the program ends.
        let _ = conditions.send((table.clone(), condition));
        Ok("condition changed".to_owned())
    });
    let blocker = Arc::new(blocker);
    for (name, wanted, redundant) in
        [("ovsdb-client/block", true, "already blocking"), ("ovsdb-client/unblock", false, "already unblocked")]
    {
        let blocker = Arc::clone(&blocker);
        commands.register(name, "", 0..=0, move |_| {
            let was = blocker.send_replace(wanted);
            Ok(if was == wanted { redundant.to_owned() } else { String::new() })
        });
    }
}

/// The error text of a lost connection.
fn lost(error: Error) -> String {
    match error {
        Error::Connection { remote, problem } => format!("{remote}: receive failed ({problem})"),
        other => text(other),
    }
}

/// Parses the monitored tables and columns.
fn watch<'a>(
    call: &Call,
    schema: &'a DatabaseSchema,
    name: &str,
    groups: &[String],
    conditions: Option<&Value>,
) -> Result<Watch<'a>, String> {
    let all = name == "ALL" && schema.table(name).is_none();
    let tables: Vec<&TableSchema> = if all {
        schema.tables().iter().collect()
    } else {
        let found = schema.table(name);
        let missing = || format!("{}: {} does not have a table named \"{name}\"", call.client.name(), schema.name);
        vec![found.ok_or_else(missing)?]
    };
    let mut watch = Watch { tables: BTreeMap::new(), requests: Map::new(), captions: tables.len() > 1 };
    for table in tables {
        let (columns, mut requests) = columns(call, schema, table, groups)?;
        if let Some(conditions) = conditions {
            for request in requests.iter_mut().filter_map(Value::as_object_mut) {
                request.insert("where".into(), conditions.clone());
            }
        }
        watch.requests.insert(table.name.clone(), requests.into());
        watch.tables.insert(&table.name, Watched { table, columns });
    }
    Ok(watch)
}

/// All columns as they are shown: sorted, `_version` last.
fn all_columns(table: &TableSchema) -> Vec<&ColumnSchema> {
    let mut columns = query::sorted_columns(table);
    columns.retain(|column| !query::is_implicit(table, &column.name));
    columns.extend(table.column("_version"));
    columns
}

/// The columns of a table that `groups` name, and a `<monitor-request>` for each group.
fn columns<'a>(
    call: &Call,
    schema: &DatabaseSchema,
    table: &'a TableSchema,
    groups: &[String],
) -> Result<(Vec<&'a ColumnSchema>, Vec<Value>), String> {
    let remote = call.client.name();
    let mut shown: Vec<&ColumnSchema> = Vec::new();
    let mut requests = Vec::new();
    let everything = [String::new()];
    for group in if groups.is_empty() { everything.as_slice() } else { groups } {
        let mut select = Map::new();
        let mut named = Vec::new();
        for word in group.split(',').filter(|word| !word.is_empty()) {
            if let Some(kind @ ("initial" | "insert" | "delete" | "modify")) = word.strip_prefix('!') {
                select.insert(kind.to_owned(), false.into());
                continue;
            }
            let missing = || {
                format!("{remote}: table \"{}\" in {} does not have a column named \"{word}\"", table.name, schema.name)
            };
            named.push(table.column(word).ok_or_else(missing)?);
        }
        if named.is_empty() {
            named = all_columns(table);
        }
        let mut known: BTreeSet<&str> = shown.iter().map(|column| column.name.as_str()).collect();
        if let Some(twice) = named.iter().find(|column| !known.insert(&column.name)) {
            return Err(format!("{remote}: column \"{}\" mentioned multiple times", twice.name));
        }
        let names: Vec<&str> = named.iter().map(|column| column.name.as_str()).collect();
        let mut request = json!({ "columns": names });
        if !select.is_empty() {
            request["select"] = Value::Object(select);
        }
        requests.push(request);
        shown.extend(named);
    }
    Ok((shown, requests))
}

/// The format of updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Old and new rows (RFC 7047).
    Rows,
    /// Rows and differences (`update2`).
    Differences,
}

/// Prints changes.
struct Show<'a> {
    style: Style,
    timestamp: bool,
    watch: &'a Watch<'a>,
    printer: Printer,
    /// Whether anything was printed yet.
    printed: bool,
}

impl<'a> Show<'a> {
    fn new(options: &Options, watch: &'a Watch<'a>) -> Self {
        let (style, timestamp) = (options.style, options.timestamp);
        Self { style, timestamp, watch, printer: Printer::default(), printed: false }
    }

    /// Prints the answer to a monitor request.
    fn contents(&mut self, method: Method, contents: &Value) -> Done {
        match method {
            Method::Plain => self.tables(contents, Shape::Rows, true),
            Method::Cond => self.tables(contents, Shape::Differences, true),
            Method::CondSince => {
                let Some([found, last, updates]) = contents.as_array().map(Vec::as_slice) else {
                    return Err("monitor_cond_since reply is not an array of three".into());
                };
                self.heading(&format!("found: {found}, last_id: {}", last.as_str().unwrap_or_default()));
                self.tables(updates, Shape::Differences, true)
            }
        }
    }

    /// Prints a heading for the following tables, after an empty line.
    fn heading(&mut self, line: &str) {
        if self.printed {
            print_line("");
        }
        print_line(line);
        self.printer = Printer::default();
        self.printed = true;
    }

    fn tables(&mut self, updates: &Value, shape: Shape, initial: bool) -> Done {
        let updates = updates.as_object().ok_or("<table-updates> is not object")?;
        for (name, watched) in &self.watch.tables {
            let Some(rows) = updates.get(*name) else { continue };
            let rows = rows.as_object().ok_or("<table-update> is not object")?;
            let mut printed = Table::new(
                ["row", "action"].into_iter().chain(watched.columns.iter().map(|column| column.name.as_str())),
            );
            if self.watch.captions {
                printed = printed.caption(watched.table.name.as_str());
            }
            if self.timestamp {
                let now = jiff::Timestamp::now();
                printed = printed.timestamp(vlog::pattern::date(now, "%Y-%m-%d %H:%M:%S.###", true));
            }
            let mut sorted: Vec<_> = rows.iter().collect();
            sorted.sort_by(|a, b| a.0.cmp(b.0));
            for (uuid, update) in sorted {
                for (shown, action, row) in actions(update, shape, initial)? {
                    let uuid = if shown { uuid.as_str() } else { "" };
                    printed.push(cells(watched, self.style.format, uuid, action, row)?);
                }
            }
            if !printed.is_empty() {
                print_text(&self.printer.render(&printed, &self.style));
                self.printed = true;
            }
        }
        Ok(())
    }
}

/// The lines of a row's update: whether its UUID is shown, the action, and the columns.
fn actions(update: &Value, shape: Shape, initial: bool) -> Result<Vec<(bool, &'static str, &Value)>, String> {
    let member = |name: &str| update.get(name);
    let lines = match shape {
        Shape::Rows => match (member("old"), member("new")) {
            (Some(old), Some(new)) => vec![(true, "old", old), (false, "new", new)],
            (Some(old), None) => vec![(true, "delete", old)],
            (None, Some(new)) => vec![(true, if initial { "initial" } else { "insert" }, new)],
            (None, None) => Vec::new(),
        },
        Shape::Differences => ["initial", "insert", "modify", "delete"]
            .into_iter()
            .filter_map(|action| Some((true, action, member(action)?)))
            .collect(),
    };
    if lines.is_empty() { Err(format!("row update without a row: {update}")) } else { Ok(lines) }
}

/// A cell without a value, which JSON tables distinguish from an empty text.
struct Blank;

impl CellValue for Blank {
    fn to_text(&self) -> String {
        String::new()
    }

    fn to_bare(&self) -> String {
        String::new()
    }

    fn to_json(&self) -> Value {
        Value::Null
    }
}

fn cells(watched: &Watched<'_>, format: Format, uuid: &str, action: &str, row: &Value) -> Result<Vec<Cell>, String> {
    let mut cells = vec![Cell::text(uuid), Cell::text(action)];
    for column in &watched.columns {
        cells.push(match row.get(&column.name) {
            Some(json) => {
                let datum = Datum::from_json(json, &column.kind.unconstrained(), &mut NoSymbols);
                let datum = datum.map_err(|error| error.to_string())?;
                Cell::value(DatumCell { datum, kind: column.kind.clone() })
            }
            None if format == Format::Json => Cell::value(Blank),
            None => Cell::text(""),
        });
    }
    Ok(cells)
}

/// `lock`, `steal` or `unlock`: sends the request, then prints the server's notifications about locks. In the
/// background, control commands of these names send further requests.
pub(super) async fn lock(mut call: Call, method: &str) -> Done {
    let name = call.arg(0).to_owned();
    let answer = call.client.call(method, vec![name.into()]).await.map_err(text)?;
    // The reply to "unlock" has no useful contents.
    if method != "unlock" {
        match answer {
            Ok(result) => call.print_json(&result),
            Err(error) => return Err(format!("{method} request failed: {}", cli::json::compact(&error))),
        }
    }
    let (sender, mut requests) = mpsc::unbounded_channel();
    let background = Background::begin(call.options.daemon.take(), |commands| {
        for method in ["lock", "steal", "unlock"] {
            let sender = sender.clone();
            commands.register(method, "LOCK", 1..=1, move |args| {
                // The channel has no reader any more when the program ends.
                let _ = sender.send((method, args.first().cloned().unwrap_or_default()));
                Ok(String::new())
            });
        }
    })?;
    loop {
        tokio::select! {
            message = call.client.receive() => {
                if let Message::Notification { method, params } = message.map_err(lost)? {
                    print_line(&method);
                    call.print_json(&params.into());
                }
            }
            Some((method, name)) = requests.recv() => {
                match call.client.call(method, vec![name.into()]).await.map_err(text)? {
                    Ok(result) => call.print_json(&result),
                    Err(error) => {
                        let error = cli::json::compact(&error);
                        tracing::warn!(target: "ovsdb_client", "{method} request failed: {error}");
                    }
                }
            }
            () = background.ended() => return Ok(()),
        }
    }
}
