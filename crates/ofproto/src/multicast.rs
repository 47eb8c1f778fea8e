//! Multicast snooping of a bridge: its settings, what packets teach its table, ageing, and the replies to `mdb/` commands.
//!
//! Messages of IGMP and MLD take the slow path one by one, and teach the table there ([`Switch::learn_multicast`]). Each
//! change of the table is reported for the group or the VLAN concerned, so that only flows that depend on these are
//! translated again; a change of the settings is one of the bridge.

use crate::bridge::{BundleSpec, Ofproto};
use crate::revalidate::Change;
use crate::switch::Switch;
use base::{Millis, PortNo};
use packet::Packet;
use packet::buf::Checksum;
use parking_lot::RwLock;
use serde_json::{Value, json};
use snooping::{Malformed, Message, Source, Version, show};
use std::sync::Arc;
use xlate::{Bridge, Effect, Network, Snooping};

/// The number of members and routers forgotten at a time: packets wait for the table meanwhile.
const AGED_AT_ONCE: usize = 256;

/// The settings of multicast snooping.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SnoopingSettings {
    /// The limits of the table.
    pub table: snooping::Settings,
    /// True if frames to groups without members go only to routers and flooded ports
    /// (Bridge:other_config:mcast-snooping-disable-flood-unregistered).
    pub drop_unregistered: bool,
}

/// Returns true if what a bundle taught does not hold any more after a change of its settings: its VLANs or its protection
/// changed, or all of its ports.
pub(crate) fn is_forgotten(old: &BundleSpec, new: &BundleSpec) -> bool {
    let is_same = *new
        == BundleSpec {
            ports: new.ports.clone(),
            multicast: new.multicast,
            priority_tags: new.priority_tags,
            ..old.clone()
        };
    !is_same || !old.ports.iter().any(|port| new.ports.contains(port))
}

impl Ofproto {
    /// Enables multicast snooping, changes its settings, or disables it (`None`), which removes the table.
    pub fn set_snooping(&self, settings: Option<SnoopingSettings>) {
        let Some(settings) = settings else {
            if self.replace_snooping(None).is_some() {
                self.rebuild();
            }
            return;
        };
        let before = self.snooping();
        let table = before.as_ref().map_or_else(|| Arc::new(RwLock::default()), |old| Arc::clone(&old.table));
        let changes = table.write().configure(settings.table);
        let flood_unregistered = !settings.drop_unregistered;
        if before.is_none_or(|old| old.flood_unregistered != flood_unregistered) {
            self.replace_snooping(Some(Snooping { table, flood_unregistered }));
            self.rebuild();
        }
        self.multicast_changed(changes);
    }

    /// Removes all groups and routers. Returns false if snooping is disabled.
    pub fn flush_multicast(&self) -> bool {
        let Some(snooping) = self.snooping() else { return false };
        let changes = snooping.table.write().flush();
        self.multicast_changed(changes);
        true
    }

    /// Removes bundles from the table.
    pub(crate) fn forget_bundles(&self, names: &[String]) {
        let Some(snooping) = self.snooping().filter(|_| !names.is_empty()) else { return };
        for name in names {
            let changes = snooping.table.write().remove_bundle(name);
            self.multicast_changed(changes);
        }
    }

    /// Removes the members and routers that have not been heard of for too long.
    pub(crate) fn age_multicast(&self, now: Millis) {
        let Some(snooping) = self.snooping() else { return };
        loop {
            let changes = snooping.table.write().expire(now, AGED_AT_ONCE);
            if changes.is_empty() {
                break;
            }
            self.multicast_changed(changes);
        }
    }

    fn multicast_changed(&self, changes: Vec<snooping::Change>) {
        if let Some(switch) = self.switch() {
            switch.multicast_changed(self.id(), changes);
        }
    }

    /// The rows of `mdb/show`; `None` if snooping is disabled.
    fn multicast_rows(&self) -> Option<Vec<show::Row<PortNo>>> {
        let snooping = self.snooping()?;
        let table = snooping.table.read();
        Some(show::rows(&table, self.now(), |bundle| self.port_of_bundle(bundle)))
    }

    /// Formats `mdb/show`; `None` if snooping is disabled.
    pub fn mdb_show(&self) -> Option<String> {
        let text = |port: PortNo| {
            let mut text = String::new();
            flow::text::format_port(port, &flow::text::NoNames, &mut text);
            text
        };
        let rows = self.multicast_rows()?.into_iter();
        Some(show::text(&rows.map(|row| row.with_port(text(row.port))).collect::<Vec<_>>()))
    }

