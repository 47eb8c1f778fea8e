//! Actions on outer headers: MPLS labels, network service headers, and encapsulations.
//!
//! A pushed header is emitted with the next commit, when its fields have their values; a popped one is emitted at once. The
//! headers below a popped MPLS label or service header are unknown: the packet has to be recirculated and parsed again
//! ([`crate::freeze`]). Without an Ethernet header a packet has a type of its own (`packet_type`), and cannot be output to a
//! port.

use crate::freeze::{Freeze, Unseen};
use crate::model::Rule;
use crate::trace::NodeKind;
use crate::translate::Xlate;
use crate::verdict::TranslationError;
use dpif::DpAction;
use dpif::action::PushNsh;
use flow::extract::ethertype;
use flow::{Field, Prereq, layout};
use openflow::action::{Encap, EncapHeader, EncapProperty};
use openflow::{ControllerAction, PacketInReason};
use packet::wire::NshRepr;
use std::sync::Arc;

/// Number of labels in a key.
const LABELS_MAX: usize = 3;
/// The bottom-of-stack bit of an entry.
const BOTTOM: u32 = 0x100;
/// The TTL of a label if there is none to copy.
const TTL: u32 = 64;
/// Transparent Ethernet bridging: the Ethernet type of a whole frame.
pub(crate) const TEB: u16 = 0x6558;
/// Namespace of Ethernet types among packet types.
const NAMESPACE: u32 = 1;
/// The next protocols of a network service header (RFC 8300 section 2.2), as packet types.
const NSH_NEXT: [(u8, u32); 5] = [(1, 0x1_0800), (2, 0x1_86dd), (3, 0), (4, 0x1_894f), (5, 0x1_8847)];

/// Headers pushed and not yet emitted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pushed {
    /// Labels with their Ethernet types, the innermost first; `true` for labels in front of the Ethernet header.
    labels: Vec<(u16, bool)>,
    /// A network service header with metadata of type 2.
    nsh: Option<Vec<u8>>,
    /// A service instance tag.
    pbb: Option<Itag>,
    ethernet: bool,
}

/// The part of a service instance tag that keys lack: the priority, at its position in the tag.
type Itag = u32;

impl Pushed {
    fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.nsh.is_none() && self.pbb.is_none() && !self.ethernet
    }

    /// Returns true if nothing but labels behind the Ethernet header is pushed, or nothing at all.
    pub(crate) fn only_labels(&self) -> bool {
        let rest = self.nsh.is_none() && self.pbb.is_none() && !self.ethernet;
        rest && self.labels.iter().all(|(_, in_front)| !in_front)
    }

    /// Returns true if the pushed header includes `field`.
    fn includes(&self, field: Field) -> bool {
        match field {
            Field::MplsLabel | Field::MplsTc | Field::MplsBos | Field::MplsTtl => !self.labels.is_empty(),
            Field::PbbIsid | Field::PbbUca => self.pbb.is_some(),
            Field::EthSrc | Field::EthDst => self.ethernet,
            _ => self.nsh.is_some() && field.info().prereq == Prereq::Nsh,
        }
    }
}

fn is_mpls(eth_type: u16) -> bool {
    matches!(eth_type, ethertype::MPLS | ethertype::MPLS_MCAST)
}

