//! Control packets (RFC 5880 section 4.1) in UDP, IPv4 and Ethernet (RFC 5881).
//!
//! Invariant: parsing accepts any bytes without a panic.

use base::MacAddr;
use packet::checksum::checksum;
use std::fmt;
use std::net::Ipv4Addr;

/// UDP destination port of control packets (RFC 5881 section 4).
pub const UDP_PORT: u16 = 3784;
/// The first UDP source port of sessions (RFC 5881 section 4).
pub const SOURCE_PORT_MIN: u16 = 49152;
/// Bytes of a control packet without authentication.
pub const LEN: usize = 24;
/// The IP time to live of sent packets, and the only one that is accepted (RFC 5881 section 5).
pub const TTL: u8 = 255;

const VERSION: u8 = 1;
const ETHERNET_LEN: usize = 14;
const IPV4_LEN: usize = 20;
const UDP_LEN: usize = 8;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPES_VLAN: [u16; 2] = [0x8100, 0x88a8];
const PROTOCOL_UDP: u8 = 17;
/// Internetwork control, the class of service of routing protocols.
const TOS: u8 = 0xc0;

/// The state of a session (RFC 5880 section 4.1), in the order of the wire.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum State {
    /// Disabled by the administrator.
    AdminDown,
    /// The path is down, or the session has just begun.
    #[default]
    Down,
    /// Packets arrive, but the remote system has not confirmed the reverse direction.
    Init,
    /// Both directions work.
    Up,
}

impl State {
    fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::AdminDown,
            1 => Self::Down,
            2 => Self::Init,
            _ => Self::Up,
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AdminDown => "admin_down",
            Self::Down => "down",
            Self::Init => "init",
            Self::Up => "up",
        })
    }
}

/// The reason for the last change of a session's state (RFC 5880 section 4.1), 5 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Diagnostic(pub u8);

impl Diagnostic {
    /// No reason.
    pub const NONE: Self = Self(0);
    /// No packet arrived within the detection time.
    pub const EXPIRED: Self = Self(1);
    /// The remote system reported that the session is down.
    pub const NEIGHBOR_DOWN: Self = Self(3);
    /// The path behind the local system is down.
    pub const CONCATENATED_PATH_DOWN: Self = Self(6);

    /// Returns true if the sender asks not to be sent traffic, although the session may be up.
    pub fn forbids_forwarding(self) -> bool {
        matches!(self.0, 5 | 6 | 8)
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "No Diagnostic",
            1 => "Control Detection Time Expired",
            2 => "Echo Function Failed",
            3 => "Neighbor Signaled Session Down",
            4 => "Forwarding Plane Reset",
            5 => "Path Down",
            6 => "Concatenated Path Down",
            7 => "Administratively Down",
            8 => "Reverse Concatenated Path Down",
            _ => "Invalid Diagnostic",
        })
    }
}

/// The flags of a control packet (RFC 5880 section 4.1), 6 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Flags(pub u8);

impl Flags {
    /// No flags.
    pub const NONE: Self = Self(0);
    /// Reserved.
    pub const MULTIPOINT: Self = Self(0x01);
    /// The sender is in demand mode.
    pub const DEMAND: Self = Self(0x02);
    /// The packet has an authentication section.
    pub const AUTHENTICATION: Self = Self(0x04);
    /// The sender's BFD is independent of its control plane.
    pub const CONTROL_PLANE_INDEPENDENT: Self = Self(0x08);
    /// The packet answers a poll.
    pub const FINAL: Self = Self(0x10);
    /// The sender requests an answer with [`Flags::FINAL`].
    pub const POLL: Self = Self(0x20);

    /// Returns true if a flag of `other` is set.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The flags of both.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::MULTIPOINT, "multipoint"),
            (Self::DEMAND, "demand"),
            (Self::AUTHENTICATION, "auth"),
            (Self::CONTROL_PLANE_INDEPENDENT, "ctl"),
            (Self::FINAL, "final"),
            (Self::POLL, "poll"),
        ];
        let set: Vec<&str> = names.iter().filter(|(flag, _)| self.has(*flag)).map(|(_, name)| *name).collect();
        f.write_str(if set.is_empty() { "none".to_owned() } else { set.join(" ") }.as_str())
    }
}

