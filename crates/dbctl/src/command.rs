//! The grammar of commands: their options and arguments, the splitting of a command line at `--`, and the commands of
//! every program. The modules named in the tables implement them.

use std::collections::BTreeMap;

use crate::context::{Committed, Context, Output};
use crate::needs::Needs;
use crate::{Done, Failure, Program, database, manager, show};

/// Any number of arguments.
pub const MANY: usize = usize::MAX;

/// A command's access to the database; only changes are logged at "info".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It only reads.
    Read,
    /// It may change rows.
    Write,
}

/// Declares the tables and columns that a command uses.
pub type NeedsOf<P> = fn(&mut Needs<'_>, &Command<P>) -> Done;
/// Runs a command within the transaction.
pub type RunOf<P> = fn(&mut Context<'_, P>, &Command<P>, &mut Output) -> Done;

/// One kind of command.
pub struct Spec<P: Program> {
    /// The name on the command line.
    pub name: &'static str,
    /// Minimum number of arguments.
    pub args_min: usize,
    /// Maximum number of arguments.
    pub args_max: usize,
    /// The arguments as `--commands` prints them, for shell completion.
    pub arguments: &'static str,
    /// The options; those that end in `=` take a value.
    pub options: &'static [&'static str],
    /// The tables and columns that it uses.
    pub needs: NeedsOf<P>,
    /// Its effect within the transaction.
    pub run: RunOf<P>,
    /// Completes its output after the commit.
    pub finish: Option<fn(&Committed, &mut Output)>,
    /// Whether it changes anything.
    pub access: Access,
}

/// One command of a command line.
pub struct Command<P: Program> {
    /// The kind of the command.
    pub spec: &'static Spec<P>,
    options: BTreeMap<String, Option<String>>,
    /// Its arguments, without its name.
    pub args: Vec<String>,
}

impl<P: Program> Command<P> {
    /// Whether the option was given; `option` with its dashes.
    pub fn has(&self, option: &str) -> bool {
        self.options.contains_key(option)
    }

    /// The value given with the option.
    pub fn value(&self, option: &str) -> Option<&str> {
        self.options.get(option)?.as_deref()
    }

    /// Argument `at`, counted from 0 without the command's name; empty if there are fewer.
    pub fn arg(&self, at: usize) -> &str {
        self.args.get(at).map_or("", String::as_str)
    }

    /// Argument `at`, if it exists.
    pub fn arg_opt(&self, at: usize) -> Option<&str> {
        self.args.get(at).map(String::as_str)
    }

    /// The arguments from `at` on.
    pub fn args_from(&self, at: usize) -> &[String] {
        self.args.get(at..).unwrap_or_default()
    }
}

impl<P: Program> Spec<P> {
    /// A command that only reads.
    pub const fn read(
        name: &'static str,
        args: (usize, usize),
        arguments: &'static str,
        options: &'static [&'static str],
        needs: NeedsOf<P>,
        run: RunOf<P>,
    ) -> Self {
        let (args_min, args_max) = args;
        Self { name, args_min, args_max, arguments, options, needs, run, finish: None, access: Access::Read }
    }

    /// A command that may change rows.
    pub const fn write(
        name: &'static str,
        args: (usize, usize),
        arguments: &'static str,
        options: &'static [&'static str],
        needs: NeedsOf<P>,
        run: RunOf<P>,
    ) -> Self {
        let (args_min, args_max) = args;
        Self { name, args_min, args_max, arguments, options, needs, run, finish: None, access: Access::Write }
    }

    /// Adds a function that runs after the commit.
    const fn finish(self, finish: fn(&Committed, &mut Output)) -> Self {
        Self { finish: Some(finish), ..self }
    }

    /// The command `show`.
    pub const SHOW: Self = Self::read("show", (0, 0), "", &["--filter="], show::needs, show::show);

    /// The command `get-manager`.
    pub const GET_MANAGER: Self = Self::read("get-manager", (0, 0), "", &[], manager::needs, manager::get);
    /// The command `del-manager`.
    pub const DEL_MANAGER: Self = Self::write("del-manager", (0, 0), "", &[], manager::needs, manager::del);
    /// The command `set-manager`.
    pub const SET_MANAGER: Self =
        Self::write("set-manager", (1, MANY), "+TARGET", &["--inactivity-probe="], manager::needs, manager::set);

    /// The database commands, in the order of the manual pages.
    #[rustfmt::skip]
    pub const DATABASE: &'static [Self] = &[
        Self::read("comment", (0, MANY), "*ARG", &[], database::no_needs, database::comment),
        Self::read("get", (2, MANY), "!TABLE !RECORD *COLUMN?:KEY", &["--if-exists", "--id="], database::get_needs, database::get),
        Self::read("list", (1, MANY), "!TABLE *RECORD", &["--if-exists", "--columns="], database::list_needs, database::list),
        Self::read("find", (1, MANY), "!TABLE *COLUMN?:KEY=VALUE", &["--columns="], database::find_needs, database::find),
        Self::write("set", (3, MANY), "!TABLE !RECORD +COLUMN?:KEY=VALUE", &["--if-exists"], database::set_needs, database::set),
        Self::write("add", (4, MANY), "!TABLE !RECORD !COLUMN +?KEY=VALUE", &["--if-exists"], database::add_needs, database::add),
        Self::write("remove", (4, MANY), "!TABLE !RECORD !COLUMN +KEY|VALUE|KEY=VALUE", &["--if-exists"], database::add_needs, database::remove),
        Self::write("clear", (3, MANY), "!TABLE !RECORD +COLUMN", &["--if-exists"], database::clear_needs, database::clear),
        Self::write("create", (2, MANY), "!TABLE +COLUMN?:KEY=VALUE", &["--id="], database::create_needs, database::create)
            .finish(database::create_finish),
        Self::write("destroy", (1, MANY), "!TABLE *RECORD", &["--if-exists", "--all"], database::destroy_needs, database::destroy),
        Self::read("wait-until", (2, MANY), "!TABLE !RECORD *COLUMN?:KEY=VALUE", &[], database::wait_until_needs, database::wait_until),
    ];
}

