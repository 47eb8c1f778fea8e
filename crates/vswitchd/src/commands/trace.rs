//! `ofproto/trace` and `ofproto/trace-packet-out`: reading what is to be traced.
//!
//! Flows come as OpenFlow matches with a bridge's name before them, or in the syntax of datapath flows, with or without a
//! datapath's name. A packet behind the flow gives the headers, the flow the rest. The actions of a packet-out come last.

use super::{compose, find_bridge, from_hex, port_number, show};
use crate::devices::{Devices, Dp};
use flow::FlowKey;
use ofproto::Ofproto;
use openflow::Version;
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};
use xlate::Start;

/// Bytes of payload in a packet that is made up, unless told otherwise.
const PAYLOAD_LEN: usize = 64;

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    let usage = "{[dp_name] odp_flow | bridge br_flow} [OPTIONS...] [-generate|packet]";
    show(commands, devices, ("ofproto/trace", usage, 1..=usize::MAX), |d, args, format| {
        Request::parse(args)?.run(d, None, format)
    });
    let usage = "[-consistent] {[dp_name] odp_flow | bridge br_flow} [OPTIONS...] [-generate|packet] actions";
    show(commands, devices, ("ofproto/trace-packet-out", usage, 2..=usize::MAX), |d, args, format| {
        let (text, args) = args.split_last().ok_or("too few arguments")?;
        let actions = openflow::parse_actions(text, &flow::text::NoNames).map_err(|e| e.to_string())?;
        Request::parse(args)?.run(d, Some(&actions), format)
    });
    show(commands, devices, ("ofproto/detrace", "UFID [pmd=PMD-ID]", 1..=2), detrace);
}

/// The other way round: from a cached flow to the flows of OpenFlow tables.
fn detrace(devices: &Devices, args: &[String], format: OutputFormat) -> Result<super::Shown, String> {
    let [id, pmd @ ..] = args else { return Err("a flow's ufid is to be given".to_owned()) };
    let id = id.starts_with("ufid:").then(|| devices.ufids.parse(id)).flatten().ok_or("failed to parse ufid")?;
    // All packet threads share the cached flows, so that a thread's number narrows nothing.
    if pmd.first().is_some_and(|word| word.strip_prefix("pmd=").is_none_or(|n| n.parse::<u32>().is_err())) {
        return Err("Invalid pmd argument format. Expecting 'pmd=PMD-ID'".to_owned());
    }
    let mut missing = String::new();
    for (kind, dp) in devices.datapaths() {
        if let Some(rules) = id.and_then(|id| dp.switch.detrace(id)) {
            return Ok(match format {
                OutputFormat::Text => ofproto::show::detrace(&rules, &flow::text::NoNames).into(),
                OutputFormat::Json => ofproto::show::detrace_json(&rules, &flow::text::NoNames).into(),
            });
        }
        missing += &format!("UFID was not found for {kind}@ovs-{kind}\n");
    }
    Ok(missing.into())
}

fn packet_bytes(text: &str) -> Result<Vec<u8>, String> {
    let bytes = from_hex(text).ok_or("Trailing garbage in packet data")?;
    if bytes.len() < 14 {
        return Err("Packet data too short for Ethernet".to_owned());
    }
    Ok(bytes)
}

/// The command line, taken apart.
#[derive(Debug)]
struct Request<'a> {
    names: bool,
    generate: bool,
    /// A packet-out is refused if its actions do not fit its flow, as OpenFlow 1.1 and later do it.
    consistent: bool,
    payload: Vec<u8>,
    ct_next: Vec<u32>,
    words: Vec<&'a str>,
}

impl<'a> Request<'a> {
    fn parse(args: &'a [String]) -> Result<Self, String> {
        let mut request = Self {
            names: false,
            generate: false,
            consistent: false,
            payload: vec![0; PAYLOAD_LEN],
            ct_next: Vec::new(),
            words: Vec::new(),
        };
        let mut args = args.iter().map(String::as_str);
        while let Some(arg) = args.next() {
            match arg {
                "--names" => request.names = true,
                "--no-names" => request.names = false,
                "-generate" | "--generate" => request.generate = true,
                "-consistent" | "--consistent" => request.consistent = true,
                // What connection tracking finds, each time that the packet comes back from it.
                "--ct-next" => {
                    let text = args.next().ok_or("Missing argument for option --ct-next")?;
                    request.ct_next.push(connection_state(text)?);
                }
                "--l7" => {
                    let text = args.next().ok_or("Missing argument for option --l7")?;
                    request.payload = from_hex(text).ok_or("Invalid --l7 option")?;
                }
                "--l7-len" => {
                    let text = args.next().ok_or("Missing argument for option --l7-len")?;
                    let len = text.parse().ok().filter(|len| *len <= 64_000).ok_or("Invalid --l7-len option")?;
                    request.payload = vec![0; len];
                }
                option if option.starts_with('-') => return Err(format!("{option}: unknown option")),
                word => request.words.push(word),
            }
        }
        match request.words.len() {
            // `-generate` and a packet exclude each other.
            3 if request.generate => Err("Syntax error".to_owned()),
            0 => Err("too few arguments".to_owned()),
            1..=3 => Ok(request),
            _ => Err("too many arguments".to_owned()),
        }
    }

