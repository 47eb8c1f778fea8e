//! A blocking client of a control socket, for `ovs-appctl` and its like.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::message::{DecodeError, Framer, REPLY_BYTES_MAX, Request};
use crate::socket;

/// Why a call got no answer. The error that a command answers with is not among them: see [`Client::call`].
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Reading or writing failed.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The server closed the connection before it answered.
    #[error("End of file")]
    Closed,
    /// The message is no reply to the call.
    #[error("{0}")]
    Protocol(String),
}

impl From<DecodeError> for CallError {
    fn from(error: DecodeError) -> Self {
        Self::Protocol(error.to_string())
    }
}

/// A connection to a control socket.
#[derive(Debug)]
pub struct Client {
    stream: UnixStream,
    framer: Framer,
    next_id: u64,
}

impl Client {
    /// Connects to the socket at `path`.
    pub fn connect(path: &Path) -> io::Result<Self> {
        Ok(Self { stream: socket::connect(path)?, framer: Framer::new(REPLY_BYTES_MAX), next_id: 0 })
    }

    /// Sets the maximum duration of each read and write of later calls, which is not zero; by default, they wait
    /// without limit.
    pub fn set_patience(&self, longest: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(longest))?;
        self.stream.set_write_timeout(Some(longest))
    }

    /// Runs a command and waits for its reply: the inner result is the command's, a string unless JSON was requested
    /// for, or the text of its error.
    pub fn call(&mut self, method: &str, args: &[String]) -> Result<Result<Value, String>, CallError> {
        let id = json!(self.next_id);
        self.next_id += 1;
        let params = args.iter().cloned().map(Value::String).collect();
        let request = Request { method: method.to_owned(), params, id: id.clone() };
        self.stream.write_all(&request.to_bytes())?;
        let reply = self.receive()?;
        outcome(reply, &id)
    }

    fn receive(&mut self) -> Result<Value, CallError> {
        let mut chunk = vec![0; 64 << 10];
        loop {
            if let Some(value) = self.framer.next_value()? {
                return Ok(value);
            }
            let length = match self.stream.read(&mut chunk) {
                Ok(0) => return Err(CallError::Closed),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error.into()),
            };
            self.framer.push(chunk.get(..length).unwrap_or_default());
        }
    }
}

fn outcome(mut reply: Value, id: &Value) -> Result<Result<Value, String>, CallError> {
    if reply.get("id") != Some(id) || reply.get("method").is_some() {
        return Err(CallError::Protocol("received a message that is not the reply".to_owned()));
    }
    match reply.get_mut("error").map(Value::take) {
        None | Some(Value::Null) => {}
        Some(Value::String(error)) => return Ok(Err(error)),
        Some(other) => return Ok(Err(other.to_string())),
    }
    match reply.get_mut("result").map(Value::take) {
        Some(result) => Ok(Ok(result)),
        None => Err(CallError::Protocol("received a reply without a result".to_owned())),
    }
}
