//! Canonical texts of a configuration.

use std::fmt::Write;
use std::net::{IpAddr, Ipv6Addr};

use super::{Checksum, Config, Endpoint, Erspan, ErspanValue, Key, PacketMode, Tos, Ttl};
use crate::TunnelType;

impl Config {
    /// The type and those options that differ from the defaults, sorted by name: `vxlan: key=5, remote_ip=1.2.3.4`, as
    /// `dpif/show` and `dpctl/show` print it in parentheses.
    pub fn text(&self) -> String {
        let options = self.options();
        let mut out = self.tunnel_type.name().to_string();
        for (index, (name, value)) in options.iter().enumerate() {
            let separator = if index == 0 { ": " } else { ", " };
            // Writing to a string does not fail.
            let _ = write!(out, "{separator}{name}={value}");
        }
        out
    }

    /// Options that differ from the defaults in their canonical form, sorted by name.
    pub fn options(&self) -> Vec<(&'static str, String)> {
        let mut options = Vec::new();
        let mut add = |name, value: Option<String>| options.extend(value.map(|value| (name, value)));
        let [index, direction, hardware_id, version] = self.erspan_options();
        let (key, in_key, out_key) = self.key_options();
        add(
            "csum",
            match self.checksum {
                Checksum::Default => None,
                Checksum::On => Some("true".into()),
                Checksum::Off => Some("false".into()),
            },
        );
        add("df_default", (!self.dont_fragment).then(|| "false".into()));
        let has_port = self.dst_port != 0 && self.tunnel_type.default_port() != Some(self.dst_port);
        add("dst_port", has_port.then(|| self.dst_port.to_string()));
        add("egress_pkt_mark", self.egress_mark.map(|mark| mark.to_string()));
        add("erspan_dir", direction);
        add("erspan_hwid", hardware_id);
        add("erspan_idx", index);
        add("erspan_ver", version);
        add("in_key", in_key);
        add("key", key);
        add("local_ip", endpoint_option(self.local));
        add("out_key", out_key);
        add("packet_type", (self.packets != self.default_packets()).then(|| self.packets.name().into()));
        add("remote_ip", endpoint_option(self.remote));
        add("seq", self.sequence.then(|| "true".into()));
        add("tos", self.tos.option());
        add(
            "ttl",
            match self.ttl {
                Ttl::Fixed(Ttl::DEFAULT) => None,
                Ttl::Fixed(ttl) => Some(ttl.to_string()),
                Ttl::Inherit => Some("inherit".into()),
            },
        );
        options
    }

    /// The common key, or the two keys. Open vSwitch takes a key of the flow and a fixed key 0 for a common 0, too.
    fn key_options(&self) -> (Option<String>, Option<String>, Option<String>) {
        let text = |key| match key {
            Key::Absent => None,
            Key::Fixed(key) => Some(key.to_string()),
            Key::Flow => Some("flow".into()),
        };
        match (self.in_key, self.out_key) {
            (Key::Flow, Key::Fixed(0)) | (Key::Fixed(0), Key::Flow) => (Some("0".into()), None, None),
            (in_key, out_key) if in_key == out_key => (text(in_key), None, None),
            (in_key, out_key) => (None, text(in_key), text(out_key)),
        }
    }

    /// Index, direction, hardware id and version.
    fn erspan_options(&self) -> [Option<String>; 4] {
        if !self.tunnel_type.is_erspan() {
            return [None, None, None, None];
        }
        let flow = || Some("flow".to_string());
        let value = |value, text: fn(u32) -> String| match value {
            ErspanValue::Fixed(value) => Some(text(value)),
            ErspanValue::Flow => flow(),
        };
        let hex = |value| format!("{value:#x}");
        match self.erspan {
            Erspan::Unset => [None, None, None, Some("0".into())],
            Erspan::V1 { index } => [value(index, hex), None, None, Some("1".into())],
            Erspan::V2 { direction, hardware_id } => {
                [None, value(direction, |value| value.to_string()), value(hardware_id, hex), Some("2".into())]
            }
            Erspan::Flow => [flow(), flow(), flow(), flow()],
        }
    }

