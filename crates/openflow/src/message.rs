//! A message as a value, the same for all versions, and its way from and to bytes.
//!
//! What messages contain is read and written by topic: a topic gives `None` for a kind of message that is not its own. A
//! further message is a variant of [`Message`], its [`Kind`], and lines in its topic's `decode` and `encode`.

use crate::Version;
use crate::asynchronous::{AsyncChange, AsyncForm};
use crate::bundle::{BundleAdd, BundleControl};
use crate::controller_status::ControllerStatus;
use crate::ct_flush::CtFlush;
use crate::error::OfpError;
use crate::flow_mod::FlowMod;
use crate::flow_msg::{self, FlowRemoved};
use crate::group::GroupMod;
use crate::meter::MeterMod;
use crate::multipart::{StatsReply, StatsRequest};
use crate::nxm::Unknown;
use crate::packet::{PacketIn, PacketInFormat, PacketOut};
use crate::port::{PortMod, PortStatus};
use crate::queue::QueueGetConfigReply;
use crate::request_forward::RequestForward;
use crate::role::{RoleMsg, RoleStatus};
use crate::switch::{ErrorReport, Features, Hello, SwitchConfig};
use crate::table::{TableMod, TableStatus};
use crate::tlv::{TlvTableMod, TlvTableReply};
use crate::types::{self, Kind};
use crate::wire::{Reader, Result, Writer};
use base::PortNo;

mod asynchronous;
mod changes;
mod session;

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
    /// NXT_RESUME: a packet that a `controller` action with `pause` sent goes on, as it is here.
    Resume(Box<PacketIn>),
    /// A flow is gone.
    FlowRemoved(Form, Box<FlowRemoved>),
    /// A port came, went or changed.
    PortStatus(PortStatus),
    /// The controller's role changed without its asking (OpenFlow 1.4).
    RoleStatus(RoleStatus),
    /// Another controller changed something (OpenFlow 1.4).
    RequestForward(Box<RequestForward>),
    /// A table fills, or no longer (OpenFlow 1.4).
    TableStatus(TableStatus),
    /// Something about a controller changed (OpenFlow 1.5).
    ControllerStatus(Box<ControllerStatus>),
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
    GetAsyncReply(AsyncChange),
    /// Send me these.
    SetAsync(AsyncForm, AsyncChange),
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
    /// Flow monitors tell no more for now: their messages are not taken fast enough.
    FlowMonitorPaused,
    /// Flow monitors tell again.
    FlowMonitorResumed,
    /// Open a bundle, close it, carry it out or forget it; and the reply to that.
    BundleControl(BundleControl),
    /// Keep a message in a bundle.
    BundleAdd(Box<BundleAdd>),
    /// Change which tunnel options fields stand for (Nicira's).
    TlvTableMod(TlvTableMod),
    /// Which do they stand for?
    TlvTableRequest,
    /// These.
    TlvTableReply(TlvTableReply),
    /// NXT_CT_FLUSH_ZONE: forget the tracked connections of this zone.
    CtFlushZone(u16),
    /// NXT_CT_FLUSH: forget these tracked connections.
    CtFlush(Box<CtFlush>),
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
    /// The message is only to be shown: what is not known among a request's properties is passed over, where a switch
    /// refuses it.
    pub shown: bool,
}

impl Options {
    /// What becomes of a request's properties that are not known.
    pub(crate) fn unknown(self) -> Unknown {
        if self.shown { Unknown::Skip } else { Unknown::Refuse }
    }
}

/// How messages are read that are to be shown, which may name a table where there is none.
pub(crate) const SHOWN: Options = Options { flow_mod_table_id: true, shown: true };

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
        let mut r = Reader::new(msg.get(types::HEADER_LEN..).unwrap_or_default());
        return Ok((Version::V15, xid, Message::Hello(Hello::decode(*v, &mut r))));
    }
    let head = types::head(msg).map_err(|error| DecodeError { error, xid, version })?;
    let message = body(&head, options).map_err(|error| DecodeError { error, xid, version })?;
    Ok((head.version, head.xid, message))
}

