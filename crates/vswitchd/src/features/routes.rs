//! The kernel's IPv4 routes and neighbours (`route` and `arp` in proc(5)): by which station an address is reached.

use base::MacAddr;
use std::net::Ipv4Addr;

const FLAG_UP: u32 = 1;
/// Of a neighbour: its address is known (ATF_COM).
const FLAG_COMPLETE: u32 = 2;

/// Routes and neighbours at some moment.
#[derive(Debug, Default)]
pub struct Routes {
    routes: Vec<Route>,
    neighbours: Vec<(Ipv4Addr, String, MacAddr)>,
}

#[derive(Debug)]
struct Route {
    device: String,
    destination: u32,
    /// Zero for a network that is reached directly.
    gateway: u32,
    mask: u32,
    metric: u32,
}

impl Routes {
    /// As they are now. Where the kernel does not tell, there are none.
    pub fn read() -> Self {
        let text = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self::parse(&text("/proc/net/route"), &text("/proc/net/arp"))
    }

    fn parse(routes: &str, neighbours: &str) -> Self {
        Self {
            routes: routes.lines().skip(1).filter_map(Route::parse).collect(),
            neighbours: neighbours.lines().skip(1).filter_map(parse_neighbour).collect(),
        }
    }

    /// The Ethernet address that packets to `address` are sent to: its own or a gateway's, if it is known.
    pub fn station_on_the_way_to(&self, address: Ipv4Addr) -> Option<MacAddr> {
        let number = u32::from(address);
        let fitting = self.routes.iter().filter(|route| number & route.mask == route.destination);
        let route = fitting.max_by_key(|route| (route.mask, std::cmp::Reverse(route.metric)))?;
        let hop = if route.gateway == 0 { address } else { Ipv4Addr::from(route.gateway) };
        let station = self.neighbours.iter().find(|(ip, device, _)| *ip == hop && *device == route.device);
        station.map(|(.., mac)| *mac)
    }
}

impl Route {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [device, destination, gateway, flags, _, _, metric, mask, ..] = words[..] else { return None };
        // Addresses are in the machine's order.
        let address = |hex: &str| u32::from_str_radix(hex, 16).ok().map(u32::to_be);
        (u32::from_str_radix(flags, 16).ok()? & FLAG_UP != 0).then_some(())?;
        Some(Self {
            device: device.to_owned(),
            destination: address(destination)?,
            gateway: address(gateway)?,
            mask: address(mask)?,
            metric: metric.parse().ok()?,
        })
    }
}

fn parse_neighbour(line: &str) -> Option<(Ipv4Addr, String, MacAddr)> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let [address, _, flags, mac, _, device] = words[..] else { return None };
    let flags = u32::from_str_radix(flags.strip_prefix("0x")?, 16).ok()?;
    (flags & FLAG_COMPLETE != 0).then_some(())?;
    Some((address.parse().ok()?, device.to_owned(), mac.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An address as the kernel writes it on this machine.
    fn hex(address: &str) -> String {
        format!("{:08X}", u32::from(address.parse::<Ipv4Addr>().unwrap()).to_be())
    }

    #[test]
    fn the_longest_prefix_and_the_lowest_metric_say_who_it_is() {
        let line = |device: &str, to: &str, via: &str, flags: &str, metric: u32, mask: &str| {
            format!("{device}\t{}\t{}\t{flags}\t0\t0\t{metric}\t{}\t0\t0\t0\n", hex(to), hex(via), hex(mask))
        };
        let routes = [
            "Iface\tDestination\tGateway ...\n".to_owned(),
            line("eth0", "0.0.0.0", "10.0.0.1", "0003", 100, "0.0.0.0"),
            line("eth1", "0.0.0.0", "10.9.0.1", "0003", 50, "0.0.0.0"),
            line("br0", "10.1.1.0", "0.0.0.0", "0001", 0, "255.255.255.0"),
            line("eth0", "10.1.1.7", "10.0.0.1", "0002", 0, "255.255.255.255"),
            "nonsense\n".to_owned(),
        ]
        .concat();
        let neighbours = "IP address HW type Flags HW address Mask Device\n\
            10.1.1.2 0x1 0x2 02:00:00:00:00:02 * br0\n\
            10.1.1.3 0x1 0x0 00:00:00:00:00:00 * br0\n\
            10.9.0.1 0x1 0x2 02:00:00:00:00:09 * eth1\n\
            10.1.1.4 0x1 0x2 02:00:00:00:00:04 * eth0\n\
            bad\n";
        let routes = Routes::parse(&routes, neighbours);
        let station = |address: &str| routes.station_on_the_way_to(address.parse().unwrap()).map(|mac| mac.0[5]);
        assert_eq!(station("10.1.1.2"), Some(2));
        // Not resolved; known elsewhere only; by a route that is down there would be another.
        assert_eq!((station("10.1.1.3"), station("10.1.1.4"), station("10.1.1.7")), (None, None, None));
        assert_eq!(station("192.0.2.1"), Some(9));
        assert_eq!(Routes::default().station_on_the_way_to(Ipv4Addr::LOCALHOST), None);
    }
}
