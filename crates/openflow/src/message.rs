//! A message as a value, the same for all versions, and its way from and to bytes.

use crate::Version::{self};
use crate::bundle::{BundleAdd, BundleControl};
use crate::error::OfpError;
use crate::flow_mod::FlowMod;
use crate::flow_msg::{self, FlowRemoved};
use crate::group::{GroupMod, MeterMod};
use crate::multipart::{StatsReply, StatsRequest};
use crate::packet::{PacketIn, PacketInFormat, PacketOut};
use crate::port::{PortMod, PortStatus, put_port, read_port};
use crate::queue::QueueGetConfigReply;
use crate::switch::{AsyncConfig, ErrorReport, Features, Hello, RoleMsg, SwitchConfig, TableMod};
use crate::types::{self, Kind};
use crate::wire::{Put, Reader, Result};
use base::PortNo;

/// Transaction id.
pub type Xid = u32;

/// Which form a message has where OpenFlow and Nicira both have one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Form {
    /// OpenFlow's.
    Standard,
    /// Nicira's.
    Nicira,
}

/// An OpenFlow message.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(clippy::large_enum_variant, reason = "messages are handled one at a time, and requests are what is asked most")]
pub enum Message {
    /// The first message of each side.
    Hello(Hello),
    /// An error report.
    Error(ErrorReport),
    /// Are you there?
    EchoRequest(Vec<u8>),
    /// Yes, with the bytes of the request.
    EchoReply(Vec<u8>),
    /// What are you?
    FeaturesRequest,
    /// This.
    FeaturesReply(Box<Features>),
    /// How are you configured?
    GetConfigRequest,
    /// Like this.
    GetConfigReply(SwitchConfig),
    /// Be configured like this.
    SetConfig(SwitchConfig),
    /// A packet for the controller.
    PacketIn(PacketInFormat, Box<PacketIn>),
    /// A flow is gone.
    FlowRemoved(Form, Box<FlowRemoved>),
    /// A port came, went or changed.
    PortStatus(PortStatus),
    /// Send a packet.
    PacketOut(PacketOut),
    /// Change flows.
    FlowMod(Form, Box<FlowMod>),
    /// Change groups.
    GroupMod(GroupMod),
    /// Change a port.
    PortMod(PortMod),
    /// Change a table.
    TableMod(TableMod),
    /// Change meters.
    MeterMod(MeterMod),
    /// Say when all before is done.
    BarrierRequest,
    /// It is.
    BarrierReply,
    /// Which queues has this port?
    QueueGetConfigRequest(PortNo),
    /// These.
    QueueGetConfigReply(QueueGetConfigReply),
    /// Let me have this role.
    RoleRequest(Form, RoleMsg),
    /// You have it.
    RoleReply(Form, RoleMsg),
    /// Which asynchronous messages do I get?
    GetAsyncRequest,
    /// These.
    GetAsyncReply(AsyncConfig),
    /// Send me these.
    SetAsync(Form, AsyncConfig),
    /// NXT_SET_FLOW_FORMAT: 0 for OpenFlow 1.0, 2 for NXM.
    SetFlowFormat(u32),
    /// NXT_FLOW_MOD_TABLE_ID: flow modifications name their table from now on, or no longer.
    FlowModTableId(bool),
    /// NXT_SET_PACKET_IN_FORMAT.
    SetPacketInFormat(PacketInFormat),
    /// NXT_FLOW_AGE: flow statistics tell ages.
    FlowAge,
    /// NXT_SET_CONTROLLER_ID.
    SetControllerId(u16),
    /// NXT_FLOW_MONITOR_CANCEL of the monitor of this number.
    FlowMonitorCancel(u32),
    /// Open a bundle, close it, carry it out or forget it; and the reply to that.
    BundleControl(BundleControl),
    /// Keep a message in a bundle.
    BundleAdd(Box<BundleAdd>),
    /// Ask for statistics. `more`: the request has further parts (OpenFlow 1.3).
    StatsRequest {
        /// Whether a further part follows.
        more: bool,
        /// What is asked.
        body: StatsRequest,
    },
    /// Statistics.
    StatsReply {
        /// Whether a further part follows.
        more: bool,
        /// This part.
        body: StatsReply,
    },
}

/// What a connection agreed on that changes how bytes are read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Flow modifications in OpenFlow 1.0 name their table (NXT_FLOW_MOD_TABLE_ID).
    pub flow_mod_table_id: bool,
}

/// A message that cannot be understood.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{error}")]
pub struct DecodeError {
    /// What is wrong with it: what a switch answers.
    pub error: OfpError,
    /// Its transaction id, 0 if it is too short to have one.
    pub xid: Xid,
    /// Its version, if that is a known one.
    pub version: Option<Version>,
}

