//! Connection tracking: `ct`, `nat` in it, `ct_clear`, and look-ups by a connection's original direction (ovs-actions(7)).
//!
//! The tracker belongs to the datapath, and `ct` becomes one of its actions. With `table=N`, a copy of the packet is
//! recirculated with its connection's fields in the key, and resumes in table N ([`crate::freeze`]). For the actions after
//! `ct` in the list, the fields of the connection are zero.

use crate::freeze::Frozen;
use crate::trace::NodeKind;
use crate::translate::Xlate;
use crate::verdict::{Dependency, Fork, TranslationError};
use base::PortNo;
use conntrack::key::number_of;
use dpif::{Commit, DpAction, Helper, NatKind};
use flow::{Field, FlowKey, FlowMask, Prereq, Reads, Step, layout};
use openflow::{ALG_FTP, ALG_TFTP, Action, Ct, CtZone, Nat, NatAddresses};
use std::sync::Arc;

/// `ct_state=+trk`.
const TRACKED: u128 = 0x20;

/// Returns the bits of a word of the key that hold fields of the packet's connection.
pub(crate) fn connection_bits(word: usize) -> u64 {
    match word {
        layout::CONJ_CTMARK | layout::PKTTYPE_CTTP => u32::MAX.into(),
        layout::CT | layout::CT_NW => u64::MAX,
        layout::CT_LABEL..layout::PKTTYPE_CTTP | layout::CT_IPV6_SRC..layout::ETH_DST => u64::MAX,
        _ => 0,
    }
}

/// The words with such bits.
const CONNECTION: std::ops::Range<usize> = layout::CONJ_CTMARK..layout::ETH_DST;

