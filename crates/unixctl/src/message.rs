//! Framing and validation of JSON-RPC 1.0 messages on a byte stream.
//!
//! Messages follow each other with optional white space between them. [`Framer`] finds the end of a message by
//! counting brackets outside strings, in time linear in the bytes received, and buffers at most its limit of bytes;
//! the JSON parser, which bounds its own recursion, receives whole messages only.

use serde_json::{Map, Value};

/// The longest request that a server reads, in bytes. A `dpctl/add-flows` or a packet for `ofproto/trace` is far
/// shorter.
pub const REQUEST_BYTES_MAX: usize = 4 << 20;

/// The longest reply that a client reads, in bytes: dumps of large flow tables are long.
pub const REPLY_BYTES_MAX: usize = 1 << 30;

/// The reason why bytes are not a request, in the words of the log line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes are not JSON.
    #[error("error parsing stream: {0}")]
    Json(String),
    /// It is longer than the reader accepts.
    #[error("message is longer than {0} bytes")]
    TooLong(usize),
    /// It is JSON, but no JSON-RPC message.
    #[error("received bad JSON-RPC message: {0}")]
    Message(String),
    /// A notification, which the protocol does not have: only requests.
    #[error("received unexpected notification message")]
    Notification,
    /// A reply without a request.
    #[error("received unexpected reply message")]
    Reply,
}

/// A request.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    /// The command.
    pub method: String,
    /// Its arguments; a command rejects values that are not strings.
    pub params: Vec<Value>,
    /// The id that the reply repeats; not null.
    pub id: Value,
}

/// Cuts a stream of bytes into JSON values.
#[derive(Debug)]
pub struct Framer {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that the bracket counter has seen.
    scanned: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    bytes_max: usize,
}

impl Framer {
    /// A framer of values of at most `bytes_max` bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { buffer: Vec::new(), scanned: 0, depth: 0, in_string: false, escaped: false, bytes_max }
    }

    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next complete value, an object or an array; `None` until more bytes arrive.
    pub fn next_value(&mut self) -> Result<Option<Value>, DecodeError> {
        if self.scanned == 0 {
            self.skip_white_space()?;
        }
        let Some(end) = self.end() else {
            return if self.buffer.len() > self.bytes_max {
                Err(DecodeError::TooLong(self.bytes_max))
            } else {
                Ok(None)
            };
        };
        let frame: Vec<u8> = self.buffer.drain(..end).collect();
        self.scanned = 0;
        if frame.len() > self.bytes_max {
            return Err(DecodeError::TooLong(self.bytes_max));
        }
        serde_json::from_slice(&frame).map(Some).map_err(|error| DecodeError::Json(error.to_string()))
    }

    fn skip_white_space(&mut self) -> Result<(), DecodeError> {
        let start = self.buffer.iter().position(|byte| !byte.is_ascii_whitespace()).unwrap_or(self.buffer.len());
        self.buffer.drain(..start);
        match self.buffer.first() {
            None | Some(b'{' | b'[') => Ok(()),
            Some(_) => Err(DecodeError::Json("expected the start of a JSON object".to_owned())),
        }
    }

    /// Continues to count brackets; returns the end of the first value, if there is one.
    fn end(&mut self) -> Option<usize> {
        for (i, &byte) in self.buffer.iter().enumerate().skip(self.scanned) {
            if self.in_string {
                match byte {
                    _ if self.escaped => self.escaped = false,
                    b'\\' => self.escaped = true,
                    b'"' => self.in_string = false,
                    _ => {}
                }
                continue;
            }
            match byte {
                b'"' => self.in_string = true,
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => {
                    // The first byte of a frame opens a bracket, so the depth is not zero here.
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(i + 1);
                    }
                }
                _ => {}
            }
        }
        self.scanned = self.buffer.len();
        None
    }
}

/// All requests in `bytes`, up to the first that is incomplete; for tests and fuzzing.
pub fn decode(bytes: &[u8]) -> Result<Vec<Request>, DecodeError> {
    let mut framer = Framer::new(REQUEST_BYTES_MAX);
    framer.push(bytes);
    let mut requests = Vec::new();
    while let Some(value) = framer.next_value()? {
        requests.push(Request::from_json(value)?);
    }
    Ok(requests)
}

fn bad(reason: impl Into<String>) -> DecodeError {
    DecodeError::Message(reason.into())
}

