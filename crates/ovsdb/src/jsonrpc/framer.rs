//! Finds the ends of messages in a stream of JSON without separators, by brackets and strings alone.
//!
//! The framer examines each byte once, buffers no more than one incomplete message and the bytes behind it in the
//! same read, and rejects messages that are too long or too deep before they are parsed.

use serde_json::Value;

use super::message::{Message, MessageError};

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
    /// A message began with something else than `{` or `[`.
    #[error("syntax error at beginning of input")]
    Start,
    /// Too many brackets.
    #[error("input exceeds maximum nesting depth {0}")]
    Depth(usize),
    /// Too many bytes.
    #[error("message is longer than the {0} bytes allowed")]
    Length(usize),
    /// The brackets match, but the text between them is not JSON.
    #[error("{0}")]
    Json(String),
    /// It is JSON, but not JSON-RPC.
    #[error(transparent)]
    Message(#[from] MessageError),
}

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
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns true if the stream is between two messages.
    pub fn is_between_messages(&self) -> bool {
        self.depth == 0
    }

    /// The next whole message's bytes, or `None` if more input is needed.
    pub fn next_frame(&mut self) -> Result<Option<&[u8]>, FrameError> {
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
                        return Ok(self.buffer.get(start..self.position));
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
        while let Some(byte) = self.buffer.get(self.position) {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => self.position += 1,
                b'{' | b'[' => {
                    self.start = self.position;
                    return Ok(true);
                }
                _ => return Err(FrameError::Start),
            }
        }
        self.start = self.position;
        Ok(false)
    }

    /// The next whole message as JSON.
    pub fn next_json(&mut self) -> Result<Option<Value>, FrameError> {
        match self.next_frame()? {
            None => Ok(None),
            Some(frame) => serde_json::from_slice(frame).map(Some).map_err(|error| FrameError::Json(error.to_string())),
        }
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
    fn bounds_and_garbage_are_refused() {
        let limits = Limits { bytes_max: 20, depth_max: 3 };
        assert_eq!(decode(b"x", limits).1, Some(FrameError::Start));
        assert_eq!(decode(b"]", limits).1, Some(FrameError::Start));
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
        fn messages_round_trip(text in ".*", number in any::<i64>()) {
            let message = Message::request(json!(number), "m", vec![json!(text), json!({"k": [text]})]);
            let (found, error) = decode(&message.to_bytes(), Limits::default());
            prop_assert_eq!(error, None);
            prop_assert_eq!(found, vec![message]);
        }
    }
}
