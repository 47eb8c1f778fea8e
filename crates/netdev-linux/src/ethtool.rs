//! Speed, duplex mode, medium and driver of a device (`SIOCETHTOOL`, linux/ethtool.h).

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use netdev::{Duplex, Features, PortFeatures};

use crate::sys;

const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_GLINKSETTINGS: u32 = 0x4c;
/// Words of `struct ethtool_drvinfo` (196 bytes).
const DRVINFO_WORDS: usize = 49;
/// Words of `struct ethtool_channels`: the command, four maxima, four counts.
const CHANNELS_WORDS: usize = 9;
/// Words of `struct ethtool_link_settings` without the three masks behind it.
const SETTINGS_WORDS: usize = 12;
/// Maximum number of words in a mask of link modes: the count is a signed byte.
const MASK_WORDS_MAX: usize = 127;
const SPEED_UNKNOWN: u32 = u32::MAX;
const PORT_TP: u8 = 0;
const PORT_FIBRE: u8 = 3;

/// Information about a driver.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Driver {
    /// The driver's name, as `veth`.
    pub name: String,
    /// Its version; for in-tree drivers the kernel's version.
    pub version: String,
    /// The device's firmware, or empty.
    pub firmware: String,
}

/// A device's rate and modes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// Current speed in bits per second; `None` if unknown or without carrier.
    pub speed: Option<u64>,
    /// Duplex now.
    pub duplex: Option<Duplex>,
    /// The link modes as OpenFlow features.
    pub features: PortFeatures,
}

/// A socket for ethtool requests.
#[derive(Debug)]
pub struct Ethtool(OwnedFd);

impl Ethtool {
    /// Opens the socket in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
        Ok(Self(socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?))
    }

    /// The driver of a device.
    pub fn driver(&self, device: &str) -> io::Result<Driver> {
        let mut info = [0u32; DRVINFO_WORDS];
        info[0] = ETHTOOL_GDRVINFO;
        // SAFETY: the answer is a `struct ethtool_drvinfo`, whose 196 bytes `info` has.
        unsafe { sys::ethtool(self.0.as_fd(), device, &mut info) }?;
        let bytes: Vec<u8> = info.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let text = |from: usize, len: usize| {
            let field = &bytes[from..from + len];
            let end = field.iter().position(|b| *b == 0).unwrap_or(len);
            String::from_utf8_lossy(&field[..end]).into_owned()
        };
        Ok(Driver { name: text(4, 32), version: text(36, 32), firmware: text(68, 32) })
    }

    /// Current number of receive queues: rx channels plus combined channels.
    pub fn rx_channels(&self, device: &str) -> io::Result<u32> {
        let mut channels = [0u32; CHANNELS_WORDS];
        channels[0] = ETHTOOL_GCHANNELS;
        // SAFETY: the answer is a `struct ethtool_channels`, whose nine words `channels` has.
        unsafe { sys::ethtool(self.0.as_fd(), device, &mut channels) }?;
        let [.., rx, _tx, _other, combined] = channels;
        Ok(rx.saturating_add(combined))
    }

    /// Whether the device strips VLAN tags from received frames.
    pub fn strips_tags(&self, device: &str) -> io::Result<bool> {
        let mut flags = [ETHTOOL_GFLAGS, 0];
        // SAFETY: the answer is a `struct ethtool_value`, whose two words `flags` has.
        unsafe { sys::ethtool(self.0.as_fd(), device, &mut flags) }?;
        Ok(flags[1] & ETH_FLAG_RXVLAN != 0)
    }

    /// The speed and link modes of a device.
    pub fn settings(&self, device: &str) -> io::Result<Settings> {
        let mut request = [0u32; SETTINGS_WORDS + 3 * MASK_WORDS_MAX];
        request[0] = ETHTOOL_GLINKSETTINGS;
        // The first reply only reports the number of words in a mask, as a negative number.
        // SAFETY: the answer is a `struct ethtool_link_settings` with three masks of at most 127 words, which fit.
        unsafe { sys::ethtool(self.0.as_fd(), device, &mut request) }?;
        let words = Header::new(&request).mask_words.unsigned_abs().min(MASK_WORDS_MAX as u8);
        request = [0; SETTINGS_WORDS + 3 * MASK_WORDS_MAX];
        request[0] = ETHTOOL_GLINKSETTINGS;
        let [b0, b1, b2, _] = request[3].to_ne_bytes();
        request[3] = u32::from_ne_bytes([b0, b1, b2, words]);
        // SAFETY: as above.
        unsafe { sys::ethtool(self.0.as_fd(), device, &mut request) }?;
        Ok(parse_settings(&request))
    }
}

