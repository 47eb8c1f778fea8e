//! Schemas turned into Rust modules of [typed](crate::typed) tables and columns.
//!
//! `cargo run -p ovsdb-client --example tables -- SCHEMA` prints the module of a file; a program with a schema of its
//! own keeps the module in its tree with a test that compares it with the result of [`module`] for the schema, as
//! `tests/generated.rs` does here.
//!
//! Names are those of the schema in Rust's style: the column `other_config` of `Open_vSwitch` is
//! `open_vswitch::OTHER_CONFIG`, and the table itself `OpenVSwitch`; a column with listed strings, `Bridge`'s
//! `fail_mode`, has an `enum bridge::FailMode`. A name that is reserved by Rust or the module gets a `_` or `Value`
//! at its end.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ovsdb::{AtomType, BaseType, ColumnSchema, ColumnType, DatabaseSchema, TableSchema};

/// Why a schema has no module.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{first} and {second} are both {name} in Rust")]
pub struct NameClash {
    first: String,
    second: String,
    name: String,
}

/// Longest line.
const WIDTH: usize = 118;
/// Words that are no names in Rust, as far as schemas could have them.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do", "dyn", "else",
    "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod",
    "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static", "struct", "super", "trait", "true",
    "try", "type", "typeof", "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];
/// Types that mean something else in a module.
const TAKEN: &[&str] = &["Map", "Option", "Ref", "Result", "Self", "Set", "String", "Uuid"];

/// The module of a schema, as the text of a Rust file that uses [`crate::tables!`].
///
/// # Errors
///
/// When two names of the schema are one in Rust.
pub fn module(schema: &DatabaseSchema) -> Result<String, NameClash> {
    let version = if schema.version.is_empty() { "0.0.0" } else { &schema.version };
    let mut out = format!(
        "//! Tables and columns of the database {}, version {version}.\n//!\n\
         //! Made of its schema by `cargo run -p ovsdb-client --example tables`.\n\n\
         ovsdb_client::tables! {{\n    database \"{}\", version \"{version}\";\n",
        schema.name, schema.name
    );
    let mut modules = Names::default();
    let mut types = Names::default();
    for table in schema.tables() {
        let (module, name) = (module_name(&table.name), type_name(&table.name));
        modules.take(&module, &table.name)?;
        types.take(&name, &table.name)?;
        write_table(&mut out, &module, &name, table)?;
    }
    out.push_str("}\n");
    Ok(out)
}

fn write_table(out: &mut String, module: &str, name: &str, table: &TableSchema) -> Result<(), NameClash> {
    let mut enumerations = Names::default();
    let mut columns = Names::default();
    let mut listed = String::new();
    let mut body = String::new();
    for (_, column) in table.own_columns() {
        let constant = constant_name(&column.name);
        columns.take(&constant, &format!("{}.{}", table.name, column.name))?;
        for (base, kind) in enumerations_of(column) {
            enumerations.take(&kind, &format!("{}.{}", table.name, column.name))?;
            write_enumeration(&mut listed, &kind, base)?;
        }
        let kind = rust_type(column);
        let flags = match (column.mutable, column.ephemeral) {
            (true, false) => "",
            (true, true) => " ephemeral",
            (false, false) => " immutable",
            (false, true) => " immutable ephemeral",
        };
        _ = writeln!(body, "        {constant}: {kind} = {:?}{flags};", column.name);
    }
    let listed = if listed.is_empty() { String::new() } else { format!("\n{listed}    ") };
    _ = write!(out, "\n    table {module}::{name} = {:?} [{listed}] {{\n{body}    }}\n", table.name);
    Ok(())
}