/// A flow modification, by itself or to be kept in a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowModHead {
    /// Version.
    pub version: Version,
    /// Transaction id.
    pub xid: Xid,
    /// The bundle that it is for, with the flags.
    pub bundle: Option<(u32, u16)>,
}

/// Reads a whole message into `fm` if it is `OFPT_FLOW_MOD`, or `OFPT_BUNDLE_ADD_MESSAGE` around one: these come by the
/// hundred thousand, and this way they take no memory of their own. `None` for other messages, and for those that
/// [`decode_with`] fails on; `fm` is anything then.
pub fn decode_flow_mod_into(msg: &[u8], options: Options, fm: &mut FlowMod) -> Option<FlowModHead> {
    let head = types::head(msg).ok()?;
    let (inner, bundle) = match head.row.kind {
        Kind::FlowMod => (head.clone(), None),
        Kind::BundleAdd => {
            let (bundle, inner) = BundleAdd::open(head.version, head.xid, &mut head.body.clone()).ok()?;
            (types::head(inner).ok()?, Some(bundle))
        }
        _ => return None,
    };
    if inner.row.kind != Kind::FlowMod {
        return None;
    }
    let mut body = inner.body;
    flow_msg::decode_flow_mod(inner.version, options.flow_mod_table_id, &mut body, fm).ok()?;
    body.is_empty().then_some(FlowModHead { version: head.version, xid: head.xid, bundle })
}

/// Of a message with a list in which an entry cannot be read: the message with those before it, and how many bytes they
/// have.
pub(crate) fn before_error(msg: &[u8]) -> Option<(Message, usize)> {
    let head = types::headers(msg).ok()?;
    let mut r = head.body.clone();
    let read = match head.row.kind {
        Kind::FeaturesReply => Features::decode(head.version, &mut r).map(drop),
        Kind::QueueGetConfigReply => QueueGetConfigReply::decode(head.version, &mut r).map(drop),
        kind @ (Kind::TableFeaturesRequest | Kind::FlowMonitorRequest) => {
            StatsRequest::decode(kind, head.version, SHOWN.unknown(), &mut r)?.map(drop)
        }
        kind => StatsReply::decode(kind, head.version, &mut r)?.map(drop),
    };
    read.err()?;
    let mut before = msg.get(..msg.len() - r.len())?.to_vec();
    types::set_length(&mut before);
    let head = types::headers(&before).ok()?;
    let used = head.body.len();
    Some((body(&head, SHOWN).ok()?, used))
}

/// What reading and writing a body depends on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    pub(crate) version: Version,
    pub(crate) xid: Xid,
    pub(crate) options: Options,
}

/// Reads a body: each topic knows its kinds.
fn body(head: &types::Head<'_>, options: Options) -> Result<Message> {
    let cx = Context { version: head.version, xid: head.xid, options };
    let (kind, more) = (head.row.kind, head.more);
    let r = &mut head.body.clone();
    let message = session::decode(kind, cx, r)
        .or_else(|| changes::decode(kind, cx, r))
        .or_else(|| asynchronous::decode(kind, cx, r))
        .or_else(|| {
            let request = StatsRequest::decode(kind, cx.version, options.unknown(), r)?;
            Some(request.map(|body| Message::StatsRequest { more, body }))
        })
        .or_else(|| Some(StatsReply::decode(kind, cx.version, r)?.map(|body| Message::StatsReply { more, body })))
        .unwrap_or(Err(OfpError::BrcBadType))?;
    r.finish()?;
    Ok(message)
}