/// The fields of `struct ethtool_link_settings` used here.
struct Header {
    speed: u32,
    duplex: u8,
    port: u8,
    autoneg: bool,
    mask_words: i8,
}

impl Header {
    fn new(words: &[u32]) -> Self {
        let bytes = |at: usize| words.get(at).copied().unwrap_or(0).to_ne_bytes();
        // cmd, speed; duplex, port, phy_address, autoneg; mdio, mdix, mdix_ctrl, nwords.
        let ([duplex, port, _, autoneg], [.., mask_words]) = (bytes(2), bytes(3));
        let speed = words.get(1).copied().unwrap_or(SPEED_UNKNOWN);
        Self { speed, duplex, port, autoneg: autoneg != 0, mask_words: mask_words as i8 }
    }
}

fn parse_settings(words: &[u32]) -> Settings {
    let header = Header::new(words);
    let speed = (header.speed != SPEED_UNKNOWN && header.speed != 0).then(|| u64::from(header.speed) * 1_000_000);
    let duplex = match header.duplex {
        0 => Some(Duplex::Half),
        1 => Some(Duplex::Full),
        _ => None,
    };
    let mask = |n: usize| {
        let len = usize::from(header.mask_words.unsigned_abs());
        let from = SETTINGS_WORDS + n * len;
        modes(words.get(from..from + len).unwrap_or_default())
    };
    let mut current = match (speed, duplex) {
        (Some(speed), Some(duplex)) => Features::of_speed(speed, duplex),
        _ => Features::default(),
    };
    current = current.union(match header.port {
        PORT_TP => Features::COPPER,
        PORT_FIBRE => Features::FIBER,
        _ => Features::default(),
    });
    if header.autoneg {
        current = current.union(Features::AUTONEG);
    }
    let features = PortFeatures { current, supported: mask(0), advertised: mask(1), peer: mask(2) };
    Settings { speed, duplex, features }
}

/// OpenFlow features of a mask of link modes (`ETHTOOL_LINK_MODE_*_BIT`).
fn modes(mask: &[u32]) -> Features {
    const MODES: [(std::ops::RangeInclusive<u32>, Features); 17] = [
        (0..=0, Features::MB10_HD),
        (1..=1, Features::MB10_FD),
        (2..=2, Features::MB100_HD),
        (3..=3, Features::MB100_FD),
        (4..=4, Features::GB1_HD),
        (5..=5, Features::GB1_FD),
        (6..=6, Features::AUTONEG),
        (7..=7, Features::COPPER),
        (10..=10, Features::FIBER),
        (12..=12, Features::GB10_FD),
        (13..=13, Features::PAUSE),
        (14..=14, Features::PAUSE_ASYM),
        (17..=17, Features::GB1_FD),
        (18..=20, Features::GB10_FD),
        (23..=26, Features::GB40_FD),
        (36..=39, Features::GB100_FD),
        (41..=46, Features::GB10_FD),
    ];
    let set = |bit: u32| mask.get((bit / 32) as usize).is_some_and(|word| word & (1 << (bit % 32)) != 0);
    MODES.into_iter().filter(|(bits, _)| bits.clone().any(set)).fold(Features::default(), |all, (_, f)| all.union(f))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_gigabit_device() {
        let mut words = vec![0u32; SETTINGS_WORDS + 6];
        words[1] = 1000;
        words[2] = u32::from_ne_bytes([1, PORT_TP, 0, 1]);
        words[3] = u32::from_ne_bytes([0, 0, 0, 2]);
        words[SETTINGS_WORDS] = 0b1110_1111 | 1 << 12;
        words[SETTINGS_WORDS + 1] = 1 << (36 - 32);
        words[SETTINGS_WORDS + 2] = 1 << 5;
        let s = parse_settings(&words);
        assert_eq!((s.speed, s.duplex), (Some(1_000_000_000), Some(Duplex::Full)));
        let expected = Features::GB1_FD.union(Features::COPPER).union(Features::AUTONEG);
        assert_eq!(s.features.current, expected);
        assert!(s.features.supported.contains(Features::GB10_FD.union(Features::GB100_FD)));
        assert_eq!((s.features.advertised, s.features.peer), (Features::GB1_FD, Features::default()));
    }

    #[test]
    fn an_empty_reply_has_no_speed() {
        let s = parse_settings(&[0, SPEED_UNKNOWN]);
        assert_eq!((s.speed, s.features.supported), (None, Features::default()));
    }
}
