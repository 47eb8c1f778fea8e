//! The table of messages: one row for each form that a message has on the wire, with the versions that have it.
//!
//! Decoding finds the row for the headers' numbers, encoding the row for a kind and a version. Supporting a further version
//! takes changes to the rows' version ranges and to the messages' bodies. A row also has the valid lengths of the body: a
//! message of another length is refused before its body is read.

use crate::Version::{self, V10};
use crate::error::OfpError;
use crate::wire::{Reader, Result, TooLong, Writer};
use flow::field::{NICIRA, ONF};
use rows::ROWS;
use std::sync::LazyLock;

mod rows;

/// Bytes of the header that every message begins with: version, type, length, xid (OpenFlow 1.0 section 5.1).
pub const HEADER_LEN: usize = 8;

/// A kind of message. Nicira's forms of OpenFlow's messages are kinds of their own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "named as the specifications name the messages")]
pub enum MessageKind {
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
    NxResume,
    NxFlowAge,
    NxSetAsyncConfig,
    NxSetControllerId,
    NxSetAsyncConfig2,
    NxCtFlushZone,
    NxCtFlush,
    TlvTableMod,
    TlvTableRequest,
    TlvTableReply,
    FlowMonitorCancel,
    FlowMonitorPaused,
    FlowMonitorResumed,
    RoleStatus,
    TableStatus,
    ControllerStatus,
    RequestForward,
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
    NxIpfixBridgeRequest,
    NxIpfixBridgeReply,
    NxIpfixFlowRequest,
    NxIpfixFlowReply,
    TableDescRequest,
    TableDescReply,
    QueueDescRequest,
    QueueDescReply,
    FlowMonitorRequest,
    FlowMonitorReply,
    FlowCountsRequest,
    FlowCountsReply,
    ControllerStatusRequest,
    ControllerStatusReply,
    BundleFeaturesRequest,
    BundleFeaturesReply,
}

impl MessageKind {
    /// Returns true for messages that only switches send: replies and asynchronous messages.
    pub fn is_from_switch(self) -> bool {
        use MessageKind as K;
        matches!(
            self,
            K::FeaturesReply
                | K::GetConfigReply
                | K::PacketIn
                | K::FlowRemoved
                | K::PortStatus
                | K::BarrierReply
                | K::QueueGetConfigReply
                | K::RoleReply
                | K::GetAsyncReply
                | K::NxRoleReply
                | K::NxFlowRemoved
                | K::NxPacketIn
                | K::NxPacketIn2
                | K::TlvTableReply
                | K::FlowMonitorPaused
                | K::FlowMonitorResumed
                | K::RoleStatus
                | K::TableStatus
                | K::RequestForward
                | K::DescReply
                | K::FlowReply
                | K::AggregateReply
                | K::TableReply
                | K::PortReply
                | K::QueueReply
                | K::GroupReply
                | K::GroupDescReply
                | K::GroupFeaturesReply
                | K::MeterReply
                | K::MeterConfigReply
                | K::MeterFeaturesReply
                | K::TableFeaturesReply
                | K::PortDescReply
                | K::NxFlowReply
                | K::NxAggregateReply
                | K::TableDescReply
                | K::QueueDescReply
                | K::FlowMonitorReply
                | K::FlowCountsReply
        )
    }

    /// Returns true for messages that bundles accept: changes of flows, groups, meters and ports, and packet-outs.
    pub fn is_for_bundles(self) -> bool {
        use MessageKind as K;
        matches!(
            self,
            K::FlowMod | K::NxFlowMod | K::GroupMod | K::NxGroupMod | K::MeterMod | K::PortMod | K::PacketOut
        )
    }
}

/// The numbers that identify a message on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireNumber {
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
    /// A subtype of the Open Networking Foundation's multipart requests.
    OnfRequest(u32),
    /// The same of a reply.
    OnfReply(u32),
}

/// One form of a message on the wire.
#[derive(Debug)]
pub struct Row {
    /// The kind of message.
    pub kind: MessageKind,
    /// The printed name: `OFPT_HELLO`, `OFPST_FLOW reply`.
    pub name: &'static str,
    number: WireNumber,
    first: Version,
    last: Version,
    length: Length,
}

/// Returns all kinds of messages in all versions: several rows of a kind differ in versions, numbers or lengths.
pub fn rows() -> &'static [Row] {
    ROWS
}

impl Row {
    /// Returns true if this version has the row.
    pub fn is_in(&self, version: Version) -> bool {
        self.first <= version && version <= self.last
    }
}

/// The valid lengths of a body: a minimum, plus a multiple of the unit; a unit of 0 means exactly the minimum.
#[derive(Clone, Copy, Debug)]
struct Length {
    min: u16,
    unit: u16,
}

impl Length {
    fn allows(self, len: usize) -> bool {
        len.checked_sub(self.min.into()).is_some_and(|rest| rest.is_multiple_of(self.unit.into()))
    }
}

