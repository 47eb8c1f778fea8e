//! Files and algorithms to use.

use crate::suites::{Ciphers, Protocols, SuiteError};
use std::path::{Path, PathBuf};

/// The CA that signs the certificates of peers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CaCert {
    /// All peers are trusted (`--ca-cert=none`).
    None,
    /// The CA whose certificates are in this file.
    File(PathBuf),
    /// The same, and while there is no such file, the CA of the first server, whose certificate is then stored there.
    Bootstrap(PathBuf),
}

/// Files and algorithms to use, from options of the command line or a row of the table SSL.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Config {
    /// PEM file of the private key.
    pub private_key: Option<PathBuf>,
    /// PEM file of the certificate for that key, and of intermediate certificates up to the peer's CA if there are any.
    pub certificate: Option<PathBuf>,
    /// The CA of peers.
    pub ca_cert: Option<CaCert>,
    /// PEM file of further certificates to send: the CA's, for peers that bootstrap.
    pub peer_ca_cert: Option<PathBuf>,
    /// Versions of TLS.
    pub protocols: Protocols,
    /// Cipher suites.
    pub ciphers: Ciphers,
    /// The server name in handshakes (RFC 6066 section 3); by default, and if it is no host's name, the host in the server's
    /// address.
    pub server_name: Option<String>,
}

impl Config {
    /// Sets an option of a command line by its long name; `false` if it is no TLS option. File names become absolute, since
    /// a daemon changes its directory. Versions or ciphers that cannot be used are logged, and the default stays; so are files
    /// that cannot be read.
    pub fn accept(&mut self, option: &str, value: &str) -> bool {
        match self.set(option, value) {
            Err(error) => {
                tracing::error!(target: "stream_ssl", "{error}");
                true
            }
            Ok(taken) => {
                crate::files::report(option, value);
                if option == "ssl-protocols" {
                    let newest = value.strip_suffix('+').map(|oldest| format!("{oldest} or later"));
                    let range = newest.unwrap_or_else(|| self.protocols.to_string());
                    tracing::debug!(target: "stream_ssl", "Enabled protocol range: {range}");
                }
                taken
            }
        }
    }

    /// Sets an option by its long name; `false` if it is no TLS option.
    ///
    /// Errors: versions or ciphers that cannot be used.
    pub fn set(&mut self, option: &str, value: &str) -> Result<bool, SuiteError> {
        let path = || absolute(Path::new(value));
        match option {
            "private-key" => self.private_key = Some(path()),
            "certificate" => self.certificate = Some(path()),
            "ca-cert" if value == "none" => self.ca_cert = Some(CaCert::None),
            "ca-cert" => self.ca_cert = Some(CaCert::File(path())),
            "bootstrap-ca-cert" => self.ca_cert = Some(CaCert::Bootstrap(path())),
            "peer-ca-cert" => self.peer_ca_cert = Some(path()),
            "ssl-protocols" => self.protocols = value.parse()?,
            "ssl-ciphers" => self.ciphers.set_tls12(value)?,
            "ssl-ciphersuites" => self.ciphers.set_tls13(value)?,
            "ssl-server-name" => self.server_name = Some(value.to_owned()),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// This configuration's keys and certificates with the other settings of `given`: a row of the database overrides the
    /// command line.
    #[must_use]
    pub fn over(&self, given: &Self) -> Self {
        let Self { private_key, certificate, ca_cert, .. } = self.clone();
        Self { private_key, certificate, ca_cert, ..given.clone() }
    }

    /// The part of a program's `--help` about these options.
    pub fn usage() -> &'static str {
        "PKI configuration (required to use SSL):\n\
         \x20 -p, --private-key=FILE  file with private key\n\
         \x20 -c, --certificate=FILE  file with certificate for private key\n\
         \x20 -C, --ca-cert=FILE      file with peer CA certificate\n"
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_fill_it() {
        let mut config = Config::default();
        assert!(config.accept("private-key", "/k.pem"));
        assert!(config.accept("ca-cert", "none"));
        assert_eq!((config.private_key.as_deref(), &config.ca_cert), (Some(Path::new("/k.pem")), &Some(CaCert::None)));
        assert!(config.accept("bootstrap-ca-cert", "ca.pem"));
        assert!(matches!(&config.ca_cert, Some(CaCert::Bootstrap(path)) if path.is_absolute()));
        assert!(!config.accept("timeout", "1"));
        assert!(config.set("ssl-protocols", "SSLv3").is_err());
        assert!(config.accept("ssl-protocols", "SSLv3"));
        assert_eq!(config.protocols, Protocols::default());
        assert!(config.accept("ssl-server-name", "db.example.org"));
        assert_eq!(config.server_name.as_deref(), Some("db.example.org"));
        for wrong in ["", "127.0.0.1", "::1", "a b", "a..b"] {
            assert_eq!(crate::handshake::dns_name(wrong), None, "{wrong}");
        }
    }
}
