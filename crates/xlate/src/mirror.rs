//! Mirrors: copies of the packets that enter or leave a bridge by selected ports, sent to a port (SPAN) or into a VLAN (RSPAN).
//!
//! A packet becomes eligible when the bridge receives it, before the actions of its first table, and at each output to a
//! device or a tunnel, behind that output. As in Open vSwitch, crossing a patch port selects nothing. A bridge sends a packet
//! to a mirror once, and once more after an action changed its headers.
//!
//! A copy is output like any other packet, so that it may be selected by other mirrors, behind patch ports in other bridges
//! as well. It is never selected again by a mirror that it is a copy of, also when it returns to that mirror's bridge: no
//! configuration of mirrors and patch ports copies a packet without end.
//!
//! A translation reads no more of a packet than its mirrors ask for: the tags only if the VLAN selects, or if the copy leaves
//! with other ones; of a filter, the words up to the first that differs.

use crate::groups::Counters;
use crate::model::{Bridge, BridgeId, Bundle, Port, VlanMode, VlanSet};
use crate::model::{PortOut, PriorityTags};
use crate::trace::NodeKind;
use crate::translate::Xlate;
use crate::verdict::Effect;
use base::{DropReason, MacAddr};
use flow::{Field, Loc, Match, Prereq, layout};
use foldhash::fast::RandomState;
use openflow::Action;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of mirrors of a bridge.
pub const MAX_MIRRORS: usize = 32;

/// A mirror (ovs-vswitchd.conf.db(5), table Mirror).
#[derive(Clone, Debug)]
pub struct Mirror {
    /// True if the packets of all ports are selected, in both directions.
    pub select_all: bool,
    /// The bundles whose received packets are selected.
    pub select_src: Vec<Arc<str>>,
    /// The bundles whose sent packets are selected.
    pub select_dst: Vec<Arc<str>>,
    /// The VLANs whose packets are selected; `None` for all.
    pub select_vlan: Option<Arc<VlanSet>>,
    /// The match that selected packets have.
    pub filter: Option<Box<Match>>,
    /// The destination of copies.
    pub out: MirrorOut,
    /// Maximum length of a copy in bytes.
    pub snaplen: Option<u16>,
    /// The packets that were selected.
    pub counters: Arc<Counters>,
}

/// The destination of a mirror.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MirrorOut {
    /// The bundle of this name, which is reserved for copies.
    Port(Arc<str>),
    /// All bundles that carry this VLAN.
    Vlan(u16),
}

/// A number for each mirror of a bridge: one bit of a word.
type Set = u32;

/// The mirrors of a bridge.
#[derive(Clone, Debug, Default)]
pub struct Mirrors {
    /// By number.
    all: Vec<Option<Mirror>>,
    /// Of each mirror, those with the same destination.
    duplicates: Vec<Set>,
    /// The mirrors that select all bundles.
    of_all: Set,
    by_bundle: HashMap<Arc<str>, Selection, RandomState>,
}

/// The mirrors that select the packets of a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// Received packets.
    src: Set,
    /// Sent packets.
    dst: Set,
    /// True if the bundle is reserved for the copies of a mirror.
    pub is_output: bool,
}

impl Mirrors {
    /// The mirrors with these numbers, of which those from [`MAX_MIRRORS`] on are left out. A packet is sent to them in the
    /// order of their numbers.
    pub fn new(mut all: Vec<Option<Mirror>>) -> Self {
        all.truncate(MAX_MIRRORS);
        let mut mirrors = Self { duplicates: vec![0; all.len()], ..Self::default() };
        for (n, mirror) in all.iter().enumerate().filter_map(|(n, mirror)| Some((n, mirror.as_ref()?))) {
            let bit = 1 << n;
            mirrors.of_all |= if mirror.select_all { bit } else { 0 };
            mirror.select_src.iter().for_each(|name| mirrors.entry(name).src |= bit);
            mirror.select_dst.iter().for_each(|name| mirrors.entry(name).dst |= bit);
            if let MirrorOut::Port(name) = &mirror.out {
                mirrors.entry(name).is_output = true;
            }
            let has_same_output = |other: &Option<Mirror>| other.as_ref().is_some_and(|other| other.out == mirror.out);
            mirrors.duplicates[n] =
                all.iter().enumerate().fold(0, |set, (i, other)| set | u32::from(has_same_output(other)) << i);
        }
        mirrors.all = all;
        mirrors
    }

