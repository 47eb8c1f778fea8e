//! Turns changes of the key into datapath actions, as late as possible: when the packet is output.
//!
//! A written header field is pending until the next commit, which emits one `Set` a field with all bits written since.
//! A field that has its old value again, and whose bits the translation knows (because it read or wrote them before), is left
//! out, and so is a field of an IP or ARP header whose protocol is 0; a field that was written without being read is set
//! without being read, so that the megaflow stays wide.
//!
//! VLAN tags are handled as a stack: pushing, popping and writing mark the stack as changed, and the commit emits the pops and
//! pushes that lead from the datapath's stack to the wanted one. A tag of which some bits change is thus replaced as a whole.

use crate::ct::is_translated;
use crate::encap::{Pushed, TEB};
use crate::translate::Xlate;
use dpif::{Collectors, DpAction};
use flow::{Field, FlowKey, Loc, Prereq, layout};
use smallvec::SmallVec;

/// The outer tag's protocol id in word [`layout::VLAN`].
const OUTER_TPID: u64 = 0xffff << 48;
/// The inner tag in that word.
const INNER_TAG: u64 = 0xffff_ffff << 16;

/// Header fields written and not yet emitted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pending {
    pub(crate) fields: Vec<(Field, u128)>,
    pub(crate) vlan_stack: bool,
    pub(crate) pushed: Pushed,
    /// Some bits of the datapath's outer tag are unknown, so that no decision may depend on it.
    outer_unread: bool,
}

impl Pending {
    fn add(&mut self, field: Field, mask: u128) {
        match self.fields.iter_mut().find(|(f, _)| *f == field) {
            Some((_, m)) => *m |= mask,
            None => self.fields.push((field, mask)),
        }
    }
}

/// Returns true if a write to `field` needs a datapath action.
fn is_in_packet(field: Field) -> bool {
    match field.info().loc {
        Loc::Bits { word, .. } => {
            usize::from(word) >= layout::ETH_DST || matches!(field, Field::PktMark | Field::SkbPriority)
        }
        Loc::Wide(word) => word >= layout::ETH_DST,
        Loc::NwTos | Loc::ArpOp => true,
        Loc::InPort16 | Loc::TunMetadata(_) => false,
    }
}

fn is_in_l3_header(field: Field) -> bool {
    matches!(field.info().prereq, Prereq::Ip | Prereq::Ipv4 | Prereq::Ipv6 | Prereq::Arp)
}

/// Fields that a commit emits.
type Changed = SmallVec<[Field; 8]>;

/// The parts of a header that Open vSwitch's actions can only set together.
fn parts_set_together(field: Field) -> &'static [Field] {
    match field {
        Field::MplsLabel | Field::MplsTc | Field::MplsBos | Field::MplsTtl => {
            &[Field::MplsLabel, Field::MplsTc, Field::MplsBos, Field::MplsTtl]
        }
        Field::Icmpv4Type | Field::Icmpv4Code => &[Field::Icmpv4Type, Field::Icmpv4Code],
        Field::Icmpv6Type | Field::Icmpv6Code => &[Field::Icmpv6Type, Field::Icmpv6Code],
        _ => &[],
    }
}

/// The order in which a commit emits changes, that of Open vSwitch. It makes no difference to the packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Ethernet,
    Network,
    Control,
    Transport,
    Mpls,
    Tags,
    Priority,
    Mark,
}

fn rank(field: Field) -> Rank {
    match field.info().prereq {
        _ if field == Field::SkbPriority => Rank::Priority,
        _ if field == Field::PktMark => Rank::Mark,
        Prereq::Arp | Prereq::Ip | Prereq::Ipv4 | Prereq::Ipv6 | Prereq::Nsh => Rank::Network,
        Prereq::Icmpv4 | Prereq::Icmpv6 | Prereq::Nd | Prereq::NdSolicit | Prereq::NdAdvert => Rank::Control,
        Prereq::Tcp | Prereq::Udp | Prereq::Sctp => Rank::Transport,
        Prereq::Mpls => Rank::Mpls,
        Prereq::None | Prereq::Ethernet | Prereq::VlanVid | Prereq::Pbb | Prereq::Ct => Rank::Ethernet,
    }
}

fn is_vlan(field: Field) -> bool {
    matches!(field, Field::VlanTci | Field::DlVlan | Field::VlanVid | Field::DlVlanPcp | Field::VlanPcp)
}

/// Bits of the key that `mask` over `field` stands for.
fn key_mask(field: Field, mask: u128) -> FlowKey {
    let mut m = FlowKey::ZERO;
    m.add_mask(field, mask);
    m
}