impl Xlate<'_> {
    /// Returns true if the tracker has seen the packet. It has not seen a packet from a port, but a trace may begin with a packet
    /// that it has seen.
    pub(crate) fn is_tracked(&mut self) -> bool {
        self.packet.tracked.unwrap_or_else(|| {
            self.packet.key.get(Field::CtState) & TRACKED != 0 && self.read_bits(Field::CtState, TRACKED) != 0
        })
    }

    /// Executes the `ct` action.
    pub(crate) fn ct(&mut self, ct: &Ct) {
        let zone = match ct.zone {
            CtZone::Immediate(zone) => zone,
            CtZone::Field(part) => self.read_subfield(part) as u16,
        };
        self.commit();
        self.control.nat = None;
        if ct.exec.is_empty() {
            self.tracer.note(NodeKind::Action, || "drop".into());
        } else {
            self.do_actions(&ct.exec);
        }
        let nat = self.control.nat.take();
        if self.control.error.is_some() {
            return;
        }
        let commit = if ct.force { Commit::Force } else { Commit::Plain };
        let mark = self.connection_field(Field::CtMark, &ct.exec).map(|(value, mask)| (value as u32, mask as u32));
        self.emit(DpAction::Ct(Arc::new(dpif::Ct {
            commit: ct.commit.then_some(commit),
            zone,
            mark,
            label: self.connection_field(Field::CtLabel, &ct.exec),
            helper: match ct.alg {
                ALG_FTP => Some(Helper::Ftp),
                ALG_TFTP => Some(Helper::Tftp),
                _ => None,
            },
            timeout: ct.commit.then(|| self.net.timeout_policies.get(&zone)).flatten().cloned(),
            nat: nat.as_deref().map(translation),
        })));
        if let Some(table) = ct.table {
            self.recirculate_to(table, zone, nat.as_deref());
        }
        // The translated addresses are unknown here.
        self.packet.translated |= nat.is_some();
        self.forget_connection();
        self.tracer.note(NodeKind::Detail, || {
            "Sets the packet to an untracked state, and clears all the conntrack fields.".into()
        });
    }

    /// Returns the bits of a field that `exec` has written, with their values.
    fn connection_field(&self, field: Field, exec: &[Action]) -> Option<(u128, u128)> {
        let mask = exec.iter().fold(0, |mask, action| match action {
            Action::SetField { field: f, mask: bits, .. } if *f == field => mask | bits & field.info().full_mask(),
            Action::RegLoad { dst, .. } | Action::RegMove { dst, .. } | Action::CopyField { dst, .. }
                if dst.field == field =>
            {
                mask | dst.mask()
            }
            _ => mask,
        });
        (mask != 0).then(|| (self.packet.key.get(field) & mask, mask))
    }

    /// Recirculates a copy of the packet, with the fields of its connection, to `table`.
    fn recirculate_to(&mut self, table: u8, zone: u16, nat: Option<&Nat>) {
        let frozen = Frozen {
            bridge: self.pos.bridge.id,
            words: self.carried_words(false),
            stack: self.pos.stack.clone(),
            lists: Vec::new(),
            table: Some(table),
            action_set: self.pos.action_set.clone(),
            in_action_set: false,
            in_group: false,
            packet_out: false,
            hashed: self.packet.hashed,
            tracked: true,
            mirrored: self.mirroring.mirrored.clone(),
            paused: false,
            bond: None,
        };
        let Some(state) = self.net.frozen.store(frozen) else {
            return self.fail(TranslationError::Recirculation);
        };
        self.emit(DpAction::Recirc(state.id));
        self.tracer.fork(|| {
            let mut key = self.packet.key.clone();
            key.set(Field::RecircId, state.id.into());
            key.set(Field::CtZone, zone.into());
            // The packet does not carry this field, which follows from the action set.
            key.set(Field::ActsetOutput, 0);
            Fork { key, nat: nat.cloned() }
        });
        self.tracer.note(NodeKind::Detail, || {
            format!(
                "A clone of the packet is forked to recirculate. The forked pipeline will be resumed at table {table}."
            )
        });
        self.out.dependencies.push(Dependency::Frozen(state));
    }

    /// Executes the `ct_clear` action.
    pub(crate) fn ct_clear(&mut self) {
        if self.is_tracked() {
            self.forget_connection();
            if self.net.ct_clear {
                self.emit(DpAction::CtClear);
            }
        }
    }

    /// Clears the fields of the connection.
    pub(crate) fn forget_connection(&mut self) {
        let mut mask = FlowKey::ZERO;
        for word in CONNECTION {
            let bits = connection_bits(word);
            self.packet.key.0[word] &= !bits;
            self.packet.base.0[word] &= !bits;
            mask.0[word] = bits;
        }
        self.out.reads.write_mask(&mask);
        self.packet.written = None;
        self.packet.tracked = Some(false);
    }

    /// Clears them when the packet crosses to another bridge. This does not depend on their values, which the flow may not
    /// match: another packet of the flow may have others, and must not keep them when it is recirculated from there.
    pub(crate) fn clear_connection(&mut self) {
        let has_connection = self.packet.tracked.unwrap_or_else(|| {
            // A packet from a port has none; a trace may begin with one.
            CONNECTION.into_iter().any(|word| self.packet.key.0[word] & connection_bits(word) != 0)
        });
        if has_connection {
            self.forget_connection();
        }
        self.packet.tracked = Some(false);
    }

    /// Reads all fields of the packet's connection, to report them.
    pub(crate) fn read_connection(&mut self) {
        if self.is_tracked() {
            for word in CONNECTION {
                self.out.reads.note(word, connection_bits(word));
            }
        }
    }

    /// Executes `resubmit` with `ct`: looks the packet up with addresses, protocol and ports of the original direction of its
    /// connection in place of its own.
    pub(crate) fn resubmit_by_connection(&mut self, table: u8, in_port: Option<PortNo>) {
        if self.control.error.is_none() && (!self.has(Prereq::Ip) || self.read_bits(Field::CtNwProto, 0xff) == 0) {
            return self.tracer.note(NodeKind::Error, || "resubmit(ct) with non-tracked or non-IP packet!".into());
        }
        self.control.by_connection = true;
        self.resubmit(table, in_port, false);
        self.control.by_connection = false;
    }

    /// Runs `look` with the addresses, protocol and ports of the connection's original direction in place of the packet's own.
    pub(crate) fn with_original_direction<R>(&mut self, look: impl FnOnce(&mut Self) -> R) -> R {
        let ipv4 = self.packet.key.eth_type() == flow::extract::ethertype::IPV4;
        exchange(&mut self.packet.key, ipv4);
        let mut reads = Reads::new();
        let mut written = self.out.reads.written().clone();
        exchange(&mut written, ipv4);
        reads.write_mask(&written);
        let outer = std::mem::replace(&mut self.out.reads, reads);
        let list = self.packet.written.take();
        let found = look(self);
        self.packet.written = list;
        exchange(&mut self.packet.key, ipv4);
        let mut reads = std::mem::replace(&mut self.out.reads, outer);
        for step in reads.take_order() {
            self.note_exchanged(step, ipv4);
        }
        found
    }

    /// Records the bits that were read in exchanged fields.
    fn note_exchanged(&mut self, step: Step, ipv4: bool) {
        let (word, bits) = (step.word(), step.bits());
        let moved = |bits: u64| {
            let mut mask = FlowKey::ZERO;
            mask.0[word] = bits;
            exchange(&mut mask, ipv4);
            mask
        };
        if let Step::Prefix { shift, width, len, .. } = step {
            // Such a field is exchanged as a whole, or not at all.
            let whole = moved(u64::MAX >> (64 - u32::from(width)) << shift);
            if let Some(to) = whole.0.iter().position(|bits| bits.count_ones() == u32::from(width)) {
                let shift = whole.0[to].trailing_zeros() as u8;
                return self.out.reads.note_prefix(to, shift, width, len);
            }
        }
        self.out.reads.note_mask(&moved(bits));
    }
}

