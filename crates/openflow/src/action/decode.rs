//! Actions from bytes: the lists of OpenFlow 1.0 (section 5.2.4) and of 1.1 and later (1.3 section 7.2.5), with Nicira's
//! extensions in all of them.
//!
//! This module refuses actions that no flow can have; [`super::check`] refuses those that do not fit a flow's match. As in
//! Open vSwitch, an unknown type is reported before a bad length.

use super::check::{self, Allowed, check_port, verify_decoded};
use super::encode::ONF_COPY_FIELD;
use super::{Action, ControllerAction, PacketInReason, SampleForm, Subfield};
use super::{ct, encap, learn, nat, sample, select};
use crate::error::OfpError;
use crate::nxm::{self, Entry, Header, Unknown};
use crate::print::hex_lines;
use crate::property;
use crate::version::Version;
use crate::wire::Reader;
use base::PortNo;
use flow::extract::ethertype::PBB;
use flow::{Field, field};
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};
use vlog::{RateLimit, info_rl, warn_rl};

/// Limits the messages about actions that cannot be decoded.
static LIMIT: RateLimit = RateLimit::new(1, 5);

/// The depth to which `clone` may nest, which bounds the stack; no useful flow comes near.
const MAX_DEPTH: usize = 16;

const VENDOR: u16 = 0xffff;
const LEN: OfpError = OfpError::BacBadLen;

/// `OFPVID_PRESENT`.
const VID_PRESENT: u128 = 0x1000;

/// The value for "no meter" in `NXAST_CONTROLLER2`.
const NO_METER: u32 = u32::MAX;

/// The number of clauses that a conjunction may have.
pub(super) const N_CLAUSES: RangeInclusive<u8> = 2..=64;
const MUST_BE_ZERO: OfpError = OfpError::NxbrcMustBeZero;

/// See [`allow_debug_actions`].
static DEBUG_ACTIONS: AtomicBool = AtomicBool::new(false);

/// Makes the program accept the actions `debug_slow` and `debug_recirc` in messages, from now on. Without this they are
/// refused as `OFPBAC_BAD_VENDOR_TYPE`: as in Open vSwitch, only a switch with dummies has them.
pub fn allow_debug_actions() {
    DEBUG_ACTIONS.store(true, Ordering::Relaxed);
}

/// Reads a list of actions to the end of `bytes`.
///
/// Errors: `OFPBAC_BAD_TYPE`, `OFPBAC_BAD_VENDOR` and `OFPBAC_BAD_VENDOR_TYPE` for unknown or unsupported actions,
/// `OFPBAC_BAD_LEN`, `OFPBAC_BAD_ARGUMENT`, `OFPBAC_BAD_OUT_PORT`, `NXBRC_MUST_BE_ZERO`, and those of `set_field`.
pub fn decode_actions(bytes: &[u8], version: Version) -> Result<Vec<Action>, OfpError> {
    let actions = decode_list(bytes, version, 0)?;
    verify_decoded(&actions, Allowed::Flow)?;
    Ok(actions)
}

/// Reads a list nested `depth` lists deep, without [`verify`](super::check::verify).
pub(super) fn decode_list(bytes: &[u8], version: Version, depth: usize) -> Result<Vec<Action>, OfpError> {
    let mut actions = Vec::new();
    decode_list_into(bytes, version, depth, &mut actions)?;
    Ok(actions)
}

/// Does the same, appending to `actions`.
pub(super) fn decode_list_into(
    bytes: &[u8],
    version: Version,
    depth: usize,
    actions: &mut Vec<Action>,
) -> Result<(), OfpError> {
    if !bytes.len().is_multiple_of(8) {
        return Err(OfpError::BrcBadLen);
    }
    let mut r = Reader::reporting(bytes, LEN);
    while !r.is_empty() {
        let offset = bytes.len() - r.len();
        decode_action(&mut r, version, depth, actions).inspect_err(|e| {
            warn_rl!(&LIMIT, target: "ofp_actions", "bad action at offset {offset} ({e}):\n{}", dump_of(bytes));
        })?;
    }
    Ok(())
}

