//! Option parsing with the rules of GNU `getopt_long`, over a declarative table.
//!
//! ```
//! use cli::{Arg, Found, Opt, Parser};
//!
//! const OPTIONS: &[Opt] = &[Opt::new("target", Arg::Required).short('t'), Opt::new("help", Arg::None).short('h')];
//! let mut parser = Parser::new(["ovs-appctl", "--tar=x", "version"].map(Into::into).to_vec(), &[OPTIONS]);
//! while let Some(found) = parser.next() {
//!     let Found { id, value } = found.unwrap();
//!     assert_eq!((id, value.as_deref()), ("target", Some("x")));
//! }
//! assert_eq!(parser.positionals(), ["version"]);
//! ```
//!
//! The parser is an iterator, so that an option applies when it is reached: `--help --bogus` prints the help. A table
//! is a list of fragments: each crate exports the options it understands and a program puts them together. The
//! identity of an option is a name, which is its long name unless [`Opt::id`] says otherwise, so that fragments need
//! not know each other.

use std::ffi::OsString;

/// Whether an option takes an argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arg {
    /// No argument; `--opt=x` is an error.
    None,
    /// `--opt x`, `--opt=x`, `-o x` or `-ox`.
    Required,
    /// Only attached: `--opt=x` or `-ox`.
    Optional,
}

/// One option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opt {
    /// The identity that the parser reports; the long name unless set.
    pub id: &'static str,
    /// The long name without the dashes; empty if there is only a short one.
    pub long: &'static str,
    /// The letter.
    pub short: Option<char>,
    /// Its argument.
    pub arg: Arg,
}

impl Opt {
    /// An option with a long name, which is also its identity.
    pub const fn new(long: &'static str, arg: Arg) -> Self {
        Self { id: long, long, short: None, arg }
    }

    /// An option with a letter only.
    pub const fn letter(id: &'static str, short: char, arg: Arg) -> Self {
        Self { id, long: "", short: Some(short), arg }
    }

    /// The same with a letter.
    pub const fn short(mut self, short: char) -> Self {
        self.short = Some(short);
        self
    }

    /// The same under another identity, for synonyms.
    pub const fn id(mut self, id: &'static str) -> Self {
        self.id = id;
        self
    }
}

/// `-h`, `--help` and `-V`, `--version`, which every program has.
pub const HELP_AND_VERSION: &[Opt] =
    &[Opt::new("help", Arg::None).short('h'), Opt::new("version", Arg::None).short('V')];

/// An option on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// [`Opt::id`].
    pub id: &'static str,
    /// Its argument; `None` for an option without one, or if it is optional and absent.
    pub value: Option<String>,
}

/// An error in a command line, worded like GNU `getopt`'s, with the original `argv[0]` in front.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{argv0}: {problem}")]
pub struct UsageError {
    /// `argv[0]`.
    pub argv0: String,
    /// The error.
    pub problem: Problem,
}

/// The kinds of [`UsageError`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// An unknown long option; with the dashes and the argument as given.
    #[error("unrecognized option '{0}'")]
    Unrecognized(String),
    /// An abbreviation of several options.
    #[error("option '--{given}' is ambiguous; possibilities: '--{}'", candidates.join("' '--"))]
    Ambiguous {
        /// The abbreviation.
        given: String,
        /// The long options that it abbreviates, in the order of the table.
        candidates: Vec<&'static str>,
    },
    /// An argument to a long option without argument.
    #[error("option '--{0}' doesn't allow an argument")]
    UnexpectedArgument(&'static str),
    /// A long option without its argument.
    #[error("option '--{0}' requires an argument")]
    MissingArgument(&'static str),
    /// An unknown option letter.
    #[error("invalid option -- '{0}'")]
    InvalidLetter(char),
    /// A letter without its argument.
    #[error("option requires an argument -- '{0}'")]
    MissingLetterArgument(char),
}

/// The allowed positions of options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    /// Anywhere before `--`; the other words are collected.
    Permute,
    /// Only before the first word that is none.
    OptionsFirst,
}

/// The iterator over the options of a command line.
#[derive(Debug)]
pub struct Parser {
    argv0: String,
    args: std::vec::IntoIter<String>,
    table: Vec<Opt>,
    order: Order,
    /// The rest of a bundle of letters (`-abc`).
    bundle: String,
    positionals: Vec<String>,
    done: bool,
}

