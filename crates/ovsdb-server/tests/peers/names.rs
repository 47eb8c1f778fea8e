//! Compares the replies of two servers, which may only differ in the UUIDs that each generates.
//!
//! A UUID of one server stands for the other's at the same position: a pair found at one position must be a pair
//! everywhere. JSON without a defined order (sets, maps, rows of a `select`) is sorted first.

use std::collections::HashMap;

use ovsdb::Uuid;
use serde_json::{Map, Value};

/// Which of our UUIDs is which of theirs.
#[derive(Debug, Default)]
pub(crate) struct Names {
    to_ours: HashMap<String, String>,
    to_theirs: HashMap<String, String>,
    /// How often an error named another one of several rows or columns that were wrong.
    pub(crate) accidents: u64,
    /// Whether many rows are checked for errors, in the order of their random UUIDs: which of them is named
    /// is an accident.
    pub(crate) any_row: bool,
}

impl Names {
    /// A request translated for the other server.
    pub(crate) fn translate(&self, ours: &Value) -> Value {
        map_text(ours, &|text| replace(text, &self.to_theirs))
    }

    /// Returns the differing parts of two replies. Pairs UUIDs that occur for the first time.
    pub(crate) fn compare(&mut self, ours: &Value, theirs: &Value) -> Option<Box<(Value, Value)>> {
        let theirs = map_text(theirs, &|text| replace(text, &self.to_ours));
        let (ours, theirs) = (self.sorted(ours), self.sorted(&theirs));
        if self.unify(&ours, &theirs) { None } else { Some(Box::new((ours, theirs))) }
    }

    fn is_known(&self, uuid: &str) -> bool {
        uuid.starts_with("00000000-0000") || self.to_theirs.contains_key(uuid)
    }

    /// The sort key of a value: its text, without UUIDs that have no partner yet.
    fn key(&self, value: &Value) -> String {
        let hidden = map_text(value, &|text| {
            let mut out = String::new();
            for part in parts(text) {
                out.push_str(match part {
                    Part::Uuid(uuid) if !self.is_known(uuid) => "?",
                    Part::Uuid(text) | Part::Text(text) => text,
                });
            }
            out
        });
        ovsdb::json::canonical(&hidden)
    }

    fn sorted(&self, value: &Value) -> Value {
        match value {
            Value::Array(values) => {
                let mut values: Vec<Value> = values.iter().map(|value| self.sorted(value)).collect();
                let is_tagged = matches!(values.first().and_then(Value::as_str), Some("set" | "map"));
                if let [_, Value::Array(elements)] = values.as_mut_slice()
                    && is_tagged
                {
                    elements.sort_by_cached_key(|element| self.key(element));
                }
                Value::from(values)
            }
            Value::Object(members) => {
                let member = |(name, value): (&String, &Value)| {
                    let mut value = self.sorted(value);
                    if let ("rows", Value::Array(rows)) = (name.as_str(), &mut value) {
                        rows.sort_by_cached_key(|row| self.key(row));
                    }
                    (name.clone(), value)
                };
                Value::Object(members.iter().map(member).collect())
            }
            other => other.clone(),
        }
    }

    fn unify(&mut self, ours: &Value, theirs: &Value) -> bool {
        match (ours, theirs) {
            (Value::String(a), Value::String(b)) => self.unify_text(a, b),
            (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| self.unify(a, b)),
            (Value::Object(a), Value::Object(b)) => a.len() == b.len() && self.unify_members(a, b),
            // Open vSwitch writes 15 digits of a real, of which 17 distinguish it from all others.
            (Value::Number(a), Value::Number(b)) => match (a.as_f64(), b.as_f64()) {
                (Some(x), Some(y)) if a.is_f64() || b.is_f64() => (x - y).abs() <= x.abs() * 1e-14,
                _ => a == b,
            },
            _ => ours == theirs,
        }
    }

    fn unify_members(&mut self, ours: &Map<String, Value>, theirs: &Map<String, Value>) -> bool {
        // Which of several things that are wrong is named is an accident of a hash table.
        let any_row = self.any_row;
        let class_of = |error: &Map<String, Value>| {
            let details = error.get("details")?;
            class_of_error(details).or_else(|| class_of_misfit(details).filter(|_| any_row))
        };
        let class = class_of(ours);
        let is_accident = class.is_some() && class == class_of(theirs);
        for (name, a) in ours.iter().filter(|(name, _)| theirs.contains_key(*name)) {
            let is_same = match (name.as_str(), a, &theirs[name]) {
                ("rows", Value::Array(a), Value::Array(b)) => self.unify_rows(a, b),
                (_, a, b) => self.unify(a, b),
            };
            if is_same {
                continue;
            }
            if !is_accident {
                return false;
            }
            self.accidents += u64::from(name == "details");
        }
        // Rows that are new to both, named by UUIDs.
        let rest = |from: &Map<String, Value>, other: &Map<String, Value>| {
            let mut rest: Vec<(String, String, Value)> = Vec::new();
            for (name, value) in from.iter().filter(|(name, _)| !other.contains_key(*name)) {
                rest.push((self.key(value), name.clone(), value.clone()));
            }
            rest.sort_by(|a, b| a.0.cmp(&b.0));
            rest
        };
        let (rest_of_ours, rest_of_theirs) = (rest(ours, theirs), rest(theirs, ours));
        rest_of_ours
            .iter()
            .zip(&rest_of_theirs)
            .all(|((_, a_name, a), (_, b_name, b))| self.unify_text(a_name, b_name) && self.unify(a, b))
    }

