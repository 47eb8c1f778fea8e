//! The tunnels whose packets a thread has seen lately, so that packets of a tunnel share one allocation, and their outer
//! headers, so that most packets need no parsing.

use std::sync::Arc;

use packet::metadata::Tunnel;
use packet::{Checksum, Packet};

use super::Pop;
use super::known::{Headers, Known};
use super::pop::Parsed;

/// Tunnel metadata and outer headers of packets seen before. One for each thread.
///
/// The outer source port tells connections of a tunnel apart: it is 0 in the metadata, and each packet has its own.
#[derive(Debug)]
pub struct Cache {
    sets: Box<[Set]>,
    known: Headers,
    is_held: bool,
}

/// Entries whose hashes begin alike, in one cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Set {
    tags: [u32; Self::WAYS],
    tunnels: [Arc<Tunnel>; Self::WAYS],
    /// The entry that is replaced next.
    next: usize,
}

impl Set {
    const WAYS: usize = 4;

    #[cold]
    fn replace(&mut self, tag: u32, parsed: &Parsed<'_>) -> usize {
        let way = self.next % Self::WAYS;
        self.next = way + 1;
        self.tags[way] = tag;
        self.tunnels[way] = Arc::new(Tunnel { src_port: 0, ..parsed.tunnel() });
        way
    }
}

/// Outer headers of a packet that the cache knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hit {
    number: u16,
    src_port: u16,
    /// Where the inner packet ends.
    end: u32,
}

impl Hit {
    /// The number of these headers, below [`base::ways::Ways::MAX`].
    #[inline]
    pub fn number(self) -> usize {
        self.number.into()
    }
}

impl Cache {
    const BITS: u32 = 11;

    /// An empty cache. It holds the metadata of at most 8192 tunnels.
    pub fn new() -> Self {
        let none = Arc::new(Parsed::NONE.tunnel());
        let tunnels = std::array::from_fn(|_| Arc::clone(&none));
        let sets = vec![Set { tags: [0; Set::WAYS], tunnels, next: 0 }; 1 << Self::BITS].into();
        Self { sets, known: Headers::new(), is_held: false }
    }

    /// The metadata of a packet with these headers. The cache will know them.
    #[inline]
    pub(super) fn learn(&mut self, pop: Pop, frame: &[u8], l3_type: Option<u16>, parsed: &Parsed<'_>) -> &Arc<Tunnel> {
        let hash = parsed.hash();
        let set = &mut self.sets[(hash >> (48 - Self::BITS)) as usize & ((1 << Self::BITS) - 1)];
        let tag = hash as u32;
        let way = match set.tags.iter().position(|known| *known == tag) {
            Some(way) if parsed.equals(&set.tunnels[way]) => way,
            _ => set.replace(tag, parsed),
        };
        let tunnel = &set.tunnels[way];
        if !self.is_held && l3_type.is_none() {
            self.known.learn(pop, frame, parsed, tunnel);
        }
        tunnel
    }

    /// The outer headers of a packet, if the cache knows them and they are valid.
    #[inline]
    pub fn find(&self, pop: Pop, packet: &Packet) -> Option<Hit> {
        let offload = packet.offload;
        let is_partial = matches!(offload.checksum, Checksum::Partial { .. });
        if is_partial || offload.gso.is_some() || packet.l3_type.is_some() {
            return None;
        }
        let trusted = offload.checksum == Checksum::Good;
        let (number, end, src_port) = self.known.find(pop, packet.data(), trusted)?;
        Some(Hit { number, src_port, end: end as u32 })
    }

    /// Removes the outer headers that [`Self::find`] found in this packet, and its metadata.
    #[inline]
    pub fn strip(&self, packet: &mut Packet, hit: Hit) {
        let Some(known) = self.known.get(hit.number) else { return };
        let end = hit.end as usize;
        if end < packet.len() {
            packet.truncate(end);
        }
        packet.remove(0, known.start());
        packet.offload.checksum = Checksum::Unknown;
        (packet.recirc_id, packet.dp_hash, packet.tags) = (0, 0, 0);
        packet.clear_outer();
        packet.clear_metadata();
    }

    /// Gives a stripped packet new metadata with its tunnel only.
    #[inline]
    pub fn attach(&self, packet: &mut Packet, hit: Hit) {
        if let Some(tunnel) = self.tunnel(hit) {
            packet.set_only_tunnel(tunnel, hit.src_port);
        }
    }

    /// Gives a stripped packet its tunnel beside the metadata that it has got since.
    #[inline]
    pub fn attach_beside(&self, packet: &mut Packet, hit: Hit) {
        if packet.metadata().is_none() {
            return self.attach(packet, hit);
        }
        if let Some(tunnel) = self.tunnel(hit) {
            let metadata = packet.metadata_mut();
            metadata.tunnel = Some(Arc::clone(tunnel));
            metadata.tunnel_src_port = hit.src_port;
        }
    }

    /// The tunnel of known headers.
    #[inline]
    pub fn tunnel(&self, hit: Hit) -> Option<&Arc<Tunnel>> {
        self.known.get(hit.number).map(Known::tunnel)
    }

    /// While the cache is held, hits stay valid.
    #[inline]
    pub fn hold(&mut self, is_held: bool) {
        self.is_held = is_held;
    }
}

impl Default for Cache {
    fn default() -> Self {
        Self::new()
    }
}
