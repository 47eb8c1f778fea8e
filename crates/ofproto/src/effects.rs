//! Applies the effects of packets beside their forwarding.

use crate::export::netflow::Counted;
use crate::revalidate::{Change, Uses};
use crate::switch::Switch;
use base::Millis;
use flow::NoNames;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use vlog::{RateLimit, warn_rl};
use xlate::{Effect, Underlay};

/// Rate limit for packets that no tunnel takes, as in Open vSwitch: messages per minute, and burst.
static NO_TUNNEL: RateLimit = RateLimit::new(1, 5);

/// The time at which packets were seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    /// Just now.
    Now,
    /// Some time ago: the datapath counted them. Their addresses and flows were learned when their flow was installed, and
    /// later changes are newer than the packets.
    Earlier,
}

impl Switch {
    /// Calls a function with routes and neighbours, if there are any.
    fn with_underlay(&self, call: impl FnOnce(&dyn Underlay)) {
        if let Some(underlay) = self.network().tunnels.underlay() {
            call(&**underlay);
        }
    }

    /// Applies the effects and addresses of a flow for packets that the datapath counted.
    pub(crate) fn push(&self, effects: &[Effect], uses: &Uses, counted: Counted) {
        let Counted { packets, bytes, used, .. } = counted;
        if packets == 0 {
            return;
        }
        self.apply(effects, packets, bytes, used, Seen::Earlier);
        self.count_for_netflow(effects, counted);
        let net = self.network();
        for seen in uses.iter() {
            let (bridge, vlan, mac) = seen.mac;
            let Some(port) = seen.learned else { continue };
            if let Some(bridge) = net.bridges.get(&bridge).filter(|b| b.ports.contains_key(&port)) {
                bridge.macs.write().refresh(vlan, mac, port, used);
            }
        }
    }

    /// Applies `effects` for `packets` packets of `bytes` bytes in total, the last of which arrived at `now`.
    pub(crate) fn apply(&self, effects: &[Effect], packets: u64, bytes: u64, now: Millis, seen: Seen) {
        if packets == 0 {
            return;
        }
        let mut net = None;
        // The tables of the bridge of the last look-up, where the next one mostly is as well.
        let mut tables = None;
        let (inner, mut headers) = (bytes, 0);
        let mut bytes = bytes;
        for effect in effects {
            match effect {
                Effect::Lookup { bridge, table, rule } => {
                    let net = net.get_or_insert_with(|| self.network());
                    if tables.as_ref().is_none_or(|(id, _)| id != bridge) {
                        tables = net.bridges.get(bridge).map(|b| (*bridge, Arc::clone(&b.tables)));
                    }
                    if let Some(t) = tables.as_ref().and_then(|(_, tables)| tables.get(usize::from(*table))) {
                        let counter = if rule.is_some() { &t.matched } else { &t.missed };
                        counter.fetch_add(packets, Ordering::Relaxed);
                    }
                    rule.iter().for_each(|rule| rule.stats().add(packets, bytes, now));
                }
                Effect::LearnMac { bridge, vlan, mac, port } => {
                    let net = self.network();
                    let Some(bridge) = net.bridges.get(bridge).filter(|b| b.ports.contains_key(port)) else { continue };
                    let mut macs = bridge.macs.write();
                    if seen == Seen::Earlier {
                        macs.refresh(*vlan, *mac, *port, now);
                        continue;
                    }
                    let changed = macs.learn(*vlan, *mac, *port, now);
                    drop(macs);
                    if !changed.is_empty() {
                        base::coverage!(rev_mac_learning);
                    }
                    for (vlan, mac) in changed {
                        self.changed(Change::Mac { bridge: bridge.id, vlan, mac });
                    }
                }
                // It needs the flags of TCP: see `count_for_netflow`.
                Effect::NetFlow(_) => {}
                Effect::LockMac { bridge, vlan, mac } => {
                    let net = self.network();
                    let Some(bridge) = net.bridges.get(bridge) else { continue };
                    if bridge.macs.write().lock(*vlan, *mac, now) {
                        self.changed(Change::Mac { bridge: bridge.id, vlan: *vlan, mac: *mac });
                    }
                }
                Effect::BondLoad { loads, bucket } => loads.add(*bucket, bytes),
                Effect::Mirror(counters) => counters.add(packets, bytes),
                Effect::Group(group) => group.counters.add(packets, bytes),
                Effect::Bucket(group, i) => {
                    group.buckets.get(*i).iter().for_each(|b| b.counters.add(packets, bytes));
                }
                Effect::Learn(learned) => {
                    if let Some(bridge) = self.bridge(learned.bridge) {
                        bridge.learn(learned, now, seen);
                    }
                }
                Effect::FinTimeout { bridge, rule, idle_timeout, hard_timeout } => {
                    if let Some(bridge) = self.bridge(*bridge) {
                        bridge.fin_timeout(rule, *idle_timeout, *hard_timeout);
                    }
                }
                Effect::Tunnel { bridge, port, sent } => {
                    if let Some(counters) = self.bridge(*bridge).and_then(|b| b.own_counters(*port)) {
                        if *sent { counters.add_tx(packets, bytes) } else { counters.add_rx(packets, bytes) }
                    }
                }
                // Packets of cached flows are reported again, so that the log has the packets of each minute.
                Effect::NoTunnel(key) => warn_rl!(
                    &NO_TUNNEL,
                    target: "tunnel",
                    "receive tunnel port not found ({})",
                    flow::text::flow_key_to_string(key, &NoNames)
                ),
                Effect::Headers(more) => {
                    headers += i64::from(*more);
                    bytes = inner.saturating_add_signed(headers.saturating_mul(packets as i64));
                }
                Effect::Resolve(neighbour) => self.with_underlay(|underlay| underlay.resolve(neighbour)),
                Effect::Neighbour { bridge, ip } => self.with_underlay(|underlay| underlay.used(bridge, *ip)),
                // Also from packets of cached flows: the time tells which of several was the last.
                Effect::Snoop { bridge, ip, mac, learning } => {
                    self.with_underlay(|underlay| underlay.learn(bridge, *ip, *mac, *learning, now));
                }
                // Only the packet itself teaches, on the slow path.
                Effect::Multicast { .. } => {}
                Effect::Patch { from, to } => {
                    if let Some(counters) = self.bridge(from.0).and_then(|b| b.own_counters(from.1)) {
                        counters.add_tx(packets, bytes);
                    }
                    if let Some(counters) = self.bridge(to.0).and_then(|b| b.own_counters(to.1)) {
                        counters.add_rx(packets, bytes);
                    }
                }
            }
        }
    }
}
