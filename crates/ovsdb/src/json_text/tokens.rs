//! The tokens of a JSON text, and the mistakes within them.

use super::{JsonError, Position};

/// A token; of values only as much as the order of tokens depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    /// `[`
    Array,
    /// `]`
    ArrayEnd,
    /// `{`
    Object,
    /// `}`
    ObjectEnd,
    Comma,
    Colon,
    String,
    /// A number or a keyword.
    Scalar,
}

/// Reads tokens. Mistakes are noticed at the last byte of a string or a mark, and behind a number or keyword.
pub(super) struct Tokens<'a> {
    text: &'a [u8],
    next: usize,
    position: Position,
    /// The byte at `position` belongs to the token.
    is_held: bool,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a [u8], start: Position) -> Self {
        Self { text, next: 0, position: start, is_held: false }
    }

    /// Where mistakes of the last token are noticed.
    pub(super) fn position(&self) -> Position {
        self.position
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.next).copied()
    }

    fn skip(&mut self) {
        if let Some(byte) = self.peek() {
            self.position.advance(byte);
            self.next += 1;
        }
    }

    fn fail<T>(&self, reason: impl Into<String>) -> Result<T, JsonError> {
        Err(JsonError { at: self.position, reason: reason.into() })
    }

    /// Goes on behind the last token.
    pub(super) fn taken(&mut self) {
        if std::mem::take(&mut self.is_held) {
            self.skip();
        } else if self.peek().is_none() {
            // The peer ends a number or keyword at the end of the text by a space, which it counts.
            self.position.advance(b' ');
        }
    }

    /// The next token, `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Token>, JsonError> {
        while self.peek().is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) {
            self.skip();
        }
        let Some(byte) = self.peek() else { return Ok(None) };
        let token = match byte {
            b'[' => Token::Array,
            b']' => Token::ArrayEnd,
            b'{' => Token::Object,
            b'}' => Token::ObjectEnd,
            b',' => Token::Comma,
            b':' => Token::Colon,
            b'"' => return self.string().map(Some),
            b'-' | b'0'..=b'9' => return self.number().map(Some),
            b'a'..=b'z' => return self.keyword().map(Some),
            b' '..=b'~' => return self.fail(format!("invalid character '{}'", char::from(byte))),
            _ => return self.fail(format!("invalid character U+{byte:04x}")),
        };
        self.is_held = true;
        Ok(Some(token))
    }

    /// Takes the bytes that `belongs` accepts.
    fn run(&mut self, belongs: impl Fn(u8) -> bool) -> &'a [u8] {
        let first = self.next;
        while self.peek().is_some_and(&belongs) {
            self.skip();
        }
        self.text.get(first..self.next).unwrap_or_default()
    }

    fn keyword(&mut self) -> Result<Token, JsonError> {
        match self.run(|byte| byte.is_ascii_lowercase()) {
            b"true" | b"false" | b"null" => Ok(Token::Scalar),
            word => self.fail(format!("invalid keyword '{}'", String::from_utf8_lossy(word))),
        }
    }

    fn number(&mut self) -> Result<Token, JsonError> {
        let text = self.run(|byte| byte.is_ascii_digit() || matches!(byte, b'+' | b'-' | b'.' | b'e' | b'E'));
        match number_mistake(text) {
            Some(mistake) => self.fail(mistake),
            None => Ok(Token::Scalar),
        }
    }

    /// Reads to the closing quote, which stays the byte at `position`.
    fn string(&mut self) -> Result<Token, JsonError> {
        self.skip();
        let first = self.next;
        loop {
            match self.peek() {
                None => return self.fail("unexpected end of input in quoted string"),
                Some(b'"') => break,
                Some(b'\\') => {
                    self.skip();
                    self.skip();
                }
                Some(byte) if byte < b' ' => {
                    return self.fail(format!("U+{byte:04X} must be escaped in quoted string"));
                }
                Some(_) => self.skip(),
            }
        }
        self.is_held = true;
        match string_mistake(self.text.get(first..self.next).unwrap_or_default()) {
            Some(mistake) => self.fail(mistake),
            None => Ok(Token::String),
        }
    }
}

/// The mistake in a number, of bytes that numbers consist of.
fn number_mistake(text: &[u8]) -> Option<&'static str> {
    let mut rest = text.strip_prefix(b"-").unwrap_or(text);
    let digits = |rest: &[u8]| rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let skipped = |rest: &mut &[u8]| {
        let count = digits(rest);
        *rest = rest.get(count..).unwrap_or_default();
        count
    };
    if digits(rest) == 0 {
        return Some("'-' must be followed by digit");
    }
    if digits(rest) > 1 && rest.starts_with(b"0") {
        return Some("leading zeros not allowed");
    }
    skipped(&mut rest);
    if let Some(fraction) = rest.strip_prefix(b".") {
        rest = fraction;
        if skipped(&mut rest) == 0 {
            return Some("decimal point must be followed by digit");
        }
    }
    if let Some(exponent) = rest.strip_prefix(b"e").or_else(|| rest.strip_prefix(b"E")) {
        rest = exponent.strip_prefix(b"+").or_else(|| exponent.strip_prefix(b"-")).unwrap_or(exponent);
        if skipped(&mut rest) == 0 {
            return Some("exponent must contain at least one digit");
        }
    }
    if !rest.is_empty() {
        return Some("syntax error in number");
    }
    let number = std::str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    (!number.is_some_and(f64::is_finite)).then_some("number outside valid range")
}

/// The first mistake in the escapes of a string, which is without its quotes.
fn string_mistake(mut text: &[u8]) -> Option<String> {
    while let Some(at) = text.iter().position(|byte| *byte == b'\\') {
        let (escape, rest) = text.get(at + 1..)?.split_first()?;
        text = rest;
        match escape {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => {}
            b'u' => match unicode_escape(text) {
                Ok(rest) => text = rest,
                Err(mistake) => return Some(mistake.to_owned()),
            },
            other => return Some(format!("bad escape \\{}", String::from_utf8_lossy(&[*other]))),
        }
    }
    None
}

/// Reads an escape behind its `\u`, with its second half if it has one; returns the bytes behind it.
fn unicode_escape(text: &[u8]) -> Result<&[u8], &'static str> {
    let (code, rest) = hexadecimal(text)?;
    if !(0xd800..0xdc00).contains(&code) {
        return Ok(rest);
    }
    let second = rest.strip_prefix(b"\\u").ok_or("malformed escaped surrogate pair")?;
    let (code, rest) = hexadecimal(second)?;
    if (0xdc00..0xe000).contains(&code) {
        Ok(rest)
    } else {
        Err("second half of escaped surrogate pair is not trailing surrogate")
    }
}

fn hexadecimal(text: &[u8]) -> Result<(u32, &[u8]), &'static str> {
    let (digits, rest) = text.split_at_checked(4).ok_or("quoted string ends within \\u escape")?;
    let value = digits.iter().try_fold(0, |value, digit| Some(value << 4 | char::from(*digit).to_digit(16)?));
    match value.ok_or("malformed \\u escape")? {
        0 => Err("null bytes not supported in quoted strings"),
        code => Ok((code, rest)),
    }
}
