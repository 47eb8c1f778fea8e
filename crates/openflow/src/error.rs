//! OpenFlow errors: every error that the specifications and Nicira's extensions define, with its name and its numbers in
//! each version (OpenFlow 1.0 section 5.4.4, 1.3 section 7.5.4, 1.5 section 7.5.4).
//!
//! A version in which an error is not defined has no number for it; the sender chooses a substitute.

use super::version::Version;
use std::fmt;

/// An error's numbers on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ErrorNumber {
    /// 0 for errors of OpenFlow itself, else the experimenter's id.
    pub vendor: u32,
    /// `OFPET_*`, or the experimenter's type.
    pub ty: u16,
    /// `OFP*C_*`; 0 for experimenter errors of OpenFlow 1.2 and later, which have a type only.
    pub code: u16,
}

impl ErrorNumber {
    /// Returns the first bytes of an error message's body: type and code, and for an experimenter's error what the version puts
    /// after them. (OpenFlow 1.0 and 1.1: `NXET_VENDOR`, `NXVC_VENDOR_ERROR`, vendor, type, code; later:
    /// `OFPET_EXPERIMENTER`, type, vendor.) An error of OpenFlow itself whose type and code stand for an experimenter's
    /// error has the longer form too, with experimenter 0, so that [`ErrorNumber::decode`] finds the same error again.
    pub fn encode(self, version: Version) -> Vec<u8> {
        let mut out = Vec::with_capacity(12);
        let mut put = |parts: &[&[u8]]| parts.iter().for_each(|p| out.extend_from_slice(p));
        let (vendor, ty, code) = (self.vendor.to_be_bytes(), self.ty.to_be_bytes(), self.code.to_be_bytes());
        let looks_like_experimenters = matches!((self.ty, self.code), (NXET_VENDOR, 0) | (OFPET_EXPERIMENTER, _));
        if self.vendor == 0 && !looks_like_experimenters {
            put(&[&ty, &code]);
        } else if version <= Version::V11 {
            put(&[&NXET_VENDOR.to_be_bytes(), &[0, 0], &vendor, &ty, &code]);
        } else {
            put(&[&OFPET_EXPERIMENTER.to_be_bytes(), &ty, &vendor]);
        }
        out
    }

    /// Reads the body of an error message: the number, and how many bytes it took. The rest is the offending message.
    ///
    /// Like Open vSwitch, it accepts both forms in every version, and takes the errors of experimenter 0 for OpenFlow's own.
    pub fn decode(body: &[u8]) -> Option<(Self, usize)> {
        let u16_at = |i: usize| Some(u16::from_be_bytes(body.get(i..i + 2)?.try_into().ok()?));
        let u32_at = |i: usize| Some(u32::from_be_bytes(body.get(i..i + 4)?.try_into().ok()?));
        let (ty, code) = (u16_at(0)?, u16_at(2)?);
        match (ty, code) {
            (NXET_VENDOR, 0) => Some((Self { vendor: u32_at(4)?, ty: u16_at(8)?, code: u16_at(10)? }, 12)),
            (OFPET_EXPERIMENTER, _) => Some((Self { vendor: u32_at(4)?, ty: code, code: 0 }, 8)),
            _ => Some((Self { vendor: 0, ty, code }, 4)),
        }
    }
}

const NXET_VENDOR: u16 = 0xb0c2;
const OFPET_EXPERIMENTER: u16 = 0xffff;

const NO: Option<ErrorNumber> = None;

const fn o(ty: u16, code: u16) -> Option<ErrorNumber> {
    Some(ErrorNumber { vendor: 0, ty, code })
}

const fn n(ty: u16, code: u16) -> Option<ErrorNumber> {
    Some(ErrorNumber { vendor: flow::field::NICIRA, ty, code })
}

const fn f(ty: u16, code: u16) -> Option<ErrorNumber> {
    Some(ErrorNumber { vendor: flow::field::ONF, ty, code })
}

impl OfpError {
    /// The number of errors.
    pub const COUNT: usize = TABLE.len();

    /// Returns all errors.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    /// Returns the error's number in `version`, if that version defines it.
    pub fn number(self, version: Version) -> Option<ErrorNumber> {
        TABLE[self as usize].2[version as usize - 1]
    }

    /// Returns the error with this number in `version`.
    pub fn from_number(version: Version, number: ErrorNumber) -> Option<Self> {
        TABLE.iter().find(|row| row.2[version as usize - 1] == Some(number)).map(|row| row.0)
    }

    /// The name in the specifications, as `OFPBMC_BAD_PREREQ`.
    pub fn name(self) -> &'static str {
        TABLE[self as usize].1
    }

    /// Returns the error with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        TABLE.iter().find(|row| row.1 == name).map(|row| row.0)
    }
}

impl fmt::Display for OfpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::error::Error for OfpError {}

