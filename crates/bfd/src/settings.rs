//! The settings of a session, read from the key-value pairs of Interface:`bfd` as Open vSwitch 4.0.0 reads them: a value
//! that cannot be used is replaced by its default.

use base::MacAddr;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The default of `bfd_local_dst_mac`.
pub const DESTINATION_MAC: MacAddr = MacAddr([0x00, 0x23, 0x20, 0x00, 0x00, 0x01]);
/// The default of `bfd_src_ip`.
pub const SOURCE_IP: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 1);
/// The default of `bfd_dst_ip`.
pub const DESTINATION_IP: Ipv4Addr = Ipv4Addr::new(169, 254, 1, 0);

/// The settings of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SessionSettings {
    /// Name of the interface.
    pub name: String,
    /// MAC address of the interface, which packets are sent from unless `local_src_mac` is set.
    pub mac: MacAddr,
    /// The shortest interval in milliseconds at which packets can be received, at least 1.
    pub min_rx_ms: u32,
    /// The shortest interval in milliseconds at which packets are sent, at least 1.
    pub min_tx_ms: u32,
    /// The receive interval in milliseconds while the interface receives no traffic; 0 if that makes no difference.
    pub decay_min_rx_ms: u32,
    /// Detection multiplier, not 0.
    pub multiplier: u8,
    /// Received traffic counts as evidence that the path works.
    pub forwarding_if_rx: bool,
    /// Report that the path behind the local system is down.
    pub cpath_down: bool,
    /// Accept only packets with a tunnel key of zero.
    pub check_tunnel_key: bool,
    /// Mark packets as OAM in tunnel headers that have such a mark.
    pub oam: bool,
    /// Source of sent frames.
    pub local_src_mac: Option<MacAddr>,
    /// Destination of sent frames; [`DESTINATION_MAC`] by default.
    pub local_dst_mac: Option<MacAddr>,
    /// Destination that received frames must have.
    pub remote_dst_mac: Option<MacAddr>,
    /// Source of sent packets.
    pub src_ip: Ipv4Addr,
    /// Destination of sent packets.
    pub dst_ip: Ipv4Addr,
}

impl SessionSettings {
    /// The defaults for an interface.
    pub fn new(name: impl Into<String>, mac: MacAddr) -> Self {
        Self {
            name: name.into(),
            mac,
            min_rx_ms: 1000,
            min_tx_ms: 100,
            decay_min_rx_ms: 0,
            multiplier: 3,
            forwarding_if_rx: false,
            cpath_down: false,
            check_tunnel_key: false,
            oam: false,
            local_src_mac: None,
            local_dst_mac: None,
            remote_dst_mac: None,
            src_ip: SOURCE_IP,
            dst_ip: DESTINATION_IP,
        }
    }

    /// Reads the settings of an interface, `None` if they do not enable BFD. The second value has the messages about
    /// values that cannot be used.
    pub fn from_pairs(name: &str, mac: MacAddr, pairs: &BTreeMap<String, String>) -> (Option<Self>, Vec<String>) {
        let get = |key: &str| pairs.get(key).map(String::as_str);
        let is_true = |key: &str| get(key).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let mut messages = Vec::new();
        if !is_true("enable") {
            return (None, messages);
        }
        let interval = |key, default: u32| integer(get(key)).map_or(default, |ms| ms.max(1) as u32);
        let address = |key| get(key).and_then(|value| value.parse().ok()).filter(|mac: &MacAddr| !mac.is_zero());
        let mut ip = |key, default| match get(key).map(|value| (value, value.parse())) {
            Some((_, Ok(ip))) => ip,
            Some((value, Err(_))) => {
                messages.push(format!("\"{value}\" is not a valid IP address"));
                default
            }
            None => default,
        };
        let (src_ip, dst_ip) = (ip("bfd_src_ip", SOURCE_IP), ip("bfd_dst_ip", DESTINATION_IP));
        let min_rx_ms = interval("min_rx", 1000);
        let mut decay_min_rx_ms = integer(get("decay_min_rx")).map_or(0, |ms| ms.max(0) as u32);
        if (1..min_rx_ms).contains(&decay_min_rx_ms) {
            messages.push(format!("{name}: decay_min_rx cannot be less than {min_rx_ms} ms"));
            decay_min_rx_ms = 0;
        }
        let settings = Self {
            name: name.to_owned(),
            mac,
            min_rx_ms,
            min_tx_ms: interval("min_tx", 100),
            decay_min_rx_ms,
            multiplier: integer(get("mult")).and_then(|n| u8::try_from(n).ok()).filter(|n| *n > 0).unwrap_or(3),
            forwarding_if_rx: is_true("forwarding_if_rx"),
            cpath_down: is_true("cpath_down"),
            check_tunnel_key: is_true("check_tnl_key"),
            oam: is_true("oam"),
            local_src_mac: address("bfd_local_src_mac"),
            local_dst_mac: address("bfd_local_dst_mac"),
            remote_dst_mac: address("bfd_remote_dst_mac"),
            src_ip,
            dst_ip,
        };
        (Some(settings), messages)
    }
}

/// A decimal number as `strtol` reads it, of 32 bits.
fn integer(text: Option<&str>) -> Option<i32> {
    text?.trim_start().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> (Option<SessionSettings>, Vec<String>) {
        let pairs = pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        SessionSettings::from_pairs("p1", MacAddr::from_u64(1), &pairs)
    }

    fn of(pairs: &[(&str, &str)]) -> SessionSettings {
        read(&[&[("enable", "true")], pairs].concat()).0.unwrap()
    }

    #[test]
    fn defaults() {
        assert_eq!(of(&[]), SessionSettings::new("p1", MacAddr::from_u64(1)));
        assert_eq!(read(&[]), (None, vec![]));
        assert_eq!(read(&[("enable", "foo"), ("bfd_src_ip", "x")]), (None, vec![]));
    }

    #[test]
    fn unusable_values_give_way_to_defaults() {
        for (value, min_rx, multiplier) in [
            ("0", 1, 3),
            ("-5", 1, 3),
            ("abc", 1000, 3),
            ("5000000000", 1000, 3),
            ("0x10", 1000, 3),
            (" 7", 7, 7),
            ("255", 255, 255),
            ("256", 256, 3),
        ] {
            let read = of(&[("min_rx", value), ("mult", value)]);
            assert_eq!((read.min_rx_ms, read.multiplier), (min_rx, multiplier), "{value}");
        }
        assert_eq!(of(&[("bfd_local_dst_mac", "00:00:00:00:00:00")]).local_dst_mac, None);
        assert_eq!(of(&[("bfd_local_dst_mac", "x")]).local_dst_mac, None);
    }

    #[test]
    fn messages_are_those_of_open_vswitch() {
        let (settings, messages) = read(&[
            ("enable", "true"),
            ("bfd_src_ip", "1.2.3.256"),
            ("bfd_dst_ip", "1.2.3.4"),
            ("decay_min_rx", "50"),
            ("min_rx", "100"),
        ]);
        let settings = settings.unwrap();
        assert_eq!((settings.src_ip, settings.dst_ip), (SOURCE_IP, Ipv4Addr::new(1, 2, 3, 4)));
        assert_eq!(settings.decay_min_rx_ms, 0);
        let expected = ["\"1.2.3.256\" is not a valid IP address", "p1: decay_min_rx cannot be less than 100 ms"];
        assert_eq!(messages, expected);
    }
}
