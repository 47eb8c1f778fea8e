//! TLS of the switch's own connection to its database. Files that the row SSL names take the place of those of the command
//! line there, too, from the next connection on, as there is one set of keys for all of a program's connections. But a
//! row that cannot be used must not cut the switch off from where the row could be repaired: the previous settings stay in use then.

use std::sync::Arc;

use tls::{Config, Tls};

/// The connection's TLS, and what is wrong with what it should be.
#[derive(Debug)]
pub struct OwnTls {
    tls: Arc<Tls>,
    used: Config,
    /// Whether the database is reached by TLS at all.
    matters: bool,
    refused: Option<Config>,
}

impl OwnTls {
    /// That of a connection that was begun with `used`.
    pub fn new(tls: Arc<Tls>, used: Config, matters: bool) -> Self {
        Self { tls, used, matters, refused: None }
    }

    /// Uses this from the next connection on, if it can be used.
    pub fn configure(&mut self, wanted: Config) {
        if !self.matters || wanted == self.used {
            self.refused = None;
            return;
        }
        match Tls::new(wanted.clone()).check() {
            Ok(()) => {
                self.tls.configure(wanted.clone());
                (self.used, self.refused) = (wanted, None);
            }
            Err(error) => {
                if self.refused.as_ref() != Some(&wanted) {
                    tracing::warn!(
                        target: "stream_ssl",
                        "the connection to the database keeps its keys and certificates: {error}"
                    );
                }
                self.refused = Some(wanted);
            }
        }
    }
}
