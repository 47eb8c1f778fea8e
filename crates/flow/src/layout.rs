//! Layout of a flow key: indexes of 64-bit words, in stage order.
//!
//! The field table has each field's bits within its word. Words before [`METADATA`] are zero in a packet from a port
//! that is no tunnel, so the datapath can skip them.

use std::ops::Range;

/// Tunnel options (`tun_metadata0` to `63`), placed by the switch's TLV table: 256 bytes, and a word that says which are
/// present.
pub const TUN_METADATA: usize = 0;
/// Registers: `reg0` is the upper half of the first word, `reg1` the lower, and so on up to `reg31`.
pub const REGS: usize = 33;
/// Word 49.
pub const METADATA: usize = 49;
/// Word 50.
pub const TUN_ID: usize = 50;
/// Registers and metadata, which do not come from the packet and are zero when a translation begins.
pub const REGS_AND_METADATA: Range<usize> = REGS..TUN_ID;
/// Word 51.
pub const TUN_IPV6_SRC: usize = 51;
/// Word 53.
pub const TUN_IPV6_DST: usize = 53;
/// Word 55.
pub const TUN_IPV4: usize = 55;
/// Word 56.
pub const TUN_ATTR: usize = 56;
/// Word 57.
pub const TUN_ERSPAN: usize = 57;
/// Word 58.
pub const TUN_GTPU: usize = 58;
/// Returns true for a word with fields of the tunnel that a packet came from.
#[inline]
pub const fn is_of_tunnel(word: usize) -> bool {
    word < REGS || word >= TUN_ID && word <= TUN_GTPU
}

/// Word 59.
pub const SKB_PKT: usize = 59;
/// Word 60: `dp_hash` and `actset_output`.
pub const DPHASH_ACTSET: usize = 60;
/// Word 61: the ingress port (upper half) and `recirc_id`. Each megaflow matches this word exactly.
pub const PORTS: usize = 61;
/// Word 62.
pub const CONJ_CTMARK: usize = 62;
/// Word 63.
pub const CT: usize = 63;
/// Word 64.
pub const CT_LABEL: usize = 64;
/// Word 66.
pub const PKTTYPE_CTTP: usize = 66;
/// Word 67.
pub const CT_NW: usize = 67;
/// Word 68.
pub const CT_IPV6_SRC: usize = 68;
/// Word 70.
pub const CT_IPV6_DST: usize = 70;
/// Word 72.
pub const ETH_DST: usize = 72;
/// Word 73.
pub const ETH_SRC: usize = 73;
/// Word 74.
pub const VLAN: usize = 74;
/// Word 75.
pub const MPLS01: usize = 75;
/// Word 76: the third label in its upper half, and a service instance tag ([`ITAG`]) in the lower.
pub const MPLS2: usize = 76;
/// The bits of a service instance tag (IEEE 802.1ah) in word [`MPLS2`], as in the tag: the bit for customer addresses,
/// and the instance id.
pub const ITAG: u64 = 0x08ff_ffff;
/// Word 77.
pub const IPV4: usize = 77;
/// Word 78.
pub const IPV6_SRC: usize = 78;
/// Word 80.
pub const IPV6_DST: usize = 80;
/// Word 82.
pub const IP_MISC: usize = 82;
/// Word 83; also the IPv6 extension header bits in the lowest 16.
pub const ARP_SHA: usize = 83;
/// Word 84.
pub const ARP_THA: usize = 84;
/// Word 85.
pub const NSH: usize = 85;
/// Word 86.
pub const NSH_C12: usize = 86;
/// Word 87.
pub const NSH_C34: usize = 87;
/// Word 88.
pub const TP: usize = 88;
/// Word 89.
pub const ND_TARGET: usize = 89;
/// Word 91.
pub const L4_MISC: usize = 91;
/// Words in a flow key.
pub const WORDS: usize = 92;

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
