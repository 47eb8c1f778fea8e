//! Messages about the session: HELLO, errors, echo, features and configuration, barriers, roles, and Nicira's settings of
//! a connection (OpenFlow 1.3 sections 7.3.1, 7.3.2, 7.3.8, 7.3.9 and 7.5).

use super::{Context, Form, Message, Message as M};
use crate::error::OfpError;
use crate::packet::PacketInFormat;
use crate::role::RoleMsg;
use crate::switch::{ErrorReport, Features, Hello, SwitchConfig};
use crate::types::MessageKind;
use crate::wire::{Reader, Result, Writer};

pub(super) fn decode(kind: MessageKind, cx: Context, r: &mut Reader<'_>) -> Option<Result<Message>> {
    let v = cx.version;
    Some(match kind {
        MessageKind::Hello => Ok(M::Hello(Hello::decode(v.wire(), r))),
        MessageKind::Error => ErrorReport::decode(v, r).map(M::Error),
        MessageKind::EchoRequest => Ok(M::EchoRequest(r.rest().to_vec())),
        MessageKind::EchoReply => Ok(M::EchoReply(r.rest().to_vec())),
        MessageKind::FeaturesRequest => Ok(M::FeaturesRequest),
        MessageKind::FeaturesReply => Features::decode(v, r).map(|f| M::FeaturesReply(Box::new(f))),
        MessageKind::GetConfigRequest => Ok(M::GetConfigRequest),
        MessageKind::GetConfigReply => SwitchConfig::decode_reply(v, r).map(M::GetConfigReply),
        MessageKind::SetConfig => SwitchConfig::decode(v, r).map(M::SetConfig),
        MessageKind::BarrierRequest => Ok(M::BarrierRequest),
        MessageKind::BarrierReply => Ok(M::BarrierReply),
        MessageKind::RoleRequest => RoleMsg::decode(r).map(|m| M::RoleRequest(Form::Standard, m)),
        MessageKind::RoleReply => RoleMsg::decode(r).map(|m| M::RoleReply(Form::Standard, m)),
        MessageKind::NxRoleRequest => RoleMsg::decode_nx(r).map(|m| M::RoleRequest(Form::Nicira, m)),
        MessageKind::NxRoleReply => RoleMsg::decode_nx(r).map(|m| M::RoleReply(Form::Nicira, m)),
        MessageKind::NxSetFlowFormat => r.u32().map(M::SetFlowFormat),
        MessageKind::NxFlowModTableId => flow_mod_table_id(r).map(M::FlowModTableId),
        MessageKind::NxSetPacketInFormat => packet_in_format(r).map(M::SetPacketInFormat),
        MessageKind::NxFlowAge => Ok(M::FlowAge),
        MessageKind::NxSetControllerId => controller_id(r).map(M::SetControllerId),
        _ => return None,
    })
}

/// Encodes the message's body; returns false if the message is not of this topic.
pub(super) fn encode(message: &Message, cx: Context, out: &mut Writer) -> bool {
    let v = cx.version;
    match message {
        M::Hello(m) => m.encode(v, out),
        M::Error(m) => m.encode(v, out),
        M::EchoRequest(data) | M::EchoReply(data) => out.put(data),
        M::FeaturesReply(m) => m.encode(v, out),
        M::GetConfigReply(m) | M::SetConfig(m) => m.encode(v, out),
        M::RoleRequest(Form::Standard, m) | M::RoleReply(Form::Standard, m) => m.encode(out),
        M::RoleRequest(Form::Nicira, m) | M::RoleReply(Form::Nicira, m) => m.encode_nx(out),
        M::SetFlowFormat(format) => out.put_u32(*format),
        M::FlowModTableId(on) => {
            out.put_u8((*on).into());
            out.zeros(7);
        }
        M::SetPacketInFormat(format) => out.put_u32(*format as u32),
        M::SetControllerId(id) => {
            out.zeros(6);
            out.put_u16(*id);
        }
        M::FeaturesRequest | M::GetConfigRequest | M::BarrierRequest | M::BarrierReply | M::FlowAge => {}
        _ => return false,
    }
    true
}

fn flow_mod_table_id(r: &mut Reader<'_>) -> Result<bool> {
    let set = r.u8()?;
    r.skip(7)?;
    Ok(set != 0)
}

fn packet_in_format(r: &mut Reader<'_>) -> Result<PacketInFormat> {
    PacketInFormat::from_wire(r.u32()?).ok_or(OfpError::BrcEperm)
}

fn controller_id(r: &mut Reader<'_>) -> Result<u16> {
    if r.array::<6>()? != [0; 6] {
        return Err(OfpError::NxbrcMustBeZero);
    }
    r.u16()
}