fn write_enumeration(out: &mut String, kind: &str, base: &BaseType) -> Result<(), NameClash> {
    let mut names = Names::default();
    let mut variants = Vec::new();
    for text in base.allowed.iter().flat_map(|allowed| allowed.keys()).filter_map(|atom| atom.as_str()) {
        let variant = variant_name(text);
        names.take(&variant, &format!("{kind} \"{text}\""))?;
        variants.push(format!("{variant} = {text:?}"));
    }
    let line = format!("        {kind} {{ {} }}", variants.join(", "));
    if line.len() <= WIDTH {
        _ = writeln!(out, "{line}");
        return Ok(());
    }
    _ = writeln!(out, "        {kind} {{");
    let mut line = String::new();
    for variant in variants {
        if !line.is_empty() && 12 + line.len() + variant.len() + 2 > WIDTH {
            _ = writeln!(out, "            {}", line.trim_end());
            line.clear();
        }
        _ = write!(line, "{variant}, ");
    }
    _ = writeln!(out, "            {}\n        }}", line.trim_end());
    Ok(())
}

/// The lists of strings of a column, each with the name of its `enum`: of its elements or keys, and of a map's values.
fn enumerations_of(column: &ColumnSchema) -> Vec<(&BaseType, String)> {
    let is_listed = |base: &&BaseType| base.kind == AtomType::String && base.allowed.is_some();
    let kind = &column.kind;
    let key_name = if kind.is_map() { format!("{}_key", column.name) } else { column.name.clone() };
    let key = Some(&kind.key).filter(is_listed).map(|base| (base, type_name(&key_name)));
    let value = kind.value.as_ref().filter(is_listed);
    let value = value.map(|base| (base, type_name(&format!("{}_value", column.name))));
    key.into_iter().chain(value).collect()
}

fn rust_type(column: &ColumnSchema) -> String {
    let listed = enumerations_of(column);
    let atom = |base: &BaseType| {
        if let Some((_, name)) = listed.iter().find(|(known, _)| std::ptr::eq(*known, base)) {
            return name.clone();
        }
        match (base.kind, base.ref_table()) {
            (AtomType::Uuid, Some(table)) => format!("Ref<super::{}>", type_name(table)),
            (AtomType::Uuid, None) => "Uuid".into(),
            (AtomType::Integer, _) => "i64".into(),
            (AtomType::Real, _) => "f64".into(),
            (AtomType::Boolean, _) => "bool".into(),
            (AtomType::String, _) => "String".into(),
        }
    };
    let ColumnType { key, value, min, max } = &column.kind;
    match (value, min, max) {
        (Some(value), ..) => format!("Map<{}, {}>", atom(key), atom(value)),
        (None, 1, 1) => atom(key),
        (None, _, 1) => format!("Option<{}>", atom(key)),
        (None, ..) => format!("Set<{}>", atom(key)),
    }
}

/// Assigned names, with their purpose.
#[derive(Default)]
struct Names(BTreeMap<String, String>);

impl Names {
    fn take(&mut self, name: &str, what: &str) -> Result<(), NameClash> {
        match self.0.insert(name.to_owned(), what.to_owned()) {
            None => Ok(()),
            Some(first) => Err(NameClash { first, second: what.to_owned(), name: name.to_owned() }),
        }
    }
}

fn is_name_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// `Open_vSwitch` as `open_vswitch`.
fn module_name(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    if KEYWORDS.contains(&lower.as_str()) { format!("{lower}_") } else { lower }
}

/// `other_config` as `OTHER_CONFIG`.
fn constant_name(name: &str) -> String {
    let upper = name.to_ascii_uppercase();
    if upper == "COLUMNS" { "COLUMNS_".into() } else { upper }
}

/// `Open_vSwitch` as `OpenVSwitch`, `SSL` as `Ssl`, `fail_mode` as `FailMode`.
fn type_name(name: &str) -> String {
    let camel = camel_case(name);
    if TAKEN.contains(&camel.as_str()) { format!("{camel}Value") } else { camel }
}

