//! Options that can change at run time: the optimisations, and the fields with prefix tries.

use flow::Field;
use std::sync::atomic::{AtomicU8, Ordering};

/// The optimisations that lookups use. They do not change the rule found; disabling one makes lookups read more bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Options {
    /// Visit tuples by descending highest priority, until no remaining tuple can hold a better rule.
    pub priority_sorting: bool,
    /// Staged lookup: leave a tuple after the first stage in which it has no match.
    pub stages: bool,
    /// Skip tuples that the tries of the prefix fields exclude.
    pub prefix_tries: bool,
    /// Skip tuples that the tries of transport ports exclude.
    pub ports_trie: bool,
    /// Skip tuples in which no rule has the key's metadata.
    pub partitions: bool,
}

impl Options {
    /// All of them.
    pub const ALL: Self = Self::from_bits(0x1f);
    /// None of them.
    pub const NONE: Self = Self::from_bits(0);

    /// The options of a bitmap, the first field in the lowest bit.
    pub const fn from_bits(bits: u8) -> Self {
        Self {
            priority_sorting: bits & 1 != 0,
            stages: bits & 2 != 0,
            prefix_tries: bits & 4 != 0,
            ports_trie: bits & 8 != 0,
            partitions: bits & 16 != 0,
        }
    }

    fn bits(self) -> u8 {
        let all = [self.priority_sorting, self.stages, self.prefix_tries, self.ports_trie, self.partitions];
        all.iter().rev().fold(0, |bits, on| bits << 1 | u8::from(*on))
    }
}

impl Default for Options {
    fn default() -> Self {
        Self::ALL
    }
}

/// [`Options`] as a bitmap, for fast queries by lookups.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enabled(u8);

impl Enabled {
    pub(crate) fn priority_sorting(self) -> bool {
        self.0 & 1 != 0
    }

    pub(crate) fn stages(self) -> bool {
        self.0 & 2 != 0
    }

    pub(crate) fn prefix_tries(self) -> bool {
        self.0 & 4 != 0
    }

    pub(crate) fn ports_trie(self) -> bool {
        self.0 & 8 != 0
    }

    pub(crate) fn partitions(self) -> bool {
        self.0 & 16 != 0
    }
}

/// [`Options`] that can be read while another thread changes them.
#[derive(Debug)]
pub(crate) struct AtomicOptions(AtomicU8);

impl Default for AtomicOptions {
    fn default() -> Self {
        Self(AtomicU8::new(Options::ALL.bits()))
    }
}

impl AtomicOptions {
    pub(crate) fn load(&self) -> Options {
        Options::from_bits(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn enabled(&self) -> Enabled {
        Enabled(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn store(&self, options: Options) {
        self.0.store(options.bits(), Ordering::Relaxed);
    }
}

/// Maximum number of prefix fields of a table.
pub const MAX_PREFIXES: usize = 4;

/// The default prefix fields of a table.
pub const DEFAULT_PREFIXES: [Field; MAX_PREFIXES] = [Field::Ipv4Src, Field::Ipv4Dst, Field::Ipv6Src, Field::Ipv6Dst];

/// Supported prefix fields (Flow_Table:prefixes in ovs-vswitchd.conf.db(5)).
pub const PREFIX_FIELDS: [Field; 9] = [
    Field::TunId,
    Field::TunSrc,
    Field::TunDst,
    Field::TunIpv6Src,
    Field::TunIpv6Dst,
    Field::Ipv4Src,
    Field::Ipv4Dst,
    Field::Ipv6Src,
    Field::Ipv6Dst,
];

/// An error in a list of prefix fields.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PrefixError {
    /// More than [`MAX_PREFIXES`].
    #[error("at most {MAX_PREFIXES} prefix fields are supported")]
    TooMany,
    /// A field that is not in [`PREFIX_FIELDS`].
    #[error("{0} cannot be a prefix field")]
    Unsupported(Field),
    /// A field that occurs twice.
    #[error("prefix field {0} is given twice")]
    Duplicate(Field),
}

/// Checks a list of prefix fields.
pub(crate) fn check_prefixes(fields: &[Field]) -> Result<(), PrefixError> {
    for (i, field) in fields.iter().enumerate() {
        if !PREFIX_FIELDS.contains(field) {
            return Err(PrefixError::Unsupported(*field));
        }
        if fields[..i].contains(field) {
            return Err(PrefixError::Duplicate(*field));
        }
    }
    if fields.len() > MAX_PREFIXES { Err(PrefixError::TooMany) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_stored() {
        let kept = AtomicOptions::default();
        assert_eq!(kept.load(), Options::ALL);
        for bits in 0..32 {
            let options = Options::from_bits(bits);
            kept.store(options);
            assert_eq!((kept.load(), options.bits()), (options, bits));
        }
    }

    #[test]
    fn prefix_fields_are_checked() {
        let check = |fields: &[Field]| check_prefixes(fields).map_err(|e| e.to_string());
        assert_eq!(check(&DEFAULT_PREFIXES), Ok(()));
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&[Field::TcpSrc]), Err("tcp_src cannot be a prefix field".into()));
        assert_eq!(check(&[Field::TunId, Field::TunId]), Err("prefix field tun_id is given twice".into()));
        assert_eq!(check(&PREFIX_FIELDS[..5]), Err("at most 4 prefix fields are supported".into()));
    }
}
