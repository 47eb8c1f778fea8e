//! Writes actions as bytes for every version: an action that a version lacks becomes Nicira's extension or an equivalent
//! sequence, as ovs-actions(7) says under "Inter-Version Compatibility".
//!
//! Some translations depend on the flow's match: whether a tag must be pushed before its VLAN id is set, and which protocol's
//! port is set.

use super::{Action, ControllerAction, PacketInReason, Subfield, ct, encap, nat, sample, select};
use crate::nxm::{self, Dialect, Header};
use crate::property;
use crate::version::Version;
use crate::wire::Writer;
use base::PortNo;
use flow::extract::ethertype::PBB;
use flow::{Field, Match, TunOption, field};

/// Appends a list of actions without the instructions in it, apart from those that OpenFlow 1.0 has as extensions.
pub fn encode_actions(out: &mut Writer, actions: &[Action], version: Version, matching: &Match) {
    Encoder::new(version, matching).list(out, actions);
}

/// The state of the packet at the current action of the list.
pub(super) struct Encoder {
    version: Version,
    tagged: bool,
    ip_proto: u8,
}

impl Encoder {
    pub(super) fn new(version: Version, matching: &Match) -> Self {
        let key = matching.key();
        Self { version, tagged: key.vlan_tci() & 0x1000 != 0, ip_proto: key.ip_proto() }
    }

    pub(super) fn list(&mut self, out: &mut Writer, actions: &[Action]) {
        for action in actions {
            self.action(out, action);
            match action {
                Action::PushVlan(_) => self.tagged = true,
                Action::SetVlanVid { push_if_needed: true, .. } => self.tagged = true,
                Action::SetVlanPcp { push_if_needed: true, .. } => self.tagged = true,
                Action::PopVlan => self.tagged = false,
                Action::SetField { field: Field::VlanTci, value, .. } => self.tagged = value & 0x1000 != 0,
                _ => {}
            }
        }
    }

    fn of10(&self) -> bool {
        self.version == Version::V10
    }