fn dump_of(bytes: &[u8]) -> String {
    let mut dump = String::new();
    hex_lines(bytes, &mut dump);
    dump.trim_end().to_owned()
}

/// Reads the next action.
fn decode_action(
    r: &mut Reader<'_>,
    version: Version,
    depth: usize,
    actions: &mut Vec<Action>,
) -> Result<(), OfpError> {
    let mut header = r.clone();
    let (ty, length) = (header.u16()?, usize::from(header.u16()?));
    let known = Known::find(ty, header, version)?;
    // Open vSwitch lacks the actions that copy TTLs and those of provider backbone bridges, whatever their length.
    let wrong_len = if matches!(known, Known::Of11(11 | 12 | 26 | 27)) { OfpError::BacBadType } else { LEN };
    let whole = r.bytes(length).map_err(|_| wrong_len)?;
    if !length.is_multiple_of(8) || !known.lengths().contains(&length) {
        return Err(wrong_len);
    }
    let mut body = Reader::reporting(whole, LEN);
    body.skip(if ty == VENDOR { 10 } else { 4 })?;
    actions.push(match known {
        Known::Of10(n) => of10(n, body)?,
        Known::Of11(n) => of11(n, body, version)?,
        Known::Nicira(n) => nicira(n, body, version, depth)?,
        Known::OnfCopyField => {
            body.skip(2)?;
            let (src, dst) = copy_field(body)?;
            Action::CopyField { src, dst }
        }
    });
    Ok(())
}

/// The action that a header names, by its number on the wire.
#[derive(Clone, Copy, Debug)]
enum Known {
    Of10(u16),
    Of11(u16),
    Nicira(u16),
    /// OpenFlow 1.5's `OFPAT_COPY_FIELD` as the Open Networking Foundation's extension of 1.3.
    OnfCopyField,
}

impl Known {
    fn find(ty: u16, mut rest: Reader<'_>, version: Version) -> Result<Self, OfpError> {
        if ty == VENDOR {
            // Actions of other vendors may have any length.
            let vendor = rest.u32()?;
            if !matches!(vendor, field::NICIRA | field::ONF) {
                return Err(OfpError::BacBadVendor);
            }
            let number = rest.u16()?;
            return match (vendor, number) {
                (field::NICIRA, n) if Self::is_nicira(n, version) => Ok(Self::Nicira(n)),
                // ONF defines this extension for these two versions; before them there is Nicira's, after them OpenFlow's own.
                (field::ONF, ONF_COPY_FIELD) if matches!(version, Version::V13 | Version::V14) => {
                    Ok(Self::OnfCopyField)
                }
                _ => {
                    warn_rl!(
                        &LIMIT,
                        target: "ofp_actions",
                        "unknown OpenFlow1{} action for vendor {vendor:#x} and type {number}",
                        version as u8 - 1
                    );
                    Err(OfpError::BacBadVendorType)
                }
            };
        }
        match (ty, version) {
            (0..=11, Version::V10) => Ok(Self::Of10(ty)),
            // OpenFlow 1.2 replaced these actions of 1.1 by set_field, but they still work there.
            (ty, _) if ty <= 24 && version >= Version::V11 => Ok(Self::Of11(ty)),
            (25, _) if version >= Version::V12 => Ok(Self::Of11(ty)),
            (26 | 27, _) if version >= Version::V13 => Ok(Self::Of11(ty)),
            (28 | 29, Version::V15) => Ok(Self::Of11(ty)),
            _ => Err(OfpError::BacBadType),
        }
    }

    /// Returns true if `version` has this action of Nicira's: later versions replace some by actions of OpenFlow's own.
    fn is_nicira(n: u16, version: Version) -> bool {
        match n {
            4 | 18 | 23..=26 | 30 | 31 | 40 => version == Version::V10,
            6 | 7 | 33 => version < Version::V15,
            46..=48 => version >= Version::V13,
            1 | 2 | 5 | 8..=10 | 12..=17 | 19..=22 | 27..=29 | 32 | 34..=39 | 41..=45 | 49..=51 | 254 | 255 => true,
            _ => false,
        }
    }

