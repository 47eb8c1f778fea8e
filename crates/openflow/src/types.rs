//! Which messages there are: one row for each form that a message has on the wire, with the versions that have it.
//!
//! Decoding finds the row of the bytes' header, encoding the row of a kind and a version. A further version is a matter of
//! the rows' version ranges, and of what the bodies of the messages look like in it.

use crate::Version::{self, V10, V11, V12, V13, V14, V15};
use crate::error::OfpError;
use crate::wire::{Put, Reader, Result};
use flow::field::{NICIRA, ONF};

/// Bytes of the header that every message begins with: version, type, length, xid (OpenFlow 1.0 section 5.1).
pub const HEADER_LEN: usize = 8;

/// A kind of message. Nicira's forms of what OpenFlow has too are kinds of their own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "named as the specifications name the messages")]
pub enum Kind {
    Hello,
    Error,
    EchoRequest,
    EchoReply,
    FeaturesRequest,
    FeaturesReply,
    GetConfigRequest,
    GetConfigReply,
    SetConfig,
    PacketIn,
    FlowRemoved,
    PortStatus,
    PacketOut,
    FlowMod,
    GroupMod,
    NxGroupMod,
    PortMod,
    TableMod,
    MeterMod,
    BarrierRequest,
    BarrierReply,
    QueueGetConfigRequest,
    QueueGetConfigReply,
    RoleRequest,
    RoleReply,
    GetAsyncRequest,
    GetAsyncReply,
    SetAsync,
    NxRoleRequest,
    NxRoleReply,
    NxSetFlowFormat,
    NxFlowMod,
    NxFlowRemoved,
    NxFlowModTableId,
    NxSetPacketInFormat,
    NxPacketIn,
    NxPacketIn2,
    NxFlowAge,
    NxSetAsyncConfig,
    NxSetControllerId,
    NxFlowMonitorCancel,
    BundleControl,
    BundleAdd,
    DescRequest,
    DescReply,
    FlowRequest,
    FlowReply,
    AggregateRequest,
    AggregateReply,
    TableRequest,
    TableReply,
    PortRequest,
    PortReply,
    QueueRequest,
    QueueReply,
    GroupRequest,
    GroupReply,
    GroupDescRequest,
    GroupDescReply,
    GroupFeaturesRequest,
    GroupFeaturesReply,
    MeterRequest,
    MeterReply,
    MeterConfigRequest,
    MeterConfigReply,
    MeterFeaturesRequest,
    MeterFeaturesReply,
    TableFeaturesRequest,
    TableFeaturesReply,
    PortDescRequest,
    PortDescReply,
    NxFlowRequest,
    NxFlowReply,
    NxAggregateRequest,
    NxAggregateReply,
    NxFlowMonitorRequest,
}

impl Kind {
    /// Whether bundles take such messages: what changes flows, groups and ports, and packets to be sent.
    pub fn is_for_bundles(self) -> bool {
        matches!(self, K::FlowMod | K::NxFlowMod | K::GroupMod | K::NxGroupMod | K::PortMod | K::PacketOut)
    }
}

/// Where a kind of message stands in the numbering.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// A message type of OpenFlow.
    Type(u8),
    /// A subtype of Nicira's experimenter messages.
    Nicira(u32),
    /// A subtype of the Open Networking Foundation's experimenter messages.
    Onf(u32),
    /// A type of statistics or multipart request.
    Request(u16),
    /// The same of a reply.
    Reply(u16),
    /// A subtype of Nicira's statistics requests.
    NiciraRequest(u32),
    /// The same of a reply.
    NiciraReply(u32),
}

/// A form that a message has on the wire.
#[derive(Debug)]
pub struct Row {
    /// What it is.
    pub kind: Kind,
    /// As it is printed: `OFPT_HELLO`, `OFPST_FLOW reply`.
    pub name: &'static str,
    place: Place,
    first: Version,
    last: Version,
}

