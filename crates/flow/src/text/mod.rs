//! The text syntax of matches and keys, compatible with `ovs-ofctl`.
//!
//! - `parse`: parses `key=value` pairs into a [`Match`]; `format`: formats a [`Match`], a key or a megaflow.
//! - `exact`: parses a packet's key in the syntax of `ofproto/trace`.
//! - `value`: parses and formats one field's value; `flags`: the `+syn-ack` syntax.
//!
//! Numbers are decimal, octal with a leading `0`, or hexadecimal with `0x` (of any width). Error messages equal
//! `ovs-ofctl`'s, as scripts match on them.

mod error;
mod exact;
pub(crate) mod flags;
mod format;
mod parse;
mod value;

pub use error::{MatchError, Part};
pub use exact::{ExactError, parse_exact, parse_exact_match, parse_exact_with};
pub use format::{
    flow_key_to_string, flow_key_to_string_with, format_flow_key, format_match, format_megaflow, format_port,
    match_fields, match_to_string, megaflow_to_string, quoted_if_needed,
};
pub use parse::{
    Parsed, next_key_value, parse_bit_range, parse_field_into, parse_match, parse_protocol, parse_subfield, value_end,
};
pub(crate) use value::number_64;
pub use value::{format_value, parse_port, parse_table, parse_value, scan_int, scan_ipv4, scan_mac};

use base::PortNo;

/// Names of ports, for `in_port` and other fields that hold a port, and of flow tables.
pub trait PortNames {
    /// The number of the port of this name.
    fn number(&self, name: &str) -> Option<PortNo>;
    /// The name of the port, or `None` to print its number.
    fn name(&self, port: PortNo) -> Option<String>;

    /// The number of the table of this name.
    fn table_number(&self, _name: &str) -> Option<u8> {
        None
    }

    /// The name of the table, or `None` to print its number.
    fn table_name(&self, _table: u8) -> Option<String> {
        None
    }
}

/// No port or table names: only numbers and reserved names.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoNames;

impl PortNames for NoNames {
    fn number(&self, _: &str) -> Option<PortNo> {
        None
    }

    fn name(&self, _: PortNo) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests;
