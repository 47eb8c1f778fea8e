//! Collectors: UDP sockets that never wait.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use vlog::{RateLimit, warn_rl};

/// Rate limit of log messages about failures: messages per minute, and burst.
static FAILURES_LIMIT: RateLimit = RateLimit::new(12, 5);

/// The collectors of an exporter.
#[derive(Debug)]
pub(crate) struct Collectors(Vec<Collector>);

#[derive(Debug)]
struct Collector {
    target: SocketAddr,
    /// Opened when the first datagram is sent.
    socket: Option<UdpSocket>,
}

impl Collectors {
    pub(crate) fn new(targets: &BTreeSet<SocketAddr>) -> Self {
        Self(targets.iter().map(|target| Collector { target: *target, socket: None }).collect())
    }

    /// Sends a datagram to all collectors. Returns the number of those that took it and of failures; without collectors,
    /// one failure.
    pub(crate) fn send(&mut self, datagram: &[u8]) -> (u64, u64) {
        let (mut sent, mut failed) = (0, u64::from(self.0.is_empty()));
        for collector in &mut self.0 {
            match collector.send(datagram) {
                Ok(()) => sent += 1,
                Err(error) => {
                    failed += 1;
                    let local = collector.socket.as_ref().and_then(|socket| socket.local_addr().ok());
                    let local = local.map_or_else(|| "unbound".to_owned(), |local| local.to_string());
                    let target = collector.target;
                    warn_rl!(&FAILURES_LIMIT, target: "collectors", "{local}<->{target}: sending to collector failed ({error})");
                }
            }
        }
        (sent, failed)
    }
}

impl Collector {
    fn send(&mut self, datagram: &[u8]) -> io::Result<()> {
        let socket = match &self.socket {
            Some(socket) => socket,
            None => self.socket.insert(open(self.target)?),
        };
        socket.send(datagram).map(drop)
    }
}

fn open(target: SocketAddr) -> io::Result<UdpSocket> {
    let socket = match target {
        SocketAddr::V4(_) => UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?,
        SocketAddr::V6(_) => UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0))?,
    };
    socket.set_nonblocking(true)?;
    socket.connect(target)?;
    Ok(socket)
}