/// Reads one whole message. Flow modifications of OpenFlow 1.0 are read without the table_id extension.
pub fn decode(msg: &[u8]) -> std::result::Result<(Version, Xid, Message), DecodeError> {
    decode_with(msg, Options::default())
}

/// Reads one whole message on a connection with these options.
pub fn decode_with(msg: &[u8], options: Options) -> std::result::Result<(Version, Xid, Message), DecodeError> {
    let version = msg.first().and_then(|v| Version::from_wire(*v));
    let xid = types::xid(msg);
    // HELLO is read in any version: it is what leads to a common one.
    if let [v, 0, ..] = msg
        && version.is_none()
        && *v != 0
    {
        let mut r = Reader(msg.get(types::HEADER_LEN..).unwrap_or_default());
        return Ok((Version::V15, xid, Message::Hello(Hello::decode(*v, &mut r))));
    }
    let head = types::head(msg).map_err(|error| DecodeError { error, xid, version })?;
    let message = body(&head, options).map_err(|error| DecodeError { error, xid, version })?;
    Ok((head.version, head.xid, message))
}

fn bytes(r: &mut Reader<'_>) -> Vec<u8> {
    r.rest().to_vec()
}

fn body(head: &types::Head<'_>, options: Options) -> Result<Message> {
    use Message as M;
    let v = head.version;
    let tid = options.flow_mod_table_id;
    let r = &mut head.body.clone();
    let message = match head.row.kind {
        Kind::Hello => M::Hello(Hello::decode(v.wire(), r)),
        Kind::Error => M::Error(ErrorReport::decode(v, r)?),
        Kind::EchoRequest => M::EchoRequest(bytes(r)),
        Kind::EchoReply => M::EchoReply(bytes(r)),
        Kind::FeaturesRequest => M::FeaturesRequest,
        Kind::FeaturesReply => M::FeaturesReply(Box::new(Features::decode(v, r)?)),
        Kind::GetConfigRequest => M::GetConfigRequest,
        Kind::GetConfigReply => M::GetConfigReply(SwitchConfig::decode(v, r)?),
        Kind::SetConfig => M::SetConfig(SwitchConfig::decode(v, r)?),
        Kind::PacketIn => M::PacketIn(PacketInFormat::Standard, Box::new(PacketIn::decode(v, r)?)),
        Kind::NxPacketIn => M::PacketIn(PacketInFormat::Nxt, Box::new(PacketIn::decode_nxt(r)?)),
        Kind::NxPacketIn2 => M::PacketIn(PacketInFormat::Nxt2, Box::new(PacketIn::decode_nxt2(v, r)?)),
        Kind::FlowRemoved => M::FlowRemoved(Form::Standard, Box::new(FlowRemoved::decode(v, r)?)),
        Kind::NxFlowRemoved => M::FlowRemoved(Form::Nicira, Box::new(FlowRemoved::decode_nx(r)?)),
        Kind::PortStatus => M::PortStatus(PortStatus::decode(v, r)?),
        Kind::PacketOut => M::PacketOut(PacketOut::decode(v, r)?),
        Kind::FlowMod => M::FlowMod(Form::Standard, Box::new(flow_msg::decode_flow_mod(v, tid, r)?)),
        Kind::NxFlowMod => M::FlowMod(Form::Nicira, Box::new(flow_msg::decode_nx_flow_mod(v, tid, r)?)),
        Kind::GroupMod => M::GroupMod(GroupMod::decode(v, Form::Standard, r)?),
        Kind::NxGroupMod => M::GroupMod(GroupMod::decode(v, Form::Nicira, r)?),
        Kind::PortMod => M::PortMod(PortMod::decode(v, r)?),
        Kind::TableMod => M::TableMod(decode_table_mod(r)?),
        Kind::MeterMod => M::MeterMod(MeterMod::decode(r)?),
        Kind::BarrierRequest => M::BarrierRequest,
        Kind::BarrierReply => M::BarrierReply,
        Kind::QueueGetConfigRequest => {
            let port = read_port(v, r)?;
            r.skip(if v == Version::V10 { 2 } else { 4 })?;
            M::QueueGetConfigRequest(port)
        }
        Kind::QueueGetConfigReply => M::QueueGetConfigReply(QueueGetConfigReply::decode(v, r)?),
        Kind::RoleRequest => M::RoleRequest(Form::Standard, RoleMsg::decode(r)?),
        Kind::RoleReply => M::RoleReply(Form::Standard, RoleMsg::decode(r)?),
        Kind::NxRoleRequest => M::RoleRequest(Form::Nicira, RoleMsg::decode_nx(r)?),
        Kind::NxRoleReply => M::RoleReply(Form::Nicira, RoleMsg::decode_nx(r)?),
        Kind::GetAsyncRequest => M::GetAsyncRequest,
        Kind::GetAsyncReply => M::GetAsyncReply(AsyncConfig::decode(r)?),
        Kind::SetAsync => M::SetAsync(Form::Standard, AsyncConfig::decode(r)?),
        Kind::NxSetAsyncConfig => M::SetAsync(Form::Nicira, AsyncConfig::decode(r)?),
        Kind::NxSetFlowFormat => M::SetFlowFormat(r.u32()?),
        Kind::NxFlowModTableId => {
            let set = r.u8()?;
            r.skip(7)?;
            M::FlowModTableId(set != 0)
        }
        Kind::NxSetPacketInFormat => {
            M::SetPacketInFormat(PacketInFormat::from_wire(r.u32()?).ok_or(OfpError::BrcEperm)?)
        }
        Kind::NxFlowAge => M::FlowAge,
        Kind::NxSetControllerId => {
            if r.array::<6>()? != [0; 6] {
                return Err(OfpError::NxbrcMustBeZero);
            }
            M::SetControllerId(r.u16()?)
        }
        Kind::NxFlowMonitorCancel => M::FlowMonitorCancel(r.u32()?),
        Kind::BundleControl => M::BundleControl(BundleControl::decode(r)?),
        Kind::BundleAdd => M::BundleAdd(Box::new(BundleAdd::decode(head.xid, options, r)?)),
        kind => {
            let stats = StatsRequest::decode(kind, v, r)
                .map(|q| q.map(|body| M::StatsRequest { more: head.more, body }))
                .or_else(|| {
                    StatsReply::decode(kind, v, r).map(|a| a.map(|body| M::StatsReply { more: head.more, body }))
                });
            stats.unwrap_or(Err(OfpError::BrcBadStat))?
        }
    };
    r.finish()?;
    Ok(message)
}