    fn action(&mut self, out: &mut Writer, action: &Action) {
        match action {
            Action::Output { port, max_len } => self.output(out, *port, *max_len),
            Action::OutputReg { src, max_len } => output_reg(out, *src, *max_len),
            Action::OutputTrunc { port, max_len } => nicira(out, 39, |b| {
                b.put_u16(port.to_of10());
                b.put_u32(*max_len);
            }),
            Action::Controller(c) => controller(out, c),
            Action::Enqueue { port, queue } if self.of10() => standard(out, 11, |b| {
                b.put_u16(port.to_of10());
                b.zeros(6);
                b.put_u32(*queue);
            }),
            Action::Enqueue { port, queue } => {
                self.action(out, &Action::SetQueue(*queue));
                self.output(out, *port, 0xffff);
                self.action(out, &Action::PopQueue);
            }
            Action::SetQueue(queue) if self.of10() => nicira(out, 4, |b| {
                b.zeros(2);
                b.put_u32(*queue);
            }),
            Action::SetQueue(queue) => standard(out, 21, |b| b.put_u32(*queue)),
            Action::PopQueue => nicira(out, 5, |_| {}),
            Action::SetVlanVid { vid, push_if_needed } => {
                self.push_tag_if(out, *push_if_needed);
                self.set(out, &SetHeader { of10: 1, of11: 1, field: Field::VlanVid, value: u64::from(vid | 0x1000) });
            }
            Action::SetVlanPcp { pcp, push_if_needed } => {
                self.push_tag_if(out, *push_if_needed);
                self.set(out, &SetHeader { of10: 2, of11: 2, field: Field::VlanPcp, value: (*pcp).into() });
            }
            Action::PopVlan => standard(out, if self.of10() { 3 } else { 18 }, |_| {}),
            // OpenFlow 1.0 cannot push a tag.
            Action::PushVlan(_) if self.of10() => {}
            Action::PushVlan(tpid) => standard(out, 17, |b| b.put_u16(*tpid)),
            Action::PushMpls(eth_type) => self.extended(out, 23, 19, |b| b.put_u16(*eth_type)),
            Action::PopMpls(eth_type) => self.extended(out, 24, 20, |b| b.put_u16(*eth_type)),
            // Versions before OpenFlow 1.3 have no such tags.
            Action::PushPbb | Action::PopPbb if self.version < Version::V13 => {}
            Action::PushPbb => standard(out, 26, |b| b.put_u16(PBB)),
            Action::PopPbb => standard(out, 27, |_| {}),
            Action::SetMplsLabel(label) => self.set_mpls(out, Field::MplsLabel, *label),
            Action::SetMplsTc(tc) => self.set_mpls(out, Field::MplsTc, (*tc).into()),
            Action::SetMplsTtl(ttl) => self.extended(out, 25, 15, |b| b.put_u8(*ttl)),
            Action::DecMplsTtl => self.extended(out, 26, 16, |_| {}),
            // OpenFlow 1.0 has no labels.
            Action::CopyTtlOut | Action::CopyTtlIn if self.of10() => {}
            Action::CopyTtlOut => standard(out, 11, |_| {}),
            Action::CopyTtlIn => standard(out, 12, |_| {}),
            Action::DecNshTtl => nicira(out, 48, |_| {}),
            Action::Encap(e) => encap::encode_encap(out, e),
            Action::Decap(packet_type) => encap::encode_decap(out, *packet_type),
            Action::SetEthSrc(mac) => {
                self.set(out, &SetHeader { of10: 4, of11: 3, field: Field::EthSrc, value: mac.to_u64() });
            }
            Action::SetEthDst(mac) => {
                self.set(out, &SetHeader { of10: 5, of11: 4, field: Field::EthDst, value: mac.to_u64() });
            }
            Action::SetIpv4Src(ip) => {
                self.set(out, &SetHeader { of10: 6, of11: 5, field: Field::Ipv4Src, value: ip.to_bits().into() });
            }
            Action::SetIpv4Dst(ip) => {
                self.set(out, &SetHeader { of10: 7, of11: 6, field: Field::Ipv4Dst, value: ip.to_bits().into() });
            }
            Action::SetIpDscp(tos) => {
                self.set(out, &SetHeader { of10: 8, of11: 7, field: Field::IpDscp, value: u64::from(tos >> 2) });
            }
            Action::SetIpEcn(ecn) => {
                self.set(out, &SetHeader { of10: NONE, of11: 8, field: Field::IpEcn, value: (*ecn).into() });
            }
            Action::SetIpTtl(ttl) if self.of10() => {
                reg_load(out, Subfield::whole(Field::IpTtl), (*ttl).into(), self.version);
            }
            Action::SetIpTtl(ttl) => standard(out, 23, |b| b.put_u8(*ttl)),
            Action::SetL4Src(port) => self.set_port(out, 9, *port, [Field::TcpSrc, Field::UdpSrc, Field::SctpSrc]),
            Action::SetL4Dst(port) => self.set_port(out, 10, *port, [Field::TcpDst, Field::UdpDst, Field::SctpDst]),
            Action::SetField { field, value, mask } => self.set_field(out, *field, *value, *mask),
            Action::SetTunOption(option) => {
                set_option(out, option, self.version, Version::V12);
            }
            Action::RegLoad { dst, value } => reg_load(out, *dst, *value, self.version),
            Action::CopyField { src, dst } if matches!(self.version, Version::V13 | Version::V14) => {
                onf_copy_field(out, *src, *dst, self.version);
            }
            Action::RegMove { src, dst } | Action::CopyField { src, dst } => reg_move(out, *src, *dst, self.version),
            Action::StackPush(part) => stack(out, 27, *part),
            Action::StackPop(part) => stack(out, 28, *part),
            Action::DecTtl(ids) => self.dec_ttl(out, ids.as_deref()),
            Action::SetTunnel { id, .. } if self.version >= Version::V12 => {
                self.set_field(out, Field::TunId, (*id).into(), u64::MAX.into());
            }
            Action::SetTunnel { id, wide } => match u32::try_from(*id) {
                Ok(id) if !wide => nicira(out, 2, |b| {
                    b.zeros(2);
                    b.put_u32(id);
                }),
                _ => nicira(out, 9, |b| {
                    b.zeros(6);
                    b.put_u64(*id);
                }),
            },
            Action::ResubmitPort { in_port } => {
                nicira(out, 1, |b| b.put_u16(in_port.unwrap_or(PortNo::IN_PORT).to_of10()));
            }
            Action::Resubmit { in_port, table } => {
                resubmit(out, 14, in_port.unwrap_or(PortNo::IN_PORT), table.unwrap_or(0xff));
            }
            Action::ResubmitCt { in_port, table } => {
                resubmit(out, 44, in_port.unwrap_or(PortNo::IN_PORT), table.unwrap_or(0xff));
            }
            Action::Ct(c) => ct::encode(out, c, |b, exec| self.list(b, exec)),
            Action::Nat(n) => nat::encode(out, n),
            Action::CtClear => nicira(out, 43, |_| {}),
            Action::DebugSlow => nicira(out, 254, |_| {}),
            Action::DebugRecirc => nicira(out, 255, |_| {}),
            Action::Sample(s) => sample::encode(out, s),
            Action::DeleteField(field) => nicira(out, 50, |b| {
                put_header(b, *field, Dialect::Nxm);
                b.zeros(if is_long(*field) { 6 } else { 10 });
            }),
            Action::Group(id) if self.of10() => nicira(out, 40, |b| {
                b.zeros(2);
                b.put_u32(*id);
            }),
            Action::Group(id) => standard(out, 22, |b| b.put_u32(*id)),
            Action::Conjunction { id, clause, n_clauses } => nicira(out, 34, |b| {
                b.put_u8(*clause);
                b.put_u8(*n_clauses);
                b.put_u32(*id);
            }),
            Action::Learn(learn) => learn.encode(out),
            Action::CheckPktLarger { len, dst } => nicira(out, 49, |b| {
                b.put_u16(*len);
                b.put_u16(dst.offset);
                put_header(b, dst.field, Dialect::Nxm);
                b.zeros(if is_long(dst.field) { 2 } else { 6 });
            }),
            Action::Multipath(m) => select::encode_multipath(out, m),
            Action::Bundle(bundle) => select::encode_bundle(out, bundle),
            Action::FinTimeout { idle_timeout, hard_timeout } => nicira(out, 19, |b| {
                b.put_u16(*idle_timeout);
                b.put_u16(*hard_timeout);
            }),
            Action::Clone(actions) => nicira(out, 42, |b| {
                b.zeros(6);
                Self { version: self.version, tagged: self.tagged, ip_proto: self.ip_proto }.list(b, actions);
            }),
            Action::Note(bytes) => nicira(out, 8, |b| b.put(bytes)),
            Action::Exit => nicira(out, 17, |_| {}),
            // OpenFlow 1.0 has these instructions as extensions; in later versions lists do not hold them.
            Action::WriteMetadata { value, mask } if self.of10() => nicira(out, 22, |b| {
                b.zeros(6);
                b.put_u64(*value);
                b.put_u64(*mask);
            }),
            Action::GotoTable(table) if self.of10() => resubmit(out, 14, PortNo::IN_PORT, *table),
            Action::Meter(id) if self.version >= Version::V15 => standard(out, 29, |b| b.put_u32(*id)),
            Action::Meter(_)
            | Action::ClearActions
            | Action::WriteActions(_)
            | Action::WriteMetadata { .. }
            | Action::GotoTable(_) => {}
        }
    }

