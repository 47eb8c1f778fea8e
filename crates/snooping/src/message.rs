//! Messages of multicast routers and listeners, as the table needs them, and their place in a frame.

use crate::{igmp, mld};
use packet::wire::{self, Ipv4, Ipv6};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The IP protocol number of IGMP.
const IGMP: u8 = 2;
/// The IP protocol number of ICMPv6, of which MLD is a part.
const ICMPV6: u8 = 58;

/// The protocol version of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Version {
    /// IGMP version 1 (RFC 1112).
    Igmp1,
    /// IGMP version 2 (RFC 2236).
    Igmp2,
    /// IGMP version 3 (RFC 3376).
    Igmp3,
    /// MLD version 1 (RFC 2710).
    Mld1,
    /// MLD version 2 (RFC 3810).
    Mld2,
}

impl Version {
    /// As `mdb/show` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Igmp1 => "IGMPv1",
            Self::Igmp2 => "IGMPv2",
            Self::Igmp3 => "IGMPv3",
            Self::Mld1 => "MLDv1",
            Self::Mld2 => "MLDv2",
        }
    }
}

/// The effect of a record on the membership of its sender's port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Membership {
    /// A listener is there.
    Join,
    /// A listener left.
    Leave,
}

impl Membership {
    /// The effect of a group record with this type and number of sources; `None` for types that neither RFC 3376 section
    /// 4.2.12 nor RFC 3810 section 5.2.12 defines. Sources themselves are not distinguished: a listener that excludes or
    /// blocks some still listens, and one that includes none does not.
    pub(crate) fn of_record(record_type: u8, n_sources: u16) -> Option<Self> {
        match record_type {
            // MODE_IS_INCLUDE, CHANGE_TO_INCLUDE_MODE.
            1 | 3 if n_sources == 0 => Some(Self::Leave),
            // The same with sources, MODE_IS_EXCLUDE, CHANGE_TO_EXCLUDE_MODE, ALLOW_NEW_SOURCES, BLOCK_OLD_SOURCES.
            1..=6 => Some(Self::Join),
            _ => None,
        }
    }
}

/// One group of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// The group's address.
    pub group: IpAddr,
    /// The change.
    pub membership: Membership,
}

/// A message of a router or a listener.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Message {
    /// A query, which only multicast routers send, or switches on behalf of one.
    Query {
        /// The address of the sender. An unspecified one is that of a switch (RFC 4541 section 2.1.1).
        source: IpAddr,
    },
    /// A report of a listener, or its message that it leaves.
    Report {
        /// The version.
        version: Version,
        /// The groups that it names, with known record types. One record, except in IGMPv3 and MLDv2.
        records: Vec<Record>,
    },
}

/// The reason why bytes are not a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// The frame contains no IGMP and no ICMPv6 message, or only a fragment of one.
    #[error("neither IGMP nor MLD")]
    OtherProtocol,
    /// The message's type is not one of the snooped ones.
    #[error("type {0:#04x} is not snooped")]
    Type(u8),
    /// The message is shorter than its type requires.
    #[error("message is cut off")]
    Truncated,
    /// The checksum of an IGMP message is wrong.
    #[error("bad IGMP checksum")]
    IgmpChecksum,
    /// The checksum of an MLD message is wrong.
    #[error("bad MLD checksum")]
    MldChecksum,
}

impl Message {
    /// Parses the message in an Ethernet frame, behind any number of VLAN tags.
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        let ip = wire::ip(frame).filter(|ip| !ip.fragment).ok_or(Malformed::OtherProtocol)?;
        let header = frame.get(ip.at..ip.l4).ok_or(Malformed::OtherProtocol)?;
        let message = frame.get(ip.l4..ip.end).ok_or(Malformed::OtherProtocol)?;
        match (ip.version, ip.proto) {
            (4, IGMP) => {
                let header = Ipv4::new_checked(header).map_err(|_| Malformed::Truncated)?;
                igmp::parse(Ipv4Addr::from(header.src()), message)
            }
            (6, ICMPV6) => {
                let header = Ipv6::new_checked(header).map_err(|_| Malformed::Truncated)?;
                mld::parse(Ipv6Addr::from(header.src()), Ipv6Addr::from(header.dst()), message)
            }
            _ => Err(Malformed::OtherProtocol),
        }
    }
}

/// Splits `N` bytes off the front, if there are as many.
pub(crate) fn take<'a, const N: usize>(bytes: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (front, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(front)
}

/// Splits `n` bytes off the front, if there are as many.
pub(crate) fn skip(bytes: &mut &[u8], n: usize) -> Option<()> {
    *bytes = bytes.get(n..)?;
    Some(())
}
