//! A message as a value, the same for all versions, and its way from and to bytes.
//!
//! Submodules read and write the messages' contents, by topic; a topic returns `None` for a kind of message that is not its
//! own. A further message is a variant of [`Message`], its [`MessageKind`], and lines in its topic's `decode` and `encode`.

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
use crate::types::{self, MessageKind};
use crate::wire::{OptionLengths, Reader, Result, TooLong, Writer};
use base::PortNo;

mod asynchronous;
mod changes;
mod session;

/// Transaction id.
pub type Xid = u32;

/// The form of a message for which both OpenFlow and Nicira have one.
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
    /// OFPT_ECHO_REQUEST: checks that the peer is alive.
    EchoRequest(Vec<u8>),
    /// OFPT_ECHO_REPLY, with the bytes of the request.
    EchoReply(Vec<u8>),
    /// Asks for the switch's features.
    FeaturesRequest,
    /// The switch's features.
    FeaturesReply(Box<Features>),
    /// Asks for the switch's configuration.
    GetConfigRequest,
    /// The switch's configuration.
    GetConfigReply(SwitchConfig),
    /// Sets the switch's configuration.
    SetConfig(SwitchConfig),
    /// A packet for the controller.
    PacketIn(PacketInFormat, Box<PacketIn>),
    /// NXT_RESUME: resumes a packet that a `controller` action with `pause` sent, with this state.
    Resume(Box<PacketIn>),
    /// A flow was removed.
    FlowRemoved(Form, Box<FlowRemoved>),
    /// A port was added, removed or changed.
    PortStatus(PortStatus),
    /// The controller's role changed without a request of its own (OpenFlow 1.4).
    RoleStatus(RoleStatus),
    /// Another controller changed groups or meters (OpenFlow 1.4).
    RequestForward(Box<RequestForward>),
    /// A table's vacancy crossed a threshold (OpenFlow 1.4).
    TableStatus(TableStatus),
    /// A controller's state changed (OpenFlow 1.5).
    ControllerStatus(Box<ControllerStatus>),
    /// Send a packet.
    PacketOut(PacketOut),
    /// Changes flows.
    FlowMod(Form, Box<FlowMod>),
    /// Changes groups.
    GroupMod(GroupMod),
    /// Changes a port.
    PortMod(PortMod),
    /// Changes a table.
    TableMod(TableMod),
    /// Changes meters.
    MeterMod(MeterMod),
    /// Asks for a reply when all earlier messages are processed.
    BarrierRequest,
    /// The switch has processed all messages before the request.
    BarrierReply,
    /// Asks for the queues of a port.
    QueueGetConfigRequest(PortNo),
    /// The queues of a port.
    QueueGetConfigReply(QueueGetConfigReply),
    /// Asks for a role.
    RoleRequest(Form, RoleMsg),
    /// The controller's role.
    RoleReply(Form, RoleMsg),
    /// Asks for the filter of asynchronous messages.
    GetAsyncRequest,
    /// The filter of asynchronous messages.
    GetAsyncReply(AsyncChange),
    /// Sets the filter of asynchronous messages.
    SetAsync(AsyncForm, AsyncChange),
    /// NXT_SET_FLOW_FORMAT: 0 for OpenFlow 1.0, 2 for NXM.
    SetFlowFormat(u32),
    /// NXT_FLOW_MOD_TABLE_ID: flow modifications name their table from now on, or no longer.
    FlowModTableId(bool),
    /// NXT_SET_PACKET_IN_FORMAT.
    SetPacketInFormat(PacketInFormat),
    /// NXT_FLOW_AGE: flow statistics include ages.
    FlowAge,
    /// NXT_SET_CONTROLLER_ID.
    SetControllerId(u16),
    /// NXT_FLOW_MONITOR_CANCEL of the monitor of this number.
    FlowMonitorCancel(u32),
    /// The switch pauses flow monitors, because the controller reads their messages too slowly.
    FlowMonitorPaused,
    /// The switch resumes flow monitors.
    FlowMonitorResumed,
    /// Opens, closes, commits or discards a bundle; also the reply.
    BundleControl(BundleControl),
    /// Adds a message to a bundle.
    BundleAdd(Box<BundleAdd>),
    /// Changes the mapping of fields to tunnel options (Nicira's).
    TlvTableMod(TlvTableMod),
    /// Asks for the mapping of fields to tunnel options.
    TlvTableRequest,
    /// The mapping of fields to tunnel options.
    TlvTableReply(TlvTableReply),
    /// NXT_CT_FLUSH_ZONE: flushes the tracked connections of this zone.
    CtFlushZone(u16),
    /// NXT_CT_FLUSH: flushes the matching tracked connections.
    CtFlush(Box<CtFlush>),
    /// A statistics request. `more`: further parts of the request follow (OpenFlow 1.3).
    StatsRequest {
        /// True if a further part follows.
        more: bool,
        /// The request.
        body: StatsRequest,
    },
    /// A statistics reply.
    StatsReply {
        /// True if a further part follows.
        more: bool,
        /// The contents of this part.
        body: StatsReply,
    },
}

