//! Links over rtnetlink(7): queries a link, sets its address, MTU and state, and receives change notifications.
//!
//! Messages are in native byte order, padded to four bytes. The parser does not trust the lengths in them.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use base::MacAddr;
use netdev::NetdevStats;
use parking_lot::Mutex;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::sys;

const NLMSG_HEADER_LEN: usize = 16;
const IFINFO_LEN: usize = 16;
const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWNSID: u16 = 88;
const RTM_GETNSID: u16 = 90;
pub(crate) const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
pub(crate) const NLM_F_ACK: u16 = 4;
const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_LINKINFO: u16 = 18;
const IFLA_STATS64: u16 = 23;
const IFLA_TARGET_NETNSID: u16 = 46;
const IFLA_INFO_KIND: u16 = 1;
const NETNSA_NSID: u16 = 1;
const NETNSA_FD: u16 = 3;
const RTGENMSG_LEN: usize = 4;
/// The type bits of an attribute, without the flags for nesting and byte order.
const NLA_TYPE_MASK: u16 = 0x3fff;
const IFF_UP: u32 = 1;
const IFF_LOWER_UP: u32 = 1 << 16;
const REPLY_LEN_MAX: usize = 64 * 1024;

/// The kernel's description of a link.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkInfo {
    /// The interface index.
    pub ifindex: u32,
    /// Its name.
    pub name: String,
    /// The `ARPHRD_` type: 1 is Ethernet.
    pub link_type: u16,
    /// `IFF_` flags.
    pub flags: u32,
    /// Largest payload, in bytes.
    pub mtu: Option<u32>,
    /// The Ethernet address.
    pub mac: MacAddr,
    /// The index of the lower device or, for a veth, of the peer (possibly in another namespace).
    pub peer_ifindex: Option<u32>,
    /// The type of a virtual device, as `veth`, `tun`, `bridge`.
    pub kind: Option<String>,
    /// The kernel's counters, from the host's view.
    pub stats: NetdevStats,
}

impl LinkInfo {
    /// Whether the administrator has enabled the link.
    pub fn admin_up(&self) -> bool {
        self.flags & IFF_UP != 0
    }

    /// Whether the device is enabled and has a carrier.
    pub fn carrier(&self) -> bool {
        self.flags & IFF_LOWER_UP != 0
    }

    /// The attributes whose changes are reported to listeners.
    pub(crate) fn state(&self) -> (bool, bool, Option<u32>, MacAddr) {
        (self.admin_up(), self.carrier(), self.mtu, self.mac)
    }
}

/// The content of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// A link was created or changed.
    Link(LinkInfo),
    /// A link was removed.
    Gone(LinkInfo),
    /// The id of a namespace; negative if it has none.
    Namespace(i32),
    /// The reply to a request: 0, or an error number.
    Answer {
        /// The request's sequence number.
        seq: u32,
        /// A positive error number, or 0 for success.
        errno: i32,
    },
}

/// A change of a link's attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// The MTU in bytes.
    Mtu(u32),
    /// The Ethernet address.
    Mac(MacAddr),
    /// The administrative state.
    Up(bool),
}

/// Which link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which<'a> {
    /// By the kernel's number.
    Index(u32),
    /// By name.
    Name(&'a str),
}

/// A socket for requests. Each call waits for the reply, which the kernel sends at once.
#[derive(Debug)]
pub struct Netlink {
    socket: OwnedFd,
    seq: Mutex<u32>,
}

