//! The sockets: one for dumps, one for changes.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use ::routes::{KernelChange, Router, Step};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::parse::{Item, messages};
use crate::sys;

const NLM_F_REQUEST: u16 = 1;
const NLM_F_DUMP: u16 = 0x300;
const RTM_GETLINK: u16 = 18;
const RTM_GETADDR: u16 = 22;
const RTM_GETROUTE: u16 = 26;
const RTM_GETRULE: u16 = 34;
/// The multicast group of IPv6 rules, which has no `RTMGRP_` constant.
const RTMGRP_IPV6_RULE: u32 = 1 << 18;
/// More than the kernel puts into a datagram.
const DATAGRAM_LEN_MAX: usize = 256 * 1024;
/// Dumps that objects changed during are repeated so often.
const DUMP_ATTEMPTS: usize = 8;
/// Datagrams read by one [`Follower::read`].
const READ_MAX: usize = 256;

/// Reads at most that discard what a dump covers. Changes that are left are harmless.
const DISCARD_MAX: usize = 64;

/// Changes since the last call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Update {
    /// In order; empty if there are none. More may wait.
    Changes(Vec<KernelChange>),
    /// Some were lost: dump anew.
    Lost,
}

/// Dumps and follows the routing of a network namespace.
#[derive(Debug)]
pub struct Follower {
    changes: OwnedFd,
    requests: OwnedFd,
    seq: u32,
    buffer: Vec<u8>,
    /// The router lacks changes, and needs a dump.
    behind: bool,
}

impl Follower {
    /// Opens the sockets in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        let ip = libc::RTMGRP_IPV4_IFADDR | libc::RTMGRP_IPV4_ROUTE | libc::RTMGRP_IPV4_RULE;
        let ip6 = libc::RTMGRP_IPV6_IFADDR | libc::RTMGRP_IPV6_ROUTE;
        let groups = (libc::RTMGRP_LINK | ip | ip6) as u32 | RTMGRP_IPV6_RULE;
        let changes = sys::netlink_socket(groups, libc::SOCK_NONBLOCK)?;
        Ok(Self {
            changes,
            requests: sys::netlink_socket(0, 0)?,
            seq: 0,
            buffer: vec![0; DATAGRAM_LEN_MAX],
            behind: true,
        })
    }

    /// Opens the sockets in another network namespace, on a thread that enters it.
    pub fn open_in(namespace: BorrowedFd<'_>) -> io::Result<Self> {
        let enter = || {
            move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?;
            Self::open()
        };
        let failed = || io::Error::other("a thread panicked");
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("netns".to_owned()).spawn_scoped(scope, enter)?;
            thread.join().map_err(|_| failed())?
        })
    }

    /// Readable while changes wait.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.changes.as_fd()
    }

    /// All objects. Discards the changes that wait, which it covers; later ones may repeat what it shows.
    pub fn dump(&mut self) -> io::Result<Vec<KernelChange>> {
        for _ in 0..DISCARD_MAX {
            if matches!(self.read()?, Update::Changes(changes) if changes.is_empty()) {
                break;
            }
        }
        for _ in 0..DUMP_ATTEMPTS {
            let (mut out, mut whole) = (Vec::new(), true);
            // Links and addresses before the routes that refer to them.
            for (request, header_len) in [(RTM_GETLINK, 16), (RTM_GETADDR, 8), (RTM_GETROUTE, 12), (RTM_GETRULE, 12)] {
                whole &= self.dump_one(request, header_len, &mut out)?;
            }
            if whole {
                return Ok(out);
            }
        }
        Err(io::Error::from_raw_os_error(libc::EAGAIN))
    }

    /// All links and addresses, without routes, of which there may be many.
    pub fn addresses(&mut self) -> io::Result<Vec<KernelChange>> {
        let mut out = Vec::new();
        self.dump_one(RTM_GETLINK, 16, &mut out)?;
        self.dump_one(RTM_GETADDR, 8, &mut out)?;
        Ok(out)
    }

    /// Dumps the objects of one type and all families. Returns whether the dump is consistent.
    fn dump_one(&mut self, request: u16, header_len: usize, out: &mut Vec<KernelChange>) -> io::Result<bool> {
        self.seq = self.seq.wrapping_add(1).max(1);
        let mut bytes = vec![0; 16 + header_len];
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&len.to_ne_bytes());
        bytes[4..6].copy_from_slice(&request.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.seq.to_ne_bytes());
        send(&self.requests, &bytes, SendFlags::empty())?;
        let mut whole = true;
        loop {
            let n = match recv(&self.requests, &mut self.buffer[..], RecvFlags::empty()) {
                Err(rustix::io::Errno::INTR) => continue,
                received => received?.0,
            };
            for message in messages(&self.buffer[..n.min(DATAGRAM_LEN_MAX)]).filter(|m| m.seq == self.seq) {
                whole &= !message.interrupted;
                match message.item {
                    Some(Item::Change(change)) => out.push(change),
                    Some(Item::Done(0)) => return Ok(whole),
                    Some(Item::Done(errno)) => return Err(io::Error::from_raw_os_error(errno)),
                    Some(Item::Overrun) => whole = false,
                    None => {}
                }
            }
        }
    }

    /// The changes that wait, a bounded number of them. Does not block.
    pub fn read(&mut self) -> io::Result<Update> {
        let (mut out, mut lost) = (Vec::new(), false);
        for _ in 0..READ_MAX {
            let n = match recv(&self.changes, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((n, _)) => n,
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::NOBUFS) => {
                    lost = true;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            for message in messages(&self.buffer[..n.min(DATAGRAM_LEN_MAX)]) {
                match message.item {
                    Some(Item::Change(change)) => out.push(change),
                    Some(Item::Overrun) => lost = true,
                    Some(Item::Done(_)) | None => {}
                }
            }
        }
        Ok(if lost { Update::Lost } else { Update::Changes(out) })
    }

    /// Brings a router in step with the kernel, by the changes that wait or, where these do not suffice, by a dump.
    /// Call it once after opening, whenever [`Self::fd`] is readable, and again some time after an error.
    pub fn follow(&mut self, router: &mut Router) -> io::Result<()> {
        if self.behind {
            return self.start(router);
        }
        let Update::Changes(changes) = self.read()? else { return self.start(router) };
        for change in changes {
            if router.apply(change) == Step::Dump {
                return self.start(router);
            }
        }
        Ok(())
    }

    /// Brings a router in step with the kernel by a dump.
    fn start(&mut self, router: &mut Router) -> io::Result<()> {
        self.behind = true;
        router.replace_kernel(self.dump()?);
        self.behind = false;
        Ok(())
    }
}