/// Settings of a connection that change how bytes are read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Flow mods in OpenFlow 1.0 name their table (NXT_FLOW_MOD_TABLE_ID).
    pub flow_mod_table_id: bool,
    /// The message is only to be printed: unknown properties of a request are skipped, where a switch refuses them.
    pub shown: bool,
    /// The lengths to which the switch that sends the message maps tunnel options.
    pub option_lengths: OptionLengths,
}

impl Options {
    /// The treatment of unknown properties of a request.
    pub(crate) fn unknown(self) -> Unknown {
        if self.shown { Unknown::Skip } else { Unknown::Refuse }
    }
}

/// The options for messages that are only printed, whose flow mods may name a table even without the extension.
pub(crate) const SHOWN: Options = Options { flow_mod_table_id: true, shown: true, option_lengths: OptionLengths::NONE };

/// A message that cannot be decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{error}")]
pub struct DecodeError {
    /// The error with which a switch replies.
    pub error: OfpError,
    /// Its transaction id, 0 if the message is too short to have one.
    pub xid: Xid,
    /// Its version, if known.
    pub version: Option<Version>,
}

/// Decodes one whole message. Flow mods of OpenFlow 1.0 are read without the table_id extension.
pub fn decode(msg: &[u8]) -> std::result::Result<(Version, Xid, Message), DecodeError> {
    decode_with(msg, Options::default())
}

/// Decodes one whole message on a connection with these options.
pub fn decode_with(msg: &[u8], options: Options) -> std::result::Result<(Version, Xid, Message), DecodeError> {
    let version = msg.first().and_then(|v| Version::from_wire(*v));
    let xid = types::xid(msg);
    // HELLO is decoded in any version, as it negotiates the common one.
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

/// The headers of a flow mod, which may be part of a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlowModHead {
    /// Version.
    pub version: Version,
    /// Transaction id.
    pub xid: Xid,
    /// The bundle that it belongs to, and the bundle's flags.
    pub bundle: Option<(u32, u16)>,
}

/// Decodes a whole message into `fm` if it is `OFPT_FLOW_MOD`, or `OFPT_BUNDLE_ADD_MESSAGE` around one. Flow mods come by the
/// hundred thousand, and decoding them in place allocates no memory for each. `None` for other messages, and if
/// [`decode_with`] fails; the contents of `fm` are unspecified then.
pub fn decode_flow_mod_into(msg: &[u8], options: Options, fm: &mut FlowMod) -> Option<FlowModHead> {
    let head = types::head(msg).ok()?;
    let (inner, bundle) = match head.row.kind {
        MessageKind::FlowMod => (head.clone(), None),
        MessageKind::BundleAdd => {
            let (bundle, inner) = BundleAdd::open(head.version, head.xid, &mut head.body.clone()).ok()?;
            (types::head(inner).ok()?, Some(bundle))
        }
        _ => return None,
    };
    if inner.row.kind != MessageKind::FlowMod {
        return None;
    }
    let mut body = inner.body;
    flow_msg::decode_flow_mod(inner.version, options.flow_mod_table_id, &mut body, fm).ok()?;
    body.is_empty().then_some(FlowModHead { version: head.version, xid: head.xid, bundle })
}

