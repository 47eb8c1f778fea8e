//! Counts the flow mods of a connection for the log: there is a message ten seconds after the first, one a minute after that,
//! and one at the end of the connection.

use super::peer::Peer;
use crate::bridge::Ofproto;
use base::Millis;
use openflow::FlowMod;
use openflow::flow_mod::FlowModCommand;
use vlog::{RateLimit, info_rl};

/// Milliseconds from the first flow mod until it is logged.
const FIRST_MS: u64 = 10_000;
/// Milliseconds from one message until the next, at least.
const NEXT_MS: u64 = 60_000;

/// Limits these messages: a program like `ovs-ofctl` makes a connection for each flow mod.
static LIMIT: RateLimit = RateLimit::new(600, 600);

/// Numbers of flow mods that were applied.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Applied {
    adds: u64,
    deletes: u64,
    modifications: u64,
}

impl Applied {
    /// Counts a flow mod.
    pub(super) fn count(&mut self, fm: &FlowMod) {
        let count = match fm.command {
            FlowModCommand::Add => &mut self.adds,
            FlowModCommand::Delete | FlowModCommand::DeleteStrict => &mut self.deletes,
            FlowModCommand::Modify | FlowModCommand::ModifyStrict => &mut self.modifications,
        };
        *count += 1;
    }
}

/// The applied flow mods that are not in the log yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Unlogged {
    applied: Applied,
    first: Millis,
    last: Millis,
    log_at: Millis,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct FlowModLog {
    unlogged: Option<Unlogged>,
    /// The time before which there is no further message.
    rests_until: Millis,
}

impl FlowModLog {
    /// Adds flow mods that were applied at `now`.
    pub(super) fn add(&mut self, applied: Applied, now: Millis) {
        if applied == Applied::default() {
            return;
        }
        let Self { unlogged, rests_until } = self;
        let unlogged = unlogged.get_or_insert_with(|| {
            let log_at = now.after(FIRST_MS).max(*rests_until);
            *rests_until = log_at.after(NEXT_MS);
            Unlogged { applied: Applied::default(), first: now, last: now, log_at }
        });
        unlogged.applied.adds += applied.adds;
        unlogged.applied.deletes += applied.deletes;
        unlogged.applied.modifications += applied.modifications;
        unlogged.last = now;
    }

    /// Takes the message about flow mods that is due at `now`.
    fn take_due(&mut self, now: Millis) -> Option<String> {
        self.unlogged.as_ref().is_some_and(|unlogged| unlogged.log_at <= now).then(|| self.take(now)).flatten()
    }

    /// Takes the message about all flow mods until `now`; `None` if there were none.
    fn take(&mut self, now: Millis) -> Option<String> {
        let Unlogged { applied, first, last, .. } = self.unlogged.take()?;
        let Applied { adds, deletes, modifications } = applied;
        let (ago, took) = (now.since(first) / 1000, last.since(first) / 1000);
        let when = match took {
            _ if took == ago => format!("in the last {ago} s"),
            0 => format!("{ago} s ago"),
            _ => format!("in the {took} s starting {ago} s ago"),
        };
        let kinds = [(adds, "adds"), (deletes, "deletes"), (modifications, "modifications")];
        let kinds: Vec<_> = kinds.iter().filter(|(n, _)| *n > 0).map(|(n, kind)| format!("{n} {kind}")).collect();
        Some(format!("{} flow_mods {when} ({})", adds + deletes + modifications, kinds.join(", ")))
    }
}

impl Ofproto {
    /// Logs the flow mods of the connections for which a message is due.
    pub(crate) fn log_flow_mods(&self, now: Millis) {
        self.connections().for_each(|peer| {
            let due = peer.flow_mods.lock().take_due(now);
            self.log_flow_mods_of(peer, due);
        });
    }

    /// Logs the flow mods of a connection that ends.
    pub(super) fn log_last_flow_mods(&self, peer: &Peer) {
        let last = peer.flow_mods.lock().take(self.now());
        self.log_flow_mods_of(peer, last);
    }

    fn log_flow_mods_of(&self, peer: &Peer, text: Option<String>) {
        if let Some(text) = text {
            info_rl!(&LIMIT, target: "connmgr", "{}<->{}: {text}", self.name(), peer.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_mods_are_logged_after_ten_seconds_and_then_once_a_minute() {
        let of = |command| {
            let mut applied = Applied::default();
            applied.count(&FlowMod { command, ..FlowMod::default() });
            applied
        };
        let add = of(FlowModCommand::Add);
        let mut log = FlowModLog::default();
        let at = |ms| Millis(1_000_000).after(ms);
        assert_eq!(log.take(at(0)), None);
        log.add(Applied::default(), at(0));
        assert_eq!(log.take(at(0)), None);
        log.add(add, at(0));
        log.add(add, at(3000));
        log.add(of(FlowModCommand::DeleteStrict), at(3900));
        assert_eq!(log.take_due(at(9999)), None);
        let first = "3 flow_mods in the 3 s starting 10 s ago (2 adds, 1 deletes)";
        assert_eq!(log.take_due(at(10_000)).as_deref(), Some(first));
        assert_eq!(log.take_due(at(90_000)), None);
        log.add(of(FlowModCommand::Modify), at(12_000));
        assert_eq!(log.take_due(at(69_999)), None);
        assert_eq!(log.take_due(at(70_000)).as_deref(), Some("1 flow_mods 58 s ago (1 modifications)"));
        log.add(add, at(200_000));
        assert_eq!(log.take_due(at(209_999)), None);
        log.add(add, at(210_000));
        assert_eq!(log.take(at(210_999)).as_deref(), Some("2 flow_mods in the last 10 s (2 adds)"));
        assert_eq!(log.take(at(211_000)), None);
    }
}
