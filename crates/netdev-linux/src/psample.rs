//! Samples for the members of psample, a multicast group of generic netlink, in messages like those of Linux itself
//! (include/uapi/linux/psample.h).
//!
//! A process with CAP_NET_ADMIN may send to the group. Its messages carry the port id of its socket, and those of the kernel
//! carry 0: a member that accepts messages from the kernel only ignores the others. The kernel has the group while its module
//! `psample` is loaded.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto, socket_with, sockopt,
};

use crate::netlink::{NLM_F_ACK, Request, attributes, half, raw_messages, word};

/// Messages of generic netlink's controller (include/uapi/linux/genetlink.h).
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const CTRL_ATTR_MCAST_GROUPS: u16 = 7;
const CTRL_ATTR_MCAST_GRP_NAME: u16 = 1;
const CTRL_ATTR_MCAST_GRP_ID: u16 = 2;
/// Command, version and two reserved bytes.
const GENL_HEADER_LEN: usize = 4;

const FAMILY: &str = "psample";
const GROUP: &str = "packets";
const PSAMPLE_CMD_SAMPLE: u8 = 0;
const PSAMPLE_GENL_VERSION: u8 = 1;
const PSAMPLE_ATTR_IIFINDEX: u16 = 0;
const PSAMPLE_ATTR_ORIGSIZE: u16 = 2;
const PSAMPLE_ATTR_SAMPLE_GROUP: u16 = 3;
const PSAMPLE_ATTR_GROUP_SEQ: u16 = 4;
const PSAMPLE_ATTR_SAMPLE_RATE: u16 = 5;
const PSAMPLE_ATTR_DATA: u16 = 6;
const PSAMPLE_ATTR_TIMESTAMP: u16 = 13;
const PSAMPLE_ATTR_PROTO: u16 = 14;
const PSAMPLE_ATTR_USER_COOKIE: u16 = 15;
const PSAMPLE_ATTR_SAMPLE_PROBABILITY: u16 = 16;

/// The largest number of bytes of a packet in a sample. Linux limits a message to 65,535 bytes; headers and other attributes take
/// up to 135 of them.
pub const DATA_MAX: usize = 65_400;
/// How long a reply of the kernel may take.
const REPLY_WAIT: Duration = Duration::from_secs(1);
const REPLY_LEN_MAX: usize = 8 * 1024;

/// A sampled packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sample<'a> {
    /// The group of samples.
    pub group: u32,
    /// Identifies the sampling point; at most 16 bytes.
    pub cookie: &'a [u8],
    /// The probability with which a packet is chosen: [`u32::MAX`] for all.
    pub probability: u32,
    /// The kernel's number of the ingress device, 0 without one.
    pub ifindex: u32,
    /// The Ethernet type of the frame, or that of the packet if it has no Ethernet header.
    pub ethertype: u16,
    /// The length of the packet in bytes.
    pub len: usize,
    /// Its first bytes, at most [`DATA_MAX`].
    pub data: &'a [u8],
    /// When it was sampled, since 1970.
    pub time: Duration,
}

/// A socket that sends samples.
#[derive(Debug)]
pub struct Psample {
    socket: OwnedFd,
    family: u16,
    /// The multicast group.
    group: SocketAddrNetlink,
}

impl Psample {
    /// Opens the socket in the network namespace of the calling thread.
    ///
    /// Errors: `ENOENT` if the kernel has no psample; `EOPNOTSUPP` if the number of its group exceeds 32,
    /// the largest that the address of a socket can contain.
    pub fn open() -> io::Result<Self> {
        let socket = open_socket(0)?;
        let (family, group) = resolve(&socket, FAMILY, GROUP)?;
        Ok(Self { socket, family, group: address_of(group)? })
    }

    /// Sends a sample to the members; whether there are any is not known. Data beyond [`DATA_MAX`] are left out.
    ///
    /// Errors: `EPERM` without CAP_NET_ADMIN.
    pub fn send(&self, sample: &Sample<'_>) -> io::Result<()> {
        sendto(&self.socket, &encode(self.family, sample), SendFlags::empty(), &self.group)?;
        Ok(())
    }
}

