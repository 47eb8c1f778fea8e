//! `ovsdb-tool show-log`: the records of a database file for people, with three levels of detail.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use ovsdb::json::NoSymbols;
use ovsdb::{DatabaseSchema, Datum, TableSchema, text};
use ovsdb_server::file;
use serde_json::Value;

use super::{Context, Outcome, db_arg};

pub(super) fn show_log(context: &Context, args: &[String]) -> Outcome {
    let path = db_arg(args, 0);
    let parsed = file::read(&path).map_err(|error| error.to_string())?;
    let mut names = Names::new();
    let mut schema = None;
    for (at, record) in parsed.records.iter().enumerate() {
        let mut out = format!("record {at}:");
        if at == 0 {
            let read = DatabaseSchema::from_json(record).map_err(|error| error.to_string())?;
            let _ = writeln!(out, " \"{}\" schema, version=\"{}\", cksum=\"{}\"", read.name, read.version, read.cksum);
            schema = Some(read);
            out.push('\n');
        } else {
            out.push_str(&headline(record));
            if context.more > 0 {
                tables(&mut out, record, schema.as_ref(), &mut names, context.more > 1);
                out.push('\n');
            }
        }
        cli::print(&out);
    }
    match parsed.error {
        None => Ok(ExitCode::SUCCESS),
        Some(error) => Err(format!("{}: {}: {error}", error.tag(), path.display())),
    }
}

/// The date and the comment of a record, to the end of the line.
fn headline(record: &Value) -> String {
    let mut line = String::new();
    if let Some(date) = record.get("_date").and_then(Value::as_i64) {
        // Dates of very old files are in seconds.
        let ms = if date < 1 << 32 { date.saturating_mul(1000) } else { date };
        line.push(' ');
        line.push_str(&format_date(ms));
    }
    if let Some(comment) = record.get("_comment").and_then(Value::as_str) {
        let _ = write!(line, " \"{comment}\"");
    }
    line.push('\n');
    line
}

/// The names that rows have had so far, by table and UUID.
type Names = HashMap<(String, String), Option<String>>;

fn tables(out: &mut String, record: &Value, schema: Option<&DatabaseSchema>, names: &mut Names, with_columns: bool) {
    let is_diff = record.get("_is_diff").and_then(Value::as_bool).unwrap_or(false);
    for (table, rows) in record.as_object().into_iter().flatten().filter(|(name, _)| !name.starts_with('_')) {
        let schema = schema.and_then(|schema| schema.table(table));
        for (uuid, row) in rows.as_object().into_iter().flatten() {
            let key = (table.clone(), uuid.clone());
            let known = names.get(&key).cloned();
            let new_name = row.get("name").and_then(Value::as_str).map(str::to_owned);
            // A row inserted without a name is shown by its UUID from then on.
            let shown = |name: &Option<String>| match name {
                Some(name) => Value::from(name.as_str()).to_string(),
                None => short(uuid).to_owned(),
            };
            let label = label(uuid, known.as_ref().or(Some(&new_name).filter(|name| name.is_some())).map(shown));
            let _ = match &known {
                None if !row.is_null() => writeln!(out, "  table {table} insert {label}:"),
                _ if is_diff => writeln!(out, "  table {table} {label} diff:"),
                _ => writeln!(out, "  table {table} {label}:"),
            };
            if row.is_null() {
                names.remove(&key);
                out.push_str("    delete row\n");
                continue;
            }
            names.insert(key, new_name.or_else(|| known.flatten()));
            if with_columns {
                columns(out, row, schema);
            }
        }
    }
}

fn short(uuid: &str) -> &str {
    uuid.get(..8).unwrap_or(uuid)
}

fn label(uuid: &str, name: Option<String>) -> String {
    match name {
        Some(name) => format!("row {name} ({})", short(uuid)),
        None => format!("row {}", short(uuid)),
    }
}

fn columns(out: &mut String, row: &Value, schema: Option<&TableSchema>) {
    for (name, value) in row.as_object().into_iter().flatten() {
        let column = schema.and_then(|schema| schema.column(name));
        let shown = column.and_then(|column| {
            // Differences may have more or fewer elements than the column allows.
            let kind = if column.kind.is_composite() { column.kind.unconstrained() } else { column.kind.clone() };
            let datum = Datum::from_json(value, &kind, &mut NoSymbols).ok()?;
            Some(text::format_datum(&datum, &column.kind))
        });
        let _ = writeln!(out, "    {name}={}", shown.unwrap_or_else(|| value.to_string()));
    }
}

/// `YYYY-MM-DD HH:MM:SS.mmm` in UTC.
fn format_date(unix_ms: i64) -> String {
    let (seconds, ms) = (unix_ms.div_euclid(1000), unix_ms.rem_euclid(1000));
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil_date(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02}.{ms:03}", second % 60)
}

/// The Gregorian date of a number of days after 1970-01-01, counted in eras of 400 years that begin in March.
fn civil_date(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::format_date;

    #[test]
    fn dates_are_gregorian_and_utc() {
        assert_eq!(format_date(0), "1970-01-01 00:00:00.000");
        assert_eq!(format_date(951_826_554_321), "2000-02-29 12:15:54.321");
        assert_eq!(format_date(1_795_227_541_952), "2026-11-21 02:19:01.952");
    }
}