    /// The fields by which received packets find the port, as messages about it show them:
    /// `::->1.2.3.4, key=0x5, legacy_l2, dp port=4789`.
    pub fn match_text(&self, datapath_port: u32) -> String {
        let key = match self.in_key {
            Key::Absent => Key::Fixed(0),
            key => key,
        };
        format!(
            "{}->{}, key={}, {}, dp port={datapath_port}",
            endpoint_text(self.local),
            endpoint_text(self.remote),
            key_text(key),
            self.packets.name()
        )
    }

    /// The line of `ofproto/list-tunnels` behind the port's name, without parentheses:
    /// `vxlan: ::->1.2.3.4, key=0, legacy_l2, dp port=4789, ttl=64`.
    pub fn description(&self, datapath_port: u32) -> String {
        let mut out = format!("{}: {}", self.tunnel_type.name(), self.match_text(datapath_port));
        if self.out_key != self.in_key {
            out += ", out_key=";
            out += &key_text(self.out_key);
        }
        out += ", ttl=";
        match self.ttl {
            Ttl::Fixed(ttl) => out += &ttl.to_string(),
            Ttl::Inherit => out += "inherit",
        }
        if let Some(tos) = self.tos.option() {
            out += ", tos=";
            out += &tos;
        }
        if !self.dont_fragment {
            out += ", df=false";
        }
        match self.checksum {
            Checksum::Default => (),
            Checksum::On => out += ", csum=true",
            Checksum::Off => out += ", csum=false",
        }
        out
    }
}

impl Tos {
    /// The option's value, unless it is the default.
    fn option(self) -> Option<String> {
        match self {
            Self::Fixed(0) => None,
            Self::Fixed(tos) => Some(format!("{tos:#x}")),
            Self::Inherit => Some("inherit".into()),
        }
    }
}

impl PacketMode {
    /// All modes by their names in the database.
    pub(super) const ALL: [(&'static str, Self); 3] =
        [("legacy_l2", Self::LegacyL2), ("legacy_l3", Self::LegacyL3), ("ptap", Self::PacketTypeAware)];

    /// The name in the database.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, mode)| *mode == self).map_or("", |(name, _)| name)
    }
}

fn key_text(key: Key) -> String {
    match key {
        Key::Absent => "none".into(),
        Key::Fixed(0) => "0".into(),
        Key::Fixed(key) => format!("{key:#x}"),
        Key::Flow => "flow".into(),
    }
}

fn endpoint_text(endpoint: Endpoint) -> String {
    match endpoint {
        Endpoint::Any => "::".into(),
        Endpoint::Fixed(address) => address_text(address),
        Endpoint::Flow => "flow".into(),
    }
}

/// An endpoint as an option. The canonical form of 0.0.0.0 is an IPv4-mapped address.
fn endpoint_option(endpoint: Endpoint) -> Option<String> {
    match endpoint {
        Endpoint::Any => None,
        Endpoint::Fixed(IpAddr::V4(address)) if address.is_unspecified() => Some("::ffff:0.0.0.0".into()),
        other => Some(endpoint_text(other)),
    }
}

/// An address as the C library prints it: IPv6 addresses of 96 zero bits in front end in dotted decimal.
pub fn address_text(address: IpAddr) -> String {
    match address {
        IpAddr::V6(address) if ends_dotted(&address) => {
            let [.., a, b, c, d] = address.octets();
            format!("::{a}.{b}.{c}.{d}")
        }
        address => address.to_string(),
    }
}

fn ends_dotted(address: &Ipv6Addr) -> bool {
    let segments = address.segments();
    segments[..6] == [0; 6] && segments[6] != 0
}

impl TunnelType {
    /// The type as messages about packet types name it.
    pub(super) fn full_name(self, generic_protocol: bool) -> &'static str {
        match self {
            Self::Vxlan if generic_protocol => "VXLAN-GPE",
            Self::Vxlan => "VXLAN (without GPE)",
            other => other.name(),
        }
    }
}
