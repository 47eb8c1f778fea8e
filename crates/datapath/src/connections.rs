//! Implements [`dpif::Connections`] for the datapath.

use std::collections::BTreeMap;

use base::{DropReason, Millis};
use conntrack::proto::Protocol;
use conntrack::table::ConnGuard;
use conntrack::timeout::Timeout;
use conntrack::view::TcpStates;
use conntrack::{Direction, Tracker};
use dpif::connections::{ExpectationView, Family, FragmentList, FragmentStatus, View, ZoneLimit};
use dpif::{ConnectionFilter, Connections, DpifError};

use crate::Datapath;

impl Datapath {
    fn tracker(&self) -> &Tracker {
        &self.shared.tracker
    }
}

/// What a list shows of a connection.
fn view_of(conn: &ConnGuard<'_>, now: Millis) -> View {
    let tcp = match &conn.protocol {
        Protocol::Tcp(tcp) => Some(TcpStates {
            connection: tcp.state_name(),
            original: tcp.peer(Direction::Original),
            reply: tcp.peer(Direction::Reply),
        }),
        _ => None,
    };
    View {
        original: conn.original,
        reply: conn.reply,
        timeout_s: conn.life().expires().since(now) / 1000,
        mark: conn.mark,
        label: conn.label.into(),
        tcp,
        helper: conn.helper.map(|helper| helper.name()),
        parent: conn.parent().map(|parent| parent.key),
    }
}

impl Connections for Datapath {
    fn connections(&self, zone: Option<u16>, each: &mut dyn FnMut(&View)) {
        let (now, mut views, mut from) = (self.shared.clock.now(), Vec::new(), Some(0));
        while let Some(at) = from {
            from = self.tracker().visit(at, now, &mut |conn| {
                if zone.is_none_or(|zone| conn.original.zone == zone) {
                    views.push(view_of(conn, now));
                }
            });
            views.drain(..).for_each(|view| each(&view));
        }
    }

    fn expectations(&self, zone: Option<u16>, each: &mut dyn FnMut(&ExpectationView)) {
        for expected in self.tracker().expectations().list() {
            if zone.is_none_or(|zone| expected.key.zone == zone) {
                let (key, parent) = (expected.key, expected.parent.key);
                each(&ExpectationView { key, mark: expected.mark, label: expected.label, parent });
            }
        }
    }

    fn flush_connections(&self, filter: &ConnectionFilter) -> u64 {
        self.tracker().flush(&mut |conn| filter.matches(&conn.keys(), conn.mark, conn.label.into()))
    }

    fn sweep_connections(&self) {
        let shared = &*self.shared;
        let now = shared.clock.now();
        let mut outer = Vec::new();
        shared.outer_fragments.lock().sweep(now, &mut outer);
        let dropped = shared.tracker.sweep(now) + outer.len();
        shared.count_drop(None, DropReason::IncompleteDatagram, dropped as u64);
    }

    fn n_connections(&self) -> u64 {
        self.tracker().connections()
    }

    fn connections_max(&self) -> u32 {
        u32::try_from(self.tracker().connections_max()).unwrap_or(u32::MAX)
    }

    fn set_connections_max(&self, max: u32) {
        self.tracker().set_connections_max(max.into());
    }

    fn checks_tcp_sequence(&self) -> bool {
        self.tracker().checks_sequence()
    }

    fn set_checks_tcp_sequence(&self, on: bool) {
        self.tracker().set_checks_sequence(on);
    }

    fn sweep_interval_ms(&self) -> u32 {
        u32::try_from(self.tracker().sweep_interval_ms()).unwrap_or(u32::MAX)
    }

    fn set_sweep_interval_ms(&self, ms: u32) {
        self.tracker().set_sweep_interval_ms(ms.into());
    }

    fn default_zone_limit(&self) -> u32 {
        self.tracker().limits().default_limit()
    }

    fn set_default_zone_limit(&self, limit: u32) {
        self.tracker().limits().set_default(limit);
    }

    fn zone_limit(&self, zone: u16) -> ZoneLimit {
        self.tracker().limits().zone(zone)
    }

    fn zone_limits(&self) -> Vec<ZoneLimit> {
        self.tracker().limits().list()
    }

    fn set_zone_limit(&self, zone: u16, limit: u32) -> bool {
        !self.tracker().limits().set(zone, limit)
    }

    fn delete_zone_limit(&self, zone: u16) -> bool {
        self.tracker().limits().del(zone)
    }

    fn has_protected_zone_limits(&self) -> bool {
        self.tracker().limits().is_protected()
    }

    fn protect_zone_limits(&self, on: bool) {
        self.tracker().limits().protect(on);
    }

    fn set_timeout_policy(&self, name: &str, timeouts: &BTreeMap<String, u32>) -> Result<(), DpifError> {
        let mut values = [None; conntrack::timeout::COUNT];
        for (key, seconds) in timeouts {
            if let Some(timeout) = Timeout::from_name(key) {
                values[timeout.index()] = Some(*seconds);
            }
        }
        match self.tracker().policies().set(name, values) {
            Ok(_) => Ok(()),
            Err(_) => Err(DpifError::TooManyTimeoutPolicies),
        }
    }

    fn delete_timeout_policy(&self, name: &str) {
        self.tracker().policies().remove(name);
    }

    fn fragment_status(&self) -> FragmentStatus {
        self.tracker().with_fragments(|fragments| fragments.status())
    }

    fn fragment_lists(&self, each: &mut dyn FnMut(&FragmentList)) {
        let lists: Vec<_> = self.tracker().with_fragments(|fragments| fragments.lists().collect());
        lists.iter().for_each(each);
    }

    fn set_reassembly(&self, family: Family, on: bool) {
        self.tracker().with_fragments(|fragments| fragments.set_enabled(family, on));
    }

    fn set_fragment_size_min(&self, family: Family, bytes: u32) -> bool {
        self.tracker().with_fragments(|fragments| fragments.set_min_size(family, bytes)).is_ok()
    }

    fn set_fragments_max(&self, max: u32) -> bool {
        self.tracker().with_fragments(|fragments| fragments.set_max_fragments(max)).is_ok()
    }
}
