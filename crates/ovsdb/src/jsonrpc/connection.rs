//! Connections that carry messages, over any stream of tokio. All futures are cancel safe: no input is lost.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};

use super::framer::{FrameError, Framer, Limits};
use super::message::Message;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// Reading or writing failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The peer sent something that is not JSON-RPC.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The peer closed the connection in the middle of a message.
    #[error("connection closed in the middle of a message")]
    Truncated,
}

/// Reads messages from a stream.
#[derive(Debug)]
pub struct Receiver<R> {
    stream: R,
    framer: Framer,
    chunk: Vec<u8>,
    bytes_read: u64,
}

impl<R: AsyncRead + Unpin> Receiver<R> {
    /// Reads messages within `limits` from `stream`.
    pub fn new(stream: R, limits: Limits) -> Self {
        Self { stream, framer: Framer::new(limits), chunk: vec![0; 64 * 1024], bytes_read: 0 }
    }

    /// The next message; `None` when the peer has closed the connection between two messages. Cancel safe.
    pub async fn receive(&mut self) -> Result<Option<Message>, ConnectionError> {
        loop {
            if let Some(message) = self.framer.next_message()? {
                return Ok(Some(message));
            }
            let count = self.stream.read(&mut self.chunk).await?;
            if count == 0 {
                return if self.framer.is_between_messages() { Ok(None) } else { Err(ConnectionError::Truncated) };
            }
            self.bytes_read += count as u64;
            self.framer.push(self.chunk.get(..count).unwrap_or_default());
        }
    }

    /// Number of bytes read so far, including those of incomplete messages: a peer that sends a long message is not
    /// silent.
    pub fn bytes_read(&self) -> u64 {
        self.bytes_read
    }

    /// A message that has been received already, without waiting.
    pub fn try_receive(&mut self) -> Result<Option<Message>, ConnectionError> {
        Ok(self.framer.next_message()?)
    }
}

/// Writes messages to a stream.
#[derive(Debug)]
pub struct Sender<W> {
    stream: W,
}

impl<W: AsyncWrite + Unpin> Sender<W> {
    /// Writes messages to `stream`.
    pub fn new(stream: W) -> Self {
        Self { stream }
    }

    /// Sends a message. Not cancel safe: a message cut short spoils the connection.
    pub async fn send(&mut self, message: &Message) -> io::Result<()> {
        self.send_bytes(&message.to_bytes()).await
    }

    /// Sends messages that are encoded already.
    pub async fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes).await?;
        self.stream.flush().await
    }
}

/// Both directions of a connection.
#[derive(Debug)]
pub struct Connection<S> {
    sender: Sender<WriteHalf<S>>,
    receiver: Receiver<ReadHalf<S>>,
}

impl<S: AsyncRead + AsyncWrite> Connection<S> {
    /// Speaks JSON-RPC over `stream`.
    pub fn new(stream: S, limits: Limits) -> Self {
        let (read, write) = tokio::io::split(stream);
        Self { sender: Sender::new(write), receiver: Receiver::new(read, limits) }
    }

    /// Sends a message.
    pub async fn send(&mut self, message: &Message) -> io::Result<()> {
        self.sender.send(message).await
    }

    /// The next message; `None` when the peer has closed the connection. Cancel safe.
    pub async fn receive(&mut self) -> Result<Option<Message>, ConnectionError> {
        self.receiver.receive().await
    }

    /// The two directions apart, for two tasks.
    pub fn split(self) -> (Sender<WriteHalf<S>>, Receiver<ReadHalf<S>>) {
        (self.sender, self.receiver)
    }
}
