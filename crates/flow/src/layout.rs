//! Layout of a flow key: indexes of 64-bit words, in stage order.
//!
//! The field table has each field's bits within its word. Words before [`METADATA`] are zero in a packet from a port
//! that is no tunnel, so the datapath can skip them.

use std::ops::Range;

/// Tunnel options (`tun_metadata0` to `63`), placed by the switch's TLV table: 256 bytes.
pub const TUN_METADATA: usize = 0;
/// Registers: `reg0` is the upper half of the first word, `reg1` the lower, and so on.
pub const REGS: usize = 32;
/// Word 40.
pub const METADATA: usize = 40;
/// Word 41.
pub const TUN_ID: usize = 41;
/// Registers and metadata, which do not come from the packet and are zero when a translation begins.
pub const REGS_AND_METADATA: Range<usize> = REGS..TUN_ID;
/// Word 42.
pub const TUN_IPV6_SRC: usize = 42;
/// Word 44.
pub const TUN_IPV6_DST: usize = 44;
/// Word 46.
pub const TUN_IPV4: usize = 46;
/// Word 47.
pub const TUN_ATTR: usize = 47;
/// Word 48.
pub const TUN_ERSPAN: usize = 48;
/// Word 49.
pub const TUN_GTPU: usize = 49;
/// Word 50.
pub const SKB_PKT: usize = 50;
/// Word 51: `dp_hash` and `actset_output`.
pub const DPHASH_ACTSET: usize = 51;
/// Word 52: the ingress port (upper half) and `recirc_id`. Each megaflow matches this word exactly.
pub const PORTS: usize = 52;
/// Word 53.
pub const CONJ_CTMARK: usize = 53;
/// Word 54.
pub const CT: usize = 54;
/// Word 55.
pub const CT_LABEL: usize = 55;
/// Word 57.
pub const PKTTYPE_CTTP: usize = 57;
/// Word 58.
pub const CT_NW: usize = 58;
/// Word 59.
pub const CT_IPV6_SRC: usize = 59;
/// Word 61.
pub const CT_IPV6_DST: usize = 61;
/// Word 63.
pub const ETH_DST: usize = 63;
/// Word 64.
pub const ETH_SRC: usize = 64;
/// Word 65.
pub const VLAN: usize = 65;
/// Word 66.
pub const MPLS01: usize = 66;
/// Word 67: the third label in its upper half, and a service instance tag ([`ITAG`]) in the lower.
pub const MPLS2: usize = 67;
/// The bits of a service instance tag (IEEE 802.1ah) in word [`MPLS2`], as in the tag: the bit for customer addresses,
/// and the instance id.
pub const ITAG: u64 = 0x08ff_ffff;
/// Word 68.
pub const IPV4: usize = 68;
/// Word 69.
pub const IPV6_SRC: usize = 69;
/// Word 71.
pub const IPV6_DST: usize = 71;
/// Word 73.
pub const IP_MISC: usize = 73;
/// Word 74; also the IPv6 extension header bits in the lowest 16.
pub const ARP_SHA: usize = 74;
/// Word 75.
pub const ARP_THA: usize = 75;
/// Word 76.
pub const NSH: usize = 76;
/// Word 77.
pub const NSH_C12: usize = 77;
/// Word 78.
pub const NSH_C34: usize = 78;
/// Word 79.
pub const TP: usize = 79;
/// Word 80.
pub const ND_TARGET: usize = 80;
/// Word 82.
pub const L4_MISC: usize = 82;
/// Words in a flow key.
pub const WORDS: usize = 83;

/// A lookup stage (NSDI'15, section 5.3): a lookup hashes the stages in order and stops at the first without a match.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Stage {
    /// Registers, tunnel, ingress port, connection state.
    Metadata,
    /// Ethernet, VLAN, MPLS.
    L2,
    /// IP, ARP, NSH.
    L3,
    /// Transport and ICMP.
    L4,
}

impl Stage {
    /// The stages in order.
    pub const ALL: [Self; 4] = [Self::Metadata, Self::L2, Self::L3, Self::L4];

    /// The words of this stage.
    pub const fn words(self) -> std::ops::Range<usize> {
        match self {
            Self::Metadata => 0..ETH_DST,
            Self::L2 => ETH_DST..IPV4,
            Self::L3 => IPV4..TP,
            Self::L4 => TP..WORDS,
        }
    }
}
