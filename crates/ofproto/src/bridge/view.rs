//! The view of a bridge for translations: made of all ports and bundles, or of the previous view and what was edited.

use super::{BundleSpec, Edited, OfPort, Ofproto, State};
use base::PortNo;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xlate::model::VlanSet;
use xlate::{Bridge, Bundle, ChunkedMap, Port};

type Ports = ChunkedMap<PortNo, Port>;
type Bundles = ChunkedMap<Arc<str>, Arc<Bundle>>;

impl Ofproto {
    /// Builds the bridge's view for translations. If the previous view `old` is given, the new one shares with it all but
    /// the `edited` ports and bundles, and takes time in proportion to these.
    pub(crate) fn view(&self, old: Option<(&Bridge, &Edited)>) -> Bridge {
        let state = self.state.read();
        let (ports, bundles) = old.map(|(old, edited)| edit(&state, old, edited)).unwrap_or_default();
        let mut bridge = Bridge {
            id: self.id,
            name: shared_name(old.map(|(old, _)| &old.name), &self.name),
            ports,
            bundles,
            tables: Arc::clone(&self.tables),
            macs: Arc::clone(&self.macs),
            miss_to_controller: state.miss_to_controller,
            misses: self.table_configs.misses(),
            fragments: state.fragments,
            options: self.option_table(),
            forward_bpdu: state.forward_bpdu,
            snooping: state.snooping.clone(),
            dhcp_to_local: state.dhcp_to_local,
            ipfix: self.ipfix_view(),
            local: self.local_sets.load().as_deref().cloned(),
            sflow: self.sflow.load().as_ref().and_then(|agent| agent.view()),
            netflow: self.netflow.load().is_some(),
            queue_marks: Arc::clone(&state.queue_marks),
            mirrors: state.mirrors.clone(),
            flood_vlans: state.flood_vlans.clone(),
        };
        if old.is_none() {
            bridge.ports = state.ports.iter().map(|(no, port)| (*no, port_view(*no, port, None, None))).collect();
            bridge.set_bundles(state.bundles.values().map(|spec| bundle_view(spec, &state.ports, None)));
        }
        bridge
    }
}

/// Returns the ports and bundles of the previous view, with the edited ones as they are now.
fn edit(state: &State, old: &Bridge, edited: &Edited) -> (Ports, Bundles) {
    let (mut ports, mut bundles) = (old.ports.clone(), old.bundles.clone());
    // A bundle also depends on its first port, and a port on the bundle that it is in.
    let with_edited_ports = edited.ports.iter().flat_map(|no| state.bundles_of(*no));
    let edited_bundles: BTreeSet<&str> = edited.bundles.iter().map(String::as_str).chain(with_edited_ports).collect();
    let mut edited_ports = edited.ports.clone();
    for name in edited_bundles {
        let before = bundles.get(name).map(Arc::clone);
        edited_ports.extend(before.iter().flat_map(|bundle| &bundle.ports));
        match state.bundles.get(name) {
            Some(spec) => {
                edited_ports.extend(&spec.ports);
                let bundle = bundle_view(spec, &state.ports, before.as_deref());
                bundles.insert(Arc::clone(&bundle.name), Arc::new(bundle));
            }
            None => drop(bundles.remove(name)),
        }
    }
    for no in edited_ports {
        match state.ports.get(&no) {
            Some(port) => {
                let bundle = state.bundles_of(no).last().and_then(|name| bundles.get(name)).map(Arc::clone);
                let port = port_view(no, port, bundle, ports.get(&no));
                ports.insert(no, port);
            }
            None => drop(ports.remove(&no)),
        }
    }
    (ports, bundles)
}

/// Returns the name, sharing that of `old` if it is equal.
fn shared_name(old: Option<&Arc<str>>, name: &str) -> Arc<str> {
    old.filter(|old| ***old == *name).map_or_else(|| Arc::from(name), Arc::clone)
}

fn port_view(no: PortNo, port: &OfPort, bundle: Option<Arc<Bundle>>, old: Option<&Port>) -> Port {
    Port {
        no,
        name: shared_name(old.map(|old| &old.name), &port.spec.name),
        out: port.spec.out,
        config: port.config,
        live: port.is_live(),
        mac: port.spec.mac,
        ifindex: crate::export::sflow::ifindex(port),
        tunnel: port.spec.tunnel.clone(),
        bundle,
    }
}