/// The reason to discard a control packet (RFC 5880 section 6.8.6). The texts are those of Open vSwitch's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The UDP payload is shorter than a control packet.
    #[error("Received too-short BFD control message (only {0} bytes long, at least 24 required).")]
    TooShort(usize),
    /// Version other than 1.
    #[error("Incorrect version.")]
    Version,
    /// The length field is less than that of the mandatory section, or more than there is.
    #[error("Unexpected length.")]
    Length,
    /// The detection multiplier is 0.
    #[error("Zero multiplier.")]
    Multiplier,
    /// The multipoint flag is set.
    #[error("Unsupported multipoint flag.")]
    Multipoint,
    /// The packet is authenticated, and the session is not.
    #[error("Authenticated control message with authentication disabled.")]
    Authenticated,
    /// The sender's discriminator is 0.
    #[error("NULL my_disc.")]
    NoSender,
    /// The packet is for another session.
    #[error("Incorrect your_disc.")]
    OtherSession,
    /// The packet names no session in a state in which it must.
    #[error("Null your_disc.")]
    NoSession,
}

/// A control packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Control {
    /// Reason for the last change of the sender's state.
    pub diagnostic: Diagnostic,
    /// The sender's state.
    pub state: State,
    /// Flags.
    pub flags: Flags,
    /// Detection multiplier, not 0.
    pub multiplier: u8,
    /// The sender's discriminator, not 0.
    pub my_discriminator: u32,
    /// The receiver's discriminator, or 0 if the sender does not know it.
    pub your_discriminator: u32,
    /// The shortest interval in microseconds at which the sender wants to send.
    pub desired_min_tx_us: u32,
    /// The shortest interval in microseconds at which the sender can receive.
    pub required_min_rx_us: u32,
    /// The same for echo packets; 0 if the sender supports none.
    pub required_min_echo_rx_us: u32,
}

impl Control {
    /// Reads a control packet from the payload of a UDP packet.
    pub fn parse(payload: &[u8]) -> Result<Self, Refused> {
        let Some((header, _)) = payload.split_first_chunk::<LEN>() else {
            return Err(Refused::TooShort(payload.len()));
        };
        let word = |at: usize| u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let flags = Flags(header[1] & 0x3f);
        let my_discriminator = word(4);
        let reasons = [
            (header[0] >> 5 != VERSION, Refused::Version),
            (flags.has(Flags::AUTHENTICATION), Refused::Authenticated),
            (!(LEN..=payload.len()).contains(&header[3].into()), Refused::Length),
            (header[2] == 0, Refused::Multiplier),
            (flags.has(Flags::MULTIPOINT), Refused::Multipoint),
            (my_discriminator == 0, Refused::NoSender),
        ];
        if let Some((_, refused)) = reasons.into_iter().find(|(applies, _)| *applies) {
            return Err(refused);
        }
        Ok(Self {
            diagnostic: Diagnostic(header[0] & 0x1f),
            state: State::from_bits(header[1] >> 6),
            flags,
            multiplier: header[2],
            my_discriminator,
            your_discriminator: word(8),
            desired_min_tx_us: word(12),
            required_min_rx_us: word(16),
            required_min_echo_rx_us: word(20),
        })
    }

    /// The bytes of the packet.
    pub fn to_bytes(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[0] = VERSION << 5 | self.diagnostic.0 & 0x1f;
        bytes[1] = (self.state as u8) << 6 | self.flags.0 & 0x3f;
        bytes[2] = self.multiplier;
        bytes[3] = LEN as u8;
        let words = [
            self.my_discriminator,
            self.your_discriminator,
            self.desired_min_tx_us,
            self.required_min_rx_us,
            self.required_min_echo_rx_us,
        ];
        for (place, word) in bytes[4..].chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }
}

