//! The `<error>` object of RFC 7047 section 3.1, with Open vSwitch's tags and details.

use std::borrow::Cow;
use std::fmt;

use serde_json::{Map, Value};

/// A result whose error is an OVSDB `<error>`.
pub type Result<T> = std::result::Result<T, Error>;

/// An OVSDB `<error>`: a short tag that programs match, details for people, and the JSON that could not be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    tag: Cow<'static, str>,
    details: Option<String>,
    syntax: Option<String>,
    io_error: Option<String>,
}

impl Error {
    /// An error with a tag such as `"constraint violation"` and details.
    pub fn new(tag: impl Into<Cow<'static, str>>, details: impl Into<String>) -> Self {
        Self { tag: tag.into(), details: Some(details.into()), syntax: None, io_error: None }
    }

    /// An error that is only a tag, without details.
    pub fn bare(tag: impl Into<Cow<'static, str>>) -> Self {
        Self { tag: tag.into(), details: None, syntax: None, io_error: None }
    }

    /// `"syntax error"` about `json`.
    pub fn syntax(json: &Value, details: impl Into<String>) -> Self {
        Self::syntax_tagged(json, "syntax error", details)
    }

    /// An error about `json` with another tag than `"syntax error"`, e.g. `"unknown column"`.
    pub fn syntax_tagged(json: &Value, tag: impl Into<Cow<'static, str>>, details: impl Into<String>) -> Self {
        Self {
            tag: tag.into(),
            details: Some(details.into()),
            syntax: Some(crate::json::canonical(json)),
            io_error: None,
        }
    }

    /// `"ovsdb error"`, the tag for errors without a class of their own.
    pub fn ovsdb(details: impl Into<String>) -> Self {
        Self::new("ovsdb error", details)
    }

    /// `"constraint violation"` (RFC 7047 section 3.1).
    pub fn constraint(details: impl Into<String>) -> Self {
        Self::new("constraint violation", details)
    }

    /// `"referential integrity violation"` (RFC 7047 section 4.1.3).
    pub fn referential(details: impl Into<String>) -> Self {
        Self::new("referential integrity violation", details)
    }

    /// `"I/O error"`, with the operating system's description of `error`.
    pub fn io(error: &std::io::Error, details: impl Into<String>) -> Self {
        let mut made = Self::new("I/O error", details);
        made.io_error = Some(strip_os_code(&error.to_string()));
        made
    }

    /// The same error with other details.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<String>) -> Self {
        self.details = Some(details.into());
        self
    }

    /// The class of the error, which programs may match.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// A description of the error, for people.
    pub fn details(&self) -> Option<&str> {
        self.details.as_deref()
    }

    /// The JSON text in which the error was found.
    pub fn syntax_text(&self) -> Option<&str> {
        self.syntax.as_deref()
    }

    /// The `<error>` object in its wire format.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("error".into(), Value::from(self.tag.as_ref()));
        if let Some(details) = &self.details {
            object.insert("details".into(), Value::from(details.as_str()));
        }
        if let Some(syntax) = &self.syntax {
            object.insert("syntax".into(), Value::from(syntax.as_str()));
        }
        if let Some(io_error) = &self.io_error {
            object.insert("io-error".into(), Value::from(io_error.as_str()));
        }
        Value::Object(object)
    }

    /// Parses a peer's `<error>` object; anything else becomes an error whose details are its JSON text.
    pub fn from_json(json: &Value) -> Self {
        let text = |name: &str| json.get(name).and_then(Value::as_str).map(str::to_owned);
        match text("error") {
            Some(tag) => {
                Self { tag: tag.into(), details: text("details"), syntax: text("syntax"), io_error: text("io-error") }
            }
            None => Self::new("unknown error", json.to_string()),
        }
    }
}

/// `No such file or directory (os error 2)` without the part that Open vSwitch's messages do not have.
fn strip_os_code(message: &str) -> String {
    message.split(" (os error").next().unwrap_or(message).to_owned()
}

impl fmt::Display for Error {
    /// One line, as the `ovs-*` programs print errors.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(syntax) = &self.syntax {
            write!(f, "syntax \"{syntax}\": ")?;
        }
        f.write_str(&self.tag)?;
        if let Some(details) = &self.details {
            write!(f, ": {details}")?;
        }
        if let Some(io_error) = &self.io_error {
            write!(f, " ({io_error})")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// The payload of a two-element array `[tag, payload]`, such as `["uuid", "..."]`, if `accepts` likes the payload.
pub fn unwrap_tagged<'a>(
    json: &'a Value,
    tag: &str,
    kind: &str,
    accepts: impl Fn(&Value) -> bool,
) -> Result<&'a Value> {
    match json.as_array().map(Vec::as_slice) {
        Some([Value::String(found), payload]) if found == tag && accepts(payload) => Ok(payload),
        _ => Err(Error::syntax(json, format!("expected [\"{tag}\", <{kind}>]"))),
    }
}