/// A socket that is a member of the multicast groups of a mask.
fn open_socket(groups: u32) -> io::Result<OwnedFd> {
    let (family, kind) = (AddressFamily::NETLINK, SocketType::RAW);
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC, Some(netlink::GENERIC))?;
    bind(&socket, &SocketAddrNetlink::new(0, groups))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(REPLY_WAIT))?;
    Ok(socket)
}

/// The address of a multicast group: system calls have a bit for each of the first 32.
fn address_of(group: u32) -> io::Result<SocketAddrNetlink> {
    let bit = group.checked_sub(1).and_then(|bit| 1u32.checked_shl(bit));
    let bit = bit.ok_or(io::Error::from_raw_os_error(libc::EOPNOTSUPP))?;
    Ok(SocketAddrNetlink::new(0, bit))
}

/// The numbers of a family of generic netlink and of one of its multicast groups.
fn resolve(socket: &OwnedFd, family: &str, group: &str) -> io::Result<(u16, u32)> {
    let mut request = Request::with_header(GENL_ID_CTRL, NLM_F_ACK, &[CTRL_CMD_GETFAMILY, 1, 0, 0]);
    request.attribute(CTRL_ATTR_FAMILY_NAME, &[family.as_bytes(), &[0]].concat());
    sendto(socket, request.finish(1), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let (mut reply, mut found) = (vec![0; REPLY_LEN_MAX], None);
    loop {
        let (n, _) = match recv(socket, &mut reply[..], RecvFlags::empty()) {
            Err(rustix::io::Errno::INTR) => continue,
            other => other?,
        };
        for (kind, _, body) in raw_messages(&reply[..n.min(REPLY_LEN_MAX)]) {
            match kind {
                GENL_ID_CTRL => found = parse_family(body, group),
                crate::netlink::NLMSG_ERROR => match word(body, 0).map(|n| (n as i32).saturating_neg()) {
                    Some(0) => return found.ok_or(io::Error::from_raw_os_error(libc::ENOENT)),
                    errno => return Err(io::Error::from_raw_os_error(errno.unwrap_or(libc::EPROTO))),
                },
                _ => {}
            }
        }
    }
}

/// The numbers of the family that a message describes and of one of its multicast groups.
fn parse_family(body: &[u8], group: &str) -> Option<(u16, u32)> {
    let family = body.get(GENL_HEADER_LEN..)?;
    let is_group = |of: &&[u8]| {
        let name = value(of, CTRL_ATTR_MCAST_GRP_NAME).unwrap_or_default();
        name.split(|byte| *byte == 0).next() == Some(group.as_bytes())
    };
    let of_group = attributes(value(family, CTRL_ATTR_MCAST_GROUPS)?).map(|(_, of)| of).find(is_group)?;
    Some((half(value(family, CTRL_ATTR_FAMILY_ID)?, 0)?, word(value(of_group, CTRL_ATTR_MCAST_GRP_ID)?, 0)?))
}

fn value(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(k, _)| *k == kind).map(|(_, value)| value)
}

