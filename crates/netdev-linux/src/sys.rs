//! The system calls that need `unsafe`, each behind a function that is safe to call with any arguments.

use std::ffi::c_int;
use std::io;
use std::mem::{size_of, size_of_val};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::explain::Needed;

/// Maximum length of a device's name, without the terminating zero.
pub(crate) const NAME_LEN_MAX: usize = libc::IFNAMSIZ - 1;

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A raw packet socket that receives nothing until it is bound to a protocol.
pub(crate) fn packet_socket() -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let fd =
        check(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) })?;
    // SAFETY: the kernel has just created the descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds a packet socket to a device; it receives frames of `protocol` (an `ETH_P_` number, 0 for none).
pub(crate) fn packet_bind(socket: BorrowedFd<'_>, ifindex: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: the structure consists of integers, for which zero is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = ifindex as c_int;
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: `address` lives through the call and `len` is its size.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
    Ok(())
}

/// Types that may be passed to and from the kernel as bytes.
///
/// # Safety
/// Every bit pattern must be a valid value, and the type must have no padding.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: integers.
unsafe impl Plain for c_int {}
// SAFETY: four integers of one size.
unsafe impl Plain for libc::tpacket_req {}
// SAFETY: two integers of one size.
unsafe impl Plain for libc::tpacket_stats {}
// SAFETY: an int, two shorts and eight bytes: 16 bytes without a gap.
unsafe impl Plain for libc::packet_mreq {}

/// Sets a socket option to a value.
pub(crate) fn set_option<T: Plain>(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` lives through the call and `len` is its size.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), len) })?;
    Ok(())
}

/// Reads a socket option into `value`, whose type must be the option's.
fn option<T: Plain>(socket: BorrowedFd<'_>, level: c_int, option: c_int, mut value: T) -> io::Result<T> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` has room for `len` bytes, the kernel writes no more, and any bytes are a valid value.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut len) })?;
    Ok(value)
}

/// Frames that the kernel dropped at a packet socket for lack of space since the last call.
pub(crate) fn packet_drops(socket: BorrowedFd<'_>) -> io::Result<u64> {
    let zero = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    Ok(option(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, zero)?.tp_drops.into())
}

/// Sets the classic BPF program (socket(7)) that filters the socket's frames, replacing an earlier one.
pub(crate) fn attach_filter(socket: BorrowedFd<'_>, program: &[libc::sock_filter]) -> io::Result<()> {
    set_program(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, program)
}

/// Sets a socket option whose value is a classic BPF program.
fn set_program(socket: BorrowedFd<'_>, level: c_int, option: c_int, program: &[libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // The kernel only reads through this pointer, despite its type.
    let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut() };
    let size = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: `program` and the `len` instructions that it points to live through the call, which copies them.
    check(unsafe {
        let value = (&raw const program).cast();
        libc::setsockopt(socket.as_raw_fd(), level, option, value, size)
    })?;
    Ok(())
}

/// How the sockets of a fanout group share the frames of their device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    /// By a hash, so that each flow's frames go to one socket.
    ByHash,
    /// By a program that returns a socket's index in the group ([`fanout_to`]); before it is set, the first socket gets
    /// all.
    ByProgram,
}

/// Adds a bound packet socket to fanout group `group`, or to a new group. Returns the group.
pub(crate) fn packet_fanout(socket: BorrowedFd<'_>, group: Option<u16>, sharing: Sharing) -> io::Result<u16> {
    // Outgoing frames are not wanted; kernels before 5.17 do not know this flag.
    const IGNORE_OUTGOING: u32 = 0x4000;
    const PACKET_FANOUT_CBPF: u32 = 6;
    let unique = if group.is_some() { 0 } else { libc::PACKET_FANOUT_FLAG_UNIQUEID };
    let by = if sharing == Sharing::ByHash { libc::PACKET_FANOUT_HASH } else { PACKET_FANOUT_CBPF };
    let how = by | IGNORE_OUTGOING | unique;
    let value = u32::from(group.unwrap_or(0)) | how << 16;
    set_option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, value as c_int)?;
    Ok(option(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, 0)? as u16)
}