impl Xlate<'_> {
    /// Sets the bits `mask` of `field`. The caller has checked the prerequisites.
    pub(crate) fn write(&mut self, field: Field, value: u128, mask: u128) {
        if is_vlan(field) {
            return self.write_vlan(field, value, mask);
        }
        let (field, value, mask) =
            if field == Field::IpDscpShifted { (Field::IpDscp, value >> 2, mask >> 2) } else { (field, value, mask) };
        let old = self.packet.key.get(field);
        self.packet.key.set(field, old & !mask | value & mask);
        self.out.reads.write_bits(field, mask);
        self.packet.written = None;
        if is_in_packet(field) {
            if is_in_l3_header(field) {
                self.out.reads.note_field(Field::IpProto);
            }
            self.packet.pending.add(field, mask);
            for part in parts_set_together(field) {
                // The datapath's action sets the whole of it.
                self.out.reads.note_field(*part);
                self.packet.pending.add(*part, part.info().full_mask());
            }
        }
    }

    /// Writes a field of the outer tag's control information: setting the presence bit pushes a tag, clearing it pops.
    fn write_vlan(&mut self, field: Field, value: u128, mask: u128) {
        self.out.reads.note(layout::ETH_SRC, 0x1000);
        self.packet.written = None;
        let before = self.packet.key.vlan_tci();
        let mut after = self.packet.key.clone();
        if before & 0x1000 == 0 {
            // Without a tag, its other bits were not read.
            after.set_vlan_tci(0);
        }
        after.set(field, after.get(field) & !mask | value & mask);
        // These two fields have no bit for the tag's presence: writing them implies a tag.
        let implied = if matches!(field, Field::DlVlan | Field::DlVlanPcp) { 0x1000 } else { 0 };
        let tci = after.vlan_tci() | implied;
        match (before & 0x1000 != 0, tci & 0x1000 != 0) {
            (true, true) => {
                self.begin_vlan_stack();
                self.packet.key.set_vlan_tci(tci);
                self.out.reads.write_bits(field, mask);
                // The tag is replaced by another one, which has the remaining bits.
                self.out.reads.note(layout::ETH_SRC, 0xffff);
                self.out.reads.note(layout::VLAN, OUTER_TPID);
                self.packet.pending.vlan_stack = true;
            }
            (false, true) => {
                self.push_vlan(0x8100);
                self.packet.key.set_vlan_tci(tci);
            }
            (true, false) => self.pop_vlan(),
            (false, false) => {}
        }
    }

    /// Returns true if the packet has a VLAN tag.
    pub(crate) fn has_vlan(&mut self) -> bool {
        self.out.reads.note(layout::ETH_SRC, 0x1000);
        self.packet.key.vlan_tci() & 0x1000 != 0
    }

    /// Pushes a tag with id and priority 0.
    pub(crate) fn push_vlan(&mut self, tpid: u16) {
        let tagged = self.has_vlan();
        if tagged {
            // The tag is known from here on, and stays at its position in the packet.
            self.out.reads.note(layout::ETH_SRC, 0xffff);
            self.out.reads.note(layout::VLAN, OUTER_TPID);
            self.read_inner_tag();
        }
        self.begin_vlan_stack();
        // A key has two tags. The packet keeps a third one, which the key does not show. The push cannot wait for a commit,
        // which compares only the tags in the key.
        let full = tagged && self.packet.key.vlan(1).1 & 0x1000 != 0;
        if full {
            self.commit();
        }
        // Without a tag, its bits in the key were not read.
        let (outer_tpid, outer) = if tagged { self.packet.key.vlan(0) } else { (0, 0) };
        self.packet.key.set_vlan(1, outer_tpid, outer);
        self.packet.key.set_vlan(0, tpid, 0x1000);
        self.tags_are_written();
        if full {
            self.packet.base.set_vlan(1, outer_tpid, outer);
            self.packet.base.set_vlan(0, tpid, 0x1000);
            self.emit(DpAction::PushVlan { tpid, tci: 0x1000 });
        } else {
            self.packet.pending.vlan_stack = true;
        }
    }

    /// Removes the outer tag, if there is one.
    pub(crate) fn pop_vlan(&mut self) {
        if self.has_vlan() {
            self.begin_vlan_stack();
            self.read_inner_tag();
            let tag = self.packet.key.vlan(1);
            let (inner_tpid, inner) = if tag.1 & 0x1000 == 0 { (0, 0) } else { tag };
            self.packet.key.set_vlan(0, inner_tpid, inner);
            self.packet.key.set_vlan(1, 0, 0);
            self.tags_are_written();
            self.packet.pending.vlan_stack = true;
        }
    }

    /// Reads and returns both tags, in the form that [`Self::set_tags`] takes.
    pub(crate) fn read_tags(&mut self) -> [(u16, u16); 2] {
        self.out.reads.note(layout::ETH_SRC, 0xffff);
        self.out.reads.note(layout::VLAN, OUTER_TPID | INNER_TAG);
        [self.packet.key.vlan(0), self.packet.key.vlan(1)]
    }

    /// Gives the packet these tags.
    pub(crate) fn set_tags(&mut self, tags: [(u16, u16); 2]) {
        if (0..2).any(|n| tags[n] != self.packet.key.vlan(n)) {
            self.begin_vlan_stack();
            for (n, (tpid, tci)) in tags.into_iter().enumerate() {
                self.packet.key.set_vlan(n, tpid, tci);
            }
            self.tags_are_written();
            self.packet.pending.vlan_stack = true;
        }
    }

    /// Prepares for a change of tags: records whether all of the outer tag is known, which the next commit compares.
    fn begin_vlan_stack(&mut self) {
        if !self.packet.pending.vlan_stack {
            let (read, written) = (self.out.reads.mask(), self.out.reads.written());
            let unknown = |word: usize, bits: u64| bits & !read.0[word] & !written.0[word] != 0;
            self.packet.pending.outer_unread = unknown(layout::ETH_SRC, 0xffff) || unknown(layout::VLAN, OUTER_TPID);
        }
    }

    /// Reads whether there is an inner tag, and the whole of one that is there.
    pub(crate) fn read_inner_tag(&mut self) {
        self.out.reads.note(layout::VLAN, 0x1000 << 16);
        if self.packet.key.vlan(1).1 & 0x1000 != 0 {
            self.out.reads.note(layout::VLAN, INNER_TAG);
        }
    }

    /// Marks tags that were moved as written, as the packet has them elsewhere.
    pub(crate) fn tags_are_written(&mut self) {
        self.packet.written = None;
        for (word, bits) in [(layout::ETH_SRC, 0xffff), (layout::VLAN, OUTER_TPID | INNER_TAG)] {
            let mut mask = FlowKey::ZERO;
            mask.0[word] = bits;
            self.out.reads.write_mask(&mask);
        }
    }

    /// Emits the actions that give the datapath's packet the headers of the key.
    pub(crate) fn commit(&mut self) {
        self.commit_addresses();
        self.commit_pushed();
        let mut pending = std::mem::take(&mut self.packet.pending);
        let mut changed = self.changed(&pending.fields);
        if changed.iter().any(|field| dpif::SETTABLE_IN_NSH.contains(field)) {
            self.complete_nsh(&mut pending, &mut changed);
        }
        pending.fields.sort_by_key(|(field, _)| rank(*field));
        let mut fields = pending.fields.into_iter().peekable();
        while let Some((field, mask)) = fields.next_if(|(field, _)| rank(*field) < Rank::Tags) {
            self.commit_field(field, mask, &changed);
        }
        if pending.vlan_stack {
            self.commit_vlans(pending.outer_unread);
        }
        fields.for_each(|(field, mask)| self.commit_field(field, mask, &changed));
    }

    /// Returns the fields of which the datapath's packet may have other bits than the key.
    fn changed(&self, fields: &[(Field, u128)]) -> Changed {
        let differs = |(field, mask): &&(Field, u128)| {
            let (old, new) = (self.packet.base.get(*field) & mask, self.packet.key.get(*field) & mask);
            let bits = key_mask(*field, *mask);
            let known = bits.0.iter().zip(&self.out.reads.mask().0).all(|(b, r)| b & !r == 0);
            !known || old != new || self.packet.translated && is_translated(*field)
        };
        fields.iter().filter(differs).map(|(field, _)| *field).collect()
    }

    /// Adds the fields of the network service header that are known to the changed ones: as in Open vSwitch, a set of this
    /// header lists all fields that were compared or written. (A header that was pushed before is known as a whole, and only
    /// its changes are listed.)
    #[cold]
    fn complete_nsh(&self, pending: &mut Pending, changed: &mut Changed) {
        let (read, written) = (self.out.reads.mask(), self.out.reads.written());
        if written.get(Field::NshMdtype) != 0 {
            return;
        }
        for field in dpif::SETTABLE_IN_NSH {
            let known = read.get(field) | written.get(field);
            if known != 0 {
                pending.add(field, known);
                changed.push(field);
            }
        }
    }

    /// Emits changes of Ethernet addresses in front of pushed and popped labels, which leave these addresses alone: the order
    /// of Open vSwitch.
    fn commit_addresses(&mut self) {
        let is_address = |field: &Field| matches!(field, Field::EthSrc | Field::EthDst);
        if !self.packet.pending.pushed.only_labels() || self.is_l3() {
            return;
        }
        let addresses: SmallVec<[_; 2]> =
            self.packet.pending.fields.extract_if(.., |(field, _)| is_address(field)).collect();
        if addresses.is_empty() {
            return;
        }
        let is_label = |action: &&DpAction| matches!(action, DpAction::PopMpls { ethertype } if *ethertype != TEB);
        let popped = self.out.actions.iter().rev().take_while(is_label).count();
        let behind = self.out.actions.split_off(self.out.actions.len() - popped);
        let changed = self.changed(&addresses);
        addresses.into_iter().for_each(|(field, mask)| self.commit_field(field, mask, &changed));
        self.out.actions.extend(behind);
    }

    /// Emits a field if it, or one that is set together with it, is among the `changed` ones.
    fn commit_field(&mut self, field: Field, mask: u128, changed: &[Field]) {
        let new = self.packet.key.get(field) & mask;
        let differs = changed.contains(&field) || parts_set_together(field).iter().any(|part| changed.contains(part));
        if differs && !self.has_settable_header(field) {
            return;
        }
        self.packet.base.set(field, self.packet.base.get(field) & !mask | new);
        if differs {
            self.emit(DpAction::Set { field, value: new, mask });
        }
    }

    /// Returns false for fields of IP and ARP headers whose protocol or operation is 0: as in Open vSwitch, the header may not
    /// be there (CVE-2023-1668). The bits that decide this were read when the field was written.
    fn has_settable_header(&self, field: Field) -> bool {
        // The operation of ARP is in the same bits of the key.
        !is_in_l3_header(field) || self.packet.key.ip_proto() != 0
    }

    /// Emits the pops and pushes for the tags. With `outer_unread`, no decision depends on the outer tag of the packet.
    fn commit_vlans(&mut self, outer_unread: bool) {
        // An inner tag implies an outer one.
        let tags = |key: &FlowKey| -> Vec<(u16, u16)> {
            (0..2).map(|n| key.vlan(n)).take_while(|(_, tci)| tci & 0x1000 != 0).collect()
        };
        let (have, want) = (tags(&self.packet.base), tags(&self.packet.key));
        // Equal tags stay, counted from the inside. An unknown tag equals none.
        let known = have.len() - usize::from(outer_unread && !have.is_empty());
        let same = have.iter().rev().take(known).zip(want.iter().rev()).take_while(|(a, b)| a == b).count();
        let (n_have, n_want) = (have.len() - same, want.len() - same);
        for _ in 0..n_have {
            self.emit(DpAction::PopVlan);
        }
        for (tpid, tci) in want[..n_want].iter().rev() {
            self.emit(DpAction::PushVlan { tpid: *tpid, tci: *tci });
        }
        for n in 0..2 {
            let (tpid, tci) = self.packet.key.vlan(n);
            self.packet.base.set_vlan(n, tpid, tci);
        }
    }

    /// Appends a datapath action.
    pub(crate) fn emit(&mut self, action: DpAction) {
        self.usage.action_bytes += size_of_action(&action);
        self.out.actions.push(action);
    }
}

