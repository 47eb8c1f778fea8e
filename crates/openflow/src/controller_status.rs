//! Controller status: sent when a controller's state changes, and for all controllers on request (OpenFlow 1.5
//! sections 7.3.5.20 and 7.4.7).

use crate::error::OfpError;
use crate::property;
use crate::role::{Role, read_role};
use crate::wire::{Reader, Result, Writer};

/// The reason for a controller status (`ofp_controller_status_reason`). Asynchronous messages are filtered by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum ControllerReason {
    /// The receiver requested it.
    Request = 0,
    /// The controller connected, or its connection ended.
    Channel = 1,
    /// The controller's role changed.
    Role = 2,
    /// The controller was added to the configuration.
    Added = 3,
    /// The controller was removed from the configuration.
    Removed = 4,
    /// The controller's number changed.
    ShortId = 5,
    /// Experimenter data changed.
    Experimenter = 6,
}

impl ControllerReason {
    const ALL: [Self; 7] =
        [Self::Request, Self::Channel, Self::Role, Self::Added, Self::Removed, Self::ShortId, Self::Experimenter];
}

/// A controller's status (`ofp_controller_status`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ControllerStatus {
    /// The number by which packets are addressed to it.
    pub short_id: u16,
    /// Its role.
    pub role: Role,
    /// The reason for the message.
    pub reason: ControllerReason,
    /// True if it is connected.
    pub is_up: bool,
    /// Its address, as `tcp:10.0.0.1:6653`.
    pub uri: Option<Vec<u8>>,
}

/// `OFPCSPT_URI`.
const URI: u16 = 0;

impl ControllerStatus {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        const HEAD: usize = 16;
        let len = usize::from(r.clone().u16()?);
        let mut r = Reader::new(r.bytes(len)?);
        if len < HEAD || len % 8 != 0 {
            return Err(OfpError::BrcBadLen);
        }
        r.skip(2)?;
        let (short_id, role, reason, channel) = (r.u16()?, read_role(&mut r)?, r.u8()?, r.u8()?);
        r.skip(6)?;
        let reason = ControllerReason::ALL.get(usize::from(reason)).copied().ok_or(OfpError::BrcBadType)?;
        let mut uri = None;
        property::each(&mut r, |p| {
            if p.ty == URI {
                uri = Some(p.value.peek().to_vec());
            }
            Ok(())
        })?;
        Ok(Self { short_id, role, reason, is_up: channel == 0, uri })
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        let start = out.len();
        out.put_u16(0);
        out.put_u16(self.short_id);
        out.put_u32(self.role as u32);
        out.put_u8(self.reason as u8);
        out.put_u8(u8::from(!self.is_up));
        out.zeros(6);
        if let Some(uri) = &self.uri {
            property::put(out, URI, |out| out.put(uri));
        }
        out.set_len16(start, start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Message, decode, encode};
    use crate::print::{Style, print};
    use crate::version::Version::V15;

    #[test]
    fn as_text_and_as_bytes() {
        let uri = Some(b"tcp:10.0.0.1:6653\n".to_vec());
        let status =
            ControllerStatus { short_id: 3, role: Role::Primary, reason: ControllerReason::Role, is_up: true, uri };
        let bytes = encode(V15, 1, &Message::ControllerStatus(Box::new(status)));
        assert_eq!(
            print(&bytes, Style::plain(1)).trim_end(),
            "OFPT_CONTROLLER_STATUS (OF1.5) (xid=0x1): short_id=3 role=primary reason=role channel=up \
             uri=tcp:10.0.0.1:6653\\012"
        );
        // The length of the entry, an unknown reason, and a role.
        for (at, byte) in [(9, 8), (9, 44), (16, 9), (15, 9)] {
            let mut wrong = bytes.clone();
            wrong[at] = byte;
            assert!(decode(&wrong).is_err(), "{at}");
        }
    }
}
