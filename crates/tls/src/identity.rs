//! A loaded configuration: files read, keys and certificates parsed and checked against each other.

use crate::LOG_LIMIT;
use crate::config::{CaCert, Config};
use crate::handshake::dns_name;
use crate::verify::{Bootstrap, Roots, Trust, Verifier};
use parking_lot::Mutex;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::NoServerSessionStorage;
use rustls::{ClientConfig, ServerConfig};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use vlog::{err_rl, warn_rl};

/// Why TLS is unavailable.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// An option that TLS needs is missing.
    #[error("{0} must be configured to use SSL")]
    Missing(&'static str),
    /// A file cannot be read.
    #[error("{}: {error}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// A file has invalid contents.
    #[error("{}: {problem}", path.display())]
    Contents {
        /// The file.
        path: PathBuf,
        /// The error in it.
        problem: String,
    },
    /// Key, certificate, versions and ciphers do not match each other.
    #[error("{0}")]
    Unusable(#[from] rustls::Error),
}

impl From<TlsError> for io::Error {
    fn from(e: TlsError) -> Self {
        match e {
            TlsError::Missing(_) => Self::from_raw_os_error(ENOPROTOOPT),
            e => Self::other(e.to_string()),
        }
    }
}

/// Linux's number of this error, which is reported for connections for which TLS is not configured.
const ENOPROTOOPT: i32 = 92;

/// The contents of the files, to detect changes.
#[derive(Clone, PartialEq, Eq)]
struct Contents {
    private_key: Vec<u8>,
    certificate: Vec<u8>,
    ca_cert: Option<Vec<u8>>,
    peer_ca_cert: Option<Vec<u8>>,
}

/// Configurations for both ends of a connection.
pub(crate) struct Ready {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    /// The trust of both.
    pub(crate) trust: Arc<Trust>,
    /// The configured server name for handshakes, if there is one.
    pub(crate) server_name: Option<ServerName<'static>>,
    contents: Contents,
}

/// The configured TLS. The files are checked for changes before each connection; while their contents are unusable, for
/// instance because a key was renewed and its certificate is still missing, the previous contents stay in use.
#[derive(Default)]
pub struct Tls {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    config: Config,
    ready: Option<Arc<Ready>>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("config", &self.state.lock().config).finish_non_exhaustive()
    }
}

impl Tls {
    /// Creates TLS with this configuration. It reads no file yet.
    pub fn new(config: Config) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { config, ready: None }) })
    }

    /// Replaces the configuration for connections from now on; `false` if it is equal to the current one.
    pub fn configure(&self, config: Config) -> bool {
        let mut state = self.state.lock();
        let is_new = state.config != config;
        if is_new {
            *state = State { config, ready: None };
        }
        is_new
    }

    /// Checks that connections are possible: that nothing is missing from the configuration, and all files are valid. Logs
    /// missing settings.
    pub fn check(&self) -> Result<(), TlsError> {
        self.ready().map(|_| ())
    }

    pub(crate) fn ready(&self) -> Result<Arc<Ready>, TlsError> {
        let mut state = self.state.lock();
        let fresh = complete(&state.config).and_then(|()| Contents::read(&state.config)).and_then(|contents| {
            match &state.ready {
                Some(ready) if ready.contents == contents => Ok(Arc::clone(ready)),
                _ => Ready::new(&state.config, contents).map(Arc::new),
            }
        });
        match (fresh, &state.ready) {
            (Ok(fresh), _) => {
                // Bootstrapping concerns a single connection.
                state.ready = (!matches!(*fresh.trust, Trust::First(_))).then(|| Arc::clone(&fresh));
                Ok(fresh)
            }
            (Err(e), Some(before)) => {
                warn_rl!(&LOG_LIMIT, target: "stream_ssl", "keeping the keys and certificates that were read before: {e}");
                Ok(Arc::clone(before))
            }
            (Err(e), None) => Err(e),
        }
    }
}

/// Returns true if all settings without a default are present. Logs each missing one.
fn complete(config: &Config) -> Result<(), TlsError> {
    let given = [
        ("Private key", config.private_key.is_some()),
        ("Certificate", config.certificate.is_some()),
        ("CA certificate", config.ca_cert.is_some()),
    ];
    let mut result = Ok(());
    for (what, _) in given.into_iter().filter(|(_, given)| !given) {
        err_rl!(&LOG_LIMIT, target: "stream_ssl", "{}", TlsError::Missing(what));
        result = result.and(Err(TlsError::Missing(what)));
    }
    result
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|error| TlsError::Read { path: path.to_owned(), error })
}

