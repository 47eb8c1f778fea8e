//! The asynchronous messages that a connection receives: as fixed masks (OpenFlow 1.3 section 7.3.10; Nicira's
//! NXT_SET_ASYNC_CONFIG) and as properties (OpenFlow 1.4 section 7.3.10; NXT_SET_ASYNC_CONFIG2).

use crate::Version;
use crate::error::OfpError;
use crate::nxm::Unknown;
use crate::property;
use crate::types::MessageKind;
use crate::wire::{Reader, Result, Writer};

/// For one type of message, a bit for each reason. Index 0: for primary and equal controllers, 1: for secondary ones.
pub type Masks = [u32; 2];

/// The asynchronous messages that a connection receives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AsyncConfig {
    /// Packet-in, bits by `PacketInReason`.
    pub packet_in: Masks,
    /// Port status, bits by `PortReason`.
    pub port_status: Masks,
    /// Flow removed, bits by `FlowRemovedReason`.
    pub flow_removed: Masks,
    /// Role status, bits by `RoleReason` (OpenFlow 1.4).
    pub role_status: Masks,
    /// Table status, bits by `TableReason` (OpenFlow 1.4).
    pub table_status: Masks,
    /// Forwarded requests: bit 0 for group mods, bit 1 for meter mods (OpenFlow 1.4).
    pub request_forward: Masks,
    /// Controller status, bits by `ControllerReason` (OpenFlow 1.5).
    pub controller_status: Masks,
}

/// The forms of the message that sets the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum AsyncForm {
    /// OFPT_SET_ASYNC.
    Standard,
    /// NXT_SET_ASYNC_CONFIG.
    Nicira,
    /// NXT_SET_ASYNC_CONFIG2, which is OpenFlow 1.4's.
    Nicira2,
}

impl AsyncForm {
    pub(crate) fn kind(self) -> MessageKind {
        match self {
            Self::Standard => MessageKind::SetAsync,
            Self::Nicira => MessageKind::NxSetAsyncConfig,
            Self::Nicira2 => MessageKind::NxSetAsyncConfig2,
        }
    }
}

/// The use of a list of masks: a request refuses unknown properties, a reply ignores them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MaskUse {
    Request,
    Reply,
}

/// The known bits of each message type, by half the number of the property's type.
const KNOWN: [u32; 7] = [PACKET_IN14, 0x07, 0x3f, 0x07, 0x18, 0x03, 0x7f];
/// The number of property types before OpenFlow 1.5.
const TYPES14: usize = 12;
/// Known packet-in bits from OpenFlow 1.4 on.
pub(crate) const PACKET_IN14: u32 = 0x3f;
/// Known packet-in bits before that.
pub(crate) const PACKET_IN13: u32 = 0x07;
/// `OFPACPT_EXPERIMENTER_SECONDARY`; the type for primary controllers is that of all experimenter properties.
const EXPERIMENTER_SECONDARY: u16 = 0xfffe;

/// A change of the configuration, or all of it: a mask that is missing stays unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AsyncChange {
    /// By the property types of OpenFlow 1.4: for each message type in the order of [`AsyncConfig`], the mask for secondary
    /// controllers and the mask for primary ones.
    masks: [Option<u32>; 14],
}

impl AsyncChange {
    /// Applies the change.
    pub fn apply(&self, config: &mut AsyncConfig) {
        for (pair, masks) in self.masks.chunks_exact(2).zip(config.kinds()) {
            // The property for secondary controllers comes first.
            for (mask, new) in masks.iter_mut().rev().zip(pair) {
                *mask = new.unwrap_or(*mask);
            }
        }
    }

    pub(crate) fn decode13(known_packet_in: u32, r: &mut Reader<'_>) -> Result<Self> {
        let mut masks = [None; 14];
        for (kind, pair) in masks.chunks_exact_mut(2).take(3).enumerate() {
            let known = if kind == 0 { known_packet_in } else { KNOWN[kind] };
            let (primary, secondary) = (r.u32()?, r.u32()?);
            pair.copy_from_slice(&[Some(secondary & known), Some(primary & known)]);
        }
        Ok(Self { masks })
    }

    pub(crate) fn encode13(&self, out: &mut Writer) {
        for (kind, pair) in self.masks.chunks_exact(2).take(3).enumerate() {
            let known = if kind == 0 { PACKET_IN14 } else { KNOWN[kind] };
            pair.iter().rev().for_each(|mask| out.put_u32(mask.unwrap_or(0) & known));
        }
    }

    /// Errors: `OFPACFC_INVALID` for unknown reasons, `OFPACFC_UNSUPPORTED` for other message types.
    pub(crate) fn decode14(
        usage: MaskUse,
        (known_packet_in, version): (u32, Version),
        r: &mut Reader<'_>,
    ) -> Result<Self> {
        let mut change = Self::default();
        property::each_with(property::OTHER_EXPERIMENTER, r, |p| {
            let ty = usize::from(p.ty);
            let n_types = change.n_types(version);
            let Some(slot) = change.masks.get_mut(ty).filter(|_| ty < n_types) else {
                return match (usage, p.ty) {
                    (MaskUse::Reply, _) => Ok(()),
                    (MaskUse::Request, EXPERIMENTER_SECONDARY) => Err(OfpError::BpcBadExpType),
                    (MaskUse::Request, _) if p.experimenter.is_some() => p.unknown(Unknown::Refuse),
                    (MaskUse::Request, _) => Err(OfpError::AcfcUnsupported),
                };
            };
            let mask = p.u32()?;
            let known = if ty < 2 { known_packet_in } else { KNOWN[ty / 2] };
            if usage == MaskUse::Request && mask & !known != 0 {
                return Err(OfpError::AcfcInvalid);
            }
            *slot = Some(mask & known);
            Ok(())
        })?;
        Ok(change)
    }

    fn n_types(&self, version: Version) -> usize {
        if version < Version::V15 { TYPES14 } else { self.masks.len() }
    }

    pub(crate) fn encode14(&self, version: Version, out: &mut Writer) {
        for (ty, mask) in (0u16..).zip(self.masks).take(self.n_types(version)) {
            if let Some(mask) = mask {
                property::put_u32(out, ty, mask);
            }
        }
    }
}

impl From<AsyncConfig> for AsyncChange {
    fn from(mut config: AsyncConfig) -> Self {
        let mut masks = [None; 14];
        for (pair, kind) in masks.chunks_exact_mut(2).zip(config.kinds()) {
            let [primary, secondary] = *kind;
            pair.copy_from_slice(&[Some(secondary), Some(primary)]);
        }
        Self { masks }
    }
}

impl AsyncConfig {
    fn kinds(&mut self) -> [&mut Masks; 7] {
        [
            &mut self.packet_in,
            &mut self.port_status,
            &mut self.flow_removed,
            &mut self.role_status,
            &mut self.table_status,
            &mut self.request_forward,
            &mut self.controller_status,
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_leaves_what_it_does_not_name() {
        let mut out = Writer::new();
        property::put_u32(&mut out, 1, 5);
        property::put_u32(&mut out, 8, 0x18);
        let change =
            AsyncChange::decode14(MaskUse::Request, (0x3f, Version::V14), &mut Reader::new(&out)).expect("known");
        let mut config = AsyncConfig { packet_in: [1, 2], port_status: [7, 7], ..AsyncConfig::default() };
        change.apply(&mut config);
        assert_eq!((config.packet_in, config.port_status, config.table_status), ([5, 2], [7, 7], [0, 0x18]));
        let mut again = AsyncConfig::default();
        AsyncChange::from(config).apply(&mut again);
        assert_eq!(again, config);
    }
}