/// Decodes a message with a list in which an entry is malformed: returns the message with the entries before that one, and
/// the number of bytes that they take.
pub(crate) fn before_error(msg: &[u8]) -> Option<(Message, usize)> {
    let head = types::headers(msg).ok()?;
    let mut r = head.body.clone();
    let read = match head.row.kind {
        MessageKind::FeaturesReply => Features::decode(head.version, &mut r).map(drop),
        MessageKind::QueueGetConfigReply => QueueGetConfigReply::decode(head.version, &mut r).map(drop),
        kind @ (MessageKind::TableFeaturesRequest | MessageKind::FlowMonitorRequest) => {
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

/// The connection's parameters for reading and writing a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    pub(crate) version: Version,
    pub(crate) xid: Xid,
    pub(crate) options: Options,
}

/// Decodes a body: passes it to each topic in turn.
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

/// Takes the inner message off the front of `r`. The rest is properties, none of which are known.
pub(crate) fn take_inner<'a>(r: &mut Reader<'a>) -> Result<&'a [u8]> {
    let rest = r.rest();
    let length = rest.get(2..4).and_then(|b| b.try_into().ok()).map_or(0, u16::from_be_bytes).into();
    rest.get(..length).filter(|inner| inner.len() >= types::HEADER_LEN).ok_or(OfpError::BfcMsgBadLen)
}

impl Message {
    /// Returns the kind of message. (Nicira's form of a group mod is a kind of its own, but that depends on the version.)
    pub fn kind(&self) -> MessageKind {
        use Form::{Nicira, Standard};
        match self {
            Self::Hello(_) => MessageKind::Hello,
            Self::Error(_) => MessageKind::Error,
            Self::EchoRequest(_) => MessageKind::EchoRequest,
            Self::EchoReply(_) => MessageKind::EchoReply,
            Self::FeaturesRequest => MessageKind::FeaturesRequest,
            Self::FeaturesReply(_) => MessageKind::FeaturesReply,
            Self::GetConfigRequest => MessageKind::GetConfigRequest,
            Self::GetConfigReply(_) => MessageKind::GetConfigReply,
            Self::SetConfig(_) => MessageKind::SetConfig,
            Self::PacketIn(PacketInFormat::Standard, _) => MessageKind::PacketIn,
            Self::PacketIn(PacketInFormat::Nxt, _) => MessageKind::NxPacketIn,
            Self::PacketIn(PacketInFormat::Nxt2, _) => MessageKind::NxPacketIn2,
            Self::Resume(_) => MessageKind::NxResume,
            Self::FlowRemoved(Standard, _) => MessageKind::FlowRemoved,
            Self::FlowRemoved(Nicira, _) => MessageKind::NxFlowRemoved,
            Self::PortStatus(_) => MessageKind::PortStatus,
            Self::RoleStatus(_) => MessageKind::RoleStatus,
            Self::RequestForward(_) => MessageKind::RequestForward,
            Self::TableStatus(_) => MessageKind::TableStatus,
            Self::ControllerStatus(_) => MessageKind::ControllerStatus,
            Self::PacketOut(_) => MessageKind::PacketOut,
            Self::FlowMod(Standard, _) => MessageKind::FlowMod,
            Self::FlowMod(Nicira, _) => MessageKind::NxFlowMod,
            Self::GroupMod(_) => MessageKind::GroupMod,
            Self::PortMod(_) => MessageKind::PortMod,
            Self::TableMod(_) => MessageKind::TableMod,
            Self::MeterMod(_) => MessageKind::MeterMod,
            Self::BarrierRequest => MessageKind::BarrierRequest,
            Self::BarrierReply => MessageKind::BarrierReply,
            Self::QueueGetConfigRequest(_) => MessageKind::QueueGetConfigRequest,
            Self::QueueGetConfigReply(_) => MessageKind::QueueGetConfigReply,
            Self::RoleRequest(Standard, _) => MessageKind::RoleRequest,
            Self::RoleRequest(Nicira, _) => MessageKind::NxRoleRequest,
            Self::RoleReply(Standard, _) => MessageKind::RoleReply,
            Self::RoleReply(Nicira, _) => MessageKind::NxRoleReply,
            Self::GetAsyncRequest => MessageKind::GetAsyncRequest,
            Self::GetAsyncReply(_) => MessageKind::GetAsyncReply,
            Self::SetAsync(form, _) => form.kind(),
            Self::SetFlowFormat(_) => MessageKind::NxSetFlowFormat,
            Self::FlowModTableId(_) => MessageKind::NxFlowModTableId,
            Self::SetPacketInFormat(_) => MessageKind::NxSetPacketInFormat,
            Self::FlowAge => MessageKind::NxFlowAge,
            Self::SetControllerId(_) => MessageKind::NxSetControllerId,
            Self::FlowMonitorCancel(_) => MessageKind::FlowMonitorCancel,
            Self::FlowMonitorPaused => MessageKind::FlowMonitorPaused,
            Self::FlowMonitorResumed => MessageKind::FlowMonitorResumed,
            Self::BundleControl(_) => MessageKind::BundleControl,
            Self::BundleAdd(_) => MessageKind::BundleAdd,
            Self::TlvTableMod(_) => MessageKind::TlvTableMod,
            Self::TlvTableRequest => MessageKind::TlvTableRequest,
            Self::TlvTableReply(_) => MessageKind::TlvTableReply,
            Self::CtFlushZone(_) => MessageKind::NxCtFlushZone,
            Self::CtFlush(_) => MessageKind::NxCtFlush,
            Self::StatsRequest { body, .. } => body.kind(),
            Self::StatsReply { body, .. } => body.kind(),
        }
    }
}

