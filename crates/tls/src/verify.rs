//! Verification of peers.
//!
//! A certificate is valid if a chain of currently valid certificates leads from it to the CA, and if its extended key usage,
//! where present, permits a server or a client respectively. Certificates in the CA's file are trusted themselves, so that two
//! peers with one self-signed certificate each can trust each other without a CA.
//!
//! With [`CaCert::Bootstrap`](crate::CaCert) and no file yet, the first server is trusted: the last certificate of its
//! chain must be a CA's (its subject is its own issuer), and is stored in the file. That connection is then closed, since its
//! own certificate was not verified.

use crate::LOG_LIMIT;
use crate::names::issuer;
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, OtherError, SignatureScheme};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vlog::{err_rl, info_rl};
use webpki::{EndEntityCert, KeyUsage};

/// Which peers a connection trusts.
#[derive(Debug)]
pub(crate) enum Trust {
    /// All of them.
    All,
    /// Peers whose certificates these CAs signed.
    Roots(Roots),
    /// The first peer.
    First(Bootstrap),
}

/// Certificates of CAs.
#[derive(Debug)]
pub(crate) struct Roots {
    certificates: Vec<CertificateDer<'static>>,
    anchors: Vec<TrustAnchor<'static>>,
    subjects: Vec<DistinguishedName>,
}

impl Roots {
    /// Errors: a certificate cannot be parsed.
    pub(crate) fn new(certificates: Vec<CertificateDer<'static>>) -> Result<Self, webpki::Error> {
        let anchors: Vec<_> = certificates
            .iter()
            .map(|certificate| webpki::anchor_from_trusted_cert(certificate).map(|anchor| anchor.to_owned()))
            .collect::<Result<_, _>>()?;
        let subjects = anchors.iter().map(|anchor| DistinguishedName::in_sequence(&anchor.subject)).collect();
        Ok(Self { certificates, anchors, subjects })
    }
}

/// The CA certificate of the first peer, and the file for it.
#[derive(Debug)]
pub(crate) struct Bootstrap {
    file: PathBuf,
    shown: Mutex<Option<CertificateDer<'static>>>,
}

impl Bootstrap {
    pub(crate) fn new(file: PathBuf) -> Self {
        Self { file, shown: Mutex::default() }
    }

    /// Stores the peer's CA certificate. Always returns an error, as the connection ends here.
    fn finish(&self) -> io::Error {
        let protocol_error = || io::Error::from_raw_os_error(EPROTO);
        let Some(certificate) = self.shown.lock().take() else {
            err_rl!(&LOG_LIMIT, target: "stream_ssl", "could not bootstrap CA cert: no certificate presented by peer");
            return protocol_error();
        };
        // CA certificates may have versions that others may not: only the names are checked.
        let name = webpki::anchor_from_trusted_cert(&certificate).map(|anchor| anchor.subject.as_ref().to_vec());
        let self_signed = name.as_ref().is_ok_and(|subject| issuer(&certificate) == Some(subject));
        if !self_signed {
            err_rl!(&LOG_LIMIT, target: "stream_ssl", "could not bootstrap CA cert: CA cert is not self-signed");
            return protocol_error();
        }
        match create(&self.file, |file| file.write_all(pem(&certificate).as_bytes())) {
            Ok(()) => {
                info_rl!(&LOG_LIMIT, target: "stream_ssl", "successfully bootstrapped CA cert to {}", self.file.display());
                protocol_error()
            }
            // Another connection or process was faster.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => protocol_error(),
            Err(e) => {
                err_rl!(&LOG_LIMIT, target: "stream_ssl", "could not bootstrap CA cert: creating {} failed: {e}", self.file.display());
                e
            }
        }
    }
}

/// Creates a new file atomically: no reader sees a part of it.
fn create(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    let name = PathBuf::from(name);
    let file = File::options().write(true).create_new(true).mode(0o444).open(&name);
    let created = file.and_then(|mut file| {
        write(&mut file)?;
        file.sync_all()?;
        // Unlike a rename, this keeps an existing file.
        std::fs::hard_link(&name, path)
    });
    let _ = std::fs::remove_file(&name);
    created
}

/// Linux's number of this error, which is reported for connections whose TLS failed.
pub(crate) const EPROTO: i32 = 71;