/// Directs all frames of a socket's group to the socket at index `place`. If a program was set before, this returns
/// after some milliseconds, when no CPU delivers a frame by the old program any more.
pub(crate) fn fanout_to(socket: BorrowedFd<'_>, place: u32) -> io::Result<()> {
    const PACKET_FANOUT_DATA: c_int = 22;
    let program = [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: place }];
    set_program(socket, libc::SOL_PACKET, PACKET_FANOUT_DATA, &program)
}

/// Joins the promiscuous mode of a device for as long as the socket lives.
pub(crate) fn packet_join_promisc(socket: BorrowedFd<'_>, ifindex: u32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: ifindex as c_int,
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set_option(socket, libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, request)
}

/// Takes the pending error of a socket, if any.
pub(crate) fn take_error(socket: BorrowedFd<'_>) -> io::Result<Option<io::Error>> {
    let errno = option(socket, libc::SOL_SOCKET, libc::SO_ERROR, 0)?;
    Ok((errno != 0).then(|| io::Error::from_raw_os_error(errno)))
}

/// A device's name in the kernel's format; an error if it is empty, too long or contains a zero byte.
fn device_name(name: &str) -> io::Result<[libc::c_char; libc::IFNAMSIZ]> {
    if name.is_empty() || name.len() > NAME_LEN_MAX || name.contains('\0') {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut out = [0; libc::IFNAMSIZ];
    for (to, from) in out.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(out)
}

/// The device file for taps.
const TUN: &str = "/dev/net/tun";

/// Creates the tap device `name`, or attaches to a persistent one that no process holds. Frames carry a virtio-net
/// header of ten bytes. The device exists as long as the descriptor.
pub(crate) fn tap_open(name: &str) -> io::Result<OwnedFd> {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(TUN);
    let fd = OwnedFd::from(file.map_err(|error| Needed::NetAdmin.explain_file(TUN, error))?);
    // SAFETY: the structure is an array and a union of integers and a pointer, for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name = device_name(name)?;
    request.ifr_ifru.ifru_flags = (libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR) as i16;
    // SAFETY: TUNSETIFF takes an `ifreq`, which lives through the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })?;
    rustix::io::ioctl_fionbio(&fd, true)?;
    Ok(fd)
}

/// Sets the offload flags that this process accepts on frames from a tap: partial checksums, TCP over IPv4 and IPv6
/// with ECN, and UDP segmentation if the kernel supports it.
pub(crate) fn tap_set_offload(tap: BorrowedFd<'_>) -> io::Result<()> {
    let tcp = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6 | libc::TUN_F_TSO_ECN;
    let udp = libc::TUN_F_USO4 | libc::TUN_F_USO6;
    // SAFETY: TUNSETOFFLOAD takes a number, no pointer.
    let set =
        |flags: u32| check(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETOFFLOAD, libc::c_ulong::from(flags)) });
    set(tcp | udp).or_else(|_| set(tcp))?;
    Ok(())
}

/// Sends a `SIOCETHTOOL` request: `data` begins with the command's number and receives the reply.
///
/// # Safety
/// The reply of the command in `data`'s first word must fit into `data`.
pub(crate) unsafe fn ethtool(socket: BorrowedFd<'_>, name: &str, data: &mut [u32]) -> io::Result<()> {
    // SAFETY: the structure is an array and a union of integers and a pointer, for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name = device_name(name)?;
    request.ifr_ifru.ifru_data = data.as_mut_ptr().cast();
    // SAFETY: SIOCETHTOOL takes an `ifreq` that points to the command's structure; both live through the call, and the
    // caller guarantees that the reply fits.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) })?;
    Ok(())
}

