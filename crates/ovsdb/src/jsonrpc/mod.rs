//! JSON-RPC 1.0 over streams, as RFC 7047 section 4 uses it.
//!
//! [`Framer`] cuts a stream of bytes into messages and [`Message`] gives them meaning; neither does any I/O. [`Remote`]
//! is the syntax of addresses (`unix:FILE`, `ptcp:PORT[:HOST]`), which the crate `stream` opens, and [`Connection`] sends
//! and receives messages over what it gives.

mod connection;
mod framer;
mod message;
mod remote;

pub use connection::{Connection, ConnectionError, Receiver, Sender};
pub use framer::{FrameError, Framer, Limits, decode};
pub use message::{Message, MessageError};
pub use remote::{DEFAULT_PORT, Remote, RemoteError};
