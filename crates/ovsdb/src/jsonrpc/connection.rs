//! Streams, listeners and message connections on tokio. All futures may be dropped and asked anew without losing input.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use super::framer::{FrameError, Framer, Limits};
use super::message::Message;
use super::remote::Remote;

/// A byte stream to a peer.
#[derive(Debug)]
pub enum Stream {
    /// Over a unix socket.
    Unix(UnixStream),
    /// Over TCP, with Nagle's algorithm off.
    Tcp(TcpStream),
}

impl Stream {
    /// Connects to an active remote (`unix:` or `tcp:`).
    pub async fn connect(remote: &Remote) -> io::Result<Self> {
        match remote {
            Remote::Unix(path) => UnixStream::connect(path).await.map(Stream::Unix),
            Remote::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            passive => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{passive}: cannot connect to it"))),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
            Stream::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tcp(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// A socket that takes connections.
#[derive(Debug)]
pub enum Listener {
    /// On a unix socket, whose file is removed when the listener is dropped.
    Unix(UnixListener, std::path::PathBuf),
    /// On TCP.
    Tcp(TcpListener),
}

impl Listener {
    /// Listens on a passive remote (`punix:` or `ptcp:`). A unix socket file that is there already is
    /// replaced, since one is left behind when a server is killed.
    pub async fn bind(remote: &Remote) -> io::Result<Self> {
        match remote {
            Remote::PassiveUnix(path) => {
                use std::os::unix::fs::FileTypeExt;
                if std::fs::symlink_metadata(path).is_ok_and(|data| data.file_type().is_socket()) {
                    std::fs::remove_file(path)?;
                }
                let listener = UnixListener::bind(path)?;
                use std::os::unix::fs::PermissionsExt;
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o750))?;
                // A daemon changes its directory after it has detached; the file is to be removed all the same.
                Ok(Listener::Unix(listener, std::path::absolute(path)?))
            }
            Remote::PassiveTcp { port, host } => {
                let host = host.as_deref().unwrap_or("0.0.0.0");
                TcpListener::bind((host, *port)).await.map(Listener::Tcp)
            }
            active => Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{active}: cannot listen on it"))),
        }
    }

    /// The next connection, and the peer's name for log messages.
    pub async fn accept(&self) -> io::Result<(Stream, String)> {
        match self {
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                Ok((Stream::Unix(stream), "unix".to_owned()))
            }
            Listener::Tcp(listener) => {
                let (stream, peer) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok((Stream::Tcp(stream), format!("tcp:{peer}")))
            }
        }
    }

    /// The port that a TCP listener got.
    pub fn local_port(&self) -> Option<u16> {
        match self {
            Listener::Unix(..) => None,
            Listener::Tcp(listener) => listener.local_addr().ok().map(|address| address.port()),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Listener::Unix(_, path) = self {
            // Nothing can be done if it is gone already.
            let _ = std::fs::remove_file(path);
        }
    }
}

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
}

impl<R: AsyncRead + Unpin> Receiver<R> {
    /// Reads messages within `limits` from `stream`.
    pub fn new(stream: R, limits: Limits) -> Self {
        Self { stream, framer: Framer::new(limits), chunk: vec![0; 64 * 1024] }
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
            self.framer.push(self.chunk.get(..count).unwrap_or_default());
        }
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
pub struct Connection {
    sender: Sender<WriteHalf<Stream>>,
    receiver: Receiver<ReadHalf<Stream>>,
}

impl Connection {
    /// Speaks JSON-RPC over `stream`.
    pub fn new(stream: Stream, limits: Limits) -> Self {
        let (read, write) = tokio::io::split(stream);
        Self { sender: Sender::new(write), receiver: Receiver::new(read, limits) }
    }

    /// Connects to an active remote.
    pub async fn connect(remote: &Remote) -> io::Result<Self> {
        Ok(Self::new(Stream::connect(remote).await?, Limits::default()))
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
    pub fn split(self) -> (Sender<WriteHalf<Stream>>, Receiver<ReadHalf<Stream>>) {
        (self.sender, self.receiver)
    }
}
