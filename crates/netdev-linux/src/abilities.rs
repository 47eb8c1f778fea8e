//! XDP and AF_XDP features of a device's driver, from the generic netlink family `netdev` (Linux 6.3,
//! Documentation/netlink/specs/netdev.yaml), and the choice of I/O that follows from them.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with};

use crate::netlink::{attributes, half, word};

/// The generic netlink controller family (`GENL_ID_CTRL`), and its request for a family by name.
const GENL_ID_CTRL: u16 = 16;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const FAMILY: &[u8] = b"netdev\0";
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
const NETDEV_A_DEV_XDP_ZC_MAX_SEGS: u16 = 4;
const NETDEV_A_DEV_XSK_FEATURES: u16 = 6;
const NLMSG_ERROR: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const HEADER_LEN: usize = 16;
const GENERIC_HEADER_LEN: usize = 4;
const REPLY_LEN_MAX: usize = 16 * 1024;
/// The kernel replies within the request. The timeout keeps a fault from blocking the caller.
const REPLY_TIMEOUT: Duration = Duration::from_millis(200);

const XDP_BASIC: u64 = 1;
const XSK_ZEROCOPY: u64 = 8;
const XSK_TX_CHECKSUM: u64 = 2;
/// Names of the bits of `xdp-features` and `xsk-features` in the kernel's specification.
const XDP_NAMES: [&str; 7] = ["basic", "redirect", "ndo-xmit", "xsk-zerocopy", "hw-offload", "rx-sg", "ndo-xmit-sg"];
const XSK_NAMES: [&str; 3] = ["tx-timestamp", "tx-checksum", "tx-launch-time-fifo"];

/// The features of a driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Abilities {
    /// Bits of `xdp-features`.
    pub xdp: u64,
    /// Maximum number of descriptors of one frame with zero-copy.
    pub zc_max_segs: Option<u32>,
    /// Bits of `xsk-features`: the tx metadata that AF_XDP senders may attach to a frame.
    pub xsk: u64,
}

/// How a device of type `system` receives and sends frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Its name.
    pub io: &'static str,
    /// Why.
    pub reason: &'static str,
}

impl Abilities {
    /// Whether the driver runs XDP programs natively.
    pub fn runs_xdp(self) -> bool {
        self.xdp & XDP_BASIC != 0
    }

    /// Whether the driver supports zero-copy AF_XDP.
    pub fn has_zero_copy(self) -> bool {
        self.xdp & XSK_ZEROCOPY != 0
    }

    /// Whether the device completes checksums of frames sent over AF_XDP.
    pub fn finishes_checksums(self) -> bool {
        self.xsk & XSK_TX_CHECKSUM != 0
    }

    /// Keys and values for the Interface row's status.
    pub(crate) fn details(self) -> impl Iterator<Item = (&'static str, String)> {
        let zero_copy = self.has_zero_copy();
        let segments = self.zc_max_segs.filter(|_| zero_copy).map(|n| ("xdp-zc-max-segs", n.to_string()));
        [
            ("xdp-features", Names(self.xdp, &XDP_NAMES).to_string()),
            ("xsk-features", Names(self.xsk, &XSK_NAMES).to_string()),
            ("xsk-zerocopy", zero_copy.to_string()),
        ]
        .into_iter()
        .chain(segments)
    }
}

/// Formats the names of the bits that are set, or `none`.
struct Names(u64, &'static [&'static str]);

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bits, names) = *self;
        let known = (0..64).filter(|bit| bits & (1 << bit) != 0);
        let mut names = known.map(|bit| names.get(bit).map_or_else(|| format!("bit-{bit}"), |name| (*name).to_owned()));
        f.write_str(&names.next().unwrap_or_else(|| "none".to_owned()))?;
        names.try_for_each(|name| write!(f, " {name}"))
    }
}

/// Chooses the I/O of a device of type `system`; `abilities` is `None` if the kernel does not report them.
///
/// The choice is always packet sockets, and the reason says what AF_XDP would offer. In copy mode, AF_XDP loses offload
/// flags and only gains rate for small frames. With zero-copy, it still takes frames away from the host's stack and
/// from captures (a packet socket gets copies), and frames of queues without a socket go to the host instead of the
/// switch. A driver's features alone do not justify that change.
pub fn choose(abilities: Option<Abilities>) -> Choice {
    let reason = match abilities {
        Some(abilities) if abilities.has_zero_copy() => {
            "the host keeps seeing the frames, of all queues; type=afxdp takes them without a copy (xsk-zerocopy)"
        }
        Some(abilities) if !abilities.runs_xdp() => {
            "frames of up to 64 KiB keep unfinished checksums and segments; the driver runs no XDP programs"
        }
        _ => "frames of up to 64 KiB keep unfinished checksums and segments; type=afxdp moves more small frames",
    };
    Choice { io: "packet sockets", reason }
}