/// The addresses of a frame with a control packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Addresses {
    /// Ethernet source.
    pub mac_src: MacAddr,
    /// Ethernet destination.
    pub mac_dst: MacAddr,
    /// IPv4 source.
    pub ip_src: Ipv4Addr,
    /// IPv4 destination.
    pub ip_dst: Ipv4Addr,
    /// UDP source port.
    pub udp_src: u16,
}

/// The frame that carries a control packet, without frame check sequence. The UDP checksum is absent (0).
pub fn frame(addresses: &Addresses, control: &Control) -> Vec<u8> {
    let mut ip = [0; IPV4_LEN];
    ip[0] = 0x45;
    ip[1] = TOS;
    ip[2..4].copy_from_slice(&((IPV4_LEN + UDP_LEN + LEN) as u16).to_be_bytes());
    ip[8] = TTL;
    ip[9] = PROTOCOL_UDP;
    ip[12..16].copy_from_slice(&addresses.ip_src.octets());
    ip[16..20].copy_from_slice(&addresses.ip_dst.octets());
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut frame = Vec::with_capacity(ETHERNET_LEN + IPV4_LEN + UDP_LEN + LEN);
    frame.extend(addresses.mac_dst.0);
    frame.extend(addresses.mac_src.0);
    frame.extend(ETHERTYPE_IPV4.to_be_bytes());
    frame.extend(ip);
    frame.extend(addresses.udp_src.to_be_bytes());
    frame.extend(UDP_PORT.to_be_bytes());
    frame.extend(((UDP_LEN + LEN) as u16).to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(control.to_bytes());
    frame
}

/// The UDP payload of a frame with a control packet: an unfragmented IPv4 packet with a time to live of 255, with any
/// number of VLAN tags up to two. Returns `None` for all other frames.
pub fn payload(frame: &[u8]) -> Option<&[u8]> {
    let mut rest = frame.get(12..)?;
    for _ in 0..2 {
        if ETHERTYPES_VLAN.contains(&u16_at(rest, 0)?) {
            rest = rest.get(4..)?;
        }
    }
    if u16_at(rest, 0)? != ETHERTYPE_IPV4 {
        return None;
    }
    let ip = rest.get(2..)?;
    let header_len = usize::from(ip.first()? & 0x0f) * 4;
    let total_len = usize::from(u16_at(ip, 2)?);
    let is_fragment = u16_at(ip, 6)? & 0x3fff != 0;
    let is_control = ip[0] >> 4 == 4 && *ip.get(8)? == TTL && *ip.get(9)? == PROTOCOL_UDP && !is_fragment;
    if !is_control || header_len < IPV4_LEN {
        return None;
    }
    let udp = ip.get(header_len..total_len)?;
    if u16_at(udp, 2)? != UDP_PORT {
        return None;
    }
    udp.get(UDP_LEN..usize::from(u16_at(udp, 4)?))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn control() -> Control {
        Control {
            diagnostic: Diagnostic::NONE,
            state: State::Up,
            flags: Flags::NONE,
            multiplier: 3,
            my_discriminator: 0x1122_3344,
            your_discriminator: 5,
            desired_min_tx_us: 100_000,
            required_min_rx_us: 1_000_000,
            required_min_echo_rx_us: 0,
        }
    }

    const ADDRESSES: Addresses = Addresses {
        mac_src: MacAddr([0xaa, 0x55, 0xaa, 0x55, 0x00, 0x0f]),
        mac_dst: MacAddr([0x00, 0x23, 0x20, 0x00, 0x00, 0x01]),
        ip_src: Ipv4Addr::new(169, 254, 1, 1),
        ip_dst: Ipv4Addr::new(169, 254, 1, 0),
        udp_src: 49152,
    };

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len() / 2).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()).collect()
    }

    #[test]
    fn a_frame_equals_that_of_open_vswitch() {
        // Sent by Open vSwitch 4.0.0 on a dummy port.
        let sent = bytes(
            "002320000001aa55aa55000f080045c0003400000000ff1164fba9fe0101a9fe0100c0000ec80020000020400318ad28157f00000000\
             000f4240000f424000000000",
        );
        let down = Control {
            state: State::Down,
            my_discriminator: 0xad28_157f,
            your_discriminator: 0,
            desired_min_tx_us: 1_000_000,
            ..control()
        };
        assert_eq!(frame(&ADDRESSES, &down), sent);
        assert_eq!(Control::parse(payload(&sent).unwrap()), Ok(down));
    }

    #[test]
    fn wrong_packets_are_refused() {
        let good = control().to_bytes();
        let changed = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            Control::parse(&bytes).unwrap_err()
        };
        assert_eq!(Control::parse(&good[..23]), Err(Refused::TooShort(23)));
        assert_eq!(changed(0, 0x40), Refused::Version);
        assert_eq!(changed(3, 23), Refused::Length);
        assert_eq!(changed(3, 26), Refused::Length);
        assert_eq!(changed(2, 0), Refused::Multiplier);
        assert_eq!(changed(1, 0xc1), Refused::Multipoint);
        assert_eq!(changed(1, 0xc4), Refused::Authenticated);
        let mut unnamed = good;
        unnamed[4..8].fill(0);
        assert_eq!(Control::parse(&unnamed), Err(Refused::NoSender));
        assert_eq!(Control::parse(&[&good[..], b"more"].concat()), Ok(control()));
        let mut longer = [&good[..], b"more"].concat();
        longer[3] = 28;
        assert_eq!(Control::parse(&longer), Ok(control()));
    }

    #[test]
    fn frames_that_are_no_control_packets_are_skipped() {
        let good = frame(&ADDRESSES, &control());
        let is_skipped = |at: usize, byte: u8| {
            let mut bytes = good.clone();
            bytes[at] = byte;
            payload(&bytes).is_none()
        };
        // Ethernet type, IP version, header length, time to live, protocol, fragment, port, and lengths beyond the frame.
        for (at, byte) in
            [(12, 0x86), (14, 0x65), (14, 0x44), (22, 254), (23, 6), (20, 0x20), (21, 1), (37, 0xc9), (17, 0x35)]
        {
            assert!(is_skipped(at, byte), "byte {at} = {byte:#x}");
        }
        assert!(is_skipped(39, 0x21) && is_skipped(39, 7));
        for length in 0..good.len() {
            assert_eq!(payload(&good[..length]), None);
        }
        let tagged = [&good[..12], &[0x88, 0xa8, 0, 7, 0x81, 0, 0, 5], &good[12..]].concat();
        assert_eq!(payload(&tagged), Some(&control().to_bytes()[..]));
    }

    #[test]
    fn names() {
        assert_eq!(Flags(0x3a).to_string(), "demand ctl final poll");
        assert_eq!(Flags::NONE.to_string(), "none");
        assert_eq!(Diagnostic(9).to_string(), "Invalid Diagnostic");
    }

    tally::proptest! {
        #[test]
        fn packets_survive_encoding(
            diagnostic in 0u8..32, state in 0u8..4, flags in 0u8..64, multiplier in 1u8.., my in 1u32.., words: [u32; 4],
        ) {
            let control = Control {
                diagnostic: Diagnostic(diagnostic),
                state: State::from_bits(state),
                flags: Flags(flags & !5),
                multiplier,
                my_discriminator: my,
                your_discriminator: words[0],
                desired_min_tx_us: words[1],
                required_min_rx_us: words[2],
                required_min_echo_rx_us: words[3],
            };
            prop_assert_eq!(Control::parse(payload(&frame(&ADDRESSES, &control)).unwrap()), Ok(control));
        }

        #[test]
        fn any_bytes_are_accepted(bytes in prop::collection::vec(any::<u8>(), 0..80), at in 0usize..66, byte: u8) {
            let _ = Control::parse(&bytes);
            let _ = payload(&bytes);
            let mut near = frame(&ADDRESSES, &control());
            near[at] = byte;
            if let Some(payload) = payload(&near) {
                let _ = Control::parse(payload);
            }
        }
    }
}
