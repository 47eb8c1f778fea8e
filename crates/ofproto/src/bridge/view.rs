//! The view of a bridge for translations: made of all ports and bundles, or of the previous view and what was edited.

use super::{BundleSpec, Edited, OfPort, Ofproto, State};
use base::PortNo;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use xlate::model::VlanSet;
use xlate::{Bridge, Bundle, Port};

impl Ofproto {
    /// Builds the bridge's view for translations. Shares names and VLAN sets with the previous view `old` where they are
    /// equal. Takes over all but the `edited` ports and bundles from `old`, if both are given.
    pub(crate) fn view(&self, old: Option<&Bridge>, edited: Option<&Edited>) -> Bridge {
        let state = self.state.read();
        let edit = old.zip(edited);
        let mut ports = ports_view(&state, old, edit);
        let bundles = bundles_view(&state, old, edit);
        assign_bundles(&mut ports, &bundles, edit);
        Bridge {
            id: self.id,
            name: shared_name(old.map(|old| &old.name), &self.name),
            ports,
            bundles,
            tables: Arc::clone(&self.tables),
            macs: Arc::clone(&self.macs),
            miss_to_controller: state.miss_to_controller,
            misses: self.table_configs.misses(),
            fragments: state.fragments,
            options: self.option_table(),
            forward_bpdu: state.forward_bpdu,
            dhcp_to_local: state.dhcp_to_local,
            ipfix: self.ipfix_view(),
        }
    }
}

/// Gives the ports the ids of their bundles, which are the places of these: all ports if bundles moved, or those that the
/// edit concerned.
fn assign_bundles(ports: &mut BTreeMap<PortNo, Port>, bundles: &[Bundle], edit: Option<(&Bridge, &Edited)>) {
    let stay = |old: &Bridge| old.bundles.iter().map(|b| &b.name).eq(bundles.iter().map(|b| &b.name));
    let concerned = edit.filter(|(old, _)| stay(old)).map(|(old, edited)| {
        let edited_bundles = old.bundles.iter().chain(bundles).filter(|b| edited.bundles.contains(&*b.name));
        let members = edited_bundles.flat_map(|bundle| &bundle.ports);
        members.chain(&edited.ports).copied().collect::<BTreeSet<PortNo>>()
    });
    match &concerned {
        Some(concerned) => {
            for no in concerned {
                if let Some(port) = ports.get_mut(no) {
                    port.bundle = None;
                }
            }
        }
        None => ports.values_mut().for_each(|port| port.bundle = None),
    }
    for (id, bundle) in bundles.iter().enumerate() {
        for no in bundle.ports.iter().filter(|no| concerned.as_ref().is_none_or(|concerned| concerned.contains(no))) {
            if let Some(port) = ports.get_mut(no) {
                port.bundle = Some(id);
            }
        }
    }
}

/// The ports, without ids of bundles where they are new.
fn ports_view(state: &State, old: Option<&Bridge>, edit: Option<(&Bridge, &Edited)>) -> BTreeMap<PortNo, Port> {
    let view = |no: PortNo, port: &OfPort| Port {
        no,
        name: shared_name(old.and_then(|old| old.ports.get(&no)).map(|p| &p.name), &port.spec.name),
        out: port.spec.out,
        config: port.config,
        live: port.is_live(),
        bundle: None,
    };
    let Some((old, edited)) = edit else {
        return state.ports.iter().map(|(no, port)| (*no, view(*no, port))).collect();
    };
    let mut ports = old.ports.clone();
    for no in &edited.ports {
        match state.ports.get(no) {
            Some(port) => drop(ports.insert(*no, view(*no, port))),
            None => drop(ports.remove(no)),
        }
    }
    ports
}

/// The bundles by name, as the previous view has them.
fn bundles_view(state: &State, old: Option<&Bridge>, edit: Option<(&Bridge, &Edited)>) -> Vec<Bundle> {
    let mut before = old.map(|old| old.bundles.as_slice()).unwrap_or_default().iter().peekable();
    let view = |spec: &BundleSpec| {
        while before.next_if(|bundle| *bundle.name < *spec.name).is_some() {}
        let same = before.next_if(|bundle| *bundle.name == *spec.name);
        let stays = |edited: &Edited| {
            !edited.bundles.contains(&spec.name) && !spec.ports.iter().any(|no| edited.ports.contains(no))
        };
        match same {
            Some(bundle) if edit.is_some_and(|(_, edited)| stays(edited)) => bundle.clone(),
            _ => bundle_view(spec, &state.ports, same),
        }
    };
    state.bundles.values().map(view).collect()
}

/// Returns the name, sharing that of `old` if it is equal.
fn shared_name(old: Option<&Arc<str>>, name: &str) -> Arc<str> {
    old.filter(|old| ***old == *name).map_or_else(|| Arc::from(name), Arc::clone)
}

fn bundle_view(spec: &BundleSpec, ports: &BTreeMap<PortNo, OfPort>, old: Option<&Bundle>) -> Bundle {
    let trunks = (!spec.trunks.is_empty()).then(|| {
        let vlans: VlanSet = spec.trunks.iter().copied().collect();
        let old = old.and_then(|old| old.trunks.as_ref()).filter(|old| ***old == vlans);
        old.map_or_else(|| Arc::new(vlans), Arc::clone)
    });
    let no_flood = spec.ports.first().and_then(|no| ports.get(no)).is_some_and(|p| p.config.no_flood);
    Bundle {
        name: shared_name(old.map(|old| &old.name), &spec.name),
        ports: spec.ports.clone(),
        mode: spec.mode,
        tag: spec.tag,
        trunks,
        priority_tags: spec.priority_tags,
        protected: spec.protected,
        floodable: !no_flood,
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
            priority_tags: PriorityTags::Never,
            protected: false,
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
                    let (edited, whole) = (Arc::clone(&network.bridges[&bridge.id()]), bridge.view(None, None));
                    prop_assert_eq!(format!("{:?}", edited.ports), format!("{:?}", whole.ports));
                    prop_assert_eq!(format!("{:?}", edited.bundles), format!("{:?}", whole.bundles));
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
