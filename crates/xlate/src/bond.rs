//! Bonds in translations: which frames enter by a member, and the member by which a frame leaves.
//!
//! The decisions are in the bond's published [`View`]; a translation that uses one depends on the bond ([`Dependency::Bond`]).
//! A `balance-tcp` bond selects by a hash that only the datapath computes. If the datapath has a table of the bond's buckets, it
//! chooses the member itself ([`DpAction::LbOutput`]), and the translation does not depend on the choice. Otherwise the packet
//! recirculates, and resumes with the choice of the member alone, while the translation goes on with its other outputs.

use crate::freeze::Frozen;
use crate::mac::MacKey;
use crate::model::{Bundle, Port, PortOut};
use crate::trace::NodeKind;
use crate::translate::Xlate;
use crate::verdict::{Dependency, Effect, TranslationError};
use base::{DpPort, DropReason, MacAddr, PortNo};
use bond::{Admission, BUCKETS, Choice, Part, View, is_gratuitous_arp};
use dpif::{BondId, DpAction, HashKind};
use flow::Field;
use flow::extract::ethertype;
use std::sync::Arc;

/// All bits of an Ethernet address.
const MAC: u128 = 0xffff_ffff_ffff;

impl Xlate<'_> {
    /// Returns the decisions of a bond. The translation depends on this part of them from now on.
    fn bond(&mut self, name: &Arc<str>, part: Part) -> Option<Arc<View>> {
        let dependency = Dependency::Bond(Arc::clone(name), part);
        if !self.out.dependencies.contains(&dependency) {
            self.out.dependencies.push(dependency);
        }
        let views = self.bonds.get_or_insert_with(|| self.net.bonds.load());
        views.get(name).map(Arc::clone)
    }

    /// Returns true if the bond drops the frame that one of its members received: the member may not deliver it, or it is a
    /// frame of the bridge that came back.
    pub(crate) fn is_refused_by_bond(&mut self, bundle: &Bundle, in_port: PortNo, key: MacKey) -> bool {
        let dst = MacAddr::from_u64(self.packet.key.get(Field::EthDst) as u64);
        match self.bond(&bundle.name, Part::Admission).map_or(Admission::Drop, |view| view.admit(in_port, dst)) {
            Admission::Accept => false,
            Admission::AcceptUnlessMoved if !self.was_learned_elsewhere(bundle, key) => false,
            Admission::AcceptUnlessMoved => {
                self.tracer.note(NodeKind::Detail, || "SLB bond thinks this packet looped back, dropping".into());
                self.note_drop(DropReason::SamePort);
                true
            }
            Admission::Drop => {
                self.tracer.note(NodeKind::Detail, || "bonding refused admissibility, dropping".into());
                self.note_drop(DropReason::PortBlocked);
                true
            }
        }
    }

    /// Returns true if the frame's source address is at another bundle, and the frame does not announce that it has moved.
    fn was_learned_elsewhere(&mut self, bundle: &Bundle, key: MacKey) -> bool {
        let (bridge, (vlan, mac)) = (self.pos.bridge, key);
        self.out.dependencies.push(Dependency::Mac { bridge: bridge.id, vlan, mac });
        let learned = self.out.learned.get(&(bridge.id, key)).copied();
        let (port, is_locked) = {
            let macs = bridge.macs.read();
            (learned.or_else(|| macs.lookup(vlan, mac)), macs.is_locked(vlan, mac))
        };
        let at = port.and_then(|port| bridge.ports.get(&port)?.bundle.as_deref());
        at.is_some_and(|at| !std::ptr::eq(at, bundle)) && (!self.is_gratuitous_arp() || is_locked)
    }

    /// Returns true if the frame is a gratuitous ARP packet.
    fn is_gratuitous_arp(&mut self) -> bool {
        let dst = MacAddr::from_u64(self.packet.key.get(Field::EthDst) as u64);
        if self.packet.key.eth_type() != ethertype::ARP || dst != MacAddr::BROADCAST {
            return false;
        }
        let op = self.read_bits(Field::ArpOp, u128::from(u16::MAX)) as u16;
        // Only requests are gratuitous by their addresses.
        if op != 1 {
            return is_gratuitous_arp(dst, op, 0, 1);
        }
        let [sender, target] =
            [Field::ArpSpa, Field::ArpTpa].map(|field| self.read_bits(field, u128::from(u32::MAX)) as u32);
        is_gratuitous_arp(dst, op, sender, target)
    }

    /// Protects an address from being learned on a bond where the packet that shows it announces its place: neighbours of a
    /// bond may send the packet back by another member.
    pub(crate) fn lock_announced_address(&mut self, key: MacKey) {
        let bridge = self.pos.bridge;
        if self.packet.key.eth_type() != ethertype::ARP || !bridge.bundles.values().any(|bundle| bundle.is_bond()) {
            return;
        }
        if self.is_gratuitous_arp() {
            let (vlan, mac) = key;
            self.out.effects.push(Effect::LockMac { bridge: bridge.id, vlan, mac });
        }
    }

    /// Outputs the packet as it is by a member of a bond.
    pub(crate) fn output_to_bond(&mut self, bundle: &Bundle) {
        let Some(view) = self.bond(&bundle.name, Part::Choice) else { return self.note_drop(DropReason::PortDown) };
        match view.choice() {
            Choice::None => self.note_drop(DropReason::PortDown),
            Choice::Member(member) => self.output_port(member, true),
            Choice::Hash
                if let Some(id) = view.lb_output()
                    && self.members_are_interchangeable(bundle) =>
            {
                self.lb_output(bundle, BondId(id));
            }
            // A packet that is truncated at its output is so only before it recirculates.
            Choice::Hash if self.mirroring.snaplen.is_none() => self.recirculate_to_bond(bundle, &view),
            Choice::Source | Choice::Hash => {
                let src = MacAddr::from_u64(self.read_bits(Field::EthSrc, MAC) as u64);
                let vlan = self.read_vid();
                self.output_to_bucket(&bundle.name, view.source_bucket(src, vlan));
            }
        }
    }

    /// Outputs the packet by the member of a bucket, and has its bytes counted there.
    fn output_to_bucket(&mut self, name: &Arc<str>, bucket: u8) {
        let Some(view) = self.bond(name, Part::Buckets) else { return self.note_drop(DropReason::PortDown) };
        let Some(member) = view.member(bucket) else { return self.note_drop(DropReason::PortDown) };
        self.out.effects.push(Effect::BondLoad { loads: Arc::clone(view.loads()), bucket });
        self.output_port(member, true);
    }

    /// Returns true if the translation is the same for each member, so that the datapath may choose the member: all members are
    /// devices that may send, and none of them marks packets for its queues.
    fn members_are_interchangeable(&mut self, bundle: &Bundle) -> bool {
        let bridge = self.pos.bridge;
        self.mirroring.snaplen.is_none()
            && !self.is_l3()
            && bundle.ports.iter().all(|no| {
                let is_plain =
                    |port: &Port| matches!(port.out, PortOut::Device(_)) && !port.config.no_fwd && !port.config.down;
                bridge.ports.get(no).is_some_and(is_plain)
                    && !bridge.queue_marks.contains_key(no)
                    && self.forwards(bridge, *no)
            })
    }

    /// Has the datapath choose the member by its table of the bond. The rest of an output depends on the bundle, which all members
    /// share.
    fn lb_output(&mut self, bundle: &Bundle, id: BondId) {
        let bridge = self.pos.bridge;
        let Some(port) = bundle.ports.first().and_then(|no| bridge.ports.get(no)) else {
            return self.note_drop(DropReason::NoPort);
        };
        if self.is_between_protected_ports(port) {
            self.tracer.note(NodeKind::Warning, || "Flow is between protected ports, skipping output.".into());
            return self.note_drop(DropReason::ProtectedPort);
        }
        self.commit();
        self.sample_egress(DpPort::NONE);
        self.note_bond_output();
        self.emit(DpAction::LbOutput(id));
        self.mirror_egress(port);
    }

    /// Has the datapath compute the packet's hash, and choose the member when the packet returns.
    fn recirculate_to_bond(&mut self, bundle: &Bundle, view: &View) {
        self.commit();
        let frozen = Frozen {
            bridge: self.pos.bridge.id,
            words: self.carried_words(true),
            stack: Vec::new(),
            lists: Vec::new(),
            table: None,
            action_set: Vec::new(),
            in_action_set: false,
            in_group: false,
            packet_out: false,
            hashed: true,
            tracked: self.is_tracked(),
            mirrored: self.mirroring.mirrored.clone(),
            paused: false,
            bond: Some(Arc::clone(&bundle.name)),
        };
        let Some(state) = self.net.frozen.store(frozen) else { return self.fail(TranslationError::Recirculation) };
        self.emit(DpAction::Hash(HashKind::L4, view.hash_basis()));
        self.emit(DpAction::Recirc(state.id));
        self.out.dependencies.push(Dependency::Frozen(state));
    }

    /// Outputs a packet whose hash the datapath has computed for this bond.
    pub(crate) fn output_hashed(&mut self, name: &Arc<str>) {
        let Some(view) = self.bond(name, Part::Choice) else { return self.note_drop(DropReason::PortDown) };
        match view.choice() {
            Choice::None => self.note_drop(DropReason::PortDown),
            Choice::Member(member) => self.output_port(member, true),
            // The bond has got another mode since the packet left; its later packets do not come here.
            Choice::Source | Choice::Hash => {
                let hash = self.read_bits(Field::DpHash, BUCKETS as u128 - 1) as u32;
                self.output_to_bucket(name, bond::bucket_of(hash));
            }
        }
    }
}
