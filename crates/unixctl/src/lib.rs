//! The control socket behind `ovs-appctl`: server and client.
//!
//! The protocol is JSON-RPC 1.0 on a Unix stream socket, with any number of requests in sequence on a connection. A
//! request's method is the command, its params are the arguments as strings. The reply has either a `result`, the
//! text to print, or an `error`, the error text; a program that prints a text ends it in a newline if it has none.
//!
//! - [`message`]: framing and validation of clients' messages ([`message::decode`]), and the replies' bytes;
//! - [`commands`]: the commands of a daemon, by name, with their usage and the number of their arguments;
//! - [`server`]: the socket and its connections, on tokio; a malformed message ends its own connection only;
//! - [`client`]: a blocking client;
//! - [`socket`]: Unix sockets whose path may be longer than the kernel accepts.

pub mod client;
pub mod commands;
pub mod message;
pub mod server;
pub mod socket;

pub use client::Client;
pub use commands::{Arity, Call, Commands, OutputFormat};
pub use message::{DecodeError, Request, decode};
pub use server::Server;
