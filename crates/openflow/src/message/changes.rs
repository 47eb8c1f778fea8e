//! Changes and packet-outs of a controller, and bundles of them (OpenFlow 1.3 sections 7.3.4, 7.3.6 and 7.3.7).

use super::{Context, Form, Message, Message as M};
use crate::Version::V10;
use crate::bundle::{BundleAdd, BundleControl};
use crate::ct_flush::CtFlush;
use crate::error::OfpError;
use crate::flow_mod::FlowMod;
use crate::flow_msg;
use crate::group::GroupMod;
use crate::meter::MeterMod;
use crate::packet::PacketOut;
use crate::port::{PortMod, put_port, read_port};
use crate::queue::QueueGetConfigReply;
use crate::table::TableMod;
use crate::tlv::{TlvTableMod, TlvTableReply};
use crate::types::MessageKind;
use crate::wire::{Reader, Result, Writer};
use base::PortNo;

pub(super) fn decode(kind: MessageKind, cx: Context, r: &mut Reader<'_>) -> Option<Result<Message>> {
    let (v, table_id) = (cx.version, cx.options.flow_mod_table_id);
    Some(match kind {
        MessageKind::PacketOut => PacketOut::decode(v, r).map(M::PacketOut),
        MessageKind::FlowMod => {
            let mut fm = Box::<FlowMod>::default();
            flow_msg::decode_flow_mod(v, table_id, r, &mut fm).map(|()| M::FlowMod(Form::Standard, fm))
        }
        MessageKind::NxFlowMod => {
            let mut fm = Box::<FlowMod>::default();
            flow_msg::decode_nx_flow_mod(v, table_id, r, &mut fm).map(|()| M::FlowMod(Form::Nicira, fm))
        }
        MessageKind::GroupMod | MessageKind::NxGroupMod => GroupMod::decode(v, r).map(M::GroupMod),
        MessageKind::PortMod => PortMod::decode(v, cx.options.unknown(), r).map(M::PortMod),
        MessageKind::TableMod => TableMod::decode(v, r).map(M::TableMod),
        MessageKind::MeterMod => MeterMod::decode(r).map(M::MeterMod),
        MessageKind::QueueGetConfigRequest => queues_of(cx, r).map(M::QueueGetConfigRequest),
        MessageKind::QueueGetConfigReply => QueueGetConfigReply::decode(v, r).map(M::QueueGetConfigReply),
        MessageKind::BundleControl => BundleControl::decode(r).map(M::BundleControl),
        MessageKind::BundleAdd => BundleAdd::decode(cx, r).map(|m| M::BundleAdd(Box::new(m))),
        MessageKind::NxCtFlushZone => zone(r).map(M::CtFlushZone),
        MessageKind::NxCtFlush => CtFlush::decode(r).map(|m| M::CtFlush(Box::new(m))),
        MessageKind::TlvTableMod => TlvTableMod::decode(r).map(M::TlvTableMod),
        MessageKind::TlvTableRequest => Ok(M::TlvTableRequest),
        MessageKind::TlvTableReply => TlvTableReply::decode(r).map(M::TlvTableReply),
        _ => return None,
    })
}

/// Encodes the message's body; returns false if the message is not of this topic.
pub(super) fn encode(message: &Message, cx: Context, out: &mut Writer) -> bool {
    let (v, table_id) = (cx.version, cx.options.flow_mod_table_id);
    match message {
        M::PacketOut(m) => m.encode(v, out),
        M::FlowMod(Form::Standard, m) => flow_msg::encode_flow_mod(m, v, table_id, out),
        M::FlowMod(Form::Nicira, m) => flow_msg::encode_nx_flow_mod(m, v, table_id, out),
        M::GroupMod(m) => m.encode(v, out),
        M::PortMod(m) => m.encode(v, out),
        M::TableMod(m) => m.encode(v, out),
        M::MeterMod(m) => m.encode(out),
        M::QueueGetConfigRequest(port) => {
            put_port(out, v, *port);
            out.zeros(if v == V10 { 2 } else { 4 });
        }
        M::QueueGetConfigReply(m) => m.encode(v, out),
        M::BundleControl(m) => m.encode(out),
        M::BundleAdd(m) => m.encode(cx, out),
        M::CtFlushZone(zone) => {
            out.zeros(6);
            out.put_u16(*zone);
        }
        M::CtFlush(m) => m.encode(out),
        M::TlvTableMod(m) => m.encode(out),
        M::TlvTableRequest => {}
        M::TlvTableReply(m) => m.encode(out),
        _ => return false,
    }
    true
}

fn zone(r: &mut Reader<'_>) -> Result<u16> {
    if r.bytes(6)?.iter().any(|b| *b != 0) {
        return Err(OfpError::NxbrcMustBeZero);
    }
    r.u16()
}

fn queues_of(cx: Context, r: &mut Reader<'_>) -> Result<PortNo> {
    let port = read_port(cx.version, r)?;
    r.skip(if cx.version == V10 { 2 } else { 4 })?;
    // A request names one port, or ANY from OpenFlow 1.1 on; other reserved numbers are invalid.
    if port < PortNo::MAX || port == PortNo::ANY && cx.version > V10 { Ok(port) } else { Err(OfpError::QofcBadPort) }
}
