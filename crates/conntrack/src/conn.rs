//! A connection.

use crate::action::{Helper, Translated};
use crate::alg::sequence::Shifts;
use crate::key::{Direction, Key};
use crate::limits::Permit;
use crate::proto::Protocol;
use crate::table::Handle;
use crate::timeout::PolicyId;

/// A connection in the table. It is locked while a packet updates it. When it ends stands beside it
/// ([`crate::table::ConnGuard::life`]).
///
/// The fields are in the order of their use: most packets of a connection without translation read the first two cache
/// lines of its entry and no more ([`crate::table`]).
#[derive(Debug)]
#[repr(C)]
pub struct Conn {
    /// The key of packets of the original direction as they arrive.
    pub original: Key,
    /// Where a datapath remembers the way of the packets of each direction; 0 for nowhere. The tracker only keeps them: the
    /// datapath checks what it remembers.
    pub memos: [u32; 2],
    /// Where the packets of each direction found their connection in the zone of the next action: a slot of the table and 1;
    /// 0 for nowhere. A hint, too.
    pub next: [u32; 2],
    /// The state of its protocol.
    pub protocol: Protocol,
    /// Relations to other connections and packets, which few connections have.
    pub related: Option<Box<Related>>,
    /// Mark.
    pub mark: u32,
    /// Timeouts.
    pub policy: PolicyId,
    /// Which addresses are translated.
    pub translated: Translated,
    /// The helper that reads its packets.
    pub helper: Option<Helper>,
    /// The key of packets of the reply direction as they arrive. Without address translation it is the original one reversed.
    pub reply: Key,
    /// Label.
    pub label: Label,
    /// What counts the connection for the limit of its zone.
    pub limited_by: Option<Permit>,
}

/// A label, in a form that needs no more than the alignment of its halves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Label([u64; 2]);

impl From<u128> for Label {
    #[inline]
    fn from(label: u128) -> Self {
        Self([(label >> 64) as u64, label as u64])
    }
}

impl From<Label> for u128 {
    #[inline]
    fn from(label: Label) -> Self {
        Self::from(label.0[0]) << 64 | Self::from(label.0[1])
    }
}

/// What few connections have.
#[derive(Debug, Default)]
pub struct Related {
    /// For a connection that a helper expected: the connection of the helper, and its original direction.
    pub parent: Option<Parent>,
    /// Shifts of TCP sequence numbers, after a helper has changed the length of the payload.
    pub shifts: Option<Shifts>,
}

/// The connection of a helper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parent {
    /// Its handle.
    pub handle: Handle,
    /// The key of its original direction.
    pub key: Key,
}

impl Conn {
    /// Returns true if nothing but its protocol and addresses decides about its packets.
    #[inline]
    pub fn is_simple(&self) -> bool {
        self.helper.is_none() && self.related.is_none()
    }

    /// [`Related::parent`].
    #[inline]
    pub fn parent(&self) -> Option<&Parent> {
        self.related.as_ref()?.parent.as_ref()
    }

    /// [`Related::shifts`].
    #[inline]
    pub fn shifts(&self) -> Option<&Shifts> {
        self.related.as_ref()?.shifts.as_ref()
    }

    /// The keys of both directions, by [`Direction::index`].
    #[inline]
    pub fn keys(&self) -> [Key; 2] {
        [self.original, self.reply]
    }

    /// The key of packets of a direction as they arrive.
    #[inline]
    pub fn key(&self, direction: Direction) -> &Key {
        match direction {
            Direction::Original => &self.original,
            Direction::Reply => &self.reply,
        }
    }

    /// The direction of packets with a key, if they belong to the connection.
    ///
    /// Directions follow no pattern, so that a source is compared without a branch, and then the key whose source it is.
    #[inline]
    pub fn direction_of(&self, key: &Key) -> Option<Direction> {
        let original = &self.original;
        let is_original = (original.src[1] ^ key.src[1]) | u64::from(original.src_port ^ key.src_port) == 0;
        let direction = if is_original { Direction::Original } else { Direction::Reply };
        let is_this = if self.translated.is_mirrored() {
            // The reply's key need not be read.
            mirrored_difference(original, key, u64::from(is_original).wrapping_sub(1)) == 0
        } else {
            difference(self.key(direction), key) == 0
        };
        if is_this {
            return Some(direction);
        }
        // Both directions may have one source.
        (is_original && difference(&self.reply, key) == 0).then_some(Direction::Reply)
    }

