//! The programs' JSON output: members sorted by name, compact or, with `--pretty`, indented.
//!
//! The indented style closes every bracket on the line of the last element (`"b"]]}`), which no general purpose
//! printer supports; scripts compare it, so it must not change.

use serde_json::Value;

/// One line without spaces, members sorted by name.
pub fn compact(value: &Value) -> String {
    let mut out = String::new();
    write(value, None, &mut out);
    out
}

/// Two spaces a level, one element a line, closing brackets behind the last element; members sorted by name.
pub fn pretty(value: &Value) -> String {
    let mut out = String::new();
    write(value, Some(0), &mut out);
    out
}

/// `indent` is the nesting level in pretty text and `None` in compact text.
fn write(value: &Value, indent: Option<usize>, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push('[');
            let inner = indent.map(|level| level + 1);
            for (i, item) in items.iter().enumerate() {
                separate(i, inner, out);
                write(item, inner, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            let inner = indent.map(|level| level + 1);
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by(|a, b| a.0.cmp(b.0));
            for (i, (name, member)) in sorted.into_iter().enumerate() {
                separate(i, inner, out);
                out.push_str(&Value::String(name.clone()).to_string());
                out.push_str(if indent.is_some() { ": " } else { ":" });
                write(member, inner, out);
            }
            out.push('}');
        }
        scalar => out.push_str(&scalar.to_string()),
    }
}

fn separate(index: usize, level: Option<usize>, out: &mut String) {
    if index > 0 {
        out.push(',');
    }
    if let Some(level) = level {
        out.push('\n');
        out.extend(std::iter::repeat_n("  ", level));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn brackets_close_behind_the_last_element() {
        let value = json!({"headings": ["name"], "data": [["b1", ["map", []]]], "empty": {}});
        assert_eq!(compact(&value), r#"{"data":[["b1",["map",[]]]],"empty":{},"headings":["name"]}"#);
        assert_eq!(
            pretty(&value),
            "{\n  \"data\": [\n    [\n      \"b1\",\n      [\n        \"map\",\n        []]]],\n  \"empty\": {},\n  \
             \"headings\": [\n    \"name\"]}"
        );
    }
}
