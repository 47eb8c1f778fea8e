//! JSON texts: [`parse`] reads one, and names its first mistake as Open vSwitch's programs do, which scripts show to their
//! users: `line 0, column 6, byte 6: invalid keyword 'nojson'`.
//!
//! serde_json does the parsing. Only a text that it refuses, or that Open vSwitch refuses and it does not, is examined once
//! more by [`check`], which finds the mistake and its position.
//!
//! Invariant: a text that [`check`] finds a mistake in is refused by [`parse`].

use std::fmt;

use serde_json::Value;

mod tokens;

use tokens::{Token, Tokens};

/// Greatest number of brackets open at once.
const DEPTH_MAX: usize = 1000;

/// A position in a text; all count from 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The byte in its line.
    pub column: usize,
    /// The byte in the text.
    pub byte: usize,
}

impl Position {
    /// Moves behind `byte`.
    pub fn advance(&mut self, byte: u8) {
        self.byte += 1;
        if byte == b'\n' {
            self.line += 1;
            self.column = 0;
        } else {
            self.column += 1;
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}, byte {}", self.line, self.column, self.byte)
    }
}

/// The first mistake in a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {reason}")]
pub struct JsonError {
    /// Where it was noticed.
    pub at: Position,
    /// The mistake.
    pub reason: String,
}

/// Parses an array or an object, with white space around it.
pub fn parse(text: &[u8]) -> Result<Value, JsonError> {
    parse_from(text, Position::default())
}

/// Parses a text that begins at `start` of a stream.
pub fn parse_from(text: &[u8], start: Position) -> Result<Value, JsonError> {
    match serde_json::from_slice::<Value>(text) {
        Ok(value @ (Value::Array(_) | Value::Object(_))) if !may_have_nul(text) => Ok(value),
        Ok(value) => check(text, start).map(|()| value),
        Err(error) => Err(check(text, start).err().unwrap_or_else(|| own_limit(&error, text, start))),
    }
}

/// Whether the text may have an escaped NUL, which no string of OVSDB may contain.
fn may_have_nul(text: &[u8]) -> bool {
    text.contains(&b'\\') && text.windows(6).any(|bytes| bytes == b"\\u0000")
}

/// A mistake by a rule that Open vSwitch does not have: too deep a text, or one that is not Unicode.
fn own_limit(error: &serde_json::Error, text: &[u8], start: Position) -> JsonError {
    let whole = error.to_string();
    let reason = whole.split_once(" at line ").map_or(whole.as_str(), |(reason, _)| reason);
    let mut at = start;
    let (lines, column) = (error.line().saturating_sub(1), error.column());
    let before: usize = text.split_inclusive(|byte| *byte == b'\n').take(lines).map(<[u8]>::len).sum();
    text.iter().take(before + column.saturating_sub(1)).for_each(|byte| at.advance(*byte));
    JsonError { at, reason: reason.to_owned() }
}

/// What may come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Expected {
    Start,
    FirstElement,
    Value,
    ElementEnd,
    FirstName,
    Name,
    Colon,
    MemberEnd,
    End,
}

/// An open bracket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bracket {
    Array,
    Object,
}

/// Finds the first mistake of a text that begins at `start` of a stream. Uses no more memory than a thousand brackets.
pub fn check(text: &[u8], start: Position) -> Result<(), JsonError> {
    let mut tokens = Tokens::new(text, start);
    let mut expected = Expected::Start;
    let mut open = Vec::new();
    while let Some(token) = tokens.next()? {
        let next = after(expected, token, &mut open);
        expected = next.map_err(|reason| JsonError { at: tokens.position(), reason })?;
        tokens.taken();
    }
    let reason = match expected {
        Expected::End => return Ok(()),
        Expected::Start => "empty input stream",
        _ => "unexpected end of input",
    };
    Err(JsonError { at: tokens.position(), reason: reason.to_owned() })
}

/// Returns what may come after `token`.
fn after(expected: Expected, token: Token, open: &mut Vec<Bracket>) -> Result<Expected, String> {
    let refused = match (expected, token) {
        (Expected::Start | Expected::FirstElement | Expected::Value, Token::Array | Token::Object) => {
            return opened(token, open);
        }
        (Expected::FirstElement | Expected::Value, Token::String | Token::Scalar) => return Ok(behind(open)),
        (Expected::FirstElement | Expected::ElementEnd, Token::ArrayEnd)
        | (Expected::FirstName | Expected::MemberEnd, Token::ObjectEnd) => {
            open.pop();
            return Ok(behind(open));
        }
        (Expected::ElementEnd, Token::Comma) | (Expected::Colon, Token::Colon) => return Ok(Expected::Value),
        (Expected::FirstName | Expected::Name, Token::String) => return Ok(Expected::Colon),
        (Expected::MemberEnd, Token::Comma) => return Ok(Expected::Name),
        (Expected::Start, _) => "syntax error at beginning of input",
        (Expected::FirstElement | Expected::Value, _) => "syntax error expecting value",
        (Expected::ElementEnd, _) => "syntax error expecting ']' or ','",
        (Expected::FirstName | Expected::Name, _) => "syntax error parsing object expecting string",
        (Expected::Colon, _) => "syntax error parsing object expecting ':'",
        (Expected::MemberEnd, _) => "syntax error expecting '}' or ','",
        (Expected::End, _) => "trailing garbage at end of input",
    };
    Err(refused.to_owned())
}

/// Opens a bracket.
fn opened(token: Token, open: &mut Vec<Bracket>) -> Result<Expected, String> {
    if open.len() >= DEPTH_MAX {
        return Err(format!("input exceeds maximum nesting depth {DEPTH_MAX}"));
    }
    let is_array = token == Token::Array;
    open.push(if is_array { Bracket::Array } else { Bracket::Object });
    Ok(if is_array { Expected::FirstElement } else { Expected::FirstName })
}

/// Returns what may come after a value.
fn behind(open: &[Bracket]) -> Expected {
    match open.last() {
        None => Expected::End,
        Some(Bracket::Array) => Expected::ElementEnd,
        Some(Bracket::Object) => Expected::MemberEnd,
    }
}

#[cfg(test)]
mod tests;