    fn output(&self, out: &mut Writer, port: PortNo, max_len: u16) {
        standard(out, 0, |b| {
            if self.of10() {
                b.put_u16(port.to_of10());
            } else {
                b.put_u32(port.0);
            }
            b.put_u16(max_len);
        });
    }

    /// Pushes a tag if setting its fields does not do so by itself.
    fn push_tag_if(&mut self, out: &mut Writer, push_if_needed: bool) {
        if push_if_needed && !self.tagged && !self.of10() {
            standard(out, 17, |b| b.put_u16(0x8100));
        }
    }

    /// Appends an action that OpenFlow has from 1.1 on, and Nicira before that.
    fn extended(&self, out: &mut Writer, subtype: u16, ty: u16, body: impl FnOnce(&mut Writer)) {
        if self.of10() { nicira(out, subtype, body) } else { standard(out, ty, body) }
    }

    /// Appends the setting of a label or its traffic class: actions of their own up to 1.1, `set_field` later.
    fn set_mpls(&self, out: &mut Writer, field: Field, value: u32) {
        let label = field == Field::MplsLabel;
        match self.version {
            Version::V10 | Version::V11 if label => self.extended(out, 30, 13, |b| {
                b.zeros(if self.of10() { 2 } else { 0 });
                b.put_u32(value);
            }),
            Version::V10 | Version::V11 => self.extended(out, 31, 14, |b| b.put_u8(value as u8)),
            // A value to set has no bits beyond the field's width.
            _ => {
                let value = u128::from(value) & field.info().full_mask();
                set_field_entry(out, field, value, None, self.version);
            }
        }
    }

