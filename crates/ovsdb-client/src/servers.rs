//! One server of a database, or several, as they are named together: `METHOD[,METHOD]...` (ovsdb(7), "Connection Methods").

use std::sync::Arc;

use ovsdb::Uuid;
use ovsdb::jsonrpc::Remote;

use crate::client::parse_remote;
use crate::error::Error;

/// In which order several servers are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// As they are named.
    Given,
    /// A random one, so that many clients spread over the servers.
    Random,
}

/// The servers, one of which is the current one. There is at least one.
#[derive(Debug, Clone)]
pub(crate) struct Servers {
    /// As they were given, for messages.
    name: Arc<str>,
    first: Remote,
    others: Vec<Remote>,
    /// The number of the current one.
    at: usize,
}

impl Servers {
    /// Reads connection methods between commas.
    ///
    /// # Errors
    ///
    /// [`Error::Remote`] about the first that is none.
    pub(crate) fn parse(names: &str, order: Order) -> Result<Self, Error> {
        let (first, others) = names.split_once(',').unwrap_or((names, ""));
        let first = parse_remote(first)?;
        let others = others.split(',').map(str::trim).filter(|name| !name.is_empty());
        let mut all = others.map(parse_remote).collect::<Result<Vec<_>, _>>()?;
        if order == Order::Random {
            all.push(first.clone());
            all.sort_by_cached_key(|_| Uuid::random());
        }
        let first = if order == Order::Random { all.pop().unwrap_or(first) } else { first };
        Ok(Self { name: names.into(), first, others: all, at: 0 })
    }

    /// All of them, as they were given.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.others.len() + 1
    }

    /// The one to connect to, or that is connected.
    pub(crate) fn current(&self) -> &Remote {
        self.at.checked_sub(1).and_then(|at| self.others.get(at)).unwrap_or(&self.first)
    }

    /// Goes on to the next; whether it is the first again.
    pub(crate) fn advance(&mut self) -> bool {
        self.at = (self.at + 1) % self.count();
        self.at == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(names: &str, order: Order) -> Vec<String> {
        let mut servers = Servers::parse(names, order).unwrap();
        let mut seen = Vec::new();
        loop {
            seen.push(servers.current().to_string());
            if servers.advance() {
                assert_eq!(seen.len(), servers.count());
                return seen;
            }
        }
    }

    #[test]
    fn each_is_tried_once_in_a_round() {
        assert_eq!(round("unix:a", Order::Given), ["unix:a"]);
        assert_eq!(round("unix:a,tcp:1.2.3.4:5,unix:b", Order::Given), ["unix:a", "tcp:1.2.3.4:5", "unix:b"]);
        assert_eq!(round("unix:a, unix:b,", Order::Given), ["unix:a", "unix:b"]);
        let mut mixed = round("unix:a,unix:b,unix:c", Order::Random);
        mixed.sort();
        assert_eq!(mixed, ["unix:a", "unix:b", "unix:c"]);
    }

    #[test]
    fn a_random_order_begins_anywhere() {
        let firsts: std::collections::BTreeSet<String> =
            (0..200).map(|_| round("unix:a,unix:b,unix:c", Order::Random).remove(0)).collect();
        assert_eq!(firsts.len(), 3);
    }

    #[test]
    fn the_wrong_one_is_named() {
        let error = Servers::parse("unix:a,foo", Order::Given).unwrap_err();
        assert!(error.to_string().starts_with("foo: "), "{error}");
        assert!(Servers::parse("", Order::Given).is_err());
    }
}