impl Netlink {
    /// Opens the socket in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        Ok(Self { socket: sys::netlink_socket(0, 0)?, seq: Mutex::new(0) })
    }

    /// Describes a link. `ENODEV` if there is none.
    pub fn link(&self, which: Which<'_>) -> io::Result<LinkInfo> {
        self.link_in(None, which)
    }

    /// Describes a link in the namespace with this id, or in this process's namespace.
    pub fn link_in(&self, namespace: Option<i32>, which: Which<'_>) -> io::Result<LinkInfo> {
        let mut request = Request::new(RTM_GETLINK, 0, which, (0, 0))?;
        if let Some(id) = namespace {
            request.attribute(IFLA_TARGET_NETNSID, &id.to_ne_bytes());
        }
        match self.exchange(&mut request)? {
            Some(Event::Link(link)) => Ok(link),
            _ => Err(io::Error::from_raw_os_error(libc::ENODEV)),
        }
    }

    /// The id of another namespace, if it has one in this namespace.
    pub fn namespace_id(&self, namespace: BorrowedFd<'_>) -> io::Result<Option<i32>> {
        let mut request = Request::of_namespace();
        request.attribute(NETNSA_FD, &namespace.as_raw_fd().to_ne_bytes());
        match self.exchange(&mut request)? {
            Some(Event::Namespace(id)) if id >= 0 => Ok(Some(id)),
            _ => Ok(None),
        }
    }

    /// Changes a link.
    pub fn set(&self, ifindex: u32, change: Change) -> io::Result<()> {
        let flags = match change {
            Change::Up(up) => (if up { IFF_UP } else { 0 }, IFF_UP),
            _ => (0, 0),
        };
        let mut request = Request::new(RTM_NEWLINK, NLM_F_ACK, Which::Index(ifindex), flags)?;
        match change {
            Change::Mtu(mtu) => request.attribute(IFLA_MTU, &mtu.to_ne_bytes()),
            Change::Mac(mac) => request.attribute(IFLA_ADDRESS, &mac.0),
            Change::Up(_) => {}
        }
        self.exchange(&mut request).map(drop)
    }

    /// Sends a request and reads until it is answered. Returns the bodies of messages of type `wanted`.
    pub(crate) fn transact(&self, request: &mut Request, wanted: u16) -> io::Result<Vec<Vec<u8>>> {
        let mut seq = self.seq.lock();
        *seq = seq.wrapping_add(1);
        send(&self.socket, request.finish(*seq), SendFlags::empty())?;
        let (mut reply, mut found) = (vec![0; REPLY_LEN_MAX], Vec::new());
        loop {
            let (n, _) = match recv(&self.socket, &mut reply[..], RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            for (kind, answers, body) in raw_messages(&reply[..n.min(REPLY_LEN_MAX)]) {
                match kind {
                    _ if answers != *seq => {}
                    NLMSG_DONE => return Ok(found),
                    NLMSG_ERROR => match word(body, 0).map(|n| (n as i32).saturating_neg()) {
                        Some(0) => return Ok(found),
                        errno => return Err(io::Error::from_raw_os_error(errno.unwrap_or(libc::EPROTO))),
                    },
                    _ if kind == wanted => found.push(body.to_vec()),
                    _ => {}
                }
            }
        }
    }

    /// Sends a request and reads until the reply: the requested information or an error number.
    fn exchange(&self, request: &mut Request) -> io::Result<Option<Event>> {
        let mut seq = self.seq.lock();
        *seq = seq.wrapping_add(1);
        send(&self.socket, request.finish(*seq), SendFlags::empty())?;
        let mut reply = vec![0; REPLY_LEN_MAX];
        loop {
            let (n, _) = match recv(&self.socket, &mut reply[..], RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            for (answers, event) in messages(&reply[..n.min(REPLY_LEN_MAX)]) {
                match event {
                    _ if answers != *seq => {}
                    Event::Link(_) | Event::Namespace(_) => return Ok(Some(event)),
                    Event::Answer { errno: 0, .. } => return Ok(None),
                    Event::Answer { errno, .. } => return Err(io::Error::from_raw_os_error(errno)),
                    Event::Gone(_) => {}
                }
            }
        }
    }
}

/// A socket that receives all link changes, also of namespaces with an id here.
#[derive(Debug)]
pub struct Monitor {
    socket: OwnedFd,
}

impl Monitor {
    /// Opens the socket in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        let socket = sys::netlink_socket(libc::RTMGRP_LINK as u32, libc::SOCK_NONBLOCK)?;
        // Optional: without it, devices that move to another namespace are tracked less precisely.
        let _ = sys::set_option(socket.as_fd(), libc::SOL_NETLINK, libc::NETLINK_LISTEN_ALL_NSID, 1);
        Ok(Self { socket })
    }

    /// The pending changes of one namespace, with its id or `None` for this process's namespace; empty if there are none.
    /// `ENOBUFS` means that some were lost.
    pub fn events(&self) -> io::Result<(Option<i32>, Vec<Event>)> {
        let mut buffer = vec![0; REPLY_LEN_MAX];
        match sys::netlink_receive(self.socket.as_fd(), &mut buffer) {
            Ok((n, namespace)) => {
                Ok((namespace, messages(&buffer[..n.min(REPLY_LEN_MAX)]).into_iter().map(|(_, event)| event).collect()))
            }
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {
                Ok((None, Vec::new()))
            }
            Err(e) => Err(e),
        }
    }

    /// Readable while changes wait.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A request, which attributes are appended to.
pub(crate) struct Request(Vec<u8>);

impl Request {
    /// A request with the header of its type.
    pub(crate) fn with_header(kind: u16, flags: u16, header: &[u8]) -> Self {
        let mut bytes = vec![0; NLMSG_HEADER_LEN];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
        bytes.extend_from_slice(header);
        Self(bytes)
    }

    /// A message that asks for nothing.
    pub(crate) fn notification(kind: u16, header: &[u8]) -> Self {
        let mut message = Self::with_header(kind, 0, header);
        message.0[6..8].fill(0);
        message
    }

    /// A request about one link, with flags to set and the mask of flags to change.
    fn new(kind: u16, flags: u16, which: Which<'_>, (set, mask): (u32, u32)) -> io::Result<Self> {
        let ifindex = match which {
            Which::Index(n) => n,
            Which::Name(name) if name.is_empty() || name.len() > sys::NAME_LEN_MAX || name.contains('\0') => {
                return Err(io::Error::from_raw_os_error(libc::ENODEV));
            }
            Which::Name(_) => 0,
        };
        let mut bytes = vec![0; NLMSG_HEADER_LEN + IFINFO_LEN];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(NLM_F_REQUEST | flags).to_ne_bytes());
        bytes[20..24].copy_from_slice(&ifindex.to_ne_bytes());
        bytes[24..28].copy_from_slice(&set.to_ne_bytes());
        bytes[28..32].copy_from_slice(&mask.to_ne_bytes());
        let mut request = Self(bytes);
        if let Which::Name(name) = which {
            request.attribute(IFLA_IFNAME, &[name.as_bytes(), &[0]].concat());
        }
        Ok(request)
    }

    /// A request for the id of a namespace.
    fn of_namespace() -> Self {
        let mut bytes = vec![0; NLMSG_HEADER_LEN + RTGENMSG_LEN];
        bytes[4..6].copy_from_slice(&RTM_GETNSID.to_ne_bytes());
        bytes[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
        Self(bytes)
    }

    /// Appends an attribute of at most 64 KiB.
    pub(crate) fn attribute(&mut self, kind: u16, value: &[u8]) {
        self.0.extend_from_slice(&(4 + value.len() as u16).to_ne_bytes());
        self.0.extend_from_slice(&kind.to_ne_bytes());
        self.0.extend_from_slice(value);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
    }

    pub(crate) fn finish(&mut self, seq: u32) -> &[u8] {
        let len = self.0.len() as u32;
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        self.0[8..12].copy_from_slice(&seq.to_ne_bytes());
        &self.0
    }
}

pub(crate) fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The messages of a datagram, with the sequence numbers of their requests; other message types are skipped.
pub fn messages(mut datagram: &[u8]) -> Vec<(u32, Event)> {
    let mut out = Vec::new();
    while let Some(len) = word(datagram, 0).map(|n| n as usize) {
        let Some(message) = datagram.get(..len).filter(|m| m.len() >= NLMSG_HEADER_LEN) else { break };
        let (Some(kind), Some(seq)) = (half(message, 4), word(message, 8)) else { break };
        let body = &message[NLMSG_HEADER_LEN..];
        let event = match kind {
            RTM_NEWLINK => parse_link(body).map(Event::Link),
            RTM_DELLINK => parse_link(body).map(Event::Gone),
            RTM_NEWNSID => parse_namespace(body).map(Event::Namespace),
            NLMSG_ERROR => word(body, 0).map(|n| Event::Answer { seq, errno: (n as i32).saturating_neg() }),
            _ => None,
        };
        out.extend(event.map(|event| (seq, event)));
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    out
}

/// The messages of a datagram: types, sequence numbers of their requests, and bodies.
pub(crate) fn raw_messages(mut datagram: &[u8]) -> impl Iterator<Item = (u16, u32, &[u8])> {
    std::iter::from_fn(move || {
        let len = word(datagram, 0)? as usize;
        let message = datagram.get(..len)?;
        let body = message.get(NLMSG_HEADER_LEN..)?;
        datagram = datagram.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((half(message, 4)?, word(message, 8)?, body))
    })
}

/// The attributes of a message or of a nested attribute: types and values.
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(half(bytes, 0)?);
        let kind = half(bytes, 2)? & NLA_TYPE_MASK;
        let value = bytes.get(4..len)?;
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

pub(crate) fn text(value: &[u8]) -> String {
    let end = value.iter().position(|b| *b == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

fn parse_link(body: &[u8]) -> Option<LinkInfo> {
    let mut link =
        LinkInfo { link_type: half(body, 2)?, ifindex: word(body, 4)?, flags: word(body, 8)?, ..LinkInfo::default() };
    for (kind, value) in attributes(body.get(IFINFO_LEN..)?) {
        match kind {
            IFLA_IFNAME => link.name = text(value),
            IFLA_MTU => link.mtu = word(value, 0),
            IFLA_LINK => link.peer_ifindex = word(value, 0),
            IFLA_ADDRESS => link.mac = value.try_into().map(MacAddr).unwrap_or_default(),
            IFLA_LINKINFO => link.kind = attributes(value).find(|(k, _)| *k == IFLA_INFO_KIND).map(|(_, v)| text(v)),
            IFLA_STATS64 => link.stats = parse_stats(value),
            _ => {}
        }
    }
    Some(link)
}

fn parse_namespace(body: &[u8]) -> Option<i32> {
    let (_, id) = attributes(body.get(RTGENMSG_LEN..)?).find(|(kind, _)| *kind == NETNSA_NSID)?;
    Some(word(id, 0)? as i32)
}

/// `struct rtnl_link_stats64`: 64-bit counters.
fn parse_stats(value: &[u8]) -> NetdevStats {
    let counter = |n: usize| Some(u64::from_ne_bytes(*value.get(n * 8..)?.first_chunk()?));
    NetdevStats {
        rx_packets: counter(0),
        tx_packets: counter(1),
        rx_bytes: counter(2),
        tx_bytes: counter(3),
        rx_errors: counter(4),
        tx_errors: counter(5),
        rx_dropped: counter(6),
        tx_dropped: counter(7),
        multicast: counter(8),
        collisions: counter(9),
        rx_over_errors: counter(11),
        rx_crc_errors: counter(12),
        rx_frame_errors: counter(13),
        rx_missed_errors: counter(15),
        ..NetdevStats::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_loopback_device_is_described() {
        let netlink = Netlink::open().expect("socket");
        let lo = netlink.link(Which::Name("lo")).expect("lo");
        assert_eq!((lo.name.as_str(), lo.link_type, lo.ifindex), ("lo", 772, 1));
        assert_eq!(netlink.link(Which::Index(1)).expect("lo").name, "lo");
        assert!(lo.stats.rx_packets.is_some());
        let error = netlink.link(Which::Name("no-such-dev")).expect_err("missing");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        assert!(netlink.link(Which::Name("a-name-longer-than-sixteen")).is_err());
    }

    tally::proptest! {
        #[test]
        fn no_datagram_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            messages(&bytes);
        }

        #[test]
        fn no_namespace_message_panics(mut bytes in prop::collection::vec(any::<u8>(), 16..60)) {
            let len = bytes.len() as u32;
            bytes[..4].copy_from_slice(&len.to_ne_bytes());
            bytes[4..6].copy_from_slice(&RTM_NEWNSID.to_ne_bytes());
            prop_assert!(messages(&bytes).len() <= 1);
        }

        #[test]
        fn no_link_message_panics(mut bytes in prop::collection::vec(any::<u8>(), 32..300)) {
            let len = bytes.len() as u32;
            bytes[..4].copy_from_slice(&len.to_ne_bytes());
            bytes[4..6].copy_from_slice(&RTM_NEWLINK.to_ne_bytes());
            prop_assert_eq!(messages(&bytes).len(), 1);
        }
    }
}