impl Xlate<'_> {
    /// Returns true for an L3 packet, which has no Ethernet header.
    pub(crate) fn is_l3(&self) -> bool {
        self.packet.key.0[layout::PKTTYPE_CTTP] >> 32 != 0
    }

    /// Returns the number of labels on the packet that its key holds; [`LABELS_MAX`] may stand for more.
    fn n_labels(&mut self) -> usize {
        if !is_mpls(self.packet.key.eth_type()) {
            return 0;
        }
        for n in 0..LABELS_MAX {
            self.read_label(n, BOTTOM);
            if self.packet.key.mpls_lse(n) & BOTTOM != 0 {
                return n + 1;
            }
        }
        LABELS_MAX
    }

    fn read_label(&mut self, n: usize, bits: u32) {
        let mut mask = flow::FlowKey::ZERO;
        mask.set_mpls_lse(n, bits);
        self.out.reads.note_mask(&mask);
    }

    /// Reads the labels that are going to move, as afterwards they are no longer at their position in the packet.
    fn read_labels(&mut self, labels: std::ops::Range<usize>) {
        labels.for_each(|i| self.read_label(i, u32::MAX));
    }

    /// Marks labels that were moved as written. VLAN tags at their new position are unknown.
    fn labels_are_written(&mut self) {
        self.packet.key.0[layout::MPLS2] &= !layout::ITAG;
        self.out.reads.write_words(layout::MPLS01..layout::IPV4);
    }

    /// Clears the headers after the Ethernet type, which were absent before or are unknown.
    fn clear_under(&mut self, words: std::ops::Range<usize>) {
        self.packet.key.0[words.clone()].fill(0);
        self.out.reads.write_words(words);
    }

    fn set_eth_type(&mut self, eth_type: u16) {
        self.packet.key.set(Field::EthType, eth_type.into());
        self.out.reads.write_field(Field::EthType);
        self.packet.written = None;
    }

    fn set_packet_type(&mut self, packet_type: u32) {
        self.packet.key.set(Field::PacketType, packet_type.into());
        self.out.reads.write_field(Field::PacketType);
        self.packet.written = None;
    }

    /// Executes the `push_mpls` action.
    pub(crate) fn push_mpls(&mut self, eth_type: u16) {
        if !self.is_l3() {
            self.push_label(eth_type, false);
        }
    }

    fn push_label(&mut self, eth_type: u16, in_front: bool) {
        let n = self.n_labels();
        if n >= LABELS_MAX {
            return self.give_up(TranslationError::Labels);
        }
        if self.packet.pending.pushed.labels.is_empty() {
            self.commit();
        }
        let entry = if n > 0 {
            self.read_labels(0..n);
            self.packet.key.mpls_lse(0) & !BOTTOM
        } else {
            self.first_entry(in_front)
        };
        for i in (1..=n).rev() {
            let below = self.packet.key.mpls_lse(i - 1);
            self.packet.key.set_mpls_lse(i, below);
        }
        self.packet.key.set_mpls_lse(0, entry);
        self.labels_are_written();
        self.set_eth_type(eth_type);
        self.clear_under(layout::IPV4..flow::WORDS);
        self.packet.pending.pushed.labels.push((eth_type, in_front));
    }

    /// Returns the entry of an only label: explicit null of the payload, with traffic class and TTL of an IP payload (OpenFlow
    /// 1.3 section 5.11).
    fn first_entry(&mut self, in_front: bool) -> u32 {
        let is_ip = !in_front && self.has(Prereq::Ip);
        let label = if is_ip && self.packet.key.eth_type() == ethertype::IPV6 { 2 } else { 0 };
        let (mut class, mut ttl) = (0, TTL);
        if is_ip {
            self.out.reads.note_field(Field::IpDscp);
            self.out.reads.note_field(Field::IpTtl);
            class = self.packet.key.get(Field::IpDscp) as u32 & 7;
            ttl = match self.packet.key.get(Field::IpTtl) as u32 {
                0 => TTL,
                ttl => ttl,
            };
        }
        label << 12 | class << 9 | BOTTOM | ttl
    }

    /// Executes the `pop_mpls` action.
    pub(crate) fn pop_mpls(&mut self, eth_type: u16) {
        let n = self.n_labels();
        if n > 0 {
            let whole = self.packet.key.mpls_lse(n - 1) & BOTTOM != 0;
            self.pop_labels(n, whole, eth_type);
            // Labels below those in the key are unknown too, as is a label that only the new Ethernet type claims.
            if !is_mpls(eth_type) || n == 1 || !whole {
                self.packet.unseen = Unseen::Payload;
            }
        }
    }

    /// Pops the outer one of `n` labels, or all of them if the new type is not MPLS, like Open vSwitch.
    fn pop_labels(&mut self, n: usize, whole: bool, eth_type: u16) {
        if is_mpls(eth_type) {
            self.pop_label(n, eth_type);
        } else if whole {
            for left in (2..=n).rev() {
                self.pop_label(left, self.packet.key.eth_type());
            }
            self.pop_label(1, eth_type);
        } else {
            self.give_up(TranslationError::Labels);
        }
    }

    fn pop_label(&mut self, n: usize, eth_type: u16) {
        if is_mpls(eth_type) {
            self.read_labels(1..n);
        }
        let unsent = self.packet.pending.pushed.labels.pop().is_some();
        if !unsent {
            self.commit();
        }
        for i in 0..LABELS_MAX {
            let above = if i + 1 < n { self.packet.key.mpls_lse(i + 1) } else { 0 };
            self.packet.key.set_mpls_lse(i, above);
        }
        self.labels_are_written();
        self.set_eth_type(eth_type);
        self.clear_under(layout::IPV4..flow::WORDS);
        if unsent {
            if let Some((kind, _)) = self.packet.pending.pushed.labels.last_mut().filter(|_| is_mpls(eth_type)) {
                *kind = eth_type;
            }
        } else {
            self.emit(DpAction::PopMpls { ethertype: eth_type });
            self.packet.base.clone_from(&self.packet.key);
        }
    }

    /// Executes the `push_pbb` action: the new tag copies the service instance of a tag below it, and the priority of the
    /// outer VLAN tag (OpenFlow 1.3 section 5.12).
    pub(crate) fn push_pbb(&mut self) {
        if self.is_l3() {
            return;
        }
        self.commit();
        let mut tag = 0;
        if self.has(Prereq::Pbb) {
            self.out.reads.note(layout::MPLS2, layout::ITAG);
            tag = self.packet.key.0[layout::MPLS2] & layout::ITAG;
        }
        let mut priority = 0;
        if self.has_vlan() {
            self.out.reads.note(layout::ETH_SRC, 0xe000);
            priority = self.packet.key.vlan_tci() >> 13;
        }
        // The new tag comes before the VLAN tags and everything after them.
        self.packet.key.set_vlan_tci(0);
        self.tags_are_written();
        self.clear_under(layout::VLAN..flow::WORDS);
        self.packet.key.0[layout::MPLS2] = tag;
        self.set_eth_type(ethertype::PBB);
        // Later writes go to the new header.
        self.packet.base.clone_from(&self.packet.key);
        self.packet.pending.pushed.pbb = Some(u32::from(priority) << 29);
    }

    /// Executes the `pop_pbb` action. The frame below the tag is unknown except that it is an Ethernet frame.
    pub(crate) fn pop_pbb(&mut self) {
        if self.is_l3() || !self.has(Prereq::Pbb) {
            return;
        }
        self.commit();
        self.emit(DpAction::PopPbb);
        self.clear_under(layout::ETH_DST..flow::WORDS);
        self.packet.base.clone_from(&self.packet.key);
        self.packet.written = None;
        self.packet.unseen = Unseen::Frame;
    }

    pub(crate) fn dec_mpls_ttl(&mut self) {
        if self.has(Prereq::Mpls) {
            self.dec_ttl_of(Field::MplsTtl, "MPLS");
        }
    }

    pub(crate) fn dec_nsh_ttl(&mut self) {
        if self.has(Prereq::Nsh) {
            self.dec_ttl_of(Field::NshTtl, "NSH");
        }
    }

    fn dec_ttl_of(&mut self, field: Field, what: &str) {
        self.out.reads.note_field(field);
        let ttl = self.packet.key.get(field);
        if ttl > 1 {
            return self.write(field, ttl - 1, 0xff);
        }
        self.tracer.note(NodeKind::Warning, || format!("{what} decrement TTL exception"));
        self.send_to_controller(&ControllerAction {
            reason: PacketInReason::InvalidTtl,
            ..ControllerAction::default()
        });
        self.note_drop(base::DropReason::TtlExpired);
        self.control.stop_list = true;
    }

    /// Copies the TTL between the outer label and the header below it, which only the datapath sees.
    pub(crate) fn copy_ttl(&mut self, outwards: bool) {
        if self.has(Prereq::Mpls) {
            self.commit();
            self.emit(DpAction::CopyTtl { outwards });
            // One of the two TTLs is unknown now.
            self.packet.unseen = Unseen::Payload;
        }
    }

    /// Executes the `encap` action.
    pub(crate) fn encap(&mut self, encap: &Encap) {
        let packet_type = self.packet.key.get(Field::PacketType) as u32;
        match encap.header {
            EncapHeader::Ethernet if packet_type >> 16 == NAMESPACE => {
                self.frame_with_zeros();
            }
            EncapHeader::Ethernet => self.refuse("encap(ethernet) is not supported for packet type ethernet."),
            EncapHeader::Nsh => self.push_nsh(packet_type, &encap.properties),
            EncapHeader::Mpls | EncapHeader::MplsMulticast => {
                if !self.packet.pending.pushed.is_empty() && self.packet.pending.pushed.labels.is_empty() {
                    self.commit();
                }
                if !self.is_l3() || !is_mpls(self.packet.key.eth_type()) {
                    // Labels below the Ethernet header are not part of the new stack in front of it.
                    self.commit();
                    self.clear_under(layout::ETH_DST..layout::IPV4);
                }
                let kind = encap.header as u32;
                self.push_label(kind as u16, true);
                self.set_packet_type(kind);
            }
        }
    }

    fn push_nsh(&mut self, packet_type: u32, properties: &[EncapProperty]) {
        let next = NSH_NEXT.iter().find(|(np, kind)| *kind == packet_type && *np != 5);
        let Some((np, _)) = next else {
            return self.refuse("NSH encapsulation is not supported for its packet type.");
        };
        self.commit();
        let (mut md_type, mut tlvs) = (1, Vec::new());
        for property in properties {
            match property {
                EncapProperty::MdType(n) => md_type = *n,
                EncapProperty::Tlv { class, ty, value } => {
                    tlvs.extend(class.to_be_bytes());
                    tlvs.extend([*ty, value.len() as u8]);
                    tlvs.extend(value);
                    tlvs.resize(tlvs.len().next_multiple_of(4), 0);
                }
            }
        }
        self.clear_under(layout::ETH_DST..flow::WORDS);
        self.set_packet_type(EncapHeader::Nsh as u32);
        self.set_eth_type(ethertype::NSH);
        for (field, value) in [(Field::NshTtl, 63), (Field::NshMdtype, md_type.into()), (Field::NshSi, 255)] {
            self.packet.key.set(field, value);
        }
        self.packet.key.set(Field::NshNp, (*np).into());
        tlvs.truncate(if md_type == 2 { NshRepr::METADATA_MAX } else { 0 });
        self.packet.pending.pushed.nsh = Some(tlvs);
    }

    /// Gives an L3 packet an Ethernet header whose addresses are zeros.
    pub(crate) fn frame_with_zeros(&mut self) {
        self.commit();
        let eth_type = u64::from(self.packet.key.eth_type());
        self.clear_under(layout::ETH_DST..layout::MPLS01);
        self.packet.key.0[layout::ETH_DST] = eth_type;
        self.set_packet_type(0);
        self.packet.pending.pushed.ethernet = true;
    }

    /// Executes the `decap` action. `to` is the resulting packet type, if the action has one.
    pub(crate) fn decap(&mut self, to: Option<u32>) {
        self.commit();
        if !self.is_l3() {
            if self.has_vlan() {
                return self.refuse_with("cannot decap Ethernet if VLAN is present.", ", ");
            }
            let eth_type = self.packet.key.eth_type();
            self.clear_under(layout::ETH_DST..layout::MPLS01);
            self.set_packet_type(NAMESPACE << 16 | u32::from(eth_type));
            self.set_eth_type(eth_type);
            self.emit(DpAction::PopEth);
            self.packet.base.clone_from(&self.packet.key);
            return;
        }
        match self.packet.key.eth_type() {
            ethertype::NSH => {
                self.out.reads.note_field(Field::NshNp);
                let np = self.packet.key.get(Field::NshNp) as u8;
                let Some((_, kind)) = NSH_NEXT.iter().find(|(next, _)| *next == np) else {
                    return self.refuse_with(&format!("NSH next protocol {np} is not supported"), " as ");
                };
                self.set_packet_type(*kind);
                self.emit(DpAction::PopNsh);
                self.control.freeze = Some(Freeze::Parse);
            }
            eth_type if is_mpls(eth_type) => {
                let n = self.n_labels();
                let whole = self.packet.key.mpls_lse(n - 1) & BOTTOM != 0;
                let kind = match to {
                    Some(kind) => kind,
                    None if n > 1 => self.packet.key.get(Field::PacketType) as u32,
                    None => return self.refuse("nothing says what is under its MPLS label."),
                };
                let eth_type = if kind >> 16 == NAMESPACE { kind as u16 } else { TEB };
                self.pop_labels(n, whole, eth_type);
                self.set_packet_type(kind);
                self.packet.base.clone_from(&self.packet.key);
                if n == 1 || !whole || !is_mpls(eth_type) {
                    self.control.freeze = Some(Freeze::Parse);
                }
            }
            eth_type => self
                .refuse_with(&format!("the decapsulation is not supported for packet type (1,{eth_type:#x})."), " as "),
        }
    }

    fn refuse(&mut self, why: &str) {
        self.refuse_with(why, " as ");
    }

    /// Drops the packet because its type does not allow the action.
    fn refuse_with(&mut self, why: &str, how: &str) {
        self.tracer.note(NodeKind::Action, || format!("Dropping packet{how}{why}"));
        self.give_up(TranslationError::PacketType);
    }

    /// Ends the translation with an error whose reason the trace has already.
    fn give_up(&mut self, error: TranslationError) {
        self.control.error = Some(error);
        self.control.exit = true;
    }

    /// Emits the pushed headers, and marks the fields in them as emitted.
    pub(crate) fn commit_pushed(&mut self) {
        if self.packet.pending.pushed.is_empty() {
            return;
        }
        let pushed = std::mem::take(&mut self.packet.pending.pushed);
        self.packet.pending.fields.retain(|(field, _)| !pushed.includes(*field));
        let n = pushed.labels.len();
        for (i, (ethertype, in_front)) in pushed.labels.into_iter().enumerate() {
            let lse = self.packet.key.mpls_lse(n - 1 - i);
            self.emit(if in_front {
                DpAction::AddMpls { ethertype, lse }
            } else {
                DpAction::PushMpls { ethertype, lse }
            });
        }
        if let Some(tlvs) = pushed.nsh {
            let get = |field| self.packet.key.get(field);
            let header = NshRepr {
                flags: get(Field::NshFlags) as u8,
                ttl: get(Field::NshTtl) as u8,
                np: get(Field::NshNp) as u8,
                path: (get(Field::NshSpi) << 8 | get(Field::NshSi)) as u32,
                mdtype: get(Field::NshMdtype) as u8,
                context: [Field::NshC1, Field::NshC2, Field::NshC3, Field::NshC4].map(|f| get(f) as u32),
            };
            self.emit(DpAction::PushNsh(Arc::new(PushNsh { header, tlvs })));
        }
        if let Some(priority) = pushed.pbb {
            let tci = priority | (self.packet.key.0[layout::MPLS2] & layout::ITAG) as u32;
            self.emit(DpAction::PushPbb { tci });
        }
        if pushed.ethernet {
            let mac = |field| base::MacAddr::from_u64(self.packet.key.get(field) as u64);
            let (dst, src) = (mac(Field::EthDst), mac(Field::EthSrc));
            self.emit(DpAction::PushEth { dst, src });
        }
        // Other pending changes stay pending.
        let mut base = self.packet.key.clone();
        for (field, mask) in &self.packet.pending.fields {
            let old = self.packet.base.get(*field) & mask;
            base.set(*field, base.get(*field) & !mask | old);
        }
        if self.packet.pending.vlan_stack {
            for n in 0..2 {
                let (tpid, tci) = self.packet.base.vlan(n);
                base.set_vlan(n, tpid, tci);
            }
        }
        self.packet.base = base;
    }

    /// Looks up an L3 packet, which has no Ethernet header. Rules that match on such a header match Ethernet packets only
    /// (ovs-fields(7), `packet_type`).
    pub(crate) fn find_l3(&mut self, rules: &classifier::Classifier<Rule>) -> Option<Arc<Rule>> {
        let of_ethernet = |rule: &Rule| {
            let mut words = rule.minimatch.mask().words();
            let typed = words.any(|(word, bits)| word == layout::PKTTYPE_CTTP && bits >> 32 != 0);
            !typed && rule.minimatch.mask().words().any(|(word, _)| word >= layout::ETH_DST)
        };
        let version = self.view().version;
        let found = rules.lookup(&self.packet.key, version, &mut self.out.reads);
        if !found.as_deref().is_some_and(of_ethernet) {
            return found;
        }
        // A rule that does not apply hides others, so that all rules are examined: the cost grows with their number.
        let mut all = rules.rules(version);
        all.retain(|rule| !of_ethernet(rule));
        all.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
        all.into_iter().find(|rule| {
            let wanted = rule.minimatch.expand();
            self.out.reads.note_mask(wanted.mask());
            wanted.matches(&self.packet.key)
        })
    }
}
