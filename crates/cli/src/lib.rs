//! Command lines in the manner of the `ovs-*` programs: options, abbreviations, usage errors, tables.
//!
//! - [`options`]: GNU `getopt_long` over a declarative table, with its error messages;
//! - [`table`]: the text tables (`--format`, `--data`, ...) that the database programs print;
//! - [`json`]: JSON text as the programs print it, compact or `--pretty`;
//! - [`output`]: standard output, whose reader may have gone;
//! - [`completion`]: candidates for an incomplete word in a shell;
//! - [`program`]: the name of the running program, its version text, and the one-line fatal error.

pub mod completion;
pub mod json;
pub mod options;
pub mod output;
pub mod program;
pub mod table;

pub use options::{Arg, Found, HELP_AND_VERSION, Opt, Parser, UsageError};
pub use output::{print, print_or_end};
pub use program::{Fatal, fail, leading_integer, program_name, program_name_of, version_text};