/// Takes the message that another one is around off the front of `r`. What comes after it is properties, of which none is
/// known.
pub(crate) fn take_inner<'a>(r: &mut Reader<'a>) -> Result<&'a [u8]> {
    let rest = r.rest();
    let length = rest.get(2..4).and_then(|b| b.try_into().ok()).map_or(0, u16::from_be_bytes).into();
    rest.get(..length).filter(|inner| inner.len() >= types::HEADER_LEN).ok_or(OfpError::BfcMsgBadLen)
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
            Self::Resume(_) => Kind::NxResume,
            Self::FlowRemoved(Standard, _) => Kind::FlowRemoved,
            Self::FlowRemoved(Nicira, _) => Kind::NxFlowRemoved,
            Self::PortStatus(_) => Kind::PortStatus,
            Self::RoleStatus(_) => Kind::RoleStatus,
            Self::RequestForward(_) => Kind::RequestForward,
            Self::TableStatus(_) => Kind::TableStatus,
            Self::ControllerStatus(_) => Kind::ControllerStatus,
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
            Self::SetAsync(form, _) => form.kind(),
            Self::SetFlowFormat(_) => Kind::NxSetFlowFormat,
            Self::FlowModTableId(_) => Kind::NxFlowModTableId,
            Self::SetPacketInFormat(_) => Kind::NxSetPacketInFormat,
            Self::FlowAge => Kind::NxFlowAge,
            Self::SetControllerId(_) => Kind::NxSetControllerId,
            Self::FlowMonitorCancel(_) => Kind::FlowMonitorCancel,
            Self::FlowMonitorPaused => Kind::FlowMonitorPaused,
            Self::FlowMonitorResumed => Kind::FlowMonitorResumed,
            Self::BundleControl(_) => Kind::BundleControl,
            Self::BundleAdd(_) => Kind::BundleAdd,
            Self::TlvTableMod(_) => Kind::TlvTableMod,
            Self::TlvTableRequest => Kind::TlvTableRequest,
            Self::TlvTableReply(_) => Kind::TlvTableReply,
            Self::CtFlushZone(_) => Kind::NxCtFlushZone,
            Self::CtFlush(_) => Kind::NxCtFlush,
            Self::StatsRequest { body, .. } => body.kind(),
            Self::StatsReply { body, .. } => body.kind(),
        }
    }
}

/// Writes a message. A statistics reply must fit into one message; [`StatsReply::encode`] and
/// [`ReplyWriter`](crate::multipart::ReplyWriter) split longer ones. Empty if `version` has no such message, or if
/// the message, or a list in it, does not fit into its length field.
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
    let cx = Context { version, xid, options };
    let written = session::encode(message, cx, out)
        || changes::encode(message, cx, out)
        || asynchronous::encode(message, cx, out)
        || stats_encode(message, cx, out);
    debug_assert!(written, "no topic knows {message:?}");
    if ends_in_data(message) { types::finish_cut(msg) } else { types::finish(msg).unwrap_or_default() }
}

/// Returns true if a message ends in bytes that may be cut: those of a packet, or of the message that an error quotes.
fn ends_in_data(message: &Message) -> bool {
    match message {
        Message::PacketIn(format, _) => *format != PacketInFormat::Nxt2,
        Message::Error(_) | Message::EchoRequest(_) | Message::EchoReply(_) => true,
        _ => false,
    }
}

/// Writes `OFPT_FLOW_MOD` or `NXT_FLOW_MOD` on a connection with these options. Empty if `version` has no such message, or if it is too long.
pub fn encode_flow_mod(version: Version, xid: Xid, form: Form, fm: &FlowMod, options: Options) -> Vec<u8> {
    let kind = if form == Form::Nicira { Kind::NxFlowMod } else { Kind::FlowMod };
    let Some(mut msg) = types::begin(version, xid, kind, false) else { return Vec::new() };
    match form {
        Form::Standard => flow_msg::encode_flow_mod(fm, version, options.flow_mod_table_id, &mut msg),
        Form::Nicira => flow_msg::encode_nx_flow_mod(fm, version, options.flow_mod_table_id, &mut msg),
    }
    types::finish(msg).unwrap_or_default()
}

fn stats_encode(message: &Message, cx: Context, out: &mut Writer) -> bool {
    if let Message::StatsRequest { body, .. } = message {
        body.encode(cx.version, out);
        return true;
    }
    false
}

#[cfg(test)]
mod tests;