    fn entry(&mut self, bundle: &Arc<str>) -> &mut Selection {
        self.by_bundle.entry(Arc::clone(bundle)).or_default()
    }

    /// The mirrors that select the packets of a bundle.
    pub fn of(&self, bundle: &str) -> Selection {
        let own = self.by_bundle.get(bundle).copied().unwrap_or_default();
        Selection { src: own.src | self.of_all, dst: own.dst | self.of_all, ..own }
    }
}

/// The mirrors that a packet does not go to.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Mirrored {
    /// The mirrors of the current bridge that the packet was sent to.
    pub(crate) sent: Set,
    /// The mirrors, in any bridge, that the packet is a copy of.
    pub(crate) copy_of: SmallVec<[(BridgeId, Set); 2]>,
}

/// The state of mirrors in a translation.
#[derive(Default)]
pub(crate) struct Mirroring {
    pub(crate) mirrored: Mirrored,
    /// Maximum length of the copy that is being output, in bytes.
    pub(crate) snaplen: Option<u16>,
    /// True until the first look-up of the packet.
    pub(crate) at_ingress: bool,
}

/// The mirrors of a bridge that a packet left through a patch port or a tunnel.
pub(crate) struct Left {
    /// `None` if it is the same bridge behind the port.
    sent: Option<Set>,
    snaplen: Option<u16>,
}

