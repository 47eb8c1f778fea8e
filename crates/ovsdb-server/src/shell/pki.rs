//! The sources of keys, certificates and other TLS settings: files and texts by name, or columns of databases with
//! these (ovsdb-server(1), "Public Key Infrastructure Options").

use std::collections::BTreeMap;
use std::path::Path;

use ovsdb::Atom;

use super::remotes;
use crate::core::Core;

/// Options that set the CA's certificate in two ways; the last one given applies.
const CA_OPTIONS: [&str; 2] = ["ca-cert", "bootstrap-ca-cert"];

/// The values of options about TLS, as a user gave them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pki {
    values: BTreeMap<String, String>,
}

/// The current values of the options.
#[derive(Debug, Default)]
pub(super) struct Resolved {
    /// The configuration; `None` if a column has an unusable value.
    pub(super) config: Option<tls::Config>,
    /// About columns.
    pub(super) complaints: Vec<String>,
}

impl Pki {
    /// The columns of the table SSL of an Open_vSwitch database, as Open vSwitch's start script has them.
    pub fn of_open_vswitch() -> Self {
        let columns =
            [("private-key", "private_key"), ("certificate", "certificate"), ("bootstrap-ca-cert", "ca_cert")];
        let values = columns.map(|(option, column)| (option.to_owned(), format!("db:Open_vSwitch,SSL,{column}")));
        Self { values: values.into() }
    }

    /// Sets an option by its long name; `false` if it is no TLS option. A value like `db:DATABASE,TABLE,COLUMN`
    /// stands for the first non-empty string in that column, at any time. File names become absolute, except those in
    /// columns.
    pub fn accept(&mut self, option: &str, value: &str) -> bool {
        let is_column = value.starts_with("db:");
        let mut checked = tls::Config::default();
        match checked.set(option, value) {
            Ok(false) => return false,
            // The contents of a column are checked later.
            Err(_) if is_column => {}
            // Logged; without the option, the default stays.
            Err(_) => return checked.accept(option, value),
            Ok(true) => {}
        }
        let is_file = !is_column && value != "none" && !option.starts_with("ssl-");
        let value = if is_file { absolute(value) } else { value.to_owned() };
        if CA_OPTIONS.contains(&option) {
            CA_OPTIONS.iter().for_each(|other| _ = self.values.remove(*other));
        }
        self.values.insert(option.to_owned(), value);
        true
    }

    fn columns(&self) -> impl Iterator<Item = &str> {
        self.values.values().map(String::as_str).filter(|value| value.starts_with("db:"))
    }

    /// Whether some of it may change with the databases.
    pub(super) fn has_columns(&self) -> bool {
        self.columns().next().is_some()
    }

    /// Checks that all columns exist.
    pub(super) fn check(&self, core: &Core) -> Result<(), String> {
        self.columns().try_for_each(|column| first_string(core, column).map(|_| ()))
    }

    /// Looks up the values in columns. An option whose column does not exist, because its database was removed, is
    /// not configured.
    pub(super) fn resolve(&self, core: &Core) -> Resolved {
        let mut config = Some(tls::Config::default());
        let mut complaints = Vec::new();
        for (option, value) in &self.values {
            let found = match value.starts_with("db:").then(|| first_string(core, value)) {
                None => Some(value.clone()),
                Some(Ok(found)) => found,
                Some(Err(complaint)) => {
                    complaints.push(complaint);
                    None
                }
            };
            let Some(found) = found else { continue };
            if let Err(error) = config.as_mut().map_or(Ok(true), |config| config.set(option, &found)) {
                complaints.push(format!("{value}: {error}"));
                config = None;
            }
        }
        Resolved { config, complaints }
    }
}

fn absolute(path: &str) -> String {
    std::path::absolute(Path::new(path)).map_or_else(|_| path.to_owned(), |path| path.to_string_lossy().into_owned())
}