fn bundle_view(spec: &BundleSpec, ports: &BTreeMap<PortNo, OfPort>, old: Option<&Bundle>) -> Bundle {
    let set = |vlans: &[u16], old: Option<&Arc<VlanSet>>| {
        (!vlans.is_empty()).then(|| {
            let vlans: VlanSet = vlans.iter().copied().collect();
            old.filter(|old| ***old == vlans).map_or_else(|| Arc::new(vlans), Arc::clone)
        })
    };
    let no_flood = spec.ports.first().and_then(|no| ports.get(no)).is_some_and(|p| p.config.no_flood);
    Bundle {
        name: shared_name(old.map(|old| &old.name), &spec.name),
        ports: spec.ports.clone(),
        mode: spec.mode,
        tag: spec.tag,
        trunks: set(&spec.trunks, old.and_then(|old| old.trunks.as_ref())),
        cvlans: set(&spec.cvlans, old.and_then(|old| old.cvlans.as_ref())),
        priority_tags: spec.priority_tags,
        protected: spec.protected,
        floodable: !no_flood,
        multicast: spec.multicast,
    }
}

#[cfg(test)]
mod tests {
    use crate::bridge::{BundleSpec, PortEdits, PortSpec};
    use crate::switch::Switch;
    use base::{Clock, DpPort, MacAddr, PortNo};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use xlate::model::PriorityTags;
    use xlate::{PortConfig, PortOut, VlanMode};

    /// A step: the bridge, and its edits.
    fn step() -> impl Strategy<Value = (usize, PortEdits)> {
        let port = (1u32..7, 0u32..7, 0usize..3).prop_map(|(no, device, name)| PortSpec {
            no: PortNo(no),
            name: format!("p{no}{}", ["", "a", "b"][name]),
            out: if device == 0 { PortOut::Nowhere } else { PortOut::Device(DpPort(device)) },
            device: None,
            tunnel: None,
            mac: MacAddr::local_from(u64::from(no)),
        });
        let name = || (0u32..5).prop_map(|n| format!("b{n}"));
        let members = proptest::collection::vec((1u32..7).prop_map(PortNo), 0..3);
        let bundle = (name(), members, any::<bool>()).prop_map(|(name, ports, is_access)| BundleSpec {
            name,
            ports,
            mode: if is_access { VlanMode::Access } else { VlanMode::Trunk },
            tag: 3,
            trunks: if is_access { Vec::new() } else { vec![1, 2] },
            cvlans: if is_access { vec![3] } else { Vec::new() },
            priority_tags: PriorityTags::Never,
            protected: false,
            multicast: Default::default(),
        });
        let edits = (
            proptest::collection::vec(port, 0..4),
            proptest::collection::vec((1u32..7).prop_map(PortNo), 0..2),
            proptest::collection::vec(bundle, 0..3),
            proptest::collection::vec(name(), 0..2),
        );
        let edits = edits.prop_map(|(ports, removed, bundles, removed_bundles)| PortEdits {
            ports,
            removed,
            bundles,
            removed_bundles,
        });
        (0usize..2, edits)
    }

    tally::proptest! {
        #[test]
        fn an_edited_view_equals_one_of_all_ports(
            steps in proptest::collection::vec((step(), proptest::option::of(1u32..7)), 1..12),
        ) {
            let switch = Switch::new(Clock::real());
            let bridges = ["br0", "br1"].map(|name| switch.add_bridge(name));
            for ((at, edits), no_flood) in steps {
                bridges[at].edit_ports(edits);
                if let Some(no) = no_flood {
                    bridges[at].set_port_config(PortNo(no), PortConfig { no_flood: true, ..PortConfig::default() });
                }
                let network = switch.network();
                for bridge in &bridges {
                    let (edited, whole) = (Arc::clone(&network.bridges[&bridge.id()]), bridge.view(None));
                    prop_assert_eq!(format!("{:?}", edited.ports), format!("{:?}", whole.ports));
                    prop_assert_eq!(format!("{:?}", edited.bundles), format!("{:?}", whole.bundles));
                    let is_shared = |bundle| edited.bundles.values().any(|other| Arc::ptr_eq(other, bundle));
                    prop_assert!(edited.ports.values().filter_map(|port| port.bundle.as_ref()).all(is_shared));
                }
                // A device belongs to the bridge that took it last, which has it still.
                let devices: BTreeMap<_, _> = network.ports.iter().collect();
                for (device, (bridge, no)) in devices {
                    let out = network.bridges[bridge].ports.get(no).map(|port| port.out);
                    prop_assert_eq!(out, Some(PortOut::Device(*device)));
                }
            }
        }
    }
}
