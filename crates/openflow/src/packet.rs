//! Packets to and from controllers: packet-in in its three formats, and packet-out (OpenFlow 1.0 sections 5.4.1 and 5.3.6,
//! 1.3 sections 7.4.1 and 7.3.7).

use crate::Version::{self, V10, V11, V12, V13, V15};
use crate::action::{Action, PacketInReason};
use crate::body::{
    decode_loose, encode_loose, put_actions, put_nxm, put_oxm_match, read_actions, read_nxm_metadata,
    read_oxm_metadata, read_pipeline_fields,
};
use crate::continuation::{self, Continuation};
use crate::error::OfpError;
use crate::nxm::Unknown;
use crate::port::{put_port, read_port};
use crate::property;
use crate::wire::{Reader, Result, Writer};
use base::PortNo;
use flow::{Field, Match};

/// The format of packet-ins (`NXT_SET_PACKET_IN_FORMAT`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum PacketInFormat {
    /// OpenFlow's own, which differs from version to version.
    Standard = 0,
    /// `NXT_PACKET_IN`.
    Nxt = 1,
    /// `NXT_PACKET_IN2`.
    Nxt2 = 2,
}

impl PacketInFormat {
    /// Returns the format with this number.
    pub fn from_wire(n: u32) -> Option<Self> {
        [Self::Standard, Self::Nxt, Self::Nxt2].into_iter().find(|f| *f as u32 == n)
    }
}

/// A packet for the controller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketIn {
    /// The reason.
    pub reason: PacketInReason,
    /// The id under which the switch buffers the whole packet, if it does.
    pub buffer_id: Option<u32>,
    /// Length of the whole packet in bytes.
    pub total_len: u32,
    /// Table of the flow, 0 if unknown.
    pub table_id: u8,
    /// Cookie of the flow; all ones if there is none or the format lacks it.
    pub cookie: u64,
    /// Ingress port and other metadata.
    pub metadata: Match,
    /// The first bytes of the packet, or all.
    pub data: Vec<u8>,
    /// The user data of the `controller` action (NXT_PACKET_IN2).
    pub userdata: Vec<u8>,
    /// The opaque state for NXT_RESUME (NXT_PACKET_IN2).
    pub continuation: Vec<u8>,
}

const NO_BUFFER: u32 = u32::MAX;
const NO_COOKIE: u64 = u64::MAX;

fn buffer(id: u32) -> Option<u32> {
    (id != NO_BUFFER).then_some(id)
}

/// The number of a reason in a version: before OpenFlow 1.4, the reasons that it added are "action".
fn wire_reason(version: Version, reason: PacketInReason) -> u8 {
    use PacketInReason as R;
    let later = matches!(reason, R::ActionSet | R::Group | R::PacketOut);
    if later && version < Version::V14 { R::Action.number() } else { reason.number() }
}

// Property types of NXT_PACKET_IN2.
const PACKET: u16 = 0;
const FULL_LEN: u16 = 1;
const BUFFER_ID: u16 = 2;
const TABLE_ID: u16 = 3;
const COOKIE: u16 = 4;
const REASON: u16 = 5;
const METADATA: u16 = 6;
const USERDATA: u16 = 7;
const CONTINUATION: u16 = 8;

impl PacketIn {
    /// The ingress port; [`PortNo::NONE`] if the metadata has none.
    pub fn in_port(&self) -> PortNo {
        match self.metadata.get(Field::InPortOxm) {
            (_, 0) => PortNo::NONE,
            (port, _) => PortNo(port as u32),
        }
    }

