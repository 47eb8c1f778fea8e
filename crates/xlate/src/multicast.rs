//! Multicast in NORMAL with snooping (RFC 4541): reports go to routers, data to the members of the group.
//!
//! Messages of IGMP and MLD are translated one by one ([`Verdict::slow`](crate::Verdict::slow)), and have the effect
//! [`Effect::Multicast`]: the caller parses the packet and teaches the bridge's table. For all other frames the verdict
//! depends on one group, or its absence, and where routers matter on those of one VLAN. Settings are part of the bridge.

use crate::model::{Bridge, Bundle};
use crate::normal::Classified;
use crate::trace::NodeKind;
use crate::translate::Xlate;
use crate::verdict::{Dependency, Effect};
use base::MacAddr;
use flow::extract::{ethertype, ipproto};
use flow::{Field, Prereq, layout};
use parking_lot::RwLock;
use smallvec::SmallVec;
use snooping::{Flooding, Table, igmp, mld};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The multicast address of all nodes on a link (RFC 4291 section 2.7.1).
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

/// Multicast snooping of a bridge.
#[derive(Clone, Debug)]
pub struct Snooping {
    /// Groups and routers. The table outlives the snapshot.
    pub table: Arc<RwLock<Table>>,
    /// True if frames to groups without members go to all ports, not only to routers and flooded ports.
    pub flood_unregistered: bool,
}

/// The role of an IP packet to a multicast address.
enum PacketRole {
    /// A report, or a message that a listener leaves.
    Report,
    /// A query, or another message of IGMP; with the note for the trace.
    ForAll(&'static str),
    /// Data for this address.
    Data(IpAddr),
}

/// The bundles that get a frame, in the order of its outputs.
#[derive(Default)]
struct Egress<'a>(SmallVec<[&'a Bundle; 8]>);

impl<'a> Egress<'a> {
    /// Adds a bundle, once.
    fn add(&mut self, bundle: &'a Bundle) {
        if !self.0.iter().any(|known| std::ptr::eq(*known, bundle)) {
            self.0.push(bundle);
        }
    }
}

