//! JSON-RPC 1.0 over streams, as in RFC 7047 section 4.
//!
//! [`Framer`] splits a stream of bytes into messages and [`Message`] parses them; neither does any I/O. [`Remote`] is
//! the syntax of addresses (`unix:FILE`, `ptcp:PORT[:HOST]`), which the crate `stream` opens, and [`Connection`]
//! sends and receives messages over the opened stream.

mod connection;
mod framer;
mod message;
mod remote;

pub use connection::{Connection, ConnectionError, Receiver, Sender};
pub use framer::{FrameError, Framer, Limits, decode};
pub use message::{Message, MessageError};
pub use remote::{DEFAULT_PORT, Remote, RemoteError};
