//! The NORMAL action: a learning switch with VLANs (IEEE 802.1Q), between the bundles of a bridge.

use crate::mac::MacKey;
use crate::model::{Bundle, PriorityTags, VlanMode};
use crate::trace::NodeKind;
use crate::translate::Xlate;
use crate::verdict::{Dependency, Effect};
use base::{DropReason, MacAddr, PortNo};
use flow::extract::ethertype;
use flow::{Field, layout};
use tunnel::options::PacketMode;

/// The VLAN id in a tag's control information.
const VID: u16 = 0xfff;
/// The priority in a tag's control information.
const PCP: u16 = 0xe000;
/// The bit of a key's tags that marks the tag as present.
const PRESENT: u16 = 0x1000;

/// A tag of a frame inside of the bridge. The outer one has the frame's VLAN even where the packet has no tag.
#[derive(Clone, Copy, Debug, Default)]
struct Tag {
    /// The tag protocol id; `None` if the packet has no such tag and no port has given it one.
    tpid: Option<u16>,
    vid: u16,
    /// The priority, in the bits of [`PCP`].
    pcp: u16,
}

impl Tag {
    /// Takes a tag from a key; the bit [`PRESENT`] tells whether there is one.
    fn of((tpid, tci): (u16, u16)) -> Self {
        let tpid = (tci & PRESENT != 0).then_some(tpid);
        tpid.map_or_else(Self::default, |tpid| Self { tpid: Some(tpid), vid: tci & VID, pcp: tci & PCP })
    }

    /// The tag as a key has it; zeros if the packet is to have none.
    fn in_key(self, priority_tags: PriorityTags) -> (u16, u16) {
        let tci = self.vid | self.pcp;
        let is_empty_tag = self.tpid.is_some() && priority_tags == PriorityTags::Always;
        if tci != 0 || is_empty_tag { (self.tpid.unwrap_or(ethertype::VLAN), tci | PRESENT) } else { (0, 0) }
    }
}