fn decode_table_mod(r: &mut Reader<'_>) -> Result<TableMod> {
    let table_id = r.u8()?;
    r.skip(3)?;
    Ok(TableMod { table_id, config: r.u32()? })
}

impl Message {
    /// Which message this is. (Of a change to groups, Nicira's form is a kind of its own, but that depends on the version.)
    pub fn kind(&self) -> Kind {
        use Form::{Nicira, Standard};
        match self {
            Self::Hello(_) => Kind::Hello,
            Self::Error(_) => Kind::Error,
            Self::EchoRequest(_) => Kind::EchoRequest,
            Self::EchoReply(_) => Kind::EchoReply,
            Self::FeaturesRequest => Kind::FeaturesRequest,
            Self::FeaturesReply(_) => Kind::FeaturesReply,
            Self::GetConfigRequest => Kind::GetConfigRequest,
            Self::GetConfigReply(_) => Kind::GetConfigReply,
            Self::SetConfig(_) => Kind::SetConfig,
            Self::PacketIn(PacketInFormat::Standard, _) => Kind::PacketIn,
            Self::PacketIn(PacketInFormat::Nxt, _) => Kind::NxPacketIn,
            Self::PacketIn(PacketInFormat::Nxt2, _) => Kind::NxPacketIn2,
            Self::FlowRemoved(Standard, _) => Kind::FlowRemoved,
            Self::FlowRemoved(Nicira, _) => Kind::NxFlowRemoved,
            Self::PortStatus(_) => Kind::PortStatus,
            Self::PacketOut(_) => Kind::PacketOut,
            Self::FlowMod(Standard, _) => Kind::FlowMod,
            Self::FlowMod(Nicira, _) => Kind::NxFlowMod,
            Self::GroupMod(_) => Kind::GroupMod,
            Self::PortMod(_) => Kind::PortMod,
            Self::TableMod(_) => Kind::TableMod,
            Self::MeterMod(_) => Kind::MeterMod,
            Self::BarrierRequest => Kind::BarrierRequest,
            Self::BarrierReply => Kind::BarrierReply,
            Self::QueueGetConfigRequest(_) => Kind::QueueGetConfigRequest,
            Self::QueueGetConfigReply(_) => Kind::QueueGetConfigReply,
            Self::RoleRequest(Standard, _) => Kind::RoleRequest,
            Self::RoleRequest(Nicira, _) => Kind::NxRoleRequest,
            Self::RoleReply(Standard, _) => Kind::RoleReply,
            Self::RoleReply(Nicira, _) => Kind::NxRoleReply,
            Self::GetAsyncRequest => Kind::GetAsyncRequest,
            Self::GetAsyncReply(_) => Kind::GetAsyncReply,
            Self::SetAsync(Standard, _) => Kind::SetAsync,
            Self::SetAsync(Nicira, _) => Kind::NxSetAsyncConfig,
            Self::SetFlowFormat(_) => Kind::NxSetFlowFormat,
            Self::FlowModTableId(_) => Kind::NxFlowModTableId,
            Self::SetPacketInFormat(_) => Kind::NxSetPacketInFormat,
            Self::FlowAge => Kind::NxFlowAge,
            Self::SetControllerId(_) => Kind::NxSetControllerId,
            Self::FlowMonitorCancel(_) => Kind::NxFlowMonitorCancel,
            Self::BundleControl(_) => Kind::BundleControl,
            Self::BundleAdd(_) => Kind::BundleAdd,
            Self::StatsRequest { body, .. } => body.kind(),
            Self::StatsReply { body, .. } => body.kind(),
        }
    }
}

