//! TLS as the programs of Open vSwitch use it (`ssl:` and `pssl:`): both ends show a certificate, and each verifies that
//! its configured CA signed the other's. Connections do not depend on names in certificates: any peer with a
//! certificate of the CA may connect. Callers that grant permissions by peer can query its name.
//!
//! - [`Config`]: files and algorithms, from options or a row of the database;
//! - [`Tls`]: the loaded configuration; files are read again for each connection, so that renewed ones take effect at once;
//! - `verify`: verification of peers, and bootstrapping, which takes the CA's certificate from the first server;
//! - `names`: the names of owners in certificates;
//! - [`connect`] and [`accept`]: a TLS connection over any asynchronous stream; [`blocking`]: over a blocking socket.
//!
//! Every connection starts with a full handshake: sessions are never resumed, since the files may have changed.

pub mod blocking;
mod config;
mod files;
mod handshake;
mod identity;
mod names;
mod suites;
mod verify;

pub use config::{CaCert, Config};
pub use handshake::{TlsStream, accept, connect};
pub use identity::{Tls, TlsError};

/// Logged messages a minute, and in one burst: any client that can connect can cause them.
static LOG_LIMIT: vlog::RateLimit = vlog::RateLimit::new(60, 10);