    /// Appends an action of its own in OpenFlow 1.0 and 1.1, `set_field` later.
    fn set(&mut self, out: &mut Writer, set: &SetHeader) {
        let ty = match self.version {
            Version::V10 => set.of10,
            Version::V11 => set.of11,
            _ => {
                let mask = set.field.info().wire_mask();
                return self.set_field(out, set.field, set.value.into(), mask);
            }
        };
        if ty == NONE {
            return reg_load(out, Subfield::whole(set.field), set.value.into(), self.version);
        }
        standard(out, ty, |b| match set.field {
            Field::EthSrc | Field::EthDst => b.put_uint(set.value.into(), 6),
            Field::Ipv4Src | Field::Ipv4Dst => b.put_u32(set.value as u32),
            Field::VlanVid => b.put_u16(set.value as u16 & 0xfff),
            Field::IpDscp => b.put_u8((set.value << 2) as u8),
            Field::VlanPcp | Field::IpEcn => b.put_u8(set.value as u8),
            _ => b.put_u16(set.value as u16),
        });
    }

    fn set_port(&mut self, out: &mut Writer, ty: u16, port: u16, [tcp, udp, sctp]: [Field; 3]) {
        let field = match self.ip_proto {
            17 => udp,
            132 => sctp,
            _ => tcp,
        };
        self.set(out, &SetHeader { of10: ty, of11: ty, field, value: port.into() });
    }

    fn set_field(&mut self, out: &mut Writer, field: Field, value: u128, mask: u128) {
        let whole = mask == field.info().wire_mask();
        match self.version {
            Version::V10 | Version::V11 if whole || covers_header_bits(field, mask) => {
                self.set_field_legacy(out, field, value);
            }
            Version::V12 | Version::V13 | Version::V14 if whole => {
                set_field_entry(out, field, value, None, self.version);
            }
            Version::V15 => set_field_entry(out, field, value, (!whole).then_some(mask), self.version),
            _ => set_field_parts(out, field, value, mask, self.version),
        }
    }

