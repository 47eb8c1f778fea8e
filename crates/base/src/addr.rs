//! Ethernet addresses. (IP addresses are those of `std::net`.)

use std::fmt;
use std::str::FromStr;

/// A 48-bit Ethernet address (IEEE 802), octets in transmission order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// ff:ff:ff:ff:ff:ff.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// 00:00:00:00:00:00.
    pub const ZERO: Self = Self([0; 6]);

    /// The address as the low 48 bits of a number, first octet most significant.
    pub fn to_u64(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// Creates the address from the low 48 bits of `n`.
    pub fn from_u64(n: u64) -> Self {
        let [_, _, a, b, c, d, e, f] = n.to_be_bytes();
        Self([a, b, c, d, e, f])
    }

    /// Whether the group bit is set: multicast or broadcast.
    pub fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Whether all octets are zero.
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// The address of all bridges, which spanning tree protocols send to (IEEE 802.1D, section 7.12.3).
    pub const STP: Self = Self([0x01, 0x80, 0xc2, 0, 0, 0]);

    /// Returns true if a bridge does not forward the address: 01:80:c2:00:00:00 to :0f (IEEE 802.1Q, table
    /// 8-1), or an address that vendors chose for link-local protocols (ovs-vswitchd.conf.db(5),
    /// Bridge:other_config:forward-bpdu).
    pub fn is_reserved(self) -> bool {
        match self.0 {
            [0x01, 0x80, 0xc2, 0, 0, last] => last & 0xf0 == 0,
            [0x00, 0xe0, 0x2b, 0, 0, last] => matches!(last, 0 | 4 | 6),
            [0x01, 0x00, 0x0c, 0xcc, 0xcc, last] => matches!(last, 0xc0..=0xc7 | 0xcc | 0xcd),
            [0x01, 0x00, 0x0c, rest @ ..] => matches!(rest, [0xcd, 0xcd, 0xcd] | [0, 0, 0]),
            _ => false,
        }
    }

    /// The number of leading bytes, 1 to 6, that decide whether the address [is reserved](Self::is_reserved).
    pub fn reserved_prefix(self) -> usize {
        const BEGINNINGS: [[u8; 5]; 4] =
            [[0x01, 0x80, 0xc2, 0, 0], [0x00, 0xe0, 0x2b, 0, 0], [0x01, 0x00, 0x0c, 0xcc, 0xcc], [0x01, 0, 0x0c, 0, 0]];
        const CISCO_LAST: [u8; 5] = [0x01, 0x00, 0x0c, 0xcd, 0xcd];
        let common = |of: &[u8; 5]| of.iter().zip(&self.0).take_while(|(a, b)| a == b).count();
        1 + BEGINNINGS.iter().chain([&CISCO_LAST]).map(common).max().unwrap_or(0)
    }

    /// A locally administered unicast address made of 40 bits of `seed`.
    pub fn local_from(seed: u64) -> Self {
        let mut mac = Self::from_u64(seed);
        mac.0[0] = (mac.0[0] & !1) | 2;
        mac
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not six octets of one or two hexadecimal digits with colons between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseMacError;

impl fmt::Display for ParseMacError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("invalid Ethernet address")
    }
}

impl std::error::Error for ParseMacError {}

impl FromStr for MacAddr {
    type Err = ParseMacError;

    fn from_str(s: &str) -> Result<Self, ParseMacError> {
        let mut mac = [0; 6];
        let mut parts = s.split(':');
        for octet in &mut mac {
            let part = parts.next().ok_or(ParseMacError)?;
            if part.is_empty() || part.len() > 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(ParseMacError);
            }
            *octet = u8::from_str_radix(part, 16).map_err(|_| ParseMacError)?;
        }
        if parts.next().is_some() { Err(ParseMacError) } else { Ok(Self(mac)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trip() {
        let mac: MacAddr = "02:0a:B:c:0d:ff".parse().expect("valid");
        assert_eq!(mac.to_string(), "02:0a:0b:0c:0d:ff");
        assert_eq!(MacAddr::from_u64(mac.to_u64()), mac);
        for bad in ["", "1:2:3:4:5", "1:2:3:4:5:6:7", "1:2:3:4:5:100", "g:2:3:4:5:6", "+1:2:3:4:5:6"] {
            assert!(bad.parse::<MacAddr>().is_err(), "{bad}");
        }
    }

    #[test]
    fn classes() {
        assert!(MacAddr::BROADCAST.is_multicast());
        assert!("01:80:c2:00:00:0e".parse::<MacAddr>().is_ok_and(MacAddr::is_reserved));
        assert!(!"01:80:c2:00:00:10".parse::<MacAddr>().is_ok_and(MacAddr::is_reserved));
        for (mac, reserved) in [
            ("00:e0:2b:00:00:04", true),
            ("00:e0:2b:00:00:05", false),
            ("01:00:0c:cc:cc:c7", true),
            ("01:00:0c:cc:cc:c8", false),
            ("01:00:0c:cc:cc:cd", true),
            ("01:00:0c:cd:cd:cd", true),
            ("01:00:0c:00:00:00", true),
            ("01:00:0c:00:00:01", false),
        ] {
            assert_eq!(mac.parse().map(MacAddr::is_reserved), Ok(reserved), "{mac}");
        }
        assert!(!MacAddr::local_from(u64::MAX).is_multicast());
    }
}