/// Every command of a program.
pub fn all<P: Program>() -> impl Iterator<Item = &'static Spec<P>> {
    P::COMMANDS.iter().chain(Spec::<P>::DATABASE)
}

/// Every option of any command, without duplicates: they may stand among the global options if the first command has
/// them.
pub(crate) fn all_options<P: Program>() -> Vec<&'static str> {
    let mut options: Vec<_> = all::<P>().flat_map(|spec| spec.options).copied().collect();
    options.sort_unstable();
    options.dedup();
    options
}

/// Splits `args`, the arguments after the global options, into commands. `leading` are options of the first command
/// that stood among the global ones, as (name with dashes, value).
pub fn parse<P: Program>(args: &[String], leading: Vec<(String, Option<String>)>) -> Result<Vec<Command<P>>, Failure> {
    let mut leading = leading.into_iter().collect::<BTreeMap<_, _>>();
    let mut commands = Vec::new();
    for words in args.split(|word| word == "--") {
        if !words.is_empty() {
            commands.push(parse_one(words, std::mem::take(&mut leading))?);
        }
    }
    if commands.is_empty() {
        return Err(Failure::fatal("missing command name (use --help for help)"));
    }
    Ok(commands)
}

fn parse_one<P: Program>(
    words: &[String],
    mut options: BTreeMap<String, Option<String>>,
) -> Result<Command<P>, Failure> {
    let mut rest = words.iter();
    let name = loop {
        let Some(word) = rest.next() else {
            return Err(Failure::fatal("missing command name (use --help for help)"));
        };
        if !word.starts_with('-') {
            break word;
        }
        let (option, value) = match word.split_once('=') {
            Some((option, value)) => (option.to_owned(), Some(value.to_owned())),
            None => (word.clone(), None),
        };
        if options.insert(option, value).is_some() {
            return Err(Failure::fatal(format!("'{word}' option specified multiple times")));
        }
    };
    let Some(spec) = all::<P>().find(|spec| spec.name == name) else {
        return Err(Failure::fatal(format!("unknown command '{name}'; use --help for help")));
    };
    check_options(spec, &options)?;
    let args: Vec<String> = rest.cloned().collect();
    if args.len() < spec.args_min {
        let message = format!("'{name}' command requires at least {} arguments", spec.args_min);
        return Err(Failure::fatal(message));
    }
    if args.len() > spec.args_max {
        let hint = if args.iter().any(|arg| arg.starts_with('-')) {
            " (note that options must precede command names and follow a \"--\" argument)"
        } else {
            ""
        };
        let message = format!("'{name}' command takes at most {} arguments{hint}", spec.args_max);
        return Err(Failure::fatal(message));
    }
    Ok(Command { spec, options, args })
}

fn check_options<P: Program>(spec: &Spec<P>, options: &BTreeMap<String, Option<String>>) -> Done {
    let name = spec.name;
    for (option, value) in options {
        let known = spec.options.iter().find(|known| known.strip_suffix('=').unwrap_or(known) == option);
        let message = match (known, value) {
            (None, _) => format!("'{name}' command has no '{option}' option"),
            (Some(known), None) if known.ends_with('=') => {
                format!("missing argument to '{option}' option on '{name}' command")
            }
            (Some(known), Some(_)) if !known.ends_with('=') => {
                format!("'{option}' option on '{name}' does not accept an argument")
            }
            _ => continue,
        };
        return Err(Failure::fatal(message));
    }
    Ok(())
}