    /// Returns `mdb/show` as an object, with the limits and counters of the table; `None` if snooping is disabled.
    pub fn mdb_json(&self) -> Option<Value> {
        let (mut groups, mut routers) = (Vec::new(), Vec::new());
        for row in self.multicast_rows()? {
            let (port, vlan, age) = (row.port.to_of10(), row.vlan, row.age_secs);
            match row.group {
                Some((group, version)) => groups.push(json!({
                    "port": port, "vlan": vlan, "protocol": version.name(), "group": group.to_string(), "age": age,
                })),
                None => routers.push(json!({ "port": port, "vlan": vlan, "age": age })),
            }
        }
        let snooping = self.snooping()?;
        let table = snooping.table.read();
        let counters = table.counters();
        Some(json!({
            "bridge": self.name(),
            "members": groups,
            "routers": routers,
            "current": table.len(),
            "maximum": table.table_size(),
            "learned": counters.learned,
            "expired": counters.expired,
            "evicted": counters.evicted,
        }))
    }
}

impl Switch {
    /// Teaches the tables of multicast groups from a packet with these effects.
    pub(crate) fn learn_multicast(&self, effects: &[Effect], packet: &Packet) {
        let mut message = None;
        let net = self.network();
        for (bridge, source) in effects.iter().filter_map(|effect| source_of(&net, effect)) {
            let message = message.get_or_insert_with(|| message_of(packet));
            if let (Ok(message), Some(snooping)) = (message, &bridge.snooping) {
                let changes = snooping.table.write().learn(message, &source, self.clock().now());
                self.multicast_changed(bridge.id, changes);
            }
        }
    }

    fn multicast_changed(&self, bridge: u32, changes: Vec<snooping::Change>) {
        if changes.is_empty() {
            return;
        }
        base::coverage!(rev_mcast_snooping);
        let change = |change| match change {
            snooping::Change::Group(vlan, group) => Change::MulticastGroup { bridge, vlan, group },
            snooping::Change::Routers(vlan) => Change::MulticastRouters { bridge, vlan },
        };
        self.changed_all(changes.into_iter().map(change).collect());
    }

    /// The lines of a trace about what its packet teaches, one for each effect [`Effect::Multicast`].
    pub(crate) fn multicast_notes(net: &Network, effects: &[Effect], packet: Option<&Packet>) -> Vec<String> {
        let all = effects.iter().filter(|effect| matches!(effect, Effect::Multicast { .. }));
        let Some(packet) = packet else { return all.map(|_| String::new()).collect() };
        let message = message_of(packet);
        all.map(|effect| source_of(net, effect).map_or_else(String::new, |from| note(&message, from))).collect()
    }
}

/// The bridge and the source of a packet with this effect; `None` if they exist no more, or it is another effect.
fn source_of<'a>(net: &'a Network, effect: &Effect) -> Option<(&'a Bridge, Source)> {
    let Effect::Multicast { bridge, vlan, bundle } = effect else { return None };
    let bridge = net.bridges.get(bridge)?;
    let flooding = bridge.bundles.get(bundle)?.multicast;
    Some((bridge, Source { vlan: *vlan, bundle: Arc::clone(bundle), flooding }))
}

/// The message in a packet, whose checksum the device may have left to us.
fn message_of(packet: &Packet) -> Result<Message, Malformed> {
    if !matches!(packet.offload.checksum, Checksum::Partial { .. }) {
        return Message::parse(packet.data());
    }
    let mut whole = packet.clone();
    packet::checksum::finish(&mut whole);
    Message::parse(whole.data())
}

/// The line of a trace; empty if the packet changes nothing.
fn note(message: &Result<Message, Malformed>, (bridge, source): (&Bridge, Source)) -> String {
    let Some(snooping) = &bridge.snooping else { return String::new() };
    let place = format!("on port {} in VLAN {}", source.bundle, source.vlan);
    let message = match message {
        Ok(message) => message,
        Err(bad @ (Malformed::IgmpChecksum | Malformed::MldChecksum)) => {
            return format!("multicast snooping received {bad} {place}");
        }
        Err(_) => return String::new(),
    };
    let n = snooping.table.read().news(message, &source);
    match message {
        _ if n == 0 => String::new(),
        Message::Query { source } if source.is_ipv4() => {
            format!("multicast snooping query from {source} is {place}")
        }
        Message::Query { .. } => format!("multicast snooping query {place}"),
        Message::Report { version: Version::Igmp1 | Version::Igmp2, records } => {
            let what = |membership| match membership {
                snooping::Membership::Join => "learned that",
                snooping::Membership::Leave => "leaving",
            };
            let lines =
                records.iter().map(|r| format!("multicast snooping {} {} is {place}", what(r.membership), r.group));
            lines.collect()
        }
        Message::Report { .. } => format!("multicast snooping processed {n} addresses {place}"),
    }
}