    /// The lengths that the action may have, in bytes with its header.
    fn lengths(self) -> RangeInclusive<usize> {
        const MAX: usize = u16::MAX as usize;
        match self {
            Self::Of10(4 | 5 | 11) => 16..=16,
            Self::Of10(_) => 8..=8,
            Self::Of11(0 | 3 | 4) => 16..=16,
            Self::Of11(25) => 8..=MAX,
            Self::Of11(28) => 16..=MAX,
            Self::Of11(_) => 8..=8,
            Self::Nicira(7 | 9 | 15 | 27..=29 | 32 | 50) => 24..=24,
            Self::Nicira(38 | 41) => 32..=32,
            Self::Nicira(51) => 40..=40,
            Self::Nicira(35 | 49) => 24..=MAX,
            Self::Nicira(36) => 16..=MAX,
            Self::Nicira(10 | 22) => 32..=32,
            Self::Nicira(46 | 47) => 16..=MAX,
            Self::Nicira(12 | 13) => 32..=MAX,
            Self::Nicira(learn::NXAST_LEARN) => 32..=MAX,
            Self::Nicira(learn::NXAST_LEARN2) => 40..=MAX,
            Self::Nicira(6 | 8 | 21 | 33 | 37 | 42) => 16..=MAX,
            Self::OnfCopyField => 24..=MAX,
            Self::Nicira(_) => 16..=16,
        }
    }
}

/// Reads an action of OpenFlow 1.0. (The caller has checked the length, so that no byte is missing.)
fn of10(n: u16, mut r: Reader<'_>) -> Result<Action, OfpError> {
    if n == 0 {
        let (port, max_len) = (PortNo::from_of10(r.u16()?), r.u16()?);
        check_port(port, PortNo::MAX.0)?;
        return Ok(Action::Output { port, max_len });
    }
    if n == 11 {
        let port = PortNo::from_of10(r.u16()?);
        r.skip(6)?;
        return Ok(Action::Enqueue { port, queue: r.u32()? });
    }
    match n {
        // In OpenFlow 1.0 these push a tag if there is none.
        1 => set_vlan_vid(r, true),
        2 => set_vlan_pcp(r, true),
        3 => Ok(Action::PopVlan),
        // The numbers of 1.1 are shifted by STRIP_VLAN, and by SET_NW_ECN after SET_NW_TOS.
        4..=8 => set_header_field(n - 1, r),
        _ => set_header_field(n, r),
    }
}

fn set_vlan_vid(mut r: Reader<'_>, push_if_needed: bool) -> Result<Action, OfpError> {
    let vid = r.u16()?;
    if vid > 0xfff { Err(OfpError::BacBadArgument) } else { Ok(Action::SetVlanVid { vid, push_if_needed }) }
}

fn set_vlan_pcp(mut r: Reader<'_>, push_if_needed: bool) -> Result<Action, OfpError> {
    let pcp = r.u8()?;
    if pcp > 7 { Err(OfpError::BacBadArgument) } else { Ok(Action::SetVlanPcp { pcp, push_if_needed }) }
}

/// Reads `OFPAT_SET_*` of OpenFlow 1.1, which 1.0 has with other numbers.
fn set_header_field(n: u16, mut r: Reader<'_>) -> Result<Action, OfpError> {
    Ok(match n {
        3 => Action::SetEthSrc(r.mac()?),
        4 => Action::SetEthDst(r.mac()?),
        5 => Action::SetIpv4Src(Ipv4Addr::from(r.u32()?)),
        6 => Action::SetIpv4Dst(Ipv4Addr::from(r.u32()?)),
        7 => match r.u8()? {
            tos if tos & 3 != 0 => return Err(OfpError::BacBadArgument),
            tos => Action::SetIpDscp(tos),
        },
        8 => match r.u8()? {
            ecn if ecn > 3 => return Err(OfpError::BacBadArgument),
            ecn => Action::SetIpEcn(ecn),
        },
        9 => Action::SetL4Src(r.u16()?),
        10 => Action::SetL4Dst(r.u16()?),
        _ => return Err(OfpError::BacBadType),
    })
}

