//! Tunnels: `ovs/route/` and `tnl/`, and the addresses of dummy devices.

use super::{Shown, act, show};
use crate::devices::Devices;
use crate::types::DummyLevel;
use base::{DpPort, PortNo};
use routes::commands::{self, CommandError, USAGES};
use routes::{neighbours_to_text, rows_to_text};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;
use tunnel::header::PortRange;
use tunnel::ports::{Listener, LocalAddress, listeners_text, listeners_verbose_text, rows_text};
use unixctl::{Commands, OutputFormat};

pub(super) fn register(commands: &Commands, devices: &Arc<Devices>) {
    for (name, usage, least, most) in USAGES {
        let arity = least..=most;
        if name.ends_with("/show") || name == "ovs/route/lookup" {
            show(commands, devices, (name, usage, arity), move |d, args, format| shown(d, name, args, format));
        } else {
            act(commands, devices, (name, usage, arity), move |d, args| done(d, name, args));
        }
    }
    act(commands, devices, ("tnl/egress_port_range", "min max", 0..=2), egress_ports);
    show(commands, devices, ("ofproto/list-tunnels", "", 0..=0), list_tunnels);
    show(commands, devices, ("tnl/ports/show", "-v", 0..=1), list_listeners);
    if devices.types.dummy == DummyLevel::Off {
        return;
    }
    for (name, usage) in
        [("netdev-dummy/ip4addr", "[netdev] ipaddr/mask-prefix-len"), ("netdev-dummy/ip6addr", "[netdev] ip6addr")]
    {
        act(commands, devices, (name, usage, 2..=2), move |d, args| add_address(d, args, name.ends_with("ip4addr")));
    }
}

fn texts(args: &[String]) -> Vec<&str> {
    args.iter().map(String::as_str).collect()
}

/// What a command shows.
fn shown(devices: &Devices, name: &str, args: &[String], format: OutputFormat) -> Result<Shown, String> {
    let (args, is_json) = (texts(args), matches!(format, OutputFormat::Json));
    let underlay = &devices.underlay;
    let error = |error: CommandError| error.to_string();
    Ok(match name {
        "ovs/route/lookup" => {
            let text = underlay.with_router(|router| commands::route_lookup(router, &args)).map_err(error)?;
            if !is_json {
                return Ok(text.into());
            }
            let member = |line: &str| line.split_once(' ').map(|(key, value)| (key.to_owned(), value.into()));
            Value::Object(text.lines().filter_map(member).collect()).into()
        }
        "ovs/route/show" => {
            let (which, rows) = underlay.with_router(|router| commands::route_show(router, &args)).map_err(error)?;
            if is_json {
                rows.iter().map(|row| row.to_json()).collect::<Value>().into()
            } else {
                rows_to_text(which, &rows).into()
            }
        }
        "ovs/route/rule/show" => {
            let rules = underlay.with_router(|router| commands::rule_show(router, &args));
            if is_json {
                rules.iter().map(|rule| rule.to_json()).collect::<Value>().into()
            } else {
                rules.iter().map(|rule| format!("{rule}\n")).collect::<String>().into()
            }
        }
        _ => {
            let now = devices.clock.now();
            // Expired neighbours are shown no more, as if the periodic removal had come first.
            let rows = underlay.with_neighbours(|neighbours| {
                neighbours.run(now);
                neighbours.rows(now)
            });
            if !is_json {
                return Ok(neighbours_to_text(&rows).into());
            }
            let row = |row: &routes::NeighbourRow| {
                let mac = row.mac.map(|mac| mac.to_string());
                json!({"ip": row.address.to_string(), "mac": mac, "bridge": row.bridge, "stale": row.stale})
            };
            rows.iter().map(row).collect::<Value>().into()
        }
    })
}