impl Request {
    /// Validates a message.
    pub fn from_json(message: Value) -> Result<Self, DecodeError> {
        let Value::Object(mut members) = message else {
            return Err(bad("message is not a JSON object"));
        };
        let method = members.remove("method");
        let params = members.remove("params");
        let id = members.remove("id").filter(|id| !id.is_null());
        let result = members.remove("result").filter(|result| !result.is_null());
        let error = members.remove("error").filter(|error| !error.is_null());
        if let Some(name) = members.keys().next() {
            return Err(bad(format!("message has unexpected member \"{name}\"")));
        }
        if result.is_some() || error.is_some() {
            return Err(if method.is_some() {
                bad("request must not have \"result\" or \"error\"")
            } else {
                DecodeError::Reply
            });
        }
        let method = match method {
            Some(Value::String(method)) => method,
            Some(_) => return Err(bad("method is not a JSON string")),
            None => return Err(bad("request must have \"method\"")),
        };
        let params = match params {
            Some(Value::Array(params)) => params,
            Some(_) => return Err(bad("\"params\" must be JSON array")),
            None => return Err(bad("request must have \"params\"")),
        };
        let id = id.ok_or(DecodeError::Notification)?;
        Ok(Self { method, params, id })
    }

    /// Its bytes on the wire.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut members = Map::new();
        members.insert("id".to_owned(), self.id.clone());
        members.insert("method".to_owned(), Value::String(self.method.clone()));
        members.insert("params".to_owned(), Value::Array(self.params.clone()));
        Value::Object(members).to_string().into_bytes()
    }
}

/// The bytes of a reply to the request `id`: a result, or the text of an error.
pub fn reply_bytes(id: Value, outcome: Result<Value, String>) -> Vec<u8> {
    let (result, error) = match outcome {
        Ok(result) => (result, Value::Null),
        Err(error) => (Value::Null, Value::String(error)),
    };
    let mut members = Map::new();
    members.insert("id".to_owned(), id);
    members.insert("result".to_owned(), result);
    members.insert("error".to_owned(), error);
    Value::Object(members).to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn requests_follow_each_other() {
        let requests = decode(
            b" \n{\"method\":\"a\",\"params\":[],\"id\":0}{\"method\":\"b\",\"params\":[\"}\\\"\"],\"id\":\"x\"} {\"me",
        );
        let requests = requests.unwrap();
        assert_eq!(requests.len(), 2);
        assert_eq!(requests[1], Request { method: "b".into(), params: vec![json!("}\"")], id: json!("x") });
    }

    #[test]
    fn reasons() {
        for (text, reason) in [
            ("[1]", "received bad JSON-RPC message: message is not a JSON object"),
            (r#"{"method":"v","params":{},"id":0}"#, "received bad JSON-RPC message: \"params\" must be JSON array"),
            (r#"{"method":"v","id":0}"#, "received bad JSON-RPC message: request must have \"params\""),
            (
                r#"{"method":"v","params":[],"id":0,"x":1}"#,
                "received bad JSON-RPC message: message has unexpected member \"x\"",
            ),
            (r#"{"method":"v","params":[],"id":null}"#, "received unexpected notification message"),
            (r#"{"result":"v","error":null,"id":3}"#, "received unexpected reply message"),
        ] {
            assert_eq!(decode(text.as_bytes()).unwrap_err().to_string(), reason, "{text}");
        }
        assert!(matches!(decode(b"hello"), Err(DecodeError::Json(_))));
        assert!(matches!(decode(b"{]"), Err(DecodeError::Json(_))));
        assert_eq!(decode(b"{"), Ok(vec![]));
        let deep = format!("{}{}", "[".repeat(5000), "]".repeat(5000));
        assert!(matches!(decode(deep.as_bytes()), Err(DecodeError::Json(_))));
    }

    #[test]
    fn long_messages_are_refused_before_they_end() {
        let mut framer = Framer::new(10);
        framer.push(b"{\"method\"");
        assert_eq!(framer.next_value(), Ok(None));
        framer.push(b":\"abc");
        assert_eq!(framer.next_value(), Err(DecodeError::TooLong(10)));
    }

    tally::proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = decode(&bytes);
        }

        #[test]
        fn chunks_do_not_matter(method in ".*", params in proptest::collection::vec(".*", 0..4), chunk in 1_usize..20) {
            let request = Request { method, params: params.into_iter().map(Value::String).collect(), id: json!(7) };
            let mut bytes = request.to_bytes();
            bytes.extend(request.to_bytes());
            let mut framer = Framer::new(REQUEST_BYTES_MAX);
            let mut found = Vec::new();
            for piece in bytes.chunks(chunk) {
                framer.push(piece);
                while let Some(value) = framer.next_value().unwrap() {
                    found.push(Request::from_json(value).unwrap());
                }
            }
            prop_assert_eq!(found, vec![request.clone(), request]);
        }
    }
}