const fn row(kind: Kind, name: &'static str, place: Place, first: Version, last: Version) -> Row {
    Row { kind, name, place, first, last }
}

use Kind as K;
use Place::{Nicira as Nx, NiciraReply as NxRep, NiciraRequest as NxReq, Onf, Reply as Rep, Request as Req, Type as T};

#[rustfmt::skip]
static ROWS: &[Row] = &[
    row(K::Hello, "OFPT_HELLO", T(0), V10, V15),
    row(K::Error, "OFPT_ERROR", T(1), V10, V15),
    row(K::EchoRequest, "OFPT_ECHO_REQUEST", T(2), V10, V15),
    row(K::EchoReply, "OFPT_ECHO_REPLY", T(3), V10, V15),
    row(K::FeaturesRequest, "OFPT_FEATURES_REQUEST", T(5), V10, V15),
    row(K::FeaturesReply, "OFPT_FEATURES_REPLY", T(6), V10, V15),
    row(K::GetConfigRequest, "OFPT_GET_CONFIG_REQUEST", T(7), V10, V15),
    row(K::GetConfigReply, "OFPT_GET_CONFIG_REPLY", T(8), V10, V15),
    row(K::SetConfig, "OFPT_SET_CONFIG", T(9), V10, V15),
    row(K::PacketIn, "OFPT_PACKET_IN", T(10), V10, V15),
    row(K::FlowRemoved, "OFPT_FLOW_REMOVED", T(11), V10, V14),
    row(K::PortStatus, "OFPT_PORT_STATUS", T(12), V10, V13),
    row(K::PacketOut, "OFPT_PACKET_OUT", T(13), V10, V14),
    row(K::FlowMod, "OFPT_FLOW_MOD", T(14), V10, V15),
    row(K::GroupMod, "OFPT_GROUP_MOD", T(15), V11, V15),
    row(K::NxGroupMod, "NXT_GROUP_MOD", Nx(31), V10, V14),
    row(K::PortMod, "OFPT_PORT_MOD", T(15), V10, V10),
    row(K::PortMod, "OFPT_PORT_MOD", T(16), V11, V13),
    row(K::TableMod, "OFPT_TABLE_MOD", T(17), V11, V13),
    row(K::BarrierRequest, "OFPT_BARRIER_REQUEST", T(18), V10, V10),
    row(K::BarrierRequest, "OFPT_BARRIER_REQUEST", T(20), V11, V15),
    row(K::BarrierReply, "OFPT_BARRIER_REPLY", T(19), V10, V10),
    row(K::BarrierReply, "OFPT_BARRIER_REPLY", T(21), V11, V15),
    row(K::QueueGetConfigRequest, "OFPT_QUEUE_GET_CONFIG_REQUEST", T(20), V10, V10),
    row(K::QueueGetConfigRequest, "OFPT_QUEUE_GET_CONFIG_REQUEST", T(22), V11, V13),
    row(K::QueueGetConfigReply, "OFPT_QUEUE_GET_CONFIG_REPLY", T(21), V10, V10),
    row(K::QueueGetConfigReply, "OFPT_QUEUE_GET_CONFIG_REPLY", T(23), V11, V13),
    row(K::RoleRequest, "OFPT_ROLE_REQUEST", T(24), V12, V15),
    row(K::RoleReply, "OFPT_ROLE_REPLY", T(25), V12, V15),
    row(K::GetAsyncRequest, "OFPT_GET_ASYNC_REQUEST", T(26), V13, V15),
    row(K::GetAsyncReply, "OFPT_GET_ASYNC_REPLY", T(27), V13, V13),
    row(K::SetAsync, "OFPT_SET_ASYNC", T(28), V13, V13),
    row(K::MeterMod, "OFPT_METER_MOD", T(29), V13, V15),
    row(K::NxRoleRequest, "NXT_ROLE_REQUEST", Nx(10), V10, V11),
    row(K::NxRoleReply, "NXT_ROLE_REPLY", Nx(11), V10, V11),
    row(K::NxSetFlowFormat, "NXT_SET_FLOW_FORMAT", Nx(12), V10, V15),
    row(K::NxFlowMod, "NXT_FLOW_MOD", Nx(13), V10, V15),
    row(K::NxFlowRemoved, "NXT_FLOW_REMOVED", Nx(14), V10, V15),
    row(K::NxFlowModTableId, "NXT_FLOW_MOD_TABLE_ID", Nx(15), V10, V15),
    row(K::NxSetPacketInFormat, "NXT_SET_PACKET_IN_FORMAT", Nx(16), V10, V15),
    row(K::NxPacketIn, "NXT_PACKET_IN", Nx(17), V10, V15),
    row(K::NxFlowAge, "NXT_FLOW_AGE", Nx(18), V10, V15),
    row(K::NxSetAsyncConfig, "NXT_SET_ASYNC_CONFIG", Nx(19), V10, V12),
    row(K::NxSetControllerId, "NXT_SET_CONTROLLER_ID", Nx(20), V10, V15),
    row(K::NxFlowMonitorCancel, "NXT_FLOW_MONITOR_CANCEL", Nx(21), V10, V13),
    row(K::NxPacketIn2, "NXT_PACKET_IN2", Nx(30), V10, V15),
    row(K::BundleControl, "ONFT_BUNDLE_CONTROL", Onf(2300), V13, V13),
    row(K::BundleControl, "OFPT_BUNDLE_CONTROL", T(33), V14, V15),
    row(K::BundleAdd, "ONFT_BUNDLE_ADD_MESSAGE", Onf(2301), V13, V13),
    row(K::BundleAdd, "OFPT_BUNDLE_ADD_MESSAGE", T(34), V14, V15),
    row(K::DescRequest, "OFPST_DESC request", Req(0), V10, V15),
    row(K::DescReply, "OFPST_DESC reply", Rep(0), V10, V15),
    row(K::FlowRequest, "OFPST_FLOW request", Req(1), V10, V15),
    row(K::FlowReply, "OFPST_FLOW reply", Rep(1), V10, V14),
    row(K::AggregateRequest, "OFPST_AGGREGATE request", Req(2), V10, V14),
    row(K::AggregateReply, "OFPST_AGGREGATE reply", Rep(2), V10, V14),
    row(K::TableRequest, "OFPST_TABLE request", Req(3), V10, V15),
    row(K::TableReply, "OFPST_TABLE reply", Rep(3), V10, V10),
    row(K::TableReply, "OFPST_TABLE reply", Rep(3), V13, V15),
    row(K::PortRequest, "OFPST_PORT request", Req(4), V10, V15),
    row(K::PortReply, "OFPST_PORT reply", Rep(4), V10, V13),
    row(K::QueueRequest, "OFPST_QUEUE request", Req(5), V10, V15),
    row(K::QueueReply, "OFPST_QUEUE reply", Rep(5), V10, V13),
    row(K::GroupRequest, "OFPST_GROUP request", Req(6), V11, V15),
    row(K::GroupReply, "OFPST_GROUP reply", Rep(6), V11, V15),
    row(K::GroupDescRequest, "OFPST_GROUP_DESC request", Req(7), V11, V15),
    row(K::GroupDescReply, "OFPST_GROUP_DESC reply", Rep(7), V11, V15),
    row(K::GroupFeaturesRequest, "OFPST_GROUP_FEATURES request", Req(8), V12, V15),
    row(K::GroupFeaturesReply, "OFPST_GROUP_FEATURES reply", Rep(8), V12, V15),
    row(K::MeterRequest, "OFPST_METER request", Req(9), V13, V15),
    row(K::MeterReply, "OFPST_METER reply", Rep(9), V13, V15),
    row(K::MeterConfigRequest, "OFPST_METER_CONFIG request", Req(10), V13, V15),
    row(K::MeterConfigReply, "OFPST_METER_CONFIG reply", Rep(10), V13, V15),
    row(K::MeterFeaturesRequest, "OFPST_METER_FEATURES request", Req(11), V13, V15),
    row(K::MeterFeaturesReply, "OFPST_METER_FEATURES reply", Rep(11), V13, V15),
    row(K::TableFeaturesRequest, "OFPST_TABLE_FEATURES request", Req(12), V13, V15),
    row(K::TableFeaturesReply, "OFPST_TABLE_FEATURES reply", Rep(12), V13, V15),
    row(K::PortDescRequest, "OFPST_PORT_DESC request", Req(13), V10, V14),
    row(K::PortDescReply, "OFPST_PORT_DESC reply", Rep(13), V10, V13),
    row(K::NxFlowRequest, "NXST_FLOW request", NxReq(0), V10, V15),
    row(K::NxFlowReply, "NXST_FLOW reply", NxRep(0), V10, V15),
    row(K::NxAggregateRequest, "NXST_AGGREGATE request", NxReq(1), V10, V15),
    row(K::NxAggregateReply, "NXST_AGGREGATE reply", NxRep(1), V10, V15),
    row(K::GroupRequest, "NXST_GROUP request", NxReq(7), V10, V10),
    row(K::GroupReply, "NXST_GROUP reply", NxRep(7), V10, V10),
    row(K::GroupDescRequest, "NXST_GROUP_DESC request", NxReq(8), V10, V10),
    row(K::GroupDescReply, "NXST_GROUP_DESC reply", NxRep(8), V10, V10),
    row(K::GroupFeaturesRequest, "NXST_GROUP_FEATURES request", NxReq(9), V10, V10),
    row(K::GroupFeaturesReply, "NXST_GROUP_FEATURES reply", NxRep(9), V10, V10),
    row(K::NxFlowMonitorRequest, "NXST_FLOW_MONITOR request", NxReq(2), V10, V13),
];

