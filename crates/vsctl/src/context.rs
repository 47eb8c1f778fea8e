//! What commands work on: the transaction, the names of new rows, the bridges and ports, and their output.

use std::sync::Arc;

use ovsdb::{DatabaseSchema, Symbols, Uuid};
use ovsdb_client::schemas::vswitch::{OpenVSwitch, bridge, interface, open_vswitch, port};
use ovsdb_client::typed::{AnyColumn, Ref};
use ovsdb_client::{Transaction, columns};

use crate::command::Command;
use crate::model::Model;

pub(crate) use ovsdb_client::Committed;

/// The columns that bridges and ports are read from.
const MODEL: &[AnyColumn] = &columns! {
    open_vswitch { BRIDGES }
    bridge { NAME, PORTS }
    port { NAME, INTERFACES, TAG, FAKE_BRIDGE }
    interface { NAME }
};

/// Why the commands stop.
#[derive(Debug)]
pub(crate) enum Failure {
    /// An error for the user; exit status 1.
    Fatal(String),
    /// A condition is not met yet: run all commands again when the database has changed.
    NotYet,
    /// Exit at once with this status, without a word.
    Exit(u8),
}

impl Failure {
    pub(crate) fn fatal(message: impl Into<String>) -> Self {
        Failure::Fatal(message.into())
    }
}

impl From<ovsdb::text::TextError> for Failure {
    fn from(error: ovsdb::text::TextError) -> Self {
        Failure::Fatal(error.to_string())
    }
}

/// What one command prints.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// Lines.
    pub(crate) text: String,
    /// A table instead of lines.
    pub(crate) table: Option<cli::table::Table>,
    /// The row whose UUID is to be printed once the server has chosen it.
    pub(crate) created: Option<Uuid>,
}

impl Output {
    /// Adds a line.
    pub(crate) fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }
}

/// One run of all commands.
pub(crate) struct Context<'a> {
    pub(crate) txn: Transaction<'a>,
    pub(crate) schema: Arc<DatabaseSchema>,
    pub(crate) symbols: Symbols,
    /// The bridges and ports; `None` if they must be looked up again.
    model: Option<Model>,
    /// Ports that the commands added, to look for errors in setting them up.
    pub(crate) new_ports: Vec<String>,
}

impl<'a> Context<'a> {
    pub(crate) fn new(txn: Transaction<'a>, schema: Arc<DatabaseSchema>) -> Self {
        let symbols = Symbols::new(ovsdb::UuidSource::os());
        Self { txn, schema, symbols, model: None, new_ports: Vec::new() }
    }

    /// The row of the table Open_vSwitch, made if it is missing.
    pub(crate) fn root(&mut self) -> Ref<OpenVSwitch> {
        match self.txn.all(OpenVSwitch).first() {
            Some(root) => *root,
            None => self.txn.insert(OpenVSwitch).reference(),
        }
    }

    /// The bridges and ports.
    pub(crate) fn model(&mut self) -> &mut Model {
        let root = self.root();
        let txn = &self.txn;
        self.model.get_or_insert_with(|| Model::new(txn, root))
    }

    /// The transaction and the bridges and ports, both to be changed.
    pub(crate) fn txn_and_model(&mut self) -> (&mut Transaction<'a>, &mut Model) {
        let root = self.root();
        let Self { txn, model, .. } = self;
        let found = model.get_or_insert_with(|| Model::new(txn, root));
        (txn, found)
    }

    /// Rows were changed otherwise: the bridges and ports must be looked up again.
    pub(crate) fn forget_model(&mut self) {
        self.model = None;
    }

    /// A column was changed otherwise: the bridges and ports must be looked up again if they are read from it.
    pub(crate) fn touched(&mut self, table: &str, column: &str) {
        if MODEL.iter().any(|read| read.table == table && read.column == column) {
            self.forget_model();
        }
    }
}

/// The command as it was typed, for messages.
pub(crate) fn quoted(command: &Command) -> String {
    let options = command.spec.options.iter().filter_map(|option| {
        let name = option.strip_suffix('=').unwrap_or(option);
        command.has(name).then(|| match command.value(name) {
            Some(value) => format!("{name}={value}"),
            None => name.to_owned(),
        })
    });
    let words = options.chain([command.spec.name.to_owned()]).chain(command.args.iter().cloned());
    format!("\"{}\"", words.collect::<Vec<_>>().join(" "))
}