/// `native-tagged` as `NativeTagged`; a name that would begin with a digit begins with `V`.
fn variant_name(text: &str) -> String {
    let camel = camel_case(text);
    match camel.chars().next() {
        Some(first) if first.is_ascii_digit() => format!("V{camel}"),
        None => "Unnamed".into(),
        Some(_) if camel == "Self" => "SelfValue".into(),
        Some(_) => camel,
    }
}

fn camel_case(name: &str) -> String {
    let words = name.split(|c: char| !is_name_char(c) || c == '_').filter(|word| !word.is_empty());
    words.fold(String::new(), |mut camel, word| {
        let is_acronym = word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit());
        let (first, rest) = word.split_at(1);
        camel.push_str(&first.to_ascii_uppercase());
        camel.push_str(&if is_acronym { rest.to_ascii_lowercase() } else { rest.to_owned() });
        camel
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn module_of(tables: serde_json::Value) -> Result<String, NameClash> {
        let schema = DatabaseSchema::from_json(&json!({ "name": "T", "version": "1.2.3", "tables": tables })).unwrap();
        module(&schema)
    }

    #[test]
    fn names_are_as_rust_has_them() {
        let types = ["Open_vSwitch", "SSL", "sFlow", "CT_Zone", "QoS", "DHCP_Options", "set", "fail_mode", "NB_Global"];
        let expected =
            ["OpenVSwitch", "Ssl", "SFlow", "CtZone", "QoS", "DhcpOptions", "SetValue", "FailMode", "NbGlobal"];
        assert_eq!(types.map(type_name), expected);
        let variants = ["native-tagged", "OpenFlow10", "802.1ad", "", "dot1q-tunnel", "<=", "IPv4"];
        assert_eq!(
            variants.map(variant_name),
            ["NativeTagged", "OpenFlow10", "V8021ad", "Unnamed", "Dot1qTunnel", "Unnamed", "IPv4"]
        );
        assert_eq!((module_name("Match"), constant_name("type")), ("match_".into(), "TYPE".into()));
    }

    #[test]
    fn every_kind_of_column() {
        let text = module_of(json!({ "A": { "columns": {
            "one": { "type": "string", "mutable": false },
            "some": { "type": { "key": "real", "min": 0 }, "ephemeral": true },
            "mode": { "type": { "key": { "type": "string", "enum": ["set", ["x", "y"]] }, "min": 0, "max": 2 } },
            "map": { "type": { "key": { "type": "string", "enum": "k" }, "value": { "type": "uuid", "refTable": "A" },
                               "min": 0, "max": "unlimited" } },
            "id": { "type": "uuid" },
            "level": { "type": { "key": { "type": "integer", "enum": ["set", [1, 2]] } } },
        } } }));
        let expected = "    table a::A = \"A\" [
        Mode { X = \"x\", Y = \"y\" }
        MapKey { K = \"k\" }
    ] {
        ONE: String = \"one\" immutable;
        SOME: Option<f64> = \"some\" ephemeral;
        MODE: Set<Mode> = \"mode\";
        MAP: Map<MapKey, Ref<super::A>> = \"map\";
        ID: Uuid = \"id\";
        LEVEL: i64 = \"level\";
    }
}
";
        assert_eq!(text.unwrap().split_once(";\n\n").unwrap().1, expected);
    }

    #[test]
    fn names_that_become_one_are_reported() {
        let column = json!({ "type": "string" });
        let clash = module_of(json!({ "A": { "columns": { "a": column, "A": column } } })).unwrap_err();
        assert_eq!(clash.to_string(), "A.a and A.A are both A in Rust");
        let clash = module_of(json!({ "A_b": { "columns": { "a": column } }, "AB": { "columns": { "a": column } } }));
        assert!(clash.is_ok(), "{clash:?}");
        let listed = json!({ "type": { "key": { "type": "string", "enum": ["set", ["a-b", "a_b"]] } } });
        assert!(module_of(json!({ "A": { "columns": { "a": listed } } })).is_err());
    }
}
