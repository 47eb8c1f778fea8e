//! LLDPDUs: TLVs in an Ethernet frame (IEEE 802.1AB-2016 clause 8), with the organizationally specific TLVs of
//! auto-attach as Open vSwitch 4.0.0 reads and writes them.
//!
//! Invariant: [`Pdu::parse`] accepts any bytes without a panic, and what it returns is no larger than the frame.

use base::MacAddr;

/// Ethernet type of LLDP.
pub const ETHERTYPE: u16 = 0x88cc;
/// The nearest bridge group address, which LLDPDUs are sent to (IEEE 802.1AB-2016 table 7-1).
pub const NEAREST_BRIDGE: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e]);
/// The organizationally unique identifier of the auto-attach TLVs.
pub const AUTO_ATTACH_OUI: [u8; 3] = [0x00, 0x04, 0x0d];
/// Bytes of an Ethernet header and a payload of 1500 bytes.
pub const FRAME_MAX: usize = 1514;

const END: u8 = 0;
const CHASSIS_ID: u8 = 1;
const PORT_ID: u8 = 2;
const TIME_TO_LIVE: u8 = 3;
const PORT_DESCRIPTION: u8 = 4;
const SYSTEM_NAME: u8 = 5;
const SYSTEM_DESCRIPTION: u8 = 6;
const CAPABILITIES: u8 = 7;
const MANAGEMENT_ADDRESS: u8 = 8;
const ORGANIZATION: u8 = 127;

/// Subtype of the auto-attach element TLV.
const ELEMENT: u8 = 0x0b;
/// Subtype of the auto-attach I-SID/VLAN assignment TLV.
const ASSIGNMENTS: u8 = 0x0c;
/// Bytes of the digest in front of the contents of both; nothing is authenticated, and it is sent as zeros.
const DIGEST: usize = 32;
/// Bytes of an element behind the digest.
const ELEMENT_LEN: usize = 14;
/// Bytes of an assignment.
const ASSIGNMENT_LEN: usize = 5;
/// Bytes of the value of a TLV at most.
const TLV_MAX: usize = 511;
/// Maximum number of assignments in one TLV.
const ASSIGNMENTS_PER_TLV: usize = (TLV_MAX - 4 - DIGEST) / ASSIGNMENT_LEN;
/// Bytes of a chassis or port identifier with its subtype (IEEE 802.1AB-2016 8.5.2, 8.5.3).
const ID_LEN: std::ops::RangeInclusive<usize> = 2..=256;
/// Bytes of a system name or description at most.
const TEXT_MAX: usize = 255;
/// The system capability "MAC bridge".
const BRIDGE: u16 = 1 << 2;

/// Chassis identifier subtype: a MAC address.
pub const CHASSIS_MAC: u8 = 4;
/// Port identifier subtype: a MAC address.
pub const PORT_MAC: u8 = 3;
/// Port identifier subtype: the name of an interface.
pub const PORT_NAME: u8 = 5;
/// The auto-attach element type that Open vSwitch announces.
pub const ELEMENT_CLIENT: u8 = 14;

/// Why a frame is not an LLDPDU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// The frame has no LLDP Ethernet header.
    #[error("not an LLDP frame")]
    NotLldp,
    /// A TLV extends beyond the frame.
    #[error("TLV of type {0} is cut off")]
    Truncated(u8),
    /// A TLV is shorter or longer than its type allows.
    #[error("TLV of type {0} has a wrong length")]
    Length(u8),
    /// The mandatory TLVs are not first, in order and unique.
    #[error("TLV of type {0} is out of place")]
    Order(u8),
    /// A mandatory TLV is missing.
    #[error("mandatory TLVs are missing")]
    Missing,
}

/// The self-description of an auto-attach element.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Element {
    /// The element's type, 6 bits.
    pub kind: u8,
    /// State flags, 6 bits.
    pub state: u8,
    /// Management VLAN, 12 bits.
    pub management_vlan: u16,
    /// System id: a MAC address, and 4 bytes about its links.
    pub system_id: SystemId,
}

/// The system id of an auto-attach element.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SystemId {
    /// MAC address of the system.
    pub mac: MacAddr,
    /// Connection type, 3 bits.
    pub connection: u8,
    /// Id of a split multi-link trunk, 10 bits.
    pub smlt: u16,
    /// Id of a multi-link trunk.
    pub mlt: [u8; 2],
}

/// The request to carry a VLAN by a service instance, or the answer to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Assignment {
    /// The status of the request.
    pub status: AssignmentStatus,
    /// VLAN id, 12 bits.
    pub vlan: u16,
    /// Service instance id, 24 bits.
    pub isid: u32,
}

/// The status of an assignment on the wire, 4 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AssignmentStatus(pub u8);

impl AssignmentStatus {
    /// The status in requests of clients.
    pub const REQUEST: Self = Self(0);
    /// The server carries the VLAN.
    pub const ACTIVE: Self = Self(2);