    /// Writes `set_field` of a whole field in versions without that action.
    fn set_field_legacy(&mut self, out: &mut Writer, field: Field, value: u128) {
        let set = |of10, of11, field| SetHeader { of10, of11, field, value: value as u64 };
        match field {
            Field::VlanTci if value & 0x1000 != 0 => {
                self.set(out, &SetHeader { of10: 1, of11: 1, field: Field::VlanVid, value: value as u64 & 0xfff });
                self.set(out, &SetHeader { of10: 2, of11: 2, field: Field::VlanPcp, value: value as u64 >> 13 });
            }
            Field::VlanTci => self.action(out, &Action::PopVlan),
            Field::DlVlan | Field::VlanVid => self.set(out, &set(1, 1, Field::VlanVid)),
            Field::DlVlanPcp | Field::VlanPcp => self.set(out, &set(2, 2, Field::VlanPcp)),
            Field::EthSrc => self.set(out, &set(4, 3, field)),
            Field::EthDst => self.set(out, &set(5, 4, field)),
            Field::Ipv4Src => self.set(out, &set(6, 5, field)),
            Field::Ipv4Dst => self.set(out, &set(7, 6, field)),
            Field::IpDscp => self.set(out, &set(8, 7, field)),
            Field::IpDscpShifted => {
                self.set(out, &SetHeader { of10: 8, of11: 7, field: Field::IpDscp, value: value as u64 >> 2 });
            }
            Field::IpEcn => self.set(out, &set(NONE, 8, field)),
            Field::TcpSrc | Field::UdpSrc => self.set(out, &set(9, 9, field)),
            Field::TcpDst | Field::UdpDst => self.set(out, &set(10, 10, field)),
            _ => set_field_parts(out, field, value, field.info().wire_mask(), self.version),
        }
    }

    fn dec_ttl(&self, out: &mut Writer, ids: Option<&[u16]>) {
        match ids {
            None if self.of10() => nicira(out, 18, |_| {}),
            None => standard(out, 24, |_| {}),
            Some(ids) => nicira(out, 21, |b| {
                b.put_len16(ids.len());
                b.zeros(4);
                for id in ids {
                    b.put_u16(*id);
                }
            }),
        }
    }
}

/// Returns true if the mask covers all bits that the packet has, of a field that is shorter than its bytes: a `load` over
/// OpenFlow 1.5 sets no others.
fn covers_header_bits(field: Field, mask: u128) -> bool {
    let bits = match field {
        Field::IpDscp => 0x3f,
        Field::IpDscpShifted => 0xfc,
        Field::VlanPcp => 7,
        Field::IpEcn => 3,
        _ => return false,
    };
    mask & bits == bits
}

/// A header field with the numbers of its actions in OpenFlow 1.0 and 1.1.
struct SetHeader {
    of10: u16,
    of11: u16,
    field: Field,
    value: u64,
}

/// The number of `OFPAT_COPY_FIELD` in the extension of OpenFlow 1.3.
pub(super) const ONF_COPY_FIELD: u16 = 3200;

/// The version has no such action.
const NONE: u16 = u16::MAX;

/// Appends an action of OpenFlow's own, padded to 8 bytes.
pub(super) fn standard(out: &mut Writer, ty: u16, body: impl FnOnce(&mut Writer)) {
    let start = out.len();
    out.put_u16(ty);
    out.put_u16(0);
    body(out);
    finish(out, start);
}

pub(super) fn nicira(out: &mut Writer, subtype: u16, body: impl FnOnce(&mut Writer)) {
    standard(out, 0xffff, |b| {
        b.put_u32(field::NICIRA);
        b.put_u16(subtype);
        body(b);
    });
}

/// Pads and writes the length.
fn finish(out: &mut Writer, start: usize) {
    out.pad8(start);
    out.set_len16(start + 2, start);
}

pub(super) fn pack(part: Subfield) -> u16 {
    // A width of more than 64 bits overflows into the offset, as in Open vSwitch.
    part.offset << 6 | part.n_bits.saturating_sub(1)
}

