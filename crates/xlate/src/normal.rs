//! The NORMAL action: a learning switch with VLANs (IEEE 802.1Q), between the bundles of a bridge.

use crate::model::{Bundle, PriorityTags, VlanMode};
use crate::trace::Kind;
use crate::translate::Xlate;
use crate::verdict::{Dependency, Effect};
use base::{DropReason, MacAddr, PortNo};
use flow::{Field, layout};

impl Xlate<'_> {
    /// Forwards as a plain learning switch.
    pub(crate) fn normal(&mut self) {
        let bridge = self.bridge;
        self.reads.note(layout::ETH_SRC, u64::MAX);
        self.reads.note_field(Field::EthDst);
        let in_port = self.key.in_port();
        let Some(in_bundle) = bridge.ports.get(&in_port).and_then(|p| p.bundle) else {
            // A packet-out from nowhere is flooded in its own VLAN; anything else has no business here.
            if in_port == PortNo::ANY || in_port == PortNo::CONTROLLER || in_port == PortNo::LOCAL {
                return self.normal_forward(None, self.key.vlan_tci() & 0xfff);
            }
            self.tracer.note(Kind::Warning, || format!("dropping packet received on unknown port {in_port}"));
            return self.note_drop(DropReason::NoPort);
        };
        let bundle = &bridge.bundles[in_bundle];
        let Some(vlan) = self.input_vlan(bundle) else {
            return self.note_drop(DropReason::VlanMismatch);
        };
        let dst = MacAddr::from_u64(self.key.get(Field::EthDst) as u64);
        if dst.is_reserved() && !bridge.forward_bpdu {
            self.tracer.note(Kind::Warning, || "dropping packet to reserved address".into());
            return self.note_drop(DropReason::ReservedAddress);
        }
        let src = MacAddr::from_u64(self.key.get(Field::EthSrc) as u64);
        if !src.is_multicast() {
            self.effects.push(Effect::LearnMac { bridge: bridge.id, vlan, mac: src, port: in_port });
            self.dependencies.push(Dependency::Mac { bridge: bridge.id, vlan, mac: src });
        }
        self.normal_forward(Some(in_bundle), vlan);
    }

    /// The VLAN of a frame that came in on `bundle`, or `None` if it may not come in with the tag that it has.
    fn input_vlan(&mut self, bundle: &Bundle) -> Option<u16> {
        let vid = self.key.vlan_tci() & 0xfff;
        if bundle.mode == VlanMode::Access {
            if vid != 0 {
                let name = &bundle.name;
                self.tracer.note(Kind::Warning, || {
                    format!(
                        "dropping VLAN {vid} tagged packet received on port {name} configured as VLAN {} access port",
                        bundle.tag
                    )
                });
                return None;
            }
            return Some(bundle.tag);
        }
        let native = matches!(bundle.mode, VlanMode::NativeTagged | VlanMode::NativeUntagged);
        let vlan = if native && vid == 0 { bundle.tag } else { vid };
        if !bundle.carries(vlan) {
            let name = &bundle.name;
            self.tracer.note(Kind::Warning, || {
                format!("dropping VLAN {vlan} packet received on port {name} not configured for trunking VLAN {vlan}")
            });
            return None;
        }
        Some(vlan)
    }

    fn normal_forward(&mut self, in_bundle: Option<usize>, vlan: u16) {
        let bridge = self.bridge;
        let dst = MacAddr::from_u64(self.key.get(Field::EthDst) as u64);
        if !dst.is_multicast() {
            let port = bridge.macs.read().lookup(vlan, dst);
            self.dependencies.push(Dependency::Mac { bridge: bridge.id, vlan, mac: dst });
            match port.and_then(|p| bridge.ports.get(&p)).and_then(|p| p.bundle) {
                Some(out) if Some(out) == in_bundle => {
                    self.tracer.note(Kind::Detail, || "learned port is input port, dropping".into());
                    return self.note_drop(DropReason::SamePort);
                }
                Some(out) => {
                    self.tracer.note(Kind::Detail, || "forwarding to learned port".into());
                    return self.normal_output(in_bundle, out, vlan);
                }
                None => self.tracer.note(Kind::Detail, || "no learned MAC for destination, flooding".into()),
            }
        } else {
            self.tracer.note(Kind::Detail, || "multicast traffic, flooding".into());
        }
        for (i, bundle) in bridge.bundles.iter().enumerate() {
            if Some(i) != in_bundle && bundle.floodable && bundle.carries(vlan) {
                self.normal_output(in_bundle, i, vlan);
            }
        }
    }

    /// Sends to a bundle, with the tag that it wants.
    fn normal_output(&mut self, in_bundle: Option<usize>, out: usize, vlan: u16) {
        let bridge = self.bridge;
        let bundle = &bridge.bundles[out];
        if bundle.protected && in_bundle.is_some_and(|i| bridge.bundles[i].protected) {
            return self.note_drop(DropReason::VlanMismatch);
        }
        if !bundle.carries(vlan) {
            return self.note_drop(DropReason::VlanMismatch);
        }
        let Some(port) = bundle.ports.first().copied() else { return };
        let (key, written) = (self.key.clone(), self.reads.written().clone());
        let pcp = key.vlan_tci() & 0xe000;
        let vid = match bundle.mode {
            VlanMode::Access => 0,
            VlanMode::NativeUntagged if vlan == bundle.tag => 0,
            _ => vlan,
        };
        let tagged = vid != 0
            || match bundle.priority_tags {
                PriorityTags::Never => false,
                PriorityTags::IfNonzero => pcp != 0,
                PriorityTags::Always => true,
            };
        match (self.has_vlan(), tagged) {
            (true, true) => self.write(Field::VlanVid, u128::from(vid) | 0x1000, 0x1fff),
            (true, false) => self.pop_vlan(),
            (false, true) => self.write(Field::VlanTci, u128::from(vid | pcp) | 0x1000, 0xffff),
            (false, false) => {}
        }
        self.output_port(port, false);
        self.restore_vlans(&key, &written);
    }
}