/// The first string in the column that `db:DATABASE,TABLE,COLUMN` names that is not empty.
fn first_string(core: &Core, text: &str) -> Result<Option<String>, String> {
    let source = remotes::source(core, text, remotes::Holds::Strings)?;
    let strings = source.values().flat_map(|datum| datum.keys().iter().filter_map(Atom::as_str));
    let first = strings.filter(|string| !string.is_empty()).map(str::to_owned).next();
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Now;
    use ovsdb::UuidSource;
    use serde_json::{Value, json};
    use std::path::PathBuf;
    use tls::CaCert;

    /// A core with a database of one row, which holds `row`.
    fn core(row: &Value) -> Core {
        let schema = json!({ "name": "T", "tables": {
            "SSL": { "isRoot": true, "columns": {
                "key": { "type": "string" }, "more": { "type": { "key": "string", "min": 0, "max": "unlimited" } },
                "n": { "type": "integer" }, "all": { "type": { "key": "uuid", "min": 0 } } } } } });
        let mut core = Core::new(UuidSource::os());
        let record = json!({ "_date": 0, "SSL": { "aaaaaaaa-0000-4000-8000-000000000001": row } });
        let storage = Box::new(crate::storage::Nowhere);
        core.add_database(&[schema, record], storage, None, Now::default()).expect("a database");
        core
    }

    fn pki(values: &[(&str, &str)]) -> Pki {
        let mut pki = Pki::default();
        values.iter().for_each(|(option, value)| assert!(pki.accept(option, value), "{option}"));
        pki
    }

    #[test]
    fn values_are_read_from_files_and_columns() {
        let core = core(&json!({ "key": "/key", "more": ["set", ["", "/b", "/c"]] }));
        let pki = pki(&[("private-key", "db:T,SSL,key"), ("certificate", "cert"), ("ca-cert", "db:T,SSL,more")]);
        assert!(pki.has_columns());
        assert_eq!(pki.check(&core), Ok(()));
        let Resolved { config, complaints } = pki.resolve(&core);
        let config = config.expect("it can be used");
        assert_eq!(complaints, Vec::<String>::new());
        assert_eq!(config.private_key, Some(PathBuf::from("/key")));
        assert!(config.certificate.is_some_and(|path| path.is_absolute() && path.ends_with("cert")));
        assert_eq!(config.ca_cert, Some(CaCert::File("/b".into())));
    }

    #[test]
    fn the_last_ca_option_applies() {
        let core = core(&json!({ "more": "/b" }));
        let ca = |values: &[(&str, &str)]| pki(values).resolve(&core).config.expect("it can be used").ca_cert;
        let (file, column) = (("ca-cert", "/a"), ("bootstrap-ca-cert", "db:T,SSL,more"));
        assert_eq!(ca(&[file, column]), Some(CaCert::Bootstrap("/b".into())));
        assert_eq!(ca(&[column, file]), Some(CaCert::File("/a".into())));
        assert_eq!(ca(&[file, ("ca-cert", "none")]), Some(CaCert::None));
        assert_eq!(ca(&[file, ("ca-cert", "db:T,SSL,key")]), None);
    }

    #[test]
    fn invalid_updates_are_reported() {
        let core = core(&json!({ "key": "RC4" }));
        let complaint = |column: &str| pki(&[("private-key", column)]).check(&core).expect_err(column);
        assert_eq!(complaint("db:T,SSL"), "\"db:T,SSL\": invalid syntax");
        assert_eq!(complaint("db:X,SSL,key"), "\"db:X,SSL,key\": no database named X");
        let strings = |column| {
            format!("\"db:T,SSL,{column}\": table \"SSL\" column \"{column}\" is not string or set of strings")
        };
        assert_eq!(complaint("db:T,SSL,n"), strings("n"));
        assert_eq!(complaint("db:T,SSL,all"), strings("all"));
        // A removed database removes its part of the configuration.
        let resolved = pki(&[("private-key", "db:X,SSL,key"), ("certificate", "/c")]).resolve(&core);
        assert_eq!(resolved.complaints, ["\"db:X,SSL,key\": no database named X"]);
        assert!(resolved.config.is_some_and(|config| config.private_key.is_none() && config.certificate.is_some()));
        // Ciphers that are no ciphers are not passed over.
        let resolved = pki(&[("ssl-ciphers", "db:T,SSL,key")]).resolve(&core);
        assert!(
            resolved.config.is_none() && resolved.complaints[0].starts_with("db:T,SSL,key: SSL_CTX_set_cipher_list")
        );
        let mut pki = Pki::default();
        assert!(pki.accept("ssl-ciphers", "RC4"));
        assert!(!pki.values.contains_key("ssl-ciphers"));
        assert!(!pki.accept("detach", ""));
        assert!(!pki.has_columns());
    }
}