/// A certificate as PEM (RFC 7468).
fn pem(der: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::from("-----BEGIN CERTIFICATE-----\n");
    for line in der.chunks(48) {
        for group in line.chunks(3) {
            let bits = (0..3).fold(0usize, |bits, n| bits << 8 | usize::from(group.get(n).copied().unwrap_or(0)));
            for n in 0..4 {
                let digit = ALPHABET[bits >> (18 - 6 * n) & 0x3f];
                out.push(if n <= group.len() { digit.into() } else { '=' });
            }
        }
        out.push('\n');
    }
    out.push_str("-----END CERTIFICATE-----\n");
    out
}

/// Verifies peers of either kind.
#[derive(Debug)]
pub(crate) struct Verifier {
    trust: Arc<Trust>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Trust {
    /// Call it when a handshake is over.
    pub(crate) fn finish(&self) -> io::Result<()> {
        match self {
            Self::First(bootstrap) => Err(bootstrap.finish()),
            _ => Ok(()),
        }
    }
}

impl Verifier {
    pub(crate) fn new(trust: Arc<Trust>, algorithms: WebPkiSupportedAlgorithms) -> Self {
        Self { trust, algorithms }
    }

    fn check(
        &self,
        certificate: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
        now: UnixTime,
        usage: KeyUsage,
    ) -> Result<(), Error> {
        match &*self.trust {
            Trust::All => Ok(()),
            Trust::First(bootstrap) => {
                *bootstrap.shown.lock() = Some(others.last().unwrap_or(certificate).clone().into_owned());
                Ok(())
            }
            Trust::Roots(roots) => {
                let verified = EndEntityCert::try_from(certificate).and_then(|cert| {
                    cert.verify_for_usage(self.algorithms.all, &roots.anchors, others, now, usage, None, None)
                        .map(|_| ())
                });
                match verified {
                    // It is a CA's and otherwise valid: this is checked after validity.
                    Err(webpki::Error::CaUsedAsEndEntity) if roots.certificates.contains(certificate) => Ok(()),
                    verified => verified.map_err(error),
                }
            }
        }
    }
}

/// The alert for the peer, and the text for the log.
fn error(e: webpki::Error) -> Error {
    use webpki::Error as W;
    match e {
        W::CertExpired { .. } => CertificateError::Expired.into(),
        W::CertNotValidYet { .. } => CertificateError::NotValidYet.into(),
        W::UnknownIssuer => CertificateError::UnknownIssuer.into(),
        W::InvalidSignatureForPublicKey => CertificateError::BadSignature.into(),
        e => CertificateError::Other(OtherError(Arc::new(e))).into(),
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity, intermediates, now, KeyUsage::server_auth())?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Verifier {
    /// Clients must show a certificate unless all peers are trusted.
    fn offer_client_auth(&self) -> bool {
        !matches!(*self.trust, Trust::All)
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        match &*self.trust {
            Trust::Roots(roots) => &roots.subjects,
            _ => &[],
        }
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        // Any client can connect, so the first one must not decide which CA is trusted.
        if matches!(*self.trust, Trust::First(_)) {
            return Err(CertificateError::UnknownIssuer.into());
        }
        self.check(end_entity, intermediates, now, KeyUsage::client_auth())?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ServerCertVerifier::verify_tls12_signature(self, message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        ServerCertVerifier::verify_tls13_signature(self, message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_written_atomically() {
        let directory = tempfile::tempdir().expect("a folder");
        let path = directory.path().join("ca.pem");
        let full = |file: &mut File| {
            file.write_all(b"half")?;
            // While it is being written, no reader sees a part of it.
            assert!(!path.exists());
            Err(io::ErrorKind::StorageFull.into())
        };
        assert_eq!(create(&path, full).map_err(|e| e.kind()), Err(io::ErrorKind::StorageFull));
        assert!(!path.exists());
        let write = |text: &'static [u8]| create(&path, move |file| file.write_all(text)).map_err(|e| e.kind());
        assert_eq!(write(b"first"), Ok(()));
        assert_eq!(write(b"second"), Err(io::ErrorKind::AlreadyExists));
        assert_eq!(std::fs::read(&path).expect("it is there"), b"first");
        assert_eq!(std::fs::read_dir(&directory).expect("a folder").count(), 1);
    }
}