/// A socket for questions.
#[derive(Debug)]
pub(crate) struct Client {
    socket: OwnedFd,
    family: u16,
    seq: u32,
}

/// Queries driver features; they are unknown if the kernel does not have the family.
#[derive(Debug, Default)]
pub(crate) struct FeatureQuery(Mutex<Option<Client>>);

impl FeatureQuery {
    /// Opens a socket in the network namespace of the calling thread.
    pub(crate) fn open() -> Self {
        Self(Mutex::new(Client::open().ok()))
    }

    /// The features of a device's driver; `None` if the kernel does not report them.
    pub(crate) fn abilities(&self, ifindex: u32) -> Option<Abilities> {
        let mut asking = self.0.lock();
        let asking = asking.as_mut()?;
        let body = asking.exchange(asking.family, NETDEV_CMD_DEV_GET, NETDEV_A_DEV_IFINDEX, &ifindex.to_ne_bytes());
        parse(&body.ok()?, ifindex)
    }
}

impl Client {
    fn open() -> io::Result<Self> {
        let kind = (AddressFamily::NETLINK, SocketType::RAW);
        let socket = socket_with(kind.0, kind.1, SocketFlags::CLOEXEC, Some(netlink::GENERIC))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(REPLY_TIMEOUT))?;
        let mut asking = Self { socket, family: 0, seq: 0 };
        let body = asking.exchange(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_NAME, FAMILY)?;
        let id = attributes(&body).find(|(kind, _)| *kind == CTRL_ATTR_FAMILY_ID).and_then(|(_, id)| half(id, 0));
        asking.family = id.ok_or(io::ErrorKind::Unsupported)?;
        Ok(asking)
    }

    /// Sends a request with one attribute; returns the attributes of the reply.
    fn exchange(&mut self, family: u16, command: u8, kind: u16, value: &[u8]) -> io::Result<Vec<u8>> {
        self.seq = self.seq.wrapping_add(1);
        send(&self.socket, &request(family, command, self.seq, kind, value), SendFlags::empty())?;
        let mut reply = vec![0; REPLY_LEN_MAX];
        loop {
            let n = match recv(&self.socket, &mut reply[..], RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?.0,
            };
            if let Some(answer) = answer(&reply[..n.min(REPLY_LEN_MAX)], self.seq) {
                return answer.map(<[u8]>::to_vec);
            }
        }
    }
}