/// `OFPT_VENDOR`, `OFPT_EXPERIMENTER`.
const TYPE_EXPERIMENTER: u8 = 4;
/// `OFPST_VENDOR`, `OFPST_EXPERIMENTER`.
const STATS_EXPERIMENTER: u16 = 0xffff;
/// `OFPSF_REPLY_MORE`: more replies follow.
const MORE: u16 = 1;

/// The contents of a message's headers.
#[derive(Clone, Debug)]
pub struct Head<'a> {
    /// Version.
    pub version: Version,
    /// Transaction id.
    pub xid: u32,
    /// The message's row.
    pub row: &'static Row,
    /// For statistics: another part follows.
    pub more: bool,
    /// For statistics: unknown flags.
    pub unknown_flags: u16,
    /// The bytes after all headers.
    pub body: Reader<'a>,
}

fn stats_type(version: Version, reply: bool) -> u8 {
    (if version == V10 { 16 } else { 18 }) + u8::from(reply)
}

/// Returns the transaction id of a message; 0 if it is too short to have one.
pub fn xid(msg: &[u8]) -> u32 {
    msg.get(4..8).and_then(|b| b.try_into().ok()).map_or(0, u32::from_be_bytes)
}

/// Sets a message's transaction id, if it is long enough to have one.
pub fn set_xid(msg: &mut [u8], xid: u32) {
    if let Some(place) = msg.get_mut(4..8) {
        place.copy_from_slice(&xid.to_be_bytes());
    }
}

/// Reads the headers of one message, which must be exactly as long as its header says, with a length that is valid for its
/// kind.
pub fn head(msg: &[u8]) -> Result<Head<'_>> {
    let head = headers(msg)?;
    if head.row.length.allows(head.body.len()) { Ok(head) } else { Err(OfpError::BrcBadLen) }
}

/// Returns the printed name of a message, `OFPT_HELLO` or `OFPST_FLOW request`; `None` if its type or its length is invalid.
pub fn name(msg: &[u8]) -> Option<&'static str> {
    head(msg).ok().map(|head| head.row.name)
}

/// `OFPT_FLOW_MOD`, which has this number in all versions, and `OFPT_BUNDLE_ADD_MESSAGE`.
const TYPE_FLOW_MOD: u8 = 14;
const TYPE_BUNDLE_ADD: u8 = 34;

/// Returns false if a message is certainly no flow mod, by itself or in a bundle.
pub fn may_be_flow_mod(msg: &[u8]) -> bool {
    matches!(msg.get(1), Some(&(TYPE_FLOW_MOD | TYPE_BUNDLE_ADD | TYPE_EXPERIMENTER)))
}

/// Does the same as [`head`] without checking the length of the body.
pub(crate) fn headers(msg: &[u8]) -> Result<Head<'_>> {
    let mut r = Reader::new(msg);
    let version = Version::from_wire(r.u8()?).ok_or(OfpError::BrcBadVersion)?;
    let ty = r.u8()?;
    if usize::from(r.u16()?) != msg.len() {
        return Err(OfpError::BrcBadLen);
    }
    let xid = r.u32()?;
    let (mut more, mut unknown_flags) = (false, 0);
    let number = if ty == TYPE_EXPERIMENTER {
        match (r.u32()?, r.u32()?) {
            (NICIRA, subtype) => WireNumber::Nicira(subtype),
            (ONF, subtype) => WireNumber::Onf(subtype),
            _ => return Err(OfpError::BrcBadVendor),
        }
    } else if ty == stats_type(version, false) || ty == stats_type(version, true) {
        let reply = ty == stats_type(version, true);
        let stat = r.u16()?;
        let flags = r.u16()?;
        // OpenFlow 1.3 introduced requests of several parts.
        let known = if reply || version >= Version::V13 { MORE } else { 0 };
        more = flags & known != 0;
        unknown_flags = flags & !known;
        if version != V10 {
            r.skip(4)?;
        }
        match (stat, reply) {
            (STATS_EXPERIMENTER, _) => {
                let experimenter = r.u32()?;
                // Before OpenFlow 1.1 an experimenter's statistics need no type.
                if version == V10 && experimenter != NICIRA {
                    return Err(OfpError::BrcBadVendor);
                }
                let subtype = r.u32()?;
                if version == V10 {
                    r.skip(4)?;
                }
                match (experimenter, reply) {
                    (NICIRA, false) => WireNumber::NiciraRequest(subtype),
                    (NICIRA, true) => WireNumber::NiciraReply(subtype),
                    (ONF, false) => WireNumber::OnfRequest(subtype),
                    (ONF, true) => WireNumber::OnfReply(subtype),
                    _ => return Err(OfpError::BrcBadVendor),
                }
            }
            (_, true) => WireNumber::Reply(stat),
            (_, false) => WireNumber::Request(stat),
        }
    } else {
        WireNumber::Type(ty)
    };
    let row = row_of(number, version);
    let unknown = match number {
        WireNumber::Type(_) => OfpError::BrcBadType,
        WireNumber::Request(_) | WireNumber::Reply(_) => OfpError::BrcBadStat,
        _ => OfpError::BrcBadSubtype,
    };
    Ok(Head { version, xid, row: row.ok_or(unknown)?, more, unknown_flags, body: r })
}