    /// Returns true if packets of a direction have these ends, in a zone and with a protocol: all that a key of IPv4 has.
    #[inline(always)]
    pub(crate) fn has_ends(&self, direction: Direction, ends: &Ends, zone: u16, proto: u8) -> bool {
        let is_reply = direction == Direction::Reply;
        let (key, swaps) =
            if is_reply && !self.translated.is_mirrored() { (&self.reply, false) } else { (&self.original, is_reply) };
        let Ends { src, dst, ports: of_packet } = if swaps { ends.reversed() } else { *ends };
        let differs = (key.src[1] ^ u64::from(src)) | (key.dst[1] ^ u64::from(dst)) | u64::from(ports(key) ^ of_packet);
        let of_packet = u64::from(zone) | u64::from(proto) << 16;
        differs | (rest(key) ^ of_packet) == 0
    }

    /// Notes how the keys of both directions differ, before the connection is looked up by them.
    pub(crate) fn compare_keys(&mut self) {
        let is_mirrored = mirrored_difference(&self.original, &self.reply, u64::MAX) == 0;
        self.translated.set_mirrored(is_mirrored);
    }

    /// The tuple of packets of a direction after their translation.
    #[inline]
    pub fn leaves_as(&self, direction: Direction) -> Key {
        self.key(direction.reversed()).reversed()
    }
}

/// 0 for equal keys.
#[inline]
fn difference(a: &Key, b: &Key) -> u64 {
    let ends = (a.src[1] ^ b.src[1]) | (a.dst[1] ^ b.dst[1]) | u64::from(ports(a) ^ ports(b));
    // Addresses of IPv4 have no upper half, and keys of two families differ in the rest.
    let high = if b.is_v6 { (a.src[0] ^ b.src[0]) | (a.dst[0] ^ b.dst[0]) } else { 0 };
    ends | high | (rest(a) ^ rest(b))
}

/// 0 for equal keys, if `mirror` is 0; if all of its bits are set, for keys of which one has the ends of the other one in
/// the other order.
#[inline]
fn mirrored_difference(a: &Key, b: &Key, mirror: u64) -> u64 {
    let half = |at: usize| {
        let swap = (b.src[at] ^ b.dst[at]) & mirror;
        (a.src[at] ^ b.src[at] ^ swap) | (a.dst[at] ^ b.dst[at] ^ swap)
    };
    let ports_of_b = ports(b);
    let swap = (ports_of_b ^ ports_of_b.rotate_left(16)) & mirror as u32;
    let high = if b.is_v6 { half(0) } else { 0 };
    half(1) | high | (rest(a) ^ rest(b)) | u64::from(ports(a) ^ ports_of_b ^ swap)
}

/// Addresses and ports of a packet of TCP or UDP over IPv4.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Ends {
    pub(crate) src: u32,
    pub(crate) dst: u32,
    /// The source port in the lower half, and the destination port.
    pub(crate) ports: u32,
}

impl Ends {
    /// The ends of a key of IPv4.
    #[inline]
    pub(crate) fn of(key: &Key) -> Self {
        Self { src: key.src[1] as u32, dst: key.dst[1] as u32, ports: ports(key) }
    }

    /// The ends of packets of the opposite direction.
    #[inline]
    pub(crate) fn reversed(self) -> Self {
        Self { src: self.dst, dst: self.src, ports: self.ports.rotate_left(16) }
    }

    /// A key of IPv4 with them.
    #[inline]
    pub(crate) fn key(self, zone: u16, proto: u8) -> Key {
        let (src_port, dst_port) = (self.ports as u16, (self.ports >> 16) as u16);
        Key { src: [0, self.src.into()], dst: [0, self.dst.into()], src_port, dst_port, zone, proto, is_v6: false }
    }
}

#[inline]
fn ports(key: &Key) -> u32 {
    u32::from(key.src_port) | u32::from(key.dst_port) << 16
}

/// Zone, protocol and family.
#[inline]
fn rest(key: &Key) -> u64 {
    u64::from(key.zone) | u64::from(key.proto) << 16 | u64::from(key.is_v6) << 24
}
