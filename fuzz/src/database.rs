//! A small database for the targets that feed servers.

use serde_json::{Value, json};
use std::sync::LazyLock;

/// Few tables, but references of every kind, an index and a row limit.
pub static SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    json!({"name": "T", "version": "1.0.0", "tables": {
        "root": {"isRoot": true, "maxRows": 4, "columns": {
            "n": {"type": {"key": {"type": "integer", "minInteger": 0, "maxInteger": 100}}},
            "kids": {"type": {"key": {"type": "uuid", "refTable": "kid"}, "min": 0, "max": "unlimited"}},
            "weak": {"type": {"key": {"type": "uuid", "refTable": "kid", "refType": "weak"}, "min": 0, "max": 2}},
            "map": {"type": {"key": "string", "value": "real", "min": 0, "max": "unlimited"}},
            "gone": {"type": "boolean", "ephemeral": true}}},
        "kid": {"indexes": [["name"]], "columns": {"name": {"type": "string", "mutable": false}}}}})
});
