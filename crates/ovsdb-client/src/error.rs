//! Errors between a client and its server.

use serde_json::Value;

/// A message that breaks the protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{problem}: {json}")]
pub struct ProtocolError {
    problem: String,
    json: String,
}

/// How much of an offending message an error quotes.
const QUOTE_BYTES_MAX: usize = 200;

impl ProtocolError {
    /// `problem`, quoting the offending part of the message.
    pub fn new(problem: &str, json: &Value) -> Self {
        let mut json = json.to_string();
        if json.len() > QUOTE_BYTES_MAX {
            let end = (0..=QUOTE_BYTES_MAX).rev().find(|at| json.is_char_boundary(*at)).unwrap_or(0);
            json.truncate(end);
            json.push_str("...");
        }
        Self { problem: problem.to_owned(), json }
    }
}

/// Why an operation on a remote database failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The remote is not one that can be connected to.
    #[error("{remote}: {problem}")]
    Remote {
        /// The connection method as given.
        remote: String,
        /// The error in it.
        problem: String,
    },
    /// The connection could not be made, or broke; the message is that of the operating system.
    #[error("{remote}: database connection failed ({problem})")]
    Connection {
        /// The connection method.
        remote: String,
        /// The error text.
        problem: String,
    },
    /// The server sent something that breaks the protocol.
    #[error("{remote}: {error}")]
    Protocol {
        /// The connection method.
        remote: String,
        /// The error.
        error: ProtocolError,
    },
    /// The server refused a request; the JSON is the error of its reply.
    #[error("{method} request failed: {error}")]
    Request {
        /// The request's method.
        method: String,
        /// The reply's error.
        error: Value,
    },
    /// The server could not execute a transaction; the JSON is the `<error>` (RFC 7047 section 3.1).
    #[error("transaction error: {0}")]
    Transaction(Value),
}
