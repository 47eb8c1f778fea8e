//! A plain connection to a server: requests and their replies, one at a time, and other messages in between.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use base::rng::Rng;
use ovsdb::DatabaseSchema;
use ovsdb::jsonrpc::{ConnectionError, Limits, Message, Receiver, Remote, Sender};
use serde_json::{Value, json};
use stream::DSCP;
use tls::Tls;
use tokio::io::{AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::Instant;

use crate::error::{Error, ProtocolError};
use crate::remotes::{Order, Remotes};
use crate::standing::Standing;

/// Maximum duration of an attempt to connect, or to check a server, if there are other servers.
const ATTEMPT_MAX: Duration = Duration::from_secs(5);

/// A connection's bytes.
pub(crate) type Stream = Box<dyn stream::Stream>;

/// Connects to an active remote, or waits for a connection to a passive one.
pub(crate) async fn open(remote: &Remote, tls: &Arc<Tls>) -> io::Result<Stream> {
    let name = remote.to_string();
    if remote.is_passive() {
        let listener = stream::listen(&name, DSCP, tls)?.removed_at_end();
        return listener.accept().await?.into_stream().await;
    }
    stream::connect(&name, DSCP, tls, |_| ()).await
}

/// Gives up after [`ATTEMPT_MAX`] if there is such a limit.
pub(crate) async fn limit<T>(limited: bool, attempt: impl Future<Output = T>) -> io::Result<T> {
    if !limited {
        return Ok(attempt.await);
    }
    tokio::time::timeout(ATTEMPT_MAX, attempt).await.map_err(|_| io::ErrorKind::TimedOut.into())
}

/// The operating system's text for an error, like C's `strerror`.
pub(crate) fn io_text(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// A copy with the members of all objects sorted.
pub(crate) fn sorted(json: &Value) -> Value {
    match json {
        Value::Object(members) => {
            let mut sorted_members: Vec<_> = members.iter().collect();
            sorted_members.sort_by(|a, b| a.0.cmp(b.0));
            sorted_members.into_iter().map(|(name, member)| (name.clone(), sorted(member))).collect()
        }
        Value::Array(elements) => elements.iter().map(sorted).collect(),
        scalar => scalar.clone(),
    }
}

/// Logs a message as Open vSwitch does, for `-vjsonrpc:dbg`.
pub(crate) fn log_message(remote: &str, verb: &str, message: &Message) {
    if !tracing::enabled!(target: "jsonrpc", tracing::Level::DEBUG) {
        return;
    }
    let kind = message.kind();
    let array = |params: &[Value]| Value::from(params.to_vec());
    let text = match message {
        Message::Request { id, method, params } => format!("method=\"{method}\", params={}, id={id}", array(params)),
        Message::Notification { method, params } => format!("method=\"{method}\", params={}", array(params)),
        Message::Reply { id, result } => format!("result={result}, id={id}"),
        Message::Error { id, error } => format!("error={error}, id={id}"),
    };
    tracing::debug!(target: "jsonrpc", "{remote}: {verb} {kind}, {text}");
}

/// A connection for requests.
#[derive(Debug)]
pub struct Client {
    remotes: Remotes,
    tls: Arc<Tls>,
    receiver: Receiver<ReadHalf<Stream>>,
    writer: WriteHalf<Stream>,
    ids: u64,
    /// Messages received while a reply was awaited.
    queue: VecDeque<Message>,
}

impl Client {
    /// Connects to one of `remotes`, connection methods separated by commas, each of which is tried once; waits for a
    /// connection if it is passive; by `tls` if it is `ssl` or `pssl`.
    ///
    /// # Errors
    ///
    /// [`Error::Remote`], or [`Error::Connection`] with the error of the last one.
    pub async fn connect(remotes: &str, tls: &Arc<Tls>) -> Result<Self, Error> {
        Self::connect_to(remotes, tls, Order::Shuffled, async |_| true).await
    }

    /// As [`Client::connect`], to the first server in this order that `accept` accepts. A single server is not
    /// checked. Of several, one that does not reply within 5 seconds is skipped.
    ///
    /// # Errors
    ///
    /// As [`Client::connect`].
    pub async fn connect_to(
        remotes: &str,
        tls: &Arc<Tls>,
        order: Order,
        mut accept: impl AsyncFnMut(&mut Self) -> bool,
    ) -> Result<Self, Error> {
        let named = remotes.to_owned();
        let mut remotes = Remotes::parse(remotes)?;
        remotes.arrange(order, &mut Rng::from_entropy());
        let mut tries = remotes.count();
        loop {
            let remote = remotes.name().to_owned();
            let several = remotes.count() > 1;
            let limited = several && !remotes.remote().is_passive();
            let attempt = Box::pin(Self::connect_current(&remotes, tls));
            let problem = match limit(limited, attempt).await.and_then(|made| made) {
                Ok(mut client) => {
                    let accepted = if several { limit(limited, Box::pin(accept(&mut client))).await } else { Ok(true) };
                    if accepted.unwrap_or(false) {
                        client.remotes.succeeded(Instant::now());
                        return Ok(client);
                    }
                    tracing::info!(target: "reconnect", "{remote}: another server is wanted");
                    "no server has the database and leads its cluster".to_owned()
                }
                Err(error) => {
                    let problem = io_text(&error);
                    if several {
                        tracing::info!(
                            target: "reconnect",
                            "{}: connection attempt failed ({problem})", remotes.name()
                        );
                    }
                    problem
                }
            };
            tries -= 1;
            if tries == 0 {
                return Err(Error::Connection { remote: named, problem });
            }
            remotes.failed(Instant::now());
        }
    }

    async fn connect_current(remotes: &Remotes, tls: &Arc<Tls>) -> io::Result<Self> {
        // Of a single server the user knows which it is.
        let several = remotes.count() > 1;
        if several {
            tracing::info!(target: "reconnect", "{}: connecting...", remotes.name());
        }
        let stream = open(remotes.remote(), tls).await?;
        if several {
            tracing::info!(target: "reconnect", "{}: connected", remotes.name());
        }
        let (read, writer) = tokio::io::split(stream);
        let receiver = Receiver::new(read, Limits::default());
        let (remotes, tls) = (remotes.clone(), Arc::clone(tls));
        Ok(Self { remotes, tls, receiver, writer, ids: 0, queue: VecDeque::new() })
    }

    /// The server's status of a database.
    ///
    /// # Errors
    ///
    /// [`Error::Connection`].
    pub async fn standing(&mut self, database: &str) -> Result<Standing, Error> {
        let condition = json!([["name", "==", database]]);
        let columns = json!(["name", "model", "connected", "leader"]);
        let select = json!({"op": "select", "table": "Database", "where": condition, "columns": columns});
        let answer = self.call("transact", vec!["_Server".into(), select]).await?;
        Ok(Standing::read(&answer))
    }

    /// The connected remote, as given.
    pub fn name(&self) -> &str {
        self.remotes.name()
    }

    fn lost(&self, problem: String) -> Error {
        Error::Connection { remote: self.remotes.name().to_owned(), problem }
    }

    /// Sends a message.
    ///
    /// # Errors
    ///
    /// [`Error::Connection`].
    pub async fn send(&mut self, message: &Message) -> Result<(), Error> {
        log_message(self.remotes.name(), "send", message);
        let mut sender = Sender::new(&mut self.writer);
        sender.send(message).await.map_err(|error| self.lost(io_text(&error)))
    }

    /// Returns the next message from the server; answers echo requests, and does not return them. Cancel safe except
    /// for such replies.
    ///
    /// # Errors
    ///
    /// [`Error::Connection`], also when the server closes the connection.
    pub async fn receive(&mut self) -> Result<Message, Error> {
        match self.queue.pop_front() {
            Some(message) => Ok(message),
            None => self.receive_new().await,
        }
    }

    async fn receive_new(&mut self) -> Result<Message, Error> {
        loop {
            let message = match self.receiver.receive().await {
                Ok(Some(message)) => message,
                Ok(None) => return Err(self.lost("End of file".into())),
                Err(ConnectionError::Io(error)) => return Err(self.lost(io_text(&error))),
                Err(error) => return Err(self.lost(error.to_string())),
            };
            log_message(self.remotes.name(), "received", &message);
            match message {
                Message::Request { id, method, params } if method == "echo" => {
                    self.send(&Message::reply(id, params)).await?;
                }
                message => return Ok(message),
            }
        }
    }

    /// Sends a request and returns its reply: the result, or the error within `Ok(Err(..))`. Other messages received
    /// before are kept for [`Client::receive`].
    ///
    /// # Errors
    ///
    /// [`Error::Connection`].
    pub async fn call(&mut self, method: &str, params: Vec<Value>) -> Result<Result<Value, Value>, Error> {
        self.ids += 1;
        let id = Value::from(self.ids);
        self.send(&Message::request(id.clone(), method, params)).await?;
        loop {
            match self.receive_new().await? {
                Message::Reply { id: answered, result } if answered == id => return Ok(Ok(result)),
                Message::Error { id: answered, error } if answered == id => return Ok(Err(error)),
                other => self.queue.push_back(other),
            }
        }
    }

    /// [`Client::call`] for a request that should succeed.
    ///
    /// # Errors
    ///
    /// [`Error::Connection`], or [`Error::Request`] if the server answers with an error.
    pub async fn request(&mut self, method: &str, params: Vec<Value>) -> Result<Value, Error> {
        let answer = self.call(method, params).await?;
        answer.map_err(|error| Error::Request { method: method.to_owned(), error })
    }

    /// The schema of a database.
    ///
    /// # Errors
    ///
    /// As [`Client::request`], or [`Error::Protocol`] if the answer is not a schema.
    pub async fn schema(&mut self, database: &str) -> Result<Arc<DatabaseSchema>, Error> {
        let json = self.request("get_schema", vec![database.into()]).await?;
        let schema = DatabaseSchema::from_json(&json).map_err(|error| Error::Protocol {
            remote: self.remotes.name().to_owned(),
            error: ProtocolError::new(&error.to_string(), &json),
        })?;
        Ok(Arc::new(schema))
    }

    /// Closes the sending side after all that was sent.
    ///
    /// # Errors
    ///
    /// [`Error::Connection`].
    pub async fn shutdown(&mut self) -> Result<(), Error> {
        self.writer.shutdown().await.map_err(|error| self.lost(io_text(&error)))
    }

    pub(crate) fn into_parts(self) -> Parts {
        Parts { remotes: self.remotes, tls: self.tls, receiver: self.receiver, writer: self.writer }
    }
}

/// The parts of a connection that is converted.
pub(crate) struct Parts {
    pub(crate) remotes: Remotes,
    pub(crate) tls: Arc<Tls>,
    pub(crate) receiver: Receiver<ReadHalf<Stream>>,
    pub(crate) writer: WriteHalf<Stream>,
}