    /// As `autoattach/show-isid` prints it.
    pub fn name(self) -> &'static str {
        match self.0 {
            2 => "Active",
            3 => "Reject (Generic)",
            4 => "Reject (AA resources unavailable)",
            6 => "Reject (Invalid)",
            8 => "Reject (VLAN resources unavailable)",
            9 => "Reject (Application interaction issue)",
            _ => "Undefined",
        }
    }
}

/// A parsed LLDPDU. TLVs that are not represented here are skipped.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Pdu {
    /// Chassis identifier: subtype and value.
    pub chassis_id: Vec<u8>,
    /// Port identifier: subtype and value.
    pub port_id: Vec<u8>,
    /// Seconds for which the information is valid; 0 withdraws it.
    pub ttl_s: u16,
    /// System name.
    pub system_name: Option<Vec<u8>>,
    /// System description.
    pub system_description: Option<Vec<u8>>,
    /// Auto-attach element.
    pub element: Option<Element>,
    /// Auto-attach assignments of VLANs to service instances, in the order of the frame.
    pub assignments: Vec<Assignment>,
}

impl Pdu {
    /// Parses a frame, which begins with its Ethernet header; VLAN tags are skipped. Also returns the number of TLVs
    /// of an unknown type or organization.
    pub fn parse(frame: &[u8]) -> Result<(Self, u32), Malformed> {
        let mut rest = payload(frame).ok_or(Malformed::NotLldp)?;
        let (mut pdu, mut unrecognized, mut position) = (Self::default(), 0, 0u32);
        // A frame without an end TLV is complete at its end, too.
        while let Some((&[high, low], behind)) = rest.split_first_chunk() {
            let kind = high >> 1;
            if kind == END {
                break;
            }
            let len = usize::from(u16::from_be_bytes([high & 1, low]));
            let (value, behind) = behind.split_at_checked(len).ok_or(Malformed::Truncated(kind))?;
            rest = behind;
            position += 1;
            // The first three have their places, and are nowhere else.
            if position <= 3 && u32::from(kind) != position || position > 3 && kind <= TIME_TO_LIVE {
                let missing = position <= 3 && kind > TIME_TO_LIVE;
                return Err(if missing { Malformed::Missing } else { Malformed::Order(kind) });
            }
            match kind {
                CHASSIS_ID | PORT_ID if !ID_LEN.contains(&len) => return Err(Malformed::Length(kind)),
                CHASSIS_ID => pdu.chassis_id = value.to_vec(),
                PORT_ID => pdu.port_id = value.to_vec(),
                TIME_TO_LIVE => {
                    let ttl = value.first_chunk().ok_or(Malformed::Length(kind))?;
                    pdu.ttl_s = u16::from_be_bytes(*ttl);
                }
                SYSTEM_NAME => pdu.system_name = Some(value[..len.min(TEXT_MAX)].to_vec()),
                SYSTEM_DESCRIPTION => pdu.system_description = Some(value[..len.min(TEXT_MAX)].to_vec()),
                PORT_DESCRIPTION | CAPABILITIES | MANAGEMENT_ADDRESS => {}
                ORGANIZATION => unrecognized += u32::from(!pdu.organization(value)?),
                _ => unrecognized += 1,
            }
        }
        if position < 3 { Err(Malformed::Missing) } else { Ok((pdu, unrecognized)) }
    }

    /// Takes over an organizationally specific TLV; returns false if it is unknown.
    fn organization(&mut self, value: &[u8]) -> Result<bool, Malformed> {
        const MALFORMED: Malformed = Malformed::Length(ORGANIZATION);
        let (&[a, b, c, subtype], value) = value.split_first_chunk().ok_or(MALFORMED)?;
        if [a, b, c] != AUTO_ATTACH_OUI || !matches!(subtype, ELEMENT | ASSIGNMENTS) {
            return Ok(false);
        }
        let contents = value.get(DIGEST..).ok_or(MALFORMED)?;
        if subtype == ELEMENT {
            self.element = Some(Element::parse(contents.first_chunk().ok_or(MALFORMED)?));
        } else {
            let (assignments, []) = contents.as_chunks::<ASSIGNMENT_LEN>() else { return Err(MALFORMED) };
            self.assignments.extend(assignments.iter().map(Assignment::parse));
        }
        Ok(true)
    }

