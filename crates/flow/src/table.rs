//! The rows of the field table: data only. [`FieldInfo`] documents the columns.

use super::field::Prereq as P;
use super::field::{
    ERICSSON, FieldInfo, Format, Loc, Maskable, NICIRA, NSH, Nxm, ONF, V12, V13, V14, V15, bits, exp, nxm, oxm, row,
};
use super::layout as w;

macro_rules! fields {
    ($($id:ident, $name:literal, $alias:literal, $bits:literal, $width:literal, $mask:ident, $format:ident, $prereq:ident,
       $access:ident, $loc:expr, $nxm:expr;)+) => {
        /// A match field of ovs-fields(7).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        #[allow(missing_docs, reason = "each variant is documented by its row")]
        pub enum Field { $($id,)+ }

        /// All fields, in the default order for encoding and printing.
        pub static FIELDS: &[FieldInfo] = &[
            $(row(
                Field::$id, $name, $alias, $bits, $width, Maskable::$mask, Format::$format, P::$prereq, access!($access),
                $loc, { const N: &[Nxm] = &$nxm; N },
            ),)+
        ];
    };
}

macro_rules! access {
    (RW) => {
        true
    };
    (RO) => {
        false
    };
}

#[rustfmt::skip]
fields! {
    TunId, "tun_id", "tunnel_id", 64, 64, Full, Hex, None, RW, bits(w::TUN_ID, 0, 64), [nxm(1, 16, "NXM_NX_TUN_ID"), oxm(0x8000, 38, V13, "OXM_OF_TUNNEL_ID")];
    TunSrc, "tun_src", "", 32, 32, Full, Ipv4, None, RW, bits(w::TUN_IPV4, 32, 32), [nxm(1, 31, "NXM_NX_TUN_IPV4_SRC")];
    TunDst, "tun_dst", "", 32, 32, Full, Ipv4, None, RW, bits(w::TUN_IPV4, 0, 32), [nxm(1, 32, "NXM_NX_TUN_IPV4_DST")];
    TunIpv6Src, "tun_ipv6_src", "", 128, 128, Full, Ipv6, None, RW, Loc::Wide(w::TUN_IPV6_SRC), [nxm(1, 109, "NXM_NX_TUN_IPV6_SRC")];
    TunIpv6Dst, "tun_ipv6_dst", "", 128, 128, Full, Ipv6, None, RW, Loc::Wide(w::TUN_IPV6_DST), [nxm(1, 110, "NXM_NX_TUN_IPV6_DST")];
    TunFlags, "tun_flags", "", 1, 16, Full, TunFlags, None, RW, bits(w::TUN_ATTR, 48, 16), [nxm(1, 104, "NXM_NX_TUN_FLAGS")];
    TunTos, "tun_tos", "", 8, 8, None, Decimal, None, RO, bits(w::TUN_ATTR, 40, 8), [];
    TunTtl, "tun_ttl", "", 8, 8, None, Decimal, None, RO, bits(w::TUN_ATTR, 32, 8), [];
    TunGbpId, "tun_gbp_id", "", 16, 16, Full, Decimal, None, RW, bits(w::TUN_ATTR, 16, 16), [nxm(1, 38, "NXM_NX_TUN_GBP_ID")];
    TunGbpFlags, "tun_gbp_flags", "", 8, 8, Full, Hex, None, RW, bits(w::TUN_ATTR, 8, 8), [nxm(1, 39, "NXM_NX_TUN_GBP_FLAGS")];
    TunErspanIdx, "tun_erspan_idx", "", 20, 32, Full, Hex, None, RW, bits(w::TUN_ERSPAN, 32, 32), [exp(NICIRA, 11, V12, "NXOXM_ET_ERSPAN_IDX")];
    TunErspanVer, "tun_erspan_ver", "", 4, 8, Full, Decimal, None, RW, bits(w::TUN_ERSPAN, 24, 8), [exp(NICIRA, 12, V12, "NXOXM_ET_ERSPAN_VER")];
    TunErspanDir, "tun_erspan_dir", "", 1, 8, Full, Decimal, None, RW, bits(w::TUN_ERSPAN, 16, 8), [exp(NICIRA, 13, V12, "NXOXM_ET_ERSPAN_DIR")];
    TunErspanHwid, "tun_erspan_hwid", "", 6, 8, Full, Hex, None, RW, bits(w::TUN_ERSPAN, 8, 8), [exp(NICIRA, 14, V12, "NXOXM_ET_ERSPAN_HWID")];
    TunGtpuFlags, "tun_gtpu_flags", "", 8, 8, Full, Hex, None, RO, bits(w::TUN_GTPU, 56, 8), [exp(NICIRA, 15, V12, "NXOXM_ET_GTPU_FLAGS")];
    TunGtpuMsgtype, "tun_gtpu_msgtype", "", 8, 8, Full, Decimal, None, RO, bits(w::TUN_GTPU, 48, 8), [exp(NICIRA, 16, V12, "NXOXM_ET_GTPU_MSGTYPE")];
    TunMetadata0, "tun_metadata0", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(0), [nxm(1, 40, "NXM_NX_TUN_METADATA0")];
    TunMetadata1, "tun_metadata1", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(1), [nxm(1, 41, "NXM_NX_TUN_METADATA1")];
    TunMetadata2, "tun_metadata2", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(2), [nxm(1, 42, "NXM_NX_TUN_METADATA2")];
    TunMetadata3, "tun_metadata3", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(3), [nxm(1, 43, "NXM_NX_TUN_METADATA3")];
    TunMetadata4, "tun_metadata4", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(4), [nxm(1, 44, "NXM_NX_TUN_METADATA4")];
    TunMetadata5, "tun_metadata5", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(5), [nxm(1, 45, "NXM_NX_TUN_METADATA5")];
    TunMetadata6, "tun_metadata6", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(6), [nxm(1, 46, "NXM_NX_TUN_METADATA6")];
    TunMetadata7, "tun_metadata7", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(7), [nxm(1, 47, "NXM_NX_TUN_METADATA7")];
    TunMetadata8, "tun_metadata8", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(8), [nxm(1, 48, "NXM_NX_TUN_METADATA8")];
    TunMetadata9, "tun_metadata9", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(9), [nxm(1, 49, "NXM_NX_TUN_METADATA9")];
    TunMetadata10, "tun_metadata10", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(10), [nxm(1, 50, "NXM_NX_TUN_METADATA10")];
    TunMetadata11, "tun_metadata11", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(11), [nxm(1, 51, "NXM_NX_TUN_METADATA11")];
    TunMetadata12, "tun_metadata12", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(12), [nxm(1, 52, "NXM_NX_TUN_METADATA12")];
    TunMetadata13, "tun_metadata13", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(13), [nxm(1, 53, "NXM_NX_TUN_METADATA13")];
    TunMetadata14, "tun_metadata14", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(14), [nxm(1, 54, "NXM_NX_TUN_METADATA14")];
    TunMetadata15, "tun_metadata15", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(15), [nxm(1, 55, "NXM_NX_TUN_METADATA15")];
    TunMetadata16, "tun_metadata16", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(16), [nxm(1, 56, "NXM_NX_TUN_METADATA16")];
    TunMetadata17, "tun_metadata17", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(17), [nxm(1, 57, "NXM_NX_TUN_METADATA17")];
    TunMetadata18, "tun_metadata18", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(18), [nxm(1, 58, "NXM_NX_TUN_METADATA18")];
    TunMetadata19, "tun_metadata19", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(19), [nxm(1, 59, "NXM_NX_TUN_METADATA19")];
    TunMetadata20, "tun_metadata20", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(20), [nxm(1, 60, "NXM_NX_TUN_METADATA20")];
    TunMetadata21, "tun_metadata21", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(21), [nxm(1, 61, "NXM_NX_TUN_METADATA21")];
    TunMetadata22, "tun_metadata22", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(22), [nxm(1, 62, "NXM_NX_TUN_METADATA22")];
    TunMetadata23, "tun_metadata23", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(23), [nxm(1, 63, "NXM_NX_TUN_METADATA23")];
    TunMetadata24, "tun_metadata24", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(24), [nxm(1, 64, "NXM_NX_TUN_METADATA24")];
    TunMetadata25, "tun_metadata25", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(25), [nxm(1, 65, "NXM_NX_TUN_METADATA25")];
    TunMetadata26, "tun_metadata26", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(26), [nxm(1, 66, "NXM_NX_TUN_METADATA26")];
    TunMetadata27, "tun_metadata27", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(27), [nxm(1, 67, "NXM_NX_TUN_METADATA27")];
    TunMetadata28, "tun_metadata28", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(28), [nxm(1, 68, "NXM_NX_TUN_METADATA28")];
    TunMetadata29, "tun_metadata29", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(29), [nxm(1, 69, "NXM_NX_TUN_METADATA29")];
    TunMetadata30, "tun_metadata30", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(30), [nxm(1, 70, "NXM_NX_TUN_METADATA30")];
    TunMetadata31, "tun_metadata31", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(31), [nxm(1, 71, "NXM_NX_TUN_METADATA31")];
    TunMetadata32, "tun_metadata32", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(32), [nxm(1, 72, "NXM_NX_TUN_METADATA32")];
    TunMetadata33, "tun_metadata33", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(33), [nxm(1, 73, "NXM_NX_TUN_METADATA33")];
    TunMetadata34, "tun_metadata34", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(34), [nxm(1, 74, "NXM_NX_TUN_METADATA34")];
    TunMetadata35, "tun_metadata35", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(35), [nxm(1, 75, "NXM_NX_TUN_METADATA35")];
    TunMetadata36, "tun_metadata36", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(36), [nxm(1, 76, "NXM_NX_TUN_METADATA36")];
    TunMetadata37, "tun_metadata37", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(37), [nxm(1, 77, "NXM_NX_TUN_METADATA37")];
    TunMetadata38, "tun_metadata38", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(38), [nxm(1, 78, "NXM_NX_TUN_METADATA38")];
    TunMetadata39, "tun_metadata39", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(39), [nxm(1, 79, "NXM_NX_TUN_METADATA39")];
    TunMetadata40, "tun_metadata40", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(40), [nxm(1, 80, "NXM_NX_TUN_METADATA40")];
    TunMetadata41, "tun_metadata41", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(41), [nxm(1, 81, "NXM_NX_TUN_METADATA41")];
    TunMetadata42, "tun_metadata42", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(42), [nxm(1, 82, "NXM_NX_TUN_METADATA42")];
    TunMetadata43, "tun_metadata43", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(43), [nxm(1, 83, "NXM_NX_TUN_METADATA43")];
    TunMetadata44, "tun_metadata44", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(44), [nxm(1, 84, "NXM_NX_TUN_METADATA44")];
    TunMetadata45, "tun_metadata45", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(45), [nxm(1, 85, "NXM_NX_TUN_METADATA45")];
    TunMetadata46, "tun_metadata46", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(46), [nxm(1, 86, "NXM_NX_TUN_METADATA46")];
    TunMetadata47, "tun_metadata47", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(47), [nxm(1, 87, "NXM_NX_TUN_METADATA47")];
    TunMetadata48, "tun_metadata48", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(48), [nxm(1, 88, "NXM_NX_TUN_METADATA48")];
    TunMetadata49, "tun_metadata49", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(49), [nxm(1, 89, "NXM_NX_TUN_METADATA49")];
    TunMetadata50, "tun_metadata50", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(50), [nxm(1, 90, "NXM_NX_TUN_METADATA50")];
    TunMetadata51, "tun_metadata51", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(51), [nxm(1, 91, "NXM_NX_TUN_METADATA51")];
    TunMetadata52, "tun_metadata52", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(52), [nxm(1, 92, "NXM_NX_TUN_METADATA52")];
    TunMetadata53, "tun_metadata53", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(53), [nxm(1, 93, "NXM_NX_TUN_METADATA53")];
    TunMetadata54, "tun_metadata54", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(54), [nxm(1, 94, "NXM_NX_TUN_METADATA54")];
    TunMetadata55, "tun_metadata55", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(55), [nxm(1, 95, "NXM_NX_TUN_METADATA55")];
    TunMetadata56, "tun_metadata56", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(56), [nxm(1, 96, "NXM_NX_TUN_METADATA56")];
    TunMetadata57, "tun_metadata57", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(57), [nxm(1, 97, "NXM_NX_TUN_METADATA57")];
    TunMetadata58, "tun_metadata58", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(58), [nxm(1, 98, "NXM_NX_TUN_METADATA58")];
    TunMetadata59, "tun_metadata59", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(59), [nxm(1, 99, "NXM_NX_TUN_METADATA59")];
    TunMetadata60, "tun_metadata60", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(60), [nxm(1, 100, "NXM_NX_TUN_METADATA60")];
    TunMetadata61, "tun_metadata61", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(61), [nxm(1, 101, "NXM_NX_TUN_METADATA61")];
    TunMetadata62, "tun_metadata62", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(62), [nxm(1, 102, "NXM_NX_TUN_METADATA62")];
    TunMetadata63, "tun_metadata63", "", 992, 992, Full, Hex, None, RW, Loc::TunMetadata(63), [nxm(1, 103, "NXM_NX_TUN_METADATA63")];
    Metadata, "metadata", "", 64, 64, Full, Hex, None, RW, bits(w::METADATA, 0, 64), [oxm(0x8000, 2, V12, "OXM_OF_METADATA")];
    InPort, "in_port", "", 16, 16, None, OfPort, None, RW, Loc::InPort16, [nxm(0, 0, "NXM_OF_IN_PORT")];
    InPortOxm, "in_port_oxm", "", 32, 32, None, OfPort32, None, RW, bits(w::PORTS, 32, 32), [oxm(0x8000, 0, V12, "OXM_OF_IN_PORT")];
    ActsetOutput, "actset_output", "", 32, 32, None, OfPort32, None, RO, bits(w::DPHASH_ACTSET, 0, 32), [exp(ONF, 43, V13, "ONFOXM_ET_ACTSET_OUTPUT"), oxm(0x8000, 43, V15, "OXM_OF_ACTSET_OUTPUT")];
    SkbPriority, "skb_priority", "", 32, 32, None, Hex, None, RO, bits(w::SKB_PKT, 32, 32), [];
    PktMark, "pkt_mark", "", 32, 32, Full, Hex, None, RW, bits(w::SKB_PKT, 0, 32), [nxm(1, 33, "NXM_NX_PKT_MARK")];
    DpHash, "dp_hash", "", 32, 32, Full, Hex, None, RO, bits(w::DPHASH_ACTSET, 32, 32), [nxm(1, 35, "NXM_NX_DP_HASH"), exp(NICIRA, 0, 0, "NXOXM_ET_DP_HASH")];
    RecircId, "recirc_id", "", 32, 32, None, Decimal, None, RO, bits(w::PORTS, 0, 32), [nxm(1, 36, "NXM_NX_RECIRC_ID")];
    ConjId, "conj_id", "", 32, 32, None, Decimal, None, RO, bits(w::CONJ_CTMARK, 32, 32), [nxm(1, 37, "NXM_NX_CONJ_ID")];
    CtMark, "ct_mark", "", 32, 32, Full, Hex, None, RW, bits(w::CONJ_CTMARK, 0, 32), [nxm(1, 107, "NXM_NX_CT_MARK")];
    CtState, "ct_state", "", 8, 32, Full, CtState, None, RO, bits(w::CT, 32, 32), [nxm(1, 105, "NXM_NX_CT_STATE")];
    CtZone, "ct_zone", "", 16, 16, None, Hex, None, RO, bits(w::CT, 16, 16), [nxm(1, 106, "NXM_NX_CT_ZONE")];
    CtNwProto, "ct_nw_proto", "", 8, 8, None, Decimal, Ct, RO, bits(w::CT, 8, 8), [nxm(1, 119, "NXM_NX_CT_NW_PROTO")];
    CtLabel, "ct_label", "", 128, 128, Full, Hex, None, RW, Loc::Wide(w::CT_LABEL), [nxm(1, 108, "NXM_NX_CT_LABEL")];
    PacketType, "packet_type", "", 32, 32, None, PacketType, None, RO, bits(w::PKTTYPE_CTTP, 32, 32), [oxm(0x8000, 44, V15, "OXM_OF_PACKET_TYPE")];
    CtTpSrc, "ct_tp_src", "", 16, 16, Full, Decimal, Ct, RO, bits(w::PKTTYPE_CTTP, 16, 16), [nxm(1, 124, "NXM_NX_CT_TP_SRC")];
    CtTpDst, "ct_tp_dst", "", 16, 16, Full, Decimal, Ct, RO, bits(w::PKTTYPE_CTTP, 0, 16), [nxm(1, 125, "NXM_NX_CT_TP_DST")];
    CtNwSrc, "ct_nw_src", "", 32, 32, Full, Ipv4, Ct, RO, bits(w::CT_NW, 32, 32), [nxm(1, 120, "NXM_NX_CT_NW_SRC")];
    CtNwDst, "ct_nw_dst", "", 32, 32, Full, Ipv4, Ct, RO, bits(w::CT_NW, 0, 32), [nxm(1, 121, "NXM_NX_CT_NW_DST")];
    CtIpv6Src, "ct_ipv6_src", "", 128, 128, Full, Ipv6, Ct, RO, Loc::Wide(w::CT_IPV6_SRC), [nxm(1, 122, "NXM_NX_CT_IPV6_SRC")];
    CtIpv6Dst, "ct_ipv6_dst", "", 128, 128, Full, Ipv6, Ct, RO, Loc::Wide(w::CT_IPV6_DST), [nxm(1, 123, "NXM_NX_CT_IPV6_DST")];
    Reg0, "reg0", "", 32, 32, Full, Hex, None, RW, bits(w::REGS, 32, 32), [nxm(1, 0, "NXM_NX_REG0")];
    Reg1, "reg1", "", 32, 32, Full, Hex, None, RW, bits(w::REGS, 0, 32), [nxm(1, 1, "NXM_NX_REG1")];
    Reg2, "reg2", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 1, 32, 32), [nxm(1, 2, "NXM_NX_REG2")];
    Reg3, "reg3", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 1, 0, 32), [nxm(1, 3, "NXM_NX_REG3")];
    Reg4, "reg4", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 2, 32, 32), [nxm(1, 4, "NXM_NX_REG4")];
    Reg5, "reg5", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 2, 0, 32), [nxm(1, 5, "NXM_NX_REG5")];
    Reg6, "reg6", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 3, 32, 32), [nxm(1, 6, "NXM_NX_REG6")];
    Reg7, "reg7", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 3, 0, 32), [nxm(1, 7, "NXM_NX_REG7")];
    Reg8, "reg8", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 4, 32, 32), [nxm(1, 8, "NXM_NX_REG8")];
    Reg9, "reg9", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 4, 0, 32), [nxm(1, 9, "NXM_NX_REG9")];
    Reg10, "reg10", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 5, 32, 32), [nxm(1, 10, "NXM_NX_REG10")];
    Reg11, "reg11", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 5, 0, 32), [nxm(1, 11, "NXM_NX_REG11")];
    Reg12, "reg12", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 6, 32, 32), [nxm(1, 12, "NXM_NX_REG12")];
    Reg13, "reg13", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 6, 0, 32), [nxm(1, 13, "NXM_NX_REG13")];
    Reg14, "reg14", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 7, 32, 32), [nxm(1, 14, "NXM_NX_REG14")];
    Reg15, "reg15", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 7, 0, 32), [nxm(1, 15, "NXM_NX_REG15")];
    Reg16, "reg16", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 8, 32, 32), [exp(NICIRA, 17, V12, "NXOXM_ET_REG16")];
    Reg17, "reg17", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 8, 0, 32), [exp(NICIRA, 18, V12, "NXOXM_ET_REG17")];
    Reg18, "reg18", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 9, 32, 32), [exp(NICIRA, 19, V12, "NXOXM_ET_REG18")];
    Reg19, "reg19", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 9, 0, 32), [exp(NICIRA, 20, V12, "NXOXM_ET_REG19")];
    Reg20, "reg20", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 10, 32, 32), [exp(NICIRA, 21, V12, "NXOXM_ET_REG20")];
    Reg21, "reg21", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 10, 0, 32), [exp(NICIRA, 22, V12, "NXOXM_ET_REG21")];
    Reg22, "reg22", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 11, 32, 32), [exp(NICIRA, 23, V12, "NXOXM_ET_REG22")];
    Reg23, "reg23", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 11, 0, 32), [exp(NICIRA, 24, V12, "NXOXM_ET_REG23")];
    Reg24, "reg24", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 12, 32, 32), [exp(NICIRA, 25, V12, "NXOXM_ET_REG24")];
    Reg25, "reg25", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 12, 0, 32), [exp(NICIRA, 26, V12, "NXOXM_ET_REG25")];
    Reg26, "reg26", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 13, 32, 32), [exp(NICIRA, 27, V12, "NXOXM_ET_REG26")];
    Reg27, "reg27", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 13, 0, 32), [exp(NICIRA, 28, V12, "NXOXM_ET_REG27")];
    Reg28, "reg28", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 14, 32, 32), [exp(NICIRA, 29, V12, "NXOXM_ET_REG28")];
    Reg29, "reg29", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 14, 0, 32), [exp(NICIRA, 30, V12, "NXOXM_ET_REG29")];
    Reg30, "reg30", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 15, 32, 32), [exp(NICIRA, 31, V12, "NXOXM_ET_REG30")];
    Reg31, "reg31", "", 32, 32, Full, Hex, None, RW, bits(w::REGS + 15, 0, 32), [exp(NICIRA, 32, V12, "NXOXM_ET_REG31")];
    Xreg0, "xreg0", "", 64, 64, Full, Hex, None, RW, bits(w::REGS, 0, 64), [oxm(0x8001, 0, V13, "OXM_OF_PKT_REG0")];
    Xreg1, "xreg1", "", 64, 64, Full, Hex, None, RW, bits(w::REGS + 1, 0, 64), [oxm(0x8001, 1, V13, "OXM_OF_PKT_REG1")];
    Xreg2, "xreg2", "", 64, 64, Full, Hex, None, RW, bits(w::REGS + 2, 0, 64), [oxm(0x8001, 2, V13, "OXM_OF_PKT_REG2")];
    Xreg3, "xreg3", "", 64, 64, Full, Hex, None, RW, bits(w::REGS + 3, 0, 64), [oxm(0x8001, 3, V13, "OXM_OF_PKT_REG3")];
    Xreg4, "xreg4", "", 64, 64, Full, Hex, None, RW, bits(w::REGS + 4, 0, 64), [oxm(0x8001, 4, V13, "OXM_OF_PKT_REG4")];
    Xreg5, "xreg5", "", 64, 64, Full, Hex, None, RW, bits(w::REGS + 5, 0, 64), [oxm(0x8001, 5, V13, "OXM_OF_PKT_REG5")];
    Xreg6, "xreg6", "", 64, 64, Full, Hex, None, RW, bits(w::REGS + 6, 0, 64), [oxm(0x8001, 6, V13, "OXM_OF_PKT_REG6")];
    Xreg7, "xreg7", "", 64, 64, Full, Hex, None, RW, bits(w::REGS + 7, 0, 64), [oxm(0x8001, 7, V13, "OXM_OF_PKT_REG7")];
    Xreg8, "xreg8", "", 64, 64, Full, Hex, None, RW, bits(w::REGS + 8, 0, 64), [oxm(0x8001, 8, V13, "OXM_OF_PKT_REG8")];
    Xreg9, "xreg9", "", 64, 64, Full, Hex, None, RW, bits(w::REGS + 9, 0, 64), [oxm(0x8001, 9, V13, "OXM_OF_PKT_REG9")];
    Xreg10, "xreg10", "", 64, 64, Full, Hex, None, RW, bits(w::REGS + 10, 0, 64), [oxm(0x8001, 10, V13, "OXM_OF_PKT_REG10")];
    Xreg11, "xreg11", "", 64, 64, Full, Hex, None, RW, bits(w::REGS + 11, 0, 64), [oxm(0x8001, 11, V13, "OXM_OF_PKT_REG11")];
    Xreg12, "xreg12", "", 64, 64, Full, Hex, None, RW, bits(w::REGS + 12, 0, 64), [oxm(0x8001, 12, V13, "OXM_OF_PKT_REG12")];
    Xreg13, "xreg13", "", 64, 64, Full, Hex, None, RW, bits(w::REGS + 13, 0, 64), [oxm(0x8001, 13, V13, "OXM_OF_PKT_REG13")];
    Xreg14, "xreg14", "", 64, 64, Full, Hex, None, RW, bits(w::REGS + 14, 0, 64), [oxm(0x8001, 14, V13, "OXM_OF_PKT_REG14")];
    Xreg15, "xreg15", "", 64, 64, Full, Hex, None, RW, bits(w::REGS + 15, 0, 64), [oxm(0x8001, 15, V13, "OXM_OF_PKT_REG15")];
    Xxreg0, "xxreg0", "", 128, 128, Full, Hex, None, RW, Loc::Wide(w::REGS), [nxm(1, 111, "NXM_NX_XXREG0")];
    Xxreg1, "xxreg1", "", 128, 128, Full, Hex, None, RW, Loc::Wide(w::REGS + 2), [nxm(1, 112, "NXM_NX_XXREG1")];
    Xxreg2, "xxreg2", "", 128, 128, Full, Hex, None, RW, Loc::Wide(w::REGS + 4), [nxm(1, 113, "NXM_NX_XXREG2")];
    Xxreg3, "xxreg3", "", 128, 128, Full, Hex, None, RW, Loc::Wide(w::REGS + 6), [nxm(1, 114, "NXM_NX_XXREG3")];
    Xxreg4, "xxreg4", "", 128, 128, Full, Hex, None, RW, Loc::Wide(w::REGS + 8), [exp(NICIRA, 33, V12, "NXOXM_ET_XXREG4")];
    Xxreg5, "xxreg5", "", 128, 128, Full, Hex, None, RW, Loc::Wide(w::REGS + 10), [exp(NICIRA, 34, V12, "NXOXM_ET_XXREG5")];
    Xxreg6, "xxreg6", "", 128, 128, Full, Hex, None, RW, Loc::Wide(w::REGS + 12), [exp(NICIRA, 35, V12, "NXOXM_ET_XXREG6")];
    Xxreg7, "xxreg7", "", 128, 128, Full, Hex, None, RW, Loc::Wide(w::REGS + 14), [exp(NICIRA, 36, V12, "NXOXM_ET_XXREG7")];
    EthSrc, "eth_src", "dl_src", 48, 48, Full, Mac, Ethernet, RW, bits(w::ETH_SRC, 16, 48), [nxm(0, 2, "NXM_OF_ETH_SRC"), oxm(0x8000, 4, V12, "OXM_OF_ETH_SRC")];
    EthDst, "eth_dst", "dl_dst", 48, 48, Full, Mac, Ethernet, RW, bits(w::ETH_DST, 16, 48), [nxm(0, 1, "NXM_OF_ETH_DST"), oxm(0x8000, 3, V12, "OXM_OF_ETH_DST")];
    EthType, "eth_type", "dl_type", 16, 16, None, Hex, Ethernet, RO, bits(w::ETH_DST, 0, 16), [nxm(0, 3, "NXM_OF_ETH_TYPE"), oxm(0x8000, 5, V12, "OXM_OF_ETH_TYPE")];
    VlanTci, "vlan_tci", "", 16, 16, Full, Hex, Ethernet, RW, bits(w::ETH_SRC, 0, 16), [nxm(0, 4, "NXM_OF_VLAN_TCI")];
    DlVlan, "dl_vlan", "", 12, 16, None, Decimal, Ethernet, RW, bits(w::ETH_SRC, 0, 12), [];
    VlanVid, "vlan_vid", "", 12, 16, Full, Decimal, Ethernet, RW, bits(w::ETH_SRC, 0, 13), [oxm(0x8000, 6, V12, "OXM_OF_VLAN_VID")];
    DlVlanPcp, "dl_vlan_pcp", "", 3, 8, None, Decimal, Ethernet, RW, bits(w::ETH_SRC, 13, 3), [];
    VlanPcp, "vlan_pcp", "", 3, 8, None, Decimal, VlanVid, RW, bits(w::ETH_SRC, 13, 3), [oxm(0x8000, 7, V12, "OXM_OF_VLAN_PCP")];
    MplsLabel, "mpls_label", "", 20, 32, None, Decimal, Mpls, RW, bits(w::MPLS01, 44, 20), [oxm(0x8000, 34, V12, "OXM_OF_MPLS_LABEL")];
    MplsTc, "mpls_tc", "", 3, 8, None, Decimal, Mpls, RW, bits(w::MPLS01, 41, 3), [oxm(0x8000, 35, V12, "OXM_OF_MPLS_TC")];
    MplsBos, "mpls_bos", "", 1, 8, None, Decimal, Mpls, RO, bits(w::MPLS01, 40, 1), [oxm(0x8000, 36, V13, "OXM_OF_MPLS_BOS")];
    MplsTtl, "mpls_ttl", "", 8, 8, None, Decimal, Mpls, RW, bits(w::MPLS01, 32, 8), [nxm(1, 30, "NXM_NX_MPLS_TTL")];
    PbbIsid, "pbb_isid", "", 24, 24, Full, Hex, Pbb, RW, bits(w::MPLS2, 0, 24), [oxm(0x8000, 37, V13, "OXM_OF_PBB_ISID")];
    PbbUca, "pbb_uca", "", 1, 8, None, Decimal, Pbb, RW, bits(w::MPLS2, 27, 1), [oxm(0x8000, 41, V14, "OXM_OF_PBB_UCA")];
    Ipv4Src, "ip_src", "nw_src", 32, 32, Full, Ipv4, Ipv4, RW, bits(w::IPV4, 32, 32), [nxm(0, 7, "NXM_OF_IP_SRC"), oxm(0x8000, 11, V12, "OXM_OF_IPV4_SRC")];
    Ipv4Dst, "ip_dst", "nw_dst", 32, 32, Full, Ipv4, Ipv4, RW, bits(w::IPV4, 0, 32), [nxm(0, 8, "NXM_OF_IP_DST"), oxm(0x8000, 12, V12, "OXM_OF_IPV4_DST")];
    Ipv6Src, "ipv6_src", "", 128, 128, Full, Ipv6, Ipv6, RW, Loc::Wide(w::IPV6_SRC), [nxm(1, 19, "NXM_NX_IPV6_SRC"), oxm(0x8000, 26, V12, "OXM_OF_IPV6_SRC")];
    Ipv6Dst, "ipv6_dst", "", 128, 128, Full, Ipv6, Ipv6, RW, Loc::Wide(w::IPV6_DST), [nxm(1, 20, "NXM_NX_IPV6_DST"), oxm(0x8000, 27, V12, "OXM_OF_IPV6_DST")];
    Ipv6Label, "ipv6_label", "", 20, 32, Full, Hex, Ipv6, RW, bits(w::IP_MISC, 32, 32), [nxm(1, 27, "NXM_NX_IPV6_LABEL"), oxm(0x8000, 28, V12, "OXM_OF_IPV6_FLABEL")];
    Ipv6Exthdr, "ipv6_exthdr", "", 9, 16, Full, Hex, Ipv6, RO, bits(w::ARP_SHA, 0, 9), [oxm(0x8000, 39, V13, "OXM_OF_IPV6_EXTHDR")];
    IpProto, "nw_proto", "ip_proto", 8, 8, None, Decimal, Ip, RO, bits(w::IP_MISC, 0, 8), [nxm(0, 6, "NXM_OF_IP_PROTO"), oxm(0x8000, 10, V12, "OXM_OF_IP_PROTO")];
    IpDscpShifted, "nw_tos", "", 8, 8, None, Decimal, Ip, RW, Loc::NwTos, [nxm(0, 5, "NXM_OF_IP_TOS")];
    IpDscp, "ip_dscp", "", 6, 8, None, Decimal, Ip, RW, bits(w::IP_MISC, 18, 6), [oxm(0x8000, 8, V12, "OXM_OF_IP_DSCP")];
    IpEcn, "nw_ecn", "ip_ecn", 2, 8, None, Decimal, Ip, RW, bits(w::IP_MISC, 16, 2), [nxm(1, 28, "NXM_NX_IP_ECN"), oxm(0x8000, 9, V12, "OXM_OF_IP_ECN")];
    IpTtl, "nw_ttl", "", 8, 8, None, Decimal, Ip, RW, bits(w::IP_MISC, 8, 8), [nxm(1, 29, "NXM_NX_IP_TTL")];
    IpFrag, "ip_frag", "nw_frag", 2, 8, Full, Frag, Ip, RO, bits(w::IP_MISC, 24, 2), [nxm(1, 26, "NXM_NX_IP_FRAG")];
    ArpOp, "arp_op", "", 16, 16, None, Decimal, Arp, RW, Loc::ArpOp, [nxm(0, 15, "NXM_OF_ARP_OP"), oxm(0x8000, 21, V12, "OXM_OF_ARP_OP")];
    ArpSpa, "arp_spa", "", 32, 32, Full, Ipv4, Arp, RW, bits(w::IPV4, 32, 32), [nxm(0, 16, "NXM_OF_ARP_SPA"), oxm(0x8000, 22, V12, "OXM_OF_ARP_SPA")];
    ArpTpa, "arp_tpa", "", 32, 32, Full, Ipv4, Arp, RW, bits(w::IPV4, 0, 32), [nxm(0, 17, "NXM_OF_ARP_TPA"), oxm(0x8000, 23, V12, "OXM_OF_ARP_TPA")];
    ArpSha, "arp_sha", "", 48, 48, Full, Mac, Arp, RW, bits(w::ARP_SHA, 16, 48), [nxm(1, 17, "NXM_NX_ARP_SHA"), oxm(0x8000, 24, V12, "OXM_OF_ARP_SHA")];
    ArpTha, "arp_tha", "", 48, 48, Full, Mac, Arp, RW, bits(w::ARP_THA, 16, 48), [nxm(1, 18, "NXM_NX_ARP_THA"), oxm(0x8000, 25, V12, "OXM_OF_ARP_THA")];
    TcpSrc, "tcp_src", "tp_src", 16, 16, Full, Decimal, Tcp, RW, bits(w::TP, 48, 16), [nxm(0, 9, "NXM_OF_TCP_SRC"), oxm(0x8000, 13, V12, "OXM_OF_TCP_SRC")];
    TcpDst, "tcp_dst", "tp_dst", 16, 16, Full, Decimal, Tcp, RW, bits(w::TP, 32, 16), [nxm(0, 10, "NXM_OF_TCP_DST"), oxm(0x8000, 14, V12, "OXM_OF_TCP_DST")];
    TcpFlags, "tcp_flags", "", 12, 16, Full, TcpFlags, Tcp, RO, bits(w::TP, 16, 16), [nxm(1, 34, "NXM_NX_TCP_FLAGS"), exp(ONF, 42, V13, "ONFOXM_ET_TCP_FLAGS"), oxm(0x8000, 42, V15, "OXM_OF_TCP_FLAGS")];
    UdpSrc, "udp_src", "", 16, 16, Full, Decimal, Udp, RW, bits(w::TP, 48, 16), [nxm(0, 11, "NXM_OF_UDP_SRC"), oxm(0x8000, 15, V12, "OXM_OF_UDP_SRC")];
    UdpDst, "udp_dst", "", 16, 16, Full, Decimal, Udp, RW, bits(w::TP, 32, 16), [nxm(0, 12, "NXM_OF_UDP_DST"), oxm(0x8000, 16, V12, "OXM_OF_UDP_DST")];
    SctpSrc, "sctp_src", "", 16, 16, Full, Decimal, Sctp, RW, bits(w::TP, 48, 16), [oxm(0x8000, 17, V12, "OXM_OF_SCTP_SRC")];
    SctpDst, "sctp_dst", "", 16, 16, Full, Decimal, Sctp, RW, bits(w::TP, 32, 16), [oxm(0x8000, 18, V12, "OXM_OF_SCTP_DST")];
    Icmpv4Type, "icmp_type", "", 8, 8, None, Decimal, Icmpv4, RW, bits(w::TP, 48, 8), [nxm(0, 13, "NXM_OF_ICMP_TYPE"), oxm(0x8000, 19, V12, "OXM_OF_ICMPV4_TYPE")];
    Icmpv4Code, "icmp_code", "", 8, 8, None, Decimal, Icmpv4, RW, bits(w::TP, 32, 8), [nxm(0, 14, "NXM_OF_ICMP_CODE"), oxm(0x8000, 20, V12, "OXM_OF_ICMPV4_CODE")];
    Icmpv6Type, "icmpv6_type", "", 8, 8, None, Decimal, Icmpv6, RW, bits(w::TP, 48, 8), [nxm(1, 21, "NXM_NX_ICMPV6_TYPE"), oxm(0x8000, 29, V12, "OXM_OF_ICMPV6_TYPE")];
    Icmpv6Code, "icmpv6_code", "", 8, 8, None, Decimal, Icmpv6, RW, bits(w::TP, 32, 8), [nxm(1, 22, "NXM_NX_ICMPV6_CODE"), oxm(0x8000, 30, V12, "OXM_OF_ICMPV6_CODE")];
    NdTarget, "nd_target", "", 128, 128, Full, Ipv6, Nd, RW, Loc::Wide(w::ND_TARGET), [nxm(1, 23, "NXM_NX_ND_TARGET"), oxm(0x8000, 31, V12, "OXM_OF_IPV6_ND_TARGET")];
    NdSll, "nd_sll", "", 48, 48, Full, Mac, NdSolicit, RW, bits(w::ARP_SHA, 16, 48), [nxm(1, 24, "NXM_NX_ND_SLL"), oxm(0x8000, 32, V12, "OXM_OF_IPV6_ND_SLL")];
    NdTll, "nd_tll", "", 48, 48, Full, Mac, NdAdvert, RW, bits(w::ARP_THA, 16, 48), [nxm(1, 25, "NXM_NX_ND_TLL"), oxm(0x8000, 33, V12, "OXM_OF_IPV6_ND_TLL")];
    NdReserved, "nd_reserved", "", 32, 32, None, Decimal, Nd, RW, bits(w::L4_MISC, 0, 32), [oxm(ERICSSON, 1, V12, "ERICOXM_OF_ICMPV6_ND_RESERVED")];
    NdOptionsType, "nd_options_type", "", 8, 8, None, Decimal, Nd, RW, bits(w::TP, 16, 8), [oxm(ERICSSON, 2, V12, "ERICOXM_OF_ICMPV6_ND_OPTIONS_TYPE")];
    NshFlags, "nsh_flags", "", 8, 8, Full, Decimal, Nsh, RW, bits(w::NSH, 56, 8), [exp(NSH, 1, V12, "NXOXM_NSH_FLAGS")];
    NshTtl, "nsh_ttl", "", 8, 8, None, Decimal, Nsh, RW, bits(w::NSH, 48, 8), [exp(NSH, 10, V12, "NXOXM_NSH_TTL")];
    NshMdtype, "nsh_mdtype", "", 8, 8, None, Decimal, Nsh, RO, bits(w::NSH, 40, 8), [exp(NSH, 2, V12, "NXOXM_NSH_MDTYPE")];
    NshNp, "nsh_np", "", 8, 8, None, Decimal, Nsh, RO, bits(w::NSH, 32, 8), [exp(NSH, 3, V12, "NXOXM_NSH_NP")];
    NshSpi, "nsh_spi", "nsp", 24, 32, None, Hex, Nsh, RW, bits(w::NSH, 8, 24), [exp(NSH, 4, V12, "NXOXM_NSH_SPI")];
    NshSi, "nsh_si", "nsi", 8, 8, None, Decimal, Nsh, RW, bits(w::NSH, 0, 8), [exp(NSH, 5, V12, "NXOXM_NSH_SI")];
    NshC1, "nsh_c1", "nshc1", 32, 32, Full, Hex, Nsh, RW, bits(w::NSH_C12, 32, 32), [exp(NSH, 6, V12, "NXOXM_NSH_C1")];
    NshC2, "nsh_c2", "nshc2", 32, 32, Full, Hex, Nsh, RW, bits(w::NSH_C12, 0, 32), [exp(NSH, 7, V12, "NXOXM_NSH_C2")];
    NshC3, "nsh_c3", "nshc3", 32, 32, Full, Hex, Nsh, RW, bits(w::NSH_C34, 32, 32), [exp(NSH, 8, V12, "NXOXM_NSH_C3")];
    NshC4, "nsh_c4", "nshc4", 32, 32, Full, Hex, Nsh, RW, bits(w::NSH_C34, 0, 32), [exp(NSH, 9, V12, "NXOXM_NSH_C4")];
}