/// Reads an action of OpenFlow 1.1 or later.
fn of11(n: u16, mut r: Reader<'_>, version: Version) -> Result<Action, OfpError> {
    Ok(match n {
        0 => {
            let port = PortNo::from_of11(r.u32()?).ok_or(OfpError::BacBadOutPort)?;
            check_port(port, PortNo::MAX.0)?;
            Action::Output { port, max_len: r.u16()? }
        }
        1 => return set_vlan_vid(r, false),
        2 => return set_vlan_pcp(r, false),
        11 => Action::CopyTtlOut,
        12 => Action::CopyTtlIn,
        13 => Action::SetMplsLabel(r.u32()?),
        14 => Action::SetMplsTc(r.u8()?),
        15 => {
            if version > Version::V11 {
                info_rl!(&LIMIT, target: "ofp_actions", "OFPAT_SET_MPLS_TTL is deprecated in {} (use Set-Field)", version.name());
            }
            Action::SetMplsTtl(r.u8()?)
        }
        16 => Action::DecMplsTtl,
        17 => match r.u16()? {
            tpid @ (0x8100 | 0x88a8) => Action::PushVlan(tpid),
            _ => return Err(OfpError::BacBadArgument),
        },
        18 => Action::PopVlan,
        19 => return push_mpls(r),
        20 => Action::PopMpls(r.u16()?),
        21 => Action::SetQueue(r.u32()?),
        22 => Action::Group(r.u32()?),
        23 => Action::SetIpTtl(r.u8()?),
        24 => Action::DecTtl(None),
        25 => return set_field(r, if version >= Version::V15 { SetForm::Masked } else { SetForm::Plain }),
        26 => match r.u16()? {
            PBB => Action::PushPbb,
            _ => return Err(OfpError::BacBadArgument),
        },
        27 => Action::PopPbb,
        28 => {
            let (src, dst) = copy_field(r)?;
            Action::RegMove { src, dst }
        }
        29 => Action::Meter(r.u32()?),
        _ => return set_header_field(n, r),
    })
}

/// The actions that set a field.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SetForm {
    /// `OFPAT_SET_FIELD` before OpenFlow 1.5, which has no masks.
    Plain,
    /// `OFPAT_SET_FIELD`.
    Masked,
    /// `NXAST_REG_LOAD2`, which loads bits that need not form a valid value of the field.
    Load,
}

/// Reads `OFPAT_SET_FIELD`, or `NXAST_REG_LOAD2`, which may have a mask in every version.
fn set_field(mut r: Reader<'_>, form: SetForm) -> Result<Action, OfpError> {
    let may_mask = form != SetForm::Plain;
    let mut header = r.clone();
    let header = Header::decode(&mut header)?;
    if header.field().is_none() {
        // A header with a length of 0 names no field. An experimenter's header counts its id as well.
        let given = header.payload >> u8::from(header.has_mask);
        let known = header.named_field().is_some() && (given > 0 || header.experimenter != 0);
        return Err(if known { OfpError::BacBadSetLen } else { OfpError::BacBadSetType });
    }
    let entry = nxm::decode_entry(&mut r)?;
    let (field, value, mask, has_mask) = match entry {
        Entry::Field { field, value, mask, has_mask } => (field, value, mask, has_mask),
        Entry::Option(option) if option.mask().is_some() && !may_mask => return Err(OfpError::BacBadSetMask),
        Entry::Option(option) if r.is_zero() => return Ok(Action::SetTunOption(Box::new(option))),
        Entry::Option(_) => return Err(OfpError::BacBadSetArgument),
        Entry::Cookie(_) | Entry::Unknown(_) => return Err(OfpError::BacBadSetType),
    };
    // Actions may write some bits of fields that take no mask in matches.
    if has_mask && !may_mask {
        return Err(OfpError::BacBadSetMask);
    }
    if !r.is_zero() {
        return Err(OfpError::BacBadSetArgument);
    }
    // OpenFlow forbids setting OXM_OF_IN_PORT, and requires the bit for a tag's presence when the VLAN id is set
    // (1.5 section 7.2.6.7).
    let fits = value & !field.info().full_mask() == 0;
    let tagged = field != Field::VlanVid || value & mask & VID_PRESENT != 0;
    let valid = if form == SetForm::Load { fits } else { nxm::value_is_valid(field, value) && tagged };
    if !field.info().writable {
        warn_rl!(&LIMIT, target: "ofp_actions", "destination field {} is not writable", field.name());
    } else if !valid {
        let mut shown = String::new();
        flow::text::format_value(field, value, field.info().full_mask(), &flow::NoNames, &mut shown);
        warn_rl!(&LIMIT, target: "ofp_actions", "Invalid value for set field {}: {shown}", field.name());
    }
    if field == Field::InPortOxm || !field.info().writable || !valid {
        return Err(OfpError::BacBadSetArgument);
    }
    Ok(Action::SetField { field, value, mask })
}