/// Exchanges addresses, protocol and ports of a packet with those of its connection's original direction; the same works for
/// a mask.
pub(crate) fn exchange(key: &mut FlowMask, ipv4: bool) {
    let mut swap = |a: Field, b: Field| {
        let (of_a, of_b) = (key.get(a), key.get(b));
        key.set(a, of_b);
        key.set(b, of_a);
    };
    swap(Field::IpProto, Field::CtNwProto);
    // (These fields have the same place for all transport protocols.)
    swap(Field::TcpSrc, Field::CtTpSrc);
    swap(Field::TcpDst, Field::CtTpDst);
    if ipv4 {
        swap(Field::Ipv4Src, Field::CtNwSrc);
        swap(Field::Ipv4Dst, Field::CtNwDst);
    } else {
        swap(Field::Ipv6Src, Field::CtIpv6Src);
        swap(Field::Ipv6Dst, Field::CtIpv6Dst);
    }
}

/// Returns true if address translation may write the field.
pub(crate) fn is_translated(field: Field) -> bool {
    matches!(
        field.info().prereq,
        Prereq::Ipv4 | Prereq::Ipv6 | Prereq::Tcp | Prereq::Udp | Prereq::Sctp | Prereq::Icmpv4 | Prereq::Icmpv6
    )
}

/// Converts `nat` to the datapath's form.
fn translation(nat: &Nat) -> dpif::Nat {
    dpif::Nat {
        kind: nat.kind.map(|kind| match kind {
            openflow::NatKind::Src => NatKind::Src,
            openflow::NatKind::Dst => NatKind::Dst,
        }),
        addresses: match nat.addresses {
            NatAddresses::None => None,
            NatAddresses::Ipv4(min, max) => {
                Some((number_of(min.into()), number_of(max.unwrap_or(min).max(min).into()), false))
            }
            NatAddresses::Ipv6(min, max) => {
                Some((number_of(min.into()), number_of(max.unwrap_or(min).max(min).into()), true))
            }
        },
        ports: nat.ports.map(|(min, max)| (min, max.unwrap_or(min).max(min))),
        persistent: nat.persistent,
        hash: nat.hash,
        random: nat.random,
    }
}
