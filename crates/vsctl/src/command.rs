//! The grammar of commands: which there are, what options and arguments they take, and how a command line is cut into
//! them at `--`. What each one does lives in the modules that the table names.

use std::collections::BTreeMap;

use crate::context::{Context, Failure, Output};
use crate::needs::Needs;
use crate::{autoattach, bridge, control, database, port, show, switch, zone};

/// Any number of arguments.
const MANY: usize = usize::MAX;

/// What a command may do to the database; only changes make ovs-vsctl wait for ovs-vswitchd and log at "info".
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// It only looks.
    Read,
    /// It may change rows.
    Write,
}

/// One kind of command.
pub(crate) struct Spec {
    /// The name on the command line.
    pub(crate) name: &'static str,
    /// The least number of arguments.
    pub(crate) args_min: usize,
    /// The greatest number of arguments.
    pub(crate) args_max: usize,
    /// The arguments as `--commands` prints them, for shell completion.
    pub(crate) arguments: &'static str,
    /// The options; those that end in `=` take a value.
    pub(crate) options: &'static [&'static str],
    /// Which tables and columns it uses.
    pub(crate) needs: fn(&mut Needs<'_>, &Command) -> Result<(), Failure>,
    /// What it does within the transaction.
    pub(crate) run: fn(&mut Context<'_>, &Command, &mut Output) -> Result<(), Failure>,
    /// What it does to its output once the transaction is committed.
    pub(crate) finish: Option<fn(&crate::context::Committed, &mut Output)>,
    /// Whether it changes anything.
    pub(crate) access: Access,
}

/// One command of a command line.
pub(crate) struct Command {
    pub(crate) spec: &'static Spec,
    options: BTreeMap<String, Option<String>>,
    /// Its arguments, without its name.
    pub(crate) args: Vec<String>,
}

impl Command {
    /// Whether the option was given; `option` with its dashes.
    pub(crate) fn has(&self, option: &str) -> bool {
        self.options.contains_key(option)
    }

    /// The value given with the option.
    pub(crate) fn value(&self, option: &str) -> Option<&str> {
        self.options.get(option)?.as_deref()
    }

    /// Argument `at`, counted from 0 without the command's name; empty if there are fewer.
    pub(crate) fn arg(&self, at: usize) -> &str {
        self.args.get(at).map_or("", String::as_str)
    }

    /// Argument `at`, if there are so many.
    pub(crate) fn arg_opt(&self, at: usize) -> Option<&str> {
        self.args.get(at).map(String::as_str)
    }

    /// The arguments from `at` on.
    pub(crate) fn args_from(&self, at: usize) -> &[String] {
        self.args.get(at..).unwrap_or_default()
    }
}

const fn read(
    name: &'static str,
    args: (usize, usize),
    arguments: &'static str,
    options: &'static [&'static str],
    needs: fn(&mut Needs<'_>, &Command) -> Result<(), Failure>,
    run: fn(&mut Context<'_>, &Command, &mut Output) -> Result<(), Failure>,
) -> Spec {
    Spec {
        name,
        args_min: args.0,
        args_max: args.1,
        arguments,
        options,
        needs,
        run,
        finish: None,
        access: Access::Read,
    }
}

const fn write(
    name: &'static str,
    args: (usize, usize),
    arguments: &'static str,
    options: &'static [&'static str],
    needs: fn(&mut Needs<'_>, &Command) -> Result<(), Failure>,
    run: fn(&mut Context<'_>, &Command, &mut Output) -> Result<(), Failure>,
) -> Spec {
    Spec { access: Access::Write, ..read(name, args, arguments, options, needs, run) }
}

/// Every command, in the order of the manual page.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Spec] = &[
    write("init", (0, 0), "", &[], switch::init_needs, switch::init),
    read("show", (0, 0), "", &[], show::needs, show::show),
    write("emer-reset", (0, 0), "", &[], switch::emer_reset_needs, switch::emer_reset),

    write("add-br", (1, 3), "!NEW-BRIDGE ?PARENT ?NEW-VLAN", &["--may-exist"], bridge::needs, bridge::add_br),
    write("del-br", (1, 1), "!BRIDGE", &["--if-exists"], bridge::needs, bridge::del_br),
    read("list-br", (0, 0), "", &["--real", "--fake"], bridge::needs, bridge::list_br),
    read("br-exists", (1, 1), "!BRIDGE", &[], bridge::needs, bridge::br_exists),
    read("br-to-vlan", (1, 1), "!BRIDGE", &[], bridge::needs, bridge::br_to_vlan),
    read("br-to-parent", (1, 1), "!BRIDGE", &[], bridge::needs, bridge::br_to_parent),
    write("br-set-external-id", (2, 3), "!BRIDGE !KEY ?VALUE", &[], bridge::external_id_needs, bridge::set_external_id),
    read("br-get-external-id", (1, 2), "!BRIDGE ?KEY", &[], bridge::external_id_needs, bridge::get_external_id),

    read("list-ports", (1, 1), "!BRIDGE", &[], bridge::needs, port::list_ports),
    write("add-port", (2, MANY), "!BRIDGE !NEW-PORT *COLUMN?:KEY=VALUE", &["--may-exist"], port::add_port_needs, port::add_port),
    write("add-bond", (4, MANY), "!BRIDGE !BOND +IFACE *COLUMN?:KEY=VALUE", &["--may-exist", "--fake-iface"], port::add_bond_needs, port::add_bond),
    write("add-bond-iface", (2, 2), "!BOND !IFACE", &["--may-exist"], bridge::needs, port::add_bond_iface),
    write("del-bond-iface", (1, 2), "?BOND !IFACE", &["--if-exists"], bridge::needs, port::del_bond_iface),
    write("del-port", (1, 2), "?BRIDGE !PORT|IFACE", &["--if-exists", "--with-iface"], bridge::needs, port::del_port),
    read("port-to-br", (1, 1), "!PORT", &[], bridge::needs, port::port_to_br),

    read("list-ifaces", (1, 1), "!BRIDGE", &[], bridge::needs, port::list_ifaces),
    read("iface-to-br", (1, 1), "!IFACE", &[], bridge::needs, port::iface_to_br),

    read("get-controller", (1, 1), "!BRIDGE", &[], control::controller_needs, control::get_controller),
    write("del-controller", (1, 1), "!BRIDGE", &[], control::controller_needs, control::del_controller),
    write("set-controller", (1, MANY), "!BRIDGE +TARGET", &["--inactivity-probe="], control::controller_needs, control::set_controller),
    read("get-fail-mode", (1, 1), "!BRIDGE", &[], bridge::needs, control::get_fail_mode),
    write("del-fail-mode", (1, 1), "!BRIDGE", &[], bridge::needs, control::del_fail_mode),
    write("set-fail-mode", (2, 2), "!BRIDGE !MODE", &[], bridge::needs, control::set_fail_mode),

    read("get-manager", (0, 0), "", &[], control::manager_needs, control::get_manager),
    write("del-manager", (0, 0), "", &[], control::manager_needs, control::del_manager),
    write("set-manager", (1, MANY), "+TARGET", &["--inactivity-probe="], control::manager_needs, control::set_manager),

    read("get-ssl", (0, 0), "", &[], control::ssl_needs, control::get_ssl),
    write("del-ssl", (0, 0), "", &[], control::ssl_needs, control::del_ssl),
    write("set-ssl", (3, 3), "!PRIVATE-KEY !CERTIFICATE !CA-CERT", &["--bootstrap"], control::ssl_needs, control::set_ssl),

    write("add-aa-mapping", (3, 3), "!BRIDGE !ARG !ARG", &[], autoattach::needs, autoattach::add),
    write("del-aa-mapping", (3, 3), "!BRIDGE !ARG !ARG", &[], autoattach::needs, autoattach::del),
    read("get-aa-mapping", (1, 1), "!BRIDGE", &[], autoattach::needs, autoattach::get),

    write("add-zone-tp", (3, 18), "", &["--may-exist"], zone::needs, zone::add_timeout_policy),
    write("del-zone-tp", (2, 2), "", &["--if-exists"], zone::needs, zone::del_timeout_policy),
    read("list-zone-tp", (1, 1), "", &[], zone::needs, zone::list_timeout_policies),
    write("set-zone-limit", (3, 3), "", &[], zone::needs, zone::set_limit),
    write("del-zone-limit", (2, 2), "", &["--if-exists"], zone::needs, zone::del_limit),
    read("list-zone-limits", (1, 1), "", &[], zone::needs, zone::list_limits),
    read("list-dp-cap", (1, 1), "", &[], zone::capability_needs, zone::list_capabilities),

    read("comment", (0, MANY), "*ARG", &[], database::no_needs, database::comment),
    read("get", (2, MANY), "!TABLE !RECORD *COLUMN?:KEY", &["--if-exists", "--id="], database::get_needs, database::get),
    read("list", (1, MANY), "!TABLE *RECORD", &["--if-exists", "--columns="], database::list_needs, database::list),
    read("find", (1, MANY), "!TABLE *COLUMN?:KEY=VALUE", &["--columns="], database::find_needs, database::find),
    write("set", (3, MANY), "!TABLE !RECORD +COLUMN?:KEY=VALUE", &["--if-exists"], database::set_needs, database::set),
    write("add", (4, MANY), "!TABLE !RECORD !COLUMN +?KEY=VALUE", &["--if-exists"], database::add_needs, database::add),
    write("remove", (4, MANY), "!TABLE !RECORD !COLUMN +KEY|VALUE|KEY=VALUE", &["--if-exists"], database::add_needs, database::remove),
    write("clear", (3, MANY), "!TABLE !RECORD +COLUMN", &["--if-exists"], database::clear_needs, database::clear),
    Spec {
        name: "create", args_min: 2, args_max: MANY, arguments: "!TABLE +COLUMN?:KEY=VALUE", options: &["--id="],
        needs: database::create_needs, run: database::create, finish: Some(database::create_finish), access: Access::Write,
    },
    write("destroy", (1, MANY), "!TABLE *RECORD", &["--if-exists", "--all"], database::destroy_needs, database::destroy),
    read("wait-until", (2, MANY), "!TABLE !RECORD *COLUMN?:KEY=VALUE", &[], database::wait_until_needs, database::wait_until),
];

/// Every option that some command takes, without duplicates: they may stand among the global options if the first
/// command takes them.
pub(crate) fn all_options() -> Vec<&'static str> {
    let mut options: Vec<_> = COMMANDS.iter().flat_map(|spec| spec.options).copied().collect();
    options.sort_unstable();
    options.dedup();
    options
}

/// Cuts `args`, what follows the global options, into commands. `leading` are options for the first command that stood
/// among the global ones, as (name with dashes, value).
pub(crate) fn parse(args: &[String], leading: Vec<(String, Option<String>)>) -> Result<Vec<Command>, Failure> {
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

fn parse_one(words: &[String], mut options: BTreeMap<String, Option<String>>) -> Result<Command, Failure> {
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
    let Some(spec) = COMMANDS.iter().find(|spec| spec.name == name) else {
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

fn check_options(spec: &Spec, options: &BTreeMap<String, Option<String>>) -> Result<(), Failure> {
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
