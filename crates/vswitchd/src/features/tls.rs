//! Keys and certificates of OpenFlow connections, and of the connection to the database.

use crate::feature::{Event, Feature};
use crate::levels::{SwitchLevel, SwitchTarget};
use crate::reader::Reader;
use ::tls::{CaCert, Config};
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::{OpenVSwitch, Ssl, open_vswitch, ssl};
use ovsdb_client::typed::{AnyColumn, Column, Row};
use std::path::PathBuf;

/// The table SSL.
#[derive(Debug, Default)]
pub struct Tls;

impl Feature for Tls {
    type Level = SwitchLevel;
    /// The files that the row names, if there is a row.
    type Spec = Option<Config>;
    const NAME: &'static str = "tls";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        open_vswitch { SSL }
        ssl { PRIVATE_KEY, CERTIFICATE, CA_CERT, BOOTSTRAP_CA_CERT }
    };
    const FOLLOWS: &'static [Event] = &[Event::Datapath];

    fn read(reader: &Reader<'_>, root: Row<'_, OpenVSwitch>) -> Option<Config> {
        root.get(open_vswitch::SSL).and_then(|row| reader.find(row)).map(config)
    }

    fn apply(&mut self, spec: &Option<Config>, target: &mut SwitchTarget<'_>) {
        let config = spec.as_ref().map_or_else(|| target.command_line.clone(), |row| row.over(target.command_line));
        for (_, dp) in target.devices.datapaths() {
            dp.switch.tls().configure(config.clone());
        }
        target.own_tls.configure(config);
    }
}

/// A row of the table SSL. With the name `none` of the CA, every certificate is trusted, as on the command line.
fn config(row: Row<'_, Ssl>) -> Config {
    let file = |column: Column<Ssl, String>| Some(row.get(column)).filter(|name| !name.is_empty()).map(PathBuf::from);
    let ca_cert = file(ssl::CA_CERT).map(|path| match row.get(ssl::BOOTSTRAP_CA_CERT) {
        _ if path.as_os_str() == "none" => CaCert::None,
        true => CaCert::Bootstrap(path),
        false => CaCert::File(path),
    });
    Config { private_key: file(ssl::PRIVATE_KEY), certificate: file(ssl::CERTIFICATE), ca_cert, ..Config::default() }
}