    /// Traces it: through the tables, or from the actions of a packet-out on.
    fn run(
        &self,
        devices: &Devices,
        actions: Option<&[openflow::Action]>,
        format: OutputFormat,
    ) -> Result<super::Shown, String> {
        if self.consistent && actions.is_none() {
            return Err("-consistent: unknown option".to_owned());
        }
        let bytes = self.packet().map(packet_bytes).transpose()?;
        let (bridge, mut key) = self.subject(devices)?;
        let mut packet = None;
        if let Some(bytes) = bytes {
            let switch = bridge.switch().ok_or("bridge is being removed")?;
            let extracted = switch.key_of(&bytes, key.in_port());
            // What the flow says of metadata holds; what it says of headers, the packet says better.
            key.0[flow::layout::ETH_DST..].copy_from_slice(&extracted.0[flow::layout::ETH_DST..]);
            packet = Some(packet::Packet::from_slice(&bytes));
        } else if self.generate {
            packet = Some(compose(&key, &self.payload));
        }
        if let Some(actions) = actions {
            let exactly = flow::Match::new(&key, FlowKey([u64::MAX; flow::WORDS]));
            // Before OpenFlow 1.1, actions that do not fit do nothing.
            let version = if self.consistent { Version::V13 } else { Version::V10 };
            let limits = openflow::Limits::new(version, 0);
            openflow::check(actions, &exactly, &limits).map_err(|e| format!("Bad actions: {}", e.name()))?;
        }
        let start = actions.map_or(Start::Tables, Start::Actions);
        let traced = bridge.trace_from(&key, start, self.names, &self.ct_next, packet.as_ref())?;
        if let Some(packet) = packet {
            bridge.side_effects(&key, start, packet);
        }
        Ok(match format {
            OutputFormat::Text => traced.text().into(),
            OutputFormat::Json => traced.json().into(),
        })
    }

    /// The packet's digits, if there are any.
    fn packet(&self) -> Option<&'a str> {
        match self.words[..] {
            [_, _, packet] => Some(packet),
            [_, packet] if !self.generate && packet_bytes(packet).is_ok() => Some(packet),
            _ => None,
        }
    }

    /// The bridge, and the key with the ingress port in its numbering.
    fn subject(&self, devices: &Devices) -> Result<(Arc<Ofproto>, FlowKey), String> {
        let or_bridge = |error: String| {
            if error.starts_with("syntax") { format!("{error} (or the bridge name was omitted)") } else { error }
        };
        match self.words[..] {
            [flow] => from_dp_flow(&devices.datapaths(), flow).map_err(or_bridge),
            [flow, _] if self.packet().is_some() => from_dp_flow(&devices.datapaths(), flow).map_err(or_bridge),
            [name, flow, ..] if is_dp_flow(flow) => {
                let mut datapaths = devices.datapaths();
                // Here the name is that of the type, with or without what Open vSwitch puts in front of it.
                datapaths.retain(|(kind, _)| name.strip_prefix("ovs-").unwrap_or(name) == kind);
                if datapaths.is_empty() {
                    return Err("Cannot find the datapath".to_owned());
                }
                from_dp_flow(&datapaths, flow)
            }
            [name, flow, ..] => {
                let bridge = find_bridge(devices, name).ok_or_else(|| format!("{name}: unknown bridge"))?;
                let key = bridge.parse_trace_flow(flow)?;
                Ok((bridge, key))
            }
            [] => Err("too few arguments".to_owned()),
        }
    }
}