    pub(crate) fn empty() -> Self {
        Self {
            reason: PacketInReason::NoMatch,
            buffer_id: None,
            total_len: 0,
            table_id: 0,
            cookie: NO_COOKIE,
            metadata: Match::ANY,
            data: Vec::new(),
            userdata: Vec::new(),
            continuation: Vec::new(),
        }
    }

    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        let mut p = Self { buffer_id: buffer(r.u32()?), ..Self::empty() };
        let mut in_port = None;
        if version == V11 {
            in_port = Some(r.port11()?);
            r.skip(4)?;
        }
        p.total_len = r.u16()?.into();
        if version == V10 {
            in_port = Some(r.port10()?);
        }
        p.reason = PacketInReason::from_wire(r.u8()?);
        if version == V10 {
            r.skip(1)?;
        } else {
            p.table_id = r.u8()?;
        }
        if version >= V13 {
            p.cookie = r.u64()?;
        }
        if version >= V12 {
            p.metadata = read_oxm_metadata(r)?;
            r.skip(2)?;
        } else if let Some(port) = in_port {
            p.metadata.set(Field::InPortOxm, port.0.into());
        }
        p.data = r.rest().to_vec();
        Ok(p)
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        out.put_u32(self.buffer_id.unwrap_or(NO_BUFFER));
        if version == V11 {
            out.put_u32(self.in_port().0);
            out.put_u32(self.in_port().0);
        }
        out.put_u16(self.total_len.min(u16::MAX.into()) as u16);
        if version == V10 {
            out.put_u16(self.in_port().to_of10());
        }
        out.put_u8(wire_reason(version, self.reason));
        out.put_u8(if version == V10 { 0 } else { self.table_id });
        if version >= V13 {
            out.put_u64(self.cookie);
        }
        if version >= V12 {
            put_oxm_match(out, version, &self.metadata);
            out.zeros(2);
        }
        self.put_data(out);
    }

    /// Appends as much of the packet as the message has space for.
    fn put_data(&self, out: &mut Writer) {
        let room = usize::from(u16::MAX) - out.len().min(usize::from(u16::MAX));
        out.put(&self.data[..self.data.len().min(room)]);
    }

    pub(crate) fn decode_nxt(r: &mut Reader<'_>) -> Result<Self> {
        let mut p = Self { buffer_id: buffer(r.u32()?), ..Self::empty() };
        p.total_len = r.u16()?.into();
        p.reason = PacketInReason::from_wire(r.u8()?);
        p.table_id = r.u8()?;
        p.cookie = r.u64()?;
        let match_len = usize::from(r.u16()?);
        r.skip(6)?;
        p.metadata = read_nxm_metadata(r, match_len)?;
        r.skip(2)?;
        p.data = r.rest().to_vec();
        Ok(p)
    }

    pub(crate) fn encode_nxt(&self, version: Version, out: &mut Writer) {
        out.put_u32(self.buffer_id.unwrap_or(NO_BUFFER));
        out.put_u16(self.total_len.min(u16::MAX.into()) as u16);
        out.put_u8(wire_reason(version, self.reason));
        out.put_u8(self.table_id);
        out.put_u64(self.cookie);
        let len_at = out.len();
        out.zeros(8);
        put_nxm(out, len_at, &self.metadata, (0, 0));
        out.zeros(2);
        self.put_data(out);
    }

    /// `unknown`: the treatment of unknown properties.
    pub(crate) fn decode_nxt2(version: Version, unknown: Unknown, r: &mut Reader<'_>) -> Result<Self> {
        let mut p = Self::empty();
        let (mut full_len, mut continues) = (None, false);
        property::each(r, |property| {
            match property.ty {
                PACKET => p.data = property.value.peek().to_vec(),
                FULL_LEN => full_len = Some(property.u32()?),
                BUFFER_ID => p.buffer_id = buffer(property.u32()?),
                TABLE_ID => p.table_id = property.u8()?,
                COOKIE => p.cookie = property.u64()?,
                REASON => p.reason = PacketInReason::from_wire(property.u8()?),
                METADATA => p.metadata = decode_loose(version, property.value.peek())?,
                USERDATA => p.userdata = property.value.peek().to_vec(),
                CONTINUATION => {
                    // Its padding is read in the order of the properties, its contents behind all of them.
                    property.value.clone().skip(continuation::PAD).map_err(|_| OfpError::BpcBadLen)?;
                    (p.continuation, continues) = (property.value.peek().to_vec(), true);
                }
                _ => property.unknown(unknown)?,
            }
            Ok(())
        })?;
        if p.data.is_empty() {
            return Err(OfpError::BrcBadLen);
        }
        if continues {
            Continuation::decode(version, &p.continuation)?;
        }
        // A length of 0 counts as absent.
        p.total_len = full_len.filter(|len| *len != 0).unwrap_or(p.data.len() as u32);
        if (p.total_len as usize) < p.data.len() {
            return Err(OfpError::BrcBadLen);
        }
        Ok(p)
    }

    pub(crate) fn encode_nxt2(&self, version: Version, out: &mut Writer) {
        let room = 65_000usize.saturating_sub(out.len() + self.userdata.len() + self.continuation.len() + 1024);
        let data = &self.data[..self.data.len().min(room)];
        property::put(out, PACKET, |out| out.put(data));
        if self.total_len as usize != data.len() {
            property::put_u32(out, FULL_LEN, self.total_len);
        }
        if let Some(id) = self.buffer_id {
            property::put_u32(out, BUFFER_ID, id);
        }
        property::put(out, TABLE_ID, |out| out.put_u8(self.table_id));
        if self.cookie != NO_COOKIE {
            property::put_u64(out, COOKIE, self.cookie);
        }
        property::put(out, REASON, |out| out.put_u8(wire_reason(version, self.reason)));
        if self.metadata != Match::ANY {
            property::put(out, METADATA, |out| out.put(&encode_loose(version, &self.metadata)));
        }
        if !self.userdata.is_empty() {
            property::put(out, USERDATA, |out| out.put(&self.userdata));
        }
        if !self.continuation.is_empty() {
            property::put(out, CONTINUATION, |out| out.put(&self.continuation));
        }
    }
}