    /// Encodes the frame, from the address `src`. Assignments that do not fit in [`FRAME_MAX`] bytes are left out;
    /// also returns their number. Identifiers must have the lengths that IEEE 802.1AB allows.
    pub fn write(&self, src: MacAddr) -> (Vec<u8>, usize) {
        let mut frame = begin(&self.chassis_id, &self.port_id, self.ttl_s, src);
        for (kind, text) in [(SYSTEM_NAME, &self.system_name), (SYSTEM_DESCRIPTION, &self.system_description)] {
            if let Some(text) = text {
                put(&mut frame, kind, &[&text[..text.len().min(TEXT_MAX)]]);
            }
        }
        // System capabilities, then enabled capabilities.
        put(&mut frame, CAPABILITIES, &[&BRIDGE.to_be_bytes(), &BRIDGE.to_be_bytes()]);
        if let Some(element) = &self.element {
            put(&mut frame, ORGANIZATION, &[&AUTO_ATTACH_OUI, &[ELEMENT], &[0; DIGEST], &element.bytes()]);
        }
        let mut rest = self.assignments.as_slice();
        while !rest.is_empty() {
            // Headers of this TLV, and the end TLV.
            let overhead = 2 + 4 + DIGEST + 2;
            let room = FRAME_MAX.saturating_sub(frame.len() + overhead) / ASSIGNMENT_LEN;
            let (now, later) = rest.split_at(rest.len().min(room).min(ASSIGNMENTS_PER_TLV));
            if now.is_empty() {
                break;
            }
            let bytes: Vec<u8> = now.iter().flat_map(|assignment| assignment.bytes()).collect();
            put(&mut frame, ORGANIZATION, &[&AUTO_ATTACH_OUI, &[ASSIGNMENTS], &[0; DIGEST], &bytes]);
            rest = later;
        }
        put(&mut frame, END, &[]);
        (frame, rest.len())
    }
}

/// Encodes a shutdown LLDPDU, from the address `src`: one that withdraws all information sent under these identifiers
/// (IEEE 802.1AB-2016 clause 9.1). Identifiers must have the lengths that IEEE 802.1AB allows.
pub fn shutdown(chassis_id: &[u8], port_id: &[u8], src: MacAddr) -> Vec<u8> {
    let mut frame = begin(chassis_id, port_id, 0, src);
    put(&mut frame, END, &[]);
    frame
}

/// The Ethernet header and the mandatory TLVs.
fn begin(chassis_id: &[u8], port_id: &[u8], ttl_s: u16, src: MacAddr) -> Vec<u8> {
    let mut frame = Vec::with_capacity(256);
    frame.extend(NEAREST_BRIDGE.0);
    frame.extend(src.0);
    frame.extend(ETHERTYPE.to_be_bytes());
    put(&mut frame, CHASSIS_ID, &[chassis_id]);
    put(&mut frame, PORT_ID, &[port_id]);
    put(&mut frame, TIME_TO_LIVE, &[&ttl_s.to_be_bytes()]);
    frame
}

/// The payload behind the Ethernet header and VLAN tags of an LLDP frame.
fn payload(frame: &[u8]) -> Option<&[u8]> {
    let mut rest = frame.get(12..)?;
    loop {
        let (ethertype, behind) = rest.split_first_chunk()?;
        match u16::from_be_bytes(*ethertype) {
            ETHERTYPE => return Some(behind),
            0x8100 | 0x88a8 => rest = behind.get(2..)?,
            _ => return None,
        }
    }
}

/// Appends a TLV whose value consists of `parts`.
fn put(frame: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    debug_assert!(len <= TLV_MAX, "a TLV of {len} bytes");
    frame.extend((u16::from(kind) << 9 | len as u16).to_be_bytes());
    parts.iter().for_each(|part| frame.extend(*part));
}

impl Element {
    fn parse(bytes: &[u8; ELEMENT_LEN]) -> Self {
        let [a, b, c, _reserved, m0, m1, m2, m3, m4, m5, link0, link1, mlt0, mlt1] = *bytes;
        let (head, link) = (u32::from_be_bytes([0, a, b, c]), u16::from_be_bytes([link0, link1]));
        Self {
            kind: (head >> 18) as u8,
            state: (head >> 12 & 0x3f) as u8,
            management_vlan: (head & 0xfff) as u16,
            system_id: SystemId {
                mac: MacAddr([m0, m1, m2, m3, m4, m5]),
                connection: (link >> 13) as u8,
                smlt: link & 0x3ff,
                mlt: [mlt0, mlt1],
            },
        }
    }

    fn bytes(&self) -> [u8; ELEMENT_LEN] {
        let head = u32::from(self.kind & 0x3f) << 18
            | u32::from(self.state & 0x3f) << 12
            | u32::from(self.management_vlan & 0xfff);
        let [_, a, b, c] = head.to_be_bytes();
        let SystemId { mac: MacAddr([m0, m1, m2, m3, m4, m5]), connection, smlt, mlt: [mlt0, mlt1] } = self.system_id;
        let [link0, link1] = (u16::from(connection & 7) << 13 | smlt & 0x3ff).to_be_bytes();
        [a, b, c, 0, m0, m1, m2, m3, m4, m5, link0, link1, mlt0, mlt1]
    }
}

impl Assignment {
    fn parse(bytes: &[u8; ASSIGNMENT_LEN]) -> Self {
        let [a, b, i0, i1, i2] = *bytes;
        Self {
            status: AssignmentStatus(a >> 4),
            vlan: u16::from_be_bytes([a & 0xf, b]),
            isid: u32::from_be_bytes([0, i0, i1, i2]),
        }
    }

    fn bytes(&self) -> [u8; ASSIGNMENT_LEN] {
        let [a, b] = (u16::from(self.status.0 & 0xf) << 12 | self.vlan & 0xfff).to_be_bytes();
        let [_, i0, i1, i2] = self.isid.to_be_bytes();
        [a, b, i0, i1, i2]
    }
}