/// Reads a list of flags of connection tracking, between commas or blanks.
fn connection_state(text: &str) -> Result<u32, String> {
    const NAMES: [&str; 8] = ofproto::trace_ct::CT_STATES;
    let words: Vec<&str> = text.split([',', ' ']).filter(|flag| !flag.is_empty()).collect();
    if let Some(unknown) = words.iter().find(|flag| !NAMES.contains(flag)) {
        return Err(format!("{unknown}: unknown connection tracking state flag"));
    }
    let flags: Vec<&str> = NAMES.into_iter().filter(|name| words.contains(name)).collect();
    let has = |flag| flags.contains(&flag);
    let wrong = if !has("trk") && !flags.is_empty() {
        "If \"trk\" is unset, no other flags are set"
    } else if has("inv") && flags.len() > 2 {
        "when \"inv\" is set, only \"trk\" may also be set"
    } else if has("new") && has("est") {
        "\"new\" and \"est\" are mutually exclusive"
    } else if has("new") && has("rpl") {
        "\"new\" and \"rpy\" are mutually exclusive"
    } else {
        return Ok(NAMES.iter().enumerate().filter(|(_, name)| has(name)).fold(0, |state, (bit, _)| state | 1 << bit));
    };
    Err(format!("{}: invalid connection state: {wrong}", flags.join("|")))
}

/// Whether the text has the syntax of datapath flows. Names of ports may be any.
fn is_dp_flow(text: &str) -> bool {
    let parsed = dpif::text::parse_key_of_flow(text, &|_| Some(base::DpPort::NONE));
    matches!(parsed, Ok(_) | Err(dpif::text::KeyError::NoTtl(_)))
}

fn from_dp_flow(datapaths: &[(String, Dp)], text: &str) -> Result<(Arc<Ofproto>, FlowKey), String> {
    let mut error = "no datapath".to_owned();
    for (_, dp) in datapaths {
        let mut key =
            match dpif::text::parse_key_of_packet(text, &dp.dpif.tunnel_options(), &|name| port_number(dp, name)) {
                Ok(key) => key,
                Err(e) => {
                    error = e.to_string();
                    continue;
                }
            };
        let port = base::DpPort(key.in_port().0);
        let is_from_tunnel =
            [flow::Field::TunDst, flow::Field::TunIpv6Dst].into_iter().any(|field| key.get(field) != 0);
        let owner = if is_from_tunnel { dp.switch.tunnel_of(port, &key) } else { dp.switch.port_of(port) };
        let found = owner.and_then(|(id, no)| Some((dp.switch.bridge(id)?, no)));
        if let Some((bridge, no)) = found {
            let recirc_id = key.get(flow::Field::RecircId) as u32;
            if recirc_id != 0 && dp.switch.network().frozen.get(recirc_id).is_none() {
                return Err(format!("no recirculation data for recirc_id {recirc_id:#x}"));
            }
            key.set_in_port(no);
            return Ok((bridge, key));
        }
        error = if is_from_tunnel {
            "no OpenFlow tunnel port for this packet".to_owned()
        } else {
            format!("no OpenFlow port for datapath port {port}")
        };
    }
    Err(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    fn error(text: &str) -> String {
        Request::parse(&words(text)).unwrap_err()
    }

    #[test]
    fn options() {
        let line = words("br0 -generate tcp --l7-len 5 --names");
        let request = Request::parse(&line).unwrap();
        assert_eq!((request.names, request.generate, request.payload.len()), (true, true, 5));
        assert_eq!(request.words, ["br0", "tcp"]);
        assert_eq!(request.packet(), None);
        assert!(Request::parse(&words("br0 in_port=1 --ct-next trk,new --ct-next est,trk")).is_ok());
        assert_eq!(error("br0 in_port=1 --ct-next"), "Missing argument for option --ct-next");
        assert_eq!(error("br0 in_port=1 --ct-next bogus"), "bogus: unknown connection tracking state flag");
        assert_eq!(
            error("br0 in_port=1 --ct-next new"),
            "new: invalid connection state: If \"trk\" is unset, no other flags are set"
        );
        assert_eq!(
            error("br0 in_port=1 --ct-next trk,new,est"),
            "new|est|trk: invalid connection state: \"new\" and \"est\" are mutually exclusive"
        );
        assert_eq!(error("--bad br0 in_port=1"), "--bad: unknown option");
        assert_eq!(error("a b c d"), "too many arguments");
        assert_eq!(error("-generate"), "too few arguments");
    }

    #[test]
    fn packets() {
        assert_eq!(Request::parse(&words("br0 in_port=1 00")).unwrap().packet(), Some("00"));
        // Of two words, the second is a packet if it can be one, and a flow otherwise.
        assert_eq!(Request::parse(&words("in_port(1) 00")).unwrap().packet(), None);
        let packet = "02000000000102000000000288b5";
        assert_eq!(Request::parse(&words(&format!("in_port(1) {packet}"))).unwrap().packet(), Some(packet));
        assert_eq!(packet_bytes("zz").unwrap_err(), "Trailing garbage in packet data");
        assert_eq!(packet_bytes("0000").unwrap_err(), "Packet data too short for Ethernet");
        assert_eq!(packet_bytes("0200 0000000102000000 0002 1234").unwrap().len(), 14);
    }
}
