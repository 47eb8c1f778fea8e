//! The options of an interface read from the database's map of strings.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{
    Config, Endpoint, Erspan, ErspanValue, FlowLabel, Key, Layers, PacketMode, SEGMENTS_MAX, Tos, Ttl, number,
};
use crate::TunnelType;
use crate::options::Checksum;

/// Ethernet types that `payload_type` names.
const PAYLOAD_TYPES: [(&str, u16); 2] = [("mpls", 0x8847), ("ip", 0x0800)];

/// The options of IPsec, which only `ovs-monitor-ipsec` reads, beside all that start with `ipsec_`.
const IPSEC: [&str; 3] = ["psk", "remote_cert", "remote_name"];

/// A configuration that has been read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Parsed {
    /// The configuration.
    pub config: Config,
    /// Warnings about ignored options, sorted by the options' names; logged together as one message.
    pub warnings: Vec<String>,
    /// Errors that Open vSwitch logs about malformed addresses in front of the warnings.
    pub address_errors: Vec<String>,
}

/// The reason why an interface cannot have its options. Its text is the interface's `error`.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OptionError {
    /// An option is missing, or its value is not acceptable.
    #[error("{}", .messages.join("\n"))]
    Invalid {
        /// Warnings, and at last the error, each a line.
        messages: Vec<String>,
        /// Errors that Open vSwitch logs about malformed addresses in front of the messages.
        address_errors: Vec<String>,
    },
    /// An interface of the other sort has the UDP port.
    #[error("{name}: VXLAN-GBP, and non-VXLAN-GBP tunnels can't be configured on the same dst_port")]
    GroupPolicyMixed {
        /// The interface.
        name: String,
    },
}

impl Config {
    /// Reads the options of the interface `name`.
    ///
    /// # Errors
    ///
    /// [`OptionError::Invalid`]; the port must not be used then.
    pub fn parse(
        name: &str,
        tunnel_type: TunnelType,
        options: &BTreeMap<String, String>,
    ) -> Result<Parsed, OptionError> {
        let mut parser = Parser {
            name,
            options,
            config: Self::of_type(tunnel_type),
            families: [None; 2],
            warnings: Vec::new(),
            address_errors: Vec::new(),
            erspan: ErspanOptions::default(),
        };
        match parser.run() {
            Ok(()) => {
                let Parser { config, warnings, address_errors, .. } = parser;
                Ok(Parsed { config, warnings, address_errors })
            }
            Err(error) => {
                let Parser { warnings: mut messages, address_errors, .. } = parser;
                messages.push(format!("{name}: {error}"));
                Err(OptionError::Invalid { messages, address_errors })
            }
        }
    }
}

/// An address family as the text of an address shows it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

/// Options of ERSPAN before the version selects among them.
#[derive(Default)]
struct ErspanOptions {
    version: Option<ErspanValue>,
    index: Option<ErspanValue>,
    direction: Option<ErspanValue>,
    hardware_id: Option<ErspanValue>,
}

struct Parser<'a> {
    name: &'a str,
    options: &'a BTreeMap<String, String>,
    config: Config,
    /// Of `remote_ip` and `local_ip`, if they are well-formed addresses.
    families: [Option<Family>; 2],
    warnings: Vec<String>,
    address_errors: Vec<String>,
    erspan: ErspanOptions,
}