/// Reads a field named by its header alone.
fn header_field(r: &mut Reader<'_>) -> Result<Field, OfpError> {
    let header = Header::decode(r)?;
    let field = header.field().ok_or(OfpError::BmcBadField)?;
    if header.has_mask { Err(OfpError::BmcBadMask) } else { Ok(field) }
}

/// Reads a field named by four bytes of header, in Nicira's older actions, which ignore the mask bit.
pub(super) fn short_header_field(r: &mut Reader<'_>) -> Result<Field, OfpError> {
    let mut word = r.sub(4)?;
    let header = Header::decode(&mut word).map_err(|_| OfpError::BacBadSetType)?;
    header.field().ok_or(OfpError::BacBadSetType)
}

/// Returns the subfield if it lies within its field.
pub(super) fn subfield(field: Field, offset: u16, n_bits: u16) -> Result<Subfield, OfpError> {
    let fits =
        n_bits > 0 && usize::from(offset) + usize::from(n_bits) <= usize::from(Subfield::width(field).max(offset));
    if fits { Ok(Subfield { field, offset, n_bits }) } else { Err(OfpError::BacBadSetLen) }
}

/// Returns the subfield if actions may write it.
pub(super) fn writable(dst: Subfield) -> Result<Subfield, OfpError> {
    check::writable(dst).map(|()| dst)
}

/// Unpacks offset and width from 16 bits.
fn offset_and_width(packed: u16) -> (u16, u16) {
    (packed >> 6, (packed & 0x3f) + 1)
}

/// Reads the body of `OFPAT_COPY_FIELD` or of `NXAST_REG_MOVE`, which differ in two bytes of padding.
fn copy_field(mut r: Reader<'_>) -> Result<(Subfield, Subfield), OfpError> {
    let (n_bits, src_offset, dst_offset) = (r.u16()?, r.u16()?, r.u16()?);
    r.skip(2)?;
    move_fields(r, n_bits, src_offset, dst_offset)
}

/// Reads the source and destination of a move.
fn move_fields(
    mut r: Reader<'_>,
    n_bits: u16,
    src_offset: u16,
    dst_offset: u16,
) -> Result<(Subfield, Subfield), OfpError> {
    let (src, dst) = (header_field(&mut r)?, header_field(&mut r)?);
    if !r.is_zero() {
        return Err(MUST_BE_ZERO);
    }
    Ok((subfield(src, src_offset, n_bits)?, writable(subfield(dst, dst_offset, n_bits)?)?))
}

