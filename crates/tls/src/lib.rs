//! TLS as the programs of Open vSwitch use it (`ssl:` and `pssl:`): both ends show a certificate, and each verifies that
//! the other's was signed by the CA that it was told to trust. Names in certificates mean nothing here: whoever the CA
//! vouches for may connect. What a peer is called can be asked for, by those who let some do more than others.
//!
//! - [`Config`]: which files and algorithms, as options or a row of the database say;
//! - [`Tls`]: that, ready for use; files are read again for each connection, so that renewed ones count at once;
//! - `verify`: whom to trust, and how trust begins where the CA's certificate is taken from the first peer;
//! - `names`: what certificates say of whose they are;
//! - [`connect`] and [`accept`]: a TLS connection over any asynchronous stream; [`blocking`]: over a blocking socket.
//!
//! Every connection begins with a full handshake: a session is never resumed, since the files may have changed.

pub mod blocking;
mod config;
mod handshake;
mod identity;
mod names;
mod suites;
mod verify;

pub use config::{CaCert, Config};
pub use handshake::{TlsStream, accept, connect};
pub use identity::{Tls, TlsError};

/// Messages a minute that are logged, and in one burst: whoever can connect can cause as many as it likes.
static LOG_LIMIT: vlog::RateLimit = vlog::RateLimit::new(60, 10);
