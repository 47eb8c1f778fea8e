//! Asynchronous messages of a switch, and their filters (OpenFlow 1.3 sections 7.4 and 7.3.10).

use super::{Context, Form, Message, Message as M};
use crate::Version::V14;
use crate::asynchronous::{AsyncChange, AsyncForm, MaskUse, PACKET_IN13, PACKET_IN14};
use crate::controller_status::ControllerStatus;
use crate::flow_msg::FlowRemoved;
use crate::nxm::Unknown;
use crate::packet::{PacketIn, PacketInFormat as Format};
use crate::port::PortStatus;
use crate::request_forward::RequestForward;
use crate::role::RoleStatus;
use crate::table::TableStatus;
use crate::types::MessageKind;
use crate::wire::{Reader, Result, Writer};

pub(super) fn decode(kind: MessageKind, cx: Context, r: &mut Reader<'_>) -> Option<Result<Message>> {
    let v = cx.version;
    Some(match kind {
        MessageKind::PacketIn => PacketIn::decode(v, r).map(|m| M::PacketIn(Format::Standard, Box::new(m))),
        MessageKind::NxPacketIn => PacketIn::decode_nxt(r).map(|m| M::PacketIn(Format::Nxt, Box::new(m))),
        MessageKind::NxPacketIn2 => {
            PacketIn::decode_nxt2(v, Unknown::Skip, r).map(|m| M::PacketIn(Format::Nxt2, Box::new(m)))
        }
        MessageKind::NxResume => PacketIn::decode_nxt2(v, cx.options.unknown(), r).map(|m| M::Resume(Box::new(m))),
        MessageKind::FlowRemoved => FlowRemoved::decode(v, r).map(|m| M::FlowRemoved(Form::Standard, Box::new(m))),
        MessageKind::NxFlowRemoved => FlowRemoved::decode_nx(r).map(|m| M::FlowRemoved(Form::Nicira, Box::new(m))),
        MessageKind::PortStatus => PortStatus::decode(v, r).map(M::PortStatus),
        MessageKind::TableStatus => TableStatus::decode(r).map(M::TableStatus),
        MessageKind::GetAsyncRequest => Ok(M::GetAsyncRequest),
        MessageKind::GetAsyncReply if v < V14 => AsyncChange::decode13(PACKET_IN13, r).map(M::GetAsyncReply),
        MessageKind::GetAsyncReply => AsyncChange::decode14(MaskUse::Reply, (PACKET_IN14, v), r).map(M::GetAsyncReply),
        MessageKind::SetAsync if v < V14 => {
            AsyncChange::decode13(PACKET_IN13, r).map(|m| M::SetAsync(AsyncForm::Standard, m))
        }
        MessageKind::SetAsync => {
            AsyncChange::decode14(MaskUse::Request, (PACKET_IN14, v), r).map(|m| M::SetAsync(AsyncForm::Standard, m))
        }
        MessageKind::NxSetAsyncConfig => {
            let known = if v < V14 { PACKET_IN13 } else { PACKET_IN14 };
            AsyncChange::decode13(known, r).map(|m| M::SetAsync(AsyncForm::Nicira, m))
        }
        MessageKind::NxSetAsyncConfig2 => {
            AsyncChange::decode14(MaskUse::Request, (PACKET_IN13, V14), r).map(|m| M::SetAsync(AsyncForm::Nicira2, m))
        }
        MessageKind::ControllerStatus => {
            let status = ControllerStatus::decode(r).and_then(|m| r.finish().map(|()| m));
            status.map(|m| M::ControllerStatus(Box::new(m)))
        }
        MessageKind::RoleStatus => RoleStatus::decode(r).map(M::RoleStatus),
        MessageKind::RequestForward => RequestForward::decode(cx, r).map(|m| M::RequestForward(Box::new(m))),
        MessageKind::FlowMonitorPaused => Ok(M::FlowMonitorPaused),
        MessageKind::FlowMonitorResumed => Ok(M::FlowMonitorResumed),
        MessageKind::FlowMonitorCancel => r.u32().map(M::FlowMonitorCancel),
        _ => return None,
    })
}

/// Encodes the message's body; returns false if the message is not of this topic.
pub(super) fn encode(message: &Message, cx: Context, out: &mut Writer) -> bool {
    let v = cx.version;
    match message {
        M::PacketIn(Format::Standard, m) => m.encode(v, out),
        M::PacketIn(Format::Nxt, m) => m.encode_nxt(v, out),
        M::PacketIn(Format::Nxt2, m) | M::Resume(m) => m.encode_nxt2(v, out),
        M::FlowRemoved(Form::Standard, m) => m.encode(v, out),
        M::FlowRemoved(Form::Nicira, m) => m.encode_nx(out),
        M::PortStatus(m) => m.encode(v, out),
        M::TableStatus(m) => m.encode(out),
        M::GetAsyncRequest | M::FlowMonitorPaused | M::FlowMonitorResumed => {}
        M::GetAsyncReply(m) | M::SetAsync(AsyncForm::Standard, m) if v >= V14 => m.encode14(v, out),
        M::SetAsync(AsyncForm::Nicira2, m) => m.encode14(V14, out),
        M::GetAsyncReply(m) | M::SetAsync(_, m) => m.encode13(out),
        M::ControllerStatus(m) => m.encode(out),
        M::RoleStatus(m) => m.encode(out),
        M::RequestForward(m) => m.encode(cx, out),
        M::FlowMonitorCancel(id) => out.put_u32(*id),
        _ => return false,
    }
    true
}
