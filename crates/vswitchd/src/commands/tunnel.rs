//! Tunnels: `ovs/route/` and `tnl/`, and the addresses of dummy devices.

use super::{Shown, act, show};
use crate::devices::Devices;
use crate::types::DummyLevel;
use base::{DpPort, PortNo};
use routes::commands::{self, CommandError, USAGES};
use routes::{neighbours_to_text, rows_to_text};
use serde_json::{Value, json};
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
            underlay.with_neighbours(routes::Neighbours::flush);
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
    let mut range = devices.egress_ports.lock();
    let [min, max] = args else {
        if !args.is_empty() {
            return Err("Invalid range".to_owned());
        }
        let (min, max) = range.bounds();
        return Ok(format!("Tunnel UDP source port range: {min}-{max}\n"));
    };
    let min = min.parse().map_err(|_| "Invalid min.")?;
    let max = max.parse().map_err(|_| "Invalid max.")?;
    *range = PortRange::new(min, max).ok_or("Invalid range")?;
    devices.all_datapaths().iter().for_each(|dp| dp.dpif.set_tunnel_ports(*range));
    Ok("OK".to_owned())
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
            addresses.into_iter().map(move |(ip, _)| LocalAddress { mac: port.spec.mac, ip })
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
    let (ip, len) = address.split_once('/').unwrap_or((address, if is_v4 { "32" } else { "128" }));
    let family = if is_v4 { "IP" } else { "IPv6" };
    let invalid = || format!("{address}: invalid {family} address");
    let ip: IpAddr = ip.parse().map_err(|_| invalid())?;
    let len: u8 = len.parse().map_err(|_| invalid())?;
    if ip.is_ipv4() != is_v4 || len > if is_v4 { 32 } else { 128 } {
        return Err(invalid());
    }
    devices.underlay.with_router(|router| {
        let mut addresses = router.addresses(name);
        addresses.retain(|(other, _)| *other != ip);
        addresses.push((ip, len));
        router.set_device_addresses(name, &addresses);
    });
    Ok("OK".to_owned())
}