/// A packet-out: a packet for the switch to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketOut {
    /// The id of a buffered packet, which replaces `data`.
    pub buffer_id: Option<u32>,
    /// The ingress port for the actions.
    pub in_port: PortNo,
    /// Further metadata for the actions (OpenFlow 1.5).
    pub metadata: Match,
    /// The actions.
    pub actions: Vec<Action>,
    /// The packet.
    pub data: Vec<u8>,
}

impl PacketOut {
    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        let buffer_id = buffer(r.u32()?);
        let (in_port, metadata, actions_len);
        if version >= V15 {
            actions_len = usize::from(r.u16()?);
            r.skip(2)?;
            (in_port, metadata) = split_metadata(read_pipeline_fields(r)?)?;
        } else {
            (in_port, metadata) = (read_port(version, r)?, Match::ANY);
            actions_len = usize::from(r.u16()?);
            r.skip(if version == V10 { 0 } else { 6 })?;
        }
        let actions = read_actions(version, &mut r.sub(actions_len)?)?;
        if in_port != PortNo::LOCAL
            && in_port != PortNo::NONE
            && in_port != PortNo::CONTROLLER
            && in_port.0 >= PortNo::MAX.0
        {
            return Err(OfpError::BrcBadPort);
        }
        // Data beside a buffer id is ignored.
        let data = Some(r.rest()).filter(|_| buffer_id.is_none()).unwrap_or_default().to_vec();
        Ok(Self { buffer_id, in_port, metadata, actions, data })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        out.put_u32(self.buffer_id.unwrap_or(NO_BUFFER));
        let len_at;
        if version >= V15 {
            len_at = out.len();
            out.zeros(4);
            let mut metadata = self.metadata.clone();
            metadata.set(Field::InPortOxm, self.in_port.0.into());
            put_oxm_match(out, version, &metadata);
        } else {
            put_port(out, version, self.in_port);
            len_at = out.len();
            out.zeros(if version == V10 { 2 } else { 8 });
        }
        let start = out.len();
        put_actions(out, version, &self.actions);
        out.set_len16(len_at, start);
        out.put(&self.data);
    }
}

/// Splits the metadata of an OpenFlow 1.5 packet-out into the ingress port and the rest.
fn split_metadata(mut metadata: Match) -> Result<(PortNo, Match)> {
    let (port, mask) = metadata.get(Field::InPortOxm);
    metadata.clear(Field::InPortOxm);
    if mask == 0 {
        return Err(OfpError::BrcBadPort);
    }
    Ok((PortNo(port as u32), metadata))
}

/// Names of packet-in reasons, by number.
pub(crate) const REASONS: [&str; 6] = ["no_match", "action", "invalid_ttl", "action_set", "group", "packet_out"];