/// The header by which Nicira's actions name a field; `None` if the field has none.
fn header(field: Field, dialect: Dialect) -> Option<Header> {
    Header::of(field, false, dialect)
}

/// Appends the header. That of a tunnel option has the length to which the switch maps the option, if it does.
pub(super) fn put_header(out: &mut Writer, field: Field, dialect: Dialect) {
    if let Some(header) = header(field, dialect) {
        let payload = out.option_lengths().of(field).unwrap_or(header.payload);
        Header { payload, ..header }.encode(out);
    }
}

pub(super) fn is_long(field: Field) -> bool {
    header(field, Dialect::Nxm).is_some_and(|h| h.class == 0xffff)
}

fn output_reg(out: &mut Writer, src: Subfield, max_len: u16) {
    if is_long(src.field) {
        return nicira(out, 32, |b| {
            b.put_u16(pack(src));
            b.put_u16(max_len);
            put_header(b, src.field, Dialect::Nxm);
        });
    }
    nicira(out, 15, |b| {
        b.put_u16(pack(src));
        put_header(b, src.field, Dialect::Nxm);
        b.put_u16(max_len);
        b.zeros(6);
    });
}

fn set_field_entry(out: &mut Writer, field: Field, value: u128, mask: Option<u128>, version: Version) {
    standard(out, 25, |b| nxm::put_entry_as(b, field, value, mask, Dialect::of(version)));
}

/// Appends `set_field` as Nicira's loads: one for each run of bits in the mask, lowest first, 64 bits at most.
fn set_field_parts(out: &mut Writer, field: Field, value: u128, mask: u128, version: Version) {
    if is_long(field) {
        let whole = mask == field.info().wire_mask();
        return nicira(out, 33, |b| nxm::put_entry_as(b, field, value, (!whole).then_some(mask), Dialect::Nxm));
    }
    // The key keeps 8 of the 16 bits that the ARP operation has on the wire.
    let mask = if field == Field::ArpOp { mask } else { mask & field.info().full_mask() };
    let mut offset = 0;
    while offset < 128 && mask >> offset != 0 {
        offset += (mask >> offset).trailing_zeros();
        let n_bits = (mask >> offset).trailing_ones().min(64);
        let ones = (1 << n_bits) - 1;
        let dst = Subfield { field, offset: offset as u16, n_bits: n_bits as u16 };
        reg_load(out, dst, value >> offset & ones, version);
        offset += n_bits;
    }
}

/// Appends `set_field` of a tunnel option, as OpenFlow's own action or Nicira's. Unlike a match, it has as many bytes as the
/// value needs.
/// Appends the action that sets an option. It has OpenFlow's form since 1.5, and since version `plain_since` without a mask; a mask
/// of all bits that the switch maps the option to is left out.
fn set_option(out: &mut Writer, option: &TunOption, version: Version, plain_since: Version) {
    let mapped = out.option_lengths().of(option.field()).unwrap_or(0);
    let covers_all = |mask: &[u8]| mask.len() == mapped && mask.iter().all(|byte| *byte == 0xff);
    let plain = option.mask().is_some_and(covers_all).then(|| TunOption::new(option.field(), option.value(), None));
    let option = plain.as_ref().and_then(Option::as_ref).unwrap_or(option);
    let body = |b: &mut Writer| nxm::put_option(b, option, 0);
    let is_standard = version >= if option.mask().is_none() { plain_since } else { Version::V15 };
    if is_standard { standard(out, 25, body) } else { nicira(out, 33, body) }
}

