//! JSON-RPC 1.0 over streams, as RFC 7047 section 4 uses it.
//!
//! [`Framer`] cuts a stream of bytes into messages and [`Message`] gives them meaning; neither does any I/O. [`Remote`]
//! is the syntax of addresses (`unix:FILE`, `ptcp:PORT[:HOST]`), [`Stream`] and [`Listener`] open them on tokio, and
//! [`Connection`] sends and receives messages.

mod connection;
mod framer;
mod message;
mod remote;

pub use connection::{Connection, ConnectionError, Listener, Receiver, Sender, Stream};
pub use framer::{FrameError, Framer, Limits, decode};
pub use message::{Message, MessageError};
pub use remote::{DEFAULT_PORT, Remote, RemoteError};
