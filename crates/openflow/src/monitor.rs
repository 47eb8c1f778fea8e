//! Flow monitors: what a controller wants to be told of the flow tables (Nicira's; OpenFlow 1.4 section 7.3.5.18).

use crate::body::{put_nxm, read_nxm};
use crate::error::OfpError;
use crate::flow_msg::{ALL_TABLES, table};
use crate::wire::{Put, Reader, Result};
use base::PortNo;
use flow::Match;

/// One monitor of a NXST_FLOW_MONITOR request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowMonitorRequest {
    /// The requester's number for it.
    pub id: u32,
    /// `NXFMF_*`: initial 1, add 2, delete 4, modify 8, actions 16, own 32.
    pub flags: u16,
    /// Flows that output here only.
    pub out_port: PortNo,
    /// This table only.
    pub table_id: Option<u8>,
    /// Flows that this contains.
    pub matching: Match,
}

impl FlowMonitorRequest {
    pub(crate) fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let (id, flags, out_port) = (r.u32()?, r.u16()?, r.port10()?);
        let (len, table_id) = (usize::from(r.u16()?), table(r.u8()?));
        if r.array::<5>()? != [0; 5] {
            return Err(OfpError::NxbrcMustBeZero);
        }
        if flags & !0x3f != 0 || flags & 0x0f == 0 {
            return Err(OfpError::MofcBadFlags);
        }
        let matching = read_nxm(r, len)?.matching;
        Ok(Self { id, flags, out_port, table_id, matching })
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.put_u32(self.id);
        out.put_u16(self.flags);
        out.put_u16(self.out_port.to_of10());
        let len_at = out.len();
        out.put_u16(0);
        out.put_u8(self.table_id.unwrap_or(ALL_TABLES));
        out.zeros(5);
        put_nxm(out, len_at, &self.matching, (0, 0));
    }
}