fn reg_load(out: &mut Writer, dst: Subfield, value: u128, version: Version) {
    if let Some(option) = TunOption::of_bits(dst.field, dst.offset, dst.n_bits, &value.to_be_bytes()) {
        return set_option(out, &option, version, Version::V15);
    }
    let shifted = value.checked_shl(dst.offset.into()).unwrap_or(0);
    // A load names bits: it needs no mask only if it covers all the bits that the field has on the wire.
    let whole = dst == Subfield::whole(dst.field) && dst.n_bits == dst.field.info().wire_bits;
    let mask = (!whole).then(|| dst.mask());
    if version >= Version::V15 {
        return set_field_entry(out, dst.field, shifted, mask, version);
    }
    if is_long(dst.field) {
        return nicira(out, 33, |b| nxm::put_entry_as(b, dst.field, shifted, mask, Dialect::Nxm));
    }
    for done in (0..dst.n_bits).step_by(64) {
        let n_bits = (dst.n_bits - done).min(64);
        nicira(out, 7, |b| {
            b.put_u16(pack(Subfield { field: dst.field, offset: dst.offset + done, n_bits }));
            put_header(b, dst.field, Dialect::Nxm);
            b.put_u64((value >> done) as u64 & (u64::MAX >> (64 - n_bits)));
        });
    }
}

fn reg_move(out: &mut Writer, src: Subfield, dst: Subfield, version: Version) {
    let parts = |b: &mut Writer| {
        b.put_u16(src.n_bits);
        b.put_u16(src.offset);
        b.put_u16(dst.offset);
    };
    if version >= Version::V15 {
        return standard(out, 28, |b| {
            parts(b);
            b.zeros(2);
            put_header(b, src.field, Dialect::Oxm(version));
            put_header(b, dst.field, Dialect::Oxm(version));
        });
    }
    nicira(out, 6, |b| {
        parts(b);
        put_header(b, src.field, Dialect::Nxm);
        put_header(b, dst.field, Dialect::Nxm);
    });
}

/// Appends a move in the form of the Open Networking Foundation's extension.
fn onf_copy_field(out: &mut Writer, src: Subfield, dst: Subfield, version: Version) {
    standard(out, 0xffff, |b| {
        b.put_u32(field::ONF);
        b.put_u16(ONF_COPY_FIELD);
        b.zeros(2);
        b.put_u16(src.n_bits);
        b.put_u16(src.offset);
        b.put_u16(dst.offset);
        b.zeros(2);
        put_header(b, src.field, Dialect::Oxm(version));
        put_header(b, dst.field, Dialect::Oxm(version));
    });
}

fn stack(out: &mut Writer, subtype: u16, part: Subfield) {
    nicira(out, subtype, |b| {
        b.put_u16(part.offset);
        put_header(b, part.field, Dialect::Nxm);
        b.put_u16(part.n_bits);
        b.zeros(if is_long(part.field) { 2 } else { 6 });
    });
}

fn resubmit(out: &mut Writer, subtype: u16, in_port: PortNo, table: u8) {
    nicira(out, subtype, |b| {
        b.put_u16(in_port.to_of10());
        b.put_u8(table);
    });
}

/// Appends `NXAST_CONTROLLER`, or `NXAST_CONTROLLER2` with a property for each parameter that is not the default.
fn controller(out: &mut Writer, c: &ControllerAction) {
    if c.userdata.is_empty() && !c.pause && c.meter_id.is_none() {
        return nicira(out, 20, |b| {
            b.put_u16(c.max_len);
            b.put_u16(c.controller_id);
            b.put_u8(c.reason.number());
        });
    }
    nicira(out, 37, |b| {
        b.zeros(6);
        if c.max_len != 0xffff {
            property::put_u16(b, 0, c.max_len);
        }
        if c.controller_id != 0 {
            property::put_u16(b, 1, c.controller_id);
        }
        if c.reason != PacketInReason::Action {
            property::put(b, 2, |b| b.put_u8(c.reason.number()));
        }
        if !c.userdata.is_empty() {
            property::put(b, 3, |b| b.put(&c.userdata));
        }
        if c.pause {
            property::put(b, 4, |_| {});
        }
        if let Some(id) = c.meter_id {
            property::put_u32(b, 5, id);
        }
    });
}
