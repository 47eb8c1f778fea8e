//! Protocol versions and cipher suites, by OpenSSL's names.
//!
//! TLS 1.2 and 1.3 are supported, with suites that are considered secure: forward secrecy by elliptic curves and
//! authenticated encryption. A cipher string that selects none of them is an error; other names in it are ignored.

use rustls::crypto::ring::cipher_suite as suite;
use rustls::{SupportedCipherSuite, SupportedProtocolVersion};
use std::fmt;
use std::str::FromStr;

/// A text that names an unknown version or no cipher, or that is no host name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SuiteError {
    /// Versions.
    #[error("{0}: SSL/TLS protocol not recognized")]
    Protocols(String),
    /// A list without versions.
    #[error("SSL/TLS protocol settings invalid")]
    NoProtocols,
    /// Cipher suites of TLS 1.2, of which ECDHE with AES-GCM or ChaCha20-Poly1305 are supported.
    #[error("SSL_CTX_set_cipher_list: error:0A0000B9:SSL routines::no cipher match")]
    Ciphers,
    /// Cipher suites of TLS 1.3.
    #[error("SSL_CTX_set_ciphersuites: error:0A0000B9:SSL routines::no cipher match")]
    CipherSuites,
}

/// Versions of TLS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Protocols {
    tls12: bool,
    tls13: bool,
}

impl Default for Protocols {
    fn default() -> Self {
        Self { tls12: true, tls13: true }
    }
}

impl FromStr for Protocols {
    type Err = SuiteError;

    /// Parses `A-B`, in either order, `A+`, which is that version and all newer ones, or a list of versions: a range from
    /// the oldest to the newest of them.
    fn from_str(text: &str) -> Result<Self, SuiteError> {
        let minor = |name: &str| match name {
            "TLSv1.2" => Ok(2),
            "TLSv1.3" => Ok(3),
            _ => Err(SuiteError::Protocols(name.to_owned())),
        };
        let minors = match (text.strip_suffix('+'), text.split_once('-')) {
            (Some(oldest), _) => vec![minor(oldest)?, 3],
            (None, Some((one, other))) => vec![minor(one)?, minor(other)?],
            (None, None) => {
                let names = text.split([',', ' ', '\t']).filter(|name| !name.is_empty());
                names.map(minor).collect::<Result<_, _>>()?
            }
        };
        if minors.is_empty() {
            return Err(SuiteError::NoProtocols);
        }
        Ok(Self { tls12: minors.contains(&2), tls13: minors.contains(&3) })
    }
}

impl fmt::Display for Protocols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.tls12, self.tls13) {
            (true, true) => "TLSv1.2 - TLSv1.3",
            (true, false) => "TLSv1.2 - TLSv1.2",
            _ => "TLSv1.3 - TLSv1.3",
        })
    }
}

impl Protocols {
    pub(crate) fn versions(self) -> Vec<&'static SupportedProtocolVersion> {
        let mut versions = Vec::new();
        if self.tls13 {
            versions.push(&rustls::version::TLS13);
        }
        if self.tls12 {
            versions.push(&rustls::version::TLS12);
        }
        versions
    }
}

/// A cipher suite with OpenSSL's name and groups.
struct Suite {
    suite: SupportedCipherSuite,
    name: &'static str,
    groups: &'static [&'static str],
}

const ALL: [&str; 8] = ["ALL", "DEFAULT", "HIGH", "TLSv1.2", "ECDHE", "kECDHE", "EECDH", "kEECDH"];

/// Suites of TLS 1.2, the preferred ones first.
const TLS12: &[Suite] = &[
    Suite {
        suite: suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        name: "ECDHE-ECDSA-AES256-GCM-SHA384",
        groups: &["ECDSA", "aECDSA", "AES", "AES256", "AESGCM", "SHA384"],
    },
    Suite {
        suite: suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        name: "ECDHE-RSA-AES256-GCM-SHA384",
        groups: &["RSA", "aRSA", "AES", "AES256", "AESGCM", "SHA384"],
    },
    Suite {
        suite: suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        name: "ECDHE-ECDSA-CHACHA20-POLY1305",
        groups: &["ECDSA", "aECDSA", "CHACHA20"],
    },
    Suite {
        suite: suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        name: "ECDHE-RSA-CHACHA20-POLY1305",
        groups: &["RSA", "aRSA", "CHACHA20"],
    },
    Suite {
        suite: suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        name: "ECDHE-ECDSA-AES128-GCM-SHA256",
        groups: &["ECDSA", "aECDSA", "AES", "AES128", "AESGCM", "SHA256"],
    },
    Suite {
        suite: suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        name: "ECDHE-RSA-AES128-GCM-SHA256",
        groups: &["RSA", "aRSA", "AES", "AES128", "AESGCM", "SHA256"],
    },
];

/// Suites of TLS 1.3.
const TLS13: &[Suite] = &[
    Suite { suite: suite::TLS13_AES_256_GCM_SHA384, name: "TLS_AES_256_GCM_SHA384", groups: &[] },
    Suite { suite: suite::TLS13_CHACHA20_POLY1305_SHA256, name: "TLS_CHACHA20_POLY1305_SHA256", groups: &[] },
    Suite { suite: suite::TLS13_AES_128_GCM_SHA256, name: "TLS_AES_128_GCM_SHA256", groups: &[] },
];

impl Suite {
    /// Returns true if a word like `ECDHE+AESGCM` selects it: it belongs to all of these groups, or has the name.
    fn is(&self, word: &str) -> bool {
        word.split('+').all(|group| {
            self.name == group || self.groups.contains(&group) || !self.groups.is_empty() && ALL.contains(&group)
        })
    }
}

