//! Writes JSON directly to bytes, with the same text as [`Datum::to_json`] and similar functions by way of a tree:
//! text for many clients, and for the disk, is only written and never read here.

use std::io::Write as _;

use serde_json::Value;

use crate::atom::Atom;
use crate::datum::Datum;
use crate::types::ColumnType;
use crate::uuid::Uuid;

/// Appends a string in quotes.
pub fn string(out: &mut Vec<u8>, text: &str) {
    let plain = |byte: &u8| *byte >= b' ' && *byte != b'"' && *byte != b'\\';
    if text.as_bytes().iter().all(plain) {
        out.push(b'"');
        out.extend_from_slice(text.as_bytes());
        out.push(b'"');
    } else {
        value(out, &Value::from(text));
    }
}

/// Appends any JSON.
pub fn value(out: &mut Vec<u8>, json: &Value) {
    // Writing to memory cannot fail, and a tree has no keys but strings.
    let _ = serde_json::to_writer(out, json);
}

/// Appends the 36 characters of a UUID, without quotes.
pub fn uuid(out: &mut Vec<u8>, uuid: Uuid) {
    out.extend_from_slice(&uuid.to_text());
}

/// Appends an `<atom>` (RFC 7047 section 5.1).
pub fn atom(out: &mut Vec<u8>, atom: &Atom) {
    match atom {
        Atom::Integer(number) => {
            let _ = write!(out, "{number}");
        }
        Atom::Boolean(true) => out.extend_from_slice(b"true"),
        Atom::Boolean(false) => out.extend_from_slice(b"false"),
        Atom::String(text) => string(out, text),
        Atom::Uuid(id) => {
            out.extend_from_slice(b"[\"uuid\",\"");
            uuid(out, *id);
            out.extend_from_slice(b"\"]");
        }
        Atom::Real(_) => value(out, &atom.to_json()),
    }
}

/// Appends a `<value>` of a column of this type (RFC 7047 section 5.1).
pub fn datum(out: &mut Vec<u8>, datum: &Datum, kind: &ColumnType) {
    if kind.is_map() {
        out.extend_from_slice(b"[\"map\",[");
        list(out, datum.pairs(), |out, (key, value)| {
            out.push(b'[');
            atom(out, key);
            out.push(b',');
            atom(out, value);
            out.push(b']');
        });
        out.extend_from_slice(b"]]");
        return;
    }
    match datum.keys() {
        [only] => atom(out, only),
        keys => {
            out.extend_from_slice(b"[\"set\",[");
            list(out, keys, atom);
            out.extend_from_slice(b"]]");
        }
    }
}

/// Appends items with commas between them.
pub fn list<T>(out: &mut Vec<u8>, items: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut Vec<u8>, T)) {
    for (at, item) in items.into_iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write(out, item);
    }
}

/// A JSON object in the making.
#[derive(Debug)]
pub struct Object<'a> {
    out: &'a mut Vec<u8>,
    empty: bool,
}

impl<'a> Object<'a> {
    /// Begins an object.
    pub fn begin(out: &'a mut Vec<u8>) -> Self {
        out.push(b'{');
        Self { out, empty: true }
    }

    /// Begins a member, whose value the caller appends to the returned buffer.
    pub fn member(&mut self, name: &str) -> &mut Vec<u8> {
        self.name(|out| string(out, name))
    }

    /// The same, of a member that is named by a UUID.
    pub fn row(&mut self, id: Uuid) -> &mut Vec<u8> {
        self.name(|out| {
            out.push(b'"');
            uuid(out, id);
            out.push(b'"');
        })
    }

    fn name(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> &mut Vec<u8> {
        if !std::mem::take(&mut self.empty) {
            self.out.push(b',');
        }
        write(self.out);
        self.out.push(b':');
        self.out
    }

    /// Whether there is no member yet.
    pub fn is_empty(&self) -> bool {
        self.empty
    }

    /// Ends it.
    pub fn end(self) {
        self.out.push(b'}');
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).expect("JSON is UTF-8")
    }

    fn kind_of(json: &Value) -> ColumnType {
        ColumnType::from_json(json).expect("a type")
    }

    fn atoms() -> impl Strategy<Value = Atom> {
        prop_oneof![
            any::<i64>().prop_map(Atom::Integer),
            any::<f64>().prop_map(Atom::Real),
            any::<bool>().prop_map(Atom::Boolean),
            prop_oneof![".*", "[ -~]*", "[\0-\x7f]*"].prop_map(|text| Atom::String(text.into())),
            any::<[u8; 16]>().prop_map(|bytes| Atom::Uuid(Uuid::from_bytes(bytes))),
        ]
    }

    tally::proptest! {
        #[test]
        fn direct_text_equals_that_of_json_trees(key in atoms(), keys in proptest::collection::vec(any::<i64>(), 0..4), values in proptest::collection::vec(atoms(), 4)) {
            prop_assert_eq!(text(|out| atom(out, &key)), key.to_json().to_string());
            let kind = kind_of(&serde_json::json!({"key": "integer", "min": 0, "max": "unlimited"}));
            let set = Datum::set(keys.clone());
            prop_assert_eq!(text(|out| datum(out, &set, &kind)), set.to_json(&kind).to_string());
            let kind = kind_of(&serde_json::json!({"key": "integer", "value": "string", "min": 0, "max": "unlimited"}));
            let map = Datum::map(keys.into_iter().zip(values));
            prop_assert_eq!(text(|out| datum(out, &map, &kind)), map.to_json(&kind).to_string());
        }
    }

    #[test]
    fn objects_have_commas_between_members() {
        let made = text(|out| {
            let mut object = Object::begin(out);
            assert!(object.is_empty());
            object.member("a\"").push(b'1');
            object.row(Uuid::ZERO).extend_from_slice(b"{}");
            object.end();
        });
        assert_eq!(made, r#"{"a\"":1,"00000000-0000-0000-0000-000000000000":{}}"#);
    }
}
