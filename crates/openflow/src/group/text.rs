//! The group syntax of ovs-ofctl(8): `group_id=1,type=select,bucket=weight:5,output:2,bucket=output:3`.
//!
//! The messages are those of `ovs-ofctl`, which scripts match.

use super::{
    BUCKET_ALL, BUCKET_FIRST, BUCKET_LAST, BUCKET_MAX, Bucket, GROUP_ALL, GROUP_ANY, GROUP_MAX, GroupCommand,
    GroupKind, GroupMod,
};
use crate::action::parse::{parse_actions, parse_uint};
use crate::protocol::Protocols;
use base::PortNo;
use flow::options::OPTION_LEN_MAX;
use flow::text::{next_key_value, parse_port, parse_value};
use flow::{Field, Loc, PortNames, TunOption};
use std::collections::HashSet;
use std::fmt::Write;

/// An error in the text of a group.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct GroupTextError(pub String);

type Result<T> = std::result::Result<T, GroupTextError>;

fn error<T>(message: impl Into<String>) -> Result<T> {
    Err(GroupTextError(message.into()))
}

/// A group mod parsed from text, and the formats that can carry it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParsedGroup {
    /// The group mod.
    pub group_mod: GroupMod,
    /// Formats that can carry it. (OpenFlow 1.1 to 1.4 are included even for commands on buckets, which they lack; a sender
    /// has to check [`GroupCommand::is_of_buckets`].)
    pub usable: Protocols,
}

/// Largest length of a selection method's name, in bytes.
const METHOD_MAX: usize = 15;

/// Parses a group for `command`.
pub fn parse_group(text: &str, command: GroupCommand, ports: &dyn PortNames) -> Result<ParsedGroup> {
    let (settings, buckets) = match text.find("bucket=") {
        Some(at) => (text.get(..at).unwrap_or_default(), text.get(at..).unwrap_or_default()),
        None => (text, ""),
    };
    let mut parser = Parser { gm: GroupMod::new(command, GROUP_ANY), has_kind: false, has_bucket_id: false };
    if !buckets.is_empty() && !parser.takes_buckets() {
        return error("bucket is not needed");
    }
    let mut rest = settings;
    while let Some((key, value)) = next_key_value(&mut rest) {
        parser.setting(key, value.unwrap_or(""), ports)?;
    }
    parser.finish_settings()?;
    let makes_group = parser.takes_kind();
    let mut gm = parser.gm;
    let newest = Protocols::OF10_ANY | Protocols::NXM_ANY | Protocols::OF15_OXM;
    let needs_newest = command.is_of_buckets() || !gm.properties.selection_method.is_empty();
    let mut usable = if needs_newest { newest } else { Protocols::ANY };
    for text in buckets.split("bucket=").skip(1) {
        // As in `ovs-ofctl`, only the formats of the last bucket count.
        let bucket = parse_bucket(text, gm.kind, ports)?;
        usable = Protocols::of_action_list(&bucket.actions);
        if gm.kind == GroupKind::FastFailover && !bucket.has_liveness() {
            return error("fast failover bucket requires watch_port or watch_group");
        }
        if makes_group && gm.kind != GroupKind::Select && bucket.weight != 0 {
            return error("Only select groups can have bucket weights.");
        }
        gm.buckets.push(bucket);
        if gm.kind == GroupKind::Indirect && gm.buckets.len() > 1 {
            return error("Indirect groups can have at most one bucket.");
        }
    }
    number_buckets(&mut gm.buckets);
    Ok(ParsedGroup { group_mod: gm, usable })
}

/// Parses a line of `add-groups`, which may start with a command: `add`, `modify`, `add_or_mod`, `delete`,
/// `insert_bucket` or `remove_bucket`.
pub fn parse_group_line(line: &str, ports: &dyn PortNames) -> Result<ParsedGroup> {
    let line = line.trim_start();
    let (word, rest) = line.split_at(line.find([',', ' ', '\t', '\r', '\n']).unwrap_or(line.len()));
    let command = match word {
        "add" => GroupCommand::Add,
        "modify" => GroupCommand::Modify,
        "add_or_mod" => GroupCommand::AddOrModify,
        "delete" => GroupCommand::Delete,
        "insert_bucket" => GroupCommand::InsertBucket,
        "remove_bucket" => GroupCommand::RemoveBucket,
        _ => return parse_group(line, GroupCommand::Add, ports),
    };
    parse_group(rest, command, ports)
}

