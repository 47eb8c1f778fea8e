//! The context of commands: the transaction, the names of new rows, the program's model, and their output.

use std::sync::Arc;

use ovsdb::{DatabaseSchema, Symbols, Uuid};
use ovsdb_client::Transaction;

use crate::Program;
use crate::command::Command;

pub use ovsdb_client::Committed;

/// The reason why commands stop.
#[derive(Debug)]
pub enum Failure {
    /// An error for the user; exit status 1.
    Fatal(String),
    /// A condition is not met yet: run all commands again when the database has changed.
    NotYet,
    /// Exits at once with this status, without output.
    Exit(u8),
}

impl Failure {
    /// [`Failure::Fatal`] with this message.
    pub fn fatal(message: impl Into<String>) -> Self {
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
pub struct Output {
    /// Lines.
    pub text: String,
    /// A table instead of lines.
    pub table: Option<cli::table::Table>,
    /// The row whose UUID is printed after the server has assigned it.
    pub created: Option<Uuid>,
}

impl Output {
    /// Adds a line.
    pub fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }
}

/// One run of all commands.
pub struct Context<'a, P: Program> {
    /// The changes of the database by the commands.
    pub txn: Transaction<'a>,
    /// The server's schema.
    pub schema: Arc<DatabaseSchema>,
    /// The names of `--id`.
    pub symbols: Symbols,
    /// `None` if it must be read again.
    model: Option<P::Model>,
    /// Names of added objects, to report errors in their set-up.
    pub added: Vec<String>,
}

impl<'a, P: Program> Context<'a, P> {
    pub(crate) fn new(txn: Transaction<'a>, schema: Arc<DatabaseSchema>) -> Self {
        let symbols = Symbols::new(ovsdb::UuidSource::os());
        Self { txn, schema, symbols, model: None, added: Vec::new() }
    }

    /// The row of the root table, created if it is missing.
    pub fn root(&mut self) -> Uuid {
        match self.txn.rows(P::ROOT).first() {
            Some(root) => *root,
            None => self.txn.insert_row(P::ROOT),
        }
    }

    /// The program's model.
    pub fn model(&mut self) -> &mut P::Model {
        self.txn_and_model().1
    }

    /// The transaction and the model, both mutable.
    pub fn txn_and_model(&mut self) -> (&mut Transaction<'a>, &mut P::Model) {
        let root = self.root();
        let Self { txn, model, .. } = self;
        let found = model.get_or_insert_with(|| P::model(txn, root));
        (txn, found)
    }

    /// Drops the model after other changes of rows: it must be read again.
    pub fn drop_model(&mut self) {
        self.model = None;
    }

    /// Drops the model after a change of a column if it is read from that column.
    pub fn touched(&mut self, table: &str, column: &str) {
        if P::is_read(table, column) {
            self.drop_model();
        }
    }
}

/// The command as it was typed, for messages.
pub fn quoted<P: Program>(command: &Command<P>) -> String {
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
