//! The NORMAL action: a learning switch with VLANs (IEEE 802.1Q), between the bundles of a bridge.

use crate::mac::MacKey;
use crate::model::{Bundle, PriorityTags, VlanMode};
use crate::trace::NodeKind;
use crate::translate::Xlate;
use crate::verdict::{Dependency, Effect};
use base::{DropReason, MacAddr, PortNo};
use flow::extract::ethertype;
use flow::{Field, layout};

/// The VLAN id in a tag's control information.
const VID: u16 = 0xfff;
/// The priority in a tag's control information.
const PCP: u16 = 0xe000;
/// The bit of a key's tags that marks the tag as present.
const PRESENT: u16 = 0x1000;

/// A frame inside of the bridge, between its ingress bundle and its egress bundles.
struct Classified<'a> {
    in_bundle: Option<&'a Bundle>,
    /// The VLAN that the frame belongs to.
    vlan: u16,
    /// The priority of its outer tag, in the bits of [`PCP`].
    pcp: u16,
    /// True if it arrived with a tag.
    tagged: bool,
    /// The id of the inner tag, 0 if there is none.
    inner_vid: u16,
    /// True if an inner tag does not cross the bridge: an access port admits frames of its own VLAN only.
    strips_inner: bool,
}

impl<'a> Xlate<'a> {
    /// Forwards as a plain learning switch.
    pub(crate) fn normal(&mut self) {
        let bridge = self.pos.bridge;
        self.out.reads.note(layout::ETH_SRC, u64::MAX);
        self.out.reads.note_field(Field::EthDst);
        let in_port = self.packet.key.in_port();
        let in_bundle = bridge.ports.get(&in_port).and_then(|p| p.bundle.as_deref());
        if in_bundle.is_none() && ![PortNo::ANY, PortNo::CONTROLLER, PortNo::LOCAL].contains(&in_port) {
            self.tracer.note(NodeKind::Warning, || format!("dropping packet received on unknown port {in_port}"));
            return self.note_drop(DropReason::NoPort);
        }
        // A tag in front of which others were popped may be beyond the configured limit of tags.
        let is_untagged = !self.has_vlan();
        if is_untagged {
            self.out.reads.note_field(Field::EthType);
        }
        if is_untagged && [ethertype::VLAN, ethertype::QINQ].contains(&self.packet.key.eth_type()) {
            self.tracer.note(NodeKind::Warning, || "partial VLAN tag, dropping".into());
            return self.note_drop(DropReason::VlanMismatch);
        }
        // A packet-out without an ingress port is flooded in its own VLAN.
        let Some(frame) = self.classify(in_bundle) else {
            self.tracer.note(NodeKind::Warning, || "disallowed VLAN VID for this input port, dropping".into());
            return self.note_drop(DropReason::VlanMismatch);
        };
        if in_bundle.is_some() {
            let dst = MacAddr::from_u64(self.packet.key.get(Field::EthDst) as u64);
            if dst.is_reserved() && !bridge.forward_bpdu {
                self.tracer.note(NodeKind::Warning, || "dropping packet to reserved address".into());
                return self.note_drop(DropReason::ReservedAddress);
            }
            let (src, vlan) = (MacAddr::from_u64(self.packet.key.get(Field::EthSrc) as u64), frame.vlan);
            if !src.is_multicast() && self.state_of(in_port).learning {
                self.learn_address((vlan, src), in_port);
            }
        }
        self.normal_forward(&frame);
    }

    /// Learns that an address is on `port`. Later look-ups of this translation find it there.
    fn learn_address(&mut self, key: MacKey, port: PortNo) {
        let (bridge, (vlan, mac)) = (self.pos.bridge, key);
        if let Some(learned) = self.out.learned.get_mut(&(bridge.id, key)) {
            *learned = port;
        } else if self.tracer.has_effects() && bridge.macs.read().would_learn(vlan, mac, port) {
            self.out.learned.insert((bridge.id, key), port);
        }
        self.out.effects.push(Effect::LearnMac { bridge: bridge.id, vlan, mac, port });
        self.out.dependencies.push(Dependency::Mac { bridge: bridge.id, vlan, mac });
    }