/// A frame inside of the bridge, between its ingress bundle and its egress bundles.
pub(crate) struct Classified<'a> {
    pub(crate) in_bundle: Option<&'a Bundle>,
    /// The outer tag, with the VLAN that the frame belongs to, and the inner one.
    tags: [Tag; 2],
    /// The tags of the packet as a key has them, zeros for absent ones.
    received: [(u16, u16); 2],
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
            self.tracer.note(NodeKind::Error, || format!("received packet on unknown port {in_port}"));
            self.tracer.note(NodeKind::Warning, || "no input bundle, dropping".into());
            return self.note_drop(DropReason::NoPort);
        }
        // The frame may have more tags than the key has (`vlan-limit`): the next one shows when those of the key are popped.
        let is_untagged = !self.has_vlan();
        if is_untagged {
            self.out.reads.note_field(Field::EthType);
        }
        if is_untagged && [ethertype::VLAN, ethertype::QINQ].contains(&self.packet.key.eth_type()) {
            self.tracer.note(NodeKind::Warning, || "partial VLAN tag, dropping".into());
            return self.note_drop(DropReason::VlanMismatch);
        }
        if in_bundle.is_some_and(|bundle| bridge.is_reserved(bundle)) {
            self.tracer.note(NodeKind::Warning, || "input port is mirror output port, dropping".into());
            return self.note_drop(DropReason::MirrorPort);
        }
        // A packet-out without an ingress port is flooded in its own VLAN.
        let Some(frame) = self.classify(in_bundle) else {
            self.tracer.note(NodeKind::Warning, || "disallowed VLAN VID for this input port, dropping".into());
            return self.note_drop(DropReason::VlanMismatch);
        };
        if let Some(bundle) = in_bundle {
            let dst = MacAddr::from_u64(self.packet.key.get(Field::EthDst) as u64);
            if dst.is_reserved() && !bridge.forward_bpdu {
                self.tracer.note(NodeKind::Detail, || "packet has reserved destination MAC, dropping".into());
                return self.note_drop(DropReason::ReservedAddress);
            }
            let (src, vlan) = (MacAddr::from_u64(self.packet.key.get(Field::EthSrc) as u64), frame.vlan());
            if bundle.is_bond() && self.is_refused_by_bond(bundle, in_port, (vlan, src)) {
                return;
            }
            let may_learn = !src.is_multicast() && !bridge.floods(vlan);
            if may_learn && self.state_of(in_port).learning && !self.has_made_up_address(in_port) {
                // An address on a member is the bond's: it does not move where frames come by several members.
                let at = bundle.ports.first().copied().unwrap_or(in_port);
                self.learn_address((vlan, src), at, bundle);
                if !bundle.is_bond() {
                    self.lock_announced_address((vlan, src));
                }
            }
        }
        self.normal_forward(&frame);
    }

    /// Whether the packet came from a tunnel without an Ethernet header: it has one of zeros now.
    fn has_made_up_address(&self, in_port: PortNo) -> bool {
        let tunnel = self.pos.bridge.ports.get(&in_port).and_then(|port| port.tunnel.as_ref());
        tunnel.is_some_and(|config| config.packets == PacketMode::LegacyL3)
    }

    /// Learns that an address is on `port`, which is in `bundle`. Later look-ups of this translation find it there.
    fn learn_address(&mut self, key: MacKey, port: PortNo, bundle: &Bundle) {
        let (bridge, (vlan, mac)) = (self.pos.bridge, key);
        let before = self.out.learned.get(&(bridge.id, key)).copied();
        let is_news = match before {
            Some(before) => before != port,
            None => self.tracer.has_effects() && bridge.macs.read().would_learn(vlan, mac, port),
        };
        if is_news {
            self.out.learned.insert((bridge.id, key), port);
            let text = || format!("learned that {mac} is on port {} in VLAN {vlan}", bundle.name);
            self.tracer.note(NodeKind::Detail, text);
        }
        self.out.effects.push(Effect::LearnMac { bridge: bridge.id, vlan, mac, port });
        self.out.dependencies.push(Dependency::Mac { bridge: bridge.id, vlan, mac });
    }

    /// Assigns the frame to a VLAN. Returns `None` if the bundle does not admit frames with its tag.
    pub(crate) fn classify<'b>(&mut self, in_bundle: Option<&'b Bundle>) -> Option<Classified<'b>> {
        let outer = Tag::of(self.packet.key.vlan(0));
        let inner = if outer.tpid.is_some() {
            self.read_inner_tag();
            Tag::of(self.packet.key.vlan(1))
        } else {
            Tag::default()
        };
        let in_key = |n, tag: Tag| if tag.tpid.is_some() { self.packet.key.vlan(n) } else { (0, 0) };
        let received = [in_key(0, outer), in_key(1, inner)];
        let mut frame = Classified { in_bundle, tags: [outer, inner], received };
        let Some(bundle) = in_bundle else { return Some(frame) };
        if !self.admits(bundle, outer.vid) {
            return None;
        }
        let tag = bundle.tag;
        match bundle.mode {
            // An inner tag does not cross the bridge: an access port admits frames of its own VLAN only.
            VlanMode::Access => {
                let tpid = outer.tpid.or(Some(ethertype::VLAN));
                frame.tags = [Tag { tpid, vid: tag, ..outer }, Tag::default()];
            }
            VlanMode::Dot1qTunnel { tpid } => {
                // Whether the frame leaves as it came depends on all of its tags: one of them may equal the service tag.
                self.read_tags();
                frame.tags = [Tag { tpid: Some(tpid), vid: tag, pcp: 0 }, outer];
            }
            VlanMode::NativeTagged | VlanMode::NativeUntagged if outer.vid == 0 => {
                let tpid = outer.tpid.or(Some(ethertype::VLAN));
                frame.tags[0] = Tag { tpid, vid: tag, ..outer };
            }
            VlanMode::Trunk | VlanMode::NativeTagged | VlanMode::NativeUntagged => {}
        }
        Some(frame)
    }

    /// Returns true if a bundle admits frames with this VLAN id in their outer tag, 0 for those without one.
    pub(crate) fn admits(&mut self, bundle: &Bundle, vid: u16) -> bool {
        let (name, tag) = (&bundle.name, bundle.tag);
        let (admits, why) = match bundle.mode {
            VlanMode::Access => (vid == 0, "tagged packet received on port"),
            VlanMode::Dot1qTunnel { .. } => (bundle.admits_customer(vid), "packet received on dot1q-tunnel port"),
            VlanMode::NativeTagged | VlanMode::NativeUntagged if vid == 0 => (true, ""),
            VlanMode::Trunk | VlanMode::NativeTagged | VlanMode::NativeUntagged => {
                (bundle.carries(vid), "packet received on port")
            }
        };
        if !admits {
            self.tracer.note(NodeKind::Error, || {
                let end = match bundle.mode {
                    VlanMode::Access => format!("configured as VLAN {tag} access port"),
                    VlanMode::Dot1qTunnel { .. } => "that excludes this VLAN".to_owned(),
                    _ => format!("not configured for trunking VLAN {vid}"),
                };
                format!("dropping VLAN {vid} {why} {name} {end}")
            });
        }
        admits
    }

    fn normal_forward(&mut self, frame: &Classified<'a>) {
        let bridge = self.pos.bridge;
        let dst = MacAddr::from_u64(self.packet.key.get(Field::EthDst) as u64);
        if !dst.is_multicast() && !bridge.floods(frame.vlan()) {
            let learned = self.out.learned.get(&(bridge.id, (frame.vlan(), dst))).copied();
            let port = learned.or_else(|| bridge.macs.read().lookup(frame.vlan(), dst));
            self.out.dependencies.push(Dependency::Mac { bridge: bridge.id, vlan: frame.vlan(), mac: dst });
            match port.and_then(|p| bridge.ports.get(&p)).and_then(|p| p.bundle.as_deref()) {
                Some(out) if frame.came_by(out) => {
                    self.tracer.note(NodeKind::Detail, || "learned port is input port, dropping".into());
                    return self.note_drop(DropReason::SamePort);
                }
                Some(out) if bridge.is_reserved(out) => {
                    self.tracer.note(NodeKind::Warning, || "learned port is a mirror port, dropping".into());
                    return self.note_drop(DropReason::MirrorPort);
                }
                Some(out) => {
                    self.tracer.note(NodeKind::Detail, || "forwarding to learned port".into());
                    return self.normal_output(frame, out);
                }
                None => {}
            }
        }
        let mut note = "no learned MAC for destination, flooding";
        if let Some(snooping) = bridge.snooping.as_ref().filter(|_| dst.is_multicast()) {
            match self.forward_multicast(frame, snooping) {
                Ok(()) => return,
                Err(flooding) => note = flooding,
            }
        }
        self.tracer.note(NodeKind::Detail, || note.into());
        for bundle in bridge.bundles.values() {
            let is_flooded = bundle.floodable && !bridge.is_reserved(bundle);
            if !frame.came_by(bundle) && is_flooded && frame.may_leave_by(bundle) {
                self.normal_output(frame, bundle);
            }
        }
        self.note_flood();
    }

    /// Outputs the frame to a bundle, tagged as the bundle's mode asks for.
    pub(crate) fn normal_output(&mut self, frame: &Classified<'_>, bundle: &Bundle) {
        if !frame.may_leave_by(bundle) {
            return self.note_drop(DropReason::VlanMismatch);
        }
        self.output_tagged(frame, bundle);
    }

    /// Outputs the frame to a bundle, whether or not that carries its VLAN, tagged as the bundle's mode asks for.
    pub(crate) fn output_tagged(&mut self, frame: &Classified<'_>, bundle: &Bundle) {
        let wanted = frame.tags_for(bundle);
        if wanted == frame.received {
            return self.output_bundle(bundle);
        }
        let before = self.read_tags();
        self.set_tags(wanted);
        self.output_bundle(bundle);
        self.set_tags(before);
    }

    /// Outputs the packet as it is to the port of a bundle, or to one of the members of a bond.
    pub(crate) fn output_bundle(&mut self, bundle: &Bundle) {
        if bundle.is_bond() {
            return self.output_to_bond(bundle);
        }
        if let Some(port) = bundle.ports.first() {
            self.output_port(*port, true);
        }
    }
}