impl Parser {
    /// A parser of `args`, whose first element is the program's name, over the fragments of a table. In arguments
    /// that are not UTF-8, invalid bytes are replaced: no valid name of these programs contains such bytes.
    pub fn new(args: Vec<OsString>, fragments: &[&[Opt]]) -> Self {
        let mut args = args.into_iter().map(|arg| arg.to_string_lossy().into_owned()).collect::<Vec<_>>().into_iter();
        let argv0 = args.next().unwrap_or_default();
        let table = fragments.iter().flat_map(|fragment| fragment.iter().copied()).collect();
        Self { argv0, args, table, order: Order::Permute, bundle: String::new(), positionals: Vec::new(), done: false }
    }

    /// Ends option parsing at the first word that is not an option, as `ovs-vsctl` and `ovs-appctl` need: later words
    /// belong to the command.
    pub fn options_first(mut self) -> Self {
        self.order = Order::OptionsFirst;
        self
    }

    /// The words that are not options, once the iterator has ended.
    pub fn positionals(&self) -> &[String] {
        &self.positionals
    }

    /// [`Self::positionals`], by value.
    pub fn into_positionals(self) -> Vec<String> {
        self.positionals
    }

    fn error(&self, problem: Problem) -> UsageError {
        UsageError { argv0: self.argv0.clone(), problem }
    }

    fn finish(&mut self) {
        self.done = true;
        self.positionals.extend(self.args.by_ref());
    }

    fn letter(&mut self) -> Option<Result<Found, UsageError>> {
        let letter = self.bundle.chars().next()?;
        self.bundle.drain(..letter.len_utf8());
        let Some(&opt) = self.table.iter().find(|opt| opt.short == Some(letter)) else {
            return Some(Err(self.error(Problem::InvalidLetter(letter))));
        };
        let attached = |bundle: &mut String| Some(std::mem::take(bundle)).filter(|rest| !rest.is_empty());
        let value = match opt.arg {
            Arg::None => None,
            Arg::Optional => attached(&mut self.bundle),
            Arg::Required => match attached(&mut self.bundle).or_else(|| self.args.next()) {
                Some(value) => Some(value),
                None => return Some(Err(self.error(Problem::MissingLetterArgument(letter)))),
            },
        };
        Some(Ok(Found { id: opt.id, value }))
    }

    /// `word` still has its dashes.
    fn long(&mut self, word: &str) -> Result<Found, UsageError> {
        let body = word.strip_prefix("--").unwrap_or(word);
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        let opt = self.resolve(name, word)?;
        let value = match (opt.arg, value) {
            (Arg::None, Some(_)) => return Err(self.error(Problem::UnexpectedArgument(opt.long))),
            (Arg::Required, None) => {
                Some(self.args.next().ok_or_else(|| self.error(Problem::MissingArgument(opt.long)))?)
            }
            (_, value) => value,
        };
        Ok(Found { id: opt.id, value })
    }

    /// The option with the long name `name`, or the only one that it abbreviates; options that mean the same
    /// (synonyms) do not make an abbreviation ambiguous.
    fn resolve(&self, name: &str, word: &str) -> Result<Opt, UsageError> {
        if let Some(opt) = self.table.iter().find(|opt| !opt.long.is_empty() && opt.long == name) {
            return Ok(*opt);
        }
        let candidates: Vec<&Opt> =
            self.table.iter().filter(|opt| !opt.long.is_empty() && opt.long.starts_with(name)).collect();
        let Some(first) = candidates.first() else {
            return Err(self.error(Problem::Unrecognized(word.to_owned())));
        };
        if candidates.iter().all(|opt| opt.id == first.id && opt.arg == first.arg) {
            return Ok(**first);
        }
        let candidates = candidates.iter().map(|opt| opt.long).collect();
        Err(self.error(Problem::Ambiguous { given: word.trim_start_matches("--").to_owned(), candidates }))
    }
}

impl Iterator for Parser {
    type Item = Result<Found, UsageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if !self.bundle.is_empty() {
            return self.letter();
        }
        while !self.done {
            let Some(word) = self.args.next() else {
                self.finish();
                break;
            };
            if word == "--" {
                self.finish();
            } else if word.starts_with("--") {
                return Some(self.long(&word));
            } else if word.len() > 1 && word.starts_with('-') {
                word[1..].clone_into(&mut self.bundle);
                return self.letter();
            } else {
                self.positionals.push(word);
                if self.order == Order::OptionsFirst {
                    self.finish();
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests;