macro_rules! errors {
    ($($id:ident, $name:literal, $v10:expr, $v11:expr, $v12:expr, $v13:expr, $v14:expr, $v15:expr;)+) => {
        /// An error of OpenFlow, named as in the specifications without `OFP` and underscores.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[allow(missing_docs, reason = "each variant is documented by its row")]
        pub enum OfpError { $($id,)+ }

        /// Name, and numbers in OpenFlow 1.0 to 1.5.
        const TABLE: &[(OfpError, &str, [Option<ErrorNumber>; 6])] =
            &[$((OfpError::$id, $name, [$v10, $v11, $v12, $v13, $v14, $v15]),)+];
    };
}

// `o`: OpenFlow's own type and code, `n`: Nicira's, `f`: the Open Networking Foundation's experimenter errors.
#[rustfmt::skip]
errors! {
    NxbacBadConjunction, "NXBAC_BAD_CONJUNCTION", n(2, 526), n(2, 526), n(15, 0), n(15, 0), n(15, 0), n(15, 0);
    NxbacBadEdProp, "NXBAC_BAD_ED_PROP", NO, NO, NO, n(41, 0), n(41, 0), n(41, 0);
    NxbacBadHeaderType, "NXBAC_BAD_HEADER_TYPE", NO, NO, NO, n(39, 0), n(39, 0), n(39, 0);
    NxbacCtDatapathSupport, "NXBAC_CT_DATAPATH_SUPPORT", n(1, 265), n(1, 265), n(42, 0), n(42, 0), n(42, 0), n(42, 0);
    NxbacMustBeZero, "NXBAC_MUST_BE_ZERO", n(2, 256), n(2, 256), n(11, 0), n(11, 0), n(11, 0), n(11, 0);
    NxbacUnknownEdProp, "NXBAC_UNKNOWN_ED_PROP", NO, NO, NO, n(40, 0), n(40, 0), n(40, 0);
    NxbmcCtDatapathSupport, "NXBMC_CT_DATAPATH_SUPPORT", n(1, 264), n(1, 264), n(43, 0), n(43, 0), n(43, 0), n(43, 0);
    NxbrcBadReason, "NXBRC_BAD_REASON", n(1, 516), n(1, 516), n(5, 0), n(5, 0), n(5, 0), n(5, 0);
    NxbrcFmBadEvent, "NXBRC_FM_BAD_EVENT", n(1, 520), n(1, 520), n(9, 0), n(9, 0), n(9, 0), n(9, 0);
    NxbrcMustBeZero, "NXBRC_MUST_BE_ZERO", n(1, 515), n(1, 515), n(4, 0), n(4, 0), n(4, 0), n(4, 0);
    NxbrcNxmBadType, "NXBRC_NXM_BAD_TYPE", n(1, 257), n(1, 257), n(3, 0), n(3, 0), n(3, 0), n(3, 0);
    NxbrcNxmInvalid, "NXBRC_NXM_INVALID", n(1, 256), n(1, 256), n(2, 0), n(2, 0), n(2, 0), n(2, 0);
    NxbrcUnencodableError, "NXBRC_UNENCODABLE_ERROR", n(1, 521), n(1, 521), n(10, 0), n(10, 0), n(10, 0), n(10, 0);
    NxfmfcBadTableId, "NXFMFC_BAD_TABLE_ID", n(5, 257), n(5, 257), n(13, 0), n(13, 0), n(13, 0), n(13, 0);
    NxfmfcHardware, "NXFMFC_HARDWARE", n(5, 256), n(5, 256), n(12, 0), n(12, 0), n(12, 0), n(12, 0);
    NxfmfcInvalidTlvField, "NXFMFC_INVALID_TLV_FIELD", n(1, 536), n(1, 536), n(37, 0), n(37, 0), n(37, 0), n(37, 0);
    NxqofcQueueError, "NXQOFC_QUEUE_ERROR", NO, NO, NO, NO, n(23, 0), n(23, 0);
    NxrNotSupported, "NXR_NOT_SUPPORTED", n(1, 533), n(1, 533), n(34, 0), n(34, 0), n(34, 0), n(34, 0);
    NxrStale, "NXR_STALE", n(1, 534), n(1, 534), n(35, 0), n(35, 0), n(35, 0), n(35, 0);
    NxstNotConfigured, "NXST_NOT_CONFIGURED", n(1, 535), n(1, 535), n(36, 0), n(36, 0), n(36, 0), n(36, 0);
    NxtffcDupTable, "NXTFFC_DUP_TABLE", NO, NO, NO, n(44, 0), n(44, 0), n(44, 0);
    NxttmfcAlreadyMapped, "NXTTMFC_ALREADY_MAPPED", n(1, 531), n(1, 531), n(20, 0), n(20, 0), n(20, 0), n(20, 0);
    NxttmfcBadCommand, "NXTTMFC_BAD_COMMAND", n(1, 527), n(1, 527), n(16, 0), n(16, 0), n(16, 0), n(16, 0);
    NxttmfcBadFieldIdx, "NXTTMFC_BAD_FIELD_IDX", n(1, 529), n(1, 529), n(18, 0), n(18, 0), n(18, 0), n(18, 0);
    NxttmfcBadOptLen, "NXTTMFC_BAD_OPT_LEN", n(1, 528), n(1, 528), n(17, 0), n(17, 0), n(17, 0), n(17, 0);
    NxttmfcDupEntry, "NXTTMFC_DUP_ENTRY", n(1, 532), n(1, 532), n(21, 0), n(21, 0), n(21, 0), n(21, 0);
    NxttmfcInvalidTlvDel, "NXTTMFC_INVALID_TLV_DEL", n(1, 537), n(1, 537), n(38, 0), n(38, 0), n(38, 0), n(38, 0);
    NxttmfcTableFull, "NXTTMFC_TABLE_FULL", n(1, 530), n(1, 530), n(19, 0), n(19, 0), n(19, 0), n(19, 0);
    AcfcEperm, "OFPACFC_EPERM", NO, NO, NO, f(2372, 0), o(15, 2), o(15, 2);
    AcfcInvalid, "OFPACFC_INVALID", NO, NO, NO, f(2370, 0), o(15, 0), o(15, 0);
    AcfcUnsupported, "OFPACFC_UNSUPPORTED", NO, NO, NO, f(2371, 0), o(15, 1), o(15, 1);
    BacBadArgument, "OFPBAC_BAD_ARGUMENT", o(2, 5), o(2, 5), o(2, 5), o(2, 5), o(2, 5), o(2, 5);
    BacBadLen, "OFPBAC_BAD_LEN", o(2, 1), o(2, 1), o(2, 1), o(2, 1), o(2, 1), o(2, 1);
    BacBadMeter, "OFPBAC_BAD_METER", NO, NO, NO, NO, NO, o(2, 17);
    BacBadOutGroup, "OFPBAC_BAD_OUT_GROUP", n(2, 9), o(2, 9), o(2, 9), o(2, 9), o(2, 9), o(2, 9);
    BacBadOutPort, "OFPBAC_BAD_OUT_PORT", o(2, 4), o(2, 4), o(2, 4), o(2, 4), o(2, 4), o(2, 4);
    BacBadQueue, "OFPBAC_BAD_QUEUE", o(2, 8), o(2, 8), o(2, 8), o(2, 8), o(2, 8), o(2, 8);
    BacBadSetArgument, "OFPBAC_BAD_SET_ARGUMENT", n(1, 525), n(1, 525), o(2, 15), o(2, 15), o(2, 15), o(2, 15);
    BacBadSetLen, "OFPBAC_BAD_SET_LEN", n(1, 524), n(1, 524), o(2, 14), o(2, 14), o(2, 14), o(2, 14);
    BacBadSetMask, "OFPBAC_BAD_SET_MASK", NO, NO, NO, f(4250, 0), f(4250, 0), o(2, 16);
    BacBadSetType, "OFPBAC_BAD_SET_TYPE", n(1, 523), n(1, 523), o(2, 13), o(2, 13), o(2, 13), o(2, 13);
    BacBadTag, "OFPBAC_BAD_TAG", NO, o(2, 12), o(2, 12), o(2, 12), o(2, 12), o(2, 12);
    BacBadType, "OFPBAC_BAD_TYPE", o(2, 0), o(2, 0), o(2, 0), o(2, 0), o(2, 0), o(2, 0);
    BacBadVendor, "OFPBAC_BAD_VENDOR", o(2, 2), o(2, 2), o(2, 2), o(2, 2), o(2, 2), o(2, 2);
    BacBadVendorType, "OFPBAC_BAD_VENDOR_TYPE", o(2, 3), o(2, 3), o(2, 3), o(2, 3), o(2, 3), o(2, 3);
    BacEperm, "OFPBAC_EPERM", o(2, 6), o(2, 6), o(2, 6), o(2, 6), o(2, 6), o(2, 6);
    BacMatchInconsistent, "OFPBAC_MATCH_INCONSISTENT", n(1, 522), o(2, 10), o(2, 10), o(2, 10), o(2, 10), o(2, 10);
    BacTooMany, "OFPBAC_TOO_MANY", o(2, 7), o(2, 7), o(2, 7), o(2, 7), o(2, 7), o(2, 7);
    BacUnsupportedOrder, "OFPBAC_UNSUPPORTED_ORDER", NO, o(2, 11), o(2, 11), o(2, 11), o(2, 11), o(2, 11);
    BfcBadFlags, "OFPBFC_BAD_FLAGS", NO, NO, NO, f(2307, 0), o(17, 7), o(17, 7);
    BfcBadId, "OFPBFC_BAD_ID", NO, NO, NO, f(2302, 0), o(17, 2), o(17, 2);
    BfcBadType, "OFPBFC_BAD_TYPE", NO, NO, NO, f(2306, 0), o(17, 6), o(17, 6);
    BfcBadVersion, "OFPBFC_BAD_VERSION", NO, NO, NO, NO, n(22, 0), n(22, 0);
    BfcBundleClosed, "OFPBFC_BUNDLE_CLOSED", NO, NO, NO, f(2304, 0), o(17, 4), o(17, 4);
    BfcBundleExist, "OFPBFC_BUNDLE_EXIST", NO, NO, NO, f(2303, 0), o(17, 3), o(17, 3);
    BfcBundleInProgress, "OFPBFC_BUNDLE_IN_PROGRESS", NO, NO, NO, f(2315, 0), o(17, 15), o(17, 15);
    BfcEperm, "OFPBFC_EPERM", NO, NO, NO, f(2301, 0), o(17, 1), o(17, 1);
    BfcMsgBadLen, "OFPBFC_MSG_BAD_LEN", NO, NO, NO, f(2308, 0), o(17, 8), o(17, 8);
    BfcMsgBadXid, "OFPBFC_MSG_BAD_XID", NO, NO, NO, f(2309, 0), o(17, 9), o(17, 9);
    BfcMsgConflict, "OFPBFC_MSG_CONFLICT", NO, NO, NO, f(2311, 0), o(17, 11), o(17, 11);
    BfcMsgFailed, "OFPBFC_MSG_FAILED", NO, NO, NO, f(2313, 0), o(17, 13), o(17, 13);
    BfcMsgTooMany, "OFPBFC_MSG_TOO_MANY", NO, NO, NO, f(2312, 0), o(17, 12), o(17, 12);
    BfcMsgUnsup, "OFPBFC_MSG_UNSUP", NO, NO, NO, f(2310, 0), o(17, 10), o(17, 10);
    BfcOutOfBundles, "OFPBFC_OUT_OF_BUNDLES", NO, NO, NO, f(2305, 0), o(17, 5), o(17, 5);
    BfcSchedFuture, "OFPBFC_SCHED_FUTURE", NO, NO, NO, NO, NO, o(17, 17);
    BfcSchedNotSupported, "OFPBFC_SCHED_NOT_SUPPORTED", NO, NO, NO, NO, NO, o(17, 16);
    BfcSchedPast, "OFPBFC_SCHED_PAST", NO, NO, NO, NO, NO, o(17, 18);
    BfcTimeout, "OFPBFC_TIMEOUT", NO, NO, NO, f(2314, 0), o(17, 14), o(17, 14);
    BfcUnknown, "OFPBFC_UNKNOWN", NO, NO, NO, f(2300, 0), o(17, 0), o(17, 0);
    BicBadExperimenter, "OFPBIC_BAD_EXPERIMENTER", NO, o(3, 5), o(3, 5), o(3, 5), o(3, 5), o(3, 5);
    BicBadExpType, "OFPBIC_BAD_EXP_TYPE", NO, o(3, 5), o(3, 6), o(3, 6), o(3, 6), o(3, 6);
    BicBadLen, "OFPBIC_BAD_LEN", NO, NO, o(3, 7), o(3, 7), o(3, 7), o(3, 7);
    BicBadTableId, "OFPBIC_BAD_TABLE_ID", NO, o(3, 2), o(3, 2), o(3, 2), o(3, 2), o(3, 2);
    BicDupInst, "OFPBIC_DUP_INST", NO, n(3, 256), f(2600, 0), f(2600, 0), o(3, 9), o(3, 9);
    BicEperm, "OFPBIC_EPERM", NO, NO, o(3, 8), o(3, 8), o(3, 8), o(3, 8);
    BicUnknownInst, "OFPBIC_UNKNOWN_INST", NO, o(3, 0), o(3, 0), o(3, 0), o(3, 0), o(3, 0);
    BicUnsupInst, "OFPBIC_UNSUP_INST", n(2, 257), o(3, 1), o(3, 1), o(3, 1), o(3, 1), o(3, 1);
    BicUnsupMetadata, "OFPBIC_UNSUP_METADATA", NO, o(3, 3), o(3, 3), o(3, 3), o(3, 3), o(3, 3);
    BicUnsupMetadataMask, "OFPBIC_UNSUP_METADATA_MASK", NO, o(3, 4), o(3, 4), o(3, 4), o(3, 4), o(3, 4);
    BmcBadDlAddrMask, "OFPBMC_BAD_DL_ADDR_MASK", NO, o(4, 3), o(4, 3), o(4, 3), o(4, 3), o(4, 3);
    BmcBadField, "OFPBMC_BAD_FIELD", n(0, 263), o(4, 6), o(4, 6), o(4, 6), o(4, 6), o(4, 6);
    BmcBadLen, "OFPBMC_BAD_LEN", NO, o(4, 1), o(4, 1), o(4, 1), o(4, 1), o(4, 1);
    BmcBadMask, "OFPBMC_BAD_MASK", n(1, 259), n(1, 259), o(4, 8), o(4, 8), o(4, 8), o(4, 8);
    BmcBadNwAddrMask, "OFPBMC_BAD_NW_ADDR_MASK", NO, o(4, 4), o(4, 4), o(4, 4), o(4, 4), o(4, 4);
    BmcBadPrereq, "OFPBMC_BAD_PREREQ", n(1, 260), n(1, 260), o(4, 9), o(4, 9), o(4, 9), o(4, 9);
    BmcBadTag, "OFPBMC_BAD_TAG", NO, o(4, 2), o(4, 2), o(4, 2), o(4, 2), o(4, 2);
    BmcBadType, "OFPBMC_BAD_TYPE", NO, o(4, 0), o(4, 0), o(4, 0), o(4, 0), o(4, 0);
    BmcBadValue, "OFPBMC_BAD_VALUE", n(1, 258), o(4, 7), o(4, 7), o(4, 7), o(4, 7), o(4, 7);
    BmcBadWildcards, "OFPBMC_BAD_WILDCARDS", n(1, 262), o(4, 5), o(4, 5), o(4, 5), o(4, 5), o(4, 5);
    BmcDupField, "OFPBMC_DUP_FIELD", n(1, 261), n(1, 261), o(4, 10), o(4, 10), o(4, 10), o(4, 10);
    BmcEperm, "OFPBMC_EPERM", NO, NO, o(4, 11), o(4, 11), o(4, 11), o(4, 11);
    BpcBadExperimenter, "OFPBPC_BAD_EXPERIMENTER", n(14, 5), n(14, 5), n(30, 0), f(4445, 0), o(14, 5), o(14, 5);
    BpcBadExpType, "OFPBPC_BAD_EXP_TYPE", n(14, 6), n(14, 6), n(31, 0), f(4446, 0), o(14, 6), o(14, 6);
    BpcBadExpValue, "OFPBPC_BAD_EXP_VALUE", n(14, 7), n(14, 7), n(32, 0), f(4447, 0), o(14, 7), o(14, 7);
    BpcBadLen, "OFPBPC_BAD_LEN", n(13, 3), n(13, 3), n(26, 0), o(13, 3), o(14, 1), o(14, 1);
    BpcBadType, "OFPBPC_BAD_TYPE", n(13, 2), n(13, 2), n(25, 0), o(13, 2), o(14, 0), o(14, 0);
    BpcBadValue, "OFPBPC_BAD_VALUE", n(13, 4), n(13, 4), n(27, 0), o(13, 4), o(14, 2), o(14, 2);
    BpcDupType, "OFPBPC_DUP_TYPE", n(14, 4), n(14, 4), n(29, 0), f(4444, 0), o(14, 4), o(14, 4);
    BpcEperm, "OFPBPC_EPERM", n(14, 8), n(14, 8), n(33, 0), f(4448, 0), o(14, 8), o(14, 8);
    BpcTooMany, "OFPBPC_TOO_MANY", n(14, 3), n(14, 3), n(28, 0), f(4443, 0), o(14, 3), o(14, 3);
    BrcBadLen, "OFPBRC_BAD_LEN", o(1, 6), o(1, 6), o(1, 6), o(1, 6), o(1, 6), o(1, 6);
    BrcBadPacket, "OFPBRC_BAD_PACKET", NO, NO, o(1, 12), o(1, 12), o(1, 12), o(1, 12);
    BrcBadPort, "OFPBRC_BAD_PORT", n(1, 514), n(1, 514), o(1, 11), o(1, 11), o(1, 11), o(1, 11);
    BrcBadStat, "OFPBRC_BAD_STAT", o(1, 2), o(1, 2), o(1, 2), o(1, 2), o(1, 2), o(1, 2);
    BrcBadSubtype, "OFPBRC_BAD_SUBTYPE", o(1, 4), o(1, 4), o(1, 4), o(1, 4), o(1, 4), o(1, 4);
    BrcBadTableId, "OFPBRC_BAD_TABLE_ID", n(1, 512), o(1, 9), o(1, 9), o(1, 9), o(1, 9), o(1, 9);
    BrcBadType, "OFPBRC_BAD_TYPE", o(1, 1), o(1, 1), o(1, 1), o(1, 1), o(1, 1), o(1, 1);
    BrcBadVendor, "OFPBRC_BAD_VENDOR", o(1, 3), o(1, 3), o(1, 3), o(1, 3), o(1, 3), o(1, 3);
    BrcBadVersion, "OFPBRC_BAD_VERSION", o(1, 0), o(1, 0), o(1, 0), o(1, 0), o(1, 0), o(1, 0);
    BrcBufferEmpty, "OFPBRC_BUFFER_EMPTY", o(1, 7), o(1, 7), o(1, 7), o(1, 7), o(1, 7), o(1, 7);
    BrcBufferUnknown, "OFPBRC_BUFFER_UNKNOWN", o(1, 8), o(1, 8), o(1, 8), o(1, 8), o(1, 8), o(1, 8);
    BrcEperm, "OFPBRC_EPERM", o(1, 5), o(1, 5), o(1, 5), o(1, 5), o(1, 5), o(1, 5);
    BrcIsSecondary, "OFPBRC_IS_SECONDARY", o(1, 5), o(1, 5), o(1, 10), o(1, 10), o(1, 10), o(1, 10);
    BrcMultipartBadSched, "OFPBRC_MULTIPART_BAD_SCHED", NO, NO, NO, NO, NO, o(1, 16);
    BrcMultipartBufferOverflow, "OFPBRC_MULTIPART_BUFFER_OVERFLOW", NO, NO, NO, o(1, 13), o(1, 13), o(1, 13);
    BrcMultipartReplyTimeout, "OFPBRC_MULTIPART_REPLY_TIMEOUT", NO, NO, NO, f(2641, 0), o(1, 15), o(1, 15);
    BrcMultipartRequestTimeout, "OFPBRC_MULTIPART_REQUEST_TIMEOUT", NO, NO, NO, f(2640, 0), o(1, 14), o(1, 14);
    BrcPipelineFieldsOnly, "OFPBRC_PIPELINE_FIELDS_ONLY", NO, NO, NO, NO, NO, o(1, 17);
    BrcUnknown, "OFPBRC_UNKNOWN", NO, NO, NO, NO, NO, o(1, 18);
    FmfcBadCommand, "OFPFMFC_BAD_COMMAND", o(3, 4), o(5, 6), o(5, 6), o(5, 6), o(5, 6), o(5, 6);
    FmfcBadEmergTimeout, "OFPFMFC_BAD_EMERG_TIMEOUT", o(3, 3), NO, NO, NO, NO, NO;
    FmfcBadFlags, "OFPFMFC_BAD_FLAGS", n(3, 258), n(5, 258), o(5, 7), o(5, 7), o(5, 7), o(5, 7);
    FmfcBadPriority, "OFPFMFC_BAD_PRIORITY", NO, NO, NO, f(2360, 0), o(5, 9), o(5, 9);
    FmfcBadTableId, "OFPFMFC_BAD_TABLE_ID", NO, o(5, 2), o(5, 2), o(5, 2), o(5, 2), o(5, 2);
    FmfcBadTimeout, "OFPFMFC_BAD_TIMEOUT", NO, o(5, 5), o(5, 5), o(5, 5), o(5, 5), o(5, 5);
    FmfcCantSync, "OFPFMFC_CANT_SYNC", NO, NO, NO, NO, o(5, 8), o(5, 8);
    FmfcEperm, "OFPFMFC_EPERM", o(3, 2), o(5, 4), o(5, 4), o(5, 4), o(5, 4), o(5, 4);
    FmfcIsSync, "OFPFMFC_IS_SYNC", NO, NO, NO, NO, o(5, 10), o(5, 10);
    FmfcOverlap, "OFPFMFC_OVERLAP", o(3, 1), o(5, 3), o(5, 3), o(5, 3), o(5, 3), o(5, 3);
    FmfcTableFull, "OFPFMFC_TABLE_FULL", o(3, 0), o(5, 1), o(5, 1), o(5, 1), o(5, 1), o(5, 1);
    FmfcUnknown, "OFPFMFC_UNKNOWN", NO, o(5, 0), o(5, 0), o(5, 0), o(5, 0), o(5, 0);
    FmfcUnsupported, "OFPFMFC_UNSUPPORTED", o(3, 5), NO, NO, NO, NO, NO;
    GmfcBadBucket, "OFPGMFC_BAD_BUCKET", n(6, 12), NO, o(6, 12), o(6, 12), o(6, 12), o(6, 12);
    GmfcBadCommand, "OFPGMFC_BAD_COMMAND", n(6, 11), NO, o(6, 11), o(6, 11), o(6, 11), o(6, 11);
    GmfcBadType, "OFPGMFC_BAD_TYPE", n(6, 10), NO, o(6, 10), o(6, 10), o(6, 10), o(6, 10);
    GmfcBadWatch, "OFPGMFC_BAD_WATCH", n(6, 13), NO, o(6, 13), o(6, 13), o(6, 13), o(6, 13);
    GmfcBucketExists, "OFPGMFC_BUCKET_EXISTS", n(6, 16), NO, NO, NO, NO, o(6, 16);
    GmfcChainedGroup, "OFPGMFC_CHAINED_GROUP", n(6, 9), NO, o(6, 9), o(6, 9), o(6, 9), o(6, 9);
    GmfcChainingUnsupported, "OFPGMFC_CHAINING_UNSUPPORTED", n(6, 5), o(6, 5), o(6, 5), o(6, 5), o(6, 5), o(6, 5);
    GmfcEperm, "OFPGMFC_EPERM", n(6, 14), NO, o(6, 14), o(6, 14), o(6, 14), o(6, 14);
    GmfcGroupExists, "OFPGMFC_GROUP_EXISTS", n(6, 0), o(6, 0), o(6, 0), o(6, 0), o(6, 0), o(6, 0);
    GmfcInvalidGroup, "OFPGMFC_INVALID_GROUP", n(6, 1), o(6, 1), o(6, 1), o(6, 1), o(6, 1), o(6, 1);
    GmfcLoop, "OFPGMFC_LOOP", n(6, 7), o(6, 7), o(6, 7), o(6, 7), o(6, 7), o(6, 7);
    GmfcOutOfBuckets, "OFPGMFC_OUT_OF_BUCKETS", n(6, 4), o(6, 4), o(6, 4), o(6, 4), o(6, 4), o(6, 4);
    GmfcOutOfGroups, "OFPGMFC_OUT_OF_GROUPS", n(6, 3), o(6, 3), o(6, 3), o(6, 3), o(6, 3), o(6, 3);
    GmfcUnknownBucket, "OFPGMFC_UNKNOWN_BUCKET", n(6, 15), NO, NO, NO, NO, o(6, 15);
    GmfcUnknownGroup, "OFPGMFC_UNKNOWN_GROUP", n(6, 8), o(6, 8), o(6, 8), o(6, 8), o(6, 8), o(6, 8);
    GmfcWatchUnsupported, "OFPGMFC_WATCH_UNSUPPORTED", n(6, 6), o(6, 6), o(6, 6), o(6, 6), o(6, 6), o(6, 6);
    GmfcWeightUnsupported, "OFPGMFC_WEIGHT_UNSUPPORTED", n(6, 2), o(6, 2), o(6, 2), o(6, 2), o(6, 2), o(6, 2);
    HfcEperm, "OFPHFC_EPERM", o(0, 1), o(0, 1), o(0, 1), o(0, 1), o(0, 1), o(0, 1);
    HfcIncompatible, "OFPHFC_INCOMPATIBLE", o(0, 0), o(0, 0), o(0, 0), o(0, 0), o(0, 0), o(0, 0);
    MmfcBadBand, "OFPMMFC_BAD_BAND", NO, NO, NO, o(12, 8), o(12, 8), o(12, 8);
    MmfcBadBandValue, "OFPMMFC_BAD_BAND_VALUE", NO, NO, NO, o(12, 9), o(12, 9), o(12, 9);
    MmfcBadBurst, "OFPMMFC_BAD_BURST", NO, NO, NO, o(12, 7), o(12, 7), o(12, 7);
    MmfcBadCommand, "OFPMMFC_BAD_COMMAND", NO, NO, NO, o(12, 4), o(12, 4), o(12, 4);
    MmfcBadFlags, "OFPMMFC_BAD_FLAGS", NO, NO, NO, o(12, 5), o(12, 5), o(12, 5);
    MmfcBadRate, "OFPMMFC_BAD_RATE", NO, NO, NO, o(12, 6), o(12, 6), o(12, 6);
    MmfcInvalidMeter, "OFPMMFC_INVALID_METER", NO, NO, NO, o(12, 2), o(12, 2), o(12, 2);
    MmfcMeterExists, "OFPMMFC_METER_EXISTS", NO, NO, NO, o(12, 1), o(12, 1), o(12, 1);
    MmfcOutOfBands, "OFPMMFC_OUT_OF_BANDS", NO, NO, NO, o(12, 11), o(12, 11), o(12, 11);
    MmfcOutOfMeters, "OFPMMFC_OUT_OF_METERS", NO, NO, NO, o(12, 10), o(12, 10), o(12, 10);
    MmfcUnknown, "OFPMMFC_UNKNOWN", NO, NO, NO, o(12, 0), o(12, 0), o(12, 0);
    MmfcUnknownMeter, "OFPMMFC_UNKNOWN_METER", NO, NO, NO, o(12, 3), o(12, 3), o(12, 3);
    MofcBadCommand, "OFPMOFC_BAD_COMMAND", NO, NO, NO, NO, o(16, 4), o(16, 4);
    MofcBadFlags, "OFPMOFC_BAD_FLAGS", n(1, 518), n(1, 518), n(7, 0), n(7, 0), o(16, 5), o(16, 5);
    MofcBadOut, "OFPMOFC_BAD_OUT", NO, NO, NO, NO, o(16, 7), o(16, 7);
    MofcBadTableId, "OFPMOFC_BAD_TABLE_ID", NO, NO, NO, NO, o(16, 6), o(16, 6);
    MofcInvalidMonitor, "OFPMOFC_INVALID_MONITOR", NO, NO, NO, NO, o(16, 2), o(16, 2);
    MofcMonitorExists, "OFPMOFC_MONITOR_EXISTS", n(1, 517), n(1, 517), n(6, 0), n(6, 0), o(16, 1), o(16, 1);
    MofcUnknown, "OFPMOFC_UNKNOWN", NO, NO, NO, NO, o(16, 0), o(16, 0);
    MofcUnknownMonitor, "OFPMOFC_UNKNOWN_MONITOR", n(1, 519), n(1, 519), n(8, 0), n(8, 0), o(16, 3), o(16, 3);
    PmfcBadAdvertise, "OFPPMFC_BAD_ADVERTISE", NO, o(7, 3), o(7, 3), o(7, 3), o(7, 3), o(7, 3);
    PmfcBadConfig, "OFPPMFC_BAD_CONFIG", NO, o(7, 2), o(7, 2), o(7, 2), o(7, 2), o(7, 2);
    PmfcBadHwAddr, "OFPPMFC_BAD_HW_ADDR", o(4, 1), o(7, 1), o(7, 1), o(7, 1), o(7, 1), o(7, 1);
    PmfcBadPort, "OFPPMFC_BAD_PORT", o(4, 0), o(7, 0), o(7, 0), o(7, 0), o(7, 0), o(7, 0);
    PmfcEperm, "OFPPMFC_EPERM", NO, NO, o(7, 4), o(7, 4), o(7, 4), o(7, 4);
    QofcBadPort, "OFPQOFC_BAD_PORT", o(5, 0), o(9, 0), o(9, 0), o(9, 0), o(9, 0), o(9, 0);
    QofcBadQueue, "OFPQOFC_BAD_QUEUE", o(5, 1), o(9, 1), o(9, 1), o(9, 1), o(9, 1), o(9, 1);
    QofcEperm, "OFPQOFC_EPERM", o(5, 2), o(9, 2), o(9, 2), o(9, 2), o(9, 2), o(9, 2);
    RrfcBadRole, "OFPRRFC_BAD_ROLE", n(1, 513), n(1, 513), o(11, 2), o(11, 2), o(11, 2), o(11, 2);
    RrfcIdInUse, "OFPRRFC_ID_IN_USE", NO, NO, NO, NO, NO, o(11, 4);
    RrfcIdUnsup, "OFPRRFC_ID_UNSUP", NO, NO, NO, NO, NO, o(11, 3);
    RrfcStale, "OFPRRFC_STALE", NO, NO, o(11, 0), o(11, 0), o(11, 0), o(11, 0);
    RrfcUnsup, "OFPRRFC_UNSUP", NO, NO, o(11, 1), o(11, 1), o(11, 1), o(11, 1);
    ScfcBadFlags, "OFPSCFC_BAD_FLAGS", NO, o(10, 0), o(10, 0), o(10, 0), o(10, 0), o(10, 0);
    ScfcBadLen, "OFPSCFC_BAD_LEN", NO, o(10, 1), o(10, 1), o(10, 1), o(10, 1), o(10, 1);
    ScfcEperm, "OFPSCFC_EPERM", NO, NO, o(10, 2), o(10, 2), o(10, 2), o(10, 2);
    TffcBadCapa, "OFPTFFC_BAD_CAPA", NO, NO, NO, NO, NO, o(13, 6);
    TffcBadCommand, "OFPTFFC_BAD_COMMAND", NO, NO, NO, NO, NO, o(13, 9);
    TffcBadFeatures, "OFPTFFC_BAD_FEATURES", NO, NO, NO, NO, NO, o(13, 8);
    TffcBadMaxEnt, "OFPTFFC_BAD_MAX_ENT", NO, NO, NO, NO, NO, o(13, 7);
    TffcBadMetadata, "OFPTFFC_BAD_METADATA", NO, NO, NO, o(13, 1), o(13, 1), o(13, 1);
    TffcBadTable, "OFPTFFC_BAD_TABLE", NO, NO, NO, o(13, 0), o(13, 0), o(13, 0);
    TffcEperm, "OFPTFFC_EPERM", NO, NO, NO, o(13, 5), o(13, 5), o(13, 5);
    TffcTooMany, "OFPTFFC_TOO_MANY", NO, NO, NO, NO, NO, o(13, 10);
    TmfcBadConfig, "OFPTMFC_BAD_CONFIG", NO, o(8, 1), o(8, 1), o(8, 1), o(8, 1), o(8, 1);
    TmfcBadTable, "OFPTMFC_BAD_TABLE", NO, o(8, 0), o(8, 0), o(8, 0), o(8, 0), o(8, 0);
    TmfcEperm, "OFPTMFC_EPERM", NO, NO, o(8, 2), o(8, 2), o(8, 2), o(8, 2);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_round_trip() {
        for (i, (error, name, numbers)) in TABLE.iter().enumerate() {
            assert_eq!(*error as usize, i);
            assert_eq!(OfpError::from_name(name), Some(*error));
            for (version, number) in Version::ALL.into_iter().zip(numbers) {
                let Some(number) = *number else { continue };
                // A few errors share a number in the versions that do not distinguish them.
                let same = OfpError::from_number(version, number).and_then(|e| e.number(version));
                assert_eq!(same, Some(number), "{name} {version}");
                let bytes = number.encode(version);
                assert_eq!(ErrorNumber::decode(&bytes), Some((number, bytes.len())));
                assert_eq!(ErrorNumber::decode(&bytes[..bytes.len() - 1]), None);
            }
        }
        assert_eq!(OfpError::BmcBadPrereq.to_string(), "OFPBMC_BAD_PREREQ");
        let number = OfpError::BmcBadPrereq.number(Version::V10).expect("in the table");
        assert_eq!(number.encode(Version::V10), [0xb0, 0xc2, 0, 0, 0, 0, 0x23, 0x20, 0, 1, 1, 4]);
    }

    #[test]
    fn errors_of_experimenter_0_are_openflows_own() {
        let own = ErrorNumber { vendor: 0, ty: 5, code: 0 };
        assert_eq!(ErrorNumber::decode(&[0xff, 0xff, 0, 5, 0, 0, 0, 0]), Some((own, 8)));
        assert_eq!(ErrorNumber::decode(&[0xb0, 0xc2, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0]), Some((own, 12)));
        let other = ErrorNumber { vendor: 1, ty: 5, code: 0 };
        assert_eq!(ErrorNumber::decode(&[0xff, 0xff, 0, 5, 0, 0, 0, 1]), Some((other, 8)));
        for (ty, version) in [NXET_VENDOR, OFPET_EXPERIMENTER].into_iter().flat_map(|ty| Version::ALL.map(|v| (ty, v)))
        {
            let own = ErrorNumber { vendor: 0, ty, code: 0 };
            let bytes = own.encode(version);
            assert_eq!(ErrorNumber::decode(&bytes), Some((own, bytes.len())));
        }
    }
}