impl Classified<'_> {
    /// The VLAN that the frame belongs to.
    pub(crate) fn vlan(&self) -> u16 {
        self.tags[0].vid
    }

    /// Moves the frame to another VLAN.
    pub(crate) fn set_vlan(&mut self, vlan: u16) {
        self.tags[0].vid = vlan;
    }

    /// Returns true if the frame was received on a port of the bundle.
    pub(crate) fn came_by(&self, bundle: &Bundle) -> bool {
        self.in_bundle.is_some_and(|from| std::ptr::eq(from, bundle))
    }

    /// Returns true if a bundle carries the frame. Frames with an inner tag do not leave by access ports: they would be tagged
    /// there, and of another VLAN for the next switch.
    pub(crate) fn may_leave_by(&self, bundle: &Bundle) -> bool {
        let inner = self.tags[1].vid;
        bundle.carries(self.vlan())
            && match bundle.mode {
                VlanMode::Access => inner == 0,
                VlanMode::Dot1qTunnel { .. } => bundle.admits_customer(inner),
                VlanMode::Trunk | VlanMode::NativeTagged | VlanMode::NativeUntagged => true,
            }
    }

    /// The tags with which the frame leaves by a bundle, as a key has them. An inner tag under an absent outer one is
    /// removed, because it does not belong to the VLAN that the absent tag stands for.
    fn tags_for(&self, bundle: &Bundle) -> [(u16, u16); 2] {
        let [outer, inner] = self.tags;
        let mut tags = match bundle.mode {
            VlanMode::Access => [Tag::default(); 2],
            VlanMode::Dot1qTunnel { .. } => [inner, Tag::default()],
            VlanMode::NativeUntagged if outer.vid == bundle.tag => [inner, Tag::default()],
            VlanMode::NativeUntagged | VlanMode::Trunk | VlanMode::NativeTagged => self.tags,
        };
        if bundle.priority_tags != PriorityTags::Never {
            tags[0].pcp = self.received[0].1 & PCP;
        }
        let [outer, inner] = tags.map(|tag| tag.in_key(bundle.priority_tags));
        if outer == (0, 0) { [(0, 0); 2] } else { [outer, inner] }
    }
}