/// Gives each bucket without an id the smallest free id.
fn number_buckets(buckets: &mut [Bucket]) {
    let given: HashSet<u32> = buckets.iter().map(|b| b.bucket_id).collect();
    let mut next = 0;
    for bucket in buckets.iter_mut().filter(|b| b.bucket_id == BUCKET_ALL) {
        while given.contains(&next) {
            next += 1;
        }
        bucket.bucket_id = next;
        next += 1;
    }
}

/// Parses a number like the C library.
fn u64_of(text: &str) -> Result<u64> {
    if text.is_empty() {
        return error("missing required numeric argument");
    }
    parse_uint(text, 64).map_or_else(|| error(format!("invalid numeric format {text}")), Ok)
}

fn u32_of(text: &str) -> Result<u32> {
    let n = u64_of(text)?;
    u32::try_from(n).or_else(|_| error(format!("invalid numeric format {text}")))
}

struct Parser {
    gm: GroupMod,
    has_kind: bool,
    has_bucket_id: bool,
}

impl Parser {
    /// Returns true if the command makes a group.
    fn takes_kind(&self) -> bool {
        matches!(self.gm.command, GroupCommand::Add | GroupCommand::Modify | GroupCommand::AddOrModify)
    }

    fn takes_buckets(&self) -> bool {
        self.takes_kind() || self.gm.command == GroupCommand::InsertBucket
    }

    fn setting(&mut self, key: &str, value: &str, ports: &dyn PortNames) -> Result<()> {
        let needs_kind = |what: &str| if self.takes_kind() { Ok(()) } else { error(format!("{what} not needed")) };
        match key {
            "command_bucket_id" => self.command_bucket(value)?,
            "group_id" => self.gm.group_id = group_id(value)?,
            "type" => {
                needs_kind("type is")?;
                self.gm.kind = kind(value)?;
                self.has_kind = true;
            }
            "selection_method" => {
                needs_kind("selection method is")?;
                if value.len() > METHOD_MAX {
                    return error(format!("selection method is longer than {METHOD_MAX} bytes long"));
                }
                value.clone_into(&mut self.gm.properties.selection_method);
            }
            "selection_method_param" => {
                needs_kind("selection method param is")?;
                self.gm.properties.selection_method_param = u64_of(value)?;
            }
            "fields" => {
                needs_kind("fields are")?;
                self.fields(value, ports)?;
            }
            _ => return error(format!("unknown keyword {key}")),
        }
        Ok(())
    }

    fn command_bucket(&mut self, value: &str) -> Result<()> {
        if !self.gm.command.is_of_buckets() {
            return error("command bucket id is not needed");
        }
        self.gm.command_bucket_id = match value {
            "all" if self.gm.command == GroupCommand::InsertBucket => {
                return error("command_bucket_id=all is not permitted");
            }
            "all" => BUCKET_ALL,
            "first" => BUCKET_FIRST,
            "last" => BUCKET_LAST,
            _ => match u32_of(value)? {
                BUCKET_ALL if self.gm.command == GroupCommand::InsertBucket => {
                    return error("command_bucket_id=all is not permitted");
                }
                id @ (BUCKET_FIRST | BUCKET_LAST | BUCKET_ALL) => id,
                id if id > BUCKET_MAX => return error(format!("invalid command bucket id {id}")),
                id => id,
            },
        };
        self.has_bucket_id = true;
        Ok(())
    }

    /// Parses `FIELD` or `FIELD=MASK`, several separated by commas.
    fn fields(&mut self, text: &str, ports: &dyn PortNames) -> Result<()> {
        let properties = &mut self.gm.properties;
        let mut rest = text;
        while let Some((name, value)) = next_key_value(&mut rest) {
            // As in `ovs-ofctl`, errors quote the text that is not parsed yet.
            let left = rest.strip_prefix([',', ' ', '\t', '\r', '\n']).unwrap_or(rest);
            let Some(field) = Field::from_name(name) else {
                return error(format!("{left}: unknown field {name}"));
            };
            if matches!(field.info().loc, Loc::TunMetadata(_)) {
                let option = option_mask(field, value.filter(|value| !value.is_empty()))?;
                if !properties.select_option(option) {
                    return error(format!("{name}: duplicate field"));
                }
                continue;
            }
            if properties.fields.iter().any(|(f, _)| *f == field) {
                return error(format!("{name}: duplicate field"));
            }
            let full = field.info().full_mask();
            let mask = match value {
                None | Some("") => full,
                Some(value) => {
                    let (mask, exact) = parse_value(field, value, ports).map_err(|e| GroupTextError(e.to_string()))?;
                    if exact & full != full || value.contains('/') {
                        return error(format!("{value}: wildcards not allowed here"));
                    }
                    if mask == 0 {
                        return error(format!("{left}: values are wildcards here and must not be all-zeros"));
                    }
                    if field.info().maskable == flow::Maskable::None && mask & full != full {
                        return error(format!("{value}: invalid mask for field {name}"));
                    }
                    mask & full
                }
            };
            properties.fields.push((field, mask));
        }
        properties.fields.sort_by_key(|(field, _)| *field as usize);
        Ok(())
    }

