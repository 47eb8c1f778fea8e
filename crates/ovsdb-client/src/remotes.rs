//! The servers of a database: the choice of the next one, and the time of the next attempt.
//!
//! Each failure moves on to the next server, in an order that is drawn once, so that the clients of a cluster do not
//! all connect to the same server. All of them are tried without delay; then there is a wait before each attempt,
//! twice as long each time, until a server has sent its contents and was connected for as long as the first wait:
//! connections that always break at once are retried no more often than refused ones.

use std::time::Duration;

use base::rng::Rng;
use ovsdb::jsonrpc::Remote;
use tokio::time::Instant;

use crate::error::Error;

/// The first wait before connecting again; each further one is twice as long, up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// The longest wait before connecting again.
const BACKOFF_MAX: Duration = Duration::from_secs(8);

/// In which order several servers are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// In one that is drawn at random.
    Shuffled,
    /// As they were named.
    AsNamed,
}

/// See the module.
#[derive(Debug, Clone)]
pub(crate) struct Remotes {
    /// As they were named, and parsed; never empty.
    remotes: Vec<(String, Remote)>,
    /// Indexes in `remotes`, in the order in which they are tried.
    order: Vec<usize>,
    /// The place in `order` of the one that is tried.
    at: usize,
    /// How many failures are not followed by a wait.
    free: usize,
    /// The last wait.
    backoff: Duration,
    /// Since when the one that is tried is of use.
    useful: Option<Instant>,
}

impl Remotes {
    /// Reads connection methods with commas between them.
    pub(crate) fn parse(text: &str) -> Result<Self, Error> {
        let mut remotes = Vec::new();
        for name in text.split(',').map(str::trim).filter(|name| !name.is_empty()) {
            remotes.push((name.to_owned(), parse_one(name)?));
        }
        if remotes.is_empty() {
            let problem = "a connection method is missing".to_owned();
            return Err(Error::Remote { remote: text.to_owned(), problem });
        }
        let (order, free) = ((0..remotes.len()).collect(), remotes.len());
        let mut made = Self { remotes, order, at: 0, free, backoff: Duration::ZERO, useful: None };
        made.arrange(Order::Shuffled, &mut Rng::from_entropy());
        Ok(made)
    }

    /// Begins again with a new order.
    pub(crate) fn arrange(&mut self, order: Order, rng: &mut Rng) {
        self.order.sort_unstable();
        if order == Order::Shuffled {
            for end in (1..self.order.len()).rev() {
                self.order.swap(end, rng.below(end as u64 + 1) as usize);
            }
        }
        self.at = 0;
    }

    /// Goes on in an order, from the one that is tried.
    pub(crate) fn rearrange(&mut self, order: Order, rng: &mut Rng) {
        let current = self.order.get(self.at).copied();
        self.arrange(order, rng);
        self.at = self.order.iter().position(|index| Some(*index) == current).unwrap_or_default();
    }

    /// How many there are, at least one.
    pub(crate) fn count(&self) -> usize {
        self.remotes.len()
    }

    fn current(&self) -> &(String, Remote) {
        let at = self.order.get(self.at).copied().unwrap_or_default();
        self.remotes.get(at).expect("there is at least one, and the order is of their indexes")
    }

    /// The server that is tried, as it was named.
    pub(crate) fn name(&self) -> &str {
        &self.current().0
    }

    /// The server that is tried.
    pub(crate) fn remote(&self) -> &Remote {
        &self.current().1
    }

    /// The server that is tried is of use at `now`: if that lasts, its failure will be the first one again.
    pub(crate) fn succeeded(&mut self, now: Instant) {
        self.useful.get_or_insert(now);
    }

    /// Records a failure of the current server: moves on to the next, and returns the wait before the attempt.
    pub(crate) fn failed(&mut self, now: Instant) -> Duration {
        if self.useful.take().is_some_and(|since| now.duration_since(since) >= BACKOFF_MIN) {
            self.free = self.remotes.len();
            self.backoff = Duration::ZERO;
        }
        self.at = (self.at + 1) % self.order.len().max(1);
        if self.free > 0 {
            self.free -= 1;
            return Duration::ZERO;
        }
        self.backoff = (self.backoff * 2).clamp(BACKOFF_MIN, BACKOFF_MAX);
        self.backoff
    }
}

/// Parses one connection method.
fn parse_one(remote: &str) -> Result<Remote, Error> {
    Remote::parse(remote).map_err(|error| {
        let text = error.to_string();
        let problem = text.strip_prefix(&format!("{remote}: ")).unwrap_or(&text).to_owned();
        Error::Remote { remote: remote.to_owned(), problem }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn all_are_tried_and_then_again_more_and_more_slowly() {
        let mut remotes = Remotes::parse("unix:a, unix:b,unix:c").unwrap();
        remotes.arrange(Order::AsNamed, &mut Rng::seeded(0));
        let now = Instant::now();
        let mut tried = Vec::new();
        for _ in 0..9 {
            let name = remotes.name().to_owned();
            tried.push((name, remotes.failed(now).as_secs()));
        }
        let expected = [0, 0, 0, 1, 2, 4, 8, 8, 8].into_iter().zip(["a", "b", "c"].into_iter().cycle());
        let expected: Vec<(String, u64)> = expected.map(|(wait, name)| (format!("unix:{name}"), wait)).collect();
        assert_eq!(tried, expected);
        // Of use, but not for long.
        remotes.succeeded(now);
        assert_eq!(remotes.failed(now + BACKOFF_MIN / 2), BACKOFF_MAX);
        remotes.succeeded(now);
        remotes.succeeded(now + BACKOFF_MIN);
        assert_eq!([(); 3].map(|()| remotes.failed(now + BACKOFF_MIN)), [Duration::ZERO; 3]);
        assert_eq!(remotes.failed(now + BACKOFF_MIN), BACKOFF_MIN);
    }

    #[test]
    fn orders_are_drawn_and_none_is_left_out() {
        let mut remotes = Remotes::parse("unix:a,unix:b,unix:c").unwrap();
        let mut rng = Rng::seeded(1);
        let mut orders = BTreeSet::new();
        for _ in 0..100 {
            remotes.arrange(Order::Shuffled, &mut rng);
            let names = (0..3).map(|_| {
                let name = remotes.name().to_owned();
                remotes.failed(Instant::now());
                name
            });
            let names: Vec<String> = names.collect();
            assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 3);
            orders.insert(names);
        }
        assert_eq!(orders.len(), 6);
    }

    #[test]
    fn a_reordered_list_continues_at_the_current_server() {
        let mut remotes = Remotes::parse("unix:a,unix:b,unix:c").unwrap();
        let (mut rng, now) = (Rng::seeded(2), Instant::now());
        for _ in 0..100 {
            let name = remotes.name().to_owned();
            remotes.rearrange(Order::Shuffled, &mut rng);
            assert_eq!(remotes.name(), name);
            remotes.failed(now);
        }
        remotes.arrange(Order::AsNamed, &mut rng);
        remotes.failed(now);
        remotes.rearrange(Order::AsNamed, &mut rng);
        assert_eq!(remotes.name(), "unix:b");
        remotes.failed(now);
        assert_eq!(remotes.name(), "unix:c");
    }

    #[test]
    fn an_unknown_connection_method_is_named() {
        assert!(Remotes::parse("unix:a,nonsense").unwrap_err().to_string().starts_with("nonsense: "));
        assert_eq!(Remotes::parse(",").unwrap_err().to_string(), ",: a connection method is missing");
    }
}
