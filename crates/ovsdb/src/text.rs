//! Atoms and data as people write them on command lines and read them in tables: `5`, `"a b"`, `[1, 2]`,
//! `{key=value}`. The grammar is the one of ovs-vsctl(8), "Database Values"; errors are worded as the `ovs-*`
//! programs word them.

use std::fmt::Write as _;

use crate::atom::Atom;
use crate::datum::Datum;
use crate::json::SymbolTable;
use crate::types::{AtomType, BaseType, ColumnType, RefType};
use crate::uuid::Uuid;

/// Maximum number of integers in a range such as `1-4095`.
const RANGE_SIZE_MAX: i64 = 4096;

/// Text that is not the value that was wanted; the message names the offending part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct TextError(pub String);

type Result<T> = std::result::Result<T, TextError>;

fn fail<T>(message: impl Into<String>) -> Result<T> {
    Err(TextError(message.into()))
}

/// A real with 15 significant digits in the shorter of fixed and scientific notation, as C's `%.15g` prints it.
pub fn format_real(number: f64) -> String {
    if number == 0.0 {
        return if number.is_sign_negative() { "-0".into() } else { "0".into() };
    }
    let scientific = format!("{number:.14e}");
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if !(-4..15).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim_zeros(mantissa), exponent.abs());
    }
    let decimals = usize::try_from(14 - exponent).unwrap_or(0);
    trim_zeros(&format!("{number:.decimals$}")).to_owned()
}

fn trim_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

/// Whether a string must be quoted so that it is read back as the same string.
pub fn needs_quotes(text: &str) -> bool {
    let mut bytes = text.bytes();
    let plain = bytes.next().is_some_and(|c| c.is_ascii_alphabetic() || c == b'_')
        && bytes.all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b'.'));
    !plain || text == "true" || text == "false" || Uuid::parse(text).is_some()
}

/// The atom as text; strings are quoted only if they need it.
pub fn format_atom(atom: &Atom) -> String {
    match atom {
        Atom::Integer(number) => number.to_string(),
        Atom::Real(number) => format_real(*number),
        Atom::Boolean(value) => value.to_string(),
        Atom::String(text) if needs_quotes(text) => quote(text),
        Atom::String(text) => text.as_ref().to_owned(),
        Atom::Uuid(uuid) => uuid.to_string(),
    }
}

/// The atom as text without any quotes, as in comma-separated values and in `--bare` output.
pub fn format_atom_bare(atom: &Atom) -> String {
    match atom {
        Atom::String(text) => text.as_ref().to_owned(),
        other => format_atom(other),
    }
}

/// The string as a JSON string.
pub fn quote(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// The datum as text: `[]`, `5`, `[1, 2]`, `{}`, `{a=b, c=d}`.
pub fn format_datum(datum: &Datum, kind: &ColumnType) -> String {
    let (open, close) = if kind.is_map() { ('{', '}') } else { ('[', ']') };
    let delimited = kind.max > 1 || datum.is_empty();
    let mut text = String::new();
    if delimited {
        text.push(open);
    }
    for (at, (key, value)) in datum.iter().enumerate() {
        if at > 0 {
            text.push_str(", ");
        }
        text.push_str(&format_atom(key));
        if let Some(value) = value {
            let _ = write!(text, "={}", format_atom(value));
        }
    }
    if delimited {
        text.push(close);
    }
    text
}

/// The datum without brackets, quotes and commas: elements separated by spaces, `key=value` for maps.
pub fn format_datum_bare(datum: &Datum) -> String {
    let element = |(key, value): (&Atom, Option<&Atom>)| match value {
        Some(value) => format!("{}={}", format_atom_bare(key), format_atom_bare(value)),
        None => format_atom_bare(key),
    };
    datum.iter().map(element).collect::<Vec<_>>().join(" ")
}

/// Returns true if `c` ends an unquoted token.
pub fn is_delimiter(c: char) -> bool {
    ":=, []{}!<>".contains(c)
}

/// Splits a token off the front of `text`: up to a delimiter that is neither quoted nor escaped. The token keeps its
/// quotes and backslashes. Returns the token and the rest.
pub fn take_token(text: &str) -> Result<(&str, &str)> {
    let mut quoted = false;
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' if chars.next().is_none() => return fail(format!("{text}: backslash at end of argument")),
            // The guard above skipped the escaped character.
            '\\' => {}
            '"' => quoted = !quoted,
            c if !quoted && is_delimiter(c) => return Ok(text.split_at(at)),
            _ => {}
        }
    }
    if quoted {
        return fail(format!("{text}: quoted string extends past end of argument"));
    }
    Ok((text, ""))
}