/// Returns the row with these numbers in a version.
fn row_of(number: WireNumber, version: Version) -> Option<&'static Row> {
    /// Rows by version and type: frequent messages have types of their own, which this array finds without a search.
    static BY_TYPE: LazyLock<[[Option<&'static Row>; 64]; Version::ALL.len()]> = LazyLock::new(|| {
        Version::ALL.map(|version| std::array::from_fn(|ty| find_row(WireNumber::Type(ty as u8), version)))
    });
    if let WireNumber::Type(ty @ ..64) = number
        && let Some(rows) = BY_TYPE.get(version as usize - 1)
    {
        return rows[usize::from(ty)];
    }
    find_row(number, version)
}

/// Returns the row of a kind in a version.
fn row_of_kind(kind: MessageKind, version: Version) -> Option<&'static Row> {
    static BY_KIND: LazyLock<[[Option<&'static Row>; 128]; Version::ALL.len()]> = LazyLock::new(|| {
        Version::ALL.map(|version| {
            let mut rows = [None; 128];
            for row in ROWS.iter().rev().filter(|row| row.is_in(version)) {
                rows[row.kind as usize] = Some(row);
            }
            rows
        })
    });
    const _: () = assert!((MessageKind::BundleFeaturesReply as usize) < 128);
    BY_KIND.get(version as usize - 1)?.get(kind as usize).copied()?
}

fn find_row(number: WireNumber, version: Version) -> Option<&'static Row> {
    ROWS.iter().find(|r| r.number == number && r.is_in(version))
}

/// Begins a message of this kind: writes headers with a length of 0. `None` if the version has no such message.
/// [`finish`] ends it.
pub fn begin(version: Version, xid: u32, kind: MessageKind, more: bool) -> Option<Writer> {
    let row = row_of_kind(kind, version)?;
    let mut out = Writer::with_capacity(192);
    let stats = |out: &mut Writer, reply: bool, stat: u16| {
        out.put_u8(stats_type(version, reply));
        out.put_u16(0);
        out.put_u32(xid);
        out.put_u16(stat);
        out.put_u16(if more { MORE } else { 0 });
        out.zeros(if version == V10 { 0 } else { 4 });
    };
    out.put_u8(version.wire());
    match row.number {
        WireNumber::Type(ty) => {
            out.put_u8(ty);
            out.put_u16(0);
            out.put_u32(xid);
        }
        WireNumber::Nicira(subtype) | WireNumber::Onf(subtype) => {
            out.put_u8(TYPE_EXPERIMENTER);
            out.put_u16(0);
            out.put_u32(xid);
            out.put_u32(if matches!(row.number, WireNumber::Onf(_)) { ONF } else { NICIRA });
            out.put_u32(subtype);
        }
        WireNumber::Request(stat) => stats(&mut out, false, stat),
        WireNumber::Reply(stat) => stats(&mut out, true, stat),
        WireNumber::NiciraRequest(subtype)
        | WireNumber::NiciraReply(subtype)
        | WireNumber::OnfRequest(subtype)
        | WireNumber::OnfReply(subtype) => {
            let reply = matches!(row.number, WireNumber::NiciraReply(_) | WireNumber::OnfReply(_));
            let onf = matches!(row.number, WireNumber::OnfRequest(_) | WireNumber::OnfReply(_));
            stats(&mut out, reply, STATS_EXPERIMENTER);
            out.put_u32(if onf { ONF } else { NICIRA });
            out.put_u32(subtype);
            out.zeros(if version == V10 { 4 } else { 0 });
        }
    }
    Some(out)
}

/// Writes the length of a message that [`begin`] began.
///
/// Errors: [`TooLong`] if the message is longer than 65,535 bytes, or a list in it is longer than its length field allows.
pub fn finish(mut out: Writer) -> std::result::Result<Vec<u8>, TooLong> {
    out.set_len16(2, 0);
    out.into_bytes()
}

/// Does the same for a message that ends in data of any length, and cuts it at 65,535 bytes.
///
/// Errors: [`TooLong`] if a list in it is longer than its length field allows.
pub(crate) fn finish_cut(mut out: Writer) -> std::result::Result<Vec<u8>, TooLong> {
    if out.len() > usize::from(u16::MAX) && !out.has_overflowed() {
        out.rewind(u16::MAX.into());
    }
    finish(out)
}

/// Writes the length of a whole message of less than 64 KiB into its header.
pub fn set_length(msg: &mut [u8]) {
    let len = msg.len() as u16;
    if let Some(field) = msg.get_mut(2..4) {
        field.copy_from_slice(&len.to_be_bytes());
    }
}

/// Sets the flag of a finished statistics reply that another part follows.
pub fn set_more(msg: &mut [u8]) {
    if let Some(flags) = msg.get_mut(HEADER_LEN + 2..HEADER_LEN + 4) {
        flags.copy_from_slice(&MORE.to_be_bytes());
    }
}