/// Sends messages on a socket, each with its buffers, without blocking. Returns how many were sent; an error refers to
/// the first.
///
/// # Safety
/// The buffers of the messages must live through the call.
pub(crate) unsafe fn send_messages(socket: RawFd, messages: &mut [libc::mmsghdr]) -> io::Result<usize> {
    // SAFETY: the slice has the given number of messages; the caller guarantees that their buffers live.
    let n = check(unsafe {
        libc::sendmmsg(socket, messages.as_mut_ptr(), messages.len() as u32, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
    })?;
    Ok(n as usize)
}

/// Receives waiting messages from a socket without blocking. Returns how many were received; an error refers to the
/// first.
///
/// # Safety
/// The buffers of the messages must be writable and exclusive to this thread during the call.
pub(crate) unsafe fn receive_messages(socket: BorrowedFd<'_>, messages: &mut [libc::mmsghdr]) -> io::Result<usize> {
    let (first, n) = (messages.as_mut_ptr(), messages.len() as u32);
    // SAFETY: the slice has the given number of messages; the caller guarantees their buffers.
    let n =
        check(unsafe { libc::recvmmsg(socket.as_raw_fd(), first, n, libc::MSG_DONTWAIT as _, std::ptr::null_mut()) })?;
    Ok(n as usize)
}

/// A NETLINK_ROUTE socket that joins the multicast groups of the mask `groups` (`RTMGRP_` bits). Read and write it with
/// plain `recv` and `send`.
pub(crate) fn netlink_socket(groups: u32, flags: c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers are passed.
    let fd = check(unsafe {
        libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC | flags, libc::NETLINK_ROUTE)
    })?;
    // SAFETY: the kernel has just created the descriptor, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: the structure consists of integers, for which zero is valid.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as u16;
    address.nl_groups = groups;
    let len = size_of::<libc::sockaddr_nl>() as libc::socklen_t;
    // SAFETY: `address` lives through the call and `len` is its size.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) })?;
    Ok(socket)
}

/// Receives a netlink datagram, and the id of the namespace that it comes from, if that is another one.
pub(crate) fn netlink_receive(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<(usize, Option<i32>)> {
    // Space for one integer, with the alignment of ancillary data headers.
    let mut control = [0u64; 8];
    let mut io = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: the structure consists of integers and pointers, for which zero is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut io;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: `buffer`, `io` and `control` live through the call, and the lengths are theirs.
    let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    if n < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut namespace = None;
    // SAFETY: the kernel has filled `control` and set its length; the first header, if there is one, lies within.
    let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    if !header.is_null() {
        // SAFETY: the pointer is not null, so it points to a whole header within `control`, which is aligned for it.
        let found = unsafe { *header };
        // SAFETY: no pointers are passed.
        let whole = found.cmsg_len as usize >= unsafe { libc::CMSG_LEN(size_of::<c_int>() as u32) } as usize;
        if whole && found.cmsg_level == libc::SOL_NETLINK && found.cmsg_type == libc::NETLINK_LISTEN_ALL_NSID {
            // SAFETY: by the header's length, an integer of any alignment follows it.
            namespace = Some(unsafe { libc::CMSG_DATA(header).cast::<c_int>().read_unaligned() });
        }
    }
    Ok((n as usize, namespace))
}

/// The network namespace of a tap's device; an error if the device is gone.
pub(crate) fn tap_namespace(tap: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    // `_IO('T', 227)`, since Linux 5.2.
    const TUNGETDEVNETNS: libc::c_ulong = 0x54e3;
    // SAFETY: TUNGETDEVNETNS takes no pointer.
    let fd = check(unsafe { libc::ioctl(tap.as_raw_fd(), TUNGETDEVNETNS as _, 0) })?;
    // SAFETY: the kernel has just created the descriptor, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The current name of a tap's device; an error if it is gone.
pub(crate) fn tap_name(tap: BorrowedFd<'_>) -> io::Result<String> {
    // SAFETY: the structure is an array and a union of integers and a pointer, for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // SAFETY: TUNGETIFF takes an `ifreq`, which lives through the call.
    check(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNGETIFF as _, &raw mut request) })?;
    let name: Vec<u8> = request.ifr_name.iter().take_while(|c| **c != 0).map(|c| *c as u8).collect();
    Ok(String::from_utf8_lossy(&name).into_owned())
}