impl Parser<'_> {
    fn run(&mut self) -> Result<(), String> {
        let options = self.options;
        let mut refused = None;
        for (key, value) in options {
            if let Err(error) = self.option(key, value) {
                refused.get_or_insert(error);
            }
        }
        if let Some(error) = refused {
            return Err(error);
        }
        self.keys();
        self.config.erspan = self.erspan_fields();
        self.packet_mode()?;
        self.endpoints()
    }

    fn warn(&mut self, what: impl std::fmt::Display) {
        self.warnings.push(format!("{}: {what}", self.name));
    }

    fn option(&mut self, key: &str, value: &str) -> Result<(), String> {
        let tunnel_type = self.config.tunnel_type;
        match key {
            "remote_ip" => self.remote(value)?,
            "local_ip" => self.local(value),
            "tos" => self.tos(value),
            "ttl" => {
                self.config.ttl = match value {
                    "inherit" => Ttl::Inherit,
                    number => match number::truncated(number, 10) as u8 {
                        0 => Ttl::Fixed(Ttl::DEFAULT),
                        ttl => Ttl::Fixed(ttl),
                    },
                }
            }
            "dst_port" if tunnel_type.default_port().is_some() => {
                self.config.dst_port = number::truncated(value, 10) as u16;
            }
            "csum" if tunnel_type.has_checksum() => {
                self.config.checksum = match value {
                    "true" => Checksum::On,
                    "false" => Checksum::Off,
                    _ => Checksum::Default,
                }
            }
            "seq" if tunnel_type.has_sequence() => self.config.sequence = value == "true",
            "df_default" => self.config.dont_fragment = value != "false",
            "exts" if tunnel_type == TunnelType::Vxlan => self.extensions(value),
            "egress_pkt_mark" => self.config.egress_mark = Some(number::unsigned(value, 10) as u32),
            "payload_type" => self.config.payload_type = payload_type(value)?,
            "srv6_segs" => self.segments(value),
            "srv6_flowlabel" => {
                self.config.flow_label = match value {
                    "zero" => FlowLabel::Zero,
                    "compute" => FlowLabel::Compute,
                    _ => FlowLabel::Copy,
                }
            }
            "key" | "in_key" | "out_key" | "packet_type" => (),
            key if key.starts_with("erspan_") && self.erspan_option(key, value)? => (),
            key if IPSEC.contains(&key) || key.starts_with("ipsec_") => (),
            key => self.warn(format_args!("unknown {} argument '{key}'", tunnel_type.name())),
        }
        Ok(())
    }

    fn remote(&mut self, value: &str) -> Result<(), String> {
        if value == "flow" {
            self.config.remote = Endpoint::Flow;
            return Ok(());
        }
        let Some((address, family)) = self.address("remote_ip", value) else { return Ok(()) };
        let is_multicast = match (address, family) {
            (IpAddr::V4(address), Family::V4) => address.is_multicast(),
            (IpAddr::V6(address), _) => address.is_multicast(),
            (IpAddr::V4(_), Family::V6) => false,
        };
        if is_multicast {
            return Err(format!("multicast remote_ip={value} not allowed"));
        }
        self.families[0] = Some(family);
        self.config.remote = endpoint(address);
        Ok(())
    }

    fn local(&mut self, value: &str) {
        if value == "flow" {
            self.config.local = Endpoint::Flow;
        } else if let Some((address, family)) = self.address("local_ip", value) {
            self.families[1] = Some(family);
            self.config.local = endpoint(address);
        }
    }

    /// An address and the family of its text: an IPv4-mapped IPv6 address becomes an IPv4 address.
    fn address(&mut self, option: &str, value: &str) -> Option<(IpAddr, Family)> {
        let parsed = if value.contains(':') {
            value.parse::<Ipv6Addr>().ok().map(|address| (IpAddr::V6(address).to_canonical(), Family::V6))
        } else {
            value.parse::<Ipv4Addr>().ok().map(|address| (address.into(), Family::V4))
        };
        if parsed.is_none() {
            let version = if value.contains(':') { "IPv6" } else { "IP" };
            self.address_errors.push(format!("\"{value}\" is not a valid {version} address"));
            self.warn(format_args!("bad {} '{option}'", self.config.tunnel_type.name()));
        }
        parsed
    }

    fn tos(&mut self, value: &str) {
        match number::whole(value) {
            _ if value == "inherit" => self.config.tos = Tos::Inherit,
            Some(tos) if tos & !0xfc == 0 => self.config.tos = Tos::Fixed(tos as u8),
            _ => self.warn(format_args!("invalid TOS {value}")),
        }
    }

    fn extensions(&mut self, value: &str) {
        for extension in value.split(',').filter(|extension| !extension.is_empty()) {
            match extension {
                "gbp" => self.config.group_policy = true,
                "gpe" => self.config.generic_protocol = true,
                unknown => self.warn(format_args!("unknown extension '{unknown}'")),
            }
        }
    }

    /// Segments up to a malformed one or the largest number. The warning names the first of all.
    fn segments(&mut self, value: &str) {
        let mut texts = value.split(',').filter(|text| !text.is_empty());
        let first = texts.clone().next().unwrap_or_default();
        let mut segments = Vec::with_capacity(SEGMENTS_MAX);
        let is_complete = texts.all(|text| match text.parse() {
            Ok(segment) if segments.len() < SEGMENTS_MAX => {
                segments.push(segment);
                true
            }
            _ => false,
        });
        if !is_complete {
            self.warn(format_args!("bad {first} 'srv6_segs'"));
        }
        self.config.segments = segments.into();
    }

    /// Returns false if there is no such option.
    fn erspan_option(&mut self, key: &str, value: &str) -> Result<bool, String> {
        let fixed = |number: u32, is_valid: bool, what| match value {
            "flow" => Ok(Some(ErspanValue::Flow)),
            _ if is_valid => Ok(Some(ErspanValue::Fixed(number))),
            _ => Err(format!("invalid erspan {what}: {value}")),
        };
        let octet = |base| u32::from(number::truncated(value, base) as u8);
        match key {
            "erspan_ver" => self.erspan.version = fixed(octet(10), matches!(octet(10), 1 | 2), "version")?,
            "erspan_idx" => {
                let index = number::truncated(value, 16);
                self.erspan.index = fixed(index, index <= 0xf_ffff, "index")?;
            }
            "erspan_dir" => self.erspan.direction = fixed(octet(10), octet(10) <= 1, "direction")?,
            "erspan_hwid" => self.erspan.hardware_id = fixed(octet(16), octet(16) <= 0x3f, "hardware ID")?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn erspan_fields(&self) -> Erspan {
        let ErspanOptions { version, index, direction, hardware_id } = self.erspan;
        let value = |value: Option<ErspanValue>| value.unwrap_or(ErspanValue::Fixed(0));
        match version {
            None => Erspan::Unset,
            Some(ErspanValue::Flow) => Erspan::Flow,
            Some(ErspanValue::Fixed(1)) => Erspan::V1 { index: value(index) },
            Some(ErspanValue::Fixed(_)) => Erspan::V2 { direction: value(direction), hardware_id: value(hardware_id) },
        }
    }

    /// The keys: that of a direction, else the common one.
    fn keys(&mut self) {
        let key = |option: &str| match self.options.get(option).or_else(|| self.options.get("key")) {
            None => Key::Absent,
            Some(value) if value == "flow" => Key::Flow,
            Some(value) => Key::Fixed(number::unsigned(value, 0)),
        };
        (self.config.in_key, self.config.out_key) = (key("in_key"), key("out_key"));
    }

    fn packet_mode(&mut self) -> Result<(), String> {
        let Some(value) = self.options.get("packet_type") else {
            self.config.packets = self.config.default_packets();
            return Ok(());
        };
        let Some((name, mode)) = PacketMode::ALL.into_iter().find(|(name, _)| name == value) else {
            return Err(format!("unknown packet_type '{value}'"));
        };
        let missing = match (mode, self.config.layers()) {
            (PacketMode::LegacyL2, Layers::L3) => Some("L2"),
            (PacketMode::LegacyL3, Layers::L2) => Some("L3"),
            _ => None,
        };
        if let Some(layer) = missing {
            let type_name = self.config.tunnel_type.full_name(self.config.generic_protocol);
            return Err(format!("{name} configured on {type_name} tunnel that cannot carry {layer} traffic"));
        }
        self.config.packets = mode;
        Ok(())
    }

    fn endpoints(&self) -> Result<(), String> {
        let type_name = self.config.tunnel_type.name();
        if self.config.remote == Endpoint::Any {
            return Err(format!("{type_name} type requires valid 'remote_ip' argument"));
        }
        if self.config.local == Endpoint::Flow && self.config.remote != Endpoint::Flow {
            return Err(format!("{type_name} type requires 'remote_ip=flow' with 'local_ip=flow'"));
        }
        match self.families {
            [Some(remote), Some(local)] if remote != local => {
                Err("'remote_ip' and 'local_ip' has to be of the same address family".into())
            }
            _ => Ok(()),
        }
    }
}

/// The IPv6 address of zeros is no endpoint.
fn endpoint(address: IpAddr) -> Endpoint {
    if address == IpAddr::V6(Ipv6Addr::UNSPECIFIED) { Endpoint::Any } else { Endpoint::Fixed(address) }
}

fn payload_type(value: &str) -> Result<u16, String> {
    let named = PAYLOAD_TYPES.iter().find(|(name, _)| *name == value).map(|(_, number)| *number);
    let number = || {
        let number = (!value.is_empty()).then(|| number::whole(value))??;
        u16::try_from(number).ok()
    };
    named.or_else(number).ok_or_else(|| format!("bad {value} 'payload_type'"))
}