/// The message of a sample, with its attributes in the order of the kernel.
fn encode(family: u16, sample: &Sample<'_>) -> Vec<u8> {
    let mut message = Request::notification(family, &[PSAMPLE_CMD_SAMPLE, PSAMPLE_GENL_VERSION, 0, 0]);
    // The attribute has 16 bits.
    if let Some(ifindex) = u16::try_from(sample.ifindex).ok().filter(|index| *index != 0) {
        message.attribute(PSAMPLE_ATTR_IIFINDEX, &ifindex.to_ne_bytes());
    }
    message.attribute(PSAMPLE_ATTR_SAMPLE_RATE, &sample.probability.to_ne_bytes());
    message.attribute(PSAMPLE_ATTR_ORIGSIZE, &(sample.len as u32).to_ne_bytes());
    message.attribute(PSAMPLE_ATTR_SAMPLE_GROUP, &sample.group.to_ne_bytes());
    // Only the kernel counts the samples of a group.
    message.attribute(PSAMPLE_ATTR_GROUP_SEQ, &0u32.to_ne_bytes());
    message.attribute(PSAMPLE_ATTR_TIMESTAMP, &(sample.time.as_nanos() as u64).to_ne_bytes());
    message.attribute(PSAMPLE_ATTR_PROTO, &sample.ethertype.to_ne_bytes());
    message.attribute(PSAMPLE_ATTR_DATA, &sample.data[..sample.data.len().min(DATA_MAX)]);
    if !sample.cookie.is_empty() {
        message.attribute(PSAMPLE_ATTR_USER_COOKIE, sample.cookie);
    }
    message.attribute(PSAMPLE_ATTR_SAMPLE_PROBABILITY, &[]);
    message.finish(0).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn samples_are_messages() {
        let data = vec![7; 70_000];
        let sample = Sample {
            group: 9,
            cookie: &[1, 2, 3],
            probability: 1 << 31,
            ifindex: 5,
            ethertype: 0x800,
            len: 70_000,
            data: &data,
            time: Duration::from_nanos(11),
        };
        let message = encode(33, &sample);
        assert!(message.len() <= 0xffff, "{}", message.len());
        // Type 33, no flags, sequence number 0, port 0.
        assert_eq!(message[4..16], [33, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        let all: Vec<_> = raw_messages(&message).collect();
        let [(33, 0, body)] = all[..] else { panic!("{all:?}") };
        assert_eq!(body[..GENL_HEADER_LEN], [0, 1, 0, 0]);
        let shown: Vec<(u16, &[u8])> = attributes(&body[GENL_HEADER_LEN..]).collect();
        let expected: [(u16, &[u8]); 10] = [
            (0, &[5, 0]),
            (5, &[0, 0, 0, 0x80]),
            (2, &70_000u32.to_ne_bytes()),
            (3, &[9, 0, 0, 0]),
            (4, &[0; 4]),
            (13, &[11, 0, 0, 0, 0, 0, 0, 0]),
            (14, &[0, 8]),
            (6, &data[..DATA_MAX]),
            (15, &[1, 2, 3]),
            (16, &[]),
        ];
        assert_eq!(shown, expected);
        // Without a device and a cookie.
        let short = encode(33, &Sample { ifindex: 70_000, cookie: &[], ..sample });
        let kinds = attributes(&short[NLMSG_AND_GENL..]).map(|(kind, _)| kind);
        assert_eq!(kinds.collect::<Vec<_>>(), [5, 2, 3, 4, 13, 14, 6, 16]);
    }

    const NLMSG_AND_GENL: usize = 16 + GENL_HEADER_LEN;

    #[test]
    fn groups_have_bits() {
        assert_eq!(address_of(1).map(|at| at.groups()).ok(), Some(1));
        assert_eq!(address_of(32).map(|at| at.groups()).ok(), Some(1 << 31));
        assert!(address_of(0).is_err() && address_of(33).is_err());
    }

    /// Every kernel has this family, and members of its group get what a process sends.
    #[test]
    fn members_of_a_group_receive_samples() {
        let socket = open_socket(0).unwrap();
        assert_eq!(resolve(&socket, "flowstone", GROUP).map_err(|e| e.raw_os_error()), Err(Some(libc::ENOENT)));
        assert_eq!(resolve(&socket, "nlctrl", "bogus").map_err(|e| e.raw_os_error()), Err(Some(libc::ENOENT)));
        let (family, group) = resolve(&socket, "nlctrl", "notify").unwrap();
        let address = address_of(group).unwrap();
        let member = open_socket(address.groups()).unwrap();
        sockopt::set_socket_timeout(&member, sockopt::Timeout::Recv, Some(Duration::from_secs(60))).unwrap();
        let sample = Sample {
            group: 1,
            cookie: &[],
            probability: u32::MAX,
            ifindex: 0,
            ethertype: 0x800,
            len: 60,
            data: &[0; 60],
            time: Duration::ZERO,
        };
        Psample { socket, family, group: address }.send(&sample).unwrap();
        let mut buffer = vec![0; REPLY_LEN_MAX];
        loop {
            let (n, _) = recv(&member, &mut buffer[..], RecvFlags::empty()).unwrap();
            // The kernel may notify of families meanwhile.
            if buffer[..n] == encode(family, &sample) {
                return;
            }
        }
    }

    proptest! {
        #[test]
        fn descriptions_of_families_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse_family(&bytes, GROUP);
        }
    }
}