/// The approximate size of an action in Open vSwitch's netlink messages, in bytes, which limits the number of actions.
pub(crate) fn size_of_action(action: &DpAction) -> usize {
    match action {
        DpAction::Output(_)
        | DpAction::LbOutput(_)
        | DpAction::Trunc(_)
        | DpAction::PushVlan { .. }
        | DpAction::PopMpls { .. }
        | DpAction::Drop(_) => 8,
        DpAction::Meter(_) | DpAction::Recirc(_) | DpAction::CopyTtl { .. } => 8,
        DpAction::Hash(..) => 12,
        DpAction::PushMpls { .. } | DpAction::AddMpls { .. } => 12,
        DpAction::PushPbb { .. } => 8,
        DpAction::PushEth { .. } => 16,
        DpAction::PushNsh(what) => 32 + what.tlvs.len(),
        DpAction::PopVlan | DpAction::PopPbb | DpAction::PopEth | DpAction::PopNsh | DpAction::CtClear => 4,
        DpAction::TunnelPush(_) => 552,
        DpAction::TunnelPop(_) => 8,
        DpAction::Defragment(what) => 8 + 8 * what.tunnels.len(),
        DpAction::Ct(_) => 96,
        DpAction::Set { field, .. } => match field.info().loc {
            Loc::Bits { word, .. } if usize::from(word) < layout::IPV4 => 32,
            Loc::Wide(_) => 88,
            _ => 32,
        },
        DpAction::Controller(what) => 64 + what.userdata.len(),
        DpAction::Observe(what) if matches!(what.collectors, Collectors::Sflow(_)) => 44,
        DpAction::Observe(what) => 40 + if what.tunnel.is_some_and(|tunnel| tunnel.with_headers) { 8 } else { 0 },
        // Group and cookie.
        DpAction::Psample(what) => 12 + 4 + what.cookie.bytes().len(),
        DpAction::Punt(_) | DpAction::SlowPath => 24,
        DpAction::Held => 0,
        // The nested actions were counted when they were emitted.
        DpAction::Clone(_) => 4,
        DpAction::CheckPktLen { .. } => 24,
        DpAction::Sample { .. } => 16,
    }
}
