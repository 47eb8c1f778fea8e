//! Policy rules: which tables a lookup searches, in order of their priorities (ip-rule(8)).
//!
//! As in Open vSwitch 4.0.0, a rule selects by the source only, and applies to the source's family. A lookup without a
//! source has the unspecified address of IPv6, whatever the destination: it uses the IPv6 rules.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use serde_json::{Value, json};

use crate::prefix::{Prefix, width};

/// The number of the table of local addresses.
pub const TABLE_LOCAL: u32 = 255;
/// The number of the main table.
pub const TABLE_MAIN: u32 = 254;
/// The number of the default table.
pub const TABLE_DEFAULT: u32 = 253;

/// The tables with names.
const NAMED: [(&str, u32); 3] = [("local", TABLE_LOCAL), ("main", TABLE_MAIN), ("default", TABLE_DEFAULT)];

/// The number of the table that a text begins with: a name or a number.
pub(crate) fn table_named(text: &str) -> Option<u32> {
    NAMED.iter().find(|(name, _)| text.starts_with(name)).map(|(_, table)| *table)
}

/// The sources that a rule selects.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum From {
    /// All of a family.
    All {
        /// IPv4, else IPv6.
        ipv4: bool,
    },
    /// The sources in a prefix.
    In {
        /// The address as written, which may have bits behind the prefix.
        address: IpAddr,
        /// The length of the prefix, not 0.
        len: u8,
    },
}

impl From {
    /// The sources in a prefix; all of them if it has no bits.
    pub fn prefix(address: IpAddr, len: u8) -> Self {
        if len == 0 {
            Self::All { ipv4: address.is_ipv4() }
        } else {
            Self::In { address, len: len.min(width(address)) }
        }
    }

    fn is_ipv4(self) -> bool {
        match self {
            Self::All { ipv4 } => ipv4,
            Self::In { address, .. } => address.is_ipv4(),
        }
    }
}

/// A rule of either origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rule {
    /// Smaller ones come first.
    pub priority: u32,
    /// The selected sources.
    pub from: From,
    /// Selects the other sources instead.
    pub invert: bool,
    /// The table to search.
    pub table: u32,
    /// Added by a command, rather than read from the kernel.
    pub user: bool,
}

impl Rule {
    /// Whether the rule is about this family.
    pub fn is_ipv4(&self) -> bool {
        self.from.is_ipv4()
    }

    /// Whether a lookup with a source, or without one, searches the rule's table.
    fn selects(&self, source: Option<IpAddr>) -> bool {
        let source = source.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        let inside = match self.from {
            From::All { .. } => true,
            From::In { address, len } => Prefix::new(address, len).is_some_and(|prefix| prefix.contains(source)),
        };
        self.is_ipv4() == source.is_ipv4() && inside != self.invert
    }

    /// The object that `ovs/route/rule/show` prints as JSON.
    pub fn to_json(&self) -> Value {
        let (from, len) = match self.from {
            From::All { .. } => ("all".to_owned(), 0),
            From::In { address, len } => (address.to_string(), len),
        };
        json!({
            "from": from, "invert": self.invert, "ipv4": self.is_ipv4(), "lookup": self.table, "priority": self.priority,
            "src-prefix": len, "user": self.user,
        })
    }
}

impl fmt::Display for Rule {
    /// A line of `ovs/route/rule/show`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let origin = if self.user { "User" } else { "Cached" };
        let not = if self.invert { "not " } else { "" };
        write!(f, "{origin}: {}: {not}from ", self.priority)?;
        match self.from {
            From::All { .. } => f.write_str("all")?,
            From::In { address, len } if len == width(address) => write!(f, "{address}")?,
            From::In { address, len } => write!(f, "{address}/{len} ")?,
        }
        match NAMED.iter().find(|(_, table)| *table == self.table) {
            Some((name, _)) => write!(f, " lookup {name}"),
            None => write!(f, " lookup {}", self.table),
        }
    }
}

/// The rules in order of their priorities, older ones first among equals.
#[derive(Clone, Debug)]
pub struct Rules(Vec<Rule>);

impl Default for Rules {
    fn default() -> Self {
        Self(Self::standard().collect())
    }
}

impl Rules {
    /// The rules that hold without any of the kernel's: local, main and, for IPv4, default. Open vSwitch keeps and shows
    /// them beside the kernel's own.
    pub fn standard() -> impl Iterator<Item = Rule> {
        let standard = [(0, TABLE_LOCAL, true), (0, TABLE_LOCAL, false), (32766, TABLE_MAIN, true)];
        standard.into_iter().chain([(32766, TABLE_MAIN, false), (32767, TABLE_DEFAULT, true)]).map(
            |(priority, table, ipv4)| Rule { priority, from: From::All { ipv4 }, invert: false, table, user: false },
        )
    }

    /// All rules.
    pub fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.0.iter()
    }

    /// The tables that a lookup searches, in order; some may come more than once.
    pub(crate) fn tables(&self, source: Option<IpAddr>) -> impl Iterator<Item = u32> {
        self.0.iter().filter(move |rule| rule.selects(source)).map(|rule| rule.table)
    }

    /// The tables and families whose routes are read from the kernel: that rules of the same origin refer to.
    pub(crate) fn kernel_tables(&self) -> BTreeSet<(u32, bool)> {
        self.0.iter().filter(|rule| !rule.user).map(|rule| (rule.table, rule.is_ipv4())).collect()
    }

    /// The highest free priority below the highest used one.
    pub fn next_priority(&self) -> u32 {
        let mut free = self.0.last().map_or(u32::MAX, |rule| rule.priority);
        for rule in self.0.iter().rev() {
            if rule.priority < free {
                break;
            }
            free = rule.priority.saturating_sub(1);
        }
        free
    }

    pub(crate) fn insert(&mut self, rule: Rule) {
        let at = self.0.partition_point(|other| other.priority <= rule.priority);
        self.0.insert(at, rule);
    }

    /// Removes the first rule added by a command that is equal to this one, of any priority if that is 0.
    pub(crate) fn remove(&mut self, rule: &Rule) -> bool {
        let equal = |other: &Rule| {
            let priority = if rule.priority == 0 { other.priority } else { rule.priority };
            *other == Rule { priority, user: true, ..*rule }
        };
        let found = self.0.iter().position(equal);
        found.map(|at| self.0.remove(at)).is_some()
    }

    /// Replaces the rules read from the kernel. Returns whether any differs.
    pub(crate) fn replace_kernel(&mut self, kernel: &[Rule]) -> bool {
        let mut next = Self::default();
        kernel.iter().for_each(|rule| next.insert(*rule));
        self.0.iter().filter(|rule| rule.user).for_each(|rule| next.insert(*rule));
        let differs = next.0 != self.0;
        self.0 = next.0;
        differs
    }
}