    /// Rows of a `select`, in any order. Earlier parts of the same reply may have named them. Rows that only differ
    /// in UUIDs without a partner cannot be paired here; later references show the pairs.
    fn unify_rows(&mut self, ours: &[Value], theirs: &[Value]) -> bool {
        let keyed = |rows: &[Value]| {
            let row = |row: &Value| {
                let row = self.sorted(&map_text(row, &|text| replace(text, &self.to_ours)));
                (self.key(&row), row)
            };
            let mut rows: Vec<(String, Value)> = rows.iter().map(row).collect();
            rows.sort_by(|a, b| a.0.cmp(&b.0));
            rows
        };
        let (ours, theirs) = (keyed(ours), keyed(theirs));
        let is_one_of_several = |at: usize| ours.iter().filter(|(key, _)| *key == ours[at].0).count() > 1;
        ours.len() == theirs.len()
            && (0..ours.len())
                .all(|at| ours[at].0 == theirs[at].0 && is_one_of_several(at) || self.unify(&ours[at].1, &theirs[at].1))
    }

    fn unify_text(&mut self, ours: &str, theirs: &str) -> bool {
        let (ours, theirs) = (parts(ours), parts(theirs));
        ours.len() == theirs.len()
            && ours.iter().zip(&theirs).all(|pair| match pair {
                (Part::Uuid(a), Part::Uuid(b)) => {
                    a == b || self.to_ours.get(*b).is_some_and(|known| known == a) || self.pair(a, b)
                }
                (Part::Text(a), Part::Text(b)) => a == b,
                _ => false,
            })
    }

    fn pair(&mut self, ours: &str, theirs: &str) -> bool {
        if self.is_known(ours) || self.is_known(theirs) || self.to_ours.contains_key(theirs) {
            return false;
        }
        self.to_ours.insert(theirs.to_owned(), ours.to_owned());
        self.to_theirs.insert(ours.to_owned(), theirs.to_owned());
        true
    }
}

/// The class of an error, if it names one row or column of perhaps several.
fn class_of_error(details: &Value) -> Option<&'static str> {
    let details = details.as_str()?;
    const CLASSES: [(&str, &[&str]); 7] = [
        ("column", &["mentioned more than once", "No column "]),
        ("index", &["Transaction causes multiple rows in "]),
        ("strong reference", &["references nonexistent row", "cannot delete ", " refers to undefined table "]),
        ("weak reference", &["Weak reference column ", "weak reference(s) to deleted (or never-existing) rows"]),
        ("rows", &["transaction causes "]),
        // Of several rows with a failing mutation, one is named.
        (
            "value",
            &["is not one of the allowed values", "is not in the valid range", "allowed value", "allowed length"],
        ),
        ("value", &["Result of ", "Attempted to store ", "Division by zero"]),
    ];
    CLASSES.into_iter().find(|(_, parts)| parts.iter().any(|part| details.contains(part))).map(|(class, _)| class)
}

/// The same for a value that does not fit its column.
fn class_of_misfit(details: &Value) -> Option<&'static str> {
    let details = details.as_str()?;
    let is_misfit =
        details.starts_with("expected ") || details.contains(" members but ") || details.contains(" member but ");
    is_misfit.then_some("value")
}

/// A piece of text, cut at the UUIDs in it.
enum Part<'a> {
    Uuid(&'a str),
    Text(&'a str),
}

fn parts(text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at < text.len() {
        match text.get(at..at + 36).filter(|uuid| Uuid::parse(uuid).is_some()) {
            Some(uuid) => {
                if start < at {
                    parts.push(Part::Text(&text[start..at]));
                }
                parts.push(Part::Uuid(uuid));
                at += 36;
                start = at;
            }
            None => at += 1,
        }
    }
    if start < text.len() {
        parts.push(Part::Text(&text[start..]));
    }
    parts
}

fn replace(text: &str, names: &HashMap<String, String>) -> String {
    let part = |part: Part<'_>| match part {
        Part::Uuid(uuid) => names.get(uuid).cloned().unwrap_or_else(|| uuid.to_owned()),
        Part::Text(text) => text.to_owned(),
    };
    parts(text).into_iter().map(part).collect()
}

/// Returns the JSON with every string, including member names, mapped by `change`.
pub(crate) fn map_text(value: &Value, change: &impl Fn(&str) -> String) -> Value {
    match value {
        Value::String(text) => Value::from(change(text)),
        Value::Array(values) => values.iter().map(|value| map_text(value, change)).collect(),
        Value::Object(members) => {
            Value::Object(members.iter().map(|(name, value)| (change(name), map_text(value, change))).collect())
        }
        other => other.clone(),
    }
}