/// Writes a message. A statistics reply must fit into one message; [`StatsReply::encode`] and
/// [`ReplyWriter`](crate::multipart::ReplyWriter) split longer ones. Empty if `version` has no such message.
pub fn encode(version: Version, xid: Xid, message: &Message) -> Vec<u8> {
    encode_with(version, xid, message, Options::default())
}

/// Writes a message on a connection with these options.
pub fn encode_with(version: Version, xid: Xid, message: &Message, options: Options) -> Vec<u8> {
    let v = version;
    if let Message::StatsReply { more, body } = message {
        let mut msg = body.encode(v, xid).into_iter().next().unwrap_or_default();
        if *more {
            types::set_more(&mut msg);
        }
        return msg;
    }
    let more = matches!(message, Message::StatsRequest { more: true, .. });
    let kind = match message {
        Message::GroupMod(m) if m.form(v) == Form::Nicira => Kind::NxGroupMod,
        _ => message.kind(),
    };
    let Some(mut msg) = types::begin(v, xid, kind, more) else { return Vec::new() };
    let out = &mut msg;
    put_body(message, v, xid, options, out);
    types::finish(out);
    msg
}

fn put_body(message: &Message, v: Version, xid: Xid, options: Options, out: &mut Vec<u8>) {
    use Message as M;
    let tid = options.flow_mod_table_id;
    match message {
        M::Hello(m) => m.encode(v, out),
        M::Error(m) => m.encode(v, out),
        M::EchoRequest(data) | M::EchoReply(data) => out.put(data),
        M::FeaturesReply(m) => m.encode(v, out),
        M::GetConfigReply(m) | M::SetConfig(m) => m.encode(v, out),
        M::PacketIn(PacketInFormat::Standard, m) => m.encode(v, out),
        M::PacketIn(PacketInFormat::Nxt, m) => m.encode_nxt(v, out),
        M::PacketIn(PacketInFormat::Nxt2, m) => m.encode_nxt2(v, out),
        M::FlowRemoved(Form::Standard, m) => m.encode(v, out),
        M::FlowRemoved(Form::Nicira, m) => m.encode_nx(out),
        M::PortStatus(m) => m.encode(v, out),
        M::PacketOut(m) => m.encode(v, out),
        M::FlowMod(Form::Standard, m) => flow_msg::encode_flow_mod(m, v, tid, out),
        M::FlowMod(Form::Nicira, m) => flow_msg::encode_nx_flow_mod(m, v, tid, out),
        M::GroupMod(m) => m.encode(v, out),
        M::PortMod(m) => m.encode(v, out),
        M::TableMod(m) => {
            out.put_u8(m.table_id);
            out.zeros(3);
            out.put_u32(m.config);
        }
        M::MeterMod(m) => m.encode(out),
        M::QueueGetConfigRequest(port) => {
            put_port(out, v, *port);
            out.zeros(if v == Version::V10 { 2 } else { 4 });
        }
        M::QueueGetConfigReply(m) => m.encode(v, out),
        M::RoleRequest(Form::Standard, m) | M::RoleReply(Form::Standard, m) => m.encode(out),
        M::RoleRequest(Form::Nicira, m) | M::RoleReply(Form::Nicira, m) => m.encode_nx(out),
        M::GetAsyncReply(m) | M::SetAsync(_, m) => m.encode(out),
        M::SetFlowFormat(n) | M::FlowMonitorCancel(n) => out.put_u32(*n),
        M::FlowModTableId(on) => {
            out.put_u8((*on).into());
            out.zeros(7);
        }
        M::SetPacketInFormat(format) => out.put_u32(*format as u32),
        M::SetControllerId(id) => {
            out.zeros(6);
            out.put_u16(*id);
        }
        M::BundleControl(m) => m.encode(out),
        M::BundleAdd(m) => m.encode(v, xid, options, out),
        M::StatsRequest { body, .. } => body.encode(v, out),
        M::StatsReply { .. }
        | M::FeaturesRequest
        | M::GetConfigRequest
        | M::BarrierRequest
        | M::BarrierReply
        | M::GetAsyncRequest
        | M::FlowAge => {}
    }
}

#[cfg(test)]
mod tests;
