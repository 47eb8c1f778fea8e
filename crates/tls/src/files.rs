//! Mistakes in the files that the options of a command line name, in the words of Open vSwitch and OpenSSL.
//!
//! Programs report it as they start, also if they connect without TLS later, so that scripts find the mistake in the log. The
//! files are read again for each connection, when they may be sound.

use std::fs;
use std::io;
use std::path::Path;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tracing::{error, warn};
use webpki::EndEntityCert;

/// Finds a mistake in the contents of a file.
type Check = fn(&[u8]) -> Option<&'static str>;

/// Logs a mistake in the file that `value` of an option names.
pub(crate) fn report(option: &str, value: &str) {
    let is_bootstrap = option == "bootstrap-ca-cert";
    if value == "none" && matches!(option, "ca-cert" | "bootstrap-ca-cert") {
        warn!(target: "stream_ssl", "Peer certificate validation disabled (this is a security risk)");
        return;
    }
    let (what, check): (_, Check) = match option {
        "private-key" => ("SSL_use_PrivateKey_file".to_owned(), wrong_key),
        "certificate" => ("SSL_use_certificate_file".to_owned(), wrong_certificate),
        "peer-ca-cert" => {
            if let Err(error) = fs::File::open(value) {
                let reason = vlog::strip_os_error(&error);
                error!(target: "stream_ssl", "failed to open {value} for reading: {reason}");
            }
            return;
        }
        "ca-cert" | "bootstrap-ca-cert" => {
            (format!("failed to load client certificates from {value}"), wrong_certificate)
        }
        _ => return,
    };
    let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    match Path::new(value).metadata() {
        // The file is written at the first connection.
        Err(error) if is_bootstrap && missing(&error) => return,
        Err(error) if !missing(&error) => {
            error!(target: "stream_ssl", "{value}: stat failed ({})", vlog::strip_os_error(&error));
        }
        _ => {}
    }
    let reason = match fs::read(value) {
        // A directory reads like an empty file.
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => check(&[]).map(str::to_owned),
        Err(error) => {
            let number = 0x8000_0000 | error.raw_os_error().unwrap_or_default().unsigned_abs();
            Some(format!("error:{number:08X}:system library::{}", vlog::strip_os_error(&error)))
        }
        Ok(bytes) => check(&bytes).map(str::to_owned),
    };
    if let Some(reason) = reason {
        error!(target: "stream_ssl", "{what}: {reason}");
    }
}

fn wrong_key(bytes: &[u8]) -> Option<&'static str> {
    PrivateKeyDer::from_pem_slice(bytes).err().map(|_| "error:1E08010C:DECODER routines::unsupported")
}

fn wrong_certificate(bytes: &[u8]) -> Option<&'static str> {
    match CertificateDer::from_pem_slice(bytes) {
        Err(_) => Some("error:0480006C:PEM routines::no start line"),
        // Certificates that are read but not supported are reported by the connection that they fail.
        Ok(certificate) => match EndEntityCert::try_from(&certificate) {
            Err(webpki::Error::BadDer | webpki::Error::TrailingData(_)) => {
                Some("error:068000A8:asn1 encoding routines::wrong tag")
            }
            _ => None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_in_contents() {
        let pem = |label: &str| format!("-----BEGIN {label}-----\nAAAA\n-----END {label}-----\n").into_bytes();
        assert_eq!(wrong_key(&pem("PRIVATE KEY")), None);
        let unsupported = Some("error:1E08010C:DECODER routines::unsupported");
        for text in [&b""[..], b"garbage\n", &pem("CERTIFICATE")] {
            assert_eq!(wrong_key(text), unsupported);
        }
        let no_line = Some("error:0480006C:PEM routines::no start line");
        for text in [&b""[..], b"garbage\n", &pem("PRIVATE KEY")] {
            assert_eq!(wrong_certificate(text), no_line);
        }
        let wrong_tag = Some("error:068000A8:asn1 encoding routines::wrong tag");
        assert_eq!(wrong_certificate(&pem("CERTIFICATE")), wrong_tag);
    }
}
