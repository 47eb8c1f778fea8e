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
    /// `ssl:HOST:PORT`: connect over TCP, and speak TLS.
    Ssl {
        /// Name or address, without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// `punix:FILE`: listen on a unix socket.
    PassiveUnix(PathBuf),
    /// `pfd:FD`: listen on a socket that the process inherited.
    PassiveFd(u32),
    /// `ptcp:PORT[:HOST]`: listen on TCP.
    PassiveTcp {
        /// Port; 0 lets the system choose.
        port: u16,
        /// Address to bind, without brackets; all IPv4 addresses if missing.
        host: Option<String>,
    },
    /// `pssl:PORT[:HOST]`: listen on TCP, and speak TLS.
    PassiveSsl {
        /// Port; 0 lets the system choose.
        port: u16,
        /// Address to bind, without brackets; all IPv4 addresses if missing.
        host: Option<String>,
    },
}

/// An address that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RemoteError {
    /// An unknown method, or none.
    #[error(
        "{0}: unknown connection method; expected unix:FILE, tcp:HOST:PORT, ssl:HOST:PORT, punix:FILE, ptcp:PORT[:HOST] \
         or pssl:PORT[:HOST]"
    )]
    Method(String),
    /// A method with an invalid argument.
    #[error("{0}: bad peer name format")]
    Syntax(String),
}

impl Remote {
    /// Whether this listens for connections instead of making one.
    pub fn is_passive(&self) -> bool {
        matches!(
            self,
            Remote::PassiveUnix(_) | Remote::PassiveTcp { .. } | Remote::PassiveSsl { .. } | Remote::PassiveFd(_)
        )
    }

    /// Whether any of several addresses, with commas between them, listens for connections.
    pub fn any_is_passive(texts: &str) -> bool {
        texts.split(',').any(|text| Self::parse(text.trim()).is_ok_and(|remote| remote.is_passive()))
    }

    /// Returns true if both ends are on this host, connected by a socket in its file system.
    pub fn is_local(&self) -> bool {
        matches!(self, Remote::Unix(_) | Remote::PassiveUnix(_))
    }

    /// Reads an address.
    pub fn parse(text: &str) -> Result<Self, RemoteError> {
        let syntax = || RemoteError::Syntax(text.to_owned());
        let (method, argument) = text.split_once(':').ok_or_else(|| RemoteError::Method(text.to_owned()))?;
        let file = || if argument.is_empty() { Err(syntax()) } else { Ok(PathBuf::from(argument)) };
        match method {
            "unix" => file().map(Remote::Unix),
            "punix" => file().map(Remote::PassiveUnix),
            "pfd" => argument.parse().map(Remote::PassiveFd).map_err(|_| syntax()),
            "tcp" => active(argument).map(|(host, port)| Remote::Tcp { host, port }).ok_or_else(syntax),
            "ssl" => active(argument).map(|(host, port)| Remote::Ssl { host, port }).ok_or_else(syntax),
            "ptcp" => passive(argument).map(|(port, host)| Remote::PassiveTcp { port, host }).ok_or_else(syntax),
            "pssl" => passive(argument).map(|(port, host)| Remote::PassiveSsl { port, host }).ok_or_else(syntax),
            _ => Err(RemoteError::Method(text.to_owned())),
        }
    }
}

/// Reads `HOST[:PORT]`.
fn active(argument: &str) -> Option<(String, u16)> {
    let (host, rest) = split_host(argument)?;
    let port = match rest {
        "" => DEFAULT_PORT,
        rest => rest.strip_prefix(':')?.parse().ok()?,
    };
    Some((host.to_owned(), port)).filter(|(host, _)| !host.is_empty())
}

/// Reads `[PORT][:HOST]`.
fn passive(argument: &str) -> Option<(u16, Option<String>)> {
    let (port, host) = argument.split_once(':').map_or((argument, ""), |(port, host)| (port, host));
    let port = if port.is_empty() { DEFAULT_PORT } else { port.parse().ok()? };
    let host = match host {
        "" => None,
        host => Some(split_host(host).filter(|(_, rest)| rest.is_empty())?.0.to_owned()),
    };
    Some((port, host))
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
            Remote::Ssl { host, port } => write!(f, "ssl:{}:{port}", bracketed(host)),
            Remote::PassiveTcp { port, host: None } => write!(f, "ptcp:{port}"),
            Remote::PassiveTcp { port, host: Some(host) } => write!(f, "ptcp:{port}:{}", bracketed(host)),
            Remote::PassiveFd(number) => write!(f, "pfd:{number}"),
            Remote::PassiveSsl { port, host: None } => write!(f, "pssl:{port}"),
            Remote::PassiveSsl { port, host: Some(host) } => write!(f, "pssl:{port}:{}", bracketed(host)),
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
            "ssl:[::1]:6640",
            "ssl:host:1",
            "pssl:6640",
            "pssl:0:[::1]",
            "pfd:9",
        ] {
            let remote = Remote::parse(text).unwrap();
            assert_eq!(remote.to_string(), text);
            assert_eq!((remote.is_passive(), remote.is_local()), (text.starts_with('p'), text.contains("unix:")));
        }
        for (texts, passive) in [("unix:a,tcp:b", false), ("unix:a, ptcp:1", true), ("pssl:", true), ("", false)] {
            assert_eq!(Remote::any_is_passive(texts), passive, "{texts}");
        }
        assert_eq!(Remote::parse("tcp:host").unwrap().to_string(), "tcp:host:6640");
        assert_eq!(Remote::parse("ptcp:").unwrap().to_string(), "ptcp:6640");
        assert_eq!(Remote::parse("ssl:[::1]").unwrap().to_string(), "ssl:[::1]:6640");
        assert_eq!(Remote::parse("pssl:").unwrap().to_string(), "pssl:6640");
    }

    #[test]
    fn bad_addresses_say_why() {
        for text in
            ["unix:", "tcp:", "tcp:a:b", "tcp:[::1", "ptcp:99999", "ssl:", "ssl:a:", "pssl:1:[::1", "pssl:1:a:b"]
        {
            assert!(matches!(Remote::parse(text), Err(RemoteError::Syntax(_))), "{text}");
        }
        for text in ["", "foo", "http:x"] {
            assert!(matches!(Remote::parse(text), Err(RemoteError::Method(_))), "{text}");
        }
    }
}