impl Xlate<'_> {
    /// Sends the packet to the mirrors of its ingress port. Returns false if that is reserved for mirrors: the packet is
    /// dropped.
    pub(crate) fn mirror_ingress(&mut self) -> bool {
        self.mirroring.at_ingress = false;
        let bridge = self.pos.bridge;
        let Some(mirrors) = bridge.mirrors.as_deref() else { return true };
        let Some(bundle) = bridge.ports.get(&self.packet.key.in_port()).and_then(|port| port.bundle.as_deref()) else {
            return true;
        };
        let selection = mirrors.of(&bundle.name);
        if selection.is_output {
            self.tracer.note(NodeKind::Error, || {
                let name = &bundle.name;
                format!("dropping packet received on port {name}, which is reserved exclusively for mirroring")
            });
            self.note_drop(DropReason::MirrorPort);
            return false;
        }
        self.mirror(mirrors, bundle, selection.src);
        true
    }

    /// Sends a packet that was output to `port` to the mirrors of that port.
    pub(crate) fn mirror_egress(&mut self, port: &Port) {
        if let (Some(mirrors), Some(bundle)) = (self.pos.bridge.mirrors.as_deref(), port.bundle.as_deref()) {
            self.mirror(mirrors, bundle, mirrors.of(&bundle.name).dst);
        }
    }

    /// Sends the packet to those of the `selected` mirrors that it was not sent to before.
    fn mirror(&mut self, mirrors: &Mirrors, bundle: &Bundle, selected: Set) {
        let of_bridge = |(id, set): &(BridgeId, Set)| if *id == self.pos.bridge.id { *set } else { 0 };
        let copy_of = self.mirroring.mirrored.copy_of.iter().fold(0, |all, entry| all | of_bridge(entry));
        let mut rest = selected & !copy_of & !self.mirroring.mirrored.sent;
        if rest == 0 {
            // A trace tells of a tag that the bundle does not admit even if no mirror selects the packet.
            if self.tracer.is_on() {
                self.admits(bundle, self.vid());
            }
            return;
        }
        if !self.admits_copy(bundle) {
            return;
        }
        while rest != 0 {
            let n = rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let (Some(Some(mirror)), Some(duplicates)) = (mirrors.all.get(n), mirrors.duplicates.get(n)) else {
                continue;
            };
            if self.is_selected(mirror, bundle) {
                self.mirroring.mirrored.sent |= duplicates;
                self.out.effects.push(Effect::Mirror(Arc::clone(&mirror.counters)));
                self.send_copy(mirror, bundle, *duplicates);
                // Sending the copy may have sent further ones.
                rest &= !self.mirroring.mirrored.sent;
            }
        }
    }

    /// Returns true if the bundle admits packets with the packet's tag: a packet that it does not is not mirrored.
    fn admits_copy(&mut self, bundle: &Bundle) -> bool {
        match bundle.mode {
            VlanMode::Trunk if bundle.trunks.is_none() => true,
            VlanMode::Trunk => {
                let vid = self.read_vid();
                self.admits(bundle, vid)
            }
            _ => {
                self.read_tags();
                let vid = self.vid();
                self.admits(bundle, vid)
            }
        }
    }

    /// Reads the VLAN id of the packet; 0 if it has no tag.
    pub(crate) fn read_vid(&mut self) -> u16 {
        if self.has_vlan() {
            self.out.reads.note(layout::ETH_SRC, 0xfff);
        }
        self.vid()
    }

    /// The VLAN id of the packet, which has been read.
    fn vid(&self) -> u16 {
        let tci = self.packet.key.vlan_tci();
        if tci & 0x1000 == 0 { 0 } else { tci & 0xfff }
    }

    /// Returns true if the mirror selects packets of this VLAN and with these headers.
    fn is_selected(&mut self, mirror: &Mirror, bundle: &Bundle) -> bool {
        if let Some(vlans) = &mirror.select_vlan {
            let vlan = match (bundle.mode, self.read_vid()) {
                (VlanMode::Access | VlanMode::Dot1qTunnel { .. }, _) => bundle.tag,
                (VlanMode::NativeTagged | VlanMode::NativeUntagged, 0) => bundle.tag,
                (_, vid) => vid,
            };
            if !vlans.contains(vlan) {
                return false;
            }
        }
        let Some(filter) = &mirror.filter else { return true };
        let words = filter.mask().0.iter().zip(&filter.key().0).enumerate().filter(|(_, (mask, _))| **mask != 0);
        for (word, (mask, value)) in words {
            self.out.reads.note(word, *mask);
            if (self.packet.key.0[word] ^ value) & mask != 0 {
                return false;
            }
        }
        true
    }

    /// Sends a copy to the destination of a mirror. The copy is of no use to the mirrors with the same destination.
    fn send_copy(&mut self, mirror: &Mirror, bundle: &Bundle, duplicates: Set) {
        let bridge = self.pos.bridge;
        let snaplen = std::mem::replace(&mut self.mirroring.snaplen, mirror.snaplen.filter(|n| *n < u16::MAX));
        self.mirroring.mirrored.copy_of.push((bridge.id, duplicates));
        match &mirror.out {
            MirrorOut::Port(name) => match bridge.bundles.get(&**name) {
                Some(out) if leaves_as_it_came(bundle, out) => self.output_bundle(out),
                Some(out) => {
                    self.read_tags();
                    if let Some(frame) = self.classify(Some(bundle)) {
                        self.output_tagged(&frame, out);
                    }
                }
                None => {}
            },
            MirrorOut::Vlan(vlan) => self.send_copy_to_vlan(bridge, bundle, *vlan),
        }
        self.mirroring.mirrored.copy_of.pop();
        self.mirroring.snaplen = snaplen;
    }

    /// Sends a copy to all bundles that carry the VLAN, unless the packet is in that VLAN or to an address that bridges do not
    /// forward.
    fn send_copy_to_vlan(&mut self, bridge: &Bridge, bundle: &Bundle, vlan: u16) {
        if self.is_to_reserved_address() {
            return;
        }
        self.read_tags();
        let Some(mut frame) = self.classify(Some(bundle)).filter(|frame| frame.vlan() != vlan) else { return };
        frame.set_vlan(vlan);
        for out in bridge.bundles.values().filter(|out| frame.may_leave_by(out) && !bridge.is_reserved(out)) {
            self.output_tagged(&frame, out);
        }
    }

    /// Returns true if the packet is to a reserved address. Reads the first bytes of the destination that decide this.
    fn is_to_reserved_address(&mut self) -> bool {
        let dst = self.packet.key.get(Field::EthDst) as u64;
        let bytes = MacAddr::reserved_prefix(MacAddr::from_u64(dst));
        self.read_bits(Field::EthDst, u128::from(!0u64 << (48 - 8 * bytes) & 0xffff_ffff_ffff));
        MacAddr::from_u64(dst).is_reserved()
    }

    /// Skips the output of a shortened copy to a port that is not in the datapath. Returns true if it is skipped.
    pub(crate) fn skips_copy(&mut self, port: &Port) -> bool {
        let skips = self.mirroring.snaplen.is_some() && matches!(port.out, PortOut::Patch(..) | PortOut::Nowhere);
        if skips {
            self.tracer.note(NodeKind::Warning, || "Mirror truncate to ODPP_NONE, skipping output".into());
            self.note_drop(DropReason::NoPort);
        }
        skips
    }

    /// Sends the packet to mirrors again after this action, if it changes headers that are there, or fields of the tunnel it
    /// leaves through: the actions that count are those of Open vSwitch.
    pub(crate) fn mirror_again_after(&mut self, action: &Action) {
        let changes = match action {
            Action::SetVlanVid { .. }
            | Action::SetVlanPcp { .. }
            | Action::PushVlan(_)
            | Action::PopVlan
            | Action::PushMpls(_)
            | Action::PopMpls(_)
            | Action::SetMplsLabel(_)
            | Action::SetMplsTc(_)
            | Action::SetMplsTtl(_)
            | Action::DecMplsTtl
            | Action::PushPbb
            | Action::PopPbb
            | Action::CopyTtlIn
            | Action::CopyTtlOut
            | Action::DecNshTtl
            | Action::DecTtl(_)
            | Action::SetEthSrc(_)
            | Action::SetEthDst(_)
            | Action::Encap(_)
            | Action::Decap(_)
            | Action::Nat(_)
            | Action::SetTunnel { .. } => true,
            Action::SetIpv4Src(_) | Action::SetIpv4Dst(_) => self.has(Prereq::Ipv4),
            Action::SetIpDscp(_) | Action::SetIpEcn(_) | Action::SetIpTtl(_) => self.has(Prereq::Ip),
            Action::SetL4Src(_) | Action::SetL4Dst(_) => {
                self.has(Prereq::Ip) && self.read_bits(Field::IpFrag, flow::extract::FRAG_ANY.into()) & 2 == 0
            }
            Action::SetField { field, .. } => is_of_packet_or_tunnel(*field) && self.has(field.info().prereq),
            Action::RegLoad { dst, .. } => is_of_packet_or_tunnel(dst.field) && self.has(dst.field.info().prereq),
            _ => false,
        };
        if changes {
            self.mirroring.mirrored.sent = 0;
        }
    }

    /// Notes that the packet crosses into `bridge`. Its mirrors select independently, unless it is the same bridge.
    pub(crate) fn cross_mirrors(&mut self, bridge: BridgeId) -> Left {
        let is_other = bridge != self.pos.bridge.id;
        let sent = is_other.then(|| std::mem::take(&mut self.mirroring.mirrored.sent));
        Left { sent, snaplen: self.mirroring.snaplen.take() }
    }

    /// Returns from the bridge that the packet crossed into.
    pub(crate) fn return_to_mirrors(&mut self, left: Left) {
        self.mirroring.snaplen = left.snaplen;
        if let Some(sent) = left.sent {
            self.mirroring.mirrored.sent = sent;
        }
    }
}

/// Returns true if a copy of a packet of `bundle` leaves by `out` with the tags that it has.
fn leaves_as_it_came(bundle: &Bundle, out: &Bundle) -> bool {
    bundle.mode == VlanMode::Trunk && out.mode == VlanMode::Trunk && out.priority_tags == PriorityTags::Never
}

/// Returns true for fields of headers and tunnels, not for registers and metadata, and as in Open vSwitch, not for options of
/// tunnels.
fn is_of_packet_or_tunnel(field: Field) -> bool {
    let is_counted = |word: usize| {
        word >= layout::ETH_DST || (layout::TUN_ID..layout::SKB_PKT).contains(&word) || word < layout::REGS
    };
    match field.info().loc {
        // The one field of tunnels that Open vSwitch does not count.
        _ if field == Field::TunErspanDir => false,
        Loc::Bits { word, .. } => is_counted(word.into()),
        Loc::Wide(word) => is_counted(word),
        Loc::NwTos | Loc::ArpOp => true,
        Loc::InPort16 | Loc::TunMetadata(_) => false,
    }
}