/// Executes a command that changes something, or shows a number.
fn done(devices: &Devices, name: &str, args: &[String]) -> Result<String, String> {
    let args = texts(args);
    let (underlay, now) = (&devices.underlay, devices.clock.now());
    let done = match name {
        "ovs/route/add" => underlay.with_router(|router| commands::route_add(router, &args)).map(|()| None),
        "ovs/route/del" => underlay.with_router(|router| commands::route_del(router, &args)).map(|()| None),
        "ovs/route/rule/add" => underlay.with_router(|router| commands::rule_add(router, &args)).map(|()| None),
        "ovs/route/rule/del" => underlay.with_router(|router| commands::rule_del(router, &args)).map(|()| None),
        "tnl/arp/flush" | "tnl/neigh/flush" => {
            underlay.with_neighbours(|neighbours| neighbours.flush(now));
            Ok(None)
        }
        "tnl/arp/set" | "tnl/neigh/set" => {
            underlay.with_neighbours(|neighbours| commands::neigh_set(neighbours, &args, now)).map(|()| None)
        }
        "tnl/neigh/retrans_time" => underlay.with_neighbours(|n| commands::neigh_retrans_time(n, &args)),
        _ => underlay.with_neighbours(|neighbours| commands::neigh_aging(neighbours, &args, now)),
    };
    done.map(|value| value.unwrap_or_else(|| "OK".to_owned())).map_err(|error| error.to_string())
}

/// Shows or sets the range of the UDP source ports of outer headers.
fn egress_ports(devices: &Devices, args: &[String]) -> Result<String, String> {
    let [min, max] = args else {
        let (min, max) = devices.egress_ports.lock().bounds();
        return Ok(format!("Tunnel UDP source port range: {min}-{max}\n"));
    };
    // As in Open vSwitch, a wrong number is a reply like others, and the order does not matter.
    let Some(min) = udp_port(min) else { return Ok("Invalid min.".to_owned()) };
    let Some(max) = udp_port(max) else { return Ok("Invalid max.".to_owned()) };
    let Some(range) = PortRange::new(min.min(max), min.max(max)) else { return Ok("Invalid max.".to_owned()) };
    *devices.egress_ports.lock() = range;
    // A datapath that is made meanwhile has read the old range, and is in the list then, or reads the new one.
    for dp in devices.all_datapaths() {
        dp.dpif.set_tunnel_ports(*devices.egress_ports.lock());
    }
    Ok("OK".to_owned())
}

/// The UDP port that a text begins with.
fn udp_port(text: &str) -> Option<u16> {
    let text = text.trim_start();
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok().filter(|port| *port != 0)
}

fn list_tunnels(devices: &Devices, _args: &[String], format: OutputFormat) -> Result<Shown, String> {
    let (mut text, mut all) = (String::new(), Vec::new());
    for (_, dp) in devices.datapaths() {
        let rows = dp.switch.network().tunnels.ports.read().rows();
        if matches!(format, OutputFormat::Json) {
            let row = |row: &tunnel::ports::Row| {
                let DpPort(number) = row.datapath_port;
                json!({"name": &*row.name, "port": number, "config": row.description})
            };
            all.extend(rows.iter().map(row));
        } else {
            text += &rows_text(&rows);
        }
    }
    Ok(if matches!(format, OutputFormat::Json) { Value::from(all).into() } else { text.into() })
}

/// Shows the ports of the datapaths for tunnels, and with `-v` the packets that each receives at each address.
fn list_listeners(devices: &Devices, args: &[String], format: OutputFormat) -> Result<Shown, String> {
    let is_verbose = !args.is_empty();
    let (mut listeners, mut addresses) = (Vec::new(), Vec::new());
    for (_, dp) in devices.datapaths() {
        listeners.extend(dp.switch.network().tunnels.ports.read().listeners());
        let own = dp.switch.bridges().into_iter().filter_map(|bridge| bridge.port(PortNo::LOCAL));
        addresses.extend(own.flat_map(|port| {
            let addresses = devices.underlay.with_router(|router| router.addresses(&port.spec.name));
            // An address may be there with several links' prefixes.
            let ips: BTreeSet<_> = addresses.into_iter().map(|(ip, _)| ip).collect();
            ips.into_iter().map(move |ip| LocalAddress { mac: port.spec.mac, ip })
        }));
    }
    if matches!(format, OutputFormat::Json) {
        let row = |listener: &Listener| {
            let DpPort(number) = listener.datapath_port;
            let mut row = json!({
                "name": listener.name, "port": number, "references": listener.references,
                "protocol": listener.protocol, "udp_port": listener.udp_port,
            });
            if is_verbose {
                let address = |at: &LocalAddress| json!({"mac": at.mac.to_string(), "ip": at.ip.to_string()});
                row["addresses"] = addresses.iter().map(address).collect::<Value>();
            }
            row
        };
        return Ok(listeners.iter().map(row).collect::<Value>().into());
    }
    let text = if is_verbose { listeners_verbose_text(&listeners, &addresses) } else { listeners_text(&listeners) };
    Ok(text.into())
}