    /// Checks the settings against each other.
    fn finish_settings(&mut self) -> Result<()> {
        if self.gm.group_id == GROUP_ANY && self.gm.command == GroupCommand::Delete {
            self.gm.group_id = GROUP_ALL;
        }
        let properties = &self.gm.properties;
        if self.gm.group_id == GROUP_ANY {
            return error("must specify a group_id");
        }
        if self.takes_kind() && !self.has_kind {
            return error("must specify a type");
        }
        let selects = !properties.fields.is_empty() || !properties.options.is_empty();
        if selects && properties.selection_method != "hash" {
            return error("fields may only be specified with \"selection_method=hash\"");
        }
        if properties.selection_method_param != 0 && properties.selection_method.is_empty() {
            return error("selection_method_param is only allowed with \"selection_method\"");
        }
        if self.gm.command == GroupCommand::InsertBucket && !self.has_bucket_id {
            return error("must specify a command bucket id");
        }
        Ok(())
    }
}

/// The bits of a tunnel option to hash, all of them without a value.
fn option_mask(field: Field, value: Option<&str>) -> Result<TunOption> {
    let Some(value) = value else {
        return TunOption::new(field, &[0xff; OPTION_LEN_MAX], None).ok_or_else(|| GroupTextError(String::new()));
    };
    let option = TunOption::parse(field, value).map_err(|e| GroupTextError(e.to_string()))?;
    if option.mask().is_some() { error(format!("{value}: wildcards not allowed here")) } else { Ok(option) }
}

fn group_id(text: &str) -> Result<u32> {
    if text == "all" {
        return Ok(GROUP_ALL);
    }
    match u32_of(text)? {
        id if id > GROUP_MAX && id != GROUP_ALL => error(format!("invalid group id {id}")),
        id => Ok(id),
    }
}

fn kind(text: &str) -> Result<GroupKind> {
    match text {
        "all" => Ok(GroupKind::All),
        "select" => Ok(GroupKind::Select),
        "indirect" => Ok(GroupKind::Indirect),
        "ff" | "fast_failover" => Ok(GroupKind::FastFailover),
        _ => error(format!("invalid group type {text}")),
    }
}

/// Parses one bucket: settings, and actions by themselves or after `actions=`.
fn parse_bucket(text: &str, kind: GroupKind, ports: &dyn PortNames) -> Result<Bucket> {
    let mut bucket = Bucket::new(kind);
    let (mut actions, mut rest) = (String::new(), text);
    while let Some((key, value)) = next_key_value(&mut rest) {
        let value = value.unwrap_or("");
        match key.to_ascii_lowercase().as_str() {
            "weight" => match parse_uint(value, 16) {
                Some(weight) => bucket.weight = weight as u16,
                None => return error(format!("invalid weight \"{value}\"")),
            },
            "watch_port" => match parse_port(value, ports) {
                Some(port) if port < PortNo::MAX || port == PortNo::ANY => bucket.watch_port = port,
                _ => return error(format!("{value}: invalid watch_port")),
            },
            "watch_group" => match u32_of(value)? {
                id if id > GROUP_MAX => return error(format!("invalid watch_group id {id}")),
                id => bucket.watch_group = id,
            },
            "bucket_id" => match u32_of(value)? {
                id if id > BUCKET_MAX => return error(format!("invalid bucket_id id {id}")),
                id => bucket.bucket_id = id,
            },
            "action" | "actions" => {
                let _ = write!(actions, "{value},");
            }
            _ => {
                let _ = write!(actions, "{key}({value}),");
            }
        }
    }
    if actions.is_empty() {
        return error("bucket must specify actions");
    }
    let actions = actions.strip_suffix(',').unwrap_or(&actions);
    bucket.actions = parse_actions(actions, ports).map_err(|e| GroupTextError(e.to_string()))?.into();
    Ok(bucket)
}