/// A request to a generic netlink family, with one attribute.
fn request(family: u16, command: u8, seq: u32, kind: u16, value: &[u8]) -> Vec<u8> {
    let attribute_len = 4 + value.len();
    let len = HEADER_LEN + GENERIC_HEADER_LEN + attribute_len.next_multiple_of(4);
    let mut bytes = Vec::with_capacity(len);
    bytes.extend((len as u32).to_ne_bytes());
    bytes.extend(family.to_ne_bytes());
    bytes.extend(NLM_F_REQUEST.to_ne_bytes());
    bytes.extend(seq.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend([command, 1, 0, 0]);
    bytes.extend((attribute_len as u16).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(len, 0);
    bytes
}

/// The attributes in the reply to request `seq`, or the error that it reports; `None` if the datagram is not a reply to
/// it.
fn answer(datagram: &[u8], seq: u32) -> Option<io::Result<&[u8]>> {
    let len = word(datagram, 0)? as usize;
    let message = datagram.get(..len)?;
    if word(message, 8)? != seq {
        return None;
    }
    let body = message.get(HEADER_LEN..)?;
    if half(message, 4)? == NLMSG_ERROR {
        let errno = (word(body, 0)? as i32).saturating_neg();
        return Some(Err(io::Error::from_raw_os_error(errno)));
    }
    Some(Ok(body.get(GENERIC_HEADER_LEN..)?))
}

/// The features of device `ifindex` in the attributes of a reply.
fn parse(body: &[u8], ifindex: u32) -> Option<Abilities> {
    let long = |value: &[u8]| Some(u64::from_ne_bytes(*value.first_chunk()?));
    let (mut abilities, mut of, mut has_features) = (Abilities::default(), None, false);
    for (kind, value) in attributes(body) {
        match kind {
            NETDEV_A_DEV_IFINDEX => of = word(value, 0),
            NETDEV_A_DEV_XDP_FEATURES => (abilities.xdp, has_features) = (long(value)?, true),
            NETDEV_A_DEV_XDP_ZC_MAX_SEGS => abilities.zc_max_segs = word(value, 0),
            NETDEV_A_DEV_XSK_FEATURES => abilities.xsk = long(value)?,
            _ => {}
        }
    }
    (of == Some(ifindex) && has_features).then_some(abilities)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = [&(4 + value.len() as u16).to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn the_choice_states_the_features_of_the_driver() {
        let xdp = |xdp| Some(Abilities { xdp, ..Abilities::default() });
        for (abilities, says) in [
            (None, "type=afxdp moves more small frames"),
            (xdp(0), "the driver runs no XDP programs"),
            (xdp(1), "type=afxdp moves more small frames"),
            (xdp(0b110_0111), "type=afxdp moves more small frames"),
            (xdp(0b000_1111), "type=afxdp takes them without a copy (xsk-zerocopy)"),
        ] {
            let choice = choose(abilities);
            assert_eq!(choice.io, "packet sockets");
            assert!(choice.reason.ends_with(says), "{abilities:?}: {}", choice.reason);
        }
    }

    #[test]
    fn a_reply_is_parsed() {
        let body = [
            attribute(NETDEV_A_DEV_IFINDEX, &7u32.to_ne_bytes()),
            attribute(2, &[]),
            attribute(NETDEV_A_DEV_XDP_FEATURES, &0x10bu64.to_ne_bytes()),
            attribute(NETDEV_A_DEV_XDP_ZC_MAX_SEGS, &18u32.to_ne_bytes()),
            attribute(NETDEV_A_DEV_XSK_FEATURES, &3u64.to_ne_bytes()),
            attribute(99, &[1, 2, 3]),
        ]
        .concat();
        let abilities = parse(&body, 7).expect("features");
        assert_eq!(abilities, Abilities { xdp: 0x10b, zc_max_segs: Some(18), xsk: 3 });
        assert!(abilities.finishes_checksums() && abilities.has_zero_copy() && abilities.runs_xdp());
        let details: Vec<_> = abilities.details().map(|(key, value)| format!("{key}={value}")).collect();
        let expected = [
            "xdp-features=basic redirect xsk-zerocopy bit-8",
            "xsk-features=tx-timestamp tx-checksum",
            "xsk-zerocopy=true",
            "xdp-zc-max-segs=18",
        ];
        assert_eq!(details, expected);
        assert_eq!((parse(&body, 8), parse(&body[..8], 7)), (None, None));
        assert_eq!(Names(0, &XDP_NAMES).to_string(), "none");
    }

    #[test]
    fn other_replies_are_ignored_and_errors_are_reported() {
        let mut bytes = request(30, 1, 5, 1, &[1, 2]);
        assert_eq!((bytes.len(), &bytes[16..]), (28, &[1, 1, 0, 0, 6, 0, 1, 0, 1, 2, 0, 0][..]));
        assert!(answer(&bytes, 4).is_none());
        let attributes = answer(&bytes, 5).expect("ours").expect("no error");
        assert_eq!(attributes, attribute(1, &[1, 2]));
        bytes[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
        bytes[16..20].copy_from_slice(&(-libc::ENODEV).to_ne_bytes());
        let error = answer(&bytes, 5).expect("ours").expect_err("an error");
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
    }

    #[test]
    fn the_loopback_device_has_no_zero_copy() {
        // Kernels before 6.3 report nothing; the features of this device are known on others.
        if let Some(abilities) = FeatureQuery::open().abilities(1) {
            assert!(!abilities.has_zero_copy() && !abilities.finishes_checksums());
        }
        assert_eq!(FeatureQuery::open().abilities(u32::MAX >> 1), None);
    }

    tally::proptest! {
        #[test]
        fn no_datagram_panics(bytes in prop::collection::vec(any::<u8>(), 0..80), seq: u32, ifindex: u32) {
            if let Some(Ok(body)) = answer(&bytes, seq) {
                parse(body, ifindex);
            }
            parse(&bytes, ifindex);
        }

        #[test]
        fn no_reply_panics(mut bytes in prop::collection::vec(any::<u8>(), 20..80)) {
            let len = bytes.len() as u32;
            bytes[..4].copy_from_slice(&len.to_ne_bytes());
            bytes[8..12].copy_from_slice(&3u32.to_ne_bytes());
            prop_assert!(answer(&bytes, 3).is_some());
            if let Some(Ok(body)) = answer(&bytes, 3) {
                parse(body, 1);
            }
        }
    }
}