/// `OFPT_VENDOR`, `OFPT_EXPERIMENTER`.
const TYPE_EXPERIMENTER: u8 = 4;
/// `OFPST_VENDOR`, `OFPST_EXPERIMENTER`.
const STATS_EXPERIMENTER: u16 = 0xffff;
/// `OFPSF_REPLY_MORE`: more replies follow.
const MORE: u16 = 1;

/// What a message's headers say.
#[derive(Clone, Debug)]
pub struct Head<'a> {
    /// Version.
    pub version: Version,
    /// Transaction id.
    pub xid: u32,
    /// Which message.
    pub row: &'static Row,
    /// Of statistics: another part follows.
    pub more: bool,
    /// What comes after all headers.
    pub body: Reader<'a>,
}

fn stats_type(version: Version, reply: bool) -> u8 {
    (if version == V10 { 16 } else { 18 }) + u8::from(reply)
}

/// The transaction id of a message; 0 if it is too short to have one.
pub fn xid(msg: &[u8]) -> u32 {
    msg.get(4..8).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes)
}

/// Reads the headers of one message, which must be exactly as long as its header says.
pub fn head(msg: &[u8]) -> Result<Head<'_>> {
    let mut r = Reader(msg);
    let version = Version::from_wire(r.u8()?).ok_or(OfpError::BrcBadVersion)?;
    let ty = r.u8()?;
    if usize::from(r.u16()?) != msg.len() {
        return Err(OfpError::BrcBadLen);
    }
    let xid = r.u32()?;
    let mut more = false;
    let place = if ty == TYPE_EXPERIMENTER {
        let subtype = |r: &mut Reader<'_>, place: fn(u32) -> Place| r.u32().map(place);
        match r.u32()? {
            NICIRA => subtype(&mut r, Place::Nicira)?,
            ONF => subtype(&mut r, Place::Onf)?,
            _ => return Err(OfpError::BrcBadVendor),
        }
    } else if ty == stats_type(version, false) || ty == stats_type(version, true) {
        let reply = ty == stats_type(version, true);
        let stat = r.u16()?;
        let flags = r.u16()?;
        more = flags & MORE != 0;
        if !reply && flags & !MORE != 0 || version == V10 && !reply && more {
            return Err(OfpError::BrcBadStat);
        }
        if version != V10 {
            r.skip(4)?;
        }
        match (stat, reply) {
            (STATS_EXPERIMENTER, _) => {
                if r.u32()? != NICIRA {
                    return Err(OfpError::BrcBadVendor);
                }
                let subtype = r.u32()?;
                if version == V10 {
                    r.skip(4)?;
                }
                if reply { Place::NiciraReply(subtype) } else { Place::NiciraRequest(subtype) }
            }
            (_, true) => Place::Reply(stat),
            (_, false) => Place::Request(stat),
        }
    } else {
        Place::Type(ty)
    };
    let row = ROWS.iter().find(|r| r.place == place && r.first <= version && version <= r.last);
    let unknown = match place {
        Place::Type(_) => OfpError::BrcBadType,
        Place::Nicira(_) | Place::Onf(_) | Place::NiciraRequest(_) | Place::NiciraReply(_) => OfpError::BrcBadSubtype,
        Place::Request(_) | Place::Reply(_) => OfpError::BrcBadStat,
    };
    Ok(Head { version, xid, row: row.ok_or(unknown)?, more, body: r })
}

