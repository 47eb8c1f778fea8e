//! Finds the ends of messages in a stream of JSON without separators, by brackets and strings alone.
//!
//! The framer examines each byte once, buffers no more than one incomplete message and the bytes behind it in the
//! same read, and rejects messages that are too long or too deep before they are parsed.

use std::ops::Range;

use serde_json::Value;

use super::message::{Message, MessageError};
use crate::json_text::{self, JsonError, Position};

/// Bounds on one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Greatest length in bytes.
    pub bytes_max: usize,
    /// Greatest number of brackets open at once.
    pub depth_max: usize,
}

impl Default for Limits {
    /// 1 GiB, since one reply has the contents of a large database, and a depth within the JSON parser's limit.
    fn default() -> Self {
        Self { bytes_max: 1 << 30, depth_max: 120 }
    }
}

/// The reason why a stream is invalid. Each of these ends the connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Too many brackets.
    #[error("input exceeds maximum nesting depth {0}")]
    Depth(usize),
    /// Too many bytes.
    #[error("message is longer than the {0} bytes allowed")]
    Length(usize),
    /// It is not JSON. Positions count from the end of the message before.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// It is JSON, but not JSON-RPC.
    #[error(transparent)]
    Message(#[from] MessageError),
}

/// Largest buffer that is kept for the next message.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// Cuts a stream of bytes into JSON texts.
#[derive(Debug, Default)]
pub struct Framer {
    buffer: Vec<u8>,
    /// Start of the message being read.
    start: usize,
    /// The first unexamined byte.
    position: usize,
    depth: usize,
    in_string: bool,
    escaped: bool,
    limits: Limits,
    /// Where the message being read begins, counted from the end of the one before.
    start_position: Position,
}

impl Framer {
    /// A framer with these bounds.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Adds bytes of the stream. [`Framer::next_frame`] then returns messages until it returns `None`.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.start > 0 {
            self.buffer.drain(..self.start);
            self.position -= self.start;
            self.start = 0;
            if self.buffer.is_empty() && self.buffer.capacity() > KEPT_BYTES_MAX {
                self.buffer = Vec::new();
            }
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns true if the stream is between two messages.
    pub fn is_between_messages(&self) -> bool {
        self.depth == 0
    }

    /// The next whole message's bytes, or `None` if more input is needed.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
        Ok(self.next_range()?.and_then(|(range, _)| self.buffer.get(range)))
    }

    /// Finds the next whole message: its bytes in the buffer, and its position behind the one before.
    fn next_range(&mut self) -> Result<Option<(Range<usize>, Position)>, FrameError> {
        if self.depth == 0 && !self.skip_to_start()? {
            return Ok(None);
        }
        while let Some(&byte) = self.buffer.get(self.position) {
            self.position += 1;
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
                b'{' | b'[' => {
                    self.depth += 1;
                    if self.depth > self.limits.depth_max {
                        return Err(FrameError::Depth(self.limits.depth_max));
                    }
                }
                b'}' | b']' => {
                    self.depth -= 1;
                    if self.depth == 0 {
                        self.check_length()?;
                        let start = std::mem::replace(&mut self.start, self.position);
                        let position = std::mem::take(&mut self.start_position);
                        return Ok(Some((start..self.position, position)));
                    }
                }
                _ => {}
            }
        }
        self.check_length()?;
        Ok(None)
    }

    /// Checks the length of the message being read, whether it has come as a whole or not.
    fn check_length(&self) -> Result<(), FrameError> {
        let is_short = self.position - self.start <= self.limits.bytes_max;
        is_short.then_some(()).ok_or(FrameError::Length(self.limits.bytes_max))
    }

    /// Skips white space; returns true if a message begins.
    fn skip_to_start(&mut self) -> Result<bool, FrameError> {
        while let Some(&byte) = self.buffer.get(self.position) {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => {
                    self.position += 1;
                    self.start_position.advance(byte);
                }
                b'{' | b'[' => {
                    self.start = self.position;
                    return Ok(true);
                }
                _ => {
                    // No message begins so.
                    let rest = self.buffer.get(self.position..).unwrap_or_default();
                    json_text::check(rest, self.start_position)?;
                    break;
                }
            }
        }
        self.start = self.position;
        Ok(false)
    }

    /// The next whole message as JSON.
    pub fn next_json(&mut self) -> Result<Option<Value>, FrameError> {
        let Some((range, position)) = self.next_range()? else { return Ok(None) };
        let frame = self.buffer.get(range).unwrap_or_default();
        Ok(Some(json_text::parse_from(frame, position)?))
    }

    /// The next whole message.
    pub fn next_message(&mut self) -> Result<Option<Message>, FrameError> {
        match self.next_json()? {
            None => Ok(None),
            Some(json) => Ok(Some(Message::from_json(json)?)),
        }
    }
}