/// Parses one atom from a whole token and checks the constraints of `base`. `@NAME` is looked up in `symbols`.
pub fn parse_atom(token: &str, base: &BaseType, symbols: &mut dyn SymbolTable) -> Result<Atom> {
    let atom = parse_unchecked(token, base, symbols)?;
    base.check(&atom).map_err(|error| TextError(error.to_string()))?;
    Ok(atom)
}

fn parse_unchecked(token: &str, base: &BaseType, symbols: &mut dyn SymbolTable) -> Result<Atom> {
    match base.kind {
        AtomType::Integer => match parse_integer(token) {
            Some(number) => Ok(Atom::Integer(number)),
            None => fail(format!("\"{token}\" is not a valid integer or range")),
        },
        AtomType::Real => match token.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Atom::Real(number)),
            _ => fail(format!("\"{token}\" is not a valid real number")),
        },
        AtomType::Boolean => match token {
            "true" | "yes" | "on" | "1" => Ok(Atom::Boolean(true)),
            "false" | "no" | "off" | "0" => Ok(Atom::Boolean(false)),
            _ => fail(format!("\"{token}\" is not a valid boolean (use \"true\" or \"false\")")),
        },
        AtomType::String => parse_string(token).map(Atom::from),
        AtomType::Uuid => parse_uuid(token, base, symbols),
    }
}

/// Decimal digits, perhaps with a sign.
fn parse_integer(token: &str) -> Option<i64> {
    token.parse().ok()
}

fn parse_string(token: &str) -> Result<String> {
    if token.is_empty() {
        return fail("An empty string is not valid as input; use \"\" to represent the empty string");
    }
    if !token.starts_with('"') {
        return Ok(token.to_owned());
    }
    if token.len() < 2 || !token.ends_with('"') {
        return fail(format!("{token}: missing quote at end of quoted string"));
    }
    match serde_json::from_str::<String>(token) {
        Ok(text) if !text.contains('\0') => Ok(text),
        Ok(_) => fail("null bytes not supported in quoted strings"),
        Err(error) => fail(format!("{token}: {}", describe_json_error(&error))),
    }
}

/// The parser's message without the position, which means nothing within a command-line word.
fn describe_json_error(error: &serde_json::Error) -> String {
    let message = error.to_string();
    message.split(" at line ").next().unwrap_or_default().to_owned()
}

fn parse_uuid(token: &str, base: &BaseType, symbols: &mut dyn SymbolTable) -> Result<Atom> {
    if token.starts_with('@') && symbols.accepts_names() {
        let is_reference = base.ref_table().is_some();
        let kind = if is_reference { base.ref_type() } else { RefType::Weak };
        return Ok(Atom::Uuid(symbols.resolve(token, kind, is_reference)));
    }
    match Uuid::parse(token) {
        Some(uuid) => Ok(Atom::Uuid(uuid)),
        None => fail(format!("\"{token}\" is not a valid UUID")),
    }
}

/// The integers `first` to `last`, which `base` must allow, if `token` has the form `first-last`.
fn parse_range(token: &str, base: &BaseType) -> Option<Result<(i64, i64)>> {
    let dash = token.char_indices().skip(1).find(|&(_, c)| c == '-')?.0;
    let first = parse_integer(token.get(..dash)?)?;
    let last = parse_integer(token.get(dash + 1..)?)?;
    if last < first {
        return Some(fail(format!("\"{token}\" is not a valid range. Range end cannot be before start.")));
    }
    if let Err(error) = [first, last].iter().try_for_each(|end| base.check(&Atom::Integer(*end))) {
        return Some(fail(error.to_string()));
    }
    if last.checked_sub(first).is_none_or(|steps| steps >= RANGE_SIZE_MAX) {
        return Some(fail(format!("Range \"{first}-{last}\" is too big. Maximum allowed size is {RANGE_SIZE_MAX}.")));
    }
    Some(Ok((first, last)))
}