/// Reads one of Nicira's actions; `r` starts after the subtype.
fn nicira(n: u16, mut r: Reader<'_>, version: Version, depth: usize) -> Result<Action, OfpError> {
    match n {
        1 => Ok(Action::ResubmitPort { in_port: resubmit_to(r.u16()?, 0xff).0 }),
        2 => {
            r.skip(2)?;
            Ok(Action::SetTunnel { id: r.u32()?.into(), wide: false })
        }
        4 => {
            r.skip(2)?;
            Ok(Action::SetQueue(r.u32()?))
        }
        5 => Ok(Action::PopQueue),
        6 => {
            let (n_bits, src_offset, dst_offset) = (r.u16()?, r.u16()?, r.u16()?);
            let (src, dst) = move_fields(r, n_bits, src_offset, dst_offset)?;
            Ok(Action::RegMove { src, dst })
        }
        7 => {
            let (offset, n_bits) = offset_and_width(r.u16()?);
            let dst = writable(subfield(short_header_field(&mut r)?, offset, n_bits)?)?;
            let value = r.u64()?;
            let fits = n_bits >= 64 || value >> n_bits == 0;
            if fits { Ok(Action::RegLoad { dst, value: value.into() }) } else { Err(OfpError::BacBadArgument) }
        }
        8 => Ok(Action::Note(r.rest().to_vec())),
        9 => {
            r.skip(6)?;
            Ok(Action::SetTunnel { id: r.u64()?, wide: true })
        }
        10 => select::decode_multipath(r),
        12 | 13 => select::decode_bundle(r, n == 13),
        14 => {
            let (port, table) = (r.u16()?, r.u8()?);
            if r.is_zero() { Ok(resubmit(port, table)) } else { Err(OfpError::BacBadArgument) }
        }
        44 => {
            let (port, table) = (r.u16()?, r.u8()?);
            let (in_port, table) = resubmit_to(port, table);
            if r.is_zero() { Ok(Action::ResubmitCt { in_port, table }) } else { Err(OfpError::BacBadArgument) }
        }
        15 => {
            let (offset, n_bits) = offset_and_width(r.u16()?);
            let mut header = r.sub(4)?;
            let max_len = r.u16()?;
            if !r.is_zero() {
                return Err(OfpError::BacBadArgument);
            }
            Ok(Action::OutputReg { src: subfield(short_header_field(&mut header)?, offset, n_bits)?, max_len })
        }
        learn::NXAST_LEARN | learn::NXAST_LEARN2 => learn::decode(r, n == learn::NXAST_LEARN2),
        17 => Ok(Action::Exit),
        18 => Ok(Action::DecTtl(None)),
        19 => {
            let (idle_timeout, hard_timeout) = (r.u16()?, r.u16()?);
            Ok(Action::FinTimeout { idle_timeout, hard_timeout })
        }
        20 => {
            let (max_len, controller_id, reason) = (r.u16()?, r.u16()?, r.u8()?);
            let reason = PacketInReason::from_wire(reason);
            let rest = ControllerAction::default();
            Ok(Action::Controller(Box::new(ControllerAction { max_len, controller_id, reason, ..rest })))
        }
        21 => {
            let n = r.u16()?;
            if !r.sub(4)?.is_zero() {
                return Err(MUST_BE_ZERO);
            }
            (0..n).map(|_| r.u16()).collect::<Result<_, _>>().map(|ids| Action::DecTtl(Some(ids)))
        }
        22 => {
            if !r.sub(6)?.is_zero() {
                return Err(MUST_BE_ZERO);
            }
            Ok(Action::WriteMetadata { value: r.u64()?, mask: r.u64()? })
        }
        23 => push_mpls(r),
        24 => Ok(Action::PopMpls(r.u16()?)),
        25 => Ok(Action::SetMplsTtl(r.u8()?)),
        26 => Ok(Action::DecMplsTtl),
        27 | 28 => {
            let offset = r.u16()?;
            let field = header_field(&mut r)?;
            let n_bits = r.u16()?;
            if !r.is_zero() {
                return Err(MUST_BE_ZERO);
            }
            let part = subfield(field, offset, n_bits)?;
            if n == 27 { Ok(Action::StackPush(part)) } else { writable(part).map(Action::StackPop) }
        }
        29 => sample::decode(r, SampleForm::Plain),
        38 => sample::decode(r, SampleForm::Port),
        41 => sample::decode(r, SampleForm::Direction),
        51 => sample::decode(r, SampleForm::Fields),
        30 => {
            r.skip(2)?;
            Ok(Action::SetMplsLabel(r.u32()?))
        }
        31 => Ok(Action::SetMplsTc(r.u8()?)),
        32 => {
            let (offset, n_bits) = offset_and_width(r.u16()?);
            let max_len = r.u16()?;
            let field = header_field(&mut r)?;
            if !r.is_zero() {
                return Err(MUST_BE_ZERO);
            }
            Ok(Action::OutputReg { src: subfield(field, offset, n_bits)?, max_len })
        }
        33 => set_field(r, SetForm::Load),
        34 => conjunction(r),
        37 => controller2(r),
        39 => {
            let port = PortNo::from_of10(r.u16()?);
            let max_len = r.u32()?;
            if max_len < 14 {
                return Err(OfpError::BacBadArgument);
            }
            Ok(Action::OutputTrunc { port, max_len })
        }
        40 => {
            r.skip(2)?;
            Ok(Action::Group(r.u32()?))
        }
        42 if depth < MAX_DEPTH => {
            r.skip(6)?;
            decode_list(r.rest(), version, depth + 1).map(Action::Clone)
        }
        42 => Err(OfpError::BacTooMany),
        35 if depth < MAX_DEPTH => ct::decode(r, version, depth),
        35 => Err(OfpError::BacTooMany),
        36 => nat::decode(r),
        43 => Ok(Action::CtClear),
        254 | 255 if !DEBUG_ACTIONS.load(Ordering::Relaxed) => Err(OfpError::BacBadVendorType),
        254 => Ok(Action::DebugSlow),
        255 => Ok(Action::DebugRecirc),
        50 => delete_field(r),
        46 => encap::decode_encap(r),
        47 => encap::decode_decap(r),
        48 => Ok(Action::DecNshTtl),
        49 => {
            let (len, offset) = (r.u16()?, r.u16()?);
            let dst = writable(subfield(header_field(&mut r)?, offset, 1)?)?;
            if r.is_zero() { Ok(Action::CheckPktLarger { len, dst }) } else { Err(MUST_BE_ZERO) }
        }
        _ => Err(OfpError::BacBadVendorType),
    }
}