/// Returns all messages in `bytes`, up to the first error, which is returned too. A trailing incomplete message is
/// ignored.
pub fn decode(bytes: &[u8], limits: Limits) -> (Vec<Message>, Option<FrameError>) {
    let mut framer = Framer::new(limits);
    framer.push(bytes);
    let mut messages = Vec::new();
    loop {
        match framer.next_message() {
            Ok(Some(message)) => messages.push(message),
            Ok(None) => return (messages, None),
            Err(error) => return (messages, Some(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn messages_are_found_however_the_stream_is_cut() {
        let texts = [
            r#"{"method":"echo","params":["}{\"][\\"],"id":1}"#,
            r#"{"id":1,"result":[],"error":null}"#,
            r#"{"method":"update","params":[null,{"a":{}}],"id":null}"#,
        ];
        let stream = texts.join(" \n");
        for size in 1..stream.len() {
            let mut framer = Framer::default();
            let mut found = Vec::new();
            for piece in stream.as_bytes().chunks(size) {
                framer.push(piece);
                while let Some(frame) = framer.next_frame().unwrap() {
                    found.push(String::from_utf8(frame.to_vec()).unwrap());
                }
            }
            assert_eq!(found, texts);
        }
    }

    #[test]
    fn a_length_is_refused_however_the_stream_is_cut() {
        let text = br#"{"id":1,"result":[],"error":null}"#;
        for (bytes_max, error) in [(text.len(), None), (text.len() - 1, Some(FrameError::Length(text.len() - 1)))] {
            for size in 1..=text.len() {
                let mut framer = Framer::new(Limits { bytes_max, depth_max: 3 });
                let found = text.chunks(size).find_map(|piece| {
                    framer.push(piece);
                    framer.next_message().transpose()
                });
                assert_eq!(found.expect("a message or an error").err(), error, "{size}");
            }
        }
    }

    #[test]
    fn a_large_message_leaves_no_large_buffer() {
        let mut framer = Framer::default();
        framer.push(format!(r#"["{}"]"#, "x".repeat(4 * KEPT_BYTES_MAX)).as_bytes());
        assert!(framer.next_json().unwrap().is_some());
        framer.push(b"[]");
        assert!(framer.buffer.capacity() <= KEPT_BYTES_MAX);
        assert!(framer.next_json().unwrap().is_some());
    }

    #[test]
    fn bounds_and_garbage_are_refused() {
        let limits = Limits { bytes_max: 20, depth_max: 3 };
        let mistake = |text: &[u8]| decode(text, limits).1.map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(mistake(b"x"), "line 0, column 1, byte 1: invalid keyword 'x'");
        assert_eq!(mistake(b"]"), "line 0, column 0, byte 0: syntax error at beginning of input");
        let echo = r#"{"method":"","params":[],"id":1}"#;
        let then = |text: &str| decode(format!("{echo}{text}").as_bytes(), Limits::default()).1.map(|e| e.to_string());
        assert_eq!(then("\n nojson ").as_deref(), Some("line 1, column 7, byte 8: invalid keyword 'nojson'"));
        let value = "line 2, column 11, byte 13: syntax error expecting value";
        assert_eq!(then("\n\n {\"method\":}").as_deref(), Some(value));
        assert_eq!(decode(b"[[[[", limits).1, Some(FrameError::Depth(3)));
        assert_eq!(decode(br#"{"method":"aaaaaaaaaaaaaaaaaaaaaaaa"#, limits).1, Some(FrameError::Length(20)));
        assert!(matches!(decode(b"{]", limits).1, Some(FrameError::Json(_))));
        assert_eq!(decode(b"[]", limits).1, Some(FrameError::Message(MessageError::NotObject)));
    }

    tally::proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(&bytes, Limits { bytes_max: 100, depth_max: 5 });
        }

        #[test]
        fn messages_round_trip(text in "[^\\x00]*", number in any::<i64>()) {
            let message = Message::request(json!(number), "m", vec![json!(text), json!({"k": [text]})]);
            let (found, error) = decode(&message.to_bytes(), Limits::default());
            prop_assert_eq!(error, None);
            prop_assert_eq!(found, vec![message]);
        }
    }
}