/// Parses a datum for a column of type `kind`: `5`, `1,2`, `[1, 2]`, `a=b c=d`, `{a=b}`, `1-3`.
pub fn parse_datum(text: &str, kind: &ColumnType, symbols: &mut dyn SymbolTable) -> Result<Datum> {
    let (open, close) = if kind.is_map() { ('{', '}') } else { ('[', ']') };
    let mut rest = skip_spaces(text);
    if rest.is_empty() {
        let class = if kind.is_map() { "map" } else { "set" };
        return fail(format!("use \"{open}{close}\" to specify the empty {class}"));
    }
    let delimited = rest.starts_with(open);
    if delimited {
        rest = skip_spaces(rest.strip_prefix(open).unwrap_or(rest));
    }
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    while let Some(c) = rest.chars().next().filter(|&c| !(delimited && c == close)) {
        if is_delimiter(c) {
            return fail(format!("{text}: unexpected \"{c}\" parsing {kind}"));
        }
        rest = parse_element(rest, kind, symbols, &mut keys, &mut values)?;
        rest = skip_spaces(rest);
        rest = rest.strip_prefix(',').map_or(rest, skip_spaces);
    }
    if delimited {
        let Some(after) = rest.strip_prefix(close) else {
            return fail(format!("{text}: missing \"{close}\" at end of data"));
        };
        if !skip_spaces(after).is_empty() {
            return fail(format!("{text}: trailing garbage after \"{close}\""));
        }
    }
    finish_datum(text, kind, keys, values)
}

fn finish_datum(text: &str, kind: &ColumnType, keys: Vec<Atom>, values: Vec<Atom>) -> Result<Datum> {
    let count = keys.len();
    let noun = if kind.is_map() { "pair(s)" } else { "value(s)" };
    if count < kind.min as usize {
        return fail(format!("{text}: {count} {noun} specified but the minimum number is {}", kind.min));
    }
    if count > kind.max as usize {
        return fail(format!("{text}: {count} {noun} specified but the maximum number is {}", kind.max));
    }
    Datum::from_parts(keys, values).ok_or_else(|| {
        let duplicate = if kind.is_map() { "map contains duplicate key" } else { "set contains duplicate value" };
        TextError(format!("{text}: {duplicate}"))
    })
}

/// Parses one element, or a range of integers, and returns what follows.
fn parse_element<'a>(
    start: &'a str,
    kind: &ColumnType,
    symbols: &mut dyn SymbolTable,
    keys: &mut Vec<Atom>,
    values: &mut Vec<Atom>,
) -> Result<&'a str> {
    let (token, rest) = take_token(start)?;
    let range = if kind.key.kind == AtomType::Integer { parse_range(token, &kind.key) } else { None };
    let first = keys.len();
    match range {
        Some(range) => {
            let (low, high) = range?;
            for number in low..=high {
                let atom = Atom::Integer(number);
                kind.key.check(&atom).map_err(|error| TextError(error.to_string()))?;
                keys.push(atom);
            }
        }
        None => keys.push(parse_atom(token, &kind.key, symbols)?),
    }
    let Some(base) = &kind.value else {
        return Ok(rest);
    };
    let rest = skip_spaces(rest);
    let Some(after) = rest.strip_prefix('=') else {
        let found = rest.chars().next().map(String::from).unwrap_or_default();
        return fail(format!("{start}: syntax error at \"{found}\" expecting \"=\""));
    };
    let (token, rest) = take_token(skip_spaces(after))?;
    let value = parse_atom(token, base, symbols)?;
    values.extend(keys.iter().skip(first).map(|_| value.clone()));
    Ok(rest)
}

fn skip_spaces(text: &str) -> &str {
    text.trim_start_matches(' ')
}