/// Begins a message of this kind: headers with the length still 0. `None` if the version has no such message.
/// [`finish`] ends it.
pub fn begin(version: Version, xid: u32, kind: Kind, more: bool) -> Option<Vec<u8>> {
    let row = ROWS.iter().find(|r| r.kind == kind && r.first <= version && version <= r.last)?;
    let mut out = Vec::with_capacity(64);
    let stats = |out: &mut Vec<u8>, reply: bool, stat: u16| {
        out.put_u8(stats_type(version, reply));
        out.put_u16(0);
        out.put_u32(xid);
        out.put_u16(stat);
        out.put_u16(if more { MORE } else { 0 });
        out.zeros(if version == V10 { 0 } else { 4 });
    };
    out.put_u8(version.wire());
    match row.place {
        Place::Type(ty) => {
            out.put_u8(ty);
            out.put_u16(0);
            out.put_u32(xid);
        }
        Place::Nicira(subtype) | Place::Onf(subtype) => {
            out.put_u8(TYPE_EXPERIMENTER);
            out.put_u16(0);
            out.put_u32(xid);
            out.put_u32(if matches!(row.place, Place::Onf(_)) { ONF } else { NICIRA });
            out.put_u32(subtype);
        }
        Place::Request(stat) => stats(&mut out, false, stat),
        Place::Reply(stat) => stats(&mut out, true, stat),
        Place::NiciraRequest(subtype) | Place::NiciraReply(subtype) => {
            stats(&mut out, matches!(row.place, Place::NiciraReply(_)), STATS_EXPERIMENTER);
            out.put_u32(NICIRA);
            out.put_u32(subtype);
            out.zeros(if version == V10 { 4 } else { 0 });
        }
    }
    Some(out)
}

/// Writes the length into a message that [`begin`] began. One longer than the header can say (65,535 bytes) is cut there,
/// so that the stream stays in step; senders keep below by what they put in.
pub fn finish(out: &mut Vec<u8>) {
    out.truncate(usize::from(u16::MAX));
    crate::wire::patch_len(out, 0, 2);
}

/// Marks a finished statistics reply as one that is followed by another part.
pub fn set_more(msg: &mut [u8]) {
    if let Some(flags) = msg.get_mut(HEADER_LEN + 2..HEADER_LEN + 4) {
        flags.copy_from_slice(&MORE.to_be_bytes());
    }
}