    /// Assigns the frame to a VLAN. Returns `None` if the bundle does not admit frames with its tag.
    fn classify(&mut self, in_bundle: Option<&'a Bundle>) -> Option<Classified<'a>> {
        let tci = self.packet.key.vlan_tci();
        let tagged = tci & PRESENT != 0;
        if tagged {
            self.read_inner_tag();
        }
        let (_, inner) = self.packet.key.vlan(1);
        let inner_vid = if tagged && inner & PRESENT != 0 { inner & VID } else { 0 };
        let mut frame =
            Classified { in_bundle, vlan: tci & VID, pcp: tci & PCP, tagged, inner_vid, strips_inner: false };
        let Some(bundle) = in_bundle else { return Some(frame) };
        let (vid, name) = (frame.vlan, &bundle.name);
        match bundle.mode {
            VlanMode::Access if vid != 0 => {
                self.tracer.note(NodeKind::Error, || {
                    format!(
                        "dropping VLAN {vid} tagged packet received on port {name} configured as VLAN {} access port",
                        bundle.tag
                    )
                });
                return None;
            }
            VlanMode::Access => {
                frame.vlan = bundle.tag;
                (frame.inner_vid, frame.strips_inner) = (0, tagged && inner & PRESENT != 0);
            }
            VlanMode::NativeTagged | VlanMode::NativeUntagged if vid == 0 => frame.vlan = bundle.tag,
            VlanMode::Trunk | VlanMode::NativeTagged | VlanMode::NativeUntagged => {}
        }
        let vlan = frame.vlan;
        if !bundle.carries(vlan) {
            self.tracer.note(NodeKind::Error, || {
                format!("dropping VLAN {vlan} packet received on port {name} not configured for trunking VLAN {vlan}")
            });
            return None;
        }
        Some(frame)
    }

    fn normal_forward(&mut self, frame: &Classified<'_>) {
        let bridge = self.pos.bridge;
        let dst = MacAddr::from_u64(self.packet.key.get(Field::EthDst) as u64);
        if !dst.is_multicast() {
            let learned = self.out.learned.get(&(bridge.id, (frame.vlan, dst))).copied();
            let port = learned.or_else(|| bridge.macs.read().lookup(frame.vlan, dst));
            self.out.dependencies.push(Dependency::Mac { bridge: bridge.id, vlan: frame.vlan, mac: dst });
            match port.and_then(|p| bridge.ports.get(&p)).and_then(|p| p.bundle.as_deref()) {
                Some(out) if frame.came_by(out) => {
                    self.tracer.note(NodeKind::Detail, || "learned port is input port, dropping".into());
                    return self.note_drop(DropReason::SamePort);
                }
                Some(out) => {
                    self.tracer.note(NodeKind::Detail, || "forwarding to learned port".into());
                    return self.normal_output(frame, out);
                }
                None => self.tracer.note(NodeKind::Detail, || "no learned MAC for destination, flooding".into()),
            }
        } else {
            self.tracer.note(NodeKind::Detail, || "multicast traffic, flooding".into());
        }
        for bundle in bridge.bundles.values() {
            if !frame.came_by(bundle) && bundle.floodable && frame.may_leave_by(bundle) {
                self.normal_output(frame, bundle);
            }
        }
    }

    /// Outputs the frame to a bundle, tagged as the bundle's mode asks for.
    fn normal_output(&mut self, frame: &Classified<'_>, bundle: &Bundle) {
        if !frame.may_leave_by(bundle) {
            return self.note_drop(DropReason::VlanMismatch);
        }
        let Some(port) = bundle.ports.first().copied() else { return };
        let (out, keeps_inner) = frame.tag_for(bundle);
        let same = match out {
            None => !frame.tagged,
            Some(tci) => frame.tagged && tci == self.packet.key.vlan_tci(),
        };
        if same && keeps_inner {
            return self.output_port(port, false);
        }
        let before = self.save_tags();
        let (tpid, _) = before[0];
        if !keeps_inner {
            // Pops both tags of the key.
            self.pop_vlan();
            self.pop_vlan();
        }
        match (self.has_vlan(), out) {
            (true, Some(tci)) => self.write(Field::VlanTci, tci.into(), u128::from(VID | PRESENT)),
            (true, None) => self.pop_vlan(),
            (false, Some(tci)) => {
                self.push_vlan(if frame.tagged { tpid } else { ethertype::VLAN });
                self.write(Field::VlanTci, tci.into(), 0xffff);
            }
            (false, None) => {}
        }
        self.output_port(port, false);
        self.restore_tags(before);
    }
}

impl Classified<'_> {
    /// Returns true if the frame was received on a port of the bundle.
    fn came_by(&self, bundle: &Bundle) -> bool {
        self.in_bundle.is_some_and(|from| std::ptr::eq(from, bundle))
    }

    /// Returns true if a bundle carries the frame. Frames with an inner tag do not leave by access ports: they would be tagged
    /// there, and of another VLAN for the next switch.
    fn may_leave_by(&self, bundle: &Bundle) -> bool {
        bundle.carries(self.vlan) && (bundle.mode != VlanMode::Access || self.inner_vid == 0)
    }

    /// The outer tag with which the frame leaves by a bundle, if any, and whether the inner tag stays.
    fn tag_for(&self, bundle: &Bundle) -> (Option<u16>, bool) {
        let strips = match bundle.mode {
            VlanMode::Access => true,
            VlanMode::NativeUntagged => self.vlan == bundle.tag,
            VlanMode::Trunk | VlanMode::NativeTagged => false,
        };
        let (tci, is_tagged) = if strips {
            // A tag for VLAN 0 remains if its priority has to.
            let pcp = if bundle.priority_tags == PriorityTags::Never { 0 } else { self.pcp };
            (pcp, pcp != 0)
        } else {
            let tci = self.vlan | self.pcp;
            (tci, tci != 0 || self.tagged && bundle.priority_tags == PriorityTags::Always)
        };
        // The inner tag under an empty tag does not belong to the VLAN that the tag stands for.
        let keeps_inner = !self.strips_inner && (strips || is_tagged || !self.tagged);
        (is_tagged.then_some(tci | PRESENT), keeps_inner)
    }
}
