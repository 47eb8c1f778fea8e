//! The listening socket and its connections.
//!
//! Each connection is a task that reads a request, runs it, writes the reply, and only then looks at the next: a slow
//! reader delays only itself, and its buffer is limited to one request and one reply.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tracing::{debug, warn};

use crate::commands::{Commands, OutputFormat};
use crate::message::{DecodeError, Framer, REQUEST_BYTES_MAX, Request, reply_bytes};
use crate::socket;

/// How long the server waits after accepting failed, which is when descriptors or memory have run out.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// A bound control socket; the socket's file is removed when it is dropped.
#[derive(Debug)]
pub struct Server {
    listener: std::os::unix::net::UnixListener,
    commands: Commands,
    path: Arc<SocketFile>,
}

#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        // It may have been removed already; a failure cannot be reported from here.
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Server {
    /// Binds the socket at `path`. Clients may connect from now on; they are answered while [`Self::run`] runs.
    pub fn bind(path: impl Into<PathBuf>, commands: Commands) -> io::Result<Self> {
        let path = path.into();
        let listener = socket::listen(&path)?;
        Ok(Self { listener, commands, path: Arc::new(SocketFile(path)) })
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path.0
    }

    /// The commands it serves.
    pub fn commands(&self) -> &Commands {
        &self.commands
    }

    /// Serves until it is dropped; must run in a tokio runtime with I/O. Ends only if the socket cannot be registered
    /// there.
    pub async fn run(self) -> io::Result<()> {
        let listener = tokio::net::UnixListener::from_std(self.listener)?;
        // Connections are aborted with the server.
        let mut connections = tokio::task::JoinSet::new();
        let mut failing = false;
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                Some(_) = connections.join_next() => continue,
            };
            match accepted {
                Ok((stream, _)) => {
                    let serial = base::serial::next_unix_connection();
                    connections.spawn(serve(stream, serial, self.commands.clone()));
                    failing = false;
                }
                Err(error) => {
                    // Logged once for each series of failures, which may be long.
                    if !std::mem::replace(&mut failing, true) {
                        warn!(target: "unixctl", "{}: accept failed: {error}", self.path.0.display());
                    }
                    tokio::time::sleep(ACCEPT_RETRY).await;
                }
            }
        }
    }
}

/// One connection, to its end.
async fn serve(mut stream: UnixStream, serial: u64, commands: Commands) {
    let name = format!("unix#{serial}");
    match serve_requests(&mut stream, &name, &commands).await {
        Ok(()) => {}
        Err(Failure::Decode(error @ (DecodeError::Notification | DecodeError::Reply))) => {
            warn!(target: "unixctl", "{name}: {error}");
        }
        Err(Failure::Decode(error)) => warn!(target: "jsonrpc", "{name}: {error}"),
        Err(Failure::Io(error)) => debug!(target: "jsonrpc", "{name}: {error}"),
    }
}

enum Failure {
    Decode(DecodeError),
    Io(io::Error),
}

impl From<DecodeError> for Failure {
    fn from(error: DecodeError) -> Self {
        Self::Decode(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

async fn serve_requests(stream: &mut UnixStream, name: &str, commands: &Commands) -> Result<(), Failure> {
    let mut framer = Framer::new(REQUEST_BYTES_MAX);
    let mut format = OutputFormat::default();
    let mut chunk = vec![0; 4096];
    loop {
        while let Some(value) = framer.next_value()? {
            let request = Request::from_json(value)?;
            let Request { method, params, id } = &request;
            let arguments = serde_json::Value::from(params.clone());
            debug!(target: "unixctl", "received request {method}{arguments}, id={id}");
            let _pending = commands.pending();
            let answer = commands.run(&request.method, &request.params, &mut format).await;
            match &answer {
                Ok(result) => debug!(target: "unixctl", "replying with success, id={}: {result}", request.id),
                Err(error) => {
                    debug!(target: "unixctl", "replying with error, id={}: \"{}\"", request.id, error.trim_end());
                }
            }
            stream.write_all(&reply_bytes(request.id, answer)).await?;
        }
        let length = stream.read(&mut chunk).await?;
        if length == 0 {
            debug!(target: "jsonrpc", "{name}: connection closed");
            return Ok(());
        }
        framer.push(chunk.get(..length).unwrap_or_default());
    }
}