/// Encodes a message. A statistics reply must fit into one message; [`StatsReply::encode`] and
/// [`ReplyWriter`](crate::multipart::ReplyWriter) split longer ones. Empty if `version` has no such message, or if
/// the message, or a list in it, does not fit into its length field.
pub fn encode(version: Version, xid: Xid, message: &Message) -> Vec<u8> {
    encode_with(version, xid, message, Options::default())
}

/// Encodes a message on a connection with these options.
pub fn encode_with(version: Version, xid: Xid, message: &Message, options: Options) -> Vec<u8> {
    try_encode_with(version, xid, message, options).unwrap_or_default()
}

/// Encodes a message on a connection with these options. Empty if `version` has no such message.
///
/// Errors: [`TooLong`] if the message, or a list in it, does not fit into its length field.
pub fn try_encode_with(
    version: Version,
    xid: Xid,
    message: &Message,
    options: Options,
) -> std::result::Result<Vec<u8>, TooLong> {
    let v = version;
    if let Message::StatsReply { more, body } = message {
        let mut msg = body.encode(v, xid).into_iter().next().unwrap_or_default();
        if *more {
            types::set_more(&mut msg);
        }
        return Ok(msg);
    }
    let more = matches!(message, Message::StatsRequest { more: true, .. });
    let kind = match message {
        Message::GroupMod(m) => match m.form(v) {
            Some(Form::Standard) => MessageKind::GroupMod,
            Some(Form::Nicira) => MessageKind::NxGroupMod,
            None => return Ok(Vec::new()),
        },
        _ => message.kind(),
    };
    let Some(mut msg) = types::begin(v, xid, kind, more) else { return Ok(Vec::new()) };
    let out = &mut msg;
    out.set_option_lengths(options.option_lengths);
    let cx = Context { version, xid, options };
    let written = session::encode(message, cx, out)
        || changes::encode(message, cx, out)
        || asynchronous::encode(message, cx, out)
        || stats_encode(message, cx, out);
    debug_assert!(written, "no topic knows {message:?}");
    if ends_in_data(message) { types::finish_cut(msg) } else { types::finish(msg) }
}

/// Returns true if a message ends in bytes that may be truncated: those of a packet, or of the message that an error quotes.
fn ends_in_data(message: &Message) -> bool {
    match message {
        Message::PacketIn(format, _) => *format != PacketInFormat::Nxt2,
        Message::Error(_) | Message::EchoRequest(_) | Message::EchoReply(_) => true,
        _ => false,
    }
}

/// Encodes `OFPT_FLOW_MOD` or `NXT_FLOW_MOD` on a connection with these options. Empty if `version` has no such message, or if
/// it is too long.
pub fn encode_flow_mod(version: Version, xid: Xid, form: Form, fm: &FlowMod, options: Options) -> Vec<u8> {
    let kind = if form == Form::Nicira { MessageKind::NxFlowMod } else { MessageKind::FlowMod };
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