impl<'a> Xlate<'a> {
    /// Forwards a multicast frame of IP. Returns the note for the trace if all ports get the frame.
    pub(crate) fn forward_multicast(
        &mut self,
        frame: &Classified<'a>,
        snooping: &Snooping,
    ) -> Result<(), &'static str> {
        const NO_MULTICAST: &str = "no learned MAC for destination, flooding";
        let dst = MacAddr::from_u64(self.packet.key.get(Field::EthDst) as u64);
        if dst == MacAddr::BROADCAST {
            return Err(NO_MULTICAST);
        }
        let mut egress = Egress::default();
        match self.kind_of_multicast(frame).ok_or(NO_MULTICAST)? {
            PacketRole::ForAll(note) => return Err(note),
            PacketRole::Report => {
                self.add_routers(frame, snooping, &mut egress);
                self.add_report_ports(frame, &mut egress);
            }
            PacketRole::Data(group) if is_for_all(group) => return Err("RFC4541: section 2.1.2, item 2, flooding"),
            PacketRole::Data(group) if self.add_members(frame, snooping, group, &mut egress) => {
                self.add_flooded(frame, &mut egress);
                self.add_routers(frame, snooping, &mut egress);
            }
            PacketRole::Data(_) if snooping.flood_unregistered => return Err("unregistered multicast, flooding"),
            PacketRole::Data(_) => {
                self.add_routers(frame, snooping, &mut egress);
                self.add_flooded(frame, &mut egress);
            }
        }
        egress.0.into_iter().for_each(|bundle| self.normal_output(frame, bundle));
        Ok(())
    }

    /// Returns the role of the packet, if it is IP.
    fn kind_of_multicast(&mut self, frame: &Classified<'_>) -> Option<PacketRole> {
        match self.packet.key.eth_type() {
            ethertype::IPV4 if self.read_bits(Field::IpProto, 0xff) == u128::from(ipproto::IGMP) => {
                // Each packet is translated, so that its type need not be in the megaflow's mask.
                self.out.slow = true;
                let igmp_type = self.packet.key.0[layout::TP].to_be_bytes()[1];
                Some(match igmp_type {
                    igmp::V1_REPORT | igmp::V2_REPORT | igmp::V2_LEAVE | igmp::V3_REPORT => {
                        self.learn_multicast(frame);
                        PacketRole::Report
                    }
                    other => {
                        if other == igmp::QUERY {
                            self.learn_multicast(frame);
                        }
                        PacketRole::ForAll("multicast traffic, flooding")
                    }
                })
            }
            ethertype::IPV4 => {
                let dst = self.read_bits(Field::Ipv4Dst, u128::MAX) as u32;
                Some(PacketRole::Data(Ipv4Addr::from(dst).into()))
            }
            ethertype::IPV6 => {
                let icmp_type =
                    if self.has(Prereq::Icmpv6) { self.read_bits(Field::Icmpv6Type, 0xff) as u8 } else { 0 };
                if matches!(icmp_type, mld::QUERY | mld::V1_REPORT | mld::V1_DONE | mld::V2_REPORT) {
                    self.out.slow = true;
                    self.learn_multicast(frame);
                    let is_query = icmp_type == mld::QUERY;
                    return Some(if is_query { PacketRole::ForAll("MLD query, flooding") } else { PacketRole::Report });
                }
                Some(PacketRole::Data(Ipv6Addr::from(self.read_bits(Field::Ipv6Dst, u128::MAX)).into()))
            }
            _ => None,
        }
    }

    /// Has the caller learn from the packet, if it was received on a port of the bridge.
    fn learn_multicast(&mut self, frame: &Classified<'_>) {
        let (bridge, Some(bundle)) = (self.pos.bridge, frame.in_bundle) else { return };
        self.tracer.note(NodeKind::Multicast, String::new);
        let bundle = Arc::clone(&bundle.name);
        self.out.effects.push(Effect::Multicast { bridge: bridge.id, vlan: frame.vlan(), bundle });
    }

    /// Adds the members of a group. Returns false if the group is not registered.
    fn add_members(
        &mut self,
        frame: &Classified<'a>,
        snooping: &Snooping,
        group: IpAddr,
        egress: &mut Egress<'a>,
    ) -> bool {
        let (bridge, vlan) = (self.pos.bridge, frame.vlan());
        self.out.dependencies.push(Dependency::MulticastGroup { bridge: bridge.id, vlan, group });
        let table = snooping.table.read();
        let members = table.members(vlan, group);
        for bundle in members.iter().filter_map(|member| bundle_of(bridge, &member.bundle)) {
            if frame.came_by(bundle) {
                self.tracer.note(NodeKind::Detail, || "mcast group port is input port, dropping".into());
            } else {
                self.tracer.note(NodeKind::Detail, || "forwarding to mcast group port".into());
                egress.add(bundle);
            }
        }
        !members.is_empty()
    }

    /// Adds the ports with routers in the frame's VLAN.
    fn add_routers(&mut self, frame: &Classified<'a>, snooping: &Snooping, egress: &mut Egress<'a>) {
        let (bridge, vlan) = (self.pos.bridge, frame.vlan());
        self.out.dependencies.push(Dependency::MulticastRouters { bridge: bridge.id, vlan });
        let table = snooping.table.read();
        if self.tracer.is_on() {
            for (of_vlan, router) in table.all_routers() {
                let text = match bundle_of(bridge, &router.bundle) {
                    None => continue,
                    Some(_) if of_vlan != vlan => "mcast router is on another vlan, dropping",
                    Some(bundle) if frame.came_by(bundle) => "mcast router port is input port, dropping",
                    Some(_) => "forwarding to mcast router port",
                };
                self.tracer.note(NodeKind::Detail, || text.into());
            }
        }
        let bundles = table.routers(vlan).iter().filter_map(|router| bundle_of(bridge, &router.bundle));
        bundles.filter(|bundle| !frame.came_by(bundle)).for_each(|bundle| egress.add(bundle));
    }

    /// Adds the ports that get all multicast frames but reports (Port:other_config:mcast-snooping-flood).
    fn add_flooded(&mut self, frame: &Classified<'a>, egress: &mut Egress<'a>) {
        for bundle in flagged(self.pos.bridge, |flooding| flooding.traffic) {
            if frame.came_by(bundle) {
                self.tracer.note(NodeKind::Detail, || "mcast flood port is input port, dropping".into());
            } else {
                self.tracer.note(NodeKind::Detail, || "forwarding to mcast flood port".into());
                egress.add(bundle);
            }
        }
    }

    /// Adds the ports that get all reports (Port:other_config:mcast-snooping-flood-reports).
    fn add_report_ports(&mut self, frame: &Classified<'a>, egress: &mut Egress<'a>) {
        for bundle in flagged(self.pos.bridge, |flooding| flooding.reports) {
            if frame.came_by(bundle) {
                self.tracer.note(NodeKind::Detail, || "mcast port is input port, dropping the Report".into());
            } else {
                self.tracer.note(NodeKind::Detail, || "forwarding report to mcast flagged port".into());
                egress.add(bundle);
            }
        }
    }
}

/// Returns true for addresses that hosts listen to without reports (RFC 4541 sections 2.1.2 and 3).
fn is_for_all(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => matches!(group.octets(), [224, 0, 0, _]),
        IpAddr::V6(group) => group == ALL_NODES,
    }
}

fn bundle_of<'a>(bridge: &'a Bridge, name: &str) -> Option<&'a Bundle> {
    bridge.bundles.get(name).map(Arc::as_ref)
}

/// The bundles with a flag, apart from those that are reserved for mirrors.
fn flagged(bridge: &Bridge, is_flagged: impl Fn(&Flooding) -> bool) -> impl Iterator<Item = &Bundle> {
    let all = bridge.bundles.values().map(Arc::as_ref);
    all.filter(move |bundle| is_flagged(&bundle.multicast) && !bridge.is_reserved(bundle))
}