/// Gives a dummy device an address.
fn add_address(devices: &Devices, args: &[String], is_v4: bool) -> Result<String, String> {
    let [name, address] = args else { return Err("No netdev".to_owned()) };
    devices.dummies.find(name).ok_or("Unknown Dummy Interface")?;
    let added = interface_address(address, is_v4).map_err(|error| format!("{address}: {error}"))?;
    devices.underlay.with_router(|router| {
        let mut addresses = router.addresses(name);
        addresses.retain(|other| *other != added);
        addresses.push(added);
        router.set_device_addresses(name, &addresses);
    });
    Ok("OK".to_owned())
}

/// Parses an address with the length or mask of its link's prefix; without one, the link has no other address.
fn interface_address(text: &str, is_v4: bool) -> Result<(IpAddr, u8), String> {
    let (address_family, family, width) = if is_v4 { ("IP", "IPv4", 32) } else { ("IPv6", "IPv6", 128) };
    let invalid = || format!("invalid {address_family} address");
    let (ip, link) = text.split_once('/').map_or((text, None), |(ip, link)| (ip, Some(link)));
    let ip: IpAddr = ip.parse().ok().filter(|ip: &IpAddr| ip.is_ipv4() == is_v4).ok_or_else(invalid)?;
    let Some(link) = link else { return Ok((ip, width)) };
    let digits = link.strip_prefix('-').unwrap_or(link);
    if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) {
        let out_of_range = || format!("{family} network prefix bits not between 0 and {width}, inclusive");
        return link.parse().ok().filter(|len| *len <= width).map(|len| (ip, len)).ok_or_else(out_of_range);
    }
    let (ones, zeros) = match link.parse::<IpAddr>().map_err(|_| invalid())? {
        IpAddr::V4(mask) if is_v4 => (mask.to_bits().leading_ones(), mask.to_bits().trailing_zeros()),
        IpAddr::V6(mask) if !is_v4 => (mask.to_bits().leading_ones(), mask.to_bits().trailing_zeros()),
        _ => return Err(invalid()),
    };
    let cidr = if is_v4 { "CIDR" } else { "IPv6 CIDR" };
    // At most 128.
    let is_contiguous = ones + zeros == u32::from(width);
    is_contiguous.then_some((ip, ones as u8)).ok_or_else(|| format!("{cidr} network required"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_dummies_are_parsed_with_lengths_and_masks() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        for (text, wanted) in [
            ("1.2.3.4", Ok((ip("1.2.3.4"), 32))),
            ("1.2.3.4/0", Ok((ip("1.2.3.4"), 0))),
            ("1.2.3.4/255.255.0.0", Ok((ip("1.2.3.4"), 16))),
            ("1.2.3.4/0.0.0.0", Ok((ip("1.2.3.4"), 0))),
            ("1.2.3.4/255.0.255.0", Err("CIDR network required")),
            ("1.2.3.4/33", Err("IPv4 network prefix bits not between 0 and 32, inclusive")),
            ("1.2.3.4/-1", Err("IPv4 network prefix bits not between 0 and 32, inclusive")),
            ("1.2.3.4/", Err("invalid IP address")),
            ("1.2.3.4/5x", Err("invalid IP address")),
            ("1.2.3.4/ffff::", Err("invalid IP address")),
            ("::1/64", Err("invalid IP address")),
        ] {
            assert_eq!(interface_address(text, true), wanted.map_err(str::to_owned), "{text}");
        }
        for (text, wanted) in [
            ("::1/64", Ok((ip("::1"), 64))),
            ("::1/ffff::", Ok((ip("::1"), 16))),
            ("::1/ff:0:ff::", Err("IPv6 CIDR network required")),
            ("::1/129", Err("IPv6 network prefix bits not between 0 and 128, inclusive")),
            ("1.2.3.4/24", Err("invalid IPv6 address")),
        ] {
            assert_eq!(interface_address(text, false), wanted.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn ports_are_the_numbers_that_texts_begin_with() {
        let ports = ["5", "5x", " 7", "+9", "65535", "0", "65536", "-1", "x", "", "99999999999"].map(udp_port);
        assert_eq!(ports, [Some(5), Some(5), Some(7), Some(9), Some(65535), None, None, None, None, None, None]);
    }
}
