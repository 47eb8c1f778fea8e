//! IP prefixes: an address and the number of its leading bits that count. The other bits are zero.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// The bits in an address of this family: 32 or 128.
pub fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// An address as a left-aligned number, so that IPv4 and IPv6 share one arithmetic.
pub(crate) fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// A number whose `len` leading bits are set.
pub(crate) fn mask(len: u8) -> u128 {
    if len == 0 { 0 } else { u128::MAX << (128 - u32::from(len.min(128))) }
}

/// A prefix of IPv4 or IPv6 (RFC 4632, RFC 4291 section 2.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

impl Prefix {
    /// All IPv4 addresses.
    pub const ALL_V4: Self = Self { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), len: 0 };
    /// All IPv6 addresses.
    pub const ALL_V6: Self = Self { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), len: 0 };

    /// The prefix of an address; clears the bits behind it. `None` if the address has fewer bits.
    pub fn new(address: IpAddr, len: u8) -> Option<Self> {
        (len <= width(address)).then(|| Self::from_bits(address.is_ipv4(), bits(address), len))
    }

    /// One address.
    pub fn host(address: IpAddr) -> Self {
        Self { address, len: width(address) }
    }

    pub(crate) fn from_bits(ipv4: bool, bits: u128, len: u8) -> Self {
        let bits = bits & mask(len);
        let address = if ipv4 {
            IpAddr::V4(Ipv4Addr::from_bits((bits >> 96) as u32))
        } else {
            IpAddr::V6(Ipv6Addr::from_bits(bits))
        };
        Self { address, len }
    }

    /// The first address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// The last address.
    pub fn last(&self) -> IpAddr {
        Self::from_bits(self.address.is_ipv4(), bits(self.address) | !mask(self.len), 128).address
    }

    /// The number of bits that count.
    #[expect(clippy::len_without_is_empty, reason = "the length of a prefix, not of a collection")]
    pub fn len(&self) -> u8 {
        self.len
    }

    /// Whether an address lies in the prefix.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && (bits(self.address) ^ bits(address)) & mask(self.len) == 0
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is no address, address and length, or address and contiguous mask.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("invalid IP prefix")]
pub struct ParsePrefixError;

/// Reads `address`, `address/length` or `address/mask`, and returns the address as written and the length.
pub(crate) fn parse_masked(text: &str) -> Result<(IpAddr, u8), ParsePrefixError> {
    let (address, len) = text.split_once('/').map_or((text, None), |(address, len)| (address, Some(len)));
    let address: IpAddr = address.parse().map_err(|_| ParsePrefixError)?;
    let len = match len {
        None => width(address),
        Some(len) if len.bytes().all(|b| b.is_ascii_digit()) => len.parse().map_err(|_| ParsePrefixError)?,
        Some(text) => {
            let written: IpAddr = text.parse().map_err(|_| ParsePrefixError)?;
            let len = bits(written).leading_ones() as u8;
            if written.is_ipv4() != address.is_ipv4() || bits(written) != mask(len) {
                return Err(ParsePrefixError);
            }
            len
        }
    };
    if len > width(address) { Err(ParsePrefixError) } else { Ok((address, len)) }
}

impl FromStr for Prefix {
    type Err = ParsePrefixError;

    fn from_str(text: &str) -> Result<Self, ParsePrefixError> {
        let (address, len) = parse_masked(text)?;
        Self::new(address, len).ok_or(ParsePrefixError)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_and_host_bits_are_cleared() {
        for (text, shown) in [
            ("1.1.2.92/24", "1.1.2.0/24"),
            ("1.1.2.92", "1.1.2.92/32"),
            ("10.7.0.1/255.255.0.0", "10.7.0.0/16"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("1.2.3.4/0.0.0.0", "0.0.0.0/0"),
            ("2001:cafe::92/64", "2001:cafe::/64"),
            ("2001:cafe::92/ffff::", "2001::/16"),
            ("::/0", "::/0"),
            ("::1", "::1/128"),
        ] {
            assert_eq!(text.parse::<Prefix>().map(|p| p.to_string()), Ok(shown.to_owned()), "{text}");
        }
        for text in ["", "bad", "1.1.1.1/33", "1.1.1.1/", "1.1.1.1/8x", "1.1.1.1/+8", "1.1.1.1/255.0.255.0", "::/129"] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }

    #[test]
    fn prefixes_contain_their_first_and_last_address() {
        let prefix: Prefix = "10.1.128.0/17".parse().expect("valid");
        assert_eq!(prefix.last().to_string(), "10.1.255.255");
        assert!(prefix.contains(prefix.address()) && prefix.contains(prefix.last()));
        assert!(!prefix.contains("10.1.127.255".parse().expect("valid")));
        assert!(!prefix.contains("::".parse().expect("valid")));
        assert!(Prefix::ALL_V6.contains("::1".parse().expect("valid")));
        assert_eq!(Prefix::ALL_V6.last().to_string(), "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    }
}