fn resubmit(port: u16, table: u8) -> Action {
    let (in_port, table) = resubmit_to(port, table);
    Action::Resubmit { in_port, table }
}

fn resubmit_to(port: u16, table: u8) -> (Option<PortNo>, Option<u8>) {
    let port = PortNo::from_of10(port);
    ((port != PortNo::IN_PORT).then_some(port), (table != 0xff).then_some(table))
}

fn delete_field(mut r: Reader<'_>) -> Result<Action, OfpError> {
    let header = Header::decode(&mut r)?;
    let field = header.field().ok_or(OfpError::BmcBadField)?;
    if header.has_mask { Err(OfpError::BmcBadMask) } else { Ok(Action::DeleteField(field)) }
}

fn push_mpls(mut r: Reader<'_>) -> Result<Action, OfpError> {
    match r.u16()? {
        eth_type @ (0x8847 | 0x8848) => Ok(Action::PushMpls(eth_type)),
        _ => Err(OfpError::BacBadArgument),
    }
}

fn conjunction(mut r: Reader<'_>) -> Result<Action, OfpError> {
    let (clause, n_clauses) = (r.u8()?, r.u8()?);
    if !N_CLAUSES.contains(&n_clauses) || clause >= n_clauses {
        return Err(OfpError::NxbacBadConjunction);
    }
    Ok(Action::Conjunction { id: r.u32()?, clause, n_clauses })
}

/// Reads `NXAST_CONTROLLER2`: a list of properties.
fn controller2(mut r: Reader<'_>) -> Result<Action, OfpError> {
    let mut action = ControllerAction::default();
    if !r.sub(6)?.is_zero() {
        return Err(MUST_BE_ZERO);
    }
    property::each(&mut Reader::new(r.rest()), |p| {
        match p.ty {
            0 => action.max_len = p.u16()?,
            1 => action.controller_id = p.u16()?,
            2 => action.reason = PacketInReason::from_wire(p.u8()?),
            3 => action.userdata = p.value.peek().to_vec(),
            4 => action.pause = true,
            5 => action.meter_id = Some(p.u32()?).filter(|id| *id != NO_METER),
            _ => p.unknown(Unknown::Refuse)?,
        }
        Ok(())
    })?;
    Ok(Action::Controller(Box::new(action)))
}