impl Contents {
    fn read(config: &Config) -> Result<Self, TlsError> {
        let required = |path: &Option<PathBuf>, what| path.as_deref().ok_or(TlsError::Missing(what)).and_then(read);
        Ok(Self {
            private_key: required(&config.private_key, "Private key")?,
            certificate: required(&config.certificate, "Certificate")?,
            ca_cert: match &config.ca_cert {
                None | Some(CaCert::None) => None,
                Some(CaCert::File(path)) => Some(read(path)?),
                Some(CaCert::Bootstrap(path)) => match std::fs::read(path) {
                    Ok(bytes) => Some(bytes),
                    Err(e) if e.kind() == io::ErrorKind::NotFound => None,
                    Err(error) => return Err(TlsError::Read { path: path.clone(), error }),
                },
            },
            peer_ca_cert: config.peer_ca_cert.as_deref().map(read).transpose()?,
        })
    }
}

/// The certificates in a PEM file, at least one.
fn certificates(path: Option<&Path>, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let wrong = |problem: String| TlsError::Contents { path: path.unwrap_or(Path::new("")).to_owned(), problem };
    match certificates {
        Ok(list) if list.is_empty() => Err(wrong("no certificate found".into())),
        Ok(list) => Ok(list),
        Err(e) => Err(wrong(format!("bad PEM ({e})"))),
    }
}

impl Ready {
    fn new(config: &Config, contents: Contents) -> Result<Self, TlsError> {
        let mut provider = rustls::crypto::ring::default_provider();
        provider.cipher_suites = config.ciphers.suites();
        let provider = Arc::new(provider);
        let key = PrivateKeyDer::from_pem_slice(&contents.private_key).map_err(|e| TlsError::Contents {
            path: config.private_key.clone().unwrap_or_default(),
            problem: format!("no private key found ({e})"),
        })?;
        let mut chain = certificates(config.certificate.as_deref(), &contents.certificate)?;
        if let Some(pem) = &contents.peer_ca_cert {
            chain.extend(certificates(config.peer_ca_cert.as_deref(), pem)?);
        }
        let trust = Arc::new(trust(config, &contents)?);
        let verifier = Arc::new(Verifier::new(Arc::clone(&trust), provider.signature_verification_algorithms));
        let client = client(config, &provider, Arc::clone(&verifier), chain.clone(), key.clone_key())?;
        let server = server(config, &provider, verifier, &trust, chain, key)?;
        let server_name = config.server_name.as_deref().and_then(|name| {
            let usable = dns_name(name);
            if usable.is_none() {
                tracing::warn!(target: "stream_ssl", "\"{name}\" is no name of a server (a host's, not an address), and is not indicated");
            }
            usable
        });
        Ok(Self { client: Arc::new(client), server: Arc::new(server), trust, server_name, contents })
    }
}

fn trust(config: &Config, contents: &Contents) -> Result<Trust, TlsError> {
    let (path, pem) = match (&config.ca_cert, &contents.ca_cert) {
        (Some(CaCert::File(path) | CaCert::Bootstrap(path)), Some(pem)) => (path, pem),
        (Some(CaCert::Bootstrap(path)), None) => return Ok(Trust::First(Bootstrap::new(path.clone()))),
        _ => return Ok(Trust::All),
    };
    let wrong = |e: webpki::Error| TlsError::Contents { path: path.clone(), problem: format!("bad certificate ({e})") };
    Ok(Trust::Roots(Roots::new(certificates(Some(path), pem)?).map_err(wrong)?))
}

fn client(
    config: &Config,
    provider: &Arc<CryptoProvider>,
    verifier: Arc<Verifier>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ClientConfig, rustls::Error> {
    let mut client = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&config.protocols.versions())?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(chain, key)?;
    client.resumption = Resumption::disabled();
    Ok(client)
}

fn server(
    config: &Config,
    provider: &Arc<CryptoProvider>,
    verifier: Arc<Verifier>,
    trust: &Trust,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
) -> Result<ServerConfig, rustls::Error> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&config.protocols.versions())?;
    let builder = match trust {
        Trust::All => builder.with_no_client_auth(),
        _ => builder.with_client_cert_verifier(verifier),
    };
    let mut server = builder.with_single_cert(chain, key)?;
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    Ok(server)
}
