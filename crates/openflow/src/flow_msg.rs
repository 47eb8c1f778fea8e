//! Flow messages: modifications in OpenFlow 1.0's, 1.1+'s and Nicira's form, removal, and statistics (OpenFlow 1.0
//! sections 5.3.3, 5.3.5, 5.4.3; 1.3 sections 7.3.4.1, 7.3.5.2, 7.3.5.3, 7.4.2).

mod modify;
mod removed;
mod stats;

pub(crate) use modify::{decode_flow_mod, decode_nx_flow_mod, encode_flow_mod, encode_nx_flow_mod};
pub use removed::{FlowRemoved, FlowRemovedReason};
pub use stats::{FlowStats, FlowStatsRequest};

use crate::Version::{self, V10, V12, V13};
use crate::error::OfpError;
use crate::flow_mod::FlowFlags;
use crate::wire::Result;

/// All tables, in requests.
pub(crate) const ALL_TABLES: u8 = 0xff;

/// A table's number on the wire; `None` for all tables.
pub(crate) fn table(n: u8) -> Option<u8> {
    (n != ALL_TABLES).then_some(n)
}

const SEND_FLOW_REM: u16 = 1;
const CHECK_OVERLAP: u16 = 2;
const EMERGENCY: u16 = 4;
const RESET_COUNTS: u16 = 4;
const NO_PKT_COUNTS: u16 = 8;
const NO_BYT_COUNTS: u16 = 16;

fn read_flags(version: Version, bits: u16) -> Result<FlowFlags> {
    let known = match version {
        V10 => SEND_FLOW_REM | CHECK_OVERLAP | EMERGENCY,
        Version::V11 => SEND_FLOW_REM | CHECK_OVERLAP,
        V12 => SEND_FLOW_REM | CHECK_OVERLAP | RESET_COUNTS,
        _ => SEND_FLOW_REM | CHECK_OVERLAP | RESET_COUNTS | NO_PKT_COUNTS | NO_BYT_COUNTS,
    };
    if bits & !known != 0 {
        return Err(OfpError::FmfcBadFlags);
    }
    Ok(FlowFlags {
        send_flow_rem: bits & SEND_FLOW_REM != 0,
        check_overlap: bits & CHECK_OVERLAP != 0,
        reset_counts: version > V10 && bits & RESET_COUNTS != 0,
        no_packet_counts: bits & NO_PKT_COUNTS != 0,
        no_byte_counts: bits & NO_BYT_COUNTS != 0,
    })
}

fn wire_flags(version: Version, f: FlowFlags) -> u16 {
    let bit = |on: bool, since: Version, bit: u16| if on && version >= since { bit } else { 0 };
    bit(f.send_flow_rem, V10, SEND_FLOW_REM)
        | bit(f.check_overlap, V10, CHECK_OVERLAP)
        | bit(f.reset_counts, V12, RESET_COUNTS)
        | bit(f.no_packet_counts, V13, NO_PKT_COUNTS)
        | bit(f.no_byte_counts, V13, NO_BYT_COUNTS)
}