/// Cipher suites; `None` for all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ciphers {
    tls12: Option<Vec<&'static str>>,
    tls13: Option<Vec<&'static str>>,
}

impl Ciphers {
    /// Parses the suites of TLS 1.2 from a cipher string of OpenSSL, such as `HIGH:!aNULL:!MD5`.
    pub(crate) fn set_tls12(&mut self, text: &str) -> Result<(), SuiteError> {
        self.tls12 = Some(select(TLS12, text).ok_or(SuiteError::Ciphers)?);
        Ok(())
    }

    /// Parses the suites of TLS 1.3 from a list of their names, separated by colons.
    pub(crate) fn set_tls13(&mut self, text: &str) -> Result<(), SuiteError> {
        // An empty list is one: TLS 1.2 is left.
        let none = text.is_empty().then(Vec::new);
        self.tls13 = Some(none.or_else(|| select(TLS13, text)).ok_or(SuiteError::CipherSuites)?);
        Ok(())
    }

    pub(crate) fn suites(&self) -> Vec<SupportedCipherSuite> {
        let those = |table: &'static [Suite], names: &Option<Vec<&'static str>>| match names {
            None => table.iter().map(|s| s.suite).collect(),
            Some(names) => names
                .iter()
                .filter_map(|name| table.iter().find(|s| s.name == *name).map(|s| s.suite))
                .collect::<Vec<_>>(),
        };
        [those(TLS13, &self.tls13), those(TLS12, &self.tls12)].concat()
    }
}

/// The selection by a cipher string, in its order: a word adds, `-` removes, `!` removes permanently, `+` moves to
/// the end. `None` if it selects nothing.
fn select(table: &'static [Suite], text: &str) -> Option<Vec<&'static str>> {
    let mut chosen: Vec<&'static str> = Vec::new();
    let mut banned: Vec<&'static str> = Vec::new();
    let words = text.split([':', ',', ' ']).filter(|word| !word.is_empty() && !word.starts_with('@'));
    for word in words {
        let (operator, word) = match word.strip_prefix(['!', '-', '+']) {
            Some(rest) => (word.chars().next(), rest),
            None => (None, word),
        };
        let named = || table.iter().filter(|s| s.is(word)).map(|s| s.name);
        match operator {
            Some('!') => banned.extend(named()),
            Some('-') => chosen.retain(|name| !named().any(|n| n == *name)),
            Some(_) => chosen.sort_by_key(|name| named().any(|n| n == *name)),
            None => {
                let new: Vec<_> = named().filter(|name| !chosen.contains(name)).collect();
                chosen.extend(new);
            }
        }
    }
    chosen.retain(|name| !banned.contains(name));
    Some(chosen).filter(|chosen| !chosen.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_by_name() {
        let parse = |text: &str| text.parse::<Protocols>().map(|found| found.to_string()).map_err(|e| e.to_string());
        for (text, range) in [
            ("TLSv1.2,TLSv1.3", "TLSv1.2 - TLSv1.3"),
            ("TLSv1.3 TLSv1.2", "TLSv1.2 - TLSv1.3"),
            ("TLSv1.3-TLSv1.2", "TLSv1.2 - TLSv1.3"),
            ("TLSv1.2+", "TLSv1.2 - TLSv1.3"),
            ("TLSv1.2", "TLSv1.2 - TLSv1.2"),
            ("TLSv1.3+", "TLSv1.3 - TLSv1.3"),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(range), "{text}");
        }
        for (text, wrong) in [
            ("TLSv1", "TLSv1"),
            ("TLSv1+", "TLSv1"),
            ("tlsv1.2", "tlsv1.2"),
            ("TLSv1.1,TLSv1.2", "TLSv1.1"),
            ("TLSv1.2+TLSv1.3", "TLSv1.2+TLSv1.3"),
            ("TLSv1.2-TLSv1.3,TLSv1.2", "TLSv1.3,TLSv1.2"),
            ("TLSv1.2-TLSv1.3,TLSv1.3+", "TLSv1.2-TLSv1.3,TLSv1.3"),
            ("-TLSv1.2", ""),
        ] {
            assert_eq!(parse(text), Err(format!("{wrong}: SSL/TLS protocol not recognized")), "{text}");
        }
        assert_eq!(parse(","), Err("SSL/TLS protocol settings invalid".to_owned()));
        assert_eq!(Protocols::default().versions().len(), 2);
    }

    #[test]
    fn ciphers_by_string() {
        let names = |text| select(TLS12, text);
        assert_eq!(names("HIGH:!aNULL:!MD5").map(|n| n.len()), Some(6));
        assert_eq!(names("DEFAULT:@SECLEVEL=2").map(|n| n.len()), Some(6));
        assert_eq!(
            names("ECDHE+aRSA+AES128:ECDHE-RSA-AES256-GCM-SHA384"),
            Some(vec!["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES256-GCM-SHA384"])
        );
        assert_eq!(names("ALL:!AES:-aRSA"), Some(vec!["ECDHE-ECDSA-CHACHA20-POLY1305"]));
        assert_eq!(names("AES256:+ECDSA").map(|n| n[0]), Some("ECDHE-RSA-AES256-GCM-SHA384"));
        for none in ["RC4-SHA", "aNULL", "", "ALL:!ALL", "AES128-SHA"] {
            assert!(names(none).is_none(), "{none}");
        }
        let mut ciphers = Ciphers::default();
        assert_eq!(ciphers.suites().len(), 9);
        assert_eq!(ciphers.set_tls13("TLS_AES_128_GCM_SHA256"), Ok(()));
        assert_eq!(ciphers.suites().len(), 7);
    }
}
