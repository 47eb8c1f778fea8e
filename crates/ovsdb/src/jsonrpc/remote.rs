//! Addresses of OVSDB servers and clients, in the syntax of ovsdb(7), "Connection Methods".

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The TCP port registered for OVSDB.
pub const DEFAULT_PORT: u16 = 6640;

/// Where to connect to, or where to listen.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Remote {
    /// `unix:FILE`: connect to a unix socket.
    Unix(PathBuf),
    /// `tcp:HOST:PORT`: connect over TCP.
    Tcp {
        /// Name or address, without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// `punix:FILE`: listen on a unix socket.
    PassiveUnix(PathBuf),
    /// `ptcp:PORT[:HOST]`: listen on TCP.
    PassiveTcp {
        /// Port; 0 lets the system choose.
        port: u16,
        /// Address to bind, without brackets; all IPv4 addresses if missing.
        host: Option<String>,
    },
}

/// An address that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// `ssl:` or `pssl:`.
    #[error("{0}: SSL/TLS connections are not supported; use unix: or tcp:")]
    Tls(String),
    /// An unknown method, or none.
    #[error("{0}: unknown connection method; expected unix:FILE, tcp:HOST:PORT, punix:FILE or ptcp:PORT[:HOST]")]
    Method(String),
    /// A method whose argument is wrong.
    #[error("{0}: bad peer name format")]
    Syntax(String),
}

impl Remote {
    /// Whether this listens for connections instead of making one.
    pub fn is_passive(&self) -> bool {
        matches!(self, Remote::PassiveUnix(_) | Remote::PassiveTcp { .. })
    }

    /// Reads an address.
    pub fn parse(text: &str) -> Result<Self, RemoteError> {
        let syntax = || RemoteError::Syntax(text.to_owned());
        let (method, argument) = text.split_once(':').ok_or_else(|| RemoteError::Method(text.to_owned()))?;
        let file = || if argument.is_empty() { Err(syntax()) } else { Ok(PathBuf::from(argument)) };
        match method {
            "unix" => file().map(Remote::Unix),
            "punix" => file().map(Remote::PassiveUnix),
            "tcp" => {
                let (host, rest) = split_host(argument).ok_or_else(syntax)?;
                let port = match rest {
                    "" => DEFAULT_PORT,
                    rest => rest.strip_prefix(':').and_then(|port| port.parse().ok()).ok_or_else(syntax)?,
                };
                if host.is_empty() {
                    return Err(syntax());
                }
                Ok(Remote::Tcp { host: host.to_owned(), port })
            }
            "ptcp" => {
                let (port, host) = argument.split_once(':').map_or((argument, None), |(port, host)| (port, Some(host)));
                let port = if port.is_empty() { DEFAULT_PORT } else { port.parse().map_err(|_| syntax())? };
                let host = match host {
                    None | Some("") => None,
                    Some(host) => match split_host(host) {
                        Some((host, "")) => Some(host.to_owned()),
                        _ => return Err(syntax()),
                    },
                };
                Ok(Remote::PassiveTcp { port, host })
            }
            "ssl" | "pssl" => Err(RemoteError::Tls(text.to_owned())),
            _ => Err(RemoteError::Method(text.to_owned())),
        }
    }
}

/// Splits `HOST` or `[HOST]` off the front; the rest starts with `:` or is empty.
fn split_host(text: &str) -> Option<(&str, &str)> {
    if let Some(inner) = text.strip_prefix('[') {
        return inner.split_once(']');
    }
    match text.find(':') {
        Some(at) => Some(text.split_at(at)),
        None => Some((text, "")),
    }
}

impl FromStr for Remote {
    type Err = RemoteError;

    fn from_str(text: &str) -> Result<Self, RemoteError> {
        Self::parse(text)
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bracketed = |host: &str| if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        match self {
            Remote::Unix(path) => write!(f, "unix:{}", path.display()),
            Remote::PassiveUnix(path) => write!(f, "punix:{}", path.display()),
            Remote::Tcp { host, port } => write!(f, "tcp:{}:{port}", bracketed(host)),
            Remote::PassiveTcp { port, host: None } => write!(f, "ptcp:{port}"),
            Remote::PassiveTcp { port, host: Some(host) } => write!(f, "ptcp:{port}:{}", bracketed(host)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        for text in [
            "unix:/run/db.sock",
            "punix:db.sock",
            "tcp:127.0.0.1:6641",
            "tcp:[::1]:6640",
            "ptcp:6640",
            "ptcp:0:[::1]",
            "ptcp:1:10.0.0.1",
        ] {
            assert_eq!(Remote::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Remote::parse("tcp:host").unwrap().to_string(), "tcp:host:6640");
        assert_eq!(Remote::parse("ptcp:").unwrap().to_string(), "ptcp:6640");
    }

    #[test]
    fn bad_addresses_say_why() {
        for text in ["", "foo", "unix:", "tcp:", "tcp:a:b", "tcp:[::1", "ptcp:99999", "http:x"] {
            assert!(Remote::parse(text).is_err(), "{text}");
        }
        assert!(matches!(Remote::parse("pssl:6640"), Err(RemoteError::Tls(_))));
    }
}
